/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * mad_route.h: which process a management datagram is for, or what the daemon answers when there
 * is none. A pure function of the MAD, the listens and the living slots.
 */
#ifndef SOFTHCA_PORTD_MAD_ROUTE_H
#define SOFTHCA_PORTD_MAD_ROUTE_H

#include "portd/listen_table.h"
#include "portd/portd.h"

enum mad_action { MAD_DROP, MAD_DELIVER, MAD_REPLY };

/**
 * mad_route() - decide about a CM message.
 * @listens: who listens.
 * @alive: bit set for each slot that has a living owner.
 * @data: the MAD, MAD_LEN bytes; @dgid: where it was sent to.
 * @slot: out, with MAD_DELIVER.
 * @reply: out, with MAD_REPLY: the answer to send back to QP1 of the sender.
 */
enum mad_action mad_route(const struct listen_table *listens, uint64_t alive, const uint8_t *data,
			  const union ibv_gid *dgid, uint8_t *slot, uint8_t *reply);

#endif
