//! `redrtd --member`: a member of the council of a job's roots. It runs the root while it leads.

use anyhow::{Context, Result, ensure};
use control_network::hub::{Event, Hub, LinkId};
use control_network::identity::ProcessIdentity;
use control_network::launcher::Said;
use host_processes::open_pidfd;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigHandler, SigSet, Signal, kill, signal};
use nix::sys::socket::{getsockopt, sockopt};
use nix::unistd::Pid;
use redrt_wire::frame::decode_body;
use root_journal::file::{Journal, remove_abandoned};
use root_quorum::{Id, Member, Output, Place, Proposal, TIMEOUT_TICKS};
use root_records::council::{ELSEWHERE, LOCK, Members, Piece, Pieces, Setup, Talk, ToMember, ToRoot, pieces};
use root_records::ledger::{self, Begun};
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
/// Time without a beat after which a working root is ended, however busy its host may be.
const SILENT_TIME_MAX: Duration = Duration::from_secs(5);
/// Time for a started root to begin work: it replays the journal first.
const START_TIME_MAX: Duration = Duration::from_secs(60);
/// Maximum number of starts in a row without a root that works for [`SILENT_TIME_MAX`]. A failure that repeats here
/// repeats elsewhere too, where others have tried meanwhile.
const STARTS_MAX: u32 = 5;
/// Time for a joining member to hear of a leader.
const JOIN_TIME_MAX: Duration = Duration::from_secs(10);
/// Time for which an ended member spreads the news.
const END_TIME: Duration = Duration::from_secs(1);

/// The root of the job, while this member runs it.
struct Root {
    talk: Talk,
    pid: Pid,
    pidfd: OwnedFd,
    /// `None` for the first root, which started this process. The words on its standard error are the reason if it
    /// fails.
    child: Option<(Child, Said)>,
    /// Time of the last message, or of the start: silence counts from here.
    heard_at: Instant,
    works_since: Option<Instant>,
    /// True once the job has ended, and the root waits for a console.
    is_ending: bool,
}

struct Process {
    setup: Setup,
    hub: Hub,
    member: Member,
    links: BTreeMap<Id, LinkId>,
    dialling: BTreeSet<Id>,
    /// Members whose hosts refuse connections: they have ended.
    refused: BTreeSet<Id>,
    pieces: BTreeMap<LinkId, Pieces>,
    root: Option<Root>,
    /// True if a root is to be started once all proposed records are kept.
    is_start_due: bool,
    /// Starts in a row without a root that worked for long.
    starts: u32,
    /// Reason why the last start failed.
    trouble: Option<String>,
    /// True if a root of this lead was started, and is gone.
    has_failed: bool,
    /// Time at which another member was asked to lead. The message may be lost.
    handed_over_at: Option<Instant>,
    told: Option<Members>,
    /// Time since which this member knows of no leader.
    leaderless_since: Instant,
    ends_at: Option<Instant>,
    /// True once another member has said that the job has ended.
    is_told_over: bool,
    /// Directory of its root's journal, once it exists.
    directory: Option<PathBuf>,
    /// The host that runs the root, as last written to the directory.
    elsewhere: Option<String>,
    lock: Option<File>,
}

