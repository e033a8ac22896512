/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wrappers for code that bindgen cannot bind or that would tie Rust to one DPDK release: static
 * inlines, macros, per-thread variables, and structs with a layout that changes. Every name starts
 * with lke_.
 *
 * Uses only API that 22.11, 24.11 and 25.11 have in common.
 */
#ifndef LKE_SHIM_H
#define LKE_SHIM_H

#include <stddef.h>
#include <stdint.h>

#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_version.h>

/*
 * Offsets of the fields of an mbuf. The compiler that reads DPDK's headers computes these, so
 * that Rust accesses fields without a call (2 ns) and without naming the anonymous unions.
 */
enum lke_mbuf_layout {
	LKE_MBUF_BUF_ADDR = offsetof(struct rte_mbuf, buf_addr),
	LKE_MBUF_DATA_OFF = offsetof(struct rte_mbuf, data_off),
	LKE_MBUF_REFCNT = offsetof(struct rte_mbuf, refcnt),
	LKE_MBUF_NB_SEGS = offsetof(struct rte_mbuf, nb_segs),
	LKE_MBUF_OL_FLAGS = offsetof(struct rte_mbuf, ol_flags),
	LKE_MBUF_PKT_LEN = offsetof(struct rte_mbuf, pkt_len),
	LKE_MBUF_DATA_LEN = offsetof(struct rte_mbuf, data_len),
	LKE_MBUF_VLAN_TCI = offsetof(struct rte_mbuf, vlan_tci),
	LKE_MBUF_BUF_LEN = offsetof(struct rte_mbuf, buf_len),
	LKE_MBUF_NEXT = offsetof(struct rte_mbuf, next),
};

enum lke_const {
	LKE_RTE_VERSION_YEAR = RTE_VER_YEAR,
	LKE_RTE_VERSION_MONTH = RTE_VER_MONTH,
	LKE_HEADROOM = RTE_PKTMBUF_HEADROOM,
	LKE_MEMPOOL_CACHE_MAX = RTE_MEMPOOL_CACHE_MAX_SIZE,
	LKE_MEMPOOL_NAME_MAX = RTE_MEMPOOL_NAMESIZE,
	LKE_DEVICE_NAME_MAX = RTE_DEV_NAME_MAX_LEN,
	/* RTE_MBUF_F_RX_VLAN_STRIPPED, checked in shim.c. */
	LKE_RX_VLAN_STRIPPED = 1 << 6,
	/* Bits of RTE_MBUF_F_EXTERNAL and RTE_MBUF_F_INDIRECT, checked in shim.c. */
	LKE_EXTERNAL_BIT = 61,
	LKE_INDIRECT_BIT = 62,
};

struct lke_port_info {
	char driver[64];
	uint8_t mac[6];
	uint16_t mtu;
	uint16_t max_mtu;
	uint16_t max_rx_queues;
	uint16_t max_tx_queues;
	uint32_t max_rx_pktlen;
	uint32_t min_rx_bufsize;
	uint32_t if_index;
	/* Highest speed of the device, Mb/s; 0 if unknown. */
	uint32_t max_speed;
	int32_t numa_node;
};

struct lke_link {
	/* Mb/s; 0 if unknown. */
	uint32_t speed;
	uint8_t up;
	uint8_t full_duplex;
};

struct lke_counters {
	uint64_t rx_packets;
	uint64_t rx_bytes;
	uint64_t rx_missed;
	uint64_t rx_errors;
	uint64_t rx_no_mbuf;
	uint64_t tx_packets;
	uint64_t tx_bytes;
	uint64_t tx_errors;
};

/* rte_errno of the calling thread. */
int lke_errno(void);
/* True if the calling thread has an lcore id, and so a mempool cache. */
int lke_thread_has_lcore(void);
/* 0 if a registered bus recognises the device, else a negative errno. */
int lke_device_check(const char *devargs);
void lke_packet_sockets_alone(int yes);
void lke_pause(void);

int lke_port_info(uint16_t port, struct lke_port_info *info);
/* mtu 0: keep the current one. scatter: frames may take more than one mbuf. */
int lke_port_configure(uint16_t port, uint16_t rx_queues, uint16_t tx_queues, uint16_t mtu,
		       int scatter);
int lke_port_rx_queue(uint16_t port, uint16_t queue, uint16_t descriptors,
		      struct rte_mempool *pool);
int lke_port_tx_queue(uint16_t port, uint16_t queue, uint16_t descriptors);
int lke_port_link(uint16_t port, struct lke_link *link);
int lke_port_counters(uint16_t port, struct lke_counters *counters);

uint16_t lke_rx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count);
uint16_t lke_tx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count);

void lke_mbuf_free(struct rte_mbuf *mbuf);
/* A new mbuf, chained where one segment is too small, holding head followed by tail; or NULL. */
struct rte_mbuf *lke_mbuf_from_parts(struct rte_mempool *pool, const uint8_t *head,
				     size_t head_len, const uint8_t *tail, size_t tail_len);
/* Replaces the content of a received buffer by the frame and resets its metadata; -1 if it is a
 * chain, shared, or too small. */
/* Adds bytes before the frame, or after it; NULL if the first segment has no room, or, after it, if the
 * mbuf is a chain. */
uint8_t *lke_mbuf_prepend(struct rte_mbuf *mbuf, uint16_t len);
uint8_t *lke_mbuf_append(struct rte_mbuf *mbuf, uint16_t len);
/* Makes a mbuf of one segment hold the len bytes at offset in its buffer, and clears the flags; -1 if
 * it is a chain, or they are not within the buffer. */
int lke_mbuf_place(struct rte_mbuf *mbuf, uint32_t offset, uint32_t len);
/* Copies up to len bytes from the start of the frame; returns the number of bytes copied. */
size_t lke_mbuf_copy_out(const struct rte_mbuf *mbuf, uint8_t *out, size_t len);
/* Writes vlan_tci into the frame as an 802.1Q tag and clears the stripped flag. */
int lke_mbuf_insert_vlan(struct rte_mbuf **mbuf);
/* Takes the outer 802.1Q tag off, stripped or not. Returns it, or -1 without one. */
int lke_mbuf_take_vlan(struct rte_mbuf *mbuf);
/* Puts an 802.1Q tag before all others. */
int lke_mbuf_push_vlan(struct rte_mbuf **mbuf, uint16_t tci);

#endif
