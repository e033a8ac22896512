// SPDX-License-Identifier: Apache-2.0
//! The requests of a history.

use std::time::Duration;

use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Requests of a history, and the time in which they are made.
const OPS: u64 = 40;
const WITHIN_MS: u64 = 3_000;
const GROUP_OPS: u64 = 24;
const GROUP_WITHIN_MS: u64 = 8_000;
const LINKD_OPS: u64 = 30;
const LINKD_WITHIN_MS: u64 = 10_000;
/// Callers of linkd.
pub const ACTORS: usize = 3;
/// Boxes of the group.
pub const BOXES: usize = 3;
/// Links of the dataplane.
pub const LINKS: usize = 3;
/// Keys of requests; few, so that they come again.
const KEYS: u8 = 4;

/// What is simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum World {
    /// A dataplane with links and workers
    Links,
    /// linkd-group with dataplanes, over a network
    Group,
    /// linkd with a dataplane, and callers with leases
    Linkd,
}

/// A history: its seed, and what is asked for when.
#[derive(Clone, Debug, PartialEq)]
pub struct Script {
    pub world: World,
    pub seed: u64,
    /// Workers of each link.
    pub workers: usize,
    pub ops: Vec<Timed>,
}

/// A request at a time.
#[derive(Clone, Debug, PartialEq)]
pub struct Timed {
    /// Its number among all requests of the seed. Its rates are told by it.
    pub number: u64,
    pub at_ms: u64,
    pub op: Op,
}

/// Which generation a request expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expects {
    Nothing,
    /// The one that it has read just before.
    Seen,
    /// One that is not there.
    Another,
}

/// A change of one link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    pub link: usize,
    /// Changes the rate towards the client, else from it.
    pub forward: bool,
    /// It does not fit.
    pub refused: bool,
    pub expects: Expects,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// A change at once, or so many milliseconds from now.
    Change {
        change: Change,
        ahead_ms: Option<i64>,
        key: Option<u8>,
        leaves: bool,
    },
    /// Changes of several links at once.
    Together {
        changes: Vec<Change>,
        key: Option<u8>,
    },
    /// The last request with a key once more.
    Again {
        key: u8,
    },
    Withdraw {
        link: usize,
    },
    Run {
        link: usize,
        steps: u64,
        every_ms: u64,
        others: Vec<usize>,
        tolerate: bool,
        complete: bool,
    },
    Extend {
        link: usize,
        steps: u64,
        every_ms: u64,
        complete: bool,
    },
    Pause {
        link: usize,
    },
    Resume {
        link: usize,
    },
    Stop {
        link: usize,
        restore: bool,
    },
    Stall {
        link: usize,
        worker: usize,
        ms: u64,
    },
    /// A change by a caller of linkd.
    Patch {
        actor: usize,
        forward: bool,
        refused: bool,
        stale: bool,
        /// The request has a name.
        id: Option<u8>,
        leaves: bool,
    },
    /// The last request with a name once more.
    PatchAgain,
    Acquire {
        actor: usize,
        ttl_ms: u64,
        steal: bool,
        /// Its end returns the link to a profile.
        returns: bool,
    },
    /// A scenario of a caller of linkd.
    RunAs {
        actor: usize,
        steps: u64,
        every_ms: u64,
        tolerate: bool,
    },
    StopAs {
        actor: usize,
    },
    Renew {
        actor: usize,
    },
    Release {
        actor: usize,
    },
    /// linkd ends without warning, and is started again after that time.
    CrashLinkd {
        ms: u64,
    },
    CrashDataplane {
        ms: u64,
    },
    /// The dataplane answers late for that time.
    Hesitate {
        ms: u64,
    },
    /// The disk takes nothing for that time.
    FillDisk {
        ms: u64,
    },
    /// The wall clock jumps.
    Jump {
        s: i64,
    },
    /// The connection to a box breaks.
    Cut {
        place: usize,
    },
    /// A box ends, and is started again without its plan after that time.
    Crash {
        place: usize,
        ms: u64,
    },
    /// A box refuses all changes for that time.
    Refuse {
        place: usize,
        ms: u64,
    },
}

impl Script {
    /// The script of a seed.
    #[must_use]
    pub fn of(world: World, seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let workers = random.random_range(1..=3);
        let (count, within_ms, op): (_, _, fn(&mut ChaCha8Rng) -> Op) = match world {
            World::Links => (OPS, WITHIN_MS, op),
            World::Group => (GROUP_OPS, GROUP_WITHIN_MS, group_op),
            World::Linkd => (LINKD_OPS, LINKD_WITHIN_MS, linkd_op),
        };
        let ops = (0..count).map(|number| {
            let at_ms = random.random_range(0..within_ms);
            Timed { number, at_ms, op: op(&mut random) }
        });
        let mut ops: Vec<_> = ops.collect();
        ops.sort_by_key(|it| it.at_ms);
        Self { world, seed, workers, ops }
    }

    /// Makes all requests at their times. Those without an answer within `patience` are left.
    pub async fn play<F>(&self, patience: Duration, make: impl Fn(Timed) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut tasks = JoinSet::new();
        for op in self.ops.clone() {
            let (at, made) = (Duration::from_millis(op.at_ms), make(op));
            tasks.spawn(async move {
                sleep(at).await;
                made.await;
            });
        }
        let _ = timeout(patience, async { while tasks.join_next().await.is_some() {} }).await;
    }

