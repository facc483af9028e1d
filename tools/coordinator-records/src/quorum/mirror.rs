//! The coordinator's end of a quorum: most peers have a record before anything follows from it.

use super::{ELSEWHERE, LOCK, PEER_FLAG, Peers, Setup, Talk, ToCoordinator, ToPeer};
use anyhow::{Context, Result};
use control_network::launcher;
use coordinator_quorum::Proposal;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use serde_bytes::ByteBuf;
use std::fs::File;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Interval between beats of a coordinator without other messages for its peer.
const BEAT_INTERVAL: Duration = Duration::from_millis(300);

/// Connection of a coordinator to the peer on its host: see the module.
#[derive(Debug)]
pub struct Mirror {
    talk: Talk,
    /// Records that are not proposed yet.
    waiting: Vec<ByteBuf>,
    proposed: u64,
    kept: u64,
    peers: Peers,
    beaten_at: Option<Instant>,
}

impl Mirror {
    /// Starts the first peer, on this host.
    ///
    /// # Errors
    /// When the peer cannot be started.
    pub fn found(setup: &Setup) -> Result<Self> {
        Ok(Self::of(start(setup)?))
    }

    /// Takes over the connection that the peer left to this process, which it started.
    ///
    /// # Errors
    /// When this descriptor number is not open.
    pub fn inherited(descriptor: i32) -> Result<Self> {
        let what = "--quorum-socket is for redrtd alone";
        anyhow::ensure!(descriptor > libc::STDERR_FILENO, what);
        // SAFETY: - owned by nobody else: the peer left the descriptor to this process for this use.
        //         - a number that is not open fails at the next call.
        let stream = unsafe { OwnedFd::from_raw_fd(descriptor) };
        fcntl(&stream, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).context(what)?;
        Ok(Self::of(Talk::new(File::from(stream))?))
    }

    fn of(talk: Talk) -> Self {
        Self { talk, waiting: Vec::new(), proposed: 0, kept: 0, peers: Peers::default(), beaten_at: None }
    }

    /// Adds a record, which waits for [`Mirror::flush`].
    pub fn add(&mut self, record: &[u8]) {
        self.waiting.push(ByteBuf::from(record));
    }

    /// Proposes waiting records, and blocks until most peers have them.
    pub fn flush(&mut self) {
        if !self.waiting.is_empty() {
            let records = std::mem::take(&mut self.waiting);
            self.propose(&Proposal::Append(records));
        }
    }

    /// Replaces all records by these.
    pub fn replace(&mut self, records: &[&[u8]]) {
        self.waiting.clear();
        self.propose(&Proposal::Replace(records.iter().map(|record| ByteBuf::from(*record)).collect()));
    }

    /// Ends the quorum: no coordinator is to come back any more.
    pub fn end(&mut self) {
        self.waiting.clear();
        self.propose(&Proposal::End(String::new()));
    }

    /// The peers, as far as this host's peer knows.
    pub fn peers(&self) -> &Peers {
        &self.peers
    }

    /// Sends a beat if one is due, and hears the peer. Must be called often: the peer ends a coordinator that hangs.
    pub fn beat(&mut self) {
        if self.beaten_at.is_none_or(|at| at.elapsed() > BEAT_INTERVAL) {
            self.beaten_at = Some(Instant::now());
            self.talk.send(&ToPeer::Beat);
        }
        self.handle();
    }

    /// Permits other voters, once all daemons know that there are to be several.
    pub fn permit_voters(&mut self) {
        self.talk.send(&ToPeer::Permit);
    }

    /// Announces the job's end: from now on this process may be silent.
    pub fn ending(&mut self) {
        self.talk.send(&ToPeer::Ending);
    }

    /// True once the peer is gone although there are other voters: another coordinator may run by now, so nothing may
    /// leave this one. With a single voter no other coordinator can exist.
    pub fn is_lost(&self) -> bool {
        self.talk.has_ended && self.peers.voters.len() > 1
    }

    fn propose(&mut self, proposal: &Proposal) {
        self.talk.send(&ToPeer::Propose(proposal.clone()));
        self.proposed += 1;
        while self.kept < self.proposed && !self.talk.has_ended {
            self.handle();
            if self.kept < self.proposed && !self.talk.has_ended && self.talk.wait().is_err() {
                break;
            }
            self.talk.has_ended |= self.talk.link.flush().is_err();
        }
    }

    fn handle(&mut self) {
        loop {
            match self.talk.receive::<ToCoordinator>() {
                Ok(Some(ToCoordinator::Kept(count))) => self.kept = count,
                Ok(Some(ToCoordinator::Quorum(peers))) => self.peers = peers,
                Ok(None) => return,
                Err(_) => {
                    self.talk.has_ended = true;
                    return;
                }
            }
        }
    }
}

/// Starts a peer on this host.
///
/// # Errors
/// When the program cannot be started, or the setup cannot be sent.
pub fn start(setup: &Setup) -> Result<Talk> {
    let executable = launcher::daemon_executable()?;
    let (own, of_peer) = UnixStream::pair().context("Failed to make a socket")?;
    let mut command = Command::new(&executable);
    command.arg(PEER_FLAG).stdin(Stdio::from(OwnedFd::from(of_peer)));
    command.stdout(Stdio::null()).stderr(Stdio::null());
    launcher::runs_apart(&mut command);
    command.spawn().with_context(|| format!("Failed to start {}", executable.display()))?;
    let mut talk = Talk::new(File::from(OwnedFd::from(own)))?;
    talk.send(setup);
    Ok(talk)
}

/// The host with the coordinator of this directory, if a living peer on this host has noted another.
#[must_use]
pub fn elsewhere(directory: &Path) -> Option<String> {
    let host = std::fs::read_to_string(directory.join(ELSEWHERE)).ok().filter(|host| !host.is_empty());
    host.filter(|_| has_peer(directory))
}

/// Like [`elsewhere`], for a job of this user whose identity begins like `wanted`, or for any: the job and the host.
#[must_use]
pub fn find_elsewhere(wanted: Option<&str>) -> Option<(String, String)> {
    let is_wanted = |job: &str| wanted.is_none_or(|wanted| job.starts_with(wanted));
    let coordinators = running_jobs::find_coordinators().into_iter().filter(|(job, _)| is_wanted(job));
    coordinators.into_iter().find_map(|(job, directory)| Some((job, elsewhere(&directory)?)))
}

/// True if a peer on this host is responsible for bringing the coordinator of this directory back.
#[must_use]
pub fn has_peer(directory: &Path) -> bool {
    File::open(directory.join(LOCK)).is_ok_and(|file| file.try_lock_shared().is_err())
}
