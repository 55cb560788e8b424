// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_captures.c: every RoCEv2 packet of the golden captures parses, is built again to the same
 * bytes, and its ICRC is right, both with the real IP identification and without knowing it.
 */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "util/bytes.h"
#include "wire/icrc.h"
#include "wire/packet.h"

#define ETHERNET_LEN 14
#define UDP_LEN	     8
#define IP6_LEN	     40
#define MIGREQ	     0x40 /* in BTH byte 1: rxe sends 0, we send 1 (wire-facts 1.3) */

struct totals {
	unsigned int packets, ip6, opcodes[256];
};

struct datagram {
	union ibv_gid sgid, dgid;
	bool is_ipv4;
	uint16_t ip_id, sport;
	const uint8_t *data;
	uint32_t len;
};

static void gid_from_ip4(union ibv_gid *gid, const uint8_t *addr)
{
	memset(gid, 0, sizeof(*gid));
	gid->raw[10] = gid->raw[11] = 0xff;
	memcpy(gid->raw + 12, addr, 4);
}

/* false: not RoCEv2 */
static bool find_roce(struct datagram *d, const uint8_t *frame, uint32_t len)
{
	const uint8_t *ip = frame + ETHERNET_LEN, *udp;

	if (len < ETHERNET_LEN + IP6_LEN)
		return false;
	switch (get_be16(frame + 12)) {
	case 0x0800:
		if (ip[9] != 17)
			return false;
		d->is_ipv4 = true;
		d->ip_id = get_be16(ip + 4);
		gid_from_ip4(&d->sgid, ip + 12);
		gid_from_ip4(&d->dgid, ip + 16);
		udp = ip + (ip[0] & 0xf) * 4;
		break;
	case 0x86dd:
		if (ip[6] != 17)
			return false;
		d->is_ipv4 = false;
		d->ip_id = 0;
		memcpy(d->sgid.raw, ip + 8, 16);
		memcpy(d->dgid.raw, ip + 24, 16);
		udp = ip + IP6_LEN;
		break;
	default:
		return false;
	}
	d->sport = get_be16(udp);
	d->len = get_be16(udp + 4) - UDP_LEN;
	d->data = udp + UDP_LEN;
	return get_be16(udp + 2) == ROCE_UDP_PORT && d->data + d->len <= frame + len;
}

static uint32_t compute_icrc(const struct datagram *d, const uint8_t *data)
{
	uint32_t crc = icrc_prefix(&d->sgid, &d->dgid, d->ip_id, d->sport, d->len);

	crc = icrc_bth(crc, data);
	return icrc_update(crc, data + BTH_LEN, d->len - BTH_LEN - ICRC_LEN);
}

static void check_packet(const struct datagram *d, struct totals *totals)
{
	uint8_t built[PACKET_MAX_LEN];
	uint32_t header_len, body_len;
	struct packet p;
	uint16_t id;

	assert_int_equal(packet_parse(&p, d->data, d->len), DROP_NONE);
	assert_int_equal(packet_len(p.opcode, p.payload_len), d->len);
	totals->opcodes[p.opcode]++;

	/* built again */
	header_len = packet_put_headers(built, &p);
	assert_int_equal(header_len, opcode_table[p.opcode].header_len);
	assert_ptr_equal(p.payload, d->data + header_len);
	assert_int_equal(built[1] & MIGREQ, MIGREQ);
	built[1] = (built[1] & ~MIGREQ) | (d->data[1] & MIGREQ);
	memcpy(built + header_len, p.payload, p.payload_len);
	memset(built + header_len + p.payload_len, 0, p.pad);
	body_len = header_len + p.payload_len + p.pad;
	icrc_put(built + body_len, compute_icrc(d, built));
	assert_int_equal(body_len + ICRC_LEN, d->len);
	assert_memory_equal(built, d->data, d->len);

	/* as a socket sees it */
	assert_true(icrc_check(&d->sgid, &d->dgid, d->sport, d->data, d->len, &id));
	assert_int_equal(id, d->ip_id);
	built[d->len - 1] ^= 0x80;
	assert_false(icrc_check(&d->sgid, &d->dgid, d->sport, built, d->len, NULL));
	totals->packets++;
	totals->ip6 += !d->is_ipv4;
}

static void check_file(const char *path, struct totals *totals)
{
	uint8_t header[24], record[16], frame[16384];
	struct datagram d;
	FILE *f = fopen(path, "rb");
	uint32_t len;

	assert_non_null(f);
	assert_int_equal(fread(header, sizeof(header), 1, f), 1);
	assert_int_equal(get_le32(header), 0xa1b2c3d4);
	assert_int_equal(get_le32(header + 20), 1); /* Ethernet */
	while (fread(record, sizeof(record), 1, f) == 1) {
		len = get_le32(record + 8);
		assert_true(len <= sizeof(frame));
		assert_int_equal(fread(frame, len, 1, f), 1);
		if (find_roce(&d, frame, len))
			check_packet(&d, totals);
	}
	fclose(f);
}

static void test_all(void **state)
{
	struct totals totals = { 0 };
	struct dirent *entry;
	DIR *dir = opendir(CAPTURES);
	char path[4096];

	assert_non_null(dir);
	while ((entry = readdir(dir))) {
		if (!strstr(entry->d_name, ".pcap"))
			continue;
		snprintf(path, sizeof(path), "%s/%s", CAPTURES, entry->d_name);
		check_file(path, &totals);
	}
	closedir(dir);
	assert_int_equal(totals.packets, 753);
	assert_true(totals.ip6 > 0);
	assert_true(totals.opcodes[OP_READ_RESPONSE_MIDDLE] && totals.opcodes[OP_FETCH_ADD] &&
		    totals.opcodes[OP_ATOMIC_ACKNOWLEDGE] && totals.opcodes[OP_SEND_ONLY_INV] &&
		    totals.opcodes[OPC_UC | OP_SEND_MIDDLE] &&
		    totals.opcodes[OPC_UD | OP_SEND_ONLY_IMM]);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_all) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
