// SPDX-License-Identifier: BSD-2-Clause
/*
 * options.c: reading options and numbers, with messages that name what is wrong and where help is.
 */
#include "cli/cli.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "target/config.h"

int cli_usage_error(const char *command, const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "%s: ", command);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, " (see '%s --help')\n", command);
	return CLI_USAGE;
}

int cli_getopt(int argc, char **argv, const char *command, const struct option *options)
{
	int c;

	opterr = 0;
	c = getopt_long(argc, argv, "+:h", options, NULL);
	if (c == '?') {
		const char *text = argv[optind - 1];

		if (optopt && optopt < 256 && isprint(optopt) && strncmp(text, "--", 2))
			cli_usage_error(command, "unknown option '-%c'", optopt);
		else if (strchr(text, '=') && optopt)
			cli_usage_error(command, "option '%.*s' takes no value",
					(int)strcspn(text, "="), text);
		else
			cli_usage_error(command, "unknown option '%s'", text);
		return '?';
	}
	if (c == ':') {
		cli_usage_error(command, "option '%s' needs a value", argv[optind - 1]);
		return '?';
	}
	return c;
}

bool cli_number(const char *command, const char *option, const char *text, uint64_t min,
		uint64_t max, uint64_t *value)
{
	char *end = NULL;

	errno = 0;
	*value = strtoull(text, &end, 0);
	if (isdigit((unsigned char)*text) && !*end && !errno && *value >= min && *value <= max)
		return true;
	cli_usage_error(command, "%s %s: must be a number from %" PRIu64 " to %" PRIu64, option,
			text, min, max);
	return false;
}

bool cli_size(const char *command, const char *option, const char *text, uint64_t min, uint64_t max,
	      uint64_t *value)
{
	if (config_parse_size(text, value) && *value >= min && *value <= max)
		return true;
	cli_usage_error(command, "%s %s: must be a size from %" PRIu64 " to %" PRIu64 " bytes",
			option, text, min, max);
	return false;
}
