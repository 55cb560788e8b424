/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * peer.h: what is in flight to one destination process. All QPs that send to the same process
 * share its receive buffer, so they share one window: it starts at what a process like ours can
 * take without loss, halves when packets are lost and grows again with what is acknowledged.
 * Everything under the engine's lock.
 */
#ifndef SOFTHCA_HCA_PEER_H
#define SOFTHCA_HCA_PEER_H

#include "hca/engine.h"

struct peer {
	struct list_node node; /* engine.peers */
	unsigned int references;
	union ibv_gid gid;
	uint8_t slot;				/* top byte of its QPNs */
	uint64_t in_flight, window, window_max; /* bytes */
	uint64_t cut_ns;			/* when the window was last halved */
	struct list_node waiters;		/* hca_qp.tx_node: QPs that wait for room */
};

/* Allocates; not on the hot path. Return: the peer, NULL: no memory */
struct peer *peer_get(struct engine *engine, const union ibv_gid *gid, uint32_t qpn);
void peer_put(struct peer *peer);

/* one packet always fits when nothing is in flight */
static inline bool peer_has_room(const struct peer *peer, uint64_t bytes)
{
	return peer->in_flight == 0 || peer->in_flight + bytes <= peer->window;
}

static inline void peer_sent(struct peer *peer, uint64_t bytes)
{
	peer->in_flight += bytes;
}

/* not in flight any more, for whatever reason; waiting QPs go back to the engine's tx_list */
void peer_release(struct engine *engine, struct peer *peer, uint64_t bytes);
/* protocol events that move the window */
void peer_acknowledged(struct peer *peer, uint64_t bytes);
void peer_lost(struct peer *peer, uint64_t now_ns);

#endif
