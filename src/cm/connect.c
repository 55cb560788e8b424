// SPDX-License-Identifier: BSD-2-Clause
/*
 * connect.c: between the API's connect, accept, listen ... and the protocol in cm_conn.c: the
 * application's calls go down, requests and events come up.
 */
#include "cm/id.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "hca/context.h"
#include "util/bytes.h"
#include "util/clock.h"
#include "util/log.h"
#include "verbs/device.h"

#define MAX_BACKLOG	  1024
#define DEFAULT_RETRIES	  7
#define DEFAULT_HOP_LIMIT 64
#define PSN_MASK	  0xffffffU

static struct list_node listeners = { &listeners, &listeners };

void connect_after_fork(void)
{
	while (list_pop(&listeners))
		;
}

/* ---- up: requests ------------------------------------------------------------------------ */

static bool listens_at(const struct cm_id *id, uint64_t service_id, const union ibv_gid *gid)
{
	static const union ibv_gid any_ipv6;
	static const union ibv_gid any_ipv4 = { .raw = { [10] = 0xff, [11] = 0xff } };

	if (id->registered_service != service_id)
		return false;
	if (gid_equal(&id->registered_gid, &any_ipv4))
		return gid_is_ipv4(gid);
	if (gid_equal(&id->registered_gid, &any_ipv6))
		return !id->v6only || !gid_is_ipv4(gid);
	return gid_equal(&id->registered_gid, gid);
}

static struct cm_id *find_listener(uint64_t service_id, const union ibv_gid *gid)
{
	struct list_node *pos;

	list_for_each(pos, &listeners) {
		struct cm_id *id = list_entry(pos, struct cm_id, listen_node);

		if (listens_at(id, service_id, gid))
			return id;
	}
	return NULL;
}

static void *lookup(void *arg, const struct cm_req *req, const struct cma_header *cma,
		    const struct cm_path *path, struct cm_refusal *refusal)
{
	struct cm_id *listener = find_listener(req->service_id, &path->sgid);
	struct ibv_device *device = device_by_gid(&path->sgid, path->ifindex);
	uint8_t mtu;

	if (!listener) {
		if (!service_is_held(req->service_id, &path->sgid))
			refusal->reason = CM_REJ_INVALID_SERVICE_ID;
		return NULL;
	}
	if (!device || !gid_equal(&cma->dst, &path->sgid)) {
		refusal->reason = CM_REJ_INVALID_GID;
		memcpy(refusal->ari, path->sgid.raw, 16);
		refusal->ari_len = 16;
		return NULL;
	}
	mtu = (uint8_t)device_active_mtu(device);
	if (req->path_mtu > mtu) {
		refusal->reason = CM_REJ_INVALID_MTU;
		refusal->ari[0] = mtu;
		refusal->ari_len = 1;
		return NULL;
	}
	if (listener->pending >= listener->backlog) {
		refusal->reason = CM_REJ_CONSUMER;
		return NULL;
	}
	return listener;
}

static int fill_request(struct cm_id *id, const struct cm_conn *conn, const struct cma_header *cma)
{
	struct rdma_addr *addr = &id->id.route.addr;
	uint32_t ifindex = conn->path.ifindex;
	int err = id_attach_device(id, &conn->path.sgid, ifindex);

	if (err)
		return err;
	sockaddr_from_gid(&addr->src_storage, &cma->dst, conn->service_id & 0xffff, ifindex);
	sockaddr_from_gid(&addr->dst_storage, &cma->src, cma->source_port, ifindex);
	addr->addr.ibaddr.dgid = conn->path.dgid;
	id->tos = conn->traffic_class;
	return id_fill_route(id);
}

