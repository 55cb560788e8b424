/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * mad.h: connection management datagrams (IBTA 1.4, 12.6) and the RDMA IP CM header (annex A11)
 * as checked structures. All numbers are in host order, GUIDs and addresses are kept as bytes or
 * as the 64-bit number that the wire's big-endian bytes spell.
 */
#ifndef SOFTHCA_CM_MAD_H
#define SOFTHCA_CM_MAD_H

#include <stdbool.h>
#include <stdint.h>
#include <infiniband/verbs.h>

#define CM_MAD_LEN 256

enum cm_attribute {
	CM_REQ = 0x10,
	CM_MRA,
	CM_REJ,
	CM_REP,
	CM_RTU,
	CM_DREQ,
	CM_DREP,
	CM_SIDR_REQ,
	CM_SIDR_REP,
};

#define CM_REQ_PRIVATE_LEN	92
#define CM_MRA_PRIVATE_LEN	222
#define CM_REJ_PRIVATE_LEN	148
#define CM_REP_PRIVATE_LEN	196
#define CM_RTU_PRIVATE_LEN	224
#define CM_DREQ_PRIVATE_LEN	220
#define CM_DREP_PRIVATE_LEN	224
#define CM_SIDR_REQ_PRIVATE_LEN 216
#define CM_SIDR_REP_PRIVATE_LEN 136
#define CM_REJ_ARI_LEN		72

/* IBTA 1.4, 12.6.7.2 */
enum cm_rej_reason {
	CM_REJ_NO_QP = 1,
	CM_REJ_NO_EEC = 2,
	CM_REJ_NO_RESOURCES = 3,
	CM_REJ_TIMEOUT = 4,
	CM_REJ_UNSUPPORTED = 5,
	CM_REJ_INVALID_COMM_ID = 6,
	CM_REJ_INVALID_COMM_INSTANCE = 7,
	CM_REJ_INVALID_SERVICE_ID = 8,
	CM_REJ_INVALID_TRANSPORT = 9,
	CM_REJ_STALE_CONN = 10,
	CM_REJ_INVALID_GID = 12,
	CM_REJ_INVALID_MTU = 26,
	CM_REJ_CONSUMER = 28,
	CM_REJ_DUPLICATE_COMM_ID = 30,
};

/* which message a REJ or MRA answers */
enum cm_answered { CM_ANSWERS_REQ = 0, CM_ANSWERS_REP = 1, CM_ANSWERS_OTHER = 2 };

enum cm_transport { CM_TRANSPORT_RC = 0, CM_TRANSPORT_UC, CM_TRANSPORT_RD, CM_TRANSPORT_EXTENDED };

struct cm_path_fields {
	uint16_t local_lid, remote_lid;
	union ibv_gid local_gid, remote_gid; /* of the REQ's sender, of its receiver */
	uint32_t flow_label;		     /* 20 bits */
	uint8_t packet_rate;		     /* 6 bits */
	uint8_t traffic_class;
	uint8_t hop_limit;
	uint8_t sl; /* 4 bits */
	bool subnet_local;
	uint8_t ack_timeout; /* 5 bits */
};

struct cm_req {
	uint32_t local_id;
	uint32_t vendor_id; /* 24 bits */
	uint64_t service_id;
	uint64_t ca_guid;
	uint32_t qkey;
	uint32_t qpn;
	uint8_t responder_resources;
	uint8_t initiator_depth;
	uint32_t local_eecn, remote_eecn;
	uint8_t remote_response_timeout, local_response_timeout; /* 5 bits */
	enum cm_transport transport;
	bool flow_control;
	uint32_t starting_psn;
	uint8_t retry_count; /* 3 bits */
	uint16_t pkey;
	uint8_t path_mtu; /* 4 bits: enum ibv_mtu when in 1..5 */
	bool rdc_exists;
	uint8_t rnr_retry_count; /* 3 bits */
	uint8_t max_cm_retries;	 /* 4 bits */
	bool srq;
	uint8_t extended_transport; /* 3 bits */
	struct cm_path_fields primary, alternate;
	uint8_t private_data[CM_REQ_PRIVATE_LEN];
};

struct cm_mra {
	uint32_t local_id, remote_id;
	uint8_t answers;	 /* enum cm_answered */
	uint8_t service_timeout; /* 5 bits */
	uint8_t private_data[CM_MRA_PRIVATE_LEN];
};

struct cm_rej {
	uint32_t local_id, remote_id;
	uint8_t answers; /* enum cm_answered */
	uint8_t ari_len; /* 7 bits on the wire; at most CM_REJ_ARI_LEN here */
	uint16_t reason;
	uint8_t ari[CM_REJ_ARI_LEN];
	uint8_t private_data[CM_REJ_PRIVATE_LEN];
};

