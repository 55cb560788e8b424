/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_threads.c: several threads at once on one device and one engine, which has a thread of its
 * own too: traffic, objects that come and go, events. For TSan and ASan above all.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "verbs_fixture.h"

enum { PAIRS = 2, ITERATIONS = 1000 };

static struct ibv_context *context;
static atomic_bool stop;
static atomic_int failures;

/* cmocka's assertions belong to the main thread */
#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			print_error("line %d: %s\n", __LINE__, #condition);                        \
			failures++;                                                                \
			return NULL;                                                               \
		}                                                                                  \
	} while (0)

struct traffic {
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_cq *cq;
	struct ibv_qp *qp[2];
	uint8_t buffer[65536];
};

static void open_traffic(struct traffic *t)
{
	t->pd = softhca_ibv_alloc_pd(context);
	t->mr = softhca_ibv_reg_mr(t->pd, t->buffer, sizeof(t->buffer), IBV_ACCESS_LOCAL_WRITE);
	t->cq = softhca_ibv_create_cq(context, 64, NULL, NULL, 0);
	for (int i = 0; i < 2; i++) {
		struct ibv_qp_init_attr init = {
			.qp_type = IBV_QPT_RC,
			.cap = { 4, 4, 1, 1, 0 },
			.send_cq = t->cq,
			.recv_cq = t->cq,
			.sq_sig_all = 1,
		};

		t->qp[i] = softhca_ibv_create_qp(t->pd, &init);
		assert_non_null(t->qp[i]);
	}
	for (int i = 0; i < 2; i++)
		connect_qp(t->qp[i], t->qp[!i]->qp_num, IBV_MTU_1024);
}

static void close_traffic(struct traffic *t)
{
	for (int i = 0; i < 2; i++)
		assert_int_equal(softhca_ibv_destroy_qp(t->qp[i]), 0);
	assert_int_equal(softhca_ibv_destroy_cq(t->cq), 0);
	assert_int_equal(softhca_ibv_dereg_mr(t->mr), 0);
	assert_int_equal(softhca_ibv_dealloc_pd(t->pd), 0);
}

static void *run_traffic(void *arg)
{
	struct traffic *t = arg;
	struct ibv_wc wc[2];

	for (int i = 0; i < ITERATIONS; i++) {
		uint32_t len = 1 + (uint32_t)i * 31 % 8000;
		int got = 0;

		memset(t->buffer, i, len);
		CHECK(!post_recv(t->qp[1], i, t->mr, t->buffer + 32768, 8192));
		CHECK(!post_send(t->qp[0], i, t->mr, t->buffer, len, 0));
		while (got < 2) {
			int n = ibv_poll_cq(t->cq, 2 - got, wc);

			CHECK(n >= 0);
			for (int k = 0; k < n; k++)
				CHECK(wc[k].status == IBV_WC_SUCCESS && wc[k].wr_id == (uint64_t)i);
			got += n;
		}
		CHECK(!memcmp(t->buffer, t->buffer + 32768, len));
	}
	return NULL;
}

/* objects that come and go beside the traffic */
static void *churn(void *arg)
{
	static uint8_t memory[4096];

	while (!stop) {
		struct ibv_pd *pd = softhca_ibv_alloc_pd(context);
		struct ibv_mr *mr = softhca_ibv_reg_mr(pd, memory, sizeof(memory), 0);
		struct ibv_comp_channel *channel = softhca_ibv_create_comp_channel(context);
		struct ibv_cq *cq = softhca_ibv_create_cq(context, 16, NULL, channel, 0);
		struct ibv_qp_init_attr init = {
			.qp_type = IBV_QPT_RC,
			.cap = { 1, 1, 1, 1, 0 },
			.send_cq = cq,
			.recv_cq = cq,
		};
		struct ibv_qp *qp = softhca_ibv_create_qp(pd, &init);
		struct ibv_device_attr attr;

		CHECK(pd && mr && channel && cq && qp);
		CHECK(!softhca_ibv_query_device(context, &attr));
		CHECK(!ibv_req_notify_cq(cq, 0));
		CHECK(!softhca_ibv_resize_cq(cq, 64));
		CHECK(!softhca_ibv_destroy_qp(qp));
		CHECK(!softhca_ibv_destroy_cq(cq));
		CHECK(!softhca_ibv_destroy_comp_channel(channel));
		CHECK(!softhca_ibv_dereg_mr(mr));
		CHECK(!softhca_ibv_dealloc_pd(pd));
	}
	return NULL;
}

static void *list_devices(void *arg)
{
	while (!stop) {
		struct ibv_device **list = softhca_ibv_get_device_list(NULL);

		CHECK(list && list[0]);
		CHECK(device_guid(list[0]) != 0);
		CHECK(context_is_ours(context));
		softhca_ibv_free_device_list(list);
	}
	return NULL;
}

static void everything_at_once(void **state)
{
	static struct traffic traffic[PAIRS];
	pthread_t threads[PAIRS], others[2];

	engine_has_thread = true;
	context = open_loopback();
	for (int i = 0; i < PAIRS; i++)
		open_traffic(&traffic[i]);
	stop = false;
	pthread_create(&others[0], NULL, churn, NULL);
	pthread_create(&others[1], NULL, list_devices, NULL);
	for (int i = 0; i < PAIRS; i++)
		pthread_create(&threads[i], NULL, run_traffic, &traffic[i]);
	for (int i = 0; i < PAIRS; i++)
		pthread_join(threads[i], NULL);
	stop = true;
	for (int i = 0; i < 2; i++)
		pthread_join(others[i], NULL);
	assert_int_equal(failures, 0);
	for (int i = 0; i < PAIRS; i++)
		close_traffic(&traffic[i]);
	assert_int_equal(softhca_ibv_close_device(context), 0);
	assert_int_equal(engine_references, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(everything_at_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
