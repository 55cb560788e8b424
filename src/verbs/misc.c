/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * misc.c: the rest of libibverbs's public calls: file look-ups, fork, conversions from the kernel's
 * structures, and what we do not have, which says so.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>
#include <infiniband/sa.h>
#include <rdma/ib_user_sa.h>
#include <rdma/ib_user_verbs.h>

#include "verbs/objects.h"

/* ---- files --------------------------------------------------------------------- */

const char *softhca_ibv_get_sysfs_path(void)
{
	static char path[IBV_SYSFS_PATH_MAX];
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	const char *env = getauxval(AT_SECURE) ? NULL : getenv("SYSFS_PATH");
	size_t len;

	pthread_mutex_lock(&lock);
	if (!*path) {
		snprintf(path, sizeof(path), "%s", env && *env ? env : "/sys");
		for (len = strlen(path); len > 1 && path[len - 1] == '/'; len--)
			path[len - 1] = '\0';
	}
	pthread_mutex_unlock(&lock);
	return path;
}

int softhca_ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size)
{
	char path[IBV_SYSFS_PATH_MAX + 256];
	ssize_t len;
	int fd;

	if (!size || snprintf(path, sizeof(path), "%s/%s", dir, file) >= (int)sizeof(path))
		return minus_one(EINVAL);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	len = read(fd, buf, size);
	close(fd);
	if (len < 0)
		return -1;
	if (len && buf[len - 1] == '\n')
		buf[--len] = '\0';
	else if ((size_t)len < size)
		buf[len] = '\0';
	else
		return minus_one(EINVAL);
	return (int)len;
}

/* ---- fork: no page of the application is pinned, there is nothing to prepare ------ */

int softhca_ibv_fork_init(void)
{
	return 0;
}

enum ibv_fork_status softhca_ibv_is_fork_initialized(void)
{
	return IBV_FORK_UNNEEDED;
}

int softhca_ibv_dontfork_range(void *base, size_t size)
{
	return 0;
}

int softhca_ibv_dofork_range(void *base, size_t size)
{
	return 0;
}

/* ---- the kernel's structures ------------------------------------------------------- */

void softhca_ibv_copy_ah_attr_from_kern(struct ibv_ah_attr *dst, struct ib_uverbs_ah_attr *src)
{
	memcpy(dst->grh.dgid.raw, src->grh.dgid, sizeof(dst->grh.dgid));
	dst->grh.flow_label = src->grh.flow_label;
	dst->grh.sgid_index = src->grh.sgid_index;
	dst->grh.hop_limit = src->grh.hop_limit;
	dst->grh.traffic_class = src->grh.traffic_class;
	dst->dlid = src->dlid;
	dst->sl = src->sl;
	dst->src_path_bits = src->src_path_bits;
	dst->static_rate = src->static_rate;
	dst->is_global = src->is_global;
	dst->port_num = src->port_num;
}

void softhca_ibv_copy_qp_attr_from_kern(struct ibv_qp_attr *dst, struct ib_uverbs_qp_attr *src)
{
	dst->qp_state = src->qp_state;
	dst->cur_qp_state = src->cur_qp_state;
	dst->path_mtu = src->path_mtu;
	dst->path_mig_state = src->path_mig_state;
	dst->qkey = src->qkey;
	dst->rq_psn = src->rq_psn;
	dst->sq_psn = src->sq_psn;
	dst->dest_qp_num = src->dest_qp_num;
	dst->qp_access_flags = src->qp_access_flags;
	dst->cap.max_send_wr = src->max_send_wr;
	dst->cap.max_recv_wr = src->max_recv_wr;
	dst->cap.max_send_sge = src->max_send_sge;
	dst->cap.max_recv_sge = src->max_recv_sge;
	dst->cap.max_inline_data = src->max_inline_data;
	softhca_ibv_copy_ah_attr_from_kern(&dst->ah_attr, &src->ah_attr);
	softhca_ibv_copy_ah_attr_from_kern(&dst->alt_ah_attr, &src->alt_ah_attr);
	dst->pkey_index = src->pkey_index;
	dst->alt_pkey_index = src->alt_pkey_index;
	dst->en_sqd_async_notify = src->en_sqd_async_notify;
	dst->sq_draining = src->sq_draining;
	dst->max_rd_atomic = src->max_rd_atomic;
	dst->max_dest_rd_atomic = src->max_dest_rd_atomic;
	dst->min_rnr_timer = src->min_rnr_timer;
	dst->port_num = src->port_num;
	dst->timeout = src->timeout;
	dst->retry_cnt = src->retry_cnt;
	dst->rnr_retry = src->rnr_retry;
	dst->alt_port_num = src->alt_port_num;
	dst->alt_timeout = src->alt_timeout;
}

