// SPDX-License-Identifier: BSD-2-Clause
/*
 * cm_conn.c: the life of a connection as its user and its timers drive it; what a peer's MADs do
 * to it is in cm_recv.c. Rules: IBTA 1.4, 12.9.7 (states) and 12.9.8 (communication IDs and
 * timewait); numbers as Linux has them where the specification leaves them open.
 */
#include "cm/cm_internal.h"

#include <errno.h>

#include "util/bytes.h"
#include "util/clock.h"
#include "util/counters.h"
#include "util/log.h"

/*
 * A host abandons an attempt after a few seconds (the Linux nvme host after 3), so the first
 * repetitions come long before the response timeout that the REQ promises; then they back off.
 */
#define FIRST_INTERVAL_NS (500 * NSEC_PER_MSEC)
#define RESPONSE_TIMEOUT  20 /* 4.3 s; what Linux sends */
#define MAX_CM_RETRIES	  15
/* a peer that died does not hold its resources here for a minute */
#define DREQ_RETRIES	 7
#define DREQ_INTERVAL_NS (2 * NSEC_PER_SEC)
/* timewait: the ACK timeout, within reason (a peer chose it): 8 ms .. 4.3 s */
#define TIMEWAIT_MIN_CODE 11
#define TIMEWAIT_MAX_CODE 20

uint64_t cm_timeout_ns(uint8_t code)
{
	return 4096ULL << (code & 31);
}

const char *cm_state_name(enum cm_state state)
{
	static const char *const names[] = { "IDLE",	    "REQ_SENT",	 "REP_RCVD",
					     "REQ_RCVD",    "REJ_SENT",	 "REP_SENT",
					     "ESTABLISHED", "DREQ_SENT", "TIMEWAIT" };

	return (unsigned int)state < ARRAY_SIZE(names) ? names[state] : "?";
}

/* ---- sending ---------------------------------------------------------------- */

static void conn_send_bytes(struct cm_conn *conn, const uint8_t *data)
{
	struct cm *cm = conn->cm;

	cm->ops->send(cm->arg, &conn->path, data);
}

void conn_send(struct cm_conn *conn, const struct cm_mad *mad)
{
	uint8_t data[CM_MAD_LEN];

	cm_mad_encode(data, mad);
	log_debug("cm: %08x %s: send %s", conn->local_id, cm_state_name(conn->state),
		  cm_attribute_name(mad->attribute));
	conn_send_bytes(conn, data);
}

void conn_resend(struct cm_conn *conn)
{
	counter_inc(CNT_CM_RETRY);
	conn_send_bytes(conn, conn->message);
}

void conn_send_reliably(struct cm_conn *conn, const struct cm_mad *mad)
{
	cm_mad_encode(conn->message, mad);
	log_debug("cm: %08x %s: send %s", conn->local_id, cm_state_name(conn->state),
		  cm_attribute_name(mad->attribute));
	conn_send_bytes(conn, conn->message);
	conn->repetitions = 0;
	conn->interval_ns = FIRST_INTERVAL_NS;
	conn_set_timer(conn, conn->cm->now_ns + conn->interval_ns);
}

void conn_send_rej(struct cm_conn *conn, uint8_t answers, uint16_t reason, const void *private_data,
		   uint8_t private_len)
{
	struct cm_mad mad = { .tid = conn->tid,
			      .attribute = CM_REJ,
			      .rej = { .local_id = conn->local_id,
				       .remote_id = conn->remote_id,
				       .answers = answers,
				       .reason = reason } };

	if (reason == CM_REJ_TIMEOUT) {
		/* lets the peer find the connection when it has not learned our ID */
		put_be64(mad.rej.ari, conn->local_guid);
		mad.rej.ari_len = 8;
	}
	if (private_len)
		memcpy(mad.rej.private_data, private_data, private_len);
	counter_inc(CNT_CM_REJ_TX);
	conn_send(conn, &mad);
	cm_mad_encode(conn->message, &mad);
}

void conn_send_drep(struct cm_conn *conn, uint64_t tid)
{
	struct cm_mad mad = { .tid = tid,
			      .attribute = CM_DREP,
			      .drep = { .local_id = conn->local_id,
					.remote_id = conn->remote_id } };

	conn_send(conn, &mad);
}

/* ---- states ------------------------------------------------------------------ */

