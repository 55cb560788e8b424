/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * clock.h: the one clock. Tests replace the source and move time themselves.
 */
#ifndef SOFTHCA_UTIL_CLOCK_H
#define SOFTHCA_UTIL_CLOCK_H

#include <stdint.h>

#define NSEC_PER_USEC 1000ULL
#define NSEC_PER_MSEC 1000000ULL
#define NSEC_PER_SEC  1000000000ULL

/* monotonic time, ns */
uint64_t clock_ns(void);

/* tests: take the time from @source; NULL = the real clock again */
void clock_set_source(uint64_t (*source)(void));

#endif
