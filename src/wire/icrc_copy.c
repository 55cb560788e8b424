// SPDX-License-Identifier: BSD-2-Clause
/*
 * icrc_copy.c: copy and CRC in one pass over memory, by carry-less multiplication.
 *
 * A register of n bits stands for a polynomial that is congruent to the message so far. Multiplying
 * its two 64-bit halves by x^(D + 32) and x^(D - 32) mod P moves it D bits further along the
 * message, where it is XORed into what stands there ("folding"; Gopal et al., "Fast CRC
 * Computation for Generic Polynomials Using PCLMULQDQ Instruction"). Everything is reflected, so a
 * product of two 64-bit halves comes out one bit too low, and the factors are shifted left by one
 * to make up for it.
 */
#include <immintrin.h>
#include <isa-l/crc.h>
#include <string.h>

#include "wire/gf2.h"
#include "wire/icrc.h"

#define BLOCK 64 /* bytes the kernels work in */

/* below this the set-up costs more than the second pass */
#define FUSED_MIN_LEN 64

/* takes and returns the register itself, not inverted; @len: a multiple of BLOCK, not 0 */
typedef uint32_t (*kernel_fn)(uint32_t reg, uint8_t *dst, const uint8_t *src, size_t len);

static uint32_t kernel_isal(uint32_t reg, uint8_t *dst, const uint8_t *src, size_t len)
{
	memcpy(dst, src, len);
	return ~crc32_gzip_refl(~reg, dst, len);
}

static kernel_fn kernel = kernel_isal;

#if defined(__x86_64__)

/* {low, high} factors that move 128 bits by so many bits */
static struct fold_factors {
	uint64_t by_128[2], by_512[2], by_2048[2];
	uint64_t lanes[8]; /* bring lanes 0..2 of 512 bits together with lane 3 */
	uint64_t x_64;
} factors __attribute__((aligned(64)));

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

#define TARGET_PCLMUL __attribute__((target("sse4.1,pclmul")))
#define TARGET_AVX512 __attribute__((target("sse4.1,pclmul,avx512f,avx512vl,avx512bw,vpclmulqdq")))

static inline TARGET_PCLMUL __m128i fold128(__m128i x, __m128i factor_pair)
{
	return _mm_xor_si128(_mm_clmulepi64_si128(x, factor_pair, 0x00),
			     _mm_clmulepi64_si128(x, factor_pair, 0x11));
}

/* 128 bits to the register: 128 -> 96 -> 64 bits, then Barrett's division */
static inline TARGET_PCLMUL uint32_t reduce128(__m128i x)
{
	const __m128i low32 = _mm_set_epi32(0, 0, 0, -1);
	const __m128i by_128 = _mm_load_si128((const __m128i *)factors.by_128);
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

static TARGET_PCLMUL uint32_t kernel_pclmul(uint32_t reg, uint8_t *dst, const uint8_t *src,
					    size_t len)
{
	const __m128i by_512 = _mm_load_si128((const __m128i *)factors.by_512);
	const __m128i by_128 = _mm_load_si128((const __m128i *)factors.by_128);
	__m128i acc[4], in;
	int i;

	for (i = 0; i < 4; i++) {
		acc[i] = _mm_loadu_si128((const __m128i *)(src + 16 * i));
		_mm_storeu_si128((__m128i *)(dst + 16 * i), acc[i]);
	}
	acc[0] = _mm_xor_si128(acc[0], _mm_cvtsi32_si128((int)reg));
	while (len -= BLOCK) {
		src += BLOCK;
		dst += BLOCK;
		for (i = 0; i < 4; i++) {
			in = _mm_loadu_si128((const __m128i *)(src + 16 * i));
			_mm_storeu_si128((__m128i *)(dst + 16 * i), in);
			acc[i] = _mm_xor_si128(fold128(acc[i], by_512), in);
		}
	}
	for (i = 1; i < 4; i++)
		acc[i] = _mm_xor_si128(acc[i], fold128(acc[i - 1], by_128));
	return reduce128(acc[3]);
}

/* fold @x and XOR @in */
static inline TARGET_AVX512 __m512i fold512(__m512i x, __m512i factor_pairs, __m512i in)
{
	return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(x, factor_pairs, 0x00),
					 _mm512_clmulepi64_epi128(x, factor_pairs, 0x11), in, 0x96);
}

