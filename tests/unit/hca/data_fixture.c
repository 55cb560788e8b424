/* SPDX-License-Identifier: BSD-2-Clause */
/* data_fixture.c: see data_fixture.h */
#include "data_fixture.h"

struct recorded_event events[16];
int event_count;

static void record(struct hca_context *ctx, enum ibv_event_type type, void *object)
{
	assert_in_range(event_count, 0, 15);
	events[event_count++] = (struct recorded_event){ type, object };
}

void fixture_context(struct hca_context *ctx)
{
	memset(ctx, 0, sizeof(*ctx));
	ctx->event = record;
	event_count = 0;
}

struct packet send_packet(uint32_t flags, const void *payload, uint32_t len)
{
	return (struct packet){
		.flags = OPF_VALID | OPF_REQUEST | OPF_SEND | flags,
		.payload = payload,
		.payload_len = len,
	};
}

/* the tests here have no engine: nobody calls these, the objects refer to them */
void engine_lock(struct engine *engine)
{
	fail();
}

void engine_unlock(struct engine *engine)
{
	fail();
}
