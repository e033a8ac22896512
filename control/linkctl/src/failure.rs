// SPDX-License-Identifier: Apache-2.0
//! Failures as text, JSON and exit code.

use crate::denied::{self, DENIED};
use profile::{FileError, Place, Violation, Violations};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use tonic::{Code, Status};
use tonic_types::StatusExt;

pub const OK: u8 = 0;
pub const FAILED: u8 = 1;
/// The arguments cannot be understood.
pub const USAGE: u8 = 2;
/// linkd, or its dataplane, cannot be reached.
pub const UNREACHABLE: u8 = 3;
/// A check did not hold.
pub const CHECK: u8 = 4;
/// A check could not be decided: it neither held nor did not.
pub const UNDECIDED: u8 = 5;

/// The reason of a refusal that a link needs more memory or time than there is.
const OUTSIDE_ENVELOPE: &str = "OUTSIDE_ENVELOPE";

/// Why a command did not do what it should.
#[derive(Debug)]
pub enum Failure {
    Told(Box<Report>),
    /// Exit code of a command that was run for the user; it printed its own error.
    Command(u8),
    /// The reader of the output is gone, which is no error.
    Closed,
}

#[derive(Debug)]
pub struct Report {
    exit: u8,
    code: &'static str,
    message: String,
    hints: Vec<String>,
    violations: Vec<Violation>,
    details: BTreeMap<String, Value>,
}

/// A broken rule in JSON.
#[derive(Debug, Serialize)]
pub struct ViolationView<'a> {
    field: &'a str,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    column: Option<usize>,
}

impl<'a> From<&'a Violation> for ViolationView<'a> {
    fn from(violation: &'a Violation) -> Self {
        let Violation { path, message, place } = violation;
        let (line, column) = place.map(|Place { line, column }| (line, column)).unzip();
        Self { field: path, message, line, column }
    }
}

#[derive(Serialize)]
struct View<'a> {
    code: &'a str,
    message: &'a str,
    hints: &'a [String],
    violations: Vec<ViolationView<'a>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    details: &'a BTreeMap<String, Value>,
}

#[derive(Serialize)]
struct Envelope<'a> {
    error: View<'a>,
}

impl From<FileError> for Failure {
    fn from(error: FileError) -> Self {
        match error {
            FileError::Io { .. } => Self::failed("io", error.to_string()),
            FileError::Invalid { path, fault, violations } => {
                Self::invalid(format!("{path} {fault}"), violations)
            }
        }
    }
}

impl Failure {
    fn new(exit: u8, code: &'static str, message: impl Into<String>) -> Self {
        Self::Told(Box::new(Report {
            exit,
            code,
            message: message.into(),
            hints: Vec::new(),
            violations: Vec::new(),
            details: BTreeMap::new(),
        }))
    }

    pub fn failed(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(FAILED, code, message)
    }

