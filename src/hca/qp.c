// SPDX-License-Identifier: BSD-2-Clause
/*
 * qp.c: a queue pair's life: creation, posting, packets in, turns to send, error and reset.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "hca/qp_internal.h"
#include "util/bytes.h"
#include "util/clock.h"
#include "util/log.h"

/* ---- creation -------------------------------------------------------------- */

static int refuse(const char *why)
{
	log_debug("create QP: %s", why);
	return EINVAL;
}

static int check_init(const struct qp_init *init)
{
	const struct ibv_qp_cap *cap = &init->cap;
	bool multi_packet = init->srq ? recv_queue_attr(init->srq->rq)->multi_packet
				      : init->multi_packet;

	if (init->type != IBV_QPT_RC)
		return EOPNOTSUPP;
	if (!init->send_cq || (!init->recv_cq && !(init->srq && init->srq->cq)))
		return refuse("no CQ");
	if (cap->max_send_wr > HCA_MAX_QP_WR || cap->max_send_sge > HCA_MAX_SGE ||
	    cap->max_inline_data > HCA_MAX_INLINE)
		return refuse("send capabilities beyond the device's");
	/* with an SRQ, the receive capabilities mean nothing */
	if (!init->srq && (cap->max_recv_wr > HCA_MAX_QP_WR || cap->max_recv_sge > HCA_MAX_SGE))
		return refuse("receive capabilities beyond the device's");
	if (!multi_packet)
		return 0;
	if (init->recv_cq && !init->recv_cq->mp_wr)
		return refuse("the receive CQ of MP WRs was made without IBV_WC_EX_WITH_MP_WR");
	if (init->srq && init->srq->cq && init->recv_cq && init->srq->cq != init->recv_cq)
		return refuse("all QPs of a multi-packet SRQ share one receive CQ");
	return 0;
}

static int make_recv_queue(struct hca_qp *qp, struct qp_init *init)
{
	struct recv_queue_attr attr = {
		.pd = init->pd,
		.max_wr = init->cap.max_recv_wr,
		.max_sge = init->cap.max_recv_sge,
		.multi_packet = init->multi_packet,
	};

	if (init->srq) {
		init->cap.max_recv_wr = init->cap.max_recv_sge = 0;
		qp->rq = init->srq->rq;
		qp->is_multi_packet = recv_queue_attr(qp->rq)->multi_packet;
		return 0;
	}
	if (init->multi_packet) {
		int err = recv_queue_round_mp_wr(&init->mp_wr);

		if (err)
			return err;
		attr.mp_wr = init->mp_wr;
		qp->is_multi_packet = true;
	}
	qp->rq = recv_queue_create(&attr);
	return qp->rq ? 0 : errno;
}

static void attach(struct hca_qp *qp)
{
	atomic_fetch_add(&qp->pd->references, 1);
	atomic_fetch_add(&qp->send_cq->references, 1);
	atomic_fetch_add(&qp->recv_cq->references, 1);
	if (!qp->srq)
		return;
	atomic_fetch_add(&qp->srq->references, 1);
	if (qp->is_multi_packet && !qp->srq->cq)
		qp->srq->cq = qp->recv_cq;
}

static void detach(struct hca_qp *qp)
{
	if (qp->srq)
		atomic_fetch_sub(&qp->srq->references, 1);
	atomic_fetch_sub(&qp->recv_cq->references, 1);
	atomic_fetch_sub(&qp->send_cq->references, 1);
	atomic_fetch_sub(&qp->pd->references, 1);
}

static void qp_free(struct hca_qp *qp)
{
	if (qp->rq && !qp->srq)
		recv_queue_free(qp->rq);
	send_queue_free(&qp->sq);
	free(qp->resp.read_ring);
	free(qp);
}

/* a number, a timer, references: what a QP has in its engine */
static int enter_engine(struct hca_qp *qp)
{
	struct engine *engine = qp->engine;
	int err = ENOMEM;

	engine_lock(engine);
	if (engine_timer_reserve(engine, 1))
		goto out_unlock;
	qp->qpn = engine_qpn_alloc(engine, qp);
	if (!qp->qpn) {
		engine_timer_unreserve(engine, 1);
		goto out_unlock;
	}
	qp->target.qp_num = qp->qpn;
	attach(qp);
	err = 0;
out_unlock:
	engine_unlock(engine);
	return err;
}

