/* SPDX-License-Identifier: BSD-2-Clause */
/* test_device.c: devices and what is asked of them without any object (V*, A* of situations.md) */
#include "verbs_fixture.h"

#include "hca/context.h"

static struct ibv_device *loopback_device(void)
{
	struct ibv_device **list, *device = NULL;
	int n = -1;

	setenv("SOFTHCA_DEVICES", "lo", 1);
	list = softhca_ibv_get_device_list(&n);
	assert_int_equal(n, 1);
	assert_null(list[1]);
	device = list[0];
	softhca_ibv_free_device_list(list);
	return device;
}

static void device_fields(void **state)
{
	struct ibv_device *device = loopback_device();
	const uint8_t *tail = (const uint8_t *)(device + 1);

	assert_string_equal(device->name, "softhca_lo");
	assert_string_equal(softhca_ibv_get_device_name(device), "softhca_lo");
	assert_string_equal(device->dev_name, "softhca_lo");
	assert_string_equal(device->ibdev_path, "/sys/class/infiniband/softhca_lo");
	assert_int_equal(device->node_type, IBV_NODE_CA);
	assert_int_equal(device->transport_type, IBV_TRANSPORT_IB);
	/* libmlx5 and libefa look for their own ops right behind the structure */
	for (int i = 0; i < 128; i++)
		assert_int_equal(tail[i], 0);
	assert_true(softhca_ibv_get_device_index(device) > 0);
	assert_string_equal(device_ifname(device), "lo");
	assert_int_equal(device_active_mtu(device), IBV_MTU_4096);
}

static void devices_are_stable(void **state)
{
	struct ibv_device *device = loopback_device();
	__be64 guid = softhca_ibv_get_device_guid(device);

	assert_true(guid != 0);
	for (int i = 0; i < 3; i++)
		assert_ptr_equal(loopback_device(), device);
	assert_true(softhca_ibv_get_device_guid(device) == guid);
}

static void chosen_devices(void **state)
{
	struct ibv_device **list;
	int n = -1;

	setenv("SOFTHCA_DEVICES", "no_such_if,l,loo", 1);
	list = softhca_ibv_get_device_list(&n);
	assert_int_equal(n, 0);
	assert_null(list[0]);
	softhca_ibv_free_device_list(list);
	setenv("SOFTHCA_DEVICES", "no_such_if,lo", 1);
	list = softhca_ibv_get_device_list(&n);
	assert_int_equal(n, 1);
	softhca_ibv_free_device_list(list);
}

static void opening_is_light(void **state)
{
	struct ibv_context *context = open_loopback();
	struct ibv_device_attr attr;
	union ibv_gid gid;

	assert_int_equal(softhca_ibv_query_device(context, &attr), 0);
	assert_int_equal(softhca_ibv_query_gid(context, 1, 0, &gid), 0);
	assert_int_equal(engine_requests, 0);
	assert_true(context->cmd_fd >= 0);
	assert_true(context->async_fd >= 0);
	assert_true(context->num_comp_vectors >= 1);
	assert_int_equal(softhca_ibv_close_device(context), 0);
}

static void inline_dispatch(void **state)
{
	struct ibv_context *context = open_loopback();
	struct verbs_context *verbs = verbs_get_ctx(context);

	assert_non_null(verbs);
	assert_int_equal(verbs->sz, sizeof(struct verbs_context));
	assert_non_null(verbs_get_ctx_op(context, query_port));
	assert_null(verbs_get_ctx_op(context, alloc_dm)); /* answers EOPNOTSUPP */
	/* not gated by the inline functions */
	assert_non_null(verbs->close_xrcd);
	assert_non_null(context->ops.bind_mw);
	assert_non_null(context->ops.dealloc_mw);
	errno = 0;
	assert_null(context->ops.alloc_mw(NULL, IBV_MW_TYPE_1));
	assert_int_equal(errno, EOPNOTSUPP);
	assert_true(context->ops._compat_query_device == softhca_ibv_query_device);
	assert_int_equal(softhca_ibv_close_device(context), 0);
}

