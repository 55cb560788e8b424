// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_rc.c: the offload on the real adapter: a host's QP and the target's over a link in memory,
 * with and without faults; what the packets are, and that a failing host hurts nobody else.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "../hca/qp_fixture.h"
#include "nvme/soft_ctrl.h"
#include "nvme/spec.h"
#include "offload/offload.h"
#include "util/bytes.h"

#define LBA	512U
#define NSID	3U
#define DEPTH	32U
#define HOSTS	3
#define SLOTS	8
#define AREA	32768U	   /* of the host's buffer, per command */
#define ANSWERS (3U << 20) /* responses in a's buffer */
#define DNR	NVME_STATUS_DNR

struct rc {
	struct pair pair;
	struct hca_qp *a[HOSTS], *b[HOSTS];
	struct hca_srq srq;
	struct hca_mr staging, queues, doorbells;
	struct offload *offload;
	struct offload_ctrl *ctrl;
	struct backend *backend;
	struct soft_ctrl *soft;
	struct soft_qp *soft_qp;
};

static unsigned int qp_errors, last_cqes;
static void *failed_qp;

static void on_event(struct hca_context *ctx, enum ibv_event_type type, void *object)
{
	if (type == IBV_EVENT_NVMF_QP_ERR) {
		qp_errors++;
		failed_qp = object;
	} else if (type == IBV_EVENT_NVMF_QP_LAST_CQE_REACHED) {
		last_cqes++;
	}
}

static void *map(size_t len)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(p, MAP_FAILED);
	return p;
}

static struct hca_mr memory_of(struct rc *rc, void *addr, size_t len)
{
	return (struct hca_mr){
		.pd = &rc->pair.b.pd,
		.addr = addr,
		.iova = (uintptr_t)addr,
		.length = len,
		.access = IBV_ACCESS_LOCAL_WRITE,
	};
}

static void notify(void *arg)
{
	offload_cq_notify(arg);
}

static void open_offload(struct rc *rc)
{
	struct ibv_nvmf_attrs attrs = {
		.offload_ops = IBV_NVMF_OP_READ | IBV_NVMF_OP_WRITE | IBV_NVMF_OP_FLUSH,
		.max_namespaces = 1,
		.ioccsz = (64 + 4096) / 16,
		.max_io_sz = AREA,
		.nvme_queue_depth = DEPTH,
	};
	struct offload_ctrl_init init = { .owner = rc };
	struct offload_memory staging;
	const void *lists;
	size_t len;
	uint8_t *p;

	rc->staging = memory_of(rc, map(8 * AREA), 8 * AREA);
	staging = (struct offload_memory){ &rc->staging, rc->staging.addr, rc->staging.length };
	assert_int_equal(offload_create(&rc->offload, &rc->srq, &attrs, &staging), 0);
	rc->srq.offload = rc->offload;
	rc->queues = memory_of(rc, map(8192), 8192);
	p = rc->queues.addr;
	rc->backend = backend_open_memory(4 << 20, LBA);
	rc->soft = soft_ctrl_create(1);
	assert_int_equal(soft_ctrl_add_namespace(rc->soft, 1, rc->backend), 0);
	assert_int_equal(soft_ctrl_allow(rc->soft, rc->staging.addr, rc->staging.length), 0);
	offload_prp_lists(rc->offload, &lists, &len);
	assert_int_equal(soft_ctrl_allow(rc->soft, lists, len), 0);
	rc->soft_qp = soft_ctrl_create_qp(rc->soft, 1, DEPTH, p, p + 4096, notify, rc->offload);
	assert_non_null(rc->soft_qp);
	p = soft_ctrl_doorbells(rc->soft, &len);
	rc->doorbells = memory_of(rc, p, len);
	rc->doorbells.ring = soft_ctrl_ring;
	rc->doorbells.ring_arg = rc->soft;
	init.sq = (struct offload_memory){ &rc->queues, rc->queues.addr, DEPTH * 64 };
	init.cq = (struct offload_memory){ &rc->queues, rc->queues.addr + 4096, DEPTH * 16 };
	init.sqdb = (struct offload_memory){ &rc->doorbells, p + 8, 4 };
	init.cqdb = (struct offload_memory){ &rc->doorbells, p + 12, 4 };
	assert_int_equal(offload_ctrl_create(&rc->ctrl, rc->offload, &init), 0);
	assert_int_equal(offload_map(rc->ctrl, NSID, LBA, 1), 0);
}

