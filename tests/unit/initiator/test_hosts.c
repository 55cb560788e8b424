// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_hosts.c: what hosts did that broke other targets (situations N...), against live targets:
 * resets under load, many namespaces, in-capsule sizes, deep queues of the largest transfers,
 * discovery controllers that stay, host names that do not fit together.
 * argv[1]: the softhca command.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <netinet/in.h>
#include <cmocka.h>

#include "../portd/namespace.h"
#include "initiator/initiator.h"
#include "initiator/internal.h"
#include "target_process.h"
#include "util/bytes.h"
#include "util/clock.h"

#define NQN	     "nqn.2026-01.test:hosts"
#define DNR	     NVME_STATUS_DNR
#define SPACE_BYTES  (8U << 20) /* of a namespace */
#define BLOCK	     512U
#define OPTIONS_MAX  40
#define MAX_TRANSFER 131072U

static const char *softhca;

/* a target with @namespaces of memory and further options, up to a NULL */
static void start_target(struct target_process *t, unsigned int namespaces, ...)
{
	char listen_text[32];
	const char *argv[OPTIONS_MAX] = { softhca,     "target",      "--listen",
					  listen_text, "--subsystem", NQN };
	unsigned int argc = 6;
	va_list ap;

	t->port = free_port();
	snprintf(listen_text, sizeof(listen_text), "127.0.0.1:%u", t->port);
	for (unsigned int i = 0; i < namespaces; i++) {
		argv[argc++] = "--namespace";
		argv[argc++] = "memory:8M";
	}
	va_start(ap, namespaces);
	while (argc < OPTIONS_MAX - 1 && (argv[argc] = va_arg(ap, const char *)))
		argc++;
	va_end(ap);
	target_spawn(t, argv);
}

static struct initiator_options options_for(const struct target_process *t)
{
	return (struct initiator_options){
		.address = "127.0.0.1",
		.port = t->port,
		.subnqn = NQN,
		.io_queues = 1,
		.depth = 32,
		.timeout_ms = 20000,
	};
}

static struct initiator *connect_with(const struct initiator_options *o)
{
	char error[512] = "";
	struct initiator *host = initiator_connect(o, error, sizeof(error));

	if (!host)
		print_error("%s\n", error);
	assert_non_null(host);
	return host;
}

/* ---- a workload that knows what it has written ---- */

struct io {
	struct workload *work;
	unsigned int slot;
	bool busy, write;
	uint32_t nsid;
	uint32_t at; /* in units of the transfer */
};

struct workload {
	struct initiator *host;
	struct initiator_buffer *buffer;
	uint8_t *memory;
	uint32_t bytes, units; /* of a transfer; transfers in a namespace */
	unsigned int namespaces, depth;
	uint16_t *version; /* of each namespace's units: what is there, 0 = never written */
	bool *touched;	   /* a command on it is under way */
	struct io io[128];
	unsigned int in_flight, done, lost;
	uint64_t random;
};

static uint32_t next_random(struct workload *w)
{
	w->random = w->random * 6364136223846793005ULL + 1442695040888963407ULL;
	return (uint32_t)(w->random >> 33);
}

static size_t unit_index(const struct workload *w, uint32_t nsid, uint32_t at)
{
	return (size_t)(nsid - 1) * w->units + at;
}

/* every eight bytes say where they belong and how new they are */
static uint64_t word(uint32_t nsid, uint32_t at, uint16_t version, uint32_t i)
{
	return version ? (uint64_t)nsid << 56 | (uint64_t)at << 40 | (uint64_t)version << 24 | i
		       : 0;
}

static uint8_t *place(const struct workload *w, unsigned int slot)
{
	return w->memory + (size_t)slot * w->bytes;
}

static void check_data(const struct workload *w, const struct io *io)
{
	uint16_t version = w->version[unit_index(w, io->nsid, io->at)];

	for (uint32_t i = 0; i < w->bytes / 8; i++)
		if (get_le64(place(w, io->slot) + 8 * i) != word(io->nsid, io->at, version, i))
			fail_msg("namespace %u, unit %u, word %u: 0x%llx, version %u", io->nsid,
				 io->at, i,
				 (unsigned long long)get_le64(place(w, io->slot) + 8 * i), version);
}

