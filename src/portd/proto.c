// SPDX-License-Identifier: BSD-2-Clause
/*
 * proto.c: messages between the port daemon and its clients, and the descriptors beside them.
 * Every descriptor that arrives is either given to the caller or closed: nothing a peer sends may
 * leak one.
 */
#include "portd/proto.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

void portd_fds_init(struct portd_fds *fds)
{
	memset(fds, 0xff, sizeof(*fds)); /* all -1 */
}

void portd_fds_close(struct portd_fds *fds)
{
	for (int family = 0; family < 2; family++)
		for (int slot = 0; slot < PORTD_SLOTS; slot++)
			if (fds->fd[family][slot] >= 0)
				close(fds->fd[family][slot]);
	portd_fds_init(fds);
}

int portd_fd_move_up(int fd)
{
	int up;

	if (fd < 0 || fd >= PORTD_FD_MIN)
		return fd;
	up = fcntl(fd, F_DUPFD_CLOEXEC, PORTD_FD_MIN);
	if (up < 0)
		return fd; /* a low descriptor limit: better low than not at all */
	close(fd);
	return up;
}

int portd_msg_send(int sock, struct portd_msg *msg, const struct portd_fds *fds, uint64_t mask,
		   int flags)
{
	union {
		char buf[CMSG_SPACE(PORTD_MSG_MAX_FDS * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec iov = { .iov_base = msg, .iov_len = sizeof(*msg) };
	struct msghdr mh = { .msg_iov = &iov, .msg_iovlen = 1 };
	int list[PORTD_MSG_MAX_FDS], count = 0;
	uint64_t present[2] = { 0, 0 };

	for (int family = 0; fds && family < 2; family++)
		for (int slot = 0; slot < PORTD_SLOTS; slot++) {
			if (!(mask >> slot & 1) || fds->fd[family][slot] < 0)
				continue;
			present[family] |= 1ULL << slot;
			list[count++] = fds->fd[family][slot];
		}
	msg->magic = PORTD_MAGIC;
	msg->slots4 = present[0];
	msg->slots6 = present[1];
	if (count) {
		size_t len = (size_t)count * sizeof(int);
		struct cmsghdr *cmsg;

		memset(&control, 0, sizeof(control));
		mh.msg_control = control.buf;
		mh.msg_controllen = CMSG_SPACE(len);
		cmsg = CMSG_FIRSTHDR(&mh);
		cmsg->cmsg_level = SOL_SOCKET;
		cmsg->cmsg_type = SCM_RIGHTS;
		cmsg->cmsg_len = CMSG_LEN(len);
		memcpy(CMSG_DATA(cmsg), list, len);
	}
	for (;;) {
		if (sendmsg(sock, &mh, flags | MSG_NOSIGNAL) == (ssize_t)sizeof(*msg))
			return 0;
		if (errno != EINTR)
			return -errno;
	}
}

/* hand the descriptors to the slots the message names; false when the counts do not agree */
static bool distribute_fds(const struct portd_msg *msg, struct portd_fds *fds, const int *list,
			   int count)
{
	const uint64_t present[2] = { msg->slots4, msg->slots6 };

	if (__builtin_popcountll(msg->slots4) + __builtin_popcountll(msg->slots6) != count)
		return false;
	if ((msg->slots4 | msg->slots6) & ~PORTD_ALL_SLOTS)
		return false;
	for (int family = 0; family < 2; family++)
		for (int slot = 0; slot < PORTD_SLOTS; slot++)
			if (present[family] >> slot & 1)
				fds->fd[family][slot] = portd_fd_move_up(*list++);
	return true;
}

int portd_msg_recv(int sock, struct portd_msg *msg, struct portd_fds *fds, int flags)
{
	union {
		/* a peer may send up to 253: room for all, so that none is left unseen */
		char buf[CMSG_SPACE(253 * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec iov = { .iov_base = msg, .iov_len = sizeof(*msg) };
	struct msghdr mh = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.buf,
		.msg_controllen = sizeof(control.buf),
	};
	int list[253], count = 0, keep = 0;
	bool is_message;
	ssize_t n;

	if (fds)
		portd_fds_init(fds);
	do {
		n = recvmsg(sock, &mh, flags | MSG_CMSG_CLOEXEC);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	for (struct cmsghdr *cmsg = CMSG_FIRSTHDR(&mh); cmsg; cmsg = CMSG_NXTHDR(&mh, cmsg)) {
		if (cmsg->cmsg_level != SOL_SOCKET || cmsg->cmsg_type != SCM_RIGHTS)
			continue;
		count = (int)((cmsg->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		memcpy(list, CMSG_DATA(cmsg), (size_t)count * sizeof(int));
	}
	is_message = n == (ssize_t)sizeof(*msg) && !(mh.msg_flags & MSG_TRUNC) &&
		     msg->magic == PORTD_MAGIC;
	if (is_message && fds && !(mh.msg_flags & MSG_CTRUNC))
		keep = distribute_fds(msg, fds, list, count);
	if (!keep) {
		for (int i = 0; i < count; i++)
			close(list[i]);
		if (is_message && (mh.msg_flags & MSG_CTRUNC || !fds))
			msg->slots4 = msg->slots6 = 0;
		else if (count || (is_message && (msg->slots4 | msg->slots6)))
			is_message = false;
	}
	if (n == 0 && !count)
		return 0;
	return is_message ? 1 : -EPROTO;
}

static socklen_t name_address(struct sockaddr_un *sun)
{
	memset(sun, 0, sizeof(*sun));
	sun->sun_family = AF_UNIX;
	memcpy(sun->sun_path + 1, PORTD_NAME, sizeof(PORTD_NAME) - 1);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + sizeof(PORTD_NAME));
}

int portd_name_connect(void)
{
	const struct timeval timeout = { .tv_sec = 1 };
	struct sockaddr_un sun;
	socklen_t len = name_address(&sun);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	fd = portd_fd_move_up(fd);
	/* bounds connect() when the daemon's backlog is full, and sends when it is stopped */
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
	if (connect(fd, (struct sockaddr *)&sun, len)) {
		int err = -errno;

		close(fd);
		return err;
	}
	return fd;
}

int portd_name_bind(void)
{
	struct sockaddr_un sun;
	socklen_t len = name_address(&sun);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -errno;
	if (bind(fd, (struct sockaddr *)&sun, len) || listen(fd, 128)) {
		int err = -errno;

		close(fd);
		return err;
	}
	return fd;
}
