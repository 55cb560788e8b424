// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_session.c: the host in user space against `softhca target` in another process, over
 * loopback. The offload and the software path get the same command streams and must answer alike.
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

#define NQN	   "nqn.2026-01.test:session"
#define DNR	   NVME_STATUS_DNR
#define NSID	   1
#define NSID_4K	   2
#define BLOCKS	   32768 /* of namespace 1: 16 MiB */
#define DATA_BYTES 131072

static const char *softhca;

static struct target_process offloaded, software;

/* @a, @b: further arguments, or NULL */
static void start_process(struct target_process *t, const char *a, const char *b)
{
	const char *plain[] = {
		softhca, "target",	"--listen",   NULL,	     "--subsystem",
		NQN,	 "--namespace", "memory:16M", "--namespace", "memory:16M,lba=4096",
		a,	 NULL
	};
	const char *config[] = { softhca, "target", a, b, NULL };
	char listen_text[32];

	snprintf(listen_text, sizeof(listen_text), "127.0.0.1:%u", t->port);
	plain[3] = listen_text;
	target_spawn(t, a && !strcmp(a, "--config") ? config : plain);
}

static void start_target(struct target_process *t, const char *option)
{
	t->port = free_port();
	start_process(t, option, NULL);
}

static struct initiator *connect_to(const struct target_process *t, unsigned int queues,
				    uint32_t kato_ms)
{
	struct initiator_options o = {
		.address = "127.0.0.1",
		.port = t->port,
		.subnqn = NQN,
		.io_queues = queues,
		.depth = 16,
		.kato_ms = kato_ms,
		.timeout_ms = 20000,
	};
	char error[512] = "";
	struct initiator *host = initiator_connect(&o, error, sizeof(error));

	if (!host)
		print_error("%s\n", error);
	assert_non_null(host);
	return host;
}

static struct nvme_sqe io_sqe(uint8_t opcode, uint32_t nsid, uint64_t slba, uint32_t blocks)
{
	struct nvme_sqe sqe;

	initiator_fill_rw(&sqe, opcode, nsid, slba, blocks);
	return sqe;
}

/* one command on both targets: status, result and data must be equal */
static uint16_t both(struct initiator *a, struct initiator *b, const struct nvme_sqe *sqe,
		     uint8_t *data, size_t len, bool to_controller)
{
	static uint8_t copy[2 * DATA_BYTES];
	struct nvme_cqe cqe_a = { 0 }, cqe_b = { 0 };
	uint16_t status_a, status_b;

	memcpy(copy, data, len);
	status_a = initiator_command(a, 1, sqe, data, len, to_controller, &cqe_a);
	status_b = initiator_command(b, 1, sqe, copy, len, to_controller, &cqe_b);
	if (status_a != status_b)
		print_error("opcode 0x%02x nsid %u slba %u,%u cdw12 %x len %zu\n", sqe->opcode,
			    le32toh(sqe->nsid), le32toh(sqe->cdw10), le32toh(sqe->cdw11),
			    le32toh(sqe->cdw12), len);
	assert_int_equal(status_a, status_b);
	assert_int_equal(cqe_a.dw0, cqe_b.dw0);
	if (!status_a && !to_controller)
		assert_memory_equal(data, copy, len);
	return status_a;
}

