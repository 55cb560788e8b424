// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_backend_file.c: a file that is truncated, too small, read-only, full, limited, slow to say
 * so; through the controller and synchronously. Nothing of it may end in a signal.
 */
#include "nvme_host.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "nvme/backend.h"
#include "util/bytes.h"

#define LBA  4096U
#define SIZE (1U << 20)

static char path[64];
static char error[512];

static int setup(void **state)
{
	int fd;

	snprintf(path, sizeof(path), "/tmp/softhca-test-file-XXXXXX");
	fd = mkstemp(path);
	if (fd < 0 || ftruncate(fd, SIZE))
		return -1;
	close(fd);
	error[0] = 0;
	return 0;
}

static int teardown(void **state)
{
	return unlink(path);
}

static uint8_t *aligned(size_t len)
{
	void *p = NULL;

	assert_int_equal(posix_memalign(&p, 4096, len), 0);
	memset(p, 0, len);
	return p;
}

static struct backend *open_ok(uint32_t lba, bool read_only)
{
	struct backend *b = backend_open_file(path, lba, read_only, error, sizeof(error));

	assert_string_equal(error, "");
	assert_non_null(b);
	return b;
}

static void open_fails(const char *name, uint32_t lba, bool read_only, int err, const char *text)
{
	assert_null(backend_open_file(name, lba, read_only, error, sizeof(error)));
	assert_int_equal(errno, err);
	assert_non_null(strstr(error, text));
}

static void test_open_errors(void **state)
{
	open_fails("/nonexistent/disk.img", LBA, false, ENOENT, "/nonexistent/disk.img");
	open_fails("/tmp", LBA, true, EINVAL, "neither a file nor a block device");
	open_fails("/dev/null", LBA, false, EINVAL, "neither a file nor a block device");
	open_fails(path, 1000, false, EINVAL, "512 or 4096");
	assert_int_equal(truncate(path, 4095), 0);
	open_fails(path, LBA, false, EINVAL, "less than one block");
	assert_int_equal(truncate(path, SIZE), 0);
	if (getuid()) {
		assert_int_equal(chmod(path, 0400), 0);
		open_fails(path, LBA, false, EACCES, "for writing");
		assert_int_equal(chmod(path, 0600), 0);
	}
}

static void test_geometry(void **state)
{
	struct backend_info info;
	struct backend *b;

	/* the odd bytes at the end belong to no block */
	assert_int_equal(truncate(path, SIZE + 1000), 0);
	b = open_ok(512, false);
	backend_get_info(b, &info);
	assert_int_equal(info.size_bytes, SIZE + 512);
	assert_int_equal(info.lba_size, 512);
	backend_close(b);
}

