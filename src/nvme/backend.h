/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * backend.h: what a back end (memory, file) offers to the soft controller. Internal to src/nvme
 * and its tests; the public side is in soft_ctrl.h.
 */
#ifndef SOFTHCA_NVME_BACKEND_H
#define SOFTHCA_NVME_BACKEND_H

#include <errno.h>
#include <stdatomic.h>
#include <liburing.h>
#include <sys/uio.h>

#include "nvme/soft_ctrl.h"

/*
 * One I/O. Filled in by the caller up to @iov_count; the rest is the back end's while it works.
 * READ, WRITE: iov describes exactly @length bytes; the back end may change the iovecs.
 */
struct backend_io {
	uint8_t opcode; /* NVME_CMD_READ, _WRITE, _FLUSH, _WRITE_ZEROES, _DSM, _VERIFY */
	bool fua;
	uint64_t offset, length; /* bytes, inside the namespace */
	struct iovec *iov;
	unsigned int iov_count;

	uint16_t status; /* out, once finished */

	uint64_t done; /* bytes */
	uint8_t stage, retries;
	bool buffered; /* not through the O_DIRECT descriptor */
	int injected;  /* result instead of the kernel's; 0 = none */
};

struct backend_ops {
	void (*close)(struct backend *backend);
	/* all of it in the caller's thread. Return: NVMe status */
	uint16_t (*run)(struct backend *backend, struct backend_io *io);
	/* where run() would block (not @at_once): fill in the I/O's next submission, or return
	 * false: it is finished, io->status is set */
	bool (*prepare)(struct backend *backend, struct backend_io *io, struct io_uring_sqe *sqe);
	/* a submission ended with @res. Return: true when finished; false: prepare() again */
	bool (*complete)(struct backend *backend, struct backend_io *io, int res);
};

struct backend {
	const struct backend_ops *ops;
	struct backend_info info;
	bool at_once;			 /* run() does not wait for a device: no io_uring needed */
	_Atomic unsigned int references; /* namespaces */
	/* tests: the @fail_in-th operation from now fails with -fail_errno; 0 = none does */
	_Atomic unsigned int fail_in;
	_Atomic int fail_errno, fail_more;
};

/* tests: make the @nth (from 1) operation of the back end fail with @error (an errno) */
void backend_fail_nth(struct backend *backend, unsigned int nth, int error);
/* ... and the @more operations after it */
void backend_fail_run(struct backend *backend, unsigned int nth, int more, int error);
/* Return: the errno to fail with now, or 0 */
int backend_injected(struct backend *backend);

/* NVMe status of a failed operation */
uint16_t backend_status(uint8_t opcode, int error);

#endif
