/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_traffic.c: RC traffic between two QPs of this process through the public API: classic
 * calls, ibv_wr_*, extended polling, multi-packet receives.
 */
#include "verbs_fixture.h"

#include "hca/context.h"

static void fill(uint8_t *p, uint32_t len, uint8_t seed)
{
	for (uint32_t i = 0; i < len; i++)
		p[i] = (uint8_t)(seed + i * 5);
}

static void pingpong(void **state)
{
	struct rc_pair pair;

	rc_pair_open(&pair);
	for (int i = 0; i < 200; i++) {
		int from = i & 1;
		uint32_t len = 1 + (uint32_t)i * 97 % 10000;
		uint8_t *src = pair.buffer, *dst = pair.buffer + RC_BUFFER_LEN / 2;
		struct ibv_wc wc;

		fill(src, len, (uint8_t)i);
		assert_int_equal(post_recv(pair.qp[!from], i, pair.mr, dst, 10000), 0);
		assert_int_equal(post_send(pair.qp[from], i, pair.mr, src, len, IBV_SEND_SIGNALED),
				 0);
		wc = poll_one(pair.cq[!from]);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.opcode, IBV_WC_RECV);
		assert_int_equal(wc.byte_len, len);
		assert_int_equal(wc.wr_id, i);
		assert_int_equal(wc.qp_num, pair.qp[!from]->qp_num);
		assert_memory_equal(src, dst, len);
		wc = poll_one(pair.cq[from]);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.opcode, IBV_WC_SEND);
		assert_int_equal(wc.wr_id, i);
	}
	rc_pair_close(&pair);
}

static void batch_polling(void **state)
{
	struct rc_pair pair;
	struct ibv_wc wc[40];
	int n = 0;

	rc_pair_open(&pair);
	for (int i = 0; i < 16; i++)
		assert_int_equal(post_recv(pair.qp[1], i, pair.mr, pair.buffer, 64), 0);
	for (int i = 0; i < 16; i++)
		assert_int_equal(post_send(pair.qp[0], i, pair.mr, pair.buffer, 64, 0), 0);
	for (int tries = 0; n < 16 && tries < 1000; tries++) {
		int got = ibv_poll_cq(pair.cq[1], 40 - n, wc + n);

		assert_true(got >= 0);
		n += got;
	}
	assert_int_equal(n, 16);
	for (int i = 0; i < 16; i++)
		assert_int_equal(wc[i].wr_id, i);
	assert_int_equal(ibv_poll_cq(pair.cq[1], 0, wc), 0);
	rc_pair_close(&pair);
}

static void bad_posts(void **state)
{
	struct rc_pair pair;
	struct ibv_sge sge[5] = { 0 };
	struct ibv_send_wr second = { .wr_id = 2, .sg_list = sge, .num_sge = 5 },
			   first = { .wr_id = 1, .next = &second, .opcode = IBV_WR_SEND }, *bad;
	struct ibv_recv_wr recv = { .sg_list = sge, .num_sge = 5 }, *bad_recv = NULL;
	uint8_t *src;

	rc_pair_open(&pair);
	src = pair.buffer;
	second.opcode = IBV_WR_SEND;
	assert_int_equal(ibv_post_send(pair.qp[0], &first, &bad), EINVAL);
	assert_ptr_equal(bad, &second); /* the first one stays posted */
	assert_int_equal(ibv_post_recv(pair.qp[0], &recv, &bad_recv), EINVAL);
	assert_ptr_equal(bad_recv, &recv);
	/* V7: inline beyond what the QP was created for */
	sge[0] = (struct ibv_sge){ (uintptr_t)src, HCA_MAX_INLINE + 1, 0 };
	second.num_sge = 1;
	second.send_flags = IBV_SEND_INLINE;
	assert_true(ibv_post_send(pair.qp[0], &second, &bad) != 0);
	assert_ptr_equal(bad, &second);
	rc_pair_close(&pair);
}

