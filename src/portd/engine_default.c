// SPDX-License-Identifier: BSD-2-Clause
/*
 * engine_default.c: the process's engine and its port daemon client, made together on first use
 * and closed with the last reference. A fork()ed child starts without them and makes its own.
 */
#include "hca/engine.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "portd/portd.h"
#include "portd/proto.h"
#include "util/log.h"

/* guards what follows; never held while a callback may run or a thread is joined */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct engine *default_engine;
static struct portd_client *default_client;
static unsigned int references;

static pthread_mutex_t handler_lock = PTHREAD_MUTEX_INITIALIZER;
static void (*mad_handler)(void *arg, const struct portd_mad *mad);
static void *mad_handler_arg;

static void dispatch_mad(void *arg, const struct portd_mad *mad)
{
	void (*handler)(void *, const struct portd_mad *);
	void *handler_arg;

	pthread_mutex_lock(&handler_lock);
	handler = mad_handler;
	handler_arg = mad_handler_arg;
	pthread_mutex_unlock(&handler_lock);
	if (handler)
		handler(handler_arg, mad);
}

void portd_default_set_handler(void (*on_mad)(void *arg, const struct portd_mad *mad), void *arg)
{
	pthread_mutex_lock(&handler_lock);
	mad_handler = on_mad;
	mad_handler_arg = arg;
	pthread_mutex_unlock(&handler_lock);
}

static void before_fork(void)
{
	pthread_mutex_lock(&lock);
	pthread_mutex_lock(&handler_lock);
}

static void after_fork_parent(void)
{
	pthread_mutex_unlock(&handler_lock);
	pthread_mutex_unlock(&lock);
}

/* The engine's thread did not come along and its slot is the parent's: the child forgets them.
 * The client closes its descriptors itself (client.c). */
static void after_fork_child(void)
{
	default_engine = NULL;
	default_client = NULL;
	references = 0;
	pthread_mutex_init(&handler_lock, NULL);
	pthread_mutex_init(&lock, NULL);
}

static void register_fork_handlers(void)
{
	/* our lock is taken before the client's; prepare handlers run last registered first */
	portd_client_init();
	pthread_atfork(before_fork, after_fork_parent, after_fork_child);
}

static int create(struct engine **engine, struct portd_client **client)
{
	struct link *link;
	int fd4, fd6, err;

	err = portd_connect(client, dispatch_mad, NULL);
	if (err)
		return err;
	portd_sockets(*client, &fd4, &fd6);
	err = link_udp_create(&link, fd4, fd6, portd_slot(*client));
	if (err) {
		log_error("cannot use the sockets of slot %u: %s", portd_slot(*client),
			  strerror(-err));
		if (fd4 >= 0)
			close(fd4);
		if (fd6 >= 0)
			close(fd6);
		goto out_disconnect;
	}
	err = engine_create(engine, link, portd_slot(*client), true);
	if (err) {
		log_error("cannot start the adapter's engine: %s", strerror(-err));
		link_destroy(link);
		goto out_disconnect;
	}
	return 0;

out_disconnect:
	portd_disconnect(*client);
	return err;
}

int engine_get_default(struct engine **engine)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	int err = 0;

	pthread_once(&once, register_fork_handlers);
	pthread_mutex_lock(&lock);
	if (!default_engine)
		err = create(&default_engine, &default_client);
	if (!err) {
		references++;
		*engine = default_engine;
	} else {
		default_engine = NULL;
		default_client = NULL;
	}
	pthread_mutex_unlock(&lock);
	return err;
}

void engine_put(struct engine *engine)
{
	struct portd_client *client = NULL;

	pthread_mutex_lock(&lock);
	/* an engine that a fork left behind is not ours to touch */
	if (engine == default_engine && references && --references == 0) {
		client = default_client;
		default_engine = NULL;
		default_client = NULL;
	}
	pthread_mutex_unlock(&lock);
	if (!client)
		return;
	engine_destroy(engine);
	portd_disconnect(client);
}

/*
 * The process ends without destroying its QPs, as many do: what its peers' last messages are owed
 * (an acknowledgement that waited for an answer) leaves first, or they would retry and fail.
 */
__attribute__((destructor)) static void settle_at_exit(void)
{
	struct engine *engine;

	if (pthread_mutex_trylock(&lock))
		return;
	engine = default_engine;
	if (engine && engine_trylock(engine)) {
		engine_progress(engine);
		engine_unlock(engine);
	}
	pthread_mutex_unlock(&lock);
}

struct portd_client *portd_default(void)
{
	struct portd_client *client;

	pthread_mutex_lock(&lock);
	client = default_client;
	pthread_mutex_unlock(&lock);
	return client;
}
