// SPDX-License-Identifier: BSD-2-Clause
/*
 * cm_recv.c: what a MAD from the network does. Each function: find the connection, check that the
 * message belongs to it (IDs, sender's address, state), act. What does not belong is counted and
 * dropped, or refused where the specification wants an answer.
 */
#include "cm/cm_internal.h"

#include "util/bytes.h"
#include "util/clock.h"
#include "util/counters.h"
#include "util/log.h"

/* our MRA: 69 s, what Linux asks for; a peer's is obeyed up to as much */
#define MRA_SERVICE_TIMEOUT 24
/* a refusal for want of a listener is believed the third time, after 100 and 200 ms */
#define REFUSALS_MAX	    2
#define REFUSAL_INTERVAL_NS (100 * NSEC_PER_MSEC)

static void send_to(struct cm *cm, const struct cm_path *path, const struct cm_mad *mad)
{
	uint8_t data[CM_MAD_LEN];

	cm_mad_encode(data, mad);
	cm->ops->send(cm->arg, path, data);
}

static void duplicate(const struct cm_conn *conn, const char *what)
{
	counter_inc(CNT_CM_DUPLICATE);
	log_debug("cm: %08x %s: duplicate %s", conn->local_id, cm_state_name(conn->state), what);
}

static void drop(const struct cm_mad *mad, const char *why)
{
	counter_inc(CNT_DROP_MAD);
	log_debug("cm: dropped a %s: %s", cm_attribute_name(mad->attribute), why);
}

/*
 * The connection a message names by our ID (and the sender's, unless that is 0). A message from
 * another address than the peer's is nobody's business of ours.
 */
static struct cm_conn *find(struct cm *cm, const struct cm_path *path, uint32_t local_id,
			    uint32_t remote_id)
{
	struct cm_conn *conn = conn_by_id(cm, local_id);

	if (!conn || !gid_equal(&conn->path.dgid, &path->dgid))
		return NULL;
	if (remote_id && conn->remote_id && conn->remote_id != remote_id)
		return NULL;
	return conn;
}

/* ---- REQ ------------------------------------------------------------------------ */

/* refuse a REQ for which no connection was made */
static void refuse(struct cm *cm, const struct cm_path *path, const struct cm_mad *mad,
		   const struct cm_refusal *refusal)
{
	struct cm_mad rej = { .tid = mad->tid,
			      .attribute = CM_REJ,
			      .rej = { .remote_id = mad->req.local_id,
				       .answers = CM_ANSWERS_REQ,
				       .reason = refusal->reason,
				       .ari_len = refusal->ari_len } };

	memcpy(rej.rej.ari, refusal->ari, sizeof(rej.rej.ari));
	counter_inc(CNT_CM_REJ_TX);
	log_debug("cm: refused a REQ for service %016llx: %s",
		  (unsigned long long)mad->req.service_id, cm_rej_reason_name(refusal->reason));
	send_to(cm, path, &rej);
}

static void duplicate_req(struct cm_conn *conn, const struct cm_mad *mad)
{
	struct cm_mad mra = { .tid = conn->tid,
			      .attribute = CM_MRA,
			      .mra = { .local_id = conn->local_id,
				       .remote_id = conn->remote_id,
				       .answers = CM_ANSWERS_REQ,
				       .service_timeout = MRA_SERVICE_TIMEOUT } };
	struct cm_refusal stale = { .reason = CM_REJ_STALE_CONN };

	duplicate(conn, "REQ");
	switch (conn->state) {
	case CM_REQ_RCVD:
		conn_send(conn, &mra);
		return;
	case CM_REP_SENT:
	case CM_REJ_SENT:
		conn_resend(conn);
		return;
	case CM_TIMEWAIT:
		refuse(conn->cm, &conn->path, mad, &stale);
		return;
	default:
		return; /* established: the peer has our REP, this one was late */
	}
}

/* the checks that need no knowledge of listeners or devices */
static uint16_t check_req(const struct cm_req *req, const struct cm_path *path,
			  struct cm_refusal *refusal)
{
	if (req->transport != CM_TRANSPORT_RC)
		return CM_REJ_INVALID_TRANSPORT;
	if (!req->qpn)
		return CM_REJ_NO_QP;
	if (!gid_equal(&req->primary.local_gid, &path->dgid) ||
	    !gid_equal(&req->primary.remote_gid, &path->sgid)) {
		memcpy(refusal->ari, path->sgid.raw, 16);
		refusal->ari_len = 16;
		return CM_REJ_INVALID_GID;
	}
	if (req->path_mtu < IBV_MTU_256 || req->path_mtu > IBV_MTU_4096) {
		refusal->ari[0] = IBV_MTU_4096;
		refusal->ari_len = 1;
		return CM_REJ_INVALID_MTU;
	}
	return 0;
}

