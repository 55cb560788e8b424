/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * qp_internal.h: the queue pair itself, for qp.c, qp_modify.c, requester.c, responder.c and
 * timers.c only. Everything under the engine's lock.
 */
#ifndef SOFTHCA_HCA_QP_INTERNAL_H
#define SOFTHCA_HCA_QP_INTERNAL_H

#include "hca/peer.h"
#include "hca/qp.h"
#include "hca/send_queue.h"

/* one turn of a QP in a round of the engine: a few super-packets, so that the runs of equal packets
 * that the link makes of them are long, and what is left over is little */
#define TX_BURST_BYTES	 (256U << 10)
#define TX_BURST_PACKETS 512U

/* posts wait for company up to one super-packet's worth */
#define DEFER_BYTES   (60U << 10)
#define DEFER_PACKETS 64U

/* what a packet costs a receive buffer beside its payload, bytes */
#define PACKET_OVERHEAD 128U

/* how a turn to send ended */
enum tx_result {
	TX_IDLE,      /* nothing to send now */
	TX_MORE,      /* the turn is over, there is more */
	TX_WAIT_PEER, /* the peer's window is full */
	TX_WAIT_READ, /* our own receive buffer has no room for READ responses */
	TX_LINK_FULL,
};

struct requester {
	/* una <= next <= max <= post, as PSNs; sent and unacknowledged: [una, max) */
	uint32_t una_psn;  /* oldest unacknowledged */
	uint32_t next_psn; /* next to send; falls behind max_psn when packets are sent again */
	uint32_t max_psn;  /* one past the newest that was ever sent */
	uint32_t post_psn; /* first PSN of the WQE to be posted next */

	uint64_t in_flight;	   /* what [una, next) holds of the peer's window, bytes */
	uint64_t read_bytes;	   /* READ responses asked for and not yet got, bytes */
	uint32_t reads;		   /* READ requests outstanding, <= max_rd_atomic */
	uint32_t reads_begun;	   /* READ WQEs begun and not completed (fence) */
	uint32_t read_restart_psn; /* the READ was asked for again from here */
	uint32_t read_chunk;	   /* packets of response that one READ request asks for */

	uint32_t unsolicited_packets, unsolicited_bytes; /* sent since the last AckReq */
	uint32_t deferred_packets, deferred_bytes;	 /* posted since the last turn to send */
	bool want_ack;	  /* the next packet asks for an ACK whatever follows it */
	bool rnr_wait;	  /* the timer is that of an RNR NAK */
	bool implied_nak; /* went back for a lost response; once until there is progress */
	bool probing;	  /* timed out: one packet at a time until there is progress */
	uint8_t retries_left, rnr_retries_left;

	/* when and of which packet an acknowledgement is timed; 0 = of none */
	uint64_t timed_ns;
	uint32_t timed_psn;
	uint64_t rtt_ns, rtt_var_ns; /* smoothed; 0 = not measured yet */

	struct engine_timer timer;
	/* the real ones; the heap's may be earlier (timers.c). 0 = stopped */
	uint64_t deadline_ns, probe_ns;
	uint8_t probes; /* since there was progress */
};

/* a READ that was accepted: kept so that a duplicate can be answered (IBTA 1.4, 9.7.5.1.5) */
struct read_resource {
	uint32_t first_psn, packets;
	uint64_t va;
	uint32_t rkey, length;
	uint32_t msn;
	/* the execution in progress: packets [start, end) of the READ, the next one to send */
	uint32_t start, next, end;
	uint32_t end_offset; /* bytes */
	bool active, duplicate;
};

enum message_kind { MESSAGE_NONE, MESSAGE_SEND, MESSAGE_CAPSULE, MESSAGE_WRITE };

struct responder {
	uint32_t epsn; /* expected PSN */
	uint32_t msn;
	bool nak_sent; /* sequence or RNR NAK: silent until ePSN arrives */

	/* the message that is coming in */
	enum message_kind message;
	struct recv_message recv;
	uint64_t write_va;
	uint32_t write_rkey, write_length, write_left;
	bool invalidated; /* the key of the packet at ePSN, which an RNR NAK turned away */

	/* the response that is owed; READ responses go before it */
	bool owed;
	uint8_t syndrome;
	uint32_t owed_psn; /* NAKs; an ACK takes ack_psn */
	uint32_t ack_psn;  /* newest SEND or WRITE packet accepted */
	uint64_t owed_round;
	bool lazy; /* a message has ended: let the application's answer carry the ACK */

	/* a NAK that ends the QP: requests are ignored, it leaves after the READ responses */
	bool failed;
	enum ibv_event_type fail_event;
	bool has_fail_event;
	enum ibv_wc_status recv_status; /* of the open receive */

	/* resources [read_tail - max_dest_rd_atomic, read_tail) are kept */
	struct read_resource *read_ring; /* HCA_MAX_RD_ATOMIC, so that modify never moves it */
	uint32_t read_tail, read_oldest; /* none before read_oldest is active */
	uint32_t reads_active;
};

