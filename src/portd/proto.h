/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * proto.h: what the port daemon and its clients say to each other. One fixed-size message per
 * datagram over a SOCK_SEQPACKET Unix socket whose abstract name exists once per network
 * namespace; sockets travel beside it (SCM_RIGHTS).
 *
 *   client                              daemon
 *   HELLO                           ->
 *                                   <-  WELCOME (slot, its sockets) or WELCOME (error, text)
 *                                   <-  GROUP (all sockets; only to clients of the daemon's user)
 *   LISTEN seq                      ->
 *                                   <-  RESULT seq
 *   UNLISTEN                        ->
 *                                   <-  MAD
 *
 * A client that outlived a daemon begins with HELLO (MSG_TAKEOVER, its slot and the slot's
 * sockets), followed by GROUP when it belongs to the new daemon's user, and gets WELCOME.
 */
#ifndef SOFTHCA_PORTD_PROTO_H
#define SOFTHCA_PORTD_PROTO_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "portd/portd.h"

#define PORTD_SLOTS	     64 /* sockets of the group of each family; slot 0 is the daemon's */
#define PORTD_NAME	     "softhca-portd" /* abstract: after a zero byte */
#define PORTD_MAGIC	     0x53480001U     /* "SH" and the version of this file */
#define PORTD_MSG_MAX_FDS    (2 * PORTD_SLOTS)
#define PORTD_CLIENT_LISTENS 512  /* of one client */
#define PORTD_LISTENS	     4096 /* of all */
#define PORTD_FD_MIN	     200  /* descriptors of ours stay out of the application's way */

/* every socket of a group is present */
#define PORTD_ALL_SLOTS (~0ULL >> (64 - PORTD_SLOTS))

enum portd_msg_type {
	MSG_HELLO = 1,
	MSG_GROUP,
	MSG_WELCOME,
	MSG_LISTEN,
	MSG_UNLISTEN,
	MSG_RESULT,
	MSG_MAD,
};

#define PORTD_TAKEOVER (1U << 0) /* HELLO: the client has a slot already */
#define PORTD_AGAIN    (1U << 1) /* LISTEN: a former daemon had granted it */

struct portd_msg {
	uint32_t magic;
	uint16_t type;
	uint16_t slot;
	uint32_t seq;	/* LISTEN and its RESULT */
	int32_t result; /* WELCOME, RESULT: 0 or a negative errno */
	uint32_t flags;
	uint32_t reserved;
	/* the sockets that travel with it: IPv4's by slot, then IPv6's by slot */
	uint64_t slots4, slots6;
	union {
		struct {
			uint64_t service_id;
			union ibv_gid gid;
		} listen;
		struct portd_mad mad;
		char text[256]; /* WELCOME with an error */
	};
};

/* sockets of one slot or of all, by family; -1 = none */
struct portd_fds {
	int fd[2][PORTD_SLOTS]; /* [0] IPv4, [1] IPv6 */
};

void portd_fds_init(struct portd_fds *fds);
void portd_fds_close(struct portd_fds *fds);

/**
 * portd_msg_send() - send a message with the sockets @fds (NULL = none) of the slots in @mask.
 * Sets magic, slots4, slots6. Never blocks longer than the socket's SO_SNDTIMEO; @flags as for
 * sendmsg(). Return: 0 or a negative errno.
 */
int portd_msg_send(int sock, struct portd_msg *msg, const struct portd_fds *fds, uint64_t mask,
		   int flags);

/**
 * portd_msg_recv() - receive a message and the sockets that come with it.
 * @fds: out; descriptors that are moved up (PORTD_FD_MIN) and closed on exec. NULL: closes what
 * comes. When not all arrived (descriptor limit), none is kept and slots4 = slots6 = 0.
 * Return: 1; 0 at the end of the connection; -EPROTO for anything that is not a message (its
 * descriptors are closed); or a negative errno.
 */
int portd_msg_recv(int sock, struct portd_msg *msg, struct portd_fds *fds, int flags);

/* connect to, or bind, the daemon's name. Return: a descriptor or a negative errno */
int portd_name_connect(void);
int portd_name_bind(void);

/* client.c: register its fork handlers. Handlers registered later lock before its own */
void portd_client_init(void);

/* move @fd to a high number, closed on exec; @fd itself when that fails */
int portd_fd_move_up(int fd);

#endif
