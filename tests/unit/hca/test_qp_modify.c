// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_qp_modify.c: the QP state machine: which attributes each transition needs and takes, which
 * values are refused, what posting does in each state (wire-facts 2.7).
 */
#include <errno.h>
#include <string.h>

#include "qp_fixture.h"
#include "util/bytes.h"

#define INIT_MASK (IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
#define RTR_MASK                                                                                   \
	(IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |                           \
	 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
#define RTS_MASK                                                                                   \
	(IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |                    \
	 IBV_QP_MAX_QP_RD_ATOMIC)
#define RTS_OPTIONAL                                                                               \
	(IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER | IBV_QP_PATH_MIG_STATE)
#define SQD_OPTIONAL                                                                               \
	(IBV_QP_PORT | IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |          \
	 IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_ACCESS_FLAGS |               \
	 IBV_QP_PKEY_INDEX | IBV_QP_MIN_RNR_TIMER | IBV_QP_PATH_MIG_STATE)

/* ALT_PATH belongs to some of the sets, but there are no alternate paths here: always EINVAL */
static const struct {
	enum ibv_qp_state from, to;
	int required, optional;
} legal[] = {
	{ IBV_QPS_RESET, IBV_QPS_INIT, INIT_MASK, 0 },
	{ IBV_QPS_INIT, IBV_QPS_INIT, 0, INIT_MASK },
	{ IBV_QPS_INIT, IBV_QPS_RTR, RTR_MASK, IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX },
	{ IBV_QPS_RTR, IBV_QPS_RTS, RTS_MASK, RTS_OPTIONAL },
	{ IBV_QPS_RTS, IBV_QPS_RTS, 0, RTS_OPTIONAL },
	{ IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY },
	{ IBV_QPS_SQD, IBV_QPS_SQD, 0, SQD_OPTIONAL },
	{ IBV_QPS_SQD, IBV_QPS_RTS, 0, RTS_OPTIONAL },
};

static const int all_bits[] = {
	IBV_QP_CUR_STATE,
	IBV_QP_EN_SQD_ASYNC_NOTIFY,
	IBV_QP_ACCESS_FLAGS,
	IBV_QP_PKEY_INDEX,
	IBV_QP_PORT,
	IBV_QP_QKEY,
	IBV_QP_AV,
	IBV_QP_PATH_MTU,
	IBV_QP_TIMEOUT,
	IBV_QP_RETRY_CNT,
	IBV_QP_RNR_RETRY,
	IBV_QP_RQ_PSN,
	IBV_QP_MAX_QP_RD_ATOMIC,
	IBV_QP_ALT_PATH,
	IBV_QP_MIN_RNR_TIMER,
	IBV_QP_SQ_PSN,
	IBV_QP_MAX_DEST_RD_ATOMIC,
	IBV_QP_PATH_MIG_STATE,
	IBV_QP_CAP,
	IBV_QP_DEST_QPN,
	IBV_QP_RATE_LIMIT,
};

static struct pair pair;
static struct hca_qp *qp;

static struct ibv_qp_attr good(enum ibv_qp_state from, enum ibv_qp_state to)
{
	struct ibv_qp_attr attr = {
		.qp_state = to,
		.cur_qp_state = from,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
		.path_mtu = IBV_MTU_1024,
		.path_mig_state = IBV_MIG_MIGRATED,
		.dest_qp_num = 0x20005,
		.rq_psn = 1,
		.sq_psn = 2,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.max_rd_atomic = 1,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .sgid_index = 1 } },
	};

	attr.ah_attr.grh.dgid = pair.b.gid;
	return attr;
}

