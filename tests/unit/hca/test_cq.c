/* SPDX-License-Identifier: BSD-2-Clause */
/* test_cq.c: order, arming, overrun, resize and purge of completion queues */
#include <errno.h>

#include "data_fixture.h"

static struct hca_context ctx;
static int notified;

static void count_notify(struct hca_cq *cq)
{
	notified++;
}

static void make_cq(struct hca_cq *cq, uint32_t entries)
{
	fixture_context(&ctx);
	notified = 0;
	assert_int_equal(cq_init(cq, &ctx, entries), 0);
	cq->notify = count_notify;
	cq->owner = cq;
}

static void push(struct hca_cq *cq, uint64_t wr_id, uint32_t qp_num, enum ibv_wc_status status,
		 bool solicited)
{
	struct cqe cqe = { .wr_id = wr_id, .qp_num = qp_num, .status = status };

	cq_push(cq, &cqe, solicited);
}

static void limits(void **state)
{
	struct hca_cq cq;

	assert_int_equal(cq_init(&cq, &ctx, 0), EINVAL);
	assert_int_equal(cq_init(&cq, &ctx, HCA_MAX_CQE + 1), EINVAL);
	for (uint32_t entries = 1; entries <= 9; entries++) {
		make_cq(&cq, entries);
		assert_true(cq.size >= entries);
		cq_free(&cq);
	}
}

static void fill_drain_refill(void **state)
{
	struct cqe out[8];
	struct hca_cq cq;
	uint64_t in = 0, taken = 0;

	make_cq(&cq, 4);
	cq.head = cq.tail = UINT32_MAX - 10; /* the free-running numbers wrap */
	for (int round = 0; round < 10000; round++) {
		while (cq.tail - cq.head < cq.size)
			push(&cq, in++, 1, IBV_WC_SUCCESS, false);
		int n = cq_take(&cq, out, 1 + round % 8);
		assert_in_range(n, 1, 4);
		for (int i = 0; i < n; i++)
			assert_int_equal(out[i].wr_id, taken++);
	}
	assert_int_equal(event_count, 0);
	cq_free(&cq);
}

static void overrun(void **state)
{
	struct cqe out[16];
	struct hca_cq cq;

	make_cq(&cq, 4);
	for (uint64_t i = 0; i < 6; i++)
		push(&cq, i, 1, IBV_WC_SUCCESS, false);
	assert_true(cq.overrun);
	assert_int_equal(event_count, 1); /* once */
	assert_int_equal(events[0].type, IBV_EVENT_CQ_ERR);
	assert_ptr_equal(events[0].object, &cq);
	assert_int_equal(cq_take(&cq, out, 16), 4); /* what is in it is good */
	assert_int_equal(out[3].wr_id, 3);
	assert_int_equal(cq_take(&cq, out, 16), -EIO);
	cq_free(&cq);

	make_cq(&cq, 4);
	cq.ignore_overrun = true;
	for (uint64_t i = 0; i < 6; i++)
		push(&cq, i, 1, IBV_WC_SUCCESS, false);
	assert_false(cq.overrun);
	assert_int_equal(event_count, 0);
	assert_int_equal(cq_take(&cq, out, 16), 4);
	assert_int_equal(cq_take(&cq, out, 16), 0);
	cq_free(&cq);
}

static void arming(void **state)
{
	struct hca_cq cq;

	make_cq(&cq, 64);
	push(&cq, 0, 1, IBV_WC_SUCCESS, true);
	assert_int_equal(notified, 0); /* not armed */
	cq_arm(&cq, false);
	assert_int_equal(notified, 0); /* nothing for those already there */
	push(&cq, 0, 1, IBV_WC_SUCCESS, false);
	assert_int_equal(notified, 1);
	push(&cq, 0, 1, IBV_WC_SUCCESS, false);
	assert_int_equal(notified, 1); /* one shot */

	cq_arm(&cq, true);
	push(&cq, 0, 1, IBV_WC_SUCCESS, false);
	assert_int_equal(notified, 1);
	push(&cq, 0, 1, IBV_WC_SUCCESS, true);
	assert_int_equal(notified, 2);
	cq_arm(&cq, true);
	push(&cq, 0, 1, IBV_WC_WR_FLUSH_ERR, false); /* an error counts as solicited */
	assert_int_equal(notified, 3);

	cq_arm(&cq, false);
	cq_arm(&cq, true); /* does not weaken */
	push(&cq, 0, 1, IBV_WC_SUCCESS, false);
	assert_int_equal(notified, 4);
	cq_free(&cq);
}

