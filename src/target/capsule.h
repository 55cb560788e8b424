/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * capsule.h: a command capsule put together from the pieces that multi-packet receives deliver.
 * One of these a queue pair: pieces of several queue pairs may interleave in one buffer.
 */
#ifndef SOFTHCA_TARGET_CAPSULE_H
#define SOFTHCA_TARGET_CAPSULE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

struct capsule {
	uint8_t *data; /* of the capsule in progress; NULL: none */
	uint32_t size; /* room in @data */
	uint32_t len;
};

enum capsule_result {
	CAPSULE_MORE,
	CAPSULE_COMPLETE,
	CAPSULE_BAD_LENGTH, /* longer than the room, or shorter than an SQE: a transport error */
};

static inline bool capsule_open(const struct capsule *capsule)
{
	return capsule->data;
}

static inline void capsule_begin(struct capsule *capsule, uint8_t *data, uint32_t size)
{
	*capsule = (struct capsule){ .data = data, .size = size };
}

/* @more: IBV_WC_MP_WR_MORE_IN_MSG. After anything but CAPSULE_MORE the capsule is closed; @len
 * stays readable */
static inline enum capsule_result capsule_add(struct capsule *capsule, const void *piece,
					      uint32_t bytes, bool more)
{
	if (bytes > capsule->size - capsule->len) {
		capsule->data = NULL;
		return CAPSULE_BAD_LENGTH;
	}
	if (bytes)
		memcpy(capsule->data + capsule->len, piece, bytes);
	capsule->len += bytes;
	if (more)
		return CAPSULE_MORE;
	capsule->data = NULL;
	return capsule->len < 64 ? CAPSULE_BAD_LENGTH : CAPSULE_COMPLETE;
}

#endif
