// SPDX-License-Identifier: BSD-2-Clause
/*
 * receive.c: what the responder shows us: packets of SENDs on the QPs of an NVMF SRQ, and QPs that
 * go down. Decides whose a capsule is, keeps the fabrics queue's head, collects in-capsule data.
 */
#include <errno.h>
#include <stdlib.h>

#include "nvme/spec.h"
#include "offload/internal.h"
#include "util/bytes.h"
#include "util/counters.h"
#include "util/log.h"

#define ENTRIES_UNKNOWN 65536 /* before CONNECT the head wraps as a 16-bit number */

struct offload_qp *offload_qp_get(struct offload *offload, struct hca_qp *hca_qp)
{
	struct offload_qp *qp = qp_capsule_state(hca_qp);

	if (qp)
		return qp;
	/* once in the life of a QP */
	qp = calloc(1, sizeof(*qp));
	if (!qp)
		return NULL;
	qp->offload = offload;
	qp->qp = hca_qp;
	qp->entries = ENTRIES_UNKNOWN;
	list_init(&qp->commands);
	list_init(&qp->wait_room);
	list_init(&qp->wait_staging);
	list_init(&qp->staging_queue);
	list_add_tail(&offload->qps, &qp->node);
	qp_set_capsule_state(hca_qp, qp);
	return qp;
}

/* one more capsule was taken out of the fabrics queue; false: it was counted before */
static bool count_capsule(struct offload_qp *qp, const struct packet *p)
{
	if (qp->has_last_psn && qp->last_psn == p->psn)
		return false;
	qp->has_last_psn = true;
	qp->last_psn = p->psn;
	qp->sqhd = (qp->sqhd + 1) % qp->entries;
	return true;
}

static enum capsule_verdict to_software(struct offload_qp *qp, const struct packet *p)
{
	uint32_t entries;

	/* a CONNECT tells the size of the queue, itself is its first entry */
	if (!qp->enabled && p->payload_len >= CAPSULE_MIN_LEN &&
	    capsule_parse_connect(p->payload, &qp->qid, &entries)) {
		qp->entries = entries;
		qp->sqhd %= entries;
	}
	if (count_capsule(qp, p) && qp->enabled) {
		qp->offload->stats.software++;
		counter_inc(CNT_NVMF_SOFTWARE);
	}
	return CAPSULE_NOT_MINE;
}

/* copy what a packet has of the command's in-capsule data; cmd->capsule_len is its offset */
static void place_data(struct offload_command *cmd, const struct packet *p)
{
	uint64_t start = (uint64_t)cmd->offload->rules.data_offset + cmd->in.addr;
	uint64_t end = start + cmd->transfer;
	uint64_t from = MAX(start, cmd->capsule_len);
	uint64_t to = MIN(end, (uint64_t)cmd->capsule_len + p->payload_len);
	uint8_t *data = cmd->capsule_data ? cmd->capsule_data : command_staging(cmd);

	if (cmd->refused || !cmd->in.in_capsule || from >= to)
		return;
	memcpy(data + (from - start), p->payload + (from - cmd->capsule_len), to - from);
}

/* the capsule is complete */
static enum capsule_verdict capsule_ends(struct offload_command *cmd)
{
	struct offload *off = cmd->offload;

	if (!cmd->refused) {
		cmd->refused =
			capsule_check_data(&off->rules, &cmd->in, cmd->transfer, cmd->capsule_len);
		if (cmd->refused) {
			if (cmd->ns)
				cmd->ns->stats.num_error_cmd++;
			off->stats.errors++;
			counter_inc(CNT_NVMF_ERROR);
		}
	}
	command_go(cmd);
	return CAPSULE_TAKEN;
}

