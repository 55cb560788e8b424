// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_bytes.c: byte order helpers and range arithmetic.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "util/bytes.h"
#include "util/list.h"

static void test_big_endian(void **state)
{
	uint8_t b[8] = { 1, 2, 3, 4, 5, 6, 7, 8 };

	assert_int_equal(get_be16(b), 0x0102);
	assert_int_equal(get_be24(b), 0x010203);
	assert_int_equal(get_be32(b + 1), 0x02030405);
	assert_true(get_be64(b) == 0x0102030405060708ULL);
	put_be24(b, 0xa0b0c0);
	assert_int_equal(b[0], 0xa0);
	assert_int_equal(b[2], 0xc0);
	put_le32(b, 0x11223344);
	assert_int_equal(b[0], 0x44);
}

static void test_range_inside(void **state)
{
	assert_true(range_inside(10, 5, 10, 5));
	assert_true(range_inside(15, 0, 10, 5));
	assert_false(range_inside(16, 0, 10, 5));
	assert_false(range_inside(10, 6, 10, 5));
	assert_false(range_inside(9, 1, 10, 5));
	/* address + length wraps */
	assert_false(range_inside(0xfffffffffffffc00ULL, 0x400, 0x1000, 0x1000));
	assert_false(range_inside(0x1000, UINT64_MAX, 0x1000, 0x1000));
}

static void test_power_of_two(void **state)
{
	assert_int_equal(round_up_power_of_two(1), 1);
	assert_int_equal(round_up_power_of_two(64), 64);
	assert_int_equal(round_up_power_of_two(65), 128);
	assert_true(is_power_of_two(4096));
	assert_false(is_power_of_two(0));
	assert_false(is_power_of_two(96));
}

static void test_list_order(void **state)
{
	struct list_node head, a, b, c;

	list_init(&head);
	list_add_tail(&head, &a);
	list_add_tail(&head, &b);
	list_add(&head, &c);
	assert_ptr_equal(list_pop(&head), &c);
	list_del(&a);
	list_del(&a); /* deleting twice does no harm */
	assert_ptr_equal(list_pop(&head), &b);
	assert_null(list_pop(&head));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_big_endian),
		cmocka_unit_test(test_range_inside),
		cmocka_unit_test(test_power_of_two),
		cmocka_unit_test(test_list_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
