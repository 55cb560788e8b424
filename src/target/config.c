// SPDX-License-Identifier: BSD-2-Clause
/*
 * config.c: the target's configuration: the command line's simple case and the checks that hold
 * for any.
 */
#include "target/config.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nvme/spec.h"
#include "util/bytes.h"

#define DEFAULT_PORT 4420

static bool __attribute__((format(printf, 3, 4)))
fail(char *error, size_t len, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(error, len, fmt, ap);
	va_end(ap);
	return false;
}

void *config_append(void *array, size_t *count, size_t size)
{
	char *bigger = reallocarray(array, *count + 1, size);

	if (!bigger)
		return NULL;
	memset(bigger + *count * size, 0, size);
	++*count;
	return bigger;
}

struct config *config_new(void)
{
	struct config *config = calloc(1, sizeof(*config));

	if (config)
		config->in_capsule_bytes = CONFIG_IN_CAPSULE_BYTES;
	return config;
}

static void free_strings(char **strings, size_t count)
{
	for (size_t i = 0; i < count; i++)
		free(strings[i]);
	free(strings);
}

void config_free(struct config *config)
{
	if (!config)
		return;
	for (size_t i = 0; i < config->port_count; i++)
		free_strings(config->ports[i].subsystems, config->ports[i].subsystem_count);
	for (size_t i = 0; i < config->subsystem_count; i++) {
		struct config_subsystem *s = &config->subsystems[i];

		free_strings(s->allowed_hosts, s->allowed_host_count);
		for (size_t j = 0; j < s->namespace_count; j++)
			free(s->namespaces[j].path);
		free(s->namespaces);
	}
	free_strings(config->hosts, config->host_count);
	free(config->ports);
	free(config->subsystems);
	free(config);
}

const char *config_nqn_error(const char *nqn)
{
	size_t len = strlen(nqn);

	if (len > CONFIG_NQN_MAX)
		return "an NQN has at most 223 bytes";
	if (strncmp(nqn, "nqn.", 4))
		return "an NQN begins with \"nqn.\", e.g. nqn.2026-01.org.example:disk1";
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)nqn[i] <= ' ' || nqn[i] == 0x7f)
			return "an NQN has no spaces or control characters";
	return NULL;
}

bool config_parse_size(const char *text, uint64_t *bytes)
{
	static const char units[] = "KMGT";
	unsigned long long n;
	const char *unit;
	char *end;
	int shift = 0;

	if (!isdigit((unsigned char)*text))
		return false;
	errno = 0;
	n = strtoull(text, &end, 10);
	if (errno)
		return false;
	if (*end) {
		unit = strchr(units, toupper((unsigned char)*end));
		if (!unit)
			return false;
		shift = 10 * (int)(unit - units + 1);
		end++;
		if (!strcmp(end, "iB") || !strcmp(end, "B"))
			end += strlen(end);
	}
	if (*end || n > UINT64_MAX >> shift)
		return false;
	*bytes = (uint64_t)n << shift;
	return true;
}

bool config_parse_uuid(const char *text, uint8_t uuid[16])
{
	unsigned int digits = 0;

	memset(uuid, 0, 16);
	for (; *text; text++) {
		int c = tolower((unsigned char)*text);

		if (c == '-')
			continue;
		if (!isxdigit(c) || digits == 32)
			return false;
		c = isdigit(c) ? c - '0' : c - 'a' + 10;
		uuid[digits / 2] = (uint8_t)(uuid[digits / 2] << 4 | c);
		digits++;
	}
	return digits == 32;
}

/* splits "host:port", "[host]:port", "host": false when there is no host or a bad port */
static bool split_address(const char *text, char *host, size_t host_len, const char **port)
{
	const char *end;
	size_t len;

	*port = NULL;
	if (*text == '[') {
		text++;
		end = strchr(text, ']');
		if (!end || (end[1] && end[1] != ':'))
			return false;
		*port = end[1] ? end + 2 : NULL;
	} else {
		end = strchr(text, ':');
		if (end && strchr(end + 1, ':'))
			end = NULL; /* a bare IPv6 address */
		*port = end ? end + 1 : NULL;
		if (!end)
			end = text + strlen(text);
	}
	len = (size_t)(end - text);
	if (!len || len >= host_len)
		return false;
	memcpy(host, text, len);
	host[len] = 0;
	return true;
}