static void io_done(void *arg, uint16_t status, const struct nvme_cqe *cqe)
{
	struct io *io = arg;
	struct workload *w = io->work;
	size_t unit = unit_index(w, io->nsid, io->at);

	io->busy = false;
	w->in_flight--;
	w->touched[unit] = false;
	if (status == INITIATOR_LOST) {
		w->lost++;
		return; /* a write that was not answered is written again after the reset */
	}
	assert_int_equal(status, 0);
	w->done++;
	if (!io->write)
		check_data(w, io);
}

static void start_io(struct workload *w, struct io *io, bool write, uint32_t nsid, uint32_t at)
{
	struct nvme_sqe sqe;
	size_t unit = unit_index(w, nsid, at);
	unsigned int queue = 1 + io->slot % w->host->info.io_queues;

	*io = (struct io){
		.work = w, .slot = io->slot, .busy = true, .write = write, .nsid = nsid, .at = at
	};
	if (write) {
		w->version[unit]++;
		for (uint32_t i = 0; i < w->bytes / 8; i++)
			put_le64(place(w, io->slot) + 8 * i, word(nsid, at, w->version[unit], i));
	} else {
		memset(place(w, io->slot), 0xee, w->bytes);
	}
	initiator_fill_rw(&sqe, write ? NVME_CMD_WRITE : NVME_CMD_READ, nsid,
			  (uint64_t)at * w->bytes / BLOCK, w->bytes / BLOCK);
	w->touched[unit] = true;
	w->in_flight++;
	assert_int_equal(initiator_submit(w->host, queue, &sqe, w->buffer,
					  (size_t)io->slot * w->bytes, w->bytes, write, io_done,
					  io),
			 0);
}

/* as many new commands as have room, on units that no other command touches */
static void submit_some(struct workload *w)
{
	for (unsigned int i = 0; i < w->depth; i++) {
		uint32_t nsid = 1 + next_random(w) % w->namespaces, at = next_random(w) % w->units;

		if (!w->io[i].busy && !w->touched[unit_index(w, nsid, at)])
			start_io(w, &w->io[i], next_random(w) % 2, nsid, at);
	}
}

static void drain(struct workload *w)
{
	while (w->in_flight)
		initiator_poll(w->host, 100);
}

static void work_on(struct workload *w, struct initiator *host)
{
	w->host = host;
	w->buffer = initiator_register(host, w->memory, (size_t)w->depth * w->bytes);
	assert_non_null(w->buffer);
}

static void work_off(struct workload *w)
{
	initiator_deregister(w->buffer);
	initiator_disconnect(w->host);
}

static void work_open(struct workload *w, unsigned int namespaces, unsigned int depth,
		      uint32_t bytes)
{
	*w = (struct workload){ .bytes = bytes,
				.units = SPACE_BYTES / bytes,
				.namespaces = namespaces,
				.depth = depth,
				.random = bytes };
	w->memory = malloc((size_t)depth * bytes);
	w->version = calloc((size_t)namespaces * w->units, sizeof(*w->version));
	w->touched = calloc((size_t)namespaces * w->units, sizeof(*w->touched));
	for (unsigned int i = 0; i < depth; i++)
		w->io[i] = (struct io){ .slot = i };
}

static void work_free(struct workload *w)
{
	free(w->memory);
	free(w->version);
	free(w->touched);
}

static void run_commands(struct workload *w, unsigned int count)
{
	unsigned int until = w->done + count;

	while (w->done < until) {
		submit_some(w);
		assert_true(initiator_poll(w->host, 1000));
	}
	drain(w);
	assert_int_equal(w->lost, 0);
}

/* ---- N25, N37, N33, N11 ---- */

/*
 * Resets in the midst of I/O: by the controller's disappearance (the admin queue ends first), by
 * CC.EN = 0. What was acknowledged is there, what was not is the old or the new, whole blocks.
 */
