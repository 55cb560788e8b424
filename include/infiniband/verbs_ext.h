/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * verbs_ext.h: the two extensions of the verbs API that SoftHCA implements, on
 * top of the stock <infiniband/verbs.h>:
 *
 *  - multi-packet receive work requests (MP WR): one posted receive buffer
 *    takes many packets, each at the next aligned offset;
 *  - NVMe-oF target offload: the adapter parses command capsules, drives an
 *    NVMe controller's queues, moves the data and sends the responses.
 *
 * Stock functions take the extended attributes: an extended attribute
 * structure has the extension fields first and the stock structure `base` last,
 * so that their distance never depends on how long the stock structure is.
 * The application sets the extension's bit in base.comp_mask and calls
 * ibv_create_qp_ex(ctx, &x.base), ibv_create_srq_ex(ctx, &x.base),
 * rdma_create_qp_ex(id, &x.base) and so on.
 *
 * Every value that SoftHCA adds to a stock enumeration is in one table below.
 * They are taken from the top of their type, away from upstream's growth.
 */
#ifndef INFINIBAND_VERBS_EXT_H
#define INFINIBAND_VERBS_EXT_H

#include <stddef.h>
#include <stdint.h>
#include <infiniband/verbs.h>

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

/* ---- Values added to stock enumerations ---------------------------------- */

/* bits of ibv_{qp,srq,wq}_init_attr_ex.comp_mask (32 bits) */
#define IBV_QP_INIT_ATTR_MP_WR	(1U << 30)
#define IBV_SRQ_INIT_ATTR_MP_WR (1U << 30)
#define IBV_SRQ_INIT_ATTR_NVMF	(1U << 29)
#define IBV_WQ_INIT_ATTR_MP_WR	(1U << 30)

/* ibv_srq_init_attr_ex.srq_type */
#define IBV_SRQT_NVMF ((enum ibv_srq_type)0x4e564d46)

/* bit of ibv_cq_init_attr_ex.wc_flags (64 bits) */
#define IBV_WC_EX_WITH_MP_WR (1ULL << 62)

/* bits of ibv_wc.wc_flags and of ibv_wc_read_wc_flags() */
#define IBV_WC_MP_WR_MORE_IN_MSG (1U << 30)
#define IBV_WC_MP_WR_CONSUMED	 (1U << 29)

/* ibv_wc.opcode: a completion that only gives a buffer back; has the IBV_WC_RECV bit */
#define IBV_WC_RECV_NOP ((enum ibv_wc_opcode)(0x40000000 | IBV_WC_RECV))

/* ibv_async_event.event_type */
#define IBV_EVENT_NVMF_QP_ERR		   ((enum ibv_event_type)0x40000000)
#define IBV_EVENT_NVME_CTRL_PCI_ERR	   ((enum ibv_event_type)0x40000001)
#define IBV_EVENT_NVME_CTRL_TIMEOUT	   ((enum ibv_event_type)0x40000002)
#define IBV_EVENT_NVMF_QP_LAST_CQE_REACHED ((enum ibv_event_type)0x40000003)

/* ---- Multi-packet receive work requests ---------------------------------- */

/**
 * struct ibv_mp_wr_caps - what a device can do with MP WRs.
 * @max_wr_buffer_sz: largest buffer of one WR, bytes; 0 = not supported.
 * @max_packet_align_sz: largest alignment, bytes; 0 = not supported.
 */
struct ibv_mp_wr_caps {
	uint32_t max_wr_buffer_sz;
	uint32_t max_packet_align_sz;
};

/**
 * struct ibv_mp_wr_attr - geometry of the MP WRs of one receive queue.
 * @wr_buffer_sz: in: bytes of one WR's buffer; out: the actual value, >= requested
 *		  (a multiple of @packet_align_sz). Every posted WR has exactly so many bytes.
 * @packet_align_sz: in: alignment of each packet's offset, bytes; out: the actual value,
 *		  a power of two >= 64.
 */
struct ibv_mp_wr_attr {
	uint32_t wr_buffer_sz;
	uint32_t packet_align_sz;
};

struct ibv_qp_init_attr_ext {
	struct ibv_mp_wr_attr mp_wr;
	struct ibv_qp_init_attr_ex base;
};

struct ibv_wq_init_attr_ext {
	struct ibv_mp_wr_attr mp_wr;
	struct ibv_wq_init_attr base;
};

/**
 * ibv_query_mp_wr_caps() - what @context's device can do with MP WRs.
 * Return: 0, or EINVAL for a NULL argument. Both fields are 0 on a device without MP WR.
 */
