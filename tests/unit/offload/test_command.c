// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_command.c: the way of a command, step by step, over a controller that the test answers; the
 * rows of the table of conditions with their statuses and counters. docs/nvmf-offload.md.
 */
#include "fixture.h"

#include <stdlib.h>
#include <string.h>

#include "offload/internal.h"
#include "util/bytes.h"

static struct ibv_nvmf_ns_stats ns_stats(struct fixture *f)
{
	struct ibv_nvmf_ns_stats stats;

	assert_int_equal(offload_query_ns(f->ctrl, NSID, &stats), 0);
	return stats;
}

static struct softhca_nvmf_srq_stats srq_stats(struct fixture *f)
{
	struct softhca_nvmf_srq_stats stats;

	offload_query_srq(f->offload, &stats);
	return stats;
}

static void fill(uint8_t *p, uint32_t len, uint32_t seed)
{
	for (uint32_t i = 0; i < len; i++)
		p[i] = (uint8_t)((seed + i) * 2654435761U >> 24);
}

static uint8_t *prp1(const struct nvme_sqe *sqe)
{
	return (uint8_t *)(uintptr_t)le64toh(sqe->prp1);
}

/* ---- good commands -------------------------------------------------------- */

static void test_read(void **state)
{
	struct fixture f;
	struct nvme_sqe sqe, got;
	struct nvme_cqe *cqe;

	fixture_open(&f, NULL);
	memset(host_memory, 0, 8192);
	sqe = host_sqe(NVME_CMD_READ, 0xf123, 0x123456789aULL, 8, 4096);
	sqe.cdw13 = htole32(13);
	sqe.cdw14 = htole32(14);
	sqe.cdw15 = htole32(15);
	sqe.mptr = htole64(0xdeadbeef);
	assert_int_equal(host_send(&f, &sqe), CAPSULE_TAKEN);
	/* the doorbell is rung at the poll, once for the batch */
	assert_int_equal(mock_pending(&f), 0);
	fake_progress(&f.engine);
	assert_int_equal(f.sq_rings, 1);
	got = mock_take(&f);
	assert_int_equal(got.opcode, NVME_CMD_READ);
	assert_int_equal(got.flags, 0); /* PRPs */
	assert_int_equal(le32toh(got.nsid), NVME_NS);
	assert_int_equal(got.mptr, 0);
	assert_int_equal(got.cdw10, sqe.cdw10);
	assert_int_equal(got.cdw11, sqe.cdw11);
	assert_int_equal(got.cdw12, sqe.cdw12);
	assert_int_equal(le32toh(got.cdw13), 13);
	assert_int_equal(le32toh(got.cdw14), 14);
	assert_int_equal(le32toh(got.cdw15), 15);
	assert_int_equal(le64toh(got.prp1) % 4096, 0);
	assert_int_equal(got.prp2, 0);
	assert_int_equal(ns_stats(&f).queue_depth, 1);
	fill(prp1(&got), 4096, 1);
	mock_answer(&f, got.cid, 0);
	fake_advance_ms(&f.engine, 3);
	assert_int_equal(f.cq_rings, 1);
	assert_int_equal(le32toh(f.doorbells[1]), 1);
	/* the data, then the response */
	assert_memory_equal(fake_order, "WS", 2);
	assert_int_equal(fake_order_count, 2);
	expect_no_response(f.qp);
	assert_int_equal(f.offload->staging.free_pages, f.offload->staging.page_count - 1);
	assert_true(fake_complete(f.qp));
	/* acknowledged: the staging page is free, though the response is not */
	assert_int_equal(f.offload->staging.free_pages, f.offload->staging.page_count);
	assert_true(fake_complete(f.qp));
	cqe = expect_response(f.qp, 0xf123, 0);
	assert_int_equal(le32toh(cqe->dw0), 0x11223344);
	assert_int_equal(le32toh(cqe->dw1), 0x55667788);
	assert_int_equal(f.qp->response_inv[0], 0);
	{
		uint8_t want[4096];

		fill(want, 4096, 1);
		assert_memory_equal(host_memory + 4096, want, 4096);
	}
	assert_int_equal(ns_stats(&f).num_read_cmd, 1);
	assert_int_equal(ns_stats(&f).num_read_blocks, 8);
	assert_int_equal(ns_stats(&f).queue_depth, 0);
	assert_int_equal(ns_stats(&f).peak_queue_depth, 1);
	assert_int_equal(ns_stats(&f).last_read_latency_ns, 3000000);
	assert_int_equal(ns_stats(&f).total_read_latency_ns, 3000000);
	assert_int_equal(ns_stats(&f).last_write_latency_ns, 0);
	assert_int_equal(srq_stats(&f).offloaded_read, 1);
	expect_idle(&f);
	fixture_close(&f);
}

