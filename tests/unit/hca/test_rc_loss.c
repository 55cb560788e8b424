// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_rc_loss.c: what a reliable connection does about lost, repeated and reordered packets:
 * sequence NAKs, timeouts, RNR NAKs, duplicates, lost READ responses. IBTA 1.4, 9.7.5-9.7.6.
 */
#include <string.h>

#include "qp_fixture.h"
#include "util/bytes.h"

#define TIMEOUT_14_NS (4096ULL << 14)

/* drop the @count packets of @opcode from the @nth on (0 = first) */
struct dropper {
	uint8_t opcode;
	unsigned int nth, count, seen;
	enum fate fate;
};

static enum fate drop_nth(void *arg, struct link_mem *from, const struct packet *p)
{
	struct dropper *d = arg;

	if (p->opcode != d->opcode)
		return FATE_PASS;
	d->seen++;
	if (d->seen <= d->nth || d->seen > d->nth + d->count)
		return FATE_PASS;
	return d->fate ? d->fate : FATE_DROP;
}

static void set_dropper(struct link_mem *link, struct dropper *d)
{
	link->decide = d ? drop_nth : NULL;
	link->arg = d;
}

/* T13: packet k of a 10-packet WRITE is lost, two WRITEs before it are not acknowledged: one NAK
 * completes those two, sending resumes at k */
static void test_sequence_nak(void **state)
{
	struct pair pair;
	struct dropper d = { .opcode = OP_WRITE_MIDDLE, .nth = 3, .count = 1 };
	const struct sent_packet *nak;
	uint64_t naks = counter_get(CNT_NAK_SEQ_RX);

	pair_open(&pair, &(struct setup){ .a_psn = 1000 });
	fill(&pair.a, 0, 20000, 1);
	set_dropper(pair.a.link, &d);
	post(&pair.a, IBV_WR_RDMA_WRITE, 1, 0, 100, &pair.b, 0, IBV_SEND_SIGNALED);
	post(&pair.a, IBV_WR_RDMA_WRITE, 2, 0, 100, &pair.b, 0, IBV_SEND_SIGNALED);
	post(&pair.a, IBV_WR_RDMA_WRITE, 3, 0, 10240, &pair.b, 0, IBV_SEND_SIGNALED);
	settle(&pair);
	/* 1000, 1001: the small ones; 1002..1011; the fourth MIDDLE is 1006 */
	nak = link_mem_find(pair.b.link, OP_ACKNOWLEDGE, 0);
	while (nak->syndrome != AETH_NAK_SEQUENCE)
		nak++;
	assert_int_equal(nak->psn, 1006);
	assert_int_equal(nak->msn, 2);
	assert_int_equal(counter_get(CNT_NAK_SEQ_RX) - naks, 1);
	/* the packet and all after it once more */
	assert_int_equal(link_mem_count(pair.a.link, OP_WRITE_FIRST), 1);
	assert_int_equal(link_mem_count(pair.a.link, OP_WRITE_MIDDLE), 8 + 5);
	for (unsigned int i = 0; i < 5; i++)
		assert_int_equal(link_mem_find(pair.a.link, OP_WRITE_MIDDLE, 8 + i)->psn, 1006 + i);
	expect_cqe(&pair.a, 1, IBV_WC_SUCCESS);
	expect_cqe(&pair.a, 2, IBV_WC_SUCCESS);
	expect_cqe(&pair.a, 3, IBV_WC_SUCCESS);
	assert_memory_equal(pair.b.buffer, pair.a.buffer, 10240);
	pair_close(&pair);
}

/* future packets: one NAK, then silence until the expected one was there */
static void test_one_nak_only(void **state)
{
	struct pair pair;
	struct packet p = {
		.opcode = OP_WRITE_ONLY,
		.pkey = PKEY_DEFAULT,
		.ack_req = true,
	};

	pair_open(&pair, NULL);
	p.dest_qpn = qp_num(pair.b.qp);
	p.sgid = pair.a.gid;
	p.dgid = pair.b.gid;
	for (p.psn = 2; p.psn < 6; p.psn++)
		link_mem_inject(pair.b.link, &p, NULL);
	settle(&pair);
	assert_int_equal(pair.b.link->log_count, 1);
	assert_int_equal(pair.b.link->log[0].syndrome, AETH_NAK_SEQUENCE);
	assert_int_equal(pair.b.link->log[0].psn, 0);
	/* the expected one re-arms */
	p.psn = 0;
	link_mem_inject(pair.b.link, &p, NULL);
	settle(&pair);
	assert_int_equal(pair.b.link->log[1].syndrome, AETH_ACK_NO_CREDIT);
	p.psn = 7;
	link_mem_inject(pair.b.link, &p, NULL);
	settle(&pair);
	assert_int_equal(pair.b.link->log_count, 3);
	assert_int_equal(pair.b.link->log[2].syndrome, AETH_NAK_SEQUENCE);
	assert_int_equal(pair.b.link->log[2].psn, 1);
	pair_close(&pair);
}

