// SPDX-License-Identifier: Apache-2.0
//! `linkd-group`: see `--help`.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use clap::{CommandFactory, Parser};
use endpoint::{Claim, supervisor};
use group::arguments::Arguments;
use group::file::{Address, GroupFile};
use group::group::Group;
use group::{connect, service};
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(folder) = &arguments.manual {
        return match manual::write_daemon(&Arguments::command(), folder) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("error: cannot write to {}: {error}", folder.display());
                ExitCode::from(1)
            }
        };
    }
    let filter = tracing_subscriber::EnvFilter::new(&arguments.log);
    endpoint::log::to_stderr(filter);
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", endpoint::errors::told(error.as_ref()));
            ExitCode::from(1)
        }
    }
}

fn run(arguments: &Arguments) -> anyhow::Result<()> {
    endpoint::files::ensure()?;
    let path = arguments.group.as_deref().unwrap_or(Path::new(""));
    let file = GroupFile::read(path)?;
    for it in &file.boxes {
        if let Address::Tls { files, .. } = &it.address {
            connect::connector(files).with_context(|| format!("box {}", it.name))?;
        }
    }
    let (_claim, listener) = Claim::new(&arguments.socket, "linkd-group")?;
    let instance = getrandom::u64().context("cannot draw a random number")?.max(1);
    // Changes are sent to each box in their order: by one thread.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let at = arguments.socket.display();
    let name = format!("linkd-group at {at}, process {}", std::process::id());
    // Channels to the boxes begin within the runtime.
    runtime.block_on(async { serve(Group::new(file, instance), listener, &name).await })
}

async fn serve(
    group: Group,
    listener: std::os::unix::net::UnixListener,
    name: &str,
) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let serving = service::serve(group.clone(), UnixListener::from_std(listener)?);
    let settling = async {
        if let Err(fault) = group.settle().await {
            anyhow::bail!("the boxes do not fit together: {fault}");
        }
        tracing::info!("all boxes have answered");
        std::future::pending().await
    };
    tracing::info!("serves");
    supervisor::ready(&status(&group));
    tokio::select! {
        served = Box::pin(serving) => served.context("the service ended")?,
        settled = Box::pin(settling) => settled?,
        () = Box::pin(group.keep(name)) => {}
        () = keep_alive(&group) => {}
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!("stopping");
    supervisor::stopping();
    Ok(())
}

/// Reports to the service manager that this thread is alive, and which boxes are up.
async fn keep_alive(group: &Group) {
    let period = supervisor::period().unwrap_or(std::time::Duration::from_secs(5));
    let mut told = String::new();
    loop {
        supervisor::alive();
        let status = status(group);
        if status != told {
            supervisor::status(&status);
            told = status;
        }
        tokio::time::sleep(period).await;
    }
}

/// The status line for the service manager.
fn status(group: &Group) -> String {
    let (up, down) = group.names();
    let list = |names: &[String]| match names.is_empty() {
        true => "none".to_owned(),
        false => names.join(", "),
    };
    format!("boxes up: {}; down: {}", list(&up), list(&down))
}
