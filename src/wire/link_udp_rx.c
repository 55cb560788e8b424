// SPDX-License-Identifier: BSD-2-Clause
/*
 * link_udp_rx.c: receives super-packets, takes them apart, checks every packet and hands it on.
 * What arrives is hostile until packet_parse() and the ICRC have passed it.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/udp.h>
#include <string.h>

#include "util/bytes.h"
#include "util/log.h"
#include "wire/icrc.h"
#include "wire/link_udp.h"

#define IDLE_AFTER  64 /* empty polls after which a family is looked at less often */
#define IDLE_FACTOR 8
#define TTL_UNKNOWN 64

#define TRUST_AFTER 64	/* packets in a row after which the foreseen identification is trusted */
#define TRUST_JUMP  256 /* so far off it may be: a counter that other traffic shares, reordering */

/* one received super-packet */
struct rx_super_packet {
	union ibv_gid sgid, dgid;
	uint32_t ifindex;
	uint16_t sport;
	uint8_t tos, ttl;
	bool is_ipv4, have_dgid;
	uint32_t segment_len; /* 0: not coalesced */
	struct rx_source *source;
	link_rx_fn fn;
	void *arg;
};

void udp_rx_init(struct link_udp *l)
{
	struct rx_buffer *b;
	int i;

	for (i = 0; i < RX_BUFFERS; i++) {
		b = &l->rx_buffers[i];
		b->iov.iov_base = b->buf;
		b->iov.iov_len = BUFFER_LEN;
		l->rx_msgs[i].msg_hdr.msg_iov = &b->iov;
		l->rx_msgs[i].msg_hdr.msg_iovlen = 1;
		l->rx_msgs[i].msg_hdr.msg_name = &b->from;
		l->rx_msgs[i].msg_hdr.msg_control = b->control;
	}
	for (i = 0; i < FAMILY_COUNT; i++)
		l->rx[i].burst = 1;
}

static void gid_from_ip4(union ibv_gid *gid, const struct in_addr *addr)
{
	memset(gid, 0, 10);
	gid->raw[10] = gid->raw[11] = 0xff;
	memcpy(gid->raw + 12, addr, 4);
}

static void parse_ip4_control(struct rx_super_packet *sp, const struct cmsghdr *c)
{
	struct in_pktinfo info;
	int ttl;

	switch (c->cmsg_type) {
	case IP_PKTINFO:
		memcpy(&info, CMSG_DATA(c), sizeof(info));
		gid_from_ip4(&sp->dgid, &info.ipi_addr);
		sp->ifindex = (uint32_t)info.ipi_ifindex;
		sp->have_dgid = true;
		break;
	case IP_TOS: /* one byte here, whatever it is when sending */
		sp->tos = *CMSG_DATA(c);
		break;
	case IP_TTL:
		memcpy(&ttl, CMSG_DATA(c), sizeof(ttl));
		sp->ttl = (uint8_t)ttl;
		break;
	}
}

static void parse_ip6_control(struct rx_super_packet *sp, const struct cmsghdr *c)
{
	struct in6_pktinfo info;
	int value;

	switch (c->cmsg_type) {
	case IPV6_PKTINFO:
		memcpy(&info, CMSG_DATA(c), sizeof(info));
		memcpy(sp->dgid.raw, &info.ipi6_addr, 16);
		sp->ifindex = info.ipi6_ifindex;
		sp->have_dgid = true;
		break;
	case IPV6_TCLASS:
		memcpy(&value, CMSG_DATA(c), sizeof(value));
		sp->tos = (uint8_t)value;
		break;
	case IPV6_HOPLIMIT:
		memcpy(&value, CMSG_DATA(c), sizeof(value));
		sp->ttl = (uint8_t)value;
		break;
	}
}

static void parse_control(struct rx_super_packet *sp, struct msghdr *m)
{
	struct cmsghdr *c;
	int segment_len;

	for (c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		if (c->cmsg_level == IPPROTO_IP) {
			parse_ip4_control(sp, c);
		} else if (c->cmsg_level == IPPROTO_IPV6) {
			parse_ip6_control(sp, c);
		} else if (c->cmsg_level == IPPROTO_UDP && c->cmsg_type == UDP_GRO) {
			memcpy(&segment_len, CMSG_DATA(c), sizeof(segment_len));
			sp->segment_len = segment_len > 0 ? (uint32_t)segment_len : 0;
		}
	}
}

static void parse_source_address(struct rx_super_packet *sp, const struct sockaddr_storage *from)
{
	const struct sockaddr_in *in4 = (const struct sockaddr_in *)from;
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)from;

	if (from->ss_family == AF_INET) {
		gid_from_ip4(&sp->sgid, &in4->sin_addr);
		sp->sport = ntohs(in4->sin_port);
		return;
	}
	memcpy(sp->sgid.raw, &in6->sin6_addr, 16);
	sp->sport = ntohs(in6->sin6_port);
}

