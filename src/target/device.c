// SPDX-License-Identifier: BSD-2-Clause
/*
 * device.c: what the target holds on one RDMA device.
 */
#include "target/rdma.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "util/log.h"

static bool create_data_buffers(struct device *device)
{
	device->data_memory = aligned_alloc(4096, (size_t)DATA_BUFFERS * TARGET_MAX_IO_BYTES);
	device->data_buffers = calloc(DATA_BUFFERS, sizeof(*device->data_buffers));
	if (!device->data_memory || !device->data_buffers)
		return false;
	device->data_mr = ibv_reg_mr(device->pd, device->data_memory,
				     (size_t)DATA_BUFFERS * TARGET_MAX_IO_BYTES,
				     IBV_ACCESS_LOCAL_WRITE);
	if (!device->data_mr)
		return false;
	for (int i = 0; i < DATA_BUFFERS; i++) {
		device->data_buffers[i].data =
			device->data_memory + (size_t)i * TARGET_MAX_IO_BYTES;
		list_add_tail(&device->free_buffers, &device->data_buffers[i].node);
	}
	device->free_buffer_count = DATA_BUFFERS;
	return true;
}

static void create_offloads(struct device *device)
{
	struct list_node *pos;

	list_for_each(pos, &device->transport->target.subsystems) {
		struct subsystem *s = list_entry(pos, struct subsystem, node);

		if (!offload_create(device, s))
			log_warn("%s is served by software on %s", s->nqn,
				 ibv_get_device_name(device->verbs->device));
	}
}

static struct device *device_create(struct transport *transport, struct ibv_context *verbs)
{
	struct device *device = calloc(1, sizeof(*device));
	const char *name = ibv_get_device_name(verbs->device);
	struct ibv_mp_wr_caps caps = { 0 };
	const char *what = "memory";
	int err;

	if (!device)
		return NULL;
	device->transport = transport;
	device->verbs = verbs;
	list_init(&device->free_buffers);
	list_init(&device->buffer_queue);
	list_init(&device->offloads);
	list_init(&device->node);
	err = ibv_query_mp_wr_caps(verbs, &caps);
	if (err || !caps.max_wr_buffer_sz) {
		log_error("%s has no multi-packet receives: it is not SoftHCA's"
			  " (see 'softhca devices')",
			  name);
		goto out_free;
	}
	what = "attributes";
	if (ibv_query_device(verbs, &device->attr))
		goto out_error;
	what = "protection domain";
	device->pd = ibv_alloc_pd(verbs);
	if (!device->pd)
		goto out_error;
	what = "data buffers";
	if (!create_data_buffers(device))
		goto out_error;
	what = "shared receive queue";
	device->ring = ring_create(device, NULL);
	if (!device->ring)
		goto out_error;
	fcntl(verbs->async_fd, F_SETFL, fcntl(verbs->async_fd, F_GETFL) | O_NONBLOCK);
	list_add_tail(&transport->devices, &device->node);
	if (transport->options.offload)
		create_offloads(device);
	return device;

out_error:
	log_error("%s: no %s: %s", name, what, strerror(errno));
out_free:
	device_free(device);
	return NULL;
}

struct device *device_get(struct transport *transport, struct ibv_context *verbs)
{
	struct list_node *pos;

	list_for_each(pos, &transport->devices) {
		struct device *device = list_entry(pos, struct device, node);

		if (device->verbs == verbs)
			return device;
	}
	return device_create(transport, verbs);
}

void device_free(struct device *device)
{
	struct list_node *node;

	while ((node = list_pop(&device->offloads)))
		offload_free(list_entry(node, struct offload, node));
	ring_free(device->ring);
	if (device->data_mr)
		ibv_dereg_mr(device->data_mr);
	if (device->pd && ibv_dealloc_pd(device->pd))
		log_warn("a protection domain could not be freed: %s", strerror(errno));
	free(device->data_memory);
	free(device->data_buffers);
	list_del(&device->node);
	free(device);
}

