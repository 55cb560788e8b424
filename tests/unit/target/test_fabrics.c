// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_fabrics.c: Connect, Property Get and Set, the controller's life, KATO.
 */
#include "fixture.h"

#define SQE_IPO(field)	offsetof(struct nvmf_connect_sqe, field)
#define DATA_IPO(field) (offsetof(struct nvmf_connect_data, field) | NVMF_CONNECT_IPO_IN_DATA)

static uint64_t now_ns;

static uint64_t fake_clock(void)
{
	return now_ns;
}

static void test_connect_admin(void **state)
{
	struct nvmf_connect_data data = connect_data(NQN_A, HOST_A, NVMF_CNTLID_DYNAMIC);
	struct nvmf_connect_sqe sqe = connect_sqe(0);
	struct test_queue *tq = new_queue(0);
	uint32_t dw0;

	assert_int_equal(do_connect(tq, &sqe, &data, &dw0), NVME_SC_SUCCESS);
	assert_int_equal(dw0, 1);
	assert_int_equal(tq->connects, 1);
	assert_int_equal(tq->queue.sqsize, 31);
	assert_int_equal(tq->queue.ctrl->kato_ms, 5000);
	/* only once */
	assert_int_equal(do_connect(tq, &sqe, &data, &dw0), NVME_SC_COMMAND_SEQUENCE | DNR);
	free_queue(tq);
	assert_true(list_empty(&target.controllers));
	/* the next controller has another id */
	tq = new_queue(0);
	assert_int_equal(do_connect(tq, &sqe, &data, &dw0), NVME_SC_SUCCESS);
	assert_int_equal(dw0, 2);
	free_queue(tq);
}

static void test_commands_before_connect(void **state)
{
	struct nvme_sqe sqes[] = {
		sqe_of(NVME_ADMIN_IDENTIFY, 0, 1, 0, 0),
		sqe_of(NVME_CMD_READ, 1, 0, 0, 0),
		sqe_of(NVME_CMD_FABRICS, NVME_FABRICS_PROPERTY_GET, 0, 0, 0),
		sqe_of(NVME_ADMIN_KEEP_ALIVE, 0, 0, 0, 0),
	};
	struct test_queue *tq = new_queue(0);
	uint8_t data[4096];
	struct command cmd;

	for (size_t i = 0; i < ARRAY_SIZE(sqes); i++)
		assert_int_equal(run(tq, &cmd, &sqes[i], data, sizeof(data)),
				 NVME_SC_COMMAND_SEQUENCE | DNR);
	free_queue(tq);
}

enum { SET_NOTHING, SET_RECFMT, SET_QID, SET_SQSIZE };

