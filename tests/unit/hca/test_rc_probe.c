// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_rc_probe.c: a requester that hears nothing asks long before the local ACK timeout: lost last
 * packets, acknowledgements, NAKs and READ responses. No retry is used, and the timeout keeps its
 * meaning.
 */
#include <string.h>

#include "qp_fixture.h"
#include "util/bytes.h"

#define TIMEOUT_14_NS (4096ULL << 14)
#define PROBE_NS      (2 * NSEC_PER_MSEC)

/* drop the packets of @opcode with bit n set in @lost, n = 0 for the first */
#define ANY_OPCODE 0xff

struct dropper {
	uint8_t opcode;
	uint64_t lost;
	unsigned int seen;
};

static enum fate drop(void *arg, struct link_mem *from, const struct packet *p)
{
	struct dropper *d = arg;
	uint64_t bit;

	if (d->opcode != ANY_OPCODE && p->opcode != d->opcode)
		return FATE_PASS;
	bit = 1ULL << MIN(d->seen, 63U);
	d->seen++;
	return d->lost & bit ? FATE_DROP : FATE_PASS;
}

static void set_dropper(struct link_mem *link, struct dropper *d)
{
	link->decide = drop;
	link->arg = d;
}

struct counts {
	uint64_t probes, timeouts;
};

static struct counts count_now(void)
{
	return (struct counts){ counter_get(CNT_PROBE), counter_get(CNT_TIMEOUT) };
}

static void expect_counts(const struct counts *before, unsigned int probes, unsigned int timeouts)
{
	struct counts now = count_now();

	assert_int_equal(now.probes - before->probes, probes);
	assert_int_equal(now.timeouts - before->timeouts, timeouts);
}

static void write8(struct pair *pair, unsigned int count)
{
	for (unsigned int i = 0; i < count; i++)
		post(&pair->a, IBV_WR_RDMA_WRITE, i, 0, 8, &pair->b, 0, IBV_SEND_SIGNALED);
	settle(pair);
}

static void expect_writes(struct pair *pair, unsigned int count)
{
	for (unsigned int i = 0; i < count; i++)
		expect_cqe(&pair->a, i, IBV_WC_SUCCESS);
	expect_no_cqe(&pair->a);
}

static void test_lost_tail(void **state)
{
	struct pair pair;
	struct dropper d = { .opcode = OP_WRITE_ONLY, .lost = 1 };
	struct counts before = count_now();

	pair_open(&pair, &(struct setup){ .retry_cnt = 1 });
	set_dropper(pair.a.link, &d);
	write8(&pair, 1);
	advance(&pair, PROBE_NS - 1000);
	expect_writes(&pair, 0);
	advance(&pair, 1000);
	expect_writes(&pair, 1);
	expect_counts(&before, 1, 0);
	assert_int_equal(pair.a.qp->req.retries_left, 1);
	/* an idle QP has no timer, when the heap has noticed */
	advance(&pair, TIMEOUT_14_NS);
	assert_int_equal(pair.a.engine->timer_count, 0);
	assert_int_equal(link_mem_count(pair.a.link, OP_WRITE_ONLY), 2);
	pair_close(&pair);
}

/* the last three of five: the probe is the newest, its NAK names the first that is missing */
static void test_lost_tail_of_several(void **state)
{
	struct pair pair;
	struct dropper d = { .opcode = OP_WRITE_ONLY, .lost = 7 << 2 };
	struct counts before = count_now();

	pair_open(&pair, &(struct setup){ .a_psn = 100 });
	set_dropper(pair.a.link, &d);
	write8(&pair, 5);
	advance(&pair, PROBE_NS);
	expect_writes(&pair, 5);
	expect_counts(&before, 1, 0);
	assert_int_equal(link_mem_count(pair.a.link, OP_WRITE_ONLY), 5 + 1 + 3);
	assert_int_equal(link_mem_find(pair.a.link, OP_WRITE_ONLY, 5)->psn, 104);
	assert_true(link_mem_find(pair.a.link, OP_WRITE_ONLY, 5)->ack_req);
	for (unsigned int i = 0; i < 3; i++)
		assert_int_equal(link_mem_find(pair.a.link, OP_WRITE_ONLY, 6 + i)->psn, 102 + i);
	pair_close(&pair);
}

