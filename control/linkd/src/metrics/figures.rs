// SPDX-License-Identifier: Apache-2.0
//! Figures of statistics that the protos describe, by the option `metric` of their fields
//! (`linkemu/v1/metric.proto`).

use super::export::NS;
use crate::methods::extension;
use prometheus_client::metrics::MetricType;
use prost::{Message, Name};
use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, MessageDescriptor};
use proto::POOL;

/// A figure of a message.
#[derive(Debug)]
pub(super) struct Figure {
    pub name: String,
    pub help: String,
    pub kind: MetricType,
    /// From the message to the value.
    path: Vec<FieldDescriptor>,
}

/// The figures of a message, in the order of their fields.
#[derive(Debug)]
pub(super) struct Figures {
    message: Option<MessageDescriptor>,
    pub figures: Vec<Figure>,
}

impl Figures {
    pub fn of<M: Name>() -> Self {
        let message = POOL.get_message_by_name(&M::full_name());
        let mut figures = Vec::new();
        if let Some(message) = &message {
            add(&mut figures, message, &[], "*", "");
        }
        Self { message, figures }
    }

    /// The values of a message, in the order of the figures.
    pub fn values<M: Message>(&self, message: &M) -> Vec<f64> {
        let of = |descriptor: &MessageDescriptor| {
            DynamicMessage::decode(descriptor.clone(), &*message.encode_to_vec()).ok()
        };
        let read = self.message.as_ref().and_then(of);
        let value = |figure: &Figure| {
            let value = read.as_ref().map_or(0.0, |message| value(message, &figure.path));
            if figure.name.contains("_seconds") { value * NS } else { value }
        };
        self.figures.iter().map(value).collect()
    }
}

/// Adds the figures of a message whose own metric is `pattern`, with `help` for fields without a comment.
fn add(
    figures: &mut Vec<Figure>,
    message: &MessageDescriptor,
    path: &[FieldDescriptor],
    pattern: &str,
    help: &str,
) {
    let mut fields: Vec<_> = message.fields().collect();
    fields.sort_by_key(FieldDescriptor::number);
    let metric = extension("metric");
    for field in fields {
        let options = field.options();
        let metric = metric.as_ref().map(|metric| options.get_extension(metric));
        let metric = metric.as_deref().and_then(|it| it.as_str()).unwrap_or_default();
        if metric.is_empty() {
            continue;
        }
        let name = pattern.replace('*', metric);
        let own = Some(sentence(&field)).filter(|own| !own.is_empty());
        let help = own.unwrap_or_else(|| match metric {
            "bytes" => format!("Bytes of: {help}"),
            _ => help.to_owned(),
        });
        let path = [path, std::slice::from_ref(&field)].concat();
        if let Kind::Message(inner) = field.kind() {
            add(figures, &inner, &path, &name, &help);
            continue;
        }
        let kind = if name.ends_with("_total") { MetricType::Counter } else { MetricType::Gauge };
        figures.push(Figure { name, help, kind, path });
    }
}

/// The first sentence of the comment of a field.
fn sentence(field: &FieldDescriptor) -> String {
    let file = field.parent_message().parent_file();
    let comment = proto::comment(file.file_descriptor_proto(), field.path()).replace('\n', " ");
    let end = comment.find(". ").unwrap_or(comment.len());
    comment[..end].trim_end_matches('.').to_owned()
}

fn value(message: &DynamicMessage, path: &[FieldDescriptor]) -> f64 {
    let Some((field, rest)) = path.split_first() else { return 0.0 };
    let field = message.get_field(field);
    if let Some(inner) = field.as_message() {
        return value(inner, rest);
    }
    let number = field.as_u64().or_else(|| field.as_u32().map(u64::from));
    number.map_or(0.0, |number| number as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::linkemu::v1 as pb;
    use std::collections::BTreeSet;

    fn shown(figures: &Figures) -> Vec<(&str, &str)> {
        figures.figures.iter().map(|it| (&*it.name, &*it.help)).collect()
    }

    #[test]
    fn figure_has_name_help_kind_and_value_of_its_field() {
        let figures = Figures::of::<pb::WorkerStats>();
        let received = "Packets received of the worker's clients since the dataplane started";
        let stall = "Longest stall since the last mark";
        let most = "Most of the packet store in use since the last mark";
        let expected = [
            ("worker_memory_capacity_bytes", "Size of the packet store"),
            ("worker_memory_used_bytes", "Packet store in use"),
            ("worker_memory_high_water_bytes", most),
            ("worker_stall_max_seconds", stall),
            ("worker_received_packets_total", received),
            ("worker_received_bytes_total", &format!("Bytes of: {received}")),
        ];
        assert_eq!(shown(&figures), expected);
        let kinds = figures.figures.iter().map(|it| matches!(it.kind, MetricType::Counter));
        assert_eq!(kinds.collect::<Vec<_>>(), [false, false, false, false, true, true]);
        let worker = pb::WorkerStats {
            memory: Some(pb::Memory { capacity_bytes: 1 << 20, used_bytes: 3, used_max_bytes: 5 }),
            stall_max_ns: 2_500_000_000,
            received: Some(pb::Count { packets: 7, bytes: 9 }),
            ..Default::default()
        };
        assert_eq!(figures.values(&worker), [1_048_576.0, 3.0, 5.0, 2.5, 7.0, 9.0]);
        assert_eq!(figures.values(&pb::WorkerStats::default()), [0.0; 6]);
    }

    #[test]
    fn figures_have_different_names_and_a_help() {
        let all = [
            Figures::of::<pb::PortStats>(),
            Figures::of::<pb::WorkerStats>(),
            Figures::of::<pb::PipeStats>(),
        ];
        let shown: Vec<_> = all.iter().flat_map(shown).collect();
        let names: BTreeSet<_> = shown.iter().map(|(name, _)| name).collect();
        assert!(names.len() == shown.len() && names.len() > 40, "{shown:?}");
        assert!(
            shown.iter().all(|(name, help)| !name.contains('*') && !help.is_empty()),
            "{shown:?}"
        );
    }
}
