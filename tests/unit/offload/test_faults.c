// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_faults.c: controllers that answer late, twice, out of order, with unknown ids or never; QPs
 * that die in every step; unmap and remove under load. docs/nvmf-offload.md, "What it must
 * withstand".
 */
#include "fixture.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "offload/internal.h"
#include "util/bytes.h"
#include "util/counters.h"

/* ---- hostile completions -------------------------------------------------- */

static void test_unknown_cids(void **state)
{
	struct fixture f;
	struct nvme_sqe sqe;
	uint64_t bad;
	uint16_t cid;

	fixture_open(&f, NULL);
	bad = counter_get(CNT_NVMF_BAD_CQE);
	/* nothing was asked for */
	for (uint32_t i = 0; i < 100; i++) {
		mock_answer(&f, htole16((uint16_t)(i * 2657)), 0);
		fake_progress(&f.engine);
	}
	assert_int_equal(counter_get(CNT_NVMF_BAD_CQE) - bad, 100);
	/* one is: every other id is unknown still */
	sqe = host_sqe(NVME_CMD_READ, 1, 0, 1, 0);
	host_send(&f, &sqe);
	fake_progress(&f.engine);
	cid = le16toh(mock_take(&f).cid);
	for (uint32_t i = 0; i < 65536; i++) {
		if (i == cid)
			continue;
		mock_answer(&f, htole16((uint16_t)i), 0);
		fake_progress(&f.engine);
	}
	assert_int_equal(counter_get(CNT_NVMF_BAD_CQE) - bad, 100 + 65535);
	expect_no_response(f.qp);
	mock_answer(&f, htole16(cid), 0);
	fake_settle(f.qp);
	expect_response(f.qp, 1, 0);
	/* twice */
	mock_answer(&f, htole16(cid), 0);
	fake_settle(f.qp);
	assert_int_equal(counter_get(CNT_NVMF_BAD_CQE) - bad, 100 + 65536);
	expect_no_response(f.qp);
	expect_idle(&f);
	fixture_close(&f);
}

/* a duplicate of an old completion is not taken for the new command in the same slot */
static void test_duplicate_after_reuse(void **state)
{
	struct fixture f;
	struct nvme_sqe sqe;
	uint16_t old, new;

	fixture_open(&f, &(struct fixture_options){ .depth = 2 });
	sqe = host_sqe(NVME_CMD_READ, 1, 0, 1, 0);
	host_send(&f, &sqe);
	fake_progress(&f.engine);
	old = mock_take(&f).cid;
	mock_answer(&f, old, 0);
	fake_settle(f.qp);
	expect_response(f.qp, 1, 0);
	sqe = host_sqe(NVME_CMD_READ, 2, 0, 1, 0);
	host_send(&f, &sqe);
	fake_progress(&f.engine);
	new = mock_take(&f).cid;
	assert_int_not_equal(old, new);
	for (int i = 0; i < 5; i++) {
		mock_answer(&f, old, 0);
		fake_settle(f.qp);
		expect_no_response(f.qp);
	}
	mock_answer(&f, new, 0);
	fake_settle(f.qp);
	expect_response(f.qp, 2, 0);
	expect_idle(&f);
	fixture_close(&f);
}

/* a stale SQ head does not make the queue look emptier than it is */
static void test_stale_sqhd(void **state)
{
	struct fixture f;
	struct nvme_sqe sqe, taken[3];

	fixture_open(&f, &(struct fixture_options){ .depth = 4 });
	for (uint16_t i = 0; i < 3; i++) {
		sqe = host_sqe(NVME_CMD_FLUSH, i, 0, 1, 0);
		host_send(&f, &sqe);
	}
	fake_progress(&f.engine);
	for (int i = 0; i < 3; i++)
		taken[i] = mock_take(&f);
	mock_answer(&f, taken[0].cid, 0); /* head 3 */
	fake_settle(f.qp);
	f.sq_head = 1; /* goes back */
	mock_answer(&f, taken[1].cid, 0);
	f.sq_head = 3;
	fake_settle(f.qp);
	assert_int_equal(f.ctrl->sq.head, 3);
	mock_answer(&f, taken[2].cid, 0);
	fake_settle(f.qp);
	assert_int_equal(f.qp->response_count, 3);
	expect_idle(&f);
	fixture_close(&f);
}

