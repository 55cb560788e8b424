// SPDX-License-Identifier: BSD-2-Clause
/*
 * fault.c: parses fault rules and decides, packet by packet. Carrying the verdict out is the
 * link's matter.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/bytes.h"
#include "util/clock.h"
#include "util/counters.h"
#include "wire/fault.h"
#include "wire/opcode.h"

#define DEFAULT_DELAY_NS (1 * NSEC_PER_MSEC)
#define MAX_DELAY_NS	 (3600 * NSEC_PER_SEC)

enum fault_kind { KIND_DROP, KIND_DUPLICATE, KIND_REORDER, KIND_DELAY, KIND_CORRUPT, KIND_COUNT };

static const char *const kind_names[KIND_COUNT] = { "drop", "duplicate", "reorder", "delay",
						    "corrupt" };
static const enum counter kind_counters[KIND_COUNT] = { CNT_FAULT_DROP, CNT_FAULT_DUPLICATE,
							CNT_FAULT_REORDER, CNT_FAULT_DELAY,
							CNT_FAULT_CORRUPT };

struct rule {
	enum fault_kind kind;
	enum fault_direction direction;
	double probability; /* used when nth is 0 */
	uint64_t nth, seen;
	uint64_t delay_ns;
	bool match[256]; /* by opcode */
};

struct fault_layer {
	uint64_t random;
	size_t rule_count;
	struct rule rules[];
};

/* xorshift64* */
static uint64_t next_random(struct fault_layer *layer)
{
	layer->random ^= layer->random >> 12;
	layer->random ^= layer->random << 25;
	layer->random ^= layer->random >> 27;
	return layer->random * 0x2545f4914f6cdd1dULL;
}

static bool chance(struct fault_layer *layer, double probability)
{
	return (double)(next_random(layer) >> 11) < probability * (double)(1ULL << 53);
}

/* names that stand for several opcodes */
static const struct {
	const char *name;
	uint32_t all;  /* these OPF_ bits are set */
	uint32_t none; /* and these are not */
	int op;	       /* and the low five bits are this, unless -1 */
} opcode_names[] = {
	{ "send", OPF_SEND, 0, -1 },
	{ "write", OPF_WRITE, 0, -1 },
	{ "read_request", OPF_READ | OPF_REQUEST, 0, -1 },
	{ "read_response", OPF_READ | OPF_RESPONSE, 0, -1 },
	{ "ack", 0, 0, OP_ACKNOWLEDGE },
	{ "atomic", OPF_ATOMIC, 0, -1 },
	{ "first", OPF_START | OPF_PAYLOAD, OPF_END, -1 },
	{ "middle", OPF_PAYLOAD, OPF_START | OPF_END, -1 },
	{ "last", OPF_END | OPF_PAYLOAD, OPF_START, -1 },
	{ "only", OPF_START | OPF_END | OPF_PAYLOAD, 0, -1 },
};

static const char *parse_opcode(struct rule *rule, const char *text)
{
	unsigned long number;
	uint32_t flags;
	size_t i;
	char *end;
	int opcode;

	memset(rule->match, 0, sizeof(rule->match));
	number = strtoul(text, &end, 0);
	if (end != text && !*end) {
		if (number > 0xff)
			return "the opcode is above 0xff";
		rule->match[number] = true;
		return NULL;
	}
	for (i = 0; i < ARRAY_SIZE(opcode_names); i++) {
		if (strcmp(text, opcode_names[i].name))
			continue;
		for (opcode = 0; opcode < 256; opcode++) {
			flags = opcode_table[opcode].flags;
			rule->match[opcode] =
				flags & OPF_VALID && opcode != OPCODE_CNP &&
				(flags & opcode_names[i].all) == opcode_names[i].all &&
				!(flags & opcode_names[i].none) &&
				(opcode_names[i].op < 0 || (opcode & 0x1f) == opcode_names[i].op);
		}
		return NULL;
	}
	return "unknown opcode name (send, write, read_request, read_response, ack, atomic, first, "
	       "middle, last, only, or a number)";
}

static const char *parse_delay(struct rule *rule, const char *text)
{
	static const struct {
		const char *unit;
		double ns;
	} units[] = { { "ns", 1 }, { "us", 1e3 }, { "ms", 1e6 }, { "s", 1e9 } };
	double value, ns;
	size_t i;
	char *end;

	value = strtod(text, &end);
	for (i = 0; i < ARRAY_SIZE(units); i++) {
		if (end == text || strcmp(end, units[i].unit))
			continue;
		ns = value * units[i].ns;
		if (!(ns >= 1 && ns <= (double)MAX_DELAY_NS))
			break;
		rule->delay_ns = (uint64_t)ns;
		return NULL;
	}
	return "the delay must be a time such as 200us or 3ms, at most 3600s";
}

