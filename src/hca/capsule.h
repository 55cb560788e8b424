/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * capsule.h: the seam between the responder and the NVMe-oF offload. The responder shows every
 * packet of a SEND on a QP whose SRQ is of type NVMF to the offload before the receive queue sees
 * it; the offload posts in a lane of the send queue that the application does not see.
 */
#ifndef SOFTHCA_HCA_CAPSULE_H
#define SOFTHCA_HCA_CAPSULE_H

#include <stdint.h>
#include <infiniband/verbs.h>

#include "wire/packet.h"

struct hca_qp;

enum capsule_verdict {
	CAPSULE_NOT_MINE, /* an ordinary receive; asked again for each packet of the message is not
			     needed */
	CAPSULE_TAKEN,	  /* the offload has it: acknowledge, no receive is used */
	CAPSULE_RNR,	  /* no room: RNR NAK */
	CAPSULE_BAD,	  /* length rules broken: NAK invalid request, QP to ERR */
};

struct capsule_ops {
	/* FIRST or ONLY packet of a SEND */
	enum capsule_verdict (*first)(struct hca_qp *qp, const struct packet *p);
	/* later packets of a message whose first was TAKEN */
	enum capsule_verdict (*next)(struct hca_qp *qp, const struct packet *p);
	/* the QP entered ERR or RESET, or is destroyed: after this no hidden WR may be posted.
	 * Comes before the done() calls of the WRs that are flushed, and again with RESET or
	 * destruction */
	void (*qp_down)(struct hca_qp *qp);
	/* the hidden lane has room again after qp_post_hidden() returned -EAGAIN */
	void (*room)(struct hca_qp *qp);
};

/*
 * A work request in the hidden lane. Memory belongs to the poster until @done was called, which
 * happens exactly once, in posting order, with the engine's lock held: SUCCESS when acknowledged
 * (READ: when the data have been placed), else an error status or WR_FLUSH_ERR.
 */
struct hidden_wr {
	enum ibv_wr_opcode opcode; /* RDMA_READ, RDMA_WRITE, SEND, SEND_WITH_INV */
	void *addr;		   /* local memory, not checked against keys */
	uint32_t length;
	uint64_t remote_addr; /* READ, WRITE */
	uint32_t rkey;	      /* READ, WRITE: of the remote memory; SEND_WITH_INV: to invalidate */
	void (*done)(struct hidden_wr *wr, struct hca_qp *qp, enum ibv_wc_status status);
};

/**
 * qp_post_hidden() - post in the hidden lane. Engine's lock held. Transmission happens at the end
 * of the engine's round, so that a batch's packets form super-packets.
 * Return: 0, -EAGAIN (lane full: ops->room() will be called), -ENOTCONN (QP not in RTS).
 */
int qp_post_hidden(struct hca_qp *qp, struct hidden_wr *wr);

#endif
