// SPDX-License-Identifier: BSD-2-Clause
/*
 * hostile_host.c: an NVMe-oF/RDMA host that does what no host should, against a live target. It
 * looks at the exact answers; that the target lives on is looked at by who started it.
 *
 * hostile_host ADDRESS PORT NQN SCENARIO [COUNT]
 *
 * Exit status 0, or 1 after a line that says what was answered instead.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#include "nvme/fabrics.h"
#include "nvme/spec.h"
#include "util/bytes.h"

#define DNR	    NVME_STATUS_DNR
#define DEPTH	    127 /* of every queue: hsqsize */
#define CAPSULE_MAX 8320
#define DATA_BYTES  (1U << 20)
#define LOST	    0xffff /* instead of a status: no answer came, the connection is gone */
#define SILENCE	    0xfffe /* no answer came in time, the connection is there */
#define ANY	    0xfffd

static const char *address, *port, *subnqn, *scenario;
static unsigned int wrong;

static void __attribute__((format(printf, 1, 2))) complain(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fprintf(stderr, "hostile_host: %s: ", scenario);
	vfprintf(stderr, fmt, ap);
	fputc('\n', stderr);
	va_end(ap);
	wrong++;
}

static void die(const char *what)
{
	complain("%s: %s", what, strerror(errno));
	exit(1);
}

/* ---- a queue pair ---- */

struct host_queue {
	struct rdma_cm_id *id;
	struct ibv_mr *capsule_mr, *response_mr, *data_mr;
	uint8_t capsule[CAPSULE_MAX];
	struct nvme_cqe responses[DEPTH + 1];
	uint8_t *data;
	bool receives; /* are posted */
	unsigned int sends;
};

static void post_receive(struct host_queue *q, unsigned int i)
{
	if (rdma_post_recv(q->id, (void *)(uintptr_t)i, &q->responses[i], sizeof(q->responses[i]),
			   q->response_mr))
		die("rdma_post_recv");
}

static struct host_queue *queue_try(uint16_t qid, bool receives, const void *private_data,
				    uint8_t len, uint8_t responder_resources)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP }, *res;
	struct ibv_qp_init_attr init = { .cap = { 2 * DEPTH, DEPTH + 1, 1, 1, 64 },
					 .sq_sig_all = 1 };
	struct nvmf_rdma_request request = { .qid = htole16(qid),
					     .hrqsize = htole16(DEPTH),
					     .hsqsize = htole16(DEPTH) };
	struct rdma_conn_param param = { .private_data = private_data ? private_data : &request,
					 .private_data_len = private_data ? len : sizeof(request),
					 .responder_resources = responder_resources,
					 .retry_count = 7,
					 .rnr_retry_count = 7 };
	struct host_queue *q = calloc(1, sizeof(*q));

	if (!q || rdma_getaddrinfo(address, port, &hints, &res))
		die("rdma_getaddrinfo");
	if (rdma_create_ep(&q->id, res, NULL, &init))
		die("rdma_create_ep");
	rdma_freeaddrinfo(res);
	q->data = aligned_alloc(4096, DATA_BYTES);
	q->capsule_mr = rdma_reg_msgs(q->id, q->capsule, sizeof(q->capsule));
	q->response_mr = rdma_reg_msgs(q->id, q->responses, sizeof(q->responses));
	q->data_mr = ibv_reg_mr(q->id->pd, q->data, DATA_BYTES,
				IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
					IBV_ACCESS_REMOTE_WRITE);
	if (!q->data || !q->capsule_mr || !q->response_mr || !q->data_mr)
		die("memory registration");
	memset(q->data, 0, DATA_BYTES);
	q->receives = receives;
	for (unsigned int i = 0; receives && i <= DEPTH; i++)
		post_receive(q, i);
	if (rdma_connect(q->id, &param)) {
		int err = errno;

		rdma_destroy_ep(q->id);
		free(q->data);
		free(q);
		errno = err;
		return NULL;
	}
	return q;
}

static struct host_queue *queue_open(uint16_t qid, bool receives)
{
	struct host_queue *q = queue_try(qid, receives, NULL, 0, 16);

	if (!q)
		die("rdma_connect");
	return q;
}

