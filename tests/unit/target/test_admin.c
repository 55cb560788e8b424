// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_admin.c: Identify, log pages, features, AER, Abort.
 */
#include "fixture.h"

static uint8_t data[TARGET_MAX_IO_BYTES];

static uint16_t identify(struct test_queue *tq, uint8_t cns, uint32_t nsid)
{
	struct nvme_sqe sqe = sqe_of(NVME_ADMIN_IDENTIFY, nsid, cns, 0, 0);
	struct command cmd;

	memset(data, 0xee, 4096);
	return run(tq, &cmd, &sqe, data, 4096);
}

static struct nvme_sqe log_sqe(uint8_t page, uint64_t offset, uint32_t bytes)
{
	uint32_t numd = bytes / 4 - 1;
	struct nvme_sqe sqe = sqe_of(NVME_ADMIN_GET_LOG_PAGE, NVME_NSID_ALL,
				     page | (numd & 0xffff) << 16, numd >> 16, (uint32_t)offset);

	sqe.cdw13 = htole32((uint32_t)(offset >> 32));
	return sqe;
}

static uint16_t get_log(struct test_queue *tq, uint8_t page, uint64_t offset, void *out,
			uint32_t bytes)
{
	struct nvme_sqe sqe = log_sqe(page, offset, bytes);
	struct command cmd;

	return run(tq, &cmd, &sqe, out, bytes);
}

static uint16_t feature(struct test_queue *tq, uint8_t opcode, uint32_t id, uint32_t value,
			uint32_t *dw0)
{
	struct nvme_sqe sqe = sqe_of(opcode, 0, id, value, 0);
	struct command cmd;
	uint16_t status = run(tq, &cmd, &sqe, data, sizeof(data));

	if (dw0)
		*dw0 = cmd.dw0;
	return status;
}

static void test_identify_controller(void **state)
{
	struct test_queue *admin = new_admin(NQN_A, HOST_A);

	assert_int_equal(identify(admin, NVME_CNS_CONTROLLER, 0), 0);
	assert_memory_equal(data + IDCTRL_SN, "SN1                 ", 20);
	assert_int_equal(data[IDCTRL_CMIC], 3);
	assert_int_equal(data[IDCTRL_MDTS], TARGET_MDTS);
	assert_int_equal(get_le16(data + IDCTRL_CNTLID), admin->queue.ctrl->cntlid);
	assert_int_equal(get_le32(data + IDCTRL_VER), 0x00010400);
	assert_int_equal(data[IDCTRL_CNTRLTYPE], 1);
	assert_int_equal(get_le16(data + IDCTRL_KAS), 10);
	assert_int_equal(data[IDCTRL_SQES], 0x66);
	assert_int_equal(data[IDCTRL_CQES], 0x44);
	assert_int_equal(get_le16(data + IDCTRL_MAXCMD), 128);
	assert_int_equal(get_le32(data + IDCTRL_NN), 5);
	assert_int_equal(get_le16(data + IDCTRL_ONCS), 0x8d);
	assert_int_equal(get_le32(data + IDCTRL_SGLS), 0x00100005);
	assert_string_equal((char *)data + IDCTRL_SUBNQN, NQN_A);
	assert_int_equal(get_le32(data + IDCTRL_IOCCSZ), 260);
	assert_int_equal(get_le32(data + IDCTRL_IORCSZ), 1);
	assert_int_equal(get_le16(data + IDCTRL_ICDOFF), 0);
	assert_int_equal(data[IDCTRL_MSDBD], 16);
	free_queue(admin);
	admin = new_admin(NVMF_DISCOVERY_NQN, HOST_A);
	assert_int_equal(identify(admin, NVME_CNS_CONTROLLER, 0), 0);
	assert_int_equal(data[IDCTRL_CNTRLTYPE], 2);
	assert_string_equal((char *)data + IDCTRL_SUBNQN, NVMF_DISCOVERY_NQN);
	assert_int_equal(identify(admin, NVME_CNS_NAMESPACE, 1), NVME_SC_INVALID_FIELD | DNR);
	free_queue(admin);
}

