// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_soft_ctrl.c: the soft controller as its host sees it: exact statuses, queue rules, random
 * commands against a reference; the same on memory and on a file.
 */
#include "nvme_host.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nvme/backend.h"
#include "util/bytes.h"

#define LBA    512U
#define BLOCKS 2048U
#define SIZE   ((uint64_t)BLOCKS * LBA)

/* state of a test: the file's path, NULL = memory */
static char disk_path[] = "/tmp/softhca-test-nvme-XXXXXX";
static char tmpfs_path[] = "/dev/shm/softhca-test-nvme-XXXXXX";

struct fixture {
	struct backend *backend;
	struct soft_ctrl *ctrl;
	struct nvme_host host;
};

static void open_all(struct fixture *f, const char *path, uint32_t depth)
{
	char error[256] = "";

	if (path) {
		int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);

		assert_true(fd >= 0);
		assert_int_equal(ftruncate(fd, SIZE), 0);
		close(fd);
		f->backend = backend_open_file(path, LBA, false, error, sizeof(error));
		assert_string_equal(error, "");
	} else {
		f->backend = backend_open_memory(SIZE, LBA);
	}
	assert_non_null(f->backend);
	f->ctrl = soft_ctrl_create(4);
	assert_non_null(f->ctrl);
	assert_int_equal(soft_ctrl_add_namespace(f->ctrl, 1, f->backend), 0);
	host_open(&f->host, f->ctrl, 1, depth);
}

static void close_all(struct fixture *f)
{
	host_close(&f->host);
	soft_ctrl_destroy(f->ctrl);
	backend_close(f->backend);
}

static void test_errors(void **state)
{
	static const uint32_t bad_nsids[] = { 0, 2, 5000, 0xffffffff };
	struct fixture f;
	struct nvme_host *h = &f.host;
	struct nvme_sqe sqe;

	open_all(&f, *state, 8);
	assert_int_equal(host_io(h, 0x55, 0, 1, LBA, 0), NVME_SC_INVALID_OPCODE | DNR);
	assert_int_equal(host_io(h, NVME_CMD_WRITE_UNCORRECTABLE, 0, 1, LBA, 0),
			 NVME_SC_INVALID_OPCODE | DNR);
	for (size_t i = 0; i < ARRAY_SIZE(bad_nsids); i++) {
		sqe = host_command(h, NVME_CMD_READ, 0, 1, LBA, 0);
		sqe.nsid = htole32(bad_nsids[i]);
		assert_int_equal(host_run(h, &sqe), NVME_SC_INVALID_NAMESPACE | DNR);
	}
	sqe = host_command(h, NVME_CMD_READ, 0, 1, LBA, 0);
	sqe.flags = 1;
	assert_int_equal(host_run(h, &sqe), NVME_SC_INVALID_FIELD | DNR);
	sqe = host_command(h, NVME_CMD_READ, 0, 1, LBA, 0);
	sqe.flags = 0x40;
	assert_int_equal(host_run(h, &sqe), NVME_SC_INVALID_FIELD | DNR);
	/* LBA range: behind the end, across it, wrapping */
	assert_int_equal(host_io(h, NVME_CMD_READ, BLOCKS, 1, LBA, 0), NVME_SC_LBA_RANGE | DNR);
	assert_int_equal(host_io(h, NVME_CMD_WRITE, BLOCKS - 1, 2, LBA, 0),
			 NVME_SC_LBA_RANGE | DNR);
	assert_int_equal(host_io(h, NVME_CMD_WRITE, UINT64_MAX, 2, LBA, 0),
			 NVME_SC_LBA_RANGE | DNR);
	assert_int_equal(host_io(h, NVME_CMD_WRITE_ZEROES, BLOCKS, 1, LBA, 0),
			 NVME_SC_LBA_RANGE | DNR);
	assert_int_equal(host_io(h, NVME_CMD_VERIFY, BLOCKS - 3, 4, LBA, 0),
			 NVME_SC_LBA_RANGE | DNR);
	assert_int_equal(host_io(h, NVME_CMD_READ, BLOCKS - 1, 1, LBA, 0), 0);
	/* PRPs */
	sqe = host_command(h, NVME_CMD_READ, 0, 1, LBA, 0);
	sqe.prp1 = 0;
	assert_int_equal(host_run(h, &sqe), NVME_SC_DATA_TRANSFER);
	sqe = host_command(h, NVME_CMD_WRITE, 0, 1, LBA, 0);
	sqe.prp1 = htole64((uintptr_t)h->buffer + 1);
	assert_int_equal(host_run(h, &sqe), NVME_SC_PRP_OFFSET);
	sqe = host_command(h, NVME_CMD_READ, 0, 16, LBA, 0);
	sqe.prp2 = htole64(0xfffffffffffff000ULL);
	assert_int_equal(host_run(h, &sqe), NVME_SC_DATA_TRANSFER);
	/* and it still works */
	assert_int_equal(host_io(h, NVME_CMD_FLUSH, 0, 1, LBA, 0), 0);
	assert_int_equal(host_io(h, NVME_CMD_VERIFY, 0, BLOCKS, LBA, 0), 0);
	close_all(&f);
}

