// SPDX-License-Identifier: BSD-2-Clause
/*
 * nvme_counters.c: the target's counters, which SoftHCA's target gives as JSON text in the vendor
 * specific log page 0xc0.
 */
#include "cli/nvme.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define TEXT_MAX 16384

static uint64_t number(json_t *root, const char *object, const char *key)
{
	json_int_t n = json_integer_value(json_object_get(json_object_get(root, object), key));

	return n > 0 ? (uint64_t)n : 0;
}

void nvme_counters_read(struct initiator *host, struct nvme_counters *c)
{
	static char text[TEXT_MAX];
	json_error_t error;
	json_t *root;

	*c = (struct nvme_counters){ 0 };
	if (initiator_get_log(host, NVME_LOG_SOFTHCA, 0, text, sizeof(text)))
		return;
	root = json_loadb(text, strnlen(text, sizeof(text)), 0, &error);
	if (!root)
		return;
	c->offloaded_read = number(root, "offload", "offloaded_read");
	c->offloaded_write = number(root, "offload", "offloaded_write");
	c->offloaded_flush = number(root, "offload", "offloaded_flush");
	c->software_read = number(root, "software", "software_read");
	c->software_write = number(root, "software", "software_write");
	c->software_flush = number(root, "software", "software_flush");
	c->software_total = number(root, "software", "software_total");
	c->capsules = number(root, "mp_wr", "capsules");
	c->pieces = number(root, "mp_wr", "pieces");
	c->buffers = number(root, "mp_wr", "buffers");
	c->known = json_is_object(json_object_get(root, "offload"));
	json_decref(root);
}

void nvme_counters_subtract(struct nvme_counters *after, const struct nvme_counters *before)
{
	after->offloaded_read -= before->offloaded_read;
	after->offloaded_write -= before->offloaded_write;
	after->offloaded_flush -= before->offloaded_flush;
	after->software_read -= before->software_read;
	after->software_write -= before->software_write;
	after->software_flush -= before->software_flush;
	after->software_total -= before->software_total;
	after->capsules -= before->capsules;
	after->pieces -= before->pieces;
	after->buffers -= before->buffers;
}

static void print_row(const char *name, uint64_t offloaded, uint64_t software)
{
	printf("%-13s %12" PRIu64 " %12" PRIu64 "\n", name, offloaded, software);
}

void nvme_counters_print(const struct nvme_counters *c)
{
	if (!c->known) {
		printf("\nthe target tells no counters (it is not SoftHCA's)\n");
		return;
	}
	printf("\n%-13s %12s %12s\n", "at the target", "offloaded", "by software");
	print_row("read", c->offloaded_read, c->software_read);
	print_row("write", c->offloaded_write, c->software_write);
	print_row("flush", c->offloaded_flush, c->software_flush);
	printf("%-13s %12s %12" PRIu64 "\n", "other I/O", "-",
	       c->software_total - c->software_read - c->software_write - c->software_flush);
	printf("\nmulti-packet receives: %" PRIu64 " capsules to software, %" PRIu64
	       " buffers given back",
	       c->capsules, c->buffers);
	if (c->buffers)
		printf(", %.1f capsules a buffer", (double)c->capsules / (double)c->buffers);
	else if (c->capsules)
		printf(": all in the first buffer%s", "");
	printf("\n");
}
