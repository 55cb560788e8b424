// SPDX-License-Identifier: BSD-2-Clause
/*
 * engine_thread.c: the engine's own thread. In charge, it waits for the sockets and the timers and
 * drives the engine; when the application polls, it steps back, looks once in a while whether the
 * polling goes on, and takes over when it does not. An application that is about to sleep hands
 * over at once (engine_hand_over()).
 *
 * It sleeps in ppoll(): descriptors that sat in an epoll set would cost a wake-up callback a packet
 * also while the application does the work.
 */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "hca/engine.h"
#include "util/bytes.h"
#include "util/clock.h"
#include "util/log.h"

/* idle time before it sleeps: a wake-up costs 12-25 us */
#define SPIN_NS (40 * NSEC_PER_USEC)
/* so many cores or fewer: do not spin while the application may be spinning, too */
#define FEW_CORES 2
/* how often it looks whether the application still polls */
#define STANDBY_NS (1 * NSEC_PER_MSEC)
/* polls within one such interval that mean "the application polls" */
#define POLLS_HOT 32
/* The application stopped polling while packets came: it does so in turns (it waits for data in
 * memory, say). Stay in charge for a while whatever it polls */
#define STICKY_NS     (50 * NSEC_PER_MSEC)
#define STICKY_MAX_NS (2 * NSEC_PER_SEC)
/* intervals of polling after which it is believed to poll only */
#define POLLED_TICKS 32
/* The application polled so shortly before the thread woke, so many times in a row: it polls all
 * the time, whatever it seemed to do before, and waking for each packet only disturbs it */
#define POLLED_JUST_NOW_NS (5 * NSEC_PER_USEC)
#define USELESS_WAKES	   16
/* time slice asked of the scheduler, the shortest that there is */
#define SLICE_NS (100 * NSEC_PER_USEC)
/* how long to wait when the link was full */
#define BACKLOG_NS (50 * NSEC_PER_USEC)

struct driver {
	struct engine *engine;
	uint64_t polls_seen;
	uint64_t window_start_ns; /* polls_seen is of then */
	uint64_t sticky_until_ns;
	uint64_t sticky_ns;	   /* how long the next time */
	unsigned int polled_ticks; /* intervals in stand-by in which the application polled */
	unsigned int useless_wakes;
	uint64_t last_work_ns;
	uint64_t spin_ns;
};

/*
 * An application that spins on memory would keep the core for its whole time slice, some ms, while
 * packets wait. A thread with a shorter slice preempts it when it wakes up (Linux 6.12 and later;
 * before, the kernel takes no notice).
 */
static void ask_for_short_slice(void)
{
	struct {
		uint32_t size, policy;
		uint64_t flags;
		int32_t nice;
		uint32_t priority;
		uint64_t runtime, deadline, period;
	} attr = { .size = sizeof(attr), .policy = SCHED_OTHER, .runtime = SLICE_NS };

	if (sched_getscheduler(0) != SCHED_OTHER)
		return; /* inherited from an application that knows what it wants */
	attr.nice = getpriority(PRIO_PROCESS, (id_t)gettid());
	if (syscall(SYS_sched_setattr, 0, &attr, 0))
		log_debug("engine: sched_setattr: %d", errno);
}

/* Where cores are few, spinning keeps the application, or the peer, from running */
static uint64_t choose_spin_ns(void)
{
	cpu_set_t cpus;

	if (sched_getaffinity(0, sizeof(cpus), &cpus))
		return SPIN_NS;
	return CPU_COUNT(&cpus) > FEW_CORES ? SPIN_NS : 0;
}

static void sleep_until(struct engine *engine, const int *fds, int fd_count, uint64_t deadline_ns)
{
	struct pollfd poll_fds[3] = { { .fd = engine->event_fd, .events = POLLIN } };
	uint64_t now_ns = clock_ns(), count;
	struct timespec ts, *timeout = NULL;

	for (int i = 0; i < fd_count; i++)
		poll_fds[i + 1] = (struct pollfd){ .fd = fds[i], .events = POLLIN };
	if (deadline_ns != UINT64_MAX) {
		uint64_t ns = deadline_ns > now_ns ? deadline_ns - now_ns : 0;

		ts.tv_sec = (time_t)(ns / NSEC_PER_SEC);
		ts.tv_nsec = (long)(ns % NSEC_PER_SEC);
		timeout = &ts;
	}
	if (ppoll(poll_fds, (nfds_t)fd_count + 1, timeout, NULL) <= 0)
		return;
	if (poll_fds[0].revents) {
		if (read(engine->event_fd, &count, sizeof(count)) < 0 && errno != EAGAIN)
			log_debug("engine: eventfd: %d", errno);
		/* before the next look at the work: a kick from now on writes again */
		atomic_store(&engine->kicked, false);
	}
}

static bool app_polls_hot(struct driver *d, uint64_t now_ns)
{
	uint64_t polls = atomic_load_explicit(&d->engine->app_polls, memory_order_relaxed);

	if (polls - d->polls_seen > POLLS_HOT)
		return now_ns >= d->sticky_until_ns;
	if (now_ns - d->window_start_ns > STANDBY_NS) {
		d->window_start_ns = now_ns;
		d->polls_seen = polls;
	}
	return false;
}

