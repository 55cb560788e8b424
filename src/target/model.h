/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * model.h: what a target consists of, without any transport: subsystems with namespaces, ports,
 * controllers, queues, and commands that are executed on them. All of it belongs to one thread.
 */
#ifndef SOFTHCA_TARGET_MODEL_H
#define SOFTHCA_TARGET_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <netinet/in.h>

#include "nvme/fabrics.h"
#include "nvme/soft_ctrl.h"
#include "nvme/spec.h"
#include "target/config.h"
#include "util/list.h"

#define TARGET_QUEUE_ENTRIES  128 /* of a submission queue: CAP.MQES + 1 */
#define TARGET_ADMIN_ENTRIES  32  /* announced in the discovery log */
#define TARGET_SQE_BYTES      64
#define TARGET_MDTS	      5 /* largest transfer: 2^n * 4096 */
#define TARGET_MAX_IO_BYTES   (4096U << TARGET_MDTS)
#define TARGET_IO_QUEUES      32 /* of a controller, unless configured */
#define TARGET_IO_QUEUES_MAX  1024
#define TARGET_AER_MAX	      4 /* AERL + 1 */
#define TARGET_MSDBD	      16
#define TARGET_EVENTS_MAX     8
#define TARGET_CHANGED_NS_MAX 1024
#define TARGET_OAES	      NVME_OAES_NS_CHANGED

#define DNR NVME_STATUS_DNR

struct target;
struct subsystem;
struct controller;
struct queue;
struct command;

struct namespace
{
	uint32_t nsid;
	bool enabled;
	char *path; /* NULL: memory */
	struct backend *backend;
	struct backend_info info;
	uint64_t blocks;
	uint8_t uuid[16], nguid[16];
};

/* what was moved, for the SMART log and the statistics */
struct io_totals {
	uint64_t read_commands, read_bytes, write_commands, write_bytes;
};

struct subsystem {
	struct list_node node; /* target.subsystems */
	char nqn[CONFIG_NQN_MAX + 1];
	char serial[21], model[41];
	bool discovery;
	bool allow_any_host;
	char **allowed_hosts;
	size_t allowed_host_count;
	uint16_t io_queues;
	struct namespace *namespaces; /* by nsid, ascending */
	size_t namespace_count;
	/* commands that software executed, I/O queues only */
	uint64_t software_opcodes[256];
	struct io_totals software;
	void *offload; /* the transport's */
};

struct port {
	struct list_node node; /* target.ports */
	uint16_t portid;
	int family;
	char traddr[INET6_ADDRSTRLEN];
	uint16_t port;
	bool wildcard;
	struct subsystem **subsystems;
	size_t subsystem_count;
	void *listener; /* the transport's */
};

struct target {
	struct list_node
		subsystems;	/* struct subsystem; the discovery subsystem is not among them */
	struct list_node ports; /* struct port */
	struct list_node controllers; /* struct controller */
	struct subsystem *discovery;
	uint64_t genctr;	   /* of the discovery log */
	uint32_t in_capsule_bytes; /* data that a command capsule may carry behind its SQE */
	uint16_t next_cntlid;
	uint64_t next_kato_check_ns;
	/* by the transport: what the offload moved for @subsystem; JSON text of log page 0xc0.
	 * Either may be NULL */
	void (*offload_totals)(const struct subsystem *subsystem, struct io_totals *totals);
	size_t (*statistics)(struct target *target, const struct subsystem *subsystem, char *text,
			     size_t len);
};

struct queue_ops {
	/* a command that command_execute() kept is done */
	void (*complete)(struct queue *queue, struct command *cmd);
	/* close the queue's connection; queue_closed() comes later */
	void (*shutdown)(struct queue *queue);
	/* a good Connect; its response has not been sent yet */
	void (*connected)(struct queue *queue);
};

/* one NVMe queue pair = one connection */
struct queue {
	const struct queue_ops *ops;
	struct target *target;
	const struct port *port;
	char local_address[INET6_ADDRSTRLEN]; /* the host connected to; for wildcard ports */
	uint16_t cm_qid, cm_entries;	      /* the CM private data's qid, hsqsize */
	bool connected;			      /* a good Connect was seen */
	uint16_t qid;
	uint16_t sqsize;	 /* 0-based */
	struct controller *ctrl; /* NULL before Connect and after the controller is gone */
};

struct command {
	struct nvme_sqe sqe;
	struct queue *queue;
	uint8_t *data;	   /* from the host, or room for the host */
	uint32_t data_len; /* bytes of @data */
	uint16_t status;   /* SCT << 8 | SC, DNR */
	uint32_t dw0, dw1;
	struct list_node node; /* controller.aers */
};

