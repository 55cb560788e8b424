// SPDX-License-Identifier: BSD-2-Clause
/*
 * soft_qp.c: how a queue pair of the soft controller serves commands: fetch, check everything,
 * move the data piece by piece, complete when the CQ has room.
 * NVM Express Base 2.0, 3.3 and 4.1; NVM Command Set 1.0, 3.2.
 */
#include "nvme/soft_internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#include "util/bytes.h"
#include "util/log.h"

#define RING_MAX_ENTRIES 1024
#define DSM_DEALLOCATE	 (1U << 2) /* CDW11 */

static void cmd_advance(struct soft_cmd *cmd);

/* ---- start and stop ------------------------------------------------------- */

void soft_qp_init(struct soft_qp *qp, struct soft_ctrl *ctrl, uint16_t qid)
{
	qp->ctrl = ctrl;
	qp->qid = qid;
	pthread_mutex_init(&qp->lock, NULL);
}

void soft_qp_need_ring(struct soft_qp *qp)
{
	static _Atomic bool warned;
	unsigned int entries;
	int ret;

	if (!qp->live || qp->has_ring)
		return;
	entries = (unsigned int)MIN(round_up_power_of_two(qp->depth), RING_MAX_ENTRIES);
	ret = io_uring_queue_init(entries, &qp->ring, 0);
	if (!ret) {
		ret = io_uring_register_eventfd(&qp->ring, qp->ctrl->event_fd);
		if (ret)
			io_uring_queue_exit(&qp->ring);
	}
	if (ret) {
		if (!atomic_exchange(&warned, true))
			log_warn("nvme: no io_uring here (%s): file I/O blocks its caller",
				 strerror(-ret));
		return;
	}
	qp->ring_room = 2 * entries; /* the io_uring's own CQ */
	qp->has_ring = true;
}

int soft_qp_start(struct soft_qp *qp, uint32_t depth, void *sq, void *cq,
		  void (*on_completion)(void *arg), void *arg)
{
	struct soft_cmd *cmds;
	uint8_t *scratch;

	if (qp->live)
		return EBUSY;
	cmds = calloc(depth, sizeof(*cmds));
	if (!cmds)
		return ENOMEM;
	if (posix_memalign((void **)&scratch, SOFT_PAGE_SIZE, SOFT_SCRATCH)) {
		free(cmds);
		return ENOMEM;
	}
	pthread_mutex_lock(&qp->lock);
	qp->cmds = cmds;
	qp->scratch = scratch;
	qp->comparing = NULL;
	list_init(&qp->free);
	list_init(&qp->ready);
	list_init(&qp->done);
	list_init(&qp->compare_wait);
	for (uint32_t i = 0; i < depth; i++) {
		cmds[i].qp = qp;
		list_add_tail(&qp->free, &cmds[i].node);
	}
	memset(qp->cids, 0, sizeof(qp->cids));
	qp->sq = sq;
	qp->cq = cq;
	qp->depth = depth;
	qp->sq_head = qp->cq_head = qp->cq_tail = 0;
	qp->phase = 1;
	qp->on_completion = on_completion;
	qp->arg = arg;
	__atomic_store_n(soft_ctrl_doorbell(qp->ctrl, qp->qid, false), 0, __ATOMIC_RELAXED);
	__atomic_store_n(soft_ctrl_doorbell(qp->ctrl, qp->qid, true), 0, __ATOMIC_RELAXED);
	qp->live = true;
	if (qp->ctrl->wants_rings)
		soft_qp_need_ring(qp);
	pthread_mutex_unlock(&qp->lock);
	return 0;
}

static void leave_namespace(struct soft_cmd *cmd)
{
	if (cmd->counted)
		atomic_fetch_sub(&cmd->ns->in_flight, 1);
	cmd->counted = false;
	cmd->ns = NULL;
}

static void cmd_recycle(struct soft_cmd *cmd)
{
	leave_namespace(cmd);
	list_add(&cmd->qp->free, &cmd->node); /* the one used last is in the cache */
}

static void recycle_list(struct list_node *list)
{
	struct list_node *node;

	while ((node = list_pop(list)))
		cmd_recycle(list_entry(node, struct soft_cmd, node));
}

bool soft_qp_stop(struct soft_qp *qp)
{
	bool was_live;

	pthread_mutex_lock(&qp->lock);
	was_live = qp->live;
	qp->live = false;
	if (was_live) {
		recycle_list(&qp->ready);
		recycle_list(&qp->done);
		recycle_list(&qp->compare_wait);
	}
	pthread_mutex_unlock(&qp->lock);
	return was_live;
}

