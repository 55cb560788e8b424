// SPDX-License-Identifier: BSD-2-Clause
/*
 * cm_table.c: finding a connection by what a MAD says, and the timers. Communication IDs carry
 * the process's slot in their top byte (the port daemon routes by it) and stay reserved through
 * timewait, because a connection leaves the table only when it is freed.
 */
#include "cm/cm_internal.h"

#include <stdlib.h>
#include <string.h>

#define LOCAL_ID_MASK 0xffffffU

static unsigned int bucket_of(uint64_t a, uint32_t b)
{
	uint64_t h = (a ^ b) * 0x9e3779b97f4a7c15ULL;

	h ^= (uint64_t)b << 17;
	h *= 0x9e3779b97f4a7c15ULL;
	return (unsigned int)(h >> 54) % CM_BUCKETS;
}

void cm_init(struct cm *cm, const struct cm_ops *ops, void *arg, uint8_t slot, uint64_t seed)
{
	memset(cm, 0, sizeof(*cm));
	cm->ops = ops;
	cm->arg = arg;
	cm->slot = slot;
	cm->next_id = (uint32_t)seed & LOCAL_ID_MASK;
	cm->tid_high = (uint32_t)(seed >> 32);
	list_init(&cm->timers);
	list_init(&cm->held);
	for (int i = 0; i < CM_BUCKETS; i++) {
		list_init(&cm->by_id[i]);
		list_init(&cm->by_remote_id[i]);
		list_init(&cm->by_remote_qpn[i]);
	}
}

void cm_fini(struct cm *cm)
{
	hold_drop_all(cm);
	for (int i = 0; i < CM_BUCKETS; i++)
		while (!list_empty(&cm->by_id[i]))
			conn_free(list_entry(cm->by_id[i].next, struct cm_conn, id_node));
}

struct cm_conn *conn_by_id(struct cm *cm, uint32_t local_id)
{
	struct list_node *head = &cm->by_id[bucket_of(0, local_id)], *pos;

	list_for_each(pos, head) {
		struct cm_conn *conn = list_entry(pos, struct cm_conn, id_node);

		if (conn->local_id == local_id)
			return conn;
	}
	return NULL;
}

struct cm_conn *conn_by_remote_id(struct cm *cm, uint64_t guid, uint32_t remote_id,
				  const union ibv_gid *peer)
{
	struct list_node *head = &cm->by_remote_id[bucket_of(guid, remote_id)], *pos;

	list_for_each(pos, head) {
		struct cm_conn *conn = list_entry(pos, struct cm_conn, remote_id_node);

		if (conn->remote_id == remote_id && conn->remote_guid == guid &&
		    gid_equal(&conn->path.dgid, peer))
			return conn;
	}
	return NULL;
}

bool conn_is_live(const struct cm_conn *conn)
{
	return conn->state == CM_REQ_RCVD || conn->state == CM_REP_SENT ||
	       conn->state == CM_REP_RCVD || conn->state == CM_ESTABLISHED;
}

struct cm_conn *conn_by_remote_qpn(struct cm *cm, uint64_t guid, uint32_t qpn,
				   const union ibv_gid *peer, const struct cm_conn *except)
{
	struct list_node *head = &cm->by_remote_qpn[bucket_of(guid, qpn)], *pos;

	list_for_each(pos, head) {
		struct cm_conn *conn = list_entry(pos, struct cm_conn, remote_qpn_node);

		if (conn != except && conn->remote_qpn == qpn && conn->remote_guid == guid &&
		    gid_equal(&conn->path.dgid, peer) && conn_is_live(conn))
			return conn;
	}
	return NULL;
}

/* 0 when all 2^24 are in use */
static uint32_t new_local_id(struct cm *cm)
{
	for (uint32_t i = 0; i <= LOCAL_ID_MASK; i++) {
		uint32_t id = (uint32_t)cm->slot << 24 | (cm->next_id++ & LOCAL_ID_MASK);

		if (id && !conn_by_id(cm, id))
			return id;
	}
	return 0;
}

struct cm_conn *conn_new(struct cm *cm, const struct cm_path *path)
{
	struct cm_conn *conn = calloc(1, sizeof(*conn));

	if (!conn)
		return NULL;
	conn->local_id = new_local_id(cm);
	if (!conn->local_id) {
		free(conn);
		return NULL;
	}
	conn->cm = cm;
	conn->path = *path;
	list_add_tail(&cm->by_id[bucket_of(0, conn->local_id)], &conn->id_node);
	list_init(&conn->remote_id_node);
	list_init(&conn->remote_qpn_node);
	list_init(&conn->timer_node);
	cm->conn_count++;
	return conn;
}

void conn_free(struct cm_conn *conn)
{
	conn->cm->conn_count--;
	list_del(&conn->id_node);
	list_del(&conn->timer_node);
	conn_unindex_remote(conn);
	free(conn);
}

void conn_index_remote_id(struct cm_conn *conn)
{
	list_del(&conn->remote_id_node);
	list_add_tail(&conn->cm->by_remote_id[bucket_of(conn->remote_guid, conn->remote_id)],
		      &conn->remote_id_node);
}

void conn_index_remote_qpn(struct cm_conn *conn)
{
	list_del(&conn->remote_qpn_node);
	list_add_tail(&conn->cm->by_remote_qpn[bucket_of(conn->remote_guid, conn->remote_qpn)],
		      &conn->remote_qpn_node);
}

void conn_unindex_remote(struct cm_conn *conn)
{
	list_del(&conn->remote_id_node);
	list_del(&conn->remote_qpn_node);
}

void conn_stop_timer(struct cm_conn *conn)
{
	list_del(&conn->timer_node);
	conn->deadline_ns = 0;
}

void conn_set_timer(struct cm_conn *conn, uint64_t deadline_ns)
{
	struct list_node *pos;

	list_del(&conn->timer_node);
	conn->deadline_ns = deadline_ns;
	/* from the end: most deadlines are later than those already there */
	for (pos = conn->cm->timers.prev; pos != &conn->cm->timers; pos = pos->prev)
		if (list_entry(pos, struct cm_conn, timer_node)->deadline_ns <= deadline_ns)
			break;
	list_add(pos, &conn->timer_node);
}

uint64_t cm_next_deadline(const struct cm *cm)
{
	uint64_t held = hold_deadline(cm), timer;

	if (list_empty(&cm->timers))
		return held;
	timer = list_entry(cm->timers.next, struct cm_conn, timer_node)->deadline_ns;
	return held && held < timer ? held : timer;
}

void cm_run_timers(struct cm *cm, uint64_t now_ns)
{
	cm->now_ns = now_ns;
	hold_expire(cm);
	while (!list_empty(&cm->timers)) {
		struct cm_conn *conn = list_entry(cm->timers.next, struct cm_conn, timer_node);

		if (conn->deadline_ns > now_ns)
			return;
		conn_stop_timer(conn);
		conn_timeout(conn);
	}
}
