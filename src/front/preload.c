/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * preload.c: routing of calls between libsofthca.so and the stock libraries; see preload.h. Stock
 * libraries call their own exports through the PLT, so such calls come back here: no lock is held
 * while in stock.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <softhca/softhca.h>
#include "front/preload.h"

typedef void (*function)(void);

struct ibv_device **softhca_ibv_get_device_list(int *num);
void softhca_ibv_free_device_list(struct ibv_device **list);
void softhca_ibv_ack_async_event(struct ibv_async_event *event);
int softhca_ibv_fork_init(void);
int softhca_ibv_dofork_range(void *base, size_t size);
int softhca_ibv_dontfork_range(void *base, size_t size);
struct ibv_context *softhca_ibv_import_device(int cmd_fd);

/* ---- the stock libraries -------------------------------------------------- */

function preload_next(const char *name)
{
	return (function)dlsym(RTLD_NEXT, name);
}

static void *real_dlopen(const char *file, int flags)
{
	return ((void *(*)(const char *, int))preload_next("dlopen"))(file, flags);
}

/* what a foreign object would need and this system has not; no object can come from there */
static int no_stock_library(void)
{
	errno = EOPNOTSUPP;
	return EOPNOTSUPP;
}

static function find_stock(const struct preload_symbol *symbol)
{
	void *found = dlvsym(RTLD_NEXT, symbol->name, symbol->version), *library;

	if (found)
		return (function)found;
	/* the program opens the library itself, or has not yet */
	library = real_dlopen(symbol->library, RTLD_LAZY | RTLD_LOCAL);
	if (!library)
		return NULL;
	return (function)dlvsym(library, symbol->name, symbol->version);
}

static function stock(struct preload_symbol *symbol)
{
	function f = __atomic_load_n(&symbol->stock, __ATOMIC_ACQUIRE);

	if (f)
		return f;
	f = find_stock(symbol);
	if (!f)
		f = (function)no_stock_library;
	__atomic_store_n(&symbol->stock, f, __ATOMIC_RELEASE);
	return f;
}

/* the stock function @name of libibverbs, or NULL */
static function stock_named(const char *name)
{
	for (unsigned int i = 0; i < preload_table_len; i++) {
		if (strcmp(preload_table[i].name, name))
			continue;
		function f = stock(&preload_table[i]);

		return f == (function)no_stock_library ? NULL : f;
	}
	return NULL;
}

/* ---- whose is it ---------------------------------------------------------- */

/* our devices, as they were listed; device objects live as long as the process */
static struct {
	pthread_mutex_t lock;
	struct ibv_device **device;
	size_t count;
} ours = { .lock = PTHREAD_MUTEX_INITIALIZER };

static bool known(const struct ibv_device *device)
{
	for (size_t i = 0; i < ours.count; i++)
		if (ours.device[i] == device)
			return true;
	return false;
}

static void remember(struct ibv_device *device)
{
	struct ibv_device **grown;

	pthread_mutex_lock(&ours.lock);
	if (known(device))
		goto out_unlock;
	grown = realloc(ours.device, (ours.count + 1) * sizeof(*grown));
	if (!grown)
		goto out_unlock;
	ours.device = grown;
	ours.device[ours.count++] = device;
out_unlock:
	pthread_mutex_unlock(&ours.lock);
}

/* a pointer that did not come from our list may also come from an rdma_cm_id: the name tells */
static bool device_is_ours(const struct ibv_device *device)
{
	bool found;

	pthread_mutex_lock(&ours.lock);
	found = known(device);
	pthread_mutex_unlock(&ours.lock);
	return found || !strncmp(device->name, "softhca_", strlen("softhca_"));
}

static bool object_is_ours(const void *object)
{
	return softhca_is_device(*(struct ibv_context *const *)object);
}

static bool names_verbs_library(const char *file)
{
	const char *base;

	if (!file)
		return false;
	base = strrchr(file, '/');
	base = base ? base + 1 : file;
	return !strcmp(base, "libibverbs.so") || !strcmp(base, "libibverbs.so.1") ||
	       !strcmp(base, "librdmacm.so") || !strcmp(base, "librdmacm.so.1");
}

/* for programs that open the library and look up their functions there: they get us */
static void *dlopen_self(const char *file, int flags)
{
	Dl_info info;

	if (!dladdr((void *)dlopen_self, &info))
		return NULL;
	return real_dlopen(info.dli_fname, flags);
}

