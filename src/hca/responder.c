// SPDX-License-Identifier: BSD-2-Clause
/*
 * responder.c: the receiving half of a reliable connection: takes requests in PSN order, places
 * their data, answers. Every request goes check, then place, then complete; the order of the
 * checks is that of wire-facts 2.3, so that the answer to a packet with several faults is known.
 * IBTA 1.4, 9.7.4-9.7.5.
 *
 * Responses leave in PSN order: an acknowledgement or NAK waits for the READ responses before it.
 */
#include <string.h>

#include "hca/qp_internal.h"
#include "util/bytes.h"
#include "util/log.h"

/* ---- answers --------------------------------------------------------------- */

static void owe(struct hca_qp *qp, uint8_t syndrome, uint32_t psn, bool lazy)
{
	struct responder *resp = &qp->resp;

	resp->syndrome = syndrome;
	resp->owed_psn = psn;
	if (resp->owed) {
		resp->lazy &= lazy;
		return;
	}
	resp->owed = true;
	resp->owed_round = qp->engine->round;
	resp->lazy = lazy;
	list_add_tail(&qp->engine->ack_list, &qp->ack_node);
}

static void owe_nothing(struct hca_qp *qp)
{
	qp->resp.owed = false;
	list_del(&qp->ack_node);
}

/* one ACK for the newest packet covers the older ones; a NAK that is owed covers them as well */
static void owe_ack(struct hca_qp *qp, bool lazy)
{
	struct responder *resp = &qp->resp;

	if (resp->owed && resp->syndrome != AETH_ACK_NO_CREDIT)
		return;
	owe(qp, AETH_ACK_NO_CREDIT, resp->ack_psn, lazy);
}

static void nak_sequence(struct hca_qp *qp)
{
	qp->resp.nak_sent = true;
	counter_inc(CNT_NAK_SEQ_TX);
	owe(qp, AETH_NAK_SEQUENCE, qp->resp.epsn, false);
}

static void nak_rnr(struct hca_qp *qp)
{
	qp->resp.nak_sent = true;
	counter_inc(CNT_RNR_TX);
	/* armed when the SRQ was empty: no WR will be taken that could tell */
	if (qp->srq)
		srq_check_limit(qp->srq);
	owe(qp, AETH_RNR_NAK | qp->attr.min_rnr_timer, qp->resp.epsn, false);
}

/* The QP is lost: NAK, then ERR, once the READ responses before it have left */
static void fail_at(struct hca_qp *qp, uint8_t syndrome, uint32_t psn, const char *why)
{
	struct responder *resp = &qp->resp;

	log_debug("qp 0x%06x: NAK 0x%02x for psn 0x%06x: %s", qp->qpn, syndrome, psn, why);
	resp->failed = true;
	owe(qp, syndrome, psn, false);
	if (resp->reads_active)
		qp_schedule(qp);
}

static void fail(struct hca_qp *qp, uint8_t syndrome, const char *why)
{
	fail_at(qp, syndrome, qp->resp.epsn, why);
}

static void fail_with_event(struct hca_qp *qp, uint8_t syndrome, enum ibv_event_type event,
			    const char *why)
{
	qp->resp.has_fail_event = true;
	qp->resp.fail_event = event;
	fail(qp, syndrome, why);
}

static void nak_invalid(struct hca_qp *qp, const char *why)
{
	counter_inc(CNT_NAK_INV_TX);
	qp->resp.recv_status = IBV_WC_REM_INV_REQ_ERR;
	fail_with_event(qp, AETH_NAK_INVALID, IBV_EVENT_QP_REQ_ERR, why);
}

static void nak_access(struct hca_qp *qp, const char *why)
{
	counter_inc(CNT_NAK_ACCESS_TX);
	qp->resp.recv_status = IBV_WC_REM_ACCESS_ERR;
	fail_with_event(qp, AETH_NAK_ACCESS, IBV_EVENT_QP_ACCESS_ERR, why);
}

/* the packet at ePSN was executed */
static void request_accepted(struct hca_qp *qp, const struct packet *p)
{
	struct responder *resp = &qp->resp;

	resp->ack_psn = resp->epsn;
	resp->epsn = psn_add(resp->epsn, 1);
	resp->invalidated = false;
	if (p->flags & OPF_END) {
		resp->msn = psn_add(resp->msn, 1);
		resp->message = MESSAGE_NONE;
	}
	/* a NAK not yet sent asked for the packet that has just come */
	if (resp->owed && resp->syndrome != AETH_ACK_NO_CREDIT)
		owe_nothing(qp);
	/* the end of a message may have an answer */
	if (p->ack_req)
		owe_ack(qp, p->flags & OPF_END);
}

