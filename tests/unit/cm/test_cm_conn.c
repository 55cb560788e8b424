// SPDX-License-Identifier: BSD-2-Clause
/*
 * The connection protocol (cm_conn.c, cm_recv.c, cm_table.c): two CMs and a wire between them
 * that loses, repeats and keeps what the test says, under a clock that the test moves. Rows of
 * wire-facts 4.7, 4.8 and 4.10.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

#include "cm/cm_conn.h"
#include "util/bytes.h"
#include "util/clock.h"

#define SERVICE	    0x01061144ULL
#define ACTIVE_QPN  0x010011
#define PASSIVE_QPN 0x020022
#define MAX_EVENTS  32
#define MAX_QUEUE   64

struct packet {
	struct cm_path path; /* as the receiver sees it */
	uint8_t data[CM_MAD_LEN];
};

struct node {
	struct cm cm;
	struct node *peer;
	union ibv_gid gid;
	uint64_t guid;
	/* sent, not yet arrived */
	struct packet queue[MAX_QUEUE];
	unsigned int queued;
	/* what happened */
	struct cm_event events[MAX_EVENTS];
	uint8_t event_private[MAX_EVENTS][256];
	unsigned int event_count;
	struct cm_conn *conn; /* made by request() or connect */
	unsigned int requests;
	uint8_t request_private[CMA_REQ_PRIVATE_LEN];
	/* how to behave */
	uint16_t refuse_lookup, refuse_request;
	bool no_rtu;
	bool not_yet; /* holds the service ID, does not listen */
};

static struct node a, b;
static uint64_t now_ns;

/* ---- the world ---- */

static void node_send(void *arg, const struct cm_path *path, const uint8_t data[CM_MAD_LEN])
{
	struct node *node = arg;
	struct packet *packet = &node->queue[node->queued++];

	assert_true(node->queued <= MAX_QUEUE);
	packet->path.sgid = path->dgid;
	packet->path.dgid = path->sgid;
	packet->path.ifindex = path->ifindex;
	memcpy(packet->data, data, CM_MAD_LEN);
}

static void *node_lookup(void *arg, const struct cm_req *req, const struct cma_header *cma,
			 const struct cm_path *path, struct cm_refusal *refusal)
{
	struct node *node = arg;

	refusal->reason = node->refuse_lookup;
	return node->refuse_lookup || node->not_yet ? NULL : node;
}

static uint16_t node_request(void *arg, void *listener, struct cm_conn *conn,
			     const struct cm_req *req, const struct cma_header *cma)
{
	struct node *node = arg;

	if (node->refuse_request)
		return node->refuse_request;
	node->requests++;
	node->conn = conn;
	conn->owner = node;
	memcpy(node->request_private, req->private_data + CMA_HEADER_LEN, CMA_REQ_PRIVATE_LEN);
	return 0;
}

static void node_event(void *arg, struct cm_conn *conn, const struct cm_event *event)
{
	struct node *node = arg;
	unsigned int i = node->event_count++;

	assert_true(i < MAX_EVENTS);
	node->events[i] = *event;
	if (event->private_data)
		memcpy(node->event_private[i], event->private_data, event->private_len);
	if (event->type == CM_EVENT_REP && !node->no_rtu)
		assert_int_equal(cm_conn_rtu(conn, NULL, 0), 0);
}

static const struct cm_ops ops = {
	.send = node_send, .lookup = node_lookup, .request = node_request, .event = node_event
};

static void node_init(struct node *node, uint8_t number, struct node *peer)
{
	memset(node, 0, sizeof(*node));
	node->peer = peer;
	node->gid = (union ibv_gid){ .raw = { [10] = 0xff, [11] = 0xff, 10, 0, 0, number } };
	node->guid = 0x1122334455660000ULL + number;
	cm_init(&node->cm, &ops, node, number, 0xaabbccdd00000100ULL);
}

static int setup(void **state)
{
	now_ns = 1000 * NSEC_PER_SEC;
	node_init(&a, 1, &b);
	node_init(&b, 2, &a);
	return 0;
}

static int teardown(void **state)
{
	cm_fini(&a.cm);
	cm_fini(&b.cm);
	assert_int_equal(a.cm.conn_count, 0);
	assert_int_equal(b.cm.conn_count, 0);
	return 0;
}

static uint16_t attribute_of(const struct packet *packet)
{
	return get_be16(packet->data + 16);
}

/* the one packet @node has sent and that has not arrived; it stays there */
static struct cm_mad sent(struct node *node, uint16_t attribute)
{
	struct cm_mad mad;

	assert_int_equal(node->queued, 1);
	assert_int_equal(cm_mad_decode(&mad, node->queue[0].data), CM_MAD_OK);
	assert_int_equal(mad.attribute, attribute);
	return mad;
}

static struct packet take(struct node *node, uint16_t attribute)
{
	struct packet packet;

	sent(node, attribute);
	packet = node->queue[0];
	node->queued = 0;
	return packet;
}

static void arrive(struct node *at, const struct packet *packet)
{
	cm_receive(&at->cm, &packet->path, packet->data, now_ns);
}

static void deliver(struct node *from, uint16_t attribute)
{
	struct packet packet = take(from, attribute);

	arrive(from->peer, &packet);
}

static void lose(struct node *from, uint16_t attribute)
{
	take(from, attribute);
}

static void nothing_sent(struct node *node)
{
	assert_int_equal(node->queued, 0);
}

static void advance(uint64_t ns)
{
	now_ns += ns;
	cm_run_timers(&a.cm, now_ns);
	cm_run_timers(&b.cm, now_ns);
}

static void expect_event(struct node *node, unsigned int index, enum cm_event_type type, int status)
{
	assert_true(index < node->event_count);
	assert_int_equal(node->events[index].type, type);
	assert_int_equal(node->events[index].status, status);
}

static struct cm_connect_param connect_param(void)
{
	struct cm_connect_param p = {
		.conn = { .ca_guid = a.guid,
			  .qpn = ACTIVE_QPN,
			  .starting_psn = 0xabcdef,
			  .responder_resources = 16,
			  .initiator_depth = 4,
			  .retry_count = 7,
			  .rnr_retry_count = 6,
			  .flow_control = true,
			  .private_data = "hello",
			  .private_len = 5 },
		.path = { .sgid = a.gid, .dgid = b.gid, .ifindex = 3 },
		.cma = { .ip_version = 4, .source_port = 40000, .src = a.gid, .dst = b.gid },
		.service_id = SERVICE,
		.path_mtu = IBV_MTU_1024,
		.ack_timeout = 17,
		.hop_limit = 64,
	};

