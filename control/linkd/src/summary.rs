// SPDX-License-Identifier: Apache-2.0
//! Short forms of requests and answers for the audit log, by the descriptors of the protos, so that
//! each method of each service has a summary.
//!
//! Scalars are complete, texts clipped; a message is given by its name if it has one, a list by its
//! length. Bytes, and fields with the name of a secret, are left out.

use crate::refusal::clip;
use prost::{Message, Name};
use prost_reflect::{DynamicMessage, Kind, MessageDescriptor, ReflectMessage, Value};
use proto::linkemu::v1 as pb;
use proto::{MAIN_LINK, link_id, link_name};
use serde_json::{Map, Value as Json, json};

/// Parts of the names of such fields.
const SECRET: &[&str] = &["token", "secret", "password", "credential", "key"];
/// Longest field mask.
const PATHS: usize = 16;
/// Longest list of messages that are shown.
const PARTS: usize = 16;
/// Length of the prefix of a gRPC message: a flag for compression, and its length.
const PREFIX: usize = 5;
/// Messages that are small enough to be shown whole.
const WHOLE: &[&str] = &["linkemu.v1.ProfileUpdate", "linkemu.v1.PipeUpdate"];
/// One that is about all clients without a field.
const GATE: &str = "linkemu.v1.Gate";
/// A list of paths.
const MASK: &str = "google.protobuf.FieldMask";

/// The first message of a gRPC body; nothing if it is compressed, cut or no such message.
pub(crate) fn message(kind: MessageDescriptor, body: &[u8]) -> Option<DynamicMessage> {
    let (prefix, rest) = body.split_at_checked(PREFIX)?;
    let [0, length @ ..] = prefix else { return None };
    let length = u32::from_be_bytes(length.try_into().ok()?);
    DynamicMessage::decode(kind, rest.get(..usize::try_from(length).ok()?)?).ok()
}

