// SPDX-License-Identifier: BSD-2-Clause
/*
 * packet.c: raw bytes to struct packet and back. The order of the extension headers is the order
 * of the statements here. IBTA 1.4, 9.2-9.3; wire-facts 1.3-1.5.
 */
#include <stdio.h>

#include "util/bytes.h"
#include "wire/packet.h"

/* BTH byte 1 */
#define BTH_SE	      0x80
#define BTH_MIGREQ    0x40
#define BTH_PAD_SHIFT 4
#define BTH_TVER_MASK 0x0f
/* BTH byte 4 */
#define BTH_FECN 0x80
#define BTH_BECN 0x40
/* BTH byte 8 */
#define BTH_ACK_REQ 0x80

static const uint8_t *parse_extension_headers(struct packet *p, const uint8_t *h)
{
	uint32_t flags = p->flags;

	if (flags & HDR_XRCETH) {
		p->xrc_srqn = get_be24(h + 1);
		h += 4;
	}
	if (flags & HDR_DETH) {
		p->qkey = get_be32(h);
		p->src_qpn = get_be24(h + 5);
		h += 8;
	}
	if (flags & HDR_RETH) {
		p->va = get_be64(h);
		p->rkey = get_be32(h + 8);
		p->dma_len = get_be32(h + 12);
		h += 16;
	}
	if (flags & HDR_ATOMIC) {
		p->va = get_be64(h);
		p->rkey = get_be32(h + 8);
		p->swap_add = get_be64(h + 12);
		p->compare = get_be64(h + 20);
		h += 28;
	}
	if (flags & HDR_AETH) {
		p->syndrome = h[0];
		p->msn = get_be24(h + 1);
		h += 4;
	}
	if (flags & HDR_ATOMIC_ACK) {
		p->atomic_orig = get_be64(h);
		h += 8;
	}
	if (flags & HDR_IMM) {
		memcpy(&p->imm, h, sizeof(p->imm));
		h += 4;
	}
	if (flags & HDR_IETH) {
		p->inv_rkey = get_be32(h);
		h += 4;
	}
	return h;
}

enum counter packet_parse(struct packet *p, const uint8_t *data, uint32_t len)
{
	const struct opcode_info *info;
	uint32_t body_len; /* payload and pad */

	if (len < BTH_LEN + ICRC_LEN)
		return CNT_DROP_SHORT;
	if (data[1] & BTH_TVER_MASK)
		return CNT_DROP_VERSION;
	info = &opcode_table[data[0]];
	if (!(info->flags & OPF_VALID))
		return CNT_DROP_OPCODE;
	if (len < (uint32_t)info->header_len + ICRC_LEN)
		return CNT_DROP_SHORT;

	body_len = len - info->header_len - ICRC_LEN;
	p->opcode = data[0];
	p->flags = info->flags;
	p->pad = data[1] >> BTH_PAD_SHIFT & 3;
	/* headers are whole words, so this also says that the pad is the right one */
	if (body_len < p->pad || body_len & 3)
		return CNT_DROP_PAD;
	p->payload_len = body_len - p->pad;
	if (p->payload_len > MTU_MAX || (body_len && !(info->flags & OPF_PAYLOAD)))
		return CNT_DROP_LENGTH;

	p->solicited = data[1] & BTH_SE;
	p->pkey = get_be16(data + 2);
	p->fecn = data[4] & BTH_FECN;
	p->becn = data[4] & BTH_BECN;
	p->dest_qpn = get_be24(data + 5);
	p->ack_req = data[8] & BTH_ACK_REQ;
	p->psn = get_be24(data + 9);
	p->payload = parse_extension_headers(p, data + BTH_LEN);
	return DROP_NONE;
}

