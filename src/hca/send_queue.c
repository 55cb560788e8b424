// SPDX-License-Identifier: BSD-2-Clause
/*
 * send_queue.c: the ring of send WQEs.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "hca/context.h"
#include "hca/send_queue.h"
#include "util/bytes.h"

int send_queue_init(struct send_queue *sq, const struct ibv_qp_cap *cap, uint32_t hidden_wrs)
{
	uint32_t entries = MAX(cap->max_send_wr + hidden_wrs, 1U);
	size_t tail_len = MAX((size_t)cap->max_send_sge * sizeof(struct ibv_sge),
			      (size_t)cap->max_inline_data);

	memset(sq, 0, sizeof(*sq));
	entries = (uint32_t)round_up_power_of_two(entries);
	/* a hidden WR needs one SGE's room at least; WQEs start on cache lines */
	tail_len = MAX(tail_len, sizeof(struct ibv_sge));
	sq->stride = (uint32_t)(sizeof(struct send_wqe) + tail_len + 63) & ~63U;
	sq->ring = aligned_alloc(64, (size_t)entries * sq->stride);
	if (!sq->ring)
		return ENOMEM;
	sq->mask = entries - 1;
	sq->max_wr = cap->max_send_wr;
	sq->max_hidden = hidden_wrs;
	sq->max_sge = cap->max_send_sge;
	sq->max_inline = cap->max_inline_data;
	return 0;
}

void send_queue_free(struct send_queue *sq)
{
	free(sq->ring);
	sq->ring = NULL;
}

static int opcode_check(enum ibv_wr_opcode opcode, unsigned int flags)
{
	switch (opcode) {
	case IBV_WR_RDMA_READ:
		return flags & IBV_SEND_INLINE ? EINVAL : 0;
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
	case IBV_WR_SEND_WITH_INV:
		return 0;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
	case IBV_WR_LOCAL_INV:
	case IBV_WR_BIND_MW:
		return EOPNOTSUPP;
	default:
		return EINVAL;
	}
}

static void copy_inline(struct send_wqe *wqe, const struct ibv_send_wr *wr)
{
	uint8_t *out = (uint8_t *)wqe->sge;

	for (int i = 0; i < wr->num_sge; i++) {
		if (!wr->sg_list[i].length)
			continue;
		memcpy(out, (const void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length);
		out += wr->sg_list[i].length;
	}
}

int send_queue_post(struct send_queue *sq, const struct ibv_send_wr *wr, bool signal_all,
		    struct send_wqe **out)
{
	struct send_wqe *wqe;
	uint64_t length = 0;
	int err = opcode_check(wr->opcode, wr->send_flags);

	if (err)
		return err;
	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > sq->max_sge)
		return EINVAL;
	for (int i = 0; i < wr->num_sge; i++)
		length += wr->sg_list[i].length;
	if (wr->send_flags & IBV_SEND_INLINE && length > sq->max_inline)
		return EINVAL;
	if (sq->used_wr == sq->max_wr)
		return ENOMEM;

	wqe = send_queue_at(sq, sq->tail);
	memset(wqe, 0, sizeof(*wqe));
	wqe->wr_id = wr->wr_id;
	wqe->opcode = (uint8_t)wr->opcode;
	wqe->signaled = signal_all || wr->send_flags & IBV_SEND_SIGNALED;
	wqe->solicited = wr->send_flags & IBV_SEND_SOLICITED;
	wqe->fence = wr->send_flags & IBV_SEND_FENCE;
	wqe->imm = wr->imm_data; /* or invalidate_rkey: a union there, too */
	wqe->remote_addr = wr->wr.rdma.remote_addr;
	wqe->rkey = wr->wr.rdma.rkey;
	if (length > HCA_MAX_MSG_LEN) {
		wqe->local_status = IBV_WC_LOC_LEN_ERR;
		length = 0;
	}
	wqe->length = (uint32_t)length;
	if (wr->send_flags & IBV_SEND_INLINE) {
		wqe->is_inline = true;
		copy_inline(wqe, wr);
	} else {
		wqe->sge_count = (uint8_t)wr->num_sge;
		for (int i = 0; i < wr->num_sge; i++)
			wqe->sge[i] = wr->sg_list[i];
	}
	sq->used_wr++;
	sq->tail++;
	*out = wqe;
	return 0;
}

int send_queue_post_hidden(struct send_queue *sq, struct hidden_wr *wr, struct send_wqe **out)
{
	struct send_wqe *wqe;

	if (sq->used_hidden == sq->max_hidden)
		return -EAGAIN;
	wqe = send_queue_at(sq, sq->tail);
	memset(wqe, 0, sizeof(*wqe));
	wqe->hidden = wr;
	wqe->opcode = (uint8_t)wr->opcode;
	wqe->length = wr->length;
	wqe->remote_addr = wr->remote_addr;
	wqe->rkey = wr->rkey;
	wqe->inv_rkey = wr->rkey;
	sq->used_hidden++;
	sq->tail++;
	*out = wqe;
	return 0;
}

void send_queue_pop(struct send_queue *sq)
{
	if (send_queue_at(sq, sq->head)->hidden)
		sq->used_hidden--;
	else
		sq->used_wr--;
	if (sq->next == sq->head)
		sq->next++;
	sq->head++;
}

void send_queue_reset(struct send_queue *sq)
{
	sq->head = sq->next = sq->tail = 0;
	sq->used_wr = sq->used_hidden = 0;
}
