//! `redspared`: a site's pool of spare hosts, shared by many jobs.
//!
//! `spare_pool` makes the decisions. This crate has the file, the connections and the clock.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod host_probes;
mod keys;
mod metrics;
mod report;
mod server;
mod store;
mod users;

use anyhow::{Context, Result};
use clap::{CommandFactory, Parser};
use command_line::{Generate, generate_for};
use control_network::launcher::daemon_executable;
use control_network::launchers;
use control_network::munge::Munge;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use pool_client::access;
use pool_client::wire::DEFAULT_PORT;
use say::Console;
use spare_pool::{Pool, Settings, Watch};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Keep a pool of spare hosts that jobs share.
///
/// Jobs started with redrun --pool lease a host from it when they have lost replicas, and give it back when they end.
/// Leases survive a restart of this daemon; those of a job that has vanished end by themselves. Idle hosts are looked
/// at again and again. Hosts are added and removed by redctl pool.
#[derive(Parser, Debug)]
#[command(name = "redspared", version, max_term_width = 100, after_help = EXAMPLES)]
struct PoolDaemonArguments {
    /// Where to listen, [ADDRESS:]PORT
    #[arg(long, value_name = "ADDRESS", default_value_t = format!("0.0.0.0:{DEFAULT_PORT}"))]
    listen: String,

    /// File that holds the pool; made if it is not there
    #[arg(long, value_name = "FILE", required_unless_present = "generate")]
    state: Option<PathBuf>,

    /// File that holds the key of jobs, which may lease and look; made if it is not there [default: FILE.secret beside
    /// the state]
    #[arg(long = "secret-file", value_name = "FILE")]
    secret_file: Option<PathBuf>,

    /// File that holds the administrator's key, which may change the pool; made if it is not there [default: FILE.admin
    /// beside the state]
    #[arg(long = "admin-secret-file", value_name = "FILE")]
    admin_file: Option<PathBuf>,

    /// Directory with a file NAME.key for each user: jobs that use it are that user's
    #[arg(long = "user-keys", value_name = "DIRECTORY")]
    user_keys: Option<PathBuf>,

    /// Tell the users of the key of jobs apart by MUNGE: no job of another user can give back or take over what a
    /// user's jobs have
    #[arg(long)]
    munge: bool,

    /// Time after which the leases of a job that is not heard of end
    #[arg(long = "lease-time", value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    lease_time: Duration,

    /// How often an idle host is looked at
    #[arg(long = "watch-interval", value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    watch_interval: Duration,

    /// How long looking at a host may take
    #[arg(long = "watch-timeout", value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    watch_timeout: Duration,

    /// How long a host is left alone after a clone to it failed; doubles with each failure
    #[arg(long = "rest", value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    rest: Duration,

    /// Number of failures after which a host is bad
    #[arg(long = "failures-max", value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    failures_max: u32,

    /// Places that one job may have
    #[arg(long = "max-per-job", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    places_per_job_max: Option<u32>,

    /// Command to use in place of ssh, with options if need be
    #[arg(long = "launcher-exec", value_name = "COMMAND", default_value = "ssh")]
    launcher: OsString,

    /// Tell Prometheus how the pool is, at http://ADDRESS/metrics: HOST:PORT, or PORT for this host alone
    #[arg(long, value_name = "ADDRESS", value_parser = http_pages::address)]
    metrics: Option<SocketAddr>,

    /// Print a manual page or shell completions and leave
    #[arg(long, value_enum, value_name = "WHAT", exclusive = true)]
    generate: Option<Generate>,
}

const EXAMPLES: &str = "\
Examples:
  redspared --state /var/lib/redrt/pool
  redctl pool --pool spares1 --pool-secret /var/lib/redrt/pool.admin add h7 h8:4
  redrun --pool spares1 -r 2 -n 64 ./app";

#[derive(Debug, thiserror::Error)]
#[error("expected a number of seconds, at least 0.01")]
struct NotSeconds;

fn seconds(text: &str) -> Result<Duration, NotSeconds> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.01..=1e7).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err(NotSeconds),
    }
}

/// Runs the command and returns its exit code.
#[must_use]
pub fn main(arguments: Vec<OsString>) -> i32 {
    let console = Console::new("redspared");
    let arguments = match command_line::parse_from::<PoolDaemonArguments>(arguments) {
        Ok(arguments) => arguments,
        Err(code) => return code,
    };
    match run(arguments, &console) {
        Ok(()) => 0,
        Err(error) => {
            console.error(&format!("{error:#}"));
            1
        }
    }
}

fn run(arguments: PoolDaemonArguments, console: &Console) -> Result<()> {
    if let Some(what) = arguments.generate {
        say::text(&generate_for(PoolDaemonArguments::command(), "redspared", what))?;
        return Ok(());
    }
    let state = arguments.state.context("--state is missing")?;
    let beside = |suffix: &str| {
        let mut name = state.clone().into_os_string();
        name.push(suffix);
        PathBuf::from(name)
    };
    let secret_file = arguments.secret_file.unwrap_or_else(|| beside(".secret"));
    let admin_file = arguments.admin_file.unwrap_or_else(|| beside(".admin"));
    let settings = Settings {
        lease_time: Some(arguments.lease_time),
        rest_first: arguments.rest,
        strikes_max: arguments.failures_max,
        watch: Some(Watch {
            interval: arguments.watch_interval,
            interval_max: arguments.watch_interval.max(Duration::from_secs(300)),
            // The look ends by itself at `watch_timeout`; this limit is for a look that hangs.
            answer_time_max: arguments.watch_timeout + Duration::from_secs(60),
        }),
        places_per_job_max: arguments.places_per_job_max,
        ..Settings::shared()
    };
    let launcher = launchers::words(&arguments.launcher);
    anyhow::ensure!(!launcher.is_empty(), "--launcher-exec is empty");
    // Signals are blocked before the first thread starts: all threads inherit the mask.
    let signals = catch_signals()?;
    let keys = keys::Keys::load(&secret_file, &admin_file, arguments.user_keys.as_deref())?;
    let users = arguments.munge.then(|| users::Users::by(Munge::default(), keys.authority())).transpose()?;
    let store = store::Store::open(&state)?;
    let stored = store.load().with_context(|| format!("Failed to read the pool's state {}", state.display()))?;
    let pool = Pool::restore(settings, stored, Duration::ZERO);
    let probes = host_probes::HostProbes::new(daemon_executable()?, launcher, arguments.watch_timeout)?;
    let address = listen_address(&arguments.listen)?;
    let metrics = arguments.metrics.map(metrics::listen).transpose()?;
    server::Server::new(address, keys, users, pool, store, probes, console)?.with_metrics(metrics).run(&signals)
}

fn listen_address(text: &str) -> Result<SocketAddr> {
    match text.parse::<u16>() {
        Ok(port) => Ok(([0, 0, 0, 0], port).into()),
        Err(_) => access::resolve(text),
    }
}

fn catch_signals() -> Result<SignalFd> {
    let mask: SigSet = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].into_iter().collect();
    mask.thread_block()?;
    Ok(SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        PoolDaemonArguments::command().debug_assert();
    }

    #[test]
    fn wrong_usage_is_exit_code_2() {
        for words in [&["redspared"][..], &["redspared", "--state", "x", "--lease-time", "0"], &["redspared", "x"]] {
            assert_eq!(main(words.iter().map(OsString::from).collect()), 2, "{words:?}");
        }
    }
}
