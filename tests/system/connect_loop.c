// SPDX-License-Identifier: BSD-2-Clause
/*
 * connect_loop.c: memory stays flat over many connects. A server and a client process connect,
 * exchange one message and disconnect COUNT times (default 10,000) through the public rdma_cm and
 * verbs API; after a tenth as warm-up, neither process's resident memory may grow by more than
 * 4 MiB. Exit status 0, or 1 and a line that says which side grew and by how much.
 *
 * connect_loop [COUNT]
 */
#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

enum { GROWTH_MAX_KIB = 4096, MESSAGE = 64 };
static const char *const port = "7471";

static void die(const char *side, const char *what)
{
	fprintf(stderr, "connect_loop: %s: %s: %s\n", side, what, strerror(errno));
	exit(1);
}

static void check_status(const char *side, const struct ibv_wc *wc)
{
	if (wc->status == IBV_WC_SUCCESS)
		return;
	fprintf(stderr, "connect_loop: %s: completion: %s\n", side, ibv_wc_status_str(wc->status));
	exit(1);
}

static long resident_kib(void)
{
	FILE *f = fopen("/proc/self/statm", "r");
	long size = 0, resident = 0;

	if (!f || fscanf(f, "%ld %ld", &size, &resident) != 2)
		resident = 0;
	if (f)
		fclose(f);
	return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

/* one connection's life on either side; @id is connected when this returns to the caller */
static void exchange(const char *side, struct rdma_cm_id *id, struct ibv_mr *mr, char *buf,
		     bool server)
{
	struct ibv_wc wc;

	if (server) {
		if (rdma_get_recv_comp(id, &wc) != 1)
			die(side, "rdma_get_recv_comp");
		check_status(side, &wc);
		return;
	}
	memset(buf, 0x5a, MESSAGE);
	if (rdma_post_send(id, NULL, buf, MESSAGE, mr, IBV_SEND_SIGNALED))
		die(side, "rdma_post_send");
	if (rdma_get_send_comp(id, &wc) != 1)
		die(side, "rdma_get_send_comp");
	check_status(side, &wc);
}

static int judge(const char *side, long warm, long end, int count)
{
	printf("%s: %d connects, resident %ld KiB after warm-up, %ld KiB at the end\n", side, count,
	       warm, end);
	fflush(stdout);
	if (warm && end - warm > GROWTH_MAX_KIB) {
		fprintf(stderr, "connect_loop: the %s grew by %ld KiB\n", side, end - warm);
		return 1;
	}
	return 0;
}

static int run(bool server, int count)
{
	const char *side = server ? "server" : "client";
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP,
				       .ai_flags = server ? RAI_PASSIVE : 0 },
			     *res;
	struct ibv_qp_init_attr init = { .cap = { 4, 4, 1, 1, 0 }, .sq_sig_all = 1 };
	struct rdma_cm_id *listener = NULL;
	long warm = 0;
	char buf[MESSAGE];

	if (rdma_getaddrinfo((char *)"127.0.0.1", (char *)port, &hints, &res))
		die(side, "rdma_getaddrinfo");
	if (server && (rdma_create_ep(&listener, res, NULL, &init) || rdma_listen(listener, 16)))
		die(side, "listen");
	for (int i = 0; i < count; i++) {
		struct ibv_qp_init_attr attr = init; /* written back by rdma_create_ep */
		struct rdma_conn_param param = { .retry_count = 7, .rnr_retry_count = 7 };
		struct rdma_cm_id *id;
		struct ibv_mr *mr;

		if (server ? rdma_get_request(listener, &id)
			   : rdma_create_ep(&id, res, NULL, &attr))
			die(side, server ? "rdma_get_request" : "rdma_create_ep");
		mr = rdma_reg_msgs(id, buf, MESSAGE);
		if (!mr)
			die(side, "rdma_reg_msgs");
		if (server && rdma_post_recv(id, NULL, buf, MESSAGE, mr))
			die(side, "rdma_post_recv");
		if (server ? rdma_accept(id, &param) : rdma_connect(id, &param))
			die(side, server ? "rdma_accept" : "rdma_connect");
		exchange(side, id, mr, buf, server);
		rdma_disconnect(id);
		rdma_dereg_mr(mr);
		rdma_destroy_ep(id);
		if (i == count / 10)
			warm = resident_kib();
	}
	if (listener)
		rdma_destroy_ep(listener);
	rdma_freeaddrinfo(res);
	return judge(side, warm, resident_kib(), count);
}

int main(int argc, char **argv)
{
	int count = argc > 1 ? atoi(argv[1]) : 10000, status = 0, rc;
	pid_t child;

	child = fork();
	if (child < 0)
		die("parent", "fork");
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		exit(run(true, count));
	}
	usleep(500000); /* the listener is there when it is asked */
	rc = run(false, count);
	waitpid(child, &status, 0);
	return rc || status ? 1 : 0;
}