static void test_identify_namespaces(void **state)
{
	static const uint8_t uuid[] = { 0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77,
					0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff };
	struct test_queue *admin = new_admin(NQN_A, HOST_A);

	assert_int_equal(identify(admin, NVME_CNS_NAMESPACE, 1), 0);
	assert_int_equal(get_le64(data + IDNS_NSZE), BLOCKS);
	assert_int_equal(data[IDNS_LBAF + 2], 9);
	assert_int_equal(data[IDNS_NMIC], 1);
	assert_int_equal(identify(admin, NVME_CNS_NAMESPACE, 3), 0);
	assert_int_equal(get_le64(data + IDNS_NSZE), 256);
	assert_int_equal(data[IDNS_LBAF + 2], 12);
	/* inactive: zeroes; not there: error */
	assert_int_equal(identify(admin, NVME_CNS_NAMESPACE, 5), 0);
	assert_int_equal(get_le64(data + IDNS_NSZE), 0);
	assert_int_equal(identify(admin, NVME_CNS_NAMESPACE, 2), 0);
	assert_int_equal(get_le64(data + IDNS_NSZE), 0);
	assert_int_equal(identify(admin, NVME_CNS_NAMESPACE, 0), NVME_SC_INVALID_NAMESPACE | DNR);
	assert_int_equal(identify(admin, NVME_CNS_NAMESPACE, 6), NVME_SC_INVALID_NAMESPACE | DNR);
	assert_int_equal(identify(admin, NVME_CNS_NAMESPACE, NVME_NSID_ALL),
			 NVME_SC_INVALID_NAMESPACE | DNR);
	/* the list of those above */
	assert_int_equal(identify(admin, NVME_CNS_NAMESPACE_LIST, 0), 0);
	assert_int_equal(get_le32(data), 1);
	assert_int_equal(get_le32(data + 4), 3);
	assert_int_equal(get_le32(data + 8), 0);
	assert_int_equal(identify(admin, NVME_CNS_NAMESPACE_LIST, 1), 0);
	assert_int_equal(get_le32(data), 3);
	assert_int_equal(identify(admin, NVME_CNS_NAMESPACE_LIST, 3), 0);
	assert_int_equal(get_le32(data), 0);
	assert_int_equal(identify(admin, NVME_CNS_NAMESPACE_LIST, NVME_NSID_ALL - 1),
			 NVME_SC_INVALID_NAMESPACE | DNR);
	assert_int_equal(identify(admin, NVME_CNS_DESCRIPTORS, 1), 0);
	assert_int_equal(data[0], 2);
	assert_int_equal(data[1], 16);
	assert_int_equal(data[20], 3);
	assert_memory_equal(data + 24, uuid, 16);
	assert_int_equal(data[40], 0);
	assert_int_equal(identify(admin, NVME_CNS_DESCRIPTORS, 5), NVME_SC_INVALID_NAMESPACE | DNR);
	for (uint8_t cns = 4; cns < 0x20; cns++)
		assert_int_equal(identify(admin, cns, 1), NVME_SC_INVALID_FIELD | DNR);
	free_queue(admin);
}

static void test_log_pages(void **state)
{
	struct test_queue *admin = new_admin(NQN_A, HOST_A);

	assert_int_equal(get_log(admin, NVME_LOG_ERROR, 0, data, 64), 0);
	assert_int_equal(get_log(admin, NVME_LOG_SMART, 0, data, 512), 0);
	assert_int_equal(get_le16(data + 1), 298);
	assert_int_equal(data[3], 100);
	assert_int_equal(get_log(admin, NVME_LOG_FIRMWARE, 0, data, 512), 0);
	assert_int_equal(data[0], 1);
	assert_int_equal(get_log(admin, NVME_LOG_EFFECTS, 0, data, 4096), 0);
	assert_int_equal(get_le32(data + 4 * NVME_ADMIN_IDENTIFY), 1);
	assert_int_equal(get_le32(data + 1024 + 4 * NVME_CMD_WRITE), 3);
	assert_int_equal(get_le32(data + 1024 + 4 * NVME_CMD_WRITE_UNCORRECTABLE), 0);
	assert_int_equal(get_log(admin, NVME_LOG_CHANGED_NS, 0, data, 4096), 0);
	/* what is not there */
	assert_int_equal(get_log(admin, 0x0c, 0, data, 512), NVME_SC_INVALID_LOG_PAGE | DNR);
	assert_int_equal(get_log(admin, NVME_LOG_DISCOVERY, 0, data, 512),
			 NVME_SC_INVALID_LOG_PAGE | DNR);
	/* offsets: not of dwords, at the end, behind it, far behind it */
	assert_int_equal(get_log(admin, NVME_LOG_SMART, 2, data, 512), NVME_SC_INVALID_FIELD | DNR);
	assert_int_equal(get_log(admin, NVME_LOG_SMART, 512, data, 512), 0);
	assert_int_equal(get_log(admin, NVME_LOG_SMART, 516, data, 512),
			 NVME_SC_INVALID_FIELD | DNR);
	assert_int_equal(get_log(admin, NVME_LOG_SMART, UINT64_MAX - 3, data, 512),
			 NVME_SC_INVALID_FIELD | DNR);
	assert_int_equal(get_log(admin, NVME_LOG_SMART, 0, data, TARGET_MAX_IO_BYTES), 0);
	assert_int_equal(get_log(admin, NVME_LOG_SMART, 0, data, TARGET_MAX_IO_BYTES + 4),
			 NVME_SC_INVALID_FIELD | DNR);
	free_queue(admin);
}

