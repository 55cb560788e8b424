// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_send_queue.c: depth as promised, inline data, what a post refuses, and the hidden lane.
 */
#include <errno.h>
#include <string.h>

#include "qp_fixture.h"
#include "util/bytes.h"

static int try_post(struct side *side, enum ibv_wr_opcode opcode, uint32_t len, int num_sge,
		    unsigned int flags)
{
	struct ibv_sge sges[40];
	struct ibv_send_wr wr = { .wr_id = 1,
				  .sg_list = sges,
				  .num_sge = num_sge,
				  .opcode = opcode,
				  .send_flags = flags };
	const struct ibv_send_wr *bad = NULL;
	int err;

	for (int i = 0; i < num_sge && i < 40; i++)
		sges[i] = (struct ibv_sge){ (uintptr_t)side->buffer + i * 100, len, side->mr.key };
	err = qp_post_send(side->qp, &wr, &bad);
	assert_ptr_equal(bad, err ? &wr : NULL);
	return err;
}

/* V5: depth 1..5: fill, drain, refill; as many as promised, never one more */
static void test_depth(void **state)
{
	for (uint32_t depth = 1; depth <= 5; depth++) {
		struct pair pair;

		pair_open(&pair, &(struct setup){ .max_send_wr = depth, .max_recv_wr = depth });
		for (unsigned int round = 0; round < 10000; round++) {
			for (uint32_t i = 0; i < depth; i++) {
				post_recv(&pair.b, round, 0, 8);
				post(&pair.a, IBV_WR_SEND, round * 8 + i, 0, 8, &pair.b, 0,
				     round % 2 ? IBV_SEND_SIGNALED : 0);
			}
			if (round % 100 == 0) {
				struct ibv_recv_wr recv = { 0 };
				const struct ibv_recv_wr *bad;

				assert_int_equal(try_post(&pair.a, IBV_WR_SEND, 0, 0, 0), ENOMEM);
				assert_int_equal(qp_post_recv(pair.b.qp, &recv, &bad), ENOMEM);
				assert_ptr_equal(bad, &recv);
			}
			settle(&pair);
			for (uint32_t i = 0; i < depth; i++) {
				if (round % 2)
					expect_cqe(&pair.a, round * 8 + i, IBV_WC_SUCCESS);
				expect_cqe(&pair.b, round, IBV_WC_SUCCESS);
			}
			expect_no_cqe(&pair.a);
		}
		pair_close(&pair);
	}
}

/* V7 */
static void test_inline(void **state)
{
	static const uint32_t lens[] = { 0, 1, 63, 100 };
	struct pair pair;

	pair_open(&pair, &(struct setup){ .max_inline = 100 });
	for (unsigned int i = 0; i < ARRAY_SIZE(lens); i++) {
		uint8_t expected[100];

		fill(&pair.a, 0, 200, i);
		memcpy(expected, pair.a.buffer, lens[i]);
		memset(pair.b.buffer, 0, 200);
		post(&pair.a, IBV_WR_RDMA_WRITE, i, 0, lens[i], &pair.b, 0,
		     IBV_SEND_INLINE | IBV_SEND_SIGNALED);
		memset(pair.a.buffer, 0, 200);
		settle(&pair);
		expect_cqe(&pair.a, i, IBV_WC_SUCCESS);
		assert_memory_equal(pair.b.buffer, expected, lens[i]);
		assert_int_equal(pair.b.buffer[lens[i]], 0);
	}
	assert_int_equal(try_post(&pair.a, IBV_WR_SEND, 101, 1, IBV_SEND_INLINE), EINVAL);
	/* several SGEs, and keys do not matter */
	fill(&pair.a, 0, 400, 9);
	pair.a.mr.key ^= 1;
	{
		struct ibv_sge sges[3] = { { (uintptr_t)pair.a.buffer, 10, 0 },
					   { (uintptr_t)pair.a.buffer + 100, 20, 0 },
					   { (uintptr_t)pair.a.buffer + 300, 30, 0 } };
		struct ibv_send_wr wr = { .wr_id = 1,
					  .sg_list = sges,
					  .num_sge = 3,
					  .opcode = IBV_WR_SEND,
					  .send_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED };
		const struct ibv_send_wr *bad;

		post_recv(&pair.b, 7, 0, 100);
		assert_int_equal(qp_post_send(pair.a.qp, &wr, &bad), 0);
	}
	pair.a.mr.key ^= 1;
	settle(&pair);
	assert_int_equal(expect_cqe(&pair.b, 7, IBV_WC_SUCCESS).byte_len, 60);
	assert_memory_equal(pair.b.buffer, pair.a.buffer, 10);
	assert_memory_equal(pair.b.buffer + 10, pair.a.buffer + 100, 20);
	assert_memory_equal(pair.b.buffer + 30, pair.a.buffer + 300, 30);
	pair_close(&pair);
}

