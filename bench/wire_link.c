// SPDX-License-Identifier: BSD-2-Clause
/*
 * wire_link.c: the UDP link alone, one direction, without a protocol, beside bare UDP
 * super-packets of the same sizes in the same seconds.
 * First on one thread that sends and receives in turn, in CPU time: tells what a packet costs on
 * a busy machine too. Then between two processes, with a window: packets a second and payload
 * GB/s. Usage: bench_wire_link [SECONDS [one]]
 */
#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "util/clock.h"
#include "wire/link.h"

#define PACKETS_IN_FLIGHT_MAX 2048

/* both processes see it */
struct shared {
	_Atomic uint64_t received;
	_Atomic int stop;
};

static struct shared *shared;

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static void pin(int core)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(core, &set);
	sched_setaffinity(0, sizeof(set), &set);
}

static int bind_ip4(uint32_t addr, uint16_t port)
{
	struct sockaddr_in in = { .sin_family = AF_INET,
				  .sin_port = htons(port),
				  .sin_addr.s_addr = htonl(addr) };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || bind(fd, (struct sockaddr *)&in, sizeof(in)))
		die("bind");
	return fd;
}

static void gid_of(union ibv_gid *gid, uint32_t addr)
{
	memset(gid, 0, sizeof(*gid));
	gid->raw[10] = gid->raw[11] = 0xff;
	addr = htonl(addr);
	memcpy(gid->raw + 12, &addr, 4);
}

#define ADDR_TX 0x7f070101
#define ADDR_RX 0x7f070102

struct rx_state {
	uint8_t *region;
	uint64_t received;
};

/* what a responder does with the payload: to its place in memory */
static void on_packet(void *arg, const struct packet *p)
{
	struct rx_state *state = arg;

	memcpy(state->region + p->psn * (uint64_t)p->payload_len % (1 << 20), p->payload,
	       p->payload_len);
	state->received++;
}

static void link_receiver(int fd)
{
	struct rx_state state = { .region = malloc(256 * 4096) };
	struct link *link;

	pin(1);
	memset(state.region, 1, 256 * 4096);
	if (link_udp_create(&link, fd, -1, 2))
		die("link_udp_create");
	while (!shared->stop) {
		if (link_poll(link, 4, on_packet, &state))
			shared->received = state.received;
	}
	exit(0);
}

static uint32_t window_packets(uint32_t len)
{
	uint32_t packets = (1U << 20) / len;

	return packets < PACKETS_IN_FLIGHT_MAX ? packets : PACKETS_IN_FLIGHT_MAX;
}

static double link_sender(uint32_t len, double seconds)
{
	struct packet p = { .opcode = OP_SEND_ONLY,
			    .pkey = PKEY_DEFAULT,
			    .dest_qpn = 2 << 16 | 7,
			    .payload_len = len };
	uint8_t *region = malloc(256 * 4096);
	uint32_t window = window_packets(len), i;
	union ibv_gid sgid, dgid;
	struct link_flow flow;
	struct link *link;
	uint64_t sent = 0, start, end;

	pin(0);
	memset(region, 2, 256 * 4096);
	if (link_udp_create(&link, bind_ip4(ADDR_TX, ROCE_UDP_PORT), -1, 1))
		die("link_udp_create");
	gid_of(&sgid, ADDR_TX);
	gid_of(&dgid, ADDR_RX);
	if (link_flow_init(link, &flow, &sgid, &dgid, 0, 0, 64))
		die("link_flow_init");
	start = clock_ns();
	end = start + (uint64_t)(seconds * 1e9);
	while (clock_ns() < end) {
		if (sent - shared->received > window) {
			if (sent - shared->received > 100 * window)
				break;
			continue;
		}
		for (i = 0; i < window / 4; i++, sent++) {
			struct iovec sg = { region + sent * len % (1 << 20), len };

			p.psn = (uint32_t)sent & PSN_MASK;
			if (link_queue(link, &flow, &p, &sg, 1))
				break;
		}
		link_flush(link);
	}
	while (shared->received < sent && clock_ns() < end + 200000000)
		;
	end = clock_ns();
	if (shared->received != sent)
		printf("  lost %lu of %lu\n", (unsigned long)(sent - shared->received),
		       (unsigned long)sent);
	link_destroy(link);
	free(region);
	return (double)shared->received / ((double)(end - start) / 1e9);
}