void soft_qp_release(struct soft_qp *qp)
{
	pthread_mutex_lock(&qp->lock);
	if (qp->has_ring)
		io_uring_queue_exit(&qp->ring);
	qp->has_ring = false;
	free(qp->cmds);
	free(qp->scratch);
	qp->cmds = NULL;
	qp->scratch = NULL;
	pthread_mutex_unlock(&qp->lock);
}

/* ---- completion ----------------------------------------------------------- */

static uint32_t cq_room(const struct soft_qp *qp)
{
	uint32_t used = qp->cq_tail >= qp->cq_head ? qp->cq_tail - qp->cq_head
						   : qp->cq_tail + qp->depth - qp->cq_head;

	return qp->depth - 1 - used;
}

/* the host gives CQ entries back */
static void read_cq_head(struct soft_qp *qp)
{
	uint32_t head = nvme_doorbell_read(soft_ctrl_doorbell(qp->ctrl, qp->qid, true));
	uint32_t used = qp->depth - 1 - cq_room(qp);
	uint32_t step = head >= qp->cq_head ? head - qp->cq_head : head + qp->depth - qp->cq_head;

	if (head == qp->cq_head)
		return;
	if (head >= qp->depth || step > used) {
		log_debug("nvme: queue %u: CQ head doorbell %u is invalid, ignored", qp->qid, head);
		return;
	}
	qp->cq_head = head;
}

/* write CQEs of finished commands while the CQ has room. Return: true when any was written */
static bool post_completions(struct soft_qp *qp)
{
	struct list_node *node;
	bool wrote = false;

	if (list_empty(&qp->done))
		return false;
	read_cq_head(qp);
	while (cq_room(qp) && (node = list_pop(&qp->done))) {
		struct soft_cmd *cmd = list_entry(node, struct soft_cmd, node);
		uint16_t cid = le16toh(cmd->sqe.cid);
		struct nvme_cqe cqe = {
			.sqhd = htole16((uint16_t)qp->sq_head),
			.sqid = htole16(qp->qid),
			.cid = cmd->sqe.cid,
			.status = htole16(NVME_STATUS_TO_FIELD(cmd->status)),
		};

		if (cmd->holds_cid)
			qp->cids[cid / 64] &= ~(1ULL << cid % 64);
		nvme_cqe_write(&qp->cq[qp->cq_tail], &cqe, qp->phase);
		if (++qp->cq_tail == qp->depth) {
			qp->cq_tail = 0;
			qp->phase ^= 1;
		}
		cmd_recycle(cmd);
		wrote = true;
	}
	return wrote;
}

static void cmd_finish(struct soft_cmd *cmd, uint16_t status)
{
	struct soft_qp *qp = cmd->qp;
	struct list_node *next;

	cmd->status = status;
	leave_namespace(cmd); /* it may go now, even when the CQ is full */
	if (qp->live)
		list_add_tail(&qp->done, &cmd->node);
	else
		cmd_recycle(cmd);
	if (qp->comparing != cmd)
		return;
	qp->comparing = NULL;
	next = list_pop(&qp->compare_wait);
	if (next)
		cmd_advance(list_entry(next, struct soft_cmd, node));
}

/* ---- execution ------------------------------------------------------------ */

/* the next contiguous piece of host memory, up to @max bytes. Return: NVMe status */
static uint16_t take_piece(struct soft_cmd *cmd, uint64_t max, void **addr, uint64_t *len)
{
	uint16_t status;
	void *piece;

	if (!cmd->piece_len) {
		status = prp_walk_next(&cmd->walk, &piece, &cmd->piece_len);
		if (status)
			return status;
		if (!cmd->piece_len)
			return NVME_SC_DATA_TRANSFER;
		cmd->piece = piece;
	}
	*addr = cmd->piece;
	*len = MIN(max, cmd->piece_len);
	cmd->piece += *len;
	cmd->piece_len -= *len;
	return NVME_SC_SUCCESS;
}

static uint16_t next_transfer(struct soft_cmd *cmd)
{
	uint64_t left = cmd->length - cmd->done;
	uint16_t status;
	uint64_t len;
	void *addr;

	cmd->io.length = 0;
	cmd->io.iov = cmd->iov;
	cmd->io.iov_count = 0;
	while (left && cmd->io.iov_count < SOFT_IOVS) {
		status = take_piece(cmd, left, &addr, &len);
		if (status)
			return status;
		cmd->iov[cmd->io.iov_count++] = (struct iovec){ addr, len };
		cmd->io.length += len;
		left -= len;
	}
	return NVME_SC_SUCCESS;
}

