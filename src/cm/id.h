/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * id.h: rdma_cm_ids, their events and the process-wide CM behind them.
 *
 * One lock, cm_lock(), guards everything below that is not the application's alone: the protocol
 * (cm_conn.h), event queues, the lists of ids. It is never held across a call to the port daemon
 * that waits for an answer, nor while waiting for the application. It may be held while a QP is
 * modified (the engine's lock nests inside it), so nothing that runs under an engine's lock may
 * take it.
 */
#ifndef SOFTHCA_CM_ID_H
#define SOFTHCA_CM_ID_H

#include <stdbool.h>
#include <netinet/in.h>

#include "cm/cm_conn.h"
#include "cm/rdma_api.h"
#include "util/list.h"

struct cm_channel {
	struct rdma_event_channel channel; /* an eventfd: not 0 exactly while events are queued */
	struct list_node events;
};

enum id_state {
	ID_IDLE,
	ID_BOUND,
	ID_ADDR_RESOLVED,
	ID_ROUTE_RESOLVED,
	ID_LISTEN,
	ID_CONNECT, /* has had a connection: cm_id.conn says the rest */
};

struct cm_id {
	struct rdma_cm_id id; /* what the application sees; first */
	enum id_state state;
	bool sync; /* without a channel of the application: calls wait for their event */
	struct list_node node; /* all ids */
	struct list_node listen_node;

	/* events handed out and not yet acknowledged */
	unsigned int unacked;

	struct ibv_device *device;
	union ibv_gid sgid;
	uint8_t tos, ack_timeout;
	bool reuse_addr, v6only, ack_timeout_set;

	/* the service ID is registered with the port daemon */
	bool registered;
	union ibv_gid registered_gid;
	uint64_t registered_service;

	/* listening */
	unsigned int backlog, pending; /* requests not yet taken by the application */
	struct ibv_qp_init_attr *ep_attr;

	/* a request: the listener until the application took the event */
	struct cm_id *listener;

	struct cm_conn *conn;
	bool establish_pending; /* REP received, no QP of ours: waits for rdma_establish() */
	bool qp_destroyed;	/* id.qp was freed by the application itself */
};

static inline struct cm_id *to_cm_id(struct rdma_cm_id *id)
{
	return container_of(id, struct cm_id, id);
}

/* 0 or -1 and errno = err (positive) */
int cm_error(int err);

/* ---- cm.c ---- */
void cm_lock(void);
void cm_unlock(void);
/* wait on the condition that cm_wake_waiters() signals; lock held */
void cm_wait(void);
void cm_wake_waiters(void);
/* the process's CM, started on first use (engine, port daemon, thread).
 * Return: 0 or a negative errno. Not under the lock */
int cm_start(void);
/* after cm_start(), lock held: */
struct cm *cm_instance(void);
/* timers may have changed: let the CM's thread look. Any thread, lock held or not */
void cm_kick(void);
struct list_node *cm_ids(void);
uint32_t cm_random(void);
/* struct cm_ops.send */
void cm_send_mad(void *arg, const struct cm_path *path, const uint8_t data[CM_MAD_LEN]);

/* ---- event.c; lock held ---- */
struct cm_channel *channel_new(void);
void channel_free(struct cm_channel *channel);
/*
 * event_post() - queue an event. @conn: fill in the parameters of CONNECT_REQUEST and
 * ESTABLISHED, or NULL. @listener: CONNECT_REQUEST only.
 */
int event_post(struct cm_id *id, struct cm_id *listener, enum rdma_cm_event_type type, int status,
	       const struct cm_conn *conn, const void *private_data, uint8_t private_len);
/* drop queued events of @id; requests that wait on a listener are refused */
void event_purge(struct cm_id *id);
/* not under the lock: synchronous ids wait for the event of the call just made. Return: 0 or -1 */
int event_complete(struct cm_id *id);

/* ---- id.c ---- */
struct cm_id *id_new(struct rdma_event_channel *channel, void *context, enum rdma_port_space ps,
		     enum ibv_qp_type qp_type);
/* give a request its own channel (sync) or leave it on its listener's. Lock held */
int id_make_sync(struct cm_id *id);
/* no more requests, no more connection; the id itself stays. Lock held */
void id_abandon(struct cm_id *id);
/* last step of destruction. Lock held */
void id_free(struct cm_id *id);

/* ---- addr.c ---- */
union ibv_gid gid_from_sockaddr(const struct sockaddr *addr);
void sockaddr_from_gid(struct sockaddr_storage *addr, const union ibv_gid *gid, uint16_t port,
		       uint32_t scope);
uint16_t sockaddr_port(const struct sockaddr *addr);
bool sockaddr_is_any(const struct sockaddr *addr);
socklen_t sockaddr_len(const struct sockaddr *addr);
uint32_t sockaddr_scope(const struct sockaddr *addr);
/* bind the id to the device that has @gid. Return: 0 or errno. Not under the lock */
int id_attach_device(struct cm_id *id, const union ibv_gid *gid, uint32_t ifindex);
/* path record for the addresses the id has */
int id_fill_route(struct cm_id *id);
/* register the service ID of an id that has its address, choose its port if it is 0.
 * Return: 0 or errno; not under the lock */
int id_register(struct cm_id *id);
void id_unregister(struct cm_id *id);

/* ---- service.c; not under the lock ---- */
/* receive REQs for a service ID at @gid (zero: any address, ::ffff:0.0.0.0: any IPv4 address) */
int service_acquire(uint64_t service_id, const union ibv_gid *gid, bool v6only);
/* @linger: hold it for CM_HOLD_NS more (until service_expire()) */
void service_release(uint64_t service_id, const union ibv_gid *gid, bool linger);
/* this process holds the service ID at @gid, listening or not. Under cm_lock() or not */
bool service_is_held(uint64_t service_id, const union ibv_gid *gid);
/* Return: when to call it again; 0 = no need */
uint64_t service_expire(uint64_t now_ns);

/* the locks held over a fork(); a child forgets what belongs to the parent */
void service_before_fork(void);
void service_after_fork(bool child);
void addr_before_fork(void);
void addr_after_fork(bool child);
void connect_after_fork(void);

/* ---- qp.c ---- */
/* INIT to RTR to RTS with what the connection agreed on; lock held. Return: 0 or errno */
int id_qp_ready(struct cm_id *id);
/* to ERR; nothing without a QP. Lock held */
void id_qp_error(struct cm_id *id);

/* ---- connect.c ---- */
extern const struct cm_ops cm_rdma_ops;

#endif
