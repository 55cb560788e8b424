// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_link_udp.c: two UDP links in one process, on two loopback addresses: super-packets both
 * ways, order, drops by reason, faults.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <cmocka.h>

#include "util/bytes.h"
#include "util/clock.h"
#include "wire/icrc.h"
#include "wire/link.h"

#define SLOT_A 1
#define SLOT_B 2
#define QPN_A  (SLOT_A << 16 | 0x11)
#define QPN_B  (SLOT_B << 16 | 0x22)

#define LOG_MAX 4096

struct side {
	struct link *link;
	union ibv_gid gid;
	unsigned int count;
	struct {
		struct packet p;
		uint32_t payload_crc;
	} log[LOG_MAX];
};

static struct side a, b;
static bool own_net; /* we may change lo */

/* sendmmsg() as the link sees it: may fail, or send fewer messages */
static int send_errno;	      /* next calls fail with it, 0 = none */
static int send_errors;	      /* so many calls */
static unsigned int send_max; /* messages a call, 0 = all */

int __real_sendmmsg(int fd, struct mmsghdr *msgs, unsigned int count, int flags);
int __wrap_sendmmsg(int fd, struct mmsghdr *msgs, unsigned int count, int flags);

int __wrap_sendmmsg(int fd, struct mmsghdr *msgs, unsigned int count, int flags)
{
	if (send_errors) {
		send_errors--;
		errno = send_errno;
		return -1;
	}
	if (send_max)
		count = MIN(count, send_max);
	return __real_sendmmsg(fd, msgs, count, flags);
}

static void on_packet(void *arg, const struct packet *p)
{
	struct side *side = arg;

	assert_true(side->count < LOG_MAX);
	side->log[side->count].p = *p;
	side->log[side->count].payload_crc = icrc_update(0, p->payload, p->payload_len);
	side->count++;
}

static int bind_ip4(uint32_t addr)
{
	struct sockaddr_in in = { .sin_family = AF_INET,
				  .sin_port = htons(ROCE_UDP_PORT),
				  .sin_addr.s_addr = htonl(addr) };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	if (bind(fd, (struct sockaddr *)&in, sizeof(in))) {
		close(fd);
		return -1;
	}
	return fd;
}

static int bind_ip6(void)
{
	struct sockaddr_in6 in = { .sin6_family = AF_INET6,
				   .sin6_port = htons(ROCE_UDP_PORT),
				   .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0), on = 1;

	if (fd < 0)
		return -1;
	setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
	if (bind(fd, (struct sockaddr *)&in, sizeof(in))) {
		close(fd);
		return -1;
	}
	return fd;
}

/* @last: 127.7.0.@last */
static void side_init(struct side *side, uint8_t last, uint8_t slot, int fd6)
{
	int fd = bind_ip4(0x7f070000 + last);

	memset(side, 0, sizeof(*side));
	if (fd < 0)
		skip(); /* somebody else has the port on all addresses */
	side->gid.raw[10] = side->gid.raw[11] = 0xff;
	put_be32(side->gid.raw + 12, 0x7f070000 + last);
	assert_int_equal(link_udp_create(&side->link, fd, fd6, slot), 0);
}

static int setup(void **state)
{
	side_init(&a, 1, SLOT_A, -1);
	side_init(&b, 2, SLOT_B, -1);
	return 0;
}

static int teardown(void **state)
{
	if (a.link)
		link_destroy(a.link);
	if (b.link)
		link_destroy(b.link);
	a.link = b.link = NULL;
	return 0;
}

/* until @count packets arrived at all, or nothing for 100 ms */
static void receive(struct side *side, unsigned int count)
{
	struct pollfd pfd = { .events = POLLIN };
	int fds[2], idle = 0;

	assert_true(link_fds(side->link, fds) >= 1);
	pfd.fd = fds[0];
	while (side->count < count && idle < 10)
		if (!link_poll(side->link, 4, on_packet, side) && poll(&pfd, 1, 10) == 0)
			idle++;
	/* nothing more */
	while (link_poll(side->link, 4, on_packet, side))
		;
}

