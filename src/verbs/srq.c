/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * srq.c: shared receive queues: basic, multi-packet, and with the NVMe-oF offload behind them.
 */
#include <stdlib.h>

#include "offload/offload.h"
#include "util/log.h"
#include "verbs/objects.h"

/* what ibv_create_srq_ex() asked for, checked */
struct srq_request {
	struct ibv_pd *pd;
	void *srq_context;
	struct ibv_srq_attr *attr;
	struct soft_cq *cq;
	struct ibv_mp_wr_attr *mp_wr;	   /* or NULL */
	struct ibv_nvmf_attrs *nvmf_attrs; /* or NULL */
};

static int create_offload(struct soft_srq *srq, const struct ibv_nvmf_attrs *attrs)
{
	struct offload_memory staging;
	struct ibv_mr *mr = attrs->staging_buf.mr;
	int ret;

	if (!mr || mr->context != srq->ibv.context)
		return EINVAL;
	staging = (struct offload_memory){
		.mr = &to_mr(mr)->hca,
		.addr = attrs->staging_buf.addr,
		.len = attrs->staging_buf.len,
	};
	ret = offload_create(&srq->hca.offload, &srq->hca, attrs, &staging);
	if (ret)
		return ret;
	srq->staging = to_mr(mr);
	srq->staging->references++;
	return 0;
}

static int create_queue(struct soft_srq *srq, const struct srq_request *request)
{
	struct recv_queue_attr attr = {
		.pd = srq->hca.pd,
		.max_wr = request->attr->max_wr,
		.max_sge = request->attr->max_sge,
		.is_srq = true,
	};
	int ret;

	if (request->mp_wr) {
		struct ibv_mp_wr_attr rounded = *request->mp_wr;

		ret = recv_queue_round_mp_wr(&rounded);
		if (ret)
			return ret;
		attr.multi_packet = true;
		attr.mp_wr = rounded;
	}
	srq->multi_packet = attr.multi_packet;
	srq->hca.rq = recv_queue_create(&attr);
	return srq->hca.rq ? 0 : errno;
}

static struct ibv_srq *create(const struct srq_request *request)
{
	struct soft_pd *pd = to_pd(request->pd);
	struct soft_srq *srq = calloc(1, sizeof(*srq));
	int ret;

	if (!srq)
		return NULL;
	srq->ibv.context = request->pd->context;
	srq->ibv.srq_context = request->srq_context;
	srq->ibv.pd = request->pd;
	srq->hca.ctx = pd->hca.ctx;
	srq->hca.pd = &pd->hca;
	srq->hca.owner = &srq->ibv;
	ret = create_queue(srq, request);
	if (ret)
		goto out_free;
	if (request->cq) {
		srq->cq_is_fixed = true;
		srq->hca.cq = &request->cq->hca;
	}
	if (request->nvmf_attrs) {
		ret = create_offload(srq, request->nvmf_attrs);
		if (ret)
			goto out_rq_free;
	}
	if (request->mp_wr)
		*request->mp_wr = recv_queue_attr(srq->hca.rq)->mp_wr;
	if (request->cq)
		request->cq->hca.references++;
	async_source_init(&srq->async, &srq->ibv);
	pthread_mutex_init(&srq->ibv.mutex, NULL);
	pthread_cond_init(&srq->ibv.cond, NULL);
	pd->hca.references++;
	to_context(request->pd->context)->objects++;
	return &srq->ibv;

out_rq_free:
	recv_queue_free(srq->hca.rq);
out_free:
	free(srq);
	return fail_with(ret);
}

struct ibv_srq *softhca_ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	struct srq_request request = {
		.pd = pd,
		.srq_context = attr->srq_context,
		.attr = &attr->attr,
	};

	return create(&request);
}

/* Return: 0, EINVAL, EOPNOTSUPP */
static int check_type(const struct ibv_srq_init_attr_ex *attr)
{
	const uint32_t known = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
			       IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_MP_WR |
			       IBV_SRQ_INIT_ATTR_NVMF;
	enum ibv_srq_type type = attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE ? attr->srq_type
									  : IBV_SRQT_BASIC;
	bool is_nvmf = type == IBV_SRQT_NVMF;

	/* XRC, tag matching, with or without MP WR; what a newer header may bring */
	if (attr->comp_mask & ~known || (type != IBV_SRQT_BASIC && !is_nvmf))
		return EOPNOTSUPP;
	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) || !attr->pd)
		return EINVAL;
	if (is_nvmf != !!(attr->comp_mask & IBV_SRQ_INIT_ATTR_NVMF))
		return EINVAL;
	if (is_nvmf && !(attr->comp_mask & IBV_SRQ_INIT_ATTR_CQ))
		return EINVAL;
	if (attr->comp_mask & IBV_SRQ_INIT_ATTR_CQ && !attr->cq)
		return EINVAL;
	return 0;
}

struct ibv_srq *srq_create_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr)
{
	struct ibv_srq_init_attr_ext *ext = container_of(attr, struct ibv_srq_init_attr_ext, base);
	struct srq_request request;
	int ret = check_type(attr);

