/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_events.c: completion channels and asynchronous events: descriptors, O_NONBLOCK, edge
 * triggering, acknowledgement, destruction.
 */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "verbs_fixture.h"

struct world {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq[2];
	struct ibv_mr *mr;
	struct ibv_qp *qp[2];
	uint8_t buffer[4096];
};

static int open_world(void **state)
{
	static struct world world;
	struct world *w = &world;

	w->context = open_loopback();
	w->pd = softhca_ibv_alloc_pd(w->context);
	w->mr = softhca_ibv_reg_mr(w->pd, w->buffer, sizeof(w->buffer), IBV_ACCESS_LOCAL_WRITE);
	w->channel = softhca_ibv_create_comp_channel(w->context);
	for (int i = 0; i < 2; i++) {
		struct ibv_qp_init_attr init = {
			.qp_type = IBV_QPT_RC,
			.cap = { 16, 16, 1, 1, 0 },
			.sq_sig_all = 1,
		};

		w->cq[i] = softhca_ibv_create_cq(w->context, 64, (void *)(uintptr_t)(i + 7),
						 w->channel, 0);
		init.send_cq = init.recv_cq = w->cq[i];
		w->qp[i] = softhca_ibv_create_qp(w->pd, &init);
	}
	for (int i = 0; i < 2; i++)
		connect_qp(w->qp[i], w->qp[!i]->qp_num, IBV_MTU_1024);
	*state = w;
	return 0;
}

static int close_world(void **state)
{
	struct world *w = *state;

	for (int i = 0; i < 2; i++)
		if ((w->qp[i] && softhca_ibv_destroy_qp(w->qp[i])) ||
		    (w->cq[i] && softhca_ibv_destroy_cq(w->cq[i])))
			return -1;
	if (softhca_ibv_destroy_comp_channel(w->channel) || softhca_ibv_dereg_mr(w->mr) ||
	    softhca_ibv_dealloc_pd(w->pd) || softhca_ibv_close_device(w->context))
		return -1;
	return engine_references;
}

static bool is_readable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, 0) == 1;
}