static uint16_t request(void *arg, void *listener_arg, struct cm_conn *conn,
			const struct cm_req *req, const struct cma_header *cma)
{
	struct cm_id *listener = listener_arg;
	struct cm_id *id = id_new(listener->id.channel, listener->id.context, listener->id.ps,
				  listener->id.qp_type);
	int err;

	if (!id)
		return CM_REJ_NO_RESOURCES;
	err = fill_request(id, conn, cma);
	if (err)
		goto out_free;
	conn->local_psn = cm_random() & PSN_MASK;
	conn->responder_resources = (uint8_t)MIN(conn->responder_resources, HCA_MAX_RD_ATOMIC);
	conn->initiator_depth = (uint8_t)MIN(conn->initiator_depth, HCA_MAX_RD_ATOMIC);
	err = event_post(id, listener, RDMA_CM_EVENT_CONNECT_REQUEST, 0, conn,
			 req->private_data + CMA_HEADER_LEN, CMA_REQ_PRIVATE_LEN);
	if (err)
		goto out_free;
	conn->owner = id;
	id->conn = conn;
	id->state = ID_CONNECT;
	id->listener = listener;
	listener->pending++;
	list_add_tail(cm_ids(), &id->node);
	return 0;

out_free:
	log_debug("cm: cannot take a request: %s", strerror(err < 0 ? -err : err));
	id_free(id);
	return CM_REJ_NO_RESOURCES;
}

/* ---- up: events ----------------------------------------------------------------------------- */

static void accepted(struct cm_id *id, const struct cm_event *event)
{
	struct cm_conn *conn = id->conn;
	int err;

	if (!id->id.qp) {
		/* the application makes its own QP ready and then calls rdma_establish() */
		id->establish_pending = true;
		event_post(id, NULL, RDMA_CM_EVENT_CONNECT_RESPONSE, 0, conn, event->private_data,
			   event->private_len);
		return;
	}
	err = id_qp_ready(id);
	if (err) {
		cm_conn_reject(conn, CM_REJ_CONSUMER, NULL, 0, clock_ns());
		id_qp_error(id);
		event_post(id, NULL, RDMA_CM_EVENT_CONNECT_ERROR, -err, NULL, NULL, 0);
		return;
	}
	cm_conn_rtu(conn, NULL, 0);
	event_post(id, NULL, RDMA_CM_EVENT_ESTABLISHED, 0, conn, event->private_data,
		   event->private_len);
}

static void rejected(struct cm_id *id, const struct cm_event *event)
{
	if (id->listener) {
		/* withdrawn before the application saw it */
		event_purge(id);
		id_free(id);
		return;
	}
	id_qp_error(id);
	event_post(id, NULL, RDMA_CM_EVENT_REJECTED, event->status, NULL, event->private_data,
		   event->private_len);
}

static void on_event(void *arg, struct cm_conn *conn, const struct cm_event *event)
{
	struct cm_id *id = conn->owner;

	switch (event->type) {
	case CM_EVENT_REP:
		accepted(id, event);
		return;
	case CM_EVENT_ESTABLISHED:
		event_post(id, NULL, RDMA_CM_EVENT_ESTABLISHED, 0, NULL, NULL, 0);
		return;
	case CM_EVENT_REJECTED:
		rejected(id, event);
		return;
	case CM_EVENT_UNREACHABLE:
		id_qp_error(id);
		event_post(id, NULL, RDMA_CM_EVENT_UNREACHABLE, event->status, NULL, NULL, 0);
		return;
	case CM_EVENT_DISCONNECTED:
		id_qp_error(id);
		event_post(id, NULL, RDMA_CM_EVENT_DISCONNECTED, event->status, NULL, NULL, 0);
		return;
	case CM_EVENT_TIMEWAIT_EXIT:
		event_post(id, NULL, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0, NULL, NULL, 0);
		return;
	}
}

const struct cm_ops cm_rdma_ops = {
	.send = cm_send_mad,
	.lookup = lookup,
	.request = request,
	.event = on_event,
};

/* ---- down: parameters --------------------------------------------------------------------------
 */

/* a number of READs: what was asked for, or @most for "as many as possible"; -1: too many */
static int read_depth(uint8_t asked, uint8_t most)
{
	if (asked == RDMA_MAX_RESP_RES)
		return most;
	return asked <= HCA_MAX_RD_ATOMIC ? asked : -1;
}

