/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * qp.c: queue pairs: the checks that concern several objects, and the public structure around the
 * adapter's QP. State machine and posting rules are the adapter's (hca/qp.c).
 */
#include <stdlib.h>
#include <string.h>

#include "offload/offload.h"
#include "util/log.h"
#include "verbs/objects.h"

/* what libibverbs's two creation calls come down to */
struct qp_request {
	struct ibv_pd *pd;
	struct ibv_qp_init_attr *attr; /* the first fields of the extended structure */
	struct ibv_mp_wr_attr *mp_wr;  /* or NULL */
	bool extended;
};

static int check_request(const struct qp_request *request)
{
	const struct ibv_qp_init_attr *attr = request->attr;
	struct ibv_context *context = request->pd->context;

	if (!attr->send_cq || !attr->recv_cq || attr->send_cq->context != context ||
	    attr->recv_cq->context != context || (attr->srq && attr->srq->context != context))
		return EINVAL;
	if (request->mp_wr && attr->srq) {
		log_debug("create_qp: MP WR is the SRQ's matter when there is one");
		return EINVAL;
	}
	if (request->mp_wr && !to_cq(attr->recv_cq)->hca.mp_wr) {
		log_debug("create_qp: the receive CQ of a multi-packet RQ must be extended, with "
			  "IBV_WC_EX_WITH_MP_WR");
		return EINVAL;
	}
	return attr->srq ? srq_attach_qp(to_srq(attr->srq), to_cq(attr->recv_cq)) : 0;
}

static void fill_init(struct qp_init *init, const struct qp_request *request, struct soft_qp *qp)
{
	const struct ibv_qp_init_attr *attr = request->attr;

	*init = (struct qp_init){
		.ctx = &to_context(request->pd->context)->hca,
		.pd = &to_pd(request->pd)->hca,
		.owner = &qp->ibv.qp_base,
		.type = attr->qp_type,
		.send_cq = &to_cq(attr->send_cq)->hca,
		.recv_cq = &to_cq(attr->recv_cq)->hca,
		.cap = attr->cap,
		.sq_sig_all = attr->sq_sig_all,
	};
	if (request->mp_wr) {
		init->multi_packet = true;
		init->mp_wr = *request->mp_wr;
	}
	if (!attr->srq)
		return;
	init->srq = &to_srq(attr->srq)->hca;
	if (init->srq->offload) {
		init->capsule_ops = &offload_capsule_ops;
		init->hidden_wrs = offload_hidden_wrs(init->srq->offload);
	}
}

static struct ibv_qp *create(const struct qp_request *request)
{
	struct soft_context *ctx = to_context(request->pd->context);
	struct ibv_qp_init_attr *attr = request->attr;
	struct qp_init init;
	struct soft_qp *qp;
	struct ibv_qp *ibv;
	int ret = check_request(request);

	if (ret)
		return fail_with(ret);
	qp = calloc(1, sizeof(*qp));
	if (!qp)
		return NULL;
	ibv = &qp->ibv.qp_base;
	async_source_init(&qp->async, ibv);
	fill_init(&init, request, qp);
	ret = qp_create(&qp->hca, &init);
	if (ret) {
		free(qp);
		return fail_with(ret);
	}
	attr->cap = init.cap;
	if (request->mp_wr)
		*request->mp_wr = init.mp_wr;
	qp->cap = init.cap;
	qp->sq_sig_all = attr->sq_sig_all;
	qp->extended = request->extended;
	ibv->context = request->pd->context;
	ibv->qp_context = attr->qp_context;
	ibv->pd = request->pd;
	ibv->send_cq = attr->send_cq;
	ibv->recv_cq = attr->recv_cq;
	ibv->srq = attr->srq;
	ibv->qp_num = ibv->handle = qp_num(qp->hca);
	ibv->state = IBV_QPS_RESET;
	ibv->qp_type = attr->qp_type;
	pthread_mutex_init(&ibv->mutex, NULL);
	pthread_cond_init(&ibv->cond, NULL);
	wr_builder_init(qp);
	ctx->objects++;
	pthread_mutex_lock(&ctx->qps_lock);
	list_add_tail(&ctx->qps, &qp->node);
	pthread_mutex_unlock(&ctx->qps_lock);
	return ibv;
}

