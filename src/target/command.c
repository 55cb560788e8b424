// SPDX-License-Identifier: BSD-2-Clause
/*
 * command.c: one command from the SQE to its result: which data it moves, who executes it.
 */
#include "target/model.h"

#include <string.h>

#include "util/bytes.h"
#include "util/clock.h"
#include "util/log.h"

void window_put(struct window *window, const void *data, size_t len)
{
	uint64_t begin = window->at, end = begin + len;
	uint64_t part_end = window->offset + window->len;

	window->at = end;
	if (end <= window->offset || begin >= part_end)
		return;
	begin = MAX(begin, window->offset);
	end = MIN(end, part_end);
	memcpy(window->out + (begin - window->offset),
	       (const uint8_t *)data + (begin - (window->at - len)), end - begin);
}

static bool is_fabrics(const struct command *cmd)
{
	return cmd->sqe.opcode == NVME_CMD_FABRICS;
}

/* what an SQE must be for any queue (fabrics 1.1, 2.1 and 3.1) */
static uint16_t check_sqe(const struct command *cmd)
{
	const struct queue *queue = cmd->queue;
	bool connect = is_fabrics(cmd) && ((const uint8_t *)&cmd->sqe)[4] == NVME_FABRICS_CONNECT;

	if ((cmd->sqe.flags & NVME_SQE_PSDT_MASK) != NVME_SQE_PSDT_SGL)
		return NVME_SC_INVALID_FIELD | DNR;
	if (cmd->sqe.flags & NVME_SQE_FUSE_MASK)
		return NVME_SC_INVALID_FIELD | DNR;
	/* Connect is the first command and comes once */
	if (connect == queue->connected)
		return NVME_SC_COMMAND_SEQUENCE | DNR;
	if (queue->connected && !queue->ctrl)
		return NVME_SC_COMMAND_SEQUENCE | DNR;
	if (!is_fabrics(cmd) && (queue->ctrl->cc & NVME_CC_EN) != NVME_CC_EN)
		return NVME_SC_COMMAND_SEQUENCE | DNR;
	return NVME_SC_SUCCESS;
}

uint16_t command_transfer(const struct command *cmd, struct transfer *transfer)
{
	uint16_t status;

	*transfer = (struct transfer){ 0 };
	status = check_sqe(cmd);
	if (status)
		return status;
	if (is_fabrics(cmd))
		status = fabrics_transfer(cmd, transfer);
	else if (cmd->queue->qid)
		status = io_transfer(cmd, transfer);
	else
		status = admin_transfer(cmd, transfer);
	return status;
}

bool command_execute(struct command *cmd)
{
	struct queue *queue = cmd->queue;

	cmd->status = NVME_SC_SUCCESS;
	cmd->dw0 = cmd->dw1 = 0;
	if (queue->ctrl)
		queue->ctrl->last_seen_ns = clock_ns();
	if (is_fabrics(cmd)) {
		cmd->status = fabrics_execute(cmd);
		return true;
	}
	/* the queue may have lost its controller while the data came */
	if (!queue->ctrl) {
		cmd->status = NVME_SC_COMMAND_SEQUENCE | DNR;
		return true;
	}
	if (!queue->qid)
		return admin_execute(cmd);
	queue->ctrl->subsystem->software_opcodes[cmd->sqe.opcode]++;
	cmd->status = io_execute(cmd);
	return true;
}
