// SPDX-License-Identifier: BSD-2-Clause
/*
 * mad_io.c: MADs on the wire. The sockets are unconnected and forbid fragmentation, so the IPv4
 * identification that the ICRC covers is 0 (wire-facts 1.11).
 */
#include "portd/mad_io.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "util/bytes.h"
#include "wire/icrc.h"

void mad_build(uint8_t *out, const struct portd_mad *mad, uint32_t psn)
{
	struct packet p = {
		.opcode = OPC_UD | OP_SEND_ONLY,
		.pkey = PKEY_DEFAULT,
		.dest_qpn = MAD_QPN,
		.psn = psn & PSN_MASK,
		.qkey = MAD_QKEY,
		.src_qpn = MAD_QPN,
		.payload_len = MAD_LEN,
	};
	uint32_t header_len = packet_put_headers(out, &p);
	uint32_t crc;

	memcpy(out + header_len, mad->data, MAD_LEN);
	crc = icrc_prefix(&mad->sgid, &mad->dgid, 0, ROCE_UDP_PORT, MAD_PACKET_LEN);
	crc = icrc_bth(crc, out);
	crc = icrc_update(crc, out + BTH_LEN, header_len - BTH_LEN + MAD_LEN);
	icrc_put(out + header_len + MAD_LEN, crc);
}

enum counter mad_parse(struct portd_mad *mad, uint16_t sport, uint16_t *hint, const uint8_t *data,
		       uint32_t len)
{
	struct packet p;
	enum counter drop = packet_parse(&p, data, len);

	if (drop != DROP_NONE)
		return drop;
	if (!icrc_check(&mad->sgid, &mad->dgid, sport, data, len, hint))
		return CNT_DROP_ICRC;
	if ((p.pkey & 0x7fff) != (PKEY_DEFAULT & 0x7fff))
		return CNT_DROP_PKEY;
	if (p.dest_qpn != MAD_QPN)
		return CNT_DROP_QPN;
	if (p.opcode != (OPC_UD | OP_SEND_ONLY))
		return CNT_DROP_TYPE;
	if (p.qkey != MAD_QKEY)
		return CNT_DROP_QKEY;
	if (p.payload_len != MAD_LEN)
		return CNT_DROP_MAD;
	mad->src_qpn = p.src_qpn;
	memcpy(mad->data, p.payload, MAD_LEN);
	return DROP_NONE;
}

static bool is_link_local(const union ibv_gid *gid)
{
	return (get_be16(gid->raw) & 0xffc0) == 0xfe80;
}

static int send_datagram(int fd, struct sockaddr *to, socklen_t to_len, int level, int type,
			 const void *info, size_t info_len, const uint8_t *data, uint32_t len)
{
	union {
		char buf[CMSG_SPACE(sizeof(struct in6_pktinfo))];
		struct cmsghdr align;
	} control = { 0 };
	struct iovec iov = { .iov_base = (void *)data, .iov_len = len };
	struct msghdr mh = {
		.msg_name = to,
		.msg_namelen = to_len,
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.buf,
		.msg_controllen = CMSG_SPACE(info_len),
	};
	struct cmsghdr *cmsg = CMSG_FIRSTHDR(&mh);

	cmsg->cmsg_level = level;
	cmsg->cmsg_type = type;
	cmsg->cmsg_len = CMSG_LEN(info_len);
	memcpy(CMSG_DATA(cmsg), info, info_len);
	for (;;) {
		if (sendmsg(fd, &mh, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
			return 0;
		if (errno != EINTR)
			return -errno;
	}
}

static int send_ipv4(int fd, const struct portd_mad *mad, const uint8_t *data, uint32_t len)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(ROCE_UDP_PORT) };
	struct in_pktinfo info = { 0 };

	memcpy(&to.sin_addr, mad->dgid.raw + 12, 4);
	memcpy(&info.ipi_spec_dst, mad->sgid.raw + 12, 4);
	return send_datagram(fd, (struct sockaddr *)&to, sizeof(to), IPPROTO_IP, IP_PKTINFO, &info,
			     sizeof(info), data, len);
}

