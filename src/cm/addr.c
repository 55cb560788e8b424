// SPDX-License-Identifier: BSD-2-Clause
/*
 * addr.c: from IP addresses to devices, GIDs and paths. The host's own routing decides: a UDP
 * socket is connected to the destination and asked for its local address; no packet is sent.
 */
#include "cm/id.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hca/context.h"
#include "util/log.h"
#include "verbs/device.h"

#define EPHEMERAL_FIRST	 32768
#define EPHEMERAL_COUNT	 28232
#define EPHEMERAL_TRIES	 64
#define PATH_LIFE_TIME	 16 /* 0.27 s, what newer Linux has for RoCE */
#define DEFAULT_HOPS	 64
#define SELECTOR_EXACTLY 2

/* ---- addresses -------------------------------------------------------------------- */

union ibv_gid gid_from_sockaddr(const struct sockaddr *addr)
{
	const struct sockaddr_in *in = (const void *)addr;
	const struct sockaddr_in6 *in6 = (const void *)addr;
	union ibv_gid gid = { 0 };

	if (addr->sa_family == AF_INET6) {
		memcpy(gid.raw, &in6->sin6_addr, 16);
		return gid;
	}
	gid.raw[10] = gid.raw[11] = 0xff;
	memcpy(gid.raw + 12, &in->sin_addr, 4);
	return gid;
}

void sockaddr_from_gid(struct sockaddr_storage *addr, const union ibv_gid *gid, uint16_t port,
		       uint32_t scope)
{
	struct sockaddr_in *in = (void *)addr;
	struct sockaddr_in6 *in6 = (void *)addr;

	memset(addr, 0, sizeof(*addr));
	if (gid_is_ipv4(gid)) {
		in->sin_family = AF_INET;
		in->sin_port = htons(port);
		memcpy(&in->sin_addr, gid->raw + 12, 4);
		return;
	}
	in6->sin6_family = AF_INET6;
	in6->sin6_port = htons(port);
	memcpy(&in6->sin6_addr, gid->raw, 16);
	if (IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr))
		in6->sin6_scope_id = scope;
}

static bool sockaddr_is_ip(const struct sockaddr *addr)
{
	return addr->sa_family == AF_INET || addr->sa_family == AF_INET6;
}

/* 0 for what has no port; the field is at the same place in both families */
uint16_t sockaddr_port(const struct sockaddr *addr)
{
	const struct sockaddr_in *in = (const void *)addr;

	return sockaddr_is_ip(addr) ? ntohs(in->sin_port) : 0;
}

static void sockaddr_set_port(struct sockaddr *addr, uint16_t port)
{
	struct sockaddr_in *in = (void *)addr;

	in->sin_port = htons(port);
}

bool sockaddr_is_any(const struct sockaddr *addr)
{
	const struct sockaddr_in *in = (const void *)addr;
	const struct sockaddr_in6 *in6 = (const void *)addr;

	if (addr->sa_family == AF_INET)
		return in->sin_addr.s_addr == INADDR_ANY;
	return IN6_IS_ADDR_UNSPECIFIED(&in6->sin6_addr);
}

socklen_t sockaddr_len(const struct sockaddr *addr)
{
	return addr->sa_family == AF_INET ? sizeof(struct sockaddr_in)
					  : sizeof(struct sockaddr_in6);
}

uint32_t sockaddr_scope(const struct sockaddr *addr)
{
	const struct sockaddr_in6 *in6 = (const void *)addr;

	return addr->sa_family == AF_INET6 ? in6->sin6_scope_id : 0;
}

static void set_src(struct cm_id *id, const struct sockaddr *addr)
{
	memcpy(&id->id.route.addr.src_storage, addr, sockaddr_len(addr));
}

static void set_dst(struct cm_id *id, const struct sockaddr *addr)
{
	memcpy(&id->id.route.addr.dst_storage, addr, sockaddr_len(addr));
}

static struct sockaddr *src_of(struct cm_id *id)
{
	return &id->id.route.addr.src_addr;
}

static struct sockaddr *dst_of(struct cm_id *id)
{
	return &id->id.route.addr.dst_addr;
}

/* ---- devices ------------------------------------------------------------------------ */

/* the protection domain that ids of a device share unless the application brings its own */
struct default_pd {
	struct default_pd *next;
	struct ibv_device *device;
	struct ibv_pd *pd;
};

static pthread_mutex_t pds_lock = PTHREAD_MUTEX_INITIALIZER;
static struct default_pd *pds;

void addr_before_fork(void)
{
	pthread_mutex_lock(&pds_lock);
}

void addr_after_fork(bool child)
{
	while (child && pds) {
		struct default_pd *next = pds->next;

		free(pds); /* the PD itself is of the parent's adapter */
		pds = next;
	}
	pthread_mutex_unlock(&pds_lock);
}

static struct ibv_pd *default_pd(struct ibv_device *device, struct ibv_context *context)
{
	struct default_pd *entry;

