// SPDX-License-Identifier: BSD-2-Clause
/*
 * queue.c: a queue pair of the host: CM connection, commands out, responses in.
 */
#include "initiator/internal.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/bytes.h"
#include "util/clock.h"

#define RECEIVE_BIT	      (1ULL << 63)
#define CONSUMER_REJECT	      28
#define KEYED_BYTES_MAX	      0xffffffU
#define CHECK_PERIOD_NS	      (10 * NSEC_PER_MSEC)
#define SPIN_NS		      (1000 * NSEC_PER_USEC)
#define DISCONNECT_TIMEOUT_NS (2 * NSEC_PER_SEC)

void queue_fail(struct queue *queue)
{
	for (unsigned int i = 0; i < queue->slot_count; i++) {
		struct slot *slot = &queue->slots[i];

		if (!slot->used || !slot->answering)
			continue;
		slot->answering = false;
		queue->in_flight--;
		slot->done(slot->arg, INITIATOR_LOST, NULL);
	}
}

void host_fail(struct initiator *host, const char *fmt, ...)
{
	va_list ap;

	if (host->failed)
		return;
	host->failed = true;
	va_start(ap, fmt);
	vsnprintf(host->error, sizeof(host->error), fmt, ap);
	va_end(ap);
	for (unsigned int i = 0; i < host->queue_count; i++)
		if (host->queues[i])
			queue_fail(host->queues[i]);
}

/* ---- CM ---- */

static const char *reject_text(int status)
{
	switch (status) {
	case NVMF_RDMA_REJECT_LENGTH:
		return "private data length";
	case NVMF_RDMA_REJECT_RECFMT:
		return "private data format";
	case NVMF_RDMA_REJECT_QID:
		return "queue id";
	case NVMF_RDMA_REJECT_HSQSIZE:
		return "the target's queues are smaller: use a smaller depth";
	case NVMF_RDMA_REJECT_HRQSIZE:
		return "receive queue size";
	case NVMF_RDMA_REJECT_RESOURCES:
		return "the target has no resources left";
	default:
		return "see NVMe/RDMA transport 1.0, reject status";
	}
}

static void event_failed(struct queue *queue, const struct rdma_cm_event *event)
{
	struct initiator *host = queue->host;
	struct nvmf_rdma_reject reject;

	switch (event->event) {
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_ERROR:
		host_fail(host, "no device reaches that address (see 'softhca devices')");
		break;
	case RDMA_CM_EVENT_REJECTED:
		if (event->status == CONSUMER_REJECT &&
		    event->param.conn.private_data_len >= sizeof(reject)) {
			memcpy(&reject, event->param.conn.private_data, sizeof(reject));
			host_fail(host, "the target refuses queue %u: status %u (%s)", queue->index,
				  le16toh(reject.status), reject_text(le16toh(reject.status)));
		} else if (event->status == 8) {
			host_fail(host, "nobody listens there");
		} else {
			host_fail(host, "the connection was rejected, reason %d", event->status);
		}
		break;
	case RDMA_CM_EVENT_UNREACHABLE:
		host_fail(host, "the target does not answer");
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		host_fail(host, "queue %u was disconnected by the target", queue->index);
		break;
	default:
		host_fail(host, "%s on queue %u, status %d", rdma_event_str(event->event),
			  queue->index, event->status);
	}
}

static void handle_event(struct queue *queue, const struct rdma_cm_event *event)
{
	switch (event->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
	case RDMA_CM_EVENT_ESTABLISHED:
		queue->established = true;
		return;
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
	case RDMA_CM_EVENT_ADDR_CHANGE:
		return;
	case RDMA_CM_EVENT_DISCONNECTED:
		queue->disconnected = true;
		if (queue->closing)
			return;
		break;
	default:
		break;
	}
	event_failed(queue, event);
}

void host_cm_events(struct initiator *host)
{
	struct rdma_cm_event *event;

	while (!rdma_get_cm_event(host->channel, &event)) {
		handle_event(event->id->context, event);
		rdma_ack_cm_event(event);
	}
}

/* for the next step of connecting; false: failed */
static bool wait_step(struct queue *queue, const char *step)
{
	struct initiator *host = queue->host;
	uint64_t deadline = clock_ns() + host->timeout_ms * NSEC_PER_MSEC;
	struct pollfd fd = { .fd = host->channel->fd, .events = POLLIN };

	while (!host->failed && !queue->established) {
		uint64_t now = clock_ns();

		if (now >= deadline) {
			host_fail(host, "%s took more than %u ms", step, host->timeout_ms);
			break;
		}
		poll(&fd, 1, (int)MIN((deadline - now) / NSEC_PER_MSEC + 1, 100));
		host_cm_events(host);
	}
	queue->established = false;
	return !host->failed;
}