static int send_ipv6(int fd, const struct portd_mad *mad, const uint8_t *data, uint32_t len)
{
	struct sockaddr_in6 to = { .sin6_family = AF_INET6, .sin6_port = htons(ROCE_UDP_PORT) };
	struct in6_pktinfo info = { 0 };

	memcpy(&to.sin6_addr, mad->dgid.raw, 16);
	memcpy(&info.ipi6_addr, mad->sgid.raw, 16);
	if (is_link_local(&mad->dgid) || is_link_local(&mad->sgid)) {
		to.sin6_scope_id = mad->ifindex;
		info.ipi6_ifindex = mad->ifindex;
	}
	return send_datagram(fd, (struct sockaddr *)&to, sizeof(to), IPPROTO_IPV6, IPV6_PKTINFO,
			     &info, sizeof(info), data, len);
}

int mad_send_packet(int fd4, int fd6, const struct portd_mad *mad, const uint8_t *data,
		    uint32_t len)
{
	bool is_ipv4 = gid_is_ipv4(&mad->dgid);

	if (gid_is_ipv4(&mad->sgid) != is_ipv4)
		return -EINVAL;
	if ((is_ipv4 ? fd4 : fd6) < 0)
		return -EAFNOSUPPORT;
	return is_ipv4 ? send_ipv4(fd4, mad, data, len) : send_ipv6(fd6, mad, data, len);
}

static void gid_from_ipv4(union ibv_gid *gid, const struct in_addr *addr)
{
	memset(gid, 0, sizeof(*gid));
	gid->raw[10] = gid->raw[11] = 0xff;
	memcpy(gid->raw + 12, addr, 4);
}

int mad_recv_packet(int fd, struct portd_mad *mad, uint16_t *sport, uint8_t *data, uint32_t size)
{
	union {
		char buf[256];
		struct cmsghdr align;
	} control;
	union {
		struct sockaddr sa;
		struct sockaddr_in in;
		struct sockaddr_in6 in6;
	} from;
	struct iovec iov = { .iov_base = data, .iov_len = size };
	struct msghdr mh = {
		.msg_name = &from,
		.msg_namelen = sizeof(from),
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.buf,
		.msg_controllen = sizeof(control.buf),
	};
	bool have_destination = false;
	uint32_t ifindex = 0;
	ssize_t n;

	do {
		n = recvmsg(fd, &mh, MSG_DONTWAIT | MSG_TRUNC);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	for (struct cmsghdr *cmsg = CMSG_FIRSTHDR(&mh); cmsg; cmsg = CMSG_NXTHDR(&mh, cmsg)) {
		if (cmsg->cmsg_level == IPPROTO_IP && cmsg->cmsg_type == IP_PKTINFO) {
			struct in_pktinfo info;

			memcpy(&info, CMSG_DATA(cmsg), sizeof(info));
			gid_from_ipv4(&mad->dgid, &info.ipi_addr);
			have_destination = true;
		} else if (cmsg->cmsg_level == IPPROTO_IPV6 && cmsg->cmsg_type == IPV6_PKTINFO) {
			struct in6_pktinfo info;

			memcpy(&info, CMSG_DATA(cmsg), sizeof(info));
			memcpy(mad->dgid.raw, &info.ipi6_addr, 16);
			ifindex = info.ipi6_ifindex;
			have_destination = true;
		}
	}
	if (!have_destination)
		return -EDESTADDRREQ;
	if (from.sa.sa_family == AF_INET) {
		gid_from_ipv4(&mad->sgid, &from.in.sin_addr);
		*sport = ntohs(from.in.sin_port);
	} else {
		memcpy(mad->sgid.raw, &from.in6.sin6_addr, 16);
		*sport = ntohs(from.in6.sin6_port);
	}
	mad->ifindex = is_link_local(&mad->dgid) || is_link_local(&mad->sgid) ? ifindex : 0;
	return (int)MIN(n, INT32_MAX);
}
