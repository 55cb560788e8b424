// SPDX-License-Identifier: BSD-2-Clause
/*
 * link_udp_tx.c: builds packets into super-packets and sends these.
 *
 * A super-packet goes to one process (the kernel steers it by its first segment) and has segments
 * of equal length, the last may be shorter. Each destination has at most one open super-packet,
 * so flows that interleave do not break each other's runs; a closed one is sent before whatever
 * the same destination gets later. Segment k travels with IPv4 identification k (wire-facts 1.11).
 */
#include <errno.h>
#include <netinet/udp.h>
#include <string.h>

#include "util/bytes.h"
#include "util/log.h"
#include "wire/icrc.h"
#include "wire/link_udp.h"

#define SEND_EARLY  4	/* closed super-packets that make link_queue() send them */
#define SEND_BATCH  64	/* messages in one sendmmsg() */
#define TTL_DEFAULT 64	/* the sockets' */
#define SMALL_LEN   512 /* payload up to which header and payload are CRCed in one go */

void udp_tx_init(struct link_udp *l)
{
	int i;

	list_init(&l->free);
	list_init(&l->open);
	list_init(&l->closed);
	for (i = 0; i < TX_SUPER_PACKETS; i++)
		list_add_tail(&l->free, &l->super_packets[i].node);
	l->free_count = TX_SUPER_PACKETS;
}

/* --- sending --- */

static void *add_control(struct super_packet *sp, int level, int type, const void *data, size_t len)
{
	struct cmsghdr *c = (struct cmsghdr *)(sp->control + sp->control_len);

	c->cmsg_level = level;
	c->cmsg_type = type;
	c->cmsg_len = CMSG_LEN(len);
	memcpy(CMSG_DATA(c), data, len);
	sp->control_len += CMSG_SPACE(len);
	return c;
}

/* source address, TOS and TTL: the ICRC covers the first, and the kernel would choose its own */
static void build_control(struct super_packet *sp)
{
	const struct link_flow *flow = &sp->flow;
	struct in_pktinfo info4 = { 0 };
	struct in6_pktinfo info6 = { 0 };
	int tos = flow->tos, ttl = flow->ttl;

	sp->control_len = 0;
	if (flow->is_ipv4) {
		memcpy(&info4.ipi_spec_dst, flow->sgid.raw + 12, 4);
		add_control(sp, IPPROTO_IP, IP_PKTINFO, &info4, sizeof(info4));
		if (tos)
			add_control(sp, IPPROTO_IP, IP_TOS, &tos, sizeof(tos));
		if (ttl && ttl != TTL_DEFAULT)
			add_control(sp, IPPROTO_IP, IP_TTL, &ttl, sizeof(ttl));
		return;
	}
	memcpy(&info6.ipi6_addr, flow->sgid.raw, 16);
	if (IN6_IS_ADDR_LINKLOCAL(&info6.ipi6_addr))
		info6.ipi6_ifindex = flow->ifindex;
	add_control(sp, IPPROTO_IPV6, IPV6_PKTINFO, &info6, sizeof(info6));
	if (tos)
		add_control(sp, IPPROTO_IPV6, IPV6_TCLASS, &tos, sizeof(tos));
	if (ttl && ttl != TTL_DEFAULT)
		add_control(sp, IPPROTO_IPV6, IPV6_HOPLIMIT, &ttl, sizeof(ttl));
}

static uint32_t segment_len_at(const struct super_packet *sp, unsigned int k)
{
	return k + 1U == sp->count ? sp->len - k * sp->segment_len : sp->segment_len;
}

