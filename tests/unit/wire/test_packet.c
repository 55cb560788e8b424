// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_packet.c: the opcode table, the parser's drop reasons, the builder.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "util/bytes.h"
#include "wire/packet.h"

static void test_opcode_table(void **state)
{
	static const struct {
		uint8_t opcode, header_len;
		uint32_t flags;
	} rows[] = {
		{ 0x00, 12, OPF_REQUEST | OPF_SEND | OPF_START | OPF_PAYLOAD | OPF_FULL_MTU },
		{ 0x01, 12, OPF_REQUEST | OPF_SEND | OPF_PAYLOAD | OPF_FULL_MTU },
		{ 0x03, 16,
		  OPF_REQUEST | OPF_SEND | OPF_END | OPF_PAYLOAD | OPF_NOT_EMPTY | HDR_IMM },
		{ 0x04, 12, OPF_REQUEST | OPF_SEND | OPF_START | OPF_END | OPF_PAYLOAD },
		{ 0x0b, 32,
		  OPF_REQUEST | OPF_WRITE | OPF_START | OPF_END | OPF_PAYLOAD | HDR_RETH |
			  HDR_IMM },
		{ 0x0c, 28, OPF_REQUEST | OPF_READ | OPF_START | OPF_END | HDR_RETH },
		{ 0x0e, 12, OPF_RESPONSE | OPF_READ | OPF_PAYLOAD | OPF_FULL_MTU },
		{ 0x10, 16,
		  OPF_RESPONSE | OPF_READ | OPF_START | OPF_END | OPF_PAYLOAD | HDR_AETH },
		{ 0x11, 16, OPF_RESPONSE | OPF_START | OPF_END | HDR_AETH },
		{ 0x12, 24,
		  OPF_RESPONSE | OPF_ATOMIC | OPF_START | OPF_END | HDR_AETH | HDR_ATOMIC_ACK },
		{ 0x13, 40, OPF_REQUEST | OPF_ATOMIC | OPF_START | OPF_END | HDR_ATOMIC },
		{ 0x17, 16, OPF_REQUEST | OPF_SEND | OPF_START | OPF_END | OPF_PAYLOAD | HDR_IETH },
		{ 0x2b, 32,
		  OPF_REQUEST | OPF_WRITE | OPF_START | OPF_END | OPF_PAYLOAD | HDR_RETH |
			  HDR_IMM },
		{ 0x65, 24,
		  OPF_REQUEST | OPF_SEND | OPF_START | OPF_END | OPF_PAYLOAD | HDR_DETH | HDR_IMM },
		{ 0xa4, 16,
		  OPF_REQUEST | OPF_SEND | OPF_START | OPF_END | OPF_PAYLOAD | HDR_XRCETH },
		{ 0xb1, 16, OPF_RESPONSE | OPF_START | OPF_END | HDR_AETH },
	};
	static const uint8_t invalid[] = { 0x15, 0x18, 0x1c, 0x1f, 0x2c, 0x31, 0x40, 0x44,
					   0x60, 0x66, 0x80, 0x82, 0xb5, 0xc0, 0xff };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		assert_int_equal(opcode_table[rows[i].opcode].flags, rows[i].flags | OPF_VALID);
		assert_int_equal(opcode_table[rows[i].opcode].header_len, rows[i].header_len);
		assert_non_null(opcode_table[rows[i].opcode].name);
	}
	for (i = 0; i < ARRAY_SIZE(invalid); i++) {
		assert_int_equal(opcode_table[invalid[i]].flags, 0);
		assert_null(opcode_table[invalid[i]].name);
	}
}

static void random_packet(struct packet *p, uint8_t opcode, uint32_t payload_len)
{
	uint32_t flags = opcode_table[opcode].flags;
	uint8_t *bytes = (uint8_t *)p;
	size_t i;

	for (i = 0; i < sizeof(*p); i++)
		bytes[i] = (uint8_t)rand();
	p->opcode = opcode;
	p->flags = flags;
	p->solicited = rand() & 1;
	p->ack_req = rand() & 1;
	p->fecn = rand() & 1;
	p->becn = rand() & 1;
	p->dest_qpn &= QPN_MASK;
	p->psn &= PSN_MASK;
	p->msn &= 0xffffff;
	p->src_qpn &= QPN_MASK;
	p->xrc_srqn &= 0xffffff;
	p->payload_len = payload_len;
	p->pad = (uint8_t)(-payload_len & 3);
}

