// SPDX-License-Identifier: BSD-2-Clause
/*
 * crc_fold.c: icrc_update() and icrc_copy(), which copies and CRCs in one pass over memory, by
 * carry-less multiplication.
 *
 * A register of n bits stands for a polynomial that is congruent to the message so far. Multiplying
 * its two 64-bit halves by x^(D + 32) and x^(D - 32) mod P moves it D bits further along the
 * message, where it is XORed into what stands there ("folding"; Gopal et al., "Fast CRC
 * Computation for Generic Polynomials Using PCLMULQDQ Instruction"). Everything is reflected, so a
 * product of two 64-bit halves comes out one bit too low, and the factors are shifted left by one
 * to make up for it.
 *
 * ISA-L does the same and serves CPUs without these instructions. Elsewhere it is not called: it
 * returns without vzeroupper, and the SSE code around it then pays for it (measured: 140 ns a
 * packet on Sapphire Rapids); and packets are short, where it takes half as long again.
 */
#include <immintrin.h>
#include <isa-l/crc.h>
#include <stdbool.h>
#include <string.h>

#include "wire/gf2.h"
#include "wire/icrc.h"

/* the kernels take and return the register itself, not inverted; dst NULL: no copy */
typedef uint32_t (*kernel_fn)(uint32_t reg, uint8_t *dst, const uint8_t *src, size_t len);

#define KERNEL_MIN_LEN 16

static uint32_t kernel_isal(uint32_t reg, uint8_t *dst, const uint8_t *src, size_t len)
{
	if (dst)
		memcpy(dst, src, len);
	return ~crc32_gzip_refl(~reg, src, len);
}

static kernel_fn kernel = kernel_isal;

/* the register after a byte, for what is too short for the kernels */
static uint32_t byte_table[256];

static void byte_table_init(void)
{
	uint32_t byte;

	for (byte = 0; byte < 256; byte++)
		byte_table[byte] = gf2_mul(byte, gf2_x_pow(8));
}

static uint32_t update_bytes(uint32_t reg, uint8_t *dst, const uint8_t *src, size_t len)
{
	size_t i;

	for (i = 0; i < len; i++) {
		if (dst)
			dst[i] = src[i];
		reg = (reg >> 8) ^ byte_table[(reg ^ src[i]) & 0xff];
	}
	return reg;
}

#if defined(__x86_64__)

/* {low, high} factors that move 128 bits by so many bits */
static struct fold_factors {
	uint64_t lanes[8]; /* bring lanes 0..2 of 512 bits together with lane 3; loaded whole */
	uint64_t by_128[2], by_512[2], by_2048[2];
	uint64_t x_64;
} factors __attribute__((aligned(64)));

/* shuffles that move 16 bytes up or down by n: loaded from 16 - n, 16 + n; 0x80 gives zero */
static const uint8_t shifts[48] = {
	0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
	0x80, 0x80, 0x80, 0x80, 0,    1,    2,	  3,	4,    5,    6,	  7,
	8,    9,    10,	  11,	12,   13,   14,	  15,	0x80, 0x80, 0x80, 0x80,
	0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
};

static uint64_t factor(uint32_t n)
{
	return (uint64_t)gf2_x_pow(n) << 1;
}

static void factors_init(void)
{
	int lane;

	factors.by_128[0] = factor(128 + 32);
	factors.by_128[1] = factor(128 - 32);
	factors.by_512[0] = factor(512 + 32);
	factors.by_512[1] = factor(512 - 32);
	factors.by_2048[0] = factor(2048 + 32);
	factors.by_2048[1] = factor(2048 - 32);
	for (lane = 0; lane < 3; lane++) {
		factors.lanes[2 * lane] = factor(128 * (3 - lane) + 32);
		factors.lanes[2 * lane + 1] = factor(128 * (3 - lane) - 32);
	}
	factors.x_64 = factor(64);
}

#define INLINE	      inline __attribute__((always_inline))
#define TARGET_PCLMUL __attribute__((target("sse4.1,pclmul")))
#define TARGET_AVX512 __attribute__((target("sse4.1,pclmul,avx512f,avx512vl,avx512bw,vpclmulqdq")))

static INLINE TARGET_PCLMUL __m128i load128(const void *p)
{
	return _mm_loadu_si128(p);
}

static INLINE TARGET_PCLMUL __m128i fold128(__m128i x, __m128i factor_pair, __m128i in)
{
	return _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(x, factor_pair, 0x00),
					   _mm_clmulepi64_si128(x, factor_pair, 0x11)),
			     in);
}