static void test_write(void **state)
{
	struct fixture f;
	struct nvme_sqe sqe, got;

	fixture_open(&f, NULL);
	fill(host_memory, 65536, 7);
	sqe = host_sqe(NVME_CMD_WRITE, 5, 0, 128, 0);
	sqe.sgl[15] = NVME_SGL_KEYED_INVALIDATE;
	assert_int_equal(host_send(&f, &sqe), CAPSULE_TAKEN);
	fake_progress(&f.engine);
	/* the data are fetched first */
	assert_int_equal(f.sq_rings, 0);
	assert_memory_equal(fake_order, "R", 1);
	assert_true(fake_complete(f.qp));
	fake_progress(&f.engine);
	got = mock_take(&f);
	assert_int_equal(got.opcode, NVME_CMD_WRITE);
	assert_memory_equal(prp1(&got), host_memory, 65536);
	/* 16 pages: PRP2 names a list of the other 15 */
	for (int i = 0; i < 15; i++)
		assert_int_equal(le64toh(((uint64_t *)(uintptr_t)le64toh(got.prp2))[i]),
				 le64toh(got.prp1) + 4096 * (i + 1));
	mock_answer(&f, got.cid, 0);
	fake_advance_ms(&f.engine, 2);
	assert_int_equal(fake_order_count, 2);
	fake_settle(f.qp);
	expect_response(f.qp, 5, 0);
	/* exactly the key that was asked for */
	assert_int_equal(f.qp->response_inv[0], HOST_KEY);
	assert_int_equal(ns_stats(&f).num_write_cmd, 1);
	assert_int_equal(ns_stats(&f).num_write_blocks, 128);
	assert_int_equal(ns_stats(&f).num_write_inline_cmd, 0);
	assert_int_equal(ns_stats(&f).last_write_latency_ns, 2000000);
	assert_int_equal(srq_stats(&f).offloaded_write, 1);
	expect_idle(&f);
	fixture_close(&f);
}

static void test_flush(void **state)
{
	struct fixture f;
	struct nvme_sqe sqe, got;

	fixture_open(&f, NULL);
	sqe = host_sqe(NVME_CMD_FLUSH, 6, 0, 1, 0);
	assert_int_equal(host_send(&f, &sqe), CAPSULE_TAKEN);
	fake_progress(&f.engine);
	got = mock_take(&f);
	assert_int_equal(got.opcode, NVME_CMD_FLUSH);
	assert_int_equal(got.prp1, 0);
	mock_answer(&f, got.cid, 0);
	fake_settle(f.qp);
	assert_memory_equal(fake_order, "S", 1);
	expect_response(f.qp, 6, 0);
	assert_int_equal(ns_stats(&f).num_flush_cmd, 1);
	assert_int_equal(srq_stats(&f).offloaded_flush, 1);
	expect_idle(&f);
	fixture_close(&f);
}

/* in-capsule data of every length, in packets of every MTU, at an offset, with icdoff */
static void test_in_capsule(void **state)
{
	static const uint32_t mtus[] = { 256, 512, 1024, 2048, 4096 };
	uint8_t capsule[64 + 16 * 8 + 8192];

	for (uint32_t icdoff = 0; icdoff <= 8; icdoff += 8) {
		struct fixture_options o = { .icdoff = icdoff,
					     .ioccsz = (64 + 8192) / 16 + icdoff };
		struct fixture f;
		uint16_t cid = 0;

		fixture_open(&f, &o);
		fill(capsule, sizeof(capsule), 3);
		for (uint32_t blocks = 1; blocks <= 16; blocks++)
			for (size_t m = 0; m < ARRAY_SIZE(mtus); m++) {
				uint32_t offset = m * 100, len = blocks * LBA;
				uint32_t at = 64 + 16 * icdoff + offset;
				struct nvme_sqe sqe, got;

				if (offset + len > 8192)
					continue;
				sqe = host_sqe(NVME_CMD_WRITE, ++cid, 1, blocks, 0);
				set_sgl(&sqe, NVME_SGL_OFFSET, offset, len, 0);
				memcpy(capsule, &sqe, sizeof(sqe));
				assert_int_equal(fake_send(f.qp, capsule, at + len, mtus[m]),
						 CAPSULE_TAKEN);
				fake_progress(&f.engine);
				got = mock_take(&f);
				assert_memory_equal(prp1(&got), capsule + at, len);
				mock_answer(&f, got.cid, 0);
				fake_settle(f.qp);
				expect_response(f.qp, cid, 0);
			}
		assert_int_equal(ns_stats(&f).num_write_inline_cmd, cid);
		assert_int_equal(ns_stats(&f).num_write_cmd, cid);
		expect_idle(&f);
		fixture_close(&f);
	}
}

/* one doorbell for a batch of SQEs, one for a batch of CQEs; all WRITEs, then all responses */
static void test_batch(void **state)
{
	struct fixture f;
	struct nvme_sqe sqe;
	uint16_t cids[8];

	fixture_open(&f, NULL);
	for (uint16_t i = 0; i < 8; i++) {
		sqe = host_sqe(i % 4 == 3 ? NVME_CMD_FLUSH : NVME_CMD_READ, i, i, 1, i * 512);
		assert_int_equal(host_send(&f, &sqe), CAPSULE_TAKEN);
	}
	fake_progress(&f.engine);
	assert_int_equal(f.sq_rings, 1);
	for (int i = 0; i < 8; i++)
		cids[i] = mock_take(&f).cid;
	/* out of order */
	for (int i = 7; i >= 0; i--)
		mock_answer(&f, cids[i], 0);
	fake_progress(&f.engine);
	assert_int_equal(f.cq_rings, 1);
	assert_int_equal(fake_order_count, 14);
	assert_memory_equal(fake_order, "WWWWWWSSSSSSSS", 14);
	fake_settle(f.qp);
	for (int i = 7; i >= 0; i--)
		expect_response(f.qp, (uint16_t)i, 0);
	assert_int_equal(ns_stats(&f).peak_queue_depth, 8);
	expect_idle(&f);
	fixture_close(&f);
}