static void assert_same(const struct packet *a, const struct packet *b)
{
	assert_int_equal(a->opcode, b->opcode);
	assert_int_equal(a->flags, b->flags);
	assert_int_equal(a->pad, b->pad);
	assert_int_equal(a->solicited, b->solicited);
	assert_int_equal(a->ack_req, b->ack_req);
	assert_int_equal(a->fecn, b->fecn);
	assert_int_equal(a->becn, b->becn);
	assert_int_equal(a->pkey, b->pkey);
	assert_int_equal(a->dest_qpn, b->dest_qpn);
	assert_int_equal(a->psn, b->psn);
	assert_int_equal(a->payload_len, b->payload_len);
	if (a->flags & (HDR_RETH | HDR_ATOMIC)) {
		assert_true(a->va == b->va);
		assert_int_equal(a->rkey, b->rkey);
	}
	if (a->flags & HDR_RETH)
		assert_int_equal(a->dma_len, b->dma_len);
	if (a->flags & HDR_ATOMIC) {
		assert_true(a->swap_add == b->swap_add);
		assert_true(a->compare == b->compare);
	}
	if (a->flags & HDR_AETH) {
		assert_int_equal(a->syndrome, b->syndrome);
		assert_int_equal(a->msn, b->msn);
	}
	if (a->flags & HDR_ATOMIC_ACK)
		assert_true(a->atomic_orig == b->atomic_orig);
	if (a->flags & HDR_IMM)
		assert_int_equal(a->imm, b->imm);
	if (a->flags & HDR_IETH)
		assert_int_equal(a->inv_rkey, b->inv_rkey);
	if (a->flags & HDR_DETH) {
		assert_int_equal(a->qkey, b->qkey);
		assert_int_equal(a->src_qpn, b->src_qpn);
	}
	if (a->flags & HDR_XRCETH)
		assert_int_equal(a->xrc_srqn, b->xrc_srqn);
}

/* build and parse are inverse, for every opcode */
static void test_round_trip(void **state)
{
	uint8_t data[PACKET_MAX_LEN];
	uint32_t len, header_len;
	struct packet in, out;
	int opcode, round;

	for (opcode = 0; opcode < 256; opcode++) {
		if (!(opcode_table[opcode].flags & OPF_VALID))
			continue;
		for (round = 0; round < 20; round++) {
			len = opcode_table[opcode].flags & OPF_PAYLOAD ? (uint32_t)rand() % 70 : 0;
			random_packet(&in, (uint8_t)opcode, len);
			memset(data, 0, sizeof(data));
			header_len = packet_put_headers(data, &in);
			assert_int_equal(header_len, opcode_table[opcode].header_len);
			len = packet_len((uint8_t)opcode, len);
			assert_int_equal(packet_parse(&out, data, len), DROP_NONE);
			assert_ptr_equal(out.payload, data + header_len);
			assert_same(&in, &out);
		}
	}
}

static void test_layout(void **state)
{
	/* WRITE only with immediate, 5 bytes: RETH before ImmDt */
	static const uint8_t expected[32] = {
		0x0b, 0xf0, 0xff, 0xff, 0xc0, 0x01, 0x02, 0x03, 0x80, 0xab, 0xcd,
		0xef, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0xa1, 0xa2,
		0xa3, 0xa4, 0x00, 0x00, 0x00, 0x05, 0xde, 0xad, 0xbe, 0xef,
	};
	const struct packet p = {
		.opcode = OP_WRITE_ONLY_IMM,
		.solicited = true,
		.ack_req = true,
		.fecn = true,
		.becn = true,
		.pkey = PKEY_DEFAULT,
		.dest_qpn = 0x010203,
		.psn = 0xabcdef,
		.va = 0x1122334455667788,
		.rkey = 0xa1a2a3a4,
		.dma_len = 5,
		.imm = htobe32(0xdeadbeef),
		.payload_len = 5,
	};
	uint8_t out[HEADER_MAX_LEN];

	assert_int_equal(packet_put_headers(out, &p), 32);
	assert_memory_equal(out, expected, 32);
}

static enum counter parse(uint8_t opcode, uint8_t byte1, uint32_t len)
{
	static uint8_t data[PACKET_MAX_LEN + 64];
	uint8_t *exact = malloc(len ? len : 1); /* so that a sanitizer sees every byte too far */
	enum counter reason;
	struct packet p;

	memset(data, 0, sizeof(data));
	data[0] = opcode;
	data[1] = byte1;
	memcpy(exact, data, len);
	reason = packet_parse(&p, exact, len);
	free(exact);
	return reason;
}

