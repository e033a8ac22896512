// SPDX-License-Identifier: Apache-2.0
//! The binary: its socket, its signals, its exit codes.

use crate::common::{channel, only, to_profile};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use proto::linkemu::v1::linkemu_client::LinkemuClient;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

fn linkd(socket: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_linkd"));
    command.arg("--socket").arg(socket).args(["--dataplane", "/nonexistent/dataplane.sock"]);
    command.env_remove("LINKEMU_SOCKET").env_remove("LINKEMU_LOG").stderr(Stdio::piped());
    command
}

fn start(socket: &Path) -> Child {
    serving(linkd(socket).spawn().unwrap(), socket)
}

fn serving(child: Child, socket: &Path) -> Child {
    let deadline = Instant::now() + Duration::from_secs(60);
    while std::os::unix::net::UnixStream::connect(socket).is_err() {
        assert!(Instant::now() < deadline, "linkd does not serve");
        std::thread::sleep(Duration::from_millis(5));
    }
    child
}

fn end(child: Child, signal: Signal) -> Output {
    kill(Pid::from_raw(child.id() as i32), signal).unwrap();
    child.wait_with_output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_signal_ends_it_cleanly() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("run/linkd.sock");
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let output = end(start(&socket), signal);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert!(stderr(&output).contains("serving"));
        assert_eq!(std::fs::read_dir(directory.path().join("run")).unwrap().count(), 0);
    }
}

#[test]
fn a_second_one_on_the_same_socket_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("linkd.sock");
    let first = start(&socket);
    let second = linkd(&socket).output().unwrap();
    assert_eq!(second.status.code(), Some(1));
    let expected = format!(
        "error: another linkd (pid {}) serves {}: stop it, or give another --socket",
        first.id(),
        socket.display()
    );
    assert!(stderr(&second).contains(&expected), "{}", stderr(&second));
    assert!(socket.exists());
    // Killed, it leaves its socket and lock behind; the next takes both over.
    let killed = end(first, Signal::SIGKILL);
    assert_eq!(killed.status.code(), None);
    assert!(socket.exists());
    let output = end(start(&socket), Signal::SIGTERM);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

#[test]
fn what_cannot_be_served_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("linkd.sock");
    std::fs::write(directory.path().join("bad.toml"), "name = 1\n").unwrap();
    let output = linkd(&socket).arg("--profiles").arg(directory.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("bad.toml:1:8: name: 1 is not text"), "{}", stderr(&output));
    let output = linkd(Path::new("/proc/nowhere/linkd.sock")).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("cannot create the directory /proc/nowhere"));
    let output = linkd(&socket).arg("--log").arg("a=b=c").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let output = linkd(&socket).arg("--nonsense").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(!socket.exists());
}

#[test]
fn tcp_without_certificates_is_a_usage_error() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("linkd.sock");
    for args in [
        &["--listen", "127.0.0.1:0"][..],
        &["--listen", "127.0.0.1:0", "--tls-cert", "a", "--tls-key", "b"],
        &["--tls-cert", "a"],
        &["--socket-mode", "999"],
    ] {
        let output = linkd(&socket).args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", stderr(&output));
        assert!(!socket.exists());
    }
    let files = ["--tls-cert", "/none.pem", "--tls-key", "/none.key", "--tls-client-ca", "/ca.pem"];
    let output = linkd(&socket).args(["--listen", "127.0.0.1:0"]).args(files).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("error: cannot read /ca.pem"), "{}", stderr(&output));
}

