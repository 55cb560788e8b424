// SPDX-License-Identifier: BSD-2-Clause
/*
 * request.c: a command that software handles, from the capsule to its response:
 *
 *   capsule -> parse -> [data buffer] -> [RDMA READ] -> execute -> [RDMA WRITE] + SEND -> free
 *
 * Whatever is not there (a data buffer, room in the send queue) is waited for in a queue.
 */
#include "target/rdma.h"

#include <errno.h>
#include <string.h>

#include "softhca/softhca.h"
#include "util/bytes.h"
#include "util/clock.h"
#include "util/log.h"

static void respond(struct request *request);
static void execute(struct request *request);

/* ---- posting ---- */

static uint64_t wr_id(const struct request *request)
{
	return (uint64_t)request->conn->serial << 32 | request->index;
}

/* fills one WR per segment for the first @bytes of the host's memory; returns how many */
static unsigned int build_transfer(struct request *request, enum ibv_wr_opcode opcode,
				   uint32_t bytes, struct ibv_send_wr *wr, struct ibv_sge *sge)
{
	const struct sgl *sgl = &request->sgl;
	uint64_t local = (uintptr_t)request->buffer->data;
	unsigned int n = 0;

	for (; n < sgl->count && bytes; n++) {
		uint32_t len = MIN(sgl->segment[n].bytes, bytes);

		sge[n] = (struct ibv_sge){ .addr = local,
					   .length = len,
					   .lkey = request->conn->device->data_mr->lkey };
		wr[n] = (struct ibv_send_wr){
			.wr_id = wr_id(request),
			.next = &wr[n + 1],
			.sg_list = &sge[n],
			.num_sge = 1,
			.opcode = opcode,
			.wr.rdma = { .remote_addr = sgl->segment[n].addr,
				     .rkey = sgl->segment[n].rkey },
		};
		local += len;
		bytes -= len;
	}
	return n;
}

/* false: no room in the send queue, the request waits for it. When the post fails the connection
 * is closed, and that releases the request */
static bool post(struct request *request, struct ibv_send_wr *wr, unsigned int count)
{
	struct connection *conn = request->conn;
	struct ibv_send_wr *bad;
	int err;

	if (conn->sq_free < count ||
	    (!list_empty(&conn->sq_waiters) && conn->sq_waiters.next != &request->wait)) {
		if (list_empty(&request->wait))
			list_add_tail(&conn->sq_waiters, &request->wait);
		return false;
	}
	list_del(&request->wait);
	wr[count - 1].next = NULL;
	wr[count - 1].send_flags |= IBV_SEND_SIGNALED;
	conn->sq_free -= count;
	request->wrs = count;
	if (!conn->signaled++)
		conn->progress_ns = clock_ns();
	err = ibv_post_send(conn->id->qp, wr, &bad);
	if (err) {
		conn->sq_free += count;
		conn->signaled--;
		request->wrs = 0;
		log_debug("post on QP 0x%06x: %s", conn->qp_num, strerror(err));
		connection_close(conn, "its send queue failed");
	}
	return true;
}

static bool post_reads(struct request *request)
{
	struct ibv_send_wr wr[SGL_SEGMENTS_MAX + 1];
	struct ibv_sge sge[SGL_SEGMENTS_MAX];
	unsigned int n;

	n = build_transfer(request, IBV_WR_RDMA_READ, request->transfer.bytes, wr, sge);
	return post(request, wr, n);
}

static uint16_t response_sqhd(struct connection *conn)
{
	uint16_t sqhd;

	/* on an offloaded queue the adapter takes most commands: it counts */
	if (conn->offload && !softhca_nvmf_sqhd(conn->id->qp, &sqhd))
		return sqhd;
	return conn->sqhd;
}

static bool post_response(struct request *request)
{
	struct ibv_send_wr wr[SGL_SEGMENTS_MAX + 1];
	struct ibv_sge sge[SGL_SEGMENTS_MAX], cqe_sge;
	const struct command *cmd = &request->cmd;
	struct nvme_cqe cqe = {
		.dw0 = htole32(cmd->dw0),
		.dw1 = htole32(cmd->dw1),
		.sqhd = htole16(response_sqhd(request->conn)),
		.cid = cmd->sqe.cid,
		.status = htole16(NVME_STATUS_TO_FIELD(cmd->status)),
	};
	unsigned int n = 0;

	if (request->transfer.direction == TRANSFER_TO_HOST && request->buffer && !cmd->status)
		n = build_transfer(request, IBV_WR_RDMA_WRITE, request->transfer.bytes, wr, sge);
	cqe_sge = (struct ibv_sge){ .addr = (uintptr_t)&cqe, .length = sizeof(cqe) };
	wr[n] = (struct ibv_send_wr){
		.wr_id = wr_id(request),
		.sg_list = &cqe_sge,
		.num_sge = 1,
		.opcode = request->sgl.invalidate ? IBV_WR_SEND_WITH_INV : IBV_WR_SEND,
		.send_flags = IBV_SEND_INLINE,
	};
	if (request->sgl.invalidate)
		wr[n].invalidate_rkey = request->sgl.invalidate_rkey;
	return post(request, wr, n + 1);
}

/* ---- the steps ---- */

