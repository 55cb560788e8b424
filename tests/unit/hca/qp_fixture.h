/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * qp_fixture.h: two engines, "a" and "b", over a link in memory, one connected QP each, and a
 * clock that only the test moves.
 */
#ifndef SOFTHCA_TESTS_QP_FIXTURE_H
#define SOFTHCA_TESTS_QP_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "hca/memory.h"
#include "hca/qp.h"
#include "hca/qp_internal.h"
#include "link_mem.h"
#include "util/clock.h"

#define BUFFER_LEN (4U << 20)

struct side {
	struct link_mem *link;
	struct engine *engine;
	struct hca_context ctx;
	struct hca_pd pd;
	struct hca_cq cq;
	struct hca_qp *qp;
	struct hca_mr mr;
	uint8_t *buffer;
	union ibv_gid gid;
	unsigned int events[20]; /* by enum ibv_event_type */
};

/* what a test wants to have different; 0 = the default */
struct setup {
	uint32_t max_send_wr, max_recv_wr, max_send_sge, max_inline, hidden_wrs;
	enum ibv_mtu mtu;      /* IBV_MTU_1024 */
	uint32_t a_psn, b_psn; /* where each side's sending starts */
	uint8_t timeout;       /* 14; NO_TIMEOUT = 0 */
	uint8_t retry_cnt;     /* 7; ZERO = 0 */
	uint8_t rnr_retry;     /* 7; ZERO = 0 */
	uint8_t min_rnr_timer; /* 12: 640 us */
	uint8_t rd_atomic;     /* 4, both ways */
	int b_access;	       /* of b's QP: all */
	uint32_t window;       /* 1 MiB */
	bool sig_all;	       /* sq_sig_all */
	const struct capsule_ops *capsule_ops;
};
#define ZERO 0xff

struct pair {
	struct side a, b;
};

extern uint64_t test_now_ns;

void pair_open(struct pair *pair, const struct setup *setup);
void pair_close(struct pair *pair);
/* make another connected pair of QPs between the two engines */
void pair_connect(struct pair *pair, const struct setup *setup, struct hca_qp **a,
		  struct hca_qp **b);

/* a connected pair of QPs both on a's engine; a's link must lead back to itself */
void pair_connect_local(struct pair *pair, const struct setup *setup, struct hca_qp **first,
			struct hca_qp **second);

/* rounds on both sides until nothing moves */
void settle(struct pair *pair);
void advance(struct pair *pair, uint64_t ns);

/* posts on a's QP, from its buffer at @offset; remote: b's buffer at @remote */
void post(struct side *side, enum ibv_wr_opcode opcode, uint64_t wr_id, uint32_t offset,
	  uint32_t len, struct side *to, uint32_t remote, unsigned int flags);
void post_recv(struct side *side, uint64_t wr_id, uint32_t offset, uint32_t len);

/* take one completion and check it */
struct cqe expect_cqe(struct side *side, uint64_t wr_id, enum ibv_wc_status status);
void expect_no_cqe(struct side *side);

void fill(struct side *side, uint32_t offset, uint32_t len, uint32_t seed);

int gid_lookup(struct hca_context *ctx, uint8_t index, union ibv_gid *gid, uint32_t *ifindex);

#endif
