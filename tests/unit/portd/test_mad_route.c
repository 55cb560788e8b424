// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_mad_route.c: which process a CM message is for, and what is answered for dead ones; MADs
 * as packets.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>

#include "portd/mad_io.h"
#include "portd/mad_route.h"
#include "wire/icrc.h"
#include "util/bytes.h"

#define SERVICE	  0x01061144ULL
#define TID	  0x1122334455667788ULL
#define LOCAL_ID  0xa1b2c3d4U
#define REMOTE_ID 0x05000007U /* slot 5 */
#define ALIVE_5	  (1ULL << 5)

static struct listen_table listens;
static const union ibv_gid any, dgid = { { 0xfd, [15] = 1 } };
static uint8_t mad[MAD_LEN], reply[MAD_LEN], slot;

static void make(uint16_t attribute)
{
	memset(mad, 0, sizeof(mad));
	mad[0] = 1;
	mad[1] = 7;
	mad[2] = 2;
	mad[3] = 3;
	put_be64(mad + 8, TID);
	put_be16(mad + 16, attribute);
	put_be32(mad + 24, LOCAL_ID);
	put_be32(mad + 28, REMOTE_ID);
}

static enum mad_action route(uint64_t alive)
{
	slot = 0;
	memset(reply, 0xee, sizeof(reply));
	return mad_route(&listens, alive, mad, &dgid, &slot, reply);
}

static void check_reply_header(uint16_t attribute)
{
	assert_int_equal(reply[0], 1);
	assert_int_equal(reply[1], 7);
	assert_int_equal(reply[2], 2);
	assert_int_equal(reply[3], 3);
	assert_int_equal(get_be16(reply + 4), 0);
	assert_true(get_be64(reply + 8) == TID);
	assert_int_equal(get_be16(reply + 16), attribute);
	assert_int_equal(get_be32(reply + 18), 0);
}

static int setup(void **state)
{
	memset(&listens, 0, sizeof(listens));
	return 0;
}

static void make_req(uint16_t attribute)
{
	make(attribute);
	put_be64(mad + 24 + 8, SERVICE);
}

static void test_req_goes_to_the_listener(void **state)
{
	listen_add(&listens, SERVICE, &any, 9);
	make_req(0x10);
	assert_int_equal(route(1ULL << 9), MAD_DELIVER);
	assert_int_equal(slot, 9);
	make_req(0x17);
	assert_int_equal(route(1ULL << 9), MAD_DELIVER);
	assert_int_equal(slot, 9);
}

static void test_req_without_listener(void **state)
{
	make_req(0x10);
	assert_int_equal(route(ALIVE_5), MAD_REPLY);
	check_reply_header(0x12);
	assert_int_equal(get_be32(reply + 24), 0);
	assert_int_equal(get_be32(reply + 28), LOCAL_ID);
	assert_int_equal(reply[32], 0); /* REQ rejected */
	assert_int_equal(get_be16(reply + 34), 8);
}

static void test_sidr_req_without_listener(void **state)
{
	make_req(0x17);
	assert_int_equal(route(ALIVE_5), MAD_REPLY);
	check_reply_header(0x18);
	assert_int_equal(get_be32(reply + 24), LOCAL_ID);
	assert_int_equal(reply[28], 1);
	assert_true(get_be64(reply + 36) == SERVICE);
}

static void test_by_communication_id(void **state)
{
	static const uint16_t attributes[] = { 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x19, 0x1a };

	for (unsigned int i = 0; i < ARRAY_SIZE(attributes); i++) {
		make(attributes[i]);
		assert_int_equal(route(ALIVE_5), MAD_DELIVER);
		assert_int_equal(slot, 5);
	}
	make(0x18); /* SIDR_REP: the request ID is the requester's */
	put_be32(mad + 24, REMOTE_ID);
	put_be32(mad + 28, 0);
	assert_int_equal(route(ALIVE_5), MAD_DELIVER);
	assert_int_equal(slot, 5);
}

static void test_dreq_for_the_dead(void **state)
{
	make(0x15);
	assert_int_equal(route(0), MAD_REPLY);
	check_reply_header(0x16);
	assert_int_equal(get_be32(reply + 24), REMOTE_ID);
	assert_int_equal(get_be32(reply + 28), LOCAL_ID);
}

static void test_rep_for_the_dead(void **state)
{
	make(0x13);
	assert_int_equal(route(0), MAD_REPLY);
	check_reply_header(0x12);
	assert_int_equal(get_be32(reply + 24), REMOTE_ID);
	assert_int_equal(get_be32(reply + 28), LOCAL_ID);
	assert_int_equal(reply[32], 1 << 6); /* REP rejected */
	assert_int_equal(get_be16(reply + 34), 6);
}