static void put_range(uint8_t *at, uint64_t slba, uint32_t blocks)
{
	put_le32(at, 0);
	put_le32(at + 4, blocks);
	put_le64(at + 8, slba);
}

static void test_dsm_zeroes_compare(void **state)
{
	struct fixture f;
	struct nvme_host *h = &f.host;
	struct nvme_sqe sqe;

	open_all(&f, *state, 8);
	memset(h->buffer, 0xa5, 64 * LBA);
	assert_int_equal(host_io(h, NVME_CMD_WRITE, 0, 64, LBA, 0), 0);
	assert_int_equal(host_io(h, NVME_CMD_COMPARE, 0, 64, LBA, 0), 0);
	h->buffer[63 * LBA + 511] ^= 1;
	assert_int_equal(host_io(h, NVME_CMD_COMPARE, 0, 64, LBA, 0), NVME_SC_COMPARE | DNR);
	assert_int_equal(host_io(h, NVME_CMD_COMPARE, 0, 63, LBA, 0), 0);

	assert_int_equal(host_io(h, NVME_CMD_WRITE_ZEROES, 3, 2, LBA, 0), 0);
	assert_int_equal(host_io(h, NVME_CMD_READ, 2, 4, LBA, 65536), 0);
	for (uint32_t i = 0; i < 4 * LBA; i++)
		assert_int_equal(h->buffer[65536 + i], i / LBA == 1 || i / LBA == 2 ? 0 : 0xa5);

	/* two ranges and an empty one in a list that crosses a page */
	put_range(h->buffer + 4096 - 16, 8, 8);
	put_range(h->buffer + 4096, 9, 0);
	put_range(h->buffer + 4096 + 16, 32, 16);
	sqe = host_command(h, NVME_CMD_DSM, 0, 1, LBA, 0);
	sqe.cdw10 = htole32(2);
	sqe.cdw11 = htole32(4);
	sqe.cdw12 = 0;
	sqe.prp1 = htole64((uintptr_t)h->buffer + 4096 - 16);
	sqe.prp2 = htole64((uintptr_t)h->buffer + 4096);
	assert_int_equal(host_run(h, &sqe), 0);
	assert_int_equal(host_io(h, NVME_CMD_READ, 0, 64, LBA, 65536), 0);
	for (uint32_t b = 0; b < 64; b++) {
		bool gone = b == 3 || b == 4 || (b >= 8 && b < 16) || (b >= 32 && b < 48);

		assert_int_equal(h->buffer[65536 + b * LBA], gone ? 0 : 0xa5);
	}
	/* one range out of bounds: nothing of it is done */
	put_range(h->buffer + 4096, 0, 1);
	put_range(h->buffer + 4096 + 16, BLOCKS, 1);
	sqe = host_command(h, NVME_CMD_DSM, 0, 1, LBA, 0);
	sqe.cdw10 = htole32(1);
	sqe.cdw11 = htole32(4);
	sqe.prp1 = htole64((uintptr_t)h->buffer + 4096);
	assert_int_equal(host_run(h, &sqe), NVME_SC_LBA_RANGE | DNR);
	assert_int_equal(host_io(h, NVME_CMD_READ, 0, 1, LBA, 65536), 0);
	assert_int_equal(h->buffer[65536], 0xa5);
	/* without the deallocate bit it is a hint */
	put_range(h->buffer + 4096 + 16, 1, 1);
	sqe.cid = htole16(h->next_cid++);
	sqe.cdw11 = htole32(2);
	assert_int_equal(host_run(h, &sqe), 0);
	assert_int_equal(host_io(h, NVME_CMD_READ, 0, 2, LBA, 65536), 0);
	assert_int_equal(h->buffer[65536], 0xa5);
	close_all(&f);
}

