/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * gf2.h: polynomials over GF(2) modulo the CRC-32 polynomial, reflected (bit 31 is x^0).
 */
#ifndef SOFTHCA_WIRE_GF2_H
#define SOFTHCA_WIRE_GF2_H

#include <stdint.h>

#define CRC32_POLY_REFLECTED 0xedb88320U
#define GF2_ONE		     0x80000000U

static inline uint32_t gf2_mul_x(uint32_t a)
{
	return (a >> 1) ^ (-(a & 1) & CRC32_POLY_REFLECTED);
}

static inline uint32_t gf2_mul(uint32_t a, uint32_t b)
{
	uint32_t product = 0;

	for (; b; b <<= 1, a = gf2_mul_x(a))
		product ^= -(b >> 31) & a;
	return product;
}

/* x^n */
static inline uint32_t gf2_x_pow(uint32_t n)
{
	uint32_t square = GF2_ONE >> 1, power = GF2_ONE;

	for (; n; n >>= 1, square = gf2_mul(square, square))
		if (n & 1)
			power = gf2_mul(power, square);
	return power;
}

#endif
