// SPDX-License-Identifier: BSD-2-Clause
/*
 * requester.c: the sending half of a reliable connection: cuts WQEs into packets, keeps the
 * window, takes acknowledgements and READ responses, goes back N when something was lost.
 * IBTA 1.4, 9.7.5-9.7.6; wire-facts 2.2, 2.4.
 *
 * A READ is asked for in pieces of req.read_chunk packets, so that its responses never overflow
 * our own receive buffer. Pieces start at fixed places of the message: whatever is asked for
 * again lies inside one earlier request, as a responder's check of duplicates wants it.
 */
#include <errno.h>
#include <string.h>

#include "hca/qp_internal.h"
#include "util/bytes.h"
#include "util/log.h"

/* an ACK is asked for at least so often; a responder that coalesces answers no more than that */
#define ACK_EVERY_PACKETS 64U
#define ACK_EVERY_BYTES	  (64U << 10)

#define READ_CHUNK_BYTES (256U << 10)

/* ---- packets of a WQE ------------------------------------------------------ */

static struct send_wqe *head_wqe(const struct hca_qp *qp)
{
	return send_queue_at(&qp->sq, qp->sq.head);
}

static uint32_t wqe_end_psn(const struct send_wqe *wqe)
{
	return psn_add(wqe->first_psn, wqe->packets);
}

/* payload of packets [from, to), bytes */
static uint32_t wqe_payload(const struct hca_qp *qp, const struct send_wqe *wqe, uint32_t from,
			    uint32_t to)
{
	uint64_t begin = (uint64_t)from * qp->mtu, end = (uint64_t)to * qp->mtu;

	return (uint32_t)(MIN(end, wqe->length) - MIN(begin, wqe->length));
}

/* what packets [from, to) take of the peer's window */
static uint64_t wqe_charge(const struct hca_qp *qp, const struct send_wqe *wqe, uint32_t from,
			   uint32_t to)
{
	if (wqe->opcode == IBV_WR_RDMA_READ)
		return 0;
	return wqe_payload(qp, wqe, from, to) + (uint64_t)(to - from) * PACKET_OVERHEAD;
}

/* end of the READ request that packet @index belongs to */
static uint32_t read_chunk_end(const struct hca_qp *qp, const struct send_wqe *wqe, uint32_t index)
{
	return MIN(wqe->packets, (index / qp->req.read_chunk + 1) * qp->req.read_chunk);
}

/* local memory of bytes [offset, offset + len) of a message, as iovecs */
static enum memory_status wqe_memory(const struct hca_qp *qp, struct send_wqe *wqe, uint32_t offset,
				     uint32_t len, int access, struct iovec *iov, int *count)
{
	*count = 0;
	if (!len)
		return MEMORY_OK;
	if (wqe->hidden || wqe->is_inline) {
		uint8_t *data = wqe->hidden ? wqe->hidden->addr : (uint8_t *)wqe->sge;

		iov[(*count)++] = (struct iovec){ data + offset, len };
		return MEMORY_OK;
	}
	for (int i = 0; i < wqe->sge_count && len; i++) {
		const struct ibv_sge *sge = &wqe->sge[i];
		enum memory_status status;
		uint32_t piece;
		void *host;

		if (offset >= sge->length) {
			offset -= sge->length;
			continue;
		}
		piece = MIN(len, sge->length - offset);
		status = memory_translate(sge->lkey, qp->pd, sge->addr + offset, piece, access,
					  false, &host, NULL);
		if (status != MEMORY_OK)
			return status;
		iov[(*count)++] = (struct iovec){ host, piece };
		len -= piece;
		offset = 0;
	}
	return MEMORY_OK;
}

static enum memory_status wqe_check_memory(const struct hca_qp *qp, const struct send_wqe *wqe)
{
	int access = wqe->opcode == IBV_WR_RDMA_READ ? IBV_ACCESS_LOCAL_WRITE : 0;
	struct iovec iov[HCA_MAX_SGE];
	int count;

	if (wqe->hidden || wqe->is_inline)
		return MEMORY_OK;
	return memory_translate_sge(qp->pd, wqe->sge, wqe->sge_count, access, iov, &count);
}

/* ---- completions ----------------------------------------------------------- */

static enum ibv_wc_opcode wc_opcode(uint8_t opcode)
{
	switch (opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return IBV_WC_RDMA_WRITE;
	case IBV_WR_RDMA_READ:
		return IBV_WC_RDMA_READ;
	default:
		return IBV_WC_SEND;
	}
}

