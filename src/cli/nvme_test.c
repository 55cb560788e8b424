// SPDX-License-Identifier: BSD-2-Clause
/*
 * nvme_test.c: softhca nvme test and run.
 */
#include "cli/nvme.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/bytes.h"
#include "util/clock.h"

#define TEST_IO_BYTES	     65536
#define RUN_IO_BYTES	     4096
#define RANDOM_READ_COMMANDS 20000

struct phase {
	const char *name;
	struct nvme_work work;
};

static void print_header(void)
{
	printf("\n%-12s %9s %8s %8s %9s %9s %9s\n", "", "commands", "size", "GB/s", "IOPS",
	       "p50 us", "p99 us");
}

static void print_phase(const char *name, const struct nvme_work *work)
{
	double seconds = (double)work->elapsed_ns / 1e9;

	printf("%-12s %9" PRIu64 " %7uK %8.3f %9.0f %9.1f %9.1f\n", name, work->done,
	       work->io_bytes / 1024, (double)work->bytes / 1e9 / seconds,
	       (double)work->done / seconds, latency_us(&work->latency, 500),
	       latency_us(&work->latency, 990));
}

/* 0, or 1 after a message */
static int work_result(const struct nvme_arguments *args, const char *name,
		       const struct nvme_work *work, bool good)
{
	char text[96];

	if (work->mismatches)
		return nvme_fail(args, "%s: the data at byte %" PRIu64 " are not what was written",
				 name, work->first_mismatch);
	if (good)
		return 0;
	if (!work->status)
		return nvme_fail(args, "%s: %s", name, strerror(errno));
	return nvme_fail(args, "%s: %s%s%s", name,
			 initiator_status_text(work->status, text, sizeof(text)),
			 work->status == INITIATOR_LOST ? ": " : "",
			 work->status == INITIATOR_LOST ? initiator_error(work->host) : "");
}

static int run_phase(const struct nvme_arguments *args, struct phase *phase)
{
	struct cli_progress progress;
	bool good;

	cli_progress_start(&progress, phase->name, phase->work.commands * phase->work.io_bytes,
			   args->progress);
	phase->work.progress = &progress;
	good = nvme_work_run(&phase->work);
	cli_progress_end(&progress);
	return work_result(args, phase->name, &phase->work, good);
}

/* what a SoftHCA target must have offloaded: all of it */
static int check_offloaded(const struct nvme_arguments *args, const struct nvme_counters *c,
			   uint64_t reads, uint64_t writes)
{
	if (!c->known)
		return 0;
	if (c->software_read || c->software_write || c->software_flush)
		return nvme_fail(args,
				 "%" PRIu64 " reads, %" PRIu64 " writes, %" PRIu64
				 " flushes were handled by software, not by the offload",
				 c->software_read, c->software_write, c->software_flush);
	if (c->offloaded_read < reads || c->offloaded_write < writes || !c->offloaded_flush)
		return nvme_fail(args, "the target does not count all commands as offloaded");
	return 0;
}

static bool choose_subsystem(struct nvme_arguments *args, char nqn[NVMF_NQN_SIZE])
{
	struct nvmf_discovery_record *records;
	size_t count, i = 0;

	records = nvme_discover_records(args, &count);
	if (!records)
		return false;
	while (i < count && args->subsystem &&
	       strncmp(records[i].subnqn, args->subsystem, NVMF_NQN_SIZE))
		i++;
	if (i == count) {
		nvme_fail(args, "discovery does not show %s",
			  args->subsystem ? args->subsystem : "any subsystem");
		free(records);
		return false;
	}
	memcpy(nqn, records[i].subnqn, NVMF_NQN_SIZE);
	nqn[NVMF_NQN_SIZE - 1] = 0;
	printf("discovered   %zu subsystem%s\n", count, count == 1 ? "" : "s");
	args->subsystem = nqn;
	free(records);
	return true;
}

static bool fits(const struct nvme_arguments *args, const struct initiator_namespace *ns,
		 const struct initiator_info *info, uint64_t range)
{
	if (args->io_bytes % ns->lba_size)
		nvme_fail(args, "--size must be a multiple of the block size, %u", ns->lba_size);
	else if (args->io_bytes > info->max_transfer)
		nvme_fail(args, "--size: the target takes at most %u bytes", info->max_transfer);
	else if (range < args->io_bytes)
		nvme_fail(args, "the namespace is smaller than one command");
	else
		return true;
	return false;
}

