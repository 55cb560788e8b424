// SPDX-License-Identifier: BSD-2-Clause
/*
 * link_udp.c: the UDP link: RoCEv2 through the sockets of one slot. Here: the sockets and their
 * options, and the link's operations. The sockets stay unconnected with IP_MTU_DISCOVER = DO, so
 * that the IPv4 identification, which the ICRC covers, is known (wire-facts 1.11).
 */
#include <errno.h>
#include <netinet/udp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "util/bytes.h"
#include "util/log.h"
#include "wire/icrc.h"
#include "wire/link_udp.h"

#define SOCKET_BUFFER_LEN (8 << 20) /* asked for; the kernel gives rmem_max without privilege */

static int set_int(int fd, int level, int name, int value, const char *text)
{
	int ret;

	if (!setsockopt(fd, level, name, &value, sizeof(value)))
		return 0;
	ret = -errno;
	log_error("cannot set %s on the RoCE socket: %s", text, strerror(errno));
	return ret;
}

#define SET(fd, level, name, value) set_int(fd, level, name, value, #name)

static void set_buffer_lens(int fd)
{
	int len = SOCKET_BUFFER_LEN;

	if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &len, sizeof(len)))
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &len, sizeof(len));
	if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &len, sizeof(len)))
		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &len, sizeof(len));
}

static int set_options_ip4(int fd)
{
	int ret;

	ret = SET(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO);
	ret = ret ? ret : SET(fd, IPPROTO_IP, IP_PKTINFO, 1);
	ret = ret ? ret : SET(fd, IPPROTO_IP, IP_RECVTOS, 1);
	return ret ? ret : SET(fd, IPPROTO_IP, IP_RECVTTL, 1);
}

static int set_options_ip6(int fd)
{
	int ret;

	ret = SET(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO);
	ret = ret ? ret : SET(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, 1);
	ret = ret ? ret : SET(fd, IPPROTO_IPV6, IPV6_RECVTCLASS, 1);
	ret = ret ? ret : SET(fd, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1);
	/* rxe and NICs send no UDP checksum */
	return ret ? ret : SET(fd, IPPROTO_UDP, UDP_NO_CHECK6_RX, 1);
}

static int setup_socket(struct link_udp *l, enum family family, int fd)
{
	struct sockaddr_storage addr;
	socklen_t len = sizeof(addr);
	int ret, on = 1;

	if (getsockname(fd, (struct sockaddr *)&addr, &len))
		return -errno;
	if (addr.ss_family != (family == FAMILY_IP4 ? AF_INET : AF_INET6))
		return -EINVAL;
	l->sports[family] = ntohs(family == FAMILY_IP4 ? ((struct sockaddr_in *)&addr)->sin_port
						       : ((struct sockaddr_in6 *)&addr)->sin6_port);
	set_buffer_lens(fd);
	ret = family == FAMILY_IP4 ? set_options_ip4(fd) : set_options_ip6(fd);
	if (ret)
		return ret;
	/* without it (Linux < 5.0) packets come one by one, which is slower but right */
	if (setsockopt(fd, IPPROTO_UDP, UDP_GRO, &on, sizeof(on)))
		log_info("no UDP_GRO: %s", strerror(errno));
	return 0;
}

/* SO_RCVBUF that a process without privileges gets, as getsockopt() says it: doubled */
static uint32_t unprivileged_rcvbuf(uint32_t ours)
{
	FILE *f = fopen("/proc/sys/net/core/rmem_max", "re");
	unsigned int max;

	if (!f)
		return ours;
	if (fscanf(f, "%u", &max) != 1 || max > UINT32_MAX / 2)
		max = UINT32_MAX / 2;
	fclose(f);
	return MIN(ours, 2 * max);
}

/*
 * The kernel charges a socket buffer for its own overhead too: a lone 4 KiB packet counts twice
 * (limits.md A2), and we may not be the only sender. So a quarter.
 */
static uint32_t window_from_rcvbuf(int fd)
{
	int rcvbuf = 0;
	socklen_t len = sizeof(rcvbuf);

	if (getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &rcvbuf, &len) || rcvbuf < 4)
		return BUFFER_LEN;
	return unprivileged_rcvbuf((uint32_t)rcvbuf) / 4;
}

static int set_faults(struct link *link, const char *rules)
{
	struct link_udp *l = to_udp(link);
	struct fault_layer *faults;
	char error[256];
	int ret;

	ret = fault_parse(&faults, rules, error, sizeof(error));
	if (ret) {
		log_error("%s (see SOFTHCA_FAULT)", error);
		return ret;
	}
	fault_free(l->faults);
	l->faults = faults;
	return 0;
}

static int flow_init(struct link *link, struct link_flow *flow)
{
	struct link_udp *l = to_udp(link);
	enum family family = flow->is_ipv4 ? FAMILY_IP4 : FAMILY_IP6;
	struct sockaddr_in *in4 = (struct sockaddr_in *)&flow->addr;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&flow->addr;

	if (l->fds[family] < 0)
		return -EAFNOSUPPORT;
	l->rx[family].used = true;
	if (family == FAMILY_IP4) {
		in4->sin_family = AF_INET;
		in4->sin_port = htons(ROCE_UDP_PORT);
		memcpy(&in4->sin_addr, flow->dgid.raw + 12, 4);
		flow->addr_len = sizeof(*in4);
		return 0;
	}
	in6->sin6_family = AF_INET6;
	in6->sin6_port = htons(ROCE_UDP_PORT);
	memcpy(&in6->sin6_addr, flow->dgid.raw, 16);
	if (IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr))
		in6->sin6_scope_id = flow->ifindex;
	flow->addr_len = sizeof(*in6);
	return 0;
}

