// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_objects.c: the calls' rules: which errno for which argument. docs/nvmf-offload.md,
 * "Objects and calls".
 */
#include "fixture.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "util/bytes.h"

static void test_caps(void **state)
{
	struct ibv_nvmf_caps caps;

	offload_get_caps(&caps);
	assert_int_equal(caps.offload_type_rc, IBV_NVMF_WRITE_OFFLOAD | IBV_NVMF_READ_OFFLOAD |
						       IBV_NVMF_READ_WRITE_OFFLOAD |
						       IBV_NVMF_READ_WRITE_FLUSH_OFFLOAD);
	assert_int_equal(caps.offload_type_dc, 0);
	assert_int_equal(caps.min_nvme_queue_depth, 2);
	assert_true(caps.max_io_sz >= 1 << 20);
	assert_int_equal(caps.min_ioccsz, 4);
	assert_true(caps.max_frontend_nsid == 0xfffffffeU);
}

/* create with attributes changed by the caller */
static int create(struct fixture *f, const struct ibv_nvmf_attrs *attrs,
		  const struct offload_memory *staging)
{
	struct offload *off = NULL;
	int ret = offload_create(&off, &f->srq, attrs, staging);

	if (!ret)
		offload_destroy(off);
	return ret;
}

static void test_attrs(void **state)
{
	struct fixture f;
	struct ibv_nvmf_caps caps;
	struct hca_pd other_pd = { 0 };
	struct offload_memory m;
	struct ibv_nvmf_attrs a;
	struct hca_mr mr;

	offload_get_caps(&caps);
	fixture_open(&f, NULL);
	assert_int_equal(create(&f, &f.attrs, &f.staging), 0);

#define REFUSED(change)                                                                            \
	do {                                                                                       \
		a = f.attrs;                                                                       \
		m = f.staging;                                                                     \
		mr = f.staging_mr;                                                                 \
		m.mr = &mr;                                                                        \
		change;                                                                            \
		assert_int_equal(create(&f, &a, &m), EINVAL);                                      \
	} while (0)
#define ACCEPTED(change)                                                                           \
	do {                                                                                       \
		a = f.attrs;                                                                       \
		m = f.staging;                                                                     \
		mr = f.staging_mr;                                                                 \
		m.mr = &mr;                                                                        \
		change;                                                                            \
		assert_int_equal(create(&f, &a, &m), 0);                                           \
	} while (0)

	ACCEPTED(a.offload_ops = IBV_NVMF_OP_WRITE);
	ACCEPTED(a.offload_ops = IBV_NVMF_OP_READ);
	ACCEPTED(a.offload_ops = IBV_NVMF_OP_READ | IBV_NVMF_OP_WRITE);
	REFUSED(a.offload_ops = 0);
	REFUSED(a.offload_ops = IBV_NVMF_OP_FLUSH);
	REFUSED(a.offload_ops = IBV_NVMF_OP_FLUSH | IBV_NVMF_OP_READ);
	REFUSED(a.offload_ops = IBV_NVMF_OP_FLUSH | IBV_NVMF_OP_WRITE);
	REFUSED(a.offload_ops = 15);
	REFUSED(a.max_namespaces = 0);
	REFUSED(a.max_namespaces = caps.max_srq_namespaces + 1);
	ACCEPTED(a.max_namespaces = caps.max_srq_namespaces);
	REFUSED(a.nvme_log_page_sz = 5);
	REFUSED(a.nvme_log_page_sz = 255);
	REFUSED(a.ioccsz = caps.min_ioccsz - 1);
	REFUSED(a.ioccsz = caps.max_ioccsz + 1);
	ACCEPTED(a.ioccsz = caps.min_ioccsz);
	ACCEPTED(a.ioccsz = caps.max_ioccsz);
	REFUSED(a.icdoff = caps.max_icdoff + 1);
	REFUSED(a.icdoff = UINT32_MAX);
	REFUSED((a.ioccsz = 8, a.icdoff = 5)); /* 64 + 16 * 5 > 16 * 8 */
	ACCEPTED((a.ioccsz = 8, a.icdoff = 4));
	REFUSED(a.max_io_sz = 0);
	REFUSED(a.max_io_sz = 4096 + 512);
	REFUSED((a.nvme_log_page_sz = 1, a.max_io_sz = 4096));
	REFUSED(a.max_io_sz = caps.max_io_sz + 4096);
	REFUSED(a.nvme_queue_depth = 1);
	REFUSED(a.nvme_queue_depth = caps.max_nvme_queue_depth + 1);
	ACCEPTED(a.nvme_queue_depth = 2);
	/* staging */
	REFUSED(m.len = 0);
	REFUSED(m.len -= 4096);		/* no multiple of max_io_sz */
	REFUSED((m.addr += 128 << 10)); /* beyond the MR's end */
	REFUSED((m.addr += 2048, m.len -= 128 << 10));
	REFUSED((m.addr -= 4096));
	REFUSED(mr.access = IBV_ACCESS_REMOTE_READ);
	REFUSED(mr.pd = &other_pd);
	REFUSED(m.mr = NULL);
	REFUSED(m.len = caps.max_staging_buf_size + (128 << 10));
	ACCEPTED((m.addr += 128 << 10, m.len -= 128 << 10));
	/* one single slot, the largest transfer */
	ACCEPTED((a.max_io_sz = 1 << 20, m.len = 1 << 20));
	fixture_close(&f);
}