static struct packet send_packet(uint32_t dest_qpn, uint32_t psn, uint32_t len)
{
	struct packet p = { .opcode = OP_SEND_ONLY,
			    .pkey = PKEY_DEFAULT,
			    .dest_qpn = dest_qpn,
			    .psn = psn,
			    .payload_len = len };

	return p;
}

static const uint8_t *pattern(uint32_t psn)
{
	static uint8_t data[MTU_MAX + 64];
	static bool made;
	size_t i;

	for (i = 0; !made && i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 7 + i / 256);
	made = true;
	return data + psn % 64;
}

static void queue_to(struct side *from, struct link_flow *flow, uint32_t dest_qpn, uint32_t psn,
		     uint32_t len)
{
	struct packet p = send_packet(dest_qpn, psn, len);
	struct iovec sg[3] = { { (void *)pattern(psn), len / 3 },
			       { NULL, 0 },
			       { (void *)(pattern(psn) + len / 3), len - len / 3 } };

	assert_int_equal(link_queue(from->link, flow, &p, sg, 3), 0);
}

static void assert_got(const struct side *side, unsigned int i, uint32_t psn, uint32_t len)
{
	const struct packet *p = &side->log[i].p;

	assert_true(i < side->count);
	assert_int_equal(p->psn, psn);
	assert_int_equal(p->payload_len, len);
	assert_int_equal(side->log[i].payload_crc, icrc_update(0, pattern(psn), len));
}

static void flow_between(struct link_flow *flow, struct side *from, struct side *to)
{
	assert_int_equal(link_flow_init(from->link, flow, &from->gid, &to->gid, 0, 0, 64), 0);
}

static void test_one_packet(void **state)
{
	struct link_flow flow;

	assert_int_equal(link_flow_init(a.link, &flow, &a.gid, &b.gid, 0, 0x2a, 33), 0);
	assert_false(link_tx_pending(a.link));
	queue_to(&a, &flow, QPN_B, 77, 13);
	assert_true(link_tx_pending(a.link));
	assert_int_equal(link_flush(a.link), 0);
	assert_false(link_tx_pending(a.link));
	receive(&b, 1);
	assert_int_equal(b.count, 1);
	assert_got(&b, 0, 77, 13);
	assert_int_equal(b.log[0].p.dest_qpn, QPN_B);
	assert_int_equal(b.log[0].p.pad, 3);
	assert_memory_equal(&b.log[0].p.sgid, &a.gid, 16);
	assert_memory_equal(&b.log[0].p.dgid, &b.gid, 16);
	assert_int_equal(b.log[0].p.tos, 0x2a);
	assert_int_equal(b.log[0].p.ttl, 33);
	assert_int_not_equal(b.log[0].p.ifindex, 0);
}

static void test_to_itself(void **state)
{
	struct link_flow flow;

	flow_between(&flow, &a, &a);
	queue_to(&a, &flow, QPN_A, 1, 100);
	queue_to(&a, &flow, QPN_A + 1, 2, 100);
	link_flush(a.link);
	receive(&a, 2);
	assert_int_equal(a.count, 2);
	assert_got(&a, 0, 1, 100);
	assert_got(&a, 1, 2, 100);
}

static void test_lengths(void **state)
{
	static const uint32_t lens[] = { 0,   1,   2,	 3,    4,    63,   64,	 65,  255,
					 256, 257, 1023, 1024, 1025, 4095, 4096, 300, 0 };
	struct link_flow flow;
	unsigned int i;

	flow_between(&flow, &a, &b);
	for (i = 0; i < ARRAY_SIZE(lens); i++)
		queue_to(&a, &flow, QPN_B, i, lens[i]);
	link_flush(a.link);
	receive(&b, ARRAY_SIZE(lens));
	assert_int_equal(b.count, ARRAY_SIZE(lens));
	for (i = 0; i < ARRAY_SIZE(lens); i++)
		assert_got(&b, i, i, lens[i]);
}

