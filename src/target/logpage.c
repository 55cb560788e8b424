// SPDX-License-Identifier: BSD-2-Clause
/*
 * logpage.c: Get Log Page at any offset. A page is written from its beginning into a window, which
 * keeps the part that was asked for.
 */
#include "target/model.h"

#include <string.h>

#include "util/bytes.h"

#define NUMD_LOW(cdw10)	 ((cdw10) >> 16)
#define RETAIN_EVENT	 (1U << 15)
#define EFFECT_SUPPORTED 1U
#define EFFECT_LBA	 2U
#define STATISTICS_MAX	 16384

static bool page_known(const struct subsystem *s, uint8_t page)
{
	if (s->discovery)
		return page == NVME_LOG_DISCOVERY;
	switch (page) {
	case NVME_LOG_ERROR:
	case NVME_LOG_SMART:
	case NVME_LOG_FIRMWARE:
	case NVME_LOG_CHANGED_NS:
	case NVME_LOG_EFFECTS:
	case NVME_LOG_SOFTHCA:
		return true;
	default:
		return false;
	}
}

uint16_t logpage_transfer(const struct command *cmd, struct transfer *transfer)
{
	uint32_t cdw10 = le32toh(cmd->sqe.cdw10), cdw11 = le32toh(cmd->sqe.cdw11);
	uint64_t dwords = ((uint64_t)(cdw11 & 0xffff) << 16 | NUMD_LOW(cdw10)) + 1;

	if (!page_known(cmd->queue->ctrl->subsystem, (uint8_t)cdw10))
		return NVME_SC_INVALID_LOG_PAGE | DNR;
	if (dwords * 4 > TARGET_MAX_IO_BYTES)
		return NVME_SC_INVALID_FIELD | DNR;
	*transfer = (struct transfer){ TRANSFER_TO_HOST, (uint32_t)dwords * 4 };
	return NVME_SC_SUCCESS;
}

static void error_log(struct window *w)
{
	static const uint8_t none[64];

	window_put(w, none, sizeof(none)); /* one entry (ELPE 0), never used */
}

static void smart_log(const struct controller *ctrl, struct window *w)
{
	uint8_t page[512] = { 0 };
	struct io_totals totals;

	subsystem_totals(ctrl->subsystem, ctrl->target, &totals);
	put_le16(page + 1, 298); /* composite temperature, kelvin */
	page[3] = 100;		 /* available spare, % */
	page[4] = 10;		 /* its threshold */
	/* data units are thousands of 512 bytes, rounded up */
	put_le64(page + 32, div_round_up(totals.read_bytes, 512 * 1000));
	put_le64(page + 48, div_round_up(totals.write_bytes, 512 * 1000));
	put_le64(page + 64, totals.read_commands);
	put_le64(page + 80, totals.write_commands);
	window_put(w, page, sizeof(page));
}

static void firmware_log(struct window *w)
{
	uint8_t page[512] = { 0 };

	page[0] = 1; /* active: slot 1 */
	memset(page + 8, ' ', 8);
	memcpy(page + 8, SOFTHCA_VERSION, MIN(sizeof(SOFTHCA_VERSION) - 1, 8));
	window_put(w, page, sizeof(page));
}

static void changed_namespaces(struct controller *ctrl, struct window *w)
{
	uint8_t page[TARGET_CHANGED_NS_MAX * 4] = { 0 };

	if (ctrl->changed_ns_count > TARGET_CHANGED_NS_MAX)
		put_le32(page, NVME_NSID_ALL); /* too many to name */
	else
		for (unsigned int i = 0; i < ctrl->changed_ns_count; i++)
			put_le32(page + 4 * i, ctrl->changed_ns[i]);
	window_put(w, page, sizeof(page));
	if (!w->offset)
		ctrl->changed_ns_count = 0; /* the host knows now */
}

static void effects_log(struct window *w)
{
	static const uint8_t admin[] = { NVME_ADMIN_GET_LOG_PAGE, NVME_ADMIN_IDENTIFY,
					 NVME_ADMIN_ABORT,	  NVME_ADMIN_SET_FEATURES,
					 NVME_ADMIN_GET_FEATURES, NVME_ADMIN_AER,
					 NVME_ADMIN_KEEP_ALIVE };
	static const uint8_t reads[] = { NVME_CMD_FLUSH, NVME_CMD_READ, NVME_CMD_COMPARE,
					 NVME_CMD_VERIFY };
	static const uint8_t writes[] = { NVME_CMD_WRITE, NVME_CMD_WRITE_ZEROES, NVME_CMD_DSM };
	uint8_t page[4096] = { 0 };

	for (size_t i = 0; i < ARRAY_SIZE(admin); i++)
		put_le32(page + 4 * admin[i], EFFECT_SUPPORTED);
	for (size_t i = 0; i < ARRAY_SIZE(reads); i++)
		put_le32(page + 1024 + 4 * reads[i], EFFECT_SUPPORTED);
	for (size_t i = 0; i < ARRAY_SIZE(writes); i++)
		put_le32(page + 1024 + 4 * writes[i], EFFECT_SUPPORTED | EFFECT_LBA);
	window_put(w, page, sizeof(page));
}

static void statistics_log(const struct controller *ctrl, struct window *w)
{
	char text[STATISTICS_MAX];
	size_t len = 0;

	if (ctrl->target->statistics)
		len = ctrl->target->statistics(ctrl->target, ctrl->subsystem, text, sizeof(text));
	window_put(w, text, len);
}

uint16_t logpage_execute(struct command *cmd)
{
	struct controller *ctrl = cmd->queue->ctrl;
	uint32_t cdw10 = le32toh(cmd->sqe.cdw10);
	struct window w = {
		.out = cmd->data,
		.offset = (uint64_t)le32toh(cmd->sqe.cdw13) << 32 | le32toh(cmd->sqe.cdw12),
		.len = cmd->data_len,
	};

	if (w.offset & 3 || w.offset > UINT64_MAX / 2)
		return NVME_SC_INVALID_FIELD | DNR;
	switch ((uint8_t)cdw10) {
	case NVME_LOG_ERROR:
		error_log(&w);
		break;
	case NVME_LOG_SMART:
		smart_log(ctrl, &w);
		break;
	case NVME_LOG_FIRMWARE:
		firmware_log(&w);
		break;
	case NVME_LOG_CHANGED_NS:
		changed_namespaces(ctrl, &w);
		if (!(cdw10 & RETAIN_EVENT))
			controller_event_read(ctrl, NVME_OAES_NS_CHANGED);
		break;
	case NVME_LOG_EFFECTS:
		effects_log(&w);
		break;
	case NVME_LOG_SOFTHCA:
		statistics_log(ctrl, &w);
		break;
	case NVME_LOG_DISCOVERY:
		discovery_log(cmd->queue, ctrl->hostnqn, &w);
		if (!(cdw10 & RETAIN_EVENT))
			controller_event_read(ctrl, NVME_OAES_DISCOVERY);
		break;
	default:
		return NVME_SC_INVALID_LOG_PAGE | DNR;
	}
	/* an offset behind the page's end (NVMe Base 2.0, 5.16.1: Log Page Offset) */
	return w.offset > w.at ? NVME_SC_INVALID_FIELD | DNR : NVME_SC_SUCCESS;
}