/// Acts as a member until the job has ended.
///
/// # Errors
/// When its setup does not arrive, or it has no address.
pub fn run() -> Result<()> {
    // The member outlives the terminal, so the terminal's signals and end do not concern it.
    for ignored in [Signal::SIGHUP, Signal::SIGINT, Signal::SIGTSTP, Signal::SIGUSR1, Signal::SIGUSR2] {
        // SAFETY: - SIG_IGN installs no handler, so nothing can run in signal context.
        unsafe { signal(ignored, SigHandler::SigIgn) }.context("Failed to ignore a signal")?;
    }
    let input = File::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    nix::unistd::dup2_stdin(File::open("/dev/null")?)?;
    // For a first member this is the root, which the member may have to end.
    let peer = getsockopt(&input, sockopt::PeerCredentials).ok().map(|peer| Pid::from_raw(peer.pid()));
    let first_root = peer.map(|pid| Ok::<_, std::io::Error>((pid, open_pidfd(pid)?))).transpose()?;
    let mut talk = Talk::new(input)?;
    let setup: Setup = loop {
        match talk.hear()? {
            Some(setup) => break setup,
            None => ensure!(!talk.has_ended, "who has started it said nothing"),
        }
        talk.wait()?;
    };
    host_processes::prompt::wish();
    let hub = Hub::new((setup.address, 0).into(), setup.secret.clone())?;
    let place = Place { address: hub.address(), host: setup.host.clone() };
    let (member, root) = match setup.peers.is_empty() {
        true => {
            let (pid, pidfd) = first_root.context("the first member is started by a root")?;
            let member = Member::found(setup.id, place, usize::from(setup.voters));
            let heard_at = Instant::now() + START_TIME_MAX;
            (member, Some(Root { talk, pid, pidfd, child: None, heard_at, works_since: None, is_ending: false }))
        }
        false => (Member::join(setup.id, usize::from(setup.voters)), None),
    };
    let directory = root.is_some().then(|| running_jobs::root_directory(setup.job)).transpose()?;
    let lock = directory.as_deref().map(lock).transpose()?.flatten();
    let process = Process {
        hub,
        member,
        links: BTreeMap::new(),
        dialling: BTreeSet::new(),
        refused: BTreeSet::new(),
        pieces: BTreeMap::new(),
        root,
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

/// Locks the directory: marks that this member brings the root back. `None` if another host's member, which shares the
/// directory, has the lock.
fn lock(directory: &Path) -> Result<Option<File>> {
    let path = directory.join(LOCK);
    let file = File::create(&path).with_context(|| format!("Failed to write {}", path.display()))?;
    Ok(file.try_lock().is_ok().then_some(file))
}

/// A variable from the root's environment.
fn variable(begun: &Begun, name: &str) -> Option<OsString> {
    begun.environment.iter().find(|(of, _)| of == name).map(|(_, value)| value.clone())
}

impl Process {
    fn serve(mut self) -> Result<()> {
        let tick = self.setup.timeout / TIMEOUT_TICKS as u32;
        let mut next_tick = Instant::now() + tick;
        // A message may have arrived with the setup; nothing would wake this process for it.
        self.hear_root();
        self.carry_out();
        loop {
            let timeout = next_tick.saturating_duration_since(Instant::now());
            self.wait(timeout)?;
            self.hear_others();
            self.hear_root();
            // Time goes on only now: a member that was stopped must first hear what arrived meanwhile.
            if Instant::now() >= next_tick {
                next_tick = Instant::now() + tick;
                self.greet();
                self.member.tick();
                self.look_at_root();
            }
            self.carry_out();
            self.start_root_if_due();
            self.tell_council();
            self.say_where();
            if self.is_over() {
                self.kill_root();
                self.tidy();
                return Ok(());
            }
        }
    }

    fn wait(&self, timeout: Duration) -> Result<()> {
        let mut fds = vec![PollFd::new(self.hub.fd(), PollFlags::POLLIN)];
        fds.extend(self.root.iter().filter(|root| !root.talk.has_ended).map(|root| root.talk.awaited()));
        let timeout = PollTimeout::try_from(timeout + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX);
        match poll(&mut fds, timeout) {
            Ok(_) | Err(nix::Error::EINTR) => Ok(()),
            Err(error) => Err(error).context("Failed to wait for events"),
        }
    }

    fn hello(&self) -> ToMember {
        ToMember::Hello(self.setup.id, Place { address: self.hub.address(), host: self.setup.host.clone() })
    }

    /// All other known members, with their addresses.
    fn others(&self) -> BTreeMap<Id, SocketAddr> {
        let members = self.member.places().iter().map(|(id, place)| (*id, place.address));
        let all = self.setup.peers.iter().copied().chain(members);
        all.filter(|(id, _)| *id != self.setup.id).collect()
    }

    /// Announces this member to the others until it belongs to them and knows a leader.
    fn greet(&mut self) {
        let id = self.setup.id;
        if self.member.places().contains_key(&id) && self.member.leader().is_some() {
            return;
        }
        let hello = self.hello();
        for (other, address) in self.others() {
            self.send(other, Some(address), &hello);
        }
    }

    fn hear_others(&mut self) {
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
                Event::Readable(link) => self.hear(link),
                Event::Closed(link) => {
                    self.hear(link);
                    self.hub.close(link);
                    self.pieces.remove(&link);
                    self.links.retain(|_, other| *other != link);
                }
                Event::Accepted(..) | Event::Refused(_) => {}
            }
        }
    }

    fn hear(&mut self, link: LinkId) {
        loop {
            let piece = match self.hub.next_message::<Piece>(link) {
                Ok(Some(piece)) => piece,
                Ok(None) => return,
                Err(_) => return self.hub.close(link),
            };
            match self.pieces.entry(link).or_default().add(piece) {
                Ok(Some(ToMember::Hello(id, place))) => {
                    self.links.insert(id, link);
                    if self.ends_at.is_some() {
                        self.say_over(id);
                    }
                    self.member.greet(id, place);
                }
                Ok(Some(ToMember::Over)) => self.is_told_over = true,
                Ok(Some(ToMember::Raft(message))) => self.member.hear(*message),
                // Messages of a root, not of a member.
                Ok(Some(ToMember::Propose(_) | ToMember::Permit | ToMember::Beat | ToMember::Ending) | None) => {}
                Err(_) => return self.hub.close(link),
            }
        }
    }

    fn send(&mut self, to: Id, address: Option<SocketAddr>, message: &ToMember) {
        if let Some(link) = self.links.get(&to) {
            pieces(message).iter().for_each(|piece| self.hub.send(*link, piece));
        } else if let Some(address) = address
            && self.dialling.insert(to)
        {
            self.hub.dial(to, address, DIAL_TIME_MAX);
        }
    }

    fn say_over(&mut self, to: Id) {
        self.send(to, None, &ToMember::Over);
    }

    fn hear_root(&mut self) {
        let Some(root) = &mut self.root else { return };
        let _ = root.talk.link.flush();
        loop {
            match root.talk.hear::<ToMember>() {
                Ok(Some(ToMember::Propose(proposal))) => {
                    root.heard_at = root.heard_at.max(Instant::now());
                    // A root that does not lead any more is about to be ended.
                    self.member.propose(&proposal);
                }
                Ok(Some(ToMember::Beat)) => {
                    let now = Instant::now();
                    (root.heard_at, root.works_since) = (now, root.works_since.or(Some(now)));
                    if root.works_since.is_some_and(|since| now - since > SILENT_TIME_MAX) {
                        (self.starts, self.has_failed) = (0, false);
                    }
                }
                Ok(Some(ToMember::Permit)) => self.member.permit(),
                Ok(Some(ToMember::Ending)) => root.is_ending = true,
                Ok(Some(ToMember::Hello(..) | ToMember::Raft(_) | ToMember::Over)) => {}
                Ok(None) => break,
                Err(_) => {
                    root.talk.has_ended = true;
                    break;
                }
            }
        }
        if root.talk.has_ended {
            self.kill_root();
            self.is_start_due = self.member.is_leading();
        }
    }

    /// Ends a root that hangs: another host may have what it waits for, such as a disk.
    fn look_at_root(&mut self) {
        let Some(root) = &self.root else { return };
        let limit = if root.works_since.is_some() { SILENT_TIME_MAX } else { START_TIME_MAX };
        if root.heard_at.elapsed() > limit && !root.is_ending {
            self.kill_root();
            (self.is_start_due, self.has_failed) = (self.member.is_leading(), true);
        }
    }

    fn kill_root(&mut self) {
        let Some(mut root) = self.root.take() else { return };
        // The root needs no member any more: the job has ended, or continues without a journal.
        if self.ends_at.is_some() {
            return;
        }
        // While the pidfd is not readable the process is not reaped, so the number is still its own.
        let mut fds = [PollFd::new(root.pidfd.as_fd(), PollFlags::POLLIN)];
        if poll(&mut fds, PollTimeout::ZERO).is_ok_and(|count| count == 0) {
            let _ = kill(root.pid, Signal::SIGKILL);
            let _ = poll(&mut fds, PollTimeout::NONE);
        }
        if let Some((child, said)) = &mut root.child {
            let _ = child.wait();
            self.trouble = said.last_line();
        }
    }

    fn carry_out(&mut self) {
        for output in self.member.outputs() {
            match output {
                Output::Send { to, message } => {
                    let address = self.member.places().get(&to).map(|place| place.address);
                    self.send(to, address, &ToMember::Raft(message));
                }
                Output::Kept(count) => self.root.iter_mut().for_each(|root| root.talk.send(&ToRoot::Kept(count))),
                Output::Lead => {
                    (self.has_failed, self.handed_over_at) = (false, None);
                    // The first root runs already.
                    self.is_start_due = self.root.is_none();
                }
                Output::Yield => {
                    (self.is_start_due, self.handed_over_at) = (false, None);
                    self.kill_root();
                    // Another host's root continues, and nothing may continue from this journal.
                    self.directory.iter().for_each(|path| drop(remove_abandoned(&ledger::journal_path(path))));
                }
                Output::Ended(why) => {
                    if let Some(begun) = self.begun().ok().filter(|_| !why.is_empty()) {
                        running_jobs::note_end(self.setup.job, &self.setup.host, &why, |name| variable(&begun, name));
                    }
                    self.ends_at = Some(Instant::now() + END_TIME);
                    // A member without a vote may not have heard of the end.
                    self.links.keys().copied().collect::<Vec<_>>().into_iter().for_each(|other| self.say_over(other));
                }
            }
        }
        if self.member.leader().is_some() {
            self.leaderless_since = Instant::now();
        }
    }

    fn start_root_if_due(&mut self) {
        if !self.is_start_due || !self.member.may_begin_root() || self.ends_at.is_some() {
            return;
        }
        match self.handed_over_at {
            // The other member leads within two timeouts, or not at all.
            Some(at) if at.elapsed() < 2 * self.setup.timeout => return,
            Some(_) => self.handed_over_at = None,
            // The failure may be this host's.
            None if self.has_failed && self.member.hand_over() => {
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
            Ok(root) => {
                self.member.begin_root();
                self.root = Some(root);
            }
            Err(_) if is_last => {
                let why = self.trouble.take().unwrap_or_else(|| "it ended again and again".into());
                let why = format!("no root of the job could be started on {}: {why}", self.setup.host);
                self.member.propose(&Proposal::End(why));
            }
            Err(error) => self.trouble = Some(format!("{error:#}")),
        }
    }

    /// The record of the job's beginning.
    fn begun(&self) -> Result<Begun> {
        let records = self.member.records();
        let first = records.first().context("there are no records")?;
        decode_body(first).context("the first record is not one of this version")
    }

    fn start(&mut self) -> Result<Root> {
        let records = self.member.records();
        let (first, rest) = records.split_first().context("there are no records")?;
        let begun = self.begun()?;
        // The directory is found by the root's own variables.
        let of_root = |name: &str| variable(&begun, name);
        let own = self.directory.as_deref().filter(|_| self.lock.is_some());
        // On a shared directory the member of another host, perhaps cut off, removes its root's remains: the lock
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
        let written = running_jobs::fill_root_directory(self.setup.job, of_root, write);
        let (directory, taken) = written.context("Failed to write the journal")?;
        self.lock = taken.or_else(|| self.lock.take());
        let _ = std::fs::remove_file(directory.join(ELSEWHERE));
        (self.directory, self.elsewhere) = (Some(directory), None);
        let (own, of_root) = UnixStream::pair().context("Failed to make a socket")?;
        let descriptor = of_root.as_raw_fd();
        let mut command = Command::new(&self.setup.redrun);
        command.arg0(begun.arguments.first().map_or("redrun".as_ref(), std::ffi::OsString::as_os_str));
        command.arg("--root").arg(format!("--come-back={:016x}", self.setup.job));
        command.arg(format!("--council-socket={descriptor}"));
        command.arg(format!("--council-term={}", self.member.term()));
        command.args(begun.arguments.iter().skip(1)).env_clear().envs(begun.environment);
        // The root's working directory may not exist on this host.
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
        let pidfd = open_pidfd(pid).context("Failed to watch the root")?;
        let talk = Talk::new(File::from(OwnedFd::from(own)))?;
        let heard_at = Instant::now();
        Ok(Root { talk, pid, pidfd, child: Some((child, said)), heard_at, works_since: None, is_ending: false })
    }

    /// On the host of a former root, writes down which host has it now, for users who ask here.
    fn say_where(&mut self) {
        let Some(directory) = self.directory.as_deref().filter(|_| self.root.is_none() && self.lock.is_some()) else {
            return;
        };
        let leader = self.member.leader().filter(|leader| *leader != self.setup.id);
        let Some(place) = leader.and_then(|leader| self.member.places().get(&leader)) else { return };
        if self.elsewhere.as_ref() != Some(&place.host) {
            // Failure is harmless: users learn only that the root is not here.
            let _ = std::fs::write(directory.join(ELSEWHERE), &place.host);
            self.elsewhere = Some(place.host.clone());
        }
    }

    /// Removes the remains of this host's root. A root that ended well has removed them itself.
    fn tidy(&self) {
        let directory = self.directory.as_deref().filter(|_| self.lock.is_some());
        if self.ends_at.is_some() && self.member.is_leading() {
            // The root does the same unless it was killed. If the job continues without a journal, so do its launchers.
            directory.iter().for_each(|path| drop(running_jobs::remove_root_directory(path)));
            return;
        }
        // Ends launchers: on a host that is cut off they would wait without end. They include those of a root whose
        // member was killed, and which this member replaces.
        let records: Vec<_> = self.member.records().into_iter().map(ByteBuf::into_vec).collect();
        ledger::launchers(&records).into_iter().for_each(ProcessIdentity::terminate);
        // The root may have been killed before any other member led.
        if let Some(directory) = directory.filter(|directory| !ledger::journal_path(directory).exists()) {
            let _ = running_jobs::remove_root_directory(directory);
        }
    }

    fn tell_council(&mut self) {
        let Some(root) = &mut self.root else { return };
        let places = self.member.places().iter().map(|(id, place)| (*id, place.clone())).collect();
        let members = Members { places, voters: self.member.deciding().to_vec() };
        if self.told.as_ref() != Some(&members) {
            root.talk.send(&ToRoot::Council(members.clone()));
            self.told = Some(members);
        }
    }

    /// True if this member's work is over: the job has ended, there was no leader for the lease, or all others have
    /// ended for an unknown reason.
    fn is_over(&self) -> bool {
        // All members that were informed have ended.
        let is_ended = self.ends_at.is_some_and(|at| Instant::now() >= at || self.links.is_empty());
        let others = self.others();
        let is_voter = self.member.voters().contains(&self.setup.id);
        // A member without a vote gives up early: the members it wants to join have ended or cannot be reached.
        let is_forlorn = self.leaderless_since.elapsed() > JOIN_TIME_MAX;
        let is_late = !is_voter && (is_forlorn || self.links.is_empty() && !self.refused.is_empty());
        let are_gone = !others.is_empty() && others.keys().all(|other| self.refused.contains(other));
        let is_alone = are_gone && !self.member.is_leading();
        is_ended || self.is_told_over || is_late || is_alone || self.leaderless_since.elapsed() > self.setup.lease
    }
}
