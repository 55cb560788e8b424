// SPDX-License-Identifier: BSD-2-Clause
/*
 * peer.c: the window of bytes in flight to one destination process.
 */
#include <stdlib.h>
#include <string.h>

#include "hca/peer.h"
#include "util/bytes.h"
#include "util/clock.h"

#define WINDOW_MIN	(128U << 10)	    /* two super-packets: below, throughput only suffers */
#define WINDOW_STEP	(64U << 10)	    /* growth per acknowledged window: one super-packet */
#define CUT_INTERVAL_NS (1 * NSEC_PER_MSEC) /* losses closer together are one event */

static struct peer *peer_find(struct engine *engine, const union ibv_gid *gid, uint8_t slot)
{
	struct list_node *node;

	list_for_each(node, &engine->peers) {
		struct peer *peer = list_entry(node, struct peer, node);

		if (peer->slot == slot && !memcmp(&peer->gid, gid, sizeof(*gid)))
			return peer;
	}
	return NULL;
}

struct peer *peer_get(struct engine *engine, const union ibv_gid *gid, uint32_t qpn)
{
	uint8_t slot = (uint8_t)(qpn >> 16);
	struct peer *peer = peer_find(engine, gid, slot);

	if (peer) {
		peer->references++;
		return peer;
	}
	peer = calloc(1, sizeof(*peer));
	if (!peer)
		return NULL;
	peer->references = 1;
	peer->gid = *gid;
	peer->slot = slot;
	peer->window_max = MAX(link_window_bytes(engine->link), 1U);
	peer->window = peer->window_max;
	list_init(&peer->waiters);
	list_add_tail(&engine->peers, &peer->node);
	return peer;
}

void peer_put(struct peer *peer)
{
	if (!peer || --peer->references)
		return;
	list_del(&peer->node);
	free(peer);
}

void peer_release(struct engine *engine, struct peer *peer, uint64_t bytes)
{
	peer->in_flight -= MIN(bytes, peer->in_flight);
	list_splice_tail(&engine->tx_list, &peer->waiters);
}

void peer_acknowledged(struct peer *peer, uint64_t bytes)
{
	if (peer->window >= peer->window_max)
		return;
	peer->window += bytes * WINDOW_STEP / peer->window + 1;
	peer->window = MIN(peer->window, peer->window_max);
}

void peer_lost(struct peer *peer, uint64_t now_ns)
{
	uint64_t floor = MIN((uint64_t)WINDOW_MIN, peer->window_max);

	if (peer->cut_ns && now_ns - peer->cut_ns < CUT_INTERVAL_NS)
		return;
	peer->cut_ns = now_ns;
	peer->window = MAX(peer->window / 2, floor);
}
