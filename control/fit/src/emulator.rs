// SPDX-License-Identifier: Apache-2.0
//! Whether the emulator was itself late when a log was recorded over it.
//!
//! A log has round-trip times, but not what delayed them. The emulator's certificate of the run
//! (written by `linkctl -o json certificate`, or by the pytest plugin as `….certificate.json`) says
//! whether the emulator was late. A log is refused if its certificate fails, or if the certificate
//! is of another run, judged by the wall clocks of both hosts.

use std::io;
use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use proto::linkemu::v1 as pb;

use crate::baseline::Baseline;
use crate::read::Input;

/// How far the wall clocks of the prober and of the emulator may be apart.
const CLOCKS: SignedDuration = SignedDuration::from_secs(10);

/// Remark on a log without a certificate.
pub const UNKNOWN: &str = "whether an emulator was in the path of the log and was itself late is \
                           unknown: if there was one, the certificate of that run tells";

/// Why a certificate does not vouch for a log.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    #[error("cannot read {name}: {source}")]
    Io { name: String, source: io::Error },
    /// Published figures are not of a run of the emulator.
    #[error("published figures are of no run: a certificate is for a log")]
    Published,
    #[error("{name} is not the certificate of a run ({problem}): linkctl -o json certificate")]
    Malformed {
        name: String,
        /// Reason why it is no certificate.
        problem: String,
    },
    /// A criterion does not hold.
    #[error(
        "{name}: the emulator may itself have been the bottleneck of the run ({failed}), so its log \
         is not that of a link: record it again"
    )]
    Failed {
        name: String,
        /// The criteria that do not hold.
        failed: String,
    },
    /// It is of another time than the log.
    #[error(
        "{name} is of {} to {}, and {log} of {} to {}: give the certificate of the run in which the \
         log was recorded, marked before its first probe (linkctl stats --mark)",
        run[0], run[1], recorded[0], recorded[1]
    )]
    Elsewhen {
        name: String,
        log: String,
        /// From the mark to the certificate.
        run: [Timestamp; 2],
        /// From the first probe to the last.
        recorded: [Timestamp; 2],
    },
}

/// Checks that a certificate passes and is of the run in which the log was recorded, and adds it to
/// the log.
///
/// # Errors
/// [`CertificateError`]; the log is unchanged then.
pub fn certify(input: &mut Input, path: &Path) -> Result<(), CertificateError> {
    if let Input::Summary(_) = input {
        return Err(CertificateError::Published);
    }
    let name = path.display().to_string();
    let text = std::fs::read(path)
        .map_err(|source| CertificateError::Io { name: name.clone(), source })?;
    certify_with(input, &name, &text)
}

/// As [`certify`], with the text of a certificate that is called `name`.
///
/// # Errors
/// [`CertificateError`]; the log is unchanged then.
pub fn certify_with(input: &mut Input, name: &str, text: &[u8]) -> Result<(), CertificateError> {
    let Input::Log(log) = input else { return Err(CertificateError::Published) };
    log.emulator = Some(vouch(log, name, text)?);
    Ok(())
}

