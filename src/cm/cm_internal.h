/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cm_internal.h: what cm_conn.c (life of a connection), cm_recv.c (incoming MADs) and cm_table.c
 * (look-up and timers) share.
 */
#ifndef SOFTHCA_CM_CM_INTERNAL_H
#define SOFTHCA_CM_CM_INTERNAL_H

#include "cm/cm_conn.h"

/* cm_table.c */
struct cm_conn *conn_new(struct cm *cm, const struct cm_path *path);
void conn_free(struct cm_conn *conn);
struct cm_conn *conn_by_id(struct cm *cm, uint32_t local_id);
/* @peer too: a GUID and an ID are whatever a peer says they are */
struct cm_conn *conn_by_remote_id(struct cm *cm, uint64_t guid, uint32_t remote_id,
				  const union ibv_gid *peer);
/* a connection that uses the peer's QP now, timewait not counted; not @except */
struct cm_conn *conn_by_remote_qpn(struct cm *cm, uint64_t guid, uint32_t qpn,
				   const union ibv_gid *peer, const struct cm_conn *except);
void conn_index_remote_id(struct cm_conn *conn);
void conn_index_remote_qpn(struct cm_conn *conn);
void conn_unindex_remote(struct cm_conn *conn);
void conn_set_timer(struct cm_conn *conn, uint64_t deadline_ns);
void conn_stop_timer(struct cm_conn *conn);
/* any state that a new REQ from the same peer QP makes stale */
bool conn_is_live(const struct cm_conn *conn);

/* cm_hold.c */
/* keep a REQ until somebody listens for it. Return: false: no room */
bool hold_req(struct cm *cm, const struct cm_path *path, const struct cm_mad *mad);
/* the deadline of the oldest; 0: none */
uint64_t hold_deadline(const struct cm *cm);
void hold_expire(struct cm *cm);
void hold_drop_all(struct cm *cm);

/* cm_recv.c: @final: an absent listener is a reason to refuse */
void receive_req(struct cm *cm, const struct cm_path *path, const struct cm_mad *mad, bool final);

/* cm_conn.c */
void conn_send(struct cm_conn *conn, const struct cm_mad *mad);
/* send the stored message again */
void conn_resend(struct cm_conn *conn);
/* store, send, and repeat until told otherwise */
void conn_send_reliably(struct cm_conn *conn, const struct cm_mad *mad);
void conn_send_rej(struct cm_conn *conn, uint8_t answers, uint16_t reason, const void *private_data,
		   uint8_t private_len);
void conn_send_drep(struct cm_conn *conn, uint64_t tid);
void conn_start_disconnect(struct cm_conn *conn);
/* may free an ownerless connection; must be followed by nothing that uses it */
void conn_event(struct cm_conn *conn, enum cm_event_type type, int status,
		const uint8_t *private_data, uint8_t private_len);
void conn_enter_idle(struct cm_conn *conn);
void conn_enter_timewait(struct cm_conn *conn);
/* timewait, with the event that says so */
void conn_disconnected(struct cm_conn *conn, int status);
void conn_established(struct cm_conn *conn);
void conn_timeout(struct cm_conn *conn);
uint64_t cm_timeout_ns(uint8_t code);

#endif
