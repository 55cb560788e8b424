// SPDX-License-Identifier: BSD-2-Clause
/*
 * The RDMA CM API between processes: synchronous ids, ends of every kind, addresses that another
 * process has.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "rdma_fixture.h"

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
/* children of processes with threads start threads of their own here */
const char *__tsan_default_options(void);
__attribute__((visibility("default"))) const char *__tsan_default_options(void)
{
	return "die_after_fork=0";
}
#endif
#endif

/* a pipe on which a child says that it is as far */
static int ready[2];

static void say_ready(void)
{
	CHECK_EQUAL(write(ready[1], "r", 1), 1);
}

static void wait_ready(void)
{
	char c;

	CHECK_EQUAL(read(ready[0], &c, 1), 1);
}

static pid_t start(void (*fn)(void))
{
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (!pid) {
		fn();
		exit(0); /* with atexit handlers */
	}
	return pid;
}

static void expect_exit(pid_t pid)
{
	int status;

	CHECK_EQUAL(waitpid(pid, &status, 0), pid);
	CHECK(WIFEXITED(status));
	CHECK_EQUAL(WEXITSTATUS(status), 0);
}

/* ---- synchronous ids: as rdma_server and rdma_client do it ---- */

static struct ibv_qp_init_attr qp_attr(void)
{
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
		.sq_sig_all = 1
	};

	return attr;
}

static void sync_client(void)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP }, *res;
	struct ibv_qp_init_attr attr = qp_attr();
	struct rdma_conn_param param = { .private_data = "hi", .private_data_len = 2 };
	struct rdma_cm_id *id;

	wait_ready();
	CHECK_EQUAL(softhca_rdma_getaddrinfo("127.0.0.1", "7471", &hints, &res), 0);
	CHECK_EQUAL(softhca_rdma_create_ep(&id, res, NULL, &attr), 0);
	CHECK(id->qp && id->send_cq && id->recv_cq);
	CHECK_EQUAL(softhca_rdma_connect(id, &param), 0);
	CHECK(id->event);
	CHECK_EQUAL(id->event->event, RDMA_CM_EVENT_ESTABLISHED);
	CHECK_EQUAL(softhca_rdma_disconnect(id), 0);
	CHECK_EQUAL(id->event->event, RDMA_CM_EVENT_DISCONNECTED);
	softhca_rdma_destroy_ep(id);
	/* the second is refused */
	attr = qp_attr();
	CHECK_EQUAL(softhca_rdma_create_ep(&id, res, NULL, &attr), 0);
	CHECK_EQUAL(softhca_rdma_connect(id, NULL), -1);
	CHECK_EQUAL(errno, ECONNREFUSED);
	softhca_rdma_destroy_ep(id);
	softhca_rdma_freeaddrinfo(res);
}

static void synchronous(void)
{
	struct rdma_addrinfo hints = { .ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_TCP };
	struct ibv_qp_init_attr attr = qp_attr();
	struct rdma_addrinfo *res;
	struct rdma_cm_id *listener, *id;
	pid_t client;

	CHECK(!pipe(ready));
	client = start(sync_client);
	CHECK_EQUAL(softhca_rdma_getaddrinfo("127.0.0.1", "7471", &hints, &res), 0);
	CHECK_EQUAL(softhca_rdma_create_ep(&listener, res, NULL, &attr), 0);
	CHECK_EQUAL(softhca_rdma_listen(listener, 1), 0);
	say_ready();
	CHECK_EQUAL(softhca_rdma_get_request(listener, &id), 0);
	CHECK(id->qp); /* made from the listener's attributes */
	CHECK_EQUAL(id->event->event, RDMA_CM_EVENT_CONNECT_REQUEST);
	CHECK(!memcmp(id->event->param.conn.private_data, "hi", 2));
	CHECK_EQUAL(softhca_rdma_accept(id, NULL), 0);
	CHECK_EQUAL(id->event->event, RDMA_CM_EVENT_ESTABLISHED);
	CHECK_EQUAL(softhca_rdma_disconnect(id), 0);
	softhca_rdma_destroy_ep(id);
	CHECK_EQUAL(softhca_rdma_get_request(listener, &id), 0);
	CHECK_EQUAL(softhca_rdma_reject(id, NULL, 0), 0);
	softhca_rdma_destroy_ep(id);
	softhca_rdma_destroy_ep(listener);
	softhca_rdma_freeaddrinfo(res);
	expect_exit(client);
}
NAMESPACE_TEST(synchronous)

/* ---- ends ---- */

static void client_connects(struct side *client)
{
	struct rdma_conn_param param = { .responder_resources = 1, .retry_count = 7 };

	client_start(client, ipv4("127.0.0.1", PORT));
	give_qp(client);
	post_receive(client);
	CHECK_EQUAL(softhca_rdma_connect(client->id, &param), 0);
	expect(client->channel, RDMA_CM_EVENT_ESTABLISHED, 0);
}

static void server_accepts(struct rdma_event_channel *channel, struct side *server)
{
	struct rdma_cm_event *event = take_event(channel, RDMA_CM_EVENT_CONNECT_REQUEST, 0);

	server->id = event->id;
	CHECK_EQUAL(softhca_rdma_ack_cm_event(event), 0);
	give_qp(server);
	post_receive(server);
	CHECK_EQUAL(softhca_rdma_accept(server->id, NULL), 0);
	expect(channel, RDMA_CM_EVENT_ESTABLISHED, 0);
}