/* the backend's queues wrap many times at every small depth; each CID is unique in flight */
static void test_depths(void **state)
{
	for (uint32_t depth = 2; depth <= 9; depth++) {
		struct fixture_options o = { .depth = depth };
		struct fixture f;

		fixture_open(&f, &o);
		for (uint16_t i = 0; i < 200; i++) {
			struct nvme_sqe sqe = host_sqe(NVME_CMD_READ, i, i, 1, 0);
			uint16_t cids[9];
			unsigned int n;

			/* more than fit: the rest waits */
			for (uint32_t k = 0; k < depth + 1; k++) {
				sqe.cid = htole16((uint16_t)(i * 16 + k));
				assert_int_equal(host_send(&f, &sqe), CAPSULE_TAKEN);
			}
			for (uint32_t left = depth + 1; left; left -= n) {
				fake_progress(&f.engine);
				n = mock_pending(&f);
				assert_true(n > 0 && n < depth);
				for (unsigned int k = 0; k < n; k++) {
					cids[k] = mock_take(&f).cid;
					assert_int_not_equal(cids[k], 0xffff);
					for (unsigned int j = 0; j < k; j++)
						assert_int_not_equal(cids[j], cids[k]);
				}
				for (unsigned int k = 0; k < n; k++)
					mock_answer(&f, cids[k], 0);
			}
			fake_settle(f.qp);
		}
		assert_int_equal(f.qp->response_count, 200 * (depth + 1));
		assert_true(srq_stats(&f).waits_sq > 0);
		expect_idle(&f);
		fixture_close(&f);
	}
}

/* ---- what is software's --------------------------------------------------- */

static void connect_sqe(struct nvme_sqe *sqe, uint16_t qid, uint16_t sqsize)
{
	memset(sqe, 0, sizeof(*sqe));
	sqe->opcode = NVME_CMD_FABRICS;
	sqe->flags = NVME_SQE_PSDT_SGL;
	sqe->nsid = htole32(NVME_FABRICS_CONNECT);
	put_le16((uint8_t *)sqe + 42, qid);
	put_le16((uint8_t *)sqe + 44, sqsize);
}

static uint16_t sqhd_of(struct hca_qp *qp)
{
	uint16_t sqhd;

	assert_int_equal(offload_qp_sqhd(qp, &sqhd), 0);
	return sqhd;
}

static void test_software(void **state)
{
	struct fixture f;
	struct nvme_sqe sqe;

	fixture_open(&f, NULL);
	sqe = host_sqe(NVME_CMD_COMPARE, 1, 0, 1, 0);
	assert_int_equal(host_send(&f, &sqe), CAPSULE_NOT_MINE);
	assert_int_equal(srq_stats(&f).software, 1);
	assert_int_equal(sqhd_of(f.qp), 1);
	/* disabled: all is software's, and not counted as what the offload passed on */
	assert_int_equal(offload_qp_modify(f.qp, 0), 0);
	sqe = host_sqe(NVME_CMD_READ, 2, 0, 1, 0);
	assert_int_equal(host_send(&f, &sqe), CAPSULE_NOT_MINE);
	assert_int_equal(srq_stats(&f).software, 1);
	assert_int_equal(sqhd_of(f.qp), 2);
	/* too short for a capsule: there it is an ordinary message */
	assert_int_equal(fake_send(f.qp, &sqe, 10, 4096), CAPSULE_NOT_MINE);
	assert_int_equal(fake_send(f.qp, &sqe, 0, 4096), CAPSULE_NOT_MINE);
	fake_progress(&f.engine);
	assert_int_equal(mock_pending(&f), 0);
	expect_idle(&f);
	fixture_close(&f);
}

/* disabled with commands in flight: they finish */
static void test_disable_in_flight(void **state)
{
	struct fixture f;
	struct nvme_sqe sqe = { 0 };

	fixture_open(&f, NULL);
	sqe = host_sqe(NVME_CMD_READ, 1, 0, 1, 0);
	host_send(&f, &sqe);
	fake_progress(&f.engine);
	assert_int_equal(offload_qp_modify(f.qp, 0), 0);
	mock_answer(&f, mock_take(&f).cid, 0);
	fake_settle(f.qp);
	expect_response(f.qp, 1, 0);
	expect_idle(&f);
	fixture_close(&f);
}

