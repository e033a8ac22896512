// SPDX-License-Identifier: Apache-2.0
//! Copies as a pcapng file.
//!
//! Format: draft-ietf-opsawg-pcapng. Big-endian, because `pcap-file` writes the times of
//! interface statistics as one integer of 64 bits, which the format has as two of 32, the
//! upper one first: only so are they the same. Times are nanoseconds since 1970 in UTC, by
//! one offset from the dataplane's clock for the whole file: a step of the wall clock does
//! not change the time that a packet took.

use crate::order::{Order, Packet};
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::blocks::interface_statistics::{
    InterfaceStatisticsBlock, InterfaceStatisticsOption,
};
use pcap_file::pcapng::blocks::section_header::{SectionHeaderBlock, SectionHeaderOption};
use pcap_file::pcapng::{Block, PcapNgReader, PcapNgWriter};
use pcap_file::{DataLink, Endianness, PcapError};
use proto::linkemu::v1 as pb;
use serde::Serialize;
use std::borrow::Cow;
use std::fmt;
use std::io::{self, BufWriter, Write};
use std::net::IpAddr;
use std::time::Duration;

/// A file with one packet that has nothing but an `epb_packetid`. `pcap-file` reads and writes
/// options that it does not know, and has no way to make one: so it reads this one.
#[rustfmt::skip]
const WITH_PACKET_ID: [u8; 96] = [
    // Section, without options.
    0x0a, 0x0d, 0x0d, 0x0a, 0, 0, 0, 28, 0x1a, 0x2b, 0x3c, 0x4d, 0, 1, 0, 0,
    255, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 28,
    // Interface, with the same layout.
    0, 0, 0, 1, 0, 0, 0, 20, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 20,
    // Packet: interface, time, lengths, the option 5 of 8 bytes, the end of options.
    0, 0, 0, 6, 0, 0, 0, 48, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0, 5, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 48,
];
/// `epb_flags`: which way it went through the interface.
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;

/// The points of each direction, in the order of their interfaces.
const POINTS: [pb::CapturePoint; 4] = [
    pb::CapturePoint::Ingress,
    pb::CapturePoint::Egress,
    pb::CapturePoint::Dropped,
    pb::CapturePoint::Marked,
];

/// Why packets cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    #[error("cannot write the packets: {0}")]
    Io(#[from] io::Error),
    #[error("cannot write the packets: {0}")]
    Format(PcapError),
    #[error("a packet is of a direction and a point that the capture does not have: {0}")]
    Unannounced(String),
}

impl From<PcapError> for CaptureError {
    fn from(error: PcapError) -> Self {
        match error {
            PcapError::IoError(error) => Self::Io(error),
            error => Self::Format(error),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    pub received: u64,
    pub sent: u64,
    pub marked: u64,
    pub dropped: u64,
    /// Packets that were not read in time, over all filters.
    pub missed: u64,
}

/// One interface of the file.
#[derive(Debug)]
struct Interface {
    /// Place of its box; zero without boxes.
    place: u32,
    direction: pb::Direction,
    point: pb::CapturePoint,
    written: u64,
    missed: u64,
}

/// Writes the chunks of a capture.
pub struct Writer<W: Write> {
    out: Option<BufWriter<W>>,
    file: Option<PcapNgWriter<BufWriter<W>>>,
    application: &'static str,
    /// Unspecified: both.
    direction: pb::Direction,
    order: Order,
    start: Option<pb::CaptureStart>,
    interfaces: Vec<Interface>,
    counts: [Counts; 2],
    packet_id: Option<EnhancedPacketOption<'static>>,
    /// On the dataplane's clock.
    last_ns: u64,
    /// By place.
    parts: Vec<Part>,
}

/// A box of a group in the file.
#[derive(Clone, Debug, Default)]
struct Part {
    name: String,
    /// The largest bound of the error of its times, in nanoseconds.
    clock_error_ns: u64,
    lost: Option<Lost>,
}

/// A box that stopped answering during the capture. The file has none of its later packets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Lost {
    #[serde(rename = "box")]
    pub name: String,
    /// Since the start of the capture.
    pub after_ns: u64,
    /// Why.
    pub message: String,
}

impl<W: Write> Writer<W> {
    /// A capture of `direction`; unspecified: of both. The file names `application` as its writer.
    pub fn new(out: W, application: &'static str, direction: pb::Direction) -> Self {
        Self {
            application,
            direction,
            order: Order::default(),
            out: Some(BufWriter::new(out)),
            file: None,
            start: None,
            interfaces: Vec::new(),
            counts: Default::default(),
            packet_id: packet_id(),
            last_ns: 0,
            parts: Vec::new(),
        }
    }

