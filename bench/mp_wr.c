// SPDX-License-Identifier: BSD-2-Clause
/*
 * mp_wr.c: bench/mp_wr: multi-packet receives against classic ones on the same traffic: messages
 * of 64 B to 1 MiB, most of them small, from one process to another, the receiver having the same
 * memory for its posted buffers in both runs. One table: receive memory used up per byte
 * delivered, posts per message, messages a second, RNR NAKs.
 *
 * A classic receive must hold the largest message; a multi-packet one takes what comes.
 *
 * bench_mp_wr [MESSAGES]
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <infiniband/verbs_ext.h>
#include <rdma/rdma_cma.h>
#include <softhca/softhca.h>

#include "probe.h"

enum {
	LARGEST = 1 << 20, /* message, and size of every posted buffer */
	BUFFERS = 16,	   /* posted: 16 MiB in both runs */
	ALIGNMENT = 512,
	SENDS = 64, /* in flight */
};

/* cumulative share of messages up to a size, in thousandths: requests and answers of a storage or
 * key-value service, with a tail of bulk */
static const struct {
	uint32_t size, share;
} mix[] = { { 64, 300 },    { 128, 450 },   { 512, 600 },    { 2048, 720 },    { 4096, 850 },
	    { 16384, 930 }, { 65536, 980 }, { 262144, 995 }, { LARGEST, 1000 } };

struct result {
	uint64_t messages, bytes, posts, used_up, rnr;
	double seconds;
};

static void die(const char *what)
{
	fprintf(stderr, "bench_mp_wr: %s: %s\n", what, strerror(errno));
	exit(1);
}

static uint32_t next_size(uint64_t *random)
{
	uint32_t share, low = 64;

	*random = *random * 6364136223846793005ULL + 1442695040888963407ULL;
	share = (uint32_t)(*random >> 33) % 1000;
	for (size_t i = 0; i < sizeof(mix) / sizeof(*mix); i++) {
		if (share < mix[i].share)
			return low + (uint32_t)(*random >> 20) % (mix[i].size - low + 1);
		low = mix[i].size;
	}
	return LARGEST;
}

static uint64_t counter(const char *wanted)
{
	const char *name;
	uint64_t value;

	for (unsigned int i = 0; !softhca_counter(i, &name, &value); i++)
		if (!strcmp(name, wanted))
			return value;
	return 0;
}

static struct rdma_cm_event *expect(struct rdma_event_channel *channel,
				    enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;

	if (rdma_get_cm_event(channel, &event))
		die("rdma_get_cm_event");
	if (event->event != type) {
		fprintf(stderr, "bench_mp_wr: %s instead of %s\n", rdma_event_str(event->event),
			rdma_event_str(type));
		exit(1);
	}
	return event;
}

/* ---- receiver -------------------------------------------------------------- */

struct receiver {
	struct ibv_cq_ex *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	char *memory;
	struct result *result;
};

static void post(struct receiver *r, uint64_t buffer)
{
	struct ibv_sge sge = { (uintptr_t)r->memory + buffer * LARGEST, LARGEST, r->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = buffer, .sg_list = &sge, .num_sge = 1 }, *bad;

	if (ibv_post_recv(r->qp, &wr, &bad))
		die("ibv_post_recv");
	r->result->posts++;
}

