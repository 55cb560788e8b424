/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * internal.h: the offload's structures, shared by its files:
 *   capsule.c    what a capsule asks for
 *   staging.c    pages of the staging buffer
 *   offload.c    the object of an SRQ, namespaces, statistics
 *   receive.c    capsules from the responder, QPs
 *   command.c    the way of one command
 *   ctrl.c       driving an NVMe controller's queues
 * All under the engine's lock, but for the control calls' entry (which take it) and
 * offload_cq_notify().
 */
#ifndef SOFTHCA_OFFLOAD_INTERNAL_H
#define SOFTHCA_OFFLOAD_INTERNAL_H

#include "hca/engine.h"
#include "hca/qp.h"
#include "nvme/prp.h"
#include "nvme/queue.h"
#include "offload/capsule.h"
#include "offload/offload.h"
#include "offload/staging.h"
#include "util/list.h"

#define OFFLOAD_DEFAULT_TIMEOUT_MS 30000

/* how software is told that a controller did not do its work; no DNR: the host may try elsewhere */
#define STATUS_PATH_ERROR NVME_SC_PATH_CONTROLLER

enum command_state {
	CMD_FREE,
	CMD_RECEIVING,	  /* later packets of the capsule are to come */
	CMD_WAIT_STAGING, /* in qp->wait_staging */
	CMD_DATA_IN,	  /* RDMA READ posted, or waiting in qp->wait_room */
	CMD_WAIT_SQ,	  /* in ctrl->wait_sq */
	CMD_BACKEND,	  /* the controller has it */
	CMD_RESPONDING,	  /* the answer is known */
};

struct offload_command {
	struct list_node node;	     /* the list that the state names, offload->respond or ->free */
	struct list_node timer_node; /* ctrl->timed */
	struct list_node qp_node;    /* qp->commands */

	enum command_state state;
	struct offload *offload;
	struct offload_qp *qp; /* NULL: no longer any QP's matter */
	struct offload_ns *ns; /* counted in ns->in_flight */
	struct offload_ctrl *ctrl;

	bool at_backend; /* has a slot of ctrl: CID and staging are the controller's */
	bool dropped;	 /* its QP is gone: no answer */
	bool timed_out;	 /* answered without the controller */
	bool want_read, want_write, want_response; /* to be posted */
	uint8_t wrs;				   /* hidden WRs outstanding */

	struct capsule_command in;
	uint32_t transfer;    /* bytes */
	uint32_t capsule_len; /* bytes received so far */
	uint16_t refused;     /* status, 0 = accepted */
	uint32_t staging_first, staging_pages;
	uint8_t *capsule_data; /* in-capsule data that wait for staging, or NULL */
	uint16_t slot;	       /* of ctrl */

	uint64_t arrived_ns, deadline_ns;
	struct hidden_wr data_wr, response_wr;
	struct nvme_cqe response;
};

/* what the offload knows of a QP; made with its first capsule */
struct offload_qp {
	struct list_node node; /* offload->qps */
	struct offload *offload;
	struct hca_qp *qp; /* NULL: destroyed or reset */
	bool enabled, down, last_cqe_due;

	uint16_t qid;
	uint32_t entries; /* of the fabrics queue, from CONNECT; 65536 before */
	uint32_t sqhd;
	uint32_t last_psn; /* of the capsule counted last: one that was RNR NAKed comes again */
	bool has_last_psn;

	struct list_node commands;
	struct list_node wait_room;
	struct list_node wait_staging;	/* commands */
	struct list_node staging_queue; /* offload->wait_staging, when there are any */
	uint32_t staging_pages;		/* that its commands hold */
	struct offload_command *receiving;
};

struct offload_ns {
	struct list_node bucket;
	bool used, unmapping;
	uint32_t fe_nsid, nvme_nsid, lba_size;
	struct offload_ctrl *ctrl;
	unsigned int in_flight;
	struct ibv_nvmf_ns_stats stats;
};

/* a command of the controller; the CID is slot | generation << slot_bits */
struct ctrl_slot {
	struct offload_command *command; /* NULL = free */
	uint16_t generation;
};

struct doorbell_ring {
	void (*fn)(void *arg, size_t offset);
	void *arg;
	size_t offset;
};