/// The generations of an [`linkemu.v1.UpdateLinksResponse`](pb::UpdateLinksResponse), without the profiles,
/// which may be long.
#[derive(Clone, PartialEq, prost::Message)]
struct Updated {
    #[prost(message, repeated, tag = "1")]
    links: Vec<UpdatedLink>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct UpdatedLink {
    #[prost(message, optional, tag = "3")]
    applied: Option<pb::Applied>,
}

/// Generations that an answer gives: of each of its links, or else the value of `generation`. Nothing if the
/// type has none.
pub(crate) fn generations(kind: MessageDescriptor, body: &[u8]) -> Vec<u64> {
    if kind.full_name() == pb::UpdateLinksResponse::full_name() {
        let links =
            Updated::decode(body.get(PREFIX..).unwrap_or_default()).unwrap_or_default().links;
        return links.iter().map(|it| it.applied.unwrap_or_default().generation).collect();
    }
    // Answers may be long.
    if kind.get_field_by_name("generation").is_none() {
        return Vec::new();
    }
    let message = message(kind, body);
    let generation = message.as_ref().and_then(|it| it.get_field_by_name("generation")?.as_u64());
    generation.into_iter().collect()
}

/// The links that a request changes, each with the short form of its change: those of `updates`, or else
/// its `link` with the whole.
pub(crate) fn by_link(message: &DynamicMessage) -> Vec<(String, Json)> {
    let updates = message.get_field_by_name("updates");
    let updates = updates.as_deref().and_then(Value::as_list).unwrap_or_default();
    if !(1..=owner::MOST_LINKS).contains(&updates.len()) {
        return vec![(link(message).unwrap_or_default(), of(message))];
    }
    let mut about: Vec<(String, Json)> = Vec::with_capacity(updates.len());
    for update in updates.iter().filter_map(Value::as_message) {
        let named = link(update).unwrap_or_else(|| link_name(MAIN_LINK));
        // A link that is named again is refused, and has one line.
        if about.iter().all(|(link, _)| *link != named) {
            about.push((named, of(update)));
        }
    }
    about
}

/// The link that a message names.
fn link(message: &DynamicMessage) -> Option<String> {
    let field = match message.descriptor().full_name() {
        name if name == pb::CreateLinkRequest::full_name() => "link_id",
        name if name == pb::DeleteLinkRequest::full_name() => "name",
        _ => "link",
    };
    let field = message.get_field_by_name(field)?;
    let name = field.as_str().filter(|name| !name.is_empty())?;
    Some(clip(&link_name(link_id(name))))
}

/// The short form of a message.
pub(crate) fn of(message: &DynamicMessage) -> Json {
    let fields = message.fields().filter(|(field, _)| !is_secret(field.name()));
    let known: Map<_, _> = fields
        .filter_map(|(field, value)| Some((field.name().to_owned(), short(&field.kind(), value)?)))
        .collect();
    if known.is_empty() { Json::Null } else { Json::Object(known) }
}

fn is_secret(field: &str) -> bool {
    SECRET.iter().any(|word| field.contains(word))
}

fn short(kind: &Kind, value: &Value) -> Option<Json> {
    Some(match value {
        Value::Bool(value) => json!(value),
        Value::I32(value) => json!(value),
        Value::I64(value) => json!(value),
        Value::U32(value) => json!(value),
        Value::U64(value) => json!(value),
        Value::F32(value) => json!(value),
        Value::F64(value) => json!(value),
        Value::String(text) => json!(clip(text)),
        Value::Bytes(_) => return None,
        Value::EnumNumber(number) => {
            let name = kind.as_enum().and_then(|kind| kind.get_value(*number));
            name.map_or(json!(number), |value| json!(value.name()))
        }
        Value::Message(message) => named(message),
        Value::List(list) => match kind {
            Kind::String => texts(list),
            Kind::Message(kind) if WHOLE.contains(&kind.full_name()) && list.len() <= PARTS => {
                list.iter().filter_map(Value::as_message).map(of).collect()
            }
            _ => json!(format!("{} of them", list.len())),
        },
        Value::Map(map) => json!(format!("{} of them", map.len())),
    })
}

/// A message in a message.
fn named(message: &DynamicMessage) -> Json {
    match message.descriptor().full_name() {
        MASK => {
            let paths = message.get_field_by_name("paths");
            texts(paths.as_deref().and_then(Value::as_list).unwrap_or_default())
        }
        GATE => match of(message) {
            Json::Null => json!("of all clients"),
            gate => gate,
        },
        name if WHOLE.contains(&name) => of(message),
        _ => match message.get_field_by_name("name").as_deref().and_then(Value::as_str) {
            Some(name) => json!({ "name": clip(name) }),
            None => json!("given"),
        },
    }
}

/// The first of some texts.
fn texts(list: &[Value]) -> Json {
    let all = list.iter().filter_map(Value::as_str);
    let mut shown: Vec<_> = all.take(PATHS).map(|text| json!(clip(text))).collect();
    if list.len() > PATHS {
        shown.push(json!(format!("and {} more", list.len() - PATHS)));
    }
    Json::Array(shown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::methods::find;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use prost::encoding::encode_varint;

    const UPDATE: &str = "linkemu.v1.Linkemu/UpdateLinks";

    fn framed(message: &impl Message) -> Vec<u8> {
        let bytes = message.encode_to_vec();
        [&[0][..], &(bytes.len() as u32).to_be_bytes(), &bytes].concat()
    }

    fn request_of(method: &str, body: &[u8]) -> Option<DynamicMessage> {
        message(find(method).unwrap().descriptor.input(), body)
    }

    fn summary(method: &str, request: &impl Message) -> Json {
        of(&request_of(method, &framed(request)).unwrap())
    }

    #[test]
    fn a_request_is_given_in_short() {
        let profile = pb::Profile {
            name: "mine".into(),
            description: "x".repeat(100_000),
            forward_pipe: Some(pb::Pipe::default()),
            ..Default::default()
        };
        let set = pb::ProfileUpdate {
            profile: Some(pb::profile_update::Profile::Inline(profile)),
            seed: Some(7),
        };
        let paths = (0..20).map(|n| format!("p{n}")).collect();
        let patch = pb::PipeUpdate {
            direction: pb::Direction::Forward as i32,
            mask: Some(prost_types::FieldMask { paths }),
            pipe: Some(pb::Pipe { rate_bps: Some(5_000), ..Default::default() }),
            ..Default::default()
        };
        let patch = pb::LinkUpdate { link: "links/b".into(), lossy: true, ..patch.into() };
        let set = pb::LinkUpdate { link: "a".into(), ..set.into() };
        let updates = vec![set, patch];
        let request = pb::UpdateLinksRequest { updates, ..Default::default() };
        let request = request_of(UPDATE, &framed(&request)).unwrap();
        let found = by_link(&request);
        let profile = json!({ "inline": { "name": "mine" }, "seed": 7 });
        let whole = json!({ "link": "a", "profile": profile });
        assert_eq!(found[0], ("links/a".to_owned(), whole));
        let (link, patch) = &found[1];
        assert_eq!((&**link, &patch["lossy"]), ("links/b", &json!(true)));
        let pipe = &patch["pipes"][0];
        assert_eq!(
            (&pipe["direction"], &pipe["pipe"]),
            (&json!("DIRECTION_FORWARD"), &json!("given"))
        );
        assert_eq!((&pipe["mask"][15], &pipe["mask"][16]), (&json!("p15"), &json!("and 4 more")));
        // No list of an attacker makes more lines than links can change.
        for n in [0, owner::MOST_LINKS + 1] {
            let updates = vec![pb::LinkUpdate::default(); n];
            let request = pb::UpdateLinksRequest { updates, ..Default::default() };
            let request = request_of(UPDATE, &framed(&request)).unwrap();
            assert_eq!(by_link(&request).len(), 1, "{n}");
        }
        let create = pb::CreateLinkRequest { link_id: "a".into(), ..Default::default() };
        let delete = pb::DeleteLinkRequest { name: "links/a".into() };
        for (name, request) in [("CreateLink", framed(&create)), ("DeleteLink", framed(&delete))] {
            let request = request_of(&format!("linkemu.v1.Links/{name}"), &request).unwrap();
            assert_eq!(by_link(&request)[0].0, "links/a", "{name}");
        }
        let again = vec![pb::LinkUpdate::default(); 2];
        let request = pb::UpdateLinksRequest { updates: again, ..Default::default() };
        let found = by_link(&request_of(UPDATE, &framed(&request)).unwrap());
        assert_eq!(found, [("links/main".to_owned(), Json::Null)]);
        assert_eq!(
            summary("linkemu.v1.Linkemu/GetStats", &pb::GetStatsRequest::default()),
            Json::Null
        );
    }

    #[test]
    fn secrets_and_bytes_are_left_out() {
        for name in ["token", "lease_token", "client_secret"] {
            assert!(is_secret(name) && !is_secret("holder"), "{name}");
        }
        let request = pb::RenewLeaseRequest { token: "bob".into(), ..Default::default() };
        assert_eq!(summary("linkemu.v1.Leases/RenewLease", &request), Json::Null);
        let request = pb::UploadJobInputRequest { data: vec![1], ..Default::default() };
        assert_eq!(summary("linkemu.v1.Jobs/UploadJobInput", &request), Json::Null);
    }

    #[test]
    fn field_that_raises_the_role_is_set_only_by_another_value_than_its_default() {
        let method = find("linkemu.v1.Leases/AcquireLease").unwrap();
        let (field, _) = &method.fields[0];
        let steal = |steal| {
            let request = pb::AcquireLeaseRequest { steal, ..Default::default() };
            request_of(&method.name, &framed(&request)).unwrap().has_field(field)
        };
        assert!(steal(true) && !steal(false));
    }

    proptest! {
        /// The service decodes the same bytes by other code.
        #[test]
        fn field_that_the_service_reads_as_set_raises_the_role(
            parts in vec((1..4_u64, 0..6_u64, prop_oneof![Just(0), Just(1), Just(300), any::<u64>()]), 0..6)
        ) {
            let mut body = Vec::new();
            for (tag, wire, value) in parts {
                encode_varint(tag << 3 | wire, &mut body);
                encode_varint(value, &mut body);
            }
            let method = find("linkemu.v1.Linkemu/GetStats").unwrap();
            let (field, _) = &method.fields[0];
            let length = u32::try_from(body.len()).unwrap().to_be_bytes();
            let checked = request_of(&method.name, &[&[0][..], &length, &body].concat());
            if let Ok(read) = pb::GetStatsRequest::decode(&body[..]) {
                prop_assert!(checked.is_none_or(|it| it.has_field(field) == read.mark));
            }
        }
    }

    #[test]
    fn generation_of_an_answer_is_that_of_the_applied_change() {
        let generations_of = |method: &str, answer: &[u8]| {
            let length = u32::try_from(answer.len()).unwrap().to_be_bytes();
            let body = [&[0][..], &length, answer].concat();
            generations(find(method).unwrap().descriptor.output(), &body)
        };
        let link = |generation| {
            let applied = Some(pb::Applied { generation, ..Default::default() });
            pb::Link { applied, ..Default::default() }
        };
        let answer = pb::UpdateLinksResponse { links: vec![link(7), link(8)], repeated: false };
        assert_eq!(generations_of(UPDATE, &answer.encode_to_vec()), [7, 8]);
        assert!(generations_of(UPDATE, &[]).is_empty());
        let answer = pb::ReleaseLeaseResponse { generation: Some(9) }.encode_to_vec();
        assert_eq!(generations_of("linkemu.v1.Leases/ReleaseLease", &answer), [9]);
        assert!(generations_of("linkemu.v1.Linkemu/GetVersion", &[]).is_empty());
    }

    #[test]
    fn what_is_cut_compressed_or_garbage_has_no_summary() {
        let read = |body: &[u8]| request_of("linkemu.v1.Linkemu/GetProfile", body);
        let good = framed(&pb::GetProfileRequest { name: "viasat2".into() });
        for length in 0..good.len() {
            assert!(read(&good[..length]).is_none(), "{length}");
        }
        let mut compressed = good.clone();
        compressed[0] = 1;
        assert!(read(&compressed).is_none());
        assert!(read(&[0, 255, 255, 255, 255, 1]).is_none());
        for name in ["", "/", "linkemu.v1.Linkemu", "linkemu.v1.Linkemu/None", "x/y/z"] {
            assert!(find(name).is_none());
        }
    }
}