static void set_nonblocking(int fd)
{
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

/* one message from QP 0 to QP 1: a completion on each CQ */
static void exchange(struct world *w, unsigned int flags)
{
	assert_int_equal(post_recv(w->qp[1], 1, w->mr, w->buffer, 64), 0);
	assert_int_equal(post_send(w->qp[0], 2, w->mr, w->buffer + 64, 64, flags), 0);
	assert_int_equal(poll_one(w->cq[1]).status, IBV_WC_SUCCESS);
	assert_int_equal(poll_one(w->cq[0]).status, IBV_WC_SUCCESS);
}

static int get_event(struct world *w, struct ibv_cq **cq)
{
	void *cq_context = NULL;
	int ret;

	errno = 0;
	ret = softhca_ibv_get_cq_event(w->channel, cq, &cq_context);
	if (!ret) {
		assert_true(*cq == w->cq[0] || *cq == w->cq[1]);
		assert_int_equal((uintptr_t)cq_context, *cq == w->cq[0] ? 7 : 8);
	}
	return ret;
}

static void nothing_without_arming(void **state)
{
	struct world *w = *state;
	struct ibv_cq *cq;

	set_nonblocking(w->channel->fd);
	exchange(w, 0);
	assert_false(is_readable(w->channel->fd));
	assert_int_equal(get_event(w, &cq), -1);
	assert_int_equal(errno, EAGAIN);
}

static void one_event_an_arming(void **state)
{
	struct world *w = *state;
	struct ibv_cq *cq;

	set_nonblocking(w->channel->fd);
	assert_int_equal(ibv_req_notify_cq(w->cq[1], 0), 0);
	exchange(w, 0);
	exchange(w, 0);
	assert_true(is_readable(w->channel->fd));
	assert_int_equal(get_event(w, &cq), 0);
	assert_ptr_equal(cq, w->cq[1]);
	softhca_ibv_ack_cq_events(cq, 1);
	assert_false(is_readable(w->channel->fd));
	assert_int_equal(get_event(w, &cq), -1);
	assert_int_equal(errno, EAGAIN);
}

static void blocking_wait_drives_the_engine(void **state)
{
	struct world *w = *state;
	struct ibv_cq *cq;

	/* nobody polls and no thread runs: the wait itself must move the packets */
	assert_int_equal(ibv_req_notify_cq(w->cq[1], 0), 0);
	assert_int_equal(post_recv(w->qp[1], 1, w->mr, w->buffer, 64), 0);
	assert_int_equal(post_send(w->qp[0], 2, w->mr, w->buffer + 64, 64, 0), 0);
	assert_int_equal(get_event(w, &cq), 0);
	assert_ptr_equal(cq, w->cq[1]);
	softhca_ibv_ack_cq_events(cq, 1);
}

static void solicited_only(void **state)
{
	struct world *w = *state;
	struct ibv_cq *cq;

	set_nonblocking(w->channel->fd);
	assert_int_equal(ibv_req_notify_cq(w->cq[1], 1), 0);
	exchange(w, 0);
	assert_false(is_readable(w->channel->fd));
	exchange(w, IBV_SEND_SOLICITED);
	assert_int_equal(get_event(w, &cq), 0);
	softhca_ibv_ack_cq_events(cq, 1);
}

/* V21: with EPOLLET, two queued events are both readable until EAGAIN */
static void edge_triggered(void **state)
{
	struct world *w = *state;
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };
	int epoll = epoll_create1(0), seen[2] = { 0 };
	struct ibv_cq *cq;

	set_nonblocking(w->channel->fd);
	assert_int_equal(epoll_ctl(epoll, EPOLL_CTL_ADD, w->channel->fd, &event), 0);
	for (int round = 0; round < 3; round++) {
		memset(seen, 0, sizeof(seen));
		assert_int_equal(epoll_wait(epoll, &event, 1, 0), 0);
		ibv_req_notify_cq(w->cq[0], 0);
		ibv_req_notify_cq(w->cq[1], 0);
		exchange(w, 0);
		assert_int_equal(epoll_wait(epoll, &event, 1, 0), 1);
		while (!get_event(w, &cq)) {
			seen[cq == w->cq[1]]++;
			softhca_ibv_ack_cq_events(cq, 1);
		}
		assert_int_equal(errno, EAGAIN);
		assert_int_equal(seen[0], 1);
		assert_int_equal(seen[1], 1);
	}
	close(epoll);
}

static void several_events_of_one_cq(void **state)
{
	struct world *w = *state;
	struct ibv_cq *cq;

	set_nonblocking(w->channel->fd);
	for (int i = 0; i < 3; i++) {
		ibv_req_notify_cq(w->cq[1], 0);
		exchange(w, 0);
	}
	for (int i = 0; i < 3; i++) {
		assert_true(is_readable(w->channel->fd));
		assert_int_equal(get_event(w, &cq), 0);
		assert_ptr_equal(cq, w->cq[1]);
	}
	assert_int_equal(get_event(w, &cq), -1);
	softhca_ibv_ack_cq_events(w->cq[1], 3);
}

static void destroying_a_cq_takes_its_events_along(void **state)
{
	struct world *w = *state;
	struct ibv_cq *cq;

	ibv_req_notify_cq(w->cq[0], 0);
	ibv_req_notify_cq(w->cq[1], 0);
	exchange(w, 0);
	assert_int_equal(softhca_ibv_destroy_comp_channel(w->channel), EBUSY);
	assert_int_equal(softhca_ibv_destroy_qp(w->qp[0]), 0);
	assert_int_equal(softhca_ibv_destroy_cq(w->cq[0]), 0);
	w->qp[0] = NULL;
	w->cq[0] = NULL;
	set_nonblocking(w->channel->fd);
	assert_int_equal(get_event(w, &cq), 0);
	assert_ptr_equal(cq, w->cq[1]);
	softhca_ibv_ack_cq_events(cq, 1);
	assert_false(is_readable(w->channel->fd));
}

