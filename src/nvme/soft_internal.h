/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * soft_internal.h: the soft controller's structures, shared by soft_ctrl.c (objects, threads) and
 * soft_qp.c (serving commands).
 */
#ifndef SOFTHCA_NVME_SOFT_INTERNAL_H
#define SOFTHCA_NVME_SOFT_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <liburing.h>

#include "nvme/backend.h"
#include "nvme/prp.h"
#include "nvme/queue.h"
#include "nvme/soft_ctrl.h"
#include "util/list.h"

#define SOFT_MAX_QUEUES 1024
#define SOFT_MAX_NSID	4096
#define SOFT_PAGE_SIZE	4096	    /* CC.MPS 0 */
#define SOFT_IOVS	16	    /* pieces of one back end I/O; longer lists take several */
#define SOFT_SCRATCH	(64U << 10) /* COMPARE reads this much at a time */

struct soft_ns {
	struct backend *backend;
	uint32_t lba_size;
	uint64_t lba_count;
	_Atomic unsigned int in_flight; /* commands in io_uring or waiting for it */
};

struct soft_cmd {
	struct list_node node; /* free, ready, done or compare_wait list of the QP */
	struct soft_qp *qp;
	struct soft_ns *ns;
	struct nvme_sqe sqe; /* our copy: the host may change its own */
	uint16_t status;
	bool counted;	/* in ns->in_flight */
	bool holds_cid; /* its bit in qp->cids is set */

	uint64_t offset, length, done; /* bytes of the namespace */
	uint32_t range, range_count;   /* DSM */
	struct prp_walk walk;
	uint8_t *piece; /* rest of the walk's current piece */
	uint64_t piece_len;
	struct backend_io io;
	struct iovec iov[SOFT_IOVS];
};

struct soft_qp {
	struct soft_ctrl *ctrl;
	uint16_t qid;
	pthread_mutex_t lock;
	bool live;

	struct nvme_sqe *sq;
	struct nvme_cqe *cq;
	uint32_t depth;
	uint32_t sq_head;
	uint32_t cq_head, cq_tail;
	uint8_t phase;

	struct soft_cmd *cmds;
	struct list_node free;
	struct list_node ready;	   /* want a submission */
	struct list_node done;	   /* want a CQ entry */
	uint64_t cids[65536 / 64]; /* in use */

	bool has_ring;
	struct io_uring ring;
	unsigned int ring_room;		/* submissions that can be outstanding */
	_Atomic unsigned int in_flight; /* submissions outstanding */

	/* COMPARE: one at a time has the buffer */
	uint8_t *scratch;
	struct soft_cmd *comparing;
	struct list_node compare_wait;

	void (*on_completion)(void *arg);
	void *arg;
	_Atomic unsigned int callbacks; /* running now */
};

struct soft_ctrl {
	pthread_mutex_t control;
	unsigned int max_queues;
	struct soft_qp *qps; /* by qid; [0] unused */
	struct soft_ns *namespaces[SOFT_MAX_NSID + 1];
	struct prp_range *ranges;
	struct prp_memory memory; /* ranges and their count */
	bool wants_rings;

	uint8_t *doorbells;
	size_t doorbells_len;

	int event_fd;
	_Atomic unsigned int empty_polls;
	pthread_t thread;
	_Atomic bool has_thread, stop;
};

uint32_t *soft_ctrl_doorbell(struct soft_ctrl *ctrl, uint16_t qid, bool cq);

void soft_qp_init(struct soft_qp *qp, struct soft_ctrl *ctrl, uint16_t qid);
/* Return: 0, EBUSY (exists), ENOMEM */
int soft_qp_start(struct soft_qp *qp, uint32_t depth, void *sq, void *cq,
		  void (*on_completion)(void *arg), void *arg);
/* no more commands, no more CQEs. Return: false when it was not live */
bool soft_qp_stop(struct soft_qp *qp);
void soft_qp_release(struct soft_qp *qp); /* after the last submission came back */
/* make the io_uring if it is missing; lock held */
void soft_qp_need_ring(struct soft_qp *qp);
/* take new SQEs, completions of back ends and freed CQ entries. Return: something completed */
bool soft_qp_process(struct soft_qp *qp);

#endif