bool responder_acknowledge(struct hca_qp *qp)
{
	struct responder *resp = &qp->resp;
	bool is_ack = resp->syndrome == AETH_ACK_NO_CREDIT;
	struct packet p = {
		.opcode = OPC_RC | OP_ACKNOWLEDGE,
		.pkey = PKEY_DEFAULT,
		.dest_qpn = qp->dest_qpn,
		.psn = is_ack ? resp->ack_psn : resp->owed_psn,
		.syndrome = resp->syndrome,
		.msn = resp->msn,
	};

	if (resp->reads_active || link_queue(qp->engine->link, &qp->flow, &p, NULL, 0))
		return false;
	owe_nothing(qp);
	if (is_ack)
		counter_inc(CNT_ACK_TX);
	if (!resp->failed)
		return true;
	if (resp->has_fail_event)
		qp_event(qp, resp->fail_event);
	qp_enter_error(qp, IBV_WC_WR_FLUSH_ERR);
	return true;
}

/* ---- length rules (IBTA 1.4, 9.7.4.1.6) ------------------------------------- */

static bool length_is_right(const struct hca_qp *qp, const struct packet *p)
{
	if (p->flags & OPF_FULL_MTU)
		return p->payload_len == qp->mtu && !p->pad;
	if (p->flags & OPF_NOT_EMPTY && !p->payload_len)
		return false;
	return p->payload_len <= qp->mtu;
}

/* ---- SEND ------------------------------------------------------------------ */

/* no receive WR is there, as far as can be told without touching the queue */
static bool recv_is_empty(const struct hca_qp *qp)
{
	return !recv_queue_attr(qp->rq)->multi_packet && !recv_queue_untouched(qp->rq);
}

/* Return: false = the packet was answered with a NAK */
static bool recv_took(struct hca_qp *qp, enum recv_status status)
{
	switch (status) {
	case RECV_OK:
		if (qp->srq && qp->srq->limit)
			srq_check_limit(qp->srq);
		return true;
	case RECV_EMPTY:
		nak_rnr(qp);
		return false;
	case RECV_TOO_LONG:
		counter_inc(CNT_NAK_INV_TX);
		fail(qp, AETH_NAK_INVALID, "message longer than the receive WR");
		return false;
	case RECV_PROTECTION:
		counter_inc(CNT_NAK_OP_TX);
		fail(qp, AETH_NAK_OPERATION, "bad SGE in the receive WR");
		return false;
	}
	return false;
}

/*
 * Invalidate before the completion is visible, and once: an RNR NAK may turn the packet away after
 * that. Return: false = NAK.
 */
static bool invalidate_key(struct hca_qp *qp, const struct packet *p)
{
	if (!(p->flags & HDR_IETH) || qp->resp.invalidated)
		return true;
	if (memory_invalidate(p->inv_rkey, qp->pd) != MEMORY_OK) {
		nak_access(qp, "SEND with invalidate of a bad key");
		return false;
	}
	qp->resp.invalidated = true;
	return true;
}

/* Return: false = the packet was answered with a NAK */
static bool send_to_capsule(struct hca_qp *qp, const struct packet *p)
{
	enum capsule_verdict verdict = p->flags & OPF_START ? qp->capsule_ops->first(qp, p)
							    : qp->capsule_ops->next(qp, p);

	/* the offload may have taken the QP down */
	if (!qp_can_respond(qp) || qp->resp.failed)
		return false;
	switch (verdict) {
	case CAPSULE_NOT_MINE:
		qp->resp.message = MESSAGE_SEND;
		return true;
	case CAPSULE_TAKEN:
		qp->resp.message = MESSAGE_CAPSULE;
		return true;
	case CAPSULE_RNR:
		nak_rnr(qp);
		return false;
	case CAPSULE_BAD:
		nak_invalid(qp, "capsule length");
		return false;
	}
	return false;
}

static void send_received(struct hca_qp *qp, const struct packet *p)
{
	struct responder *resp = &qp->resp;
	bool start = p->flags & OPF_START;
	enum message_kind before = resp->message;

	if (!length_is_right(qp, p)) {
		if (start && !qp->capsule_ops && recv_is_empty(qp))
			nak_rnr(qp);
		else
			nak_invalid(qp, "SEND packet length");
		return;
	}
	if (start)
		resp->message = MESSAGE_SEND;
	if (qp->capsule_ops && (start || resp->message == MESSAGE_CAPSULE)) {
		if (!send_to_capsule(qp, p)) {
			resp->message = before;
			return;
		}
	}
	if (resp->message == MESSAGE_SEND && start && recv_is_empty(qp)) {
		resp->message = before;
		nak_rnr(qp);
		return;
	}
	if (!invalidate_key(qp, p))
		return;
	if (resp->message == MESSAGE_SEND &&
	    !recv_took(qp, recv_queue_send(qp->rq, &resp->recv, &qp->target, p))) {
		resp->message = before;
		return;
	}
	request_accepted(qp, p);
	qp_check_overrun(qp, qp->target.cq);
}

