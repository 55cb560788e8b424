// SPDX-License-Identifier: BSD-2-Clause
/*
 * offload.c: the adapter serves reads, writes and flushes of a subsystem: an SRQ of type NVMF on
 * the device, and a queue pair of the subsystem's soft NVMe controller for it to drive. The
 * controller is one for all devices, so that all of them see the same back ends.
 */
#include "target/rdma.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "softhca/softhca.h"
#include "util/bytes.h"
#include "util/log.h"

#define CONTROLLER_QUEUES    16 /* devices that can offload one subsystem */
#define ACTIVITY_CHECK_POLLS 16
#define PAGE		     4096

struct subsystem_offload {
	struct soft_ctrl *ctrl;
	uint16_t next_qid;
	struct offload *offloads[CONTROLLER_QUEUES];
	unsigned int count;
};

static struct subsystem_offload *subsystem_offload(struct subsystem *s)
{
	struct subsystem_offload *so = s->offload;
	int err;

	if (so)
		return so;
	so = calloc(1, sizeof(*so));
	if (!so)
		return NULL;
	so->next_qid = 1;
	so->ctrl = soft_ctrl_create(CONTROLLER_QUEUES);
	if (!so->ctrl)
		goto out_free;
	for (size_t i = 0; i < s->namespace_count; i++) {
		err = soft_ctrl_add_namespace(so->ctrl, s->namespaces[i].nsid,
					      s->namespaces[i].backend);
		if (err) {
			log_warn("namespace %u of %s: %s", s->namespaces[i].nsid, s->nqn,
				 strerror(-err));
			goto out_free;
		}
	}
	s->offload = so;
	return so;

out_free:
	if (so->ctrl)
		soft_ctrl_destroy(so->ctrl);
	free(so);
	return NULL;
}

struct soft_ctrl *subsystem_controller(struct subsystem *s)
{
	struct subsystem_offload *so = s->offload;

	return so ? so->ctrl : NULL;
}

void subsystem_controller_free(struct subsystem *s)
{
	struct subsystem_offload *so = s->offload;

	if (!so)
		return;
	soft_ctrl_destroy(so->ctrl);
	free(so);
	s->offload = NULL;
}

static bool choose_attributes(struct device *device, const struct subsystem *s,
			      struct ibv_nvmf_attrs *attrs)
{
	struct ibv_nvmf_caps caps = { 0 };
	uint64_t staging;

	if (ibv_query_nvmf_caps(device->verbs, &caps) || !caps.offload_type_rc) {
		log_warn("%s has no NVMe-oF offload", ibv_get_device_name(device->verbs->device));
		return false;
	}
	attrs->offload_ops = IBV_NVMF_OP_WRITE | IBV_NVMF_OP_READ;
	if (caps.offload_type_rc & IBV_NVMF_READ_WRITE_FLUSH_OFFLOAD)
		attrs->offload_ops |= IBV_NVMF_OP_FLUSH;
	else if (!(caps.offload_type_rc & IBV_NVMF_READ_WRITE_OFFLOAD))
		return false;
	attrs->max_namespaces = (uint32_t)s->namespace_count;
	attrs->ioccsz = (TARGET_SQE_BYTES + device->transport->target.in_capsule_bytes) / 16;
	attrs->max_io_sz = TARGET_MAX_IO_BYTES;
	attrs->nvme_queue_depth =
		MAX(MIN(OFFLOAD_SQ_ENTRIES, caps.max_nvme_queue_depth), caps.min_nvme_queue_depth);
	staging = MAX(MIN((uint64_t)OFFLOAD_SLOTS * TARGET_MAX_IO_BYTES, caps.max_staging_buf_size),
		      caps.min_staging_buf_size);
	attrs->staging_buf.len = staging / TARGET_MAX_IO_BYTES * TARGET_MAX_IO_BYTES;
	if (caps.max_io_sz < TARGET_MAX_IO_BYTES || caps.max_ioccsz < attrs->ioccsz ||
	    caps.max_srq_namespaces < attrs->max_namespaces || !attrs->staging_buf.len ||
	    caps.max_frontend_nsid < subsystem_highest_nsid(s)) {
		log_warn("%s: more than %s's offload can do", s->nqn,
			 ibv_get_device_name(device->verbs->device));
		return false;
	}
	return true;
}