/* returns how many of @max messages it took */
static unsigned int fill_messages(struct super_packet *sp, struct mmsghdr *msgs, struct iovec *iov,
				  unsigned int max)
{
	uint16_t segment_len = (uint16_t)sp->segment_len;
	size_t control_len = sp->control_len;
	unsigned int count = sp->single ? MIN(max, (unsigned int)(sp->count - sp->sent)) : 1, i;

	if (!sp->single && sp->count > 1) {
		add_control(sp, IPPROTO_UDP, UDP_SEGMENT, &segment_len, sizeof(segment_len));
		/* may come here again after EAGAIN */
		control_len = sp->control_len;
		sp->control_len -= CMSG_SPACE(sizeof(segment_len));
	}
	for (i = 0; i < count; i++) {
		iov[i].iov_base = sp->buf + (size_t)(sp->sent + i) * sp->segment_len;
		iov[i].iov_len = sp->single ? segment_len_at(sp, sp->sent + i) : sp->len;
		memset(&msgs[i], 0, sizeof(msgs[i]));
		msgs[i].msg_hdr.msg_name = &sp->flow.addr;
		msgs[i].msg_hdr.msg_namelen = sp->flow.addr_len;
		msgs[i].msg_hdr.msg_iov = &iov[i];
		msgs[i].msg_hdr.msg_iovlen = 1;
		msgs[i].msg_hdr.msg_control = sp->control;
		msgs[i].msg_hdr.msg_controllen = control_len;
	}
	return count;
}

static void super_packet_done(struct link_udp *l, struct super_packet *sp)
{
	list_del(&sp->node);
	/* used again first: it is in the cache */
	list_add(&l->free, &sp->node);
	l->free_count++;
	l->closed_count--;
}

/* @count messages were sent, in the order of the closed list */
static void messages_sent(struct link_udp *l, unsigned int count)
{
	struct super_packet *sp;
	unsigned int here;

	counter_add(CNT_TX_SUPER_PACKETS, count);
	while (count) {
		sp = list_entry(l->closed.next, struct super_packet, node);
		if (!sp->single) {
			counter_add(CNT_TX_PACKETS, sp->count);
			counter_add(CNT_TX_BYTES, sp->len);
			super_packet_done(l, sp);
			count--;
			continue;
		}
		if (sp->refused && !l->no_gso) {
			l->no_gso = true;
			log_warn("no UDP_SEGMENT here: packets are sent one by one, which is slow");
		}
		here = MIN(count, (unsigned int)(sp->count - sp->sent));
		counter_add(CNT_TX_PACKETS, here);
		counter_add(CNT_TX_BYTES, (uint64_t)here * sp->segment_len);
		sp->sent += here;
		count -= here;
		if (sp->sent == sp->count)
			super_packet_done(l, sp);
	}
}

/* each segment will be a datagram of its own, with identification 0 */
static void make_single(struct super_packet *sp)
{
	const struct link_flow *flow = &sp->flow;
	uint8_t *packet = sp->buf;
	uint32_t len, body, crc;
	unsigned int k;

	sp->single = true;
	if (!flow->is_ipv4)
		return;
	for (k = 0; k < sp->count; k++, packet += len) {
		len = segment_len_at(sp, k);
		body = len - ICRC_LEN;
		/* the CRC is affine: take the identification's part out again */
		crc = icrc_move_delta(icrc_id_delta((uint16_t)k), body);
		icrc_put(packet + body, icrc_get(packet + body) ^ crc);
	}
}

static void drop_segment(struct link_udp *l, struct super_packet *sp, int error)
{
	bool mtu = error == EMSGSIZE;
	bool *logged = mtu ? &l->logged_mtu : &l->logged_error;

	counter_inc(mtu ? CNT_TX_DROP_MTU : CNT_TX_DROP_ERROR);
	if (!*logged)
		log_warn("cannot send a packet of %u bytes: %s%s", sp->segment_len, strerror(error),
			 mtu ? " (the path MTU of the QP is larger than the network's)" : "");
	*logged = true;
	if (++sp->sent >= sp->count)
		super_packet_done(l, sp);
}

