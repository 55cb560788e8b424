// SPDX-License-Identifier: BSD-2-Clause
/*
 * capsule.c: what a capsule asks for, and whether it may have it. Every number here comes from the
 * network; sums are made so that they cannot wrap.
 * NVMe over Fabrics 1.1, 2.1 and 2.3; wire-facts 5.2, 5.3.
 */
#include "offload/capsule.h"

#include "infiniband/verbs_ext.h"
#include "nvme/spec.h"
#include "util/bytes.h"

/* byte offsets in the SQE */
#define SQE_FLAGS      1
#define SQE_CID	       2
#define SQE_NSID       4
#define SQE_FCTYPE     4
#define SQE_SGL	       24
#define SQE_SGL_LEN    32 /* keyed: 3 bytes; unkeyed: 4 */
#define SQE_SGL_KEY    35
#define SQE_SGL_TYPE   39
#define SQE_CDW10      40
#define SQE_CDW12      48
#define CONNECT_QID    42
#define CONNECT_SQSIZE 44

static uint32_t op_bit(uint8_t opcode)
{
	switch (opcode) {
	case NVME_CMD_WRITE:
		return IBV_NVMF_OP_WRITE;
	case NVME_CMD_READ:
		return IBV_NVMF_OP_READ;
	case NVME_CMD_FLUSH:
		return IBV_NVMF_OP_FLUSH;
	}
	return 0;
}

bool capsule_parse(const struct capsule_rules *rules, const uint8_t *sqe,
		   struct capsule_command *command)
{
	uint8_t opcode = sqe[0], type = sqe[SQE_SGL_TYPE];
	uint32_t cdw12 = get_le32(sqe + SQE_CDW12);

	if (!(op_bit(opcode) & rules->offload_ops))
		return false;
	if (sqe[SQE_FLAGS] & NVME_SQE_FUSE_MASK)
		return false;
	if ((sqe[SQE_FLAGS] & NVME_SQE_PSDT_MASK) != NVME_SQE_PSDT_SGL)
		return false;
	if (type != NVME_SGL_KEYED && type != NVME_SGL_KEYED_INVALIDATE && type != NVME_SGL_OFFSET)
		return false;
	/* data cannot be returned in the command's capsule: software knows the right answer */
	if (type == NVME_SGL_OFFSET && opcode == NVME_CMD_READ)
		return false;
	if (opcode != NVME_CMD_FLUSH && cdw12 & NVME_RW_PRINFO_MASK)
		return false;
	*command = (struct capsule_command){
		.opcode = opcode,
		.in_capsule = type == NVME_SGL_OFFSET,
		.cid = get_le16(sqe + SQE_CID),
		.nsid = get_le32(sqe + SQE_NSID),
		.addr = get_le64(sqe + SQE_SGL),
		.blocks = opcode == NVME_CMD_FLUSH ? 0 : (cdw12 & 0xffff) + 1,
	};
	if (command->nsid == NVME_NSID_ALL)
		return false;
	if (command->in_capsule) {
		command->sgl_len = get_le32(sqe + SQE_SGL_LEN);
	} else {
		command->sgl_len = get_le32(sqe + SQE_SGL_LEN) & 0xffffff;
		command->key = get_le32(sqe + SQE_SGL_KEY);
	}
	/* length 0: there are no data, address and key mean nothing */
	command->invalidate = type == NVME_SGL_KEYED_INVALIDATE && command->sgl_len;
	memcpy(command->cdw, sqe + SQE_CDW10, sizeof(command->cdw));
	return true;
}

static uint32_t data_space(const struct capsule_rules *rules, uint32_t len)
{
	return len > rules->data_offset ? len - rules->data_offset : 0;
}

uint16_t capsule_check(const struct capsule_rules *rules, const struct capsule_command *command,
		       uint32_t lba_size, uint32_t *transfer)
{
	uint64_t length = (uint64_t)command->blocks * lba_size;
	uint32_t space = data_space(rules, rules->max_len);

	*transfer = 0;
	if (command->opcode == NVME_CMD_FLUSH)
		return NVME_SC_SUCCESS;
	if (command->in_capsule) {
		if (command->addr > space)
			return NVME_SC_SGL_OFFSET | NVME_STATUS_DNR;
		if (command->sgl_len > space)
			return NVME_SC_SGL_DATA_LENGTH | NVME_STATUS_DNR;
		if (command->sgl_len > space - command->addr)
			return NVME_SC_SGL_OFFSET | NVME_STATUS_DNR;
	}
	if (command->sgl_len < length)
		return NVME_SC_SGL_DATA_LENGTH | NVME_STATUS_DNR;
	if (length > rules->max_transfer)
		return NVME_SC_INVALID_FIELD | NVME_STATUS_DNR;
	*transfer = (uint32_t)length;
	return NVME_SC_SUCCESS;
}

uint16_t capsule_check_data(const struct capsule_rules *rules,
			    const struct capsule_command *command, uint32_t transfer, uint32_t len)
{
	uint32_t space = data_space(rules, len);

	if (!command->in_capsule || !transfer)
		return NVME_SC_SUCCESS;
	if (command->addr >= space)
		return NVME_SC_SGL_OFFSET | NVME_STATUS_DNR;
	if (transfer > space - command->addr)
		return NVME_SC_SGL_DATA_LENGTH | NVME_STATUS_DNR;
	return NVME_SC_SUCCESS;
}

bool capsule_parse_connect(const uint8_t *sqe, uint16_t *qid, uint32_t *entries)
{
	if (sqe[0] != NVME_CMD_FABRICS || sqe[SQE_FCTYPE] != NVME_FABRICS_CONNECT)
		return false;
	*qid = get_le16(sqe + CONNECT_QID);
	*entries = (uint32_t)get_le16(sqe + CONNECT_SQSIZE) + 1;
	return true;
}
