/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fabrics.h: NVMe over Fabrics' data structures on RDMA: CM private data, the Connect data, the
 * discovery log and the offsets of the Identify data that hosts and targets look at.
 * NVM Express over Fabrics 1.1, NVM Express Base 2.0. All little-endian.
 */
#ifndef SOFTHCA_NVME_FABRICS_H
#define SOFTHCA_NVME_FABRICS_H

#include <assert.h>
#include <stdint.h>
#include <linux/types.h>

/* ---- CM private data (NVMe/RDMA transport) -------------------------------- */

struct nvmf_rdma_request {
	__le16 recfmt;
	__le16 qid;
	__le16 hrqsize; /* 0-based */
	__le16 hsqsize; /* 0-based */
	__le16 cntlid;
	uint8_t reserved[22];
};
static_assert(sizeof(struct nvmf_rdma_request) == 32, "CM request private data");

struct nvmf_rdma_accept {
	__le16 recfmt;
	__le16 crqsize; /* 0-based */
	uint8_t reserved[28];
};
static_assert(sizeof(struct nvmf_rdma_accept) == 32, "CM accept private data");

struct nvmf_rdma_reject {
	__le16 recfmt;
	__le16 status;
};
static_assert(sizeof(struct nvmf_rdma_reject) == 4, "CM reject private data");

enum nvmf_rdma_reject_status {
	NVMF_RDMA_REJECT_LENGTH = 1,
	NVMF_RDMA_REJECT_RECFMT = 2,
	NVMF_RDMA_REJECT_QID = 3,
	NVMF_RDMA_REJECT_HSQSIZE = 4,
	NVMF_RDMA_REJECT_HRQSIZE = 5,
	NVMF_RDMA_REJECT_RESOURCES = 6,
	NVMF_RDMA_REJECT_IRD = 7,
	NVMF_RDMA_REJECT_ORD = 8,
	NVMF_RDMA_REJECT_CNTLID = 9,
};

/* ---- Fabrics commands ------------------------------------------------------ */

/* a Connect command's SQE beyond the common part */
struct nvmf_connect_sqe {
	uint8_t opcode, flags;
	__le16 cid;
	uint8_t fctype;
	uint8_t reserved5[19];
	uint8_t sgl[16];
	__le16 recfmt, qid, sqsize;
	uint8_t cattr, reserved47;
	__le32 kato;
	uint8_t reserved52[12];
};
static_assert(sizeof(struct nvmf_connect_sqe) == 64, "Connect SQE");

struct nvmf_property_sqe {
	uint8_t opcode, flags;
	__le16 cid;
	uint8_t fctype;
	uint8_t reserved5[19];
	uint8_t sgl[16];
	uint8_t attrib; /* 2:0: 0 = 4 bytes, 1 = 8 bytes */
	uint8_t reserved41[3];
	__le32 offset;
	__le64 value;
	uint8_t reserved56[8];
};
static_assert(sizeof(struct nvmf_property_sqe) == 64, "Property SQE");

struct nvmf_connect_data {
	uint8_t hostid[16];
	__le16 cntlid;
	uint8_t reserved18[238];
	char subnqn[256];
	char hostnqn[256];
	uint8_t reserved768[256];
};
static_assert(sizeof(struct nvmf_connect_data) == 1024, "Connect data");

#define NVMF_CNTLID_DYNAMIC	 0xffff
#define NVMF_CNTLID_MIN		 1
#define NVMF_CNTLID_MAX		 0xffef
#define NVMF_CONNECT_IPO_IN_DATA (1U << 16)
#define NVMF_CATTR_NO_SQ_FLOW	 0x04
#define NVMF_SQHD_NO_FLOW	 0xffff

enum nvme_register {
	NVME_REG_CAP = 0x00,
	NVME_REG_VS = 0x08,
	NVME_REG_CC = 0x14,
	NVME_REG_CSTS = 0x1c,
	NVME_REG_NSSR = 0x20,
	NVME_REG_CRTO = 0x68,
};

#define NVME_CC_EN		0x1U
#define NVME_CC_CSS(cc)		((cc) >> 4 & 7)
#define NVME_CC_MPS(cc)		((cc) >> 7 & 15)
#define NVME_CC_AMS(cc)		((cc) >> 11 & 7)
#define NVME_CC_SHN(cc)		((cc) >> 14 & 3)
#define NVME_CC_IOSQES(cc)	((cc) >> 16 & 15)
#define NVME_CC_IOCQES(cc)	((cc) >> 20 & 15)
#define NVME_CC_SHN_NORMAL	(1U << 14)
#define NVME_CSTS_RDY		0x1U
#define NVME_CSTS_CFS		0x2U
#define NVME_CSTS_SHST_MASK	0xcU
#define NVME_CSTS_SHST_COMPLETE 0x8U
#define NVME_VS_1_4		0x00010400U

/* ---- Identify -------------------------------------------------------------- */

#define NVME_IDENTIFY_SIZE 4096

enum nvme_identify_cns {
	NVME_CNS_NAMESPACE = 0x00,
	NVME_CNS_CONTROLLER = 0x01,
	NVME_CNS_NAMESPACE_LIST = 0x02,
	NVME_CNS_DESCRIPTORS = 0x03,
};

