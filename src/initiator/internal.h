/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * internal.h: the host between its own files: host.c (life of a host), queue.c (queue pairs),
 * commands.c (what is sent).
 */
#ifndef SOFTHCA_INITIATOR_INTERNAL_H
#define SOFTHCA_INITIATOR_INTERNAL_H

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "initiator/initiator.h"

#define ADMIN_DEPTH  31
#define BOUNCE_BYTES (1U << 20)
#define QUEUES_MAX   128

struct slot {
	bool used;
	bool sending;	/* the SEND is not acknowledged yet */
	bool answering; /* the response has not come yet */
	uint64_t deadline_ns;
	uint8_t opcode;
	initiator_done *done;
	void *arg;
};

struct queue {
	struct initiator *host;
	uint16_t index; /* 0 = admin */
	struct rdma_cm_id *id;
	bool established, disconnected;
	bool closing; /* its end is ours, no failure */
	unsigned int depth, in_flight;
	unsigned int slot_count;
	struct slot *slots;
	unsigned int *free_slots, free_count;
	struct nvme_sqe *capsules;
	struct nvme_cqe *responses;
	struct ibv_mr *capsule_mr, *response_mr;
};

struct initiator_buffer {
	struct ibv_mr *mr;
};

struct initiator {
	char subnqn[NVMF_NQN_SIZE], hostnqn[NVMF_NQN_SIZE];
	uint8_t hostid[16];
	struct sockaddr_storage addr;
	unsigned int depth, timeout_ms, wanted_queues;
	uint32_t kato_ms;
	bool no_in_capsule;
	struct rdma_event_channel *channel;
	struct ibv_pd *pd;
	struct ibv_comp_channel *comp_channel;
	struct ibv_cq *cq;
	struct queue *queues[QUEUES_MAX + 1];
	unsigned int queue_count; /* with the admin queue */
	struct initiator_info info;
	bool discovery, enabled;
	struct initiator_buffer bounce;
	uint8_t *bounce_memory;
	uint64_t next_keep_alive_ns, next_check_ns;
	bool keep_alive_pending;
	bool failed;
	char error[256];
};

/* marks @host as failed (the first reason stays) and completes everything with INITIATOR_LOST */
void host_fail(struct initiator *host, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* connects the QP of queue @index; NULL and the host's error */
struct queue *queue_open(struct initiator *host, uint16_t index, unsigned int depth);
void queue_disconnect(struct queue *queue);
void queue_free(struct queue *queue);
void queue_fail(struct queue *queue);
/* handles CM events that are there */
void host_cm_events(struct initiator *host);

/* true: a completion was handled */
bool host_poll_cq(struct initiator *host);

/* the Fabrics Connect; status, and DW0 in @cqe */
uint16_t command_connect(struct initiator *host, struct queue *queue, struct nvme_cqe *cqe);
uint16_t command_property_get(struct initiator *host, uint32_t offset, bool wide, uint64_t *value);
uint16_t command_property_set(struct initiator *host, uint32_t offset, uint64_t value);

#endif