/* ---- RDMA WRITE ------------------------------------------------------------ */

static bool write_start(struct hca_qp *qp, const struct packet *p)
{
	struct responder *resp = &qp->resp;
	bool only = p->flags & OPF_END;
	void *host;

	if (!(qp->attr.qp_access_flags & IBV_ACCESS_REMOTE_WRITE)) {
		nak_invalid(qp, "RDMA WRITE is not enabled");
		return false;
	}
	if (p->flags & HDR_IMM && recv_is_empty(qp)) {
		nak_rnr(qp);
		return false;
	}
	if (!length_is_right(qp, p) || p->dma_len > HCA_MAX_MSG_LEN ||
	    (only ? p->dma_len != p->payload_len : p->dma_len <= p->payload_len)) {
		nak_invalid(qp, "RDMA WRITE length");
		return false;
	}
	/* the whole range, before anything is written; a WRITE of nothing has no key to check */
	if (p->dma_len &&
	    memory_translate(p->rkey, qp->pd, p->va, p->dma_len, IBV_ACCESS_REMOTE_WRITE, true,
			     &host, NULL) != MEMORY_OK) {
		nak_access(qp, "RDMA WRITE key or bounds");
		return false;
	}
	resp->write_va = p->va;
	resp->write_rkey = p->rkey;
	resp->write_length = resp->write_left = p->dma_len;
	return true;
}

static bool write_continue(struct hca_qp *qp, const struct packet *p)
{
	struct responder *resp = &qp->resp;
	bool last = p->flags & OPF_END;

	if (p->flags & HDR_IMM && recv_is_empty(qp)) {
		nak_rnr(qp);
		return false;
	}
	if (!length_is_right(qp, p) ||
	    (last ? p->payload_len != resp->write_left : p->payload_len >= resp->write_left)) {
		nak_invalid(qp, "RDMA WRITE length");
		return false;
	}
	return true;
}

/* The key is looked up for each packet: the region may be deregistered in mid-message */
static bool write_place(struct hca_qp *qp, const struct packet *p)
{
	struct responder *resp = &qp->resp;
	struct hca_mr *mr;
	void *host;

	if (!p->payload_len)
		return true;
	if (memory_translate(resp->write_rkey, qp->pd, resp->write_va, p->payload_len,
			     IBV_ACCESS_REMOTE_WRITE, true, &host, &mr) != MEMORY_OK) {
		nak_access(qp, "RDMA WRITE key or bounds");
		return false;
	}
	memcpy(host, p->payload, p->payload_len);
	if (mr->ring)
		mr->ring(mr->ring_arg, (size_t)(resp->write_va - mr->iova));
	return true;
}

static void write_received(struct hca_qp *qp, const struct packet *p)
{
	struct responder *resp = &qp->resp;

	if (!(p->flags & OPF_START ? write_start(qp, p) : write_continue(qp, p)))
		return;
	if (!write_place(qp, p))
		return;
	/* an RNR NAK here leaves the data written: they are written again with the repeated packet
	 */
	if (p->flags & HDR_IMM &&
	    !recv_took(qp, recv_queue_write_imm(qp->rq, &qp->target, p, resp->write_length)))
		return;
	resp->message = MESSAGE_WRITE;
	resp->write_va += p->payload_len;
	resp->write_left -= p->payload_len;
	request_accepted(qp, p);
	if (p->flags & HDR_IMM)
		qp_check_overrun(qp, qp->target.cq);
}

/* ---- RDMA READ ------------------------------------------------------------- */

static struct read_resource *read_at(const struct hca_qp *qp, uint32_t index)
{
	return &qp->resp.read_ring[index % HCA_MAX_RD_ATOMIC];
}

static uint32_t read_packets(const struct hca_qp *qp, uint32_t len)
{
	return (uint32_t)MAX(div_round_up(len, qp->mtu), 1ULL);
}

