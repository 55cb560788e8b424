// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_engine.c: the timer heap, and the engine's own thread: it sleeps when nothing happens, is
 * woken by kicks and by timers that others set, steps back for an application that polls and takes
 * over again.
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "qp_fixture.h"

/* ---- timers ---------------------------------------------------------------- */

#define TIMERS 500

static uint64_t fired[TIMERS];
static unsigned int fired_count;

struct test_timer {
	struct engine_timer timer;
	uint64_t wanted_ns; /* 0 = not set */
};

static void on_timer(struct engine_timer *timer, uint64_t now_ns)
{
	struct test_timer *t = container_of(timer, struct test_timer, timer);

	assert_true(t->wanted_ns && t->wanted_ns <= now_ns);
	assert_int_equal(timer->deadline_ns, 0);
	fired[fired_count++] = t->wanted_ns;
	t->wanted_ns = 0;
}

static void test_timer_heap(void **state)
{
	static struct test_timer timers[TIMERS];
	struct link_mem *a, *b;
	struct engine *engine;
	uint32_t seed = 1;

	link_mem_create(&a, &b);
	assert_int_equal(engine_create(&engine, &a->link, 1, false), 0);
	assert_int_equal(engine_timer_reserve(engine, TIMERS), 0);
	for (unsigned int i = 0; i < TIMERS; i++)
		timers[i].timer.fn = on_timer;
	/* set, move, cancel at random */
	for (unsigned int i = 0; i < 20000; i++) {
		struct test_timer *t;

		seed = seed * 1664525 + 1013904223;
		t = &timers[(seed >> 8) % TIMERS];
		seed = seed * 1664525 + 1013904223;
		if ((seed >> 28) == 0) {
			engine_timer_cancel(engine, &t->timer);
			t->wanted_ns = 0;
		} else {
			t->wanted_ns = 1 + (seed >> 8) % 10000;
			engine_timer_set(engine, &t->timer, t->wanted_ns);
		}
	}
	assert_true(engine_timers_run(engine, 5000));
	for (unsigned int i = 0; i < TIMERS; i++)
		assert_true(!timers[i].wanted_ns || timers[i].wanted_ns > 5000);
	assert_true(engine_timers_next(engine) > 5000);
	engine_timers_run(engine, UINT64_MAX);
	for (unsigned int i = 1; i < fired_count; i++)
		assert_true(fired[i - 1] <= fired[i]);
	for (unsigned int i = 0; i < TIMERS; i++)
		assert_int_equal(timers[i].wanted_ns, 0);
	assert_true(engine_timers_next(engine) == UINT64_MAX);
	assert_false(engine_timers_run(engine, UINT64_MAX));
	engine_timer_unreserve(engine, TIMERS);
	engine_destroy(engine);
	b->link.ops->destroy(&b->link);
}

/* ---- the thread ------------------------------------------------------------- */

static _Atomic unsigned int polled, timed;
static _Atomic pid_t polled_by;

static bool on_poll(struct engine_poller *poller)
{
	atomic_store(&polled_by, gettid());
	atomic_fetch_add(&polled, 1);
	return false;
}

static void on_thread_timer(struct engine_timer *timer, uint64_t now_ns)
{
	atomic_fetch_add(&timed, 1);
}

/* until it becomes true; a test that hangs fails by its time limit */
#define WAIT_FOR(condition)                                                                        \
	do {                                                                                       \
		while (!(condition))                                                               \
			usleep(200);                                                               \
	} while (0)

/* the thread sleeps: no progress for a while */
static void wait_asleep(struct engine *engine)
{
	for (;;) {
		bool asleep;

		engine_lock(engine);
		asleep = engine->thread_wakes_ns != 0;
		engine_unlock(engine);
		if (asleep)
			return;
		usleep(200);
	}
}

/* poll until the thread steps back; asleep, it notices the polling at the next thing that wakes it
 */
static void poll_hot(struct engine *engine)
{
	for (unsigned int i = 0; atomic_load(&engine->thread_in_charge); i++) {
		engine_poll(engine);
		if (i % 64 == 63)
			engine_kick(engine);
	}
}