static void queue_close(struct host_queue *q)
{
	rdma_disconnect(q->id);
	rdma_dereg_mr(q->capsule_mr);
	rdma_dereg_mr(q->response_mr);
	if (q->data_mr)
		rdma_dereg_mr(q->data_mr);
	rdma_destroy_ep(q->id);
	free(q->data);
	free(q);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* @len bytes of the capsule; false when the connection is gone */
static bool queue_send(struct host_queue *q, uint32_t len)
{
	struct ibv_wc wc;

	if (q->sends == 2 * DEPTH)
		return false;
	if (rdma_post_send(q->id, NULL, q->capsule, len, q->capsule_mr, 0))
		return false;
	q->sends++;
	/* the capsule is one buffer: wait until it is out, but not for an unwilling target */
	for (double end = now() + 2; now() < end; usleep(50)) {
		int n = ibv_poll_cq(q->id->send_cq, 1, &wc);

		if (n < 0)
			die("ibv_poll_cq");
		if (n) {
			q->sends--;
			return wc.status == IBV_WC_SUCCESS;
		}
	}
	return true;
}

/* the next response's status, with DNR; LOST or SILENCE */
static uint16_t queue_answer(struct host_queue *q, double seconds, struct nvme_cqe *cqe)
{
	struct ibv_wc wc;

	for (double end = now() + seconds;;) {
		int n = ibv_poll_cq(q->id->recv_cq, 1, &wc);

		if (n < 0)
			die("ibv_poll_cq");
		if (n) {
			if (wc.status != IBV_WC_SUCCESS)
				return LOST;
			*cqe = q->responses[wc.wr_id];
			post_receive(q, (unsigned int)wc.wr_id);
			return NVME_STATUS_FROM_FIELD(le16toh(cqe->status));
		}
		if (now() >= end)
			return SILENCE;
		usleep(50);
	}
}

/* ---- commands ---- */

static struct nvme_sqe *sqe_begin(struct host_queue *q, uint8_t opcode, uint32_t nsid)
{
	static uint16_t cid;
	struct nvme_sqe *sqe = (void *)q->capsule;

	memset(q->capsule, 0, sizeof(q->capsule));
	sqe->opcode = opcode;
	sqe->flags = NVME_SQE_PSDT_SGL;
	sqe->cid = htole16(++cid);
	sqe->nsid = htole32(nsid);
	return sqe;
}

static void sgl_keyed(struct nvme_sqe *sqe, uint64_t addr, uint32_t bytes, uint32_t key,
		      uint8_t type)
{
	put_le64(sqe->sgl, addr);
	put_le32(sqe->sgl + 8, bytes); /* 24 bits: the key lies over the rest */
	put_le32(sqe->sgl + 11, key);
	sqe->sgl[15] = type;
}

static void sgl_data(struct host_queue *q, struct nvme_sqe *sqe, uint32_t bytes)
{
	sgl_keyed(sqe, (uintptr_t)q->data, bytes, q->data_mr->rkey, NVME_SGL_KEYED);
}

static void sgl_capsule(struct nvme_sqe *sqe, uint64_t addr, uint32_t bytes)
{
	put_le64(sqe->sgl, addr);
	put_le32(sqe->sgl + 8, bytes);
	put_le32(sqe->sgl + 12, 0);
	sqe->sgl[15] = NVME_SGL_OFFSET;
}

static void sqe_rw(struct nvme_sqe *sqe, uint64_t slba, uint32_t blocks)
{
	sqe->cdw10 = htole32((uint32_t)slba);
	sqe->cdw11 = htole32((uint32_t)(slba >> 32));
	sqe->cdw12 = htole32(blocks - 1);
}

static uint16_t command(struct host_queue *q, uint32_t len, struct nvme_cqe *cqe)
{
	uint16_t cid = ((struct nvme_sqe *)q->capsule)->cid;
	uint16_t status;

	if (!queue_send(q, len))
		return LOST;
	status = queue_answer(q, 5, cqe);
	if (status < ANY && cqe->cid != cid)
		complain("an answer to command %u, not to %u", le16toh(cqe->cid), le16toh(cid));
	return status;
}

static void expect(struct host_queue *q, const char *what, uint32_t len, uint16_t want)
{
	struct nvme_cqe cqe = { 0 };
	uint16_t got = command(q, len, &cqe);

	if (got != want && (want != ANY || got >= ANY))
		complain("%s: status 0x%x, want 0x%x", what, got, want);
}

static void connect_fill(struct host_queue *q, uint16_t qid, uint16_t cntlid)
{
	struct nvmf_connect_sqe *sqe = (void *)sqe_begin(q, NVME_CMD_FABRICS, 0);
	struct nvmf_connect_data *data = (void *)(q->capsule + 64);

	sqe->fctype = NVME_FABRICS_CONNECT;
	sqe->qid = htole16(qid);
	sqe->sqsize = htole16(DEPTH);
	sgl_capsule((struct nvme_sqe *)sqe, 0, sizeof(*data));
	data->hostid[0] = 0x66;
	data->cntlid = htole16(cntlid);
	strcpy(data->subnqn, subnqn);
	strcpy(data->hostnqn, "nqn.2026-01.org.example:hostile");
}

static void property_set(struct host_queue *q, uint32_t offset, uint64_t value, uint16_t want)
{
	struct nvmf_property_sqe *sqe = (void *)sqe_begin(q, NVME_CMD_FABRICS, 0);

	sqe->fctype = NVME_FABRICS_PROPERTY_SET;
	sqe->offset = htole32(offset);
	sqe->value = htole64(value);
	expect(q, "Property Set", 64, want);
}

#define CC_GOOD 0x00460001

/* an admin queue whose controller is enabled */
static struct host_queue *admin_open(uint16_t *cntlid)
{
	struct host_queue *q = queue_open(0, true);
	struct nvme_cqe cqe;
	uint16_t status;

	connect_fill(q, 0, NVMF_CNTLID_DYNAMIC);
	status = command(q, 64 + 1024, &cqe);
	if (status) {
		complain("Connect: status 0x%x", status);
		exit(1);
	}
	*cntlid = (uint16_t)le32toh(cqe.dw0);
	property_set(q, NVME_REG_CC, CC_GOOD, 0);
	sqe_begin(q, NVME_ADMIN_SET_FEATURES, 0)->cdw10 = htole32(7);
	((struct nvme_sqe *)q->capsule)->cdw11 = htole32(7U << 16 | 7);
	expect(q, "number of queues", 64, 0);
	return q;
}

static struct host_queue *io_open(uint16_t qid, uint16_t cntlid, bool receives)
{
	struct host_queue *q = queue_open(qid, receives);

	connect_fill(q, qid, cntlid);
	if (receives)
		expect(q, "I/O Connect", 64 + 1024, 0);
	else if (!queue_send(q, 64 + 1024))
		complain("Connect could not be sent");
	return q;
}

/* ---- scenarios ---- */

static void before_connect(unsigned int count)
{
	static const uint32_t lengths[] = { 0,	  1,	63,   64,   65,	  1087, 1088,
					    1089, 4159, 4160, 4161, 8191, 8320 };

	(void)count;
	for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
		bool bad_length = lengths[i] < 64 || lengths[i] > 4160;

		for (int opcode = 0; opcode < 256; opcode += opcode == 12 ? 115 : 1) {
			struct host_queue *q;

			if (opcode > 0x81 || (bad_length && opcode > 1))
				break;
			q = queue_open(opcode & 1, true);
			sqe_begin(q, (uint8_t)opcode, 1);
			sgl_data(q, (void *)q->capsule, 4096);
			/* a short Connect: not enough data; all else is out of sequence */
			if (opcode != NVME_CMD_FABRICS)
				expect(q, "before Connect", lengths[i],
				       bad_length ? LOST : NVME_SC_COMMAND_SEQUENCE | DNR);
			queue_close(q);
		}
	}
}

