// SPDX-License-Identifier: Apache-2.0
//! `linkemu.v1` as other programs use it: by reflection only, and without pauses.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use proto::linkemu::v1 as pb;
use proto::linkemu::v1::linkemu_client::LinkemuClient;
use serde_json::Value;
use smoke::binaries::python;
use smoke::cpus::Cpus;
use smoke::process::run;
use smoke::stats::Watch;
use smoke::testbed::{SERVER, Testbed};
use smoke::udp::Sender;
use statrs::statistics::{Data, OrderStatistics};
use tokio::task::JoinSet;
use tokio::time::interval;
use tonic::transport::{Channel, Endpoint};

use super::{
    Form, SEED, always_conserved, drained, dropped_only_for, emulator, flows_to, on_bed, receivers,
};

const LIMIT: Duration = Duration::from_secs(60);
const CLIENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/python/reflection_client.py");

pub fn python_client_needs_reflection_only(cpus: &Cpus) -> anyhow::Result<()> {
    let Some(python) = python()? else { return Ok(()) };
    on_bed(cpus, emulator(1), |bed| {
        let linkctl = bed.linkctl()?;
        let before = linkctl.generation()?;
        let mut client = Command::new(&python);
        client.arg(CLIENT).arg(bed.linkd_socket());
        let answer: Value = serde_json::from_str(&run(client, LIMIT)?.success()?)?;
        println!("    {answer}");
        ensure!(answer["set"] == before + 1 && answer["patched"] == before + 2, "{answer}");
        ensure!(answer["repeated"] == true, "a repeated request was applied twice: {answer}");
        ensure!(answer["refused"] == "NOT_FOUND", "an unknown profile: {answer}");
        let seen = answer["seen"].as_array().context("no statistics")?;
        ensure!(seen.len() == 3 && seen.iter().all(|g| *g == before + 2), "{answer}");
        ensure!(answer["rate_bps"] == 72_000_000, "{answer}");
        ensure!(linkctl.generation()? == before + 2, "not this link: {answer}");
        Ok(())
    })
}

const EVERY: Duration = Duration::from_millis(1);
/// Bit/s. Each patch chooses one of these rates; some overload the link and some do not.
const RATES: std::ops::Range<u64> = 140_000_000..144_000_000;
const OFFERED_BPS: u64 = 160_000_000;
const PATCHES_PER_S: u64 = 1000;
/// Duration of the patches.
const fn seconds(form: Form) -> u64 {
    match form {
        Form::Short => 1,
        Form::Long => 60,
    }
}
/// In the long form, memory is measured after each of these parts. After the first four (30 s) both
/// programs hold all that they keep: the queue takes 8 s to its threshold with an excess of 18
/// Mbit/s.
const LOOKS: u64 = 8;
const WARM: usize = 4;
/// Allowed growth of a process since then: allocators round.
const GROWTH_KB: u64 = 4096;

pub fn thousand_patches_a_second_make_one_change_each(
    cpus: &Cpus,
    form: Form,
) -> anyhow::Result<()> {
    let seconds = seconds(form);
    on_bed(cpus, emulator(1), |bed| {
        let linkctl = bed.linkctl()?;
        let first = linkctl.set_profile("viasat2", SEED)?;
        let watch = Watch::start(&linkctl, Duration::from_millis(50))?;
        let flows = flows_to(bed, 1, OFFERED_BPS, seconds + 1);
        let receivers = receivers(bed, &flows)?;
        let sender = Sender::start(bed.server(), SERVER, flows);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let mut patched = runtime.block_on(patch(bed, seconds * PATCHES_PER_S))?;
        let sent = sender.finish()?;
        for receiver in receivers {
            let received = receiver.finish()?;
            ensure!(received.out_of_order() == 0, "{} out of order", received.out_of_order());
            ensure!(received.overflowed == 0, "the receiver lost {}", received.overflowed);
        }
        ensure!(sent.iter().all(|s| s.refused == 0), "{sent:?}");
        patched.each_made_a_change(first.generation)?;
        if form == Form::Long {
            patched.memory_is_bounded()?;
        }
        let samples = watch.finish()?;
        println!("    {} samples", samples.len());
        always_conserved(&samples)?;
        let stats = drained(&linkctl)?;
        dropped_only_for(&stats, &["aqm", "limit"])
    })
}