/* The callee may post again, or take the QP down */
static void complete_head(struct hca_qp *qp, enum ibv_wc_status status)
{
	struct send_wqe *wqe = head_wqe(qp);
	struct hidden_wr *hidden = wqe->hidden;
	struct cqe cqe = {
		.wr_id = wqe->wr_id,
		.status = status,
		.opcode = wc_opcode(wqe->opcode),
		.byte_len = wqe->length,
		.qp_num = qp->qpn,
	};
	bool wanted = wqe->signaled || status != IBV_WC_SUCCESS;

	if (wqe->opcode == IBV_WR_RDMA_READ && wqe->started)
		qp->req.reads_begun--;
	send_queue_pop(&qp->sq);
	if (hidden) {
		hidden->done(hidden, qp, status);
		return;
	}
	if (!wanted)
		return;
	cqe.timestamp_ns = qp->engine->now_ns;
	cq_push(qp->send_cq, &cqe, false);
	qp_check_overrun(qp, qp->send_cq);
}

void requester_flush(struct hca_qp *qp, enum ibv_wc_status status)
{
	while (!send_queue_empty(&qp->sq)) {
		complete_head(qp, status);
		status = IBV_WC_WR_FLUSH_ERR;
	}
}

static void offer_room(struct hca_qp *qp)
{
	if (!qp->hidden_starved || qp->sq.used_hidden == qp->sq.max_hidden)
		return;
	qp->hidden_starved = false;
	qp->capsule_ops->room(qp);
}

/* ---- starting, stopping, going back ---------------------------------------- */

void requester_start(struct hca_qp *qp, uint32_t psn)
{
	struct requester *req = &qp->req;
	uint32_t chunk_bytes = MIN(link_window_bytes(qp->engine->link) / 4, READ_CHUNK_BYTES);

	psn &= PSN_MASK;
	req->una_psn = req->next_psn = req->max_psn = req->post_psn = psn;
	req->read_restart_psn = psn;
	req->timed_ns = req->rtt_ns = 0;
	req->probes = 0;
	req->read_chunk = MAX(chunk_bytes / qp->mtu, 1U);
	req->retries_left = qp->attr.retry_cnt;
	req->rnr_retries_left = qp->attr.rnr_retry;
	req->unsolicited_packets = req->unsolicited_bytes = 0;
	req->want_ack = req->rnr_wait = req->implied_nak = req->probing = false;
}

static void release_reads(struct hca_qp *qp)
{
	struct engine *engine = qp->engine;

	engine->read_bytes -= qp->req.read_bytes;
	qp->req.read_bytes = 0;
	qp->req.reads = 0;
	list_splice_tail(&engine->tx_list, &engine->read_waiters);
}

static void release_window(struct hca_qp *qp, uint64_t bytes)
{
	qp->req.in_flight -= bytes;
	if (qp->peer)
		peer_release(qp->engine, qp->peer, bytes);
}

void requester_stop(struct hca_qp *qp)
{
	timers_stop(qp);
	qp->req.rnr_wait = false;
	release_window(qp, qp->req.in_flight);
	release_reads(qp);
	list_del(&qp->tx_node);
}

/* send again from the oldest unacknowledged packet */
static void go_back(struct hca_qp *qp)
{
	struct requester *req = &qp->req;

	qp->sq.next = qp->sq.head;
	req->next_psn = req->una_psn;
	req->unsolicited_packets = req->unsolicited_bytes = 0;
	req->timed_ns = 0; /* whether an ACK means the first or the second sending nobody knows */
	release_window(qp, req->in_flight);
	release_reads(qp);
	if (!req->rnr_wait)
		qp_schedule(qp);
}

/* something was lost: one retry less */
static void retry(struct hca_qp *qp)
{
	if (!qp->req.retries_left) {
		counter_inc(CNT_RETRY_EXC);
		log_debug("qp 0x%06x: retry_cnt %u exceeded at psn 0x%06x", qp->qpn,
			  qp->attr.retry_cnt, qp->req.una_psn);
		qp_enter_error(qp, IBV_WC_RETRY_EXC_ERR);
		return;
	}
	qp->req.retries_left--;
	peer_lost(qp->peer, qp->engine->now_ns);
	go_back(qp);
}

