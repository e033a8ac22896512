// SPDX-License-Identifier: Apache-2.0
//! What a request or an answer says, in short, for the audit log: by the protos'
//! descriptors, so that each method of each service has a summary.
//!
//! Scalars are given as they are, texts clipped; of a message its name if it has one;
//! of a list its length. Bytes, and fields that are named after a secret, are left out.

use crate::refusal::clip;
use prost_reflect::{
    DescriptorPool, DynamicMessage, FieldDescriptor, MessageDescriptor, MethodDescriptor,
    ReflectMessage, Value as Found,
};
use serde_json::{Map, Value, json};

/// What the names of such fields have in them.
const SECRET: &[&str] = &["token", "secret", "password", "credential", "key"];
/// Of a field mask.
const PATHS: usize = 16;
/// What stands before a gRPC message: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// All methods of the protos.
#[derive(Clone, Debug)]
pub(crate) struct Methods(DescriptorPool);

impl Methods {
    /// As the protos say; none if they cannot be read, which a test rules out.
    pub fn new() -> Self {
        Self(DescriptorPool::decode(proto::FILE_DESCRIPTOR_SET).unwrap_or_default())
    }

    /// A method by its full name, such as "linkemu.v1.Linkemu/GetLink".
    pub fn find(&self, method: &str) -> Option<MethodDescriptor> {
        let (service, name) = method.split_once('/')?;
        let service = self.0.get_service_by_name(service)?;
        service.methods().find(|method| method.name() == name)
    }
}

/// The first message of a gRPC body; nothing if it is compressed, cut or no such message.
pub(crate) fn message(descriptor: MessageDescriptor, body: &[u8]) -> Option<DynamicMessage> {
    let (prefix, rest) = body.split_at_checked(PREFIX)?;
    let [0, length @ ..] = prefix else { return None };
    let length = u32::from_be_bytes(length.try_into().ok()?);
    DynamicMessage::decode(descriptor, rest.get(..usize::try_from(length).ok()?)?).ok()
}

/// Whether a field has another value than its default.
pub(crate) fn is_set(message: &DynamicMessage, field: &str) -> bool {
    message.has_field_by_name(field)
}

/// What a message says, in short.
pub(crate) fn of(message: &DynamicMessage) -> Value {
    let fields = message.fields().filter(|(field, _)| !is_secret(field));
    let known: Map<_, _> = fields
        .filter_map(|(field, value)| Some((field.name().to_owned(), short(&field, value)?)))
        .collect();
    if known.is_empty() { Value::Null } else { Value::Object(known) }
}

/// The generation that a change had.
pub(crate) fn generation(answer: &DynamicMessage) -> Option<u64> {
    let own = |message: &DynamicMessage| match *message.get_field_by_name("generation")? {
        Found::U64(generation) => Some(generation),
        _ => None,
    };
    if let Some(applied) = answer.get_field_by_name("applied")
        && let Found::Message(applied) = &*applied
    {
        return own(applied);
    }
    own(answer)
}

fn is_secret(field: &FieldDescriptor) -> bool {
    SECRET.iter().any(|word| field.name().contains(word))
}

fn short(field: &FieldDescriptor, value: &Found) -> Option<Value> {
    Some(match value {
        Found::Bool(value) => json!(value),
        Found::I32(value) => json!(value),
        Found::I64(value) => json!(value),
        Found::U32(value) => json!(value),
        Found::U64(value) => json!(value),
        Found::F32(value) => json!(value),
        Found::F64(value) => json!(value),
        Found::String(text) => json!(clip(text)),
        Found::Bytes(_) => return None,
        Found::EnumNumber(number) => {
            let kind = field.kind();
            let name = kind.as_enum().and_then(|kind| kind.get_value(*number));
            name.map_or(json!(number), |value| json!(value.name()))
        }
        Found::Message(message) if message.descriptor().full_name() == MASK => {
            let paths = message.get_field_by_name("paths")?;
            texts(paths.as_list()?)
        }
        Found::Message(message) if message.descriptor().full_name() == GATE => match of(message) {
            Value::Null => json!("of all clients"),
            gate => gate,
        },
        Found::Message(message) => match message.get_field_by_name("name").as_deref() {
            Some(Found::String(name)) => json!({ "name": clip(name) }),
            _ => json!("given"),
        },
        Found::List(list) if list.iter().all(|item| item.as_str().is_some()) => texts(list),
        Found::List(list) => json!(format!("{} of them", list.len())),
        Found::Map(map) => json!(format!("{} of them", map.len())),
    })
}

