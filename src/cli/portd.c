// SPDX-License-Identifier: BSD-2-Clause
/*
 * portd.c: softhca portd: the port daemon in the foreground, for systemd and for debugging.
 */
#include "cli/cli.h"

#include <stdio.h>

#include "portd/portd.h"

static const char help[] =
	"Usage: softhca portd [--stay]\n"
	"\n"
	"Runs the port daemon, which owns UDP port 4791 of this network namespace, in the\n"
	"foreground. Programs start it by themselves when they need it; this command is for a\n"
	"service manager, which keeps it running.\n"
	"\n"
	"  --stay      do not leave with the last client\n"
	"  -h, --help  this text\n"
	"\n"
	"SIGTERM ends it; clients keep their connections and start the next one.\n";

int cli_portd(int argc, char **argv)
{
	static const struct option options[] = {
		{ "stay", no_argument, NULL, 's' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	int stay = 0, c;

	while ((c = cli_getopt(argc, argv, "softhca portd", options)) != -1) {
		switch (c) {
		case 's':
			stay = 1;
			break;
		case 'h':
			fputs(help, stdout);
			return 0;
		default:
			return CLI_USAGE;
		}
	}
	if (optind < argc)
		return cli_usage_error("softhca portd", "unknown argument '%s'", argv[optind]);
	return portd_main(stay);
}
