// SPDX-License-Identifier: Apache-2.0
//! The P4Runtime server's switch: translates its changes for the worker, and waits for the worker.

use std::io::Write;
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use p4runtime::{Change, Count, P4Info, Stalls};
use p4server::Target;
use tonic::Status;

use crate::program::Program;
use crate::worker::{self, Request};

/// Cells that are read at a time: frames wait for 9 to 16 µs.
const CELLS: u32 = 256;

/// The worker, seen from the P4Runtime server.
#[derive(Debug)]
pub struct Switch {
    worker: SyncSender<Request>,
    bell: UnixStream,
    program: Option<(Program, P4Info)>,
}

impl Switch {
    /// `bell`: the other end of the worker's.
    #[must_use]
    pub const fn new(worker: SyncSender<Request>, bell: UnixStream) -> Self {
        Self { worker, bell, program: None }
    }

    fn ask<T>(
        &self,
        request: impl FnOnce(worker::Answer<T>) -> Request,
    ) -> Result<Receiver<Result<T, String>>, Status> {
        let (answer, answered) = sync_channel(1);
        self.worker.send(request(answer)).map_err(|_| gone())?;
        // If it is full, the worker is awake.
        let _ = (&self.bell).write(&[0]);
        Ok(answered)
    }

    fn program(&self) -> Result<&(Program, P4Info), Status> {
        self.program.as_ref().ok_or_else(|| Status::failed_precondition("no program is loaded"))
    }
}

fn gone() -> Status {
    Status::unavailable("the switch ends")
}

/// The worker's answer. `refused`: the status of a request that it refuses.
fn answer<T>(
    answered: &Receiver<Result<T, String>>,
    refused: impl FnOnce(String) -> Status,
) -> Result<T, Status> {
    answered.recv().map_err(|_| gone())?.map_err(refused)
}

impl Target for Switch {
    fn load(&mut self, program: &[u8], info: &P4Info) -> Result<(), Status> {
        let text = std::str::from_utf8(program)
            .map_err(|_| Status::invalid_argument("the program is not a specification for SWX"))?;
        let parsed = Program::parse(text).map_err(|e| Status::invalid_argument(e.to_string()))?;
        let (spec, entries) = (text.to_owned(), parsed.entries.clone());
        let answered = self.ask(|answer| Request::Load { spec, entries, answer })?;
        let tables = answer(&answered, Status::invalid_argument)?;
        let parsed =
            parsed.fit(info, &tables).map_err(|e| Status::invalid_argument(e.to_string()))?;
        self.program = Some((parsed, info.clone()));
        Ok(())
    }

    fn apply(&mut self, changes: &[Change]) -> Result<(), Status> {
        let (program, info) = self.program()?;
        let changes: Vec<_> = changes
            .iter()
            .filter_map(|change| program.change(info, change).transpose())
            .collect::<Result<_, _>>()
            .map_err(|e| Status::invalid_argument(e.to_string()))?;
        if changes.is_empty() {
            return Ok(());
        }
        let answered = self.ask(|answer| Request::Apply { changes, answer })?;
        answer(&answered, Status::resource_exhausted)
    }

    fn counts(&mut self, counter: &str, cells: Range<u64>) -> Result<Vec<Count>, Status> {
        let (program, _) = self.program()?;
        let counter = program.counter(counter);
        let counter = counter.map_err(|e| Status::unimplemented(e.to_string()))?.clone();
        let cell = |cell| u32::try_from(cell).map_err(|_| Status::out_of_range("no such cell"));
        let (mut next, end) = (cell(cells.start)?, cell(cells.end)?);
        let mut counts = Vec::with_capacity((end - next) as usize);
        while next < end {
            let cells = next..end.min(next + CELLS);
            next = cells.end;
            let counter = counter.clone();
            let answered = self.ask(|answer| Request::Counts { counter, cells, answer })?;
            counts.extend(answer(&answered, Status::internal)?);
        }
        Ok(counts)
    }

    fn stalls(&mut self) -> Result<Stalls, Status> {
        let answered = self.ask(|answer| Request::Stalls { answer })?;
        answer(&answered, Status::internal)
    }
}
