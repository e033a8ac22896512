// SPDX-License-Identifier: Apache-2.0
//! Content of the cells.

use super::*;
use crate::top::model::Event;
use crate::top::model::tests::{press, three};
use crate::top::rates::tests::{client, link, snapshot};
use crate::top::rates::{Link, Serving};
use proto::linkemu::v1 as pb;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;

const MOMENT: Moment =
    Moment { interval: Duration::from_millis(500), silent: Duration::from_millis(100) };

fn drawn(model: &mut Model, width: u16, height: u16, moment: Moment) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, model, moment)).unwrap();
    terminal.backend().buffer().clone()
}

fn lines(buffer: &Buffer) -> Vec<String> {
    let area = buffer.area;
    let line = |y| (0..area.width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..area.height).map(|y| line(y).trim_end().to_owned()).collect()
}

/// The colour of the cell where a text starts.
fn colour(buffer: &Buffer, text: &str) -> Color {
    for (y, line) in lines(buffer).iter().enumerate() {
        if let Some(x) = line.find(text) {
            let x = line[..x].chars().count() as u16;
            return buffer[(x, y as u16)].fg;
        }
    }
    panic!("{text} is not drawn: {:#?}", lines(buffer));
}

#[test]
fn screen_of_80_by_24_shows_everything() {
    let buffer = drawn(&mut three(), 80, 24, MOMENT);
    let lines = lines(&buffer);
    let first = "linkemu viasat2  generation 0  clients 4  forward 144Mb/s  return 12.0Mb/s";
    assert_eq!(lines[0], first);
    assert_eq!(lines[1], "emulator drops 0  late p99 0  stall 0  memory 0B of 0B");
    assert_eq!(lines[2], "live, every 500ms");
    let head = "CLIENT        FWD b/s RET b/s QUEUE B   DELAY    AQM  LIMIT OUTAGE   LOSS    OWN";
    assert_eq!(lines[4], head);
    let row = "10.0.0.9        8.00M    800k   18.0M    1.0s      0      0      2      0      0";
    assert_eq!(lines[5], row);
    assert_eq!(lines[6].split_whitespace().next(), Some("10.0.0.10"));
    assert!(lines[8].starts_with("bypass") && lines[8].contains(" - "), "{}", lines[8]);
    assert_eq!(lines[10], "10.0.0.9, the last minute");
    assert!(lines[11].starts_with("forward 8.00Mb/s"), "{}", lines[11]);
    assert!(lines[12].starts_with("      6 % in use"), "{}", lines[12]);
    assert!(lines[13].starts_with("top      144Mb/s"), "{}", lines[13]);
    let queue = lines.iter().position(|line| line.starts_with("queue   18.0MB")).unwrap();
    assert!(lines.iter().any(|line| line.starts_with("drops       2/s")), "{lines:#?}");
    // A rate is drawn relative to the configured rate, a queue relative to its maximum.
    let forward = lines[11..14].iter().filter(|line| line.ends_with(['▁', '▂', '▃'])).count();
    assert_eq!((forward, lines[queue].ends_with('█')), (1, true), "{lines:#?}");
    assert_eq!(lines[23], "q quit  j/k choose  s sort: client  d direction: both  p pause  ? help");
}

#[test]
fn the_chosen_row_is_reversed_and_the_column_of_the_sort_underlined() {
    let mut model = three();
    press(&mut model, "sj");
    let buffer = drawn(&mut model, 80, 24, MOMENT);
    let reversed = |y| buffer[(0, y)].modifier.contains(Modifier::REVERSED);
    assert_eq!([reversed(5), reversed(6), reversed(7)], [false, true, false]);
    let underlined = |x| buffer[(x, 4)].modifier.contains(Modifier::UNDERLINED);
    let head = &lines(&buffer)[4];
    let at = head.find("FWD").unwrap() as u16;
    assert!(underlined(at) && !underlined(0) && !underlined(at + 8));
}

#[test]
fn direction_is_shown_for_queue_delay_and_drops() {
    let mut model = three();
    press(&mut model, "d");
    assert!(lines(&drawn(&mut model, 80, 24, MOMENT))[5].contains("18.0M    1.0s"));
    press(&mut model, "d");
    let lines = lines(&drawn(&mut model, 80, 24, MOMENT));
    let row = "10.0.0.9        8.00M    800k       0       0      0      0      0      0      0";
    assert_eq!(lines[5], row);
    assert!(lines[23].contains("d direction: return"));
}

