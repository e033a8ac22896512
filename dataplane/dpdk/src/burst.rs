// SPDX-License-Identifier: Apache-2.0
//! A burst: up to 64 packets in a fixed array, received together or staged for sending.
//!
//! Invariants: slots `0..len` are owned, in order of arrival; nothing is allocated. Worker thread.

use std::fmt;
use std::mem::MaybeUninit;
use std::ops::Index;
use std::ptr;
use std::slice;

use dpdk_sys::rte_mbuf;

use crate::mbuf::Mbuf;

/// An ordered, fixed-capacity array of packets.
pub struct MbufBurst {
    slots: [MaybeUninit<Mbuf>; Self::CAPACITY],
    len: usize,
}

impl MbufBurst {
    /// Maximum number of packets.
    pub const CAPACITY: usize = 64;

    #[must_use]
    pub const fn new() -> Self {
        Self { slots: [const { MaybeUninit::uninit() }; Self::CAPACITY], len: 0 }
    }

    #[inline]
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    #[inline]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.len == Self::CAPACITY
    }

    /// Adds a packet at the end.
    ///
    /// # Errors
    /// Gives the packet back if the burst is full.
    #[inline]
    pub fn push(&mut self, mbuf: Mbuf) -> Result<(), Mbuf> {
        match self.slots.get_mut(self.len) {
            Some(slot) => {
                slot.write(mbuf);
                self.len += 1;
                Ok(())
            }
            None => Err(mbuf),
        }
    }

    /// The packets, in order.
    #[inline]
    #[must_use]
    pub const fn as_slice(&self) -> &[Mbuf] {
        // SAFETY: slots 0..len are initialised; MaybeUninit<Mbuf> has Mbuf's layout.
        unsafe { slice::from_raw_parts(self.slots.as_ptr().cast::<Mbuf>(), self.len) }
    }

    /// The packets, in order, for change in place.
    #[inline]
    #[must_use]
    pub const fn as_mut_slice(&mut self) -> &mut [Mbuf] {
        // SAFETY: as for `as_slice`, and the borrow is exclusive. Swapping elements keeps each
        // one owned once.
        unsafe { slice::from_raw_parts_mut(self.slots.as_mut_ptr().cast::<Mbuf>(), self.len) }
    }

    /// Takes all packets out, in order. Those not taken from the iterator are freed with it.
    #[inline]
    pub const fn drain(&mut self) -> Drain<'_> {
        let end = self.len;
        self.len = 0;
        Drain { burst: self, next: 0, end }
    }

    /// Removes the last packet.
    #[inline]
    pub fn pop(&mut self) -> Option<Mbuf> {
        self.len = self.len.checked_sub(1)?;
        // SAFETY: the slot was within `0..len`, and `len` no longer includes it.
        Some(unsafe { self.slots.get(self.len)?.assume_init_read() })
    }

    /// Passes all packets to `take` as a slice of options. Packets that `take` leaves in the slice
    /// move to `spare` while it has room; the rest are freed.
    #[inline]
    pub fn lend(&mut self, spare: &mut Self, take: impl FnOnce(&mut [Option<Mbuf>])) {
        let end = self.len;
        // Should `take` panic, the packets leak.
        self.len = 0;
        // SAFETY: slots 0..end are initialised. Mbuf is transparent over NonNull, so an
        // Option of it has the same layout, and None is the null pointer.
        let lent: &mut [Option<Mbuf>] =
            unsafe { slice::from_raw_parts_mut(self.slots.as_mut_ptr().cast(), end) };
        take(lent);
        for mbuf in lent.iter_mut().filter_map(Option::take) {
            // Frees the packet if `spare` is full.
            let _ = spare.push(mbuf);
        }
    }

    /// Frees all packets, in bulk.
    #[inline]
    pub fn clear(&mut self) {
        let end = self.len;
        self.len = 0;
        self.free(0, end);
    }

    /// Frees slots `start..end`, which the caller has taken out of `0..len`.
    fn free(&mut self, start: usize, end: usize) {
        if start < end {
            // SAFETY: the slots are initialised and have no other owner; Mbuf is transparent over a
            // pointer to rte_mbuf. `end - start` is at most 64.
            unsafe {
                let first = self.slots.as_mut_ptr().add(start).cast::<*mut rte_mbuf>();
                dpdk_sys::rte_pktmbuf_free_bulk(first, (end - start) as u32);
            }
        }
    }

    /// Calls `fill`, which may write up to `most` mbuf pointers after the last packet and returns
    /// the number written.
    ///
    /// # Safety
    /// `fill` writes exactly as many valid, owned pointers as it returns, at most its second
    /// argument.
    #[inline]
    pub(crate) unsafe fn fill(
        &mut self,
        most: usize,
        fill: impl FnOnce(*mut *mut rte_mbuf, u16) -> u16,
    ) -> usize {
        let room = most.min(Self::CAPACITY - self.len);
        // SAFETY: len <= CAPACITY, so the pointer is within or one past the array.
        let start = unsafe { self.slots.as_mut_ptr().add(self.len) };
        let filled = usize::from(fill(start.cast(), room as u16)).min(room);
        self.len += filled;
        filled
    }

    /// Calls `send`, which may take a prefix of the packets and returns its length. The other
    /// packets move to the front.
    ///
    /// # Safety
    /// `send` owns exactly the prefix that it returns.
    #[inline]
    pub(crate) unsafe fn send(
        &mut self,
        send: impl FnOnce(*mut *mut rte_mbuf, u16) -> u16,
    ) -> usize {
        let len = self.len;
        let sent = usize::from(send(self.slots.as_mut_ptr().cast(), len as u16)).min(len);
        let rest = len - sent;
        if sent > 0 && rest > 0 {
            let base = self.slots.as_mut_ptr();
            // SAFETY: both ranges lie within the array's first `len` slots; the prefix is no
            // longer owned and may be overwritten.
            unsafe { ptr::copy(base.add(sent), base, rest) };
        }
        self.len = rest;
        sent
    }
}

impl Default for MbufBurst {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for MbufBurst {
    fn drop(&mut self) {
        self.clear();
    }
}

impl Index<usize> for MbufBurst {
    type Output = Mbuf;

    fn index(&self, index: usize) -> &Mbuf {
        &self.as_slice()[index]
    }
}

impl fmt::Debug for MbufBurst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.as_slice()).finish()
    }
}

/// Iterator that removes packets from a burst.
#[derive(Debug)]
pub struct Drain<'a> {
    burst: &'a mut MbufBurst,
    next: usize,
    end: usize,
}

impl Iterator for Drain<'_> {
    type Item = Mbuf;

    #[inline]
    fn next(&mut self) -> Option<Mbuf> {
        if self.next == self.end {
            return None;
        }
        // SAFETY: slots next..end are initialised and owned by this iterator; the slot is not
        // read again, since `next` moves past it.
        let mbuf = unsafe { self.burst.slots.get(self.next)?.assume_init_read() };
        self.next += 1;
        Some(mbuf)
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.end - self.next;
        (left, Some(left))
    }
}

impl ExactSizeIterator for Drain<'_> {}

impl Drop for Drain<'_> {
    fn drop(&mut self) {
        self.burst.free(self.next, self.end);
    }
}
