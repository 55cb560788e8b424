// SPDX-License-Identifier: BSD-2-Clause
/*
 * timer_heap.c: the engine's timers, a binary heap by deadline. Room is reserved when a timer's
 * owner is made, so that setting one never allocates.
 */
#include <errno.h>
#include <stdlib.h>

#include "hca/engine.h"
#include "util/bytes.h"

static void heap_put(struct engine *engine, uint32_t i, struct engine_timer *timer)
{
	engine->timer_heap[i] = timer;
	timer->heap_index = i;
}

static void heap_up(struct engine *engine, uint32_t i)
{
	struct engine_timer *timer = engine->timer_heap[i];

	while (i > 0) {
		uint32_t parent = (i - 1) / 2;

		if (engine->timer_heap[parent]->deadline_ns <= timer->deadline_ns)
			break;
		heap_put(engine, i, engine->timer_heap[parent]);
		i = parent;
	}
	heap_put(engine, i, timer);
}

static void heap_down(struct engine *engine, uint32_t i)
{
	struct engine_timer *timer = engine->timer_heap[i];

	for (;;) {
		uint32_t child = 2 * i + 1;

		if (child >= engine->timer_count)
			break;
		if (child + 1 < engine->timer_count &&
		    engine->timer_heap[child + 1]->deadline_ns <
			    engine->timer_heap[child]->deadline_ns)
			child++;
		if (timer->deadline_ns <= engine->timer_heap[child]->deadline_ns)
			break;
		heap_put(engine, i, engine->timer_heap[child]);
		i = child;
	}
	heap_put(engine, i, timer);
}

void engine_timer_set(struct engine *engine, struct engine_timer *timer, uint64_t deadline_ns)
{
	uint64_t old_ns = timer->deadline_ns;

	timer->deadline_ns = MAX(deadline_ns, 1ULL);
	if (!old_ns) {
		heap_put(engine, engine->timer_count++, timer);
		heap_up(engine, timer->heap_index);
	} else if (timer->deadline_ns < old_ns) {
		heap_up(engine, timer->heap_index);
	} else {
		heap_down(engine, timer->heap_index);
	}
}

void engine_timer_cancel(struct engine *engine, struct engine_timer *timer)
{
	struct engine_timer *last;
	uint32_t i = timer->heap_index;

	if (!timer->deadline_ns)
		return;
	timer->deadline_ns = 0;
	last = engine->timer_heap[--engine->timer_count];
	if (last == timer)
		return;
	heap_put(engine, i, last);
	heap_up(engine, i);
	heap_down(engine, last->heap_index);
}

int engine_timer_reserve(struct engine *engine, unsigned int more)
{
	uint32_t needed = engine->timer_reserved + more;

	if (needed > engine->timer_capacity) {
		uint32_t capacity = (uint32_t)round_up_power_of_two(needed);
		struct engine_timer **heap = realloc(engine->timer_heap, capacity * sizeof(*heap));

		if (!heap)
			return -ENOMEM;
		engine->timer_heap = heap;
		engine->timer_capacity = capacity;
	}
	engine->timer_reserved = needed;
	return 0;
}

void engine_timer_unreserve(struct engine *engine, unsigned int fewer)
{
	engine->timer_reserved -= fewer;
}

bool engine_timers_run(struct engine *engine, uint64_t now_ns)
{
	bool ran = false;

	while (engine->timer_count && engine->timer_heap[0]->deadline_ns <= now_ns) {
		struct engine_timer *timer = engine->timer_heap[0];

		engine_timer_cancel(engine, timer);
		timer->fn(timer, now_ns);
		ran = true;
	}
	return ran;
}

uint64_t engine_timers_next(const struct engine *engine)
{
	return engine->timer_count ? engine->timer_heap[0]->deadline_ns : UINT64_MAX;
}
