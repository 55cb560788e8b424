/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ext.c: the calls of <infiniband/verbs_ext.h> and <softhca/softhca.h>, exported under their own
 * names. They may be called on any device's objects: what is not ours has no such capability.
 */
#include <stdlib.h>
#include <string.h>

#include "offload/offload.h"
#include "util/bytes.h"
#include "util/counters.h"
#include "util/log.h"
#include "verbs/objects.h"
#include "wire/fault.h"

CORE_API int ibv_query_mp_wr_caps(struct ibv_context *context, struct ibv_mp_wr_caps *caps)
{
	if (!context || !caps)
		return EINVAL;
	*caps = (struct ibv_mp_wr_caps){ 0 };
	if (context_is_ours(context))
		*caps = (struct ibv_mp_wr_caps){
			.max_wr_buffer_sz = HCA_MAX_MP_WR_BUFFER,
			.max_packet_align_sz = HCA_MAX_MP_WR_ALIGN,
		};
	return 0;
}

CORE_API int ibv_query_nvmf_caps(struct ibv_context *context, struct ibv_nvmf_caps *caps)
{
	if (!context || !caps)
		return EINVAL;
	memset(caps, 0, sizeof(*caps));
	if (context_is_ours(context))
		offload_get_caps(caps);
	return 0;
}

/* ---- NVMe controllers ------------------------------------------------------------ */

static struct offload *offload_of(struct ibv_srq *srq)
{
	return srq && context_is_ours(srq->context) ? to_srq(srq)->hca.offload : NULL;
}

/* Return: false: not an MR of the SRQ's device */
static bool convert_memory(const struct ibv_srq *srq, const struct ibv_mr_sg *sg,
			   struct offload_memory *memory)
{
	if (!sg->mr || sg->mr->context != srq->context)
		return false;
	*memory = (struct offload_memory){
		.mr = &to_mr(sg->mr)->hca,
		.addr = sg->addr,
		.len = sg->len,
	};
	return true;
}

CORE_API struct ibv_nvme_ctrl *ibv_srq_create_nvme_ctrl(struct ibv_srq *srq,
							struct ibv_nvme_ctrl_attrs *attrs)
{
	struct offload *offload = offload_of(srq);
	struct offload_ctrl_init init = { 0 };
	struct ibv_nvme_ctrl *ctrl;
	int ret;

	if (!offload || !attrs || attrs->comp_mask)
		return fail_with(EINVAL);
	if (!convert_memory(srq, &attrs->sq_buf, &init.sq) ||
	    !convert_memory(srq, &attrs->cq_buf, &init.cq) ||
	    !convert_memory(srq, &attrs->sqdb, &init.sqdb) ||
	    !convert_memory(srq, &attrs->cqdb, &init.cqdb))
		return fail_with(EINVAL);
	ctrl = calloc(1, sizeof(*ctrl));
	if (!ctrl)
		return NULL;
	ctrl->context = srq->context;
	ctrl->srq = to_srq(srq);
	async_source_init(&ctrl->async, ctrl);
	init.owner = ctrl;
	init.sqdb_ini = attrs->sqdb_ini;
	init.cqdb_ini = attrs->cqdb_ini;
	init.cmd_timeout_ms = attrs->cmd_timeout_ms;
	ret = offload_ctrl_create(&ctrl->offload, offload, &init);
	if (ret) {
		free(ctrl);
		return fail_with(ret);
	}
	ctrl->srq->nvme_ctrls++;
	ctrl->memory[0] = to_mr(attrs->sq_buf.mr);
	ctrl->memory[1] = to_mr(attrs->cq_buf.mr);
	ctrl->memory[2] = to_mr(attrs->sqdb.mr);
	ctrl->memory[3] = to_mr(attrs->cqdb.mr);
	for (unsigned int i = 0; i < ARRAY_SIZE(ctrl->memory); i++)
		ctrl->memory[i]->references++;
	return ctrl;
}

static bool has_unacknowledged_events(struct ibv_nvme_ctrl *ctrl)
{
	struct soft_context *ctx = to_context(ctrl->context);
	bool yes;

	pthread_mutex_lock(&ctx->async_lock);
	yes = ctrl->async.delivered != ctrl->events_completed;
	pthread_mutex_unlock(&ctx->async_lock);
	return yes;
}

