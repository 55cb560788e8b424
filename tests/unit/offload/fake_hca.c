// SPDX-License-Identifier: BSD-2-Clause
/* fake_hca.c: the adapter's side of the offload's contracts, by hand */
#include "fake_hca.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "util/bytes.h"
#include "util/clock.h"

#define MAX_TIMERS 64

uint8_t *host_memory;
struct fake_event fake_events[MAX_EVENTS];
unsigned int fake_event_count, fake_kicks;
char fake_order[MAX_POSTED];
unsigned int fake_order_count;

static uint64_t fake_now_ns;

static uint64_t fake_clock(void)
{
	return __atomic_load_n(&fake_now_ns, __ATOMIC_RELAXED);
}

/* ---- engine --------------------------------------------------------------- */

void engine_lock(struct engine *engine)
{
	pthread_mutex_lock(&engine->lock);
}

void engine_unlock(struct engine *engine)
{
	pthread_mutex_unlock(&engine->lock);
}

void engine_kick(struct engine *engine)
{
	__atomic_fetch_add(&fake_kicks, 1, __ATOMIC_RELAXED);
}

void engine_add_poller(struct engine *engine, struct engine_poller *poller)
{
	list_add_tail(&engine->pollers, &poller->node);
}

void engine_remove_poller(struct engine *engine, struct engine_poller *poller)
{
	list_del(&poller->node);
}

int engine_timer_reserve(struct engine *engine, unsigned int more)
{
	engine->timer_capacity += more;
	assert_true(engine->timer_capacity <= MAX_TIMERS);
	return 0;
}

void engine_timer_unreserve(struct engine *engine, unsigned int fewer)
{
	engine->timer_capacity -= fewer;
}

void engine_timer_set(struct engine *engine, struct engine_timer *timer, uint64_t deadline_ns)
{
	if (!timer->deadline_ns) {
		assert_true(engine->timer_count < engine->timer_capacity);
		engine->timer_heap[engine->timer_count++] = timer;
	}
	timer->deadline_ns = deadline_ns;
}

void engine_timer_cancel(struct engine *engine, struct engine_timer *timer)
{
	if (!timer->deadline_ns)
		return;
	timer->deadline_ns = 0;
	for (uint32_t i = 0; i < engine->timer_count; i++)
		if (engine->timer_heap[i] == timer) {
			engine->timer_heap[i] = engine->timer_heap[--engine->timer_count];
			return;
		}
	fail_msg("a timer that is not set");
}

bool fake_progress(struct engine *engine)
{
	struct list_node *pos;
	bool work = false;

	engine->now_ns = fake_clock();
	for (uint32_t i = 0; i < engine->timer_count; i++) {
		struct engine_timer *timer = engine->timer_heap[i];

		if (timer->deadline_ns > engine->now_ns)
			continue;
		engine_timer_cancel(engine, timer);
		timer->fn(timer, engine->now_ns);
		i = UINT32_MAX;
	}
	list_for_each(pos, &engine->pollers) {
		struct engine_poller *poller = list_entry(pos, struct engine_poller, node);

		work |= poller->poll(poller);
	}
	return work;
}

/* called by a wait of the offload: time goes on meanwhile */
bool engine_poll(struct engine *engine)
{
	bool work;

	__atomic_fetch_add(&fake_now_ns, NSEC_PER_MSEC, __ATOMIC_RELAXED);
	engine_lock(engine);
	work = fake_progress(engine);
	engine_unlock(engine);
	return work;
}

void fake_advance_ms(struct engine *engine, uint64_t ms)
{
	__atomic_fetch_add(&fake_now_ns, ms * NSEC_PER_MSEC, __ATOMIC_RELAXED);
	fake_progress(engine);
}

static void record_event(struct hca_context *ctx, enum ibv_event_type type, void *object)
{
	assert_true(fake_event_count < MAX_EVENTS);
	fake_events[fake_event_count++] = (struct fake_event){ type, object };
}

unsigned int fake_count_events(enum ibv_event_type type)
{
	unsigned int n = 0;

	for (unsigned int i = 0; i < fake_event_count; i++)
		n += fake_events[i].type == type;
	return n;
}

void fake_engine_init(struct engine *engine, struct hca_context *ctx)
{
	static struct engine_timer *heap[MAX_TIMERS];

	memset(engine, 0, sizeof(*engine));
	pthread_mutex_init(&engine->lock, NULL);
	list_init(&engine->pollers);
	engine->timer_heap = heap;
	fake_now_ns = 1000 * NSEC_PER_SEC;
	engine->now_ns = fake_now_ns;
	clock_set_source(fake_clock);
	ctx->engine = engine;
	ctx->event = record_event;
	fake_event_count = fake_kicks = fake_order_count = 0;
	if (!host_memory)
		host_memory = malloc(HOST_MEMORY);
	assert_non_null(host_memory);
}

/* ---- QPs ------------------------------------------------------------------ */

void fake_qp_init(struct hca_qp *qp, struct hca_context *ctx, struct hca_srq *srq, uint32_t num)
{
	memset(qp, 0, sizeof(*qp));
	qp->ctx = ctx;
	qp->srq = srq;
	qp->owner = qp;
	qp->num = num;
	qp->state = IBV_QPS_RTS;
	qp->lane = 64;
	qp->psn = 0xfffff0;
}

uint32_t qp_num(const struct hca_qp *qp)
{
	return qp->num;
}

