//! Sends the image of a process of this host.

use super::{Daemon, Reply, STREAM_COUNT, Word, cost, progress_teller};
use anyhow::{Context, Result};
use cloner::Phase;
use cloner::control::Control;
use cloner::net;
use cloner::source::{self, Event, Options, Sink};
use redrt_wire::secret::Secret;
use std::net::SocketAddr;

/// Clones process `pid`.
pub fn send(secret: &Secret, pid: i32, destination: SocketAddr, options: &Options, daemon: &mut Daemon) -> Result<()> {
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?;
    let control = Control::connect(pid as u32)?;
    let subject = source::subject(&control)?;
    let sink = net::connect(&destination.to_string(), secret, subject.pid, STREAM_COUNT)
        .and_then(Sink::over)
        .with_context(|| format!("Failed to connect to {destination}"))?;
    let mut tell_progress = progress_teller();
    let report = source::clone(&control, options, sink, &mut |event| {
        let heard = match event {
            Event::Phase(Phase::Cut) => daemon.say(&Reply::Ready).and_then(|()| daemon.wait_for(Word::Cut)),
            Event::Stopped => source::unread(&control, 0)
                .context("Failed to look into standard input")
                .and_then(|unread| daemon.say(&Reply::Stopped { unread }))
                .and_then(|()| daemon.wait_for(Word::GoOn)),
            event => tell_progress(&event, daemon),
        };
        if heard.is_err() {
            // Nobody wants the copy any more. The agent sees that this process is gone, and lets the program's threads
            // go on.
            std::process::exit(1);
        }
    })?;
    daemon.say(&Reply::Sent(cost(&report)))
}