/* what all queues share, made once a device is known */
static bool create_shared(struct initiator *host, struct ibv_context *verbs)
{
	int entries = (int)(5 * (host->wanted_queues * host->depth + ADMIN_DEPTH) +
			    host->wanted_queues + 1);

	if (host->pd)
		return true;
	host->pd = ibv_alloc_pd(verbs);
	host->comp_channel = ibv_create_comp_channel(verbs);
	host->cq = ibv_create_cq(verbs, entries, NULL, host->comp_channel, 0);
	host->bounce_memory = aligned_alloc(4096, BOUNCE_BYTES);
	if (!host->pd || !host->cq || !host->bounce_memory)
		return false;
	host->bounce.mr = ibv_reg_mr(host->pd, host->bounce_memory, BOUNCE_BYTES,
				     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
					     IBV_ACCESS_REMOTE_WRITE);
	return host->bounce.mr;
}

static int post_receive(struct queue *queue, uint32_t index)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)&queue->responses[index],
		.length = sizeof(struct nvme_cqe),
		.lkey = queue->response_mr->lkey,
	};
	struct ibv_recv_wr wr = {
		.wr_id = RECEIVE_BIT | (uint64_t)queue->index << 32 | index,
		.sg_list = &sge,
		.num_sge = 1,
	};
	struct ibv_recv_wr *bad;

	return ibv_post_recv(queue->id->qp, &wr, &bad);
}

static bool create_qp(struct queue *queue)
{
	struct initiator *host = queue->host;
	struct ibv_qp_init_attr attr = {
		.send_cq = host->cq,
		.recv_cq = host->cq,
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = queue->slot_count,
			 .max_recv_wr = queue->depth + 1,
			 .max_send_sge = 2,
			 .max_recv_sge = 1 },
	};

	queue->slots = calloc(queue->slot_count, sizeof(*queue->slots));
	queue->free_slots = calloc(queue->slot_count, sizeof(*queue->free_slots));
	queue->capsules = calloc(queue->slot_count, sizeof(*queue->capsules));
	queue->responses = calloc(queue->depth + 1, sizeof(*queue->responses));
	if (!queue->slots || !queue->free_slots || !queue->capsules || !queue->responses)
		return false;
	for (unsigned int i = 0; i < queue->slot_count; i++)
		queue->free_slots[queue->free_count++] = queue->slot_count - 1 - i;
	queue->capsule_mr = ibv_reg_mr(host->pd, queue->capsules,
				       queue->slot_count * sizeof(*queue->capsules), 0);
	queue->response_mr = ibv_reg_mr(host->pd, queue->responses,
					(queue->depth + 1) * sizeof(*queue->responses),
					IBV_ACCESS_LOCAL_WRITE);
	if (!queue->capsule_mr || !queue->response_mr || rdma_create_qp(queue->id, host->pd, &attr))
		return false;
	for (unsigned int i = 0; i <= queue->depth; i++) {
		errno = post_receive(queue, i);
		if (errno)
			return false;
	}
	return true;
}

static bool connect_qp(struct queue *queue)
{
	struct nvmf_rdma_request request = {
		.qid = htole16(queue->index),
		.hrqsize = htole16((uint16_t)(queue->depth + 1)),
		.hsqsize = htole16((uint16_t)queue->depth),
	};
	struct rdma_conn_param param = {
		.private_data = &request,
		.private_data_len = sizeof(request),
		.flow_control = 1,
		.retry_count = 7,
		.rnr_retry_count = 7,
	};
	struct ibv_device_attr attr;

	if (ibv_query_device(queue->id->verbs, &attr))
		return false;
	param.responder_resources = (uint8_t)MIN(attr.max_qp_rd_atom, 255);
	return !rdma_connect(queue->id, &param);
}

struct queue *queue_open(struct initiator *host, uint16_t index, unsigned int depth)
{
	struct queue *queue = calloc(1, sizeof(*queue));
	const char *what = "memory";

	if (!queue)
		goto out_error;
	queue->host = host;
	queue->index = index;
	queue->depth = depth;
	/* responses may be here before the acknowledgements of their commands' SENDs */
	queue->slot_count = 4 * depth;
	what = "RDMA CM id";
	if (rdma_create_id(host->channel, &queue->id, queue, RDMA_PS_TCP))
		goto out_error;
	what = "address";
	if (rdma_resolve_addr(queue->id, NULL, (struct sockaddr *)&host->addr,
			      (int)host->timeout_ms))
		goto out_error;
	if (!wait_step(queue, "resolving the address"))
		goto out_free;
	what = "route";
	if (rdma_resolve_route(queue->id, (int)host->timeout_ms))
		goto out_error;
	if (!wait_step(queue, "resolving the route"))
		goto out_free;
	what = "queue pair";
	if (!create_shared(host, queue->id->verbs) || !create_qp(queue))
		goto out_error;
	what = "connection";
	if (!connect_qp(queue))
		goto out_error;
	if (!wait_step(queue, "connecting"))
		goto out_free;
	return queue;

out_error:
	host_fail(host, "no %s for queue %u: %s", what, index, strerror(errno));
out_free:
	queue_free(queue);
	return NULL;
}

