// SPDX-License-Identifier: BSD-2-Clause
/*
 * subsystem.c: subsystems, their namespaces and the ports that offer them.
 */
#include "target/model.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/bytes.h"
#include "util/log.h"

#define FNV_OFFSET 0xcbf29ce484222325ULL
#define FNV_PRIME  0x100000001b3ULL

/* identifiers that stay the same over restarts: a hash of what the namespace is called */
static uint64_t hash(uint64_t seed, const void *data, size_t len)
{
	const uint8_t *bytes = data;

	for (size_t i = 0; i < len; i++)
		seed = (seed ^ bytes[i]) * FNV_PRIME;
	return seed;
}

static void derive_uuid(uint8_t uuid[16], const char *nqn, uint32_t nsid, uint64_t seed)
{
	uint64_t high = hash(FNV_OFFSET ^ seed, nqn, strlen(nqn));
	uint64_t low;

	high = hash(high, &nsid, sizeof(nsid));
	low = hash(high ^ FNV_OFFSET, nqn, strlen(nqn));
	put_be64(uuid, high);
	put_be64(uuid + 8, low);
	uuid[6] = (uint8_t)((uuid[6] & 0x0f) | 0x80); /* RFC 9562: version 8, vendor specific */
	uuid[8] = (uint8_t)((uuid[8] & 0x3f) | 0x80);
}

static bool all_zero(const uint8_t *bytes, size_t len)
{
	while (len && !bytes[len - 1])
		len--;
	return !len;
}

void target_init(struct target *target)
{
	memset(target, 0, sizeof(*target));
	list_init(&target->subsystems);
	list_init(&target->ports);
	list_init(&target->controllers);
	target->genctr = 1;
	target->next_cntlid = NVMF_CNTLID_MIN;
}

static void subsystem_free(struct subsystem *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < s->namespace_count; i++) {
		if (s->namespaces[i].backend)
			backend_close(s->namespaces[i].backend);
		free(s->namespaces[i].path);
	}
	for (size_t i = 0; i < s->allowed_host_count; i++)
		free(s->allowed_hosts[i]);
	free(s->allowed_hosts);
	free(s->namespaces);
	free(s);
}

void target_free(struct target *target)
{
	struct list_node *node;

	while ((node = list_pop(&target->controllers)))
		controller_destroy(list_entry(node, struct controller, node));
	while ((node = list_pop(&target->ports))) {
		struct port *port = list_entry(node, struct port, node);

		free(port->subsystems);
		free(port);
	}
	while ((node = list_pop(&target->subsystems)))
		subsystem_free(list_entry(node, struct subsystem, node));
	subsystem_free(target->discovery);
	target->discovery = NULL;
}

static bool open_namespace(struct namespace *ns, const struct config_namespace *config,
			   const char *nqn, char *error, size_t error_len)
{
	char reason[512] = "";

	ns->nsid = config->nsid;
	ns->enabled = config->enabled;
	if (config->path)
		ns->backend = backend_open_file(config->path, config->lba_size, config->read_only,
						reason, sizeof(reason));
	else
		ns->backend = backend_open_memory(config->memory_bytes, config->lba_size);
	if (!ns->backend) {
		if (!*reason)
			snprintf(reason, sizeof(reason), "%s: %s",
				 config->path ? config->path : "memory", strerror(errno));
		snprintf(error, error_len, "namespace %u of %s: %s", ns->nsid, nqn, reason);
		return false;
	}
	ns->path = config->path ? strdup(config->path) : NULL;
	backend_get_info(ns->backend, &ns->info);
	ns->blocks = ns->info.lba_size ? ns->info.size_bytes / ns->info.lba_size : 0;
	if (!ns->blocks) {
		snprintf(error, error_len, "namespace %u of %s: %s is smaller than one block",
			 ns->nsid, nqn, config->path ? config->path : "memory");
		return false;
	}
	if (config->has_uuid && !all_zero(config->uuid, 16))
		memcpy(ns->uuid, config->uuid, 16);
	else
		derive_uuid(ns->uuid, nqn, ns->nsid, 1);
	if (config->has_nguid && !all_zero(config->nguid, 16))
		memcpy(ns->nguid, config->nguid, 16);
	else
		derive_uuid(ns->nguid, nqn, ns->nsid, 2);
	return true;
}

static int compare_nsid(const void *a, const void *b)
{
	const struct namespace *x = a, *y = b;

	return (x->nsid > y->nsid) - (x->nsid < y->nsid);
}

static struct subsystem *subsystem_create(const struct config_subsystem *config, char *error,
					  size_t error_len)
{
	struct subsystem *s = calloc(1, sizeof(*s));

	snprintf(error, error_len, "out of memory");
	if (!s)
		return NULL;
	strcpy(s->nqn, config->nqn);
	if (*config->serial)
		strcpy(s->serial, config->serial);
	else
		snprintf(s->serial, sizeof(s->serial), "%016llx",
			 (unsigned long long)hash(FNV_OFFSET, s->nqn, strlen(s->nqn)));
	strcpy(s->model, *config->model ? config->model : "SoftHCA target");
	s->allow_any_host = config->allow_any_host;
	s->io_queues = config->qid_max ? config->qid_max : TARGET_IO_QUEUES;
	s->allowed_hosts = calloc(config->allowed_host_count + 1, sizeof(*s->allowed_hosts));
	s->namespaces = calloc(config->namespace_count + 1, sizeof(*s->namespaces));
	if (!s->allowed_hosts || !s->namespaces)
		goto out_free;
	for (size_t i = 0; i < config->allowed_host_count; i++) {
		s->allowed_hosts[i] = strdup(config->allowed_hosts[i]);
		if (!s->allowed_hosts[i])
			goto out_free;
		s->allowed_host_count++;
	}
	for (size_t i = 0; i < config->namespace_count; i++) {
		s->namespace_count++;
		if (!open_namespace(&s->namespaces[i], &config->namespaces[i], s->nqn, error,
				    error_len))
			goto out_free;
	}
	qsort(s->namespaces, s->namespace_count, sizeof(*s->namespaces), compare_nsid);
	return s;

out_free:
	subsystem_free(s);
	return NULL;
}

