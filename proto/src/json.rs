// SPDX-License-Identifier: Apache-2.0
//! Messages as JSON: the canonical form of protobuf, with the names of the proto (`time_ns`), 64-bit
//! integers as numbers, and values that are the default. Absent messages and `optional` fields are left
//! out. Any parser of protobuf JSON reads it, that of linkd's HTTP API too.

use prost::{Message, Name};
use prost_reflect::prost_types::FileDescriptorProto;
use prost_reflect::{
    DescriptorPool, DeserializeOptions, DynamicMessage, MessageDescriptor, SerializeOptions,
};
use serde::ser::{Error as _, Serialize, Serializer};
use std::sync::LazyLock;

/// The descriptors of all protos.
pub static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| {
    // They are valid: the build wrote them, and a test reads them.
    DescriptorPool::decode(crate::FILE_DESCRIPTOR_SET).unwrap_or_default()
});

/// The comment at a place of a proto.
#[must_use]
pub fn comment(file: &FileDescriptorProto, path: &[i32]) -> String {
    let places = file.source_code_info.iter().flat_map(|info| &info.location);
    let place = places.into_iter().find(|place| place.path == path);
    let text = place.and_then(|place| place.leading_comments.as_deref()).unwrap_or_default();
    let lines: Vec<_> = text.lines().map(str::trim).collect();
    lines.join("\n").trim().to_owned()
}

const FORM: SerializeOptions = SerializeOptions::new()
    .stringify_64_bit_integers(false)
    .use_proto_field_name(true)
    .skip_default_fields(false);

/// A message that serde serialises.
#[derive(Clone, Debug)]
pub struct Json(Result<DynamicMessage, String>);

/// The JSON of a message.
#[must_use]
pub fn json<M: Message + Name>(message: &M) -> Json {
    Json(descriptor::<M>().and_then(|kind| {
        let mut reflected = DynamicMessage::new(kind);
        reflected.transcode_from(message).map_err(|error| error.to_string())?;
        Ok(reflected)
    }))
}

/// A message from its JSON.
///
/// # Errors
/// If the text is no JSON, or has a value of another type. Fields of a newer version are left out.
pub fn from_json<M: Message + Name + Default>(text: &[u8]) -> Result<M, serde_json::Error> {
    let kind = descriptor::<M>().map_err(serde::de::Error::custom)?;
    let mut reader = serde_json::Deserializer::from_slice(text);
    let options = DeserializeOptions::new().deny_unknown_fields(false);
    let message = DynamicMessage::deserialize_with_options(kind, &mut reader, &options)?;
    reader.end()?;
    message.transcode_to().map_err(serde::de::Error::custom)
}

fn descriptor<M: Name>() -> Result<MessageDescriptor, String> {
    let name = M::full_name();
    POOL.get_message_by_name(&name).ok_or_else(|| format!("the protos have no message {name}"))
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let message = self.0.as_ref().map_err(S::Error::custom)?;
        message.serialize_with_options(serializer, &FORM)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linkemu::v1 as pb;

    #[test]
    fn every_field_is_read_again_and_defaults_are_shown() {
        let stats = pb::Stats {
            time_ns: u64::MAX,
            utc: Some(prost_types::Timestamp { seconds: 1_790_000_000, nanos: 5 }),
            ports: vec![pb::PortStats { link: pb::LinkState::Up.into(), ..Default::default() }],
            ..Default::default()
        };
        let text = serde_json::to_string(&json(&stats)).unwrap();
        assert_eq!(from_json::<pb::Stats>(text.as_bytes()).unwrap(), stats);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["time_ns"], u64::MAX);
        assert_eq!(value["utc"], "2026-09-21T14:13:20.000000005Z");
        assert_eq!(value["ports"][0]["link"], "LINK_STATE_UP");
        assert_eq!(value["generation"], 0);
        assert_eq!(value["clients"], serde_json::json!([]));
        assert_eq!(value.get("span"), None);
    }

    #[test]
    fn other_text_is_no_message() {
        for text in ["", "[]", "{\"time_ns\": \"x\"}", "{} {}"] {
            assert!(from_json::<pb::Stats>(text.as_bytes()).is_err(), "{text}");
        }
        // Of a newer version.
        let newer = from_json::<pb::Stats>(br#"{"generation": 3, "unknown": {"a": [1]}}"#);
        assert_eq!(newer.unwrap().generation, 3);
    }
}
