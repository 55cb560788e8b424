// SPDX-License-Identifier: BSD-2-Clause
/* test_prp.c: PRP tables of the host side, walks of the controller side */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>

#include "nvme/prp.h"
#include "nvme/spec.h"
#include "util/bytes.h"

#define PAGE 4096U

static uint8_t *buffer; /* 64 pages */

static int setup(void **state)
{
	return posix_memalign((void **)&buffer, PAGE, 64 * PAGE);
}

static int teardown(void **state)
{
	free(buffer);
	return 0;
}

static uint64_t addr_of(size_t offset)
{
	return (uintptr_t)buffer + offset;
}

/* every run of every length, of a buffer whose table has several list pages */
static void test_table(void **state)
{
	enum { PAGES = 1300, MAX = 256 };
	uint8_t *big = NULL;
	struct prp_table table;
	struct prp_range ranges[2];
	struct prp_memory memory = { ranges, 2 };
	uint64_t prp1, prp2, len;
	struct prp_walk walk;
	void *addr;

	assert_int_equal(posix_memalign((void **)&big, PAGE, PAGES * PAGE), 0);
	assert_int_equal(prp_table_init(&table, big, PAGE, PAGES, MAX), 0);
	ranges[0] = (struct prp_range){ (uintptr_t)big, PAGES * PAGE };
	ranges[1] = (struct prp_range){ (uintptr_t)table.lists, table.lists_len };
	for (uint32_t first = 0; first < PAGES; first++)
		for (uint32_t n = 1; n <= MAX && first + n <= PAGES; n = n < 4 ? n + 1 : n * 2) {
			prp_table_get(&table, first, n, &prp1, &prp2);
			prp_walk_start(&walk, &memory, PAGE, prp1, prp2, (uint64_t)n * PAGE);
			assert_int_equal(prp_walk_next(&walk, &addr, &len), 0);
			/* contiguous: one piece, though the list is read in parts */
			assert_ptr_equal(addr, big + (size_t)first * PAGE);
			assert_int_equal(len, n * PAGE);
			assert_int_equal(prp_walk_next(&walk, &addr, &len), 0);
			assert_int_equal(len, 0);
		}
	/* lists are read only where that is allowed */
	memory.count = 1;
	prp_table_get(&table, 0, 3, &prp1, &prp2);
	assert_int_equal(prp_check(&memory, PAGE, prp1, prp2, 3 * PAGE), NVME_SC_DATA_TRANSFER);
	prp_table_free(&table);
	free(big);
	assert_int_equal(prp_table_init(&table, buffer, PAGE, 2048, 514), -22);
	assert_int_equal(prp_table_init(&table, buffer, PAGE, 64, 2), 0);
	assert_null(table.lists);
}

static void test_pieces(void **state)
{
	struct prp_range range = { (uintptr_t)buffer, 64 * PAGE };
	struct prp_memory memory = { &range, 1 };
	uint64_t *list = (uint64_t *)(buffer + 60 * PAGE);
	struct prp_walk walk;
	uint64_t len;
	void *addr;

	/* offset in PRP1, then pages 5, 6 (joined), 2 */
	list[3] = htole64(addr_of(5 * PAGE));
	list[4] = htole64(addr_of(6 * PAGE));
	list[5] = htole64(addr_of(2 * PAGE));
	prp_walk_start(&walk, &memory, PAGE, addr_of(100), (uintptr_t)&list[3],
		       PAGE - 100 + 2 * PAGE + 8);
	assert_int_equal(prp_walk_next(&walk, &addr, &len), 0);
	assert_ptr_equal(addr, buffer + 100);
	assert_int_equal(len, PAGE - 100);
	assert_int_equal(prp_walk_next(&walk, &addr, &len), 0);
	assert_ptr_equal(addr, buffer + 5 * PAGE);
	assert_int_equal(len, 2 * PAGE);
	assert_int_equal(prp_walk_next(&walk, &addr, &len), 0);
	assert_ptr_equal(addr, buffer + 2 * PAGE);
	assert_int_equal(len, 8);
	assert_int_equal(prp_walk_next(&walk, &addr, &len), 0);
	assert_int_equal(len, 0);
	/* exactly two pages: PRP2 is no list */
	assert_int_equal(prp_check(&memory, PAGE, addr_of(0), addr_of(PAGE), 2 * PAGE), 0);
	/* one page: PRP2 is not looked at */
	assert_int_equal(prp_check(&memory, PAGE, addr_of(0), 7, PAGE), 0);
	assert_int_equal(prp_check(&memory, PAGE, addr_of(0), 7, 0), 0);
}

