// SPDX-License-Identifier: BSD-2-Clause
/*
 * The RDMA CM API with the adapter and the port daemon below it: two ids of one process.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "cm/id.h"
#include "rdma_fixture.h"
#include "util/bytes.h"

static struct rdma_conn_param conn_param(const void *data, uint8_t len)
{
	struct rdma_conn_param param = { .private_data = data,
					 .private_data_len = len,
					 .responder_resources = 3,
					 .initiator_depth = 2,
					 .flow_control = 1,
					 .retry_count = 7,
					 .rnr_retry_count = 6 };

	return param;
}

/* accept the next request of @listener's channel; the request's event is checked by @check */
static void accept_next(struct rdma_event_channel *channel, struct rdma_cm_id *listener,
			struct side *server, struct rdma_conn_param *param)
{
	struct rdma_cm_event *event = take_event(channel, RDMA_CM_EVENT_CONNECT_REQUEST, 0);

	CHECK(event->listen_id == listener);
	server->id = event->id;
	CHECK_EQUAL(softhca_rdma_ack_cm_event(event), 0);
	give_qp(server);
	post_receive(server);
	CHECK_EQUAL(softhca_rdma_accept(server->id, param), 0);
}

static void connected_pair(struct rdma_event_channel *channel, struct rdma_cm_id *listener,
			   struct side *client, struct side *server, struct sockaddr *addr)
{
	struct rdma_conn_param param = conn_param(NULL, 0);

	client_start(client, addr);
	give_qp(client);
	post_receive(client);
	CHECK_EQUAL(softhca_rdma_connect(client->id, &param), 0);
	accept_next(channel, listener, server, &param);
	expect(client->channel, RDMA_CM_EVENT_ESTABLISHED, 0);
	expect(channel, RDMA_CM_EVENT_ESTABLISHED, 0);
}

/* ---- a connection from beginning to end ---- */

