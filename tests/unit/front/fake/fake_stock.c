// SPDX-License-Identifier: BSD-2-Clause
/*
 * fake_stock.c: a stand-in for the stock libibverbs.so.1 with one "hardware" device, so that the
 * interposer's routing can be tested where there is no hardware. Counts calls.
 */
#include <stdlib.h>
#include <string.h>
#include <infiniband/verbs.h>
#include "fake_stock.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT int fake_calls[FAKE_CALLS];

static struct ibv_device hardware = { .name = "fake0", .dev_name = "uverbs0" };
static struct ibv_context context = { .device = &hardware, .abi_compat = NULL };
static struct ibv_pd pd = { .context = &context, .handle = 77 };

EXPORT struct ibv_device **ibv_get_device_list(int *num)
{
	struct ibv_device **list = calloc(2, sizeof(*list));

	fake_calls[FAKE_GET_LIST]++;
	if (!list)
		return NULL;
	list[0] = &hardware;
	if (num)
		*num = 1;
	return list;
}

EXPORT void ibv_free_device_list(struct ibv_device **list)
{
	fake_calls[FAKE_FREE_LIST]++;
	free(list);
}

EXPORT const char *ibv_get_device_name(struct ibv_device *device)
{
	fake_calls[FAKE_NAME]++;
	return device->name;
}

EXPORT struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	fake_calls[FAKE_OPEN]++;
	return device == &hardware ? &context : NULL;
}

EXPORT int ibv_close_device(struct ibv_context *ctx)
{
	fake_calls[FAKE_CLOSE]++;
	return ctx == &context ? 0 : -1;
}

EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *ctx)
{
	fake_calls[FAKE_ALLOC_PD]++;
	return ctx == &context ? &pd : NULL;
}

/* six arguments, to see that all arrive as they were sent */
EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *p, void *addr, size_t length, uint64_t iova,
				       unsigned int access)
{
	static struct ibv_mr mr;

	fake_calls[FAKE_REG_MR]++;
	mr = (struct ibv_mr){ .context = p->context,
			      .pd = p,
			      .addr = addr,
			      .length = length,
			      .lkey = (uint32_t)iova,
			      .rkey = access };
	return &mr;
}

EXPORT int ibv_dealloc_pd(struct ibv_pd *p)
{
	fake_calls[FAKE_DEALLOC_PD]++;
	return p == &pd ? 0 : 1;
}

/* a device event, a CQ event: the second only must come here */
EXPORT void ibv_ack_async_event(struct ibv_async_event *event)
{
	fake_calls[FAKE_ACK_EVENT]++;
}