void requester_timed_out(struct hca_qp *qp, uint64_t now_ns)
{
	if (requester_is_idle(qp))
		return;
	counter_inc(CNT_TIMEOUT);
	log_debug("qp 0x%06x: no acknowledgement of psn 0x%06x", qp->qpn, qp->req.una_psn);
	qp->req.implied_nak = false;
	qp->req.probing = true;
	retry(qp);
}

void requester_rnr_over(struct hca_qp *qp)
{
	qp->req.rnr_wait = false;
	qp_schedule(qp);
}

/* index of the WQE that the packet before next_psn belongs to; there is one in flight */
static uint32_t newest_sent(const struct hca_qp *qp)
{
	const struct send_queue *sq = &qp->sq;
	uint32_t index = sq->next;

	if (index == sq->tail || send_queue_at(sq, index)->first_psn == qp->req.next_psn)
		index--;
	return index;
}

/*
 * The last packet did not ask for an acknowledgement because more was to follow, but now does not:
 * send it once more, asking. A READ is acknowledged by its responses.
 */
static void solicit_ack(struct hca_qp *qp)
{
	struct requester *req = &qp->req;
	struct send_wqe *wqe;
	uint32_t last, index;

	if (!req->unsolicited_packets || req->next_psn != req->max_psn || requester_is_idle(qp))
		return;
	last = psn_add(req->next_psn, PSN_MASK);
	index = newest_sent(qp);
	wqe = send_queue_at(&qp->sq, index);
	if (wqe->opcode == IBV_WR_RDMA_READ)
		return;
	qp->sq.next = index;
	req->next_psn = last;
	index = (last - wqe->first_psn) & PSN_MASK;
	release_window(qp, MIN(req->in_flight, wqe_charge(qp, wqe, index, index + 1)));
	req->want_ack = true;
	qp_schedule(qp);
}

void requester_drain(struct hca_qp *qp)
{
	solicit_ack(qp);
}

/* ---- sending --------------------------------------------------------------- */

void requester_posted(struct hca_qp *qp, struct send_wqe *wqe)
{
	struct requester *req = &qp->req;

	wqe->packets = (uint32_t)MAX(div_round_up(wqe->length, qp->mtu), 1ULL);
	wqe->first_psn = req->post_psn;
	req->post_psn = psn_add(req->post_psn, wqe->packets);
	req->deferred_packets = MIN(req->deferred_packets + wqe->packets, DEFER_PACKETS);
	req->deferred_bytes += MIN(wqe->length, DEFER_BYTES - req->deferred_bytes);
}

/* The WQE at sq.next cannot be sent. Earlier ones complete first */
static void fail_locally(struct hca_qp *qp, struct send_wqe *wqe, enum ibv_wc_status status)
{
	wqe->local_status = (uint8_t)status;
	if (wqe == head_wqe(qp))
		qp_enter_error(qp, status);
	else
		solicit_ack(qp);
}

static bool may_start(struct hca_qp *qp, struct send_wqe *wqe)
{
	if (qp->state != IBV_QPS_RTS)
		return false;
	/* IBTA 1.4, 10.8.3.3: a fence waits for READs (and atomics), for nothing else */
	return !wqe->fence || !qp->req.reads_begun;
}

static void start_wqe(struct hca_qp *qp, struct send_wqe *wqe)
{
	if (wqe->started)
		return;
	wqe->started = true;
	if (wqe->opcode == IBV_WR_RDMA_READ)
		qp->req.reads_begun++;
}

/* packets up to @psn have now been sent */
static void sent_before(struct hca_qp *qp, uint32_t psn, struct send_wqe *wqe)
{
	struct requester *req = &qp->req;

	if (psn_diff(req->max_psn, req->next_psn) > 0)
		counter_inc(CNT_RETRANSMIT);
	req->next_psn = psn;
	if (psn_diff(psn, req->max_psn) > 0)
		req->max_psn = psn;
	if (psn == wqe_end_psn(wqe))
		qp->sq.next++;
	timers_request_sent(qp);
}

/* ask for packets [from, to) of a READ. Return: 0 or -EAGAIN */
static int queue_read(struct hca_qp *qp, const struct send_wqe *wqe, uint32_t from, uint32_t to)
{
	const struct packet p = {
		.opcode = OPC_RC | OP_READ_REQUEST,
		.ack_req = true,
		.pkey = PKEY_DEFAULT,
		.dest_qpn = qp->dest_qpn,
		.psn = psn_add(wqe->first_psn, from),
		.va = wqe->remote_addr + (uint64_t)from * qp->mtu,
		.rkey = wqe->rkey,
		.dma_len = wqe_payload(qp, wqe, from, to),
	};

	return link_queue(qp->engine->link, &qp->flow, &p, NULL, 0);
}

