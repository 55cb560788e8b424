// SPDX-License-Identifier: BSD-2-Clause
/*
 * slot_table.c: slots by use and age.
 */
#include "portd/slot_table.h"

#include <errno.h>

bool slot_in_timewait(const struct slot_table *table, uint8_t slot, uint64_t now_ns)
{
	uint64_t since = table->free_since_ns[slot];

	return !(table->used >> slot & 1) && since && now_ns - since < table->timewait_ns;
}

int slot_take(struct slot_table *table, uint64_t now_ns)
{
	int best = -ENOSPC;

	for (int slot = 1; slot < PORTD_SLOTS; slot++) {
		if (table->used >> slot & 1)
			continue;
		if (slot_in_timewait(table, (uint8_t)slot, now_ns)) {
			if (best < 0)
				best = -EAGAIN;
			continue;
		}
		if (best < 0 || table->free_since_ns[slot] < table->free_since_ns[best])
			best = slot;
	}
	if (best > 0)
		table->used |= 1ULL << best;
	return best;
}

int slot_take_this(struct slot_table *table, uint8_t slot)
{
	if (table->used >> slot & 1)
		return -EBUSY;
	table->used |= 1ULL << slot;
	return 0;
}

void slot_release(struct slot_table *table, uint8_t slot, uint64_t now_ns)
{
	table->used &= ~(1ULL << slot);
	table->free_since_ns[slot] = now_ns ? now_ns : 1;
}