static atomic_bool destroyed;

static void *destroy_cq(void *cq)
{
	assert_int_equal(softhca_ibv_destroy_cq(cq), 0);
	destroyed = true;
	return NULL;
}

static void destroy_waits_for_acknowledgement(void **state)
{
	struct world *w = *state;
	pthread_t thread;
	struct ibv_cq *cq;

	ibv_req_notify_cq(w->cq[1], 0);
	exchange(w, 0);
	assert_int_equal(get_event(w, &cq), 0);
	assert_int_equal(softhca_ibv_destroy_qp(w->qp[1]), 0);
	w->qp[1] = NULL;
	w->cq[1] = NULL;
	destroyed = false;
	pthread_create(&thread, NULL, destroy_cq, cq);
	usleep(20000);
	assert_false(destroyed);
	softhca_ibv_ack_cq_events(cq, 1);
	pthread_join(thread, NULL);
	assert_true(destroyed);
}

/* ---- asynchronous events --------------------------------------------------------- */

static struct ibv_srq *make_srq(struct world *w)
{
	struct ibv_srq_init_attr init = { .attr = { 8, 1, 0 } };
	struct ibv_srq *srq = softhca_ibv_create_srq(w->pd, &init);

	assert_non_null(srq);
	return srq;
}

/* QP 1 anew, on @srq, connected with QP 0 */
static void reconnect_on_srq(struct world *w, struct ibv_srq *srq)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.cap = { 16, 0, 1, 0, 0 },
		.send_cq = w->cq[1],
		.recv_cq = w->cq[1],
		.srq = srq,
	};
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };

	assert_int_equal(softhca_ibv_destroy_qp(w->qp[1]), 0);
	w->qp[1] = softhca_ibv_create_qp(w->pd, &init);
	assert_non_null(w->qp[1]);
	assert_int_equal(softhca_ibv_modify_qp(w->qp[0], &attr, IBV_QP_STATE), 0);
	connect_qp(w->qp[1], w->qp[0]->qp_num, IBV_MTU_1024);
	connect_qp(w->qp[0], w->qp[1]->qp_num, IBV_MTU_1024);
}

static void srq_limit_event(void **state) /* V15 */
{
	struct world *w = *state;
	struct ibv_srq *srq = make_srq(w);
	struct ibv_srq_attr attr = { .srq_limit = 2 };
	struct ibv_async_event event;

	reconnect_on_srq(w, srq);
	set_nonblocking(w->context->async_fd);
	assert_int_equal(softhca_ibv_get_async_event(w->context, &event), -1);
	assert_int_equal(errno, EAGAIN);
	for (int i = 0; i < 2; i++)
		assert_int_equal(post_srq_recv(srq, i, w->mr, w->buffer, 64), 0);
	assert_int_equal(softhca_ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT), 0);
	assert_int_equal(post_send(w->qp[0], 2, w->mr, w->buffer, 64, 0), 0);
	assert_int_equal(poll_one(w->cq[1]).status, IBV_WC_SUCCESS);
	assert_true(is_readable(w->context->async_fd));
	assert_int_equal(softhca_ibv_get_async_event(w->context, &event), 0);
	assert_int_equal(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
	assert_ptr_equal(event.element.srq, srq);
	assert_false(is_readable(w->context->async_fd));
	softhca_ibv_ack_async_event(&event);
	assert_int_equal(softhca_ibv_query_srq(srq, &attr), 0);
	assert_int_equal(attr.srq_limit, 0);
	assert_int_equal(softhca_ibv_destroy_qp(w->qp[1]), 0);
	w->qp[1] = NULL;
	assert_int_equal(softhca_ibv_destroy_srq(srq), 0);
}

