// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_rc_errors.c: wrong requests and wrong work: the exact NAK, event and status on both sides
 * (wire-facts 2.3, 2.4), and how everything else is flushed.
 */
#include <errno.h>
#include <string.h>

#include "qp_fixture.h"
#include "util/bytes.h"

/* ---- packets a requester of ours would never send -------------------------- */

enum { EVENT_NONE = -1 };

struct bad_request {
	const char *name;
	/* packets: the last one is wrong */
	struct {
		uint8_t opcode;
		uint32_t len, dma_len;
		int64_t va_offset; /* from b's buffer */
		uint32_t rkey_xor;
	} packets[3];
	unsigned int count;
	int b_access; /* 0 = all */
	uint8_t nak;
	int event;
	bool recv_posted;
};

#define MTU 1024

static const struct bad_request bad_requests[] = {
	{ "MIDDLE without FIRST", { { OP_SEND_MIDDLE, MTU } }, 1, 0, 0x61, IBV_EVENT_QP_REQ_ERR },
	{ "LAST without FIRST", { { OP_WRITE_LAST, 10 } }, 1, 0, 0x61, IBV_EVENT_QP_REQ_ERR },
	{ "WRITE middle inside a SEND",
	  { { OP_SEND_FIRST, MTU }, { OP_WRITE_MIDDLE, MTU } },
	  2,
	  0,
	  0x61,
	  IBV_EVENT_QP_REQ_ERR,
	  true },
	{ "SEND last inside a WRITE",
	  { { OP_WRITE_FIRST, MTU, 3000 }, { OP_SEND_LAST, 10 } },
	  2,
	  0,
	  0x61,
	  IBV_EVENT_QP_REQ_ERR,
	  true },
	{ "FIRST inside a message",
	  { { OP_WRITE_FIRST, MTU, 3000 }, { OP_WRITE_FIRST, MTU, 3000 } },
	  2,
	  0,
	  0x61,
	  IBV_EVENT_QP_REQ_ERR },
	{ "READ inside a message",
	  { { OP_WRITE_FIRST, MTU, 3000 }, { OP_READ_REQUEST, 0, 8 } },
	  2,
	  0,
	  0x61,
	  IBV_EVENT_QP_REQ_ERR },
	{ "atomic", { { OP_FETCH_ADD, 0 } }, 1, 0, 0x61, IBV_EVENT_QP_REQ_ERR },
	{ "short FIRST", { { OP_SEND_FIRST, MTU - 4 } }, 1, 0, 0x61, IBV_EVENT_QP_REQ_ERR, true },
	{ "long FIRST", { { OP_SEND_FIRST, MTU + 4 } }, 1, 0, 0x61, IBV_EVENT_QP_REQ_ERR, true },
	{ "long ONLY", { { OP_SEND_ONLY, MTU + 1 } }, 1, 0, 0x61, IBV_EVENT_QP_REQ_ERR, true },
	{ "short FIRST of a WRITE",
	  { { OP_WRITE_FIRST, 512, 3000 } },
	  1,
	  0,
	  0x61,
	  IBV_EVENT_QP_REQ_ERR },
	{ "empty LAST",
	  { { OP_WRITE_FIRST, MTU, MTU + 1 }, { OP_WRITE_LAST, 0 } },
	  2,
	  0,
	  0x61,
	  IBV_EVENT_QP_REQ_ERR },
	{ "ONLY shorter than its DMA length",
	  { { OP_WRITE_ONLY, 10, 11 } },
	  1,
	  0,
	  0x61,
	  IBV_EVENT_QP_REQ_ERR },
	{ "ONLY longer than its DMA length",
	  { { OP_WRITE_ONLY, 10, 9 } },
	  1,
	  0,
	  0x61,
	  IBV_EVENT_QP_REQ_ERR },
	{ "FIRST that is the whole message",
	  { { OP_WRITE_FIRST, MTU, MTU } },
	  1,
	  0,
	  0x61,
	  IBV_EVENT_QP_REQ_ERR },
	{ "MIDDLE beyond the DMA length",
	  { { OP_WRITE_FIRST, MTU, MTU + 500 }, { OP_WRITE_MIDDLE, MTU } },
	  2,
	  0,
	  0x61,
	  IBV_EVENT_QP_REQ_ERR },
	{ "LAST beyond the DMA length",
	  { { OP_WRITE_FIRST, MTU, MTU + 500 }, { OP_WRITE_LAST, 501 } },
	  2,
	  0,
	  0x61,
	  IBV_EVENT_QP_REQ_ERR },
	{ "LAST short of the DMA length",
	  { { OP_WRITE_FIRST, MTU, MTU + 500 }, { OP_WRITE_LAST, 499 } },
	  2,
	  0,
	  0x61,
	  IBV_EVENT_QP_REQ_ERR },
	{ "WRITE longer than 2^31",
	  { { OP_WRITE_FIRST, MTU, 0x80000001 } },
	  1,
	  0,
	  0x61,
	  IBV_EVENT_QP_REQ_ERR },
	{ "READ longer than 2^31",
	  { { OP_READ_REQUEST, 0, 0x80000001 } },
	  1,
	  0,
	  0x61,
	  IBV_EVENT_QP_REQ_ERR },
	{ "WRITE not enabled",
	  { { OP_WRITE_ONLY, 8, 8 } },
	  1,
	  IBV_ACCESS_REMOTE_READ,
	  0x61,
	  IBV_EVENT_QP_REQ_ERR },
	{ "READ not enabled",
	  { { OP_READ_REQUEST, 0, 8 } },
	  1,
	  IBV_ACCESS_REMOTE_WRITE,
	  0x61,
	  IBV_EVENT_QP_REQ_ERR },
	{ "unknown key",
	  { { OP_WRITE_ONLY, 8, 8, 0, 0x1200 } },
	  1,
	  0,
	  0x62,
	  IBV_EVENT_QP_ACCESS_ERR },
	{ "stale key", { { OP_WRITE_ONLY, 8, 8, 0, 1 } }, 1, 0, 0x62, IBV_EVENT_QP_ACCESS_ERR },
	{ "READ, unknown key",
	  { { OP_READ_REQUEST, 0, 8, 0, 0x1200 } },
	  1,
	  0,
	  0x62,
	  IBV_EVENT_QP_ACCESS_ERR },
	{ "before the region",
	  { { OP_WRITE_ONLY, 8, 8, -1 } },
	  1,
	  0,
	  0x62,
	  IBV_EVENT_QP_ACCESS_ERR },
	{ "one byte beyond the region",
	  { { OP_WRITE_ONLY, 8, 8, BUFFER_LEN - 7 } },
	  1,
	  0,
	  0x62,
	  IBV_EVENT_QP_ACCESS_ERR },
	{ "only the end is beyond: nothing is written",
	  { { OP_WRITE_FIRST, MTU, 2 * MTU + 1, BUFFER_LEN - 2 * MTU } },
	  1,
	  0,
	  0x62,
	  IBV_EVENT_QP_ACCESS_ERR },
	{ "READ of 2^31 bytes",
	  { { OP_READ_REQUEST, 0, 0x80000000 } },
	  1,
	  0,
	  0x62,
	  IBV_EVENT_QP_ACCESS_ERR },
	{ "message longer than the receive",
	  { { OP_SEND_FIRST, MTU }, { OP_SEND_LAST, 1000 } },
	  2,
	  0,
	  0x61,
	  EVENT_NONE,
	  true },
};

