// SPDX-License-Identifier: Apache-2.0
//! Files of TCP traffic: published figures, iperf3's JSON, captures, or round trips over time.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Cursor, Read};
use std::path::{Path, PathBuf};

use trace::tap::{Bytes, Tap};

use super::flow::{Algorithm, Flow};
use super::observation::{Observation, Origin};
use super::{acknowledgements, iperf, pcap, summary};

/// Bytes of the longest text.
const TEXT: u64 = 256 << 20;
/// Beginnings of captures: microseconds and nanoseconds in either order of bytes.
const CAPTURES: [[u8; 4]; 4] = [
    [0xd4, 0xc3, 0xb2, 0xa1],
    [0xa1, 0xb2, 0xc3, 0xd4],
    [0x4d, 0x3c, 0xb2, 0xa1],
    [0xa1, 0xb2, 0x3c, 0x4d],
];
/// Beginning of the next generation of captures.
const PCAPNG: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

/// Why a file of traffic cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TrafficError {
    #[error("cannot read {name}: {source}")]
    Io { name: String, source: std::io::Error },
    #[error("{name} is longer than 256 MiB: give a part of it")]
    Long { name: String },
    #[error("{name} is no {format} that can be used: {problem}")]
    Malformed { name: String, format: &'static str, problem: String },
    #[error(
        "{name} is neither published figures (TOML), nor iperf3's JSON (-J), nor a pcap, nor round \
         trips (CSV with ack_s and rtt_ms)"
    )]
    Unknown { name: String },
    #[error("{name} does not name its congestion control: give it as cubic:{name} or bbr:{name}")]
    Unnamed { name: String },
    #[error("{name} is of {found}, and {given} was stated: leave that out")]
    Contradicted { name: String, found: Algorithm, given: Algorithm },
}

/// A file, and its congestion control where the file does not name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrafficFile {
    pub path: PathBuf,
    pub algorithm: Option<Algorithm>,
}

impl std::str::FromStr for TrafficFile {
    type Err = std::convert::Infallible;

    /// `FILE`, `cubic:FILE` or `bbr:FILE`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let named = text.split_once(':').and_then(|(name, path)| {
            Some(Self { path: path.into(), algorithm: Some(name.parse().ok()?) })
        });
        Ok(named.unwrap_or_else(|| Self { path: text.into(), algorithm: None }))
    }
}

/// Reads files. Measured flows with the same congestion control become one observation. Returns
/// remarks on the files too.
///
/// # Errors
/// [`TrafficError`] of the first file that cannot be used.
pub fn read(files: &[TrafficFile]) -> Result<(Vec<Observation>, Vec<String>), TrafficError> {
    let (mut observations, mut remarks) = (Vec::new(), Vec::new());
    let mut flows: BTreeMap<Algorithm, (Vec<Origin>, Vec<Flow>)> = BTreeMap::new();
    for file in files {
        let name = file.path.display().to_string();
        match read_file(&file.path, &name)? {
            Content::Figures(mut figures) => {
                let unlike = figures.iter().map(Observation::algorithm);
                let unlike =
                    file.algorithm.zip(unlike.clone().find(|a| Some(*a) != file.algorithm));
                if let Some((given, found)) = unlike {
                    return Err(TrafficError::Contradicted { name, found, given });
                }
                observations.append(&mut figures);
            }
            Content::Flow { flow, algorithm, origin, remark } => {
                let algorithm = match (algorithm, file.algorithm) {
                    (Some(found), Some(given)) if found != given => {
                        return Err(TrafficError::Contradicted { name, found, given });
                    }
                    (Some(algorithm), _) | (None, Some(algorithm)) => algorithm,
                    (None, None) => return Err(TrafficError::Unnamed { name }),
                };
                remarks.extend(remark.map(|remark| format!("{name}: {remark}")));
                let (origins, all) = flows.entry(algorithm).or_default();
                origins.push(origin);
                all.push(flow);
            }
        }
    }
    let measured = flows.into_iter();
    observations
        .extend(measured.map(|(a, (origins, all))| Observation::of_flows(origins, a, &all)));
    Ok((observations, remarks))
}

enum Content {
    Figures(Vec<Observation>),
    Flow { flow: Flow, algorithm: Option<Algorithm>, origin: Origin, remark: Option<String> },
}