static void test_chain(void **state)
{
	struct prp_range range = { (uintptr_t)buffer, 64 * PAGE };
	struct prp_memory memory = { &range, 1 };
	uint64_t *list = (uint64_t *)(buffer + 60 * PAGE);
	uint64_t *next = (uint64_t *)(buffer + 61 * PAGE);

	/* the list starts in its page's last but one slot: one data entry, then the chain */
	list[510] = htole64(addr_of(1 * PAGE));
	list[511] = htole64((uintptr_t)next);
	next[0] = htole64(addr_of(2 * PAGE));
	next[1] = htole64(addr_of(3 * PAGE));
	assert_int_equal(prp_check(&memory, PAGE, addr_of(0), (uintptr_t)&list[510], 4 * PAGE), 0);
	/* the very last entry is data, not a pointer */
	list[511] = htole64(addr_of(2 * PAGE));
	assert_int_equal(prp_check(&memory, PAGE, addr_of(0), (uintptr_t)&list[510], 3 * PAGE), 0);
	/* a chain pointer inside a page */
	list[511] = htole64((uintptr_t)next + 8);
	assert_int_equal(prp_check(&memory, PAGE, addr_of(0), (uintptr_t)&list[510], 4 * PAGE),
			 NVME_SC_PRP_OFFSET);
	/* a chain that leads to itself ends with the data's length */
	list[511] = htole64((uintptr_t)list);
	for (int i = 0; i < 511; i++)
		list[i] = htole64(addr_of(PAGE));
	assert_int_equal(prp_check(&memory, PAGE, addr_of(0), (uintptr_t)list, 65536ULL * PAGE), 0);
	/* and out of what is allowed */
	list[511] = htole64(0x1000);
	assert_int_equal(prp_check(&memory, PAGE, addr_of(0), (uintptr_t)list, 1024 * PAGE),
			 NVME_SC_DATA_TRANSFER);
}

static void test_errors(void **state)
{
	struct prp_range ranges[] = { { (uintptr_t)buffer, 8 * PAGE },
				      { (uintptr_t)buffer + 16 * PAGE, PAGE } };
	struct prp_memory memory = { ranges, 2 };
	uint64_t *list = (uint64_t *)(buffer + 7 * PAGE);
	const struct {
		uint64_t prp1, prp2, len;
		uint16_t status;
	} cases[] = {
		{ addr_of(2), 0, 100, NVME_SC_PRP_OFFSET },
		{ addr_of(4), 0, 100, NVME_SC_SUCCESS },
		{ addr_of(0), addr_of(PAGE) + 4, 2 * PAGE, NVME_SC_PRP_OFFSET },
		{ addr_of(0), (uintptr_t)list + 4, 3 * PAGE, NVME_SC_PRP_OFFSET },
		{ 0, 0, PAGE, NVME_SC_DATA_TRANSFER },
		{ addr_of(8 * PAGE), 0, PAGE, NVME_SC_DATA_TRANSFER },
		{ addr_of(16 * PAGE), 0, PAGE, NVME_SC_SUCCESS },
		{ addr_of(7 * PAGE), addr_of(8 * PAGE), PAGE + 1, NVME_SC_DATA_TRANSFER },
		{ addr_of(0), addr_of(20 * PAGE), 3 * PAGE, NVME_SC_DATA_TRANSFER },
		{ UINT64_MAX - 3, 0, 4, NVME_SC_DATA_TRANSFER },
		{ UINT64_MAX & ~4095ULL, 0, PAGE, NVME_SC_DATA_TRANSFER },
		{ addr_of(0), UINT64_MAX - 7, 3 * PAGE, NVME_SC_DATA_TRANSFER },
	};

	memset(list, 0, PAGE);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		assert_int_equal(
			prp_check(&memory, PAGE, cases[i].prp1, cases[i].prp2, cases[i].len),
			cases[i].status);
	list[0] = htole64(addr_of(PAGE));
	list[1] = htole64(addr_of(2 * PAGE) + 512);
	assert_int_equal(prp_check(&memory, PAGE, addr_of(0), (uintptr_t)list, 3 * PAGE),
			 NVME_SC_PRP_OFFSET);
}

static void test_read(void **state)
{
	struct prp_range range = { (uintptr_t)buffer, 64 * PAGE };
	struct prp_memory memory = { &range, 1 };
	uint8_t out[16];

	for (int i = 0; i < 16; i++)
		buffer[i < 8 ? PAGE - 8 + i : 9 * PAGE + i - 8] = (uint8_t)i;
	/* 16 bytes across the end of PRP1's page */
	assert_int_equal(
		prp_read(&memory, PAGE, addr_of(PAGE - 24), addr_of(9 * PAGE), 4096, 16, out, 16),
		0);
	for (int i = 0; i < 16; i++)
		assert_int_equal(out[i], i);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_table), cmocka_unit_test(test_pieces),
		cmocka_unit_test(test_chain), cmocka_unit_test(test_errors),
		cmocka_unit_test(test_read),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
