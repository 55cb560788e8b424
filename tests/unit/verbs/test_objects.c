/* SPDX-License-Identifier: BSD-2-Clause */
/* test_objects.c: creation, attributes, errnos and destruction of the verbs objects */
#include <sys/mman.h>
#include <unistd.h>

#include "verbs_fixture.h"

#include "hca/context.h"

struct world {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_cq_ex *mp_cq;
};

static struct ibv_cq_ex *create_mp_cq(struct ibv_context *context)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = 64,
		.wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_MP_WR,
	};

	return ibv_create_cq_ex(context, &attr);
}

static int open_world(void **state)
{
	static struct world world;

	world.context = open_loopback();
	world.pd = softhca_ibv_alloc_pd(world.context);
	world.cq = softhca_ibv_create_cq(world.context, 64, &world, NULL, 0);
	world.mp_cq = create_mp_cq(world.context);
	*state = &world;
	return world.pd && world.cq && world.mp_cq ? 0 : -1;
}

static int close_world(void **state)
{
	struct world *w = *state;

	if (softhca_ibv_destroy_cq(w->cq) || softhca_ibv_destroy_cq(ibv_cq_ex_to_cq(w->mp_cq)) ||
	    softhca_ibv_dealloc_pd(w->pd) || softhca_ibv_close_device(w->context))
		return -1;
	return engine_references; /* the engine goes with the last context */
}

#define assert_null_errno(call, error)                                                             \
	do {                                                                                       \
		errno = 0;                                                                         \
		assert_null(call);                                                                 \
		assert_int_equal(errno, error);                                                    \
	} while (0)

static void lifetimes(void **state)
{
	struct world *w = *state;
	static uint8_t memory[4096];
	struct ibv_mr *mr = softhca_ibv_reg_mr(w->pd, memory, sizeof(memory), 0);

	assert_non_null(mr);
	assert_int_equal(engine_references, 1);
	assert_int_equal(softhca_ibv_dealloc_pd(w->pd), EBUSY);
	assert_int_equal(softhca_ibv_dereg_mr(mr), 0);
}

/* as perftest does: the device is closed, some objects are still there */
static void closing_leaves_objects_behind(void **state)
{
	struct rc_pair pair;
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;

	rc_pair_open(&pair);
	assert_int_equal(softhca_ibv_close_device(pair.context), 0);
	assert_int_equal(softhca_ibv_query_qp(pair.qp[0], &attr, IBV_QP_STATE, &init), 0);
	assert_int_equal(attr.qp_state, IBV_QPS_RESET); /* it answers nobody any more */
	for (int i = 0; i < 2; i++) {
		assert_int_equal(softhca_ibv_destroy_qp(pair.qp[i]), 0);
		assert_int_equal(softhca_ibv_destroy_cq(pair.cq[i]), 0);
	}
	assert_int_equal(softhca_ibv_dereg_mr(pair.mr), 0);
	assert_int_equal(softhca_ibv_dealloc_pd(pair.pd), 0);
	free(pair.buffer);
	assert_int_equal(softhca_ibv_close_device(pair.context), 0);
}

/* ---- memory regions ---------------------------------------------------------- */

static void mr_fields(void **state)
{
	struct world *w = *state;
	static uint8_t memory[8192];
	struct ibv_mr *mr;

	mr = softhca_ibv_reg_mr_iova(w->pd, memory + 1, 5000, 0x1000, IBV_ACCESS_LOCAL_WRITE);
	assert_non_null(mr);
	assert_ptr_equal(mr->context, w->context);
	assert_ptr_equal(mr->pd, w->pd);
	assert_ptr_equal(mr->addr, memory + 1);
	assert_int_equal(mr->length, 5000);
	assert_int_equal(mr->lkey, mr->rkey);
	assert_int_not_equal(mr->lkey, 0);
	assert_int_equal(softhca_ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0),
			 IBV_REREG_MR_ERR_INPUT);
	assert_int_equal(errno, EOPNOTSUPP);
	assert_int_equal(softhca_ibv_dereg_mr(mr), 0);
}