fn read_file(path: &Path, name: &str) -> Result<Content, TrafficError> {
    let io = |source| TrafficError::Io { name: name.to_owned(), source };
    let mut file = BufReader::with_capacity(1 << 20, File::open(path).map_err(io)?);
    let mut head = [0; 4];
    let n = read_up_to(&mut file, &mut head).map_err(io)?;
    let malformed =
        |format, problem| TrafficError::Malformed { name: name.into(), format, problem };
    if head == PCAPNG {
        let problem = "it is a pcapng: convert it (editcap -F pcap)".to_owned();
        return Err(malformed("capture", problem));
    }
    let whole: Bytes<'_> = Box::new(Cursor::new(head[..n].to_vec()).chain(file));
    let mut tap = Tap::bytes(whole);
    let file_name = path.file_name().map_or(name.into(), |n| n.to_string_lossy().into_owned());
    if CAPTURES.contains(&head) {
        let (flow, remark) =
            pcap::read(&mut tap).map_err(|problem| malformed("capture", problem))?;
        let origin = Origin { name: file_name, format: "pcap", sha256: tap.sha256().map_err(io)? };
        return Ok(Content::Flow { flow, algorithm: None, origin, remark });
    }
    let mut bytes = Vec::new();
    (&mut tap).take(TEXT + 1).read_to_end(&mut bytes).map_err(io)?;
    if bytes.len() as u64 > TEXT {
        return Err(TrafficError::Long { name: name.into() });
    }
    let sha256 = tap.sha256().map_err(io)?;
    let Ok(text) = std::str::from_utf8(&bytes) else {
        return Err(TrafficError::Unknown { name: name.into() });
    };
    let text = text.trim_start_matches('\u{feff}');
    if text.trim_start().starts_with('{') {
        let read = iperf::read(text.as_bytes());
        let (flow, algorithm) = read.map_err(|problem| malformed("result of iperf3", problem))?;
        let origin = Origin { name: file_name, format: "iperf3", sha256 };
        return Ok(Content::Flow { flow, algorithm, origin, remark: None });
    }
    if acknowledgements::is_csv(text) {
        let flow = acknowledgements::read(text.as_bytes())
            .map_err(|problem| malformed("table of round trips", problem))?;
        let origin = Origin { name: file_name, format: "csv", sha256 };
        return Ok(Content::Flow { flow, algorithm: None, origin, remark: None });
    }
    if text.trim().is_empty() {
        return Err(TrafficError::Unknown { name: name.into() });
    }
    summary::read(text, name, sha256).map(Content::Figures)
}

/// Fills the buffer as far as the file goes.
fn read_up_to(file: &mut impl Read, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut n = 0;
    while n < buffer.len() {
        match file.read(&mut buffer[n..])? {
            0 => break,
            more => n += more,
        }
    }
    Ok(n)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn file(content: &[u8]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(content).unwrap();
        file
    }

    fn named(file: &tempfile::NamedTempFile, prefix: &str) -> TrafficFile {
        format!("{prefix}{}", file.path().display()).parse().unwrap()
    }

    const REVERSE: &[u8] = include_bytes!("iperf/reverse-3.12.json");

    #[test]
    fn flows_of_one_congestion_control_become_one_observation() {
        let flow = file(REVERSE);
        let files = [named(&flow, ""), named(&flow, "cubic:"), named(&flow, "")];
        let (observations, remarks) = read(&files).unwrap();
        let [observation] = &observations[..] else { panic!("{observations:?}") };
        assert_eq!((observation.count, observation.origins.len()), (3, 3));
        assert_eq!(observation.origins[0].sha256.len(), 64);
        assert!(remarks.is_empty());
    }

    #[test]
    fn contradicting_and_missing_names_are_refused() {
        let flow = file(REVERSE);
        let said = read(&[named(&flow, "bbr:")]).unwrap_err().to_string();
        assert!(said.contains("is of cubic, and bbr was stated"), "{said}");
        let figures = file(include_bytes!("../../baselines/viasat2-flows.toml"));
        assert_eq!(read(&[named(&figures, "")]).unwrap().0.len(), 2);
        assert!(read(&[named(&figures, "bbr:")]).is_err());
    }

    #[test]
    fn other_files_are_refused_with_the_remedy() {
        for (content, remedy) in [
            (&b"\x0a\x0d\x0d\x0a...."[..], "editcap"),
            (b"", "neither published figures"),
            (b"\xff\xfe\0\0", "neither published figures"),
            (b"[forward]", "unknown field `forward`"),
            (b"{}", "start.test_start"),
        ] {
            let file = file(content);
            let said = read(&[named(&file, "")]).unwrap_err().to_string();
            assert!(said.contains(remedy), "{said}");
        }
        let absent = TrafficFile { path: "/nowhere/flow.json".into(), algorithm: None };
        assert!(read(&[absent]).unwrap_err().to_string().starts_with("cannot read /nowhere"));
    }

    #[test]
    fn name_before_the_file_is_its_congestion_control() {
        let parse = |text: &str| text.parse::<TrafficFile>().unwrap();
        assert_eq!(parse("bbr:a.pcap").algorithm, Some(Algorithm::Bbr));
        assert_eq!(parse("a:b.pcap").path, PathBuf::from("a:b.pcap"));
    }
}
