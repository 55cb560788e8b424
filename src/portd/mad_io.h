/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * mad_io.h: a MAD as a RoCEv2 packet: UD SEND ONLY to QP1, and over a group's socket.
 */
#ifndef SOFTHCA_PORTD_MAD_IO_H
#define SOFTHCA_PORTD_MAD_IO_H

#include <stdint.h>

#include "portd/portd.h"
#include "util/counters.h"
#include "wire/packet.h"

#define MAD_QPN	       1
#define MAD_QKEY       0x80010000U
#define MAD_PACKET_LEN (BTH_LEN + 8 + MAD_LEN + ICRC_LEN)

/* write BTH .. ICRC of @mad at @out, MAD_PACKET_LEN bytes */
void mad_build(uint8_t *out, const struct portd_mad *mad, uint32_t psn);

/**
 * mad_parse() - the inverse: check everything and take the MAD out.
 * @mad: in: sgid, dgid, ifindex of the packet; out: src_qpn, data.
 * @sport: UDP source port, part of the ICRC. @hint: see icrc_check().
 * Return: DROP_NONE or the drop reason; does not count.
 */
enum counter mad_parse(struct portd_mad *mad, uint16_t sport, uint16_t *hint, const uint8_t *data,
		       uint32_t len);

/**
 * mad_send_packet() - send @len bytes that mad_build() made, from mad->sgid to mad->dgid.
 * @fd4, @fd6: sockets bound to the RoCE port; -1 where there is none.
 * Return: 0 or a negative errno (-EINVAL: the GIDs' families differ; -EAFNOSUPPORT: no socket).
 */
int mad_send_packet(int fd4, int fd6, const struct portd_mad *mad, const uint8_t *data,
		    uint32_t len);

/**
 * mad_recv_packet() - take one datagram from a socket, without waiting.
 * @mad: out: sgid, dgid, ifindex (0 but for link-local addresses).
 * Return: its length (may be larger than @size: truncated), -EAGAIN, or a negative errno.
 */
int mad_recv_packet(int fd, struct portd_mad *mad, uint16_t *sport, uint8_t *data, uint32_t size);

#endif