static void test_resets_under_load(void **state)
{
	struct target_process t;
	struct initiator_options o;
	struct workload w;
	const char *env = getenv("SOFTHCA_TEST_RESETS");
	int resets = env ? atoi(env) : 100;

	start_target(&t, 1, NULL);
	o = options_for(&t);
	o.io_queues = 2;
	work_open(&w, 1, 24, 8192);
	for (int i = 0; i < resets; i++) {
		work_on(&w, connect_with(&o));
		for (int k = 0; k < 6; k++) {
			submit_some(&w);
			initiator_poll(w.host, 0);
		}
		switch (i % 4) {
		case 0:
			drain(&w);
			break;
		case 1: /* disabled with commands in flight: its I/O queues go */
			/* our host may see its queues go before the answer comes */
			command_property_set(w.host, NVME_REG_CC, 0x00460000);
			break;
		case 2: /* the connection of the admin queue ends */
			rdma_disconnect(w.host->queues[0]->id);
			break;
		case 3: /* one of the I/O queues fails at the host's end */
			rdma_disconnect(w.host->queues[1]->id);
			break;
		}
		while (w.in_flight)
			initiator_poll(w.host, 100);
		work_off(&w);
		if (!w.lost)
			continue;
		/* what was under way may be old or new: write it anew */
		work_on(&w, connect_with(&o));
		w.lost = 0;
		for (uint32_t at = 0; at < w.units; at++) {
			struct io *io = &w.io[at % w.depth];

			while (io->busy)
				initiator_poll(w.host, 100);
			if (w.version[at])
				start_io(&w, io, true, 1, at);
		}
		drain(&w);
		assert_int_equal(w.lost, 0);
		work_off(&w);
	}
	o.io_queues = 1;
	work_on(&w, connect_with(&o));
	run_commands(&w, 2000);
	work_off(&w);
	work_free(&w);
	stop_target(&t);
}

static void check_namespaces(const char *option)
{
	struct target_process t;
	struct initiator_options o;
	struct initiator_namespace list[16];
	struct workload w;
	uint16_t status;

	start_target(&t, 12, option, NULL);
	o = options_for(&t);
	o.io_queues = 2;
	o.depth = 32;
	work_open(&w, 12, 48, 4096);
	work_on(&w, connect_with(&o));
	assert_int_equal(initiator_namespaces(w.host, list, 16, &status), 12);
	for (unsigned int i = 0; i < 12; i++) {
		assert_int_equal(list[i].nsid, i + 1);
		assert_int_equal(list[i].blocks, SPACE_BYTES / BLOCK);
	}
	run_commands(&w, 6000);
	work_off(&w);
	work_free(&w);
	stop_target(&t);
}

static void test_twelve_namespaces(void **state) /* N37 */
{
	check_namespaces(NULL);
	check_namespaces("--no-offload");
}

/* N33: a host cuts its megabyte into transfers of MDTS: 32 x 8 of them at once on four queues */
static void test_largest_transfers_on_deep_queues(void **state)
{
	static const char *const options[] = { NULL, "--no-offload" };

	for (size_t i = 0; i < ARRAY_SIZE(options); i++) {
		struct target_process t;
		struct initiator_options o;
		struct workload w;

		start_target(&t, 4, options[i], NULL);
		o = options_for(&t);
		o.io_queues = 4;
		o.depth = 64;
		work_open(&w, 4, 128, MAX_TRANSFER);
		work_on(&w, connect_with(&o));
		run_commands(&w, 1500);
		work_off(&w);
		work_free(&w);
		stop_target(&t);
	}
}

/* N11: every size of in-capsule data, and transfers around it */
static void test_in_capsule_sizes(void **state)
{
	static const char *const sizes[] = { "0", "16", "4096", "8192", "16384" };
	static const char *const options[] = { NULL, "--no-offload" };

	for (size_t i = 0; i < ARRAY_SIZE(sizes) * ARRAY_SIZE(options); i++) {
		uint32_t in_capsule = (uint32_t)atoi(sizes[i / 2]);
		struct target_process t;
		struct initiator_options o;

		start_target(&t, 1, "--in-capsule", sizes[i / 2], options[i % 2], NULL);
		o = options_for(&t);
		for (uint32_t bytes = 512; bytes <= 32768; bytes *= 2) {
			struct workload w;

			work_open(&w, 1, 16, bytes);
			work_on(&w, connect_with(&o));
			assert_int_equal(w.host->info.in_capsule_bytes, in_capsule);
			/* each its own part of the versions: the memory is from the one before */
			for (uint32_t at = 0; at < 64; at++) {
				while (w.io[at % 16].busy)
					initiator_poll(w.host, 100);
				start_io(&w, &w.io[at % 16], true, 1, at);
			}
			drain(&w);
			w.units = 64;
			run_commands(&w, 200);
			work_off(&w);
			work_free(&w);
		}
		stop_target(&t);
	}
}

