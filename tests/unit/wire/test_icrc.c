// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_icrc.c: the ICRC against a bitwise CRC, against known packets, and solving for the IPv4
 * identification.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "util/bytes.h"
#include "wire/icrc.h"
#include "wire/packet.h"

static uint32_t bitwise(uint32_t crc, const uint8_t *data, size_t len)
{
	int bit;

	crc = ~crc;
	while (len--) {
		crc ^= *data++;
		for (bit = 0; bit < 8; bit++)
			crc = (crc >> 1) ^ (crc & 1 ? 0xedb88320 : 0);
	}
	return ~crc;
}

static uint32_t from_hex(uint8_t *out, const char *hex)
{
	uint32_t len = 0;
	unsigned int byte;

	for (; *hex; hex += 2) {
		assert_int_equal(sscanf(hex, "%2x", &byte), 1);
		out[len++] = (uint8_t)byte;
	}
	return len;
}

static void test_crc(void **state)
{
	uint8_t ones[8];

	assert_int_equal(icrc_update(0, "123456789", 9), 0xcbf43926);
	/* the register after the eight 0xff, before the final inversion (wire-facts 1.6) */
	memset(ones, 0xff, sizeof(ones));
	assert_int_equal(~icrc_update(0, ones, 8), 0xdebb20e3);
}

#define COPY_MAX 9000

static void check_copy(const uint8_t *data, const uint32_t *crc_of, size_t len, unsigned int shift)
{
	static uint8_t out[COPY_MAX + 3 + 16];
	uint8_t *dst = out + 8 + shift;

	memset(dst - 8, 0xa5, len + 16);
	assert_int_equal(icrc_copy(0, dst, data, len), crc_of[len]);
	assert_memory_equal(dst, data, len);
	assert_int_equal(get_be64(dst - 8), 0xa5a5a5a5a5a5a5a5);
	assert_int_equal(get_be64(dst + len), 0xa5a5a5a5a5a5a5a5);
	assert_int_equal(icrc_update(0, dst, len), crc_of[len]);
}

static void test_copy(void **state)
{
	static const enum icrc_kernel kernels[] = { ICRC_KERNEL_ISAL, ICRC_KERNEL_PCLMUL,
						    ICRC_KERNEL_AVX512 };
	uint8_t *data = malloc(COPY_MAX);
	uint32_t *crc_of = calloc(COPY_MAX + 1, sizeof(*crc_of));
	uint32_t rest, whole;
	uint8_t out[200];
	size_t i, len, tried = 0;

	srand(1);
	for (len = 0; len < COPY_MAX; len++) {
		data[len] = (uint8_t)rand();
		crc_of[len + 1] = bitwise(crc_of[len], data + len, 1);
	}
	for (i = 0; i < ARRAY_SIZE(kernels); i++) {
		if (!icrc_use_kernel(kernels[i]))
			continue;
		tried++;
		for (len = 0; len <= COPY_MAX; len++)
			check_copy(data, crc_of, len, len % 4);
		/* pieces chain */
		for (len = 0; len <= 200; len++) {
			rest = icrc_copy(0, out, data, len);
			whole = icrc_copy(rest, out, data + len, 200 - len);
			assert_int_equal(whole, crc_of[200]);
		}
	}
	assert_true(tried >= 1);
	free(data);
	free(crc_of);
}

struct vector {
	const char *packet; /* IP header .. last byte before the ICRC */
	uint32_t ip_len;
	const char *icrc;
};

static const struct vector vectors[] = {
	{ "45c2003c718c4000401191610a0011010a001201000012b7002800008100ffff4000011800000000"
	  "00000000000000000000000000000000",
	  20, "82fd002a" },
	{ "45010040047840004011b4d5c0a80007c0a80007c00012b7002caca22460ffff000000d300cf1710"
	  "4630818be28935d90e9a95505401be885e500000",
	  20, "78f353f3" },
	{ "60012345001c114020010db800000000000000000000000120010db8000000000000000000000002"
	  "c00012b7001c00001140ffff00000011001234561f000001",
	  40, "e929da5f" },
};

static void gids_from_ip(const uint8_t *ip, union ibv_gid *sgid, union ibv_gid *dgid)
{
	if (ip[0] >> 4 == 6) {
		memcpy(sgid, ip + 8, 16);
		memcpy(dgid, ip + 24, 16);
		return;
	}
	memset(sgid, 0, sizeof(*sgid));
	sgid->raw[10] = sgid->raw[11] = 0xff;
	*dgid = *sgid;
	memcpy(sgid->raw + 12, ip + 12, 4);
	memcpy(dgid->raw + 12, ip + 16, 4);
}

