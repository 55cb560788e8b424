/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * spec.h: NVMe's own data structures, opcodes and status codes as far as we use them.
 * NVM Express Base 2.0, NVM Command Set 1.0. Little-endian on the wire and in queues: access
 * multi-byte members through le16toh() and its kin.
 */
#ifndef SOFTHCA_NVME_SPEC_H
#define SOFTHCA_NVME_SPEC_H

#include <assert.h>
#include <stdint.h>
#include <linux/types.h>

struct nvme_sqe {
	uint8_t opcode;
	uint8_t flags; /* fused 1:0, PSDT 7:6 */
	__le16 cid;
	__le32 nsid;
	__le32 cdw2, cdw3;
	__le64 mptr;
	union {
		struct {
			__le64 prp1, prp2;
		};
		uint8_t sgl[16];
	};
	__le32 cdw10, cdw11, cdw12, cdw13, cdw14, cdw15;
};
static_assert(sizeof(struct nvme_sqe) == 64, "SQE is 64 bytes");

struct nvme_cqe {
	__le32 dw0, dw1;
	__le16 sqhd;
	__le16 sqid;
	__le16 cid;
	__le16 status; /* bit 0 phase, SC 8:1, SCT 11:9, CRD 13:12, M 14, DNR 15 */
};
static_assert(sizeof(struct nvme_cqe) == 16, "CQE is 16 bytes");

enum nvme_admin_opcode {
	NVME_ADMIN_DELETE_SQ = 0x00,
	NVME_ADMIN_CREATE_SQ = 0x01,
	NVME_ADMIN_GET_LOG_PAGE = 0x02,
	NVME_ADMIN_DELETE_CQ = 0x04,
	NVME_ADMIN_CREATE_CQ = 0x05,
	NVME_ADMIN_IDENTIFY = 0x06,
	NVME_ADMIN_ABORT = 0x08,
	NVME_ADMIN_SET_FEATURES = 0x09,
	NVME_ADMIN_GET_FEATURES = 0x0a,
	NVME_ADMIN_AER = 0x0c,
	NVME_ADMIN_KEEP_ALIVE = 0x18,
};

enum nvme_io_opcode {
	NVME_CMD_FLUSH = 0x00,
	NVME_CMD_WRITE = 0x01,
	NVME_CMD_READ = 0x02,
	NVME_CMD_WRITE_UNCORRECTABLE = 0x04,
	NVME_CMD_COMPARE = 0x05,
	NVME_CMD_WRITE_ZEROES = 0x08,
	NVME_CMD_DSM = 0x09,
	NVME_CMD_VERIFY = 0x0c,
	NVME_CMD_FABRICS = 0x7f,
};

enum nvme_fabrics_type {
	NVME_FABRICS_PROPERTY_SET = 0x00,
	NVME_FABRICS_CONNECT = 0x01,
	NVME_FABRICS_PROPERTY_GET = 0x04,
	NVME_FABRICS_AUTH_SEND = 0x05,
	NVME_FABRICS_AUTH_RECEIVE = 0x06,
	NVME_FABRICS_DISCONNECT = 0x08,
};

#define NVME_SQE_PSDT_MASK  0xc0
#define NVME_SQE_PSDT_SGL   0x40
#define NVME_SQE_FUSE_MASK  0x03
#define NVME_RW_FUA	    (1U << 30)	 /* CDW12 */
#define NVME_RW_PRINFO_MASK (0xfU << 26) /* CDW12 */

/* byte 15 of an SGL descriptor */
#define NVME_SGL_KEYED		     0x40
#define NVME_SGL_KEYED_INVALIDATE    0x4f
#define NVME_SGL_OFFSET		     0x01
#define NVME_SGL_LAST_SEGMENT_OFFSET 0x31

/* status = SCT << 8 | SC, as used in our code; NVME_STATUS_DNR, _MORE are ORed in */
#define NVME_STATUS(sct, sc)  ((uint16_t)((sct) << 8 | (sc)))
#define NVME_STATUS_CRD_SHIFT 11
#define NVME_STATUS_MORE      0x2000
#define NVME_STATUS_DNR	      0x4000
/* <-> the CQE's 16-bit status field without the phase bit */
#define NVME_STATUS_TO_FIELD(s)	  ((uint16_t)((s) << 1))
#define NVME_STATUS_FROM_FIELD(f) ((uint16_t)((f) >> 1))

enum nvme_status {
	NVME_SC_SUCCESS = 0x000,
	NVME_SC_INVALID_OPCODE = 0x001,
	NVME_SC_INVALID_FIELD = 0x002,
	NVME_SC_CID_CONFLICT = 0x003,
	NVME_SC_DATA_TRANSFER = 0x004,
	NVME_SC_INTERNAL = 0x006,
	NVME_SC_ABORT_REQUESTED = 0x007,
	NVME_SC_SQ_DELETED = 0x008,
	NVME_SC_INVALID_NAMESPACE = 0x00b,
	NVME_SC_COMMAND_SEQUENCE = 0x00c,
	NVME_SC_SGL_SEGMENT = 0x00d,
	NVME_SC_SGL_COUNT = 0x00e,
	NVME_SC_SGL_DATA_LENGTH = 0x00f,
	NVME_SC_SGL_TYPE = 0x011,
	NVME_SC_PRP_OFFSET = 0x013,
	NVME_SC_SGL_OFFSET = 0x016,
	NVME_SC_KEEP_ALIVE_EXPIRED = 0x019,
	NVME_SC_WRITE_PROTECTED = 0x020,
	NVME_SC_LBA_RANGE = 0x080,
	NVME_SC_CAPACITY = 0x081,
	NVME_SC_NOT_READY = 0x082,
	/* command specific */
	NVME_SC_ABORT_LIMIT = 0x103,
	NVME_SC_AER_LIMIT = 0x105,
	NVME_SC_INVALID_LOG_PAGE = 0x109,
	NVME_SC_FEATURE_NOT_SAVEABLE = 0x10d,
	NVME_SC_FEATURE_NOT_CHANGEABLE = 0x10e,
	NVME_SC_CONNECT_FORMAT = 0x180,
	NVME_SC_CONNECT_BUSY = 0x181,
	NVME_SC_CONNECT_INVALID = 0x182,
	NVME_SC_CONNECT_RESTART = 0x183,
	NVME_SC_CONNECT_HOST = 0x184,
	/* media */
	NVME_SC_WRITE_FAULT = 0x280,
	NVME_SC_READ_ERROR = 0x281,
	NVME_SC_COMPARE = 0x285,
	NVME_SC_ACCESS_DENIED = 0x286,
	/* path */
	NVME_SC_PATH_CONTROLLER = 0x360,
};

#define NVMF_DISCOVERY_NQN "nqn.2014-08.org.nvmexpress.discovery"
#define NVMF_NQN_SIZE	   256
#define NVME_NSID_ALL	   0xffffffffU

#endif