/* a full run travels as one super-packet, with the shorter one at its end */
static void check_super_packet(uint32_t len, unsigned int count)
{
	uint64_t before = counter_get(CNT_TX_SUPER_PACKETS);
	uint64_t rx_before = counter_get(CNT_RX_SUPER_PACKETS);
	struct link_flow flow;
	unsigned int i;

	b.count = 0;
	flow_between(&flow, &a, &b);
	for (i = 0; i < count; i++)
		queue_to(&a, &flow, QPN_B, i, len);
	queue_to(&a, &flow, QPN_B, count, len - 16);
	link_flush(a.link);
	receive(&b, count + 1);
	assert_int_equal(b.count, count + 1);
	for (i = 0; i < count; i++)
		assert_got(&b, i, i, len);
	assert_got(&b, count, count, len - 16);
	assert_int_equal(counter_get(CNT_TX_SUPER_PACKETS) - before, 1);
	assert_int_equal(counter_get(CNT_RX_SUPER_PACKETS) - rx_before, 1);
}

static void test_super_packets(void **state)
{
	uint64_t icrc = counter_get(CNT_DROP_ICRC), solved = counter_get(CNT_RX_ID_SOLVED);

	check_super_packet(64, 127);
	check_super_packet(1024, 61);
	check_super_packet(4096, 14);
	assert_int_equal(counter_get(CNT_DROP_ICRC), icrc);
	/* segment k had identification k, as a wire peer sees it */
	assert_int_equal(counter_get(CNT_RX_ID_SOLVED), solved);
}

static void test_split_at_limits(void **state)
{
	uint64_t before = counter_get(CNT_TX_SUPER_PACKETS);
	struct link_flow flow;
	unsigned int i;

	flow_between(&flow, &a, &b);
	for (i = 0; i < 129; i++)
		queue_to(&a, &flow, QPN_B, i, 32);
	for (; i < 129 + 16; i++)
		queue_to(&a, &flow, QPN_B, i, 4096);
	link_flush(a.link);
	receive(&b, 129 + 16);
	assert_int_equal(b.count, 129 + 16);
	for (i = 0; i < b.count; i++)
		assert_got(&b, i, i, i < 129 ? 32 : 4096);
	assert_int_equal(counter_get(CNT_TX_SUPER_PACKETS) - before, 4);
}

/* flows to two destinations, interleaved: two super-packets, not one a packet */
static void test_interleaved(void **state)
{
	uint64_t before = counter_get(CNT_TX_SUPER_PACKETS);
	struct link_flow to_a, to_b;
	unsigned int i;

	flow_between(&to_a, &a, &a);
	flow_between(&to_b, &a, &b);
	for (i = 0; i < 20; i++) {
		queue_to(&a, &to_a, QPN_A, i, 500);
		queue_to(&a, &to_b, QPN_B, i, 600);
	}
	link_flush(a.link);
	receive(&a, 20);
	receive(&b, 20);
	assert_int_equal(a.count, 20);
	assert_int_equal(b.count, 20);
	for (i = 0; i < 20; i++) {
		assert_got(&a, i, i, 500);
		assert_got(&b, i, i, 600);
	}
	assert_int_equal(counter_get(CNT_TX_SUPER_PACKETS) - before, 2);
}

/* more destinations than staging buffers */
static void test_many_destinations(void **state)
{
	struct link_flow flow;
	unsigned int i;

	flow_between(&flow, &a, &b);
	for (i = 0; i < 100; i++) /* all but one for processes that are not there */
		queue_to(&a, &flow, i << 16, i, 40);
	link_flush(a.link);
	receive(&b, 1);
	assert_int_equal(b.count, 1);
	assert_got(&b, 0, SLOT_B, 40);
}

static void test_wrong_slot(void **state)
{
	uint64_t before = counter_get(CNT_DROP_SLOT);
	struct link_flow flow;

	flow_between(&flow, &a, &b);
	queue_to(&a, &flow, 3 << 16 | 5, 1, 40);
	queue_to(&a, &flow, QPN_B, 2, 40);
	link_flush(a.link);
	receive(&b, 1);
	assert_int_equal(b.count, 1);
	assert_got(&b, 0, 2, 40);
	assert_int_equal(counter_get(CNT_DROP_SLOT) - before, 1);
}

static void send_raw(const void *data, size_t len, int segment_len)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(ROCE_UDP_PORT) };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	memcpy(&to.sin_addr, b.gid.raw + 12, 4);
	if (segment_len)
		assert_int_equal(
			setsockopt(fd, IPPROTO_UDP, UDP_SEGMENT, &segment_len, sizeof(segment_len)),
			0);
	assert_int_equal(sendto(fd, data, len, 0, (struct sockaddr *)&to, sizeof(to)), len);
	close(fd);
}

