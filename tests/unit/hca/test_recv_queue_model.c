/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_recv_queue_model.c: random traffic of several QPs over one multi-packet queue, compared
 * with a reference model that is written from docs/mp-wr.md without looking at the code, and the
 * invariants listed there checked on what a reader sees.
 */
#include <errno.h>
#include <stdio.h>

#include "data_fixture.h"

enum { QPS = 5, WRS = 6, CANARY = 0xa5 };

static uint64_t random_state;

static uint32_t rnd(uint32_t n)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (uint32_t)(random_state >> 20) % n;
}

/* ---- the reference model: plain arithmetic on bytes -------------------------- */

struct expected {
	uint64_t wr_id;
	bool nop;
	uint64_t offset;
	uint32_t len, qp_num;
	bool more, consumed, imm;
};

struct model {
	uint32_t A, B;
	uint64_t posted[WRS];
	unsigned int n_posted;
	bool has_current;
	uint64_t current;
	uint32_t used; /* bytes of the current WR that are behind the cursor */
	struct expected out[4096];
	unsigned int n_out;
};

static void model_emit(struct model *m, struct expected e)
{
	assert_true(m->n_out < 4096);
	m->out[m->n_out++] = e;
}

/* true: the packet was taken */
static bool model_packet(struct model *m, uint32_t qp_num, uint32_t len, bool last, bool write_imm)
{
	uint32_t room = write_imm || len == 0 ? m->A : (len + m->A - 1) / m->A * m->A;

	if (m->has_current && m->used + room > m->B) {
		model_emit(m, (struct expected){ .wr_id = m->current,
						 .nop = true,
						 .offset = m->used,
						 .qp_num = qp_num,
						 .consumed = true });
		m->has_current = false;
	}
	if (!m->has_current) {
		if (!m->n_posted)
			return false;
		m->current = m->posted[0];
		memmove(m->posted, m->posted + 1, --m->n_posted * sizeof(m->posted[0]));
		m->has_current = true;
		m->used = 0;
	}
	model_emit(m, (struct expected){ .wr_id = m->current,
					 .offset = m->used,
					 .len = len,
					 .qp_num = qp_num,
					 .more = !last,
					 .consumed = m->used + room == m->B,
					 .imm = write_imm });
	m->used += room;
	if (m->used == m->B)
		m->has_current = false;
	return true;
}

/* ---- what one QP's peer sends ------------------------------------------------ */

struct sender {
	uint32_t left; /* bytes of the open message */
	uint32_t total, received;
	bool open, write_imm;
	uint8_t next_byte; /* of the stream */
	uint8_t expect_byte;
	bool retry; /* the packet that got RNR comes again */
	uint32_t retry_len;
};

struct wr_seen {
	bool live;
	int64_t last_offset;
	uint32_t pieces;
};

struct world {
	struct hca_context ctx;
	struct hca_pd pd;
	struct hca_cq cq;
	struct hca_mr mr;
	struct recv_queue *rq;
	struct recv_target target[QPS];
	struct recv_message msg[QPS];
	struct sender sender[QPS];
	struct model model;
	struct wr_seen seen[WRS];
	uint8_t *memory;
	uint32_t A, B, mtu, units;
	unsigned int free_wrs; /* bit mask: buffers the application may post */
	unsigned int model_read;
	bool one_unit_packets;
};

static void post_some(struct world *w)
{
	for (unsigned int i = 0; i < WRS; i++) {
		uint8_t *buffer = w->memory + (size_t)i * w->B;
		uint32_t cut = rnd(w->B);
		struct ibv_sge sge[2] = { { (uintptr_t)buffer, cut, w->mr.key },
					  { (uintptr_t)buffer + cut, w->B - cut, w->mr.key } };
		struct ibv_recv_wr wr = { .wr_id = i, .sg_list = sge, .num_sge = 2 };

		if (!(w->free_wrs & 1U << i) || rnd(3) == 0)
			continue;
		memset(buffer, CANARY, w->B);
		assert_int_equal(recv_queue_post(w->rq, &wr), 0);
		w->model.posted[w->model.n_posted++] = i;
		w->free_wrs &= ~(1U << i);
		w->seen[i] = (struct wr_seen){ .live = true, .last_offset = -1 };
	}
	assert_int_equal(recv_queue_untouched(w->rq), w->model.n_posted);
	if (!w->free_wrs) { /* every slot is taken: one more must be refused */
		struct ibv_sge sge = { (uintptr_t)w->memory, w->B, w->mr.key };
		struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 };

		assert_int_equal(recv_queue_post(w->rq, &wr), ENOMEM);
	}
}

