// SPDX-License-Identifier: Apache-2.0
//! A part of a pipe, in the words of a profile: some of its keys, and nothing that must
//! be there. What a profile leaves out to have none of it is written `"none"` here.

use super::queue::QUEUE;
use super::reader::{Node, Reader};
use super::{DELAY, PIPE};
use crate::limits::{FILE_BYTES, INTERVAL_NS, QUEUE_BYTES};
use crate::link_layer;
use crate::units::{parse_duration, parse_overhead, parse_probability, parse_rate, parse_size};
use crate::{Rate, Violations, format_duration, format_overhead, format_probability, format_size};
use proto::linkemu::v1 as pb;
use std::fmt;
use toml::de::DeValue;

/// New values of some fields of a pipe.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Part {
    /// The values.
    pub pipe: pb::Pipe,
    /// The fields, as the paths of a PatchLinkRequest's mask; each once.
    pub paths: Vec<&'static str>,
}

impl Part {
    /// Reads a part from TOML of its own, such as `duplicate = "0.1 %"`.
    ///
    /// # Errors
    /// All that is wrong with the text, each with its line and column, as far as it can be
    /// told without the rest of the pipe.
    pub fn from_toml(text: &str) -> Result<Self, Violations> {
        let mut reader = Reader::new(text);
        let document = reader.document(FILE_BYTES, "part of a link")?;
        let (path, span) = ("part".to_owned(), document.span());
        let part = reader.part(&Node { path, span, table: document.get_ref() });
        reader.into_found().into_result()?;
        Ok(part)
    }
}

impl Reader<'_> {
    /// Reads a part of a pipe, and checks its values as far as they can be without the
    /// rest of the pipe.
    pub fn part(&mut self, node: &Node<'_>) -> Part {
        self.known(node, &PIPE);
        let mut part = Part::default();
        let (pipe, paths) = (&mut part.pipe, &mut part.paths);
        let has = |key: &str| node.table.contains_key(key);
        if has("rate") {
            paths.push("rate_bps");
            let rate = self.quantity(node, "rate", parse_rate, "144 Mbit/s");
            pipe.rate_bps = rate.and_then(Rate::bps);
        }
        if has("rate_trace") && !self.is_twofold(node) {
            paths.push("rate_trace");
            pipe.rate_trace = self.table(node, "rate_trace").map(|node| self.rate_trace(&node));
        }
        if has("overhead") {
            paths.push("overhead_bytes");
            let overhead = self.quantity(node, "overhead", parse_overhead, "0 B");
            pipe.overhead_bytes = overhead.unwrap_or(0);
        }
        if has("link_layer") {
            paths.push("link_layer");
            pipe.link_layer = self.link_layer(node).into();
        }
        if has("packet_loss") {
            paths.push("packet_loss");
            let loss = self.quantity(node, "packet_loss", parse_probability, "0.02 %");
            pipe.packet_loss = loss.unwrap_or(0.0);
        }
        if has("gilbert_elliott") {
            paths.push("gilbert_elliott");
            pipe.gilbert_elliott = self.or_none(node, "gilbert_elliott", Self::gilbert_elliott);
        }
        if has("four_state_loss") {
            paths.push("four_state_loss");
            pipe.four_state_loss = self.or_none(node, "four_state_loss", Self::four_state_loss);
        }
        if has("drop_run") {
            paths.push("drop_run");
            pipe.drop_run = self.or_none(node, "drop_run", Self::drop_run);
        }
        if has("duplicate") {
            paths.push("duplicate");
            pipe.duplicate = self.chance(node, "duplicate");
        }
        if has("corrupt") {
            paths.push("corrupt");
            pipe.corrupt = self.chance(node, "corrupt");
        }
        if has("reorder") {
            paths.push("reorder");
            pipe.reorder = self.or_none(node, "reorder", Self::reorder);
        }
        if let Some(node) = self.table(node, "queue") {
            self.known(&node, &QUEUE);
            let mut queue = pb::Queue::default();
            if node.table.contains_key("limit") {
                paths.push("queue.limit_bytes");
                let limit = self.quantity(&node, "limit", parse_size, "36 MB");
                queue.limit_bytes = limit.unwrap_or(FREE.limit_bytes);
            }
            if node.table.contains_key("random_drop") {
                paths.push("queue.random_drop");
                queue.random_drop = self.or_none(&node, "random_drop", Self::random_drop);
            }
            if node.table.contains_key("red") {
                paths.push("queue.red");
                queue.red = self.or_none(&node, "red", Self::red);
            }
            if node.table.contains_key("codel") {
                paths.push("queue.codel");
                queue.codel = self.or_none(&node, "codel", Self::codel);
            }
            if node.table.contains_key("pie") {
                paths.push("queue.pie");
                queue.pie = self.or_none(&node, "pie", Self::pie);
            }
            if node.table.contains_key("ecn") {
                paths.push("queue.ecn");
                queue.ecn = self.flag(&node, "ecn");
            }
            pipe.queue = Some(queue);
        }
        if has("outages") {
            paths.push("outages");
            pipe.outages = self.tables(node, "outages", Self::outage);
        }
        if has("fade") {
            paths.push("fade");
            pipe.fade = self.or_none(node, "fade", Self::fade);
        }
        if let Some(node) = self.table(node, "delay") {
            self.known(&node, &DELAY);
            let mut delay = pb::Delay::default();
            if node.table.contains_key("base") {
                paths.push("delay.base_ns");
                delay.base_ns = self.quantity(&node, "base", parse_duration, "275 ms").unwrap_or(0);
            }
            if node.table.contains_key("slot") {
                paths.push("delay.slot_ns");
                delay.slot_ns = self.quantity(&node, "slot", parse_duration, "43 ms").unwrap_or(0);
            }
            if node.table.contains_key("body") {
                paths.push("delay.body");
                delay.body = self.or_none(&node, "body", Self::body);
            }
            if node.table.contains_key("excursions") {
                paths.push("delay.excursions");
                delay.excursions = self.tables(&node, "excursions", Self::excursion);
            }
            pipe.delay = Some(delay);
        }
        // Of unknown keys it has been told.
        let known = node.table.keys().all(|key| PIPE.contains(&key.get_ref().as_ref()));
        if paths.is_empty() && known {
            let message = format!("changes nothing: write some of {}", PIPE.join(", "));
            self.fail(&node.path, node.span.clone(), message);
        }
        if let Err(broken) = crate::validate_pipe(&node.path, &whole(&part)) {
            self.merge(broken);
        }
        part
    }

    /// A table, or `"none"`.
    fn or_none<'a, T>(
        &mut self,
        node: &Node<'a>,
        key: &str,
        read: fn(&mut Self, &Node<'a>) -> T,
    ) -> Option<T> {
        let none = |value: &DeValue<'_>| matches!(value, DeValue::String(text) if text == "none");
        if node.table.get(key).is_some_and(|value| none(value.get_ref())) {
            return None;
        }
        self.table(node, key).map(|node| read(self, &node))
    }
}