void queue_disconnect(struct queue *queue)
{
	uint64_t deadline = clock_ns() + DISCONNECT_TIMEOUT_NS;
	struct initiator *host = queue->host;
	struct pollfd fd = { .fd = host->channel->fd, .events = POLLIN };

	queue->closing = true;
	if (queue->disconnected || rdma_disconnect(queue->id))
		return;
	while (!queue->disconnected && clock_ns() < deadline) {
		poll(&fd, 1, 100);
		host_cm_events(host);
	}
}

void queue_free(struct queue *queue)
{
	if (!queue)
		return;
	if (queue->id && queue->id->qp)
		rdma_destroy_qp(queue->id);
	if (queue->id)
		rdma_destroy_id(queue->id);
	if (queue->capsule_mr)
		ibv_dereg_mr(queue->capsule_mr);
	if (queue->response_mr)
		ibv_dereg_mr(queue->response_mr);
	free(queue->slots);
	free(queue->free_slots);
	free(queue->capsules);
	free(queue->responses);
	free(queue);
}

/* ---- commands ---- */

static void put_keyed_sgl(uint8_t *sgl, uint64_t addr, size_t len, uint32_t rkey)
{
	put_le64(sgl, addr);
	put_le32(sgl + 8, (uint32_t)len); /* 24 bits; the key's first byte overwrites the rest */
	put_le32(sgl + 11, rkey);
	sgl[15] = NVME_SGL_KEYED;
}

int initiator_submit(struct initiator *host, unsigned int index, const struct nvme_sqe *sqe,
		     struct initiator_buffer *buffer, size_t offset, size_t len, bool to_controller,
		     initiator_done *done, void *arg)
{
	struct queue *queue = index < host->queue_count ? host->queues[index] : NULL;
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED };
	struct ibv_send_wr *bad;
	struct ibv_sge sge[2];
	struct nvme_sqe *capsule;
	unsigned int i;
	int err;

	if (host->failed || !queue)
		return -ENOTCONN;
	if (queue->in_flight == queue->depth || !queue->free_count)
		return -EAGAIN;
	if (buffer && (len > KEYED_BYTES_MAX || !range_inside(offset, len, 0, buffer->mr->length)))
		return -EINVAL;
	i = queue->free_slots[--queue->free_count];
	capsule = &queue->capsules[i];
	*capsule = *sqe;
	capsule->flags = NVME_SQE_PSDT_SGL;
	capsule->cid = htole16((uint16_t)i);
	memset(capsule->sgl, 0, sizeof(capsule->sgl));
	capsule->sgl[15] = NVME_SGL_KEYED; /* no data: a zero descriptor */
	sge[0] = (struct ibv_sge){ (uintptr_t)capsule, sizeof(*capsule), queue->capsule_mr->lkey };
	wr.wr_id = (uint64_t)index << 32 | i;
	wr.sg_list = sge;
	wr.num_sge = 1;
	if (buffer && len) {
		uint64_t addr = (uintptr_t)buffer->mr->addr + offset;

		if (to_controller && index && !host->no_in_capsule &&
		    len <= host->info.in_capsule_bytes) {
			put_le32(capsule->sgl + 8, (uint32_t)len);
			capsule->sgl[15] = NVME_SGL_OFFSET;
			sge[1] = (struct ibv_sge){ addr, (uint32_t)len, buffer->mr->lkey };
			wr.num_sge = 2;
		} else {
			put_keyed_sgl(capsule->sgl, addr, len, buffer->mr->rkey);
		}
	}
	queue->slots[i] = (struct slot){
		.used = true,
		.sending = true,
		.answering = true,
		.opcode = sqe->opcode,
		.deadline_ns = clock_ns() + host->timeout_ms * NSEC_PER_MSEC,
		.done = done,
		.arg = arg,
	};
	queue->in_flight++;
	err = ibv_post_send(queue->id->qp, &wr, &bad);
	if (!err)
		return 0;
	queue->in_flight--;
	queue->slots[i].used = false;
	queue->free_slots[queue->free_count++] = i;
	host_fail(host, "post to queue %u: %s", index, strerror(err));
	return -ENOTCONN;
}

static void free_slot_when_done(struct queue *queue, unsigned int i)
{
	struct slot *slot = &queue->slots[i];

	if (slot->sending || slot->answering)
		return;
	slot->used = false;
	queue->free_slots[queue->free_count++] = i;
}