static void check_bad_request(const struct bad_request *r)
{
	struct pair pair;
	static uint8_t payload[4096];
	const struct sent_packet *nak;

	print_message("%s\n", r->name);
	pair_open(&pair, &(struct setup){ .b_access = r->b_access });
	memset(payload, 0xee, sizeof(payload));
	if (r->recv_posted)
		post_recv(&pair.b, 77, 0, 2000);
	post_recv(&pair.b, 78, 0, 2000);
	for (unsigned int i = 0; i < r->count; i++) {
		struct packet p = {
			.opcode = r->packets[i].opcode,
			.pad = -r->packets[i].len & 3,
			.pkey = PKEY_DEFAULT,
			.dest_qpn = qp_num(pair.b.qp),
			.psn = i,
			.va = (uintptr_t)pair.b.buffer + (uint64_t)r->packets[i].va_offset,
			.rkey = pair.b.mr.key ^ r->packets[i].rkey_xor,
			.dma_len = r->packets[i].dma_len,
			.payload_len = r->packets[i].len,
			.sgid = pair.a.gid,
			.dgid = pair.b.gid,
		};

		link_mem_inject(pair.b.link, &p, payload);
	}
	settle(&pair);
	nak = &pair.b.link->log[pair.b.link->log_count - 1];
	assert_int_equal(pair.b.link->log_count, 1);
	assert_int_equal(nak->opcode, OP_ACKNOWLEDGE);
	assert_int_equal(nak->syndrome, r->nak);
	assert_int_equal(nak->psn, r->count - 1);
	assert_int_equal(qp_state(pair.b.qp), IBV_QPS_ERR);
	assert_int_equal(pair.b.events[IBV_EVENT_QP_REQ_ERR], r->event == IBV_EVENT_QP_REQ_ERR);
	assert_int_equal(pair.b.events[IBV_EVENT_QP_ACCESS_ERR],
			 r->event == IBV_EVENT_QP_ACCESS_ERR);
	if (r->event == IBV_EVENT_QP_ACCESS_ERR)
		assert_int_equal(pair.b.buffer[BUFFER_LEN - MTU], 0);
	if (r->event == EVENT_NONE)
		expect_cqe(&pair.b, 77, IBV_WC_LOC_LEN_ERR);
	else if (r->recv_posted && r->packets[0].opcode == OP_SEND_FIRST && r->count > 1)
		expect_cqe(&pair.b, 77, IBV_WC_REM_INV_REQ_ERR); /* it was open */
	else if (r->recv_posted)
		expect_cqe(&pair.b, 77, IBV_WC_WR_FLUSH_ERR);
	expect_cqe(&pair.b, 78, IBV_WC_WR_FLUSH_ERR);
	expect_no_cqe(&pair.b);
	pair_close(&pair);
}