/// A queue that refuses nothing of a part.
const FREE: pb::Queue = pb::Queue {
    limit_bytes: *QUEUE_BYTES.end(),
    random_drop: None,
    ecn: false,
    red: None,
    codel: None,
    pie: None,
};

/// A pipe with the values of a part, whose other values refuse none of them.
fn whole(part: &Part) -> pb::Pipe {
    let mut pipe = part.pipe.clone();
    let queue = pipe.queue.get_or_insert(FREE);
    if !part.paths.contains(&"queue.limit_bytes") {
        queue.limit_bytes = FREE.limit_bytes;
    }
    // Which one marks is not known, if the part does not say.
    queue.ecn &= queue.has_aqm();
    pipe.delay.get_or_insert_default();
    if pipe.fade.is_some() && !part.paths.contains(&"outages") {
        let law = pb::DurationLaw::Fixed as i32;
        let interval_ns = *INTERVAL_NS.end();
        pipe.outages.push(pb::Outage { interval_ns, duration_ns: 1_000_000, law });
    }
    pipe
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pipe, paths } = self;
        let delay = pipe.delay.clone().unwrap_or_default();
        let queue = pipe.queue.unwrap_or_default();
        let classes = |n: usize| match n {
            0 => "none".to_owned(),
            1 => "1 class".to_owned(),
            n => format!("{n} classes"),
        };
        let given = |is: bool| if is { "given" } else { "none" }.to_owned();
        for (i, path) in paths.iter().enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            let (what, value) = match *path {
                "rate_bps" => ("rate", Rate::from_bps(pipe.rate_bps).to_string()),
                "rate_trace" => ("rate trace", given(pipe.rate_trace.is_some())),
                "overhead_bytes" => ("overhead", format_overhead(pipe.overhead_bytes)),
                "link_layer" => {
                    ("link layer", link_layer(pipe.link_layer()).unwrap_or("none").to_owned())
                }
                "packet_loss" => ("packet loss", format_probability(pipe.packet_loss)),
                "gilbert_elliott" => {
                    ("Gilbert-Elliott loss", given(pipe.gilbert_elliott.is_some()))
                }
                "four_state_loss" => ("4-state loss", given(pipe.four_state_loss.is_some())),
                "drop_run" => ("drop run", given(pipe.drop_run.is_some())),
                "duplicate" => ("duplicates", format_probability(pipe.duplicate)),
                "corrupt" => ("wrong bits", format_probability(pipe.corrupt)),
                "reorder" => ("reordering", given(pipe.reorder.is_some())),
                "queue.red" => ("RED", given(queue.red.is_some())),
                "queue.codel" => ("CoDel", given(queue.codel.is_some())),
                "queue.pie" => ("PIE", given(queue.pie.is_some())),
                "queue.ecn" => ("ECN", if queue.ecn { "on" } else { "off" }.to_owned()),
                "queue.limit_bytes" => ("queue limit", format_size(queue.limit_bytes)),
                "queue.random_drop" => ("random drop", given(queue.random_drop.is_some())),
                "outages" => ("outages", classes(pipe.outages.len())),
                "fade" => ("fade", given(pipe.fade.is_some())),
                "delay.base_ns" => ("delay", format_duration(delay.base_ns)),
                "delay.slot_ns" => ("slot", format_duration(delay.slot_ns)),
                "delay.body" => ("delay body", given(delay.body.is_some())),
                _ => ("excursions", classes(delay.excursions.len())),
            };
            write!(f, "{what} {value}")?;
        }
        Ok(())
    }
}
