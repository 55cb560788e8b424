/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * recv_queue.c: receive queues: creation, posting, the FIFO of posted WQEs, placing of payload and
 * flushing. What a packet does to a WQE is the kind's matter (recv_queue_basic.c,
 * recv_queue_mp.c).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "hca/recv_queue_internal.h"
#include "util/bytes.h"
#include "util/counters.h"
#include "util/log.h"

int recv_queue_round_mp_wr(struct ibv_mp_wr_attr *attr)
{
	uint64_t align, buffer;

	if (!attr->wr_buffer_sz || !attr->packet_align_sz ||
	    attr->packet_align_sz > attr->wr_buffer_sz)
		return EINVAL;
	align = round_up_power_of_two(MAX(attr->packet_align_sz, HCA_MIN_MP_WR_ALIGN));
	buffer = (attr->wr_buffer_sz + align - 1) & ~(align - 1);
	if (align > HCA_MAX_MP_WR_ALIGN || buffer > HCA_MAX_MP_WR_BUFFER)
		return EINVAL;
	attr->wr_buffer_sz = buffer;
	attr->packet_align_sz = align;
	return 0;
}

static int add_chunk(struct recv_queue *rq, uint32_t count)
{
	struct wqe_chunk *chunk = calloc(1, sizeof(*chunk));

	if (!chunk)
		return ENOMEM;
	/* calloc: pages of a deep queue are touched when they are first used */
	chunk->wqes = calloc(count, rq->wqe_size);
	if (!chunk->wqes) {
		free(chunk);
		return ENOMEM;
	}
	chunk->count = count;
	chunk->next = rq->chunks;
	rq->chunks = chunk;
	return 0;
}

struct recv_queue *recv_queue_create(const struct recv_queue_attr *attr)
{
	uint32_t max_wr = attr->is_srq ? HCA_MAX_SRQ_WR : HCA_MAX_QP_WR;
	struct recv_queue *rq;

	if (attr->max_wr > max_wr || attr->max_sge > HCA_MAX_SGE ||
	    (attr->is_srq && !attr->max_wr)) {
		errno = EINVAL;
		return NULL;
	}
	rq = calloc(1, sizeof(*rq));
	if (!rq)
		return NULL;
	rq->attr = *attr;
	rq->last = &rq->first;
	rq->wqe_size = sizeof(struct recv_wqe) + attr->max_sge * sizeof(struct ibv_sge);
	if (attr->multi_packet) {
		rq->ops = &recv_queue_mp_ops;
		rq->units = attr->mp_wr.wr_buffer_sz / attr->mp_wr.packet_align_sz;
	} else {
		rq->ops = &recv_queue_basic_ops;
	}
	if (attr->max_wr && add_chunk(rq, attr->max_wr)) {
		free(rq);
		errno = ENOMEM;
		return NULL;
	}
	return rq;
}

void recv_queue_free(struct recv_queue *rq)
{
	struct wqe_chunk *chunk;

	if (!rq)
		return;
	while ((chunk = rq->chunks)) {
		rq->chunks = chunk->next;
		free(chunk->wqes);
		free(chunk);
	}
	free(rq);
}

const struct recv_queue_attr *recv_queue_attr(const struct recv_queue *rq)
{
	return &rq->attr;
}

int recv_queue_resize(struct recv_queue *rq, uint32_t max_wr)
{
	uint32_t capacity = 0;

	if (rq->attr.multi_packet)
		return EOPNOTSUPP;
	if (!max_wr || max_wr > (rq->attr.is_srq ? HCA_MAX_SRQ_WR : HCA_MAX_QP_WR) ||
	    max_wr < atomic_load(&rq->slots_used))
		return EINVAL;
	for (struct wqe_chunk *c = rq->chunks; c; c = c->next)
		capacity += c->count;
	if (max_wr > capacity && add_chunk(rq, max_wr - capacity))
		return ENOMEM;
	rq->attr.max_wr = max_wr;
	return 0;
}

uint32_t recv_queue_untouched(const struct recv_queue *rq)
{
	return rq->untouched;
}

void recv_queue_get_stats(const struct recv_queue *rq, struct recv_queue_stats *stats)
{
	*stats = rq->stats;
}

/* ---- WQEs ------------------------------------------------------------------ */

static struct recv_wqe *get_wqe(struct recv_queue *rq)
{
	struct recv_wqe *wqe = rq->free;

	if (wqe) {
		rq->free = wqe->next;
		return wqe;
	}
	for (struct wqe_chunk *c = rq->chunks; c; c = c->next)
		if (c->used < c->count)
			return (void *)(c->wqes + rq->wqe_size * c->used++);
	return NULL;
}

