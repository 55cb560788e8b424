// SPDX-License-Identifier: BSD-2-Clause
/*
 * offload.c: the offload of one SRQ: attributes, memory made once, namespaces, the poller that
 * drives it all.
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "nvme/spec.h"
#include "offload/internal.h"
#include "util/bytes.h"
#include "util/clock.h"
#include "util/log.h"

#define NVME_MIN_PAGE	   4096
#define MAX_LOG_PAGE	   4 /* 64 KiB */
#define MIN_COMMANDS	   256
#define MAX_COMMANDS	   8192
#define CAPSULE_DATA_BYTES (4U << 20) /* for in-capsule data that wait */
#define MIN_CAPSULE_DATA   8
#define POLL_ROUNDS	   4
#define UNMAP_POLL_US	   50
#define UNMAP_GRACE_NS	   (100 * NSEC_PER_MSEC)

const struct ibv_nvmf_caps offload_caps = {
	.offload_type_rc = IBV_NVMF_WRITE_OFFLOAD | IBV_NVMF_READ_OFFLOAD |
			   IBV_NVMF_READ_WRITE_OFFLOAD | IBV_NVMF_READ_WRITE_FLUSH_OFFLOAD,
	.offload_type_dc = 0,
	.max_backend_ctrls_total = 1024,
	.max_srq_backend_ctrls = 64,
	.max_srq_namespaces = 1024,
	.min_staging_buf_size = NVME_MIN_PAGE,
	.max_staging_buf_size = 1U << 30,
	.max_io_sz = 1U << 20,
	.min_nvme_queue_depth = 2,
	.max_nvme_queue_depth = 4096,
	.min_ioccsz = CAPSULE_MIN_LEN / 16,
	.max_ioccsz = (CAPSULE_MIN_LEN + 65536) / 16,
	.max_icdoff = 256,
	.min_cmd_timeout_ms = 10,
	.max_cmd_timeout_ms = 600000,
	.max_frontend_nsid = NVME_NSID_ALL - 1,
};

void offload_get_caps(struct ibv_nvmf_caps *out)
{
	*out = offload_caps;
}

/* ---- attributes ----------------------------------------------------------- */

static bool ops_served(uint32_t ops)
{
	switch (ops) {
	case IBV_NVMF_OP_WRITE:
		return offload_caps.offload_type_rc & IBV_NVMF_WRITE_OFFLOAD;
	case IBV_NVMF_OP_READ:
		return offload_caps.offload_type_rc & IBV_NVMF_READ_OFFLOAD;
	case IBV_NVMF_OP_READ | IBV_NVMF_OP_WRITE:
		return offload_caps.offload_type_rc & IBV_NVMF_READ_WRITE_OFFLOAD;
	case IBV_NVMF_OP_READ | IBV_NVMF_OP_WRITE | IBV_NVMF_OP_FLUSH:
		return offload_caps.offload_type_rc & IBV_NVMF_READ_WRITE_FLUSH_OFFLOAD;
	}
	return false;
}

/* Return: what is wrong, or NULL */
static const char *check_attrs(const struct hca_srq *srq, const struct ibv_nvmf_attrs *a,
			       const struct offload_memory *staging)
{
	uint32_t page;

	if (!ops_served(a->offload_ops))
		return "operation set";
	if (!a->max_namespaces || a->max_namespaces > offload_caps.max_srq_namespaces)
		return "max_namespaces";
	if (a->nvme_log_page_sz > MAX_LOG_PAGE)
		return "nvme_log_page_sz";
	page = NVME_MIN_PAGE << a->nvme_log_page_sz;
	if (a->ioccsz < offload_caps.min_ioccsz || a->ioccsz > offload_caps.max_ioccsz)
		return "ioccsz";
	if (a->icdoff > offload_caps.max_icdoff ||
	    CAPSULE_MIN_LEN + 16 * a->icdoff > 16 * a->ioccsz)
		return "icdoff";
	if (!a->max_io_sz || a->max_io_sz > offload_caps.max_io_sz || a->max_io_sz % page)
		return "max_io_sz";
	if (a->nvme_queue_depth < offload_caps.min_nvme_queue_depth ||
	    a->nvme_queue_depth > offload_caps.max_nvme_queue_depth)
		return "nvme_queue_depth";
	if (staging->len < offload_caps.min_staging_buf_size ||
	    staging->len > offload_caps.max_staging_buf_size || staging->len % a->max_io_sz)
		return "staging length";
	if (!staging->mr || staging->mr->pd != srq->pd)
		return "staging PD";
	if (!(staging->mr->access & IBV_ACCESS_LOCAL_WRITE))
		return "staging access";
	if ((uintptr_t)staging->addr & (page - 1))
		return "staging alignment";
	if (!range_inside((uintptr_t)staging->addr, staging->len, (uintptr_t)staging->mr->addr,
			  staging->mr->length))
		return "staging outside its MR";
	return NULL;
}

/* ---- poller --------------------------------------------------------------- */

