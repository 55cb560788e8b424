/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_offload_api.c: the NVMe-oF offload's objects through the public API: what refers to what,
 * errnos, events of a controller. What the offload does is tested in tests/unit/offload.
 */
#include <fcntl.h>
#include <sys/mman.h>

#include "verbs_fixture.h"

#include "verbs/objects.h"

#define DEPTH	   8
#define MAX_IO_SZ  65536
#define STAGING_SZ (4 * MAX_IO_SZ)

struct world {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *staging, *queues;
	uint8_t *memory; /* staging, then the queues */
	struct ibv_srq_init_attr_ext attr;
	struct ibv_nvme_ctrl_attrs ctrl_attrs;
	struct ibv_srq *srq;
};

static int open_world(void **state)
{
	static struct world world;
	struct world *w = &world;
	uint8_t *queues;

	memset(w, 0, sizeof(*w));
	w->context = open_loopback();
	w->pd = softhca_ibv_alloc_pd(w->context);
	w->cq = softhca_ibv_create_cq(w->context, 64, NULL, NULL, 0);
	w->memory = mmap(NULL, STAGING_SZ + 65536, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	queues = w->memory + STAGING_SZ;
	w->staging = softhca_ibv_reg_mr(w->pd, w->memory, STAGING_SZ, IBV_ACCESS_LOCAL_WRITE);
	w->queues = softhca_ibv_reg_mr(w->pd, queues, 65536, IBV_ACCESS_LOCAL_WRITE);
	w->attr = (struct ibv_srq_init_attr_ext){
		.nvmf_attr = {
			.offload_ops = IBV_NVMF_OP_READ | IBV_NVMF_OP_WRITE | IBV_NVMF_OP_FLUSH,
			.max_namespaces = 4,
			.ioccsz = (64 + 8192) / 16,
			.max_io_sz = MAX_IO_SZ,
			.nvme_queue_depth = DEPTH,
			.staging_buf = { w->staging, w->memory, STAGING_SZ },
		},
		.base = { .attr = { 16, 1, 0 },
			  .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
				       IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_NVMF,
			  .srq_type = IBV_SRQT_NVMF,
			  .pd = w->pd,
			  .cq = w->cq },
	};
	w->ctrl_attrs = (struct ibv_nvme_ctrl_attrs){
		.sq_buf = { w->queues, queues, DEPTH * 64 },
		.cq_buf = { w->queues, queues + 4096, DEPTH * 16 },
		.sqdb = { w->queues, queues + 8192, 4 },
		.cqdb = { w->queues, queues + 8196, 4 },
	};
	w->srq = create_srq_ex(w->context, &w->attr.base);
	*state = w;
	return w->srq ? 0 : -1;
}

static int close_world(void **state)
{
	struct world *w = *state;

	if (softhca_ibv_destroy_srq(w->srq) || softhca_ibv_dereg_mr(w->staging) ||
	    softhca_ibv_dereg_mr(w->queues) || softhca_ibv_destroy_cq(w->cq) ||
	    softhca_ibv_dealloc_pd(w->pd) || softhca_ibv_close_device(w->context))
		return -1;
	munmap(w->memory, STAGING_SZ + 65536);
	return engine_references;
}

static void objects_hold_each_other(void **state)
{
	struct world *w = *state;
	struct ibv_nvme_ctrl *ctrl = ibv_srq_create_nvme_ctrl(w->srq, &w->ctrl_attrs);

	assert_non_null(ctrl);
	assert_int_equal(softhca_ibv_dereg_mr(w->staging), EBUSY);
	assert_int_equal(softhca_ibv_dereg_mr(w->queues), EBUSY);
	assert_int_equal(softhca_ibv_destroy_cq(w->cq), EBUSY);
	assert_int_equal(softhca_ibv_destroy_srq(w->srq), EBUSY);
	assert_int_equal(ibv_srq_remove_nvme_ctrl(w->srq, ctrl), 0);
}

static void wrong_attributes(void **state)
{
	struct world *w = *state;
	struct ibv_srq_init_attr_ext attr = w->attr;

#define REFUSED(change)                                                                            \
	do {                                                                                       \
		attr = w->attr;                                                                    \
		change;                                                                            \
		errno = 0;                                                                         \
		assert_null(create_srq_ex(w->context, &attr.base));                                \
		assert_int_equal(errno, EINVAL);                                                   \
	} while (0)
	REFUSED(attr.nvmf_attr.offload_ops = 0);
	REFUSED(attr.nvmf_attr.staging_buf.mr = NULL);
	REFUSED(attr.nvmf_attr.staging_buf.len = MAX_IO_SZ + 4096);
	REFUSED(attr.nvmf_attr.max_io_sz = 4097);
	REFUSED(attr.base.comp_mask &= ~IBV_SRQ_INIT_ATTR_CQ);
	REFUSED(attr.base.comp_mask &= ~IBV_SRQ_INIT_ATTR_NVMF);
	REFUSED(attr.base.cq = NULL);
	REFUSED(attr.base.attr.max_wr = 0);
#undef REFUSED
	/* nothing of the refused ones is left behind */
	assert_int_equal(to_mr(w->staging)->references, 1);
}

static void controllers(void **state)
{
	struct world *w = *state;
	struct ibv_srq_init_attr plain_attr = { .attr = { 1, 1, 0 } };
	struct ibv_srq *plain = softhca_ibv_create_srq(w->pd, &plain_attr);
	struct ibv_nvme_ctrl_attrs attrs = w->ctrl_attrs;
	struct ibv_nvmf_ns_stats stats;
	struct ibv_nvme_ctrl *ctrl;

	errno = 0;
	assert_null(ibv_srq_create_nvme_ctrl(plain, &attrs)); /* no offload behind it */
	assert_int_equal(errno, EINVAL);
	errno = 0;
	assert_null(ibv_srq_create_nvme_ctrl(w->srq, NULL));
	assert_int_equal(errno, EINVAL);
	attrs.comp_mask = 1;
	assert_null(ibv_srq_create_nvme_ctrl(w->srq, &attrs));
	attrs = w->ctrl_attrs;
	attrs.cqdb.mr = NULL;
	assert_null(ibv_srq_create_nvme_ctrl(w->srq, &attrs));
	attrs = w->ctrl_attrs;
	attrs.sq_buf.len--;
	errno = 0;
	assert_null(ibv_srq_create_nvme_ctrl(w->srq, &attrs));
	assert_int_equal(errno, EINVAL);

	ctrl = ibv_srq_create_nvme_ctrl(w->srq, &w->ctrl_attrs);
	assert_non_null(ctrl);
	errno = 0;
	assert_null(ibv_srq_create_nvme_ctrl(w->srq, &w->ctrl_attrs)); /* its memory is in use */
	assert_int_equal(errno, EBUSY);
	assert_int_equal(ibv_map_nvmf_nsid(ctrl, 0, 512, 1), EINVAL);
	assert_int_equal(ibv_map_nvmf_nsid(ctrl, 1, 500, 1), EINVAL);
	assert_int_equal(ibv_map_nvmf_nsid(ctrl, 1, 512, 1), 0);
	assert_int_equal(ibv_map_nvmf_nsid(ctrl, 1, 512, 1), EEXIST);
	assert_int_equal(ibv_query_nvmf_ns(ctrl, 1, &stats), 0);
	assert_int_equal(stats.num_read_cmd, 0);
	assert_int_equal(ibv_query_nvmf_ns(ctrl, 2, &stats), ENOENT);
	assert_int_equal(ibv_query_nvmf_ns(ctrl, 1, NULL), EINVAL);
	assert_int_equal(ibv_srq_remove_nvme_ctrl(w->srq, ctrl), EBUSY);
	assert_int_equal(ibv_srq_remove_nvme_ctrl(plain, ctrl), EINVAL);
	assert_int_equal(ibv_unmap_nvmf_nsid(ctrl, 1), 0);
	assert_int_equal(ibv_unmap_nvmf_nsid(ctrl, 1), ENOENT);
	assert_int_equal(ibv_srq_remove_nvme_ctrl(w->srq, ctrl), 0);
	assert_int_equal(softhca_ibv_destroy_srq(plain), 0);
}

static void controller_events(void **state)
{
	struct world *w = *state;
	struct ibv_nvme_ctrl *ctrl = ibv_srq_create_nvme_ctrl(w->srq, &w->ctrl_attrs);
	struct ibv_async_event event;

	fcntl(w->context->async_fd, F_SETFL, O_NONBLOCK);
	async_raise(&to_context(w->context)->hca, IBV_EVENT_NVME_CTRL_TIMEOUT, ctrl);
	async_raise(&to_context(w->context)->hca, IBV_EVENT_NVME_CTRL_TIMEOUT, ctrl);
	assert_int_equal(softhca_ibv_get_async_event(w->context, &event), 0);
	assert_int_equal(event.event_type, IBV_EVENT_NVME_CTRL_TIMEOUT);
	assert_ptr_equal(ibv_event_nvme_ctrl(&event), ctrl);
	assert_int_equal(ibv_srq_remove_nvme_ctrl(w->srq, ctrl), EBUSY); /* not acknowledged */
	softhca_ibv_ack_async_event(&event);
	assert_int_equal(softhca_ibv_get_async_event(w->context, &event), -1);
	assert_int_equal(errno, EAGAIN);
	/* one that nobody has read goes with the controller */
	async_raise(&to_context(w->context)->hca, IBV_EVENT_NVME_CTRL_PCI_ERR, ctrl);
	assert_int_equal(ibv_srq_remove_nvme_ctrl(w->srq, ctrl), 0);
	assert_int_equal(softhca_ibv_get_async_event(w->context, &event), -1);
}

static void queue_pairs(void **state)
{
	struct world *w = *state;
	struct ibv_cq *other = softhca_ibv_create_cq(w->context, 64, NULL, NULL, 0);
	struct ibv_qp_init_attr init = {
		.send_cq = other,
		.recv_cq = other,
		.srq = w->srq,
		.cap = { 8, 0, 1, 0, 0 },
		.qp_type = IBV_QPT_RC,
	};
	struct softhca_nvmf_srq_stats stats;
	struct ibv_qp *qp;
	uint16_t sqhd = 99;

	errno = 0;
	assert_null(softhca_ibv_create_qp(w->pd, &init)); /* the SRQ has its CQ */
	assert_int_equal(errno, EINVAL);
	init.recv_cq = w->cq;
	qp = softhca_ibv_create_qp(w->pd, &init);
	assert_non_null(qp);
	assert_int_equal(ibv_modify_qp_nvmf(qp, IBV_QP_NVMF_ATTR_FLAG_ENABLE), EINVAL); /* RESET */
	assert_int_equal(ibv_modify_qp_nvmf(qp, 2), EINVAL);
	connect_qp(qp, qp->qp_num, IBV_MTU_4096);
	assert_int_equal(ibv_modify_qp_nvmf(qp, IBV_QP_NVMF_ATTR_FLAG_ENABLE), 0);
	assert_int_equal(ibv_modify_qp_nvmf(qp, IBV_QP_NVMF_ATTR_FLAG_ENABLE), 0);
	assert_int_equal(softhca_nvmf_sqhd(qp, &sqhd), 0);
	assert_int_equal(sqhd, 0);
	assert_int_equal(softhca_query_nvmf_srq(w->srq, &stats), 0);
	assert_int_equal(stats.software, 0);
	assert_int_equal(ibv_modify_qp_nvmf(qp, 0), 0);
	softhca_nvme_cq_notify(w->srq);
	assert_int_equal(softhca_ibv_destroy_qp(qp), 0);
	assert_int_equal(softhca_ibv_destroy_cq(other), 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_world, close_world)
	const struct CMUnitTest tests[] = {
		TEST(objects_hold_each_other), TEST(wrong_attributes), TEST(controllers),
		TEST(controller_events),       TEST(queue_pairs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