bool device_poll(struct device *device)
{
	bool busy = ring_poll(device->ring);
	struct list_node *pos;

	list_for_each(pos, &device->offloads) {
		struct offload *offload = list_entry(pos, struct offload, node);

		busy |= ring_poll(offload->ring);
		busy |= offload_poll(offload);
	}
	return busy;
}

void device_arm(struct device *device)
{
	struct list_node *pos;

	ring_arm(device->ring);
	list_for_each(pos, &device->offloads)
		ring_arm(list_entry(pos, struct offload, node)->ring);
}

static void handle_event(struct device *device, const struct ibv_async_event *event)
{
	struct connection *conn;

	switch ((unsigned int)event->event_type) {
	case IBV_EVENT_NVMF_QP_ERR:
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
		conn = connection_by_qp_num(device->transport, event->element.qp->qp_num);
		if (conn)
			connection_close(conn, "its queue pair failed");
		break;
	case IBV_EVENT_NVME_CTRL_TIMEOUT:
		log_warn("a back end has not answered a command in time");
		break;
	case IBV_EVENT_NVME_CTRL_PCI_ERR:
		log_error("an NVMe controller of the offload is dead");
		break;
	case IBV_EVENT_CQ_ERR:
		log_error("a completion queue has overrun");
		break;
	default: /* NVMF_QP_LAST_CQE_REACHED, COMM_EST, port and GID changes: nothing to do */
		log_debug("asynchronous event %u", (unsigned int)event->event_type);
	}
}

void device_async_events(struct device *device)
{
	struct ibv_async_event event;

	while (!ibv_get_async_event(device->verbs, &event)) {
		handle_event(device, &event);
		ibv_ack_async_event(&event);
	}
}

static bool take_buffer(struct request *request)
{
	struct connection *conn = request->conn;
	struct device *device = conn->device;

	if (!device->free_buffer_count ||
	    (conn->buffers && 2 * (conn->buffers + 1) > device->free_buffer_count))
		return false;
	request->buffer = list_entry(list_pop(&device->free_buffers), struct data_buffer, node);
	device->free_buffer_count--;
	conn->buffers++;
	return true;
}

void device_buffer_get(struct request *request)
{
	struct connection *conn = request->conn;

	if (list_empty(&conn->buffer_waiters) && take_buffer(request)) {
		request_got_buffer(request);
		return;
	}
	if (list_empty(&conn->buffer_waiters))
		list_add_tail(&conn->device->buffer_queue, &conn->buffer_node);
	list_add_tail(&conn->buffer_waiters, &request->wait);
}

/* connections in turn, one request each; those that have their share stay in the queue */
static void serve_buffer_waiters(struct device *device)
{
	struct list_node content;

	list_init(&content);
	while (device->free_buffer_count && !list_empty(&device->buffer_queue)) {
		struct connection *conn =
			list_entry(list_pop(&device->buffer_queue), struct connection, buffer_node);
		struct request *request;

		if (list_empty(&conn->buffer_waiters))
			continue;
		request = list_entry(conn->buffer_waiters.next, struct request, wait);
		if (!take_buffer(request)) {
			list_add_tail(&content, &conn->buffer_node);
			continue;
		}
		list_del(&request->wait);
		if (!list_empty(&conn->buffer_waiters))
			list_add_tail(&device->buffer_queue, &conn->buffer_node);
		request_got_buffer(request);
	}
	list_splice_tail(&device->buffer_queue, &content);
}

void device_buffer_put(struct connection *conn, struct data_buffer *buffer)
{
	struct device *device = conn->device;

	conn->buffers--;
	list_add(&device->free_buffers, &buffer->node);
	device->free_buffer_count++;
	/* what a waiter does with its buffer may give it back at once */
	if (device->serving)
		return;
	device->serving = true;
	serve_buffer_waiters(device);
	device->serving = false;
}
