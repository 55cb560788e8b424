// SPDX-License-Identifier: BSD-2-Clause
/*
 * qp_fixture.c: two engines and their QPs for tests.
 */
#include <stdlib.h>
#include <string.h>

#include "qp_fixture.h"

uint64_t test_now_ns;

static uint64_t test_clock(void)
{
	return test_now_ns;
}

static struct side *side_of(struct hca_context *ctx)
{
	return container_of(ctx, struct side, ctx);
}

static void on_event(struct hca_context *ctx, enum ibv_event_type type, void *object)
{
	if ((unsigned int)type < 20)
		side_of(ctx)->events[type]++;
}

int gid_lookup(struct hca_context *ctx, uint8_t index, union ibv_gid *gid, uint32_t *ifindex)
{
	if (index != 1)
		return EINVAL;
	*gid = side_of(ctx)->gid;
	*ifindex = 0;
	return 0;
}

static void side_open(struct side *side, uint8_t slot, uint8_t host, const struct setup *setup)
{
	assert_int_equal(engine_create(&side->engine, &side->link->link, slot, false), 0);
	side->ctx.engine = side->engine;
	side->ctx.event = on_event;
	side->pd.ctx = &side->ctx;
	side->gid.raw[10] = side->gid.raw[11] = 0xff;
	side->gid.raw[12] = 10;
	side->gid.raw[15] = host;
	assert_int_equal(cq_init(&side->cq, &side->ctx, 65536), 0);
	side->buffer = calloc(1, BUFFER_LEN);
	side->mr = (struct hca_mr){
		.pd = &side->pd,
		.addr = side->buffer,
		.iova = (uintptr_t)side->buffer,
		.length = BUFFER_LEN,
		.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
	};
	assert_int_equal(memory_register(&side->mr), 0);
}

static struct hca_qp *make_qp(struct side *side, const struct setup *s)
{
	struct qp_init init = {
		.ctx = &side->ctx,
		.pd = &side->pd,
		.owner = side,
		.type = IBV_QPT_RC,
		.send_cq = &side->cq,
		.recv_cq = &side->cq,
		.cap = { .max_send_wr = s->max_send_wr ? s->max_send_wr : 128,
			 .max_recv_wr = s->max_recv_wr ? s->max_recv_wr : 128,
			 .max_send_sge = s->max_send_sge ? s->max_send_sge : 4,
			 .max_recv_sge = 4,
			 .max_inline_data = s->max_inline ? s->max_inline : 64 },
		.sq_sig_all = s->sig_all,
		.capsule_ops = s->capsule_ops,
		.hidden_wrs = s->hidden_wrs,
	};
	struct hca_qp *qp;

	assert_int_equal(qp_create(&qp, &init), 0);
	return qp;
}

static uint8_t value_or(uint8_t value, uint8_t otherwise)
{
	return value == ZERO ? 0 : value ? value : otherwise;
}

static void connect_qp(struct side *side, struct hca_qp *qp, const struct side *to, uint32_t to_qpn,
		       uint32_t sq_psn, uint32_t rq_psn, int access, const struct setup *s)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = access,
	};

	assert_int_equal(
		qp_modify(qp, &attr,
			  IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
			  gid_lookup),
		0);
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = s->mtu ? s->mtu : IBV_MTU_1024,
		.dest_qp_num = to_qpn,
		.rq_psn = rq_psn,
		.max_dest_rd_atomic = value_or(s->rd_atomic, 4),
		.min_rnr_timer = value_or(s->min_rnr_timer, 12),
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .sgid_index = 1 } },
	};
	attr.ah_attr.grh.dgid = to->gid;
	assert_int_equal(qp_modify(qp, &attr,
				   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
					   IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
					   IBV_QP_MIN_RNR_TIMER,
				   gid_lookup),
			 0);
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS,
		.sq_psn = sq_psn,
		.timeout = value_or(s->timeout, 14),
		.retry_cnt = value_or(s->retry_cnt, 7),
		.rnr_retry = value_or(s->rnr_retry, 7),
		.max_rd_atomic = value_or(s->rd_atomic, 4),
	};
	assert_int_equal(qp_modify(qp, &attr,
				   IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					   IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
					   IBV_QP_MAX_QP_RD_ATOMIC,
				   gid_lookup),
			 0);
}

#define ACCESS_ALL (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