/* more CQEs than anyone asked for, round and round: no endless loop, nothing lost */
static void test_flood(void **state)
{
	struct fixture f;
	struct nvme_sqe sqe;

	fixture_open(&f, &(struct fixture_options){ .depth = 8 });
	for (int round = 0; round < 50; round++) {
		uint16_t cid;

		sqe = host_sqe(NVME_CMD_READ, (uint16_t)round, 0, 1, 0);
		host_send(&f, &sqe);
		fake_progress(&f.engine);
		cid = mock_take(&f).cid;
		for (int i = 0; i < 7; i++)
			mock_answer(&f, i == 3 ? cid : htole16((uint16_t)(0x7000 + i)), 0);
		fake_settle(f.qp);
		expect_response(f.qp, (uint16_t)round, 0);
	}
	expect_idle(&f);
	fixture_close(&f);
}

/* a controller that never answers, at every depth: all time out, then removal */
static void test_never(void **state)
{
	for (uint32_t depth = 2; depth < 8; depth++) {
		struct fixture f;
		struct nvme_sqe sqe;

		fixture_open(&f, &(struct fixture_options){ .depth = depth });
		for (uint16_t i = 0; i < 10; i++) {
			sqe = host_sqe(i % 2 ? NVME_CMD_READ : NVME_CMD_WRITE, i, 0, 8, 0);
			host_send(&f, &sqe);
			fake_settle(f.qp);
		}
		fake_advance_ms(&f.engine, TIMEOUT);
		fake_settle(f.qp);
		assert_int_equal(f.qp->response_count, 10);
		for (uint16_t i = 0; i < 10; i++)
			assert_int_equal(le16toh(f.qp->responses[i].status),
					 NVME_SC_PATH_CONTROLLER << 1);
		assert_int_equal(f.ctrl->free_count, depth - 1 > 10 ? depth - 11 : 0);
		assert_int_equal(offload_unmap(f.ctrl, NSID), 0);
		assert_int_equal(offload_ctrl_remove(f.ctrl), 0);
		f.ctrl = NULL;
		assert_int_equal(f.offload->staging.free_pages, f.offload->staging.page_count);
		fixture_close(&f);
	}
}

/* ---- a QP that dies ------------------------------------------------------- */

enum step {
	STEP_RECEIVING,
	STEP_WAIT_STAGING,
	STEP_READ_POSTED,
	STEP_READ_WAITS, /* for room in the lane */
	STEP_WAIT_SQ,
	STEP_BACKEND,
	STEP_BACKEND_TIMED_OUT,
	STEP_WRITE_POSTED,
	STEP_WRITE_ACKED,
	STEP_RESPONSE_WAITS,
	STEP_COUNT
};

static struct hca_qp *other_qp(struct fixture *f)
{
	struct hca_qp *qp = calloc(1, sizeof(*qp));

	fake_qp_init(qp, &f->ctx, &f->srq, 99);
	assert_int_equal(offload_qp_modify(qp, 1), 0);
	return qp;
}