static void test_others_for_the_dead(void **state)
{
	static const uint16_t attributes[] = { 0x11, 0x12, 0x14, 0x16, 0x18, 0x19, 0x1a };

	for (unsigned int i = 0; i < ARRAY_SIZE(attributes); i++) {
		make(attributes[i]);
		assert_int_equal(route(0), MAD_DROP);
	}
}

static void test_ids_out_of_range(void **state)
{
	make(0x14);
	mad[28] = 0; /* the daemon's own slot */
	assert_int_equal(route(~0ULL), MAD_DROP);
	mad[28] = PORTD_SLOTS;
	assert_int_equal(route(~0ULL), MAD_DROP);
	mad[28] = 0xff;
	assert_int_equal(route(~0ULL), MAD_DROP);
}

static void test_not_cm(void **state)
{
	static const struct {
		int offset;
		uint8_t value;
	} cases[] = {
		{ 0, 2 }, { 1, 3 }, { 2, 1 }, { 3, 1 }, { 3, 0x81 }, { 17, 1 }, { 17, 0x1b }
	};

	for (unsigned int i = 0; i < ARRAY_SIZE(cases); i++) {
		make(0x15);
		mad[cases[i].offset] = cases[i].value;
		assert_int_equal(route(0), MAD_DROP);
	}
}

static void test_packet_there_and_back(void **state)
{
	struct portd_mad in = { .sgid = { { 0xfd, [15] = 2 } }, .dgid = { { 0xfd, [15] = 1 } } },
			 out;
	uint8_t packet[MAD_PACKET_LEN];
	uint16_t hint = 0;

	for (int i = 0; i < MAD_LEN; i++)
		in.data[i] = (uint8_t)(i * 7);
	mad_build(packet, &in, 0x1234567);
	assert_int_equal(MAD_PACKET_LEN, 280);
	assert_int_equal(packet[0], 0x64);
	assert_int_equal(get_be24(packet + 5), 1);
	assert_int_equal(get_be32(packet + 12), 0x80010000);
	assert_int_equal(get_be24(packet + 17), 1);

	out = in;
	memset(out.data, 0, MAD_LEN);
	assert_int_equal(mad_parse(&out, 4791, &hint, packet, sizeof(packet)), DROP_NONE);
	assert_memory_equal(out.data, in.data, MAD_LEN);
	assert_int_equal(out.src_qpn, 1);

	assert_int_equal(mad_parse(&out, 4792, &hint, packet, sizeof(packet)), CNT_DROP_ICRC);
	assert_int_equal(mad_parse(&out, 4791, &hint, packet, 8), CNT_DROP_SHORT);
	packet[100] ^= 1;
	assert_int_equal(mad_parse(&out, 4791, &hint, packet, sizeof(packet)), CNT_DROP_ICRC);
}

/* change one byte of a good packet, make the ICRC right again */
static enum counter parse_changed(int offset, uint8_t value)
{
	struct portd_mad m = { .sgid = { { 0xfd, [15] = 2 } }, .dgid = { { 0xfd, [15] = 1 } } };
	uint8_t packet[MAD_PACKET_LEN];
	uint32_t crc;

	mad_build(packet, &m, 1);
	packet[offset] = value;
	crc = icrc_prefix(&m.sgid, &m.dgid, 0, 4791, MAD_PACKET_LEN);
	crc = icrc_update(icrc_bth(crc, packet), packet + 12, MAD_PACKET_LEN - 16);
	icrc_put(packet + MAD_PACKET_LEN - 4, crc);
	return mad_parse(&m, 4791, NULL, packet, sizeof(packet));
}

static void test_packet_checks(void **state)
{
	assert_int_equal(parse_changed(7, 2), CNT_DROP_QPN);
	assert_int_equal(parse_changed(15, 1), CNT_DROP_QKEY);
	assert_int_equal(parse_changed(3, 0xfe), CNT_DROP_PKEY);
	assert_int_equal(parse_changed(2, 0x7f), DROP_NONE); /* limited member */
	assert_int_equal(parse_changed(0, 0x65), CNT_DROP_TYPE);
	assert_int_equal(parse_changed(1, 0x40 | 1 << 4), CNT_DROP_MAD); /* one pad byte */
	assert_int_equal(parse_changed(1, 0x41), CNT_DROP_VERSION);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_req_goes_to_the_listener, setup),
		cmocka_unit_test_setup(test_req_without_listener, setup),
		cmocka_unit_test_setup(test_sidr_req_without_listener, setup),
		cmocka_unit_test_setup(test_by_communication_id, setup),
		cmocka_unit_test_setup(test_dreq_for_the_dead, setup),
		cmocka_unit_test_setup(test_rep_for_the_dead, setup),
		cmocka_unit_test_setup(test_others_for_the_dead, setup),
		cmocka_unit_test_setup(test_ids_out_of_range, setup),
		cmocka_unit_test_setup(test_not_cm, setup),
		cmocka_unit_test(test_packet_there_and_back),
		cmocka_unit_test(test_packet_checks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
