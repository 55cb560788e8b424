// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_rc_mp_wr.c: multi-packet receives behind the protocol: pieces as packets arrive, an RNR NAK
 * in mid-message, and what QP creation and the path MTU ask of the geometry (docs/mp-wr.md). The
 * queue itself has its own tests.
 */
#include <errno.h>
#include <string.h>

#include "qp_fixture.h"

#define WR_LEN	(16U << 10)
#define ALIGN	512U
#define RECV_AT (1U << 20)

/* replace b's QP by one with MP WRs, on an SRQ if there is one */
static void open_mp(struct pair *pair, struct hca_srq *srq)
{
	struct qp_init init = {
		.type = IBV_QPT_RC,
		.srq = srq,
		.cap = { .max_send_wr = 8, .max_send_sge = 1, .max_recv_wr = 4, .max_recv_sge = 1 },
		.multi_packet = !srq,
		.mp_wr = { WR_LEN, ALIGN },
	};

	pair_open(pair, &(struct setup){ .mtu = IBV_MTU_4096 });
	init.ctx = &pair->b.ctx;
	init.pd = &pair->b.pd;
	init.owner = &pair->b;
	init.send_cq = init.recv_cq = &pair->b.cq;
	pair->b.cq.mp_wr = true;
	qp_destroy(pair->b.qp);
	assert_int_equal(qp_create(&pair->b.qp, &init), 0);
}

static int to_rtr(struct pair *pair, enum ibv_mtu mtu)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT,
				    .port_num = 1,
				    .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };

	assert_int_equal(
		qp_modify(pair->b.qp, &attr,
			  IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
			  gid_lookup),
		0);
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR,
				     .path_mtu = mtu,
				     .dest_qp_num = qp_num(pair->a.qp),
				     .min_rnr_timer = 12,
				     .ah_attr = { .is_global = 1, .grh.sgid_index = 1 } };
	attr.ah_attr.grh.dgid = pair->a.gid;
	return qp_modify(pair->b.qp, &attr,
			 IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				 IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
			 gid_lookup);
}

static void expect_piece(struct pair *pair, uint64_t wr_id, uint32_t offset, uint32_t len,
			 unsigned int flags)
{
	struct cqe cqe = expect_cqe(&pair->b, wr_id, IBV_WC_SUCCESS);

	assert_int_equal(cqe.mp_wr_offset, offset);
	assert_int_equal(cqe.byte_len, len);
	assert_int_equal(cqe.wc_flags & (IBV_WC_MP_WR_MORE_IN_MSG | IBV_WC_MP_WR_CONSUMED), flags);
}

#define MORE	 IBV_WC_MP_WR_MORE_IN_MSG
#define CONSUMED IBV_WC_MP_WR_CONSUMED

/* 12000 bytes, then 8000: the second does not fit and finds no WR: RNR in mid-message, which goes
 * on where it stopped */
static void test_pieces_and_rnr(void **state)
{
	struct pair pair;

	open_mp(&pair, NULL);
	assert_int_equal(to_rtr(&pair, IBV_MTU_4096), 0);
	pair.a.qp->dest_qpn = qp_num(pair.b.qp); /* the fixture connected it to another one */
	fill(&pair.a, 0, 12000, 1);
	post_recv(&pair.b, 1, RECV_AT, WR_LEN);
	post(&pair.a, IBV_WR_SEND, 10, 0, 12000, &pair.b, 0, IBV_SEND_SIGNALED);
	settle(&pair);
	expect_piece(&pair, 1, 0, 4096, MORE);
	expect_piece(&pair, 1, 4096, 4096, MORE);
	expect_piece(&pair, 1, 8192, 3808, 0);
	expect_cqe(&pair.a, 10, IBV_WC_SUCCESS);
	assert_memory_equal(pair.b.buffer + RECV_AT, pair.a.buffer, 12000);

	pair.b.link->log_count = 0;
	post(&pair.a, IBV_WR_SEND_WITH_IMM, 11, 0, 8000, &pair.b, 0, IBV_SEND_SIGNALED);
	settle(&pair);
	expect_piece(&pair, 1, 12288, 4096, MORE | CONSUMED);
	expect_no_cqe(&pair.b);
	assert_int_equal(pair.b.link->log[0].syndrome, AETH_RNR_NAK | 12);
	assert_int_equal(pair.b.link->log[0].psn, 4);
	post_recv(&pair.b, 2, RECV_AT + WR_LEN, WR_LEN);
	advance(&pair, NSEC_PER_MSEC);
	expect_piece(&pair, 2, 0, 3904, 0);
	expect_cqe(&pair.a, 11, IBV_WC_SUCCESS);
	assert_memory_equal(pair.b.buffer + RECV_AT + 12288, pair.a.buffer, 4096);
	assert_memory_equal(pair.b.buffer + RECV_AT + WR_LEN, pair.a.buffer + 4096, 3904);
	pair_close(&pair);
}

