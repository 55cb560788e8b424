// SPDX-License-Identifier: BSD-2-Clause
/* fixture.c: an offload over a mock or soft controller */
#include "fixture.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "offload/internal.h"
#include "util/bytes.h"
#include "util/clock.h"

#define PAGE 4096U

static void mock_ring(void *arg, size_t offset)
{
	struct fixture *f = arg;

	if (offset)
		f->cq_rings++;
	else
		f->sq_rings++;
}

static void *map(size_t len)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(p, MAP_FAILED);
	return p;
}

static struct offload_memory piece(struct hca_mr *mr, void *addr, uint64_t len)
{
	return (struct offload_memory){ mr, addr, len };
}

static void notify(void *arg)
{
	offload_cq_notify(arg);
}

void fixture_open(struct fixture *f, const struct fixture_options *options)
{
	struct fixture_options o = options ? *options : (struct fixture_options){ 0 };
	uint32_t depth = o.depth ?: 32;
	uint32_t staging_len = o.staging ?: 1 << 20;
	size_t sq_len = depth * sizeof(struct nvme_sqe);
	size_t cq_at = (sq_len + PAGE - 1) / PAGE * PAGE;
	size_t doorbells_len = sizeof(f->doorbells);
	void *doorbells = f->doorbells;

	memset(f, 0, sizeof(*f));
	fake_engine_init(&f->engine, &f->ctx);
	f->pd.ctx = &f->ctx;
	f->srq.ctx = &f->ctx;
	f->srq.pd = &f->pd;
	f->phase = 1;
	f->staging_mr = (struct hca_mr){
		.pd = &f->pd,
		.addr = map(staging_len),
		.length = staging_len,
		.access = IBV_ACCESS_LOCAL_WRITE,
	};
	f->attrs = (struct ibv_nvmf_attrs){
		.offload_ops = IBV_NVMF_OP_READ | IBV_NVMF_OP_WRITE | IBV_NVMF_OP_FLUSH,
		.max_namespaces = 4,
		.ioccsz = o.ioccsz ?: IOCCSZ,
		.icdoff = o.icdoff,
		.max_io_sz = o.max_io ?: 128 << 10,
		.nvme_queue_depth = depth,
	};
	f->staging = piece(&f->staging_mr, f->staging_mr.addr, staging_len);
	assert_int_equal(offload_create(&f->offload, &f->srq, &f->attrs, &f->staging), 0);
	f->srq.offload = f->offload;

	f->queues = map(cq_at + depth * sizeof(struct nvme_cqe));
	f->queue_mr = (struct hca_mr){
		.pd = &f->pd,
		.addr = f->queues,
		.length = cq_at + depth * sizeof(struct nvme_cqe),
		.access = IBV_ACCESS_LOCAL_WRITE,
	};
	if (o.soft) {
		const void *lists;
		size_t lists_len;

		f->backend = backend_open_memory(NS_SIZE, LBA);
		f->soft = soft_ctrl_create(1);
		assert_int_equal(soft_ctrl_add_namespace(f->soft, NVME_NS, f->backend), 0);
		assert_int_equal(soft_ctrl_allow(f->soft, f->staging_mr.addr, staging_len), 0);
		offload_prp_lists(f->offload, &lists, &lists_len);
		if (lists_len)
			assert_int_equal(soft_ctrl_allow(f->soft, lists, lists_len), 0);
		f->soft_qp = soft_ctrl_create_qp(f->soft, 1, depth, f->queues, f->queues + cq_at,
						 notify, f->offload);
		assert_non_null(f->soft_qp);
		doorbells = soft_ctrl_doorbells(f->soft, &doorbells_len);
	}
	f->doorbell_mr = (struct hca_mr){
		.pd = &f->pd,
		.addr = doorbells,
		.length = doorbells_len,
		.access = IBV_ACCESS_LOCAL_WRITE,
		.ring = o.soft	  ? soft_ctrl_ring
			: o.drive ? NULL
				  : mock_ring,
		.ring_arg = o.soft ? (void *)f->soft : f,
	};
	f->init = (struct offload_ctrl_init){
		.owner = &f->init,
		.sq = piece(&f->queue_mr, f->queues, sq_len),
		.cq = piece(&f->queue_mr, f->queues + cq_at, depth * sizeof(struct nvme_cqe)),
		.sqdb = piece(&f->doorbell_mr, f->doorbell_mr.addr + (o.soft ? 8 : 0), 4),
		.cqdb = piece(&f->doorbell_mr, f->doorbell_mr.addr + (o.soft ? 12 : 4), 4),
		.cmd_timeout_ms = TIMEOUT,
	};
	assert_int_equal(offload_ctrl_create(&f->ctrl, f->offload, &f->init), 0);
	assert_int_equal(offload_map(f->ctrl, NSID, LBA, NVME_NS), 0);

	f->qp = calloc(1, sizeof(*f->qp));
	fake_qp_init(f->qp, &f->ctx, &f->srq, 0x10017);
	assert_int_equal(offload_qp_modify(f->qp, IBV_QP_NVMF_ATTR_FLAG_ENABLE), 0);
}

