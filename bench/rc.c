// SPDX-License-Identifier: BSD-2-Clause
/*
 * rc.c: bench/rc: SEND, RDMA WRITE and RDMA READ between two processes, 8 B to 1 MiB: latency,
 * bandwidth and message rate, through the public verbs API only, beside bare UDP and TCP sockets
 * that move the same bytes in the same seconds. Each row says in which placement regime it ran
 * (probed before and after; mixed runs are repeated). docs/performance.md explains.
 *
 * bench/rc [--quick] [--device NAME] [--op send|write|read] [--seconds S]
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <infiniband/verbs.h>

#include "probe.h"

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

enum { BUF_SIZE = 8 << 20, DEPTH = 128, BATCH = 16 };

struct side {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	char *buf;
	uint64_t peer_addr;
	uint32_t peer_rkey;
};

struct peer_info {
	union ibv_gid gid;
	uint64_t addr;
	uint32_t rkey, qpn, psn;
};

static double run_seconds = 0.5;
static const char *device_name;

static void die(const char *what)
{
	fprintf(stderr, "bench/rc: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void check(int rc, const char *what)
{
	if (rc) {
		errno = rc > 0 ? rc : errno;
		die(what);
	}
}

static struct ibv_context *open_device(void)
{
	int count = 0;
	struct ibv_device **list = ibv_get_device_list(&count);
	struct ibv_context *ctx = NULL;

	for (int i = 0; list && i < count && !ctx; i++)
		if (!device_name ? !strcmp(ibv_get_device_name(list[i]), "softhca_lo")
				 : !strcmp(ibv_get_device_name(list[i]), device_name))
			ctx = ibv_open_device(list[i]);
	if (list)
		ibv_free_device_list(list);
	if (!ctx) {
		fprintf(stderr, "bench/rc: no device %s (see 'softhca devices')\n",
			device_name ? device_name : "softhca_lo");
		exit(1);
	}
	return ctx;
}

static void side_open(struct side *s, struct bench_pair *pair)
{
	struct peer_info mine = { 0 }, theirs;
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC,
					 .cap = { .max_send_wr = DEPTH * 2,
						  .max_recv_wr = DEPTH * 4,
						  .max_send_sge = 1,
						  .max_recv_sge = 1,
						  .max_inline_data = 220 } };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT,
				    .port_num = 1,
				    .qp_access_flags = IBV_ACCESS_REMOTE_WRITE |
						       IBV_ACCESS_REMOTE_READ };

	memset(s, 0, sizeof(*s));
	s->ctx = open_device();
	s->pd = ibv_alloc_pd(s->ctx);
	s->cq = ibv_create_cq(s->ctx, DEPTH * 8, NULL, NULL, 0);
	if (!s->pd || !s->cq)
		die("PD or CQ");
	if (posix_memalign((void **)&s->buf, 4096, BUF_SIZE))
		die("memory");
	memset(s->buf, 0, BUF_SIZE);
	s->mr = ibv_reg_mr(s->pd, s->buf, BUF_SIZE,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				   IBV_ACCESS_REMOTE_READ);
	if (!s->mr)
		die("ibv_reg_mr");
	init.send_cq = init.recv_cq = s->cq;
	s->qp = ibv_create_qp(s->pd, &init);
	if (!s->qp)
		die("ibv_create_qp");
	if (ibv_query_gid(s->ctx, 1, 0, &mine.gid))
		die("ibv_query_gid");
	mine.addr = (uintptr_t)s->buf;
	mine.rkey = s->mr->rkey;
	mine.qpn = s->qp->qp_num;
	mine.psn = mine.qpn & 0xffff;
	pair_exchange(pair, &mine, &theirs, sizeof(mine));
	s->peer_addr = theirs.addr;
	s->peer_rkey = theirs.rkey;
	check(ibv_modify_qp(s->qp, &attr,
			    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
	      "INIT");
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR,
				     .path_mtu = IBV_MTU_4096,
				     .dest_qp_num = theirs.qpn,
				     .rq_psn = theirs.psn,
				     .max_dest_rd_atomic = 16,
				     .min_rnr_timer = 1,
				     .ah_attr = {
					     .is_global = 1,
					     .port_num = 1,
					     .grh = { .dgid = theirs.gid, .hop_limit = 64 } } };
	check(ibv_modify_qp(s->qp, &attr,
			    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				    IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				    IBV_QP_MIN_RNR_TIMER),
	      "RTR");
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS,
				     .sq_psn = mine.psn,
				     .timeout = 14,
				     .retry_cnt = 7,
				     .rnr_retry = 7,
				     .max_rd_atomic = 16 };
	check(ibv_modify_qp(s->qp, &attr,
			    IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				    IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC),
	      "RTS");
	pair_sync(pair);
}

static void side_close(struct side *s)
{
	ibv_destroy_qp(s->qp);
	ibv_destroy_cq(s->cq);
	ibv_dereg_mr(s->mr);
	ibv_dealloc_pd(s->pd);
	ibv_close_device(s->ctx);
	free(s->buf);
}

/* received data do not overwrite what is being sent */
static void post_recvs(struct side *s, size_t size, unsigned int count)
{
	struct ibv_sge sge = { (uintptr_t)s->buf + BUF_SIZE / 2, (uint32_t)size, s->mr->lkey };
	struct ibv_recv_wr wr[BATCH], *bad;

	for (unsigned int here; count; count -= here) {
		here = count < BATCH ? count : BATCH;
		memset(wr, 0, sizeof(wr));
		for (unsigned int i = 0; i < here; i++) {
			wr[i].sg_list = &sge;
			wr[i].num_sge = 1;
			wr[i].next = i + 1 < here ? &wr[i + 1] : NULL;
		}
		check(ibv_post_recv(s->qp, wr, &bad), "ibv_post_recv");
	}
}