int qp_create(struct hca_qp **out, struct qp_init *init)
{
	struct hca_qp *qp;
	int err = check_init(init);

	if (err)
		return err;
	qp = calloc(1, sizeof(*qp));
	if (!qp)
		return ENOMEM;
	qp->ctx = init->ctx;
	qp->engine = init->ctx->engine;
	qp->pd = init->pd;
	qp->owner = init->owner;
	qp->type = init->type;
	qp->send_cq = init->send_cq;
	qp->recv_cq = init->recv_cq ? init->recv_cq : init->srq->cq;
	qp->srq = init->srq;
	qp->sq_sig_all = init->sq_sig_all;
	qp->capsule_ops = init->capsule_ops;
	qp->target = (struct recv_target){ .cq = qp->recv_cq, .pd = qp->pd };
	list_init(&qp->tx_node);
	list_init(&qp->ack_node);
	timers_init(qp);

	err = make_recv_queue(qp, init);
	if (err)
		goto out_free;
	err = send_queue_init(&qp->sq, &init->cap, init->hidden_wrs);
	if (err)
		goto out_free;
	qp->resp.read_ring = calloc(HCA_MAX_RD_ATOMIC, sizeof(*qp->resp.read_ring));
	if (!qp->resp.read_ring) {
		err = ENOMEM;
		goto out_free;
	}
	qp->init_attr.cap = init->cap;
	qp->init_attr.qp_type = init->type;
	qp->init_attr.sq_sig_all = init->sq_sig_all;
	err = enter_engine(qp);
	if (err)
		goto out_free;
	*out = qp;
	return 0;

out_free:
	qp_free(qp);
	return err;
}

void qp_destroy(struct hca_qp *qp)
{
	struct engine *engine = qp->engine;

	engine_lock(engine);
	qp_enter_reset(qp);
	list_del(&qp->tx_node);
	list_del(&qp->ack_node);
	engine_qpn_free(engine, qp->qpn);
	engine_timer_unreserve(engine, 1);
	detach(qp);
	engine_unlock(engine);
	qp_free(qp);
}

/* ---- accessors ------------------------------------------------------------- */

uint32_t qp_num(const struct hca_qp *qp)
{
	return qp->qpn;
}

enum ibv_qp_state qp_state(const struct hca_qp *qp)
{
	return qp->state;
}

struct hca_srq *qp_srq(const struct hca_qp *qp)
{
	return qp->srq;
}

struct hca_context *qp_context(const struct hca_qp *qp)
{
	return qp->ctx;
}

void *qp_owner(const struct hca_qp *qp)
{
	return qp->owner;
}

void *qp_capsule_state(const struct hca_qp *qp)
{
	return qp->capsule_state;
}

void qp_set_capsule_state(struct hca_qp *qp, void *state)
{
	qp->capsule_state = state;
}

/* ---- error and reset ------------------------------------------------------- */

void qp_event(struct hca_qp *qp, enum ibv_event_type event)
{
	qp->ctx->event(qp->ctx, event, qp->owner);
}

void qp_check_overrun(struct hca_qp *qp, const struct hca_cq *cq)
{
	if (__builtin_expect(cq->overrun, 0))
		qp_fail(qp, IBV_EVENT_QP_FATAL);
}

/*
 * An ACK may wait for the application's answer (responder.c, "lazy"): the application has seen the
 * message and may take the QP down in answer. The peer's request succeeded all the same and must
 * hear so.
 */
static void acknowledge_what_was_seen(struct hca_qp *qp)
{
	struct responder *resp = &qp->resp;

	if (!qp_can_respond(qp) || !resp->owed || resp->failed ||
	    resp->syndrome != AETH_ACK_NO_CREDIT)
		return;
	responder_acknowledge(qp);
	link_flush(qp->engine->link);
}

