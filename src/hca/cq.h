/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cq.h: completion queues. Filled under an engine's lock, polled by the application under the
 * CQ's own (several engines may fill one CQ). Polling here makes no progress: the verbs room
 * calls engine_poll() when it finds nothing.
 */
#ifndef SOFTHCA_HCA_CQ_H
#define SOFTHCA_HCA_CQ_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "hca/context.h"

struct recv_queue;

struct cqe {
	uint64_t wr_id;
	enum ibv_wc_status status;
	enum ibv_wc_opcode opcode;
	uint32_t vendor_err;
	uint32_t byte_len;
	union {
		__be32 imm_data;
		uint32_t invalidated_rkey;
	};
	uint32_t qp_num;
	uint32_t src_qp;
	unsigned int wc_flags;
	uint16_t pkey_index;
	uint64_t mp_wr_offset;
	uint64_t timestamp_ns;
	struct recv_queue *slot_of; /* polling this CQE frees one WR slot there (MP WR), or NULL */
};

enum cq_arm { CQ_NOT_ARMED, CQ_ARMED_SOLICITED, CQ_ARMED_NEXT };

struct hca_cq {
	struct hca_context *ctx;
	void *owner;	      /* the struct ibv_cq */
	pthread_mutex_t lock; /* adaptive: who holds it may lose its core */
	struct cqe *ring;
	uint32_t size;	     /* usable entries */
	uint32_t head, tail; /* free-running: head = next to poll, tail = next to fill */
	bool overrun, ignore_overrun;
	bool mp_wr; /* extended, with IBV_WC_EX_WITH_MP_WR */
	enum cq_arm armed;
	void (*notify)(struct hca_cq *cq); /* put an event on the completion channel, or NULL */
	_Atomic unsigned int references;   /* QPs and SRQs that use it */
};

/* Return: 0, EINVAL (entries 0 or > HCA_MAX_CQE), ENOMEM */
int cq_init(struct hca_cq *cq, struct hca_context *ctx, uint32_t entries);
void cq_free(struct hca_cq *cq);
/* Return: 0, EINVAL (fewer than are in it), ENOMEM */
int cq_resize(struct hca_cq *cq, uint32_t entries);

/**
 * cq_push() - add a completion; raises an event when the CQ is armed (@solicited or an error
 * status satisfies CQ_ARMED_SOLICITED). Full: the CQ is in error: CQ_ERR event once; QPs on it go
 * to ERR at their next step (cq->overrun).
 */
void cq_push(struct hca_cq *cq, const struct cqe *cqe, bool solicited);

/* take up to @count completions out; frees MP WR slots. Return: how many, -EIO after an overrun */
int cq_take(struct hca_cq *cq, struct cqe *cqes, int count);
bool cq_is_empty(const struct hca_cq *cq);

/* ibv_req_notify_cq: an event for the next completion; nothing for those already there */
void cq_arm(struct hca_cq *cq, bool solicited_only);

/* the QP or receive queue goes away: drop its completions and references to its slots */
void cq_purge(struct hca_cq *cq, uint32_t qp_num, const struct recv_queue *rq);

/* a CQE as the classic ibv_wc */
void cqe_to_wc(const struct cqe *cqe, struct ibv_wc *wc);

#endif
