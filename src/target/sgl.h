/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * sgl.h: the SGL of a command capsule, parsed once into a checked form.
 */
#ifndef SOFTHCA_TARGET_SGL_H
#define SOFTHCA_TARGET_SGL_H

#include <stdbool.h>
#include <stdint.h>

#define SGL_SEGMENTS_MAX 16

struct sgl_segment {
	uint64_t addr;
	uint32_t bytes;
	uint32_t rkey;
};

struct sgl {
	uint32_t bytes; /* all segments, or the in-capsule data */
	bool in_capsule;
	uint32_t capsule_offset; /* of the data, from the capsule's first byte */
	unsigned int count;	 /* keyed segments; none of them is empty */
	struct sgl_segment segment[SGL_SEGMENTS_MAX];
	bool invalidate;
	uint32_t invalidate_rkey;
};

/**
 * sgl_parse() - the SGL of a capsule: a keyed data block, a data block at an offset in the capsule,
 * or a last segment at an offset in the capsule, of keyed data blocks. ICDOFF is 0.
 * @capsule: SQE and what came behind it.
 * @len: at least 64.
 * @in_capsule_bytes: so much IOCCSZ announces behind the SQE.
 * Return: NVMe status; @sgl is empty unless it is 0.
 */
uint16_t sgl_parse(const uint8_t *capsule, uint32_t len, uint32_t in_capsule_bytes,
		   struct sgl *sgl);

/**
 * sgl_check() - can @sgl move @transfer bytes? In-capsule data must have come: this is to be asked
 * before they are looked at.
 * @capsule_len: of the capsule that the SGL was in.
 * Return: NVMe status.
 */
uint16_t sgl_check(const struct sgl *sgl, uint32_t transfer, uint32_t capsule_len);

#endif
