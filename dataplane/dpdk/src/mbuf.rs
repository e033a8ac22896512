// SPDX-License-Identifier: Apache-2.0
//! One packet, in one DPDK buffer or a chain of them.
//!
//! Reference: DPDK programmer's guide, "Mbuf library". Invariants: an [`Mbuf`] is the only owner of
//! its chain (the crate never raises a reference count), so `&mut` access is exclusive. Byte counts
//! exclude the frame check sequence. Fields are read in place at the offsets that the C compiler
//! computed. Any thread, one at a time.

use std::ffi::c_void;
use std::fmt;
use std::mem;
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::slice;

use dpdk_sys::rte_mbuf;

/// A packet buffer that other code uses, as pointers.
#[derive(Debug)]
pub struct Loan {
    /// The `rte_mbuf`.
    pub handle: *mut c_void,
    /// Start of the buffer.
    pub buffer: *mut u8,
    /// First byte of the frame in the buffer.
    pub offset: u32,
    /// Bytes of the frame.
    pub length: u32,
}

/// An owned packet buffer. Drop returns it to its pool.
#[repr(transparent)]
pub struct Mbuf(NonNull<rte_mbuf>);

// SAFETY: an mbuf has one owner and is not tied to the thread that took it from the pool.
unsafe impl Send for Mbuf {}
// SAFETY: a shared reference only reads.
unsafe impl Sync for Mbuf {}

impl Mbuf {
    /// Takes ownership of a raw mbuf.
    ///
    /// # Safety
    /// `mbuf` is a valid buffer that nothing else owns, and its pool outlives it.
    #[inline]
    pub(crate) const unsafe fn from_raw(mbuf: NonNull<rte_mbuf>) -> Self {
        Self(mbuf)
    }

    ///
    /// `offset` is that of a `T` (`dpdk-sys` checks offsets and sizes at compile time).
    #[inline]
    const unsafe fn field<T: Copy>(&self, offset: u32) -> T {
        // SAFETY: the mbuf is alive and the caller guarantees type and offset; DPDK aligns each
        // field by its size.
        unsafe { self.0.as_ptr().cast::<u8>().add(offset as usize).cast::<T>().read() }
    }

    /// # Safety
    /// As for [`field`](Self::field); the driver accepts the value.
    #[inline]
    unsafe fn set<T>(&mut self, offset: u32, value: T) {
        // SAFETY: as for `field`; the borrow is exclusive.
        unsafe { self.0.as_ptr().cast::<u8>().add(offset as usize).cast::<T>().write(value) }
    }