/* the last packet is lost, and the probes (test_rc_probe.c) are: nothing but the timer notices */
static void test_timeout(void **state)
{
	struct pair pair;
	struct dropper d = { .opcode = OP_WRITE_ONLY, .count = 2 };

	pair_open(&pair, NULL);
	set_dropper(pair.a.link, &d);
	post(&pair.a, IBV_WR_RDMA_WRITE, 1, 0, 100, &pair.b, 0, IBV_SEND_SIGNALED);
	settle(&pair);
	advance(&pair, TIMEOUT_14_NS - 1000);
	expect_no_cqe(&pair.a);
	advance(&pair, 2000);
	expect_cqe(&pair.a, 1, IBV_WC_SUCCESS);
	assert_int_equal(link_mem_count(pair.a.link, OP_WRITE_ONLY), 3);
	/* nothing is left to wait for */
	advance(&pair, 10 * TIMEOUT_14_NS);
	assert_int_equal(pair.a.engine->timer_count, 0);
	pair_close(&pair);
}

/* a lost ACK: the repeated packet is a duplicate, is not executed, and is acknowledged again */
static void test_lost_ack(void **state)
{
	struct pair pair;
	struct dropper d = { .opcode = OP_ACKNOWLEDGE, .count = 1 };

	pair_open(&pair, NULL);
	set_dropper(pair.b.link, &d);
	post_recv(&pair.b, 7, 0, 100);
	post_recv(&pair.b, 8, 0, 100);
	post(&pair.a, IBV_WR_SEND, 1, 0, 100, &pair.b, 0, IBV_SEND_SIGNALED);
	settle(&pair);
	expect_no_cqe(&pair.a);
	expect_cqe(&pair.b, 7, IBV_WC_SUCCESS);
	advance(&pair, TIMEOUT_14_NS + 1);
	expect_cqe(&pair.a, 1, IBV_WC_SUCCESS);
	expect_no_cqe(&pair.b);
	assert_int_equal(pair.b.link->log[1].psn, 0);
	assert_int_equal(pair.b.link->log[1].msn, 1);
	pair_close(&pair);
}

/* retry_cnt is exact, also 7 */
static void check_retry_count(uint8_t retry_cnt, unsigned int sent)
{
	struct pair pair;
	struct dropper d = { .opcode = OP_WRITE_ONLY, .count = 100 };

	pair_open(&pair, &(struct setup){ .retry_cnt = retry_cnt });
	set_dropper(pair.a.link, &d);
	post(&pair.a, IBV_WR_RDMA_WRITE, 1, 0, 100, &pair.b, 0, 0);
	post(&pair.a, IBV_WR_SEND, 2, 0, 100, &pair.b, 0, 0);
	post_recv(&pair.a, 3, 0, 100);
	for (unsigned int i = 0; i < 10; i++)
		advance(&pair, TIMEOUT_14_NS + 1);
	assert_int_equal(link_mem_count(pair.a.link, OP_WRITE_ONLY), sent);
	expect_cqe(&pair.a, 1, IBV_WC_RETRY_EXC_ERR);
	expect_cqe(&pair.a, 2, IBV_WC_WR_FLUSH_ERR);
	expect_cqe(&pair.a, 3, IBV_WC_WR_FLUSH_ERR);
	expect_no_cqe(&pair.a);
	assert_int_equal(qp_state(pair.a.qp), IBV_QPS_ERR);
	pair_close(&pair);
}

static void test_retry_count(void **state)
{
	check_retry_count(ZERO, 1);
	check_retry_count(1, 2);
	check_retry_count(7, 8);
}

/* timeout 0: no timer */
static void test_no_timeout(void **state)
{
	struct pair pair;
	struct dropper d = { .opcode = OP_WRITE_ONLY, .count = 1 };

	pair_open(&pair, &(struct setup){ .timeout = ZERO });
	set_dropper(pair.a.link, &d);
	post(&pair.a, IBV_WR_RDMA_WRITE, 1, 0, 100, &pair.b, 0, 0);
	settle(&pair);
	assert_int_equal(pair.a.engine->timer_count, 0);
	advance(&pair, 1000 * NSEC_PER_SEC);
	expect_no_cqe(&pair.a);
	pair_close(&pair);
}