/* the log in one piece, then every part of it */
static void test_discovery_log_at_any_offset(void **state)
{
	static uint8_t whole[8192], part[8192];
	struct test_queue *admin = new_admin(NVMF_DISCOVERY_NQN, HOST_B);
	const struct nvmf_discovery_header *header = (const void *)whole;
	const struct nvmf_discovery_record *record = (const void *)(whole + sizeof(*header));
	uint32_t total = 1024 * 4;

	assert_int_equal(get_log(admin, NVME_LOG_DISCOVERY, 0, whole, sizeof(whole)), 0);
	assert_int_equal(le64toh(header->genctr), 1);
	assert_int_equal(le64toh(header->numrec), 3);
	assert_int_equal(record[0].trtype, 1);
	assert_int_equal(record[0].adrfam, 1);
	assert_int_equal(record[0].subtype, 2);
	assert_int_equal(le16toh(record[0].cntlid), 0xffff);
	assert_int_equal(le16toh(record[0].asqsz), 32);
	assert_memory_equal(record[0].trsvcid, "4420                            ", 32);
	assert_memory_equal(record[0].traddr, "10.0.0.5        ", 16);
	assert_string_equal(record[0].subnqn, NQN_A);
	assert_int_equal(record[0].tsas.qptype, 1);
	assert_int_equal(record[0].tsas.prtype, 4);
	assert_int_equal(record[0].tsas.cms, 1);
	assert_string_equal(record[1].subnqn, NQN_B);
	/* the wildcard port reports the address this host connected to */
	assert_memory_equal(record[2].traddr, "192.0.2.7       ", 16);
	assert_memory_equal(record[2].trsvcid, "4421 ", 5);
	for (uint32_t offset = 0; offset <= total; offset += 4) {
		for (uint32_t bytes = 4; bytes <= 4096; bytes *= 4) {
			memset(part, 0x55, sizeof(part));
			assert_int_equal(get_log(admin, NVME_LOG_DISCOVERY, offset, part, bytes),
					 0);
			assert_memory_equal(part, whole + offset, bytes);
		}
	}
	assert_int_equal(get_log(admin, NVME_LOG_DISCOVERY, total + 4, part, 4),
			 NVME_SC_INVALID_FIELD | DNR);
	free_queue(admin);
}

static void test_discovery_shows_what_the_host_may_use(void **state)
{
	struct test_queue *admin = new_admin(NVMF_DISCOVERY_NQN, HOST_A);
	const struct nvmf_discovery_header *header = (const void *)data;

	assert_int_equal(get_log(admin, NVME_LOG_DISCOVERY, 0, data, 4096), 0);
	assert_int_equal(le64toh(header->numrec), 1);
	assert_string_equal(((const struct nvmf_discovery_record *)(data + 1024))->subnqn, NQN_A);
	assert_int_equal(data[2048], 0); /* no second record */
	/* nothing else on a discovery controller */
	assert_int_equal(get_log(admin, NVME_LOG_SMART, 0, data, 512),
			 NVME_SC_INVALID_LOG_PAGE | DNR);
	assert_int_equal(feature(admin, NVME_ADMIN_SET_FEATURES, NVME_FEAT_ASYNC_EVENT, 0, NULL),
			 0);
	assert_int_equal(feature(admin, NVME_ADMIN_SET_FEATURES, NVME_FEAT_QUEUES, 0, NULL),
			 NVME_SC_INVALID_FIELD | DNR);
	assert_int_equal(feature(admin, NVME_ADMIN_ABORT, 0, 0, NULL),
			 NVME_SC_INVALID_OPCODE | DNR);
	assert_int_equal(feature(admin, NVME_ADMIN_KEEP_ALIVE, 0, 0, NULL), 0);
	free_queue(admin);
}

