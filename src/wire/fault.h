/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fault.h: the one fault layer, under the link, on sent packets before they join a super-packet
 * and on received ones after the ICRC.
 *
 * Rules: comma-separated items, e.g.
 * SOFTHCA_FAULT="seed=7,drop=0.01,reorder=0.005,delay=0.001:200us"
 *   [tx-|rx-]KIND=PROBABILITY[:ARG][@OPCODE]	each packet with that probability
 *   [tx-|rx-]KIND#N[:ARG][@OPCODE]		exactly the N-th matching packet (1 = first)
 *   seed=N					seed of the generator (default 1)
 * KIND: drop, duplicate, reorder (swapped with the next one of the link), delay (ARG: time, e.g.
 * 200us, 3ms), corrupt (one bit flipped after the ICRC was made; on rx: before it is checked).
 * OPCODE: number (0x04) or class-free name: send, write, read_request, read_response, ack, atomic,
 * first, middle, last, only. Default direction: tx.
 */
#ifndef SOFTHCA_WIRE_FAULT_H
#define SOFTHCA_WIRE_FAULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fault_layer; /* rules, generator, counts */

enum fault_direction { FAULT_TX, FAULT_RX };

struct fault_verdict {
	bool drop, duplicate, reorder, corrupt;
	uint64_t delay_ns;    /* 0 = none */
	uint32_t corrupt_bit; /* which bit of the packet to flip, modulo its length */
};

/**
 * fault_parse() - make a layer from rules text.
 * @error: out, on failure: text that names the item and what is wrong.
 * Return: 0, -EINVAL, -ENOMEM. *@layer is NULL for an empty text.
 */
int fault_parse(struct fault_layer **layer, const char *rules, char *error, size_t error_len);
void fault_free(struct fault_layer *layer);

/* what happens to a packet with this opcode; counts CNT_FAULT_* */
struct fault_verdict fault_decide(struct fault_layer *layer, enum fault_direction direction,
				  uint8_t opcode);

#endif
