/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * qp.h: queue pairs: creation, state machine, posting. The two halves of the protocol are in
 * requester.c (send queue, acknowledgements and read responses) and responder.c (requests).
 * IBTA 1.4, 9 and 10; wire-facts 2.
 */
#ifndef SOFTHCA_HCA_QP_H
#define SOFTHCA_HCA_QP_H

#include "hca/capsule.h"
#include "hca/context.h"
#include "hca/cq.h"
#include "hca/recv_queue.h"

struct qp_init {
	struct hca_context *ctx;
	struct hca_pd *pd;
	void *owner;	       /* the struct ibv_qp, for events */
	enum ibv_qp_type type; /* RC; others EOPNOTSUPP */
	struct hca_cq *send_cq, *recv_cq;
	struct hca_srq *srq;   /* or NULL */
	struct ibv_qp_cap cap; /* in/out: actual values */
	bool sq_sig_all;
	bool multi_packet;		       /* own RQ of the multi-packet kind */
	struct ibv_mp_wr_attr mp_wr;	       /* in/out */
	const struct capsule_ops *capsule_ops; /* SRQ of type NVMF: the offload, else NULL */
	uint32_t hidden_wrs;		       /* room in the hidden lane */
};

/* Resolve sgid_index of a port to a GID and its interface; the verbs room provides it.
 * Return: 0, EINVAL (no such index) */
typedef int (*gid_lookup_fn)(struct hca_context *ctx, uint8_t index, union ibv_gid *gid,
			     uint32_t *ifindex);

struct hca_qp; /* defined in qp_internal.h, for requester.c, responder.c, qp.c */

/* Return: 0, or errno: EINVAL (caps, MP WR rules: docs/mp-wr.md), EOPNOTSUPP, ENOMEM */
int qp_create(struct hca_qp **qp, struct qp_init *init);
void qp_destroy(struct hca_qp *qp); /* purges its CQEs */

uint32_t qp_num(const struct hca_qp *qp);
enum ibv_qp_state qp_state(const struct hca_qp *qp);
struct hca_srq *qp_srq(const struct hca_qp *qp);
struct hca_context *qp_context(const struct hca_qp *qp);
void *qp_owner(const struct hca_qp *qp);
/* free use by the offload, per QP */
void *qp_capsule_state(const struct hca_qp *qp);
void qp_set_capsule_state(struct hca_qp *qp, void *state);

/**
 * qp_modify() - state machine with attribute masks (wire-facts 2.7). Nothing changes on error.
 * Return: 0 or EINVAL (each cause is logged at debug level).
 */
int qp_modify(struct hca_qp *qp, const struct ibv_qp_attr *attr, int mask, gid_lookup_fn gid);
void qp_query(struct hca_qp *qp, struct ibv_qp_attr *attr, struct ibv_qp_init_attr *init);

/**
 * qp_post_send() - post a list. Takes the engine's lock; sends at once when nothing is in flight,
 * otherwise leaves it to the next round so that super-packets form.
 * Return: 0, or errno with *bad_wr set, earlier ones posted: EINVAL (state, opcode, SGE count,
 * inline too long), ENOMEM (SQ full).
 */
int qp_post_send(struct hca_qp *qp, const struct ibv_send_wr *wr,
		 const struct ibv_send_wr **bad_wr);
/* how many WRs the send queue has room for now (ibv_wr_complete() posts all or nothing). Takes the
 * engine's lock */
uint32_t qp_send_room(struct hca_qp *qp);
/* Return: 0, or errno with *bad_wr set: EINVAL (state, SGEs, MP WR length), ENOMEM (RQ full) */
int qp_post_recv(struct hca_qp *qp, const struct ibv_recv_wr *wr,
		 const struct ibv_recv_wr **bad_wr);

/* error from outside (CQ overrun, offload): engine's lock held */
void qp_fail(struct hca_qp *qp, enum ibv_event_type event);

/* a packet for a QP, from the engine: lock held */
void qp_receive(struct engine *engine, const struct packet *p);

#endif
