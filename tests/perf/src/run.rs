// SPDX-License-Identifier: Apache-2.0
//! A run: its parts in sequence, and the skipped ones with the reason.

use std::time::Duration;

use dpdk::Memory;
use emu::units::Nanos;

use crate::arguments::{Arguments, Contender, Part};
use crate::base;
use crate::case::{Case, Profile};
use crate::change;
use crate::contender::{Ceiling, Ours, counted_run};
use crate::cost::{self, Effort};
use crate::error::Error;
use crate::generator::Order;
use crate::goals;
use crate::handover;
use crate::instructions::{CallgrindError, callgrind};
use crate::keeping;
use crate::lateness;
use crate::machine::Machine;
use crate::memory;
use crate::progress::Progress;
use crate::results::{Driver, Instructions, Results};
use crate::rules;
use crate::sizes::Sizes;
use crate::spread::Spread;
use crate::stand::Bench;
use crate::suite;
use crate::testpmd::{Testpmd, TestpmdError};
use crate::workers;

/// Frames that are counted by callgrind: instructions are the same each time.
const COUNTED: u64 = 100_000;
/// Repetitions of the change with many clients: each turn is measured over 1.2 delays, many times.
const CHANGED_DELAY: Nanos = Nanos::from_millis(100);
const ROUNDS: usize = 3;

struct Run<'a> {
    arguments: &'a Arguments,
    bench: &'a Bench,
    progress: Progress,
    results: Results,
}

/// The cases that the command line asks for.
#[must_use]
pub fn cases(arguments: &Arguments) -> Vec<Case> {
    suite::cases(arguments.quick, arguments.case.as_deref())
}

fn order(arguments: &Arguments) -> Order {
    if arguments.round_robin { Order::RoundRobin } else { Order::Shuffled }
}

/// Starts EAL for cases, each with a copy-break.
fn start(arguments: &Arguments, cases: &[(Case, u32)]) -> Result<Bench, Error> {
    Bench::start(cases, !arguments.no_huge, order(arguments), arguments.copy_break)
}

fn effort(arguments: &Arguments) -> Effort {
    let (repetitions, frames) = if arguments.quick { (5, 500_000) } else { (7, 1_000_000) };
    Effort {
        repetitions: arguments.repetitions.map_or(repetitions, usize::from),
        frames: arguments.frames.unwrap_or(frames),
    }
}

/// Measures all that is asked for.
///
/// # Errors
/// If EAL, ports or engines cannot be created. Tools that are missing on the machine are a note.
pub fn run(arguments: &Arguments) -> Result<Results, Error> {
    let cases = cases(arguments);
    if cases.is_empty() {
        return Err(Error::NoCase(arguments.case.clone().unwrap_or_default()));
    }
    // Separate parts measure these, independent of the filter.
    let mut all = cases.clone();
    for (part, case) in [
        (Part::Memory, suite::mix()),
        (Part::Change, suite::smallest()),
        (Part::Workers, suite::smallest()),
    ] {
        if arguments.wants(part) {
            all.push(case);
        }
    }
    let mut needs: Vec<_> = all.iter().map(|case| (*case, arguments.copy_break)).collect();
    if arguments.wants(Part::Keeping) {
        needs.extend(keeping::cases());
    }
    let bench = start(arguments, &needs)?;
    let _guard = bench.eal.register_thread()?;
    let steps = 25 + if arguments.wants(Part::Cost) { cases.len() } else { 0 };
    let results = Results {
        machine: Machine::here(&bench.eal.version(), bench.memory),
        order: format!("{:?}", bench.order),
        copy_break: bench.copy_break,
        ..Results::default()
    };
    let mut run = Run { arguments, bench: &bench, progress: Progress::over(steps), results };
    run.remark_pages();
    if arguments.wants(Part::Memory) {
        run.memory()?;
    }
    if arguments.wants(Part::Cost) {
        run.costs(&cases)?;
    }
    if arguments.wants(Part::Rules) {
        run.rules()?;
    }
    if arguments.wants(Part::Testpmd) {
        run.testpmd();
    }
    if arguments.wants(Part::Change) {
        run.changes()?;
    }
    if arguments.wants(Part::Workers) {
        run.workers()?;
    }
    if arguments.wants(Part::Handover) {
        run.handover()?;
    }
    if arguments.wants(Part::Keeping) {
        run.keeping()?;
    }
    if arguments.wants(Part::Lateness) {
        run.lateness()?;
    }
    if arguments.wants(Part::Instructions) {
        run.instructions();
    }
    if arguments.wants(Part::Base) {
        run.against();
    }
    run.progress.finish();
    let mut results = run.results;
    results.goals = goals::judge(&results);
    Ok(results)
}

/// Runs one contender alone over a few frames, for callgrind; returns how many.
///
/// # Errors
/// As [`run`].
pub fn count(arguments: &Arguments, contender: Contender) -> Result<u64, Error> {
    let cases = cases(arguments);
    let Some(case) = cases.first() else {
        return Err(Error::NoCase(arguments.case.clone().unwrap_or_default()));
    };
    let bench = start(arguments, &[(*case, arguments.copy_break)])?;
    let _guard = bench.eal.register_thread()?;
    let frames = arguments.frames.unwrap_or(COUNTED);
    Ok(match contender {
        Contender::Ceiling => {
            let mut ceiling = Ceiling::new(bench.open("bare", case, 0)?);
            ceiling.run(1_000);
            counted_run(&mut |n| ceiling.run(n), frames)
        }
        Contender::Ours => {
            let mut ours = Ours::open(&bench, "ours", case)?;
            cost::warm_up(&mut ours, case);
            counted_run(&mut |n| ours.run(n), frames)
        }
    })
}

