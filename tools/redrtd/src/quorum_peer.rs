//! `redrtd --quorum-peer`: a peer of the quorum of a job's coordinators. It runs the coordinator while it leads.

use anyhow::{Context, Result, ensure};
use control_network::hub::{Event, Hub, LinkId};
use control_network::identity::ProcessIdentity;
use control_network::launcher::{STEP_VARIABLE, Said};
use coordinator_journal::file::{Journal, remove_abandoned};
use coordinator_quorum::{Id, Output, Peer, Place, Proposal, TIMEOUT_TICKS};
use coordinator_records::ledger::{self, Begun};
use coordinator_records::quorum::{ELSEWHERE, LOCK, Peers, Piece, Pieces, Setup, Talk, ToCoordinator, ToPeer, pieces};
use host_processes::open_pidfd;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigHandler, SigSet, Signal, kill, signal};
use nix::sys::socket::{getsockopt, sockopt};
use nix::unistd::Pid;
use redrt_wire::frame::decode_body;
use serde_bytes::ByteBuf;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::File;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const DIAL_TIME_MAX: Duration = Duration::from_secs(2);
/// Time without a beat after which a working coordinator is ended, however busy its host may be.
const SILENT_TIME_MAX: Duration = Duration::from_secs(5);
/// Time for a started coordinator to begin work: it replays the journal first.
const START_TIME_MAX: Duration = Duration::from_secs(60);
/// Maximum number of starts in a row without a coordinator that works for [`SILENT_TIME_MAX`]. A failure that repeats
/// here repeats elsewhere too, where others have tried meanwhile.
const STARTS_MAX: u32 = 5;
/// Time for a joining peer to hear of a leader.
const JOIN_TIME_MAX: Duration = Duration::from_secs(10);
/// Time for which an ended peer spreads the news.
const END_TIME: Duration = Duration::from_secs(1);

/// The coordinator of the job, while this peer runs it.
struct Coordinator {
    talk: Talk,
    pid: Pid,
    pidfd: OwnedFd,
    /// `None` for the first coordinator, which started this process. The words on its standard error are the reason if
    /// it fails.
    child: Option<(Child, Said)>,
    /// Time of the last message, or of the start: silence counts from here.
    heard_at: Instant,
    works_since: Option<Instant>,
    /// True once the job has ended, and the coordinator waits for a console.
    is_ending: bool,
}

struct Process {
    setup: Setup,
    hub: Hub,
    peer: Peer,
    links: BTreeMap<Id, LinkId>,
    dialling: BTreeSet<Id>,
    /// Peers whose hosts refuse connections: they have ended.
    refused: BTreeSet<Id>,
    pieces: BTreeMap<LinkId, Pieces>,
    coordinator: Option<Coordinator>,
    /// True if a coordinator is to be started once all proposed records are kept.
    is_start_due: bool,
    /// Starts in a row without a coordinator that worked for long.
    starts: u32,
    /// Reason why the last start failed.
    trouble: Option<String>,
    /// True if a coordinator of this lead was started, and is gone.
    has_failed: bool,
    /// Time at which another peer was asked to lead. The message may be lost.
    handed_over_at: Option<Instant>,
    told: Option<Peers>,
    /// Time since which this peer knows of no leader.
    leaderless_since: Instant,
    ends_at: Option<Instant>,
    /// True once another peer has said that the job has ended.
    is_told_over: bool,
    /// Directory of its coordinator's journal, once it exists.
    directory: Option<PathBuf>,
    /// The host that runs the coordinator, as last written to the directory.
    elsewhere: Option<String>,
    lock: Option<File>,
}

