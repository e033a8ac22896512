// SPDX-License-Identifier: Apache-2.0
//! A pool of packet buffers of one size, shared by threads.
//!
//! Invariants: every [`Mbuf`] of the pool counts as in use until dropped. The memory is freed only
//! when none is in use; otherwise pool and EAL are leaked with a warning. `new` and drop: control
//! thread; the rest: any thread.

use std::ffi::CString;
use std::mem;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use crate::eal::Eal;
use crate::error::{Error, rte_reason};
use crate::instance::EalInner;
use crate::mbuf::Mbuf;

/// Buffers in the cache of each registered thread; it may temporarily hold half as many more.
const CACHE: u32 = 256;
/// Approximate bytes of a buffer beyond its data: mbuf, pool header, alignment.
const OVERHEAD: u64 = 256;

/// A pool of packet buffers; clones share it.
#[derive(Clone, Debug)]
pub struct Mempool {
    inner: Arc<PoolInner>,
}

#[derive(Debug)]
struct PoolInner {
    pool: NonNull<dpdk_sys::rte_mempool>,
    name: String,
    count: u32,
    data_room: u16,
    eal: Option<Arc<EalInner>>,
}

// SAFETY: a mempool is a DPDK object made to be used by many threads (its ring is
// multi-producer, multi-consumer, its caches are per lcore); the other fields are plain data.
unsafe impl Send for PoolInner {}
// SAFETY: as above.
unsafe impl Sync for PoolInner {}

impl Mempool {
    /// Maximum number of buffers in the cache of one registered thread that allocates or frees. A
    /// pool that must never run dry needs as many extra buffers per such thread.
    pub const CACHED_PER_THREAD: u32 = CACHE + CACHE / 2;

    /// Creates a pool of `count` buffers with `data_room` bytes of data each, on any NUMA node.
    /// 2048 bytes hold every frame up to MTU 1500; a jumbo `net_af_packet` port needs 16384.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a bad name or count, [`Error::Mempool`] if memory is short or the
    /// name is taken.
    pub fn new(eal: &Eal, name: &str, count: u32, data_room: u16) -> Result<Self, Error> {
        Self::on_node(eal, name, count, data_room, None)
    }

    /// As [`new`](Self::new), in the memory of NUMA node `node`. Use the node of the core that uses
    /// the pool ([`numa_node`](crate::numa_node)).
    ///
    /// # Errors
    /// As [`new`](Self::new); the node may also have too little memory.
    pub fn on_node(
        eal: &Eal,
        name: &str,
        count: u32,
        data_room: u16,
        node: Option<u32>,
    ) -> Result<Self, Error> {
        let longest = dpdk_sys::LKE_MEMPOOL_NAME_MAX as usize - 1;
        if name.is_empty() || name.len() > longest || !name.bytes().all(|b| b.is_ascii_graphic()) {
            let rule = format!("1 to {longest} printable ASCII characters");
            return Err(Error::invalid("mempool name", name, rule));
        }
        if count < 2 {
            return Err(Error::invalid("mempool size", &count.to_string(), "at least 2 buffers"));
        }
        let headroom = dpdk_sys::LKE_HEADROOM as u16;
        let Some(segment) = data_room.checked_add(headroom) else {
            let rule = format!("at most {}", u16::MAX - headroom);
            return Err(Error::invalid("data room", &data_room.to_string(), rule));
        };
        let text = CString::new(name)
            .map_err(|_| Error::invalid("mempool name", name, "it contains a zero byte"))?;
        // DPDK requires the cache to be below count / 1.5.
        let cache = CACHE.min(dpdk_sys::LKE_MEMPOOL_CACHE_MAX).min(count / 2);
        let inner = eal.inner();
        let control = inner.control();
        // SOCKET_ID_ANY.
        let node = node.and_then(|n| i32::try_from(n).ok()).unwrap_or(-1);
        // SAFETY: EAL is initialised, `text` is a valid string for the call.
        let pool = unsafe {
            dpdk_sys::rte_pktmbuf_pool_create(text.as_ptr(), count, cache, 0, segment, node)
        };
        drop(control);
        let Some(pool) = NonNull::new(pool) else {
            return Err(Error::Mempool {
                name: name.to_owned(),
                count,
                data_room,
                megabytes: (u64::from(count) * (u64::from(segment) + OVERHEAD)).div_ceil(1 << 20),
                reason: rte_reason(),
            });
        };
        let inner = PoolInner { pool, name: name.to_owned(), count, data_room, eal: Some(inner) };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// A new buffer with a copy of `frame`; `None` if the pool is empty. A frame larger than one
    /// buffer takes a chain.
    #[inline]
    #[must_use]
    pub fn alloc(&self, frame: &[u8]) -> Option<Mbuf> {
        self.alloc_parts(frame, &[])
    }

    /// As [`alloc`](Self::alloc), with `head` followed by `tail`: a frame that wraps around the end
    /// of a byte ring.
    #[inline]
    #[must_use]
    pub fn alloc_parts(&self, head: &[u8], tail: &[u8]) -> Option<Mbuf> {
        // SAFETY: the pool is alive; both slices are valid for the lengths given and C only reads
        // them.
        let mbuf = unsafe {
            dpdk_sys::lke_mbuf_from_parts(
                self.as_ptr(),
                head.as_ptr(),
                head.len(),
                tail.as_ptr(),
                tail.len(),
            )
        };
        // SAFETY: a buffer fresh from the pool has no other owner.
        NonNull::new(mbuf).map(|mbuf| unsafe { Mbuf::from_raw(mbuf) })
    }

    /// Free buffers, including those in thread caches. Not for the datapath.
    #[must_use]
    pub fn available(&self) -> u32 {
        // SAFETY: the pool is alive.
        unsafe { dpdk_sys::rte_mempool_avail_count(self.as_ptr()) }
    }

    /// Buffers in use: mbufs in Rust and in a driver's rings. Exact only while no thread allocates
    /// or frees. Not for the datapath.
    #[must_use]
    pub fn in_use(&self) -> u32 {
        self.inner.in_use()
    }

    #[must_use]
    pub fn count(&self) -> u32 {
        self.inner.count
    }

    /// Bytes of data per buffer.
    #[must_use]
    pub fn data_room(&self) -> u16 {
        self.inner.data_room
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    pub(crate) fn as_ptr(&self) -> *mut dpdk_sys::rte_mempool {
        self.inner.pool.as_ptr()
    }
}

impl PoolInner {
    fn in_use(&self) -> u32 {
        // SAFETY: the pool is alive.
        unsafe { dpdk_sys::rte_mempool_in_use_count(self.pool.as_ptr()) }
    }
}

impl Drop for PoolInner {
    fn drop(&mut self) {
        // A buffer that another thread moves from its cache to the ring is counted in both and can
        // hide one that is in use. Such a move takes nanoseconds, so retry.
        let mut out = 0;
        for _ in 0..3 {
            out = out.max(self.in_use());
            std::thread::sleep(Duration::from_millis(1));
        }
        if out > 0 {
            tracing::warn!(pool = self.name, out, "mempool kept: buffers are still in use");
            mem::forget(self.eal.take());
            return;
        }
        let _control = self.eal.as_ref().map(|eal| eal.control());
        // SAFETY: the last handle is gone and no buffer is out: nothing refers to the pool.
        unsafe { dpdk_sys::rte_mempool_free(self.pool.as_ptr()) };
    }
}