static bool offload_poll(struct engine_poller *poller)
{
	struct offload *off = container_of(poller, struct offload, poller);
	bool work = false;

	for (int round = 0; round < POLL_ROUNDS; round++) {
		bool more = false;
		struct list_node *pos;

		commands_run_waiters(off);
		list_for_each(pos, &off->ctrls)
			more |= ctrl_progress(list_entry(pos, struct offload_ctrl, node));
		/* all RDMA WRITEs of the batch are posted: now the responses */
		more |= commands_post_responses(off);
		if (!more)
			break;
		work = true;
	}
	return work;
}

/* ---- life ----------------------------------------------------------------- */

static int make_commands(struct offload *off)
{
	uint32_t count = off->attrs.nvme_queue_depth * 4;

	count = MIN(MAX(count, MIN_COMMANDS), MAX_COMMANDS);
	off->commands = calloc(count, sizeof(*off->commands));
	if (!off->commands)
		return ENOMEM;
	for (uint32_t i = 0; i < count; i++)
		list_add_tail(&off->free, &off->commands[i].node);

	off->capsule_data_len = off->rules.max_len - off->rules.data_offset;
	if (!off->capsule_data_len)
		return 0;
	off->capsule_count =
		MAX(MIN(CAPSULE_DATA_BYTES / off->capsule_data_len, count), MIN_CAPSULE_DATA);
	off->capsule_data = malloc((size_t)off->capsule_count * off->capsule_data_len);
	off->capsule_free = calloc(off->capsule_count, sizeof(*off->capsule_free));
	if (!off->capsule_data || !off->capsule_free)
		return ENOMEM;
	for (uint32_t i = 0; i < off->capsule_count; i++)
		off->capsule_free[off->capsule_free_count++] =
			off->capsule_data + (size_t)i * off->capsule_data_len;
	return 0;
}

static int make_namespaces(struct offload *off)
{
	uint32_t buckets = (uint32_t)round_up_power_of_two(off->attrs.max_namespaces);

	off->namespaces = calloc(off->attrs.max_namespaces, sizeof(*off->namespaces));
	off->buckets = calloc(buckets, sizeof(*off->buckets));
	if (!off->namespaces || !off->buckets)
		return ENOMEM;
	off->bucket_mask = buckets - 1;
	for (uint32_t i = 0; i < buckets; i++)
		list_init(&off->buckets[i]);
	return 0;
}

static int make_staging(struct offload *off, const struct offload_memory *memory)
{
	uint32_t page = NVME_MIN_PAGE << off->attrs.nvme_log_page_sz;
	uint32_t pages = (uint32_t)(memory->len / page);

	if (staging_init(&off->staging, memory->addr, page, pages))
		return ENOMEM;
	return prp_table_init(&off->prps, memory->addr, page, pages, off->attrs.max_io_sz / page)
		       ? ENOMEM
		       : 0;
}

static void free_offload(struct offload *off)
{
	prp_table_free(&off->prps);
	staging_fini(&off->staging);
	free(off->commands);
	free(off->capsule_data);
	free(off->capsule_free);
	free(off->namespaces);
	free(off->buckets);
	free(off);
}

int offload_create(struct offload **out, struct hca_srq *srq, const struct ibv_nvmf_attrs *attrs,
		   const struct offload_memory *staging)
{
	const char *wrong = check_attrs(srq, attrs, staging);
	struct offload *off;
	int ret;

	if (wrong) {
		log_debug("offload: attribute refused: %s", wrong);
		return EINVAL;
	}
	off = calloc(1, sizeof(*off));
	if (!off)
		return ENOMEM;
	off->srq = srq;
	off->engine = srq->ctx->engine;
	off->attrs = *attrs;
	off->rules = (struct capsule_rules){
		.offload_ops = attrs->offload_ops,
		.max_len = 16 * attrs->ioccsz,
		.data_offset = CAPSULE_MIN_LEN + 16 * attrs->icdoff,
		.max_transfer = attrs->max_io_sz,
	};
	list_init(&off->free);
	list_init(&off->wait_staging);
	list_init(&off->respond);
	list_init(&off->ctrls);
	list_init(&off->qps);
	off->poller.poll = offload_poll;
	ret = make_commands(off);
	if (!ret)
		ret = make_namespaces(off);
	if (!ret)
		ret = make_staging(off, staging);
	if (ret) {
		free_offload(off);
		return ret;
	}
	engine_lock(off->engine);
	engine_add_poller(off->engine, &off->poller);
	engine_unlock(off->engine);
	*out = off;
	return 0;
}

/* the SRQ has no QPs any more */
void offload_destroy(struct offload *off)
{
	struct list_node *node;

	if (!off)
		return;
	engine_lock(off->engine);
	engine_remove_poller(off->engine, &off->poller);
	while (!list_empty(&off->ctrls))
		ctrl_free(list_entry(off->ctrls.next, struct offload_ctrl, node));
	while ((node = list_pop(&off->qps))) {
		struct offload_qp *qp = list_entry(node, struct offload_qp, node);

		if (qp->qp)
			qp_set_capsule_state(qp->qp, NULL);
		free(qp);
	}
	engine_unlock(off->engine);
	free_offload(off);
}