/// Acts as a peer until the job has ended.
///
/// # Errors
/// When its setup does not arrive, or it has no address.
pub fn run() -> Result<()> {
    // The peer outlives the terminal, so the terminal's signals and end do not concern it.
    for ignored in [Signal::SIGHUP, Signal::SIGINT, Signal::SIGTSTP, Signal::SIGUSR1, Signal::SIGUSR2] {
        // SAFETY: - SIG_IGN installs no handler, so nothing can run in signal context.
        unsafe { signal(ignored, SigHandler::SigIgn) }.context("Failed to ignore a signal")?;
    }
    let input = File::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    nix::unistd::dup2_stdin(File::open("/dev/null")?)?;
    // For a first peer this is the coordinator, which the peer may have to end.
    let peer = getsockopt(&input, sockopt::PeerCredentials).ok().map(|peer| Pid::from_raw(peer.pid()));
    let first_coordinator = peer.map(|pid| Ok::<_, std::io::Error>((pid, open_pidfd(pid)?))).transpose()?;
    let mut talk = Talk::new(input)?;
    let setup: Setup = loop {
        match talk.receive()? {
            Some(setup) => break setup,
            None => ensure!(!talk.has_ended, "who has started it said nothing"),
        }
        talk.wait()?;
    };
    host_processes::prompt::request();
    let hub = Hub::new((setup.address, 0).into(), setup.secret.clone())?;
    let place = Place { address: hub.address(), host: setup.host.clone() };
    let (peer, coordinator) = match setup.peers.is_empty() {
        true => {
            let (pid, pidfd) = first_coordinator.context("the first peer is started by a coordinator")?;
            let peer = Peer::found(setup.id, place, usize::from(setup.voters));
            let heard_at = Instant::now() + START_TIME_MAX;
            (peer, Some(Coordinator { talk, pid, pidfd, child: None, heard_at, works_since: None, is_ending: false }))
        }
        false => (Peer::join(setup.id, usize::from(setup.voters)), None),
    };
    let directory = coordinator.is_some().then(|| running_jobs::coordinator_directory(setup.job)).transpose()?;
    let lock = directory.as_deref().map(lock).transpose()?.flatten();
    let process = Process {
        hub,
        peer,
        links: BTreeMap::new(),
        dialling: BTreeSet::new(),
        refused: BTreeSet::new(),
        pieces: BTreeMap::new(),
        coordinator,
        is_start_due: false,
        starts: 0,
        trouble: None,
        has_failed: false,
        handed_over_at: None,
        told: None,
        leaderless_since: Instant::now(),
        ends_at: None,
        is_told_over: false,
        directory,
        elsewhere: None,
        lock,
        setup,
    };
    process.serve()
}

/// Locks the directory: marks that this peer brings the coordinator back. `None` if another host's peer, which shares
/// the directory, has the lock.
fn lock(directory: &Path) -> Result<Option<File>> {
    let path = directory.join(LOCK);
    let file = File::create(&path).with_context(|| format!("Failed to write {}", path.display()))?;
    Ok(file.try_lock().is_ok().then_some(file))
}

/// A variable from the coordinator's environment.
fn variable(begun: &Begun, name: &str) -> Option<OsString> {
    begun.environment.iter().find(|(of, _)| of == name).map(|(_, value)| value.clone())
}

impl Process {
    fn serve(mut self) -> Result<()> {
        let tick = self.setup.timeout / TIMEOUT_TICKS as u32;
        let mut next_tick = Instant::now() + tick;
        // A message may have arrived with the setup; nothing would wake this process for it.
        self.handle_coordinator();
        self.carry_out();
        loop {
            let timeout = next_tick.saturating_duration_since(Instant::now());
            self.wait(timeout)?;
            self.handle_others();
            self.handle_coordinator();
            // Time goes on only now: a peer that was stopped must first hear what arrived meanwhile.
            if Instant::now() >= next_tick {
                next_tick = Instant::now() + tick;
                self.greet();
                self.peer.tick();
                self.inspect_coordinator();
            }
            self.carry_out();
            self.start_coordinator_if_due();
            self.send_quorum();
            self.say_where();
            if self.is_over() {
                self.kill_coordinator();
                self.tidy();
                return Ok(());
            }
        }
    }

