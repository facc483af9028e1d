//! `redrtd --member`: a member of the council of a job's roots, and the root of the job while it leads.

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
/// A root that works is heard within this time, however busy its host is.
const SILENT_TIME_MAX: Duration = Duration::from_secs(5);
/// One that was started works within this time: it has all that happened to go through.
const START_TIME_MAX: Duration = Duration::from_secs(60);
/// How often a member starts a root of which none has worked for [`SILENT_TIME_MAX`]: what fails time and again here
/// fails elsewhere too, where others have tried meanwhile.
const STARTS_MAX: u32 = 5;
/// A member that is to join others hears of one that leads within this time.
const JOIN_TIME_MAX: Duration = Duration::from_secs(10);
/// How long members that have ended see to it that all others hear of it.
const END_TIME: Duration = Duration::from_secs(1);

/// The root of the job, if this member runs it.
struct Root {
    talk: Talk,
    pid: Pid,
    pidfd: OwnedFd,
    /// Absent for the first root, which has started this process. What it says beside its output is why it fails.
    child: Option<(Child, Said)>,
    /// When it was heard last, or else is to be heard first.
    heard_at: Instant,
    works_since: Option<Instant>,
    /// The job has ended, and it waits for somebody who wants to know.
    is_ending: bool,
}

struct Process {
    setup: Setup,
    hub: Hub,
    member: Member,
    links: BTreeMap<Id, LinkId>,
    dialling: BTreeSet<Id>,
    /// Those whose hosts say that they have ended.
    refused: BTreeSet<Id>,
    pieces: BTreeMap<LinkId, Pieces>,
    root: Option<Root>,
    /// A root is to be started when all that was proposed is kept.
    is_start_due: bool,
    /// Of roots none of which has worked for long.
    starts: u32,
    /// Why the last could not be started.
    trouble: Option<String>,
    /// One was started in this lead, and is gone.
    has_failed: bool,
    /// Another was asked to lead. It may not have heard that.
    handed_over_at: Option<Instant>,
    told: Option<Members>,
    /// Since when nobody leads, as far as it knows.
    leaderless_since: Instant,
    ends_at: Option<Instant>,
    /// Another has said that the job has ended.
    is_told_over: bool,
    /// Where the journal of its root is, once there is one.
    directory: Option<PathBuf>,
    /// The host that has the root, as was written there.
    elsewhere: Option<String>,
    lock: Option<File>,
}