static void go_to(enum ibv_qp_state state)
{
	static const struct {
		enum ibv_qp_state state;
		int mask;
	} path[] = { { IBV_QPS_RESET, 0 },
		     { IBV_QPS_INIT, INIT_MASK },
		     { IBV_QPS_RTR, RTR_MASK },
		     { IBV_QPS_RTS, RTS_MASK },
		     { IBV_QPS_SQD, 0 } };
	struct ibv_qp_attr attr;

	if (state == IBV_QPS_ERR) {
		attr = good(IBV_QPS_RESET, IBV_QPS_ERR);
		assert_int_equal(qp_modify(qp, &attr, IBV_QP_STATE, gid_lookup), 0);
		return;
	}
	for (unsigned int i = 0; i < ARRAY_SIZE(path); i++) {
		attr = good(qp_state(qp), path[i].state);
		assert_int_equal(qp_modify(qp, &attr, IBV_QP_STATE | path[i].mask, gid_lookup), 0);
		if (path[i].state == state)
			return;
	}
}

static int setup(void **state)
{
	struct qp_init init = {
		.type = IBV_QPT_RC,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
	};

	pair_open(&pair, NULL);
	init.ctx = &pair.a.ctx;
	init.pd = &pair.a.pd;
	init.send_cq = init.recv_cq = &pair.a.cq;
	assert_int_equal(qp_create(&qp, &init), 0);
	return 0;
}

static int teardown(void **state)
{
	qp_destroy(qp);
	pair_close(&pair);
	return 0;
}

/* each legal transition: with all that is required; without each of it; with each bit more */
static void test_masks(void **state)
{
	for (unsigned int i = 0; i < ARRAY_SIZE(legal); i++) {
		struct ibv_qp_attr attr = good(legal[i].from, legal[i].to);
		int required = legal[i].required | IBV_QP_STATE;

		for (unsigned int b = 0; b < ARRAY_SIZE(all_bits); b++) {
			int bit = all_bits[b];
			int expected = legal[i].required & bit	 ? EINVAL
				       : legal[i].optional & bit ? 0
								 : EINVAL;

			go_to(legal[i].from);
			if (qp_modify(qp, &attr, required ^ bit, gid_lookup) != expected)
				fail_msg("%d -> %d, bit 0x%x: expected %d", legal[i].from,
					 legal[i].to, bit, expected);
			assert_int_equal(qp_state(qp), expected ? legal[i].from : legal[i].to);
		}
		go_to(legal[i].from);
		assert_int_equal(qp_modify(qp, &attr, required, gid_lookup), 0);
		assert_int_equal(qp_state(qp), legal[i].to);
	}
}

/* everything else is no transition, but to RESET and to ERR */
static void test_transitions(void **state)
{
	for (int from = IBV_QPS_RESET; from <= IBV_QPS_ERR; from++) {
		if (from == IBV_QPS_SQE)
			continue;
		for (int to = IBV_QPS_RESET; to <= IBV_QPS_ERR; to++) {
			int err = EINVAL, mask = IBV_QP_STATE;
			struct ibv_qp_attr attr = good(from, to);

			for (unsigned int i = 0; i < ARRAY_SIZE(legal); i++) {
				if (legal[i].from == from && legal[i].to == to) {
					err = 0;
					mask |= legal[i].required;
				}
			}
			if (to == IBV_QPS_RESET || to == IBV_QPS_ERR)
				err = 0;
			go_to(from);
			if (qp_modify(qp, &attr, mask, gid_lookup) != err)
				fail_msg("%d -> %d: expected %d", from, to, err);
			assert_int_equal(qp_state(qp), err ? from : to);
		}
	}
}

struct bad_value {
	enum ibv_qp_state from, to;
	int mask;
	void (*spoil)(struct ibv_qp_attr *attr);
};

#define SPOIL(name, statement)                                                                     \
	static void name(struct ibv_qp_attr *attr)                                                 \
	{                                                                                          \
		statement;                                                                         \
	}
