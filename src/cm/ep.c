// SPDX-License-Identifier: BSD-2-Clause
/*
 * ep.c: the calls of <rdma/rdma_cma.h> that are made of others (endpoints), the list of devices,
 * and those that answer EOPNOTSUPP until UD and multicast are there.
 */
#include "cm/id.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "verbs/device.h"

#define EP_TIMEOUT_MS 2000

static int ep_passive(struct rdma_cm_id *id, const struct rdma_addrinfo *res, struct ibv_pd *pd,
		      const struct ibv_qp_init_attr *attr)
{
	if (softhca_rdma_bind_addr(id, res->ai_src_addr))
		return -1;
	if (pd)
		id->pd = pd;
	if (!attr)
		return 0;
	to_cm_id(id)->ep_attr = malloc(sizeof(*attr));
	if (!to_cm_id(id)->ep_attr)
		return cm_error(ENOMEM);
	*to_cm_id(id)->ep_attr = *attr;
	to_cm_id(id)->ep_attr->qp_type = (enum ibv_qp_type)res->ai_qp_type;
	return 0;
}

static int ep_active(struct rdma_cm_id *id, const struct rdma_addrinfo *res, struct ibv_pd *pd,
		     struct ibv_qp_init_attr *attr)
{
	if (softhca_rdma_resolve_addr(id, res->ai_src_addr, res->ai_dst_addr, EP_TIMEOUT_MS) ||
	    softhca_rdma_resolve_route(id, EP_TIMEOUT_MS))
		return -1;
	if (!attr)
		return 0;
	attr->qp_type = (enum ibv_qp_type)res->ai_qp_type;
	return softhca_rdma_create_qp(id, pd, attr);
}

int softhca_rdma_create_ep(struct rdma_cm_id **out, struct rdma_addrinfo *res, struct ibv_pd *pd,
			   struct ibv_qp_init_attr *attr)
{
	struct rdma_cm_id *id;
	int ret, err;

	if (!out || !res)
		return cm_error(EINVAL);
	ret = softhca_rdma_create_id(NULL, &id, NULL, (enum rdma_port_space)res->ai_port_space);
	if (ret)
		return ret;
	if (res->ai_flags & RAI_PASSIVE)
		ret = res->ai_src_addr ? ep_passive(id, res, pd, attr) : cm_error(EINVAL);
	else
		ret = ep_active(id, res, pd, attr);
	if (!ret) {
		*out = id;
		return 0;
	}
	err = errno;
	softhca_rdma_destroy_ep(id);
	return cm_error(err);
}

void softhca_rdma_destroy_ep(struct rdma_cm_id *id)
{
	if (!id)
		return;
	if (id->qp)
		softhca_rdma_destroy_qp(id);
	if (id->srq)
		softhca_rdma_destroy_srq(id);
	softhca_rdma_destroy_id(id);
}

int softhca_rdma_get_request(struct rdma_cm_id *listen, struct rdma_cm_id **out)
{
	struct rdma_cm_event *event;
	struct cm_id *id;
	int ret = 0;

	if (!listen || !out || !to_cm_id(listen)->sync)
		return cm_error(EINVAL);
	id = to_cm_id(listen);
	if (listen->event) {
		softhca_rdma_ack_cm_event(listen->event);
		listen->event = NULL;
	}
	ret = softhca_rdma_get_cm_event(listen->channel, &event);
	if (ret)
		return ret;
	if (event->event != RDMA_CM_EVENT_CONNECT_REQUEST) {
		listen->event = event;
		return cm_error(event->status ? abs(event->status) : EINVAL);
	}
	if (id->ep_attr) {
		struct ibv_qp_init_attr attr = *id->ep_attr;

		ret = softhca_rdma_create_qp(event->id, listen->pd, &attr);
	}
	if (ret) {
		int err = errno;
		struct rdma_cm_id *request = event->id;

		softhca_rdma_ack_cm_event(event);
		softhca_rdma_destroy_id(request); /* rejects it */
		return cm_error(err);
	}
	*out = event->id;
	(*out)->event = event;
	return 0;
}

struct ibv_context **softhca_rdma_get_devices(int *num_devices)
{
	int count = 0, opened = 0;
	struct ibv_device **devices = softhca_ibv_get_device_list(&count);
	struct ibv_context **contexts;

	if (!devices)
		return NULL;
	contexts = calloc((size_t)count + 1, sizeof(*contexts));
	if (!contexts) {
		softhca_ibv_free_device_list(devices);
		errno = ENOMEM;
		return NULL;
	}
	for (int i = 0; i < count; i++) {
		contexts[opened] = device_cm_context(devices[i]);
		if (contexts[opened])
			opened++;
	}
	softhca_ibv_free_device_list(devices);
	if (num_devices)
		*num_devices = opened;
	return contexts;
}

void softhca_rdma_free_devices(struct ibv_context **list)
{
	free(list);
}

int softhca_rdma_join_multicast(struct rdma_cm_id *id, struct sockaddr *addr, void *context)
{
	return cm_error(EOPNOTSUPP);
}

int softhca_rdma_join_multicast_ex(struct rdma_cm_id *id, struct rdma_cm_join_mc_attr_ex *attr,
				   void *context)
{
	return cm_error(EOPNOTSUPP);
}

int softhca_rdma_leave_multicast(struct rdma_cm_id *id, struct sockaddr *addr)
{
	return cm_error(EOPNOTSUPP);
}