    /// Start message of the capture, once received.
    pub fn started(&self) -> Option<&pb::CaptureStart> {
        self.start.as_ref()
    }

    pub fn counts(&self) -> &[Counts; 2] {
        &self.counts
    }

    /// Boxes that stopped answering during the capture.
    pub fn lost(&self) -> impl Iterator<Item = &Lost> {
        self.parts.iter().filter_map(|part| part.lost.as_ref())
    }

    /// Largest bound of the error of a time on the group's clock, in nanoseconds; none without boxes.
    pub fn clock_error_ns(&self) -> Option<u64> {
        self.parts.iter().map(|part| part.clock_error_ns).max()
    }

    pub fn copies(&self) -> u64 {
        self.interfaces.iter().map(|i| i.written).sum()
    }

    /// Takes a chunk, and writes and flushes the packets that no later chunk can precede.
    ///
    /// # Errors
    /// If it cannot be written, or its packets are not of the capture.
    pub fn chunk(&mut self, mut chunk: pb::CaptureChunk) -> Result<(), CaptureError> {
        if let Some(start) = chunk.start.take() {
            self.start(start)?;
        }
        self.note(&chunk);
        self.order.take(chunk);
        while let Some(packet) = self.order.ready() {
            self.packet(&packet)?;
        }
        self.flush()
    }

    /// Writes the blocks before the packets.
    fn start(&mut self, start: pb::CaptureStart) -> Result<(), CaptureError> {
        let Some(out) = self.out.take() else { return Ok(()) };
        let pb::CaptureStart { profile, generation, time_ns, snaplen, .. } = &start;
        let whose = if start.boxes.is_empty() { "dataplane" } else { "group" };
        let comment = format!(
            "linkemu: profile {profile}, generation {generation}; began at {time_ns} ns of the \
             {whose}'s clock"
        );
        let section = SectionHeaderBlock {
            endianness: Endianness::Big,
            options: vec![
                SectionHeaderOption::Comment(Cow::Owned(comment)),
                SectionHeaderOption::UserApplication(Cow::Borrowed(self.application)),
            ],
            ..SectionHeaderBlock::default()
        };
        let mut file = PcapNgWriter::with_section_header(out, section)?;
        let directions: &[_] = match self.direction {
            pb::Direction::Forward => &[pb::Direction::Forward],
            pb::Direction::Return => &[pb::Direction::Return],
            pb::Direction::Unspecified => &[pb::Direction::Forward, pb::Direction::Return],
        };
        // Without boxes one without a name.
        let boxes = start.boxes.iter().map(Some).chain(start.boxes.is_empty().then_some(None));
        for (place, box_) in (0..).zip(boxes) {
            for direction in directions {
                for point in POINTS {
                    let (mut name, description) = names(*direction, point);
                    if let Some(box_) = box_ {
                        name = format!("{name}.{box_}");
                    }
                    let block = InterfaceDescriptionBlock {
                        linktype: DataLink::ETHERNET,
                        snaplen: *snaplen,
                        options: vec![
                            InterfaceDescriptionOption::IfName(Cow::Owned(name)),
                            InterfaceDescriptionOption::IfDescription(Cow::Borrowed(description)),
                            InterfaceDescriptionOption::IfTsResol(9),
                        ],
                    };
                    file.write_pcapng_block(block)?;
                    let direction = *direction;
                    self.interfaces.push(Interface {
                        place,
                        direction,
                        point,
                        written: 0,
                        missed: 0,
                    });
                }
            }
        }
        let part = |name: &String| Part { name: name.clone(), ..Part::default() };
        self.parts = start.boxes.iter().map(part).collect();
        self.last_ns = start.time_ns;
        self.file = Some(file);
        self.start = Some(start);
        Ok(())
    }