static void test_refused(void **state)
{
	struct pair pair;

	pair_open(&pair, &(struct setup){ .max_send_sge = 3 });
	assert_int_equal(try_post(&pair.a, IBV_WR_SEND, 1, 4, 0), EINVAL);
	assert_int_equal(try_post(&pair.a, IBV_WR_SEND, 1, -1, 0), EINVAL);
	assert_int_equal(try_post(&pair.a, IBV_WR_RDMA_READ, 1, 1, IBV_SEND_INLINE), EINVAL);
	assert_int_equal(try_post(&pair.a, IBV_WR_TSO, 1, 1, 0), EINVAL);
	assert_int_equal(try_post(&pair.a, 77, 1, 1, 0), EINVAL);
	assert_int_equal(try_post(&pair.a, IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 1, 0), EOPNOTSUPP);
	assert_int_equal(try_post(&pair.a, IBV_WR_LOCAL_INV, 0, 0, 0), EOPNOTSUPP);
	assert_int_equal(pair.a.link->log_count, 0);
	pair_close(&pair);
}

/* a list: what stands before the bad one is posted */
static void test_list_with_a_bad_one(void **state)
{
	struct pair pair;
	struct ibv_send_wr wrs[3] = {
		{ .wr_id = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED },
		{ .wr_id = 2, .opcode = 99 },
		{ .wr_id = 3, .opcode = IBV_WR_RDMA_WRITE }
	};
	const struct ibv_send_wr *bad;

	pair_open(&pair, NULL);
	wrs[0].next = &wrs[1];
	wrs[1].next = &wrs[2];
	assert_int_equal(qp_post_send(pair.a.qp, wrs, &bad), EINVAL);
	assert_ptr_equal(bad, &wrs[1]);
	settle(&pair);
	expect_cqe(&pair.a, 1, IBV_WC_SUCCESS);
	expect_no_cqe(&pair.a);
	pair_close(&pair);
}

/* the application reuses its memory as soon as the completion is there; not before: sg_list and
 * the WR itself are free after the post */
static void test_wr_is_copied(void **state)
{
	struct pair pair;

	pair_open(&pair, NULL);
	fill(&pair.a, 0, 100, 1);
	post(&pair.a, IBV_WR_RDMA_WRITE, 1, 0, 100, &pair.b, 0, 0);
	post(&pair.a, IBV_WR_RDMA_WRITE, 2, 0, 100, &pair.b, 500, IBV_SEND_SIGNALED);
	settle(&pair); /* post()'s stack is gone */
	expect_cqe(&pair.a, 2, IBV_WC_SUCCESS);
	assert_memory_equal(pair.b.buffer + 500, pair.a.buffer, 100);
	pair_close(&pair);
}

/* ---- the hidden lane --------------------------------------------------------- */

static struct {
	unsigned int done, downs, rooms;
	enum ibv_wc_status statuses[64];
	struct hidden_wr *order[64];
	enum capsule_verdict verdict, next_verdict;
	uint32_t bytes;
} hidden;

static void on_done(struct hidden_wr *wr, struct hca_qp *qp, enum ibv_wc_status status)
{
	hidden.order[hidden.done] = wr;
	hidden.statuses[hidden.done++] = status;
}

static enum capsule_verdict on_first(struct hca_qp *qp, const struct packet *p)
{
	hidden.bytes = p->payload_len;
	return hidden.verdict;
}

