// SPDX-License-Identifier: BSD-2-Clause
/*
 * host.c: a host's life: connect the admin queue, enable the controller, learn its limits, connect
 * the I/O queues; and back.
 */
#include "initiator/internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "util/bytes.h"
#include "util/clock.h"

#define DEFAULT_DEPTH	   32
#define DEFAULT_TIMEOUT_MS 5000
#define SHUTDOWN_TRIES	   50 /* of 100 ms */
#define CC_ENABLE	   (6U << 16 | 4U << 20 | NVME_CC_EN)

const char *initiator_error(const struct initiator *host)
{
	return host->error;
}

void initiator_get_info(const struct initiator *host, struct initiator_info *info)
{
	*info = host->info;
}

static bool set_address(struct initiator *host, const char *text, uint16_t port)
{
	struct sockaddr_in *in = (struct sockaddr_in *)&host->addr;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&host->addr;

	if (inet_pton(AF_INET, text, &in->sin_addr) == 1) {
		in->sin_family = AF_INET;
		in->sin_port = htons(port);
		return true;
	}
	if (inet_pton(AF_INET6, text, &in6->sin6_addr) == 1) {
		in6->sin6_family = AF_INET6;
		in6->sin6_port = htons(port);
		return true;
	}
	return false;
}

/* the same for every host of this machine when it has an id, else random */
static void make_hostid(uint8_t id[16])
{
	char text[33] = "";
	FILE *file = fopen("/etc/machine-id", "re");
	size_t len = file ? fread(text, 1, 32, file) : 0;

	if (file)
		fclose(file);
	for (size_t i = 0; len == 32 && i < 16; i++) {
		unsigned int byte;

		if (sscanf(text + 2 * i, "%2x", &byte) != 1)
			len = 0;
		id[i] = (uint8_t)byte;
	}
	if (len != 32 && getrandom(id, 16, 0) != 16)
		put_le64(id, clock_ns());
}

static bool set_names(struct initiator *host, const struct initiator_options *options)
{
	static const uint8_t none[16];
	uint8_t *id = host->hostid;

	if (strlen(options->subnqn) >= sizeof(host->subnqn) ||
	    (options->hostnqn && strlen(options->hostnqn) >= sizeof(host->hostnqn)))
		return false;
	memcpy(id, options->hostid, sizeof(host->hostid));
	if (!memcmp(id, none, sizeof(none)))
		make_hostid(id);
	strcpy(host->subnqn, options->subnqn);
	if (options->hostnqn)
		strcpy(host->hostnqn, options->hostnqn);
	else
		snprintf(host->hostnqn, sizeof(host->hostnqn),
			 "nqn.2014-08.org.nvmexpress:uuid:%02x%02x%02x%02x-%02x%02x-%02x%02x-"
			 "%02x%02x-%02x%02x%02x%02x%02x%02x",
			 id[0], id[1], id[2], id[3], id[4], id[5], id[6], id[7], id[8], id[9],
			 id[10], id[11], id[12], id[13], id[14], id[15]);
	return true;
}

static bool status_good(struct initiator *host, uint16_t status, const char *what)
{
	char text[96];

	if (!status)
		return true;
	host_fail(host, "%s: %s", what, initiator_status_text(status, text, sizeof(text)));
	return false;
}

static bool connect_status_good(struct initiator *host, uint16_t status, const struct nvme_cqe *cqe)
{
	uint32_t dw0 = le32toh(cqe->dw0);

	if ((status & 0x7ff) == NVME_SC_CONNECT_INVALID && dw0 == (256 | NVMF_CONNECT_IPO_IN_DATA))
		host_fail(host, "the target has no subsystem %s", host->subnqn);
	else if ((status & 0x7ff) == NVME_SC_CONNECT_HOST)
		host_fail(host, "the target does not allow host %s", host->hostnqn);
	return status_good(host, status, "Connect");
}

static bool open_queue(struct initiator *host, uint16_t index, unsigned int depth)
{
	struct queue *queue = queue_open(host, index, depth);
	struct nvme_cqe cqe = { 0 };
	uint16_t status;

	if (!queue)
		return false;
	host->queues[index] = queue;
	host->queue_count = index + 1U;
	status = command_connect(host, queue, &cqe);
	if (!connect_status_good(host, status, &cqe))
		return false;
	if (!index)
		host->info.cntlid = (uint16_t)le32toh(cqe.dw0);
	return true;
}

