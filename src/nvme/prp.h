/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * prp.h: physical region pages. The host side keeps one read-only table that serves every run of
 * contiguous staging pages, so that no list is written per command. The controller side walks what
 * it was given, checking each address against the memory it may touch.
 * NVM Express Base 2.0, 4.1.1; wire-facts 6.
 */
#ifndef SOFTHCA_NVME_PRP_H
#define SOFTHCA_NVME_PRP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- host side: PRPs of a contiguous run of pages ------------------------ */

struct prp_table {
	uint64_t *lists;     /* list pages */
	size_t lists_len;    /* bytes */
	uint64_t base;	     /* address of page 0 */
	uint32_t page_size;  /* bytes, a power of two */
	uint32_t page_count; /* pages at base */
	uint32_t max_pages;  /* longest run */
	uint32_t starts;     /* runs that one list page serves */
};

/**
 * prp_table_init() - make the lists for all runs of up to @max_pages pages of a buffer.
 * A controller must be allowed to read them (softhca_nvmf_prp_lists()).
 * @base: aligned to @page_size.
 * Return: 0, -EINVAL (a run needs more than one list page), -ENOMEM.
 */
int prp_table_init(struct prp_table *table, void *base, uint32_t page_size, uint32_t page_count,
		   uint32_t max_pages);
void prp_table_free(struct prp_table *table);

/* PRP1 and PRP2 of @pages pages from page @first; 1 <= @pages <= max_pages, inside the buffer */
void prp_table_get(const struct prp_table *table, uint32_t first, uint32_t pages, uint64_t *prp1,
		   uint64_t *prp2);

/* ---- controller side ------------------------------------------------------ */

struct prp_range {
	uint64_t addr, len;
};

struct prp_memory {
	const struct prp_range *ranges;
	unsigned int count;
};

#define PRP_WALK_ENTRIES 32

struct prp_walk {
	const struct prp_memory *memory;
	uint32_t page_size;
	uint64_t remaining; /* bytes still to come */
	uint64_t prp1, prp2;
	uint64_t list; /* address of the next list entry, 0 before the list */
	int step;      /* 0 PRP1, 1 PRP2 or list, 2 in a list */
	uint32_t cached, cache_next;
	uint64_t cache[PRP_WALK_ENTRIES];
	uint64_t held_addr, held_len; /* piece taken that did not join the one before */
};

void prp_walk_start(struct prp_walk *walk, const struct prp_memory *memory, uint32_t page_size,
		    uint64_t prp1, uint64_t prp2, uint64_t len);

/**
 * prp_walk_next() - the next piece of contiguous memory.
 * @addr, @len: out; @len 0 at the end.
 * Return: NVMe status: success, PRP Offset Invalid, Data Transfer Error (memory not allowed).
 */
uint16_t prp_walk_next(struct prp_walk *walk, void **addr, uint64_t *len);

/* walk all of it. Return: NVMe status */
uint16_t prp_check(const struct prp_memory *memory, uint32_t page_size, uint64_t prp1,
		   uint64_t prp2, uint64_t len);

/* copy @len bytes from @offset of the described buffer of @total bytes. Return: NVMe status */
uint16_t prp_read(const struct prp_memory *memory, uint32_t page_size, uint64_t prp1, uint64_t prp2,
		  uint64_t total, uint64_t offset, void *to, uint64_t len);

#endif
