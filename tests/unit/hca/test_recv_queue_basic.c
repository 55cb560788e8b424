/* SPDX-License-Identifier: BSD-2-Clause */
/* test_recv_queue_basic.c: the classic receive queue, and the SRQ limit */
#include <errno.h>

#include "data_fixture.h"

static struct hca_context ctx;
static struct hca_pd pd = { .ctx = &ctx };
static struct hca_cq cq;
static struct hca_mr mr;
static struct recv_queue *rq;
static struct recv_target target;
static struct recv_message msg;
static uint8_t memory[16384], payload[8192];

static void start(uint32_t max_wr, uint32_t max_sge, bool is_srq)
{
	struct recv_queue_attr attr = {
		.pd = &pd, .max_wr = max_wr, .max_sge = max_sge, .is_srq = is_srq
	};

	fixture_context(&ctx);
	assert_int_equal(cq_init(&cq, &ctx, 64), 0);
	rq = recv_queue_create(&attr);
	assert_non_null(rq);
	memset(memory, 0, sizeof(memory));
	mr = (struct hca_mr){
		.pd = &pd,
		.addr = memory,
		.iova = (uintptr_t)memory,
		.length = sizeof(memory),
		.access = IBV_ACCESS_LOCAL_WRITE,
	};
	assert_int_equal(memory_register(&mr), 0);
	target = (struct recv_target){ .cq = &cq, .pd = &pd, .qp_num = 100 };
	msg = (struct recv_message){ 0 };
	for (size_t i = 0; i < sizeof(payload); i++)
		payload[i] = (uint8_t)(i * 7 + 1);
}

static void stop(void)
{
	memory_deregister(&mr);
	recv_queue_free(rq);
	cq_free(&cq);
}

static int post(uint64_t wr_id, uint32_t offset, uint32_t len)
{
	struct ibv_sge sge = { (uintptr_t)memory + offset, len, mr.key };
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 };

	return recv_queue_post(rq, &wr);
}

static enum recv_status packet(uint32_t flags, const uint8_t *data, uint32_t len)
{
	struct packet p = send_packet(flags, data, len);

	return recv_queue_send(rq, &msg, &target, &p);
}

static struct cqe take(void)
{
	struct cqe cqe;

	assert_int_equal(cq_take(&cq, &cqe, 1), 1);
	return cqe;
}

static void message_over_several_sges(void **state)
{
	struct ibv_sge sge[3];
	struct ibv_recv_wr wr = { .wr_id = 5, .sg_list = sge, .num_sge = 3 };
	struct cqe cqe;

	start(4, 3, false);
	sge[0] = (struct ibv_sge){ (uintptr_t)memory, 100, mr.key };
	sge[1] = (struct ibv_sge){ (uintptr_t)memory + 1000, 4000, mr.key };
	sge[2] = (struct ibv_sge){ (uintptr_t)memory + 8000, 5000, mr.key };
	assert_int_equal(recv_queue_post(rq, &wr), 0);
	assert_int_equal(packet(OPF_START, payload, 4096), RECV_OK);
	assert_true(msg.open);
	assert_true(cq_is_empty(&cq));
	assert_int_equal(packet(OPF_END, payload + 4096, 1000), RECV_OK);
	assert_false(msg.open);
	cqe = take();
	assert_int_equal(cqe.wr_id, 5);
	assert_int_equal(cqe.status, IBV_WC_SUCCESS);
	assert_int_equal(cqe.opcode, IBV_WC_RECV);
	assert_int_equal(cqe.byte_len, 5096);
	assert_int_equal(cqe.wc_flags, 0);
	assert_int_equal(cqe.qp_num, 100);
	assert_memory_equal(memory, payload, 100);
	assert_memory_equal(memory + 1000, payload + 100, 4000);
	assert_memory_equal(memory + 8000, payload + 4100, 996);
	assert_int_equal(memory[8996], 0);
	stop();
}

