// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_sgl.c: the SGL parser with every kind of descriptor and with hostile values (situation N1),
 * and capsules put together from pieces.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "nvme/spec.h"
#include "target/capsule.h"
#include "target/sgl.h"
#include "util/bytes.h"

#define DNR NVME_STATUS_DNR

#define IN_CAPSULE 4096

static uint8_t capsule[64 + 4096];

static void put_offset(uint8_t *d, uint64_t addr, uint32_t bytes, uint8_t type)
{
	memset(d, 0, 16);
	put_le64(d, addr);
	put_le32(d + 8, bytes);
	d[15] = type;
}

static void put_keyed(uint8_t *d, uint64_t addr, uint32_t bytes, uint32_t rkey, uint8_t type)
{
	put_le64(d, addr);
	put_le32(d + 8, bytes);
	put_le32(d + 11, rkey);
	d[15] = type;
}

static void test_keyed(void **state)
{
	struct sgl sgl;

	put_keyed(capsule + 24, 0x1122334455667788, 0xffffff, 0xaabbccdd, 0x40);
	assert_int_equal(sgl_parse(capsule, 64, IN_CAPSULE, &sgl), 0);
	assert_int_equal(sgl.count, 1);
	assert_int_equal(sgl.bytes, 0xffffff);
	assert_int_equal(sgl.segment[0].addr, 0x1122334455667788);
	assert_int_equal(sgl.segment[0].rkey, 0xaabbccdd);
	assert_false(sgl.invalidate);
	capsule[24 + 15] = 0x4f;
	assert_int_equal(sgl_parse(capsule, 64, IN_CAPSULE, &sgl), 0);
	assert_true(sgl.invalidate);
	assert_int_equal(sgl.invalidate_rkey, 0xaabbccdd);
	/* no data: address and key mean nothing */
	put_keyed(capsule + 24, 0, 0, 0, 0x40);
	assert_int_equal(sgl_parse(capsule, 64, IN_CAPSULE, &sgl), 0);
	assert_int_equal(sgl.count, 0);
	assert_int_equal(sgl.bytes, 0);
}

static void test_in_capsule(void **state)
{
	static const struct {
		uint64_t addr;
		uint32_t bytes;
		uint16_t status;
	} rows[] = {
		{ 0, 4096, 0 },
		{ 0, 0, 0 },
		{ 4096, 0, 0 },
		{ 512, 512, 0 },
		{ 0, 4097, NVME_SC_SGL_DATA_LENGTH },
		{ 1, 4096, NVME_SC_SGL_OFFSET },
		{ 4097, 0, NVME_SC_SGL_OFFSET },
		{ 0xFFFFFFFFFFFFFE00, 0x1000, NVME_SC_SGL_OFFSET },
		{ 0xFFFFFFFFFFFFFFFF, 0xffffffff, NVME_SC_SGL_OFFSET },
		{ 0x100000000, 512, NVME_SC_SGL_OFFSET },
		{ 0, 0xffffffff, NVME_SC_SGL_DATA_LENGTH },
	};
	struct sgl sgl;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		put_offset(capsule + 24, rows[i].addr, rows[i].bytes, 0x01);
		assert_int_equal(sgl_parse(capsule, sizeof(capsule), IN_CAPSULE, &sgl),
				 rows[i].status ? rows[i].status | DNR : 0);
		assert_int_equal(sgl.in_capsule, !rows[i].status);
		assert_int_equal(sgl.bytes, rows[i].status ? 0 : rows[i].bytes);
		if (!rows[i].status)
			assert_int_equal(sgl.capsule_offset, 64 + rows[i].addr);
	}
}