#[test]
fn emulator_drops_are_red_when_there_are_any() {
    let mut model = three();
    let text = "emulator drops";
    assert_eq!(colour(&drawn(&mut model, 80, 24, MOMENT), text), Color::Reset);
    let overload = pb::Drop {
        reason: pb::DropReason::Overload as i32,
        count: Some(pb::Count { packets: 3, bytes: 0 }),
    };
    let mut odd = client("10.0.0.9", 3_000_000, 0, 4);
    odd.forward_pipe.as_mut().unwrap().dropped.push(overload);
    let stats = pb::Stats {
        time_ns: 3_000_000_000,
        clients: vec![odd],
        emulator_drops: 3,
        lossy: true,
        ports: vec![pb::PortStats {
            name: "wan".into(),
            link: pb::LinkState::Down as i32,
            ..Default::default()
        }],
        memory: Some(pb::Memory {
            capacity_bytes: 3 << 30,
            used_bytes: 1_500_000,
            used_max_bytes: 2_000_000,
        }),
        lateness: Some(pb::Lateness { p99_ns: 1_500, ..Default::default() }),
        ..Default::default()
    };
    model.take(Event::Stats(Box::new(stats)));
    let buffer = drawn(&mut model, 80, 24, MOMENT);
    assert_eq!(colour(&buffer, "emulator drops 3"), Color::Red);
    let lines = lines(&buffer);
    assert_eq!(lines[1], "emulator drops 3  late p99 2us  stall 0  memory 1.50MB of 3.22GB");
    assert!(lines[0].contains("clients 1  lossy  no link at wan  forward"), "{}", lines[0]);
    assert_eq!(colour(&buffer, "no link at wan"), Color::Red);
    // The last column of the row, the emulator's own.
    assert_eq!(buffer[(79, 5)].symbol(), "3");
    assert_eq!((buffer[(79, 5)].fg, buffer[(65, 5)].fg), (Color::Red, Color::Reset));
}

#[test]
fn lost_source_is_named_in_red_with_the_last_figures() {
    let mut model = three();
    model.take(Event::Away("cannot reach linkd at /x: nobody listens there".into()));
    let buffer = drawn(&mut model, 80, 24, MOMENT);
    assert_eq!(lines(&buffer)[2], "cannot reach linkd at /x: nobody listens there; trying again");
    assert_eq!(colour(&buffer, "cannot reach"), Color::Red);
    assert!(lines(&buffer)[5].starts_with("10.0.0.9 "));
    assert_eq!(colour(&drawn(&mut model, 40, 1, MOMENT), "cannot reach"), Color::Red);
}

#[test]
fn silence_and_pause_are_reported() {
    let mut model = three();
    let silent = Moment { silent: Duration::from_millis(5_200), ..MOMENT };
    let buffer = drawn(&mut model, 80, 24, silent);
    assert_eq!(lines(&buffer)[2], "no news for 5.2s");
    assert_eq!(colour(&buffer, "no news"), Color::Red);
    // With slow snapshots it does not count as silence.
    let slow = Moment { interval: Duration::from_secs(10), ..silent };
    assert_eq!(lines(&drawn(&mut model, 80, 24, slow))[2], "live, every 10.0s");
    press(&mut model, "p");
    assert_eq!(lines(&drawn(&mut model, 80, 24, MOMENT))[2], "paused");
    let mut nothing = Model::default();
    assert_eq!(lines(&drawn(&mut nothing, 80, 24, MOMENT))[2], "connecting");
}

#[test]
fn down_link_has_no_delay_and_varying_link_has_mean_delay() {
    for (forward, delay) in [
        (Serving::Down, "down"),
        (Serving::Mean(72e6), "~2.0s"),
        (Serving::Unlimited, "0"),
        (Serving::Unknown, "-"),
    ] {
        let mut model = Model::default();
        model.take(Event::Link(Link { forward, back: Serving::Unknown, ..link() }));
        let clients = vec![client("10.0.0.9", 0, 18_000_000, 0)];
        model.take(Event::Stats(Box::new(snapshot(1, clients))));
        let lines = lines(&drawn(&mut model, 80, 24, MOMENT));
        assert!(lines[5].contains(&format!("18.0M{delay:>8}")), "{forward:?}: {}", lines[5]);
    }
}

#[test]
fn capacity_on_demand_of_the_chosen_client_is_above_its_charts() {
    let with = |requested_bytes| {
        let access = pb::AccessStats { requested_bytes, ..Default::default() };
        let mut client = client("10.0.0.9", 0, 0, 0);
        client.return_pipe.as_mut().unwrap().access = Some(access);
        Event::Stats(Box::new(snapshot(1 + requested_bytes * 1_000_000, vec![client])))
    };
    let mut model = Model::default();
    model.take(Event::Link(Link { back: Serving::OnDemand(12e6), ..link() }));
    model.take(with(0));
    model.take(with(1_000));
    let lines = lines(&drawn(&mut model, 80, 24, MOMENT));
    assert!(lines[0].ends_with("return <12.0Mb/s"), "{}", lines[0]);
    let demand = "10.0.0.9, the last minute  return requested 8.00k, assigned 0, used 0";
    assert!(lines.iter().any(|line| line == demand), "{lines:#?}");
}

