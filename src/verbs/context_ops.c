/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * context_ops.c: the function tables of a context, which the inline functions of
 * <infiniband/verbs.h> call through. What is NULL in verbs_context answers EOPNOTSUPP by itself;
 * the classic table must be complete (abi-facts 2.2, 2.3).
 */
#include "verbs/objects.h"

static struct ibv_mw *no_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	return fail_with(EOPNOTSUPP);
}

static int no_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
	return EOPNOTSUPP;
}

static int no_dealloc_mw(struct ibv_mw *mw)
{
	return EOPNOTSUPP;
}

static struct ibv_xrcd *no_open_xrcd(struct ibv_context *context, struct ibv_xrcd_init_attr *attr)
{
	return fail_with(EOPNOTSUPP);
}

/* ibv_close_xrcd() does not look whether it is there */
static int no_close_xrcd(struct ibv_xrcd *xrcd)
{
	return EOPNOTSUPP;
}

void context_set_ops(struct soft_context *ctx)
{
	struct verbs_context *verbs = &ctx->verbs;
	struct ibv_context_ops *ops = &verbs->context.ops;

	verbs->context.abi_compat = __VERBS_ABI_IS_EXTENDED;
	verbs->sz = sizeof(*verbs);
	verbs->query_port = query_port;
	verbs->query_device_ex = query_device_ex;
	verbs->create_cq_ex = cq_create_ex;
	verbs->create_srq_ex = srq_create_ex;
	verbs->create_qp_ex = qp_create_ex;
	verbs->open_xrcd = no_open_xrcd;
	verbs->close_xrcd = no_close_xrcd;

	/* programs from before 1.0 call these two through the table */
	ops->_compat_query_device = softhca_ibv_query_device;
	ops->_compat_query_port = softhca_ibv_query_port;
	ops->alloc_mw = no_alloc_mw;
	ops->bind_mw = no_bind_mw;
	ops->dealloc_mw = no_dealloc_mw;
	ops->poll_cq = cq_poll_classic;
	ops->req_notify_cq = cq_req_notify;
	ops->post_srq_recv = srq_post_recv;
	ops->post_send = qp_post_send_list;
	ops->post_recv = qp_post_recv_list;
}
