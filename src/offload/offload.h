/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * offload.h: the NVMe-oF target offload of one SRQ: capsule in, NVMe SQE out, CQE in, capsule out.
 * Behind the calls of <infiniband/verbs_ext.h>, which check that their arguments are ours and then
 * come here. docs/nvmf-offload.md has the rules.
 */
#ifndef SOFTHCA_OFFLOAD_OFFLOAD_H
#define SOFTHCA_OFFLOAD_OFFLOAD_H

#include "hca/capsule.h"
#include "hca/memory.h"
#include "hca/recv_queue.h"
#include "infiniband/verbs_ext.h"
#include "softhca/softhca.h"

struct offload;
struct offload_ctrl;

/* one piece of memory of the attributes, already translated from ibv_mr by the verbs room */
struct offload_memory {
	struct hca_mr *mr;
	uint8_t *addr;
	uint64_t len;
};

void offload_get_caps(struct ibv_nvmf_caps *caps);

/* Return: 0 or EINVAL/ENOMEM/EOPNOTSUPP; rules of docs/nvmf-offload.md */
int offload_create(struct offload **offload, struct hca_srq *srq,
		   const struct ibv_nvmf_attrs *attrs, const struct offload_memory *staging);
void offload_destroy(struct offload *offload);
extern const struct capsule_ops offload_capsule_ops;
/* hidden WRs a QP of this offload needs room for */
uint32_t offload_hidden_wrs(const struct offload *offload);

struct offload_ctrl_init {
	void *owner; /* the struct ibv_nvme_ctrl, for events */
	struct offload_memory sq, cq, sqdb, cqdb;
	uint16_t sqdb_ini, cqdb_ini;
	uint32_t cmd_timeout_ms;
};
/*
 * The five calls: as their ibv_ counterparts, errno values returned. All control calls here take
 * the engine's lock themselves; offload_unmap() waits without it, driving the engine meanwhile, for
 * one command timeout at most.
 */
int offload_ctrl_create(struct offload_ctrl **ctrl, struct offload *offload,
			const struct offload_ctrl_init *init);
int offload_ctrl_remove(struct offload_ctrl *ctrl); /* waits for nothing; EBUSY while mapped */
int offload_map(struct offload_ctrl *ctrl, uint32_t fe_nsid, uint32_t lba_size, uint32_t nvme_nsid);
int offload_unmap(struct offload_ctrl *ctrl, uint32_t fe_nsid);
int offload_query_ns(struct offload_ctrl *ctrl, uint32_t fe_nsid, struct ibv_nvmf_ns_stats *stats);

int offload_qp_modify(struct hca_qp *qp, int flags);
int offload_qp_sqhd(struct hca_qp *qp, uint16_t *sqhd);
void offload_query_srq(struct offload *offload, struct softhca_nvmf_srq_stats *stats);
/* the PRP lists that SQEs name; @len 0: none */
void offload_prp_lists(const struct offload *offload, const void **addr, size_t *len);
/* any thread */
void offload_cq_notify(struct offload *offload);

#endif