static void mr_access(void **state)
{
	struct world *w = *state;
	static uint8_t memory[4096];
	static const struct {
		unsigned int access;
		int error;
	} cases[] = {
		{ IBV_ACCESS_REMOTE_WRITE, EINVAL },
		{ IBV_ACCESS_REMOTE_ATOMIC, EINVAL },
		{ IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ, EINVAL },
		{ 1 << 12, EINVAL },
		{ IBV_ACCESS_ON_DEMAND | IBV_ACCESS_LOCAL_WRITE, EOPNOTSUPP },
		{ 0, 0 },
		{ IBV_ACCESS_REMOTE_READ, 0 },
		{ IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE, 0 },
		{ IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING, 0 }, /* a hint: masked */
		{ IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_OPTIONAL_RANGE, 0 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct ibv_mr *mr;

		errno = 0;
		mr = softhca_ibv_reg_mr_iova2(w->pd, memory, sizeof(memory), 0, cases[i].access);
		if (!cases[i].error) {
			assert_non_null(mr);
			softhca_ibv_dereg_mr(mr);
			continue;
		}
		assert_null(mr);
		assert_int_equal(errno, cases[i].error);
	}
}

static void mr_memory(void **state)
{
	struct world *w = *state;
	size_t page = sysconf(_SC_PAGESIZE);
	uint8_t *map =
		mmap(NULL, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *mr;

	assert_null_errno(softhca_ibv_reg_mr(w->pd, map, 0, 0), EINVAL);
	assert_null_errno(softhca_ibv_reg_mr(w->pd, map, SIZE_MAX, 0), EINVAL);
	assert_null_errno(softhca_ibv_reg_mr_iova2(w->pd, map, page, UINT64_MAX - 1, 0), EINVAL);
	assert_null_errno(softhca_ibv_reg_mr(w->pd, NULL, page, 0), EFAULT);
	munmap(map + page, page);
	assert_null_errno(softhca_ibv_reg_mr(w->pd, map, 3 * page, 0), EFAULT);
	assert_null_errno(softhca_ibv_reg_mr(w->pd, map + page - 1, 2, 0), EFAULT);
	mr = softhca_ibv_reg_mr(w->pd, map, page, IBV_ACCESS_LOCAL_WRITE);
	assert_non_null(mr);
	softhca_ibv_dereg_mr(mr);

	/* read-only memory: readable, but nothing may be written there */
	mprotect(map, page, PROT_READ);
	mr = softhca_ibv_reg_mr(w->pd, map, page, IBV_ACCESS_REMOTE_READ);
	assert_non_null(mr);
	softhca_ibv_dereg_mr(mr);
	assert_null_errno(softhca_ibv_reg_mr(w->pd, map, page, IBV_ACCESS_LOCAL_WRITE), EFAULT);
	munmap(map, page);
	munmap(map + 2 * page, page);
}

static void ring(void *arg, size_t offset)
{
}

static void doorbell_mr(void **state)
{
	struct world *w = *state;
	static uint8_t memory[4096];
	struct ibv_mr *mr = softhca_reg_doorbell_mr(w->pd, memory, sizeof(memory), ring, NULL);

	assert_non_null(mr);
	softhca_ibv_dereg_mr(mr);
	assert_null_errno(softhca_reg_doorbell_mr(w->pd, memory, sizeof(memory), NULL, NULL),
			  EINVAL);
}

/* ---- completion queues --------------------------------------------------------- */

static void cq_limits(void **state)
{
	struct world *w = *state;
	struct ibv_cq *cq;

	assert_null_errno(softhca_ibv_create_cq(w->context, 0, NULL, NULL, 0), EINVAL);
	assert_null_errno(softhca_ibv_create_cq(w->context, -1, NULL, NULL, 0), EINVAL);
	assert_null_errno(softhca_ibv_create_cq(w->context, HCA_MAX_CQE + 1, NULL, NULL, 0),
			  EINVAL);
	assert_null_errno(softhca_ibv_create_cq(w->context, 1, NULL, NULL, -1), EINVAL);
	assert_null_errno(
		softhca_ibv_create_cq(w->context, 1, NULL, NULL, w->context->num_comp_vectors),
		EINVAL);
	cq = softhca_ibv_create_cq(w->context, 100, w, NULL, w->context->num_comp_vectors - 1);
	assert_non_null(cq);
	assert_true(cq->cqe >= 100);
	assert_ptr_equal(cq->cq_context, w);
	assert_int_equal(softhca_ibv_resize_cq(cq, 1000), 0);
	assert_true(cq->cqe >= 1000);
	assert_int_equal(softhca_ibv_resize_cq(cq, 0), EINVAL);
	assert_int_equal(softhca_ibv_resize_cq(cq, HCA_MAX_CQE + 1), EINVAL);
	assert_int_equal(softhca_ibv_destroy_cq(cq), 0);
}

static void cq_ex_flags(void **state)
{
	struct world *w = *state;
	struct ibv_cq_init_attr_ex attr = { .cqe = 10, .wc_flags = IBV_WC_STANDARD_FLAGS };
	struct ibv_poll_cq_attr poll = { .comp_mask = 1 };
	struct ibv_cq_ex *cq;

	/* timestamps and whatever is not known: a reader would be missing */
	attr.wc_flags |= IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
	assert_null_errno(ibv_create_cq_ex(w->context, &attr), EOPNOTSUPP);
	attr.wc_flags = 1ULL << 40;
	assert_null_errno(ibv_create_cq_ex(w->context, &attr), EOPNOTSUPP);
	attr.wc_flags = 0;
	attr.comp_mask = 1 << 7;
	assert_null_errno(ibv_create_cq_ex(w->context, &attr), EOPNOTSUPP);
	attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
	attr.flags = 1 << 5;
	assert_null_errno(ibv_create_cq_ex(w->context, &attr), EOPNOTSUPP);
	attr.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
	attr.comp_vector = 10000;
	assert_null_errno(ibv_create_cq_ex(w->context, &attr), EINVAL);
	attr.comp_vector = 0;
	cq = ibv_create_cq_ex(w->context, &attr);
	assert_non_null(cq);
	assert_int_equal(ibv_start_poll(cq, &poll), EINVAL);
	poll.comp_mask = 0;
	assert_int_equal(ibv_start_poll(cq, &poll), ENOENT);
	assert_int_equal(ibv_start_poll(cq, NULL), ENOENT); /* and no lock is left behind */
	assert_int_equal(softhca_ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
}

/* ---- shared receive queues ------------------------------------------------------- */

static void srq_basic(void **state)
{
	struct world *w = *state;
	struct ibv_srq_init_attr init = { .srq_context = w, .attr = { 100, 4, 50 } };
	struct ibv_srq_attr attr;
	struct ibv_srq *srq = softhca_ibv_create_srq(w->pd, &init);

	assert_non_null(srq);
	assert_ptr_equal(srq->srq_context, w);
	assert_true(init.attr.max_wr >= 100 && init.attr.max_sge >= 4);
	assert_int_equal(softhca_ibv_query_srq(srq, &attr), 0);
	assert_int_equal(attr.max_wr, 100);
	assert_int_equal(attr.max_sge, 4);
	assert_int_equal(attr.srq_limit, 0); /* not armed at creation */
	attr.srq_limit = 10;
	assert_int_equal(softhca_ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT), 0);
	assert_int_equal(softhca_ibv_query_srq(srq, &attr), 0);
	assert_int_equal(attr.srq_limit, 10); /* V15 */
	attr.srq_limit = 101;
	assert_int_equal(softhca_ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT), EINVAL);
	attr.max_wr = 200;
	assert_int_equal(softhca_ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT), 0);
	assert_int_equal(softhca_ibv_query_srq(srq, &attr), 0);
	assert_int_equal(attr.max_wr, 200);
	assert_int_equal(attr.srq_limit, 101);
	attr.max_wr = HCA_MAX_SRQ_WR + 1;
	assert_int_equal(softhca_ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR), EINVAL);
	attr.max_wr = 100; /* below the limit */
	assert_int_equal(softhca_ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR), EINVAL);
	assert_int_equal(softhca_ibv_modify_srq(srq, &attr, 1 << 5), EINVAL);
	assert_int_equal(softhca_ibv_destroy_srq(srq), 0);

	init.attr.max_wr = 0;
	assert_null_errno(softhca_ibv_create_srq(w->pd, &init), EINVAL);
	init.attr.max_wr = HCA_MAX_SRQ_WR + 1;
	assert_null_errno(softhca_ibv_create_srq(w->pd, &init), EINVAL);
	init.attr.max_wr = 1;
	init.attr.max_sge = HCA_MAX_SGE + 1;
	assert_null_errno(softhca_ibv_create_srq(w->pd, &init), EINVAL);
}

