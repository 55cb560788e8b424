// SPDX-License-Identifier: BSD-2-Clause
/*
 * fuzz_nvme_cqe.c: a hostile NVMe controller: any completions at any time, good ones mixed in.
 * Whatever it writes, each command of the host is answered at most once and, at the latest when
 * the controller is removed, everything is given back.
 *
 * Input: steps: a byte that says what, and what it needs.
 */
#include "../unit/offload/fixture.h"

#include <stdlib.h>
#include <string.h>

#include "offload/internal.h"
#include "util/bytes.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint8_t answered[65536]; /* responses by CID */

static void check_responses(struct fixture *f)
{
	while (f->qp->responses_read < f->qp->response_count) {
		uint16_t cid = le16toh(fake_response(f->qp)->cid);

		if (answered[cid] != 1)
			abort(); /* never asked, or asked and answered */
		answered[cid] = 2;
	}
	f->qp->responses_read = f->qp->response_count = 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fixture_options options = { .depth = size ? 2 + data[0] % 7 : 2, .staging = 131072 };
	size_t at = 1;
	uint16_t cids[16] = { 0 }; /* that the controller was given lately */
	unsigned int given = 0;
	uint16_t next = 0;
	struct fixture f;

	memset(answered, 0, sizeof(answered));
	fixture_open(&f, &options);
	while (at < MIN(size, 4096)) {
		uint8_t what = data[at++];
		struct nvme_sqe sqe;
		struct nvme_cqe cqe;

		switch (what % 8) {
		case 0:
		case 1:
			sqe = host_sqe((uint8_t[]){ 1, 2, 2, 0 }[what >> 6], next, next,
				       1 + what / 8, 0);
			if (host_send(&f, &sqe) == CAPSULE_TAKEN)
				answered[next++] = 1;
			break;
		case 2:
			while (mock_pending(&f) && given < 10000)
				cids[given++ % 16] = mock_take(&f).cid;
			break;
		case 3: /* any bytes */
			if (size - at < sizeof(cqe))
				break;
			memcpy(&cqe, data + at, sizeof(cqe));
			at += sizeof(cqe);
			cqe.status &= htole16(0xfffe);
			mock_answer_raw(&f, &cqe);
			break;
		case 4: /* one it has, or had */
		case 5:
			mock_answer(&f, cids[what / 8 % 16], what & 0x80 ? NVME_SC_READ_ERROR : 0);
			break;
		case 6:
			fake_settle(f.qp);
			check_responses(&f);
			break;
		default:
			if (what & 0x80)
				fake_advance_ms(&f.engine, TIMEOUT / 4);
			else
				fake_progress(&f.engine);
		}
	}
	fake_settle(f.qp);
	check_responses(&f);
	fake_advance_ms(&f.engine, 4 * TIMEOUT);
	fake_settle(f.qp);
	fake_advance_ms(&f.engine, 4 * TIMEOUT);
	fake_settle(f.qp);
	check_responses(&f);
	for (uint16_t i = 0; i < next; i++)
		if (answered[i] != 2)
			abort(); /* a host was forgotten */
	if (offload_unmap(f.ctrl, NSID) || offload_ctrl_remove(f.ctrl))
		abort();
	f.ctrl = NULL;
	if (f.offload->staging.free_pages != f.offload->staging.page_count)
		abort();
	fixture_close(&f);
	return 0;
}
