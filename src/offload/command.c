// SPDX-License-Identifier: BSD-2-Clause
/*
 * command.c: the way of one command: wait for staging, data in, to the controller, data out,
 * response. Each step either goes on at once or puts the command on exactly one list; nothing
 * blocks. A command is freed when neither the controller nor a hidden WR has anything of it.
 */
#include <errno.h>

#include "nvme/spec.h"
#include "offload/internal.h"
#include "util/bytes.h"
#include "util/clock.h"
#include "util/counters.h"
#include "util/log.h"

static void read_done(struct hidden_wr *wr, struct hca_qp *qp, enum ibv_wc_status status);
static void write_done(struct hidden_wr *wr, struct hca_qp *qp, enum ibv_wc_status status);
static void response_done(struct hidden_wr *wr, struct hca_qp *qp, enum ibv_wc_status status);

/* ---- life ----------------------------------------------------------------- */

struct offload_command *command_alloc(struct offload *off, struct offload_qp *qp)
{
	struct list_node *node = list_pop(&off->free);
	struct offload_command *cmd;

	if (!node)
		return NULL;
	cmd = list_entry(node, struct offload_command, node);
	*cmd = (struct offload_command){
		.state = CMD_RECEIVING,
		.offload = off,
		.qp = qp,
		.arrived_ns = off->engine->now_ns,
	};
	list_init(&cmd->node);
	list_init(&cmd->timer_node);
	list_add_tail(&qp->commands, &cmd->qp_node);
	return cmd;
}

void command_enter(struct offload_command *cmd, struct offload_ns *ns)
{
	cmd->ns = ns;
	cmd->ctrl = ns->ctrl;
	ns->in_flight++;
	ns->stats.queue_depth = ns->in_flight;
	ns->stats.peak_queue_depth = MAX(ns->stats.peak_queue_depth, ns->in_flight);
}

static void leave_namespace(struct offload_command *cmd)
{
	if (!cmd->ns)
		return;
	cmd->ns->in_flight--;
	cmd->ns->stats.queue_depth = cmd->ns->in_flight;
	cmd->ns = NULL;
}

static void give_staging(struct offload_command *cmd)
{
	struct offload *off = cmd->offload;

	if (!cmd->staging_pages)
		return;
	staging_give(&off->staging, cmd->staging_first, cmd->staging_pages);
	if (cmd->qp)
		cmd->qp->staging_pages -= cmd->staging_pages;
	cmd->staging_pages = 0;
	off->staging_freed = true;
}

static void give_capsule_data(struct offload_command *cmd)
{
	struct offload *off = cmd->offload;

	if (cmd->capsule_data)
		off->capsule_free[off->capsule_free_count++] = cmd->capsule_data;
	cmd->capsule_data = NULL;
}

static void stop_timer(struct offload_command *cmd)
{
	/* ctrl->timer may fire once too early: it then finds nothing to do */
	list_del(&cmd->timer_node);
}

/* the list that it waits in, if any */
static void leave_list(struct offload_command *cmd)
{
	list_del(&cmd->node);
	if (cmd->state != CMD_WAIT_STAGING)
		return;
	/* those behind may need less */
	cmd->offload->staging_freed = true;
	if (cmd->qp && list_empty(&cmd->qp->wait_staging))
		list_del(&cmd->qp->staging_queue);
}

void command_settle(struct offload_command *cmd)
{
	struct offload_qp *qp = cmd->qp;

	if (cmd->wrs || cmd->want_read || cmd->want_write || cmd->want_response)
		return;
	/* the QP waits for the controller's answer, but not for ever */
	if (qp && (!cmd->at_backend || cmd->timed_out)) {
		list_del(&cmd->qp_node);
		qp->staging_pages -= cmd->staging_pages;
		if (cmd->staging_pages) /* the controller's from now on: its QP may have more */
			cmd->offload->staging_freed = true;
		cmd->qp = NULL;
		offload_qp_check_last(qp);
	}
	if (cmd->at_backend)
		return;
	stop_timer(cmd);
	leave_namespace(cmd);
	give_staging(cmd);
	give_capsule_data(cmd);
	leave_list(cmd);
	cmd->state = CMD_FREE;
	list_add(&cmd->offload->free, &cmd->node);
}