/* a packet of the path MTU must fit */
static void test_geometry_against_mtu(void **state)
{
	struct pair pair;
	struct qp_init init = {
		.type = IBV_QPT_RC,
		.cap = { .max_send_wr = 8, .max_send_sge = 1, .max_recv_wr = 4, .max_recv_sge = 1 },
		.multi_packet = true,
		.mp_wr = { 2000, 100 },
	};

	open_mp(&pair, NULL);
	init.ctx = &pair.b.ctx;
	init.pd = &pair.b.pd;
	init.send_cq = init.recv_cq = &pair.b.cq;
	qp_destroy(pair.b.qp);
	assert_int_equal(qp_create(&pair.b.qp, &init), 0);
	assert_int_equal(init.mp_wr.packet_align_sz, 128);
	assert_int_equal(init.mp_wr.wr_buffer_sz, 2048);
	assert_int_equal(to_rtr(&pair, IBV_MTU_4096), EINVAL);
	assert_int_equal(qp_state(pair.b.qp), IBV_QPS_INIT);
	assert_int_equal(to_rtr(&pair, IBV_MTU_2048), 0);

	/* the receive CQ must be able to tell offsets */
	pair.b.cq.mp_wr = false;
	{
		struct hca_qp *other;

		assert_int_equal(qp_create(&other, &init), EINVAL);
		pair.b.cq.mp_wr = true;
		init.mp_wr.wr_buffer_sz = 0;
		assert_int_equal(qp_create(&other, &init), EINVAL);
	}
	pair_close(&pair);
}

/* QPs on one multi-packet SRQ share one receive CQ; V3: their own receive capabilities mean nothing
 */
static void test_srq(void **state)
{
	struct pair pair;
	struct hca_srq srq = { 0 };
	struct recv_queue_attr attr = { .max_wr = 4,
					.max_sge = 1,
					.is_srq = true,
					.multi_packet = true,
					.mp_wr = { WR_LEN, ALIGN } };
	struct qp_init init = {
		.type = IBV_QPT_RC,
		.srq = &srq,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1U << 30, .max_recv_sge = 1U << 30 }
	};
	struct hca_cq other_cq;
	struct hca_qp *qp;
	struct ibv_sge sge = { 0 };
	struct ibv_recv_wr wr = { .wr_id = 9, .sg_list = &sge, .num_sge = 1 };

	attr.pd = &pair.b.pd;
	srq.rq = recv_queue_create(&attr);
	assert_non_null(srq.rq);
	open_mp(&pair, &srq);
	srq.ctx = &pair.b.ctx;
	srq.pd = &pair.b.pd;
	assert_ptr_equal(srq.cq, &pair.b.cq);
	assert_int_equal(srq.references, 1);
	assert_int_equal(cq_init(&other_cq, &pair.b.ctx, 10), 0);
	other_cq.mp_wr = true;
	init.ctx = &pair.b.ctx;
	init.pd = &pair.b.pd;
	init.send_cq = init.recv_cq = &other_cq;
	assert_int_equal(qp_create(&qp, &init), EINVAL);
	init.recv_cq = &pair.b.cq;
	assert_int_equal(qp_create(&qp, &init), 0);
	assert_int_equal(init.cap.max_recv_wr, 0);
	qp_destroy(qp);

	assert_int_equal(to_rtr(&pair, IBV_MTU_4096), 0);
	pair.a.qp->dest_qpn = qp_num(pair.b.qp);
	sge = (struct ibv_sge){ (uintptr_t)pair.b.buffer + RECV_AT, WR_LEN, pair.b.mr.key };
	assert_int_equal(recv_queue_post(srq.rq, &wr), 0);
	srq.limit = 1;
	post(&pair.a, IBV_WR_SEND, 10, 0, 100, &pair.b, 0, IBV_SEND_SIGNALED);
	settle(&pair);
	expect_piece(&pair, 9, 0, 100, 0);
	assert_int_equal(pair.b.events[IBV_EVENT_SRQ_LIMIT_REACHED], 1);
	assert_int_equal(srq.limit, 0);
	/* nothing of an SRQ is flushed with a QP */
	{
		struct ibv_qp_attr err = { .qp_state = IBV_QPS_ERR };

		assert_int_equal(qp_modify(pair.b.qp, &err, IBV_QP_STATE, gid_lookup), 0);
	}
	expect_no_cqe(&pair.b);
	assert_int_equal(pair.b.events[IBV_EVENT_QP_LAST_WQE_REACHED], 1);
	qp_destroy(pair.b.qp);
	pair.b.qp = NULL;
	assert_int_equal(srq.references, 0);
	recv_queue_free(srq.rq);
	cq_free(&other_cq);
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pieces_and_rnr),
		cmocka_unit_test(test_geometry_against_mtu),
		cmocka_unit_test(test_srq),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