static int test_namespace(const struct nvme_arguments *args, struct initiator *host,
			  const struct initiator_namespace *ns, const struct initiator_info *info,
			  uint64_t range)
{
	struct nvme_work common = {
		.host = host,
		.ns = *ns,
		.io_bytes = (uint32_t)args->io_bytes,
		.depth = info->depth,
		.queues = info->io_queues,
		.range_bytes = range,
		.commands = range / args->io_bytes,
		.pattern = true,
	};
	static struct phase write, read, random;
	struct nvme_counters before, after;
	uint64_t flush_ns;
	uint16_t status;
	char text[96];

	nvme_counters_read(host, &before);
	write = (struct phase){ .name = "write", .work = common };
	write.work.mode = MODE_WRITE;
	if (run_phase(args, &write))
		return 1;
	flush_ns = clock_ns();
	status = initiator_flush(host, ns->nsid);
	flush_ns = clock_ns() - flush_ns;
	if (status)
		return nvme_fail(args, "flush: %s",
				 initiator_status_text(status, text, sizeof(text)));
	read = (struct phase){ .name = "read", .work = common };
	read.work.mode = MODE_READ;
	if (run_phase(args, &read))
		return 1;
	random = (struct phase){ .name = "random read", .work = common };
	random.work.mode = MODE_RANDREAD;
	random.work.io_bytes = MAX(4096U, ns->lba_size);
	random.work.commands = RANDOM_READ_COMMANDS;
	/* only what was written */
	random.work.range_bytes = common.commands * args->io_bytes;
	if (run_phase(args, &random))
		return 1;
	nvme_counters_read(host, &after);
	nvme_counters_subtract(&after, &before);
	printf("compared     %.1f MiB: equal\n",
	       (double)(common.commands * args->io_bytes) / (1 << 20));
	print_header();
	print_phase("write", &write.work);
	printf("%-12s %9u %8s %8s %9s %9.1f %9.1f\n", "flush", 1, "-", "-", "-",
	       (double)flush_ns / 1000, (double)flush_ns / 1000);
	print_phase("read", &read.work);
	print_phase("random read", &random.work);
	nvme_counters_print(&after);
	return check_offloaded(args, &after, read.work.done + random.work.done, write.work.done);
}

static uint64_t usable_range(const struct nvme_arguments *args,
			     const struct initiator_namespace *ns)
{
	uint64_t bytes = ns->blocks * ns->lba_size;

	return args->limit_bytes ? MIN(bytes, args->limit_bytes) : bytes;
}

int nvme_test(struct nvme_arguments *args)
{
	struct initiator_namespace ns;
	struct initiator_info info;
	struct initiator *host;
	char nqn[NVMF_NQN_SIZE];
	int status = 1;

	if (!args->io_bytes)
		args->io_bytes = TEST_IO_BYTES;
	if (!choose_subsystem(args, nqn))
		return 1;
	host = nvme_connect(args, args->subsystem, args->queues);
	if (!host)
		return 1;
	initiator_get_info(host, &info);
	printf("connected    %s: controller %u, %u I/O queue%s of depth %u\n", args->subsystem,
	       info.cntlid, info.io_queues, info.io_queues == 1 ? "" : "s", info.depth);
	if (nvme_find_namespace(args, host, &ns)) {
		printf("identified   %s, serial %s: namespace %u, %.1f MiB, blocks of %u\n",
		       info.model, info.serial, ns.nsid,
		       (double)ns.blocks * ns.lba_size / (1 << 20), ns.lba_size);
		if (fits(args, &ns, &info, usable_range(args, &ns)))
			status = test_namespace(args, host, &ns, &info, usable_range(args, &ns));
	}
	initiator_disconnect(host);
	return status;
}

static void print_json(const struct nvme_work *work)
{
	double seconds = (double)work->elapsed_ns / 1e9;

	printf("{\"commands\": %" PRIu64 ", \"reads\": %" PRIu64 ", \"writes\": %" PRIu64
	       ", \"bytes\": %" PRIu64 ", \"seconds\": %.6f, \"gb_per_s\": %.6f, \"iops\": %.1f,"
	       " \"p50_us\": %.2f, \"p99_us\": %.2f}\n",
	       work->done, work->reads, work->writes, work->bytes, seconds,
	       (double)work->bytes / 1e9 / seconds, (double)work->done / seconds,
	       latency_us(&work->latency, 500), latency_us(&work->latency, 990));
}

int nvme_run(struct nvme_arguments *args)
{
	static struct nvme_work work;
	struct nvme_counters before, after;
	struct initiator_info info;
	struct initiator *host;
	char nqn[NVMF_NQN_SIZE];
	int status = 1;

	if (!args->io_bytes)
		args->io_bytes = RUN_IO_BYTES;
	if (!args->subsystem && !choose_subsystem(args, nqn))
		return 1;
	host = nvme_connect(args, args->subsystem, args->queues);
	if (!host)
		return 1;
	initiator_get_info(host, &info);
	if (!nvme_find_namespace(args, host, &work.ns) ||
	    !fits(args, &work.ns, &info, usable_range(args, &work.ns)))
		goto out;
	work.host = host;
	work.mode = args->mode;
	work.io_bytes = (uint32_t)args->io_bytes;
	work.depth = info.depth;
	work.queues = info.io_queues;
	work.range_bytes = usable_range(args, &work.ns);
	work.seconds = args->seconds;
	work.pattern = args->verify;
	nvme_counters_read(host, &before);
	status = work_result(args, "run", &work, nvme_work_run(&work));
	if (status)
		goto out;
	nvme_counters_read(host, &after);
	nvme_counters_subtract(&after, &before);
	if (args->json) {
		print_json(&work);
	} else {
		print_header();
		print_phase("run", &work);
		nvme_counters_print(&after);
	}
out:
	initiator_disconnect(host);
	return status;
}
