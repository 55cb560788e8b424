// SPDX-License-Identifier: BSD-2-Clause
/*
 * run.c: `softhca run CMD...`: starts an unmodified program on SoftHCA, by way of the drop-in
 * libraries (LD_LIBRARY_PATH) or of the interposer (LD_PRELOAD). Only the environment is changed;
 * the program takes this process's place, so that its exit status and signals are its own.
 */
#include "cli/cli.h"

#include <dlfcn.h>
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define EXIT_CANNOT_EXECUTE 126
#define EXIT_NOT_FOUND	    127

static const char help[] =
	"Usage: softhca run [OPTIONS] PROGRAM [ARGUMENTS]\n"
	"\n"
	"Runs an unmodified program that uses verbs or the RDMA CM on SoftHCA.\n"
	"\n"
	"  --preload       interpose (LD_PRELOAD) instead of replacing the libraries\n"
	"                  (LD_LIBRARY_PATH): hardware RDMA devices stay visible, and what clients\n"
	"                  look up in /sys/class/infiniband is answered\n"
	"  --devices LIST  network interfaces to make devices of, e.g. eth0,lo\n"
	"                  (default: all that are up and have an address)\n"
	"  --print         print the environment settings instead of running anything\n"
	"  -h, --help      this text\n"
	"\n"
	"Exit status: the program's; 126 when it cannot be run, 127 when it is not found.\n";

static int is_dir(const char *path)
{
	struct stat st;

	return !stat(path, &st) && S_ISDIR(st.st_mode);
}

/* the directory of the libsofthca.so in this process: what belongs to it lies beside it */
static int library_dir(char dir[PATH_MAX])
{
	char path[PATH_MAX];
	/* looked up, not named: in a program without PIC its address could be a stub of the
	 * program's */
	void *symbol = dlsym(RTLD_DEFAULT, "softhca_version");
	Dl_info info;

	if (!symbol || !dladdr(symbol, &info) || !realpath(info.dli_fname, path))
		return -1;
	snprintf(dir, PATH_MAX, "%s", dirname(path));
	return 0;
}

/* the drop-in directory: <libdir>/softhca when installed, <build>/src/front/dropin in a build tree
 */
static int dropin_dir(const char *libdir, char *path, size_t len)
{
	static const char *const names[] = { "dropin", "softhca" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(path, len, "%s/%s/libibverbs.so.1", libdir, names[i]);
		if (access(path, R_OK))
			continue;
		*strrchr(path, '/') = '\0';
		return is_dir(path) ? 0 : -1;
	}
	return -1;
}

/* put @value before what the environment variable @name holds */
static int prepend(const char *name, const char *value)
{
	const char *old = getenv(name);
	char *new;
	int ret;

	if (!old || !*old)
		return setenv(name, value, 1);
	if (asprintf(&new, "%s:%s", value, old) < 0)
		return -1;
	ret = setenv(name, new, 1);
	free(new);
	return ret;
}

static int set_environment(int preload)
{
	const char *name = preload ? "LD_PRELOAD" : "LD_LIBRARY_PATH";
	char libdir[PATH_MAX], path[PATH_MAX + 32];

	if (library_dir(libdir)) {
		fprintf(stderr, "softhca run: cannot find libsofthca.so\n");
		return -1;
	}
	if (preload) {
		snprintf(path, sizeof(path), "%s/libsofthca-preload.so", libdir);
		if (access(path, R_OK)) {
			fprintf(stderr, "softhca run: %s: %s\n", path, strerror(errno));
			return -1;
		}
	} else if (dropin_dir(libdir, path, sizeof(path))) {
		fprintf(stderr, "softhca run: no drop-in libibverbs.so.1 under %s\n", libdir);
		return -1;
	}
	return prepend(name, path);
}

static void print_environment(void)
{
	static const char *const names[] = { "LD_PRELOAD", "LD_LIBRARY_PATH", "SOFTHCA_DEVICES" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (getenv(names[i]))
			printf("export %s='%s'\n", names[i], getenv(names[i]));
}

int cli_run(int argc, char **argv)
{
	static const struct option options[] = {
		{ "preload", no_argument, NULL, 'p' },
		{ "devices", required_argument, NULL, 'd' },
		{ "print", no_argument, NULL, 'P' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	int preload = 0, print = 0, opt, error;

	/* options behind PROGRAM are the program's */
	while ((opt = cli_getopt(argc, argv, "softhca run", options)) != -1) {
		switch (opt) {
		case 'p':
			preload = 1;
			break;
		case 'd':
			setenv("SOFTHCA_DEVICES", optarg, 1);
			break;
		case 'P':
			print = 1;
			break;
		case 'h':
			fputs(help, stdout);
			return 0;
		default:
			return CLI_USAGE;
		}
	}
	if (optind == argc && !print)
		return cli_usage_error("softhca run", "no program given");
	if (set_environment(preload))
		return 1;
	if (print) {
		print_environment();
		return 0;
	}
	execvp(argv[optind], argv + optind);
	error = errno;
	fprintf(stderr, "softhca run: %s: %s\n", argv[optind], strerror(error));
	return error == ENOENT ? EXIT_NOT_FOUND : EXIT_CANNOT_EXECUTE;
}
