// SPDX-License-Identifier: BSD-2-Clause
/*
 * fabrics.c: Fabrics commands: Connect with all its checks, Property Get and Set (NVMe over Fabrics
 * 1.1, 3.3 to 3.6).
 */
#include "target/model.h"

#include <string.h>

#include "util/bytes.h"
#include "util/log.h"

#define CAP_TO	     30 /* 500 ms each */
#define CAP_CQR	     (1ULL << 16)
#define CAP_CSS_NVM  (1ULL << 37)
#define ATTRIB_SIZE  7
#define ATTRIB_8BYTE 1

static const uint64_t cap = (TARGET_QUEUE_ENTRIES - 1) | CAP_CQR | (uint64_t)CAP_TO << 24 |
			    CAP_CSS_NVM;

static uint8_t fctype(const struct command *cmd)
{
	return ((const uint8_t *)&cmd->sqe)[4];
}

uint16_t fabrics_transfer(const struct command *cmd, struct transfer *transfer)
{
	switch (fctype(cmd)) {
	case NVME_FABRICS_CONNECT:
		*transfer = (struct transfer){ TRANSFER_TO_CONTROLLER,
					       sizeof(struct nvmf_connect_data) };
		return NVME_SC_SUCCESS;
	case NVME_FABRICS_PROPERTY_GET:
	case NVME_FABRICS_PROPERTY_SET:
		/* properties are the admin queue's */
		return cmd->queue->qid ? NVME_SC_INVALID_OPCODE | DNR : NVME_SC_SUCCESS;
	default:
		return NVME_SC_INVALID_OPCODE | DNR;
	}
}

/* Connect Invalid Parameters: DW0 says where the wrong field is */
static uint16_t invalid_sqe_field(struct command *cmd, size_t offset)
{
	cmd->dw0 = (uint32_t)offset;
	return NVME_SC_CONNECT_INVALID | DNR;
}

static uint16_t invalid_data_field(struct command *cmd, size_t offset)
{
	cmd->dw0 = (uint32_t)offset | NVMF_CONNECT_IPO_IN_DATA;
	return NVME_SC_CONNECT_INVALID | DNR;
}

#define SQE_FIELD(field)  offsetof(struct nvmf_connect_sqe, field)
#define DATA_FIELD(field) offsetof(struct nvmf_connect_data, field)

static uint16_t connect_admin(struct command *cmd, const struct nvmf_connect_sqe *sqe,
			      const struct nvmf_connect_data *data, struct subsystem *subsystem)
{
	struct queue *queue = cmd->queue;

	if (le16toh(data->cntlid) != NVMF_CNTLID_DYNAMIC)
		return invalid_data_field(cmd, DATA_FIELD(cntlid));
	queue->ctrl = controller_create(queue, subsystem, data, le32toh(sqe->kato));
	if (!queue->ctrl)
		return NVME_SC_CONNECT_BUSY; /* without DNR: it may try again */
	return NVME_SC_SUCCESS;
}

static uint16_t connect_io(struct command *cmd, uint16_t qid, const struct nvmf_connect_data *data,
			   struct subsystem *subsystem)
{
	struct queue *queue = cmd->queue;
	struct controller *ctrl = controller_find(queue->target, le16toh(data->cntlid));

	if (!ctrl || ctrl->subsystem != subsystem)
		return invalid_data_field(cmd, DATA_FIELD(cntlid));
	if (strcmp(ctrl->hostnqn, data->hostnqn))
		return invalid_data_field(cmd, DATA_FIELD(hostnqn));
	if (memcmp(ctrl->hostid, data->hostid, sizeof(ctrl->hostid)))
		return invalid_data_field(cmd, DATA_FIELD(hostid));
	if (!(ctrl->cc & NVME_CC_EN) || !(ctrl->csts & NVME_CSTS_RDY))
		return invalid_sqe_field(cmd, SQE_FIELD(qid));
	if (qid > ctrl->granted_queues || ctrl->io[qid])
		return invalid_sqe_field(cmd, SQE_FIELD(qid));
	ctrl->io[qid] = queue;
	queue->ctrl = ctrl;
	return NVME_SC_SUCCESS;
}

