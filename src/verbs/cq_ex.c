/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cq_ex.c: extended polling: start_poll takes the first completion, next_poll the next one; the
 * readers look at the current one. The CQ belongs to one thread in between. Every reader is there,
 * whatever wc_flags asked for: no program calls through a NULL pointer.
 */
#include "verbs/objects.h"

static int take_one(struct soft_cq *cq)
{
	int n = cq_take(&cq->hca, &cq->current, 1);

	if (n < 0)
		return -n;
	if (!n)
		return ENOENT;
	cq->ibv.status = cq->current.status;
	cq->ibv.wr_id = cq->current.wr_id;
	return 0;
}

static void unlock(struct soft_cq *cq)
{
	if (!cq->single_threaded)
		pthread_mutex_unlock(&cq->poll_lock);
}

static int start_poll(struct ibv_cq_ex *ex, struct ibv_poll_cq_attr *attr)
{
	struct soft_cq *cq = ex_to_cq(ex);
	int ret;

	if (attr && attr->comp_mask)
		return EINVAL;
	if (!cq->single_threaded)
		pthread_mutex_lock(&cq->poll_lock);
	if (cq_is_empty(&cq->hca))
		engine_poll(cq->hca.ctx->engine);
	ret = take_one(cq);
	if (ret)
		unlock(cq);
	return ret;
}

static int next_poll(struct ibv_cq_ex *ex)
{
	return take_one(ex_to_cq(ex));
}

static void end_poll(struct ibv_cq_ex *ex)
{
	unlock(ex_to_cq(ex));
}

static enum ibv_wc_opcode read_opcode(struct ibv_cq_ex *ex)
{
	return ex_to_cq(ex)->current.opcode;
}

static uint32_t read_vendor_err(struct ibv_cq_ex *ex)
{
	return ex_to_cq(ex)->current.vendor_err;
}

static uint32_t read_byte_len(struct ibv_cq_ex *ex)
{
	return ex_to_cq(ex)->current.byte_len;
}

/* also the invalidated rkey */
static __be32 read_imm_data(struct ibv_cq_ex *ex)
{
	return ex_to_cq(ex)->current.imm_data;
}

static uint32_t read_qp_num(struct ibv_cq_ex *ex)
{
	return ex_to_cq(ex)->current.qp_num;
}

static uint32_t read_src_qp(struct ibv_cq_ex *ex)
{
	return ex_to_cq(ex)->current.src_qp;
}

static unsigned int read_wc_flags(struct ibv_cq_ex *ex)
{
	return ex_to_cq(ex)->current.wc_flags;
}

/* InfiniBand's link layer and what no program may ask for: nothing to tell */
static uint32_t read_zero_32(struct ibv_cq_ex *ex)
{
	return 0;
}

static uint8_t read_zero_8(struct ibv_cq_ex *ex)
{
	return 0;
}

static uint16_t read_zero_16(struct ibv_cq_ex *ex)
{
	return 0;
}

static uint64_t read_zero_64(struct ibv_cq_ex *ex)
{
	return 0;
}

static void read_no_tm_info(struct ibv_cq_ex *ex, struct ibv_wc_tm_info *tm_info)
{
	*tm_info = (struct ibv_wc_tm_info){ 0 };
}

void cq_set_ex_ops(struct ibv_cq_ex *cq)
{
	cq->start_poll = start_poll;
	cq->next_poll = next_poll;
	cq->end_poll = end_poll;
	cq->read_opcode = read_opcode;
	cq->read_vendor_err = read_vendor_err;
	cq->read_byte_len = read_byte_len;
	cq->read_imm_data = read_imm_data;
	cq->read_qp_num = read_qp_num;
	cq->read_src_qp = read_src_qp;
	cq->read_wc_flags = read_wc_flags;
	cq->read_slid = read_zero_32;
	cq->read_sl = read_zero_8;
	cq->read_dlid_path_bits = read_zero_8;
	cq->read_completion_ts = read_zero_64;
	cq->read_cvlan = read_zero_16;
	cq->read_flow_tag = read_zero_32;
	cq->read_tm_info = read_no_tm_info;
	cq->read_completion_wallclock_ns = read_zero_64;
}

CORE_API size_t ibv_wc_read_mp_wr_offset(struct ibv_cq_ex *cq)
{
	return context_is_ours(cq->context) ? ex_to_cq(cq)->current.mp_wr_offset : 0;
}
