/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * query.c: what a device, its port and its tables look like. Numbers are the limits that the code
 * enforces (hca/context.h). The length of some structures is the caller's: newer headers have
 * longer ones, older ones shorter (abi-facts 2.3).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/bytes.h"
#include "util/log.h"
#include "verbs/objects.h"
#include "wire/packet.h"

/*
 * No IEEE number is ours. rxe reports 0xffffff as well; SOFTHCA_VENDOR_ID and
 * SOFTHCA_VENDOR_PART_ID are for programs that choose features by a table of known adapters.
 */
#define VENDOR_ID 0xffffff

#define PHYS_STATE_DISABLED 3
#define PHYS_STATE_LINK_UP  5
#define WIDTH_1X	    1
#define SPEED_EDR	    32 /* 25 Gb/s a lane */

/* a type 2 GID as sysfs and ibv_query_gid_type() number it */
enum { GID_TYPE_SYSFS_IB_ROCE_V1, GID_TYPE_SYSFS_ROCE_V2 };

static uint32_t number_from_env(const char *name, uint32_t otherwise)
{
	const char *text = getenv(name);

	return text && *text ? (uint32_t)strtoul(text, NULL, 0) : otherwise;
}

static void fill_device_attr(struct ibv_context *context, struct ibv_device_attr *attr)
{
	*attr = (struct ibv_device_attr){
		.node_guid = device_guid(context->device),
		.sys_image_guid = device_guid(context->device),
		.max_mr_size = UINT64_MAX,
		.page_size_cap = 0xfffff000,
		.vendor_id = number_from_env("SOFTHCA_VENDOR_ID", VENDOR_ID),
		.vendor_part_id = number_from_env("SOFTHCA_VENDOR_PART_ID", 0),
		.max_qp = SLOT_QPNS - 2,
		.max_qp_wr = HCA_MAX_QP_WR,
		.device_cap_flags = IBV_DEVICE_SYS_IMAGE_GUID | IBV_DEVICE_RC_RNR_NAK_GEN |
				    IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_SRQ_RESIZE,
		.max_sge = HCA_MAX_SGE,
		.max_sge_rd = HCA_MAX_SGE,
		.max_cq = 1 << 16,
		.max_cqe = HCA_MAX_CQE,
		.max_mr = (1 << 24) - 1,
		.max_pd = 1 << 16,
		.max_qp_rd_atom = HCA_MAX_RD_ATOMIC,
		.max_res_rd_atom = HCA_MAX_RD_ATOMIC * (SLOT_QPNS - 2),
		.max_qp_init_rd_atom = HCA_MAX_RD_ATOMIC,
		.atomic_cap = IBV_ATOMIC_NONE,
		.max_ah = 1 << 16,
		.max_srq = 1 << 16,
		.max_srq_wr = HCA_MAX_SRQ_WR,
		.max_srq_sge = HCA_MAX_SGE,
		.max_pkeys = 1,
		.local_ca_ack_delay = HCA_LOCAL_ACK_DELAY,
		.phys_port_cnt = 1,
	};
	snprintf(attr->fw_ver, sizeof(attr->fw_ver), "%s", SOFTHCA_VERSION);
}

int softhca_ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	fill_device_attr(context, attr);
	return 0;
}

int query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
		    struct ibv_device_attr_ex *attr, size_t attr_size)
{
	struct ibv_device_attr_ex full = { .phys_port_cnt_ex = 1 };

	if (input && input->comp_mask)
		return EINVAL;
	if (attr_size < sizeof(full.orig_attr))
		return EINVAL;
	fill_device_attr(context, &full.orig_attr);
	full.device_cap_flags_ex = full.orig_attr.device_cap_flags;
	memset(attr, 0, attr_size);
	memcpy(attr, &full, MIN(attr_size, sizeof(full)));
	return 0;
}

static void fill_port_attr(struct ibv_context *context, struct ibv_port_attr *attr)
{
	struct device_info info;

	device_get_info(context->device, &info);
	*attr = (struct ibv_port_attr){
		.state = info.running ? IBV_PORT_ACTIVE : IBV_PORT_DOWN,
		.max_mtu = IBV_MTU_4096,
		.active_mtu = mtu_from_netdev(info.netdev_mtu),
		.gid_tbl_len = GID_TABLE_LEN,
		.port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS,
		.max_msg_sz = HCA_MAX_MSG_LEN,
		.pkey_tbl_len = 1,
		.max_vl_num = 1,
		.active_width = WIDTH_1X,
		.active_speed = SPEED_EDR,
		.phys_state = info.running ? PHYS_STATE_LINK_UP : PHYS_STATE_DISABLED,
		.link_layer = IBV_LINK_LAYER_ETHERNET,
		.flags = IBV_QPF_GRH_REQUIRED,
	};
}

