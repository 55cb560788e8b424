/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * link_mem.h: a link in memory between two engines of one test. Packets are built and parsed as on
 * the wire, without an ICRC. A test sees every packet, decides its fate, and can put its own in.
 */
#ifndef SOFTHCA_TESTS_LINK_MEM_H
#define SOFTHCA_TESTS_LINK_MEM_H

#include "util/list.h"
#include "wire/link.h"

enum fate {
	FATE_PASS,
	FATE_DROP,
	FATE_DUPLICATE,
	FATE_SWAP, /* behind the next packet */
};

/* what a test remembers of a packet that was sent, whatever became of it */
struct sent_packet {
	uint8_t opcode;
	uint32_t psn, dest_qpn, payload_len, dma_len, msn;
	uint64_t va;
	uint8_t syndrome;
	bool ack_req, solicited;
	enum fate fate;
};

#define LINK_MEM_LOG 8192

struct link_mem {
	struct link link;
	struct link_mem *peer;
	struct list_node rx, tx; /* struct mem_packet */
	uint32_t window;
	unsigned int full_after; /* packets until -EAGAIN until the next flush; 0 = never full */
	unsigned int queued;
	/* decide about a packet that this end sends; NULL = all pass */
	enum fate (*decide)(void *arg, struct link_mem *from, const struct packet *p);
	void *arg;
	struct sent_packet log[LINK_MEM_LOG];
	unsigned int log_count; /* free-running beyond LINK_MEM_LOG, only the first are kept */
};

/* the two ends; each is destroyed by its engine */
void link_mem_create(struct link_mem **a, struct link_mem **b);

/* put a packet into @to's receive queue, as if its peer had sent it from @sgid to @dgid */
void link_mem_inject(struct link_mem *to, const struct packet *p, const void *payload);

/* sent packets of this opcode since log_count was set to 0 */
unsigned int link_mem_count(const struct link_mem *link, uint8_t opcode);
/* the n-th (from 0) sent packet of this opcode, or NULL */
const struct sent_packet *link_mem_find(const struct link_mem *link, uint8_t opcode,
					unsigned int n);

#endif
