// SPDX-License-Identifier: BSD-2-Clause
/*
 * addrinfo.c: rdma_getaddrinfo(): the host's own resolver, in RDMA CM's clothes. IP addresses
 * only: there is no AF_IB on RoCE.
 */
#include "cm/id.h"

#include <errno.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>

static int fill_type(struct rdma_addrinfo *rai, const struct rdma_addrinfo *hints)
{
	int type = hints ? hints->ai_qp_type : 0;
	int space = hints ? hints->ai_port_space : 0;

	if (!space)
		space = type == IBV_QPT_UD ? RDMA_PS_UDP : RDMA_PS_TCP;
	if (!type)
		type = space == RDMA_PS_UDP || space == RDMA_PS_IPOIB ? IBV_QPT_UD : IBV_QPT_RC;
	rai->ai_qp_type = type;
	rai->ai_port_space = space;
	return 0;
}

static int copy_address(struct sockaddr **to, socklen_t *to_len, const void *from, socklen_t len)
{
	*to = malloc(len);
	if (!*to)
		return ENOMEM;
	memcpy(*to, from, len);
	*to_len = len;
	return 0;
}

static int fill_addresses(struct rdma_addrinfo *rai, const struct addrinfo *ai,
			  const struct rdma_addrinfo *hints)
{
	int err;

	rai->ai_family = ai->ai_family;
	if (rai->ai_flags & RAI_PASSIVE)
		return copy_address(&rai->ai_src_addr, &rai->ai_src_len, ai->ai_addr,
				    ai->ai_addrlen);
	err = copy_address(&rai->ai_dst_addr, &rai->ai_dst_len, ai->ai_addr, ai->ai_addrlen);
	if (err || !hints || !hints->ai_src_len || !hints->ai_src_addr)
		return err;
	return copy_address(&rai->ai_src_addr, &rai->ai_src_len, hints->ai_src_addr,
			    hints->ai_src_len);
}

static struct rdma_addrinfo *convert(const struct addrinfo *ai, const struct rdma_addrinfo *hints)
{
	struct rdma_addrinfo *rai = calloc(1, sizeof(*rai));

	if (!rai)
		return NULL;
	rai->ai_flags = hints ? hints->ai_flags : 0;
	fill_type(rai, hints);
	if (fill_addresses(rai, ai, hints))
		goto out_free;
	if (ai->ai_canonname && !(rai->ai_flags & RAI_PASSIVE)) {
		rai->ai_dst_canonname = strdup(ai->ai_canonname);
		if (!rai->ai_dst_canonname)
			goto out_free;
	}
	return rai;

out_free:
	softhca_rdma_freeaddrinfo(rai);
	return NULL;
}

/* the family to ask for: a wish, unless RAI_FAMILY makes it a condition */
static int ip_family(const struct rdma_addrinfo *hints)
{
	if (!hints)
		return AF_UNSPEC;
	if (hints->ai_flags & RAI_FAMILY || hints->ai_family == AF_INET ||
	    hints->ai_family == AF_INET6)
		return hints->ai_family;
	return AF_UNSPEC;
}

/* like getaddrinfo() these are, but stock answers -1 and errno for what is not EAI_* */
int softhca_rdma_getaddrinfo(const char *node, const char *service,
			     const struct rdma_addrinfo *hints, struct rdma_addrinfo **res)
{
	struct addrinfo ai_hints = { .ai_socktype = SOCK_STREAM }, *list, *ai;
	struct rdma_addrinfo *first = NULL, **next = &first;
	int ret;

	if (!res || (!node && !service && !hints))
		return cm_error(EINVAL);
	ai_hints.ai_family = ip_family(hints);
	if (ai_hints.ai_family != AF_UNSPEC && ai_hints.ai_family != AF_INET &&
	    ai_hints.ai_family != AF_INET6)
		return cm_error(EAFNOSUPPORT);
	if (hints && hints->ai_flags & RAI_PASSIVE)
		ai_hints.ai_flags |= AI_PASSIVE;
	if (hints && hints->ai_flags & RAI_NUMERICHOST)
		ai_hints.ai_flags |= AI_NUMERICHOST;
	if (!node && !service)
		service = "0";
	ret = getaddrinfo(node, service, &ai_hints, &list);
	if (ret)
		return ret;
	for (ai = list; ai; ai = ai->ai_next) {
		if (ai->ai_family != AF_INET && ai->ai_family != AF_INET6)
			continue;
		*next = convert(ai, hints);
		if (!*next) {
			freeaddrinfo(list);
			softhca_rdma_freeaddrinfo(first);
			return cm_error(ENOMEM);
		}
		next = &(*next)->ai_next;
	}
	freeaddrinfo(list);
	*res = first;
	return first ? 0 : EAI_NONAME;
}

void softhca_rdma_freeaddrinfo(struct rdma_addrinfo *res)
{
	while (res) {
		struct rdma_addrinfo *next = res->ai_next;

		free(res->ai_src_addr);
		free(res->ai_dst_addr);
		free(res->ai_src_canonname);
		free(res->ai_dst_canonname);
		free(res->ai_route);
		free(res->ai_connect);
		free(res);
		res = next;
	}
}
