// SPDX-License-Identifier: BSD-2-Clause
/*
 * fuzz_mad_route.c: the port daemon's way from a datagram on QP1 to a slot or an answer. The input
 * is the MAD; it also travels as a packet whose ICRC is right, with the rest of the input mixed
 * into the headers.
 */
#include <stdlib.h>
#include <string.h>

#include "portd/mad_io.h"
#include "portd/mad_route.h"
#include "wire/icrc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct listen_table listens;
static const union ibv_gid any, gid = { { 0xfd, [15] = 1 } };

#define ALIVE 0x2aaaaaaaaaaaaaaaULL

static void check_verdict(const uint8_t *mad)
{
	uint8_t reply[MAD_LEN], slot = 0;

	switch (mad_route(&listens, ALIVE, mad, &gid, &slot, reply)) {
	case MAD_DELIVER:
		if (!slot || slot >= PORTD_SLOTS || !(ALIVE >> slot & 1))
			abort();
		break;
	case MAD_REPLY:
		/* an answer to an answer would go on for ever */
		if (mad_route(&listens, 0, reply, &gid, &slot, (uint8_t[MAD_LEN]){ 0 }) != MAD_DROP)
			abort();
		break;
	case MAD_DROP:
		break;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct portd_mad mad = { .sgid = gid, .dgid = gid };
	uint8_t packet[PACKET_MAX_LEN];
	uint32_t crc;

	if (!listens.count)
		for (uint64_t i = 0; i < 64; i++)
			listen_add(&listens, i, &any, (uint8_t)(i % PORTD_SLOTS ?: 1));
	memcpy(mad.data, data, size < MAD_LEN ? size : MAD_LEN);
	check_verdict(mad.data);

	/* raw, with a right ICRC put at its end */
	if (size < BTH_LEN + ICRC_LEN || size > sizeof(packet))
		return 0;
	memcpy(packet, data, size);
	crc = icrc_prefix(&gid, &gid, 0, ROCE_UDP_PORT, (uint32_t)size);
	crc = icrc_update(icrc_bth(crc, packet), packet + BTH_LEN, size - BTH_LEN - ICRC_LEN);
	icrc_put(packet + size - ICRC_LEN, crc);
	if (mad_parse(&mad, ROCE_UDP_PORT, NULL, packet, (uint32_t)size) == DROP_NONE)
		check_verdict(mad.data);
	return 0;
}
