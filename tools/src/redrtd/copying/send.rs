//! Sends the image of a process of this host.

use super::{Daemon, Reply, STREAM_COUNT, Word};
use anyhow::{Context, Result};
use cloner::Phase;
use cloner::control::Control;
use cloner::net;
use cloner::source::{self, Event, Options, Sink};
use redrt_wire::clone::{Cost, Progress};
use redrt_wire::secret::Secret;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Progress is told this often.
const TELL_INTERVAL: Duration = Duration::from_millis(100);

/// Clones process `pid`.
pub fn send(secret: &Secret, pid: i32, destination: SocketAddr, options: &Options, daemon: &mut Daemon) -> Result<()> {
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?;
    let control = Control::connect(pid as u32)?;
    let subject = source::subject(&control)?;
    let sink = net::connect(&destination.to_string(), secret, subject.pid, STREAM_COUNT)
        .and_then(Sink::over)
        .with_context(|| format!("Failed to connect to {destination}"))?;
    let mut told = Instant::now();
    let report = source::clone(&control, options, sink, &mut |event| {
        let heard = match event {
            Event::Phase(Phase::Cut) => daemon.say(&Reply::Ready).and_then(|()| daemon.wait_for(Word::Cut)),
            Event::Stopped => source::unread(&control, 0)
                .context("Failed to look into standard input")
                .and_then(|unread| daemon.say(&Reply::Stopped { unread }))
                .and_then(|()| daemon.wait_for(Word::GoOn)),
            Event::Round { round, done_bytes, total_bytes, elapsed } if told.elapsed() >= TELL_INTERVAL => {
                told = Instant::now();
                let bytes_per_second = (done_bytes as f64 / elapsed.as_secs_f64().max(1e-9)) as u64;
                daemon.say(&Reply::Progress(Progress { round, done_bytes, total_bytes, bytes_per_second }))
            }
            _ => Ok(()),
        };
        if heard.is_err() {
            // Nobody wants the copy any more. The agent sees that this process is gone, and lets the program's threads
            // go on.
            std::process::exit(1);
        }
    })?;
    daemon.say(&Reply::Sent(Cost {
        round_count: report.round_count,
        sent_bytes: report.sent_bytes,
        cut_bytes: report.cut_bytes,
        stopped_ns: report.downtime.as_nanos() as u64,
        total_ns: report.total.as_nanos() as u64,
    }))?;
    Ok(())
}
