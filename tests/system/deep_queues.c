// SPDX-License-Identifier: BSD-2-Clause
/*
 * deep_queues.c: large writes, deep queues, several queue pairs, while packets are lost (set
 * SOFTHCA_FAULT) and the sockets' buffers are small (run unprivileged): no write fails, all data
 * arrive. A server and a client process over the public rdma_cm and verbs API.
 *
 * deep_queues [WRITES_PER_QP [QPS [DEPTH [KIB]]]]   (256, 8, 128, 1024)
 */
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

enum { PLACES = 4 /* a QP's writes go round these */, QPS_MAX = 64 };

static const char *const port = "7472";
static size_t writes = 256, qps = 8, depth = 128, bytes = 1024 * 1024;
static const char *side;

struct remote {
	uint64_t addr;
	uint32_t rkey;
};

static void die(const char *what)
{
	fprintf(stderr, "deep_queues: %s: %s: %s\n", side, what, strerror(errno));
	exit(1);
}

/* what place @place of queue pair @qp holds in the end */
static void fill(uint8_t *to, size_t qp, size_t place)
{
	uint64_t x = (qp * PLACES + place + 1) * 0x9e3779b97f4a7c15ULL;

	for (size_t i = 0; i + 8 <= bytes; i += 8) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		memcpy(to + i, &x, 8);
	}
}

static struct ibv_wc take(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	int n;

	while (!(n = ibv_poll_cq(cq, 1, &wc)))
		;
	if (n < 0)
		die("ibv_poll_cq");
	if (wc.status != IBV_WC_SUCCESS) {
		fprintf(stderr, "deep_queues: %s: %s\n", side, ibv_wc_status_str(wc.status));
		exit(1);
	}
	return wc;
}

static struct rdma_addrinfo *address(int flags)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP, .ai_flags = flags }, *res;

	if (rdma_getaddrinfo((char *)"127.0.0.1", (char *)port, &hints, &res))
		die("rdma_getaddrinfo");
	return res;
}

static int serve(void)
{
	struct ibv_qp_init_attr init = { .cap = { 1, 1, 1, 1, 0 }, .sq_sig_all = 1 };
	struct rdma_addrinfo *res = address(RAI_PASSIVE);
	struct rdma_cm_id *listener, *id[QPS_MAX];
	uint8_t *memory = calloc(qps * PLACES, bytes), *expected = malloc(bytes);
	struct ibv_mr *mr[QPS_MAX];

	if (rdma_create_ep(&listener, res, NULL, &init) || rdma_listen(listener, 16))
		die("listen");
	for (size_t q = 0; q < qps; q++) {
		struct remote remote;
		struct rdma_conn_param param = { .private_data = &remote,
						 .private_data_len = sizeof(remote),
						 .rnr_retry_count = 7 };
		uint8_t *own = memory + q * PLACES * bytes;

		if (rdma_get_request(listener, &id[q]))
			die("rdma_get_request");
		mr[q] = rdma_reg_write(id[q], own, PLACES * bytes);
		if (!mr[q] || rdma_post_recv(id[q], NULL, own, 0, mr[q]))
			die("rdma_reg_write");
		remote = (struct remote){ (uintptr_t)own, mr[q]->rkey };
		if (rdma_accept(id[q], &param))
			die("rdma_accept");
	}
	for (size_t q = 0; q < qps; q++) {
		take(id[q]->recv_cq); /* the empty message at the end */
		for (size_t p = 0; p < PLACES && p < writes; p++) {
			fill(expected, q, p);
			if (!memcmp(memory + (q * PLACES + p) * bytes, expected, bytes))
				continue;
			fprintf(stderr, "deep_queues: QP %zu: wrong data\n", q);
			return 1;
		}
		rdma_disconnect(id[q]);
		rdma_dereg_mr(mr[q]);
		rdma_destroy_ep(id[q]);
	}
	rdma_destroy_ep(listener);
	return 0;
}

static void post(struct rdma_cm_id *id, uint8_t *from, struct ibv_mr *mr, struct remote to,
		 size_t number)
{
	size_t place = number % PLACES * bytes;

	if (rdma_post_write(id, NULL, from + place, bytes, mr, 0, to.addr + place, to.rkey))
		die("rdma_post_write");
}

static int ask(void)
{
	struct rdma_addrinfo *res = address(0);
	struct rdma_cm_id *id[QPS_MAX];
	struct remote remote[QPS_MAX];
	uint8_t *memory = malloc(qps * PLACES * bytes);
	struct ibv_mr *mr[QPS_MAX];
	size_t posted[QPS_MAX], done[QPS_MAX], total = 0;

	for (size_t q = 0; q < qps; q++) {
		struct ibv_qp_init_attr init = { .cap = { (uint32_t)depth, 1, 1, 1, 0 },
						 .sq_sig_all = 1 };
		struct rdma_conn_param param = { .retry_count = 7, .rnr_retry_count = 7 };

		if (rdma_create_ep(&id[q], res, NULL, &init))
			die("rdma_create_ep");
		for (size_t p = 0; p < PLACES; p++)
			fill(memory + (q * PLACES + p) * bytes, q, p);
		mr[q] = rdma_reg_msgs(id[q], memory + q * PLACES * bytes, PLACES * bytes);
		if (!mr[q] || rdma_connect(id[q], &param))
			die("rdma_connect");
		memcpy(&remote[q], id[q]->event->param.conn.private_data, sizeof(remote[q]));
		posted[q] = done[q] = 0;
	}
	while (total < qps * writes) {
		for (size_t q = 0; q < qps; q++) {
			struct ibv_wc wc;

			for (; posted[q] < writes && posted[q] - done[q] < depth; posted[q]++)
				post(id[q], memory + q * PLACES * bytes, mr[q], remote[q],
				     posted[q]);
			while (done[q] < posted[q] && ibv_poll_cq(id[q]->send_cq, 1, &wc) == 1) {
				if (wc.status != IBV_WC_SUCCESS) {
					fprintf(stderr, "deep_queues: QP %zu, write %zu: %s\n", q,
						done[q], ibv_wc_status_str(wc.status));
					return 1;
				}
				done[q]++;
				total++;
			}
		}
	}
	for (size_t q = 0; q < qps; q++) {
		if (rdma_post_send(id[q], NULL, memory, 0, mr[q], 0))
			die("rdma_post_send");
		take(id[q]->send_cq);
	}
	for (size_t q = 0; q < qps; q++) {
		rdma_disconnect(id[q]);
		rdma_dereg_mr(mr[q]);
		rdma_destroy_ep(id[q]);
	}
	printf("%zu writes of %zu bytes\n", total, bytes);
	return 0;
}

int main(int argc, char **argv)
{
	int status = 0, rc;
	pid_t child;

	if (argc > 1)
		writes = strtoul(argv[1], NULL, 0);
	if (argc > 2)
		qps = strtoul(argv[2], NULL, 0);
	if (argc > 3)
		depth = strtoul(argv[3], NULL, 0);
	if (argc > 4)
		bytes = strtoul(argv[4], NULL, 0) * 1024;
	if (!qps || qps > QPS_MAX || !depth || !bytes)
		return 2;
	child = fork();
	if (child < 0)
		die("fork");
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		side = "server";
		exit(serve());
	}
	side = "client";
	usleep(300000); /* the listener is there when it is asked */
	rc = ask();
	waitpid(child, &status, 0);
	return rc || status ? 1 : 0;
}
