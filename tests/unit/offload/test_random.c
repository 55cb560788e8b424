// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_random.c: many hosts, random commands over the soft controller, against a model of the
 * namespace; completions in random order between QPs, QPs that die and come back, unmap and map
 * under load, little staging.
 */
#include "fixture.h"

#include <stdlib.h>
#include <string.h>

#include "offload/internal.h"
#include "util/bytes.h"

#define QPS    5
#define SLOTS  8 /* commands of one QP at once, each on its own blocks */
#define BLOCKS 32
#define AREA   (BLOCKS * LBA)
#define MTU    1024

struct slot {
	bool busy, known; /* known: the model has what is on the media */
	uint8_t opcode;
	uint32_t first, blocks;
	uint8_t model[AREA], sent[AREA];
};

struct host {
	struct hca_qp *qp;
	struct slot slots[SLOTS];
};

static struct host hosts[QPS];
static unsigned int seed;

static uint32_t rnd(uint32_t n)
{
	return (uint32_t)rand_r(&seed) % n;
}

static uint8_t *host_data(int h, int s)
{
	return host_memory + (size_t)(h * SLOTS + s) * AREA;
}

static void send_one(struct fixture *f, int h, int s)
{
	struct host *host = &hosts[h];
	struct slot *slot = &host->slots[s];
	uint8_t capsule[64 + 4096];
	uint32_t len = 64, bytes;
	struct nvme_sqe sqe;
	enum capsule_verdict verdict;

	slot->opcode = (uint8_t[]){ NVME_CMD_READ, NVME_CMD_WRITE, NVME_CMD_FLUSH }[rnd(5) % 3];
	slot->first = rnd(BLOCKS);
	slot->blocks = 1 + rnd(BLOCKS - slot->first);
	bytes = slot->blocks * LBA;
	sqe = host_sqe(slot->opcode, (uint16_t)(s | rnd(4096) << 4),
		       (uint64_t)(h * SLOTS + s) * BLOCKS + slot->first, slot->blocks,
		       (size_t)(h * SLOTS + s) * AREA);
	if (slot->opcode == NVME_CMD_WRITE) {
		for (uint32_t i = 0; i < bytes; i++)
			slot->sent[i] = (uint8_t)rand_r(&seed);
		memcpy(host_data(h, s), slot->sent, bytes);
		if (bytes <= 4096 && rnd(2)) {
			set_sgl(&sqe, NVME_SGL_OFFSET, 0, bytes, 0);
			memcpy(capsule + 64, slot->sent, bytes);
			len += bytes;
		}
	}
	memcpy(capsule, &sqe, 64);
	verdict = fake_send(host->qp, capsule, len, MTU);
	if (verdict == CAPSULE_RNR)
		return;
	assert_int_equal(verdict, CAPSULE_TAKEN);
	slot->busy = true;
}

static void take_responses(int h, bool may_be_unmapped)
{
	struct host *host = &hosts[h];

	while (host->qp->responses_read < host->qp->response_count) {
		struct nvme_cqe *cqe = fake_response(host->qp);
		uint16_t status = NVME_STATUS_FROM_FIELD(le16toh(cqe->status));
		struct slot *slot = &host->slots[le16toh(cqe->cid) & 15];
		uint8_t *model = slot->model + slot->first * LBA;
		int s = (int)(slot - host->slots);

		assert_true(slot->busy);
		slot->busy = false;
		if (status) {
			assert_true(may_be_unmapped);
			assert_int_equal(status, NVME_SC_INVALID_NAMESPACE | DNR);
			continue;
		}
		if (slot->opcode == NVME_CMD_WRITE) {
			memcpy(model, slot->sent, slot->blocks * LBA);
			if (slot->blocks == BLOCKS)
				slot->known = true;
		} else if (slot->opcode == NVME_CMD_READ && slot->known) {
			assert_memory_equal(host_data(h, s), model, slot->blocks * LBA);
		}
	}
	/* the recording starts over */
	host->qp->response_count = host->qp->responses_read = 0;
}