static void test_features(void **state)
{
	static const struct {
		uint32_t id, value;
		uint16_t set;
		uint16_t get;
		uint32_t read; /* by Get Features afterwards */
	} rows[] = {
		{ NVME_FEAT_ASYNC_EVENT, 0x100, 0, 0, 0x100 },
		{ NVME_FEAT_KATO, 12345, 0, 0, 12345 },
		{ NVME_FEAT_TEMPERATURE, 0x150, 0, 0, 0x150 },
		{ NVME_FEAT_ERROR_RECOVERY, 7, 0, 0, 7 },
		{ NVME_FEAT_WRITE_ATOMICITY, 1, 0, 0, 1 },
		{ NVME_FEAT_WRITE_CACHE, 1, 0, 0, 1 },
		{ NVME_FEAT_WRITE_CACHE, 0, NVME_SC_FEATURE_NOT_CHANGEABLE | DNR, 0, 1 },
		{ NVME_FEAT_POWER, 0, 0, 0, 0 },
		{ NVME_FEAT_POWER, 1, NVME_SC_INVALID_FIELD | DNR, 0, 0 },
		{ NVME_FEAT_QUEUES, 0x0000ffff, NVME_SC_INVALID_FIELD | DNR, 0, 0x00030003 },
		{ NVME_FEAT_QUEUES, 0xffff0000, NVME_SC_INVALID_FIELD | DNR, 0, 0x00030003 },
		{ NVME_FEAT_QUEUES, 0x00000002, 0, 0, 0 }, /* 3 SQs, 1 CQ: 1 pair */
		{ NVME_FEAT_QUEUES, 0x00ff00ff, 0, 0, 0x00030003 },
		{ NVME_FEAT_TIMESTAMP, 0, NVME_SC_INVALID_FIELD | DNR, NVME_SC_INVALID_FIELD | DNR,
		  0 },
		{ 0xd0, 0, NVME_SC_INVALID_FIELD | DNR, NVME_SC_INVALID_FIELD | DNR, 0 },
		{ NVME_FEAT_HOST_ID, 1, NVME_SC_COMMAND_SEQUENCE | DNR, NVME_SC_INVALID_FIELD | DNR,
		  0 },
		{ 0x80000000 | NVME_FEAT_KATO, 1, NVME_SC_FEATURE_NOT_SAVEABLE | DNR, 0, 12345 },
	};
	struct test_queue *admin = new_admin(NQN_A, HOST_A);
	uint32_t dw0;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		assert_int_equal(
			feature(admin, NVME_ADMIN_SET_FEATURES, rows[i].id, rows[i].value, NULL),
			rows[i].set);
		assert_int_equal(feature(admin, NVME_ADMIN_GET_FEATURES, rows[i].id, 0, &dw0),
				 rows[i].get);
		if (!rows[i].get)
			assert_int_equal(dw0, rows[i].read);
	}
	/* the host identifier, 128 bits */
	assert_int_equal(feature(admin, NVME_ADMIN_GET_FEATURES, NVME_FEAT_HOST_ID, 1, NULL), 0);
	assert_int_equal(data[15], 7);
	free_queue(admin);
}