/* progress re-arms the retries */
static void test_progress_rearms_retries(void **state)
{
	struct pair pair;
	struct dropper d = { .opcode = OP_WRITE_ONLY, .count = 1 };

	pair_open(&pair, &(struct setup){ .retry_cnt = 1 });
	set_dropper(pair.a.link, &d);
	for (unsigned int i = 0; i < 5; i++) {
		d.seen = 0;
		post(&pair.a, IBV_WR_RDMA_WRITE, i, 0, 100, &pair.b, 0, IBV_SEND_SIGNALED);
		settle(&pair);
		advance(&pair, TIMEOUT_14_NS + 1);
		expect_cqe(&pair.a, i, IBV_WC_SUCCESS);
	}
	pair_close(&pair);
}

/* ---- RNR ------------------------------------------------------------------- */

static void test_rnr(void **state)
{
	struct pair pair;

	pair_open(&pair, &(struct setup){ .min_rnr_timer = 12 });
	post(&pair.a, IBV_WR_SEND, 1, 0, 100, &pair.b, 0, IBV_SEND_SIGNALED);
	post(&pair.a, IBV_WR_SEND, 2, 0, 100, &pair.b, 0, IBV_SEND_SIGNALED);
	settle(&pair);
	/* one RNR NAK; the packet behind it is dropped in silence */
	assert_int_equal(pair.b.link->log_count, 1);
	assert_int_equal(pair.b.link->log[0].syndrome, AETH_RNR_NAK | 12);
	assert_int_equal(pair.b.link->log[0].psn, 0);
	assert_int_equal(link_mem_count(pair.a.link, OP_SEND_ONLY), 2);
	post_recv(&pair.b, 7, 0, 100);
	post_recv(&pair.b, 8, 0, 100);
	advance(&pair, 639 * NSEC_PER_USEC);
	expect_no_cqe(&pair.b);
	advance(&pair, 2 * NSEC_PER_USEC);
	expect_cqe(&pair.b, 7, IBV_WC_SUCCESS);
	expect_cqe(&pair.b, 8, IBV_WC_SUCCESS);
	expect_cqe(&pair.a, 1, IBV_WC_SUCCESS);
	expect_cqe(&pair.a, 2, IBV_WC_SUCCESS);
	pair_close(&pair);
}

/* T7: rnr_retry 0 fails after one NAK, 1 after two, 7 never */
static void check_rnr_retry(uint8_t rnr_retry, unsigned int naks)
{
	struct pair pair;

	pair_open(&pair, &(struct setup){ .rnr_retry = rnr_retry });
	post(&pair.a, IBV_WR_SEND, 1, 0, 100, &pair.b, 0, 0);
	for (unsigned int i = 0; i < 20; i++)
		advance(&pair, NSEC_PER_MSEC);
	assert_int_equal(link_mem_count(pair.b.link, OP_ACKNOWLEDGE), naks);
	expect_cqe(&pair.a, 1, IBV_WC_RNR_RETRY_EXC_ERR);
	pair_close(&pair);
}

static void test_rnr_retry(void **state)
{
	struct pair pair;

	check_rnr_retry(ZERO, 1);
	check_rnr_retry(1, 2);
	check_rnr_retry(6, 7);
	pair_open(&pair, &(struct setup){ .rnr_retry = 7, .retry_cnt = 1 });
	post(&pair.a, IBV_WR_SEND, 1, 0, 100, &pair.b, 0, IBV_SEND_SIGNALED);
	for (unsigned int i = 0; i < 3000; i++)
		advance(&pair, 10 * NSEC_PER_MSEC);
	expect_no_cqe(&pair.a);
	post_recv(&pair.b, 7, 0, 100);
	advance(&pair, NSEC_PER_MSEC);
	expect_cqe(&pair.a, 1, IBV_WC_SUCCESS);
	pair_close(&pair);
}

/* rxe answers packets behind an RNR NAK with a sequence NAK: the time must be waited all the same
 */
