// SPDX-License-Identifier: BSD-2-Clause
/*
 * cm_hold.c: REQs that came a moment too early. Programs that stop listening and listen again on
 * the same port (perftest does, between its two connections) expect the peer to be slower than
 * they are. A REQ for a service ID that somebody holds without listening waits here for a short
 * while instead of being refused at once.
 */
#include <stdlib.h>

#include "cm/cm_internal.h"
#include "util/counters.h"

struct held_req {
	struct list_node node;
	struct cm_path path;
	struct cm_mad mad;
	uint64_t deadline_ns;
};

static bool is_held(const struct cm *cm, const struct cm_path *path, const struct cm_mad *mad)
{
	struct list_node *pos;

	list_for_each(pos, &cm->held) {
		struct held_req *req = list_entry(pos, struct held_req, node);

		if (req->mad.req.local_id == mad->req.local_id &&
		    req->mad.req.ca_guid == mad->req.ca_guid &&
		    gid_equal(&req->path.dgid, &path->dgid))
			return true;
	}
	return false;
}

bool hold_req(struct cm *cm, const struct cm_path *path, const struct cm_mad *mad)
{
	struct held_req *req;

	if (is_held(cm, path, mad)) {
		counter_inc(CNT_CM_DUPLICATE);
		return true;
	}
	if (cm->held_count >= CM_HELD_MAX)
		return false;
	req = malloc(sizeof(*req));
	if (!req)
		return false;
	req->path = *path;
	req->mad = *mad;
	req->deadline_ns = cm->now_ns + CM_HOLD_NS;
	list_add_tail(&cm->held, &req->node);
	cm->held_count++;
	return true;
}

static void release(struct cm *cm, struct held_req *req)
{
	list_del(&req->node);
	cm->held_count--;
	receive_req(cm, &req->path, &req->mad, true);
	free(req);
}

void cm_listening(struct cm *cm, uint64_t service_id, uint64_t now_ns)
{
	struct list_node *pos, *tmp;

	cm->now_ns = now_ns;
	list_for_each_safe(pos, tmp, &cm->held) {
		struct held_req *req = list_entry(pos, struct held_req, node);

		if (req->mad.req.service_id == service_id)
			release(cm, req);
	}
}

uint64_t hold_deadline(const struct cm *cm)
{
	if (list_empty(&cm->held))
		return 0;
	return list_entry(cm->held.next, struct held_req, node)->deadline_ns;
}

void hold_expire(struct cm *cm)
{
	while (!list_empty(&cm->held)) {
		struct held_req *req = list_entry(cm->held.next, struct held_req, node);

		if (req->deadline_ns > cm->now_ns)
			return;
		release(cm, req);
	}
}

void hold_drop_all(struct cm *cm)
{
	struct list_node *node;

	while ((node = list_pop(&cm->held)))
		free(list_entry(node, struct held_req, node));
	cm->held_count = 0;
}