static void test_drop_reasons(void **state)
{
	uint32_t len;
	int opcode;

	for (len = 0; len < 16; len++)
		assert_int_equal(parse(OP_SEND_ONLY, 0, len), CNT_DROP_SHORT);
	assert_int_equal(parse(OP_SEND_ONLY, 0, 16), DROP_NONE);
	assert_int_equal(parse(OP_SEND_ONLY, 0x0f, 16), CNT_DROP_VERSION);
	assert_int_equal(parse(0x1f, 0, 64), CNT_DROP_OPCODE);
	/* pad without so many bytes; a length that is not whole words */
	assert_int_equal(parse(OP_SEND_ONLY, 0x10, 16), CNT_DROP_PAD);
	assert_int_equal(parse(OP_SEND_ONLY, 0x30, 20), DROP_NONE);
	assert_int_equal(parse(OP_SEND_ONLY, 0x00, 19), CNT_DROP_PAD);
	assert_int_equal(parse(OP_SEND_ONLY, 0x10, 19), CNT_DROP_PAD);
	/* longer than any MTU */
	assert_int_equal(parse(OP_SEND_ONLY, 0, 16 + MTU_MAX), DROP_NONE);
	assert_int_equal(parse(OP_SEND_ONLY, 0, 16 + MTU_MAX + 4), CNT_DROP_LENGTH);
	assert_int_equal(parse(OP_SEND_ONLY, 0x30, 16 + MTU_MAX + 4), CNT_DROP_LENGTH);

	for (opcode = 0; opcode < 256; opcode++) {
		if (!(opcode_table[opcode].flags & OPF_VALID)) {
			assert_int_equal(parse((uint8_t)opcode, 0, 80), CNT_DROP_OPCODE);
			continue;
		}
		len = opcode_table[opcode].header_len + ICRC_LEN;
		assert_int_equal(parse((uint8_t)opcode, 0, len), DROP_NONE);
		assert_int_equal(parse((uint8_t)opcode, 0, len - 1), CNT_DROP_SHORT);
		if (!(opcode_table[opcode].flags & OPF_PAYLOAD)) {
			assert_int_equal(parse((uint8_t)opcode, 0, len + 4), CNT_DROP_LENGTH);
			assert_int_equal(parse((uint8_t)opcode, 0x30, len + 4), CNT_DROP_LENGTH);
		}
	}
}

static void test_psn(void **state)
{
	assert_int_equal(psn_diff(0, 0xffffff), 1);
	assert_int_equal(psn_diff(0xffffff, 0), -1);
	assert_int_equal(psn_diff(0x7fffff, 0), 0x7fffff);
	assert_int_equal(psn_diff(0x800000, 0), -0x800000);
	assert_int_equal(psn_add(0xfffffe, 3), 1);
}

static void test_mtu(void **state)
{
	assert_int_equal(mtu_from_netdev(65536), IBV_MTU_4096);
	assert_int_equal(mtu_from_netdev(4192), IBV_MTU_4096);
	assert_int_equal(mtu_from_netdev(4191), IBV_MTU_2048);
	assert_int_equal(mtu_from_netdev(2144), IBV_MTU_2048);
	assert_int_equal(mtu_from_netdev(2143), IBV_MTU_1024);
	assert_int_equal(mtu_from_netdev(1500), IBV_MTU_1024);
	assert_int_equal(mtu_from_netdev(352), IBV_MTU_256);
	assert_int_equal(mtu_from_netdev(351), 0);
	assert_int_equal(mtu_from_netdev(0), 0);
	assert_int_equal(mtu_bytes(IBV_MTU_256), 256);
	assert_int_equal(mtu_bytes(IBV_MTU_4096), 4096);
	assert_int_equal(mtu_bytes(0), 0);
	assert_int_equal(mtu_bytes(6), 0);
}

static void test_describe(void **state)
{
	const struct packet p = { .opcode = OP_ACKNOWLEDGE,
				  .dest_qpn = 0x10011,
				  .psn = 7,
				  .syndrome = AETH_NAK_SEQUENCE,
				  .msn = 3 };
	char buf[128], tiny[8];

	assert_string_equal(packet_describe(&p, buf, sizeof(buf)),
			    "RC ACKNOWLEDGE (0x11) to QP 0x010011 PSN 7, syndrome 0x60 MSN 3");
	assert_string_equal(packet_describe(&p, tiny, sizeof(tiny)), "RC ACKN");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_opcode_table), cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_layout),	     cmocka_unit_test(test_drop_reasons),
		cmocka_unit_test(test_psn),	     cmocka_unit_test(test_mtu),
		cmocka_unit_test(test_describe),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