static void test_rnr_ignores_sequence_nak(void **state)
{
	struct pair pair;
	struct packet p = { .opcode = OP_ACKNOWLEDGE,
			    .pkey = PKEY_DEFAULT,
			    .syndrome = AETH_NAK_SEQUENCE };

	pair_open(&pair, &(struct setup){ .retry_cnt = ZERO });
	post(&pair.a, IBV_WR_SEND, 1, 0, 100, &pair.b, 0, IBV_SEND_SIGNALED);
	settle(&pair);
	p.dest_qpn = qp_num(pair.a.qp);
	p.sgid = pair.b.gid;
	p.dgid = pair.a.gid;
	link_mem_inject(pair.a.link, &p, NULL);
	settle(&pair);
	assert_int_equal(link_mem_count(pair.a.link, OP_SEND_ONLY), 1);
	assert_int_equal(qp_state(pair.a.qp), IBV_QPS_RTS);
	post_recv(&pair.b, 7, 0, 100);
	advance(&pair, NSEC_PER_MSEC);
	expect_cqe(&pair.a, 1, IBV_WC_SUCCESS);
	pair_close(&pair);
}

/* code 0 is the longest time, 655.36 ms */
static void test_rnr_timer_code_0(void **state)
{
	struct pair pair;

	pair_open(&pair, &(struct setup){ .min_rnr_timer = ZERO });
	post(&pair.a, IBV_WR_SEND, 1, 0, 100, &pair.b, 0, IBV_SEND_SIGNALED);
	settle(&pair);
	post_recv(&pair.b, 7, 0, 100);
	advance(&pair, 655 * NSEC_PER_MSEC);
	expect_no_cqe(&pair.a);
	advance(&pair, NSEC_PER_MSEC);
	expect_cqe(&pair.a, 1, IBV_WC_SUCCESS);
	pair_close(&pair);
}

/* WRITE with immediate: refused at the packet with the immediate, not before */
static void test_rnr_write_imm(void **state)
{
	struct pair pair;

	pair_open(&pair, NULL);
	fill(&pair.a, 0, 3000, 1);
	post(&pair.a, IBV_WR_RDMA_WRITE_WITH_IMM, 1, 0, 3000, &pair.b, 0, IBV_SEND_SIGNALED);
	settle(&pair);
	assert_int_equal(pair.b.link->log[0].syndrome, AETH_RNR_NAK | 12);
	assert_int_equal(pair.b.link->log[0].psn, 2);
	post_recv(&pair.b, 7, 0, 0);
	advance(&pair, NSEC_PER_MSEC);
	assert_int_equal(expect_cqe(&pair.b, 7, IBV_WC_SUCCESS).byte_len, 3000);
	expect_cqe(&pair.a, 1, IBV_WC_SUCCESS);
	assert_int_equal(link_mem_count(pair.a.link, OP_WRITE_FIRST), 1);
	assert_int_equal(link_mem_count(pair.a.link, OP_WRITE_LAST_IMM), 2);
	assert_memory_equal(pair.b.buffer, pair.a.buffer, 3000);
	pair_close(&pair);
}

/* ---- READ ------------------------------------------------------------------ */

/* a lost response: asked for again from there, with VA, length and PSN moved on */
static void test_lost_read_response(void **state)
{
	struct pair pair;
	struct dropper d = { .opcode = OP_READ_RESPONSE_MIDDLE, .nth = 2, .count = 1 };
	const struct sent_packet *again;

	pair_open(&pair, &(struct setup){ .a_psn = 50 });
	fill(&pair.b, 0, 10240, 1);
	set_dropper(pair.b.link, &d);
	post(&pair.a, IBV_WR_RDMA_READ, 1, 0, 10240, &pair.b, 0, IBV_SEND_SIGNALED);
	settle(&pair);
	expect_cqe(&pair.a, 1, IBV_WC_SUCCESS);
	assert_int_equal(link_mem_count(pair.a.link, OP_READ_REQUEST), 2);
	again = link_mem_find(pair.a.link, OP_READ_REQUEST, 1);
	assert_int_equal(again->psn, 53);
	assert_int_equal(again->dma_len, 7 * 1024);
	assert_true(again->va == (uintptr_t)pair.b.buffer + 3072);
	assert_memory_equal(pair.a.buffer, pair.b.buffer, 10240);
	pair_close(&pair);
}

static void test_lost_read_request(void **state)
{
	struct pair pair;
	struct dropper d = { .opcode = OP_READ_REQUEST, .count = 1 };

	pair_open(&pair, NULL);
	fill(&pair.b, 0, 3000, 1);
	set_dropper(pair.a.link, &d);
	post(&pair.a, IBV_WR_RDMA_READ, 1, 0, 3000, &pair.b, 0, IBV_SEND_SIGNALED);
	settle(&pair);
	expect_no_cqe(&pair.a);
	advance(&pair, TIMEOUT_14_NS + 1);
	expect_cqe(&pair.a, 1, IBV_WC_SUCCESS);
	assert_memory_equal(pair.a.buffer, pair.b.buffer, 3000);
	pair_close(&pair);
}