struct ibv_qp *softhca_ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct qp_request request = { .pd = pd, .attr = attr };

	return create(&request);
}

struct ibv_qp *qp_create_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
	const uint32_t known = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS |
			       IBV_QP_INIT_ATTR_SEND_OPS_FLAGS | IBV_QP_INIT_ATTR_MP_WR;
	struct qp_request request = {
		.pd = attr->pd,
		.attr = (struct ibv_qp_init_attr *)attr,
	};

	if (attr->comp_mask & ~known)
		return fail_with(EOPNOTSUPP);
	if (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD) || !attr->pd || attr->pd->context != context)
		return fail_with(EINVAL);
	if (attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS && attr->create_flags)
		return fail_with(EOPNOTSUPP);
	if (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) {
		if (attr->send_ops_flags & ~(uint64_t)WR_SUPPORTED_OPS)
			return fail_with(EOPNOTSUPP);
		request.extended = true;
	}
	if (attr->comp_mask & IBV_QP_INIT_ATTR_MP_WR)
		request.mp_wr = &container_of(attr, struct ibv_qp_init_attr_ext, base)->mp_wr;
	return create(&request);
}

struct ibv_qp_ex *softhca_ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	return to_qp(qp)->extended ? &to_qp(qp)->ibv : NULL;
}

int softhca_ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int attr_mask)
{
	struct soft_qp *q = to_qp(qp);
	int ret = qp_modify(q->hca, attr, attr_mask, context_gid_lookup);

	if (!ret)
		qp->state = qp_state(q->hca);
	return ret;
}

int softhca_ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int attr_mask,
			 struct ibv_qp_init_attr *init_attr)
{
	struct soft_qp *q = to_qp(qp);
	struct ibv_qp_init_attr init = { 0 };

	memset(attr, 0, sizeof(*attr));
	qp_query(q->hca, attr, &init);
	qp->state = attr->qp_state;
	attr->cap = q->cap;
	if (!init_attr)
		return 0;
	*init_attr = (struct ibv_qp_init_attr){
		.qp_context = qp->qp_context,
		.send_cq = qp->send_cq,
		.recv_cq = qp->recv_cq,
		.srq = qp->srq,
		.cap = q->cap,
		.qp_type = qp->qp_type,
		.sq_sig_all = q->sq_sig_all,
	};
	return 0;
}

static void wait_for_acks(struct soft_qp *qp)
{
	struct ibv_qp *ibv = &qp->ibv.qp_base;

	pthread_mutex_lock(&ibv->mutex);
	while (ibv->events_completed != qp->async.delivered)
		pthread_cond_wait(&ibv->cond, &ibv->mutex);
	pthread_mutex_unlock(&ibv->mutex);
}

int softhca_ibv_destroy_qp(struct ibv_qp *qp)
{
	struct soft_qp *q = to_qp(qp);
	struct soft_context *ctx = to_context(qp->context);

	if (cm_qp_destroyed)
		cm_qp_destroyed(qp);
	pthread_mutex_lock(&ctx->qps_lock);
	list_del(&q->node);
	pthread_mutex_unlock(&ctx->qps_lock);
	qp_destroy(q->hca);
	if (qp->srq)
		srq_detach_qp(to_srq(qp->srq));
	async_source_cancel(ctx, &q->async);
	wait_for_acks(q);
	wr_builder_free(q);
	pthread_mutex_destroy(&qp->mutex);
	pthread_cond_destroy(&qp->cond);
	ctx->objects--;
	free(q);
	return 0;
}

void qp_orphan(struct soft_qp *qp)
{
	const struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };

	qp_modify(qp->hca, &attr, IBV_QP_STATE, context_gid_lookup);
}

/* RC writes a message's packets in order, but WRITEs that are sent again may write twice */
int softhca_ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags)
{
	return 0;
}

int qp_post_send_list(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	return qp_post_send(to_qp(qp)->hca, wr, (const struct ibv_send_wr **)bad_wr);
}

int qp_post_recv_list(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	return qp_post_recv(to_qp(qp)->hca, wr, (const struct ibv_recv_wr **)bad_wr);
}
