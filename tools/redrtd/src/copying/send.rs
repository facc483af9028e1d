//! Sends the image of a process of this host.

use super::{HelperConnection, Reply, STREAM_COUNT, connect, cost, event_teller, leave_unless_wanted};
use anyhow::{Context, Result};
use cloner::net;
use cloner::source::{self, Options, Sink};
use redrt_wire::secret::Secret;
use std::net::SocketAddr;

/// Clones process `pid`.
pub fn send(
    secret: &Secret,
    pid: i32,
    destination: SocketAddr,
    options: &Options,
    daemon: &mut HelperConnection,
) -> Result<()> {
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?;
    let control = connect(pid)?;
    let subject = source::subject(&control)?;
    let sink = net::connect(&destination.to_string(), secret, subject.pid, STREAM_COUNT)
        .and_then(Sink::over)
        .with_context(|| format!("Failed to connect to {destination}"))?;
    let mut tell = event_teller(&control);
    let report = source::clone(&control, options, sink, &mut |event| leave_unless_wanted(tell(&event, daemon)))?;
    daemon.say(&Reply::Sent(cost(&report)))
}