static void send_one(struct world *w, unsigned int q)
{
	struct sender *s = &w->sender[q];
	static uint8_t payload[4096];
	bool first = !s->open && !s->retry, last, taken;
	struct packet p;
	uint32_t len;
	enum recv_status status;

	if (first) {
		s->write_imm = rnd(8) == 0;
		s->total = s->write_imm	 ? rnd(1 << 20)
			   : rnd(4) == 0 ? rnd(8 * w->mtu)
					 : rnd(w->mtu + 1);
		if (w->one_unit_packets)
			s->total = s->write_imm ? 5 : rnd(w->A + 1);
		s->left = s->total;
	}
	len = s->write_imm ? 0 : s->left < w->mtu ? s->left : w->mtu;
	last = s->write_imm || len == s->left;
	for (uint32_t i = 0; i < len; i++)
		payload[i] = (uint8_t)(s->next_byte + i);
	p = send_packet((s->open ? 0 : OPF_START) | (last ? OPF_END : 0), payload, len);

	taken = model_packet(&w->model, w->target[q].qp_num, s->write_imm ? s->total : len, last,
			     s->write_imm);
	if (s->write_imm)
		status = recv_queue_write_imm(w->rq, &w->target[q], &p, s->total);
	else
		status = recv_queue_send(w->rq, &w->msg[q], &w->target[q], &p);
	assert_int_equal(status, taken ? RECV_OK : RECV_EMPTY);
	s->retry = !taken;
	if (!taken)
		return;
	s->left -= len;
	s->next_byte += len;
	s->open = !last;
}

/* the reader: checks one completion against the model and against the invariants */
static void check_completion(struct world *w, const struct cqe *cqe)
{
	struct expected *e;
	struct wr_seen *seen;
	struct sender *s;
	const uint8_t *data;

	assert_true(w->model_read < w->model.n_out);
	e = &w->model.out[w->model_read++];
	assert_int_equal(cqe->status, IBV_WC_SUCCESS);
	assert_int_equal(cqe->wr_id, e->wr_id);
	assert_int_equal(cqe->opcode, e->nop   ? IBV_WC_RECV_NOP
				      : e->imm ? IBV_WC_RECV_RDMA_WITH_IMM
					       : IBV_WC_RECV);
	assert_int_equal(cqe->mp_wr_offset, e->offset);
	assert_int_equal(cqe->byte_len, e->len);
	assert_int_equal(cqe->qp_num, e->qp_num);
	assert_int_equal(!!(cqe->wc_flags & IBV_WC_MP_WR_MORE_IN_MSG), e->more);
	assert_int_equal(!!(cqe->wc_flags & IBV_WC_MP_WR_CONSUMED), e->consumed);

	/* the invariants, from the reader's side only */
	seen = &w->seen[cqe->wr_id];
	assert_true(seen->live); /* nothing after CONSUMED */
	assert_true((int64_t)cqe->mp_wr_offset > seen->last_offset);
	assert_int_equal(cqe->mp_wr_offset % w->A, 0);
	seen->last_offset = cqe->mp_wr_offset;
	assert_true(++seen->pieces <= w->units);
	s = &w->sender[cqe->qp_num - 1000];
	if (cqe->opcode == IBV_WC_RECV_NOP) {
		assert_false(w->one_unit_packets);
		assert_int_equal(cqe->wc_flags, IBV_WC_MP_WR_CONSUMED);
	} else if (cqe->opcode == IBV_WC_RECV) {
		uint32_t end = cqe->byte_len;

		data = w->memory + cqe->wr_id * (size_t)w->B + cqe->mp_wr_offset;
		for (uint32_t i = 0; i < cqe->byte_len; i++)
			if (data[i] != (uint8_t)(s->expect_byte + i))
				fail_msg("byte %u of a piece of QP %u is wrong", i, cqe->qp_num);
		s->expect_byte += cqe->byte_len;
		s->received += cqe->byte_len;
		/* up to the next multiple of A nothing may have been written */
		for (; end % w->A || !end; end++)
			assert_int_equal(data[end], CANARY);
		if (!(cqe->wc_flags & IBV_WC_MP_WR_MORE_IN_MSG))
			s->received = 0;
	}
	if (!(cqe->wc_flags & IBV_WC_MP_WR_CONSUMED))
		return;
	seen->live = false;
	w->free_wrs |= 1U << cqe->wr_id;
}

