// SPDX-License-Identifier: Apache-2.0
//! The JSON of iperf3 (`-J`): a TCP flow with one stream, from the server (`--reverse`, or a file of
//! the server).
//!
//! Received bytes come from the receiver's intervals where the file has them, since a sender counts
//! bytes that it has only buffered. Round trips are the kernel's smoothed ones at the end of each interval, of
//! the sender: of its own file, or of the client's with `--get-server-output`.

use serde::Deserialize;
use serde_json::Value;

use super::flow::{Algorithm, Flow};

const MOST_INTERVALS: usize = 10_000_000;
/// Longest flow, in seconds.
const LONGEST_S: f64 = 86_400.0;

#[derive(Deserialize)]
struct File {
    error: Option<String>,
    start: Option<Start>,
    #[serde(default)]
    intervals: Vec<Interval>,
    end: Option<Value>,
    server_output_json: Option<Box<File>>,
}

#[derive(Deserialize)]
struct Start {
    test_start: Option<Test>,
}

#[derive(Deserialize)]
struct Test {
    protocol: String,
    num_streams: u64,
    #[serde(default)]
    omit: f64,
    #[serde(default)]
    reverse: u8,
}

#[derive(Deserialize)]
struct Interval {
    streams: Vec<Stream>,
}

#[derive(Deserialize)]
struct Stream {
    end: f64,
    bytes: u64,
    /// In µs; the sender's only.
    rtt: Option<u64>,
    #[serde(default)]
    omitted: bool,
    sender: Option<bool>,
}

impl File {
    /// Whether its intervals are those of the sender.
    fn sends(&self) -> bool {
        let stream = self.intervals.first().and_then(|i| i.streams.first());
        stream.is_some_and(|s| s.sender.unwrap_or(s.rtt.is_some()))
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.end.as_ref()?.get(key)?.as_str()
    }
}

/// A flow, and its congestion control if the file names it.
///
/// # Errors
/// What is wrong with the file.
pub(super) fn read(text: &[u8]) -> Result<(Flow, Option<Algorithm>), String> {
    let file: File = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    if let Some(error) = &file.error {
        return Err(format!("iperf3 failed: {error:?}"));
    }
    let test = file.start.as_ref().and_then(|start| start.test_start.as_ref());
    let Some(test) = test else { return Err("it has no start.test_start".into()) };
    if test.protocol != "TCP" {
        return Err(format!("it is of {}: give a flow of TCP", test.protocol));
    }
    if test.num_streams != 1 {
        let n = test.num_streams;
        return Err(format!("it has {n} streams: run iperf3 with one stream (-P 1)"));
    }
    if test.omit > 0.0 {
        return Err("it omits its start: run iperf3 without --omit".into());
    }
    let other = file.server_output_json.as_deref();
    let (mut sender, mut receiver) = (None, None);
    for file in [Some(&file), other].into_iter().flatten() {
        *if file.sends() { &mut sender } else { &mut receiver } = Some(file);
    }
    if test.reverse == 0 {
        return Err("the client of iperf3 sent: only flows towards the client can be used, run \
                    iperf3 there with --reverse"
            .into());
    }
    let mut flow = Flow { received: bytes(receiver.or(sender))?, ..Flow::default() };
    if let Some(sender) = sender {
        flow.rtts = round_trips(sender);
    }
    flow.complete = true;
    let name = [Some(&file), other].into_iter().flatten();
    let name = name.flat_map(|f| f.text("sender_tcp_congestion")).next();
    let algorithm = name.map(str::parse::<Algorithm>).transpose()?;
    Ok((flow, algorithm))
}

/// Bytes at each whole second, linear within an interval.
fn bytes(file: Option<&File>) -> Result<Vec<u64>, String> {
    let Some(file) = file else { return Err("it has no intervals".into()) };
    if file.intervals.len() > MOST_INTERVALS {
        return Err(format!("it has more than {MOST_INTERVALS} intervals"));
    }
    let (mut received, mut total, mut at) = (Vec::new(), 0_u64, 0.0);
    for interval in &file.intervals {
        let [stream] = &interval.streams[..] else {
            return Err("an interval does not have one stream".into());
        };
        if stream.omitted {
            return Err("it omits its start: run iperf3 without --omit".into());
        }
        if !(at..=LONGEST_S).contains(&stream.end) {
            let end = stream.end;
            return Err(format!(
                "an interval ends at {end} s, after {at} s: at most 1 d ascending"
            ));
        }
        let next = total.checked_add(stream.bytes).ok_or("it has more than 2^64 bytes")?;
        while (received.len() + 1) as f64 <= stream.end && stream.end > at {
            let share = ((received.len() + 1) as f64 - at) / (stream.end - at);
            received.push(total + (stream.bytes as f64 * share) as u64);
        }
        (total, at) = (next, stream.end);
    }
    if total == 0 {
        return Err("no bytes were received".into());
    }
    received.push(total);
    Ok(received)
}