/* Return: false when the first closed super-packet has to wait */
static bool send_failed(struct link_udp *l, int error)
{
	struct super_packet *sp = list_entry(l->closed.next, struct super_packet, node);

	switch (error) {
	case EINTR:
		return true;
	case EAGAIN:
	case ENOBUFS:
	case ENOMEM:
		counter_inc(CNT_TX_EAGAIN);
		return false;
	}
	if (sp->single || sp->count == 1) {
		sp->single = true;
		drop_segment(l, sp, error);
		return true;
	}
	/* UDP_SEGMENT refused, or segments above the MTU: one by one we shall know */
	sp->refused = error != EMSGSIZE;
	make_single(sp);
	return true;
}

/* Return: 0, or -EAGAIN when some must wait */
static int send_closed(struct link_udp *l)
{
	struct mmsghdr msgs[SEND_BATCH];
	struct iovec iov[SEND_BATCH];
	struct super_packet *sp;
	struct list_node *pos;
	unsigned int count;
	bool is_ipv4;
	int sent;

	while (!list_empty(&l->closed)) {
		count = 0;
		is_ipv4 = list_entry(l->closed.next, struct super_packet, node)->flow.is_ipv4;
		list_for_each(pos, &l->closed) {
			sp = list_entry(pos, struct super_packet, node);
			if (sp->flow.is_ipv4 != is_ipv4 || count == SEND_BATCH)
				break;
			count += fill_messages(sp, msgs + count, iov + count, SEND_BATCH - count);
		}
		sent = sendmmsg(l->fds[is_ipv4 ? FAMILY_IP4 : FAMILY_IP6], msgs, count,
				MSG_DONTWAIT | MSG_NOSIGNAL);
		counter_inc(CNT_TX_SYSCALLS);
		if (sent > 0)
			messages_sent(l, (unsigned int)sent);
		else if (!send_failed(l, errno))
			return -EAGAIN;
	}
	return 0;
}

static void close_super_packet(struct link_udp *l, struct super_packet *sp)
{
	list_del(&sp->node);
	list_add_tail(&l->closed, &sp->node);
	l->closed_count++;
}

int udp_tx_flush(struct link_udp *l)
{
	/* the oldest is at the end */
	while (!list_empty(&l->open))
		close_super_packet(l, list_entry(l->open.prev, struct super_packet, node));
	return send_closed(l);
}

bool udp_tx_room(struct link_udp *l, unsigned int count)
{
	if (l->free_count >= count)
		return true;
	send_closed(l);
	if (l->free_count >= count)
		return true;
	udp_tx_flush(l);
	return l->free_count >= count;
}

/* --- staging --- */

static bool same_flow(const struct link_flow *a, const struct link_flow *b)
{
	return !memcmp(&a->dgid, &b->dgid, sizeof(a->dgid)) &&
	       !memcmp(&a->sgid, &b->sgid, sizeof(a->sgid)) && a->ifindex == b->ifindex &&
	       a->tos == b->tos && a->ttl == b->ttl;
}

static struct super_packet *open_super_packet(struct link_udp *l, const struct link_flow *flow,
					      uint8_t slot, uint32_t segment_len)
{
	struct super_packet *sp;

	if (!udp_tx_room(l, 1))
		return NULL;
	sp = list_entry(list_pop(&l->free), struct super_packet, node);
	l->free_count--;
	list_add(&l->open, &sp->node);
	sp->len = 0;
	sp->segment_len = segment_len;
	sp->count = sp->sent = 0;
	sp->single = l->no_gso;
	sp->refused = false;
	sp->slot = slot;
	sp->flow = *flow;
	build_control(sp);
	return sp;
}

/* the super-packet that a packet of @len bytes to process @slot joins */
static struct super_packet *super_packet_for(struct link_udp *l, const struct link_flow *flow,
					     uint8_t slot, uint32_t len)
{
	struct super_packet *sp;
	struct list_node *pos;

	list_for_each(pos, &l->open) {
		sp = list_entry(pos, struct super_packet, node);
		if (sp->slot != slot || !same_flow(&sp->flow, flow))
			continue;
		if (len <= sp->segment_len && sp->len + len <= SUPER_PACKET_MAX_LEN)
			return sp;
		close_super_packet(l, sp);
		break;
	}
	return open_super_packet(l, flow, slot, len);
}