/* post @count work requests in one list; only the last is signaled */
static void post(struct side *s, enum ibv_wr_opcode opcode, size_t size, unsigned int count)
{
	struct ibv_sge sge = { (uintptr_t)s->buf, (uint32_t)size, s->mr->lkey };
	struct ibv_send_wr wr[BATCH], *bad;

	memset(wr, 0, sizeof(wr));
	for (unsigned int i = 0; i < count; i++) {
		wr[i].opcode = opcode;
		wr[i].sg_list = &sge;
		wr[i].num_sge = 1;
		wr[i].next = i + 1 < count ? &wr[i + 1] : NULL;
		if (size <= 220 && opcode != IBV_WR_RDMA_READ)
			wr[i].send_flags = IBV_SEND_INLINE;
		wr[i].wr.rdma.remote_addr = s->peer_addr;
		wr[i].wr.rdma.rkey = s->peer_rkey;
	}
	wr[count - 1].send_flags |= IBV_SEND_SIGNALED;
	wr[count - 1].wr_id = count;
	check(ibv_post_send(s->qp, wr, &bad), "ibv_post_send");
}

/* poll once; counts completed work requests by kind */
static void poll(struct side *s, uint64_t *sends, uint64_t *recvs)
{
	struct ibv_wc wc[32];
	int n = ibv_poll_cq(s->cq, 32, wc);

	if (n < 0)
		die("ibv_poll_cq");
	for (int i = 0; i < n; i++) {
		if (wc[i].status != IBV_WC_SUCCESS) {
			fprintf(stderr, "bench/rc: completion: %s\n",
				ibv_wc_status_str(wc[i].status));
			exit(1);
		}
		if (wc[i].opcode & IBV_WC_RECV)
			(*recvs)++;
		else
			*sends += wc[i].wr_id;
	}
}

/*
 * One round of what latency() measures.
 * @last: whether it is the last one; the first byte of the message says so to the server.
 * @recvs: messages that have come and belong to the next round.
 */