static struct ibv_srq_init_attr_ext mp_srq_attr(struct world *w)
{
	return (struct ibv_srq_init_attr_ext){
		.mp_wr = { 100000, 500 },
		.base = { .attr = { 8, 1, 0 },
			  .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
				       IBV_SRQ_INIT_ATTR_MP_WR,
			  .srq_type = IBV_SRQT_BASIC,
			  .pd = w->pd },
	};
}

static void srq_types(void **state)
{
	struct world *w = *state;
	struct ibv_srq_init_attr_ext attr = mp_srq_attr(w);
	struct ibv_srq *srq;

	attr.base.srq_type = IBV_SRQT_TM; /* with MP WR or without */
	assert_null_errno(create_srq_ex(w->context, &attr.base), EOPNOTSUPP);
	attr.base.srq_type = IBV_SRQT_XRC;
	assert_null_errno(create_srq_ex(w->context, &attr.base), EOPNOTSUPP);
	attr.base.comp_mask &= ~IBV_SRQ_INIT_ATTR_MP_WR;
	assert_null_errno(create_srq_ex(w->context, &attr.base), EOPNOTSUPP);

	attr = mp_srq_attr(w);
	attr.base.comp_mask |= 1 << 20;
	assert_null_errno(create_srq_ex(w->context, &attr.base), EOPNOTSUPP);
	attr = mp_srq_attr(w);
	attr.base.comp_mask &= ~IBV_SRQ_INIT_ATTR_PD;
	assert_null_errno(create_srq_ex(w->context, &attr.base), EINVAL);

	/* NVMF: CQ and attributes are required */
	attr = mp_srq_attr(w);
	attr.base.srq_type = IBV_SRQT_NVMF;
	assert_null_errno(create_srq_ex(w->context, &attr.base), EINVAL);
	attr.base.comp_mask |= IBV_SRQ_INIT_ATTR_NVMF;
	assert_null_errno(create_srq_ex(w->context, &attr.base), EINVAL);
	attr.base.comp_mask |= IBV_SRQ_INIT_ATTR_CQ;
	attr.base.cq = ibv_cq_ex_to_cq(w->mp_cq);
	assert_null_errno(create_srq_ex(w->context, &attr.base), EINVAL); /* no staging */

	/* the CQ given at creation must be able to carry MP WRs */
	attr = mp_srq_attr(w);
	attr.base.comp_mask |= IBV_SRQ_INIT_ATTR_CQ;
	attr.base.cq = w->cq;
	assert_null_errno(create_srq_ex(w->context, &attr.base), EINVAL);
	attr.base.cq = ibv_cq_ex_to_cq(w->mp_cq);
	srq = create_srq_ex(w->context, &attr.base);
	assert_non_null(srq);
	assert_int_equal(attr.mp_wr.packet_align_sz, 512); /* the actual values */
	assert_int_equal(attr.mp_wr.wr_buffer_sz, 100352);
	assert_int_equal(softhca_ibv_destroy_cq(ibv_cq_ex_to_cq(w->mp_cq)), EBUSY);
	assert_int_equal(softhca_ibv_destroy_srq(srq), 0);

	attr = mp_srq_attr(w);
	attr.mp_wr.packet_align_sz = 0;
	assert_null_errno(create_srq_ex(w->context, &attr.base), EINVAL);
	assert_int_equal(attr.mp_wr.wr_buffer_sz, 100000); /* unchanged */
}

