// SPDX-License-Identifier: BSD-2-Clause
/*
 * controller.c: dynamic controllers: a host's Connect on an admin queue makes one, the end of that
 * queue, of the keep-alive time or of the target takes it away.
 */
#include "target/model.h"

#include <stdlib.h>
#include <string.h>

#include "util/bytes.h"
#include "util/clock.h"
#include "util/log.h"

#define KATO_SLACK_NS	  NSEC_PER_SEC /* a host sends at KATO/2; the network may take its time */
#define KATO_CHECK_NS	  (100 * NSEC_PER_MSEC)
#define AEN_CONFIG_EVENTS 0xffffff00U /* feature 0x0b bits that have the places of OAES */

struct controller *controller_find(struct target *target, uint16_t cntlid)
{
	struct list_node *pos;

	list_for_each(pos, &target->controllers) {
		struct controller *ctrl = list_entry(pos, struct controller, node);

		if (ctrl->cntlid == cntlid)
			return ctrl;
	}
	return NULL;
}

/* ids are handed out in turn, so that a new controller is not mistaken for a recent one */
static bool allocate_cntlid(struct target *target, uint16_t *cntlid)
{
	for (unsigned int i = NVMF_CNTLID_MIN; i <= NVMF_CNTLID_MAX; i++) {
		*cntlid = target->next_cntlid;
		target->next_cntlid = *cntlid == NVMF_CNTLID_MAX ? NVMF_CNTLID_MIN
								 : (uint16_t)(*cntlid + 1);
		if (!controller_find(target, *cntlid))
			return true;
	}
	return false;
}

struct controller *controller_create(struct queue *admin, struct subsystem *subsystem,
				     const struct nvmf_connect_data *data, uint32_t kato_ms)
{
	struct controller *ctrl = calloc(1, sizeof(*ctrl));

	if (!ctrl || !allocate_cntlid(admin->target, &ctrl->cntlid)) {
		free(ctrl);
		return NULL;
	}
	ctrl->target = admin->target;
	ctrl->subsystem = subsystem;
	memcpy(ctrl->hostnqn, data->hostnqn, sizeof(ctrl->hostnqn));
	memcpy(ctrl->hostid, data->hostid, sizeof(ctrl->hostid));
	ctrl->kato_ms = kato_ms;
	ctrl->created_ns = ctrl->last_seen_ns = clock_ns();
	ctrl->admin = admin;
	ctrl->temperature_threshold = 0x157; /* 343 K */
	list_init(&ctrl->aers);
	list_add_tail(&admin->target->controllers, &ctrl->node);
	log_info("controller %u for %s on %s", ctrl->cntlid, ctrl->hostnqn, subsystem->nqn);
	return ctrl;
}

static void detach(struct queue *queue)
{
	queue->ctrl = NULL;
	queue->ops->shutdown(queue);
}

static void close_io_queues(struct controller *ctrl)
{
	for (unsigned int i = 1; i < ARRAY_SIZE(ctrl->io); i++) {
		struct queue *queue = ctrl->io[i];

		ctrl->io[i] = NULL;
		if (queue)
			detach(queue);
	}
}

/* the admin queue is gone: held AERs are not answered, their commands are freed with it */
static void drop_aers(struct controller *ctrl)
{
	while (list_pop(&ctrl->aers))
		ctrl->aer_count--;
}

/* the admin queue lives on: its places must come free */
static void abort_aers(struct controller *ctrl)
{
	struct list_node *node;

	while ((node = list_pop(&ctrl->aers))) {
		struct command *cmd = list_entry(node, struct command, node);

		ctrl->aer_count--;
		cmd->status = NVME_SC_ABORT_REQUESTED;
		cmd->queue->ops->complete(cmd->queue, cmd);
	}
}

void controller_destroy(struct controller *ctrl)
{
	log_info("controller %u is gone", ctrl->cntlid);
	list_del(&ctrl->node);
	drop_aers(ctrl);
	close_io_queues(ctrl);
	if (ctrl->admin)
		detach(ctrl->admin);
	free(ctrl);
}

void queue_closed(struct queue *queue)
{
	struct controller *ctrl = queue->ctrl;

	if (!ctrl)
		return;
	queue->ctrl = NULL;
	if (ctrl->admin == queue) {
		ctrl->admin = NULL;
		controller_destroy(ctrl);
	} else if (queue->qid && ctrl->io[queue->qid] == queue) {
		ctrl->io[queue->qid] = NULL;
	}
}

static bool cc_acceptable(const struct controller *ctrl, uint32_t cc)
{
	if (NVME_CC_MPS(cc) || NVME_CC_AMS(cc) || NVME_CC_CSS(cc))
		return false;
	if (ctrl->subsystem->discovery)
		return true; /* no I/O queues: the entry sizes may be 0 */
	return NVME_CC_IOSQES(cc) == 6 && NVME_CC_IOCQES(cc) == 4;
}