function preload_target(unsigned int index, void *arg0)
{
	struct preload_symbol *symbol = &preload_table[index];

	if (index == preload_table_len)
		return names_verbs_library(arg0) ? (function)dlopen_self : preload_next("dlopen");
	switch (symbol->route) {
	case ROUTE_CONTEXT:
		return !arg0 || softhca_is_device(arg0) ? symbol->core : stock(symbol);
	case ROUTE_DEVICE:
		return !arg0 || device_is_ours(arg0) ? symbol->core : stock(symbol);
	case ROUTE_OBJECT:
		return !arg0 || object_is_ours(arg0) ? symbol->core : stock(symbol);
	case ROUTE_CORE:
	case ROUTE_SPECIAL:
		break;
	}
	return symbol->core;
}

/* ---- entry points written by hand ----------------------------------------- */

/* ours first, then the stock library's; freed together */
struct merged_list {
	struct ibv_device **core, **stock;
	struct ibv_device *device[];
};

struct ibv_device **preload_ibv_get_device_list(int *num)
{
	typeof(preload_ibv_get_device_list) *stock_list =
		(void *)stock_named("ibv_get_device_list");
	int n_core = 0, n_stock = 0;
	struct ibv_device **core = softhca_ibv_get_device_list(&n_core);
	/* NULL when the kernel has no RDMA subsystem */
	struct ibv_device **more = stock_list ? stock_list(&n_stock) : NULL;
	struct merged_list *list;

	if (!core && !more)
		return NULL;
	if (!core)
		n_core = 0;
	if (!more)
		n_stock = 0;
	list = calloc(1, sizeof(*list) + (n_core + n_stock + 1) * sizeof(list->device[0]));
	if (!list)
		goto out_free;
	list->core = core;
	list->stock = more;
	for (int i = 0; i < n_core; i++) {
		remember(core[i]);
		list->device[i] = core[i];
	}
	for (int i = 0; i < n_stock; i++)
		list->device[n_core + i] = more[i];
	if (num)
		*num = n_core + n_stock;
	return list->device;

out_free:
	if (core)
		softhca_ibv_free_device_list(core);
	if (more)
		((typeof(preload_ibv_free_device_list) *)stock_named("ibv_free_device_list"))(more);
	errno = ENOMEM;
	return NULL;
}

void preload_ibv_free_device_list(struct ibv_device **device)
{
	struct merged_list *list;

	if (!device)
		return;
	list = (void *)((char *)device - offsetof(struct merged_list, device));
	if (list->core)
		softhca_ibv_free_device_list(list->core);
	if (list->stock)
		((typeof(preload_ibv_free_device_list) *)stock_named("ibv_free_device_list"))(
			list->stock);
	free(list);
}

/* the object an event is about, or NULL: a port or the device */
static const void *event_object(const struct ibv_async_event *event)
{
	switch (event->event_type) {
	case IBV_EVENT_CQ_ERR:
		return event->element.cq;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		return event->element.qp;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		return event->element.srq;
	case IBV_EVENT_WQ_FATAL:
		return event->element.wq;
	default:
		return NULL;
	}
}

void preload_ibv_ack_async_event(struct ibv_async_event *event)
{
	typeof(preload_ibv_ack_async_event) *stock_ack;
	const void *object = event_object(event);

	/* events that stock verbs does not know are the extensions' */
	if (!object || object_is_ours(object)) {
		softhca_ibv_ack_async_event(event);
		return;
	}
	stock_ack = (void *)stock_named("ibv_ack_async_event");
	if (stock_ack)
		stock_ack(event);
}

int preload_ibv_fork_init(void)
{
	typeof(preload_ibv_fork_init) *stock_init = (void *)stock_named("ibv_fork_init");
	int ret = softhca_ibv_fork_init();

	/* without an RDMA subsystem in the kernel there is nothing for stock to protect */
	if (stock_init)
		stock_init();
	return ret;
}

int preload_ibv_dofork_range(void *base, size_t size)
{
	typeof(preload_ibv_dofork_range) *stock_range = (void *)stock_named("ibv_dofork_range");
	int ret = softhca_ibv_dofork_range(base, size);

	return !ret && stock_range ? stock_range(base, size) : ret;
}

int preload_ibv_dontfork_range(void *base, size_t size)
{
	typeof(preload_ibv_dontfork_range) *stock_range = (void *)stock_named("ibv_dontfork_range");
	int ret = softhca_ibv_dontfork_range(base, size);

	return !ret && stock_range ? stock_range(base, size) : ret;
}

struct ibv_context *preload_ibv_import_device(int cmd_fd)
{
	typeof(preload_ibv_import_device) *import = (void *)stock_named("ibv_import_device");

	return import ? import(cmd_fd) : softhca_ibv_import_device(cmd_fd);
}
