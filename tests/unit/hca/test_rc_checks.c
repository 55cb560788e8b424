// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_rc_checks.c: the responder's answer to a packet with several faults (the order of its
 * checks), to packets in each QP state, its MSN, and what READs see (wire-facts 2.3, 2.7).
 */
#include <string.h>

#include "qp_fixture.h"
#include "util/bytes.h"
#include "util/counters.h"

#define MTU 1024
enum { RNR = AETH_RNR_NAK | 12, BAD_KEY = 0x1200 };

struct fault {
	const char *name;
	uint8_t opcode;
	uint32_t len, dma_len, psn, rkey_xor;
	uint16_t pkey;
	bool wrong_address;
	int access;		  /* of the QP; 0 = all */
	uint8_t syndrome;	  /* of the one answer; 0 = none */
	enum counter drop_reason; /* without an answer */
};

static const struct fault faults[] = {
	{ "P_Key before PSN", OP_WRITE_ONLY, 8, 8, 5, BAD_KEY, 0x1234,
	  .drop_reason = CNT_DROP_PKEY },
	{ "address before PSN", OP_WRITE_ONLY, 8, 8, 5, BAD_KEY, PKEY_DEFAULT, true,
	  .drop_reason = CNT_DROP_ADDRESS },
	{ "PSN before the sequence of opcodes", OP_WRITE_MIDDLE, 8, 0, 5, 0, PKEY_DEFAULT,
	  .syndrome = 0x60 },
	{ "PSN before rights", OP_WRITE_ONLY, 8, 8, 5, BAD_KEY, PKEY_DEFAULT,
	  .access = IBV_ACCESS_REMOTE_READ, .syndrome = 0x60 },
	{ "sequence before the receive", OP_SEND_MIDDLE, MTU, 0, 0, 0, PKEY_DEFAULT,
	  .syndrome = 0x61 },
	{ "rights before the key", OP_WRITE_ONLY, 8, 8, 0, BAD_KEY, PKEY_DEFAULT,
	  .access = IBV_ACCESS_REMOTE_READ, .syndrome = 0x61 },
	{ "rights before the key, READ", OP_READ_REQUEST, 0, 8, 0, BAD_KEY, PKEY_DEFAULT,
	  .access = IBV_ACCESS_REMOTE_WRITE, .syndrome = 0x61 },
	{ "rights before the receive", OP_WRITE_ONLY_IMM, 8, 8, 0, BAD_KEY, PKEY_DEFAULT,
	  .access = IBV_ACCESS_REMOTE_READ, .syndrome = 0x61 },
	{ "receive before length", OP_SEND_FIRST, 8, 0, 0, 0, PKEY_DEFAULT, .syndrome = RNR },
	{ "receive before the key", OP_WRITE_ONLY_IMM, 8, 8, 0, BAD_KEY, PKEY_DEFAULT,
	  .syndrome = RNR },
	{ "length before the key", OP_WRITE_ONLY, 8, 9, 0, BAD_KEY, PKEY_DEFAULT,
	  .syndrome = 0x61 },
	{ "key", OP_WRITE_ONLY, 8, 8, 0, BAD_KEY, PKEY_DEFAULT, .syndrome = 0x62 },
};

static struct packet packet_to(const struct pair *pair, uint8_t opcode, uint32_t psn, uint32_t len)
{
	return (struct packet){ .opcode = opcode,
				.pkey = PKEY_DEFAULT,
				.ack_req = true,
				.dest_qpn = qp_num(pair->b.qp),
				.psn = psn,
				.va = (uintptr_t)pair->b.buffer,
				.rkey = pair->b.mr.key,
				.dma_len = len,
				.payload_len = len,
				.pad = -len & 3,
				.sgid = pair->a.gid,
				.dgid = pair->b.gid };
}

static uint8_t payload[4096];

static void test_order_of_checks(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(faults); i++) {
		const struct fault *f = &faults[i];
		uint64_t drops = counter_get(f->drop_reason);
		struct packet p;
		struct pair pair;

		print_message("%s\n", f->name);
		pair_open(&pair, &(struct setup){ .b_access = f->access });
		p = packet_to(&pair, f->opcode, f->psn, f->len);
		p.dma_len = f->dma_len;
		p.rkey ^= f->rkey_xor;
		p.pkey = f->pkey;
		p.sgid.raw[15] ^= f->wrong_address;
		link_mem_inject(pair.b.link, &p, payload);
		settle(&pair);
		assert_int_equal(pair.b.link->log_count, f->syndrome != 0);
		if (f->syndrome) {
			assert_int_equal(pair.b.link->log[0].syndrome, f->syndrome);
			assert_int_equal(pair.b.link->log[0].psn, 0);
		} else {
			assert_int_equal(counter_get(f->drop_reason) - drops, 1);
		}
		assert_int_equal(qp_state(pair.b.qp), f->syndrome == 0x61 || f->syndrome == 0x62
							      ? IBV_QPS_ERR
							      : IBV_QPS_RTS);
		pair_close(&pair);
	}
}