static uint16_t read_range(const struct soft_cmd *cmd, uint32_t index, uint64_t *slba,
			   uint32_t *blocks)
{
	uint8_t range[16];
	uint16_t status;

	status = prp_read(&cmd->qp->ctrl->memory, SOFT_PAGE_SIZE, le64toh(cmd->sqe.prp1),
			  le64toh(cmd->sqe.prp2), (uint64_t)cmd->range_count * sizeof(range),
			  (uint64_t)index * sizeof(range), range, sizeof(range));
	*blocks = get_le32(range + 4);
	*slba = get_le64(range + 8);
	return status;
}

/* set up the next DSM range that is not empty; *more false at the end */
static uint16_t next_range(struct soft_cmd *cmd, bool *more)
{
	uint32_t blocks;
	uint16_t status;
	uint64_t slba;

	for (*more = false; cmd->range < cmd->range_count; cmd->range++) {
		status = read_range(cmd, cmd->range, &slba, &blocks);
		if (status)
			return status;
		/* once more: the host could have changed them after the check */
		if (!range_inside(slba, blocks, 0, cmd->ns->lba_count))
			return NVME_SC_LBA_RANGE | NVME_STATUS_DNR;
		if (!blocks)
			continue;
		cmd->range++;
		cmd->io.offset = slba * cmd->ns->lba_size;
		cmd->io.length = (uint64_t)blocks * cmd->ns->lba_size;
		*more = true;
		break;
	}
	return NVME_SC_SUCCESS;
}

/*
 * Fill in cmd->io with the next piece of work.
 * @more: out; false: nothing is left to do. Return: NVMe status.
 */
static uint16_t next_io(struct soft_cmd *cmd, bool *more)
{
	uint16_t status;

	memset(&cmd->io, 0, sizeof(cmd->io));
	cmd->io.opcode = cmd->sqe.opcode;
	cmd->io.fua = le32toh(cmd->sqe.cdw12) & NVME_RW_FUA;
	cmd->io.offset = cmd->offset + cmd->done;
	*more = true;
	switch (cmd->sqe.opcode) {
	case NVME_CMD_FLUSH:
		*more = !cmd->range++; /* once */
		return NVME_SC_SUCCESS;
	case NVME_CMD_DSM:
		cmd->io.fua = false;
		return next_range(cmd, more);
	}
	*more = cmd->done < cmd->length;
	if (!*more)
		return NVME_SC_SUCCESS;
	switch (cmd->sqe.opcode) {
	case NVME_CMD_READ:
	case NVME_CMD_WRITE:
		status = next_transfer(cmd);
		if (status)
			return status;
		break;
	case NVME_CMD_COMPARE:
		cmd->io.opcode = NVME_CMD_READ;
		cmd->io.length = MIN(cmd->length - cmd->done, SOFT_SCRATCH);
		cmd->iov[0] = (struct iovec){ cmd->qp->scratch, cmd->io.length };
		cmd->io.iov = cmd->iov;
		cmd->io.iov_count = 1;
		break;
	default: /* WRITE ZEROES, VERIFY */
		cmd->io.length = cmd->length;
	}
	return NVME_SC_SUCCESS;
}

static uint16_t compare(struct soft_cmd *cmd, uint64_t length)
{
	const uint8_t *media = cmd->qp->scratch;
	uint16_t status;
	uint64_t len;
	void *addr;

	while (length) {
		status = take_piece(cmd, length, &addr, &len);
		if (status)
			return status;
		if (memcmp(media, addr, len))
			return NVME_SC_COMPARE | NVME_STATUS_DNR;
		media += len;
		length -= len;
	}
	return NVME_SC_SUCCESS;
}

/* cmd->io has ended. Return: NVMe status of the command so far */
static uint16_t io_ended(struct soft_cmd *cmd, uint64_t length)
{
	if (cmd->io.status)
		return cmd->io.status;
	cmd->done += length;
	return cmd->sqe.opcode == NVME_CMD_COMPARE ? compare(cmd, length) : NVME_SC_SUCCESS;
}

/* go on with a command until it waits for the back end or ends */
static void cmd_advance(struct soft_cmd *cmd)
{
	struct soft_qp *qp = cmd->qp;
	struct backend *backend = cmd->ns->backend;
	uint16_t status;
	bool more;

	if (cmd->sqe.opcode == NVME_CMD_COMPARE && qp->comparing != cmd) {
		if (qp->comparing) {
			list_add_tail(&qp->compare_wait, &cmd->node);
			return;
		}
		qp->comparing = cmd;
	}
	for (;;) {
		status = next_io(cmd, &more);
		if (status || !more)
			break;
		if (!backend->at_once && qp->has_ring) {
			list_add_tail(&qp->ready, &cmd->node);
			return;
		}
		cmd->io.status = backend->ops->run(backend, &cmd->io);
		status = io_ended(cmd, cmd->io.length);
		if (status)
			break;
	}
	cmd_finish(cmd, status);
}

