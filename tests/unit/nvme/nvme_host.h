/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * nvme_host.h: the host side of one queue pair of a soft controller, for tests: queues, a data
 * buffer that PRPs may name, submit and wait.
 */
#ifndef TEST_NVME_HOST_H
#define TEST_NVME_HOST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "nvme/queue.h"
#include "nvme/soft_ctrl.h"

#define HOST_BUFFER (4U << 20)
#define DNR	    NVME_STATUS_DNR

struct nvme_host {
	struct soft_ctrl *ctrl;
	struct soft_qp *qp;
	struct nvme_sq sq;
	struct nvme_cq cq;
	uint16_t qid;
	uint8_t *buffer; /* HOST_BUFFER bytes, page-aligned, allowed */
	uint16_t next_cid;
	unsigned int notified;
};

void host_open(struct nvme_host *host, struct soft_ctrl *ctrl, uint16_t qid, uint32_t depth);
void host_close(struct nvme_host *host);

/* a command on @blocks from @slba; data at buffer + @offset, PRPs made (list in the buffer's last
 * pages) */
struct nvme_sqe host_command(struct nvme_host *host, uint8_t opcode, uint64_t slba, uint32_t blocks,
			     uint32_t lba_size, size_t offset);
void host_post(struct nvme_host *host, const struct nvme_sqe *sqe);
void host_ring(struct nvme_host *host);
/* wait for the next completion, take it. Return: status; @cqe may be NULL */
uint16_t host_wait(struct nvme_host *host, struct nvme_cqe *cqe);
/* post, ring, wait */
uint16_t host_run(struct nvme_host *host, const struct nvme_sqe *sqe);
uint16_t host_io(struct nvme_host *host, uint8_t opcode, uint64_t slba, uint32_t blocks,
		 uint32_t lba_size, size_t offset);

#endif