/* staging, SQ and CQ in one zeroed mapping, each on its own pages */
static bool create_memory(struct offload *offload, struct ibv_nvmf_attrs *attrs)
{
	struct ibv_pd *pd = offload->device->pd;
	size_t sq_len = attrs->nvme_queue_depth * sizeof(struct nvme_sqe);
	size_t cq_len = attrs->nvme_queue_depth * sizeof(struct nvme_cqe);
	size_t sq_room = div_round_up(sq_len, PAGE) * PAGE;
	size_t staging_len = attrs->staging_buf.len;
	uint8_t *memory;

	offload->memory_len = staging_len + sq_room + div_round_up(cq_len, PAGE) * PAGE;
	memory = mmap(NULL, offload->memory_len, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return false;
	offload->memory = memory;
	offload->staging_mr = ibv_reg_mr(pd, memory, staging_len, IBV_ACCESS_LOCAL_WRITE);
	offload->sq_mr = ibv_reg_mr(pd, memory + staging_len, sq_len, IBV_ACCESS_LOCAL_WRITE);
	offload->cq_mr =
		ibv_reg_mr(pd, memory + staging_len + sq_room, cq_len, IBV_ACCESS_LOCAL_WRITE);
	attrs->staging_buf.mr = offload->staging_mr;
	attrs->staging_buf.addr = memory;
	return offload->staging_mr && offload->sq_mr && offload->cq_mr;
}

static void notify_adapter(void *arg)
{
	softhca_nvme_cq_notify(arg);
}

/* what SQEs may name: staging, and the adapter's PRP lists */
static bool allow_memory(struct soft_ctrl *ctrl, const struct offload *offload)
{
	const void *lists;
	size_t len;
	int err;

	err = soft_ctrl_allow(ctrl, offload->staging_mr->addr, offload->staging_mr->length);
	if (!err && !softhca_nvmf_prp_lists(offload->ring->srq, &lists, &len) && len)
		err = soft_ctrl_allow(ctrl, lists, len);
	errno = -err;
	return !err;
}

static bool create_queues(struct offload *offload, const struct ibv_nvmf_attrs *attrs)
{
	struct subsystem_offload *so = subsystem_offload(offload->subsystem);
	struct ibv_nvme_ctrl_attrs ctrl_attrs = { 0 };
	struct ibv_srq *srq = offload->ring->srq;
	uint8_t *doorbells;
	size_t doorbells_len;
	uint16_t qid;

	if (!so || so->count == CONTROLLER_QUEUES)
		return false;
	qid = so->next_qid;
	if (!allow_memory(so->ctrl, offload))
		return false;
	offload->soft_qp = soft_ctrl_create_qp(so->ctrl, qid, attrs->nvme_queue_depth,
					       offload->sq_mr->addr, offload->cq_mr->addr,
					       notify_adapter, srq);
	if (!offload->soft_qp)
		return false;
	doorbells = soft_ctrl_doorbells(so->ctrl, &doorbells_len);
	offload->doorbell_mr = softhca_reg_doorbell_mr(offload->device->pd, doorbells,
						       doorbells_len, soft_ctrl_ring, so->ctrl);
	if (!offload->doorbell_mr)
		return false;
	ctrl_attrs.sq_buf =
		(struct ibv_mr_sg){ offload->sq_mr, offload->sq_mr->addr, offload->sq_mr->length };
	ctrl_attrs.cq_buf =
		(struct ibv_mr_sg){ offload->cq_mr, offload->cq_mr->addr, offload->cq_mr->length };
	ctrl_attrs.sqdb = (struct ibv_mr_sg){ offload->doorbell_mr, doorbells + 8 * qid, 4 };
	ctrl_attrs.cqdb = (struct ibv_mr_sg){ offload->doorbell_mr, doorbells + 8 * qid + 4, 4 };
	offload->ctrl = ibv_srq_create_nvme_ctrl(srq, &ctrl_attrs);
	if (!offload->ctrl)
		return false;
	so->next_qid++;
	so->offloads[so->count++] = offload;
	return true;
}

static bool map_namespaces(struct offload *offload)
{
	const struct subsystem *s = offload->subsystem;
	int err;

	for (size_t i = 0; i < s->namespace_count; i++) {
		const struct namespace *ns = &s->namespaces[i];

		if (!ns->enabled)
			continue;
		err = ibv_map_nvmf_nsid(offload->ctrl, ns->nsid, (uint16_t)ns->info.lba_size,
					ns->nsid);
		if (err) {
			errno = err;
			return false;
		}
	}
	return true;
}

bool offload_create(struct device *device, struct subsystem *subsystem)
{
	struct ibv_nvmf_attrs attrs = { 0 };
	struct offload *offload;

	if (!subsystem->namespace_count)
		return true; /* nothing to serve */
	if (!choose_attributes(device, subsystem, &attrs))
		return false;
	offload = calloc(1, sizeof(*offload));
	if (!offload)
		return false;
	offload->device = device;
	offload->subsystem = subsystem;
	if (!create_memory(offload, &attrs))
		goto out_free;
	offload->ring = ring_create(device, &attrs);
	if (!offload->ring || !create_queues(offload, &attrs) || !map_namespaces(offload))
		goto out_free;
	list_add_tail(&device->offloads, &offload->node);
	return true;

out_free:
	log_warn("no offload for %s: %s", subsystem->nqn, strerror(errno));
	list_init(&offload->node);
	offload_free(offload);
	return false;
}

static void forget(struct offload *offload)
{
	struct subsystem_offload *so = offload->subsystem->offload;

	for (unsigned int i = 0; so && i < so->count; i++)
		if (so->offloads[i] == offload)
			so->offloads[i] = so->offloads[--so->count];
}

void offload_free(struct offload *offload)
{
	const struct subsystem *s = offload->subsystem;
	struct soft_ctrl *ctrl = subsystem_controller(offload->subsystem);
	int err;

	/* unmapping waits for commands in flight: from here on nobody polls their back ends */
	if (ctrl)
		soft_ctrl_start_thread(ctrl);
	if (offload->ctrl) {
		for (size_t i = 0; i < s->namespace_count; i++)
			ibv_unmap_nvmf_nsid(offload->ctrl, s->namespaces[i].nsid);
		err = ibv_srq_remove_nvme_ctrl(offload->ring->srq, offload->ctrl);
		if (err)
			log_warn("%s: the offload's controller stays: %s", s->nqn, strerror(err));
	}
	forget(offload);
	if (offload->soft_qp)
		soft_ctrl_delete_qp(offload->soft_qp);
	ring_free(offload->ring);
	if (offload->doorbell_mr)
		ibv_dereg_mr(offload->doorbell_mr);
	if (offload->cq_mr)
		ibv_dereg_mr(offload->cq_mr);
	if (offload->sq_mr)
		ibv_dereg_mr(offload->sq_mr);
	if (offload->staging_mr)
		ibv_dereg_mr(offload->staging_mr);
	if (offload->memory)
		munmap(offload->memory, offload->memory_len);
	list_del(&offload->node);
	free(offload);
}

void offload_switch_namespace(const struct subsystem *s, const struct namespace *ns)
{
	struct subsystem_offload *so = s->offload;
	int err;

	if (!so)
		return;
	/* this thread, which polls the back ends, is going to wait for them */
	soft_ctrl_start_thread(so->ctrl);
	for (unsigned int i = 0; i < so->count; i++) {
		struct ibv_nvme_ctrl *ctrl = so->offloads[i]->ctrl;

		if (ns->enabled)
			err = ibv_map_nvmf_nsid(ctrl, ns->nsid, (uint16_t)ns->info.lba_size,
						ns->nsid);
		else
			err = ibv_unmap_nvmf_nsid(ctrl, ns->nsid);
		if (err)
			log_warn("namespace %u of %s: %s", ns->nsid, s->nqn, strerror(err));
	}
}

struct offload *offload_find(struct device *device, const struct subsystem *subsystem)
{
	struct list_node *pos;

	list_for_each(pos, &device->offloads) {
		struct offload *offload = list_entry(pos, struct offload, node);

		if (offload->subsystem == subsystem)
			return offload;
	}
	return NULL;
}

/* commands that the adapter serves by itself show in its counters only */
static bool adapter_active(struct offload *offload)
{
	struct softhca_nvmf_srq_stats stats;
	uint64_t activity;
	bool active;

	if (++offload->polls % ACTIVITY_CHECK_POLLS ||
	    softhca_query_nvmf_srq(offload->ring->srq, &stats))
		return false;
	activity = stats.offloaded_read + stats.offloaded_write + stats.offloaded_flush;
	active = activity != offload->seen_activity;
	offload->seen_activity = activity;
	return active;
}

bool offload_poll(struct offload *offload)
{
	bool busy = soft_ctrl_poll(subsystem_controller(offload->subsystem));

	return adapter_active(offload) || busy;
}

void offload_totals(const struct subsystem *s, struct io_totals *totals)
{
	const struct subsystem_offload *so = s->offload;
	struct ibv_nvmf_ns_stats stats;

	for (unsigned int i = 0; so && i < so->count; i++) {
		for (size_t j = 0; j < s->namespace_count; j++) {
			const struct namespace *ns = &s->namespaces[j];

			if (ibv_query_nvmf_ns(so->offloads[i]->ctrl, ns->nsid, &stats))
				continue;
			totals->read_commands += stats.num_read_cmd;
			totals->read_bytes += stats.num_read_blocks * ns->info.lba_size;
			totals->write_commands += stats.num_write_cmd;
			totals->write_bytes += stats.num_write_blocks * ns->info.lba_size;
		}
	}
}
