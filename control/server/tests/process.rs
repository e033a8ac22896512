// SPDX-License-Identifier: Apache-2.0
//! The binary: its socket, its signals, its exit codes.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
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
    let child = linkd(socket).spawn().unwrap();
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