static void whole_life(struct sockaddr *bind_to, struct sockaddr *connect_to)
{
	struct rdma_event_channel *channel = new_channel();
	struct rdma_cm_id *listener = listen_at(channel, bind_to, 4);
	struct rdma_conn_param param = conn_param("request", 7), answer = conn_param("answer", 6);
	struct side client = { 0 }, server = { 0 };
	static const char zeros[196];
	struct rdma_cm_event *event;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct ibv_wc wc;

	client_start(&client, connect_to);
	CHECK(client.id->verbs);
	CHECK(client.id->pd);
	CHECK_EQUAL(client.id->port_num, 1);
	CHECK_EQUAL(client.id->route.num_paths, 1);
	CHECK(client.id->route.path_rec->mtu >= IBV_MTU_256);
	give_qp(&client);
	post_receive(&client);
	CHECK_EQUAL(softhca_rdma_connect(client.id, &param), 0);

	event = take_event(channel, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	CHECK(event->listen_id == listener);
	CHECK_EQUAL(event->param.conn.private_data_len, 56);
	CHECK(!memcmp(event->param.conn.private_data, "request", 7));
	CHECK(!memcmp((const char *)event->param.conn.private_data + 7, zeros, 49));
	CHECK_EQUAL(event->param.conn.responder_resources, 2); /* crossed */
	CHECK_EQUAL(event->param.conn.initiator_depth, 3);
	CHECK_EQUAL(event->param.conn.retry_count, 7);
	CHECK_EQUAL(event->param.conn.rnr_retry_count, 6);
	CHECK_EQUAL(event->param.conn.flow_control, 1);
	CHECK_EQUAL(event->param.conn.qp_num, client.id->qp->qp_num);
	server.id = event->id;
	CHECK(server.id->verbs);
	CHECK_EQUAL(ntohs(softhca_rdma_get_src_port(server.id)), PORT);
	CHECK_EQUAL(softhca_rdma_get_dst_port(server.id), softhca_rdma_get_src_port(client.id));
	softhca_rdma_ack_cm_event(event);
	give_qp(&server);
	post_receive(&server);
	answer.responder_resources = 2;
	answer.initiator_depth = 200; /* more than there is */
	errno = 0;
	CHECK_EQUAL(softhca_rdma_accept(server.id, &answer), -1);
	CHECK_EQUAL(errno, EINVAL);
	answer.initiator_depth = 3;
	CHECK_EQUAL(softhca_rdma_accept(server.id, &answer), 0);

	event = take_event(client.channel, RDMA_CM_EVENT_ESTABLISHED, 0);
	CHECK_EQUAL(event->param.conn.private_data_len, 196);
	CHECK(!memcmp(event->param.conn.private_data, "answer", 6));
	CHECK(!memcmp((const char *)event->param.conn.private_data + 6, zeros, 190));
	CHECK_EQUAL(event->param.conn.qp_num, server.id->qp->qp_num);
	CHECK_EQUAL(event->param.conn.responder_resources, 3);
	CHECK_EQUAL(event->param.conn.initiator_depth, 2);
	softhca_rdma_ack_cm_event(event);
	event = take_event(channel, RDMA_CM_EVENT_ESTABLISHED, 0);
	CHECK(event->id == server.id);
	CHECK(!event->param.conn.private_data);
	softhca_rdma_ack_cm_event(event);

	/* what the QPs were given: 4.4 */
	CHECK_EQUAL(softhca_ibv_query_qp(client.id->qp, &attr, 0, &init), 0);
	CHECK_EQUAL(attr.qp_state, IBV_QPS_RTS);
	CHECK_EQUAL(attr.max_rd_atomic, 2);
	CHECK_EQUAL(attr.max_dest_rd_atomic, 3);
	CHECK_EQUAL(attr.dest_qp_num, server.id->qp->qp_num);
	CHECK_EQUAL(attr.retry_cnt, 7);
	CHECK_EQUAL(attr.min_rnr_timer, 12);
	CHECK_EQUAL(softhca_ibv_query_qp(server.id->qp, &attr, 0, &init), 0);
	CHECK_EQUAL(attr.qp_state, IBV_QPS_RTS);
	CHECK_EQUAL(attr.max_rd_atomic, 3);
	CHECK_EQUAL(attr.max_dest_rd_atomic, 2);
	CHECK_EQUAL(attr.rnr_retry, 6);
	CHECK_EQUAL(attr.timeout, 17);

	post_send(&client, "over the wire");
	wc = poll_one(&server);
	CHECK_EQUAL(wc.status, IBV_WC_SUCCESS);
	CHECK_EQUAL(wc.opcode, IBV_WC_RECV);
	CHECK(!strcmp(server.buffer, "over the wire"));
	CHECK_EQUAL(poll_one(&client).opcode, IBV_WC_SEND);

	CHECK_EQUAL(softhca_rdma_disconnect(client.id), 0);
	expect(client.channel, RDMA_CM_EVENT_DISCONNECTED, 0);
	expect(channel, RDMA_CM_EVENT_DISCONNECTED, 0);
	/* V13: posted receives are flushed on both sides; the server's was used, so one more */
	CHECK_EQUAL(poll_one(&client).status, IBV_WC_WR_FLUSH_ERR);
	post_receive(&server);
	CHECK_EQUAL(poll_one(&server).status, IBV_WC_WR_FLUSH_ERR);
	CHECK_EQUAL(softhca_rdma_disconnect(server.id), 0);
	expect(client.channel, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0);
	expect(channel, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0);
	CHECK(!is_readable(channel));

	side_end(&client);
	side_end(&server);
	CHECK_EQUAL(softhca_rdma_destroy_id(listener), 0);
	softhca_rdma_destroy_event_channel(channel);
	cm_lock();
	CHECK_EQUAL(cm_instance()->conn_count, 0);
	cm_unlock();
}

static void life_ipv4(void)
{
	whole_life(ipv4("127.0.0.1", PORT), ipv4("127.0.0.1", PORT));
}
NAMESPACE_TEST(life_ipv4)

static void life_ipv4_any(void)
{
	whole_life(ipv4("0.0.0.0", PORT), ipv4("127.0.0.1", PORT));
}
NAMESPACE_TEST(life_ipv4_any)

static void life_ipv6(void)
{
	whole_life(ipv6("::1", PORT), ipv6("::1", PORT));
}
NAMESPACE_TEST(life_ipv6)

static void life_any_takes_ipv4(void)
{
	whole_life(ipv6("::", PORT), ipv4("127.0.0.1", PORT));
}
NAMESPACE_TEST(life_any_takes_ipv4)

/* ---- refusals ---- */

static void reject_with_data(void)
{
	struct rdma_event_channel *channel = new_channel();
	struct rdma_cm_id *listener = listen_at(channel, ipv4("127.0.0.1", PORT), 4);
	struct rdma_conn_param param = conn_param(NULL, 0);
	struct side client = { 0 }, server = { 0 };
	struct rdma_cm_event *event;
	static const uint8_t long_data[149];

	client_start(&client, ipv4("127.0.0.1", PORT));
	give_qp(&client);
	CHECK_EQUAL(softhca_rdma_connect(client.id, &param), 0);
	event = take_event(channel, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	server.id = event->id;
	softhca_rdma_ack_cm_event(event);
	CHECK_EQUAL(softhca_rdma_disconnect(server.id), -1); /* nothing to disconnect: C5 */
	CHECK_EQUAL(errno, EINVAL);
	CHECK_EQUAL(softhca_rdma_reject(server.id, long_data, 149), -1);
	CHECK_EQUAL(errno, EINVAL);
	CHECK_EQUAL(softhca_rdma_reject(server.id, "go away", 7), 0);
	event = take_event(client.channel, RDMA_CM_EVENT_REJECTED, 28);
	CHECK_EQUAL(event->param.conn.private_data_len, 148);
	CHECK(!memcmp(event->param.conn.private_data, "go away\0", 8));
	softhca_rdma_ack_cm_event(event);
	side_end(&server);
	side_end(&client);
	softhca_rdma_destroy_id(listener);
	softhca_rdma_destroy_event_channel(channel);
}
NAMESPACE_TEST(reject_with_data)

static void nobody_listens(void)
{
	struct rdma_conn_param param = conn_param(NULL, 0);
	struct side client = { 0 };

	client_start(&client, ipv4("127.0.0.1", PORT));
	give_qp(&client);
	CHECK_EQUAL(softhca_rdma_connect(client.id, &param), 0);
	expect(client.channel, RDMA_CM_EVENT_REJECTED, 8);
	CHECK_EQUAL(softhca_rdma_connect(client.id, &param), -1);
	CHECK_EQUAL(errno, EINVAL);
	side_end(&client);
}
NAMESPACE_TEST(nobody_listens)

/* only what the application has not taken counts; a request that it drops is rejected */
static void backlog_counts_waiting_requests(void)
{
	struct rdma_event_channel *channel = new_channel();
	struct rdma_cm_id *listener = listen_at(channel, ipv4("127.0.0.1", PORT), 2);
	struct rdma_conn_param param = conn_param(NULL, 0);
	struct side client[4] = { 0 };
	struct rdma_cm_event *event;
	struct rdma_cm_id *request;

	for (int i = 0; i < 3; i++) {
		client_start(&client[i], ipv4("127.0.0.1", PORT));
		give_qp(&client[i]);
		CHECK_EQUAL(softhca_rdma_connect(client[i].id, &param), 0);
	}
	expect(client[2].channel, RDMA_CM_EVENT_REJECTED, 28);
	event = take_event(channel, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	request = event->id;
	softhca_rdma_ack_cm_event(event);
	client_start(&client[3], ipv4("127.0.0.1", PORT));
	give_qp(&client[3]);
	CHECK_EQUAL(softhca_rdma_connect(client[3].id, &param), 0);
	CHECK_EQUAL(softhca_rdma_destroy_id(request), 0);
	expect(client[0].channel, RDMA_CM_EVENT_REJECTED, 28);
	/* and so are those that still wait when the listener goes away */
	CHECK_EQUAL(softhca_rdma_destroy_id(listener), 0);
	expect(client[1].channel, RDMA_CM_EVENT_REJECTED, 28);
	expect(client[3].channel, RDMA_CM_EVENT_REJECTED, 28);
	CHECK(!is_readable(channel));
	for (int i = 0; i < 4; i++)
		side_end(&client[i]);
	softhca_rdma_destroy_event_channel(channel);
}
NAMESPACE_TEST(backlog_counts_waiting_requests)

/* a client that gave up before the server answered: the server learns it by the answer to its REP
 */
static void request_withdrawn(void)
{
	struct rdma_event_channel *channel = new_channel();
	struct rdma_cm_id *listener = listen_at(channel, ipv4("127.0.0.1", PORT), 2);
	struct rdma_conn_param param = conn_param(NULL, 0);
	struct side client = { 0 }, server = { 0 };
	struct rdma_cm_event *event;

	client_start(&client, ipv4("127.0.0.1", PORT));
	give_qp(&client);
	CHECK_EQUAL(softhca_rdma_connect(client.id, &param), 0);
	event = take_event(channel, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	server.id = event->id;
	CHECK_EQUAL(softhca_rdma_ack_cm_event(event), 0);
	side_end(&client);
	give_qp(&server);
	if (!softhca_rdma_accept(server.id, &param))
		expect(channel, RDMA_CM_EVENT_REJECTED, CM_REJ_TIMEOUT);
	/* C3: refusing what is no more is no error */
	CHECK_EQUAL(softhca_rdma_reject(server.id, NULL, 0), 0);
	side_end(&server);
	softhca_rdma_destroy_id(listener);
	softhca_rdma_destroy_event_channel(channel);
}
NAMESPACE_TEST(request_withdrawn)

/* a server that stops listening and listens again is never seen not listening */
static void between_two_listens(void)
{
	struct rdma_event_channel *channel = new_channel();
	struct rdma_conn_param param = conn_param(NULL, 0);
	struct rdma_cm_id *listener = listen_at(channel, ipv4("127.0.0.1", PORT), 2);
	struct side client = { 0 };
	struct rdma_cm_event *event;

	client_start(&client, ipv4("127.0.0.1", PORT));
	give_qp(&client);
	softhca_rdma_destroy_id(listener);
	CHECK_EQUAL(softhca_rdma_connect(client.id, &param), 0);
	usleep(20000);
	listener = listen_at(channel, ipv4("0.0.0.0", PORT), 2);
	event = take_event(channel, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	CHECK(event->listen_id == listener);
	CHECK_EQUAL(softhca_rdma_ack_cm_event(event), 0);
	side_end(&client);
	softhca_rdma_destroy_id(listener);
}
NAMESPACE_TEST(between_two_listens)

/* ---- addresses ---- */

static void addresses_in_use(void)
{
	struct rdma_event_channel *channel = new_channel();
	struct rdma_cm_id *listener = listen_at(channel, ipv4("127.0.0.1", PORT), 1);
	struct rdma_cm_id *id = new_id(channel), *other;
	int on = 1;

	CHECK_EQUAL(softhca_rdma_bind_addr(id, ipv4("127.0.0.1", PORT)), -1);
	CHECK_EQUAL(errno, EADDRINUSE);
	CHECK_EQUAL(softhca_rdma_bind_addr(id, ipv4("0.0.0.0", PORT)), -1);
	CHECK_EQUAL(errno, EADDRINUSE);
	CHECK_EQUAL(softhca_rdma_bind_addr(id, ipv6("::", PORT)), -1);
	CHECK_EQUAL(errno, EADDRINUSE);
	/* another address family alone does not overlap */
	CHECK_EQUAL(
		softhca_rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &on, sizeof(on)),
		0);
	CHECK_EQUAL(softhca_rdma_bind_addr(id, ipv6("::", PORT)), 0);
	CHECK_EQUAL(softhca_rdma_listen(id, 0), 0);
	/* with REUSEADDR binding is allowed, listening twice is not */
	other = new_id(channel);
	CHECK_EQUAL(softhca_rdma_set_option(other, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on,
					    sizeof(on)),
		    0);
	CHECK_EQUAL(softhca_rdma_bind_addr(other, ipv4("127.0.0.1", PORT)), 0);
	CHECK_EQUAL(softhca_rdma_listen(other, 0), -1);
	CHECK_EQUAL(errno, EADDRINUSE);
	CHECK_EQUAL(softhca_rdma_destroy_id(listener), 0);
	CHECK_EQUAL(softhca_rdma_listen(other, 0), 0);
	CHECK_EQUAL(softhca_rdma_destroy_id(other), 0);
	CHECK_EQUAL(softhca_rdma_destroy_id(id), 0);
	/* no address of this host, and none of a device */
	id = new_id(channel);
	CHECK_EQUAL(softhca_rdma_bind_addr(id, ipv4("192.0.2.1", 0)), -1);
	CHECK_EQUAL(errno, EADDRNOTAVAIL);
	/* an ephemeral port */
	CHECK_EQUAL(softhca_rdma_bind_addr(id, ipv4("127.0.0.1", 0)), 0);
	CHECK(ntohs(softhca_rdma_get_src_port(id)) >= 32768);
	CHECK(id->verbs);
	CHECK_EQUAL(softhca_rdma_bind_addr(id, ipv4("127.0.0.1", 0)), -1);
	CHECK_EQUAL(errno, EINVAL);
	CHECK_EQUAL(softhca_rdma_destroy_id(id), 0);
	softhca_rdma_destroy_event_channel(channel);
}
NAMESPACE_TEST(addresses_in_use)

static void unreachable_destination(void)
{
	struct rdma_event_channel *channel = new_channel();
	struct rdma_cm_id *id = new_id(channel);

	CHECK_EQUAL(softhca_rdma_resolve_route(id, 1000), -1);
	CHECK_EQUAL(errno, EINVAL);
	CHECK_EQUAL(softhca_rdma_resolve_addr(id, NULL, ipv4("198.51.100.7", PORT), 1000), 0);
	expect(channel, RDMA_CM_EVENT_ADDR_ERROR, -ENETUNREACH);
	CHECK(!id->verbs);
	CHECK_EQUAL(softhca_rdma_resolve_addr(id, ipv6("::1", 0), ipv4("127.0.0.1", PORT), 1000),
		    -1);
	CHECK_EQUAL(errno, EINVAL);
	/* the id is good for another try; any is loopback */
	CHECK_EQUAL(softhca_rdma_resolve_addr(id, NULL, ipv4("0.0.0.0", PORT), 1000), 0);
	expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
	CHECK(id->verbs);
	softhca_rdma_destroy_id(id);
	softhca_rdma_destroy_event_channel(channel);
}
NAMESPACE_TEST(unreachable_destination)

/* ---- event channels ---- */

static void channel_descriptor(void)
{
	struct rdma_event_channel *channel = new_channel(), *second = new_channel();
	struct rdma_cm_id *id = new_id(channel);
	struct rdma_cm_event *event;

	CHECK(!is_readable(channel));
	fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK);
	CHECK_EQUAL(softhca_rdma_get_cm_event(channel, &event), -1);
	CHECK_EQUAL(errno, EAGAIN);
	CHECK_EQUAL(softhca_rdma_resolve_addr(id, NULL, ipv4("127.0.0.1", PORT), 1000), 0);
	CHECK_EQUAL(softhca_rdma_resolve_route(id, 1000), 0);
	CHECK(is_readable(channel));
	expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
	CHECK(is_readable(channel)); /* one more */
	/* queued events move with their id */
	CHECK_EQUAL(softhca_rdma_migrate_id(id, second), 0);
	CHECK(!is_readable(channel));
	CHECK(is_readable(second));
	CHECK(id->channel == second);
	expect(second, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
	CHECK(!is_readable(second));
	CHECK_EQUAL(softhca_rdma_get_cm_event(NULL, &event), -1);
	CHECK_EQUAL(errno, EINVAL);
	softhca_rdma_destroy_id(id);
	/* an event that nobody took goes with its id */
	id = new_id(channel);
	CHECK_EQUAL(softhca_rdma_resolve_addr(id, NULL, ipv4("127.0.0.1", PORT), 1000), 0);
	CHECK(is_readable(channel));
	softhca_rdma_destroy_id(id);
	CHECK(!is_readable(channel));
	softhca_rdma_destroy_event_channel(channel);
	softhca_rdma_destroy_event_channel(second);
}
NAMESPACE_TEST(channel_descriptor)

/* programs destroy the channel first; its ids end as at a close() */
static void channel_destroyed_first(void)
{
	struct rdma_event_channel *channel = new_channel();
	struct rdma_cm_id *listener = listen_at(channel, ipv4("127.0.0.1", PORT), 2);
	struct side client = { 0 }, server = { 0 }, waiting = { 0 };
	struct rdma_conn_param param = conn_param(NULL, 0);

	connected_pair(channel, listener, &client, &server, ipv4("127.0.0.1", PORT));
	client_start(&waiting, ipv4("127.0.0.1", PORT));
	give_qp(&waiting);
	CHECK_EQUAL(softhca_rdma_connect(waiting.id, &param), 0);
	for (int i = 0; i < 1000 && !is_readable(channel); i++)
		usleep(1000);
	softhca_rdma_destroy_event_channel(channel);
	expect(client.channel, RDMA_CM_EVENT_DISCONNECTED, 0);
	expect(waiting.channel, RDMA_CM_EVENT_REJECTED, 28);
	CHECK_EQUAL(softhca_rdma_disconnect(server.id), -1);
	CHECK_EQUAL(errno, EINVAL);
	side_end(&server);
	side_end(&client);
	side_end(&waiting);
	CHECK_EQUAL(softhca_rdma_destroy_id(listener), 0);
}
NAMESPACE_TEST(channel_destroyed_first)

/* ---- QPs that the CM does not make ---- */

static void qp_of_the_application(void)
{
	struct rdma_event_channel *channel = new_channel();
	struct rdma_cm_id *listener = listen_at(channel, ipv4("127.0.0.1", PORT), 2);
	struct rdma_conn_param param = conn_param(NULL, 0);
	struct side client = { 0 }, server = { 0 };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT };
	struct rdma_cm_event *event;
	int mask;

	client_start(&client, ipv4("127.0.0.1", PORT));
	CHECK_EQUAL(softhca_rdma_init_qp_attr(client.id, &attr, &mask), 0);
	CHECK_EQUAL(mask, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	CHECK_EQUAL(attr.port_num, 1);
	attr.qp_state = IBV_QPS_RTR;
	CHECK_EQUAL(softhca_rdma_init_qp_attr(client.id, &attr, &mask), -1);
	CHECK_EQUAL(errno, EINVAL);
	param.qp_num = 0x123456;
	CHECK_EQUAL(softhca_rdma_connect(client.id, &param), 0);
	event = take_event(channel, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	server.id = event->id;
	CHECK_EQUAL(event->param.conn.qp_num, 0x123456);
	softhca_rdma_ack_cm_event(event);
	param.qp_num = 0x654321;
	CHECK_EQUAL(softhca_rdma_accept(server.id, &param), 0);
	event = take_event(client.channel, RDMA_CM_EVENT_CONNECT_RESPONSE, 0);
	CHECK_EQUAL(event->param.conn.qp_num, 0x654321);
	softhca_rdma_ack_cm_event(event);
	memset(&attr, 0, sizeof(attr));
	attr.qp_state = IBV_QPS_RTR;
	CHECK_EQUAL(softhca_rdma_init_qp_attr(client.id, &attr, &mask), 0);
	CHECK_EQUAL(attr.dest_qp_num, 0x654321);
	CHECK_EQUAL(attr.max_dest_rd_atomic, 2);
	CHECK(mask & IBV_QP_AV);
	attr.qp_state = IBV_QPS_RTS;
	CHECK_EQUAL(softhca_rdma_init_qp_attr(client.id, &attr, &mask), 0);
	CHECK_EQUAL(mask, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				  IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
	CHECK_EQUAL(softhca_rdma_notify(server.id, IBV_EVENT_COMM_EST), 0);
	expect(channel, RDMA_CM_EVENT_ESTABLISHED, 0);
	CHECK_EQUAL(softhca_rdma_establish(client.id), 0);
	CHECK_EQUAL(softhca_rdma_establish(client.id), -1);
	CHECK_EQUAL(errno, EINVAL);
	CHECK_EQUAL(softhca_rdma_disconnect(client.id), 0);
	expect(channel, RDMA_CM_EVENT_DISCONNECTED, 0);
	expect(client.channel, RDMA_CM_EVENT_DISCONNECTED, 0);
	side_end(&client);
	side_end(&server);
	softhca_rdma_destroy_id(listener);
	softhca_rdma_destroy_event_channel(channel);
}
NAMESPACE_TEST(qp_of_the_application)

/* rping does this: ibv_destroy_qp() on the id's QP, and the disconnect comes later */
static void qp_destroyed_behind_the_id(void)
{
	struct rdma_event_channel *channel = new_channel();
	struct rdma_cm_id *listener = listen_at(channel, ipv4("127.0.0.1", PORT), 2);
	struct side client = { 0 }, server = { 0 };

	connected_pair(channel, listener, &client, &server, ipv4("127.0.0.1", PORT));
	CHECK_EQUAL(softhca_ibv_destroy_qp(server.id->qp), 0);
	CHECK_EQUAL(softhca_rdma_disconnect(client.id), 0);
	expect(client.channel, RDMA_CM_EVENT_DISCONNECTED, 0);
	expect(channel, RDMA_CM_EVENT_DISCONNECTED, 0);
	CHECK_EQUAL(softhca_rdma_disconnect(server.id), 0);
	server.id->qp = NULL;
	side_end(&client);
	side_end(&server);
	softhca_rdma_destroy_id(listener);
}
NAMESPACE_TEST(qp_destroyed_behind_the_id)

/* no QP, CQs or SRQ given: the id gets its own */
static void own_cqs(void)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 2, .max_recv_wr = 2, .max_send_sge = 1, .max_recv_sge = 1 }
	};
	struct side client = { 0 };

	client_start(&client, ipv4("127.0.0.1", PORT));
	CHECK_EQUAL(softhca_rdma_create_qp(client.id, NULL, &attr), 0);
	CHECK(client.id->send_cq && client.id->send_cq_channel);
	CHECK(client.id->recv_cq && client.id->recv_cq_channel);
	CHECK(client.id->qp->send_cq == client.id->send_cq);
	CHECK_EQUAL(client.id->qp->state, IBV_QPS_INIT);
	CHECK(attr.cap.max_send_wr >= 2);
	CHECK_EQUAL(softhca_rdma_create_qp(client.id, NULL, &attr), -1);
	CHECK_EQUAL(errno, EINVAL);
	softhca_rdma_destroy_qp(client.id);
	CHECK(!client.id->qp && !client.id->send_cq && !client.id->recv_cq);
	side_end(&client);
}
NAMESPACE_TEST(own_cqs)

/* ---- many ---- */

static void many_connections(void)
{
	struct rdma_event_channel *channel = new_channel();
	struct rdma_cm_id *listener = listen_at(channel, ipv4("127.0.0.1", PORT), 2);

	for (int i = 0; i < 100; i++) {
		struct side client = { 0 }, server = { 0 };

		connected_pair(channel, listener, &client, &server, ipv4("127.0.0.1", PORT));
		if (i % 2)
			side_end(&server);
		side_end(&client);
		if (i % 2)
			continue;
		expect(channel, RDMA_CM_EVENT_DISCONNECTED, 0);
		side_end(&server);
	}
	CHECK(!is_readable(channel));
	softhca_rdma_destroy_id(listener);
	softhca_rdma_destroy_event_channel(channel);
	for (int i = 0; i < 300; i++) { /* timewait is half a second */
		unsigned int left;

		cm_lock();
		left = cm_instance()->conn_count;
		cm_unlock();
		if (!left)
			return;
		usleep(10000);
	}
	CHECK(!"connections leak");
}
NAMESPACE_TEST(many_connections)

/* ---- what is not there, and bad arguments ---- */

static void unsupported(void)
{
	struct rdma_event_channel *channel = new_channel();
	struct rdma_cm_id *id;

	CHECK_EQUAL(softhca_rdma_create_id(channel, &id, NULL, RDMA_PS_IB), -1);
	CHECK_EQUAL(errno, EOPNOTSUPP);
	CHECK_EQUAL(softhca_rdma_create_id(channel, &id, NULL, (enum rdma_port_space)77), -1);
	CHECK_EQUAL(errno, EINVAL);
	CHECK_EQUAL(softhca_rdma_create_id(channel, &id, NULL, RDMA_PS_UDP), 0);
	CHECK_EQUAL(softhca_rdma_listen(id, 1), -1);
	CHECK_EQUAL(errno, EOPNOTSUPP);
	CHECK_EQUAL(softhca_rdma_join_multicast(id, ipv4("239.0.0.1", 0), NULL), -1);
	CHECK_EQUAL(errno, EOPNOTSUPP);
	CHECK_EQUAL(softhca_rdma_accept(id, NULL), -1);
	CHECK_EQUAL(errno, EINVAL);
	CHECK_EQUAL(softhca_rdma_reject(id, NULL, 0), -1);
	CHECK_EQUAL(errno, EINVAL);
	CHECK_EQUAL(softhca_rdma_disconnect(id), -1);
	CHECK_EQUAL(errno, EINVAL);
	CHECK_EQUAL(softhca_rdma_destroy_id(id), 0);
	CHECK_EQUAL(softhca_rdma_destroy_id(NULL), -1);
	CHECK_EQUAL(errno, EINVAL);
	softhca_rdma_destroy_event_channel(channel);
}
NAMESPACE_TEST(unsupported)

static void options(void)
{
	struct rdma_event_channel *channel = new_channel();
	struct rdma_cm_id *id = new_id(channel);
	uint8_t byte = 18;
	int word = 1;

	CHECK_EQUAL(softhca_rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &byte, 1), 0);
	CHECK_EQUAL(
		softhca_rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &byte, 1),
		0);
	byte = 32;
	CHECK_EQUAL(
		softhca_rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &byte, 1),
		-1);
	CHECK_EQUAL(errno, EINVAL);
	CHECK_EQUAL(softhca_rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &word, 1),
		    -1);
	CHECK_EQUAL(errno, EINVAL);
	CHECK_EQUAL(softhca_rdma_set_option(id, RDMA_OPTION_ID, 99, &word, sizeof(word)), -1);
	CHECK_EQUAL(errno, ENOSYS);
	softhca_rdma_destroy_id(id);
	softhca_rdma_destroy_event_channel(channel);
}
NAMESPACE_TEST(options)

