/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * staging.h: the staging buffer's pages: contiguous runs, as many pages as a command needs.
 * First fit over a bit map: the pages used last are used again first, while they are still in the
 * cache, and a request of the largest size can always be met once everything is free.
 */
#ifndef SOFTHCA_OFFLOAD_STAGING_H
#define SOFTHCA_OFFLOAD_STAGING_H

#include <stdbool.h>
#include <stdint.h>

struct staging {
	uint8_t *base;
	uint32_t page_size, page_count;
	uint32_t free_pages;
	uint32_t lowest; /* no page before it is free */
	uint64_t *used;	 /* bit map */
};

/* Return: 0 or -ENOMEM */
int staging_init(struct staging *staging, uint8_t *base, uint32_t page_size, uint32_t page_count);
void staging_fini(struct staging *staging);
/* take @pages contiguous pages. Return: true, first page in @first; false: none free now */
bool staging_take(struct staging *staging, uint32_t pages, uint32_t *first);
void staging_give(struct staging *staging, uint32_t first, uint32_t pages);

static inline uint8_t *staging_addr(const struct staging *staging, uint32_t page)
{
	return staging->base + (uint64_t)page * staging->page_size;
}

#endif