static uint16_t connect_queue(struct command *cmd)
{
	const struct nvmf_connect_sqe *sqe = (const void *)&cmd->sqe;
	const struct nvmf_connect_data *data = (const void *)cmd->data;
	struct queue *queue = cmd->queue;
	uint16_t qid = le16toh(sqe->qid), sqsize = le16toh(sqe->sqsize), status;
	struct subsystem *subsystem;

	if (le16toh(sqe->recfmt))
		return NVME_SC_CONNECT_FORMAT | DNR;
	if (cmd->data_len < sizeof(*data))
		return NVME_SC_INVALID_FIELD | DNR;
	if (qid != queue->cm_qid)
		return invalid_sqe_field(cmd, SQE_FIELD(qid));
	if (!sqsize || sqsize >= TARGET_QUEUE_ENTRIES || sqsize > queue->cm_entries)
		return invalid_sqe_field(cmd, SQE_FIELD(sqsize));
	if (!memchr(data->subnqn, 0, sizeof(data->subnqn)))
		return invalid_data_field(cmd, DATA_FIELD(subnqn));
	if (!memchr(data->hostnqn, 0, sizeof(data->hostnqn)) || !*data->hostnqn)
		return invalid_data_field(cmd, DATA_FIELD(hostnqn));
	subsystem = port_find_subsystem(queue->port, queue->target, data->subnqn);
	if (!subsystem)
		return invalid_data_field(cmd, DATA_FIELD(subnqn));
	if (!subsystem_host_allowed(subsystem, data->hostnqn))
		return NVME_SC_CONNECT_HOST | DNR;
	if (qid && subsystem->discovery)
		return invalid_sqe_field(cmd, SQE_FIELD(qid));
	if (qid)
		status = connect_io(cmd, qid, data, subsystem);
	else
		status = connect_admin(cmd, sqe, data, subsystem);
	if (status)
		return status;
	queue->connected = true;
	queue->qid = qid;
	queue->sqsize = sqsize;
	cmd->dw0 = queue->ctrl->cntlid;
	queue->ops->connected(queue);
	return NVME_SC_SUCCESS;
}

static uint16_t property_get(struct command *cmd)
{
	const struct nvmf_property_sqe *sqe = (const void *)&cmd->sqe;
	const struct controller *ctrl = cmd->queue->ctrl;
	bool wide = (sqe->attrib & ATTRIB_SIZE) == ATTRIB_8BYTE;
	uint64_t value;

	if ((sqe->attrib & ATTRIB_SIZE) > ATTRIB_8BYTE)
		return NVME_SC_INVALID_FIELD | DNR;
	switch (le32toh(sqe->offset)) {
	case NVME_REG_CAP:
		if (!wide)
			return NVME_SC_INVALID_FIELD | DNR;
		value = cap;
		break;
	case NVME_REG_VS:
		value = NVME_VS_1_4;
		break;
	case NVME_REG_CC:
		value = ctrl->cc;
		break;
	case NVME_REG_CSTS:
		value = ctrl->csts;
		break;
	default:
		return NVME_SC_INVALID_FIELD | DNR;
	}
	if (wide && le32toh(sqe->offset) != NVME_REG_CAP)
		return NVME_SC_INVALID_FIELD | DNR;
	cmd->dw0 = (uint32_t)value;
	cmd->dw1 = (uint32_t)(value >> 32);
	return NVME_SC_SUCCESS;
}

static uint16_t property_set(struct command *cmd)
{
	const struct nvmf_property_sqe *sqe = (const void *)&cmd->sqe;

	if ((sqe->attrib & ATTRIB_SIZE) || le32toh(sqe->offset) != NVME_REG_CC)
		return NVME_SC_INVALID_FIELD | DNR;
	controller_set_cc(cmd->queue->ctrl, (uint32_t)le64toh(sqe->value));
	return NVME_SC_SUCCESS;
}

uint16_t fabrics_execute(struct command *cmd)
{
	if (fctype(cmd) == NVME_FABRICS_CONNECT) {
		uint16_t status = connect_queue(cmd);

		if (status)
			log_debug("Connect refused: status 0x%x, DW0 0x%x", status & ~DNR,
				  cmd->dw0);
		return status;
	}
	if (!cmd->queue->ctrl)
		return NVME_SC_COMMAND_SEQUENCE | DNR;
	if (fctype(cmd) == NVME_FABRICS_PROPERTY_GET)
		return property_get(cmd);
	return property_set(cmd);
}
