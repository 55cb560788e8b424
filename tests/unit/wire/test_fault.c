// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_fault.c: the rules' grammar and what they decide.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "util/bytes.h"
#include "util/counters.h"
#include "wire/fault.h"
#include "wire/opcode.h"

static struct fault_layer *parse(const char *rules)
{
	struct fault_layer *layer;
	char error[256];

	assert_int_equal(fault_parse(&layer, rules, error, sizeof(error)), 0);
	assert_non_null(layer);
	return layer;
}

static void test_empty(void **state)
{
	struct fault_layer *layer = (void *)1;
	char error[16];

	assert_int_equal(fault_parse(&layer, "", error, sizeof(error)), 0);
	assert_null(layer);
	assert_int_equal(fault_parse(&layer, NULL, error, sizeof(error)), 0);
	assert_null(layer);
	fault_free(NULL);
}

static void test_bad_rules(void **state)
{
	static const char *const bad[] = {
		"drop",		"drop=",	"drop=2",      "drop=-0.1",	"drop=x",
		"drop=nan",	"drop#0",	"drop#",       "drop#-1",	"drop#2x",
		"drp=1",	"drop=1:3ms",	"delay=1:3",   "delay=1:xs",	"delay=1:-3ms",
		"delay=1:9e9s", "drop=1@0x100", "drop=1@none", "seed=",		"seed=x",
		"=1",		"rx-=1",	"xx-drop=1",   "drop=0.1,oops", "drop=1@",
	};
	struct fault_layer *layer;
	char error[256], item[64];
	size_t i;

	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		layer = (void *)1;
		error[0] = '\0';
		assert_int_equal(fault_parse(&layer, bad[i], error, sizeof(error)), -EINVAL);
		assert_null(layer);
		/* the text names the item */
		snprintf(item, sizeof(item), "\"%s\"",
			 strchr(bad[i], ',') ? strchr(bad[i], ',') + 1 : bad[i]);
		assert_non_null(strstr(error, item));
	}
}

static void test_nth(void **state)
{
	struct fault_layer *layer = parse("drop#3,rx-duplicate#1@ack,delay#2:200us@0x0a");
	uint64_t drops = counter_get(CNT_FAULT_DROP);
	struct fault_verdict v;
	int i;

	for (i = 1; i <= 10; i++) {
		v = fault_decide(layer, FAULT_TX, OP_WRITE_ONLY);
		assert_int_equal(v.drop, i == 3);
		assert_int_equal(v.delay_ns, i == 2 ? 200000 : 0);
		assert_false(v.duplicate || v.reorder || v.corrupt);
	}
	assert_int_equal(counter_get(CNT_FAULT_DROP) - drops, 1);
	assert_false(fault_decide(layer, FAULT_RX, OP_SEND_ONLY).duplicate);
	assert_false(fault_decide(layer, FAULT_TX, OP_ACKNOWLEDGE).duplicate);
	assert_true(fault_decide(layer, FAULT_RX, OP_ACKNOWLEDGE).duplicate);
	assert_false(fault_decide(layer, FAULT_RX, OP_ACKNOWLEDGE).duplicate);
	fault_free(layer);
}

static unsigned int matches(const char *name)
{
	char rules[64];
	struct fault_layer *layer;
	unsigned int count = 0;
	int opcode;

	snprintf(rules, sizeof(rules), "drop=1@%s", name);
	layer = parse(rules);
	for (opcode = 0; opcode < 256; opcode++)
		count += fault_decide(layer, FAULT_TX, (uint8_t)opcode).drop;
	fault_free(layer);
	return count;
}

static void test_opcode_names(void **state)
{
	struct fault_layer *layer = parse("drop=1@read_response");

	assert_true(fault_decide(layer, FAULT_TX, OP_READ_RESPONSE_MIDDLE).drop);
	assert_false(fault_decide(layer, FAULT_TX, OP_READ_REQUEST).drop);
	fault_free(layer);
	/* RC and XRC have all, UC has SEND (6) and WRITE (6), UD two SENDs */
	assert_int_equal(matches("send"), 8 + 8 + 6 + 2);
	assert_int_equal(matches("write"), 6 * 3);
	assert_int_equal(matches("read_request"), 2);
	assert_int_equal(matches("read_response"), 8);
	assert_int_equal(matches("ack"), 2);
	assert_int_equal(matches("atomic"), 6);
	assert_int_equal(matches("first"), 3 + 3 + 2);
	assert_int_equal(matches("middle"), 3 + 3 + 2);
	assert_int_equal(matches("0x81"), 1);
	assert_int_equal(matches("4"), 1);
}

static unsigned int run(struct fault_layer *layer, unsigned int rounds, uint64_t *hash)
{
	unsigned int drops = 0, i;

	*hash = 0;
	for (i = 0; i < rounds; i++) {
		bool drop = fault_decide(layer, FAULT_TX, OP_SEND_ONLY).drop;

		drops += drop;
		*hash = *hash * 31 + drop;
	}
	fault_free(layer);
	return drops;
}

/* the seed makes it repeatable, another makes it different; the rate is about right */
static void test_probability(void **state)
{
	uint64_t first, again, other;
	unsigned int drops;

	drops = run(parse("seed=7,drop=0.1"), 100000, &first);
	assert_in_range(drops, 9500, 10500);
	run(parse("drop=0.1,seed=7"), 100000, &again);
	run(parse("seed=8,drop=0.1"), 100000, &other);
	assert_true(first == again);
	assert_true(first != other);
	assert_int_equal(run(parse("drop=0"), 1000, &first), 0);
	assert_int_equal(run(parse(" drop=1 , seed=0"), 1000, &first), 1000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_empty),	    cmocka_unit_test(test_bad_rules),
		cmocka_unit_test(test_nth),	    cmocka_unit_test(test_opcode_names),
		cmocka_unit_test(test_probability),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
