// SPDX-License-Identifier: BSD-2-Clause
/* test_queue.c: the inline steps of a queue pair */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "nvme/queue.h"

static void test_sq(void **state)
{
	struct nvme_sqe ring[4] = { 0 }, sqe = { .opcode = 2 };
	uint32_t doorbell = 99;
	struct nvme_sq sq = { .ring = ring, .doorbell = &doorbell, .depth = 4 };

	assert_int_equal(nvme_sq_room(&sq), 3);
	assert_false(nvme_sq_update_tail(&sq));
	assert_int_equal(doorbell, 99);
	for (int i = 0; i < 3; i++)
		nvme_sq_post(&sq, &sqe);
	assert_int_equal(nvme_sq_room(&sq), 0);
	assert_true(nvme_sq_update_tail(&sq));
	assert_false(nvme_sq_update_tail(&sq));
	assert_int_equal(le32toh(doorbell), 3);
	/* head moves forward only, up to the tail */
	assert_false(nvme_sq_update_head(&sq, 4));
	assert_true(nvme_sq_update_head(&sq, 2));
	assert_false(nvme_sq_update_head(&sq, 1));
	assert_false(nvme_sq_update_head(&sq, 0));
	assert_int_equal(sq.head, 2);
	assert_int_equal(nvme_sq_room(&sq), 2);
	nvme_sq_post(&sq, &sqe);
	assert_int_equal(sq.tail, 0);
	nvme_sq_post(&sq, &sqe);
	assert_int_equal(nvme_sq_room(&sq), 0);
	assert_true(nvme_sq_update_head(&sq, 1));
	assert_int_equal(nvme_sq_room(&sq), 3);
}

static void test_cq(void **state)
{
	struct nvme_cqe ring[2] = { 0 }, cqe = { .cid = 5, .status = htole16(0x280 << 1) };
	uint32_t doorbell = 0;
	struct nvme_cq cq = { .ring = ring, .doorbell = &doorbell, .depth = 2, .phase = 1 };

	assert_null(nvme_cq_peek(&cq));
	nvme_cqe_write(&ring[0], &cqe, 1);
	assert_ptr_equal(nvme_cq_peek(&cq), &ring[0]);
	assert_int_equal(NVME_STATUS_FROM_FIELD(le16toh(ring[0].status)), 0x280);
	nvme_cq_pop(&cq);
	assert_null(nvme_cq_peek(&cq));
	assert_true(nvme_cq_update_head(&cq));
	assert_false(nvme_cq_update_head(&cq));
	assert_int_equal(le32toh(doorbell), 1);
	nvme_cqe_write(&ring[1], &cqe, 1);
	nvme_cq_pop(&cq);
	/* second pass: the old entry is not new */
	assert_int_equal(cq.head, 0);
	assert_null(nvme_cq_peek(&cq));
	nvme_cqe_write(&ring[0], &cqe, 0);
	assert_non_null(nvme_cq_peek(&cq));
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_sq), cmocka_unit_test(test_cq) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
