/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fixture.h: an offload with one namespace on a controller that is either a mock, answered by the
 * test CQE by CQE, or our soft controller on memory; one enabled QP.
 */
#ifndef TEST_OFFLOAD_FIXTURE_H
#define TEST_OFFLOAD_FIXTURE_H

#include "fake_hca.h"
#include "nvme/queue.h"
#include "nvme/soft_ctrl.h"

#define LBA	512U
#define NSID	7U    /* as the host calls it */
#define NVME_NS 1U    /* as the controller does */
#define IOCCSZ	260   /* 64 + 4096 bytes */
#define TIMEOUT 1000U /* ms */
#define DNR	NVME_STATUS_DNR
#define NS_SIZE (4U << 20) /* of the soft controller's namespace, bytes */

struct fixture_options {
	uint32_t depth;	  /* 0 = 32 */
	uint32_t max_io;  /* 0 = 128 KiB */
	uint32_t staging; /* 0 = 1 MiB */
	uint32_t icdoff;
	uint32_t ioccsz; /* 0 = IOCCSZ */
	bool soft;
	bool drive; /* the mock's doorbells announce nothing */
};

struct fixture {
	struct engine engine;
	struct hca_context ctx;
	struct hca_pd pd;
	struct hca_srq srq;
	struct hca_mr staging_mr, queue_mr, doorbell_mr;
	struct ibv_nvmf_attrs attrs;
	struct offload_memory staging;
	struct offload_ctrl_init init;
	struct offload *offload;
	struct offload_ctrl *ctrl;
	struct hca_qp *qp;
	uint8_t *queues; /* SQ, then CQ on a page of its own */

	/* mock: the controller's side */
	uint32_t doorbells[2];
	unsigned int sq_rings, cq_rings; /* calls of the doorbell region's function */
	uint32_t sq_head, cq_tail;
	uint8_t phase;

	struct soft_ctrl *soft;
	struct soft_qp *soft_qp;
	struct backend *backend;
};

void fixture_open(struct fixture *f, const struct fixture_options *options);
void fixture_close(struct fixture *f);

/* a 64-byte SQE of the host; data at host_memory + @offset by a keyed SGL of @blocks * LBA */
struct nvme_sqe host_sqe(uint8_t opcode, uint16_t cid, uint64_t slba, uint32_t blocks,
			 size_t offset);
void set_sgl(struct nvme_sqe *sqe, uint8_t type, uint64_t addr, uint32_t len, uint32_t key);
enum capsule_verdict host_send(struct fixture *f, const struct nvme_sqe *sqe);
/* expect a response: @cid, @status; returns it */
struct nvme_cqe *expect_response(struct hca_qp *qp, uint16_t cid, uint16_t status);
void expect_no_response(struct hca_qp *qp);

/* mock: SQEs that the doorbell has announced and were not taken */
unsigned int mock_pending(struct fixture *f);
/* take the next; fails the test when there is none */
struct nvme_sqe mock_take(struct fixture *f);
void mock_answer(struct fixture *f, uint16_t cid, uint16_t status);
void mock_answer_raw(struct fixture *f, const struct nvme_cqe *cqe);
/* everything is given back: staging, commands, slots */
void expect_idle(struct fixture *f);

#endif