    /// The same with these requests only.
    #[must_use]
    pub fn only(mut self, numbers: &[u64]) -> Self {
        self.ops.retain(|it| numbers.contains(&it.number));
        self
    }
}

fn op(random: &mut ChaCha8Rng) -> Op {
    let link = random.random_range(0..LINKS);
    match random.random_range(0..40_u8) {
        0..14 => Op::Change {
            change: change(random, link),
            ahead_ms: random.random_bool(0.5).then(|| random.random_range(-50..700)),
            key: key(random),
            leaves: random.random_bool(0.1),
        },
        14..18 => {
            let mut changes: Vec<_> = (0..LINKS).filter(|_| random.random_bool(0.7)).collect();
            changes.shuffle(random);
            let changes = changes.into_iter().map(|link| change(random, link)).collect();
            Op::Together { changes, key: key(random) }
        }
        18..21 => Op::Again { key: random.random_range(0..KEYS) },
        21..24 => Op::Withdraw { link },
        24..29 => Op::Run {
            link,
            steps: random.random_range(1..12),
            every_ms: random.random_range(0..120),
            others: (0..LINKS).filter(|it| *it != link && random.random_bool(0.2)).collect(),
            tolerate: random.random_bool(0.5),
            complete: random.random_bool(0.8),
        },
        29..31 => Op::Extend {
            link,
            steps: random.random_range(1..6),
            every_ms: random.random_range(0..120),
            complete: random.random_bool(0.7),
        },
        31..33 => Op::Pause { link },
        33..35 => Op::Resume { link },
        35..37 => Op::Stop { link, restore: random.random_bool(0.5) },
        _ => Op::Stall { link, worker: random.random_range(0..3), ms: random.random_range(1..600) },
    }
}

/// A group has one link.
fn group_op(random: &mut ChaCha8Rng) -> Op {
    let place = random.random_range(0..BOXES);
    match random.random_range(0..28_u8) {
        0..3 => Op::Cut { place },
        3..5 => Op::Crash { place, ms: random.random_range(1..4_000) },
        5..7 => Op::Refuse { place, ms: random.random_range(1..2_000) },
        7..10 => Op::Run {
            link: 0,
            steps: random.random_range(1..8),
            every_ms: random.random_range(0..400),
            others: Vec::new(),
            tolerate: random.random_bool(0.5),
            complete: true,
        },
        _ => loop {
            match op(random) {
                Op::Change { change, ahead_ms, key, leaves } => {
                    let ahead_ms = ahead_ms.map(|ms| ms * 3);
                    let change = Change { link: 0, ..change };
                    break Op::Change { change, ahead_ms, key, leaves };
                }
                Op::Withdraw { .. } => break Op::Withdraw { link: 0 },
                Op::Pause { .. } => break Op::Pause { link: 0 },
                Op::Resume { .. } => break Op::Resume { link: 0 },
                Op::Stop { restore, .. } => break Op::Stop { link: 0, restore },
                again @ Op::Again { .. } => break again,
                _ => {}
            }
        },
    }
}

/// Few crashes, so that much happens between them.
fn linkd_op(random: &mut ChaCha8Rng) -> Op {
    let actor = random.random_range(0..ACTORS);
    match random.random_range(0..66_u8) {
        0..24 => Op::Patch {
            actor,
            forward: random.random_bool(0.5),
            refused: random.random_bool(0.1),
            stale: random.random_bool(0.1),
            id: random.random_bool(0.5).then(|| random.random_range(0..3)),
            leaves: random.random_bool(0.1),
        },
        24..28 => Op::PatchAgain,
        28..38 => Op::Acquire {
            actor,
            ttl_ms: random.random_range(1_000..4_000),
            steal: random.random_bool(0.2),
            returns: random.random_bool(0.3),
        },
        38..44 => Op::Renew { actor },
        44..50 => Op::Release { actor },
        50..52 => Op::CrashLinkd { ms: random.random_range(1..2_000) },
        52..54 => Op::CrashDataplane { ms: random.random_range(1..2_000) },
        54..56 => Op::Hesitate { ms: random.random_range(1..4_000) },
        56..58 => Op::FillDisk { ms: random.random_range(1..3_000) },
        58..60 => Op::Jump { s: random.random_range(-100..100) },
        60..65 => Op::RunAs {
            actor,
            steps: random.random_range(1..12),
            every_ms: random.random_range(1..600),
            tolerate: random.random_bool(0.5),
        },
        _ => Op::StopAs { actor },
    }
}

fn change(random: &mut ChaCha8Rng, link: usize) -> Change {
    let expects = match random.random_range(0..6_u8) {
        0 | 1 => Expects::Seen,
        2 => Expects::Another,
        _ => Expects::Nothing,
    };
    Change { link, forward: random.random_bool(0.5), refused: random.random_bool(0.1), expects }
}

fn key(random: &mut ChaCha8Rng) -> Option<u8> {
    random.random_bool(0.5).then(|| random.random_range(0..KEYS))
}