/* @param may be NULL. @max_resources, @max_depth: what "maximum" means. Return: 0 or errno */
static int fill_conn_param(struct cm_conn_param *out, const struct cm_id *id,
			   const struct rdma_conn_param *param, uint8_t max_resources,
			   uint8_t max_depth)
{
	static const struct rdma_conn_param defaults = {
		.responder_resources = RDMA_MAX_RESP_RES,
		.initiator_depth = RDMA_MAX_INIT_DEPTH,
		.flow_control = 1,
		.retry_count = DEFAULT_RETRIES,
		.rnr_retry_count = DEFAULT_RETRIES,
	};
	int resources, depth;

	if (!param)
		param = &defaults;
	if (param->private_data_len && !param->private_data)
		return EINVAL;
	resources = read_depth(param->responder_resources, max_resources);
	depth = read_depth(param->initiator_depth, max_depth);
	if (resources < 0 || depth < 0)
		return EINVAL;
	memset(out, 0, sizeof(*out));
	out->ca_guid = be64toh(device_guid(id->device));
	out->responder_resources = (uint8_t)resources;
	out->initiator_depth = (uint8_t)depth;
	out->flow_control = param->flow_control != 0;
	out->retry_count = MIN(param->retry_count, 7);
	out->rnr_retry_count = MIN(param->rnr_retry_count, 7);
	out->target_ack_delay = HCA_LOCAL_ACK_DELAY;
	out->private_data = param->private_data;
	out->private_len = param->private_data_len;
	if (id->id.qp) {
		out->qpn = id->id.qp->qp_num;
		out->srq = id->id.qp->srq != NULL;
	} else {
		out->qpn = param->qp_num & 0xffffff;
		out->srq = param->srq != 0;
	}
	return 0;
}

/* ---- down: active side --------------------------------------------------------------------------
 */

static int fill_connect_param(struct cm_connect_param *p, const struct cm_id *id,
			      const struct rdma_conn_param *param)
{
	const struct rdma_addr *addr = &id->id.route.addr;
	const struct ibv_sa_path_rec *route = id->id.route.path_rec;
	int err = fill_conn_param(&p->conn, id, param, HCA_MAX_RD_ATOMIC, HCA_MAX_RD_ATOMIC);

	if (err)
		return err;
	p->conn.starting_psn = cm_random() & PSN_MASK;
	p->path.sgid = addr->addr.ibaddr.sgid;
	p->path.dgid = addr->addr.ibaddr.dgid;
	p->path.ifindex = device_ifindex(id->device);
	p->cma.ip_version = gid_is_ipv4(&p->path.dgid) ? 4 : 6;
	p->cma.source_port = sockaddr_port(&addr->src_addr);
	p->cma.src = p->path.sgid;
	p->cma.dst = p->path.dgid;
	p->service_id = cma_service_id((uint16_t)id->id.ps, sockaddr_port(&addr->dst_addr));
	p->path_mtu = route->mtu;
	p->ack_timeout = id->ack_timeout;
	p->traffic_class = id->tos;
	p->hop_limit = DEFAULT_HOP_LIMIT;
	p->flow_label = be32toh(route->flow_label);
	return 0;
}

int softhca_rdma_connect(struct rdma_cm_id *rdma_id, struct rdma_conn_param *param)
{
	struct cm_connect_param p = { 0 };
	struct cm_id *id;
	int err;

	if (!rdma_id)
		return cm_error(EINVAL);
	id = to_cm_id(rdma_id);
	if (rdma_id->ps == RDMA_PS_UDP)
		return cm_error(EOPNOTSUPP);
	if (id->state != ID_ROUTE_RESOLVED)
		return cm_error(EINVAL);
	err = fill_connect_param(&p, id, param);
	if (err)
		return cm_error(err);
	cm_lock();
	err = -cm_connect(cm_instance(), &id->conn, id, &p, clock_ns());
	if (!err)
		id->state = ID_CONNECT;
	cm_kick();
	cm_unlock();
	if (err)
		return cm_error(err);
	return event_complete(id);
}

int softhca_rdma_establish(struct rdma_cm_id *rdma_id)
{
	struct cm_id *id;
	int err = EINVAL;

	if (!rdma_id || rdma_id->qp)
		return cm_error(EINVAL);
	id = to_cm_id(rdma_id);
	cm_lock();
	if (id->establish_pending && id->conn)
		err = -cm_conn_rtu(id->conn, NULL, 0);
	if (!err)
		id->establish_pending = false;
	cm_unlock();
	return cm_error(err);
}

/* ---- down: passive side
 * --------------------------------------------------------------------------- */