/* bring one command of f->qp to @step. @other has what blocks it */
static void reach(struct fixture *f, struct hca_qp *other, enum step step)
{
	struct nvme_sqe sqe = host_sqe(NVME_CMD_READ, 77, 0, 32, 0);
	struct nvme_sqe blocker = host_sqe(NVME_CMD_READ, 1, 0, 32, 32768);
	uint8_t capsule[64 + 4096] = { 0 };
	struct packet p = { .psn = 1, .payload = capsule, .payload_len = 1024 };

	switch (step) {
	case STEP_RECEIVING:
		sqe = host_sqe(NVME_CMD_WRITE, 77, 0, 8, 0);
		set_sgl(&sqe, NVME_SGL_OFFSET, 0, 4096, 0);
		memcpy(capsule, &sqe, 64);
		p.flags = OPF_START | OPF_SEND;
		assert_int_equal(offload_capsule_ops.first(f->qp, &p), CAPSULE_TAKEN);
		return;
	case STEP_WAIT_STAGING: /* staging holds one of these */
		assert_int_equal(fake_send(other, &blocker, 64, 4096), CAPSULE_TAKEN);
		host_send(f, &sqe);
		fake_progress(&f->engine);
		assert_false(list_empty(&f->offload->wait_staging));
		return;
	case STEP_READ_POSTED:
	case STEP_READ_WAITS:
		if (step == STEP_READ_WAITS)
			f->qp->lane = 0;
		sqe = host_sqe(NVME_CMD_WRITE, 77, 0, 8, 0);
		host_send(f, &sqe);
		fake_progress(&f->engine);
		assert_int_equal(fake_outstanding(f->qp), step == STEP_READ_POSTED);
		return;
	case STEP_WAIT_SQ:
		blocker = host_sqe(NVME_CMD_FLUSH, 1, 0, 1, 0);
		for (uint32_t i = 0; i < f->attrs.nvme_queue_depth - 1; i++)
			fake_send(other, &blocker, 64, 4096);
		host_send(f, &sqe);
		fake_progress(&f->engine);
		assert_false(list_empty(&f->ctrl->wait_sq));
		return;
	default:
		break;
	}
	if (step == STEP_RESPONSE_WAITS)
		f->qp->lane = 1;
	host_send(f, &sqe);
	fake_progress(&f->engine);
	if (step == STEP_BACKEND)
		return;
	if (step == STEP_BACKEND_TIMED_OUT) {
		fake_advance_ms(&f->engine, TIMEOUT);
		assert_int_equal(fake_outstanding(f->qp), 1);
		return;
	}
	mock_answer(f, mock_take(f).cid, 0);
	fake_progress(&f->engine);
	assert_int_equal(fake_outstanding(f->qp), step == STEP_RESPONSE_WAITS ? 1 : 2);
	if (step == STEP_WRITE_ACKED)
		fake_complete(f->qp);
}

static void answer_all(struct fixture *f, struct hca_qp *other)
{
	for (int i = 0; i < 10; i++) {
		while (mock_pending(f))
			mock_answer(f, mock_take(f).cid, 0);
		fake_settle(other);
	}
}

static void die_at(enum step step, bool destroyed, bool again)
{
	struct fixture_options o = { .max_io = 16384, .staging = 16384, .depth = 4 };
	bool at_backend = step == STEP_BACKEND;
	struct hca_qp *other;
	struct fixture f;

	fixture_open(&f, &o);
	other = other_qp(&f);
	reach(&f, other, step);
	if (destroyed) {
		fake_qp_reset(f.qp);
		assert_null(f.qp->capsule_state);
		assert_int_equal(fake_count_events(IBV_EVENT_NVMF_QP_ERR), 0);
		memset(f.qp, 0xa5, sizeof(*f.qp)); /* nobody looks at it any more */
	} else {
		fake_qp_error(f.qp);
		assert_int_equal(fake_count_events(IBV_EVENT_NVMF_QP_ERR), 1);
		/* the controller still has its command: the last CQE is to come */
		assert_int_equal(fake_count_events(IBV_EVENT_NVMF_QP_LAST_CQE_REACHED),
				 !at_backend);
	}
	if (at_backend) {
		/* its CID and staging are kept until then */
		assert_int_equal(f.ctrl->free_count, 2);
		assert_int_equal(f.offload->staging.free_pages, 0);
	}
	if (again && !destroyed) {
		/* ERR, then RESET while the backend works: no event on a QP that starts anew */
		fake_qp_reset(f.qp);
		fake_qp_init(f.qp, &f.ctx, &f.srq, 5);
		assert_int_equal(offload_qp_modify(f.qp, 1), 0);
	}
	if (step == STEP_BACKEND_TIMED_OUT)
		mock_take(&f); /* answered below as the late one */
	if (step == STEP_BACKEND_TIMED_OUT)
		f.sq_head = 0;
	answer_all(&f, other);
	if (!destroyed && !again) {
		assert_int_equal(fake_count_events(IBV_EVENT_NVMF_QP_LAST_CQE_REACHED), 1);
		assert_ptr_equal(fake_events[fake_event_count - 1].object, f.qp);
	}
	if (again && at_backend)
		assert_int_equal(fake_count_events(IBV_EVENT_NVMF_QP_LAST_CQE_REACHED), 0);
	expect_idle(&f);
	/* the others go on */
	{
		struct nvme_sqe sqe = host_sqe(NVME_CMD_READ, 1234, 0, 32, 0);
		uint32_t before = other->response_count;

		fake_send(other, &sqe, 64, 4096);
		fake_progress(&f.engine);
		answer_all(&f, other);
		assert_int_equal(other->response_count, before + 1);
	}
	if (destroyed) {
		free(f.qp);
		f.qp = NULL;
	}
	fake_qp_reset(other);
	free(other);
	fixture_close(&f);
}