static void test_errors_are_equal(void **state)
{
	static const struct {
		uint8_t opcode;
		uint32_t nsid;
		uint64_t slba;
		uint32_t blocks;
		size_t len;
		bool to_controller;
		uint16_t status;
	} rows[] = {
		{ NVME_CMD_WRITE, NSID, 0, 8, 4096, true, 0 },
		{ NVME_CMD_READ, NSID, 0, 8, 4096, false, 0 },
		{ NVME_CMD_WRITE, NSID, 0, 256, 131072, true, 0 },
		{ NVME_CMD_READ, NSID, BLOCKS - 256, 256, 131072, false, 0 },
		{ NVME_CMD_READ, NSID_4K, 0, 32, 131072, false, 0 },
		{ NVME_CMD_FLUSH, NSID, 0, 1, 0, false, 0 },
		{ NVME_CMD_READ, 7, 0, 8, 4096, false, NVME_SC_INVALID_NAMESPACE | DNR },
		{ NVME_CMD_READ, 0, 0, 8, 4096, false, NVME_SC_INVALID_NAMESPACE | DNR },
		{ NVME_CMD_WRITE, 7, 0, 8, 4096, true, NVME_SC_INVALID_NAMESPACE | DNR },
		{ NVME_CMD_FLUSH, 7, 0, 1, 0, false, NVME_SC_INVALID_NAMESPACE | DNR },
		{ NVME_CMD_FLUSH, NVME_NSID_ALL, 0, 1, 0, false, 0 },
		{ NVME_CMD_READ, NVME_NSID_ALL, 0, 8, 4096, false,
		  NVME_SC_INVALID_NAMESPACE | DNR },
		{ NVME_CMD_READ, NSID, BLOCKS, 8, 4096, false, NVME_SC_LBA_RANGE | DNR },
		{ NVME_CMD_READ, NSID, BLOCKS - 7, 8, 4096, false, NVME_SC_LBA_RANGE | DNR },
		{ NVME_CMD_WRITE, NSID, BLOCKS - 7, 8, 4096, true, NVME_SC_LBA_RANGE | DNR },
		{ NVME_CMD_READ, NSID, UINT64_MAX - 3, 8, 4096, false, NVME_SC_LBA_RANGE | DNR },
		{ NVME_CMD_WRITE, NSID, UINT64_MAX - 300, 256, 131072, true,
		  NVME_SC_LBA_RANGE | DNR },
		{ NVME_CMD_READ, NSID, 0, 8, 4095, false, NVME_SC_SGL_DATA_LENGTH | DNR },
		{ NVME_CMD_READ, NSID, 0, 8, 0, false, NVME_SC_SGL_DATA_LENGTH | DNR },
		{ NVME_CMD_WRITE, NSID, 0, 8, 2048, true, NVME_SC_SGL_DATA_LENGTH | DNR },
		{ NVME_CMD_WRITE, NSID, 0, 16, 8191, true, NVME_SC_SGL_DATA_LENGTH | DNR },
		{ NVME_CMD_READ, NSID, 0, 257, 131584, false, NVME_SC_INVALID_FIELD | DNR },
		{ NVME_CMD_WRITE, NSID, 0, 65536, 131072, true, NVME_SC_SGL_DATA_LENGTH | DNR },
		{ NVME_CMD_READ, NSID_4K, 0, 33, 135168, false, NVME_SC_INVALID_FIELD | DNR },
		{ NVME_CMD_COMPARE, NSID, 0, 8, 4096, true, 0 },
		{ NVME_CMD_COMPARE, NSID, 300, 8, 4096, true, NVME_SC_COMPARE | DNR },
		{ NVME_CMD_WRITE_ZEROES, NSID, 0, 65536, 0, false, NVME_SC_LBA_RANGE | DNR },
		{ NVME_CMD_WRITE_ZEROES, NSID, 0, 8, 0, false, 0 },
		{ NVME_CMD_VERIFY, NSID, 0, 8, 0, false, 0 },
		{ NVME_CMD_WRITE_UNCORRECTABLE, NSID, 0, 8, 0, false,
		  NVME_SC_INVALID_OPCODE | DNR },
		{ 0x55, NSID, 0, 8, 0, false, NVME_SC_INVALID_OPCODE | DNR },
	};
	struct initiator *a = connect_to(&offloaded, 1, 0), *b = connect_to(&software, 1, 0);
	static uint8_t data[2 * DATA_BYTES];

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct nvme_sqe sqe =
			io_sqe(rows[i].opcode, rows[i].nsid, rows[i].slba, rows[i].blocks);

		memset(data, 0x5a, rows[i].len);
		assert_int_equal(both(a, b, &sqe, data, rows[i].len, rows[i].to_controller),
				 rows[i].status);
	}
	initiator_disconnect(a);
	initiator_disconnect(b);
}

