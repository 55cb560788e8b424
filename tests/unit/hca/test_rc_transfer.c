// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_rc_transfer.c: SEND, RDMA WRITE and RDMA READ without faults: how messages are cut into
 * packets, what completes, what is acknowledged, and that PSNs wrap.
 */
#include <string.h>

#include "qp_fixture.h"
#include "util/bytes.h"

/* ---- segmentation ---------------------------------------------------------- */

struct segmentation {
	enum ibv_wr_opcode opcode;
	uint32_t len;
	const uint8_t opcodes[8]; /* up to the first 0xff */
};

static const struct segmentation segmentations[] = {
	{ IBV_WR_SEND, 0, { 0x04, 0xff } },
	{ IBV_WR_SEND, 1, { 0x04, 0xff } },
	{ IBV_WR_SEND, 1024, { 0x04, 0xff } },
	{ IBV_WR_SEND, 1025, { 0x00, 0x02, 0xff } },
	{ IBV_WR_SEND, 3072, { 0x00, 0x01, 0x02, 0xff } },
	{ IBV_WR_SEND_WITH_IMM, 0, { 0x05, 0xff } },
	{ IBV_WR_SEND_WITH_IMM, 3000, { 0x00, 0x01, 0x03, 0xff } },
	{ IBV_WR_RDMA_WRITE, 0, { 0x0a, 0xff } },
	{ IBV_WR_RDMA_WRITE, 777, { 0x0a, 0xff } },
	{ IBV_WR_RDMA_WRITE, 2048, { 0x06, 0x08, 0xff } },
	{ IBV_WR_RDMA_WRITE, 4097, { 0x06, 0x07, 0x07, 0x07, 0x08, 0xff } },
	{ IBV_WR_RDMA_WRITE_WITH_IMM, 0, { 0x0b, 0xff } },
	{ IBV_WR_RDMA_WRITE_WITH_IMM, 2500, { 0x06, 0x07, 0x09, 0xff } },
	{ IBV_WR_RDMA_READ, 0, { 0x0c, 0xff } },
	{ IBV_WR_RDMA_READ, 5000, { 0x0c, 0xff } },
};

static void check_segmentation(const struct segmentation *s)
{
	struct pair pair;
	unsigned int i;

	pair_open(&pair, &(struct setup){ .a_psn = 100 });
	fill(&pair.a, 0, 8192, 1);
	fill(&pair.b, 0, 8192, 2);
	post_recv(&pair.b, 7, 16384, 8192);
	post(&pair.a, s->opcode, 5, 0, s->len, &pair.b, 0, IBV_SEND_SIGNALED);
	settle(&pair);
	for (i = 0; s->opcodes[i] != 0xff; i++) {
		assert_true(i < pair.a.link->log_count);
		assert_int_equal(pair.a.link->log[i].opcode, s->opcodes[i]);
		assert_int_equal(pair.a.link->log[i].psn, 100 + i);
		assert_int_equal(pair.a.link->log[i].ack_req, s->opcodes[i + 1] == 0xff);
	}
	assert_int_equal(pair.a.link->log_count, i);
	expect_cqe(&pair.a, 5, IBV_WC_SUCCESS);
	expect_no_cqe(&pair.a);
	pair_close(&pair);
}

static void test_segmentation(void **state)
{
	for (unsigned int i = 0; i < ARRAY_SIZE(segmentations); i++)
		check_segmentation(&segmentations[i]);
}

/* ---- what arrives ---------------------------------------------------------- */