struct connect_row {
	const char *what;
	size_t offset, bytes; /* in the capsule */
	uint64_t value;
	uint16_t status;
	uint32_t dw0;
};

#define SQE(f)	offsetof(struct nvmf_connect_sqe, f)
#define DATA(f) (64 + offsetof(struct nvmf_connect_data, f))
#define IPO(f)	(1U << 16 | (uint32_t)offsetof(struct nvmf_connect_data, f))

static void connect_fields(unsigned int count)
{
	static const struct connect_row rows[] = {
		{ "recfmt 1", SQE(recfmt), 2, 1, NVME_SC_CONNECT_FORMAT | DNR, 0 },
		{ "qid 1", SQE(qid), 2, 1, NVME_SC_CONNECT_INVALID | DNR, 42 },
		{ "qid 65535", SQE(qid), 2, 0xffff, NVME_SC_CONNECT_INVALID | DNR, 42 },
		{ "sqsize 0", SQE(sqsize), 2, 0, NVME_SC_CONNECT_INVALID | DNR, 44 },
		{ "sqsize 128", SQE(sqsize), 2, 128, NVME_SC_CONNECT_INVALID | DNR, 44 },
		{ "sqsize 65535", SQE(sqsize), 2, 0xffff, NVME_SC_CONNECT_INVALID | DNR, 44 },
		{ "cntlid 0", DATA(cntlid), 2, 0, NVME_SC_CONNECT_INVALID | DNR, IPO(cntlid) },
		{ "cntlid 0xfffe", DATA(cntlid), 2, 0xfffe, NVME_SC_CONNECT_INVALID | DNR,
		  IPO(cntlid) },
		{ "no subnqn", DATA(subnqn), 1, 0, NVME_SC_CONNECT_INVALID | DNR, IPO(subnqn) },
		{ "other subnqn", DATA(subnqn), 1, 'N', NVME_SC_CONNECT_INVALID | DNR,
		  IPO(subnqn) },
		{ "no hostnqn", DATA(hostnqn), 1, 0, NVME_SC_CONNECT_INVALID | DNR, IPO(hostnqn) },
		{ "endless subnqn", DATA(subnqn), 256, 'a', NVME_SC_CONNECT_INVALID | DNR,
		  IPO(subnqn) },
		{ "endless hostnqn", DATA(hostnqn), 256, 'a', NVME_SC_CONNECT_INVALID | DNR,
		  IPO(hostnqn) },
		{ "short data", 24 + 8, 4, 1023, NVME_SC_INVALID_FIELD | DNR, 0 },
		{ "SGL type 0", 39, 1, 0, NVME_SC_SGL_TYPE | DNR, 0 },
		{ "SGL offset wraps", 24, 8, 0xfffffffffffffe00, ANY, 0 },
		{ "SGL offset 8", 24, 8, 8, NVME_SC_INVALID_FIELD | DNR, 0 },
	};

	(void)count;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct host_queue *q = queue_open(0, true);
		const struct connect_row *row = &rows[i];
		struct nvme_cqe cqe = { 0 };
		uint16_t status;

		connect_fill(q, 0, NVMF_CNTLID_DYNAMIC);
		if (row->bytes > 8)
			memset(q->capsule + row->offset, (int)row->value, row->bytes);
		else
			memcpy(q->capsule + row->offset, &row->value, row->bytes);
		status = command(q, 64 + 1024, &cqe);
		if ((status != row->status && (row->status != ANY || !(status & DNR))) ||
		    le32toh(cqe.dw0) != row->dw0)
			complain("%s: status 0x%x, DW0 0x%x, want 0x%x, 0x%x", row->what, status,
				 le32toh(cqe.dw0), row->status, row->dw0);
		queue_close(q);
	}
}