static void poll_some(struct world *w, int count)
{
	struct cqe out[64];
	int n;

	n = cq_take(&w->cq, out, count < 64 ? count : 64);
	assert_true(n >= 0);
	for (int i = 0; i < n; i++)
		check_completion(w, &out[i]);
	if (w->model_read == w->model.n_out)
		w->model.n_out = w->model_read = 0;
}

static void run(uint64_t seed, uint32_t buffer, uint32_t align, uint32_t mtu, bool one_unit)
{
	static struct world world;
	struct world *w = &world;
	struct recv_queue_attr attr = {
		.max_wr = WRS,
		.max_sge = 2,
		.is_srq = true,
		.multi_packet = true,
		.mp_wr = { buffer, align },
	};

	random_state = seed * 0x9e3779b97f4a7c15 + 1;
	memset(w, 0, sizeof(*w));
	fixture_context(&w->ctx);
	w->pd.ctx = &w->ctx;
	attr.pd = &w->pd;
	assert_int_equal(recv_queue_round_mp_wr(&attr.mp_wr), 0);
	w->A = w->model.A = attr.mp_wr.packet_align_sz;
	w->B = w->model.B = attr.mp_wr.wr_buffer_sz;
	w->units = w->B / w->A;
	w->mtu = mtu;
	w->one_unit_packets = one_unit;
	w->free_wrs = (1U << WRS) - 1;
	w->rq = recv_queue_create(&attr);
	/* "a CQ of max_wr * N entries never overruns" */
	assert_int_equal(cq_init(&w->cq, &w->ctx, WRS * w->units), 0);
	w->memory = malloc((size_t)WRS * w->B);
	w->mr = (struct hca_mr){ .pd = &w->pd,
				 .addr = w->memory,
				 .iova = (uintptr_t)w->memory,
				 .length = (uint64_t)WRS * w->B,
				 .access = IBV_ACCESS_LOCAL_WRITE };
	assert_int_equal(memory_register(&w->mr), 0);
	for (unsigned int q = 0; q < QPS; q++) {
		w->target[q] =
			(struct recv_target){ .cq = &w->cq, .pd = &w->pd, .qp_num = 1000 + q };
		w->sender[q].next_byte = w->sender[q].expect_byte = (uint8_t)(q * 50);
	}
	for (int step = 0; step < 20000; step++) {
		switch (rnd(4)) {
		case 0:
			post_some(w);
			break;
		case 1:
			poll_some(w, 1 + rnd(64));
			break;
		default:
			if (w->model.n_out < 2000)
				send_one(w, rnd(QPS));
			else
				poll_some(w, 64);
		}
		assert_int_equal(w->cq.tail - w->cq.head, w->model.n_out - w->model_read);
		assert_int_equal(event_count, 0);
	}
	while (!cq_is_empty(&w->cq))
		poll_some(w, 64);
	assert_int_equal(w->model.n_out, 0);
	memory_deregister(&w->mr);
	recv_queue_free(w->rq);
	cq_free(&w->cq);
	free(w->memory);
}

static void random_traffic(void **state)
{
	static const struct {
		uint32_t buffer, align, mtu;
	} geometry[] = {
		{ 65536, 512, 4096 }, { 65536, 64, 1024 },    { 4096, 4096, 4096 },
		{ 8192, 4096, 4096 }, { 5000, 100, 1024 },    { 12288, 4096, 256 },
		{ 4096, 64, 4096 },   { 100000, 2048, 2048 },
	};

	for (uint64_t seed = 1; seed <= 4; seed++)
		for (size_t g = 0; g < sizeof(geometry) / sizeof(geometry[0]); g++)
			run(seed * 100 + g, geometry[g].buffer, geometry[g].align, geometry[g].mtu,
			    false);
}

static void no_nop_when_all_packets_need_one_unit(void **state)
{
	for (uint64_t seed = 1; seed <= 4; seed++)
		run(seed, 65536, 1024, 1024, true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_traffic),
		cmocka_unit_test(no_nop_when_all_packets_need_one_unit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
