/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fixture.h: a target without any transport: commands go in, status and data come out.
 */
#ifndef TEST_TARGET_FIXTURE_H
#define TEST_TARGET_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "target/model.h"
#include "util/bytes.h"
#include "util/clock.h"

#define NQN_A  "nqn.2026-01.test:a" /* any host; namespaces 1 (512), 3 (4096), 5 (disabled) */
#define NQN_B  "nqn.2026-01.test:b" /* HOST_B only; namespace 1 */
#define HOST_A "nqn.2026-01.test:host-a"
#define HOST_B "nqn.2026-01.test:host-b"
#define BLOCKS 2048 /* of A's namespace 1 */

struct test_queue {
	struct queue queue;
	unsigned int completed, shut_down, connects;
	struct command *last_completed;
};

extern struct target target;
extern struct port *port;	   /* 10.0.0.5:4420: A and B */
extern struct port *wildcard_port; /* 0.0.0.0:4421: B */

int fixture_setup(void **state);
int fixture_teardown(void **state);

/* a fresh connection */
struct test_queue *new_queue(uint16_t qid);
/* frees it; the connection is gone */
void free_queue(struct test_queue *tq);

/* what a transport does: transfer, data, execute. @data holds @len bytes for either direction.
 * Returns the status; PENDING when the command is held (@cmd must then stay) */
#define PENDING 0xfffe
uint16_t run(struct test_queue *tq, struct command *cmd, const struct nvme_sqe *sqe, void *data,
	     size_t len);

struct nvme_sqe sqe_of(uint8_t opcode, uint32_t nsid, uint32_t cdw10, uint32_t cdw11,
		       uint32_t cdw12);
struct nvmf_connect_sqe connect_sqe(uint16_t qid);
struct nvmf_connect_data connect_data(const char *subnqn, const char *hostnqn, uint16_t cntlid);
uint16_t do_connect(struct test_queue *tq, const struct nvmf_connect_sqe *sqe,
		    struct nvmf_connect_data *data, uint32_t *dw0);
uint16_t property_set_cc(struct test_queue *tq, uint32_t cc);
uint64_t property_get(struct test_queue *tq, uint32_t offset, bool wide, uint16_t *status);

#define CC_ENABLED 0x00460001U

/* an admin queue on @subnqn, enabled */
struct test_queue *new_admin(const char *subnqn, const char *hostnqn);
/* an I/O queue of @admin's controller; queues are granted first */
struct test_queue *new_io(struct test_queue *admin, uint16_t qid);

#endif