/* all responses are lost: the duplicate READ is executed again, with the data as they are now */
static void test_duplicate_read(void **state)
{
	struct pair pair;
	struct dropper d = { .opcode = OP_READ_RESPONSE_ONLY, .count = 1 };

	pair_open(&pair, NULL);
	fill(&pair.b, 0, 1000, 1);
	set_dropper(pair.b.link, &d);
	post(&pair.a, IBV_WR_RDMA_READ, 1, 0, 1000, &pair.b, 0, IBV_SEND_SIGNALED);
	settle(&pair);
	fill(&pair.b, 0, 1000, 2);
	advance(&pair, TIMEOUT_14_NS + 1);
	expect_cqe(&pair.a, 1, IBV_WC_SUCCESS);
	assert_memory_equal(pair.a.buffer, pair.b.buffer, 1000);
	pair_close(&pair);
}

/* an ACK beyond a READ whose response was lost is an implied NAK */
static void test_implied_nak(void **state)
{
	struct pair pair;
	struct dropper d = { .opcode = OP_READ_RESPONSE_ONLY, .count = 1 };
	uint64_t implied = counter_get(CNT_IMPLIED_NAK);

	pair_open(&pair, NULL);
	fill(&pair.b, 0, 100, 1);
	set_dropper(pair.b.link, &d);
	post(&pair.a, IBV_WR_RDMA_READ, 1, 0, 100, &pair.b, 0, IBV_SEND_SIGNALED);
	post(&pair.a, IBV_WR_RDMA_WRITE, 2, 200, 100, &pair.b, 200, IBV_SEND_SIGNALED);
	settle(&pair);
	expect_cqe(&pair.a, 1, IBV_WC_SUCCESS);
	expect_cqe(&pair.a, 2, IBV_WC_SUCCESS);
	assert_int_equal(counter_get(CNT_IMPLIED_NAK) - implied, 1);
	assert_memory_equal(pair.a.buffer, pair.b.buffer, 100);
	pair_close(&pair);
}

/* a duplicate that no kept resource covers, or with another key: no answer */
static void test_duplicate_read_unknown(void **state)
{
	struct pair pair;
	struct packet p = { .opcode = OP_READ_REQUEST, .pkey = PKEY_DEFAULT, .dma_len = 8 };
	uint64_t lost = counter_get(CNT_DROP_DUPLICATE_LOST);

	pair_open(&pair, &(struct setup){ .a_psn = 10 });
	post(&pair.a, IBV_WR_RDMA_READ, 1, 0, 5000, &pair.b, 0, IBV_SEND_SIGNALED);
	settle(&pair);
	pair.b.link->log_count = 0;
	p.dest_qpn = qp_num(pair.b.qp);
	p.sgid = pair.a.gid;
	p.dgid = pair.b.gid;
	p.rkey = pair.b.mr.key;
	p.va = (uintptr_t)pair.b.buffer;
	p.psn = 9; /* before any */
	link_mem_inject(pair.b.link, &p, NULL);
	p.psn = 11; /* in it, but its address is not that of the second packet */
	link_mem_inject(pair.b.link, &p, NULL);
	p.psn = 10;
	p.rkey ^= 1;
	link_mem_inject(pair.b.link, &p, NULL);
	p.rkey ^= 1;
	p.dma_len = 5001; /* beyond it */
	link_mem_inject(pair.b.link, &p, NULL);
	settle(&pair);
	assert_int_equal(pair.b.link->log_count, 0);
	assert_int_equal(counter_get(CNT_DROP_DUPLICATE_LOST) - lost, 4);
	p.psn = 11;
	p.va += 1024;
	p.dma_len = 1025;
	link_mem_inject(pair.b.link, &p, NULL);
	settle(&pair);
	assert_int_equal(pair.b.link->log_count, 2);
	assert_int_equal(pair.b.link->log[0].opcode, OP_READ_RESPONSE_FIRST);
	assert_int_equal(pair.b.link->log[1].opcode, OP_READ_RESPONSE_LAST);
	assert_int_equal(pair.b.link->log[1].payload_len, 1);
	pair_close(&pair);
}

/* the requester has got the responses after all and goes on: its next READ needs the slot of the
 * duplicate, which nobody waits for any more */