#[test]
fn sighup_opens_the_audit_log_anew() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let mut command = linkd(&at("linkd.sock"));
    let child = command.arg("--audit-log").arg(at("audit.jsonl")).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    let wait = |name: &str| {
        while !std::fs::read_to_string(at(name)).is_ok_and(|text| text.ends_with('\n')) {
            assert!(Instant::now() < deadline, "{name} is not written");
            std::thread::sleep(Duration::from_millis(5));
        }
        std::fs::read_to_string(at(name)).unwrap()
    };
    assert!(wait("audit.jsonl").contains("\"started\""));
    std::fs::rename(at("audit.jsonl"), at("audit.jsonl.1")).unwrap();
    // Its signals are waited for before the log is opened.
    kill(Pid::from_raw(child.id() as i32), Signal::SIGHUP).unwrap();
    assert!(wait("audit.jsonl").contains("\"reopened\""));
    let output = end(child, Signal::SIGTERM);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let output = linkd(&at("linkd.sock")).args(["--audit-log", "/dev/full"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("cannot write the audit log"), "{}", stderr(&output));
}

#[tokio::test]
async fn audit_log_that_cannot_grow_has_whole_lines_only() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let mut command = linkd(&at("linkd.sock"));
    command.arg("--audit-log").arg(at("audit.jsonl"));
    // The kernel writes a part of the line that crosses the limit, as on a full disk.
    let mut limited = Command::new("sh");
    limited.args(["-c", "trap '' XFSZ; ulimit -f 2; exec \"$@\"", "sh"]);
    limited.arg(command.get_program()).args(command.get_args()).stderr(Stdio::piped());
    let child = serving(limited.spawn().unwrap(), &at("linkd.sock"));
    let mut client = LinkemuClient::new(channel(&at("linkd.sock")));
    let request = only(to_profile("viasat2"));
    let mut refused = 0;
    for _ in 0..20 {
        let status = client.update_links(request.clone()).await.unwrap_err();
        refused += u32::from(status.message().contains("cannot write the audit log"));
    }
    end(child, Signal::SIGKILL);
    assert!(refused > 5, "{refused}");
    let text = std::fs::read_to_string(at("audit.jsonl")).unwrap();
    assert!(text.ends_with('\n'), "{text}");
    for line in text.lines() {
        serde_json::from_str::<serde_json::Value>(line).unwrap();
    }
}

#[test]
fn a_hangup_ends_it_when_it_has_nothing_to_read_anew() {
    use std::os::unix::process::ExitStatusExt;
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("linkd.sock");
    // The tests may run with it ignored (nohup), and linkd would inherit that.
    let linkd = linkd(&socket);
    let mut command = Command::new("env");
    command.arg("--default-signal=HUP").arg(linkd.get_program()).args(linkd.get_args());
    let child = serving(command.stderr(Stdio::piped()).spawn().unwrap(), &socket);
    let output = end(child, Signal::SIGHUP);
    assert_eq!(output.status.signal(), Some(Signal::SIGHUP as i32), "{}", stderr(&output));
}

#[test]
fn it_listens_on_a_socket_for_owner_and_group_alone_unless_told_otherwise() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("linkd.sock");
    for (args, mode) in [(&[][..], 0o660), (&["--socket-mode", "0600"], 0o600)] {
        let child = serving(linkd(&socket).args(args).spawn().unwrap(), &socket);
        let found = std::fs::metadata(&socket).unwrap().permissions().mode() & 0o777;
        assert_eq!(found, mode, "{found:o}");
        let opened = std::fs::read_dir(format!("/proc/{}/fd", child.id())).unwrap();
        let opened: Vec<_> = opened
            .filter_map(|file| std::fs::read_link(file.unwrap().path()).ok())
            .filter_map(|link| {
                link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']').map(str::to_owned)
            })
            .collect();
        assert!(!opened.is_empty());
        for table in ["tcp", "tcp6", "udp", "udp6"] {
            let table = std::fs::read_to_string(format!("/proc/{}/net/{table}", child.id()));
            // Without IPv6 there is no table of it.
            for line in table.unwrap_or_default().lines() {
                let inode = line.split_whitespace().nth(9).unwrap_or_default();
                assert!(!opened.iter().any(|own| own == inode), "{line}");
            }
        }
        end(child, Signal::SIGTERM);
    }
}
