/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * nvme.h: what the subcommands of `softhca nvme` share: their options, a workload with its
 * latencies, the data pattern, the target's counters.
 */
#ifndef SOFTHCA_CLI_NVME_H
#define SOFTHCA_CLI_NVME_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/cli.h"
#include "initiator/initiator.h"

enum nvme_mode { MODE_READ, MODE_WRITE, MODE_RANDREAD, MODE_RANDWRITE, MODE_RANDRW };

struct nvme_arguments {
	const char *command; /* "softhca nvme test" */
	char address[64];
	uint16_t port;
	const char *subsystem, *hostnqn;
	unsigned int queues, depth;
	uint32_t nsid; /* 0 = the first */
	uint64_t io_bytes, limit_bytes;
	uint64_t seconds;
	enum nvme_mode mode;
	bool verify, progress, no_in_capsule, json, help;
};

/* false after a message; @defaults are in @args */
bool nvme_parse(int argc, char **argv, struct nvme_arguments *args);

int nvme_discover(struct nvme_arguments *args);
int nvme_identify(struct nvme_arguments *args);
int nvme_test(struct nvme_arguments *args);
int nvme_run(struct nvme_arguments *args);

/* connects to the subsystem, or to discovery when @nqn says so; NULL after a message */
struct initiator *nvme_connect(const struct nvme_arguments *args, const char *nqn,
			       unsigned int queues);
/* the namespace that was asked for; false after a message */
bool nvme_find_namespace(const struct nvme_arguments *args, struct initiator *host,
			 struct initiator_namespace *ns);
/* connects to discovery; the records or NULL after a message */
struct nvmf_discovery_record *nvme_discover_records(const struct nvme_arguments *args,
						    size_t *count);
/* "softhca nvme test: message"; returns 1 */
int nvme_fail(const struct nvme_arguments *args, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* ---- workload ---- */

#define HISTOGRAM_BUCKETS (40 * 32)

struct nvme_latency {
	uint64_t bucket[HISTOGRAM_BUCKETS];
	uint64_t count;
};
void latency_add(struct nvme_latency *latency, uint64_t ns);
/* @permille: 500 = median; microseconds */
double latency_us(const struct nvme_latency *latency, unsigned int permille);

struct nvme_work {
	/* in */
	struct initiator *host;
	struct initiator_namespace ns;
	enum nvme_mode mode;
	uint32_t io_bytes;
	unsigned int depth, queues;
	uint64_t range_bytes; /* of the namespace, from its start */
	uint64_t commands;    /* how many; 0 = until @seconds are over */
	uint64_t seconds;
	bool pattern; /* writes write it, reads compare with it */
	struct cli_progress *progress;
	/* out */
	uint64_t done, bytes, elapsed_ns;
	uint64_t reads, writes;
	uint64_t mismatches, first_mismatch; /* byte offset */
	uint16_t status;		     /* of the first command that failed, 0 = none */
	struct nvme_latency latency;
};

/* false: the host was lost, a command failed or there is no memory (errno); see @status */
bool nvme_work_run(struct nvme_work *work);

/* ---- the target's counters (log page 0xc0) ---- */

struct nvme_counters {
	bool known; /* false: not a SoftHCA target */
	uint64_t offloaded_read, offloaded_write, offloaded_flush;
	uint64_t software_read, software_write, software_flush, software_total;
	uint64_t capsules, pieces, buffers;
};

void nvme_counters_read(struct initiator *host, struct nvme_counters *counters);
void nvme_counters_subtract(struct nvme_counters *after, const struct nvme_counters *before);
void nvme_counters_print(const struct nvme_counters *counters);

#endif
