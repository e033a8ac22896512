// SPDX-License-Identifier: Apache-2.0
//! Programs in a session of their own.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Starts the command as the leader of a new session, and so of a new process group: signals of a terminal
/// do not reach it, and it has a share of the processors of its own where the kernel groups threads by
/// session (autogroup, `man 7 sched`).
#[allow(unsafe_code, reason = "std has no stable setsid")]
pub fn lead(command: &mut Command) -> &mut Command {
    let enter = || nix::unistd::setsid().map(drop).map_err(io::Error::from);
    // SAFETY: setsid is safe between fork and exec (`man 7 signal-safety`), and its errors do not allocate.
    unsafe { command.pre_exec(enter) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_leads_its_session() {
        let mut command = Command::new("sh");
        let output = lead(command.args(["-c", "cat /proc/$$/stat; echo $$"])).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let (stat, pid) = text.trim_end().rsplit_once('\n').unwrap();
        // `man 5 proc_pid_stat`: process group and session are fields 5 and 6.
        let fields: Vec<_> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        assert_eq!(fields[2..4], [pid, pid]);
    }
}
