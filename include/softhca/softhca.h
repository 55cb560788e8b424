/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * softhca.h: SoftHCA's own API beside verbs: counters, fault injection and
 * doorbell regions. Everything here works only on SoftHCA's own objects.
 */
#ifndef SOFTHCA_SOFTHCA_H
#define SOFTHCA_SOFTHCA_H

#include <stddef.h>
#include <stdint.h>
#include <infiniband/verbs.h>

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

/* softhca_version() - "major.minor.patch" of the library in this process */
const char *softhca_version(void);

/* softhca_is_device() - 1 when @context is one of SoftHCA's, else 0 */
int softhca_is_device(struct ibv_context *context);

/**
 * softhca_counter() - read one of the process's counters by its index.
 * @index: 0, 1, 2 ... until the function returns ENOENT.
 * @name: out: static string such as "rx_drop_icrc".
 * @value: out.
 * Return: 0 or ENOENT.
 */
int softhca_counter(unsigned int index, const char **name, uint64_t *value);

/**
 * softhca_fault_set() - replace the process's fault rules; the same text as the environment
 * variable SOFTHCA_FAULT (see softhca(7)). NULL or "" switches faults off.
 * Return: 0, EINVAL (the text is wrong; a line on stderr says where).
 */
int softhca_fault_set(const char *rules);

/**
 * softhca_reg_doorbell_mr() - register @len bytes at @addr whose writes by the adapter are
 * announced: after the adapter (NVMe-oF offload) has written a doorbell in there it calls
 * @ring(arg, offset).
 * @ring is called with the engine's lock held: it must not block or call verbs.
 * Return: an MR (free with ibv_dereg_mr), or NULL and errno as ibv_reg_mr().
 */
struct ibv_mr *softhca_reg_doorbell_mr(struct ibv_pd *pd, void *addr, size_t len,
				       void (*ring)(void *arg, size_t offset), void *arg);

/**
 * softhca_nvme_cq_notify() - tell the engine of @srq's offload that completions were written to
 * an NVMe CQ, so that it looks at them at once even when nobody polls. Callable from any thread,
 * also from within a doorbell function.
 */
void softhca_nvme_cq_notify(struct ibv_srq *srq);

/* per-SRQ counters of the offload that belong to no namespace */
struct softhca_nvmf_srq_stats {
	uint64_t offloaded_read, offloaded_write, offloaded_flush;
	uint64_t software; /* capsules handed to the application on enabled QPs */
	uint64_t unknown_nsid;
	uint64_t errors;
	uint64_t waits_staging, waits_sq, waits_rnr; /* commands that had to wait */
};
int softhca_query_nvmf_srq(struct ibv_srq *srq, struct softhca_nvmf_srq_stats *stats);

/**
 * softhca_nvmf_sqhd() - SQ head of the fabrics queue on @qp (an IBV_SRQT_NVMF SRQ's QP): counts
 * all capsules taken, offloaded or not, modulo the queue size seen in CONNECT. For the responses
 * that software sends on an offloaded QP.
 * Return: 0 or EINVAL.
 */
int softhca_nvmf_sqhd(struct ibv_qp *qp, uint16_t *sqhd);

/**
 * softhca_nvmf_prp_lists() - the adapter's memory with the PRP lists that the offload of @srq names
 * in its SQEs. An NVMe controller that reads PRP lists must be given access to it, as to the
 * staging memory: a software controller has to accept these addresses, an IOMMU to map them.
 * @len: out: 0 when no transfer needs a list.
 * Return: 0 or EINVAL. Valid until the SRQ is destroyed.
 */
int softhca_nvmf_prp_lists(struct ibv_srq *srq, const void **addr, size_t *len);

/* counters of an MP WR receive queue */
struct softhca_mp_wr_stats {
	uint64_t packets; /* pieces delivered */
	uint64_t wrs;	  /* WRs given back (CONSUMED or error) */
	uint64_t nops;
};
int softhca_query_mp_wr_srq(struct ibv_srq *srq, struct softhca_mp_wr_stats *stats);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif /* SOFTHCA_SOFTHCA_H */