static void too_long(void **state)
{
	struct cqe cqe;

	start(4, 1, false);
	post(1, 0, 5000);
	assert_int_equal(packet(OPF_START, payload, 4096), RECV_OK);
	assert_int_equal(packet(OPF_END, payload, 905), RECV_TOO_LONG);
	cqe = take();
	assert_int_equal(cqe.wr_id, 1);
	assert_int_equal(cqe.status, IBV_WC_LOC_LEN_ERR);
	assert_int_equal(memory[4096], 0); /* nothing of the packet that is too long */
	assert_false(msg.open);
	stop();
}

static void protection(void **state)
{
	struct cqe cqe;

	start(4, 1, false);
	post(1, sizeof(memory) - 10, 20); /* reaches beyond the MR */
	assert_int_equal(packet(OPF_START | OPF_END, payload, 11), RECV_PROTECTION);
	cqe = take();
	assert_int_equal(cqe.wr_id, 1);
	assert_int_equal(cqe.status, IBV_WC_LOC_PROT_ERR);
	stop();

	start(4, 1, false);
	mr.access = 0; /* no LOCAL_WRITE */
	post(1, 0, 20);
	assert_int_equal(packet(OPF_START | OPF_END, payload, 11), RECV_PROTECTION);
	assert_int_equal(take().status, IBV_WC_LOC_PROT_ERR);
	stop();
}