/* data at any alignment of memory arrive and stay */
static void test_sync_io(void **state)
{
	uint8_t *data = aligned(SIZE + 4096), *back = aligned(SIZE + 4096);
	struct backend *b = open_ok(512, false);

	for (uint32_t i = 0; i < SIZE; i++)
		data[i + 1] = (uint8_t)(i * 7 + (i >> 8));
	assert_int_equal(backend_sync_io(b, NVME_CMD_WRITE, 0, SIZE / 512, data + 1, false), 0);
	assert_int_equal(backend_sync_io(b, NVME_CMD_READ, 0, SIZE / 512, back, false), 0);
	assert_memory_equal(data + 1, back, SIZE);
	/* aligned and unaligned, direct and buffered, do not see different files */
	memset(back, 0x11, 4096);
	assert_int_equal(backend_sync_io(b, NVME_CMD_WRITE, 8, 8, back, true), 0);
	assert_int_equal(backend_sync_io(b, NVME_CMD_READ, 8, 8, data + 3, false), 0);
	assert_memory_equal(data + 3, back, 4096);
	assert_int_equal(backend_sync_io(b, NVME_CMD_WRITE_ZEROES, 9, 2, NULL, true), 0);
	assert_int_equal(backend_sync_io(b, NVME_CMD_DSM, 16, 8, NULL, false), 0);
	assert_int_equal(backend_sync_io(b, NVME_CMD_VERIFY, 0, SIZE / 512, NULL, false), 0);
	assert_int_equal(backend_sync_io(b, NVME_CMD_FLUSH, 0, 0, NULL, false), 0);
	assert_int_equal(backend_sync_io(b, NVME_CMD_READ, 8, 16, back, false), 0);
	for (int i = 0; i < 16 * 512; i++)
		assert_int_equal(back[i],
				 (i / 512 == 0 || (i / 512 >= 3 && i / 512 < 8)) ? 0x11 : 0);
	assert_int_equal(backend_sync_io(b, NVME_CMD_READ, SIZE / 512, 1, back, false),
			 NVME_SC_LBA_RANGE | DNR);
	assert_int_equal(backend_sync_io(b, NVME_CMD_COMPARE, 0, 1, back, false),
			 NVME_SC_INVALID_OPCODE | DNR);
	backend_close(b);
	/* what was written is in the file */
	b = open_ok(512, true);
	memset(data, 0, 4096);
	assert_int_equal(backend_sync_io(b, NVME_CMD_READ, 8, 1, data, false), 0);
	assert_int_equal(data[511], 0x11);
	backend_close(b);
	free(data);
	free(back);
}

static void test_read_only(void **state)
{
	struct backend *b = open_ok(LBA, true);
	struct soft_ctrl *ctrl = soft_ctrl_create(1);
	struct nvme_host h;

	assert_int_equal(soft_ctrl_add_namespace(ctrl, 1, b), 0);
	host_open(&h, ctrl, 1, 8);
	assert_int_equal(host_io(&h, NVME_CMD_WRITE, 0, 1, LBA, 0), NVME_SC_WRITE_PROTECTED | DNR);
	assert_int_equal(host_io(&h, NVME_CMD_WRITE_ZEROES, 0, 1, LBA, 0),
			 NVME_SC_WRITE_PROTECTED | DNR);
	assert_int_equal(host_io(&h, NVME_CMD_DSM, 0, 1, LBA, 0), NVME_SC_WRITE_PROTECTED | DNR);
	assert_int_equal(host_io(&h, NVME_CMD_READ, 0, 1, LBA, 0), 0);
	assert_int_equal(host_io(&h, NVME_CMD_FLUSH, 0, 1, LBA, 0), 0);
	assert_int_equal(backend_sync_io(b, NVME_CMD_WRITE, 0, 1, h.buffer, false),
			 NVME_SC_WRITE_PROTECTED | DNR);
	host_close(&h);
	soft_ctrl_destroy(ctrl);
	backend_close(b);
}