static bool wait_csts(struct initiator *host, uint32_t mask, uint32_t value, uint64_t limit_ms,
		      const char *what)
{
	uint64_t deadline = clock_ns() + limit_ms * NSEC_PER_MSEC, csts;

	for (;;) {
		if (!status_good(host, command_property_get(host, NVME_REG_CSTS, false, &csts),
				 "Property Get CSTS"))
			return false;
		if (csts & NVME_CSTS_CFS) {
			host_fail(host, "the controller reports a fatal status");
			return false;
		}
		if ((csts & mask) == value)
			return true;
		if (clock_ns() > deadline) {
			host_fail(host, "%s took too long", what);
			return false;
		}
		initiator_poll(host, 10);
	}
}

static bool enable_controller(struct initiator *host)
{
	uint64_t cap;

	if (!status_good(host, command_property_get(host, NVME_REG_CAP, true, &cap),
			 "Property Get CAP"))
		return false;
	host->depth = (unsigned int)MIN(host->depth, cap & 0xffff);
	if (!status_good(host, command_property_set(host, NVME_REG_CC, CC_ENABLE),
			 "Property Set CC"))
		return false;
	if (!wait_csts(host, NVME_CSTS_RDY, NVME_CSTS_RDY, (cap >> 24 & 0xff) * 500,
		       "enabling the controller"))
		return false;
	host->enabled = true;
	host->next_keep_alive_ns = clock_ns() + host->kato_ms * NSEC_PER_MSEC / 2;
	return true;
}

static void copy_ascii(char *out, const uint8_t *in, size_t len)
{
	while (len && (in[len - 1] == ' ' || !in[len - 1]))
		len--;
	for (size_t i = 0; i < len; i++)
		out[i] = in[i] >= ' ' && in[i] <= '~' ? (char)in[i] : '?';
	out[len] = 0;
}

static bool identify_controller(struct initiator *host)
{
	uint8_t id[NVME_IDENTIFY_SIZE];
	uint32_t ioccsz;

	if (!status_good(host, initiator_identify(host, NVME_CNS_CONTROLLER, 0, id), "Identify"))
		return false;
	copy_ascii(host->info.serial, id + IDCTRL_SN, 20);
	copy_ascii(host->info.model, id + IDCTRL_MN, 40);
	copy_ascii(host->info.firmware, id + IDCTRL_FR, 8);
	host->info.max_transfer = BOUNCE_BYTES;
	if (id[IDCTRL_MDTS] && id[IDCTRL_MDTS] < 8)
		host->info.max_transfer = 4096U << id[IDCTRL_MDTS];
	ioccsz = get_le32(id + IDCTRL_IOCCSZ);
	if (ioccsz > 4 && ioccsz <= 65536 && !get_le16(id + IDCTRL_ICDOFF) &&
	    get_le32(id + IDCTRL_SGLS) & 1U << 20)
		host->info.in_capsule_bytes = 16 * ioccsz - 64;
	return true;
}

static bool open_io_queues(struct initiator *host)
{
	uint32_t n = host->wanted_queues - 1;
	struct nvme_sqe sqe = {
		.opcode = NVME_ADMIN_SET_FEATURES,
		.cdw10 = htole32(NVME_FEAT_QUEUES),
		.cdw11 = htole32(n | n << 16),
	};
	struct nvme_cqe cqe = { 0 };
	unsigned int granted;

	if (!status_good(host, initiator_command(host, 0, &sqe, NULL, 0, false, &cqe),
			 "Set Features Number of Queues"))
		return false;
	granted = MIN(le32toh(cqe.dw0) & 0xffff, le32toh(cqe.dw0) >> 16) + 1;
	granted = MIN(granted, host->wanted_queues);
	for (unsigned int i = 1; i <= granted; i++)
		if (!open_queue(host, (uint16_t)i, host->depth))
			return false;
	host->info.io_queues = granted;
	host->info.depth = host->depth;
	return true;
}