impl Run<'_> {
    fn note(&mut self, text: impl Into<String>) {
        let text = text.into();
        self.progress.note(&text);
        self.results.notes.push(text);
    }

    fn step(&self, what: &str) {
        self.progress.end();
        self.progress.begin(what);
    }

    fn remark_pages(&mut self) {
        if let Memory::NoHuge { megabytes } = self.bench.memory {
            let pages = megabytes.div_ceil(2) + 64;
            self.note(format!(
                "DPDK's buffers are in ordinary pages, which costs both contenders: for hugepages \
                 run as root with `sysctl vm.nr_hugepages={pages}` set before"
            ));
        }
    }

    fn memory(&mut self) -> Result<(), Error> {
        for case in [suite::smallest(), suite::mix()] {
            self.step(&format!("memory: {case}"));
            self.results.memory.push(memory::measure(self.bench, &case)?);
        }
        Ok(())
    }

    fn costs(&mut self, cases: &[Case]) -> Result<(), Error> {
        for case in cases {
            self.step(&format!("cost: {case}"));
            self.results.costs.push(cost::measure(self.bench, case, effort(self.arguments))?);
        }
        Ok(())
    }

    fn rules(&mut self) -> Result<(), Error> {
        self.step("rules");
        let Effort { repetitions, frames } = effort(self.arguments);
        self.results.lookups = rules::measure(repetitions, frames)?;
        Ok(())
    }

    fn testpmd(&mut self) {
        let length = Duration::from_millis(if self.arguments.quick { 300 } else { 700 });
        let huge = matches!(self.bench.memory, Memory::InMemory { .. });
        for sizes in [Sizes::Fixed(64), Sizes::Fixed(1518)] {
            let len = sizes.lengths()[0];
            self.step(&format!("dpdk-testpmd: {sizes}"));
            let measured = Testpmd::start(len, huge).and_then(|mut testpmd| {
                testpmd.run(length / 4)?;
                (0..5).map(|_| testpmd.run(length)).collect::<Result<Vec<f64>, TestpmdError>>()
            });
            match measured {
                Ok(ns) => {
                    self.results.testpmd.push(Driver { size: len + 4, testpmd_ns: Spread::of(&ns) })
                }
                Err(error) => {
                    self.note(format!("SKIPPED the driver's own forwarder: {error}"));
                    return;
                }
            }
        }
    }

    fn changes(&mut self) -> Result<(), Error> {
        // As many to as fro.
        let changes = if self.arguments.quick { 8 } else { 12 };
        let many = Case { delay: CHANGED_DELAY, ..suite::many_clients() };
        for case in [suite::smallest(), many] {
            self.step(&format!("change under load: {case}"));
            self.results.changes.push(change::measure(self.bench, &case, changes)?);
        }
        Ok(())
    }

    fn workers(&mut self) -> Result<(), Error> {
        self.step("workers: 1, 2, 4, 8");
        let effort = effort(self.arguments);
        self.results.scaling = Some(workers::measure(self.bench, &suite::smallest(), effort)?);
        Ok(())
    }

    fn handover(&mut self) -> Result<(), Error> {
        self.step("hand-over between workers");
        let effort = effort(self.arguments);
        self.results.handover = Some(handover::measure(self.bench, effort)?);
        Ok(())
    }

    fn keeping(&mut self) -> Result<(), Error> {
        self.step("copying against keeping");
        let Effort { repetitions, frames } = effort(self.arguments);
        let effort = Effort { repetitions, frames: frames / 2 };
        self.results.keeping = keeping::measure(self.bench, effort)?;
        Ok(())
    }

    fn lateness(&mut self) -> Result<(), Error> {
        self.step("lateness in real time");
        let late = lateness::measure(self.bench, if self.arguments.quick { 4 } else { 12 })?;
        if late.p99_over_ns.is_none() {
            self.note("lateness: nobody had a core for itself for long enough: run on a machine that is less busy");
        }
        self.results.lateness = Some(late);
        Ok(())
    }

    fn instructions(&mut self) {
        if self.results.costs.iter().any(|c| c.instructions.is_some()) {
            return;
        }
        for case in [Sizes::Fixed(64), Sizes::Fixed(1518)] {
            let case = Case::new(case, Profile::Full, 10, 1);
            self.step(&format!("callgrind: {case}"));
            let name = case.to_string();
            let count = |contender| {
                let program = std::env::current_exe()
                    .map_err(|error| CallgrindError::NoCount(error.to_string()))?;
                callgrind(&program, &name, contender, COUNTED, false).map(|c| c.instructions)
            };
            let counted = count("ceiling").and_then(|ceiling| Ok((ceiling, count("ours")?)));
            match counted {
                Ok((ceiling, ours)) => {
                    self.results.instructions.push(Instructions { case: name, ceiling, ours });
                }
                Err(error) => {
                    self.note(format!("SKIPPED instructions a packet: {error}"));
                    return;
                }
            }
        }
    }

    fn against(&mut self) {
        let revision = base::revision(self.arguments.base.as_deref());
        let cases = match self.arguments.case {
            Some(_) => cases(self.arguments),
            None => [suite::smallest(), suite::many_clients(), suite::full_frames(), suite::mix()]
                .into(),
        };
        let also: &[&str] = if self.arguments.no_huge { &["--no-huge"] } else { &[] };
        let also = [also, &["--repetitions", "3"]].concat();
        let compared =
            base::compare(&revision, &cases, ROUNDS, &also, |what| self.progress.begin(what));
        match compared {
            Ok(against) => self.results.against = Some(against),
            Err(error) => self.note(format!("SKIPPED the comparison with a base: {error}")),
        }
    }
}