/* random commands, up to depth - 1 at once on disjoint areas, against a plain array */
static void test_random(void **state)
{
	static uint8_t model[BLOCKS * LBA];
	enum { DEPTH = 9, AREA = BLOCKS / 8 };
	struct fixture f;
	struct nvme_host *h = &f.host;
	unsigned int seed = 12345;

	memset(model, 0, sizeof(model));
	open_all(&f, *state, DEPTH);
	for (int round = 0; round < 150; round++) {
		struct {
			uint8_t opcode;
			uint64_t slba;
			uint32_t blocks;
			size_t offset;
		} c[8];
		uint16_t base = h->next_cid;
		int n = 1 + rand_r(&seed) % 8;

		for (int i = 0; i < n; i++) {
			struct nvme_sqe sqe;
			uint64_t in_area = (uint64_t)rand_r(&seed) % AREA;

			c[i].opcode = (uint8_t[]){ NVME_CMD_READ, NVME_CMD_WRITE, NVME_CMD_WRITE,
						   NVME_CMD_WRITE_ZEROES,
						   NVME_CMD_COMPARE }[rand_r(&seed) % 5];
			c[i].slba = (uint64_t)i * AREA + in_area;
			c[i].blocks = 1 + rand_r(&seed) % (AREA - in_area);
			/* one of the n may have a PRP list (one list area) and any alignment */
			if (i)
				c[i].blocks = MIN(c[i].blocks, 8);
			c[i].offset = (size_t)i * 262144 + (rand_r(&seed) % 64) * (i ? 0 : 4);
			for (uint32_t b = 0; b < c[i].blocks * LBA; b += 4)
				put_le32(h->buffer + c[i].offset + b, (uint32_t)rand_r(&seed));
			if (c[i].opcode == NVME_CMD_COMPARE)
				memcpy(h->buffer + c[i].offset, model + c[i].slba * LBA,
				       c[i].blocks * LBA);
			sqe = host_command(h, c[i].opcode, c[i].slba, c[i].blocks, LBA,
					   c[i].offset);
			if (rand_r(&seed) % 4 == 0)
				sqe.cdw12 |= htole32(NVME_RW_FUA);
			host_post(h, &sqe);
		}
		host_ring(h);
		for (int i = 0; i < n; i++) {
			struct nvme_cqe cqe;
			uint16_t status = host_wait(h, &cqe);
			int k = (uint16_t)(le16toh(cqe.cid) - base);
			uint8_t *area, *data;

			assert_true(k >= 0 && k < n);
			assert_int_equal(status, 0);
			area = model + c[k].slba * LBA;
			data = h->buffer + c[k].offset;
			if (c[k].opcode == NVME_CMD_WRITE)
				memcpy(area, data, c[k].blocks * LBA);
			else if (c[k].opcode == NVME_CMD_WRITE_ZEROES)
				memset(area, 0, c[k].blocks * LBA);
			else
				assert_memory_equal(area, data, c[k].blocks * LBA);
		}
	}
	assert_true(h->notified > 0);
	close_all(&f);
}

/* large transfers: chained PRP lists, more pieces than one I/O takes */
static void test_large(void **state)
{
	struct fixture f;
	struct nvme_host *h = &f.host;
	uint64_t *list;
	struct nvme_sqe sqe;

	open_all(&f, *state, 8);
	for (uint32_t i = 0; i < SIZE; i += 4)
		put_le32(h->buffer + i, i * 2654435761U);
	assert_int_equal(host_io(h, NVME_CMD_WRITE, 0, BLOCKS, LBA, 0), 0);
	assert_int_equal(host_io(h, NVME_CMD_READ, 0, BLOCKS, LBA, 2 << 20), 0);
	assert_memory_equal(h->buffer, h->buffer + (2 << 20), SIZE);
	assert_int_equal(host_io(h, NVME_CMD_COMPARE, 0, BLOCKS, LBA, 0), 0);
	/* pages in reverse order: no two pieces join */
	sqe = host_command(h, NVME_CMD_READ, 0, BLOCKS, LBA, 2 << 20);
	list = (uint64_t *)(uintptr_t)le64toh(sqe.prp2);
	sqe.prp1 = htole64((uintptr_t)h->buffer + (2 << 20) + 255 * 4096);
	for (uint32_t i = 0; i < 255; i++)
		list[i] = htole64((uintptr_t)h->buffer + (2 << 20) + (254 - i) * 4096);
	memset(h->buffer + (2 << 20), 0, SIZE);
	assert_int_equal(host_run(h, &sqe), 0);
	for (uint32_t i = 0; i < 256; i++)
		assert_memory_equal(h->buffer + i * 4096, h->buffer + (2 << 20) + (255 - i) * 4096,
				    4096);
	close_all(&f);
}