	return p;
}

static void do_connect(void)
{
	struct cm_connect_param p = connect_param();

	assert_int_equal(cm_connect(&a.cm, &a.conn, &a, &p, now_ns), 0);
}

static const struct cm_conn_param accept_param = {
	.ca_guid = 0x1122334455660002ULL,
	.qpn = PASSIVE_QPN,
	.starting_psn = 0x123456,
	.responder_resources = 4,
	.initiator_depth = 16,
	.rnr_retry_count = 5,
	.target_ack_delay = 15,
	.private_data = "world",
	.private_len = 5,
};

static void do_accept(void)
{
	assert_int_equal(cm_conn_prepare_accept(b.conn, &accept_param), 0);
	assert_int_equal(cm_conn_accept(b.conn, &accept_param, now_ns), 0);
}

static void establish(void)
{
	do_connect();
	deliver(&a, CM_REQ);
	do_accept();
	deliver(&b, CM_REP);
	deliver(&a, CM_RTU);
	assert_int_equal(a.conn->state, CM_ESTABLISHED);
	assert_int_equal(b.conn->state, CM_ESTABLISHED);
	a.event_count = b.event_count = 0;
}

/* ---- both ways through ---- */

static void test_connect(void **state)
{
	uint8_t zeros[CMA_REQ_PRIVATE_LEN] = { 0 };
	struct cm_mad mad;

	do_connect();
	assert_int_equal(a.conn->local_id >> 24, 1); /* the slot */
	mad = sent(&a, CM_REQ);
	assert_int_equal(mad.req.service_id, SERVICE);
	assert_int_equal(mad.req.responder_resources, 16);
	assert_int_equal(mad.req.primary.local_lid, 0xffff);
	assert_int_equal(mad.req.alternate.local_lid, 0);
	assert_int_equal(mad.req.max_cm_retries, 15);
	deliver(&a, CM_REQ);

	assert_int_equal(b.requests, 1);
	assert_int_equal(b.conn->state, CM_REQ_RCVD);
	assert_memory_equal(b.request_private, "hello", 5);
	assert_memory_equal(b.request_private + 5, zeros, CMA_REQ_PRIVATE_LEN - 5);
	/* crossed: 4.4 */
	assert_int_equal(b.conn->responder_resources, 4);
	assert_int_equal(b.conn->initiator_depth, 16);
	assert_int_equal(b.conn->remote_qpn, ACTIVE_QPN);
	assert_int_equal(b.conn->remote_psn, 0xabcdef);
	assert_int_equal(b.conn->retry_count, 7);
	assert_int_equal(b.conn->rnr_retry_count, 6);
	assert_int_equal(b.conn->path_mtu, IBV_MTU_1024);
	assert_int_equal(b.conn->ack_timeout, 17);

	do_accept();
	mad = sent(&b, CM_REP);
	assert_int_equal(mad.rep.remote_id, a.conn->local_id);
	assert_int_equal(mad.rep.local_id >> 24, 2);
	assert_int_equal(mad.rep.qpn, PASSIVE_QPN);
	assert_int_equal(mad.rep.target_ack_delay, 15);
	assert_int_equal(mad.rep.failover, 0);
	deliver(&b, CM_REP);
	expect_event(&a, 0, CM_EVENT_REP, 0);
	assert_int_equal(a.events[0].private_len, CM_REP_PRIVATE_LEN);
	assert_memory_equal(a.event_private[0], "world\0\0", 7);
	assert_int_equal(a.conn->local_psn, 0xabcdef);
	assert_int_equal(a.conn->remote_psn, 0x123456);
	assert_int_equal(a.conn->remote_qpn, PASSIVE_QPN);
	assert_int_equal(a.conn->initiator_depth, 4);	   /* REP responder resources */
	assert_int_equal(a.conn->responder_resources, 16); /* REP initiator depth */
	assert_int_equal(a.conn->rnr_retry_count, 5);
	assert_int_equal(a.conn->retry_count, 7);

	deliver(&a, CM_RTU);
	expect_event(&b, 0, CM_EVENT_ESTABLISHED, 0);
	assert_int_equal(a.event_count, 1);
	assert_int_equal(b.event_count, 1);
	/* and no timer is left */
	assert_int_equal(cm_next_deadline(&a.cm), 0);
	assert_int_equal(cm_next_deadline(&b.cm), 0);
}

static void test_accept_never_asks_more_than_offered(void **state)
{
	struct cm_conn_param p = accept_param;

	do_connect();
	deliver(&a, CM_REQ);
	p.initiator_depth = 100;
	assert_int_equal(cm_conn_prepare_accept(b.conn, &p), 0);
	assert_int_equal(b.conn->initiator_depth, 16);
}

static void test_disconnect(void **state)
{
	struct cm_mad mad;

	establish();
	assert_int_equal(cm_conn_disconnect(a.conn, now_ns), 0);
	mad = sent(&a, CM_DREQ);
	assert_int_equal(mad.dreq.remote_qpn, PASSIVE_QPN);
	assert_int_not_equal(mad.tid, a.conn->tid);
	deliver(&a, CM_DREQ);
	expect_event(&b, 0, CM_EVENT_DISCONNECTED, 0);
	assert_int_equal(sent(&b, CM_DREP).tid, mad.tid);
	deliver(&b, CM_DREP);
	expect_event(&a, 0, CM_EVENT_DISCONNECTED, 0);
	assert_int_equal(a.conn->state, CM_TIMEWAIT);
	assert_int_equal(b.conn->state, CM_TIMEWAIT);
	/* again, from either side: done already */
	assert_int_equal(cm_conn_disconnect(a.conn, now_ns), 0);
	assert_int_equal(cm_conn_disconnect(b.conn, now_ns), 0);
	nothing_sent(&a);
	nothing_sent(&b);

	advance(536 * NSEC_PER_MSEC); /* 4.096 us * 2^17 = 536.9 ms */
	assert_int_equal(a.event_count, 1);
	advance(NSEC_PER_MSEC);
	expect_event(&a, 1, CM_EVENT_TIMEWAIT_EXIT, 0);
	expect_event(&b, 1, CM_EVENT_TIMEWAIT_EXIT, 0);
	assert_int_equal(cm_conn_disconnect(a.conn, now_ns), 0);
	nothing_sent(&a);
}