/* The responses must fit into our own receive buffer, and what the peer's window has learnt about
 * losses holds for them, too: each makes everything that is asked for come again */
static uint64_t read_window(const struct hca_qp *qp)
{
	return MIN((uint64_t)link_window_bytes(qp->engine->link), qp->peer->window);
}

/* the packet at next_psn asks for an answer */
static void time_this_one(struct hca_qp *qp)
{
	struct requester *req = &qp->req;

	if (req->timed_ns || req->next_psn != req->max_psn)
		return;
	req->timed_ns = qp->engine->now_ns;
	req->timed_psn = req->next_psn;
}

static enum tx_result send_read(struct hca_qp *qp, struct send_wqe *wqe)
{
	struct requester *req = &qp->req;
	struct engine *engine = qp->engine;
	uint32_t index = (req->next_psn - wqe->first_psn) & PSN_MASK;
	uint32_t end = read_chunk_end(qp, wqe, index);
	uint32_t bytes = wqe_payload(qp, wqe, index, end);

	if (req->reads >= qp->attr.max_rd_atomic)
		return TX_IDLE;
	if (engine->read_bytes && engine->read_bytes + bytes > read_window(qp))
		return TX_WAIT_READ;
	if (queue_read(qp, wqe, index, end))
		return TX_LINK_FULL;
	req->reads++;
	req->read_bytes += bytes;
	engine->read_bytes += bytes;
	if (index % req->read_chunk)
		req->read_restart_psn = req->next_psn;
	req->unsolicited_packets = req->unsolicited_bytes = 0;
	time_this_one(qp);
	sent_before(qp, psn_add(wqe->first_psn, end), wqe);
	return TX_MORE;
}

/* indexed by: SEND or WRITE, then FIRST, MIDDLE, LAST, ONLY */
enum position { FIRST, MIDDLE, LAST, ONLY };

static const uint8_t request_opcode[][4] = {
	[IBV_WR_RDMA_WRITE] = { OP_WRITE_FIRST, OP_WRITE_MIDDLE, OP_WRITE_LAST, OP_WRITE_ONLY },
	[IBV_WR_RDMA_WRITE_WITH_IMM] = { OP_WRITE_FIRST, OP_WRITE_MIDDLE, OP_WRITE_LAST_IMM,
					 OP_WRITE_ONLY_IMM },
	[IBV_WR_SEND] = { OP_SEND_FIRST, OP_SEND_MIDDLE, OP_SEND_LAST, OP_SEND_ONLY },
	[IBV_WR_SEND_WITH_IMM] = { OP_SEND_FIRST, OP_SEND_MIDDLE, OP_SEND_LAST_IMM,
				   OP_SEND_ONLY_IMM },
	[IBV_WR_SEND_WITH_INV] = { OP_SEND_FIRST, OP_SEND_MIDDLE, OP_SEND_LAST_INV,
				   OP_SEND_ONLY_INV },
};

static enum position position_of(uint32_t index, uint32_t packets)
{
	if (index + 1 == packets)
		return index ? LAST : ONLY;
	return index ? MIDDLE : FIRST;
}

static bool wants_ack(const struct hca_qp *qp, bool last, uint64_t charge)
{
	const struct requester *req = &qp->req;

	if (req->want_ack || req->probing || req->unsolicited_packets + 1 >= ACK_EVERY_PACKETS ||
	    req->unsolicited_bytes + charge >= MIN(ACK_EVERY_BYTES, qp->peer->window / 4))
		return true;
	if (last && (qp->sq.next + 1 == qp->sq.tail || qp->state != IBV_QPS_RTS))
		return true;
	/* the window ends here: nothing opens it but an ACK */
	return !peer_has_room(qp->peer, charge + qp->mtu + PACKET_OVERHEAD);
}

/* packet @index of a SEND or WRITE. Return: 0, -EAGAIN: the link is full, -EFAULT: the memory key
 */
