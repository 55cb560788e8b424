/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_recv_queue_mp.c: multi-packet receive queues: the worked examples A and B of docs/mp-wr.md
 * literally, and every error rule there.
 */
#include <errno.h>

#include "data_fixture.h"
#include "util/bytes.h"

#define MTU 4096
#define M   IBV_WC_MP_WR_MORE_IN_MSG
#define C   IBV_WC_MP_WR_CONSUMED

enum { BUFFERS = 4, BUFFER_MAX = 1 << 20 };

static struct hca_context ctx;
static struct hca_pd pd = { .ctx = &ctx };
static struct hca_cq cq;
static struct hca_mr mr;
static struct recv_queue *rq;
static struct recv_target target[2];
static struct recv_message msg[2];
static uint8_t *memory, payload[MTU + 1];
static uint32_t buffer_sz;

static void start(uint32_t buffer, uint32_t align, bool is_srq)
{
	struct recv_queue_attr attr = {
		.pd = &pd,
		.max_wr = BUFFERS,
		.max_sge = 4,
		.is_srq = is_srq,
		.multi_packet = true,
		.mp_wr = { buffer, align },
	};

	fixture_context(&ctx);
	assert_int_equal(recv_queue_round_mp_wr(&attr.mp_wr), 0);
	buffer_sz = attr.mp_wr.wr_buffer_sz;
	assert_int_equal(cq_init(&cq, &ctx, BUFFERS * (buffer_sz / attr.mp_wr.packet_align_sz)), 0);
	rq = recv_queue_create(&attr);
	assert_non_null(rq);
	memory = calloc(BUFFERS, BUFFER_MAX);
	mr = (struct hca_mr){
		.pd = &pd,
		.addr = memory,
		.iova = (uintptr_t)memory,
		.length = BUFFERS * BUFFER_MAX,
		.access = IBV_ACCESS_LOCAL_WRITE,
	};
	assert_int_equal(memory_register(&mr), 0);
	for (int i = 0; i < 2; i++) {
		target[i] = (struct recv_target){ .cq = &cq, .pd = &pd, .qp_num = 100 + i };
		msg[i] = (struct recv_message){ 0 };
	}
	for (size_t i = 0; i < sizeof(payload); i++)
		payload[i] = (uint8_t)(i * 7 + 1);
}

static void stop(void)
{
	memory_deregister(&mr);
	recv_queue_free(rq);
	cq_free(&cq);
	free(memory);
}

/* post buffer number @n; its wr_id is n */
static int post(unsigned int n)
{
	struct ibv_sge sge = { (uintptr_t)memory + n * BUFFER_MAX, buffer_sz, mr.key };
	struct ibv_recv_wr wr = { .wr_id = n, .sg_list = &sge, .num_sge = 1 };

	return recv_queue_post(rq, &wr);
}

static enum recv_status packet_on(int qp, uint32_t flags, uint32_t len)
{
	struct packet p = send_packet(flags, payload, len);

	return recv_queue_send(rq, &msg[qp], &target[qp], &p);
}

/* one whole message, cut into packets of the path MTU */
static void message_on(int qp, uint32_t len)
{
	uint32_t flags = OPF_START;

	while (len > MTU) {
		assert_int_equal(packet_on(qp, flags, MTU), RECV_OK);
		len -= MTU;
		flags = 0;
	}
	assert_int_equal(packet_on(qp, flags | OPF_END, len), RECV_OK);
}

static struct cqe take(void)
{
	struct cqe cqe;

	assert_int_equal(cq_take(&cq, &cqe, 1), 1);
	return cqe;
}

static void expect_on(int qp, uint64_t wr_id, uint64_t offset, uint32_t len, unsigned int flags)
{
	struct cqe cqe = take();

	assert_int_equal(cqe.status, IBV_WC_SUCCESS);
	assert_int_equal(cqe.opcode, IBV_WC_RECV);
	assert_int_equal(cqe.wr_id, wr_id);
	assert_int_equal(cqe.mp_wr_offset, offset);
	assert_int_equal(cqe.byte_len, len);
	assert_int_equal(cqe.wc_flags, flags);
	assert_int_equal(cqe.qp_num, 100 + qp);
	assert_memory_equal(memory + wr_id * BUFFER_MAX + offset, payload, len);
}