static void test_qp_error(void **state)
{
	for (enum step step = 0; step < STEP_COUNT; step++)
		die_at(step, false, false);
}

static void test_qp_destroyed(void **state)
{
	for (enum step step = 0; step < STEP_COUNT; step++)
		die_at(step, true, false);
}

static void test_qp_reused(void **state)
{
	for (enum step step = 0; step < STEP_COUNT; step++)
		die_at(step, false, true);
}

/* the READ or WRITE itself fails: done with an error comes before or after qp_down */
static void test_rdma_fails_first(void **state)
{
	struct fixture f;
	struct nvme_sqe sqe;
	struct hidden_wr *wr;

	fixture_open(&f, NULL);
	sqe = host_sqe(NVME_CMD_WRITE, 1, 0, 8, 0);
	host_send(&f, &sqe);
	fake_progress(&f.engine);
	wr = f.qp->posted[f.qp->head++ % MAX_POSTED];
	wr->done(wr, f.qp, IBV_WC_REM_ACCESS_ERR);
	fake_qp_error(f.qp);
	assert_int_equal(fake_count_events(IBV_EVENT_NVMF_QP_ERR), 1);
	assert_int_equal(fake_count_events(IBV_EVENT_NVMF_QP_LAST_CQE_REACHED), 1);
	fake_settle(f.qp);
	assert_int_equal(mock_pending(&f), 0); /* no data: nothing was written */
	expect_idle(&f);
	fixture_close(&f);
}

/* the QP leaves RTS between the answer and its posting */
static void test_not_connected(void **state)
{
	struct fixture f;
	struct nvme_sqe sqe;

	fixture_open(&f, NULL);
	for (uint16_t i = 0; i < 4; i++) {
		sqe = host_sqe(i % 2 ? NVME_CMD_READ : NVME_CMD_FLUSH, i, 0, 8, 0);
		host_send(&f, &sqe);
	}
	fake_progress(&f.engine);
	while (mock_pending(&f))
		mock_answer(&f, mock_take(&f).cid, 0);
	f.qp->state = IBV_QPS_SQD;
	fake_progress(&f.engine);
	expect_idle(&f);
	fake_qp_error(f.qp);
	assert_int_equal(fake_count_events(IBV_EVENT_NVMF_QP_LAST_CQE_REACHED), 1);
	fixture_close(&f);
}

/* a QP without offload says nothing */
static void test_plain_qp(void **state)
{
	struct fixture f;

	fixture_open(&f, NULL);
	assert_int_equal(offload_qp_modify(f.qp, 0), 0);
	fake_qp_error(f.qp);
	assert_int_equal(fake_event_count, 0);
	fixture_close(&f);
}

