/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * icrc.h: the invariant CRC of RoCEv2 (wire-facts 1.6, 1.11), also fused with a copy.
 * Values named `crc` are running CRC-32 values in zlib's convention (pre- and post-inverted), so
 * that pieces chain: crc = icrc_update(crc, ...).
 */
#ifndef SOFTHCA_WIRE_ICRC_H
#define SOFTHCA_WIRE_ICRC_H

#include <stdbool.h>
#include <stdint.h>
#include <stddef.h>
#include <string.h>
#include <infiniband/verbs.h>

/* CRC over @len bytes */
uint32_t icrc_update(uint32_t crc, const void *data, size_t len);

/* copy @len bytes from @src to @dst, which do not overlap, and CRC them in one pass over memory */
uint32_t icrc_copy(uint32_t crc, void *dst, const void *src, size_t len);

/* how they do it; the best this CPU has is chosen at start. Tests try them all */
enum icrc_kernel { ICRC_KERNEL_ISAL, ICRC_KERNEL_PCLMUL, ICRC_KERNEL_AVX512 };
/* Return: false when this CPU has it not (nothing changes). Not thread-safe */
bool icrc_use_kernel(enum icrc_kernel which);

/**
 * icrc_prefix() - CRC of the eight 0xff bytes and the masked IP and UDP headers.
 * The result is constant for a flow and a length: callers keep it.
 * @sgid, @dgid: both IPv4-mapped, or both IPv6.
 * @ip_id: IPv4 identification (0 from our sockets; k for the k-th segment of a super-packet).
 * @sport: UDP source port.
 * @udp_payload_len: BTH .. ICRC, bytes.
 */
uint32_t icrc_prefix(const union ibv_gid *sgid, const union ibv_gid *dgid, uint16_t ip_id,
		     uint16_t sport, uint32_t udp_payload_len);

/**
 * icrc_mask_bth() - change @crc, the state before the BTH, so that going on over the BTH as it is
 * (and whatever follows, in one pass) gives what the masked BTH would give.
 */
uint32_t icrc_mask_bth(uint32_t crc, const uint8_t *bth);

/**
 * icrc_bth() - continue @crc over a BTH (12 bytes), with byte 4 masked.
 */
uint32_t icrc_bth(uint32_t crc, const uint8_t *bth);

/* the four bytes of the ICRC as on the wire <-> crc value */
void icrc_put(uint8_t *out, uint32_t crc);
uint32_t icrc_get(const uint8_t *in);

/* an IPv4-mapped GID (wire-facts 1.8) */
static inline bool gid_is_ipv4(const union ibv_gid *gid)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

	return !memcmp(gid->raw, mapped, sizeof(mapped));
}

/*
 * icrc_prefix() for identification @ip_id is icrc_prefix() for 0 XOR this: it depends on nothing
 * else.
 */
uint32_t icrc_id_delta(uint16_t ip_id);

/* what a difference in a running CRC becomes @len bytes later */
uint32_t icrc_move_delta(uint32_t delta, uint32_t len);

/**
 * icrc_solve_id() - explain a wrong ICRC of an IPv4 packet by its identification.
 * @difference: ICRC computed with *@ip_id XOR the received one.
 * @len: BTH .. ICRC, bytes.
 * @ip_id: in: identification assumed; out: the one that fits (on success).
 * Return: true when one fits (a wrong packet passes with probability 2^-16).
 */
bool icrc_solve_id(uint32_t difference, uint32_t len, uint16_t *ip_id);

/**
 * icrc_check() - check the ICRC of a received packet.
 * IPv4 hides the identification from a socket: 0 is tried first, then any value by solving for it
 * (the CRC is affine in it; a 16-bit check remains, wire-facts 1.11).
 * @data: BTH .. ICRC. @hint: out, identification that fitted, or NULL.
 * Return: true when it is right.
 */
bool icrc_check(const union ibv_gid *sgid, const union ibv_gid *dgid, uint16_t sport,
		const uint8_t *data, uint32_t len, uint16_t *hint);

#endif