static void expect(uint64_t wr_id, uint64_t offset, uint32_t len, unsigned int flags)
{
	expect_on(0, wr_id, offset, len, flags);
}

static void expect_nop(uint64_t wr_id, uint64_t offset)
{
	struct cqe cqe = take();

	assert_int_equal(cqe.status, IBV_WC_SUCCESS);
	assert_int_equal(cqe.opcode, IBV_WC_RECV_NOP);
	assert_true(cqe.opcode & IBV_WC_RECV);
	assert_int_equal(cqe.wr_id, wr_id);
	assert_int_equal(cqe.mp_wr_offset, offset);
	assert_int_equal(cqe.byte_len, 0);
	assert_int_equal(cqe.wc_flags, C);
	assert_int_equal(cqe.qp_num, 100);
}

static void expect_error(uint64_t wr_id, enum ibv_wc_status status)
{
	struct cqe cqe = take();

	assert_int_equal(cqe.status, status);
	assert_int_equal(cqe.wr_id, wr_id);
	assert_int_equal(cqe.qp_num, 100);
}

static void expect_nothing(void)
{
	assert_true(cq_is_empty(&cq));
}

/* move the cursor of the current WR to @unit with messages of one unit */
static void fill_to(unsigned int unit)
{
	for (unsigned int i = 0; i < unit; i++) {
		message_on(0, 512);
		expect(0, i * 512, 512, 0);
	}
}

/* ---- example A: B = 64 KiB, A = 512 ----------------------------------------- */

static void example_a_small_messages(void **state)
{
	start(65536, 512, false);
	post(0);
	for (int i = 0; i < 128; i++)
		message_on(0, 512);
	for (int i = 0; i < 127; i++)
		expect(0, i * 512, 512, 0);
	expect(0, 65024, 512, C);
	expect_nothing();
	stop();
}

static void example_a_large_messages(void **state)
{
	start(65536, 512, false);
	post(0);
	post(1);
	message_on(0, 12000);
	expect(0, 0, 4096, M);
	expect(0, 4096, 4096, M);
	expect(0, 8192, 3808, 0);
	message_on(0, 60000);
	for (int i = 0; i < 12; i++)
		expect(0, 12288 + i * 4096, 4096, M);
	expect(0, 61440, 4096, M | C);
	expect(1, 0, 4096, M);
	expect(1, 4096, 2656, 0);
	expect_nothing();
	stop();
}

static void example_a_nop_between_messages(void **state)
{
	start(65536, 512, false);
	post(0);
	post(1);
	fill_to(124);
	message_on(0, 4096);
	expect_nop(0, 63488);
	expect(1, 0, 4096, 0);
	expect_nothing();
	stop();
}

static void example_a_nop_in_mid_message(void **state)
{
	start(65536, 512, false);
	post(0);
	post(1);
	fill_to(114);
	message_on(0, 12000);
	expect(0, 58368, 4096, M);
	expect_nop(0, 62464);
	expect(1, 0, 4096, M);
	expect(1, 4096, 3808, 0);
	expect_nothing();
	stop();
}

static void example_a_nop_then_rnr(void **state)
{
	start(65536, 512, false);
	post(0);
	fill_to(124);
	assert_int_equal(packet_on(0, OPF_START | OPF_END, 4096), RECV_EMPTY);
	expect_nop(0, 63488); /* the buffer is back even when nothing else is posted */
	assert_int_equal(packet_on(0, OPF_START | OPF_END, 4096), RECV_EMPTY);
	expect_nothing();
	post(1);
	message_on(0, 4096); /* the retransmission */
	expect(1, 0, 4096, 0);
	stop();
}

static void example_a_zero_length(void **state)
{
	start(65536, 512, false);
	post(0);
	fill_to(5);
	message_on(0, 0);
	expect(0, 2560, 0, 0);
	message_on(0, 1);
	expect(0, 3072, 1, 0); /* unit 6 */
	for (int i = 7; i < 127; i++) {
		message_on(0, 512);
		expect(0, i * 512, 512, 0);
	}
	message_on(0, 0);
	expect(0, 65024, 0, C); /* opcode RECV tells it from a NOP */
	stop();
}