struct cm_rep {
	uint32_t local_id, remote_id;
	uint32_t qkey;
	uint32_t qpn;
	uint32_t eecn;
	uint32_t starting_psn;
	uint8_t responder_resources;
	uint8_t initiator_depth;
	uint8_t target_ack_delay; /* 5 bits */
	uint8_t failover;	  /* 2 bits: 0 accepted, 1 not supported, 2 rejected */
	bool flow_control;
	uint8_t rnr_retry_count; /* 3 bits */
	bool srq;
	uint64_t ca_guid;
	uint8_t private_data[CM_REP_PRIVATE_LEN];
};

struct cm_rtu {
	uint32_t local_id, remote_id;
	uint8_t private_data[CM_RTU_PRIVATE_LEN];
};

struct cm_dreq {
	uint32_t local_id, remote_id;
	uint32_t remote_qpn; /* the receiver's */
	uint8_t private_data[CM_DREQ_PRIVATE_LEN];
};

struct cm_drep {
	uint32_t local_id, remote_id;
	uint8_t private_data[CM_DREP_PRIVATE_LEN];
};

struct cm_sidr_req {
	uint32_t request_id;
	uint16_t pkey;
	uint64_t service_id;
	uint8_t private_data[CM_SIDR_REQ_PRIVATE_LEN];
};

enum cm_sidr_status {
	CM_SIDR_VALID,
	CM_SIDR_UNSUPPORTED_SERVICE,
	CM_SIDR_REJECTED,
	CM_SIDR_NO_QP,
	CM_SIDR_REDIRECT,
	CM_SIDR_UNSUPPORTED_VERSION,
};

struct cm_sidr_rep {
	uint32_t request_id;
	uint8_t status; /* enum cm_sidr_status */
	uint8_t info_len;
	uint32_t qpn;
	uint64_t service_id;
	uint32_t qkey;
	uint8_t info[72];
	uint8_t private_data[CM_SIDR_REP_PRIVATE_LEN];
};

struct cm_mad {
	uint64_t tid;
	uint16_t attribute; /* enum cm_attribute */
	uint32_t attribute_modifier;
	union {
		struct cm_req req;
		struct cm_mra mra;
		struct cm_rej rej;
		struct cm_rep rep;
		struct cm_rtu rtu;
		struct cm_dreq dreq;
		struct cm_drep drep;
		struct cm_sidr_req sidr_req;
		struct cm_sidr_rep sidr_rep;
	};
};

enum cm_mad_error {
	CM_MAD_OK,
	CM_MAD_BAD_VERSION,   /* base version, class or class version */
	CM_MAD_BAD_METHOD,    /* not Send */
	CM_MAD_BAD_ATTRIBUTE, /* none of enum cm_attribute */
};

/**
 * cm_mad_decode() - take a MAD apart. Every field is masked to its width; lengths that the wire
 * could overstate (rej.ari_len, sidr_rep.info_len) are cut to what there is.
 */
enum cm_mad_error cm_mad_decode(struct cm_mad *mad, const uint8_t data[CM_MAD_LEN]);

/* cm_mad_encode() - the opposite; reserved fields are 0 */
void cm_mad_encode(uint8_t data[CM_MAD_LEN], const struct cm_mad *mad);

/* "REQ" ...; for logs */
const char *cm_attribute_name(uint16_t attribute);
const char *cm_rej_reason_name(uint16_t reason);

/* ---- the RDMA IP CM service ------------------------------------------------ */

#define CMA_HEADER_LEN	     36
#define CMA_REQ_PRIVATE_LEN  (CM_REQ_PRIVATE_LEN - CMA_HEADER_LEN)
#define CMA_SIDR_PRIVATE_LEN (CM_SIDR_REQ_PRIVATE_LEN - CMA_HEADER_LEN)

/* the first bytes of the private data of REQ and SIDR_REQ; IPv4 addresses as ::ffff:a.b.c.d */
struct cma_header {
	uint8_t ip_version;   /* 4 or 6 */
	uint16_t source_port; /* host order */
	union ibv_gid src, dst;
};

/* Return: 0, or -EINVAL: CMA version not 0, IP version neither 4 nor 6 */
int cma_header_decode(struct cma_header *header, const uint8_t data[CMA_HEADER_LEN]);
void cma_header_encode(uint8_t data[CMA_HEADER_LEN], const struct cma_header *header);

static inline uint64_t cma_service_id(uint16_t port_space, uint16_t port)
{
	return (uint64_t)port_space << 16 | port;
}

static inline bool gid_is_ipv4(const union ibv_gid *gid)
{
	static const uint8_t prefix[12] = { [10] = 0xff, [11] = 0xff };

	return !__builtin_memcmp(gid->raw, prefix, sizeof(prefix));
}

static inline bool gid_equal(const union ibv_gid *a, const union ibv_gid *b)
{
	return !__builtin_memcmp(a->raw, b->raw, sizeof(a->raw));
}

#endif