static bool port_create(struct target *target, const struct config_port *config)
{
	struct port *port = calloc(1, sizeof(*port));
	struct in6_addr addr = { 0 };

	if (!port)
		return false;
	port->portid = config->portid;
	port->family = config->family;
	port->port = config->port;
	strcpy(port->traddr, config->traddr);
	port->subsystems = calloc(config->subsystem_count + 1, sizeof(*port->subsystems));
	if (!port->subsystems || inet_pton(port->family, port->traddr, &addr) != 1) {
		free(port->subsystems);
		free(port);
		return false;
	}
	port->wildcard = all_zero((const uint8_t *)&addr, port->family == AF_INET ? 4 : 16);
	for (size_t i = 0; i < config->subsystem_count; i++) {
		struct subsystem *s = subsystem_find(target, config->subsystems[i]);

		if (s)
			port->subsystems[port->subsystem_count++] = s;
	}
	list_add_tail(&target->ports, &port->node);
	return true;
}

bool target_configure(struct target *target, const struct config *config, char *error,
		      size_t error_len)
{
	target->discovery = calloc(1, sizeof(*target->discovery));
	if (!target->discovery)
		goto out_memory;
	strcpy(target->discovery->nqn, NVMF_DISCOVERY_NQN);
	strcpy(target->discovery->model, "SoftHCA target");
	strcpy(target->discovery->serial, "discovery");
	target->discovery->discovery = true;
	target->discovery->allow_any_host = true;
	target->in_capsule_bytes = config->in_capsule_bytes;
	for (size_t i = 0; i < config->subsystem_count; i++) {
		struct subsystem *s = subsystem_create(&config->subsystems[i], error, error_len);

		if (!s)
			return false;
		list_add_tail(&target->subsystems, &s->node);
	}
	for (size_t i = 0; i < config->port_count; i++)
		if (!port_create(target, &config->ports[i]))
			goto out_memory;
	return true;

out_memory:
	snprintf(error, error_len, "out of memory");
	return false;
}

struct subsystem *subsystem_find(struct target *target, const char *nqn)
{
	struct list_node *pos;

	list_for_each(pos, &target->subsystems) {
		struct subsystem *s = list_entry(pos, struct subsystem, node);

		if (!strcmp(s->nqn, nqn))
			return s;
	}
	return NULL;
}

struct subsystem *port_find_subsystem(const struct port *port, struct target *target,
				      const char *nqn)
{
	if (!strcmp(nqn, NVMF_DISCOVERY_NQN))
		return target->discovery;
	for (size_t i = 0; i < port->subsystem_count; i++)
		if (!strcmp(port->subsystems[i]->nqn, nqn))
			return port->subsystems[i];
	return NULL;
}

bool subsystem_host_allowed(const struct subsystem *s, const char *hostnqn)
{
	if (s->allow_any_host)
		return true;
	for (size_t i = 0; i < s->allowed_host_count; i++)
		if (!strcmp(s->allowed_hosts[i], hostnqn))
			return true;
	return false;
}

static struct namespace *find_namespace(const struct subsystem *s, uint32_t nsid)
{
	struct namespace key = { .nsid = nsid };

	if (!s->namespace_count)
		return NULL;
	return bsearch(&key, s->namespaces, s->namespace_count, sizeof(key), compare_nsid);
}

struct namespace *subsystem_namespace(const struct subsystem *s, uint32_t nsid)
{
	struct namespace *ns = find_namespace(s, nsid);

	return ns && ns->enabled ? ns : NULL;
}

uint32_t subsystem_highest_nsid(const struct subsystem *s)
{
	return s->namespace_count ? s->namespaces[s->namespace_count - 1].nsid : 0;
}

void subsystem_totals(const struct subsystem *s, const struct target *target,
		      struct io_totals *totals)
{
	*totals = (struct io_totals){ 0 };
	if (target->offload_totals)
		target->offload_totals(s, totals);
	totals->read_commands += s->software.read_commands;
	totals->read_bytes += s->software.read_bytes;
	totals->write_commands += s->software.write_commands;
	totals->write_bytes += s->software.write_bytes;
}

uint16_t subsystem_flush(const struct subsystem *s)
{
	uint16_t status, result = NVME_SC_SUCCESS;

	for (size_t i = 0; i < s->namespace_count; i++) {
		if (!s->namespaces[i].enabled)
			continue;
		status = backend_sync_io(s->namespaces[i].backend, NVME_CMD_FLUSH, 0, 0, NULL,
					 false);
		if (status)
			result = status;
	}
	return result;
}

bool subsystem_enable_namespace(struct target *target, struct subsystem *s, uint32_t nsid,
				bool enable)
{
	struct namespace *ns = find_namespace(s, nsid);
	struct list_node *pos;

	if (!ns)
		return false;
	if (ns->enabled == enable)
		return true;
	ns->enabled = enable;
	list_for_each(pos, &target->controllers) {
		struct controller *ctrl = list_entry(pos, struct controller, node);

		if (ctrl->subsystem == s)
			controller_namespace_changed(ctrl, nsid);
	}
	return true;
}
