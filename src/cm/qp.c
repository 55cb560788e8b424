// SPDX-License-Identifier: BSD-2-Clause
/*
 * qp.c: QPs and SRQs that belong to an rdma_cm_id, and the attributes that a connection gives its
 * QP (wire-facts 4.4): the CM moves the QP to INIT when it is made, to RTR and RTS before it
 * answers the peer, to ERR when the connection ends.
 */
#include "cm/id.h"

#include <errno.h>
#include <string.h>

#include "hca/context.h"
#include "util/bytes.h"
#include "util/log.h"
#include "verbs/device.h"

/*
 * What our responder tells a requester to wait when it has no receive WQE: 0.64 ms. (Linux leaves
 * 0 here, which is 655 ms.)
 */
#define MIN_RNR_TIMER 12

/* ---- CQs ------------------------------------------------------------------------------ */

static int create_cq(struct cm_id *id, uint32_t entries, struct ibv_comp_channel **channel,
		     struct ibv_cq **cq)
{
	*channel = softhca_ibv_create_comp_channel(id->id.verbs);
	if (!*channel)
		return errno;
	*cq = softhca_ibv_create_cq(id->id.verbs, (int)MAX(entries, 1U), &id->id, *channel, 0);
	if (*cq)
		return 0;
	softhca_ibv_destroy_comp_channel(*channel);
	*channel = NULL;
	return errno;
}

static void destroy_cq(struct ibv_comp_channel **channel, struct ibv_cq **cq)
{
	if (*cq)
		softhca_ibv_destroy_cq(*cq);
	if (*channel)
		softhca_ibv_destroy_comp_channel(*channel);
	*cq = NULL;
	*channel = NULL;
}

static void destroy_cqs(struct cm_id *id)
{
	destroy_cq(&id->id.send_cq_channel, &id->id.send_cq);
	destroy_cq(&id->id.recv_cq_channel, &id->id.recv_cq);
}

/* CQs for whatever @attr leaves open */
static int complete_cqs(struct cm_id *id, struct ibv_qp_init_attr_ex *attr)
{
	int err;

	if (!attr->recv_cq && !id->id.recv_cq) {
		err = create_cq(id, attr->cap.max_recv_wr, &id->id.recv_cq_channel,
				&id->id.recv_cq);
		if (err)
			return err;
	}
	if (!attr->send_cq && !id->id.send_cq) {
		err = create_cq(id, attr->cap.max_send_wr, &id->id.send_cq_channel,
				&id->id.send_cq);
		if (err)
			return err;
	}
	if (!attr->recv_cq)
		attr->recv_cq = id->id.recv_cq;
	if (!attr->send_cq)
		attr->send_cq = id->id.send_cq;
	return 0;
}

/* ---- QPs ------------------------------------------------------------------------------ */

/* the attributes' own address is passed on: an extension may lie in front of them */
static struct ibv_qp *create_verbs_qp(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
	struct verbs_context *verbs = verbs_get_ctx_op(context, create_qp_ex);

	if (attr->comp_mask == IBV_QP_INIT_ATTR_PD)
		return softhca_ibv_create_qp(attr->pd, (struct ibv_qp_init_attr *)(void *)attr);
	if (verbs)
		return verbs->create_qp_ex(context, attr);
	errno = EOPNOTSUPP;
	return NULL;
}

static void fill_init(const struct cm_id *id, struct ibv_qp_attr *attr, int *mask)
{
	const struct cm_conn *conn = id->conn;

	attr->pkey_index = 0;
	attr->port_num = id->id.port_num;
	*mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
	if (id->id.qp_type == IBV_QPT_UD) {
		attr->qkey = RDMA_UDP_QKEY;
		*mask |= IBV_QP_QKEY;
		return;
	}
	attr->qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
	if (conn && conn->responder_resources)
		attr->qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	*mask |= IBV_QP_ACCESS_FLAGS;
}

static int to_init(struct cm_id *id, struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT };
	int mask;

	fill_init(id, &attr, &mask);
	return softhca_ibv_modify_qp(qp, &attr, mask);
}

