// SPDX-License-Identifier: BSD-2-Clause
/*
 * link.c: what all kinds of link have in common.
 */
#include <errno.h>
#include <string.h>

#include "wire/icrc.h"
#include "wire/link.h"

int link_flow_init(struct link *link, struct link_flow *flow, const union ibv_gid *sgid,
		   const union ibv_gid *dgid, uint32_t ifindex, uint8_t tos, uint8_t ttl)
{
	if (gid_is_ipv4(sgid) != gid_is_ipv4(dgid))
		return -EINVAL;
	memset(flow, 0, sizeof(*flow));
	flow->sgid = *sgid;
	flow->dgid = *dgid;
	flow->ifindex = ifindex;
	flow->tos = tos;
	flow->ttl = ttl;
	flow->is_ipv4 = gid_is_ipv4(dgid);
	return link->ops->flow_init(link, flow);
}
