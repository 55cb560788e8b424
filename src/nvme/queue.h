/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * queue.h: the steps of an NVMe queue pair as small inline functions, named as in the NVMe
 * specification. The offload uses the host's side (post, update_tail, peek, pop, update_head), the
 * soft controller the device's side (doorbell_read, cqe_write).
 * NVM Express Base 2.0, 3.3; wire-facts 6.
 */
#ifndef SOFTHCA_NVME_QUEUE_H
#define SOFTHCA_NVME_QUEUE_H

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nvme/spec.h"

/* ---- host side ------------------------------------------------------------ */

struct nvme_sq {
	struct nvme_sqe *ring;
	uint32_t *doorbell; /* tail, little-endian */
	uint32_t depth;
	uint32_t tail, head; /* head: as the last SQHD said */
	uint32_t rung;	     /* tail that the controller was told */
};

struct nvme_cq {
	struct nvme_cqe *ring;
	uint32_t *doorbell; /* head, little-endian */
	uint32_t depth;
	uint32_t head;
	uint32_t rung; /* head that the controller was told */
	uint8_t phase; /* of the next new entry */
};

/* entries that can be posted: one stays empty, so that full and empty differ */
static inline uint32_t nvme_sq_room(const struct nvme_sq *sq)
{
	uint32_t used = sq->tail >= sq->head ? sq->tail - sq->head
					     : sq->tail + sq->depth - sq->head;

	return sq->depth - 1 - used;
}

/* the caller looked at nvme_sq_room() */
static inline void nvme_sq_post(struct nvme_sq *sq, const struct nvme_sqe *sqe)
{
	sq->ring[sq->tail] = *sqe;
	sq->tail = sq->tail + 1 == sq->depth ? 0 : sq->tail + 1;
}

/* ring the doorbell if something was posted since. Return: true when it was written */
static inline bool nvme_sq_update_tail(struct nvme_sq *sq)
{
	if (sq->rung == sq->tail)
		return false;
	sq->rung = sq->tail;
	/* release: the SQEs are in memory before the controller learns of them */
	__atomic_store_n(sq->doorbell, htole32(sq->tail), __ATOMIC_RELEASE);
	return true;
}

/*
 * Take over the head that a CQE reports. Return: false when it is not one of the entries between
 * head and tail (a stale or bogus SQHD); nothing changed.
 */
static inline bool nvme_sq_update_head(struct nvme_sq *sq, uint32_t sqhd)
{
	uint32_t used = sq->tail >= sq->head ? sq->tail - sq->head
					     : sq->tail + sq->depth - sq->head;
	uint32_t step;

	if (sqhd >= sq->depth)
		return false;
	step = sqhd >= sq->head ? sqhd - sq->head : sqhd + sq->depth - sq->head;
	if (step > used)
		return false;
	sq->head = sqhd;
	return true;
}

/* the next new entry, or NULL */
static inline struct nvme_cqe *nvme_cq_peek(const struct nvme_cq *cq)
{
	struct nvme_cqe *cqe = &cq->ring[cq->head];
	/* acquire: the phase is read before the rest of the entry and before the data it announces
	 */
	uint16_t status = le16toh(__atomic_load_n(&cqe->status, __ATOMIC_ACQUIRE));

	return (status & 1) == cq->phase ? cqe : NULL;
}

static inline void nvme_cq_pop(struct nvme_cq *cq)
{
	if (++cq->head < cq->depth)
		return;
	cq->head = 0;
	cq->phase ^= 1;
}

/* give the entries taken back to the controller. Return: true when the doorbell was written */
static inline bool nvme_cq_update_head(struct nvme_cq *cq)
{
	if (cq->rung == cq->head)
		return false;
	cq->rung = cq->head;
	/* release: our reads of the entries are done before the controller overwrites them */
	__atomic_store_n(cq->doorbell, htole32(cq->head), __ATOMIC_RELEASE);
	return true;
}

/* ---- controller side ------------------------------------------------------ */

static inline uint32_t nvme_doorbell_read(const uint32_t *doorbell)
{
	/* acquire: SQEs are read after the tail that covers them */
	return le32toh(__atomic_load_n(doorbell, __ATOMIC_ACQUIRE));
}

/* @cqe's status has no phase yet */
static inline void nvme_cqe_write(struct nvme_cqe *slot, const struct nvme_cqe *cqe, uint8_t phase)
{
	slot->dw0 = cqe->dw0;
	slot->dw1 = cqe->dw1;
	slot->sqhd = cqe->sqhd;
	slot->sqid = cqe->sqid;
	slot->cid = cqe->cid;
	/* release: the phase turns over after the data and the rest of the entry are visible */
	__atomic_store_n(&slot->status, (uint16_t)(cqe->status | htole16(phase)), __ATOMIC_RELEASE);
}

#endif
