// SPDX-License-Identifier: Apache-2.0
//! Bad input gives a stable exit code and a message with the value and the remedy. Nothing is
//! applied in part.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use smoke::cpus::Cpus;
use smoke::linkctl::{DONE, Linkctl, REFUSED, UNREACHABLE, USAGE};
use smoke::ping::Ping;
use smoke::process::{Outcome, run};
use smoke::testbed::{Middle, Options, SAT_INTERFACE, SERVER, Testbed, WAN_INTERFACE};

use super::{SEED, emulator, on_bed};

const LIMIT: Duration = Duration::from_secs(30);

const WAN: &str = "wan=net_af_packet,iface=wan0";
const CLIENT: &str = "client=net_af_packet,iface=sat0";

/// A profile with typing errors.
const MISTYPED: &str = r#"
name = "mistyped"
description = "a key that does not exist"
source = "none"
[forward]
ratte = "10 Mbit/s"
[forward.queue]
limit = "1 MB"
[forward.delay]
base = "1 ms"
[return]
rate = "10 Mbit/s"
[return.queue]
limit = "1 MB"
[return.delay]
base = "1 ms"
"#;

pub fn bad_change_is_refused_and_not_applied(cpus: &Cpus) -> anyhow::Result<()> {
    on_bed(cpus, emulator(1), |bed| {
        let linkctl = bed.linkctl()?;
        linkctl.set_profile("viasat2", SEED)?;
        let mistyped = bed.directory().write("mistyped.toml", MISTYPED)?.display().to_string();
        #[rustfmt::skip]
        let cases: &[(&[&str], i32, &[&str])] = &[
            (&["set", "profile", "viasat3"], REFUSED, &["viasat3", "viasat2"]),
            (&["set", "profile", &mistyped], REFUSED, &["ratte", "rate"]),
            (&["set", "rate", "72"], USAGE, &["72", "Mbit/s"]),
            (&["set", "rate", "-5Mbit/s"], USAGE, &["-5"]),
            (&["set", "rate", "72Mbit/s", "--direction", "forwards"], USAGE, &["forwards", "forward"]),
            (&["set", "delay", "100000s"], REFUSED, &["1 d 3 h 46 min 40 s", "1 min"]),
            (&["set", "queue", "100B", "--tail-drop"], REFUSED, &["100 B", "1.518 kB"]),
            (&["set", "rate", "72Mbit/s", "--expect-generation", "999"], REFUSED, &["999"]),
        ];
        refuses_each(&linkctl, cases)
    })
}

