// SPDX-License-Identifier: Apache-2.0
//! The order of a study's flows: rounds, in each round every row once, so that the algorithms take
//! turns. One row at a time; a row with parallel rounds runs its missing ones together. A void flow
//! is repeated at once, up to a limit.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::bed::Attempt;
use crate::link::Resolved;
use crate::machine::Machine;
use crate::store::{Record, Store, identity};
use crate::study::{Row, Study};

/// Seed of round 1, less one. The seeds of a study are the same in each run.
const SEED: u64 = 1000;

/// What to run.
#[derive(Debug)]
pub struct Plan<'a> {
    pub study: &'a Study,
    /// Rows with the link of each.
    pub rows: Vec<Planned<'a>>,
    pub rounds: u32,
    /// No flow is started that would probably end later.
    pub limit: Option<Duration>,
    pub machine: Machine,
}

/// A row to run.
#[derive(Debug)]
pub struct Planned<'a> {
    pub row: &'a Row,
    pub link: Resolved,
    /// Kernel of the sender.
    pub kernel: String,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// All flows are there.
    Complete,
    /// The time limit was reached; another run continues.
    OutOfTime,
}

impl Plan<'_> {
    /// Runs the flows that are missing. `attempt` runs a number of rounds of a row at once, with one
    /// seed, and `tell` gets each result.
    ///
    /// # Errors
    /// If a bed cannot be built, a file cannot be written, or too many attempts in a row are void.
    pub fn run(
        &self,
        store: &Store,
        mut attempt: impl FnMut(&Row, &Resolved, u64, usize) -> anyhow::Result<Vec<Attempt>>,
        mut tell: impl FnMut(&Record),
    ) -> anyhow::Result<End> {
        let begin = Instant::now();
        let mut longest = Duration::ZERO;
        for round in 1..=self.rounds {
            for Planned { row, link, kernel } in &self.rows {
                let identity = identity(self.study, row, link, kernel)?;
                let mut void = 0;
                while store.take(&row.name, round, &identity)?.is_none() {
                    if self.limit.is_some_and(|limit| begin.elapsed() + longest > limit) {
                        return Ok(End::OutOfTime);
                    }
                    let (start, started) = (Instant::now(), jiff::Timestamp::now().to_string());
                    let seed = SEED + u64::from(round);
                    let rounds = self.missing(store, row, round, &identity)?;
                    let attempts = attempt(row, link, seed, rounds.len())
                        .with_context(|| format!("{}, round {round}", row.name))?;
                    longest = longest.max(start.elapsed());
                    let mut fault = None;
                    for (round, attempt) in rounds.into_iter().zip(attempts) {
                        let record = Record {
                            study: self.study.name.clone(),
                            row: row.name.clone(),
                            round,
                            seed,
                            started: started.clone(),
                            identity: identity.clone(),
                            profile: link.identity.clone(),
                            machine: self.machine.clone(),
                            kernel: kernel.clone(),
                            attempt,
                        };
                        store.put(&record)?;
                        tell(&record);
                        fault = fault.or(record.attempt.void);
                    }
                    if let Some(reason) = fault {
                        void += 1;
                        if void >= self.study.limits.attempts {
                            bail!(
                                "{}, round {round}: {void} attempts in a row were void, the last \
                                 one because {reason}. Run again on a quieter machine: valid flows \
                                 are kept",
                                row.name
                            );
                        }
                    }
                }
            }
        }
        Ok(End::Complete)
    }

    /// The missing round `from` and later ones that may run beside it.
    fn missing(
        &self,
        store: &Store,
        row: &Row,
        from: u32,
        identity: &str,
    ) -> anyhow::Result<Vec<u32>> {
        let mut rounds = Vec::new();
        for round in from..=self.rounds {
            if rounds.len() < usize::from(row.parallel)
                && store.take(&row.name, round, identity)?.is_none()
            {
                rounds.push(round);
            }
        }
        Ok(rounds)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const STUDY: &str = r#"
        name = "s"
        title = "t"
        source = "c"
        hosts.published = "none"
        link.profile = "geo-600"
        limits = { stall = "350 ms", lateness = "10 ms", experiment = "5 min", attempts = 3 }
        metrics = {}
        size = { flows = 3, short = 1, pause = "0 s" }
        [[row]]
        name = "cubic"
        [[row.transfer]]
        tool = "iperf3"
        algorithm = "cubic"
        bytes = 1000
        [[row]]
        name = "bbr"
        [[row.transfer]]
        tool = "iperf3"
        algorithm = "bbr"
        duration = "1 s"
    "#;

    fn void(reason: &str) -> Attempt {
        Attempt { void: Some(reason.to_owned()), ..Attempt::default() }
    }

    fn plan(study: &Study, rounds: u32) -> Plan<'_> {
        let link = |row: &Row| crate::link::resolve(&study.link, &row.link, Path::new(""), None);
        let planned = |row| Planned { row, link: link(row).unwrap(), kernel: "6.1".to_owned() };
        let rows = study.row.iter().map(planned).collect();
        Plan { study, rows, rounds, limit: None, machine: Machine::default() }
    }

    /// Runs with a result for each attempt, and returns the rows and seeds of the attempts.
    fn run(
        plan: &Plan<'_>,
        store: &Store,
        mut result: impl FnMut(usize) -> Attempt,
    ) -> (anyhow::Result<End>, Vec<(String, u64)>) {
        let mut made = Vec::new();
        let end = plan.run(
            store,
            |row, _, seed, count| {
                let one = |_| {
                    made.push((row.name.clone(), seed));
                    result(made.len())
                };
                Ok((0..count).map(one).collect())
            },
            |_| (),
        );
        (end, made)
    }

    fn store() -> (tempfile::TempDir, Store) {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        (folder, store)
    }

    #[test]
    fn rows_take_turns_and_share_the_seed_of_a_round() {
        let study = Study::parse(STUDY).unwrap();
        let (_folder, store) = store();
        let (end, made) = run(&plan(&study, 2), &store, |_| Attempt::default());
        assert_eq!(end.unwrap(), End::Complete);
        let made: Vec<_> = made.iter().map(|(row, seed)| (row.as_str(), *seed)).collect();
        assert_eq!(made, [("cubic", 1001), ("bbr", 1001), ("cubic", 1002), ("bbr", 1002)]);
    }

    #[test]
    fn parallel_rounds_run_together_and_missing_ones_only() {
        let study = STUDY.replace("name = \"bbr\"", "name = \"bbr\"\nparallel = 2");
        let study = Study::parse(&study).unwrap();
        let (_folder, store) = store();
        // The second flow of the first pair is void, and repeated together with the third one.
        let (end, made) =
            run(
                &plan(&study, 3),
                &store,
                |n| {
                    if n == 3 { void("late") } else { Attempt::default() }
                },
            );
        assert_eq!(end.unwrap(), End::Complete);
        let made: Vec<_> = made.iter().map(|(row, seed)| (row.as_str(), *seed)).collect();
        let (cubic, bbr) = (|n| ("cubic", n), |n| ("bbr", n));
        let first = [cubic(1001), bbr(1001), bbr(1001), cubic(1002), bbr(1002), bbr(1002)];
        assert_eq!(made, [&first[..], &[cubic(1003)]].concat());
    }

    #[test]
    fn interrupted_run_continues_with_missing_flows() {
        let study = Study::parse(STUDY).unwrap();
        let (_folder, store) = store();
        run(&plan(&study, 1), &store, |_| Attempt::default()).0.unwrap();
        let (_, made) = run(&plan(&study, 2), &store, |_| Attempt::default());
        assert_eq!(made.iter().map(|m| m.1).collect::<Vec<_>>(), [1002, 1002]);
    }

    #[test]
    fn void_flow_is_repeated_up_to_the_limit() {
        let study = Study::parse(STUDY).unwrap();
        let (_folder, store) = store();
        let once = |n| if n == 1 { void("late") } else { Attempt::default() };
        let (end, made) = run(&plan(&study, 1), &store, once);
        assert_eq!((end.unwrap(), made.len()), (End::Complete, 3));
        let (_folder, store) = self::store();
        let (end, made) = run(&plan(&study, 1), &store, |_| void("late"));
        assert_eq!(made.len(), 3);
        assert!(end.unwrap_err().to_string().contains("late"));
        assert_eq!(store.void("cubic").unwrap().len(), 3);
    }

    #[test]
    fn run_without_time_starts_no_flow() {
        let study = Study::parse(STUDY).unwrap();
        let (_folder, store) = store();
        let mut plan = plan(&study, 3);
        plan.limit = Some(Duration::ZERO);
        let (end, made) = run(&plan, &store, |_| Attempt::default());
        assert_eq!((end.unwrap(), made.len()), (End::OutOfTime, 0));
    }

    #[test]
    fn changed_definition_makes_flows_stale() {
        let study = Study::parse(STUDY).unwrap();
        let (_folder, store) = store();
        run(&plan(&study, 1), &store, |_| Attempt::default()).0.unwrap();
        let other = Study::parse(&STUDY.replace("bytes = 1000", "bytes = 2000")).unwrap();
        let (_, made) = run(&plan(&other, 1), &store, |_| Attempt::default());
        assert_eq!(made.iter().map(|m| m.0.as_str()).collect::<Vec<_>>(), ["cubic"]);
    }
}