	pthread_mutex_lock(&pds_lock);
	for (entry = pds; entry; entry = entry->next)
		if (entry->device == device)
			break;
	if (!entry) {
		entry = calloc(1, sizeof(*entry));
		if (!entry)
			goto out_unlock;
		entry->device = device;
		entry->pd = softhca_ibv_alloc_pd(context);
		if (!entry->pd) {
			free(entry);
			entry = NULL;
			goto out_unlock;
		}
		entry->next = pds;
		pds = entry;
	}
out_unlock:
	pthread_mutex_unlock(&pds_lock);
	return entry ? entry->pd : NULL;
}

int id_attach_device(struct cm_id *id, const union ibv_gid *gid, uint32_t ifindex)
{
	struct ibv_device *device = device_by_gid(gid, ifindex);
	struct ibv_context *context;
	struct ibv_pd *pd;

	if (!device)
		return ENODEV;
	context = device_cm_context(device);
	if (!context)
		return errno ? errno : ENODEV;
	pd = default_pd(device, context);
	if (!pd)
		return errno ? errno : ENOMEM;
	id->device = device;
	id->sgid = *gid;
	id->id.verbs = context;
	id->id.port_num = 1;
	id->id.pd = pd;
	id->id.route.addr.addr.ibaddr.sgid = *gid;
	id->id.route.addr.addr.ibaddr.pkey = htobe16(0xffff);
	return 0;
}

/* ---- service IDs --------------------------------------------------------------------- */

static int register_port(struct cm_id *id, uint16_t port)
{
	const struct sockaddr *addr = src_of(id);
	union ibv_gid gid = gid_from_sockaddr(addr);
	uint64_t service_id = cma_service_id((uint16_t)id->id.ps, port);
	int err = service_acquire(service_id, &gid, id->v6only);

	if (err)
		return -err;
	id->registered = true;
	id->registered_gid = gid;
	id->registered_service = service_id;
	sockaddr_set_port(src_of(id), port);
	return 0;
}

static uint16_t ephemeral_port(void)
{
	return (uint16_t)(EPHEMERAL_FIRST + cm_random() % EPHEMERAL_COUNT);
}

int id_register(struct cm_id *id)
{
	uint16_t port = sockaddr_port(src_of(id));
	int err = EADDRINUSE;

	if (id->registered)
		return 0;
	if (port)
		return register_port(id, port);
	for (int i = 0; i < EPHEMERAL_TRIES && err == EADDRINUSE; i++)
		err = register_port(id, ephemeral_port());
	return err;
}

void id_unregister(struct cm_id *id)
{
	if (!id->registered)
		return;
	service_release(id->registered_service, &id->registered_gid, id->state == ID_LISTEN);
	id->registered = false;
	cm_kick();
}

/* ---- bind ------------------------------------------------------------------------------ */