/* the fields that both path records have under one name */
#define COPY_PATH_REC(dst, src)                                                                    \
	do {                                                                                       \
		memcpy(&(dst)->dgid, &(src)->dgid, 16);                                            \
		memcpy(&(dst)->sgid, &(src)->sgid, 16);                                            \
		(dst)->dlid = (src)->dlid;                                                         \
		(dst)->slid = (src)->slid;                                                         \
		(dst)->raw_traffic = (src)->raw_traffic;                                           \
		(dst)->flow_label = (src)->flow_label;                                             \
		(dst)->hop_limit = (src)->hop_limit;                                               \
		(dst)->traffic_class = (src)->traffic_class;                                       \
		(dst)->reversible = (src)->reversible;                                             \
		(dst)->numb_path = (src)->numb_path;                                               \
		(dst)->pkey = (src)->pkey;                                                         \
		(dst)->sl = (src)->sl;                                                             \
		(dst)->mtu_selector = (src)->mtu_selector;                                         \
		(dst)->mtu = (src)->mtu;                                                           \
		(dst)->rate_selector = (src)->rate_selector;                                       \
		(dst)->rate = (src)->rate;                                                         \
		(dst)->packet_life_time_selector = (src)->packet_life_time_selector;               \
		(dst)->packet_life_time = (src)->packet_life_time;                                 \
		(dst)->preference = (src)->preference;                                             \
	} while (0)

void softhca_ibv_copy_path_rec_from_kern(struct ibv_sa_path_rec *dst, struct ib_user_path_rec *src)
{
	COPY_PATH_REC(dst, src);
}

void softhca_ibv_copy_path_rec_to_kern(struct ib_user_path_rec *dst, struct ibv_sa_path_rec *src)
{
	COPY_PATH_REC(dst, src);
}

/* ---- not supported -------------------------------------------------------------------- */

int softhca_ibv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	return EOPNOTSUPP;
}

int softhca_ibv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	return EOPNOTSUPP;
}

int softhca_ibv_resolve_eth_l2_from_gid(struct ibv_context *context, struct ibv_ah_attr *attr,
					uint8_t eth_mac[ETHERNET_LL_SIZE], uint16_t *vid)
{
	return minus_one(EOPNOTSUPP);
}

struct ibv_context *softhca_ibv_import_device(int cmd_fd)
{
	return fail_with(EOPNOTSUPP);
}

struct ibv_pd *softhca_ibv_import_pd(struct ibv_context *context, uint32_t pd_handle)
{
	return fail_with(EOPNOTSUPP);
}

void softhca_ibv_unimport_pd(struct ibv_pd *pd)
{
}

struct ibv_mr *softhca_ibv_import_mr(struct ibv_pd *pd, uint32_t mr_handle)
{
	return fail_with(EOPNOTSUPP);
}

void softhca_ibv_unimport_mr(struct ibv_mr *mr)
{
}

struct ibv_dm *softhca_ibv_import_dm(struct ibv_context *context, uint32_t dm_handle)
{
	return fail_with(EOPNOTSUPP);
}

void softhca_ibv_unimport_dm(struct ibv_dm *dm)
{
}

struct ibv_mr *softhca_ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length,
					 uint64_t iova, int fd, int access)
{
	return fail_with(EOPNOTSUPP);
}

int softhca_ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	return EOPNOTSUPP;
}

int softhca_ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	return EOPNOTSUPP;
}