/// Is a member until the job has ended.
///
/// # Errors
/// When it is not told what to do, or has no address.
pub fn run() -> Result<()> {
    // Neither what a terminal says to all, nor its end.
    for ignored in [Signal::SIGHUP, Signal::SIGINT, Signal::SIGTSTP, Signal::SIGUSR1, Signal::SIGUSR2] {
        // SAFETY: ignoring a signal installs no handler.
        unsafe { signal(ignored, SigHandler::SigIgn) }.context("Failed to ignore a signal")?;
    }
    let input = File::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    nix::unistd::dup2_stdin(File::open("/dev/null")?)?;
    // Who has started it may end what is below it when it ends.
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

/// Others see by it that this member brings the root back. Where hosts share the directory another may have done so.
fn lock(directory: &Path) -> Result<Option<File>> {
    let path = directory.join(LOCK);
    let file = File::create(&path).with_context(|| format!("Failed to write {}", path.display()))?;
    Ok(file.try_lock().is_ok().then_some(file))
}

/// A variable of the root's.
fn variable(begun: &Begun, name: &str) -> Option<OsString> {
    begun.environment.iter().find(|(of, _)| of == name).map(|(_, value)| value.clone())
}

impl Process {
    fn serve(mut self) -> Result<()> {
        let tick = self.setup.timeout / TIMEOUT_TICKS as u32;
        let mut next_tick = Instant::now() + tick;
        // It may have come with what this process was told first, and nothing more wakes it then.
        self.hear_root();
        self.carry_out();
        loop {
            let timeout = next_tick.saturating_duration_since(Instant::now());
            self.wait(timeout)?;
            self.hear_others();
            self.hear_root();
            // One that was stopped has heard what came meanwhile before time goes on for it.
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

    /// All others that it knows of, and where they listen.
    fn others(&self) -> BTreeMap<Id, SocketAddr> {
        let members = self.member.places().iter().map(|(id, place)| (*id, place.address));
        let all = self.setup.peers.iter().copied().chain(members);
        all.filter(|(id, _)| *id != self.setup.id).collect()
    }

    /// Until it belongs to them, and when it does not know who leads, it says again and again that it is there.
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
                // Of a root, which is no other member.
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
                    // One that does not lead is about to end it.
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

    /// One that hangs is ended. What it waits for, a disk perhaps, another host may have.
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
        // It wants no member any more: the job has ended, or goes on without a journal.
        if self.ends_at.is_some() {
            return;
        }
        // Its number is its own as long as its descriptor says that it has not ended.
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
                    // The first root is there already.
                    self.is_start_due = self.root.is_none();
                }
                Output::Yield => {
                    (self.is_start_due, self.handed_over_at) = (false, None);
                    self.kill_root();
                    // Another host's goes on, and nobody is to go on with this one.
                    self.directory.iter().for_each(|path| drop(remove_abandoned(&ledger::journal_path(path))));
                }
                Output::Ended(why) => {
                    if let Some(begun) = self.begun().ok().filter(|_| !why.is_empty()) {
                        running_jobs::note_end(self.setup.job, &self.setup.host, &why, |name| variable(&begun, name));
                    }
                    self.ends_at = Some(Instant::now() + END_TIME);
                    // One that has no vote yet may not have heard it by then.
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
            // It leads within two timeouts, or does not.
            Some(at) if at.elapsed() < 2 * self.setup.timeout => return,
            Some(_) => self.handed_over_at = None,
            // What one host cannot do another may.
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

    /// How the job was begun.
    fn begun(&self) -> Result<Begun> {
        let records = self.member.records();
        let first = records.first().context("there are no records")?;
        decode_body(first).context("the first record is not one of this version")
    }

    fn start(&mut self) -> Result<Root> {
        let records = self.member.records();
        let (first, rest) = records.split_first().context("there are no records")?;
        let begun = self.begun()?;
        // As the root will look for it.
        let of_root = |name: &str| variable(&begun, name);
        let own = self.directory.as_deref().filter(|_| self.lock.is_some());
        // Where hosts share the directory another's member, which is cut off perhaps, removes what its root has left.
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
        // Where it was may not be on this host.
        command.current_dir(if begun.directory.is_dir() { begun.directory.as_path() } else { "/".as_ref() });
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let said = Said::of(&mut command)?;
        let set_up = move || {
            nix::unistd::setsid()?;
            SigSet::empty().thread_set_mask()?;
            for ignored in [Signal::SIGHUP, Signal::SIGINT, Signal::SIGTSTP, Signal::SIGUSR1, Signal::SIGUSR2] {
                // SAFETY: the default of a signal is no handler.
                unsafe { signal(ignored, SigHandler::SigDfl) }?;
            }
            // SAFETY: - the descriptor is open in this process, which is about to run another program.
            let result = unsafe { libc::fcntl(descriptor, libc::F_SETFD, 0) };
            nix::errno::Errno::result(result)?;
            Ok(())
        };
        // SAFETY: set_up runs in a forked child: it only makes system calls, and neither allocates nor takes locks.
        unsafe { command.pre_exec(set_up) };
        let child = command.spawn().with_context(|| format!("Failed to run {}", self.setup.redrun.display()))?;
        let pid = Pid::from_raw(child.id() as i32);
        let pidfd = open_pidfd(pid).context("Failed to watch the root")?;
        let talk = Talk::new(File::from(OwnedFd::from(own)))?;
        let heard_at = Instant::now();
        Ok(Root { talk, pid, pidfd, child: Some((child, said)), heard_at, works_since: None, is_ending: false })
    }

    /// Where its root was: which host has it now. What users ask on this host is answered with that.
    fn say_where(&mut self) {
        let Some(directory) = self.directory.as_deref().filter(|_| self.root.is_none() && self.lock.is_some()) else {
            return;
        };
        let leader = self.member.leader().filter(|leader| *leader != self.setup.id);
        let Some(place) = leader.and_then(|leader| self.member.places().get(&leader)) else { return };
        if self.elsewhere.as_ref() != Some(&place.host) {
            // Where it cannot be written they learn only that the root is not here.
            let _ = std::fs::write(directory.join(ELSEWHERE), &place.host);
            self.elsewhere = Some(place.host.clone());
        }
    }

    /// Removes what a root of this host that was ended has left behind. The last one has removed what it had.
    fn tidy(&self) {
        let directory = self.directory.as_deref().filter(|_| self.lock.is_some());
        if self.ends_at.is_some() && self.member.is_leading() {
            // Its root does that too, unless it was killed meanwhile. If the job goes on without a journal, who has
            // started its daemons goes on with it.
            directory.iter().for_each(|path| drop(running_jobs::remove_root_directory(path)));
            return;
        }
        // On a host that is cut off they would wait for others for ever. Also those of a root whose member was killed,
        // and in whose place this one is.
        let records: Vec<_> = self.member.records().into_iter().map(ByteBuf::into_vec).collect();
        ledger::launchers(&records).into_iter().for_each(ProcessIdentity::terminate);
        // Its root may have been killed, and nobody else has led so far.
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

    /// The job has ended, or nobody has led for the lease, or all others have ended, which this one has not heard why.
    fn is_over(&self) -> bool {
        // All that were told have ended.
        let is_ended = self.ends_at.is_some_and(|at| Instant::now() >= at || self.links.is_empty());
        let others = self.others();
        let is_voter = self.member.voters().contains(&self.setup.id);
        // Those whom it was to join have ended, or cannot be reached, and nothing depends on its vote.
        let is_forlorn = self.leaderless_since.elapsed() > JOIN_TIME_MAX;
        let is_late = !is_voter && (is_forlorn || self.links.is_empty() && !self.refused.is_empty());
        let are_gone = !others.is_empty() && others.keys().all(|other| self.refused.contains(other));
        let is_alone = are_gone && !self.member.is_leading();
        is_ended || self.is_told_over || is_late || is_alone || self.leaderless_since.elapsed() > self.setup.lease
    }
}
