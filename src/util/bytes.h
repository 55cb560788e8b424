/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * bytes.h: reading and writing integers of fixed byte order at any alignment, and small
 * arithmetic helpers. InfiniBand, IP and CMA are big-endian, NVMe is little-endian.
 */
#ifndef SOFTHCA_UTIL_BYTES_H
#define SOFTHCA_UTIL_BYTES_H

#include <endian.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define DEFINE_GET_PUT(order, bits)                                                                \
	static inline uint##bits##_t get_##order##bits(const void *p)                              \
	{                                                                                          \
		uint##bits##_t v;                                                                  \
		memcpy(&v, p, sizeof(v));                                                          \
		return order##bits##toh(v);                                                        \
	}                                                                                          \
	static inline void put_##order##bits(void *p, uint##bits##_t v)                            \
	{                                                                                          \
		v = hto##order##bits(v);                                                           \
		memcpy(p, &v, sizeof(v));                                                          \
	}

DEFINE_GET_PUT(be, 16)
DEFINE_GET_PUT(be, 32)
DEFINE_GET_PUT(be, 64)
DEFINE_GET_PUT(le, 16)
DEFINE_GET_PUT(le, 32)
DEFINE_GET_PUT(le, 64)
#undef DEFINE_GET_PUT

static inline uint32_t get_be24(const void *p)
{
	const uint8_t *b = p;

	return (uint32_t)b[0] << 16 | (uint32_t)b[1] << 8 | b[2];
}

static inline void put_be24(void *p, uint32_t v)
{
	uint8_t *b = p;

	b[0] = (uint8_t)(v >> 16);
	b[1] = (uint8_t)(v >> 8);
	b[2] = (uint8_t)v;
}

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define MIN(a, b)     ((a) < (b) ? (a) : (b))
#define MAX(a, b)     ((a) > (b) ? (a) : (b))

static inline uint64_t div_round_up(uint64_t n, uint64_t d)
{
	return n / d + (n % d != 0);
}

static inline bool is_power_of_two(uint64_t v)
{
	return v && !(v & (v - 1));
}

/* smallest power of two >= v, for 1 <= v <= 2^63 */
static inline uint64_t round_up_power_of_two(uint64_t v)
{
	return v <= 1 ? 1 : 1ULL << (64 - __builtin_clzll(v - 1));
}

/* [addr, addr + len) lies inside [base, base + size), with no sum that can wrap */
static inline bool range_inside(uint64_t addr, uint64_t len, uint64_t base, uint64_t size)
{
	return addr >= base && addr - base <= size && len <= size - (addr - base);
}

#endif
