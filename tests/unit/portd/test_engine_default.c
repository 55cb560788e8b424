// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_engine_default.c: the process's engine: one, made on first use, shared, closed with the
 * last reference, another one in a forked child. This program is also the daemon.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <pthread.h>
#include <semaphore.h>

#include "hca/engine.h"
#include "namespace.h"
#include "portd/portd.h"
#include "util/bytes.h"
#include "util/counters.h"

#define SERVICE 0x01061144ULL

static const union ibv_gid any, loopback6 = { { [15] = 1 } };

static void one_engine(void)
{
	struct engine *a, *b;

	CHECK(!portd_default());
	CHECK_EQUAL(engine_get_default(&a), 0);
	CHECK_EQUAL(engine_get_default(&b), 0);
	CHECK(a == b);
	CHECK(portd_default() != NULL);
	CHECK_EQUAL(a->slot, portd_slot(portd_default()));
	engine_put(a);
	CHECK(portd_default() != NULL);
	engine_put(b);
	CHECK(!portd_default());
	/* and again */
	CHECK_EQUAL(engine_get_default(&a), 0);
	CHECK(portd_default() != NULL);
	engine_put(a);
}

static sem_t arrived;
static struct portd_mad last;

static void on_mad(void *arg, const struct portd_mad *mad)
{
	CHECK_EQUAL((long long)(uintptr_t)arg, 7);
	last = *mad;
	sem_post(&arrived);
}

static void handler(void)
{
	struct portd_mad mad = { .sgid = loopback6,
				 .dgid = loopback6,
				 .data = { 1, 7, 2, 3, [17] = 0x10 } };
	struct engine *engine;

	sem_init(&arrived, 0, 0);
	portd_default_set_handler(on_mad, (void *)7);
	CHECK_EQUAL(engine_get_default(&engine), 0);
	CHECK_EQUAL(portd_listen(portd_default(), SERVICE, &any), 0);
	put_be64(mad.data + 32, SERVICE);
	CHECK_EQUAL(portd_send_mad(portd_default(), &mad), 0);
	sem_wait(&arrived);
	CHECK(!memcmp(last.data, mad.data, MAD_LEN));
	engine_put(engine);
}

/* the child neither uses nor ends the parent's; an engine it was left with is not its own */
static void child_has_its_own(void)
{
	struct engine *engine, *own;
	int status;
	pid_t pid;

	CHECK_EQUAL(engine_get_default(&engine), 0);
	pid = fork();
	if (!pid) {
		CHECK(!portd_default());
		engine_put(engine);
		CHECK_EQUAL(engine_get_default(&own), 0);
		CHECK(own->slot != engine->slot);
		engine_put(engine);
		CHECK(portd_default() != NULL);
		engine_put(own);
		CHECK(!portd_default());
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK_EQUAL(status, 0);
	CHECK_EQUAL(portd_listen(portd_default(), SERVICE, &any), 0);
	engine_put(engine);
}

static void *get_and_put(void *arg)
{
	for (int i = 0; i < 20; i++) {
		struct engine *engine;

		CHECK_EQUAL(engine_get_default(&engine), 0);
		engine_lock(engine);
		engine_unlock(engine);
		engine_put(engine);
	}
	return arg;
}

static void many_threads(void)
{
	pthread_t threads[4];

	for (int i = 0; i < 4; i++)
		CHECK(!pthread_create(&threads[i], NULL, get_and_put, NULL));
	for (int i = 0; i < 4; i++)
		CHECK(!pthread_join(threads[i], NULL));
	CHECK(!portd_default());
}

NAMESPACE_TEST(one_engine)
NAMESPACE_TEST(handler)
/* TSan cannot follow a fork of a process with threads, gcc 12's ASan only when no thread is inside
 * its allocator at that moment */
THREADED_FORK_TEST(child_has_its_own)
NAMESPACE_TEST(many_threads)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_engine),
		cmocka_unit_test(test_handler),
		cmocka_unit_test(test_child_has_its_own),
		cmocka_unit_test(test_many_threads),
	};
	char self[4096];
	ssize_t n;

	if (argc > 1 && !strcmp(argv[1], "portd"))
		return portd_main(0);
	n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	assert_true(n > 0);
	self[n] = 0;
	setenv("SOFTHCA_PORTD", self, 1);
	setenv("SOFTHCA_PORTD_TIMEWAIT_MS", "10", 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
