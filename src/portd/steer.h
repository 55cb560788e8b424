/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * steer.h: the SO_REUSEPORT groups on the RoCE port, one a family, and the program by which the
 * kernel picks the socket of a packet's slot (the top byte of the destination QPN).
 */
#ifndef SOFTHCA_PORTD_STEER_H
#define SOFTHCA_PORTD_STEER_H

#include "portd/proto.h"

enum { FAMILY_IPV4, FAMILY_IPV6 };

/**
 * steer_port_free() - nobody in this network namespace has the RoCE port in this family.
 * Return: 0; -EADDRINUSE; -EAFNOSUPPORT when there is no such family here; another errno.
 */
int steer_port_free(int family);

/**
 * steer_fill() - open the sockets that are missing in @fds, in slot order.
 * Return: 0; -EADDRINUSE when the port is someone else's; another negative errno.
 */
int steer_fill(struct portd_fds *fds, int family);

/**
 * steer_attach() - attach the program.
 * @inherited: sockets of a former daemon are among them: learn which place in the group each has.
 * Sends probe datagrams over loopback that no receiver sees (they are counted as drops of the
 * sockets, and that is how they are found). Where loopback does not carry them, socket k is taken
 * to have place k, which is so in a group that never lost a member.
 * Return: 0 or a negative errno.
 */
int steer_attach(const struct portd_fds *fds, int family, bool inherited);

/* @fd is a socket of such a group, made by this user */
bool steer_is_group_socket(int fd, int family);
/* both descriptors are the same socket */
bool steer_same_socket(int fd_a, int fd_b);

/* discard what waits in a socket */
void steer_drain(int fd);

#endif