static void round_trip(struct side *s, struct bench_pair *pair, enum ibv_wr_opcode op, size_t size,
		       char *last, uint64_t *recvs)
{
	uint64_t sends = 0;

	if (op != IBV_WR_SEND) {
		post(s, op, size, 1);
		while (!sends)
			poll(s, &sends, recvs);
		return;
	}
	if (!pair->is_server) {
		s->buf[0] = *last;
		post(s, op, size, 1);
	}
	while (!*recvs)
		poll(s, &sends, recvs);
	--*recvs;
	post_recvs(s, size, 1);
	if (pair->is_server) {
		*last = s->buf[BUF_SIZE / 2];
		post(s, op, size, 1);
	}
	/* the answer brings the acknowledgement along, or it is just behind it */
	while (!sends)
		poll(s, &sends, recvs);
}

/*
 * Median. SEND: half of a ping-pong's round trip. READ: the whole round trip of one READ. WRITE:
 * the whole round trip to its completion (the acknowledgement), since nothing but the data tells
 * the peer.
 */
static double latency(struct side *s, struct bench_pair *pair, enum ibv_wr_opcode op, size_t size)
{
	static double samples[1 << 20];
	uint64_t recvs = 0;
	size_t rounds = 0;
	double start, now, before;
	char last = 0;

	if (op == IBV_WR_SEND)
		post_recvs(s, size, 8);
	pair_sync(pair);
	start = before = bench_now();
	while (!last && (op == IBV_WR_SEND || !pair->is_server)) {
		if (!pair->is_server)
			last = before - start > run_seconds;
		round_trip(s, pair, op, size, &last, &recvs);
		now = bench_now();
		samples[rounds++ % ARRAY_SIZE(samples)] = now - before;
		before = now;
	}
	pair_sync(pair);
	if (rounds > ARRAY_SIZE(samples))
		rounds = ARRAY_SIZE(samples);
	return latency_of(samples, rounds).p50_us / (op == IBV_WR_SEND ? 2 : 1);
}

/* work requests a second, client to server (READ: server's memory to client's) */
static double rate(struct side *s, struct bench_pair *pair, enum ibv_wr_opcode op, size_t size)
{
	uint64_t sends = 0, recvs = 0, posted = 0, reposted = 0;
	unsigned int batch = size <= 4096 ? BATCH : 1;
	unsigned int depth = size >= 65536 ? 32 : DEPTH;
	double start, took;

	if (op == IBV_WR_SEND && pair->is_server)
		post_recvs(s, size, DEPTH * 3);
	pair_sync(pair);
	start = bench_now();
	if (!pair->is_server) {
		do {
			took = bench_now() - start;
			while (posted - sends + batch <= depth) {
				post(s, op, size, batch);
				posted += batch;
			}
			poll(s, &sends, &recvs);
		} while (took < run_seconds);
		while (sends < posted)
			poll(s, &sends, &recvs);
		took = bench_now() - start;
		pair_exchange(pair, &posted, &recvs, sizeof(posted));
	} else {
		char c;

		while (recv(pair->fd, &c, 1, MSG_DONTWAIT | MSG_PEEK) != 1) {
			for (int i = 0; i < 64; i++) {
				poll(s, &sends, &recvs);
				if (op == IBV_WR_SEND && recvs - reposted >= BATCH) {
					post_recvs(s, size, BATCH);
					reposted += BATCH;
				}
			}
		}
		took = 1;
		pair_exchange(pair, &recvs, &posted, sizeof(posted));
	}
	pair_sync(pair);
	return (double)posted / took;
}