/* random commands, good and bad, from one seed */
static void test_random_stream_is_equal(void **state)
{
	static const uint8_t opcodes[] = { NVME_CMD_READ,  NVME_CMD_READ,   NVME_CMD_WRITE,
					   NVME_CMD_WRITE, NVME_CMD_FLUSH,  NVME_CMD_COMPARE,
					   NVME_CMD_DSM,   NVME_CMD_VERIFY, NVME_CMD_WRITE_ZEROES };
	struct initiator *a = connect_to(&offloaded, 1, 0), *b = connect_to(&software, 1, 0);
	static uint8_t data[DATA_BYTES];
	unsigned int good = 0;

	srandom(20261130);
	for (int i = 0; i < 1500; i++) {
		uint8_t opcode = opcodes[(size_t)random() % sizeof(opcodes)];
		uint32_t nsid = random() % 20 ? 1 + (uint32_t)random() % 2 : (uint32_t)random() % 4;
		uint32_t lba = nsid == NSID_4K ? 4096 : 512;
		uint32_t blocks = 1 + (uint32_t)random() % (DATA_BYTES / lba);
		uint64_t slba = (uint64_t)random() % ((16U << 20) / lba + 4);
		size_t len = (size_t)blocks * lba;
		struct nvme_sqe sqe;
		bool to_controller = opcode & 1;

		if (random() % 3)
			blocks = 1 + blocks % 8, len = (size_t)blocks * lba;
		sqe = io_sqe(opcode, nsid, slba, blocks);
		if (!(opcode & 3))
			len = 0;
		if (random() % 25 == 0)
			len /= 2;
		for (size_t j = 0; j + 4 <= len; j += 4)
			put_le32(data + j, (uint32_t)random());
		if (opcode == NVME_CMD_DSM) {
			len = 16;
			put_le32(data + 4, blocks);
			put_le64(data + 8, slba);
			sqe.cdw10 = 0;
			sqe.cdw11 = htole32(4);
			sqe.cdw12 = 0;
		}
		if (opcode == NVME_CMD_WRITE && random() % 8 == 0)
			sqe.cdw12 |= htole32(NVME_RW_FUA);
		good += !both(a, b, &sqe, data, len, to_controller);
	}
	assert_true(good > 1000);
	/* the whole of both namespaces in the end */
	for (uint64_t at = 0; at < 16 << 20; at += DATA_BYTES) {
		struct nvme_sqe sqe = io_sqe(NVME_CMD_READ, NSID, at / 512, DATA_BYTES / 512);

		assert_int_equal(both(a, b, &sqe, data, DATA_BYTES, false), 0);
		sqe = io_sqe(NVME_CMD_READ, NSID_4K, at / 4096, DATA_BYTES / 4096);
		assert_int_equal(both(a, b, &sqe, data, DATA_BYTES, false), 0);
	}
	initiator_disconnect(a);
	initiator_disconnect(b);
}

/* @bytes as they are on queue @index: what no good host sends. The answer, or INITIATOR_LOST */
struct raw_answer {
	bool done;
	uint16_t status;
};

static void raw_done(void *arg, uint16_t status, const struct nvme_cqe *cqe)
{
	struct raw_answer *answer = arg;

	answer->done = true;
	answer->status = status;
}

static uint16_t send_raw(struct initiator *host, unsigned int index, void *bytes, uint32_t len)
{
	struct queue *queue = host->queues[index];
	unsigned int i = queue->free_slots[--queue->free_count];
	struct raw_answer answer = { 0 };
	struct ibv_mr *mr = ibv_reg_mr(host->pd, bytes, len, 0);
	struct ibv_sge sge = { (uintptr_t)bytes, len, mr->lkey };
	struct ibv_send_wr wr = { .wr_id = (uint64_t)index << 32 | i,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED };
	struct ibv_send_wr *bad;

	if (len >= 4)
		put_le16((uint8_t *)bytes + 2, (uint16_t)i);
	queue->slots[i] = (struct slot){ .used = true,
					 .sending = true,
					 .answering = true,
					 .deadline_ns = clock_ns() + 20 * NSEC_PER_SEC,
					 .done = raw_done,
					 .arg = &answer };
	queue->in_flight++;
	assert_int_equal(ibv_post_send(queue->id->qp, &wr, &bad), 0);
	while (!answer.done)
		initiator_poll(host, 100);
	ibv_dereg_mr(mr);
	return answer.status;
}

