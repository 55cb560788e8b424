/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * target_process.h: a `softhca target` in a process of its own, for tests of hosts against it.
 */
#ifndef TESTS_INITIATOR_TARGET_PROCESS_H
#define TESTS_INITIATOR_TARGET_PROCESS_H

#include <stdint.h>
#include <sys/types.h>

struct target_process {
	pid_t pid;
	uint16_t port;
};

/* a TCP port that nobody uses just now: RDMA CM ports are apart from them, but as good */
uint16_t free_port(void);

/* starts @argv[0] with @argv (NULL at its end) and waits until it says that it listens */
void target_spawn(struct target_process *t, const char *const *argv);

/* SIGTERM; the test fails unless it ends with status 0 */
void stop_target(struct target_process *t);

#endif
