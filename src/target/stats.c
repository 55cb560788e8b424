// SPDX-License-Identifier: BSD-2-Clause
/*
 * stats.c: what was offloaded, what software handled and how full the multi-packet receive buffers
 * became: as JSON for log page 0xc0 and for a file, and as a table.
 */
#include "target/rdma.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "softhca/softhca.h"
#include "util/bytes.h"
#include "util/log.h"

static const struct {
	uint8_t opcode;
	const char *key, *name;
} opcodes[] = {
	{ NVME_CMD_READ, "software_read", "read" },
	{ NVME_CMD_WRITE, "software_write", "write" },
	{ NVME_CMD_FLUSH, "software_flush", "flush" },
	{ NVME_CMD_COMPARE, "software_compare", "compare" },
	{ NVME_CMD_WRITE_ZEROES, "software_write_zeroes", "write zeroes" },
	{ NVME_CMD_DSM, "software_dataset_management", "dataset management" },
	{ NVME_CMD_VERIFY, "software_verify", "verify" },
};

struct ring_totals {
	uint64_t capsules, pieces, buffers, nops;
};

static void add_ring(struct ring_totals *totals, const struct ring *ring)
{
	totals->capsules += ring->capsules;
	totals->pieces += ring->pieces;
	totals->buffers += ring->consumed;
	totals->nops += ring->nops;
}

static void ring_totals(const struct transport *transport, struct ring_totals *totals)
{
	struct list_node *pos, *inner;

	*totals = (struct ring_totals){ 0 };
	list_for_each(pos, &transport->devices) {
		const struct device *device = list_entry(pos, struct device, node);

		add_ring(totals, device->ring);
		list_for_each(inner, &device->offloads)
			add_ring(totals, list_entry(inner, struct offload, node)->ring);
	}
}

static void offload_stats(const struct transport *transport, const struct subsystem *subsystem,
			  struct softhca_nvmf_srq_stats *sum)
{
	struct softhca_nvmf_srq_stats stats;
	struct list_node *pos, *inner;

	*sum = (struct softhca_nvmf_srq_stats){ 0 };
	list_for_each(pos, &transport->devices) {
		const struct device *device = list_entry(pos, struct device, node);

		list_for_each(inner, &device->offloads) {
			const struct offload *offload = list_entry(inner, struct offload, node);

			if (offload->subsystem != subsystem ||
			    softhca_query_nvmf_srq(offload->ring->srq, &stats))
				continue;
			sum->offloaded_read += stats.offloaded_read;
			sum->offloaded_write += stats.offloaded_write;
			sum->offloaded_flush += stats.offloaded_flush;
			sum->software += stats.software;
			sum->unknown_nsid += stats.unknown_nsid;
			sum->errors += stats.errors;
			sum->waits_staging += stats.waits_staging;
			sum->waits_sq += stats.waits_sq;
			sum->waits_rnr += stats.waits_rnr;
		}
	}
}

static uint64_t software_total(const struct subsystem *s)
{
	uint64_t total = 0;

	for (size_t i = 0; i < ARRAY_SIZE(s->software_opcodes); i++)
		total += s->software_opcodes[i];
	return total;
}

static json_t *number(uint64_t n)
{
	return json_integer((json_int_t)n);
}