static void check_vector(const struct vector *v)
{
	bool is_ipv4 = v->ip_len == 20;
	uint8_t packet[256], icrc[4];
	uint32_t len = from_hex(packet, v->packet), crc, udp_payload_len;
	uint8_t *udp = packet + v->ip_len, *data = udp + 8;
	uint16_t real_id = is_ipv4 ? get_be16(packet + 4) : 0, id = 0;
	union ibv_gid sgid, dgid;
	int bit;

	assert_int_equal(from_hex(icrc, v->icrc), 4);
	gids_from_ip(packet, &sgid, &dgid);
	udp_payload_len = len - v->ip_len - 8 + ICRC_LEN;
	assert_int_equal(get_be16(udp + 4), udp_payload_len + 8);

	crc = icrc_prefix(&sgid, &dgid, real_id, get_be16(udp), udp_payload_len);
	crc = icrc_bth(crc, data);
	crc = icrc_update(crc, data + BTH_LEN, udp_payload_len - BTH_LEN - ICRC_LEN);
	assert_int_equal(crc, icrc_get(icrc));
	memcpy(packet + len, icrc, ICRC_LEN);

	/* as a socket sees it: the identification is unknown */
	assert_true(icrc_check(&sgid, &dgid, get_be16(udp), data, udp_payload_len, &id));
	assert_int_equal(id, real_id);

	/* FECN and BECN are masked; any other bit is not */
	data[4] ^= 0xff;
	assert_true(icrc_check(&sgid, &dgid, get_be16(udp), data, udp_payload_len, NULL));
	for (bit = 0; bit < 8 * (int)udp_payload_len; bit++) {
		if (bit / 8 == 4)
			continue;
		data[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_false(icrc_check(&sgid, &dgid, get_be16(udp), data, udp_payload_len, NULL));
		data[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	sgid.raw[15] ^= 1;
	assert_false(icrc_check(&sgid, &dgid, get_be16(udp), data, udp_payload_len, NULL));
	sgid.raw[15] ^= 1;
	assert_false(icrc_check(&sgid, &dgid, get_be16(udp) ^ 1, data, udp_payload_len, NULL));
}

static void test_vectors(void **state)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(vectors); i++)
		check_vector(&vectors[i]);
}

static void ipv4_gids(union ibv_gid *sgid, union ibv_gid *dgid)
{
	memset(sgid, 0, sizeof(*sgid));
	sgid->raw[10] = sgid->raw[11] = 0xff;
	*dgid = *sgid;
	put_be32(sgid->raw + 12, 0x0a010203);
	put_be32(dgid->raw + 12, 0xc0a80104);
}

/* every identification is found, for every length */
static void test_solve_id(void **state)
{
	uint8_t data[PACKET_MAX_LEN];
	union ibv_gid sgid, dgid;
	uint32_t len, crc, i;
	uint16_t real_id, id;

	ipv4_gids(&sgid, &dgid);
	for (i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)rand();
	for (i = 0; i < 0x10000; i++) {
		real_id = (uint16_t)i;
		len = 16 + i * 4 % (sizeof(data) - 15);
		crc = icrc_prefix(&sgid, &dgid, real_id, 0xc001, len);
		assert_int_equal(crc, icrc_prefix(&sgid, &dgid, 0, 0xc001, len) ^
					      icrc_id_delta(real_id));
		crc = icrc_bth(crc, data);
		crc = icrc_update(crc, data + BTH_LEN, len - BTH_LEN - ICRC_LEN);
		id = 0x1234;
		assert_true(icrc_solve_id(0, len, &id));
		assert_int_equal(id, 0x1234);
		icrc_put(data + len - ICRC_LEN, crc);
		assert_true(icrc_check(&sgid, &dgid, 0xc001, data, len, &id));
		assert_int_equal(id, real_id);
	}
}

/* anything else passes with probability 2^-16 */
static void test_solve_strength(void **state)
{
	unsigned int accepted = 0, i;
	uint16_t id;

	srand(3);
	for (i = 0; i < 200000; i++)
		accepted += icrc_solve_id((uint32_t)rand() << 16 ^ (uint32_t)rand(),
					  16 + i % 1000 * 4, &id);
	assert_in_range(accepted, 0, 15);
}

static void test_bad_length(void **state)
{
	uint8_t data[64] = { 0 };
	union ibv_gid sgid, dgid;
	uint32_t len;

	ipv4_gids(&sgid, &dgid);
	for (len = 0; len < BTH_LEN + ICRC_LEN; len++)
		assert_false(icrc_check(&sgid, &dgid, 1, data, len, NULL));
	assert_false(icrc_check(&sgid, &dgid, 1, data, 0xffffffff, NULL));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_crc),
		cmocka_unit_test(test_copy),
		cmocka_unit_test(test_vectors),
		cmocka_unit_test(test_solve_id),
		cmocka_unit_test(test_solve_strength),
		cmocka_unit_test(test_bad_length),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