/* the entry for a super-packet's addresses; another source's gives way */
static struct rx_source *source_for(struct link_udp *l, const struct rx_super_packet *sp)
{
	uint64_t mix = get_le64(sp->sgid.raw + 8) * 3 + get_le64(sp->sgid.raw) +
		       get_le64(sp->dgid.raw + 8) + sp->sport;
	struct rx_source *s = &l->sources[mix * 0x9e3779b97f4a7c15ULL >> 58];

	_Static_assert(RX_SOURCES == 1 << (64 - 58), "the hash gives 6 bits");
	if (s->valid && s->sport == sp->sport && !memcmp(&s->sgid, &sp->sgid, 16) &&
	    !memcmp(&s->dgid, &sp->dgid, 16))
		return s;
	memset(s, 0, sizeof(*s));
	s->sgid = sp->sgid;
	s->dgid = sp->dgid;
	s->sport = sp->sport;
	s->step = 1;
	s->valid = true;
	return s;
}

static uint32_t source_prefix(struct rx_source *s, uint32_t packet_len)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(s->prefix); i++)
		if (s->prefix[i].packet_len == packet_len)
			return s->prefix[i].crc;
	i = s->next++ % ARRAY_SIZE(s->prefix);
	s->prefix[i].packet_len = packet_len;
	s->prefix[i].crc = icrc_prefix(&s->sgid, &s->dgid, 0, s->sport, packet_len);
	return s->prefix[i].crc;
}

/*
 * The identification was not @foreseen but @found, by solving, which leaves a 16-bit check only.
 * Where it has been foreseen for long, one far off is rather a corrupt packet: at worst a packet
 * is lost when the sender really changes its ways.
 */
static bool __attribute__((cold))
learn_ip_id(struct rx_source *s, uint16_t foreseen, uint16_t found, unsigned int k)
{
	bool plausible = s->right_run < TRUST_AFTER ||
			 (uint16_t)(found - foreseen + TRUST_JUMP) < 2 * TRUST_JUMP;

	s->right_run = 0;
	if (!plausible)
		return false;
	counter_inc(CNT_RX_ID_SOLVED);
	if (!k)
		s->counts = found != 0;
	else
		s->step = (uint16_t)(found + s->step) != foreseen;
	return true;
}

/*
 * @ip_id: in: identification foreseen; out: the real one, when the packet is right
 * @k: place in the super-packet
 */
static bool icrc_right(const struct rx_super_packet *sp, const uint8_t *data, uint32_t len,
		       unsigned int k, uint16_t *ip_id)
{
	struct rx_source *s = sp->source;
	uint32_t crc = source_prefix(s, len), difference;
	uint16_t found = *ip_id;

	if (sp->is_ipv4)
		crc ^= icrc_id_delta(*ip_id);
	crc = icrc_update(icrc_mask_bth(crc, data), data, len - ICRC_LEN);
	difference = crc ^ icrc_get(data + len - ICRC_LEN);
	if (__builtin_expect(!difference, 1))
		s->right_run += s->right_run < TRUST_AFTER;
	else if (!sp->is_ipv4 || !icrc_solve_id(difference, len, &found) ||
		 !learn_ip_id(s, *ip_id, found, k))
		return false;
	*ip_id = found;
	s->next_ip_id = found + 1;
	return true;
}

static void __attribute__((cold))
drop(const struct rx_super_packet *sp, enum counter reason, const uint8_t *data, uint32_t len)
{
	char address[INET6_ADDRSTRLEN];

	counter_inc(reason);
	if (!log_enabled(LOG_LEVEL_DEBUG))
		return;
	inet_ntop(AF_INET6, sp->sgid.raw, address, sizeof(address));
	log_debug("%s: %u bytes from %s, opcode 0x%02x, to QP 0x%06x", counter_names[reason], len,
		  address, len ? data[0] : 0, len >= BTH_LEN ? get_be24(data + 5) : 0);
}

/* @k: its place in the super-packet; @ip_id: see icrc_right() */
static void receive_packet(struct link_udp *l, const struct rx_super_packet *sp, uint8_t *data,
			   uint32_t len, unsigned int k, uint16_t *ip_id)
{
	struct fault_verdict verdict = { 0 };
	struct packet p;
	enum counter reason;
	bool right;

	if (len < BTH_LEN + ICRC_LEN) {
		drop(sp, CNT_DROP_SHORT, data, len);
		return;
	}
	if (len > PACKET_MAX_LEN) {
		drop(sp, CNT_DROP_LENGTH, data, len);
		return;
	}
	if (data[5] != l->slot) {
		drop(sp, CNT_DROP_SLOT, data, len);
		return;
	}
	if (__builtin_expect(l->faults != NULL, 0)) {
		verdict = fault_decide(l->faults, FAULT_RX, data[0]);
		if (verdict.corrupt)
			data[verdict.corrupt_bit / 8 % len] ^= 1 << verdict.corrupt_bit % 8;
	}
	right = icrc_right(sp, data, len, k, ip_id);
	if (__builtin_expect(l->pcap != NULL, 0))
		pcap_write(l->pcap, &sp->sgid, &sp->dgid, sp->sport, *ip_id, sp->tos, sp->ttl, data,
			   len);
	if (!right) {
		drop(sp, CNT_DROP_ICRC, data, len);
		return;
	}
	reason = packet_parse(&p, data, len);
	if (reason != DROP_NONE) {
		drop(sp, reason, data, len);
		return;
	}
	p.sgid = sp->sgid;
	p.dgid = sp->dgid;
	p.ifindex = sp->ifindex;
	p.tos = sp->tos;
	p.ttl = sp->ttl;
	if (__builtin_expect(l->faults != NULL || !list_empty(&l->held_rx), 0))
		udp_fault_deliver(l, &verdict, &p, sp->fn, sp->arg);
	else
		sp->fn(sp->arg, &p);
}

