/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * async.c: asynchronous events: queue, descriptor, acknowledgement. context->async_fd is an
 * eventfd that counts like a semaphore: readable exactly when an event is queued, and a blocking
 * or O_NONBLOCK wait as the application chose. wire-facts 2.8.
 */
#include <sys/uio.h>
#include <unistd.h>

#include "util/log.h"
#include "verbs/event_fd.h"
#include "verbs/objects.h"

#define OUR_EVENTS     0x40000000 /* first of ours, verbs_ext.h */
#define OUR_EVENTS_BIT 24	  /* bits below are stock types */
#define STOCK_TYPE_MAX IBV_EVENT_WQ_FATAL

void async_source_init(struct async_source *source, void *object)
{
	*source = (struct async_source){ .object = object };
	list_init(&source->node);
}

static int type_to_bit(enum ibv_event_type type)
{
	return type >= OUR_EVENTS ? OUR_EVENTS_BIT + (type - OUR_EVENTS) : (int)type;
}

static enum ibv_event_type bit_to_type(int bit)
{
	return bit >= OUR_EVENTS_BIT ? (enum ibv_event_type)(OUR_EVENTS + bit - OUR_EVENTS_BIT)
				     : (enum ibv_event_type)bit;
}

enum element { ELEMENT_CQ, ELEMENT_QP, ELEMENT_SRQ, ELEMENT_NVME_CTRL, ELEMENT_PORT };

static enum element element_of(enum ibv_event_type type)
{
	switch ((unsigned int)type) {
	case IBV_EVENT_CQ_ERR:
		return ELEMENT_CQ;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
	case (unsigned int)IBV_EVENT_NVMF_QP_ERR:
	case (unsigned int)IBV_EVENT_NVMF_QP_LAST_CQE_REACHED:
		return ELEMENT_QP;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		return ELEMENT_SRQ;
	case (unsigned int)IBV_EVENT_NVME_CTRL_PCI_ERR:
	case (unsigned int)IBV_EVENT_NVME_CTRL_TIMEOUT:
		return ELEMENT_NVME_CTRL;
	default:
		return ELEMENT_PORT;
	}
}

static struct async_source *source_of(struct soft_context *ctx, enum ibv_event_type type,
				      void *object)
{
	switch (element_of(type)) {
	case ELEMENT_CQ:
		return &to_cq(object)->async;
	case ELEMENT_QP:
		return &to_qp(object)->async;
	case ELEMENT_SRQ:
		return &to_srq(object)->async;
	case ELEMENT_NVME_CTRL:
		return &((struct ibv_nvme_ctrl *)object)->async;
	default:
		return &ctx->port_source;
	}
}

void async_raise(struct hca_context *hca, enum ibv_event_type type, void *object)
{
	struct soft_context *ctx = hca_to_context(hca);
	struct async_source *source;
	uint32_t bit = 1U << type_to_bit(type);
	bool is_new;

	if (!object && element_of(type) != ELEMENT_PORT)
		return; /* an element without owner: nobody to tell */
	source = source_of(ctx, type, object);
	pthread_mutex_lock(&ctx->async_lock);
	is_new = !(source->pending & bit);
	if (!source->pending)
		list_add_tail(&ctx->async_queue, &source->node);
	source->pending |= bit;
	if (is_new)
		event_fd_post(ctx->verbs.context.async_fd);
	pthread_mutex_unlock(&ctx->async_lock);
	log_debug("asynchronous event: %s", softhca_ibv_event_type_str(type));
}

void async_source_cancel(struct soft_context *ctx, struct async_source *source)
{
	pthread_mutex_lock(&ctx->async_lock);
	if (source->pending) {
		event_fd_take_back(ctx->verbs.context.async_fd,
				   __builtin_popcount(source->pending));
		source->pending = 0;
		list_del(&source->node);
	}
	pthread_mutex_unlock(&ctx->async_lock);
}

/* take the first pending event out. Return: false = there is none */
static bool take(struct soft_context *ctx, struct ibv_async_event *event)
{
	struct async_source *source;
	int bit;

	pthread_mutex_lock(&ctx->async_lock);
	if (list_empty(&ctx->async_queue)) {
		pthread_mutex_unlock(&ctx->async_lock);
		return false;
	}
	source = list_entry(ctx->async_queue.next, struct async_source, node);
	bit = __builtin_ctz(source->pending);
	source->pending &= ~(1U << bit);
	list_del(&source->node);
	if (source->pending)
		list_add_tail(&ctx->async_queue, &source->node);
	source->delivered++;
	event->event_type = bit_to_type(bit);
	if (source == &ctx->port_source)
		event->element.port_num = PORT_NUM;
	else
		event->element.qp = source->object;
	pthread_mutex_unlock(&ctx->async_lock);
	return true;
}

int softhca_ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	int ret;

	do {
		ret = event_fd_wait(context->async_fd);
		if (ret)
			return minus_one(ret);
		/* the event may have been cancelled together with its object */
	} while (!take(to_context(context), event));
	return 0;
}

static void ack(pthread_mutex_t *mutex, pthread_cond_t *cond, uint32_t *completed)
{
	pthread_mutex_lock(mutex);
	(*completed)++;
	pthread_cond_signal(cond);
	pthread_mutex_unlock(mutex);
}

void softhca_ibv_ack_async_event(struct ibv_async_event *event)
{
	struct ibv_nvme_ctrl *ctrl;

	switch (element_of(event->event_type)) {
	case ELEMENT_CQ:
		ack(&event->element.cq->mutex, &event->element.cq->cond,
		    &event->element.cq->async_events_completed);
		return;
	case ELEMENT_QP:
		ack(&event->element.qp->mutex, &event->element.qp->cond,
		    &event->element.qp->events_completed);
		return;
	case ELEMENT_SRQ:
		ack(&event->element.srq->mutex, &event->element.srq->cond,
		    &event->element.srq->events_completed);
		return;
	case ELEMENT_NVME_CTRL:
		ctrl = ibv_event_nvme_ctrl(event);
		pthread_mutex_lock(&to_context(ctrl->context)->async_lock);
		ctrl->events_completed++;
		pthread_mutex_unlock(&to_context(ctrl->context)->async_lock);
		return;
	case ELEMENT_PORT:
		return;
	}
}