/* Return: false = nothing was done */
static bool drive_once(struct driver *d)
{
	struct engine *engine = d->engine;
	bool work;

	if (atomic_load_explicit(&engine->lock_waiters, memory_order_relaxed))
		sched_yield();
	engine_lock(engine);
	work = engine_progress(engine);
	engine_unlock(engine);
	return work;
}

/* the application does not poll in turns, or does so no more */
static void forget_turns(struct driver *d)
{
	d->useless_wakes = 0;
	d->sticky_until_ns = 0;
	d->sticky_ns = STICKY_NS;
}

static void sleep_in_charge(struct driver *d)
{
	struct engine *engine = d->engine;
	uint64_t deadline_ns, now_ns, polled_ns;
	int fds[2], count;

	engine_lock(engine);
	count = link_fds(engine->link, fds);
	deadline_ns = MIN(engine_timers_next(engine), link_next_event_ns(engine->link));
	if (engine_has_backlog(engine))
		deadline_ns = MIN(deadline_ns, clock_ns() + BACKLOG_NS);
	engine->thread_wakes_ns = deadline_ns;
	engine_unlock(engine);

	sleep_until(engine, fds, count, deadline_ns);

	now_ns = clock_ns();
	polled_ns = atomic_load_explicit(&engine->app_polled_ns, memory_order_relaxed);
	if (now_ns > polled_ns + POLLED_JUST_NOW_NS)
		d->useless_wakes = 0;
	else if (++d->useless_wakes >= USELESS_WAKES)
		forget_turns(d);
	engine_lock(engine);
	engine->thread_wakes_ns = 0;
	engine_unlock(engine);
	d->last_work_ns = now_ns;
}

static void step_back(struct driver *d)
{
	struct engine *engine = d->engine;

	d->polled_ticks = 0;
	atomic_store(&engine->thread_in_charge, false);
	/* seq_cst: the other half is in engine_hand_over() */
	if (atomic_load(&engine->handed_over))
		atomic_store(&engine->thread_in_charge, true);
	d->polls_seen = atomic_load(&engine->app_polls);
	d->window_start_ns = clock_ns();
}

/* how long to look for work before going to sleep */
static uint64_t idle_limit_ns(const struct driver *d, uint64_t now_ns)
{
	uint64_t polled_ns = atomic_load_explicit(&d->engine->app_polled_ns, memory_order_relaxed);

	/* it works in turns, and did so just now: between them it may need the core */
	if (now_ns < d->sticky_until_ns && now_ns < polled_ns + STANDBY_NS)
		return d->spin_ns;
	return SPIN_NS;
}

static void drive(struct driver *d)
{
	uint64_t now_ns;
	bool work = drive_once(d);

	now_ns = clock_ns();
	if (app_polls_hot(d, now_ns)) {
		step_back(d);
		return;
	}
	if (work)
		d->last_work_ns = now_ns;
	else if (now_ns - d->last_work_ns > idle_limit_ns(d, now_ns))
		sleep_in_charge(d);
}

static void take_charge(struct driver *d)
{
	struct engine *engine = d->engine;

	atomic_store(&engine->thread_in_charge, true);
	d->window_start_ns = d->last_work_ns = clock_ns();
	d->polls_seen = atomic_load(&engine->app_polls);
}

static void stand_by(struct driver *d)
{
	struct engine *engine = d->engine;
	uint64_t polls;

	sleep_until(engine, NULL, 0, d->window_start_ns + STANDBY_NS);
	if (atomic_load(&engine->handed_over)) {
		take_charge(d);
		return;
	}
	if (clock_ns() < d->window_start_ns + STANDBY_NS) { /* a kick */
		drive_once(d);
		return;
	}
	polls = atomic_load(&engine->app_polls);
	if (polls == d->polls_seen) {
		take_charge(d);
		if (drive_once(d)) {
			d->sticky_until_ns = clock_ns() + d->sticky_ns;
			d->sticky_ns = MIN(2 * d->sticky_ns, STICKY_MAX_NS);
		}
		return;
	}
	/* it goes on polling: when it stops some time, that says nothing about the next time */
	if (++d->polled_ticks >= POLLED_TICKS)
		forget_turns(d);
	d->polls_seen = polls;
	d->window_start_ns = clock_ns();
}

static void *thread_main(void *arg)
{
	struct driver d = { .engine = arg, .sticky_ns = STICKY_NS };

	pthread_setname_np(pthread_self(), "softhca-engine");
	prctl(PR_SET_TIMERSLACK, 1000UL);
	ask_for_short_slice();
	d.spin_ns = choose_spin_ns();
	take_charge(&d);
	while (!atomic_load(&d.engine->stop)) {
		if (atomic_load_explicit(&d.engine->thread_in_charge, memory_order_relaxed))
			drive(&d);
		else
			stand_by(&d);
	}
	return NULL;
}

int engine_thread_start(struct engine *engine)
{
	sigset_t all, old;
	int err;

	/* signals are the application's */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	engine->has_thread = true;
	err = pthread_create(&engine->thread, NULL, thread_main, engine);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (!err)
		return 0;
	engine->has_thread = false;
	return -err;
}

void engine_thread_stop(struct engine *engine)
{
	atomic_store(&engine->stop, true);
	engine_kick(engine);
	pthread_join(engine->thread, NULL);
	engine->has_thread = false;
}