    fn wait(&self, timeout: Duration) -> Result<()> {
        let mut fds = vec![PollFd::new(self.hub.fd(), PollFlags::POLLIN)];
        fds.extend(
            self.coordinator
                .iter()
                .filter(|coordinator| !coordinator.talk.has_ended)
                .map(|coordinator| coordinator.talk.awaited()),
        );
        let timeout = PollTimeout::try_from(timeout + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX);
        match poll(&mut fds, timeout) {
            Ok(_) | Err(nix::Error::EINTR) => Ok(()),
            Err(error) => Err(error).context("Failed to wait for events"),
        }
    }

    fn hello(&self) -> ToPeer {
        ToPeer::Hello(self.setup.id, Place { address: self.hub.address(), host: self.setup.host.clone() })
    }

    /// All other known peers, with their addresses.
    fn others(&self) -> BTreeMap<Id, SocketAddr> {
        let peers = self.peer.places().iter().map(|(id, place)| (*id, place.address));
        let all = self.setup.peers.iter().copied().chain(peers);
        all.filter(|(id, _)| *id != self.setup.id).collect()
    }

    /// Announces this peer to the others until it belongs to them and knows a leader.
    fn greet(&mut self) {
        let id = self.setup.id;
        if self.peer.places().contains_key(&id) && self.peer.leader().is_some() {
            return;
        }
        let hello = self.hello();
        for (other, address) in self.others() {
            self.send(other, Some(address), &hello);
        }
    }

