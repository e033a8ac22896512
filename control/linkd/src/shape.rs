// SPDX-License-Identifier: Apache-2.0
//! Bounds the number of messages and values in a request before it is decoded: an empty message has
//! two bytes in a request and hundreds once it is decoded.
//!
//! The depth is bounded by the decoders: 100 messages in protobuf, 128 levels in JSON.

use crate::methods::Method;
use prost::encoding::{self, WireType};
use prost_reflect::{Kind, MessageDescriptor};
use tonic::Status;

/// Most messages in a request, lists and objects in JSON. The longest valid request has 16,384 rules.
const MESSAGES: usize = 65_536;
/// Most values in JSON. The longest valid traces have 524,288 in each direction.
const VALUES: usize = 1_200_000;
/// As prost.
const DEPTH: usize = 100;

/// Checks a request in JSON, which may be none.
pub(crate) fn check_json(text: &[u8]) -> Result<(), Status> {
    let (mut messages, mut values, mut is_text) = (0, 0, false);
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => is_text = !is_text,
            // The next one is no end of the text.
            b'\\' if is_text => _ = bytes.next(),
            _ if is_text => {}
            b'{' | b'[' => messages += 1,
            b',' => values += 1,
            _ => {}
        }
    }
    within(messages, MESSAGES, "lists and objects")?;
    within(values, VALUES, "values")
}

/// Checks a request of a method in protobuf, which may be none.
pub(crate) fn check(method: &Method, message: &[u8]) -> Result<(), Status> {
    let mut found = Found::default();
    found.add(&method.descriptor.input(), message, DEPTH);
    within(found.messages, MESSAGES, "messages")?;
    within(found.values, VALUES, "values")
}

fn within(count: usize, most: usize, what: &str) -> Result<(), Status> {
    if count <= most {
        return Ok(());
    }
    Err(Status::invalid_argument(format!(
        "the request has {count} {what}, and one may have {most}: split it"
    )))
}

/// Counts of a request.
#[derive(Default)]
struct Found {
    messages: usize,
    /// Fields, and elements of packed lists.
    values: usize,
}

impl Found {
    /// Counts the fields of a message. Stops at a malformed field, which the decoder reports.
    fn add(&mut self, kind: &MessageDescriptor, mut rest: &[u8], depth: usize) -> Option<()> {
        while !rest.is_empty() {
            let (tag, wire) = encoding::decode_key(&mut rest).ok()?;
            let length = match wire {
                WireType::Varint => {
                    encoding::decode_varint(&mut rest).ok()?;
                    0
                }
                WireType::SixtyFourBit => 8,
                WireType::ThirtyTwoBit => 4,
                WireType::LengthDelimited => encoding::decode_varint(&mut rest).ok()?,
                // Groups are not used. Their fields are counted as fields of the message.
                WireType::StartGroup | WireType::EndGroup => 0,
            };
            let (content, after) = rest.split_at_checked(usize::try_from(length).ok()?)?;
            rest = after;
            self.values += 1;
            if wire == WireType::LengthDelimited
                && let Some(field) = kind.get_field(tag)
            {
                match field.kind() {
                    Kind::Message(kind) => {
                        self.messages += 1;
                        self.add(&kind, content, depth.checked_sub(1)?)?;
                    }
                    kind if field.is_list() => self.values += packed(&kind, content),
                    _ => {}
                }
            }
        }
        Some(())
    }
}

/// Elements of a packed list, besides the first.
fn packed(kind: &Kind, content: &[u8]) -> usize {
    let elements = match kind {
        Kind::String | Kind::Bytes | Kind::Message(_) => 1,
        Kind::Double | Kind::Fixed64 | Kind::Sfixed64 => content.len() / 8,
        Kind::Float | Kind::Fixed32 | Kind::Sfixed32 => content.len() / 4,
        // The last byte of a varint has no continuation bit.
        _ => content.iter().filter(|byte| **byte < 0x80).count(),
    };
    elements.saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::methods::find;
    use prost::Message;
    use proto::linkemu::v1 as pb;

    fn request(estimates: usize) -> pb::ValidateProfileRequest {
        let provenance = pb::Provenance {
            estimates: vec![pb::Estimate::default(); estimates],
            remarks: vec![String::new(); 100_000],
            ..Default::default()
        };
        let profile = pb::Profile { provenance: Some(provenance), ..Default::default() };
        pb::ValidateProfileRequest { profile: Some(profile), ..Default::default() }
    }

    #[test]
    fn messages_are_counted_at_all_depths() {
        let method = find("linkemu.v1.Linkemu/ValidateProfile").unwrap();
        // The profile, its provenance and its estimates; texts are none.
        check(method, &request(MESSAGES - 2).encode_to_vec()).unwrap();
        let status = check(method, &request(MESSAGES - 1).encode_to_vec()).unwrap_err();
        assert!(status.message().contains("65537 messages"), "{status:?}");
        check(method, b"\x0a\x05\x0a").unwrap();
    }

    #[test]
    fn values_are_counted_in_packed_lists_and_in_fields_that_nobody_knows() {
        let method = find("linkemu.v1.Linkemu/ValidateProfile").unwrap();
        let delays = |count| {
            let trace = pb::PathTrace { delays_ns: vec![7; count], ..Default::default() };
            let pipe = pb::Pipe { path_trace: Some(trace), ..Default::default() };
            let profile = pb::Profile { forward_pipe: Some(pipe), ..Default::default() };
            let request =
                pb::ValidateProfileRequest { profile: Some(profile), ..Default::default() };
            check(method, &request.encode_to_vec())
        };
        delays(VALUES - 3).unwrap();
        let status = delays(VALUES - 2).unwrap_err();
        assert!(status.message().contains("1200001 values"), "{status:?}");
        // Field 31 as a varint; and the same after the begin of a group.
        let unknown = [0xf8, 0x01, 1].repeat(VALUES + 1);
        check(method, &unknown[3..]).unwrap();
        check(method, &unknown).unwrap_err();
        check(method, &[&[0xfb, 0x01], &unknown[..]].concat()).unwrap_err();
    }

    #[test]
    fn lists_and_objects_of_json_are_counted_outside_of_texts() {
        let list = |item: &str, count: usize| format!("[{}0]", format!("{item},").repeat(count));
        check_json(list("{}", MESSAGES - 1).as_bytes()).unwrap();
        check_json(list("{}", MESSAGES).as_bytes()).unwrap_err();
        check_json(list(r#""{\"[""#, MESSAGES).as_bytes()).unwrap();
        check_json(list("1", VALUES).as_bytes()).unwrap();
        check_json(list("1", VALUES + 1).as_bytes()).unwrap_err();
    }

    #[test]
    fn largest_rules_are_within_the_limit() {
        let matches = vec![pb::Match::default(); 16_384];
        let client = pb::Client { matches, ..Default::default() };
        let clients = pb::Clients { clients: vec![client], ..Default::default() };
        let update = pb::LinkUpdate::from(clients);
        let request = pb::UpdateLinksRequest::from(update);
        check(find("linkemu.v1.Linkemu/UpdateLinks").unwrap(), &request.encode_to_vec()).unwrap();
    }
}