static void test_private_data_too_long(void **state)
{
	static const uint8_t data[256];
	struct cm_connect_param p = connect_param();
	struct cm_conn_param q = accept_param;
	struct cm_conn *conn;

	p.conn.private_data = data;
	p.conn.private_len = 57;
	assert_int_equal(cm_connect(&a.cm, &conn, &a, &p, now_ns), -EINVAL);
	do_connect();
	deliver(&a, CM_REQ);
	q.private_data = data;
	q.private_len = 197;
	assert_int_equal(cm_conn_prepare_accept(b.conn, &q), -EINVAL);
	assert_int_equal(cm_conn_accept(b.conn, &q, now_ns), -EINVAL);
	assert_int_equal(cm_conn_reject(b.conn, CM_REJ_CONSUMER, data, 149, now_ns), -EINVAL);
	assert_int_equal(cm_conn_reject(b.conn, CM_REJ_CONSUMER, data, 148, now_ns), 0);
}

/* ---- losses ---- */

static void test_lost_req(void **state)
{
	do_connect();
	lose(&a, CM_REQ);
	advance(499 * NSEC_PER_MSEC);
	nothing_sent(&a);
	advance(NSEC_PER_MSEC); /* 500 */
	lose(&a, CM_REQ);
	advance(999 * NSEC_PER_MSEC);
	nothing_sent(&a);
	advance(NSEC_PER_MSEC); /* + 1000 */
	deliver(&a, CM_REQ);
	assert_int_equal(b.requests, 1);
}

static void test_lost_rep(void **state)
{
	do_connect();
	deliver(&a, CM_REQ);
	do_accept();
	lose(&b, CM_REP);
	/* the REQ comes again and has the REP sent again, without a new request */
	now_ns += 500 * NSEC_PER_MSEC;
	cm_run_timers(&a.cm, now_ns);
	deliver(&a, CM_REQ);
	assert_int_equal(b.requests, 1);
	deliver(&b, CM_REP);
	deliver(&a, CM_RTU);
	expect_event(&b, 0, CM_EVENT_ESTABLISHED, 0);
	assert_int_equal(b.event_count, 1);
}

static void test_lost_rtu(void **state)
{
	do_connect();
	deliver(&a, CM_REQ);
	do_accept();
	deliver(&b, CM_REP);
	lose(&a, CM_RTU);
	assert_int_equal(a.conn->state, CM_ESTABLISHED);
	advance(500 * NSEC_PER_MSEC);
	deliver(&b, CM_REP);
	deliver(&a, CM_RTU);
	expect_event(&b, 0, CM_EVENT_ESTABLISHED, 0);
	assert_int_equal(a.event_count, 1); /* one REP for the user */
}

static void test_data_before_rtu(void **state)
{
	do_connect();
	deliver(&a, CM_REQ);
	assert_int_equal(cm_conn_comm_established(b.conn), -EINVAL);
	do_accept();
	deliver(&b, CM_REP);
	assert_int_equal(cm_conn_comm_established(b.conn), 0);
	expect_event(&b, 0, CM_EVENT_ESTABLISHED, 0);
	deliver(&a, CM_RTU); /* late, and no second event */
	assert_int_equal(b.event_count, 1);
	assert_int_equal(cm_next_deadline(&b.cm), 0);
}

static void test_lost_dreq_and_drep(void **state)
{
	establish();
	cm_conn_disconnect(a.conn, now_ns);
	lose(&a, CM_DREQ);
	now_ns += 500 * NSEC_PER_MSEC;
	cm_run_timers(&a.cm, now_ns);
	deliver(&a, CM_DREQ);
	lose(&b, CM_DREP);
	now_ns += 1000 * NSEC_PER_MSEC;
	cm_run_timers(&a.cm, now_ns);
	deliver(&a, CM_DREQ); /* b is in timewait */
	assert_int_equal(b.event_count, 1);
	deliver(&b, CM_DREP);
	expect_event(&a, 0, CM_EVENT_DISCONNECTED, 0);
}

static void test_drep_after_peer_forgot(void **state)
{
	establish();
	cm_conn_disconnect(a.conn, now_ns);
	deliver(&a, CM_DREQ);
	lose(&b, CM_DREP);
	cm_fini(&b.cm);
	b.event_count = 0;
	now_ns += 500 * NSEC_PER_MSEC;
	cm_run_timers(&a.cm, now_ns);
	deliver(&a, CM_DREQ);
	deliver(&b, CM_DREP);
	expect_event(&a, 0, CM_EVENT_DISCONNECTED, 0);
}

/* ---- nobody answers ---- */

static void test_unreachable(void **state)
{
	struct cm_mad mad;
	unsigned int reqs = 0;

	do_connect();
	for (int i = 0; i < 1000 && !a.event_count; i++) {
		while (a.queued && attribute_of(&a.queue[0]) == CM_REQ) {
			lose(&a, CM_REQ);
			reqs++;
		}
		advance(100 * NSEC_PER_MSEC);
	}
	assert_int_equal(reqs, 16); /* and 15 repetitions */
	expect_event(&a, 0, CM_EVENT_UNREACHABLE, -ETIMEDOUT);
	mad = sent(&a, CM_REJ);
	assert_int_equal(mad.rej.reason, CM_REJ_TIMEOUT);
	assert_int_equal(mad.rej.answers, CM_ANSWERS_REQ);
	assert_int_equal(mad.rej.remote_id, 0);
	assert_int_equal(mad.rej.ari_len, 8);
	assert_int_equal(get_be64(mad.rej.ari), a.guid);
	assert_int_equal(a.conn->state, CM_IDLE);
	assert_int_equal(cm_next_deadline(&a.cm), 0);
}

static void test_no_rtu_ever(void **state)
{
	struct cm_mad mad;
	unsigned int reps = 0;

	do_connect();
	deliver(&a, CM_REQ);
	do_accept();
	for (int i = 0; i < 1000 && !b.event_count; i++) {
		while (b.queued && attribute_of(&b.queue[0]) == CM_REP) {
			lose(&b, CM_REP);
			reps++;
		}
		a.queued = 0;
		now_ns += 100 * NSEC_PER_MSEC;
		cm_run_timers(&b.cm, now_ns);
	}
	assert_int_equal(reps, 16);
	expect_event(&b, 0, CM_EVENT_UNREACHABLE, -ETIMEDOUT);
	mad = sent(&b, CM_REJ);
	assert_int_equal(mad.rej.reason, CM_REJ_TIMEOUT);
	assert_int_equal(mad.rej.answers, CM_ANSWERS_REP);
	assert_int_equal(mad.rej.remote_id, a.conn->local_id);
	assert_int_equal(b.conn->state, CM_TIMEWAIT);
}

