// SPDX-License-Identifier: BSD-2-Clause
/*
 * timers.c: what protocol events mean for a QP's timer. There is one a QP: it waits either for an
 * acknowledgement or for the end of an RNR NAK's time, never for both (IBTA 1.4, 9.7.6.1.3).
 *
 * Acknowledgements come much more often than timers run out, so restarting only moves
 * req.deadline_ns; the heap's entry stays where it is and, when it fires early, is set again.
 */
#include "hca/qp_internal.h"
#include "util/bytes.h"
#include "util/clock.h"

/* Shorter local ACK timeouts than this would fire because a process was not scheduled */
#define ACK_TIMEOUT_MIN_NS (1 * NSEC_PER_MSEC)

const uint32_t rnr_timer_us[32] = {
	655360, 10,    20,    30,    40,    60,	    80,	    120,    160,    240,    320,
	480,	640,   960,   1280,  1920,  2560,   3840,   5120,   7680,   10240,  15360,
	20480,	30720, 40960, 61440, 81920, 122880, 163840, 245760, 327680, 491520,
};

/* 4.096 us * 2^timeout; 0 = no timer */
static uint64_t ack_timeout_ns(const struct hca_qp *qp)
{
	if (!qp->attr.timeout)
		return 0;
	return MAX(4096ULL << qp->attr.timeout, ACK_TIMEOUT_MIN_NS);
}

static void timer_fired(struct engine_timer *timer, uint64_t now_ns)
{
	struct hca_qp *qp = container_of(timer, struct hca_qp, req.timer);
	struct requester *req = &qp->req;

	if (!req->deadline_ns)
		return;
	if (req->deadline_ns > now_ns) {
		engine_timer_set(qp->engine, timer, req->deadline_ns);
		return;
	}
	req->deadline_ns = 0;
	if (req->rnr_wait)
		requester_rnr_over(qp);
	else
		requester_timed_out(qp, now_ns);
}

static void timer_start(struct hca_qp *qp, uint64_t deadline_ns)
{
	struct requester *req = &qp->req;

	req->deadline_ns = deadline_ns;
	if (!req->timer.deadline_ns || req->timer.deadline_ns > deadline_ns)
		engine_timer_set(qp->engine, &req->timer, deadline_ns);
}

void timers_init(struct hca_qp *qp)
{
	qp->req.timer.fn = timer_fired;
}

void timers_request_sent(struct hca_qp *qp)
{
	uint64_t timeout_ns = ack_timeout_ns(qp);

	if (timeout_ns && !qp->req.deadline_ns)
		timer_start(qp, qp->engine->now_ns + timeout_ns);
}

void timers_progress(struct hca_qp *qp)
{
	uint64_t timeout_ns = ack_timeout_ns(qp);

	if (qp->req.rnr_wait)
		return;
	if (requester_is_idle(qp) || !timeout_ns)
		qp->req.deadline_ns = 0;
	else
		timer_start(qp, qp->engine->now_ns + timeout_ns);
}

void timers_rnr_received(struct hca_qp *qp, uint8_t code)
{
	qp->req.rnr_wait = true;
	timer_start(qp, qp->engine->now_ns + rnr_timer_us[code & 31] * NSEC_PER_USEC);
}

void timers_stop(struct hca_qp *qp)
{
	qp->req.deadline_ns = 0;
	engine_timer_cancel(qp->engine, &qp->req.timer);
}
