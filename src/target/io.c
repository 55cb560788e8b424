// SPDX-License-Identifier: BSD-2-Clause
/*
 * io.c: I/O commands that software executes: Compare, Write Zeroes, Dataset Management, Verify, and
 * Read, Write, Flush wherever they are not offloaded. The order of the checks is the offload's
 * (docs/nvmf-offload.md), so that both paths answer alike.
 */
#include "target/model.h"

#include <string.h>

#include "util/bytes.h"

#define DSM_DEALLOCATE	(1U << 2) /* CDW11 */
#define DSM_RANGE_BYTES 16
#define COMPARE_CHUNK	32768

static uint64_t start_lba(const struct nvme_sqe *sqe)
{
	return (uint64_t)le32toh(sqe->cdw11) << 32 | le32toh(sqe->cdw10);
}

static uint32_t block_count(const struct nvme_sqe *sqe)
{
	return (le32toh(sqe->cdw12) & 0xffff) + 1;
}

static struct namespace *command_namespace(const struct command *cmd)
{
	return subsystem_namespace(cmd->queue->ctrl->subsystem, le32toh(cmd->sqe.nsid));
}

uint16_t io_transfer(const struct command *cmd, struct transfer *transfer)
{
	const struct nvme_sqe *sqe = &cmd->sqe;
	const struct namespace *ns = command_namespace(cmd);
	uint64_t bytes = 0;

	switch (sqe->opcode) {
	case NVME_CMD_READ:
		transfer->direction = TRANSFER_TO_HOST;
		break;
	case NVME_CMD_WRITE:
	case NVME_CMD_COMPARE:
	case NVME_CMD_DSM:
		transfer->direction = TRANSFER_TO_CONTROLLER;
		break;
	case NVME_CMD_FLUSH:
		if (sqe->nsid == htole32(NVME_NSID_ALL))
			return NVME_SC_SUCCESS;
		break;
	case NVME_CMD_WRITE_ZEROES:
	case NVME_CMD_VERIFY:
		break;
	default:
		return NVME_SC_INVALID_OPCODE | DNR;
	}
	if (!ns)
		return NVME_SC_INVALID_NAMESPACE | DNR;
	if (sqe->opcode == NVME_CMD_DSM)
		bytes = DSM_RANGE_BYTES * ((le32toh(sqe->cdw10) & 0xff) + 1);
	else if (transfer->direction != TRANSFER_NONE)
		bytes = (uint64_t)block_count(sqe) * ns->info.lba_size;
	transfer->bytes = (uint32_t)bytes;
	return NVME_SC_SUCCESS;
}

static bool lba_range_good(const struct namespace *ns, uint64_t slba, uint64_t blocks)
{
	return range_inside(slba, blocks, 0, ns->blocks);
}

static uint16_t with_dnr(uint16_t status)
{
	switch (status) {
	case NVME_SC_LBA_RANGE:
	case NVME_SC_WRITE_PROTECTED:
	case NVME_SC_INVALID_FIELD:
	case NVME_SC_INVALID_OPCODE:
		return status | DNR;
	default:
		return status;
	}
}

static uint16_t compare(const struct namespace *ns, uint64_t slba, uint32_t blocks,
			const uint8_t *data)
{
	static _Alignas(4096) uint8_t chunk[COMPARE_CHUNK]; /* the target's one thread */
	uint32_t step = COMPARE_CHUNK / ns->info.lba_size;

	while (blocks) {
		uint32_t n = MIN(blocks, step);
		uint16_t status =
			backend_sync_io(ns->backend, NVME_CMD_READ, slba, n, chunk, false);

		if (status)
			return status;
		if (memcmp(chunk, data, (size_t)n * ns->info.lba_size))
			return NVME_SC_COMPARE | DNR;
		data += (size_t)n * ns->info.lba_size;
		slba += n;
		blocks -= n;
	}
	return NVME_SC_SUCCESS;
}

static uint16_t dataset_management(const struct namespace *ns, const struct command *cmd)
{
	unsigned int ranges = (le32toh(cmd->sqe.cdw10) & 0xff) + 1;
	uint16_t status;

	for (unsigned int i = 0; i < ranges; i++) {
		const uint8_t *range = cmd->data + i * DSM_RANGE_BYTES;

		if (!lba_range_good(ns, get_le64(range + 8), get_le32(range + 4)))
			return NVME_SC_LBA_RANGE | DNR;
	}
	if (!(le32toh(cmd->sqe.cdw11) & DSM_DEALLOCATE))
		return NVME_SC_SUCCESS; /* hints only */
	if (ns->info.read_only)
		return NVME_SC_WRITE_PROTECTED | DNR;
	for (unsigned int i = 0; i < ranges; i++) {
		const uint8_t *range = cmd->data + i * DSM_RANGE_BYTES;

		if (!get_le32(range + 4))
			continue;
		status = backend_sync_io(ns->backend, NVME_CMD_DSM, get_le64(range + 8),
					 get_le32(range + 4), NULL, false);
		if (status)
			return status;
	}
	return NVME_SC_SUCCESS;
}

static void count(struct io_totals *totals, const struct command *cmd, uint32_t bytes)
{
	if (cmd->sqe.opcode == NVME_CMD_READ) {
		totals->read_commands++;
		totals->read_bytes += bytes;
	} else if (cmd->sqe.opcode == NVME_CMD_WRITE) {
		totals->write_commands++;
		totals->write_bytes += bytes;
	}
}

uint16_t io_execute(struct command *cmd)
{
	struct subsystem *subsystem = cmd->queue->ctrl->subsystem;
	const struct namespace *ns = command_namespace(cmd);
	const struct nvme_sqe *sqe = &cmd->sqe;
	uint64_t slba = start_lba(sqe);
	uint32_t blocks = block_count(sqe);
	bool fua = le32toh(sqe->cdw12) & NVME_RW_FUA;

	if (sqe->opcode == NVME_CMD_FLUSH && sqe->nsid == htole32(NVME_NSID_ALL))
		return subsystem_flush(subsystem);
	if (!ns) /* was switched off while the data came */
		return NVME_SC_INVALID_NAMESPACE | DNR;
	switch (sqe->opcode) {
	case NVME_CMD_FLUSH:
		return backend_sync_io(ns->backend, NVME_CMD_FLUSH, 0, 0, NULL, false);
	case NVME_CMD_DSM:
		return with_dnr(dataset_management(ns, cmd));
	default:
		break;
	}
	if (!lba_range_good(ns, slba, blocks))
		return NVME_SC_LBA_RANGE | DNR;
	switch (sqe->opcode) {
	case NVME_CMD_READ:
	case NVME_CMD_WRITE:
		if (sqe->opcode == NVME_CMD_WRITE && ns->info.read_only)
			return NVME_SC_WRITE_PROTECTED | DNR;
		count(&subsystem->software, cmd, blocks * ns->info.lba_size);
		return with_dnr(
			backend_sync_io(ns->backend, sqe->opcode, slba, blocks, cmd->data, fua));
	case NVME_CMD_COMPARE:
		return with_dnr(compare(ns, slba, blocks, cmd->data));
	case NVME_CMD_WRITE_ZEROES:
		if (ns->info.read_only)
			return NVME_SC_WRITE_PROTECTED | DNR;
		return with_dnr(backend_sync_io(ns->backend, sqe->opcode, slba, blocks, NULL, fua));
	case NVME_CMD_VERIFY:
		return with_dnr(
			backend_sync_io(ns->backend, sqe->opcode, slba, blocks, NULL, false));
	default:
		return NVME_SC_INVALID_OPCODE | DNR;
	}
}
