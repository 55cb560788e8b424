// SPDX-License-Identifier: BSD-2-Clause
/*
 * ctrl.c: driving an NVMe controller: command identifiers, submission and completion queue, their
 * doorbells, timeouts, a controller that is dead. What the controller writes is not trusted more
 * than a packet.
 */
#include <errno.h>
#include <stdlib.h>

#include "nvme/spec.h"
#include "offload/internal.h"
#include "util/bytes.h"
#include "util/clock.h"
#include "util/counters.h"
#include "util/log.h"

/* a drive whose doorbells nobody announces writes CQEs that nobody announces: look this often */
#define DRIVE_POLL_NS (50 * NSEC_PER_USEC)

/* all live controllers of the process: their memory is exclusive */
static struct {
	pthread_mutex_t lock;
	struct list_node ctrls;
	unsigned int count;
} registry = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.ctrls = { &registry.ctrls, &registry.ctrls },
};

/* the SRQ whose doorbell this thread is ringing: what it says then, we shall see anyway */
static __thread struct offload *ringing;

static void ring(struct offload_ctrl *ctrl, const struct doorbell_ring *r)
{
	if (!r->fn)
		return;
	ringing = ctrl->offload;
	r->fn(r->arg, r->offset);
	ringing = NULL;
}

void offload_cq_notify(struct offload *off)
{
	if (ringing != off)
		engine_kick(off->engine);
}

static void raise_event(struct offload_ctrl *ctrl, enum ibv_event_type type)
{
	struct hca_context *ctx = ctrl->offload->srq->ctx;

	if (ctx->event)
		ctx->event(ctx, type, ctrl->owner);
}

/* ---- submission ----------------------------------------------------------- */

static struct nvme_sqe build_sqe(const struct offload_command *cmd, uint16_t cid)
{
	struct nvme_sqe sqe = {
		.opcode = cmd->in.opcode,
		.cid = htole16(cid),
		.nsid = htole32(cmd->ns->nvme_nsid),
		.cdw10 = cmd->in.cdw[0],
		.cdw11 = cmd->in.cdw[1],
		.cdw12 = cmd->in.cdw[2],
		.cdw13 = cmd->in.cdw[3],
		.cdw14 = cmd->in.cdw[4],
		.cdw15 = cmd->in.cdw[5],
	};
	uint64_t prp1, prp2;

	if (cmd->staging_pages) {
		prp_table_get(&cmd->offload->prps, cmd->staging_first, cmd->staging_pages, &prp1,
			      &prp2);
		sqe.prp1 = htole64(prp1);
		sqe.prp2 = htole64(prp2);
	}
	return sqe;
}

static bool has_room(const struct offload_ctrl *ctrl)
{
	/* no more than depth - 1 in flight, so the CQ has an entry for each */
	return ctrl->free_count && nvme_sq_room(&ctrl->sq);
}

static void submit(struct offload_ctrl *ctrl, struct offload_command *cmd)
{
	uint16_t index = ctrl->free_slots[ctrl->free_head];
	struct ctrl_slot *slot = &ctrl->slots[index];
	struct nvme_sqe sqe;

	ctrl->free_head = ctrl->free_head + 1 == ctrl->slot_count ? 0 : ctrl->free_head + 1;
	ctrl->free_count--;
	slot->generation++;
	slot->command = cmd;
	cmd->slot = index;
	cmd->at_backend = true;
	cmd->state = CMD_BACKEND;
	sqe = build_sqe(cmd, (uint16_t)(index | (uint32_t)slot->generation << ctrl->slot_bits));
	nvme_sq_post(&ctrl->sq, &sqe);
	command_start_timer(cmd);
}

bool ctrl_submit(struct offload_ctrl *ctrl, struct offload_command *cmd)
{
	if (!list_empty(&ctrl->wait_sq) || !has_room(ctrl))
		return false;
	submit(ctrl, cmd);
	return true;
}

static void free_slot(struct offload_ctrl *ctrl, uint16_t index)
{
	uint32_t at = ctrl->free_head + ctrl->free_count;

	ctrl->slots[index].command = NULL;
	ctrl->free_slots[at < ctrl->slot_count ? at : at - ctrl->slot_count] = index;
	ctrl->free_count++;
}

/* ---- completion ----------------------------------------------------------- */