/* what the SGL promises against what has come */
static void test_in_capsule_data_that_came(void **state)
{
	static const struct {
		uint64_t addr;
		uint32_t bytes, transfer, len;
		uint16_t status;
	} rows[] = {
		{ 0, 512, 512, 64 + 512, 0 },
		{ 512, 512, 512, 64 + 1024, 0 },
		{ 0, 1024, 512, 64 + 512, 0 },
		{ 0, 0, 0, 64, 0 },
		{ 0, 512, 513, 64 + 1024, NVME_SC_SGL_DATA_LENGTH },
		{ 0, 512, 512, 64 + 511, NVME_SC_SGL_DATA_LENGTH },
		{ 1, 512, 512, 64 + 512, NVME_SC_SGL_DATA_LENGTH },
		{ 0, 512, 512, 64, NVME_SC_SGL_OFFSET },
		{ 512, 512, 512, 64 + 512, NVME_SC_SGL_OFFSET },
		{ 3584, 512, 512, 64 + 512, NVME_SC_SGL_OFFSET },
	};
	struct sgl sgl;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		put_offset(capsule + 24, rows[i].addr, rows[i].bytes, 0x01);
		assert_int_equal(sgl_parse(capsule, rows[i].len, IN_CAPSULE, &sgl), 0);
		assert_int_equal(sgl_check(&sgl, rows[i].transfer, rows[i].len),
				 rows[i].status ? rows[i].status | DNR : 0);
	}
	put_keyed(capsule + 24, 0, 512, 1, 0x40);
	assert_int_equal(sgl_parse(capsule, 64, IN_CAPSULE, &sgl), 0);
	assert_int_equal(sgl_check(&sgl, 512, 64), 0);
	assert_int_equal(sgl_check(&sgl, 513, 64), NVME_SC_SGL_DATA_LENGTH | DNR);
}

static void test_last_segment(void **state)
{
	static const struct {
		uint64_t addr;
		uint32_t bytes, len;
		uint16_t status;
	} rows[] = {
		{ 0, 0, 64 + 4096, NVME_SC_SGL_SEGMENT },
		{ 0, 15, 64 + 4096, NVME_SC_SGL_SEGMENT },
		{ 0, 17 * 16, 64 + 4096, NVME_SC_SGL_COUNT },
		{ 0, 0xfffffff0, 64 + 4096, NVME_SC_SGL_COUNT },
		{ 0, 32, 64 + 31, NVME_SC_SGL_OFFSET },
		{ 0xfffffffffffffff0, 32, 64 + 4096, NVME_SC_SGL_OFFSET },
		{ 16, 16, 64 + 16, NVME_SC_SGL_OFFSET },
	};
	struct sgl sgl;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		put_offset(capsule + 24, rows[i].addr, rows[i].bytes, 0x31);
		assert_int_equal(sgl_parse(capsule, rows[i].len, IN_CAPSULE, &sgl),
				 rows[i].status | DNR);
	}
	/* sixteen of the longest: the sum does not wrap */
	for (int i = 0; i < 16; i++)
		put_keyed(capsule + 64 + 16 * i, i, 0xffffff, 100 + i, 0x40);
	put_offset(capsule + 24, 0, 256, 0x31);
	assert_int_equal(sgl_parse(capsule, 64 + 256, IN_CAPSULE, &sgl), 0);
	assert_int_equal(sgl.count, 16);
	assert_int_equal(sgl.bytes, 16 * 0xffffff);
	assert_int_equal(sgl.segment[15].rkey, 115);
	/* nothing but keyed blocks inside */
	capsule[64 + 16 + 15] = 0x01;
	assert_int_equal(sgl_parse(capsule, 64 + 256, IN_CAPSULE, &sgl), NVME_SC_SGL_TYPE | DNR);
	assert_int_equal(sgl.count, 0);
	capsule[64 + 16 + 15] = 0x31;
	assert_int_equal(sgl_parse(capsule, 64 + 256, IN_CAPSULE, &sgl), NVME_SC_SGL_TYPE | DNR);
}

static void test_every_type(void **state)
{
	struct sgl sgl;

	for (unsigned int type = 0; type < 256; type++) {
		if (type == 0x40 || type == 0x4f || type == 0x01 || type == 0x31)
			continue;
		put_offset(capsule + 24, 0, 64, (uint8_t)type);
		assert_int_equal(sgl_parse(capsule, sizeof(capsule), IN_CAPSULE, &sgl),
				 NVME_SC_SGL_TYPE | DNR);
	}
}