enum ibv_qp_state qp_state(const struct hca_qp *qp)
{
	return qp->state;
}

struct hca_srq *qp_srq(const struct hca_qp *qp)
{
	return qp->srq;
}

struct hca_context *qp_context(const struct hca_qp *qp)
{
	return qp->ctx;
}

void *qp_owner(const struct hca_qp *qp)
{
	return qp->owner;
}

void *qp_capsule_state(const struct hca_qp *qp)
{
	return qp->capsule_state;
}

void qp_set_capsule_state(struct hca_qp *qp, void *state)
{
	qp->capsule_state = state;
}

unsigned int fake_outstanding(const struct hca_qp *qp)
{
	return qp->tail - qp->head;
}

int qp_post_hidden(struct hca_qp *qp, struct hidden_wr *wr)
{
	if (qp->state != IBV_QPS_RTS)
		return -ENOTCONN;
	if (fake_outstanding(qp) >= qp->lane) {
		qp->starved = true;
		return -EAGAIN;
	}
	qp->posted[qp->tail++ % MAX_POSTED] = wr;
	if (fake_order_count < MAX_POSTED)
		fake_order[fake_order_count++] = wr->opcode == IBV_WR_RDMA_READ	   ? 'R'
						 : wr->opcode == IBV_WR_RDMA_WRITE ? 'W'
										   : 'S';
	return 0;
}

bool fake_complete(struct hca_qp *qp)
{
	struct hidden_wr *wr;

	if (qp->head == qp->tail)
		return false;
	wr = qp->posted[qp->head++ % MAX_POSTED];
	switch (wr->opcode) {
	case IBV_WR_RDMA_READ:
	case IBV_WR_RDMA_WRITE:
		assert_int_equal(wr->rkey, HOST_KEY);
		assert_true(range_inside(wr->remote_addr, wr->length, (uintptr_t)host_memory,
					 HOST_MEMORY));
		if (wr->opcode == IBV_WR_RDMA_READ)
			memcpy(wr->addr, (void *)(uintptr_t)wr->remote_addr, wr->length);
		else
			memcpy((void *)(uintptr_t)wr->remote_addr, wr->addr, wr->length);
		break;
	default:
		assert_int_equal(wr->length, sizeof(struct nvme_cqe));
		assert_true(qp->response_count < MAX_POSTED);
		memcpy(&qp->responses[qp->response_count], wr->addr, wr->length);
		qp->response_inv[qp->response_count++] =
			wr->opcode == IBV_WR_SEND_WITH_INV ? wr->rkey : 0;
	}
	wr->done(wr, qp, IBV_WC_SUCCESS);
	if (qp->starved && fake_outstanding(qp) < qp->lane) {
		qp->starved = false;
		offload_capsule_ops.room(qp);
	}
	return true;
}

void fake_settle(struct hca_qp *qp)
{
	struct engine *engine = qp->ctx->engine;
	bool work;

	do {
		work = fake_progress(engine);
		while (fake_complete(qp))
			work = true;
	} while (work);
}

static void flush(struct hca_qp *qp)
{
	enum ibv_wc_status status = IBV_WC_RETRY_EXC_ERR;

	while (qp->head != qp->tail) {
		struct hidden_wr *wr = qp->posted[qp->head++ % MAX_POSTED];

		wr->done(wr, qp, status);
		status = IBV_WC_WR_FLUSH_ERR;
	}
	qp->starved = false;
}

void fake_qp_error(struct hca_qp *qp)
{
	qp->state = IBV_QPS_ERR;
	offload_capsule_ops.qp_down(qp);
	flush(qp);
}

void fake_qp_reset(struct hca_qp *qp)
{
	qp->state = IBV_QPS_RESET;
	offload_capsule_ops.qp_down(qp);
	flush(qp);
}

enum capsule_verdict fake_send(struct hca_qp *qp, const void *capsule, uint32_t len, uint32_t mtu)
{
	enum capsule_verdict verdict = CAPSULE_BAD;
	/* exactly sized: a read beyond it is seen by ASan */
	uint8_t *copy = malloc(len ? len : 1);
	uint32_t first_psn = qp->psn, done = 0;
	bool first = true;

	memcpy(copy, capsule, len);
	do {
		struct packet p = {
			.psn = qp->psn,
			.payload = copy + done,
			.payload_len = MIN(mtu, len - done),
			.flags = OPF_VALID | OPF_REQUEST | OPF_SEND,
		};

		done += p.payload_len;
		p.flags |= (first ? OPF_START : 0) | (done == len ? OPF_END : 0);
		p.opcode = first ? (done == len ? OP_SEND_ONLY : OP_SEND_FIRST)
				 : (done == len ? OP_SEND_LAST : OP_SEND_MIDDLE);
		verdict = first ? offload_capsule_ops.first(qp, &p)
				: offload_capsule_ops.next(qp, &p);
		first = false;
		qp->psn = (qp->psn + 1) & PSN_MASK;
	} while (done < len && verdict == CAPSULE_TAKEN);
	if (verdict == CAPSULE_RNR)
		qp->psn = first_psn; /* the host sends it again */
	else if (verdict == CAPSULE_NOT_MINE)
		qp->psn = (first_psn + 1 + (len ? (len - 1) / mtu : 0)) & PSN_MASK;
	free(copy);
	return verdict;
}

struct nvme_cqe *fake_response(struct hca_qp *qp)
{
	assert_true(qp->responses_read < qp->response_count);
	return &qp->responses[qp->responses_read++];
}