static int queue_packet(struct hca_qp *qp, struct send_wqe *wqe, uint32_t index, bool ack_req)
{
	uint32_t len = wqe_payload(qp, wqe, index, index + 1);
	struct iovec iov[HCA_MAX_SGE];
	struct packet p;
	int iov_count;

	if (wqe_memory(qp, wqe, index * qp->mtu, len, 0, iov, &iov_count) != MEMORY_OK)
		return -EFAULT;
	p.opcode = OPC_RC | request_opcode[wqe->opcode][position_of(index, wqe->packets)];
	p.pad = -len & 3;
	p.solicited = wqe->solicited && index + 1 == wqe->packets;
	p.fecn = p.becn = false;
	p.ack_req = ack_req;
	p.pkey = PKEY_DEFAULT;
	p.dest_qpn = qp->dest_qpn;
	p.psn = psn_add(wqe->first_psn, index);
	p.va = wqe->remote_addr;
	p.rkey = wqe->rkey;
	p.dma_len = wqe->length;
	p.imm = wqe->imm;
	p.inv_rkey = wqe->inv_rkey;
	p.payload = NULL;
	p.payload_len = len;
	return link_queue(qp->engine->link, &qp->flow, &p, iov, iov_count);
}

/* one packet of a SEND or WRITE */
static enum tx_result send_packet(struct hca_qp *qp, struct send_wqe *wqe)
{
	struct requester *req = &qp->req;
	uint32_t index = (req->next_psn - wqe->first_psn) & PSN_MASK;
	uint64_t charge = wqe_charge(qp, wqe, index, index + 1);
	bool ack_req;

	/* a QP with nothing in flight may always send one packet: no other QP's loss stops it */
	if (req->in_flight && !peer_has_room(qp->peer, charge))
		return TX_WAIT_PEER;
	ack_req = wants_ack(qp, index + 1 == wqe->packets, charge);
	switch (queue_packet(qp, wqe, index, ack_req)) {
	case 0:
		break;
	case -EFAULT:
		fail_locally(qp, wqe, IBV_WC_LOC_PROT_ERR);
		return TX_IDLE;
	default:
		return TX_LINK_FULL;
	}

	req->in_flight += charge;
	peer_sent(qp->peer, charge);
	if (ack_req) {
		req->unsolicited_packets = req->unsolicited_bytes = 0;
		req->want_ack = false;
		time_this_one(qp);
	} else {
		req->unsolicited_packets++;
		req->unsolicited_bytes += (uint32_t)charge;
	}
	sent_before(qp, psn_add(req->next_psn, 1), wqe);
	return TX_MORE;
}

/* Return: 0 = go on, or the status that the WQE fails with before anything of it is sent */
static enum ibv_wc_status check_wqe(struct hca_qp *qp, struct send_wqe *wqe)
{
	if (wqe->local_status)
		return wqe->local_status;
	if (wqe->opcode == IBV_WR_RDMA_READ && !qp->attr.max_rd_atomic)
		return IBV_WC_LOC_QP_OP_ERR;
	/* a single packet with one SGE is checked when it is sent */
	if ((wqe->packets > 1 || wqe->sge_count > 1 || wqe->opcode == IBV_WR_RDMA_READ) &&
	    wqe_check_memory(qp, wqe) != MEMORY_OK)
		return IBV_WC_LOC_PROT_ERR;
	return IBV_WC_SUCCESS;
}

enum tx_result requester_transmit(struct hca_qp *qp)
{
	struct requester *req = &qp->req;
	struct send_queue *sq = &qp->sq;
	uint64_t flight_limit = req->in_flight + TX_BURST_BYTES;
	enum tx_result result = TX_IDLE;

	req->deferred_packets = req->deferred_bytes = 0;
	if (!qp_can_request(qp) || req->rnr_wait)
		return TX_IDLE;
	for (uint32_t packets = 0; sq->next != sq->tail; packets++) {
		struct send_wqe *wqe = send_queue_at(sq, sq->next);

		if (packets == TX_BURST_PACKETS || req->in_flight >= flight_limit)
			return TX_MORE;
		/* nobody may be there any more: one packet finds out */
		if (req->probing && req->next_psn != req->una_psn)
			return TX_IDLE;
		if (!wqe->started) {
			enum ibv_wc_status status;

			if (!may_start(qp, wqe))
				return TX_IDLE;
			status = check_wqe(qp, wqe);
			if (status != IBV_WC_SUCCESS) {
				fail_locally(qp, wqe, status);
				return TX_IDLE;
			}
		} else if (wqe->local_status) {
			fail_locally(qp, wqe, wqe->local_status);
			return TX_IDLE;
		}
		result = wqe->opcode == IBV_WR_RDMA_READ ? send_read(qp, wqe)
							 : send_packet(qp, wqe);
		if (result != TX_MORE)
			return result;
		start_wqe(qp, wqe);
	}
	return TX_IDLE;
}

