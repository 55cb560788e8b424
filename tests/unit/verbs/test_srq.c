// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_srq.c: what a QP's receive capabilities mean with an SRQ (V3), an SRQ's limit over its whole
 * life (V15), events on an edge-triggered descriptor (V21).
 */
#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "verbs_fixture.h"

#define WRS 8

struct world {
	struct rc_pair pair;
	struct ibv_srq *srq[2];
	struct ibv_qp *qp[2]; /* on srq[i], receives from pair.qp[i] */
	unsigned int sent;
};

static void open_world(struct world *w)
{
	rc_pair_open(&w->pair);
	fcntl(w->pair.context->async_fd, F_SETFL, O_NONBLOCK);
	w->sent = 0;
	for (int i = 0; i < 2; i++) {
		struct ibv_srq_init_attr srq_attr = { .attr = { WRS, 1, 0 } };
		struct ibv_qp_init_attr init = {
			.qp_type = IBV_QPT_RC,
			.send_cq = w->pair.cq[1],
			.recv_cq = w->pair.cq[1],
			/* V3: with an SRQ the receive capabilities are not looked at */
			.cap = { 4, 0xffffffff, 1, 0xffffffff, 0 },
		};
		struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };

		w->srq[i] = softhca_ibv_create_srq(w->pair.pd, &srq_attr);
		assert_non_null(w->srq[i]);
		init.srq = w->srq[i];
		w->qp[i] = softhca_ibv_create_qp(w->pair.pd, &init);
		assert_non_null(w->qp[i]);
		assert_int_equal(init.cap.max_recv_wr, 0);
		assert_int_equal(init.cap.max_recv_sge, 0);
		assert_int_equal(softhca_ibv_modify_qp(w->pair.qp[i], &reset, IBV_QP_STATE), 0);
		connect_qp(w->qp[i], w->pair.qp[i]->qp_num, IBV_MTU_1024);
		connect_qp(w->pair.qp[i], w->qp[i]->qp_num, IBV_MTU_1024);
	}
}

static void close_world(struct world *w)
{
	for (int i = 0; i < 2; i++) {
		assert_int_equal(softhca_ibv_destroy_qp(w->qp[i]), 0);
		assert_int_equal(softhca_ibv_destroy_srq(w->srq[i]), 0);
	}
	rc_pair_close(&w->pair);
}

static void fill_srq(struct world *w, int i, unsigned int wrs)
{
	for (unsigned int k = 0; k < wrs; k++)
		assert_int_equal(post_srq_recv(w->srq[i], 100 + k, w->pair.mr, w->pair.buffer, 64),
				 0);
}

static void take_one(struct world *w, int i)
{
	struct ibv_wc wc;

	assert_int_equal(post_send(w->pair.qp[i], ++w->sent, w->pair.mr, w->pair.buffer + 64, 64,
				   IBV_SEND_SIGNALED),
			 0);
	do
		wc = poll_one(w->pair.cq[1]);
	while (wc.opcode != IBV_WC_RECV);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	if (!i)
		poll_one(w->pair.cq[0]);
}

static void arm(struct world *w, int i, uint32_t limit)
{
	struct ibv_srq_attr attr = { .srq_limit = limit };

	assert_int_equal(softhca_ibv_modify_srq(w->srq[i], &attr, IBV_SRQ_LIMIT), 0);
}

static uint32_t limit_of(struct world *w, int i)
{
	struct ibv_srq_attr attr;

	assert_int_equal(softhca_ibv_query_srq(w->srq[i], &attr), 0);
	assert_int_equal(attr.max_wr, WRS);
	return attr.srq_limit;
}

/* the SRQ whose limit event is next, or NULL */
static struct ibv_srq *next_event(struct world *w)
{
	struct ibv_async_event event;