static void test_garbage(void **state)
{
	static uint8_t data[60000];
	uint64_t before_short = counter_get(CNT_DROP_SHORT);
	uint64_t before_length = counter_get(CNT_DROP_LENGTH);
	uint64_t before_icrc = counter_get(CNT_DROP_ICRC);
	uint64_t before_slot = counter_get(CNT_DROP_SLOT);
	size_t len;

	memset(data, SLOT_B, sizeof(data));
	for (len = 0; len < BTH_LEN + ICRC_LEN; len++)
		send_raw(data, len, 0);
	send_raw(data, PACKET_MAX_LEN + 1, 0);
	send_raw(data, sizeof(data), 0);
	send_raw(data, PACKET_MAX_LEN, 0);
	send_raw(data, 17, 0);
	send_raw(data, 128 * 7, 7);
	send_raw(data, 10 * 20, 20); /* 10 with a wrong ICRC */
	memset(data, SLOT_A, sizeof(data));
	send_raw(data, 100, 0);
	receive(&b, 1);
	assert_int_equal(b.count, 0);
	assert_int_equal(counter_get(CNT_DROP_LENGTH) - before_length, 2);
	assert_int_equal(counter_get(CNT_DROP_ICRC) - before_icrc, 12);
	assert_int_equal(counter_get(CNT_DROP_SLOT) - before_slot, 1);
	assert_int_equal(counter_get(CNT_DROP_SHORT) - before_short, 16 + 128);
}

/* @count alike packets from another stack; packet i has identification @id + i * @step */
static void send_sealed_ids(const uint8_t *packet, uint32_t len, unsigned int count, uint16_t id,
			    uint16_t step)
{
	static uint8_t data[65536];
	struct sockaddr_in from = { .sin_family = AF_INET }, to = from;
	int fd = bind_ip4(0x7f070003), segment_len = (int)len;
	socklen_t addr_len = sizeof(from);
	union ibv_gid sgid = b.gid;
	uint8_t *at = data;
	unsigned int i;
	uint32_t crc;

	assert_true(fd >= 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&from, &addr_len), 0);
	sgid.raw[15] = 3;
	for (i = 0; i < count; i++, at += len, id += step) {
		memcpy(at, packet, len);
		crc = icrc_prefix(&sgid, &b.gid, id, ntohs(from.sin_port), len);
		crc = icrc_bth(crc, at);
		icrc_put(at + len - ICRC_LEN,
			 icrc_update(crc, at + BTH_LEN, len - BTH_LEN - ICRC_LEN));
	}
	to.sin_port = htons(ROCE_UDP_PORT);
	memcpy(&to.sin_addr, b.gid.raw + 12, 4);
	if (count > 1)
		assert_int_equal(
			setsockopt(fd, IPPROTO_UDP, UDP_SEGMENT, &segment_len, sizeof(segment_len)),
			0);
	assert_int_equal(sendto(fd, data, count * len, 0, (struct sockaddr *)&to, sizeof(to)),
			 count * len);
	close(fd);
}

/* right ICRC, wrong structure */
static void send_sealed(const uint8_t *data, uint32_t len)
{
	send_sealed_ids(data, len, 1, 0x4321, 1);
}

static uint64_t solved_now(unsigned int expect_received)
{
	static uint64_t last;
	uint64_t now, solved;

	b.count = 0;
	receive(&b, expect_received);
	assert_int_equal(b.count, expect_received);
	now = counter_get(CNT_RX_ID_SOLVED);
	solved = now - last;
	last = now;
	return solved;
}