static void count_accepted(struct offload_command *cmd, struct offload_ns *ns)
{
	struct offload *off = cmd->offload;

	switch (cmd->in.opcode) {
	case NVME_CMD_READ:
		ns->stats.num_read_cmd++;
		ns->stats.num_read_blocks += cmd->in.blocks;
		off->stats.offloaded_read++;
		counter_inc(CNT_NVMF_READ);
		break;
	case NVME_CMD_WRITE:
		ns->stats.num_write_cmd++;
		ns->stats.num_write_blocks += cmd->in.blocks;
		ns->stats.num_write_inline_cmd += cmd->in.in_capsule;
		off->stats.offloaded_write++;
		counter_inc(CNT_NVMF_WRITE);
		break;
	default:
		ns->stats.num_flush_cmd++;
		off->stats.offloaded_flush++;
		counter_inc(CNT_NVMF_FLUSH);
	}
}

/* in-capsule data need a place before the packet is gone. Return: false: none */
static bool place_for_data(struct offload_command *cmd)
{
	struct offload *off = cmd->offload;

	if (!cmd->in.in_capsule || !cmd->transfer)
		return true;
	if (command_take_staging(cmd))
		return true;
	if (!off->capsule_free_count)
		return false;
	cmd->capsule_data = off->capsule_free[--off->capsule_free_count];
	return true;
}

static enum capsule_verdict offload_first(struct hca_qp *hca_qp, const struct packet *p)
{
	struct hca_srq *srq = qp_srq(hca_qp);
	struct offload *off = srq ? srq->offload : NULL;
	struct capsule_command in;
	struct offload_command *cmd;
	struct offload_ns *ns;
	struct offload_qp *qp;

	if (!off)
		return CAPSULE_NOT_MINE;
	qp = offload_qp_get(off, hca_qp);
	if (!qp)
		return CAPSULE_RNR;
	if (!qp->enabled || qp->down)
		return to_software(qp, p);
	if (p->payload_len < CAPSULE_MIN_LEN || p->payload_len > off->rules.max_len) {
		log_debug("offload: QP 0x%x: capsule of %u bytes, must be %d..%u", qp_num(hca_qp),
			  p->payload_len, CAPSULE_MIN_LEN, off->rules.max_len);
		return CAPSULE_BAD;
	}
	if (qp->receiving) /* the responder keeps the order of packets: this cannot be */
		return CAPSULE_BAD;
	if (!capsule_parse(&off->rules, p->payload, &in))
		return to_software(qp, p);

	cmd = command_alloc(off, qp);
	if (!cmd) {
		off->stats.waits_rnr++;
		return CAPSULE_RNR;
	}
	cmd->in = in;
	ns = namespace_find(off, in.nsid);
	if (!ns) {
		cmd->refused = NVME_SC_INVALID_NAMESPACE | NVME_STATUS_DNR;
		off->stats.unknown_nsid++;
		counter_inc(CNT_NVMF_UNKNOWN_NSID);
	} else {
		cmd->refused = capsule_check(&off->rules, &in, ns->lba_size, &cmd->transfer);
		if (cmd->refused) {
			ns->stats.num_error_cmd++;
			off->stats.errors++;
			counter_inc(CNT_NVMF_ERROR);
		}
	}
	if (cmd->refused) {
		log_debug("offload: QP 0x%x: command 0x%x opcode 0x%x nsid %u refused: 0x%x",
			  qp_num(hca_qp), in.cid, in.opcode, in.nsid, cmd->refused);
	} else {
		if (!place_for_data(cmd)) {
			command_settle(cmd);
			off->stats.waits_rnr++;
			return CAPSULE_RNR;
		}
		command_enter(cmd, ns);
		count_accepted(cmd, ns);
	}
	count_capsule(qp, p);
	place_data(cmd, p);
	cmd->capsule_len = p->payload_len;
	if (p->flags & OPF_END)
		return capsule_ends(cmd);
	cmd->state = CMD_RECEIVING;
	qp->receiving = cmd;
	return CAPSULE_TAKEN;
}

static enum capsule_verdict offload_next(struct hca_qp *hca_qp, const struct packet *p)
{
	struct offload_qp *qp = qp_capsule_state(hca_qp);
	struct offload_command *cmd = qp ? qp->receiving : NULL;

