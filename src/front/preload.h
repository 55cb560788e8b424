/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * preload.h: the interposer, libsofthca-preload.so (`softhca run --preload`): the whole public API
 * of libibverbs and librdmacm in front of the stock libraries. A call on an object of ours goes to
 * libsofthca.so, any other to the stock library. The RDMA CM is ours altogether: an rdma_cm_id
 * belongs to no device when it is made.
 */
#ifndef SOFTHCA_FRONT_PRELOAD_H
#define SOFTHCA_FRONT_PRELOAD_H

#include <stddef.h>
#include <infiniband/verbs.h>

#define PRELOAD_HIDDEN __attribute__((visibility("hidden")))

/* how a call's owner is found; symbols.txt says which for each symbol */
enum preload_route { ROUTE_CONTEXT, ROUTE_DEVICE, ROUTE_OBJECT, ROUTE_CORE, ROUTE_SPECIAL };

struct preload_symbol {
	const char *name, *version, *library;
	enum preload_route route;
	void (*core)(void);
	void (*stock)(void); /* looked up on first use */
};

extern struct preload_symbol preload_table[] PRELOAD_HIDDEN;
extern const unsigned int preload_table_len PRELOAD_HIDDEN;

/**
 * preload_target() - where a call goes. Called by the entry points with the number of the symbol
 * in preload_table and the call's first argument; preload_table_len stands for dlopen().
 */
void (*preload_target(unsigned int index, void *arg0))(void) PRELOAD_HIDDEN;

/* the function that @name means without us, in libc or a later library; NULL: none */
void (*preload_next(const char *name))(void) PRELOAD_HIDDEN;

/* the entry points written by hand */
struct ibv_device **preload_ibv_get_device_list(int *num) PRELOAD_HIDDEN;
void preload_ibv_free_device_list(struct ibv_device **list) PRELOAD_HIDDEN;
void preload_ibv_ack_async_event(struct ibv_async_event *event) PRELOAD_HIDDEN;
int preload_ibv_fork_init(void) PRELOAD_HIDDEN;
int preload_ibv_dofork_range(void *base, size_t size) PRELOAD_HIDDEN;
int preload_ibv_dontfork_range(void *base, size_t size) PRELOAD_HIDDEN;
struct ibv_context *preload_ibv_import_device(int cmd_fd) PRELOAD_HIDDEN;

#endif