fn round_trips(file: &File) -> Vec<(u32, u32)> {
    let streams = file.intervals.iter().filter_map(|i| i.streams.first());
    let us = |x: f64| x.clamp(0.0, f64::from(u32::MAX)) as u32;
    // Just before the end, so that it counts to the span that it closes.
    streams
        .filter_map(|s| Some((us(s.end * 1e6 - 1.0), us(s.rtt? as f64))))
        .filter(|(_, rtt)| *rtt > 0)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of iperf3 3.12: `-c … --reverse -J -t 3 -b 4M --get-server-output`.
    const REVERSE: &str = include_str!("iperf/reverse-3.12.json");

    fn changed(change: impl Fn(&mut Value)) -> Result<(Flow, Option<Algorithm>), String> {
        let mut value = serde_json::from_str(REVERSE).unwrap();
        change(&mut value);
        read(value.to_string().as_bytes())
    }

    #[test]
    fn bytes_are_the_receivers_and_round_trips_the_senders() {
        let (flow, algorithm) = read(REVERSE.as_bytes()).unwrap();
        assert_eq!(algorithm, Some(Algorithm::Cubic));
        // 4 Mbit/s for 3 s; 507,904 bytes after 1.00013 s.
        assert_eq!(flow.received.len(), 4);
        assert!(flow.received[0].abs_diff(507_838) < 3, "{:?}", flow.received);
        assert_eq!(flow.received.last(), Some(&1_507_328));
        assert_eq!(flow.rtts.len(), 3);
        assert_eq!(flow.rtts[0], (1_000_066, 232));
    }

    #[test]
    fn file_of_the_server_alone_has_both() {
        let (flow, algorithm) = changed(|v| *v = v["server_output_json"].take()).unwrap();
        assert_eq!((algorithm, flow.rtts.len()), (Some(Algorithm::Cubic), 3));
        let (flow, _) = changed(|v| v["server_output_json"] = Value::Null).unwrap();
        assert!(flow.rtts.is_empty());
    }

    #[test]
    fn unusable_result_is_refused_with_its_reason() {
        let refused = |change: &dyn Fn(&mut Value)| changed(change).unwrap_err();
        for (said, problem) in [
            (refused(&|v| v["error"] = "no route".into()), "no route"),
            (refused(&|v| v["start"]["test_start"]["protocol"] = "UDP".into()), "UDP"),
            (refused(&|v| v["start"]["test_start"]["num_streams"] = 4.into()), "4 streams"),
            (refused(&|v| v["start"]["test_start"]["reverse"] = 0.into()), "--reverse"),
            (refused(&|v| v["start"]["test_start"]["omit"] = 2.into()), "--omit"),
            (refused(&|v| v["intervals"][1]["streams"][0]["omitted"] = true.into()), "--omit"),
            (refused(&|v| v["start"] = Value::Null), "start.test_start"),
            (refused(&|v| v["end"]["sender_tcp_congestion"] = "vegas".into()), "vegas"),
            (refused(&|v| v["intervals"][1]["streams"][0]["end"] = 0.5.into()), "ends at 0.5 s"),
            (refused(&|v| v["intervals"][1]["streams"][0]["end"] = 1e300.into()), "at most 1 d"),
            (refused(&|v| v["intervals"][1]["streams"] = Value::Array(Vec::new())), "one stream"),
            (refused(&|v| v["intervals"] = Value::Array(Vec::new())), "no bytes"),
            (refused(&|v| v["intervals"][2]["streams"][0]["bytes"] = u64::MAX.into()), "2^64"),
            (refused(&|v| v["intervals"][2]["streams"][0]["bytes"] = (-1).into()), "-1"),
        ] {
            assert!(said.contains(problem), "{said}");
        }
        for text in ["", "{", "{}", "[]", "{\"intervals\": 7}"] {
            assert!(read(text.as_bytes()).is_err(), "{text}");
        }
    }
}