void recv_queue_put_wqe(struct recv_queue *rq, struct recv_wqe *wqe)
{
	wqe->next = rq->free;
	rq->free = wqe;
}

struct recv_wqe *recv_queue_take(struct recv_queue *rq)
{
	struct recv_wqe *wqe = rq->first;

	if (!wqe)
		return NULL;
	rq->first = wqe->next;
	if (!rq->first)
		rq->last = &rq->first;
	rq->untouched--;
	return wqe;
}

void recv_queue_free_slot(struct recv_queue *rq)
{
	atomic_fetch_sub_explicit(&rq->slots_used, 1, memory_order_relaxed);
}

void recv_queue_slot_polled(struct recv_queue *rq)
{
	recv_queue_free_slot(rq);
}

static uint64_t sge_total(const struct ibv_recv_wr *wr)
{
	uint64_t length = 0;

	for (int i = 0; i < wr->num_sge; i++)
		length += wr->sg_list[i].length;
	return length;
}

int recv_queue_post(struct recv_queue *rq, const struct ibv_recv_wr *wr)
{
	struct recv_wqe *wqe;
	uint64_t length;

	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > rq->attr.max_sge) {
		log_debug("post_recv: %d SGEs, the queue was created for %u", wr->num_sge,
			  rq->attr.max_sge);
		return EINVAL;
	}
	length = sge_total(wr);
	if (rq->attr.multi_packet && length != rq->attr.mp_wr.wr_buffer_sz) {
		log_debug("post_recv: %llu bytes, a multi-packet WR here has exactly %u",
			  (unsigned long long)length, rq->attr.mp_wr.wr_buffer_sz);
		return EINVAL;
	}
	if (atomic_load_explicit(&rq->slots_used, memory_order_relaxed) >= rq->attr.max_wr)
		return ENOMEM;
	wqe = get_wqe(rq);
	if (!wqe)
		return ENOMEM;
	atomic_fetch_add_explicit(&rq->slots_used, 1, memory_order_relaxed);
	wqe->next = NULL;
	wqe->wr_id = wr->wr_id;
	wqe->length = length;
	wqe->num_sge = wr->num_sge;
	if (wr->num_sge)
		memcpy(wqe->sge, wr->sg_list, wr->num_sge * sizeof(*wqe->sge));
	*rq->last = wqe;
	rq->last = &wqe->next;
	rq->untouched++;
	return 0;
}

/* ---- placing --------------------------------------------------------------- */

/*
 * The 40 bytes before a UD payload: the IPv6 header, or 20 bytes of zero and the IPv4 header.
 * wire-facts 1.7.
 */
static void make_grh_area(uint8_t area[GRH_AREA_LEN], const struct packet *p)
{
	static const uint8_t ipv4_mapped[12] = { [10] = 0xff, 0xff };
	uint32_t udp_len = 8 + packet_len(p->opcode, p->payload_len);
	uint32_t sum = 0;
	uint8_t *ip4 = area + 20;

	memset(area, 0, GRH_AREA_LEN);
	if (memcmp(p->dgid.raw, ipv4_mapped, sizeof(ipv4_mapped))) {
		put_be32(area, 6U << 28 | (uint32_t)p->tos << 20);
		put_be16(area + 4, udp_len);
		area[6] = 17; /* UDP */
		area[7] = p->ttl;
		memcpy(area + 8, p->sgid.raw, 16);
		memcpy(area + 24, p->dgid.raw, 16);
		return;
	}
	ip4[0] = 0x45;
	ip4[1] = p->tos;
	put_be16(ip4 + 2, 20 + udp_len);
	put_be16(ip4 + 6, 0x4000); /* don't fragment */
	ip4[8] = p->ttl;
	ip4[9] = 17;
	memcpy(ip4 + 12, p->sgid.raw + 12, 4);
	memcpy(ip4 + 16, p->dgid.raw + 12, 4);
	for (int i = 0; i < 20; i += 2)
		sum += get_be16(ip4 + i);
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	put_be16(ip4 + 10, ~sum);
}

/* iovecs for [offset, offset + length) of the concatenation of a WQE's SGEs; -1 = no access */
static int map_range(const struct recv_queue *rq, const struct recv_wqe *wqe, uint64_t offset,
		     uint64_t length, struct iovec iov[HCA_MAX_SGE])
{
	enum memory_status status;
	int n = 0;

	for (int i = 0; i < wqe->num_sge && length; i++) {
		const struct ibv_sge *sge = &wqe->sge[i];
		uint64_t here;

		if (offset >= sge->length) {
			offset -= sge->length;
			continue;
		}
		here = MIN(length, sge->length - offset);
		status = memory_translate(sge->lkey, rq->attr.pd, sge->addr + offset, here,
					  IBV_ACCESS_LOCAL_WRITE, false, &iov[n].iov_base, NULL);
		if (status != MEMORY_OK) {
			log_debug("receive: SGE %d (lkey 0x%x): memory status %d", i, sge->lkey,
				  status);
			return -1;
		}
		iov[n++].iov_len = here;
		length -= here;
		offset = 0;
	}
	return n;
}

