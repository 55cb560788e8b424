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
struct ibv_pd *softhca_ibv_alloc_pd(struct ibv_context *context);
int softhca_ibv_dealloc_pd(struct ibv_pd *pd);
struct ibv_mr *softhca_ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access);
struct ibv_mr *softhca_ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length,
					uint64_t iova, unsigned int access);
int softhca_ibv_dereg_mr(struct ibv_mr *mr);
struct ibv_comp_channel *softhca_ibv_create_comp_channel(struct ibv_context *context);
int softhca_ibv_destroy_comp_channel(struct ibv_comp_channel *channel);
struct ibv_cq *softhca_ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
				     struct ibv_comp_channel *channel, int comp_vector);
int softhca_ibv_destroy_cq(struct ibv_cq *cq);
struct ibv_srq *softhca_ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr);
int softhca_ibv_destroy_srq(struct ibv_srq *srq);
struct ibv_qp *softhca_ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
int softhca_ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int attr_mask);
int softhca_ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int attr_mask,
			 struct ibv_qp_init_attr *init_attr);
int softhca_ibv_destroy_qp(struct ibv_qp *qp);

#pragma GCC visibility pop

#endif
