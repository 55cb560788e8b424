/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * initiator.h: a small NVMe-oF/RDMA host in user space, for the demonstration, tests and benches.
 * Public verbs and RDMA CM only.
 *
 * One thread uses a host at a time. Asynchronous commands complete inside initiator_poll(), which
 * also sends Keep Alive. Everything has a time limit; nothing waits for ever.
 */
#ifndef SOFTHCA_INITIATOR_INITIATOR_H
#define SOFTHCA_INITIATOR_INITIATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nvme/fabrics.h"
#include "nvme/spec.h"

struct initiator;

struct initiator_options {
	const char *address; /* IPv4 or IPv6 */
	uint16_t port;
	const char *subnqn;	/* NVMF_DISCOVERY_NQN for discovery */
	const char *hostnqn;	/* NULL: one made from the host id */
	uint8_t hostid[16];	/* all zero: this machine's */
	unsigned int io_queues; /* wanted; 0 = admin queue only */
	unsigned int depth;	/* commands in flight on an I/O queue, 1..127; 0 = 32 */
	uint32_t kato_ms;
	unsigned int timeout_ms; /* of one command and of each step of connecting; 0 = 5000 */
	bool no_in_capsule;	 /* never send data in the capsule */
};

struct initiator_info {
	uint16_t cntlid;
	unsigned int io_queues; /* granted and connected */
	unsigned int depth;
	uint32_t max_transfer;	   /* bytes, from MDTS */
	uint32_t in_capsule_bytes; /* from IOCCSZ */
	char serial[21], model[41], firmware[9];
};

struct initiator_namespace {
	uint32_t nsid;
	uint64_t blocks;
	uint32_t lba_size;
};

/* memory that commands move data from and to */
struct initiator_buffer;

/* @status: NVMe status (SCT << 8 | SC, with NVME_STATUS_DNR), or INITIATOR_LOST */
#define INITIATOR_LOST 0xffff /* the connection failed or the time is over: no answer came */
typedef void initiator_done(void *arg, uint16_t status, const struct nvme_cqe *cqe);

/**
 * initiator_connect() - connect the admin queue, enable the controller, connect the I/O queues.
 * @error: out on failure: what failed, with the status in words.
 * Return: NULL on failure.
 */
struct initiator *initiator_connect(const struct initiator_options *options, char *error,
				    size_t error_len);
/* shut the controller down (SHN) when the connection still works, disconnect, free */
void initiator_disconnect(struct initiator *host);
void initiator_get_info(const struct initiator *host, struct initiator_info *info);

/* register @len bytes at @addr for I/O; NULL and errno */
struct initiator_buffer *initiator_register(struct initiator *host, void *addr, size_t len);
void initiator_deregister(struct initiator_buffer *buffer);

/**
 * initiator_submit() - start a command.
 * @queue: 0 = admin, 1..io_queues.
 * @sqe: opcode, nsid and CDW10-15; the rest is filled in here.
 * @buffer, @offset, @len: its data; @buffer NULL: none. @to_controller: direction.
 * Return: 0, -EAGAIN (queue full: poll), -ENOTCONN (it failed; see initiator_error()).
 */
int initiator_submit(struct initiator *host, unsigned int queue, const struct nvme_sqe *sqe,
		     struct initiator_buffer *buffer, size_t offset, size_t len, bool to_controller,
		     initiator_done *done, void *arg);
/* complete what is there; at most wait @timeout_ms for something. False: the host has failed and
 * every command was completed with INITIATOR_LOST */
bool initiator_poll(struct initiator *host, int timeout_ms);
/* why the host failed */
const char *initiator_error(const struct initiator *host);

/* ---- synchronous helpers: an NVMe status or INITIATOR_LOST ---- */

uint16_t initiator_command(struct initiator *host, unsigned int queue, const struct nvme_sqe *sqe,
			   void *data, size_t len, bool to_controller, struct nvme_cqe *cqe);
uint16_t initiator_identify(struct initiator *host, uint8_t cns, uint32_t nsid,
			    uint8_t data[NVME_IDENTIFY_SIZE]);
uint16_t initiator_get_log(struct initiator *host, uint8_t page, uint64_t offset, void *data,
			   size_t len);
uint16_t initiator_flush(struct initiator *host, uint32_t nsid);
/* reads or writes whole blocks; at most max_transfer bytes */
uint16_t initiator_rw(struct initiator *host, bool write, const struct initiator_namespace *ns,
		      uint64_t slba, void *data, size_t len);
/* active namespaces, at most @max; how many, or -1 and @status */
int initiator_namespaces(struct initiator *host, struct initiator_namespace *list, unsigned int max,
			 uint16_t *status);
/* a malloc'd discovery log: records, their number in @count; NULL and @status */
struct nvmf_discovery_record *initiator_discovery_log(struct initiator *host, size_t *count,
						      uint16_t *status);

/* SQE of a read or write of @blocks blocks */
void initiator_fill_rw(struct nvme_sqe *sqe, uint8_t opcode, uint32_t nsid, uint64_t slba,
		       uint32_t blocks);
/* "Invalid Field in Command (0x002), do not retry" */
const char *initiator_status_text(uint16_t status, char *text, size_t len);

#endif