static inline TARGET_AVX512 __m512i copy512(uint8_t *dst, const uint8_t *src)
{
	__m512i x = _mm512_loadu_si512(src);

	_mm512_storeu_si512(dst, x);
	return x;
}

static TARGET_AVX512 uint32_t kernel_avx512(uint32_t reg, uint8_t *dst, const uint8_t *src,
					    size_t len)
{
	const __m512i by_512 =
		_mm512_broadcast_i32x4(_mm_load_si128((const __m128i *)factors.by_512));
	__m512i a, b, c, d, by_2048;
	__m128i x;

	a = _mm512_xor_si512(copy512(dst, src),
			     _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)reg)));
	if (len >= 4 * BLOCK) {
		by_2048 = _mm512_broadcast_i32x4(_mm_load_si128((const __m128i *)factors.by_2048));
		b = copy512(dst + BLOCK, src + BLOCK);
		c = copy512(dst + 2 * BLOCK, src + 2 * BLOCK);
		d = copy512(dst + 3 * BLOCK, src + 3 * BLOCK);
		for (len -= 4 * BLOCK, src += 4 * BLOCK, dst += 4 * BLOCK; len >= 4 * BLOCK;
		     len -= 4 * BLOCK, src += 4 * BLOCK, dst += 4 * BLOCK) {
			a = fold512(a, by_2048, copy512(dst, src));
			b = fold512(b, by_2048, copy512(dst + BLOCK, src + BLOCK));
			c = fold512(c, by_2048, copy512(dst + 2 * BLOCK, src + 2 * BLOCK));
			d = fold512(d, by_2048, copy512(dst + 3 * BLOCK, src + 3 * BLOCK));
		}
		a = fold512(fold512(fold512(a, by_512, b), by_512, c), by_512, d);
	} else {
		len -= BLOCK;
		src += BLOCK;
		dst += BLOCK;
	}
	for (; len; len -= BLOCK, src += BLOCK, dst += BLOCK)
		a = fold512(a, by_512, copy512(dst, src));

	x = _mm512_extracti32x4_epi32(a, 3);
	a = fold512(a, _mm512_load_si512(factors.lanes), _mm512_setzero_si512());
	x = _mm_xor_si128(x, _mm512_castsi512_si128(a));
	x = _mm_xor_si128(x, _mm512_extracti32x4_epi32(a, 1));
	x = _mm_xor_si128(x, _mm512_extracti32x4_epi32(a, 2));
	return reduce128(x);
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

static void __attribute__((constructor)) choose_kernel(void)
{
	__builtin_cpu_init();
	factors_init();
	if (have_avx512())
		kernel = kernel_avx512;
	else if (have_pclmul())
		kernel = kernel_pclmul;
}

bool icrc_copy_use(enum icrc_copy_kernel which)
{
	if (which == ICRC_COPY_AVX512 && have_avx512())
		kernel = kernel_avx512;
	else if (which == ICRC_COPY_PCLMUL && have_pclmul())
		kernel = kernel_pclmul;
	else if (which == ICRC_COPY_ISAL)
		kernel = kernel_isal;
	else
		return false;
	return true;
}

#else

bool icrc_copy_use(enum icrc_copy_kernel which)
{
	return which == ICRC_COPY_ISAL;
}

#endif

uint32_t icrc_copy(uint32_t crc, void *dst, const void *src, size_t len)
{
	size_t blocks = len & ~(size_t)(BLOCK - 1);

	if (len >= FUSED_MIN_LEN)
		crc = ~kernel(~crc, dst, src, blocks);
	else
		blocks = 0;
	if (len == blocks)
		return crc;
	memcpy((uint8_t *)dst + blocks, (const uint8_t *)src + blocks, len - blocks);
	return crc32_gzip_refl(crc, (const uint8_t *)dst + blocks, len - blocks);
}
