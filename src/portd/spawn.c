// SPDX-License-Identifier: BSD-2-Clause
/*
 * spawn.c: the library lives in any program: many threads, its own SIGCHLD handler, gigabytes of
 * memory. So no fork() of the program where a `softhca` binary can be found: two vfork-like
 * clones that share memory and stop the caller until the second has called execve(). They raise
 * no SIGCHLD, and the daemon becomes a child of init.
 *
 * Only when there is no binary is the program copied. The copy runs portd_main(), which uses
 * static memory and system calls only, so it does not matter which locks other threads held.
 */
#include "portd/spawn.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "portd/portd.h"
#include "util/bytes.h"
#include "util/log.h"

#define STACK_LEN (64U << 10) /* of each clone */

/*
 * ThreadSanitizer keeps its view of the calling thread in the shared memory and loses it to a
 * clone; it gets copies.
 */
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__ 1
#endif
#endif
#ifdef __SANITIZE_THREAD__
#define LAUNCH_FLAGS CLONE_VFORK
#else
#define LAUNCH_FLAGS (CLONE_VM | CLONE_VFORK)
#endif

extern char **environ;

static bool is_program(const char *path)
{
	struct stat st;

	return !stat(path, &st) && S_ISREG(st.st_mode) && !access(path, X_OK);
}

/* where the `softhca` binary may be, seen from the directory of this library or program */
static const char *const near_places[] = {
	"softhca",		/* statically linked into softhca itself */
	"../bin/softhca",	/* <prefix>/lib */
	"../../bin/softhca",	/* <prefix>/lib/<triplet>, or <prefix>/lib/softhca */
	"../../../bin/softhca", /* <prefix>/lib/<triplet>/softhca */
	"../cli/softhca",	/* build tree: src/front, src/cli */
};

static bool find_program(char *path, size_t len)
{
	/* not in a program that runs with more rights than its user */
	const char *env = secure_getenv("SOFTHCA_PORTD");
	char dir[PATH_MAX];
	Dl_info info;
	char *slash;

	if (env && *env) {
		snprintf(path, len, "%s", env);
		if (is_program(path))
			return true;
		log_warn("SOFTHCA_PORTD=%s is not a program: looking elsewhere", env);
	}
	if (dladdr((void *)find_program, &info) && info.dli_fname &&
	    realpath(info.dli_fname, dir) && (slash = strrchr(dir, '/'))) {
		*slash = 0;
		for (unsigned int i = 0; i < ARRAY_SIZE(near_places); i++) {
			if (snprintf(path, len, "%s/%s", dir, near_places[i]) >= (int)len)
				continue;
			if (is_program(path))
				return true;
		}
	}
#ifdef SOFTHCA_BINDIR
	snprintf(path, len, "%s/softhca", SOFTHCA_BINDIR);
	return is_program(path);
#else
	return false;
#endif
}

/* what every daemon does, by system calls only */
static void become_daemon(void)
{
	const char *log = secure_getenv("SOFTHCA_PORTD_LOG");
	sigset_t none;
	int null_fd, log_fd = -1;

	for (int sig = 1; sig < NSIG; sig++)
		signal(sig, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	setsid();
	umask(077);
	if (log && *log)
		log_fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW, 0600);
	if (chdir("/"))
		_exit(126);
	null_fd = open("/dev/null", O_RDWR);
	dup2(null_fd, STDIN_FILENO);
	dup2(null_fd, STDOUT_FILENO);
	dup2(log_fd >= 0 ? log_fd : null_fd, STDERR_FILENO);
#ifdef SYS_close_range
	if (!syscall(SYS_close_range, 3, ~0U, 0))
		return;
#endif
	for (int fd = 3; fd < 65536; fd++)
		close(fd);
}

#define ENV_MAX 1024

struct launch {
	const char *path;
	char *env[ENV_MAX + 1];
	char *stack; /* of the second clone */
	int err;
};

static int run_program(void *arg)
{
	struct launch *launch = arg;
	char *const argv[] = { (char *)"softhca", (char *)"portd", NULL };

	become_daemon();
	execve(launch->path, argv, launch->env);
	launch->err = -errno; /* memory is shared */
	return 127;
}

/* the first clone exists only to end, so that init inherits the second */
static int run_intermediate(void *arg)
{
	struct launch *launch = arg;

	if (clone(run_program, launch->stack + STACK_LEN, LAUNCH_FLAGS, launch) < 0)
		launch->err = -errno;
	return 0;
}

static void reap(pid_t pid)
{
	while (waitpid(pid, NULL, __WCLONE) < 0 && errno == EINTR)
		;
}

/* the environment, without what would load the interposer (softhca run) into the daemon */
static void copy_environment(char **env)
{
	unsigned int n = 0;

	for (char **e = environ; e && *e && n < ENV_MAX; e++)
		if (strncmp(*e, "LD_PRELOAD=", 11))
			env[n++] = *e;
	env[n] = NULL;
}

static int launch_program(const char *path)
{
	struct launch launch = { .path = path };
	char *stacks = mmap(NULL, 2 * STACK_LEN, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
	pid_t pid;

	if (stacks == MAP_FAILED)
		return -errno;
	copy_environment(launch.env);
	launch.stack = stacks + STACK_LEN;
	/* exit signal 0: the program's SIGCHLD handler and its wait() do not see it */
	pid = clone(run_intermediate, stacks + STACK_LEN, LAUNCH_FLAGS, &launch);
	if (pid < 0)
		launch.err = -errno;
	else
		reap(pid);
	munmap(stacks, 2 * STACK_LEN);
	return launch.err;
}

static int launch_copy(void)
{
	pid_t pid = (pid_t)syscall(SYS_clone, 0, NULL, NULL, NULL, NULL);

	if (pid < 0)
		return -errno;
	if (pid) {
		reap(pid);
		return 0;
	}
	if (syscall(SYS_clone, 0, NULL, NULL, NULL, NULL))
		_exit(0);
	become_daemon();
	prctl(PR_SET_NAME, "softhca-portd");
	_exit(portd_main(0));
}

int portd_spawn(void)
{
	char path[PATH_MAX];
	sigset_t all, before;
	int err = -ENOENT;

	/* handlers must not run in the clones, which share our memory */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	if (find_program(path, sizeof(path))) {
		err = launch_program(path);
		log_debug("portd: started %s: %s", path, err ? strerror(-err) : "ok");
	}
	if (err)
		err = launch_copy();
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return err;
}