/* ---- unmap and remove under load ------------------------------------------ */

/* the engine's progress during unmap answers what is in flight */
static bool answering_poll(struct engine_poller *poller);
static struct fixture *answering;
static struct engine_poller answerer = { .poll = answering_poll };
static unsigned int answer_after;

static bool answering_poll(struct engine_poller *poller)
{
	if (answer_after && --answer_after)
		return false;
	while (mock_pending(answering))
		mock_answer(answering, mock_take(answering).cid, 0);
	while (fake_complete(answering->qp))
		;
	return false;
}

static void test_unmap_waits(void **state)
{
	struct fixture f;
	struct nvme_sqe sqe;

	fixture_open(&f, &(struct fixture_options){ .depth = 4 });
	for (uint16_t i = 0; i < 10; i++) {
		sqe = host_sqe(i % 2 ? NVME_CMD_READ : NVME_CMD_WRITE, i, 0, 8, 0);
		host_send(&f, &sqe);
	}
	answering = &f;
	answer_after = 20;
	engine_add_poller(&f.engine, &answerer);
	assert_int_equal(offload_unmap(f.ctrl, NSID), 0);
	engine_remove_poller(&f.engine, &answerer);
	fake_settle(f.qp);
	for (int i = 0; i < 10; i++)
		assert_int_equal(fake_response(f.qp)->status, 0);
	/* later ones */
	sqe = host_sqe(NVME_CMD_READ, 11, 0, 8, 0);
	host_send(&f, &sqe);
	fake_settle(f.qp);
	expect_response(f.qp, 11, NVME_SC_INVALID_NAMESPACE | DNR);
	assert_int_equal(offload_ctrl_remove(f.ctrl), 0);
	f.ctrl = NULL;
	fixture_close(&f);
}

/* a controller that does not answer: unmap is bounded by the timeout */
static void test_unmap_bounded(void **state)
{
	struct fixture f;
	struct nvme_sqe sqe;

	fixture_open(&f, &(struct fixture_options){ .depth = 2 });
	for (uint16_t i = 0; i < 3; i++) {
		sqe = host_sqe(NVME_CMD_READ, i, 0, 8, 0);
		host_send(&f, &sqe);
	}
	assert_int_equal(offload_unmap(f.ctrl, NSID), 0);
	fake_settle(f.qp);
	for (int i = 0; i < 3; i++)
		assert_int_equal(le16toh(fake_response(f.qp)->status),
				 NVME_SC_PATH_CONTROLLER << 1);
	assert_int_equal(offload_ctrl_remove(f.ctrl), 0);
	f.ctrl = NULL;
	assert_int_equal(f.offload->staging.free_pages, f.offload->staging.page_count);
	fixture_close(&f);
}

/* a host that neither sends its data nor fails does not hold up unmap; it finds no namespace */
static void test_unmap_stalled_host(void **state)
{
	struct fixture f;
	struct nvme_sqe sqe;
	uint8_t capsule[64 + 4096] = { 0 };
	struct packet p = { .psn = 1, .payload = capsule, .payload_len = 1024 };

	fixture_open(&f, NULL);
	sqe = host_sqe(NVME_CMD_WRITE, 1, 0, 8, 0);
	host_send(&f, &sqe);
	sqe = host_sqe(NVME_CMD_WRITE, 2, 0, 8, 0);
	set_sgl(&sqe, NVME_SGL_OFFSET, 0, 4096, 0);
	memcpy(capsule, &sqe, 64);
	p.flags = OPF_START | OPF_SEND;
	assert_int_equal(offload_capsule_ops.first(f.qp, &p), CAPSULE_TAKEN);
	assert_int_equal(offload_unmap(f.ctrl, NSID), 0);
	assert_int_equal(offload_ctrl_remove(f.ctrl), 0);
	f.ctrl = NULL;
	/* now they go on */
	fake_settle(f.qp);
	expect_response(f.qp, 1, NVME_SC_INVALID_NAMESPACE | DNR);
	p.payload_len = 4096 + 64 - 1024;
	p.flags = OPF_END | OPF_SEND;
	assert_int_equal(offload_capsule_ops.next(f.qp, &p), CAPSULE_TAKEN);
	fake_settle(f.qp);
	expect_response(f.qp, 2, NVME_SC_INVALID_NAMESPACE | DNR);
	assert_int_equal(mock_pending(&f), 0);
	assert_int_equal(f.offload->staging.free_pages, f.offload->staging.page_count);
	fixture_close(&f);
}