/* the probe is a duplicate: not executed, acknowledged again */
static void test_lost_ack(void **state)
{
	struct pair pair;
	struct dropper d = { .opcode = OP_ACKNOWLEDGE, .lost = 1 };
	struct counts before = count_now();

	pair_open(&pair, NULL);
	set_dropper(pair.b.link, &d);
	post_recv(&pair.b, 7, 0, 100);
	post_recv(&pair.b, 8, 0, 100);
	post(&pair.a, IBV_WR_SEND, 1, 0, 100, &pair.b, 0, IBV_SEND_SIGNALED);
	settle(&pair);
	expect_cqe(&pair.b, 7, IBV_WC_SUCCESS);
	advance(&pair, PROBE_NS);
	expect_cqe(&pair.a, 1, IBV_WC_SUCCESS);
	expect_no_cqe(&pair.b);
	expect_counts(&before, 1, 0);
	pair_close(&pair);
}

/* a responder whose NAK was lost is silent until the packet that it misses comes: the second probe
 * has that one as well */
static void test_lost_nak(void **state)
{
	struct pair pair;
	struct dropper requests = { .opcode = OP_WRITE_ONLY, .lost = 1 };
	struct dropper naks = { .opcode = OP_ACKNOWLEDGE, .lost = 1 };
	struct counts before = count_now();

	pair_open(&pair, NULL);
	set_dropper(pair.a.link, &requests);
	set_dropper(pair.b.link, &naks);
	write8(&pair, 4);
	assert_int_equal(pair.b.link->log[0].syndrome, AETH_NAK_SEQUENCE);
	advance(&pair, PROBE_NS);
	expect_writes(&pair, 0);
	advance(&pair, 2 * PROBE_NS - 1000);
	expect_writes(&pair, 0);
	advance(&pair, 1000);
	expect_writes(&pair, 4);
	expect_counts(&before, 2, 0);
	assert_int_equal(link_mem_find(pair.a.link, OP_WRITE_ONLY, 4)->psn, 3);
	assert_int_equal(link_mem_find(pair.a.link, OP_WRITE_ONLY, 5)->psn, 0);
	assert_int_equal(link_mem_find(pair.a.link, OP_WRITE_ONLY, 6)->psn, 3);
	pair_close(&pair);
}

/* a multi-packet SEND: the probe is its LAST */
static void test_lost_last(void **state)
{
	struct pair pair;
	struct dropper d = { .opcode = OP_SEND_LAST, .lost = 1 };

	pair_open(&pair, NULL);
	set_dropper(pair.a.link, &d);
	fill(&pair.a, 0, 3000, 1);
	post_recv(&pair.b, 7, 0, 3000);
	post(&pair.a, IBV_WR_SEND, 1, 0, 3000, &pair.b, 0, IBV_SEND_SIGNALED);
	settle(&pair);
	advance(&pair, PROBE_NS);
	expect_cqe(&pair.a, 1, IBV_WC_SUCCESS);
	assert_int_equal(expect_cqe(&pair.b, 7, IBV_WC_SUCCESS).byte_len, 3000);
	assert_memory_equal(pair.a.buffer, pair.b.buffer, 3000);
	assert_int_equal(link_mem_count(pair.a.link, OP_SEND_FIRST), 1);
	pair_close(&pair);
}

/* ---- READ ------------------------------------------------------------------ */

static void read_back(struct pair *pair, uint32_t len)
{
	fill(&pair->b, 0, len, 1);
	post(&pair->a, IBV_WR_RDMA_READ, 1, 0, len, &pair->b, 0, IBV_SEND_SIGNALED);
	settle(pair);
	expect_no_cqe(&pair->a);
	advance(pair, PROBE_NS);
	expect_cqe(&pair->a, 1, IBV_WC_SUCCESS);
	assert_memory_equal(pair->a.buffer, pair->b.buffer, len);
	assert_int_equal(pair->a.engine->read_bytes, 0);
	assert_int_equal(pair->a.qp->req.reads, 0);
}

static void test_lost_last_response(void **state)
{
	struct pair pair;
	struct dropper d = { .opcode = OP_READ_RESPONSE_LAST, .lost = 1 };
	struct counts before = count_now();
	const struct sent_packet *again;

	pair_open(&pair, &(struct setup){ .a_psn = 50 });
	set_dropper(pair.b.link, &d);
	read_back(&pair, 3000);
	/* the last packet alone was asked for */
	assert_int_equal(link_mem_count(pair.a.link, OP_READ_REQUEST), 2);
	again = link_mem_find(pair.a.link, OP_READ_REQUEST, 1);
	assert_int_equal(again->psn, 52);
	assert_int_equal(again->dma_len, 3000 - 2048);
	assert_true(again->va == (uintptr_t)pair.b.buffer + 2048);
	assert_int_equal(link_mem_count(pair.b.link, OP_READ_RESPONSE_ONLY), 1);
	expect_counts(&before, 1, 0);
	pair_close(&pair);
}

/* the last two of five responses: the probe asks for both. rxe would never answer for the first of
 * them once it was asked for the second alone */
