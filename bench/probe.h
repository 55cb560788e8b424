/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * probe.h: what every benchmark here needs: which placement regime the two cores are in just now,
 * raw UDP and TCP peers that move the same bytes, statistics, and two processes in step.
 */
#ifndef SOFTHCA_BENCH_PROBE_H
#define SOFTHCA_BENCH_PROBE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Placement of cores 0 and 1: N (near, same L3), F (far), ? (the two probes disagree) */
char probe_regime(void);
/* round trip of 8 bytes through shared memory between the two cores, ns */
double probe_shm_rtt_ns(void);

double bench_now(void); /* seconds */
void bench_pin(int core);

/* Two processes in step: the parent is the client (core 0), the child the server (core 1). */
struct bench_pair {
	bool is_server;
	int fd; /* stream socket to the other side */
	int child;
};
void pair_start(struct bench_pair *pair);
/* the child exits here; the parent collects it. Return: the child's status */
int pair_end(struct bench_pair *pair);
void pair_exchange(struct bench_pair *pair, const void *mine, void *theirs, size_t len);
void pair_sync(struct bench_pair *pair);

struct latency {
	double p50_us, p99_us;
};
/* sorts @samples (seconds) */
struct latency latency_of(double *samples, size_t count);

/*
 * Raw peers. Called on both sides of a pair; the result is valid on the client.
 * Latency: half of a ping-pong round trip, median. Rates: bytes a second, client to server.
 * UDP streams are super-packets (UDP_SEGMENT, UDP_GRO) of @segment bytes each with a loss-free
 * window; TCP streams are plain writes of @size.
 */
double raw_udp_latency_us(struct bench_pair *pair, size_t size, double seconds);
double raw_tcp_latency_us(struct bench_pair *pair, size_t size, double seconds);
double raw_udp_stream(struct bench_pair *pair, size_t segment, double seconds);
double raw_tcp_stream(struct bench_pair *pair, size_t size, double seconds);

/* Requests of 64 bytes answered by @size bytes (or the other way for writes) and a 16-byte
 * response, @depth outstanding: the bare UDP exchange of an NVMe-oF command. Return: exchanges/s */
double raw_udp_exchange(struct bench_pair *pair, size_t size, unsigned int depth, bool write,
			double seconds);

#endif
