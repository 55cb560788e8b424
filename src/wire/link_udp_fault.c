// SPDX-License-Identifier: BSD-2-Clause
/*
 * link_udp_fault.c: carries the fault layer's verdicts out: packets are held back and go on their
 * way later, as if they had been queued or had arrived then. Not a hot path: it allocates.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "util/bytes.h"
#include "util/clock.h"
#include "wire/link_udp.h"

/* a reordered packet goes on alone when nothing follows it for so long */
#define REORDER_WAIT_NS (1 * NSEC_PER_MSEC)

static struct held_packet *hold(struct list_node *list, const struct fault_verdict *verdict,
				const struct packet *p)
{
	struct held_packet *held = malloc(sizeof(*held) + p->payload_len);

	if (!held)
		return NULL;
	held->due_ns = clock_ns() + (verdict->delay_ns ? verdict->delay_ns : REORDER_WAIT_NS);
	held->after_next = !verdict->delay_ns;
	held->corrupt = verdict->corrupt;
	held->corrupt_bit = verdict->corrupt_bit;
	held->packet = *p;
	held->packet.payload = held->payload;
	list_add_tail(list, &held->node);
	return held;
}

static void gather(uint8_t *to, uint32_t len, const struct iovec *sg, int sg_count)
{
	size_t n;
	int i;

	for (i = 0; i < sg_count && len; i++) {
		n = MIN(sg[i].iov_len, len);
		if (n)
			memcpy(to, sg[i].iov_base, n);
		to += n;
		len -= (uint32_t)n;
	}
}

static int64_t corrupt_bit(bool corrupt, uint32_t bit)
{
	return corrupt ? (int64_t)bit : -1;
}

/* true when it was sent and is gone */
static bool send_held(struct link_udp *l, struct held_packet *held)
{
	struct iovec sg = { held->payload, held->packet.payload_len };

	if (udp_tx_stage(l, &held->flow, &held->packet, &sg, 1,
			 corrupt_bit(held->corrupt, held->corrupt_bit)) == -EAGAIN)
		return false;
	list_del(&held->node);
	free(held);
	return true;
}

static void deliver_held(struct held_packet *held, link_rx_fn fn, void *arg)
{
	list_del(&held->node);
	fn(arg, &held->packet);
	free(held);
}

/* the packets that waited for one to pass them: it has, so move them out of @list */
static void take_passed(struct list_node *list, struct list_node *passed)
{
	struct list_node *pos, *tmp;

	list_init(passed);
	list_for_each_safe(pos, tmp, list) {
		if (!list_entry(pos, struct held_packet, node)->after_next)
			continue;
		list_del(pos);
		list_add_tail(passed, pos);
	}
}

int udp_fault_queue(struct link_udp *l, struct link_flow *flow, const struct packet *p,
		    const struct iovec *sg, int sg_count)
{
	struct fault_verdict verdict = { 0 };
	struct list_node passed, *node;
	struct held_packet *held;
	int copies, ret = 0;

	/* the packet, its duplicate, one that it passes: all or nothing */
	if (!udp_tx_room(l, 3))
		return -EAGAIN;
	if (p->payload_len > MTU_MAX)
		return -EINVAL;
	if (l->faults)
		verdict = fault_decide(l->faults, FAULT_TX, p->opcode);
	if (verdict.drop)
		return 0;
	list_init(&passed);
	if (!verdict.delay_ns && !verdict.reorder)
		take_passed(&l->held_tx, &passed);

	for (copies = verdict.duplicate ? 2 : 1; copies && !ret; copies--) {
		held = NULL;
		if (verdict.delay_ns || verdict.reorder)
			held = hold(&l->held_tx, &verdict, p);
		if (!held) {
			ret = udp_tx_stage(l, flow, p, sg, sg_count,
					   corrupt_bit(verdict.corrupt, verdict.corrupt_bit));
			continue;
		}
		held->flow = *flow;
		gather(held->payload, p->payload_len, sg, sg_count);
	}
	while ((node = list_pop(&passed))) {
		held = list_entry(node, struct held_packet, node);
		held->after_next = false;
		held->due_ns = 0;
		if (!send_held(l, held)) /* list_pop() left it a list of its own */
			list_add_tail(&l->held_tx, node);
	}
	return ret;
}

void udp_fault_deliver(struct link_udp *l, const struct fault_verdict *verdict,
		       const struct packet *p, link_rx_fn fn, void *arg)
{
	struct list_node passed, *node;
	struct held_packet *held;
	int copies;

	if (verdict->drop)
		return;
	list_init(&passed);
	if (!verdict->delay_ns && !verdict->reorder)
		take_passed(&l->held_rx, &passed);
	for (copies = verdict->duplicate ? 2 : 1; copies; copies--) {
		held = NULL;
		if (verdict->delay_ns || verdict->reorder)
			held = hold(&l->held_rx, verdict, p);
		if (held)
			memcpy(held->payload, p->payload, p->payload_len);
		else
			fn(arg, p);
	}
	while ((node = list_pop(&passed)))
		deliver_held(list_entry(node, struct held_packet, node), fn, arg);
}

unsigned int udp_fault_release(struct link_udp *l, link_rx_fn fn, void *arg)
{
	struct list_node due, *pos, *tmp, *node;
	uint64_t now = clock_ns();
	unsigned int count = 0;

	list_for_each_safe(pos, tmp, &l->held_tx) {
		if (list_entry(pos, struct held_packet, node)->due_ns > now)
			continue;
		if (!send_held(l, list_entry(pos, struct held_packet, node)))
			break;
	}
	if (!fn)
		return 0;
	list_init(&due);
	list_for_each_safe(pos, tmp, &l->held_rx) {
		if (list_entry(pos, struct held_packet, node)->due_ns > now)
			continue;
		list_del(pos);
		list_add_tail(&due, pos);
	}
	for (; (node = list_pop(&due)); count++)
		deliver_held(list_entry(node, struct held_packet, node), fn, arg);
	return count;
}

uint64_t udp_fault_next_event_ns(const struct link_udp *l)
{
	const struct list_node *lists[] = { &l->held_tx, &l->held_rx }, *pos;
	uint64_t next = UINT64_MAX;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(lists); i++)
		list_for_each(pos, lists[i])
			next = MIN(next, list_entry(pos, struct held_packet, node)->due_ns);
	return next;
}

void udp_fault_discard(struct link_udp *l)
{
	struct list_node *node;

	while ((node = list_pop(&l->held_tx)))
		free(list_entry(node, struct held_packet, node));
	while ((node = list_pop(&l->held_rx)))
		free(list_entry(node, struct held_packet, node));
}