static bool parse_port(const char *text, uint16_t *port)
{
	unsigned long n;
	char *end;

	if (!isdigit((unsigned char)*text))
		return false;
	n = strtoul(text, &end, 10);
	if (*end || !n || n > UINT16_MAX)
		return false;
	*port = (uint16_t)n;
	return true;
}

bool config_add_listen(struct config *config, const char *text, char *error, size_t error_len)
{
	char host[INET6_ADDRSTRLEN];
	struct config_port *port;
	const char *port_text;
	struct in6_addr addr;
	uint16_t number = DEFAULT_PORT;
	int family;
	void *grown;

	if (!split_address(text, host, sizeof(host), &port_text) ||
	    (port_text && !parse_port(port_text, &number)))
		return fail(error, error_len,
			    "'%s' is no address to listen on (like 0.0.0.0:4420 or [::]:4420)",
			    text);
	family = strchr(host, ':') ? AF_INET6 : AF_INET;
	if (inet_pton(family, host, &addr) != 1)
		return fail(error, error_len, "'%s' is no IP address", host);
	grown = config_append(config->ports, &config->port_count, sizeof(*config->ports));
	if (!grown)
		return fail(error, error_len, "out of memory");
	config->ports = grown;
	port = &config->ports[config->port_count - 1];
	port->portid = (uint16_t)config->port_count;
	port->family = family;
	port->port = number;
	inet_ntop(family, &addr, port->traddr, sizeof(port->traddr));
	return true;
}

bool config_add_subsystem(struct config *config, const char *nqn, char *error, size_t error_len)
{
	const char *wrong = config_nqn_error(nqn);
	void *grown;

	if (wrong)
		return fail(error, error_len, "'%s': %s", nqn, wrong);
	grown = config_append(config->subsystems, &config->subsystem_count,
			      sizeof(*config->subsystems));
	if (!grown)
		return fail(error, error_len, "out of memory");
	config->subsystems = grown;
	strcpy(config->subsystems[config->subsystem_count - 1].nqn, nqn);
	config->subsystems[config->subsystem_count - 1].allow_any_host = true;
	return true;
}

static struct config_subsystem *last_subsystem(struct config *config)
{
	return config->subsystem_count ? &config->subsystems[config->subsystem_count - 1] : NULL;
}

static bool namespace_option(struct config_namespace *ns, const char *option)
{
	unsigned long n;
	char *end;

	if (!strcmp(option, "ro")) {
		ns->read_only = true;
		return true;
	}
	if (!strncmp(option, "nsid=", 5) && isdigit((unsigned char)option[5])) {
		n = strtoul(option + 5, &end, 10);
		ns->nsid = n < NVME_NSID_ALL ? (uint32_t)n : 0;
		return !*end && ns->nsid;
	}
	if (!strcmp(option, "lba=512") || !strcmp(option, "lba=4096")) {
		ns->lba_size = option[4] == '5' ? 512 : 4096;
		return true;
	}
	return false;
}

bool config_add_namespace(struct config *config, const char *text, char *error, size_t error_len)
{
	struct config_subsystem *subsystem = last_subsystem(config);
	struct config_namespace *ns;
	char *copy, *rest, *option;
	bool good = false;
	void *grown;

	if (!subsystem)
		return fail(error, error_len, "--namespace %s comes before any --subsystem", text);
	copy = strdup(text);
	grown = copy ? config_append(subsystem->namespaces, &subsystem->namespace_count,
				     sizeof(*ns))
		     : NULL;
	if (!grown) {
		free(copy);
		return fail(error, error_len, "out of memory");
	}
	subsystem->namespaces = grown;
	ns = &subsystem->namespaces[subsystem->namespace_count - 1];
	ns->nsid = (uint32_t)subsystem->namespace_count;
	ns->enabled = true;
	ns->lba_size = 512;
	rest = copy;
	option = strsep(&rest, ",");
	if (!strncmp(option, "memory:", 7)) {
		if (!config_parse_size(option + 7, &ns->memory_bytes) || !ns->memory_bytes) {
			fail(error, error_len, "'%s' is no size (like memory:256M)", option);
			goto out;
		}
	} else {
		ns->path = *option ? strdup(option) : NULL;
		if (!ns->path) {
			fail(error, error_len, "'%s' names no file", text);
			goto out;
		}
	}
	while ((option = strsep(&rest, ","))) {
		if (!namespace_option(ns, option)) {
			fail(error, error_len,
			     "'%s' is no option of a namespace (nsid=N, lba=512, lba=4096, ro)",
			     option);
			goto out;
		}
	}
	good = true;
out:
	free(copy);
	return good;
}