/// Runs each case and checks that the link does not change.
fn refuses_each(linkctl: &Linkctl, cases: &[(&[&str], i32, &[&str])]) -> anyhow::Result<()> {
    let before = linkctl.show()?;
    let mut wrong = Vec::new();
    for &(arguments, code, words) in cases {
        let outcome = linkctl.run(arguments)?;
        if let Err(e) = fails_with(&outcome, code, words) {
            wrong.push(format!("{e:#}"));
        }
        ensure!(linkctl.show()? == before, "{arguments:?} changed the link");
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// Checks the exit code, and that the message contains all of the words.
fn fails_with(outcome: &Outcome, code: i32, words: &[&str]) -> anyhow::Result<()> {
    let message = &outcome.stderr;
    ensure!(
        outcome.code() == code,
        "{} ends with {}, not {code}: {message}",
        outcome.command,
        outcome.code()
    );
    let missing: Vec<_> = words.iter().filter(|w| !message.contains(**w)).collect();
    ensure!(missing.is_empty(), "`{}` does not say {missing:?}: {message}", outcome.command);
    ensure!(!message.contains("panicked"), "{}: {message}", outcome.command);
    Ok(())
}

pub fn too_little_memory_is_refused_with_figures(cpus: &Cpus) -> anyhow::Result<()> {
    let options = Options { memory: "64 MiB".to_owned(), ..emulator(1) };
    on_bed(cpus, options, |bed| {
        let linkctl = bed.linkctl()?;
        refuses_each(
            &linkctl,
            &[(&["set", "profile", "viasat2"], REFUSED, &["too little memory", "--memory"])],
        )?;
        // The old link still works.
        let source = bed.client_address(0);
        let ping = Ping::start(bed.client(), source, SERVER, 5, Duration::from_millis(50))?;
        let pings = ping.finish()?;
        ensure!(pings.lost() == 0 && pings.share_within(0.0, 500.0) > 0.99, "{pings:?}");
        Ok(())
    })
}

pub fn dataplane_that_cannot_start_reports_reason(cpus: &Cpus) -> anyhow::Result<()> {
    let options = Options { middle: Middle::Nothing, ..Options::default() };
    on_bed(cpus, options, |bed| {
        let socket = bed.dataplane_socket().display().to_string();
        let start = |wan: &str, client: &str, more: &[&str]| {
            let more = [&["--socket", socket.as_str()], more].concat();
            Ok::<_, anyhow::Error>(run(bed.dataplane_command(wan, client, &more)?, LIMIT)?)
        };
        let twice = start(WAN, "client=net_af_packet,iface=wan0", &[])?;
        fails_with(&twice, REFUSED, &["wan0"])?;
        fails_with(&start(WAN, "wan=net_af_packet,iface=sat0", &[])?, USAGE, &["wan", "client"])?;
        fails_with(&start(WAN, "lan=net_af_packet,iface=sat0", &[])?, USAGE, &["lan", "client"])?;
        let missing = start(WAN, "client=net_af_packet,iface=sat9", &[])?;
        fails_with(&missing, REFUSED, &["sat9", SAT_INTERFACE, WAN_INTERFACE])?;
        let driver = start(WAN, "client=net_af_paket,iface=sat0", &[])?;
        fails_with(&driver, REFUSED, &["net_af_paket", "net_af_packet"])?;
        fails_with(&start(WAN, CLIENT, &["--memory", "64"])?, USAGE, &["64", "unit"])?;
        fails_with(&start(WAN, CLIENT, &["--core", "4095"])?, REFUSED, &["4095"])?;
        fails_with(&start(WAN, CLIENT, &["--memory", "1000 TiB"])?, REFUSED, &["--memory"])?;
        fails_with(&as_nobody(bed)?, REFUSED, &["ermi"])?;
        ensure!(!Path::new(&socket).exists(), "a dataplane that did not start left its socket");
        Ok(())
    })
}

/// Runs the dataplane as an unprivileged user, from a directory that the user can read.
fn as_nobody(bed: &Testbed) -> anyhow::Result<Outcome> {
    let directory = bed.directory();
    fs::set_permissions(directory.root(), Permissions::from_mode(0o755))?;
    let own = directory.path("linkd-dataplane");
    fs::copy(&bed.binaries()?.dataplane, &own).context("copy the dataplane")?;
    let open = directory.path("open");
    fs::create_dir(&open)?;
    fs::set_permissions(&open, Permissions::from_mode(0o777))?;
    let socket = open.join("dataplane.sock");
    let mut command = bed.emulator().command(&[
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        "--bounding-set=-all",
        "--inh-caps=-all",
    ]);
    command.arg(&own).args(["--port", WAN, "--port", CLIENT, "--socket"]).arg(&socket);
    let outcome = run(command, LIMIT)?;
    ensure!(!socket.exists(), "a dataplane that did not start left its socket");
    Ok(outcome)
}

pub fn missing_process_is_named(cpus: &Cpus) -> anyhow::Result<()> {
    on_bed(cpus, emulator(1), |bed| {
        let linkctl = bed.linkctl()?;
        let dataplane = bed.dataplane_socket();
        linkctl.set_profile("viasat2", SEED)?;
        let before = linkctl.show()?;

        // A second dataplane is refused, and the first one continues.
        let second = run(bed.own_dataplane_command()?, LIMIT)?;
        fails_with(&second, REFUSED, &[&dataplane.display().to_string()])?;
        ensure!(linkctl.show()? == before, "a second dataplane changed the link");
        ensure!(bed.dataplane_runs(), "a second dataplane ended the first");

        // The dataplane is killed: linkd reports it, and reconnects later.
        bed.kill_dataplane()?;
        for arguments in [&["stats"][..], &["show"], &["set", "rate", "1Mbit/s"]] {
            fails_with(&linkctl.run(arguments)?, UNREACHABLE, &[&dataplane.display().to_string()])?;
        }
        ensure!(linkctl.run(&["profile", "list"])?.code() == DONE, "the list needs no dataplane");
        bed.start_dataplane()?;
        let after = linkctl.show()?;
        ensure!(after != before, "a new dataplane cannot have the old link: {after:?}");
        linkctl.set_profile("viasat2", SEED)?;
        Ok(())
    })
}
