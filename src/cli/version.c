// SPDX-License-Identifier: BSD-2-Clause
/*
 * version.c: softhca version.
 */
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>

#include "softhca/softhca.h"

int cli_version(int argc, char **argv)
{
	if (argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
		puts("Usage: softhca version\n\nPrints the version of this command and of the library.");
		return 0;
	}
	if (argc > 1)
		return cli_usage_error("softhca version", "unknown argument '%s'", argv[1]);
	printf("softhca %s (library %s)\n", SOFTHCA_VERSION, softhca_version());
	return 0;
}
