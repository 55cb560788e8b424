/* SPDX-License-Identifier: BSD-2-Clause */
/* test_strings.c: texts, rates, file look-ups and what is not supported */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
#include <rdma/ib_user_verbs.h>

#include "verbs_fixture.h"

static void texts(void **state)
{
	assert_string_equal(softhca_ibv_wc_status_str(IBV_WC_SUCCESS), "success");
	assert_string_equal(softhca_ibv_wc_status_str(IBV_WC_RETRY_EXC_ERR),
			    "transport retry counter exceeded");
	assert_string_equal(softhca_ibv_wc_status_str(999), "unknown");
	assert_string_equal(softhca_ibv_wc_status_str(-1), "unknown");
	assert_string_equal(softhca_ibv_event_type_str(IBV_EVENT_CQ_ERR), "CQ error");
	assert_string_equal(softhca_ibv_event_type_str(IBV_EVENT_WQ_FATAL), "WQ fatal");
	assert_string_equal(softhca_ibv_event_type_str(20), "unknown");
	assert_string_equal(softhca_ibv_event_type_str(-1), "unknown");
	assert_string_equal(softhca_ibv_event_type_str(IBV_EVENT_NVMF_QP_ERR),
			    "NVMe-oF offloaded QP error");
	assert_string_equal(softhca_ibv_event_type_str(IBV_EVENT_NVMF_QP_LAST_CQE_REACHED + 1),
			    "unknown");
	assert_string_equal(softhca_ibv_node_type_str(IBV_NODE_CA), "InfiniBand channel adapter");
	assert_string_equal(softhca_ibv_node_type_str(0), "unknown");
	assert_string_equal(softhca_ibv_node_type_str(IBV_NODE_UNKNOWN), "unknown");
	assert_string_equal(softhca_ibv_port_state_str(IBV_PORT_ACTIVE), "active");
	assert_string_equal(softhca_ibv_port_state_str(99), "unknown");
}

static void rates(void **state)
{
	static const struct {
		enum ibv_rate rate;
		int mult, mbps;
	} cases[] = {
		{ IBV_RATE_2_5_GBPS, 1, 2500 },	    { IBV_RATE_100_GBPS, 40, 103125 },
		{ IBV_RATE_14_GBPS, 6, 14062 },	    { IBV_RATE_1200_GBPS, 480, 1275000 },
		{ IBV_RATE_400_GBPS, 160, 425000 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(softhca_ibv_rate_to_mult(cases[i].rate), cases[i].mult);
		assert_int_equal(softhca_mult_to_ibv_rate(cases[i].mult), cases[i].rate);
		assert_int_equal(softhca_ibv_rate_to_mbps(cases[i].rate), cases[i].mbps);
		assert_int_equal(softhca_mbps_to_ibv_rate(cases[i].mbps), cases[i].rate);
	}
	assert_int_equal(softhca_ibv_rate_to_mult(IBV_RATE_MAX), -1);
	assert_int_equal(softhca_ibv_rate_to_mbps(99), -1);
	assert_int_equal(softhca_mult_to_ibv_rate(7), IBV_RATE_MAX);
}

static void sysfs_files(void **state)
{
	char dir[] = "/tmp/test_verbs_XXXXXX", path[64], buf[8];
	int fd;

	assert_string_equal(softhca_ibv_get_sysfs_path(), "/sys");
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/board_id", dir);
	fd = open(path, O_CREAT | O_WRONLY, 0600);
	assert_int_equal(write(fd, "abc\n", 4), 4);
	close(fd);
	assert_int_equal(softhca_ibv_read_sysfs_file(dir, "board_id", buf, sizeof(buf)), 3);
	assert_string_equal(buf, "abc");
	assert_int_equal(softhca_ibv_read_sysfs_file(dir, "none", buf, sizeof(buf)), -1);
	assert_int_equal(errno, ENOENT);
	unlink(path);
	rmdir(dir);
}

static void not_supported(void **state)
{
	errno = 0;
	assert_null(softhca_ibv_import_device(3));
	assert_int_equal(errno, EOPNOTSUPP);
	errno = 0;
	/* NCCL believes in DMA-BUF unless this is the errno */
	assert_null(softhca_ibv_reg_dmabuf_mr(NULL, 0, 4096, 0, -1, 0));
	assert_int_equal(errno, EOPNOTSUPP);
	errno = 0;
	assert_null(softhca_ibv_import_dm(NULL, 0));
	assert_int_equal(errno, EOPNOTSUPP);
	assert_int_equal(softhca_ibv_fork_init(), 0);
	assert_int_equal(softhca_ibv_is_fork_initialized(), IBV_FORK_UNNEEDED);
}

static void kernel_structures(void **state)
{
	struct ib_uverbs_qp_attr src = { .qp_state = 3, .path_mtu = 5, .sq_psn = 0xabcdef };
	struct ibv_qp_attr dst;

	src.ah_attr.grh.dgid[15] = 7;
	src.ah_attr.is_global = 1;
	src.retry_cnt = 6;
	memset(&dst, 0xff, sizeof(dst));
	softhca_ibv_copy_qp_attr_from_kern(&dst, &src);
	assert_int_equal(dst.qp_state, IBV_QPS_RTS);
	assert_int_equal(dst.path_mtu, IBV_MTU_4096);
	assert_int_equal(dst.sq_psn, 0xabcdef);
	assert_int_equal(dst.ah_attr.grh.dgid.raw[15], 7);
	assert_int_equal(dst.ah_attr.is_global, 1);
	assert_int_equal(dst.retry_cnt, 6);
	assert_int_equal(dst.alt_timeout, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(texts),
		cmocka_unit_test(rates),
		cmocka_unit_test(sysfs_files),
		cmocka_unit_test(not_supported),
		cmocka_unit_test(kernel_structures),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
