// SPDX-License-Identifier: BSD-2-Clause
/*
 * nvme_work.c: a workload on a namespace: keeps a number of commands in flight, takes their
 * latencies, writes and compares a pattern.
 */
#include "cli/nvme.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "util/bytes.h"
#include "util/clock.h"

#define PROGRESS_COMMANDS 64
#define SUB_BUCKETS	  32

/* ---- latencies: 32 buckets for each power of two ---- */

static unsigned int bucket_of(uint64_t ns)
{
	unsigned int power;

	if (ns < SUB_BUCKETS)
		return (unsigned int)ns;
	power = 63 - (unsigned int)__builtin_clzll(ns);
	return MIN((power - 4) * SUB_BUCKETS + (unsigned int)(ns >> (power - 5) & 31),
		   HISTOGRAM_BUCKETS - 1);
}

static double bucket_ns(unsigned int bucket)
{
	unsigned int power = bucket / SUB_BUCKETS + 4;

	if (bucket < SUB_BUCKETS)
		return bucket;
	return (double)((uint64_t)(SUB_BUCKETS + bucket % SUB_BUCKETS) << (power - 5));
}

void latency_add(struct nvme_latency *latency, uint64_t ns)
{
	latency->bucket[bucket_of(ns)]++;
	latency->count++;
}

double latency_us(const struct nvme_latency *latency, unsigned int permille)
{
	uint64_t wanted = latency->count * permille / 1000, seen = 0;

	for (unsigned int i = 0; i < HISTOGRAM_BUCKETS; i++) {
		seen += latency->bucket[i];
		if (seen > wanted)
			return bucket_ns(i) / 1000;
	}
	return 0;
}

/* ---- the pattern: every 8 bytes of the namespace differ ---- */

static uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15ULL;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
	return x ^ x >> 31;
}

static void pattern_fill(uint8_t *data, uint64_t offset, size_t len)
{
	for (size_t i = 0; i < len; i += 8)
		put_le64(data + i, mix(offset + i));
}

/* true when equal; else @at: byte offset of the first difference */
static bool pattern_equal(const uint8_t *data, uint64_t offset, size_t len, uint64_t *at)
{
	for (size_t i = 0; i < len; i += 8) {
		if (get_le64(data + i) == mix(offset + i))
			continue;
		*at = offset + i;
		return false;
	}
	return true;
}

/* ---- the workload ---- */

struct job {
	struct run *run;
	uint8_t *data;
	size_t buffer_offset;
	unsigned int queue;
	uint64_t offset, start_ns;
	bool write;
	struct job *next_deferred;
};

struct run {
	struct nvme_work *work;
	struct initiator_buffer *buffer;
	struct job *jobs;
	struct job *deferred; /* the queue had no room */
	uint64_t started, in_flight, slots, random, deadline_ns;
};

static uint64_t next_random(struct run *run)
{
	run->random++;
	return mix(run->random);
}

static bool more_to_do(const struct run *run)
{
	const struct nvme_work *work = run->work;

	if (work->status || work->mismatches)
		return false;
	if (work->commands)
		return run->started < work->commands;
	return clock_ns() < run->deadline_ns;
}

static void start(struct job *job);

static void job_done(void *arg, uint16_t status, const struct nvme_cqe *cqe)
{
	struct job *job = arg;
	struct run *run = job->run;
	struct nvme_work *work = run->work;

	run->in_flight--;
	if (status) {
		if (!work->status)
			work->status = status;
		return;
	}
	latency_add(&work->latency, clock_ns() - job->start_ns);
	work->done++;
	work->bytes += work->io_bytes;
	if (job->write)
		work->writes++;
	else
		work->reads++;
	if (work->pattern && !job->write &&
	    !pattern_equal(job->data, job->offset, work->io_bytes,
			   work->mismatches ? &(uint64_t){ 0 } : &work->first_mismatch))
		work->mismatches++;
	if (work->progress && work->done % PROGRESS_COMMANDS == 0)
		cli_progress_update(work->progress, work->bytes);
	if (more_to_do(run))
		start(job);
}

static void submit(struct job *job)
{
	struct run *run = job->run;
	struct nvme_work *work = run->work;
	struct nvme_sqe sqe;
	int err;

	initiator_fill_rw(&sqe, job->write ? NVME_CMD_WRITE : NVME_CMD_READ, work->ns.nsid,
			  job->offset / work->ns.lba_size, work->io_bytes / work->ns.lba_size);
	job->start_ns = clock_ns();
	err = initiator_submit(work->host, job->queue, &sqe, run->buffer, job->buffer_offset,
			       work->io_bytes, job->write, job_done, job);
	if (!err)
		return;
	if (err == -EAGAIN) {
		job->next_deferred = run->deferred;
		run->deferred = job;
		return;
	}
	run->in_flight--;
	if (!work->status)
		work->status = INITIATOR_LOST;
}

static void start(struct job *job)
{
	struct run *run = job->run;
	struct nvme_work *work = run->work;
	bool random = work->mode >= MODE_RANDREAD;

	job->write = work->mode == MODE_WRITE || work->mode == MODE_RANDWRITE ||
		     (work->mode == MODE_RANDRW && (next_random(run) & 1));
	job->offset = (random ? next_random(run) : run->started) % run->slots * work->io_bytes;
	if (job->write && work->pattern)
		pattern_fill(job->data, job->offset, work->io_bytes);
	run->started++;
	run->in_flight++;
	submit(job);
}

static void submit_deferred(struct run *run)
{
	struct job *job = run->deferred, *next;

	run->deferred = NULL;
	for (; job; job = next) {
		next = job->next_deferred;
		submit(job);
	}
}

bool nvme_work_run(struct nvme_work *work)
{
	unsigned int jobs = work->depth * work->queues;
	struct run run = { .work = work, .random = clock_ns() };
	uint64_t start_ns;
	uint8_t *memory;
	bool good = false;

	run.slots = work->range_bytes / work->io_bytes;
	if (!run.slots) {
		errno = EINVAL;
		return false;
	}
	memory = aligned_alloc(4096, div_round_up((uint64_t)jobs * work->io_bytes, 4096) * 4096);
	run.jobs = calloc(jobs, sizeof(*run.jobs));
	if (!memory || !run.jobs)
		goto out;
	memset(memory, 0, (size_t)jobs * work->io_bytes);
	run.buffer = initiator_register(work->host, memory, (size_t)jobs * work->io_bytes);
	if (!run.buffer)
		goto out;
	start_ns = clock_ns();
	run.deadline_ns = start_ns + work->seconds * NSEC_PER_SEC;
	for (unsigned int i = 0; i < jobs && more_to_do(&run); i++) {
		run.jobs[i] = (struct job){
			.run = &run,
			.data = memory + (size_t)i * work->io_bytes,
			.buffer_offset = (size_t)i * work->io_bytes,
			.queue = 1 + i % work->queues,
		};
		start(&run.jobs[i]);
	}
	while (run.in_flight) {
		initiator_poll(work->host, run.deferred ? 0 : 100);
		submit_deferred(&run);
	}
	work->elapsed_ns = clock_ns() - start_ns;
	good = !work->status;
out:
	initiator_deregister(run.buffer);
	free(run.jobs);
	free(memory);
	return good;
}
