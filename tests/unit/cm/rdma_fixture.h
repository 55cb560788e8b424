/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rdma_fixture.h: short forms for tests that run the RDMA CM API with everything below it, in a
 * network namespace of their own, over loopback.
 */
#ifndef TESTS_CM_RDMA_FIXTURE_H
#define TESTS_CM_RDMA_FIXTURE_H

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdbool.h>

#include "../portd/namespace.h"
#include "cm/rdma_api.h"

#define PORT 7471

struct side {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	char buffer[256];
};

static inline struct sockaddr *ipv4(const char *text, uint16_t port)
{
	static struct sockaddr_in addr[4];
	static int next;
	struct sockaddr_in *a = &addr[next++ % 4];

	memset(a, 0, sizeof(*a));
	a->sin_family = AF_INET;
	a->sin_port = htons(port);
	CHECK_EQUAL(inet_pton(AF_INET, text, &a->sin_addr), 1);
	return (struct sockaddr *)a;
}

static inline struct sockaddr *ipv6(const char *text, uint16_t port)
{
	static struct sockaddr_in6 addr[4];
	static int next;
	struct sockaddr_in6 *a = &addr[next++ % 4];

	memset(a, 0, sizeof(*a));
	a->sin6_family = AF_INET6;
	a->sin6_port = htons(port);
	CHECK_EQUAL(inet_pton(AF_INET6, text, &a->sin6_addr), 1);
	return (struct sockaddr *)a;
}

static inline bool is_readable(const struct rdma_event_channel *channel)
{
	struct pollfd fd = { .fd = channel->fd, .events = POLLIN };

	return poll(&fd, 1, 0) == 1;
}

/* the next event of @channel, within 10 s */
static inline struct rdma_cm_event *next_event(struct rdma_event_channel *channel)
{
	struct pollfd fd = { .fd = channel->fd, .events = POLLIN };
	struct rdma_cm_event *event;

	CHECK_EQUAL(poll(&fd, 1, 10000), 1);
	CHECK_EQUAL(softhca_rdma_get_cm_event(channel, &event), 0);
	return event;
}

/* which must be this one; not acknowledged */
static inline struct rdma_cm_event *take_event(struct rdma_event_channel *channel,
					       enum rdma_cm_event_type type, int status)
{
	struct rdma_cm_event *event = next_event(channel);

	if (event->event != type)
		fprintf(stderr, "got %s, status %d\n", softhca_rdma_event_str(event->event),
			event->status);
	CHECK_EQUAL(event->event, type);
	CHECK_EQUAL(event->status, status);
	return event;
}

static inline void expect(struct rdma_event_channel *channel, enum rdma_cm_event_type type,
			  int status)
{
	CHECK_EQUAL(softhca_rdma_ack_cm_event(take_event(channel, type, status)), 0);
}

static inline struct rdma_cm_id *new_id(struct rdma_event_channel *channel)
{
	struct rdma_cm_id *id;

	CHECK_EQUAL(softhca_rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
	return id;
}

static inline struct rdma_event_channel *new_channel(void)
{
	struct rdma_event_channel *channel = softhca_rdma_create_event_channel();

	CHECK(channel);
	return channel;
}

static inline struct rdma_cm_id *listen_at(struct rdma_event_channel *channel,
					   struct sockaddr *addr, int backlog)
{
	struct rdma_cm_id *id = new_id(channel);

	CHECK_EQUAL(softhca_rdma_bind_addr(id, addr), 0);
	CHECK_EQUAL(softhca_rdma_listen(id, backlog), 0);
	return id;
}

static inline void give_qp(struct side *side)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1 }
	};

	side->cq = softhca_ibv_create_cq(side->id->verbs, 32, NULL, NULL, 0);
	CHECK(side->cq);
	attr.send_cq = attr.recv_cq = side->cq;
	CHECK_EQUAL(softhca_rdma_create_qp(side->id, NULL, &attr), 0);
	side->mr = softhca_ibv_reg_mr(side->id->pd, side->buffer, sizeof(side->buffer),
				      IBV_ACCESS_LOCAL_WRITE);
	CHECK(side->mr);
}

/* up to a resolved route, with a QP */
static inline void client_start(struct side *side, struct sockaddr *addr)
{
	side->channel = new_channel();
	side->id = new_id(side->channel);
	CHECK_EQUAL(softhca_rdma_resolve_addr(side->id, NULL, addr, 1000), 0);
	expect(side->channel, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
	CHECK_EQUAL(softhca_rdma_resolve_route(side->id, 1000), 0);
	expect(side->channel, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
}

static inline void side_end(struct side *side)
{
	if (side->mr)
		CHECK_EQUAL(softhca_ibv_dereg_mr(side->mr), 0);
	if (side->id && side->id->qp)
		softhca_rdma_destroy_qp(side->id);
	if (side->cq)
		CHECK_EQUAL(softhca_ibv_destroy_cq(side->cq), 0);
	if (side->id)
		CHECK_EQUAL(softhca_rdma_destroy_id(side->id), 0);
	if (side->channel)
		softhca_rdma_destroy_event_channel(side->channel);
}

static inline void post_receive(struct side *side)
{
	struct ibv_sge sge = { (uintptr_t)side->buffer, sizeof(side->buffer), side->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1 }, *bad;

	CHECK_EQUAL(ibv_post_recv(side->id->qp, &wr, &bad), 0);
}

static inline void post_send(struct side *side, const char *text)
{
	struct ibv_sge sge = { (uintptr_t)side->buffer, (uint32_t)strlen(text) + 1,
			       side->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 2,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED },
			   *bad;

	strcpy(side->buffer, text);
	CHECK_EQUAL(ibv_post_send(side->id->qp, &wr, &bad), 0);
}

static inline struct ibv_wc poll_one(struct side *side)
{
	struct ibv_wc wc = { 0 };
	int n = 0;

	for (int i = 0; i < 10000 && !n; i++) {
		n = ibv_poll_cq(side->cq, 1, &wc);
		if (!n)
			usleep(1000);
	}
	CHECK_EQUAL(n, 1);
	return wc;
}

#endif