/// The first of some texts.
fn texts(list: &[Found]) -> Value {
    let text = |text: &Found| text.as_str().map(|text| json!(clip(text)));
    let mut shown: Vec<_> = list.iter().take(PATHS).filter_map(text).collect();
    if list.len() > PATHS {
        shown.push(json!(format!("and {} more", list.len() - PATHS)));
    }
    Value::Array(shown)
}

/// It is small, and says itself what it is.
const GATE: &str = "linkemu.v1.Gate";
const MASK: &str = "google.protobuf.FieldMask";

#[cfg(test)]
mod tests {
    use super::*;
    use prost_reflect::prost::Message;
    use proto::linkemu::v1 as pb;

    fn framed(message: &impl Message) -> Vec<u8> {
        let bytes = message.encode_to_vec();
        [&[0][..], &(bytes.len() as u32).to_be_bytes(), &bytes].concat()
    }

    fn summary(method: &str, request: &impl Message) -> Value {
        let method = Methods::new().find(method).unwrap();
        of(&message(method.input(), &framed(request)).unwrap())
    }

    #[test]
    fn a_request_is_given_in_short() {
        let profile = pb::Profile {
            name: "mine".into(),
            description: "x".repeat(100_000),
            forward_pipe: Some(pb::Pipe::default()),
            ..Default::default()
        };
        let request = pb::SetProfileRequest {
            profile: Some(pb::set_profile_request::Profile::Inline(profile)),
            seed: Some(7),
            ..Default::default()
        };
        assert_eq!(
            summary("linkemu.v1.Linkemu/SetProfile", &request),
            json!({ "inline": { "name": "mine" }, "seed": 7 })
        );
        let paths = (0..20).map(|n| format!("p{n}")).collect();
        let request = pb::PatchLinkRequest {
            direction: pb::Direction::Forward as i32,
            mask: Some(prost_types::FieldMask { paths }),
            pipe: Some(pb::Pipe { rate_bps: Some(5_000), ..Default::default() }),
            ..Default::default()
        };
        let found = summary("linkemu.v1.Linkemu/PatchLink", &request);
        assert_eq!(found["direction"], "DIRECTION_FORWARD");
        assert_eq!(found["pipe"], "given");
        assert_eq!(found["mask"][15], "p15");
        assert_eq!(found["mask"][16], "and 4 more");
        assert_eq!(
            summary("linkemu.v1.Linkemu/GetStats", &pb::GetStatsRequest::default()),
            Value::Null
        );
    }

    #[test]
    fn secrets_and_bytes_are_left_out() {
        use prost_reflect::prost_types::field_descriptor_proto::Type;
        use prost_reflect::prost_types::{
            DescriptorProto, FieldDescriptorProto, FileDescriptorProto,
        };
        let names = ["holder", "token", "lease_token", "client_secret", "capture"];
        let field = |(n, name): (usize, &&str)| FieldDescriptorProto {
            name: Some((*name).to_owned()),
            number: Some(n as i32 + 1),
            r#type: Some(if *name == "capture" { Type::Bytes } else { Type::String } as i32),
            ..Default::default()
        };
        let message = DescriptorProto {
            name: Some("M".into()),
            field: names.iter().enumerate().map(field).collect(),
            ..Default::default()
        };
        let file = FileDescriptorProto {
            name: Some("m.proto".into()),
            syntax: Some("proto3".into()),
            message_type: vec![message],
            ..Default::default()
        };
        let mut pool = DescriptorPool::new();
        pool.add_file_descriptor_proto(file).unwrap();
        let mut message = DynamicMessage::new(pool.get_message_by_name("M").unwrap());
        for name in &names[..4] {
            message.set_field_by_name(name, Found::String("bob".into()));
        }
        message.set_field_by_name("capture", Found::Bytes(vec![1, 2].into()));
        assert_eq!(of(&message), json!({ "holder": "bob" }));
    }

    #[test]
    fn what_is_cut_compressed_or_garbage_has_no_summary() {
        let method = Methods::new().find("linkemu.v1.Linkemu/SetProfile").unwrap();
        let request = pb::SetProfileRequest { seed: Some(1 << 60), ..Default::default() };
        let good = framed(&request);
        for length in 0..good.len() {
            assert!(message(method.input(), &good[..length]).is_none(), "{length}");
        }
        let mut compressed = good.clone();
        compressed[0] = 1;
        assert!(message(method.input(), &compressed).is_none());
        assert!(message(method.input(), &[0, 255, 255, 255, 255, 1]).is_none());
        for name in ["", "/", "linkemu.v1.Linkemu", "linkemu.v1.Linkemu/None", "x/y/z"] {
            assert!(Methods::new().find(name).is_none());
        }
    }
}
