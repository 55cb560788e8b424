/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rdma.h: the target's RDMA transport, between its own files. One thread drives all of it.
 *
 *   transport   the process: CM events, devices, connections
 *   device      per RDMA device: protection domain, data buffers, receive rings, offloads
 *   ring        a multi-packet shared receive queue with its buffers and its CQ
 *   offload     per device and subsystem: an IBV_SRQT_NVMF ring and a queue pair of the subsystem's
 *               soft NVMe controller
 *   connection  a queue pair
 *   request     a command of a connection that software handles
 *
 * Which subsystem an I/O queue belongs to is known from its Connect command, but its QP needs its
 * SRQ before. So the SRQ is chosen by a guess from the CM request (transport_guess_subsystem());
 * when Connect proves the guess wrong, software serves the queue: slower, not wrong.
 */
#ifndef SOFTHCA_TARGET_RDMA_H
#define SOFTHCA_TARGET_RDMA_H

#include <stdbool.h>
#include <stdint.h>
#include <infiniband/verbs.h>
#include <infiniband/verbs_ext.h>
#include <rdma/rdma_cma.h>

#include "target/capsule.h"
#include "target/model.h"
#include "target/server.h"
#include "target/sgl.h"

#define CONNECTION_HASH	   1024
#define RING_BUFFERS	   64
#define RING_BUFFER_BYTES  32768
#define RING_ALIGN_BYTES   64
#define RING_SEND_BUDGET   16384 /* signaled sends outstanding of all its QPs */
#define DATA_BUFFERS	   64
#define OFFLOAD_SLOTS	   256 /* staging, in units of the largest transfer */
#define OFFLOAD_SQ_ENTRIES 256

struct transport {
	struct target target;
	struct server_options options;
	struct rdma_event_channel *channel;
	struct list_node devices;
	struct list_node connections;
	struct list_node by_qp_num[CONNECTION_HASH];
	uint32_t next_serial;
	unsigned int connection_count;
	bool stopping;
	uint64_t capsules; /* handled by software, admin included */
	uint64_t rejected;
};

/* a buffer for the data of one command */
struct data_buffer {
	struct list_node node;
	uint8_t *data;
};

struct device {
	struct list_node node; /* transport.devices */
	struct transport *transport;
	struct ibv_context *verbs;
	struct ibv_device_attr attr;
	struct ibv_pd *pd;
	uint8_t *data_memory;
	struct ibv_mr *data_mr;
	struct data_buffer *data_buffers;
	struct list_node free_buffers;
	unsigned int free_buffer_count;
	struct list_node buffer_queue; /* connections that wait for buffers, served in turn */
	bool serving;
	struct ring *ring; /* for admin queues and unmatched I/O queues */
	struct list_node offloads;
};

struct ring {
	struct device *device;
	struct ibv_comp_channel *comp_channel;
	struct ibv_cq_ex *cq;
	struct ibv_srq *srq;
	uint8_t *memory;
	struct ibv_mr *mr;
	uint32_t buffer_bytes, buffers;
	uint32_t send_budget;
	uint64_t capsules, pieces, consumed, nops;
	bool offloaded;
};

struct offload {
	struct list_node node; /* device.offloads */
	struct device *device;
	struct subsystem *subsystem;
	struct ring *ring;
	struct soft_qp *soft_qp;
	struct ibv_nvme_ctrl *ctrl;
	uint8_t *memory; /* staging, SQ, CQ */
	size_t memory_len;
	struct ibv_mr *staging_mr, *sq_mr, *cq_mr, *doorbell_mr;
	uint64_t seen_activity;
	unsigned int polls;
};

enum connection_state { CONNECTION_ACCEPTED, CONNECTION_LIVE, CONNECTION_CLOSING };

struct connection {
	struct list_node node; /* transport.connections */
	struct list_node hash; /* transport.by_qp_num */
	struct transport *transport;
	struct device *device;
	struct ring *ring;
	struct offload *offload; /* whose ring it uses; NULL: the device's */
	struct rdma_cm_id *id;
	uint32_t qp_num, serial;
	enum connection_state state;
	bool offload_enabled;
	bool disconnect_sent;
	struct queue queue;
	struct sockaddr_storage peer;
	uint16_t depth; /* entries of the host's queue */
	uint16_t request_count;
	struct request *requests;
	uint8_t *capsules;
	struct list_node free_requests;
	struct capsule capsule; /* in progress, into filling->capsule */
	struct request *filling;
	uint16_t sqhd;
	uint32_t sq_free;
	struct list_node sq_waiters;	 /* struct request.wait */
	uint32_t signaled;		 /* completions to come */
	unsigned int buffers;		 /* data buffers that its requests hold */
	struct list_node buffer_waiters; /* struct request.wait */
	struct list_node buffer_node;	 /* device.buffer_queue, when there are any */
	uint64_t created_ns, close_deadline_ns;
	uint64_t progress_ns; /* when a completion came, or was first waited for */
};

