/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * soft_ctrl.h: a soft NVMe controller: I/O queue pairs in ordinary memory, doorbell registers in
 * a doorbell region, namespaces on memory or file back ends. It serves whoever drives the queues
 * by NVMe's rules: our own NVMe-oF offload, or software.
 *
 * Threads: a queue pair is served by the thread that calls soft_qp_process(), usually from the
 * doorbell; file back ends complete through soft_ctrl_poll() or the controller's own thread.
 * Addresses in PRPs are virtual addresses of this process, checked against the ranges that
 * soft_ctrl_allow() was given: anything else is a data transfer error, never a fault.
 */
#ifndef SOFTHCA_NVME_SOFT_CTRL_H
#define SOFTHCA_NVME_SOFT_CTRL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nvme/spec.h"

struct soft_ctrl;
struct soft_qp;
struct backend;

struct backend_info {
	uint64_t size_bytes;
	uint32_t lba_size; /* 512 or 4096 */
	bool read_only;
};

/* Memory back end. Return: NULL and errno */
struct backend *backend_open_memory(uint64_t size_bytes, uint32_t lba_size);
/**
 * backend_open_file() - a file or block device.
 * @lba_size: 512 or 4096.
 * io_uring with O_DIRECT where the file system can, else buffered. FLUSH is fdatasync, FUA is
 * honoured. A file that shrinks or fails gives NVMe errors.
 * @error: out on failure: text that names the file and what to do.
 * Return: NULL and errno.
 */
struct backend *backend_open_file(const char *path, uint32_t lba_size, bool read_only, char *error,
				  size_t error_len);
void backend_close(struct backend *backend); /* data are safe (fdatasync) on return */
void backend_get_info(const struct backend *backend, struct backend_info *info);

/**
 * backend_sync_io() - one I/O in the caller's thread, for commands served by software.
 * @opcode: NVME_CMD_READ, _WRITE, _FLUSH, _WRITE_ZEROES, _DSM (deallocate the range), _VERIFY.
 * Return: NVMe status (SCT << 8 | SC).
 */
uint16_t backend_sync_io(struct backend *backend, uint8_t opcode, uint64_t slba, uint32_t blocks,
			 void *data, bool fua);

/* Return: NULL and errno */
struct soft_ctrl *soft_ctrl_create(unsigned int max_queues);
/* stops service, waits for I/O in flight, then frees; queue memory is not touched afterwards */
void soft_ctrl_destroy(struct soft_ctrl *ctrl);
/* Return: 0, -EEXIST, -EINVAL */
int soft_ctrl_add_namespace(struct soft_ctrl *ctrl, uint32_t nsid, struct backend *backend);
/* Return: 0, -ENOENT. I/O in flight finishes first */
int soft_ctrl_remove_namespace(struct soft_ctrl *ctrl, uint32_t nsid);
/* memory that PRPs may name */
int soft_ctrl_allow(struct soft_ctrl *ctrl, const void *addr, size_t len);

/**
 * soft_ctrl_create_qp() - create an I/O queue pair.
 * @qid: from 1.
 * @depth: entries, 2..65536.
 * @sq, @cq: page-aligned, zeroed, depth*64 and depth*16 bytes; the caller's until
 *	soft_ctrl_delete_qp() returns.
 * @on_completion: called after CQEs were written, from the thread that wrote them; may be NULL.
 * Return: NULL and errno.
 */
struct soft_qp *soft_ctrl_create_qp(struct soft_ctrl *ctrl, uint16_t qid, uint32_t depth, void *sq,
				    void *cq, void (*on_completion)(void *arg), void *arg);
void soft_ctrl_delete_qp(struct soft_qp *qp);

/* the doorbell registers of all queues: BAR0 + 0x1000 of a real controller, stride 4 (DSTRD 0);
 * SQ tail of qid at qid * 8, CQ head at qid * 8 + 4 */
void *soft_ctrl_doorbells(struct soft_ctrl *ctrl, size_t *len);

/**
 * soft_ctrl_ring() - a doorbell at @offset of the region was written: fits softhca_reg_doorbell_mr
 * (@arg is the controller). Takes new SQEs and starts them; memory back ends complete at once.
 */
void soft_ctrl_ring(void *arg, size_t offset);

/* complete what is done in file back ends; called by whoever polls. True: something completed */
bool soft_ctrl_poll(struct soft_ctrl *ctrl);
/* descriptor that becomes readable when soft_ctrl_poll() has something to do; the controller's own
 * thread (soft_ctrl_start_thread) waits on it when nobody polls */
int soft_ctrl_fd(struct soft_ctrl *ctrl);
int soft_ctrl_start_thread(struct soft_ctrl *ctrl);

#endif
