/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * recv_queue.h: receive queues: one interface, two kinds (basic and multi-packet), used alike by
 * a QP's own RQ, an SRQ and a WQ. The responder never asks which kind it holds: it tells the
 * queue what arrived, the queue places the payload and makes the completions.
 * Everything under the engine's lock. MP WR rules: docs/mp-wr.md.
 */
#ifndef SOFTHCA_HCA_RECV_QUEUE_H
#define SOFTHCA_HCA_RECV_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "hca/cq.h"
#include "hca/memory.h"
#include "infiniband/verbs_ext.h"
#include "util/list.h"
#include "wire/packet.h"

struct recv_queue;
struct recv_wqe;

struct recv_queue_attr {
	struct hca_pd *pd;
	uint32_t max_wr, max_sge;
	bool is_srq;
	bool multi_packet;
	struct ibv_mp_wr_attr mp_wr; /* already rounded by recv_queue_round_mp_wr() */
};

/* the message that a QP is receiving; embedded in the QP, zeroed = none */
struct recv_message {
	struct recv_wqe *wqe; /* basic: taken from the queue for this message */
	uint32_t offset;      /* bytes placed so far */
	bool open;	      /* between FIRST and LAST */
};

/* who receives; filled in once by the QP */
struct recv_target {
	struct hca_cq *cq;
	struct hca_pd *pd;
	uint32_t qp_num;
	bool is_ud; /* 40 bytes GRH area precede the payload */
};

enum recv_status {
	RECV_OK,
	RECV_EMPTY,	 /* no WR: RNR NAK. Nothing happened but a possible NOP completion */
	RECV_TOO_LONG,	 /* WR completed LOC_LEN_ERR: NAK invalid request */
	RECV_PROTECTION, /* WR completed LOC_PROT_ERR: NAK remote operational error */
};

/**
 * recv_queue_round_mp_wr() - check and round MP WR geometry (docs/mp-wr.md, "Errors").
 * @attr: in/out; unchanged on error.
 * Return: 0 or EINVAL.
 */
int recv_queue_round_mp_wr(struct ibv_mp_wr_attr *attr);

/* Return: the queue, or NULL and errno ENOMEM, EINVAL (max_wr, max_sge beyond the limits) */
struct recv_queue *recv_queue_create(const struct recv_queue_attr *attr);
void recv_queue_free(struct recv_queue *rq); /* its CQEs were purged before */
const struct recv_queue_attr *recv_queue_attr(const struct recv_queue *rq);
/* Return: 0, ENOMEM, EINVAL (fewer than are posted); basic kind only, else EOPNOTSUPP */
int recv_queue_resize(struct recv_queue *rq, uint32_t max_wr);

/* WRs posted that no packet has touched */
uint32_t recv_queue_untouched(const struct recv_queue *rq);

/* Return: 0, ENOMEM (full), EINVAL (too many SGEs; MP WR: not exactly wr_buffer_sz bytes) */
int recv_queue_post(struct recv_queue *rq, const struct ibv_recv_wr *wr);

/**
 * recv_queue_send() - one packet of a SEND message arrived: place it and complete as due.
 * @p: OPF_START/OPF_END say where in the message it is; immediate, invalidated rkey and the
 *     solicited bit go into the completion of the last piece (the caller has invalidated already).
 */
enum recv_status recv_queue_send(struct recv_queue *rq, struct recv_message *msg,
				 const struct recv_target *target, const struct packet *p);

/**
 * recv_queue_write_imm() - the last packet of an RDMA WRITE with immediate arrived.
 * @byte_len: length of the whole WRITE.
 */
enum recv_status recv_queue_write_imm(struct recv_queue *rq, const struct recv_target *target,
				      const struct packet *p, uint32_t byte_len);

/**
 * recv_queue_abort() - the QP goes to ERR or RESET while @msg is open: its WR (basic) completes
 * with @status (IBV_WC_SUCCESS: no completion, for RESET).
 */
void recv_queue_abort(struct recv_queue *rq, struct recv_message *msg,
		      const struct recv_target *target, enum ibv_wc_status status);

/* own RQ, QP to ERR: one WR_FLUSH_ERR completion for each WR not given back, current one first */
void recv_queue_flush(struct recv_queue *rq, const struct recv_target *target);
/* QP to RESET: forget all WRs without completions */
void recv_queue_reset(struct recv_queue *rq);

/* called by cq_take() when a completion with cqe.slot_of == rq was polled */
void recv_queue_slot_polled(struct recv_queue *rq);

struct recv_queue_stats {
	uint64_t packets, wrs, nops;
};
void recv_queue_get_stats(const struct recv_queue *rq, struct recv_queue_stats *stats);

/* ---- shared receive queue ------------------------------------------------- */

struct hca_srq {
	struct hca_context *ctx;
	struct hca_pd *pd;
	void *owner; /* the struct ibv_srq */
	struct recv_queue *rq;
	struct hca_cq *cq; /* MP WR and NVMF: the one receive CQ; else NULL until a QP attaches */
	uint32_t limit;	   /* 0 = disarmed */
	_Atomic unsigned int references; /* QPs attached */
	struct offload *offload;	 /* NVMe-oF offload of this SRQ, or NULL */
};

/* after a WR was taken: raise SRQ_LIMIT_REACHED once when fewer than the limit are untouched */
void srq_check_limit(struct hca_srq *srq);

#endif