static void test_dreq_unanswered(void **state)
{
	unsigned int dreqs = 0;

	establish();
	cm_conn_disconnect(a.conn, now_ns);
	for (int i = 0; i < 1000 && !a.event_count; i++) {
		while (a.queued) {
			lose(&a, CM_DREQ);
			dreqs++;
		}
		advance(100 * NSEC_PER_MSEC);
	}
	assert_int_equal(dreqs, 8);
	expect_event(&a, 0, CM_EVENT_DISCONNECTED, -ETIMEDOUT);
	assert_int_equal(a.conn->state, CM_TIMEWAIT);
}

static void test_mra(void **state)
{
	struct packet req;

	do_connect();
	req = a.queue[0];
	deliver(&a, CM_REQ);
	/* the application thinks; a repetition of the REQ is told to wait */
	arrive(&b, &req);
	assert_int_equal(sent(&b, CM_MRA).mra.service_timeout, 24);
	deliver(&b, CM_MRA);
	assert_int_equal(b.requests, 1);
	advance(60 * NSEC_PER_SEC); /* no repetition in the meantime */
	nothing_sent(&a);
	assert_int_equal(a.event_count, 0);
	advance(20 * NSEC_PER_SEC); /* 68.7 + 4.3 s are over: it resumes */
	lose(&a, CM_REQ);
	do_accept();
	deliver(&b, CM_REP);
	deliver(&a, CM_RTU);
	expect_event(&b, 0, CM_EVENT_ESTABLISHED, 0);
}

static void test_mra_out_of_place(void **state)
{
	struct cm_mad mra = { .attribute = CM_MRA,
			      .mra = { .answers = CM_ANSWERS_REP, .service_timeout = 31 } };
	struct packet packet = { .path = { .sgid = a.gid, .dgid = b.gid } };
	uint64_t deadline;

	do_connect();
	deadline = cm_next_deadline(&a.cm);
	mra.mra.remote_id = a.conn->local_id;
	cm_mad_encode(packet.data, &mra);
	arrive(&a, &packet); /* for a REP: not this side's */
	assert_int_equal(cm_next_deadline(&a.cm), deadline);
	mra.mra.answers = CM_ANSWERS_REQ;
	cm_mad_encode(packet.data, &mra);
	arrive(&a, &packet); /* 2.4 hours asked, cut to 68.7 s (+ 4.3) */
	assert_true(cm_next_deadline(&a.cm) < now_ns + 74 * NSEC_PER_SEC);
	assert_true(cm_next_deadline(&a.cm) > now_ns + 72 * NSEC_PER_SEC);
}

/* ---- duplicates ---- */

static void test_duplicate_req(void **state)
{
	struct packet req;

	do_connect();
	req = a.queue[0];
	deliver(&a, CM_REQ);
	do_accept();
	lose(&b, CM_REP);
	arrive(&b, &req); /* REP_SENT: the REP again */
	deliver(&b, CM_REP);
	deliver(&a, CM_RTU);
	arrive(&b, &req); /* ESTABLISHED: late, ignored */
	nothing_sent(&b);
	assert_int_equal(b.conn->state, CM_ESTABLISHED);
	cm_conn_disconnect(a.conn, now_ns);
	deliver(&a, CM_DREQ);
	deliver(&b, CM_DREP);
	arrive(&b, &req); /* timewait: REJ 10 */
	assert_int_equal(sent(&b, CM_REJ).rej.reason, CM_REJ_STALE_CONN);
	assert_int_equal(b.requests, 1);
}

/* a third host has claimed the GUID and the communication ID before: repetitions are still known */
static void test_req_with_anothers_guid_and_id(void **state)
{
	struct packet req, other;
	struct cm_mad mad;

	do_connect();
	req = take(&a, CM_REQ);
	other = req;
	other.path.dgid.raw[15] = 3;
	assert_int_equal(cm_mad_decode(&mad, other.data), CM_MAD_OK);
	mad.req.primary.local_gid = other.path.dgid;
	cm_mad_encode(other.data, &mad);
	arrive(&b, &other);
	assert_int_equal(b.requests, 1);
	arrive(&b, &req);
	assert_int_equal(b.requests, 2);
	do_accept();
	lose(&b, CM_REP);
	arrive(&b, &req); /* not stale: the REP again */
	deliver(&b, CM_REP);
	deliver(&a, CM_RTU);
	assert_int_equal(b.conn->state, CM_ESTABLISHED);
	assert_int_equal(b.requests, 2);
}

static void test_duplicate_rep(void **state)
{
	struct packet rep;

	do_connect();
	deliver(&a, CM_REQ);
	do_accept();
	rep = b.queue[0];
	deliver(&b, CM_REP);
	deliver(&a, CM_RTU);
	arrive(&a, &rep);
	deliver(&a, CM_RTU);
	assert_int_equal(a.event_count, 1);
	assert_int_equal(b.event_count, 1);
	cm_conn_disconnect(a.conn, now_ns);
	deliver(&a, CM_DREQ);
	deliver(&b, CM_DREP);
	arrive(&a, &rep); /* after the disconnect: ignored */
	nothing_sent(&a);
	assert_int_equal(a.conn->state, CM_TIMEWAIT);
}

static void test_late_rtu(void **state)
{
	struct packet rtu;

	do_connect();
	deliver(&a, CM_REQ);
	do_accept();
	deliver(&b, CM_REP);
	rtu = take(&a, CM_RTU);
	cm_conn_disconnect(b.conn, now_ns);
	arrive(&b, &rtu);
	assert_int_equal(b.conn->state, CM_DREQ_SENT);
	deliver(&b, CM_DREQ);
	deliver(&a, CM_DREP);
	expect_event(&b, 0, CM_EVENT_DISCONNECTED, 0);
	arrive(&b, &rtu);
	assert_int_equal(b.conn->state, CM_TIMEWAIT);
}

static void test_crossing_dreqs(void **state)
{
	struct packet from_a, from_b;

	establish();
	cm_conn_disconnect(a.conn, now_ns);
	cm_conn_disconnect(b.conn, now_ns);
	from_a = take(&a, CM_DREQ);
	from_b = take(&b, CM_DREQ);
	arrive(&b, &from_a);
	arrive(&a, &from_b);
	expect_event(&a, 0, CM_EVENT_DISCONNECTED, 0);
	expect_event(&b, 0, CM_EVENT_DISCONNECTED, 0);
	deliver(&a, CM_DREP);
	deliver(&b, CM_DREP);
	assert_int_equal(a.event_count, 1);
	assert_int_equal(b.event_count, 1);
}