	for (;;) {
		if (softhca_ibv_get_async_event(w->pair.context, &event)) {
			assert_int_equal(errno, EAGAIN);
			return NULL;
		}
		softhca_ibv_ack_async_event(&event);
		if (event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED)
			return event.element.srq;
		assert_int_equal(event.event_type, IBV_EVENT_COMM_EST);
	}
}

static void absurd_receive_caps(void **state)
{
	struct world w;

	open_world(&w);
	fill_srq(&w, 0, 1);
	take_one(&w, 0);
	close_world(&w);
}

static void limit_again_and_again(void **state)
{
	struct world w;

	open_world(&w);
	for (unsigned int round = 0; round < 3; round++) {
		fill_srq(&w, 0, WRS - (round ? 4 : 0));
		arm(&w, 0, 5);
		assert_int_equal(limit_of(&w, 0), 5);
		for (unsigned int left = WRS - 1; left >= 5; left--) {
			take_one(&w, 0);
			assert_null(next_event(&w));
			assert_int_equal(limit_of(&w, 0), 5);
		}
		take_one(&w, 0); /* 4 are left */
		assert_ptr_equal(next_event(&w), w.srq[0]);
		assert_null(next_event(&w));
		assert_int_equal(limit_of(&w, 0), 0); /* disarmed */
	}
	/* below the limit when it is armed: with the next message */
	arm(&w, 0, 8);
	assert_null(next_event(&w));
	take_one(&w, 0);
	assert_ptr_equal(next_event(&w), w.srq[0]);
	assert_int_equal(limit_of(&w, 0), 0);
	/* 0 disarms */
	arm(&w, 0, 2);
	arm(&w, 0, 0);
	for (int i = 0; i < 3; i++)
		take_one(&w, 0);
	assert_null(next_event(&w));
	close_world(&w);
}

/* armed when nothing is left: no WR will ever be taken, so the message that finds none tells */
static void limit_of_an_empty_srq(void **state)
{
	struct ibv_wc wc;
	struct world w;

	open_world(&w);
	arm(&w, 0, 1);
	assert_int_equal(
		post_send(w.pair.qp[0], 1, w.pair.mr, w.pair.buffer, 64, IBV_SEND_SIGNALED), 0);
	for (int i = 0; i < 100; i++)
		assert_int_equal(ibv_poll_cq(w.pair.cq[0], 1, &wc), 0);
	assert_ptr_equal(next_event(&w), w.srq[0]);
	assert_null(next_event(&w));
	fill_srq(&w, 0, 1);
	assert_int_equal(poll_one(w.pair.cq[0]).status, IBV_WC_SUCCESS);
	assert_null(next_event(&w));
	close_world(&w);
}

/* two events behind one edge, then an edge again */
static void edge_triggered(void **state)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };
	int epoll = epoll_create1(0);
	struct world w;

	open_world(&w);
	fill_srq(&w, 0, 4);
	fill_srq(&w, 1, 4);
	take_one(&w, 0);
	take_one(&w, 1);
	assert_null(next_event(&w));
	assert_int_equal(epoll_ctl(epoll, EPOLL_CTL_ADD, w.pair.context->async_fd, &event), 0);
	for (int round = 0; round < 3; round++) {
		assert_int_equal(epoll_wait(epoll, &event, 1, 0), 0);
		for (int i = 0; i < 2; i++) {
			arm(&w, i, 3);
			take_one(&w, i);
		}
		assert_int_equal(epoll_wait(epoll, &event, 1, 0), 1);
		assert_ptr_equal(next_event(&w), w.srq[0]);
		assert_ptr_equal(next_event(&w), w.srq[1]);
		assert_null(next_event(&w));
		fill_srq(&w, 0, 1);
		fill_srq(&w, 1, 1);
	}
	close(epoll);
	close_world(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(absurd_receive_caps),
		cmocka_unit_test(limit_again_and_again),
		cmocka_unit_test(limit_of_an_empty_srq),
		cmocka_unit_test(edge_triggered),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