static struct hca_qp *make_qp(struct side *side, struct rc *rc, void *owner)
{
	struct qp_init init = {
		.ctx = &side->ctx,
		.pd = &side->pd,
		.owner = owner,
		.type = IBV_QPT_RC,
		.send_cq = &side->cq,
		.recv_cq = &side->cq,
		.cap = { .max_send_wr = 64,
			 .max_recv_wr = 64,
			 .max_send_sge = 2,
			 .max_recv_sge = 1 },
	};
	struct hca_qp *qp;

	if (side == &rc->pair.b) {
		init.srq = &rc->srq;
		init.capsule_ops = &offload_capsule_ops;
		init.hidden_wrs = offload_hidden_wrs(rc->offload);
	}
	assert_int_equal(qp_create(&qp, &init), 0);
	return qp;
}

static void connect_qp(struct side *side, struct hca_qp *qp, struct side *to, struct hca_qp *peer,
		       enum ibv_mtu mtu)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE,
		.path_mtu = mtu,
		.dest_qp_num = qp_num(peer),
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 1,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .sgid_index = 1 } },
		.timeout = 10,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.max_rd_atomic = 4,
	};

	attr.ah_attr.grh.dgid = to->gid;
	assert_int_equal(
		qp_modify(qp, &attr,
			  IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
			  gid_lookup),
		0);
	attr.qp_state = IBV_QPS_RTR;
	assert_int_equal(qp_modify(qp, &attr,
				   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
					   IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
					   IBV_QP_MIN_RNR_TIMER,
				   gid_lookup),
			 0);
	attr.qp_state = IBV_QPS_RTS;
	assert_int_equal(qp_modify(qp, &attr,
				   IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					   IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
					   IBV_QP_MAX_QP_RD_ATOMIC,
				   gid_lookup),
			 0);
}

static void post_answer(struct rc *rc, int h, uint32_t n)
{
	uint32_t at = (uint32_t)h * 64 + n % 64;
	struct ibv_sge sge = { (uintptr_t)rc->pair.a.buffer + ANSWERS + at * 16, 16,
			       rc->pair.a.mr.key };
	struct ibv_recv_wr wr = { .wr_id = at, .sg_list = &sge, .num_sge = 1 };
	const struct ibv_recv_wr *bad;

	assert_int_equal(qp_post_recv(rc->a[h], &wr, &bad), 0);
}

static void rc_open(struct rc *rc, enum ibv_mtu mtu, bool answers)
{
	struct recv_queue_attr attr = { .max_wr = 64, .max_sge = 1, .is_srq = true };

	memset(rc, 0, sizeof(*rc));
	qp_errors = last_cqes = 0;
	pair_open(&rc->pair, NULL);
	rc->pair.b.ctx.event = on_event;
	attr.pd = &rc->pair.b.pd;
	rc->srq.ctx = &rc->pair.b.ctx;
	rc->srq.pd = &rc->pair.b.pd;
	rc->srq.cq = &rc->pair.b.cq;
	rc->srq.rq = recv_queue_create(&attr);
	assert_non_null(rc->srq.rq);
	open_offload(rc);
	for (int h = 0; h < HOSTS; h++) {
		rc->a[h] = make_qp(&rc->pair.a, rc, &rc->a[h]);
		rc->b[h] = make_qp(&rc->pair.b, rc, &rc->b[h]);
		connect_qp(&rc->pair.a, rc->a[h], &rc->pair.b, rc->b[h], mtu);
		connect_qp(&rc->pair.b, rc->b[h], &rc->pair.a, rc->a[h], mtu);
		assert_int_equal(offload_qp_modify(rc->b[h], IBV_QP_NVMF_ATTR_FLAG_ENABLE), 0);
		for (uint32_t i = 0; answers && i < 32; i++)
			post_answer(rc, h, i);
	}
}

static void rc_close(struct rc *rc)
{
	for (int h = 0; h < HOSTS; h++) {
		qp_destroy(rc->a[h]);
		qp_destroy(rc->b[h]);
	}
	assert_int_equal(offload_unmap(rc->ctrl, NSID), 0);
	assert_int_equal(offload_ctrl_remove(rc->ctrl), 0);
	soft_ctrl_destroy(rc->soft);
	offload_destroy(rc->offload);
	backend_close(rc->backend);
	recv_queue_free(rc->srq.rq);
	munmap(rc->staging.addr, rc->staging.length);
	munmap(rc->queues.addr, 8192);
	pair_close(&rc->pair);
}