void controller_set_cc(struct controller *ctrl, uint32_t cc)
{
	uint32_t old = ctrl->cc;

	ctrl->cc = cc;
	if ((cc & NVME_CC_EN) && !(old & NVME_CC_EN)) {
		ctrl->csts = cc_acceptable(ctrl, cc) ? NVME_CSTS_RDY : NVME_CSTS_CFS;
		if (ctrl->csts & NVME_CSTS_CFS)
			log_debug("controller %u: CC 0x%08x cannot be served: CFS", ctrl->cntlid,
				  cc);
	} else if (!(cc & NVME_CC_EN) && (old & NVME_CC_EN)) {
		ctrl->csts = 0;
		ctrl->granted_queues = 0;
		ctrl->event_count = 0;
		ctrl->aen_config = ctrl->aen_masked = 0;
		abort_aers(ctrl);
		close_io_queues(ctrl);
	}
	if (NVME_CC_SHN(cc) && !NVME_CC_SHN(old)) {
		subsystem_flush(ctrl->subsystem);
		ctrl->csts = (ctrl->csts & ~NVME_CSTS_SHST_MASK) | NVME_CSTS_SHST_COMPLETE;
	} else if (!NVME_CC_SHN(cc) && NVME_CC_SHN(old)) {
		ctrl->csts &= ~NVME_CSTS_SHST_MASK;
	}
}

/* answers held AERs with waiting events */
static void send_events(struct controller *ctrl)
{
	while (ctrl->event_count && !list_empty(&ctrl->aers)) {
		struct command *cmd = list_entry(list_pop(&ctrl->aers), struct command, node);

		ctrl->aer_count--;
		cmd->status = NVME_SC_SUCCESS;
		cmd->dw0 = ctrl->events[0];
		ctrl->event_count--;
		memmove(ctrl->events, ctrl->events + 1, ctrl->event_count * sizeof(*ctrl->events));
		cmd->queue->ops->complete(cmd->queue, cmd);
	}
}

void controller_event(struct controller *ctrl, uint32_t oaes, uint8_t info, uint8_t log_page)
{
	if (!(ctrl->aen_config & AEN_CONFIG_EVENTS & oaes) || (ctrl->aen_masked & oaes))
		return;
	if (ctrl->event_count == TARGET_EVENTS_MAX)
		return;
	ctrl->aen_masked |= oaes;
	ctrl->events[ctrl->event_count++] = NVME_AEN_NOTICE | (uint32_t)info << 8 |
					    (uint32_t)log_page << 16;
	send_events(ctrl);
}

void controller_event_read(struct controller *ctrl, uint32_t oaes)
{
	ctrl->aen_masked &= ~oaes;
}

bool controller_hold_aer(struct controller *ctrl, struct command *cmd)
{
	if (ctrl->aer_count == TARGET_AER_MAX) {
		cmd->status = NVME_SC_AER_LIMIT | DNR;
		return false;
	}
	list_add_tail(&ctrl->aers, &cmd->node);
	ctrl->aer_count++;
	send_events(ctrl);
	return true;
}

bool controller_abort_aer(struct controller *ctrl, uint16_t cid)
{
	struct list_node *pos;

	list_for_each(pos, &ctrl->aers) {
		struct command *cmd = list_entry(pos, struct command, node);

		if (le16toh(cmd->sqe.cid) != cid)
			continue;
		list_del(&cmd->node);
		ctrl->aer_count--;
		cmd->status = NVME_SC_ABORT_REQUESTED;
		cmd->queue->ops->complete(cmd->queue, cmd);
		return true;
	}
	return false;
}

void controller_namespace_changed(struct controller *ctrl, uint32_t nsid)
{
	unsigned int i = 0;

	while (i < MIN(ctrl->changed_ns_count, TARGET_CHANGED_NS_MAX) &&
	       ctrl->changed_ns[i] != nsid)
		i++;
	if (i == ctrl->changed_ns_count) {
		if (i < TARGET_CHANGED_NS_MAX)
			ctrl->changed_ns[i] = nsid;
		ctrl->changed_ns_count++;
	}
	controller_event(ctrl, NVME_OAES_NS_CHANGED, NVME_AEN_INFO_NS_CHANGED, NVME_LOG_CHANGED_NS);
}

void target_check_kato(struct target *target, uint64_t now_ns)
{
	struct list_node *pos, *tmp;

	if (now_ns < target->next_kato_check_ns)
		return;
	target->next_kato_check_ns = now_ns + KATO_CHECK_NS;
	list_for_each_safe(pos, tmp, &target->controllers) {
		struct controller *ctrl = list_entry(pos, struct controller, node);
		uint64_t limit_ns = (uint64_t)ctrl->kato_ms * NSEC_PER_MSEC + KATO_SLACK_NS;

		if (!ctrl->kato_ms || now_ns < ctrl->last_seen_ns + limit_ns)
			continue;
		log_warn("controller %u: nothing heard of %s for %u ms (KATO): closed",
			 ctrl->cntlid, ctrl->hostnqn, ctrl->kato_ms);
		ctrl->csts |= NVME_CSTS_CFS;
		controller_destroy(ctrl);
	}
}