static void die(struct offload_ctrl *ctrl, const char *why)
{
	struct list_node *pos, *tmp;

	log_warn("offload: NVMe controller is dead: %s", why);
	ctrl->dead = true;
	raise_event(ctrl, IBV_EVENT_NVME_CTRL_PCI_ERR);
	/* those that have reached it, and those that wait for it */
	list_for_each_safe(pos, tmp, &ctrl->timed)
		command_give_up(list_entry(pos, struct offload_command, timer_node));
}

static bool all_ones(const struct nvme_cqe *cqe)
{
	static const uint8_t ones[sizeof(*cqe)] = { [0 ... sizeof(*cqe) - 1] = 0xff };

	return !memcmp(cqe, ones, sizeof(*cqe));
}

static void take_cqe(struct offload_ctrl *ctrl, const struct nvme_cqe *cqe)
{
	uint16_t cid = le16toh(cqe->cid), sqhd = le16toh(cqe->sqhd);
	uint16_t index = cid & (uint16_t)((1U << ctrl->slot_bits) - 1);
	uint16_t generation_mask = (uint16_t)(0xffffU >> ctrl->slot_bits);
	struct offload_command *cmd;
	struct ctrl_slot *slot;

	if (all_ones(cqe)) {
		die(ctrl, "a completion of all ones");
		return;
	}
	if (sqhd >= ctrl->sq.depth) {
		die(ctrl, "an SQ head beyond the queue");
		return;
	}
	if (index >= ctrl->slot_count || !ctrl->slots[index].command ||
	    (ctrl->slots[index].generation & generation_mask) != cid >> ctrl->slot_bits) {
		counter_inc(CNT_NVMF_BAD_CQE);
		log_debug("offload: completion of unknown command id 0x%x ignored", cid);
		return;
	}
	/* stale where completions come out of order: the head never goes back */
	nvme_sq_update_head(&ctrl->sq, sqhd);
	slot = &ctrl->slots[index];
	cmd = slot->command;
	free_slot(ctrl, index);
	command_backend_done(cmd, cqe);
}

bool ctrl_progress(struct offload_ctrl *ctrl)
{
	bool work = false, seen = false;
	struct nvme_cqe *cqe, copy;
	struct list_node *node;
	uint32_t budget = ctrl->cq.depth;

	if (ctrl->dead)
		return false;
	while (has_room(ctrl) && (node = list_pop(&ctrl->wait_sq))) {
		struct offload_command *cmd = list_entry(node, struct offload_command, node);

		if (cmd->ns)
			submit(ctrl, cmd);
		else
			command_to_backend(cmd); /* unmapped: answers it */
	}
	if (nvme_sq_update_tail(&ctrl->sq)) {
		work = true;
		ring(ctrl, &ctrl->sq_ring);
	}
	while (!ctrl->dead && budget-- && (cqe = nvme_cq_peek(&ctrl->cq))) {
		if (!seen)
			ctrl->offload->now_ns = clock_ns();
		work = seen = true;
		copy = *cqe;
		nvme_cq_pop(&ctrl->cq);
		take_cqe(ctrl, &copy);
	}
	if (!ctrl->dead && nvme_cq_update_head(&ctrl->cq)) {
		ring(ctrl, &ctrl->cq_ring);
		ctrl_update_timer(ctrl);
	}
	return work;
}

/* ---- time ----------------------------------------------------------------- */

void ctrl_update_timer(struct offload_ctrl *ctrl)
{
	struct engine *engine = ctrl->offload->engine;
	uint64_t deadline;

	if (list_empty(&ctrl->timed)) {
		if (ctrl->timer.deadline_ns)
			engine_timer_cancel(engine, &ctrl->timer);
		return;
	}
	deadline = list_entry(ctrl->timed.next, struct offload_command, timer_node)->deadline_ns;
	if (!ctrl->sq_ring.fn && ctrl->free_count < ctrl->slot_count && !ctrl->dead)
		deadline = MIN(deadline, engine->now_ns + DRIVE_POLL_NS);
	/* moving it later can wait until it fires: one change per timeout, not per command */
	if (!ctrl->timer.deadline_ns || deadline < ctrl->timer.deadline_ns)
		engine_timer_set(engine, &ctrl->timer, deadline);
}

