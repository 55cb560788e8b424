/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * listen_table.h: which slot receives the REQs and SIDR_REQs for a service ID. An address is a
 * GID, all zero (any address) or ::ffff:0.0.0.0 (any IPv4 address).
 */
#ifndef SOFTHCA_PORTD_LISTEN_TABLE_H
#define SOFTHCA_PORTD_LISTEN_TABLE_H

#include <stdint.h>

#include "portd/proto.h"

struct listen_entry {
	uint64_t service_id;
	union ibv_gid gid;
	uint8_t slot;
};

struct listen_table {
	uint32_t count;
	uint32_t of_slot[PORTD_SLOTS];
	struct listen_entry entries[PORTD_LISTENS];
};

/**
 * listen_add() - register a listen.
 * Return: 0; -EADDRINUSE when an address of another listen on the service ID overlaps; -ENOSPC
 * when the slot or the table is full.
 */
int listen_add(struct listen_table *table, uint64_t service_id, const union ibv_gid *gid,
	       uint8_t slot);
/* Return: 0 or -ENOENT (also when it is another slot's) */
int listen_remove(struct listen_table *table, uint64_t service_id, const union ibv_gid *gid,
		  uint8_t slot);
void listen_remove_slot(struct listen_table *table, uint8_t slot);
/* slot that listens on the service ID at this address; 0: none */
uint8_t listen_find(const struct listen_table *table, uint64_t service_id,
		    const union ibv_gid *dgid);

#endif