/* answer @len bytes of the READ in slot @index, from packet @start on */
static void read_execute(struct hca_qp *qp, uint32_t index, uint32_t start, uint32_t len,
			 bool duplicate)
{
	struct responder *resp = &qp->resp;
	struct read_resource *read = read_at(qp, index);

	if (!read->active)
		resp->reads_active++;
	read->active = true;
	read->duplicate = duplicate;
	read->start = read->next = start;
	read->end = start + read_packets(qp, len);
	read->end_offset = start * qp->mtu + len;
	if ((int32_t)(index - resp->read_oldest) < 0)
		resp->read_oldest = index;
	qp_schedule(qp);
}

static void read_received(struct hca_qp *qp, const struct packet *p)
{
	struct responder *resp = &qp->resp;
	struct read_resource *read;
	void *host;

	if (!(qp->attr.qp_access_flags & IBV_ACCESS_REMOTE_READ)) {
		nak_invalid(qp, "RDMA READ is not enabled");
		return;
	}
	/* a duplicate whose slot is wanted by a new READ is not waited for any more */
	read = read_at(qp, resp->read_tail - qp->attr.max_dest_rd_atomic);
	if (!qp->attr.max_dest_rd_atomic || (read->active && !read->duplicate)) {
		nak_invalid(qp, "more READs than max_dest_rd_atomic");
		return;
	}
	if (p->dma_len > HCA_MAX_MSG_LEN) {
		nak_invalid(qp, "RDMA READ length");
		return;
	}
	if (p->dma_len &&
	    memory_translate(p->rkey, qp->pd, p->va, p->dma_len, IBV_ACCESS_REMOTE_READ, true,
			     &host, NULL) != MEMORY_OK) {
		nak_access(qp, "RDMA READ key or bounds");
		return;
	}
	if (read->active) {
		read->active = false;
		resp->reads_active--;
	}
	read = read_at(qp, resp->read_tail++);
	resp->msn = psn_add(resp->msn, 1);
	read->first_psn = p->psn;
	read->packets = read_packets(qp, p->dma_len);
	read->va = p->va;
	read->rkey = p->rkey;
	read->length = p->dma_len;
	read->msn = resp->msn;
	read->active = false;
	resp->epsn = psn_add(resp->epsn, read->packets);
	/* the responses acknowledge what came before */
	owe_nothing(qp);
	read_execute(qp, resp->read_tail - 1, 0, p->dma_len, false);
}

static struct read_resource *oldest_active_read(struct hca_qp *qp)
{
	struct responder *resp = &qp->resp;

	while (!read_at(qp, resp->read_oldest)->active)
		resp->read_oldest++;
	return read_at(qp, resp->read_oldest);
}

static uint8_t response_opcode(const struct read_resource *read)
{
	bool first = read->next == read->start, last = read->next + 1 == read->end;

	if (first)
		return last ? OP_READ_RESPONSE_ONLY : OP_READ_RESPONSE_FIRST;
	return last ? OP_READ_RESPONSE_LAST : OP_READ_RESPONSE_MIDDLE;
}

static enum tx_result send_response(struct hca_qp *qp, struct read_resource *read, uint32_t *sent)
{
	uint64_t offset = (uint64_t)read->next * qp->mtu;
	uint32_t len = (uint32_t)MIN(read->end_offset - offset, qp->mtu);
	struct iovec iov = { .iov_len = len };
	struct packet p = {
		.opcode = OPC_RC | response_opcode(read),
		.pad = -len & 3,
		.pkey = PKEY_DEFAULT,
		.dest_qpn = qp->dest_qpn,
		.psn = psn_add(read->first_psn, read->next),
		.syndrome = AETH_ACK_NO_CREDIT,
		.msn = read->msn,
		.payload_len = len,
	};

	/* data as they are now; a NAK takes the place of a response that cannot be made */
	if (len &&
	    memory_translate(read->rkey, qp->pd, read->va + offset, len, IBV_ACCESS_REMOTE_READ,
			     true, &iov.iov_base, NULL) != MEMORY_OK) {
		struct responder *resp = &qp->resp;

		for (uint32_t i = 0; i < HCA_MAX_RD_ATOMIC; i++)
			resp->read_ring[i].active = false;
		resp->reads_active = 0;
		counter_inc(CNT_NAK_ACCESS_TX);
		resp->recv_status = IBV_WC_REM_ACCESS_ERR;
		resp->has_fail_event = true;
		resp->fail_event = IBV_EVENT_QP_ACCESS_ERR;
		fail_at(qp, AETH_NAK_ACCESS, p.psn, "RDMA READ key, in mid-response");
		return TX_IDLE;
	}
	if (link_queue(qp->engine->link, &qp->flow, &p, &iov, len ? 1 : 0))
		return TX_LINK_FULL;
	*sent += len + PACKET_OVERHEAD;
	if (++read->next == read->end) {
		read->active = false;
		qp->resp.reads_active--;
	}
	return TX_MORE;
}

