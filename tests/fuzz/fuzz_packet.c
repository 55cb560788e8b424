// SPDX-License-Identifier: BSD-2-Clause
/*
 * fuzz_packet.c: packet_parse(), icrc_check() and the builder must agree on any bytes.
 * Input: 1 byte (bit 0: IPv6; bit 1: put the right ICRC in, else take the input's), then what UDP
 * carries. The corpus is made from the golden captures.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "util/bytes.h"
#include "wire/icrc.h"
#include "wire/packet.h"

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);

#define SPORT 0xc123
#define IP_ID 0x4567

static void check(bool right)
{
	if (!right)
		abort();
}

static void make_gids(union ibv_gid *sgid, union ibv_gid *dgid, bool ip6)
{
	memset(sgid, 0, sizeof(*sgid));
	if (ip6)
		sgid->raw[0] = 0xfd;
	else
		sgid->raw[10] = sgid->raw[11] = 0xff;
	*dgid = *sgid;
	sgid->raw[15] = 1;
	dgid->raw[15] = 2;
}

static uint32_t compute_icrc(const union ibv_gid *sgid, const union ibv_gid *dgid,
			     const uint8_t *data, uint32_t len)
{
	uint32_t crc = icrc_prefix(sgid, dgid, IP_ID, SPORT, len);

	crc = icrc_bth(crc, data);
	return icrc_update(crc, data + BTH_LEN, len - BTH_LEN - ICRC_LEN);
}

/* what of byte @i of the packet the structure does not keep */
static uint8_t ignored_bits(const struct packet *p, uint32_t i, uint32_t header_len)
{
	uint32_t flags = p->flags;

	if (i == 1)
		return 0x40; /* MigReq */
	if (i == 4)
		return 0x3f; /* reserved */
	if (i == 8)
		return 0x7f; /* reserved */
	if (flags & HDR_XRCETH && i == BTH_LEN)
		return 0xff; /* reserved */
	if (flags & HDR_DETH && i == BTH_LEN + 4)
		return 0xff; /* reserved */
	if (i >= header_len + p->payload_len)
		return 0xff; /* pad */
	return 0;
}

static void check_rebuild(const struct packet *p, const uint8_t *data, uint32_t len)
{
	uint8_t built[PACKET_MAX_LEN];
	uint32_t header_len = packet_put_headers(built, p), i;

	check(header_len == opcode_table[p->opcode].header_len);
	check(p->payload == data + header_len);
	check(p->pad == (-p->payload_len & 3));
	check(packet_len(p->opcode, p->payload_len) == len);
	memcpy(built + header_len, p->payload, p->payload_len);
	memset(built + header_len + p->payload_len, 0, p->pad);
	for (i = 0; i < len - ICRC_LEN; i++)
		check(!((built[i] ^ data[i]) & ~ignored_bits(p, i, header_len)));
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
	union ibv_gid sgid, dgid;
	uint8_t *data;
	bool ip6, seal, right;
	uint16_t id = 0;
	char text[256];
	struct packet p;
	uint32_t len;

	if (size < 1 || size > 8192)
		return 0;
	ip6 = input[0] & 1;
	seal = input[0] & 2;
	len = (uint32_t)size - 1;
	data = malloc(len ? len : 1);
	if (!data)
		return 0;
	memcpy(data, input + 1, len);
	make_gids(&sgid, &dgid, ip6);
	if (seal && len >= BTH_LEN + ICRC_LEN)
		icrc_put(data + len - ICRC_LEN, compute_icrc(&sgid, &dgid, data, len));

	right = icrc_check(&sgid, &dgid, SPORT, data, len, &id);
	if (seal && len >= BTH_LEN + ICRC_LEN) {
		check(right);
		check(id == (ip6 ? 0 : IP_ID));
	}
	if (packet_parse(&p, data, len) == DROP_NONE) {
		check_rebuild(&p, data, len);
		packet_describe(&p, text, sizeof(text));
	}
	free(data);
	return 0;
}