static void put_descriptor(uint8_t *capsule, uint64_t addr, uint32_t len, uint8_t type)
{
	put_le64(capsule + 24, addr);
	put_le32(capsule + 32, len);
	put_le32(capsule + 36, 0);
	capsule[39] = type;
}

/* situation N1 on an enabled queue, through the offload and through software */
static void test_hostile_sgls(void **state)
{
	static const struct {
		uint64_t addr;
		uint32_t len;
		uint8_t type;
		uint16_t status;
	} rows[] = {
		{ 0, 4096, 0x01, 0 },
		{ 0xFFFFFFFFFFFFFE00, 0x1000, 0x01, NVME_SC_SGL_OFFSET | DNR },
		{ 8192, 4096, 0x01, NVME_SC_SGL_OFFSET | DNR },
		{ 512, 4096, 0x01, NVME_SC_SGL_OFFSET | DNR },
		{ 0, 8192, 0x01, NVME_SC_SGL_DATA_LENGTH | DNR },
		{ 0, 0, 0x01, NVME_SC_SGL_DATA_LENGTH | DNR },
		{ 0, 0, 0x40, NVME_SC_SGL_DATA_LENGTH | DNR },
		{ 0, 4096, 0x00, NVME_SC_SGL_TYPE | DNR },
		{ 0, 4096, 0x5a, NVME_SC_SGL_TYPE | DNR },
		{ 0, 0xfffffff0, 0x31, NVME_SC_SGL_COUNT | DNR },
		{ 0, 15, 0x31, NVME_SC_SGL_SEGMENT | DNR },
	};
	struct target_process *targets[] = { &offloaded, &software };
	uint8_t capsule[64 + 4096];

	for (size_t t = 0; t < 2; t++) {
		struct initiator *host = connect_to(targets[t], 1, 0);

		for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
			struct nvme_sqe sqe = io_sqe(NVME_CMD_WRITE, NSID, 0, 8);

			memset(capsule, 0, sizeof(capsule));
			memcpy(capsule, &sqe, sizeof(sqe));
			capsule[1] = 0x40;
			put_descriptor(capsule, rows[i].addr, rows[i].len, rows[i].type);
			assert_int_equal(send_raw(host, 1, capsule, sizeof(capsule)),
					 rows[i].status);
		}
		/* PRPs */
		capsule[1] = 0;
		put_descriptor(capsule, 0, 4096, 0x01);
		assert_int_equal(send_raw(host, 1, capsule, sizeof(capsule)),
				 NVME_SC_INVALID_FIELD | DNR);
		initiator_disconnect(host);
	}
}

/* a length that no capsule has: the queue is lost, the target lives */
static void test_capsules_of_wrong_lengths(void **state)
{
	struct target_process *targets[] = { &offloaded, &software };
	static const uint32_t lengths[] = { 0, 1, 63, 64 + 4096 + 1, 20000 };
	static uint8_t capsule[20000];

	for (size_t t = 0; t < 2; t++) {
		for (unsigned int queue = 0; queue < 2; queue++) {
			for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
				struct initiator *host = connect_to(targets[t], 1, 0);

				if (!lengths[i]) {
					initiator_disconnect(host);
					continue;
				}
				memset(capsule, 0x40, sizeof(capsule));
				assert_int_equal(send_raw(host, queue, capsule, lengths[i]),
						 INITIATOR_LOST);
				initiator_disconnect(host);
			}
		}
	}
}