static void respond(struct request *request)
{
	if (request->conn->state == CONNECTION_CLOSING) {
		request_release(request);
		return;
	}
	request->state = REQUEST_RESPONDING;
	post_response(request);
}

static void fail(struct request *request, uint16_t status)
{
	log_debug("QP 0x%06x: command 0x%02x refused with status 0x%x", request->conn->qp_num,
		  request->cmd.sqe.opcode, status & ~NVME_STATUS_DNR);
	request->cmd.status = status;
	request->cmd.dw0 = request->cmd.dw1 = 0;
	respond(request);
}

static void execute(struct request *request)
{
	if (command_execute(&request->cmd))
		respond(request);
	else if (request->state != REQUEST_RESPONDING && request->state != REQUEST_FREE)
		request->state = REQUEST_HELD;
}

void request_held_done(struct request *request)
{
	respond(request);
}

static void read_data(struct request *request)
{
	request->state = REQUEST_READING;
	post_reads(request);
}

void request_got_buffer(struct request *request)
{
	request->cmd.data = request->buffer->data;
	if (request->transfer.direction == TRANSFER_TO_CONTROLLER) {
		read_data(request);
		return;
	}
	/* what a command does not fill must not show another host's data */
	memset(request->cmd.data, 0, request->transfer.bytes);
	execute(request);
}

static uint16_t check_data(const struct request *request, uint16_t sgl_status)
{
	const struct sgl *sgl = &request->sgl;
	uint32_t bytes = request->transfer.bytes;
	uint16_t status;

	if (!bytes)
		return NVME_SC_SUCCESS; /* its SGL means nothing */
	if (sgl_status)
		return sgl_status;
	if (sgl->in_capsule && request->transfer.direction == TRANSFER_TO_HOST)
		return NVME_SC_INVALID_FIELD | NVME_STATUS_DNR;
	status = sgl_check(sgl, bytes, request->capsule_len);
	/* Connect data that are too short (fabrics 1.1, 3.3) */
	if (status && !request->conn->queue.connected)
		return NVME_SC_INVALID_FIELD | NVME_STATUS_DNR;
	if (!status && bytes > TARGET_MAX_IO_BYTES)
		return NVME_SC_INVALID_FIELD | NVME_STATUS_DNR;
	return status;
}

static void advance_sqhd(struct connection *conn)
{
	uint16_t entries = conn->queue.connected ? (uint16_t)(conn->queue.sqsize + 1)
						 : TARGET_QUEUE_ENTRIES;

	conn->sqhd = (uint16_t)((conn->sqhd + 1) % entries);
}

void request_start(struct request *request)
{
	struct command *cmd = &request->cmd;
	uint16_t status, sgl_status;

	memcpy(&cmd->sqe, request->capsule, sizeof(cmd->sqe));
	cmd->data = NULL;
	cmd->data_len = 0;
	advance_sqhd(request->conn);
	sgl_status = sgl_parse(request->capsule, request->capsule_len,
			       request->conn->transport->target.in_capsule_bytes, &request->sgl);
	status = command_transfer(cmd, &request->transfer);
	if (!status)
		status = check_data(request, sgl_status);
	if (status) {
		fail(request, status);
		return;
	}
	cmd->data_len = request->transfer.bytes;
	if (!request->transfer.bytes) {
		execute(request);
	} else if (request->sgl.in_capsule) {
		cmd->data = request->capsule + request->sgl.capsule_offset;
		execute(request);
	} else {
		request->state = REQUEST_WAIT_BUFFER;
		device_buffer_get(request);
	}
}

void request_release(struct request *request)
{
	struct connection *conn = request->conn;
	struct data_buffer *buffer = request->buffer;

	if (request->state == REQUEST_FREE)
		return; /* the end of its connection was faster */
	list_del(&request->wait);
	request->buffer = NULL;
	request->wrs = 0;
	request->state = REQUEST_FREE;
	list_add(&conn->free_requests, &request->node);
	if (buffer)
		device_buffer_put(conn, buffer);
}

void request_completion(struct request *request, enum ibv_wc_status status)
{
	struct connection *conn = request->conn;

	if (!request->wrs)
		return;
	if (status != IBV_WC_SUCCESS && status != IBV_WC_WR_FLUSH_ERR)
		log_debug("QP 0x%06x: %s", conn->qp_num, ibv_wc_status_str(status));
	/* an unsignaled one failed: it is told, and the signaled one behind it will be flushed */
	if (status != IBV_WC_SUCCESS && conn->state != CONNECTION_CLOSING) {
		connection_close(conn, ibv_wc_status_str(status));
	}
	conn->sq_free += request->wrs;
	request->wrs = 0;
	conn->signaled--;
	conn->progress_ns = clock_ns();
	if (conn->state == CONNECTION_CLOSING) {
		request_release(request);
		return;
	}
	if (request->state == REQUEST_READING)
		execute(request);
	else
		request_release(request);
	connection_continue_waiters(conn);
}

void connection_continue_waiters(struct connection *conn)
{
	while (!list_empty(&conn->sq_waiters) && conn->state != CONNECTION_CLOSING) {
		struct request *request = list_entry(conn->sq_waiters.next, struct request, wait);

		if (!(request->state == REQUEST_READING ? post_reads(request)
							: post_response(request)))
			return;
	}
}
