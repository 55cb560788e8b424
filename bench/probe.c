// SPDX-License-Identifier: BSD-2-Clause
/*
 * probe.c: placement probe, raw UDP and TCP peers, statistics. See probe.h.
 */
#include "probe.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

static void die(const char *what)
{
	fprintf(stderr, "bench: %s: %s\n", what, strerror(errno));
	exit(1);
}

double bench_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

void bench_pin(int core)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(core % (int)sysconf(_SC_NPROCESSORS_ONLN), &set);
	sched_setaffinity(0, sizeof(set), &set);
}

double probe_shm_rtt_ns(void)
{
	enum { ROUNDS = 20000 };
	struct {
		_Alignas(64) _Atomic int ping;
		_Alignas(64) _Atomic int pong;
	} * shm;
	double start, rtt = 0;
	int child;

	shm = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shm == MAP_FAILED)
		die("mmap");
	fflush(NULL);
	child = fork();
	if (child < 0)
		die("fork");
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		bench_pin(1);
		for (int i = 1; i <= ROUNDS; i++) {
			while (atomic_load_explicit(&shm->ping, memory_order_acquire) != i)
				;
			atomic_store_explicit(&shm->pong, i, memory_order_release);
		}
		_exit(0);
	}
	bench_pin(0);
	start = bench_now();
	for (int i = 1; i <= ROUNDS; i++) {
		if (i == ROUNDS / 2)
			start = bench_now();
		atomic_store_explicit(&shm->ping, i, memory_order_release);
		while (atomic_load_explicit(&shm->pong, memory_order_acquire) != i)
			;
	}
	rtt = (bench_now() - start) / (ROUNDS / 2) * 1e9;
	waitpid(child, NULL, 0);
	munmap(shm, 4096);
	return rtt;
}

char probe_regime(void)
{
	double a = probe_shm_rtt_ns();

	/* between the two regimes of docs/performance.md: near 110-130 ns, far 460-490 ns */
	if (a < 220)
		return 'N';
	return a > 330 ? 'F' : '?';
}

void pair_start(struct bench_pair *pair)
{
	int fds[2];

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds))
		die("socketpair");
	fflush(NULL);
	pair->child = fork();
	if (pair->child < 0)
		die("fork");
	pair->is_server = pair->child == 0;
	if (pair->is_server)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	pair->fd = fds[pair->is_server];
	close(fds[!pair->is_server]);
	bench_pin(pair->is_server);
}