bool config_add_host(struct config *config, const char *nqn, char *error, size_t error_len)
{
	struct config_subsystem *subsystem = last_subsystem(config);
	const char *wrong = config_nqn_error(nqn);
	char **grown;

	if (!subsystem)
		return fail(error, error_len, "--allow-host %s comes before any --subsystem", nqn);
	if (wrong)
		return fail(error, error_len, "'%s': %s", nqn, wrong);
	grown = config_append(subsystem->allowed_hosts, &subsystem->allowed_host_count,
			      sizeof(*grown));
	if (!grown)
		return fail(error, error_len, "out of memory");
	subsystem->allowed_hosts = grown;
	subsystem->allow_any_host = false;
	grown[subsystem->allowed_host_count - 1] = strdup(nqn);
	return grown[subsystem->allowed_host_count - 1] || fail(error, error_len, "out of memory");
}

bool config_set_in_capsule(struct config *config, const char *text, char *error, size_t error_len)
{
	uint64_t bytes;

	if (!config_parse_size(text, &bytes) || bytes > CONFIG_IN_CAPSULE_MAX || bytes % 16)
		return fail(error, error_len,
			    "in-capsule data of \"%s\": 0 to %d bytes, a multiple of 16", text,
			    CONFIG_IN_CAPSULE_MAX);
	config->in_capsule_bytes = (uint32_t)bytes;
	return true;
}

bool config_finish(struct config *config, char *error, size_t error_len)
{
	for (size_t i = 0; i < config->port_count; i++) {
		struct config_port *port = &config->ports[i];

		for (size_t j = 0; j < config->subsystem_count; j++) {
			char **grown = config_append(port->subsystems, &port->subsystem_count,
						     sizeof(*grown));

			if (!grown)
				return fail(error, error_len, "out of memory");
			port->subsystems = grown;
			grown[j] = strdup(config->subsystems[j].nqn);
			if (!grown[j])
				return fail(error, error_len, "out of memory");
		}
	}
	return config_check(config, error, error_len);
}

static bool check_subsystem(const struct config_subsystem *s, char *error, size_t error_len)
{
	if (!strcmp(s->nqn, NVMF_DISCOVERY_NQN))
		return fail(error, error_len, "%s is the discovery subsystem's own name", s->nqn);
	for (size_t i = 0; i < s->namespace_count; i++)
		for (size_t j = 0; j < i; j++)
			if (s->namespaces[i].nsid == s->namespaces[j].nsid)
				return fail(error, error_len, "%s has namespace %u twice", s->nqn,
					    s->namespaces[i].nsid);
	return true;
}

bool config_check(const struct config *config, char *error, size_t error_len)
{
	if (!config->port_count)
		return fail(error, error_len, "no address to listen on: use --listen 0.0.0.0:4420");
	if (!config->subsystem_count)
		return fail(error, error_len, "no subsystem: use --subsystem NQN");
	for (size_t i = 0; i < config->subsystem_count; i++) {
		if (!check_subsystem(&config->subsystems[i], error, error_len))
			return false;
		for (size_t j = 0; j < i; j++)
			if (!strcmp(config->subsystems[i].nqn, config->subsystems[j].nqn))
				return fail(error, error_len, "subsystem %s is there twice",
					    config->subsystems[i].nqn);
	}
	for (size_t i = 0; i < config->port_count; i++)
		for (size_t j = 0; j < i; j++)
			if (config->ports[i].port == config->ports[j].port &&
			    !strcmp(config->ports[i].traddr, config->ports[j].traddr))
				return fail(error, error_len, "address %s:%u is there twice",
					    config->ports[i].traddr, config->ports[i].port);
	return true;
}
