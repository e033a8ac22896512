// SPDX-License-Identifier: Apache-2.0
//! `linkctl top` on a separate terminal: it shows the link, ends and reconnects.

use crate::lab::Lab;
use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{LocalFlags, Termios, tcgetattr};
use nix::unistd::Pid;
use proto::linkemu::v1 as pb;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// linkctl on a terminal of 80 by 24.
struct Terminal {
    master: File,
    slave: OwnedFd,
    before: Termios,
    screen: Arc<Mutex<vt100::Parser>>,
    child: Child,
}

impl Terminal {
    fn open(lab: &Lab, line: &str) -> Self {
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(Some(&size), None).unwrap();
        let before = tcgetattr(&pty.slave).unwrap();
        let stdio = || Stdio::from(pty.slave.try_clone().unwrap());
        let mut command = lab.command(line);
        let child = command.stdin(stdio()).stdout(stdio()).stderr(stdio()).spawn().unwrap();
        let master = File::from(pty.master);
        let screen = Arc::new(Mutex::new(vt100::Parser::new(24, 80, 0)));
        let (mut from, to) = (master.try_clone().unwrap(), screen.clone());
        std::thread::spawn(move || {
            let mut part = [0; 4096];
            while let Ok(n @ 1..) = from.read(&mut part) {
                to.lock().unwrap().process(&part[..n]);
            }
        });
        Self { master, slave: pty.slave, before, screen, child }
    }

    /// Waits until the screen shows all `texts`.
    fn shows(&self, texts: &[&str]) {
        self.comes_to(|screen| texts.iter().all(|text| screen.contents().contains(text)));
    }

    fn comes_to(&self, what: impl Fn(&vt100::Screen) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !what(self.screen.lock().unwrap().screen()) {
            let contents = || self.screen.lock().unwrap().screen().contents();
            assert!(Instant::now() < deadline, "{}", contents());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn press(&mut self, keys: &[u8]) {
        self.master.write_all(keys).unwrap();
    }

    /// Waits for its end, which must leave the terminal as it was.
    fn ends(mut self) {
        let deadline = Instant::now() + Duration::from_secs(60);
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if Instant::now() > deadline {
                let _ = self.child.kill();
                panic!("it did not end");
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        assert_eq!(status.code(), Some(0));
        self.comes_to(|screen| !screen.alternate_screen() && !screen.hide_cursor());
        assert_eq!(tcgetattr(&self.slave).unwrap(), self.before);
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn lab() -> Lab {
    let lab = Lab::new();
    lab.done("set profile viasat2");
    let clients = vec![pb::ClientStats { client: "10.0.0.2".into(), ..Default::default() }];
    lab.fake.state().stats = pb::Stats { time_ns: 1, clients, ..Default::default() };
    lab
}

#[test]
fn every_exit_restores_the_terminal() {
    let lab = lab();
    for way in [b"q".as_slice(), b"\x03", b"\x1b", b"term"] {
        let mut terminal = Terminal::open(&lab, "top --interval 50ms");
        terminal.shows(&["viasat2", "10.0.0.2", "live, every"]);
        assert!(terminal.screen.lock().unwrap().screen().alternate_screen());
        let during = tcgetattr(&terminal.slave).unwrap();
        assert!(!during.local_flags.contains(LocalFlags::ICANON));
        match way {
            b"term" => kill(Pid::from_raw(terminal.child.id() as i32), Signal::SIGTERM).unwrap(),
            keys => terminal.press(keys),
        }
        terminal.ends();
    }
}

#[test]
fn certificate_and_scenario_are_shown_without_a_lease() {
    let lab = lab();
    let span = Some(pb::Span { since_utc: Some(Default::default()), ..Default::default() });
    lab.fake.state().stats.span = span;
    let mut terminal = Terminal::open(&lab, "top --interval 50ms");
    terminal.shows(&["certificate: no packets yet  no scenario"]);
    terminal.press(b"q");
    terminal.ends();
}

#[test]
fn keys_change_the_view() {
    let lab = lab();
    let mut terminal = Terminal::open(&lab, "top --interval 50ms");
    terminal.shows(&["10.0.0.2"]);
    terminal.press(b"p");
    terminal.shows(&["paused"]);
    terminal.press(b"?");
    terminal.shows(&["choose a client"]);
    terminal.press(b"?pq");
    terminal.ends();
}

#[test]
fn view_survives_restarts_and_reconnects() {
    let mut lab = lab();
    let mut terminal = Terminal::open(&lab, "top --interval 50ms");
    terminal.shows(&["live, every"]);
    lab.running = None;
    terminal.shows(&["no dataplane at"]);
    lab.running = Some(lab.fake.serve(&lab.at("dataplane.sock")).unwrap());
    terminal.shows(&["live, every"]);
    lab.stop();
    terminal.shows(&["cannot reach linkd"]);
    lab.start();
    terminal.shows(&["live, every"]);
    lab.done("set profile transparent");
    terminal.shows(&["transparent"]);
    terminal.press(b"q");
    terminal.ends();
}

#[test]
fn view_starts_without_linkd_and_waits() {
    let mut lab = lab();
    lab.stop();
    let mut terminal = Terminal::open(&lab, "top");
    terminal.shows(&["cannot reach linkd"]);
    lab.start();
    terminal.shows(&["viasat2", "10.0.0.2"]);
    terminal.press(b"q");
    terminal.ends();
}

#[test]
fn view_without_terminal_or_in_json_names_alternative() {
    let lab = lab();
    let error = lab.fails(2, "top");
    assert!(error.contains("needs a terminal") && error.contains("linkctl stats --watch"));
    let error = lab.fails(2, "-o json top");
    assert!(error.contains("\"usage\"") && error.contains("linkctl -o json stats --watch"));
}