static int queue(struct link *link, struct link_flow *flow, const struct packet *p,
		 const struct iovec *sg, int sg_count)
{
	struct link_udp *l = to_udp(link);

	if (__builtin_expect(l->faults != NULL || udp_fault_holds(l), 0))
		return udp_fault_queue(l, flow, p, sg, sg_count);
	return udp_tx_stage(l, flow, p, sg, sg_count, -1);
}

static int flush(struct link *link)
{
	struct link_udp *l = to_udp(link);

	if (udp_fault_holds(l))
		udp_fault_release(l, NULL, NULL);
	return udp_tx_flush(l);
}

static bool tx_pending(const struct link *link)
{
	const struct link_udp *l = to_udp(link);

	return !list_empty(&l->open) || !list_empty(&l->closed);
}

static unsigned int poll_link(struct link *link, unsigned int max_super_packets, link_rx_fn fn,
			      void *arg)
{
	struct link_udp *l = to_udp(link);
	unsigned int packets = 0;

	if (udp_fault_holds(l))
		packets = udp_fault_release(l, fn, arg);
	return packets + udp_rx_poll(l, max_super_packets, fn, arg);
}

static int get_fds(struct link *link, int fds[2])
{
	struct link_udp *l = to_udp(link);
	int family, count = 0;

	for (family = 0; family < FAMILY_COUNT; family++)
		if (l->fds[family] >= 0)
			fds[count++] = l->fds[family];
	return count;
}

static uint32_t window_bytes(const struct link *link)
{
	return to_udp(link)->window_bytes;
}

static uint64_t next_event_ns(const struct link *link)
{
	return udp_fault_next_event_ns(to_udp(link));
}

static void destroy(struct link *link)
{
	struct link_udp *l = to_udp(link);
	int family;

	udp_fault_discard(l);
	fault_free(l->faults);
	pcap_close(l->pcap);
	for (family = 0; family < FAMILY_COUNT; family++)
		if (l->fds[family] >= 0)
			close(l->fds[family]);
	if (l->buffers)
		munmap(l->buffers, (size_t)(TX_SUPER_PACKETS + RX_BUFFERS) * BUFFER_LEN);
	free(l);
}

static const struct link_ops udp_ops = {
	.destroy = destroy,
	.flow_init = flow_init,
	.queue = queue,
	.flush = flush,
	.tx_pending = tx_pending,
	.poll = poll_link,
	.fds = get_fds,
	.window_bytes = window_bytes,
	.next_event_ns = next_event_ns,
	.set_faults = set_faults,
};

static int map_buffers(struct link_udp *l)
{
	size_t len = (size_t)(TX_SUPER_PACKETS + RX_BUFFERS) * BUFFER_LEN;
	void *map = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int i;

	if (map == MAP_FAILED)
		return -ENOMEM;
	l->buffers = map;
	for (i = 0; i < TX_SUPER_PACKETS; i++)
		l->super_packets[i].buf = l->buffers + (size_t)i * BUFFER_LEN;
	for (i = 0; i < RX_BUFFERS; i++)
		l->rx_buffers[i].buf = l->buffers + (size_t)(TX_SUPER_PACKETS + i) * BUFFER_LEN;
	return 0;
}

static int setup(struct link_udp *l)
{
	const char *pcap_path = getenv("SOFTHCA_PCAP");
	int family, ret;

	ret = map_buffers(l);
	if (ret)
		return ret;
	l->window_bytes = UINT32_MAX;
	for (family = 0; family < FAMILY_COUNT; family++) {
		if (l->fds[family] < 0)
			continue;
		ret = setup_socket(l, family, l->fds[family]);
		if (ret)
			return ret;
		l->window_bytes = MIN(l->window_bytes, window_from_rcvbuf(l->fds[family]));
	}
	udp_tx_init(l);
	udp_rx_init(l);
	ret = set_faults(&l->link, getenv("SOFTHCA_FAULT"));
	if (ret || !pcap_path || !*pcap_path)
		return ret;
	return pcap_open(&l->pcap, pcap_path);
}

int link_udp_create(struct link **link, int fd4, int fd6, uint8_t slot)
{
	struct link_udp *l;
	int ret;

	if (fd4 < 0 && fd6 < 0)
		return -EINVAL;
	l = aligned_alloc(64, (sizeof(*l) + 63) & ~(size_t)63);
	if (!l)
		return -ENOMEM;
	memset(l, 0, sizeof(*l));
	l->link.ops = &udp_ops;
	l->fds[FAMILY_IP4] = fd4;
	l->fds[FAMILY_IP6] = fd6;
	l->slot = slot;
	list_init(&l->held_tx);
	list_init(&l->held_rx);
	ret = setup(l);
	if (ret) {
		/* the descriptors stay the caller's when we fail */
		l->fds[FAMILY_IP4] = l->fds[FAMILY_IP6] = -1;
		destroy(&l->link);
		return ret;
	}
	*link = &l->link;
	return 0;
}
