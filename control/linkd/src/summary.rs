// SPDX-License-Identifier: Apache-2.0
//! Short forms of requests and answers for the audit log, by the methods and fields that `proto`
//! generates, so that each method of each service has a summary.
//!
//! Scalars are complete, texts clipped; a message is given by its name if it has one, a list by its
//! length. Bytes, and fields with the name of a secret, are left out.

use crate::refusal::clip;
use proto::method::{Field, Fields};
use serde_json::{Map, Value, json};

/// Parts of the names of such fields.
const SECRET: &[&str] = &["token", "secret", "password", "credential", "key"];
/// Longest field mask.
const PATHS: usize = 16;
/// Length of the prefix of a gRPC message: a flag for compression, and its length.
const PREFIX: usize = 5;
/// A message without a name that is small enough to be shown whole.
const GATE: &str = "linkemu.v1.Gate";

/// Decodes the bytes of a message.
type Decode = fn(&[u8]) -> Result<Box<dyn Fields>, prost::DecodeError>;

/// The first message of a gRPC body; nothing if it is compressed, cut or no such message.
pub(crate) fn message(decode: Decode, body: &[u8]) -> Option<Box<dyn Fields>> {
    let (prefix, rest) = body.split_at_checked(PREFIX)?;
    let [0, length @ ..] = prefix else { return None };
    let length = u32::from_be_bytes(length.try_into().ok()?);
    decode(rest.get(..usize::try_from(length).ok()?)?).ok()
}

/// Whether a field has another value than its default.
pub(crate) fn is_set(message: &dyn Fields, field: &str) -> bool {
    message.set().iter().any(|(name, _)| *name == field)
}

/// The short form of a message.
pub(crate) fn of(message: &dyn Fields) -> Value {
    let fields = message.set().into_iter().filter(|(name, _)| !is_secret(name));
    let known: Map<_, _> =
        fields.filter_map(|(name, field)| Some((name.to_owned(), short(field)?))).collect();
    if known.is_empty() { Value::Null } else { Value::Object(known) }
}

fn is_secret(field: &str) -> bool {
    SECRET.iter().any(|word| field.contains(word))
}

fn short(field: Field<'_>) -> Option<Value> {
    Some(match field {
        Field::Bool(value) => json!(value),
        Field::Signed(value) => json!(value),
        Field::Unsigned(value) => json!(value),
        Field::Float(value) => json!(value),
        Field::Text(text) => json!(clip(text)),
        Field::Bytes => return None,
        Field::Enum(number, name) => name.map_or(json!(number), |name| json!(name)),
        Field::Mask(paths) => texts(paths),
        Field::Message(message) if message.full_name() == GATE => match of(message) {
            Value::Null => json!("of all clients"),
            gate => gate,
        },
        Field::Message(message) => match message.name() {
            Some(name) => json!({ "name": clip(name) }),
            None => json!("given"),
        },
        Field::WellKnown => json!("given"),
        Field::Texts(list) => texts(list),
        Field::List(length) => json!(format!("{length} of them")),
    })
}

/// The first of some texts.
fn texts(list: &[String]) -> Value {
    let mut shown: Vec<_> = list.iter().take(PATHS).map(|text| json!(clip(text))).collect();
    if list.len() > PATHS {
        shown.push(json!(format!("and {} more", list.len() - PATHS)));
    }
    Value::Array(shown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message;
    use proto::linkemu::v1 as pb;
    use proto::method::find;

    fn framed(message: &impl Message) -> Vec<u8> {
        let bytes = message.encode_to_vec();
        [&[0][..], &(bytes.len() as u32).to_be_bytes(), &bytes].concat()
    }

    fn summary(method: &str, request: &impl Message) -> Value {
        let method = find(method).unwrap();
        of(&*message(method.request, &framed(request)).unwrap())
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
        struct Stated;
        impl Fields for Stated {
            fn full_name(&self) -> &'static str {
                "M"
            }
            fn set(&self) -> Vec<(&'static str, Field<'_>)> {
                let names = ["holder", "token", "lease_token", "client_secret"];
                let mut set: Vec<_> = names.map(|name| (name, Field::Text("bob"))).into();
                set.push(("capture", Field::Bytes));
                set
            }
            fn name(&self) -> Option<&str> {
                None
            }
            fn generation(&self) -> Option<u64> {
                None
            }
        }
        assert_eq!(of(&Stated), json!({ "holder": "bob" }));
        let request = pb::RenewLeaseRequest { token: "bob".into() };
        assert_eq!(summary("linkemu.v1.Leases/RenewLease", &request), Value::Null);
    }

    #[test]
    fn field_that_raises_the_role_is_set_only_by_another_value_than_its_default() {
        let steal = |steal| {
            let request = pb::AcquireLeaseRequest { steal, ..Default::default() };
            let method = find("linkemu.v1.Leases/AcquireLease").unwrap();
            is_set(&*message(method.request, &framed(&request)).unwrap(), "steal")
        };
        assert!(steal(true) && !steal(false));
    }

    #[test]
    fn generation_of_an_answer_is_that_of_the_applied_change() {
        let generation = |method: &str, answer: &[u8]| {
            (find(method).unwrap().answer)(answer).unwrap().generation()
        };
        let applied = Some(pb::Applied { generation: 7, ..Default::default() });
        let answer = pb::ChangeResponse { applied, ..Default::default() }.encode_to_vec();
        assert_eq!(generation("linkemu.v1.Linkemu/SetProfile", &answer), Some(7));
        assert_eq!(generation("linkemu.v1.Linkemu/SetProfile", &[]), Some(0));
        let answer = pb::ReleaseLeaseResponse { generation: Some(9) }.encode_to_vec();
        assert_eq!(generation("linkemu.v1.Leases/ReleaseLease", &answer), Some(9));
        assert_eq!(generation("linkemu.v1.Linkemu/GetVersion", &[]), None);
    }

    #[test]
    fn what_is_cut_compressed_or_garbage_has_no_summary() {
        let method = find("linkemu.v1.Linkemu/SetProfile").unwrap();
        let request = pb::SetProfileRequest { seed: Some(1 << 60), ..Default::default() };
        let good = framed(&request);
        for length in 0..good.len() {
            assert!(message(method.request, &good[..length]).is_none(), "{length}");
        }
        let mut compressed = good.clone();
        compressed[0] = 1;
        assert!(message(method.request, &compressed).is_none());
        assert!(message(method.request, &[0, 255, 255, 255, 255, 1]).is_none());
        for name in ["", "/", "linkemu.v1.Linkemu", "linkemu.v1.Linkemu/None", "x/y/z"] {
            assert!(find(name).is_none());
        }
    }
}
