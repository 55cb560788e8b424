// SPDX-License-Identifier: BSD-2-Clause
/*
 * cm.c: the process's one CM: its lock, its thread (timers) and its way to the network, which is
 * the port daemon's client. MADs are handled in that client's thread.
 */
#include "cm/id.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include "hca/engine.h"
#include "portd/portd.h"
#include "util/clock.h"
#include "util/log.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t waiters = PTHREAD_COND_INITIALIZER;
static pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER;
static struct list_node ids = { &ids, &ids };
static struct cm cm;
static bool started;
static pid_t started_by;
static int kick_fd = -1;
static struct engine *engine; /* keeps the port daemon's client alive */

int cm_error(int err)
{
	if (!err)
		return 0;
	errno = err;
	return -1;
}

void cm_lock(void)
{
	pthread_mutex_lock(&lock);
}

void cm_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

void cm_wait(void)
{
	pthread_cond_wait(&waiters, &lock);
}

void cm_wake_waiters(void)
{
	pthread_cond_broadcast(&waiters);
}

struct cm *cm_instance(void)
{
	return &cm;
}

struct list_node *cm_ids(void)
{
	return &ids;
}

uint32_t cm_random(void)
{
	uint32_t v;

	if (getrandom(&v, sizeof(v), 0) != sizeof(v))
		v = (uint32_t)clock_ns() * 2654435761U;
	return v;
}

void cm_kick(void)
{
	uint64_t one = 1;

	if (write(kick_fd, &one, sizeof(one)) < 0)
		return; /* full: the thread is going to look anyway */
}

void cm_send_mad(void *arg, const struct cm_path *path, const uint8_t data[CM_MAD_LEN])
{
	struct portd_mad mad = { .sgid = path->sgid, .dgid = path->dgid, .ifindex = path->ifindex };
	int err;

	_Static_assert(CM_MAD_LEN == MAD_LEN, "one length of MADs");
	memcpy(mad.data, data, CM_MAD_LEN);
	mad.src_qpn = 1;
	err = portd_send_mad(portd_default(), &mad);
	if (err)
		log_debug("cm: a MAD was not sent: %s", strerror(-err));
}

static void on_mad(void *arg, const struct portd_mad *mad)
{
	struct cm_path path = { .sgid = mad->dgid, .dgid = mad->sgid, .ifindex = mad->ifindex };
	uint64_t before;

	cm_lock();
	before = cm_next_deadline(&cm);
	cm_receive(&cm, &path, mad->data, clock_ns());
	if (cm_next_deadline(&cm) != before)
		cm_kick();
	cm_unlock();
}

static void *timer_thread(void *arg)
{
	for (;;) {
		struct pollfd fd = { .fd = kick_fd, .events = POLLIN };
		struct timespec wait, *timeout = NULL;
		uint64_t now = clock_ns(), next, expiry, drained;

		cm_lock();
		cm_run_timers(&cm, now);
		next = cm_next_deadline(&cm);
		cm_unlock();
		expiry = service_expire(now);
		if (expiry && (!next || expiry < next))
			next = expiry;
		if (next) {
			uint64_t ns = next > now ? next - now : 0;

			wait.tv_sec = (time_t)(ns / NSEC_PER_SEC);
			wait.tv_nsec = (long)(ns % NSEC_PER_SEC);
			timeout = &wait;
		}
		if (ppoll(&fd, 1, timeout, NULL) > 0 &&
		    read(kick_fd, &drained, sizeof(drained)) < 0 && errno != EAGAIN)
			return NULL;
	}
}

static int start_thread(void)
{
	pthread_t thread;
	sigset_t all, old;
	int err;

	/* the application's signals are not ours to take */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&thread, NULL, timer_thread, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (err)
		return -err;
	pthread_setname_np(thread, "softhca-cm");
	pthread_detach(thread);
	return 0;
}

/* the process ends: peers learn it now, not by their timeouts */
static void farewell(void)
{
	if (getpid() != started_by)
		return;
	if (pthread_mutex_trylock(&lock))
		return;
	if (portd_default())
		cm_farewell(&cm);
	pthread_mutex_unlock(&lock);
}

/*
 * A child has neither the thread nor the slot: its CM starts anew, and ids it inherited are dead.
 * The parent's lock is held over the fork so that the child's copy is whole.
 */
static void before_fork(void)
{
	pthread_mutex_lock(&start_lock);
	service_before_fork(); /* first: who holds it may wait for a thread that wants cm_lock() */
	cm_lock();
	addr_before_fork();
}

static void after_fork_parent(void)
{
	addr_after_fork(false);
	cm_unlock();
	service_after_fork(false);
	pthread_mutex_unlock(&start_lock);
}

static void after_fork_child(void)
{
	struct list_node *pos;

	list_for_each(pos, &ids) {
		struct cm_id *id = list_entry(pos, struct cm_id, node);

		id->conn = NULL; /* the parent's */
		id->registered = false;
	}
	if (started)
		cm_fini(&cm);
	pthread_mutex_init(&lock, NULL);
	pthread_mutex_init(&start_lock, NULL);
	pthread_cond_init(&waiters, NULL);
	if (kick_fd >= 0)
		close(kick_fd);
	kick_fd = -1;
	started = false;
	engine = NULL;
	connect_after_fork();
	service_after_fork(true);
	addr_after_fork(true);
}

static void register_fork_handlers(void)
{
	pthread_atfork(before_fork, after_fork_parent, after_fork_child);
}

static int start_locked(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	uint64_t seed = (uint64_t)cm_random() << 32 | cm_random();
	int err;

	err = engine_get_default(&engine);
	if (err)
		return err;
	/* after the engine's, whose locks nest inside ours: the last registered are run first */
	pthread_once(&once, register_fork_handlers);
	if (!portd_default()) {
		err = -ENODEV;
		goto out_engine;
	}
	kick_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (kick_fd < 0) {
		err = -errno;
		goto out_engine;
	}
	cm_lock();
	cm_init(&cm, &cm_rdma_ops, NULL, portd_slot(portd_default()), seed);
	cm_unlock();
	err = start_thread();
	if (err)
		goto out_fd;
	portd_default_set_handler(on_mad, NULL);
	if (!started_by)
		atexit(farewell); /* a child inherits it */
	started_by = getpid();
	return 0;

out_fd:
	close(kick_fd);
	kick_fd = -1;
out_engine:
	engine_put(engine);
	engine = NULL;
	return err;
}

int cm_start(void)
{
	int err = 0;

	pthread_mutex_lock(&start_lock);
	if (!started) {
		err = start_locked();
		started = !err;
	}
	pthread_mutex_unlock(&start_lock);
	return err;
}