static void device_attributes(void **state)
{
	struct ibv_context *context = open_loopback();
	struct ibv_query_device_ex_input input = { .comp_mask = 1 };
	struct {
		struct ibv_device_attr_ex attr;
		uint8_t newer[64];
	} ex;
	struct ibv_device_attr attr;

	memset(&attr, 0xff, sizeof(attr));
	assert_int_equal(softhca_ibv_query_device(context, &attr), 0);
	assert_true(attr.node_guid && attr.sys_image_guid); /* A11 */
	assert_true(attr.vendor_id != 0);
	assert_int_equal(attr.phys_port_cnt, 1);
	assert_int_equal(attr.max_sge, HCA_MAX_SGE);
	assert_int_equal(attr.max_qp_wr, HCA_MAX_QP_WR);
	assert_int_equal(attr.max_cqe, HCA_MAX_CQE);
	assert_int_equal(attr.max_srq_wr, HCA_MAX_SRQ_WR);
	assert_int_equal(attr.max_qp_rd_atom, HCA_MAX_RD_ATOMIC);
	assert_int_equal(attr.atomic_cap, IBV_ATOMIC_NONE);
	assert_int_equal(attr.max_mw, 0);
	assert_int_equal(attr.max_pkeys, 1);
	assert_true(attr.page_size_cap & 4096);
	assert_string_equal(attr.fw_ver, SOFTHCA_VERSION);

	memset(&ex, 0xff, sizeof(ex));
	assert_int_equal(
		verbs_get_ctx(context)->query_device_ex(context, NULL, &ex.attr, sizeof(ex)), 0);
	assert_memory_equal(&ex.attr.orig_attr, &attr, sizeof(attr));
	assert_int_equal(ex.attr.phys_port_cnt_ex, 1);
	assert_int_equal(ex.attr.odp_caps.general_caps, 0);
	for (size_t i = 0; i < sizeof(ex.newer); i++) /* a newer caller's structure is longer */
		assert_int_equal(ex.newer[i], 0);
	assert_int_equal(
		verbs_get_ctx(context)->query_device_ex(context, &input, &ex.attr, sizeof(ex.attr)),
		EINVAL);
	assert_int_equal(softhca_ibv_close_device(context), 0);
}

static void port_attributes(void **state)
{
	struct ibv_context *context = open_loopback();
	struct verbs_context *verbs = verbs_get_ctx(context);
	struct {
		struct ibv_port_attr attr;
		uint32_t newer;
	} port;
	uint8_t compat[sizeof(struct ibv_port_attr)];

	memset(&port, 0xff, sizeof(port));
	assert_int_equal(verbs->query_port(context, 1, &port.attr, sizeof(port)), 0);
	assert_int_equal(port.attr.state, IBV_PORT_ACTIVE);
	assert_int_equal(port.attr.max_mtu, IBV_MTU_4096);
	assert_int_equal(port.attr.active_mtu, IBV_MTU_4096);
	assert_int_equal(port.attr.link_layer, IBV_LINK_LAYER_ETHERNET);
	assert_int_equal(port.attr.max_msg_sz, HCA_MAX_MSG_LEN);
	assert_int_equal(port.attr.pkey_tbl_len, 1);
	assert_int_equal(port.attr.lid, 0);
	assert_int_equal(port.attr.flags, IBV_QPF_GRH_REQUIRED);
	assert_int_equal(port.newer, 0);
	assert_int_equal(verbs->query_port(context, 0, &port.attr, sizeof(port)), EINVAL);
	assert_int_equal(verbs->query_port(context, 2, &port.attr, sizeof(port)), EINVAL);

	/* the exported function writes the old, shorter structure */
	memset(compat, 0xee, sizeof(compat));
	assert_int_equal(softhca_ibv_query_port(context, 1, (void *)compat), 0);
	assert_memory_equal(compat, &port.attr, offsetof(struct ibv_port_attr, port_cap_flags2));
	for (size_t i = offsetof(struct ibv_port_attr, port_cap_flags2); i < sizeof(compat); i++)
		assert_int_equal(compat[i], 0xee);
	assert_int_equal(softhca_ibv_close_device(context), 0);
}

