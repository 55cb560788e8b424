// SPDX-License-Identifier: BSD-2-Clause
/*
 * backend_file.c: a namespace on a file or block device. Two descriptors of the same file: one with
 * O_DIRECT, used for whatever is aligned as the file system wants it, and a buffered one for the
 * rest and for fdatasync. The same steps run through io_uring (prepare, complete) or in the
 * caller's thread (run).
 *
 * The file is never mapped: if somebody truncates it, I/O ends with an NVMe error instead of a
 * SIGBUS. Nor is a write issued that RLIMIT_FSIZE would answer with SIGXFSZ.
 */
#include "nvme/backend.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "util/bytes.h"
#include "util/log.h"

#define SCRATCH_LEN (128U << 10)
#define MAX_RETRIES 8 /* EINTR, EAGAIN */

struct backend_file {
	struct backend base;
	int fd, direct_fd; /* direct_fd: -1 where the file system cannot */
	uint32_t direct_offset_align, direct_memory_align; /* bytes */
	bool is_regular;
	/* an fdatasync failed: what it should have made safe may be lost, and the kernel says so
	 * only once; every later FLUSH fails too */
	_Atomic bool sync_failed;
	_Atomic bool cut_told;
	char *path;
	uint8_t *zeroes;  /* SCRATCH_LEN bytes, never written */
	uint8_t *discard; /* SCRATCH_LEN bytes, VERIFY reads into it */
};

enum file_stage { STAGE_FIRST, STAGE_PUNCH, STAGE_FILL, STAGE_SYNC };

enum file_call { CALL_NONE, CALL_READ, CALL_WRITE, CALL_ALLOCATE, CALL_SYNC };

/* one system call or io_uring submission */
struct file_step {
	enum file_call call;
	int fd;
	struct iovec *iov;
	unsigned int iov_count; /* 0: buffer and length */
	void *buffer;
	uint64_t length, offset;
	int flags; /* RWF_, FALLOC_FL_ */
};

static void file_close(struct backend *backend)
{
	struct backend_file *b = (struct backend_file *)backend;

	if (!b->base.info.read_only && fdatasync(b->fd) && errno != EINVAL)
		log_error("cannot write '%s' back on close: %s: data may be lost", b->path,
			  strerror(errno));
	if (b->direct_fd >= 0)
		close(b->direct_fd);
	close(b->fd);
	free(b->zeroes);
	free(b->discard);
	free(b->path);
	free(b);
}

/* once: the operator should know why hosts see errors */
static void tell_cut(struct backend_file *b)
{
	if (!atomic_exchange(&b->cut_told, true))
		log_error(
			"'%s' is shorter than its namespace's %llu bytes: I/O beyond its end fails",
			b->path, (unsigned long long)b->base.info.size_bytes);
}

static bool direct_fits(const struct backend_file *b, const struct backend_io *io)
{
	uint64_t offset = io->offset + io->done;
	uint64_t mask = offset | io->length;

	if (b->direct_fd < 0 || io->buffered || mask & (b->direct_offset_align - 1))
		return false;
	for (unsigned int i = 0; i < io->iov_count; i++)
		if (((uintptr_t)io->iov[i].iov_base | io->iov[i].iov_len) &
		    (b->direct_memory_align - 1))
			return false;
	return true;
}

/*
 * May [offset, offset + length) be written? Not where the file has ended in the meantime: that
 * would grow it, with a hole where data were. Not beyond RLIMIT_FSIZE: the kernel would send
 * SIGXFSZ. Return: 0 or an errno.
 */
static int check_write(struct backend_file *b, const struct backend_io *io)
{
	uint64_t end = io->offset + io->length;
	struct rlimit limit;
	struct stat st;

	if (!b->is_regular)
		return 0;
	if (fstat(b->fd, &st))
		return EIO;
	if (end > (uint64_t)st.st_size) {
		tell_cut(b);
		return EIO;
	}
	if (!getrlimit(RLIMIT_FSIZE, &limit) && limit.rlim_cur != RLIM_INFINITY &&
	    end > limit.rlim_cur)
		return EFBIG;
	return 0;
}

static struct file_step transfer(struct backend_file *b, struct backend_io *io, enum file_call call)
{
	struct file_step step = {
		.call = call,
		.fd = direct_fits(b, io) ? b->direct_fd : b->fd,
		.iov = io->iov,
		.iov_count = io->iov_count,
		.offset = io->offset + io->done,
	};

