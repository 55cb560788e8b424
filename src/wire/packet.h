/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * packet.h: a RoCEv2 packet as a checked structure in host byte order. packet_parse() is the edge:
 * after it nothing looks at raw bytes again. packet_put_headers() is its inverse.
 * No IP here: a packet is what UDP carries, BTH .. ICRC. IBTA 1.4, 9.2-9.3; wire-facts 1.
 */
#ifndef SOFTHCA_WIRE_PACKET_H
#define SOFTHCA_WIRE_PACKET_H

#include <stdbool.h>
#include <stdint.h>
#include <infiniband/verbs.h>

#include "wire/opcode.h"

#define ROCE_UDP_PORT  4791
#define BTH_LEN	       12
#define ICRC_LEN       4
#define HEADER_MAX_LEN 64 /* BTH and the largest set of extension headers */
#define MTU_MAX	       4096
#define PACKET_MAX_LEN (HEADER_MAX_LEN + MTU_MAX + ICRC_LEN)
#define PSN_MASK       0xffffffU
#define QPN_MASK       0xffffffU
#define PKEY_DEFAULT   0xffff

/* PSN distance a - b, in -2^23 .. 2^23 - 1 (wire-facts 2.1) */
static inline int32_t psn_diff(uint32_t a, uint32_t b)
{
	return (int32_t)((a - b) << 8) >> 8;
}

static inline uint32_t psn_add(uint32_t psn, uint32_t n)
{
	return (psn + n) & PSN_MASK;
}

/* AETH syndromes (wire-facts 2.6) */
#define AETH_ACK_NO_CREDIT 0x1f
#define AETH_RNR_NAK	   0x20 /* | timer code */
#define AETH_NAK_SEQUENCE  0x60
#define AETH_NAK_INVALID   0x61
#define AETH_NAK_ACCESS	   0x62
#define AETH_NAK_OPERATION 0x63
#define AETH_KIND_MASK	   0xe0 /* 0x00 ACK, 0x20 RNR, 0x60 NAK */

struct packet {
	uint8_t opcode;
	uint8_t pad;
	bool solicited, ack_req, fecn, becn;
	uint16_t pkey;
	uint32_t dest_qpn;
	uint32_t psn;
	uint32_t flags; /* opcode_table[opcode].flags */

	/* extension headers; valid when flags has the HDR_ bit */
	uint64_t va;   /* RETH, AtomicETH */
	uint32_t rkey; /* RETH, AtomicETH */
	uint32_t dma_len;
	uint8_t syndrome; /* AETH */
	uint32_t msn;
	__be32 imm;
	uint32_t inv_rkey; /* IETH */
	uint64_t swap_add, compare;
	uint64_t atomic_orig;
	uint32_t qkey, src_qpn; /* DETH */
	uint32_t xrc_srqn;	/* XRCETH */

	const uint8_t *payload; /* without pad; points into the receive buffer */
	uint32_t payload_len;

	/* filled in by the link: where it came from, where it went to, as GIDs */
	union ibv_gid sgid, dgid;
	uint32_t ifindex;
	uint8_t tos, ttl;
};

/*
 * Why a packet was dropped; DROP_NONE = it was not. The enumerator is at once the label in the
 * code, the counter (CNT_DROP_x) and the log text. Values are enum counter values.
 */
#include "util/counters.h"
#define DROP_NONE 0 /* CNT_TX_PACKETS can be no drop reason */

/**
 * packet_parse() - check the structure of one packet and take its fields out.
 * @p: out; sgid, dgid, ifindex, tos, ttl and the ICRC are not this function's.
 * @data: BTH .. ICRC, as UDP carried it.
 * @len: bytes.
 * Return: DROP_NONE, or the drop reason (enum counter): CNT_DROP_SHORT, _LENGTH (a payload where
 * none can be, or longer than MTU_MAX), _VERSION, _OPCODE, _PAD. Does not count.
 * The payload length against the path MTU is the QP's matter.
 */
enum counter packet_parse(struct packet *p, const uint8_t *data, uint32_t len);

/**
 * packet_put_headers() - write the BTH and the extension headers of @p at @out.
 * MigReq is sent as 1 (CNP: 0), TVer 0; p->flags is ignored, opcode_table is read.
 * @out: at least HEADER_MAX_LEN bytes.
 * Return: length, bytes (opcode_table[p->opcode].header_len).
 */
uint32_t packet_put_headers(uint8_t *out, const struct packet *p);

/* bytes BTH .. ICRC of a packet with this opcode and payload */
static inline uint32_t packet_len(uint8_t opcode, uint32_t payload_len)
{
	return opcode_table[opcode].header_len + payload_len + (-payload_len & 3) + ICRC_LEN;
}

/* path MTU: enum ibv_mtu <-> bytes; 0 for an invalid value */
static inline uint32_t mtu_bytes(enum ibv_mtu mtu)
{
	return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? 128U << mtu : 0;
}

/*
 * the largest enum ibv_mtu for a network interface with an MTU of @netdev_mtu bytes (wire-facts
 * 1.9); 0 when not even 256 fits
 */
enum ibv_mtu mtu_from_netdev(uint32_t netdev_mtu);

/* log text of one packet for debug lines; returns @buf */
const char *packet_describe(const struct packet *p, char *buf, size_t len);

#endif
