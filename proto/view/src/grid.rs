// SPDX-License-Identifier: Apache-2.0
//! Tables of records that fit a terminal. Words are not broken.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

/// Columns between two cells.
const PADDING: usize = 2;

/// A line per record; columns after the first `left` are numbers, aligned right. If that is wider than
/// `width` columns, the table is turned: a line per heading, with as many records as fit.
pub fn grid<const N: usize>(
    left: usize,
    header: [&str; N],
    records: &[[String; N]],
    width: Option<usize>,
) -> String {
    let mut lines = table(header.map(str::to_owned), records.iter().cloned());
    for column in lines.column_iter_mut().skip(left) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let text = lines.trim_fmt();
    let Some(width) = width.filter(|width| widest(&text) > *width) else { return text };
    let labels = header.iter().map(|label| label.chars().count()).max().unwrap_or(0) + PADDING;
    let mut parts = Vec::new();
    let mut rest = records;
    while !rest.is_empty() {
        let mut used = labels;
        let fits = |record: &&[String; N]| {
            used += record.iter().map(|cell| cell.chars().count()).max().unwrap_or(0) + PADDING;
            used <= width
        };
        let (part, others) = rest.split_at(rest.iter().take_while(fits).count().max(1));
        parts.push(turned(header, part, width));
        rest = others;
    }
    parts.join("\n\n")
}

fn widest(text: &str) -> usize {
    text.lines().map(|line| line.chars().count()).max().unwrap_or(0)
}

/// A line per heading. A record that is wider than `width` by itself is broken between words.
fn turned<const N: usize>(header: [&str; N], records: &[[String; N]], width: usize) -> String {
    let line = |n: usize| {
        let cells = records.iter().map(|record| record[n].clone());
        std::iter::once(header[n].to_owned()).chain(cells).collect::<Vec<_>>()
    };
    let mut table = table(line(0), (1..N).map(line));
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    if widest(&table.trim_fmt()) > width {
        table.set_content_arrangement(ContentArrangement::Dynamic);
        table.set_width(u16::try_from(width).unwrap_or(u16::MAX));
    }
    table.trim_fmt()
}

fn table(
    header: impl IntoIterator<Item = String>,
    rows: impl Iterator<Item = impl IntoIterator<Item = String>>,
) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header);
    for row in rows {
        table.add_row(row);
    }
    table
}
