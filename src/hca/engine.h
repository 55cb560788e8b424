/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * engine.h: an engine is a lock, a link and the QPs assigned to it. Whoever holds the lock drives
 * it: the application's thread inside a poll, a post or an event wait, or the engine's own thread,
 * which sleeps while the application polls and takes over when it does not.
 *
 * No blocking call, allocation or system call under the lock beyond the link's own I/O.
 */
#ifndef SOFTHCA_HCA_ENGINE_H
#define SOFTHCA_HCA_ENGINE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "util/list.h"
#include "wire/link.h"

struct hca_qp;
struct engine;

#define SLOT_QPNS 65536 /* QPNs of one slot; the low 16 bits of a QPN */

/* A timer; embed it. All under the engine's lock; @fn is called with it held. */
struct engine_timer {
	uint64_t deadline_ns; /* 0 = not set */
	uint32_t heap_index;
	void (*fn)(struct engine_timer *timer, uint64_t now_ns);
};

/* Something else to look at each time the engine makes progress (NVMe completion queues). */
struct engine_poller {
	struct list_node node;
	bool (*poll)(struct engine_poller *poller); /* true: there was work */
};

struct engine {
	pthread_mutex_t lock;
	_Atomic unsigned int lock_waiters; /* pollers give way while others wait */
	int cancel_state;		   /* of the holder, for when it gives the lock back */
	struct link *link;
	uint8_t slot;
	uint64_t now_ns; /* time of the current progress round */

	struct hca_qp **qps; /* SLOT_QPNS pointers, by the low 16 bits */
	uint32_t next_qpn;
	struct list_node peers;	   /* struct peer: bytes in flight to one process (hca/peer.h) */
	struct list_node tx_list;  /* QPs that may have something to send */
	struct list_node ack_list; /* QPs that owe an acknowledgement */
	struct list_node read_waiters; /* QPs whose READs wait for room in our receive buffer */
	struct list_node pollers;
	uint64_t read_bytes; /* READ response bytes that we have asked for and not yet got */
	uint64_t round;	     /* counts progress rounds */
	bool lazy_acks; /* the application drives: its answer may carry the ACK of this round */

	struct engine_timer **timer_heap;
	uint32_t timer_count, timer_capacity, timer_reserved;

	/* the engine's own thread */
	pthread_t thread;
	bool has_thread;
	_Atomic bool stop;
	int event_fd;
	_Atomic uint64_t app_polls;	/* counts application-side progress calls */
	_Atomic uint64_t app_polled_ns; /* when the last one was */
	_Atomic bool thread_in_charge;	/* the thread waits for the sockets */
	_Atomic bool handed_over;	/* the application sleeps; its next poll clears it */
	_Atomic bool kicked;		/* the eventfd was written and not yet read */
	uint64_t thread_wakes_ns; /* lock held: the thread sleeps until then; 0 = it does not */
	unsigned int references;
};

/**
 * engine_create() - make an engine over a link. Tests pass a link of their own and no thread.
 * @link: owned by the engine from now on.
 * Return: 0 or a negative errno.
 */
int engine_create(struct engine **engine, struct link *link, uint8_t slot, bool with_thread);
void engine_destroy(struct engine *engine);

/**
 * engine_get_default() - the process's engine, made on first use (port daemon, slot, link,
 * thread); engine_put() gives the reference back, the last one closes it.
 * Return: 0 or a negative errno (a message was logged).
 */
int engine_get_default(struct engine **engine);
void engine_put(struct engine *engine);

/*
 * While a thread holds the lock it is not cancelled (pthread_cancel()): the system calls of the
 * link are cancellation points, those of verbs, in which the application waits, mostly are not.
 */
void engine_lock(struct engine *engine);
bool engine_trylock(struct engine *engine); /* fails also while others wait */
void engine_unlock(struct engine *engine);

/**
 * engine_progress() - one round, lock held: receive a batch, run due timers and pollers, send
 * acknowledgements and whatever QPs have to send, flush the link.
 * Return: true when anything was done.
 */
bool engine_progress(struct engine *engine);

/**
 * engine_poll() - the application side's progress: tries the lock, makes one round, remembers that
 * the application polls. Called without the lock, by ibv_poll_cq on an empty CQ and by waits.
 */
bool engine_poll(struct engine *engine);

/* the application is about to sleep (armed a CQ, waits for an event): the thread takes over */
void engine_hand_over(struct engine *engine);

/* wake the thread: there is work that no packet announces. Any thread, lock held or not */
void engine_kick(struct engine *engine);

/* timers, lock held; setting a set timer moves it */
void engine_timer_set(struct engine *engine, struct engine_timer *timer, uint64_t deadline_ns);
void engine_timer_cancel(struct engine *engine, struct engine_timer *timer);

/* make room for @more timers (each QP and each NVMe controller reserves what it may set), so that
 * engine_timer_set() never allocates. Lock held. Return: 0 or -ENOMEM */
int engine_timer_reserve(struct engine *engine, unsigned int more);
void engine_timer_unreserve(struct engine *engine, unsigned int fewer);

/**
 * engine_transmit_now() - a turn to send for one QP at once, with the ACK that it owes. Lock held.
 */
void engine_transmit_now(struct engine *engine, struct hca_qp *qp);
/* something waits to be sent that no packet and no timer will bring up */
bool engine_has_backlog(const struct engine *engine);

/* for engine.c and the tests: run what is due; the next deadline (UINT64_MAX = none). Lock held */
bool engine_timers_run(struct engine *engine, uint64_t now_ns);
uint64_t engine_timers_next(const struct engine *engine);

/* engine_thread.c: the engine's own thread */
int engine_thread_start(struct engine *engine);
void engine_thread_stop(struct engine *engine);

/* QP numbers, lock held. Return: the QPN, 0 = none is left */
uint32_t engine_qpn_alloc(struct engine *engine, struct hca_qp *qp);
void engine_qpn_free(struct engine *engine, uint32_t qpn);

void engine_add_poller(struct engine *engine, struct engine_poller *poller);
void engine_remove_poller(struct engine *engine, struct engine_poller *poller);

#endif