/* the CQ is never overrun: depth - 1 CQEs, then nothing until the host takes some */
static void test_cq_full(void **state)
{
	struct fixture f;
	struct nvme_host *h = &f.host;
	uint16_t seen = 0;

	open_all(&f, *state, 4);
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < 3; i++) {
			struct nvme_sqe sqe = host_command(h, NVME_CMD_FLUSH, 0, 1, LBA, 0);

			/* the host side does not know of completions, so look at the ring ourselves
			 */
			h->sq.ring[h->sq.tail] = sqe;
			h->sq.tail = (h->sq.tail + 1) % 4;
		}
		host_ring(h);
		for (int i = 0; i < 200; i++) {
			soft_ctrl_poll(f.ctrl);
			usleep(round ? 10 : 100);
		}
	}
	/* nine commands went in, three CQEs are out: entry 3 is free and untouched */
	for (int i = 0; i < 3; i++)
		assert_int_equal(le16toh(h->cq.ring[i].status) & 1, 1);
	assert_int_equal(h->cq.ring[3].status, 0);
	/* nothing of them is in the namespace any more: it can go, the CQEs come nevertheless */
	assert_int_equal(soft_ctrl_remove_namespace(f.ctrl, 1), 0);
	h->sq.head = h->sq.tail;
	for (int i = 0; i < 9; i++) {
		struct nvme_cqe *cqe;

		for (int w = 0; !(cqe = nvme_cq_peek(&h->cq)) && w < 10000; w++) {
			soft_ctrl_poll(f.ctrl);
			usleep(100);
		}
		assert_non_null(cqe);
		seen |= (uint16_t)(1U << le16toh(cqe->cid));
		nvme_cq_pop(&h->cq);
		if (nvme_cq_update_head(&h->cq))
			soft_ctrl_ring(f.ctrl, 12);
	}
	assert_int_equal(seen, 0x1ff);
	close_all(&f);
}

static void test_cid_conflict(void **state)
{
	struct fixture f;
	struct nvme_host *h = &f.host;
	struct nvme_sqe sqe;
	int conflicts = 0;

	open_all(&f, *state, 8);
	sqe = host_command(h, NVME_CMD_FLUSH, 0, 1, LBA, 0);
	host_post(h, &sqe);
	host_post(h, &sqe);
	host_ring(h);
	for (int i = 0; i < 2; i++) {
		uint16_t status = host_wait(h, NULL);

		assert_true(status == 0 || status == (NVME_SC_CID_CONFLICT | DNR));
		conflicts += status != 0;
	}
	assert_int_equal(conflicts, 1);
	/* the id is free again */
	assert_int_equal(host_run(h, &sqe), 0);
	close_all(&f);
}

static void test_doorbell_nonsense(void **state)
{
	struct fixture f;
	struct nvme_host *h = &f.host;

	open_all(&f, *state, 4);
	*h->sq.doorbell = htole32(4);
	soft_ctrl_ring(f.ctrl, 8);
	*h->sq.doorbell = htole32(0xffffffff);
	soft_ctrl_ring(f.ctrl, 8);
	*h->sq.doorbell = 0;
	*h->cq.doorbell = htole32(3); /* entries that were never written */
	soft_ctrl_ring(f.ctrl, 12);
	soft_ctrl_ring(f.ctrl, 0); /* admin queue, other queues, beyond */
	soft_ctrl_ring(f.ctrl, 16);
	soft_ctrl_ring(f.ctrl, 1 << 20);
	*h->cq.doorbell = 0;
	for (int i = 0; i < 10; i++)
		assert_int_equal(host_io(h, NVME_CMD_READ, 0, 1, LBA, 0), 0);
	close_all(&f);
}