static void test_dreq_not_ours(void **state)
{
	struct cm_mad dreq = { .tid = 77, .attribute = CM_DREQ };
	struct packet packet = { .path = { .sgid = b.gid, .dgid = a.gid } };

	establish();
	/* another QPN: ignored */
	dreq.dreq.local_id = a.conn->local_id;
	dreq.dreq.remote_id = b.conn->local_id;
	dreq.dreq.remote_qpn = PASSIVE_QPN + 1;
	cm_mad_encode(packet.data, &dreq);
	arrive(&b, &packet);
	nothing_sent(&b);
	assert_int_equal(b.conn->state, CM_ESTABLISHED);
	/* another sender's address: it gets the answer of those who know nothing */
	dreq.dreq.remote_qpn = PASSIVE_QPN;
	cm_mad_encode(packet.data, &dreq);
	packet.path.dgid.raw[15] = 99;
	arrive(&b, &packet);
	lose(&b, CM_DREP);
	assert_int_equal(b.conn->state, CM_ESTABLISHED);
	/* unknown IDs: DREP anyway, IDs crossed, TID kept */
	packet.path.dgid = a.gid;
	dreq.dreq.remote_id = 0x02ffffff;
	cm_mad_encode(packet.data, &dreq);
	arrive(&b, &packet);
	assert_int_equal(sent(&b, CM_DREP).tid, 77);
	assert_int_equal(sent(&b, CM_DREP).drep.local_id, 0x02ffffff);
	assert_int_equal(sent(&b, CM_DREP).drep.remote_id, a.conn->local_id);
	assert_int_equal(b.conn->state, CM_ESTABLISHED);
}

/* ---- refusals ---- */

static void test_reject(void **state)
{
	struct packet req;

	do_connect();
	req = a.queue[0];
	deliver(&a, CM_REQ);
	assert_int_equal(cm_conn_reject(b.conn, CM_REJ_CONSUMER, "no", 2, now_ns), 0);
	assert_int_equal(sent(&b, CM_REJ).rej.answers, CM_ANSWERS_REQ);
	lose(&b, CM_REJ);
	/* lost: the repeated REQ gets the same answer and the application hears nothing of it */
	arrive(&b, &req);
	assert_int_equal(b.requests, 1);
	deliver(&b, CM_REJ);
	expect_event(&a, 0, CM_EVENT_REJECTED, CM_REJ_CONSUMER);
	assert_int_equal(a.events[0].private_len, CM_REJ_PRIVATE_LEN);
	assert_memory_equal(a.event_private[0], "no\0", 3);
	assert_int_equal(a.conn->state, CM_IDLE);
	/* twice is once */
	assert_int_equal(cm_conn_reject(b.conn, CM_REJ_CONSUMER, NULL, 0, now_ns), -EINVAL);
	advance(10 * NSEC_PER_SEC);
	assert_int_equal(b.event_count, 0);
	assert_int_equal(b.conn->state, CM_IDLE);
}

static void test_no_listener(void **state)
{
	struct cm_mad mad;

	b.refuse_lookup = CM_REJ_INVALID_SERVICE_ID;
	do_connect();
	deliver(&a, CM_REQ);
	mad = sent(&b, CM_REJ);
	assert_int_equal(mad.rej.reason, CM_REJ_INVALID_SERVICE_ID);
	assert_int_equal(mad.rej.local_id, 0);
	assert_int_equal(mad.rej.remote_id, a.conn->local_id);
	assert_int_equal(mad.tid, a.conn->tid);
	/* perhaps it is about to listen: asked again after 100 and 200 ms, then believed */
	for (int i = 0; i < 2; i++) {
		deliver(&b, CM_REJ);
		assert_int_equal(a.event_count, 0);
		advance((100U << i) * NSEC_PER_MSEC - 1);
		nothing_sent(&a);
		advance(1);
		deliver(&a, CM_REQ);
	}
	deliver(&b, CM_REJ);
	expect_event(&a, 0, CM_EVENT_REJECTED, CM_REJ_INVALID_SERVICE_ID);
	assert_int_equal(b.cm.conn_count, 0);
	assert_int_equal(cm_next_deadline(&a.cm), 0);
}

static void test_listener_comes_late(void **state)
{
	b.refuse_lookup = CM_REJ_INVALID_SERVICE_ID;
	do_connect();
	deliver(&a, CM_REQ);
	deliver(&b, CM_REJ);
	b.refuse_lookup = 0;
	advance(100 * NSEC_PER_MSEC);
	deliver(&a, CM_REQ);
	do_accept();
	deliver(&b, CM_REP);
	deliver(&a, CM_RTU);
	expect_event(&b, 0, CM_EVENT_ESTABLISHED, 0);
	assert_int_equal(a.event_count, 1);
}

static void test_req_waits_for_listener(void **state)
{
	struct packet req;

	b.not_yet = true;
	do_connect();
	req = a.queue[0];
	deliver(&a, CM_REQ);
	nothing_sent(&b);
	arrive(&b, &req); /* once is enough */
	assert_int_equal(cm_next_deadline(&b.cm), now_ns + CM_HOLD_NS);
	cm_listening(&b.cm, SERVICE + 1, now_ns);
	assert_int_equal(b.requests, 0);
	b.not_yet = false;
	cm_listening(&b.cm, SERVICE, now_ns);
	assert_int_equal(b.requests, 1);
	assert_int_equal(cm_next_deadline(&b.cm), 0);
	do_accept();
	deliver(&b, CM_REP);
	deliver(&a, CM_RTU);
	assert_int_equal(b.conn->state, CM_ESTABLISHED);
}

static void test_req_waits_in_vain(void **state)
{
	b.not_yet = true;
	do_connect();
	deliver(&a, CM_REQ);
	now_ns += CM_HOLD_NS - 1;
	cm_run_timers(&b.cm, now_ns);
	nothing_sent(&b);
	now_ns++;
	cm_run_timers(&b.cm, now_ns);
	assert_int_equal(sent(&b, CM_REJ).rej.reason, CM_REJ_INVALID_SERVICE_ID);
	assert_int_equal(cm_next_deadline(&b.cm), 0);
}