static int create_ctrl(struct fixture *f, const struct offload_ctrl_init *init)
{
	struct offload_ctrl *ctrl = NULL;
	int ret = offload_ctrl_create(&ctrl, f->offload, init);

	if (!ret)
		assert_int_equal(offload_ctrl_remove(ctrl), 0);
	return ret;
}

static void test_ctrl(void **state)
{
	struct fixture f;
	struct hca_pd other_pd = { 0 };
	struct offload_ctrl_init init;
	struct hca_mr mr;

	fixture_open(&f, NULL);
	/* its memory is in use */
	assert_int_equal(create_ctrl(&f, &f.init), EBUSY);
	assert_int_equal(offload_unmap(f.ctrl, NSID), 0);
	assert_int_equal(offload_ctrl_remove(f.ctrl), 0);
	f.ctrl = NULL;
	assert_int_equal(create_ctrl(&f, &f.init), 0);

#define CTRL(result, change)                                                                       \
	do {                                                                                       \
		init = f.init;                                                                     \
		mr = f.queue_mr;                                                                   \
		change;                                                                            \
		assert_int_equal(create_ctrl(&f, &init), result);                                  \
	} while (0)

	CTRL(EINVAL, init.sq.len -= 64);
	CTRL(EINVAL, init.sq.len += 64);
	CTRL(EINVAL, init.cq.len += 16);
	CTRL(EINVAL, init.cq.addr += 4096); /* outside */
	CTRL(EINVAL, init.sqdb.len = 8);
	CTRL(EINVAL, init.cqdb.len = 0);
	CTRL(EINVAL, init.sqdb.addr += 2); /* not aligned */
	CTRL(EINVAL, init.cqdb.addr += 4); /* outside */
	CTRL(EINVAL, (mr.pd = &other_pd, init.sq.mr = &mr));
	CTRL(EINVAL, (mr.pd = &other_pd, init.cq.mr = &mr));
	CTRL(EINVAL, (mr = f.doorbell_mr, mr.pd = &other_pd, init.sqdb.mr = &mr));
	CTRL(EINVAL, init.cqdb.mr = NULL);
	CTRL(EINVAL, init.sqdb_ini = 32);
	CTRL(EINVAL, init.cqdb_ini = 0xffff);
	CTRL(0, init.sqdb_ini = 31);
	CTRL(EINVAL, init.cmd_timeout_ms = 1);
	CTRL(EINVAL, init.cmd_timeout_ms = UINT32_MAX);
	CTRL(0, init.cmd_timeout_ms = 0);
	fixture_close(&f);
}

static void test_ctrl_limits(void **state)
{
	struct fixture f;
	struct ibv_nvmf_caps caps;
	struct offload_ctrl **ctrls, *one_more;
	struct fixture_options o = { .depth = 2 };
	uint8_t *memory = aligned_alloc(4096, 1 << 20);
	struct offload_ctrl_init init;
	struct hca_mr mr;
	uint32_t n;

	offload_get_caps(&caps);
	fixture_open(&f, &o);
	memset(memory, 0, 1 << 20);
	mr = (struct hca_mr){ .pd = &f.pd, .addr = memory, .length = 1 << 20, .access = 1 };
	ctrls = calloc(caps.max_srq_backend_ctrls, sizeof(*ctrls));
	for (n = 0; n < caps.max_srq_backend_ctrls; n++) {
		uint8_t *at = memory + (size_t)n * 256;

		init = f.init;
		init.sq = (struct offload_memory){ &mr, at, 128 };
		init.cq = (struct offload_memory){ &mr, at + 128, 32 };
		init.sqdb = (struct offload_memory){ &mr, at + 192, 4 };
		init.cqdb = (struct offload_memory){ &mr, at + 196, 4 };
		if (n == caps.max_srq_backend_ctrls - 1)
			break; /* the fixture has one too */
		assert_int_equal(offload_ctrl_create(&ctrls[n], f.offload, &init), 0);
		/* any overlap is one too many */
		if (n)
			continue;
		init.sq.addr = at + 192;
		assert_int_equal(offload_ctrl_create(&one_more, f.offload, &init), EBUSY);
	}
	assert_int_equal(offload_ctrl_create(&one_more, f.offload, &init), ENOSPC);
	while (n--)
		assert_int_equal(offload_ctrl_remove(ctrls[n]), 0);
	free(ctrls);
	fixture_close(&f);
	free(memory);
}

