// SPDX-License-Identifier: BSD-2-Clause
/*
 * main.c: the `softhca` command: finds the subcommand and runs it.
 */
#include "cli/cli.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static cli_function cli_help;

static const struct {
	const char *name, *summary;
	cli_function *run;
} commands[] = {
	{ "target", "serve files or memory as NVMe-oF/RDMA namespaces", cli_target },
	{ "nvme", "an NVMe-oF/RDMA host in user space: discover, connect, test", cli_nvme },
	{ "run", "run a program with SoftHCA as its RDMA library", cli_run },
	{ "devices", "list the RDMA devices and their addresses", cli_devices },
	{ "portd", "the port daemon, in the foreground", cli_portd },
	{ "version", "print the version", cli_version },
	{ "help", "this text, or the help of a command", cli_help },
};

#define COMMAND_COUNT (sizeof(commands) / sizeof(commands[0]))

static void print_help(FILE *out)
{
	fputs("Usage: softhca COMMAND [OPTIONS]\n"
	      "\n"
	      "SoftHCA is an RDMA adapter (RoCEv2) in user space: no RDMA hardware, no kernel module,\n"
	      "no root. It offloads NVMe-oF targets.\n"
	      "\n"
	      "Commands:\n",
	      out);
	for (size_t i = 0; i < COMMAND_COUNT; i++)
		fprintf(out, "  %-9s %s\n", commands[i].name, commands[i].summary);
	fputs("\n"
	      "'softhca COMMAND --help' tells a command's options.\n"
	      "\n"
	      "Environment:\n"
	      "  SOFTHCA_DEVICES=eth0,lo       use these network interfaces only\n"
	      "  SOFTHCA_LOG=error|warn|info|debug   how much is said on stderr (warn)\n"
	      "  SOFTHCA_COUNTERS=1            print the adapter's counters at exit\n"
	      "\n"
	      "Exit status: 0 success, 1 failure, 2 wrong usage.\n",
	      out);
}

static int run_command(const char *name, int argc, char **argv)
{
	for (size_t i = 0; i < COMMAND_COUNT; i++)
		if (!strcmp(commands[i].name, name))
			return commands[i].run(argc, argv);
	fprintf(stderr, "softhca: unknown command '%s' (see 'softhca help')\n", name);
	return CLI_USAGE;
}

static int cli_help(int argc, char **argv)
{
	char help[] = "--help";
	char *args[3] = { NULL, help, NULL };

	if (argc < 2 || !strcmp(argv[1], "help") || !strcmp(argv[1], "--help")) {
		print_help(stdout);
		return 0;
	}
	args[0] = argv[1];
	return run_command(argv[1], 2, args);
}

/*
 * A closed standard descriptor would be given to the next file that is opened, a namespace's image
 * for one, and what is printed would go into it. A program of `softhca run` finds it closed again.
 */
static void occupy_standard_descriptors(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd >= 0)
		close(fd);
}

int main(int argc, char **argv)
{
	occupy_standard_descriptors();
	if (argc < 2) {
		print_help(stderr);
		return CLI_USAGE;
	}
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")) {
		print_help(stdout);
		return 0;
	}
	if (!strcmp(argv[1], "--version"))
		return cli_version(1, argv + 1);
	if (argv[1][0] == '-')
		return cli_usage_error("softhca", "unknown option '%s'", argv[1]);
	return run_command(argv[1], argc - 1, argv + 1);
}
