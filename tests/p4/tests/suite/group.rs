// SPDX-License-Identifier: Apache-2.0
//! Two boxes with two workers each behind one switch, and a thousand clients.

use std::net::Ipv4Addr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use p4::bed::READY;
use p4::group::{BOXES, GroupBed, Member, WORKERS, name, on_group};
use p4::numbered::Numbered;
use smoke::cpus::Cpus;
use smoke::linkctl::Linkctl;
use smoke::stats::Stats;
use smoke::wait;

use super::SEED;
use super::path::{drained, link};

/// Clients of both boxes, and how many of them move under load.
#[derive(Clone, Copy)]
struct Scale {
    clients: usize,
    moved: usize,
}

const SHORT: Scale = Scale { clients: 200, moved: 40 };
const LONG: Scale = Scale { clients: 1_000, moved: 200 };

/// One way, in milliseconds.
const DELAY_MS: u64 = 60;
/// Of a move: longer than any stall of a test machine that is not starved, shorter than a hold that
/// nobody ended.
const HELD: Duration = Duration::from_secs(5);

fn client(number: usize) -> String {
    format!("ship-{number}")
}

fn host(number: usize) -> Ipv4Addr {
    Ipv4Addr::from(0x0a64_0000 + u32::try_from(number).unwrap_or(0) + 1)
}

/// A file with the clients, each with the address of its own.
fn clients(count: usize) -> String {
    let one = |n| format!("[[client]]\nname = \"{}\"\nprefix = [\"{}/32\"]\n", client(n), host(n));
    (0..count).map(one).collect()
}

/// A link with a queue: 2 Mbit/s for each client, and a delay.
fn queued(delay: u64) -> String {
    // All clients may be at one box.
    link("group", "", "", &format!("{delay} ms"))
        .replace("\"unlimited\"", "\"2 Mbit/s\"")
        .replace("\"4 MB\"", "\"64 kB\"")
}

/// The traffic of both directions to and from all clients.
struct Traffic {
    ways: [Numbered; 2],
    clients: usize,
}

impl Traffic {
    fn new(bed: &GroupBed, clients: usize) -> anyhow::Result<Self> {
        let hosts = || (0..clients).map(host).collect();
        let of = |forward| Numbered::of(&bed.hosts, forward, hosts());
        Ok(Self { ways: [of(true)?, of(false)?], clients })
    }

    /// Sends frames of each client until `done`, at least one of each.
    fn run(&mut self, mut done: impl FnMut() -> bool) -> anyhow::Result<()> {
        let Self { ways, clients } = self;
        let rounds = ways[0].lost.len() + *clients;
        while ways[0].lost.len() < rounds || !done() {
            for way in &mut *ways {
                way.window()?;
            }
        }
        Ok(())
    }

    /// Takes what is left when the box holds nothing. All that was sent must have come, in order.
    fn complete(&mut self, linkctl: &Linkctl) -> anyhow::Result<Stats> {
        let stats = drained(linkctl)?;
        for way in &mut self.ways {
            way.taken()?;
            let lost = way.lost.iter().filter(|lost| **lost).count();
            ensure!(lost == 0, "{lost} of {} frames were lost", way.lost.len());
            ensure!(way.overtaken == 0, "{} frames were overtaken", way.overtaken);
        }
        Ok(stats)
    }
}

/// Waits for a thread that works while traffic runs.
fn meanwhile<T: Send>(
    traffic: &mut Traffic,
    work: impl FnOnce() -> anyhow::Result<T> + Send,
) -> anyhow::Result<T> {
    thread::scope(|scope| {
        let worker = scope.spawn(work);
        traffic.run(|| worker.is_finished())?;
        worker.join().map_err(|_| anyhow::anyhow!("the worker panicked"))?
    })
}