CORE_API int ibv_srq_remove_nvme_ctrl(struct ibv_srq *srq, struct ibv_nvme_ctrl *ctrl)
{
	int ret;

	if (!srq || !ctrl || !offload_of(srq) || &ctrl->srq->ibv != srq)
		return EINVAL;
	if (has_unacknowledged_events(ctrl))
		return EBUSY;
	ret = offload_ctrl_remove(ctrl->offload);
	if (ret)
		return ret;
	async_source_cancel(to_context(ctrl->context), &ctrl->async);
	for (unsigned int i = 0; i < ARRAY_SIZE(ctrl->memory); i++)
		ctrl->memory[i]->references--;
	ctrl->srq->nvme_ctrls--;
	free(ctrl);
	return 0;
}

CORE_API int ibv_map_nvmf_nsid(struct ibv_nvme_ctrl *ctrl, uint32_t fe_nsid, uint16_t lba_data_size,
			       uint32_t nvme_nsid)
{
	return ctrl ? offload_map(ctrl->offload, fe_nsid, lba_data_size, nvme_nsid) : EINVAL;
}

CORE_API int ibv_unmap_nvmf_nsid(struct ibv_nvme_ctrl *ctrl, uint32_t fe_nsid)
{
	return ctrl ? offload_unmap(ctrl->offload, fe_nsid) : EINVAL;
}

CORE_API int ibv_query_nvmf_ns(struct ibv_nvme_ctrl *ctrl, uint32_t fe_nsid,
			       struct ibv_nvmf_ns_stats *stats)
{
	return ctrl && stats ? offload_query_ns(ctrl->offload, fe_nsid, stats) : EINVAL;
}

CORE_API int ibv_modify_qp_nvmf(struct ibv_qp *qp, int flags)
{
	if (!qp || !context_is_ours(qp->context) || !qp->srq || !offload_of(qp->srq) ||
	    flags & ~IBV_QP_NVMF_ATTR_FLAG_ENABLE)
		return EINVAL;
	return offload_qp_modify(to_qp(qp)->hca, flags);
}

/* ---- SoftHCA's own ------------------------------------------------------------------ */

CORE_API const char *softhca_version(void)
{
	return SOFTHCA_VERSION;
}

CORE_API int softhca_is_device(struct ibv_context *context)
{
	return context_is_ours(context);
}

CORE_API int softhca_counter(unsigned int index, const char **name, uint64_t *value)
{
	if (index >= COUNTER_COUNT)
		return ENOENT;
	*name = counter_names[index];
	*value = counter_get(index);
	return 0;
}

CORE_API int softhca_fault_set(const char *rules)
{
	struct fault_layer *layer = NULL;
	char error[256] = "";
	int ret;

	/* checked also when no engine runs yet: it reads the environment when it starts */
	ret = fault_parse(&layer, rules ? rules : "", error, sizeof(error));
	fault_free(layer);
	if (ret) {
		log_error("fault rules: %s", error);
		return -ret;
	}
	if (rules && *rules)
		setenv("SOFTHCA_FAULT", rules, 1);
	else
		unsetenv("SOFTHCA_FAULT");
	return context_set_faults(rules ? rules : "");
}

CORE_API void softhca_nvme_cq_notify(struct ibv_srq *srq)
{
	struct offload *offload = offload_of(srq);

	if (offload)
		offload_cq_notify(offload);
}

CORE_API int softhca_query_nvmf_srq(struct ibv_srq *srq, struct softhca_nvmf_srq_stats *stats)
{
	struct offload *offload = offload_of(srq);

	if (!offload || !stats)
		return EINVAL;
	offload_query_srq(offload, stats);
	return 0;
}

CORE_API int softhca_nvmf_sqhd(struct ibv_qp *qp, uint16_t *sqhd)
{
	if (!qp || !sqhd || !context_is_ours(qp->context) || !qp->srq || !offload_of(qp->srq))
		return EINVAL;
	return offload_qp_sqhd(to_qp(qp)->hca, sqhd);
}

CORE_API int softhca_nvmf_prp_lists(struct ibv_srq *srq, const void **addr, size_t *len)
{
	struct offload *offload = offload_of(srq);

	if (!offload || !addr || !len)
		return EINVAL;
	offload_prp_lists(offload, addr, len);
	return 0;
}

CORE_API int softhca_query_mp_wr_srq(struct ibv_srq *srq, struct softhca_mp_wr_stats *stats)
{
	struct recv_queue_stats counted;
	struct hca_srq *hca;

	if (!srq || !stats || !context_is_ours(srq->context) || !to_srq(srq)->multi_packet)
		return EINVAL;
	hca = &to_srq(srq)->hca;
	engine_lock(hca->ctx->engine);
	recv_queue_get_stats(hca->rq, &counted);
	engine_unlock(hca->ctx->engine);
	*stats = (struct softhca_mp_wr_stats){
		.packets = counted.packets,
		.wrs = counted.wrs,
		.nops = counted.nops,
	};
	return 0;
}