void qp_enter_error(struct hca_qp *qp, enum ibv_wc_status status)
{
	if (qp->state == IBV_QPS_ERR)
		return;
	acknowledge_what_was_seen(qp);
	log_debug("qp 0x%06x: to ERR, status %d", qp->qpn, status);
	qp->state = IBV_QPS_ERR;
	requester_stop(qp);
	responder_stop(qp);
	if (qp->capsule_ops)
		qp->capsule_ops->qp_down(qp);
	requester_flush(qp, status);
	recv_queue_abort(qp->rq, &qp->resp.recv, &qp->target, qp->resp.recv_status);
	if (qp->srq)
		qp_event(qp, IBV_EVENT_QP_LAST_WQE_REACHED);
	else
		recv_queue_flush(qp->rq, &qp->target);
}

/* the hidden lane's memory goes back to its owner, the application hears nothing */
static void forget_sends(struct hca_qp *qp)
{
	while (!send_queue_empty(&qp->sq)) {
		struct hidden_wr *hidden = send_queue_at(&qp->sq, qp->sq.head)->hidden;

		send_queue_pop(&qp->sq);
		if (hidden)
			hidden->done(hidden, qp, IBV_WC_WR_FLUSH_ERR);
	}
	send_queue_reset(&qp->sq);
}

void qp_enter_reset(struct hca_qp *qp)
{
	acknowledge_what_was_seen(qp);
	qp->state = IBV_QPS_RESET;
	requester_stop(qp);
	responder_stop(qp);
	/* also after ERR: the offload may still hold the QP for its LAST_CQE_REACHED event */
	if (qp->capsule_ops)
		qp->capsule_ops->qp_down(qp);
	forget_sends(qp);
	qp->req.reads_begun = 0;
	qp->hidden_starved = false;
	recv_queue_abort(qp->rq, &qp->resp.recv, &qp->target, IBV_WC_SUCCESS);
	cq_purge(qp->send_cq, qp->qpn, qp->srq ? NULL : qp->rq);
	if (qp->recv_cq != qp->send_cq)
		cq_purge(qp->recv_cq, qp->qpn, qp->srq ? NULL : qp->rq);
	if (!qp->srq)
		recv_queue_reset(qp->rq);
	peer_put(qp->peer);
	qp->peer = NULL;
	qp->comm_est = qp->drain_notify = false;
	memset(&qp->attr, 0, sizeof(qp->attr));
}

void qp_fail(struct hca_qp *qp, enum ibv_event_type event)
{
	if (qp->state == IBV_QPS_ERR || qp->state == IBV_QPS_RESET)
		return;
	qp_event(qp, event);
	qp_enter_error(qp, IBV_WC_WR_FLUSH_ERR);
}

/* ---- packets in ------------------------------------------------------------ */

/* Return: the QP, or NULL and the reason to drop the packet */
static struct hca_qp *find_qp(struct engine *engine, const struct packet *p, enum counter *drop)
{
	struct hca_qp *qp = engine->qps[p->dest_qpn & (SLOT_QPNS - 1)];

	if (!qp || qp->qpn != p->dest_qpn) {
		*drop = CNT_DROP_QPN;
		return NULL;
	}
	if (p->opcode == OPCODE_CNP) {
		*drop = CNT_RX_CNP; /* accepted and ignored: there is no rate control to tell */
		return NULL;
	}
	if ((p->opcode & 0xe0) != OPC_RC) {
		*drop = CNT_DROP_TYPE;
		return NULL;
	}
	if (!qp_can_respond(qp) || (p->flags & OPF_RESPONSE && !qp_can_request(qp))) {
		*drop = CNT_DROP_STATE;
		return NULL;
	}
	if ((p->pkey & 0x7fff) != (PKEY_DEFAULT & 0x7fff)) {
		*drop = CNT_DROP_PKEY;
		return NULL;
	}
	if (memcmp(&p->sgid, &qp->flow.dgid, sizeof(p->sgid)) ||
	    memcmp(&p->dgid, &qp->flow.sgid, sizeof(p->dgid))) {
		*drop = CNT_DROP_ADDRESS;
		return NULL;
	}
	return qp;
}