static void test_send(void **state)
{
	struct pair pair;
	struct cqe cqe;

	pair_open(&pair, NULL);
	fill(&pair.a, 0, 5000, 1);
	post_recv(&pair.b, 1, 0, 3000);
	post_recv(&pair.b, 2, 8192, 6000);
	post(&pair.a, IBV_WR_SEND, 10, 0, 3000, &pair.b, 0, IBV_SEND_SIGNALED);
	post(&pair.a, IBV_WR_SEND_WITH_IMM, 11, 0, 5000, &pair.b, 0, IBV_SEND_SIGNALED);
	settle(&pair);
	cqe = expect_cqe(&pair.b, 1, IBV_WC_SUCCESS);
	assert_int_equal(cqe.opcode, IBV_WC_RECV);
	assert_int_equal(cqe.byte_len, 3000);
	assert_int_equal(cqe.wc_flags, 0);
	assert_int_equal(cqe.qp_num, qp_num(pair.b.qp));
	cqe = expect_cqe(&pair.b, 2, IBV_WC_SUCCESS);
	assert_int_equal(cqe.byte_len, 5000);
	assert_int_equal(cqe.wc_flags, IBV_WC_WITH_IMM);
	assert_int_equal(be32toh(cqe.imm_data), 0x01020304);
	assert_memory_equal(pair.b.buffer, pair.a.buffer, 3000);
	assert_memory_equal(pair.b.buffer + 8192, pair.a.buffer, 5000);
	cqe = expect_cqe(&pair.a, 10, IBV_WC_SUCCESS);
	assert_int_equal(cqe.opcode, IBV_WC_SEND);
	expect_cqe(&pair.a, 11, IBV_WC_SUCCESS);
	pair_close(&pair);
}