/* identifications of a peer that is not us: found at first, foreseen from then on */
static void test_foreign_ids(void **state)
{
	uint8_t data[64] = { OP_SEND_ONLY, 0x40, 0xff, 0xff, 0, SLOT_B };
	uint64_t before;
	uint16_t id;

	solved_now(0);
	for (id = 0; id < 100; id++)
		send_sealed_ids(data, sizeof(data), 1, 0x1000 + id, 1);
	assert_int_equal(solved_now(100), 1);
	/* its counter jumps: other traffic */
	send_sealed_ids(data, sizeof(data), 1, 0x1000 + id + 200, 1);
	assert_int_equal(solved_now(1), 1);
	/* coalesced, counting and not: one each to learn it */
	send_sealed_ids(data, sizeof(data), 80, 0x1000 + id + 201, 1);
	assert_int_equal(solved_now(80), 0);
	send_sealed_ids(data, sizeof(data), 100, 0x1000 + id + 281, 0);
	assert_int_equal(solved_now(100), 1);
	/* foreseen for long, then far off: rather corrupt. But not for ever */
	before = counter_get(CNT_DROP_ICRC);
	send_sealed_ids(data, sizeof(data), 1, 0x9000, 1);
	assert_int_equal(solved_now(0), 0);
	assert_int_equal(counter_get(CNT_DROP_ICRC) - before, 1);
	send_sealed_ids(data, sizeof(data), 1, 0x9000, 1);
	assert_int_equal(solved_now(1), 1);
}

static void test_sealed_garbage(void **state)
{
	static const struct {
		uint8_t opcode, byte1;
		uint32_t len;
		enum counter reason; /* DROP_NONE: accepted */
	} cases[] = {
		{ OP_SEND_ONLY, 0x40, 20, DROP_NONE },
		{ OP_SEND_ONLY, 0x41, 20, CNT_DROP_VERSION },
		{ 0x15, 0x40, 40, CNT_DROP_OPCODE },
		{ 0xff, 0x40, 40, CNT_DROP_OPCODE },
		{ OP_SEND_ONLY, 0x70, 16, CNT_DROP_PAD },
		{ OP_SEND_ONLY, 0x40, 21, CNT_DROP_PAD },
		{ OP_WRITE_ONLY, 0x40, 28, CNT_DROP_SHORT },
		{ OP_ACKNOWLEDGE, 0x40, 24, CNT_DROP_LENGTH },
		{ OP_SEND_ONLY, 0x40, 16 + 4100, CNT_DROP_LENGTH },
	};
	static uint8_t data[PACKET_MAX_LEN];
	uint64_t before;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		memset(data, 0, sizeof(data));
		data[0] = cases[i].opcode;
		data[1] = cases[i].byte1;
		data[5] = SLOT_B;
		before = counter_get(cases[i].reason);
		b.count = 0;
		send_sealed(data, cases[i].len);
		receive(&b, 1);
		assert_int_equal(b.count, cases[i].reason == DROP_NONE);
		if (cases[i].reason != DROP_NONE)
			assert_int_equal(counter_get(cases[i].reason) - before, 1);
	}
}

static void test_flow_errors(void **state)
{
	union ibv_gid ip6 = { .raw = { 0xfd, [15] = 1 } };
	struct link_flow flow;

	assert_int_equal(link_flow_init(a.link, &flow, &a.gid, &ip6, 0, 0, 0), -EINVAL);
	assert_int_equal(link_flow_init(a.link, &flow, &ip6, &ip6, 0, 0, 0), -EAFNOSUPPORT);
}

/* what cannot be sent is counted, and what follows is not held up */
static void test_unsendable(void **state)
{
	uint64_t before = counter_get(CNT_TX_DROP_ERROR);
	struct link_flow bad, good;
	struct side other = { .gid = a.gid };
	unsigned int i;

	other.gid.raw[12] = 9; /* 9.7.0.1: not an address of ours */
	assert_int_equal(link_flow_init(a.link, &bad, &other.gid, &b.gid, 0, 0, 0), 0);
	flow_between(&good, &a, &b);
	for (i = 0; i < 3; i++)
		queue_to(&a, &bad, QPN_B, i, 64);
	queue_to(&a, &good, QPN_B, 9, 64);
	assert_int_equal(link_flush(a.link), 0);
	receive(&b, 1);
	assert_int_equal(b.count, 1);
	assert_got(&b, 0, 9, 64);
	assert_int_equal(counter_get(CNT_TX_DROP_ERROR) - before, 3);
}