void qp_receive(struct engine *engine, const struct packet *p)
{
	enum counter drop;
	struct hca_qp *qp = find_qp(engine, p, &drop);

	if (!qp) {
		counter_inc(drop);
		if (drop != CNT_RX_CNP)
			log_debug("dropped (%s): opcode 0x%02x for qp 0x%06x psn 0x%06x",
				  counter_names[drop], p->opcode, p->dest_qpn, p->psn);
		return;
	}
	if (qp->state == IBV_QPS_RTR && !qp->comm_est) {
		qp->comm_est = true;
		qp_event(qp, IBV_EVENT_COMM_EST);
	}
	if (p->flags & OPF_REQUEST)
		responder_receive(qp, p);
	else
		requester_receive(qp, p);
}

enum tx_result qp_transmit(struct hca_qp *qp)
{
	enum tx_result result = TX_IDLE;

	if (qp->resp.reads_active) {
		result = responder_transmit(qp);
		if (result == TX_LINK_FULL)
			return result;
	}
	if (result == TX_MORE) {
		enum tx_result requests = requester_transmit(qp);

		return requests == TX_LINK_FULL ? requests : TX_MORE;
	}
	return requester_transmit(qp);
}

/* ---- posting --------------------------------------------------------------- */

/* ERR: a posted WR completes at once; nothing older is left */
static void flush_posted(struct hca_qp *qp, const struct ibv_send_wr *wr)
{
	struct cqe cqe = {
		.wr_id = wr->wr_id,
		.status = IBV_WC_WR_FLUSH_ERR,
		.qp_num = qp->qpn,
	};

	cq_push(qp->send_cq, &cqe, false);
}

static int post_one(struct hca_qp *qp, const struct ibv_send_wr *wr)
{
	struct send_wqe *wqe;
	int err;

	if (qp->state == IBV_QPS_ERR) {
		flush_posted(qp, wr);
		return 0;
	}
	if (!qp_can_request(qp))
		return EINVAL;
	err = send_queue_post(&qp->sq, wr, qp->sq_sig_all, &wqe);
	if (!err)
		requester_posted(qp, wqe);
	return err;
}

/* Nothing in flight: nothing else will start what was posted, and it is in a hurry. Otherwise it
 * waits for company, up to one super-packet's worth */
static bool is_due(const struct hca_qp *qp)
{
	return requester_is_idle(qp) || qp->req.deferred_bytes >= DEFER_BYTES ||
	       qp->req.deferred_packets >= DEFER_PACKETS;
}

int qp_post_send(struct hca_qp *qp, const struct ibv_send_wr *wr, const struct ibv_send_wr **bad_wr)
{
	struct engine *engine = qp->engine;
	int err = 0;

	engine_lock(engine);
	for (; wr; wr = wr->next) {
		err = post_one(qp, wr);
		if (err) {
			*bad_wr = wr;
			break;
		}
	}
	if (qp->sq.next != qp->sq.tail) {
		qp_schedule(qp);
		if (is_due(qp))
			engine_transmit_now(engine, qp);
	}
	engine_unlock(engine);
	return err;
}

uint32_t qp_send_room(struct hca_qp *qp)
{
	uint32_t room;

	engine_lock(qp->engine);
	room = qp->sq.max_wr - qp->sq.used_wr;
	engine_unlock(qp->engine);
	return room;
}

int qp_post_hidden(struct hca_qp *qp, struct hidden_wr *wr)
{
	struct send_wqe *wqe;
	int err;

	if (qp->state != IBV_QPS_RTS)
		return -ENOTCONN;
	err = send_queue_post_hidden(&qp->sq, wr, &wqe);
	if (err) {
		qp->hidden_starved = true;
		return err;
	}
	requester_posted(qp, wqe);
	qp_schedule(qp);
	return 0;
}

int qp_post_recv(struct hca_qp *qp, const struct ibv_recv_wr *wr, const struct ibv_recv_wr **bad_wr)
{
	struct engine *engine = qp->engine;
	int err = 0;

	engine_lock(engine);
	for (; wr; wr = wr->next) {
		err = qp->state == IBV_QPS_RESET || qp->srq ? EINVAL : recv_queue_post(qp->rq, wr);
		if (err) {
			*bad_wr = wr;
			break;
		}
		if (qp->state == IBV_QPS_ERR)
			recv_queue_flush(qp->rq, &qp->target);
	}
	engine_unlock(engine);
	return err;
}