void command_start_timer(struct offload_command *cmd)
{
	struct offload_ctrl *ctrl = cmd->ctrl;

	stop_timer(cmd);
	cmd->deadline_ns = cmd->offload->engine->now_ns + ctrl->timeout_ns;
	list_add_tail(&ctrl->timed, &cmd->timer_node);
	ctrl_update_timer(ctrl);
}

/*
 * A QP may hold half as much as is free, and one command's in any case: a host that does not take
 * its data, or has died, cannot hold everything until its QP fails; others go on.
 */
static bool has_its_share(const struct offload_qp *qp, const struct staging *staging,
			  uint32_t pages)
{
	return qp->staging_pages && 2 * ((uint64_t)qp->staging_pages + pages) > staging->free_pages;
}

enum take { TAKEN, HAS_ITS_SHARE, NONE_FREE };

static enum take take_staging(struct offload_command *cmd)
{
	struct staging *staging = &cmd->offload->staging;
	uint32_t pages = (uint32_t)div_round_up(cmd->transfer, staging->page_size);

	if (has_its_share(cmd->qp, staging, pages))
		return HAS_ITS_SHARE;
	if (!staging_take(staging, pages, &cmd->staging_first))
		return NONE_FREE;
	cmd->staging_pages = pages;
	cmd->qp->staging_pages += pages;
	return TAKEN;
}

bool command_take_staging(struct offload_command *cmd)
{
	struct offload *off = cmd->offload;
	enum take result;

	if (off->staging_wanted || !list_empty(&cmd->qp->wait_staging))
		return false;
	result = take_staging(cmd);
	if (result == NONE_FREE)
		off->staging_wanted = true;
	return result == TAKEN;
}

uint8_t *command_staging(const struct offload_command *cmd)
{
	return staging_addr(&cmd->offload->staging, cmd->staging_first);
}

/* ---- hidden work requests ------------------------------------------------- */

static int post_data(struct offload_command *cmd, enum ibv_wr_opcode opcode,
		     void (*done)(struct hidden_wr *, struct hca_qp *, enum ibv_wc_status))
{
	int ret;

	cmd->data_wr = (struct hidden_wr){
		.opcode = opcode,
		.addr = command_staging(cmd),
		.length = cmd->transfer,
		.remote_addr = cmd->in.addr,
		.rkey = cmd->in.key,
		.done = done,
	};
	ret = qp_post_hidden(cmd->qp->qp, &cmd->data_wr);
	if (!ret)
		cmd->wrs++;
	return ret;
}

static int post_response(struct offload_command *cmd)
{
	int ret;

	cmd->response.sqhd = htole16((uint16_t)cmd->qp->sqhd);
	cmd->response.sqid = htole16(cmd->qp->qid);
	cmd->response_wr = (struct hidden_wr){
		.opcode = cmd->in.invalidate ? IBV_WR_SEND_WITH_INV : IBV_WR_SEND,
		.addr = &cmd->response,
		.length = sizeof(cmd->response),
		.rkey = cmd->in.invalidate ? cmd->in.key : 0,
		.done = response_done,
	};
	ret = qp_post_hidden(cmd->qp->qp, &cmd->response_wr);
	if (!ret)
		cmd->wrs++;
	return ret;
}

/* post what is wanted, in order. Return: 0, -EAGAIN: the rest when there is room */
static int post_wanted(struct offload_command *cmd)
{
	int ret = 0;

	if (cmd->want_read) {
		ret = post_data(cmd, IBV_WR_RDMA_READ, read_done);
		cmd->want_read = ret == -EAGAIN;
	}
	if (!ret && cmd->want_write) {
		ret = post_data(cmd, IBV_WR_RDMA_WRITE, write_done);
		cmd->want_write = ret == -EAGAIN;
	}
	if (!ret && cmd->want_response) {
		ret = post_response(cmd);
		cmd->want_response = ret == -EAGAIN;
	}
	if (ret == -EAGAIN)
		return ret;
	if (ret) {
		/* the QP left RTS; qp_down is on its way or was here */
		cmd->dropped = true;
		cmd->want_read = cmd->want_write = cmd->want_response = false;
		command_settle(cmd);
	}
	return 0;
}

/* post what is wanted, or queue up behind those of the QP that wait already */
static void post_or_wait(struct offload_command *cmd)
{
	if (!list_empty(&cmd->qp->wait_room) || post_wanted(cmd) == -EAGAIN)
		list_add_tail(&cmd->qp->wait_room, &cmd->node);
}