struct controller {
	struct list_node node; /* target.controllers */
	struct target *target;
	struct subsystem *subsystem;
	uint16_t cntlid;
	char hostnqn[NVMF_NQN_SIZE];
	uint8_t hostid[16];
	uint32_t kato_ms;
	uint64_t last_seen_ns, created_ns;
	uint32_t cc, csts;
	uint16_t granted_queues;
	struct queue *admin;
	struct queue *io[TARGET_IO_QUEUES_MAX + 1]; /* by qid; 0 is unused */
	struct list_node aers;
	unsigned int aer_count;
	uint32_t aen_config; /* feature 0x0b */
	uint32_t aen_masked; /* OAES bits sent and not yet read */
	uint32_t events[TARGET_EVENTS_MAX];
	unsigned int event_count;
	uint32_t changed_ns[TARGET_CHANGED_NS_MAX];
	unsigned int changed_ns_count; /* above the maximum: too many to name */
	uint32_t temperature_threshold, error_recovery, write_atomicity;
};

/* ---- subsystem.c ---- */

void target_init(struct target *target);
void target_free(struct target *target); /* closes back ends: data are safe on return */
/* subsystems, namespaces (opened) and ports of @config; false and @error: which file, what to do */
bool target_configure(struct target *target, const struct config *config, char *error,
		      size_t error_len);
struct subsystem *subsystem_find(struct target *target, const char *nqn);
/* on this port; the discovery subsystem is on every one */
struct subsystem *port_find_subsystem(const struct port *port, struct target *target,
				      const char *nqn);
bool subsystem_host_allowed(const struct subsystem *subsystem, const char *hostnqn);
/* an enabled namespace, or NULL */
struct namespace *subsystem_namespace(const struct subsystem *subsystem, uint32_t nsid);
/* highest nsid, enabled or not */
uint32_t subsystem_highest_nsid(const struct subsystem *subsystem);
void subsystem_totals(const struct subsystem *subsystem, const struct target *target,
		      struct io_totals *totals);
/* all enabled namespaces; an NVMe status */
uint16_t subsystem_flush(const struct subsystem *subsystem);
/* switch a namespace on or off at run time: hosts are told. False: there is no such namespace */
bool subsystem_enable_namespace(struct target *target, struct subsystem *subsystem, uint32_t nsid,
				bool enable);

/* ---- controller.c ---- */

/* NULL: no memory or no free id */
struct controller *controller_create(struct queue *admin, struct subsystem *subsystem,
				     const struct nvmf_connect_data *data, uint32_t kato_ms);
/* shuts down every queue that is still attached */
void controller_destroy(struct controller *ctrl);
struct controller *controller_find(struct target *target, uint16_t cntlid);
void controller_set_cc(struct controller *ctrl, uint32_t cc);
/* an asynchronous event of the OAES bit @oaes; held back while masked or nobody asks */
void controller_event(struct controller *ctrl, uint32_t oaes, uint8_t info, uint8_t log_page);
void controller_event_read(struct controller *ctrl, uint32_t oaes);
/* keeps an AER: false and a status when there are too many */
bool controller_hold_aer(struct controller *ctrl, struct command *cmd);
/* a held AER is aborted; false: no such one */
bool controller_abort_aer(struct controller *ctrl, uint16_t cid);
void controller_namespace_changed(struct controller *ctrl, uint32_t nsid);
/* KATO: controllers whose hosts were silent are closed */
void target_check_kato(struct target *target, uint64_t now_ns);
/* the connection of @queue is gone: an admin queue takes its controller with it */
void queue_closed(struct queue *queue);

/* ---- command.c ---- */

enum transfer_direction { TRANSFER_NONE, TRANSFER_TO_CONTROLLER, TRANSFER_TO_HOST };

struct transfer {
	enum transfer_direction direction;
	uint32_t bytes;
};

/**
 * command_transfer() - the data that @cmd moves, by its SQE alone.
 * @cmd: its sqe and queue are set.
 * @transfer: what @cmd asks for; the caller refuses more than TARGET_MAX_IO_BYTES, after it has
 *seen that the SGL is long enough (the order in which the offload checks). Return: NVMe status: not
 *0: answer with that, no data move.
 */
uint16_t command_transfer(const struct command *cmd, struct transfer *transfer);
/**
 * command_execute() - run @cmd, whose data are there (or have room: they are zeroed here).
 * Return: true: done, status and dw0/dw1 are set. False: kept (AER), or the queue's ops->complete
 * comes later.
 */
bool command_execute(struct command *cmd);

/* ---- fabrics.c, admin.c, logpage.c, discovery.c, io.c: for command.c ---- */

uint16_t fabrics_transfer(const struct command *cmd, struct transfer *transfer);
uint16_t fabrics_execute(struct command *cmd);
uint16_t admin_transfer(const struct command *cmd, struct transfer *transfer);
bool admin_execute(struct command *cmd);
uint16_t io_transfer(const struct command *cmd, struct transfer *transfer);
uint16_t io_execute(struct command *cmd);
uint16_t logpage_transfer(const struct command *cmd, struct transfer *transfer);
uint16_t logpage_execute(struct command *cmd);

/* a part of something longer that is written from its beginning on */
struct window {
	uint8_t *out;
	uint64_t offset; /* where the part begins */
	uint64_t len;	 /* bytes of the part */
	uint64_t at;	 /* where the next window_put() begins */
};
void window_put(struct window *window, const void *data, size_t len);

/* the discovery log as @queue's host may see it */
void discovery_log(const struct queue *queue, const char *hostnqn, struct window *window);

#endif
