// SPDX-License-Identifier: BSD-2-Clause
/*
 * ring.c: a multi-packet shared receive queue: capsules of all queue pairs on it arrive one behind
 * the other in large buffers. Pieces are copied out at once, so that a buffer goes back as soon as
 * its completion says CONSUMED.
 */
#include "target/rdma.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "util/bytes.h"
#include "util/log.h"

#define POLL_BATCH  64
#define RECEIVE_BIT (1ULL << 63) /* of a wr_id; the rest is the buffer's index */

static int post_buffer(struct ring *ring, uint32_t index)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)ring->memory + (uint64_t)index * ring->buffer_bytes,
		.length = ring->buffer_bytes,
		.lkey = ring->mr->lkey,
	};
	struct ibv_recv_wr wr = { .wr_id = RECEIVE_BIT | index, .sg_list = &sge, .num_sge = 1 };
	struct ibv_recv_wr *bad;

	return ibv_post_srq_recv(ring->srq, &wr, &bad);
}

static bool create_cq(struct ring *ring, uint32_t receives)
{
	struct ibv_cq_init_attr_ex attr = {
		.wc_flags = IBV_WC_EX_WITH_MP_WR | IBV_WC_EX_WITH_QP_NUM | IBV_WC_EX_WITH_BYTE_LEN,
	};

	ring->comp_channel = ibv_create_comp_channel(ring->device->verbs);
	if (!ring->comp_channel)
		return false;
	attr.channel = ring->comp_channel;
	attr.cqe = receives + RING_SEND_BUDGET;
	ring->cq = ibv_create_cq_ex(ring->device->verbs, &attr);
	return ring->cq;
}

static bool create_srq(struct ring *ring, const struct ibv_nvmf_attrs *nvmf)
{
	struct ibv_srq_init_attr_ext attr = {
		.mp_wr = { .wr_buffer_sz = RING_BUFFER_BYTES, .packet_align_sz = RING_ALIGN_BYTES },
	};

	attr.base.attr.max_wr = RING_BUFFERS;
	attr.base.attr.max_sge = 1;
	attr.base.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
			      IBV_SRQ_INIT_ATTR_MP_WR;
	attr.base.srq_type = IBV_SRQT_BASIC;
	attr.base.pd = ring->device->pd;
	if (nvmf) {
		attr.nvmf_attr = *nvmf;
		attr.base.srq_type = IBV_SRQT_NVMF;
		attr.base.comp_mask |= IBV_SRQ_INIT_ATTR_NVMF | IBV_SRQ_INIT_ATTR_CQ;
		attr.base.cq = ibv_cq_ex_to_cq(ring->cq);
	}
	ring->srq = ibv_create_srq_ex(ring->device->verbs, &attr.base);
	ring->buffer_bytes = attr.mp_wr.wr_buffer_sz;
	ring->buffers = RING_BUFFERS;
	return ring->srq;
}

struct ring *ring_create(struct device *device, const struct ibv_nvmf_attrs *nvmf)
{
	struct ring *ring = calloc(1, sizeof(*ring));
	int err;

	if (!ring)
		return NULL;
	ring->device = device;
	ring->offloaded = nvmf;
	ring->send_budget = RING_SEND_BUDGET;
	if (!create_cq(ring, RING_BUFFERS * (RING_BUFFER_BYTES / RING_ALIGN_BYTES)) ||
	    !create_srq(ring, nvmf))
		goto out_free;
	ring->memory = aligned_alloc(4096, (size_t)ring->buffers * ring->buffer_bytes);
	if (!ring->memory)
		goto out_free;
	ring->mr = ibv_reg_mr(device->pd, ring->memory, (size_t)ring->buffers * ring->buffer_bytes,
			      IBV_ACCESS_LOCAL_WRITE);
	if (!ring->mr)
		goto out_free;
	for (uint32_t i = 0; i < ring->buffers; i++) {
		err = post_buffer(ring, i);
		if (err) {
			errno = err;
			goto out_free;
		}
	}
	return ring;

out_free:
	err = errno;
	ring_free(ring);
	errno = err;
	return NULL;
}

