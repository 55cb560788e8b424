// SPDX-License-Identifier: BSD-2-Clause
/*
 * event.c: event channels. The channel's descriptor is an eventfd whose counter is not 0 exactly
 * while events are queued; each event adds to it, so that edge-triggered waiters see every one.
 * An event belongs to the id it is counted for until it is acknowledged: the listener for a
 * connect request, otherwise the id itself.
 */
#include "cm/id.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "util/bytes.h"
#include "util/log.h"

struct event {
	struct rdma_cm_event event; /* first: what the application gets */
	struct list_node node;
	struct cm_id *counted_for;
	uint8_t private_data[256];
};

static struct cm_channel *to_channel(struct rdma_event_channel *channel)
{
	return container_of(channel, struct cm_channel, channel);
}

struct cm_channel *channel_new(void)
{
	struct cm_channel *channel = calloc(1, sizeof(*channel));

	if (!channel)
		return NULL;
	list_init(&channel->events);
	channel->channel.fd = eventfd(0, EFD_CLOEXEC);
	if (channel->channel.fd >= 0)
		return channel;
	free(channel);
	return NULL;
}

void channel_free(struct cm_channel *channel)
{
	struct list_node *node;

	while ((node = list_pop(&channel->events)))
		free(list_entry(node, struct event, node));
	close(channel->channel.fd);
	free(channel);
}

static void channel_signal(struct cm_channel *channel)
{
	uint64_t one = 1;

	if (write(channel->channel.fd, &one, sizeof(one)) < 0)
		log_warn("cannot signal an event channel: %s", strerror(errno));
}

/* the counter back to what the queue says; lock held, so nobody else reads it */
static void channel_update(struct cm_channel *channel)
{
	struct pollfd fd = { .fd = channel->channel.fd, .events = POLLIN };
	uint64_t count;

	if (poll(&fd, 1, 0) == 1 && read(fd.fd, &count, sizeof(count)) < 0)
		log_warn("cannot read an event channel: %s", strerror(errno));
	if (!list_empty(&channel->events))
		channel_signal(channel);
}

static void fill_param(struct rdma_conn_param *param, const struct cm_conn *conn)
{
	param->responder_resources = conn->responder_resources;
	param->initiator_depth = conn->initiator_depth;
	param->flow_control = conn->flow_control;
	param->retry_count = conn->active ? 0 : conn->retry_count;
	param->rnr_retry_count = conn->rnr_retry_count;
	param->srq = conn->remote_srq;
	param->qp_num = conn->remote_qpn;
}

int event_post(struct cm_id *id, struct cm_id *listener, enum rdma_cm_event_type type, int status,
	       const struct cm_conn *conn, const void *private_data, uint8_t private_len)
{
	struct rdma_event_channel *channel = listener ? listener->id.channel : id->id.channel;
	struct event *event;

	if (!channel)
		return -ENOENT; /* destroyed by the application: nobody to tell */
	event = calloc(1, sizeof(*event));
	if (!event) {
		log_error("out of memory: a connection event is lost");
		return -ENOMEM;
	}
	event->counted_for = listener ? listener : id;
	event->event.id = &id->id;
	event->event.listen_id = listener ? &listener->id : NULL;
	event->event.event = type;
	event->event.status = status;
	if (conn)
		fill_param(&event->event.param.conn, conn);
	if (private_data) {
		memcpy(event->private_data, private_data, private_len);
		event->event.param.conn.private_data = event->private_data;
		event->event.param.conn.private_data_len = private_len;
	}
	list_add_tail(&to_channel(channel)->events, &event->node);
	channel_signal(to_channel(channel));
	return 0;
}

void event_purge(struct cm_id *id)
{
	struct cm_channel *channel;
	struct list_node *pos, *tmp;

	if (!id->id.channel)
		return;
	channel = to_channel(id->id.channel);
	list_for_each_safe(pos, tmp, &channel->events) {
		struct event *event = list_entry(pos, struct event, node);

		if (event->counted_for != id && event->event.id != &id->id)
			continue;
		list_del(&event->node);
		if (event->event.event == RDMA_CM_EVENT_CONNECT_REQUEST &&
		    event->event.id != &id->id)
			id_free(to_cm_id(event->event.id)); /* refuses the request */
		free(event);
	}
	channel_update(channel);
}

/* the application has the event now; lock held */
static int deliver(struct event *event)
{
	struct cm_id *id = to_cm_id(event->event.id);
	struct cm_id *listener = id->listener;

	event->counted_for->unacked++;
	if (event->event.event != RDMA_CM_EVENT_CONNECT_REQUEST || !listener)
		return 0;
	listener->pending--;
	id->listener = NULL;
	/* what came after the request waits on the same channel as the request did */
	return listener->sync ? id_make_sync(id) : 0;
}

