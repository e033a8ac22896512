// SPDX-License-Identifier: Apache-2.0
//! IP protocol numbers (IANA), and the lengths of IPv6 extension headers.

pub const ICMP: u8 = 1;
pub const TCP: u8 = 6;
pub const UDP: u8 = 17;
pub const ICMPV6: u8 = 58;

/// Maximum number of extension headers that are read in a packet.
pub const MAX_EXTENSIONS: usize = 8;

/// Extension headers: RFC 8200,
pub(crate) const HOP_BY_HOP: u8 = 0;
pub(crate) const ROUTING: u8 = 43;
pub(crate) const FRAGMENT: u8 = 44;
pub(crate) const DESTINATION_OPTIONS: u8 = 60;
/// RFC 4302,
pub(crate) const AUTHENTICATION: u8 = 51;
/// RFC 6275, RFC 7401 and RFC 5533.
pub(crate) const MOBILITY: u8 = 135;
pub(crate) const HIP: u8 = 139;
pub(crate) const SHIM6: u8 = 140;

/// Length in bytes of an extension header with `units` in its length field; `None` for another
/// protocol.
#[inline]
pub(crate) fn extension_length(protocol: u8, units: u8) -> Option<usize> {
    let units = usize::from(units);
    match protocol {
        HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS | MOBILITY | HIP | SHIM6 => {
            Some(8 * (units + 1))
        }
        AUTHENTICATION => Some(4 * (units + 2)),
        FRAGMENT => Some(8),
        _ => None,
    }
}