struct hca_qp {
	struct engine *engine;
	struct hca_context *ctx;
	struct hca_pd *pd;
	void *owner;
	enum ibv_qp_type type;
	uint32_t qpn;
	enum ibv_qp_state state;

	/* address vector, valid from RTR on */
	struct link_flow flow;
	struct peer *peer;
	uint32_t dest_qpn;
	uint32_t mtu; /* bytes */

	struct send_queue sq;
	struct requester req;
	struct responder resp;
	struct hca_cq *send_cq, *recv_cq;
	struct hca_srq *srq;
	struct recv_queue *rq; /* own, or the SRQ's */
	struct recv_target target;
	bool is_multi_packet;
	bool sq_sig_all;

	struct list_node tx_node;  /* engine.tx_list, engine.read_waiters or peer.waiters */
	struct list_node ack_node; /* engine.ack_list */

	const struct capsule_ops *capsule_ops;
	void *capsule_state;
	bool hidden_starved; /* owes capsule_ops->room() */

	struct ibv_qp_attr attr; /* as qp_query() answers */
	struct ibv_qp_init_attr init_attr;
	bool comm_est;	   /* event raised */
	bool drain_notify; /* SQD: event owed */
};

/* ---- qp.c ------------------------------------------------------------------ */

/* The QP may have something to send: it gets a turn in this round or the next */
static inline void qp_schedule(struct hca_qp *qp)
{
	list_del(&qp->tx_node);
	list_add_tail(&qp->engine->tx_list, &qp->tx_node);
}

static inline bool qp_can_respond(const struct hca_qp *qp)
{
	return qp->state == IBV_QPS_RTR || qp->state == IBV_QPS_RTS || qp->state == IBV_QPS_SQD;
}

static inline bool qp_can_request(const struct hca_qp *qp)
{
	return qp->state == IBV_QPS_RTS || qp->state == IBV_QPS_SQD;
}

/* one turn to send: READ responses, then requests. For the engine */
enum tx_result qp_transmit(struct hca_qp *qp);
/* to ERR: the WQE at the head of the send queue completes with @status, all others are flushed */
void qp_enter_error(struct hca_qp *qp, enum ibv_wc_status status);
/* to RESET: everything is forgotten without completions */
void qp_enter_reset(struct hca_qp *qp);
/* back to where a QP starts: no peer, no PSNs, no lists, no timers */
void qp_event(struct hca_qp *qp, enum ibv_event_type event);
/* a completion was added: an overrun takes the QP down */
void qp_check_overrun(struct hca_qp *qp, const struct hca_cq *cq);

/* ---- requester.c ------------------------------------------------------------ */

/* INIT -> RTR and RTR -> RTS set what the PSNs and the MTU decide */
void requester_start(struct hca_qp *qp, uint32_t psn);
/* leave RTS: stop timers, give the window back */
void requester_stop(struct hca_qp *qp);
/* give a posted WQE its PSNs */
void requester_posted(struct hca_qp *qp, struct send_wqe *wqe);
enum tx_result requester_transmit(struct hca_qp *qp);
void requester_receive(struct hca_qp *qp, const struct packet *p);
/* complete everything with WR_FLUSH_ERR, the first one with @status */
void requester_flush(struct hca_qp *qp, enum ibv_wc_status status);
/* SQD was entered: what is in flight must be acknowledged */
void requester_drain(struct hca_qp *qp);

static inline bool requester_is_idle(const struct hca_qp *qp)
{
	return qp->req.una_psn == qp->req.max_psn;
}

/* timers.c calls these when time is over */
void requester_timed_out(struct hca_qp *qp, uint64_t now_ns);
void requester_probe(struct hca_qp *qp);
void requester_rnr_over(struct hca_qp *qp);

/* ---- responder.c ------------------------------------------------------------ */

void responder_start(struct hca_qp *qp, uint32_t psn);
void responder_receive(struct hca_qp *qp, const struct packet *p);
/* READ responses, in PSN order */
enum tx_result responder_transmit(struct hca_qp *qp);
/* the ACK or NAK that is owed. Return: false = it must wait (on READ responses or the link) */
bool responder_acknowledge(struct hca_qp *qp);
/* leave RTR..SQD: forget the message and the READs; the receive queue is qp.c's */
void responder_stop(struct hca_qp *qp);

/* ---- timers.c: protocol events and what they mean for the one timer of a QP ---- */

void timers_init(struct hca_qp *qp);
void timers_request_sent(struct hca_qp *qp);
void timers_progress(struct hca_qp *qp); /* something was acknowledged */
void timers_rtt_sample(struct hca_qp *qp, uint64_t rtt_ns);
void timers_rnr_received(struct hca_qp *qp, uint8_t code);
void timers_stop(struct hca_qp *qp);

/* RNR timer codes (wire-facts 2.6), in us */
extern const uint32_t rnr_timer_us[32];

#endif
