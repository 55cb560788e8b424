// SPDX-License-Identifier: BSD-2-Clause
/*
 * mad_tap.c: faults and capture on the way of MADs.
 */
#include "portd/mad_tap.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "portd/mad_io.h"
#include "util/log.h"
#include "wire/fault.h"
#include "wire/pcap.h"

#define MAD_TTL 64

struct mad_tap {
	pthread_mutex_t lock; /* both layers are made for one thread */
	struct fault_layer *faults;
	struct pcap_writer *pcap;
};

int mad_tap_open(struct mad_tap **out)
{
	const char *rules = getenv("SOFTHCA_FAULT"), *path = getenv("SOFTHCA_PCAP");
	struct mad_tap *tap;
	char text[PATH_MAX];
	int err = 0;

	*out = NULL;
	if ((!rules || !*rules) && (!path || !*path))
		return 0;
	tap = calloc(1, sizeof(*tap));
	if (!tap)
		return -ENOMEM;
	pthread_mutex_init(&tap->lock, NULL);
	if (rules && *rules) {
		err = fault_parse(&tap->faults, rules, text, sizeof(text));
		if (err == -EINVAL)
			log_error("SOFTHCA_FAULT: %s", text);
	}
	if (!err && path && *path) {
		snprintf(text, sizeof(text), "%s.cm", path);
		err = pcap_open(&tap->pcap, text);
	}
	if (err) {
		mad_tap_close(tap);
		return err;
	}
	*out = tap;
	return 0;
}

void mad_tap_close(struct mad_tap *tap)
{
	if (!tap)
		return;
	fault_free(tap->faults);
	if (tap->pcap)
		pcap_close(tap->pcap);
	pthread_mutex_destroy(&tap->lock);
	free(tap);
}

static struct fault_verdict decide(struct mad_tap *tap, enum fault_direction direction)
{
	if (!tap->faults)
		return (struct fault_verdict){ .drop = false };
	return fault_decide(tap->faults, direction, OPC_UD | OP_SEND_ONLY);
}

static void capture(struct mad_tap *tap, const struct portd_mad *mad, const uint8_t *packet,
		    uint32_t len)
{
	if (tap->pcap)
		pcap_write(tap->pcap, &mad->sgid, &mad->dgid, ROCE_UDP_PORT, 0, 0, MAD_TTL, packet,
			   len);
}

int mad_tap_send(struct mad_tap *tap, int fd4, int fd6, const struct portd_mad *mad,
		 uint8_t *packet, uint32_t len)
{
	struct fault_verdict verdict;
	int err;

	if (!tap)
		return mad_send_packet(fd4, fd6, mad, packet, len);
	pthread_mutex_lock(&tap->lock);
	verdict = decide(tap, FAULT_TX);
	if (verdict.corrupt)
		packet[verdict.corrupt_bit / 8 % len] ^= (uint8_t)(1U << verdict.corrupt_bit % 8);
	if (!verdict.drop)
		capture(tap, mad, packet, len);
	pthread_mutex_unlock(&tap->lock);
	if (verdict.drop)
		return 0;
	err = mad_send_packet(fd4, fd6, mad, packet, len);
	if (!err && verdict.duplicate)
		mad_send_packet(fd4, fd6, mad, packet, len);
	return err;
}

bool mad_tap_rx(struct mad_tap *tap, const struct portd_mad *mad)
{
	uint8_t packet[MAD_PACKET_LEN];
	struct fault_verdict verdict;

	if (!tap)
		return true;
	mad_build(packet, mad, 0); /* the daemon kept only the MAD itself */
	pthread_mutex_lock(&tap->lock);
	verdict = decide(tap, FAULT_RX);
	if (!verdict.drop && !verdict.corrupt)
		capture(tap, mad, packet, sizeof(packet));
	pthread_mutex_unlock(&tap->lock);
	return !verdict.drop && !verdict.corrupt;
}
