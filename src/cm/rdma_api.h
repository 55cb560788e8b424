/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rdma_api.h: the RDMA CM API as the core offers it to its front ends: softhca_rdma_f for every
 * rdma_f of <rdma/rdma_cma.h> and <rdma/rdma_verbs.h>, with the same contract: 0 or -1 and errno,
 * pointers NULL and errno. Multicast answers EOPNOTSUPP.
 */
#ifndef SOFTHCA_CM_RDMA_API_H
#define SOFTHCA_CM_RDMA_API_H

#include "verbs/core_api.h"

/* event.c */
CORE_API struct rdma_event_channel *softhca_rdma_create_event_channel(void);
CORE_API void softhca_rdma_destroy_event_channel(struct rdma_event_channel *channel);
CORE_API int softhca_rdma_get_cm_event(struct rdma_event_channel *channel,
				       struct rdma_cm_event **event);
CORE_API int softhca_rdma_ack_cm_event(struct rdma_cm_event *event);
CORE_API const char *softhca_rdma_event_str(enum rdma_cm_event_type event);

/* id.c */
CORE_API int softhca_rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id,
				    void *context, enum rdma_port_space ps);
CORE_API int softhca_rdma_destroy_id(struct rdma_cm_id *id);
CORE_API int softhca_rdma_migrate_id(struct rdma_cm_id *id, struct rdma_event_channel *channel);
CORE_API int softhca_rdma_set_option(struct rdma_cm_id *id, int level, int optname, void *optval,
				     size_t optlen);
CORE_API __be16 softhca_rdma_get_src_port(struct rdma_cm_id *id);
CORE_API __be16 softhca_rdma_get_dst_port(struct rdma_cm_id *id);

/* addr.c */
CORE_API int softhca_rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *addr);
CORE_API int softhca_rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *src_addr,
				       struct sockaddr *dst_addr, int timeout_ms);
CORE_API int softhca_rdma_resolve_route(struct rdma_cm_id *id, int timeout_ms);

/* connect.c */
CORE_API int softhca_rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *param);
CORE_API int softhca_rdma_listen(struct rdma_cm_id *id, int backlog);
CORE_API int softhca_rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *param);
CORE_API int softhca_rdma_reject(struct rdma_cm_id *id, const void *private_data,
				 uint8_t private_data_len);
CORE_API int softhca_rdma_establish(struct rdma_cm_id *id);
CORE_API int softhca_rdma_notify(struct rdma_cm_id *id, enum ibv_event_type event);
CORE_API int softhca_rdma_disconnect(struct rdma_cm_id *id);

/* qp.c */
CORE_API int softhca_rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd,
				    struct ibv_qp_init_attr *attr);
CORE_API int softhca_rdma_create_qp_ex(struct rdma_cm_id *id, struct ibv_qp_init_attr_ex *attr);
CORE_API void softhca_rdma_destroy_qp(struct rdma_cm_id *id);
CORE_API int softhca_rdma_create_srq(struct rdma_cm_id *id, struct ibv_pd *pd,
				     struct ibv_srq_init_attr *attr);
CORE_API int softhca_rdma_create_srq_ex(struct rdma_cm_id *id, struct ibv_srq_init_attr_ex *attr);
CORE_API void softhca_rdma_destroy_srq(struct rdma_cm_id *id);
CORE_API int softhca_rdma_init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *attr,
				       int *attr_mask);

/* ep.c */
CORE_API int softhca_rdma_create_ep(struct rdma_cm_id **id, struct rdma_addrinfo *res,
				    struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
CORE_API void softhca_rdma_destroy_ep(struct rdma_cm_id *id);
CORE_API int softhca_rdma_get_request(struct rdma_cm_id *listen, struct rdma_cm_id **id);
CORE_API struct ibv_context **softhca_rdma_get_devices(int *num_devices);
CORE_API void softhca_rdma_free_devices(struct ibv_context **list);
CORE_API int softhca_rdma_join_multicast(struct rdma_cm_id *id, struct sockaddr *addr,
					 void *context);
CORE_API int softhca_rdma_join_multicast_ex(struct rdma_cm_id *id,
					    struct rdma_cm_join_mc_attr_ex *attr, void *context);
CORE_API int softhca_rdma_leave_multicast(struct rdma_cm_id *id, struct sockaddr *addr);

/* addrinfo.c */
CORE_API int softhca_rdma_getaddrinfo(const char *node, const char *service,
				      const struct rdma_addrinfo *hints,
				      struct rdma_addrinfo **res);
CORE_API void softhca_rdma_freeaddrinfo(struct rdma_addrinfo *res);

#endif
