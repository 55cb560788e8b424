// SPDX-License-Identifier: BSD-2-Clause
/* nvme_host.c: the host side of a queue pair, for tests */
#include "nvme_host.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "util/bytes.h"

#define PAGE	   4096U
#define LIST_BYTES (16 * PAGE) /* at the end of the buffer */

static void notify(void *arg)
{
	struct nvme_host *host = arg;

	__atomic_fetch_add(&host->notified, 1, __ATOMIC_RELAXED);
}

static void *pages(size_t len)
{
	void *p = NULL;

	assert_int_equal(posix_memalign(&p, PAGE, (len + PAGE - 1) / PAGE * PAGE), 0);
	memset(p, 0, len);
	return p;
}

void host_open(struct nvme_host *host, struct soft_ctrl *ctrl, uint16_t qid, uint32_t depth)
{
	size_t len;
	uint8_t *doorbells = soft_ctrl_doorbells(ctrl, &len);

	memset(host, 0, sizeof(*host));
	assert_true(len >= (qid + 1) * 8U);
	host->ctrl = ctrl;
	host->qid = qid;
	host->sq = (struct nvme_sq){
		.ring = pages(depth * sizeof(struct nvme_sqe)),
		.doorbell = (uint32_t *)(doorbells + qid * 8),
		.depth = depth,
	};
	host->cq = (struct nvme_cq){
		.ring = pages(depth * sizeof(struct nvme_cqe)),
		.doorbell = (uint32_t *)(doorbells + qid * 8 + 4),
		.depth = depth,
		.phase = 1,
	};
	host->buffer = pages(HOST_BUFFER);
	assert_int_equal(soft_ctrl_allow(ctrl, host->buffer, HOST_BUFFER), 0);
	host->qp =
		soft_ctrl_create_qp(ctrl, qid, depth, host->sq.ring, host->cq.ring, notify, host);
	assert_non_null(host->qp);
}

void host_close(struct nvme_host *host)
{
	soft_ctrl_delete_qp(host->qp);
	free(host->sq.ring);
	free(host->cq.ring);
	free(host->buffer);
}

static void make_prps(struct nvme_host *host, struct nvme_sqe *sqe, size_t offset, uint64_t len)
{
	uint64_t *list = (uint64_t *)(host->buffer + HOST_BUFFER - LIST_BYTES);
	uint64_t addr = (uintptr_t)host->buffer + offset;
	uint64_t first = PAGE - addr % PAGE;
	uint64_t rest = len > first ? len - first : 0;
	uint32_t entries = (uint32_t)div_round_up(rest, PAGE);
	uint32_t at = 0;

	sqe->prp1 = htole64(addr);
	addr += first;
	if (entries == 1) {
		sqe->prp2 = htole64(addr);
		return;
	}
	if (!entries)
		return;
	sqe->prp2 = htole64((uintptr_t)list);
	for (uint32_t i = 0; i < entries; i++, at++, addr += PAGE) {
		/* the last slot of a list page leads on to the next page */
		if (at % 512 == 511 && i + 1 < entries) {
			list[at] = htole64((uintptr_t)&list[at + 1]);
			at++;
		}
		list[at] = htole64(addr);
	}
}

struct nvme_sqe host_command(struct nvme_host *host, uint8_t opcode, uint64_t slba, uint32_t blocks,
			     uint32_t lba_size, size_t offset)
{
	struct nvme_sqe sqe = {
		.opcode = opcode,
		.cid = htole16(host->next_cid++),
		.nsid = htole32(1),
		.cdw10 = htole32((uint32_t)slba),
		.cdw11 = htole32((uint32_t)(slba >> 32)),
		.cdw12 = htole32(blocks - 1),
	};

	if (opcode == NVME_CMD_READ || opcode == NVME_CMD_WRITE || opcode == NVME_CMD_COMPARE)
		make_prps(host, &sqe, offset, (uint64_t)blocks * lba_size);
	return sqe;
}

void host_post(struct nvme_host *host, const struct nvme_sqe *sqe)
{
	assert_true(nvme_sq_room(&host->sq) > 0);
	nvme_sq_post(&host->sq, sqe);
}

void host_ring(struct nvme_host *host)
{
	if (nvme_sq_update_tail(&host->sq))
		soft_ctrl_ring(host->ctrl, host->qid * 8U);
}

uint16_t host_wait(struct nvme_host *host, struct nvme_cqe *out)
{
	struct nvme_cqe *cqe, copy;

	for (int i = 0; !(cqe = nvme_cq_peek(&host->cq)); i++) {
		if (!soft_ctrl_poll(host->ctrl))
			usleep(100);
		assert_true(i < 100000); /* 10 s: hangs */
	}
	copy = *cqe;
	nvme_cq_pop(&host->cq);
	assert_true(nvme_sq_update_head(&host->sq, le16toh(copy.sqhd)));
	if (nvme_cq_update_head(&host->cq))
		soft_ctrl_ring(host->ctrl, host->qid * 8U + 4);
	assert_int_equal(le16toh(copy.sqid), host->qid);
	if (out)
		*out = copy;
	return NVME_STATUS_FROM_FIELD(le16toh(copy.status));
}

uint16_t host_run(struct nvme_host *host, const struct nvme_sqe *sqe)
{
	struct nvme_cqe cqe;
	uint16_t status;

	host_post(host, sqe);
	host_ring(host);
	status = host_wait(host, &cqe);
	assert_int_equal(cqe.cid, sqe->cid);
	return status;
}

uint16_t host_io(struct nvme_host *host, uint8_t opcode, uint64_t slba, uint32_t blocks,
		 uint32_t lba_size, size_t offset)
{
	struct nvme_sqe sqe = host_command(host, opcode, slba, blocks, lba_size, offset);

	return host_run(host, &sqe);
}
