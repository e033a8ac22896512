/* SPDX-License-Identifier: Apache-2.0 */
/* rte_devargs_reset is stable in 24.11 and still marked experimental in 22.11. */
#define ALLOW_EXPERIMENTAL_API

#include "shim.h"

#include <errno.h>
#include <linux/if_packet.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <rte_devargs.h>
#include <rte_ether.h>
#include <rte_pause.h>

#if RTE_VERSION < RTE_VERSION_NUM(22, 11, 0, 0)
#error "linkemu needs DPDK 22.11 or newer"
#endif

#define SIZE_OF(field) sizeof(((struct rte_mbuf *)0)->field)
_Static_assert(SIZE_OF(buf_addr) == sizeof(void *), "mbuf.rs reads buf_addr as a pointer");
_Static_assert(SIZE_OF(data_off) == 2, "mbuf.rs reads data_off as u16");
_Static_assert(SIZE_OF(refcnt) == 2, "mbuf.rs reads refcnt as u16");
_Static_assert(SIZE_OF(nb_segs) == 2, "mbuf.rs reads nb_segs as u16");
_Static_assert(SIZE_OF(buf_len) == 2, "mbuf.rs reads buf_len as u16");
_Static_assert(SIZE_OF(ol_flags) == 8, "mbuf.rs reads ol_flags as u64");
_Static_assert(SIZE_OF(pkt_len) == 4, "mbuf.rs reads pkt_len as u32");
_Static_assert(SIZE_OF(data_len) == 2, "mbuf.rs reads data_len as u16");
_Static_assert(SIZE_OF(vlan_tci) == 2, "mbuf.rs reads vlan_tci as u16");
_Static_assert(LKE_RX_VLAN_STRIPPED == RTE_MBUF_F_RX_VLAN_STRIPPED, "flag moved");
_Static_assert(RTE_BIT64(LKE_EXTERNAL_BIT) == RTE_MBUF_F_EXTERNAL, "flag moved");
_Static_assert(RTE_BIT64(LKE_INDIRECT_BIT) == RTE_MBUF_F_INDIRECT, "flag moved");

int
lke_errno(void)
{
	return rte_errno;
}

int
lke_thread_has_lcore(void)
{
	return rte_lcore_id() != LCORE_ID_ANY;
}

int
lke_device_check(const char *devargs)
{
	struct rte_devargs parsed;
	int ret;

	memset(&parsed, 0, sizeof(parsed));
	ret = rte_devargs_parse(&parsed, devargs);
	rte_devargs_reset(&parsed);
	return ret;
}

/* Whether sockets that this thread opens stay out of fan-out groups. */
static __thread int alone;

void
lke_packet_sockets_alone(int yes)
{
	alone = yes;
}

/*
 * net_af_packet 22.11 puts each of its sockets into a fan-out group, the only one of a port too, and
 * has no option against it. The kernel then reassembles IPv4 fragments, dissects each frame and
 * looks at the state of the ring. A socket cannot leave its group. This definition goes before the
 * C library's in a program that the driver is linked into.
 */
int
setsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
	if (alone && level == SOL_PACKET && name == PACKET_FANOUT)
		return 0;
	return (int)syscall(SYS_setsockopt, fd, level, name, value, len);
}

void
lke_pause(void)
{
	rte_pause();
}

/* Mb/s. */
static uint32_t
max_speed(uint32_t capabilities)
{
	static const uint32_t speeds[] = {
		RTE_ETH_SPEED_NUM_200G, RTE_ETH_SPEED_NUM_100G, RTE_ETH_SPEED_NUM_56G,
		RTE_ETH_SPEED_NUM_50G,	RTE_ETH_SPEED_NUM_40G,	RTE_ETH_SPEED_NUM_25G,
		RTE_ETH_SPEED_NUM_20G,	RTE_ETH_SPEED_NUM_10G,	RTE_ETH_SPEED_NUM_5G,
		RTE_ETH_SPEED_NUM_2_5G, RTE_ETH_SPEED_NUM_1G,	RTE_ETH_SPEED_NUM_100M,
		RTE_ETH_SPEED_NUM_10M,
	};

	for (size_t i = 0; i < RTE_DIM(speeds); i++)
		if ((capabilities & rte_eth_speed_bitflag(speeds[i], 1)) != 0)
			return speeds[i];
	return 0;
}