/* CM private data of every wrong kind */
static void private_data(unsigned int count)
{
	static const struct {
		uint16_t recfmt, qid, hrqsize, hsqsize;
		uint8_t len, resources;
	} rows[] = {
		{ 0, 0, 31, 31, 0, 1 },	       { 1, 0, 31, 31, 32, 1 }, { 0, 1025, 1, 1, 32, 1 },
		{ 0, 65535, 1, 1, 32, 1 },     { 0, 0, 0, 0, 32, 1 },	{ 0, 0, 1, 2, 32, 1 },
		{ 0, 0, 65535, 65535, 32, 1 }, { 0, 0, 31, 31, 32, 0 },
	};

	(void)count;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct nvmf_rdma_request request = { htole16(rows[i].recfmt),
						     htole16(rows[i].qid),
						     htole16(rows[i].hrqsize),
						     htole16(rows[i].hsqsize),
						     0,
						     { 0 } };
		struct host_queue *q =
			queue_try(0, false, &request, rows[i].len, rows[i].resources);

		if (q || errno != ECONNREFUSED)
			complain("private data %zu: %s", i, q ? "accepted" : strerror(errno));
	}
}

#define WRAP 0xfffffffffffffe00ULL

static void io_commands(unsigned int count)
{
	uint16_t cntlid;
	struct host_queue *admin = admin_open(&cntlid), *q = io_open(1, cntlid, true);
	struct nvme_sqe *sqe;

	(void)count;
#define CASE(what, opcode, nsid, slba, blocks, sgl, len, want)                                     \
	do {                                                                                       \
		sqe = sqe_begin(q, opcode, nsid);                                                  \
		sqe_rw(sqe, slba, blocks);                                                         \
		sgl;                                                                               \
		expect(q, what, len, want);                                                        \
	} while (0)

	for (uint8_t op = NVME_CMD_WRITE; op <= NVME_CMD_READ; op++) {
		CASE("good", op, 1, 0, 8, sgl_data(q, sqe, 4096), 64, 0);
		CASE("range wraps", op, 1, UINT64_MAX, 8, sgl_data(q, sqe, 4096), 64,
		     NVME_SC_LBA_RANGE | DNR);
		CASE("range wraps in bytes", op, 1, 1ULL << 55, 8, sgl_data(q, sqe, 4096), 64,
		     NVME_SC_LBA_RANGE | DNR);
		CASE("at the end + 1", op, 1, 2048 * 4 - 7, 8, sgl_data(q, sqe, 4096), 64,
		     NVME_SC_LBA_RANGE | DNR);
		CASE("nsid 0", op, 0, 0, 8, sgl_data(q, sqe, 4096), 64,
		     NVME_SC_INVALID_NAMESPACE | DNR);
		CASE("nsid 2", op, 2, 0, 8, sgl_data(q, sqe, 4096), 64,
		     NVME_SC_INVALID_NAMESPACE | DNR);
		CASE("nsid all", op, NVME_NSID_ALL, 0, 8, sgl_data(q, sqe, 4096), 64,
		     NVME_SC_INVALID_NAMESPACE | DNR);
		CASE("short SGL", op, 1, 0, 8, sgl_data(q, sqe, 4095), 64,
		     NVME_SC_SGL_DATA_LENGTH | DNR);
		CASE("no SGL", op, 1, 0, 8, sgl_data(q, sqe, 0), 64, NVME_SC_SGL_DATA_LENGTH | DNR);
		CASE("too much", op, 1, 0, 65536, sgl_data(q, sqe, 0xffffff), 64, ANY);
		CASE("32 MiB", op, 1, 0, 65536, sgl_data(q, sqe, 0xffffff), 64,
		     NVME_SC_SGL_DATA_LENGTH | DNR);
		CASE("above MDTS", op, 1, 0, 257, sgl_data(q, sqe, 0xffffff), 64,
		     NVME_SC_INVALID_FIELD | DNR);
		CASE("SGL type", op, 1, 0, 8, (sgl_data(q, sqe, 4096), sqe->sgl[15] = 0x30), 64,
		     NVME_SC_SGL_TYPE | DNR);
		CASE("fused", op, 1, 0, 8, (sgl_data(q, sqe, 4096), sqe->flags |= 1), 64,
		     NVME_SC_INVALID_FIELD | DNR);
	}
	for (uint8_t op = NVME_CMD_WRITE; op <= NVME_CMD_COMPARE; op += 4) {
		CASE("in capsule wraps", op, 1, 0, 8, sgl_capsule(sqe, WRAP, 4096), 4160,
		     NVME_SC_SGL_OFFSET | DNR);
		CASE("in capsule, offset", op, 1, 0, 8, sgl_capsule(sqe, 1, 4096), 4160,
		     NVME_SC_SGL_OFFSET | DNR);
		CASE("in capsule, long", op, 1, 0, 16, sgl_capsule(sqe, 0, 8192), 4160,
		     NVME_SC_SGL_DATA_LENGTH | DNR);
		CASE("in capsule, 2^32-1", op, 1, 0, 8, sgl_capsule(sqe, 0, UINT32_MAX), 4160,
		     NVME_SC_SGL_DATA_LENGTH | DNR);
		CASE("in capsule, not there", op, 1, 0, 8, sgl_capsule(sqe, 0, 4096), 4159,
		     NVME_SC_SGL_DATA_LENGTH | DNR);
		CASE("in capsule, none there", op, 1, 0, 8, sgl_capsule(sqe, 0, 4096), 64,
		     NVME_SC_SGL_OFFSET | DNR);
		CASE("in capsule, empty", op, 1, 0, 8, sgl_capsule(sqe, 0, 0), 64,
		     NVME_SC_SGL_DATA_LENGTH | DNR);
	}
	/* DSM: 256 ranges, all beyond the end or around it */
	for (int kind = 0; kind < 3; kind++) {
		for (unsigned int i = 0; i < 256; i++) {
			put_le32(q->data + 16 * i, 0);
			put_le32(q->data + 16 * i + 4, kind == 1 ? UINT32_MAX : 8);
			put_le64(q->data + 16 * i + 8,
				 kind == 0 ? i * 8
					   : UINT64_MAX - 7 + (uint64_t)(kind == 2 ? i : 0));
		}
		sqe = sqe_begin(q, NVME_CMD_DSM, 1);
		sqe->cdw10 = htole32(0xffffffff);
		sqe->cdw11 = htole32(4);
		sgl_data(q, sqe, 4096);
		expect(q, "DSM", 64, kind ? NVME_SC_LBA_RANGE | DNR : 0);
	}
	CASE("DSM, short", NVME_CMD_DSM, 1, 255, 1, sgl_data(q, sqe, 4095), 64,
	     NVME_SC_SGL_DATA_LENGTH | DNR);
	CASE("Write Zeroes wraps", NVME_CMD_WRITE_ZEROES, 1, UINT64_MAX, 65536, (void)0, 64,
	     NVME_SC_LBA_RANGE | DNR);
	CASE("Verify wraps", NVME_CMD_VERIFY, 1, UINT64_MAX - 65535, 65536, (void)0, 64,
	     NVME_SC_LBA_RANGE | DNR);
	CASE("Flush, nsid 2", NVME_CMD_FLUSH, 2, 0, 1, (void)0, 64,
	     NVME_SC_INVALID_NAMESPACE | DNR);
	/* segments */
	sqe = sqe_begin(q, NVME_CMD_WRITE, 1);
	sqe_rw(sqe, 0, 8);
	sgl_capsule(sqe, 0, 16 * 17);
	sqe->sgl[15] = NVME_SGL_LAST_SEGMENT_OFFSET;
	expect(q, "17 descriptors", 64 + 16 * 17, NVME_SC_SGL_COUNT | DNR);
	sgl_capsule(sqe, WRAP, 16);
	sqe->sgl[15] = NVME_SGL_LAST_SEGMENT_OFFSET;
	expect(q, "segment wraps", 64 + 16, NVME_SC_SGL_OFFSET | DNR);
	sgl_capsule(sqe, 0, 0);
	sqe->sgl[15] = NVME_SGL_LAST_SEGMENT_OFFSET;
	expect(q, "segment of nothing", 64 + 16, NVME_SC_SGL_SEGMENT | DNR);
	for (int i = 0; i < 16; i++) {
		put_le64(q->capsule + 64 + 16 * i, (uintptr_t)q->data + 0x100 * i);
		put_le32(q->capsule + 64 + 16 * i + 8, 256);
		put_le32(q->capsule + 64 + 16 * i + 11, q->data_mr->rkey);
		q->capsule[64 + 16 * i + 15] = NVME_SGL_KEYED;
	}
	sgl_capsule(sqe, 0, 256);
	sqe->sgl[15] = NVME_SGL_LAST_SEGMENT_OFFSET;
	expect(q, "16 descriptors", 64 + 256, 0);
	CASE("good at the end", NVME_CMD_READ, 1, 0, 8, sgl_data(q, sqe, 4096), 64, 0);
	queue_close(q);
	queue_close(admin);
}

