// SPDX-License-Identifier: Apache-2.0
//! `linkctl lease`: the link for oneself, for a while.

use crate::complete;
use crate::connection::Connection;
use crate::context::{Context, Output};
use crate::failure::{FAILED, Failure};
use crate::output;
use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCompleter;
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use profile::parse_duration;
use proto::linkemu::v1 as pb;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};
use view::instant;

pub const EXAMPLES: &str = "\
Examples:
  linkctl lease run --ttl 1min --return-to transparent -- pytest tests/link
                                            acquire, renew during the command, release
  linkctl lease acquire --holder ci-7 --ttl 10min --return-to transparent
  linkctl lease show                        the holder of the link
  linkctl lease watch                       and all changes
  linkctl --lease TOKEN lease renew         for another time to live
  linkctl --lease TOKEN lease release
  linkctl lease acquire --holder root --ttl 1h --steal

Commands take the token from --lease or LINKEMU_LEASE. A lease that is not renewed in time expires,
and the profile of --return-to is set.";

/// The environment variable that carries a token.
const TOKEN: &str = "LINKEMU_LEASE";
/// The one that carries the name of the link.
const LINK: &str = "LINKEMU_LINK";

#[derive(Debug, Subcommand)]
pub enum Lease {
    /// Acquire a lease, and print its token
    Acquire {
        /// Revoke the lease of the current holder; needs the role admin
        #[arg(long)]
        steal: bool,
        #[command(flatten)]
        terms: Terms,
    },
    /// Extend the lease by its time to live, from now
    Renew,
    /// End the lease, and set the profile of --return-to
    Release,
    /// Show the active lease; exit code 1 without one
    Show,
    /// Show the active lease and all changes until interrupted
    Watch,
    /// Run a command under a lease, which is renewed until the command ends; exits with its code
    Run {
        #[command(flatten)]
        terms: Terms,
        /// Command and its arguments
        #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
        command: Vec<String>,
    },
}

/// Terms of a lease.
#[derive(Clone, Debug, Args)]
pub struct Terms {
    /// Holder, such as a CI job; default: user and host
    #[arg(long, value_name = "NAME")]
    holder: Option<String>,
    /// Purpose, for others to read
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    purpose: String,
    /// Time to live, 1 s to 24 h: the lease expires unless it is renewed
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    ttl: u64,
    /// Set this profile when the lease ends for any reason; default: the link does not change
    #[arg(long, value_name = "PROFILE", default_value = "", hide_default_value = true, add = ArgValueCompleter::new(complete::profile_name))]
    return_to: String,
    /// Name of this request: if it is repeated, the answer is the same lease
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    request_id: String,
}

fn text(lease: &pb::Lease) -> String {
    let pb::Lease { holder, purpose, expires, return_profile, .. } = lease;
    let until = instant::utc(expires.as_ref()).unwrap_or_else(|| "-".to_owned());
    let purpose = match purpose.as_str() {
        "" => String::new(),
        purpose => format!(" for {purpose}"),
    };
    let then = match return_profile.as_str() {
        "" => "the link stays as it is".to_owned(),
        name => format!("the link returns to {name}"),
    };
    format!("leased to {holder}{purpose} until {until}, unless renewed; then {then}")
}

pub async fn run(context: &Context, what: &Lease) -> Result<(), Failure> {
    let connection = Connection::open(context).await?;
    match what {
        Lease::Acquire { steal, terms } => {
            let answer = acquire(&connection, terms, *steal).await?;
            match context.output {
                Output::Json => output::message(&answer),
                Output::Text => {
                    let lease = text(&answer.lease.unwrap_or_default());
                    output::text(&format!("{lease}\nexport {TOKEN}={}", answer.token))
                }
            }
        }
        Lease::Renew => {
            let request = pb::RenewLeaseRequest { token: token(context)?, link: connection.link() };
            let lease = connection.answer(connection.leases().renew_lease(request)).await?;
            show(context, &lease)
        }
        Lease::Release => {
            let request =
                pb::ReleaseLeaseRequest { token: token(context)?, link: connection.link() };
            let answer = connection.answer(connection.leases().release_lease(request)).await?;
            match context.output {
                Output::Json => output::message(&answer),
                Output::Text => output::text(&match answer.generation {
                    Some(generation) => {
                        format!("released; the link returned: generation {generation}")
                    }
                    None => "released; the link stays as it is".to_owned(),
                }),
            }
        }
        Lease::Show => {
            let request = pb::GetLeaseRequest { link: connection.link() };
            let lease = connection.answer(connection.leases().get_lease(request)).await?;
            show(context, &lease)
        }
        Lease::Watch => {
            let request = pb::WatchLeaseRequest { link: connection.link() };
            let mut states = connection.answer(connection.leases().watch_lease(request)).await?;
            let failed = |status| connection.failure(&status);
            while let Some(state) = states.message().await.map_err(failed)? {
                match (context.output, &state.lease) {
                    (Output::Json, _) => output::message(&state)?,
                    (Output::Text, Some(lease)) => output::text(&text(lease))?,
                    (Output::Text, None) => output::text("no active lease")?,
                }
            }
            Ok(())
        }
        Lease::Run { terms, command } => {
            let link = context.linkd.link();
            run_with(&connection, link, terms, command).await
        }
    }
}