SPOIL(pkey_index, attr->pkey_index = 1)
SPOIL(port_0, attr->port_num = 0)
SPOIL(port_2, attr->port_num = 2)
SPOIL(mtu_0, attr->path_mtu = 0)
SPOIL(mtu_6, attr->path_mtu = 6)
SPOIL(dest_qpn, attr->dest_qp_num = 0x1000000)
SPOIL(no_grh, attr->ah_attr.is_global = 0)
SPOIL(sgid_index, attr->ah_attr.grh.sgid_index = 2)
SPOIL(other_family, attr->ah_attr.grh.dgid.raw[0] = 0x20)
SPOIL(min_rnr_timer, attr->min_rnr_timer = 32)
SPOIL(max_dest_rd_atomic, attr->max_dest_rd_atomic = HCA_MAX_RD_ATOMIC + 1)
SPOIL(timeout, attr->timeout = 32)
SPOIL(retry_cnt, attr->retry_cnt = 8)
SPOIL(rnr_retry, attr->rnr_retry = 8)
SPOIL(max_rd_atomic, attr->max_rd_atomic = HCA_MAX_RD_ATOMIC + 1)
SPOIL(cur_state, attr->cur_qp_state = IBV_QPS_RTS)

static const struct bad_value bad_values[] = {
	{ IBV_QPS_RESET, IBV_QPS_INIT, INIT_MASK, pkey_index },
	{ IBV_QPS_RESET, IBV_QPS_INIT, INIT_MASK, port_0 },
	{ IBV_QPS_RESET, IBV_QPS_INIT, INIT_MASK, port_2 },
	{ IBV_QPS_INIT, IBV_QPS_RTR, RTR_MASK, mtu_0 },
	{ IBV_QPS_INIT, IBV_QPS_RTR, RTR_MASK, mtu_6 },
	{ IBV_QPS_INIT, IBV_QPS_RTR, RTR_MASK, dest_qpn },
	{ IBV_QPS_INIT, IBV_QPS_RTR, RTR_MASK, no_grh },
	{ IBV_QPS_INIT, IBV_QPS_RTR, RTR_MASK, sgid_index },
	{ IBV_QPS_INIT, IBV_QPS_RTR, RTR_MASK, other_family },
	{ IBV_QPS_INIT, IBV_QPS_RTR, RTR_MASK, min_rnr_timer },
	{ IBV_QPS_INIT, IBV_QPS_RTR, RTR_MASK, max_dest_rd_atomic },
	{ IBV_QPS_RTR, IBV_QPS_RTS, RTS_MASK, timeout },
	{ IBV_QPS_RTR, IBV_QPS_RTS, RTS_MASK, retry_cnt },
	{ IBV_QPS_RTR, IBV_QPS_RTS, RTS_MASK, rnr_retry },
	{ IBV_QPS_RTR, IBV_QPS_RTS, RTS_MASK, max_rd_atomic },
	{ IBV_QPS_RTR, IBV_QPS_RTS, RTS_MASK | IBV_QP_CUR_STATE, cur_state },
};

static void test_values(void **state)
{
	for (unsigned int i = 0; i < ARRAY_SIZE(bad_values); i++) {
		const struct bad_value *v = &bad_values[i];
		struct ibv_qp_attr attr = good(v->from, v->to);

		go_to(v->from);
		v->spoil(&attr);
		if (qp_modify(qp, &attr, v->mask | IBV_QP_STATE, gid_lookup) != EINVAL)
			fail_msg("row %u: not refused", i);
		assert_int_equal(qp_state(qp), v->from);
	}
}

static void test_query(void **state)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;

	go_to(IBV_QPS_RTS);
	qp_query(qp, &attr, &init);
	assert_int_equal(attr.qp_state, IBV_QPS_RTS);
	assert_int_equal(attr.cur_qp_state, IBV_QPS_RTS);
	assert_int_equal(attr.path_mtu, IBV_MTU_1024);
	assert_int_equal(attr.dest_qp_num, 0x20005);
	assert_int_equal(attr.rq_psn, 1);
	assert_int_equal(attr.sq_psn, 2);
	assert_int_equal(attr.timeout, 14);
	assert_int_equal(attr.retry_cnt, 7);
	assert_int_equal(attr.rnr_retry, 7);
	assert_int_equal(attr.max_rd_atomic, 1);
	assert_int_equal(attr.max_dest_rd_atomic, 1);
	assert_int_equal(attr.min_rnr_timer, 12);
	assert_int_equal(attr.port_num, 1);
	assert_int_equal(attr.qp_access_flags, IBV_ACCESS_REMOTE_WRITE);
	assert_int_equal(attr.ah_attr.grh.sgid_index, 1);
	assert_memory_equal(&attr.ah_attr.grh.dgid, &pair.b.gid, 16);
	assert_int_equal(init.cap.max_send_wr, 4);
	assert_int_equal(attr.cap.max_recv_wr, 4);
	assert_int_equal(init.qp_type, IBV_QPT_RC);
}