static void admin_log(struct host_queue *q, uint8_t page, uint64_t offset, uint64_t dwords,
		      uint16_t want)
{
	struct nvme_sqe *sqe = sqe_begin(q, NVME_ADMIN_GET_LOG_PAGE, NVME_NSID_ALL);

	sqe->cdw10 = htole32(page | (uint32_t)((dwords - 1) & 0xffff) << 16);
	sqe->cdw11 = htole32((uint32_t)((dwords - 1) >> 16));
	sqe->cdw12 = htole32((uint32_t)offset);
	sqe->cdw13 = htole32((uint32_t)(offset >> 32));
	sgl_data(q, sqe, 0xfffffc);
	expect(q, "Get Log Page", 64, want);
}

static void admin_commands(unsigned int count)
{
	static const uint8_t pages[] = { 1, 2, 3, 4, 5 };
	uint16_t cntlid;
	struct host_queue *q = admin_open(&cntlid);
	struct nvme_sqe *sqe;
	struct nvme_cqe cqe;

	(void)count;
	for (size_t i = 0; i < sizeof(pages); i++) {
		admin_log(q, pages[i], 0, 16, 0);
		admin_log(q, pages[i], UINT64_MAX - 3, 16, NVME_SC_INVALID_FIELD | DNR);
		admin_log(q, pages[i], 1ULL << 63, 16, NVME_SC_INVALID_FIELD | DNR);
		admin_log(q, pages[i], (1ULL << 63) - 4, 16, NVME_SC_INVALID_FIELD | DNR);
		admin_log(q, pages[i], 2, 16, NVME_SC_INVALID_FIELD | DNR);
		admin_log(q, pages[i], 0, 1ULL << 32, NVME_SC_INVALID_FIELD | DNR);
		admin_log(q, pages[i], 0, 32768, 0);
		admin_log(q, pages[i], 0, 32769, NVME_SC_INVALID_FIELD | DNR);
	}
	for (unsigned int cns = 4; cns < 256; cns++) {
		sqe = sqe_begin(q, NVME_ADMIN_IDENTIFY, 1);
		sqe->cdw10 = htole32(cns);
		sgl_data(q, sqe, 4096);
		expect(q, "Identify, odd CNS", 64, NVME_SC_INVALID_FIELD | DNR);
	}
	for (unsigned int id = 0; id < 256; id++) {
		if (id == 7 || id == 0xf) /* the keep-alive time is left alone */
			continue;
		sqe = sqe_begin(q, NVME_ADMIN_SET_FEATURES, NVME_NSID_ALL);
		sqe->cdw10 = htole32(id);
		sqe->cdw11 = htole32(UINT32_MAX);
		expect(q, "Set Features", 64, ANY);
		sqe = sqe_begin(q, NVME_ADMIN_GET_FEATURES, NVME_NSID_ALL);
		sqe->cdw10 = htole32(id | 7 << 8);
		sqe->cdw11 = htole32(UINT32_MAX);
		sgl_data(q, sqe, 4096);
		expect(q, "Get Features", 64, ANY);
	}
	sqe = sqe_begin(q, NVME_ADMIN_SET_FEATURES, 0);
	sqe->cdw10 = htole32(7);
	sqe->cdw11 = htole32(0xffff);
	expect(q, "65536 queues", 64, NVME_SC_INVALID_FIELD | DNR);
	sqe->cdw11 = 0;
	expect(q, "1 queue", 64, 0);
	sqe->cdw11 = htole32(0xfffefffe);
	expect(q, "65535 queues", 64, 0);
	/* AERs: AERL + 1 of them are held, the next are refused */
	for (int i = 0; i < 100; i++) {
		sqe_begin(q, NVME_ADMIN_AER, 0);
		if (!queue_send(q, 64))
			complain("AER %d could not be sent", i);
	}
	for (int i = 0; i < 96; i++)
		if (queue_answer(q, 2, &cqe) != (NVME_SC_AER_LIMIT | DNR))
			complain("AER %d was not refused with AER Limit Exceeded", i);
	for (unsigned int cid = 0; cid < 2000; cid++) {
		sqe = sqe_begin(q, NVME_ADMIN_ABORT, 0);
		sqe->cdw10 = htole32(cid << 16);
		sqe->cid = htole16(0xabcd);
		if (!queue_send(q, 64) || queue_answer(q, 2, &cqe) >= ANY)
			complain("Abort %u was not answered", cid);
	}
	while (queue_answer(q, 0.2, &cqe) < ANY) /* AERs that were aborted */
		;
	for (uint32_t offset = 0; offset < 0x80; offset += 2)
		if (offset != NVME_REG_CC)
			property_set(q, offset, UINT64_MAX, NVME_SC_INVALID_FIELD | DNR);
	property_set(q, NVME_REG_CC, UINT64_MAX, 0);
	property_set(q, NVME_REG_CC, 0, 0);
	for (int i = 0; i < 64; i++)
		property_set(q, NVME_REG_CC, 1ULL << (i & 31), 0);
	queue_close(q);
}

