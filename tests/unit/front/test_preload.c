// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_preload.c: the interposer between a program and a (made-up) stock library: whose object a
 * call is for decides where it goes. Run with LD_PRELOAD at the interposer.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <infiniband/verbs.h>
#include "fake/fake_stock.h"

static struct ibv_device *find(const char *prefix)
{
	struct ibv_device **list = ibv_get_device_list(NULL), *found = NULL;

	assert_non_null(list);
	for (int i = 0; list[i] && !found; i++)
		if (!strncmp(list[i]->name, prefix, strlen(prefix)))
			found = list[i];
	ibv_free_device_list(list);
	return found;
}

static void list_has_both(void **state)
{
	int before = fake_calls[FAKE_FREE_LIST], num = -1, count = 0;
	struct ibv_device **list = ibv_get_device_list(&num);

	assert_non_null(list);
	while (list[count])
		count++;
	assert_int_equal(num, count);
	ibv_free_device_list(list);
	assert_int_equal(fake_calls[FAKE_FREE_LIST], before + 1);
	assert_non_null(find("fake0"));
	assert_non_null(find("softhca_lo"));
}

static void hardware_calls_go_to_stock(void **state)
{
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_mr *mr;

	assert_string_equal(ibv_get_device_name(find("fake0")), "fake0");
	assert_int_equal(fake_calls[FAKE_NAME], 1);
	context = ibv_open_device(find("fake0"));
	assert_non_null(context);
	pd = ibv_alloc_pd(context);
	assert_non_null(pd);
	assert_int_equal(pd->handle, 77);
	mr = ibv_reg_mr_iova2(pd, (void *)0x1234000, 4096, 0x55aa, 7);
	assert_non_null(mr);
	assert_ptr_equal(mr->pd, pd);
	assert_ptr_equal(mr->addr, (void *)0x1234000);
	assert_int_equal(mr->length, 4096);
	assert_int_equal(mr->lkey, 0x55aa);
	assert_int_equal(mr->rkey, 7);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	assert_int_equal(ibv_close_device(context), 0);
	assert_int_equal(fake_calls[FAKE_OPEN], 1);
	assert_int_equal(fake_calls[FAKE_ALLOC_PD], 1);
	assert_int_equal(fake_calls[FAKE_REG_MR], 1);
	assert_int_equal(fake_calls[FAKE_DEALLOC_PD], 1);
	assert_int_equal(fake_calls[FAKE_CLOSE], 1);
}

static void our_calls_do_not(void **state)
{
	int before[FAKE_CALLS];
	struct ibv_context *context;
	struct ibv_pd *pd;

	memcpy(before, fake_calls, sizeof(before));
	context = ibv_open_device(find("softhca_lo"));
	assert_non_null(context);
	pd = ibv_alloc_pd(context);
	assert_non_null(pd);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	assert_int_equal(ibv_close_device(context), 0);
	assert_int_equal(fake_calls[FAKE_OPEN], before[FAKE_OPEN]);
	assert_int_equal(fake_calls[FAKE_ALLOC_PD], before[FAKE_ALLOC_PD]);
	assert_int_equal(fake_calls[FAKE_DEALLOC_PD], before[FAKE_DEALLOC_PD]);
	assert_int_equal(fake_calls[FAKE_CLOSE], before[FAKE_CLOSE]);
}

static void events_go_to_their_object(void **state)
{
	struct ibv_context *context = ibv_open_device(find("fake0"));
	struct ibv_cq cq = { .context = context };
	struct ibv_async_event about_cq = { .element.cq = &cq, .event_type = IBV_EVENT_CQ_ERR };
	struct ibv_async_event about_port = { .element.port_num = 1,
					      .event_type = IBV_EVENT_PORT_ACTIVE };

	ibv_ack_async_event(&about_cq);
	assert_int_equal(fake_calls[FAKE_ACK_EVENT], 1);
	ibv_ack_async_event(&about_port);
	assert_int_equal(fake_calls[FAKE_ACK_EVENT], 1);
}

/* what NCCL does */
static void dlopen_gets_the_interposer(void **state)
{
	void *library = dlopen("libibverbs.so.1", RTLD_NOW);
	struct ibv_device **(*get_list)(int *);
	void (*free_list)(struct ibv_device **);
	struct ibv_device **list;
	int num, ours = 0;

	assert_non_null(library);
	get_list = (struct ibv_device * *(*)(int *))
		dlvsym(library, "ibv_get_device_list", "IBVERBS_1.1");
	free_list = (void (*)(struct ibv_device **))dlvsym(library, "ibv_free_device_list",
							   "IBVERBS_1.1");
	assert_non_null(get_list);
	assert_non_null(free_list);
	list = get_list(&num);
	assert_non_null(list);
	for (int i = 0; i < num; i++)
		ours += !strncmp(list[i]->name, "softhca_", 8);
	free_list(list);
	assert_true(ours > 0);
	dlclose(library);
	assert_null(dlopen("libnosuch-softhca-test.so", RTLD_NOW));
}

static void read_line(const char *path, char *text, size_t len)
{
	FILE *f = fopen(path, "r");

	assert_non_null(f);
	assert_non_null(fgets(text, (int)len, f));
	fclose(f);
}

/* UCX wants a character device; it and NCCL read the GID's type and interface */
static void sysfs_is_answered(void **state)
{
	struct ibv_device *device = find("softhca_lo");
	char path[256], text[64], dir[] = "/sys/class/infiniband/softhca_lo";
	struct stat st;
	int fd;

	snprintf(path, sizeof(path), "/dev/infiniband/%s", device->dev_name);
	assert_int_equal(stat(path, &st), 0);
	assert_true(S_ISCHR(st.st_mode));
	assert_int_equal(access(path, R_OK | W_OK), 0);
	assert_int_equal(stat(dir, &st), 0);
	assert_true(S_ISDIR(st.st_mode));
	snprintf(path, sizeof(path), "%s/ports/1/gid_attrs/types/0", dir);
	read_line(path, text, sizeof(text));
	assert_string_equal(text, "RoCE v2\n");
	snprintf(path, sizeof(path), "%s/ports/1/gid_attrs/ndevs/0", dir);
	read_line(path, text, sizeof(text));
	assert_string_equal(text, "lo\n");
	snprintf(path, sizeof(path), "%s/ports/1/state", dir);
	fd = open(path, O_RDONLY);
	assert_true(fd >= 0);
	assert_int_equal(read(fd, text, 9), 9);
	assert_memory_equal(text, "4: ACTIVE", 9);
	close(fd);
	snprintf(path, sizeof(path), "%s/device/net/lo", dir);
	assert_int_equal(access(path, F_OK), 0);
	assert_non_null(realpath(dir, path));
	assert_int_equal(stat("/sys/class/infiniband/softhca_nosuch", &st), -1);
	assert_int_equal(stat("/dev/infiniband/nosuch", &st), -1);
	assert_int_equal(stat("/sys/class/net/lo", &st), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(list_has_both),
		cmocka_unit_test(hardware_calls_go_to_stock),
		cmocka_unit_test(our_calls_do_not),
		cmocka_unit_test(events_go_to_their_object),
		cmocka_unit_test(dlopen_gets_the_interposer),
		cmocka_unit_test(sysfs_is_answered),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
