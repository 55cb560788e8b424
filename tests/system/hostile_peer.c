// SPDX-License-Identifier: BSD-2-Clause
/*
 * hostile_peer.c: a peer that speaks raw RoCEv2 from a UDP socket: packets with a right ICRC and
 * anything else in them. That the target lives on is looked at by who started it.
 *
 * hostile_peer SOURCE TARGET PORT SCENARIO COUNT
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cm/mad.h"
#define gid_is_ipv4 icrc_gid_is_ipv4 /* mad.h has its own */
#include "wire/icrc.h"
#undef gid_is_ipv4
#include "nvme/fabrics.h"
#include "nvme/spec.h"
#include "util/bytes.h"
#include "wire/packet.h"

#define QP1_QKEY 0x80010000U
#define OUR_QPN	 0x123456

static int sock;
static uint16_t source_port = ROCE_UDP_PORT; /* where the answers come; else any: without answers */
static struct sockaddr_in target;
static union ibv_gid our_gid, target_gid;
static uint16_t service_port;
static uint64_t random_state = 88172645463325252ULL;

static uint32_t random32(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (uint32_t)(random_state >> 16);
}

/* an extreme or anything */
static uint32_t odd32(void)
{
	static const uint32_t edges[] = { 0,	      1,	0x7fffffff, 0x80000000,
					  0xffffffff, 0xffffff, 0x800000 };
	uint32_t n = random32();

	return n % 2 ? edges[n / 2 % ARRAY_SIZE(edges)] : random32();
}

static void make_gid(union ibv_gid *gid, struct in_addr addr)
{
	memset(gid, 0, sizeof(*gid));
	gid->raw[10] = gid->raw[11] = 0xff;
	memcpy(gid->raw + 12, &addr, 4);
}

static void open_socket(const char *source, const char *dest)
{
	struct sockaddr_in from = { .sin_family = AF_INET, .sin_port = htons(source_port) };
	int discover = IP_PMTUDISC_DO; /* and the identification is 0 */

	inet_pton(AF_INET, source, &from.sin_addr);
	target = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons(ROCE_UDP_PORT) };
	inet_pton(AF_INET, dest, &target.sin_addr);
	make_gid(&our_gid, from.sin_addr);
	make_gid(&target_gid, target.sin_addr);
	sock = socket(AF_INET, SOCK_DGRAM, 0);
	if (bind(sock, (struct sockaddr *)&from, sizeof(from))) {
		source_port = 50000;
		from.sin_port = htons(source_port);
	}
	if (sock < 0 ||
	    (source_port != ROCE_UDP_PORT && bind(sock, (struct sockaddr *)&from, sizeof(from))) ||
	    setsockopt(sock, IPPROTO_IP, IP_MTU_DISCOVER, &discover, sizeof(discover))) {
		perror("hostile_peer: socket");
		exit(1);
	}
}

/* @packet: BTH and all behind it; @len without the ICRC */
static void send_raw(uint8_t *packet, uint32_t len)
{
	uint32_t crc = icrc_prefix(&our_gid, &target_gid, 0, source_port, len + ICRC_LEN);

	crc = icrc_bth(crc, packet);
	crc = icrc_update(crc, packet + BTH_LEN, len - BTH_LEN);
	icrc_put(packet + len, crc);
	while (sendto(sock, packet, len + ICRC_LEN, 0, (struct sockaddr *)&target, sizeof(target)) <
		       0 &&
	       (errno == ENOBUFS || errno == EAGAIN))
		usleep(100);
}

static void send_packet(const struct packet *p)
{
	uint8_t raw[PACKET_MAX_LEN + 4];
	uint32_t len = packet_put_headers(raw, p);

	memcpy(raw + len, p->payload, p->payload_len);
	memset(raw + len + p->payload_len, 0, 4);
	send_raw(raw, len + p->payload_len + (-p->payload_len & 3));
}

/* ---- MADs ---- */

