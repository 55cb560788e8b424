// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_rdma_order.c: what a program may see, and in which order: addresses of every kind (C1), ends
 * that come early (C5), clients that are killed and come back at once (C3), event channels on an
 * edge-triggered descriptor (V21).
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <cmocka.h>

#include "rdma_fixture.h"

static struct rdma_conn_param param = { .responder_resources = 1, .retry_count = 7 };

/* ---- addresses --------------------------------------------------------------------- */

/* either with a device, or not resolved and without */
static void resolve(const char *address, enum rdma_cm_event_type type, int status)
{
	struct rdma_event_channel *channel = new_channel();
	struct rdma_cm_id *id = new_id(channel);

	CHECK_EQUAL(softhca_rdma_resolve_addr(id, NULL, ipv4(address, PORT), 1000), 0);
	expect(channel, type, status);
	CHECK_EQUAL(!!id->verbs, type == RDMA_CM_EVENT_ADDR_RESOLVED);
	if (!id->verbs) {
		CHECK_EQUAL(softhca_rdma_resolve_route(id, 1000), -1);
		CHECK_EQUAL(errno, EINVAL);
		CHECK_EQUAL(softhca_rdma_connect(id, &param), -1);
		CHECK_EQUAL(errno, EINVAL);
	} else {
		CHECK(id->pd);
		CHECK_EQUAL(id->port_num, 1);
	}
	CHECK_EQUAL(softhca_rdma_destroy_id(id), 0);
	softhca_rdma_destroy_event_channel(channel);
}

static void shell(const char *command)
{
	if (system(command))
		_exit(NO_NAMESPACE); /* no ip program, or no such interfaces */
}

static void every_kind_of_address(void)
{
	shell("ip link add v0 type veth peer name v1 2>/dev/null");
	shell("ip addr add 10.7.0.1/24 dev v0 && ip link set v1 up");
	resolve("127.0.0.1", RDMA_CM_EVENT_ADDR_RESOLVED, 0);
	/* the interface is down */
	resolve("10.7.0.2", RDMA_CM_EVENT_ADDR_ERROR, -ENETUNREACH);
	shell("ip link set v0 up");
	resolve("10.7.0.1", RDMA_CM_EVENT_ADDR_RESOLVED, 0);
	resolve("10.7.0.2", RDMA_CM_EVENT_ADDR_RESOLVED, 0); /* whether it answers is seen later */
	resolve("10.8.0.1", RDMA_CM_EVENT_ADDR_ERROR, -ENETUNREACH);
	shell("ip route add unreachable 10.9.0.0/24");
	resolve("10.9.0.1", RDMA_CM_EVENT_ADDR_ERROR, -EHOSTUNREACH);
	shell("ip link set v0 down");
	resolve("10.7.0.2", RDMA_CM_EVENT_ADDR_ERROR, -ENETUNREACH);
}
NAMESPACE_TEST(every_kind_of_address)

/* ---- early ends -------------------------------------------------------------------- */

