// SPDX-License-Identifier: BSD-2-Clause
/*
 * commands.c: the commands that a host sends, one at a time.
 */
#include "initiator/internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/bytes.h"

#define LOG_CHUNK 4096

struct wait {
	bool done;
	uint16_t status;
	struct nvme_cqe cqe;
};

static void wait_done(void *arg, uint16_t status, const struct nvme_cqe *cqe)
{
	struct wait *wait = arg;

	wait->done = true;
	wait->status = status;
	if (cqe)
		wait->cqe = *cqe;
}

uint16_t initiator_command(struct initiator *host, unsigned int queue, const struct nvme_sqe *sqe,
			   void *data, size_t len, bool to_controller, struct nvme_cqe *cqe)
{
	struct wait wait = { 0 };
	int err;

	if (len > BOUNCE_BYTES)
		return NVME_SC_INVALID_FIELD | NVME_STATUS_DNR;
	if (to_controller && len)
		memcpy(host->bounce_memory, data, len);
	for (;;) {
		err = initiator_submit(host, queue, sqe, len ? &host->bounce : NULL, 0, len,
				       to_controller, wait_done, &wait);
		if (err != -EAGAIN)
			break;
		initiator_poll(host, 100);
	}
	if (err)
		return INITIATOR_LOST;
	while (!wait.done)
		initiator_poll(host, 100);
	if (!to_controller && len && !wait.status)
		memcpy(data, host->bounce_memory, len);
	if (cqe)
		*cqe = wait.cqe;
	return wait.status;
}

uint16_t command_connect(struct initiator *host, struct queue *queue, struct nvme_cqe *cqe)
{
	struct nvmf_connect_sqe sqe = {
		.opcode = NVME_CMD_FABRICS,
		.fctype = NVME_FABRICS_CONNECT,
		.qid = htole16(queue->index),
		.sqsize = htole16((uint16_t)queue->depth),
		.kato = htole32(queue->index ? 0 : host->kato_ms),
	};
	struct nvmf_connect_data data = {
		.cntlid = htole16(queue->index ? host->info.cntlid : NVMF_CNTLID_DYNAMIC),
	};

	memcpy(data.hostid, host->hostid, sizeof(data.hostid));
	memcpy(data.subnqn, host->subnqn, sizeof(data.subnqn));
	memcpy(data.hostnqn, host->hostnqn, sizeof(data.hostnqn));
	return initiator_command(host, queue->index, (const struct nvme_sqe *)&sqe, &data,
				 sizeof(data), true, cqe);
}

uint16_t command_property_get(struct initiator *host, uint32_t offset, bool wide, uint64_t *value)
{
	struct nvmf_property_sqe sqe = {
		.opcode = NVME_CMD_FABRICS,
		.fctype = NVME_FABRICS_PROPERTY_GET,
		.attrib = wide,
		.offset = htole32(offset),
	};
	struct nvme_cqe cqe = { 0 };
	uint16_t status =
		initiator_command(host, 0, (const struct nvme_sqe *)&sqe, NULL, 0, false, &cqe);

	*value = le32toh(cqe.dw0) | (wide ? (uint64_t)le32toh(cqe.dw1) << 32 : 0);
	return status;
}

uint16_t command_property_set(struct initiator *host, uint32_t offset, uint64_t value)
{
	struct nvmf_property_sqe sqe = {
		.opcode = NVME_CMD_FABRICS,
		.fctype = NVME_FABRICS_PROPERTY_SET,
		.offset = htole32(offset),
		.value = htole64(value),
	};

	return initiator_command(host, 0, (const struct nvme_sqe *)&sqe, NULL, 0, false, NULL);
}

uint16_t initiator_identify(struct initiator *host, uint8_t cns, uint32_t nsid,
			    uint8_t data[NVME_IDENTIFY_SIZE])
{
	struct nvme_sqe sqe = {
		.opcode = NVME_ADMIN_IDENTIFY,
		.nsid = htole32(nsid),
		.cdw10 = htole32(cns),
	};

	return initiator_command(host, 0, &sqe, data, NVME_IDENTIFY_SIZE, false, NULL);
}

uint16_t initiator_get_log(struct initiator *host, uint8_t page, uint64_t offset, void *data,
			   size_t len)
{
	uint32_t numd = (uint32_t)(len / 4 - 1);
	struct nvme_sqe sqe = {
		.opcode = NVME_ADMIN_GET_LOG_PAGE,
		.nsid = htole32(NVME_NSID_ALL),
		.cdw10 = htole32(page | (numd & 0xffff) << 16),
		.cdw11 = htole32(numd >> 16),
		.cdw12 = htole32((uint32_t)offset),
		.cdw13 = htole32((uint32_t)(offset >> 32)),
	};

	if (!len || len % 4)
		return NVME_SC_INVALID_FIELD | NVME_STATUS_DNR;
	return initiator_command(host, 0, &sqe, data, len, false, NULL);
}

uint16_t initiator_flush(struct initiator *host, uint32_t nsid)
{
	struct nvme_sqe sqe = { .opcode = NVME_CMD_FLUSH, .nsid = htole32(nsid) };

	return initiator_command(host, 1, &sqe, NULL, 0, false, NULL);
}

void initiator_fill_rw(struct nvme_sqe *sqe, uint8_t opcode, uint32_t nsid, uint64_t slba,
		       uint32_t blocks)
{
	*sqe = (struct nvme_sqe){
		.opcode = opcode,
		.nsid = htole32(nsid),
		.cdw10 = htole32((uint32_t)slba),
		.cdw11 = htole32((uint32_t)(slba >> 32)),
		.cdw12 = htole32((blocks - 1) & 0xffff),
	};
}