static void ctrl_timer(struct engine_timer *timer, uint64_t now_ns)
{
	struct offload_ctrl *ctrl = container_of(timer, struct offload_ctrl, timer);

	timer->deadline_ns = 0;
	/* what has come is not late */
	ctrl_progress(ctrl);
	while (!list_empty(&ctrl->timed)) {
		struct offload_command *cmd =
			list_entry(ctrl->timed.next, struct offload_command, timer_node);

		if (cmd->deadline_ns > now_ns)
			break;
		counter_inc(CNT_NVMF_TIMEOUT);
		log_debug("offload: command 0x%x timed out", cmd->in.cid);
		if (!ctrl->timeout_told)
			raise_event(ctrl, IBV_EVENT_NVME_CTRL_TIMEOUT);
		ctrl->timeout_told = true;
		list_del(&cmd->timer_node);
		command_give_up(cmd);
	}
	commands_post_responses(ctrl->offload);
	ctrl_update_timer(ctrl);
}

/* ---- life ----------------------------------------------------------------- */

static bool overlap(const struct offload_memory *a, const struct offload_memory *b)
{
	uintptr_t x = (uintptr_t)a->addr, y = (uintptr_t)b->addr;

	return x < y ? y - x < a->len : x - y < b->len;
}

static bool in_use(const struct offload_ctrl *ctrl)
{
	struct list_node *pos;

	list_for_each(pos, &registry.ctrls) {
		const struct offload_ctrl *other = list_entry(pos, struct offload_ctrl, registry);

		for (int i = 0; i < 4; i++)
			for (int j = 0; j < 4; j++)
				if (overlap(&ctrl->memory[i], &other->memory[j]))
					return true;
	}
	return false;
}

static bool memory_fits(const struct offload *off, const struct offload_memory *m, uint64_t len,
			uint64_t align)
{
	return m->mr && m->mr->pd == off->srq->pd && m->len == len &&
	       range_inside((uintptr_t)m->addr, len, (uintptr_t)m->mr->addr, m->mr->length) &&
	       !((uintptr_t)m->addr & (align - 1));
}

static int check_init(const struct offload *off, const struct offload_ctrl_init *init)
{
	uint64_t depth = off->attrs.nvme_queue_depth;

	if (!memory_fits(off, &init->sq, depth * sizeof(struct nvme_sqe), 64) ||
	    !memory_fits(off, &init->cq, depth * sizeof(struct nvme_cqe), 16) ||
	    !memory_fits(off, &init->sqdb, 4, 4) || !memory_fits(off, &init->cqdb, 4, 4))
		return EINVAL;
	if (!(init->sq.mr->access & IBV_ACCESS_LOCAL_WRITE))
		return EINVAL;
	if (init->sqdb_ini >= depth || init->cqdb_ini >= depth)
		return EINVAL;
	if (init->cmd_timeout_ms && (init->cmd_timeout_ms < offload_caps.min_cmd_timeout_ms ||
				     init->cmd_timeout_ms > offload_caps.max_cmd_timeout_ms))
		return EINVAL;
	return 0;
}

static struct doorbell_ring doorbell_ring(const struct offload_memory *db)
{
	return (struct doorbell_ring){
		.fn = db->mr->ring,
		.arg = db->mr->ring_arg,
		.offset = (size_t)(db->addr - db->mr->addr),
	};
}

/*
 * Phase of the next new entry. A queue that was used before tells it: the entry before the head
 * was the last one seen, and the phase turns over at the start of the ring. Untouched: 1.
 */
static uint8_t first_phase(const struct nvme_cq *cq)
{
	bool touched = false;

	for (uint32_t i = 0; i < cq->depth && !touched; i++)
		touched = cq->ring[i].status || cq->ring[i].cid || cq->ring[i].sqhd;
	if (!touched)
		return 1;
	if (cq->head)
		return le16toh(cq->ring[cq->head - 1].status) & 1;
	return !(le16toh(cq->ring[cq->depth - 1].status) & 1);
}

static int alloc_slots(struct offload_ctrl *ctrl, uint32_t depth)
{
	ctrl->slot_count = depth - 1;
	ctrl->slot_bits = 32 - (uint32_t)__builtin_clz(depth); /* so that no CID is 0xffff */
	ctrl->slots = calloc(ctrl->slot_count, sizeof(*ctrl->slots));
	ctrl->free_slots = calloc(ctrl->slot_count, sizeof(*ctrl->free_slots));
	if (!ctrl->slots || !ctrl->free_slots)
		return ENOMEM;
	for (uint32_t i = 0; i < ctrl->slot_count; i++)
		ctrl->free_slots[i] = (uint16_t)i;
	ctrl->free_count = ctrl->slot_count;
	return 0;
}

static void free_ctrl(struct offload_ctrl *ctrl)
{
	free(ctrl->slots);
	free(ctrl->free_slots);
	free(ctrl);
}