    /// The arguments cannot be understood.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(USAGE, "usage", message)
    }

    /// A check did not hold.
    pub fn check(message: impl Into<String>) -> Self {
        Self::new(CHECK, "check_failed", message)
    }

    /// A check could not be decided.
    pub fn undecided(message: impl Into<String>) -> Self {
        Self::new(UNDECIDED, "undecided", message)
    }

    pub fn unreachable(socket: &Path, why: &str) -> Self {
        let (place, socket) = (socket, socket.display());
        let message = format!("cannot reach linkd at {socket}: {why}");
        let failure = Self::new(UNREACHABLE, "unreachable", message);
        if why == DENIED {
            return failure.hint(denied::remedy(place));
        }
        failure
            .hint(format!("is it running? start it: linkd --socket {socket}"))
            .hint("is it elsewhere? give --socket PATH, or set LINKEMU_SOCKET")
    }

    /// linkd cannot be reached over the network, or one side does not believe the other.
    pub fn unreachable_over(server: &str, why: &str) -> Self {
        Self::new(UNREACHABLE, "unreachable", format!("cannot reach linkd at {server}: {why}"))
    }

    /// A profile that breaks rules.
    pub fn invalid(message: impl Into<String>, violations: Violations) -> Self {
        let mut failure = Self::new(FAILED, "invalid_argument", message);
        if let Self::Told(report) = &mut failure {
            report.violations = violations.into_iter().collect();
        }
        failure
    }

    pub fn status(status: &Status) -> Self {
        let (exit, code) = match status.code() {
            Code::Unavailable => (UNREACHABLE, "unavailable"),
            Code::DeadlineExceeded => (UNREACHABLE, "deadline_exceeded"),
            Code::InvalidArgument => (FAILED, "invalid_argument"),
            Code::NotFound => (FAILED, "not_found"),
            Code::AlreadyExists => (FAILED, "already_exists"),
            Code::DataLoss => (FAILED, "data_loss"),
            Code::Aborted => (FAILED, "aborted"),
            Code::FailedPrecondition => (FAILED, "failed_precondition"),
            Code::ResourceExhausted => (FAILED, "resource_exhausted"),
            Code::PermissionDenied => (FAILED, "permission_denied"),
            Code::Unauthenticated => (FAILED, "unauthenticated"),
            Code::Unimplemented => (FAILED, "unimplemented"),
            Code::OutOfRange => (FAILED, "out_of_range"),
            _ => (FAILED, "internal"),
        };
        let mut failure = Self::new(exit, code, status.message());
        if let (Self::Told(report), Some(bad)) = (&mut failure, status.get_details_bad_request()) {
            let fields = bad.field_violations.into_iter();
            report.violations = fields
                .map(|v| Violation { path: v.field, message: v.description, place: None })
                .collect();
        }
        match status.get_details_error_info() {
            Some(info) if info.reason == OUTSIDE_ENVELOPE => {
                let number = |text: String| text.parse::<u64>().map_or(text.into(), Value::from);
                let details = info.metadata.into_iter().map(|(name, n)| (name, number(n)));
                failure.detailed(details).hint("what can be held: linkctl envelope")
            }
            _ => failure,
        }
    }

    pub fn detailed(mut self, details: impl IntoIterator<Item = (String, Value)>) -> Self {
        if let Self::Told(report) = &mut self {
            report.details.extend(details);
        }
        self
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        if let Self::Told(report) = &mut self {
            report.hints.push(hint.into());
        }
        self
    }

    /// The same with another exit code.
    pub fn with_exit(mut self, exit: u8) -> Self {
        if let Self::Told(report) = &mut self {
            report.exit = exit;
        }
        self
    }

    /// Whether a link was refused for lack of memory or time.
    pub fn is_outside_envelope(&self) -> bool {
        matches!(self, Self::Told(report) if !report.details.is_empty())
    }

    /// Whether something was asked for that does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Told(report) if report.code == "not_found")
    }

    /// The same without hints.
    pub fn without_hints(mut self) -> Self {
        if let Self::Told(report) = &mut self {
            report.hints.clear();
        }
        self
    }

    pub fn message(&self) -> &str {
        match self {
            Self::Told(report) => &report.message,
            Self::Command(_) | Self::Closed => "",
        }
    }

    /// Prints the failure as text or JSON, and returns the exit code.
    pub fn report(&self, as_json: bool) -> ExitCode {
        let report = match self {
            Self::Told(report) => report,
            Self::Command(code) => return ExitCode::from(*code),
            Self::Closed => return ExitCode::from(OK),
        };
        let text = if as_json { report.json() } else { report.text() };
        // Without stderr the message cannot be shown.
        let _ = writeln!(std::io::stderr(), "{text}");
        ExitCode::from(report.exit)
    }
}

impl Report {
    fn text(&self) -> String {
        let mut lines = vec![format!("error: {}", self.message)];
        // A single one is in the message.
        if self.violations.len() > 1 || self.violations.iter().any(|v| v.place.is_some()) {
            lines.extend(self.violations.iter().map(|violation| format!("  {violation}")));
        }
        lines.extend(self.hints.iter().map(|hint| format!("hint: {hint}")));
        lines.join("\n")
    }

    fn json(&self) -> String {
        let violations = self.violations.iter().map(ViolationView::from).collect();
        let Self { code, message, hints, details, .. } = self;
        let error = View { code, message, hints, violations, details };
        // Strings and numbers only.
        serde_json::to_string(&Envelope { error }).unwrap_or_default()
    }
}