/* ---- probes ---------------------------------------------------------------- */

/* The oldest unacknowledged request once more: a responder whose NAK was lost is silent until that
 * one comes */
static void repeat_oldest(struct hca_qp *qp)
{
	struct send_wqe *wqe = head_wqe(qp);
	uint32_t index = (qp->req.una_psn - wqe->first_psn) & PSN_MASK;

	counter_inc(CNT_RETRANSMIT);
	if (wqe->opcode != IBV_WR_RDMA_READ) {
		queue_packet(qp, wqe, index, true);
		return;
	}
	if (index % qp->req.read_chunk)
		qp->req.read_restart_psn = qp->req.una_psn;
	queue_read(qp, wqe, index, read_chunk_end(qp, wqe, index));
}

/*
 * The newest one once more; of a READ all that is missing. Not its last packet only: rxe takes a
 * READ that is asked for again from the middle as a new, shorter one and drops what asks for the
 * part before that from then on (its responder moves read.va_org), until the retries are used up.
 */
static void repeat_newest(struct hca_qp *qp)
{
	struct requester *req = &qp->req;
	struct send_wqe *wqe = send_queue_at(&qp->sq, newest_sent(qp));
	uint32_t psn = psn_add(req->next_psn, PSN_MASK);
	uint32_t index = (psn - wqe->first_psn) & PSN_MASK, from;

	counter_inc(CNT_RETRANSMIT);
	if (wqe->opcode != IBV_WR_RDMA_READ) {
		queue_packet(qp, wqe, index, true);
		return;
	}
	from = index - index % req->read_chunk;
	if (psn_diff(req->una_psn, psn_add(wqe->first_psn, from)) > 0) {
		from = (req->una_psn - wqe->first_psn) & PSN_MASK;
		req->read_restart_psn = req->una_psn;
	}
	queue_read(qp, wqe, from, index + 1);
}

/*
 * Nothing has come for a while: make the responder say what it has. The newest packet, if it is
 * there already, is a duplicate and acknowledged (a READ: answered) again; if it was lost alone it
 * is now there; if others before it were lost, too, it is answered with a NAK, or by what implies
 * one. Nothing else changes, so if the responder is only slow no harm is done.
 */
void requester_probe(struct hca_qp *qp)
{
	struct requester *req = &qp->req;

	if (req->next_psn == req->una_psn)
		return; /* about to be sent again, or waiting for room */
	counter_inc(CNT_PROBE);
	if (req->probes > 1)
		repeat_oldest(qp);
	if (req->probes <= 1 || psn_add(req->una_psn, 1) != req->next_psn)
		repeat_newest(qp);
}

/* ---- acknowledgements ------------------------------------------------------ */

/* una_psn has moved on: @released bytes of the window are free again */
static void progress(struct hca_qp *qp, uint64_t released)
{
	struct requester *req = &qp->req;

	released = MIN(released, req->in_flight);
	/* an ACK for what we were about to send again */
	if (psn_diff(req->next_psn, req->una_psn) <= 0) {
		req->next_psn = req->una_psn;
		qp->sq.next = qp->sq.head;
		released = req->in_flight;
		if (req->read_bytes || req->reads)
			release_reads(qp);
	}
	req->retries_left = qp->attr.retry_cnt;
	req->rnr_retries_left = qp->attr.rnr_retry;
	req->implied_nak = req->probing = false;
	if (req->rnr_wait) {
		req->rnr_wait = false;
		req->deadline_ns = 0;
	}
	if (req->timed_ns && psn_diff(req->una_psn, req->timed_psn) > 0) {
		timers_rtt_sample(qp, qp->engine->now_ns - req->timed_ns);
		req->timed_ns = 0;
	}
	timers_progress(qp);
	if (released) {
		peer_acknowledged(qp->peer, released);
		release_window(qp, released);
	}
	if (qp->sq.next != qp->sq.tail)
		qp_schedule(qp);
	offer_room(qp);
	if (qp->state == IBV_QPS_SQD && qp->drain_notify && requester_is_idle(qp)) {
		qp->drain_notify = false;
		qp_event(qp, IBV_EVENT_SQ_DRAINED);
	}
}

