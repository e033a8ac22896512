// SPDX-License-Identifier: Apache-2.0
//! Transit times and lateness are counted in the bins that the control plane configured, and only
//! with valid stamps.
//!
//! The test sends a frame through to learn the switch's clock, and returns it with chosen values
//! for stamp and planned time. Its bins are powers of two of microseconds, the narrowest one half a
//! second: a frame passes within that time.

use anyhow::ensure;
use p4::bench::{Bench, EPOCH, WAYS, Way, on_bench};
use p4::frame::Frame;
use p4::shim::{MARK, Shim};
use p4runtime::Entry;
use smoke::cpus::Cpus;

const A: u16 = 5;
const B: u16 = 6;
/// Bin n has ticks below 2^(LEAST + n), and not below the limit of the bin before.
const LEAST: u32 = 19;
const BINS: u32 = 8;
/// Bins without an entry, and of early frames.
const ABOVE: usize = 31;
const EARLY: usize = 30;
const HALF_SECOND: u32 = 1 << LEAST;
/// Stamps have 48 bits.
const STAMPS: u64 = (1 << 48) - 1;

/// Bins of a table, as prefixes.
fn bins(table: &str, action: &str) -> Vec<Entry> {
    let entry = |bin: u32| {
        let (value, length) = match bin {
            0 => (0, 32 - LEAST),
            _ => (1u32 << (LEAST + bin - 1), 33 - LEAST - bin),
        };
        Entry::new(table).lpm("ticks", value, length).does(action).with("bin", bin)
    };
    (0..BINS).map(entry).collect()
}

/// Ticks in the middle of a bin; for the first bin, at its beginning.
fn within(bin: u32) -> u32 {
    if bin == 0 { 0 } else { 3 << (LEAST + bin - 2) }
}

fn prepared(bench: &Bench) -> anyhow::Result<()> {
    bench.control.insert(&bins("linkemu.transit_bins", "linkemu.set_transit_bin"))?;
    bench.control.insert(&bins("linkemu.lateness_bins", "linkemu.set_lateness_bin"))
}

/// Counts of all bins in which a client's frame can be.
struct Counted {
    transit: Vec<u64>,
    lateness: Vec<u64>,
}

fn counted(bench: &Bench, way: Way, client: u16) -> anyhow::Result<Counted> {
    let transit = bench.control.transit(client, way.direction)?;
    Ok(Counted { transit, lateness: bench.control.lateness(way.direction)? })
}

/// Returns a frame `away` ticks after its stamp, of which `planned` were planned. Reports the bins
/// that increased.
fn timed(
    bench: &mut Bench,
    way: Way,
    client: u16,
    away: u64,
    planned: u32,
) -> anyhow::Result<(Vec<usize>, Vec<usize>)> {
    let frame = Frame::v4([192, 0, 2, 1].into(), [10, 77, 0, 9].into()).bytes();
    let before = counted(bench, way, client)?;
    let now = bench.wrapped(way, way.hosts[0], &frame)?.stamp;
    let shim = Shim { stamp: now.wrapping_sub(away) & STAMPS, planned, ..way.shim(client) };
    bench.unwrapped(way, shim, &frame)?.is(&way.out.map(|port| (port, &frame[..])))?;
    let after = counted(bench, way, client)?;
    let grown = |before: &[u64], after: &[u64]| {
        let each = before.iter().zip(after).enumerate();
        each.flat_map(|(bin, (b, a))| std::iter::repeat_n(bin, (a - b) as usize)).collect()
    };
    Ok((grown(&before.transit, &after.transit), grown(&before.lateness, &after.lateness)))
}

pub fn transit_times_are_counted_by_client_direction_and_bin(_: &Cpus) -> anyhow::Result<()> {
    on_bench(|bench| {
        prepared(bench)?;
        for way in WAYS {
            // Each bin of a client, and some of another.
            for (client, every) in [(A, 1), (B, 7)] {
                for bin in (0..BINS).step_by(every) {
                    let (transit, lateness) =
                        timed(bench, way, client, within(bin).into(), within(bin))?;
                    ensure!(transit == [bin as usize], "{way:?}: bin {bin}, counted {transit:?}");
                    // As planned: hardly late.
                    ensure!(lateness == [0], "{way:?}: bin {bin}, late {lateness:?}");
                }
                let (transit, _) = timed(bench, way, client, u64::from(within(BINS)), 0)?;
                ensure!(transit == [ABOVE], "above all bins: {transit:?}");
            }
        }
        Ok(())
    })
}

pub fn lateness_is_excess_over_planned_time(_: &Cpus) -> anyhow::Result<()> {
    on_bench(|bench| {
        prepared(bench)?;
        let meant = 5_000_000;
        for way in WAYS {
            for bin in 0..BINS {
                let away = u64::from(meant + within(bin));
                let (_, lateness) = timed(bench, way, A, away, meant)?;
                ensure!(lateness == [bin as usize], "{way:?}: bin {bin}, late {lateness:?}");
            }
            let away = u64::from(meant + within(BINS));
            let (_, lateness) = timed(bench, way, A, away, meant)?;
            ensure!(lateness == [ABOVE], "above all bins: {lateness:?}");
            // Half a second or more before it was due.
            for early in [HALF_SECOND, 4 * HALF_SECOND, meant] {
                let (transit, lateness) = timed(bench, way, A, u64::from(meant - early), meant)?;
                ensure!(lateness == [EARLY], "{way:?}: {early} early, counted {lateness:?}");
                ensure!(transit.len() == 1, "{transit:?}");
            }
        }
        Ok(())
    })
}

pub fn stamps_of_other_epoch_are_ignored(_: &Cpus) -> anyhow::Result<()> {
    on_bench(|bench| {
        prepared(bench)?;
        let frame = Frame::v4([192, 0, 2, 1].into(), [10, 77, 0, 9].into()).ecn(2).bytes();
        for way in WAYS {
            for epoch in [0, EPOCH ^ 1, EPOCH ^ 0x8000, !EPOCH] {
                let before = counted(bench, way, A)?;
                let shim = Shim { epoch, flags: MARK, ..way.shim(A) };
                let (out, fates) = bench.fates(way, A, |b| b.unwrapped(way, shim, &frame))?;
                // Delivered and marked as any other.
                ensure!(way.out.iter().all(|port| out.at(*port).len() == 1), "{out:x?}");
                let all = (fates.returned(), fates.delivered(), fates.stale(), fates.marked());
                ensure!(all == (1, 1, 1, 1), "epoch {epoch:#x}: {fates:?}");
                let after = counted(bench, way, A)?;
                ensure!(after.transit == before.transit, "its time was counted");
                ensure!(after.lateness == before.lateness, "its lateness was counted");
            }
            let (_, fates) = bench.fates(way, A, |b| b.unwrapped(way, way.shim(A), &frame))?;
            ensure!(fates.stale() == 0 && fates.delivered() == 1, "{fates:?}");
        }
        Ok(())
    })
}