/* what waits is bounded: the 65th REQ is refused at once */
static void test_held_reqs_are_bounded(void **state)
{
	struct cm_mad mad;
	struct packet packet;

	b.not_yet = true;
	do_connect();
	packet = take(&a, CM_REQ);
	for (uint32_t i = 0; i <= CM_HELD_MAX; i++) {
		cm_mad_decode(&mad, packet.data);
		mad.req.local_id++;
		cm_mad_encode(packet.data, &mad);
		nothing_sent(&b);
		arrive(&b, &packet);
	}
	assert_int_equal(sent(&b, CM_REJ).rej.reason, CM_REJ_INVALID_SERVICE_ID);
}

static void test_backlog_full(void **state)
{
	b.refuse_request = CM_REJ_CONSUMER;
	do_connect();
	deliver(&a, CM_REQ);
	assert_int_equal(sent(&b, CM_REJ).rej.reason, CM_REJ_CONSUMER);
	assert_int_equal(b.cm.conn_count, 0);
}

/* a REQ with one thing wrong, and the reason it must get */
static uint16_t reason_for(void (*spoil)(struct cm_req *req))
{
	struct cm_mad mad;
	struct packet packet;
	uint16_t reason;

	if (!a.queued)
		do_connect();
	packet = a.queue[0];
	cm_mad_decode(&mad, packet.data);
	spoil(&mad.req);
	cm_mad_encode(packet.data, &mad);
	arrive(&b, &packet);
	assert_int_equal(b.requests, 0);
	reason = sent(&b, CM_REJ).rej.reason;
	b.queued = 0;
	return reason;
}

static void spoil_transport(struct cm_req *req)
{
	req->transport = CM_TRANSPORT_UC;
}

static void spoil_mtu_low(struct cm_req *req)
{
	req->path_mtu = 0;
}

static void spoil_mtu_high(struct cm_req *req)
{
	req->path_mtu = 6;
}

static void spoil_local_gid(struct cm_req *req)
{
	req->primary.local_gid.raw[15]++;
}

static void spoil_remote_gid(struct cm_req *req)
{
	req->primary.remote_gid.raw[15]++;
}

static void spoil_qpn(struct cm_req *req)
{
	req->qpn = 0;
}

static void spoil_cma(struct cm_req *req)
{
	req->private_data[1] = 0x70;
}

static void test_bad_reqs(void **state)
{
	assert_int_equal(reason_for(spoil_transport), CM_REJ_INVALID_TRANSPORT);
	assert_int_equal(reason_for(spoil_mtu_low), CM_REJ_INVALID_MTU);
	assert_int_equal(reason_for(spoil_mtu_high), CM_REJ_INVALID_MTU);
	assert_int_equal(reason_for(spoil_local_gid), CM_REJ_INVALID_GID);
	assert_int_equal(reason_for(spoil_remote_gid), CM_REJ_INVALID_GID);
	assert_int_equal(reason_for(spoil_qpn), CM_REJ_NO_QP);
	assert_int_equal(reason_for(spoil_cma), CM_REJ_UNSUPPORTED);
	assert_int_equal(b.cm.conn_count, 0);
	deliver(&a, CM_REQ); /* the unspoilt one is good */
	assert_int_equal(b.requests, 1);
}

static void test_alternate_path_is_declined(void **state)
{
	struct cm_mad mad;
	struct packet packet;

	do_connect();
	packet = take(&a, CM_REQ);
	cm_mad_decode(&mad, packet.data);
	mad.req.alternate.local_lid = 1;
	cm_mad_encode(packet.data, &mad);
	arrive(&b, &packet);
	do_accept();
	assert_int_equal(sent(&b, CM_REP).rep.failover, 1); /* not supported */
}

static void test_rep_for_unknown_id(void **state)
{
	struct cm_mad rep = { .tid = 5, .attribute = CM_REP };
	struct packet packet = { .path = { .sgid = a.gid, .dgid = b.gid } };

	rep.rep.local_id = 0x02000001;
	rep.rep.remote_id = 0x01654321;
	cm_mad_encode(packet.data, &rep);
	arrive(&a, &packet);
	assert_int_equal(sent(&a, CM_REJ).rej.reason, CM_REJ_INVALID_COMM_ID);
	assert_int_equal(sent(&a, CM_REJ).rej.answers, CM_ANSWERS_REP);
	assert_int_equal(sent(&a, CM_REJ).rej.remote_id, 0x02000001);
	assert_int_equal(sent(&a, CM_REJ).rej.local_id, 0x01654321);
}

static void test_active_refuses_rep(void **state)
{
	a.no_rtu = true;
	do_connect();
	deliver(&a, CM_REQ);
	do_accept();
	deliver(&b, CM_REP);
	assert_int_equal(cm_conn_reject(a.conn, CM_REJ_CONSUMER, NULL, 0, now_ns), 0);
	assert_int_equal(sent(&a, CM_REJ).rej.answers, CM_ANSWERS_REP);
	deliver(&a, CM_REJ);
	expect_event(&b, 0, CM_EVENT_REJECTED, CM_REJ_CONSUMER);
	assert_int_equal(b.conn->state, CM_IDLE);
}

static void test_establish_later(void **state)
{
	struct packet rep;

	a.no_rtu = true;
	do_connect();
	assert_int_equal(cm_conn_rtu(a.conn, NULL, 0), -EINVAL);
	deliver(&a, CM_REQ);
	do_accept();
	rep = b.queue[0];
	deliver(&b, CM_REP);
	arrive(&a, &rep); /* while the application prepares its QP */
	assert_int_equal(a.event_count, 1);
	nothing_sent(&a);
	assert_int_equal(cm_conn_rtu(a.conn, "rtu", 3), 0);
	deliver(&a, CM_RTU);
	expect_event(&b, 0, CM_EVENT_ESTABLISHED, 0);
}

static void test_rej_while_established(void **state)
{
	struct cm_mad rej = { .attribute = CM_REJ,
			      .rej = { .answers = CM_ANSWERS_REP, .reason = CM_REJ_TIMEOUT } };
	struct packet packet = { .path = { .sgid = a.gid, .dgid = b.gid } };

	establish();
	rej.rej.local_id = b.conn->local_id;
	rej.rej.remote_id = a.conn->local_id;
	cm_mad_encode(packet.data, &rej);
	arrive(&a, &packet);
	expect_event(&a, 0, CM_EVENT_DISCONNECTED, 0);
	assert_int_equal(a.conn->state, CM_TIMEWAIT);
}

