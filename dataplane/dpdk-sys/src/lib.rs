// SPDX-License-Identifier: Apache-2.0
//! Raw bindings to the DPDK functions that linkemu calls; use the `dpdk` crate instead.
//!
//! `allowlist.txt` lists everything that is bound. `shim.h` and `shim.c` wrap what bindgen cannot
//! bind (static inlines, macros) and what differs between DPDK releases. An mbuf is opaque: access
//! its fields at the `LKE_MBUF_*` offsets, which the C compiler computed from DPDK's headers.
#![allow(unsafe_code, reason = "this crate is the foreign-function interface")]
#![allow(non_camel_case_types, non_snake_case, non_upper_case_globals, reason = "C names")]
#![allow(clippy::all, clippy::undocumented_unsafe_blocks, reason = "generated code")]

include!(concat!(env!("OUT_DIR"), "/bindings.rs"));

/// Names of the linked network drivers, separated by spaces.
pub const DRIVERS: &str = env!("DPDK_DRIVERS");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_rust_accesses_lie_inside_the_mbuf() {
        let fields = [
            (LKE_MBUF_BUF_ADDR, 8),
            (LKE_MBUF_DATA_OFF, 2),
            (LKE_MBUF_REFCNT, 2),
            (LKE_MBUF_NB_SEGS, 2),
            (LKE_MBUF_OL_FLAGS, 8),
            (LKE_MBUF_PKT_LEN, 4),
            (LKE_MBUF_DATA_LEN, 2),
            (LKE_MBUF_VLAN_TCI, 2),
            (LKE_MBUF_BUF_LEN, 2),
            (LKE_MBUF_NEXT, 8),
        ];
        for (offset, size) in fields {
            let (offset, size) = (offset as usize, size as usize);
            assert!(offset % size == 0 && offset + size <= size_of::<rte_mbuf>());
        }
    }

    #[test]
    fn headers_and_library_have_one_release() {
        // SAFETY: takes nothing, returns a pointer to a static string.
        let version = unsafe { std::ffi::CStr::from_ptr(rte_version()) };
        let expected = format!("DPDK {}.{:02}", LKE_RTE_VERSION_YEAR, LKE_RTE_VERSION_MONTH);
        assert!(version.to_string_lossy().starts_with(&expected), "{version:?} is not {expected}");
    }
}