static void test_duplicate_read_gives_way(void **state)
{
	struct pair pair;
	struct packet p = { .opcode = OP_READ_REQUEST, .pkey = PKEY_DEFAULT, .dma_len = 3000 };

	pair_open(&pair, &(struct setup){ .rd_atomic = 1 });
	post(&pair.a, IBV_WR_RDMA_READ, 1, 0, 3000, &pair.b, 0, 0);
	settle(&pair);
	pair.b.link->log_count = 0;
	p.dest_qpn = qp_num(pair.b.qp);
	p.sgid = pair.a.gid;
	p.dgid = pair.b.gid;
	p.rkey = pair.b.mr.key;
	p.va = (uintptr_t)pair.b.buffer;
	link_mem_inject(pair.b.link, &p, NULL);
	p.psn = 3;
	p.dma_len = 10;
	link_mem_inject(pair.b.link, &p, NULL);
	settle(&pair);
	assert_int_equal(qp_state(pair.b.qp), IBV_QPS_RTS);
	assert_int_equal(pair.b.link->log_count, 1);
	assert_int_equal(pair.b.link->log[0].opcode, OP_READ_RESPONSE_ONLY);
	assert_int_equal(pair.b.link->log[0].psn, 3);
	pair_close(&pair);
}

/* a duplicate is answered with the newest ACK, never with a PSN of a READ */
static void test_duplicate_write_after_read(void **state)
{
	struct pair pair;
	struct packet p = { .opcode = OP_WRITE_ONLY, .pkey = PKEY_DEFAULT, .ack_req = true };

	pair_open(&pair, &(struct setup){ .a_psn = 10 });
	post(&pair.a, IBV_WR_RDMA_WRITE, 1, 0, 8, &pair.b, 0, 0);
	post(&pair.a, IBV_WR_RDMA_WRITE, 2, 0, 8, &pair.b, 0, 0);
	post(&pair.a, IBV_WR_RDMA_READ, 3, 0, 3000, &pair.b, 0, 0);
	settle(&pair);
	pair.b.link->log_count = 0;
	p.dest_qpn = qp_num(pair.b.qp);
	p.sgid = pair.a.gid;
	p.dgid = pair.b.gid;
	p.psn = 10;
	link_mem_inject(pair.b.link, &p, NULL);
	settle(&pair);
	assert_int_equal(pair.b.link->log_count, 1);
	assert_int_equal(pair.b.link->log[0].syndrome, AETH_ACK_NO_CREDIT);
	assert_int_equal(pair.b.link->log[0].psn, 11);
	assert_int_equal(pair.b.link->log[0].msn, 3);
	pair_close(&pair);
}

/* stale, future and unknown responses change nothing */
static void test_bogus_responses(void **state)
{
	struct pair pair;
	static const uint8_t syndromes[] = { 0x1f, 0x00, 0x20, 0x60, 0x61, 0x62, 0x63, 0x7f, 0x40 };
	struct packet p = { .opcode = OP_ACKNOWLEDGE, .pkey = PKEY_DEFAULT };
	struct dropper d = { .opcode = OP_WRITE_ONLY, .count = 1 };

	pair_open(&pair, &(struct setup){ .a_psn = 10 });
	set_dropper(pair.a.link, &d);
	post(&pair.a, IBV_WR_RDMA_WRITE, 1, 0, 8, &pair.b, 0, IBV_SEND_SIGNALED);
	settle(&pair);
	p.dest_qpn = qp_num(pair.a.qp);
	p.sgid = pair.b.gid;
	p.dgid = pair.a.gid;
	for (unsigned int i = 0; i < sizeof(syndromes); i++) {
		p.syndrome = syndromes[i];
		for (p.psn = 9; p.psn < 13; p.psn++) {
			if (p.psn != 10)
				link_mem_inject(pair.a.link, &p, NULL);
		}
	}
	p.psn = 10;
	p.syndrome = 0x5f; /* reserved kind */
	link_mem_inject(pair.a.link, &p, NULL);
	settle(&pair);
	expect_no_cqe(&pair.a);
	assert_int_equal(qp_state(pair.a.qp), IBV_QPS_RTS);
	assert_int_equal(pair.a.link->log_count, 1);
	advance(&pair, TIMEOUT_14_NS + 1);
	expect_cqe(&pair.a, 1, IBV_WC_SUCCESS);
	pair_close(&pair);
}