/* V7: the data are taken when the WR is posted */
static void inline_data(void **state)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct rc_pair pair;
	uint32_t lengths[4];

	rc_pair_open(&pair);
	assert_int_equal(softhca_ibv_query_qp(pair.qp[0], &attr, IBV_QP_CAP, &init), 0);
	lengths[0] = 0;
	lengths[1] = 1;
	lengths[2] = init.cap.max_inline_data;
	lengths[3] = init.cap.max_inline_data + 1;
	for (int i = 0; i < 4; i++) {
		uint8_t data[HCA_MAX_INLINE + 1], *dst = pair.buffer;
		uint32_t first = lengths[i] / 3;
		struct ibv_sge sge[2] = { { (uintptr_t)data, first, 0 },
					  { (uintptr_t)data + first, lengths[i] - first, 0 } };
		struct ibv_send_wr wr = { .sg_list = sge,
					  .num_sge = 2,
					  .opcode = IBV_WR_SEND,
					  .send_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED },
				   *bad = NULL;
		int ret;

		fill(data, sizeof(data), (uint8_t)i);
		assert_int_equal(post_recv(pair.qp[1], i, pair.mr, dst, sizeof(data)), 0);
		ret = ibv_post_send(pair.qp[0], &wr, &bad);
		if (i == 3) {
			assert_int_equal(ret, EINVAL);
			assert_ptr_equal(bad, &wr);
			break;
		}
		assert_int_equal(ret, 0);
		memset(data, 0xee, sizeof(data));
		assert_int_equal(poll_one(pair.cq[1]).byte_len, lengths[i]);
		assert_int_equal(poll_one(pair.cq[0]).status, IBV_WC_SUCCESS);
		fill(data, sizeof(data), (uint8_t)i);
		assert_memory_equal(dst, data, lengths[i]);
	}
	rc_pair_close(&pair);
}

/* the buffer of a multi-packet WR holds at least one packet of the path MTU */
static void mp_wr_buffer_below_the_mtu(void **state)
{
	struct rc_pair pair;
	struct ibv_cq_init_attr_ex cq_attr = { .cqe = 64, .wc_flags = IBV_WC_EX_WITH_MP_WR };
	struct ibv_qp_init_attr_ext init = {
		.mp_wr = { 2048, 64 },
		.base = { .cap = { 1, 4, 1, 1, 0 },
			  .qp_type = IBV_QPT_RC,
			  .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_MP_WR },
	};
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct ibv_cq_ex *cq;
	struct ibv_qp *qp;

	rc_pair_open(&pair);
	cq = ibv_create_cq_ex(pair.context, &cq_attr);
	init.base.pd = pair.pd;
	init.base.send_cq = init.base.recv_cq = ibv_cq_ex_to_cq(cq);
	qp = create_qp_ex(pair.context, &init.base);
	assert_non_null(qp);
	assert_int_equal(softhca_ibv_modify_qp(qp, &attr,
					       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
						       IBV_QP_ACCESS_FLAGS),
			 0);
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_4096,
		.dest_qp_num = 5,
		.ah_attr = { .is_global = 1, .port_num = 1 },
	};
	attr.ah_attr.grh.sgid_index = (uint8_t)loopback_gid_index(pair.context);
	softhca_ibv_query_gid(pair.context, 1, attr.ah_attr.grh.sgid_index, &attr.ah_attr.grh.dgid);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(softhca_ibv_modify_qp(qp, &attr,
						       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
							       IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
							       IBV_QP_MAX_DEST_RD_ATOMIC |
							       IBV_QP_MIN_RNR_TIMER),
				 i ? 0 : EINVAL);
		attr.path_mtu = IBV_MTU_2048;
	}
	assert_int_equal(softhca_ibv_destroy_qp(qp), 0);
	assert_int_equal(softhca_ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
	rc_pair_close(&pair);
}