	if (io->iov_count == 1) {
		step.iov_count = 0;
		step.buffer = io->iov->iov_base;
		step.length = io->iov->iov_len;
	}
	if (call == CALL_WRITE && io->fua)
		step.flags = RWF_DSYNC;
	return step;
}

/* what to do next for @io; CALL_NONE: it is finished, io->status is set */
static struct file_step next_step(struct backend_file *b, struct backend_io *io)
{
	struct file_step step = { .call = CALL_NONE, .fd = b->fd };
	int error;

	io->injected = backend_injected(&b->base);
	step.offset = io->offset;
	step.length = io->length;
	if (io->stage == STAGE_SYNC) {
		step.call = CALL_SYNC;
		return step;
	}
	if (io->opcode == NVME_CMD_WRITE || io->opcode == NVME_CMD_WRITE_ZEROES) {
		error = check_write(b, io);
		if (error) {
			io->status = backend_status(io->opcode, error);
			return step;
		}
	}
	switch (io->opcode) {
	case NVME_CMD_READ:
		return transfer(b, io, CALL_READ);
	case NVME_CMD_WRITE:
		return transfer(b, io, CALL_WRITE);
	case NVME_CMD_FLUSH:
		if (b->sync_failed) {
			io->status = NVME_SC_WRITE_FAULT;
			return step;
		}
		step.call = CALL_SYNC;
		return step;
	case NVME_CMD_WRITE_ZEROES:
		if (io->stage == STAGE_FILL) {
			step.call = CALL_WRITE;
			step.buffer = b->zeroes;
			step.offset = io->offset + io->done;
			step.length = MIN(io->length - io->done, SCRATCH_LEN);
			return step;
		}
		step.call = CALL_ALLOCATE;
		step.flags =
			FALLOC_FL_KEEP_SIZE |
			(io->stage == STAGE_PUNCH ? FALLOC_FL_PUNCH_HOLE : FALLOC_FL_ZERO_RANGE);
		return step;
	case NVME_CMD_DSM:
		step.call = CALL_ALLOCATE;
		step.flags = FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE;
		return step;
	case NVME_CMD_VERIFY:
		step.call = CALL_READ;
		step.buffer = b->discard;
		step.offset = io->offset + io->done;
		step.length = MIN(io->length - io->done, SCRATCH_LEN);
		return step;
	}
	io->status = NVME_SC_INVALID_OPCODE | NVME_STATUS_DNR;
	return step;
}

static void advance(struct backend_io *io, uint64_t bytes)
{
	io->done += bytes;
	if (io->opcode != NVME_CMD_READ && io->opcode != NVME_CMD_WRITE)
		return;
	while (io->iov_count && bytes >= io->iov->iov_len) {
		bytes -= io->iov->iov_len;
		io->iov++;
		io->iov_count--;
	}
	if (bytes) {
		io->iov->iov_base = (uint8_t *)io->iov->iov_base + bytes;
		io->iov->iov_len -= bytes;
	}
}

static bool finish(struct backend_io *io, int error)
{
	io->status = backend_status(io->opcode, error);
	return true;
}

static bool file_complete(struct backend *backend, struct backend_io *io, int res)
{
	struct backend_file *b = (struct backend_file *)backend;

	if (io->injected)
		res = -io->injected;
	/* ECANCELED: the thread that submitted it has ended */
	if ((res == -EINTR || res == -EAGAIN || res == -ECANCELED) && io->retries++ < MAX_RETRIES)
		return false;
	if (io->opcode == NVME_CMD_FLUSH || io->stage == STAGE_SYNC) {
		if (!res || res == -EINVAL ||
		    res == -EROFS) /* nothing there that could be synced */
			return finish(io, 0);
		b->sync_failed = true;
		return finish(io, -res);
	}
	if (io->opcode == NVME_CMD_DSM) /* deallocation is a hint */
		return finish(io, 0);
	if (io->opcode == NVME_CMD_WRITE_ZEROES && io->stage != STAGE_FILL) {
		if (res == -EOPNOTSUPP || res == -ENOSYS || res == -EINVAL) {
			io->stage++;
			return false;
		}
		if (res || !io->fua)
			return finish(io, -res);
		io->stage = STAGE_SYNC;
		return false;
	}
	if (res == -EINVAL && !io->buffered) {
		/* the file system wants another alignment than it showed at open */
		io->buffered = true;
		return false;
	}
	if (res < 0)
		return finish(io, -res);
	if (!res) { /* the file ends here */
		tell_cut(b);
		return finish(io, EIO);
	}
	advance(io, (uint64_t)res);
	if (io->done < io->length)
		return false;
	if (io->opcode != NVME_CMD_WRITE_ZEROES || !io->fua)
		return finish(io, 0);
	io->stage = STAGE_SYNC;
	return false;
}

