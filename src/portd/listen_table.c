// SPDX-License-Identifier: BSD-2-Clause
/*
 * listen_table.c: service ID and address -> slot. A linear table: a REQ is rare, and the table is
 * part of the daemon's static memory (it must not allocate, see spawn.c).
 */
#include "portd/listen_table.h"

#include <errno.h>
#include <string.h>

#include "util/bytes.h"
#include "wire/icrc.h"

static bool gid_is_any(const union ibv_gid *gid)
{
	return !get_be64(gid->raw) && !get_be64(gid->raw + 8);
}

/* @pattern, an address to listen on, covers @gid */
static bool gid_covers(const union ibv_gid *pattern, const union ibv_gid *gid)
{
	if (gid_is_any(pattern))
		return true;
	if (gid_is_ipv4(pattern) && !get_be32(pattern->raw + 12) && gid_is_ipv4(gid))
		return true;
	return !memcmp(pattern, gid, sizeof(*gid));
}

int listen_add(struct listen_table *table, uint64_t service_id, const union ibv_gid *gid,
	       uint8_t slot)
{
	struct listen_entry *entry;

	for (uint32_t i = 0; i < table->count; i++) {
		entry = &table->entries[i];
		if (entry->service_id != service_id)
			continue;
		if (gid_covers(&entry->gid, gid) || gid_covers(gid, &entry->gid))
			return -EADDRINUSE;
	}
	if (table->count == PORTD_LISTENS || table->of_slot[slot] == PORTD_CLIENT_LISTENS)
		return -ENOSPC;
	entry = &table->entries[table->count++];
	entry->service_id = service_id;
	entry->gid = *gid;
	entry->slot = slot;
	table->of_slot[slot]++;
	return 0;
}

static void remove_at(struct listen_table *table, uint32_t i)
{
	table->of_slot[table->entries[i].slot]--;
	table->entries[i] = table->entries[--table->count];
}

int listen_remove(struct listen_table *table, uint64_t service_id, const union ibv_gid *gid,
		  uint8_t slot)
{
	for (uint32_t i = 0; i < table->count; i++) {
		struct listen_entry *entry = &table->entries[i];

		if (entry->service_id != service_id || entry->slot != slot ||
		    memcmp(&entry->gid, gid, sizeof(*gid)))
			continue;
		remove_at(table, i);
		return 0;
	}
	return -ENOENT;
}

void listen_remove_slot(struct listen_table *table, uint8_t slot)
{
	for (uint32_t i = table->count; i-- > 0;)
		if (table->entries[i].slot == slot)
			remove_at(table, i);
}

uint8_t listen_find(const struct listen_table *table, uint64_t service_id,
		    const union ibv_gid *dgid)
{
	for (uint32_t i = 0; i < table->count; i++) {
		const struct listen_entry *entry = &table->entries[i];

		if (entry->service_id == service_id && gid_covers(&entry->gid, dgid))
			return entry->slot;
	}
	return 0;
}