int
lke_port_info(uint16_t port, struct lke_port_info *info)
{
	struct rte_eth_dev_info dev;
	struct rte_ether_addr mac;
	int ret;

	memset(info, 0, sizeof(*info));
	memset(&dev, 0, sizeof(dev));
	ret = rte_eth_dev_info_get(port, &dev);
	if (ret != 0)
		return ret;
	if (dev.driver_name != NULL)
		strncpy(info->driver, dev.driver_name, sizeof(info->driver) - 1);
	if (rte_eth_macaddr_get(port, &mac) == 0)
		memcpy(info->mac, mac.addr_bytes, sizeof(info->mac));
	if (rte_eth_dev_get_mtu(port, &info->mtu) != 0)
		info->mtu = 0;
	info->max_mtu = dev.max_mtu;
	info->max_speed = max_speed(dev.speed_capa);
	info->max_rx_queues = dev.max_rx_queues;
	info->max_tx_queues = dev.max_tx_queues;
	info->max_rx_pktlen = dev.max_rx_pktlen;
	info->min_rx_bufsize = dev.min_rx_bufsize;
	info->if_index = dev.if_index;
	info->numa_node = rte_eth_dev_socket_id(port);
	return 0;
}

int
lke_port_configure(uint16_t port, uint16_t rx_queues, uint16_t tx_queues, uint16_t mtu,
		   int scatter)
{
	struct rte_eth_dev_info dev;
	struct rte_eth_conf conf;
	int ret;

	memset(&conf, 0, sizeof(conf));
	memset(&dev, 0, sizeof(dev));
	ret = rte_eth_dev_info_get(port, &dev);
	if (ret != 0)
		return ret;

	/* Some devices support longer frames than they allow to be requested. */
	conf.rxmode.mtu = dev.max_mtu > 0 && mtu > dev.max_mtu ? dev.max_mtu : mtu;
	if (scatter) {
		conf.rxmode.offloads |= dev.rx_offload_capa & RTE_ETH_RX_OFFLOAD_SCATTER;
		conf.txmode.offloads |= dev.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
	}
	/* Addresses only: the traffic between two hosts keeps its order in one queue. */
	if (rx_queues > 1 && (dev.flow_type_rss_offloads & RTE_ETH_RSS_IP) != 0) {
		conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
		conf.rx_adv_conf.rss_conf.rss_hf = dev.flow_type_rss_offloads & RTE_ETH_RSS_IP;
	}
	return rte_eth_dev_configure(port, rx_queues, tx_queues, &conf);
}

static unsigned int
numa_node(uint16_t port)
{
	int node = rte_eth_dev_socket_id(port);

	return node < 0 ? (unsigned int)SOCKET_ID_ANY : (unsigned int)node;
}

int
lke_port_rx_queue(uint16_t port, uint16_t queue, uint16_t descriptors, struct rte_mempool *pool)
{
	return rte_eth_rx_queue_setup(port, queue, descriptors, numa_node(port), NULL, pool);
}

int
lke_port_tx_queue(uint16_t port, uint16_t queue, uint16_t descriptors)
{
	return rte_eth_tx_queue_setup(port, queue, descriptors, numa_node(port), NULL);
}

int
lke_port_link(uint16_t port, struct lke_link *link)
{
	struct rte_eth_link now;
	int ret;

	memset(link, 0, sizeof(*link));
	memset(&now, 0, sizeof(now));
	ret = rte_eth_link_get_nowait(port, &now);
	if (ret != 0)
		return ret;
	if (now.link_speed != RTE_ETH_SPEED_NUM_NONE &&
	    now.link_speed != (uint32_t)RTE_ETH_SPEED_NUM_UNKNOWN)
		link->speed = now.link_speed;
	link->up = now.link_status == RTE_ETH_LINK_UP;
	link->full_duplex = now.link_duplex == RTE_ETH_LINK_FULL_DUPLEX;
	return 0;
}

int
lke_port_counters(uint16_t port, struct lke_counters *counters)
{
	struct rte_eth_stats stats;
	int ret;

	memset(&stats, 0, sizeof(stats));
	ret = rte_eth_stats_get(port, &stats);
	if (ret != 0)
		return ret;
	counters->rx_packets = stats.ipackets;
	counters->rx_bytes = stats.ibytes;
	counters->rx_missed = stats.imissed;
	counters->rx_errors = stats.ierrors;
	counters->rx_no_mbuf = stats.rx_nombuf;
	counters->tx_packets = stats.opackets;
	counters->tx_bytes = stats.obytes;
	counters->tx_errors = stats.oerrors;
	return 0;
}