static void client_that_just_exits(void)
{
	static struct side client; /* found by the leak checker */

	wait_ready();
	client_connects(&client);
}

static void exit_is_a_disconnect(void)
{
	struct rdma_event_channel *channel;
	struct side server = { 0 };
	struct rdma_cm_id *listener;
	pid_t client;

	CHECK(!pipe(ready));
	client = start(client_that_just_exits);
	channel = new_channel();
	listener = listen_at(channel, ipv4("0.0.0.0", PORT), 2);
	say_ready();
	server_accepts(channel, &server);
	expect_exit(client);
	expect(channel, RDMA_CM_EVENT_DISCONNECTED, 0);
	CHECK_EQUAL(poll_one(&server).status, IBV_WC_WR_FLUSH_ERR);
	side_end(&server);
	softhca_rdma_destroy_id(listener);
}
NAMESPACE_TEST(exit_is_a_disconnect)

static void client_that_is_killed(void)
{
	struct side client = { 0 };

	wait_ready();
	client_connects(&client);
	pause();
}

/* C3: killed and started again, over and over, each time at once */
static void killed_client_comes_back(void)
{
	struct rdma_event_channel *channel = NULL;
	struct side server[3] = { 0 };
	struct rdma_cm_id *listener = NULL;
	pid_t client[3];

	CHECK(!pipe(ready));
	for (int i = 0; i < 3; i++)
		client[i] = start(client_that_is_killed);
	channel = new_channel();
	listener = listen_at(channel, ipv4("0.0.0.0", PORT), 2);
	for (int i = 0; i < 3; i++) {
		say_ready();
		server_accepts(channel, &server[i]);
		/* which of them took the token is theirs to know: kill all that have connected */
		if (i < 2)
			continue;
		for (int k = 0; k < 3; k++)
			kill(client[k], SIGKILL);
	}
	for (int k = 0; k < 3; k++)
		waitpid(client[k], NULL, 0);
	/* the dead do not answer; the port daemon does it for them */
	for (int i = 0; i < 3; i++) {
		CHECK_EQUAL(softhca_rdma_disconnect(server[i].id), 0);
		expect(channel, RDMA_CM_EVENT_DISCONNECTED, 0);
	}
	client[0] = start(client_that_just_exits);
	say_ready();
	for (;;) {
		struct rdma_cm_event *event = next_event(channel);
		struct side last = { 0 };

		if (event->event == RDMA_CM_EVENT_TIMEWAIT_EXIT) {
			softhca_rdma_ack_cm_event(event);
			continue;
		}
		CHECK_EQUAL(event->event, RDMA_CM_EVENT_CONNECT_REQUEST);
		last.id = event->id;
		softhca_rdma_ack_cm_event(event);
		give_qp(&last);
		CHECK_EQUAL(softhca_rdma_accept(last.id, NULL), 0);
		expect_exit(client[0]);
		side_end(&last);
		break;
	}
	for (int i = 0; i < 3; i++)
		side_end(&server[i]);
	softhca_rdma_destroy_id(listener);
}
THREADED_FORK_TEST(killed_client_comes_back)

/* ---- addresses ---- */

static void holder(void)
{
	struct rdma_event_channel *channel = new_channel();

	listen_at(channel, ipv4("127.0.0.1", PORT), 2);
	say_ready();
	pause();
}

static void address_of_another_process(void)
{
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	pid_t pid;

	CHECK(!pipe(ready));
	pid = start(holder);
	wait_ready();
	channel = new_channel();
	id = new_id(channel);
	CHECK_EQUAL(softhca_rdma_bind_addr(id, ipv4("127.0.0.1", PORT)), -1);
	CHECK_EQUAL(errno, EADDRINUSE);
	CHECK_EQUAL(softhca_rdma_bind_addr(id, ipv4("0.0.0.0", PORT)), -1);
	CHECK_EQUAL(errno, EADDRINUSE);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	CHECK_EQUAL(softhca_rdma_bind_addr(id, ipv4("0.0.0.0", PORT)), 0);
	CHECK_EQUAL(softhca_rdma_destroy_id(id), 0);
	softhca_rdma_destroy_event_channel(channel);
}
NAMESPACE_TEST(address_of_another_process)

/* a child of a process with a CM has one of its own */
static void child(void)
{
	struct side client = { 0 };

	client_connects(&client);
	CHECK_EQUAL(softhca_rdma_disconnect(client.id), 0);
	expect(client.channel, RDMA_CM_EVENT_DISCONNECTED, 0);
	side_end(&client);
}

static void fork_after_start(void)
{
	struct rdma_event_channel *channel = new_channel();
	struct rdma_cm_id *listener = listen_at(channel, ipv4("127.0.0.1", PORT), 2);
	struct side server = { 0 };
	pid_t pid = start(child);

	server_accepts(channel, &server);
	expect(channel, RDMA_CM_EVENT_DISCONNECTED, 0);
	expect_exit(pid);
	side_end(&server);
	softhca_rdma_destroy_id(listener);
	softhca_rdma_destroy_event_channel(channel);
}
THREADED_FORK_TEST(fork_after_start)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_synchronous),
		cmocka_unit_test(test_exit_is_a_disconnect),
		cmocka_unit_test(test_killed_client_comes_back),
		cmocka_unit_test(test_address_of_another_process),
		cmocka_unit_test(test_fork_after_start),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