int softhca_rdma_listen(struct rdma_cm_id *rdma_id, int backlog)
{
	struct sockaddr_in any = { .sin_family = AF_INET };
	struct cm_id *id;
	int err;

	if (!rdma_id)
		return cm_error(EINVAL);
	id = to_cm_id(rdma_id);
	if (rdma_id->ps == RDMA_PS_UDP)
		return cm_error(EOPNOTSUPP);
	if (id->state == ID_IDLE && softhca_rdma_bind_addr(rdma_id, (struct sockaddr *)&any))
		return -1;
	if (id->state != ID_BOUND)
		return cm_error(EINVAL);
	err = id_register(id);
	if (err)
		return cm_error(err);
	cm_lock();
	id->backlog = backlog > 0 && backlog < MAX_BACKLOG ? (unsigned int)backlog : MAX_BACKLOG;
	id->state = ID_LISTEN;
	list_add_tail(&listeners, &id->listen_node);
	cm_listening(cm_instance(), id->registered_service, clock_ns());
	cm_unlock();
	return 0;
}

static int accept_locked(struct cm_id *id, const struct rdma_conn_param *param)
{
	struct cm_conn *conn = id->conn;
	struct cm_conn_param p;
	int err;

	if (!conn || conn->state != CM_REQ_RCVD)
		return EINVAL;
	err = fill_conn_param(&p, id, param, conn->responder_resources, conn->initiator_depth);
	if (err)
		return err;
	p.starting_psn = conn->local_psn;
	err = -cm_conn_prepare_accept(conn, &p);
	if (err)
		return err;
	/* before the REP: the peer may send right after it has it */
	if (id->id.qp) {
		err = id_qp_ready(id);
		if (err)
			return err;
	}
	err = -cm_conn_accept(conn, &p, clock_ns());
	cm_kick();
	return err;
}

int softhca_rdma_accept(struct rdma_cm_id *rdma_id, struct rdma_conn_param *param)
{
	struct cm_id *id;
	int err;

	if (!rdma_id)
		return cm_error(EINVAL);
	id = to_cm_id(rdma_id);
	cm_lock();
	err = accept_locked(id, param);
	cm_unlock();
	if (err)
		return cm_error(err);
	return event_complete(id);
}

int softhca_rdma_reject(struct rdma_cm_id *rdma_id, const void *private_data,
			uint8_t private_data_len)
{
	struct cm_conn *conn;
	int err = EINVAL;

	if (!rdma_id || (private_data_len && !private_data))
		return cm_error(EINVAL);
	cm_lock();
	conn = to_cm_id(rdma_id)->conn;
	if (conn && conn->state == CM_IDLE && !conn->active)
		err = 0; /* the peer has withdrawn its request */
	else if (conn)
		err = -cm_conn_reject(conn, CM_REJ_CONSUMER, private_data, private_data_len,
				      clock_ns());
	cm_kick();
	cm_unlock();
	return cm_error(err);
}

/* ---- down: both sides
 * --------------------------------------------------------------------------------- */

int softhca_rdma_notify(struct rdma_cm_id *rdma_id, enum ibv_event_type event)
{
	struct cm_conn *conn;
	int err = 0;

	if (!rdma_id)
		return cm_error(EINVAL);
	cm_lock();
	conn = to_cm_id(rdma_id)->conn;
	if (event != IBV_EVENT_COMM_EST || !conn)
		err = EINVAL;
	else if (conn->state != CM_ESTABLISHED)
		err = -cm_conn_comm_established(conn);
	cm_unlock();
	return cm_error(err);
}

int softhca_rdma_disconnect(struct rdma_cm_id *rdma_id)
{
	struct cm_id *id;
	int err = EINVAL;

	if (!rdma_id)
		return cm_error(EINVAL);
	id = to_cm_id(rdma_id);
	cm_lock();
	/* the QP first: what it owes the peer (an acknowledgement) must not be overtaken by the
	 * DREQ */
	if (id->conn && (id->conn->state == CM_REP_SENT || id->conn->state == CM_ESTABLISHED))
		id_qp_error(id);
	if (id->conn)
		err = -cm_conn_disconnect(id->conn, clock_ns());
	if (!err)
		id_qp_error(id);
	cm_kick();
	cm_unlock();
	if (err)
		return cm_error(err);
	return event_complete(id);
}