static void test_bad_requests(void **state)
{
	for (unsigned int i = 0; i < ARRAY_SIZE(bad_requests); i++)
		check_bad_request(&bad_requests[i]);
}

/* T19: up to the very end of the region, and what wraps around the address space */
static void test_region_end(void **state)
{
	struct pair pair;

	pair_open(&pair, NULL);
	fill(&pair.a, 0, 3000, 1);
	post(&pair.a, IBV_WR_RDMA_WRITE, 1, 0, 3000, &pair.b, BUFFER_LEN - 3000, IBV_SEND_SIGNALED);
	settle(&pair);
	expect_cqe(&pair.a, 1, IBV_WC_SUCCESS);
	assert_memory_equal(pair.b.buffer + BUFFER_LEN - 3000, pair.a.buffer, 3000);
	pair_close(&pair);
	pair_open(&pair, NULL);
	{
		struct packet p = {
			.opcode = OP_WRITE_ONLY,
			.pkey = PKEY_DEFAULT,
			.dest_qpn = qp_num(pair.b.qp),
			.va = 0xfffffffffffffc00ULL,
			.rkey = pair.b.mr.key,
			.dma_len = 0x400,
			.payload_len = 0x400,
			.sgid = pair.a.gid,
			.dgid = pair.b.gid,
		};

		link_mem_inject(pair.b.link, &p, pair.a.buffer);
	}
	settle(&pair);
	assert_int_equal(pair.b.link->log[0].syndrome, AETH_NAK_ACCESS);
	pair_close(&pair);
}

/* zero length: key and address mean nothing */
static void test_zero_length_needs_no_key(void **state)
{
	struct pair pair;
	struct ibv_send_wr wr = { .wr_id = 1,
				  .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = IBV_SEND_SIGNALED };
	const struct ibv_send_wr *bad;

	pair_open(&pair, NULL);
	wr.wr.rdma.rkey = 0xdeadbeef;
	wr.wr.rdma.remote_addr = ~0ULL;
	assert_int_equal(qp_post_send(pair.a.qp, &wr, &bad), 0);
	wr.opcode = IBV_WR_RDMA_READ;
	assert_int_equal(qp_post_send(pair.a.qp, &wr, &bad), 0);
	settle(&pair);
	expect_cqe(&pair.a, 1, IBV_WC_SUCCESS);
	expect_cqe(&pair.a, 1, IBV_WC_SUCCESS);
	pair_close(&pair);
}