    /// Remembers what a chunk says beside its packets.
    fn note(&mut self, chunk: &pb::CaptureChunk) {
        self.last_ns = self.last_ns.max(chunk.time_ns);
        for missed in &chunk.missed {
            let key = (chunk.box_index, missed.direction(), missed.point());
            if let Some(i) = self.interfaces.iter_mut().find(|i| i.key() == key) {
                i.missed = missed.copies;
            }
        }
        let began_ns = self.start.as_ref().map_or(0, |start| start.time_ns);
        if let Some(part) = self.parts.get_mut(chunk.box_index as usize) {
            part.clock_error_ns = part.clock_error_ns.max(chunk.clock_error_ns);
            if let Some(pb::CaptureLost { time_ns, message }) = &chunk.lost {
                part.lost = Some(Lost {
                    name: part.name.clone(),
                    after_ns: time_ns.saturating_sub(began_ns),
                    message: message.clone(),
                });
            }
        }
        for (counts, direction) in self.counts.iter_mut().zip(directions()) {
            let of = self.interfaces.iter().filter(|i| i.direction == direction);
            counts.missed = of.map(|i| i.missed).sum();
        }
    }

    fn packet(&mut self, packet: &Packet) -> Result<(), CaptureError> {
        let Packet { copy, client, place, .. } = packet;
        let key = (*place, copy.direction(), copy.point());
        let of = self.interfaces.iter().position(|i| i.key() == key);
        let (Some(id), Some(start), Some(file)) = (of, &self.start, &mut self.file) else {
            return Err(CaptureError::Unannounced(format!("{key:?}")));
        };
        let mut options = Vec::new();
        let comment = comment(copy, client);
        if !comment.is_empty() {
            options.push(EnhancedPacketOption::Comment(Cow::Owned(comment)));
        }
        match copy.point() {
            pb::CapturePoint::Ingress => options.push(EnhancedPacketOption::Flags(INBOUND)),
            pb::CapturePoint::Egress => options.push(EnhancedPacketOption::Flags(OUTBOUND)),
            _ => {}
        }
        if let Some(EnhancedPacketOption::Unknown(mut id)) = self.packet_id.clone()
            && copy.number > 0
        {
            id.value = Cow::Owned(copy.number.to_be_bytes().to_vec());
            options.push(EnhancedPacketOption::Unknown(id));
        }
        let block = EnhancedPacketBlock {
            interface_id: id as u32,
            timestamp: utc(start, copy.time_ns),
            original_len: copy.length,
            data: Cow::Borrowed(&copy.data),
            options,
        };
        file.write_pcapng_block(block)?;
        self.interfaces[id].written += 1;
        let counts = &mut self.counts[usize::from(copy.direction() == pb::Direction::Return)];
        match copy.point() {
            pb::CapturePoint::Ingress => counts.received += 1,
            pb::CapturePoint::Egress => counts.sent += 1,
            pb::CapturePoint::Marked => counts.marked += 1,
            _ => counts.dropped += 1,
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), CaptureError> {
        match &mut self.file {
            Some(file) => Ok(file.get_mut().flush()?),
            None => Ok(()),
        }
    }

    /// Writes the remaining packets, and the blocks after them.
    ///
    /// # Errors
    /// As [`Self::chunk`].
    pub fn end(&mut self) -> Result<(), CaptureError> {
        while let Some(packet) = self.order.pop() {
            self.packet(&packet)?;
        }
        let (Some(start), Some(file)) = (&self.start, &mut self.file) else { return Ok(()) };
        let nanos = |at| u64::try_from(utc(start, at).as_nanos()).unwrap_or(u64::MAX);
        for (id, interface) in self.interfaces.iter().enumerate() {
            let Interface { written, missed, place, .. } = interface;
            let part = self.parts.get(*place as usize);
            let lost = part.and_then(|part| part.lost.as_ref());
            let end_ns = lost.map_or(self.last_ns, |lost| start.time_ns + lost.after_ns);
            let mut options = vec![
                InterfaceStatisticsOption::IsbStartTime(nanos(start.time_ns)),
                InterfaceStatisticsOption::IsbEndTime(nanos(end_ns)),
                InterfaceStatisticsOption::IsbIfRecv(written + missed),
                InterfaceStatisticsOption::IsbIfDrop(*missed),
            ];
            options.extend(
                part.map(|part| InterfaceStatisticsOption::Comment(Cow::Owned(part.comment()))),
            );
            let block = InterfaceStatisticsBlock {
                interface_id: id as u32,
                timestamp: nanos(self.last_ns),
                options,
            };
            file.write_pcapng_block(block)?;
        }
        self.flush()
    }
}

impl Interface {
    fn key(&self) -> (u32, pb::Direction, pb::CapturePoint) {
        (self.place, self.direction, self.point)
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, after_ns, message } = self;
        let after = Duration::from_nanos(*after_ns).as_secs_f64();
        write!(
            f,
            "packets of box {name} are missing from {after:.3} s after the start on: {message}"
        )
    }
}

impl Part {
    fn comment(&self) -> String {
        let Self { name, clock_error_ns, lost } = self;
        let mut text =
            format!("times of box {name}: within {clock_error_ns} ns of the group's clock");
        if let Some(lost) = lost {
            text += &format!("; {lost}");
        }
        text
    }
}

/// The option of [`WITH_PACKET_ID`].
fn packet_id() -> Option<EnhancedPacketOption<'static>> {
    let mut reader = PcapNgReader::new(&WITH_PACKET_ID[..]).ok()?;
    while let Some(Ok(block)) = reader.next_block() {
        if let Block::EnhancedPacket(packet) = block.into_owned() {
            return packet.options.into_iter().next();
        }
    }
    None
}