static json_t *subsystem_json(const struct transport *transport, const struct subsystem *s)
{
	json_t *root = json_object(), *offload = json_object(), *software = json_object();
	json_t *mp_wr = json_object();
	struct softhca_nvmf_srq_stats stats;
	struct ring_totals rings;
	struct io_totals totals;

	offload_stats(transport, s, &stats);
	subsystem_totals(s, &transport->target, &totals);
	ring_totals(transport, &rings);
	json_object_set_new(root, "nqn", json_string(s->nqn));
	json_object_set_new(offload, "offloaded_read", number(stats.offloaded_read));
	json_object_set_new(offload, "offloaded_write", number(stats.offloaded_write));
	json_object_set_new(offload, "offloaded_flush", number(stats.offloaded_flush));
	json_object_set_new(offload, "to_software", number(stats.software));
	json_object_set_new(offload, "errors", number(stats.errors));
	json_object_set_new(offload, "unknown_nsid", number(stats.unknown_nsid));
	json_object_set_new(offload, "waits_staging", number(stats.waits_staging));
	json_object_set_new(offload, "waits_sq", number(stats.waits_sq));
	json_object_set_new(offload, "waits_rnr", number(stats.waits_rnr));
	for (size_t i = 0; i < ARRAY_SIZE(opcodes); i++)
		json_object_set_new(software, opcodes[i].key,
				    number(s->software_opcodes[opcodes[i].opcode]));
	json_object_set_new(software, "software_total", number(software_total(s)));
	json_object_set_new(mp_wr, "capsules", number(rings.capsules));
	json_object_set_new(mp_wr, "pieces", number(rings.pieces));
	json_object_set_new(mp_wr, "buffers", number(rings.buffers));
	json_object_set_new(mp_wr, "nops", number(rings.nops));
	json_object_set_new(mp_wr, "buffer_bytes", number(RING_BUFFER_BYTES));
	json_object_set_new(root, "offload", offload);
	json_object_set_new(root, "software", software);
	json_object_set_new(root, "mp_wr", mp_wr);
	json_object_set_new(root, "read_bytes", number(totals.read_bytes));
	json_object_set_new(root, "write_bytes", number(totals.write_bytes));
	return root;
}

size_t statistics_json(struct target *target, const struct subsystem *subsystem, char *text,
		       size_t len)
{
	json_t *root = subsystem_json(list_entry(target, struct transport, target), subsystem);
	size_t used = json_dumpb(root, text, len, JSON_COMPACT);

	json_decref(root);
	return used <= len ? used : 0;
}

void statistics_print(struct transport *transport)
{
	struct softhca_nvmf_srq_stats stats;
	struct ring_totals rings;
	struct list_node *pos;

	ring_totals(transport, &rings);
	list_for_each(pos, &transport->target.subsystems) {
		const struct subsystem *s = list_entry(pos, struct subsystem, node);

		offload_stats(transport, s, &stats);
		printf("%s\n", s->nqn);
		printf("  %-20s %14s %14s\n", "commands", "offloaded", "by software");
		printf("  %-20s %14llu %14llu\n", "read", (unsigned long long)stats.offloaded_read,
		       (unsigned long long)s->software_opcodes[NVME_CMD_READ]);
		printf("  %-20s %14llu %14llu\n", "write",
		       (unsigned long long)stats.offloaded_write,
		       (unsigned long long)s->software_opcodes[NVME_CMD_WRITE]);
		printf("  %-20s %14llu %14llu\n", "flush",
		       (unsigned long long)stats.offloaded_flush,
		       (unsigned long long)s->software_opcodes[NVME_CMD_FLUSH]);
		for (size_t i = 3; i < ARRAY_SIZE(opcodes); i++)
			printf("  %-20s %14s %14llu\n", opcodes[i].name, "-",
			       (unsigned long long)s->software_opcodes[opcodes[i].opcode]);
	}
	printf("multi-packet receives: %llu capsules in %llu pieces, %llu buffers given back,"
	       " %.1f capsules a buffer\n",
	       (unsigned long long)rings.capsules, (unsigned long long)rings.pieces,
	       (unsigned long long)rings.buffers,
	       rings.buffers ? (double)rings.capsules / (double)rings.buffers : 0.0);
	fflush(stdout);
}

bool statistics_write(struct transport *transport, const char *path)
{
	json_t *root = json_object(), *list = json_array();
	struct list_node *pos;
	int err;

	list_for_each(pos, &transport->target.subsystems)
		json_array_append_new(
			list, subsystem_json(transport, list_entry(pos, struct subsystem, node)));
	json_object_set_new(root, "subsystems", list);
	json_object_set_new(root, "connections", number(transport->connection_count));
	json_object_set_new(root, "rejected", number(transport->rejected));
	err = json_dump_file(root, path, JSON_INDENT(2));
	json_decref(root);
	if (err)
		log_error("cannot write %s: %s", path, strerror(errno));
	return !err;
}
