// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_rc_soak.c: random operations over a link that loses, repeats and reorders packets: all
 * data arrive, all completions come, in order.
 */
#include <stdlib.h>
#include <string.h>

#include "qp_fixture.h"
#include "util/bytes.h"

#define OPERATIONS 400
#define MAX_LEN	   30000U
#define SLOTS	   16U /* memory areas in use at once */

struct noise {
	uint32_t seed;
	unsigned int drop, duplicate, swap; /* of 1000 packets */
};

static uint32_t next_random(uint32_t *seed)
{
	*seed = *seed * 1664525 + 1013904223;
	return *seed >> 8;
}

static enum fate decide(void *arg, struct link_mem *from, const struct packet *p)
{
	struct noise *n = arg;
	uint32_t r = next_random(&n->seed) % 1000;

	if (r < n->drop)
		return FATE_DROP;
	r -= n->drop;
	if (r < n->duplicate)
		return FATE_DUPLICATE;
	r -= n->duplicate;
	return r < n->swap ? FATE_SWAP : FATE_PASS;
}

struct operation {
	enum ibv_wr_opcode opcode;
	uint32_t len, slot;
};

static void start(struct pair *pair, struct operation *op, uint32_t index, uint32_t *seed)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_SEND, IBV_WR_RDMA_WRITE,
						      IBV_WR_RDMA_READ,
						      IBV_WR_RDMA_WRITE_WITH_IMM };
	uint32_t at = index % SLOTS * MAX_LEN;

	op->opcode = opcodes[next_random(seed) % ARRAY_SIZE(opcodes)];
	op->len = next_random(seed) % 4 ? next_random(seed) % MAX_LEN : next_random(seed) % 64;
	fill(&pair->a, at, op->len, index);
	fill(&pair->b, at, op->len, index + 1000000);
	if (op->opcode == IBV_WR_SEND)
		post_recv(&pair->b, index, at, MAX_LEN);
	else if (op->opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
		post_recv(&pair->b, index, at, 0);
	post(&pair->a, op->opcode, index, at, op->len, &pair->b, at, IBV_SEND_SIGNALED);
}

static void finish(struct pair *pair, const struct operation *op, uint32_t index)
{
	uint32_t at = index % SLOTS * MAX_LEN;
	uint32_t seed = op->opcode == IBV_WR_RDMA_READ ? index + 1000000 : index;
	static uint8_t expected[MAX_LEN];

	assert_memory_equal(pair->a.buffer + at, pair->b.buffer + at, op->len);
	for (uint32_t i = 0; i < op->len; i++) {
		seed = seed * 1664525 + 1013904223;
		expected[i] = (uint8_t)(seed >> 24);
	}
	assert_memory_equal(pair->b.buffer + at, expected, op->len);
	if (op->opcode == IBV_WR_SEND || op->opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
		assert_int_equal(expect_cqe(&pair->b, index, IBV_WC_SUCCESS).byte_len, op->len);
}

static void soak(const struct setup *setup, struct noise noise)
{
	struct pair pair;
	struct operation ops[OPERATIONS];
	uint32_t seed = noise.seed * 7 + 1, started = 0, done = 0;

	pair_open(&pair, setup);
	pair.a.link->decide = pair.b.link->decide = decide;
	pair.a.link->arg = pair.b.link->arg = &noise;
	for (unsigned int ticks = 0; done < OPERATIONS; ticks++) {
		struct cqe cqe;

		assert_true(ticks < 100000);
		while (started < OPERATIONS && started < done + SLOTS && next_random(&seed) % 8) {
			start(&pair, &ops[started], started, &seed);
			started++;
		}
		settle(&pair);
		while (cq_take(&pair.a.cq, &cqe, 1) == 1) {
			assert_int_equal(cqe.status, IBV_WC_SUCCESS);
			assert_int_equal(cqe.wr_id, done);
			finish(&pair, &ops[done], done);
			done++;
		}
		/* short steps meet the probes, long ones the timeouts */
		test_now_ns += (1 + next_random(&seed) % 40) * NSEC_PER_MSEC;
	}
	expect_no_cqe(&pair.b);
	assert_int_equal(pair.a.engine->read_bytes, 0);
	if (setup->rd_atomic || noise.drop == 0)
		assert_int_equal(pair.a.qp->req.reads, 0);
	pair_close(&pair);
}

static void test_clean(void **state)
{
	soak(&(struct setup){ .a_psn = 0xfffff0 }, (struct noise){ .seed = 1 });
}

static void test_loss(void **state)
{
	for (uint32_t seed = 1; seed <= 6; seed++)
		soak(&(struct setup){ .a_psn = 0xffff00, .mtu = IBV_MTU_256 + seed % 5 },
		     (struct noise){ .seed = seed, .drop = 10 });
}

static void test_duplicates(void **state)
{
	for (uint32_t seed = 1; seed <= 4; seed++)
		soak(&(struct setup){ .rd_atomic = 1 + seed },
		     (struct noise){ .seed = seed, .duplicate = 50 });
}

static void test_reordering(void **state)
{
	for (uint32_t seed = 1; seed <= 4; seed++)
		soak(&(struct setup){ .rd_atomic = 1 }, (struct noise){ .seed = seed, .swap = 20 });
}

static void test_everything(void **state)
{
	for (uint32_t seed = 1; seed <= 6; seed++)
		soak(&(struct setup){ .a_psn = 0x7fff00, .window = 64 << 10, .rd_atomic = 2 },
		     (struct noise){ .seed = seed, .drop = 10, .duplicate = 10, .swap = 10 });
}

/* T11: large WRITEs, deep queues, several QPs, a small receive buffer, 0.1 % loss: nobody gives up
 */
static void test_deep_queues(void **state)
{
	enum { QPS = 8, DEPTH = 128, LEN = 1 << 20 };
	struct pair pair;
	struct hca_qp *a[QPS], *b[QPS], *first;
	struct noise noise = { .seed = 1, .drop = 1 };
	struct setup setup = { .window = 200000, .mtu = IBV_MTU_4096 };
	unsigned int done = 0;
	struct cqe cqe;

	pair_open(&pair, &setup);
	first = pair.a.qp;
	pair.a.link->decide = pair.b.link->decide = decide;
	pair.a.link->arg = pair.b.link->arg = &noise;
	for (unsigned int i = 0; i < QPS; i++) {
		pair_connect(&pair, &setup, &a[i], &b[i]);
		pair.a.qp = a[i];
		/* an eighth of the depth in bytes: the test should not take long */
		for (unsigned int n = 0; n < DEPTH; n++)
			post(&pair.a, IBV_WR_RDMA_WRITE, i, 0, LEN / 8, &pair.b, 0,
			     IBV_SEND_SIGNALED);
	}
	for (unsigned int ticks = 0; done < QPS * DEPTH; ticks++) {
		assert_true(ticks < 100000);
		settle(&pair);
		while (cq_take(&pair.a.cq, &cqe, 1) == 1) {
			assert_int_equal(cqe.status, IBV_WC_SUCCESS);
			done++;
		}
		test_now_ns += 20 * NSEC_PER_MSEC;
	}
	for (unsigned int i = 0; i < QPS; i++) {
		qp_destroy(a[i]);
		qp_destroy(b[i]);
	}
	pair.a.qp = first;
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_clean),	   cmocka_unit_test(test_loss),
		cmocka_unit_test(test_duplicates), cmocka_unit_test(test_reordering),
		cmocka_unit_test(test_everything), cmocka_unit_test(test_deep_queues),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
