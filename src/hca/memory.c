/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * memory.c: memory keys. One table a process, in two levels that only grow: a lookup takes no lock
 * of its own. An entry repeats the key and the PD of its region, so that a key of another PD (and
 * thus perhaps of another engine) is refused without touching a region that may be going away.
 * IBTA 1.4, 10.6.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/random.h>

#include "hca/memory.h"
#include "util/bytes.h"
#include "util/log.h"

#define KEY_INDEX_BITS 24
#define CHUNK_BITS     12
#define CHUNK_ENTRIES  (1U << CHUNK_BITS)
#define CHUNK_COUNT    (1U << (KEY_INDEX_BITS - CHUNK_BITS))
#define REUSE_AFTER_FREED                                                                          \
	1024U /* freed indices wait this long, so that stale keys stay unknown                     \
	       */

struct key_entry {
	_Atomic(struct hca_mr *) mr; /* NULL = free */
	_Atomic(struct hca_pd *) pd;
	_Atomic uint32_t key;
	uint32_t next_free; /* under table.lock */
	uint8_t generation;
};

static struct {
	pthread_mutex_t lock; /* registration and deregistration */
	_Atomic(struct key_entry *) chunks[CHUNK_COUNT];
	uint32_t next_unused; /* index 0 is never given out: key 0 is nobody's */
	uint32_t first_free, last_free, free_count;
	uint8_t first_generation;
} table = { .lock = PTHREAD_MUTEX_INITIALIZER };

static struct key_entry *entry_at(uint32_t index)
{
	struct key_entry *chunk =
		atomic_load_explicit(&table.chunks[index >> CHUNK_BITS], memory_order_acquire);

	return chunk ? &chunk[index & (CHUNK_ENTRIES - 1)] : NULL;
}

static uint32_t pop_free_index(void)
{
	uint32_t index = table.first_free;

	table.first_free = entry_at(index)->next_free;
	table.free_count--;
	return index;
}

static void push_free_index(uint32_t index)
{
	entry_at(index)->next_free = 0;
	if (table.free_count++)
		entry_at(table.last_free)->next_free = index;
	else
		table.first_free = index;
	table.last_free = index;
}

/* the table's lock held. Return: an index whose chunk exists, 0 = none left or no memory */
static uint32_t take_index(void)
{
	struct key_entry *chunk;
	uint32_t index;

	if (!table.next_unused) {
		table.next_unused = 1;
		if (getrandom(&table.first_generation, 1, GRND_NONBLOCK) != 1)
			table.first_generation = 1;
	}
	if (table.free_count > REUSE_AFTER_FREED)
		return pop_free_index();
	index = table.next_unused;
	if (index >> KEY_INDEX_BITS)
		return table.free_count ? pop_free_index() : 0;
	if (!entry_at(index)) {
		chunk = calloc(CHUNK_ENTRIES, sizeof(*chunk));
		if (!chunk)
			return table.free_count ? pop_free_index() : 0;
		atomic_store_explicit(&table.chunks[index >> CHUNK_BITS], chunk,
				      memory_order_release);
	}
	entry_at(index)->generation = table.first_generation;
	table.next_unused++;
	return index;
}

int memory_register(struct hca_mr *mr)
{
	struct key_entry *entry;
	uint32_t index;

	pthread_mutex_lock(&table.lock);
	index = take_index();
	if (!index) {
		pthread_mutex_unlock(&table.lock);
		log_debug("memory_register: no key left");
		return ENOMEM;
	}
	entry = entry_at(index);
	mr->key = index << 8 | ++entry->generation;
	mr->rkey_invalid = false;
	atomic_store_explicit(&entry->key, mr->key, memory_order_relaxed);
	atomic_store_explicit(&entry->pd, mr->pd, memory_order_relaxed);
	atomic_store_explicit(&entry->mr, mr, memory_order_release);
	pthread_mutex_unlock(&table.lock);
	return 0;
}

void memory_deregister(struct hca_mr *mr)
{
	struct engine *engine = mr->pd->ctx->engine;
	struct key_entry *entry = entry_at(mr->key >> 8);

	if (!entry || atomic_load_explicit(&entry->mr, memory_order_relaxed) != mr)
		return;
	/*
	 * Only QPs of the MR's PD get past the PD check of a lookup, and all of them belong to the
	 * PD's engine: with its lock taken once, nobody is in the middle of using the MR.
	 */
	if (engine)
		engine_lock(engine);
	atomic_store_explicit(&entry->mr, NULL, memory_order_release);
	atomic_store_explicit(&entry->pd, NULL, memory_order_relaxed);
	if (engine)
		engine_unlock(engine);

	pthread_mutex_lock(&table.lock);
	push_free_index(mr->key >> 8);
	pthread_mutex_unlock(&table.lock);
}

static enum memory_status lookup(uint32_t key, const struct hca_pd *pd, struct hca_mr **mr)
{
	struct key_entry *entry = entry_at(key >> 8);

	if (!entry)
		return MEMORY_BAD_KEY;
	*mr = atomic_load_explicit(&entry->mr, memory_order_acquire);
	if (!*mr || atomic_load_explicit(&entry->key, memory_order_relaxed) != key)
		return MEMORY_BAD_KEY;
	if (atomic_load_explicit(&entry->pd, memory_order_relaxed) != pd)
		return MEMORY_BAD_PD;
	return MEMORY_OK;
}

enum memory_status memory_translate(uint32_t key, const struct hca_pd *pd, uint64_t va,
				    uint64_t len, int access, bool remote, void **host,
				    struct hca_mr **mr_out)
{
	struct hca_mr *mr;
	enum memory_status status = lookup(key, pd, &mr);

	if (status != MEMORY_OK)
		return status;
	if (remote && mr->rkey_invalid)
		return MEMORY_BAD_KEY;
	if ((mr->access & access) != access)
		return MEMORY_NO_ACCESS;
	if (len && !range_inside(va, len, mr->iova, mr->length))
		return MEMORY_OUT_OF_BOUNDS;
	*host = mr->addr + (va - mr->iova);
	if (mr_out)
		*mr_out = mr;
	return MEMORY_OK;
}

enum memory_status memory_translate_sge(const struct hca_pd *pd, const struct ibv_sge *sge,
					int count, int access, struct iovec *iov, int *iov_count)
{
	enum memory_status status;
	int n = 0;

	for (int i = 0; i < count; i++) {
		if (!sge[i].length)
			continue;
		status = memory_translate(sge[i].lkey, pd, sge[i].addr, sge[i].length, access,
					  false, &iov[n].iov_base, NULL);
		if (status != MEMORY_OK)
			return status;
		iov[n++].iov_len = sge[i].length;
	}
	*iov_count = n;
	return MEMORY_OK;
}

enum memory_status memory_invalidate(uint32_t rkey, const struct hca_pd *pd)
{
	const int remote_rights = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
				  IBV_ACCESS_REMOTE_ATOMIC;
	struct hca_mr *mr;
	enum memory_status status = lookup(rkey, pd, &mr);

	if (status != MEMORY_OK)
		return status;
	if (mr->rkey_invalid)
		return MEMORY_BAD_KEY;
	if (!(mr->access & remote_rights))
		return MEMORY_NO_ACCESS;
	mr->rkey_invalid = true;
	return MEMORY_OK;
}
