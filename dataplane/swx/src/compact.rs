// SPDX-License-Identifier: Apache-2.0
//! Lets temporary fields of the metadata share their place.
//!
//! An instruction of SWX addresses the metadata with eight bits, and `librte_pipeline` does not check
//! it (22.11 to 25.11): fields beyond byte 255 overwrite others. p4c makes a field for each temporary
//! value, so a program of some hundred lines has more than that.
//!
//! Method: linear-scan register allocation (Poletto, Sarkar 1999) over the `apply` block. Its jumps
//! must all be forward, as p4c writes them. Then a value lives from its first to its last line at most.
//! Only fields with `tmp` in their name, which p4c gives to temporaries, share, and only if they occur
//! nowhere else and are written first.

use std::collections::{BTreeMap, HashMap};

use crate::error::Error;

/// Bytes of metadata that an instruction can address.
const ADDRESSED: u32 = 256;

/// Where a field of the metadata is used in the `apply` block, by line.
#[derive(Clone, Copy, Debug)]
struct Life {
    first: usize,
    last: usize,
    /// It is written before it is read.
    is_written: bool,
    /// It is used in `apply` only.
    is_local: bool,
}

/// A specification with shared temporaries.
///
/// # Errors
/// [`Error::Refused`] if the metadata is too large nevertheless.
pub fn compact(text: &str) -> Result<String, Error> {
    let lines: Vec<Vec<&str>> = text.lines().map(|l| l.split_whitespace().collect()).collect();
    let Some(fields) = metadata(&lines) else { return Ok(text.to_owned()) };
    let apply = lines.iter().position(|words| words.first() == Some(&"apply"));
    let apply = apply.unwrap_or(lines.len());
    let shares = if jumps_are_forward(lines.get(apply..).unwrap_or_default()) {
        share(&fields, &lives(&lines, apply))
    } else {
        HashMap::new()
    };
    let bits = fields.iter().filter(|(_, name, _)| !shares.contains_key(name));
    let bytes: u32 = bits.map(|(_, _, bits)| bits.div_ceil(8)).sum();
    if bytes > ADDRESSED {
        let what = format!("its metadata has {bytes} bytes, SWX can address {ADDRESSED}");
        return Err(Error::Refused(what));
    }
    let gone = |number: usize| {
        fields.iter().any(|(line, name, _)| *line == number && shares.contains_key(name))
    };
    let mut out = String::with_capacity(text.len());
    for (number, (line, words)) in text.lines().zip(&lines).enumerate() {
        let renamed = |word: &&str| word.strip_prefix("m.").and_then(|name| shares.get(name));
        if gone(number) {
            // Keeps the numbers of the lines.
        } else if words.iter().any(|word| renamed(word).is_some()) {
            for word in words {
                match renamed(word) {
                    Some(name) => out.extend(["m.", name, " "]),
                    None => out.extend([word, " "]),
                }
            }
        } else {
            out.push_str(line);
        }
        out.push('\n');
    }
    Ok(out)
}

/// Line, name and bits of each field of the metadata; none if the specification has none.
fn metadata<'a>(lines: &[Vec<&'a str>]) -> Option<Vec<(usize, &'a str, u32)>> {
    let name = lines.iter().find_map(|words| match words.as_slice() {
        ["metadata", "instanceof", name] => Some(*name),
        _ => None,
    })?;
    let start = lines.iter().position(|words| words.get(..2) == Some(&["struct", name]))?;
    let body = lines.iter().enumerate().skip(start + 1);
    let body = body.take_while(|(_, words)| words.first() != Some(&"}"));
    let field = |(line, words): (usize, &Vec<&'a str>)| match words.as_slice() {
        [kind, name] => {
            let bits = kind.strip_prefix("bit<")?.strip_suffix('>')?.parse().ok()?;
            Some((line, *name, bits))
        }
        _ => None,
    };
    Some(body.filter_map(field).collect())
}

/// An instruction without its label.
fn instruction<'a, 'b>(words: &'b [&'a str]) -> (Option<&'a str>, &'b [&'a str]) {
    match words {
        [label, ":", rest @ ..] => (Some(label), rest),
        words => (None, words),
    }
}

fn jumps_are_forward(apply: &[Vec<&str>]) -> bool {
    let labels: HashMap<&str, usize> = apply
        .iter()
        .enumerate()
        .filter_map(|(line, words)| Some((instruction(words).0?, line)))
        .collect();
    apply.iter().enumerate().all(|(line, words)| match instruction(words).1 {
        [jump, label, ..] if jump.starts_with("jmp") => {
            labels.get(label).is_some_and(|target| *target > line)
        }
        _ => true,
    })
}

fn lives<'a>(lines: &[Vec<&'a str>], apply: usize) -> HashMap<&'a str, Life> {
    let mut lives: HashMap<&str, Life> = HashMap::new();
    for (line, words) in lines.iter().enumerate() {
        let instruction = instruction(words).1;
        for (place, word) in instruction.iter().enumerate() {
            let Some(name) = word.strip_prefix("m.") else { continue };
            let is_written = place == 1
                && matches!(instruction.first(), Some(&("mov" | "regrd")))
                && instruction.iter().skip(2).all(|other| other != word);
            let life = Life { first: line, last: line, is_written, is_local: line >= apply };
            let life = lives.entry(name).or_insert(life);
            life.last = line;
            life.is_local &= line >= apply;
        }
    }
    lives
}