void fixture_close(struct fixture *f)
{
	if (f->qp)
		fake_qp_reset(f->qp);
	if (f->ctrl) {
		offload_unmap(f->ctrl, NSID);
		assert_int_equal(offload_ctrl_remove(f->ctrl), 0);
	}
	offload_destroy(f->offload);
	assert_int_equal(f->engine.timer_capacity, 0);
	if (f->soft)
		soft_ctrl_destroy(f->soft);
	backend_close(f->backend);
	munmap(f->staging_mr.addr, f->staging_mr.length);
	munmap(f->queues, f->queue_mr.length);
	pthread_mutex_destroy(&f->engine.lock);
	free(f->qp);
	clock_set_source(NULL);
}

void set_sgl(struct nvme_sqe *sqe, uint8_t type, uint64_t addr, uint32_t len, uint32_t key)
{
	put_le64(sqe->sgl, addr);
	put_le32(sqe->sgl + 8, len);
	if (type != NVME_SGL_OFFSET)
		put_le32(sqe->sgl + 11, key);
	sqe->sgl[15] = type;
}

struct nvme_sqe host_sqe(uint8_t opcode, uint16_t cid, uint64_t slba, uint32_t blocks,
			 size_t offset)
{
	struct nvme_sqe sqe = {
		.opcode = opcode,
		.flags = NVME_SQE_PSDT_SGL,
		.cid = htole16(cid),
		.nsid = htole32(NSID),
		.cdw10 = htole32((uint32_t)slba),
		.cdw11 = htole32((uint32_t)(slba >> 32)),
		.cdw12 = htole32(blocks - 1),
	};

	if (opcode == NVME_CMD_FLUSH) {
		sqe.cdw10 = sqe.cdw12 = 0;
		set_sgl(&sqe, NVME_SGL_KEYED, 0, 0, 0);
	} else {
		set_sgl(&sqe, NVME_SGL_KEYED, (uintptr_t)host_memory + offset, blocks * LBA,
			HOST_KEY);
	}
	return sqe;
}

enum capsule_verdict host_send(struct fixture *f, const struct nvme_sqe *sqe)
{
	return fake_send(f->qp, sqe, sizeof(*sqe), 4096);
}

struct nvme_cqe *expect_response(struct hca_qp *qp, uint16_t cid, uint16_t status)
{
	struct nvme_cqe *cqe = fake_response(qp);

	assert_int_equal(le16toh(cqe->cid), cid);
	assert_int_equal(le16toh(cqe->status), status << 1); /* phase 0 */
	return cqe;
}

void expect_no_response(struct hca_qp *qp)
{
	assert_int_equal(qp->responses_read, qp->response_count);
}

unsigned int mock_pending(struct fixture *f)
{
	uint32_t tail = le32toh(f->doorbells[0]), depth = f->attrs.nvme_queue_depth;

	assert_true(tail < depth);
	return (tail + depth - f->sq_head) % depth;
}

struct nvme_sqe mock_take(struct fixture *f)
{
	struct nvme_sqe sqe;

	assert_true(mock_pending(f) > 0);
	memcpy(&sqe, f->queues + f->sq_head * sizeof(sqe), sizeof(sqe));
	f->sq_head = (f->sq_head + 1) % f->attrs.nvme_queue_depth;
	return sqe;
}

void mock_answer_raw(struct fixture *f, const struct nvme_cqe *cqe)
{
	struct nvme_cqe *ring = (struct nvme_cqe *)(void *)f->init.cq.addr;

	nvme_cqe_write(&ring[f->cq_tail], cqe, f->phase);
	if (++f->cq_tail == f->attrs.nvme_queue_depth) {
		f->cq_tail = 0;
		f->phase ^= 1;
	}
}

void mock_answer(struct fixture *f, uint16_t cid, uint16_t status)
{
	struct nvme_cqe cqe = {
		.dw0 = htole32(0x11223344),
		.dw1 = htole32(0x55667788),
		.sqhd = htole16((uint16_t)f->sq_head),
		.sqid = htole16(1),
		.cid = cid,
		.status = htole16(NVME_STATUS_TO_FIELD(status)),
	};

	mock_answer_raw(f, &cqe);
}

void expect_idle(struct fixture *f)
{
	struct offload *off = f->offload;
	struct ibv_nvmf_ns_stats stats;
	struct list_node *pos;
	unsigned int commands = 0;

	assert_int_equal(off->staging.free_pages, off->staging.page_count);
	list_for_each(pos, &off->free)
		commands++;
	assert_int_equal(commands, MAX(256, 4 * f->attrs.nvme_queue_depth));
	assert_int_equal(off->capsule_free_count, off->capsule_count);
	assert_true(list_empty(&off->wait_staging));
	assert_true(list_empty(&off->respond));
	assert_int_equal(f->ctrl->free_count, f->attrs.nvme_queue_depth - 1);
	assert_true(list_empty(&f->ctrl->timed));
	assert_true(list_empty(&f->ctrl->wait_sq));
	if (!offload_query_ns(f->ctrl, NSID, &stats))
		assert_int_equal(stats.queue_depth, 0);
}