/* V25: an RKEY that was invalidated by a SEND is no good any more, the LKEY is */
static void send_with_invalidate(void **state)
{
	struct rc_pair pair;
	struct ibv_mr *window;
	struct ibv_send_wr wr = { .wr_id = 1, .opcode = IBV_WR_SEND_WITH_INV }, *bad;
	struct ibv_sge sge;
	struct ibv_wc wc;

	rc_pair_open(&pair);
	window = softhca_ibv_reg_mr(pair.pd, pair.buffer, 4096,
				    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	assert_int_equal(post_recv(pair.qp[1], 7, window, pair.buffer, 64), 0);
	wr.invalidate_rkey = window->rkey;
	assert_int_equal(ibv_post_send(pair.qp[0], &wr, &bad), 0);
	wc = poll_one(pair.cq[1]);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.wc_flags, IBV_WC_WITH_INV);
	assert_int_equal(wc.invalidated_rkey, window->rkey);
	sge = (struct ibv_sge){ (uintptr_t)pair.buffer + 8192, 8, pair.mr->lkey };
	wr = (struct ibv_send_wr){
		.wr_id = 2,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { (uintptr_t)pair.buffer, window->rkey },
	};
	assert_int_equal(ibv_post_send(pair.qp[0], &wr, &bad), 0);
	wc = poll_one(pair.cq[0]);
	assert_int_equal(wc.wr_id, 2);
	assert_int_equal(wc.status, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(softhca_ibv_dereg_mr(window), 0);
	rc_pair_close(&pair);
}

/* ---- ibv_wr_* -------------------------------------------------------------------- */

/* QP 0 of the pair anew, with send_ops_flags */
static struct ibv_qp_ex *make_extended(struct rc_pair *pair)
{
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = pair->cq[0],
		.recv_cq = pair->cq[0],
		.cap = { 4, 4, 3, 3, 64 },
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = pair->pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
				  IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
				  IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_SEND_WITH_INV,
	};
	struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };

	assert_int_equal(softhca_ibv_destroy_qp(pair->qp[0]), 0);
	pair->qp[0] = create_qp_ex(pair->context, &attr);
	assert_non_null(pair->qp[0]);
	assert_int_equal(softhca_ibv_modify_qp(pair->qp[1], &reset, IBV_QP_STATE), 0);
	for (int i = 0; i < 2; i++)
		connect_qp(pair->qp[i], pair->qp[!i]->qp_num, IBV_MTU_1024);
	return softhca_ibv_qp_to_qp_ex(pair->qp[0]);
}

static void wr_operations(void **state)
{
	struct rc_pair pair;
	struct ibv_qp_ex *qp;
	uint8_t *src, *dst, inline_data[40];
	struct ibv_wc wc;

	rc_pair_open(&pair);
	qp = make_extended(&pair);
	assert_non_null(qp);
	src = pair.buffer;
	dst = pair.buffer + RC_BUFFER_LEN / 2;
	fill(src, 5000, 3);
	fill(inline_data, sizeof(inline_data), 9);
	assert_int_equal(post_recv(pair.qp[1], 50, pair.mr, dst + 10000, 100), 0);

	ibv_wr_start(qp);
	qp->wr_id = 1;
	qp->wr_flags = 0;
	ibv_wr_rdma_write(qp, pair.mr->rkey, (uintptr_t)dst);
	ibv_wr_set_sge(qp, pair.mr->lkey, (uintptr_t)src, 5000);
	qp->wr_id = 2;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send_imm(qp, htobe32(0x1234));
	ibv_wr_set_inline_data(qp, inline_data, sizeof(inline_data));
	memset(inline_data, 0, sizeof(inline_data)); /* V7: the data were taken */
	qp->wr_id = 3;
	ibv_wr_rdma_read(qp, pair.mr->rkey, (uintptr_t)dst);
	ibv_wr_set_sge_list(qp, 2,
			    (struct ibv_sge[]){
				    { (uintptr_t)dst + 20000, 2000, pair.mr->lkey },
				    { (uintptr_t)dst + 30000, 3000, pair.mr->lkey },
			    });
	assert_int_equal(ibv_wr_complete(qp), 0);

	wc = poll_one(pair.cq[1]);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.byte_len, 40);
	assert_int_equal(wc.wc_flags, IBV_WC_WITH_IMM);
	assert_int_equal(wc.imm_data, htobe32(0x1234));
	fill(inline_data, sizeof(inline_data), 9);
	assert_memory_equal(dst + 10000, inline_data, sizeof(inline_data));
	assert_memory_equal(dst, src, 5000);
	wc = poll_one(pair.cq[0]);
	assert_int_equal(wc.wr_id, 2);
	wc = poll_one(pair.cq[0]);
	assert_int_equal(wc.wr_id, 3);
	assert_int_equal(wc.opcode, IBV_WC_RDMA_READ);
	assert_memory_equal(dst + 20000, src, 2000);
	assert_memory_equal(dst + 30000, src + 2000, 3000);
	rc_pair_close(&pair);
}

