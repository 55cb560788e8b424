// SPDX-License-Identifier: BSD-2-Clause
/*
 * id.c: rdma_cm_ids: made, configured, destroyed.
 */
#include "cm/id.h"

#include <errno.h>
#include <stdlib.h>

#include "util/clock.h"

#define DEFAULT_ACK_TIMEOUT 17 /* 0.54 s: packet lifetime 16, what newer Linux has, plus one */

struct cm_id *id_new(struct rdma_event_channel *channel, void *context, enum rdma_port_space ps,
		     enum ibv_qp_type qp_type)
{
	struct cm_id *id = calloc(1, sizeof(*id));

	if (!id)
		return NULL;
	list_init(&id->node);
	list_init(&id->listen_node);
	id->ack_timeout = DEFAULT_ACK_TIMEOUT;
	id->id.channel = channel;
	id->id.context = context;
	id->id.ps = ps;
	id->id.qp_type = qp_type;
	return id;
}

int id_make_sync(struct cm_id *id)
{
	struct cm_channel *channel = channel_new();

	if (!channel)
		return -ENOMEM;
	id->id.channel = &channel->channel;
	id->sync = true;
	return 0;
}

static int check_port_space(enum rdma_port_space ps)
{
	switch (ps) {
	case RDMA_PS_TCP:
	case RDMA_PS_UDP:
		return 0;
	case RDMA_PS_IPOIB:
	case RDMA_PS_IB:
		return EOPNOTSUPP;
	default:
		return EINVAL;
	}
}

int softhca_rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **out,
			   void *context, enum rdma_port_space ps)
{
	struct cm_id *id;
	int err = out ? check_port_space(ps) : EINVAL;

	if (err)
		return cm_error(err);
	err = cm_start();
	if (err)
		return cm_error(-err);
	id = id_new(channel, context, ps, ps == RDMA_PS_UDP ? IBV_QPT_UD : IBV_QPT_RC);
	if (!id)
		return cm_error(ENOMEM);
	cm_lock();
	if (!channel)
		err = id_make_sync(id);
	if (!err)
		list_add_tail(cm_ids(), &id->node);
	cm_unlock();
	if (err) {
		free(id);
		return cm_error(-err);
	}
	*out = &id->id;
	return 0;
}

void id_abandon(struct cm_id *id)
{
	list_del(&id->listen_node);
	if (!id->conn)
		return;
	cm_conn_destroy(id->conn, clock_ns());
	id->conn = NULL;
	cm_kick();
}

void id_free(struct cm_id *id)
{
	list_del(&id->node);
	if (id->listener)
		id->listener->pending--;
	id_abandon(id);
	free(id->id.route.path_rec);
	free(id->ep_attr);
	free(id);
}

int softhca_rdma_destroy_id(struct rdma_cm_id *rdma_id)
{
	struct cm_channel *own = NULL;
	struct cm_id *id;

	if (!rdma_id)
		return cm_error(EINVAL);
	id = to_cm_id(rdma_id);
	cm_lock();
	list_del(&id->listen_node); /* no more requests */
	cm_unlock();
	id_unregister(id);
	if (id->sync && rdma_id->event) {
		softhca_rdma_ack_cm_event(rdma_id->event);
		rdma_id->event = NULL;
	}
	cm_lock();
	id_abandon(id); /* no event may follow the purge */
	event_purge(id);
	while (id->unacked)
		cm_wait();
	if (id->sync)
		own = container_of(rdma_id->channel, struct cm_channel, channel);
	id_free(id);
	cm_unlock();
	if (own)
		channel_free(own);
	return 0;
}

static int set_flag(bool *flag, const void *value, size_t len)
{
	int v;

	if (len < sizeof(v))
		return EINVAL;
	__builtin_memcpy(&v, value, sizeof(v));
	*flag = v != 0;
	return 0;
}

static int set_id_option(struct cm_id *id, int option, const void *value, size_t len)
{
	switch (option) {
	case RDMA_OPTION_ID_TOS:
		if (len < 1)
			return EINVAL;
		id->tos = *(const uint8_t *)value;
		return 0;
	case RDMA_OPTION_ID_REUSEADDR:
		return set_flag(&id->reuse_addr, value, len);
	case RDMA_OPTION_ID_AFONLY:
		return set_flag(&id->v6only, value, len);
	case RDMA_OPTION_ID_ACK_TIMEOUT:
		if (len < 1 || *(const uint8_t *)value > 31)
			return EINVAL;
		id->ack_timeout = *(const uint8_t *)value;
		id->ack_timeout_set = true;
		return 0;
	default:
		return ENOSYS;
	}
}

int softhca_rdma_set_option(struct rdma_cm_id *id, int level, int optname, void *optval,
			    size_t optlen)
{
	int err;

	if (!id || !optval)
		return cm_error(EINVAL);
	if (level != RDMA_OPTION_ID)
		return cm_error(level == RDMA_OPTION_IB ? EOPNOTSUPP : ENOSYS);
	cm_lock();
	err = set_id_option(to_cm_id(id), optname, optval, optlen);
	cm_unlock();
	return cm_error(err);
}

__be16 softhca_rdma_get_src_port(struct rdma_cm_id *id)
{
	return htons(sockaddr_port(&id->route.addr.src_addr));
}

__be16 softhca_rdma_get_dst_port(struct rdma_cm_id *id)
{
	return htons(sockaddr_port(&id->route.addr.dst_addr));
}