fn directions() -> [pb::Direction; 2] {
    [pb::Direction::Forward, pb::Direction::Return]
}

/// The name of an interface, and what it is.
fn names(direction: pb::Direction, point: pb::CapturePoint) -> (String, &'static str) {
    let forward = direction == pb::Direction::Forward;
    let (end, description) = match (point, forward) {
        (pb::CapturePoint::Ingress, true) => ("in", "towards the client, received at port wan"),
        (pb::CapturePoint::Ingress, false) => ("in", "from the client, received at port client"),
        (pb::CapturePoint::Egress, true) => ("out", "towards the client, sent at port client"),
        (pb::CapturePoint::Egress, false) => ("out", "from the client, sent at port wan"),
        (pb::CapturePoint::Marked, true) => ("mark", "towards the client, marked by the AQM"),
        (pb::CapturePoint::Marked, false) => ("mark", "from the client, marked by the AQM"),
        (_, true) => ("drop", "towards the client, dropped"),
        (_, false) => ("drop", "from the client, dropped"),
    };
    (format!("{}-{end}", if forward { "forward" } else { "return" }), description)
}

/// Text for the properties that the bytes do not contain.
fn comment(copy: &pb::CapturedPacket, client: &str) -> String {
    let mut words = Vec::new();
    match copy.point() {
        pb::CapturePoint::Dropped => {
            let reason = copy.reason().as_str_name();
            let reason = reason.strip_prefix("DROP_REASON_").unwrap_or(reason);
            words.push(format!("dropped: {}", reason.to_lowercase()));
        }
        pb::CapturePoint::Marked => words.push("marked: congestion experienced".to_owned()),
        _ => {}
    }
    if copy.number == 0 {
        words.push("received before the capture began".to_owned());
    }
    // For all other packets the address is in the packet.
    if client.parse::<IpAddr>().is_err() {
        words.push(format!("client: {client}"));
    }
    words.join("; ")
}

/// Since 1970.
fn utc(start: &pb::CaptureStart, time_ns: u64) -> Duration {
    let utc = start.utc.unwrap_or_default();
    let seconds = u64::try_from(utc.seconds).unwrap_or(0);
    let base = Duration::new(seconds, u32::try_from(utc.nanos).unwrap_or(0));
    match time_ns.checked_sub(start.time_ns) {
        Some(after) => base.saturating_add(Duration::from_nanos(after)),
        None => base.saturating_sub(Duration::from_nanos(start.time_ns - time_ns)),
    }
}