/* ---- N1, N3, N5, N7, N9, N13, N19, N21 ---- */

static uint16_t keep_alive(struct initiator *host)
{
	static const struct nvme_sqe sqe = { .opcode = NVME_ADMIN_KEEP_ALIVE };

	return initiator_command(host, 0, &sqe, NULL, 0, false, NULL);
}

static void test_discovery_that_stays(void **state) /* N7 */
{
	static const uint32_t katos[] = { 0, 1000, 15000, 30000 };
	struct target_process t;
	size_t count;
	uint16_t status;

	start_target(&t, 1, NULL);
	for (size_t i = 0; i < ARRAY_SIZE(katos); i++) {
		struct initiator_options o = options_for(&t);
		struct nvmf_discovery_record *records;
		struct initiator *host;

		o.subnqn = NVMF_DISCOVERY_NQN;
		o.io_queues = 0;
		o.kato_ms = katos[i];
		host = connect_with(&o);
		records = initiator_discovery_log(host, &count, &status);
		assert_non_null(records);
		assert_int_equal(count, 1);
		assert_string_equal(records[0].subnqn, NQN);
		free(records);
		assert_int_equal(keep_alive(host), 0);
		if (katos[i] == 0)
			sleep(3);
		if (katos[i] == 1000)
			for (uint64_t end = clock_ns() + 4 * NSEC_PER_SEC; clock_ns() < end;)
				assert_true(initiator_poll(host, 100)); /* it keeps alive */
		records = initiator_discovery_log(host, &count, &status);
		assert_non_null(records);
		free(records);
		initiator_disconnect(host);
	}
	stop_target(&t);
}

/* N9: the I/O queues never come: the controller goes at KATO, the host may come again */
static void test_io_queues_never_come(void **state)
{
	struct target_process t;
	struct initiator_options o;
	struct initiator *host;
	uint16_t cntlid;

	start_target(&t, 1, NULL);
	o = options_for(&t);
	o.io_queues = 0;
	o.kato_ms = 1000;
	host = connect_with(&o);
	cntlid = host->info.cntlid;
	sleep(3);
	assert_int_equal(keep_alive(host), INITIATOR_LOST);
	initiator_disconnect(host);
	o.io_queues = 1;
	host = connect_with(&o);
	assert_int_not_equal(host->info.cntlid, cntlid);
	assert_int_equal(keep_alive(host), 0);
	initiator_disconnect(host);
	stop_target(&t);
}

/* N5, over the wire: an I/O queue that names another host, or another controller */
static void test_io_queue_of_another_host(void **state)
{
	static const struct nvme_sqe grant = { .opcode = NVME_ADMIN_SET_FEATURES,
					       .cdw10 = NVME_FEAT_QUEUES };
	struct target_process t;
	struct initiator_options o;
	struct initiator *host;

	start_target(&t, 1, NULL);
	o = options_for(&t);
	o.io_queues = 0;
	host = connect_with(&o);
	assert_int_equal(initiator_command(host, 0, &grant, NULL, 0, false, NULL), 0);
	host->queues[1] = queue_open(host, 1, 16);
	assert_non_null(host->queues[1]);
	host->queue_count = 2;
	for (int wrong = 1; wrong <= 4; wrong++) {
		char hostnqn[NVMF_NQN_SIZE];
		struct nvme_cqe cqe = { 0 };
		uint32_t ipo[] = { 0, 512 | NVMF_CONNECT_IPO_IN_DATA, 0 | NVMF_CONNECT_IPO_IN_DATA,
				   16 | NVMF_CONNECT_IPO_IN_DATA, 0 };
		uint16_t status;

		strcpy(hostnqn, host->hostnqn);
		if (wrong == 1)
			strcpy(host->hostnqn, "nqn.2026-01.test:another");
		if (wrong == 2)
			host->hostid[3] ^= 1;
		if (wrong == 3)
			host->info.cntlid++;
		status = command_connect(host, host->queues[1], &cqe);
		if (wrong < 4) {
			assert_int_equal(status, NVME_SC_CONNECT_INVALID | DNR);
			assert_int_equal(le32toh(cqe.dw0), ipo[wrong]);
		} else {
			assert_int_equal(status, 0);
		}
		strcpy(host->hostnqn, hostnqn);
		if (wrong == 2)
			host->hostid[3] ^= 1;
		if (wrong == 3)
			host->info.cntlid--;
	}
	initiator_disconnect(host);
	stop_target(&t);
}

