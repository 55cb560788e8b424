// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_io.c: I/O commands by software.
 */
#include "fixture.h"

static uint8_t data[TARGET_MAX_IO_BYTES], other[TARGET_MAX_IO_BYTES];

static uint16_t io(struct test_queue *tq, uint8_t opcode, uint32_t nsid, uint64_t slba,
		   uint32_t blocks, void *buffer, size_t len)
{
	struct nvme_sqe sqe =
		sqe_of(opcode, nsid, (uint32_t)slba, (uint32_t)(slba >> 32), (blocks - 1) & 0xffff);
	struct command cmd;

	return run(tq, &cmd, &sqe, buffer, len);
}

static uint16_t dsm(struct test_queue *tq, unsigned int ranges, bool deallocate, void *buffer,
		    size_t len)
{
	struct nvme_sqe sqe = sqe_of(NVME_CMD_DSM, 1, ranges - 1, deallocate ? 4 : 0, 0);
	struct command cmd;

	return run(tq, &cmd, &sqe, buffer, len);
}

static void put_range(unsigned int i, uint32_t blocks, uint64_t slba)
{
	put_le32(data + 16 * i, 0);
	put_le32(data + 16 * i + 4, blocks);
	put_le64(data + 16 * i + 8, slba);
}

static void test_errors(void **state)
{
	static const struct {
		uint8_t opcode;
		uint32_t nsid;
		uint64_t slba;
		uint32_t blocks;
		size_t len;
		uint16_t status;
	} rows[] = {
		{ NVME_CMD_READ, 1, 0, 8, 4096, 0 },
		{ NVME_CMD_READ, 1, BLOCKS - 8, 8, 4096, 0 },
		{ NVME_CMD_READ, 1, BLOCKS - 7, 8, 4096, NVME_SC_LBA_RANGE },
		{ NVME_CMD_READ, 1, BLOCKS, 1, 512, NVME_SC_LBA_RANGE },
		{ NVME_CMD_READ, 1, UINT64_MAX, 1, 512, NVME_SC_LBA_RANGE },
		{ NVME_CMD_WRITE, 1, UINT64_MAX - 1, 8, 4096, NVME_SC_LBA_RANGE },
		{ NVME_CMD_COMPARE, 1, BLOCKS, 8, 4096, NVME_SC_LBA_RANGE },
		{ NVME_CMD_WRITE_ZEROES, 1, BLOCKS - 1, 2, 0, NVME_SC_LBA_RANGE },
		{ NVME_CMD_WRITE_ZEROES, 1, 0, BLOCKS, 0, 0 },
		{ NVME_CMD_VERIFY, 1, 0, BLOCKS, 0, 0 },
		{ NVME_CMD_VERIFY, 1, 1, BLOCKS, 0, NVME_SC_LBA_RANGE },
		/* namespaces: none, not there, disabled, all */
		{ NVME_CMD_READ, 0, 0, 8, 4096, NVME_SC_INVALID_NAMESPACE },
		{ NVME_CMD_READ, 2, 0, 8, 4096, NVME_SC_INVALID_NAMESPACE },
		{ NVME_CMD_READ, 5, 0, 8, 4096, NVME_SC_INVALID_NAMESPACE },
		{ NVME_CMD_READ, NVME_NSID_ALL, 0, 8, 4096, NVME_SC_INVALID_NAMESPACE },
		{ NVME_CMD_FLUSH, 1, 0, 1, 0, 0 },
		{ NVME_CMD_FLUSH, NVME_NSID_ALL, 0, 1, 0, 0 },
		{ NVME_CMD_FLUSH, 2, 0, 1, 0, NVME_SC_INVALID_NAMESPACE },
		{ NVME_CMD_FLUSH, 0, 0, 1, 0, NVME_SC_INVALID_NAMESPACE },
		/* the SGL is short; longer does no harm */
		{ NVME_CMD_READ, 1, 0, 8, 4095, NVME_SC_SGL_DATA_LENGTH },
		{ NVME_CMD_WRITE, 1, 0, 8, 512, NVME_SC_SGL_DATA_LENGTH },
		{ NVME_CMD_WRITE, 1, 0, 8, 8192, 0 },
		/* blocks of 4096 */
		{ NVME_CMD_READ, 3, 0, 32, TARGET_MAX_IO_BYTES, 0 },
		{ NVME_CMD_READ, 3, 0, 33, 33 * 4096, NVME_SC_INVALID_FIELD },
		{ NVME_CMD_READ, 3, 0, 33, 32 * 4096, NVME_SC_SGL_DATA_LENGTH },
		{ NVME_CMD_READ, 1, 0, 65536, 65536 * 512, NVME_SC_INVALID_FIELD },
		/* opcodes that are not announced */
		{ NVME_CMD_WRITE_UNCORRECTABLE, 1, 0, 8, 0, NVME_SC_INVALID_OPCODE },
		{ 0x0d, 1, 0, 8, 0, NVME_SC_INVALID_OPCODE },
		{ 0xff, 1, 0, 8, 0, NVME_SC_INVALID_OPCODE },
	};
	struct test_queue *admin = new_admin(NQN_A, HOST_A), *tq = new_io(admin, 1);

	memset(data, 0, sizeof(data));
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		assert_int_equal(io(tq, rows[i].opcode, rows[i].nsid, rows[i].slba, rows[i].blocks,
				    data, rows[i].len),
				 rows[i].status ? rows[i].status | DNR : 0);
	free_queue(tq);
	free_queue(admin);
}