/* a host that is silent is closed after its KATO; one that polls stays */
static void test_keep_alive(void **state)
{
	struct initiator *host = connect_to(&offloaded, 1, 1000);
	struct nvme_sqe sqe = io_sqe(NVME_CMD_READ, NSID, 0, 8);
	uint64_t end = clock_ns() + 3 * NSEC_PER_SEC;
	uint8_t data[4096];

	while (clock_ns() < end)
		assert_true(initiator_poll(host, 100));
	assert_int_equal(initiator_command(host, 1, &sqe, data, sizeof(data), false, NULL), 0);
	sleep(4);
	assert_int_equal(initiator_command(host, 1, &sqe, data, sizeof(data), false, NULL),
			 INITIATOR_LOST);
	initiator_disconnect(host);
}

/* a host that dies leaves nothing behind; the next one is served */
static void test_host_killed(void **state)
{
	struct initiator *host;
	uint8_t data[4096];
	struct nvme_sqe sqe = io_sqe(NVME_CMD_READ, NSID, 0, 8);
	int status;
	pid_t pid;

	char port[32];

	snprintf(port, sizeof(port), "127.0.0.1:%u", offloaded.port);
	pid = fork();
	if (!pid) {
		execl(softhca, softhca, "nvme", "run", "--address", port, "--subsystem", NQN,
		      "--mode", "randrw", "--size", "64K", "--time", "60", NULL);
		_exit(127);
	}
	sleep(1);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	host = connect_to(&offloaded, 2, 0);
	for (int i = 0; i < 200; i++)
		assert_int_equal(
			initiator_command(host, 1 + i % 2, &sqe, data, sizeof(data), false, NULL),
			0);
	initiator_disconnect(host);
}

/* resident memory of @pid, KiB */
static long resident(pid_t pid)
{
	char path[64], line[256];
	long kib = -1;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	file = fopen(path, "r");
	assert_non_null(file);
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "VmRSS: %ld", &kib) == 1)
			break;
	fclose(file);
	return kib;
}

/* SOFTHCA_TEST_CONNECTS: how many (10,000 must leave the memory flat) */
static void test_connect_loop(void **state)
{
	const char *env = getenv("SOFTHCA_TEST_CONNECTS");
	int count = env ? atoi(env) : 80;
	long before = 0, grown;

	for (int i = 0; i < count; i++) {
		/* receive buffers and CQs are touched for the first time in the first 1,500 */
		if (i == (count > 3000 ? count / 2 : 30))
			before = resident(offloaded.pid);
		initiator_disconnect(connect_to(&offloaded, 2, 0));
		if (env && i % 1000 == 999)
			print_message("%d connects: %ld KiB\n", i + 1, resident(offloaded.pid));
	}
	grown = resident(offloaded.pid) - before;
	if (env)
		print_message("%d connects: %ld KiB, %+ld KiB\n", count, before + grown, grown);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* quarantine, shadow */
	/* the allocator's noise; in the short run also memory touched for the first time, but less
	 * than a queue's memory a connect (some 300 KiB) */
	assert_true(grown < (count > 3000 ? 2048 : 8192));
#endif
}

/* SIGTERM with commands in flight: the host is disconnected, the target ends well */
static void test_target_ends_under_load(void **state)
{
	struct nvme_sqe sqe = io_sqe(NVME_CMD_READ, NSID, 0, 8);
	struct target_process t;
	struct initiator *host;
	uint8_t data[4096];
	uint16_t status = 0;

	start_target(&t, NULL);
	host = connect_to(&t, 2, 0);
	for (int i = 0; i < 1000; i++) {
		status = initiator_command(host, 1, &sqe, data, sizeof(data), false, NULL);
		if (i < 100)
			assert_int_equal(status, 0);
		if (i == 100)
			kill(t.pid, SIGTERM);
		if (status)
			break;
	}
	while (initiator_poll(host, 100))
		;
	initiator_disconnect(host);
	stop_target(&t);
}

static int setup(void **state)
{
	start_target(&offloaded, NULL);
	start_target(&software, "--no-offload");
	return 0;
}

