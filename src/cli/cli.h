/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cli.h: the `softhca` command: one function a subcommand, and what they share.
 */
#ifndef SOFTHCA_CLI_CLI_H
#define SOFTHCA_CLI_CLI_H

#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>

/* exit statuses: 0 good, 1 it failed, 2 wrong usage */
#define CLI_USAGE 2

/* a subcommand: argv[0] is its name */
typedef int cli_function(int argc, char **argv);

cli_function cli_target, cli_nvme, cli_portd, cli_devices, cli_run, cli_version;

/**
 * cli_getopt() - getopt_long() with our messages: an unknown option, a missing or a needless
 * argument is named on stderr together with the help to ask for.
 * @command: "softhca target".
 * Return: as getopt_long(); '?' after a message: leave with CLI_USAGE.
 */
int cli_getopt(int argc, char **argv, const char *command, const struct option *options);

/* whole numbers within limits; false after a message that names the option */
bool cli_number(const char *command, const char *option, const char *text, uint64_t min,
		uint64_t max, uint64_t *value);
/* the same with K, M, G behind it */
bool cli_size(const char *command, const char *option, const char *text, uint64_t min, uint64_t max,
	      uint64_t *value);
/* "softhca target: message" on stderr; returns CLI_USAGE */
int cli_usage_error(const char *command, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* ---- progress on stderr for what takes more than two seconds ---- */

struct cli_progress {
	const char *what;
	uint64_t total, start_ns, shown_ns;
	bool enabled, visible;
};

/* @force: also when stderr is no terminal (then one line a step of two seconds) */
void cli_progress_start(struct cli_progress *progress, const char *what, uint64_t total,
			bool force);
void cli_progress_update(struct cli_progress *progress, uint64_t done);
void cli_progress_end(struct cli_progress *progress);

#endif