int offload_ctrl_create(struct offload_ctrl **out, struct offload *off,
			const struct offload_ctrl_init *init)
{
	uint32_t depth = off->attrs.nvme_queue_depth;
	struct offload_ctrl *ctrl;
	int ret = check_init(off, init);

	if (ret)
		return ret;
	ctrl = calloc(1, sizeof(*ctrl));
	if (!ctrl)
		return ENOMEM;
	ret = alloc_slots(ctrl, depth);
	if (ret)
		goto out_free;
	ctrl->offload = off;
	ctrl->owner = init->owner;
	ctrl->memory[0] = init->sq;
	ctrl->memory[1] = init->cq;
	ctrl->memory[2] = init->sqdb;
	ctrl->memory[3] = init->cqdb;
	ctrl->sq = (struct nvme_sq){
		.ring = (struct nvme_sqe *)(void *)init->sq.addr,
		.doorbell = (uint32_t *)(void *)init->sqdb.addr,
		.depth = depth,
		.tail = init->sqdb_ini,
		.head = init->sqdb_ini,
		.rung = init->sqdb_ini,
	};
	ctrl->cq = (struct nvme_cq){
		.ring = (struct nvme_cqe *)(void *)init->cq.addr,
		.doorbell = (uint32_t *)(void *)init->cqdb.addr,
		.depth = depth,
		.head = init->cqdb_ini,
		.rung = init->cqdb_ini,
	};
	ctrl->cq.phase = first_phase(&ctrl->cq);
	ctrl->sq_ring = doorbell_ring(&init->sqdb);
	ctrl->cq_ring = doorbell_ring(&init->cqdb);
	list_init(&ctrl->wait_sq);
	list_init(&ctrl->timed);
	ctrl->timer.fn = ctrl_timer;
	ctrl->timeout_ns = (init->cmd_timeout_ms ?: OFFLOAD_DEFAULT_TIMEOUT_MS) * NSEC_PER_MSEC;

	pthread_mutex_lock(&registry.lock);
	if (registry.count >= offload_caps.max_backend_ctrls_total ||
	    off->ctrl_count >= offload_caps.max_srq_backend_ctrls)
		ret = ENOSPC;
	else if (in_use(ctrl))
		ret = EBUSY;
	if (!ret) {
		list_add_tail(&registry.ctrls, &ctrl->registry);
		registry.count++;
		off->ctrl_count++;
	}
	pthread_mutex_unlock(&registry.lock);
	if (ret)
		goto out_free;

	engine_lock(off->engine);
	ret = engine_timer_reserve(off->engine, 1) ? ENOMEM : 0;
	if (!ret)
		list_add_tail(&off->ctrls, &ctrl->node);
	engine_unlock(off->engine);
	if (ret)
		goto out_unregister;
	*out = ctrl;
	return 0;

out_unregister:
	pthread_mutex_lock(&registry.lock);
	list_del(&ctrl->registry);
	registry.count--;
	off->ctrl_count--;
	pthread_mutex_unlock(&registry.lock);
out_free:
	free_ctrl(ctrl);
	return ret;
}

void ctrl_free(struct offload_ctrl *ctrl)
{
	struct offload *off = ctrl->offload;
	struct list_node *pos, *tmp;

	/* what it never answered: nobody does any more */
	list_for_each_safe(pos, tmp, &ctrl->timed)
		command_give_up(list_entry(pos, struct offload_command, timer_node));
	for (uint32_t i = 0; i < ctrl->slot_count; i++) {
		struct offload_command *cmd = ctrl->slots[i].command;

		if (!cmd)
			continue;
		cmd->at_backend = false;
		command_settle(cmd);
	}
	if (ctrl->timer.deadline_ns)
		engine_timer_cancel(off->engine, &ctrl->timer);
	engine_timer_unreserve(off->engine, 1);
	list_del(&ctrl->node);
	pthread_mutex_lock(&registry.lock);
	list_del(&ctrl->registry);
	registry.count--;
	off->ctrl_count--;
	pthread_mutex_unlock(&registry.lock);
	free_ctrl(ctrl);
}

int offload_ctrl_remove(struct offload_ctrl *ctrl)
{
	struct engine *engine = ctrl->offload->engine;
	bool kick = false;

	engine_lock(engine);
	if (ctrl->mapped) {
		engine_unlock(engine);
		return EBUSY;
	}
	kick = !list_empty(&ctrl->offload->wait_staging);
	ctrl_free(ctrl);
	engine_unlock(engine);
	if (kick)
		engine_kick(engine);
	return 0;
}