static void scatter(struct iovec **iov, const uint8_t *data, uint64_t length)
{
	while (length) {
		uint64_t here = MIN(length, (*iov)->iov_len);

		memcpy((*iov)->iov_base, data, here);
		data += here;
		length -= here;
		(*iov)->iov_base = (uint8_t *)(*iov)->iov_base + here;
		(*iov)->iov_len -= here;
		if (!(*iov)->iov_len)
			(*iov)++;
	}
}

bool recv_queue_place(const struct recv_queue *rq, const struct recv_wqe *wqe, uint64_t offset,
		      const struct recv_target *target, const struct packet *p)
{
	struct iovec iov[HCA_MAX_SGE], *next = iov;
	uint8_t grh_area[GRH_AREA_LEN];

	if (map_range(rq, wqe, offset, recv_place_len(target, p), iov) < 0)
		return false;
	if (target->is_ud) {
		make_grh_area(grh_area, p);
		scatter(&next, grh_area, sizeof(grh_area));
	}
	scatter(&next, p->payload, p->payload_len);
	return true;
}

/* ---- completions ----------------------------------------------------------- */

struct cqe recv_queue_cqe(const struct recv_wqe *wqe, const struct recv_target *target,
			  const struct packet *p, enum ibv_wc_opcode opcode, uint32_t byte_len)
{
	struct cqe cqe = {
		.wr_id = wqe->wr_id,
		.status = IBV_WC_SUCCESS,
		.opcode = opcode,
		.byte_len = byte_len,
		.qp_num = target->qp_num,
	};

	if (target->is_ud) {
		cqe.src_qp = p->src_qpn;
		cqe.wc_flags |= IBV_WC_GRH;
	}
	if (!(p->flags & OPF_END))
		return cqe;
	if (p->flags & HDR_IMM) {
		cqe.imm_data = p->imm;
		cqe.wc_flags |= IBV_WC_WITH_IMM;
	} else if (p->flags & HDR_IETH) {
		cqe.invalidated_rkey = p->inv_rkey;
		cqe.wc_flags |= IBV_WC_WITH_INV;
	}
	return cqe;
}

void recv_queue_push_error(struct recv_queue *rq, const struct recv_wqe *wqe,
			   const struct recv_target *target, enum ibv_wc_status status)
{
	struct cqe cqe = {
		.wr_id = wqe->wr_id,
		.status = status,
		.opcode = IBV_WC_RECV,
		.qp_num = target->qp_num,
		.slot_of = rq->attr.multi_packet ? rq : NULL,
	};

	cq_push(target->cq, &cqe, true);
}

/* ---- packets and state changes --------------------------------------------- */

enum recv_status recv_queue_send(struct recv_queue *rq, struct recv_message *msg,
				 const struct recv_target *target, const struct packet *p)
{
	return rq->ops->send(rq, msg, target, p);
}

enum recv_status recv_queue_write_imm(struct recv_queue *rq, const struct recv_target *target,
				      const struct packet *p, uint32_t byte_len)
{
	return rq->ops->write_imm(rq, target, p, byte_len);
}

void recv_queue_abort(struct recv_queue *rq, struct recv_message *msg,
		      const struct recv_target *target, enum ibv_wc_status status)
{
	rq->ops->abort(rq, msg, target, status);
	*msg = (struct recv_message){ 0 };
}

/* the WQEs not given back, in the order in which packets would have used them */
static struct recv_wqe *take_any(struct recv_queue *rq)
{
	struct recv_wqe *wqe = rq->current;

	if (!wqe)
		return recv_queue_take(rq);
	rq->current = NULL;
	return wqe;
}

void recv_queue_flush(struct recv_queue *rq, const struct recv_target *target)
{
	struct recv_wqe *wqe;

	while ((wqe = take_any(rq))) {
		/* the slot first: whoever sees the completion may post again */
		if (!rq->attr.multi_packet)
			recv_queue_free_slot(rq);
		else
			rq->stats.wrs++;
		recv_queue_push_error(rq, wqe, target, IBV_WC_WR_FLUSH_ERR);
		recv_queue_put_wqe(rq, wqe);
	}
}

void recv_queue_reset(struct recv_queue *rq)
{
	struct recv_wqe *wqe;

	while ((wqe = take_any(rq))) {
		recv_queue_free_slot(rq);
		recv_queue_put_wqe(rq, wqe);
	}
}