/*
 * The peer's QP is in a connection already: the peer has restarted and does not know the old one.
 * IBTA 1.4, 12.9.8.3.1: refuse, and end the old one.
 */
static bool end_stale(struct cm *cm, const struct cm_path *path, const struct cm_mad *mad)
{
	struct cm_conn *old =
		conn_by_remote_qpn(cm, mad->req.ca_guid, mad->req.qpn, &path->dgid, NULL);
	struct cm_refusal refusal = { .reason = CM_REJ_STALE_CONN };

	if (!old)
		return false;
	refuse(cm, path, mad, &refusal);
	if (old->state == CM_ESTABLISHED || old->state == CM_REP_SENT) {
		conn_start_disconnect(old);
	} else {
		conn_enter_idle(old);
		conn_event(old, CM_EVENT_REJECTED, CM_REJ_STALE_CONN, NULL, 0);
	}
	return true;
}

static void fill_from_req(struct cm_conn *conn, const struct cm_mad *mad)
{
	const struct cm_req *req = &mad->req;

	conn->tid = mad->tid;
	conn->service_id = req->service_id;
	conn->remote_id = req->local_id;
	conn->remote_guid = req->ca_guid;
	conn->remote_qpn = req->qpn;
	conn->remote_psn = req->starting_psn;
	/* crossed: what the peer answers is what we may ask */
	conn->responder_resources = req->initiator_depth;
	conn->initiator_depth = req->responder_resources;
	conn->retry_count = req->retry_count;
	conn->rnr_retry_count = req->rnr_retry_count;
	conn->path_mtu = req->path_mtu;
	conn->ack_timeout = req->primary.ack_timeout;
	conn->traffic_class = req->primary.traffic_class;
	conn->hop_limit = req->primary.hop_limit;
	conn->flow_label = req->primary.flow_label;
	conn->remote_srq = req->srq;
	conn->flow_control = req->flow_control;
	conn->alternate_path = req->alternate.local_lid != 0;
	conn->max_cm_retries = req->max_cm_retries;
	conn->response_timeout_ns =
		cm_timeout_ns(MIN(req->local_response_timeout, MRA_SERVICE_TIMEOUT));
}

void receive_req(struct cm *cm, const struct cm_path *path, const struct cm_mad *mad, bool final)
{
	const struct cm_req *req = &mad->req;
	struct cm_refusal refusal = { 0 };
	struct cma_header cma;
	struct cm_conn *conn;
	void *listener;

	conn = conn_by_remote_id(cm, req->ca_guid, req->local_id, &path->dgid);
	if (conn && !conn->active) {
		duplicate_req(conn, mad);
		return;
	}
	if (cma_header_decode(&cma, req->private_data)) {
		refusal.reason = CM_REJ_UNSUPPORTED;
		refuse(cm, path, mad, &refusal);
		return;
	}
	listener = cm->ops->lookup(cm->arg, req, &cma, path, &refusal);
	if (listener)
		refusal.reason = check_req(req, path, &refusal);
	else if (!refusal.reason && !final && hold_req(cm, path, mad))
		return;
	else if (!refusal.reason)
		refusal.reason = CM_REJ_INVALID_SERVICE_ID;
	if (refusal.reason) {
		refuse(cm, path, mad, &refusal);
		return;
	}
	if (end_stale(cm, path, mad))
		return;
	conn = conn_new(cm, path);
	if (!conn) {
		refusal.reason = CM_REJ_NO_RESOURCES;
		refuse(cm, path, mad, &refusal);
		return;
	}
	fill_from_req(conn, mad);
	conn->state = CM_REQ_RCVD;
	refusal.reason = cm->ops->request(cm->arg, listener, conn, req, &cma);
	if (refusal.reason) {
		refuse(cm, path, mad, &refusal);
		conn_free(conn);
		return;
	}
	conn_index_remote_id(conn);
	conn_index_remote_qpn(conn);
}

/* ---- answers to a REQ ------------------------------------------------------------- */

static void refuse_rep(struct cm *cm, const struct cm_path *path, const struct cm_mad *mad,
		       uint16_t reason)
{
	struct cm_mad rej = { .tid = mad->tid,
			      .attribute = CM_REJ,
			      .rej = { .local_id = mad->rep.remote_id,
				       .remote_id = mad->rep.local_id,
				       .answers = CM_ANSWERS_REP,
				       .reason = reason } };

	counter_inc(CNT_CM_REJ_TX);
	send_to(cm, path, &rej);
}