#[test]
fn narrow_screen_omits_least_needed_columns() {
    let head = |width| lines(&drawn(&mut three(), width, 12, MOMENT))[4].clone();
    assert!(head(77).ends_with("OWN"));
    let all = head(76);
    assert!(all.ends_with("DELAY DROP/s") && !all.contains("AQM"), "{all}");
    assert!(head(48).ends_with("DELAY"), "{}", head(48));
    assert!(head(30).ends_with("RET b/s"), "{}", head(30));
    assert_eq!(head(12), "CLIENT");
    let wide = &lines(&drawn(&mut three(), 200, 50, MOMENT));
    assert!(wide[4].starts_with(&format!("{:39}", "CLIENT")), "{}", wide[4]);
    // The charts fill the rows that the table leaves.
    assert!(wide[10].starts_with("10.0.0.9, the last minute"), "{wide:#?}");
    assert!(wide[28..32].iter().any(|line| line.starts_with("queue")), "{wide:#?}");
    assert!(wide[48].ends_with('█'), "{wide:#?}");
}

#[test]
fn head_always_shows_certificate_and_scenario_and_a_lease_if_there_is_one() {
    let mut model = three();
    let line = |model: &mut Model, at: usize| lines(&drawn(model, 80, 24, MOMENT))[at].clone();
    assert_eq!(line(&mut model, 3), "");
    let mut shows = |used: Use, text: &str| {
        let lease = used.holder.as_ref().map(|holder| format!("  leased by {holder}"));
        model.take(Event::Use(used));
        assert_eq!(line(&mut model, 3), text);
        let live = format!("live, every 500ms{}", lease.unwrap_or_default());
        assert_eq!(line(&mut model, 2), live);
    };
    let failed = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect());
    let state = |phase: pb::ScenarioPhase| pb::ScenarioState {
        phase: phase as i32,
        name: "rain-fade".into(),
        steps_done: 3,
        steps: Some(12),
        ..Default::default()
    };
    let scenario = |phase| Scenario::of(&state(phase));
    shows(Use::default(), "no certificate  no scenario");
    let running = scenario(pb::ScenarioPhase::Running);
    shows(
        Use { failed: failed(&[]), holder: Some("ci-7".into()), scenario: running },
        "certificate PASS  scenario rain-fade, step 3 of 12",
    );
    let finished = scenario(pb::ScenarioPhase::Finished);
    shows(
        Use { failed: failed(&["stall", "memory", "boxes"]), holder: None, scenario: finished },
        "certificate FAIL: stall, memory and 1 more  scenario rain-fade finished",
    );
    let paused = scenario(pb::ScenarioPhase::Paused);
    shows(
        Use { failed: failed(&["packets"]), holder: None, scenario: paused },
        "certificate: no packets yet  scenario rain-fade paused, step 3 of 12",
    );
    model.take(Event::Use(Use { failed: failed(&["stall"]), ..Use::default() }));
    let buffer = drawn(&mut model, 80, 24, MOMENT);
    assert_eq!(colour(&buffer, "certificate FAIL"), Color::Red);
}

#[test]
fn every_size_is_drawn_without_harm() {
    for (width, height) in (0..30).flat_map(|w| (0..40).map(move |h| (w * 7, h))) {
        let mut model = three();
        press(&mut model, "j");
        let _ = drawn(&mut model, width, height, MOMENT);
        model.help = true;
        let _ = drawn(&mut model, width, height, MOMENT);
        let _ = drawn(&mut Model::default(), width, height, MOMENT);
    }
}

#[test]
fn of_ten_thousand_clients_those_around_the_chosen_one_are_drawn() {
    let mut model = Model::default();
    let address = |n: u32| std::net::Ipv4Addr::from(0x0a00_0000 + n).to_string();
    let clients = (0..10_000).map(|n| client(&address(n), 0, 0, 0)).collect();
    model.take(Event::Stats(Box::new(snapshot(1, clients))));
    press(&mut model, "G");
    let lines = lines(&drawn(&mut model, 80, 24, MOMENT));
    assert!(lines[5].starts_with("10.0.39.3 "), "{}", lines[5]);
    assert!(lines[17].starts_with("10.0.39.15 "), "{}", lines[17]);
}

#[test]
fn without_clients_it_says_so_and_help_lists_the_keys() {
    let mut model = Model::default();
    model.take(Event::Stats(Box::new(snapshot(1, vec![]))));
    assert_eq!(lines(&drawn(&mut model, 80, 24, MOMENT))[5], "no client has sent or received yet");
    press(&mut model, "?");
    let text = lines(&drawn(&mut model, 80, 24, MOMENT)).join("\n");
    for word in ["keys", "q Esc ^C", "sort by", "queue bytes x 8", "too long"] {
        assert!(text.contains(word), "{word}: {text}");
    }
}
