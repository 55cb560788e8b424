/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * link_udp.h: what the files of the UDP link share: link_udp.c (sockets, faults), link_udp_tx.c
 * (super-packets out), link_udp_rx.c (super-packets in). Nobody else includes it.
 */
#ifndef SOFTHCA_WIRE_LINK_UDP_H
#define SOFTHCA_WIRE_LINK_UDP_H

#include <netinet/in.h>

#include "util/list.h"
#include "wire/fault.h"
#include "wire/link.h"
#include "wire/pcap.h"

#define TX_SUPER_PACKETS 16
#define RX_BUFFERS	 8
#define BUFFER_LEN	 65536

/* UDP_SEGMENT's limits (limits.md A2 d): one datagram's payload over IPv4, and segments */
#define SUPER_PACKET_MAX_LEN	  65507
#define SUPER_PACKET_MAX_SEGMENTS 128

/* PKTINFO, TOS, TTL, UDP_SEGMENT / UDP_GRO */
#define CONTROL_LEN 128

/* a run of packets to one process, staged where sendmsg() takes it from */
struct super_packet {
	struct list_node node; /* in link_udp.free, .open or .closed */
	uint8_t *buf;
	uint32_t len;
	uint32_t segment_len; /* of all but the last, which may be shorter */
	uint16_t count;
	uint16_t sent; /* when single: segments that are done */
	bool single;   /* send one by one: UDP_SEGMENT is refused; identification 0 in each ICRC */
	bool refused;  /* became single because of an error other than the MTU */
	uint8_t slot;  /* destination process */
	struct link_flow flow;
	size_t control_len; /* without UDP_SEGMENT */
	uint8_t control[CONTROL_LEN] __attribute__((aligned(8)));
};

struct rx_buffer {
	uint8_t *buf;
	struct iovec iov;
	struct sockaddr_storage from;
	uint8_t control[CONTROL_LEN] __attribute__((aligned(8)));
};

/*
 * What is known of a source: ICRC prefix states, and how its IPv4 identification moves, which a
 * socket does not show
 */
struct rx_source {
	union ibv_gid sgid, dgid;
	uint16_t sport;
	bool valid;
	bool counts;	     /* from datagram to datagram (rxe); ours start at 0 */
	uint8_t step;	     /* from segment to segment: 1; 0 when alike datagrams were coalesced */
	uint16_t next_ip_id; /* when it counts */
	uint16_t right_run;  /* packets in a row whose identification was foreseen */
	uint8_t next;
	struct {
		uint32_t packet_len;
		uint32_t crc;
	} prefix[4];
};

#define RX_SOURCES 64

/* a packet that the fault layer holds back */
struct held_packet {
	struct list_node node;
	uint64_t due_ns;
	bool after_next; /* reorder: goes out right after the next packet */
	bool corrupt;
	uint32_t corrupt_bit;
	struct packet packet;
	struct link_flow flow; /* sent packets only */
	uint8_t payload[];
};

enum family { FAMILY_IP4, FAMILY_IP6, FAMILY_COUNT };

struct link_udp {
	struct link link;
	int fds[FAMILY_COUNT];	       /* -1 = none */
	uint16_t sports[FAMILY_COUNT]; /* bound port */
	uint8_t slot;
	uint32_t window_bytes;
	uint8_t *buffers; /* mapping that all staging and receive buffers are cut from */

	/* send side */
	bool no_gso;
	bool logged_mtu, logged_error, logged_eagain;
	struct list_node free, open, closed; /* of super_packet */
	unsigned int free_count, closed_count;
	struct super_packet super_packets[TX_SUPER_PACKETS];

	/* receive side */
	struct {
		unsigned int burst; /* super-packets to ask for: grows while there are some */
		unsigned int idle;  /* polls without a packet */
		bool used;	    /* a flow of ours has this family */
	} rx[FAMILY_COUNT];
	struct rx_buffer rx_buffers[RX_BUFFERS];
	struct mmsghdr rx_msgs[RX_BUFFERS];
	struct rx_source sources[RX_SOURCES];

	/* faults and capture */
	struct fault_layer *faults;
	struct list_node held_tx, held_rx; /* of held_packet */
	struct pcap_writer *pcap;
};

static inline struct link_udp *to_udp(const struct link *link)
{
	return container_of(link, struct link_udp, link);
}

/* link_udp_tx.c */
void udp_tx_init(struct link_udp *l);
/* make sure that @count super-packets are free */
bool udp_tx_room(struct link_udp *l, unsigned int count);
/* build one packet into a super-packet; @corrupt_bit: bit to flip in it, -1 = none */
int udp_tx_stage(struct link_udp *l, struct link_flow *flow, const struct packet *p,
		 const struct iovec *sg, int sg_count, int64_t corrupt_bit);
int udp_tx_flush(struct link_udp *l);

/* link_udp_rx.c */
void udp_rx_init(struct link_udp *l);
unsigned int udp_rx_poll(struct link_udp *l, unsigned int max_super_packets, link_rx_fn fn,
			 void *arg);

/* link_udp_fault.c */
int udp_fault_queue(struct link_udp *l, struct link_flow *flow, const struct packet *p,
		    const struct iovec *sg, int sg_count);
/* what the rules do to a received packet that passed all checks: deliver it now, later, twice */
void udp_fault_deliver(struct link_udp *l, const struct fault_verdict *verdict,
		       const struct packet *p, link_rx_fn fn, void *arg);
/* send, deliver what is due; @fn may be NULL: then nothing is delivered */
unsigned int udp_fault_release(struct link_udp *l, link_rx_fn fn, void *arg);
uint64_t udp_fault_next_event_ns(const struct link_udp *l);
void udp_fault_discard(struct link_udp *l);

static inline bool udp_fault_holds(const struct link_udp *l)
{
	return !list_empty(&l->held_tx) || !list_empty(&l->held_rx);
}

#endif
