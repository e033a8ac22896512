// SPDX-License-Identifier: Apache-2.0
//! The probe on the wire: a header of 20 bytes, then padding that is ignored.
//!
//! | bytes  | field                                                          |
//! |--------|----------------------------------------------------------------|
//! | 0, 1   | magic, "LP"                                                    |
//! | 2      | version in the upper four bits, kind in the lower              |
//! | 3      | flags: zero                                                    |
//! | 4..8   | session: random, different for each run of the sender          |
//! | 8..12  | sequence: the lower 32 bits of the probe's number              |
//! | 12..20 | zero in a request; in a reply, when the reflector received the |
//! |        | request, in ns since 1970 of its clock                         |
//!
//! All are big-endian. A reply is the request with its kind and its time changed: it
//! is as long as the request, so a reflector amplifies nothing, and it is not a
//! request, so two reflectors cannot play ping-pong.

/// The header; no probe is shorter.
pub const HEADER: usize = 20;
/// No probe is longer: what IPv4 carries in a packet of 1500 bytes.
pub const LARGEST: usize = 1472;

const MAGIC: [u8; 2] = *b"LP";
const VERSION: u8 = 1;
const REQUEST: u8 = 1;
const REPLY: u8 = 2;

/// Which way a probe goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Request,
    Reply {
        /// When the reflector received the request, in ns since 1970 of its clock.
        received_ns: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub kind: Kind,
    pub session: u32,
    /// The lower 32 bits of the probe's number.
    pub sequence: u32,
}

/// Why a datagram is no probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Too short or too long.
    #[error("{0} bytes, where a probe has {HEADER} to {LARGEST}")]
    Length(usize),
    #[error("not a probe of version {VERSION}")]
    Foreign,
    /// A reply where a request is due.
    #[error("not a request")]
    NotARequest,
}

impl Header {
    /// As bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER] {
        let (kind, time) = match self.kind {
            Kind::Request => (REQUEST, 0),
            Kind::Reply { received_ns } => (REPLY, received_ns),
        };
        let mut bytes = [0; HEADER];
        bytes[..2].copy_from_slice(&MAGIC);
        bytes[2] = VERSION << 4 | kind;
        bytes[4..8].copy_from_slice(&self.session.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.sequence.to_be_bytes());
        bytes[12..].copy_from_slice(&time.to_be_bytes());
        bytes
    }

    /// From a datagram.
    ///
    /// # Errors
    /// If it is no probe.
    pub fn decode(datagram: &[u8]) -> Result<Self, Malformed> {
        let length = datagram.len();
        let header = datagram.first_chunk::<HEADER>().ok_or(Malformed::Length(length))?;
        if length > LARGEST {
            return Err(Malformed::Length(length));
        }
        let [m0, m1, kind, flags, s0, s1, s2, s3, n0, n1, n2, n3, time @ ..] = *header;
        if [m0, m1] != MAGIC || kind >> 4 != VERSION || flags != 0 {
            return Err(Malformed::Foreign);
        }
        let time = u64::from_be_bytes(time);
        let kind = match kind & 0xf {
            REQUEST if time == 0 => Kind::Request,
            REPLY => Kind::Reply { received_ns: time },
            _ => return Err(Malformed::Foreign),
        };
        let session = u32::from_be_bytes([s0, s1, s2, s3]);
        Ok(Self { kind, session, sequence: u32::from_be_bytes([n0, n1, n2, n3]) })
    }
}

/// Makes a request its reply, in place.
///
/// # Errors
/// If the datagram is no request; it is untouched then.
pub fn reflect(datagram: &mut [u8], received_ns: u64) -> Result<(), Malformed> {
    let request = Header::decode(datagram)?;
    if request.kind != Kind::Request {
        return Err(Malformed::NotARequest);
    }
    let reply = Header { kind: Kind::Reply { received_ns }, ..request };
    let header = datagram.first_chunk_mut::<HEADER>().ok_or(Malformed::Length(0))?;
    *header = reply.encode();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header() -> impl Strategy<Value = Header> {
        let kind = prop_oneof![
            Just(Kind::Request),
            any::<u64>().prop_map(|received_ns| Kind::Reply { received_ns }),
        ];
        (kind, any::<u32>(), any::<u32>()).prop_map(|(kind, session, sequence)| Header {
            kind,
            session,
            sequence,
        })
    }

    /// Bytes that are almost a probe.
    fn mangled() -> impl Strategy<Value = Vec<u8>> {
        let change = (0_usize..HEADER, any::<u8>());
        (header(), proptest::collection::vec(change, 0..3), 0_usize..64).prop_map(
            |(header, changes, length)| {
                let mut bytes = header.encode().to_vec();
                changes.iter().for_each(|(at, byte)| bytes[*at] = *byte);
                bytes.resize(length, 0xa5);
                bytes
            },
        )
    }

    proptest! {
        #[test]
        fn encoded_packet_is_decoded(header in header(), padding in 0..=LARGEST - HEADER) {
            let mut bytes = header.encode().to_vec();
            bytes.resize(HEADER + padding, 0x5a);
            prop_assert_eq!(Header::decode(&bytes), Ok(header));
        }

        #[test]
        fn arbitrary_bytes_are_decoded_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
            if let Ok(header) = Header::decode(&bytes) {
                prop_assert_eq!(&header.encode()[..], &bytes[..HEADER]);
            }
        }

        #[test]
        fn decoded_packet_has_one_encoding(bytes in mangled()) {
            if let Ok(header) = Header::decode(&bytes) {
                prop_assert_eq!(&header.encode()[..], &bytes[..HEADER]);
            }
        }

        #[test]
        fn only_a_request_is_reflected_and_never_longer(bytes in mangled(), now in any::<u64>()) {
            let mut reply = bytes.clone();
            let request = Header::decode(&bytes).ok().filter(|h| h.kind == Kind::Request);
            let result = reflect(&mut reply, now);
            prop_assert_eq!(result.is_ok(), request.is_some());
            prop_assert_eq!(reply.len(), bytes.len());
            match request {
                Some(request) => {
                    let kind = Kind::Reply { received_ns: now };
                    prop_assert_eq!(Header::decode(&reply), Ok(Header { kind, ..request }));
                    prop_assert_eq!(&reply[HEADER..], &bytes[HEADER..]);
                    prop_assert_eq!(reflect(&mut reply, now), Err(Malformed::NotARequest));
                }
                None => prop_assert_eq!(reply, bytes),
            }
        }
    }

    #[test]
    fn a_probe_has_20_to_1472_bytes() {
        let bytes = Header { kind: Kind::Request, session: 1, sequence: 2 }.encode();
        assert_eq!(Header::decode(&bytes[..19]), Err(Malformed::Length(19)));
        let mut long = bytes.to_vec();
        long.resize(LARGEST + 1, 0);
        assert_eq!(Header::decode(&long), Err(Malformed::Length(1473)));
        assert!(Header::decode(&long[..LARGEST]).is_ok());
    }

    #[test]
    fn layout_matches_the_header() {
        let kind = Kind::Reply { received_ns: 0x0102_0304_0506_0708 };
        let bytes = Header { kind, session: 0x1112_1314, sequence: 0x2122_2324 }.encode();
        let expected =
            *b"LP\x12\x00\x11\x12\x13\x14\x21\x22\x23\x24\x01\x02\x03\x04\x05\x06\x07\x08";
        assert_eq!(bytes, expected);
    }
}