static int check_attr(const struct cm_id *id, const struct ibv_qp_init_attr_ex *attr)
{
	const struct rdma_cm_id *r = &id->id;

	if (!r->verbs || r->qp || !attr->pd || attr->pd->context != r->verbs)
		return EINVAL;
	if ((r->recv_cq && attr->recv_cq && r->recv_cq != attr->recv_cq) ||
	    (r->send_cq && attr->send_cq && r->send_cq != attr->send_cq) ||
	    (r->srq && attr->srq && r->srq != attr->srq))
		return EINVAL;
	return 0;
}

int softhca_rdma_create_qp_ex(struct rdma_cm_id *rdma_id, struct ibv_qp_init_attr_ex *attr)
{
	struct cm_id *id;
	struct ibv_qp *qp;
	int err;

	if (!rdma_id || !attr)
		return cm_error(EINVAL);
	id = to_cm_id(rdma_id);
	if (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD)) {
		attr->comp_mask |= IBV_QP_INIT_ATTR_PD;
		attr->pd = rdma_id->pd;
	}
	err = check_attr(id, attr);
	if (err)
		return cm_error(err);
	if (!attr->srq)
		attr->srq = rdma_id->srq;
	err = complete_cqs(id, attr);
	if (err)
		goto out_cqs;
	qp = create_verbs_qp(rdma_id->verbs, attr);
	if (!qp) {
		err = errno;
		goto out_cqs;
	}
	cm_lock();
	err = to_init(id, qp);
	if (!err) {
		rdma_id->pd = attr->pd;
		rdma_id->qp = qp;
		id->qp_destroyed = false;
	}
	cm_unlock();
	if (!err)
		return 0;
	softhca_ibv_destroy_qp(qp);
out_cqs:
	destroy_cqs(id);
	return cm_error(err);
}

int softhca_rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct ibv_qp_init_attr_ex ex = { 0 };
	int ret;

	if (!id || !attr)
		return cm_error(EINVAL);
	/* the stock structure is a prefix of the extended one */
	memcpy(&ex, attr, sizeof(*attr));
	ex.comp_mask = IBV_QP_INIT_ATTR_PD;
	ex.pd = pd ? pd : id->pd;
	ret = softhca_rdma_create_qp_ex(id, &ex);
	memcpy(attr, &ex, sizeof(*attr));
	return ret;
}

void softhca_rdma_destroy_qp(struct rdma_cm_id *rdma_id)
{
	struct ibv_qp *qp;

	if (!rdma_id)
		return;
	cm_lock();
	qp = rdma_id->qp;
	rdma_id->qp = NULL;
	cm_unlock();
	if (qp)
		softhca_ibv_destroy_qp(qp);
	destroy_cqs(to_cm_id(rdma_id));
}

static struct cm_id *id_of_qp(const struct ibv_qp *qp)
{
	struct list_node *pos;

	list_for_each(pos, cm_ids()) {
		struct cm_id *id = list_entry(pos, struct cm_id, node);

		if (id->id.qp == qp && !id->qp_destroyed)
			return id;
	}
	return NULL;
}

void cm_qp_destroyed(struct ibv_qp *qp)
{
	struct cm_id *id;

	cm_lock();
	id = id_of_qp(qp);
	if (id)
		id->qp_destroyed = true;
	cm_unlock();
}

/* ---- what the connection gives it --------------------------------------------------------- */

static void fill_av(const struct cm_id *id, struct ibv_ah_attr *av)
{
	const struct cm_conn *conn = id->conn;
	int index = device_gid_index(id->device, &conn->path.sgid);

	memset(av, 0, sizeof(*av));
	av->is_global = 1;
	av->port_num = id->id.port_num;
	av->grh.dgid = conn->path.dgid;
	av->grh.sgid_index = (uint8_t)MAX(index, 0);
	av->grh.flow_label = conn->flow_label;
	av->grh.hop_limit = conn->hop_limit ? conn->hop_limit : 64;
	av->grh.traffic_class = conn->traffic_class;
}

static void fill_rtr(const struct cm_id *id, struct ibv_qp_attr *attr, int *mask)
{
	const struct cm_conn *conn = id->conn;
	int init_mask;

	fill_init(id, attr, &init_mask);
	fill_av(id, &attr->ah_attr);
	attr->path_mtu = (enum ibv_mtu)conn->path_mtu;
	attr->dest_qp_num = conn->remote_qpn;
	attr->rq_psn = conn->local_psn;
	attr->max_dest_rd_atomic = (uint8_t)MIN(conn->responder_resources, HCA_MAX_RD_ATOMIC);
	attr->min_rnr_timer = MIN_RNR_TIMER;
	*mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER | IBV_QP_ACCESS_FLAGS;
}