/// When the plan of a box took effect, in nanoseconds since 1970.
fn effective(linkctl: &Linkctl) -> anyhow::Result<i128> {
    let shown = linkctl.show()?;
    let at = shown.applied.and_then(|applied| applied.effective_utc);
    let at = at.with_context(|| format!("no instant: {shown:?}"))?;
    Ok(i128::from(at.seconds) * 1_000_000_000 + i128::from(at.nanos))
}

fn owned(members: &[Member]) -> Vec<u32> {
    members.iter().map(|it| it.clients).collect()
}

pub fn two_boxes_are_one_emulator(cpus: &Cpus) -> anyhow::Result<()> {
    of_scale(cpus, SHORT)
}

pub fn two_boxes_of_a_thousand_clients_are_one_emulator(cpus: &Cpus) -> anyhow::Result<()> {
    of_scale(cpus, LONG)
}

fn of_scale(cpus: &Cpus, Scale { clients: count, moved: many }: Scale) -> anyhow::Result<()> {
    on_group(cpus, SEED, |bed| {
        let linkctl = bed.linkctl()?;
        let path = bed.hosts.directory().path("link.toml");
        let set = |text: String| {
            std::fs::write(&path, text)?;
            anyhow::Ok(linkctl.set_profile(&path.display().to_string(), SEED)?)
        };
        set(queued(DELAY_MS))?;
        let file = bed.hosts.directory().write("clients.toml", &clients(count))?;
        linkctl.run(&["clients", "set", &file.display().to_string()])?.success()?;
        let members = bed.until("each box has half of the clients", |members| {
            owned(members) == [count as u32 / 2; BOXES]
        })?;
        for it in &members {
            ensure!(it.workers as usize == WORKERS, "{it:?}");
            println!(
                "    {}: clock {} ns ± {} ns from the group's",
                it.name, it.clock_offset_ns, it.clock_error_ns
            );
        }
        let mut traffic = Traffic::new(bed, count)?;
        linkctl.run(&["stats", "--mark"])?.success()?;

        // A change in mid-run, at one instant.
        meanwhile(&mut traffic, || set(queued(DELAY_MS + 20)))?;
        let instants = (0..BOXES).map(|number| effective(&bed.linkctl_of(number)?));
        let instants: Vec<_> = instants.collect::<anyhow::Result<_>>()?;
        let apart = instants[0].abs_diff(instants[1]);
        let bound: u64 = members.iter().map(|it| it.clock_error_ns).max().unwrap_or(0);
        println!("    change: {apart} ns apart, bound of the clocks' error {bound} ns");
        ensure!(apart <= u128::from(bound) + 1_000_000, "{apart} ns apart: {instants:?}");

        // Each box had its own clients, and nobody else's.
        let stats = traffic.complete(&linkctl)?;
        let of_boxes = (0..BOXES).map(|number| drained(&bed.linkctl_of(number)?));
        let of_boxes: Vec<_> = of_boxes.collect::<anyhow::Result<_>>()?;
        let came = |stats: &Stats| stats.packets(|pipe| pipe.received());
        let each: Vec<_> = of_boxes.iter().map(came).collect();
        println!("    packets: {each:?} at the boxes, {} in the group", came(&stats));
        ensure!(each.iter().sum::<u64>() == came(&stats), "{each:?}: {}", came(&stats));
        for stats in &of_boxes {
            let used = stats.clients.iter().filter(|it| it.forward().received().packets > 0);
            let used = used.filter(|it| it.client.starts_with("ship-")).count();
            ensure!(used == count / BOXES, "{used} clients at a box");
        }

        // A capture of all boxes.
        let file = bed.hosts.directory().path("all.pcapng").display().to_string();
        let words = ["capture", "--duration", "500ms", "-w", &file];
        let said = meanwhile(&mut traffic, || Ok(linkctl.run(&words)?.success()?))?;
        let said: serde_json::Value = serde_json::from_str(&said)?;
        println!("    capture: {said}");
        ensure!(said["forward"]["received"].as_u64() > Some(100), "{said}");
        ensure!(said["clock_error_ns"].as_u64() > Some(0) && said.get("lost").is_none(), "{said}");
        traffic.complete(&linkctl)?;

        // Moves under load.
        let own = |bed: &GroupBed, box_: usize| -> anyhow::Result<Vec<String>> {
            let stats = bed.linkctl_of(box_)?.stats()?;
            let used = stats.clients.iter().filter(|it| it.forward().received().packets > 0);
            let named = used.map(|it| it.client.clone()).filter(|it| it.starts_with("ship-"));
            Ok(named.collect())
        };
        let moving: Vec<_> = own(bed, 0)?.into_iter().take(many).collect();
        ensure!(moving.len() == many, "{}", moving.len());
        let second = name(1);
        let mut arguments: Vec<&str> = moving.iter().map(String::as_str).collect();
        arguments.extend(["--to", second.as_str()]);
        let began = Instant::now();
        let moved = meanwhile(&mut traffic, || bed.moved(&arguments))?;
        println!(
            "    {} clients moved in {:.0?}; packets waited for {:.1?} at most",
            moved.moved,
            began.elapsed(),
            Duration::from_nanos(moved.held_ns)
        );
        ensure!(moved.moved as usize == many && moved.abandoned == 0, "{moved:?}");
        ensure!(Duration::from_nanos(moved.held_ns) < HELD, "{moved:?}");
        traffic.run(|| true)?;
        let stats = traffic.complete(&linkctl)?;
        ensure!(stats.emulator_drops == 0, "{}", stats.verdict());
        let [half, moved] = [count as u32 / 2, many as u32];
        ensure!(owned(&bed.members()?) == [half - moved, half + moved], "{:?}", bed.members()?);
        let certificate = linkctl.run(&["certificate"])?;
        println!("    certificate before the death of a box: exit {}", certificate.code());

        // A box dies in mid-run, and in a capture.
        let file = bed.hosts.directory().path("dead.pcapng");
        let path = file.display().to_string();
        let words = ["capture", "--duration", "2s", "-w", &path];
        let said = thread::scope(|scope| {
            let capture = scope.spawn(|| linkctl.run(&words));
            // It has begun when the file has its first blocks.
            wait::until("a capture", READY, || {
                Ok(file.metadata().is_ok_and(|it| it.len() > 0).then_some(()))
            })?;
            bed.kill_box(1)?;
            let said = capture.join().map_err(|_| anyhow::anyhow!("the capture panicked"))?;
            anyhow::Ok(said?)
        })?;
        println!("    a capture without it: {}", said.stderr.trim());
        ensure!(said.code() == 1, "{said:?}");
        ensure!(said.stderr.contains("packets of box b2 are missing from"), "{said:?}");
        let members = bed.until("the second box is down", |members| !members[1].up)?;
        println!("    {}: {}", members[1].name, members[1].message);
        ensure!(members[0].up && members[0].current, "{members:?}");
        let failed = linkctl.run(&["certificate"])?;
        ensure!(failed.code() == 4 && failed.stdout.contains("boxes"), "{}", failed.stdout);
        // The others change, and the clients of the dead one move on request.
        set(queued(DELAY_MS))?;
        let moved = bed.moved(&["--from", &second])?;
        ensure!(moved.abandoned == half + many as u32, "{moved:?}");
        let mut traffic = Traffic::new(bed, count)?;
        traffic.run(|| true)?;
        traffic.complete(&linkctl)?;

        // It comes back with the current plan.
        bed.start_box(1)?;
        bed.until("the second box is back", |members| members[1].up && members[1].current)?;
        let back = bed.moved(&["--to", &second, &client(0), &client(1)])?;
        ensure!(back.moved == 2 && back.abandoned == 0, "{back:?}");
        traffic.run(|| true)?;
        traffic.complete(&linkctl)?;
        let used = own(bed, 1)?;
        ensure!(used.len() == 2, "{used:?}");
        Ok(())
    })
}
