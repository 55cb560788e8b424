/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cq.c: completion queues: a ring that engines fill and the application empties, and the arming
 * rules for completion events. IBTA 1.4, 11.4.2.
 *
 * head and tail are written under cq->lock and read outside it by cq_is_empty() only.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "hca/cq.h"
#include "hca/recv_queue.h"
#include "util/bytes.h"
#include "util/counters.h"
#include "util/log.h"

static struct cqe *slot(const struct hca_cq *cq, uint32_t n)
{
	return &cq->ring[n & (cq->size - 1)];
}

static void set_head(struct hca_cq *cq, uint32_t head)
{
	__atomic_store_n(&cq->head, head, __ATOMIC_RELEASE);
}

static void set_tail(struct hca_cq *cq, uint32_t tail)
{
	__atomic_store_n(&cq->tail, tail, __ATOMIC_RELEASE);
}

int cq_init(struct hca_cq *cq, struct hca_context *ctx, uint32_t entries)
{
	pthread_mutexattr_t attr;

	if (!entries || entries > HCA_MAX_CQE)
		return EINVAL;
	memset(cq, 0, sizeof(*cq));
	cq->ctx = ctx;
	cq->size = round_up_power_of_two(entries);
	cq->ring = calloc(cq->size, sizeof(*cq->ring));
	if (!cq->ring)
		return ENOMEM;
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ADAPTIVE_NP);
	pthread_mutex_init(&cq->lock, &attr);
	pthread_mutexattr_destroy(&attr);
	return 0;
}

void cq_free(struct hca_cq *cq)
{
	pthread_mutex_destroy(&cq->lock);
	free(cq->ring);
	cq->ring = NULL;
}

int cq_resize(struct hca_cq *cq, uint32_t entries)
{
	struct cqe *ring, *old;
	uint32_t size, count;

	if (!entries || entries > HCA_MAX_CQE)
		return EINVAL;
	size = round_up_power_of_two(entries);
	ring = calloc(size, sizeof(*ring));
	if (!ring)
		return ENOMEM;

	pthread_mutex_lock(&cq->lock);
	count = cq->tail - cq->head;
	if (count > size) {
		pthread_mutex_unlock(&cq->lock);
		free(ring);
		return EINVAL;
	}
	for (uint32_t i = 0; i < count; i++)
		ring[i] = *slot(cq, cq->head + i);
	old = cq->ring;
	cq->ring = ring;
	cq->size = size;
	set_head(cq, 0);
	set_tail(cq, count);
	pthread_mutex_unlock(&cq->lock);
	free(old);
	return 0;
}

static void overrun(struct hca_cq *cq)
{
	bool first = !cq->overrun;

	counter_inc(CNT_CQ_OVERRUN);
	if (cq->ignore_overrun) {
		pthread_mutex_unlock(&cq->lock);
		return;
	}
	cq->overrun = true;
	pthread_mutex_unlock(&cq->lock);
	if (!first)
		return;
	log_debug("CQ overrun: %u entries are too few for what was posted", cq->size);
	cq->ctx->event(cq->ctx, IBV_EVENT_CQ_ERR, cq->owner);
}

void cq_push(struct hca_cq *cq, const struct cqe *cqe, bool solicited)
{
	bool notify = false;

	pthread_mutex_lock(&cq->lock);
	if (cq->tail - cq->head == cq->size) {
		overrun(cq);
		return;
	}
	*slot(cq, cq->tail) = *cqe;
	set_tail(cq, cq->tail + 1);
	if (cq->armed == CQ_ARMED_NEXT ||
	    (cq->armed == CQ_ARMED_SOLICITED && (solicited || cqe->status != IBV_WC_SUCCESS))) {
		cq->armed = CQ_NOT_ARMED;
		notify = cq->notify != NULL;
	}
	pthread_mutex_unlock(&cq->lock);
	if (notify)
		cq->notify(cq);
}

int cq_take(struct hca_cq *cq, struct cqe *cqes, int count)
{
	int n = 0;

	pthread_mutex_lock(&cq->lock);
	while (n < count && cq->head != cq->tail) {
		cqes[n] = *slot(cq, cq->head);
		set_head(cq, cq->head + 1);
		if (cqes[n].slot_of)
			recv_queue_slot_polled(cqes[n].slot_of);
		n++;
	}
	/* what came in before the overrun is still good; the error shows when it has been read */
	if (!n && count > 0 && cq->overrun)
		n = -EIO;
	pthread_mutex_unlock(&cq->lock);
	return n;
}

bool cq_is_empty(const struct hca_cq *cq)
{
	return __atomic_load_n(&cq->head, __ATOMIC_ACQUIRE) ==
	       __atomic_load_n(&cq->tail, __ATOMIC_ACQUIRE);
}

void cq_arm(struct hca_cq *cq, bool solicited_only)
{
	pthread_mutex_lock(&cq->lock);
	/* a request for the next completion is not weakened by one for solicited ones */
	if (!solicited_only)
		cq->armed = CQ_ARMED_NEXT;
	else if (cq->armed == CQ_NOT_ARMED)
		cq->armed = CQ_ARMED_SOLICITED;
	pthread_mutex_unlock(&cq->lock);
}

/*
 * A QP's completion that gives back a multi-packet WR of an SRQ: the WR may hold other QPs' data
 * and its buffer must find its way back, so a NOP takes its place.
 */
static void make_nop(struct cqe *cqe)
{
	cqe->status = IBV_WC_SUCCESS;
	cqe->opcode = IBV_WC_RECV_NOP;
	cqe->byte_len = 0;
	cqe->wc_flags = IBV_WC_MP_WR_CONSUMED;
}

void cq_purge(struct hca_cq *cq, uint32_t qp_num, const struct recv_queue *rq)
{
	uint32_t kept;

	pthread_mutex_lock(&cq->lock);
	kept = cq->head;
	for (uint32_t n = cq->head; n != cq->tail; n++) {
		struct cqe *cqe = slot(cq, n);

		if (rq && cqe->slot_of == rq) {
			recv_queue_slot_polled(cqe->slot_of);
			cqe->slot_of = NULL;
		}
		if (qp_num && cqe->qp_num == qp_num) {
			if (!cqe->slot_of)
				continue;
			make_nop(cqe);
		}
		if (kept != n)
			*slot(cq, kept) = *cqe;
		kept++;
	}
	set_tail(cq, kept);
	pthread_mutex_unlock(&cq->lock);
}

void cqe_to_wc(const struct cqe *cqe, struct ibv_wc *wc)
{
	*wc = (struct ibv_wc){
		.wr_id = cqe->wr_id,
		.status = cqe->status,
		.opcode = cqe->opcode,
		.vendor_err = cqe->vendor_err,
		.byte_len = cqe->byte_len,
		.imm_data = cqe->imm_data,
		.qp_num = cqe->qp_num,
		.src_qp = cqe->src_qp,
		.wc_flags = cqe->wc_flags,
		.pkey_index = cqe->pkey_index,
	};
}