/* ---- fetch and check ------------------------------------------------------ */

static uint16_t check_ranges(struct soft_cmd *cmd)
{
	struct soft_ctrl *ctrl = cmd->qp->ctrl;
	uint32_t blocks;
	uint16_t status;
	uint64_t slba;

	cmd->range_count = (le32toh(cmd->sqe.cdw10) & 0xff) + 1;
	status = prp_check(&ctrl->memory, SOFT_PAGE_SIZE, le64toh(cmd->sqe.prp1),
			   le64toh(cmd->sqe.prp2), (uint64_t)cmd->range_count * 16);
	for (uint32_t i = 0; !status && i < cmd->range_count; i++) {
		status = read_range(cmd, i, &slba, &blocks);
		if (!status && !range_inside(slba, blocks, 0, cmd->ns->lba_count))
			return NVME_SC_LBA_RANGE | NVME_STATUS_DNR;
	}
	if (!(le32toh(cmd->sqe.cdw11) & DSM_DEALLOCATE))
		cmd->range_count = 0; /* only hints that we have no use for */
	return status;
}

/* everything that can be wrong with a command is found here, before it has any effect */
static uint16_t cmd_check(struct soft_cmd *cmd)
{
	struct soft_ctrl *ctrl = cmd->qp->ctrl;
	const struct nvme_sqe *sqe = &cmd->sqe;
	uint32_t nsid = le32toh(sqe->nsid);
	bool writes = false, moves_data = false;
	uint64_t slba, blocks;

	switch (sqe->opcode) {
	case NVME_CMD_WRITE:
		writes = moves_data = true;
		break;
	case NVME_CMD_READ:
	case NVME_CMD_COMPARE:
		moves_data = true;
		break;
	case NVME_CMD_WRITE_ZEROES:
	case NVME_CMD_DSM:
		writes = true;
		break;
	case NVME_CMD_FLUSH:
	case NVME_CMD_VERIFY:
		break;
	default:
		return NVME_SC_INVALID_OPCODE | NVME_STATUS_DNR;
	}
	/* no fused commands; queues in host memory carry PRPs, SGLs are not offered */
	if (sqe->flags & (NVME_SQE_FUSE_MASK | NVME_SQE_PSDT_MASK))
		return NVME_SC_INVALID_FIELD | NVME_STATUS_DNR;
	if (!nsid || nsid > SOFT_MAX_NSID || !ctrl->namespaces[nsid])
		return NVME_SC_INVALID_NAMESPACE | NVME_STATUS_DNR;
	cmd->ns = ctrl->namespaces[nsid];
	if (writes && cmd->ns->backend->info.read_only)
		return NVME_SC_WRITE_PROTECTED | NVME_STATUS_DNR;
	if (sqe->opcode == NVME_CMD_FLUSH)
		return NVME_SC_SUCCESS;
	if (sqe->opcode == NVME_CMD_DSM)
		return check_ranges(cmd);

	slba = (uint64_t)le32toh(sqe->cdw11) << 32 | le32toh(sqe->cdw10);
	blocks = (le32toh(sqe->cdw12) & 0xffff) + 1;
	if (!range_inside(slba, blocks, 0, cmd->ns->lba_count))
		return NVME_SC_LBA_RANGE | NVME_STATUS_DNR;
	cmd->offset = slba * cmd->ns->lba_size;
	cmd->length = blocks * cmd->ns->lba_size;
	if (!moves_data)
		return NVME_SC_SUCCESS;
	prp_walk_start(&cmd->walk, &ctrl->memory, SOFT_PAGE_SIZE, le64toh(sqe->prp1),
		       le64toh(sqe->prp2), cmd->length);
	return prp_check(&ctrl->memory, SOFT_PAGE_SIZE, le64toh(sqe->prp1), le64toh(sqe->prp2),
			 cmd->length);
}

static void cmd_start(struct soft_cmd *cmd)
{
	struct soft_qp *qp = cmd->qp;
	uint16_t cid = le16toh(cmd->sqe.cid);
	uint16_t status;

	cmd->ns = NULL;
	cmd->done = cmd->piece_len = 0;
	cmd->range = cmd->range_count = 0;
	cmd->counted = false;
	cmd->holds_cid = !(qp->cids[cid / 64] & 1ULL << cid % 64);
	if (!cmd->holds_cid) {
		cmd_finish(cmd, NVME_SC_CID_CONFLICT | NVME_STATUS_DNR);
		return;
	}
	qp->cids[cid / 64] |= 1ULL << cid % 64;
	status = cmd_check(cmd);
	if (status) {
		cmd_finish(cmd, status);
		return;
	}
	if (!cmd->ns->backend->at_once) {
		atomic_fetch_add(&cmd->ns->in_flight, 1);
		cmd->counted = true;
	}
	cmd_advance(cmd);
}