void conn_event(struct cm_conn *conn, enum cm_event_type type, int status,
		const uint8_t *private_data, uint8_t private_len)
{
	struct cm_event event = { .type = type,
				  .status = status,
				  .private_data = private_data,
				  .private_len = private_len };

	if (conn->owner)
		conn->cm->ops->event(conn->cm->arg, conn, &event);
	else if (conn->state == CM_IDLE)
		conn_free(conn);
}

void conn_enter_idle(struct cm_conn *conn)
{
	conn->state = CM_IDLE;
	conn_stop_timer(conn);
	conn_unindex_remote(conn);
}

void conn_enter_timewait(struct cm_conn *conn)
{
	uint8_t code = MIN(MAX(conn->ack_timeout, TIMEWAIT_MIN_CODE), TIMEWAIT_MAX_CODE);

	conn->state = CM_TIMEWAIT;
	conn_set_timer(conn, conn->cm->now_ns + cm_timeout_ns(code));
}

void conn_disconnected(struct cm_conn *conn, int status)
{
	conn->was_connected = true;
	conn_enter_timewait(conn);
	conn_event(conn, CM_EVENT_DISCONNECTED, status, NULL, 0);
}

void conn_established(struct cm_conn *conn)
{
	conn_stop_timer(conn);
	conn->state = CM_ESTABLISHED;
	conn->was_connected = true;
	conn_event(conn, CM_EVENT_ESTABLISHED, 0, NULL, 0);
}

void conn_start_disconnect(struct cm_conn *conn)
{
	struct cm_mad mad = { .tid = (uint64_t)conn->cm->tid_high << 32 | conn->local_id,
			      .attribute = CM_DREQ,
			      .dreq = { .local_id = conn->local_id,
					.remote_id = conn->remote_id,
					.remote_qpn = conn->remote_qpn } };

	/* a DREQ is a transaction of its own */
	mad.tid ^= 1ULL << 63;
	conn->state = CM_DREQ_SENT;
	conn->max_cm_retries = MIN(conn->max_cm_retries, DREQ_RETRIES);
	conn->response_timeout_ns = MIN(conn->response_timeout_ns, DREQ_INTERVAL_NS);
	conn_send_reliably(conn, &mad);
}

/* one more repetition, if any is left */
static bool conn_repeat(struct cm_conn *conn)
{
	if (conn->repetitions >= conn->max_cm_retries)
		return false;
	conn->repetitions++;
	conn->interval_ns = MIN(conn->interval_ns * 2, conn->response_timeout_ns);
	conn_set_timer(conn, conn->cm->now_ns + conn->interval_ns);
	conn_resend(conn);
	return true;
}

void conn_timeout(struct cm_conn *conn)
{
	switch (conn->state) {
	case CM_REQ_SENT:
		if (conn_repeat(conn))
			return;
		conn_send_rej(conn, CM_ANSWERS_REQ, CM_REJ_TIMEOUT, NULL, 0);
		conn_enter_idle(conn);
		conn_event(conn, CM_EVENT_UNREACHABLE, -ETIMEDOUT, NULL, 0);
		return;
	case CM_REP_SENT:
		if (conn_repeat(conn))
			return;
		conn_send_rej(conn, CM_ANSWERS_REP, CM_REJ_TIMEOUT, NULL, 0);
		conn_enter_timewait(conn);
		conn_event(conn, CM_EVENT_UNREACHABLE, -ETIMEDOUT, NULL, 0);
		return;
	case CM_DREQ_SENT:
		if (conn_repeat(conn))
			return;
		conn_disconnected(conn, -ETIMEDOUT);
		return;
	case CM_TIMEWAIT:
		conn_enter_idle(conn);
		if (conn->was_connected || !conn->owner)
			conn_event(conn, CM_EVENT_TIMEWAIT_EXIT, 0, NULL, 0);
		return;
	case CM_REJ_SENT:
		conn_enter_idle(conn);
		if (!conn->owner)
			conn_free(conn);
		return;
	case CM_IDLE:
	case CM_REP_RCVD:
	case CM_REQ_RCVD:
	case CM_ESTABLISHED:
		return;
	}
}

/* ---- what the user asks for ---------------------------------------------------- */

static void fill_primary_path(struct cm_path_fields *fields, const struct cm_connect_param *param)
{
	/* RoCE has no LIDs: what Linux sends for a path that may be routed */
	fields->local_lid = 0xffff;
	fields->remote_lid = 0xffff;
	fields->local_gid = param->path.sgid;
	fields->remote_gid = param->path.dgid;
	fields->flow_label = param->flow_label & 0xfffff;
	fields->traffic_class = param->traffic_class;
	fields->hop_limit = param->hop_limit;
	fields->ack_timeout = param->ack_timeout & 31;
}