static void test_lost_end_of_read(void **state)
{
	struct pair pair;
	struct dropper d = { .opcode = ANY_OPCODE, .lost = 1 << 3 | 1 << 4 };
	const struct sent_packet *again;

	pair_open(&pair, &(struct setup){ .a_psn = 50 });
	set_dropper(pair.b.link, &d);
	read_back(&pair, 5000);
	assert_int_equal(link_mem_count(pair.a.link, OP_READ_REQUEST), 2);
	again = link_mem_find(pair.a.link, OP_READ_REQUEST, 1);
	assert_int_equal(again->psn, 53);
	assert_int_equal(again->dma_len, 5000 - 3 * 1024);
	assert_true(again->va == (uintptr_t)pair.b.buffer + 3 * 1024);
	pair_close(&pair);
}

/* all of it, request or responses, also when it was asked for in several pieces (256 packets) */
static void test_lost_read(void **state)
{
	struct dropper request = { .opcode = OP_READ_REQUEST, .lost = 1 };
	struct dropper requests = { .opcode = OP_READ_REQUEST, .lost = 7 };
	struct dropper response = { .opcode = OP_READ_RESPONSE_ONLY, .lost = 1 };
	struct pair pair;

	pair_open(&pair, NULL);
	set_dropper(pair.a.link, &request);
	read_back(&pair, 3000);
	pair_close(&pair);

	pair_open(&pair, NULL);
	set_dropper(pair.a.link, &requests);
	read_back(&pair, 700 << 10);
	pair_close(&pair);

	pair_open(&pair, NULL);
	set_dropper(pair.b.link, &response);
	read_back(&pair, 1000);
	pair_close(&pair);
}

/* the probe is a WRITE behind a READ whose response was lost: its ACK implies that */
static void test_lost_response_before_write(void **state)
{
	struct dropper responses = { .opcode = OP_READ_RESPONSE_ONLY, .lost = 1 };
	struct pair pair;

	pair_open(&pair, NULL);
	set_dropper(pair.b.link, &responses);
	fill(&pair.b, 0, 100, 1);
	post(&pair.a, IBV_WR_RDMA_READ, 1, 0, 100, &pair.b, 0, IBV_SEND_SIGNALED);
	engine_poll(pair.a.engine);
	engine_poll(pair.b.engine);
	responses.opcode = OP_ACKNOWLEDGE;
	responses.seen = 0;
	post(&pair.a, IBV_WR_RDMA_WRITE, 2, 200, 100, &pair.b, 200, IBV_SEND_SIGNALED);
	settle(&pair);
	expect_no_cqe(&pair.a);
	advance(&pair, PROBE_NS);
	expect_cqe(&pair.a, 1, IBV_WC_SUCCESS);
	expect_cqe(&pair.a, 2, IBV_WC_SUCCESS);
	assert_memory_equal(pair.a.buffer, pair.b.buffer, 100);
	pair_close(&pair);
}

/* a responder that is in the middle of a READ goes on; it does not begin at the probe's packet and
 * leave out what is before */
static void test_probe_of_read_in_execution(void **state)
{
	struct pair pair;
	uint64_t duplicates = counter_get(CNT_DUPLICATE_READ);

	pair_open(&pair, NULL);
	fill(&pair.b, 0, 20 << 10, 1);
	pair.b.link->full_after = 5;
	post(&pair.a, IBV_WR_RDMA_READ, 1, 0, 20 << 10, &pair.b, 0, IBV_SEND_SIGNALED);
	engine_poll(pair.a.engine);
	engine_poll(pair.b.engine);
	engine_poll(pair.a.engine);
	test_now_ns += PROBE_NS;
	engine_poll(pair.a.engine);
	assert_int_equal(link_mem_count(pair.a.link, OP_READ_REQUEST), 2);
	settle(&pair);
	assert_int_equal(counter_get(CNT_DUPLICATE_READ) - duplicates, 1);
	expect_cqe(&pair.a, 1, IBV_WC_SUCCESS);
	assert_memory_equal(pair.a.buffer, pair.b.buffer, 20 << 10);
	assert_int_equal(pair.b.link->log_count, 20);
	pair_close(&pair);
}

/* ---- what stays as it was --------------------------------------------------- */

