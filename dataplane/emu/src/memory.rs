// SPDX-License-Identifier: Apache-2.0
//! Hints about memory. With many clients each frame is in another place, and the wait for
//! memory is what it costs, unless several waits run at once and the way there is short.
//!
//! The only unsafe code of the core; none of it can change what a program does.
#![allow(unsafe_code, reason = "hints without effect on memory")]

/// Bytes in a line of the cache.
pub const LINE: usize = 64;

/// Hints that the line at `address` will be used soon.
#[inline(always)]
fn prefetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint, without effect on memory; it may name any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Hints that the `LEN` bytes from `data[at]` on will be used soon. Without effect if there are none.
#[inline]
pub fn prefetch_bytes<const LEN: usize>(data: &[u8], at: usize) {
    const { assert!(LEN > LINE && LEN <= 2 * LINE, "three lines at most") };
    let place = data.as_ptr().wrapping_add(at);
    for offset in [0, LINE, LEN - 1] {
        prefetch(place.wrapping_add(offset));
    }
}

/// Hints that the lines of `data[at]` from `FROM` up to, but excluding, `TO` will be used soon. Without
/// effect if there is no such element.
#[inline]
pub fn prefetch_lines<T, const FROM: usize, const TO: usize>(data: &[T], at: usize) {
    const { assert!(TO * LINE <= size_of::<T>(), "within an element") };
    let start = data.as_ptr().wrapping_add(at).cast::<u8>();
    (FROM..TO).for_each(|line| prefetch(start.wrapping_add(line * LINE)));
}

/// Hints that `data`, up to its first `MOST` lines, will be used soon.
#[inline]
pub fn prefetch_slice<T, const MOST: usize>(data: &[T]) {
    let start = data.as_ptr().cast::<u8>();
    let lines = size_of_val(data).div_ceil(LINE).min(MOST);
    (0..lines).for_each(|line| prefetch(start.wrapping_add(line * LINE)));
}

/// Asks the system for large pages under what `data` has room for, so that far fewer
/// addresses have to be looked up. Before it is first touched.
pub fn advise_large_pages<T>(data: &mut Vec<T>) {
    #[cfg(target_os = "linux")]
    {
        const PAGE: usize = 4096;
        let room = data.spare_capacity_mut();
        let start = room.as_mut_ptr() as usize;
        let end = start + size_of_val(room);
        let (first, last) = (start.next_multiple_of(PAGE), end / PAGE * PAGE);
        if first < last {
            // SAFETY: whole pages within one allocation; the advice keeps their content.
            // Where the system does not take it, it does nothing.
            unsafe { libc::madvise(first as *mut _, last - first, libc::MADV_HUGEPAGE) };
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = data;
}