/// The field in whose place each sharing field is, by name.
fn share<'a>(
    fields: &[(usize, &'a str, u32)],
    lives: &HashMap<&'a str, Life>,
) -> HashMap<&'a str, &'a str> {
    let mut temporaries: Vec<(Life, &str, u32)> = fields
        .iter()
        .filter(|(_, name, _)| name.contains("tmp"))
        .filter_map(|(_, name, bits)| Some((*lives.get(name)?, *name, *bits)))
        .filter(|(life, ..)| life.is_local && life.is_written)
        .collect();
    temporaries.sort_by_key(|(life, ..)| life.first);
    // Fields by their width, with the last line of the value in them.
    let mut places: BTreeMap<u32, Vec<(usize, &str)>> = BTreeMap::new();
    let mut shares = HashMap::new();
    for (life, name, bits) in temporaries {
        let places = places.entry(bits).or_default();
        match places.iter_mut().find(|(last, _)| *last < life.first) {
            Some((last, place)) => {
                *last = life.last;
                shares.insert(name, *place);
            }
            None => places.push((life.last, name)),
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(apply: &str) -> String {
        format!(
            "struct m_t {{\n\tbit<32> a\n\tbit<32> x_tmp_0\n\tbit<32> x_tmp_1\n\tbit<32> x_tmp_2\n\
             \tbit<8> x_tmp_3\n}}\nmetadata instanceof m_t\napply {{\n{apply}}}\n"
        )
    }

    const APPLY: &str = "\tmov m.x_tmp_0 m.a\n\tadd m.x_tmp_0 1\n\tjmpeq L m.a 1\n\
                         \tmov m.x_tmp_1 m.a\n\tmov m.a m.x_tmp_1\n\tmov m.x_tmp_3 m.a\n\
                         \tL : mov m.x_tmp_2 m.x_tmp_3\n\tmov m.a m.x_tmp_2\n";

    #[test]
    fn values_that_do_not_live_together_share_a_place() {
        let out = compact(&program(APPLY)).unwrap();
        assert!(!out.contains("x_tmp_1") && !out.contains("x_tmp_2"), "{out}");
        // Another width.
        assert!(out.contains("bit<8> x_tmp_3"), "{out}");
        assert!(out.contains("L : mov m.x_tmp_0 m.x_tmp_3"), "{out}");
        assert_eq!(out.lines().count(), program(APPLY).lines().count());
    }

    #[test]
    fn values_that_live_together_do_not_share() {
        let apply = "\tmov m.x_tmp_0 m.a\n\tmov m.x_tmp_1 m.a\n\tadd m.x_tmp_0 m.x_tmp_1\n\
                     \tmov m.x_tmp_2 m.x_tmp_0\n\tmov m.a m.x_tmp_2\n";
        let out = compact(&program(apply)).unwrap();
        assert!(out.contains("add m.x_tmp_0 m.x_tmp_1"), "{out}");
        // A value ends in the line in which another one begins.
        assert!(out.contains("mov m.x_tmp_1 m.x_tmp_0"), "{out}");
    }

    #[test]
    fn what_is_used_elsewhere_or_read_first_keeps_its_place() {
        let text = program(&APPLY.replace("mov m.x_tmp_1 m.a", "add m.x_tmp_1 m.a"));
        assert!(compact(&text).unwrap().contains("add m.x_tmp_1 m.a"));
        let action = "action f args none {\n\tmov m.x_tmp_1 1\n\treturn\n}\n";
        let text = program(APPLY).replace("metadata", &format!("{action}metadata"));
        assert!(compact(&text).unwrap().contains("mov m.a m.x_tmp_1"));
    }

    #[test]
    fn loops_share_nothing() {
        let text = program(&format!("\tM : mov m.a 1\n{APPLY}\tjmp M\n"));
        assert_eq!(compact(&text).unwrap(), text);
        assert_eq!(compact("regarray r size 1 initval 0\n").unwrap().lines().count(), 1);
    }

    #[test]
    fn metadata_beyond_the_addressed_is_refused() {
        let fields: String = (0..65).map(|n| format!("\tbit<32> f{n}\n")).collect();
        let text = format!("struct m_t {{\n{fields}}}\nmetadata instanceof m_t\napply {{\n}}\n");
        let error = compact(&text).unwrap_err().to_string();
        assert!(error.contains("260 bytes"), "{error}");
    }
}