static enum capsule_verdict on_next(struct hca_qp *qp, const struct packet *p)
{
	hidden.bytes += p->payload_len;
	return hidden.next_verdict;
}

static void on_down(struct hca_qp *qp)
{
	hidden.downs++;
}

static void on_room(struct hca_qp *qp)
{
	hidden.rooms++;
}

static const struct capsule_ops ops = { on_first, on_next, on_down, on_room };

static int post_hidden(struct pair *pair, struct hidden_wr *wr)
{
	int err;

	engine_lock(pair->a.engine);
	err = qp_post_hidden(pair->a.qp, wr);
	engine_unlock(pair->a.engine);
	return err;
}

static void hidden_open(struct pair *pair)
{
	memset(&hidden, 0, sizeof(hidden));
	pair_open(pair, &(struct setup){ .max_send_wr = 2, .hidden_wrs = 3, .capsule_ops = &ops });
}

/* both lanes stand in one order, and neither takes the other's room */
static void test_hidden_lane(void **state)
{
	static uint8_t data[3][3000], got[3000];
	struct pair pair;
	struct hidden_wr wrs[4];

	hidden_open(&pair);
	for (unsigned int i = 0; i < 4; i++)
		wrs[i] = (struct hidden_wr){ .opcode = IBV_WR_RDMA_WRITE,
					     .addr = data[i % 3],
					     .length = 3000,
					     .remote_addr = (uintptr_t)pair.b.buffer + i * 3000,
					     .rkey = pair.b.mr.key,
					     .done = on_done };
	memset(data, 0x5a, sizeof(data));
	wrs[1].opcode = IBV_WR_RDMA_READ;
	wrs[1].addr = got;
	wrs[1].remote_addr = (uintptr_t)pair.b.buffer;
	wrs[2].opcode = IBV_WR_SEND;
	wrs[2].length = 16;
	post_recv(&pair.b, 7, 20000, 100);
	assert_int_equal(post_hidden(&pair, &wrs[0]), 0);
	post(&pair.a, IBV_WR_RDMA_WRITE, 1, 0, 8, &pair.b, 30000, IBV_SEND_SIGNALED);
	assert_int_equal(post_hidden(&pair, &wrs[1]), 0);
	assert_int_equal(post_hidden(&pair, &wrs[2]), 0);
	assert_int_equal(post_hidden(&pair, &wrs[3]), -EAGAIN);
	post(&pair.a, IBV_WR_RDMA_WRITE, 2, 0, 8, &pair.b, 30000, IBV_SEND_SIGNALED);
	assert_int_equal(try_post(&pair.a, IBV_WR_SEND, 0, 0, 0), ENOMEM);
	settle(&pair);
	assert_int_equal(hidden.done, 3);
	for (unsigned int i = 0; i < 3; i++) {
		assert_ptr_equal(hidden.order[i], &wrs[i]);
		assert_int_equal(hidden.statuses[i], IBV_WC_SUCCESS);
	}
	assert_memory_equal(pair.b.buffer, data[0], 3000);
	assert_memory_equal(got, data[0], 3000);
	assert_int_equal(expect_cqe(&pair.b, 7, IBV_WC_SUCCESS).byte_len, 16);
	expect_cqe(&pair.a, 1, IBV_WC_SUCCESS);
	expect_cqe(&pair.a, 2, IBV_WC_SUCCESS);
	expect_no_cqe(&pair.a); /* the application hears nothing of the hidden lane */
	assert_true(hidden.rooms >= 1);
	assert_int_equal(post_hidden(&pair, &wrs[3]), 0);
	pair_close(&pair);
}

