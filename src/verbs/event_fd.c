/* SPDX-License-Identifier: BSD-2-Clause */
/* event_fd.c: see event_fd.h */
#include <errno.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include "util/log.h"
#include "verbs/event_fd.h"

int event_fd_create(void)
{
	return eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
}

void event_fd_post(int fd)
{
	uint64_t one = 1;

	if (write(fd, &one, sizeof(one)) != sizeof(one))
		log_debug(
			"event descriptor %d: write failed, errno %d (closed by the application?)",
			fd, errno);
}

int event_fd_wait(int fd)
{
	uint64_t value;
	ssize_t n = read(fd, &value, sizeof(value));

	if (n == sizeof(value))
		return 0;
	return n < 0 ? errno : EIO;
}

void event_fd_take_back(int fd, unsigned int count)
{
	uint64_t value;
	struct iovec iov = { &value, sizeof(value) };

	/* RWF_NOWAIT: the descriptor may be blocking and another thread may have been faster */
	while (count-- && preadv2(fd, &iov, 1, -1, RWF_NOWAIT) == sizeof(value))
		;
}