/* inline data come from the WQE also when they are sent again */
static void test_inline_again(void **state)
{
	struct pair pair;
	struct dropper d = { .opcode = OP_WRITE_ONLY, .count = 1 };

	pair_open(&pair, NULL);
	set_dropper(pair.a.link, &d);
	memcpy(pair.a.buffer, "inline data", 12);
	post(&pair.a, IBV_WR_RDMA_WRITE, 1, 0, 12, &pair.b, 0, IBV_SEND_SIGNALED | IBV_SEND_INLINE);
	memset(pair.a.buffer, 0, 12);
	settle(&pair);
	advance(&pair, TIMEOUT_14_NS + 1);
	expect_cqe(&pair.a, 1, IBV_WC_SUCCESS);
	assert_string_equal(pair.b.buffer, "inline data");
	pair_close(&pair);
}

/* we went back, and before anything is sent again an ACK says that it had arrived */
static void test_ack_after_going_back(void **state)
{
	struct pair pair;
	struct dropper d = { .opcode = OP_ACKNOWLEDGE, .count = 1 };
	struct packet p = { .opcode = OP_ACKNOWLEDGE,
			    .pkey = PKEY_DEFAULT,
			    .psn = 6,
			    .syndrome = AETH_ACK_NO_CREDIT };

	pair_open(&pair, &(struct setup){ .a_psn = 5 });
	set_dropper(pair.b.link, &d);
	for (unsigned int i = 0; i < 3; i++)
		post(&pair.a, IBV_WR_RDMA_WRITE, i, 0, 8, &pair.b, 0, IBV_SEND_SIGNALED);
	settle(&pair);
	pair.a.link->log_count = 0;
	pair.a.link->full_after = pair.a.link->queued = 1;
	test_now_ns += TIMEOUT_14_NS + 1;
	engine_poll(pair.a.engine);
	assert_int_equal(pair.a.qp->req.next_psn, 5);
	pair.a.link->full_after = 0;
	p.dest_qpn = qp_num(pair.a.qp);
	p.sgid = pair.b.gid;
	p.dgid = pair.a.gid;
	link_mem_inject(pair.a.link, &p, NULL);
	settle(&pair);
	for (unsigned int i = 0; i < 3; i++)
		expect_cqe(&pair.a, i, IBV_WC_SUCCESS);
	assert_int_equal(pair.a.link->log_count, 1);
	assert_int_equal(pair.a.link->log[0].psn, 7);
	assert_int_equal(pair.a.qp->peer->in_flight, 0);
	pair_close(&pair);
}

/* losses make the window smaller, success makes it grow again */
static void test_window_adapts(void **state)
{
	struct pair pair;
	struct dropper d = { .opcode = OP_WRITE_MIDDLE, .nth = 100, .count = 1 };

	pair_open(&pair, NULL);
	set_dropper(pair.a.link, &d);
	assert_int_equal(pair.a.qp->peer->window, 1 << 20);
	post(&pair.a, IBV_WR_RDMA_WRITE, 1, 0, 1 << 20, &pair.b, 0, IBV_SEND_SIGNALED);
	settle(&pair);
	expect_cqe(&pair.a, 1, IBV_WC_SUCCESS);
	assert_true(pair.a.qp->peer->window < 700000);
	assert_true(pair.a.qp->peer->window >= 1 << 19);
	set_dropper(pair.a.link, NULL);
	for (unsigned int i = 0; i < 10; i++) {
		post(&pair.a, IBV_WR_RDMA_WRITE, 1, 0, 1 << 20, &pair.b, 0, IBV_SEND_SIGNALED);
		settle(&pair);
	}
	assert_int_equal(pair.a.qp->peer->window, 1 << 20);
	pair_close(&pair);
}

/* a timeout: one packet finds out whether anybody is there, the rest follows its ACK */
static void test_timeout_probes(void **state)
{
	struct pair pair;
	struct dropper d = { .opcode = OP_WRITE_ONLY, .count = 11 };

	pair_open(&pair, NULL);
	set_dropper(pair.a.link, &d);
	for (unsigned int i = 0; i < 10; i++)
		post(&pair.a, IBV_WR_RDMA_WRITE, i, 0, 8, &pair.b, 0, IBV_SEND_SIGNALED);
	settle(&pair);
	assert_int_equal(pair.a.link->log_count, 10);
	advance(&pair, TIMEOUT_14_NS + 1);
	assert_int_equal(pair.a.link->log_count, 11);
	assert_true(pair.a.link->log[10].ack_req);
	advance(&pair, TIMEOUT_14_NS + 1);
	assert_int_equal(pair.a.link->log_count, 21);
	for (unsigned int i = 0; i < 10; i++)
		expect_cqe(&pair.a, i, IBV_WC_SUCCESS);
	pair_close(&pair);
}