static INLINE TARGET_PCLMUL __m128i copy128(uint8_t *dst, const uint8_t *src, bool copy)
{
	__m128i x = load128(src);

	if (copy)
		_mm_storeu_si128((__m128i *)dst, x);
	return x;
}

/* 128 bits to the register: 128 -> 96 -> 64 bits, then Barrett's division */
static INLINE TARGET_PCLMUL uint32_t reduce128(__m128i x)
{
	const __m128i low32 = _mm_set_epi32(0, 0, 0, -1);
	const __m128i by_128 = load128(factors.by_128);
	const __m128i x_64 = _mm_cvtsi64_si128((long long)factors.x_64);
	/* floor(x^64 / P) and P, 33 bits, reflected */
	const __m128i barrett = _mm_set_epi64x(0x1f7011641, 0x1db710641);
	__m128i t;

	x = _mm_xor_si128(_mm_srli_si128(x, 8), _mm_clmulepi64_si128(x, by_128, 0x10));
	t = _mm_and_si128(x, low32);
	x = _mm_xor_si128(_mm_srli_si128(x, 4), _mm_clmulepi64_si128(t, x_64, 0x00));
	t = _mm_clmulepi64_si128(_mm_and_si128(x, low32), barrett, 0x10);
	t = _mm_clmulepi64_si128(_mm_and_si128(t, low32), barrett, 0x00);
	return (uint32_t)_mm_extract_epi32(_mm_xor_si128(x, t), 1);
}

/*
 * What is left, less than 64 bytes, behind the 128 bits @x. The last, partial block is taken
 * together with the end of what stands before it, so at least 16 bytes lie before @src + @len.
 */
static INLINE TARGET_PCLMUL uint32_t finish(__m128i x, uint8_t *dst, const uint8_t *src, size_t len,
					    bool copy)
{
	const __m128i by_128 = load128(factors.by_128);
	__m128i last, up, down;
	size_t n;

	for (; len >= 16; len -= 16, src += 16, dst += 16)
		x = fold128(x, by_128, copy128(dst, src, copy));
	if (!len)
		return reduce128(x);
	n = 16 - len;
	last = copy128(dst - n, src - n, copy);
	/* 16 + len bytes: zeros and the start of x; the rest of x and the new bytes */
	up = _mm_shuffle_epi8(x, load128(shifts + 16 - n));
	down = load128(shifts + 16 + len);
	last = _mm_blendv_epi8(_mm_shuffle_epi8(x, down), last, down);
	return reduce128(fold128(up, by_128, last));
}

static INLINE TARGET_PCLMUL uint32_t pclmul(uint32_t reg, uint8_t *dst, const uint8_t *src,
					    size_t len, bool copy)
{
	const __m128i by_512 = load128(factors.by_512);
	const __m128i by_128 = load128(factors.by_128);
	__m128i acc[4], first = _mm_cvtsi32_si128((int)reg);
	int i;

	if (len < 64) {
		acc[0] = _mm_xor_si128(copy128(dst, src, copy), first);
		return finish(acc[0], dst + 16, src + 16, len - 16, copy);
	}
	for (i = 0; i < 4; i++)
		acc[i] = copy128(dst + 16 * i, src + 16 * i, copy);
	acc[0] = _mm_xor_si128(acc[0], first);
	for (len -= 64, src += 64, dst += 64; len >= 64; len -= 64, src += 64, dst += 64)
		for (i = 0; i < 4; i++)
			acc[i] = fold128(acc[i], by_512, copy128(dst + 16 * i, src + 16 * i, copy));
	for (i = 1; i < 4; i++)
		acc[i] = fold128(acc[i - 1], by_128, acc[i]);
	return finish(acc[3], dst, src, len, copy);
}

static TARGET_PCLMUL uint32_t kernel_pclmul(uint32_t reg, uint8_t *dst, const uint8_t *src,
					    size_t len)
{
	return dst ? pclmul(reg, dst, src, len, true)
		   : pclmul(reg, (uint8_t *)src, src, len, false);
}

static INLINE TARGET_AVX512 __m512i fold512(__m512i x, __m512i factor_pairs, __m512i in)
{
	return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(x, factor_pairs, 0x00),
					 _mm512_clmulepi64_epi128(x, factor_pairs, 0x11), in, 0x96);
}

