// SPDX-License-Identifier: Apache-2.0
//! The JSON that `irtt client -o` writes: see OUTPUT in irtt-client(1), `json_format` 1.
//!
//! All times are in nanoseconds. `lost` is a string in some versions, a boolean in others.
//! `monotonic` is preferred over `wall`, as it is never set. Round trips do not contain
//! the time that the server took, where it stamps its replies.

use super::Limits;
use super::clean::{LOST, Log, Row, recorded, round_trip};
use super::error::{Place, ReadError};
use super::number::{Decimal, Steps};
use super::tap::{Bytes, Tap};
use crate::baseline::Format;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;
use std::io::BufReader;

/// Whether the beginning of a file is that of irtt's JSON.
pub(super) fn recognises(head: &[u8]) -> bool {
    let keys = [&b"\"irtt\""[..], b"\"system_info\"", b"\"round_trips\""];
    head.trim_ascii_start().starts_with(b"{")
        && keys.iter().any(|key| memchr::memmem::find(head, key).is_some())
}

/// Reads one; the second is its SHA-256.
pub(super) fn read(bytes: Bytes<'_>, limits: Limits) -> Result<(Log, String), ReadError> {
    let mut tap = BufReader::with_capacity(1 << 16, Tap::bytes(bytes));
    let mut reader = serde_json::Deserializer::from_reader(&mut tap);
    let most = limits.probes.saturating_add(1);
    let output = Whole { most }.deserialize(&mut reader);
    let output = output.and_then(|output| reader.end().map(|()| output)).map_err(|error| {
        if error.is_io() {
            return ReadError::from(std::io::Error::from(error));
        }
        let cut = if error.is_eof() { "it is cut off: " } else { "" };
        ReadError::Malformed { format: Format::Irtt, problem: format!("{cut}{error}") }
    })?;
    let mut log = Log { place: Place::RoundTrip, limits, ..Log::new(Format::Irtt) };
    limits.check(output.round_trips.len() as u64)?;
    log.interval = output.config.and_then(|config| config.params?.interval);
    log.rows.reserve_exact(output.round_trips.len());
    let monotonic = output.round_trips.iter().all(|trip| trip.sent().monotonic.is_some());
    let trips = output.round_trips.iter();
    let walls = trips.filter_map(|trip| {
        let rtt = trip.delay.rtt.and_then(|rtt| u64::try_from(rtt).ok());
        Some((trip.sent().wall?, rtt.filter(|_| !trip.lost.lost())))
    });
    log.recorded = recorded(walls);
    let mut steps = Steps::new(1_000_000);
    for (index, trip) in (0..).zip(output.round_trips) {
        log.push(trip.row(index, monotonic, &mut steps)?)?;
        if let (false, Some(there), Some(back)) =
            (trip.lost.lost(), trip.delay.send, trip.delay.receive)
        {
            log.there.push(there);
            log.back.push(back);
        }
    }
    log.resolution_ns = steps.step();
    Ok((log, tap.into_inner().sha256()?))
}

struct Output {
    config: Option<Config>,
    round_trips: Vec<RoundTrip>,
}

/// Reads the whole file, of its round trips at most so many: others are skipped.
#[derive(Clone, Copy)]
struct Whole {
    most: usize,
}

impl<'de> DeserializeSeed<'de> for Whole {
    type Value = Output;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Output, D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Whole {
    type Value = Output;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("struct Output")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Output, A::Error> {
        let (mut config, mut round_trips) = (None, None);
        while let Some(key) = map.next_key::<Key>()? {
            match key {
                Key::Config => config = map.next_value()?,
                Key::RoundTrips => round_trips = Some(map.next_value_seed(Trips(self))?),
                Key::Other => _ = map.next_value::<IgnoredAny>()?,
            }
        }
        let round_trips = round_trips.ok_or_else(|| A::Error::missing_field("round_trips"))?;
        Ok(Output { config, round_trips })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Key {
    Config,
    RoundTrips,
    #[serde(other)]
    Other,
}

struct Trips(Whole);

impl<'de> DeserializeSeed<'de> for Trips {
    type Value = Vec<RoundTrip>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Trips {
    type Value = Vec<RoundTrip>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a sequence")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Self::Value, A::Error> {
        let mut trips = Vec::new();
        while trips.len() < self.0.most
            && let Some(trip) = sequence.next_element()?
        {
            trips.push(trip);
        }
        while sequence.next_element::<IgnoredAny>()?.is_some() {}
        Ok(trips)
    }
}

#[derive(Deserialize)]
struct Config {
    params: Option<Params>,
}

#[derive(Deserialize)]
struct Params {
    interval: Option<u64>,
}

#[derive(Clone, Copy, Deserialize)]
struct RoundTrip {
    seqno: u32,
    lost: Lost,
    timestamps: Timestamps,
    #[serde(default)]
    delay: Delay,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(untagged)]
enum Lost {
    Flag(bool),
    Word(Word),
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Word {
    False,
    True,
    TrueUp,
    TrueDown,
}

#[derive(Clone, Copy, Deserialize)]
struct Timestamps {
    client: Client,
}

#[derive(Clone, Copy, Deserialize)]
struct Client {
    send: Stamp,
}

#[derive(Clone, Copy, Deserialize)]
struct Stamp {
    wall: Option<i64>,
    monotonic: Option<i64>,
}

#[derive(Clone, Copy, Default, Deserialize)]
struct Delay {
    rtt: Option<i64>,
    send: Option<i64>,
    receive: Option<i64>,
}

impl Lost {
    fn lost(self) -> bool {
        !matches!(self, Self::Flag(false) | Self::Word(Word::False))
    }
}

impl RoundTrip {
    fn sent(&self) -> Stamp {
        self.timestamps.client.send
    }

    fn row(&self, index: u64, monotonic: bool, steps: &mut Steps) -> Result<Row, ReadError> {
        let place = Place::RoundTrip(index);
        let bad = |problem: &str| ReadError::line(place, problem, self.shown().as_bytes());
        let sent = if monotonic { self.sent().monotonic } else { self.sent().wall };
        let sent_ns = sent.ok_or_else(|| bad("the client's send time is missing"))?;
        let rtt_ns = if self.lost.lost() {
            LOST
        } else {
            let rtt = self.delay.rtt.ok_or_else(|| bad("delay.rtt is missing, and not lost"))?;
            steps.see(Decimal { value: rtt, decimals: 6 });
            round_trip(rtt, place, || format!("{rtt} ns"))?
        };
        Ok(Row { line: index, sequence: u64::from(self.seqno), sent_ns, rtt_ns })
    }

    fn shown(&self) -> String {
        format!("\"seqno\": {}", self.seqno)
    }
}