/* the file is cut under us: errors where nothing is left, no growth, no signal */
static void test_truncated(void **state)
{
	struct backend *b = open_ok(LBA, false);
	struct soft_ctrl *ctrl = soft_ctrl_create(1);
	struct nvme_host h;
	struct stat st;

	assert_int_equal(soft_ctrl_add_namespace(ctrl, 1, b), 0);
	host_open(&h, ctrl, 1, 8);
	assert_int_equal(truncate(path, SIZE / 2 + 100), 0);
	assert_int_equal(host_io(&h, NVME_CMD_READ, 0, 128, LBA, 0), 0);
	assert_int_equal(host_io(&h, NVME_CMD_READ, 128, 1, LBA, 0), NVME_SC_READ_ERROR);
	assert_int_equal(host_io(&h, NVME_CMD_READ, 200, 1, LBA, 0), NVME_SC_READ_ERROR);
	assert_int_equal(host_io(&h, NVME_CMD_READ, 120, 64, LBA, 0), NVME_SC_READ_ERROR);
	assert_int_equal(host_io(&h, NVME_CMD_VERIFY, 120, 64, LBA, 0), NVME_SC_READ_ERROR);
	assert_int_equal(host_io(&h, NVME_CMD_COMPARE, 200, 1, LBA, 0), NVME_SC_READ_ERROR);
	assert_int_equal(host_io(&h, NVME_CMD_WRITE, 127, 1, LBA, 0), 0);
	assert_int_equal(host_io(&h, NVME_CMD_WRITE, 128, 1, LBA, 0), NVME_SC_WRITE_FAULT);
	assert_int_equal(host_io(&h, NVME_CMD_WRITE, 255, 1, LBA, 0), NVME_SC_WRITE_FAULT);
	assert_int_equal(host_io(&h, NVME_CMD_WRITE_ZEROES, 255, 1, LBA, 0), NVME_SC_WRITE_FAULT);
	assert_int_equal(backend_sync_io(b, NVME_CMD_READ, 255, 1, h.buffer, false),
			 NVME_SC_READ_ERROR);
	assert_int_equal(backend_sync_io(b, NVME_CMD_WRITE, 255, 1, h.buffer, false),
			 NVME_SC_WRITE_FAULT);
	/* outside the namespace is another matter */
	assert_int_equal(host_io(&h, NVME_CMD_READ, 256, 1, LBA, 0), NVME_SC_LBA_RANGE | DNR);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_size, SIZE / 2 + 100);
	host_close(&h);
	soft_ctrl_destroy(ctrl);
	backend_close(b);
}

/* RLIMIT_FSIZE below the file's size: SIGXFSZ, default action, would kill us */
static void test_file_size_limit(void **state)
{
	struct backend *b = open_ok(LBA, false);
	struct soft_ctrl *ctrl = soft_ctrl_create(1);
	struct rlimit old, small;
	struct nvme_host h;

	assert_int_equal(soft_ctrl_add_namespace(ctrl, 1, b), 0);
	host_open(&h, ctrl, 1, 8);
	signal(SIGXFSZ, SIG_DFL);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	small = old;
	small.rlim_cur = SIZE / 2;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	assert_int_equal(host_io(&h, NVME_CMD_WRITE, 0, 128, LBA, 0), 0);
	assert_int_equal(host_io(&h, NVME_CMD_WRITE, 128, 1, LBA, 0), NVME_SC_CAPACITY | DNR);
	assert_int_equal(host_io(&h, NVME_CMD_WRITE, 127, 2, LBA, 0), NVME_SC_CAPACITY | DNR);
	assert_int_equal(host_io(&h, NVME_CMD_WRITE_ZEROES, 200, 1, LBA, 0),
			 NVME_SC_CAPACITY | DNR);
	assert_int_equal(backend_sync_io(b, NVME_CMD_WRITE, 128, 1, h.buffer, false),
			 NVME_SC_CAPACITY | DNR);
	assert_int_equal(host_io(&h, NVME_CMD_READ, 200, 1, LBA, 0), 0);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
	assert_int_equal(host_io(&h, NVME_CMD_WRITE, 128, 1, LBA, 0), 0);
	host_close(&h);
	soft_ctrl_destroy(ctrl);
	backend_close(b);
}

static bool write_file(const char *name, const char *text)
{
	int fd = open(name, O_WRONLY);
	bool ok = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

	if (fd >= 0)
		close(fd);
	return ok;
}

static bool own_mounts(void)
{
	unsigned int uid = getuid(), gid = getgid();
	char uids[32], gids[32];

	snprintf(uids, sizeof(uids), "0 %u 1", uid);
	snprintf(gids, sizeof(gids), "0 %u 1", gid);
	if (unshare(CLONE_NEWNS)) {
		if (unshare(CLONE_NEWUSER | CLONE_NEWNS))
			return false;
		if (!write_file("/proc/self/setgroups", "deny") ||
		    !write_file("/proc/self/uid_map", uids) ||
		    !write_file("/proc/self/gid_map", gids))
			return false;
	}
	return !mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL);
}

