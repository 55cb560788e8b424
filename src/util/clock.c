// SPDX-License-Identifier: BSD-2-Clause
/*
 * clock.c: the one clock.
 */
#include "util/clock.h"

#include <stddef.h>
#include <time.h>

static uint64_t (*clock_source)(void);

uint64_t clock_ns(void)
{
	struct timespec ts;

	if (__builtin_expect(clock_source != NULL, 0))
		return clock_source();
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * NSEC_PER_SEC + (uint64_t)ts.tv_nsec;
}

void clock_set_source(uint64_t (*source)(void))
{
	clock_source = source;
}