/*
 * Everything before @psn is acknowledged; stops at a READ, which only its responses acknowledge.
 * Return: false = the QP went down on the way (a completion did not fit its CQ).
 */
static bool acknowledge_before(struct hca_qp *qp, uint32_t psn)
{
	struct requester *req = &qp->req;
	uint32_t una_before = req->una_psn;
	uint64_t released = 0;

	while (psn_diff(psn, req->una_psn) > 0 && !send_queue_empty(&qp->sq)) {
		struct send_wqe *wqe = head_wqe(qp);
		uint32_t end = wqe_end_psn(wqe), from, to;

		if (wqe->opcode == IBV_WR_RDMA_READ)
			break;
		from = (req->una_psn - wqe->first_psn) & PSN_MASK;
		to = psn_diff(psn, end) >= 0 ? wqe->packets : (psn - wqe->first_psn) & PSN_MASK;
		released += wqe_charge(qp, wqe, from, to);
		req->una_psn = psn_add(wqe->first_psn, to);
		if (to == wqe->packets)
			complete_head(qp, IBV_WC_SUCCESS);
		if (!qp_can_request(qp))
			return false;
	}
	if (req->una_psn != una_before)
		progress(qp, released);
	return qp_can_request(qp);
}

/* a response before this one is missing (IBTA 1.4, 9.7.5.1.1: implied NAK) */
static void response_lost(struct hca_qp *qp)
{
	struct requester *req = &qp->req;

	/* what was already on the way when we went back says nothing new */
	if (req->implied_nak || req->rnr_wait || req->next_psn == req->una_psn)
		return;
	req->implied_nak = true;
	counter_inc(CNT_IMPLIED_NAK);
	retry(qp);
}

static enum ibv_wc_status nak_status(uint8_t syndrome)
{
	switch (syndrome) {
	case AETH_NAK_INVALID:
		counter_inc(CNT_NAK_INV_RX);
		return IBV_WC_REM_INV_REQ_ERR;
	case AETH_NAK_ACCESS:
		counter_inc(CNT_NAK_ACCESS_RX);
		return IBV_WC_REM_ACCESS_ERR;
	case AETH_NAK_OPERATION:
		counter_inc(CNT_NAK_OP_RX);
		return IBV_WC_REM_OP_ERR;
	default:
		return IBV_WC_BAD_RESP_ERR;
	}
}

static void nak_received(struct hca_qp *qp, const struct packet *p)
{
	if (!acknowledge_before(qp, p->psn))
		return;
	if (qp->req.una_psn != p->psn) {
		response_lost(qp);
		return;
	}
	if (p->syndrome != AETH_NAK_SEQUENCE) {
		log_debug("qp 0x%06x: NAK 0x%02x for psn 0x%06x", qp->qpn, p->syndrome, p->psn);
		qp_enter_error(qp, nak_status(p->syndrome));
		return;
	}
	counter_inc(CNT_NAK_SEQ_RX);
	/* packets behind the one that met the RNR NAK: the time must be waited all the same. And
	 * one NAK is as good as two */
	if (qp->req.rnr_wait || qp->req.next_psn == qp->req.una_psn)
		return;
	qp->req.implied_nak = qp->req.probing = false;
	retry(qp);
}

static void rnr_nak_received(struct hca_qp *qp, const struct packet *p)
{
	struct requester *req = &qp->req;

	if (!acknowledge_before(qp, p->psn))
		return;
	if (req->una_psn != p->psn) {
		response_lost(qp);
		return;
	}
	if (req->rnr_wait)
		return;
	counter_inc(CNT_RNR_RX);
	if (qp->attr.rnr_retry != 7) {
		if (!req->rnr_retries_left) {
			counter_inc(CNT_RNR_RETRY_EXC);
			qp_enter_error(qp, IBV_WC_RNR_RETRY_EXC_ERR);
			return;
		}
		req->rnr_retries_left--;
	}
	req->probing = false;
	timers_rnr_received(qp, p->syndrome & 0x1f);
	go_back(qp);
}

