// SPDX-License-Identifier: BSD-2-Clause
/*
 * fuzz_capsule.c: capsules from a hostile host into the offload, over the soft controller: any
 * bytes, any length, cut into packets of any MTU; completions, errors and resets of the QP in
 * between. In the end all must be given back.
 *
 * Input: one byte of options, then steps: a byte that says what, and what it needs.
 */
#include "../unit/offload/fixture.h"

#include <stdlib.h>
#include <string.h>

#include "offload/internal.h"
#include "util/bytes.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
	const uint8_t *data;
	size_t left;
};

static uint32_t take(struct input *in, size_t bytes)
{
	uint32_t v = 0;

	while (bytes-- && in->left) {
		v = v << 8 | *in->data++;
		in->left--;
	}
	return v;
}

/* a SQE whose opcode, flags, namespace and SGL are mostly good, the rest as given */
static void send_capsule(struct fixture *f, struct input *in, bool tame)
{
	static uint8_t capsule[64 + 65536 + 256];
	uint32_t len = take(in, 2) % (16 * f->attrs.ioccsz + 32);
	uint32_t mtu = 256U << take(in, 1) % 5;
	size_t copied = MIN(in->left, MIN(len, 64));
	struct nvme_sqe *sqe = (struct nvme_sqe *)(void *)capsule;

	memset(capsule, 0, 64);
	memcpy(capsule, in->data, copied);
	in->data += copied;
	in->left -= copied;
	if (tame) {
		sqe->opcode %= 4;
		sqe->flags = NVME_SQE_PSDT_SGL;
		sqe->nsid = htole32(NSID + (sqe->nsid & 1));
		sqe->cdw10 &= htole32(0x1fff);
		sqe->cdw11 = 0;
		sqe->cdw12 &= htole32(0x400001ff);
		if (sqe->sgl[15] & 1) {
			sqe->sgl[15] = NVME_SGL_OFFSET;
		} else {
			set_sgl(sqe, sqe->sgl[15] & 2 ? NVME_SGL_KEYED : NVME_SGL_KEYED_INVALIDATE,
				(uintptr_t)host_memory + sqe->sgl[0] * 256,
				get_le32(sqe->sgl + 8) & 0x3ffff, HOST_KEY);
		}
	} else if (len >= 64 && sqe->opcode != NVME_CMD_FLUSH) {
		/* the fake adapter's host memory has one key and no bounds to test */
		put_le32(sqe->sgl + 11, HOST_KEY);
		if (sqe->sgl[15] != NVME_SGL_OFFSET)
			put_le64(sqe->sgl, (uintptr_t)host_memory + sqe->sgl[0]);
		put_le32(sqe->sgl + 8, (get_le32(sqe->sgl + 8) & 0xffffff) | HOST_KEY << 24);
	}
	if (fake_send(f->qp, capsule, len, mtu) != CAPSULE_BAD)
		return;
	fake_qp_error(f->qp);
}

static void new_qp(struct fixture *f)
{
	fake_qp_reset(f->qp);
	fake_qp_init(f->qp, &f->ctx, &f->srq, 1);
	offload_qp_modify(f->qp, 1);
	fake_event_count = 0;
}

static void one_step(struct fixture *f, struct input *in)
{
	uint32_t what = take(in, 1);

	switch (what % 16) {
	case 0:
	case 1:
	case 2:
		send_capsule(f, in, false);
		break;
	case 3:
	case 4:
	case 5:
	case 6:
	case 7:
		send_capsule(f, in, true);
		break;
	case 8:
		fake_complete(f->qp);
		break;
	case 9:
		fake_settle(f->qp);
		break;
	case 10:
		if (f->qp->state == IBV_QPS_RTS && what & 16)
			fake_qp_error(f->qp);
		else
			new_qp(f);
		break;
	case 11:
		offload_qp_modify(f->qp, what >> 4 & 1);
		break;
	case 12:
		f->qp->lane = 1 + take(in, 1) % 64;
		break;
	case 13:
		fake_advance_ms(&f->engine, take(in, 1));
		break;
	default:
		fake_progress(&f->engine);
	}
	/* the recording has an end */
	if (f->qp->response_count > MAX_POSTED - 600)
		new_qp(f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, MIN(size, 4096) };
	uint32_t flags = take(&in, 1);
	struct fixture_options options = {
		.soft = true,
		.depth = flags & 1 ? 2 : 9,
		.max_io = 16384,
		.staging = flags & 2 ? 16384 : 65536,
		.icdoff = flags & 4 ? 4 : 0,
		.ioccsz = flags & 8 ? 4 + 4 : 260 + 4,
	};
	struct fixture f;

	fixture_open(&f, &options);
	while (in.left)
		one_step(&f, &in);
	fake_qp_reset(f.qp);
	fake_progress(&f.engine);
	expect_idle(&f);
	fixture_close(&f);
	return 0;
}