uint16_t
lke_rx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count)
{
	return rte_eth_rx_burst(port, queue, mbufs, count);
}

uint16_t
lke_tx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count)
{
	return rte_eth_tx_burst(port, queue, mbufs, count);
}

void
lke_mbuf_free(struct rte_mbuf *mbuf)
{
	rte_pktmbuf_free(mbuf);
}

uint8_t *
lke_mbuf_prepend(struct rte_mbuf *mbuf, uint16_t len)
{
	return (uint8_t *)rte_pktmbuf_prepend(mbuf, len);
}

uint8_t *
lke_mbuf_append(struct rte_mbuf *mbuf, uint16_t len)
{
	return mbuf->nb_segs == 1 ? (uint8_t *)rte_pktmbuf_append(mbuf, len) : NULL;
}

int
lke_mbuf_place(struct rte_mbuf *mbuf, uint32_t offset, uint32_t len)
{
	if (mbuf->nb_segs != 1 || offset > mbuf->buf_len || len > mbuf->buf_len - offset)
		return -1;
	/* Without flags no driver reads the fields of offloads. */
	mbuf->ol_flags = 0;
	mbuf->data_off = (uint16_t)offset;
	mbuf->data_len = (uint16_t)len;
	mbuf->pkt_len = len;
	return 0;
}

/* Appends len bytes to the chain that ends in *last; 0 if the pool ran dry. */
static int
append_bytes(struct rte_mempool *pool, struct rte_mbuf *first, struct rte_mbuf **last,
	     const uint8_t *bytes, size_t len)
{
	while (len > 0) {
		uint16_t room = rte_pktmbuf_tailroom(*last);
		uint16_t part;

		if (room == 0) {
			struct rte_mbuf *next = rte_pktmbuf_alloc(pool);

			if (next == NULL)
				return 0;
			next->data_off = 0;
			(*last)->next = next;
			first->nb_segs++;
			*last = next;
			room = rte_pktmbuf_tailroom(next);
		}
		part = len < room ? (uint16_t)len : room;
		memcpy(rte_pktmbuf_mtod_offset(*last, uint8_t *, (*last)->data_len), bytes, part);
		(*last)->data_len += part;
		first->pkt_len += part;
		bytes += part;
		len -= part;
	}
	return 1;
}

struct rte_mbuf *
lke_mbuf_from_parts(struct rte_mempool *pool, const uint8_t *head, size_t head_len,
		    const uint8_t *tail, size_t tail_len)
{
	struct rte_mbuf *first = rte_pktmbuf_alloc(pool);
	struct rte_mbuf *last = first;

	if (first == NULL)
		return NULL;
	if (!append_bytes(pool, first, &last, head, head_len) ||
	    !append_bytes(pool, first, &last, tail, tail_len)) {
		rte_pktmbuf_free(first);
		return NULL;
	}
	return first;
}

size_t
lke_mbuf_copy_out(const struct rte_mbuf *mbuf, uint8_t *out, size_t len)
{
	size_t copied = 0;

	for (; mbuf != NULL && copied < len; mbuf = mbuf->next) {
		size_t part = mbuf->data_len;

		if (part > len - copied)
			part = len - copied;
		memcpy(out + copied, rte_pktmbuf_mtod(mbuf, const uint8_t *), part);
		copied += part;
	}
	return copied;
}

int
lke_mbuf_insert_vlan(struct rte_mbuf **mbuf)
{
	return rte_vlan_insert(mbuf);
}

int
lke_mbuf_take_vlan(struct rte_mbuf *mbuf)
{
	if (!(mbuf->ol_flags & RTE_MBUF_F_RX_VLAN_STRIPPED)) {
		const size_t tagged = sizeof(struct rte_ether_hdr) + sizeof(struct rte_vlan_hdr);

		if (mbuf->data_len < tagged || rte_vlan_strip(mbuf) != 0)
			return -1;
	}
	mbuf->ol_flags &= ~(RTE_MBUF_F_RX_VLAN | RTE_MBUF_F_RX_VLAN_STRIPPED);
	return mbuf->vlan_tci;
}

int
lke_mbuf_push_vlan(struct rte_mbuf **mbuf, uint16_t tci)
{
	(*mbuf)->vlan_tci = tci;
	return rte_vlan_insert(mbuf);
}
