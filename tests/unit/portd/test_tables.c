// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_tables.c: listens by service ID and address; slots by use and age.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>

#include "portd/listen_table.h"
#include "portd/slot_table.h"
#include "util/bytes.h"

#define SERVICE 0x01061144ULL

static struct listen_table listens;

static union ibv_gid ipv4(uint32_t address)
{
	union ibv_gid gid = { { 0 } };

	gid.raw[10] = gid.raw[11] = 0xff;
	put_be32(gid.raw + 12, address);
	return gid;
}

static const union ibv_gid any;
static const union ibv_gid ipv6 = { { 0xfd, [15] = 1 } };

static int setup(void **state)
{
	memset(&listens, 0, sizeof(listens));
	return 0;
}

static void test_wildcard_takes_all(void **state)
{
	union ibv_gid a = ipv4(0x0a000001);

	assert_int_equal(listen_add(&listens, SERVICE, &any, 3), 0);
	assert_int_equal(listen_find(&listens, SERVICE, &a), 3);
	assert_int_equal(listen_find(&listens, SERVICE, &ipv6), 3);
	assert_int_equal(listen_find(&listens, SERVICE + 1, &a), 0);
}

static void test_addresses_are_apart(void **state)
{
	union ibv_gid a = ipv4(0x0a000001), b = ipv4(0x0a000002), c = ipv4(0x0a000003);

	assert_int_equal(listen_add(&listens, SERVICE, &a, 3), 0);
	assert_int_equal(listen_add(&listens, SERVICE, &b, 4), 0);
	assert_int_equal(listen_find(&listens, SERVICE, &a), 3);
	assert_int_equal(listen_find(&listens, SERVICE, &b), 4);
	assert_int_equal(listen_find(&listens, SERVICE, &c), 0);
}

static void test_any_ipv4(void **state)
{
	union ibv_gid any4 = ipv4(0), a = ipv4(0x0a000001);

	assert_int_equal(listen_add(&listens, SERVICE, &any4, 3), 0);
	assert_int_equal(listen_add(&listens, SERVICE, &ipv6, 4), 0);
	assert_int_equal(listen_find(&listens, SERVICE, &a), 3);
	assert_int_equal(listen_find(&listens, SERVICE, &ipv6), 4);
	assert_int_equal(listen_add(&listens, SERVICE, &a, 5), -EADDRINUSE);
	assert_int_equal(listen_add(&listens, SERVICE, &any, 5), -EADDRINUSE);
}

static void test_in_use(void **state)
{
	union ibv_gid a = ipv4(0x0a000001);

	assert_int_equal(listen_add(&listens, SERVICE, &a, 3), 0);
	assert_int_equal(listen_add(&listens, SERVICE, &a, 3), -EADDRINUSE);
	assert_int_equal(listen_add(&listens, SERVICE, &a, 4), -EADDRINUSE);
	assert_int_equal(listen_add(&listens, SERVICE, &any, 4), -EADDRINUSE);
	assert_int_equal(listen_add(&listens, SERVICE + 1, &any, 4), 0);
	assert_int_equal(listen_add(&listens, SERVICE + 1, &a, 3), -EADDRINUSE);
}

static void test_remove_is_the_owners(void **state)
{
	assert_int_equal(listen_add(&listens, SERVICE, &any, 3), 0);
	assert_int_equal(listen_remove(&listens, SERVICE, &any, 4), -ENOENT);
	assert_int_equal(listen_remove(&listens, SERVICE, &ipv6, 3), -ENOENT);
	assert_int_equal(listen_remove(&listens, SERVICE, &any, 3), 0);
	assert_int_equal(listen_find(&listens, SERVICE, &ipv6), 0);
	assert_int_equal(listen_add(&listens, SERVICE, &any, 4), 0);
}

static void test_slot_dies(void **state)
{
	for (uint64_t i = 0; i < 10; i++)
		assert_int_equal(listen_add(&listens, SERVICE + i, &any, (uint8_t)(1 + i % 2)), 0);
	listen_remove_slot(&listens, 1);
	assert_int_equal(listens.count, 5);
	for (uint64_t i = 0; i < 10; i++)
		assert_int_equal(listen_find(&listens, SERVICE + i, &ipv6), i % 2 ? 2 : 0);
}

static void test_limits(void **state)
{
	for (uint64_t i = 0; i < PORTD_LISTENS; i++) {
		uint8_t slot = (uint8_t)(1 + i / PORTD_CLIENT_LISTENS);

		assert_int_equal(listen_add(&listens, i, &any, slot), 0);
		if (i == PORTD_CLIENT_LISTENS - 1)
			assert_int_equal(listen_add(&listens, ~0ULL, &any, 1), -ENOSPC);
	}
	assert_int_equal(listen_add(&listens, ~0ULL, &any, PORTD_SLOTS - 1), -ENOSPC);
}

static void test_slots_are_distinct_until_full(void **state)
{
	struct slot_table slots = { .timewait_ns = 100 };
	uint64_t seen = 1;

	for (int i = 1; i < PORTD_SLOTS; i++) {
		int slot = slot_take(&slots, 1000);

		assert_in_range(slot, 1, PORTD_SLOTS - 1);
		assert_false(seen >> slot & 1);
		seen |= 1ULL << slot;
	}
	assert_int_equal(slot_take(&slots, 1000), -ENOSPC);
	slot_release(&slots, 7, 2000);
	assert_int_equal(slot_take(&slots, 2099), -EAGAIN);
	assert_int_equal(slot_take(&slots, 2100), 7);
}

static void test_least_recently_used_first(void **state)
{
	struct slot_table slots = { .timewait_ns = 100 };

	for (int i = 1; i < PORTD_SLOTS; i++)
		slot_take(&slots, 1000);
	slot_release(&slots, 9, 2000);
	slot_release(&slots, 5, 2050);
	slot_release(&slots, 6, 2010);
	assert_true(slot_in_timewait(&slots, 5, 2149));
	assert_false(slot_in_timewait(&slots, 5, 2150));
	assert_int_equal(slot_take(&slots, 3000), 9);
	assert_int_equal(slot_take(&slots, 3000), 6);
	assert_int_equal(slot_take(&slots, 3000), 5);
}

static void test_slot_taken_over(void **state)
{
	struct slot_table slots = { .timewait_ns = 100 };

	assert_int_equal(slot_take_this(&slots, 1), 0);
	assert_int_equal(slot_take_this(&slots, 1), -EBUSY);
	assert_int_equal(slot_take(&slots, 1000), 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_wildcard_takes_all, setup),
		cmocka_unit_test_setup(test_addresses_are_apart, setup),
		cmocka_unit_test_setup(test_any_ipv4, setup),
		cmocka_unit_test_setup(test_in_use, setup),
		cmocka_unit_test_setup(test_remove_is_the_owners, setup),
		cmocka_unit_test_setup(test_slot_dies, setup),
		cmocka_unit_test_setup(test_limits, setup),
		cmocka_unit_test(test_slots_are_distinct_until_full),
		cmocka_unit_test(test_least_recently_used_first),
		cmocka_unit_test(test_slot_taken_over),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
