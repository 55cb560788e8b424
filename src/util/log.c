// SPDX-License-Identifier: BSD-2-Clause
/*
 * log.c: messages on stderr, one write(2) a line so that lines of several threads and processes
 * do not mix.
 */
#include "util/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <unistd.h>

int log_threshold = -1;

int log_threshold_init(void)
{
	static const char *const names[] = { "error", "warn", "info", "debug" };
	const char *env = getenv("SOFTHCA_LOG");
	int level = LOG_LEVEL_WARN;

	for (int i = 0; env && i < 4; i++)
		if (!strcasecmp(env, names[i]))
			level = i;
	log_threshold = level;
	return level;
}

void log_write(enum log_level level, const char *fmt, ...)
{
	char line[1024];
	int n = 0;
	va_list ap;

	if (level == LOG_LEVEL_DEBUG)
		n = snprintf(line, sizeof(line), "softhca[%d]: ", getpid());
	else
		n = snprintf(line, sizeof(line), "softhca: ");
	va_start(ap, fmt);
	n += vsnprintf(line + n, sizeof(line) - (size_t)n - 1, fmt, ap);
	va_end(ap);
	if (n > (int)sizeof(line) - 2)
		n = sizeof(line) - 2;
	line[n++] = '\n';
	if (write(STDERR_FILENO, line, (size_t)n) < 0)
		return; /* nowhere left to say so */
}
