/* SPDX-License-Identifier: BSD-2-Clause */
/* test_memory.c: keys, rights, bounds and invalidation of memory regions */
#include "data_fixture.h"

static struct hca_context ctx;
static struct hca_pd pd = { .ctx = &ctx }, other_pd = { .ctx = &ctx };
static uint8_t buffer[4096];

static void make_mr(struct hca_mr *mr, uint64_t iova, int access)
{
	*mr = (struct hca_mr){
		.pd = &pd,
		.addr = buffer,
		.iova = iova,
		.length = sizeof(buffer),
		.access = access,
	};
	assert_int_equal(memory_register(mr), 0);
}

static enum memory_status check(uint32_t key, uint64_t va, uint64_t len, int access)
{
	void *host;

	return memory_translate(key, &pd, va, len, access, true, &host, NULL);
}

static void translates_iova_to_host(void **state)
{
	struct hca_mr mr, *found = NULL;
	void *host = NULL;

	make_mr(&mr, 0x10000, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	assert_int_not_equal(mr.key, 0);
	assert_int_equal(memory_translate(mr.key, &pd, 0x10010, 16, IBV_ACCESS_REMOTE_WRITE, true,
					  &host, &found),
			 MEMORY_OK);
	assert_ptr_equal(host, buffer + 0x10);
	assert_ptr_equal(found, &mr);
	memory_deregister(&mr);
}

static void bounds(void **state)
{
	static const struct {
		uint64_t va, len;
		enum memory_status status;
	} cases[] = {
		{ 0x10000, 4096, MEMORY_OK },
		{ 0x10fff, 1, MEMORY_OK },
		{ 0x10000, 4097, MEMORY_OUT_OF_BOUNDS },
		{ 0xffff, 1, MEMORY_OUT_OF_BOUNDS },
		{ 0x11000, 1, MEMORY_OUT_OF_BOUNDS },
		{ 0x11000, 0, MEMORY_OK },
		{ 0xdead, 0, MEMORY_OK }, /* length 0: key and rights only */
		{ 0x10000, UINT64_MAX, MEMORY_OUT_OF_BOUNDS },
		{ 0xfffffffffffffc00, 0x400, MEMORY_OUT_OF_BOUNDS },   /* sum wraps to 0 */
		{ 0xfffffffffffffc00, 0x10800, MEMORY_OUT_OF_BOUNDS }, /* sum wraps into the MR */
	};
	struct hca_mr mr;

	make_mr(&mr, 0x10000, IBV_ACCESS_REMOTE_READ);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_int_equal(check(mr.key, cases[i].va, cases[i].len, IBV_ACCESS_REMOTE_READ),
				 cases[i].status);
	memory_deregister(&mr);

	/* a region that ends at the top of the address space */
	make_mr(&mr, 0 - (uint64_t)sizeof(buffer), IBV_ACCESS_REMOTE_READ);
	assert_int_equal(check(mr.key, 0xfffffffffffffc00, 0x400, IBV_ACCESS_REMOTE_READ),
			 MEMORY_OK);
	assert_int_equal(check(mr.key, 0xfffffffffffffc00, 0x401, IBV_ACCESS_REMOTE_READ),
			 MEMORY_OUT_OF_BOUNDS);
	memory_deregister(&mr);
}

static void wrong_keys(void **state)
{
	struct hca_mr mr;
	uint32_t stale;
	void *host;

	make_mr(&mr, 0, IBV_ACCESS_REMOTE_READ);
	assert_int_equal(check(0, 0, 1, 0), MEMORY_BAD_KEY);
	assert_int_equal(check(0xffffffff, 0, 1, 0), MEMORY_BAD_KEY);
	assert_int_equal(check(mr.key ^ 1, 0, 1, 0), MEMORY_BAD_KEY);
	assert_int_equal(check(mr.key + 0x100, 0, 1, 0), MEMORY_BAD_KEY);
	assert_int_equal(memory_translate(mr.key, &other_pd, 0, 1, 0, true, &host, NULL),
			 MEMORY_BAD_PD);
	assert_int_equal(check(mr.key, 0, 1, IBV_ACCESS_REMOTE_WRITE), MEMORY_NO_ACCESS);
	assert_int_equal(check(mr.key, 0, 1, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_LOCAL_WRITE),
			 MEMORY_NO_ACCESS);
	stale = mr.key;
	memory_deregister(&mr);
	assert_int_equal(check(stale, 0, 1, 0), MEMORY_BAD_KEY);
}

static void stale_keys_stay_unknown(void **state)
{
	enum { ROUNDS = 20000 };
	uint32_t *stale = calloc(ROUNDS, sizeof(*stale));
	struct hca_mr mr;

	for (int i = 0; i < ROUNDS; i++) {
		make_mr(&mr, 0, IBV_ACCESS_REMOTE_READ);
		for (int k = i > 2000 ? i - 2000 : 0; k < i; k++)
			assert_int_not_equal(stale[k], mr.key);
		stale[i] = mr.key;
		memory_deregister(&mr);
		assert_int_equal(check(stale[i / 2], 0, 1, 0), MEMORY_BAD_KEY);
	}
	free(stale);
}

static void sge_list(void **state)
{
	struct hca_mr mr;
	struct ibv_sge sge[3];
	struct iovec iov[3];
	int n = -1;

	make_mr(&mr, (uintptr_t)buffer, IBV_ACCESS_LOCAL_WRITE);
	sge[0] = (struct ibv_sge){ (uintptr_t)buffer, 16, mr.key };
	sge[1] = (struct ibv_sge){ 0xdead, 0, 0xbad }; /* zero length: key unchecked */
	sge[2] = (struct ibv_sge){ (uintptr_t)buffer + 4095, 1, mr.key };
	assert_int_equal(memory_translate_sge(&pd, sge, 3, IBV_ACCESS_LOCAL_WRITE, iov, &n),
			 MEMORY_OK);
	assert_int_equal(n, 2);
	assert_ptr_equal(iov[1].iov_base, buffer + 4095);
	assert_int_equal(iov[1].iov_len, 1);
	sge[2].length = 2;
	assert_int_equal(memory_translate_sge(&pd, sge, 3, 0, iov, &n), MEMORY_OUT_OF_BOUNDS);
	sge[2].lkey ^= 0x80;
	assert_int_equal(memory_translate_sge(&pd, sge, 3, 0, iov, &n), MEMORY_BAD_KEY);
	memory_deregister(&mr);
}

static void invalidate(void **state)
{
	struct hca_mr mr;
	void *host;

	make_mr(&mr, 0, IBV_ACCESS_REMOTE_READ);
	assert_int_equal(memory_invalidate(mr.key ^ 1, &pd), MEMORY_BAD_KEY);
	assert_int_equal(memory_invalidate(mr.key, &other_pd), MEMORY_BAD_PD);
	assert_int_equal(memory_invalidate(mr.key, &pd), MEMORY_OK);
	assert_int_equal(check(mr.key, 0, 1, IBV_ACCESS_REMOTE_READ), MEMORY_BAD_KEY);
	/* local use goes on */
	assert_int_equal(memory_translate(mr.key, &pd, 0, 1, 0, false, &host, NULL), MEMORY_OK);
	assert_int_equal(memory_invalidate(mr.key, &pd), MEMORY_BAD_KEY);
	memory_deregister(&mr);

	make_mr(&mr, 0, IBV_ACCESS_LOCAL_WRITE); /* no remote right: nothing to invalidate */
	assert_int_equal(memory_invalidate(mr.key, &pd), MEMORY_NO_ACCESS);
	memory_deregister(&mr);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(translates_iova_to_host),
		cmocka_unit_test(bounds),
		cmocka_unit_test(wrong_keys),
		cmocka_unit_test(stale_keys_stay_unknown),
		cmocka_unit_test(sge_list),
		cmocka_unit_test(invalidate),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