static struct nvme_sqe make_sqe(struct rc *rc, uint8_t opcode, uint16_t cid, uint64_t slba,
				uint32_t blocks, uint32_t offset, uint32_t key)
{
	struct nvme_sqe sqe = {
		.opcode = opcode,
		.flags = NVME_SQE_PSDT_SGL,
		.cid = htole16(cid),
		.nsid = htole32(NSID),
		.cdw10 = htole32((uint32_t)slba),
		.cdw12 = htole32(blocks - 1),
	};

	put_le64(sqe.sgl, (uintptr_t)rc->pair.a.buffer + offset);
	put_le32(sqe.sgl + 8, opcode == NVME_CMD_FLUSH ? 0 : blocks * LBA);
	put_le32(sqe.sgl + 11, key);
	sqe.sgl[15] = NVME_SGL_KEYED;
	return sqe;
}

/* SQE and, if @data_len, in-capsule data from a's buffer at @offset */
static void send_capsule(struct rc *rc, int h, const struct nvme_sqe *sqe, uint32_t offset,
			 uint32_t data_len)
{
	uint32_t at = (2U << 20) + ((uint32_t)h * 64 + le16toh(sqe->cid) % 64) * 64;
	struct ibv_sge sge[2] = {
		{ (uintptr_t)rc->pair.a.buffer + at, 64, rc->pair.a.mr.key },
		{ (uintptr_t)rc->pair.a.buffer + offset, data_len, rc->pair.a.mr.key },
	};
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_SEND,
		.sg_list = sge,
		.num_sge = data_len ? 2 : 1,
	};
	const struct ibv_send_wr *bad;

	memcpy(rc->pair.a.buffer + at, sqe, 64);
	assert_int_equal(qp_post_send(rc->a[h], &wr, &bad), 0);
}

/* next response that host side got. Return: false: none */
static bool take_answer(struct rc *rc, int *h, struct nvme_cqe *answer, struct cqe *cqe)
{
	while (cq_take(&rc->pair.a.cq, cqe, 1) == 1) {
		if (cqe->opcode != IBV_WC_RECV || cqe->status != IBV_WC_SUCCESS)
			continue;
		assert_int_equal(cqe->byte_len, 16);
		memcpy(answer, rc->pair.a.buffer + ANSWERS + cqe->wr_id * 16, 16);
		*h = (int)(cqe->wr_id / 64);
		post_answer(rc, *h, (uint32_t)cqe->wr_id);
		return true;
	}
	return false;
}

static void expect_answer(struct rc *rc, int host, uint16_t cid, uint16_t status, uint32_t inv)
{
	struct nvme_cqe answer;
	struct cqe cqe;
	int h;

	assert_true(take_answer(rc, &h, &answer, &cqe));
	assert_int_equal(h, host);
	assert_int_equal(le16toh(answer.cid), cid);
	assert_int_equal(le16toh(answer.status), status << 1);
	assert_int_equal(!!(cqe.wc_flags & IBV_WC_WITH_INV), inv != 0);
	if (inv)
		assert_int_equal(cqe.invalidated_rkey, inv);
}