static void test_write(void **state)
{
	struct pair pair;
	struct cqe cqe;

	pair_open(&pair, NULL);
	fill(&pair.a, 0, 100000, 3);
	post(&pair.a, IBV_WR_RDMA_WRITE, 1, 0, 100000, &pair.b, 4096, IBV_SEND_SIGNALED);
	post_recv(&pair.b, 9, 0, 0);
	post(&pair.a, IBV_WR_RDMA_WRITE_WITH_IMM, 2, 5, 2001, &pair.b, 200000, 0);
	settle(&pair);
	assert_memory_equal(pair.b.buffer + 4096, pair.a.buffer, 100000);
	assert_memory_equal(pair.b.buffer + 200000, pair.a.buffer + 5, 2001);
	assert_int_equal(pair.b.buffer[4095], 0);
	assert_int_equal(pair.b.buffer[104096], 0);
	cqe = expect_cqe(&pair.a, 1, IBV_WC_SUCCESS);
	assert_int_equal(cqe.opcode, IBV_WC_RDMA_WRITE);
	expect_no_cqe(&pair.a); /* the second was not signaled */
	cqe = expect_cqe(&pair.b, 9, IBV_WC_SUCCESS);
	assert_int_equal(cqe.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
	assert_int_equal(cqe.byte_len, 2001);
	pair_close(&pair);
}

/* a READ larger than what our receive buffer may have on the way is asked for in pieces */
static void test_read_in_pieces(void **state)
{
	struct pair pair;
	struct cqe cqe;

	pair_open(&pair, &(struct setup){ .window = 64 << 10 });
	fill(&pair.b, 0, 200000, 4);
	post(&pair.a, IBV_WR_RDMA_READ, 1, 0, 200000, &pair.b, 0, IBV_SEND_SIGNALED);
	post(&pair.a, IBV_WR_RDMA_READ, 2, 300000, 10, &pair.b, 5, IBV_SEND_SIGNALED);
	settle(&pair);
	assert_memory_equal(pair.a.buffer, pair.b.buffer, 200000);
	assert_memory_equal(pair.a.buffer + 300000, pair.b.buffer + 5, 10);
	/* 200000 bytes in pieces of 16 KiB, then the small one */
	assert_int_equal(link_mem_count(pair.a.link, OP_READ_REQUEST), 14);
	assert_int_equal(link_mem_find(pair.a.link, OP_READ_REQUEST, 0)->dma_len, 16384);
	assert_int_equal(link_mem_find(pair.a.link, OP_READ_REQUEST, 12)->dma_len, 200000 % 16384);
	cqe = expect_cqe(&pair.a, 1, IBV_WC_SUCCESS);
	assert_int_equal(cqe.opcode, IBV_WC_RDMA_READ);
	expect_cqe(&pair.a, 2, IBV_WC_SUCCESS);
	assert_int_equal(pair.a.engine->read_bytes, 0);
	pair_close(&pair);
}

/* responses: PSNs of the request, opcodes, AETH only where it belongs */
static void test_read_responses(void **state)
{
	static const uint8_t expected[] = { 0x0d, 0x0e, 0x0f };
	struct pair pair;

	pair_open(&pair, &(struct setup){ .a_psn = 0xffffff });
	post(&pair.a, IBV_WR_RDMA_READ, 1, 0, 2100, &pair.b, 0, IBV_SEND_SIGNALED);
	post(&pair.a, IBV_WR_RDMA_WRITE, 2, 0, 8, &pair.b, 0, IBV_SEND_SIGNALED);
	settle(&pair);
	for (unsigned int i = 0; i < 3; i++) {
		assert_int_equal(pair.b.link->log[i].opcode, expected[i]);
		assert_int_equal(pair.b.link->log[i].psn, psn_add(0xffffff, i));
	}
	/* the WRITE's ACK comes after the last response */
	assert_int_equal(pair.b.link->log[3].opcode, OP_ACKNOWLEDGE);
	assert_int_equal(pair.b.link->log[3].psn, 2);
	assert_int_equal(pair.b.link->log[3].msn, 2);
	assert_int_equal(pair.b.link->log_count, 4);
	pair_close(&pair);
}

static void test_max_rd_atomic(void **state)
{
	struct pair pair;

	pair_open(&pair, &(struct setup){ .rd_atomic = 2 });
	for (unsigned int i = 0; i < 10; i++)
		post(&pair.a, IBV_WR_RDMA_READ, i, i * 100, 100, &pair.b, 0, IBV_SEND_SIGNALED);
	engine_lock(pair.a.engine);
	for (unsigned int i = 0; i < 5; i++)
		engine_progress(pair.a.engine);
	engine_unlock(pair.a.engine);
	assert_int_equal(link_mem_count(pair.a.link, OP_READ_REQUEST), 2);
	settle(&pair);
	for (unsigned int i = 0; i < 10; i++)
		expect_cqe(&pair.a, i, IBV_WC_SUCCESS);
	pair_close(&pair);
}

/* T15: a fence waits for READs, not for WRITEs */
static void test_fence(void **state)
{
	struct pair pair;

	pair_open(&pair, NULL);
	post(&pair.a, IBV_WR_RDMA_WRITE, 1, 0, 8, &pair.b, 0, 0);
	post(&pair.a, IBV_WR_RDMA_WRITE, 2, 0, 8, &pair.b, 0, IBV_SEND_FENCE);
	engine_lock(pair.a.engine);
	engine_progress(pair.a.engine);
	assert_int_equal(link_mem_count(pair.a.link, OP_WRITE_ONLY), 2);
	engine_unlock(pair.a.engine);
	post(&pair.a, IBV_WR_RDMA_READ, 3, 0, 8, &pair.b, 0, 0);
	post(&pair.a, IBV_WR_RDMA_WRITE, 4, 0, 8, &pair.b, 0, IBV_SEND_FENCE | IBV_SEND_SIGNALED);
	engine_lock(pair.a.engine);
	engine_progress(pair.a.engine);
	engine_progress(pair.a.engine);
	engine_unlock(pair.a.engine);
	assert_int_equal(link_mem_count(pair.a.link, OP_WRITE_ONLY), 2);
	settle(&pair);
	assert_int_equal(link_mem_count(pair.a.link, OP_WRITE_ONLY), 3);
	expect_cqe(&pair.a, 4, IBV_WC_SUCCESS);
	pair_close(&pair);
}

/* T1: PSNs wrap, and cross the half of their space */
static void test_psn_wrap(void **state)
{
	static const uint32_t starts[] = { 0xfffff0, 0x7ffff0 };

	for (unsigned int s = 0; s < ARRAY_SIZE(starts); s++) {
		struct pair pair;

		pair_open(&pair, &(struct setup){ .a_psn = starts[s], .b_psn = starts[s] });
		fill(&pair.a, 0, 64 * 3000, 5);
		for (unsigned int i = 0; i < 64; i++) {
			post(&pair.a, IBV_WR_RDMA_WRITE, i, i * 3000, 3000, &pair.b, i * 3000,
			     IBV_SEND_SIGNALED);
			settle(&pair);
		}
		for (unsigned int i = 0; i < 32; i++)
			post(&pair.a, IBV_WR_RDMA_READ, 100 + i, 1 << 20, 9000, &pair.b, i * 3000,
			     IBV_SEND_SIGNALED);
		settle(&pair);
		assert_memory_equal(pair.b.buffer, pair.a.buffer, 64 * 3000);
		assert_memory_equal(pair.a.buffer + (1 << 20), pair.b.buffer + 31 * 3000, 9000);
		for (unsigned int i = 0; i < 64; i++)
			expect_cqe(&pair.a, i, IBV_WC_SUCCESS);
		for (unsigned int i = 0; i < 32; i++)
			expect_cqe(&pair.a, 100 + i, IBV_WC_SUCCESS);
		assert_int_equal(pair.a.qp->req.una_psn, psn_add(starts[s], 64 * 3 + 32 * 9));
		pair_close(&pair);
	}
}

/* one ACK for a batch, and it covers all of it */
static void test_ack_coalescing(void **state)
{
	struct pair pair;

	pair_open(&pair, NULL);
	for (unsigned int i = 0; i < 50; i++)
		post(&pair.a, IBV_WR_RDMA_WRITE, i, 0, 64, &pair.b, 0, IBV_SEND_SIGNALED);
	settle(&pair);
	/* the first was sent at once and alone, the others together */
	assert_int_equal(link_mem_count(pair.b.link, OP_ACKNOWLEDGE), 1);
	assert_int_equal(pair.b.link->log[0].psn, 49);
	assert_int_equal(pair.b.link->log[0].msn, 50);
	for (unsigned int i = 0; i < 50; i++)
		expect_cqe(&pair.a, i, IBV_WC_SUCCESS);
	pair_close(&pair);
}

/* an ACK follows the data that go back in the same round, so that it ends their super-packet */
static void test_ack_rides_behind_data(void **state)
{
	struct pair pair;

	pair_open(&pair, NULL);
	post_recv(&pair.b, 1, 0, 64);
	post_recv(&pair.a, 1, 0, 64);
	post(&pair.a, IBV_WR_SEND, 2, 0, 64, &pair.b, 0, IBV_SEND_SIGNALED);
	assert_true(engine_poll(pair.b.engine));
	/* the completion is there, the ACK waits for the application's answer */
	expect_cqe(&pair.b, 1, IBV_WC_SUCCESS);
	assert_int_equal(pair.b.link->log_count, 0);
	post(&pair.b, IBV_WR_SEND, 3, 0, 64, &pair.a, 0, IBV_SEND_SIGNALED);
	assert_int_equal(pair.b.link->log_count, 2);
	assert_int_equal(pair.b.link->log[0].opcode, OP_SEND_ONLY);
	assert_int_equal(pair.b.link->log[1].opcode, OP_ACKNOWLEDGE);
	settle(&pair);
	/* no answer: the next poll sends it */
	post_recv(&pair.b, 4, 0, 64);
	pair.b.link->log_count = 0;
	post(&pair.a, IBV_WR_SEND, 5, 0, 64, &pair.b, 0, IBV_SEND_SIGNALED);
	engine_poll(pair.b.engine);
	assert_int_equal(pair.b.link->log_count, 0);
	engine_poll(pair.b.engine);
	assert_int_equal(pair.b.link->log_count, 1);
	assert_int_equal(pair.b.link->log[0].opcode, OP_ACKNOWLEDGE);
	pair_close(&pair);
}

/* ... and it waits one round only, also when something new arrives in each */
static void test_ack_is_not_put_off_forever(void **state)
{
	struct pair pair;

	pair_open(&pair, NULL);
	for (unsigned int i = 0; i < 4; i++) {
		post_recv(&pair.b, i, 0, 64);
		post(&pair.a, IBV_WR_SEND, i, 0, 64, &pair.b, 0, IBV_SEND_SOLICITED);
		engine_lock(pair.a.engine);
		engine_progress(pair.a.engine);
		engine_unlock(pair.a.engine);
		engine_poll(pair.b.engine);
		assert_int_equal(pair.b.link->log_count, (i + 1) / 2);
		assert_true(pair.a.link->log[i].solicited);
	}
	pair_close(&pair);
}

/* SGE lists: data are gathered and scattered across packet boundaries */
static void test_sge_lists(void **state)
{
	struct pair pair;
	struct ibv_sge sges[4];
	struct ibv_send_wr wr = { .wr_id = 1,
				  .sg_list = sges,
				  .num_sge = 4,
				  .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = IBV_SEND_SIGNALED };
	const struct ibv_send_wr *bad;
	static const uint32_t lens[4] = { 100, 0, 2000, 1400 };
	uint8_t expected[3500], *e = expected;

	pair_open(&pair, NULL);
	fill(&pair.a, 0, 20000, 6);
	for (unsigned int i = 0; i < 4; i++) {
		sges[i] = (struct ibv_sge){ (uintptr_t)pair.a.buffer + i * 5000, lens[i],
					    lens[i] ? pair.a.mr.key : 0 };
		memcpy(e, pair.a.buffer + i * 5000, lens[i]);
		e += lens[i];
	}
	wr.wr.rdma.remote_addr = (uintptr_t)pair.b.buffer;
	wr.wr.rdma.rkey = pair.b.mr.key;
	assert_int_equal(qp_post_send(pair.a.qp, &wr, &bad), 0);
	settle(&pair);
	expect_cqe(&pair.a, 1, IBV_WC_SUCCESS);
	assert_memory_equal(pair.b.buffer, expected, 3500);
	/* and back into the same places */
	memset(pair.a.buffer, 0, 20000);
	wr.opcode = IBV_WR_RDMA_READ;
	assert_int_equal(qp_post_send(pair.a.qp, &wr, &bad), 0);
	settle(&pair);
	expect_cqe(&pair.a, 1, IBV_WC_SUCCESS);
	assert_memory_equal(pair.a.buffer, expected, 100);
	assert_int_equal(pair.a.buffer[100], 0);
	assert_memory_equal(pair.a.buffer + 10000, expected + 100, 2000);
	assert_memory_equal(pair.a.buffer + 15000, expected + 2100, 1400);
	pair_close(&pair);
}

/* every path MTU, larger than one super-packet, window smaller than the message */
static void test_path_mtus(void **state)
{
	for (enum ibv_mtu mtu = IBV_MTU_256; mtu <= IBV_MTU_4096; mtu++) {
		struct pair pair;

		pair_open(&pair, &(struct setup){ .mtu = mtu, .window = 100000 });
		fill(&pair.a, 0, 1000001, mtu);
		post(&pair.a, IBV_WR_RDMA_WRITE, 1, 0, 1000001, &pair.b, 0, IBV_SEND_SIGNALED);
		settle(&pair);
		expect_cqe(&pair.a, 1, IBV_WC_SUCCESS);
		assert_memory_equal(pair.b.buffer, pair.a.buffer, 1000001);
		assert_true(pair.a.qp->peer->in_flight == 0);
		pair_close(&pair);
	}
}

/* the link takes only so many packets at a time */
static void test_full_link(void **state)
{
	struct pair pair;

	pair_open(&pair, NULL);
	pair.a.link->full_after = pair.b.link->full_after = 3;
	fill(&pair.a, 0, 50000, 7);
	post(&pair.a, IBV_WR_RDMA_WRITE, 1, 0, 50000, &pair.b, 0, IBV_SEND_SIGNALED);
	post(&pair.a, IBV_WR_RDMA_READ, 2, 60000, 50000, &pair.b, 0, IBV_SEND_SIGNALED);
	settle(&pair);
	expect_cqe(&pair.a, 1, IBV_WC_SUCCESS);
	expect_cqe(&pair.a, 2, IBV_WC_SUCCESS);
	assert_memory_equal(pair.a.buffer + 60000, pair.a.buffer, 50000);
	pair_close(&pair);
}

/* both QPs in one process: through the link like any others */
static void test_local_qps(void **state)
{
	struct pair pair;
	struct setup setup = { .window = 64 << 10 };
	struct hca_qp *first, *second, *saved;

	pair_open(&pair, &setup);
	pair.a.link->peer = pair.a.link;
	pair_connect_local(&pair, &setup, &first, &second);
	saved = pair.a.qp;
	fill(&pair.a, 0, 300000, 1);
	pair.a.qp = second;
	post_recv(&pair.a, 7, 2 << 20, 300000);
	pair.a.qp = first;
	post(&pair.a, IBV_WR_RDMA_WRITE, 1, 0, 300000, &pair.a, 1 << 20, IBV_SEND_SIGNALED);
	post(&pair.a, IBV_WR_RDMA_READ, 2, 3 << 20, 300000, &pair.a, 1 << 20, IBV_SEND_SIGNALED);
	settle(&pair);
	expect_cqe(&pair.a, 1, IBV_WC_SUCCESS);
	expect_cqe(&pair.a, 2, IBV_WC_SUCCESS);
	post(&pair.a, IBV_WR_SEND, 3, 3 << 20, 300000, &pair.a, 0, 0);
	settle(&pair);
	expect_cqe(&pair.a, 7, IBV_WC_SUCCESS);
	assert_memory_equal(pair.a.buffer + (2 << 20), pair.a.buffer, 300000);
	qp_destroy(first);
	qp_destroy(second);
	pair.a.qp = saved;
	pair.a.link->peer = pair.b.link;
	pair_close(&pair);
}

/* COMM_EST once, at the first packet in RTR */
static void test_comm_est(void **state)
{
	struct pair pair;
	struct setup setup = { 0 };
	struct hca_qp *a, *b;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };

	pair_open(&pair, NULL);
	pair_connect(&pair, &setup, &a, &b);
	assert_int_equal(qp_modify(b, &attr, IBV_QP_STATE, gid_lookup), 0);
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_INIT,
				     .port_num = 1,
				     .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };
	assert_int_equal(
		qp_modify(b, &attr,
			  IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS,
			  gid_lookup),
		0);
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR,
				     .path_mtu = IBV_MTU_1024,
				     .dest_qp_num = qp_num(a),
				     .ah_attr = { .is_global = 1, .grh.sgid_index = 1 } };
	attr.ah_attr.grh.dgid = pair.a.gid;
	assert_int_equal(qp_modify(b, &attr,
				   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
					   IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
					   IBV_QP_MIN_RNR_TIMER,
				   gid_lookup),
			 0);
	qp_destroy(pair.a.qp);
	pair.a.qp = a;
	post(&pair.a, IBV_WR_RDMA_WRITE, 1, 0, 8, &pair.b, 0, IBV_SEND_SIGNALED);
	post(&pair.a, IBV_WR_RDMA_WRITE, 2, 0, 8, &pair.b, 0, IBV_SEND_SIGNALED);
	settle(&pair);
	assert_int_equal(pair.b.events[IBV_EVENT_COMM_EST], 1);
	expect_cqe(&pair.a, 1, IBV_WC_SUCCESS);
	qp_destroy(b);
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_segmentation),
		cmocka_unit_test(test_send),
		cmocka_unit_test(test_write),
		cmocka_unit_test(test_read_in_pieces),
		cmocka_unit_test(test_read_responses),
		cmocka_unit_test(test_max_rd_atomic),
		cmocka_unit_test(test_fence),
		cmocka_unit_test(test_psn_wrap),
		cmocka_unit_test(test_ack_coalescing),
		cmocka_unit_test(test_ack_rides_behind_data),
		cmocka_unit_test(test_ack_is_not_put_off_forever),
		cmocka_unit_test(test_sge_lists),
		cmocka_unit_test(test_path_mtus),
		cmocka_unit_test(test_full_link),
		cmocka_unit_test(test_local_qps),
		cmocka_unit_test(test_comm_est),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