static void address_info(void)
{
	struct rdma_addrinfo hints = { .ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_TCP };
	struct rdma_addrinfo *res, *ai;

	CHECK_EQUAL(softhca_rdma_getaddrinfo(NULL, "7471", &hints, &res), 0);
	for (ai = res; ai; ai = ai->ai_next) {
		CHECK(ai->ai_family == AF_INET || ai->ai_family == AF_INET6);
		CHECK(ai->ai_src_addr && !ai->ai_dst_addr);
		CHECK_EQUAL(ai->ai_qp_type, IBV_QPT_RC);
		CHECK_EQUAL(ai->ai_port_space, RDMA_PS_TCP);
	}
	softhca_rdma_freeaddrinfo(res);
	CHECK_EQUAL(softhca_rdma_getaddrinfo("127.0.0.1", "7471", NULL, &res), 0);
	CHECK_EQUAL(res->ai_family, AF_INET);
	CHECK(res->ai_dst_addr && !res->ai_src_addr);
	CHECK(!res->ai_next);
	softhca_rdma_freeaddrinfo(res);
	hints.ai_flags = RAI_NUMERICHOST;
	CHECK(softhca_rdma_getaddrinfo("no.such.name", "1", &hints, &res) != 0);
	hints.ai_flags = RAI_FAMILY;
	hints.ai_family = 27; /* AF_IB */
	CHECK_EQUAL(softhca_rdma_getaddrinfo("127.0.0.1", "1", &hints, &res), -1);
	CHECK_EQUAL(errno, EAFNOSUPPORT);
}
NAMESPACE_TEST(address_info)