/* a sparse file on a file system that is full; needs a mount namespace of our own. In a child,
 * since it cannot be left. Exit status: 0 good, 77 cannot be tried here */
static int full_file_system(void)
{
	char dir[] = "/tmp/softhca-test-full-XXXXXX", file[64];
	uint8_t *data = aligned(SIZE);
	uint16_t status = 0;
	struct backend *b;
	int fd;

	if (!own_mounts())
		return 77;
	if (!mkdtemp(dir))
		return 77;
	if (mount("none", dir, "tmpfs", 0, "size=256k")) {
		rmdir(dir);
		return 77;
	}
	snprintf(file, sizeof(file), "%s/disk", dir);
	fd = open(file, O_CREAT | O_RDWR, 0600);
	if (fd < 0 || ftruncate(fd, SIZE))
		return 1;
	close(fd);
	b = backend_open_file(file, LBA, false, error, sizeof(error));
	if (!b)
		return 2;
	memset(data, 1, SIZE);
	for (uint32_t i = 0; i < SIZE / LBA && !status; i++)
		status = backend_sync_io(b, NVME_CMD_WRITE, i, 1, data, false);
	if (status != (NVME_SC_CAPACITY | NVME_STATUS_DNR))
		return 3;
	if (backend_sync_io(b, NVME_CMD_READ, SIZE / LBA - 1, 1, data, false))
		return 4;
	backend_close(b);
	unlink(file);
	umount(dir);
	rmdir(dir);
	return 0;
}

static void test_no_space(void **state)
{
	pid_t pid = fork();
	int status;

	if (!pid)
		_exit(full_file_system());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 77)
		skip();
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* the n-th operation fails, for every n: the status is exact and the next command works */
static void test_fail_each(void **state)
{
	struct backend *b = open_ok(LBA, false);
	struct soft_ctrl *ctrl = soft_ctrl_create(1);
	struct nvme_host h;
	unsigned int n;

	assert_int_equal(soft_ctrl_add_namespace(ctrl, 1, b), 0);
	host_open(&h, ctrl, 1, 8);
	for (n = 1;; n++) {
		struct nvme_sqe sqe = host_command(&h, NVME_CMD_WRITE, 0, 256, LBA, 0);
		uint64_t *list = (uint64_t *)(uintptr_t)le64toh(sqe.prp2);
		uint16_t status;

		/* no two pages join: 256 pieces, 16 I/Os */
		for (int i = 0; i < 255; i++)
			list[i] = htole64((uintptr_t)h.buffer + (size_t)(254 - i) * 4096);
		backend_fail_nth(b, n, n % 2 ? EIO : EINTR);
		status = host_run(&h, &sqe);
		if (b->fail_in)
			break; /* there was no n-th */
		assert_int_equal(status, n % 2 ? NVME_SC_WRITE_FAULT : NVME_SC_SUCCESS);
	}
	backend_fail_nth(b, 0, 0);
	assert_int_equal(n, 17);
	/* an alignment that O_DIRECT refuses is tried buffered */
	backend_fail_nth(b, 1, EINVAL);
	assert_int_equal(host_io(&h, NVME_CMD_WRITE, 0, 1, LBA, 0), 0);
	/* no fallocate there: punch, then plain zeroes */
	memset(h.buffer, 0xee, 4096);
	assert_int_equal(host_io(&h, NVME_CMD_WRITE, 5, 1, LBA, 0), 0);
	backend_fail_nth(b, 1, EOPNOTSUPP);
	assert_int_equal(host_io(&h, NVME_CMD_WRITE_ZEROES, 5, 1, LBA, 0), 0);
	assert_int_equal(host_io(&h, NVME_CMD_READ, 5, 1, LBA, 8192), 0);
	assert_int_equal(h.buffer[8192], 0);
	/* neither of both: a large area in several writes, FUA as a sync behind */
	for (int fua = 0; fua < 2; fua++) {
		struct nvme_sqe sqe = host_command(&h, NVME_CMD_WRITE_ZEROES, 3, 200, LBA, 0);

		memset(h.buffer, 0xee, 204 * 4096);
		assert_int_equal(host_io(&h, NVME_CMD_WRITE, 2, 204, LBA, 0), 0);
		sqe.cdw12 |= fua ? htole32(NVME_RW_FUA) : 0;
		backend_fail_run(b, 1, 1, EOPNOTSUPP);
		assert_int_equal(host_run(&h, &sqe), 0);
		assert_int_equal(host_io(&h, NVME_CMD_READ, 2, 204, LBA, 0), 0);
		for (int i = 0; i < 204 * 4096; i += 512)
			assert_int_equal(h.buffer[i], i < 4096 || i >= 201 * 4096 ? 0xee : 0);
	}
	/* and full while writing them */
	backend_fail_run(b, 1, 1, EOPNOTSUPP);
	assert_int_equal(backend_sync_io(b, NVME_CMD_WRITE_ZEROES, 0, 100, NULL, true), 0);
	/* a hint that fails is no error */
	backend_fail_nth(b, 1, EIO);
	put_le32(h.buffer + 4, 1);
	put_le64(h.buffer + 8, 5);
	{
		struct nvme_sqe sqe = host_command(&h, NVME_CMD_DSM, 0, 1, LBA, 0);

		sqe.cdw10 = 0;
		sqe.cdw11 = htole32(4);
		sqe.prp1 = htole64((uintptr_t)h.buffer);
		assert_int_equal(host_run(&h, &sqe), 0);
	}
	host_close(&h);
	soft_ctrl_destroy(ctrl);
	backend_close(b);
}

