/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * channel.c: completion channels. A CQ with events stands in its channel's queue once, with the
 * number of its events, so that raising one needs no memory; the descriptor counts all of them.
 * Whoever waits drives the engine for a while before it sleeps: a wake-up costs more than most
 * answers take (limits.md).
 */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "util/clock.h"
#include "verbs/event_fd.h"
#include "verbs/objects.h"

#define SPIN_NS (20 * NSEC_PER_USEC)

struct ibv_comp_channel *softhca_ibv_create_comp_channel(struct ibv_context *context)
{
	struct soft_channel *channel = calloc(1, sizeof(*channel));

	if (!channel)
		return NULL;
	channel->ibv.fd = event_fd_create();
	if (channel->ibv.fd < 0) {
		free(channel);
		return NULL;
	}
	channel->ibv.context = context;
	pthread_mutex_init(&channel->lock, NULL);
	list_init(&channel->queue);
	to_context(context)->objects++;
	return &channel->ibv;
}

int softhca_ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	struct soft_channel *c = to_channel(channel);
	int users;

	pthread_mutex_lock(&c->lock);
	users = channel->refcnt;
	pthread_mutex_unlock(&c->lock);
	if (users)
		return EBUSY;
	close(channel->fd);
	pthread_mutex_destroy(&c->lock);
	to_context(channel->context)->objects--;
	free(c);
	return 0;
}

void channel_notify(struct hca_cq *hca)
{
	struct soft_cq *cq = container_of(hca, struct soft_cq, hca);
	struct soft_channel *channel = to_channel(cq->ibv.channel);

	pthread_mutex_lock(&channel->lock);
	if (!cq->events_pending++)
		list_add_tail(&channel->queue, &cq->channel_node);
	/* under the lock: who takes the event back must find its count */
	event_fd_post(channel->ibv.fd);
	pthread_mutex_unlock(&channel->lock);
}

void channel_remove_cq(struct soft_channel *channel, struct soft_cq *cq)
{
	pthread_mutex_lock(&channel->lock);
	if (cq->events_pending) {
		event_fd_take_back(channel->ibv.fd, cq->events_pending);
		cq->events_pending = 0;
		list_del(&cq->channel_node);
	}
	channel->ibv.refcnt--;
	pthread_mutex_unlock(&channel->lock);
}

static struct soft_cq *take(struct soft_channel *channel)
{
	struct soft_cq *cq = NULL;

	pthread_mutex_lock(&channel->lock);
	if (!list_empty(&channel->queue)) {
		cq = list_entry(channel->queue.next, struct soft_cq, channel_node);
		list_del(&cq->channel_node);
		if (--cq->events_pending)
			list_add_tail(&channel->queue, &cq->channel_node);
		cq->events_delivered++;
	}
	pthread_mutex_unlock(&channel->lock);
	return cq;
}

static bool has_event(struct soft_channel *channel)
{
	bool yes;

	pthread_mutex_lock(&channel->lock);
	yes = !list_empty(&channel->queue);
	pthread_mutex_unlock(&channel->lock);
	return yes;
}

/* make progress until there is an event or it is time to sleep */
static void drive(struct soft_channel *channel)
{
	struct engine *engine = to_context(channel->ibv.context)->hca.engine;
	bool blocking = !(fcntl(channel->ibv.fd, F_GETFL) & O_NONBLOCK);
	uint64_t until;

	if (!engine)
		return;
	until = clock_ns() + SPIN_NS;
	do {
		if (has_event(channel))
			return;
		if (engine_poll(engine))
			until = clock_ns() + SPIN_NS;
	} while (blocking && clock_ns() < until);
	if (!has_event(channel))
		engine_hand_over(engine);
}

int softhca_ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq,
			     void **cq_context)
{
	struct soft_channel *c = to_channel(channel);
	struct soft_cq *found;
	int ret;

	do {
		drive(c);
		ret = event_fd_wait(channel->fd);
		if (ret)
			return minus_one(ret);
		/* the event's CQ may have been destroyed since */
		found = take(c);
	} while (!found);
	*cq = ibv_cq_ex_to_cq(&found->ibv);
	*cq_context = found->ibv.cq_context;
	return 0;
}

void softhca_ibv_ack_cq_events(struct ibv_cq *cq, unsigned int nevents)
{
	pthread_mutex_lock(&cq->mutex);
	cq->comp_events_completed += nevents;
	pthread_cond_signal(&cq->cond);
	pthread_mutex_unlock(&cq->mutex);
}
