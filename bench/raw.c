// SPDX-License-Identifier: BSD-2-Clause
/*
 * raw.c: bench/raw: the bare UDP exchange of an NVMe-oF command (64-byte request, data one way,
 * 16-byte response), for bench/nvmf to stand beside. One line: regime before, exchanges a second,
 * regime after.
 *
 * bench/raw SIZE DEPTH read|write SECONDS
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "probe.h"

int main(int argc, char **argv)
{
	struct bench_pair pair;
	char before;
	double rate;

	if (argc != 5) {
		fprintf(stderr, "usage: bench/raw SIZE DEPTH read|write SECONDS\n");
		return 2;
	}
	before = probe_regime();
	pair_start(&pair);
	rate = raw_udp_exchange(&pair, strtoul(argv[1], NULL, 0),
				(unsigned int)strtoul(argv[2], NULL, 0), !strcmp(argv[3], "write"),
				atof(argv[4]));
	pair_end(&pair);
	printf("%c %.0f %c\n", before, rate, probe_regime());
	return 0;
}