/* a QP whose peer does not answer fills the window: the others go on */
static void test_silent_peer_holds_nobody_up(void **state)
{
	struct pair pair;
	struct hca_qp *a, *b, *first;
	struct setup setup = { .window = 64 << 10 };
	struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };

	pair_open(&pair, &setup);
	pair_connect(&pair, &setup, &a, &b);
	assert_int_equal(qp_modify(b, &reset, IBV_QP_STATE, gid_lookup), 0);
	first = pair.a.qp;
	pair.a.qp = a;
	post(&pair.a, IBV_WR_RDMA_WRITE, 1, 0, 1 << 20, &pair.b, 0, IBV_SEND_SIGNALED);
	settle(&pair);
	pair.a.qp = first;
	fill(&pair.a, 0, 100000, 1);
	post(&pair.a, IBV_WR_RDMA_WRITE, 2, 0, 100000, &pair.b, 0, IBV_SEND_SIGNALED);
	settle(&pair);
	expect_cqe(&pair.a, 2, IBV_WC_SUCCESS);
	assert_memory_equal(pair.b.buffer, pair.a.buffer, 100000);
	for (unsigned int i = 0; i < 10; i++)
		advance(&pair, TIMEOUT_14_NS + 1);
	expect_cqe(&pair.a, 1, IBV_WC_RETRY_EXC_ERR);
	assert_int_equal(pair.a.qp->peer->in_flight, 0);
	qp_destroy(a);
	qp_destroy(b);
	pair_close(&pair);
}

/* T23: a QP goes away while it repeats packets */
static void test_destroy_while_retransmitting(void **state)
{
	for (unsigned int rounds = 0; rounds < 8; rounds++) {
		struct pair pair;
		struct dropper d = { .opcode = OP_WRITE_MIDDLE, .count = 1000 };
		struct hca_qp *a, *b;

		pair_open(&pair, NULL);
		pair_connect(&pair, &(struct setup){ 0 }, &a, &b);
		set_dropper(pair.a.link, &d);
		post(&pair.a, IBV_WR_RDMA_WRITE, 1, 0, 1 << 20, &pair.b, 0, 0);
		post(&pair.a, IBV_WR_RDMA_READ, 2, 0, 1 << 20, &pair.b, 0, 0);
		for (unsigned int i = 0; i < rounds; i++) {
			test_now_ns += TIMEOUT_14_NS / 2;
			engine_poll(pair.a.engine);
			engine_poll(pair.b.engine);
		}
		qp_destroy(pair.a.qp);
		qp_destroy(pair.b.qp);
		pair.a.qp = a;
		pair.b.qp = b;
		set_dropper(pair.a.link, NULL);
		advance(&pair, TIMEOUT_14_NS);
		expect_no_cqe(&pair.a);
		post(&pair.a, IBV_WR_RDMA_WRITE, 9, 0, 1 << 20, &pair.b, 0, IBV_SEND_SIGNALED);
		settle(&pair);
		expect_cqe(&pair.a, 9, IBV_WC_SUCCESS);
		assert_int_equal(pair.a.engine->read_bytes, 0);
		assert_int_equal(pair.a.qp->peer->in_flight, 0);
		pair_close(&pair);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sequence_nak),
		cmocka_unit_test(test_one_nak_only),
		cmocka_unit_test(test_timeout),
		cmocka_unit_test(test_lost_ack),
		cmocka_unit_test(test_retry_count),
		cmocka_unit_test(test_no_timeout),
		cmocka_unit_test(test_progress_rearms_retries),
		cmocka_unit_test(test_rnr),
		cmocka_unit_test(test_rnr_retry),
		cmocka_unit_test(test_rnr_ignores_sequence_nak),
		cmocka_unit_test(test_rnr_timer_code_0),
		cmocka_unit_test(test_rnr_write_imm),
		cmocka_unit_test(test_lost_read_response),
		cmocka_unit_test(test_lost_read_request),
		cmocka_unit_test(test_duplicate_read),
		cmocka_unit_test(test_implied_nak),
		cmocka_unit_test(test_duplicate_read_unknown),
		cmocka_unit_test(test_duplicate_read_gives_way),
		cmocka_unit_test(test_duplicate_write_after_read),
		cmocka_unit_test(test_bogus_responses),
		cmocka_unit_test(test_inline_again),
		cmocka_unit_test(test_ack_after_going_back),
		cmocka_unit_test(test_timeout_probes),
		cmocka_unit_test(test_silent_peer_holds_nobody_up),
		cmocka_unit_test(test_window_adapts),
		cmocka_unit_test(test_destroy_while_retransmitting),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
