// SPDX-License-Identifier: BSD-2-Clause
/*
 * timers.c: what protocol events mean for a QP's timer. There is one a QP: it waits either for an
 * acknowledgement or for the end of an RNR NAK's time, never for both (IBTA 1.4, 9.7.6.1.3).
 *
 * The local ACK timeout is long (Linux' CM chooses half a second and more), and a lost last packet
 * is noticed by nothing else. So, long before, a few probes make the responder say what it has
 * (requester_probe()); they are no timeouts and use no retry. RFC 8985 does the like for TCP.
 *
 * Acknowledgements come much more often than timers run out, so restarting only moves the
 * deadlines in struct requester; the heap's entry stays where it is and, when it fires early, is
 * set again.
 */
#include "hca/qp_internal.h"
#include "util/bytes.h"
#include "util/clock.h"

/* Shorter local ACK timeouts than this would fire because a process was not scheduled */
#define ACK_TIMEOUT_MIN_NS (1 * NSEC_PER_MSEC)

/* the first probe's silence at least; then twice as long each time */
#define PROBE_MIN_NS (2 * NSEC_PER_MSEC)
#define PROBES_MAX   5

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

static uint64_t next_deadline_ns(const struct requester *req)
{
	return req->probe_ns ? MIN(req->probe_ns, req->deadline_ns) : req->deadline_ns;
}

/* the heap's entry must not be later than what is due next */
static void timer_arm(struct hca_qp *qp)
{
	struct requester *req = &qp->req;
	uint64_t next_ns = next_deadline_ns(req);

	if (!req->timer.deadline_ns || req->timer.deadline_ns > next_ns)
		engine_timer_set(qp->engine, &req->timer, next_ns);
}

/* A QP that may not retry sends nothing twice */
static void probe_start(struct hca_qp *qp)
{
	struct requester *req = &qp->req;
	uint64_t wait_ns = MAX(req->rtt_ns + 4 * req->rtt_var_ns, PROBE_MIN_NS) << req->probes;

	req->probe_ns = qp->engine->now_ns + wait_ns;
	if (req->probes == PROBES_MAX || !qp->attr.retry_cnt || req->probe_ns >= req->deadline_ns)
		req->probe_ns = 0;
}

static void timer_fired(struct engine_timer *timer, uint64_t now_ns)
{
	struct hca_qp *qp = container_of(timer, struct hca_qp, req.timer);
	struct requester *req = &qp->req;

	if (!req->deadline_ns)
		return;
	if (req->deadline_ns <= now_ns) {
		req->deadline_ns = req->probe_ns = 0;
		if (req->rnr_wait)
			requester_rnr_over(qp);
		else
			requester_timed_out(qp, now_ns);
		return;
	}
	if (req->probe_ns && req->probe_ns <= now_ns) {
		req->probes++;
		probe_start(qp);
		requester_probe(qp);
	}
	timer_arm(qp);
}

void timers_init(struct hca_qp *qp)
{
	qp->req.timer.fn = timer_fired;
}

void timers_request_sent(struct hca_qp *qp)
{
	struct requester *req = &qp->req;
	uint64_t timeout_ns = ack_timeout_ns(qp);

	if (!timeout_ns || req->deadline_ns)
		return;
	req->deadline_ns = qp->engine->now_ns + timeout_ns;
	probe_start(qp);
	timer_arm(qp);
}

void timers_progress(struct hca_qp *qp)
{
	struct requester *req = &qp->req;
	uint64_t timeout_ns = ack_timeout_ns(qp);

	if (req->rnr_wait)
		return;
	req->probes = 0;
	if (requester_is_idle(qp) || !timeout_ns) {
		req->deadline_ns = req->probe_ns = 0;
		return;
	}
	req->deadline_ns = qp->engine->now_ns + timeout_ns;
	probe_start(qp);
	timer_arm(qp);
}

/* RFC 6298, 2.2 and 2.3 */
void timers_rtt_sample(struct hca_qp *qp, uint64_t rtt_ns)
{
	struct requester *req = &qp->req;
	uint64_t off_ns;

	if (!req->rtt_ns) {
		req->rtt_ns = rtt_ns;
		req->rtt_var_ns = rtt_ns / 2;
		return;
	}
	off_ns = rtt_ns > req->rtt_ns ? rtt_ns - req->rtt_ns : req->rtt_ns - rtt_ns;
	req->rtt_var_ns = (3 * req->rtt_var_ns + off_ns) / 4;
	req->rtt_ns = (7 * req->rtt_ns + rtt_ns) / 8;
}

void timers_rnr_received(struct hca_qp *qp, uint8_t code)
{
	struct requester *req = &qp->req;

	req->rnr_wait = true;
	req->probe_ns = 0;
	req->deadline_ns = qp->engine->now_ns + rnr_timer_us[code & 31] * NSEC_PER_USEC;
	timer_arm(qp);
}

void timers_stop(struct hca_qp *qp)
{
	qp->req.deadline_ns = qp->req.probe_ns = 0;
	engine_timer_cancel(qp->engine, &qp->req.timer);
}