/* what posting does in each state */
static void test_posting(void **state)
{
	static const struct {
		enum ibv_qp_state state;
		int send, recv;
	} rows[] = {
		{ IBV_QPS_RESET, EINVAL, EINVAL },
		{ IBV_QPS_INIT, EINVAL, 0 },
		{ IBV_QPS_RTR, EINVAL, 0 },
		{ IBV_QPS_RTS, 0, 0 },
		{ IBV_QPS_SQD, 0, 0 },
		{ IBV_QPS_ERR, 0, 0 },
	};

	for (unsigned int i = 0; i < ARRAY_SIZE(rows); i++) {
		struct ibv_send_wr send = { .opcode = IBV_WR_SEND, .wr_id = 5 };
		struct ibv_recv_wr recv = { .wr_id = 6 };
		const struct ibv_send_wr *bad_send = NULL;
		const struct ibv_recv_wr *bad_recv = NULL;

		go_to(rows[i].state);
		assert_int_equal(qp_post_send(qp, &send, &bad_send), rows[i].send);
		assert_ptr_equal(bad_send, rows[i].send ? &send : NULL);
		assert_int_equal(qp_post_recv(qp, &recv, &bad_recv), rows[i].recv);
		assert_ptr_equal(bad_recv, rows[i].recv ? &recv : NULL);
	}
	expect_cqe(&pair.a, 5, IBV_WC_WR_FLUSH_ERR);
	expect_cqe(&pair.a, 6, IBV_WC_WR_FLUSH_ERR);
}

/* RESET drops WRs and completions */
static void test_reset_forgets(void **state)
{
	struct ibv_send_wr send = { .opcode = IBV_WR_SEND, .wr_id = 5 };
	struct ibv_recv_wr recv = { .wr_id = 6 };
	const struct ibv_send_wr *bad_send;
	const struct ibv_recv_wr *bad_recv;

	go_to(IBV_QPS_RTS);
	assert_int_equal(qp_post_send(qp, &send, &bad_send), 0);
	assert_int_equal(qp_post_recv(qp, &recv, &bad_recv), 0);
	go_to(IBV_QPS_RESET);
	expect_no_cqe(&pair.a);
	go_to(IBV_QPS_RTS);
	for (unsigned int i = 0; i < 4; i++) {
		assert_int_equal(qp_post_send(qp, &send, &bad_send), 0);
		assert_int_equal(qp_post_recv(qp, &recv, &bad_recv), 0);
	}
	go_to(IBV_QPS_ERR);
	assert_true(!cq_is_empty(&pair.a.cq));
	go_to(IBV_QPS_RESET);
	expect_no_cqe(&pair.a);
}

/* SQD: what is in flight finishes, what is posted waits, one event when it is drained */
static void test_drain(void **state)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1 };

	post(&pair.a, IBV_WR_RDMA_WRITE, 1, 0, 5000, &pair.b, 0, IBV_SEND_SIGNALED);
	assert_int_equal(
		qp_modify(pair.a.qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY, gid_lookup),
		0);
	post(&pair.a, IBV_WR_RDMA_WRITE, 2, 0, 100, &pair.b, 0, IBV_SEND_SIGNALED);
	assert_int_equal(pair.a.events[IBV_EVENT_SQ_DRAINED], 0);
	qp_query(pair.a.qp, &attr, NULL);
	assert_int_equal(attr.sq_draining, 1);
	settle(&pair);
	assert_int_equal(pair.a.events[IBV_EVENT_SQ_DRAINED], 1);
	qp_query(pair.a.qp, &attr, NULL);
	assert_int_equal(attr.sq_draining, 0);
	expect_cqe(&pair.a, 1, IBV_WC_SUCCESS);
	expect_no_cqe(&pair.a);
	attr.qp_state = IBV_QPS_RTS;
	assert_int_equal(qp_modify(pair.a.qp, &attr, IBV_QP_STATE, gid_lookup), 0);
	settle(&pair);
	expect_cqe(&pair.a, 2, IBV_WC_SUCCESS);
	assert_int_equal(pair.a.events[IBV_EVENT_SQ_DRAINED], 1);
}