static void modify(struct hca_qp *qp, enum ibv_qp_state to)
{
	struct ibv_qp_attr attr = { .qp_state = to, .port_num = 1, .qp_access_flags = 0 };
	int mask = IBV_QP_STATE;

	if (to == IBV_QPS_INIT)
		mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
	assert_int_equal(qp_modify(qp, &attr, mask, gid_lookup), 0);
}

static void test_states(void **state)
{
	static const struct {
		enum ibv_qp_state path[3];
		unsigned int steps;
		bool answers;
	} rows[] = {
		{ { IBV_QPS_RESET }, 1, false }, { { IBV_QPS_RESET, IBV_QPS_INIT }, 2, false },
		{ { IBV_QPS_ERR }, 1, false },	 { { IBV_QPS_SQD }, 1, true },
		{ { IBV_QPS_RTS }, 0, true },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		uint64_t drops = counter_get(CNT_DROP_STATE);
		struct packet p;
		struct pair pair;

		pair_open(&pair, NULL);
		for (unsigned int s = 0; s < rows[i].steps; s++)
			modify(pair.b.qp, rows[i].path[s]);
		p = packet_to(&pair, OP_WRITE_ONLY, 0, 8);
		link_mem_inject(pair.b.link, &p, payload);
		settle(&pair);
		assert_int_equal(pair.b.link->log_count, rows[i].answers);
		assert_int_equal(counter_get(CNT_DROP_STATE) - drops, !rows[i].answers);
		pair_close(&pair);
	}
}

/* counted when a message is complete, a READ when it is accepted; in every AETH */
static void test_msn(void **state)
{
	struct pair pair;

	pair_open(&pair, NULL);
	post_recv(&pair.b, 7, 0, 100);
	post(&pair.a, IBV_WR_RDMA_WRITE, 1, 0, 3000, &pair.b, 0, IBV_SEND_SIGNALED);
	settle(&pair);
	assert_int_equal(pair.b.link->log[0].msn, 1);
	pair.b.link->log_count = 0;
	post(&pair.a, IBV_WR_RDMA_READ, 2, 0, 3000, &pair.b, 0, IBV_SEND_SIGNALED);
	settle(&pair);
	assert_int_equal(link_mem_find(pair.b.link, OP_READ_RESPONSE_FIRST, 0)->msn, 2);
	assert_int_equal(link_mem_find(pair.b.link, OP_READ_RESPONSE_LAST, 0)->msn, 2);
	pair.b.link->log_count = 0;
	post(&pair.a, IBV_WR_SEND, 3, 0, 100, &pair.b, 0, IBV_SEND_SIGNALED);
	settle(&pair);
	assert_int_equal(pair.b.link->log[0].msn, 3);
	pair_close(&pair);
}

/* what was there twice is acknowledged also while a NAK waits for its packet; the NAK stays one */
static void test_duplicate_behind_a_nak(void **state)
{
	struct packet p;
	struct pair pair;

	pair_open(&pair, NULL);
	p = packet_to(&pair, OP_WRITE_ONLY, 0, 8);
	link_mem_inject(pair.b.link, &p, payload);
	settle(&pair);
	p.psn = 2; /* 1 is missing */
	link_mem_inject(pair.b.link, &p, payload);
	settle(&pair);
	assert_int_equal(pair.b.link->log[1].syndrome, AETH_NAK_SEQUENCE);
	assert_int_equal(pair.b.link->log[1].psn, 1);
	p.psn = 0;
	link_mem_inject(pair.b.link, &p, payload);
	settle(&pair);
	assert_int_equal(pair.b.link->log_count, 3);
	assert_int_equal(pair.b.link->log[2].syndrome & 0xe0, 0);
	assert_int_equal(pair.b.link->log[2].psn, 0);
	p.psn = 3;
	link_mem_inject(pair.b.link, &p, payload);
	settle(&pair);
	assert_int_equal(pair.b.link->log_count, 3);
	pair_close(&pair);
}

/* posted together: the READ sees what the WRITE before it has written, the WRITE behind it not yet
 */
static void test_read_between_writes(void **state)
{
	struct pair pair;

	pair_open(&pair, NULL);
	memset(pair.a.buffer, 1, 4000);
	memset(pair.a.buffer + 10000, 2, 4000);
	post(&pair.a, IBV_WR_RDMA_WRITE, 1, 0, 4000, &pair.b, 0, 0);
	post(&pair.a, IBV_WR_RDMA_READ, 2, 20000, 4000, &pair.b, 0, IBV_SEND_SIGNALED);
	post(&pair.a, IBV_WR_RDMA_WRITE, 3, 10000, 4000, &pair.b, 0,
	     IBV_SEND_SIGNALED | IBV_SEND_FENCE);
	settle(&pair);
	expect_cqe(&pair.a, 2, IBV_WC_SUCCESS);
	expect_cqe(&pair.a, 3, IBV_WC_SUCCESS);
	assert_memory_equal(pair.a.buffer + 20000, pair.a.buffer, 4000);
	assert_memory_equal(pair.b.buffer, pair.a.buffer + 10000, 4000);
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_order_of_checks),
		cmocka_unit_test(test_states),
		cmocka_unit_test(test_msn),
		cmocka_unit_test(test_duplicate_behind_a_nak),
		cmocka_unit_test(test_read_between_writes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
