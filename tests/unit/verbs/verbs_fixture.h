/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * verbs_fixture.h: the verbs API on the loopback interface's device, over an engine without a
 * thread whose link leads back to itself: all traffic happens while a test polls.
 */
#ifndef TESTS_UNIT_VERBS_FIXTURE_H
#define TESTS_UNIT_VERBS_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <errno.h>
#include <cmocka.h>

#include "infiniband/verbs_ext.h"
#include "softhca/softhca.h"
#include "verbs/core_api.h"
#include "verbs/device.h"

/* references to the process's engine that are held now, and how often it was asked for */
extern int engine_references, engine_requests;
/* engines that are made from now on have their thread; the link still wakes nobody */
extern bool engine_has_thread;

/* softhca_lo, opened */
struct ibv_context *open_loopback(void);
/* index of 127.0.0.1 */
int loopback_gid_index(struct ibv_context *context);

/* RESET -> RTS, towards @remote_qpn on the same address */
void connect_qp(struct ibv_qp *qp, uint32_t remote_qpn, enum ibv_mtu mtu);

/* everything a small RC test needs: one PD, one MR, CQs, two connected QPs */
struct rc_pair {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	uint8_t *buffer;
	struct ibv_cq *cq[2];
	struct ibv_qp *qp[2];
};
#define RC_BUFFER_LEN (1U << 20)

void rc_pair_open(struct rc_pair *pair);
void rc_pair_close(struct rc_pair *pair);

/* the stock inline functions, without what they refer to in libibverbs */
struct ibv_qp *create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr);
struct ibv_srq *create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr);

int post_recv(struct ibv_qp *qp, uint64_t wr_id, struct ibv_mr *mr, void *addr, uint32_t len);
int post_srq_recv(struct ibv_srq *srq, uint64_t wr_id, struct ibv_mr *mr, void *addr, uint32_t len);
int post_send(struct ibv_qp *qp, uint64_t wr_id, struct ibv_mr *mr, void *addr, uint32_t len,
	      unsigned int flags);
/* poll until a completion comes; fails the test when none does */
struct ibv_wc poll_one(struct ibv_cq *cq);

#endif