static void receive_rep(struct cm *cm, const struct cm_path *path, const struct cm_mad *mad)
{
	const struct cm_rep *rep = &mad->rep;
	struct cm_conn *conn = find(cm, path, rep->remote_id, rep->local_id);

	if (!conn || !conn->active) {
		drop(mad, "unknown communication ID");
		refuse_rep(cm, path, mad, CM_REJ_INVALID_COMM_ID);
		return;
	}
	if (conn->state == CM_ESTABLISHED) {
		duplicate(conn, "REP");
		conn_resend(conn); /* the RTU */
		return;
	}
	if (conn->state == CM_TIMEWAIT && !conn->was_connected) {
		/* given up while the REP was on its way, and our REJ got lost */
		refuse_rep(cm, path, mad, CM_REJ_TIMEOUT);
		return;
	}
	if (conn->state != CM_REQ_SENT) {
		duplicate(conn, "REP");
		return;
	}
	if (conn_by_remote_qpn(cm, rep->ca_guid, rep->qpn, &path->dgid, conn)) {
		refuse_rep(cm, path, mad, CM_REJ_STALE_CONN);
		conn_enter_idle(conn);
		conn_event(conn, CM_EVENT_REJECTED, CM_REJ_STALE_CONN, NULL, 0);
		return;
	}
	conn_stop_timer(conn);
	conn->remote_id = rep->local_id;
	conn->remote_guid = rep->ca_guid;
	conn->remote_qpn = rep->qpn;
	conn->remote_psn = rep->starting_psn;
	conn->initiator_depth = rep->responder_resources;
	conn->responder_resources = rep->initiator_depth;
	conn->rnr_retry_count = rep->rnr_retry_count;
	conn->remote_srq = rep->srq;
	conn->flow_control = rep->flow_control;
	conn_index_remote_id(conn);
	conn_index_remote_qpn(conn);
	conn->state = CM_REP_RCVD;
	conn_event(conn, CM_EVENT_REP, 0, rep->private_data, sizeof(rep->private_data));
}

static void receive_mra(struct cm *cm, const struct cm_path *path, const struct cm_mad *mad)
{
	const struct cm_mra *mra = &mad->mra;
	struct cm_conn *conn = find(cm, path, mra->remote_id, mra->local_id);
	uint8_t answered;

	if (!conn)
		return drop(mad, "unknown communication ID");
	answered = conn->active ? CM_ANSWERS_REQ : CM_ANSWERS_REP;
	if ((conn->state != CM_REQ_SENT && conn->state != CM_REP_SENT) || mra->answers != answered)
		return drop(mad, "not waiting for that answer");
	conn_set_timer(conn, cm->now_ns + conn->response_timeout_ns +
				     cm_timeout_ns(MIN(mra->service_timeout, MRA_SERVICE_TIMEOUT)));
}

/* a REJ for a timeout may know only its sender's ID and, in the ARI, its sender's CA GUID */
static struct cm_conn *find_rejected(struct cm *cm, const struct cm_path *path,
				     const struct cm_rej *rej)
{
	if (rej->remote_id)
		return find(cm, path, rej->remote_id, rej->local_id);
	if (rej->reason != CM_REJ_TIMEOUT || rej->ari_len < 8)
		return NULL;
	return conn_by_remote_id(cm, get_be64(rej->ari), rej->local_id, &path->dgid);
}

/*
 * Nobody listens there: perhaps not yet. Programs that connect twice (perftest with -R) expect
 * their own side's set-up to take longer than the peer's new listen; with a kernel's CM below it
 * does, here it takes microseconds. cm_hold.c is the same courtesy on the passive side.
 */
static bool ask_again(struct cm_conn *conn)
{
	if (conn->refusals >= REFUSALS_MAX)
		return false;
	conn_set_timer(conn, conn->cm->now_ns + (REFUSAL_INTERVAL_NS << conn->refusals));
	conn->refusals++;
	return true;
}

