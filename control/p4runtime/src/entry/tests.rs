// SPDX-License-Identifier: Apache-2.0
//! Entries of a small program written for these tests.

use super::*;
use crate::proto::p4::config::v1 as config;
use config::match_field::MatchType;
use proptest::prelude::*;
use prost::Message;

fn preamble(id: u32, name: &str) -> Option<config::Preamble> {
    Some(config::Preamble { id, name: name.into(), alias: String::new() })
}

fn field(id: u32, name: &str, bits: i32, kind: MatchType) -> config::MatchField {
    config::MatchField { id, name: name.into(), bitwidth: bits, match_type: kind.into() }
}

fn program() -> config::P4Info {
    let table = |id, name, match_fields| config::Table {
        preamble: preamble(id, name),
        match_fields,
        action_refs: vec![config::ActionRef { id: 90 }],
        size: 8,
    };
    let param =
        |id, name: &str, bitwidth| config::action::Param { id, name: name.into(), bitwidth };
    config::P4Info {
        tables: vec![
            table(1, "exact", vec![field(1, "port", 9, MatchType::Exact)]),
            table(2, "lpm", vec![field(1, "address", 32, MatchType::Lpm)]),
            table(
                3,
                "ternary",
                vec![
                    field(1, "client", 16, MatchType::Ternary),
                    field(2, "direction", 1, MatchType::Exact),
                ],
            ),
        ],
        actions: vec![
            config::Action {
                preamble: preamble(90, "act"),
                params: vec![param(1, "a", 9), param(2, "b", 128)],
            },
            config::Action { preamble: preamble(91, "other"), params: Vec::new() },
        ],
        ..Default::default()
    }
}

fn info() -> P4Info {
    P4Info::decode(&program().encode_to_vec()).unwrap()
}

fn acting(entry: Entry) -> Entry {
    entry.does("act").with("a", 5u8).with("b", u128::MAX)
}

/// Error message for an invalid entry.
fn refusal(entry: Entry) -> String {
    entry.encode(&info()).unwrap_err().to_string()
}

