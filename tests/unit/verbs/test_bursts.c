// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_bursts.c: 4096 small messages into multi-packet WRs, polled in bursts of every size through
 * the classic and the extended interface (V35): none is lost or comes twice, each WR is given back
 * once, the data are where the completions say.
 */
#include "util/bytes.h"
#include "verbs_fixture.h"

#define MESSAGES 4096
#define ALIGN	 64

struct world {
	struct rc_pair pair;
	struct ibv_cq_ex *cq;
	struct ibv_qp *qp; /* receives from pair.qp[0] */
	uint8_t *memory;
	struct ibv_mr *mr;
	uint32_t wr_bytes;
	unsigned int posted_wrs;
};

static void post_wr(struct world *w)
{
	uint32_t at = w->posted_wrs % 2 * w->wr_bytes;

	assert_int_equal(post_recv(w->qp, w->posted_wrs++, w->mr, w->memory + at, w->wr_bytes), 0);
}

static void open_world(struct world *w, uint32_t wr_bytes)
{
	struct ibv_cq_init_attr_ex cq_attr = {
		.cqe = 2 * (int)wr_bytes / ALIGN + 64,
		.wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_MP_WR,
	};
	struct ibv_qp_init_attr_ext init = {
		.mp_wr = { wr_bytes, ALIGN },
		.base = { .qp_type = IBV_QPT_RC,
			  .cap = { 16, 2, 1, 1, 0 },
			  .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_MP_WR },
	};
	struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };

	rc_pair_open(&w->pair);
	w->wr_bytes = wr_bytes;
	w->posted_wrs = 0;
	w->memory = calloc(2, wr_bytes);
	w->mr = softhca_ibv_reg_mr(w->pair.pd, w->memory, 2UL * wr_bytes, IBV_ACCESS_LOCAL_WRITE);
	assert_non_null(w->mr);
	w->cq = ibv_create_cq_ex(w->pair.context, &cq_attr);
	assert_non_null(w->cq);
	init.base.pd = w->pair.pd;
	init.base.send_cq = init.base.recv_cq = ibv_cq_ex_to_cq(w->cq);
	w->qp = create_qp_ex(w->pair.context, &init.base);
	assert_non_null(w->qp);
	assert_int_equal(init.mp_wr.wr_buffer_sz, wr_bytes);
	assert_int_equal(init.mp_wr.packet_align_sz, ALIGN);
	assert_int_equal(softhca_ibv_modify_qp(w->pair.qp[0], &reset, IBV_QP_STATE), 0);
	connect_qp(w->qp, w->pair.qp[0]->qp_num, IBV_MTU_1024);
	connect_qp(w->pair.qp[0], w->qp->qp_num, IBV_MTU_1024);
	post_wr(w);
	post_wr(w);
}

static void close_world(struct world *w)
{
	assert_int_equal(softhca_ibv_destroy_qp(w->qp), 0);
	assert_int_equal(softhca_ibv_destroy_cq(ibv_cq_ex_to_cq(w->cq)), 0);
	assert_int_equal(softhca_ibv_dereg_mr(w->mr), 0);
	rc_pair_close(&w->pair);
	free(w->memory);
}

static uint32_t length(unsigned int message)
{
	return 4 + message % 61;
}

/* as many as the send queue takes; the number is the first four bytes */
static void send_some(struct world *w, unsigned int *sent)
{
	for (struct ibv_wc wc[16]; *sent < MESSAGES;) {
		uint8_t *from = w->pair.buffer + *sent % 16 * ALIGN;

		memset(from, (uint8_t)*sent, ALIGN);
		put_le32(from, *sent);
		if (post_send(w->pair.qp[0], *sent, w->pair.mr, from, length(*sent),
			      *sent % 8 ? 0 : IBV_SEND_SIGNALED)) {
			while (ibv_poll_cq(w->pair.cq[0], 16, wc) > 0)
				;
			return;
		}
		++*sent;
	}
}

struct seen {
	unsigned int messages, wrs;
	uint64_t offset; /* where the next one must be */
};

static void check(struct world *w, struct seen *seen, uint64_t wr_id, uint64_t offset, uint32_t len,
		  unsigned int flags)
{
	const uint8_t *data = w->memory + wr_id % 2 * w->wr_bytes + offset;
	bool last = seen->offset + ALIGN == w->wr_bytes;

	assert_int_equal(wr_id, seen->wrs);
	assert_int_equal(offset, seen->offset);
	assert_int_equal(len, length(seen->messages));
	assert_int_equal(flags, last ? IBV_WC_MP_WR_CONSUMED : 0);
	assert_int_equal(get_le32(data), seen->messages);
	if (len > 4)
		assert_int_equal(data[len - 1], (uint8_t)seen->messages);
	seen->messages++;
	seen->offset += ALIGN;
	if (!last)
		return;
	seen->offset = 0;
	seen->wrs++;
	post_wr(w);
}

static int poll_classic(struct world *w, struct seen *seen, int burst)
{
	struct ibv_wc wc[512];
	int n = ibv_poll_cq(ibv_cq_ex_to_cq(w->cq), burst, wc);

	assert_true(n >= 0);
	for (int i = 0; i < n; i++) {
		assert_int_equal(wc[i].status, IBV_WC_SUCCESS);
		assert_int_equal(wc[i].opcode, IBV_WC_RECV);
		assert_int_equal(wc[i].qp_num, w->qp->qp_num);
		/* the classic completion has no offset: it is what must be */
		check(w, seen, wc[i].wr_id, seen->offset, wc[i].byte_len, wc[i].wc_flags);
	}
	return n;
}

static int poll_extended(struct world *w, struct seen *seen, int burst)
{
	int n = 0;

	if (ibv_start_poll(w->cq, NULL))
		return 0;
	do {
		assert_int_equal(w->cq->status, IBV_WC_SUCCESS);
		check(w, seen, w->cq->wr_id, ibv_wc_read_mp_wr_offset(w->cq),
		      ibv_wc_read_byte_len(w->cq), ibv_wc_read_wc_flags(w->cq));
	} while (++n < burst && !ibv_next_poll(w->cq));
	ibv_end_poll(w->cq);
	return n;
}

static void run(uint32_t wr_bytes, bool extended)
{
	struct seen seen = { 0 };
	unsigned int sent = 0, idle = 0;
	struct world w;

	open_world(&w, wr_bytes);
	for (int burst = 1; seen.messages < MESSAGES; burst = burst % 512 + 1) {
		int n;

		send_some(&w, &sent);
		n = extended ? poll_extended(&w, &seen, burst) : poll_classic(&w, &seen, burst);
		assert_true(n <= burst);
		idle = n ? 0 : idle + 1;
		assert_true(idle < 100000);
	}
	assert_int_equal(seen.wrs, MESSAGES * ALIGN / wr_bytes);
	assert_int_equal(poll_classic(&w, &seen, 1), 0);
	close_world(&w);
}

static void one_wr_for_all(void **state)
{
	run(MESSAGES * ALIGN, false);
	run(MESSAGES * ALIGN, true);
}

/* 128 was where others lost packets */
static void wrs_of_128_messages(void **state)
{
	run(128 * ALIGN, false);
	run(128 * ALIGN, true);
}

static void wrs_of_16_messages(void **state)
{
	run(16 * ALIGN, false);
	run(16 * ALIGN, true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_wr_for_all),
		cmocka_unit_test(wrs_of_128_messages),
		cmocka_unit_test(wrs_of_16_messages),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