static bool file_prepare(struct backend *backend, struct backend_io *io, struct io_uring_sqe *sqe)
{
	struct file_step s = next_step((struct backend_file *)backend, io);

	if (s.call == CALL_NONE)
		return false;
	if (io->injected) {
		io_uring_prep_nop(sqe);
		return true;
	}
	switch (s.call) {
	case CALL_READ:
		if (s.iov_count)
			io_uring_prep_readv(sqe, s.fd, s.iov, s.iov_count, s.offset);
		else
			io_uring_prep_read(sqe, s.fd, s.buffer, (unsigned int)s.length, s.offset);
		break;
	case CALL_WRITE:
		if (s.iov_count)
			io_uring_prep_writev(sqe, s.fd, s.iov, s.iov_count, s.offset);
		else
			io_uring_prep_write(sqe, s.fd, s.buffer, (unsigned int)s.length, s.offset);
		sqe->rw_flags = s.flags;
		break;
	case CALL_ALLOCATE:
		io_uring_prep_fallocate(sqe, s.fd, s.flags, (off_t)s.offset, (off_t)s.length);
		break;
	default:
		io_uring_prep_fsync(sqe, s.fd, IORING_FSYNC_DATASYNC);
	}
	return true;
}

static int call_now(const struct file_step *s)
{
	struct iovec one = { s->buffer, s->length };
	struct iovec *iov = s->iov_count ? s->iov : &one;
	int count = s->iov_count ? (int)s->iov_count : 1;
	ssize_t ret;

	switch (s->call) {
	case CALL_READ:
		ret = preadv2(s->fd, iov, count, (off_t)s->offset, 0);
		break;
	case CALL_WRITE:
		ret = pwritev2(s->fd, iov, count, (off_t)s->offset, s->flags);
		break;
	case CALL_ALLOCATE:
		ret = fallocate(s->fd, s->flags, (off_t)s->offset, (off_t)s->length);
		break;
	default:
		ret = fdatasync(s->fd);
	}
	return ret < 0 ? -errno : (int)ret;
}

static uint16_t file_run(struct backend *backend, struct backend_io *io)
{
	struct file_step s;
	int res;

	do {
		s = next_step((struct backend_file *)backend, io);
		if (s.call == CALL_NONE)
			break;
		res = io->injected ? 0 : call_now(&s);
	} while (!file_complete(backend, io, res));
	return io->status;
}

static const struct backend_ops file_ops = {
	.close = file_close,
	.run = file_run,
	.prepare = file_prepare,
	.complete = file_complete,
};

/* ---- open ----------------------------------------------------------------- */

/*
 * In tmpfs a read or write is a copy: 0.9 million a second from here, 0.4 through io_uring, which
 * hands them to its workers.
 */
static void find_memory_file_system(struct backend_file *b)
{
	struct statfs fs;

	b->base.at_once = b->is_regular && !fstatfs(b->fd, &fs) &&
			  (fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC);
}

/* which alignment does O_DIRECT need here? Leaves direct_fd at -1 where it does not work */
static void probe_direct(struct backend_file *b, const char *path)
{
	uint32_t lba = b->base.info.lba_size;
	int flags = (b->base.info.read_only ? O_RDONLY : O_RDWR) | O_DIRECT | O_CLOEXEC;
	uint8_t *buffer = NULL;
	int fd = open(path, flags);

	if (fd < 0)
		return;
	if (posix_memalign((void **)&buffer, 8192, 8192))
		goto out_close;
	if (pread(fd, buffer, lba, 0) == (ssize_t)lba)
		b->direct_offset_align = lba;
	else if (lba < 4096 && pread(fd, buffer, 4096, 0) >= 0)
		b->direct_offset_align = 4096;
	else
		goto out_close;
	b->direct_memory_align = pread(fd, buffer + 512, b->direct_offset_align, 0) >= 0 ? 512
											 : 4096;
	b->direct_fd = fd;
	free(buffer);
	return;

out_close:
	free(buffer);
	close(fd);
}