static void test_commands(void **state)
{
	static const enum ibv_mtu mtus[] = { IBV_MTU_256, IBV_MTU_1024, IBV_MTU_4096 };

	for (size_t m = 0; m < ARRAY_SIZE(mtus); m++) {
		struct nvme_sqe sqe;
		struct hca_mr mr;
		struct rc rc;
		uint8_t *a;

		rc_open(&rc, mtus[m], true);
		a = rc.pair.a.buffer;
		fill(&rc.pair.a, 0, AREA, 1);
		/* WRITE by RDMA READ, with an invalidation; the key is of an MR of its own */
		mr = rc.pair.a.mr;
		assert_int_equal(memory_register(&mr), 0);
		sqe = make_sqe(&rc, NVME_CMD_WRITE, 1, 0, 64, 0, mr.key);
		sqe.sgl[15] = NVME_SGL_KEYED_INVALIDATE;
		send_capsule(&rc, 0, &sqe, 0, 0);
		settle(&rc.pair);
		expect_answer(&rc, 0, 1, 0, mr.key);
		memory_deregister(&mr);
		assert_true(link_mem_count(rc.pair.b.link, OP_READ_REQUEST) > 0);
		/* READ by RDMA WRITE */
		sqe = make_sqe(&rc, NVME_CMD_READ, 2, 0, 64, AREA, rc.pair.a.mr.key);
		send_capsule(&rc, 1, &sqe, 0, 0);
		settle(&rc.pair);
		expect_answer(&rc, 1, 2, 0, 0);
		assert_memory_equal(a, a + AREA, AREA);
		/* in the capsule: several packets at most MTUs */
		fill(&rc.pair.a, 0, 4096, 2);
		sqe = make_sqe(&rc, NVME_CMD_WRITE, 3, 64, 8, 0, 0);
		put_le64(sqe.sgl, 0);
		put_le32(sqe.sgl + 8, 4096);
		sqe.sgl[15] = NVME_SGL_OFFSET;
		send_capsule(&rc, 2, &sqe, 0, 4096);
		settle(&rc.pair);
		expect_answer(&rc, 2, 3, 0, 0);
		sqe = make_sqe(&rc, NVME_CMD_READ, 4, 64, 8, AREA, rc.pair.a.mr.key);
		send_capsule(&rc, 0, &sqe, 0, 0);
		sqe = make_sqe(&rc, NVME_CMD_FLUSH, 5, 0, 1, 0, 0);
		send_capsule(&rc, 0, &sqe, 0, 0);
		settle(&rc.pair);
		expect_answer(&rc, 0, 4, 0, 0);
		expect_answer(&rc, 0, 5, 0, 0);
		assert_memory_equal(a, a + AREA, 4096);
		assert_int_equal(qp_errors, 0);
		rc_close(&rc);
	}
}

/* what is not offloaded is received by the application, before and after offloaded ones */
static void test_software(void **state)
{
	struct nvme_sqe sqe;
	struct ibv_sge sge;
	struct ibv_recv_wr wr = { .wr_id = 77, .sg_list = &sge, .num_sge = 1 };
	struct cqe cqe;
	uint16_t sqhd;
	struct rc rc;

	rc_open(&rc, IBV_MTU_1024, true);
	sge = (struct ibv_sge){ (uintptr_t)rc.pair.b.buffer, 4160, rc.pair.b.mr.key };
	sqe = make_sqe(&rc, NVME_CMD_COMPARE, 1, 0, 8, 0, rc.pair.a.mr.key);
	send_capsule(&rc, 0, &sqe, 0, 4096);
	sqe = make_sqe(&rc, NVME_CMD_FLUSH, 2, 0, 1, 0, 0);
	send_capsule(&rc, 0, &sqe, 0, 0);
	/* no receive yet: RNR NAK, and the command behind waits */
	settle(&rc.pair);
	assert_int_equal(offload_qp_sqhd(rc.b[0], &sqhd), 0);
	assert_int_equal(sqhd, 1);
	assert_int_equal(recv_queue_post(rc.srq.rq, &wr), 0);
	for (int i = 0; i < 50; i++)
		advance(&rc.pair, NSEC_PER_MSEC);
	expect_answer(&rc, 0, 2, 0, 0);
	cqe = expect_cqe(&rc.pair.b, 77, IBV_WC_SUCCESS);
	assert_int_equal(cqe.byte_len, 4160);
	/* counted once each, though the first came twice */
	assert_int_equal(offload_qp_sqhd(rc.b[0], &sqhd), 0);
	assert_int_equal(sqhd, 2);
	rc_close(&rc);
}

/* the host has no receive for the answer: RNR, nothing is lost */
static void test_host_not_ready(void **state)
{
	struct nvme_sqe sqe;
	struct rc rc;

	rc_open(&rc, IBV_MTU_1024, false);
	for (uint16_t i = 0; i < 16; i++) {
		sqe = make_sqe(&rc, NVME_CMD_READ, i, i, 8, i * 4096U, rc.pair.a.mr.key);
		send_capsule(&rc, 0, &sqe, 0, 0);
	}
	for (int i = 0; i < 20; i++)
		advance(&rc.pair, NSEC_PER_MSEC);
	for (uint32_t i = 0; i < 16; i++)
		post_answer(&rc, 0, i);
	for (int i = 0; i < 20; i++)
		advance(&rc.pair, NSEC_PER_MSEC);
	for (uint16_t i = 0; i < 16; i++)
		expect_answer(&rc, 0, i, 0, 0);
	rc_close(&rc);
}

