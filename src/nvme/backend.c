// SPDX-License-Identifier: BSD-2-Clause
/*
 * backend.c: what all back ends share: the synchronous call, the mapping of errno to NVMe status,
 * failure injection.
 */
#include "nvme/backend.h"

#include "util/bytes.h"

void backend_close(struct backend *backend)
{
	if (backend)
		backend->ops->close(backend);
}

void backend_get_info(const struct backend *backend, struct backend_info *info)
{
	*info = backend->info;
}

void backend_fail_run(struct backend *backend, unsigned int nth, int more, int error)
{
	atomic_store(&backend->fail_errno, error);
	atomic_store(&backend->fail_more, more);
	atomic_store(&backend->fail_in, nth);
}

void backend_fail_nth(struct backend *backend, unsigned int nth, int error)
{
	backend_fail_run(backend, nth, 0, error);
}

int backend_injected(struct backend *backend)
{
	/* one load on the hot path; the rest is for tests */
	if (!atomic_load_explicit(&backend->fail_in, memory_order_relaxed))
		return 0;
	if (atomic_fetch_sub(&backend->fail_in, 1) != 1)
		return 0;
	if (atomic_fetch_sub(&backend->fail_more, 1) > 0)
		atomic_store(&backend->fail_in, 1);
	return atomic_load(&backend->fail_errno);
}

uint16_t backend_status(uint8_t opcode, int error)
{
	switch (error) {
	case 0:
		return NVME_SC_SUCCESS;
	case ENOSPC:
	case EDQUOT:
	case EFBIG:
		return NVME_SC_CAPACITY | NVME_STATUS_DNR;
	case EROFS:
	case EPERM:
	case EBADF:
		return NVME_SC_WRITE_PROTECTED | NVME_STATUS_DNR;
	case ENOMEM:
	case EAGAIN:
		return NVME_SC_INTERNAL;
	}
	if (opcode == NVME_CMD_READ || opcode == NVME_CMD_VERIFY || opcode == NVME_CMD_COMPARE)
		return NVME_SC_READ_ERROR;
	return NVME_SC_WRITE_FAULT;
}

uint16_t backend_sync_io(struct backend *backend, uint8_t opcode, uint64_t slba, uint32_t blocks,
			 void *data, bool fua)
{
	uint32_t lba_size = backend->info.lba_size;
	uint64_t total = backend->info.size_bytes / lba_size;
	struct iovec iov = { data, (size_t)blocks * lba_size };
	struct backend_io io = {
		.opcode = opcode,
		.fua = fua,
		.iov = &iov,
		.iov_count = 1,
	};

	switch (opcode) {
	case NVME_CMD_FLUSH:
		break;
	case NVME_CMD_WRITE:
	case NVME_CMD_WRITE_ZEROES:
	case NVME_CMD_DSM:
		if (backend->info.read_only)
			return NVME_SC_WRITE_PROTECTED | NVME_STATUS_DNR;
		__attribute__((fallthrough));
	case NVME_CMD_READ:
	case NVME_CMD_VERIFY:
		if (!range_inside(slba, blocks, 0, total))
			return NVME_SC_LBA_RANGE | NVME_STATUS_DNR;
		io.offset = slba * lba_size;
		io.length = iov.iov_len;
		break;
	default:
		return NVME_SC_INVALID_OPCODE | NVME_STATUS_DNR;
	}
	return backend->ops->run(backend, &io);
}