static void test_connect_admin_refused(void **state)
{
	static const struct {
		const char *subnqn, *hostnqn;
		uint16_t cntlid;
		int field, value;
		uint16_t status;
		uint32_t dw0;
	} rows[] = {
		{ NQN_A, HOST_A, 0xffff, SET_RECFMT, 1, NVME_SC_CONNECT_FORMAT, 0 },
		{ NQN_A, HOST_A, 0xffff, SET_QID, 1, NVME_SC_CONNECT_INVALID, SQE_IPO(qid) },
		{ NQN_A, HOST_A, 0xffff, SET_SQSIZE, 0, NVME_SC_CONNECT_INVALID, SQE_IPO(sqsize) },
		{ NQN_A, HOST_A, 0xffff, SET_SQSIZE, 128, NVME_SC_CONNECT_INVALID,
		  SQE_IPO(sqsize) },
		{ "nqn.x:no", HOST_A, 0xffff, SET_NOTHING, 0, NVME_SC_CONNECT_INVALID,
		  DATA_IPO(subnqn) },
		{ NQN_A, "", 0xffff, SET_NOTHING, 0, NVME_SC_CONNECT_INVALID, DATA_IPO(hostnqn) },
		{ NQN_A, HOST_A, 1, SET_NOTHING, 0, NVME_SC_CONNECT_INVALID, DATA_IPO(cntlid) },
		{ NQN_B, HOST_A, 0xffff, SET_NOTHING, 0, NVME_SC_CONNECT_HOST, 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct nvmf_connect_data data =
			connect_data(rows[i].subnqn, rows[i].hostnqn, rows[i].cntlid);
		struct nvmf_connect_sqe sqe = connect_sqe(0);
		struct test_queue *tq = new_queue(0);
		uint32_t dw0;

		if (rows[i].field == SET_RECFMT)
			sqe.recfmt = htole16(rows[i].value);
		if (rows[i].field == SET_QID)
			sqe.qid = htole16(rows[i].value);
		if (rows[i].field == SET_SQSIZE)
			sqe.sqsize = htole16(rows[i].value);
		assert_int_equal(do_connect(tq, &sqe, &data, &dw0), rows[i].status | DNR);
		assert_int_equal(dw0, rows[i].dw0);
		assert_null(tq->queue.ctrl);
		assert_int_equal(tq->connects, 0);
		free_queue(tq);
	}
	assert_true(list_empty(&target.controllers));
}

/* names without an end, a queue larger than the CM request said, a port without the subsystem */
static void test_connect_hostile_data(void **state)
{
	struct nvmf_connect_data data = connect_data(NQN_A, HOST_A, NVMF_CNTLID_DYNAMIC);
	struct nvmf_connect_sqe sqe = connect_sqe(0);
	struct test_queue *tq = new_queue(0);
	uint32_t dw0;

	memset(data.subnqn, 'a', sizeof(data.subnqn));
	assert_int_equal(do_connect(tq, &sqe, &data, &dw0), NVME_SC_CONNECT_INVALID | DNR);
	assert_int_equal(dw0, DATA_IPO(subnqn));
	data = connect_data(NQN_A, HOST_A, NVMF_CNTLID_DYNAMIC);
	memset(data.hostnqn, 'a', sizeof(data.hostnqn));
	assert_int_equal(do_connect(tq, &sqe, &data, &dw0), NVME_SC_CONNECT_INVALID | DNR);
	assert_int_equal(dw0, DATA_IPO(hostnqn));
	data = connect_data(NQN_A, HOST_A, NVMF_CNTLID_DYNAMIC);
	tq->queue.cm_entries = 30;
	assert_int_equal(do_connect(tq, &sqe, &data, &dw0), NVME_SC_CONNECT_INVALID | DNR);
	assert_int_equal(dw0, SQE_IPO(sqsize));
	tq->queue.cm_entries = 127;
	tq->queue.port = wildcard_port; /* offers B only */
	assert_int_equal(do_connect(tq, &sqe, &data, &dw0), NVME_SC_CONNECT_INVALID | DNR);
	assert_int_equal(dw0, DATA_IPO(subnqn));
	free_queue(tq);
}

static void test_connect_io(void **state)
{
	struct test_queue *admin = new_admin(NQN_A, HOST_A), *io, *twin;
	uint16_t cntlid = admin->queue.ctrl->cntlid;
	struct nvmf_connect_data good = connect_data(NQN_A, HOST_A, cntlid), data;
	struct nvme_sqe set = sqe_of(NVME_ADMIN_SET_FEATURES, 0, NVME_FEAT_QUEUES, 0x00070007, 0);
	struct nvmf_connect_sqe sqe = connect_sqe(1);
	struct command cmd;
	uint32_t dw0;

	io = new_queue(1);
	/* no queues were granted yet */
	assert_int_equal(do_connect(io, &sqe, &good, &dw0), NVME_SC_CONNECT_INVALID | DNR);
	assert_int_equal(dw0, SQE_IPO(qid));
	assert_int_equal(run(admin, &cmd, &set, NULL, 0), 0);
	assert_int_equal(cmd.dw0, 0x00030003); /* 8 wanted, qid_max is 4 */
	/* another host name, id, subsystem, controller (situation N5) */
	data = connect_data(NQN_A, HOST_B, cntlid);
	assert_int_equal(do_connect(io, &sqe, &data, &dw0), NVME_SC_CONNECT_INVALID | DNR);
	assert_int_equal(dw0, DATA_IPO(hostnqn));
	data = good;
	data.hostid[0] ^= 1;
	assert_int_equal(do_connect(io, &sqe, &data, &dw0), NVME_SC_CONNECT_INVALID | DNR);
	assert_int_equal(dw0, DATA_IPO(hostid));
	data = connect_data(NQN_B, HOST_B, cntlid);
	assert_int_equal(do_connect(io, &sqe, &data, &dw0), NVME_SC_CONNECT_INVALID | DNR);
	assert_int_equal(dw0, DATA_IPO(cntlid));
	data = connect_data(NQN_A, HOST_A, (uint16_t)(cntlid + 1));
	assert_int_equal(do_connect(io, &sqe, &data, &dw0), NVME_SC_CONNECT_INVALID | DNR);
	assert_int_equal(dw0, DATA_IPO(cntlid));
	assert_int_equal(do_connect(io, &sqe, &good, &dw0), NVME_SC_SUCCESS);
	assert_int_equal(dw0, cntlid);
	/* the same queue again; one above what was granted */
	twin = new_queue(1);
	assert_int_equal(do_connect(twin, &sqe, &good, &dw0), NVME_SC_CONNECT_INVALID | DNR);
	assert_int_equal(dw0, SQE_IPO(qid));
	free_queue(twin);
	twin = new_queue(5);
	sqe = connect_sqe(5);
	assert_int_equal(do_connect(twin, &sqe, &good, &dw0), NVME_SC_CONNECT_INVALID | DNR);
	free_queue(twin);
	/* queues exist: their number cannot be changed */
	assert_int_equal(run(admin, &cmd, &set, NULL, 0), NVME_SC_COMMAND_SEQUENCE | DNR);
	/* the queue comes back after its connection has gone */
	free_queue(io);
	io = new_io(admin, 1);
	/* the admin queue's end takes the I/O queues along */
	free_queue(admin);
	assert_int_equal(io->shut_down, 1);
	assert_null(io->queue.ctrl);
	free_queue(io);
}

static void test_connect_io_needs_an_enabled_controller(void **state)
{
	struct test_queue *admin = new_admin(NQN_A, HOST_A), *io = new_io(admin, 1);
	struct nvmf_connect_data data = connect_data(NQN_A, HOST_A, admin->queue.ctrl->cntlid);
	struct nvmf_connect_sqe sqe = connect_sqe(1);
	struct test_queue *late = new_queue(1);
	uint32_t dw0;

	assert_int_equal(property_set_cc(admin, CC_ENABLED & ~1U), 0);
	assert_int_equal(io->shut_down, 1);
	assert_int_equal(do_connect(late, &sqe, &data, &dw0), NVME_SC_CONNECT_INVALID | DNR);
	assert_int_equal(dw0, SQE_IPO(qid));
	free_queue(late);
	free_queue(io);
	free_queue(admin);
}

static void test_discovery_has_no_io_queues(void **state)
{
	struct test_queue *admin = new_admin(NVMF_DISCOVERY_NQN, HOST_A), *io = new_queue(1);
	struct nvmf_connect_data data =
		connect_data(NVMF_DISCOVERY_NQN, HOST_A, admin->queue.ctrl->cntlid);
	struct nvmf_connect_sqe sqe = connect_sqe(1);
	uint32_t dw0;

	assert_int_equal(do_connect(io, &sqe, &data, &dw0), NVME_SC_CONNECT_INVALID | DNR);
	assert_int_equal(dw0, SQE_IPO(qid));
	free_queue(io);
	free_queue(admin);
}

static void test_properties(void **state)
{
	static const struct {
		uint32_t offset;
		bool wide;
		uint16_t status;
		uint64_t value;
	} rows[] = {
		{ NVME_REG_CAP, true, 0, 0x000000201e01007fULL },
		{ NVME_REG_CAP, false, NVME_SC_INVALID_FIELD | DNR, 0 },
		{ NVME_REG_VS, false, 0, 0x00010400 },
		{ NVME_REG_VS, true, NVME_SC_INVALID_FIELD | DNR, 0 },
		{ NVME_REG_CC, false, 0, CC_ENABLED },
		{ NVME_REG_CSTS, false, 0, NVME_CSTS_RDY },
		{ NVME_REG_NSSR, false, NVME_SC_INVALID_FIELD | DNR, 0 },
		{ NVME_REG_CRTO, false, NVME_SC_INVALID_FIELD | DNR, 0 },
		{ 0xffffffff, false, NVME_SC_INVALID_FIELD | DNR, 0 },
	};
	struct test_queue *admin = new_admin(NQN_A, HOST_A), *io = new_io(admin, 1);
	uint16_t status;
	uint64_t value;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		value = property_get(admin, rows[i].offset, rows[i].wide, &status);
		assert_int_equal(status, rows[i].status);
		if (!status)
			assert_int_equal(value, rows[i].value);
	}
	property_get(io, NVME_REG_VS, false, &status);
	assert_int_equal(status, NVME_SC_INVALID_OPCODE | DNR);
	free_queue(io);
	free_queue(admin);
}