static void fill_rts(const struct cm_id *id, struct ibv_qp_attr *attr, int *mask)
{
	const struct cm_conn *conn = id->conn;

	attr->timeout = id->ack_timeout_set ? id->ack_timeout : conn->ack_timeout;
	attr->retry_cnt = conn->retry_count;
	attr->rnr_retry = conn->rnr_retry_count;
	attr->sq_psn = conn->remote_psn;
	attr->max_rd_atomic = (uint8_t)MIN(conn->initiator_depth, HCA_MAX_RD_ATOMIC);
	*mask = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
		IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
}

int id_qp_ready(struct cm_id *id)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR };
	int mask, err;

	if (!id->id.qp || id->qp_destroyed)
		return EINVAL;
	fill_rtr(id, &attr, &mask);
	err = softhca_ibv_modify_qp(id->id.qp, &attr, mask);
	if (err)
		goto out_log;
	memset(&attr, 0, sizeof(attr));
	attr.qp_state = IBV_QPS_RTS;
	fill_rts(id, &attr, &mask);
	err = softhca_ibv_modify_qp(id->id.qp, &attr, mask);
	if (!err)
		return 0;
out_log:
	log_debug("cm: QP %06x cannot be made ready: %s", id->id.qp->qp_num, strerror(err));
	return err;
}

void id_qp_error(struct cm_id *id)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	if (id->id.qp && !id->qp_destroyed && id->id.qp_type != IBV_QPT_UD)
		softhca_ibv_modify_qp(id->id.qp, &attr, IBV_QP_STATE);
}

int softhca_rdma_init_qp_attr(struct rdma_cm_id *rdma_id, struct ibv_qp_attr *attr, int *attr_mask)
{
	struct cm_id *id;
	int err = 0;

	if (!rdma_id || !attr || !attr_mask || !rdma_id->verbs)
		return cm_error(EINVAL);
	id = to_cm_id(rdma_id);
	cm_lock();
	if (attr->qp_state == IBV_QPS_INIT)
		fill_init(id, attr, attr_mask);
	else if (!id->conn || !id->conn->remote_qpn)
		err = EINVAL;
	else if (attr->qp_state == IBV_QPS_RTR)
		fill_rtr(id, attr, attr_mask);
	else if (attr->qp_state == IBV_QPS_RTS)
		fill_rts(id, attr, attr_mask);
	else
		err = EINVAL;
	cm_unlock();
	return cm_error(err);
}

/* ---- SRQs --------------------------------------------------------------------------------- */

int softhca_rdma_create_srq_ex(struct rdma_cm_id *id, struct ibv_srq_init_attr_ex *attr)
{
	struct verbs_context *verbs;
	struct ibv_srq *srq;

	if (!id || !attr || !id->verbs || id->srq)
		return cm_error(EINVAL);
	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) || !attr->pd) {
		attr->pd = id->pd;
		attr->comp_mask |= IBV_SRQ_INIT_ATTR_PD;
	}
	verbs = verbs_get_ctx_op(id->verbs, create_srq_ex);
	if (!verbs)
		return cm_error(EOPNOTSUPP);
	srq = verbs->create_srq_ex(id->verbs, attr);
	if (!srq)
		return -1;
	id->srq = srq;
	id->pd = attr->pd;
	return 0;
}

int softhca_rdma_create_srq(struct rdma_cm_id *id, struct ibv_pd *pd,
			    struct ibv_srq_init_attr *attr)
{
	struct ibv_srq *srq;

	if (!id || !attr || !id->verbs || id->srq)
		return cm_error(EINVAL);
	if (!pd)
		pd = id->pd;
	srq = softhca_ibv_create_srq(pd, attr);
	if (!srq)
		return -1;
	id->srq = srq;
	id->pd = pd;
	return 0;
}

void softhca_rdma_destroy_srq(struct rdma_cm_id *id)
{
	if (!id || !id->srq)
		return;
	softhca_ibv_destroy_srq(id->srq);
	id->srq = NULL;
}
