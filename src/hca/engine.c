// SPDX-License-Identifier: BSD-2-Clause
/*
 * engine.c: the engine's lock and its progress round: receive a batch, timers, pollers, one turn
 * to send for each QP that has something, acknowledgements, flush. Acknowledgements come after
 * the data so that they end super-packets as their short last segment.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include "hca/qp_internal.h"
#include "util/clock.h"
#include "util/log.h"

/* super-packets taken from the link in one round: acknowledgements must not wait for more */
#define RX_BATCH 8

#define QPN_FIRST 2 /* 0 and 1 are the management QPs */

/* ---- life ------------------------------------------------------------------ */

static int engine_init(struct engine *engine, struct link *link, uint8_t slot)
{
	uint32_t random = 0;

	engine->slot = slot;
	engine->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (engine->event_fd < 0)
		return -errno;
	engine->qps = calloc(SLOT_QPNS, sizeof(struct hca_qp *));
	if (!engine->qps)
		return -ENOMEM;
	/* a restarted process does not begin with the QPNs of its predecessor */
	if (getrandom(&random, sizeof(random), GRND_NONBLOCK) != sizeof(random))
		random = (uint32_t)clock_ns();
	engine->next_qpn = QPN_FIRST + random % (SLOT_QPNS - QPN_FIRST);
	engine->link = link;
	engine->now_ns = clock_ns();
	list_init(&engine->peers);
	list_init(&engine->tx_list);
	list_init(&engine->ack_list);
	list_init(&engine->read_waiters);
	list_init(&engine->pollers);
	return 0;
}

static void engine_free(struct engine *engine)
{
	if (engine->event_fd >= 0)
		close(engine->event_fd);
	pthread_mutex_destroy(&engine->lock);
	free(engine->timer_heap);
	free(engine->qps);
	free(engine);
}

int engine_create(struct engine **out, struct link *link, uint8_t slot, bool with_thread)
{
	struct engine *engine = calloc(1, sizeof(*engine));
	int err;

	if (!engine)
		return -ENOMEM;
	pthread_mutex_init(&engine->lock, NULL);
	err = engine_init(engine, link, slot);
	if (!err && with_thread)
		err = engine_thread_start(engine);
	if (err) {
		engine_free(engine);
		return err;
	}
	*out = engine;
	return 0;
}

void engine_destroy(struct engine *engine)
{
	if (engine->has_thread)
		engine_thread_stop(engine);
	link_destroy(engine->link);
	engine_free(engine);
}

/* ---- lock ------------------------------------------------------------------ */

void engine_lock(struct engine *engine)
{
	int cancel_state;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
	if (pthread_mutex_trylock(&engine->lock)) {
		atomic_fetch_add(&engine->lock_waiters, 1);
		pthread_mutex_lock(&engine->lock);
		atomic_fetch_sub(&engine->lock_waiters, 1);
	}
	engine->cancel_state = cancel_state;
}

bool engine_trylock(struct engine *engine)
{
	int cancel_state;

	if (atomic_load_explicit(&engine->lock_waiters, memory_order_relaxed))
		return false;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
	if (pthread_mutex_trylock(&engine->lock)) {
		pthread_setcancelstate(cancel_state, NULL);
		return false;
	}
	engine->cancel_state = cancel_state;
	return true;
}

void engine_unlock(struct engine *engine)
{
	/* the sleeping thread does not know of a timer that was set meanwhile, nor of packets that
	 * the system did not take */
	bool wake = engine->thread_wakes_ns &&
		    (engine_timers_next(engine) < engine->thread_wakes_ns ||
		     link_tx_pending(engine->link));
	int cancel_state = engine->cancel_state;

	if (wake)
		engine->thread_wakes_ns = 0;
	pthread_mutex_unlock(&engine->lock);
	if (wake)
		engine_kick(engine);
	pthread_setcancelstate(cancel_state, NULL);
}

/* ---- QP numbers ------------------------------------------------------------ */

uint32_t engine_qpn_alloc(struct engine *engine, struct hca_qp *qp)
{
	for (uint32_t tries = 0; tries < SLOT_QPNS; tries++) {
		uint32_t index = engine->next_qpn;

		/* round robin: the number of a QP that has just gone is the last to come again */
		engine->next_qpn = index + 1 < SLOT_QPNS ? index + 1 : QPN_FIRST;
		if (engine->qps[index])
			continue;
		engine->qps[index] = qp;
		return (uint32_t)engine->slot << 16 | index;
	}
	return 0;
}

void engine_qpn_free(struct engine *engine, uint32_t qpn)
{
	engine->qps[qpn & (SLOT_QPNS - 1)] = NULL;
}

/* ---- pollers --------------------------------------------------------------- */

void engine_add_poller(struct engine *engine, struct engine_poller *poller)
{
	list_add_tail(&engine->pollers, &poller->node);
}

void engine_remove_poller(struct engine *engine, struct engine_poller *poller)
{
	list_del(&poller->node);
}