void commands_post_waiting(struct offload_qp *qp)
{
	while (!list_empty(&qp->wait_room)) {
		struct offload_command *cmd =
			list_entry(qp->wait_room.next, struct offload_command, node);

		list_del(&cmd->node);
		if (post_wanted(cmd) != -EAGAIN)
			continue;
		list_add(&qp->wait_room, &cmd->node);
		return;
	}
}

bool commands_post_responses(struct offload *off)
{
	struct list_node *node;
	bool any = false;

	while ((node = list_pop(&off->respond))) {
		post_or_wait(list_entry(node, struct offload_command, node));
		any = true;
	}
	return any;
}

/* data of a WRITE have come, or the QP has failed */
static void read_done(struct hidden_wr *wr, struct hca_qp *qp, enum ibv_wc_status status)
{
	struct offload_command *cmd = container_of(wr, struct offload_command, data_wr);

	cmd->wrs--;
	if (status != IBV_WC_SUCCESS)
		cmd->dropped = true;
	if (cmd->dropped)
		command_settle(cmd);
	else
		command_to_backend(cmd);
}

static void write_done(struct hidden_wr *wr, struct hca_qp *qp, enum ibv_wc_status status)
{
	struct offload_command *cmd = container_of(wr, struct offload_command, data_wr);

	cmd->wrs--;
	give_staging(cmd);
	command_settle(cmd);
}

static void response_done(struct hidden_wr *wr, struct hca_qp *qp, enum ibv_wc_status status)
{
	struct offload_command *cmd = container_of(wr, struct offload_command, response_wr);

	cmd->wrs--;
	command_settle(cmd);
}

/* ---- the way -------------------------------------------------------------- */

/* staging is there, or none is needed */
static void go_with_staging(struct offload_command *cmd)
{
	stop_timer(cmd);
	if (cmd->in.opcode != NVME_CMD_WRITE) {
		command_to_backend(cmd);
		return;
	}
	if (cmd->in.in_capsule) {
		if (cmd->capsule_data)
			memcpy(command_staging(cmd), cmd->capsule_data, cmd->transfer);
		give_capsule_data(cmd);
		command_to_backend(cmd);
		return;
	}
	cmd->state = CMD_DATA_IN;
	cmd->want_read = true;
	post_or_wait(cmd);
}

void command_go(struct offload_command *cmd)
{
	struct offload *off = cmd->offload;

	if (!cmd->refused && !cmd->ns) /* unmapped while the capsule came in */
		cmd->refused = NVME_SC_INVALID_NAMESPACE | NVME_STATUS_DNR;
	if (cmd->refused) {
		command_respond(cmd, cmd->refused, 0, 0);
		return;
	}
	if (!cmd->transfer || cmd->staging_pages) {
		go_with_staging(cmd);
		return;
	}
	if (command_take_staging(cmd)) {
		go_with_staging(cmd);
		return;
	}
	off->stats.waits_staging++;
	cmd->state = CMD_WAIT_STAGING;
	if (list_empty(&cmd->qp->wait_staging))
		list_add_tail(&off->wait_staging, &cmd->qp->staging_queue);
	list_add_tail(&cmd->qp->wait_staging, &cmd->node);
	if (cmd->ctrl->dead)
		command_respond(cmd, STATUS_PATH_ERROR, 0, 0);
	else
		command_start_timer(cmd);
}

/* QPs in turn, one command each; a large command is not overtaken for ever */
void commands_run_waiters(struct offload *off)
{
	struct list_node content;

	if (!off->staging_freed)
		return;
	off->staging_freed = off->staging_wanted = false;
	list_init(&content);
	while (!list_empty(&off->wait_staging)) {
		struct offload_qp *qp =
			list_entry(off->wait_staging.next, struct offload_qp, staging_queue);
		struct offload_command *cmd =
			list_entry(qp->wait_staging.next, struct offload_command, node);
		enum take result = take_staging(cmd);

		off->staging_wanted = result == NONE_FREE;
		if (off->staging_wanted)
			break;
		list_del(&qp->staging_queue);
		if (result == HAS_ITS_SHARE) {
			list_add_tail(&content, &qp->staging_queue);
			continue;
		}
		list_del(&cmd->node);
		if (!list_empty(&qp->wait_staging))
			list_add_tail(&off->wait_staging, &qp->staging_queue);
		cmd->state = CMD_DATA_IN;
		go_with_staging(cmd);
	}
	list_splice_tail(&off->wait_staging, &content);
}

