/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * core_api.h: the names under which the core library offers the verbs and rdma_cm API to its
 * front ends. For every public function f of libibverbs or librdmacm that we serve, the core has
 * softhca_f with the same type (softhca_ibv_open_device, softhca_rdma_connect ...). The list is
 * src/front/symbols.txt; trampolines, symbol maps and this header's declarations are made from it
 * or kept equal to it by a test.
 */
#ifndef SOFTHCA_VERBS_CORE_API_H
#define SOFTHCA_VERBS_CORE_API_H

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#define CORE_API __attribute__((visibility("default")))

/* everything declared here is exported by libsofthca.so */
#pragma GCC visibility push(default)

/* every declaration of a verbs call has default visibility, whatever the room was compiled with */
#pragma GCC visibility push(default)

/* devices and contexts (device.c, context.c, query.c) */
struct ibv_device **softhca_ibv_get_device_list(int *num_devices);
void softhca_ibv_free_device_list(struct ibv_device **list);
const char *softhca_ibv_get_device_name(struct ibv_device *device);
int softhca_ibv_get_device_index(struct ibv_device *device);
__be64 softhca_ibv_get_device_guid(struct ibv_device *device);
struct ibv_context *softhca_ibv_open_device(struct ibv_device *device);
int softhca_ibv_close_device(struct ibv_context *context);
int softhca_ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr);
int softhca_ibv_query_port(struct ibv_context *context, uint8_t port_num,
			   struct _compat_ibv_port_attr *attr);
int softhca_ibv_query_gid(struct ibv_context *context, uint8_t port_num, int index,
			  union ibv_gid *gid);
int softhca__ibv_query_gid_ex(struct ibv_context *context, uint32_t port_num, uint32_t gid_index,
			      struct ibv_gid_entry *entry, uint32_t flags, size_t entry_size);
ssize_t softhca__ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries,
				     size_t max_entries, uint32_t flags, size_t entry_size);
/* private in libibverbs, but ibv_devinfo and pyverbs call it. @type: 0 = IB or RoCE v1, 1 = v2 */
int softhca_ibv_query_gid_type(struct ibv_context *context, uint8_t port_num, unsigned int index,
			       unsigned int *type);
int softhca_ibv_query_pkey(struct ibv_context *context, uint8_t port_num, int index, __be16 *pkey);
int softhca_ibv_get_pkey_index(struct ibv_context *context, uint8_t port_num, __be16 pkey);
int softhca_ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event);
void softhca_ibv_ack_async_event(struct ibv_async_event *event);

/* protection domains and memory regions (pd.c, mr.c) */
struct ibv_pd *softhca_ibv_alloc_pd(struct ibv_context *context);
int softhca_ibv_dealloc_pd(struct ibv_pd *pd);
struct ibv_mr *softhca_ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access);
struct ibv_mr *softhca_ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
				       int access);
struct ibv_mr *softhca_ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
					unsigned int access);
int softhca_ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length,
			 int access);
int softhca_ibv_dereg_mr(struct ibv_mr *mr);

/* completion channels and queues (channel.c, cq.c) */
struct ibv_comp_channel *softhca_ibv_create_comp_channel(struct ibv_context *context);
int softhca_ibv_destroy_comp_channel(struct ibv_comp_channel *channel);
struct ibv_cq *softhca_ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
				     struct ibv_comp_channel *channel, int comp_vector);
int softhca_ibv_resize_cq(struct ibv_cq *cq, int cqe);
int softhca_ibv_destroy_cq(struct ibv_cq *cq);
int softhca_ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq,
			     void **cq_context);
void softhca_ibv_ack_cq_events(struct ibv_cq *cq, unsigned int nevents);

/* shared receive queues and queue pairs (srq.c, qp.c) */
struct ibv_srq *softhca_ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr);
int softhca_ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int attr_mask);
int softhca_ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr);
int softhca_ibv_destroy_srq(struct ibv_srq *srq);
struct ibv_qp *softhca_ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
int softhca_ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int attr_mask);
int softhca_ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int attr_mask,
			 struct ibv_qp_init_attr *init_attr);
int softhca_ibv_destroy_qp(struct ibv_qp *qp);
struct ibv_qp_ex *softhca_ibv_qp_to_qp_ex(struct ibv_qp *qp);
int softhca_ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags);

/* address handles (ah.c) */
struct ibv_ah *softhca_ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr);
int softhca_ibv_init_ah_from_wc(struct ibv_context *context, uint8_t port_num, struct ibv_wc *wc,
				struct ibv_grh *grh, struct ibv_ah_attr *ah_attr);
struct ibv_ah *softhca_ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc,
					     struct ibv_grh *grh, uint8_t port_num);
int softhca_ibv_destroy_ah(struct ibv_ah *ah);

/* texts and rates (strings.c) */
const char *softhca_ibv_wc_status_str(enum ibv_wc_status status);
const char *softhca_ibv_event_type_str(enum ibv_event_type event);
const char *softhca_ibv_node_type_str(enum ibv_node_type node_type);
const char *softhca_ibv_port_state_str(enum ibv_port_state port_state);
int softhca_ibv_rate_to_mult(enum ibv_rate rate);
enum ibv_rate softhca_mult_to_ibv_rate(int mult);
int softhca_ibv_rate_to_mbps(enum ibv_rate rate);
enum ibv_rate softhca_mbps_to_ibv_rate(int mbps);

/* everything else (misc.c) */
const char *softhca_ibv_get_sysfs_path(void);
int softhca_ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size);
int softhca_ibv_fork_init(void);
enum ibv_fork_status softhca_ibv_is_fork_initialized(void);
int softhca_ibv_dontfork_range(void *base, size_t size);
int softhca_ibv_dofork_range(void *base, size_t size);
int softhca_ibv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid);
int softhca_ibv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid);
int softhca_ibv_resolve_eth_l2_from_gid(struct ibv_context *context, struct ibv_ah_attr *attr,
					uint8_t eth_mac[ETHERNET_LL_SIZE], uint16_t *vid);
struct ibv_context *softhca_ibv_import_device(int cmd_fd);
struct ibv_pd *softhca_ibv_import_pd(struct ibv_context *context, uint32_t pd_handle);
void softhca_ibv_unimport_pd(struct ibv_pd *pd);
struct ibv_mr *softhca_ibv_import_mr(struct ibv_pd *pd, uint32_t mr_handle);
void softhca_ibv_unimport_mr(struct ibv_mr *mr);
struct ibv_dm *softhca_ibv_import_dm(struct ibv_context *context, uint32_t dm_handle);
void softhca_ibv_unimport_dm(struct ibv_dm *dm);
struct ibv_mr *softhca_ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length,
					 uint64_t iova, int fd, int access);
int softhca_ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece);
int softhca_ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece);
struct ib_uverbs_ah_attr;
struct ib_uverbs_qp_attr;
struct ib_user_path_rec;
struct ibv_sa_path_rec;
struct ibv_kern_path_rec;
void softhca_ibv_copy_ah_attr_from_kern(struct ibv_ah_attr *dst, struct ib_uverbs_ah_attr *src);
void softhca_ibv_copy_qp_attr_from_kern(struct ibv_qp_attr *dst, struct ib_uverbs_qp_attr *src);
void softhca_ibv_copy_path_rec_from_kern(struct ibv_sa_path_rec *dst, struct ib_user_path_rec *src);
void softhca_ibv_copy_path_rec_to_kern(struct ib_user_path_rec *dst, struct ibv_sa_path_rec *src);

#pragma GCC visibility pop

#endif