static void last_wqe_and_destruction(void **state)
{
	struct world *w = *state;
	struct ibv_srq *srq = make_srq(w);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	struct ibv_async_event event;

	set_nonblocking(w->context->async_fd);
	reconnect_on_srq(w, srq);
	assert_int_equal(softhca_ibv_modify_qp(w->qp[1], &attr, IBV_QP_STATE), 0);
	assert_int_equal(softhca_ibv_get_async_event(w->context, &event), 0);
	assert_int_equal(event.event_type, IBV_EVENT_QP_LAST_WQE_REACHED);
	assert_ptr_equal(event.element.qp, w->qp[1]);
	softhca_ibv_ack_async_event(&event);

	/* an event that nobody has read goes with its QP */
	reconnect_on_srq(w, srq);
	assert_int_equal(softhca_ibv_modify_qp(w->qp[1], &attr, IBV_QP_STATE), 0);
	assert_true(is_readable(w->context->async_fd));
	assert_int_equal(softhca_ibv_destroy_qp(w->qp[1]), 0);
	w->qp[1] = NULL;
	assert_false(is_readable(w->context->async_fd));
	assert_int_equal(softhca_ibv_get_async_event(w->context, &event), -1);
	assert_int_equal(errno, EAGAIN);
	assert_int_equal(softhca_ibv_destroy_srq(srq), 0);
}

static void cq_overrun(void **state) /* V19 */
{
	struct world *w = *state;
	struct ibv_async_event event;
	struct ibv_wc wc[64];
	struct ibv_cq *small = softhca_ibv_create_cq(w->context, 1, NULL, NULL, 0);
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.cap = { 16, 16, 1, 1, 0 },
		.send_cq = w->cq[1],
		.recv_cq = small,
	};
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };
	bool cq_error = false;

	set_nonblocking(w->context->async_fd);
	assert_int_equal(softhca_ibv_destroy_qp(w->qp[1]), 0);
	w->qp[1] = softhca_ibv_create_qp(w->pd, &init);
	assert_int_equal(softhca_ibv_modify_qp(w->qp[0], &attr, IBV_QP_STATE), 0);
	connect_qp(w->qp[1], w->qp[0]->qp_num, IBV_MTU_1024);
	connect_qp(w->qp[0], w->qp[1]->qp_num, IBV_MTU_1024);
	for (int i = 0; i <= small->cqe; i++) {
		assert_int_equal(post_recv(w->qp[1], i, w->mr, w->buffer, 64), 0);
		assert_int_equal(post_send(w->qp[0], i, w->mr, w->buffer, 64, 0), 0);
	}
	for (int i = 0; i < 100; i++)
		assert_true(ibv_poll_cq(w->cq[0], 64, wc) >= 0);
	while (!softhca_ibv_get_async_event(w->context, &event)) {
		if (event.event_type == IBV_EVENT_CQ_ERR) {
			assert_ptr_equal(event.element.cq, small);
			cq_error = true;
		}
		softhca_ibv_ack_async_event(&event);
	}
	assert_true(cq_error);
	assert_int_equal(ibv_poll_cq(small, 64, wc), small->cqe);
	assert_true(ibv_poll_cq(small, 64, wc) < 0);
	assert_int_equal(softhca_ibv_destroy_qp(w->qp[1]), 0);
	w->qp[1] = NULL;
	assert_int_equal(softhca_ibv_destroy_cq(small), 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_world, close_world)
	const struct CMUnitTest tests[] = {
		TEST(nothing_without_arming),
		TEST(one_event_an_arming),
		TEST(blocking_wait_drives_the_engine),
		TEST(solicited_only),
		TEST(edge_triggered),
		TEST(several_events_of_one_cq),
		TEST(destroying_a_cq_takes_its_events_along),
		TEST(destroy_waits_for_acknowledgement),
		TEST(srq_limit_event),
		TEST(last_wqe_and_destruction),
		TEST(cq_overrun),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