/* mapped again on another controller while the old commands' answers are still on their way */
static void test_remap(void **state)
{
	struct fixture f;
	struct nvme_sqe sqe;

	fixture_open(&f, NULL);
	for (uint16_t i = 0; i < 20; i++) {
		sqe = host_sqe(NVME_CMD_READ, i, 0, 8, 0);
		host_send(&f, &sqe);
		fake_progress(&f.engine);
		mock_answer(&f, mock_take(&f).cid, 0);
		fake_progress(&f.engine);
		assert_int_equal(offload_unmap(f.ctrl, NSID), 0);
		assert_int_equal(offload_map(f.ctrl, NSID, LBA, NVME_NS), 0);
	}
	fake_settle(f.qp);
	assert_int_equal(f.qp->response_count, 20);
	expect_idle(&f);
	fixture_close(&f);
}

/* a queue pair that was in use before: the phase is read off the ring */
static void test_used_queue(void **state)
{
	for (uint16_t served = 0; served < 20; served++) {
		uint64_t bad = counter_get(CNT_NVMF_BAD_CQE);
		struct fixture f;
		struct nvme_sqe sqe;

		fixture_open(&f, &(struct fixture_options){ .depth = 4 });
		for (uint16_t i = 0; i < served; i++) {
			sqe = host_sqe(NVME_CMD_FLUSH, i, 0, 1, 0);
			host_send(&f, &sqe);
			fake_progress(&f.engine);
			mock_answer(&f, mock_take(&f).cid, NVME_SC_INTERNAL);
			fake_settle(f.qp);
		}
		assert_int_equal(offload_unmap(f.ctrl, NSID), 0);
		assert_int_equal(offload_ctrl_remove(f.ctrl), 0);
		f.init.sqdb_ini = (uint16_t)le32toh(f.doorbells[0]);
		f.init.cqdb_ini = (uint16_t)le32toh(f.doorbells[1]);
		assert_int_equal(offload_ctrl_create(&f.ctrl, f.offload, &f.init), 0);
		assert_int_equal(offload_map(f.ctrl, NSID, LBA, NVME_NS), 0);
		fake_settle(f.qp);
		assert_int_equal(f.qp->response_count, served);
		sqe = host_sqe(NVME_CMD_FLUSH, 7, 0, 1, 0);
		host_send(&f, &sqe);
		fake_progress(&f.engine);
		mock_answer(&f, mock_take(&f).cid, 0);
		fake_settle(f.qp);
		assert_int_equal(f.qp->response_count, served + 1);
		assert_int_equal(counter_get(CNT_NVMF_BAD_CQE), bad);
		expect_idle(&f);
		fixture_close(&f);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_unknown_cids),
		cmocka_unit_test(test_duplicate_after_reuse),
		cmocka_unit_test(test_stale_sqhd),
		cmocka_unit_test(test_flood),
		cmocka_unit_test(test_never),
		cmocka_unit_test(test_qp_error),
		cmocka_unit_test(test_qp_destroyed),
		cmocka_unit_test(test_qp_reused),
		cmocka_unit_test(test_rdma_fails_first),
		cmocka_unit_test(test_not_connected),
		cmocka_unit_test(test_plain_qp),
		cmocka_unit_test(test_unmap_waits),
		cmocka_unit_test(test_unmap_bounded),
		cmocka_unit_test(test_unmap_stalled_host),
		cmocka_unit_test(test_remap),
		cmocka_unit_test(test_used_queue),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