void ring_free(struct ring *ring)
{
	if (!ring)
		return;
	if (ring->srq && ibv_destroy_srq(ring->srq))
		log_warn("an SRQ could not be destroyed: %s", strerror(errno));
	if (ring->cq)
		ibv_destroy_cq(ibv_cq_ex_to_cq(ring->cq));
	if (ring->comp_channel)
		ibv_destroy_comp_channel(ring->comp_channel);
	if (ring->mr)
		ibv_dereg_mr(ring->mr);
	free(ring->memory);
	free(ring);
}

/* a completion, copied out so that the CQ is free while it is dealt with */
struct completion {
	uint64_t wr_id;
	enum ibv_wc_status status;
	enum ibv_wc_opcode opcode;
	unsigned int flags;
	uint32_t qp_num, bytes;
	size_t offset;
};

static void read_completion(struct ring *ring, struct completion *c)
{
	struct ibv_cq_ex *cq = ring->cq;

	*c = (struct completion){ .wr_id = cq->wr_id, .status = cq->status };
	c->qp_num = ibv_wc_read_qp_num(cq);
	if (cq->status != IBV_WC_SUCCESS || !(cq->wr_id & RECEIVE_BIT))
		return;
	c->opcode = ibv_wc_read_opcode(cq);
	c->flags = ibv_wc_read_wc_flags(cq);
	c->bytes = ibv_wc_read_byte_len(cq);
	c->offset = ibv_wc_read_mp_wr_offset(cq);
}

static void give_back(struct ring *ring, uint32_t index)
{
	int err = post_buffer(ring, index);

	if (err)
		log_error("a receive buffer cannot be posted again: %s", strerror(err));
}

static void receive_piece(struct ring *ring, const struct completion *c)
{
	struct connection *conn = connection_by_qp_num(ring->device->transport, c->qp_num);
	const uint8_t *buffer = ring->memory + (size_t)(uint32_t)c->wr_id * ring->buffer_bytes;
	bool more = c->flags & IBV_WC_MP_WR_MORE_IN_MSG;

	ring->pieces++;
	if (!more)
		ring->capsules++;
	if (conn && range_inside(c->offset, c->bytes, 0, ring->buffer_bytes))
		connection_receive(conn, buffer + c->offset, c->bytes, more);
}

static void receive_completion(struct ring *ring, const struct completion *c)
{
	if (c->status != IBV_WC_SUCCESS) {
		/* an error gives the buffer back; that the QP failed is told by the CM */
		log_debug("receive failed: %s", ibv_wc_status_str(c->status));
		give_back(ring, (uint32_t)c->wr_id);
		return;
	}
	if (c->opcode == IBV_WC_RECV_NOP)
		ring->nops++;
	else
		receive_piece(ring, c);
	if (c->flags & IBV_WC_MP_WR_CONSUMED) {
		ring->consumed++;
		give_back(ring, (uint32_t)c->wr_id);
	}
}

/* wr_id of a send: the connection's serial << 32 | the request's index */
static void send_completion(struct ring *ring, const struct completion *c)
{
	struct connection *conn = connection_by_qp_num(ring->device->transport, c->qp_num);

	if (!conn || conn->serial != c->wr_id >> 32 || (uint32_t)c->wr_id >= conn->request_count)
		return; /* of a connection that is gone */
	request_completion(&conn->requests[(uint32_t)c->wr_id], c->status);
}

bool ring_poll(struct ring *ring)
{
	struct completion batch[POLL_BATCH];
	struct ibv_poll_cq_attr attr = { 0 };
	unsigned int n = 0;

	if (ibv_start_poll(ring->cq, &attr))
		return false;
	do
		read_completion(ring, &batch[n++]);
	while (n < POLL_BATCH && !ibv_next_poll(ring->cq));
	ibv_end_poll(ring->cq);
	for (unsigned int i = 0; i < n; i++) {
		if (batch[i].wr_id & RECEIVE_BIT)
			receive_completion(ring, &batch[i]);
		else
			send_completion(ring, &batch[i]);
	}
	return true;
}

void ring_arm(struct ring *ring)
{
	ibv_req_notify_cq(ibv_cq_ex_to_cq(ring->cq), 0);
}

void ring_notified(struct ring *ring)
{
	struct ibv_cq *cq;
	void *arg;

	if (!ibv_get_cq_event(ring->comp_channel, &cq, &arg))
		ibv_ack_cq_events(cq, 1);
}
