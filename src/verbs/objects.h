/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * objects.h: the verbs objects as we hold them: the structure that the application sees comes
 * first, ours behind it, the adapter's (src/hca) embedded. For src/verbs only.
 *
 * Clients read the structures directly and inline functions call through them: abi-facts 2. Where
 * a stock structure may grow at its end, room that is zero follows it.
 */
#ifndef SOFTHCA_VERBS_OBJECTS_H
#define SOFTHCA_VERBS_OBJECTS_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <infiniband/verbs.h>

#include "hca/context.h"
#include "hca/cq.h"
#include "hca/memory.h"
#include "hca/qp.h"
#include "hca/recv_queue.h"
#include "infiniband/verbs_ext.h"
#include "softhca/softhca.h"
#include "util/list.h"
#include "verbs/core_api.h"
#include "verbs/device.h"

#define GROWTH_ROOM 128 /* bytes, zero */

/* ---- device (device.c) ------------------------------------------------------ */

#define GID_TABLE_LEN 64
#define PORT_NUM      1

struct device_info {
	char ifname[16];
	uint32_t ifindex;
	uint32_t netdev_mtu;
	bool running;
	__be64 guid;
	union ibv_gid gids[GID_TABLE_LEN]; /* all zero = empty slot */
};

/* what is known of @device now; copied out under the table's lock */
void device_get_info(struct ibv_device *device, struct device_info *info);
/* look at the interfaces again: addresses, MTU, state; new devices appear, open contexts of changed
 * ones get their events */
void device_refresh(void);

enum device_change { DEVICE_GIDS = 1, DEVICE_PORT_UP = 2, DEVICE_PORT_DOWN = 4 };

/* raise the events of @changes on all open contexts of @device */
void context_device_changed(struct ibv_device *device, unsigned int changes);

/* monitor.c: call device_refresh() whenever interfaces or addresses change, from now on */
void monitor_start(void);
/* Return: 0, EINVAL (no such index, or its slot is empty) */
int device_get_gid(struct ibv_device *device, uint32_t index, union ibv_gid *gid,
		   uint32_t *ifindex);
bool device_is_ours(const struct ibv_device *device);

/* ---- asynchronous events (async.c) ------------------------------------------- */

/*
 * What asynchronous events come from: an object or the port. Each type is pending at most once
 * until it is read, so that raising one needs no memory.
 */
struct async_source {
	struct list_node node; /* in the context's queue while pending != 0 */
	uint32_t pending;      /* bit n: event type n; bit 24 + n: our event type n */
	uint32_t delivered;    /* read by the application */
	void *object;	       /* what the application gets as event.element */
};

struct soft_context {
	struct hca_context hca; /* hca.engine: NULL until the first object is made */
	pthread_mutex_t engine_lock;
	pid_t engine_owner;	      /* who started it: a forked child may not use it */
	_Atomic unsigned int objects; /* that point here */

	pthread_mutex_t qps_lock;
	struct list_node qps; /* struct soft_qp */

	pthread_mutex_t async_lock;
	struct list_node async_queue; /* struct async_source with something pending */
	struct async_source port_source;

	struct verbs_context verbs; /* last but for room */
};

/* @context->event of the adapter: finds the object's source and queues */
void async_raise(struct hca_context *ctx, enum ibv_event_type type, void *object);
void async_source_init(struct async_source *source, void *object);
/* drop what was not read. The object is about to go and raises nothing any more */
void async_source_cancel(struct soft_context *ctx, struct async_source *source);

static inline struct soft_context *to_context(struct ibv_context *context)
{
	return container_of(context, struct soft_context, verbs.context);
}

static inline struct soft_context *hca_to_context(struct hca_context *ctx)
{
	return container_of(ctx, struct soft_context, hca);
}

/* the context's engine, started on first use. Return: 0 or errno */
int context_start_engine(struct soft_context *ctx);
/* false: a parent process has made objects on it before the fork */
bool context_is_usable(struct ibv_context *context);

/* gid_lookup_fn of the contexts */
int context_gid_lookup(struct hca_context *ctx, uint8_t index, union ibv_gid *gid,
		       uint32_t *ifindex);

void context_set_ops(struct soft_context *ctx); /* context_ops.c */
/* apply to the engines of all open contexts; softhca_fault_set(). Return: 0 or errno */
int context_set_faults(const char *rules);

/* ---- protection domain, memory region, address handle ------------------------ */

struct soft_pd {
	struct ibv_pd ibv;
	struct hca_pd hca;
};

struct soft_mr {
	struct ibv_mr ibv;
	struct hca_mr hca;
	_Atomic unsigned int
		references; /* an offload's staging memory, an NVMe controller's queues */
};

struct soft_ah {
	struct ibv_ah ibv;
	struct ibv_ah_attr attr;
	union ibv_gid sgid;
	uint32_t ifindex;
};

static inline struct soft_pd *to_pd(struct ibv_pd *pd)
{
	return container_of(pd, struct soft_pd, ibv);
}

static inline struct soft_mr *to_mr(struct ibv_mr *mr)
{
	return container_of(mr, struct soft_mr, ibv);
}

/* ---- completion channel and queue --------------------------------------------- */

