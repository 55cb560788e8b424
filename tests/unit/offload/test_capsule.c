// SPDX-License-Identifier: BSD-2-Clause
/* test_capsule.c: which capsules are offloaded, and what is wrong with those that are not good */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "infiniband/verbs_ext.h"
#include "nvme/spec.h"
#include "offload/capsule.h"
#include "util/bytes.h"

#define DNR NVME_STATUS_DNR

/* 4096 bytes of in-capsule data from byte 64 */
static const struct capsule_rules rules = {
	.offload_ops = IBV_NVMF_OP_READ | IBV_NVMF_OP_WRITE | IBV_NVMF_OP_FLUSH,
	.max_len = 64 + 4096,
	.data_offset = 64,
	.max_transfer = 65536,
};

static void good_sqe(uint8_t *sqe, uint8_t opcode)
{
	memset(sqe, 0, 64);
	sqe[0] = opcode;
	sqe[1] = 0x40;
	put_le16(sqe + 2, 0xbeef);
	put_le32(sqe + 4, 9);
	put_le64(sqe + 24, 0x1122334455667788ULL);
	put_le32(sqe + 32, 4096 | 0xdd000000); /* the key's low byte follows the length */
	put_le32(sqe + 35, 0xaabbccdd);
	sqe[39] = 0x40;
	put_le32(sqe + 40, 1);
	put_le32(sqe + 48, 7);
}

static void test_fields(void **state)
{
	struct capsule_command c;
	uint8_t sqe[64];

	good_sqe(sqe, NVME_CMD_READ);
	assert_true(capsule_parse(&rules, sqe, &c));
	assert_int_equal(c.opcode, NVME_CMD_READ);
	assert_int_equal(c.cid, 0xbeef);
	assert_int_equal(c.nsid, 9);
	assert_true(c.addr == 0x1122334455667788ULL);
	assert_int_equal(c.key, 0xaabbccdd);
	assert_int_equal(c.sgl_len, 4096);
	assert_int_equal(c.blocks, 8);
	assert_false(c.in_capsule);
	assert_false(c.invalidate);
	assert_int_equal(le32toh(c.cdw[0]), 1);
	assert_int_equal(le32toh(c.cdw[2]), 7);
	sqe[39] = 0x4f;
	assert_true(capsule_parse(&rules, sqe, &c));
	assert_true(c.invalidate);
	/* length 0: the key means nothing, so nothing is invalidated */
	sqe[32] = sqe[33] = sqe[34] = 0;
	assert_true(capsule_parse(&rules, sqe, &c));
	assert_false(c.invalidate);
}

struct change {
	uint8_t opcode, at, value;
	bool offloaded;
};

static void test_decision(void **state)
{
	static const struct change changes[] = {
		{ NVME_CMD_READ, 63, 0, true },
		{ NVME_CMD_WRITE, 63, 0, true },
		{ NVME_CMD_FLUSH, 63, 0, true },
		{ NVME_CMD_COMPARE, 63, 0, false },
		{ NVME_CMD_WRITE_ZEROES, 63, 0, false },
		{ NVME_CMD_DSM, 63, 0, false },
		{ NVME_CMD_FABRICS, 63, 0, false },
		{ NVME_CMD_READ, 1, 0x41, false }, /* fused, first */
		{ NVME_CMD_READ, 1, 0x42, false },
		{ NVME_CMD_READ, 1, 0x00, false }, /* PRPs */
		{ NVME_CMD_READ, 1, 0x80, false }, /* SGL with a metadata SGL */
		{ NVME_CMD_READ, 1, 0xc0, false },
		{ NVME_CMD_READ, 39, 0x4f, true },
		{ NVME_CMD_READ, 39, 0x00, false },
		{ NVME_CMD_READ, 39, 0x01, false }, /* data into the capsule */
		{ NVME_CMD_WRITE, 39, 0x01, true },
		{ NVME_CMD_WRITE, 39, 0x31, false }, /* list of descriptors */
		{ NVME_CMD_WRITE, 39, 0x5a, false },
		{ NVME_CMD_WRITE, 39, 0x4e, false },
		{ NVME_CMD_WRITE, 51, 0x20, false }, /* PRACT */
		{ NVME_CMD_READ, 51, 0x04, false },  /* PRCHK */
		{ NVME_CMD_READ, 51, 0x40, true },   /* FUA */
		{ NVME_CMD_FLUSH, 51, 0x20, true },
	};
	struct capsule_command c;
	uint8_t sqe[64];

	for (size_t i = 0; i < ARRAY_SIZE(changes); i++) {
		good_sqe(sqe, changes[i].opcode);
		sqe[changes[i].at] = changes[i].value;
		if (capsule_parse(&rules, sqe, &c) != changes[i].offloaded)
			fail_msg("case %zu", i);
	}
	good_sqe(sqe, NVME_CMD_READ);
	put_le32(sqe + 4, 0xffffffff);
	assert_false(capsule_parse(&rules, sqe, &c));
	put_le32(sqe + 4, 0); /* not mapped, but offloaded */
	assert_true(capsule_parse(&rules, sqe, &c));
}

static void test_ops(void **state)
{
	static const uint8_t opcodes[] = { NVME_CMD_WRITE, NVME_CMD_READ, NVME_CMD_FLUSH };
	struct capsule_rules r = rules;
	struct capsule_command c;
	uint8_t sqe[64];

	for (r.offload_ops = 0; r.offload_ops < 8; r.offload_ops++)
		for (int i = 0; i < 3; i++) {
			good_sqe(sqe, opcodes[i]);
			assert_int_equal(capsule_parse(&r, sqe, &c), r.offload_ops >> i & 1);
		}
}

