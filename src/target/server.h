/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * server.h: the target as a running program.
 */
#ifndef SOFTHCA_TARGET_SERVER_H
#define SOFTHCA_TARGET_SERVER_H

#include <stdbool.h>

#include "target/config.h"

struct server_options {
	bool offload; /* serve reads, writes and flushes by the adapter's offload */
	bool quiet;   /* no "listening" lines on stdout */
	const char
		*stats_file; /* JSON statistics, written on SIGUSR1 and at the end; may be NULL */
	/* SIGHUP: the configuration as it is now, NULL and @error; NULL = SIGHUP is refused.
	 * Namespaces are switched on and off; other changes need a restart */
	struct config *(*reload)(const void *arg, char *error, size_t error_len);
	const void *reload_arg;
};

/**
 * server_run() - serve @config until SIGTERM or SIGINT. Blocks the signals it handles and leaves
 * them blocked: a second SIGTERM must not cut the orderly end short. Call it before any thread
 * exists. SIGUSR1 prints the statistics.
 * @error: out on failure.
 * Return: 0 after an orderly end, -1 when it could not start.
 */
int server_run(const struct config *config, const struct server_options *options, char *error,
	       unsigned int error_len);

#endif
