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

/* [offset, offset + bytes) of the space behind the SQE */
static uint16_t check_capsule_range(const uint8_t *descriptor, uint32_t space, uint16_t too_long)
{
	if (get_le64(descriptor) > space)
		return NVME_SC_SGL_OFFSET | NVME_STATUS_DNR;
	if (get_le32(descriptor + 8) > space - get_le64(descriptor))
		return too_long | NVME_STATUS_DNR;
	return NVME_SC_SUCCESS;
}

static uint16_t parse_in_capsule(const uint8_t *descriptor, uint32_t space, struct sgl *sgl)
{
	uint16_t status = check_capsule_range(descriptor, space, NVME_SC_SGL_DATA_LENGTH);

	if (status)
		return status;
	sgl->in_capsule = true;
	sgl->capsule_offset = SQE_BYTES + (uint32_t)get_le64(descriptor);
	sgl->bytes = get_le32(descriptor + 8);
	return NVME_SC_SUCCESS;
}

static uint16_t parse_last_segment(const uint8_t *capsule, const uint8_t *descriptor,
				   uint32_t space, struct sgl *sgl)
{
	uint32_t bytes = get_le32(descriptor + 8);
	uint16_t status;

	if (!bytes || bytes % DESCRIPTOR_BYTES)
		return NVME_SC_SGL_SEGMENT | NVME_STATUS_DNR;
	if (bytes / DESCRIPTOR_BYTES > SGL_SEGMENTS_MAX)
		return NVME_SC_SGL_COUNT | NVME_STATUS_DNR;
	status = check_capsule_range(descriptor, space, NVME_SC_SGL_OFFSET);
	if (status)
		return status;
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

uint16_t sgl_parse(const uint8_t *capsule, uint32_t len, struct sgl *sgl)
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
		return parse_in_capsule(descriptor, space, sgl);
	case NVME_SGL_LAST_SEGMENT_OFFSET:
		return parse_last_segment(capsule, descriptor, space, sgl);
	default:
		return NVME_SC_SGL_TYPE | NVME_STATUS_DNR;
	}
}