static uint16_t check(bool in_capsule, uint64_t addr, uint32_t sgl_len, uint32_t blocks,
		      uint32_t lba)
{
	struct capsule_command c = {
		.opcode = NVME_CMD_WRITE,
		.in_capsule = in_capsule,
		.addr = addr,
		.sgl_len = sgl_len,
		.blocks = blocks,
	};
	uint32_t transfer = 99;
	uint16_t status = capsule_check(&rules, &c, lba, &transfer);

	assert_int_equal(transfer, status ? 0 : blocks * lba);
	return status;
}

static void test_check(void **state)
{
	/* keyed */
	assert_int_equal(check(false, UINT64_MAX, 4096, 8, 512), 0);
	assert_int_equal(check(false, 0, 8192, 8, 512), 0); /* longer is no harm */
	assert_int_equal(check(false, 0, 4095, 8, 512), NVME_SC_SGL_DATA_LENGTH | DNR);
	assert_int_equal(check(false, 0, 0, 1, 512), NVME_SC_SGL_DATA_LENGTH | DNR);
	assert_int_equal(check(false, 0, 65536, 128, 512), 0);
	assert_int_equal(check(false, 0, 0xffffff, 129, 512), NVME_SC_INVALID_FIELD | DNR);
	assert_int_equal(check(false, 0, 0xffffff, 65536, 32768), NVME_SC_SGL_DATA_LENGTH | DNR);
	/* in the capsule: the wrapping addresses of situation N1 */
	assert_int_equal(check(true, 0xfffffffffffffe00ULL, 0x1000, 8, 512),
			 NVME_SC_SGL_OFFSET | DNR);
	assert_int_equal(check(true, 0xfffffffffffffe00ULL, 512, 1, 512), NVME_SC_SGL_OFFSET | DNR);
	assert_int_equal(check(true, UINT64_MAX, UINT32_MAX, 1, 512), NVME_SC_SGL_OFFSET | DNR);
	assert_int_equal(check(true, 4097, 0, 1, 512), NVME_SC_SGL_OFFSET | DNR);
	assert_int_equal(check(true, 0, 4096, 8, 512), 0);
	assert_int_equal(check(true, 0, 4097, 8, 512), NVME_SC_SGL_DATA_LENGTH | DNR);
	assert_int_equal(check(true, 0, UINT32_MAX, 8, 512), NVME_SC_SGL_DATA_LENGTH | DNR);
	assert_int_equal(check(true, 512, 4096, 8, 512), NVME_SC_SGL_OFFSET | DNR);
	assert_int_equal(check(true, 512, 3584, 7, 512), 0);
	assert_int_equal(check(true, 3584, 512, 1, 512), 0);
	assert_int_equal(check(true, 3585, 512, 1, 512), NVME_SC_SGL_OFFSET | DNR);
	assert_int_equal(check(true, 0, 0, 1, 512), NVME_SC_SGL_DATA_LENGTH | DNR);
	assert_int_equal(check(true, 0, 512, 2, 512), NVME_SC_SGL_DATA_LENGTH | DNR);
}

static void test_data_there(void **state)
{
	struct capsule_command c = { .opcode = NVME_CMD_WRITE, .in_capsule = true };

	assert_int_equal(capsule_check_data(&rules, &c, 512, 64 + 512), 0);
	assert_int_equal(capsule_check_data(&rules, &c, 512, 64 + 511),
			 NVME_SC_SGL_DATA_LENGTH | DNR);
	assert_int_equal(capsule_check_data(&rules, &c, 512, 64), NVME_SC_SGL_OFFSET | DNR);
	c.addr = 512;
	assert_int_equal(capsule_check_data(&rules, &c, 512, 64 + 512), NVME_SC_SGL_OFFSET | DNR);
	assert_int_equal(capsule_check_data(&rules, &c, 512, 64 + 513),
			 NVME_SC_SGL_DATA_LENGTH | DNR);
	assert_int_equal(capsule_check_data(&rules, &c, 512, 64 + 1024), 0);
	c.in_capsule = false;
	assert_int_equal(capsule_check_data(&rules, &c, 512, 64), 0);
}

static void test_connect(void **state)
{
	uint8_t sqe[64] = { 0x7f, 0x40 };
	uint32_t entries;
	uint16_t qid;

	assert_false(capsule_parse_connect(sqe, &qid, &entries)); /* property set */
	sqe[4] = 1;
	put_le16(sqe + 42, 3);
	put_le16(sqe + 44, 127);
	assert_true(capsule_parse_connect(sqe, &qid, &entries));
	assert_int_equal(qid, 3);
	assert_int_equal(entries, 128);
	put_le16(sqe + 44, 0xffff);
	assert_true(capsule_parse_connect(sqe, &qid, &entries));
	assert_int_equal(entries, 65536);
	sqe[0] = NVME_CMD_READ;
	assert_false(capsule_parse_connect(sqe, &qid, &entries));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fields),	   cmocka_unit_test(test_decision),
		cmocka_unit_test(test_ops),	   cmocka_unit_test(test_check),
		cmocka_unit_test(test_data_there), cmocka_unit_test(test_connect),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