/* memory that the host has de-registered meanwhile (situation N31): that QP fails, no other */
static void test_stale_key(void **state)
{
	for (int opcode = NVME_CMD_WRITE; opcode <= NVME_CMD_READ; opcode++) {
		struct nvme_sqe sqe;
		struct hca_mr mr;
		struct rc rc;

		rc_open(&rc, IBV_MTU_1024, true);
		mr = rc.pair.a.mr;
		assert_int_equal(memory_register(&mr), 0);
		sqe = make_sqe(&rc, (uint8_t)opcode, 1, 0, 64, 0, mr.key);
		memory_deregister(&mr);
		send_capsule(&rc, 1, &sqe, 0, 0);
		settle(&rc.pair);
		assert_int_equal(qp_state(rc.b[1]), IBV_QPS_ERR);
		assert_int_equal(qp_errors, 1);
		assert_int_equal(last_cqes, 1);
		assert_ptr_equal(failed_qp, &rc.b[1]);
		for (int h = 0; h < HOSTS; h += 2) {
			sqe = make_sqe(&rc, NVME_CMD_READ, 9, 0, 64, 0, rc.pair.a.mr.key);
			send_capsule(&rc, h, &sqe, 0, 0);
			settle(&rc.pair);
			expect_answer(&rc, h, 9, 0, 0);
		}
		rc_close(&rc);
	}
}

/* a capsule too short or too long: NAK, that QP fails */
static void test_bad_capsule(void **state)
{
	static const uint32_t extra[] = { 4097, 8192 };
	struct nvme_sqe sqe;
	struct rc rc;

	rc_open(&rc, IBV_MTU_1024, true);
	for (int h = 0; h < 2; h++) {
		sqe = make_sqe(&rc, NVME_CMD_WRITE, 1, 0, 8, 0, rc.pair.a.mr.key);
		send_capsule(&rc, h, &sqe, 0, extra[h]);
		settle(&rc.pair);
		assert_int_equal(qp_state(rc.b[h]), IBV_QPS_ERR);
		assert_int_equal(qp_state(rc.a[h]), IBV_QPS_ERR);
		assert_int_equal(qp_errors, h + 1);
		assert_int_equal(last_cqes, h + 1);
	}
	rc_close(&rc);
}

/* ---- faults --------------------------------------------------------------- */

static unsigned int seed;

static enum fate lossy(void *arg, struct link_mem *from, const struct packet *p)
{
	switch (rand_r(&seed) % 50) {
	case 0:
		return FATE_DROP;
	case 1:
		return FATE_DUPLICATE;
	case 2:
		return FATE_SWAP;
	}
	return FATE_PASS;
}

/* random commands over a link that loses, repeats and reorders: every answer once, all data right
 */