/* nobody there: retry_cnt + 1 timeouts, each of its full length; five probes before the first */
static void check_retry_exhaustion(uint8_t retry_cnt, unsigned int probes)
{
	unsigned int retries = retry_cnt == ZERO ? 0 : retry_cnt;
	struct pair pair;
	struct dropper d = { .opcode = OP_WRITE_ONLY, .lost = UINT64_MAX };
	struct counts before = count_now();

	pair_open(&pair, &(struct setup){ .retry_cnt = retry_cnt });
	set_dropper(pair.a.link, &d);
	write8(&pair, 1);
	for (unsigned int i = 0; i < retries; i++) {
		for (uint64_t ns = 0; ns < TIMEOUT_14_NS; ns += NSEC_PER_MSEC / 2)
			advance(&pair, MIN(NSEC_PER_MSEC / 2, TIMEOUT_14_NS - ns));
		expect_counts(&before, probes, i + 1);
	}
	advance(&pair, TIMEOUT_14_NS - 1);
	expect_writes(&pair, 0);
	advance(&pair, 1);
	expect_cqe(&pair.a, 0, IBV_WC_RETRY_EXC_ERR);
	expect_counts(&before, probes, retries + 1);
	assert_int_equal(link_mem_count(pair.a.link, OP_WRITE_ONLY), 1 + probes + retries);
	pair_close(&pair);
}

static void test_retry_exhaustion(void **state)
{
	check_retry_exhaustion(1, 5);
	check_retry_exhaustion(7, 5);
	/* who may not retry sends nothing twice */
	check_retry_exhaustion(ZERO, 0);
}

static void test_none_in_rnr_wait(void **state)
{
	struct pair pair;
	struct counts before = count_now();

	pair_open(&pair, &(struct setup){ .min_rnr_timer = 26 }); /* 81.92 ms */
	post(&pair.a, IBV_WR_SEND, 1, 0, 8, &pair.b, 0, IBV_SEND_SIGNALED);
	settle(&pair);
	for (unsigned int ms = 0; ms < 81; ms++)
		advance(&pair, NSEC_PER_MSEC);
	assert_int_equal(link_mem_count(pair.a.link, OP_SEND_ONLY), 1);
	expect_counts(&before, 0, 0);
	post_recv(&pair.b, 7, 0, 8);
	advance(&pair, NSEC_PER_MSEC);
	expect_cqe(&pair.a, 1, IBV_WC_SUCCESS);
	pair_close(&pair);
}

/* no local ACK timeout: no probe either */
static void test_none_without_timeout(void **state)
{
	struct pair pair;
	struct dropper d = { .opcode = OP_WRITE_ONLY, .lost = 1 };

	pair_open(&pair, &(struct setup){ .timeout = ZERO });
	set_dropper(pair.a.link, &d);
	write8(&pair, 1);
	assert_int_equal(pair.a.engine->timer_count, 0);
	pair_close(&pair);
}

/* a timeout shorter than the first probe */
static void test_short_timeout(void **state)
{
	struct pair pair;
	struct dropper d = { .opcode = OP_WRITE_ONLY, .lost = 1 };
	struct counts before = count_now();

	pair_open(&pair, &(struct setup){ .timeout = 1 }); /* 8 us, made 1 ms */
	set_dropper(pair.a.link, &d);
	write8(&pair, 1);
	advance(&pair, NSEC_PER_MSEC);
	expect_writes(&pair, 1);
	expect_counts(&before, 0, 1);
	pair_close(&pair);
}

/* a peer that answers after 5 ms, always: probes cease when that is known */
static void test_slow_peer(void **state)
{
	struct pair pair;
	struct counts before;

	pair_open(&pair, NULL);
	for (unsigned int i = 0; i < 20; i++) {
		if (i == 10)
			before = count_now();
		post(&pair.a, IBV_WR_RDMA_WRITE, i, 0, 8, &pair.b, 0, IBV_SEND_SIGNALED);
		for (unsigned int ms = 0; ms < 5; ms++) {
			engine_poll(pair.a.engine);
			test_now_ns += NSEC_PER_MSEC;
		}
		engine_poll(pair.b.engine);
		settle(&pair);
		expect_cqe(&pair.a, i, IBV_WC_SUCCESS);
	}
	expect_counts(&before, 0, 0);
	assert_in_range(pair.a.qp->req.rtt_ns, 4 * NSEC_PER_MSEC, 6 * NSEC_PER_MSEC);
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lost_tail),
		cmocka_unit_test(test_lost_tail_of_several),
		cmocka_unit_test(test_lost_ack),
		cmocka_unit_test(test_lost_nak),
		cmocka_unit_test(test_lost_last),
		cmocka_unit_test(test_lost_last_response),
		cmocka_unit_test(test_lost_end_of_read),
		cmocka_unit_test(test_lost_read),
		cmocka_unit_test(test_lost_response_before_write),
		cmocka_unit_test(test_probe_of_read_in_execution),
		cmocka_unit_test(test_retry_exhaustion),
		cmocka_unit_test(test_none_in_rnr_wait),
		cmocka_unit_test(test_none_without_timeout),
		cmocka_unit_test(test_short_timeout),
		cmocka_unit_test(test_slow_peer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