uint16_t initiator_rw(struct initiator *host, bool write, const struct initiator_namespace *ns,
		      uint64_t slba, void *data, size_t len)
{
	struct nvme_sqe sqe;

	if (!len || len % ns->lba_size || len > host->info.max_transfer)
		return NVME_SC_INVALID_FIELD | NVME_STATUS_DNR;
	initiator_fill_rw(&sqe, write ? NVME_CMD_WRITE : NVME_CMD_READ, ns->nsid, slba,
			  (uint32_t)(len / ns->lba_size));
	return initiator_command(host, 1, &sqe, data, len, write, NULL);
}

int initiator_namespaces(struct initiator *host, struct initiator_namespace *list, unsigned int max,
			 uint16_t *status)
{
	uint8_t nsids[NVME_IDENTIFY_SIZE], data[NVME_IDENTIFY_SIZE];
	unsigned int n = 0;

	*status = initiator_identify(host, NVME_CNS_NAMESPACE_LIST, 0, nsids);
	if (*status)
		return -1;
	for (unsigned int i = 0; i < NVME_IDENTIFY_SIZE / 4 && n < max; i++) {
		uint32_t nsid = get_le32(nsids + 4 * i);
		uint8_t format, shift;

		if (!nsid)
			break;
		*status = initiator_identify(host, NVME_CNS_NAMESPACE, nsid, data);
		if (*status)
			return -1;
		format = data[IDNS_FLBAS] & 15;
		shift = data[IDNS_LBAF + 4 * format + 2];
		if (shift < 9 || shift > 16)
			continue; /* not formatted */
		list[n++] = (struct initiator_namespace){ .nsid = nsid,
							  .blocks = get_le64(data + IDNS_NSZE),
							  .lba_size = 1U << shift };
	}
	return (int)n;
}

struct nvmf_discovery_record *initiator_discovery_log(struct initiator *host, size_t *count,
						      uint16_t *status)
{
	struct nvmf_discovery_header header, again;
	struct nvmf_discovery_record *records = NULL;
	uint64_t numrec;

	for (int tries = 0; tries < 3; tries++) {
		*status = initiator_get_log(host, NVME_LOG_DISCOVERY, 0, &header, sizeof(header));
		numrec = le64toh(header.numrec);
		if (*status)
			break;
		if (numrec > 65536) {
			*status = NVME_SC_INTERNAL;
			break;
		}
		free(records);
		records = calloc(numrec + 1, sizeof(*records));
		if (!records) {
			*status = NVME_SC_INTERNAL;
			break;
		}
		for (uint64_t at = 0; at < numrec * sizeof(*records) && !*status; at += LOG_CHUNK)
			*status = initiator_get_log(host, NVME_LOG_DISCOVERY, sizeof(header) + at,
						    (uint8_t *)records + at,
						    MIN(numrec * sizeof(*records) - at, LOG_CHUNK));
		if (!*status)
			*status = initiator_get_log(host, NVME_LOG_DISCOVERY, 0, &again,
						    sizeof(again));
		if (*status)
			break;
		/* the log must not have changed meanwhile */
		if (again.genctr == header.genctr) {
			*count = numrec;
			return records;
		}
	}
	free(records);
	return NULL;
}

const char *initiator_status_text(uint16_t status, char *text, size_t len)
{
	static const struct {
		uint16_t status;
		const char *text;
	} names[] = {
		{ NVME_SC_SUCCESS, "success" },
		{ NVME_SC_INVALID_OPCODE, "invalid command opcode" },
		{ NVME_SC_INVALID_FIELD, "invalid field in command" },
		{ NVME_SC_DATA_TRANSFER, "data transfer error" },
		{ NVME_SC_INTERNAL, "internal error" },
		{ NVME_SC_ABORT_REQUESTED, "command aborted" },
		{ NVME_SC_INVALID_NAMESPACE, "invalid namespace" },
		{ NVME_SC_COMMAND_SEQUENCE, "command sequence error" },
		{ NVME_SC_SGL_DATA_LENGTH, "data SGL length invalid" },
		{ NVME_SC_WRITE_PROTECTED, "namespace is write protected" },
		{ NVME_SC_LBA_RANGE, "LBA out of range" },
		{ NVME_SC_CAPACITY, "capacity exceeded" },
		{ NVME_SC_INVALID_LOG_PAGE, "invalid log page" },
		{ NVME_SC_CONNECT_BUSY, "controller busy" },
		{ NVME_SC_CONNECT_INVALID, "connect invalid parameters" },
		{ NVME_SC_CONNECT_HOST, "connect invalid host" },
		{ NVME_SC_WRITE_FAULT, "write fault" },
		{ NVME_SC_READ_ERROR, "unrecovered read error" },
		{ NVME_SC_COMPARE, "compare failure" },
		{ NVME_SC_PATH_CONTROLLER, "controller path error" },
	};
	uint16_t code = status & 0x7ff;

	if (status == INITIATOR_LOST) {
		snprintf(text, len, "no answer");
		return text;
	}
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		if (names[i].status != code)
			continue;
		snprintf(text, len, "%s (0x%03x%s)", names[i].text, code,
			 status & NVME_STATUS_DNR ? ", do not retry" : "");
		return text;
	}
	snprintf(text, len, "status 0x%03x", code);
	return text;
}
