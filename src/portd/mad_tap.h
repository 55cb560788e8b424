/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * mad_tap.h: the fault layer and the capture for MADs, which do not pass through a link. The rules
 * are SOFTHCA_FAULT's (drop, duplicate and corrupt; delay and reorder are for the link); the
 * capture goes to a file beside the link's, SOFTHCA_PCAP with ".cm" appended.
 */
#ifndef SOFTHCA_PORTD_MAD_TAP_H
#define SOFTHCA_PORTD_MAD_TAP_H

#include <stdbool.h>
#include <stdint.h>

#include "portd/portd.h"

struct mad_tap;

/* *@tap is NULL when neither is wanted. Return: 0 or a negative errno (a message was logged) */
int mad_tap_open(struct mad_tap **tap);
void mad_tap_close(struct mad_tap *tap);

/* mad_send_packet(), with faults and capture. @packet may be changed. Any thread */
int mad_tap_send(struct mad_tap *tap, int fd4, int fd6, const struct portd_mad *mad,
		 uint8_t *packet, uint32_t len);

/* a MAD arrived: false when it is to be dropped */
bool mad_tap_rx(struct mad_tap *tap, const struct portd_mad *mad);

#endif
