/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pcap.h: writes sent and received packets, with made-up IP and UDP headers, to a pcap file
 * (LINKTYPE_RAW) that tshark reads. SOFTHCA_PCAP=FILE (%p becomes the pid).
 */
#ifndef SOFTHCA_WIRE_PCAP_H
#define SOFTHCA_WIRE_PCAP_H

#include <stdint.h>
#include <infiniband/verbs.h>

struct pcap_writer;

/* Return: 0, or a negative errno (a line on stderr says what) */
int pcap_open(struct pcap_writer **w, const char *path);
void pcap_close(struct pcap_writer *w);
void pcap_write(struct pcap_writer *w, const union ibv_gid *sgid, const union ibv_gid *dgid,
		uint16_t sport, uint16_t ip_id, uint8_t tos, uint8_t ttl, const uint8_t *data,
		uint32_t len);

#endif