static void wr_errors(void **state)
{
	struct rc_pair pair;
	struct ibv_qp_ex *qp;
	uint8_t big[HCA_MAX_INLINE + 1];
	struct ibv_sge sge[HCA_MAX_SGE + 1] = { 0 };
	struct ibv_wc wc;

	rc_pair_open(&pair);
	qp = make_extended(&pair);
	memset(big, 0, sizeof(big));

	ibv_wr_start(qp); /* too much inline data */
	ibv_wr_send(qp);
	ibv_wr_set_inline_data(qp, big, sizeof(big));
	assert_int_equal(ibv_wr_complete(qp), ENOMEM);
	ibv_wr_start(qp); /* too many SGEs */
	ibv_wr_send(qp);
	ibv_wr_set_sge_list(qp, HCA_MAX_SGE + 1, sge);
	assert_int_equal(ibv_wr_complete(qp), EINVAL);
	ibv_wr_start(qp); /* no WR to speak of */
	ibv_wr_set_sge(qp, 1, 2, 3);
	assert_int_equal(ibv_wr_complete(qp), EINVAL);
	ibv_wr_start(qp); /* not there yet */
	ibv_wr_atomic_fetch_add(qp, 1, 2, 3);
	assert_int_equal(ibv_wr_complete(qp), EOPNOTSUPP);
	ibv_wr_start(qp); /* more than the send queue holds: none is posted */
	for (int i = 0; i < 5000; i++) {
		qp->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_send(qp);
		ibv_wr_set_sge_list(qp, 0, NULL);
	}
	assert_int_equal(ibv_wr_complete(qp), ENOMEM);
	ibv_wr_start(qp); /* abort: nothing happens */
	ibv_wr_send(qp);
	ibv_wr_abort(qp);
	ibv_wr_start(qp);
	assert_int_equal(ibv_wr_complete(qp), 0);
	for (int i = 0; i < 10; i++)
		assert_int_equal(ibv_poll_cq(pair.cq[0], 1, &wc), 0);
	rc_pair_close(&pair);
}

/* wr_complete posts all of its WRs or none */
static void wr_all_or_nothing(void **state)
{
	struct rc_pair pair;
	struct ibv_qp_ex *qp;
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;

	rc_pair_open(&pair);
	qp = make_extended(&pair);
	assert_int_equal(softhca_ibv_query_qp(pair.qp[0], &attr, IBV_QP_CAP, &init), 0);
	/* the other side has no receives: what is posted stays */
	for (uint32_t i = 0; i < init.cap.max_send_wr - 1; i++)
		assert_int_equal(post_send(pair.qp[0], i, pair.mr, pair.buffer, 1, 0), 0);
	for (int wrs = 2; wrs; wrs--) {
		ibv_wr_start(qp);
		for (int i = 0; i < wrs; i++) {
			ibv_wr_send(qp);
			ibv_wr_set_sge(qp, pair.mr->lkey, (uintptr_t)pair.buffer, 1);
		}
		assert_int_equal(ibv_wr_complete(qp), wrs == 2 ? ENOMEM : 0);
	}
	assert_int_equal(post_send(pair.qp[0], 9, pair.mr, pair.buffer, 1, 0), ENOMEM);
	rc_pair_close(&pair);
}

