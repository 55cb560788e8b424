// SPDX-License-Identifier: BSD-2-Clause
/*
 * admin.c: admin commands: Identify, features, AER, Abort, Keep Alive. What is not mandatory and
 * not announced gets Invalid Opcode or Invalid Field.
 */
#include "target/model.h"

#include <stdio.h>
#include <string.h>

#include "util/bytes.h"

#define ONCS_COMPARE	  (1U << 0)
#define ONCS_DSM	  (1U << 2)
#define ONCS_WRITE_ZEROES (1U << 3)
#define ONCS_VERIFY	  (1U << 7)
/* SGLs without alignment, keyed, data block at an offset in the capsule */
#define SGLS_SUPPORTED	0x00100005U
#define LPA_EFFECTS	0x02
#define LPA_EXTENDED	0x04
#define FEATURE_SAVE	(1U << 31)
#define GET_HOST_ID_EXT 1U
#define HOST_ID_BYTES	16

static void put_ascii(uint8_t *out, size_t size, const char *text)
{
	size_t len = MIN(strlen(text), size);

	memset(out, ' ', size);
	memcpy(out, text, len);
}

/* ---- Identify ---- */

static void identify_controller(const struct controller *ctrl, uint8_t *out)
{
	const struct subsystem *s = ctrl->subsystem;

	put_ascii(out + IDCTRL_SN, 20, s->serial);
	put_ascii(out + IDCTRL_MN, 40, s->model);
	put_ascii(out + IDCTRL_FR, 8, SOFTHCA_VERSION);
	out[IDCTRL_MDTS] = TARGET_MDTS;
	put_le16(out + IDCTRL_CNTLID, ctrl->cntlid);
	put_le32(out + IDCTRL_VER, NVME_VS_1_4);
	put_le32(out + IDCTRL_CTRATT, 1); /* 128-bit host identifier */
	out[IDCTRL_ACL] = 3;
	out[IDCTRL_AERL] = TARGET_AER_MAX - 1;
	out[IDCTRL_FRMW] = 3; /* one slot, read-only */
	out[IDCTRL_LPA] = LPA_EXTENDED;
	put_le16(out + IDCTRL_KAS, 10);
	put_le16(out + IDCTRL_MAXCMD, TARGET_QUEUE_ENTRIES);
	put_le32(out + IDCTRL_SGLS, SGLS_SUPPORTED);
	strcpy((char *)out + IDCTRL_SUBNQN, s->nqn);
	put_le32(out + IDCTRL_IOCCSZ, (TARGET_SQE_BYTES + ctrl->target->in_capsule_bytes) / 16);
	put_le32(out + IDCTRL_IORCSZ, 1);
	out[IDCTRL_MSDBD] = TARGET_MSDBD;
	if (s->discovery) {
		out[IDCTRL_CNTRLTYPE] = 2;
		return;
	}
	out[IDCTRL_CNTRLTYPE] = 1;
	out[IDCTRL_CMIC] = 3; /* several ports, several controllers */
	put_le32(out + IDCTRL_OAES, TARGET_OAES);
	out[IDCTRL_LPA] |= LPA_EFFECTS;
	put_le16(out + IDCTRL_WCTEMP, 0x157);
	put_le16(out + IDCTRL_CCTEMP, 0x175);
	out[IDCTRL_SQES] = 0x66;
	out[IDCTRL_CQES] = 0x44;
	put_le32(out + IDCTRL_NN, subsystem_highest_nsid(s));
	put_le16(out + IDCTRL_ONCS, ONCS_COMPARE | ONCS_DSM | ONCS_WRITE_ZEROES | ONCS_VERIFY);
	out[IDCTRL_VWC] = 7; /* a volatile cache; Flush serves all namespaces with NSID_ALL */
}