/* ---- queue pairs -------------------------------------------------------------------- */

static struct ibv_qp_init_attr_ext qp_attr(struct world *w)
{
	return (struct ibv_qp_init_attr_ext){
		.mp_wr = { 65536, 512 },
		.base = { .qp_context = w,
			  .send_cq = w->cq,
			  .recv_cq = w->cq,
			  .cap = { 8, 8, 2, 2, 32 },
			  .qp_type = IBV_QPT_RC,
			  .comp_mask = IBV_QP_INIT_ATTR_PD,
			  .pd = w->pd },
	};
}

static void qp_creation(void **state)
{
	struct world *w = *state;
	struct ibv_qp_init_attr_ext attr = qp_attr(w);
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr query;
	struct ibv_qp *qp = softhca_ibv_create_qp(w->pd, (struct ibv_qp_init_attr *)&attr.base);

	assert_non_null(qp);
	assert_int_equal(qp->state, IBV_QPS_RESET);
	assert_ptr_equal(qp->qp_context, w);
	assert_ptr_equal(qp->pd, w->pd);
	assert_ptr_equal(qp->send_cq, w->cq);
	assert_true(attr.base.cap.max_send_wr >= 8 && attr.base.cap.max_recv_wr >= 8);
	assert_true(attr.base.cap.max_inline_data >= 32);
	assert_null(softhca_ibv_qp_to_qp_ex(qp)); /* without send_ops_flags */
	assert_int_equal(softhca_ibv_destroy_cq(w->cq), EBUSY);
	assert_int_equal(softhca_ibv_query_qp(qp, &query, IBV_QP_STATE, &init), 0);
	assert_int_equal(query.qp_state, IBV_QPS_RESET);
	assert_ptr_equal(init.qp_context, w);
	assert_ptr_equal(init.recv_cq, w->cq);
	assert_int_equal(init.qp_type, IBV_QPT_RC);
	assert_int_equal(init.cap.max_send_wr, attr.base.cap.max_send_wr);
	assert_int_equal(softhca_ibv_query_qp_data_in_order(qp, IBV_WR_RDMA_WRITE, 0), 0);
	assert_int_equal(softhca_ibv_query_ece(qp, NULL), EOPNOTSUPP);
	assert_int_equal(softhca_ibv_attach_mcast(qp, NULL, 0), EOPNOTSUPP);
	assert_int_equal(softhca_ibv_destroy_qp(qp), 0);
}

