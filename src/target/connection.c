// SPDX-License-Identifier: BSD-2-Clause
/*
 * connection.c: a queue pair from the CM's request to its end (NVMe/RDMA transport 1.0, 2).
 */
#include "target/rdma.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "util/bytes.h"
#include "util/clock.h"
#include "util/log.h"

#define CONNECTIONS_MAX	      4096
#define CONNECT_TIMEOUT_NS    (30 * NSEC_PER_SEC) /* from the CM request to a good Connect */
#define STALL_TIMEOUT_NS      (10 * NSEC_PER_SEC) /* without an answer taken, when others wait */
#define FLUSH_TIMEOUT_NS      (2 * NSEC_PER_SEC)  /* for the QP's work requests after the end */
#define SEND_QUEUE_WRS(depth) (2U * (depth) + 2 * SGL_SEGMENTS_MAX)
/* A host may see a response and send its next command before the acknowledgement of the response
 * has come here: there are more requests than the queue has entries */
#define REQUESTS(depth) (4U * (depth))
#define INLINE_BYTES	16 /* a response capsule */

static const struct queue_ops connection_queue_ops;

static struct list_node *hash_bucket(struct transport *transport, uint32_t qp_num)
{
	return &transport->by_qp_num[qp_num % CONNECTION_HASH];
}

struct connection *connection_by_qp_num(struct transport *transport, uint32_t qp_num)
{
	struct list_node *bucket = hash_bucket(transport, qp_num), *pos;

	list_for_each(pos, bucket) {
		struct connection *conn = list_entry(pos, struct connection, hash);

		if (conn->qp_num == qp_num)
			return conn;
	}
	return NULL;
}

static void reject(struct transport *transport, struct rdma_cm_id *id, uint16_t status,
		   const char *why)
{
	struct nvmf_rdma_reject data = { .status = htole16(status) };

	log_debug("connection rejected with status %u: %s", status, why);
	transport->rejected++;
	rdma_reject(id, &data, sizeof(data));
	rdma_destroy_id(id);
}

/* the CM private data; the status to reject with, 0 = good */
static uint16_t check_request(const void *private_data, unsigned int len,
			      struct nvmf_rdma_request *request, const char **why)
{
	*why = "private data too short";
	if (!private_data || len < sizeof(*request))
		return NVMF_RDMA_REJECT_LENGTH;
	memcpy(request, private_data, sizeof(*request));
	*why = "unknown format of the private data";
	if (le16toh(request->recfmt))
		return NVMF_RDMA_REJECT_RECFMT;
	*why = "queue id too large";
	if (le16toh(request->qid) > TARGET_IO_QUEUES_MAX)
		return NVMF_RDMA_REJECT_QID;
	/* Linux sends entries - 1 here, SPDK entries */
	*why = "send queue larger than this target's queues, or empty";
	if (!request->hsqsize || le16toh(request->hsqsize) > TARGET_QUEUE_ENTRIES)
		return NVMF_RDMA_REJECT_HSQSIZE;
	*why = "receive queue smaller than the send queue";
	if (le16toh(request->hrqsize) < le16toh(request->hsqsize))
		return NVMF_RDMA_REJECT_HRQSIZE;
	return 0;
}

static bool same_host(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
	if (a->ss_family != b->ss_family)
		return false;
	if (a->ss_family == AF_INET)
		return ((const struct sockaddr_in *)a)->sin_addr.s_addr ==
		       ((const struct sockaddr_in *)b)->sin_addr.s_addr;
	return !memcmp(&((const struct sockaddr_in6 *)a)->sin6_addr,
		       &((const struct sockaddr_in6 *)b)->sin6_addr, sizeof(struct in6_addr));
}

/*
 * Which subsystem an I/O queue is going to belong to: the CM request does not say, but its host
 * connects I/O queues right after an admin queue. So: the youngest enabled controller of the same
 * host that was granted this queue and does not have it yet. A host that names its controller in
 * the private data (TP 8018) makes it easy.
 */