static int teardown(void **state)
{
	stop_target(&offloaded);
	stop_target(&software);
	return 0;
}

static void write_config(const char *path, uint16_t port, bool second)
{
	FILE *file = fopen(path, "w");

	assert_non_null(file);
	fprintf(file,
		"{\"ports\": [{\"addr\": {\"traddr\": \"127.0.0.1\", \"trsvcid\": %u},"
		" \"subsystems\": [\"" NQN "\"]}],\n"
		"\"subsystems\": [{\"nqn\": \"" NQN "\", \"attr\": {\"allow_any_host\": 1},"
		" \"namespaces\": [\n"
		"{\"nsid\": 1, \"enable\": 1, \"device\": {\"path\": \"memory:1M\"}},\n"
		"{\"nsid\": 2, \"enable\": %d, \"device\": {\"path\": \"memory:1M\"}}]}]}\n",
		port, second);
	fclose(file);
}

struct event {
	bool done;
	uint16_t status;
	uint32_t dw0;
};

static void event_done(void *arg, uint16_t status, const struct nvme_cqe *cqe)
{
	struct event *event = arg;

	event->done = true;
	event->status = status;
	event->dw0 = cqe ? le32toh(cqe->dw0) : 0;
}

/* SIGHUP: a namespace goes and comes; the host is told, and its commands get the right status */
static void test_namespace_switched_at_run_time(void **state)
{
	static const struct nvme_sqe aer = { .opcode = NVME_ADMIN_AER };
	const struct nvme_sqe ask = { .opcode = NVME_ADMIN_SET_FEATURES,
				      .cdw10 = htole32(NVME_FEAT_ASYNC_EVENT),
				      .cdw11 = htole32(NVME_OAES_NS_CHANGED) };
	char path[] = "/tmp/softhca-test-XXXXXX";
	struct nvme_sqe sqe = io_sqe(NVME_CMD_READ, 2, 0, 8);
	struct target_process t;
	struct initiator *host;
	uint8_t data[4096];

	close(mkstemp(path));
	t.port = free_port();
	write_config(path, t.port, true);
	start_process(&t, "--config", path);
	host = connect_to(&t, 1, 0);
	assert_int_equal(initiator_command(host, 0, &ask, NULL, 0, false, NULL), 0);
	for (int enable = 0; enable <= 1; enable++) {
		struct event event = { 0 };

		assert_int_equal(initiator_command(host, 1, &sqe, data, 4096, false, NULL),
				 enable ? NVME_SC_INVALID_NAMESPACE | DNR : 0);
		assert_int_equal(
			initiator_submit(host, 0, &aer, NULL, 0, 0, false, event_done, &event), 0);
		write_config(path, t.port, enable);
		kill(t.pid, SIGHUP);
		while (!event.done)
			assert_true(initiator_poll(host, 100));
		assert_int_equal(event.status, 0);
		assert_int_equal(event.dw0, 0x00040002); /* notice, namespace changed, log 0x04 */
		assert_int_equal(initiator_get_log(host, NVME_LOG_CHANGED_NS, 0, data, 4096), 0);
		assert_int_equal(get_le32(data), 2);
		assert_int_equal(get_le32(data + 4), 0);
		assert_int_equal(initiator_command(host, 1, &sqe, data, 4096, false, NULL),
				 enable ? 0 : NVME_SC_INVALID_NAMESPACE | DNR);
	}
	initiator_disconnect(host);
	unlink(path);
	stop_target(&t);
}

#define NQN_2 NQN "-2"

static void write_two_subsystems(const char *path, uint16_t port)
{
	FILE *file = fopen(path, "w");

	assert_non_null(file);
	fprintf(file,
		"{\"ports\": [{\"addr\": {\"traddr\": \"127.0.0.1\", \"trsvcid\": %u},"
		" \"subsystems\": [\"" NQN "\", \"" NQN_2 "\"]}],\n"
		"\"subsystems\": [{\"nqn\": \"" NQN "\", \"attr\": {\"allow_any_host\": 1},"
		" \"namespaces\": ["
		"{\"nsid\": 1, \"enable\": 1, \"device\": {\"path\": \"memory:1M\"}}]},\n"
		"{\"nqn\": \"" NQN_2 "\", \"attr\": {\"allow_any_host\": 1}, \"namespaces\": ["
		"{\"nsid\": 1, \"enable\": 1, \"device\": {\"path\": \"memory:2M\"}}]}]}\n",
		port);
	fclose(file);
}

