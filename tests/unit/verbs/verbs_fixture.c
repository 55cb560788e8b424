/* SPDX-License-Identifier: BSD-2-Clause */
/* verbs_fixture.c: see verbs_fixture.h */
#include "verbs_fixture.h"

#include "../hca/link_mem.h"
#include "hca/engine.h"

int engine_references, engine_requests;
bool engine_has_thread;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct engine *engine;

/* instead of the port daemon's (src/portd/engine_default.c) */
int engine_get_default(struct engine **out)
{
	struct link_mem *a, *b;
	int ret = 0;

	pthread_mutex_lock(&lock);
	engine_requests++;
	if (!engine_references) {
		link_mem_create(&a, &b);
		b->peer = NULL;
		link_destroy(&b->link);
		a->peer = a;
		ret = engine_create(&engine, &a->link, 1, engine_has_thread);
	}
	if (!ret) {
		engine_references++;
		*out = engine;
	}
	pthread_mutex_unlock(&lock);
	return ret;
}

void engine_put(struct engine *which)
{
	pthread_mutex_lock(&lock);
	assert_ptr_equal(which, engine);
	if (!--engine_references) {
		engine_destroy(engine);
		engine = NULL;
	}
	pthread_mutex_unlock(&lock);
}

struct ibv_context *open_loopback(void)
{
	struct ibv_device **list;
	struct ibv_context *context = NULL;

	setenv("SOFTHCA_DEVICES", "lo", 1);
	list = softhca_ibv_get_device_list(NULL);
	assert_non_null(list);
	for (int i = 0; list[i] && !context; i++)
		if (!strcmp(list[i]->name, "softhca_lo"))
			context = softhca_ibv_open_device(list[i]);
	softhca_ibv_free_device_list(list);
	assert_non_null(context);
	return context;
}

int loopback_gid_index(struct ibv_context *context)
{
	union ibv_gid gid = { .raw = { [10] = 0xff, 0xff, 127, 0, 0, 1 } };
	int index = device_gid_index(context->device, &gid);

	assert_true(index >= 0);
	return index;
}

void connect_qp(struct ibv_qp *qp, uint32_t remote_qpn, enum ibv_mtu mtu)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
	};

	assert_int_equal(softhca_ibv_modify_qp(qp, &attr,
					       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
						       IBV_QP_ACCESS_FLAGS),
			 0);
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = mtu,
		.dest_qp_num = remote_qpn,
		.rq_psn = 100,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 1,
		.ah_attr = { .is_global = 1, .port_num = 1 },
	};
	attr.ah_attr.grh.sgid_index = (uint8_t)loopback_gid_index(qp->context);
	assert_int_equal(softhca_ibv_query_gid(qp->context, 1, attr.ah_attr.grh.sgid_index,
					       &attr.ah_attr.grh.dgid),
			 0);
	attr.ah_attr.grh.hop_limit = 64;
	assert_int_equal(softhca_ibv_modify_qp(qp, &attr,
					       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
						       IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
						       IBV_QP_MAX_DEST_RD_ATOMIC |
						       IBV_QP_MIN_RNR_TIMER),
			 0);
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.sq_psn = 100,
		.max_rd_atomic = 4,
	};
	assert_int_equal(softhca_ibv_modify_qp(qp, &attr,
					       IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
						       IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
						       IBV_QP_MAX_QP_RD_ATOMIC),
			 0);
	assert_int_equal(qp->state, IBV_QPS_RTS);
}

void rc_pair_open(struct rc_pair *pair)
{
	pair->context = open_loopback();
	pair->pd = softhca_ibv_alloc_pd(pair->context);
	assert_non_null(pair->pd);
	pair->buffer = calloc(1, RC_BUFFER_LEN);
	pair->mr = softhca_ibv_reg_mr(pair->pd, pair->buffer, RC_BUFFER_LEN,
				      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
					      IBV_ACCESS_REMOTE_READ);
	assert_non_null(pair->mr);
	for (int i = 0; i < 2; i++) {
		struct ibv_qp_init_attr init = {
			.qp_type = IBV_QPT_RC,
			.cap = { 16, 16, 4, 4, 64 },
		};

		pair->cq[i] = softhca_ibv_create_cq(pair->context, 64, NULL, NULL, 0);
		assert_non_null(pair->cq[i]);
		init.send_cq = init.recv_cq = pair->cq[i];
		pair->qp[i] = softhca_ibv_create_qp(pair->pd, &init);
		assert_non_null(pair->qp[i]);
	}
	for (int i = 0; i < 2; i++)
		connect_qp(pair->qp[i], pair->qp[!i]->qp_num, IBV_MTU_4096);
}

void rc_pair_close(struct rc_pair *pair)
{
	for (int i = 0; i < 2; i++) {
		assert_int_equal(softhca_ibv_destroy_qp(pair->qp[i]), 0);
		assert_int_equal(softhca_ibv_destroy_cq(pair->cq[i]), 0);
	}
	assert_int_equal(softhca_ibv_dereg_mr(pair->mr), 0);
	assert_int_equal(softhca_ibv_dealloc_pd(pair->pd), 0);
	assert_int_equal(softhca_ibv_close_device(pair->context), 0);
	assert_int_equal(engine_references, 0);
	free(pair->buffer);
}

struct ibv_qp *create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
	return verbs_get_ctx_op(context, create_qp_ex)->create_qp_ex(context, attr);
}

struct ibv_srq *create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr)
{
	return verbs_get_ctx_op(context, create_srq_ex)->create_srq_ex(context, attr);
}

int post_recv(struct ibv_qp *qp, uint64_t wr_id, struct ibv_mr *mr, void *addr, uint32_t len)
{
	struct ibv_sge sge = { (uintptr_t)addr, len, mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 }, *bad;

	return ibv_post_recv(qp, &wr, &bad);
}

int post_srq_recv(struct ibv_srq *srq, uint64_t wr_id, struct ibv_mr *mr, void *addr, uint32_t len)
{
	struct ibv_sge sge = { (uintptr_t)addr, len, mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 }, *bad;

	return ibv_post_srq_recv(srq, &wr, &bad);
}

int post_send(struct ibv_qp *qp, uint64_t wr_id, struct ibv_mr *mr, void *addr, uint32_t len,
	      unsigned int flags)
{
	struct ibv_sge sge = { (uintptr_t)addr, len, mr->lkey };
	struct ibv_send_wr wr = { .wr_id = wr_id,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_SEND,
				  .send_flags = flags },
			   *bad;

	return ibv_post_send(qp, &wr, &bad);
}

struct ibv_wc poll_one(struct ibv_cq *cq)
{
	struct ibv_wc wc;

	for (int i = 0; i < 1000000; i++) {
		int n = ibv_poll_cq(cq, 1, &wc);

		assert_true(n >= 0);
		if (n)
			return wc;
	}
	fail_msg("no completion comes");
	return wc;
}