/// Patches of the rate of the link `main`, one each millisecond.
pub fn patch_main(bed: &Testbed, seconds: u64) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let patched = runtime.block_on(patch(bed, seconds * PATCHES_PER_S))?;
    println!("    {} patches in {:?}", patched.generations.len(), patched.took);
    Ok(())
}

struct Patched {
    took: Duration,
    /// In the order of the responses.
    generations: Vec<u64>,
    answers_ms: Data<Vec<f64>>,
    /// Memory of linkd and of the dataplane, in kB, per part.
    memory: Vec<[u64; 2]>,
}

async fn patch(bed: &Testbed, patches: u64) -> anyhow::Result<Patched> {
    let part = usize::try_from(patches / LOOKS)?;
    let socket = format!("unix://{}", bed.linkd_socket().display());
    let channel = Endpoint::from_shared(socket)?.connect().await?;
    let start = Instant::now();
    let mut ticks = interval(EVERY);
    let mut asked = JoinSet::new();
    let (mut next, mut answers, mut memory) = (0, Vec::new(), Vec::new());
    while next < patches || !asked.is_empty() {
        tokio::select! {
            _ = ticks.tick(), if next < patches => {
                asked.spawn(one(LinkemuClient::new(channel.clone()), next));
                next += 1;
            }
            Some(answer) = asked.join_next() => {
                answers.push(answer??);
                if answers.len().is_multiple_of(part) {
                    memory.push(resident(bed)?);
                }
            }
        }
    }
    let took = start.elapsed();
    let answers_ms =
        Data::new(answers.iter().map(|(_, d)| d.as_secs_f64() * 1e3).collect::<Vec<_>>());
    let generations = answers.into_iter().map(|(generation, _)| generation).collect();
    Ok(Patched { took, generations, answers_ms, memory })
}

/// Generation and duration of a patch.
async fn one(mut client: LinkemuClient<Channel>, n: u64) -> anyhow::Result<(u64, Duration)> {
    let rate_bps = RATES.start + n * 7_919 % (RATES.end - RATES.start);
    let asked = Instant::now();
    let pipe = pb::PipeUpdate {
        direction: pb::Direction::Forward.into(),
        pipe: Some(pb::Pipe { rate_bps: Some(rate_bps), ..pb::Pipe::default() }),
        mask: Some(prost_types::FieldMask { paths: vec!["rate_bps".to_owned()] }),
        ..pb::PipeUpdate::default()
    };
    let request_id = format!("patch-{n}");
    let request = pb::UpdateLinksRequest { updates: vec![pipe.into()], request_id };
    let answer = client.update_links(request).await.with_context(|| format!("patch {n}"))?;
    let applied =
        answer.into_inner().into_one().applied.context("an answer without a generation")?;
    Ok((applied.generation, asked.elapsed()))
}

/// Resident memory of linkd and of the dataplane, in kB.
fn resident(bed: &Testbed) -> anyhow::Result<[u64; 2]> {
    let of = |pid: Option<u32>| {
        let pid = pid.context("it does not run")?;
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kb = resident.and_then(|r| r.split_whitespace().next()).context("no VmRSS")?;
        Ok::<u64, anyhow::Error>(kb.parse()?)
    };
    Ok([of(bed.linkd_pid())?, of(bed.dataplane_pid())?])
}

impl Patched {
    /// Each patch made one change: generations are unique and without gaps.
    fn each_made_a_change(&mut self, first: u64) -> anyhow::Result<()> {
        let patches = self.generations.len();
        println!(
            "    {patches} patches in {:.1} s; answered after p50 {:.2} ms, p99 {:.2} ms, max {:.1} ms",
            self.took.as_secs_f64(),
            self.answers_ms.quantile(0.5),
            self.answers_ms.quantile(0.99),
            self.answers_ms.quantile(1.0),
        );
        self.generations.sort_unstable();
        let due = first + 1..=first + patches as u64;
        ensure!(self.generations.iter().copied().eq(due), "lost generations");
        Ok(())
    }

    fn memory_is_bounded(&self) -> anyhow::Result<()> {
        println!("    memory of linkd and dataplane, kB: {:?}", self.memory);
        let warm = self.memory.get(WARM - 1).context("too few looks at the memory")?;
        let end = self.memory.last().context("no look at the memory")?;
        for (warm, end) in warm.iter().zip(end) {
            ensure!(*end <= warm + GROWTH_KB, "memory grew from {warm} to {end} kB");
        }
        Ok(())
    }
}