/* SQHD: CONNECT tells the size; every capsule counts once, those that were RNR NAKed too */
static void test_sqhd(void **state)
{
	struct fixture f;
	struct hca_qp *qp = calloc(1, sizeof(*qp));
	struct nvme_sqe sqe;

	fixture_open(&f, NULL);
	fake_qp_init(qp, &f.ctx, &f.srq, 3);
	connect_sqe(&sqe, 4, 3); /* 4 entries */
	assert_int_equal(fake_send(qp, &sqe, 64, 1024), CAPSULE_NOT_MINE);
	assert_int_equal(sqhd_of(qp), 1);
	/* no receive was posted, so the host sends it again with the same PSN */
	qp->psn = (qp->psn - 1) & PSN_MASK;
	assert_int_equal(fake_send(qp, &sqe, 64, 1024), CAPSULE_NOT_MINE);
	assert_int_equal(sqhd_of(qp), 1);
	assert_int_equal(offload_qp_modify(qp, 1), 0);
	for (uint16_t i = 2; i < 12; i++) {
		sqe = host_sqe(i % 2 ? NVME_CMD_FLUSH : NVME_CMD_COMPARE, i, 0, 1, 0);
		fake_send(qp, &sqe, 64, 1024);
		assert_int_equal(sqhd_of(qp), i % 4);
		if (i % 2 == 0)
			continue;
		fake_progress(&f.engine);
		mock_answer(&f, mock_take(&f).cid, 0);
		fake_settle(qp);
		/* in the response: the fabrics queue's head and id, not the backend's */
		assert_int_equal(le16toh(fake_response(qp)->sqhd), i % 4);
		assert_int_equal(le16toh(qp->responses[qp->responses_read - 1].sqid), 4);
	}
	/* a CONNECT on an enabled QP changes nothing: software refuses it */
	connect_sqe(&sqe, 9, 99);
	fake_send(qp, &sqe, 64, 1024);
	assert_int_equal(sqhd_of(qp), 0);
	fake_qp_reset(qp);
	free(qp);
	fixture_close(&f);
}

/* ---- the table of conditions ---------------------------------------------- */

static void refused(struct fixture *f, struct nvme_sqe *sqe, uint32_t len, uint16_t status)
{
	static uint16_t cid = 100;
	uint8_t capsule[64 + 4096] = { 0 };

	sqe->cid = htole16(++cid);
	memcpy(capsule, sqe, 64);
	assert_int_equal(fake_send(f->qp, capsule, len, 1024), CAPSULE_TAKEN);
	fake_progress(&f->engine);
	assert_int_equal(mock_pending(f), 0);
	fake_settle(f->qp);
	expect_response(f->qp, cid, status);
	expect_idle(f);
}

static void test_unknown_nsid(void **state)
{
	struct fixture f;
	struct nvme_sqe sqe;

	fixture_open(&f, NULL);
	sqe = host_sqe(NVME_CMD_READ, 1, 0, 1, 0);
	sqe.nsid = htole32(NSID + 1);
	refused(&f, &sqe, 64, NVME_SC_INVALID_NAMESPACE | DNR);
	sqe.nsid = 0;
	refused(&f, &sqe, 64, NVME_SC_INVALID_NAMESPACE | DNR);
	/* asked for an invalidation: it comes with errors too */
	sqe.sgl[15] = NVME_SGL_KEYED_INVALIDATE;
	refused(&f, &sqe, 64, NVME_SC_INVALID_NAMESPACE | DNR);
	assert_int_equal(f.qp->response_inv[2], HOST_KEY);
	sqe = host_sqe(NVME_CMD_FLUSH, 1, 0, 1, 0);
	sqe.nsid = htole32(NSID + 4);
	refused(&f, &sqe, 64, NVME_SC_INVALID_NAMESPACE | DNR);
	assert_int_equal(srq_stats(&f).unknown_nsid, 4);
	assert_int_equal(srq_stats(&f).errors, 0);
	assert_int_equal(ns_stats(&f).num_error_cmd, 0);
	assert_int_equal(srq_stats(&f).offloaded_read, 0);
	fixture_close(&f);
}

static void test_refused(void **state)
{
	struct fixture f;
	struct nvme_sqe sqe;

	fixture_open(&f, NULL);
	/* SGL shorter than the transfer */
	sqe = host_sqe(NVME_CMD_READ, 1, 0, 2, 0);
	put_le32(sqe.sgl + 8, 1023);
	refused(&f, &sqe, 64, NVME_SC_SGL_DATA_LENGTH | DNR);
	sqe = host_sqe(NVME_CMD_WRITE, 1, 0, 2, 0);
	set_sgl(&sqe, NVME_SGL_KEYED, 0, 0, 0);
	refused(&f, &sqe, 64, NVME_SC_SGL_DATA_LENGTH | DNR);
	/* larger than max_io_sz, 128 KiB */
	sqe = host_sqe(NVME_CMD_READ, 1, 0, 257, 0);
	refused(&f, &sqe, 64, NVME_SC_INVALID_FIELD | DNR);
	/* in-capsule: outside of any capsule, and outside of this one */
	sqe = host_sqe(NVME_CMD_WRITE, 1, 0, 8, 0);
	set_sgl(&sqe, NVME_SGL_OFFSET, 0xfffffffffffffe00ULL, 0x1000, 0);
	refused(&f, &sqe, 64 + 4096, NVME_SC_SGL_OFFSET | DNR);
	set_sgl(&sqe, NVME_SGL_OFFSET, 0, 4097, 0);
	refused(&f, &sqe, 64 + 4096, NVME_SC_SGL_DATA_LENGTH | DNR);
	set_sgl(&sqe, NVME_SGL_OFFSET, 1, 4096, 0);
	refused(&f, &sqe, 64 + 4096, NVME_SC_SGL_OFFSET | DNR);
	assert_int_equal(ns_stats(&f).num_write_cmd, 0);
	set_sgl(&sqe, NVME_SGL_OFFSET, 0, 4096, 0);
	refused(&f, &sqe, 64 + 4095, NVME_SC_SGL_DATA_LENGTH | DNR);
	refused(&f, &sqe, 64, NVME_SC_SGL_OFFSET | DNR);
	assert_int_equal(ns_stats(&f).num_error_cmd, 8);
	assert_int_equal(srq_stats(&f).errors, 8);
	assert_int_equal(ns_stats(&f).num_backend_error_cmd, 0);
	fixture_close(&f);
}

