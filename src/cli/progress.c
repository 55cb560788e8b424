// SPDX-License-Identifier: BSD-2-Clause
/*
 * progress.c: a progress bar on stderr. Nothing is shown for the first two seconds, so that short
 * work stays quiet.
 */
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "util/clock.h"

#define QUIET_NS  (2 * NSEC_PER_SEC)
#define BAR_WIDTH 40

static bool is_terminal(void)
{
	return isatty(STDERR_FILENO);
}

void cli_progress_start(struct cli_progress *progress, const char *what, uint64_t total, bool force)
{
	*progress = (struct cli_progress){
		.what = what,
		.total = total ? total : 1,
		.start_ns = clock_ns(),
		.enabled = force || is_terminal(),
	};
}

void cli_progress_update(struct cli_progress *progress, uint64_t done)
{
	char bar[BAR_WIDTH + 1];
	uint64_t now, elapsed, left;
	unsigned int filled;

	if (!progress->enabled)
		return;
	now = clock_ns();
	elapsed = now - progress->start_ns;
	if (elapsed < QUIET_NS ||
	    now - progress->shown_ns < (is_terminal() ? NSEC_PER_SEC / 5 : QUIET_NS))
		return;
	progress->shown_ns = now;
	progress->visible = true;
	if (done > progress->total)
		done = progress->total;
	filled = (unsigned int)((double)done / (double)progress->total * BAR_WIDTH);
	memset(bar, '#', filled);
	memset(bar + filled, '.', BAR_WIDTH - filled);
	bar[BAR_WIDTH] = 0;
	left = done ? (uint64_t)((double)elapsed / (double)done * (double)(progress->total - done))
		    : 0;
	fprintf(stderr, "%s%-12s [%s] %3.0f %%  %llu s left%s", is_terminal() ? "\r" : "",
		progress->what, bar, 100.0 * (double)done / (double)progress->total,
		(unsigned long long)(left / NSEC_PER_SEC), is_terminal() ? "   " : "\n");
	fflush(stderr);
}

void cli_progress_end(struct cli_progress *progress)
{
	if (progress->visible && is_terminal())
		fprintf(stderr, "\r%*s\r", BAR_WIDTH + 50, "");
	progress->enabled = false;
}
