/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * counters.h: the process's counters, one table. Written by whoever holds an engine's lock with
 * relaxed atomics (several engines may count at once); read by softhca_counter() and by
 * `SOFTHCA_COUNTERS=1`, which prints all that are not 0 at exit.
 */
#ifndef SOFTHCA_UTIL_COUNTERS_H
#define SOFTHCA_UTIL_COUNTERS_H

#include <stdatomic.h>
#include <stdint.h>

/* X(enumerator, "name"): add rows at the end of their group */
#define COUNTER_TABLE(X)                                                                           \
	X(CNT_TX_PACKETS, "tx_packets")                                                            \
	X(CNT_TX_BYTES, "tx_bytes")                                                                \
	X(CNT_TX_SUPER_PACKETS, "tx_super_packets")                                                \
	X(CNT_TX_SYSCALLS, "tx_syscalls")                                                          \
	X(CNT_TX_EAGAIN, "tx_eagain")                                                              \
	X(CNT_TX_DROP_MTU, "tx_drop_mtu")                                                          \
	X(CNT_TX_DROP_ERROR, "tx_drop_error")                                                      \
	X(CNT_RX_PACKETS, "rx_packets")                                                            \
	X(CNT_RX_BYTES, "rx_bytes")                                                                \
	X(CNT_RX_SUPER_PACKETS, "rx_super_packets")                                                \
	X(CNT_RX_FORWARDED, "rx_forwarded")                                                        \
	X(CNT_RX_ID_SOLVED, "rx_ip_id_solved")                                                     \
	X(CNT_DROP_SHORT, "rx_drop_short")                                                         \
	X(CNT_DROP_LENGTH, "rx_drop_length")                                                       \
	X(CNT_DROP_VERSION, "rx_drop_version")                                                     \
	X(CNT_DROP_OPCODE, "rx_drop_opcode")                                                       \
	X(CNT_DROP_PAD, "rx_drop_pad")                                                             \
	X(CNT_DROP_ICRC, "rx_drop_icrc")                                                           \
	X(CNT_DROP_PKEY, "rx_drop_pkey")                                                           \
	X(CNT_DROP_QPN, "rx_drop_qpn")                                                             \
	X(CNT_DROP_SLOT, "rx_drop_slot")                                                           \
	X(CNT_DROP_STATE, "rx_drop_qp_state")                                                      \
	X(CNT_DROP_TYPE, "rx_drop_qp_type")                                                        \
	X(CNT_DROP_ADDRESS, "rx_drop_address")                                                     \
	X(CNT_DROP_QKEY, "rx_drop_qkey")                                                           \
	X(CNT_DROP_STALE, "rx_drop_stale")                                                         \
	X(CNT_DROP_FUTURE, "rx_drop_future")                                                       \
	X(CNT_DROP_DUPLICATE_LOST, "rx_drop_duplicate_lost")                                       \
	X(CNT_DROP_NO_RECV, "rx_drop_no_recv")                                                     \
	X(CNT_DROP_TOO_LONG, "rx_drop_too_long")                                                   \
	X(CNT_DROP_MAD, "rx_drop_mad")                                                             \
	X(CNT_RX_CNP, "rx_cnp")                                                                    \
	X(CNT_FAULT_DROP, "fault_drop")                                                            \
	X(CNT_FAULT_DUPLICATE, "fault_duplicate")                                                  \
	X(CNT_FAULT_REORDER, "fault_reorder")                                                      \
	X(CNT_FAULT_DELAY, "fault_delay")                                                          \
	X(CNT_FAULT_CORRUPT, "fault_corrupt")                                                      \
	X(CNT_ACK_TX, "ack_tx")                                                                    \
	X(CNT_ACK_RX, "ack_rx")                                                                    \
	X(CNT_NAK_SEQ_TX, "nak_seq_tx")                                                            \
	X(CNT_NAK_SEQ_RX, "nak_seq_rx")                                                            \
	X(CNT_NAK_INV_TX, "nak_invalid_request_tx")                                                \
	X(CNT_NAK_INV_RX, "nak_invalid_request_rx")                                                \
	X(CNT_NAK_ACCESS_TX, "nak_access_tx")                                                      \
	X(CNT_NAK_ACCESS_RX, "nak_access_rx")                                                      \
	X(CNT_NAK_OP_TX, "nak_operational_tx")                                                     \
	X(CNT_NAK_OP_RX, "nak_operational_rx")                                                     \
	X(CNT_RNR_TX, "rnr_tx")                                                                    \
	X(CNT_RNR_RX, "rnr_rx")                                                                    \
	X(CNT_RETRANSMIT, "retransmitted_packets")                                                 \
	X(CNT_TIMEOUT, "timeouts")                                                                 \
	X(CNT_PROBE, "tail_loss_probes")                                                           \
	X(CNT_RETRY_EXC, "retry_exceeded")                                                         \
	X(CNT_RNR_RETRY_EXC, "rnr_retry_exceeded")                                                 \
	X(CNT_DUPLICATE, "duplicate_requests")                                                     \
	X(CNT_DUPLICATE_READ, "duplicate_reads")                                                   \
	X(CNT_IMPLIED_NAK, "implied_naks")                                                         \
	X(CNT_CQ_OVERRUN, "cq_overruns")                                                           \
	X(CNT_MP_WR_PACKETS, "mp_wr_packets")                                                      \
	X(CNT_MP_WR_WRS, "mp_wr_consumed")                                                         \
	X(CNT_MP_WR_NOPS, "mp_wr_nops")                                                            \
	X(CNT_CM_TX, "cm_tx")                                                                      \
	X(CNT_CM_RX, "cm_rx")                                                                      \
	X(CNT_CM_RETRY, "cm_retries")                                                              \
	X(CNT_CM_DUPLICATE, "cm_duplicates")                                                       \
	X(CNT_CM_REJ_TX, "cm_rej_tx")                                                              \
	X(CNT_CM_REJ_RX, "cm_rej_rx")                                                              \
	X(CNT_NVMF_READ, "nvmf_offloaded_read")                                                    \
	X(CNT_NVMF_WRITE, "nvmf_offloaded_write")                                                  \
	X(CNT_NVMF_FLUSH, "nvmf_offloaded_flush")                                                  \
	X(CNT_NVMF_SOFTWARE, "nvmf_to_software")                                                   \
	X(CNT_NVMF_ERROR, "nvmf_errors")                                                           \
	X(CNT_NVMF_UNKNOWN_NSID, "nvmf_unknown_nsid")                                              \
	X(CNT_NVMF_BACKEND_ERROR, "nvmf_backend_errors")                                           \
	X(CNT_NVMF_BAD_CQE, "nvmf_bad_cqes")                                                       \
	X(CNT_NVMF_TIMEOUT, "nvmf_timeouts")

enum counter {
#define X(name, text) name,
	COUNTER_TABLE(X)
#undef X
		COUNTER_COUNT
};

extern _Atomic uint64_t counters[COUNTER_COUNT];
extern const char *const counter_names[COUNTER_COUNT];

static inline void counter_add(enum counter c, uint64_t n)
{
	atomic_fetch_add_explicit(&counters[c], n, memory_order_relaxed);
}

static inline void counter_inc(enum counter c)
{
	counter_add(c, 1);
}

static inline uint64_t counter_get(enum counter c)
{
	return atomic_load_explicit(&counters[c], memory_order_relaxed);
}

#endif
