// SPDX-License-Identifier: BSD-2-Clause
/*
 * link_mem.c: a link in memory for tests.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "link_mem.h"
#include "util/bytes.h"

struct mem_packet {
	struct list_node node;
	union ibv_gid sgid, dgid;
	uint32_t len;
	bool swap;
	uint8_t data[PACKET_MAX_LEN];
};

static struct link_mem *to_mem(const struct link *link)
{
	return (struct link_mem *)(void *)(uintptr_t)link;
}

static void drop_all(struct list_node *head)
{
	struct list_node *node;

	while ((node = list_pop(head)))
		free(list_entry(node, struct mem_packet, node));
}

static void mem_destroy(struct link *link)
{
	struct link_mem *mem = to_mem(link);

	if (mem->peer && mem->peer->peer == mem)
		mem->peer->peer = NULL;
	drop_all(&mem->rx);
	drop_all(&mem->tx);
	free(mem);
}

static int mem_flow_init(struct link *link, struct link_flow *flow)
{
	return 0;
}

static void remember(struct link_mem *mem, const struct packet *p, enum fate fate)
{
	if (mem->log_count < LINK_MEM_LOG)
		mem->log[mem->log_count] = (struct sent_packet){
			.opcode = p->opcode,
			.psn = p->psn,
			.dest_qpn = p->dest_qpn,
			.payload_len = p->payload_len,
			.dma_len = p->dma_len,
			.msn = p->msn,
			.va = p->va,
			.syndrome = p->syndrome,
			.ack_req = p->ack_req,
			.solicited = p->solicited,
			.fate = fate,
		};
	mem->log_count++;
}

static struct mem_packet *build(const struct packet *p, const struct iovec *sg, int sg_count)
{
	struct mem_packet *m = calloc(1, sizeof(*m));

	m->len = packet_put_headers(m->data, p);
	for (int i = 0; i < sg_count; i++) {
		memcpy(m->data + m->len, sg[i].iov_base, sg[i].iov_len);
		m->len += (uint32_t)sg[i].iov_len;
	}
	m->len += p->pad + ICRC_LEN;
	return m;
}

static int mem_queue(struct link *link, struct link_flow *flow, const struct packet *p,
		     const struct iovec *sg, int sg_count)
{
	struct link_mem *mem = to_mem(link);
	enum fate fate = FATE_PASS;
	struct mem_packet *m;

	if (mem->full_after && mem->queued >= mem->full_after)
		return -EAGAIN;
	mem->queued++;
	if (mem->decide)
		fate = mem->decide(mem->arg, mem, p);
	remember(mem, p, fate);
	if (fate == FATE_DROP)
		return 0;
	for (int copies = fate == FATE_DUPLICATE ? 2 : 1; copies; copies--) {
		m = build(p, sg, sg_count);
		m->sgid = flow->sgid;
		m->dgid = flow->dgid;
		m->swap = fate == FATE_SWAP;
		list_add_tail(&mem->tx, &m->node);
	}
	return 0;
}

static int mem_flush(struct link *link)
{
	struct link_mem *mem = to_mem(link);
	struct list_node *node, *tmp;

	mem->queued = 0;
	list_for_each_safe(node, tmp, &mem->tx) {
		struct mem_packet *m = list_entry(node, struct mem_packet, node);

		if (!m->swap || node->next == &mem->tx)
			continue;
		m->swap = false;
		tmp = node->next->next;
		list_del(node);
		list_insert_between(node, tmp->prev, tmp);
	}
	if (mem->peer)
		list_splice_tail(&mem->peer->rx, &mem->tx);
	else
		drop_all(&mem->tx);
	return 0;
}

static bool mem_tx_pending(const struct link *link)
{
	return !list_empty(&to_mem(link)->tx) || to_mem(link)->queued;
}

static unsigned int mem_poll(struct link *link, unsigned int max_super_packets, link_rx_fn fn,
			     void *arg)
{
	struct link_mem *mem = to_mem(link);
	unsigned int count = 0;
	struct list_node *node;

	while (count < max_super_packets * 16 && (node = list_pop(&mem->rx))) {
		struct mem_packet *m = list_entry(node, struct mem_packet, node);
		struct packet p;

		if (packet_parse(&p, m->data, m->len) == DROP_NONE) {
			p.sgid = m->sgid;
			p.dgid = m->dgid;
			p.ifindex = 0;
			p.tos = p.ttl = 0;
			fn(arg, &p);
		}
		free(m);
		count++;
	}
	return count;
}

static int mem_fds(struct link *link, int fds[2])
{
	return 0;
}

static uint32_t mem_window_bytes(const struct link *link)
{
	return to_mem(link)->window;
}

static uint64_t mem_next_event_ns(const struct link *link)
{
	return UINT64_MAX;
}

static int mem_set_faults(struct link *link, const char *rules)
{
	return -EINVAL;
}

static const struct link_ops mem_ops = {
	.destroy = mem_destroy,
	.flow_init = mem_flow_init,
	.queue = mem_queue,
	.flush = mem_flush,
	.tx_pending = mem_tx_pending,
	.poll = mem_poll,
	.fds = mem_fds,
	.window_bytes = mem_window_bytes,
	.next_event_ns = mem_next_event_ns,
	.set_faults = mem_set_faults,
};

static struct link_mem *make_end(void)
{
	struct link_mem *mem = calloc(1, sizeof(*mem));

	mem->link.ops = &mem_ops;
	mem->window = 1U << 20;
	list_init(&mem->rx);
	list_init(&mem->tx);
	return mem;
}

void link_mem_create(struct link_mem **a, struct link_mem **b)
{
	*a = make_end();
	*b = make_end();
	(*a)->peer = *b;
	(*b)->peer = *a;
}

void link_mem_inject(struct link_mem *to, const struct packet *p, const void *payload)
{
	struct iovec iov = { (void *)(uintptr_t)payload, p->payload_len };
	struct mem_packet *m = build(p, &iov, p->payload_len ? 1 : 0);

	m->sgid = p->sgid;
	m->dgid = p->dgid;
	list_add_tail(&to->rx, &m->node);
}

unsigned int link_mem_count(const struct link_mem *link, uint8_t opcode)
{
	unsigned int count = 0;

	for (unsigned int i = 0; i < MIN(link->log_count, (unsigned int)LINK_MEM_LOG); i++)
		count += link->log[i].opcode == opcode;
	return count;
}

const struct sent_packet *link_mem_find(const struct link_mem *link, uint8_t opcode, unsigned int n)
{
	for (unsigned int i = 0; i < MIN(link->log_count, (unsigned int)LINK_MEM_LOG); i++) {
		if (link->log[i].opcode == opcode && n-- == 0)
			return &link->log[i];
	}
	return NULL;
}
