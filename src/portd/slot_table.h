/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * slot_table.h: which slots are taken. A slot whose owner is gone stays unused for the CM timewait,
 * so that a peer's late packets and messages die out before it has a new owner; then the least
 * recently used one is given first.
 */
#ifndef SOFTHCA_PORTD_SLOT_TABLE_H
#define SOFTHCA_PORTD_SLOT_TABLE_H

#include <stdint.h>

#include "portd/proto.h"

struct slot_table {
	uint64_t used; /* bits */
	uint64_t timewait_ns;
	uint64_t free_since_ns[PORTD_SLOTS]; /* 0: never used */
};

/* Return: a slot, now used; -EAGAIN when some are only in timewait; -ENOSPC when all are used */
int slot_take(struct slot_table *table, uint64_t now_ns);
/* Return: 0, or -EBUSY when it is used */
int slot_take_this(struct slot_table *table, uint8_t slot);
void slot_release(struct slot_table *table, uint8_t slot, uint64_t now_ns);
/* slot is not used and in timewait */
bool slot_in_timewait(const struct slot_table *table, uint8_t slot, uint64_t now_ns);

#endif
