/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * device.h: our devices: one per network interface that is up and has an address, named
 * softhca_<ifname>; SOFTHCA_DEVICES=eth0,lo chooses. Also what the CM needs to know of them.
 */
#ifndef SOFTHCA_VERBS_DEVICE_H
#define SOFTHCA_VERBS_DEVICE_H

#include <stdbool.h>
#include <stdint.h>
#include <infiniband/verbs.h>

/* the device whose GID table holds @gid; NULL: none. Device objects live as long as the process */
struct ibv_device *device_by_gid(const union ibv_gid *gid, uint32_t ifindex);
/* index of @gid in the device's table, or -1 */
int device_gid_index(struct ibv_device *device, const union ibv_gid *gid);
/* interface index and name of a device, its active path MTU, its CA GUID (never 0, different
 * between hosts and network namespaces) */
uint32_t device_ifindex(struct ibv_device *device);
const char *device_ifname(struct ibv_device *device);
enum ibv_mtu device_active_mtu(struct ibv_device *device);
__be64 device_guid(struct ibv_device *device);

/* one context of a device shared by all rdma_cm_ids of the process, opened on first use (the CM
 * holds it for good, as librdmacm does). NULL and errno */
struct ibv_context *device_cm_context(struct ibv_device *device);

/*
 * The CM's, when it is linked in: a program may destroy a QP behind its rdma_cm_id. Called by
 * ibv_destroy_qp() first thing, with no lock held.
 */
void cm_qp_destroyed(struct ibv_qp *qp) __attribute__((weak));

/* @context is one of ours */
bool context_is_ours(const struct ibv_context *context);

#endif