static void test_cc_and_csts(void **state)
{
	static const struct {
		uint32_t cc, csts;
	} rows[] = {
		{ 0x00460000, 0 },
		{ 0x00460001, NVME_CSTS_RDY },
		{ 0x00460001 | NVME_CC_SHN_NORMAL, NVME_CSTS_RDY | NVME_CSTS_SHST_COMPLETE },
		{ 0x00460000, 0 },
		{ 0x00460061, NVME_CSTS_CFS }, /* CSS 6 was not offered */
		{ 0x00460000, 0 },
		{ 0x00460081, NVME_CSTS_CFS }, /* MPS */
		{ 0x00460000, 0 },
		{ 0x00450001, NVME_CSTS_CFS }, /* IOSQES 5 */
		{ 0x00460000, 0 },
		{ 0x00460801, NVME_CSTS_CFS }, /* AMS */
		{ 0x00460000, 0 },
		{ 0x00460001, NVME_CSTS_RDY },
	};
	struct test_queue *admin = new_admin(NQN_A, HOST_A);
	uint16_t status;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		assert_int_equal(property_set_cc(admin, rows[i].cc), 0);
		assert_int_equal(property_get(admin, NVME_REG_CSTS, false, &status), rows[i].csts);
		assert_int_equal(property_get(admin, NVME_REG_CC, false, &status), rows[i].cc);
	}
	free_queue(admin);
	/* discovery: entry sizes may be 0 */
	admin = new_admin(NVMF_DISCOVERY_NQN, HOST_A);
	property_set_cc(admin, 0);
	property_set_cc(admin, 1);
	assert_int_equal(property_get(admin, NVME_REG_CSTS, false, &status), NVME_CSTS_RDY);
	free_queue(admin);
}