static const char *parse_amount(struct rule *rule, char sign, const char *text)
{
	char *end;

	if (sign == '#') {
		rule->nth = strtoull(text, &end, 10);
		if (end == text || *end || !rule->nth || *text == '-')
			return "after # must stand a number, 1 or more";
		return NULL;
	}
	rule->probability = strtod(text, &end);
	if (end == text || *end || !(rule->probability >= 0 && rule->probability <= 1))
		return "after = must stand a probability, 0 to 1";
	return NULL;
}

/* @item is taken apart in place */
static const char *parse_rule(struct rule *rule, char *item)
{
	char *opcode, *arg, *amount, sign;
	const char *problem;
	size_t len;

	memset(rule, 0, sizeof(*rule));
	memset(rule->match, true, sizeof(rule->match));
	rule->delay_ns = DEFAULT_DELAY_NS;
	if (!strncmp(item, "tx-", 3) || !strncmp(item, "rx-", 3)) {
		rule->direction = *item == 'r' ? FAULT_RX : FAULT_TX;
		item += 3;
	}
	opcode = strchr(item, '@');
	if (opcode) {
		*opcode++ = '\0';
		problem = parse_opcode(rule, opcode);
		if (problem)
			return problem;
	}
	len = strcspn(item, "=#");
	if (!item[len])
		return "neither KIND=PROBABILITY nor KIND#N";
	amount = item + len;
	sign = *amount;
	*amount++ = '\0';
	for (rule->kind = 0; rule->kind < KIND_COUNT; rule->kind++)
		if (!strcmp(item, kind_names[rule->kind]))
			break;
	if (rule->kind == KIND_COUNT)
		return "unknown kind (drop, duplicate, reorder, delay, corrupt)";
	arg = strchr(amount, ':');
	if (arg) {
		*arg++ = '\0';
		if (rule->kind != KIND_DELAY)
			return "only delay takes an argument";
		problem = parse_delay(rule, arg);
		if (problem)
			return problem;
	}
	return parse_amount(rule, sign, amount);
}

static const char *parse_seed(struct fault_layer *layer, const char *text)
{
	uint64_t seed;
	char *end;

	seed = strtoull(text, &end, 0);
	if (end == text || *end)
		return "the seed must be a number";
	/* spread small seeds over all bits; the generator's state may not be 0 */
	layer->random = (seed + 1) * 0x9e3779b97f4a7c15ULL;
	if (!layer->random)
		layer->random = 1;
	return NULL;
}

int fault_parse(struct fault_layer **layer_out, const char *rules, char *error, size_t error_len)
{
	struct fault_layer *layer = NULL;
	const char *problem = NULL;
	char *text, *item, *rest, *shown;
	size_t count = 1, i;
	int ret = -ENOMEM;

	*layer_out = NULL;
	if (!rules || !*rules)
		return 0;
	for (i = 0; rules[i]; i++)
		count += rules[i] == ',';
	text = strdup(rules);
	layer = calloc(1, sizeof(*layer) + count * sizeof(layer->rules[0]));
	if (!text || !layer)
		goto out_fail;
	parse_seed(layer, "1");

	rest = text;
	while ((item = strsep(&rest, ","))) {
		item += strspn(item, " \t");
		item[strcspn(item, " \t\n")] = '\0';
		if (!*item)
			continue;
		shown = strdup(item);
		if (!shown)
			goto out_fail;
		if (!strncmp(item, "seed=", 5))
			problem = parse_seed(layer, item + 5);
		else
			problem = parse_rule(&layer->rules[layer->rule_count++], item);
		if (problem)
			snprintf(error, error_len, "fault rule \"%s\": %s", shown, problem);
		free(shown);
		if (problem) {
			ret = -EINVAL;
			goto out_fail;
		}
	}
	free(text);
	*layer_out = layer;
	return 0;

out_fail:
	if (ret == -ENOMEM)
		snprintf(error, error_len, "fault rules: out of memory");
	free(text);
	free(layer);
	return ret;
}

void fault_free(struct fault_layer *layer)
{
	free(layer);
}

static bool rule_hits(struct fault_layer *layer, struct rule *rule)
{
	if (!rule->nth)
		return chance(layer, rule->probability);
	return ++rule->seen == rule->nth;
}

struct fault_verdict fault_decide(struct fault_layer *layer, enum fault_direction direction,
				  uint8_t opcode)
{
	struct fault_verdict verdict = { 0 };
	struct rule *rule;

	for (rule = layer->rules; rule < layer->rules + layer->rule_count; rule++) {
		if (rule->direction != direction || !rule->match[opcode] || !rule_hits(layer, rule))
			continue;
		counter_inc(kind_counters[rule->kind]);
		switch (rule->kind) {
		case KIND_DROP:
			verdict.drop = true;
			break;
		case KIND_DUPLICATE:
			verdict.duplicate = true;
			break;
		case KIND_REORDER:
			verdict.reorder = true;
			break;
		case KIND_DELAY:
			verdict.delay_ns = rule->delay_ns;
			break;
		case KIND_CORRUPT:
			verdict.corrupt = true;
			verdict.corrupt_bit = (uint32_t)next_random(layer);
			break;
		case KIND_COUNT:
			break;
		}
	}
	return verdict;
}
