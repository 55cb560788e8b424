// SPDX-License-Identifier: BSD-2-Clause
/* staging.c: runs of staging pages, first fit over a bit map */
#include "offload/staging.h"

#include <errno.h>
#include <stdlib.h>

int staging_init(struct staging *staging, uint8_t *base, uint32_t page_size, uint32_t page_count)
{
	*staging = (struct staging){
		.base = base,
		.page_size = page_size,
		.page_count = page_count,
		.free_pages = page_count,
		.used = calloc((page_count + 63) / 64, sizeof(uint64_t)),
	};
	return staging->used ? 0 : -ENOMEM;
}

void staging_fini(struct staging *staging)
{
	free(staging->used);
	staging->used = NULL;
}

/* first page from @from that is used (@used) or free; @end when there is none before it */
static uint32_t find(const struct staging *s, uint32_t from, uint32_t end, bool used)
{
	uint64_t flip = used ? 0 : ~0ULL;

	while (from < end) {
		uint64_t word = (s->used[from / 64] ^ flip) >> from % 64;

		if (word) {
			from += (uint32_t)__builtin_ctzll(word);
			return from < end ? from : end;
		}
		from = (from / 64 + 1) * 64;
	}
	return end;
}

static bool find_run(const struct staging *s, uint32_t from, uint32_t end, uint32_t pages,
		     uint32_t *first)
{
	while (from < end && end - from >= pages) {
		uint32_t start = find(s, from, end, false);
		uint32_t stop;

		if (end - start < pages)
			return false;
		stop = find(s, start, start + pages, true);
		if (stop - start == pages) {
			*first = start;
			return true;
		}
		from = stop + 1;
	}
	return false;
}

static void mark(struct staging *s, uint32_t first, uint32_t pages, bool used)
{
	while (pages) {
		uint32_t bit = first % 64;
		uint32_t n = 64 - bit < pages ? 64 - bit : pages;
		uint64_t mask = (n == 64 ? ~0ULL : (1ULL << n) - 1) << bit;

		if (used)
			s->used[first / 64] |= mask;
		else
			s->used[first / 64] &= ~mask;
		first += n;
		pages -= n;
	}
}

bool staging_take(struct staging *s, uint32_t pages, uint32_t *first)
{
	if (pages > s->free_pages)
		return false;
	if (!find_run(s, s->lowest, s->page_count, pages, first))
		return false;
	mark(s, *first, pages, true);
	s->free_pages -= pages;
	if (*first == s->lowest)
		s->lowest += pages;
	return true;
}

void staging_give(struct staging *s, uint32_t first, uint32_t pages)
{
	mark(s, first, pages, false);
	s->free_pages += pages;
	if (first < s->lowest)
		s->lowest = first;
}