/* N13: more SGL than the ranges need */
static void test_dsm_with_a_long_sgl(void **state)
{
	static const char *const options[] = { NULL, "--no-offload" };

	for (size_t i = 0; i < ARRAY_SIZE(options); i++) {
		struct nvme_sqe sqe = { .opcode = NVME_CMD_DSM,
					.nsid = htole32(1),
					.cdw11 = htole32(4) };
		struct target_process t;
		struct initiator_options o;
		struct initiator *host;
		uint8_t data[4096] = { 0 };

		start_target(&t, 1, options[i], NULL);
		o = options_for(&t);
		put_le32(data + 4, 8);
		for (int in_capsule = 0; in_capsule < 2; in_capsule++) {
			o.no_in_capsule = !in_capsule;
			host = connect_with(&o);
			assert_int_equal(initiator_command(host, 1, &sqe, data, 4096, true, NULL),
					 0);
			assert_int_equal(initiator_command(host, 1, &sqe, data, 16, true, NULL), 0);
			assert_int_equal(initiator_command(host, 1, &sqe, data, 15, true, NULL),
					 NVME_SC_SGL_DATA_LENGTH | DNR);
			initiator_disconnect(host);
		}
		stop_target(&t);
	}
}

struct answer {
	bool done;
	uint16_t status;
};

static void answered(void *arg, uint16_t status, const struct nvme_cqe *cqe)
{
	struct answer *answer = arg;

	answer->done = true;
	answer->status = status;
}

/* N19, N21: as many AERs as there may be, one too many, and a disconnect with all of them held */
static void test_aers_at_the_limit(void **state)
{
	static const struct nvme_sqe aer = { .opcode = NVME_ADMIN_AER };
	struct target_process t;
	struct initiator_options o;

	start_target(&t, 1, NULL);
	o = options_for(&t);
	for (int round = 0; round < 10; round++) {
		struct initiator *host = connect_with(&o);
		struct answer held[4] = { 0 }, over = { 0 };

		for (int i = 0; i < 4; i++)
			assert_int_equal(initiator_submit(host, 0, &aer, NULL, 0, 0, false,
							  answered, &held[i]),
					 0);
		assert_int_equal(
			initiator_submit(host, 0, &aer, NULL, 0, 0, false, answered, &over), 0);
		for (int i = 0; i < 50 && !over.done; i++)
			assert_true(initiator_poll(host, 100));
		assert_true(over.done);
		assert_int_equal(over.status, NVME_SC_AER_LIMIT | DNR);
		for (int i = 0; i < 4; i++)
			assert_false(held[i].done);
		if (round % 2)
			rdma_disconnect(host->queues[0]->id);
		initiator_disconnect(host);
	}
	stop_target(&t);
}

/* N3: a queue deeper than the target's is refused with the field's name, not by a timeout */
static void test_queue_too_deep(void **state)
{
	struct target_process t;
	struct initiator_options o;
	struct initiator *host;

	start_target(&t, 1, NULL);
	o = options_for(&t);
	o.io_queues = 0;
	host = connect_with(&o);
	assert_null(queue_open(host, 1, 200));
	assert_non_null(strstr(initiator_error(host), "status 4 (the target's queues are smaller"));
	initiator_disconnect(host);
	stop_target(&t);
}

/* where there may be namespaces: another user's port daemon would not be trusted */
static void own_namespace(void)
{
	char map[64];

	snprintf(map, sizeof(map), "0 %u 1\n", getuid());
	if (unshare(CLONE_NEWUSER | CLONE_NEWNET))
		return;
	write_text("/proc/self/uid_map", map);
	loopback_up();
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_resets_under_load),
		cmocka_unit_test(test_twelve_namespaces),
		cmocka_unit_test(test_largest_transfers_on_deep_queues),
		cmocka_unit_test(test_in_capsule_sizes),
		cmocka_unit_test(test_discovery_that_stays),
		cmocka_unit_test(test_io_queues_never_come),
		cmocka_unit_test(test_io_queue_of_another_host),
		cmocka_unit_test(test_dsm_with_a_long_sgl),
		cmocka_unit_test(test_aers_at_the_limit),
		cmocka_unit_test(test_queue_too_deep),
	};

	if (argc < 2)
		return 1;
	softhca = argv[1];
	own_namespace();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