static void test_timeout_rej_names_no_id(void **state)
{
	/* a gives up before it learned b's ID: b finds the connection by (CA GUID, ID) */
	do_connect();
	deliver(&a, CM_REQ);
	cm_conn_destroy(a.conn, now_ns);
	assert_int_equal(sent(&a, CM_REJ).rej.remote_id, 0);
	deliver(&a, CM_REJ);
	expect_event(&b, 0, CM_EVENT_REJECTED, CM_REJ_TIMEOUT);
	assert_int_equal(b.conn->state, CM_IDLE);
	advance(10 * NSEC_PER_SEC);
	assert_int_equal(a.cm.conn_count, 0); /* and a's memory is free */
}

static void test_rep_after_giving_up(void **state)
{
	do_connect();
	deliver(&a, CM_REQ);
	cm_conn_destroy(a.conn, now_ns);
	lose(&a, CM_REJ);
	do_accept();
	deliver(&b, CM_REP);
	assert_int_equal(sent(&a, CM_REJ).rej.answers, CM_ANSWERS_REP);
	deliver(&a, CM_REJ);
	expect_event(&b, 0, CM_EVENT_REJECTED, CM_REJ_TIMEOUT);
}

/* ---- stale connections ---- */

static void test_stale_connection(void **state)
{
	struct cm_conn *old;
	struct cm_connect_param p = connect_param();

	establish();
	old = b.conn;
	/* a is killed and starts again: same QPN, same GUID, another ID */
	cm_fini(&a.cm);
	cm_init(&a.cm, &ops, &a, 1, 0x555);
	assert_int_equal(cm_connect(&a.cm, &a.conn, &a, &p, now_ns), 0);
	{
		struct packet req = take(&a, CM_REQ);

		arrive(&b, &req);
	}
	assert_int_equal(b.requests, 1);
	assert_int_equal(b.queued, 2);
	assert_int_equal(attribute_of(&b.queue[0]), CM_REJ);
	assert_int_equal(attribute_of(&b.queue[1]), CM_DREQ);
	assert_int_equal(old->state, CM_DREQ_SENT);
	b.queued = 2;
	arrive(&a, &b.queue[0]);
	expect_event(&a, 0, CM_EVENT_REJECTED, CM_REJ_STALE_CONN);
	arrive(&a, &b.queue[1]);
	b.queued = 0;
	deliver(&a, CM_DREP); /* of IDs it does not know */
	expect_event(&b, 0, CM_EVENT_DISCONNECTED, 0);
	/* at once again: accepted, although the old one is in timewait */
	cm_conn_destroy(a.conn, now_ns);
	assert_int_equal(cm_connect(&a.cm, &a.conn, &a, &p, now_ns), 0);
	deliver(&a, CM_REQ);
	assert_int_equal(b.requests, 2);
	do_accept();
	deliver(&b, CM_REP);
	deliver(&a, CM_RTU);
	assert_int_equal(b.conn->state, CM_ESTABLISHED);
	cm_conn_destroy(old, now_ns);
}

static void test_stale_needs_the_same_address(void **state)
{
	struct cm_mad mad;
	struct packet packet;

	do_connect();
	packet = a.queue[0];
	deliver(&a, CM_REQ);
	do_accept();
	deliver(&b, CM_REP);
	deliver(&a, CM_RTU);
	/* someone else claims a's GUID and QPN: a's connection lives on */
	cm_mad_decode(&mad, packet.data);
	mad.req.local_id++;
	packet.path.dgid.raw[15] = 99;
	mad.req.primary.local_gid = packet.path.dgid;
	cm_mad_encode(packet.data, &mad);
	a.conn = b.conn; /* request() overwrites it */
	arrive(&b, &packet);
	assert_int_equal(a.conn->state, CM_ESTABLISHED);
}

static void test_rep_with_stale_qpn(void **state)
{
	struct cm_connect_param p = connect_param();
	struct cm_conn *second;

	establish();
	p.conn.qpn = ACTIVE_QPN + 1;
	assert_int_equal(cm_connect(&a.cm, &second, &a, &p, now_ns), 0);
	deliver(&a, CM_REQ);
	do_accept(); /* with the QPN that is connected already */
	deliver(&b, CM_REP);
	expect_event(&a, 0, CM_EVENT_REJECTED, CM_REJ_STALE_CONN);
	assert_int_equal(sent(&a, CM_REJ).rej.reason, CM_REJ_STALE_CONN);
	assert_int_equal(a.conn->state, CM_ESTABLISHED);
	deliver(&a, CM_REJ);
	expect_event(&b, 0, CM_EVENT_REJECTED, CM_REJ_STALE_CONN);
}

/* ---- the user goes away ---- */

static void test_destroy_in_every_state(void **state)
{
	/* REQ_SENT: test_timeout_rej_names_no_id. REQ_RCVD: */
	do_connect();
	deliver(&a, CM_REQ);
	cm_conn_destroy(b.conn, now_ns);
	deliver(&b, CM_REJ);
	expect_event(&a, 0, CM_EVENT_REJECTED, CM_REJ_CONSUMER);
	cm_conn_destroy(a.conn, now_ns);
	assert_int_equal(a.cm.conn_count, 0);
	a.event_count = 0;

	/* REP_SENT */
	do_connect();
	deliver(&a, CM_REQ);
	do_accept();
	deliver(&b, CM_REP);
	lose(&a, CM_RTU);
	cm_conn_destroy(b.conn, now_ns);
	deliver(&b, CM_REJ);
	expect_event(&a, 1, CM_EVENT_DISCONNECTED, 0);
	cm_conn_destroy(a.conn, now_ns);
	a.event_count = 0;
	advance(10 * NSEC_PER_SEC);

	/* ESTABLISHED; the DREQ is repeated though nobody owns the connection */
	establish();
	cm_conn_destroy(a.conn, now_ns);
	lose(&a, CM_DREQ);
	now_ns += 500 * NSEC_PER_MSEC;
	cm_run_timers(&a.cm, now_ns);
	deliver(&a, CM_DREQ);
	expect_event(&b, 0, CM_EVENT_DISCONNECTED, 0);
	deliver(&b, CM_DREP);
	assert_int_equal(a.event_count, 0);
	cm_conn_destroy(b.conn, now_ns);
	advance(10 * NSEC_PER_SEC);
	assert_int_equal(a.cm.conn_count, 0);
	assert_int_equal(b.cm.conn_count, 0);
	assert_int_equal(a.event_count, 0);
}