static void test_objects(void **state)
{
	struct fixture f;
	struct nvme_host second;
	struct backend *other = backend_open_memory(1 << 20, 4096);
	struct backend_info info;

	open_all(&f, *state, 4);
	assert_null(soft_ctrl_create_qp(f.ctrl, 1, 4, f.host.sq.ring, f.host.cq.ring, NULL, NULL));
	assert_int_equal(errno, EBUSY);
	assert_null(soft_ctrl_create_qp(f.ctrl, 0, 4, f.host.sq.ring, f.host.cq.ring, NULL, NULL));
	assert_int_equal(errno, EINVAL);
	assert_null(soft_ctrl_create_qp(f.ctrl, 5, 4, f.host.sq.ring, f.host.cq.ring, NULL, NULL));
	assert_null(soft_ctrl_create_qp(f.ctrl, 2, 1, f.host.sq.ring, f.host.cq.ring, NULL, NULL));
	assert_null(
		soft_ctrl_create_qp(f.ctrl, 2, 65537, f.host.sq.ring, f.host.cq.ring, NULL, NULL));
	assert_null(soft_ctrl_create_qp(f.ctrl, 2, 4, (char *)f.host.sq.ring + 64, f.host.cq.ring,
					NULL, NULL));
	assert_int_equal(soft_ctrl_add_namespace(f.ctrl, 1, other), -EEXIST);
	assert_int_equal(soft_ctrl_add_namespace(f.ctrl, 0, other), -EINVAL);
	assert_int_equal(soft_ctrl_add_namespace(f.ctrl, 2, other), 0);
	assert_int_equal(soft_ctrl_remove_namespace(f.ctrl, 3), -ENOENT);
	host_open(&second, f.ctrl, 3, 16);
	{
		struct nvme_sqe sqe = host_command(&second, NVME_CMD_WRITE, 255, 1, 4096, 0);

		sqe.nsid = htole32(2);
		assert_int_equal(host_run(&second, &sqe), 0);
		assert_int_equal(soft_ctrl_remove_namespace(f.ctrl, 2), 0);
		sqe.cid = htole16(77);
		assert_int_equal(host_run(&second, &sqe), NVME_SC_INVALID_NAMESPACE | DNR);
	}
	assert_int_equal(host_io(&second, NVME_CMD_READ, 0, 1, LBA, 0), 0);
	assert_int_equal(host_io(&f.host, NVME_CMD_READ, 0, 1, LBA, 0), 0);
	host_close(&second);
	backend_get_info(other, &info);
	assert_int_equal(info.size_bytes, 1 << 20);
	assert_int_equal(info.lba_size, 4096);
	assert_false(info.read_only);
	backend_close(other);
	close_all(&f);
	assert_null(backend_open_memory(1 << 20, 1024));
	assert_int_equal(errno, EINVAL);
	assert_null(backend_open_memory(100, 512));
	assert_null(soft_ctrl_create(0));
}

/* a queue pair deleted with I/O in flight, and made again on the same memory */
static void test_delete_in_flight(void **state)
{
	struct fixture f;
	struct nvme_host *h = &f.host;

	open_all(&f, *state, 64);
	for (int round = 0; round < 10; round++) {
		for (int i = 0; i < 60; i++) {
			struct nvme_sqe sqe =
				host_command(h, i % 2 ? NVME_CMD_READ : NVME_CMD_WRITE,
					     (uint64_t)i * 8, 8, LBA, (size_t)i * 4096);

			host_post(h, &sqe);
		}
		host_ring(h);
		host_close(h);
		host_open(h, f.ctrl, 1, 64);
	}
	assert_int_equal(host_io(h, NVME_CMD_READ, 0, 1, LBA, 0), 0);
	close_all(&f);
}

