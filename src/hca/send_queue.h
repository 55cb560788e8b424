/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * send_queue.h: the ring of send WQEs of one QP. The application's WRs and those of the hidden
 * lane (capsule.h) stand in one order; each lane has its own room. Everything under the engine's
 * lock. Indices run freely: head <= next <= tail.
 */
#ifndef SOFTHCA_HCA_SEND_QUEUE_H
#define SOFTHCA_HCA_SEND_QUEUE_H

#include <stdbool.h>
#include <stdint.h>
#include <infiniband/verbs.h>

#include "hca/capsule.h"

struct send_wqe {
	uint64_t wr_id;
	uint64_t remote_addr;
	uint32_t rkey;
	uint32_t length; /* bytes of the message */
	union {
		__be32 imm;
		uint32_t inv_rkey;
	};
	uint32_t first_psn, packets; /* PSNs that it takes */
	struct hidden_wr *hidden;    /* of the hidden lane, else NULL */
	uint8_t opcode;		     /* enum ibv_wr_opcode */
	uint8_t sge_count;
	uint8_t local_status; /* enum ibv_wc_status: it fails with this when its turn comes */
	bool signaled : 1, solicited : 1, fence : 1;
	bool is_inline : 1; /* the data follow, in place of the SGEs */
	bool started : 1;   /* a packet of it was sent */
	struct ibv_sge sge[];
};

struct send_queue {
	uint8_t *ring;
	uint32_t stride, mask;
	uint32_t head; /* oldest not completed */
	uint32_t next; /* the one to send from */
	uint32_t tail; /* next to post */
	uint32_t max_wr, used_wr;
	uint32_t max_hidden, used_hidden;
	uint32_t max_sge, max_inline;
};

/* Return: 0 or ENOMEM */
int send_queue_init(struct send_queue *sq, const struct ibv_qp_cap *cap, uint32_t hidden_wrs);
void send_queue_free(struct send_queue *sq);

static inline struct send_wqe *send_queue_at(const struct send_queue *sq, uint32_t index)
{
	return (struct send_wqe *)(void *)(sq->ring + (size_t)(index & sq->mask) * sq->stride);
}

/**
 * send_queue_post() - copy a WR into the ring; PSNs are the caller's.
 * Return: 0, EINVAL (opcode, SGE count, inline too long or not possible), EOPNOTSUPP (an
 * operation that we do not have), ENOMEM (full).
 */
int send_queue_post(struct send_queue *sq, const struct ibv_send_wr *wr, bool signal_all,
		    struct send_wqe **wqe);
/* Return: 0, -EAGAIN */
int send_queue_post_hidden(struct send_queue *sq, struct hidden_wr *wr, struct send_wqe **wqe);

/* give the slot of the WQE at the head back; the WQE stays readable until the next post */
void send_queue_pop(struct send_queue *sq);
/* forget everything */
void send_queue_reset(struct send_queue *sq);

static inline bool send_queue_empty(const struct send_queue *sq)
{
	return sq->head == sq->tail;
}

#endif