	if (!cmd)
		return CAPSULE_NOT_MINE;
	if (p->payload_len > cmd->offload->rules.max_len - cmd->capsule_len) {
		log_debug("offload: QP 0x%x: capsule longer than %u bytes", qp_num(hca_qp),
			  cmd->offload->rules.max_len);
		return CAPSULE_BAD;
	}
	place_data(cmd, p);
	cmd->capsule_len += p->payload_len;
	if (!(p->flags & OPF_END))
		return CAPSULE_TAKEN;
	qp->receiving = NULL;
	return capsule_ends(cmd);
}

/* ---- QPs that go down ----------------------------------------------------- */

static void raise_qp_event(struct offload_qp *qp, enum ibv_event_type type)
{
	struct hca_context *ctx = qp_context(qp->qp);

	if (ctx->event)
		ctx->event(ctx, type, qp_owner(qp->qp));
}

void offload_qp_check_last(struct offload_qp *qp)
{
	if (!qp->down || !list_empty(&qp->commands))
		return;
	if (qp->qp) {
		if (qp->last_cqe_due)
			raise_qp_event(qp, IBV_EVENT_NVMF_QP_LAST_CQE_REACHED);
		qp->last_cqe_due = false;
		return;
	}
	list_del(&qp->node);
	free(qp);
}

/*
 * ERR: the QP object stays and is told when its last command has ended. RESET, or destroyed: we
 * forget the QP at once; its commands end without it.
 */
static void offload_qp_down(struct hca_qp *hca_qp)
{
	struct offload_qp *qp = qp_capsule_state(hca_qp);
	bool stays = qp_state(hca_qp) == IBV_QPS_ERR;
	struct list_node *pos, *tmp;

	if (!qp)
		return;
	if (qp->down)
		stays = false; /* it was in ERR before: now it is reset or destroyed */
	if (stays && qp->enabled) {
		raise_qp_event(qp, IBV_EVENT_NVMF_QP_ERR);
		qp->last_cqe_due = true;
	}
	if (!stays) {
		qp_set_capsule_state(hca_qp, NULL);
		qp->qp = NULL;
		qp->last_cqe_due = false;
	}
	qp->enabled = false;
	qp->receiving = NULL;
	/* one more user, so that the QP's state is not freed under the loop */
	qp->down = false;
	list_for_each_safe(pos, tmp, &qp->commands)
		command_drop(list_entry(pos, struct offload_command, qp_node));
	qp->down = true;
	if (qp->offload->staging_freed && !list_empty(&qp->offload->wait_staging))
		engine_kick(qp->offload->engine);
	offload_qp_check_last(qp);
}

static void offload_room(struct hca_qp *hca_qp)
{
	struct offload_qp *qp = qp_capsule_state(hca_qp);

	if (qp)
		commands_post_waiting(qp);
}

const struct capsule_ops offload_capsule_ops = {
	.first = offload_first,
	.next = offload_next,
	.qp_down = offload_qp_down,
	.room = offload_room,
};

/* ---- control calls on a QP ------------------------------------------------ */

static struct offload *offload_of(struct hca_qp *qp)
{
	struct hca_srq *srq = qp_srq(qp);

	return srq ? srq->offload : NULL;
}

int offload_qp_modify(struct hca_qp *hca_qp, int flags)
{
	struct offload *off = offload_of(hca_qp);
	struct offload_qp *qp;
	int ret = 0;

	if (!off || flags & ~IBV_QP_NVMF_ATTR_FLAG_ENABLE)
		return EINVAL;
	engine_lock(off->engine);
	if (qp_state(hca_qp) != IBV_QPS_RTS) {
		ret = EINVAL;
		goto out_unlock;
	}
	qp = offload_qp_get(off, hca_qp);
	if (!qp)
		ret = ENOMEM;
	else
		qp->enabled = flags & IBV_QP_NVMF_ATTR_FLAG_ENABLE;
out_unlock:
	engine_unlock(off->engine);
	return ret;
}

int offload_qp_sqhd(struct hca_qp *hca_qp, uint16_t *sqhd)
{
	struct offload *off = offload_of(hca_qp);
	struct offload_qp *qp;

	if (!off)
		return EINVAL;
	engine_lock(off->engine);
	qp = qp_capsule_state(hca_qp);
	*sqhd = qp ? (uint16_t)qp->sqhd : 0;
	engine_unlock(off->engine);
	return 0;
}