/* ERR: told first, then every WR comes back, in order */
static void test_hidden_flush(void **state)
{
	static uint8_t data[64];
	struct pair pair;
	struct hidden_wr wrs[3];
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	hidden_open(&pair);
	for (unsigned int i = 0; i < 3; i++) {
		wrs[i] = (struct hidden_wr){
			.opcode = IBV_WR_RDMA_WRITE, .addr = data, .length = 64, .done = on_done
		};
		assert_int_equal(post_hidden(&pair, &wrs[i]), 0);
	}
	assert_int_equal(qp_modify(pair.a.qp, &attr, IBV_QP_STATE, gid_lookup), 0);
	assert_int_equal(hidden.downs, 1);
	assert_int_equal(hidden.done, 3);
	assert_int_equal(hidden.statuses[0], IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(post_hidden(&pair, &wrs[0]), -ENOTCONN);
	pair_close(&pair);

	/* destroyed while in RTS: likewise */
	hidden_open(&pair);
	assert_int_equal(post_hidden(&pair, &wrs[0]), 0);
	pair_close(&pair);
	assert_true(hidden.downs >= 1);
	assert_int_equal(hidden.done, 1);
	assert_int_equal(hidden.statuses[0], IBV_WC_WR_FLUSH_ERR);
}

/* a remote error: the hidden WR has its status, those behind it are flushed */
static void test_hidden_error(void **state)
{
	static uint8_t data[64];
	struct pair pair;
	struct hidden_wr wrs[2];

	hidden_open(&pair);
	for (unsigned int i = 0; i < 2; i++)
		wrs[i] = (struct hidden_wr){ .opcode = IBV_WR_RDMA_WRITE,
					     .addr = data,
					     .length = 64,
					     .rkey = 0x123400,
					     .done = on_done };
	assert_int_equal(post_hidden(&pair, &wrs[0]), 0);
	assert_int_equal(post_hidden(&pair, &wrs[1]), 0);
	settle(&pair);
	assert_int_equal(hidden.done, 2);
	assert_int_equal(hidden.statuses[0], IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(hidden.statuses[1], IBV_WC_WR_FLUSH_ERR);
	pair_close(&pair);
}

/* ---- capsules: what the offload says about incoming SENDs ----------------------- */

static void test_capsules(void **state)
{
	struct pair pair;

	/* the fixture gives both QPs the operations; b's are the ones that matter */
	hidden_open(&pair);
	hidden.verdict = hidden.next_verdict = CAPSULE_TAKEN;
	post(&pair.a, IBV_WR_SEND, 1, 0, 3000, &pair.b, 0, IBV_SEND_SIGNALED);
	settle(&pair);
	expect_cqe(&pair.a, 1, IBV_WC_SUCCESS);
	assert_int_equal(hidden.bytes, 3000);
	expect_no_cqe(&pair.b); /* no receive was used, none was there */

	hidden.verdict = CAPSULE_NOT_MINE;
	post_recv(&pair.b, 7, 0, 3000);
	post(&pair.a, IBV_WR_SEND, 2, 0, 3000, &pair.b, 0, IBV_SEND_SIGNALED);
	settle(&pair);
	expect_cqe(&pair.b, 7, IBV_WC_SUCCESS);
	expect_cqe(&pair.a, 2, IBV_WC_SUCCESS);

	hidden.verdict = CAPSULE_RNR;
	post(&pair.a, IBV_WR_SEND, 3, 0, 30, &pair.b, 0, IBV_SEND_SIGNALED);
	settle(&pair);
	expect_no_cqe(&pair.a);
	hidden.verdict = CAPSULE_TAKEN;
	advance(&pair, NSEC_PER_MSEC);
	expect_cqe(&pair.a, 3, IBV_WC_SUCCESS);

	hidden.next_verdict = CAPSULE_BAD;
	post(&pair.a, IBV_WR_SEND, 4, 0, 3000, &pair.b, 0, 0);
	settle(&pair);
	expect_cqe(&pair.a, 4, IBV_WC_REM_INV_REQ_ERR);
	assert_int_equal(qp_state(pair.b.qp), IBV_QPS_ERR);
	assert_int_equal(pair.b.events[IBV_EVENT_QP_REQ_ERR], 1);
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_depth),	     cmocka_unit_test(test_inline),
		cmocka_unit_test(test_refused),	     cmocka_unit_test(test_list_with_a_bad_one),
		cmocka_unit_test(test_wr_is_copied), cmocka_unit_test(test_hidden_lane),
		cmocka_unit_test(test_hidden_flush), cmocka_unit_test(test_hidden_error),
		cmocka_unit_test(test_capsules),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
