// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_threads.c: several threads drive queue pairs of one controller, beside its own thread, while
 * namespaces come and go. Made for ThreadSanitizer.
 */
#include "nvme_host.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nvme/backend.h"
#include "util/bytes.h"

#define LBA	4096U
#define THREADS 3
#define ROUNDS	150
#define DEPTH	16

struct worker {
	pthread_t thread;
	struct nvme_host host;
	unsigned int gone; /* commands that found no namespace */
};

static struct soft_ctrl *ctrl;

/* cmocka's asserts are for the main thread: abort instead */
static void must(bool ok)
{
	if (!ok)
		abort();
}

static void *work(void *arg)
{
	struct worker *w = arg;
	struct nvme_host *h = &w->host;
	uint64_t base = (uint64_t)h->qid * 64;

	for (int round = 0; round < ROUNDS; round++) {
		uint8_t value = (uint8_t)(round + h->qid);
		uint16_t start = h->next_cid;

		/* writes on this thread's blocks of namespace 1, reads of the one that comes and
		 * goes */
		for (uint32_t i = 0; i < 6; i++) {
			struct nvme_sqe sqe =
				host_command(h, NVME_CMD_WRITE, base + i, 1, LBA, (size_t)i * LBA);

			memset(h->buffer + (size_t)i * LBA, value, LBA);
			host_post(h, &sqe);
			sqe = host_command(h, NVME_CMD_READ, i, 1, LBA, (32 + (size_t)i) * LBA);
			sqe.nsid = htole32(2);
			host_post(h, &sqe);
		}
		host_ring(h);
		for (int i = 0; i < 12; i++) {
			struct nvme_cqe cqe;
			uint16_t status;

			/* every other round waits for the controller's thread alone */
			while (round % 2 && !nvme_cq_peek(&h->cq))
				usleep(20);
			status = host_wait(h, &cqe);
			must(!status || (status == (NVME_SC_INVALID_NAMESPACE | DNR) &&
					 (uint16_t)(le16toh(cqe.cid) - start) % 2));
			w->gone += status != 0;
		}
		must(!host_io(h, NVME_CMD_READ, base, 6, LBA, 8 * LBA));
		for (size_t i = 0; i < 6 * LBA; i += 512)
			must(h->buffer[8 * LBA + i] == value);
	}
	return NULL;
}

static void run(struct backend *first, struct backend *second)
{
	struct worker workers[THREADS];

	ctrl = soft_ctrl_create(THREADS);
	assert_int_equal(soft_ctrl_add_namespace(ctrl, 1, first), 0);
	assert_int_equal(soft_ctrl_start_thread(ctrl), 0);
	memset(workers, 0, sizeof(workers));
	for (uint16_t i = 0; i < THREADS; i++)
		host_open(&workers[i].host, ctrl, i + 1, DEPTH);
	for (int i = 0; i < THREADS; i++)
		pthread_create(&workers[i].thread, NULL, work, &workers[i]);
	for (int i = 0; i < 30; i++) {
		assert_int_equal(soft_ctrl_add_namespace(ctrl, 2, second), 0);
		usleep(300);
		assert_int_equal(soft_ctrl_remove_namespace(ctrl, 2), 0);
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(workers[i].thread, NULL);
		host_close(&workers[i].host);
		assert_true(workers[i].host.notified > 0);
	}
	soft_ctrl_destroy(ctrl);
}

static void test_memory(void **state)
{
	struct backend *a = backend_open_memory(4 << 20, LBA),
		       *b = backend_open_memory(1 << 20, LBA);

	run(a, b);
	backend_close(a);
	backend_close(b);
}

static void test_file(void **state)
{
	char path[] = "/tmp/softhca-test-threads-XXXXXX", error[256] = "";
	struct backend *a, *b = backend_open_memory(1 << 20, LBA);
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, 4 << 20), 0);
	close(fd);
	a = backend_open_file(path, LBA, false, error, sizeof(error));
	assert_string_equal(error, "");
	run(a, b);
	backend_close(b);
	b = backend_open_memory(4 << 20, LBA);
	run(b, a);
	backend_close(a);
	backend_close(b);
	unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_memory),
					    cmocka_unit_test(test_file) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