static void ack_received(struct hca_qp *qp, const struct packet *p)
{
	switch (p->syndrome & AETH_KIND_MASK) {
	case AETH_RNR_NAK:
		rnr_nak_received(qp, p);
		break;
	case AETH_NAK_SEQUENCE:
		nak_received(qp, p);
		break;
	case 0:
		counter_inc(CNT_ACK_RX);
		if (acknowledge_before(qp, psn_add(p->psn, 1)) &&
		    psn_diff(p->psn, qp->req.una_psn) >= 0)
			response_lost(qp);
		break;
	default: /* reserved */
		counter_inc(CNT_DROP_STALE);
	}
}

/* ---- READ responses -------------------------------------------------------- */

/*
 * The opcode must fit the place in the READ request; a request that was repeated in the middle may
 * be answered in its old form or its new one
 */
static bool read_opcode_fits(const struct hca_qp *qp, const struct send_wqe *wqe, uint32_t index,
			     const struct packet *p)
{
	bool start = index % qp->req.read_chunk == 0;
	bool end = index + 1 == read_chunk_end(qp, wqe, index);

	switch (p->opcode) {
	case OPC_RC | OP_READ_RESPONSE_FIRST:
		return !end && (start || p->psn == qp->req.read_restart_psn);
	case OPC_RC | OP_READ_RESPONSE_MIDDLE:
		return !end && !start;
	case OPC_RC | OP_READ_RESPONSE_LAST:
		return end && !start;
	default:
		return end;
	}
}

static enum memory_status place_response(struct hca_qp *qp, struct send_wqe *wqe, uint32_t offset,
					 const struct packet *p)
{
	struct iovec iov[HCA_MAX_SGE];
	const uint8_t *from = p->payload;
	enum memory_status status;
	int count;

	status = wqe_memory(qp, wqe, offset, p->payload_len, IBV_ACCESS_LOCAL_WRITE, iov, &count);
	if (status != MEMORY_OK)
		return status;
	for (int i = 0; i < count; i++) {
		memcpy(iov[i].iov_base, from, iov[i].iov_len);
		from += iov[i].iov_len;
	}
	return MEMORY_OK;
}

static void read_response_received(struct hca_qp *qp, const struct packet *p)
{
	struct requester *req = &qp->req;
	struct send_wqe *wqe;
	uint32_t index, bytes;
	bool chunk_end;

	if (!acknowledge_before(qp, p->psn))
		return;
	if (req->una_psn != p->psn) {
		response_lost(qp);
		return;
	}
	wqe = head_wqe(qp);
	index = (p->psn - wqe->first_psn) & PSN_MASK;
	bytes = wqe_payload(qp, wqe, index, index + 1);
	if (wqe->opcode != IBV_WR_RDMA_READ || !read_opcode_fits(qp, wqe, index, p) ||
	    p->payload_len != bytes) {
		log_debug("qp 0x%06x: bad response, opcode 0x%02x psn 0x%06x, %u bytes", qp->qpn,
			  p->opcode, p->psn, p->payload_len);
		qp_enter_error(qp, IBV_WC_BAD_RESP_ERR);
		return;
	}
	if (place_response(qp, wqe, index * qp->mtu, p) != MEMORY_OK) {
		qp_enter_error(qp, IBV_WC_LOC_PROT_ERR);
		return;
	}
	bytes = (uint32_t)MIN(bytes, req->read_bytes);
	req->read_bytes -= bytes;
	qp->engine->read_bytes -= bytes;
	peer_acknowledged(qp->peer, bytes);
	chunk_end = index + 1 == read_chunk_end(qp, wqe, index);
	if (chunk_end && req->reads) {
		req->reads--;
		list_splice_tail(&qp->engine->tx_list, &qp->engine->read_waiters);
	}
	req->una_psn = psn_add(req->una_psn, 1);
	if (index + 1 == wqe->packets)
		complete_head(qp, IBV_WC_SUCCESS);
	if (qp_can_request(qp))
		progress(qp, 0);
}

void requester_receive(struct hca_qp *qp, const struct packet *p)
{
	if (psn_diff(p->psn, qp->req.una_psn) < 0 || psn_diff(p->psn, qp->req.max_psn) >= 0) {
		counter_inc(CNT_DROP_STALE);
		return;
	}
	if (p->flags & OPF_READ)
		read_response_received(qp, p);
	else if (p->flags & OPF_ATOMIC)
		counter_inc(CNT_DROP_STALE); /* none is outstanding */
	else
		ack_received(qp, p);
}
