/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cm_conn.h: the connection establishment and release protocol (IBTA 1.4, 12.9) without threads,
 * sockets or verbs: MADs, expired timers and requests of the user go in, MADs and events come
 * out. Time is what the caller says it is. Everything here runs under the caller's lock.
 *
 *  active:  IDLE - REQ_SENT - REP_RCVD - ESTABLISHED - DREQ_SENT - TIMEWAIT - IDLE
 *  passive: REQ_RCVD - REP_SENT - ESTABLISHED ...
 */
#ifndef SOFTHCA_CM_CM_CONN_H
#define SOFTHCA_CM_CM_CONN_H

#include "cm/mad.h"
#include "util/list.h"

enum cm_state {
	CM_IDLE,
	CM_REQ_SENT,
	CM_REP_RCVD,
	CM_REQ_RCVD,
	CM_REJ_SENT, /* remembers a REJ for duplicates of the REQ; ends like timewait */
	CM_REP_SENT,
	CM_ESTABLISHED,
	CM_DREQ_SENT,
	CM_TIMEWAIT,
};

/* addresses of the packets of a connection */
struct cm_path {
	union ibv_gid sgid; /* ours */
	union ibv_gid dgid; /* the peer's */
	uint32_t ifindex;
};

enum cm_event_type {
	CM_EVENT_REP,	       /* answer with cm_conn_rtu() or cm_conn_reject() */
	CM_EVENT_ESTABLISHED,  /* passive side: RTU, or what stands for it */
	CM_EVENT_REJECTED,     /* status = REJ reason */
	CM_EVENT_UNREACHABLE,  /* status = -ETIMEDOUT */
	CM_EVENT_DISCONNECTED, /* status 0, or -ETIMEDOUT: the peer did not answer the DREQ */
	CM_EVENT_TIMEWAIT_EXIT,
};

struct cm_event {
	enum cm_event_type type;
	int status;
	const uint8_t *private_data; /* NULL or private_len bytes, valid during the call */
	uint8_t private_len;
};

/* a reason to refuse a REQ, with its additional information */
struct cm_refusal {
	uint16_t reason; /* 0 = none */
	uint8_t ari_len;
	uint8_t ari[CM_REJ_ARI_LEN];
};

struct cm_conn;

struct cm_ops {
	void (*send)(void *arg, const struct cm_path *path, const uint8_t data[CM_MAD_LEN]);
	/* Who listens for this REQ? Return: the listener; NULL with @refusal filled; NULL without a
	 * reason: nobody just now, but it may be a matter of moments (CM_HOLD_NS) */
	void *(*lookup)(void *arg, const struct cm_req *req, const struct cma_header *cma,
			const struct cm_path *path, struct cm_refusal *refusal);
	/* A new connection in state REQ_RCVD: set conn->owner. Return: 0 or a REJ reason, then
	 * the connection is gone */
	uint16_t (*request)(void *arg, void *listener, struct cm_conn *conn,
			    const struct cm_req *req, const struct cma_header *cma);
	/* @conn->owner is not NULL. May call cm_conn_destroy() */
	void (*event)(void *arg, struct cm_conn *conn, const struct cm_event *event);
};

#define CM_BUCKETS  1024
#define CM_HELD_MAX 64
#define CM_HOLD_NS  (250 * 1000000ULL)

/* all connections of a process */
struct cm {
	const struct cm_ops *ops;
	void *arg;
	uint8_t slot;
	uint32_t next_id; /* low 24 bits */
	uint32_t tid_high;
	uint64_t now_ns;
	unsigned int conn_count;
	struct list_node by_id[CM_BUCKETS];	    /* local communication ID */
	struct list_node by_remote_id[CM_BUCKETS];  /* CA GUID, remote communication ID */
	struct list_node by_remote_qpn[CM_BUCKETS]; /* CA GUID, remote QPN */
	struct list_node timers;		    /* by deadline, earliest first */
	struct list_node held; /* REQs that wait for a listener, oldest first */
	unsigned int held_count;
};

struct cm_conn {
	struct cm *cm;
	void *owner; /* NULL: the user is gone, the protocol still has to finish */
	enum cm_state state;
	bool active;
	struct list_node id_node, remote_id_node, remote_qpn_node, timer_node;

	uint32_t local_id, remote_id;
	uint64_t tid;
	uint64_t service_id;
	uint64_t local_guid, remote_guid;
	struct cm_path path;