void command_to_backend(struct offload_command *cmd)
{
	if (!cmd->ns) {
		/* unmapped in the meantime, which did not want to wait any longer */
		command_respond(cmd, NVME_SC_INVALID_NAMESPACE | NVME_STATUS_DNR, 0, 0);
		return;
	}
	if (cmd->ctrl->dead) {
		command_give_up(cmd);
		return;
	}
	if (!ctrl_submit(cmd->ctrl, cmd)) {
		cmd->offload->stats.waits_sq++;
		cmd->state = CMD_WAIT_SQ;
		list_add_tail(&cmd->ctrl->wait_sq, &cmd->node);
		command_start_timer(cmd);
	}
}

static void count_latency(struct offload_command *cmd)
{
	uint64_t now = cmd->offload->now_ns;
	uint64_t latency = now > cmd->arrived_ns ? now - cmd->arrived_ns : 0;
	struct ibv_nvmf_ns_stats *stats = &cmd->ns->stats;

	if (cmd->in.opcode == NVME_CMD_READ) {
		stats->last_read_latency_ns = latency;
		stats->total_read_latency_ns += latency;
	} else if (cmd->in.opcode == NVME_CMD_WRITE) {
		stats->last_write_latency_ns = latency;
		stats->total_write_latency_ns += latency;
	}
}

void command_respond(struct offload_command *cmd, uint16_t status, uint32_t dw0, uint32_t dw1)
{
	stop_timer(cmd);
	leave_namespace(cmd);
	leave_list(cmd);
	cmd->state = CMD_RESPONDING;
	cmd->response = (struct nvme_cqe){
		.dw0 = dw0,
		.dw1 = dw1,
		.cid = htole16(cmd->in.cid),
		.status = htole16(NVME_STATUS_TO_FIELD(status)),
	};
	cmd->want_response = true;
	list_add_tail(&cmd->offload->respond, &cmd->node);
}

void command_backend_done(struct offload_command *cmd, const struct nvme_cqe *cqe)
{
	uint16_t status = NVME_STATUS_FROM_FIELD(le16toh(cqe->status));
	bool failed = status & 0x7ff;

	cmd->at_backend = false;
	if (cmd->timed_out) {
		log_debug("offload: late completion, command 0x%x", cmd->in.cid);
		command_settle(cmd);
		return;
	}
	if (cmd->ns) {
		count_latency(cmd);
		if (failed)
			cmd->ns->stats.num_backend_error_cmd++;
	}
	if (failed)
		counter_inc(CNT_NVMF_BACKEND_ERROR);
	/* PRPs are a matter between us and the controller */
	if ((status & 0x7ff) == NVME_SC_PRP_OFFSET)
		status = (uint16_t)((status & ~0x7ff) | NVME_SC_INTERNAL);
	if (cmd->dropped) {
		command_settle(cmd);
		return;
	}
	command_respond(cmd, status, cqe->dw0, cqe->dw1);
	if (cmd->in.opcode != NVME_CMD_READ || failed)
		return;
	/* data first, for all of the batch; the responses follow together */
	cmd->want_write = true;
	if (!list_empty(&cmd->qp->wait_room))
		return;
	switch (post_data(cmd, IBV_WR_RDMA_WRITE, write_done)) {
	case 0:
		cmd->want_write = false;
		break;
	case -EAGAIN: /* again when the responses are posted */
		break;
	default:
		command_drop(cmd);
	}
}

void command_give_up(struct offload_command *cmd)
{
	if (cmd->ns)
		cmd->ns->stats.num_backend_error_cmd++;
	counter_inc(CNT_NVMF_BACKEND_ERROR);
	cmd->timed_out = cmd->at_backend;
	if (cmd->dropped) {
		stop_timer(cmd);
		leave_namespace(cmd);
		command_settle(cmd);
		return;
	}
	command_respond(cmd, STATUS_PATH_ERROR, 0, 0);
}

void command_drop(struct offload_command *cmd)
{
	cmd->dropped = true;
	cmd->want_read = cmd->want_write = cmd->want_response = false;
	leave_list(cmd);
	command_settle(cmd);
}