static bool run_pollers(struct engine *engine)
{
	struct list_node *node, *tmp;
	bool work = false;

	list_for_each_safe(node, tmp, &engine->pollers) {
		struct engine_poller *poller = list_entry(node, struct engine_poller, node);

		work |= poller->poll(poller);
	}
	return work;
}

/* ---- sending --------------------------------------------------------------- */

/* one turn; afterwards the QP stands where the next event that concerns it finds it */
static enum tx_result take_turn(struct engine *engine, struct hca_qp *qp)
{
	enum tx_result result;

	list_del(&qp->tx_node);
	result = qp_transmit(qp);
	switch (result) {
	case TX_IDLE:
		return result;
	case TX_WAIT_PEER:
		list_del(&qp->tx_node);
		list_add_tail(&qp->peer->waiters, &qp->tx_node);
		return result;
	case TX_WAIT_READ:
		list_del(&qp->tx_node);
		list_add_tail(&engine->read_waiters, &qp->tx_node);
		return result;
	case TX_MORE:
	case TX_LINK_FULL:
		qp_schedule(qp);
	}
	return result;
}

static bool transmit(struct engine *engine)
{
	struct list_node turns, *node;
	bool work = !list_empty(&engine->tx_list);

	/* those that are scheduled meanwhile have their turn in the next round */
	list_init(&turns);
	list_splice_tail(&turns, &engine->tx_list);
	while ((node = list_pop(&turns))) {
		struct hca_qp *qp = list_entry(node, struct hca_qp, tx_node);

		if (take_turn(engine, qp) == TX_LINK_FULL) {
			list_splice_tail(&turns, &engine->tx_list);
			list_splice_tail(&engine->tx_list, &turns);
			return true;
		}
	}
	return work;
}

/* The application is about to see a completion, or data that it waits for in memory; its answer, if
 * it posts one now, takes the ACK along. The next round sends it otherwise */
static bool may_wait(const struct engine *engine, const struct hca_qp *qp)
{
	return engine->lazy_acks && qp->resp.lazy && qp->resp.owed_round == engine->round;
}

static bool acknowledge(struct engine *engine)
{
	struct list_node *node, *tmp;
	bool work = false;

	list_for_each_safe(node, tmp, &engine->ack_list) {
		struct hca_qp *qp = list_entry(node, struct hca_qp, ack_node);

		if (!may_wait(engine, qp))
			work |= responder_acknowledge(qp);
	}
	return work;
}

void engine_transmit_now(struct engine *engine, struct hca_qp *qp)
{
	engine->now_ns = clock_ns();
	take_turn(engine, qp);
	if (qp->resp.owed)
		responder_acknowledge(qp);
	link_flush(engine->link);
}

bool engine_has_backlog(const struct engine *engine)
{
	return !list_empty(&engine->tx_list) || !list_empty(&engine->ack_list) ||
	       link_tx_pending(engine->link);
}

/* ---- progress -------------------------------------------------------------- */

static void receive(void *arg, const struct packet *p)
{
	qp_receive(arg, p);
}

bool engine_progress(struct engine *engine)
{
	bool work;

	engine->now_ns = clock_ns();
	engine->round++;
	work = link_poll(engine->link, RX_BATCH, receive, engine) > 0;
	work |= engine_timers_run(engine, engine->now_ns);
	work |= run_pollers(engine);
	work |= transmit(engine);
	work |= acknowledge(engine);
	if (link_tx_pending(engine->link))
		link_flush(engine->link);
	return work;
}

bool engine_poll(struct engine *engine)
{
	bool work, kick;

	atomic_fetch_add_explicit(&engine->app_polls, 1, memory_order_relaxed);
	if (atomic_load_explicit(&engine->handed_over, memory_order_relaxed))
		atomic_store(&engine->handed_over, false);
	if (!engine_trylock(engine))
		return false;
	engine->lazy_acks = !atomic_load_explicit(&engine->thread_in_charge, memory_order_relaxed);
	work = engine_progress(engine);
	atomic_store_explicit(&engine->app_polled_ns, engine->now_ns, memory_order_relaxed);
	engine->lazy_acks = false;
	/* the application may not come again, and the thread sleeps */
	kick = engine->thread_wakes_ns && engine_has_backlog(engine);
	if (kick)
		engine->thread_wakes_ns = 0;
	engine_unlock(engine);
	if (kick)
		engine_kick(engine);
	return work;
}

void engine_kick(struct engine *engine)
{
	uint64_t one = 1;
	int cancel_state;

	if (!engine->has_thread)
		return;
	/* whoever says that it kicked must do it, or nobody will */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
	if (!atomic_exchange(&engine->kicked, true) &&
	    write(engine->event_fd, &one, sizeof(one)) != sizeof(one))
		log_debug("engine: eventfd: %d", errno);
	pthread_setcancelstate(cancel_state, NULL);
}

void engine_hand_over(struct engine *engine)
{
	/* seq_cst on both sides: either the thread sees this before it steps back, or we see that
	 * it has (engine_thread.c) */
	atomic_store(&engine->handed_over, true);
	if (!atomic_load(&engine->thread_in_charge))
		engine_kick(engine);
}
