// SPDX-License-Identifier: Apache-2.0
//! The log of a run's steps: CSV or JSON lines, one step each, written as they come, so
//! that it can be joined with captures by time.

use crate::failure::Failure;
use proto::linkemu::v1 as pb;
use serde::Serialize;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use view::instant;

/// A step in the log.
#[derive(Debug, Serialize)]
struct Row<'a> {
    run: u64,
    index: u64,
    /// When it took effect, on the dataplane's clock and in UTC.
    time_ns: Option<u64>,
    utc: Option<String>,
    label: &'a str,
    planned_ns: u64,
    planned_utc: Option<String>,
    late_ns: u64,
    generation: Option<u64>,
    message: &'a str,
}

pub struct Log {
    path: PathBuf,
    to: Form,
}

enum Form {
    Csv(Box<csv::Writer<File>>),
    Lines(BufWriter<File>),
}

impl Log {
    /// Creates the file, or truncates an existing one.
    pub fn create(path: &Path) -> Result<Self, Failure> {
        let file = File::create(path).map_err(|error| failed(path, &error))?;
        let json = path.extension().is_some_and(|it| it == "json" || it == "jsonl");
        let to = match json {
            true => Form::Lines(BufWriter::new(file)),
            false => Form::Csv(Box::new(csv::Writer::from_writer(file))),
        };
        Ok(Self { path: path.to_owned(), to })
    }

    /// Writes a step; other events are left out.
    pub fn write(&mut self, event: &pb::Event) -> Result<(), Failure> {
        let Some(step) = &event.scenario_step else { return Ok(()) };
        let row = Row {
            run: step.run,
            index: step.index,
            time_ns: event.time_ns,
            utc: instant::utc(event.utc.as_ref()),
            label: &step.label,
            planned_ns: step.planned_ns,
            planned_utc: instant::utc(step.planned_utc.as_ref()),
            late_ns: step.late_ns,
            generation: event.generation,
            message: &event.message,
        };
        let written = match &mut self.to {
            Form::Csv(csv) => csv.serialize(&row).map_err(|error| error.to_string()),
            Form::Lines(lines) => serde_json::to_writer(&mut *lines, &row)
                .map_err(|error| error.to_string())
                .and_then(|()| lines.write_all(b"\n").map_err(|error| error.to_string())),
        };
        written.and_then(|()| self.flush()).map_err(|error| failed(&self.path, &error))
    }

    fn flush(&mut self) -> Result<(), String> {
        match &mut self.to {
            Form::Csv(csv) => csv.flush(),
            Form::Lines(lines) => lines.flush(),
        }
        .map_err(|error| error.to_string())
    }
}

fn failed(path: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::failed("io", format!("cannot write the log {}: {error}", path.display()))
}