static uint64_t counter(struct initiator *host, const char *name)
{
	static char text[8192];
	const char *at;

	assert_int_equal(initiator_get_log(host, NVME_LOG_SOFTHCA, 0, text, sizeof(text)), 0);
	text[sizeof(text) - 1] = 0;
	at = strstr(text, name);
	assert_non_null(at);
	return strtoull(at + strlen(name) + 2, NULL, 10); /* name":value */
}

/*
 * An I/O queue's subsystem is guessed from its host's controllers. With controllers of two
 * subsystems waiting for queues the guess goes to the younger; the queue of the older one is then
 * served by software, with the right data.
 */
static void test_wrong_guess_is_served_by_software(void **state)
{
	static const struct nvme_sqe queues = { .opcode = NVME_ADMIN_SET_FEATURES,
						.cdw10 = NVME_FEAT_QUEUES };
	char path[] = "/tmp/softhca-test-XXXXXX";
	struct initiator_options o = { .address = "127.0.0.1" };
	struct nvme_sqe end_of_first = io_sqe(NVME_CMD_READ, 1, 2048, 1);
	struct nvme_sqe sqe = io_sqe(NVME_CMD_READ, 1, 0, 8);
	struct initiator *first, *second;
	struct target_process t;
	uint8_t data[4096];
	char error[256];

	close(mkstemp(path));
	t.port = o.port = free_port();
	write_two_subsystems(path, t.port);
	start_process(&t, "--config", path);
	o.subnqn = NQN;
	first = initiator_connect(&o, error, sizeof(error));
	o.subnqn = NQN_2;
	second = initiator_connect(&o, error, sizeof(error));
	assert_non_null(first);
	assert_non_null(second);
	assert_int_equal(initiator_command(first, 0, &queues, NULL, 0, false, NULL), 0);
	assert_int_equal(initiator_command(second, 0, &queues, NULL, 0, false, NULL), 0);
	for (int i = 0; i < 2; i++) {
		struct initiator *host = i ? second : first;
		struct nvme_cqe cqe;

		host->queues[1] = queue_open(host, 1, 16);
		assert_non_null(host->queues[1]);
		host->queue_count = 2;
		assert_int_equal(command_connect(host, host->queues[1], &cqe), 0);
	}
	for (int i = 0; i < 10; i++) {
		assert_int_equal(initiator_command(first, 1, &sqe, data, 4096, false, NULL), 0);
		assert_int_equal(initiator_command(second, 1, &sqe, data, 4096, false, NULL), 0);
	}
	/* each its own namespace: 1 MiB and 2 MiB */
	assert_int_equal(initiator_command(first, 1, &end_of_first, data, 512, false, NULL),
			 NVME_SC_LBA_RANGE | DNR);
	assert_int_equal(initiator_command(second, 1, &end_of_first, data, 512, false, NULL), 0);
	assert_int_equal(counter(first, "software_read"), 11);
	assert_int_equal(counter(first, "offloaded_read"), 0);
	assert_int_equal(counter(second, "software_read"), 0);
	assert_int_equal(counter(second, "offloaded_read"), 11);
	initiator_disconnect(first);
	initiator_disconnect(second);
	unlink(path);
	stop_target(&t);
}

