// SPDX-License-Identifier: Apache-2.0
//! Tables and entries of a pipeline, and their encoding in SWX's memory.
//!
//! Fields of metadata are in the processor's byte order if they have at most 64 bits, fields of
//! headers in network byte order. The same holds for arguments of actions.

use crate::error::Error;

/// How a field of a key is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Match {
    Exact,
    /// Longest prefix.
    Lpm,
    /// Under a mask.
    Wildcard,
}

/// A field of a key.
#[derive(Clone, Debug)]
pub struct Field {
    /// Width, bits.
    pub bits: u32,
    pub kind: Match,
    pub(crate) is_header: bool,
    /// First byte within the header or the metadata.
    pub(crate) offset: usize,
}

/// An argument of an action.
#[derive(Clone, Debug)]
pub struct Argument {
    pub name: String,
    /// Width, bits.
    pub bits: u32,
    pub(crate) is_network: bool,
}

/// An action of a table.
#[derive(Clone, Debug)]
pub struct Action {
    pub name: String,
    pub arguments: Vec<Argument>,
    /// Whether entries may have it, or only the default entry.
    pub is_for_entries: bool,
    pub(crate) id: u64,
}

/// A table of a pipeline.
#[derive(Clone, Debug)]
pub struct Table {
    pub name: String,
    /// Fields of the key, in the specification's order.
    pub fields: Vec<Field>,
    pub actions: Vec<Action>,
    /// Entries for which it was made.
    pub size: u32,
}

/// What an entry matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// Value and mask of each field of the table.
    pub fields: Vec<(u128, u128)>,
    /// The lowest wins. At most [`Key::LOWEST`]; 0 in a table with exact fields only.
    pub priority: u32,
}

impl Key {
    /// The priority that loses to all others: `RTE_ACL_MAX_PRIORITY` less one.
    pub const LOWEST: u32 = (1 << 29) - 2;
}

/// An entry of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub key: Key,
    pub action: String,
    /// All arguments of the action, in order.
    pub arguments: Vec<u128>,
}

/// Key and mask of an entry as bytes.
pub(crate) struct KeyBytes {
    pub key: Vec<u8>,
    pub mask: Vec<u8>,
    pub priority: u32,
}

impl Table {
    pub(crate) fn key(&self, key: &Key) -> Result<KeyBytes, Error> {
        let wrong = |reason: String| Error::Entry { table: self.name.clone(), reason };
        if key.fields.len() != self.fields.len() {
            let (given, needed) = (key.fields.len(), self.fields.len());
            return Err(wrong(format!("{given} fields are given, its key has {needed}")));
        }
        if key.priority > Key::LOWEST {
            return Err(wrong(format!("priority {} is above {}", key.priority, Key::LOWEST)));
        }
        let first = self.fields.iter().map(|f| f.offset).min().unwrap_or(0);
        let end = self.fields.iter().map(|f| f.offset + f.bytes()).max().unwrap_or(0);
        let mut bytes = vec![0; end - first];
        // Bytes between the fields are not compared: SWX has a mask for that.
        let mut mask = vec![0; end - first];
        for (field, &(value, under)) in self.fields.iter().zip(&key.fields) {
            let at = field.offset - first;
            let most = u128::MAX.checked_shr(128 - field.bits).unwrap_or(0);
            if value > most {
                return Err(wrong(format!("{value:#x} has more than {} bits", field.bits)));
            }
            // A mask may be wider.
            let under = under & most;
            for (out, number) in [(&mut bytes, value & under), (&mut mask, under)] {
                let put = out.get_mut(at..at + field.bytes());
                put.and_then(|put| write(put, number, field.is_network())).ok_or_else(|| {
                    wrong(format!("{number:#x} has more than {} bits", field.bits))
                })?;
            }
        }
        Ok(KeyBytes { key: bytes, mask, priority: key.priority })
    }

    /// The action's id and its arguments as bytes.
    pub(crate) fn action(&self, name: &str, arguments: &[u128]) -> Result<(u64, Vec<u8>), Error> {
        let wrong = |reason: String| Error::Entry { table: self.name.clone(), reason };
        let action = self.actions.iter().find(|a| a.name == name && a.is_for_entries);
        let action = action.ok_or_else(|| wrong(format!("its action cannot be `{name}`")))?;
        if arguments.len() != action.arguments.len() {
            let (given, needed) = (arguments.len(), action.arguments.len());
            return Err(wrong(format!("`{name}` has {needed} arguments, not {given}")));
        }
        let mut data = Vec::new();
        for (argument, &value) in action.arguments.iter().zip(arguments) {
            let at = data.len();
            data.resize(at + argument.bits.div_ceil(8) as usize, 0);
            let put = data.get_mut(at..).and_then(|put| write(put, value, argument.is_network));
            put.ok_or_else(|| wrong(format!("{value} has more than {} bits", argument.bits)))?;
        }
        Ok((action.id, data))
    }
}

impl Field {
    const fn bytes(&self) -> usize {
        self.bits.div_ceil(8) as usize
    }

    /// Wider fields are only copied, so they stay in network byte order.
    const fn is_network(&self) -> bool {
        self.is_header || self.bits > 64
    }
}

/// None if the number is too large.
fn write(out: &mut [u8], number: u128, is_network: bool) -> Option<()> {
    let bytes = number.to_be_bytes();
    let zeros = bytes.len().checked_sub(out.len())?;
    let (high, low) = bytes.split_at_checked(zeros)?;
    if high.iter().any(|byte| *byte != 0) {
        return None;
    }
    out.copy_from_slice(low);
    if !is_network && cfg!(target_endian = "little") {
        out.reverse();
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let field =
            |bits, is_header, offset| Field { bits, kind: Match::Wildcard, is_header, offset };
        Table {
            name: "t".into(),
            fields: vec![field(16, false, 10), field(128, false, 16), field(8, false, 14)],
            actions: vec![Action {
                name: "a".into(),
                arguments: vec![
                    Argument { name: "x".into(), bits: 16, is_network: false },
                    Argument { name: "y".into(), bits: 32, is_network: true },
                ],
                is_for_entries: true,
                id: 3,
            }],
            size: 1,
        }
    }

    #[test]
    fn key_has_the_layout_of_the_metadata() {
        let fields = vec![(0x0102, 0xffff), (1 << 127, 0xff << 120), (7, 0xf)];
        let bytes = table().key(&Key { fields, priority: 4 }).unwrap();
        assert_eq!(bytes.key[..6], [2, 1, 0, 0, 7, 0]);
        assert_eq!(bytes.mask[..6], [0xff, 0xff, 0, 0, 0xf, 0]);
        assert_eq!((bytes.key[6], bytes.mask[6], bytes.mask[7]), (0x80, 0xff, 0));
        assert_eq!((bytes.key.len(), bytes.priority), (22, 4));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let table = table();
        let key = |fields, priority| table.key(&Key { fields, priority }).is_err();
        assert!(key(vec![(0, 0)], 0));
        assert!(key(vec![(0x1_0000, u128::MAX), (0, 0), (0, 0)], 0));
        assert!(key(vec![(0, 0); 3], Key::LOWEST + 1));
        assert!(table.action("b", &[]).is_err());
        assert!(table.action("a", &[1]).is_err());
        assert!(table.action("a", &[1 << 16, 0]).is_err());
        assert_eq!(table.action("a", &[1, 2]).unwrap(), (3, vec![1, 0, 0, 0, 0, 2]));
    }
}
