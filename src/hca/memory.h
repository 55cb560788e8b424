/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * memory.h: memory regions and their keys. One table a process; a key's upper 24 bits are the
 * index, the low 8 bits change with each use of it, so that a stale key is noticed.
 * lkey == rkey. Looked up under an engine's lock; (de)registration takes the locks of all engines.
 */
#ifndef SOFTHCA_HCA_MEMORY_H
#define SOFTHCA_HCA_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "hca/context.h"

struct hca_mr {
	struct hca_pd *pd;
	uint8_t *addr;				/* host address of the first byte */
	uint64_t iova;				/* address the keys speak of */
	uint64_t length;			/* bytes */
	int access;				/* enum ibv_access_flags */
	uint32_t key;				/* given by memory_register() */
	bool rkey_invalid;			/* by SEND with invalidate */
	void (*ring)(void *arg, size_t offset); /* doorbell region, else NULL */
	void *ring_arg;
};

enum memory_status {
	MEMORY_OK,
	MEMORY_BAD_KEY, /* unknown, stale or invalidated */
	MEMORY_BAD_PD,
	MEMORY_NO_ACCESS,
	MEMORY_OUT_OF_BOUNDS, /* also where address + length wraps */
};

/* Return: 0, or ENOMEM. The caller filled in everything but key */
int memory_register(struct hca_mr *mr);
/* on return no engine uses it any more */
void memory_deregister(struct hca_mr *mr);

/**
 * memory_translate() - check a key, rights and bounds, and translate. Engine's lock held.
 * @access: rights needed, all of them (0 = local read).
 * @remote: the key came from the network: an invalidated rkey is bad.
 * @len: 0 checks the key and rights only.
 * @host: out, host address of @va.
 * @mr: out, may be NULL.
 */
enum memory_status memory_translate(uint32_t key, const struct hca_pd *pd, uint64_t va,
				    uint64_t len, int access, bool remote, void **host,
				    struct hca_mr **mr);

/**
 * memory_translate_sge() - translate an SGE list of local memory to iovecs.
 * Zero-length SGEs are skipped, their keys unchecked.
 * @iov: at least @count entries. @iov_count: out.
 */
enum memory_status memory_translate_sge(const struct hca_pd *pd, const struct ibv_sge *sge,
					int count, int access, struct iovec *iov, int *iov_count);

/* SEND with invalidate: MEMORY_OK, _BAD_KEY, _BAD_PD, _NO_ACCESS (the MR has no remote right) */
enum memory_status memory_invalidate(uint32_t rkey, const struct hca_pd *pd);

#endif