static uint64_t random_state = 88172645463325252ULL;

static uint32_t random32(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (uint32_t)random_state;
}

/* plausible capsules with a few fields overwritten by extremes; what is answered is not judged */
static void random_capsules(unsigned int count)
{
	static const uint8_t edges[] = { 0, 1, 0x7f, 0x80, 0xff, 0x40, 0x4f, 0x31 };
	uint16_t cntlid;

	for (unsigned int done = 0; done < count;) {
		struct host_queue *admin = admin_open(&cntlid), *q;
		unsigned int qid = random32() & 1;
		struct nvme_cqe cqe;
		uint16_t status = 0;

		q = qid ? io_open(1, cntlid, true) : admin;
		while (done++ < count && status != LOST) {
			struct nvme_sqe *sqe = sqe_begin(q, (uint8_t)(random32() % 26), 1);
			uint32_t len = random32() % 8 ? 64 : random32() % 4200;

			if (random32() % 16 == 0)
				sqe->opcode = NVME_CMD_FABRICS;
			sqe_rw(sqe, random32() % 64, 1 + random32() % 256);
			sgl_data(q, sqe, random32() % DATA_BYTES);
			if (random32() % 3 == 0)
				sgl_capsule(sqe, random32() % 4096, random32() % 4096);
			for (unsigned int n = random32() % 4; n; n--)
				q->capsule[random32() % 64] = edges[random32() % sizeof(edges)];
			if (sqe->opcode == NVME_ADMIN_AER && !qid)
				sqe->opcode = NVME_ADMIN_IDENTIFY;
			if (!queue_send(q, len < 4160 ? len : 4160))
				break;
			status = queue_answer(q, 5, &cqe);
			if (status == SILENCE)
				complain("capsule %u was not answered: opcode 0x%02x", done,
					 sqe->opcode);
		}
		if (q != admin)
			queue_close(q);
		queue_close(admin);
	}
}