void pair_connect(struct pair *pair, const struct setup *s, struct hca_qp **a, struct hca_qp **b)
{
	*a = make_qp(&pair->a, s);
	*b = make_qp(&pair->b, s);
	connect_qp(&pair->a, *a, &pair->b, qp_num(*b), s->a_psn, s->b_psn, ACCESS_ALL, s);
	connect_qp(&pair->b, *b, &pair->a, qp_num(*a), s->b_psn, s->a_psn,
		   s->b_access ? s->b_access : ACCESS_ALL, s);
}

void pair_connect_local(struct pair *pair, const struct setup *s, struct hca_qp **first,
			struct hca_qp **second)
{
	*first = make_qp(&pair->a, s);
	*second = make_qp(&pair->a, s);
	connect_qp(&pair->a, *first, &pair->a, qp_num(*second), 1, 2, ACCESS_ALL, s);
	connect_qp(&pair->a, *second, &pair->a, qp_num(*first), 2, 1, ACCESS_ALL, s);
}

void pair_open(struct pair *pair, const struct setup *setup)
{
	static const struct setup defaults;

	if (!setup)
		setup = &defaults;
	memset(pair, 0, sizeof(*pair));
	test_now_ns = NSEC_PER_SEC;
	clock_set_source(test_clock);
	link_mem_create(&pair->a.link, &pair->b.link);
	if (setup->window)
		pair->a.link->window = pair->b.link->window = setup->window;
	side_open(&pair->a, 1, 1, setup);
	side_open(&pair->b, 2, 2, setup);
	pair_connect(pair, setup, &pair->a.qp, &pair->b.qp);
}

static void side_close(struct side *side)
{
	if (side->qp)
		qp_destroy(side->qp);
	assert_int_equal(side->pd.references, 0);
	assert_int_equal(side->cq.references, 0);
	memory_deregister(&side->mr);
	cq_free(&side->cq);
	engine_destroy(side->engine);
	free(side->buffer);
}

void pair_close(struct pair *pair)
{
	side_close(&pair->a);
	side_close(&pair->b);
	clock_set_source(NULL);
}

static bool progress(struct side *side)
{
	bool work;

	engine_lock(side->engine);
	work = engine_progress(side->engine);
	engine_unlock(side->engine);
	return work;
}

void settle(struct pair *pair)
{
	for (unsigned int idle = 0, rounds = 0; idle < 2; rounds++) {
		bool work = progress(&pair->a);

		work |= progress(&pair->b);
		idle = work ? 0 : idle + 1;
		assert_true(rounds < 100000);
	}
}

void advance(struct pair *pair, uint64_t ns)
{
	test_now_ns += ns;
	settle(pair);
}

void post(struct side *side, enum ibv_wr_opcode opcode, uint64_t wr_id, uint32_t offset,
	  uint32_t len, struct side *to, uint32_t remote, unsigned int flags)
{
	struct ibv_sge sge = { (uintptr_t)side->buffer + offset, len, side->mr.key };
	struct ibv_send_wr wr = {
		.wr_id = wr_id,
		.sg_list = &sge,
		.num_sge = len ? 1 : 0,
		.opcode = opcode,
		.send_flags = flags,
		.imm_data = htobe32(0x01020304),
	}, *bad;

	wr.wr.rdma.remote_addr = (uintptr_t)to->buffer + remote;
	wr.wr.rdma.rkey = to->mr.key;
	assert_int_equal(qp_post_send(side->qp, &wr, (const struct ibv_send_wr **)&bad), 0);
}

void post_recv(struct side *side, uint64_t wr_id, uint32_t offset, uint32_t len)
{
	struct ibv_sge sge = { (uintptr_t)side->buffer + offset, len, side->mr.key };
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = len ? 1 : 0 };
	const struct ibv_recv_wr *bad;

	assert_int_equal(qp_post_recv(side->qp, &wr, &bad), 0);
}

struct cqe expect_cqe(struct side *side, uint64_t wr_id, enum ibv_wc_status status)
{
	struct cqe cqe = { 0 };

	assert_int_equal(cq_take(&side->cq, &cqe, 1), 1);
	assert_int_equal(cqe.wr_id, wr_id);
	assert_int_equal(cqe.status, status);
	return cqe;
}

void expect_no_cqe(struct side *side)
{
	struct cqe cqe;

	assert_int_equal(cq_take(&side->cq, &cqe, 1), 0);
}

void fill(struct side *side, uint32_t offset, uint32_t len, uint32_t seed)
{
	for (uint32_t i = 0; i < len; i++) {
		seed = seed * 1664525 + 1013904223;
		side->buffer[offset + i] = (uint8_t)(seed >> 24);
	}
}
