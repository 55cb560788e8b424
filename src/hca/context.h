/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * context.h: what the adapter's objects share: an opened device (its engine and where its
 * asynchronous events go) and protection domains. The verbs room embeds these in its objects.
 */
#ifndef SOFTHCA_HCA_CONTEXT_H
#define SOFTHCA_HCA_CONTEXT_H

#include <stdatomic.h>
#include <infiniband/verbs.h>

#include "hca/engine.h"

struct hca_context {
	struct engine *engine;
	/*
	 * Raise an asynchronous event. @object is the owner pointer of the element (hca_qp.owner,
	 * hca_cq.owner, ...) or NULL for port events. Called with the engine's lock held.
	 */
	void (*event)(struct hca_context *ctx, enum ibv_event_type type, void *object);
};

struct hca_pd {
	struct hca_context *ctx;
	_Atomic unsigned int references; /* MRs, QPs, SRQs, AHs on it */
};

/* limits that ibv_query_device reports and the code enforces: one place */
#define HCA_MAX_QP_WR	     16384
#define HCA_MAX_SGE	     32
#define HCA_MAX_INLINE	     512
#define HCA_MAX_CQE	     (1U << 22)
#define HCA_MAX_SRQ_WR	     32768
#define HCA_MAX_RD_ATOMIC    128
#define HCA_MAX_MSG_LEN	     (1U << 31)
#define HCA_MAX_MP_WR_BUFFER (64U << 20)
#define HCA_MAX_MP_WR_ALIGN  (64U << 10)
#define HCA_MIN_MP_WR_ALIGN  64U
#define HCA_LOCAL_ACK_DELAY  15

#endif