static void receive_rej(struct cm *cm, const struct cm_path *path, const struct cm_mad *mad)
{
	const struct cm_rej *rej = &mad->rej;
	struct cm_conn *conn = find_rejected(cm, path, rej);

	if (!conn)
		return drop(mad, "unknown communication ID");
	counter_inc(CNT_CM_REJ_RX);
	log_debug("cm: %08x %s: REJ, %s", conn->local_id, cm_state_name(conn->state),
		  cm_rej_reason_name(rej->reason));
	switch (conn->state) {
	case CM_REQ_SENT:
		if (rej->reason == CM_REJ_INVALID_SERVICE_ID && ask_again(conn))
			return;
		__attribute__((fallthrough));
	case CM_REQ_RCVD:
	case CM_REP_RCVD:
	case CM_REP_SENT:
		conn_enter_idle(conn);
		conn_event(conn, CM_EVENT_REJECTED, rej->reason, rej->private_data,
			   sizeof(rej->private_data));
		return;
	case CM_ESTABLISHED:
	case CM_DREQ_SENT:
		conn_disconnected(conn, 0);
		return;
	case CM_IDLE:
	case CM_REJ_SENT:
	case CM_TIMEWAIT:
		return;
	}
}

static void receive_rtu(struct cm *cm, const struct cm_path *path, const struct cm_mad *mad)
{
	struct cm_conn *conn = find(cm, path, mad->rtu.remote_id, mad->rtu.local_id);

	if (!conn || conn->active)
		return drop(mad, "unknown communication ID");
	if (conn->state == CM_REP_SENT)
		conn_established(conn);
	else
		duplicate(conn, "RTU");
}

/* ---- the end ------------------------------------------------------------------------ */

static void receive_dreq(struct cm *cm, const struct cm_path *path, const struct cm_mad *mad)
{
	const struct cm_dreq *dreq = &mad->dreq;
	struct cm_conn *conn = find(cm, path, dreq->remote_id, dreq->local_id);
	struct cm_mad drep = { .tid = mad->tid,
			       .attribute = CM_DREP,
			       .drep = { .local_id = dreq->remote_id,
					 .remote_id = dreq->local_id } };

	if (!conn) {
		/* we do not know it any more: let the peer get over it */
		send_to(cm, path, &drep);
		return;
	}
	if (dreq->remote_qpn != conn->local_qpn)
		return drop(mad, "not the connection's QP");
	switch (conn->state) {
	case CM_REP_SENT:
	case CM_REP_RCVD:
	case CM_ESTABLISHED:
	case CM_DREQ_SENT:
		conn_send_drep(conn, mad->tid);
		conn_disconnected(conn, 0);
		return;
	case CM_IDLE:
	case CM_TIMEWAIT:
		duplicate(conn, "DREQ");
		conn_send_drep(conn, mad->tid);
		return;
	case CM_REQ_SENT:
	case CM_REQ_RCVD:
	case CM_REJ_SENT:
		return drop(mad, "not connected");
	}
}

static void receive_drep(struct cm *cm, const struct cm_path *path, const struct cm_mad *mad)
{
	struct cm_conn *conn = find(cm, path, mad->drep.remote_id, mad->drep.local_id);

	if (!conn)
		return drop(mad, "unknown communication ID");
	if (conn->state == CM_DREQ_SENT)
		conn_disconnected(conn, 0);
	else
		duplicate(conn, "DREP");
}

static void receive_sidr_req(struct cm *cm, const struct cm_path *path, const struct cm_mad *mad)
{
	struct cm_mad rep = { .tid = mad->tid,
			      .attribute = CM_SIDR_REP,
			      .sidr_rep = { .request_id = mad->sidr_req.request_id,
					    .status = CM_SIDR_UNSUPPORTED_SERVICE,
					    .service_id = mad->sidr_req.service_id } };

	send_to(cm, path, &rep);
}

void cm_receive(struct cm *cm, const struct cm_path *path, const uint8_t data[CM_MAD_LEN],
		uint64_t now_ns)
{
	struct cm_mad mad;
	enum cm_mad_error error = cm_mad_decode(&mad, data);

	if (error) {
		counter_inc(CNT_DROP_MAD);
		log_debug("cm: dropped a MAD: %s", error == CM_MAD_BAD_VERSION	? "version or class"
						   : error == CM_MAD_BAD_METHOD ? "method"
										: "attribute");
		return;
	}
	cm->now_ns = now_ns;
	counter_inc(CNT_CM_RX);
	switch (mad.attribute) {
	case CM_REQ:
		return receive_req(cm, path, &mad, false);
	case CM_MRA:
		return receive_mra(cm, path, &mad);
	case CM_REJ:
		return receive_rej(cm, path, &mad);
	case CM_REP:
		return receive_rep(cm, path, &mad);
	case CM_RTU:
		return receive_rtu(cm, path, &mad);
	case CM_DREQ:
		return receive_dreq(cm, path, &mad);
	case CM_DREP:
		return receive_drep(cm, path, &mad);
	case CM_SIDR_REQ:
		return receive_sidr_req(cm, path, &mad);
	case CM_SIDR_REP:
		return drop(&mad, "no service ID resolution is waiting");
	}
}
