/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * link.h: a link carries packets between queue pairs. The protocol engine says what a packet
 * means (struct packet and where its payload is); how it travels is the link's own matter. Today
 * there is the UDP link (link_udp.c): super-packets (UDP_SEGMENT, UDP_GRO) over the sockets of
 * one slot. A shared-memory link will come beside it.
 *
 * Not thread-safe: every call is made under the engine's lock.
 */
#ifndef SOFTHCA_WIRE_LINK_H
#define SOFTHCA_WIRE_LINK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "wire/packet.h"

struct link;
struct link_flow;

/*
 * Called for each packet: parsed, ICRC right, for this slot. @p and its payload are valid during
 * the call only. The callee may call link_queue() but not link_poll().
 */
typedef void (*link_rx_fn)(void *arg, const struct packet *p);

/* what a kind of link implements; the contracts stand at the link_*() wrappers below */
struct link_ops {
	void (*destroy)(struct link *link);
	int (*flow_init)(struct link *link, struct link_flow *flow);
	int (*queue)(struct link *link, struct link_flow *flow, const struct packet *p,
		     const struct iovec *sg, int sg_count);
	int (*flush)(struct link *link);
	bool (*tx_pending)(const struct link *link);
	unsigned int (*poll)(struct link *link, unsigned int max_super_packets, link_rx_fn fn,
			     void *arg);
	int (*fds)(struct link *link, int fds[2]);
	uint32_t (*window_bytes)(const struct link *link);
	uint64_t (*next_event_ns)(const struct link *link);
	int (*set_faults)(struct link *link, const char *rules);
};

/* first member of every kind of link */
struct link {
	const struct link_ops *ops;
};

/*
 * A flow: everything about one destination that does not change from packet to packet. A QP has
 * one, an address handle has one. Filled in by link_flow_init(); the rest is the link's own.
 */
struct link_flow {
	union ibv_gid sgid, dgid;
	uint32_t ifindex; /* needed for link-local IPv6, else 0 */
	uint8_t tos, ttl;
	/* link's own */
	bool is_ipv4;
	socklen_t addr_len;
	struct sockaddr_storage addr;
	uint8_t prefix_next; /* entry to overwrite next */
	struct {
		uint32_t packet_len; /* 0 = empty */
		uint32_t crc;
	} prefix[4]; /* ICRC prefix states of the last lengths used */
};

/**
 * link_udp_create() - make a link over the sockets of a slot.
 * @fd4, @fd6: bound, unconnected UDP sockets; -1 where the family is missing. The link sets the
 *	       options it needs (IP_MTU_DISCOVER=DO, UDP_GRO, SO_RCVBUF, PKTINFO, ...), owns and
 *	       closes them.
 * @slot: this process's slot (top byte of its QPNs): packets for another slot are dropped and
 *	  counted (CNT_DROP_SLOT).
 * Reads SOFTHCA_FAULT and SOFTHCA_PCAP (wire/fault.h, wire/pcap.h).
 * Return: 0, or a negative errno (the descriptors then stay the caller's).
 */
int link_udp_create(struct link **link, int fd4, int fd6, uint8_t slot);

static inline void link_destroy(struct link *link)
{
	link->ops->destroy(link);
}

/**
 * link_flow_init() - prepare a flow between two GIDs.
 * Return: 0, -EINVAL (families differ), -EAFNOSUPPORT (no socket of that family).
 */
int link_flow_init(struct link *link, struct link_flow *flow, const union ibv_gid *sgid,
		   const union ibv_gid *dgid, uint32_t ifindex, uint8_t tos, uint8_t ttl);

/**
 * link_queue() - queue one packet; link_flush() sends it at the latest.
 * Payload is copied (fused with the ICRC) before the call returns; packets of one flow leave in
 * the order of the calls. Runs of equal length to the same process, and a shorter one at their
 * end, travel as one super-packet.
 * @p: headers; p->payload_len bytes are gathered from @sg (p->payload is ignored).
 * Return: 0; -EAGAIN: the link is full, try again after link_poll() (nothing was queued);
 * -EINVAL: the caller's mistake: a payload above MTU_MAX or longer than @sg.
 */
static inline int link_queue(struct link *link, struct link_flow *flow, const struct packet *p,
			     const struct iovec *sg, int sg_count)
{
	return link->ops->queue(link, flow, p, sg, sg_count);
}

/* send everything that is queued. Return: 0, or -EAGAIN when some of it must wait */
static inline int link_flush(struct link *link)
{
	return link->ops->flush(link);
}

/* something is queued and not yet sent */
static inline bool link_tx_pending(const struct link *link)
{
	return link->ops->tx_pending(link);
}

/**
 * link_poll() - take what has arrived, at most @max_super_packets system-level receives' worth.
 * Return: number of packets that arrived, dropped ones included; 0 = nothing there (or, seldom and
 * for a few calls at most, only something of an address family that has long been silent).
 */
static inline unsigned int link_poll(struct link *link, unsigned int max_super_packets,
				     link_rx_fn fn, void *arg)
{
	return link->ops->poll(link, max_super_packets, fn, arg);
}

/* descriptors to sleep on (POLLIN); returns how many were written, at most 2 */
static inline int link_fds(struct link *link, int fds[2])
{
	return link->ops->fds(link, fds);
}

/* how many bytes in flight a peer like us can take without loss: from its socket buffer's size */
static inline uint32_t link_window_bytes(const struct link *link)
{
	return link->ops->window_bytes(link);
}

/* the next time (clock_ns) at which link_poll() and link_flush() must be called though nothing
 * arrives (delayed packets of the fault layer); UINT64_MAX = none */
static inline uint64_t link_next_event_ns(const struct link *link)
{
	return link->ops->next_event_ns(link);
}

/* replace the fault rules at run time (softhca_fault_set). Return: 0 or -EINVAL */
static inline int link_set_faults(struct link *link, const char *rules)
{
	return link->ops->set_faults(link, rules);
}

#endif