static void make_receiver(struct receiver *r, struct rdma_cm_id *id, bool multi_packet)
{
	struct ibv_cq_init_attr_ex cq = {
		.cqe = multi_packet ? BUFFERS * (LARGEST / ALIGNMENT) + 16 : BUFFERS * 2,
		.wc_flags = IBV_WC_STANDARD_FLAGS | (multi_packet ? IBV_WC_EX_WITH_MP_WR : 0),
	};
	struct ibv_qp_init_attr_ext init = {
		.mp_wr = { .wr_buffer_sz = LARGEST, .packet_align_sz = ALIGNMENT },
		.base = { .qp_type = IBV_QPT_RC,
			  .cap = { 1, BUFFERS, 1, 1, 0 },
			  .comp_mask = IBV_QP_INIT_ATTR_PD |
				       (multi_packet ? IBV_QP_INIT_ATTR_MP_WR : 0) },
	};

	r->cq = ibv_create_cq_ex(id->verbs, &cq);
	if (!r->cq)
		die("ibv_create_cq_ex");
	init.base.pd = id->pd ? id->pd : ibv_alloc_pd(id->verbs);
	init.base.send_cq = init.base.recv_cq = ibv_cq_ex_to_cq(r->cq);
	if (rdma_create_qp_ex(id, &init.base))
		die("rdma_create_qp_ex");
	r->qp = id->qp;
	if (posix_memalign((void **)&r->memory, 4096, (size_t)BUFFERS * LARGEST))
		die("memory");
	memset(r->memory, 0, (size_t)BUFFERS * LARGEST);
	r->mr = ibv_reg_mr(init.base.pd, r->memory, (size_t)BUFFERS * LARGEST,
			   IBV_ACCESS_LOCAL_WRITE);
	if (!r->mr)
		die("ibv_reg_mr");
	for (uint64_t i = 0; i < BUFFERS; i++)
		post(r, i);
}

/* one completion: count it, give the buffer back when it is done with */
static void take(struct receiver *r, bool multi_packet)
{
	unsigned int flags = ibv_wc_read_wc_flags(r->cq);
	bool nop = ibv_wc_read_opcode(r->cq) == IBV_WC_RECV_NOP;

	if (r->cq->status != IBV_WC_SUCCESS) {
		fprintf(stderr, "bench_mp_wr: receive: %s\n", ibv_wc_status_str(r->cq->status));
		exit(1);
	}
	if (!nop) {
		r->result->bytes += ibv_wc_read_byte_len(r->cq);
		if (!(flags & IBV_WC_MP_WR_MORE_IN_MSG))
			r->result->messages++;
	}
	if (multi_packet && !(flags & IBV_WC_MP_WR_CONSUMED))
		return;
	r->result->used_up += LARGEST;
	post(r, r->cq->wr_id);
}

static void receive(struct rdma_event_channel *channel, bool multi_packet, uint64_t messages,
		    struct result *result)
{
	struct rdma_cm_event *event = expect(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_conn_param param = { .rnr_retry_count = 7, .retry_count = 7 };
	struct receiver r = { .result = result };
	struct rdma_cm_id *id = event->id;
	struct ibv_poll_cq_attr attr = { 0 };
	uint64_t rnr = counter("rnr_tx");
	double start;

	memset(result, 0, sizeof(*result));
	rdma_ack_cm_event(event);
	make_receiver(&r, id, multi_packet);
	if (rdma_accept(id, &param))
		die("rdma_accept");
	rdma_ack_cm_event(expect(channel, RDMA_CM_EVENT_ESTABLISHED));
	start = bench_now();
	while (result->messages < messages) {
		if (ibv_start_poll(r.cq, &attr))
			continue;
		do
			take(&r, multi_packet);
		while (!ibv_next_poll(r.cq));
		ibv_end_poll(r.cq);
	}
	result->seconds = bench_now() - start;
	result->rnr = counter("rnr_tx") - rnr;
	rdma_disconnect(id);
	rdma_ack_cm_event(expect(channel, RDMA_CM_EVENT_DISCONNECTED));
	rdma_destroy_qp(id);
	ibv_dereg_mr(r.mr);
	ibv_destroy_cq(ibv_cq_ex_to_cq(r.cq));
	rdma_destroy_id(id);
	free(r.memory);
}

/* ---- sender ---------------------------------------------------------------- */

static void send_all(const struct sockaddr_in *to, uint64_t messages)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_conn_param param = { .rnr_retry_count = 7, .retry_count = 7 };
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC,
					 .cap = { SENDS, 1, 1, 1, 0 },
					 .sq_sig_all = 1 };
	struct rdma_cm_id *id;
	uint64_t random = 1, sent = 0, done = 0;
	struct ibv_mr *mr;
	char *memory = calloc(1, LARGEST);

	if (!channel || !memory || rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) ||
	    rdma_resolve_addr(id, NULL, (struct sockaddr *)to, 2000))
		die("rdma_resolve_addr");
	rdma_ack_cm_event(expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED));
	if (rdma_resolve_route(id, 2000))
		die("rdma_resolve_route");
	rdma_ack_cm_event(expect(channel, RDMA_CM_EVENT_ROUTE_RESOLVED));
	if (rdma_create_qp(id, NULL, &init))
		die("rdma_create_qp");
	mr = ibv_reg_mr(id->pd, memory, LARGEST, 0);
	if (!mr || rdma_connect(id, &param))
		die("rdma_connect");
	rdma_ack_cm_event(expect(channel, RDMA_CM_EVENT_ESTABLISHED));
	while (done < messages) {
		struct ibv_wc wc[16];
		int n;

		for (; sent < messages && sent - done < SENDS; sent++) {
			struct ibv_sge sge = { (uintptr_t)memory, next_size(&random), mr->lkey };
			struct ibv_send_wr wr = { .sg_list = &sge,
						  .num_sge = 1,
						  .opcode = IBV_WR_SEND },
					   *bad;

			if (ibv_post_send(id->qp, &wr, &bad))
				die("ibv_post_send");
		}
		n = ibv_poll_cq(id->send_cq, 16, wc);
		for (int i = 0; i < n; i++) {
			if (wc[i].status != IBV_WC_SUCCESS) {
				fprintf(stderr, "bench_mp_wr: send: %s\n",
					ibv_wc_status_str(wc[i].status));
				exit(1);
			}
			done++;
		}
	}
	rdma_ack_cm_event(expect(channel, RDMA_CM_EVENT_DISCONNECTED));
	rdma_destroy_qp(id);
	ibv_dereg_mr(mr);
	rdma_destroy_id(id);
	rdma_destroy_event_channel(channel);
	free(memory);
}

