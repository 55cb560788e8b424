/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ah.c: address handles. On RoCE an address is always a GRH (IBTA 1.4, annex A17): an AH without
 * one, or with a source index that is empty, is refused here and not by a timeout later.
 */
#include <stdlib.h>
#include <string.h>

#include "util/bytes.h"
#include "util/log.h"
#include "verbs/objects.h"

#define GRH_NEXT_UDP 17

struct ibv_ah *softhca_ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	struct soft_ah *ah;
	union ibv_gid sgid;
	uint32_t ifindex;

	if (attr->port_num != PORT_NUM)
		return fail_with(EINVAL);
	if (!attr->is_global) {
		log_debug("create_ah: is_global must be set on RoCE");
		return fail_with(EINVAL);
	}
	if (device_get_gid(pd->context->device, attr->grh.sgid_index, &sgid, &ifindex)) {
		log_debug("create_ah: no GID at index %u", attr->grh.sgid_index);
		return fail_with(EINVAL);
	}
	ah = calloc(1, sizeof(*ah));
	if (!ah)
		return NULL;
	ah->ibv.context = pd->context;
	ah->ibv.pd = pd;
	ah->attr = *attr;
	ah->sgid = sgid;
	ah->ifindex = ifindex;
	to_pd(pd)->hca.references++;
	to_context(pd->context)->objects++;
	return &ah->ibv;
}

int softhca_ibv_destroy_ah(struct ibv_ah *ah)
{
	to_pd(ah->pd)->hca.references--;
	to_context(ah->context)->objects--;
	free(container_of(ah, struct soft_ah, ibv));
	return 0;
}

/* the 40 bytes end with an IPv4 header (wire-facts 1.7) */
static bool is_ipv4_header(const uint8_t *ip)
{
	uint32_t sum = 0;

	if (ip[0] != 0x45)
		return false;
	for (int i = 0; i < 20; i += 2)
		sum += get_be16(ip + i);
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return sum == 0xffff;
}

static void ipv4_to_gid(const uint8_t *addr, union ibv_gid *gid)
{
	memset(gid, 0, sizeof(*gid));
	memset(gid->raw + 10, 0xff, 2);
	memcpy(gid->raw + 12, addr, 4);
}

int softhca_ibv_init_ah_from_wc(struct ibv_context *context, uint8_t port_num, struct ibv_wc *wc,
				struct ibv_grh *grh, struct ibv_ah_attr *ah_attr)
{
	const uint8_t *area = (const uint8_t *)grh;
	union ibv_gid local;
	int index;

	memset(ah_attr, 0, sizeof(*ah_attr));
	if (port_num != PORT_NUM || !(wc->wc_flags & IBV_WC_GRH) || !grh)
		return minus_one(EINVAL);
	ah_attr->port_num = port_num;
	ah_attr->sl = wc->sl;
	ah_attr->is_global = 1;
	if (area[0] >> 4 != 6 || is_ipv4_header(area + 20)) {
		ipv4_to_gid(area + 20 + 12, &ah_attr->grh.dgid);
		ipv4_to_gid(area + 20 + 16, &local);
		ah_attr->grh.traffic_class = area[20 + 1];
	} else {
		uint32_t word = get_be32(area);

		memcpy(&ah_attr->grh.dgid, &grh->sgid, sizeof(grh->sgid));
		memcpy(&local, &grh->dgid, sizeof(grh->dgid));
		ah_attr->grh.flow_label = word & 0xfffff;
		ah_attr->grh.traffic_class = word >> 20 & 0xff;
	}
	/* how far the way back is, the way here does not say */
	ah_attr->grh.hop_limit = 0xff;
	index = device_gid_index(context->device, &local);
	if (index < 0)
		return minus_one(EINVAL);
	ah_attr->grh.sgid_index = (uint8_t)index;
	return 0;
}

struct ibv_ah *softhca_ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc,
					     struct ibv_grh *grh, uint8_t port_num)
{
	struct ibv_ah_attr attr;

	if (softhca_ibv_init_ah_from_wc(pd->context, port_num, wc, grh, &attr))
		return NULL;
	return softhca_ibv_create_ah(pd, &attr);
}
