// SPDX-License-Identifier: BSD-2-Clause
/*
 * opcode.c: the opcode table. An opcode that is not here is invalid: packets with it are dropped.
 * IBTA 1.4, 9.2 and table 38; wire-facts 1.5.
 */
#include "wire/opcode.h"

#define LEN_BTH	       12
#define LEN_DETH       8
#define LEN_RETH       16
#define LEN_ATOMIC     28
#define LEN_AETH       4
#define LEN_ATOMIC_ACK 8
#define LEN_IMM	       4
#define LEN_IETH       4
#define LEN_XRCETH     4

#define HEADER_LEN(flags)                                                                          \
	(LEN_BTH + ((flags)&HDR_DETH ? LEN_DETH : 0) + ((flags)&HDR_RETH ? LEN_RETH : 0) +         \
	 ((flags)&HDR_ATOMIC ? LEN_ATOMIC : 0) + ((flags)&HDR_AETH ? LEN_AETH : 0) +               \
	 ((flags)&HDR_ATOMIC_ACK ? LEN_ATOMIC_ACK : 0) + ((flags)&HDR_IMM ? LEN_IMM : 0) +         \
	 ((flags)&HDR_IETH ? LEN_IETH : 0) + ((flags)&HDR_XRCETH ? LEN_XRCETH : 0))

#define ENTRY(opcode, text, bits)                                                                  \
	[opcode] = { .name = (text), .flags = OPF_VALID | (bits), .header_len = HEADER_LEN(bits) }

/* what follows from the place in a message */
#define FIRST  (OPF_START | OPF_PAYLOAD | OPF_FULL_MTU)
#define MIDDLE (OPF_PAYLOAD | OPF_FULL_MTU)
#define LAST   (OPF_END | OPF_PAYLOAD | OPF_NOT_EMPTY)
#define ONLY   (OPF_START | OPF_END | OPF_PAYLOAD)
#define SINGLE (OPF_START | OPF_END) /* one packet that carries no payload */

#define SEND  (OPF_REQUEST | OPF_SEND)
#define WRITE (OPF_REQUEST | OPF_WRITE)
#define READR (OPF_RESPONSE | OPF_READ)

/* SENDs and WRITEs: the same in RC, UC and (with the XRCETH) XRC */
#define SENDS_AND_WRITES(class, text, more)                                                        \
	ENTRY((class) | OP_SEND_FIRST, text " SEND first", SEND | FIRST | (more)),                 \
		ENTRY((class) | OP_SEND_MIDDLE, text " SEND middle", SEND | MIDDLE | (more)),      \
		ENTRY((class) | OP_SEND_LAST, text " SEND last", SEND | LAST | (more)),            \
		ENTRY((class) | OP_SEND_LAST_IMM, text " SEND last with immediate",                \
		      SEND | LAST | HDR_IMM | (more)),                                             \
		ENTRY((class) | OP_SEND_ONLY, text " SEND only", SEND | ONLY | (more)),            \
		ENTRY((class) | OP_SEND_ONLY_IMM, text " SEND only with immediate",                \
		      SEND | ONLY | HDR_IMM | (more)),                                             \
		ENTRY((class) | OP_WRITE_FIRST, text " WRITE first",                               \
		      WRITE | FIRST | HDR_RETH | (more)),                                          \
		ENTRY((class) | OP_WRITE_MIDDLE, text " WRITE middle", WRITE | MIDDLE | (more)),   \
		ENTRY((class) | OP_WRITE_LAST, text " WRITE last", WRITE | LAST | (more)),         \
		ENTRY((class) | OP_WRITE_LAST_IMM, text " WRITE last with immediate",              \
		      WRITE | LAST | HDR_IMM | (more)),                                            \
		ENTRY((class) | OP_WRITE_ONLY, text " WRITE only",                                 \
		      WRITE | ONLY | HDR_RETH | (more)),                                           \
		ENTRY((class) | OP_WRITE_ONLY_IMM, text " WRITE only with immediate",              \
		      WRITE | ONLY | HDR_RETH | HDR_IMM | (more))

/* what only the reliable services have; responses carry no XRCETH */
#define RELIABLE(class, text, more)                                                                \
	ENTRY((class) | OP_READ_REQUEST, text " READ request",                                     \
	      OPF_REQUEST | OPF_READ | SINGLE | HDR_RETH | (more)),                                \
		ENTRY((class) | OP_READ_RESPONSE_FIRST, text " READ response first",               \
		      READR | FIRST | HDR_AETH),                                                   \
		ENTRY((class) | OP_READ_RESPONSE_MIDDLE, text " READ response middle",             \
		      READR | MIDDLE),                                                             \
		ENTRY((class) | OP_READ_RESPONSE_LAST, text " READ response last",                 \
		      READR | LAST | HDR_AETH),                                                    \
		ENTRY((class) | OP_READ_RESPONSE_ONLY, text " READ response only",                 \
		      READR | ONLY | HDR_AETH),                                                    \
		ENTRY((class) | OP_ACKNOWLEDGE, text " ACKNOWLEDGE",                               \
		      OPF_RESPONSE | SINGLE | HDR_AETH),                                           \
		ENTRY((class) | OP_ATOMIC_ACKNOWLEDGE, text " ATOMIC ACKNOWLEDGE",                 \
		      OPF_RESPONSE | OPF_ATOMIC | SINGLE | HDR_AETH | HDR_ATOMIC_ACK),             \
		ENTRY((class) | OP_COMPARE_SWAP, text " COMPARE & SWAP",                           \
		      OPF_REQUEST | OPF_ATOMIC | SINGLE | HDR_ATOMIC | (more)),                    \
		ENTRY((class) | OP_FETCH_ADD, text " FETCH & ADD",                                 \
		      OPF_REQUEST | OPF_ATOMIC | SINGLE | HDR_ATOMIC | (more)),                    \
		ENTRY((class) | OP_SEND_LAST_INV, text " SEND last with invalidate",               \
		      SEND | LAST | HDR_IETH | (more)),                                            \
		ENTRY((class) | OP_SEND_ONLY_INV, text " SEND only with invalidate",               \
		      SEND | ONLY | HDR_IETH | (more))

const struct opcode_info opcode_table[256] = {
	SENDS_AND_WRITES(OPC_RC, "RC", 0),
	RELIABLE(OPC_RC, "RC", 0),
	SENDS_AND_WRITES(OPC_UC, "UC", 0),
	ENTRY(OPC_UD | OP_SEND_ONLY, "UD SEND only", SEND | ONLY | HDR_DETH),
	ENTRY(OPC_UD | OP_SEND_ONLY_IMM, "UD SEND only with immediate",
	      SEND | ONLY | HDR_DETH | HDR_IMM),
	/* 16 reserved bytes follow, taken as payload (wire-facts 1.10) */
	ENTRY(OPCODE_CNP, "CNP", ONLY),
	SENDS_AND_WRITES(OPC_XRC, "XRC", HDR_XRCETH),
	RELIABLE(OPC_XRC, "XRC", HDR_XRCETH),
};