/// The remark for a log with a certificate of this text.
fn vouch(log: &Baseline, name: &str, text: &[u8]) -> Result<String, CertificateError> {
    let name = name.to_owned();
    let certificate: pb::Certificate = match proto::from_json(text) {
        Ok(certificate) => certificate,
        Err(error) => {
            return Err(CertificateError::Malformed { name, problem: error.to_string() });
        }
    };
    let criteria = || certificate.criteria.iter();
    let failed: Vec<String> = criteria().filter(|c| !c.holds).map(|c| c.text.clone()).collect();
    let Some(late) = criteria().find(|c| c.name == "lateness_p99") else {
        let problem = "it has no lateness_p99".to_owned();
        return Err(CertificateError::Malformed { name, problem });
    };
    if !certificate.holds || !failed.is_empty() {
        return Err(CertificateError::Failed { name, failed: failed.join("; ") });
    }
    let time = |at: prost_types::Timestamp| Timestamp::new(at.seconds, at.nanos).ok();
    let since = certificate.span.as_ref().and_then(|span| span.since_utc).and_then(time);
    let run = since.zip(certificate.until_utc.and_then(time));
    let same = match (run, log.recorded) {
        (Some((since, until)), Some(recorded)) => {
            let covered = recorded[0].duration_since(since) >= -CLOCKS
                && until.duration_since(recorded[1]) >= -CLOCKS;
            if !covered {
                let (log, run) = (log.source.name.clone(), [since, until]);
                return Err(CertificateError::Elsewhen { name, log, run, recorded });
            }
            ""
        }
        _ => "; that it is of the same run is not known, for one of both does not say when it was",
    };
    Ok(format!("the certificate of the emulator ({name}) passes: {}{same}", late.text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baseline::Series;

    fn log(recorded: Option<[&str; 2]>) -> Baseline {
        let recorded = recorded.map(|times| times.map(|time| time.parse().unwrap()));
        Baseline { recorded, ..Baseline::regular("link.csv", 1, Series::default()) }
    }

    /// Certificate of a run from 12:00 to 13:00.
    fn certificate(all_hold: bool, late_ns: u64) -> String {
        let holds = late_ns <= 1_000_000;
        format!(
            "{{\"holds\": {all_hold}, \"span\": {{\"since_utc\": \"2026-01-01T12:00:00Z\", \
             \"marked\": true}}, \"until_utc\": \"2026-01-01T13:00:00.000000000Z\", \"criteria\": \
             [{{\"name\": \"lateness_p99\", \"value\": {late_ns}, \"limit\": \"1000000\", \
             \"text\": \"lateness_p99 {late_ns} ns, at most 1 ms\", \"holds\": {holds}}}]}}"
        )
    }

    fn vouched(recorded: Option<[&str; 2]>, certificate: &str) -> Result<String, String> {
        vouch(&log(recorded), "run.json", certificate.as_bytes()).map_err(|e| e.to_string())
    }

    #[test]
    fn passing_run_vouches_for_its_log() {
        let within = Some(["2026-01-01T12:00:01Z", "2026-01-01T12:59:59Z"]);
        let said = vouched(within, &certificate(true, 20_000)).unwrap();
        let expected = "the certificate of the emulator (run.json) passes: lateness_p99 20000 ns, at \
                        most 1 ms";
        assert_eq!(said, expected);
        // The clocks of two hosts.
        let near = Some(["2026-01-01T11:59:51Z", "2026-01-01T13:00:09Z"]);
        assert_eq!(vouched(near, &certificate(true, 20_000)).unwrap(), expected);
        let said = vouched(None, &certificate(true, 20_000)).unwrap();
        assert!(said.contains("that it is of the same run is not known"), "{said}");
    }

    #[test]
    fn failing_run_is_refused_with_its_criteria() {
        let said = vouched(None, &certificate(false, 3_200_000)).unwrap_err();
        assert!(said.contains("(lateness_p99 3200000 ns, at most 1 ms)"), "{said}");
        // Independent of the verdict.
        assert!(vouched(None, &certificate(true, 3_200_000)).is_err());
        assert!(vouched(None, &certificate(false, 20_000)).is_err());
    }

    #[test]
    fn certificate_of_another_time_is_refused_with_both_times() {
        for recorded in [
            ["2026-01-01T11:59:49Z", "2026-01-01T12:30:00Z"],
            ["2026-01-01T12:30:00Z", "2026-01-01T13:00:11Z"],
        ] {
            let said = vouched(Some(recorded), &certificate(true, 20_000)).unwrap_err();
            for time in [recorded[0], recorded[1], "2026-01-01T12:00:00Z", "2026-01-01T13:00:00Z"] {
                assert!(said.contains(time), "{said}");
            }
        }
    }

    #[test]
    fn other_file_is_not_read_as_certificate() {
        for text in ["", "{}", "[1]", &certificate(true, 1).replace("lateness_p99", "stall")] {
            let said = vouched(None, text).unwrap_err();
            assert!(said.starts_with("run.json is not the certificate of a run ("), "{said}");
        }
    }
}