static void resize(void **state)
{
	struct cqe out[16];
	struct hca_cq cq;

	make_cq(&cq, 4);
	for (uint64_t i = 0; i < 4; i++)
		push(&cq, i, 1, IBV_WC_SUCCESS, false);
	assert_int_equal(cq_resize(&cq, 2), EINVAL);
	assert_int_equal(cq_resize(&cq, 0), EINVAL);
	assert_int_equal(cq_resize(&cq, HCA_MAX_CQE + 1), EINVAL);
	assert_int_equal(cq_resize(&cq, 8), 0);
	assert_int_equal(cq.size, 8);
	for (uint64_t i = 4; i < 8; i++)
		push(&cq, i, 1, IBV_WC_SUCCESS, false);
	assert_int_equal(cq_take(&cq, out, 16), 8);
	for (int i = 0; i < 8; i++)
		assert_int_equal(out[i].wr_id, i);
	cq_free(&cq);
}

static void purge_drops_one_qp(void **state)
{
	struct cqe out[16];
	struct hca_cq cq;

	make_cq(&cq, 8);
	for (uint64_t i = 0; i < 8; i++)
		push(&cq, i, 1 + i % 2, IBV_WC_SUCCESS, false);
	cq_purge(&cq, 1, NULL);
	assert_int_equal(cq_take(&cq, out, 16), 4);
	for (int i = 0; i < 4; i++)
		assert_int_equal(out[i].wr_id, 2 * i + 1);
	cq_free(&cq);
}

static void purge_gives_shared_buffers_back(void **state)
{
	struct recv_queue_attr attr = { .max_wr = 2, .max_sge = 1, .is_srq = true };
	struct recv_queue *rq = recv_queue_create(&attr);
	struct cqe out[16], cqe = {
		.wr_id = 7,
		.qp_num = 1,
		.opcode = IBV_WC_RECV,
		.byte_len = 100,
		.mp_wr_offset = 448,
		.wc_flags = IBV_WC_MP_WR_CONSUMED,
		.slot_of = rq,
	};
	struct hca_cq cq;

	make_cq(&cq, 8);
	cq_push(&cq, &cqe, false);
	cqe.slot_of = NULL;
	cqe.wr_id = 8;
	cq_push(&cq, &cqe, false);
	cq_purge(&cq, 1, NULL);
	/* the WR that the completion gave back is given back all the same */
	assert_int_equal(cq_take(&cq, out, 16), 1);
	assert_int_equal(out[0].wr_id, 7);
	assert_int_equal(out[0].opcode, IBV_WC_RECV_NOP);
	assert_int_equal(out[0].status, IBV_WC_SUCCESS);
	assert_int_equal(out[0].byte_len, 0);
	assert_int_equal(out[0].wc_flags, IBV_WC_MP_WR_CONSUMED);
	cq_free(&cq);
	recv_queue_free(rq);
}

static void purge_forgets_a_receive_queue(void **state)
{
	struct recv_queue_attr attr = { .max_wr = 2, .max_sge = 1, .is_srq = true };
	struct recv_queue *rq = recv_queue_create(&attr);
	struct cqe out[4], cqe = { .wr_id = 7, .qp_num = 1, .slot_of = rq };
	struct hca_cq cq;

	make_cq(&cq, 8);
	cq_push(&cq, &cqe, false);
	cq_purge(&cq, 0, rq);
	recv_queue_free(rq);
	assert_int_equal(cq_take(&cq, out, 4), 1); /* must not touch the queue */
	assert_null(out[0].slot_of);
	cq_free(&cq);
}

static void classic_wc(void **state)
{
	struct cqe cqe = {
		.wr_id = 1,
		.status = IBV_WC_LOC_PROT_ERR,
		.opcode = IBV_WC_RECV_RDMA_WITH_IMM,
		.vendor_err = 3,
		.byte_len = 4,
		.imm_data = htobe32(5),
		.qp_num = 6,
		.src_qp = 7,
		.wc_flags = IBV_WC_WITH_IMM | IBV_WC_MP_WR_CONSUMED,
	};
	struct ibv_wc wc;

	memset(&wc, 0xff, sizeof(wc));
	cqe_to_wc(&cqe, &wc);
	assert_int_equal(wc.wr_id, 1);
	assert_int_equal(wc.status, IBV_WC_LOC_PROT_ERR);
	assert_int_equal(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
	assert_int_equal(wc.vendor_err, 3);
	assert_int_equal(wc.byte_len, 4);
	assert_int_equal(wc.imm_data, htobe32(5));
	assert_int_equal(wc.qp_num, 6);
	assert_int_equal(wc.src_qp, 7);
	assert_int_equal(wc.wc_flags, IBV_WC_WITH_IMM | IBV_WC_MP_WR_CONSUMED);
	assert_int_equal(wc.slid | wc.sl | wc.dlid_path_bits | wc.pkey_index, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(limits),
		cmocka_unit_test(fill_drain_refill),
		cmocka_unit_test(overrun),
		cmocka_unit_test(arming),
		cmocka_unit_test(resize),
		cmocka_unit_test(purge_drops_one_qp),
		cmocka_unit_test(purge_gives_shared_buffers_back),
		cmocka_unit_test(purge_forgets_a_receive_queue),
		cmocka_unit_test(classic_wc),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