/* large reads whose responses are never received, and Identifies likewise; then it sits there */
static void no_receives(unsigned int count)
{
	uint16_t cntlid;
	struct host_queue *admin = admin_open(&cntlid), *io[7], *a2 = queue_open(0, false);
	struct nvmf_property_sqe *property;
	struct nvme_sqe *sqe;

	for (uint16_t n = 0; n < ARRAY_SIZE(io); n++) {
		io[n] = io_open(n + 1, cntlid, false);
		for (unsigned int i = 0; i < DEPTH - 1; i++) {
			sqe = sqe_begin(io[n], i % 4 ? NVME_CMD_READ : NVME_CMD_COMPARE, 1);
			sqe_rw(sqe, 0, 256);
			sgl_data(io[n], sqe, 131072);
			queue_send(io[n], 64);
		}
	}
	connect_fill(a2, 0, NVMF_CNTLID_DYNAMIC);
	queue_send(a2, 64 + 1024);
	property = (void *)sqe_begin(a2, NVME_CMD_FABRICS, 0);
	property->offset = htole32(NVME_REG_CC);
	property->value = htole64(CC_GOOD);
	queue_send(a2, 64);
	for (unsigned int i = 0; i < DEPTH - 1; i++) {
		sqe = sqe_begin(a2, NVME_ADMIN_IDENTIFY, 0);
		sqe->cdw10 = htole32(1);
		sgl_data(a2, sqe, 4096);
		queue_send(a2, 64);
	}
	printf("ready\n");
	fflush(stdout);
	sleep(count);
	queue_close(a2);
	for (size_t n = 0; n < ARRAY_SIZE(io); n++)
		queue_close(io[n]);
	queue_close(admin);
}

