// SPDX-License-Identifier: BSD-2-Clause
/*
 * config_json.c: the configuration as a JSON file in nvmetcli's format. Strict: a key that is not
 * known is an error, and every error names the file, the line and the key's path. Keys that
 * nvmetcli saves and that have no meaning here (ANA groups, OUI, ...) are known and skipped.
 */
#include "target/config.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nvme/spec.h"
#include "target/json_line.h"
#include "util/bytes.h"

#define FILE_SIZE_MAX (16U << 20)

struct reader {
	const char *name, *text;
	size_t len;
	struct json_path path; /* where the reader is */
	char *error;
	size_t error_len;
	bool in_capsule_given; /* by a port: all have the same */
	uint32_t in_capsule_bytes;
};

struct key {
	const char *name;
	bool (*read)(struct reader *r, json_t *value, void *out); /* NULL: known, skipped */
};

static bool __attribute__((format(printf, 2, 3))) fail(struct reader *r, const char *fmt, ...)
{
	char path[512], message[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(message, sizeof(message), fmt, ap);
	va_end(ap);
	json_path_print(&r->path, path, sizeof(path));
	snprintf(r->error, r->error_len, "%s:%d: %s%s%s", r->name,
		 json_path_line(&r->path, r->text, r->len), path, r->path.depth ? ": " : "",
		 message);
	return false;
}

static bool push(struct reader *r, const char *key, size_t index)
{
	if (r->path.depth == JSON_PATH_MAX)
		return fail(r, "nested too deeply");
	r->path.step[r->path.depth++] = (struct json_step){ key, index };
	return true;
}

/* the path keeps pointing at the fault: it is popped on success only */
static void pop(struct reader *r)
{
	r->path.depth--;
}

static bool read_object(struct reader *r, json_t *object, const struct key *keys, void *out)
{
	const char *name;
	json_t *value;

	if (!json_is_object(object))
		return fail(r, "must be an object {...}");
	json_object_foreach(object, name, value)
	{
		const struct key *key = keys;

		if (!push(r, name, 0))
			return false;
		while (key->name && strcmp(key->name, name))
			key++;
		if (!key->name)
			return fail(r, "unknown key");
		if (key->read && !key->read(r, value, out))
			return false;
		pop(r);
	}
	return true;
}

static bool read_array(struct reader *r, json_t *array,
		       bool (*read)(struct reader *r, json_t *value, void *out), void *out)
{
	size_t index;
	json_t *value;

	if (!json_is_array(array))
		return fail(r, "must be a list [...]");
	json_array_foreach(array, index, value)
	{
		if (!push(r, NULL, index) || !read(r, value, out))
			return false;
		pop(r);
	}
	return true;
}

/* missing keys are reported at the object that lacks them */
static bool need(struct reader *r, json_t *object, const char *key)
{
	return json_object_get(object, key) || fail(r, "needs the key \"%s\"", key);
}

static bool get_string(struct reader *r, json_t *value, const char **text)
{
	if (!json_is_string(value))
		return fail(r, "must be a string");
	*text = json_string_value(value);
	if (strlen(*text) != json_string_length(value))
		return fail(r, "contains a NUL character");
	return true;
}

/* nvmetcli saves numbers as numbers or as strings */
static bool get_number(struct reader *r, json_t *value, uint64_t min, uint64_t max, uint64_t *n)
{
	const char *text = NULL;
	char *end;

	if (json_is_boolean(value)) {
		*n = json_is_true(value);
	} else if (json_is_integer(value)) {
		if (json_integer_value(value) < 0)
			return fail(r, "must be from %" PRIu64 " to %" PRIu64, min, max);
		*n = (uint64_t)json_integer_value(value);
	} else if (json_is_string(value)) {
		text = json_string_value(value);
		errno = 0;
		*n = strtoull(text, &end, 0);
		if (errno || end == text || *end || *text == '-')
			return fail(r, "\"%s\" is no number", text);
	} else {
		return fail(r, "must be a number");
	}
	if (*n < min || *n > max)
		return fail(r, "must be from %" PRIu64 " to %" PRIu64, min, max);
	return true;
}

static bool get_flag(struct reader *r, json_t *value, bool *flag)
{
	uint64_t n = 0;

	if (!get_number(r, value, 0, 1, &n))
		return false;
	*flag = n;
	return true;
}

static bool get_nqn(struct reader *r, json_t *value, const char **nqn)
{
	const char *wrong;

	if (!get_string(r, value, nqn))
		return false;
	wrong = config_nqn_error(*nqn);
	return !wrong || fail(r, "%s", wrong);
}

static bool append_string(struct reader *r, char ***array, size_t *count, const char *text)
{
	char **grown = config_append(*array, count, sizeof(*grown));

	if (!grown)
		return fail(r, "out of memory");
	*array = grown;
	grown[*count - 1] = strdup(text);
	return grown[*count - 1] || fail(r, "out of memory");
}

/* ---- namespaces ---- */

static bool ns_nsid(struct reader *r, json_t *value, void *out)
{
	struct config_namespace *ns = out;
	uint64_t n = 0;

	if (!get_number(r, value, 1, NVME_NSID_ALL - 1, &n))
		return false;
	ns->nsid = (uint32_t)n;
	return true;
}

static bool ns_enable(struct reader *r, json_t *value, void *out)
{
	return get_flag(r, value, &((struct config_namespace *)out)->enabled);
}

static bool ns_path(struct reader *r, json_t *value, void *out)
{
	struct config_namespace *ns = out;
	const char *text = NULL;

	if (!get_string(r, value, &text))
		return false;
	if (!strncmp(text, "memory:", 7)) {
		if (!config_parse_size(text + 7, &ns->memory_bytes) || !ns->memory_bytes)
			return fail(r, "\"%s\" is no size (like memory:256M)", text);
		return true;
	}
	if (!*text)
		return fail(r, "names no file");
	ns->path = strdup(text);
	return ns->path || fail(r, "out of memory");
}

static bool ns_uuid(struct reader *r, json_t *value, void *out)
{
	struct config_namespace *ns = out;
	const char *text = NULL;

	if (!get_string(r, value, &text))
		return false;
	ns->has_uuid = config_parse_uuid(text, ns->uuid);
	return ns->has_uuid || fail(r, "\"%s\" is no UUID", text);
}

static bool ns_nguid(struct reader *r, json_t *value, void *out)
{
	struct config_namespace *ns = out;
	const char *text = NULL;

	if (!get_string(r, value, &text))
		return false;
	ns->has_nguid = config_parse_uuid(text, ns->nguid);
	return ns->has_nguid || fail(r, "\"%s\" is no NGUID", text);
}

static bool ns_block_size(struct reader *r, json_t *value, void *out)
{
	struct config_namespace *ns = out;
	uint64_t n = 0;

	if (!get_number(r, value, 512, 4096, &n))
		return false;
	if (n != 512 && n != 4096)
		return fail(r, "must be 512 or 4096");
	ns->lba_size = (uint32_t)n;
	return true;
}

static bool ns_read_only(struct reader *r, json_t *value, void *out)
{
	return get_flag(r, value, &((struct config_namespace *)out)->read_only);
}

static bool ns_device(struct reader *r, json_t *value, void *out)
{
	static const struct key keys[] = {
		{ "path", ns_path },
		{ "uuid", ns_uuid },
		{ "nguid", ns_nguid },
		{ "block_size", ns_block_size }, /* ours */
		{ "read_only", ns_read_only },	 /* ours */
		{ NULL, NULL },
	};

	return read_object(r, value, keys, out) && need(r, value, "path");
}

static bool sub_namespace(struct reader *r, json_t *value, void *out)
{
	static const struct key keys[] = {
		{ "nsid", ns_nsid }, { "enable", ns_enable }, { "device", ns_device },
		{ "ana", NULL },     { "ana_grpid", NULL },   { "attr", NULL },
		{ NULL, NULL },
	};
	struct config_subsystem *s = out;
	struct config_namespace *ns;

	ns = config_append(s->namespaces, &s->namespace_count, sizeof(*ns));
	if (!ns)
		return fail(r, "out of memory");
	s->namespaces = ns;
	ns = &s->namespaces[s->namespace_count - 1];
	ns->lba_size = 512;
	if (!read_object(r, value, keys, ns) || !need(r, value, "nsid") ||
	    !need(r, value, "device"))
		return false;
	for (size_t i = 0; i + 1 < s->namespace_count; i++)
		if (s->namespaces[i].nsid == ns->nsid)
			return fail(r, "namespace %u is there twice", ns->nsid);
	return true;
}

static bool sub_namespaces(struct reader *r, json_t *value, void *out)
{
	return read_array(r, value, sub_namespace, out);
}

/* ---- subsystems ---- */

static bool sub_nqn(struct reader *r, json_t *value, void *out)
{
	const char *nqn = NULL;

	if (!get_nqn(r, value, &nqn))
		return false;
	if (!strcmp(nqn, NVMF_DISCOVERY_NQN))
		return fail(r, "that is the discovery subsystem's own name");
	strcpy(((struct config_subsystem *)out)->nqn, nqn);
	return true;
}

static bool copy_ascii(struct reader *r, json_t *value, char *out, size_t size)
{
	const char *text = NULL;

	if (!get_string(r, value, &text))
		return false;
	if (strlen(text) >= size)
		return fail(r, "has more than %zu characters", size - 1);
	for (const char *c = text; *c; c++)
		if (*c < ' ' || *c > '~')
			return fail(r, "may have printable ASCII characters only");
	strcpy(out, text);
	return true;
}

static bool attr_serial(struct reader *r, json_t *value, void *out)
{
	struct config_subsystem *s = out;

	return copy_ascii(r, value, s->serial, sizeof(s->serial));
}

static bool attr_model(struct reader *r, json_t *value, void *out)
{
	struct config_subsystem *s = out;

	return copy_ascii(r, value, s->model, sizeof(s->model));
}

static bool attr_any_host(struct reader *r, json_t *value, void *out)
{
	return get_flag(r, value, &((struct config_subsystem *)out)->allow_any_host);
}

static bool attr_qid_max(struct reader *r, json_t *value, void *out)
{
	uint64_t n = 0;

	if (!get_number(r, value, 1, 1024, &n))
		return false;
	((struct config_subsystem *)out)->qid_max = (uint16_t)n;
	return true;
}

static bool sub_attr(struct reader *r, json_t *value, void *out)
{
	static const struct key keys[] = {
		{ "allow_any_host", attr_any_host },
		{ "serial", attr_serial },
		{ "model", attr_model },
		{ "qid_max", attr_qid_max },
		{ "attr_allow_any_host", attr_any_host },
		{ "attr_serial", attr_serial },
		{ "attr_model", attr_model },
		{ "version", NULL },
		{ "cntlid_min", NULL },
		{ "cntlid_max", NULL },
		{ "ieee_oui", NULL },
		{ "firmware", NULL },
		{ "pi_enable", NULL },
		{ NULL, NULL },
	};

	return read_object(r, value, keys, out);
}

static bool allowed_host(struct reader *r, json_t *value, void *out)
{
	struct config_subsystem *s = out;
	const char *nqn = NULL;

	return get_nqn(r, value, &nqn) &&
	       append_string(r, &s->allowed_hosts, &s->allowed_host_count, nqn);
}

static bool sub_allowed_hosts(struct reader *r, json_t *value, void *out)
{
	return read_array(r, value, allowed_host, out);
}

static bool root_subsystem(struct reader *r, json_t *value, void *out)
{
	static const struct key keys[] = {
		{ "nqn", sub_nqn },
		{ "attr", sub_attr },
		{ "allowed_hosts", sub_allowed_hosts },
		{ "namespaces", sub_namespaces },
		{ NULL, NULL },
	};
	struct config *config = out;
	struct config_subsystem *s;

	s = config_append(config->subsystems, &config->subsystem_count, sizeof(*s));
	if (!s)
		return fail(r, "out of memory");
	config->subsystems = s;
	s = &config->subsystems[config->subsystem_count - 1];
	if (!read_object(r, value, keys, s) || !need(r, value, "nqn"))
		return false;
	for (size_t i = 0; i + 1 < config->subsystem_count; i++)
		if (!strcmp(config->subsystems[i].nqn, s->nqn))
			return fail(r, "subsystem %s is there twice", s->nqn);
	return true;
}

static bool root_subsystems(struct reader *r, json_t *value, void *out)
{
	return read_array(r, value, root_subsystem, out);
}

/* ---- ports ---- */

static bool addr_adrfam(struct reader *r, json_t *value, void *out)
{
	const char *text = NULL;

	if (!get_string(r, value, &text))
		return false;
	if (strcmp(text, "ipv4") && strcmp(text, "ipv6"))
		return fail(r, "\"%s\": only \"ipv4\" and \"ipv6\" are served", text);
	((struct config_port *)out)->family = text[3] == '4' ? AF_INET : AF_INET6;
	return true;
}

static bool addr_traddr(struct reader *r, json_t *value, void *out)
{
	struct config_port *port = out;
	const char *text = NULL;
	struct in6_addr addr;

	if (!get_string(r, value, &text))
		return false;
	if (inet_pton(AF_INET, text, &addr) != 1 && inet_pton(AF_INET6, text, &addr) != 1)
		return fail(r, "\"%s\" is no IP address", text);
	inet_ntop(strchr(text, ':') ? AF_INET6 : AF_INET, &addr, port->traddr,
		  sizeof(port->traddr));
	return true;
}

static bool addr_trsvcid(struct reader *r, json_t *value, void *out)
{
	uint64_t n = 0;

	if (!get_number(r, value, 1, UINT16_MAX, &n))
		return false;
	((struct config_port *)out)->port = (uint16_t)n;
	return true;
}

static bool addr_trtype(struct reader *r, json_t *value, void *out)
{
	const char *text = NULL;

	if (!get_string(r, value, &text))
		return false;
	return !strcmp(text, "rdma") || fail(r, "\"%s\": only \"rdma\" is served", text);
}

static bool port_addr(struct reader *r, json_t *value, void *out)
{
	static const struct key keys[] = {
		{ "adrfam", addr_adrfam },
		{ "traddr", addr_traddr },
		{ "trsvcid", addr_trsvcid },
		{ "trtype", addr_trtype },
		{ "treq", NULL },
		{ "tsas", NULL },
		{ NULL, NULL },
	};
	struct config_port *port = out;
	int family;

	port->port = 4420;
	if (!read_object(r, value, keys, port) || !need(r, value, "traddr"))
		return false;
	family = strchr(port->traddr, ':') ? AF_INET6 : AF_INET;
	if (port->family && port->family != family)
		return fail(r, "adrfam does not fit traddr \"%s\"", port->traddr);
	port->family = family;
	return true;
}

static bool param_inline(struct reader *r, json_t *value, void *out)
{
	uint64_t n = 0;

	/* nvmet's way to say "as you like" */
	if (json_integer_value(value) == -1 ||
	    (json_is_string(value) && !strcmp(json_string_value(value), "-1")))
		return true;
	if (!get_number(r, value, 0, CONFIG_IN_CAPSULE_MAX, &n))
		return false;
	if (n % 16)
		return fail(r, "must be a multiple of 16");
	if (r->in_capsule_given && r->in_capsule_bytes != n)
		return fail(r, "differs from another port's");
	r->in_capsule_given = true;
	r->in_capsule_bytes = (uint32_t)n;
	return true;
}

static bool port_param(struct reader *r, json_t *value, void *out)
{
	static const struct key keys[] = {
		{ "inline_data_size", param_inline },
		{ "pi_enable", NULL },
		{ "max_queue_size", NULL },
		{ NULL, NULL },
	};

	return read_object(r, value, keys, out);
}

static bool port_portid(struct reader *r, json_t *value, void *out)
{
	uint64_t n = 0;

	if (!get_number(r, value, 0, UINT16_MAX, &n))
		return false;
	((struct config_port *)out)->portid = (uint16_t)n;
	return true;
}

static bool port_subsystem(struct reader *r, json_t *value, void *out)
{
	struct config_port *port = out;
	const char *nqn = NULL;

	return get_nqn(r, value, &nqn) &&
	       append_string(r, &port->subsystems, &port->subsystem_count, nqn);
}

static bool port_subsystems(struct reader *r, json_t *value, void *out)
{
	return read_array(r, value, port_subsystem, out);
}

static bool root_port(struct reader *r, json_t *value, void *out)
{
	static const struct key keys[] = {
		{ "addr", port_addr }, { "portid", port_portid }, { "subsystems", port_subsystems },
		{ "referrals", NULL }, { "param", port_param },	  { "ana_groups", NULL },
		{ NULL, NULL },
	};
	struct config *config = out;
	struct config_port *port;

	port = config_append(config->ports, &config->port_count, sizeof(*port));
	if (!port)
		return fail(r, "out of memory");
	config->ports = port;
	port = &config->ports[config->port_count - 1];
	port->portid = (uint16_t)config->port_count;
	return read_object(r, value, keys, port) && need(r, value, "addr");
}

static bool root_ports(struct reader *r, json_t *value, void *out)
{
	return read_array(r, value, root_port, out);
}

/* ---- hosts and the root ---- */

static bool host_nqn(struct reader *r, json_t *value, void *out)
{
	struct config *config = out;
	const char *nqn = NULL;

	return get_nqn(r, value, &nqn) &&
	       append_string(r, &config->hosts, &config->host_count, nqn);
}

static bool root_host(struct reader *r, json_t *value, void *out)
{
	static const struct key keys[] = {
		{ "nqn", host_nqn },
		{ "dhchap_key", NULL },
		{ NULL, NULL },
	};

	return read_object(r, value, keys, out) && need(r, value, "nqn");
}

static bool root_hosts(struct reader *r, json_t *value, void *out)
{
	return read_array(r, value, root_host, out);
}

/* names that refer to something must refer to something that is there */
static bool check_references(struct reader *r, const struct config *config)
{
	for (size_t i = 0; i < config->port_count; i++) {
		const struct config_port *port = &config->ports[i];

		for (size_t j = 0; j < port->subsystem_count; j++) {
			size_t k = 0;

			while (k < config->subsystem_count &&
			       strcmp(config->subsystems[k].nqn, port->subsystems[j]))
				k++;
			if (k < config->subsystem_count)
				continue;
			r->path = (struct json_path){
				.step = { { "ports" }, { NULL, i }, { "subsystems" }, { NULL, j } },
				.depth = 4,
			};
			return fail(r, "there is no subsystem \"%s\"", port->subsystems[j]);
		}
	}
	for (size_t i = 0; i < config->subsystem_count; i++) {
		const struct config_subsystem *s = &config->subsystems[i];

		for (size_t j = 0; j < s->allowed_host_count; j++) {
			size_t k = 0;

			while (k < config->host_count &&
			       strcmp(config->hosts[k], s->allowed_hosts[j]))
				k++;
			if (k < config->host_count)
				continue;
			r->path = (struct json_path){
				.step = { { "subsystems" },
					  { NULL, i },
					  { "allowed_hosts" },
					  { NULL, j } },
				.depth = 4,
			};
			return fail(r, "\"hosts\" does not have \"%s\"", s->allowed_hosts[j]);
		}
	}
	return true;
}

struct config *config_parse_json(const char *name, const char *text, size_t len, char *error,
				 size_t error_len)
{
	static const struct key keys[] = {
		{ "hosts", root_hosts },
		{ "ports", root_ports },
		{ "subsystems", root_subsystems },
		{ NULL, NULL },
	};
	struct reader r = {
		.name = name, .text = text, .len = len, .error = error, .error_len = error_len
	};
	struct config *config;
	json_error_t wrong;
	json_t *root;
	bool good;

	root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &wrong);
	if (!root) {
		snprintf(error, error_len, "%s:%d: %s", name, wrong.line, wrong.text);
		return NULL;
	}
	config = config_new();
	good = config && read_object(&r, root, keys, config) && check_references(&r, config);
	if (good && r.in_capsule_given)
		config->in_capsule_bytes = r.in_capsule_bytes;
	if (!config)
		fail(&r, "out of memory");
	json_decref(root);
	if (!good)
		goto out_free;
	if (!config_check(config, error, error_len)) {
		char reason[512];

		snprintf(reason, sizeof(reason), "%s", error);
		snprintf(error, error_len, "%s: %s", name, reason);
		goto out_free;
	}
	return config;

out_free:
	config_free(config);
	return NULL;
}

struct config *config_load(const char *path, char *error, size_t error_len)
{
	struct config *config = NULL;
	char *text = NULL;
	size_t len;
	FILE *file;

	file = fopen(path, "re");
	if (!file) {
		snprintf(error, error_len, "cannot open %s: %s", path, strerror(errno));
		return NULL;
	}
	text = malloc(FILE_SIZE_MAX);
	if (!text) {
		snprintf(error, error_len, "%s: out of memory", path);
		goto out;
	}
	len = fread(text, 1, FILE_SIZE_MAX, file);
	if (ferror(file))
		snprintf(error, error_len, "cannot read %s: %s", path, strerror(errno));
	else if (len == FILE_SIZE_MAX)
		snprintf(error, error_len, "%s: larger than 16 MiB", path);
	else
		config = config_parse_json(path, text, len, error, error_len);
out:
	free(text);
	fclose(file);
	return config;
}
