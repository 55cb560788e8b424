// SPDX-License-Identifier: BSD-2-Clause
/*
 * counters.c: the process's counters and, with SOFTHCA_COUNTERS=1, their print-out at exit.
 */
#include "util/counters.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Atomic uint64_t counters[COUNTER_COUNT];

const char *const counter_names[COUNTER_COUNT] = {
#define X(name, text) [name] = text,
	COUNTER_TABLE(X)
#undef X
};

__attribute__((destructor)) static void counters_print_at_exit(void)
{
	const char *env = getenv("SOFTHCA_COUNTERS");

	if (!env || !strcmp(env, "0") || !*env)
		return;
	for (int i = 0; i < COUNTER_COUNT; i++)
		if (counter_get(i))
			fprintf(stderr, "softhca[%d]: %s %llu\n", getpid(), counter_names[i],
				(unsigned long long)counter_get(i));
}