static struct subsystem *guess_subsystem(struct transport *transport,
					 const struct sockaddr_storage *peer, uint16_t qid,
					 uint16_t cntlid)
{
	struct controller *best = NULL;
	struct list_node *pos;

	list_for_each(pos, &transport->target.controllers) {
		struct controller *ctrl = list_entry(pos, struct controller, node);
		struct connection *admin;

		if (!ctrl->admin || !(ctrl->cc & NVME_CC_EN) || qid > ctrl->granted_queues ||
		    ctrl->io[qid])
			continue;
		admin = list_entry(ctrl->admin, struct connection, queue);
		if (!same_host(&admin->peer, peer))
			continue;
		if (cntlid && cntlid == ctrl->cntlid)
			return ctrl->subsystem;
		if (!best || ctrl->created_ns >= best->created_ns)
			best = ctrl;
	}
	return best ? best->subsystem : NULL;
}

static void address_text(const struct sockaddr *addr, char *text, size_t len)
{
	if (addr->sa_family == AF_INET6)
		inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)addr)->sin6_addr, text,
			  (socklen_t)len);
	else
		inet_ntop(AF_INET, &((const struct sockaddr_in *)addr)->sin_addr, text,
			  (socklen_t)len);
}

static void connection_free(struct connection *conn)
{
	if (conn->id && conn->id->qp)
		rdma_destroy_qp(conn->id);
	if (conn->id)
		rdma_destroy_id(conn->id);
	if (conn->ring)
		conn->ring->send_budget += conn->depth;
	list_del(&conn->hash);
	list_del(&conn->node);
	list_del(&conn->buffer_node);
	conn->transport->connection_count--;
	free(conn->requests);
	free(conn->capsules);
	free(conn);
}

/* the longest capsule: IOCCSZ */
static uint32_t capsule_bytes(const struct connection *conn)
{
	return TARGET_SQE_BYTES + conn->transport->target.in_capsule_bytes;
}

static bool create_requests(struct connection *conn)
{
	uint16_t count = REQUESTS(conn->depth);

	conn->requests = calloc(count, sizeof(*conn->requests));
	conn->capsules = malloc((size_t)count * capsule_bytes(conn));
	if (!conn->requests || !conn->capsules)
		return false;
	conn->request_count = count;
	for (uint16_t i = 0; i < count; i++) {
		struct request *request = &conn->requests[i];

		request->conn = conn;
		request->index = i;
		request->capsule = conn->capsules + (size_t)i * capsule_bytes(conn);
		request->cmd.queue = &conn->queue;
		list_init(&request->wait);
		list_init(&request->cmd.node);
		list_add_tail(&conn->free_requests, &request->node);
	}
	return true;
}

static bool create_qp(struct connection *conn)
{
	struct ibv_qp_init_attr attr = {
		.qp_context = conn,
		.send_cq = ibv_cq_ex_to_cq(conn->ring->cq),
		.recv_cq = ibv_cq_ex_to_cq(conn->ring->cq),
		.srq = conn->ring->srq,
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = SEND_QUEUE_WRS(conn->depth),
			 .max_send_sge = 1,
			 .max_inline_data = INLINE_BYTES },
	};

	if (rdma_create_qp(conn->id, conn->device->pd, &attr)) {
		log_warn("no queue pair for a host: %s", strerror(errno));
		return false;
	}
	conn->sq_free = SEND_QUEUE_WRS(conn->depth);
	conn->qp_num = conn->id->qp->qp_num;
	list_add(hash_bucket(conn->transport, conn->qp_num), &conn->hash);
	return true;
}