static void response(struct queue *queue, uint32_t index, uint32_t bytes)
{
	struct nvme_cqe cqe = queue->responses[index];
	uint16_t cid = le16toh(cqe.cid);
	struct slot *slot;

	if (bytes != sizeof(cqe) || cid >= queue->slot_count || !queue->slots[cid].used ||
	    !queue->slots[cid].answering) {
		host_fail(queue->host, "queue %u: a response that fits no command", queue->index);
		return;
	}
	if (post_receive(queue, index)) {
		host_fail(queue->host, "queue %u: cannot post a receive", queue->index);
		return;
	}
	slot = &queue->slots[cid];
	slot->answering = false;
	queue->in_flight--;
	slot->done(slot->arg, NVME_STATUS_FROM_FIELD(le16toh(cqe.status)), &cqe);
	free_slot_when_done(queue, cid);
}

static void completion(struct initiator *host, const struct ibv_wc *wc)
{
	unsigned int index = (wc->wr_id & ~RECEIVE_BIT) >> 32;
	struct queue *queue = index < host->queue_count ? host->queues[index] : NULL;

	if (!queue || host->failed || queue->closing)
		return;
	if (wc->status != IBV_WC_SUCCESS) {
		host_fail(host, "queue %u: %s", index, ibv_wc_status_str(wc->status));
	} else if (wc->wr_id & RECEIVE_BIT) {
		response(queue, (uint32_t)wc->wr_id, wc->byte_len);
	} else {
		queue->slots[(uint32_t)wc->wr_id].sending = false;
		free_slot_when_done(queue, (uint32_t)wc->wr_id);
	}
}

bool host_poll_cq(struct initiator *host)
{
	struct ibv_wc wc[32];
	int n = ibv_poll_cq(host->cq, 32, wc);

	for (int i = 0; i < n; i++)
		completion(host, &wc[i]);
	return n > 0;
}

static void check_timeouts(struct initiator *host, uint64_t now)
{
	for (unsigned int i = 0; i < host->queue_count && !host->failed; i++) {
		struct queue *queue = host->queues[i];

		for (unsigned int j = 0; queue && j < queue->slot_count; j++) {
			struct slot *slot = &queue->slots[j];

			if (!slot->used || !slot->answering || now < slot->deadline_ns ||
			    (!i && slot->opcode == NVME_ADMIN_AER))
				continue;
			host_fail(host, "command 0x%02x on queue %u got no answer in %u ms",
				  slot->opcode, i, host->timeout_ms);
			return;
		}
	}
}

static void keep_alive_done(void *arg, uint16_t status, const struct nvme_cqe *cqe)
{
	struct initiator *host = arg;

	host->keep_alive_pending = false;
}

static void keep_alive(struct initiator *host, uint64_t now)
{
	static const struct nvme_sqe sqe = { .opcode = NVME_ADMIN_KEEP_ALIVE };

	if (!host->kato_ms || !host->enabled || now < host->next_keep_alive_ns ||
	    host->keep_alive_pending)
		return;
	host->next_keep_alive_ns = now + host->kato_ms * NSEC_PER_MSEC / 2;
	host->keep_alive_pending =
		!initiator_submit(host, 0, &sqe, NULL, 0, 0, false, keep_alive_done, host);
}

/* what is not looked at for every completion */
static void periodic(struct initiator *host, uint64_t now)
{
	if (now < host->next_check_ns)
		return;
	host->next_check_ns = now + CHECK_PERIOD_NS;
	host_cm_events(host);
	check_timeouts(host, now);
	keep_alive(host, now);
}

static void wait_for_completion(struct initiator *host, int timeout_ms)
{
	struct pollfd fds[2] = {
		{ .fd = host->comp_channel->fd, .events = POLLIN },
		{ .fd = host->channel->fd, .events = POLLIN },
	};
	struct ibv_cq *cq;
	void *arg;

	ibv_req_notify_cq(host->cq, 0);
	if (host_poll_cq(host))
		return;
	/* Keep Alive and time limits go on while waiting */
	if (poll(fds, 2, MIN(timeout_ms, 100)) <= 0)
		return;
	if (fds[0].revents && !ibv_get_cq_event(host->comp_channel, &cq, &arg))
		ibv_ack_cq_events(cq, 1);
	if (fds[1].revents)
		host_cm_events(host);
}

bool initiator_poll(struct initiator *host, int timeout_ms)
{
	uint64_t start = clock_ns(), now = start;

	periodic(host, now);
	while (!host->failed && !host_poll_cq(host)) {
		now = clock_ns();
		periodic(host, now);
		if (now - start >= (uint64_t)timeout_ms * NSEC_PER_MSEC)
			break;
		if (now - start >= SPIN_NS)
			wait_for_completion(host, timeout_ms);
	}
	return !host->failed;
}