int pair_end(struct bench_pair *pair)
{
	int status = 0;

	close(pair->fd);
	if (pair->is_server)
		exit(0);
	waitpid(pair->child, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void read_all(int fd, void *buf, size_t len)
{
	for (size_t done = 0; done < len;) {
		ssize_t n = read(fd, (char *)buf + done, len - done);

		if (n <= 0) {
			fprintf(stderr, "bench: the other process ended\n");
			exit(1);
		}
		done += (size_t)n;
	}
}

static void write_all(int fd, const void *buf, size_t len)
{
	for (size_t done = 0; done < len;) {
		ssize_t n = write(fd, (const char *)buf + done, len - done);

		if (n <= 0)
			die("write");
		done += (size_t)n;
	}
}

void pair_exchange(struct bench_pair *pair, const void *mine, void *theirs, size_t len)
{
	write_all(pair->fd, mine, len);
	read_all(pair->fd, theirs, len);
}

void pair_sync(struct bench_pair *pair)
{
	char c = 0, d;

	pair_exchange(pair, &c, &d, 1);
}

static int compare_double(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

struct latency latency_of(double *samples, size_t count)
{
	struct latency l = { 0, 0 };

	if (!count)
		return l;
	qsort(samples, count, sizeof(*samples), compare_double);
	l.p50_us = samples[count / 2] * 1e6;
	l.p99_us = samples[count * 99 / 100] * 1e6;
	return l;
}

/* a UDP socket on loopback connected to the other side's; unconnected costs about 0.3 us more and
 * is what an adapter must use, so the peers here are unconnected too */
struct udp_end {
	int fd;
	struct sockaddr_in peer;
};

static void udp_open(struct bench_pair *pair, struct udp_end *end)
{
	struct sockaddr_in sin = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
	socklen_t len = sizeof(sin);
	int size = 4 << 20, on = 1;

	end->fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
	if (end->fd < 0 || bind(end->fd, (struct sockaddr *)&sin, sizeof(sin)))
		die("UDP socket");
	setsockopt(end->fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
	setsockopt(end->fd, IPPROTO_UDP, UDP_GRO, &on, sizeof(on));
	getsockname(end->fd, (struct sockaddr *)&sin, &len);
	pair_exchange(pair, &sin, &end->peer, sizeof(sin));
}

static ssize_t udp_send(struct udp_end *end, const void *buf, size_t len, uint16_t segment)
{
	char control[CMSG_SPACE(sizeof(uint16_t))] = { 0 };
	struct iovec iov = { (void *)buf, len };
	struct msghdr msg = { .msg_name = &end->peer,
			      .msg_namelen = sizeof(end->peer),
			      .msg_iov = &iov,
			      .msg_iovlen = 1 };

	if (len > segment) {
		struct cmsghdr *c;

		msg.msg_control = control;
		msg.msg_controllen = sizeof(control);
		c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = IPPROTO_UDP;
		c->cmsg_type = UDP_SEGMENT;
		c->cmsg_len = CMSG_LEN(sizeof(segment));
		memcpy(CMSG_DATA(c), &segment, sizeof(segment));
	}
	return sendmsg(end->fd, &msg, 0);
}

#define UDP_CHUNK 61440 /* most bytes of one super-packet used here */

static ssize_t udp_recv_wait(struct udp_end *end, void *buf, size_t len)
{
	for (;;) {
		ssize_t n = recv(end->fd, buf, len, 0);

		if (n >= 0)
			return n;
		if (errno != EAGAIN)
			die("recv");
	}
}

/* @size bytes there, @size bytes back, cut into segments of at most 4096 */
static void udp_move(struct udp_end *end, char *buf, size_t size, bool send)
{
	for (size_t done = 0; done < size;) {
		size_t n = size - done > UDP_CHUNK ? UDP_CHUNK : size - done;

		if (send) {
			if (udp_send(end, buf, n, 4096) < 0) {
				if (errno == EAGAIN || errno == ENOBUFS)
					continue;
				die("sendmsg");
			}
			done += n;
		} else {
			done += (size_t)udp_recv_wait(end, buf, 65536);
		}
	}
}

/* round trips of one run: the first so many are kept */
struct rounds {
	double before;
	size_t count;
	double seconds[1 << 20];
};

static struct rounds *rounds_start(void)
{
	static struct rounds rounds;

	rounds.count = 0;
	rounds.before = bench_now();
	return &rounds;
}

/* Return: now */
static double rounds_add(struct rounds *r)
{
	double now = bench_now();

	if (r->count < sizeof(r->seconds) / sizeof(r->seconds[0]))
		r->seconds[r->count++] = now - r->before;
	r->before = now;
	return now;
}

static double rounds_half_us(struct rounds *r)
{
	return latency_of(r->seconds, r->count).p50_us / 2;
}

double raw_udp_latency_us(struct bench_pair *pair, size_t size, double seconds)
{
	static char buf[65536];
	struct rounds *rounds;
	struct udp_end end;
	double start, now;

	udp_open(pair, &end);
	pair_sync(pair);
	rounds = rounds_start();
	start = now = rounds->before;
	for (;;) {
		if (!pair->is_server) {
			/* the last round says so in its first byte */
			buf[0] = now - start > seconds;
			udp_move(&end, buf, size, true);
			buf[0] = 0;
			udp_move(&end, buf, size, false);
			now = rounds_add(rounds);
			if (buf[0])
				break;
		} else {
			char last;

			udp_move(&end, buf, size, false);
			last = buf[0];
			udp_move(&end, buf, size, true);
			if (last)
				break;
		}
	}
	close(end.fd);
	pair_sync(pair);
	return rounds_half_us(rounds);
}

static int tcp_open(struct bench_pair *pair)
{
	struct sockaddr_in sin = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
	struct sockaddr_in peer;
	socklen_t len = sizeof(sin);
	int fd = socket(AF_INET, SOCK_STREAM, 0), conn, on = 1;

	if (pair->is_server) {
		if (bind(fd, (struct sockaddr *)&sin, sizeof(sin)) || listen(fd, 1))
			die("TCP socket");
		getsockname(fd, (struct sockaddr *)&sin, &len);
	}
	pair_exchange(pair, &sin, &peer, sizeof(sin));
	if (pair->is_server) {
		conn = accept(fd, NULL, NULL);
		close(fd);
		fd = conn;
	} else if (connect(fd, (struct sockaddr *)&peer, sizeof(peer))) {
		die("connect");
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	return fd;
}

static void tcp_recv(int fd, char *buf, size_t len)
{
	for (size_t done = 0; done < len;) {
		ssize_t n = recv(fd, buf + done, len - done, MSG_DONTWAIT);

		if (n > 0)
			done += (size_t)n;
		else if (n == 0 || errno != EAGAIN)
			die("recv");
	}
}

double raw_tcp_latency_us(struct bench_pair *pair, size_t size, double seconds)
{
	char *buf = calloc(1, size + 1);
	int fd = tcp_open(pair);
	struct rounds *rounds;
	double start, now;
	char last = 0;

	pair_sync(pair);
	rounds = rounds_start();
	start = now = rounds->before;
	while (!last) {
		if (!pair->is_server) {
			last = now - start > seconds;
			buf[0] = last;
			write_all(fd, buf, size);
			tcp_recv(fd, buf, size);
			now = rounds_add(rounds);
		} else {
			tcp_recv(fd, buf, size);
			last = buf[0];
			write_all(fd, buf, size);
		}
	}
	close(fd);
	free(buf);
	pair_sync(pair);
	return rounds_half_us(rounds);
}

double raw_udp_stream(struct bench_pair *pair, size_t segment, double seconds)
{
	enum { WINDOW = 2 << 20 };
	static char buf[65536];
	struct udp_end end;
	uint64_t sent = 0, acked = 0, received = 0;
	size_t count = UDP_CHUNK / segment, chunk;
	double start, took;
	uint64_t word;

	if (count > 128)
		count = 128;
	chunk = count * segment;
	udp_open(pair, &end);
	pair_sync(pair);
	start = bench_now();
	while (!pair->is_server) {
		ssize_t n;

		while (recv(end.fd, &word, sizeof(word), 0) == sizeof(word))
			acked = word;
		took = bench_now() - start;
		if (took > seconds && acked == sent)
			break;
		if (took > seconds + 1)
			break;
		if (took > seconds || sent - acked + chunk > WINDOW)
			continue;
		n = udp_send(&end, buf, chunk, (uint16_t)segment);
		if (n > 0)
			sent += (uint64_t)n;
	}
	if (pair->is_server) {
		uint64_t told = 0;
		char c;

		/* until the client says on the stream socket that it is done */
		while (recv(pair->fd, &c, 1, MSG_DONTWAIT | MSG_PEEK) != 1) {
			ssize_t n = recv(end.fd, buf, sizeof(buf), 0);

			if (n > 0)
				received += (uint64_t)n;
			if (received - told >= 4 * chunk || (n < 0 && told != received)) {
				told = received;
				udp_send(&end, &received, sizeof(received), 4096);
			}
		}
	}
	took = bench_now() - start;
	pair_sync(pair);
	close(end.fd);
	return (double)acked / took;
}

double raw_tcp_stream(struct bench_pair *pair, size_t size, double seconds)
{
	char *buf = calloc(1, size < 65536 ? 65536 : size);
	int fd = tcp_open(pair);
	double start, took;
	uint64_t total = 0;

	pair_sync(pair);
	start = bench_now();
	if (!pair->is_server) {
		while (bench_now() - start < seconds) {
			write_all(fd, buf, size);
			total += size;
		}
		shutdown(fd, SHUT_WR);
		recv(fd, buf, 1, 0);
	} else {
		while (recv(fd, buf, size < 65536 ? 65536 : size, 0) > 0)
			;
	}
	took = bench_now() - start;
	close(fd);
	free(buf);
	pair_sync(pair);
	return (double)total / took;
}

double raw_udp_exchange(struct bench_pair *pair, size_t size, unsigned int depth, bool write_mode,
			double seconds)
{
	/* requests and answers are small; data are cut into 4 KiB segments like a path MTU of 4096
	 */
	static char buf[65536], data[65536];
	struct udp_end end;
	size_t up = 64 + (write_mode ? size : 0), down = 16 + (write_mode ? 0 : size);
	uint64_t in = 0, done = 0, asked = 0;
	double start, took;

	if (up > UDP_CHUNK || down > UDP_CHUNK)
		return raw_udp_stream(pair, 4096, seconds) / (double)size;
	udp_open(pair, &end);
	pair_sync(pair);
	start = bench_now();
	while (!pair->is_server) {
		size_t batch = UDP_CHUNK / up;
		ssize_t n = recv(end.fd, buf, sizeof(buf), 0);

		if (n > 0) {
			in += (uint64_t)n;
			done = in / down;
		}
		took = bench_now() - start;
		if (took > seconds && (done == asked || took > seconds + 1))
			break;
		if (took <= seconds && asked - done < depth) {
			size_t free_slots = depth - (asked - done), want = free_slots;

			if (want > batch)
				want = batch;
			if (up <= 1472 && want > 128)
				want = 128;
			n = udp_send(&end, data, want * up, up > 4096 ? 4096 : (uint16_t)up);
			if (n > 0)
				asked += want;
		}
	}
	if (pair->is_server) {
		size_t batch = UDP_CHUNK / down;
		uint64_t got = 0, answered = 0;
		char c;

		while (recv(pair->fd, &c, 1, MSG_DONTWAIT | MSG_PEEK) != 1) {
			ssize_t n = recv(end.fd, buf, sizeof(buf), 0);

			if (n > 0)
				got += (uint64_t)n;
			while (got / up > answered) {
				size_t want = got / up - answered;

				if (want > batch)
					want = batch;
				if (want > 15 && down > 4096)
					want = 14;
				if (want > 128)
					want = 128;
				n = udp_send(&end, data, want * down,
					     down > 4096 ? 4112 : (uint16_t)down);
				if (n > 0)
					answered += want;
				else if (errno != EAGAIN && errno != ENOBUFS)
					break;
			}
		}
	}
	took = bench_now() - start;
	pair_sync(pair);
	close(end.fd);
	return (double)done / took;
}