static void test_capsule_length(void **state)
{
	uint8_t capsule[64 + 4096 + 1] = { 0 };
	struct fixture f;
	struct nvme_sqe sqe;

	fixture_open(&f, NULL);
	sqe = host_sqe(NVME_CMD_WRITE, 1, 0, 8, 0);
	set_sgl(&sqe, NVME_SGL_OFFSET, 0, 4096, 0);
	memcpy(capsule, &sqe, 64);
	for (uint32_t len = 0; len < 64; len++)
		assert_int_equal(fake_send(f.qp, capsule, len, 4096), CAPSULE_BAD);
	assert_int_equal(fake_send(f.qp, capsule, 64 + 4097, 4096), CAPSULE_BAD);
	/* the responder takes the QP down; what was begun is forgotten */
	fake_qp_error(f.qp);
	expect_idle(&f);
	assert_int_equal(fake_count_events(IBV_EVENT_NVMF_QP_ERR), 1);
	assert_int_equal(fake_count_events(IBV_EVENT_NVMF_QP_LAST_CQE_REACHED), 1);
	assert_ptr_equal(fake_events[0].object, f.qp);
	expect_no_response(f.qp);
	fixture_close(&f);
}

/* the backend's status goes through unchanged; PRP errors are our own affair */
static void test_backend_status(void **state)
{
	static const struct {
		uint16_t backend, host;
	} cases[] = {
		{ NVME_SC_LBA_RANGE | DNR, NVME_SC_LBA_RANGE | DNR },
		{ NVME_SC_READ_ERROR, NVME_SC_READ_ERROR },
		{ NVME_SC_WRITE_FAULT | NVME_STATUS_MORE, NVME_SC_WRITE_FAULT | NVME_STATUS_MORE },
		{ 0x7ff | DNR | NVME_STATUS_MORE, 0x7ff | DNR | NVME_STATUS_MORE },
		{ NVME_SC_NOT_READY | 1 << NVME_STATUS_CRD_SHIFT,
		  NVME_SC_NOT_READY | 1 << NVME_STATUS_CRD_SHIFT },
		{ NVME_SC_PRP_OFFSET | DNR, NVME_SC_INTERNAL | DNR },
	};
	struct fixture f;

	fixture_open(&f, NULL);
	for (uint16_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct nvme_sqe sqe = host_sqe(NVME_CMD_READ, i, 0, 8, 0);

		host_send(&f, &sqe);
		fake_progress(&f.engine);
		mock_answer(&f, mock_take(&f).cid, cases[i].backend);
		fake_settle(f.qp);
		expect_response(f.qp, i, cases[i].host);
		assert_int_equal(ns_stats(&f).num_backend_error_cmd, i + 1);
	}
	/* no data were sent for them */
	assert_int_equal(fake_order_count, ARRAY_SIZE(cases));
	assert_int_equal(ns_stats(&f).num_error_cmd, 0);
	expect_idle(&f);
	fixture_close(&f);
}

static void test_timeout(void **state)
{
	struct fixture f;
	struct nvme_sqe sqe, first, second;

	fixture_open(&f, NULL);
	sqe = host_sqe(NVME_CMD_READ, 1, 0, 8, 0);
	host_send(&f, &sqe);
	fake_progress(&f.engine);
	first = mock_take(&f);
	fake_advance_ms(&f.engine, TIMEOUT - 1);
	sqe = host_sqe(NVME_CMD_WRITE, 2, 0, 1, 0);
	host_send(&f, &sqe);
	fake_settle(f.qp);
	second = mock_take(&f);
	expect_no_response(f.qp);
	fake_advance_ms(&f.engine, 1);
	fake_settle(f.qp);
	expect_response(f.qp, 1, NVME_SC_PATH_CONTROLLER); /* no DNR */
	expect_no_response(f.qp);
	assert_int_equal(fake_count_events(IBV_EVENT_NVME_CTRL_TIMEOUT), 1);
	assert_ptr_equal(fake_events[0].object, &f.init);
	/* CID and staging stay reserved */
	assert_int_equal(f.ctrl->free_count, 29);
	assert_int_equal(f.offload->staging.free_pages, f.offload->staging.page_count - 2);
	fake_advance_ms(&f.engine, TIMEOUT);
	fake_settle(f.qp);
	expect_response(f.qp, 2, NVME_SC_PATH_CONTROLLER);
	/* one shot */
	assert_int_equal(fake_count_events(IBV_EVENT_NVME_CTRL_TIMEOUT), 1);
	assert_int_equal(ns_stats(&f).num_backend_error_cmd, 2);
	/* the late CQEs: nothing more to the host, all is free again */
	mock_answer(&f, second.cid, 0);
	mock_answer(&f, first.cid, 0);
	fake_settle(f.qp);
	expect_no_response(f.qp);
	expect_idle(&f);
	fixture_close(&f);
}

