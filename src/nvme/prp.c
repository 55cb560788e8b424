// SPDX-License-Identifier: BSD-2-Clause
/*
 * prp.c: PRP tables of the host side and the controller's walk through PRPs.
 *
 * A list of a run of contiguous pages is nothing but the addresses of those pages in order, so
 * lists of different runs overlap. One table of all page addresses serves them all; it is cut into
 * list pages that overlap by the longest run, so that no list crosses the end of its page.
 */
#include "nvme/prp.h"

#include <errno.h>
#include <sys/mman.h>

#include "nvme/spec.h"
#include "util/bytes.h"

/* ---- host side ------------------------------------------------------------ */

int prp_table_init(struct prp_table *table, void *base, uint32_t page_size, uint32_t page_count,
		   uint32_t max_pages)
{
	uint32_t entries = page_size / sizeof(uint64_t);
	uint32_t list_pages;

	*table = (struct prp_table){
		.base = (uintptr_t)base,
		.page_size = page_size,
		.page_count = page_count,
		.max_pages = max_pages,
	};
	if (max_pages <= 2)
		return 0;
	if (max_pages - 1 > entries)
		return -EINVAL;
	/* a list starts with the run's second page and has up to max_pages - 1 entries */
	table->starts = entries - (max_pages - 1) + 1;
	list_pages = (uint32_t)div_round_up(page_count, table->starts);
	table->lists_len = (size_t)list_pages * page_size;
	/* NVMe pages may be larger than ours: align by hand */
	table->lists = mmap(NULL, table->lists_len + page_size, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (table->lists == MAP_FAILED) {
		table->lists = NULL;
		return -ENOMEM;
	}
	{
		uintptr_t start = (uintptr_t)table->lists;
		uintptr_t aligned = (start + page_size - 1) & ~(uintptr_t)(page_size - 1);

		if (aligned > start)
			munmap((void *)start, aligned - start);
		if (start + page_size > aligned)
			munmap((void *)(aligned + table->lists_len), start + page_size - aligned);
		table->lists = (uint64_t *)aligned;
	}
	for (uint32_t l = 0; l < list_pages; l++)
		for (uint32_t i = 0; i < entries; i++) {
			uint64_t page = (uint64_t)l * table->starts + i + 1;

			table->lists[(size_t)l * entries + i] =
				page < page_count ? htole64(table->base + page * page_size) : 0;
		}
	return 0;
}

void prp_table_free(struct prp_table *table)
{
	if (!table->lists)
		return;
	munmap(table->lists, table->lists_len);
	table->lists = NULL;
}

void prp_table_get(const struct prp_table *table, uint32_t first, uint32_t pages, uint64_t *prp1,
		   uint64_t *prp2)
{
	uint32_t entries = table->page_size / sizeof(uint64_t);

	*prp1 = table->base + (uint64_t)first * table->page_size;
	*prp2 = 0;
	if (pages == 2)
		*prp2 = *prp1 + table->page_size;
	else if (pages > 2)
		*prp2 = (uintptr_t)&table->lists[(size_t)(first / table->starts) * entries +
						 first % table->starts];
}

/* ---- controller side ------------------------------------------------------ */

static bool in_ranges(const struct prp_range *ranges, unsigned int count, uint64_t addr,
		      uint64_t len)
{
	for (unsigned int i = 0; i < count; i++)
		if (range_inside(addr, len, ranges[i].addr, ranges[i].len))
			return true;
	return false;
}

void prp_walk_start(struct prp_walk *walk, const struct prp_memory *memory, uint32_t page_size,
		    uint64_t prp1, uint64_t prp2, uint64_t len)
{
	walk->memory = memory;
	walk->page_size = page_size;
	walk->remaining = len;
	walk->prp1 = prp1;
	walk->prp2 = prp2;
	walk->list = 0;
	walk->step = 0;
	walk->cached = walk->cache_next = 0;
	walk->held_addr = walk->held_len = 0;
}

/* read entries from walk->list up to the end of its page into the cache */
static uint16_t read_entries(struct prp_walk *walk)
{
	uint32_t page_offset = (uint32_t)(walk->list & (walk->page_size - 1));
	uint32_t count = (walk->page_size - page_offset) / sizeof(uint64_t);
	uint32_t len;

	count = (uint32_t)MIN(count, div_round_up(walk->remaining, walk->page_size));
	count = MIN(count, PRP_WALK_ENTRIES);
	len = count * sizeof(uint64_t);
	if (!in_ranges(walk->memory->ranges, walk->memory->count, walk->list, len))
		return NVME_SC_DATA_TRANSFER;
	memcpy(walk->cache, (void *)(uintptr_t)walk->list, len);
	walk->cached = count;
	walk->cache_next = 0;
	return NVME_SC_SUCCESS;
}

/* the next data entry of the list; follows the pointer to the next list page */
static uint16_t next_list_entry(struct prp_walk *walk, uint64_t *entry)
{
	uint16_t status;

	for (;;) {
		bool last_in_page;

		if (walk->cache_next == walk->cached) {
			status = read_entries(walk);
			if (status)
				return status;
		}
		*entry = le64toh(walk->cache[walk->cache_next++]);
		walk->list += sizeof(uint64_t);
		last_in_page = !(walk->list & (walk->page_size - 1));
		if (!last_in_page || walk->remaining <= walk->page_size)
			return NVME_SC_SUCCESS;
		/* more data than this entry could cover: it points to the next list page */
		if (*entry & (walk->page_size - 1))
			return NVME_SC_PRP_OFFSET;
		walk->list = *entry;
		walk->cached = walk->cache_next = 0;
	}
}

/* one entry's memory, not joined yet */
static uint16_t next_page(struct prp_walk *walk, uint64_t *addr, uint64_t *len)
{
	uint16_t status;

	*len = 0;
	if (!walk->remaining)
		return NVME_SC_SUCCESS;
	if (walk->step == 0) {
		walk->step = 1;
		*addr = walk->prp1;
		if (*addr & 3)
			return NVME_SC_PRP_OFFSET;
		*len = MIN(walk->remaining, walk->page_size - (*addr & (walk->page_size - 1)));
	} else {
		if (walk->step == 1 && walk->remaining > walk->page_size) {
			if (walk->prp2 & 7)
				return NVME_SC_PRP_OFFSET;
			walk->list = walk->prp2;
			walk->step = 2;
		}
		*addr = walk->prp2;
		if (walk->step == 2) {
			status = next_list_entry(walk, addr);
			if (status)
				return status;
		}
		if (*addr & (walk->page_size - 1))
			return NVME_SC_PRP_OFFSET;
		*len = MIN(walk->remaining, walk->page_size);
	}
	if (!in_ranges(walk->memory->ranges, walk->memory->count, *addr, *len))
		return NVME_SC_DATA_TRANSFER;
	walk->remaining -= *len;
	return NVME_SC_SUCCESS;
}

uint16_t prp_walk_next(struct prp_walk *walk, void **addr, uint64_t *len)
{
	uint64_t start = walk->held_addr, size = walk->held_len;
	uint64_t page, page_len;
	uint16_t status;

	walk->held_len = 0;
	for (;;) {
		status = next_page(walk, &page, &page_len);
		if (status)
			return status;
		if (!page_len)
			break;
		if (!size) {
			start = page;
			size = page_len;
		} else if (page == start + size) {
			size += page_len;
		} else {
			walk->held_addr = page;
			walk->held_len = page_len;
			break;
		}
	}
	*addr = (void *)(uintptr_t)start;
	*len = size;
	return NVME_SC_SUCCESS;
}

uint16_t prp_check(const struct prp_memory *memory, uint32_t page_size, uint64_t prp1,
		   uint64_t prp2, uint64_t len)
{
	struct prp_walk walk;
	uint64_t addr, piece;
	uint16_t status;

	prp_walk_start(&walk, memory, page_size, prp1, prp2, len);
	do {
		status = next_page(&walk, &addr, &piece);
		if (status)
			return status;
	} while (piece);
	return NVME_SC_SUCCESS;
}

uint16_t prp_read(const struct prp_memory *memory, uint32_t page_size, uint64_t prp1, uint64_t prp2,
		  uint64_t total, uint64_t offset, void *to, uint64_t len)
{
	struct prp_walk walk;
	uint8_t *out = to;
	uint64_t piece;
	uint16_t status;
	void *addr;

	prp_walk_start(&walk, memory, page_size, prp1, prp2, total);
	while (len) {
		status = prp_walk_next(&walk, &addr, &piece);
		if (status)
			return status;
		if (!piece)
			return NVME_SC_DATA_TRANSFER;
		if (offset >= piece) {
			offset -= piece;
			continue;
		}
		piece = MIN(piece - offset, len);
		memcpy(out, (uint8_t *)addr + offset, piece);
		offset = 0;
		out += piece;
		len -= piece;
	}
	return NVME_SC_SUCCESS;
}
