// SPDX-License-Identifier: Apache-2.0
//! The reference and the JSON Schema match the parser.

use profile::reference;

#[test]
fn reference_page_matches_the_schema() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/profile-reference.md");
    let page = std::fs::read_to_string(path).unwrap_or_default();
    let (head, tables) = page.split_once("\n| key ").unwrap_or((&page, ""));
    let written = format!("\n| key {tables}");
    let generated = reference::markdown();
    if std::env::var_os("LINKEMU_UPDATE").is_some() {
        std::fs::write(path, format!("{head}{generated}")).unwrap();
        return;
    }
    assert!(
        written == generated,
        "docs/profile-reference.md is not what the schema says: run `LINKEMU_UPDATE=1 cargo test \
         -p profile reference`"
    );
}
