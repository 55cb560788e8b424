/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * data_fixture.h: what the tests of the adapter's data structures (memory, CQs, receive queues)
 * share: a context without an engine, whose asynchronous events are recorded.
 */
#ifndef TESTS_UNIT_HCA_DATA_FIXTURE_H
#define TESTS_UNIT_HCA_DATA_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "hca/recv_queue.h"

struct recorded_event {
	enum ibv_event_type type;
	void *object;
};

extern struct recorded_event events[16];
extern int event_count;

void fixture_context(struct hca_context *ctx);

/* a packet of a SEND; @flags: OPF_START, OPF_END, HDR_IMM, HDR_IETH */
struct packet send_packet(uint32_t flags, const void *payload, uint32_t len);

#endif
