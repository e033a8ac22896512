// SPDX-License-Identifier: Apache-2.0
//! Choice, order and pause of the view.

use super::*;
use crate::top::history::Series;
use crate::top::rates::tests::{client, link, snapshot};

const S: u64 = 1_000_000_000;

pub fn press(model: &mut Model, keys: &str) -> bool {
    keys.chars().any(|c| model.key(KeyEvent::from(KeyCode::Char(c))))
}

/// Two seconds of three clients and one that is not impaired.
pub fn three() -> Model {
    let mut model = Model::default();
    model.take(Event::Link(link()));
    for n in [1, 2_u64] {
        let clients = vec![
            client("bypass", 0, 0, 0),
            client("10.0.0.10", 500_000 * n, 0, 0),
            client("10.0.0.9", 1_000_000 * n, 18_000_000, 2 * n),
            client("2001:db8::1", 2_000_000 * n, 9_000_000, 7 * n),
        ];
        model.take(Event::Stats(Box::new(snapshot(n * S, clients))));
    }
    model
}

fn names(model: &Model) -> Vec<&str> {
    model.rows.iter().map(|row| row.client.as_str()).collect()
}

#[test]
fn addresses_are_sorted_as_numbers_and_names_come_last() {
    assert_eq!(names(&three()), ["10.0.0.9", "10.0.0.10", "2001:db8::1", "bypass"]);
}

#[test]
fn figures_are_sorted_the_largest_first() {
    let mut model = three();
    for (sort, first) in [
        (Sort::Forward, ["2001:db8::1", "10.0.0.9", "10.0.0.10", "bypass"]),
        (Sort::Return, ["2001:db8::1", "10.0.0.9", "10.0.0.10", "bypass"]),
        (Sort::Queue, ["10.0.0.9", "2001:db8::1", "10.0.0.10", "bypass"]),
        (Sort::Delay, ["10.0.0.9", "2001:db8::1", "10.0.0.10", "bypass"]),
        (Sort::Drops, ["2001:db8::1", "10.0.0.9", "10.0.0.10", "bypass"]),
        (Sort::Client, ["10.0.0.9", "10.0.0.10", "2001:db8::1", "bypass"]),
    ] {
        press(&mut model, "s");
        assert_eq!(model.sort, sort);
        assert_eq!(names(&model), first, "{sort:?}");
    }
    // The return direction has no queues, so addresses determine the order.
    press(&mut model, "dd");
    model.sort = Sort::Queue;
    model.order();
    assert_eq!(names(&model)[0], "10.0.0.9");
    press(&mut model, "d");
    assert_eq!(model.way, Way::Both);
}

#[test]
fn chosen_client_stays_chosen_after_moving() {
    let mut model = three();
    model.fit(10);
    assert_eq!(model.place(), Some(0));
    press(&mut model, "jj");
    assert_eq!(model.chosen().unwrap().0.client, "2001:db8::1");
    press(&mut model, "s");
    assert_eq!(model.place(), Some(0));
    assert_eq!(model.chosen().unwrap().0.client, "2001:db8::1");
    press(&mut model, "kkk");
    assert_eq!(model.place(), Some(0));
    press(&mut model, "Gj");
    assert_eq!(model.place(), Some(3));
    press(&mut model, "g");
    assert_eq!(model.place(), Some(0));
    // A client that is gone leaves the choice to the first.
    let one = vec![client("10.0.0.77", 0, 0, 0)];
    model.take(Event::Stats(Box::new(snapshot(3 * S, one))));
    assert_eq!(model.chosen().unwrap().0.client, "10.0.0.77");
    model.take(Event::Stats(Box::new(snapshot(4 * S, vec![]))));
    assert_eq!(model.place(), None);
    assert!(model.chosen().is_none());
    press(&mut model, "jkGgsd");
}

#[test]
fn scrolling_keeps_the_chosen_client_on_the_screen() {
    let mut model = Model::default();
    let address = |n: u32| std::net::Ipv4Addr::from(0x0a00_0000 + n).to_string();
    let clients = (0..10_000).map(|n| client(&address(n), 0, 0, 0)).collect();
    model.take(Event::Stats(Box::new(snapshot(1, clients))));
    model.fit(14);
    assert_eq!(model.top, 0);
    let mut go = |code, place, top| {
        model.key(KeyEvent::from(code));
        model.fit(14);
        assert_eq!((model.place(), model.top), (Some(place), top));
    };
    go(KeyCode::PageDown, 14, 1);
    go(KeyCode::Up, 13, 1);
    go(KeyCode::End, 9_999, 9_986);
    go(KeyCode::PageUp, 9_985, 9_985);
    go(KeyCode::Home, 0, 0);
    // No screen at all, and one that is larger than what there is.
    model.fit(0);
    press(&mut model, "G");
    model.fit(20_000);
    assert_eq!(model.top, 0);
}

#[test]
fn keys_close_help_before_ending() {
    let mut model = three();
    assert!(model.key(KeyEvent::from(KeyCode::Esc)));
    assert!(press(&mut model, "q"));
    assert!(model.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)));
    assert!(!press(&mut model, "c"));
    assert!(!press(&mut model, "?"));
    assert!(model.help);
    assert!(!model.key(KeyEvent::from(KeyCode::Esc)));
    assert!(!model.help);
    press(&mut model, "?");
    assert!(press(&mut model, "q"));
}

#[test]
fn paused_view_resumes_with_the_latest_snapshot() {
    let mut model = three();
    press(&mut model, "p");
    let more = || vec![client("10.0.0.9", 3_000_000, 0, 0)];
    model.take(Event::Stats(Box::new(snapshot(3 * S, more()))));
    assert_eq!((model.rows.len(), model.health.as_ref().unwrap().time_ns), (4, 2 * S));
    press(&mut model, "p");
    let clients = vec![client("10.0.0.9", 3_500_000, 0, 0)];
    model.take(Event::Stats(Box::new(snapshot(4 * S, clients))));
    assert_eq!(model.rows.len(), 1);
    assert_eq!(model.rows[0].forward.rate_bps, Some(4_000_000.0));
    let (_, history) = model.chosen().unwrap();
    let chart = history.unwrap().chart(Series::Forward, 4 * S, 120);
    // The pause is on the chart: 8 Mbit/s from 1 s to 3 s.
    assert_eq!(chart.iter().filter(|bps| **bps > 7_900_000).count(), 4);
}

#[test]
fn lost_source_is_reported_until_the_next_snapshot() {
    let mut model = three();
    model.take(Event::Away("cannot reach linkd".into()));
    assert_eq!(model.away.as_deref(), Some("cannot reach linkd"));
    assert_eq!(model.rows.len(), 4);
    // Another dataplane: its clock restarts, and so do the charts.
    let clients = vec![client("10.0.0.9", 5, 0, 0)];
    model.take(Event::Stats(Box::new(snapshot(S, clients))));
    assert_eq!(model.away, None);
    assert_eq!(model.rows[0].forward.rate_bps, None);
    assert!(model.chosen().unwrap().1.is_none());
}
