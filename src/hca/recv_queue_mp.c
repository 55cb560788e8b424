/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * recv_queue_mp.c: the multi-packet receive queue: one WR takes many packets, each at the next
 * multiple of the alignment. docs/mp-wr.md, "The rule"; the steps' numbers are the ones there.
 */
#include "hca/recv_queue_internal.h"
#include "util/bytes.h"
#include "util/counters.h"

/* the current WR is done; its slot stays taken until the completion with slot_of is polled */
static void retire(struct recv_queue *rq)
{
	recv_queue_put_wqe(rq, rq->current);
	rq->current = NULL;
	rq->cursor = 0;
	rq->stats.wrs++;
	counter_inc(CNT_MP_WR_WRS);
}

static uint64_t cursor_offset(const struct recv_queue *rq)
{
	return (uint64_t)rq->cursor * rq->attr.mp_wr.packet_align_sz;
}

static void fail(struct recv_queue *rq, const struct recv_target *target, enum ibv_wc_status status)
{
	recv_queue_push_error(rq, rq->current, target, status);
	retire(rq);
}

/* step 3: the packet does not fit behind the cursor: the buffer goes back by itself */
static void push_nop(struct recv_queue *rq, const struct recv_target *target)
{
	struct cqe cqe = {
		.wr_id = rq->current->wr_id,
		.status = IBV_WC_SUCCESS,
		.opcode = IBV_WC_RECV_NOP,
		.qp_num = target->qp_num,
		.wc_flags = IBV_WC_MP_WR_CONSUMED,
		.mp_wr_offset = cursor_offset(rq),
		.slot_of = rq,
	};

	retire(rq);
	rq->stats.nops++;
	counter_inc(CNT_MP_WR_NOPS);
	cq_push(target->cq, &cqe, false);
}

/* steps 3 and 4: make a WR current that has @need units left. Return: false = none posted */
static bool make_room(struct recv_queue *rq, const struct recv_target *target, uint32_t need)
{
	if (rq->current && need > rq->units - rq->cursor)
		push_nop(rq, target);
	if (!rq->current) {
		rq->current = recv_queue_take(rq);
		rq->cursor = 0;
	}
	return rq->current != NULL;
}

/* step 5, the completion: a piece of @need units at the cursor */
static void complete_piece(struct recv_queue *rq, const struct recv_target *target,
			   const struct packet *p, enum ibv_wc_opcode opcode, uint32_t byte_len,
			   uint32_t need)
{
	struct cqe cqe = recv_queue_cqe(rq->current, target, p, opcode, byte_len);

	cqe.mp_wr_offset = cursor_offset(rq);
	if (!(p->flags & OPF_END))
		cqe.wc_flags |= IBV_WC_MP_WR_MORE_IN_MSG;
	rq->cursor += need;
	rq->stats.packets++;
	counter_inc(CNT_MP_WR_PACKETS);
	if (rq->cursor == rq->units) {
		cqe.wc_flags |= IBV_WC_MP_WR_CONSUMED;
		cqe.slot_of = rq;
		retire(rq);
	}
	cq_push(target->cq, &cqe, p->solicited && (p->flags & OPF_END));
}

/* step 2: larger than any WR */
static enum recv_status too_long(struct recv_queue *rq, const struct recv_target *target)
{
	if (target->is_ud)
		return RECV_TOO_LONG;
	if (!make_room(rq, target, 0))
		return RECV_EMPTY;
	fail(rq, target, IBV_WC_LOC_LEN_ERR);
	return RECV_TOO_LONG;
}

static enum recv_status mp_send(struct recv_queue *rq, struct recv_message *msg,
				const struct recv_target *target, const struct packet *p)
{
	uint32_t len = recv_place_len(target, p);
	uint32_t need = MAX(1, div_round_up(len, rq->attr.mp_wr.packet_align_sz));

	if (need > rq->units)
		return too_long(rq, target);
	if (!make_room(rq, target, need))
		return RECV_EMPTY;
	if (!recv_queue_place(rq, rq->current, cursor_offset(rq), target, p)) {
		fail(rq, target, IBV_WC_LOC_PROT_ERR);
		return RECV_PROTECTION;
	}
	msg->open = !(p->flags & OPF_END);
	msg->offset = msg->open ? msg->offset + len : 0;
	complete_piece(rq, target, p, IBV_WC_RECV, len, need);
	return RECV_OK;
}

static enum recv_status mp_write_imm(struct recv_queue *rq, const struct recv_target *target,
				     const struct packet *p, uint32_t byte_len)
{
	if (!make_room(rq, target, 1))
		return RECV_EMPTY;
	complete_piece(rq, target, p, IBV_WC_RECV_RDMA_WITH_IMM, byte_len, 1);
	return RECV_OK;
}

/* what was completed of the message stays valid; the application drops the open message */
static void mp_abort(struct recv_queue *rq, struct recv_message *msg,
		     const struct recv_target *target, enum ibv_wc_status status)
{
}

const struct recv_queue_ops recv_queue_mp_ops = {
	.send = mp_send,
	.write_imm = mp_write_imm,
	.abort = mp_abort,
};