/* random capsules: never more than there is */
static void test_random(void **state)
{
	static const uint8_t types[] = { 0x40, 0x4f, 0x01, 0x31 };
	struct sgl sgl;

	srandom(1);
	for (int i = 0; i < 100000; i++) {
		uint32_t len = 64 + (uint32_t)random() % 4097;

		for (int j = 24; j < 40; j++)
			capsule[j] = (uint8_t)(random() & random() & random());
		capsule[39] = types[random() % 4];
		for (int j = 0; j < 16; j++)
			capsule[64 + 16 * j + 15] = types[random() % 2];
		if (sgl_parse(capsule, len, IN_CAPSULE, &sgl))
			continue;
		assert_true(sgl.count <= SGL_SEGMENTS_MAX);
		if (sgl.in_capsule && sgl.bytes && !sgl_check(&sgl, sgl.bytes, len))
			assert_true((uint64_t)sgl.capsule_offset + sgl.bytes <= len);
	}
}

/* ---- capsules from pieces ---- */

static void test_capsule_pieces(void **state)
{
	uint8_t out[128], in[128];
	struct capsule c = { 0 };

	for (int i = 0; i < 128; i++)
		in[i] = (uint8_t)i;
	assert_false(capsule_open(&c));
	capsule_begin(&c, out, sizeof(out));
	assert_int_equal(capsule_add(&c, in, 60, true), CAPSULE_MORE);
	assert_true(capsule_open(&c));
	assert_int_equal(capsule_add(&c, in + 60, 0, true), CAPSULE_MORE);
	assert_int_equal(capsule_add(&c, in + 60, 68, false), CAPSULE_COMPLETE);
	assert_false(capsule_open(&c));
	assert_int_equal(c.len, 128);
	assert_memory_equal(out, in, 128);
}

/* the MP WR example: pieces of two queue pairs interleaved */
static void test_capsules_interleaved(void **state)
{
	uint8_t x_out[192], y_out[192], x_in[192], y_in[192];
	struct capsule x = { 0 }, y = { 0 };

	memset(x_in, 'x', sizeof(x_in));
	memset(y_in, 'y', sizeof(y_in));
	capsule_begin(&x, x_out, sizeof(x_out));
	assert_int_equal(capsule_add(&x, x_in, 64, true), CAPSULE_MORE);
	capsule_begin(&y, y_out, sizeof(y_out));
	assert_int_equal(capsule_add(&y, y_in, 64, true), CAPSULE_MORE);
	assert_int_equal(capsule_add(&x, x_in + 64, 64, true), CAPSULE_MORE);
	assert_int_equal(capsule_add(&y, y_in + 64, 100, false), CAPSULE_COMPLETE);
	assert_int_equal(capsule_add(&x, x_in + 128, 64, false), CAPSULE_COMPLETE);
	assert_int_equal(x.len, 192);
	assert_int_equal(y.len, 164);
	assert_memory_equal(x_out, x_in, 192);
	assert_memory_equal(y_out, y_in, 164);
}

static void test_capsule_lengths(void **state)
{
	uint8_t out[128], in[256] = { 0 };
	struct capsule c = { 0 };
	volatile uint32_t huge = UINT32_MAX; /* the compiler must not see it */

	capsule_begin(&c, out, sizeof(out));
	assert_int_equal(capsule_add(&c, in, 63, false), CAPSULE_BAD_LENGTH);
	capsule_begin(&c, out, sizeof(out));
	assert_int_equal(capsule_add(&c, in, 129, false), CAPSULE_BAD_LENGTH);
	capsule_begin(&c, out, sizeof(out));
	assert_int_equal(capsule_add(&c, in, 100, true), CAPSULE_MORE);
	assert_int_equal(capsule_add(&c, in, 29, true), CAPSULE_BAD_LENGTH);
	assert_false(capsule_open(&c));
	capsule_begin(&c, out, sizeof(out));
	assert_int_equal(capsule_add(&c, in, 100, true), CAPSULE_MORE);
	assert_int_equal(capsule_add(&c, in, huge, true), CAPSULE_BAD_LENGTH);
	capsule_begin(&c, out, sizeof(out));
	assert_int_equal(capsule_add(&c, in, 0, false), CAPSULE_BAD_LENGTH);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_keyed),
		cmocka_unit_test(test_in_capsule),
		cmocka_unit_test(test_in_capsule_data_that_came),
		cmocka_unit_test(test_last_segment),
		cmocka_unit_test(test_every_type),
		cmocka_unit_test(test_random),
		cmocka_unit_test(test_capsule_pieces),
		cmocka_unit_test(test_capsules_interleaved),
		cmocka_unit_test(test_capsule_lengths),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
