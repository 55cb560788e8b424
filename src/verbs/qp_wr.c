/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * qp_wr.c: the ibv_wr_* calls: WRs are collected between wr_start and wr_complete and posted
 * together. An error is kept until wr_complete and reported there; nothing is posted then.
 */
#include <stdlib.h>
#include <string.h>

#include "util/bytes.h"
#include "verbs/objects.h"

/* grow an array of the builder to hold @more elements. Return: false = no memory */
static bool reserve(void **array, uint32_t *capacity, uint32_t used, size_t more, size_t size)
{
	uint64_t want = (uint64_t)used + more;
	void *bigger;

	if (want <= *capacity)
		return true;
	want = round_up_power_of_two(MAX(want, 16));
	if (want > UINT32_MAX)
		return false;
	bigger = realloc(*array, want * size);
	if (!bigger)
		return false;
	*array = bigger;
	*capacity = (uint32_t)want;
	return true;
}

static void set_error(struct wr_builder *b, int error)
{
	if (!b->error)
		b->error = error;
}

static struct soft_qp *ex_to_qp(struct ibv_qp_ex *ex)
{
	return container_of(ex, struct soft_qp, ibv);
}

/* the WR that setters speak of; NULL: none was begun, or it failed */
static struct ibv_send_wr *current_wr(struct wr_builder *b)
{
	if (b->error || !b->count)
		return NULL;
	return &b->wrs[b->count - 1];
}

static struct ibv_send_wr *begin_wr(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode)
{
	struct soft_qp *qp = ex_to_qp(ex);
	struct wr_builder *b = &qp->builder;
	struct ibv_send_wr *wr;

	if (b->error)
		return NULL;
	if (b->count >= qp->cap.max_send_wr ||
	    !reserve((void **)&b->wrs, &b->capacity, b->count, 1, sizeof(*b->wrs))) {
		set_error(b, ENOMEM);
		return NULL;
	}
	wr = &b->wrs[b->count++];
	*wr = (struct ibv_send_wr){
		.wr_id = ex->wr_id,
		.opcode = opcode,
		.send_flags = ex->wr_flags & ~(unsigned int)IBV_SEND_INLINE,
	};
	return wr;
}

static void wr_rdma(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode, uint32_t rkey,
		    uint64_t remote_addr, __be32 imm_data)
{
	struct ibv_send_wr *wr = begin_wr(ex, opcode);

	if (!wr)
		return;
	wr->wr.rdma.rkey = rkey;
	wr->wr.rdma.remote_addr = remote_addr;
	wr->imm_data = imm_data;
}

static void wr_rdma_read(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr)
{
	wr_rdma(ex, IBV_WR_RDMA_READ, rkey, remote_addr, 0);
}

static void wr_rdma_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr)
{
	wr_rdma(ex, IBV_WR_RDMA_WRITE, rkey, remote_addr, 0);
}

static void wr_rdma_write_imm(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr,
			      __be32 imm_data)
{
	wr_rdma(ex, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, remote_addr, imm_data);
}

static void wr_send(struct ibv_qp_ex *ex)
{
	begin_wr(ex, IBV_WR_SEND);
}

static void wr_send_imm(struct ibv_qp_ex *ex, __be32 imm_data)
{
	struct ibv_send_wr *wr = begin_wr(ex, IBV_WR_SEND_WITH_IMM);

	if (wr)
		wr->imm_data = imm_data;
}

static void wr_send_inv(struct ibv_qp_ex *ex, uint32_t invalidate_rkey)
{
	struct ibv_send_wr *wr = begin_wr(ex, IBV_WR_SEND_WITH_INV);

	if (wr)
		wr->invalidate_rkey = invalidate_rkey;
}

/* ---- data ------------------------------------------------------------------ */

static void wr_set_sge_list(struct ibv_qp_ex *ex, size_t num_sge, const struct ibv_sge *sg_list)
{
	struct soft_qp *qp = ex_to_qp(ex);
	struct wr_builder *b = &qp->builder;
	struct ibv_send_wr *wr = current_wr(b);

	if (!wr)
		return set_error(b, EINVAL);
	if (num_sge > qp->cap.max_send_sge)
		return set_error(b, EINVAL);
	if (!reserve((void **)&b->sges, &b->sge_capacity, b->sge_count, num_sge, sizeof(*b->sges)))
		return set_error(b, ENOMEM);
	if (num_sge)
		memcpy(b->sges + b->sge_count, sg_list, num_sge * sizeof(*sg_list));
	/* the array may move: the number now, the address in wr_complete */
	wr->sg_list = (struct ibv_sge *)(uintptr_t)b->sge_count;
	wr->num_sge = (int)num_sge;
	b->sge_count += num_sge;
}

static void wr_set_sge(struct ibv_qp_ex *ex, uint32_t lkey, uint64_t addr, uint32_t length)
{
	struct ibv_sge sge = { .addr = addr, .length = length, .lkey = lkey };

	wr_set_sge_list(ex, 1, &sge);
}

