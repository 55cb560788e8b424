// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_rc_limits.c: the largest message, path MTUs that differ, responder resources that change
 * under way, timers of an idle QP.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "qp_fixture.h"
#include "util/bytes.h"

#define ALIAS_LEN (1U << 20)

/* 2^31 bytes of address space over one and the same megabyte */
static void alias_open(struct hca_mr *mr, struct hca_pd *pd)
{
	uint8_t *map = mmap(NULL, HCA_MAX_MSG_LEN, PROT_NONE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	int fd = memfd_create("alias", 0);

	assert_ptr_not_equal(map, MAP_FAILED);
	assert_int_equal(ftruncate(fd, ALIAS_LEN), 0);
	for (size_t at = 0; at < HCA_MAX_MSG_LEN; at += ALIAS_LEN)
		assert_ptr_equal(mmap(map + at, ALIAS_LEN, PROT_READ | PROT_WRITE,
				      MAP_SHARED | MAP_FIXED, fd, 0),
				 map + at);
	close(fd);
	*mr = (struct hca_mr){ .pd = pd,
			       .addr = map,
			       .iova = (uintptr_t)map,
			       .length = HCA_MAX_MSG_LEN,
			       .access = IBV_ACCESS_LOCAL_WRITE };
	assert_int_equal(memory_register(mr), 0);
}

static void alias_close(struct hca_mr *mr)
{
	memory_deregister(mr);
	munmap((void *)(uintptr_t)mr->iova, HCA_MAX_MSG_LEN);
}

static void settle_long(struct pair *pair)
{
	struct cqe cqe;

	for (int i = 0; i < 10000000 && cq_is_empty(&pair->a.cq); i++) {
		engine_poll(pair->a.engine);
		engine_poll(pair->b.engine);
	}
	assert_int_equal(cq_take(&pair->a.cq, &cqe, 1), 1);
	assert_int_equal(cqe.status, IBV_WC_SUCCESS);
}

/* T17: max_msg_sz is what the port says it is; one byte more: test_rc_errors, local errors */
static void test_largest_message(void **state)
{
	struct pair pair;
	struct hca_mr from, to;
	struct ibv_sge sge = { .length = HCA_MAX_MSG_LEN };
	struct ibv_send_wr send = { .sg_list = &sge,
				    .num_sge = 1,
				    .opcode = IBV_WR_SEND,
				    .send_flags = IBV_SEND_SIGNALED };
	struct ibv_recv_wr recv = { .wr_id = 7, .sg_list = &sge, .num_sge = 1 };
	const struct ibv_send_wr *bad;
	const struct ibv_recv_wr *bad_recv;

	pair_open(&pair, &(struct setup){ .mtu = IBV_MTU_4096 });
	alias_open(&from, &pair.a.pd);
	alias_open(&to, &pair.b.pd);
	memset(from.addr, 0x5a, ALIAS_LEN);
	sge.addr = to.iova;
	sge.lkey = to.key;
	assert_int_equal(qp_post_recv(pair.b.qp, &recv, &bad_recv), 0);
	sge.addr = from.iova;
	sge.lkey = from.key;
	assert_int_equal(qp_post_send(pair.a.qp, &send, &bad), 0);
	settle_long(&pair);
	assert_int_equal(expect_cqe(&pair.b, 7, IBV_WC_SUCCESS).byte_len, HCA_MAX_MSG_LEN);
	assert_memory_equal(from.addr, to.addr, ALIAS_LEN);
	alias_close(&from);
	alias_close(&to);
	pair_close(&pair);
}

/* T21. A message of one packet that both sides allow is not harmed */
static void test_different_mtus(void **state)
{
	static const struct {
		unsigned int a_mtu, b_mtu;
		enum ibv_wr_opcode opcode;
		uint32_t len;
		enum ibv_wc_status status;
	} rows[] = {
		{ 4096, 1024, IBV_WR_SEND, 10000, IBV_WC_REM_INV_REQ_ERR },
		{ 4096, 1024, IBV_WR_SEND, 4096, IBV_WC_REM_INV_REQ_ERR }, /* a long ONLY */
		{ 4096, 1024, IBV_WR_RDMA_WRITE, 10000, IBV_WC_REM_INV_REQ_ERR },
		{ 4096, 1024, IBV_WR_RDMA_READ, 10000, IBV_WC_BAD_RESP_ERR },
		{ 1024, 4096, IBV_WR_SEND, 10000, IBV_WC_REM_INV_REQ_ERR },
		{ 1024, 4096, IBV_WR_RDMA_WRITE, 10000, IBV_WC_REM_INV_REQ_ERR },
		{ 1024, 4096, IBV_WR_RDMA_READ, 10000, IBV_WC_BAD_RESP_ERR },
		{ 4096, 1024, IBV_WR_SEND, 1024, IBV_WC_SUCCESS },
		{ 4096, 1024, IBV_WR_RDMA_READ, 1024, IBV_WC_SUCCESS },
		{ 1024, 1024, IBV_WR_SEND, 10000, IBV_WC_SUCCESS },
		{ 1024, 1024, IBV_WR_RDMA_READ, 10000, IBV_WC_SUCCESS },
	};

	for (unsigned int i = 0; i < ARRAY_SIZE(rows); i++) {
		struct pair pair;

		print_message("%u\n", i);
		pair_open(&pair, NULL);
		pair.a.qp->mtu = rows[i].a_mtu;
		pair.b.qp->mtu = rows[i].b_mtu;
		post_recv(&pair.b, 7, 0, 20000);
		post(&pair.a, rows[i].opcode, 1, 0, rows[i].len, &pair.b, 0, IBV_SEND_SIGNALED);
		settle(&pair);
		expect_cqe(&pair.a, 1, rows[i].status);
		if (rows[i].status == IBV_WC_REM_INV_REQ_ERR)
			assert_int_equal(link_mem_find(pair.b.link, OP_ACKNOWLEDGE, 0)->syndrome,
					 AETH_NAK_INVALID);
		pair_close(&pair);
	}
}

static void set_resources(struct hca_qp *qp, uint8_t resources, int expected)
{
	struct ibv_qp_attr attr = { .qp_state = qp_state(qp), .max_dest_rd_atomic = resources };

	assert_int_equal(qp_modify(qp, &attr, IBV_QP_STATE | IBV_QP_MAX_DEST_RD_ATOMIC, gid_lookup),
			 expected);
}

/* V1: READs that are being answered go on, whatever becomes of their resources */
static void test_resources_change_during_reads(void **state)
{
	static const uint8_t resources[] = { 0, 1, 3, 16 };

	for (unsigned int i = 0; i < ARRAY_SIZE(resources); i++) {
		struct ibv_qp_attr sqd = { .qp_state = IBV_QPS_SQD };
		struct pair pair;

		pair_open(&pair, &(struct setup){ .rd_atomic = 4 });
		fill(&pair.b, 0, 1 << 20, i);
		for (unsigned int r = 0; r < 4; r++)
			post(&pair.a, IBV_WR_RDMA_READ, r, (1 << 20) + r * 200000, 200000, &pair.b,
			     r * 200000, IBV_SEND_SIGNALED);
		engine_poll(pair.b.engine);
		assert_in_range(pair.b.link->log_count, 1, 700);
		set_resources(pair.b.qp, resources[i], EINVAL); /* not in RTS */
		assert_int_equal(qp_modify(pair.b.qp, &sqd, IBV_QP_STATE, gid_lookup), 0);
		set_resources(pair.b.qp, resources[i], 0);
		settle(&pair);
		for (unsigned int r = 0; r < 4; r++)
			expect_cqe(&pair.a, r, IBV_WC_SUCCESS);
		assert_memory_equal(pair.a.buffer + (1 << 20), pair.b.buffer, 800000);
		/* one more, by itself: needs one resource */
		post(&pair.a, IBV_WR_RDMA_READ, 9, 0, 5000, &pair.b, 0, IBV_SEND_SIGNALED);
		settle(&pair);
		expect_cqe(&pair.a, 9, resources[i] ? IBV_WC_SUCCESS : IBV_WC_REM_INV_REQ_ERR);
		pair_close(&pair);
	}
}

/* T9: nothing runs on when all is acknowledged, whatever happened before */
static void test_idle_has_no_timer(void **state)
{
	struct pair pair;

	pair_open(&pair, NULL);
	post(&pair.a, IBV_WR_RDMA_WRITE, 1, 0, 5000, &pair.b, 0, IBV_SEND_SIGNALED);
	assert_int_equal(pair.a.engine->timer_count, 1);
	post(&pair.a, IBV_WR_SEND, 2, 0, 10, &pair.b, 0, IBV_SEND_SIGNALED);
	settle(&pair);
	assert_int_equal(pair.a.engine->timer_count, 1); /* it waits to send again */
	post_recv(&pair.b, 7, 0, 10);
	advance(&pair, 2 * NSEC_PER_MSEC);
	expect_cqe(&pair.a, 1, IBV_WC_SUCCESS);
	expect_cqe(&pair.a, 2, IBV_WC_SUCCESS);
	post(&pair.a, IBV_WR_RDMA_READ, 3, 0, 5000, &pair.b, 0, IBV_SEND_SIGNALED);
	settle(&pair);
	expect_cqe(&pair.a, 3, IBV_WC_SUCCESS);
	for (int i = 0; i < 10; i++) /* what was set may expire once, and is not set again */
		advance(&pair, NSEC_PER_SEC);
	assert_int_equal(pair.a.engine->timer_count, 0);
	assert_int_equal(pair.b.engine->timer_count, 0);
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_largest_message),
		cmocka_unit_test(test_different_mtus),
		cmocka_unit_test(test_resources_change_during_reads),
		cmocka_unit_test(test_idle_has_no_timer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