uint32_t offload_hidden_wrs(const struct offload *off)
{
	/* data and response of as many commands as the controller can have, within reason */
	return MIN(MAX(2 * off->attrs.nvme_queue_depth, 32), 512);
}

void offload_query_srq(struct offload *off, struct softhca_nvmf_srq_stats *stats)
{
	engine_lock(off->engine);
	*stats = off->stats;
	engine_unlock(off->engine);
}

void offload_prp_lists(const struct offload *off, const void **addr, size_t *len)
{
	*addr = off->prps.lists;
	*len = off->prps.lists_len;
}

/* ---- namespaces ----------------------------------------------------------- */

static struct list_node *bucket_of(struct offload *off, uint32_t nsid)
{
	return &off->buckets[nsid & off->bucket_mask];
}

static struct offload_ns *find_mapped(struct offload *off, uint32_t fe_nsid)
{
	struct list_node *pos, *bucket = bucket_of(off, fe_nsid);

	list_for_each(pos, bucket) {
		struct offload_ns *ns = list_entry(pos, struct offload_ns, bucket);

		if (ns->fe_nsid == fe_nsid)
			return ns;
	}
	return NULL;
}

struct offload_ns *namespace_find(struct offload *off, uint32_t fe_nsid)
{
	struct offload_ns *ns = find_mapped(off, fe_nsid);

	return ns && !ns->unmapping ? ns : NULL;
}

static bool nsid_valid(uint32_t nsid)
{
	return nsid && nsid != NVME_NSID_ALL;
}

int offload_map(struct offload_ctrl *ctrl, uint32_t fe_nsid, uint32_t lba_size, uint32_t nvme_nsid)
{
	struct offload *off = ctrl->offload;
	struct offload_ns *ns = NULL;
	int ret = 0;

	if (!nsid_valid(fe_nsid) || !nsid_valid(nvme_nsid) ||
	    fe_nsid > offload_caps.max_frontend_nsid || !is_power_of_two(lba_size) ||
	    lba_size < 512 || lba_size > 32768)
		return EINVAL;
	engine_lock(off->engine);
	if (find_mapped(off, fe_nsid)) {
		ret = EEXIST;
		goto out_unlock;
	}
	for (uint32_t i = 0; i < off->attrs.max_namespaces && !ns; i++)
		if (!off->namespaces[i].used)
			ns = &off->namespaces[i];
	if (!ns) {
		ret = ENOSPC;
		goto out_unlock;
	}
	*ns = (struct offload_ns){
		.used = true,
		.fe_nsid = fe_nsid,
		.nvme_nsid = nvme_nsid,
		.lba_size = lba_size,
		.ctrl = ctrl,
	};
	list_add_tail(bucket_of(off, fe_nsid), &ns->bucket);
	ctrl->mapped++;
out_unlock:
	engine_unlock(off->engine);
	return ret;
}

/*
 * The bound is over: what is left is not at the controller (that would have timed out), but waits
 * for a host that neither sends nor fails. When it goes on, it finds no namespace.
 */
static void detach_commands(struct offload *off, struct offload_ns *ns)
{
	struct list_node *pos, *qpos;

	list_for_each(qpos, &off->qps) {
		struct offload_qp *qp = list_entry(qpos, struct offload_qp, node);

		list_for_each(pos, &qp->commands) {
			struct offload_command *cmd =
				list_entry(pos, struct offload_command, qp_node);

			if (cmd->ns != ns)
				continue;
			cmd->ns = NULL;
			ns->in_flight--;
		}
	}
}

int offload_unmap(struct offload_ctrl *ctrl, uint32_t fe_nsid)
{
	struct offload *off = ctrl->offload;
	struct offload_ns *ns;
	uint64_t give_up_ns;

	engine_lock(off->engine);
	ns = namespace_find(off, fe_nsid);
	if (!ns || ns->ctrl != ctrl) {
		engine_unlock(off->engine);
		return ENOENT;
	}
	ns->unmapping = true;
	give_up_ns = clock_ns() + ctrl->timeout_ns + UNMAP_GRACE_NS;
	while (ns->in_flight && clock_ns() < give_up_ns) {
		/* without the lock: the engine goes on, by us if nobody else drives it */
		engine_unlock(off->engine);
		if (!engine_poll(off->engine))
			usleep(UNMAP_POLL_US);
		engine_lock(off->engine);
	}
	if (ns->in_flight)
		detach_commands(off, ns);
	list_del(&ns->bucket);
	ns->used = false;
	ctrl->mapped--;
	engine_unlock(off->engine);
	return 0;
}

int offload_query_ns(struct offload_ctrl *ctrl, uint32_t fe_nsid, struct ibv_nvmf_ns_stats *stats)
{
	struct offload *off = ctrl->offload;
	struct offload_ns *ns;
	int ret = ENOENT;

	engine_lock(off->engine);
	ns = namespace_find(off, fe_nsid);
	if (ns && ns->ctrl == ctrl) {
		*stats = ns->stats;
		ret = 0;
	}
	engine_unlock(off->engine);
	return ret;
}