/* ICRC state after the headers that do not change; identification 0 */
static uint32_t flow_prefix(struct link_flow *flow, uint16_t sport, uint32_t packet_len)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(flow->prefix); i++)
		if (flow->prefix[i].packet_len == packet_len)
			return flow->prefix[i].crc;
	i = flow->prefix_next++ % ARRAY_SIZE(flow->prefix);
	flow->prefix[i].packet_len = packet_len;
	flow->prefix[i].crc = icrc_prefix(&flow->sgid, &flow->dgid, 0, sport, packet_len);
	return flow->prefix[i].crc;
}

static bool sg_covers(const struct iovec *sg, int sg_count, uint32_t len)
{
	size_t left = len;
	int i;

	for (i = 0; i < sg_count && left; i++)
		left -= MIN(left, sg[i].iov_len);
	return !left;
}

/* header of @header_len bytes at @out; payload behind it, then pad and ICRC */
static void put_packet(uint8_t *out, uint32_t header_len, uint32_t payload_len,
		       const struct iovec *sg, int sg_count, uint32_t prefix_crc)
{
	uint8_t *to = out + header_len, *end = to + payload_len;
	bool small = payload_len <= SMALL_LEN;
	uint32_t crc = icrc_mask_bth(prefix_crc, out);
	size_t n;
	int i;

	if (!small)
		crc = icrc_update(crc, out, header_len);
	for (i = 0; i < sg_count && to < end; i++, to += n) {
		n = MIN(sg[i].iov_len, (size_t)(end - to));
		if (!n)
			continue;
		if (small)
			memcpy(to, sg[i].iov_base, n);
		else
			crc = icrc_copy(crc, to, sg[i].iov_base, n);
	}
	for (; payload_len & 3; payload_len++)
		*to++ = 0;
	if (small)
		crc = icrc_update(crc, out, (size_t)(to - out));
	else if (to != end)
		crc = icrc_update(crc, end, (size_t)(to - end));
	icrc_put(to, crc);
}

int udp_tx_stage(struct link_udp *l, struct link_flow *flow, const struct packet *p,
		 const struct iovec *sg, int sg_count, int64_t corrupt_bit)
{
	uint32_t len = packet_len(p->opcode, p->payload_len), header_len, crc;
	uint16_t sport = l->sports[flow->is_ipv4 ? FAMILY_IP4 : FAMILY_IP6];
	struct super_packet *sp;
	uint16_t ip_id;
	uint8_t *out;

	if (p->payload_len > MTU_MAX || !sg_covers(sg, sg_count, p->payload_len))
		return -EINVAL;
	sp = super_packet_for(l, flow, (uint8_t)(p->dest_qpn >> 16), len);
	if (!sp)
		return -EAGAIN;
	out = sp->buf + sp->len;
	ip_id = sp->single || !flow->is_ipv4 ? 0 : sp->count;
	header_len = packet_put_headers(out, p);
	crc = flow_prefix(flow, sport, len);
	if (ip_id)
		crc ^= icrc_id_delta(ip_id);
	put_packet(out, header_len, p->payload_len, sg, sg_count, crc);
	if (corrupt_bit >= 0)
		out[corrupt_bit / 8 % len] ^= (uint8_t)(1 << corrupt_bit % 8);
	if (l->pcap)
		pcap_write(l->pcap, &flow->sgid, &flow->dgid, sport, ip_id, flow->tos,
			   flow->ttl ? flow->ttl : TTL_DEFAULT, out, len);

	sp->len += len;
	sp->count++;
	if (len < sp->segment_len || sp->count == SUPER_PACKET_MAX_SEGMENTS ||
	    sp->len + sp->segment_len > SUPER_PACKET_MAX_LEN)
		close_super_packet(l, sp);
	if (l->closed_count >= SEND_EARLY)
		send_closed(l);
	return 0;
}