/* SQD while the last packet sent did not ask for an ACK, since another WQE was to follow */
static void test_drain_asks(void **state)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD };

	pair.a.link->full_after = 2;
	for (unsigned int i = 0; i < 4; i++)
		post(&pair.a, IBV_WR_RDMA_WRITE, i, 0, 8, &pair.b, 0, IBV_SEND_SIGNALED);
	engine_poll(pair.b.engine); /* the first one; its ACK leaves with the next round */
	engine_poll(pair.b.engine);
	engine_poll(pair.a.engine); /* sends two, does not get the last one out */
	pair.a.link->full_after = 0;
	assert_int_equal(qp_modify(pair.a.qp, &attr, IBV_QP_STATE, gid_lookup), 0);
	settle(&pair);
	expect_cqe(&pair.a, 0, IBV_WC_SUCCESS);
	expect_cqe(&pair.a, 1, IBV_WC_SUCCESS);
	expect_cqe(&pair.a, 2, IBV_WC_SUCCESS);
	expect_no_cqe(&pair.a);
}

static void test_create(void **state)
{
	struct qp_init base = {
		.type = IBV_QPT_RC,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct qp_init init;
	struct hca_qp *other = NULL;

	base.ctx = &pair.a.ctx;
	base.pd = &pair.a.pd;
	base.send_cq = base.recv_cq = &pair.a.cq;
	init = base, init.type = IBV_QPT_UC;
	assert_int_equal(qp_create(&other, &init), EOPNOTSUPP);
	init = base, init.type = IBV_QPT_UD;
	assert_int_equal(qp_create(&other, &init), EOPNOTSUPP);
	init = base, init.cap.max_send_wr = HCA_MAX_QP_WR + 1;
	assert_int_equal(qp_create(&other, &init), EINVAL);
	init = base, init.cap.max_send_sge = HCA_MAX_SGE + 1;
	assert_int_equal(qp_create(&other, &init), EINVAL);
	init = base, init.cap.max_inline_data = HCA_MAX_INLINE + 1;
	assert_int_equal(qp_create(&other, &init), EINVAL);
	init = base, init.cap.max_recv_wr = HCA_MAX_QP_WR + 1;
	assert_int_equal(qp_create(&other, &init), EINVAL);
	init = base, init.send_cq = NULL;
	assert_int_equal(qp_create(&other, &init), EINVAL);
	assert_null(other);
}

/* numbers: in the slot, never 0 or 1, not that of a QP that has just gone */
static void test_qp_numbers(void **state)
{
	struct qp_init init = {
		.ctx = &pair.a.ctx,
		.pd = &pair.a.pd,
		.type = IBV_QPT_RC,
		.send_cq = &pair.a.cq,
		.recv_cq = &pair.a.cq,
	};
	uint32_t old = qp_num(qp);

	assert_int_equal(old >> 16, 1);
	pair.a.engine->next_qpn = SLOT_QPNS - 3;
	for (unsigned int i = 0; i < 20; i++) {
		struct hca_qp *other;

		assert_int_equal(qp_create(&other, &init), 0);
		assert_true((qp_num(other) & 0xffff) >= 2);
		assert_true(qp_num(other) != old);
		old = qp_num(other);
		qp_destroy(other);
	}
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_masks),      TEST(test_transitions), TEST(test_values),
		TEST(test_query),      TEST(test_posting),     TEST(test_reset_forgets),
		TEST(test_drain),      TEST(test_drain_asks),  TEST(test_create),
		TEST(test_qp_numbers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