static void host_free(struct initiator *host)
{
	for (unsigned int i = 0; i < host->queue_count; i++)
		queue_free(host->queues[i]);
	if (host->bounce.mr)
		ibv_dereg_mr(host->bounce.mr);
	if (host->cq)
		ibv_destroy_cq(host->cq);
	if (host->comp_channel)
		ibv_destroy_comp_channel(host->comp_channel);
	if (host->pd)
		ibv_dealloc_pd(host->pd);
	if (host->channel)
		rdma_destroy_event_channel(host->channel);
	free(host->bounce_memory);
	free(host);
}

struct initiator *initiator_connect(const struct initiator_options *options, char *error,
				    size_t error_len)
{
	struct initiator *host = calloc(1, sizeof(*host));

	snprintf(error, error_len, "out of memory");
	if (!host)
		return NULL;
	host->depth = options->depth ? MIN(options->depth, 127) : DEFAULT_DEPTH;
	host->timeout_ms = options->timeout_ms ? options->timeout_ms : DEFAULT_TIMEOUT_MS;
	host->wanted_queues = MIN(options->io_queues, QUEUES_MAX);
	host->kato_ms = options->kato_ms;
	host->no_in_capsule = options->no_in_capsule;
	host->discovery = !strcmp(options->subnqn, NVMF_DISCOVERY_NQN);
	if (!set_names(host, options)) {
		snprintf(error, error_len, "an NQN has at most 223 bytes");
		goto out_free;
	}
	if (!set_address(host, options->address, options->port)) {
		snprintf(error, error_len, "'%s' is no IP address", options->address);
		goto out_free;
	}
	host->channel = rdma_create_event_channel();
	if (!host->channel) {
		snprintf(error, error_len, "no RDMA event channel: %s", strerror(errno));
		goto out_free;
	}
	fcntl(host->channel->fd, F_SETFL, fcntl(host->channel->fd, F_GETFL) | O_NONBLOCK);
	if (!open_queue(host, 0, ADMIN_DEPTH) || !enable_controller(host) ||
	    !identify_controller(host))
		goto out_failed;
	if (host->wanted_queues && !host->discovery && !open_io_queues(host))
		goto out_failed;
	return host;

out_failed:
	snprintf(error, error_len, "%s", host->error);
	for (unsigned int i = host->queue_count; i; i--)
		if (host->queues[i - 1])
			queue_disconnect(host->queues[i - 1]);
out_free:
	host_free(host);
	return NULL;
}

static void shut_down(struct initiator *host)
{
	uint64_t csts;

	if (command_property_set(host, NVME_REG_CC, CC_ENABLE | NVME_CC_SHN_NORMAL))
		return;
	for (int i = 0; i < SHUTDOWN_TRIES; i++) {
		if (command_property_get(host, NVME_REG_CSTS, false, &csts) ||
		    (csts & NVME_CSTS_SHST_MASK) == NVME_CSTS_SHST_COMPLETE)
			return;
		initiator_poll(host, 100);
	}
}

void initiator_disconnect(struct initiator *host)
{
	if (!host)
		return;
	/* I/O queues first, then the shutdown, then the admin queue (as Linux does) */
	for (unsigned int i = host->queue_count; i > 1; i--)
		queue_disconnect(host->queues[i - 1]);
	host->enabled = false;
	if (!host->failed)
		shut_down(host);
	if (host->queue_count && host->queues[0])
		queue_disconnect(host->queues[0]);
	host_free(host);
}

struct initiator_buffer *initiator_register(struct initiator *host, void *addr, size_t len)
{
	struct initiator_buffer *buffer = calloc(1, sizeof(*buffer));

	if (!buffer)
		return NULL;
	buffer->mr = ibv_reg_mr(host->pd, addr, len,
				IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
					IBV_ACCESS_REMOTE_WRITE);
	if (!buffer->mr) {
		free(buffer);
		return NULL;
	}
	return buffer;
}

void initiator_deregister(struct initiator_buffer *buffer)
{
	if (!buffer)
		return;
	ibv_dereg_mr(buffer->mr);
	free(buffer);
}