static void test_disconnect_in_wrong_state(void **state)
{
	do_connect();
	assert_int_equal(cm_conn_disconnect(a.conn, now_ns), -EINVAL);
	deliver(&a, CM_REQ);
	assert_int_equal(cm_conn_disconnect(b.conn, now_ns), -EINVAL);
	do_accept();
	assert_int_equal(cm_conn_accept(b.conn, &accept_param, now_ns), -EINVAL);
	/* accepted, not yet established: C5 */
	lose(&b, CM_REP);
	assert_int_equal(cm_conn_disconnect(b.conn, now_ns), 0);
	lose(&b, CM_DREQ);
}

static void test_farewell(void **state)
{
	establish();
	cm_farewell(&a.cm);
	deliver(&a, CM_DREQ);
	expect_event(&b, 0, CM_EVENT_DISCONNECTED, 0);
}

static void test_sidr_is_refused(void **state)
{
	struct cm_mad req = { .tid = 9,
			      .attribute = CM_SIDR_REQ,
			      .sidr_req = { .request_id = 7, .service_id = 0x01110001 } };
	struct packet packet = { .path = { .sgid = b.gid, .dgid = a.gid } };
	struct cm_mad rep;

	cm_mad_encode(packet.data, &req);
	arrive(&b, &packet);
	rep = sent(&b, CM_SIDR_REP);
	assert_int_equal(rep.sidr_rep.status, CM_SIDR_UNSUPPORTED_SERVICE);
	assert_int_equal(rep.sidr_rep.request_id, 7);
	assert_int_equal(rep.tid, 9);
}

/* both ends in one process: one table, ids of one slot */
static void test_loopback_in_one_process(void **state)
{
	struct cm_connect_param p = connect_param();
	struct cm_conn *active, *passive;

	a.peer = &a;
	p.path.dgid = p.cma.dst = a.gid;
	assert_int_equal(cm_connect(&a.cm, &active, &a, &p, now_ns), 0);
	deliver(&a, CM_REQ);
	passive = a.conn;
	assert_int_not_equal(active->local_id, passive->local_id);
	{
		struct cm_conn_param q = accept_param;

		q.ca_guid = a.guid;
		assert_int_equal(cm_conn_prepare_accept(passive, &q), 0);
		assert_int_equal(cm_conn_accept(passive, &q, now_ns), 0);
	}
	deliver(&a, CM_REP);
	deliver(&a, CM_RTU);
	assert_int_equal(active->state, CM_ESTABLISHED);
	assert_int_equal(passive->state, CM_ESTABLISHED);
	cm_conn_disconnect(active, now_ns);
	deliver(&a, CM_DREQ);
	deliver(&a, CM_DREP);
	assert_int_equal(active->state, CM_TIMEWAIT);
	assert_int_equal(passive->state, CM_TIMEWAIT);
}

/* ids are unique while in use, wrap within 24 bits, and memory stays flat */
static void test_many_connections(void **state)
{
	struct cm_connect_param p = connect_param();

	a.cm.next_id = 0xfffffe;
	for (int i = 0; i < 3000; i++) {
		p.conn.qpn = ACTIVE_QPN + (uint32_t)i;
		assert_int_equal(cm_connect(&a.cm, &a.conn, &a, &p, now_ns), 0);
		assert_int_equal(a.conn->local_id >> 24, 1);
		deliver(&a, CM_REQ);
		{
			struct cm_conn_param q = accept_param;

			q.qpn = PASSIVE_QPN + (uint32_t)i;
			cm_conn_prepare_accept(b.conn, &q);
			cm_conn_accept(b.conn, &q, now_ns);
		}
		deliver(&b, CM_REP);
		deliver(&a, CM_RTU);
		assert_int_equal(b.conn->state, CM_ESTABLISHED);
		cm_conn_destroy(a.conn, now_ns);
		deliver(&a, CM_DREQ);
		deliver(&b, CM_DREP);
		cm_conn_destroy(b.conn, now_ns);
		a.event_count = b.event_count = 0;
		advance(10 * NSEC_PER_MSEC);
		assert_true(a.cm.conn_count < 60); /* those in timewait */
		assert_true(b.cm.conn_count < 60);
	}
}

/* whatever comes, nothing breaks */
static void test_random_mads(void **state)
{
	struct packet packet = { .path = { .sgid = b.gid, .dgid = a.gid } };

	srandom(7);
	establish();
	for (int i = 0; i < 20000; i++) {
		for (int k = 0; k < CM_MAD_LEN; k++)
			packet.data[k] = (uint8_t)random();
		memcpy(packet.data, "\1\7\2\3", 4);
		put_be16(packet.data + 16, (uint16_t)(CM_REQ + i % 9));
		put_be32(packet.data + 24, a.conn->local_id);
		put_be32(packet.data + 28, (random() & 1) ? b.conn->local_id : 0);
		arrive(&b, &packet);
		b.queued = a.queued = 0;
		b.event_count = a.event_count = 0;
	}
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_connect),
		T(test_accept_never_asks_more_than_offered),
		T(test_disconnect),
		T(test_private_data_too_long),
		T(test_lost_req),
		T(test_lost_rep),
		T(test_lost_rtu),
		T(test_data_before_rtu),
		T(test_lost_dreq_and_drep),
		T(test_drep_after_peer_forgot),
		T(test_unreachable),
		T(test_no_rtu_ever),
		T(test_dreq_unanswered),
		T(test_mra),
		T(test_mra_out_of_place),
		T(test_duplicate_req),
		T(test_req_with_anothers_guid_and_id),
		T(test_duplicate_rep),
		T(test_late_rtu),
		T(test_crossing_dreqs),
		T(test_dreq_not_ours),
		T(test_reject),
		T(test_no_listener),
		T(test_listener_comes_late),
		T(test_req_waits_for_listener),
		T(test_req_waits_in_vain),
		T(test_held_reqs_are_bounded),
		T(test_backlog_full),
		T(test_bad_reqs),
		T(test_alternate_path_is_declined),
		T(test_rep_for_unknown_id),
		T(test_active_refuses_rep),
		T(test_establish_later),
		T(test_rej_while_established),
		T(test_timeout_rej_names_no_id),
		T(test_rep_after_giving_up),
		T(test_stale_connection),
		T(test_stale_needs_the_same_address),
		T(test_rep_with_stale_qpn),
		T(test_destroy_in_every_state),
		T(test_disconnect_in_wrong_state),
		T(test_farewell),
		T(test_sidr_is_refused),
		T(test_loopback_in_one_process),
		T(test_many_connections),
		T(test_random_mads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
