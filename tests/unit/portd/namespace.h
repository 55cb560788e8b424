/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * namespace.h: runs a test in a process and a network namespace of its own, so that UDP 4791 and
 * the daemon's name are private to it.
 */
#ifndef TESTS_PORTD_NAMESPACE_H
#define TESTS_PORTD_NAMESPACE_H

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition);    \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)

#define CHECK_EQUAL(a, b)                                                                          \
	do {                                                                                       \
		long long a_ = (long long)(a), b_ = (long long)(b);                                \
		if (a_ != b_) {                                                                    \
			fprintf(stderr, "%s:%d: failed: %s == %s (%lld, %lld)\n", __FILE__,        \
				__LINE__, #a, #b, a_, b_);                                         \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)

#define NO_NAMESPACE 77

static inline void write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);

	if (fd < 0)
		return;
	if (write(fd, text, strlen(text)) < 0)
		perror(path);
	close(fd);
}

static inline void loopback_up(void)
{
	struct ifreq ifr = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	CHECK(!ioctl(fd, SIOCSIFFLAGS, &ifr));
	close(fd);
}

/* @many_users: processes in it will take other user IDs, which only real root can */
static inline void enter_namespace(int many_users)
{
	char map[64];
	uid_t uid = getuid();

	if (many_users) {
		if (unshare(CLONE_NEWNET))
			_exit(NO_NAMESPACE);
	} else if (!unshare(CLONE_NEWUSER | CLONE_NEWNET)) {
		snprintf(map, sizeof(map), "0 %u 1\n", uid);
		write_text("/proc/self/uid_map", map);
	} else if (unshare(CLONE_NEWNET)) {
		_exit(NO_NAMESPACE);
	}
}

/* Return: exit status of @fn's process; NO_NAMESPACE when the machine has none for us */
static inline int run_in_namespace(void (*fn)(void), int with_loopback, int many_users)
{
	int status;
	pid_t pid = fork();

	if (!pid) {
		enter_namespace(many_users);
		if (with_loopback)
			loopback_up();
		fn();
		_exit(0);
	}
	if (waitpid(pid, &status, 0) < 0)
		return -1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* a cmocka test around a function that runs in a namespace */
#define NAMESPACE_TEST(fn)	NAMESPACE_TEST_(fn, 0)
#define ROOT_NAMESPACE_TEST(fn) NAMESPACE_TEST_(fn, 1)
#define NAMESPACE_TEST_(fn, many_users)                                                            \
	static void test_##fn(void **state)                                                        \
	{                                                                                          \
		int status = run_in_namespace(fn, 1, many_users);                                  \
                                                                                                   \
		if (status == NO_NAMESPACE)                                                        \
			skip();                                                                    \
		assert_int_equal(status, 0);                                                       \
	}

/* a test in which a process that has threads forks, which TSan cannot follow, and gcc 12's ASan
 * only when no thread is inside its allocator at that moment */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define THREADED_FORK_TEST(fn)                                                                     \
	static void test_##fn(void **state)                                                        \
	{                                                                                          \
		(void)fn;                                                                          \
		skip();                                                                            \
	}
#else
#define THREADED_FORK_TEST(fn) NAMESPACE_TEST(fn)
#endif

#endif