static void test_dead(void **state)
{
	for (int how = 0; how < 2; how++) {
		struct nvme_cqe ones, head;
		struct fixture f;
		struct nvme_sqe sqe;

		fixture_open(&f, &(struct fixture_options){ .depth = 4 });
		/* three at the controller, two that wait for it, one that fetches its data */
		for (uint16_t i = 0; i < 5; i++) {
			sqe = host_sqe(NVME_CMD_READ, i, 0, 8, 0);
			host_send(&f, &sqe);
		}
		sqe = host_sqe(NVME_CMD_WRITE, 5, 0, 8, 0);
		host_send(&f, &sqe);
		fake_progress(&f.engine);
		memset(&ones, 0xff, sizeof(ones));
		head = (struct nvme_cqe){ .sqhd = htole16(4), .cid = mock_take(&f).cid };
		mock_answer_raw(&f, how ? &head : &ones);
		/* all ones have the phase bit already */
		fake_settle(f.qp);
		fake_settle(f.qp);
		assert_int_equal(fake_count_events(IBV_EVENT_NVME_CTRL_PCI_ERR), 1);
		assert_ptr_equal(fake_events[0].object, &f.init);
		for (uint16_t i = 0; i < 6; i++)
			expect_response(f.qp, i, NVME_SC_PATH_CONTROLLER);
		/* and later ones */
		sqe = host_sqe(NVME_CMD_FLUSH, 6, 0, 8, 0);
		host_send(&f, &sqe);
		fake_settle(f.qp);
		expect_response(f.qp, 6, NVME_SC_PATH_CONTROLLER);
		assert_int_equal(ns_stats(&f).num_backend_error_cmd, 7);
		assert_int_equal(fake_count_events(IBV_EVENT_NVME_CTRL_PCI_ERR), 1);
		assert_int_equal(fake_count_events(IBV_EVENT_NVME_CTRL_TIMEOUT), 0);
		/* removal gives back what it kept */
		assert_int_equal(offload_unmap(f.ctrl, NSID), 0);
		assert_int_equal(offload_ctrl_remove(f.ctrl), 0);
		f.ctrl = NULL;
		assert_int_equal(f.offload->staging.free_pages, f.offload->staging.page_count);
		fixture_close(&f);
	}
}

/* ---- waits ---------------------------------------------------------------- */

/* staging of one single slot: commands pass through it one by one, in order */
static void test_single_slot(void **state)
{
	struct fixture_options o = { .max_io = 16384, .staging = 16384 };
	struct fixture f;
	struct nvme_sqe sqe;
	uint8_t capsule[64 + 4096];

	fixture_open(&f, &o);
	for (uint16_t i = 0; i < 6; i++) {
		if (i == 3) { /* in-capsule data wait elsewhere */
			sqe = host_sqe(NVME_CMD_WRITE, i, i, 8, 0);
			set_sgl(&sqe, NVME_SGL_OFFSET, 0, 4096, 0);
			memcpy(capsule, &sqe, 64);
			fill(capsule + 64, 4096, 33);
			assert_int_equal(fake_send(f.qp, capsule, sizeof(capsule), 1024),
					 CAPSULE_TAKEN);
			continue;
		}
		sqe = host_sqe(i % 2 ? NVME_CMD_WRITE : NVME_CMD_READ, i, i, 32, 0);
		assert_int_equal(host_send(&f, &sqe), CAPSULE_TAKEN);
	}
	/* a FLUSH needs none */
	sqe = host_sqe(NVME_CMD_FLUSH, 9, 0, 1, 0);
	assert_int_equal(host_send(&f, &sqe), CAPSULE_TAKEN);
	assert_int_equal(srq_stats(&f).waits_staging, 5);
	fake_progress(&f.engine);
	assert_int_equal(mock_pending(&f), 2);
	{
		uint16_t read = mock_take(&f).cid;

		mock_answer(&f, mock_take(&f).cid, 0);
		mock_answer(&f, read, 0);
	}
	fake_settle(f.qp);
	expect_response(f.qp, 9, 0);
	expect_response(f.qp, 0, 0);
	for (uint16_t i = 1; i < 6; i++) {
		struct nvme_sqe got;

		fake_settle(f.qp);
		assert_int_equal(mock_pending(&f), 1);
		got = mock_take(&f);
		assert_int_equal(le32toh(got.cdw10), i);
		if (i == 3) {
			uint8_t want[4096];

			fill(want, 4096, 33);
			assert_memory_equal(prp1(&got), want, 4096);
		}
		mock_answer(&f, got.cid, 0);
		fake_settle(f.qp);
		expect_response(f.qp, i, 0);
	}
	expect_idle(&f);
	fixture_close(&f);
}

