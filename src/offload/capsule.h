/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * capsule.h: a command capsule as a checked structure, and the decision what is done with it. Pure
 * functions over bytes from the network. docs/nvmf-offload.md, "The way of one command".
 */
#ifndef SOFTHCA_OFFLOAD_CAPSULE_H
#define SOFTHCA_OFFLOAD_CAPSULE_H

#include <stdbool.h>
#include <stdint.h>

#define CAPSULE_MIN_LEN 64 /* the SQE */

/* what an SRQ's attributes say about capsules */
struct capsule_rules {
	uint32_t offload_ops;  /* enum ibv_nvmf_offload_ops */
	uint32_t max_len;      /* 16 * ioccsz, bytes */
	uint32_t data_offset;  /* of in-capsule data, 64 + 16 * icdoff, bytes */
	uint32_t max_transfer; /* bytes */
};

struct capsule_command {
	uint8_t opcode; /* NVME_CMD_READ, _WRITE, _FLUSH */
	bool in_capsule;
	bool invalidate;
	uint16_t cid;
	uint32_t nsid;
	uint64_t addr; /* host address, or offset from data_offset */
	uint32_t key;
	uint32_t sgl_len; /* bytes */
	uint32_t blocks;
	uint32_t cdw[6]; /* CDW10 .. 15, as on the wire */
};

/**
 * capsule_parse() - is this an offloaded command?
 * @sqe: the first 64 bytes of the capsule.
 * @command: out, filled in when true.
 */
bool capsule_parse(const struct capsule_rules *rules, const uint8_t *sqe,
		   struct capsule_command *command);

/**
 * capsule_check() - may it be carried out?
 * @lba_size: of the namespace, bytes.
 * @transfer: out, bytes to move; 0 for FLUSH.
 * Return: NVMe status with DNR, or success.
 */
uint16_t capsule_check(const struct capsule_rules *rules, const struct capsule_command *command,
		       uint32_t lba_size, uint32_t *transfer);

/**
 * capsule_check_data() - the capsule is complete: are its in-capsule data all there?
 * @len: bytes of the capsule.
 * Return: NVMe status with DNR, or success.
 */
uint16_t capsule_check_data(const struct capsule_rules *rules,
			    const struct capsule_command *command, uint32_t transfer, uint32_t len);

/* a CONNECT: its queue id and number of entries (sqsize is 0-based). False: it is none */
bool capsule_parse_connect(const uint8_t *sqe, uint16_t *qid, uint32_t *entries);

#endif