int ibv_query_mp_wr_caps(struct ibv_context *context, struct ibv_mp_wr_caps *caps);

/**
 * ibv_wc_read_mp_wr_offset() - byte offset of the current completion's piece in its WR's buffer.
 * @cq: an extended CQ created with IBV_WC_EX_WITH_MP_WR, between ibv_start_poll() and
 *	ibv_end_poll().
 */
size_t ibv_wc_read_mp_wr_offset(struct ibv_cq_ex *cq);

/* ---- NVMe-oF target offload ---------------------------------------------- */

/* struct ibv_nvmf_attrs.offload_ops */
enum ibv_nvmf_offload_ops {
	IBV_NVMF_OP_WRITE = 1 << 0,
	IBV_NVMF_OP_READ = 1 << 1,
	IBV_NVMF_OP_FLUSH = 1 << 2,
};

/* struct ibv_nvmf_caps.offload_type_*: bit masks of the exact combinations served */
enum ibv_nvmf_offload_type {
	IBV_NVMF_WRITE_OFFLOAD = 1 << 0,
	IBV_NVMF_READ_OFFLOAD = 1 << 1,
	IBV_NVMF_READ_WRITE_OFFLOAD = 1 << 2,
	IBV_NVMF_READ_WRITE_FLUSH_OFFLOAD = 1 << 3,
};

/* what a device's offload can do; all 0 where unsupported */
struct ibv_nvmf_caps {
	uint32_t offload_type_rc; /* enum ibv_nvmf_offload_type */
	uint32_t offload_type_dc;
	uint32_t max_backend_ctrls_total; /* NVMe controllers of the device */
	uint32_t max_srq_backend_ctrls;	  /* NVMe controllers of one SRQ */
	uint32_t max_srq_namespaces;	  /* front-end namespaces of one SRQ */
	uint32_t min_staging_buf_size;	  /* bytes */
	uint32_t max_staging_buf_size;	  /* bytes */
	uint32_t max_io_sz;		  /* bytes of one command */
	uint32_t min_nvme_queue_depth;	  /* entries */
	uint32_t max_nvme_queue_depth;
	uint32_t min_ioccsz; /* 16-byte units */
	uint32_t max_ioccsz;
	uint32_t max_icdoff; /* 16-byte units */
	uint32_t min_cmd_timeout_ms;
	uint32_t max_cmd_timeout_ms;
	uint32_t max_frontend_nsid;
};

/* a piece of registered memory */
struct ibv_mr_sg {
	struct ibv_mr *mr;
	void *addr;
	uint64_t len; /* bytes */
};

/**
 * struct ibv_nvmf_attrs - offload attributes of an IBV_SRQT_NVMF SRQ.
 * @offload_ops: enum ibv_nvmf_offload_ops; must be a combination of the caps.
 * @max_namespaces: how many front-end namespaces can be mapped.
 * @nvme_log_page_sz: NVMe page size as a power of two (CC.MPS semantics: bytes = 4096 << n).
 * @ioccsz: largest command capsule, 16-byte units.
 * @icdoff: offset of in-capsule data behind the SQE, 16-byte units.
 * @max_io_sz: largest transfer of one command, bytes; a multiple of the NVMe page.
 * @nvme_queue_depth: entries of every backend SQ and CQ.
 * @staging_buf: memory through which the data go; page-aligned, LOCAL_WRITE, a multiple of
 *		 @max_io_sz. The application never touches it after creation.
 */
struct ibv_nvmf_attrs {
	uint32_t offload_ops;
	uint32_t max_namespaces;
	uint8_t nvme_log_page_sz;
	uint32_t ioccsz;
	uint32_t icdoff;
	uint32_t max_io_sz;
	uint32_t nvme_queue_depth;
	struct ibv_mr_sg staging_buf;
};

struct ibv_srq_init_attr_ext {
	struct ibv_mp_wr_attr mp_wr;
	struct ibv_nvmf_attrs nvmf_attr;
	struct ibv_srq_init_attr_ex base;
};

/* an NVMe controller that the offload drives; opaque */
struct ibv_nvme_ctrl;

/**
 * struct ibv_nvme_ctrl_attrs - one NVMe queue pair for the offload to drive.
 * @sq_buf: submission queue, nvme_queue_depth * 64 bytes.
 * @cq_buf: completion queue, nvme_queue_depth * 16 bytes.
 * @sqdb: SQ tail doorbell, 4 bytes.
 * @cqdb: CQ head doorbell, 4 bytes.
 * @sqdb_ini, @cqdb_ini: the doorbells' current values, < nvme_queue_depth.
 * @cmd_timeout_ms: how long a command may take; 0 = default, 30 s.
 * @comp_mask: 0.
 */