static void print_row(const char *name, const struct result *r)
{
	printf("%-22s %9.1f %12.4f %12.0f %8.2f %8llu\n", name,
	       (double)r->used_up / (double)r->bytes, (double)r->posts / (double)r->messages,
	       (double)r->messages / r->seconds, (double)r->bytes / r->seconds / 1e9,
	       (unsigned long long)r->rnr);
}

int main(int argc, char **argv)
{
	static const char *const names[] = { "classic", "multi-packet" };
	uint64_t messages = argc > 1 ? strtoull(argv[1], NULL, 0) : 20000;
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_addr = { htonl(INADDR_LOOPBACK) } },
			   theirs;
	struct rdma_event_channel *channel = NULL;
	struct rdma_cm_id *listener = NULL;
	char before = probe_regime();
	struct bench_pair pair;

	if (!messages) {
		fprintf(stderr, "usage: bench_mp_wr [MESSAGES]\n");
		return 2;
	}
	pair_start(&pair);
	if (pair.is_server) {
		channel = rdma_create_event_channel();
		if (!channel || rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP) ||
		    rdma_bind_addr(listener, (struct sockaddr *)&address) ||
		    rdma_listen(listener, 4))
			die("rdma_listen");
		address.sin_port = rdma_get_src_port(listener);
	}
	pair_exchange(&pair, &address, &theirs, sizeof(address));
	if (!pair.is_server)
		printf("%llu messages of 64 B to 1 MiB; %d buffers of 1 MiB posted, alignment %d\n"
		       "%-22s %9s %12s %12s %8s %8s\n",
		       (unsigned long long)messages, BUFFERS, ALIGNMENT, "receives", "mem/byte",
		       "posts/msg", "msg/s", "GB/s", "RNR NAKs");
	for (int multi_packet = 0; multi_packet < 2; multi_packet++) {
		struct result mine = { 0 }, result;

		if (pair.is_server)
			receive(channel, multi_packet, messages, &mine);
		else
			send_all(&theirs, messages);
		pair_exchange(&pair, &mine, &result, sizeof(mine));
		if (!pair.is_server)
			print_row(names[multi_packet], &result);
	}
	if (pair_end(&pair))
		return 1;
	printf("regime %c before, %c after (docs/performance.md)\n", before, probe_regime());
	return 0;
}