static void fill_req(struct cm_req *req, const struct cm_conn *conn,
		     const struct cm_connect_param *param)
{
	const struct cm_conn_param *p = &param->conn;

	req->local_id = conn->local_id;
	req->service_id = param->service_id;
	req->ca_guid = p->ca_guid;
	req->qpn = p->qpn;
	req->responder_resources = p->responder_resources;
	req->initiator_depth = p->initiator_depth;
	req->remote_response_timeout = RESPONSE_TIMEOUT;
	req->local_response_timeout = RESPONSE_TIMEOUT;
	req->transport = CM_TRANSPORT_RC;
	req->flow_control = p->flow_control;
	req->starting_psn = p->starting_psn;
	req->retry_count = MIN(p->retry_count, 7);
	req->rnr_retry_count = MIN(p->rnr_retry_count, 7);
	req->pkey = 0xffff;
	req->path_mtu = param->path_mtu;
	req->max_cm_retries = MAX_CM_RETRIES;
	req->srq = p->srq;
	fill_primary_path(&req->primary, param);
	cma_header_encode(req->private_data, &param->cma);
	if (p->private_len)
		memcpy(req->private_data + CMA_HEADER_LEN, p->private_data, p->private_len);
}

int cm_connect(struct cm *cm, struct cm_conn **result, void *owner,
	       const struct cm_connect_param *param, uint64_t now_ns)
{
	const struct cm_conn_param *p = &param->conn;
	struct cm_mad mad = { .attribute = CM_REQ };
	struct cm_conn *conn;

	if (p->private_len > CMA_REQ_PRIVATE_LEN)
		return -EINVAL;
	conn = conn_new(cm, &param->path);
	if (!conn)
		return -ENOMEM;
	cm->now_ns = now_ns;
	conn->owner = owner;
	conn->active = true;
	conn->tid = (uint64_t)cm->tid_high << 32 | conn->local_id;
	conn->service_id = param->service_id;
	conn->local_guid = p->ca_guid;
	conn->local_qpn = p->qpn;
	conn->local_psn = p->starting_psn;
	conn->responder_resources = p->responder_resources;
	conn->initiator_depth = p->initiator_depth;
	conn->retry_count = MIN(p->retry_count, 7);
	conn->path_mtu = param->path_mtu;
	conn->ack_timeout = param->ack_timeout & 31;
	conn->traffic_class = param->traffic_class;
	conn->hop_limit = param->hop_limit;
	conn->flow_label = param->flow_label & 0xfffff;
	conn->max_cm_retries = MAX_CM_RETRIES;
	conn->response_timeout_ns = cm_timeout_ns(RESPONSE_TIMEOUT);

	mad.tid = conn->tid;
	fill_req(&mad.req, conn, param);
	conn->state = CM_REQ_SENT;
	*result = conn;
	conn_send_reliably(conn, &mad);
	return 0;
}

int cm_conn_rtu(struct cm_conn *conn, const void *private_data, uint8_t private_len)
{
	struct cm_mad mad = { .tid = conn->tid,
			      .attribute = CM_RTU,
			      .rtu = { .local_id = conn->local_id, .remote_id = conn->remote_id } };

	if (conn->state != CM_REP_RCVD || private_len > CM_RTU_PRIVATE_LEN)
		return -EINVAL;
	if (private_len)
		memcpy(mad.rtu.private_data, private_data, private_len);
	conn->state = CM_ESTABLISHED;
	conn->was_connected = true;
	cm_mad_encode(conn->message, &mad); /* for duplicates of the REP */
	conn_send(conn, &mad);
	return 0;
}

int cm_conn_prepare_accept(struct cm_conn *conn, const struct cm_conn_param *param)
{
	if (conn->state != CM_REQ_RCVD || param->private_len > CM_REP_PRIVATE_LEN)
		return -EINVAL;
	conn->local_guid = param->ca_guid;
	conn->local_qpn = param->qpn;
	conn->local_psn = param->starting_psn;
	conn->responder_resources = param->responder_resources;
	/* never more READs than the peer offered to answer (it sent the offer in its REQ, which
	 * the connection was made with) */
	conn->initiator_depth = MIN(conn->initiator_depth, param->initiator_depth);
	return 0;
}