static void example_a_two_qps_on_an_srq(void **state)
{
	start(65536, 512, true);
	post(0);
	assert_int_equal(packet_on(0, OPF_START, 4096), RECV_OK);
	assert_int_equal(packet_on(1, OPF_START, 4096), RECV_OK);
	assert_int_equal(packet_on(0, 0, 4096), RECV_OK);
	assert_int_equal(packet_on(1, OPF_END, 904), RECV_OK);
	assert_int_equal(packet_on(0, OPF_END, 3808), RECV_OK);
	expect_on(0, 0, 0, 4096, M);
	expect_on(1, 0, 4096, 4096, M);
	expect_on(0, 0, 8192, 4096, M);
	expect_on(1, 0, 12288, 904, 0);
	expect_on(0, 0, 13312, 3808, 0);
	expect_nothing();
	stop();
}

/* ---- example B: B = 1 MiB, A = 4 KiB ---------------------------------------- */

static void example_b_pages(void **state)
{
	start(1 << 20, 4096, false);
	post(0);
	post(1);
	for (int i = 0; i < 256; i++)
		message_on(0, 1 + i * 16);
	for (int i = 0; i < 255; i++)
		expect(0, i * 4096, 1 + i * 16, 0);
	expect(0, 1044480, 1 + 255 * 16, C);
	stop();
}

static void example_b_one_byte_more(void **state)
{
	start(1 << 20, 4096, false);
	post(0);
	post(1);
	message_on(0, (1 << 20) + 1);
	for (int i = 0; i < 255; i++)
		expect(0, i * 4096, 4096, M);
	expect(0, 1044480, 4096, M | C);
	expect(1, 0, 1, 0);
	expect_nothing();
	stop();
}