struct soft_channel {
	struct ibv_comp_channel ibv; /* ibv.fd: semaphore eventfd, one count an event */
	pthread_mutex_t lock;
	struct list_node queue; /* struct soft_cq with events_pending != 0 */
};

struct soft_cq {
	struct ibv_cq_ex ibv;
	uint8_t growth[GROWTH_ROOM];
	struct hca_cq hca;
	struct async_source async;

	/* channel; under its lock */
	struct list_node channel_node;
	uint32_t events_pending;   /* raised, not yet read */
	uint32_t events_delivered; /* read by the application */

	/* extended polling, between start_poll and end_poll */
	pthread_mutex_t poll_lock;
	bool single_threaded;
	struct cqe current;
};

static inline struct soft_channel *to_channel(struct ibv_comp_channel *channel)
{
	return container_of(channel, struct soft_channel, ibv);
}

static inline struct soft_cq *to_cq(struct ibv_cq *cq)
{
	return (struct soft_cq *)cq;
}

static inline struct soft_cq *ex_to_cq(struct ibv_cq_ex *cq)
{
	return container_of(cq, struct soft_cq, ibv);
}

int cq_poll_classic(struct ibv_cq *cq, int num_entries, struct ibv_wc *wc);
int cq_req_notify(struct ibv_cq *cq, int solicited_only);
struct ibv_cq_ex *cq_create_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr);
void cq_set_ex_ops(struct ibv_cq_ex *cq); /* cq_ex.c */

/* channel.c: hca_cq.notify of CQs with a channel; the CQ leaves its channel */
void channel_notify(struct hca_cq *cq);
void channel_remove_cq(struct soft_channel *channel, struct soft_cq *cq);

/* ---- shared receive queue ------------------------------------------------------ */

struct soft_srq {
	struct ibv_srq ibv;
	uint8_t growth[GROWTH_ROOM];
	struct hca_srq hca;
	struct async_source async;
	bool multi_packet;
	struct soft_mr *staging;	 /* of the offload */
	bool cq_is_fixed;		 /* given at creation, not by the first QP */
	_Atomic unsigned int nvme_ctrls; /* live ones (ext.c) */
};

static inline struct soft_srq *to_srq(struct ibv_srq *srq)
{
	return container_of(srq, struct soft_srq, ibv);
}

struct ibv_srq *srq_create_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr);
int srq_post_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);
/* a QP with @recv_cq comes and goes. Return: 0, EINVAL (the rules of MP WR, docs/mp-wr.md) */
int srq_attach_qp(struct soft_srq *srq, struct soft_cq *recv_cq);
void srq_detach_qp(struct soft_srq *srq);

/* ---- queue pair ---------------------------------------------------------------- */

/* the WRs between ibv_wr_start() and ibv_wr_complete() (qp_wr.c) */
struct wr_builder {
	pthread_mutex_t lock;
	int error; /* the first one; wr_complete reports it */
	struct ibv_send_wr *wrs;
	uint32_t count, capacity;
	struct ibv_sge *sges; /* of all WRs; a WR's sg_list is set by wr_complete */
	uint32_t sge_count, sge_capacity;
	uint8_t *inline_data; /* copied when set: the application may reuse its buffers */
	uint32_t inline_len, inline_capacity;
};

struct soft_qp {
	struct ibv_qp_ex ibv;
	uint8_t growth[GROWTH_ROOM];
	struct hca_qp *hca;
	struct list_node node; /* in its context's qps */
	struct async_source async;
	struct ibv_qp_cap cap;
	bool sq_sig_all;
	bool extended; /* created with send_ops_flags: ibv_wr_* may be used */
	struct wr_builder builder;
};

static inline struct soft_qp *to_qp(struct ibv_qp *qp)
{
	return container_of(qp, struct soft_qp, ibv.qp_base);
}

struct ibv_qp *qp_create_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr);
/* the context is closed while @qp is still there: it neither sends nor answers any more */
void qp_orphan(struct soft_qp *qp);
int qp_post_send_list(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr);
int qp_post_recv_list(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);

/* qp_wr.c */
#define WR_SUPPORTED_OPS                                                                           \
	(IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND |    \
	 IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_SEND_WITH_INV)
void wr_builder_init(struct soft_qp *qp);
void wr_builder_free(struct soft_qp *qp);

/* ---- NVMe controller of an offload (ext.c) --------------------------------------- */

struct offload_ctrl;

struct ibv_nvme_ctrl {
	struct ibv_context *context;
	struct soft_srq *srq;
	struct offload_ctrl *offload;
	struct soft_mr *memory[4]; /* queues and doorbells */
	struct async_source async;
	uint32_t events_completed; /* under the context's async_lock */
};

/* query.c */
int query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
		    struct ibv_device_attr_ex *attr, size_t attr_size);
int query_port(struct ibv_context *context, uint8_t port_num, struct ibv_port_attr *attr,
	       size_t attr_len);

/* pointer calls: NULL and errno */
static inline void *fail_with(int error)
{
	errno = error;
	return NULL;
}

/* int calls of the -1 kind */
static inline int minus_one(int error)
{
	errno = error;
	return -1;
}

#endif