#[test]
fn entry_encodes_shortest_bytes_without_match_all_fields() {
    let exact = acting(Entry::new("exact").exact("port", 0u8)).encode(&info()).unwrap();
    let Some(field_match::FieldMatchType::Exact(value)) = &exact.r#match[0].field_match_type else {
        panic!("{exact:?}");
    };
    assert_eq!(value.value, [0]);
    let lpm = acting(Entry::new("lpm").lpm("address", 0u8, 0)).encode(&info()).unwrap();
    assert!(lpm.r#match.is_empty());
    let any = Entry::new("ternary").ternary("client", 0u8, 0u8).exact("direction", 1u8);
    let any = acting(any.priority(1)).encode(&info()).unwrap();
    assert_eq!(any.r#match.len(), 1);
    assert_eq!(any.r#match[0].field_id, 2);
}

#[test]
fn invalid_entry_is_refused_with_table_field_and_value() {
    let exact = |value: u128| Entry::new("exact").exact("port", value);
    for (entry, words) in [
        (acting(exact(512)), "exact.port = 0x200: it has more than 9 bits"),
        (acting(Entry::new("exact")), "exact.port = ?: a field of an exact match must be given"),
        (acting(Entry::new("none")), "no table \"none\""),
        (acting(exact(1).exact("prot", 1u8)), "no key field \"exact.prot\""),
        (acting(Entry::new("exact").lpm("port", 1u8, 9)), "the field's match is exact"),
        (acting(Entry::new("lpm").lpm("address", 1u8, 8)), "zeros behind it"),
        (acting(Entry::new("lpm").lpm("address", 0u8, 33)), "a prefix of 32 bits"),
        (acting(exact(1).priority(3)), "priority 3"),
        (exact(1).does("act").with("a", 512u16).with("b", 1u8), "act(a = 512): it has more than 9"),
        (exact(1).does("act").with("a", 1u8), "act(b = ?): it must be given"),
        (acting(exact(1)).with("c", 1u8), "act(c = 1): there is no such parameter"),
        (exact(1).does("other"), "its action cannot be other"),
        (exact(1).does("missing"), "no action \"missing\""),
    ] {
        let said = refusal(entry);
        assert!(said.contains(words), "{said}");
    }
    let outside = Entry::new("ternary").ternary("client", 3u8, 1u8).exact("direction", 0u8);
    assert!(refusal(acting(outside.priority(1))).contains("ones outside of its mask"));
    let no_priority = Entry::new("ternary").exact("direction", 0u8);
    assert!(refusal(acting(no_priority)).contains("priority 0"));
}

#[test]
fn damaged_program_is_refused_by_name() {
    assert!(P4Info::decode(&[0xff, 0xff]).is_err());
    let mut nameless = program();
    nameless.tables[0].preamble = None;
    assert!(P4Info::decode(&nameless.encode_to_vec()).is_err());
    for (bits, kind) in [(0, MatchType::Exact), (129, MatchType::Exact), (9, MatchType::Range)] {
        let mut program = program();
        program.tables[0].match_fields[0].bitwidth = bits;
        program.tables[0].match_fields[0].match_type = kind.into();
        let said = P4Info::decode(&program.encode_to_vec()).unwrap_err().to_string();
        assert!(said.contains("exact.port"), "{said}");
    }
}

fn entries() -> impl Strategy<Value = Entry> {
    let exact = (0u128..512).prop_map(|port| Entry::new("exact").exact("port", port));
    let lpm = (0u32..=32, any::<u32>()).prop_map(|(length, value)| {
        let value = u128::from(value) & bits::prefix(length, 32);
        Entry::new("lpm").lpm("address", value, length)
    });
    let ternary = (any::<u16>(), any::<u16>(), 0u8..2, 1..i32::MAX);
    let ternary = ternary.prop_map(|(value, mask, direction, priority)| {
        let entry = Entry::new("ternary").ternary("client", value & mask, mask);
        entry.exact("direction", direction).priority(priority)
    });
    let key = prop_oneof![exact, lpm, ternary];
    (key, 0u128..512, any::<u128>(), any::<[u8; 3]>())
        .prop_map(|(entry, a, b, note)| entry.does("act").with("a", a).with("b", b).noted(note))
}

proptest! {
    #[test]
    fn entry_decodes_in_canonical_form(entry in entries()) {
        let message = entry.encode(&info()).unwrap();
        let mut expected = entry;
        expected.key = expected.key.canonical();
        prop_assert_eq!(Entry::decode(&info(), &message).unwrap(), expected);
    }

    #[test]
    fn any_entry_message_decodes_without_panic(
        table in 0u32..5,
        fields in prop::collection::vec((0u32..4, 0u8..4, any::<Vec<u8>>(), any::<i32>()), 0..4),
        action in 88u32..93,
        params in prop::collection::vec((0u32..4, any::<Vec<u8>>()), 0..4),
        priority: i32,
    ) {
        let field = |(id, kind, value, length): (u32, u8, Vec<u8>, i32)| {
            use field_match::FieldMatchType as Kind;
            let kind = match kind {
                0 => Some(Kind::Exact(field_match::Exact { value })),
                1 => Some(Kind::Lpm(field_match::Lpm { value, prefix_len: length })),
                2 => Some(Kind::Ternary(field_match::Ternary { mask: value.clone(), value })),
                _ => None,
            };
            p4::FieldMatch { field_id: id, field_match_type: kind }
        };
        let param = |(param_id, value)| p4::action::Param { param_id, value };
        let params = params.into_iter().map(param).collect();
        let action = table_action::Type::Action(p4::Action { action_id: action, params });
        let message = p4::TableEntry {
            table_id: table,
            r#match: fields.into_iter().map(field).collect(),
            action: Some(p4::TableAction { r#type: Some(action) }),
            priority,
            ..Default::default()
        };
        if let Ok(entry) = Entry::decode(&info(), &message) {
            // A decoded entry can be encoded and decoded again.
            let again = Entry::decode(&info(), &entry.encode(&info()).unwrap()).unwrap();
            prop_assert_eq!(again, entry);
        }
    }

    #[test]
    fn any_p4info_decodes_without_panic(bytes: Vec<u8>) {
        let _either = P4Info::decode(&bytes);
    }
}