static void example_b_ud(void **state)
{
	struct packet p = send_packet(OPF_START | OPF_END, payload, 4096);
	struct cqe cqe;

	start(1 << 20, 4096, false);
	target[0].is_ud = true;
	p.opcode = OPC_UD | OP_SEND_ONLY;
	p.src_qpn = 55;
	p.sgid.raw[15] = 1;
	p.dgid.raw[0] = 0xfe;
	post(0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(recv_queue_send(rq, &msg[0], &target[0], &p), RECV_OK);
	take();
	cqe = take();
	assert_int_equal(cqe.mp_wr_offset, 8192); /* 4136 bytes are 2 units */
	assert_int_equal(cqe.byte_len, 4136);
	assert_int_equal(cqe.wc_flags, IBV_WC_GRH);
	assert_int_equal(cqe.src_qp, 55);
	assert_int_equal(memory[8192] >> 4, 6);
	assert_memory_equal(memory + 8192 + 8, p.sgid.raw, 16);
	assert_memory_equal(memory + 8192 + 24, p.dgid.raw, 16);
	assert_memory_equal(memory + 8192 + 40, payload, 4096);
	stop();
}

/* ---- the rest of the rule ---------------------------------------------------- */

static void write_with_immediate(void **state)
{
	struct packet p = send_packet(OPF_END | HDR_IMM, payload, 0);
	struct cqe cqe;

	start(65536, 512, false);
	assert_int_equal(recv_queue_write_imm(rq, &target[0], &p, 1 << 20), RECV_EMPTY);
	post(0);
	message_on(0, 513);
	take();
	p.imm = htobe32(77);
	assert_int_equal(recv_queue_write_imm(rq, &target[0], &p, 1 << 20), RECV_OK);
	cqe = take();
	assert_int_equal(cqe.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
	assert_int_equal(cqe.byte_len, 1 << 20);
	assert_int_equal(cqe.imm_data, htobe32(77));
	assert_int_equal(cqe.wc_flags, IBV_WC_WITH_IMM);
	assert_int_equal(cqe.mp_wr_offset, 1024);
	message_on(0, 1);
	expect(0, 1536, 1, 0); /* it took one unit */
	stop();
}

static int solicited_events;

static void count_solicited(struct hca_cq *which)
{
	solicited_events++;
}

static void last_piece_only(void **state)
{
	struct packet p = send_packet(OPF_START, payload, MTU);
	struct cqe cqe;

	start(65536, 512, false);
	cq.notify = count_solicited;
	solicited_events = 0;
	cq_arm(&cq, true);
	post(0);
	p.solicited = true; /* a hostile FIRST must not wake anybody */
	assert_int_equal(recv_queue_send(rq, &msg[0], &target[0], &p), RECV_OK);
	assert_true(msg[0].open);
	assert_int_equal(solicited_events, 0);
	p.flags = OPF_END | OPF_SEND | HDR_IETH;
	p.inv_rkey = 0x1234;
	p.payload_len = 8;
	assert_int_equal(recv_queue_send(rq, &msg[0], &target[0], &p), RECV_OK);
	assert_false(msg[0].open);
	assert_int_equal(solicited_events, 1);
	cqe = take();
	assert_int_equal(cqe.wc_flags, M);
	cqe = take();
	assert_int_equal(cqe.wc_flags, IBV_WC_WITH_INV);
	assert_int_equal(cqe.invalidated_rkey, 0x1234);
	stop();
}

static void pieces_cross_sges(void **state)
{
	struct ibv_sge sge[4];
	struct ibv_recv_wr wr = { .wr_id = 9, .sg_list = sge, .num_sge = 4 };
	struct cqe cqe;

	start(8192, 512, false);
	/* 100 + 0 + 4000 + 4092 = 8192, scattered in memory */
	sge[0] = (struct ibv_sge){ (uintptr_t)memory, 100, mr.key };
	sge[1] = (struct ibv_sge){ 0, 0, 0 };
	sge[2] = (struct ibv_sge){ (uintptr_t)memory + 10000, 4000, mr.key };
	sge[3] = (struct ibv_sge){ (uintptr_t)memory + 20000, 4092, mr.key };
	assert_int_equal(recv_queue_post(rq, &wr), 0);
	message_on(0, 150);
	message_on(0, 4096);
	cqe = take();
	assert_int_equal(cqe.mp_wr_offset, 0);
	assert_memory_equal(memory, payload, 100);
	assert_memory_equal(memory + 10000, payload + 100, 50);
	cqe = take();
	assert_int_equal(cqe.mp_wr_offset, 512);
	assert_memory_equal(memory + 10000 + 412, payload, 4000 - 412);
	assert_memory_equal(memory + 20000, payload + 4000 - 412, 4096 - (4000 - 412));
	stop();
}

static void rnr_in_mid_message(void **state)
{
	start(8192, 4096, false);
	post(0);
	assert_int_equal(packet_on(0, OPF_START, 4096), RECV_OK);
	assert_int_equal(packet_on(0, 0, 4096), RECV_OK);
	assert_int_equal(packet_on(0, OPF_END, 10), RECV_EMPTY);
	assert_true(msg[0].open);
	expect(0, 0, 4096, M);
	expect(0, 4096, 4096, M | C);
	expect_nothing();
	post(1);
	assert_int_equal(packet_on(0, OPF_END, 10), RECV_OK);
	expect(1, 0, 10, 0);
	stop();
}

static void geometry(void **state)
{
	static const struct {
		uint32_t buffer, align;
		int ret;
		uint32_t buffer_out, align_out;
	} cases[] = {
		{ 65536, 512, 0, 65536, 512 },
		{ 65536, 1, 0, 65536, 64 },
		{ 1, 1, 0, 64, 64 },
		{ 65537, 513, 0, 66560, 1024 },
		{ 100, 100, 0, 128, 128 },
		{ HCA_MAX_MP_WR_BUFFER, HCA_MAX_MP_WR_ALIGN, 0, HCA_MAX_MP_WR_BUFFER,
		  HCA_MAX_MP_WR_ALIGN },
		{ 0, 512, EINVAL },
		{ 65536, 0, EINVAL },
		{ 0, 0, EINVAL },
		{ 512, 513, EINVAL },
		{ HCA_MAX_MP_WR_BUFFER + 1, 512, EINVAL },
		{ 1 << 20, HCA_MAX_MP_WR_ALIGN + 1, EINVAL },
		{ UINT32_MAX, UINT32_MAX, EINVAL },
		{ UINT32_MAX, 1, EINVAL },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct ibv_mp_wr_attr attr = { cases[i].buffer, cases[i].align };

		assert_int_equal(recv_queue_round_mp_wr(&attr), cases[i].ret);
		assert_int_equal(attr.wr_buffer_sz,
				 cases[i].ret ? cases[i].buffer : cases[i].buffer_out);
		assert_int_equal(attr.packet_align_sz,
				 cases[i].ret ? cases[i].align : cases[i].align_out);
	}
}

static void posting(void **state)
{
	struct ibv_sge sge[5];
	struct ibv_recv_wr wr = { .sg_list = sge, .num_sge = 1 };

	start(65536, 512, false);
	for (int i = 0; i < 5; i++)
		sge[i] = (struct ibv_sge){ (uintptr_t)memory, 65536, mr.key };
	sge[0].length = 65535;
	assert_int_equal(recv_queue_post(rq, &wr), EINVAL);
	sge[0].length = 65537;
	assert_int_equal(recv_queue_post(rq, &wr), EINVAL);
	wr.num_sge = 0;
	assert_int_equal(recv_queue_post(rq, &wr), EINVAL);
	wr.num_sge = 5; /* max_sge is 4 */
	assert_int_equal(recv_queue_post(rq, &wr), EINVAL);
	wr.num_sge = -1;
	assert_int_equal(recv_queue_post(rq, &wr), EINVAL);
	/* a sum that wraps 32 bits is not wr_buffer_sz */
	wr.num_sge = 3;
	sge[0].length = 0x80000000;
	sge[1].length = 0x80000000;
	assert_int_equal(recv_queue_post(rq, &wr), EINVAL);
	for (unsigned int i = 0; i < BUFFERS; i++)
		assert_int_equal(post(i), 0);
	assert_int_equal(recv_queue_untouched(rq), BUFFERS);
	assert_int_equal(post(0), ENOMEM);
	assert_int_equal(recv_queue_resize(rq, 8), EOPNOTSUPP);
	stop();
}

static void slot_is_held_until_polled(void **state)
{
	start(8192, 4096, false);
	for (unsigned int i = 0; i < BUFFERS; i++)
		assert_int_equal(post(i), 0);
	message_on(0, 8192); /* consumes WR 0 */
	assert_int_equal(recv_queue_untouched(rq), BUFFERS - 1);
	assert_int_equal(post(0), ENOMEM);
	expect(0, 0, 4096, M);
	assert_int_equal(post(0), ENOMEM);
	expect(0, 4096, 4096, C);
	assert_int_equal(post(0), 0);
	assert_int_equal(post(1), ENOMEM);
	stop();
}

static void packet_longer_than_a_wr(void **state)
{
	start(512, 64, false);
	assert_int_equal(packet_on(0, OPF_START | OPF_END, 513), RECV_EMPTY);
	post(0);
	post(1);
	assert_int_equal(packet_on(0, OPF_START | OPF_END, 513), RECV_TOO_LONG);
	expect_error(0, IBV_WC_LOC_LEN_ERR);
	message_on(0, 64);
	take();
	assert_int_equal(packet_on(0, OPF_START | OPF_END, 513), RECV_TOO_LONG);
	expect_error(1, IBV_WC_LOC_LEN_ERR); /* the current one */
	expect_nothing();

	target[0].is_ud = true; /* UD: dropped, nothing happens */
	post(2);
	assert_int_equal(packet_on(0, OPF_START | OPF_END, 512), RECV_TOO_LONG);
	expect_nothing();
	assert_int_equal(recv_queue_untouched(rq), 1);
	stop();
}

static void protection_on_an_srq_retires_the_wr(void **state)
{
	struct ibv_sge sge;
	struct ibv_recv_wr wr = { .wr_id = 42, .sg_list = &sge, .num_sge = 1 };

	start(8192, 512, true);
	sge = (struct ibv_sge){ (uintptr_t)memory, 8192, mr.key ^ 1 };
	assert_int_equal(recv_queue_post(rq, &wr), 0);
	post(1);
	assert_int_equal(packet_on(0, OPF_START | OPF_END, 100), RECV_PROTECTION);
	expect_error(42, IBV_WC_LOC_PROT_ERR);
	message_on(0, 100); /* goes on with the next */
	expect(1, 0, 100, 0);
	stop();
}

static void flush_current_first(void **state)
{
	start(8192, 512, false);
	for (unsigned int i = 0; i < 3; i++)
		post(i);
	assert_int_equal(packet_on(0, OPF_START, 4096), RECV_OK);
	recv_queue_abort(rq, &msg[0], &target[0], IBV_WC_WR_FLUSH_ERR);
	recv_queue_flush(rq, &target[0]);
	expect(0, 0, 4096, M); /* what was reported stays valid */
	for (unsigned int i = 0; i < 3; i++)
		expect_error(i, IBV_WC_WR_FLUSH_ERR);
	expect_nothing();
	for (unsigned int i = 0; i < BUFFERS; i++)
		assert_int_equal(post(i), 0); /* all slots are free again */
	stop();
}

static void reset_forgets_without_completions(void **state)
{
	start(8192, 512, false);
	for (unsigned int i = 0; i < BUFFERS; i++)
		post(i);
	message_on(0, 10);
	take();
	recv_queue_reset(rq);
	expect_nothing();
	assert_int_equal(recv_queue_untouched(rq), 0);
	for (unsigned int i = 0; i < BUFFERS; i++)
		assert_int_equal(post(i), 0);
	message_on(0, 10);
	expect(0, 0, 10, 0);
	stop();
}

static void many_small_messages_in_bursts(void **state) /* V35 */
{
	int64_t last_offset = -1;
	unsigned int consumed = 0, seen = 0;
	struct cqe out[512];

	start(4096 * 64, 64, false);
	post(0);
	for (int i = 0; i < 4096; i++)
		message_on(0, i % 64);
	for (int burst = 1; seen<4096; burst = burst * 2> 512 ? 1 : burst * 2) {
		int n = cq_take(&cq, out, burst);

		assert_true(n > 0);
		for (int i = 0; i < n; i++, seen++) {
			assert_true((int64_t)out[i].mp_wr_offset > last_offset);
			last_offset = out[i].mp_wr_offset;
			assert_int_equal(out[i].byte_len, seen % 64);
			consumed += !!(out[i].wc_flags & C);
		}
	}
	assert_int_equal(consumed, 1);
	expect_nothing();
	stop();
}

static void statistics(void **state)
{
	struct recv_queue_stats stats;

	start(8192, 512, false);
	post(0);
	post(1);
	message_on(0, 4097);
	message_on(0, 4096);
	recv_queue_get_stats(rq, &stats);
	assert_int_equal(stats.packets, 3);
	assert_int_equal(stats.wrs, 1);
	assert_int_equal(stats.nops, 1);
	stop();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(example_a_small_messages),
		cmocka_unit_test(example_a_large_messages),
		cmocka_unit_test(example_a_nop_between_messages),
		cmocka_unit_test(example_a_nop_in_mid_message),
		cmocka_unit_test(example_a_nop_then_rnr),
		cmocka_unit_test(example_a_zero_length),
		cmocka_unit_test(example_a_two_qps_on_an_srq),
		cmocka_unit_test(example_b_pages),
		cmocka_unit_test(example_b_one_byte_more),
		cmocka_unit_test(example_b_ud),
		cmocka_unit_test(write_with_immediate),
		cmocka_unit_test(last_piece_only),
		cmocka_unit_test(pieces_cross_sges),
		cmocka_unit_test(rnr_in_mid_message),
		cmocka_unit_test(geometry),
		cmocka_unit_test(posting),
		cmocka_unit_test(slot_is_held_until_polled),
		cmocka_unit_test(packet_longer_than_a_wr),
		cmocka_unit_test(protection_on_an_srq_retires_the_wr),
		cmocka_unit_test(flush_current_first),
		cmocka_unit_test(reset_forgets_without_completions),
		cmocka_unit_test(many_small_messages_in_bursts),
		cmocka_unit_test(statistics),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
