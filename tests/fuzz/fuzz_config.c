// SPDX-License-Identifier: BSD-2-Clause
/*
 * fuzz_config.c: the target's JSON configuration: any text is either a configuration whose parts
 * are in their limits, or an error that names the file and, but for what concerns the whole, a line
 * that the text has.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "target/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);

static void check(bool right)
{
	if (!right)
		abort();
}

static void check_config(const struct config *config)
{
	check(config->port_count && config->subsystem_count);
	for (size_t i = 0; i < config->subsystem_count; i++) {
		const struct config_subsystem *s = &config->subsystems[i];

		check(!config_nqn_error(s->nqn));
		for (size_t j = 0; j < s->namespace_count; j++) {
			const struct config_namespace *ns = &s->namespaces[j];

			check(ns->nsid && ns->nsid != UINT32_MAX);
			check(ns->lba_size == 512 || ns->lba_size == 4096);
			check(ns->path || ns->memory_bytes);
		}
	}
}

static void check_error(const char *error, const uint8_t *input, size_t size)
{
	size_t lines = 1;
	char *end;
	long line;

	check(!strncmp(error, "fuzz:", 5));
	if (error[5] == ' ')
		return;
	for (size_t i = 0; i < size; i++)
		lines += input[i] == '\n';
	line = strtol(error + 5, &end, 10);
	/* jansson counts -1 for what has no place */
	check(*end == ':' && line <= (long)lines);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
	char error[512] = "";
	struct config *config;

	config = config_parse_json("fuzz", (const char *)input, size, error, sizeof(error));
	if (config)
		check_config(config);
	else
		check_error(error, input, size);
	config_free(config);
	return 0;
}