/* nothing is lost or reordered when the kernel takes only some, and then none for a while */
static void test_send_waits(void **state)
{
	struct link_flow flow;
	struct packet p = send_packet(QPN_B, 0, 4096);
	struct iovec sg = { (void *)pattern(0), 4096 };
	unsigned int queued = 0, i;
	uint64_t before;

	flow_between(&flow, &a, &b);
	send_max = 1;
	for (i = 0; i < 40; i++)
		queue_to(&a, &flow, QPN_B, i, i % 2 ? 64 : 80);
	assert_int_equal(link_flush(a.link), 0);
	send_max = 0;

	/* 40 .. : until the link is full */
	before = counter_get(CNT_TX_EAGAIN);
	send_errno = EAGAIN;
	send_errors = INT32_MAX;
	while (queued < 1000) {
		p.psn = 40 + queued;
		sg.iov_base = (void *)pattern(p.psn);
		if (link_queue(a.link, &flow, &p, &sg, 1) == -EAGAIN)
			break;
		queued++;
	}
	assert_in_range(queued, 15 * 15, 16 * 15); /* 16 super-packets of 15 */
	assert_int_equal(link_flush(a.link), -EAGAIN);
	assert_true(link_tx_pending(a.link));
	assert_true(counter_get(CNT_TX_EAGAIN) > before);
	send_errno = EINTR;
	send_errors = 1;
	assert_int_equal(link_flush(a.link), 0);
	assert_false(link_tx_pending(a.link));
	receive(&b, 40 + queued);
	assert_int_equal(b.count, 40 + queued);
	for (i = 0; i < b.count; i++)
		assert_got(&b, i, i, i >= 40 ? 4096 : i % 2 ? 64 : 80);
}

/* without UDP_SEGMENT the same packets leave one by one, with identification 0 in their ICRC */
static void test_gso_refused(void **state)
{
	uint64_t before_drop = counter_get(CNT_TX_DROP_ERROR);
	uint64_t before;
	struct link_flow flow;
	int fds[2], on = 1;
	unsigned int i;

	link_fds(a.link, fds);
	assert_int_equal(setsockopt(fds[0], SOL_SOCKET, SO_NO_CHECK, &on, sizeof(on)), 0);
	flow_between(&flow, &a, &b);
	for (i = 0; i < 100; i++)
		queue_to(&a, &flow, QPN_B, i, i < 99 ? 500 : 20);
	assert_int_equal(link_flush(a.link), 0);
	before = counter_get(CNT_TX_SUPER_PACKETS);
	send_max = 7;
	for (; i < 140; i++)
		queue_to(&a, &flow, QPN_B, i, 300);
	assert_int_equal(link_flush(a.link), 0);
	send_max = 0;
	receive(&b, 140);
	assert_int_equal(b.count, 140);
	for (i = 0; i < 140; i++)
		assert_got(&b, i, i, i < 99 ? 500 : i == 99 ? 20 : 300);
	assert_int_equal(counter_get(CNT_TX_SUPER_PACKETS) - before, 40);
	assert_int_equal(counter_get(CNT_TX_DROP_ERROR), before_drop);
}

static void set_lo_mtu(int mtu)
{
	struct ifreq lo = { .ifr_name = "lo", .ifr_mtu = mtu };
	int fds[2];

	link_fds(a.link, fds);
	assert_int_equal(ioctl(fds[0], SIOCSIFMTU, &lo), 0);
}

static void test_mtu_too_small(void **state)
{
	uint64_t before = counter_get(CNT_TX_DROP_MTU), super_before;
	struct link_flow flow;
	unsigned int i;

	if (!own_net)
		skip();
	set_lo_mtu(1500);
	flow_between(&flow, &a, &b);
	queue_to(&a, &flow, QPN_B, 0, 4096);
	queue_to(&a, &flow, QPN_B, 1, 100);
	for (i = 0; i < 10; i++)
		queue_to(&a, &flow, QPN_B, 2, 4096);
	assert_int_equal(link_flush(a.link), 0);
	/* segments that fit still travel together */
	super_before = counter_get(CNT_TX_SUPER_PACKETS);
	for (i = 0; i < 10; i++)
		queue_to(&a, &flow, QPN_B, 3, 1024);
	assert_int_equal(link_flush(a.link), 0);
	assert_int_equal(counter_get(CNT_TX_SUPER_PACKETS) - super_before, 1);
	receive(&b, 11);
	set_lo_mtu(65536);
	assert_int_equal(b.count, 11);
	assert_got(&b, 0, 1, 100);
	assert_got(&b, 1, 3, 1024);
	assert_int_equal(counter_get(CNT_TX_DROP_MTU) - before, 11);
}