/* the CM private data: the REJ's reason and status */
static void test_reject_statuses(void **state)
{
	static const struct {
		uint16_t recfmt, qid, hrqsize, hsqsize;
		uint8_t responder_resources;
		uint16_t status; /* 0 = accepted */
	} rows[] = {
		{ 0, 0, 32, 31, 4, 0 },
		{ 0, 0, 129, 128, 4, 0 }, /* SPDK's way of counting */
		{ 1, 0, 32, 31, 4, NVMF_RDMA_REJECT_RECFMT },
		{ 0, 1025, 32, 31, 4, NVMF_RDMA_REJECT_QID },
		{ 0, 0xffff, 32, 31, 4, NVMF_RDMA_REJECT_QID },
		{ 0, 0, 32, 0, 4, NVMF_RDMA_REJECT_HSQSIZE },
		{ 0, 1, 200, 129, 4, NVMF_RDMA_REJECT_HSQSIZE },
		{ 0, 1, 0xffff, 0xffff, 4, NVMF_RDMA_REJECT_HSQSIZE },
		{ 0, 0, 30, 31, 4, NVMF_RDMA_REJECT_HRQSIZE },
		{ 0, 0, 0, 31, 4, NVMF_RDMA_REJECT_HRQSIZE },
		{ 0, 0, 32, 31, 0, NVMF_RDMA_REJECT_IRD },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct nvmf_rdma_request request = { .recfmt = htole16(rows[i].recfmt),
						     .qid = htole16(rows[i].qid),
						     .hrqsize = htole16(rows[i].hrqsize),
						     .hsqsize = htole16(rows[i].hsqsize) };
		struct rdma_conn_param param = { .private_data = &request,
						 .private_data_len = sizeof(request),
						 .responder_resources = rows[i].responder_resources,
						 .retry_count = 7,
						 .rnr_retry_count = 7 };
		struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC,
						 .cap = { 16, 16, 1, 1, 0 } };
		struct sockaddr_in addr = { .sin_family = AF_INET,
					    .sin_port = htons(offloaded.port) };
		struct rdma_cm_event *event;
		struct rdma_cm_id *id;

		addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		assert_int_equal(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP), 0);
		assert_int_equal(rdma_resolve_addr(id, NULL, (struct sockaddr *)&addr, 2000), 0);
		assert_int_equal(rdma_resolve_route(id, 2000), 0);
		assert_int_equal(rdma_create_qp(id, NULL, &attr), 0);
		if (!rows[i].status) {
			const struct nvmf_rdma_accept *accept;

			assert_int_equal(rdma_connect(id, &param), 0);
			accept = id->event->param.conn.private_data;
			assert_int_equal(le16toh(accept->recfmt), 0);
			assert_int_equal(le16toh(accept->crqsize), rows[i].hsqsize);
			assert_int_equal(id->event->param.conn.responder_resources >= 1, 1);
			rdma_disconnect(id);
		} else {
			const struct nvmf_rdma_reject *reject;

			assert_int_not_equal(rdma_connect(id, &param), 0);
			event = id->event;
			assert_non_null(event);
			assert_int_equal(event->event, RDMA_CM_EVENT_REJECTED);
			assert_int_equal(event->status, 28);
			reject = event->param.conn.private_data;
			assert_int_equal(le16toh(reject->recfmt), 0);
			assert_int_equal(le16toh(reject->status), rows[i].status);
		}
		rdma_destroy_qp(id);
		rdma_destroy_id(id);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_errors_are_equal),
		cmocka_unit_test(test_random_stream_is_equal),
		cmocka_unit_test(test_hostile_sgls),
		cmocka_unit_test(test_capsules_of_wrong_lengths),
		cmocka_unit_test(test_keep_alive),
		cmocka_unit_test(test_host_killed),
		cmocka_unit_test(test_wrong_guess_is_served_by_software),
		cmocka_unit_test(test_reject_statuses),
		cmocka_unit_test(test_namespace_switched_at_run_time),
		cmocka_unit_test(test_connect_loop),
		cmocka_unit_test(test_target_ends_under_load),
	};

	if (argc < 2)
		return 1;
	softhca = argv[1];
	/* the machine's port daemon may be another user's */
	enter_namespace(0);
	loopback_up();
	return cmocka_run_group_tests(tests, setup, teardown);
}