/* byte offsets in the Identify Controller data */
enum nvme_id_ctrl_offset {
	IDCTRL_SN = 4,
	IDCTRL_MN = 24,
	IDCTRL_FR = 64,
	IDCTRL_CMIC = 76,
	IDCTRL_MDTS = 77,
	IDCTRL_CNTLID = 78,
	IDCTRL_VER = 80,
	IDCTRL_OAES = 92,
	IDCTRL_CTRATT = 96,
	IDCTRL_CNTRLTYPE = 111,
	IDCTRL_ACL = 258,
	IDCTRL_AERL = 259,
	IDCTRL_FRMW = 260,
	IDCTRL_LPA = 261,
	IDCTRL_WCTEMP = 266,
	IDCTRL_CCTEMP = 268,
	IDCTRL_KAS = 320,
	IDCTRL_SQES = 512,
	IDCTRL_CQES = 513,
	IDCTRL_MAXCMD = 514,
	IDCTRL_NN = 516,
	IDCTRL_ONCS = 520,
	IDCTRL_VWC = 525,
	IDCTRL_SGLS = 536,
	IDCTRL_SUBNQN = 768,
	IDCTRL_IOCCSZ = 1792,
	IDCTRL_IORCSZ = 1796,
	IDCTRL_ICDOFF = 1800,
	IDCTRL_FCATT = 1802,
	IDCTRL_MSDBD = 1803,
	IDCTRL_OFCS = 1804,
};

/* byte offsets in the Identify Namespace data */
enum nvme_id_ns_offset {
	IDNS_NSZE = 0,
	IDNS_NCAP = 8,
	IDNS_NUSE = 16,
	IDNS_NSFEAT = 24,
	IDNS_NLBAF = 25,
	IDNS_FLBAS = 26,
	IDNS_NMIC = 30,
	IDNS_DLFEAT = 33,
	IDNS_NSATTR = 99,
	IDNS_NGUID = 104,
	IDNS_EUI64 = 120,
	IDNS_LBAF = 128,
};

/* ---- Features and log pages ------------------------------------------------- */

enum nvme_feature {
	NVME_FEAT_ARBITRATION = 0x01,
	NVME_FEAT_POWER = 0x02,
	NVME_FEAT_TEMPERATURE = 0x04,
	NVME_FEAT_ERROR_RECOVERY = 0x05,
	NVME_FEAT_WRITE_CACHE = 0x06,
	NVME_FEAT_QUEUES = 0x07,
	NVME_FEAT_WRITE_ATOMICITY = 0x0a,
	NVME_FEAT_ASYNC_EVENT = 0x0b,
	NVME_FEAT_TIMESTAMP = 0x0e,
	NVME_FEAT_KATO = 0x0f,
	NVME_FEAT_HOST_BEHAVIOUR = 0x16,
	NVME_FEAT_HOST_ID = 0x81,
};

enum nvme_log_page {
	NVME_LOG_ERROR = 0x01,
	NVME_LOG_SMART = 0x02,
	NVME_LOG_FIRMWARE = 0x03,
	NVME_LOG_CHANGED_NS = 0x04,
	NVME_LOG_EFFECTS = 0x05,
	NVME_LOG_DISCOVERY = 0x70,
	NVME_LOG_SOFTHCA = 0xc0, /* vendor specific: the target's counters as JSON text */
};

/* asynchronous events: result DW0 = type | info << 8 | log page << 16 */
#define NVME_AEN_NOTICE		 2
#define NVME_AEN_INFO_NS_CHANGED 0x00
#define NVME_AEN_INFO_DISCOVERY	 0xf0
#define NVME_OAES_NS_CHANGED	 (1U << 8)
#define NVME_OAES_DISCOVERY	 (1U << 31)

/* ---- Discovery -------------------------------------------------------------- */

#define NVMF_TRTYPE_RDMA	   1
#define NVMF_ADRFAM_IPV4	   1
#define NVMF_ADRFAM_IPV6	   2
#define NVMF_SUBTYPE_REFERRAL	   1
#define NVMF_SUBTYPE_NVM	   2
#define NVMF_TREQ_NOT_SPECIFIED	   0
#define NVMF_RDMA_QPTYPE_RC	   1
#define NVMF_RDMA_PRTYPE_ROCEV2	   4
#define NVMF_RDMA_CMS_RDMA_CM	   1
#define NVMF_DISCOVERY_RECORD_SIZE 1024

struct nvmf_discovery_header {
	__le64 genctr;
	__le64 numrec;
	__le16 recfmt;
	uint8_t reserved[1006];
};
static_assert(sizeof(struct nvmf_discovery_header) == 1024, "discovery log header");

struct nvmf_discovery_record {
	uint8_t trtype, adrfam, subtype, treq;
	__le16 portid, cntlid, asqsz, eflags;
	uint8_t reserved12[20];
	char trsvcid[32];
	uint8_t reserved64[192];
	char subnqn[256];
	char traddr[256];
	struct {
		uint8_t qptype, prtype, cms;
		uint8_t reserved[5];
		__le16 pkey;
		uint8_t reserved10[246];
	} tsas;
};
static_assert(sizeof(struct nvmf_discovery_record) == 1024, "discovery log record");

#endif
