// SPDX-License-Identifier: Apache-2.0
//! Round trips of one flow's acknowledgements over time, as CSV with the columns `ack_s` (when it
//! arrived, in s) and `rtt_ms` (since its segment was sent). Lines that begin with `#` are remarks.

use std::io::Read;

use super::flow::Flow;

const COLUMNS: [&str; 2] = ["ack_s", "rtt_ms"];
/// Longest time, in s: that of a flow is kept in µs.
const LONGEST_S: f64 = 3600.0;

/// Whether a text has the columns.
pub(super) fn is_csv(text: &str) -> bool {
    let header = text.lines().find(|line| !line.trim().is_empty() && !line.starts_with('#'));
    header
        .is_some_and(|line| COLUMNS.iter().all(|c| line.split(',').any(|field| field.trim() == *c)))
}

/// Reads the round trips of a flow. The file does not state its bytes.
///
/// # Errors
/// The first line that cannot be used.
pub(super) fn read(bytes: impl Read) -> Result<Flow, String> {
    let mut reader =
        csv::ReaderBuilder::new().comment(Some(b'#')).trim(csv::Trim::All).from_reader(bytes);
    let header = reader.headers().map_err(|e| e.to_string())?.clone();
    let place = |name: &str| header.iter().position(|field| field == name);
    let [Some(at), Some(rtt)] = COLUMNS.map(place) else {
        return Err(format!("it lacks one of the columns {}", COLUMNS.join(", ")));
    };
    let mut samples: Vec<(f64, f64)> = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|e| e.to_string())?;
        let line = record.position().map_or(0, csv::Position::line);
        let number = |i: usize, most: f64| -> Result<f64, String> {
            let text = record.get(i).unwrap_or_default();
            let value = text.parse().ok().filter(|v| (0.0..=most).contains(v));
            value
                .ok_or_else(|| format!("line {line}: {} = {text:?} is not 0 to {most}", &header[i]))
        };
        let (at, rtt) = (number(at, LONGEST_S)?, number(rtt, LONGEST_S * 1e3)?);
        if samples.last().is_some_and(|(before, _)| *before > at) {
            return Err(format!("line {line}: {at} s is before the line above it"));
        }
        samples.push((at, rtt));
    }
    // No data is acknowledged less than a round trip after the handshake.
    if let [(first, rtt), (second, _), ..] = samples[..]
        && second - first > rtt / 1e3
    {
        samples.remove(0);
    }
    if samples.len() < 2 {
        return Err("it has less than two acknowledgements".to_owned());
    }
    let us = |x: f64| x.round() as u32;
    let rtts = samples.iter().map(|(at, rtt)| (us(at * 1e6), us(rtt * 1e3))).collect();
    Ok(Flow { rtts, ..Flow::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_are_those_of_data() {
        let text = "# of a capture\nack_s,rtt_ms\n0.495, 599\n1.853,639\n1.885,659.5\n";
        assert!(is_csv(text));
        let flow = read(text.as_bytes()).unwrap();
        assert_eq!(flow.rtts, [(1_853_000, 639_000), (1_885_000, 659_500)]);
        assert!((flow.begun_s().unwrap() - 1.214).abs() < 1e-9);
        // Data that follows a round trip at once.
        let flow = read("rtt_ms,ack_s\n600,0.6\n610,0.7".as_bytes()).unwrap();
        assert_eq!(flow.rtts.len(), 2);
    }

    #[test]
    fn faults_are_told_with_their_line() {
        for (text, fault) in [
            ("ack_s,rtt_ms\n1,600\n0.5,600", "line 3: 0.5 s is before"),
            ("ack_s,rtt_ms\n1,-1", "line 2: rtt_ms = \"-1\" is not 0 to"),
            ("ack_s,rtt_ms\n1,nan", "rtt_ms = \"nan\""),
            ("ack_s,rtt_ms\n4000,1", "ack_s = \"4000\""),
            ("ack_s,rtt_ms\n1,600", "less than two"),
            ("ack_s,rtt_ms\n1", "found record with 1 fields"),
        ] {
            let said = read(text.as_bytes()).unwrap_err();
            assert!(said.contains(fault), "{said}");
        }
        assert!(!is_csv("ack_s = 1\nrtt_ms = 2"));
        assert!(!is_csv(""));
    }
}