static void write_imm_needs_no_sge(void **state) /* V11 */
{
	struct ibv_recv_wr wr = { .wr_id = 3 };
	struct packet p = send_packet(OPF_END | HDR_IMM, NULL, 0);
	struct cqe cqe;

	start(4, 1, false);
	p.imm = htobe32(99);
	assert_int_equal(recv_queue_write_imm(rq, &target, &p, 1 << 20), RECV_EMPTY);
	assert_int_equal(recv_queue_post(rq, &wr), 0);
	assert_int_equal(recv_queue_write_imm(rq, &target, &p, 1 << 20), RECV_OK);
	cqe = take();
	assert_int_equal(cqe.wr_id, 3);
	assert_int_equal(cqe.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
	assert_int_equal(cqe.byte_len, 1 << 20);
	assert_int_equal(cqe.imm_data, htobe32(99));
	assert_int_equal(cqe.wc_flags, IBV_WC_WITH_IMM);

	/* a zero-length SEND needs none either, one byte does */
	recv_queue_post(rq, &wr);
	assert_int_equal(packet(OPF_START | OPF_END, payload, 0), RECV_OK);
	assert_int_equal(take().byte_len, 0);
	recv_queue_post(rq, &wr);
	assert_int_equal(packet(OPF_START | OPF_END, payload, 1), RECV_TOO_LONG);
	stop();
}

static void depth(void **state) /* V5 */
{
	for (uint32_t max_wr = 1; max_wr <= 5; max_wr++) {
		uint64_t in = 0, out = 0;

		start(max_wr, 1, false);
		for (int round = 0; round < 10000; round++) {
			uint32_t drain = 1 + round % max_wr;

			while (in - out < max_wr)
				assert_int_equal(post(in++, 0, 8), 0);
			assert_int_equal(post(in, 0, 8), ENOMEM);
			for (uint32_t i = 0; i < drain; i++) {
				assert_int_equal(packet(OPF_START | OPF_END, payload, 8), RECV_OK);
				assert_int_equal(take().wr_id, out++);
			}
		}
		stop();
	}
}

static void limits(void **state)
{
	struct recv_queue_attr attr = { .pd = &pd, .max_wr = HCA_MAX_QP_WR + 1, .max_sge = 1 };

	assert_null(recv_queue_create(&attr));
	assert_int_equal(errno, EINVAL);
	attr.is_srq = true;
	attr.max_wr = HCA_MAX_SRQ_WR + 1;
	assert_null(recv_queue_create(&attr));
	attr.max_wr = 0;
	assert_null(recv_queue_create(&attr));
	attr.max_wr = 1;
	attr.max_sge = HCA_MAX_SGE + 1;
	assert_null(recv_queue_create(&attr));

	start(0, 0, false); /* a QP that never receives */
	assert_int_equal(post(0, 0, 0), EINVAL);
	assert_int_equal(packet(OPF_START | OPF_END, payload, 0), RECV_EMPTY);
	stop();
	start(2, HCA_MAX_SGE, false); /* V9 */
	struct ibv_sge sge[HCA_MAX_SGE + 1];
	struct ibv_recv_wr wr = { .sg_list = sge, .num_sge = HCA_MAX_SGE };

	for (int i = 0; i <= HCA_MAX_SGE; i++)
		sge[i] = (struct ibv_sge){ (uintptr_t)memory + i * 3, 2, mr.key };
	assert_int_equal(recv_queue_post(rq, &wr), 0);
	wr.num_sge++;
	assert_int_equal(recv_queue_post(rq, &wr), EINVAL);
	assert_int_equal(packet(OPF_START | OPF_END, payload, 2 * HCA_MAX_SGE), RECV_OK);
	assert_int_equal(memory[(HCA_MAX_SGE - 1) * 3 + 1], payload[2 * HCA_MAX_SGE - 1]);
	stop();
}

static void abort_and_flush(void **state)
{
	struct cqe cqe;

	start(4, 1, false);
	for (uint64_t i = 0; i < 3; i++)
		post(i, 0, 8192);
	assert_int_equal(packet(OPF_START, payload, 4096), RECV_OK);
	recv_queue_abort(rq, &msg, &target, IBV_WC_WR_FLUSH_ERR);
	assert_false(msg.open);
	recv_queue_flush(rq, &target);
	for (uint64_t i = 0; i < 3; i++) {
		cqe = take();
		assert_int_equal(cqe.wr_id, i);
		assert_int_equal(cqe.status, IBV_WC_WR_FLUSH_ERR);
		assert_int_equal(cqe.qp_num, 100);
	}
	assert_true(cq_is_empty(&cq));

	for (uint64_t i = 0; i < 4; i++)
		assert_int_equal(post(i, 0, 8192), 0);
	assert_int_equal(packet(OPF_START, payload, 4096), RECV_OK);
	recv_queue_abort(rq, &msg, &target, IBV_WC_SUCCESS);
	recv_queue_reset(rq);
	assert_true(cq_is_empty(&cq));
	for (uint64_t i = 0; i < 4; i++)
		assert_int_equal(post(i, 0, 8192), 0);
	stop();
}

static void shared_queue_interleaves_messages(void **state)
{
	struct recv_target other;
	struct recv_message other_msg = { 0 };
	struct packet p = send_packet(OPF_START, payload, 4096);

	start(4, 1, true);
	other = target;
	other.qp_num = 101;
	post(1, 0, 8192);
	post(2, 8192, 8192);
	assert_int_equal(packet(OPF_START, payload, 4096), RECV_OK);
	assert_int_equal(recv_queue_send(rq, &other_msg, &other, &p), RECV_OK);
	assert_int_equal(recv_queue_untouched(rq), 0);
	p = send_packet(OPF_END, payload, 1);
	assert_int_equal(recv_queue_send(rq, &other_msg, &other, &p), RECV_OK);
	assert_int_equal(packet(OPF_END, payload, 2), RECV_OK);

	struct cqe first = take(), second = take();

	assert_int_equal(first.wr_id, 2);
	assert_int_equal(first.qp_num, 101);
	assert_int_equal(first.byte_len, 4097);
	assert_int_equal(second.wr_id, 1);
	assert_int_equal(second.qp_num, 100);
	assert_int_equal(second.byte_len, 4098);
	stop();
}

static void resize(void **state)
{
	start(2, 1, true);
	post(0, 0, 8192);
	post(1, 0, 8192);
	assert_int_equal(packet(OPF_START, payload, 4096), RECV_OK); /* holds WR 0 */
	assert_int_equal(recv_queue_resize(rq, 1), EINVAL);
	assert_int_equal(recv_queue_resize(rq, 0), EINVAL);
	assert_int_equal(recv_queue_resize(rq, HCA_MAX_SRQ_WR + 1), EINVAL);
	assert_int_equal(recv_queue_resize(rq, 5), 0);
	for (uint64_t i = 2; i < 5; i++)
		assert_int_equal(post(i, 0, 8192), 0);
	assert_int_equal(post(5, 0, 8192), ENOMEM);
	assert_int_equal(packet(OPF_END, payload, 4), RECV_OK);
	assert_int_equal(take().wr_id, 0);
	for (uint64_t i = 1; i < 5; i++) {
		assert_int_equal(packet(OPF_START | OPF_END, payload, 4), RECV_OK);
		assert_int_equal(take().wr_id, i);
	}
	assert_int_equal(recv_queue_resize(rq, 1), 0);
	assert_int_equal(post(0, 0, 8), 0);
	assert_int_equal(post(0, 0, 8), ENOMEM);
	stop();
}

static void srq_limit(void **state) /* V15 */
{
	struct hca_srq srq = { .ctx = &ctx, .owner = &srq };

	start(4, 1, true);
	srq.rq = rq;
	for (uint64_t i = 0; i < 4; i++)
		post(i, 0, 64);
	srq.limit = 3;
	assert_int_equal(packet(OPF_START | OPF_END, payload, 4), RECV_OK);
	srq_check_limit(&srq);
	assert_int_equal(event_count, 0); /* 3 left: not below */
	assert_int_equal(srq.limit, 3);
	assert_int_equal(packet(OPF_START | OPF_END, payload, 4), RECV_OK);
	srq_check_limit(&srq);
	assert_int_equal(event_count, 1);
	assert_int_equal(events[0].type, IBV_EVENT_SRQ_LIMIT_REACHED);
	assert_ptr_equal(events[0].object, &srq);
	assert_int_equal(srq.limit, 0);
	assert_int_equal(packet(OPF_START | OPF_END, payload, 4), RECV_OK);
	srq_check_limit(&srq);
	assert_int_equal(event_count, 1); /* disarmed */
	stop();
}

static void ud_keeps_the_wr_for_the_next(void **state) /* A13 */
{
	struct packet p = send_packet(OPF_START | OPF_END, payload, 100);
	struct cqe cqe;
	uint32_t sum = 0;

	start(4, 1, false);
	target.is_ud = true;
	p.opcode = OPC_UD | OP_SEND_ONLY;
	p.ttl = 64;
	memset(p.sgid.raw + 10, 0xff, 2);
	memset(p.dgid.raw + 10, 0xff, 2);
	p.sgid.raw[12] = 10;
	p.dgid.raw[12] = 127;
	post(1, 0, 139);
	assert_int_equal(recv_queue_send(rq, &msg, &target, &p), RECV_TOO_LONG);
	assert_true(cq_is_empty(&cq));
	assert_int_equal(recv_queue_untouched(rq), 1);
	p.payload_len = 99;
	assert_int_equal(recv_queue_send(rq, &msg, &target, &p), RECV_OK);
	cqe = take();
	assert_int_equal(cqe.byte_len, 139);
	assert_int_equal(cqe.wc_flags, IBV_WC_GRH);
	assert_int_equal(memory[0], 0);
	assert_int_equal(memory[20], 0x45);
	assert_int_equal(memory[20 + 12], 10);
	assert_int_equal(memory[20 + 16], 127);
	for (int i = 0; i < 20; i += 2)
		sum += memory[20 + i] << 8 | memory[21 + i];
	assert_int_equal((sum & 0xffff) + (sum >> 16), 0xffff); /* the checksum verifies */
	assert_memory_equal(memory + 40, payload, 99);
	stop();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(message_over_several_sges),
		cmocka_unit_test(too_long),
		cmocka_unit_test(protection),
		cmocka_unit_test(write_imm_needs_no_sge),
		cmocka_unit_test(depth),
		cmocka_unit_test(limits),
		cmocka_unit_test(abort_and_flush),
		cmocka_unit_test(shared_queue_interleaves_messages),
		cmocka_unit_test(resize),
		cmocka_unit_test(srq_limit),
		cmocka_unit_test(ud_keeps_the_wr_for_the_next),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