	if (!ret && attr->pd->context != context)
		ret = EINVAL;
	if (ret)
		return fail_with(ret);
	request = (struct srq_request){
		.pd = attr->pd,
		.srq_context = attr->srq_context,
		.attr = &attr->attr,
	};
	/* the extension's fields are there only if their bit says so */
	if (attr->comp_mask & IBV_SRQ_INIT_ATTR_MP_WR)
		request.mp_wr = &ext->mp_wr;
	if (attr->comp_mask & IBV_SRQ_INIT_ATTR_NVMF)
		request.nvmf_attrs = &ext->nvmf_attr;
	if (attr->comp_mask & IBV_SRQ_INIT_ATTR_CQ) {
		if (attr->cq->context != context)
			return fail_with(EINVAL);
		request.cq = to_cq(attr->cq);
		if (request.mp_wr && !request.cq->hca.mp_wr)
			return fail_with(EINVAL);
		/* a basic SRQ has no CQ of its own: its QPs' are used */
		if (!request.mp_wr && !request.nvmf_attrs)
			request.cq = NULL;
	}
	return create(&request);
}

int srq_attach_qp(struct soft_srq *srq, struct soft_cq *recv_cq)
{
	if (srq->multi_packet && !recv_cq->hca.mp_wr) {
		log_debug("create_qp: the receive CQ of a multi-packet SRQ must be extended, with "
			  "IBV_WC_EX_WITH_MP_WR");
		return EINVAL;
	}
	if ((srq->multi_packet || srq->hca.offload) && srq->hca.cq &&
	    srq->hca.cq != &recv_cq->hca) {
		log_debug("create_qp: all QPs on this SRQ share one receive CQ");
		return EINVAL;
	}
	return 0;
}

void srq_detach_qp(struct soft_srq *srq)
{
	if (!srq->multi_packet || srq->cq_is_fixed || atomic_load(&srq->hca.references))
		return;
	/* the last QP has gone: the CQ may go before the SRQ does, and the next QP may bring
	 * another */
	if (srq->hca.cq)
		cq_purge(srq->hca.cq, 0, srq->hca.rq);
	srq->hca.cq = NULL;
}

int softhca_ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int attr_mask)
{
	struct hca_srq *hca = &to_srq(srq)->hca;
	struct engine *engine = hca->ctx->engine;
	uint32_t max_wr;
	int ret = 0;

	if (attr_mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT))
		return EINVAL;
	engine_lock(engine);
	max_wr = attr_mask & IBV_SRQ_MAX_WR ? attr->max_wr : recv_queue_attr(hca->rq)->max_wr;
	if ((attr_mask & IBV_SRQ_LIMIT ? attr->srq_limit : hca->limit) > max_wr)
		ret = EINVAL;
	if (!ret && attr_mask & IBV_SRQ_MAX_WR)
		ret = recv_queue_resize(hca->rq, max_wr);
	if (!ret && attr_mask & IBV_SRQ_LIMIT)
		hca->limit = attr->srq_limit;
	engine_unlock(engine);
	return ret;
}

int softhca_ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr)
{
	struct hca_srq *hca = &to_srq(srq)->hca;
	struct engine *engine = hca->ctx->engine;

	engine_lock(engine);
	*attr = (struct ibv_srq_attr){
		.max_wr = recv_queue_attr(hca->rq)->max_wr,
		.max_sge = recv_queue_attr(hca->rq)->max_sge,
		.srq_limit = hca->limit,
	};
	engine_unlock(engine);
	return 0;
}

static void wait_for_acks(struct soft_srq *srq)
{
	pthread_mutex_lock(&srq->ibv.mutex);
	while (srq->ibv.events_completed != srq->async.delivered)
		pthread_cond_wait(&srq->ibv.cond, &srq->ibv.mutex);
	pthread_mutex_unlock(&srq->ibv.mutex);
}

int softhca_ibv_destroy_srq(struct ibv_srq *srq)
{
	struct soft_srq *s = to_srq(srq);
	struct soft_context *ctx = to_context(srq->context);

	if (atomic_load(&s->hca.references) || atomic_load(&s->nvme_ctrls))
		return EBUSY;
	if (s->hca.offload) {
		offload_destroy(s->hca.offload);
		s->staging->references--;
	}
	async_source_cancel(ctx, &s->async);
	wait_for_acks(s);
	if (s->hca.cq) {
		cq_purge(s->hca.cq, 0, s->hca.rq);
		s->hca.cq->references--;
	}
	recv_queue_free(s->hca.rq);
	s->hca.pd->references--;
	ctx->objects--;
	pthread_mutex_destroy(&srq->mutex);
	pthread_cond_destroy(&srq->cond);
	free(s);
	return 0;
}

int srq_post_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	struct hca_srq *hca = &to_srq(srq)->hca;
	struct engine *engine = hca->ctx->engine;
	int ret = 0;

	engine_lock(engine);
	for (; wr; wr = wr->next) {
		ret = recv_queue_post(hca->rq, wr);
		if (ret) {
			*bad_wr = wr;
			break;
		}
	}
	engine_unlock(engine);
	return ret;
}
