// SPDX-License-Identifier: Apache-2.0
//! The table that ends a demonstration, beside the figures of SAT20.

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{Cell, CellAlignment, ContentArrangement, Table};

use super::reference::{Figure, IDLE_RTT_MS, steady};
use super::summary::Summary;
use crate::stats::{DropReason, Stats};

#[must_use]
pub fn table(summary: &Summary, stats: &Stats) -> String {
    let mut table = Table::new();
    table
        .load_preset(UTF8_FULL_CONDENSED)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(["", "this run", "SAT20"]);
    let mut row = |name: &str, here: String, there: String| {
        let right = |text| Cell::new(text).set_alignment(CellAlignment::Right);
        table.add_row([Cell::new(name), right(here), right(there)]);
    };
    let idle = summary.idle_rtt_ms;
    let [p5, p50, p95] = IDLE_RTT_MS;
    row(
        "idle RTT, ms: p5 / p50 / p95",
        format!("{:.0} / {:.0} / {:.0}", idle.p5, idle.p50, idle.p95),
        format!("{p5:.0} / {p50:.0} / {p95:.0}"),
    );
    for download in &summary.downloads {
        let cc = &download.cc;
        let there = steady(cc);
        let figure =
            |f: Option<Figure>| f.map_or(String::new(), |f| format!("{:.0} ({:.0})", f.mean, f.sd));
        row(&format!("{cc}: throughput, Mbit/s"), format!("{:.1}", download.mbps), String::new());
        row(
            &format!("{cc}: throughput of the second half, Mbit/s"),
            format!("{:.1}", download.mbps_second_half),
            figure(there.map(|s| s.mbps)),
        );
        row(
            &format!("{cc}: RTT of the second half, ms"),
            format!("{:.0}", download.rtt_ms_mean),
            figure(there.map(|s| s.rtt_ms)),
        );
        row(&format!("{cc}: segments reordered"), download.reordered.to_string(), String::new());
    }
    let change = summary.change;
    row(
        &format!("rate set from {:.0} to {:.0} Mbit/s: measured", change.from_mbps, change.to_mbps),
        format!("{:.2}", change.measured_mbps),
        String::new(),
    );
    row(
        "queue's high-water mark, MB",
        format!("{:.1}", summary.queue.max_bytes as f64 / 1e6),
        "up to 36".to_owned(),
    );
    for reason in DropReason::ALL {
        let packets = stats.packets(|pipe| pipe.dropped_for(reason));
        row(&format!("packets dropped: {}", reason.word()), packets.to_string(), String::new());
    }
    let late = summary.lateness_us;
    row(
        "lateness, µs: p50 / p99 / p99.9",
        format!("{:.1} / {:.1} / {:.1}", late.p50, late.p99, late.p999),
        String::new(),
    );
    let sum = summary.conservation;
    row(
        "received + duplicated + generated = sent + dropped + held",
        format!(
            "{} + {} + {} {} {} + {} + {}",
            sum.received,
            sum.duplicated,
            sum.generated,
            if sum.exact { "=" } else { "≠" },
            sum.sent,
            sum.dropped,
            sum.held
        ),
        String::new(),
    );
    row("lost by the emulator itself", summary.emulator_drops.to_string(), String::new());
    format!("{table}\nSAT20: mean (standard deviation) over 80 rounds; idle RTT of 24 July 2020.")
}