static void send_mad_bytes(const uint8_t *mad)
{
	struct packet p = { .opcode = OPC_UD | OP_SEND_ONLY,
			    .pkey = PKEY_DEFAULT,
			    .dest_qpn = 1,
			    .psn = random32() & PSN_MASK,
			    .qkey = QP1_QKEY,
			    .src_qpn = 1,
			    .payload = mad,
			    .payload_len = CM_MAD_LEN };

	send_packet(&p);
}

static void send_mad(const struct cm_mad *mad)
{
	uint8_t bytes[CM_MAD_LEN];

	cm_mad_encode(bytes, mad);
	send_mad_bytes(bytes);
}

static struct cm_mad make_req(uint32_t id, uint32_t qpn)
{
	struct cm_mad mad = { .tid = id, .attribute = CM_REQ };
	struct nvmf_rdma_request private_data = { .hrqsize = htole16(31), .hsqsize = htole16(31) };
	struct cma_header cma = { .ip_version = 4, .source_port = 1, .src = our_gid };
	struct cm_req *req = &mad.req;

	cma.dst = target_gid;
	req->local_id = id;
	req->service_id = cma_service_id(0x0106, service_port);
	req->ca_guid = 0x1234;
	req->qpn = qpn;
	req->responder_resources = 16;
	req->initiator_depth = 16;
	req->remote_response_timeout = req->local_response_timeout = 20;
	req->retry_count = 7;
	req->rnr_retry_count = 7;
	req->pkey = PKEY_DEFAULT;
	req->path_mtu = IBV_MTU_1024;
	req->max_cm_retries = 15;
	req->primary.local_gid = our_gid;
	req->primary.remote_gid = target_gid;
	req->primary.ack_timeout = 14;
	req->primary.hop_limit = 64;
	cma_header_encode(req->private_data, &cma);
	memcpy(req->private_data + CMA_HEADER_LEN, &private_data, sizeof(private_data));
	return mad;
}

/* the answers' counts by attribute; the last REP in @rep. Until it is silent for @timeout_ms */
static void drain(unsigned int counts[16], struct cm_rep *rep, int timeout_ms)
{
	struct pollfd fd = { .fd = sock, .events = POLLIN };
	uint8_t raw[8192];
	struct packet p;
	struct cm_mad mad;

	while (poll(&fd, 1, timeout_ms) > 0) {
		ssize_t len = recv(sock, raw, sizeof(raw), 0);

		if (len < 0 || packet_parse(&p, raw, (uint32_t)len) ||
		    p.payload_len != CM_MAD_LEN || cm_mad_decode(&mad, p.payload))
			continue;
		counts[mad.attribute & 15]++;
		if (mad.attribute == CM_REP && rep)
			*rep = mad.rep;
	}
}

/* requests, each with a new ID and QPN; their connections are never made ready */
static void req_flood(unsigned int count)
{
	unsigned int answers[16] = { 0 };

	for (unsigned int i = 0; i < count; i++) {
		struct cm_mad mad = make_req(0x1000 + i, 0x1000 + i % 0xf00000);

		send_mad(&mad);
		if (i % 64 == 0)
			drain(answers, NULL, 0);
	}
	drain(answers, NULL, 500);
	printf("%u requests: %u REP, %u REJ, %u MRA\n", count, answers[CM_REP & 15],
	       answers[CM_REJ & 15], answers[CM_MRA & 15]);
}

/* good MADs with a few bytes changed, REQs above all */
static void mad_fuzz(unsigned int count)
{
	unsigned int answers[16] = { 0 };
	struct cm_rep rep = { .local_id = 0x01000001 };

	for (unsigned int i = 0; i < count; i++) {
		struct cm_mad mad = make_req(i % 256, 0x1000 + i % 300);
		uint8_t bytes[CM_MAD_LEN];

		if (random32() % 4) {
			memset(&mad, 0, sizeof(mad));
			mad.attribute = (uint16_t)(CM_REQ + random32() % 10);
			mad.rep.local_id = random32() % 256; /* at the same place in all */
			mad.rep.remote_id = random32() % 2 ? rep.local_id : odd32();
			if (mad.attribute == CM_REQ)
				mad = make_req(odd32(), odd32());
		}
		cm_mad_encode(bytes, &mad);
		for (unsigned int n = random32() % 4; n; n--)
			bytes[random32() % 4 ? 24 + random32() % 232 : random32() % 24] =
				(uint8_t)odd32();
		send_mad_bytes(bytes);
		if (i % 64 == 0)
			drain(answers, &rep, 0);
	}
	drain(answers, &rep, 300);
	for (int i = 0; i < 9; i++)
		printf("%s %u ", cm_attribute_name((uint16_t)(CM_REQ + i)), answers[i]);
	printf("\n");
}