    /// Bytes in the frame, over all segments.
    #[inline]
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "no frame is empty")]
    pub const fn len(&self) -> usize {
        // SAFETY: pkt_len is a u32.
        unsafe { self.field::<u32>(dpdk_sys::LKE_MBUF_PKT_LEN) as usize }
    }

    /// Segments in the chain; 1 for all but jumbo frames.
    #[inline]
    #[must_use]
    pub const fn segments(&self) -> u16 {
        // SAFETY: nb_segs is a u16.
        unsafe { self.field::<u16>(dpdk_sys::LKE_MBUF_NB_SEGS) }
    }

    /// Bytes of the first segment. In practice it holds all headers.
    #[inline]
    #[must_use]
    pub const fn first_segment(&self) -> &[u8] {
        // SAFETY: data_len is a u16.
        let len = unsafe { self.field::<u16>(dpdk_sys::LKE_MBUF_DATA_LEN) };
        // SAFETY: `data` points at data_len initialised bytes that this mbuf owns; the borrow
        // prevents writes.
        unsafe { slice::from_raw_parts(self.data(), len as usize) }
    }

    /// The whole frame, if it is in one segment.
    #[inline]
    #[must_use]
    pub const fn contiguous(&self) -> Option<&[u8]> {
        if self.segments() == 1 { Some(self.first_segment()) } else { None }
    }

    /// The whole frame for change in place, if it is in one segment.
    #[inline]
    #[must_use]
    pub const fn contiguous_mut(&mut self) -> Option<&mut [u8]> {
        if self.segments() != 1 {
            return None;
        }
        // SAFETY: data_len is a u16.
        let len = unsafe { self.field::<u16>(dpdk_sys::LKE_MBUF_DATA_LEN) };
        // SAFETY: `data` points at data_len initialised bytes that this mbuf owns alone; the
        // borrow is exclusive.
        Some(unsafe { slice::from_raw_parts_mut(self.data(), len as usize) })
    }

    /// Copies the first bytes of the frame, over all segments, into `out`. Returns the number of
    /// bytes copied: the smaller of `out.len()` and [`len`](Self::len).
    #[inline]
    pub fn copy_into(&self, out: &mut [u8]) -> usize {
        if let Some(frame) = self.contiguous() {
            let len = frame.len().min(out.len());
            out[..len].copy_from_slice(&frame[..len]);
            return len;
        }
        // SAFETY: the chain is valid, `out` is writable for its length and overlaps no mbuf.
        unsafe { dpdk_sys::lke_mbuf_copy_out(self.0.as_ptr(), out.as_mut_ptr(), out.len()) }
    }

    /// The tag (PCP, DEI and VLAN id) that the port stripped from the frame on reception.
    ///
    /// `net_af_packet` of 22.11 always strips it, because the kernel does. Newer releases and
    /// hardware leave the tag in the frame. See [`restore_vlan`](Self::restore_vlan).
    #[inline]
    #[must_use]
    pub const fn stripped_vlan(&self) -> Option<u16> {
        // SAFETY: ol_flags is a u64, vlan_tci a u16.
        let (flags, tci) = unsafe {
            (
                self.field::<u64>(dpdk_sys::LKE_MBUF_OL_FLAGS),
                self.field::<u16>(dpdk_sys::LKE_MBUF_VLAN_TCI),
            )
        };
        if flags & (dpdk_sys::LKE_RX_VLAN_STRIPPED as u64) != 0 { Some(tci) } else { None }
    }

    /// Inserts a stripped tag into the frame again, as 802.1Q (the kernel does not report to the
    /// PMD whether it was 802.1ad). Does nothing if none was stripped. Returns false if there is no
    /// headroom.
    #[inline]
    #[must_use]
    pub fn restore_vlan(&mut self) -> bool {
        if self.stripped_vlan().is_none() {
            return true;
        }
        let mut raw = self.0.as_ptr();
        // SAFETY: the chain is valid and owned; rte_vlan_insert keeps the first segment.
        unsafe { dpdk_sys::lke_mbuf_insert_vlan(&raw mut raw) == 0 }
    }

    /// Takes off the outer 802.1Q tag, whether the port has stripped it or not, and returns its 16 bits
    /// (PCP, DEI and VLAN id). None if the frame has no such tag.
    #[inline]
    #[must_use]
    pub fn take_vlan(&mut self) -> Option<u16> {
        // SAFETY: the chain is valid and owned; only its first segment changes.
        let tag = unsafe { dpdk_sys::lke_mbuf_take_vlan(self.0.as_ptr()) };
        u16::try_from(tag).ok()
    }

    /// Puts an 802.1Q tag before all others. Returns false if there is no headroom.
    #[inline]
    #[must_use]
    pub fn push_vlan(&mut self, tag: u16) -> bool {
        let mut raw = self.0.as_ptr();
        // SAFETY: the chain is valid and owned; rte_vlan_insert keeps the first segment.
        unsafe { dpdk_sys::lke_mbuf_push_vlan(&raw mut raw, tag) == 0 }
    }

    /// Replaces the content by `frame` and clears the flags, without which no driver reads other
    /// metadata. Returns false without a change if the buffer is a chain or too small.
    #[inline]
    #[must_use]
    pub fn refill(&mut self, frame: &[u8]) -> bool {
        const HEADROOM: usize = dpdk_sys::LKE_HEADROOM as usize;
        const ELSEWHERE: u64 = 1 << dpdk_sys::LKE_EXTERNAL_BIT | 1 << dpdk_sys::LKE_INDIRECT_BIT;
        // One comparison for both.
        const _: () = assert!(dpdk_sys::LKE_MBUF_NB_SEGS == dpdk_sys::LKE_MBUF_REFCNT + 2);
        // SAFETY: refcnt, nb_segs after it, and buf_len are u16, ol_flags is a u64.
        let (owners_and_segments, size, flags) = unsafe {
            (
                self.field::<[u16; 2]>(dpdk_sys::LKE_MBUF_REFCNT),
                self.field::<u16>(dpdk_sys::LKE_MBUF_BUF_LEN),
                self.field::<u64>(dpdk_sys::LKE_MBUF_OL_FLAGS),
            )
        };
        let is_sole = owners_and_segments == [1, 1] && flags & ELSEWHERE == 0;
        if !is_sole || HEADROOM + frame.len() > usize::from(size) {
            return false;
        }
        // SAFETY: ol_flags is a u64, data_off and data_len are u16, pkt_len is a u32, buf_addr is a pointer.
        // The frame fits into the buffer, which is owned alone; nobody else has its bytes.
        unsafe {
            let buffer = self.field::<*mut u8>(dpdk_sys::LKE_MBUF_BUF_ADDR);
            self.set::<u64>(dpdk_sys::LKE_MBUF_OL_FLAGS, 0);
            self.set::<u16>(dpdk_sys::LKE_MBUF_DATA_OFF, HEADROOM as u16);
            self.set::<u16>(dpdk_sys::LKE_MBUF_DATA_LEN, frame.len() as u16);
            self.set::<u32>(dpdk_sys::LKE_MBUF_PKT_LEN, frame.len() as u32);
            ptr::copy_nonoverlapping(frame.as_ptr(), buffer.add(HEADROOM), frame.len());
        }
        true
    }

    /// Adds `length` bytes before the frame and returns them, with unspecified content. None if the
    /// headroom is smaller.
    #[inline]
    pub fn prepend(&mut self, length: u16) -> Option<&mut [u8]> {
        // SAFETY: the chain is valid and owned; only its first segment changes.
        let bytes = unsafe { dpdk_sys::lke_mbuf_prepend(self.0.as_ptr(), length) };
        let bytes = NonNull::new(bytes)?;
        // SAFETY: `length` bytes of this buffer, owned alone; the borrow is exclusive.
        Some(unsafe { slice::from_raw_parts_mut(bytes.as_ptr(), length.into()) })
    }

    /// Adds `length` bytes after the frame and returns them, with unspecified content. None if the
    /// room is smaller, or the frame is in several segments.
    #[inline]
    pub fn append(&mut self, length: u16) -> Option<&mut [u8]> {
        // SAFETY: the mbuf is valid and owned.
        let bytes = unsafe { dpdk_sys::lke_mbuf_append(self.0.as_ptr(), length) };
        let bytes = NonNull::new(bytes)?;
        // SAFETY: as for `prepend`.
        Some(unsafe { slice::from_raw_parts_mut(bytes.as_ptr(), length.into()) })
    }

    /// Keeps these bytes of the frame. Returns false without a change if they are not in it, or it is
    /// in several segments.
    #[inline]
    #[must_use]
    pub fn keep(&mut self, range: Range<usize>) -> bool {
        if self.contiguous().is_none_or(|frame| frame.get(range.clone()).is_none()) {
            return false;
        }
        // SAFETY: data_off is a u16.
        let start =
            unsafe { self.field::<u16>(dpdk_sys::LKE_MBUF_DATA_OFF) } as usize + range.start;
        // SAFETY: the mbuf is valid and owned; the range is within its data.
        unsafe { dpdk_sys::lke_mbuf_place(self.0.as_ptr(), start as u32, range.len() as u32) == 0 }
    }

    /// Gives a buffer of one segment to other code, as a raw packet. None (and the packet freed) for a
    /// chain. The receiver passes the handle to [`from_loan`](Self::from_loan) or frees it.
    #[inline]
    #[must_use]
    pub fn into_loan(self) -> Option<Loan> {
        let length = self.contiguous()?.len() as u32;
        // SAFETY: buf_addr is a pointer, data_off a u16.
        let (buffer, offset) = unsafe {
            (
                self.field::<*mut u8>(dpdk_sys::LKE_MBUF_BUF_ADDR),
                self.field::<u16>(dpdk_sys::LKE_MBUF_DATA_OFF).into(),
            )
        };
        let handle = self.0.as_ptr().cast();
        mem::forget(self);
        Some(Loan { handle, buffer, offset, length })
    }

    /// Takes a buffer back that now holds `length` bytes at `offset`. None (and the packet freed) if
    /// they are not within the buffer.
    ///
    /// # Safety
    /// `handle` is that of a [`Loan`] that nothing else uses.
    #[inline]
    #[must_use]
    pub unsafe fn from_loan(handle: NonNull<c_void>, offset: u32, length: u32) -> Option<Self> {
        // SAFETY: as for the function.
        let mbuf = unsafe { Self::from_raw(handle.cast()) };
        // SAFETY: the mbuf is valid and owned; C checks the range.
        let placed = unsafe { dpdk_sys::lke_mbuf_place(mbuf.0.as_ptr(), offset, length) == 0 };
        placed.then_some(mbuf)
    }

    #[inline]
    const fn data(&self) -> *mut u8 {
        // SAFETY: buf_addr is a pointer and data_off, a u16, stays within the buffer.
        unsafe {
            let start = self.field::<*mut u8>(dpdk_sys::LKE_MBUF_BUF_ADDR);
            start.add(self.field::<u16>(dpdk_sys::LKE_MBUF_DATA_OFF) as usize)
        }
    }
}