static void test_thread(void **state)
{
	struct engine_poller poller = { .poll = on_poll };
	struct engine_timer timer = { .fn = on_thread_timer };
	struct link_mem *a, *b;
	struct engine *engine;
	unsigned int seen;

	link_mem_create(&a, &b);
	b->link.ops->destroy(&b->link);
	assert_int_equal(engine_create(&engine, &a->link, 1, true), 0);
	engine_lock(engine);
	assert_int_equal(engine_timer_reserve(engine, 1), 0);
	engine_add_poller(engine, &poller);
	engine_unlock(engine);

	/* idle: it sleeps, for good; a kick wakes it, as often as it is kicked */
	for (unsigned int i = 0; i < 20; i++) {
		wait_asleep(engine);
		seen = atomic_load(&polled);
		engine_kick(engine);
		WAIT_FOR(atomic_load(&polled) > seen);
	}
	/* a timer set by another thread, while it sleeps with none */
	for (unsigned int i = 0; i < 20; i++) {
		wait_asleep(engine);
		seen = atomic_load(&timed);
		engine_lock(engine);
		engine_timer_set(engine, &timer, clock_ns() + 100 * NSEC_PER_USEC);
		engine_unlock(engine);
		WAIT_FOR(atomic_load(&timed) > seen);
	}
	/* we poll: it steps back */
	poll_hot(engine);
	/* we stop: it takes over by itself */
	WAIT_FOR(atomic_load(&engine->thread_in_charge));
	/* we say that we sleep: it takes over, whatever it was doing */
	for (unsigned int i = 0; i < 20; i++) {
		poll_hot(engine);
		engine_hand_over(engine);
		WAIT_FOR(atomic_load(&polled_by) != gettid());
		assert_true(atomic_load(&engine->handed_over));
	}
	/* not in charge: a kick is work all the same */
	poll_hot(engine);
	engine_kick(engine);
	WAIT_FOR(atomic_load(&polled_by) != gettid());

	engine_lock(engine);
	engine_remove_poller(engine, &poller);
	engine_timer_cancel(engine, &timer);
	engine_timer_unreserve(engine, 1);
	engine_unlock(engine);
	engine_destroy(engine);
}

/* ---- cancellation ---------------------------------------------------------- */

/* as the system calls of a real link */
static unsigned int cancellable_poll(struct link *link, unsigned int max, link_rx_fn fn, void *arg)
{
	pthread_testcancel();
	return 0;
}

static void *poll_cancelled(void *engine)
{
	bool *back = calloc(1, sizeof(*back));

	pthread_cancel(pthread_self());
	engine_poll(engine);
	engine_kick(engine);
	*back = true;
	return back; /* joined with this: nothing here may end the thread */
}

static void *poll_and_test(void *engine)
{
	pthread_cancel(pthread_self());
	engine_poll(engine);
	pthread_testcancel();
	return NULL;
}

/* rping cancels its thread that polls: not while it holds the engine's lock, and as before
 * afterwards */
static void test_cancelled_poller(void **state)
{
	struct link_mem *a, *b;
	struct engine *engine;
	struct link_ops ops;
	pthread_t thread;
	void *result;

	link_mem_create(&a, &b);
	ops = *a->link.ops;
	ops.poll = cancellable_poll;
	a->link.ops = &ops;
	assert_int_equal(engine_create(&engine, &a->link, 1, false), 0);
	assert_int_equal(pthread_create(&thread, NULL, poll_cancelled, engine), 0);
	assert_int_equal(pthread_join(thread, &result), 0);
	assert_ptr_not_equal(result, PTHREAD_CANCELED);
	free(result);
	assert_int_equal(pthread_create(&thread, NULL, poll_and_test, engine), 0);
	assert_int_equal(pthread_join(thread, &result), 0);
	assert_ptr_equal(result, PTHREAD_CANCELED);
	assert_true(engine_trylock(engine));
	engine_unlock(engine);
	engine_destroy(engine);
	b->link.ops->destroy(&b->link);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_timer_heap),
		cmocka_unit_test(test_thread),
		cmocka_unit_test(test_cancelled_poller),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