/* those that wait for staging time out as well, and make room for smaller ones behind */
static void test_wait_times_out(void **state)
{
	struct fixture_options o = { .max_io = 16384, .staging = 16384 };
	struct fixture f;
	struct nvme_sqe sqe;

	fixture_open(&f, &o);
	sqe = host_sqe(NVME_CMD_READ, 1, 0, 16, 0); /* half of it */
	host_send(&f, &sqe);
	sqe = host_sqe(NVME_CMD_READ, 2, 0, 32, 0); /* all of it: waits */
	host_send(&f, &sqe);
	fake_advance_ms(&f.engine, TIMEOUT / 2);
	sqe = host_sqe(NVME_CMD_READ, 3, 3, 8, 0); /* would fit, but in order */
	host_send(&f, &sqe);
	fake_progress(&f.engine);
	mock_take(&f);
	assert_int_equal(mock_pending(&f), 0);
	fake_advance_ms(&f.engine, TIMEOUT / 2);
	fake_settle(f.qp);
	expect_response(f.qp, 1, NVME_SC_PATH_CONTROLLER);
	expect_response(f.qp, 2, NVME_SC_PATH_CONTROLLER);
	expect_no_response(f.qp);
	assert_int_equal(mock_pending(&f), 1);
	mock_answer(&f, mock_take(&f).cid, 0);
	fake_settle(f.qp);
	expect_response(f.qp, 3, 0);
	fixture_close(&f);
}

/* everything that can wait does: RNR NAK, and nothing is lost when the host comes again */
static void test_rnr(void **state)
{
	struct fixture f;
	struct nvme_sqe sqe;
	unsigned int taken = 0;
	enum capsule_verdict verdict;

	fixture_open(&f, &(struct fixture_options){ .depth = 2 });
	for (;; taken++) {
		sqe = host_sqe(NVME_CMD_READ, (uint16_t)taken, 0, 1, 0);
		verdict = host_send(&f, &sqe);
		if (verdict != CAPSULE_TAKEN)
			break;
		assert_true(taken < 10000);
	}
	assert_int_equal(verdict, CAPSULE_RNR);
	assert_int_equal(taken, 256);
	assert_int_equal(srq_stats(&f).waits_rnr, 1);
	assert_int_equal(sqhd_of(f.qp), 256);
	assert_int_equal(host_send(&f, &sqe), CAPSULE_RNR);
	for (unsigned int i = 0; i < taken; i++) {
		fake_settle(f.qp);
		mock_answer(&f, mock_take(&f).cid, 0);
	}
	fake_settle(f.qp);
	assert_int_equal(f.qp->response_count, taken);
	assert_int_equal(host_send(&f, &sqe), CAPSULE_TAKEN);
	assert_int_equal(sqhd_of(f.qp), 257);
	fake_progress(&f.engine);
	mock_answer(&f, mock_take(&f).cid, 0);
	fake_settle(f.qp);
	expect_idle(&f);
	fixture_close(&f);
}

/* in-capsule data have nowhere to go: RNR NAK at the first packet */
static void test_rnr_capsule_data(void **state)
{
	struct fixture_options o = { .max_io = 4096, .staging = 4096, .ioccsz = 4100 };
	uint8_t *capsule = calloc(1, 64 + 4096);
	struct fixture f;
	struct nvme_sqe sqe;
	unsigned int taken;

	fixture_open(&f, &o);
	sqe = host_sqe(NVME_CMD_WRITE, 1, 0, 8, 0);
	set_sgl(&sqe, NVME_SGL_OFFSET, 0, 4096, 0);
	memcpy(capsule, &sqe, 64);
	for (taken = 0; fake_send(f.qp, capsule, 64 + 4096, 1024) == CAPSULE_TAKEN; taken++)
		assert_true(taken < 1000);
	assert_int_equal(taken, 1 + f.offload->capsule_count);
	assert_int_equal(srq_stats(&f).waits_rnr, 1);
	while (taken--) {
		fake_settle(f.qp);
		mock_answer(&f, mock_take(&f).cid, 0);
	}
	fake_settle(f.qp);
	expect_idle(&f);
	free(capsule);
	fixture_close(&f);
}

/* a hidden lane with room for few: the rest follows in order */
static void test_lane_full(void **state)
{
	for (uint32_t lane = 1; lane < 6; lane++) {
		struct fixture f;
		struct nvme_sqe sqe;

		fixture_open(&f, NULL);
		f.qp->lane = lane;
		for (uint16_t i = 0; i < 12; i++) {
			sqe = host_sqe(i % 3 ? NVME_CMD_READ : NVME_CMD_WRITE, i, i, 1, i * 4096);
			host_send(&f, &sqe);
		}
		for (int i = 0; i < 20; i++) {
			fake_settle(f.qp);
			while (mock_pending(&f)) {
				struct nvme_sqe got = mock_take(&f);

				memset(prp1(&got), (int)le32toh(got.cdw10), 512);
				mock_answer(&f, got.cid, 0);
			}
		}
		assert_int_equal(f.qp->response_count, 12);
		for (uint32_t i = 0; i < 12; i++)
			if (i % 3)
				assert_int_equal(host_memory[i * 4096 + 511], i);
		expect_idle(&f);
		fixture_close(&f);
	}
}

/* every size up to the largest, written and read back; not a byte beside it is touched (N15, N33)
 */