enum tx_result responder_transmit(struct hca_qp *qp)
{
	uint32_t sent = 0;

	while (qp->resp.reads_active) {
		struct read_resource *read = oldest_active_read(qp);

		while (read->active) {
			enum tx_result result;

			if (sent >= TX_BURST_BYTES)
				return TX_MORE;
			result = send_response(qp, read, &sent);
			if (result != TX_MORE)
				return result;
		}
	}
	return TX_IDLE;
}

/* ---- packets out of order -------------------------------------------------- */

static void future_received(struct hca_qp *qp)
{
	counter_inc(CNT_DROP_FUTURE);
	if (!qp->resp.nak_sent)
		nak_sequence(qp);
}

static void duplicate_read(struct hca_qp *qp, const struct packet *p)
{
	const struct responder *resp = &qp->resp;

	for (uint32_t i = 1; i <= MIN(qp->attr.max_dest_rd_atomic, resp->read_tail); i++) {
		const struct read_resource *read = read_at(qp, resp->read_tail - i);
		int32_t start = psn_diff(p->psn, read->first_psn);
		uint64_t offset;

		if (start < 0 || (uint32_t)start >= read->packets)
			continue;
		offset = (uint64_t)start * qp->mtu;
		if (p->rkey != read->rkey || p->va != read->va + offset ||
		    p->dma_len > read->length - offset)
			break;
		counter_inc(CNT_DUPLICATE_READ);
		/* on its way: to begin anew from here would leave out what is before */
		if (read->active && (uint32_t)start >= read->next &&
		    offset + p->dma_len <= read->end_offset)
			return;
		read_execute(qp, resp->read_tail - i, (uint32_t)start, p->dma_len, true);
		return;
	}
	counter_inc(CNT_DROP_DUPLICATE_LOST);
}

static void duplicate_received(struct hca_qp *qp, const struct packet *p)
{
	if (p->flags & OPF_READ) {
		duplicate_read(qp, p);
		return;
	}
	if (p->flags & OPF_ATOMIC) {
		counter_inc(CNT_DROP_DUPLICATE_LOST);
		return;
	}
	counter_inc(CNT_DUPLICATE);
	owe_ack(qp, false);
}

/* ---- entry ----------------------------------------------------------------- */

/* MIDDLE and LAST only inside a message of their kind, everything else only between messages */
static bool sequence_is_right(const struct hca_qp *qp, const struct packet *p)
{
	enum message_kind message = qp->resp.message;

	if (p->flags & (OPF_READ | OPF_ATOMIC) || p->flags & OPF_START)
		return message == MESSAGE_NONE;
	if (p->flags & OPF_SEND)
		return message == MESSAGE_SEND || message == MESSAGE_CAPSULE;
	return message == MESSAGE_WRITE;
}

void responder_receive(struct hca_qp *qp, const struct packet *p)
{
	struct responder *resp = &qp->resp;
	int32_t distance = psn_diff(p->psn, resp->epsn);

	if (resp->failed)
		return;
	if (distance > 0) {
		future_received(qp);
		return;
	}
	if (distance < 0) {
		duplicate_received(qp, p);
		return;
	}
	resp->nak_sent = false;
	if (!sequence_is_right(qp, p))
		nak_invalid(qp, "opcode out of sequence");
	else if (p->flags & OPF_SEND)
		send_received(qp, p);
	else if (p->flags & OPF_WRITE)
		write_received(qp, p);
	else if (p->flags & OPF_READ)
		read_received(qp, p);
	else /* atomics come later */
		nak_invalid(qp, "operation is not supported");
}

void responder_start(struct hca_qp *qp, uint32_t psn)
{
	struct responder *resp = &qp->resp;
	struct read_resource *read_ring = resp->read_ring;

	memset(resp, 0, sizeof(*resp));
	resp->read_ring = read_ring;
	memset(read_ring, 0, HCA_MAX_RD_ATOMIC * sizeof(*read_ring));
	resp->recv_status = IBV_WC_WR_FLUSH_ERR;
	resp->epsn = psn & PSN_MASK;
	resp->ack_psn = psn_add(resp->epsn, PSN_MASK);
}

void responder_stop(struct hca_qp *qp)
{
	struct responder *resp = &qp->resp;

	list_del(&qp->ack_node);
	resp->owed = false;
	resp->message = MESSAGE_NONE;
	resp->reads_active = 0;
	for (uint32_t i = 0; i < HCA_MAX_RD_ATOMIC; i++)
		resp->read_ring[i].active = false;
}
