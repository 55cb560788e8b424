// SPDX-License-Identifier: BSD-2-Clause
/*
 * qp_modify.c: the state machine of a QP and what each transition needs (IBTA 1.4, 11.2.5.3;
 * wire-facts 2.7). First everything is checked, then everything is changed.
 */
#include <errno.h>
#include <string.h>

#include "hca/qp_internal.h"
#include "util/log.h"

#define HOP_LIMIT_DEFAULT 64

struct transition {
	enum ibv_qp_type type;
	enum ibv_qp_state from, to;
	int required, optional; /* enum ibv_qp_attr_mask; STATE is always allowed */
};

/* to ERR and RESET: from every state, no attributes */
#define RC_INIT (IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
#define RC_RTR                                                                                     \
	(IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |                           \
	 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
#define RC_RTR_OPTIONAL (IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX)
#define RC_RTS                                                                                     \
	(IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |                    \
	 IBV_QP_MAX_QP_RD_ATOMIC)
#define RC_RTS_OPTIONAL                                                                            \
	(IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER |         \
	 IBV_QP_PATH_MIG_STATE)
#define RC_SQD_OPTIONAL                                                                            \
	(IBV_QP_PORT | IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |          \
	 IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_ALT_PATH |                   \
	 IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_MIN_RNR_TIMER | IBV_QP_PATH_MIG_STATE)

static const struct transition transitions[] = {
	{ IBV_QPT_RC, IBV_QPS_RESET, IBV_QPS_INIT, RC_INIT, 0 },
	{ IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_INIT, 0, RC_INIT },
	{ IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_RTR, RC_RTR, RC_RTR_OPTIONAL },
	{ IBV_QPT_RC, IBV_QPS_RTR, IBV_QPS_RTS, RC_RTS, RC_RTS_OPTIONAL },
	{ IBV_QPT_RC, IBV_QPS_RTS, IBV_QPS_RTS, 0, RC_RTS_OPTIONAL },
	{ IBV_QPT_RC, IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY },
	{ IBV_QPT_RC, IBV_QPS_SQD, IBV_QPS_SQD, 0, RC_SQD_OPTIONAL },
	{ IBV_QPT_RC, IBV_QPS_SQD, IBV_QPS_RTS, 0, RC_RTS_OPTIONAL },
};

static const struct transition *find_transition(const struct hca_qp *qp, enum ibv_qp_state to)
{
	for (unsigned int i = 0; i < sizeof(transitions) / sizeof(transitions[0]); i++) {
		const struct transition *t = &transitions[i];

		if (t->type == qp->type && t->from == qp->state && t->to == to)
			return t;
	}
	return NULL;
}

static int refuse(const struct hca_qp *qp, const char *why)
{
	log_debug("modify QP 0x%06x in state %d: %s", qp->qpn, qp->state, why);
	return EINVAL;
}

static int check_mask(const struct hca_qp *qp, const struct ibv_qp_attr *attr, int mask,
		      enum ibv_qp_state to)
{
	const struct transition *t;

	if (mask & IBV_QP_CUR_STATE && attr->cur_qp_state != qp->state)
		return refuse(qp, "cur_qp_state is not the QP's state");
	if (mask & IBV_QP_STATE && (to == IBV_QPS_RESET || to == IBV_QPS_ERR))
		return 0;
	t = find_transition(qp, to);
	if (!t)
		return refuse(qp, "no such transition");
	if ((mask & t->required) != t->required)
		return refuse(qp, "a required attribute is missing");
	if (mask & ~(t->required | t->optional | IBV_QP_STATE))
		return refuse(qp, "an attribute does not belong to this transition");
	return 0;
}

static int check_values(const struct hca_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	if (mask & IBV_QP_PKEY_INDEX && attr->pkey_index)
		return refuse(qp, "pkey_index must be 0");
	if (mask & IBV_QP_PORT && attr->port_num != 1)
		return refuse(qp, "port_num must be 1");
	if (mask & IBV_QP_PATH_MTU && !mtu_bytes(attr->path_mtu))
		return refuse(qp, "path_mtu");
	if (mask & IBV_QP_DEST_QPN && attr->dest_qp_num > QPN_MASK)
		return refuse(qp, "dest_qp_num has more than 24 bits");
	if (mask & IBV_QP_TIMEOUT && attr->timeout > 31)
		return refuse(qp, "timeout > 31");
	if (mask & IBV_QP_RETRY_CNT && attr->retry_cnt > 7)
		return refuse(qp, "retry_cnt > 7");
	if (mask & IBV_QP_RNR_RETRY && attr->rnr_retry > 7)
		return refuse(qp, "rnr_retry > 7");
	if (mask & IBV_QP_MIN_RNR_TIMER && attr->min_rnr_timer > 31)
		return refuse(qp, "min_rnr_timer > 31");
	if (mask & IBV_QP_MAX_QP_RD_ATOMIC && attr->max_rd_atomic > HCA_MAX_RD_ATOMIC)
		return refuse(qp, "max_rd_atomic beyond the device's");
	if (mask & IBV_QP_MAX_DEST_RD_ATOMIC && attr->max_dest_rd_atomic > HCA_MAX_RD_ATOMIC)
		return refuse(qp, "max_dest_rd_atomic beyond the device's");
	if (mask & IBV_QP_PATH_MIG_STATE && attr->path_mig_state != IBV_MIG_MIGRATED)
		return refuse(qp, "path migration is not supported");
	if (mask & IBV_QP_ALT_PATH)
		return refuse(qp, "alternate paths are not supported");
	/* docs/mp-wr.md: the buffer holds at least one packet of the path MTU */
	if (mask & IBV_QP_PATH_MTU && qp->is_multi_packet &&
	    recv_queue_attr(qp->rq)->mp_wr.wr_buffer_sz < mtu_bytes(attr->path_mtu))
		return refuse(qp, "MP WR buffer smaller than a packet of the path MTU");
	return 0;
}

/* everything that the address vector leads to */
struct path {
	struct link_flow flow;
	struct peer *peer;
};

static int resolve_path(struct hca_qp *qp, const struct ibv_qp_attr *attr, int mask,
			gid_lookup_fn gid, struct path *path)
{
	const struct ibv_ah_attr *ah = &attr->ah_attr;
	uint32_t dest_qpn = mask & IBV_QP_DEST_QPN ? attr->dest_qp_num : qp->dest_qpn;
	uint8_t hop_limit = ah->grh.hop_limit ? ah->grh.hop_limit : HOP_LIMIT_DEFAULT;
	union ibv_gid sgid;
	uint32_t ifindex = 0;

	if (!ah->is_global)
		return refuse(qp, "RoCE needs ah_attr.is_global and a GRH");
	if (ah->port_num && ah->port_num != 1)
		return refuse(qp, "ah_attr.port_num must be 1");
	if (gid(qp->ctx, ah->grh.sgid_index, &sgid, &ifindex))
		return refuse(qp, "no GID at sgid_index");
	if (link_flow_init(qp->engine->link, &path->flow, &sgid, &ah->grh.dgid, ifindex,
			   ah->grh.traffic_class, hop_limit))
		return refuse(qp, "dgid cannot be reached from the GID at sgid_index");
	path->peer = peer_get(qp->engine, &ah->grh.dgid, dest_qpn);
	return path->peer ? 0 : ENOMEM;
}

static void take_path(struct hca_qp *qp, const struct path *path)
{
	/* SQD: what is in flight moves with the QP */
	if (qp->peer) {
		peer_release(qp->engine, qp->peer, qp->req.in_flight);
		peer_put(qp->peer);
	}
	qp->peer = path->peer;
	peer_sent(qp->peer, qp->req.in_flight);
	qp->flow = path->flow;
}

static void take_values(struct hca_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	struct ibv_qp_attr *own = &qp->attr;

	if (mask & IBV_QP_ACCESS_FLAGS)
		own->qp_access_flags = attr->qp_access_flags;
	if (mask & IBV_QP_PKEY_INDEX)
		own->pkey_index = attr->pkey_index;
	if (mask & IBV_QP_PORT)
		own->port_num = attr->port_num;
	if (mask & IBV_QP_AV)
		own->ah_attr = attr->ah_attr;
	if (mask & IBV_QP_PATH_MTU) {
		own->path_mtu = attr->path_mtu;
		qp->mtu = mtu_bytes(attr->path_mtu);
	}
	if (mask & IBV_QP_DEST_QPN)
		own->dest_qp_num = qp->dest_qpn = attr->dest_qp_num;
	if (mask & IBV_QP_TIMEOUT)
		own->timeout = attr->timeout;
	if (mask & IBV_QP_RETRY_CNT)
		own->retry_cnt = qp->req.retries_left = attr->retry_cnt;
	if (mask & IBV_QP_RNR_RETRY)
		own->rnr_retry = qp->req.rnr_retries_left = attr->rnr_retry;
	if (mask & IBV_QP_MIN_RNR_TIMER)
		own->min_rnr_timer = attr->min_rnr_timer;
	if (mask & IBV_QP_MAX_QP_RD_ATOMIC)
		own->max_rd_atomic = attr->max_rd_atomic;
	if (mask & IBV_QP_MAX_DEST_RD_ATOMIC)
		own->max_dest_rd_atomic = attr->max_dest_rd_atomic;
	if (mask & IBV_QP_RQ_PSN) {
		own->rq_psn = attr->rq_psn & PSN_MASK;
		responder_start(qp, attr->rq_psn);
	}
	if (mask & IBV_QP_SQ_PSN) {
		own->sq_psn = attr->sq_psn & PSN_MASK;
		requester_start(qp, attr->sq_psn);
	}
}

static void enter_state(struct hca_qp *qp, enum ibv_qp_state to, const struct ibv_qp_attr *attr,
			int mask)
{
	enum ibv_qp_state from = qp->state;

	qp->state = to;
	if (to == IBV_QPS_RTS && from == IBV_QPS_SQD) {
		qp->drain_notify = false;
		qp_schedule(qp);
	}
	if (to != IBV_QPS_SQD || from == IBV_QPS_SQD)
		return;
	if (requester_is_idle(qp)) {
		if (mask & IBV_QP_EN_SQD_ASYNC_NOTIFY && attr->en_sqd_async_notify)
			qp_event(qp, IBV_EVENT_SQ_DRAINED);
		return;
	}
	qp->drain_notify = mask & IBV_QP_EN_SQD_ASYNC_NOTIFY && attr->en_sqd_async_notify;
	requester_drain(qp);
}

static int modify_locked(struct hca_qp *qp, const struct ibv_qp_attr *attr, int mask,
			 gid_lookup_fn gid)
{
	enum ibv_qp_state to = mask & IBV_QP_STATE ? attr->qp_state : qp->state;
	struct path path;
	int err = check_mask(qp, attr, mask, to);

	if (err)
		return err;
	if (mask & IBV_QP_STATE && to == IBV_QPS_RESET) {
		qp_enter_reset(qp);
		return 0;
	}
	if (mask & IBV_QP_STATE && to == IBV_QPS_ERR) {
		/* what has arrived comes before what ends the QP: a disconnect request reaches
		 * the application past the acknowledgements that were sent before it */
		if (qp_can_respond(qp))
			engine_progress(qp->engine);
		qp_enter_error(qp, IBV_WC_WR_FLUSH_ERR);
		return 0;
	}
	err = check_values(qp, attr, mask);
	if (err)
		return err;
	if (mask & IBV_QP_AV) {
		err = resolve_path(qp, attr, mask, gid, &path);
		if (err)
			return err;
		take_path(qp, &path);
	}
	take_values(qp, attr, mask);
	enter_state(qp, to, attr, mask);
	return 0;
}

int qp_modify(struct hca_qp *qp, const struct ibv_qp_attr *attr, int mask, gid_lookup_fn gid)
{
	int err;

	engine_lock(qp->engine);
	err = modify_locked(qp, attr, mask, gid);
	engine_unlock(qp->engine);
	if (!err)
		engine_kick(qp->engine);
	return err;
}

void qp_query(struct hca_qp *qp, struct ibv_qp_attr *attr, struct ibv_qp_init_attr *init)
{
	engine_lock(qp->engine);
	*attr = qp->attr;
	attr->qp_state = attr->cur_qp_state = qp->state;
	attr->sq_draining = qp->state == IBV_QPS_SQD && !requester_is_idle(qp);
	attr->path_mig_state = IBV_MIG_MIGRATED;
	attr->cap = qp->init_attr.cap;
	if (init) {
		init->cap = qp->init_attr.cap;
		init->qp_type = qp->type;
		init->sq_sig_all = qp->sq_sig_all;
	}
	engine_unlock(qp->engine);
}
