/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * config.h: what the target serves: ports, subsystems, namespaces and the hosts that may use them.
 * Built from the command line's simple case or from a JSON file in nvmetcli's format.
 */
#ifndef SOFTHCA_TARGET_CONFIG_H
#define SOFTHCA_TARGET_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <netinet/in.h>

#define CONFIG_NQN_MAX		223 /* bytes, without the terminating NUL (NVMe Base 2.0, 4.5) */
#define CONFIG_IN_CAPSULE_BYTES 4096
#define CONFIG_IN_CAPSULE_MAX	16384

struct config_namespace {
	uint32_t nsid;
	bool enabled;
	bool read_only;
	char *path;	       /* NULL: memory */
	uint64_t memory_bytes; /* only without a path */
	uint32_t lba_size;     /* 512 or 4096 */
	bool has_uuid, has_nguid;
	uint8_t uuid[16], nguid[16];
};

struct config_subsystem {
	char nqn[CONFIG_NQN_MAX + 1];
	bool allow_any_host;
	char serial[21];  /* "" = derived from the NQN */
	char model[41];	  /* "" = "SoftHCA target" */
	uint16_t qid_max; /* I/O queues a controller may have; 0 = default */
	char **allowed_hosts;
	size_t allowed_host_count;
	struct config_namespace *namespaces;
	size_t namespace_count;
};

struct config_port {
	uint16_t portid;
	int family; /* AF_INET, AF_INET6 */
	char traddr[INET6_ADDRSTRLEN];
	uint16_t port;
	char **subsystems; /* NQNs */
	size_t subsystem_count;
};

struct config {
	struct config_port *ports;
	size_t port_count;
	struct config_subsystem *subsystems;
	size_t subsystem_count;
	char **hosts;
	size_t host_count;
	uint32_t in_capsule_bytes; /* of any port */
};

/**
 * config_parse_json() - read a configuration in nvmetcli's format.
 * @name: what errors call the text: the file's name.
 * @text, @len: need not end with a NUL.
 * @error: out on failure: "NAME:LINE: PATH: what is wrong", e.g.
 *	   "t.json:7: subsystems[0].namespaces[0].devise: unknown key".
 * Return: the configuration, or NULL.
 */
struct config *config_parse_json(const char *name, const char *text, size_t len, char *error,
				 size_t error_len);
/* the same from a file */
struct config *config_load(const char *path, char *error, size_t error_len);

/* ---- the command line's simple case, piece by piece: false and @error on failure ---- */

struct config *config_new(void);
void config_free(struct config *config); /* NULL is allowed */
/* "10.0.0.5:4420", "[fd00::5]:4420", "10.0.0.5", "[::]": port 4420 unless given */
bool config_add_listen(struct config *config, const char *text, char *error, size_t error_len);
bool config_add_subsystem(struct config *config, const char *nqn, char *error, size_t error_len);
/* "PATH" or "memory:SIZE", then ",nsid=N", ",lba=512|4096", ",ro": for the last subsystem */
bool config_add_namespace(struct config *config, const char *text, char *error, size_t error_len);
/* only this host and others so named may use the last subsystem */
bool config_add_host(struct config *config, const char *nqn, char *error, size_t error_len);
/* 0 to 16384 bytes of data inside a command's capsule, a multiple of 16 */
bool config_set_in_capsule(struct config *config, const char *text, char *error, size_t error_len);
/* every port offers every subsystem (the simple case); then the checks of config_check() */
bool config_finish(struct config *config, char *error, size_t error_len);

/* what must hold for any configuration: at least one port and subsystem, no address twice, ... */
bool config_check(const struct config *config, char *error, size_t error_len);

/* ---- shared with the JSON reader ---- */

/* NULL when @nqn is well formed, else what is wrong with it */
const char *config_nqn_error(const char *nqn);
/* "256", "256K", "256M", "256MiB", "1G": bytes; false when it is no such number */
bool config_parse_size(const char *text, uint64_t *bytes);
/* 32 hex digits with or without dashes */
bool config_parse_uuid(const char *text, uint8_t uuid[16]);
/* grows by one zeroed element; NULL: no memory */
void *config_append(void *array, size_t *count, size_t size);

#endif