static void devices(void)
{
	int n = -1;
	struct ibv_context **list = softhca_rdma_get_devices(&n);

	CHECK(list);
	CHECK(n >= 1);
	CHECK(list[0]);
	CHECK(!list[n]);
	softhca_rdma_free_devices(list);
}
NAMESPACE_TEST(devices)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_life_ipv4),
		cmocka_unit_test(test_life_ipv4_any),
		cmocka_unit_test(test_life_ipv6),
		cmocka_unit_test(test_life_any_takes_ipv4),
		cmocka_unit_test(test_reject_with_data),
		cmocka_unit_test(test_nobody_listens),
		cmocka_unit_test(test_backlog_counts_waiting_requests),
		cmocka_unit_test(test_request_withdrawn),
		cmocka_unit_test(test_between_two_listens),
		cmocka_unit_test(test_addresses_in_use),
		cmocka_unit_test(test_unreachable_destination),
		cmocka_unit_test(test_channel_descriptor),
		cmocka_unit_test(test_channel_destroyed_first),
		cmocka_unit_test(test_qp_of_the_application),
		cmocka_unit_test(test_qp_destroyed_behind_the_id),
		cmocka_unit_test(test_own_cqs),
		cmocka_unit_test(test_many_connections),
		cmocka_unit_test(test_unsupported),
		cmocka_unit_test(test_options),
		cmocka_unit_test(test_address_info),
		cmocka_unit_test(test_devices),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