static uint8_t *put_extension_headers(uint8_t *h, const struct packet *p, uint32_t flags)
{
	if (flags & HDR_XRCETH) {
		put_be32(h, p->xrc_srqn & 0xffffff);
		h += 4;
	}
	if (flags & HDR_DETH) {
		put_be32(h, p->qkey);
		put_be32(h + 4, p->src_qpn & QPN_MASK);
		h += 8;
	}
	if (flags & HDR_RETH) {
		put_be64(h, p->va);
		put_be32(h + 8, p->rkey);
		put_be32(h + 12, p->dma_len);
		h += 16;
	}
	if (flags & HDR_ATOMIC) {
		put_be64(h, p->va);
		put_be32(h + 8, p->rkey);
		put_be64(h + 12, p->swap_add);
		put_be64(h + 20, p->compare);
		h += 28;
	}
	if (flags & HDR_AETH) {
		put_be32(h, (uint32_t)p->syndrome << 24 | (p->msn & 0xffffff));
		h += 4;
	}
	if (flags & HDR_ATOMIC_ACK) {
		put_be64(h, p->atomic_orig);
		h += 8;
	}
	if (flags & HDR_IMM) {
		memcpy(h, &p->imm, sizeof(p->imm));
		h += 4;
	}
	if (flags & HDR_IETH) {
		put_be32(h, p->inv_rkey);
		h += 4;
	}
	return h;
}

uint32_t packet_put_headers(uint8_t *out, const struct packet *p)
{
	uint32_t pad = -p->payload_len & 3;

	out[0] = p->opcode;
	/* a CNP has MigReq 0 (wire-facts 1.3) */
	out[1] = (p->solicited ? BTH_SE : 0) | (p->opcode == OPCODE_CNP ? 0 : BTH_MIGREQ) |
		 (uint8_t)(pad << BTH_PAD_SHIFT);
	put_be16(out + 2, p->pkey);
	put_be32(out + 4,
		 (p->fecn ? 1U << 31 : 0) | (p->becn ? 1U << 30 : 0) | (p->dest_qpn & QPN_MASK));
	put_be32(out + 8, (p->ack_req ? 1U << 31 : 0) | (p->psn & PSN_MASK));
	return (uint32_t)(put_extension_headers(out + BTH_LEN, p, opcode_table[p->opcode].flags) -
			  out);
}

enum ibv_mtu mtu_from_netdev(uint32_t netdev_mtu)
{
	/* IPv6, UDP, BTH, XRCETH, AtomicETH, ICRC: the largest set of headers, as Linux counts it
	 */
	const uint32_t overhead = 40 + 8 + BTH_LEN + 4 + 28 + ICRC_LEN;
	enum ibv_mtu mtu;

	for (mtu = IBV_MTU_4096; mtu >= IBV_MTU_256; mtu--)
		if (netdev_mtu >= mtu_bytes(mtu) + overhead)
			return mtu;
	return 0;
}

const char *packet_describe(const struct packet *p, char *buf, size_t len)
{
	const char *name = opcode_table[p->opcode].name;
	uint32_t flags = opcode_table[p->opcode].flags;
	size_t at = 0;

#define ADD(...)                                                                                   \
	do {                                                                                       \
		int n = at < len ? snprintf(buf + at, len - at, __VA_ARGS__) : 0;                  \
		at += n > 0 ? (size_t)n : 0;                                                       \
	} while (0)

	ADD("%s (0x%02x) to QP 0x%06x PSN %u", name ? name : "invalid opcode", p->opcode,
	    p->dest_qpn, p->psn);
	if (p->ack_req)
		ADD(", ACK requested");
	if (p->solicited)
		ADD(", solicited");
	if (flags & HDR_DETH)
		ADD(", from QP 0x%06x Q_Key 0x%08x", p->src_qpn, p->qkey);
	if (flags & (HDR_RETH | HDR_ATOMIC))
		ADD(", VA 0x%llx R_Key 0x%08x", (unsigned long long)p->va, p->rkey);
	if (flags & HDR_RETH)
		ADD(" length %u", p->dma_len);
	if (flags & HDR_AETH)
		ADD(", syndrome 0x%02x MSN %u", p->syndrome, p->msn);
	if (flags & HDR_IETH)
		ADD(", invalidate R_Key 0x%08x", p->inv_rkey);
	if (flags & OPF_PAYLOAD)
		ADD(", payload %u", p->payload_len);
#undef ADD
	return buf;
}
