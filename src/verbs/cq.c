/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cq.c: completion queues: creation, classic polling, arming. Polling looks into the CQ first; only
 * when that is empty does it drive the engine, and looks again.
 */
#include <stdlib.h>
#include <string.h>

#include "util/bytes.h"
#include "util/log.h"
#include "verbs/objects.h"

#define POLL_BATCH 16

#define KNOWN_WC_FLAGS ((uint64_t)IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_MP_WR)

static int attach_channel(struct soft_cq *cq, struct ibv_comp_channel *channel)
{
	struct soft_channel *c;

	list_init(&cq->channel_node);
	if (!channel)
		return 0;
	if (channel->context != cq->ibv.context)
		return EINVAL;
	c = to_channel(channel);
	pthread_mutex_lock(&c->lock);
	channel->refcnt++;
	pthread_mutex_unlock(&c->lock);
	cq->ibv.channel = channel;
	cq->hca.notify = channel_notify;
	return 0;
}

/* comp_vector and the flags have been checked */
static struct soft_cq *create(struct ibv_context *context, uint32_t cqe, void *cq_context,
			      struct ibv_comp_channel *channel)
{
	struct soft_context *ctx = to_context(context);
	struct soft_cq *cq;
	int ret;

	if (!cqe || cqe > HCA_MAX_CQE)
		return fail_with(EINVAL);
	ret = context_start_engine(ctx);
	if (ret)
		return fail_with(ret);
	cq = calloc(1, sizeof(*cq));
	if (!cq)
		return NULL;
	cq->ibv.context = context;
	cq->ibv.cq_context = cq_context;
	ret = cq_init(&cq->hca, &ctx->hca, cqe);
	if (ret)
		goto out_free;
	cq->hca.owner = &cq->ibv;
	cq->ibv.cqe = (int)cq->hca.size;
	ret = attach_channel(cq, channel);
	if (ret)
		goto out_cq_free;
	async_source_init(&cq->async, &cq->ibv);
	pthread_mutex_init(&cq->ibv.mutex, NULL);
	pthread_cond_init(&cq->ibv.cond, NULL);
	pthread_mutex_init(&cq->poll_lock, NULL);
	cq_set_ex_ops(&cq->ibv);
	ctx->objects++;
	return cq;

out_cq_free:
	cq_free(&cq->hca);
out_free:
	free(cq);
	return fail_with(ret);
}

struct ibv_cq *softhca_ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
				     struct ibv_comp_channel *channel, int comp_vector)
{
	struct soft_cq *cq;

	if (cqe <= 0 || comp_vector < 0 || comp_vector >= context->num_comp_vectors)
		return fail_with(EINVAL);
	cq = create(context, (uint32_t)cqe, cq_context, channel);
	return cq ? ibv_cq_ex_to_cq(&cq->ibv) : NULL;
}

struct ibv_cq_ex *cq_create_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr)
{
	uint32_t flags = attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS ? attr->flags : 0;
	struct soft_cq *cq;

	if (attr->comp_mask & ~(uint32_t)IBV_CQ_INIT_ATTR_MASK_FLAGS)
		return fail_with(EOPNOTSUPP);
	if (flags &
	    ~(uint32_t)(IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN))
		return fail_with(EOPNOTSUPP);
	/* a reader of a field that we do not fill in would call through a NULL pointer */
	if (attr->wc_flags & ~KNOWN_WC_FLAGS)
		return fail_with(EOPNOTSUPP);
	if (attr->comp_vector >= (uint32_t)context->num_comp_vectors)
		return fail_with(EINVAL);
	cq = create(context, attr->cqe, attr->cq_context, attr->channel);
	if (!cq)
		return NULL;
	cq->single_threaded = flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
	cq->hca.ignore_overrun = flags & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
	cq->hca.mp_wr = attr->wc_flags & IBV_WC_EX_WITH_MP_WR;
	return &cq->ibv;
}

int softhca_ibv_resize_cq(struct ibv_cq *cq, int cqe)
{
	struct soft_cq *c = to_cq(cq);
	int ret;

	if (cqe <= 0)
		return EINVAL;
	ret = cq_resize(&c->hca, (uint32_t)cqe);
	if (!ret)
		cq->cqe = (int)c->hca.size;
	return ret;
}

/* until the application has acknowledged whatever it has read; later ones are dropped before */
static void wait_for_acks(struct soft_cq *cq)
{
	pthread_mutex_lock(&cq->ibv.mutex);
	while (cq->ibv.comp_events_completed != cq->events_delivered ||
	       cq->ibv.async_events_completed != cq->async.delivered)
		pthread_cond_wait(&cq->ibv.cond, &cq->ibv.mutex);
	pthread_mutex_unlock(&cq->ibv.mutex);
}

int softhca_ibv_destroy_cq(struct ibv_cq *cq)
{
	struct soft_cq *c = to_cq(cq);
	struct soft_context *ctx = to_context(cq->context);

	if (atomic_load(&c->hca.references))
		return EBUSY;
	if (cq->channel)
		channel_remove_cq(to_channel(cq->channel), c);
	async_source_cancel(ctx, &c->async);
	wait_for_acks(c);
	cq_free(&c->hca);
	pthread_mutex_destroy(&cq->mutex);
	pthread_cond_destroy(&cq->cond);
	pthread_mutex_destroy(&c->poll_lock);
	ctx->objects--;
	free(c);
	return 0;
}

static int take_batch(struct hca_cq *cq, int num_entries, struct ibv_wc *wc)
{
	struct cqe cqes[POLL_BATCH];
	int done = 0;

	while (done < num_entries) {
		int want = MIN(num_entries - done, POLL_BATCH);
		int n = cq_take(cq, cqes, want);

		if (n < 0)
			return done ? done : n;
		for (int i = 0; i < n; i++)
			cqe_to_wc(&cqes[i], &wc[done + i]);
		done += n;
		if (n < want)
			break;
	}
	return done;
}

int cq_poll_classic(struct ibv_cq *cq, int num_entries, struct ibv_wc *wc)
{
	struct hca_cq *hca = &to_cq(cq)->hca;
	int n = 0;

	if (num_entries <= 0)
		return 0;
	if (!cq_is_empty(hca))
		n = take_batch(hca, num_entries, wc);
	if (n)
		return n;
	engine_poll(hca->ctx->engine);
	return take_batch(hca, num_entries, wc);
}

int cq_req_notify(struct ibv_cq *cq, int solicited_only)
{
	struct hca_cq *hca = &to_cq(cq)->hca;

	cq_arm(hca, solicited_only);
	/* whoever arms is about to sleep */
	engine_hand_over(hca->ctx->engine);
	return 0;
}