static void test_sizes(void **state)
{
	enum { CANARY = 4096, MAX = 1 << 20 };
	struct fixture_options o = { .soft = true, .max_io = MAX, .staging = 2 * MAX };
	uint8_t *from, *to;
	struct fixture f;
	uint16_t cid = 0;

	fixture_open(&f, &o);
	from = host_memory + CANARY;
	to = host_memory + HOST_MEMORY / 2 + CANARY;
	fill(from, MAX, 5);
	for (uint32_t blocks = 1; blocks <= MAX / LBA; blocks += blocks < 70 ? 1 : 61) {
		uint32_t len = blocks * LBA;
		struct nvme_sqe sqe;

		memset(to - CANARY, 0xcc, len + 2 * CANARY);
		sqe = host_sqe(NVME_CMD_WRITE, ++cid, blocks, blocks, CANARY);
		assert_int_equal(host_send(&f, &sqe), CAPSULE_TAKEN);
		fake_settle(f.qp);
		expect_response(f.qp, cid, 0);
		sqe = host_sqe(NVME_CMD_READ, ++cid, blocks, blocks, HOST_MEMORY / 2 + CANARY);
		assert_int_equal(host_send(&f, &sqe), CAPSULE_TAKEN);
		fake_settle(f.qp);
		expect_response(f.qp, cid, 0);
		assert_memory_equal(from, to, len);
		for (uint32_t i = 0; i < CANARY; i++) {
			assert_int_equal(to[-1 - (int)i], 0xcc);
			assert_int_equal(to[len + i], 0xcc);
		}
	}
	/* one block more */
	{
		struct nvme_sqe sqe = host_sqe(NVME_CMD_READ, ++cid, 0, MAX / LBA + 1, 0);

		assert_int_equal(host_send(&f, &sqe), CAPSULE_TAKEN);
		fake_settle(f.qp);
		expect_response(f.qp, cid, NVME_SC_INVALID_FIELD | DNR);
	}
	/* 32 of the largest at once (N33): staging has room for two */
	for (uint16_t i = 0; i < 32; i++) {
		struct nvme_sqe sqe = host_sqe(i % 2 ? NVME_CMD_READ : NVME_CMD_WRITE, i,
					       i % 4 * 2048U, MAX / LBA, (size_t)(i % 8) * MAX);

		assert_int_equal(host_send(&f, &sqe), CAPSULE_TAKEN);
	}
	for (int i = 0; i < 32; i++)
		fake_settle(f.qp);
	for (int i = 0; i < 32; i++)
		assert_int_equal(fake_response(f.qp)->status, 0);
	expect_idle(&f);
	fixture_close(&f);
}

/* a drive: nobody announces its CQEs, so a timer looks */
static void test_drive_is_polled(void **state)
{
	struct fixture f;
	struct nvme_sqe sqe;

	fixture_open(&f, &(struct fixture_options){ .drive = true });
	assert_int_equal(f.engine.timer_count, 0);
	sqe = host_sqe(NVME_CMD_READ, 1, 0, 1, 0);
	host_send(&f, &sqe);
	fake_progress(&f.engine);
	assert_int_equal(f.engine.timer_count, 1);
	assert_true(f.engine.timer_heap[0]->deadline_ns <= f.engine.now_ns + 1000000);
	for (int i = 0; i < 5; i++) {
		fake_advance_ms(&f.engine, 1);
		assert_true(f.engine.timer_heap[0]->deadline_ns <= f.engine.now_ns + 1000000);
	}
	mock_answer(&f, mock_take(&f).cid, 0);
	fake_advance_ms(&f.engine, 1);
	fake_settle(f.qp);
	expect_response(f.qp, 1, 0);
	fake_advance_ms(&f.engine, 2 * TIMEOUT);
	assert_int_equal(f.engine.timer_count, 0);
	expect_idle(&f);
	fixture_close(&f);
}

/* completions announced from a doorbell that we ring ourselves need no kick; from elsewhere they do
 */
static void test_notify(void **state)
{
	struct fixture f;
	struct nvme_sqe sqe;

	fixture_open(&f, &(struct fixture_options){ .soft = true });
	sqe = host_sqe(NVME_CMD_READ, 1, 0, 1, 0);
	host_send(&f, &sqe);
	fake_progress(&f.engine);
	/* memory: capsule to response in one round */
	assert_memory_equal(fake_order, "WS", 2);
	assert_int_equal(fake_kicks, 0);
	offload_cq_notify(f.offload);
	assert_int_equal(fake_kicks, 1);
	fake_settle(f.qp);
	expect_response(f.qp, 1, 0);
	fixture_close(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_read),
		cmocka_unit_test(test_write),
		cmocka_unit_test(test_flush),
		cmocka_unit_test(test_in_capsule),
		cmocka_unit_test(test_batch),
		cmocka_unit_test(test_depths),
		cmocka_unit_test(test_software),
		cmocka_unit_test(test_disable_in_flight),
		cmocka_unit_test(test_sqhd),
		cmocka_unit_test(test_unknown_nsid),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_capsule_length),
		cmocka_unit_test(test_backend_status),
		cmocka_unit_test(test_timeout),
		cmocka_unit_test(test_dead),
		cmocka_unit_test(test_single_slot),
		cmocka_unit_test(test_wait_times_out),
		cmocka_unit_test(test_rnr),
		cmocka_unit_test(test_rnr_capsule_data),
		cmocka_unit_test(test_lane_full),
		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_drive_is_polled),
		cmocka_unit_test(test_notify),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
