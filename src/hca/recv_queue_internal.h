/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * recv_queue_internal.h: what the two kinds of receive queues share: recv_queue.c has posting and
 * the FIFO of posted WQEs, recv_queue_basic.c and recv_queue_mp.c say what a packet does to them.
 */
#ifndef SOFTHCA_HCA_RECV_QUEUE_INTERNAL_H
#define SOFTHCA_HCA_RECV_QUEUE_INTERNAL_H

#include <stdatomic.h>

#include "hca/recv_queue.h"

struct recv_wqe {
	struct recv_wqe *next; /* in the FIFO or the free list */
	uint64_t wr_id;
	uint64_t length; /* sum of the SGEs, bytes */
	int num_sge;
	struct ibv_sge sge[]; /* attr.max_sge */
};

/* one allocation of WQEs; a queue that grows gets another one, so that WQEs never move */
struct wqe_chunk {
	struct wqe_chunk *next;
	uint32_t count, used; /* WQEs are handed out in order before the free list is used */
	uint8_t *wqes;
};

struct recv_queue_ops {
	enum recv_status (*send)(struct recv_queue *rq, struct recv_message *msg,
				 const struct recv_target *target, const struct packet *p);
	enum recv_status (*write_imm)(struct recv_queue *rq, const struct recv_target *target,
				      const struct packet *p, uint32_t byte_len);
	void (*abort)(struct recv_queue *rq, struct recv_message *msg,
		      const struct recv_target *target, enum ibv_wc_status status);
};

struct recv_queue {
	const struct recv_queue_ops *ops;
	struct recv_queue_attr attr;
	struct recv_queue_stats stats;

	struct recv_wqe *first, **last; /* FIFO of posted WQEs that no packet has touched */
	uint32_t untouched;
	struct recv_wqe *free;
	struct wqe_chunk *chunks;
	size_t wqe_size;

	/*
	 * WRs that count against max_wr. Basic: until the completion is made. MP WR: until it is
	 * polled, by recv_queue_slot_polled() without the engine's lock.
	 */
	_Atomic uint32_t slots_used;

	/* multi-packet */
	struct recv_wqe *current; /* partly filled, or NULL */
	uint32_t cursor;	  /* next unit in it */
	uint32_t units;		  /* of a WR */
};

extern const struct recv_queue_ops recv_queue_basic_ops, recv_queue_mp_ops;

#define GRH_AREA_LEN 40

/* take the next posted WQE out of the FIFO, NULL = none */
struct recv_wqe *recv_queue_take(struct recv_queue *rq);
/* a WQE's content is no longer needed; its slot is freed separately */
void recv_queue_put_wqe(struct recv_queue *rq, struct recv_wqe *wqe);
void recv_queue_free_slot(struct recv_queue *rq);

/**
 * recv_queue_place() - write what @p brings at @offset of @wqe's buffer: for UD the GRH area, then
 * the payload. The buffer is checked for all of it before the first byte is written.
 * Return: false: a key, its rights or its bounds do not fit. @offset + length <= wqe->length.
 */
bool recv_queue_place(const struct recv_queue *rq, const struct recv_wqe *wqe, uint64_t offset,
		      const struct recv_target *target, const struct packet *p);

/* bytes that recv_queue_place() writes */
static inline uint32_t recv_place_len(const struct recv_target *target, const struct packet *p)
{
	return p->payload_len + (target->is_ud ? GRH_AREA_LEN : 0);
}

/* the completion of @p for @wqe: everything that the kind of queue does not decide */
struct cqe recv_queue_cqe(const struct recv_wqe *wqe, const struct recv_target *target,
			  const struct packet *p, enum ibv_wc_opcode opcode, uint32_t byte_len);
/* add a completion with an error status for @wqe */
void recv_queue_push_error(struct recv_queue *rq, const struct recv_wqe *wqe,
			   const struct recv_target *target, enum ibv_wc_status status);

#endif