/* one SGE whose addr is, until wr_complete, an offset in inline_data */
static void wr_set_inline_data_list(struct ibv_qp_ex *ex, size_t num_buf,
				    const struct ibv_data_buf *buf_list)
{
	struct soft_qp *qp = ex_to_qp(ex);
	struct wr_builder *b = &qp->builder;
	struct ibv_send_wr *wr = current_wr(b);
	uint32_t start = b->inline_len;
	size_t total = 0;

	if (!wr)
		return set_error(b, EINVAL);
	for (size_t i = 0; i < num_buf; i++) {
		if (buf_list[i].length > qp->cap.max_inline_data - total)
			return set_error(b, ENOMEM); /* as providers do for too much inline data */
		total += buf_list[i].length;
	}
	if (!reserve((void **)&b->inline_data, &b->inline_capacity, start, total, 1) ||
	    !reserve((void **)&b->sges, &b->sge_capacity, b->sge_count, 1, sizeof(*b->sges)))
		return set_error(b, ENOMEM);
	for (size_t i = 0; i < num_buf; i++) {
		if (buf_list[i].length)
			memcpy(b->inline_data + b->inline_len, buf_list[i].addr,
			       buf_list[i].length);
		b->inline_len += buf_list[i].length;
	}
	b->sges[b->sge_count] = (struct ibv_sge){ .addr = start, .length = (uint32_t)total };
	wr->sg_list = (struct ibv_sge *)(uintptr_t)b->sge_count++;
	wr->num_sge = total != 0;
	wr->send_flags |= IBV_SEND_INLINE;
}

static void wr_set_inline_data(struct ibv_qp_ex *ex, void *addr, size_t length)
{
	struct ibv_data_buf buf = { addr, length };

	wr_set_inline_data_list(ex, 1, &buf);
}

/* ---- what comes later, or belongs to other types of QP ------------------------ */

static void not_supported(struct ibv_qp_ex *ex)
{
	set_error(&ex_to_qp(ex)->builder, EOPNOTSUPP);
}

static void wr_atomic_cmp_swp(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr,
			      uint64_t compare, uint64_t swap)
{
	not_supported(ex);
}

static void wr_atomic_fetch_add(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr,
				uint64_t add)
{
	not_supported(ex);
}

static void wr_atomic_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr,
			    const void *atomic_wr)
{
	not_supported(ex);
}

static void wr_bind_mw(struct ibv_qp_ex *ex, struct ibv_mw *mw, uint32_t rkey,
		       const struct ibv_mw_bind_info *bind_info)
{
	not_supported(ex);
}

static void wr_local_inv(struct ibv_qp_ex *ex, uint32_t invalidate_rkey)
{
	not_supported(ex);
}

static void wr_send_tso(struct ibv_qp_ex *ex, void *hdr, uint16_t hdr_sz, uint16_t mss)
{
	not_supported(ex);
}

static void wr_set_ud_addr(struct ibv_qp_ex *ex, struct ibv_ah *ah, uint32_t remote_qpn,
			   uint32_t remote_qkey)
{
	not_supported(ex);
}

static void wr_set_xrc_srqn(struct ibv_qp_ex *ex, uint32_t remote_srqn)
{
	not_supported(ex);
}

/* ---- begin and end -------------------------------------------------------------- */

static void wr_start(struct ibv_qp_ex *ex)
{
	struct wr_builder *b = &ex_to_qp(ex)->builder;

	pthread_mutex_lock(&b->lock);
	b->error = 0;
	b->count = b->sge_count = b->inline_len = 0;
}

static void wr_abort(struct ibv_qp_ex *ex)
{
	pthread_mutex_unlock(&ex_to_qp(ex)->builder.lock);
}

/* the arrays stay where they are from here on: numbers become addresses */
static void link_wrs(struct wr_builder *b)
{
	for (uint32_t i = 0; i < b->count; i++) {
		struct ibv_send_wr *wr = &b->wrs[i];

		if (wr->num_sge)
			wr->sg_list = b->sges + (uintptr_t)wr->sg_list;
		if (wr->num_sge && wr->send_flags & IBV_SEND_INLINE)
			wr->sg_list->addr += (uintptr_t)b->inline_data;
		wr->next = i + 1 < b->count ? wr + 1 : NULL;
	}
}

static int wr_complete(struct ibv_qp_ex *ex)
{
	struct soft_qp *qp = ex_to_qp(ex);
	struct wr_builder *b = &qp->builder;
	const struct ibv_send_wr *bad_wr;
	int ret = b->error;

	/* all or nothing */
	if (!ret && b->count > qp_send_room(qp->hca))
		ret = ENOMEM;
	if (!ret && b->count) {
		link_wrs(b);
		ret = qp_post_send(qp->hca, b->wrs, &bad_wr);
	}
	pthread_mutex_unlock(&b->lock);
	return ret;
}

void wr_builder_init(struct soft_qp *qp)
{
	struct ibv_qp_ex *ex = &qp->ibv;

	pthread_mutex_init(&qp->builder.lock, NULL);
	ex->wr_atomic_cmp_swp = wr_atomic_cmp_swp;
	ex->wr_atomic_fetch_add = wr_atomic_fetch_add;
	ex->wr_bind_mw = wr_bind_mw;
	ex->wr_local_inv = wr_local_inv;
	ex->wr_rdma_read = wr_rdma_read;
	ex->wr_rdma_write = wr_rdma_write;
	ex->wr_rdma_write_imm = wr_rdma_write_imm;
	ex->wr_send = wr_send;
	ex->wr_send_imm = wr_send_imm;
	ex->wr_send_inv = wr_send_inv;
	ex->wr_send_tso = wr_send_tso;
	ex->wr_set_ud_addr = wr_set_ud_addr;
	ex->wr_set_xrc_srqn = wr_set_xrc_srqn;
	ex->wr_set_inline_data = wr_set_inline_data;
	ex->wr_set_inline_data_list = wr_set_inline_data_list;
	ex->wr_set_sge = wr_set_sge;
	ex->wr_set_sge_list = wr_set_sge_list;
	ex->wr_start = wr_start;
	ex->wr_complete = wr_complete;
	ex->wr_abort = wr_abort;
	ex->wr_atomic_write = wr_atomic_write;
}

void wr_builder_free(struct soft_qp *qp)
{
	free(qp->builder.wrs);
	free(qp->builder.sges);
	free(qp->builder.inline_data);
	pthread_mutex_destroy(&qp->builder.lock);
}