/* the address is this host's; Return: 0 or errno */
static int check_local(const struct sockaddr *addr)
{
	struct sockaddr_storage copy = { 0 };
	int fd = socket(addr->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int err = 0;

	if (fd < 0)
		return errno;
	memcpy(&copy, addr, sockaddr_len(addr));
	sockaddr_set_port((struct sockaddr *)&copy, 0);
	if (bind(fd, (struct sockaddr *)&copy, sockaddr_len(addr)))
		err = errno;
	close(fd);
	return err;
}

static int bind_id(struct cm_id *id, const struct sockaddr *addr)
{
	int err = 0;

	if (!sockaddr_is_any(addr)) {
		union ibv_gid gid = gid_from_sockaddr(addr);

		err = check_local(addr);
		if (!err)
			err = id_attach_device(id, &gid, sockaddr_scope(addr));
		if (err)
			return err;
	}
	set_src(id, addr);
	/* several ids may bind one address with REUSEADDR; listening is what has to be unique */
	if (!id->reuse_addr || !sockaddr_port(addr))
		err = id_register(id);
	if (err)
		return err;
	id->state = ID_BOUND;
	return 0;
}

int softhca_rdma_bind_addr(struct rdma_cm_id *rdma_id, struct sockaddr *addr)
{
	struct cm_id *id;

	if (!rdma_id || !addr)
		return cm_error(EINVAL);
	id = to_cm_id(rdma_id);
	if (id->state != ID_IDLE)
		return cm_error(EINVAL);
	if (!sockaddr_is_ip(addr))
		return cm_error(EAFNOSUPPORT);
	return cm_error(bind_id(id, addr));
}

/* ---- resolve ------------------------------------------------------------------------------ */

/* which of our addresses packets to @dst leave from. @src: wanted, or NULL. Return: 0 or errno */
static int route_lookup(const struct sockaddr *dst, const struct sockaddr *src,
			struct sockaddr_storage *local)
{
	struct sockaddr_storage to = { 0 };
	socklen_t len = sizeof(*local);
	int fd = socket(dst->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int err = 0;

	if (fd < 0)
		return errno;
	memset(local, 0, sizeof(*local));
	if (src && !sockaddr_is_any(src)) {
		memcpy(local, src, sockaddr_len(src));
		sockaddr_set_port((struct sockaddr *)local, 0);
		if (bind(fd, (struct sockaddr *)local, sockaddr_len(src)))
			goto out_errno;
	}
	memcpy(&to, dst, sockaddr_len(dst));
	if (!sockaddr_port(dst))
		sockaddr_set_port((struct sockaddr *)&to, 1);
	if (connect(fd, (struct sockaddr *)&to, sockaddr_len(dst)) ||
	    getsockname(fd, (struct sockaddr *)local, &len))
		goto out_errno;
	goto out_close;

out_errno:
	err = errno;
out_close:
	close(fd);
	return err;
}

/* "any" as a destination is this host, as it is for sockets */
static void any_to_loopback(struct sockaddr *addr)
{
	if (!sockaddr_is_any(addr))
		return;
	if (addr->sa_family == AF_INET)
		((struct sockaddr_in *)addr)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	else
		((struct sockaddr_in6 *)addr)->sin6_addr = in6addr_loopback;
}

static int resolve(struct cm_id *id)
{
	const struct sockaddr *bound = id->state == ID_BOUND ? src_of(id) : NULL;
	uint16_t port = bound ? sockaddr_port(bound) : 0;
	struct sockaddr_storage local;
	union ibv_gid gid;
	int err;

	any_to_loopback(dst_of(id));
	err = route_lookup(dst_of(id), bound, &local);
	if (err)
		return err;
	gid = gid_from_sockaddr((struct sockaddr *)&local);
	err = id_attach_device(id, &gid, sockaddr_scope((struct sockaddr *)&local));
	if (err)
		return err;
	sockaddr_set_port((struct sockaddr *)&local, port ? port : ephemeral_port());
	set_src(id, (struct sockaddr *)&local);
	id->id.route.addr.addr.ibaddr.dgid = gid_from_sockaddr(dst_of(id));
	id->state = ID_ADDR_RESOLVED;
	return 0;
}

int softhca_rdma_resolve_addr(struct rdma_cm_id *rdma_id, struct sockaddr *src_addr,
			      struct sockaddr *dst_addr, int timeout_ms)
{
	struct cm_id *id;
	int err;

	if (!rdma_id || !dst_addr || !sockaddr_is_ip(dst_addr))
		return cm_error(EINVAL);
	id = to_cm_id(rdma_id);
	if (id->state != ID_IDLE && id->state != ID_BOUND)
		return cm_error(EINVAL);
	if (src_addr && src_addr->sa_family != dst_addr->sa_family)
		return cm_error(EINVAL);
	if (id->state == ID_BOUND && src_of(id)->sa_family != dst_addr->sa_family)
		return cm_error(EINVAL);
	if (id->state == ID_IDLE && src_addr && sockaddr_port(src_addr)) {
		err = bind_id(id, src_addr);
		if (err)
			return cm_error(err);
	} else if (id->state == ID_IDLE && src_addr) {
		set_src(id, src_addr);
		id->state = ID_BOUND; /* a port is chosen below, only for show */
	}
	set_dst(id, dst_addr);
	err = resolve(id);
	if (err)
		log_debug("cm: no address or device towards the destination: %s", strerror(err));
	cm_lock();
	event_post(id, NULL, err ? RDMA_CM_EVENT_ADDR_ERROR : RDMA_CM_EVENT_ADDR_RESOLVED, -err,
		   NULL, NULL, 0);
	cm_unlock();
	return event_complete(id);
}

int id_fill_route(struct cm_id *id)
{
	struct ibv_sa_path_rec *path = calloc(1, sizeof(*path));
	uint32_t flow = sockaddr_port(src_of(id)) * 31U + sockaddr_port(dst_of(id));

	if (!path)
		return ENOMEM;
	path->sgid = id->sgid;
	path->dgid = id->id.route.addr.addr.ibaddr.dgid;
	path->flow_label = htobe32(flow & 0xfffff);
	path->hop_limit = DEFAULT_HOPS;
	path->traffic_class = id->tos;
	path->reversible = 1;
	path->numb_path = 1;
	path->pkey = htobe16(0xffff);
	path->mtu_selector = SELECTOR_EXACTLY;
	path->mtu = (uint8_t)device_active_mtu(id->device);
	path->rate_selector = SELECTOR_EXACTLY;
	path->rate = IBV_RATE_10_GBPS;
	path->packet_life_time_selector = SELECTOR_EXACTLY;
	path->packet_life_time = PATH_LIFE_TIME;
	free(id->id.route.path_rec);
	id->id.route.path_rec = path;
	id->id.route.num_paths = 1;
	return 0;
}

int softhca_rdma_resolve_route(struct rdma_cm_id *rdma_id, int timeout_ms)
{
	struct cm_id *id;
	int err;

	if (!rdma_id)
		return cm_error(EINVAL);
	id = to_cm_id(rdma_id);
	if (id->state != ID_ADDR_RESOLVED)
		return cm_error(EINVAL);
	err = id_fill_route(id);
	if (err)
		return cm_error(err);
	id->state = ID_ROUTE_RESOLVED;
	cm_lock();
	event_post(id, NULL, RDMA_CM_EVENT_ROUTE_RESOLVED, 0, NULL, NULL, 0);
	cm_unlock();
	return event_complete(id);
}