static void test_ip6(void **state)
{
	union ibv_gid loopback = { .raw = { [15] = 1 } };
	struct side six = { 0 };
	struct link_flow flow;
	int fd6 = bind_ip6();
	unsigned int i;

	if (fd6 < 0)
		skip();
	assert_int_equal(link_udp_create(&six.link, -1, fd6, SLOT_A), 0);
	assert_int_equal(link_flow_init(six.link, &flow, &loopback, &loopback, 0, 0x12, 7), 0);
	for (i = 0; i < 40; i++)
		queue_to(&six, &flow, QPN_A, i, i < 20 ? 4096 : 64);
	link_flush(six.link);
	receive(&six, 40);
	assert_int_equal(six.count, 40);
	for (i = 0; i < 40; i++)
		assert_got(&six, i, i, i < 20 ? 4096 : 64);
	assert_memory_equal(&six.log[0].p.sgid, &loopback, 16);
	assert_int_equal(six.log[0].p.tos, 0x12);
	assert_int_equal(six.log[0].p.ttl, 7);
	link_destroy(six.link);
}

/* one link with both families: a silent one is left out most times, never for long */
static void test_both_families(void **state)
{
	union ibv_gid loopback = { .raw = { [15] = 1 } };
	struct link_flow flow4, flow6;
	struct side both;
	int fd6 = bind_ip6(), fds[2];
	unsigned int i;

	if (fd6 < 0)
		skip();
	side_init(&both, 4, SLOT_A, fd6);
	assert_int_equal(link_fds(both.link, fds), 2);
	assert_int_equal(fds[1], fd6);
	flow_between(&flow4, &both, &both);
	for (i = 0; i < 200; i++)
		assert_int_equal(link_poll(both.link, 4, on_packet, &both), 0);
	/* none of our flows is IPv6; the peer's is */
	assert_int_equal(link_flow_init(both.link, &flow6, &loopback, &loopback, 0, 0, 0), 0);
	queue_to(&both, &flow6, QPN_A, 0, 100);
	queue_to(&both, &flow4, QPN_A, 1, 100);
	queue_to(&both, &flow6, QPN_A, 2, 100);
	assert_int_equal(link_flush(both.link), 0);
	for (i = 0; i < 8 && both.count < 3; i++)
		link_poll(both.link, 4, on_packet, &both);
	assert_int_equal(both.count, 3);
	link_destroy(both.link);
}

static void check_psns(const struct side *side, const uint32_t *psns, unsigned int count)
{
	unsigned int i;

	assert_int_equal(side->count, count);
	for (i = 0; i < count; i++)
		assert_int_equal(side->log[i].p.psn, psns[i]);
}

static void run_faults(const char *rules)
{
	bool rx = !strncmp(rules, "rx-", 3);
	struct link_flow flow;
	uint32_t psn;

	a.count = b.count = 0;
	assert_int_equal(link_set_faults(rx ? b.link : a.link, rules), 0);
	flow_between(&flow, &a, &b);
	for (psn = 0; psn < 5; psn++)
		queue_to(&a, &flow, QPN_B, psn, 64);
	link_flush(a.link);
	receive(&b, 5);
	link_set_faults(rx ? b.link : a.link, "");
}

#define PSNS(...)                                                                                  \
	((const uint32_t[]){ __VA_ARGS__ }), ARRAY_SIZE(((const uint32_t[]){ __VA_ARGS__ }))

