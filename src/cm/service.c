// SPDX-License-Identifier: BSD-2-Clause
/*
 * service.c: the service IDs (port space and port) that this process holds. Other processes'
 * are the port daemon's knowledge; within the process the rules of sockets hold: two ids may have
 * one port when their addresses do not overlap. The daemon knows no "any IPv6 address" apart from
 * "any address", so where the process has one it registers that alone and sorts out the rest
 * itself.
 */
#include "cm/id.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "portd/portd.h"
#include "util/log.h"

struct service {
	struct list_node node;
	uint64_t service_id;
	union ibv_gid gid;
	bool v6only;
	bool in_daemon;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct list_node services = { &services, &services };

static const union ibv_gid any_ipv6;
static const union ibv_gid any_ipv4 = { .raw = { [10] = 0xff, [11] = 0xff } };

static bool covers(const union ibv_gid *any, bool v6only, const union ibv_gid *gid)
{
	if (gid_equal(any, &any_ipv4))
		return gid_is_ipv4(gid);
	if (gid_equal(any, &any_ipv6))
		return !v6only || !gid_is_ipv4(gid);
	return gid_equal(any, gid);
}

static bool overlap(const struct service *a, const struct service *b)
{
	return covers(&a->gid, a->v6only, &b->gid) || covers(&b->gid, b->v6only, &a->gid);
}

static struct service *find_any(uint64_t service_id)
{
	struct list_node *pos;

	list_for_each(pos, &services) {
		struct service *s = list_entry(pos, struct service, node);

		if (s->service_id == service_id && gid_equal(&s->gid, &any_ipv6))
			return s;
	}
	return NULL;
}

static void withdraw(uint64_t service_id)
{
	struct list_node *pos;

	list_for_each(pos, &services) {
		struct service *s = list_entry(pos, struct service, node);

		if (s->service_id != service_id || !s->in_daemon)
			continue;
		portd_unlisten(portd_default(), service_id, &s->gid);
		s->in_daemon = false;
	}
}

static void restore(uint64_t service_id)
{
	struct list_node *pos;

	list_for_each(pos, &services) {
		struct service *s = list_entry(pos, struct service, node);

		if (s->service_id != service_id || s->in_daemon)
			continue;
		s->in_daemon = !portd_listen(portd_default(), service_id, &s->gid);
		if (!s->in_daemon)
			log_warn("lost port %u to another process",
				 (unsigned int)service_id & 0xffff);
	}
}

static int add(struct service *new)
{
	struct list_node *pos;
	int err;

	list_for_each(pos, &services) {
		struct service *s = list_entry(pos, struct service, node);

		if (s->service_id == new->service_id && overlap(s, new))
			return -EADDRINUSE;
	}
	if (find_any(new->service_id))
		return 0; /* arrives anyway */
	if (gid_equal(&new->gid, &any_ipv6))
		withdraw(new->service_id);
	err = portd_listen(portd_default(), new->service_id, &new->gid);
	if (err)
		restore(new->service_id);
	new->in_daemon = !err;
	return err;
}

int service_acquire(uint64_t service_id, const union ibv_gid *gid, bool v6only)
{
	struct service *new = calloc(1, sizeof(*new));
	int err;

	if (!new)
		return -ENOMEM;
	new->service_id = service_id;
	new->gid = *gid;
	new->v6only = v6only;
	pthread_mutex_lock(&lock);
	err = add(new);
	if (!err)
		list_add_tail(&services, &new->node);
	pthread_mutex_unlock(&lock);
	if (err)
		free(new);
	return err;
}

void service_release(uint64_t service_id, const union ibv_gid *gid)
{
	struct list_node *pos;

	pthread_mutex_lock(&lock);
	list_for_each(pos, &services) {
		struct service *s = list_entry(pos, struct service, node);

		if (s->service_id != service_id || !gid_equal(&s->gid, gid))
			continue;
		list_del(&s->node);
		if (s->in_daemon)
			portd_unlisten(portd_default(), service_id, gid);
		if (gid_equal(gid, &any_ipv6))
			restore(service_id);
		free(s);
		break;
	}
	pthread_mutex_unlock(&lock);
}

void service_after_fork(void)
{
	pthread_mutex_init(&lock, NULL);
	list_init(&services);
}
