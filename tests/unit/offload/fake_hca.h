/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fake_hca.h: the adapter as the offload sees it, driven by hand: QPs whose hidden lane the test
 * completes, an engine whose time the test moves, recorded events. "Remote memory" is a buffer of
 * the test: keys are HOST_KEY, addresses are real.
 */
#ifndef TEST_OFFLOAD_FAKE_HCA_H
#define TEST_OFFLOAD_FAKE_HCA_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "hca/qp.h"
#include "nvme/spec.h"
#include "offload/offload.h"

#define HOST_KEY    0x1234abcdU
#define HOST_MEMORY (8U << 20)
#define MAX_POSTED  4096
#define MAX_EVENTS  64

struct hca_qp {
	struct hca_srq *srq;
	struct hca_context *ctx;
	void *owner;
	enum ibv_qp_state state;
	void *capsule_state;
	uint32_t num, psn;

	uint32_t lane; /* room of the hidden lane */
	bool starved;
	struct hidden_wr *posted[MAX_POSTED]; /* ring of outstanding WRs */
	uint32_t head, tail;

	/* responses that the host got, in order */
	struct nvme_cqe responses[MAX_POSTED];
	uint32_t response_inv[MAX_POSTED]; /* invalidated key, 0 = plain SEND */
	uint32_t response_count, responses_read;
};

struct fake_event {
	enum ibv_event_type type;
	void *object;
};

extern uint8_t *host_memory; /* HOST_MEMORY bytes */
extern struct fake_event fake_events[MAX_EVENTS];
extern unsigned int fake_event_count, fake_kicks;
extern char fake_order[MAX_POSTED]; /* what was posted: 'R', 'W', 'S' */
extern unsigned int fake_order_count;

void fake_engine_init(struct engine *engine, struct hca_context *ctx);
void fake_qp_init(struct hca_qp *qp, struct hca_context *ctx, struct hca_srq *srq, uint32_t num);
/* one round: due timers, pollers */
bool fake_progress(struct engine *engine);
void fake_advance_ms(struct engine *engine, uint64_t ms);
/* complete the oldest hidden WR: moves the data. Return: false: there is none */
bool fake_complete(struct hca_qp *qp);
/* complete all, with progress, until nothing is left to do */
void fake_settle(struct hca_qp *qp);
/* as the adapter does it: state, qp_down, flush */
void fake_qp_error(struct hca_qp *qp);
void fake_qp_reset(struct hca_qp *qp);
unsigned int fake_outstanding(const struct hca_qp *qp);
unsigned int fake_count_events(enum ibv_event_type type);

/* a whole capsule, cut into packets of @mtu bytes. Return: verdict of the last packet shown */
enum capsule_verdict fake_send(struct hca_qp *qp, const void *capsule, uint32_t len, uint32_t mtu);
/* the next response; fails the test when there is none */
struct nvme_cqe *fake_response(struct hca_qp *qp);

#endif