static void test_data(void **state)
{
	struct test_queue *admin = new_admin(NQN_A, HOST_A), *tq = new_io(admin, 1);

	for (size_t i = 0; i < 8192; i++)
		data[i] = (uint8_t)(i * 7 + i / 256);
	assert_int_equal(io(tq, NVME_CMD_WRITE, 1, 100, 16, data, 8192), 0);
	assert_int_equal(io(tq, NVME_CMD_READ, 1, 100, 16, other, 8192), 0);
	assert_memory_equal(data, other, 8192);
	assert_int_equal(io(tq, NVME_CMD_COMPARE, 1, 100, 16, data, 8192), 0);
	data[8191] ^= 1;
	assert_int_equal(io(tq, NVME_CMD_COMPARE, 1, 100, 16, data, 8192), NVME_SC_COMPARE | DNR);
	assert_int_equal(io(tq, NVME_CMD_WRITE_ZEROES, 1, 100, 8, NULL, 0), 0);
	assert_int_equal(io(tq, NVME_CMD_READ, 1, 100, 16, data, 8192), 0);
	for (size_t i = 0; i < 4096; i++)
		assert_int_equal(data[i], 0);
	assert_memory_equal(data + 4096, other + 4096, 4096);
	assert_int_equal(tq->queue.ctrl->subsystem->software_opcodes[NVME_CMD_READ], 2);
	assert_int_equal(tq->queue.ctrl->subsystem->software_opcodes[NVME_CMD_COMPARE], 2);
	assert_int_equal(tq->queue.ctrl->subsystem->software.write_bytes, 8192);
	free_queue(tq);
	free_queue(admin);
}

/* the longest Compare goes in steps */
static void test_compare_in_steps(void **state)
{
	struct test_queue *admin = new_admin(NQN_A, HOST_A), *tq = new_io(admin, 1);

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 13 + i / 4096);
	assert_int_equal(io(tq, NVME_CMD_WRITE, 1, 0, 256, data, sizeof(data)), 0);
	assert_int_equal(io(tq, NVME_CMD_COMPARE, 1, 0, 256, data, sizeof(data)), 0);
	data[sizeof(data) - 1] ^= 0x80;
	assert_int_equal(io(tq, NVME_CMD_COMPARE, 1, 0, 256, data, sizeof(data)),
			 NVME_SC_COMPARE | DNR);
	free_queue(tq);
	free_queue(admin);
}

static void test_dataset_management(void **state)
{
	struct test_queue *admin = new_admin(NQN_A, HOST_A), *tq = new_io(admin, 1);

	memset(other, 0xaa, 4096);
	assert_int_equal(io(tq, NVME_CMD_WRITE, 1, 8, 8, other, 4096), 0);
	put_range(0, 4, 8);
	put_range(1, 0, 0);
	assert_int_equal(dsm(tq, 2, true, data, 32), 0);
	assert_int_equal(io(tq, NVME_CMD_READ, 1, 8, 8, data, 4096), 0);
	assert_int_equal(data[0], 0);
	assert_int_equal(data[2047], 0);
	assert_int_equal(data[2048], 0xaa);
	/* hints change nothing; an SGL larger than the ranges does no harm (situation N13) */
	put_range(0, 8, 8);
	assert_int_equal(dsm(tq, 1, false, data, 4096), 0);
	assert_int_equal(io(tq, NVME_CMD_READ, 1, 8, 8, data, 4096), 0);
	assert_int_equal(data[2048], 0xaa);
	/* one bad range: nothing is deallocated */
	put_range(0, 8, 8);
	put_range(1, 1, BLOCKS);
	assert_int_equal(dsm(tq, 2, true, data, 32), NVME_SC_LBA_RANGE | DNR);
	put_range(1, UINT32_MAX, UINT64_MAX - 5);
	assert_int_equal(dsm(tq, 2, true, data, 32), NVME_SC_LBA_RANGE | DNR);
	assert_int_equal(dsm(tq, 2, true, data, 16), NVME_SC_SGL_DATA_LENGTH | DNR);
	assert_int_equal(io(tq, NVME_CMD_READ, 1, 8, 8, data, 4096), 0);
	assert_int_equal(data[2048], 0xaa);
	free_queue(tq);
	free_queue(admin);
}

#define T(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_errors),
		T(test_data),
		T(test_compare_in_steps),
		T(test_dataset_management),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