enum request_state {
	REQUEST_FREE,
	REQUEST_FILLING,
	REQUEST_WAIT_BUFFER,
	REQUEST_READING, /* waits for send queue room or for its RDMA READs */
	REQUEST_HELD,	 /* an AER */
	REQUEST_RESPONDING,
};

struct request {
	struct list_node node; /* connection.free_requests */
	struct list_node wait; /* of whatever it waits for */
	struct connection *conn;
	uint16_t index;
	enum request_state state;
	uint32_t capsule_len;
	uint8_t *capsule;
	struct sgl sgl;
	struct transfer transfer;
	struct data_buffer *buffer;
	struct command cmd;
	uint32_t wrs; /* work requests posted for the step in progress */
};

/* ---- device.c ---- */

/* the device of @verbs, made on first use; NULL after a message */
struct device *device_get(struct transport *transport, struct ibv_context *verbs);
void device_free(struct device *device);
/* completions of all rings; true when there were any */
bool device_poll(struct device *device);
/* before sleeping: completions will be announced on the rings' channels */
void device_arm(struct device *device);
/* asynchronous events, as many as there are */
void device_async_events(struct device *device);
/* a data buffer for @request, now if there is one, or by request_got_buffer(). A connection may
 * hold half as many as are free, and one in any case: a host that has died or takes no answers
 * leaves some for the others */
void device_buffer_get(struct request *request);
void device_buffer_put(struct connection *conn, struct data_buffer *buffer);

/* ---- ring.c ---- */

/* @nvmf: offload attributes, or NULL for a plain one; NULL and errno on failure */
struct ring *ring_create(struct device *device, const struct ibv_nvmf_attrs *nvmf);
void ring_free(struct ring *ring);
bool ring_poll(struct ring *ring);
void ring_arm(struct ring *ring);
/* a notification arrived on its channel */
void ring_notified(struct ring *ring);

/* ---- offload.c ---- */

/* false: not possible, after a message that says why */
bool offload_create(struct device *device, struct subsystem *subsystem);
/* QPs are gone: unmap, remove, deregister, free */
void offload_free(struct offload *offload);
struct offload *offload_find(struct device *device, const struct subsystem *subsystem);
/* progress of the soft controllers' back ends and of the offload; true: something went on */
bool offload_poll(struct offload *offload);
void offload_totals(const struct subsystem *subsystem, struct io_totals *totals);
/* a namespace was switched on or off: map or unmap it on all devices. Unmapping waits for the
 * commands in flight */
void offload_switch_namespace(const struct subsystem *subsystem, const struct namespace *ns);
/* the subsystem's soft controllers, which its devices share */
struct soft_ctrl *subsystem_controller(struct subsystem *subsystem);
void subsystem_controller_free(struct subsystem *subsystem);

/* ---- connection.c ---- */

/* an RDMA_CM_EVENT_CONNECT_REQUEST: accepts or rejects. The event was acknowledged */
void connection_request(struct transport *transport, struct rdma_cm_id *id, const struct port *port,
			const void *private_data, unsigned int len, unsigned int initiator_depth);
struct connection *connection_by_qp_num(struct transport *transport, uint32_t qp_num);
void connection_established(struct connection *conn);
/* ends it; it is freed by connection_reap() when its work requests are flushed */
void connection_close(struct connection *conn, const char *why);
/* frees closed connections; closes those that never connected */
void connections_reap(struct transport *transport, uint64_t now_ns);
/* a piece of a capsule */
void connection_receive(struct connection *conn, const uint8_t *piece, uint32_t bytes, bool more);

/* ---- request.c ---- */

/* all of the capsule is there */
void request_start(struct request *request);
/* a signaled work request of @request is complete */
void request_completion(struct request *request, enum ibv_wc_status status);
/* a held command is done */
void request_held_done(struct request *request);
/* gives back what it holds; for closed connections too */
void request_release(struct request *request);
/* a data buffer has come free */
void request_got_buffer(struct request *request);
/* send queue room has come free */
void connection_continue_waiters(struct connection *conn);

/* ---- stats.c ---- */

/* JSON of log page 0xc0 */
size_t statistics_json(struct target *target, const struct subsystem *subsystem, char *text,
		       size_t len);
void statistics_print(struct transport *transport);
/* false after a message */
bool statistics_write(struct transport *transport, const char *path);

#endif