static void run_row(const char *name, enum ibv_wr_opcode op, size_t size)
{
	double lat, ops, udp_lat, tcp_lat, udp_rate, tcp_rate;
	size_t segment = size < 4096 ? size + 16 : 4112;
	char before = 0, after = 0;

	for (int attempt = 0; attempt < 3; attempt++) {
		struct bench_pair pair;
		struct side s;

		before = probe_regime();
		pair_start(&pair);
		side_open(&s, &pair);
		lat = latency(&s, &pair, op, size);
		pair_sync(&pair);
		side_close(&s);
		side_open(&s, &pair); /* fresh receives */
		ops = rate(&s, &pair, op, size);
		side_close(&s);
		udp_lat = raw_udp_latency_us(&pair, size, run_seconds / 2);
		tcp_lat = raw_tcp_latency_us(&pair, size, run_seconds / 2);
		udp_rate = raw_udp_stream(&pair, segment, run_seconds / 2);
		tcp_rate = raw_tcp_stream(&pair, size, run_seconds / 2);
		pair_end(&pair);
		after = probe_regime();
		if (before == after && before != '?')
			break;
	}
	printf("%-5s %8zu  %c  %8.2f %8.2f %8.2f  %5.2f  %9.3f %8.3f %8.3f %8.3f  %5.2f\n", name,
	       size, before == after ? before : '?', lat, udp_lat, tcp_lat,
	       lat / udp_lat / (op == IBV_WR_SEND ? 1 : 2), ops / 1e6, ops * (double)size / 1e9,
	       udp_rate * (double)size / (double)(size < 4096 ? segment : size + size / 256) / 1e9,
	       tcp_rate / 1e9, ops * (double)size / tcp_rate);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	static const struct option options[] = { { "quick", no_argument, NULL, 'q' },
						 { "device", required_argument, NULL, 'd' },
						 { "op", required_argument, NULL, 'o' },
						 { "size", required_argument, NULL, 's' },
						 { "seconds", required_argument, NULL, 't' },
						 { "help", no_argument, NULL, 'h' },
						 { 0 } };
	static const size_t all[] = { 8, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576 };
	static const size_t few[] = { 8, 4096, 65536, 1048576 };
	static const struct {
		const char *name;
		enum ibv_wr_opcode op;
	} ops[] = { { "send", IBV_WR_SEND },
		    { "write", IBV_WR_RDMA_WRITE },
		    { "read", IBV_WR_RDMA_READ } };
	const char *only = NULL;
	size_t one = 0;
	bool quick = false;
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (c) {
		case 'q':
			quick = true;
			run_seconds = 0.2;
			break;
		case 'd':
			device_name = optarg;
			break;
		case 'o':
			only = optarg;
			break;
		case 's':
			one = strtoul(optarg, NULL, 0);
			break;
		case 't':
			run_seconds = atof(optarg);
			break;
		case 'h':
			printf("usage: bench/rc [--quick] [--device NAME] [--op send|write|read] [--size BYTES] [--seconds S]\n"
			       "RC latency, bandwidth and message rate between two processes, beside bare\n"
			       "UDP and TCP sockets moving the same bytes in the same seconds.\n");
			return 0;
		default:
			fprintf(stderr, "try 'bench/rc --help'\n");
			return 2;
		}
	}
	printf("latency: median; half a round trip for send, UDP, TCP; a whole one for write, read; rates: one direction.\n"
	       "regime N/F: cores near/far (see docs/performance.md); '?' = it changed during the row\n");
	printf("%-5s %8s  r  %8s %8s %8s  %5s  %9s %8s %8s %8s  %5s\n", "op", "bytes", "RC us",
	       "UDP us", "TCP us", "/UDP", "RC Mop/s", "RC GB/s", "UDP GB/s", "TCP GB/s", "/TCP");
	for (size_t o = 0; o < 3; o++) {
		size_t count = quick ? sizeof(few) / sizeof(*few) : sizeof(all) / sizeof(*all);

		if (only && strcmp(only, ops[o].name))
			continue;
		for (size_t i = 0; i < count; i++) {
			size_t size = quick ? few[i] : all[i];

			if (!one || one == size)
				run_row(ops[o].name, ops[o].op, size);
		}
	}
	return 0;
}