/* ---- packets that are not for the QP: no answer at all ----------------------- */

static void test_drops(void **state)
{
	struct pair pair;
	struct packet good = { .opcode = OP_WRITE_ONLY, .pkey = PKEY_DEFAULT, .ack_req = true }, p;
	const enum counter counted[] = { CNT_DROP_QPN,	   CNT_DROP_TYPE,    CNT_DROP_PKEY,
					 CNT_DROP_ADDRESS, CNT_DROP_ADDRESS, CNT_RX_CNP };
	uint64_t before[ARRAY_SIZE(counted)];

	pair_open(&pair, NULL);
	good.dest_qpn = qp_num(pair.b.qp);
	good.sgid = pair.a.gid;
	good.dgid = pair.b.gid;
	for (unsigned int i = 0; i < ARRAY_SIZE(counted); i++) {
		before[i] = counter_get(counted[i]);
		p = good;
		if (i == 0)
			p.dest_qpn ^= 0x100;
		else if (i == 1)
			p.opcode = OPC_UC | OP_WRITE_ONLY;
		else if (i == 2)
			p.pkey = 0xfffe;
		else if (i == 3)
			p.sgid.raw[15] = 9;
		else if (i == 4)
			p.dgid.raw[15] = 9;
		else
			p.opcode = OPCODE_CNP;
		link_mem_inject(pair.b.link, &p, NULL);
		settle(&pair);
		assert_int_equal(counter_get(counted[i]) - before[i], 1);
	}
	assert_int_equal(pair.b.link->log_count, 0);
	/* a limited member of the partition may talk to us, we are full members */
	good.pkey = 0x7fff;
	link_mem_inject(pair.b.link, &good, NULL);
	settle(&pair);
	assert_int_equal(pair.b.link->log_count, 1);
	pair_close(&pair);
}

/* ---- the requester's view ---------------------------------------------------- */

/* one WQE fails, what was before it succeeds, everything after it is flushed, signaled or not */
static void test_flush_order(void **state)
{
	struct pair pair;
	struct hca_mr *mr;

	pair_open(&pair, NULL);
	mr = &pair.b.mr;
	post_recv(&pair.a, 50, 0, 100);
	post_recv(&pair.a, 51, 0, 100);
	post(&pair.a, IBV_WR_RDMA_WRITE, 1, 0, 100, &pair.b, 0, IBV_SEND_SIGNALED);
	post(&pair.a, IBV_WR_RDMA_WRITE, 2, 0, 100, &pair.b, 0, 0);
	mr->key ^= 1;
	post(&pair.a, IBV_WR_RDMA_WRITE, 3, 0, 100, &pair.b, 0, 0);
	mr->key ^= 1;
	post(&pair.a, IBV_WR_RDMA_WRITE, 4, 0, 100, &pair.b, 0, 0);
	post(&pair.a, IBV_WR_RDMA_READ, 5, 0, 100, &pair.b, 0, 0);
	settle(&pair);
	expect_cqe(&pair.a, 1, IBV_WC_SUCCESS);
	expect_cqe(&pair.a, 3, IBV_WC_REM_ACCESS_ERR);
	expect_cqe(&pair.a, 4, IBV_WC_WR_FLUSH_ERR);
	expect_cqe(&pair.a, 5, IBV_WC_WR_FLUSH_ERR);
	expect_cqe(&pair.a, 50, IBV_WC_WR_FLUSH_ERR);
	expect_cqe(&pair.a, 51, IBV_WC_WR_FLUSH_ERR);
	expect_no_cqe(&pair.a);
	/* T5: later posts are flushed one by one, on both queues */
	post(&pair.a, IBV_WR_RDMA_WRITE, 6, 0, 100, &pair.b, 0, 0);
	expect_cqe(&pair.a, 6, IBV_WC_WR_FLUSH_ERR);
	post_recv(&pair.a, 52, 0, 100);
	expect_cqe(&pair.a, 52, IBV_WC_WR_FLUSH_ERR);
	expect_no_cqe(&pair.a);
	pair_close(&pair);
}

