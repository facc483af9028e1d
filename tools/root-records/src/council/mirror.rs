//! The root's end: what its journal has is kept by most members before anything follows from it.

use super::{ELSEWHERE, LOCK, MEMBER_FLAG, Members, Setup, Talk, ToMember, ToRoot};
use anyhow::{Context, Result};
use control_network::launcher;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use root_quorum::Proposal;
use serde_bytes::ByteBuf;
use std::fs::File;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How often the member hears of a root that has nothing to say.
const BEAT_INTERVAL: Duration = Duration::from_millis(300);

/// See the module.
#[derive(Debug)]
pub struct Mirror {
    talk: Talk,
    /// Not proposed yet.
    waiting: Vec<ByteBuf>,
    proposed: u64,
    kept: u64,
    members: Members,
    beaten_at: Option<Instant>,
}

impl Mirror {
    /// Starts the first member, on this host.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn found(setup: &Setup) -> Result<Self> {
        Ok(Self::of(start(setup)?))
    }

    /// The connection that the member has left to this process, which it has started.
    ///
    /// # Errors
    /// When no descriptor has this number.
    pub fn inherited(descriptor: i32) -> Result<Self> {
        let what = "--council-socket is for redrtd alone";
        anyhow::ensure!(descriptor > libc::STDERR_FILENO, what);
        // SAFETY: - who starts this process has left the descriptor to it, and nothing else here has it.
        //         - one that is not open is an error of the next call.
        let stream = unsafe { OwnedFd::from_raw_fd(descriptor) };
        fcntl(&stream, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).context(what)?;
        Ok(Self::of(Talk::new(File::from(stream))?))
    }

    fn of(talk: Talk) -> Self {
        Self { talk, waiting: Vec::new(), proposed: 0, kept: 0, members: Members::default(), beaten_at: None }
    }

    /// A record, which waits for [`Mirror::flush`].
    pub fn add(&mut self, record: &[u8]) {
        self.waiting.push(ByteBuf::from(record));
    }

    /// Waits until most members have all records.
    pub fn flush(&mut self) {
        if !self.waiting.is_empty() {
            let records = std::mem::take(&mut self.waiting);
            self.propose(&Proposal::Append(records));
        }
    }

    /// These are in place of all records from now on.
    pub fn replace(&mut self, records: &[&[u8]]) {
        self.waiting.clear();
        self.propose(&Proposal::Replace(records.iter().map(|record| ByteBuf::from(*record)).collect()));
    }

    /// No root is to come back any more.
    pub fn end(&mut self) {
        self.waiting.clear();
        self.propose(&Proposal::End(String::new()));
    }

    /// The members, as far as this host's knows.
    pub fn members(&self) -> &Members {
        &self.members
    }

    /// Called again and again: the member of a root that hangs ends it.
    pub fn beat(&mut self) {
        if self.beaten_at.is_none_or(|at| at.elapsed() > BEAT_INTERVAL) {
            self.beaten_at = Some(Instant::now());
            self.talk.send(&ToMember::Beat);
        }
        self.hear();
    }

    /// Others may become voters: all daemons know that there are to be several.
    pub fn permit_voters(&mut self) {
        self.talk.send(&ToMember::Permit);
    }

    /// The job has ended: from now on this process may be silent.
    pub fn ending(&mut self) {
        self.talk.send(&ToMember::Ending);
    }

    /// Its member is gone, and others may have a root by now: nothing may leave this one any more. A member that
    /// decides alone takes nothing along.
    pub fn is_lost(&self) -> bool {
        self.talk.has_ended && self.members.voters.len() > 1
    }

    fn propose(&mut self, proposal: &Proposal) {
        self.talk.send(&ToMember::Propose(proposal.clone()));
        self.proposed += 1;
        while self.kept < self.proposed && !self.talk.has_ended {
            self.hear();
            if self.kept < self.proposed && !self.talk.has_ended && self.talk.wait().is_err() {
                break;
            }
            self.talk.has_ended |= self.talk.link.flush().is_err();
        }
    }

    fn hear(&mut self) {
        loop {
            match self.talk.hear::<ToRoot>() {
                Ok(Some(ToRoot::Kept(count))) => self.kept = count,
                Ok(Some(ToRoot::Council(members))) => self.members = members,
                Ok(None) => return,
                Err(_) => {
                    self.talk.has_ended = true;
                    return;
                }
            }
        }
    }
}

/// Starts a member on this host.
///
/// # Errors
/// When that fails.
pub fn start(setup: &Setup) -> Result<Talk> {
    let executable = launcher::daemon_executable()?;
    let (own, of_member) = UnixStream::pair().context("Failed to make a socket")?;
    let mut command = Command::new(&executable);
    command.arg(MEMBER_FLAG).stdin(Stdio::from(OwnedFd::from(of_member)));
    command.stdout(Stdio::null()).stderr(Stdio::null());
    launcher::runs_apart(&mut command);
    command.spawn().with_context(|| format!("Failed to start {}", executable.display()))?;
    let mut talk = Talk::new(File::from(OwnedFd::from(own)))?;
    talk.send(setup);
    Ok(talk)
}

/// The host that has the root of this directory, if a member on this host knows that it is another.
#[must_use]
pub fn elsewhere(directory: &Path) -> Option<String> {
    let host = std::fs::read_to_string(directory.join(ELSEWHERE)).ok().filter(|host| !host.is_empty());
    host.filter(|_| has_member(directory))
}

/// The same of a job of this user whose identity begins like this, or of any: the job and that host.
#[must_use]
pub fn find_elsewhere(wanted: Option<&str>) -> Option<(String, String)> {
    let is_wanted = |job: &str| wanted.is_none_or(|wanted| job.starts_with(wanted));
    let roots = running_jobs::find_roots().into_iter().filter(|(job, _)| is_wanted(job));
    roots.into_iter().find_map(|(job, directory)| Some((job, elsewhere(&directory)?)))
}

/// Whether a member on this host sees to it that the root of this directory comes back.
#[must_use]
pub fn has_member(directory: &Path) -> bool {
    File::open(directory.join(LOCK)).is_ok_and(|file| file.try_lock_shared().is_err())
}