    fn handle_others(&mut self) {
        for event in self.hub.events() {
            match event {
                Event::Dialled { purpose, result } => {
                    self.dialling.remove(&purpose);
                    self.refused.remove(&purpose);
                    match result {
                        Ok(link) => {
                            self.links.insert(purpose, link);
                            self.send(purpose, None, &self.hello());
                        }
                        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                            self.refused.insert(purpose);
                        }
                        Err(_) => {}
                    }
                }
                Event::Readable(link) => self.handle(link),
                Event::Closed(link) => {
                    self.handle(link);
                    self.hub.close(link);
                    self.pieces.remove(&link);
                    self.links.retain(|_, other| *other != link);
                }
                Event::Accepted(..) | Event::Refused(_) => {}
            }
        }
    }

    fn handle(&mut self, link: LinkId) {
        loop {
            let piece = match self.hub.next_message::<Piece>(link) {
                Ok(Some(piece)) => piece,
                Ok(None) => return,
                Err(_) => return self.hub.close(link),
            };
            match self.pieces.entry(link).or_default().add(piece) {
                Ok(Some(ToPeer::Hello(id, place))) => {
                    self.links.insert(id, link);
                    if self.ends_at.is_some() {
                        self.say_over(id);
                    }
                    self.peer.greet(id, place);
                }
                Ok(Some(ToPeer::Over)) => self.is_told_over = true,
                Ok(Some(ToPeer::Raft(message))) => self.peer.handle(*message),
                // Messages of a coordinator, not of a peer.
                Ok(Some(ToPeer::Propose(_) | ToPeer::Permit | ToPeer::Beat | ToPeer::Ending) | None) => {}
                Err(_) => return self.hub.close(link),
            }
        }
    }

    fn send(&mut self, to: Id, address: Option<SocketAddr>, message: &ToPeer) {
        if let Some(link) = self.links.get(&to) {
            pieces(message).iter().for_each(|piece| self.hub.send(*link, piece));
        } else if let Some(address) = address
            && self.dialling.insert(to)
        {
            self.hub.dial(to, address, DIAL_TIME_MAX);
        }
    }

    fn say_over(&mut self, to: Id) {
        self.send(to, None, &ToPeer::Over);
    }

    fn handle_coordinator(&mut self) {
        let Some(coordinator) = &mut self.coordinator else { return };
        let _ = coordinator.talk.link.flush();
        loop {
            match coordinator.talk.receive::<ToPeer>() {
                Ok(Some(ToPeer::Propose(proposal))) => {
                    coordinator.heard_at = coordinator.heard_at.max(Instant::now());
                    // A coordinator that does not lead any more is about to be ended.
                    self.peer.propose(&proposal);
                }
                Ok(Some(ToPeer::Beat)) => {
                    let now = Instant::now();
                    (coordinator.heard_at, coordinator.works_since) = (now, coordinator.works_since.or(Some(now)));
                    if coordinator.works_since.is_some_and(|since| now - since > SILENT_TIME_MAX) {
                        (self.starts, self.has_failed) = (0, false);
                    }
                }
                Ok(Some(ToPeer::Permit)) => self.peer.permit(),
                Ok(Some(ToPeer::Ending)) => coordinator.is_ending = true,
                Ok(Some(ToPeer::Hello(..) | ToPeer::Raft(_) | ToPeer::Over)) => {}
                Ok(None) => break,
                Err(_) => {
                    coordinator.talk.has_ended = true;
                    break;
                }
            }
        }
        if coordinator.talk.has_ended {
            self.kill_coordinator();
            self.is_start_due = self.peer.is_leading();
        }
    }

    /// Ends a coordinator that hangs: another host may have what it waits for, such as a disk.
    fn inspect_coordinator(&mut self) {
        let Some(coordinator) = &self.coordinator else { return };
        let limit = if coordinator.works_since.is_some() { SILENT_TIME_MAX } else { START_TIME_MAX };
        if coordinator.heard_at.elapsed() > limit && !coordinator.is_ending {
            self.kill_coordinator();
            (self.is_start_due, self.has_failed) = (self.peer.is_leading(), true);
        }
    }

    fn kill_coordinator(&mut self) {
        let Some(mut coordinator) = self.coordinator.take() else { return };
        // The coordinator needs no peer any more: the job has ended, or continues without a journal.
        if self.ends_at.is_some() {
            return;
        }
        // While the pidfd is not readable the process is not reaped, so the number is still its own.
        let mut fds = [PollFd::new(coordinator.pidfd.as_fd(), PollFlags::POLLIN)];
        if poll(&mut fds, PollTimeout::ZERO).is_ok_and(|count| count == 0) {
            let _ = kill(coordinator.pid, Signal::SIGKILL);
            let _ = poll(&mut fds, PollTimeout::NONE);
        }
        if let Some((child, said)) = &mut coordinator.child {
            let _ = child.wait();
            self.trouble = said.last_line();
        }
    }

    fn carry_out(&mut self) {
        for output in self.peer.outputs() {
            match output {
                Output::Send { to, message } => {
                    let address = self.peer.places().get(&to).map(|place| place.address);
                    self.send(to, address, &ToPeer::Raft(message));
                }
                Output::Kept(count) => self
                    .coordinator
                    .iter_mut()
                    .for_each(|coordinator| coordinator.talk.send(&ToCoordinator::Kept(count))),
                Output::Lead => {
                    (self.has_failed, self.handed_over_at) = (false, None);
                    // The first coordinator runs already.
                    self.is_start_due = self.coordinator.is_none();
                }
                Output::Yield => {
                    (self.is_start_due, self.handed_over_at) = (false, None);
                    self.kill_coordinator();
                    // Another host's coordinator continues, and nothing may continue from this journal.
                    self.directory.iter().for_each(|path| drop(remove_abandoned(&ledger::journal_path(path))));
                }
                Output::Ended(why) => {
                    if let Some(begun) = self.begun().ok().filter(|_| !why.is_empty()) {
                        running_jobs::record_end(self.setup.job, &self.setup.host, &why, |name| variable(&begun, name));
                    }
                    self.ends_at = Some(Instant::now() + END_TIME);
                    // A peer without a vote may not have heard of the end.
                    self.links.keys().copied().collect::<Vec<_>>().into_iter().for_each(|other| self.say_over(other));
                }
            }
        }
        if self.peer.leader().is_some() {
            self.leaderless_since = Instant::now();
        }
    }

    fn start_coordinator_if_due(&mut self) {
        if !self.is_start_due || !self.peer.may_begin_coordinator() || self.ends_at.is_some() {
            return;
        }
        match self.handed_over_at {
            // The other peer leads within two timeouts, or not at all.
            Some(at) if at.elapsed() < 2 * self.setup.timeout => return,
            Some(_) => self.handed_over_at = None,
            // The failure may be this host's.
            None if self.has_failed && self.peer.hand_over() => {
                self.handed_over_at = Some(Instant::now());
                return;
            }
            None => {}
        }
        self.starts += 1;
        let is_last = self.starts > STARTS_MAX;
        let started = if is_last { Err(anyhow::anyhow!("no more")) } else { self.start() };
        (self.is_start_due, self.has_failed, self.told) = (started.is_err() && !is_last, true, None);
        match started {
            Ok(coordinator) => {
                self.peer.begin_coordinator();
                self.coordinator = Some(coordinator);
            }
            Err(_) if is_last => {
                let why = self.trouble.take().unwrap_or_else(|| "it ended again and again".into());
                let why = format!("no coordinator of the job could be started on {}: {why}", self.setup.host);
                self.peer.propose(&Proposal::End(why));
            }
            Err(error) => self.trouble = Some(format!("{error:#}")),
        }
    }

    /// The record of the job's beginning.
    fn begun(&self) -> Result<Begun> {
        let records = self.peer.records();
        let first = records.first().context("there are no records")?;
        decode_body(first).context("the first record is not one of this version")
    }

    fn start(&mut self) -> Result<Coordinator> {
        let records = self.peer.records();
        let (first, rest) = records.split_first().context("there are no records")?;
        let begun = self.begun()?;
        // The directory is found by the coordinator's own variables.
        let of_coordinator = |name: &str| variable(&begun, name);
        let own = self.directory.as_deref().filter(|_| self.lock.is_some());
        // On a shared directory the peer of another host, perhaps cut off, removes its coordinator's remains: the lock
        // excludes it.
        let take = |directory: &Path| match own {
            Some(own) if own == directory => Ok(None),
            _ => lock(directory)?.context("another host uses the directory of the job").map(Some),
        };
        let write = |directory: &Path| {
            let taken = take(directory)?;
            let path = ledger::journal_path(directory);
            let mut journal = Journal::create(&path, first)?;
            let written = rest.iter().try_for_each(|record| journal.append(record)).and_then(|()| journal.flush());
            written.inspect_err(|_| drop(std::fs::remove_file(&path)))?;
            Ok(taken)
        };
        let written = running_jobs::fill_coordinator_directory(self.setup.job, of_coordinator, write);
        let (directory, taken) = written.context("Failed to write the journal")?;
        self.lock = taken.or_else(|| self.lock.take());
        let _ = std::fs::remove_file(directory.join(ELSEWHERE));
        (self.directory, self.elsewhere) = (Some(directory), None);
        let (own, of_coordinator) = UnixStream::pair().context("Failed to make a socket")?;
        let descriptor = of_coordinator.as_raw_fd();
        let mut command = Command::new(&self.setup.redrun);
        command.arg0(begun.arguments.first().map_or("redrun".as_ref(), std::ffi::OsString::as_os_str));
        command.arg("--coordinator").arg(format!("--come-back={:016x}", self.setup.job));
        command.arg(format!("--quorum-socket={descriptor}"));
        command.arg(format!("--quorum-term={}", self.peer.term()));
        command.args(begun.arguments.iter().skip(1)).env_clear().envs(begun.environment);
        command.envs(std::env::var_os("SLURM_STEP_ID").map(|step| (STEP_VARIABLE, step)));
        // The coordinator's working directory may not exist on this host.
        command.current_dir(if begun.directory.is_dir() { begun.directory.as_path() } else { "/".as_ref() });
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let said = Said::of(&mut command)?;
        let set_up = move || {
            nix::unistd::setsid()?;
            SigSet::empty().thread_set_mask()?;
            for ignored in [Signal::SIGHUP, Signal::SIGINT, Signal::SIGTSTP, Signal::SIGUSR1, Signal::SIGUSR2] {
                // SAFETY: - SIG_DFL installs no handler.
                unsafe { signal(ignored, SigHandler::SigDfl) }?;
            }
            // SAFETY: - the descriptor is open: this forked process has a copy of it until exec.
            let result = unsafe { libc::fcntl(descriptor, libc::F_SETFD, 0) };
            nix::errno::Errno::result(result)?;
            Ok(())
        };
        // SAFETY: - `set_up` runs in a forked child: it makes only system calls, and neither allocates nor takes locks.
        unsafe { command.pre_exec(set_up) };
        let child = command.spawn().with_context(|| format!("Failed to run {}", self.setup.redrun.display()))?;
        let pid = Pid::from_raw(child.id() as i32);
        let pidfd = open_pidfd(pid).context("Failed to watch the coordinator")?;
        let talk = Talk::new(File::from(OwnedFd::from(own)))?;
        let heard_at = Instant::now();
        Ok(Coordinator { talk, pid, pidfd, child: Some((child, said)), heard_at, works_since: None, is_ending: false })
    }

    /// On the host of a former coordinator, writes down which host has it now, for users who ask here.
    fn say_where(&mut self) {
        let Some(directory) = self.directory.as_deref().filter(|_| self.coordinator.is_none() && self.lock.is_some())
        else {
            return;
        };
        let leader = self.peer.leader().filter(|leader| *leader != self.setup.id);
        let Some(place) = leader.and_then(|leader| self.peer.places().get(&leader)) else { return };
        if self.elsewhere.as_ref() != Some(&place.host) {
            // Failure is harmless: users learn only that the coordinator is not here.
            let _ = std::fs::write(directory.join(ELSEWHERE), &place.host);
            self.elsewhere = Some(place.host.clone());
        }
    }

    /// Removes the remains of this host's coordinator. A coordinator that ended well has removed them itself.
    fn tidy(&self) {
        let directory = self.directory.as_deref().filter(|_| self.lock.is_some());
        if self.ends_at.is_some() && self.peer.is_leading() {
            // The coordinator does the same unless it was killed. If the job continues without a journal, so do its
            // launchers.
            directory.iter().for_each(|path| drop(running_jobs::remove_coordinator_directory(path)));
            return;
        }
        // Ends launchers: on a host that is cut off they would wait without end. They include those of a coordinator
        // whose peer was killed, and which this peer replaces.
        let records: Vec<_> = self.peer.records().into_iter().map(ByteBuf::into_vec).collect();
        ledger::launchers(&records).into_iter().for_each(ProcessIdentity::terminate);
        // The coordinator may have been killed before any other peer led.
        if let Some(directory) = directory.filter(|directory| !ledger::journal_path(directory).exists()) {
            let _ = running_jobs::remove_coordinator_directory(directory);
        }
    }

    fn send_quorum(&mut self) {
        let Some(coordinator) = &mut self.coordinator else { return };
        let places = self.peer.places().iter().map(|(id, place)| (*id, place.clone())).collect();
        let peers = Peers { places, voters: self.peer.deciding().to_vec() };
        if self.told.as_ref() != Some(&peers) {
            coordinator.talk.send(&ToCoordinator::Quorum(peers.clone()));
            self.told = Some(peers);
        }
    }

    /// True if this peer's work is over: the job has ended, there was no leader for the lease, or all others have
    /// ended for an unknown reason.
    fn is_over(&self) -> bool {
        // All peers that were informed have ended.
        let is_ended = self.ends_at.is_some_and(|at| Instant::now() >= at || self.links.is_empty());
        let others = self.others();
        let is_voter = self.peer.voters().contains(&self.setup.id);
        // A peer without a vote gives up early: the peers it wants to join have ended or cannot be reached.
        let is_forlorn = self.leaderless_since.elapsed() > JOIN_TIME_MAX;
        let is_late = !is_voter && (is_forlorn || self.links.is_empty() && !self.refused.is_empty());
        let are_gone = !others.is_empty() && others.keys().all(|other| self.refused.contains(other));
        let is_alone = are_gone && !self.peer.is_leading();
        is_ended || self.is_told_over || is_late || is_alone || self.leaderless_since.elapsed() > self.setup.lease
    }
}