/* ---- extended polling, multi-packet receives ----------------------------------------- */

struct mp_world {
	struct rc_pair pair;
	struct ibv_cq_ex *cq;
	struct ibv_srq *srq;
	struct ibv_qp *qp; /* in place of the pair's QP 1, on the SRQ */
	uint8_t *receive;
};

#define MP_BUFFER 65536

static void mp_open(struct mp_world *w)
{
	struct ibv_cq_init_attr_ex cq_attr = {
		.cqe = 1024,
		.wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_MP_WR,
	};
	struct ibv_srq_init_attr_ext srq_attr = {
		.mp_wr = { MP_BUFFER, 512 },
		.base = { .attr = { 8, 1, 0 },
			  .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
				       IBV_SRQ_INIT_ATTR_MP_WR,
			  .srq_type = IBV_SRQT_BASIC },
	};
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .cap = { 16, 0, 1, 0, 0 } };
	struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };

	rc_pair_open(&w->pair);
	w->cq = ibv_create_cq_ex(w->pair.context, &cq_attr);
	assert_non_null(w->cq);
	srq_attr.base.pd = w->pair.pd;
	w->srq = create_srq_ex(w->pair.context, &srq_attr.base);
	assert_non_null(w->srq);
	init.send_cq = init.recv_cq = ibv_cq_ex_to_cq(w->cq);
	init.srq = w->srq;
	w->qp = softhca_ibv_create_qp(w->pair.pd, &init);
	assert_non_null(w->qp);
	assert_int_equal(softhca_ibv_modify_qp(w->pair.qp[0], &reset, IBV_QP_STATE), 0);
	connect_qp(w->qp, w->pair.qp[0]->qp_num, IBV_MTU_4096);
	connect_qp(w->pair.qp[0], w->qp->qp_num, IBV_MTU_4096);
	w->receive = w->pair.buffer + RC_BUFFER_LEN / 2;
}

static void mp_close(struct mp_world *w)
{
	if (w->qp)
		assert_int_equal(softhca_ibv_destroy_qp(w->qp), 0);
	assert_int_equal(softhca_ibv_destroy_srq(w->srq), 0);
	assert_int_equal(softhca_ibv_destroy_cq(ibv_cq_ex_to_cq(w->cq)), 0);
	rc_pair_close(&w->pair);
}

static void start_poll(struct ibv_cq_ex *cq)
{
	int ret = ENOENT;

	for (int i = 0; i < 1000000 && ret == ENOENT; i++)
		ret = ibv_start_poll(cq, NULL);
	assert_int_equal(ret, 0);
}

/* docs/mp-wr.md, example A (b), over the wire */
static void mp_wr_on_an_srq(void **state)
{
	static const struct {
		uint64_t wr_id, offset;
		uint32_t len, flags;
	} expected[] = {
		{ 0, 0, 4096, IBV_WC_MP_WR_MORE_IN_MSG },
		{ 0, 4096, 4096, IBV_WC_MP_WR_MORE_IN_MSG },
		{ 0, 8192, 3808, 0 },
		{ 0, 12288, 100, 0 },
	};
	struct softhca_mp_wr_stats stats;
	struct mp_world w;
	size_t i = 0;

	mp_open(&w);
	fill(w.pair.buffer, 12000, 1);
	assert_int_equal(post_srq_recv(w.srq, 0, w.pair.mr, w.receive, MP_BUFFER - 1), EINVAL);
	assert_int_equal(post_srq_recv(w.srq, 0, w.pair.mr, w.receive, MP_BUFFER), 0);
	assert_int_equal(post_send(w.pair.qp[0], 1, w.pair.mr, w.pair.buffer, 12000, 0), 0);
	assert_int_equal(
		post_send(w.pair.qp[0], 2, w.pair.mr, w.pair.buffer, 100, IBV_SEND_SIGNALED), 0);
	assert_int_equal(poll_one(w.pair.cq[0]).wr_id, 2);
	start_poll(w.cq);
	do {
		assert_int_equal(w.cq->status, IBV_WC_SUCCESS);
		assert_int_equal(w.cq->wr_id, expected[i].wr_id);
		assert_int_equal(ibv_wc_read_opcode(w.cq), IBV_WC_RECV);
		assert_int_equal(ibv_wc_read_mp_wr_offset(w.cq), expected[i].offset);
		assert_int_equal(ibv_wc_read_byte_len(w.cq), expected[i].len);
		assert_int_equal(ibv_wc_read_wc_flags(w.cq), expected[i].flags);
		assert_int_equal(ibv_wc_read_qp_num(w.cq), w.qp->qp_num);
		assert_int_equal(ibv_wc_read_slid(w.cq), 0);
		i++;
	} while (!ibv_next_poll(w.cq));
	ibv_end_poll(w.cq);
	assert_int_equal(i, 4);
	assert_memory_equal(w.receive, w.pair.buffer, 12000);
	assert_memory_equal(w.receive + 12288, w.pair.buffer, 100);
	assert_int_equal(softhca_query_mp_wr_srq(w.srq, &stats), 0);
	assert_int_equal(stats.packets, 4);
	assert_int_equal(stats.wrs, 0);
	mp_close(&w);
}