struct ibv_nvme_ctrl_attrs {
	struct ibv_mr_sg sq_buf;
	struct ibv_mr_sg cq_buf;
	struct ibv_mr_sg sqdb;
	struct ibv_mr_sg cqdb;
	uint16_t sqdb_ini;
	uint16_t cqdb_ini;
	uint32_t cmd_timeout_ms;
	uint32_t comp_mask;
};

struct ibv_nvmf_ns_stats {
	uint64_t num_read_cmd;
	uint64_t num_read_blocks;
	uint64_t num_write_cmd;
	uint64_t num_write_blocks;
	uint64_t num_write_inline_cmd; /* writes with in-capsule data */
	uint64_t num_flush_cmd;
	uint64_t num_error_cmd;		/* refused by the offload */
	uint64_t num_backend_error_cmd; /* failed by the NVMe controller */
	uint64_t queue_depth;		/* in flight now */
	uint64_t peak_queue_depth;
	uint64_t last_read_latency_ns;
	uint64_t last_write_latency_ns;
	uint64_t total_read_latency_ns;
	uint64_t total_write_latency_ns;
};

/* flags of ibv_modify_qp_nvmf() */
enum ibv_qp_nvmf_attr_flags {
	IBV_QP_NVMF_ATTR_FLAG_ENABLE = 1 << 0,
};

/**
 * ibv_query_nvmf_caps() - what @context's device can offload.
 * Return: 0, or EINVAL for a NULL argument.
 */
int ibv_query_nvmf_caps(struct ibv_context *context, struct ibv_nvmf_caps *caps);

/**
 * ibv_srq_create_nvme_ctrl() - give an NVMe queue pair to @srq's offload.
 * Return: the controller, or NULL and errno: EINVAL (not an IBV_SRQT_NVMF SRQ, wrong lengths, an
 * MR of another PD, an initial doorbell beyond the queue), EBUSY (memory already in use by a live
 * controller), ENOSPC (caps reached), ENOMEM.
 */
struct ibv_nvme_ctrl *ibv_srq_create_nvme_ctrl(struct ibv_srq *srq,
					       struct ibv_nvme_ctrl_attrs *attrs);

/**
 * ibv_srq_remove_nvme_ctrl() - take a controller back; on return the adapter does not touch its
 * queues any more.
 * Return: 0, EBUSY (still mapped, or an event is unacknowledged), EINVAL (not of this SRQ).
 */
int ibv_srq_remove_nvme_ctrl(struct ibv_srq *srq, struct ibv_nvme_ctrl *ctrl);

/**
 * ibv_map_nvmf_nsid() - serve front-end namespace @fe_nsid from @ctrl's namespace @nvme_nsid.
 * @lba_data_size: bytes of a logical block, a power of two in 512..32768.
 * Return: 0, EINVAL, EEXIST (@fe_nsid is mapped on this SRQ), ENOSPC.
 */
int ibv_map_nvmf_nsid(struct ibv_nvme_ctrl *ctrl, uint32_t fe_nsid, uint16_t lba_data_size,
		      uint32_t nvme_nsid);

/**
 * ibv_unmap_nvmf_nsid() - stop serving @fe_nsid. Commands in flight finish first, at most one
 * command timeout; later ones get Invalid Namespace.
 * Return: 0, ENOENT.
 */
int ibv_unmap_nvmf_nsid(struct ibv_nvme_ctrl *ctrl, uint32_t fe_nsid);

/**
 * ibv_modify_qp_nvmf() - enable or disable the offload on a QP. Idempotent.
 * @flags: IBV_QP_NVMF_ATTR_FLAG_ENABLE, or 0: new capsules go to software, those in flight finish.
 * Return: 0, EINVAL (not RC, not in RTS, no IBV_SRQT_NVMF SRQ, unknown flag).
 */
int ibv_modify_qp_nvmf(struct ibv_qp *qp, int flags);

/**
 * ibv_query_nvmf_ns() - counters of a mapped namespace.
 * Return: 0, ENOENT, EINVAL.
 */
int ibv_query_nvmf_ns(struct ibv_nvme_ctrl *ctrl, uint32_t fe_nsid,
		      struct ibv_nvmf_ns_stats *stats);

/* ibv_event_nvme_ctrl() - the controller of an IBV_EVENT_NVME_CTRL_* event */
static inline struct ibv_nvme_ctrl *ibv_event_nvme_ctrl(const struct ibv_async_event *event)
{
	return (struct ibv_nvme_ctrl *)(void *)event->element.srq;
}

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif /* INFINIBAND_VERBS_EXT_H */