/* take new SQEs as long as there are command slots. Return: true when any was taken */
static bool fetch(struct soft_qp *qp)
{
	uint32_t tail = nvme_doorbell_read(soft_ctrl_doorbell(qp->ctrl, qp->qid, false));
	bool any = false;

	if (tail >= qp->depth) {
		log_debug("nvme: queue %u: SQ tail doorbell %u is invalid, ignored", qp->qid, tail);
		return false;
	}
	while (qp->sq_head != tail && !list_empty(&qp->free)) {
		struct soft_cmd *cmd = list_entry(list_pop(&qp->free), struct soft_cmd, node);

		cmd->sqe = qp->sq[qp->sq_head];
		qp->sq_head = qp->sq_head + 1 == qp->depth ? 0 : qp->sq_head + 1;
		cmd_start(cmd);
		any = true;
	}
	return any;
}

/* ---- io_uring ------------------------------------------------------------- */

static void submit_ready(struct soft_qp *qp)
{
	uint64_t one = 1;
	bool any = false;

	while (!list_empty(&qp->ready) && atomic_load(&qp->in_flight) < qp->ring_room) {
		struct io_uring_sqe *sqe = io_uring_get_sqe(&qp->ring);
		struct soft_cmd *cmd;

		if (!sqe) {
			if (io_uring_submit(&qp->ring) <= 0)
				break;
			continue;
		}
		cmd = list_entry(list_pop(&qp->ready), struct soft_cmd, node);
		if (cmd->ns->backend->ops->prepare(cmd->ns->backend, &cmd->io, sqe)) {
			io_uring_sqe_set_data(sqe, cmd);
		} else {
			/* ended without I/O; the SQE is taken already */
			io_uring_prep_nop(sqe);
			io_uring_sqe_set_data(sqe, NULL);
			cmd_finish(cmd, cmd->io.status);
		}
		atomic_fetch_add(&qp->in_flight, 1);
		any = true;
	}
	if (!any && !io_uring_sq_ready(&qp->ring))
		return;
	/* one system call for the batch; what the kernel did not take stays for the next time,
	 * which the descriptor announces */
	if (io_uring_submit(&qp->ring) < 0)
		eventfd_write(qp->ctrl->event_fd, one);
}

/* Return: true when a submission had ended */
static bool reap(struct soft_qp *qp)
{
	struct io_uring_cqe *cqe;
	bool any = false;

	while (!io_uring_peek_cqe(&qp->ring, &cqe)) {
		struct soft_cmd *cmd = io_uring_cqe_get_data(cqe);
		int res = cqe->res;
		struct backend *backend;
		uint64_t length;
		uint16_t status;

		io_uring_cqe_seen(&qp->ring, cqe);
		atomic_fetch_sub(&qp->in_flight, 1);
		any = true;
		if (!cmd)
			continue;
		backend = cmd->ns->backend;
		length = cmd->io.length;
		if (!qp->live) {
			cmd_finish(cmd, NVME_SC_SQ_DELETED);
		} else if (!backend->ops->complete(backend, &cmd->io, res)) {
			list_add_tail(&qp->ready, &cmd->node);
		} else {
			status = io_ended(cmd, length);
			if (status)
				cmd_finish(cmd, status);
			else
				cmd_advance(cmd);
		}
	}
	return any;
}

/* ---- the whole ------------------------------------------------------------ */

bool soft_qp_process(struct soft_qp *qp)
{
	void (*on_completion)(void *arg);
	bool wrote = false, again;
	void *arg;

	pthread_mutex_lock(&qp->lock);
	do {
		again = qp->live && fetch(qp);
		if (qp->has_ring) {
			submit_ready(qp);
			again |= reap(qp);
		}
		if (qp->live && post_completions(qp))
			wrote = again = true;
	} while (again);
	on_completion = wrote ? qp->on_completion : NULL;
	arg = qp->arg;
	if (on_completion)
		atomic_fetch_add(&qp->callbacks, 1);
	pthread_mutex_unlock(&qp->lock);
	/* without the lock: it may take others */
	if (on_completion) {
		on_completion(arg);
		atomic_fetch_sub(&qp->callbacks, 1);
	}
	return wrote;
}