/* returns packets */
static unsigned int receive_super_packet(struct link_udp *l, enum family family,
					 struct rx_buffer *b, struct mmsghdr *m, link_rx_fn fn,
					 void *arg)
{
	struct rx_super_packet sp = { .ttl = TTL_UNKNOWN, .fn = fn, .arg = arg };
	uint32_t len = m->msg_len, at, n;
	unsigned int k = 0;
	uint16_t ip_id;

	parse_source_address(&sp, &b->from);
	parse_control(&sp, &m->msg_hdr);
	counter_inc(CNT_RX_SUPER_PACKETS);
	counter_add(CNT_RX_BYTES, len);
	if (!sp.have_dgid || len > BUFFER_LEN || m->msg_hdr.msg_flags & MSG_TRUNC || !len) {
		counter_inc(CNT_RX_PACKETS);
		drop(&sp, len ? CNT_DROP_LENGTH : CNT_DROP_SHORT, b->buf, MIN(len, BUFFER_LEN));
		return 1;
	}
	sp.is_ipv4 = gid_is_ipv4(&sp.dgid);
	if (sp.is_ipv4 != gid_is_ipv4(&sp.sgid)) {
		counter_inc(CNT_RX_PACKETS);
		drop(&sp, CNT_DROP_ADDRESS, b->buf, len);
		return 1;
	}
	sp.source = source_for(l, &sp);
	if (!sp.segment_len)
		sp.segment_len = len;
	counter_add(CNT_RX_PACKETS, div_round_up(len, sp.segment_len));
	ip_id = sp.source->counts ? sp.source->next_ip_id : 0;
	for (at = 0; at < len; at += n, k++, ip_id += sp.source->step) {
		n = MIN(sp.segment_len, len - at);
		receive_packet(l, &sp, b->buf + at, n, k, &ip_id);
	}
	return k;
}

/* one system call; returns super-packets */
static unsigned int receive_batch(struct link_udp *l, enum family family, unsigned int max)
{
	unsigned int i;
	ssize_t len;
	int count;

	for (i = 0; i < max; i++) {
		l->rx_msgs[i].msg_hdr.msg_namelen = sizeof(l->rx_buffers[i].from);
		l->rx_msgs[i].msg_hdr.msg_controllen = CONTROL_LEN;
		l->rx_msgs[i].msg_hdr.msg_flags = 0;
	}
	if (max > 1) {
		count = recvmmsg(l->fds[family], l->rx_msgs, max, MSG_DONTWAIT, NULL);
		return count > 0 ? (unsigned int)count : 0;
	}
	len = recvmsg(l->fds[family], &l->rx_msgs[0].msg_hdr, MSG_DONTWAIT);
	l->rx_msgs[0].msg_len = (unsigned int)MAX(len, 0);
	return len >= 0;
}

/*
 * Whether a family's turn is now. An empty system call costs a quarter of a microsecond, so one
 * that has been silent is left out most times while the other has traffic, or is the only one
 * with flows of ours.
 */
static bool family_due(const struct link_udp *l, enum family family)
{
	enum family other = !family;

	if (l->fds[family] < 0)
		return false;
	if (l->fds[other] < 0 || l->rx[family].idle < IDLE_AFTER)
		return true;
	if (l->rx[other].idle < IDLE_AFTER || (l->rx[other].used && !l->rx[family].used))
		return l->rx[family].idle % IDLE_FACTOR == 0;
	return true;
}

unsigned int udp_rx_poll(struct link_udp *l, unsigned int max_super_packets, link_rx_fn fn,
			 void *arg)
{
	unsigned int packets = 0, before, here, want, got, i;
	enum family family;

	for (family = 0; family < FAMILY_COUNT; family++) {
		if (!family_due(l, family)) {
			l->rx[family].idle++;
			continue;
		}
		before = packets;
		for (here = 0; here < max_super_packets; here += got) {
			/* after silence one packet is the likely case, and its answer is urgent */
			want = MIN(l->rx[family].burst, max_super_packets - here);
			want = MIN(want, RX_BUFFERS);
			got = receive_batch(l, family, want);
			for (i = 0; i < got; i++)
				packets += receive_super_packet(l, family, &l->rx_buffers[i],
								&l->rx_msgs[i], fn, arg);
			if (got < want) {
				l->rx[family].burst = MAX(got, 1U);
				break;
			}
			l->rx[family].burst = MIN(2 * want, RX_BUFFERS);
			if (want == 1)
				break;
		}
		l->rx[family].idle = packets != before ? 0 : l->rx[family].idle + 1;
	}
	return packets;
}