static void raw_receiver(int fd)
{
	static uint8_t buf[65536];
	int on = 1, big = 8 << 20;
	ssize_t n;

	pin(1);
	setsockopt(fd, IPPROTO_UDP, UDP_GRO, &on, sizeof(on));
	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &big, sizeof(big));
	while (!shared->stop) {
		n = recv(fd, buf, sizeof(buf), MSG_DONTWAIT);
		if (n > 0)
			shared->received += (uint64_t)n;
	}
	exit(0);
}

static double raw_sender(uint32_t len, double seconds)
{
	static uint8_t buf[65536];
	struct sockaddr_in to = { .sin_family = AF_INET,
				  .sin_port = htons(ROCE_UDP_PORT),
				  .sin_addr.s_addr = htonl(ADDR_RX) };
	uint32_t packet = len + 16, count = 65507 / packet;
	int fd = bind_ip4(ADDR_TX, ROCE_UDP_PORT), segment = (int)packet;
	uint64_t sent = 0, start, end;

	pin(0);
	if (count > 128)
		count = 128;
	setsockopt(fd, IPPROTO_UDP, UDP_SEGMENT, &segment, sizeof(segment));
	start = clock_ns();
	end = start + (uint64_t)(seconds * 1e9);
	while (clock_ns() < end) {
		if (sent - shared->received > 1 << 20)
			continue;
		if (sendto(fd, buf, count * packet, 0, (struct sockaddr *)&to, sizeof(to)) > 0)
			sent += count * packet;
	}
	end = clock_ns();
	close(fd);
	return (double)shared->received / packet / ((double)(end - start) / 1e9);
}

static double run(void (*receiver)(int), double (*sender)(uint32_t, double), uint32_t len,
		  double seconds)
{
	int fd = bind_ip4(ADDR_RX, ROCE_UDP_PORT);
	double rate;
	pid_t pid;

	shared->received = 0;
	shared->stop = 0;
	pid = fork();
	if (pid < 0)
		die("fork");
	if (!pid)
		receiver(fd);
	close(fd);
	usleep(20000);
	rate = sender(len, seconds);
	shared->stop = 1;
	waitpid(pid, NULL, 0);
	return rate;
}

static double cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (double)ts.tv_sec * 1e9 + (double)ts.tv_nsec;
}

struct cost {
	double send_ns, receive_ns; /* a packet */
};

/* packets sent before the turn changes: about a quarter of what a requester has in flight */
static uint32_t batch_packets(uint32_t len)
{
	return len <= 256 ? 512 : 256 * 1024 / len;
}

static struct cost link_one_thread(uint32_t len, double seconds)
{
	struct rx_state state = { .region = calloc(256, 4096) };
	struct packet p = { .opcode = OP_SEND_ONLY,
			    .pkey = PKEY_DEFAULT,
			    .dest_qpn = 2 << 16 | 7,
			    .payload_len = len };
	uint8_t *region = calloc(256, 4096);
	uint32_t batch = batch_packets(len), i;
	struct cost cost = { 0 };
	union ibv_gid sgid, dgid;
	struct link *tx, *rx;
	struct link_flow flow;
	uint64_t sent = 0;
	double t0, t1;

	memset(state.region, 1, 256 * 4096);
	memset(region, 2, 256 * 4096);
	if (link_udp_create(&tx, bind_ip4(ADDR_TX, ROCE_UDP_PORT), -1, 1) ||
	    link_udp_create(&rx, bind_ip4(ADDR_RX, ROCE_UDP_PORT), -1, 2))
		die("link_udp_create");
	gid_of(&sgid, ADDR_TX);
	gid_of(&dgid, ADDR_RX);
	link_flow_init(tx, &flow, &sgid, &dgid, 0, 0, 64);
	while (cost.send_ns + cost.receive_ns < seconds * 1e9) {
		t0 = cpu_ns();
		for (i = 0; i < batch; i++, sent++) {
			struct iovec sg = { region + sent * len % (1 << 20), len };

			p.psn = (uint32_t)sent & PSN_MASK;
			link_queue(tx, &flow, &p, &sg, 1);
		}
		link_flush(tx);
		t1 = cpu_ns();
		cost.send_ns += t1 - t0;
		while (state.received < sent)
			if (!link_poll(rx, 4, on_packet, &state))
				break;
		cost.receive_ns += cpu_ns() - t1;
	}
	if (state.received != sent)
		printf("  lost %lu of %lu\n", (unsigned long)(sent - state.received),
		       (unsigned long)sent);
	link_destroy(tx);
	link_destroy(rx);
	free(region);
	free(state.region);
	cost.send_ns /= (double)sent;
	cost.receive_ns /= (double)sent;
	return cost;
}