static uint16_t identify_namespace(const struct controller *ctrl, uint32_t nsid, uint8_t *out)
{
	const struct namespace *ns;

	if (!nsid || nsid > subsystem_highest_nsid(ctrl->subsystem))
		return NVME_SC_INVALID_NAMESPACE | DNR;
	ns = subsystem_namespace(ctrl->subsystem, nsid);
	if (!ns)
		return NVME_SC_SUCCESS; /* inactive: all zero */
	put_le64(out + IDNS_NSZE, ns->blocks);
	put_le64(out + IDNS_NCAP, ns->blocks);
	put_le64(out + IDNS_NUSE, ns->blocks);
	out[IDNS_NMIC] = 1;
	out[IDNS_DLFEAT] = 1; /* deallocated blocks read as zeroes */
	out[IDNS_NSATTR] = ns->info.read_only;
	memcpy(out + IDNS_NGUID, ns->nguid, sizeof(ns->nguid));
	out[IDNS_LBAF + 2] = (uint8_t)__builtin_ctz(ns->info.lba_size);
	return NVME_SC_SUCCESS;
}

static uint16_t identify_list(const struct controller *ctrl, uint32_t nsid, uint8_t *out)
{
	const struct subsystem *s = ctrl->subsystem;
	size_t used = 0;

	if (nsid >= NVME_NSID_ALL - 1)
		return NVME_SC_INVALID_NAMESPACE | DNR;
	for (size_t i = 0; i < s->namespace_count && used < NVME_IDENTIFY_SIZE; i++) {
		if (!s->namespaces[i].enabled || s->namespaces[i].nsid <= nsid)
			continue;
		put_le32(out + used, s->namespaces[i].nsid);
		used += 4;
	}
	return NVME_SC_SUCCESS;
}

static uint16_t identify_descriptors(const struct controller *ctrl, uint32_t nsid, uint8_t *out)
{
	const struct namespace *ns = subsystem_namespace(ctrl->subsystem, nsid);

	if (!ns)
		return NVME_SC_INVALID_NAMESPACE | DNR;
	out[0] = 2; /* NGUID */
	out[1] = 16;
	memcpy(out + 4, ns->nguid, 16);
	out[20] = 3; /* UUID */
	out[21] = 16;
	memcpy(out + 24, ns->uuid, 16);
	return NVME_SC_SUCCESS;
}

static uint16_t identify(struct command *cmd)
{
	const struct controller *ctrl = cmd->queue->ctrl;
	uint32_t nsid = le32toh(cmd->sqe.nsid);
	uint8_t cns = (uint8_t)le32toh(cmd->sqe.cdw10);

	if (ctrl->subsystem->discovery && cns != NVME_CNS_CONTROLLER)
		return NVME_SC_INVALID_FIELD | DNR;
	switch (cns) {
	case NVME_CNS_NAMESPACE:
		return identify_namespace(ctrl, nsid, cmd->data);
	case NVME_CNS_CONTROLLER:
		identify_controller(ctrl, cmd->data);
		return NVME_SC_SUCCESS;
	case NVME_CNS_NAMESPACE_LIST:
		return identify_list(ctrl, nsid, cmd->data);
	case NVME_CNS_DESCRIPTORS:
		return identify_descriptors(ctrl, nsid, cmd->data);
	default:
		return NVME_SC_INVALID_FIELD | DNR;
	}
}

/* ---- features ---- */

static bool feature_known(const struct controller *ctrl, uint8_t feature)
{
	if (ctrl->subsystem->discovery)
		return feature == NVME_FEAT_ASYNC_EVENT || feature == NVME_FEAT_KATO;
	switch (feature) {
	case NVME_FEAT_ARBITRATION:
	case NVME_FEAT_POWER:
	case NVME_FEAT_TEMPERATURE:
	case NVME_FEAT_ERROR_RECOVERY:
	case NVME_FEAT_WRITE_CACHE:
	case NVME_FEAT_QUEUES:
	case NVME_FEAT_WRITE_ATOMICITY:
	case NVME_FEAT_ASYNC_EVENT:
	case NVME_FEAT_KATO:
	case NVME_FEAT_HOST_ID:
		return true;
	default:
		return false;
	}
}