static void test_faults(void **state)
{
	static const char *const sides[] = { "tx-", "rx-" };
	uint64_t before;
	char rules[64];
	size_t i;

	for (i = 0; i < ARRAY_SIZE(sides); i++) {
#define RUN(text) (snprintf(rules, sizeof(rules), "%s%s", sides[i], text), run_faults(rules))
		RUN("drop#2");
		check_psns(&b, PSNS(0, 2, 3, 4));
		RUN("duplicate#3");
		check_psns(&b, PSNS(0, 1, 2, 2, 3, 4));
		RUN("reorder#1");
		check_psns(&b, PSNS(1, 0, 2, 3, 4));
		RUN("drop=1@0x04");
		assert_int_equal(b.count, 0);
		RUN("drop=1@write");
		check_psns(&b, PSNS(0, 1, 2, 3, 4));
		before = counter_get(CNT_DROP_ICRC) + counter_get(CNT_DROP_SLOT);
		RUN("corrupt#4");
		check_psns(&b, PSNS(0, 1, 2, 4));
		assert_int_equal(counter_get(CNT_DROP_ICRC) + counter_get(CNT_DROP_SLOT) - before,
				 1);
	}
	assert_int_equal(link_set_faults(a.link, "explode=1"), -EINVAL);
}

static uint64_t fake_now;

static uint64_t fake_clock(void)
{
	return fake_now;
}

static void test_delay(void **state)
{
	fake_now = NSEC_PER_SEC;
	clock_set_source(fake_clock);
	assert_int_equal(link_next_event_ns(a.link), UINT64_MAX);
	run_faults("delay#2:5ms");
	check_psns(&b, PSNS(0, 2, 3, 4));
	assert_int_equal(link_next_event_ns(a.link), fake_now + 5 * NSEC_PER_MSEC);
	fake_now += 5 * NSEC_PER_MSEC;
	link_flush(a.link);
	receive(&b, 5);
	check_psns(&b, PSNS(0, 2, 3, 4, 1));
	assert_int_equal(link_next_event_ns(a.link), UINT64_MAX);

	run_faults("rx-delay#1:5ms");
	check_psns(&b, PSNS(1, 2, 3, 4));
	fake_now = link_next_event_ns(b.link);
	receive(&b, 5);
	check_psns(&b, PSNS(1, 2, 3, 4, 0));

	/* nothing follows the reordered one: it goes out after a while */
	run_faults("reorder#5");
	check_psns(&b, PSNS(0, 1, 2, 3));
	fake_now = link_next_event_ns(a.link);
	link_flush(a.link);
	receive(&b, 5);
	check_psns(&b, PSNS(0, 1, 2, 3, 4));
	clock_set_source(NULL);
}

static void test_create_errors(void **state)
{
	struct link *link;
	int fd;

	assert_int_equal(link_udp_create(&link, -1, -1, 1), -EINVAL);
	fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	assert_int_equal(link_udp_create(&link, fd, -1, 1), -EINVAL);
	assert_int_equal(close(fd), 0); /* still ours */
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	setenv("SOFTHCA_FAULT", "nonsense", 1);
	assert_int_equal(link_udp_create(&link, fd, -1, 1), -EINVAL);
	unsetenv("SOFTHCA_FAULT");
	close(fd);
}

/* a network of our own, where nobody else has the port; where that is not allowed, the host's */
static void own_network(void)
{
	struct ifreq lo = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };
	int fd;

	/* a new user namespace needs a process with one thread, so not under TSan */
	if (unshare(CLONE_NEWNET) && unshare(CLONE_NEWUSER | CLONE_NEWNET))
		return;
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	own_net = !ioctl(fd, SIOCSIFFLAGS, &lo);
	if (!own_net)
		fprintf(stderr, "cannot bring lo up: %s\n", strerror(errno));
	close(fd);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_one_packet),
		TEST(test_to_itself),
		TEST(test_lengths),
		TEST(test_super_packets),
		TEST(test_split_at_limits),
		TEST(test_interleaved),
		TEST(test_many_destinations),
		TEST(test_wrong_slot),
		TEST(test_garbage),
		TEST(test_sealed_garbage),
		TEST(test_foreign_ids),
		TEST(test_flow_errors),
		TEST(test_unsendable),
		TEST(test_send_waits),
		TEST(test_gso_refused),
		TEST(test_mtu_too_small),
		TEST(test_ip6),
		TEST(test_both_families),
		TEST(test_faults),
		TEST(test_delay),
		cmocka_unit_test(test_create_errors),
	};

	own_network();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