/* READ responses come before the NAK of what follows them */
static void test_nak_waits_for_read(void **state)
{
	struct pair pair;

	pair_open(&pair, NULL);
	fill(&pair.b, 0, 1000000, 1);
	post(&pair.a, IBV_WR_RDMA_READ, 1, 0, 1000000, &pair.b, 0, IBV_SEND_SIGNALED);
	pair.b.mr.key ^= 1;
	post(&pair.a, IBV_WR_RDMA_WRITE, 2, 0, 100, &pair.b, 0, 0);
	pair.b.mr.key ^= 1;
	settle(&pair);
	expect_cqe(&pair.a, 1, IBV_WC_SUCCESS);
	expect_cqe(&pair.a, 2, IBV_WC_REM_ACCESS_ERR);
	assert_memory_equal(pair.a.buffer, pair.b.buffer, 1000000);
	pair_close(&pair);
}

/* the region goes away while a READ is answered: the NAK takes the place of a response */
static void test_read_fails_halfway(void **state)
{
	struct pair pair;
	uint32_t sent;

	pair_open(&pair, NULL);
	post(&pair.a, IBV_WR_RDMA_READ, 1, 0, 256 << 10, &pair.b, 0, 0);
	engine_poll(pair.b.engine); /* one turn's worth of responses */
	sent = pair.b.link->log_count;
	assert_in_range(sent, 100, 255);
	memory_deregister(&pair.b.mr);
	settle(&pair);
	assert_int_equal(pair.b.link->log[sent].opcode, OP_ACKNOWLEDGE);
	assert_int_equal(pair.b.link->log[sent].syndrome, AETH_NAK_ACCESS);
	assert_int_equal(pair.b.link->log[sent].psn, sent);
	expect_cqe(&pair.a, 1, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(pair.b.events[IBV_EVENT_QP_ACCESS_ERR], 1);
	assert_int_equal(memory_register(&pair.b.mr), 0);
	pair_close(&pair);
}

/* more READs than the responder has resources for */
static void test_too_many_reads(void **state)
{
	struct pair pair;
	struct packet p = { .opcode = OP_READ_REQUEST, .pkey = PKEY_DEFAULT, .dma_len = 100 };

	pair_open(&pair, &(struct setup){ .rd_atomic = 2 });
	p.dest_qpn = qp_num(pair.b.qp);
	p.sgid = pair.a.gid;
	p.dgid = pair.b.gid;
	p.va = (uintptr_t)pair.b.buffer;
	p.rkey = pair.b.mr.key;
	for (p.psn = 0; p.psn < 3; p.psn++)
		link_mem_inject(pair.b.link, &p, NULL);
	settle(&pair);
	assert_int_equal(link_mem_count(pair.b.link, OP_READ_RESPONSE_ONLY), 2);
	assert_int_equal(pair.b.link->log[2].syndrome, AETH_NAK_INVALID);
	assert_int_equal(pair.b.link->log[2].psn, 2);
	pair_close(&pair);
}

struct bad_response {
	const char *name;
	uint8_t opcode, syndrome;
	uint32_t psn, len;
	enum ibv_wc_status status; /* SUCCESS: ignored */
};

/* the QP has a READ of 3000 bytes outstanding, PSNs 0..2 */
static const struct bad_response bad_responses[] = {
	{ "MIDDLE first", OP_READ_RESPONSE_MIDDLE, 0x1f, 0, MTU, IBV_WC_BAD_RESP_ERR },
	{ "ONLY for a longer one", OP_READ_RESPONSE_ONLY, 0x1f, 0, MTU, IBV_WC_BAD_RESP_ERR },
	{ "LAST first", OP_READ_RESPONSE_LAST, 0x1f, 0, MTU, IBV_WC_BAD_RESP_ERR },
	{ "FIRST too short", OP_READ_RESPONSE_FIRST, 0x1f, 0, MTU - 4, IBV_WC_BAD_RESP_ERR },
	{ "FIRST too long", OP_READ_RESPONSE_FIRST, 0x1f, 0, MTU + 4, IBV_WC_BAD_RESP_ERR },
	{ "NAK invalid", OP_ACKNOWLEDGE, 0x61, 0, 0, IBV_WC_REM_INV_REQ_ERR },
	{ "NAK access", OP_ACKNOWLEDGE, 0x62, 0, 0, IBV_WC_REM_ACCESS_ERR },
	{ "NAK operational", OP_ACKNOWLEDGE, 0x63, 0, 0, IBV_WC_REM_OP_ERR },
	{ "unknown NAK", OP_ACKNOWLEDGE, 0x65, 0, 0, IBV_WC_BAD_RESP_ERR },
	{ "reserved syndrome", OP_ACKNOWLEDGE, 0x40, 0, 0, IBV_WC_SUCCESS },
	{ "atomic acknowledge", OP_ATOMIC_ACKNOWLEDGE, 0x1f, 0, 0, IBV_WC_SUCCESS },
	{ "beyond what was sent", OP_READ_RESPONSE_FIRST, 0x1f, 3, MTU, IBV_WC_SUCCESS },
	{ "before what was sent", OP_READ_RESPONSE_ONLY, 0x1f, 0xffffff, MTU, IBV_WC_SUCCESS },
};

static enum fate drop_all(void *arg, struct link_mem *from, const struct packet *p)
{
	return FATE_DROP;
}

static void test_bad_responses(void **state)
{
	static uint8_t payload[2048];

	for (unsigned int i = 0; i < ARRAY_SIZE(bad_responses); i++) {
		const struct bad_response *r = &bad_responses[i];
		struct pair pair;
		struct packet p = { .opcode = r->opcode,
				    .syndrome = r->syndrome,
				    .psn = r->psn,
				    .payload_len = r->len,
				    .pkey = PKEY_DEFAULT };

		print_message("%s\n", r->name);
		pair_open(&pair, NULL);
		pair.a.link->decide = drop_all;
		post(&pair.a, IBV_WR_RDMA_READ, 1, 0, 3000, &pair.b, 0, 0);
		p.dest_qpn = qp_num(pair.a.qp);
		p.sgid = pair.b.gid;
		p.dgid = pair.a.gid;
		link_mem_inject(pair.a.link, &p, payload);
		settle(&pair);
		if (r->status != IBV_WC_SUCCESS)
			expect_cqe(&pair.a, 1, r->status);
		expect_no_cqe(&pair.a);
		assert_int_equal(qp_state(pair.a.qp), r->status ? IBV_QPS_ERR : IBV_QPS_RTS);
		pair_close(&pair);
	}
}

/* a READ response for a WRITE */
static void test_response_of_wrong_kind(void **state)
{
	struct pair pair;
	struct packet p = { .opcode = OP_READ_RESPONSE_ONLY, .pkey = PKEY_DEFAULT };

	pair_open(&pair, NULL);
	pair.a.link->decide = drop_all;
	post(&pair.a, IBV_WR_RDMA_WRITE, 1, 0, 100, &pair.b, 0, 0);
	p.dest_qpn = qp_num(pair.a.qp);
	p.sgid = pair.b.gid;
	p.dgid = pair.a.gid;
	link_mem_inject(pair.a.link, &p, NULL);
	settle(&pair);
	expect_cqe(&pair.a, 1, IBV_WC_BAD_RESP_ERR);
	pair_close(&pair);
}

/* ---- local errors ------------------------------------------------------------ */

/* bad local memory: earlier WQEs still succeed, nothing of the bad one is sent */
static void check_local(enum ibv_wr_opcode opcode, uint32_t len, uint32_t lkey_xor, int mr_access,
			enum ibv_wc_status status)
{
	struct pair pair;
	struct hca_mr mr;

	pair_open(&pair, NULL);
	mr = pair.a.mr;
	mr.access = mr_access;
	assert_int_equal(memory_register(&mr), 0);
	post(&pair.a, IBV_WR_RDMA_WRITE, 1, 0, 64, &pair.b, 0, IBV_SEND_SIGNALED);
	/* acknowledged before the second leaves, which does not ask because more is to follow */
	engine_poll(pair.b.engine);
	engine_poll(pair.b.engine);
	post(&pair.a, IBV_WR_RDMA_WRITE, 2, 0, 64, &pair.b, 0, IBV_SEND_SIGNALED);
	{
		struct hca_mr saved = pair.a.mr;

		pair.a.mr.key = mr.key ^ lkey_xor;
		post(&pair.a, opcode, 3, 0, len, &pair.b, 0, 0);
		pair.a.mr = saved;
	}
	post(&pair.a, IBV_WR_RDMA_WRITE, 4, 0, 64, &pair.b, 0, 0);
	settle(&pair);
	expect_cqe(&pair.a, 1, IBV_WC_SUCCESS);
	expect_cqe(&pair.a, 2, IBV_WC_SUCCESS);
	expect_cqe(&pair.a, 3, status);
	expect_cqe(&pair.a, 4, IBV_WC_WR_FLUSH_ERR);
	expect_no_cqe(&pair.a);
	assert_int_equal(link_mem_count(pair.a.link, OP_READ_REQUEST), 0);
	assert_int_equal(link_mem_count(pair.a.link, OP_WRITE_FIRST), 0);
	memory_deregister(&mr);
	pair_close(&pair);
}

static void test_local_errors(void **state)
{
	check_local(IBV_WR_RDMA_WRITE, 64, 1, IBV_ACCESS_LOCAL_WRITE, IBV_WC_LOC_PROT_ERR);
	check_local(IBV_WR_RDMA_WRITE, 5000, 0x4300, IBV_ACCESS_LOCAL_WRITE, IBV_WC_LOC_PROT_ERR);
	check_local(IBV_WR_RDMA_WRITE, BUFFER_LEN + 1, 0, IBV_ACCESS_LOCAL_WRITE,
		    IBV_WC_LOC_PROT_ERR);
	check_local(IBV_WR_RDMA_WRITE, 0x80000001, 0, IBV_ACCESS_LOCAL_WRITE, IBV_WC_LOC_LEN_ERR);
	/* READ needs local write, sending does not */
	check_local(IBV_WR_RDMA_READ, 64, 0, 0, IBV_WC_LOC_PROT_ERR);
}

static void test_read_without_rd_atomic(void **state)
{
	struct pair pair;

	pair_open(&pair, &(struct setup){ .rd_atomic = ZERO });
	post(&pair.a, IBV_WR_RDMA_READ, 1, 0, 64, &pair.b, 0, 0);
	settle(&pair);
	expect_cqe(&pair.a, 1, IBV_WC_LOC_QP_OP_ERR);
	pair_close(&pair);
}

/* a receive SGE with a bad key */
static void test_receive_protection(void **state)
{
	struct pair pair;

	pair_open(&pair, NULL);
	pair.b.mr.key ^= 1;
	post_recv(&pair.b, 7, 0, 100);
	pair.b.mr.key ^= 1;
	post(&pair.a, IBV_WR_SEND, 1, 0, 100, &pair.b, 0, 0);
	settle(&pair);
	expect_cqe(&pair.b, 7, IBV_WC_LOC_PROT_ERR);
	assert_int_equal(pair.b.link->log[0].syndrome, AETH_NAK_OPERATION);
	expect_cqe(&pair.a, 1, IBV_WC_REM_OP_ERR);
	pair_close(&pair);
}

static void test_receive_too_short(void **state)
{
	struct pair pair;

	pair_open(&pair, NULL);
	post_recv(&pair.b, 7, 0, 99);
	post(&pair.a, IBV_WR_SEND, 1, 0, 100, &pair.b, 0, 0);
	settle(&pair);
	expect_cqe(&pair.b, 7, IBV_WC_LOC_LEN_ERR);
	expect_cqe(&pair.a, 1, IBV_WC_REM_INV_REQ_ERR);
	pair_close(&pair);
}

/* T21: path MTUs differ */
static void test_mtu_mismatch(void **state)
{
	struct pair pair;

	pair_open(&pair, NULL);
	pair.b.qp->mtu = 512;
	post_recv(&pair.b, 7, 0, 4000);
	post(&pair.a, IBV_WR_SEND, 1, 0, 4000, &pair.b, 0, 0);
	settle(&pair);
	expect_cqe(&pair.a, 1, IBV_WC_REM_INV_REQ_ERR);
	pair_close(&pair);
}

/* ---- SEND with invalidate ---------------------------------------------------- */

static void post_send_inv(struct side *side, uint32_t rkey)
{
	struct ibv_send_wr wr = { .wr_id = 1,
				  .opcode = IBV_WR_SEND_WITH_INV,
				  .send_flags = IBV_SEND_SIGNALED,
				  .invalidate_rkey = rkey };
	const struct ibv_send_wr *bad;

	assert_int_equal(qp_post_send(side->qp, &wr, &bad), 0);
}

static void test_send_with_invalidate(void **state)
{
	struct pair pair;
	struct cqe cqe;

	pair_open(&pair, NULL);
	/* turned away first: invalidated once only */
	post_send_inv(&pair.a, pair.b.mr.key);
	settle(&pair);
	post_recv(&pair.b, 7, 0, 0);
	advance(&pair, NSEC_PER_MSEC);
	cqe = expect_cqe(&pair.b, 7, IBV_WC_SUCCESS);
	assert_int_equal(cqe.wc_flags, IBV_WC_WITH_INV);
	assert_int_equal(cqe.invalidated_rkey, pair.b.mr.key);
	expect_cqe(&pair.a, 1, IBV_WC_SUCCESS);
	post(&pair.a, IBV_WR_RDMA_WRITE, 2, 0, 8, &pair.b, 0, 0);
	settle(&pair);
	expect_cqe(&pair.a, 2, IBV_WC_REM_ACCESS_ERR);
	pair_close(&pair);

	pair_open(&pair, NULL);
	post_recv(&pair.b, 7, 0, 0);
	post_send_inv(&pair.a, pair.b.mr.key ^ 1);
	settle(&pair);
	expect_cqe(&pair.b, 7, IBV_WC_WR_FLUSH_ERR);
	expect_cqe(&pair.a, 1, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(pair.b.events[IBV_EVENT_QP_ACCESS_ERR], 1);
	pair_close(&pair);
}

/* V19: a completion that does not fit takes the QP down */
static void test_cq_overrun(void **state)
{
	struct pair pair;
	struct hca_cq small;
	struct hca_cq *saved;

	pair_open(&pair, NULL);
	assert_int_equal(cq_init(&small, &pair.a.ctx, 2), 0);
	saved = pair.a.qp->send_cq;
	pair.a.qp->send_cq = &small;
	for (unsigned int i = 0; i < 4; i++)
		post(&pair.a, IBV_WR_RDMA_WRITE, i, 0, 8, &pair.b, 0, IBV_SEND_SIGNALED);
	settle(&pair);
	assert_int_equal(pair.a.events[IBV_EVENT_CQ_ERR], 1);
	assert_int_equal(pair.a.events[IBV_EVENT_QP_FATAL], 1);
	assert_int_equal(qp_state(pair.a.qp), IBV_QPS_ERR);
	assert_int_equal(pair.a.qp->peer->in_flight, 0);
	pair.a.qp->send_cq = saved;
	cq_free(&small);
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bad_requests),
		cmocka_unit_test(test_region_end),
		cmocka_unit_test(test_zero_length_needs_no_key),
		cmocka_unit_test(test_drops),
		cmocka_unit_test(test_flush_order),
		cmocka_unit_test(test_nak_waits_for_read),
		cmocka_unit_test(test_read_fails_halfway),
		cmocka_unit_test(test_too_many_reads),
		cmocka_unit_test(test_bad_responses),
		cmocka_unit_test(test_response_of_wrong_kind),
		cmocka_unit_test(test_local_errors),
		cmocka_unit_test(test_read_without_rd_atomic),
		cmocka_unit_test(test_receive_protection),
		cmocka_unit_test(test_receive_too_short),
		cmocka_unit_test(test_mtu_mismatch),
		cmocka_unit_test(test_send_with_invalidate),
		cmocka_unit_test(test_cq_overrun),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
