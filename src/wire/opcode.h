/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * opcode.h: one table that says for every BTH opcode which headers follow, and what the packet
 * starts, ends and needs. The parser, the builder and both state machines read it.
 * IBTA 1.4, 9.2 and table 38; wire-facts 1.5.
 */
#ifndef SOFTHCA_WIRE_OPCODE_H
#define SOFTHCA_WIRE_OPCODE_H

#include <stdint.h>

enum opcode_class {
	OPC_RC = 0x00,
	OPC_UC = 0x20,
	OPC_RD = 0x40,
	OPC_UD = 0x60,
	OPC_CNP = 0x80,
	OPC_XRC = 0xa0
};

/* the low five bits */
enum opcode_op {
	OP_SEND_FIRST = 0x00,
	OP_SEND_MIDDLE = 0x01,
	OP_SEND_LAST = 0x02,
	OP_SEND_LAST_IMM = 0x03,
	OP_SEND_ONLY = 0x04,
	OP_SEND_ONLY_IMM = 0x05,
	OP_WRITE_FIRST = 0x06,
	OP_WRITE_MIDDLE = 0x07,
	OP_WRITE_LAST = 0x08,
	OP_WRITE_LAST_IMM = 0x09,
	OP_WRITE_ONLY = 0x0a,
	OP_WRITE_ONLY_IMM = 0x0b,
	OP_READ_REQUEST = 0x0c,
	OP_READ_RESPONSE_FIRST = 0x0d,
	OP_READ_RESPONSE_MIDDLE = 0x0e,
	OP_READ_RESPONSE_LAST = 0x0f,
	OP_READ_RESPONSE_ONLY = 0x10,
	OP_ACKNOWLEDGE = 0x11,
	OP_ATOMIC_ACKNOWLEDGE = 0x12,
	OP_COMPARE_SWAP = 0x13,
	OP_FETCH_ADD = 0x14,
	OP_SEND_LAST_INV = 0x16,
	OP_SEND_ONLY_INV = 0x17,
};

#define OPCODE_CNP 0x81

/* headers after the BTH */
#define HDR_DETH       (1U << 0)
#define HDR_RETH       (1U << 1)
#define HDR_ATOMIC     (1U << 2)
#define HDR_AETH       (1U << 3)
#define HDR_ATOMIC_ACK (1U << 4)
#define HDR_IMM	       (1U << 5)
#define HDR_IETH       (1U << 6)
#define HDR_XRCETH     (1U << 7)
/* what the packet is; READ requests, ATOMICs and acknowledgements both start and end */
#define OPF_VALID     (1U << 8)
#define OPF_REQUEST   (1U << 9)	 /* goes to the responder */
#define OPF_RESPONSE  (1U << 10) /* goes to the requester */
#define OPF_SEND      (1U << 11)
#define OPF_WRITE     (1U << 12)
#define OPF_READ      (1U << 13) /* request or response */
#define OPF_ATOMIC    (1U << 14)
#define OPF_START     (1U << 15) /* FIRST or ONLY */
#define OPF_END	      (1U << 16) /* LAST or ONLY */
#define OPF_PAYLOAD   (1U << 17) /* may carry payload (CNP: its 16 reserved bytes) */
#define OPF_FULL_MTU  (1U << 18) /* payload is exactly the path MTU (FIRST, MIDDLE) */
#define OPF_NOT_EMPTY (1U << 19) /* payload is 1..MTU (LAST) */

struct opcode_info {
	const char *name;   /* "RC SEND first" ...; NULL for an invalid opcode */
	uint32_t flags;	    /* HDR_*, OPF_* */
	uint8_t header_len; /* BTH and all extension headers, bytes */
};

extern const struct opcode_info opcode_table[256];

#endif
