//! Command line of `redrtd`, the daemon that `redrun` starts on every host. It is not meant to be run by hand: it reads
//! the job's secret from standard input.

use crate::quorum_peer;
use anyhow::{Context, Result, bail};
use clap::{Args, Parser};
use control_network::handing;
use control_network::launcher::{DaemonArguments, HOST_BY_SLURM};
use coordinator_records::{pipe_holder, quorum};
use pool_client::facts;
use say::developers;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

/// Holds the processes of a redrt job on one host. Started by redrun, which passes a secret on standard input.
#[derive(Parser)]
#[command(name = "redrtd", version)]
struct HostDaemonArguments {
    /// Print what this host is like, as JSON, and leave
    #[arg(long, exclusive = true)]
    probe: bool,

    #[command(flatten)]
    daemon: Option<DaemonOptions>,
}

#[derive(Args)]
struct DaemonOptions {
    /// Run the daemon as a child, and end what it leaves behind
    #[arg(long)]
    guard: bool,

    /// Version of redrun: another one is refused
    #[arg(long)]
    version_wanted: String,

    /// Number of this host within the job, or `slurm:N` for the N-th and those after it, as Slurm numbers them
    #[arg(long)]
    host: String,

    /// How many daemons connect to one
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    fan_out: u32,

    /// Where redrun listens
    #[arg(long)]
    coordinator: SocketAddr,

    /// The interface or network to use
    #[arg(long)]
    interface: Option<String>,

    /// How long processes go on when the coordinator of the job was killed, in milliseconds
    #[arg(long, default_value_t = 0)]
    coordinator_lease_ms: u64,

    /// They go on so long also when its host is lost
    #[arg(long)]
    has_several_coordinators: bool,

    /// Where the daemon above, or redrun, listens
    #[arg(long)]
    connect: SocketAddr,
}

/// Runs the command line; `arguments` begin with the program's name. Returns the exit code.
#[must_use]
pub fn main(arguments: Vec<OsString>) -> i32 {
    run(arguments).unwrap_or_else(|error| {
        say::error(format_args!("redrtd: {error:#}"));
        1
    })
}

fn run(words: Vec<OsString>) -> Result<i32> {
    let first = words.get(1).cloned().unwrap_or_default();
    if first == crate::HELPER_FLAG {
        return crate::help();
    }
    if first == pipe_holder::PIPE_HOLDER_FLAG {
        let [_, _, directory, lease_ms] = &words[..] else { bail!("redrun starts this") };
        let lease_ms = lease_ms.to_str().and_then(|word| word.parse().ok()).context("redrun starts this")?;
        pipe_holder::keep(Path::new(directory), Duration::from_millis(lease_ms))?;
        return Ok(0);
    }
    if first == quorum::PEER_FLAG {
        quorum_peer::run()?;
        return Ok(0);
    }
    let arguments = match command_line::parse_from::<HostDaemonArguments>(words.clone()) {
        Ok(arguments) => arguments,
        Err(code) => return Ok(code),
    };
    if arguments.probe {
        say::line(serde_json::to_string(&facts::here()?)?)?;
        return Ok(0);
    }
    let arguments = arguments.daemon.context("redrun starts this; by hand there is only --probe")?;
    let own = env!("CARGO_PKG_VERSION");
    if arguments.version_wanted != own {
        bail!("its redrtd is version {own}, redrun is version {}", arguments.version_wanted);
    }
    if arguments.guard {
        return crate::guard(words.into_iter().skip(1).filter(|argument| argument != "--guard"));
    }
    let host = host_number(&arguments.host)?;
    developers::begin(&format!("redrtd {host}"))?;
    let secret = handing::read_line(std::io::stdin())?;
    let DaemonOptions {
        fan_out, coordinator, interface, connect, coordinator_lease_ms, has_several_coordinators, ..
    } = arguments;
    let coordinator_lease = Duration::from_millis(coordinator_lease_ms);
    let (host, parent) = (Some(host), connect);
    crate::run(
        DaemonArguments { host, parent, coordinator, fan_out, interface, coordinator_lease, has_several_coordinators },
        &secret,
    )?;
    Ok(0)
}

fn host_number(text: &str) -> Result<u32> {
    let (first, number) = match text.strip_prefix(HOST_BY_SLURM) {
        None => ("0", text.to_owned()),
        Some(first) => (first, std::env::var("SLURM_NODEID").context("Slurm says no node number (SLURM_NODEID)")?),
    };
    let sum = first.parse::<u32>().ok().zip(number.parse().ok()).and_then(|(first, number)| first.checked_add(number));
    sum.with_context(|| format!("Failed to read the number of this host: {first} + {number}"))
}
