// SPDX-License-Identifier: BSD-2-Clause
/* test_staging.c: runs of pages against a plain array */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "offload/staging.h"
#include "util/bytes.h"

static void test_random(void **state)
{
	enum { MAX_PAGES = 700, MAX_RUNS = 200 };
	static uint8_t model[MAX_PAGES];
	static const uint32_t sizes[] = { 1, 3, 63, 64, 65, 128, 300, MAX_PAGES };
	struct {
		uint32_t first, pages;
	} runs[MAX_RUNS];
	unsigned int seed = 7;

	for (size_t s = 0; s < ARRAY_SIZE(sizes); s++) {
		uint32_t count = sizes[s], used = 0, n = 0;
		struct staging staging;

		memset(model, 0, sizeof(model));
		assert_int_equal(staging_init(&staging, NULL, 4096, count), 0);
		for (int step = 0; step < 5000; step++) {
			if (rand_r(&seed) % 2 && n < MAX_RUNS) {
				uint32_t pages = 1 + rand_r(&seed) % MIN(count, 130), first = ~0U;
				uint32_t run = 0;
				bool possible = false;

				for (uint32_t i = 0; i < count && !possible; i++) {
					run = model[i] ? 0 : run + 1;
					possible = run == pages;
				}
				assert_int_equal(staging_take(&staging, pages, &first), possible);
				if (!possible)
					continue;
				assert_true(first + pages <= count);
				for (uint32_t i = first; i < first + pages; i++)
					assert_int_equal(model[i]++, 0);
				runs[n].first = first;
				runs[n++].pages = pages;
				used += pages;
			} else if (n) {
				uint32_t k = rand_r(&seed) % n;

				staging_give(&staging, runs[k].first, runs[k].pages);
				memset(model + runs[k].first, 0, runs[k].pages);
				used -= runs[k].pages;
				runs[k] = runs[--n];
			}
			assert_int_equal(staging.free_pages, count - used);
		}
		staging_fini(&staging);
	}
}

/* pages used last are used again, while they are in the cache */
static void test_reuse(void **state)
{
	struct staging staging;
	uint32_t first;

	assert_int_equal(staging_init(&staging, (uint8_t *)4096, 4096, 4096), 0);
	for (int i = 0; i < 100; i++) {
		assert_true(staging_take(&staging, 1, &first));
		assert_int_equal(first, 0);
		assert_ptr_equal(staging_addr(&staging, 2), (uint8_t *)4096 + 8192);
		staging_give(&staging, first, 1);
	}
	/* all of it, once all is free */
	assert_true(staging_take(&staging, 4096, &first));
	assert_false(staging_take(&staging, 1, &first));
	staging_give(&staging, 0, 4096);
	assert_int_equal(staging.free_pages, 4096);
	staging_fini(&staging);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_random),
					    cmocka_unit_test(test_reuse) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