static void test_aer(void **state)
{
	struct test_queue *admin = new_admin(NQN_A, HOST_A);
	struct command held[TARGET_AER_MAX], over;
	struct subsystem *s = subsystem_find(&target, NQN_A);

	for (uint16_t i = 0; i < TARGET_AER_MAX; i++) {
		struct nvme_sqe sqe = sqe_of(NVME_ADMIN_AER, 0, 0, 0, 0);

		sqe.cid = htole16((uint16_t)(100 + i));
		assert_int_equal(run(admin, &held[i], &sqe, NULL, 0), PENDING);
	}
	/* one too many (situation N19); the earlier ones stay */
	assert_int_equal(run(admin, &over, &(struct nvme_sqe){ .opcode = NVME_ADMIN_AER }, NULL, 0),
			 NVME_SC_AER_LIMIT | DNR);
	assert_int_equal(admin->completed, 0);
	/* not asked for: no event */
	assert_true(subsystem_enable_namespace(&target, s, 3, false));
	assert_int_equal(admin->completed, 0);
	assert_int_equal(feature(admin, NVME_ADMIN_SET_FEATURES, NVME_FEAT_ASYNC_EVENT,
				 NVME_OAES_NS_CHANGED, NULL),
			 0);
	assert_true(subsystem_enable_namespace(&target, s, 3, true));
	assert_int_equal(admin->completed, 1);
	assert_ptr_equal(admin->last_completed, &held[0]);
	assert_int_equal(held[0].dw0, 0x00040002);
	/* masked until the log page is read */
	assert_true(subsystem_enable_namespace(&target, s, 5, true));
	assert_int_equal(admin->completed, 1);
	assert_int_equal(get_log(admin, NVME_LOG_CHANGED_NS, 0, data, 4096), 0);
	assert_int_equal(get_le32(data), 3);
	assert_int_equal(get_le32(data + 4), 5);
	assert_int_equal(get_le32(data + 8), 0);
	assert_int_equal(get_log(admin, NVME_LOG_CHANGED_NS, 0, data, 4096), 0);
	assert_int_equal(get_le32(data), 0);
	assert_true(subsystem_enable_namespace(&target, s, 5, false));
	assert_int_equal(admin->completed, 2);
	assert_false(subsystem_enable_namespace(&target, s, 4, true));
	/* Abort finds a held one; another is not aborted */
	{
		struct nvme_sqe sqe = sqe_of(NVME_ADMIN_ABORT, 0, 103 << 16, 0, 0);

		assert_int_equal(run(admin, &over, &sqe, NULL, 0), 0);
		assert_int_equal(over.dw0, 0);
		assert_int_equal(held[3].status, NVME_SC_ABORT_REQUESTED);
		assert_int_equal(run(admin, &over, &sqe, NULL, 0), 0);
		assert_int_equal(over.dw0, 1);
	}
	/* the reset answers the one that is left, so that its place comes free */
	property_set_cc(admin, 0x00460000);
	assert_int_equal(admin->completed, 4);
	assert_int_equal(held[2].status, NVME_SC_ABORT_REQUESTED);
	free_queue(admin);
}

/* situation N21: nothing is sent on a queue that is gone */
static void test_aers_are_dropped_with_their_queue(void **state)
{
	struct test_queue *admin = new_admin(NQN_A, HOST_A);
	struct nvme_sqe sqe = sqe_of(NVME_ADMIN_AER, 0, 0, 0, 0);
	struct command held[2];

	assert_int_equal(run(admin, &held[0], &sqe, NULL, 0), PENDING);
	assert_int_equal(run(admin, &held[1], &sqe, NULL, 0), PENDING);
	queue_closed(&admin->queue);
	assert_int_equal(admin->completed, 0);
	assert_true(list_empty(&target.controllers));
	free_queue(admin);
}

static void test_opcodes_that_are_not_there(void **state)
{
	static const uint8_t opcodes[] = { NVME_ADMIN_DELETE_SQ,
					   NVME_ADMIN_CREATE_SQ,
					   NVME_ADMIN_DELETE_CQ,
					   NVME_ADMIN_CREATE_CQ,
					   0x10,
					   0x80,
					   0xff };
	struct test_queue *admin = new_admin(NQN_A, HOST_A);
	struct nvme_sqe sqe;
	struct command cmd;

	for (size_t i = 0; i < sizeof(opcodes); i++) {
		sqe = sqe_of(opcodes[i], 0, 0, 0, 0);
		assert_int_equal(run(admin, &cmd, &sqe, data, sizeof(data)),
				 NVME_SC_INVALID_OPCODE | DNR);
	}
	/* fused, and PRPs */
	sqe = sqe_of(NVME_ADMIN_KEEP_ALIVE, 0, 0, 0, 0);
	sqe.flags = 1;
	assert_int_equal(run(admin, &cmd, &sqe, NULL, 0), NVME_SC_INVALID_FIELD | DNR);
	cmd.sqe.flags = 0;
	assert_int_equal(command_transfer(&cmd, &(struct transfer){ 0 }),
			 NVME_SC_INVALID_FIELD | DNR);
	/* a controller that is not enabled */
	property_set_cc(admin, 0x00460000);
	sqe = sqe_of(NVME_ADMIN_IDENTIFY, 0, 1, 0, 0);
	assert_int_equal(run(admin, &cmd, &sqe, data, 4096), NVME_SC_COMMAND_SEQUENCE | DNR);
	free_queue(admin);
}

#define T(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_identify_controller),
		T(test_identify_namespaces),
		T(test_log_pages),
		T(test_discovery_log_at_any_offset),
		T(test_discovery_shows_what_the_host_may_use),
		T(test_features),
		T(test_aer),
		T(test_aers_are_dropped_with_their_queue),
		T(test_opcodes_that_are_not_there),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