static void test_unknown_fabrics_commands(void **state)
{
	static const uint8_t types[] = { NVME_FABRICS_AUTH_SEND, NVME_FABRICS_AUTH_RECEIVE,
					 NVME_FABRICS_DISCONNECT, 0x02, 0xff };
	struct test_queue *admin = new_admin(NQN_A, HOST_A);
	struct command cmd;

	for (size_t i = 0; i < sizeof(types); i++) {
		struct nvme_sqe sqe = sqe_of(NVME_CMD_FABRICS, types[i], 0, 0, 0);

		assert_int_equal(run(admin, &cmd, &sqe, NULL, 0), NVME_SC_INVALID_OPCODE | DNR);
	}
	free_queue(admin);
}

static void test_kato(void **state)
{
	struct test_queue *admin, *io;
	struct command cmd;
	struct nvme_sqe alive = sqe_of(NVME_ADMIN_KEEP_ALIVE, 0, 0, 0, 0);

	now_ns = NSEC_PER_SEC;
	clock_set_source(fake_clock);
	admin = new_admin(NQN_A, HOST_A); /* 5 s */
	io = new_io(admin, 1);
	now_ns += 5 * NSEC_PER_SEC;
	target_check_kato(&target, now_ns);
	assert_int_equal(admin->shut_down, 0);
	assert_int_equal(run(admin, &cmd, &alive, NULL, 0), 0);
	now_ns += 5900 * NSEC_PER_MSEC;
	target_check_kato(&target, now_ns);
	assert_int_equal(admin->shut_down, 0);
	now_ns += 200 * NSEC_PER_MSEC;
	target_check_kato(&target, now_ns);
	assert_int_equal(admin->shut_down, 1);
	assert_int_equal(io->shut_down, 1);
	assert_true(list_empty(&target.controllers));
	free_queue(io);
	free_queue(admin);
}

static void test_kato_zero_never_expires(void **state)
{
	struct nvmf_connect_data data =
		connect_data(NVMF_DISCOVERY_NQN, HOST_A, NVMF_CNTLID_DYNAMIC);
	struct nvmf_connect_sqe sqe = connect_sqe(0);
	struct test_queue *tq = new_queue(0);

	now_ns = NSEC_PER_SEC;
	clock_set_source(fake_clock);
	sqe.kato = 0;
	assert_int_equal(do_connect(tq, &sqe, &data, NULL), 0);
	now_ns += 86400 * NSEC_PER_SEC;
	target_check_kato(&target, now_ns);
	assert_int_equal(tq->shut_down, 0);
	free_queue(tq);
}

#define T(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_connect_admin),
		T(test_commands_before_connect),
		T(test_connect_admin_refused),
		T(test_connect_hostile_data),
		T(test_connect_io),
		T(test_connect_io_needs_an_enabled_controller),
		T(test_discovery_has_no_io_queues),
		T(test_properties),
		T(test_cc_and_csts),
		T(test_unknown_fabrics_commands),
		T(test_kato),
		T(test_kato_zero_never_expires),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