static void qp_refusals(void **state)
{
	struct world *w = *state;
	struct ibv_qp_init_attr_ext attr;

#define REFUSED(change, error)                                                                     \
	do {                                                                                       \
		attr = qp_attr(w);                                                                 \
		change;                                                                            \
		assert_null_errno(create_qp_ex(w->context, &attr.base), error);                    \
	} while (0)
	REFUSED(attr.base.qp_type = IBV_QPT_UD, EOPNOTSUPP);
	REFUSED(attr.base.qp_type = IBV_QPT_UC, EOPNOTSUPP);
	REFUSED(attr.base.qp_type = IBV_QPT_RAW_PACKET, EOPNOTSUPP);
	REFUSED(attr.base.send_cq = NULL, EINVAL);
	REFUSED(attr.base.recv_cq = NULL, EINVAL);
	REFUSED(attr.base.cap.max_send_wr = HCA_MAX_QP_WR + 1, EINVAL);
	REFUSED(attr.base.cap.max_recv_wr = HCA_MAX_QP_WR + 1, EINVAL);
	REFUSED(attr.base.cap.max_send_sge = HCA_MAX_SGE + 1, EINVAL);
	REFUSED(attr.base.cap.max_recv_sge = HCA_MAX_SGE + 1, EINVAL);
	REFUSED(attr.base.cap.max_inline_data = HCA_MAX_INLINE + 1, EINVAL);
	REFUSED(attr.base.comp_mask = 0, EINVAL);
	REFUSED(attr.base.comp_mask |= IBV_QP_INIT_ATTR_XRCD, EOPNOTSUPP);
	REFUSED(attr.base.comp_mask |= IBV_QP_INIT_ATTR_RX_HASH, EOPNOTSUPP);
	REFUSED(attr.base.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
		attr.base.create_flags = IBV_QP_CREATE_SOURCE_QPN, EOPNOTSUPP);
	REFUSED(attr.base.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		attr.base.send_ops_flags = IBV_QP_EX_WITH_ATOMIC_WRITE, EOPNOTSUPP);
	/* MP WR: the receive CQ must be extended, with the flag; geometry */
	REFUSED(attr.base.comp_mask |= IBV_QP_INIT_ATTR_MP_WR, EINVAL);
	REFUSED(attr.base.comp_mask |= IBV_QP_INIT_ATTR_MP_WR;
		attr.base.recv_cq = ibv_cq_ex_to_cq(w->mp_cq); attr.mp_wr.wr_buffer_sz = 0, EINVAL);
#undef REFUSED
}