static bool io_queues_connected(const struct controller *ctrl)
{
	for (unsigned int i = 1; i < ARRAY_SIZE(ctrl->io); i++)
		if (ctrl->io[i])
			return true;
	return false;
}

static uint32_t queues_result(const struct controller *ctrl)
{
	uint32_t n = ctrl->granted_queues ? ctrl->granted_queues - 1U
					  : ctrl->subsystem->io_queues - 1U;

	return n | n << 16;
}

static uint16_t set_queues(struct command *cmd, uint32_t value)
{
	struct controller *ctrl = cmd->queue->ctrl;
	uint32_t sqs = value & 0xffff, cqs = value >> 16, wanted;

	if (sqs == 0xffff || cqs == 0xffff)
		return NVME_SC_INVALID_FIELD | DNR;
	/* once queues exist their number is a promise (NVMe Base 2.0, 5.27.1.5) */
	if (io_queues_connected(ctrl))
		return NVME_SC_COMMAND_SEQUENCE | DNR;
	wanted = MIN(sqs, cqs) + 1;
	ctrl->granted_queues = (uint16_t)MIN(wanted, ctrl->subsystem->io_queues);
	cmd->dw0 = queues_result(ctrl);
	return NVME_SC_SUCCESS;
}

static uint16_t set_features(struct command *cmd)
{
	struct controller *ctrl = cmd->queue->ctrl;
	uint32_t cdw10 = le32toh(cmd->sqe.cdw10), value = le32toh(cmd->sqe.cdw11);
	uint8_t feature = (uint8_t)cdw10;

	if (!feature_known(ctrl, feature))
		return NVME_SC_INVALID_FIELD | DNR;
	if (cdw10 & FEATURE_SAVE)
		return NVME_SC_FEATURE_NOT_SAVEABLE | DNR;
	switch (feature) {
	case NVME_FEAT_QUEUES:
		return set_queues(cmd, value);
	case NVME_FEAT_ASYNC_EVENT:
		ctrl->aen_config = value;
		return NVME_SC_SUCCESS;
	case NVME_FEAT_KATO:
		ctrl->kato_ms = value;
		return NVME_SC_SUCCESS;
	case NVME_FEAT_TEMPERATURE:
		if (value >> 16 & 0x3f) /* other sensors, or the under-temperature threshold */
			return NVME_SC_SUCCESS;
		ctrl->temperature_threshold = value & 0xffff;
		return NVME_SC_SUCCESS;
	case NVME_FEAT_ERROR_RECOVERY:
		ctrl->error_recovery = value & 0xffff;
		return NVME_SC_SUCCESS;
	case NVME_FEAT_WRITE_ATOMICITY:
		ctrl->write_atomicity = value & 1;
		return NVME_SC_SUCCESS;
	case NVME_FEAT_ARBITRATION:
		return NVME_SC_SUCCESS;
	case NVME_FEAT_POWER: /* there is one power state */
		return value & 0x1f ? NVME_SC_INVALID_FIELD | DNR : NVME_SC_SUCCESS;
	case NVME_FEAT_WRITE_CACHE: /* the back end's cache cannot be switched off */
		return value & 1 ? NVME_SC_SUCCESS : NVME_SC_FEATURE_NOT_CHANGEABLE | DNR;
	case NVME_FEAT_HOST_ID: /* comes with Connect (fabrics 1.1, 7.3) */
		return NVME_SC_COMMAND_SEQUENCE | DNR;
	default:
		return NVME_SC_INVALID_FIELD | DNR;
	}
}