/// A link can keep single-segment buffers. Of a chain it would see only the start.
impl emu::frame::Buffer for Mbuf {
    #[inline]
    fn bytes(&self) -> &[u8] {
        self.first_segment()
    }

    #[inline]
    fn bytes_mut(&mut self) -> &mut [u8] {
        self.contiguous_mut().unwrap_or_default()
    }

    #[inline]
    fn prefetch(&self) {
        // The two cache lines that a driver reads when it sends and frees.
        #[cfg(target_arch = "x86_64")]
        // SAFETY: hints, on an mbuf that is alive and 128 bytes long.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let start: *const i8 = self.0.as_ptr().cast();
            _mm_prefetch::<_MM_HINT_T0>(start);
            _mm_prefetch::<_MM_HINT_T0>(start.add(64));
        }
    }
}

impl Drop for Mbuf {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the mbuf is owned, and not used after this.
        unsafe { dpdk_sys::lke_mbuf_free(self.0.as_ptr()) };
    }
}

impl fmt::Debug for Mbuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mbuf")
            .field("len", &self.len())
            .field("segments", &self.segments())
            .field("stripped_vlan", &self.stripped_vlan())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of the buffer, headroom included.
    const SIZE: u16 = 256;
    const HEADROOM: usize = dpdk_sys::LKE_HEADROOM as usize;

    /// Calls `test` with a buffer that belongs to no pool.
    fn with_buffer(test: impl FnOnce(&mut Mbuf)) {
        // SAFETY: zeros are valid for all fields of an mbuf.
        let mut mbuf: Box<rte_mbuf> = Box::new(unsafe { mem::zeroed() });
        let mut bytes = [0xaa_u8; SIZE as usize];
        // SAFETY: the mbuf lives longer than this handle, which does not free it.
        let mut handle =
            mem::ManuallyDrop::new(unsafe { Mbuf::from_raw(NonNull::from(&mut *mbuf)) });
        // SAFETY: types as in DPDK's header.
        unsafe {
            handle.set::<*mut u8>(dpdk_sys::LKE_MBUF_BUF_ADDR, bytes.as_mut_ptr());
            handle.set::<u16>(dpdk_sys::LKE_MBUF_BUF_LEN, SIZE);
            handle.set::<u16>(dpdk_sys::LKE_MBUF_REFCNT, 1);
            handle.set::<u16>(dpdk_sys::LKE_MBUF_NB_SEGS, 1);
            handle.set::<u64>(dpdk_sys::LKE_MBUF_OL_FLAGS, dpdk_sys::LKE_RX_VLAN_STRIPPED.into());
        }
        test(&mut handle);
    }

    #[test]
    fn refilled_buffer_has_the_frame_and_no_flags() {
        with_buffer(|mbuf| {
            for length in [0, 1, 60, usize::from(SIZE) - HEADROOM] {
                let frame: Vec<u8> = (0..length).map(|n| n as u8).collect();
                assert!(mbuf.refill(&frame));
                assert_eq!((mbuf.contiguous(), mbuf.len()), (Some(&frame[..]), length));
                assert_eq!(mbuf.stripped_vlan(), None);
            }
        });
    }

    #[test]
    fn buffer_that_is_not_whole_and_owned_alone_is_not_refilled() {
        let (refcnt, segments) = (dpdk_sys::LKE_MBUF_REFCNT, dpdk_sys::LKE_MBUF_NB_SEGS);
        let flags = [dpdk_sys::LKE_EXTERNAL_BIT, dpdk_sys::LKE_INDIRECT_BIT];
        // SAFETY: types as in DPDK's header.
        let changes: [&dyn Fn(&mut Mbuf); 4] = [
            &|mbuf| unsafe { mbuf.set::<u16>(refcnt, 2) },
            &|mbuf| unsafe { mbuf.set::<u16>(segments, 2) },
            &|mbuf| unsafe { mbuf.set::<u64>(dpdk_sys::LKE_MBUF_OL_FLAGS, 1 << flags[0]) },
            &|mbuf| unsafe { mbuf.set::<u64>(dpdk_sys::LKE_MBUF_OL_FLAGS, 1 << flags[1]) },
        ];
        for change in changes {
            with_buffer(|mbuf| {
                assert!(mbuf.refill(b"before"));
                change(mbuf);
                assert!(!mbuf.refill(b"after"));
                assert_eq!(mbuf.first_segment(), b"before");
            });
        }
        with_buffer(|mbuf| {
            assert!(mbuf.refill(b"before"));
            assert!(!mbuf.refill(&[0; SIZE as usize - HEADROOM + 1]));
            assert_eq!(mbuf.contiguous(), Some(&b"before"[..]));
        });
    }
}