static void qp_with_mp_wr(void **state)
{
	struct world *w = *state;
	struct ibv_qp_init_attr_ext attr = qp_attr(w);
	struct ibv_qp *qp;

	attr.base.comp_mask |= IBV_QP_INIT_ATTR_MP_WR;
	attr.base.recv_cq = ibv_cq_ex_to_cq(w->mp_cq);
	attr.mp_wr.packet_align_sz = 65;
	attr.mp_wr.wr_buffer_sz = 65000;
	qp = create_qp_ex(w->context, &attr.base);
	assert_non_null(qp);
	assert_int_equal(attr.mp_wr.packet_align_sz, 128);
	assert_int_equal(attr.mp_wr.wr_buffer_sz, 65024);
	assert_int_equal(softhca_ibv_destroy_qp(qp), 0);
}

/* all QPs on one MP SRQ share one receive CQ: the first to attach fixes it */
static void qp_on_mp_srq(void **state)
{
	struct world *w = *state;
	struct ibv_srq_init_attr_ext srq_attr = mp_srq_attr(w);
	struct ibv_qp_init_attr_ext attr = qp_attr(w);
	struct ibv_cq_ex *other = create_mp_cq(w->context);
	struct ibv_srq *srq = create_srq_ex(w->context, &srq_attr.base);
	struct ibv_qp *qp[2];

	assert_non_null(srq);
	attr.base.srq = srq;
	assert_null_errno(create_qp_ex(w->context, &attr.base), EINVAL); /* a classic CQ */
	attr.base.recv_cq = ibv_cq_ex_to_cq(w->mp_cq);
	attr.base.cap.max_recv_wr = 0x7fffffff; /* V3: ignored with an SRQ */
	qp[0] = create_qp_ex(w->context, &attr.base);
	assert_non_null(qp[0]);
	assert_int_equal(softhca_ibv_destroy_srq(srq), EBUSY);
	attr.base.recv_cq = ibv_cq_ex_to_cq(other);
	assert_null_errno(create_qp_ex(w->context, &attr.base), EINVAL);
	attr.base.recv_cq = ibv_cq_ex_to_cq(w->mp_cq);
	qp[1] = create_qp_ex(w->context, &attr.base);
	assert_non_null(qp[1]);
	assert_int_equal(softhca_ibv_destroy_qp(qp[0]), 0);
	assert_int_equal(softhca_ibv_destroy_qp(qp[1]), 0);

	/* with the last QP gone, the next one may bring another CQ */
	attr.base.recv_cq = ibv_cq_ex_to_cq(other);
	qp[0] = create_qp_ex(w->context, &attr.base);
	assert_non_null(qp[0]);
	assert_int_equal(softhca_ibv_destroy_qp(qp[0]), 0);
	assert_int_equal(softhca_ibv_destroy_cq(ibv_cq_ex_to_cq(other)), 0);
	assert_int_equal(softhca_ibv_destroy_srq(srq), 0);
}

static void modify_with_bad_address(void **state) /* A1, A7 */
{
	struct world *w = *state;
	struct ibv_qp_init_attr_ext init = qp_attr(w);
	struct ibv_qp *qp = softhca_ibv_create_qp(w->pd, (struct ibv_qp_init_attr *)&init.base);
	const int rtr_mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			     IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

	assert_int_equal(softhca_ibv_modify_qp(qp, &attr,
					       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
						       IBV_QP_ACCESS_FLAGS),
			 0);
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = 77,
		.ah_attr = { .port_num = 1 },
	};
	assert_int_equal(softhca_ibv_query_gid(w->context, 1, loopback_gid_index(w->context),
					       &attr.ah_attr.grh.dgid),
			 0);
	attr.ah_attr.grh.sgid_index = loopback_gid_index(w->context);
	assert_int_equal(softhca_ibv_modify_qp(qp, &attr, rtr_mask), EINVAL); /* no GRH */
	attr.ah_attr.is_global = 1;
	attr.ah_attr.grh.sgid_index = 63; /* empty */
	assert_int_equal(softhca_ibv_modify_qp(qp, &attr, rtr_mask), EINVAL);
	assert_int_equal(qp->state, IBV_QPS_INIT);
	attr.ah_attr.grh.sgid_index = loopback_gid_index(w->context);
	assert_int_equal(softhca_ibv_modify_qp(qp, &attr, rtr_mask), 0);
	assert_int_equal(qp->state, IBV_QPS_RTR);
	assert_int_equal(softhca_ibv_destroy_qp(qp), 0);
}