int softhca_rdma_get_cm_event(struct rdma_event_channel *rdma_channel, struct rdma_cm_event **out)
{
	struct cm_channel *channel;
	struct event *event;
	int err;

	if (!rdma_channel || !out)
		return cm_error(EINVAL);
	channel = to_channel(rdma_channel);
	cm_lock();
	while (list_empty(&channel->events)) {
		struct pollfd fd = { .fd = rdma_channel->fd, .events = POLLIN };
		int flags = fcntl(rdma_channel->fd, F_GETFL);

		cm_unlock();
		if (flags < 0)
			return -1;
		if (flags & O_NONBLOCK)
			return cm_error(EAGAIN);
		if (poll(&fd, 1, -1) < 0)
			return -1;
		cm_lock();
	}
	event = list_entry(list_pop(&channel->events), struct event, node);
	channel_update(channel);
	err = deliver(event);
	cm_unlock();
	if (err)
		log_warn("no event channel for a new connection: %s", strerror(-err));
	*out = &event->event;
	return 0;
}

int softhca_rdma_ack_cm_event(struct rdma_cm_event *rdma_event)
{
	struct event *event;

	if (!rdma_event)
		return cm_error(EINVAL);
	event = container_of(rdma_event, struct event, event);
	cm_lock();
	event->counted_for->unacked--;
	cm_wake_waiters();
	cm_unlock();
	free(event);
	return 0;
}

static int status_to_errno(const struct rdma_cm_event *event)
{
	if (event->event == RDMA_CM_EVENT_REJECTED)
		return ECONNREFUSED;
	return event->status < 0 ? -event->status : event->status;
}

int event_complete(struct cm_id *id)
{
	if (!id->sync)
		return 0;
	if (id->id.event) {
		softhca_rdma_ack_cm_event(id->id.event);
		id->id.event = NULL;
	}
	if (softhca_rdma_get_cm_event(id->id.channel, &id->id.event))
		return -1;
	return cm_error(status_to_errno(id->id.event));
}

struct rdma_event_channel *softhca_rdma_create_event_channel(void)
{
	struct cm_channel *channel = channel_new();

	if (!channel)
		return NULL;
	return &channel->channel;
}

/* ids that still have the channel end with it, as they do when a process closes its descriptor */
void softhca_rdma_destroy_event_channel(struct rdma_event_channel *channel)
{
	struct list_node *pos;

	if (!channel)
		return;
	cm_lock();
	list_for_each(pos, cm_ids()) {
		struct cm_id *id = list_entry(pos, struct cm_id, node);

		if (id->id.channel != channel || id->listener)
			continue;
		id_abandon(id);
		event_purge(id); /* frees requests, never @id itself */
		id->id.channel = NULL;
	}
	cm_unlock();
	channel_free(to_channel(channel));
}

int softhca_rdma_migrate_id(struct rdma_cm_id *rdma_id, struct rdma_event_channel *channel)
{
	struct cm_id *id;
	struct cm_channel *from, *to, *own = NULL;
	struct list_node *pos, *tmp;
	bool was_sync;

	if (!rdma_id || !rdma_id->channel)
		return cm_error(EINVAL);
	id = to_cm_id(rdma_id);
	if (!channel) {
		own = channel_new();
		if (!own)
			return cm_error(ENOMEM);
		channel = &own->channel;
	}
	from = to_channel(rdma_id->channel);
	to = to_channel(channel);
	was_sync = id->sync;
	if (was_sync && rdma_id->event) {
		softhca_rdma_ack_cm_event(rdma_id->event);
		rdma_id->event = NULL;
	}
	cm_lock();
	/* events taken from the old channel are acknowledged first, as the contract says */
	while (id->unacked)
		cm_wait();
	list_for_each_safe(pos, tmp, &from->events) {
		struct event *event = list_entry(pos, struct event, node);

		if (event->counted_for != id)
			continue;
		list_del(&event->node);
		list_add_tail(&to->events, &event->node);
		if (event->event.event == RDMA_CM_EVENT_CONNECT_REQUEST)
			event->event.id->channel = channel;
	}
	channel_update(from);
	channel_update(to);
	rdma_id->channel = channel;
	id->sync = own != NULL;
	cm_unlock();
	if (was_sync)
		channel_free(from);
	return 0;
}

const char *softhca_rdma_event_str(enum rdma_cm_event_type event)
{
	static const char *const names[] = {
		"RDMA_CM_EVENT_ADDR_RESOLVED",	 "RDMA_CM_EVENT_ADDR_ERROR",
		"RDMA_CM_EVENT_ROUTE_RESOLVED",	 "RDMA_CM_EVENT_ROUTE_ERROR",
		"RDMA_CM_EVENT_CONNECT_REQUEST", "RDMA_CM_EVENT_CONNECT_RESPONSE",
		"RDMA_CM_EVENT_CONNECT_ERROR",	 "RDMA_CM_EVENT_UNREACHABLE",
		"RDMA_CM_EVENT_REJECTED",	 "RDMA_CM_EVENT_ESTABLISHED",
		"RDMA_CM_EVENT_DISCONNECTED",	 "RDMA_CM_EVENT_DEVICE_REMOVAL",
		"RDMA_CM_EVENT_MULTICAST_JOIN",	 "RDMA_CM_EVENT_MULTICAST_ERROR",
		"RDMA_CM_EVENT_ADDR_CHANGE",	 "RDMA_CM_EVENT_TIMEWAIT_EXIT",
	};

	if ((unsigned int)event >= ARRAY_SIZE(names))
		return "UNKNOWN EVENT";
	return names[event];
}