static void test_loss(void **state)
{
	static uint8_t model[HOSTS][SLOTS][AREA];
	struct {
		bool busy;
		uint8_t opcode;
		uint32_t blocks;
	} slots[HOSTS][SLOTS] = { 0 };
	unsigned int answers = 0, sent = 0;
	struct rc rc;

	seed = 99;
	memset(model, 0, sizeof(model));
	rc_open(&rc, IBV_MTU_1024, true);
	rc.pair.a.link->decide = rc.pair.b.link->decide = lossy;
	for (int step = 0; step < 4000 || answers < sent; step++) {
		int h = rand_r(&seed) % HOSTS, s = rand_r(&seed) % SLOTS;
		uint32_t offset = (uint32_t)(h * SLOTS + s) * AREA;
		struct nvme_cqe answer;
		struct nvme_sqe sqe;
		struct cqe cqe;

		assert_true(step < 200000);
		if (step < 4000 && !slots[h][s].busy) {
			uint32_t blocks = 1 + (uint32_t)rand_r(&seed) % 64;
			uint8_t opcode = rand_r(&seed) % 2 ? NVME_CMD_READ : NVME_CMD_WRITE;

			sqe = make_sqe(&rc, opcode, (uint16_t)s, (uint64_t)(h * SLOTS + s) * 64,
				       blocks, offset, rc.pair.a.mr.key);
			if (opcode == NVME_CMD_WRITE)
				fill(&rc.pair.a, offset, blocks * LBA, (uint32_t)step);
			if (opcode == NVME_CMD_WRITE && blocks <= 8) {
				put_le64(sqe.sgl, 0);
				sqe.sgl[11] = 0;
				sqe.sgl[15] = NVME_SGL_OFFSET;
				send_capsule(&rc, h, &sqe, offset, blocks * LBA);
			} else {
				send_capsule(&rc, h, &sqe, 0, 0);
			}
			slots[h][s].busy = true;
			slots[h][s].opcode = opcode;
			slots[h][s].blocks = blocks;
			sent++;
		}
		if (rand_r(&seed) % 3 == 0)
			advance(&rc.pair, 500 * NSEC_PER_USEC);
		while (take_answer(&rc, &h, &answer, &cqe)) {
			s = le16toh(answer.cid);
			assert_true(s < SLOTS && slots[h][s].busy);
			assert_int_equal(answer.status, 0);
			offset = (uint32_t)(h * SLOTS + s) * AREA;
			if (slots[h][s].opcode == NVME_CMD_WRITE)
				memcpy(model[h][s], rc.pair.a.buffer + offset,
				       slots[h][s].blocks * LBA);
			else
				assert_memory_equal(model[h][s], rc.pair.a.buffer + offset,
						    slots[h][s].blocks * LBA);
			slots[h][s].busy = false;
			answers++;
		}
	}
	assert_int_equal(answers, sent);
	assert_int_equal(qp_errors, 0);
	rc_close(&rc);
}

static enum fate cut(void *arg, struct link_mem *from, const struct packet *p)
{
	unsigned int *left = arg;

	if (!*left)
		return FATE_DROP;
	(*left)--;
	return FATE_PASS;
}

/* the host vanishes after n packets, for every n (situation N27): the QP fails by its retries, all
 * that it held is free again */
static void test_host_vanishes(void **state)
{
	for (unsigned int n = 0; n < 60; n += 1 + n / 12) {
		unsigned int left = 100000;
		struct nvme_sqe sqe;
		struct rc rc;

		rc_open(&rc, IBV_MTU_1024, true);
		rc.pair.a.link->decide = rc.pair.b.link->decide = cut;
		rc.pair.a.link->arg = rc.pair.b.link->arg = &left;
		for (uint16_t i = 0; i < 6; i++) {
			sqe = make_sqe(&rc, i % 2 ? NVME_CMD_READ : NVME_CMD_WRITE, i, i * 8, 16,
				       i * 8192U, rc.pair.a.mr.key);
			send_capsule(&rc, 0, &sqe, 0, 0);
		}
		left = n;
		for (int i = 0; i < 300; i++)
			advance(&rc.pair, 5 * NSEC_PER_MSEC);
		/* another host comes later */
		left = 100000;
		sqe = make_sqe(&rc, NVME_CMD_READ, 50, 0, 64, 0, rc.pair.a.mr.key);
		for (int i = 0; i < 8; i++) /* as much as all of the staging */
			send_capsule(&rc, 1, &sqe, 0, 0);
		settle(&rc.pair);
		{
			struct softhca_nvmf_srq_stats stats;
			struct ibv_nvmf_ns_stats ns;
			struct nvme_cqe answer;
			int others = 0, h;
			struct cqe cqe;

			while (take_answer(&rc, &h, &answer, &cqe))
				others += h == 1 && !answer.status;
			assert_int_equal(others, 8);
			offload_query_srq(rc.offload, &stats);
			assert_int_equal(offload_query_ns(rc.ctrl, NSID, &ns), 0);
			assert_int_equal(ns.queue_depth, 0);
			if (qp_state(rc.b[0]) == IBV_QPS_ERR)
				assert_int_equal(last_cqes, 1);
		}
		rc_close(&rc);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_commands),       cmocka_unit_test(test_software),
		cmocka_unit_test(test_host_not_ready), cmocka_unit_test(test_stale_key),
		cmocka_unit_test(test_bad_capsule),    cmocka_unit_test(test_loss),
		cmocka_unit_test(test_host_vanishes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