	/* what the QP is given (wire-facts 4.4) */
	uint32_t local_qpn, remote_qpn;
	uint32_t local_psn;	     /* peer numbers its requests from here: rq_psn */
	uint32_t remote_psn;	     /* sq_psn */
	uint8_t responder_resources; /* max_dest_rd_atomic */
	uint8_t initiator_depth;     /* max_rd_atomic */
	uint8_t retry_count, rnr_retry_count;
	uint8_t path_mtu;    /* enum ibv_mtu */
	uint8_t ack_timeout; /* 4.096 us * 2^n */
	uint8_t traffic_class, hop_limit;
	uint32_t flow_label;
	bool remote_srq, flow_control;
	bool alternate_path; /* the REQ had one: REP says not supported */

	/* the message that is repeated, on timeout or when a duplicate arrives */
	uint8_t message[CM_MAD_LEN];
	uint8_t max_cm_retries;
	uint64_t response_timeout_ns; /* largest interval between repetitions */
	uint64_t interval_ns;
	unsigned int repetitions;
	unsigned int refusals; /* REJs for an unknown service ID that were not believed */
	uint64_t deadline_ns;  /* 0 = no timer */
	bool was_connected;    /* timewait ends with an event */
};

/* what both sides say about themselves */
struct cm_conn_param {
	uint64_t ca_guid;
	uint32_t qpn;
	uint32_t starting_psn;
	uint8_t responder_resources, initiator_depth;
	uint8_t retry_count; /* REQ only */
	uint8_t rnr_retry_count;
	uint8_t target_ack_delay; /* REP only */
	bool flow_control, srq;
	const void *private_data; /* REQ: what follows the CMA header */
	uint8_t private_len;
};

struct cm_connect_param {
	struct cm_conn_param conn;
	struct cm_path path;
	struct cma_header cma;
	uint64_t service_id;
	uint8_t path_mtu;
	uint8_t ack_timeout;
	uint8_t traffic_class, hop_limit;
	uint32_t flow_label;
};

/* @seed: where IDs start; random in real life */
void cm_init(struct cm *cm, const struct cm_ops *ops, void *arg, uint8_t slot, uint64_t seed);
/* forget all connections without sending anything */
void cm_fini(struct cm *cm);

/* a MAD from the network; undecodable ones are counted and dropped */
void cm_receive(struct cm *cm, const struct cm_path *path, const uint8_t data[CM_MAD_LEN],
		uint64_t now_ns);
/* somebody listens for @service_id now: REQs that were held come again */
void cm_listening(struct cm *cm, uint64_t service_id, uint64_t now_ns);
/* 0 = no timer is running */
uint64_t cm_next_deadline(const struct cm *cm);
void cm_run_timers(struct cm *cm, uint64_t now_ns);

/* active side. Return: 0, -EINVAL (private data too long), -ENOMEM */
int cm_connect(struct cm *cm, struct cm_conn **conn, void *owner,
	       const struct cm_connect_param *param, uint64_t now_ns);
/* after CM_EVENT_REP. Return: 0, -EINVAL (wrong state or length) */
int cm_conn_rtu(struct cm_conn *conn, const void *private_data, uint8_t private_len);
/* passive side: fixes what the QP gets (in conn->*), before the QP is made ready.
 * Return: 0, -EINVAL */
int cm_conn_prepare_accept(struct cm_conn *conn, const struct cm_conn_param *param);
/* send the REP. Return: 0, -EINVAL */
int cm_conn_accept(struct cm_conn *conn, const struct cm_conn_param *param, uint64_t now_ns);
/* data arrived on the QP before the RTU did. Return: 0, -EINVAL (not waiting for an RTU) */
int cm_conn_comm_established(struct cm_conn *conn);
/* REQ_RCVD, REP_RCVD, REP_SENT. Return: 0, -EINVAL (wrong state or length) */
int cm_conn_reject(struct cm_conn *conn, uint16_t reason, const void *private_data,
		   uint8_t private_len, uint64_t now_ns);
/* REP_SENT, ESTABLISHED: send a DREQ. Return: 0 (also when disconnected already), -EINVAL */
int cm_conn_disconnect(struct cm_conn *conn, uint64_t now_ns);
/* the user goes away, in any state: what the state calls for is sent, no event follows, the
 * memory is freed when the protocol allows it. @conn is not valid after this */
void cm_conn_destroy(struct cm_conn *conn, uint64_t now_ns);
/* the process ends: one DREQ or REJ for each live connection, without waiting for answers */
void cm_farewell(struct cm *cm);

const char *cm_state_name(enum cm_state state);

#endif
