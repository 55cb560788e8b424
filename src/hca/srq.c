/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * srq.c: the shared receive queue's limit event. IBTA 1.4, 10.2.9.2.
 */
#include "hca/recv_queue.h"

void srq_check_limit(struct hca_srq *srq)
{
	if (!srq->limit || recv_queue_untouched(srq->rq) >= srq->limit)
		return;
	srq->limit = 0; /* once; the application arms it again */
	srq->ctx->event(srq->ctx, IBV_EVENT_SRQ_LIMIT_REACHED, srq->owner);
}