/* a connection by hand; false when it was refused */
static bool handshake(uint32_t id, struct cm_rep *rep)
{
	struct cm_mad mad = make_req(id, OUR_QPN + id), rtu = { .attribute = CM_RTU };
	unsigned int answers[16] = { 0 };

	drain(answers, NULL, 0); /* what is on the way from the last one */
	memset(rep, 0, sizeof(*rep));
	send_mad(&mad);
	for (int i = 0; i < 20 && !rep->qpn; i++)
		drain(answers, rep, 10);
	if (!rep->qpn)
		return false;
	rtu.rtu.local_id = id;
	rtu.rtu.remote_id = rep->local_id;
	send_mad(&rtu);
	return true;
}

/* RC packets of every kind to a live QP, PSNs around the expected one */
static void rc_fuzz(unsigned int count)
{
	static const uint8_t ops[] = { 0,    1,	   2,	 3,    4,    5,	   6,	 7,    8,
				       9,    0xa,  0xb,	 0xc,  0xd,  0xe,  0xf,	 0x10, 0x11,
				       0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x1f };
	uint8_t payload[MTU_MAX + 64];
	unsigned int connections = 0;
	struct cm_rep rep = { 0 };
	uint32_t psn = 0, id = 0x20000;

	for (unsigned int i = 0; i < count; i++) {
		struct packet p = { .pkey = PKEY_DEFAULT, .payload = payload };
		struct nvme_sqe *sqe = (void *)payload;

		if (i % 100 == 0 && handshake(++id, &rep)) {
			connections++;
			psn = rep.starting_psn;
		}
		for (size_t n = 0; n < sizeof(payload); n += 4)
			put_le32(payload + n, n < 64 ? odd32() : 0);
		sqe->opcode = random32() % 3 ? NVME_CMD_FABRICS : (uint8_t)random32();
		p.opcode = random32() % 3 ? ops[random32() % sizeof(ops)] : OP_SEND_ONLY;
		if (random32() % 16 == 0)
			p.opcode = (uint8_t)random32();
		p.dest_qpn = rep.qpn;
		p.ack_req = random32() & 1;
		p.psn = random32() % 4 ? psn
				       : psn_add(psn, odd32() % 2 ? random32() % 8 - 4 : odd32());
		p.va = (uint64_t)odd32() << 32 | odd32();
		p.rkey = odd32();
		p.dma_len = odd32();
		p.syndrome = (uint8_t)odd32();
		p.msn = odd32() & 0xffffff;
		p.inv_rkey = odd32();
		p.payload_len = random32() % 3 ? 1024 : random32() % 4100;
		if (random32() % 3 == 0)
			p.payload_len = 64;
		if (opcode_table[p.opcode].flags & OPF_PAYLOAD || random32() % 16 == 0)
			;
		else
			p.payload_len = 0;
		if (!opcode_table[p.opcode].header_len)
			continue;
		send_packet(&p);
		if (p.psn == psn && random32() % 2)
			psn = psn_add(psn, 1);
	}
	printf("%u connections, %u packets\n", connections, count);
}

int main(int argc, char **argv)
{
	unsigned int count;

	if (argc != 6)
		return 2;
	open_socket(argv[1], argv[2]);
	service_port = (uint16_t)atoi(argv[3]);
	count = (unsigned int)atoi(argv[5]);
	if (!strcmp(argv[4], "req_flood"))
		req_flood(count);
	else if (!strcmp(argv[4], "mad_fuzz"))
		mad_fuzz(count);
	else if (!strcmp(argv[4], "rc_fuzz"))
		rc_fuzz(count);
	else
		return 2;
	return 0;
}