/* nobody polls: the controller's own thread completes and tells */
static void test_own_thread(void **state)
{
	struct fixture f;
	struct nvme_host *h = &f.host;

	open_all(&f, *state, 16);
	assert_int_equal(soft_ctrl_start_thread(f.ctrl), 0);
	assert_int_equal(soft_ctrl_start_thread(f.ctrl), 0);
	for (int round = 0; round < 50; round++) {
		unsigned int before = __atomic_load_n(&h->notified, __ATOMIC_RELAXED);
		struct nvme_sqe sqe = host_command(h, round % 3 ? NVME_CMD_WRITE : NVME_CMD_FLUSH,
						   (uint64_t)round, 8, LBA, 0);

		host_post(h, &sqe);
		host_ring(h);
		for (int i = 0; !nvme_cq_peek(&h->cq); i++) {
			assert_true(i < 100000);
			usleep(50);
		}
		assert_int_equal(host_wait(h, NULL), 0);
		for (int i = 0; __atomic_load_n(&h->notified, __ATOMIC_RELAXED) == before; i++) {
			assert_true(i < 100000);
			usleep(50);
		}
	}
	close_all(&f);
}

static void test_fail_nth(void **state)
{
	struct fixture f;
	struct nvme_host *h = &f.host;

	open_all(&f, *state, 8);
	backend_fail_nth(f.backend, 1, EIO);
	assert_int_equal(host_io(h, NVME_CMD_READ, 0, 1, LBA, 0), NVME_SC_READ_ERROR);
	backend_fail_nth(f.backend, 2, EIO);
	assert_int_equal(host_io(h, NVME_CMD_WRITE, 0, 1, LBA, 0), 0);
	assert_int_equal(host_io(h, NVME_CMD_WRITE, 0, 1, LBA, 0), NVME_SC_WRITE_FAULT);
	backend_fail_nth(f.backend, 1, ENOSPC);
	assert_int_equal(host_io(h, NVME_CMD_WRITE, 0, 1, LBA, 0), NVME_SC_CAPACITY | DNR);
	backend_fail_nth(f.backend, 1, EIO);
	assert_int_equal(host_io(h, NVME_CMD_COMPARE, 0, 1, LBA, 0), NVME_SC_READ_ERROR);
	backend_fail_nth(f.backend, 1, EIO);
	assert_int_equal(host_io(h, NVME_CMD_VERIFY, 0, 1, LBA, 0), NVME_SC_READ_ERROR);
	backend_fail_nth(f.backend, 1, EIO);
	assert_int_equal(host_io(h, NVME_CMD_WRITE_ZEROES, 0, 1, LBA, 0), NVME_SC_WRITE_FAULT);
	assert_int_equal(host_io(h, NVME_CMD_FLUSH, 0, 1, LBA, 0), 0);
	backend_fail_nth(f.backend, 1, EIO);
	assert_int_equal(host_io(h, NVME_CMD_FLUSH, 0, 1, LBA, 0), NVME_SC_WRITE_FAULT);
	/* a file: what was lost stays lost, no later flush says otherwise */
	assert_int_equal(host_io(h, NVME_CMD_FLUSH, 0, 1, LBA, 0),
			 *state ? NVME_SC_WRITE_FAULT : NVME_SC_SUCCESS);
	close_all(&f);
}

static int make_files(void **state)
{
	int disk = mkstemp(disk_path), tmpfs = mkstemp(tmpfs_path);

	if (disk < 0)
		return -1;
	close(disk);
	if (tmpfs < 0) /* no tmpfs there: once more on the disk */
		memcpy(tmpfs_path, disk_path, sizeof(disk_path));
	else
		close(tmpfs);
	return 0;
}

static int remove_files(void **state)
{
	unlink(tmpfs_path);
	unlink(disk_path);
	return 0;
}

#define ALL(fn)                                                                                    \
	{ #fn " (memory)", fn, NULL, NULL, NULL }, { #fn " (file)", fn, NULL, NULL, disk_path },   \
	{                                                                                          \
#fn " (tmpfs)", fn, NULL, NULL, tmpfs_path                                         \
	}

int main(void)
{
	const struct CMUnitTest tests[] = {
		ALL(test_errors),
		ALL(test_dsm_zeroes_compare),
		ALL(test_random),
		ALL(test_large),
		ALL(test_cq_full),
		ALL(test_cid_conflict),
		ALL(test_doorbell_nonsense),
		ALL(test_objects),
		ALL(test_delete_in_flight),
		ALL(test_own_thread),
		ALL(test_fail_nth),
	};

	return cmocka_run_group_tests(tests, make_files, remove_files);
}