static INLINE TARGET_AVX512 __m512i copy512(uint8_t *dst, const uint8_t *src, bool copy)
{
	__m512i x = _mm512_loadu_si512(src);

	if (copy)
		_mm512_storeu_si512(dst, x);
	return x;
}

static INLINE TARGET_AVX512 uint32_t avx512(uint32_t reg, uint8_t *dst, const uint8_t *src,
					    size_t len, bool copy)
{
	const __m512i by_512 = _mm512_broadcast_i32x4(load128(factors.by_512));
	__m512i a, b, c, d, by_2048;
	__m128i x = _mm_cvtsi32_si128((int)reg);

	if (len < 64) {
		x = _mm_xor_si128(copy128(dst, src, copy), x);
		return finish(x, dst + 16, src + 16, len - 16, copy);
	}
	a = _mm512_xor_si512(copy512(dst, src, copy), _mm512_zextsi128_si512(x));
	if (len >= 256) {
		by_2048 = _mm512_broadcast_i32x4(load128(factors.by_2048));
		b = copy512(dst + 64, src + 64, copy);
		c = copy512(dst + 128, src + 128, copy);
		d = copy512(dst + 192, src + 192, copy);
		for (len -= 256, src += 256, dst += 256; len >= 256;
		     len -= 256, src += 256, dst += 256) {
			a = fold512(a, by_2048, copy512(dst, src, copy));
			b = fold512(b, by_2048, copy512(dst + 64, src + 64, copy));
			c = fold512(c, by_2048, copy512(dst + 128, src + 128, copy));
			d = fold512(d, by_2048, copy512(dst + 192, src + 192, copy));
		}
		a = fold512(fold512(fold512(a, by_512, b), by_512, c), by_512, d);
	} else {
		len -= 64;
		src += 64;
		dst += 64;
	}
	for (; len >= 64; len -= 64, src += 64, dst += 64)
		a = fold512(a, by_512, copy512(dst, src, copy));

	x = _mm512_extracti32x4_epi32(a, 3);
	a = fold512(a, _mm512_load_si512(factors.lanes), _mm512_setzero_si512());
	x = _mm_xor_si128(x, _mm512_castsi512_si128(a));
	x = _mm_xor_si128(x, _mm512_extracti32x4_epi32(a, 1));
	x = _mm_xor_si128(x, _mm512_extracti32x4_epi32(a, 2));
	return finish(x, dst, src, len, copy);
}

static TARGET_AVX512 uint32_t kernel_avx512(uint32_t reg, uint8_t *dst, const uint8_t *src,
					    size_t len)
{
	return dst ? avx512(reg, dst, src, len, true)
		   : avx512(reg, (uint8_t *)src, src, len, false);
}

static bool have_pclmul(void)
{
	return __builtin_cpu_supports("sse4.1") && __builtin_cpu_supports("pclmul");
}

static bool have_avx512(void)
{
	return have_pclmul() && __builtin_cpu_supports("avx512f") &&
	       __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw") &&
	       __builtin_cpu_supports("vpclmulqdq");
}

static void choose_kernel(void)
{
	__builtin_cpu_init();
	factors_init();
	if (have_avx512())
		kernel = kernel_avx512;
	else if (have_pclmul())
		kernel = kernel_pclmul;
}

bool icrc_use_kernel(enum icrc_kernel which)
{
	if (which == ICRC_KERNEL_AVX512 && have_avx512())
		kernel = kernel_avx512;
	else if (which == ICRC_KERNEL_PCLMUL && have_pclmul())
		kernel = kernel_pclmul;
	else if (which == ICRC_KERNEL_ISAL)
		kernel = kernel_isal;
	else
		return false;
	return true;
}

#else

static void choose_kernel(void)
{
}

bool icrc_use_kernel(enum icrc_kernel which)
{
	return which == ICRC_KERNEL_ISAL;
}

#endif

static void __attribute__((constructor)) crc_init(void)
{
	byte_table_init();
	choose_kernel();
}

uint32_t icrc_update(uint32_t crc, const void *data, size_t len)
{
	if (len < KERNEL_MIN_LEN)
		return ~update_bytes(~crc, NULL, data, len);
	return ~kernel(~crc, NULL, data, len);
}

uint32_t icrc_copy(uint32_t crc, void *dst, const void *src, size_t len)
{
	if (len < KERNEL_MIN_LEN)
		return ~update_bytes(~crc, dst, src, len);
	return ~kernel(~crc, dst, src, len);
}