/* Return: 0 or an errno, with text in @error */
static int find_size(struct backend_file *b, const char *path, char *error, size_t error_len)
{
	uint32_t lba = b->base.info.lba_size;
	uint64_t size = 0;
	struct stat st;
	int sector = 0;

	if (fstat(b->fd, &st)) {
		snprintf(error, error_len, "cannot examine '%s': %s", path, strerror(errno));
		return errno;
	}
	if (S_ISREG(st.st_mode)) {
		b->is_regular = true;
		size = (uint64_t)st.st_size;
	} else if (!S_ISBLK(st.st_mode)) {
		snprintf(error, error_len, "'%s' is neither a file nor a block device", path);
		return EINVAL;
	} else if (ioctl(b->fd, BLKGETSIZE64, &size) || ioctl(b->fd, BLKSSZGET, &sector)) {
		snprintf(error, error_len, "cannot ask '%s' for its size: %s", path,
			 strerror(errno));
		return errno;
	} else if ((uint32_t)sector > lba) {
		snprintf(error, error_len,
			 "'%s' has blocks of %d bytes, the namespace %u: use a block size of %d",
			 path, sector, lba, sector);
		return EINVAL;
	}
	if (size < lba) {
		snprintf(
			error, error_len,
			"'%s' has %llu bytes, less than one block of %u: make it larger (truncate -s 1G '%s')",
			path, (unsigned long long)size, lba, path);
		return EINVAL;
	}
	b->base.info.size_bytes = size / lba * lba;
	return 0;
}

struct backend *backend_open_file(const char *path, uint32_t lba_size, bool read_only, char *error,
				  size_t error_len)
{
	struct backend_file *b;
	int err;

	if (lba_size != 512 && lba_size != 4096) {
		snprintf(error, error_len, "block size %u: must be 512 or 4096", lba_size);
		errno = EINVAL;
		return NULL;
	}
	b = calloc(1, sizeof(*b));
	if (!b) {
		snprintf(error, error_len, "out of memory");
		errno = ENOMEM;
		return NULL;
	}
	b->base.ops = &file_ops;
	b->base.info.lba_size = lba_size;
	b->base.info.read_only = read_only;
	b->direct_fd = -1;
	/* O_NONBLOCK: do not hang on a FIFO; regular files and disks do not care */
	b->fd = open(path, (read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC | O_NONBLOCK);
	if (b->fd < 0) {
		err = errno;
		snprintf(error, error_len, "cannot open '%s'%s: %s%s", path,
			 read_only ? "" : " for writing", strerror(err),
			 err == ENOENT ? " (make it first: truncate -s 1G FILE)" : "");
		goto out_free;
	}
	/* with O_NONBLOCK set io_uring would answer EAGAIN instead of waiting for the disk */
	fcntl(b->fd, F_SETFL, fcntl(b->fd, F_GETFL) & ~O_NONBLOCK);
	err = find_size(b, path, error, error_len);
	if (err)
		goto out_close;
	b->path = strdup(path);
	if (!b->path || posix_memalign((void **)&b->zeroes, 4096, SCRATCH_LEN) ||
	    posix_memalign((void **)&b->discard, 4096, SCRATCH_LEN)) {
		snprintf(error, error_len, "out of memory");
		err = ENOMEM;
		goto out_close;
	}
	memset(b->zeroes, 0, SCRATCH_LEN);
	memset(b->discard, 0, SCRATCH_LEN);
	find_memory_file_system(b);
	if (!b->base.at_once)
		probe_direct(b, path);
	log_info("namespace on '%s': %llu bytes, %s", path,
		 (unsigned long long)b->base.info.size_bytes,
		 b->direct_fd >= 0 ? "O_DIRECT"
		 : b->base.at_once ? "in memory"
				   : "buffered");
	return &b->base;

out_close:
	close(b->fd);
out_free:
	free(b->zeroes);
	free(b->discard);
	free(b->path);
	free(b);
	errno = err;
	return NULL;
}
