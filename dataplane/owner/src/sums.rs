// SPDX-License-Identifier: Apache-2.0
//! Sums of the statistics of one client and direction, over workers or boxes.

use proto::linkemu::v1 as model;

/// Adds the counts of a pipe; of high-water marks the larger one remains.
pub fn add_pipe(sum: &mut Option<model::PipeStats>, p: model::PipeStats) {
    let Some(s) = sum else {
        *sum = Some(p);
        return;
    };
    let add = |a: &mut Option<model::Count>, b: Option<model::Count>| {
        let (x, y) = (a.unwrap_or_default(), b.unwrap_or_default());
        *a = Some(model::Count { packets: x.packets + y.packets, bytes: x.bytes + y.bytes });
    };
    add(&mut s.received, p.received);
    add(&mut s.sent, p.sent);
    add(&mut s.held, p.held);
    add(&mut s.queue, p.queue);
    add(&mut s.marked, p.marked);
    add(&mut s.duplicated, p.duplicated);
    add(&mut s.generated, p.generated);
    add(&mut s.corrupted, p.corrupted);
    add(&mut s.cross_offered, p.cross_offered);
    add(&mut s.cross_dropped, p.cross_dropped);
    s.queue_max_bytes = s.queue_max_bytes.max(p.queue_max_bytes);
    add_access(&mut s.access, p.access);
    add_histogram(&mut s.queue_delay, p.queue_delay);
    add_histogram(&mut s.lateness, p.lateness);
    for d in p.dropped {
        match s.dropped.iter_mut().find(|x| x.reason == d.reason) {
            Some(x) => add(&mut x.count, d.count),
            None => s.dropped.push(d),
        }
    }
}

/// Adds what a terminal asked for and was assigned.
pub fn add_access(sum: &mut Option<model::AccessStats>, more: Option<model::AccessStats>) {
    let Some(more) = more else { return };
    let sum = sum.get_or_insert_default();
    for (sum, more) in [
        (&mut sum.requested_bytes, more.requested_bytes),
        (&mut sum.assigned_bytes, more.assigned_bytes),
        (&mut sum.used_bytes, more.used_bytes),
        (&mut sum.requests, more.requests),
        (&mut sum.collisions, more.collisions),
    ] {
        *sum = sum.saturating_add(more);
    }
}

/// Histograms of one kind have the same bounds.
fn add_histogram(sum: &mut Option<model::Histogram>, h: Option<model::Histogram>) {
    match (sum, h) {
        (_, None) => {}
        (Some(sum), Some(h)) => {
            sum.counts.iter_mut().zip(h.counts).for_each(|(a, b)| *a += b);
            sum.sum_ns = sum.sum_ns.wrapping_add(h.sum_ns);
        }
        (sum, h) => *sum = h,
    }
}