static void revive(struct fixture *f, int h)
{
	struct host *host = &hosts[h];

	/* some go through ERR, some of those with time for the last commands to end */
	if (rnd(3)) {
		fake_qp_error(host->qp);
		if (rnd(2))
			fake_progress(&f->engine);
	}
	fake_qp_reset(host->qp);
	fake_qp_init(host->qp, &f->ctx, &f->srq, (uint32_t)h + 1);
	host->qp->lane = 1 + rnd(20);
	fake_event_count = 0;
	for (int s = 0; s < SLOTS; s++) {
		/* a write in flight was done or not */
		if (host->slots[s].busy && host->slots[s].opcode == NVME_CMD_WRITE)
			host->slots[s].known = false;
		host->slots[s].busy = false;
	}
	assert_int_equal(offload_qp_modify(host->qp, 1), 0);
}

/* while a call waits, the network goes on by itself */
static bool network_runs;

static bool network_poll(struct engine_poller *poller)
{
	for (int h = 0; network_runs && h < QPS; h++)
		fake_complete(hosts[h].qp);
	return false;
}

static struct engine_poller network = { .poll = network_poll };

static void run(unsigned int start, const struct fixture_options *options, int steps)
{
	struct fixture f;
	bool unmapped = false;

	seed = start;
	memset(hosts, 0, sizeof(hosts));
	fixture_open(&f, options);
	engine_add_poller(&f.engine, &network);
	for (int h = 0; h < QPS; h++) {
		hosts[h].qp = calloc(1, sizeof(struct hca_qp));
		fake_qp_init(hosts[h].qp, &f.ctx, &f.srq, (uint32_t)h + 1);
		hosts[h].qp->lane = 1 + rnd(20);
		assert_int_equal(offload_qp_modify(hosts[h].qp, 1), 0);
		for (int s = 0; s < SLOTS; s++)
			hosts[h].slots[s].known = true; /* new memory is zero */
	}
	for (int step = 0; step < steps; step++) {
		int h = (int)rnd(QPS), s = (int)rnd(SLOTS);
		uint32_t what = rnd(100);

		if (what < 40) {
			if (!hosts[h].slots[s].busy)
				send_one(&f, h, s);
		} else if (what < 75) {
			for (uint32_t n = rnd(4); n && fake_complete(hosts[h].qp); n--)
				;
			take_responses(h, unmapped);
		} else if (what < 97) {
			fake_progress(&f.engine);
		} else if (what == 97) {
			revive(&f, h);
		} else if (what == 98 && step % 7 == 0) {
			network_runs = true;
			assert_int_equal(offload_unmap(f.ctrl, NSID), 0);
			network_runs = false;
			for (int i = 0; i < QPS; i++)
				take_responses(i, unmapped);
			unmapped = true;
			if (!hosts[h].slots[s].busy)
				send_one(&f, h, s);
			assert_int_equal(offload_map(f.ctrl, NSID, LBA, NVME_NS), 0);
		}
	}
	for (int round = 0; round < 100; round++)
		for (int h = 0; h < QPS; h++) {
			fake_settle(hosts[h].qp);
			take_responses(h, unmapped);
		}
	for (int h = 0; h < QPS; h++)
		for (int s = 0; s < SLOTS; s++)
			assert_false(hosts[h].slots[s].busy);
	expect_idle(&f);
	for (int h = 0; h < QPS; h++) {
		fake_qp_reset(hosts[h].qp);
		free(hosts[h].qp);
	}
	fixture_close(&f);
}

static void test_roomy(void **state)
{
	for (unsigned int i = 1; i <= 8; i++)
		run(i, &(struct fixture_options){ .soft = true, .depth = 64 }, 5000);
}

static void test_tight(void **state)
{
	for (unsigned int i = 1; i <= 8; i++)
		run(i,
		    &(struct fixture_options){
			    .soft = true, .depth = 2, .max_io = 16384, .staging = 16384 },
		    5000);
}

static void test_shallow(void **state)
{
	for (unsigned int i = 1; i <= 8; i++)
		run(i,
		    &(struct fixture_options){
			    .soft = true, .depth = 5, .max_io = 16384, .staging = 49152 },
		    5000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_roomy),
		cmocka_unit_test(test_tight),
		cmocka_unit_test(test_shallow),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