/* where io_uring cannot be had (here: no descriptor is left) I/O is done by the caller */
static void test_no_io_uring(void **state)
{
	struct backend *b = open_ok(LBA, false);
	struct soft_ctrl *ctrl = soft_ctrl_create(1);
	struct rlimit old, small;
	struct nvme_host h;
	int fd;

	host_open(&h, ctrl, 1, 8);
	fd = dup(0);
	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	small = old;
	small.rlim_cur = (rlim_t)fd;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &small), 0);
	assert_int_equal(soft_ctrl_add_namespace(ctrl, 1, b), 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	memset(h.buffer, 0x77, 65536);
	assert_int_equal(host_io(&h, NVME_CMD_WRITE, 3, 16, LBA, 0), 0);
	assert_int_equal(host_io(&h, NVME_CMD_FLUSH, 0, 1, LBA, 0), 0);
	assert_int_equal(host_io(&h, NVME_CMD_READ, 3, 16, LBA, 65536), 0);
	assert_memory_equal(h.buffer, h.buffer + 65536, 65536);
	backend_fail_nth(b, 1, EIO);
	assert_int_equal(host_io(&h, NVME_CMD_READ, 3, 16, LBA, 0), NVME_SC_READ_ERROR);
	assert_int_equal(soft_ctrl_remove_namespace(ctrl, 1), 0);
	host_close(&h);
	soft_ctrl_destroy(ctrl);
	backend_close(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_open_errors, setup, teardown),
		cmocka_unit_test_setup_teardown(test_geometry, setup, teardown),
		cmocka_unit_test_setup_teardown(test_sync_io, setup, teardown),
		cmocka_unit_test_setup_teardown(test_read_only, setup, teardown),
		cmocka_unit_test_setup_teardown(test_truncated, setup, teardown),
		cmocka_unit_test_setup_teardown(test_file_size_limit, setup, teardown),
		cmocka_unit_test_setup_teardown(test_no_space, setup, teardown),
		cmocka_unit_test_setup_teardown(test_fail_each, setup, teardown),
		cmocka_unit_test_setup_teardown(test_no_io_uring, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
