/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * context.c: opened devices. Opening is light: the engine (port daemon, sockets, thread) starts
 * with the first object, so that ibv_devinfo and the like leave no trace.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "util/log.h"
#include "verbs/event_fd.h"
#include "verbs/objects.h"
#include "wire/link.h"

static struct {
	pthread_mutex_t lock;
	struct soft_context **contexts;
	unsigned int count, capacity;
} open_contexts = { .lock = PTHREAD_MUTEX_INITIALIZER };

static int remember(struct soft_context *ctx)
{
	struct soft_context **bigger;
	int ret = 0;

	pthread_mutex_lock(&open_contexts.lock);
	if (open_contexts.count == open_contexts.capacity) {
		bigger = realloc(open_contexts.contexts,
				 (open_contexts.capacity + 8) * sizeof(*bigger));
		if (!bigger) {
			ret = ENOMEM;
			goto out_unlock;
		}
		open_contexts.contexts = bigger;
		open_contexts.capacity += 8;
	}
	open_contexts.contexts[open_contexts.count++] = ctx;
out_unlock:
	pthread_mutex_unlock(&open_contexts.lock);
	return ret;
}

static void forget(struct soft_context *ctx)
{
	pthread_mutex_lock(&open_contexts.lock);
	for (unsigned int i = 0; i < open_contexts.count; i++)
		if (open_contexts.contexts[i] == ctx) {
			open_contexts.contexts[i] = open_contexts.contexts[--open_contexts.count];
			break;
		}
	pthread_mutex_unlock(&open_contexts.lock);
}

bool context_is_ours(const struct ibv_context *context)
{
	return context && context->device && device_is_ours(context->device);
}

static int completion_vectors(void)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);

	return cpus > 0 ? (int)cpus : 1;
}

struct ibv_context *softhca_ibv_open_device(struct ibv_device *device)
{
	struct soft_context *ctx;
	struct ibv_context *context;

	device_refresh();
	ctx = calloc(1, sizeof(*ctx));
	if (!ctx)
		return NULL;
	context = &ctx->verbs.context;
	context->device = device;
	context->num_comp_vectors = completion_vectors();
	context->async_fd = event_fd_create();
	/* unused, but clients dup() it: it must be valid */
	context->cmd_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (context->async_fd < 0 || context->cmd_fd < 0)
		goto out_close;
	pthread_mutex_init(&context->mutex, NULL);
	pthread_mutex_init(&ctx->engine_lock, NULL);
	pthread_mutex_init(&ctx->async_lock, NULL);
	pthread_mutex_init(&ctx->qps_lock, NULL);
	list_init(&ctx->qps);
	list_init(&ctx->async_queue);
	async_source_init(&ctx->port_source, NULL);
	ctx->hca.event = async_raise;
	context_set_ops(ctx);
	if (remember(ctx))
		goto out_close;
	return context;

out_close:
	if (context->async_fd >= 0)
		close(context->async_fd);
	if (context->cmd_fd >= 0)
		close(context->cmd_fd);
	free(ctx);
	return NULL;
}

/*
 * Programs close a device and leave objects behind (perftest does); a kernel would clean up after
 * them. Their QPs go silent, and what they point to stays, since they may yet destroy them.
 */
static void orphan_objects(struct soft_context *ctx)
{
	struct list_node *node;

	log_debug("close_device: %u objects are left behind", atomic_load(&ctx->objects));
	pthread_mutex_lock(&ctx->qps_lock);
	list_for_each(node, &ctx->qps)
		qp_orphan(list_entry(node, struct soft_qp, node));
	pthread_mutex_unlock(&ctx->qps_lock);
}

int softhca_ibv_close_device(struct ibv_context *context)
{
	struct soft_context *ctx = to_context(context);

	if (atomic_load(&ctx->objects)) {
		orphan_objects(ctx);
		return 0;
	}
	forget(ctx);
	if (ctx->hca.engine)
		engine_put(ctx->hca.engine);
	close(context->async_fd);
	close(context->cmd_fd);
	pthread_mutex_destroy(&context->mutex);
	pthread_mutex_destroy(&ctx->engine_lock);
	pthread_mutex_destroy(&ctx->async_lock);
	pthread_mutex_destroy(&ctx->qps_lock);
	free(ctx);
	return 0;
}

int context_start_engine(struct soft_context *ctx)
{
	int ret = 0;

	pthread_mutex_lock(&ctx->engine_lock);
	if (!ctx->hca.engine) {
		ret = engine_get_default(&ctx->hca.engine);
		ctx->engine_owner = getpid();
		if (!ret)
			monitor_start();
	} else if (ctx->engine_owner != getpid()) {
		log_error("a forked child cannot use the devices that its parent uses:"
			  " it opens its own");
		ret = -EACCES;
	}
	pthread_mutex_unlock(&ctx->engine_lock);
	return -ret;
}

bool context_is_usable(struct ibv_context *context)
{
	struct soft_context *ctx = to_context(context);
	bool usable;

	pthread_mutex_lock(&ctx->engine_lock);
	usable = !ctx->hca.engine || ctx->engine_owner == getpid();
	pthread_mutex_unlock(&ctx->engine_lock);
	return usable;
}

static void raise_changes(struct soft_context *ctx, unsigned int changes)
{
	if (changes & DEVICE_GIDS)
		async_raise(&ctx->hca, IBV_EVENT_GID_CHANGE, NULL);
	if (changes & DEVICE_PORT_UP)
		async_raise(&ctx->hca, IBV_EVENT_PORT_ACTIVE, NULL);
	if (changes & DEVICE_PORT_DOWN)
		async_raise(&ctx->hca, IBV_EVENT_PORT_ERR, NULL);
}

void context_device_changed(struct ibv_device *device, unsigned int changes)
{
	pthread_mutex_lock(&open_contexts.lock);
	for (unsigned int i = 0; i < open_contexts.count; i++)
		if (open_contexts.contexts[i]->verbs.context.device == device &&
		    context_is_usable(&open_contexts.contexts[i]->verbs.context))
			raise_changes(open_contexts.contexts[i], changes);
	pthread_mutex_unlock(&open_contexts.lock);
}

int context_gid_lookup(struct hca_context *ctx, uint8_t index, union ibv_gid *gid,
		       uint32_t *ifindex)
{
	return device_get_gid(hca_to_context(ctx)->verbs.context.device, index, gid, ifindex);
}

int context_set_faults(const char *rules)
{
	struct engine *engine;
	int ret = 0;

	pthread_mutex_lock(&open_contexts.lock);
	for (unsigned int i = 0; i < open_contexts.count && !ret; i++) {
		struct soft_context *ctx = open_contexts.contexts[i];

		pthread_mutex_lock(&ctx->engine_lock);
		engine = ctx->hca.engine;
		pthread_mutex_unlock(&ctx->engine_lock);
		if (!engine)
			continue;
		engine_lock(engine);
		ret = -link_set_faults(engine->link, rules);
		engine_unlock(engine);
	}
	pthread_mutex_unlock(&open_contexts.lock);
	return ret;
}