static struct connection *connection_create(struct transport *transport, struct rdma_cm_id *id,
					    const struct port *port,
					    const struct nvmf_rdma_request *request)
{
	struct connection *conn = calloc(1, sizeof(*conn));
	uint16_t qid = le16toh(request->qid);

	if (!conn)
		return NULL;
	conn->transport = transport;
	conn->created_ns = clock_ns();
	list_init(&conn->hash);
	list_init(&conn->free_requests);
	list_init(&conn->sq_waiters);
	list_init(&conn->buffer_waiters);
	list_init(&conn->buffer_node);
	list_add_tail(&transport->connections, &conn->node);
	transport->connection_count++;
	transport->next_serial = (transport->next_serial + 1) & INT32_MAX;
	conn->serial = transport->next_serial;
	conn->queue = (struct queue){
		.ops = &connection_queue_ops,
		.target = &transport->target,
		.port = port,
		.cm_qid = qid,
		.cm_entries = le16toh(request->hsqsize),
	};
	memcpy(&conn->peer, rdma_get_peer_addr(id),
	       rdma_get_peer_addr(id)->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
							     : sizeof(struct sockaddr_in));
	address_text(rdma_get_local_addr(id), conn->queue.local_address,
		     sizeof(conn->queue.local_address));
	conn->device = device_get(transport, id->verbs);
	if (!conn->device)
		goto out_free;
	if (qid)
		conn->offload =
			offload_find(conn->device, guess_subsystem(transport, &conn->peer, qid,
								   le16toh(request->cntlid)));
	conn->ring = conn->offload ? conn->offload->ring : conn->device->ring;
	conn->depth = (uint16_t)(le16toh(request->hsqsize) + 1);
	if (conn->ring->send_budget < conn->depth) {
		conn->ring = NULL;
		goto out_free;
	}
	conn->ring->send_budget -= conn->depth;
	conn->id = id;
	id->context = conn;
	if (!create_requests(conn) || !create_qp(conn)) {
		conn->id = NULL; /* the caller's */
		goto out_free;
	}
	return conn;

out_free:
	connection_free(conn);
	return NULL;
}

void connection_request(struct transport *transport, struct rdma_cm_id *id, const struct port *port,
			const void *private_data, unsigned int len, unsigned int initiator_depth)
{
	struct nvmf_rdma_accept accept = { 0 };
	struct rdma_conn_param param = {
		.private_data = &accept,
		.private_data_len = sizeof(accept),
		.rnr_retry_count = 7,
		.flow_control = 1,
	};
	struct nvmf_rdma_request request;
	struct connection *conn;
	const char *why;
	uint16_t status;

	status = check_request(private_data, len, &request, &why);
	/* data of writes come by RDMA READ: the host must take at least one at a time */
	if (!status && !initiator_depth) {
		status = NVMF_RDMA_REJECT_IRD;
		why = "the host offers no responder resources";
	}
	if (!status && (transport->stopping || transport->connection_count >= CONNECTIONS_MAX)) {
		status = NVMF_RDMA_REJECT_RESOURCES;
		why = "no more connections";
	}
	if (status) {
		reject(transport, id, status, why);
		return;
	}
	conn = connection_create(transport, id, port, &request);
	if (!conn) {
		reject(transport, id, NVMF_RDMA_REJECT_RESOURCES, "no resources");
		return;
	}
	accept.crqsize = htole16((uint16_t)(conn->depth - 1));
	param.initiator_depth =
		(uint8_t)MIN(initiator_depth, (unsigned int)conn->device->attr.max_qp_init_rd_atom);
	if (rdma_accept(id, &param)) {
		log_warn("a connection could not be accepted: %s", strerror(errno));
		connection_close(conn, "accept failed");
	}
}

void connection_established(struct connection *conn)
{
	if (conn->state == CONNECTION_ACCEPTED)
		conn->state = CONNECTION_LIVE;
}

void connection_close(struct connection *conn, const char *why)
{
	if (conn->state == CONNECTION_CLOSING)
		return;
	log_debug("queue %u of QP 0x%06x closed: %s", conn->queue.qid, conn->qp_num, why);
	conn->state = CONNECTION_CLOSING;
	conn->close_deadline_ns = clock_ns() + FLUSH_TIMEOUT_NS;
	conn->capsule.data = NULL;
	if (conn->id && conn->id->qp && rdma_disconnect(conn->id))
		log_debug("disconnect: %s", strerror(errno));
	queue_closed(&conn->queue);
	list_del(&conn->buffer_node);
	/* what waits for room or for an event gets neither */
	for (uint16_t i = 0; i < conn->request_count; i++) {
		struct request *request = &conn->requests[i];

		list_del(&request->wait);
		if (!request->wrs)
			request_release(request);
	}
}