int query_port(struct ibv_context *context, uint8_t port_num, struct ibv_port_attr *attr,
	       size_t attr_len)
{
	struct ibv_port_attr full;

	if (port_num != PORT_NUM)
		return EINVAL;
	fill_port_attr(context, &full);
	memset(attr, 0, attr_len);
	memcpy(attr, &full, MIN(attr_len, sizeof(full)));
	return 0;
}

/*
 * The exported function takes the structure as it was before port_cap_flags2. The inline function
 * of newer headers that falls back to it has cleared the rest.
 */
int softhca_ibv_query_port(struct ibv_context *context, uint8_t port_num,
			   struct _compat_ibv_port_attr *attr)
{
	return query_port(context, port_num, (struct ibv_port_attr *)attr,
			  offsetof(struct ibv_port_attr, port_cap_flags2));
}

int softhca_ibv_query_gid(struct ibv_context *context, uint8_t port_num, int index,
			  union ibv_gid *gid)
{
	uint32_t ifindex;

	if (port_num != PORT_NUM || index < 0 || index >= GID_TABLE_LEN)
		return minus_one(EINVAL);
	if (device_get_gid(context->device, index, gid, &ifindex))
		memset(gid, 0, sizeof(*gid)); /* an empty slot is no error here */
	return 0;
}

/* Return: 0, EINVAL (out of range, flags), ENODATA (empty slot) */
static int get_gid_entry(struct ibv_context *context, uint32_t port_num, uint32_t index,
			 struct ibv_gid_entry *entry)
{
	*entry = (struct ibv_gid_entry){
		.gid_index = index,
		.port_num = port_num,
		.gid_type = IBV_GID_TYPE_ROCE_V2,
	};
	if (port_num != PORT_NUM || index >= GID_TABLE_LEN)
		return EINVAL;
	return device_get_gid(context->device, index, &entry->gid, &entry->ndev_ifindex) ? ENODATA
											 : 0;
}

int softhca__ibv_query_gid_ex(struct ibv_context *context, uint32_t port_num, uint32_t gid_index,
			      struct ibv_gid_entry *entry, uint32_t flags, size_t entry_size)
{
	struct ibv_gid_entry full;
	int ret;

	if (flags)
		return EINVAL;
	ret = get_gid_entry(context, port_num, gid_index, &full);
	if (ret)
		return ret;
	memset(entry, 0, entry_size);
	memcpy(entry, &full, MIN(entry_size, sizeof(full)));
	return 0;
}

ssize_t softhca__ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries,
				     size_t max_entries, uint32_t flags, size_t entry_size)
{
	struct ibv_gid_entry full;
	size_t n = 0;

	if (flags || !entry_size)
		return -EINVAL;
	for (uint32_t i = 0; i < GID_TABLE_LEN; i++) {
		uint8_t *out = (uint8_t *)entries + n * entry_size;

		if (get_gid_entry(context, PORT_NUM, i, &full))
			continue;
		if (n == max_entries)
			return -EINVAL; /* as libibverbs: the table does not fit */
		memset(out, 0, entry_size);
		memcpy(out, &full, MIN(entry_size, sizeof(full)));
		n++;
	}
	return (ssize_t)n;
}

int softhca_ibv_query_gid_type(struct ibv_context *context, uint8_t port_num, unsigned int index,
			       unsigned int *type)
{
	struct ibv_gid_entry entry;
	int ret = get_gid_entry(context, port_num, index, &entry);

	if (ret == EINVAL)
		return minus_one(ret);
	*type = ret ? GID_TYPE_SYSFS_IB_ROCE_V1 : GID_TYPE_SYSFS_ROCE_V2;
	return 0;
}

int softhca_ibv_query_pkey(struct ibv_context *context, uint8_t port_num, int index, __be16 *pkey)
{
	if (port_num != PORT_NUM || index != 0)
		return minus_one(EINVAL);
	*pkey = htobe16(PKEY_DEFAULT);
	return 0;
}

int softhca_ibv_get_pkey_index(struct ibv_context *context, uint8_t port_num, __be16 pkey)
{
	if (port_num != PORT_NUM || pkey != htobe16(PKEY_DEFAULT))
		return minus_one(EINVAL);
	return 0;
}