static struct rdma_cm_id *take_request(struct rdma_event_channel *channel)
{
	struct rdma_cm_event *event = take_event(channel, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	struct rdma_cm_id *id = event->id;

	CHECK_EQUAL(softhca_rdma_ack_cm_event(event), 0);
	return id;
}

static void start_connecting(struct side *client)
{
	client_start(client, ipv4("127.0.0.1", PORT));
	give_qp(client);
	post_receive(client);
	CHECK_EQUAL(softhca_rdma_connect(client->id, &param), 0);
}

/* at most one ESTABLISHED, then one DISCONNECTED, then nothing but the end of timewait */
static void legal_end(struct rdma_event_channel *channel)
{
	struct rdma_cm_event *event = next_event(channel);

	if (event->event == RDMA_CM_EVENT_ESTABLISHED) {
		softhca_rdma_ack_cm_event(event);
		event = next_event(channel);
	}
	CHECK_EQUAL(event->event, RDMA_CM_EVENT_DISCONNECTED);
	CHECK_EQUAL(event->status, 0);
	softhca_rdma_ack_cm_event(event);
}

/* the server accepts and disconnects in one breath, while it handles the request */
static void server_ends_at_once(void)
{
	struct rdma_event_channel *channel = new_channel();
	struct rdma_cm_id *listener = listen_at(channel, ipv4("127.0.0.1", PORT), 4);

	for (int i = 0; i < 20; i++) {
		struct side client = { 0 }, server = { 0 };

		start_connecting(&client);
		server.id = take_request(channel);
		CHECK_EQUAL(softhca_rdma_disconnect(server.id), -1); /* too early: it may reject */
		CHECK_EQUAL(errno, EINVAL);
		give_qp(&server);
		post_receive(&server);
		CHECK_EQUAL(softhca_rdma_accept(server.id, &param), 0);
		CHECK_EQUAL(softhca_rdma_disconnect(server.id), 0);
		legal_end(channel);
		legal_end(client.channel);
		/* V13: both sides' receives come back */
		CHECK_EQUAL(poll_one(&client).status, IBV_WC_WR_FLUSH_ERR);
		CHECK_EQUAL(poll_one(&server).status, IBV_WC_WR_FLUSH_ERR);
		side_end(&client);
		expect(channel, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0);
		side_end(&server);
	}
	CHECK(!is_readable(channel));
	softhca_rdma_destroy_id(listener);
	softhca_rdma_destroy_event_channel(channel);
}
NAMESPACE_TEST(server_ends_at_once)

/* the client disconnects when it is connected; the server looks at its events only then */
static void client_ends_at_once(void)
{
	struct rdma_event_channel *channel = new_channel();
	struct rdma_cm_id *listener = listen_at(channel, ipv4("127.0.0.1", PORT), 4);

	for (int i = 0; i < 20; i++) {
		struct side client = { 0 }, server = { 0 };

		start_connecting(&client);
		server.id = take_request(channel);
		give_qp(&server);
		post_receive(&server);
		CHECK_EQUAL(softhca_rdma_accept(server.id, &param), 0);
		expect(client.channel, RDMA_CM_EVENT_ESTABLISHED, 0);
		CHECK_EQUAL(softhca_rdma_disconnect(client.id), 0);
		expect(client.channel, RDMA_CM_EVENT_DISCONNECTED, 0);
		CHECK_EQUAL(poll_one(&client).status, IBV_WC_WR_FLUSH_ERR);
		if (i % 2)
			side_end(&client);
		legal_end(channel);
		CHECK_EQUAL(poll_one(&server).status, IBV_WC_WR_FLUSH_ERR);
		if (i % 2 == 0)
			side_end(&client);
		expect(channel, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0);
		side_end(&server);
	}
	CHECK(!is_readable(channel));
	softhca_rdma_destroy_id(listener);
	softhca_rdma_destroy_event_channel(channel);
}
NAMESPACE_TEST(client_ends_at_once)

/* ---- killed and back --------------------------------------------------------------- */

static void connect_and_wait(void)
{
	struct side client = { 0 };

	start_connecting(&client);
	expect(client.channel, RDMA_CM_EVENT_ESTABLISHED, 0);
	pause();
}

/* C3: the server still believes in the dead client's connection when the next one comes */
static void back_before_the_server_knows(void)
{
	struct side server[8] = { 0 };
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listener;
	int ended = 0;
	pid_t client = 0;

	channel = new_channel();
	listener = listen_at(channel, ipv4("0.0.0.0", PORT), 4);
	for (int i = 0; i < 8; i++) {
		bool up = false;

		if (client) {
			kill(client, SIGKILL);
			waitpid(client, NULL, 0);
		}
		client = fork();
		if (!client) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			connect_and_wait();
			_exit(0);
		}
		while (!up) {
			struct rdma_cm_event *event = next_event(channel);
			enum rdma_cm_event_type type = event->event;
			struct rdma_cm_id *id = event->id;

			CHECK_EQUAL(softhca_rdma_ack_cm_event(event), 0);
			if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
				server[i].id = id;
				give_qp(&server[i]);
				post_receive(&server[i]);
				CHECK_EQUAL(softhca_rdma_accept(id, &param), 0);
			} else if (type == RDMA_CM_EVENT_ESTABLISHED) {
				CHECK(id == server[i].id);
				up = true;
			} else if (type == RDMA_CM_EVENT_DISCONNECTED) {
				CHECK(id != server[i].id);
				ended++;
			} else {
				CHECK_EQUAL(type, RDMA_CM_EVENT_TIMEWAIT_EXIT);
			}
		}
	}
	/* the new connection works; what is sent to the dead is not held against it */
	post_send(&server[7], "alive");
	CHECK_EQUAL(poll_one(&server[7]).status, IBV_WC_SUCCESS);
	kill(client, SIGKILL);
	waitpid(client, NULL, 0);
	for (int i = 0; i < 8; i++)
		side_end(&server[i]);
	softhca_rdma_destroy_id(listener);
	softhca_rdma_destroy_event_channel(channel);
}
THREADED_FORK_TEST(back_before_the_server_knows)

/* ---- the descriptor ---------------------------------------------------------------- */

/* several events behind one edge; after EAGAIN there is an edge again */
static void edge_triggered(void)
{
	struct rdma_event_channel *channel = new_channel();
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };
	int epoll = epoll_create1(0);
	struct rdma_cm_event *cm_event;

	fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK);
	CHECK_EQUAL(epoll_ctl(epoll, EPOLL_CTL_ADD, channel->fd, &event), 0);
	for (int round = 0; round < 3; round++) {
		struct rdma_cm_id *id[3];

		CHECK_EQUAL(epoll_wait(epoll, &event, 1, 0), 0);
		for (int i = 0; i < 3; i++) {
			id[i] = new_id(channel);
			CHECK_EQUAL(softhca_rdma_resolve_addr(id[i], NULL, ipv4("127.0.0.1", PORT),
							      1000),
				    0);
		}
		CHECK_EQUAL(epoll_wait(epoll, &event, 1, 5000), 1);
		for (int i = 0; i < 3; i++) {
			CHECK_EQUAL(softhca_rdma_get_cm_event(channel, &cm_event), 0);
			CHECK(cm_event->id == id[i]);
			CHECK_EQUAL(softhca_rdma_ack_cm_event(cm_event), 0);
		}
		CHECK_EQUAL(softhca_rdma_get_cm_event(channel, &cm_event), -1);
		CHECK_EQUAL(errno, EAGAIN);
		for (int i = 0; i < 3; i++)
			CHECK_EQUAL(softhca_rdma_destroy_id(id[i]), 0);
	}
	close(epoll);
	softhca_rdma_destroy_event_channel(channel);
}
NAMESPACE_TEST(edge_triggered)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_kind_of_address),
		cmocka_unit_test(test_server_ends_at_once),
		cmocka_unit_test(test_client_ends_at_once),
		cmocka_unit_test(test_back_before_the_server_knows),
		cmocka_unit_test(test_edge_triggered),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