static uint16_t get_features(struct command *cmd)
{
	const struct controller *ctrl = cmd->queue->ctrl;
	uint8_t feature = (uint8_t)le32toh(cmd->sqe.cdw10);

	if (!feature_known(ctrl, feature))
		return NVME_SC_INVALID_FIELD | DNR;
	switch (feature) {
	case NVME_FEAT_QUEUES:
		cmd->dw0 = queues_result(ctrl);
		break;
	case NVME_FEAT_ASYNC_EVENT:
		cmd->dw0 = ctrl->aen_config;
		break;
	case NVME_FEAT_KATO:
		cmd->dw0 = ctrl->kato_ms;
		break;
	case NVME_FEAT_TEMPERATURE:
		cmd->dw0 = ctrl->temperature_threshold;
		break;
	case NVME_FEAT_ERROR_RECOVERY:
		cmd->dw0 = ctrl->error_recovery;
		break;
	case NVME_FEAT_WRITE_ATOMICITY:
		cmd->dw0 = ctrl->write_atomicity;
		break;
	case NVME_FEAT_WRITE_CACHE:
		cmd->dw0 = 1;
		break;
	case NVME_FEAT_HOST_ID:
		/* fabrics know the 128-bit identifier only */
		if (!(le32toh(cmd->sqe.cdw11) & GET_HOST_ID_EXT))
			return NVME_SC_INVALID_FIELD | DNR;
		memcpy(cmd->data, ctrl->hostid, HOST_ID_BYTES);
		break;
	default:
		break;
	}
	return NVME_SC_SUCCESS;
}

/* ---- all of them ---- */

uint16_t admin_transfer(const struct command *cmd, struct transfer *transfer)
{
	uint32_t cdw10 = le32toh(cmd->sqe.cdw10);

	switch (cmd->sqe.opcode) {
	case NVME_ADMIN_IDENTIFY:
		*transfer = (struct transfer){ TRANSFER_TO_HOST, NVME_IDENTIFY_SIZE };
		return NVME_SC_SUCCESS;
	case NVME_ADMIN_GET_LOG_PAGE:
		return logpage_transfer(cmd, transfer);
	case NVME_ADMIN_GET_FEATURES:
		if ((uint8_t)cdw10 == NVME_FEAT_HOST_ID)
			*transfer = (struct transfer){ TRANSFER_TO_HOST, HOST_ID_BYTES };
		return NVME_SC_SUCCESS;
	case NVME_ADMIN_SET_FEATURES:
	case NVME_ADMIN_KEEP_ALIVE:
	case NVME_ADMIN_AER:
		return NVME_SC_SUCCESS;
	case NVME_ADMIN_ABORT:
		return cmd->queue->ctrl->subsystem->discovery ? NVME_SC_INVALID_OPCODE | DNR
							      : NVME_SC_SUCCESS;
	default:
		return NVME_SC_INVALID_OPCODE | DNR;
	}
}

bool admin_execute(struct command *cmd)
{
	struct controller *ctrl = cmd->queue->ctrl;
	uint32_t cdw10 = le32toh(cmd->sqe.cdw10);

	switch (cmd->sqe.opcode) {
	case NVME_ADMIN_IDENTIFY:
		cmd->status = identify(cmd);
		return true;
	case NVME_ADMIN_GET_LOG_PAGE:
		cmd->status = logpage_execute(cmd);
		return true;
	case NVME_ADMIN_SET_FEATURES:
		cmd->status = set_features(cmd);
		return true;
	case NVME_ADMIN_GET_FEATURES:
		cmd->status = get_features(cmd);
		return true;
	case NVME_ADMIN_AER:
		return !controller_hold_aer(ctrl, cmd);
	case NVME_ADMIN_ABORT:
		/* DW0 bit 0: not aborted. Only held AERs wait long enough to be aborted */
		cmd->dw0 = (uint16_t)cdw10 || !controller_abort_aer(ctrl, (uint16_t)(cdw10 >> 16));
		return true;
	case NVME_ADMIN_KEEP_ALIVE:
		return true;
	default:
		cmd->status = NVME_SC_INVALID_OPCODE | DNR;
		return true;
	}
}
