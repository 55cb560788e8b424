// SPDX-License-Identifier: BSD-2-Clause
/*
 * service.c: the service IDs (port space and port) that this process holds. Other processes'
 * are the port daemon's knowledge; within the process the rules of sockets hold: two ids may have
 * one port when their addresses do not overlap. The daemon knows no "any IPv6 address" apart from
 * "any address", so where the process has one it registers that alone and sorts out the rest
 * itself.
 *
 * The service ID of a listener that went away is held for CM_HOLD_NS more, so that a REQ which
 * meets a program between two listens is not refused (cm_hold.c). Another process that wants it
 * meanwhile waits for as long.
 */
#include "cm/id.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "portd/portd.h"
#include "util/clock.h"
#include "util/log.h"

#define RETRY_NS (10 * NSEC_PER_MSEC)

struct service {
	struct list_node node;
	uint64_t service_id;
	union ibv_gid gid;
	bool v6only;
	bool in_daemon;
	uint64_t linger_until_ns; /* 0 = in use */
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

static void remove_service(struct service *s)
{
	uint64_t service_id = s->service_id;
	bool any = gid_equal(&s->gid, &any_ipv6);

	list_del(&s->node);
	if (s->in_daemon)
		portd_unlisten(portd_default(), service_id, &s->gid);
	free(s);
	if (any)
		restore(service_id);
}

/* the daemon's word on a service ID; another process may hold it for a moment only */
static int ask_daemon(uint64_t service_id, const union ibv_gid *gid)
{
	uint64_t give_up_ns = clock_ns() + CM_HOLD_NS + RETRY_NS;
	int err;

	do {
		err = portd_listen(portd_default(), service_id, gid);
		if (err != -EADDRINUSE)
			return err;
		usleep(RETRY_NS / NSEC_PER_USEC);
	} while (clock_ns() < give_up_ns);
	return err;
}

static int add(struct service *new)
{
	struct list_node *pos, *tmp;
	int err;

	list_for_each_safe(pos, tmp, &services) {
		struct service *s = list_entry(pos, struct service, node);

		if (s->service_id != new->service_id || !overlap(s, new))
			continue;
		if (!s->linger_until_ns)
			return -EADDRINUSE;
		if (gid_equal(&s->gid, &new->gid)) {
			new->in_daemon = s->in_daemon;
			list_del(&s->node);
			free(s);
			return 0;
		}
		remove_service(s);
	}
	if (find_any(new->service_id))
		return 0; /* arrives anyway */
	if (gid_equal(&new->gid, &any_ipv6))
		withdraw(new->service_id);
	err = ask_daemon(new->service_id, &new->gid);
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

void service_release(uint64_t service_id, const union ibv_gid *gid, bool linger)
{
	struct list_node *pos, *tmp;

	pthread_mutex_lock(&lock);
	list_for_each_safe(pos, tmp, &services) {
		struct service *s = list_entry(pos, struct service, node);

		if (s->service_id != service_id || s->linger_until_ns || !gid_equal(&s->gid, gid))
			continue;
		if (linger)
			s->linger_until_ns = clock_ns() + CM_HOLD_NS;
		else
			remove_service(s);
		break;
	}
	pthread_mutex_unlock(&lock);
}

bool service_is_held(uint64_t service_id, const union ibv_gid *gid)
{
	struct list_node *pos;
	bool held = false;

	/* waiting could be waiting for the thread we are on (ask_daemon) */
	if (pthread_mutex_trylock(&lock))
		return true;
	list_for_each(pos, &services) {
		struct service *s = list_entry(pos, struct service, node);

		if (s->service_id == service_id && covers(&s->gid, s->v6only, gid))
			held = true;
	}
	pthread_mutex_unlock(&lock);
	return held;
}

uint64_t service_expire(uint64_t now_ns)
{
	struct list_node *pos, *tmp;
	uint64_t next = 0;

	/* the caller has timers to run; somebody may be waiting for the daemon here */
	if (pthread_mutex_trylock(&lock))
		return now_ns + RETRY_NS;
	list_for_each_safe(pos, tmp, &services) {
		struct service *s = list_entry(pos, struct service, node);

		if (!s->linger_until_ns)
			continue;
		if (s->linger_until_ns <= now_ns)
			remove_service(s);
		else if (!next || s->linger_until_ns < next)
			next = s->linger_until_ns;
	}
	pthread_mutex_unlock(&lock);
	return next;
}

void service_before_fork(void)
{
	pthread_mutex_lock(&lock);
}

void service_after_fork(bool child)
{
	struct list_node *node;

	while (child && (node = list_pop(&services)))
		free(list_entry(node, struct service, node));
	pthread_mutex_unlock(&lock);
}
