// SPDX-License-Identifier: Apache-2.0
//! Messages that are drawn from any bytes: most of them are close to valid ones.

use prost_reflect::{
    Cardinality, DynamicMessage, FieldDescriptor, Kind, MapKey, MessageDescriptor, Value,
};

/// Messages within messages.
const DEPTH: usize = 6;
/// Names, values and paths that requests have.
const TEXTS: [&str; 36] = [
    "",
    "main",
    "default",
    "viasat2",
    "geo-600",
    "transparent",
    "mine",
    "rain-fade",
    "links/a",
    "a",
    "10.0.0.2",
    "10.0.0.0/8",
    "fd00::/8",
    "02:00:00:00:00:01",
    "tcp",
    "icmp",
    "80",
    "1000-2000",
    "rate_bps",
    "queue",
    "queue.limit_bytes",
    "queue.random_drop",
    "delay.base_ns",
    "outages",
    "packet_loss",
    "rate_trace",
    "fade",
    "*",
    "..",
    "../x",
    "\0",
    "ü",
    "wan",
    "client",
    "cubic",
    "name = \"x\"\n[forward]\nrate = \"1 Mbit/s\"\n",
];

/// Bytes that decisions are taken from; zeros after their end.
pub struct Entropy<'a> {
    bytes: &'a [u8],
    /// Identifiers that numbers are likely to be.
    known: &'a [u32],
}

impl<'a> Entropy<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, known: &[0] }
    }

    /// Numbers are often one of these, which are not empty.
    pub fn knowing(bytes: &'a [u8], known: &'a [u32]) -> Self {
        Self { bytes, known }
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.bytes.split_first() else { return 0 };
        self.bytes = rest;
        *first
    }

    /// Below `n`, which is from 1 to 256.
    pub fn below(&mut self, n: usize) -> usize {
        usize::from(self.byte()) % n
    }

    /// Likelier to be near a limit than by chance.
    pub fn number(&mut self) -> u64 {
        let low = u64::from(self.byte());
        match self.below(8) {
            0 => self.known[low as usize % self.known.len()].into(),
            1 => u64::MAX - low,
            2 => (i64::MAX as u64).wrapping_add(low),
            3 => 1_u64 << (low % 64),
            4 => low.wrapping_mul(1_000_000),
            5 => low.wrapping_mul(1_000_000_000),
            6 => u64::from(u32::MAX) - low,
            _ => low,
        }
    }

    fn real(&mut self) -> f64 {
        match self.below(8) {
            0 => f64::NAN,
            1 => f64::INFINITY,
            2 => -1.0,
            3 => 1.0,
            4 => f64::from(self.byte()) / 256.0,
            5 => f64::MIN_POSITIVE,
            6 => 1e300,
            _ => 0.0,
        }
    }

    fn text(&mut self) -> String {
        match self.byte() {
            n @ ..200 => TEXTS[usize::from(n) % TEXTS.len()].to_owned(),
            n @ ..250 => char::from(n).to_string().repeat(self.below(80)),
            _ => "x".repeat(self.below(256) << 8),
        }
    }

    /// A message of a kind, with half of its fields.
    pub fn message(&mut self, kind: &MessageDescriptor) -> DynamicMessage {
        self.nested(kind, 0)
    }

    fn nested(&mut self, kind: &MessageDescriptor, depth: usize) -> DynamicMessage {
        let mut message = DynamicMessage::new(kind.clone());
        for field in kind.fields() {
            let is_message = matches!(field.kind(), Kind::Message(_));
            if self.is_empty() || (is_message && depth >= DEPTH) || self.byte().is_multiple_of(2) {
                continue;
            }
            let value = self.field(&field, depth);
            message.set_field(&field, value);
        }
        message
    }

    fn field(&mut self, field: &FieldDescriptor, depth: usize) -> Value {
        if let (true, Kind::Message(entry)) = (field.is_map(), field.kind()) {
            let (key, value) = (entry.map_entry_key_field(), entry.map_entry_value_field());
            let entries = (0..self.below(3)).filter_map(|_| {
                let key = match self.value(&key.kind(), depth) {
                    Value::String(key) => MapKey::String(key),
                    Value::U32(key) => MapKey::U32(key),
                    Value::U64(key) => MapKey::U64(key),
                    _ => return None,
                };
                Some((key, self.value(&value.kind(), depth)))
            });
            return Value::Map(entries.collect());
        }
        if field.cardinality() == Cardinality::Repeated {
            let count = self.below(4);
            return Value::List((0..count).map(|_| self.value(&field.kind(), depth)).collect());
        }
        self.value(&field.kind(), depth)
    }

    fn value(&mut self, kind: &Kind, depth: usize) -> Value {
        match kind {
            Kind::Double => Value::F64(self.real()),
            Kind::Float => Value::F32(self.real() as f32),
            Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => Value::I32(self.number() as i32),
            Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => Value::I64(self.number() as i64),
            Kind::Uint32 | Kind::Fixed32 => Value::U32(self.number() as u32),
            Kind::Uint64 | Kind::Fixed64 => Value::U64(self.number()),
            Kind::Bool => Value::Bool(self.byte() % 2 == 1),
            Kind::String => Value::String(self.text()),
            Kind::Bytes => {
                let count = self.below(20);
                Value::Bytes((0..count).map(|_| self.byte()).collect::<Vec<_>>().into())
            }
            Kind::Message(kind) => Value::Message(self.nested(kind, depth + 1)),
            Kind::Enum(_) => Value::EnumNumber(self.number() as i32 % 8),
        }
    }
}