static struct cost raw_one_thread(uint32_t len, double seconds)
{
	static uint8_t buf[65536];
	struct sockaddr_in to = { .sin_family = AF_INET,
				  .sin_port = htons(ROCE_UDP_PORT),
				  .sin_addr.s_addr = htonl(ADDR_RX) };
	uint32_t packet = len + 16, count = 65507 / packet, at, n;
	uint32_t batch = batch_packets(len);
	int tx = bind_ip4(ADDR_TX, ROCE_UDP_PORT), rx = bind_ip4(ADDR_RX, ROCE_UDP_PORT);
	int segment = (int)packet, on = 1, big = 8 << 20;
	struct cost cost = { 0 };
	uint64_t sent = 0;
	double t0, t1;

	count = count > 128 ? 128 : count;
	setsockopt(tx, IPPROTO_UDP, UDP_SEGMENT, &segment, sizeof(segment));
	setsockopt(rx, IPPROTO_UDP, UDP_GRO, &on, sizeof(on));
	setsockopt(rx, SOL_SOCKET, SO_RCVBUF, &big, sizeof(big));
	while (cost.send_ns + cost.receive_ns < seconds * 1e9) {
		t0 = cpu_ns();
		for (at = 0; at < batch; at += n, sent += n) {
			n = batch - at < count ? batch - at : count;
			sendto(tx, buf, n * packet, 0, (struct sockaddr *)&to, sizeof(to));
		}
		t1 = cpu_ns();
		cost.send_ns += t1 - t0;
		while (recv(rx, buf, sizeof(buf), MSG_DONTWAIT) > 0)
			;
		cost.receive_ns += cpu_ns() - t1;
	}
	close(tx);
	close(rx);
	cost.send_ns /= (double)sent;
	cost.receive_ns /= (double)sent;
	return cost;
}

static const uint32_t lens[] = { 64, 256, 1024, 4096 };
#define LENS (sizeof(lens) / sizeof(lens[0]))

static void one_thread(double seconds)
{
	struct cost link, raw;
	size_t i;

	printf("CPU ns a packet, one thread\n"
	       "payload   link send  receive   raw send  receive   GB/s a core (link, raw)\n");
	for (i = 0; i < LENS; i++) {
		raw = raw_one_thread(lens[i], seconds);
		link = link_one_thread(lens[i], seconds);
		printf("%7u   %9.1f  %7.1f  %9.1f  %7.1f   %.2f %.2f\n", lens[i], link.send_ns,
		       link.receive_ns, raw.send_ns, raw.receive_ns,
		       lens[i] / (link.send_ns + link.receive_ns),
		       lens[i] / (raw.send_ns + raw.receive_ns));
	}
	fflush(stdout);
}

static void two_processes(double seconds)
{
	double link, raw;
	size_t i;

	printf("two processes\npayload   link Mpps   GB/s    raw Mpps   GB/s   ratio\n");
	for (i = 0; i < LENS; i++) {
		fflush(stdout);
		raw = run(raw_receiver, raw_sender, lens[i], seconds);
		link = run(link_receiver, link_sender, lens[i], seconds);
		printf("%7u   %9.3f  %5.2f   %9.3f  %5.2f   %.2f\n", lens[i], link / 1e6,
		       link * lens[i] / 1e9, raw / 1e6, raw * lens[i] / 1e9, link / raw);
	}
}

/* a network of our own: on the host's somebody may have the port */
static void own_network(void)
{
	struct ifreq lo = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };
	int fd;

	if (unshare(CLONE_NEWNET) && unshare(CLONE_NEWUSER | CLONE_NEWNET))
		return;
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &lo))
		die("lo");
	close(fd);
}

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? atof(argv[1]) : 0.5;

	own_network();
	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		die("mmap");
	one_thread(seconds);
	if (argc <= 2)
		two_processes(seconds);
	return 0;
}