int cm_conn_accept(struct cm_conn *conn, const struct cm_conn_param *param, uint64_t now_ns)
{
	struct cm_mad mad = { .tid = conn->tid, .attribute = CM_REP };
	struct cm_rep *rep = &mad.rep;

	if (conn->state != CM_REQ_RCVD || param->private_len > CM_REP_PRIVATE_LEN)
		return -EINVAL;
	conn->cm->now_ns = now_ns;
	rep->local_id = conn->local_id;
	rep->remote_id = conn->remote_id;
	rep->qpn = conn->local_qpn;
	rep->starting_psn = conn->local_psn;
	rep->responder_resources = conn->responder_resources;
	rep->initiator_depth = conn->initiator_depth;
	rep->target_ack_delay = param->target_ack_delay;
	rep->failover = conn->alternate_path ? 1 : 0;
	rep->flow_control = param->flow_control;
	rep->rnr_retry_count = MIN(param->rnr_retry_count, 7);
	rep->srq = param->srq;
	rep->ca_guid = param->ca_guid;
	if (param->private_len)
		memcpy(rep->private_data, param->private_data, param->private_len);
	conn->state = CM_REP_SENT;
	conn_send_reliably(conn, &mad);
	return 0;
}

int cm_conn_comm_established(struct cm_conn *conn)
{
	if (conn->state != CM_REP_SENT)
		return -EINVAL;
	conn_established(conn);
	return 0;
}

int cm_conn_reject(struct cm_conn *conn, uint16_t reason, const void *private_data,
		   uint8_t private_len, uint64_t now_ns)
{
	if (private_len > CM_REJ_PRIVATE_LEN)
		return -EINVAL;
	conn->cm->now_ns = now_ns;
	switch (conn->state) {
	case CM_REQ_RCVD:
		conn_send_rej(conn, CM_ANSWERS_REQ, reason, private_data, private_len);
		conn_enter_timewait(conn);
		conn->state = CM_REJ_SENT;
		return 0;
	case CM_REP_RCVD:
	case CM_REP_SENT:
		conn_send_rej(conn, conn->active ? CM_ANSWERS_REP : CM_ANSWERS_OTHER, reason,
			      private_data, private_len);
		conn_enter_timewait(conn);
		return 0;
	default:
		return -EINVAL;
	}
}

int cm_conn_disconnect(struct cm_conn *conn, uint64_t now_ns)
{
	conn->cm->now_ns = now_ns;
	switch (conn->state) {
	case CM_REP_SENT:
	case CM_ESTABLISHED:
		conn->was_connected = true;
		conn_start_disconnect(conn);
		return 0;
	case CM_DREQ_SENT:
	case CM_TIMEWAIT:
		return 0;
	case CM_IDLE: /* after timewait */
		return conn->was_connected ? 0 : -EINVAL;
	default:
		return -EINVAL;
	}
}

void cm_conn_destroy(struct cm_conn *conn, uint64_t now_ns)
{
	conn->cm->now_ns = now_ns;
	conn->owner = NULL;
	switch (conn->state) {
	case CM_IDLE:
		conn_free(conn);
		return;
	case CM_REQ_SENT:
		/* nobody waits for a REP any more; the ID rests in case one is on its way */
		conn_send_rej(conn, CM_ANSWERS_REQ, CM_REJ_TIMEOUT, NULL, 0);
		conn_enter_timewait(conn);
		return;
	case CM_REQ_RCVD:
	case CM_REP_RCVD:
	case CM_REP_SENT:
		cm_conn_reject(conn, CM_REJ_CONSUMER, NULL, 0, now_ns);
		return;
	case CM_ESTABLISHED:
		conn_start_disconnect(conn);
		return;
	case CM_REJ_SENT:
	case CM_DREQ_SENT:
	case CM_TIMEWAIT:
		return;
	}
}

void cm_farewell(struct cm *cm)
{
	struct list_node *pos;

	for (int i = 0; i < CM_BUCKETS; i++) {
		list_for_each(pos, &cm->by_id[i]) {
			struct cm_conn *conn = list_entry(pos, struct cm_conn, id_node);

			if (conn->state == CM_REP_SENT || conn->state == CM_ESTABLISHED)
				conn_start_disconnect(conn);
			else if (conn->state == CM_REQ_RCVD || conn->state == CM_REP_RCVD)
				cm_conn_reject(conn, CM_REJ_CONSUMER, NULL, 0, cm->now_ns);
			else if (conn->state == CM_REQ_SENT)
				conn_send_rej(conn, CM_ANSWERS_REQ, CM_REJ_TIMEOUT, NULL, 0);
		}
	}
}