static void gids(void **state)
{
	struct ibv_context *context = open_loopback();
	struct ibv_gid_entry entry, entries[64];
	union ibv_gid gid, zero = { 0 };
	int index = loopback_gid_index(context);
	unsigned int type = 99;
	ssize_t n;

	assert_int_equal(softhca_ibv_query_gid(context, 1, index, &gid), 0);
	assert_int_equal(gid.raw[12], 127);
	assert_ptr_equal(device_by_gid(&gid, 0), context->device);
	assert_ptr_equal(device_by_gid(&gid, device_ifindex(context->device)), context->device);
	assert_null(device_by_gid(&gid, 0x7fffffff));
	assert_null(device_by_gid(&zero, 0));
	assert_int_equal(device_gid_index(context->device, &zero), -1);

	/* an empty slot: success and a zero GID; out of range: -1, EINVAL */
	assert_int_equal(softhca_ibv_query_gid(context, 1, 63, &gid), 0);
	assert_memory_equal(&gid, &zero, sizeof(gid));
	errno = 0;
	assert_int_equal(softhca_ibv_query_gid(context, 1, 64, &gid), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(softhca_ibv_query_gid(context, 1, -1, &gid), -1);
	assert_int_equal(softhca_ibv_query_gid(context, 2, 0, &gid), -1);

	assert_int_equal(softhca__ibv_query_gid_ex(context, 1, index, &entry, 0, sizeof(entry)), 0);
	assert_int_equal(entry.gid_type, IBV_GID_TYPE_ROCE_V2);
	assert_int_equal(entry.gid_index, index);
	assert_int_equal(entry.port_num, 1);
	assert_int_equal(entry.ndev_ifindex, device_ifindex(context->device));
	assert_int_equal(softhca__ibv_query_gid_ex(context, 1, 63, &entry, 0, sizeof(entry)),
			 ENODATA);
	assert_int_equal(softhca__ibv_query_gid_ex(context, 1, 64, &entry, 0, sizeof(entry)),
			 EINVAL);
	assert_int_equal(softhca__ibv_query_gid_ex(context, 1, 0, &entry, 1, sizeof(entry)),
			 EINVAL);
	n = softhca__ibv_query_gid_table(context, entries, 64, 0, sizeof(entries[0]));
	assert_true(n >= 1);
	assert_int_equal(softhca__ibv_query_gid_table(context, entries, 0, 0, sizeof(entries[0])),
			 -EINVAL);
	assert_int_equal(softhca_ibv_query_gid_type(context, 1, index, &type), 0);
	assert_int_equal(type, 1);
	assert_int_equal(softhca_ibv_query_gid_type(context, 1, 64, &type), -1);
	assert_int_equal(softhca_ibv_close_device(context), 0);
}

static void pkeys(void **state)
{
	struct ibv_context *context = open_loopback();
	__be16 pkey = 0;

	assert_int_equal(softhca_ibv_query_pkey(context, 1, 0, &pkey), 0);
	assert_int_equal(pkey, htobe16(0xffff));
	errno = 0;
	assert_int_equal(softhca_ibv_query_pkey(context, 1, 1, &pkey), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(softhca_ibv_get_pkey_index(context, 1, htobe16(0xffff)), 0);
	assert_int_equal(softhca_ibv_get_pkey_index(context, 1, htobe16(0x1234)), -1);
	assert_int_equal(softhca_ibv_close_device(context), 0);
}

static void the_cm_shares_one_context(void **state)
{
	struct ibv_device *device = loopback_device();
	struct ibv_context *context = device_cm_context(device);

	assert_non_null(context);
	assert_ptr_equal(device_cm_context(device), context);
	assert_true(context_is_ours(context));
}

static void foreign_objects(void **state)
{
	struct ibv_device other_device = { .name = "mlx5_0" };
	struct ibv_context other = { .device = &other_device };
	struct ibv_mp_wr_caps mp_wr = { 1, 1 };
	struct ibv_nvmf_caps nvmf;
	struct ibv_srq srq = { .context = &other };
	struct ibv_qp qp = { .context = &other };
	uint16_t sqhd;

	assert_false(context_is_ours(&other));
	assert_int_equal(softhca_is_device(&other), 0);
	assert_int_equal(ibv_query_mp_wr_caps(&other, &mp_wr), 0);
	assert_int_equal(mp_wr.max_wr_buffer_sz, 0);
	assert_int_equal(mp_wr.max_packet_align_sz, 0);
	memset(&nvmf, 0xff, sizeof(nvmf));
	assert_int_equal(ibv_query_nvmf_caps(&other, &nvmf), 0);
	assert_int_equal(nvmf.offload_type_rc, 0);
	assert_int_equal(nvmf.max_frontend_nsid, 0);
	errno = 0;
	assert_null(ibv_srq_create_nvme_ctrl(&srq, NULL));
	assert_int_equal(errno, EINVAL);
	assert_int_equal(ibv_modify_qp_nvmf(&qp, 0), EINVAL);
	assert_int_equal(softhca_nvmf_sqhd(&qp, &sqhd), EINVAL);
	assert_int_equal(ibv_query_mp_wr_caps(NULL, &mp_wr), EINVAL);
	assert_int_equal(ibv_query_nvmf_caps(NULL, &nvmf), EINVAL);
}

static void our_own_caps(void **state)
{
	struct ibv_context *context = open_loopback();
	struct ibv_mp_wr_caps mp_wr;
	struct ibv_nvmf_caps nvmf;
	const char *name;
	uint64_t value;
	unsigned int n = 0;

	assert_int_equal(softhca_is_device(context), 1);
	assert_int_equal(ibv_query_mp_wr_caps(context, NULL), EINVAL);
	assert_int_equal(ibv_query_mp_wr_caps(context, &mp_wr), 0);
	assert_int_equal(mp_wr.max_wr_buffer_sz, 64 << 20);
	assert_int_equal(mp_wr.max_packet_align_sz, 64 << 10);
	assert_int_equal(ibv_query_nvmf_caps(context, &nvmf), 0);
	assert_true(nvmf.offload_type_rc != 0);
	assert_string_equal(softhca_version(), SOFTHCA_VERSION);
	while (!softhca_counter(n, &name, &value))
		assert_true(*name && n++ < 1000);
	assert_true(n > 10);
	assert_int_equal(softhca_counter(n, &name, &value), ENOENT);
	assert_int_equal(softhca_fault_set("nonsense=1"), EINVAL);
	assert_int_equal(softhca_fault_set(NULL), 0);
	assert_int_equal(softhca_ibv_close_device(context), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(device_fields),   cmocka_unit_test(devices_are_stable),
		cmocka_unit_test(chosen_devices),  cmocka_unit_test(opening_is_light),
		cmocka_unit_test(inline_dispatch), cmocka_unit_test(device_attributes),
		cmocka_unit_test(port_attributes), cmocka_unit_test(gids),
		cmocka_unit_test(pkeys),	   cmocka_unit_test(the_cm_shares_one_context),
		cmocka_unit_test(foreign_objects), cmocka_unit_test(our_own_caps),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