fn show(context: &Context, lease: &pb::Lease) -> Result<(), Failure> {
    match context.output {
        Output::Json => output::message(lease),
        Output::Text => output::text(&text(lease)),
    }
}

fn token(context: &Context) -> Result<String, Failure> {
    context.token().map(str::to_owned).ok_or_else(|| {
        Failure::usage(format!("which lease? give its token by --lease, or set {TOKEN}"))
    })
}

async fn acquire(
    connection: &Connection,
    terms: &Terms,
    steal: bool,
) -> Result<pb::AcquireLeaseResponse, Failure> {
    let Terms { holder, purpose, ttl, return_to, request_id } = terms.clone();
    let request = pb::AcquireLeaseRequest {
        holder: holder.unwrap_or_else(user_at_host),
        purpose,
        ttl_ns: ttl,
        return_profile: return_to,
        steal,
        request_id,
        link: connection.link(),
    };
    connection.answer(connection.leases().acquire_lease(request)).await
}

fn user_at_host() -> String {
    let user = std::env::var("USER").unwrap_or_else(|_| format!("uid {}", nix::unistd::getuid()));
    let host = nix::unistd::gethostname().unwrap_or_default();
    format!("{user}@{}", host.to_string_lossy())
}

/// Runs a command while the lease is renewed, three times within its time to live.
async fn run_with(
    connection: &Connection,
    link: Option<&str>,
    terms: &Terms,
    command: &[String],
) -> Result<(), Failure> {
    let [program, arguments @ ..] = command else {
        return Err(Failure::usage("which command? give one after --"));
    };
    let token = acquire(connection, terms, false).await?.token;
    let renewing = async {
        let mut every = tokio::time::interval(Duration::from_nanos(terms.ttl / 3));
        every.tick().await;
        loop {
            every.tick().await;
            let request = pb::RenewLeaseRequest { token: token.clone(), link: connection.link() };
            if let Err(error) = connection.answer(connection.leases().renew_lease(request)).await {
                // The command continues; it is notified when it changes the link.
                let _ = error.report(false);
            }
        }
    };
    let mut running = Command::new(program);
    running.args(arguments).env(TOKEN, &token);
    if let Some(link) = link {
        running.env(LINK, link);
    }
    let ended = to_its_end(&mut running);
    let ended = tokio::select! {
        ended = ended => ended,
        () = renewing => Err(std::io::Error::other("it is not waited for")),
    };
    let request = pb::ReleaseLeaseRequest { token, link: connection.link() };
    let released = connection.answer(connection.leases().release_lease(request)).await;
    let ended = ended.map_err(|error| format!("cannot run {program}: {error}"));
    let code = match ended.map(|status| (status.code(), status.signal())) {
        Ok((Some(0), _)) => return released.map(drop),
        Ok((Some(code), _)) => Ok(u8::try_from(code).unwrap_or(FAILED)),
        Ok((None, signal)) => {
            Err(format!("{program} was ended by signal {}", signal.unwrap_or_default()))
        }
        Err(message) => Err(message),
    };
    if let Err(failure) = released {
        // The exit code of the command has precedence.
        let _ = failure.report(false);
    }
    Err(code.map_or_else(|message| Failure::failed("command", message), Failure::Command))
}

/// Runs a command. A signal to end goes to it, and the lease is released when it has ended.
async fn to_its_end(command: &mut Command) -> std::io::Result<ExitStatus> {
    let [mut interrupt, mut terminate, mut hangup] = [
        signal(SignalKind::interrupt())?,
        signal(SignalKind::terminate())?,
        signal(SignalKind::hangup())?,
    ];
    let mut child = command.spawn()?;
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).map(Pid::from_raw);
    loop {
        let passed = tokio::select! {
            status = child.wait() => return status,
            // A terminal sends it to the command as well.
            _ = interrupt.recv() => None,
            _ = terminate.recv() => Some(Signal::SIGTERM),
            _ = hangup.recv() => Some(Signal::SIGHUP),
        };
        if let (Some(pid), Some(signal)) = (pid, passed) {
            // One that has ended is waited for next.
            let _ = nix::sys::signal::kill(pid, signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lease_is_described_in_words() {
        let lease = pb::Lease {
            holder: "ci-7".into(),
            expires: Some(prost_types::Timestamp { seconds: 1_790_000_000, nanos: 0 }),
            ttl_ns: 60_000_000_000,
            return_profile: "transparent".into(),
            ..Default::default()
        };
        assert_eq!(
            text(&lease),
            "leased to ci-7 until 2026-09-21T14:13:20.000000000Z, unless renewed; then the link \
             returns to transparent"
        );
    }
}
