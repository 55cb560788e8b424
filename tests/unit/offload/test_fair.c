// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_fair.c: a host that does not take its data, or has died, holds staging until its QP fails;
 * the other hosts' commands go on meanwhile.
 */
#include "fixture.h"

#include <stdlib.h>

#include "util/bytes.h"

#define IO 16384

static struct hca_qp *second_qp(struct fixture *f)
{
	struct hca_qp *qp = calloc(1, sizeof(*qp));

	fake_qp_init(qp, &f->ctx, &f->srq, 99);
	assert_int_equal(offload_qp_modify(qp, 1), 0);
	return qp;
}

static void answer_all(struct fixture *f)
{
	while (mock_pending(f))
		mock_answer(f, mock_take(f).cid, 0);
	fake_progress(&f->engine);
}

static enum capsule_verdict read_16k(struct hca_qp *qp, uint16_t cid)
{
	struct nvme_sqe sqe = host_sqe(NVME_CMD_READ, cid, 0, IO / 512, 0);

	return fake_send(qp, &sqe, 64, 4096);
}

/* what is given back goes to the QPs in turn */
static void test_dead_host(void **state)
{
	struct fixture_options o = { .max_io = IO, .staging = 16 * IO, .depth = 64 };
	struct hca_qp *dead;
	struct fixture f;

	fixture_open(&f, &o);
	dead = second_qp(&f);
	for (uint16_t i = 0; i < 40; i++)
		assert_int_equal(read_16k(dead, i), CAPSULE_TAKEN);
	fake_progress(&f.engine);
	/* a third: half as much as it leaves free */
	assert_int_equal(mock_pending(&f), 5);
	answer_all(&f);
	/* its RDMA WRITEs are never acknowledged; another host works */
	for (uint16_t i = 0; i < 100; i++) {
		assert_int_equal(read_16k(f.qp, i), CAPSULE_TAKEN);
		fake_progress(&f.engine);
		assert_int_equal(mock_pending(&f), 1);
		answer_all(&f);
		fake_settle(f.qp);
		expect_response(f.qp, i, 0);
	}
	/* the dead one's QP fails: nothing is left of it */
	fake_qp_reset(dead);
	fake_progress(&f.engine);
	assert_int_equal(read_16k(f.qp, 1000), CAPSULE_TAKEN);
	fake_progress(&f.engine);
	answer_all(&f);
	fake_settle(f.qp);
	expect_response(f.qp, 1000, 0);
	expect_idle(&f);
	free(dead);
	fixture_close(&f);
}

/* waiting commands of two QPs are admitted in turn, however many one of them has */
static void test_in_turn(void **state)
{
	struct fixture_options o = { .max_io = IO, .staging = IO, .depth = 64 };
	struct hca_qp *other;
	struct fixture f;

	fixture_open(&f, &o);
	other = second_qp(&f);
	for (uint16_t i = 0; i < 20; i++)
		assert_int_equal(read_16k(other, i), CAPSULE_TAKEN);
	for (uint16_t i = 0; i < 5; i++)
		assert_int_equal(read_16k(f.qp, i), CAPSULE_TAKEN);
	/* one at a time: after 11 the QP with few has had all its answers */
	for (uint16_t i = 0; i < 11; i++) {
		fake_progress(&f.engine);
		assert_int_equal(mock_pending(&f), 1);
		answer_all(&f);
		fake_settle(f.qp);
		fake_settle(other);
	}
	for (uint16_t i = 0; i < 5; i++)
		expect_response(f.qp, i, 0);
	for (uint16_t i = 0; i < 14; i++) {
		answer_all(&f);
		fake_settle(other);
	}
	for (uint16_t i = 0; i < 20; i++)
		expect_response(other, i, 0);
	expect_idle(&f);
	fake_qp_reset(other);
	free(other);
	fixture_close(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_dead_host),
		cmocka_unit_test(test_in_turn),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