static void test_namespaces(void **state)
{
	struct fixture f;
	struct ibv_nvmf_ns_stats stats;

	fixture_open(&f, NULL);
	assert_int_equal(offload_map(f.ctrl, 0, 512, 1), EINVAL);
	assert_int_equal(offload_map(f.ctrl, 0xffffffff, 512, 1), EINVAL);
	assert_int_equal(offload_map(f.ctrl, 1, 512, 0), EINVAL);
	assert_int_equal(offload_map(f.ctrl, 1, 512, 0xffffffff), EINVAL);
	assert_int_equal(offload_map(f.ctrl, 1, 0, 1), EINVAL);
	assert_int_equal(offload_map(f.ctrl, 1, 256, 1), EINVAL);
	assert_int_equal(offload_map(f.ctrl, 1, 520, 1), EINVAL);
	assert_int_equal(offload_map(f.ctrl, 1, 65536, 1), EINVAL);
	assert_int_equal(offload_map(f.ctrl, NSID, 512, 2), EEXIST);
	assert_int_equal(offload_map(f.ctrl, 0xfffffffe, 32768, 1), 0);
	assert_int_equal(offload_map(f.ctrl, NSID + 4, 4096, 1), 0); /* same bucket */
	assert_int_equal(offload_map(f.ctrl, 1, 512, 1), 0);
	assert_int_equal(offload_map(f.ctrl, 2, 512, 1), ENOSPC); /* max_namespaces 4 */
	assert_int_equal(offload_ctrl_remove(f.ctrl), EBUSY);
	assert_int_equal(offload_unmap(f.ctrl, 3), ENOENT);
	assert_int_equal(offload_query_ns(f.ctrl, 3, &stats), ENOENT);
	assert_int_equal(offload_query_ns(f.ctrl, NSID, &stats), 0);
	assert_int_equal(stats.num_read_cmd, 0);
	assert_int_equal(offload_unmap(f.ctrl, 1), 0);
	assert_int_equal(offload_unmap(f.ctrl, 1), ENOENT);
	assert_int_equal(offload_map(f.ctrl, 2, 512, 1), 0);
	assert_int_equal(offload_unmap(f.ctrl, 2), 0);
	assert_int_equal(offload_unmap(f.ctrl, NSID + 4), 0);
	assert_int_equal(offload_unmap(f.ctrl, 0xfffffffe), 0);
	assert_int_equal(offload_ctrl_remove(f.ctrl), EBUSY);
	assert_int_equal(offload_unmap(f.ctrl, NSID), 0);
	assert_int_equal(offload_ctrl_remove(f.ctrl), 0);
	f.ctrl = NULL;
	fixture_close(&f);
}

static void test_modify_qp(void **state)
{
	struct fixture f;
	struct hca_qp *qp = calloc(1, sizeof(*qp));
	struct hca_srq plain = { 0 };
	uint16_t sqhd;

	fixture_open(&f, NULL);
	fake_qp_init(qp, &f.ctx, &f.srq, 2);
	assert_int_equal(offload_qp_modify(qp, 2), EINVAL);
	assert_int_equal(offload_qp_modify(qp, 3), EINVAL);
	assert_int_equal(offload_qp_modify(qp, 1), 0);
	assert_int_equal(offload_qp_modify(qp, 1), 0);
	assert_int_equal(offload_qp_modify(qp, 0), 0);
	assert_int_equal(offload_qp_modify(qp, 0), 0);
	for (enum ibv_qp_state s = IBV_QPS_RESET; s <= IBV_QPS_ERR; s++) {
		qp->state = s;
		assert_int_equal(offload_qp_modify(qp, 1), s == IBV_QPS_RTS ? 0 : EINVAL);
	}
	qp->state = IBV_QPS_RTS;
	assert_int_equal(offload_qp_sqhd(qp, &sqhd), 0);
	assert_int_equal(sqhd, 0);
	qp->srq = &plain;
	assert_int_equal(offload_qp_modify(qp, 1), EINVAL);
	assert_int_equal(offload_qp_sqhd(qp, &sqhd), EINVAL);
	qp->srq = NULL;
	assert_int_equal(offload_qp_modify(qp, 1), EINVAL);
	qp->srq = &f.srq;
	fake_qp_reset(qp);
	free(qp);
	fixture_close(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_caps),	   cmocka_unit_test(test_attrs),
		cmocka_unit_test(test_ctrl),	   cmocka_unit_test(test_ctrl_limits),
		cmocka_unit_test(test_namespaces), cmocka_unit_test(test_modify_qp),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