/* the same CQ through the classic call: flags, without the offset */
static void mp_wr_classic_poll(void **state)
{
	struct mp_world w;
	struct ibv_wc wc;

	mp_open(&w);
	assert_int_equal(post_srq_recv(w.srq, 5, w.pair.mr, w.receive, MP_BUFFER), 0);
	assert_int_equal(post_send(w.pair.qp[0], 1, w.pair.mr, w.pair.buffer, 5000, 0), 0);
	wc = poll_one(ibv_cq_ex_to_cq(w.cq));
	assert_int_equal(wc.byte_len, 4096);
	assert_int_equal(wc.wc_flags, IBV_WC_MP_WR_MORE_IN_MSG);
	wc = poll_one(ibv_cq_ex_to_cq(w.cq));
	assert_int_equal(wc.byte_len, 904);
	assert_int_equal(wc.wc_flags, 0);
	mp_close(&w);
}

/* a QP is destroyed while the completion that gives its SRQ's WR back is unread */
static void mp_wr_survives_its_qp(void **state)
{
	struct mp_world w;
	struct ibv_wc wc;

	mp_open(&w);
	assert_int_equal(post_srq_recv(w.srq, 5, w.pair.mr, w.receive, MP_BUFFER), 0);
	assert_int_equal(
		post_send(w.pair.qp[0], 1, w.pair.mr, w.pair.buffer, MP_BUFFER, IBV_SEND_SIGNALED),
		0);
	assert_int_equal(poll_one(w.pair.cq[0]).status, IBV_WC_SUCCESS);
	assert_int_equal(softhca_ibv_destroy_qp(w.qp), 0);
	w.qp = NULL;
	wc = poll_one(ibv_cq_ex_to_cq(w.cq));
	assert_int_equal(wc.opcode, IBV_WC_RECV_NOP);
	assert_int_equal(wc.wr_id, 5);
	assert_int_equal(wc.wc_flags, IBV_WC_MP_WR_CONSUMED);
	assert_int_equal(ibv_poll_cq(ibv_cq_ex_to_cq(w.cq), 1, &wc), 0);
	mp_close(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pingpong),
		cmocka_unit_test(batch_polling),
		cmocka_unit_test(bad_posts),
		cmocka_unit_test(inline_data),
		cmocka_unit_test(send_with_invalidate),
		cmocka_unit_test(mp_wr_buffer_below_the_mtu),
		cmocka_unit_test(wr_operations),
		cmocka_unit_test(wr_errors),
		cmocka_unit_test(wr_all_or_nothing),
		cmocka_unit_test(mp_wr_on_an_srq),
		cmocka_unit_test(mp_wr_classic_poll),
		cmocka_unit_test(mp_wr_survives_its_qp),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