/* it holds what others wait for, and its host takes no answers */
static bool stalls_others(const struct connection *conn, uint64_t now_ns)
{
	const struct device *device = conn->device;

	return conn->buffers && conn->signaled && !device->free_buffer_count &&
	       !list_empty(&device->buffer_queue) && now_ns > conn->progress_ns + STALL_TIMEOUT_NS;
}

void connections_reap(struct transport *transport, uint64_t now_ns)
{
	struct list_node *pos, *tmp;

	list_for_each_safe(pos, tmp, &transport->connections) {
		struct connection *conn = list_entry(pos, struct connection, node);

		if (conn->state != CONNECTION_CLOSING) {
			if (!conn->queue.connected &&
			    now_ns > conn->created_ns + CONNECT_TIMEOUT_NS)
				connection_close(conn, "no Connect command came");
			else if (stalls_others(conn, now_ns))
				connection_close(conn,
						 "its host takes no answers, and others wait");
			continue;
		}
		if (conn->signaled && now_ns < conn->close_deadline_ns)
			continue;
		/* the QP first: no buffer may be given on while it could still be written to */
		if (conn->id->qp)
			rdma_destroy_qp(conn->id);
		for (uint16_t i = 0; i < conn->request_count; i++)
			request_release(&conn->requests[i]);
		connection_free(conn);
	}
}

void connection_receive(struct connection *conn, const uint8_t *piece, uint32_t bytes, bool more)
{
	struct request *request;
	struct list_node *node;

	if (conn->state == CONNECTION_CLOSING)
		return;
	connection_established(conn); /* a message may overtake the CM's RTU */
	if (!capsule_open(&conn->capsule)) {
		node = list_pop(&conn->free_requests);
		if (!node) {
			connection_close(conn, "more commands than its queue has entries");
			return;
		}
		conn->filling = list_entry(node, struct request, node);
		conn->filling->state = REQUEST_FILLING;
		capsule_begin(&conn->capsule, conn->filling->capsule, capsule_bytes(conn));
	}
	request = conn->filling;
	switch (capsule_add(&conn->capsule, piece, bytes, more)) {
	case CAPSULE_MORE:
		return;
	case CAPSULE_BAD_LENGTH:
		connection_close(conn, "a capsule of a wrong length");
		return;
	case CAPSULE_COMPLETE:
		break;
	}
	conn->filling = NULL;
	conn->transport->capsules++;
	request->capsule_len = conn->capsule.len;
	request_start(request);
}

/* ---- what the model asks of a queue ---- */

static void queue_complete(struct queue *queue, struct command *cmd)
{
	request_held_done(list_entry(cmd, struct request, cmd));
}

static void queue_shutdown(struct queue *queue)
{
	connection_close(list_entry(queue, struct connection, queue),
			 "its controller is gone or disabled");
}

/* before the response to Connect: the host's next capsule may be an offloaded one */
static void queue_connected(struct queue *queue)
{
	struct connection *conn = list_entry(queue, struct connection, queue);
	int err;

	if (!queue->qid || !conn->offload)
		return;
	if (conn->offload->subsystem != queue->ctrl->subsystem) {
		log_info("queue %u of controller %u is served by software: its host has queues of"
			 " several subsystems on the way",
			 queue->qid, queue->ctrl->cntlid);
		return;
	}
	err = ibv_modify_qp_nvmf(conn->id->qp, IBV_QP_NVMF_ATTR_FLAG_ENABLE);
	if (err)
		log_warn("queue %u of controller %u is served by software: %s", queue->qid,
			 queue->ctrl->cntlid, strerror(err));
	conn->offload_enabled = !err;
}

static const struct queue_ops connection_queue_ops = {
	.complete = queue_complete,
	.shutdown = queue_shutdown,
	.connected = queue_connected,
};
