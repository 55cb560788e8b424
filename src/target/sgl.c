// SPDX-License-Identifier: BSD-2-Clause
/*
 * sgl.c: strict parsing of a capsule's SGL (NVMe Base 2.0, 4.1.2; NVMe/RDMA transport 1.0, 3).
 * Every offset and length comes from a peer: they are compared without sums that could wrap.
 */
#include "target/sgl.h"

#include <string.h>

#include "nvme/spec.h"
#include "util/bytes.h"

#define SQE_BYTES	     64
#define SQE_SGL_OFFSET	     24
#define DESCRIPTOR_BYTES     16
#define DESCRIPTOR_TYPE_BYTE 15

static uint32_t get_le24(const uint8_t *p)
{
	return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16;
}

static void add_keyed(struct sgl *sgl, const uint8_t *descriptor)
{
	uint32_t bytes = get_le24(descriptor + 8), rkey = get_le32(descriptor + 11);

	/* no data: address and key mean nothing */
	if (!bytes)
		return;
	sgl->segment[sgl->count++] =
		(struct sgl_segment){ .addr = get_le64(descriptor), .bytes = bytes, .rkey = rkey };
	sgl->bytes += bytes; /* at most 16 * 2^24 */
	if (descriptor[DESCRIPTOR_TYPE_BYTE] == NVME_SGL_KEYED_INVALIDATE) {
		sgl->invalidate = true;
		sgl->invalidate_rkey = rkey;
	}
}

static bool is_keyed(const uint8_t *descriptor)
{
	return descriptor[DESCRIPTOR_TYPE_BYTE] == NVME_SGL_KEYED ||
	       descriptor[DESCRIPTOR_TYPE_BYTE] == NVME_SGL_KEYED_INVALIDATE;
}

/* the same checks in the same order as the offload's, against what IOCCSZ allows */
static uint16_t parse_in_capsule(const uint8_t *descriptor, uint32_t most, struct sgl *sgl)
{
	uint64_t addr = get_le64(descriptor);
	uint32_t bytes = get_le32(descriptor + 8);

	if (addr > most)
		return NVME_SC_SGL_OFFSET | NVME_STATUS_DNR;
	if (bytes > most)
		return NVME_SC_SGL_DATA_LENGTH | NVME_STATUS_DNR;
	if (bytes > most - addr)
		return NVME_SC_SGL_OFFSET | NVME_STATUS_DNR;
	sgl->in_capsule = true;
	sgl->capsule_offset = SQE_BYTES + (uint32_t)addr;
	sgl->bytes = bytes;
	return NVME_SC_SUCCESS;
}

static uint16_t parse_last_segment(const uint8_t *capsule, const uint8_t *descriptor,
				   uint32_t space, struct sgl *sgl)
{
	uint32_t bytes = get_le32(descriptor + 8);

	if (!bytes || bytes % DESCRIPTOR_BYTES)
		return NVME_SC_SGL_SEGMENT | NVME_STATUS_DNR;
	if (bytes / DESCRIPTOR_BYTES > SGL_SEGMENTS_MAX)
		return NVME_SC_SGL_COUNT | NVME_STATUS_DNR;
	if (!range_inside(get_le64(descriptor), bytes, 0, space))
		return NVME_SC_SGL_OFFSET | NVME_STATUS_DNR;
	descriptor = capsule + SQE_BYTES + get_le64(descriptor);
	for (uint32_t i = 0; i < bytes; i += DESCRIPTOR_BYTES) {
		if (!is_keyed(descriptor + i)) {
			*sgl = (struct sgl){ 0 };
			return NVME_SC_SGL_TYPE | NVME_STATUS_DNR;
		}
		add_keyed(sgl, descriptor + i);
	}
	return NVME_SC_SUCCESS;
}

uint16_t sgl_parse(const uint8_t *capsule, uint32_t len, uint32_t in_capsule_bytes, struct sgl *sgl)
{
	const uint8_t *descriptor = capsule + SQE_SGL_OFFSET;
	uint32_t space = len - SQE_BYTES;

	*sgl = (struct sgl){ 0 };
	switch (descriptor[DESCRIPTOR_TYPE_BYTE]) {
	case NVME_SGL_KEYED:
	case NVME_SGL_KEYED_INVALIDATE:
		add_keyed(sgl, descriptor);
		return NVME_SC_SUCCESS;
	case NVME_SGL_OFFSET:
		return parse_in_capsule(descriptor, in_capsule_bytes, sgl);
	case NVME_SGL_LAST_SEGMENT_OFFSET:
		return parse_last_segment(capsule, descriptor, space, sgl);
	default:
		return NVME_SC_SGL_TYPE | NVME_STATUS_DNR;
	}
}

uint16_t sgl_check(const struct sgl *sgl, uint32_t transfer, uint32_t capsule_len)
{
	if (sgl->bytes < transfer)
		return NVME_SC_SGL_DATA_LENGTH | NVME_STATUS_DNR;
	if (!sgl->in_capsule || !transfer)
		return NVME_SC_SUCCESS;
	if (sgl->capsule_offset >= capsule_len)
		return NVME_SC_SGL_OFFSET | NVME_STATUS_DNR;
	if (transfer > capsule_len - sgl->capsule_offset)
		return NVME_SC_SGL_DATA_LENGTH | NVME_STATUS_DNR;
	return NVME_SC_SUCCESS;
}
