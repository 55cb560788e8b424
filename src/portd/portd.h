/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * portd.h: the port daemon as its clients see it: it owns UDP 4791 of this network namespace,
 * gives each process a slot (a QPN range and the socket that receives for it) and relays QP1
 * management datagrams. The client starts it on first use; it leaves with its last client.
 * When it dies, the client's own thread finds or starts the next one and hands over what it kept.
 *
 * Environment: SOFTHCA_PORTD, the `softhca` program to run as the daemon (spawn.h says where it is
 * looked for otherwise); SOFTHCA_PORTD_LOG, a file for the messages of a daemon started on demand;
 * SOFTHCA_PORTD_UID, a user besides oneself and root whose daemon is trusted. Read by the daemon:
 * SOFTHCA_PORTD_TIMEWAIT_MS, how long a dead client's slot rests (4000); SOFTHCA_PORTD_GRACE_MS,
 * how long it stays after its last client (1000).
 */
#ifndef SOFTHCA_PORTD_PORTD_H
#define SOFTHCA_PORTD_PORTD_H

#include <stdint.h>
#include <infiniband/verbs.h>

#define MAD_LEN 256

/* a management datagram with the addresses of its packet */
struct portd_mad {
	union ibv_gid sgid, dgid; /* of the packet: dgid is ours on receive */
	uint32_t ifindex;	  /* for link-local addresses; else 0 */
	uint32_t src_qpn;
	uint8_t data[MAD_LEN];
};

struct portd_client;

/**
 * portd_connect() - get a slot for this process.
 * @on_mad: called from the client's thread for each MAD that is for this process.
 * Return: 0 or a negative errno; a message that names the remedy was logged (e.g. rdma_rxe is
 * loaded and owns port 4791 here; another user's daemon refuses).
 */
int portd_connect(struct portd_client **client,
		  void (*on_mad)(void *arg, const struct portd_mad *mad), void *arg);
void portd_disconnect(struct portd_client *client);

/* slot number, 1..255: top byte of this process's QPNs and of its CM communication IDs */
uint8_t portd_slot(const struct portd_client *client);
/* duplicates of the slot's sockets for link_udp_create(); -1 where the family is missing */
void portd_sockets(const struct portd_client *client, int *fd4, int *fd6);

/*
 * The calls below take NULL (portd_default() in a forked child) as "no daemon": -ENODEV.
 */

/**
 * portd_listen() - receive REQ and SIDR_REQ for a service ID.
 * @addr: only those sent to this GID; all zero = any address; ::ffff:0.0.0.0 = any IPv4 address.
 * Return: 0 or a negative errno: -EADDRINUSE (this or another process has it, or an address that
 * covers it), -ENOSPC (PORTD_CLIENT_LISTENS), -ETIMEDOUT (no daemon for 5 s).
 */
int portd_listen(struct portd_client *client, uint64_t service_id, const union ibv_gid *addr);
void portd_unlisten(struct portd_client *client, uint64_t service_id, const union ibv_gid *addr);

/**
 * portd_send_mad() - send a MAD to QP1 at @mad->dgid from @mad->sgid. Any thread.
 * Return: 0 or a negative errno. Datagram semantics: success does not mean arrival.
 */
int portd_send_mad(struct portd_client *client, const struct portd_mad *mad);

/* the process's client, made together with its default engine (engine_default.c) */
struct portd_client *portd_default(void);
/* where its MADs go; set by the CM before use. NULL = drop them */
void portd_default_set_handler(void (*on_mad)(void *arg, const struct portd_mad *mad), void *arg);

/**
 * portd_main() - the daemon. Runs until its last client has left (and @stay is 0) or SIGTERM.
 * Return: exit status.
 */
int portd_main(int stay);

#endif