/* ---- address handles -------------------------------------------------------------------- */

static void address_handles(void **state)
{
	struct world *w = *state;
	struct ibv_ah_attr attr = { .port_num = 1, .is_global = 1 };
	struct ibv_ah *ah;

	attr.grh.sgid_index = loopback_gid_index(w->context);
	softhca_ibv_query_gid(w->context, 1, attr.grh.sgid_index, &attr.grh.dgid);
	ah = softhca_ibv_create_ah(w->pd, &attr);
	assert_non_null(ah);
	assert_int_equal(softhca_ibv_dealloc_pd(w->pd), EBUSY);
	assert_int_equal(softhca_ibv_destroy_ah(ah), 0);
	attr.is_global = 0;
	assert_null_errno(softhca_ibv_create_ah(w->pd, &attr), EINVAL);
	attr.is_global = 1;
	attr.port_num = 2;
	assert_null_errno(softhca_ibv_create_ah(w->pd, &attr), EINVAL);
	attr.port_num = 1;
	attr.grh.sgid_index = 63;
	assert_null_errno(softhca_ibv_create_ah(w->pd, &attr), EINVAL);
}

static void address_from_a_completion(void **state)
{
	struct world *w = *state;
	/* 20 zero bytes, then an IPv4 header 10.0.0.9 -> 127.0.0.1, checksum right */
	uint8_t area[40] = { [20] = 0x45, 0x08, 0,  60, 0, 0, 0x40, 0, 64, 17,
			     0,		  0,	10, 0,	0, 9, 127,  0, 0,  1 };
	struct ibv_wc wc = { .wc_flags = IBV_WC_GRH, .src_qp = 5 };
	struct ibv_ah_attr attr;
	uint32_t sum = 0;

	for (int i = 20; i < 40; i += 2)
		sum += area[i] << 8 | area[i + 1];
	sum = ~((sum & 0xffff) + (sum >> 16));
	area[30] = sum >> 8;
	area[31] = sum;
	assert_int_equal(softhca_ibv_init_ah_from_wc(w->context, 1, &wc, (void *)area, &attr), 0);
	assert_int_equal(attr.is_global, 1);
	assert_int_equal(attr.grh.dgid.raw[10], 0xff);
	assert_int_equal(attr.grh.dgid.raw[12], 10);
	assert_int_equal(attr.grh.dgid.raw[15], 9);
	assert_int_equal(attr.grh.sgid_index, loopback_gid_index(w->context));
	assert_int_equal(attr.grh.traffic_class, 8);
	wc.wc_flags = 0;
	assert_int_equal(softhca_ibv_init_ah_from_wc(w->context, 1, &wc, (void *)area, &attr), -1);
	area[39] = 77; /* not one of our addresses */
	wc.wc_flags = IBV_WC_GRH;
	assert_int_equal(softhca_ibv_init_ah_from_wc(w->context, 1, &wc, (void *)area, &attr), -1);
	assert_int_equal(errno, EINVAL);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_world, close_world)
	const struct CMUnitTest tests[] = {
		TEST(lifetimes),
		TEST(closing_leaves_objects_behind),
		TEST(mr_fields),
		TEST(mr_access),
		TEST(mr_memory),
		TEST(doorbell_mr),
		TEST(cq_limits),
		TEST(cq_ex_flags),
		TEST(srq_basic),
		TEST(srq_types),
		TEST(qp_creation),
		TEST(qp_refusals),
		TEST(qp_with_mp_wr),
		TEST(qp_on_mp_srq),
		TEST(modify_with_bad_address),
		TEST(address_handles),
		TEST(address_from_a_completion),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