struct offload_ctrl {
	struct list_node node;	   /* offload->ctrls */
	struct list_node registry; /* all of the process */
	struct offload *offload;
	void *owner;
	struct offload_memory memory[4]; /* SQ, CQ and their doorbells, for EBUSY */

	struct nvme_sq sq;
	struct nvme_cq cq;
	struct doorbell_ring sq_ring, cq_ring;
	struct ctrl_slot *slots; /* depth - 1 */
	uint16_t *free_slots;	 /* FIFO, so that a CID rests as long as possible */
	uint32_t slot_count, slot_bits, free_head, free_count;

	struct list_node wait_sq;
	struct list_node timed; /* by deadline */
	struct engine_timer timer;
	uint64_t timeout_ns;

	unsigned int mapped; /* namespaces */
	bool dead, timeout_told;
};

struct offload {
	struct hca_srq *srq;
	struct engine *engine;
	struct ibv_nvmf_attrs attrs;
	struct capsule_rules rules;
	struct engine_poller poller;
	uint64_t now_ns; /* of the current batch of NVMe completions */

	struct staging staging;
	struct prp_table prps;
	bool staging_freed;
	bool staging_wanted; /* who waits did not find enough: nobody overtakes */

	struct offload_command *commands;
	struct list_node free;
	struct list_node wait_staging; /* QPs, served in turn */
	struct list_node respond;      /* answers of this batch, in order */

	/* in-capsule data of commands that wait for staging */
	uint8_t *capsule_data;
	uint8_t **capsule_free;
	uint32_t capsule_data_len, capsule_count, capsule_free_count;

	struct list_node ctrls;
	unsigned int ctrl_count;
	struct list_node qps;

	struct offload_ns *namespaces;
	struct list_node *buckets;
	uint32_t bucket_mask;

	struct softhca_nvmf_srq_stats stats;
};

/* ---- command.c ------------------------------------------------------------ */

/* NULL: none left */
struct offload_command *command_alloc(struct offload *offload, struct offload_qp *qp);
/* count a command as one of @ns, now in flight */
void command_enter(struct offload_command *cmd, struct offload_ns *ns);
/* the capsule is complete: carry it out, or answer cmd->refused */
void command_go(struct offload_command *cmd);
/* the controller has answered, or something else ends the command. @status: with DNR and so on */
void command_respond(struct offload_command *cmd, uint16_t status, uint32_t dw0, uint32_t dw1);
/* SQ or controller is ready for it */
void command_to_backend(struct offload_command *cmd);
/* the controller gave the command back; its slot is free */
void command_backend_done(struct offload_command *cmd, const struct nvme_cqe *cqe);
/* no answer in time, or the controller is dead: answer for it */
void command_give_up(struct offload_command *cmd);
/* the QP is gone */
void command_drop(struct offload_command *cmd);
/* free it if nobody needs it any more */
void command_settle(struct offload_command *cmd);
bool command_take_staging(struct offload_command *cmd);
uint8_t *command_staging(const struct offload_command *cmd);
void command_start_timer(struct offload_command *cmd);
/* staging became free: go on with those that wait */
void commands_run_waiters(struct offload *offload);
/* post the answers of the batch. Return: true when there was any */
bool commands_post_responses(struct offload *offload);
/* the hidden lane has room again */
void commands_post_waiting(struct offload_qp *qp);

/* ---- ctrl.c --------------------------------------------------------------- */

/* Return: false: no room, it was put on ctrl->wait_sq */
bool ctrl_submit(struct offload_ctrl *ctrl, struct offload_command *cmd);
/* ring, look for completions, admit waiters. Return: true when there was work */
bool ctrl_progress(struct offload_ctrl *ctrl);
void ctrl_update_timer(struct offload_ctrl *ctrl);
void ctrl_free(struct offload_ctrl *ctrl); /* engine's lock held */

/* ---- offload.c ------------------------------------------------------------ */

extern const struct ibv_nvmf_caps offload_caps;
struct offload_ns *namespace_find(struct offload *offload, uint32_t fe_nsid);

/* ---- receive.c ------------------------------------------------------------ */

/* QP state, made if missing; NULL: no memory */
struct offload_qp *offload_qp_get(struct offload *offload, struct hca_qp *qp);
/* the last command of a QP that is down has ended? Then tell */
void offload_qp_check_last(struct offload_qp *qp);

#endif
