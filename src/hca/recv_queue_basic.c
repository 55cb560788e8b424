/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * recv_queue_basic.c: the classic receive queue: one WR takes one message and is then used up.
 * Several QPs may have a message open on one SRQ; each holds the WQE it took. IBTA 1.4, 10.8.3.3.
 */
#include "hca/recv_queue_internal.h"
#include "util/counters.h"

static void give_back(struct recv_queue *rq, struct recv_wqe *wqe)
{
	recv_queue_free_slot(rq);
	recv_queue_put_wqe(rq, wqe);
}

static void fail(struct recv_queue *rq, struct recv_message *msg, const struct recv_target *target,
		 enum ibv_wc_status status)
{
	struct recv_wqe *wqe = msg->wqe;

	*msg = (struct recv_message){ 0 };
	recv_queue_push_error(rq, wqe, target, status);
	give_back(rq, wqe);
}

static enum recv_status basic_send(struct recv_queue *rq, struct recv_message *msg,
				   const struct recv_target *target, const struct packet *p)
{
	uint32_t len = recv_place_len(target, p);
	struct recv_wqe *wqe = msg->wqe;
	struct cqe cqe;

	if (!wqe) {
		/* UD drops what does not fit and keeps the WR for the next datagram */
		if (target->is_ud && rq->first && len > rq->first->length)
			return RECV_TOO_LONG;
		wqe = recv_queue_take(rq);
		if (!wqe)
			return RECV_EMPTY;
		*msg = (struct recv_message){ .wqe = wqe, .open = true };
	}
	if (len > wqe->length - msg->offset) {
		fail(rq, msg, target, IBV_WC_LOC_LEN_ERR);
		return RECV_TOO_LONG;
	}
	if (!recv_queue_place(rq, wqe, msg->offset, target, p)) {
		fail(rq, msg, target, IBV_WC_LOC_PROT_ERR);
		return RECV_PROTECTION;
	}
	msg->offset += len;
	rq->stats.packets++;
	if (!(p->flags & OPF_END))
		return RECV_OK;

	cqe = recv_queue_cqe(wqe, target, p, IBV_WC_RECV, msg->offset);
	*msg = (struct recv_message){ 0 };
	rq->stats.wrs++;
	give_back(rq, wqe);
	cq_push(target->cq, &cqe, p->solicited);
	return RECV_OK;
}

static enum recv_status basic_write_imm(struct recv_queue *rq, const struct recv_target *target,
					const struct packet *p, uint32_t byte_len)
{
	struct recv_wqe *wqe = recv_queue_take(rq);
	struct cqe cqe;

	if (!wqe)
		return RECV_EMPTY;
	cqe = recv_queue_cqe(wqe, target, p, IBV_WC_RECV_RDMA_WITH_IMM, byte_len);
	rq->stats.packets++;
	rq->stats.wrs++;
	give_back(rq, wqe);
	cq_push(target->cq, &cqe, p->solicited);
	return RECV_OK;
}

static void basic_abort(struct recv_queue *rq, struct recv_message *msg,
			const struct recv_target *target, enum ibv_wc_status status)
{
	if (!msg->wqe)
		return;
	if (status != IBV_WC_SUCCESS)
		recv_queue_push_error(rq, msg->wqe, target, status);
	give_back(rq, msg->wqe);
}

const struct recv_queue_ops recv_queue_basic_ops = {
	.send = basic_send,
	.write_imm = basic_write_imm,
	.abort = basic_abort,
};