/* memory that goes while commands that use it are in flight (situation N31) */
static void dereg_in_flight(unsigned int count)
{
	uint16_t cntlid;

	for (unsigned int i = 0; i < count; i++) {
		struct host_queue *admin = admin_open(&cntlid), *q = io_open(1, cntlid, true);

		for (unsigned int n = 0; n < 32; n++) {
			struct nvme_sqe *sqe =
				sqe_begin(q, n % 2 ? NVME_CMD_READ : NVME_CMD_WRITE, 1);

			sqe_rw(sqe, 0, 256);
			sgl_data(q, sqe, 131072);
			if (!queue_send(q, 64))
				break;
			if (n == i % 32) {
				rdma_dereg_mr(q->data_mr);
				q->data_mr = NULL;
				break;
			}
		}
		queue_close(q);
		queue_close(admin);
	}
}

/* connections without a Connect command */
static void idle_connections(unsigned int count)
{
	struct host_queue **q = calloc(count, sizeof(struct host_queue *));
	unsigned int n = 0;

	while (n < count && (q[n] = queue_try(n & 1, true, NULL, 0, 16)))
		n++;
	printf("ready %u\n", n);
	fflush(stdout);
	getchar();
	while (n)
		queue_close(q[--n]);
	free(q);
}

static const struct {
	const char *name;
	void (*run)(unsigned int count);
	unsigned int count;
} scenarios[] = {
	{ "before_connect", before_connect, 0 },
	{ "connect_fields", connect_fields, 0 },
	{ "private_data", private_data, 0 },
	{ "io_commands", io_commands, 0 },
	{ "admin_commands", admin_commands, 0 },
	{ "random_capsules", random_capsules, 2000 },
	{ "no_receives", no_receives, 3 },
	{ "dereg_in_flight", dereg_in_flight, 32 },
	{ "idle_connections", idle_connections, 200 },
};

int main(int argc, char **argv)
{
	if (argc < 5)
		return 2;
	address = argv[1];
	port = argv[2];
	subnqn = argv[3];
	scenario = argv[4];
	for (size_t i = 0; i < ARRAY_SIZE(scenarios); i++) {
		if (strcmp(scenario, scenarios[i].name))
			continue;
		scenarios[i].run(argc > 5 ? (unsigned int)atoi(argv[5]) : scenarios[i].count);
		return wrong ? 1 : 0;
	}
	return 2;
}
