// SPDX-License-Identifier: BSD-2-Clause
/*
 * icrc.c: the invariant CRC; the CRC itself is in crc_fold.c. IBTA annex A17; wire-facts 1.6, 1.11.
 *
 * The CRC is affine, which is used twice: the state after the prefix for one IPv4 identification
 * gives that for any other by one XOR, and the identification that a received packet had can be
 * solved for. Polynomials are kept reflected, as the register is: bit 31 is the coefficient of
 * x^0.
 */
#include <stdatomic.h>

#include "util/bytes.h"
#include "wire/gf2.h"
#include "wire/icrc.h"
#include "wire/packet.h"

#define X_ORDER 0xffffffffU /* x^X_ORDER = 1: the polynomial is primitive */

#define IP4_LEN 20
#define IP6_LEN 40
#define UDP_LEN 8
#define LRH_LEN 8 /* stand-in for the local route header: ones */

/* bytes between the IPv4 word of identification, flags and fragment offset and the UDP payload */
#define AFTER_ID_LEN (IP4_LEN - 8 + UDP_LEN)

static size_t put_ip4(uint8_t *h, const union ibv_gid *sgid, const union ibv_gid *dgid,
		      uint16_t ip_id, uint32_t udp_payload_len)
{
	h[0] = 0x45;
	h[1] = 0xff; /* TOS: masked */
	put_be16(h + 2, (uint16_t)(IP4_LEN + UDP_LEN + udp_payload_len));
	put_be16(h + 4, ip_id);
	put_be16(h + 6, 0x4000); /* DF */
	h[8] = 0xff;		 /* TTL: masked */
	h[9] = 17;
	put_be16(h + 10, 0xffff); /* checksum: masked */
	memcpy(h + 12, sgid->raw + 12, 4);
	memcpy(h + 16, dgid->raw + 12, 4);
	return IP4_LEN;
}

static size_t put_ip6(uint8_t *h, const union ibv_gid *sgid, const union ibv_gid *dgid,
		      uint32_t udp_payload_len)
{
	put_be32(h, 0x6fffffff); /* traffic class, flow label: masked */
	put_be16(h + 4, (uint16_t)(UDP_LEN + udp_payload_len));
	h[6] = 17;
	h[7] = 0xff; /* hop limit: masked */
	memcpy(h + 8, sgid->raw, 16);
	memcpy(h + 24, dgid->raw, 16);
	return IP6_LEN;
}

uint32_t icrc_prefix(const union ibv_gid *sgid, const union ibv_gid *dgid, uint16_t ip_id,
		     uint16_t sport, uint32_t udp_payload_len)
{
	uint8_t h[LRH_LEN + IP6_LEN + UDP_LEN];
	size_t len = LRH_LEN;

	memset(h, 0xff, LRH_LEN);
	if (gid_is_ipv4(dgid))
		len += put_ip4(h + len, sgid, dgid, ip_id, udp_payload_len);
	else
		len += put_ip6(h + len, sgid, dgid, udp_payload_len);
	put_be16(h + len, sport);
	put_be16(h + len + 2, ROCE_UDP_PORT);
	put_be16(h + len + 4, (uint16_t)(UDP_LEN + udp_payload_len));
	put_be16(h + len + 6, 0xffff); /* UDP checksum: masked */
	return icrc_update(0, h, len + UDP_LEN);
}

/* what XORing the identification's two bytes into the header does to the state after the prefix */
static uint32_t id_delta[2][256];

/* what to XOR into the state before the BTH instead of XORing a value into its byte 4 */
static uint32_t byte4_delta[256];

static void __attribute__((constructor)) tables_init(void)
{
	const uint32_t factor = gf2_x_pow(32 + 8 * AFTER_ID_LEN);
	const uint32_t back_4_bytes = gf2_x_pow(X_ORDER - 32);
	uint32_t byte;

	for (byte = 0; byte < 256; byte++) {
		byte4_delta[byte] = gf2_mul(byte, back_4_bytes);
		id_delta[0][byte] = gf2_mul(byte, factor); /* first on the wire: the high one */
		id_delta[1][byte] = gf2_mul(byte << 8, factor);
	}
}

uint32_t icrc_mask_bth(uint32_t crc, const uint8_t *bth)
{
	return crc ^ byte4_delta[bth[4] ^ 0xff];
}

uint32_t icrc_bth(uint32_t crc, const uint8_t *bth)
{
	return icrc_update(icrc_mask_bth(crc, bth), bth, BTH_LEN);
}

void icrc_put(uint8_t *out, uint32_t crc)
{
	put_le32(out, crc);
}

uint32_t icrc_get(const uint8_t *in)
{
	return get_le32(in);
}

uint32_t icrc_id_delta(uint16_t ip_id)
{
	return id_delta[0][ip_id >> 8] ^ id_delta[1][ip_id & 0xff];
}

uint32_t icrc_move_delta(uint32_t delta, uint32_t len)
{
	return gf2_mul(delta, gf2_x_pow(8 * len));
}

/*
 * x^-(distance of the identification's word from the end), per length in words; 0 = not made yet.
 * Several engines may fill it: they write the same values.
 */
static _Atomic uint32_t id_solver[PACKET_MAX_LEN / 4 + 1];

static uint32_t id_solver_for(uint32_t len)
{
	uint32_t words = len / 4;
	uint32_t distance = 32 + 8 * (AFTER_ID_LEN + len - ICRC_LEN);
	uint32_t factor;

	if (len & 3 || words >= ARRAY_SIZE(id_solver))
		return gf2_x_pow(X_ORDER - distance);
	factor = atomic_load_explicit(&id_solver[words], memory_order_relaxed);
	if (!factor) {
		factor = gf2_x_pow(X_ORDER - distance);
		atomic_store_explicit(&id_solver[words], factor, memory_order_relaxed);
	}
	return factor;
}

bool icrc_solve_id(uint32_t difference, uint32_t len, uint16_t *ip_id)
{
	uint32_t word = gf2_mul(difference, id_solver_for(len));

	/* bytes 4..7 of the IP header; the flags in the last two must be what was assumed */
	if (word >> 16)
		return false;
	*ip_id ^= __builtin_bswap16((uint16_t)word);
	return true;
}

bool icrc_check(const union ibv_gid *sgid, const union ibv_gid *dgid, uint16_t sport,
		const uint8_t *data, uint32_t len, uint16_t *hint)
{
	uint32_t crc, difference;
	uint16_t ip_id = 0;

	if (len < BTH_LEN + ICRC_LEN || len > UINT16_MAX - IP4_LEN - UDP_LEN)
		return false;
	crc = icrc_prefix(sgid, dgid, 0, sport, len);
	crc = icrc_bth(crc, data);
	crc = icrc_update(crc, data + BTH_LEN, len - BTH_LEN - ICRC_LEN);
	difference = crc ^ icrc_get(data + len - ICRC_LEN);
	if (difference && (!gid_is_ipv4(dgid) || !icrc_solve_id(difference, len, &ip_id)))
		return false;
	if (hint)
		*hint = ip_id;
	return true;
}
