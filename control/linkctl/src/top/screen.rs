// SPDX-License-Identifier: Apache-2.0
//! The terminal as a screen, restored however the command ends: by a key, a
//! signal, an error or a panic. (Only SIGKILL leaves it; `reset` helps then.)

use crate::failure::Failure;
use ratatui::DefaultTerminal;

/// The terminal while it is ours; dropping it gives it back.
pub struct Screen(pub DefaultTerminal);

impl Screen {
    /// Takes the terminal. A panic gives it back before it is reported.
    pub fn open() -> Result<Self, Failure> {
        ratatui::try_init().map(Self).map_err(|error| {
            // Reverts the changes so far.
            ratatui::restore();
            Failure::failed("terminal", format!("cannot use this terminal: {error}"))
                .hint("without one: linkctl stats --watch")
        })
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // The panic hook has done it already, and it does no harm to do it twice.
        let _ = ratatui::try_restore();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::termios::tcgetattr;
    use std::fs::File;
    use std::io::Read;
    use std::process::{Command, Stdio};

    /// Not a test by itself: [`panic_restores_the_terminal`] runs it in a terminal.
    #[test]
    #[ignore = "takes the terminal and panics"]
    fn panics() {
        let _screen = Screen::open().unwrap();
        panic!("on purpose");
    }

    #[test]
    fn panic_restores_the_terminal() {
        let size = nix::pty::Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = nix::pty::openpty(Some(&size), None).unwrap();
        let before = tcgetattr(&pty.slave).unwrap();
        let stdio = || Stdio::from(pty.slave.try_clone().unwrap());
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "top::screen::tests::panics", "--ignored", "--nocapture"])
            .stdin(stdio())
            .stdout(stdio())
            .stderr(stdio())
            .spawn()
            .unwrap();
        let mut master = File::from(pty.master);
        let reader = std::thread::spawn(move || {
            let (mut seen, mut part) = (Vec::new(), [0; 4096]);
            // The end of a terminal is an error.
            while let Ok(n @ 1..) = master.read(&mut part) {
                seen.extend_from_slice(&part[..n]);
            }
            String::from_utf8_lossy(&seen).into_owned()
        });
        assert!(!child.wait().unwrap().success());
        assert_eq!(tcgetattr(&pty.slave).unwrap(), before);
        drop(pty.slave);
        let seen = reader.join().unwrap();
        let left = seen.rfind("\x1b[?1049l").unwrap_or_else(|| panic!("{seen}"));
        assert!(seen.find("\x1b[?1049h").unwrap() < left, "{seen}");
        // The report is on the ordinary screen.
        assert!(seen.find("on purpose").unwrap() > seen.find("\x1b[?1049l").unwrap(), "{seen}");
    }
}
