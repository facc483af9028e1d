//! The daemon of one host: it holds the replicas as its children, between `redrun` and the agents inside them.
//!
//! Frames from `redrun` and from agents, output of processes and their deaths enter; the same leave, sorted. The daemon
//! decides nothing about the job. It makes sure that its processes never outlive it, nor it `redrun`: the children get
//! SIGKILL when it dies, the lost connection shows the death of `redrun`, and as a sub-reaper it finds every descendant
//! that is left. Its parent is a guard that does the same for it.

#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod checkpoint;
mod child;
mod clones;
mod copying;
mod descriptors;
mod fetching;
mod flips;
mod gpus;
mod guard;
mod helpers;
mod input;
mod memory;
mod parts;
mod post;
mod program;
mod quorum_peer;
mod sockets;
mod spawn;
mod turns;

pub use program::main;

use anyhow::{Context, Result, bail};
use child::{Child, ChildEvent};
use control_network::identity::ProcessIdentity;
use control_network::launcher::DaemonArguments;
use control_network::link::Received;
use coordinator_records::quorum::{self, Setup};
use copying::{HELPER_FLAG, help};
use guard::{Guard, guard};
use installation::foreign;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use post::{Errand, Post};
use redrt_types::{ReplicaId, View};
use redrt_wire::checkpoint::UndoPlace;
use redrt_wire::clone::CloneId;
use redrt_wire::control::{FromAgent, SharedMemory, ToAgent, Transport, Welcome};
use redrt_wire::daemon::{FromDaemon, Launch, QuorumPeer, Stream, ToDaemon};
use redrt_wire::event::Event;
use redrt_wire::exit::Exit;
use redrt_wire::foreign::Foreign;
use redrt_wire::frame::decode_body;
use redrt_wire::no_image::NoImage;
use redrt_wire::secret::Secret;
use replica_output::corruption::Corruption;
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tracing::debug;

/// Bytes waiting for `redrun` above which the processes' pipes are not read.
const BACKLOG_BYTES_MAX: usize = 4 << 20;
/// Time after a process's death for which its pipes stay open for descendants that write to them.
const DRAIN_GRACE: Duration = Duration::from_millis(300);
const EVENTS_AT_ONCE: usize = 256;

/// The kernel's largest process id.
const PID_MAX: i32 = 1 << 22;

const POST_TOKEN: u64 = u64::MAX;
const SIGNAL_TOKEN: u64 = u64::MAX - 1;

/// Takes its place below `redrun`, and runs its part of the job to the end.
fn run(place: DaemonArguments, secret: &Secret) -> Result<()> {
    let guard = Guard::of_this_process();
    // Failure only delays news.
    host_processes::prompt::request();
    let name = nix::unistd::gethostname().map_or_else(|_| "localhost".into(), |name| name.to_string_lossy().into());
    let post = Post::take(place, name, secret)?;
    // From here on a broken connection is the end of the job, not a failure of this program.
    let mut daemon = HostDaemon::new(post)?;
    let outcome = daemon.serve();
    daemon.children.iter().for_each(Child::kill_group);
    daemon.post.end();
    daemon.launchers.iter().for_each(|launcher| launcher.terminate());
    host_processes::sweep::kill_descendants(daemon.keeps_sessions && outcome.is_ok());
    // Only now: no process writes checkpoints any more.
    daemon.forget_checkpoints();
    guard.wake();
    outcome
}

struct HostDaemon {
    post: Post,
    epoll: Epoll,
    signals: SignalFd,
    host: String,
    job: Option<LaunchedJob>,
    /// Replicas still to be started, one at a time: beats are due in between.
    unstarted: VecDeque<ReplicaId>,
    children: Vec<Child>,
    number_of: HashMap<ReplicaId, usize>,
    kills: memory::Kills,
    input: input::Input,
    senders: HashMap<CloneId, clones::Sender>,
    /// Helpers that save images, by child number.
    savers: HashMap<usize, checkpoint::Saver>,
    saver_turns: turns::Turns<copying::Task>,
    /// Log in which processes record changes of files since the last checkpoint was begun.
    undo: Option<UndoPlace>,
    /// Processes of this host with images in that checkpoint.
    sources: Vec<ReplicaId>,
    /// Helpers that send or receive files, by numbers of their own.
    carriers: HashMap<usize, parts::Carrier>,
    next_carrier: usize,
    /// Download of files that images lack.
    fetching: Option<fetching::Fetching>,
    /// Helpers that flip bits, by numbers of their own.
    flippers: HashMap<usize, flips::Flipper>,
    next_flipper: usize,
    /// Number of clones made of each replica here.
    clone_counts: HashMap<ReplicaId, u64>,
    /// Directory whose checkpoints are removed at the end of the job.
    forgotten: Option<PathBuf>,
    /// Commands that coordinators of the job have started on this host. They may wait without end for daemons of lost
    /// hosts.
    launchers: Vec<ProcessIdentity>,
    /// True while `redrun` wants no output.
    held: bool,
    leaving: bool,
    /// True if processes in sessions of their own live on.
    keeps_sessions: bool,
}

/// Logs an order, unless it carries the program's data or messages between processes.
fn log_order(message: &ToDaemon) {
    match message {
        ToDaemon::Launch(launch) => debug!(target: "redrtd", processes = launch.placement.len(), "a job"),
        ToDaemon::View(view) => debug!(target: "redrtd", view = view.number.0, "a view"),
        ToDaemon::Clone { id, order } => debug!(target: "redrtd", clone = id.0, ?order, "an order for a clone"),
        ToDaemon::Pins(pins) => debug!(target: "redrtd", ?pins, "others are awaited"),
        ToDaemon::Kill(replica) => debug!(target: "redrtd", %replica, "a process is to be ended"),
        ToDaemon::Release | ToDaemon::KillAll | ToDaemon::Shutdown { .. } => {
            debug!(target: "redrtd", ?message, "the end")
        }
        _ => {}
    }
}

/// State since the launch.
struct LaunchedJob {
    /// Entry by which `redctl` finds the job here.
    entry: Option<running_jobs::JobEntry>,
    launch: Launch,
    prepared: spawn::Prepared,
    view: View,
    shared_memory: Option<SharedMemory>,
}

impl HostDaemon {
    fn new(post: Post) -> Result<Self> {
        let mut mask = SigSet::empty();
        mask.add(Signal::SIGTERM);
        mask.add(Signal::SIGINT);
        mask.add(Signal::SIGHUP);
        // A file size limit (`ulimit -f`), which holds for shared memory too, must fail writes, not kill the daemon.
        mask.add(Signal::SIGXFSZ);
        // For the program. `redrun` gets these signals too, and passes them on.
        [Signal::SIGUSR1, Signal::SIGUSR2].into_iter().for_each(|signal| mask.add(signal));
        mask.thread_block()?;
        let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(post.fd(), EpollEvent::new(EpollFlags::EPOLLIN, POST_TOKEN))?;
        epoll.add(&signals, EpollEvent::new(EpollFlags::EPOLLIN, SIGNAL_TOKEN))?;
        let host = nix::unistd::gethostname().map_or_else(|_| "localhost".into(), |name| name.to_string_lossy().into());
        Ok(Self {
            post,
            epoll,
            signals,
            host,
            job: None,
            unstarted: VecDeque::new(),
            children: Vec::new(),
            number_of: HashMap::new(),
            kills: memory::Kills::default(),
            input: input::Input::default(),
            senders: HashMap::new(),
            savers: HashMap::new(),
            undo: None,
            sources: Vec::new(),
            saver_turns: turns::Turns::new(),
            carriers: HashMap::new(),
            next_carrier: 0,
            fetching: None,
            flippers: HashMap::new(),
            next_flipper: 0,
            clone_counts: HashMap::new(),
            forgotten: None,
            launchers: Vec::new(),
            held: false,
            leaving: false,
            keeps_sessions: false,
        })
    }

    fn serve(&mut self) -> Result<()> {
        let mut events = [EpollEvent::empty(); EVENTS_AT_ONCE];
        while !self.leaving {
            self.update_interests();
            let count = match self.epoll.wait(&mut events, self.timeout()) {
                Ok(count) => count,
                Err(nix::Error::EINTR) => 0,
                Err(error) => return Err(error).context("Failed to wait for events"),
            };
            for event in &events[..count] {
                self.dispatch(event.data(), event.events())?;
            }
            if self.post.next_deadline().is_some_and(|at| at <= Instant::now()) {
                self.run_errands()?;
            }
            self.start_next()?;
            self.close_overdue_pipes();
        }
        Ok(())
    }

    fn timeout(&self) -> EpollTimeout {
        if !self.unstarted.is_empty() {
            return EpollTimeout::ZERO;
        }
        let overdue = self.children.iter().filter_map(|child| child.drain_deadline).min();
        let deadline = [overdue, self.post.next_deadline()].into_iter().flatten().min();
        let wait = deadline.map(|at| at.saturating_duration_since(Instant::now()) + Duration::from_millis(1));
        wait.map_or(EpollTimeout::NONE, |wait| EpollTimeout::try_from(wait).unwrap_or(EpollTimeout::from(1000u16)))
    }

    fn dispatch(&mut self, token: u64, events: EpollFlags) -> Result<()> {
        if token == POST_TOKEN {
            return self.run_errands();
        }
        if token == SIGNAL_TOKEN {
            while let Ok(Some(signal)) = self.signals.read_signal() {
                // SIGINT and SIGHUP reach all processes of a terminal; `redrun` decides about them.
                self.leaving |= signal.ssi_signo == Signal::SIGTERM as u32;
            }
            return Ok(());
        }
        let (number, kind) = ChildEvent::of_token(token);
        if events.contains(EpollFlags::EPOLLOUT) {
            self.flush_helper(kind, number);
        }
        match kind {
            ChildEvent::Death => self.child_died(number)?,
            ChildEvent::Agent => self.agent_ready(number, events),
            ChildEvent::Output => self.child_printed(number, Stream::Output),
            ChildEvent::Error => self.child_printed(number, Stream::Error),
            ChildEvent::Input => self.feed_input(),
            ChildEvent::Helper => self.helper_ready(number),
            ChildEvent::Sender => self.sender_ready(number),
            ChildEvent::Saver => self.saver_ready(number),
            ChildEvent::Carrier => self.carrier_ready(number),
            ChildEvent::Flipper => self.flipper_ready(number),
            ChildEvent::Fetcher => self.fetcher_ready()?,
        }
        Ok(())
    }

    fn send(&mut self, message: &FromDaemon) {
        self.post.send(message);
    }

    fn run_errands(&mut self) -> Result<()> {
        self.kills.read(Instant::now());
        for errand in self.post.work() {
            match errand {
                Errand::Message(message) => self.obey(message)?,
                Errand::CoordinatorMoved => self.write_down(),
                Errand::LeaseOver(reason) => {
                    if let Some(job) = &self.job {
                        running_jobs::record_end(job.launch.job, &self.host, &reason, |name| std::env::var_os(name));
                    }
                    bail!("on {}: {reason}", self.host);
                }
                Errand::Leave(None) => self.leaving = true,
                Errand::Leave(Some(reason)) => bail!("on {}: {reason}", self.host),
            }
        }
        Ok(())
    }

    fn obey(&mut self, message: ToDaemon) -> Result<()> {
        log_order(&message);
        // Orders concern all replicas, so all must be started first.
        while !self.unstarted.is_empty() {
            self.start_next()?;
        }
        let Some(message) = self.put_aside(message) else { return Ok(()) };
        match message {
            ToDaemon::Launch(launch) => self.launch_fetched(*launch)?,
            ToDaemon::Cards(cards) => {
                self.stop_serving();
                self.send_to_agents(&ToAgent::Cards(cards));
            }
            ToDaemon::View(view) => {
                if let Some(job) = &mut self.job {
                    anyhow::ensure!(view.fits(&job.launch.world), "redrun sent a view of another job");
                    job.view = view.clone();
                }
                self.send_to_agents(&ToAgent::View(view));
            }
            ToDaemon::Clone { id, order } => self.take_part(id, order)?,
            ToDaemon::Checkpoint { generation, order } => self.take_part_in_checkpoint(generation, order),
            ToDaemon::Part { generation, source, order } => self.take_part_in_copy(generation, source, order),
            ToDaemon::Pins(pins) => self.send_to_agents(&ToAgent::Pins(pins)),
            ToDaemon::Release => self.send_to_agents(&ToAgent::Release),
            ToDaemon::Ask { wave } => self.send_to_agents(&ToAgent::Ask { wave }),
            ToDaemon::Scrub(message) => self.send_to_agents(&ToAgent::Scrub(message)),
            ToDaemon::Input { bytes } => {
                self.input.push(&bytes);
                self.feed_input();
            }
            ToDaemon::InputEnd => {
                self.input.end();
                self.feed_input();
            }
            ToDaemon::HoldOutput { replica: None, held } => self.held = held,
            ToDaemon::HoldOutput { replica: Some(replica), held } => {
                if let Some(number) = self.number_of.get(&replica) {
                    let child = &mut self.children[*number];
                    child.held = held;
                    if child.greeted {
                        child.send(&ToAgent::Held(held));
                    }
                }
            }
            ToDaemon::Trace(replica, point) => {
                if let Some(number) = self.number_of.get(&replica) {
                    self.children[*number].send(&ToAgent::Trace(point));
                }
            }
            ToDaemon::Dynamic(replica, number, answer) => {
                if let Some(child) = self.number_of.get(&replica) {
                    self.children[*child].send(&ToAgent::Dynamic(number, answer));
                }
            }
            ToDaemon::Kill(replica) => {
                if let Some(number) = self.number_of.get(&replica) {
                    self.children[*number].signal(libc::SIGKILL);
                }
            }
            ToDaemon::Signal(signal) => self.children.iter().for_each(|child| child.signal(signal)),
            ToDaemon::Deliver { number, signal } => self.deliver(number, signal),
            ToDaemon::Suspend(stands_still) => {
                let signal = if stands_still { Signal::SIGSTOP } else { Signal::SIGCONT };
                self.children.iter().for_each(|child| child.signal_group(signal));
            }
            ToDaemon::KillAll => {
                self.children.iter().for_each(Child::kill_group);
            }
            ToDaemon::QuorumPeer(wanted) => self.start_quorum_peer(*wanted),
            ToDaemon::Forget(directory) => self.forgotten = Some(directory),
            ToDaemon::Launchers(all) => {
                self.launchers = decode_body(&all).context("redrun sent what cannot be read of launchers")?;
            }
            ToDaemon::Shutdown { keeps_sessions } => {
                self.leaving = true;
                self.keeps_sessions = keeps_sessions;
            }
            // The post has handled these.
            ToDaemon::Grow(_) | ToDaemon::Watch(_) | ToDaemon::Probe { .. } | ToDaemon::Coordinators(_) => {}
        }
        Ok(())
    }

    /// Starts a peer of the quorum, which outlives this daemon. On failure the coordinator has one host less that can
    /// take over.
    fn start_quorum_peer(&mut self, wanted: QuorumPeer) {
        let QuorumPeer { job, id, host, peers, voters, timeout, lease } = wanted;
        let started = std::env::current_exe().map_err(anyhow::Error::from).and_then(|own| {
            let (secret, address, redrun) =
                (self.post.secret().clone(), self.post.address(), own.with_file_name("redrun"));
            quorum::mirror::start(&Setup { job, secret, id, address, host, peers, voters, timeout, lease, redrun })
        });
        if let Err(error) = started {
            self.send(&FromDaemon::Note(format!("no peer of the quorum of coordinators was started: {error:#}")));
        }
    }

    fn launch(&mut self, launch: Launch) -> Result<()> {
        if self.job.is_some() {
            bail!("redrun sent a second job");
        }
        launch.check().map_err(|what| anyhow::anyhow!("redrun sent a job that is none: {what}"))?;
        let own: Vec<_> = launch.replicas_on(self.post.host()).collect();
        let prepared = match spawn::prepare(&launch, self.post.host(), &own, self.post.secret()) {
            Ok(prepared) => prepared,
            Err(error) => {
                for replica in own {
                    self.send(&FromDaemon::NotStarted { replica, message: format!("{error:#}") });
                }
                return Ok(());
            }
        };
        for note in &prepared.notes {
            self.send(&FromDaemon::Note(note.clone()));
        }
        let shared_memory = (launch.options.transport != Transport::Tcp)
            .then_some(SharedMemory { fd: descriptors::SHARED_MEMORY_FD, slot_count: launch.world.process_count() });
        self.unstarted = own.into();
        self.job = Some(LaunchedJob { entry: None, view: launch.view.clone(), launch, prepared, shared_memory });
        self.write_down();
        Ok(())
    }

    /// Updates the entry by which `redctl` finds the job here and its coordinator.
    fn write_down(&mut self) {
        if let Some(job) = &mut self.job {
            // First drop the old entry: that removes the file, and both have the same name.
            job.entry = None;
            job.entry =
                running_jobs::write_down(job.launch.job, &self.host, self.post.coordinator(), self.post.secret()).ok();
        }
    }

    fn start_next(&mut self) -> Result<()> {
        let (Some(job), Some(replica)) = (&self.job, self.unstarted.pop_front()) else { return Ok(()) };
        let started = match &job.launch.restore {
            Some(restore) => match &restore.images[job.launch.world.process(replica).0 as usize] {
                Some(image) => job.prepared.load(&job.launch, replica, image.path.clone()),
                None => Err(anyhow::anyhow!("the checkpoint has nothing of this process here")),
            },
            None => job.prepared.spawn(&job.launch, replica, job.launch.world.is_replicated()),
        };
        match started {
            Ok(mut child) => {
                let faults = job.launch.faults.iter().filter(|(other, _)| *other == replica);
                child.corruptions = faults.filter_map(|(_, fault)| Corruption::of(fault)).collect();
                let is_told = job.launch.binding.is_reported && job.launch.restore.is_none();
                let processors = is_told.then(|| job.prepared.processors(replica));
                self.adopt(child)?;
                if let Some(processors) = processors {
                    self.send(&FromDaemon::Bound { replica, processors });
                }
            }
            Err(error) => self.send(&FromDaemon::NotStarted { replica, message: format!("{error:#}") }),
        }
        Ok(())
    }

    fn adopt(&mut self, child: Child) -> Result<()> {
        let number = self.children.len();
        let (replica, program) = (child.replica, child.program);
        self.number_of.insert(replica, number);
        for (kind, fd) in child.descriptors() {
            let flags = match kind {
                ChildEvent::Input => EpollFlags::empty(),
                ChildEvent::Helper => child.helper.as_ref().map_or(EpollFlags::EPOLLIN, helpers::interest),
                _ => EpollFlags::EPOLLIN,
            };
            self.epoll.add(fd, EpollEvent::new(flags, kind.token(number)))?;
        }
        // A copy begins where its source was.
        if child.input.is_some() && child.copy.is_none() && !child.is_restored {
            self.input.add_reader(number);
        }
        self.children.push(child);
        self.watch_kills(number);
        self.go_on_with_streams(number);
        if let Some(pid) = program {
            self.send(&FromDaemon::Started { replica, pid: pid.as_raw() });
        }
        Ok(())
    }

    /// Watches whether the kernel kills this child for want of memory. Called again for the program: a script may move
    /// to another cgroup before it runs that.
    fn watch_kills(&mut self, number: usize) {
        let child = &mut self.children[number];
        let process = child.program.unwrap_or(child.pid);
        child.kills = self.kills.watch(&process.to_string());
    }

    /// Delivers a user's signal to the program: for a rank with replicas through the agents, which agree on a call;
    /// otherwise directly.
    fn deliver(&mut self, number: u64, signal: i32) {
        let Some(world) = self.job.as_ref().map(|job| &job.launch.world) else { return };
        for child in &mut self.children {
            if world.degree(child.replica.rank) == 1 {
                child.deliver(signal);
            } else if child.greeted {
                child.send(&ToAgent::Signal { number, signal });
            }
        }
    }

    fn send_to_agents(&mut self, message: &ToAgent) {
        for child in &mut self.children {
            if child.greeted {
                child.send(message);
            }
        }
    }

    fn agent_ready(&mut self, number: usize, events: EpollFlags) {
        let child = &mut self.children[number];
        let Some(agent) = &mut child.agent else { return };
        if events.contains(EpollFlags::EPOLLOUT) && agent.flush().is_err() {
            return self.drop_agent(number);
        }
        match agent.receive() {
            Ok(Received::Nothing) => return,
            Ok(Received::Bytes) => {}
            Ok(Received::End) | Err(_) => return self.drop_agent(number),
        }
        loop {
            let child = &mut self.children[number];
            let (replica, Some(agent)) = (child.replica, &mut child.agent) else { return };
            match agent.next_message::<FromAgent>() {
                Ok(Some(mut message)) => {
                    match &mut message {
                        FromAgent::Hello => match self.children[number].copy {
                            Some(copy) => {
                                self.place_copy(number, copy.incarnation);
                                continue;
                            }
                            None if self.children[number].is_restored => self.place_restored(number),
                            None => self.welcome(number),
                        },
                        // In a PID namespace of its own: other processes do not know this id.
                        FromAgent::Ready(card) if self.job.as_ref().is_some_and(|job| job.launch.cloneable) => {
                            card.pid = 0
                        }
                        // Replicas see an artificial id (see docs/determinism.md); other processes need the real one.
                        FromAgent::Ready(card) if card.pid > PID_MAX => card.pid = self.children[number].pid.as_raw(),
                        FromAgent::AwaitsFlip { asked, send, thread, word } => {
                            self.start_flipper(number, (*asked, *send), *thread, *word);
                            continue;
                        }
                        _ => {}
                    }
                    self.send(&FromDaemon::Agent { replica, message });
                }
                Ok(None) => return,
                Err(error) => {
                    self.send(&FromDaemon::Note(format!("replica {replica} is killed: {error:#}")));
                    self.children[number].signal(libc::SIGKILL);
                    return self.drop_agent(number);
                }
            }
        }
    }

    fn drop_agent(&mut self, number: usize) {
        if let Some(agent) = self.children[number].agent.take() {
            let _ = self.epoll.delete(agent.fd());
        }
    }

    fn welcome(&mut self, number: usize) {
        let Some(job) = &self.job else { return };
        let launch = &job.launch;
        let child = &mut self.children[number];
        let me = child.replica;
        let incarnation = job.view.member(me).map_or_else(Default::default, |member| member.incarnation);
        let faults = launch.faults.iter().filter(|(replica, _)| *replica == me).map(|(_, fault)| *fault).collect();
        let welcome = Welcome {
            job: launch.job,
            link_secret: self.post.secret().of_links(),
            me,
            incarnation,
            world: launch.world.clone(),
            view: job.view.clone(),
            options: launch.options.clone(),
            host: self.host.clone(),
            host_number: self.post.host(),
            core_sharers: job.prepared.sharers(me) as u32,
            shared_memory: job.shared_memory,
            windows: job.prepared.windows(),
            neighborhood: launch.neighborhood(me.rank),
            placed: launch.view.number,
            listen: SocketAddr::from((self.post.address(), 0)),
            faults,
            application: launch.application_of_rank[me.rank.0 as usize],
            origin: launch.origin.clone(),
        };
        child.greeted = true;
        child.send(&ToAgent::Welcome(Box::new(welcome)));
        self.watch_kills(number);
    }

    fn child_printed(&mut self, number: usize, stream: Stream) {
        let child = &mut self.children[number];
        match child.read(stream) {
            child::Read::Bytes(bytes) => self.pass_on(number, stream, bytes),
            child::Read::Nothing => {}
            child::Read::End => self.close_pipe(number, stream),
        }
    }

    /// Passes on output of a child, after notes that belong before it.
    fn pass_on(&mut self, number: usize, stream: Stream, bytes: Vec<u8>) {
        let replica = self.children[number].replica;
        if let Some(found) = self.other_mpi(number) {
            self.send(&FromDaemon::OtherMpi { replica, found });
        }
        for (asked, fault) in std::mem::take(&mut self.children[number].corrupted) {
            let event = FromAgent::Event(Event::Injected { replica, asked, fault });
            self.send(&FromDaemon::Agent { replica, message: event });
        }
        self.send(&FromDaemon::Output { replica, stream, bytes });
    }

    /// Another MPI library that a child has mapped. Reported once.
    fn other_mpi(&mut self, number: usize) -> Option<Foreign> {
        let is_allowed = self.job.as_ref().is_none_or(|job| job.launch.allows_other_mpi);
        let child = &mut self.children[number];
        let is_image = child.copy.is_some() || child.is_restored;
        if is_allowed || child.greeted || is_image || child.mpi_looks_left == 0 {
            return None;
        }
        child.mpi_looks_left -= 1;
        let found = foreign::mapped(child.program.unwrap_or(child.pid).as_raw())?;
        child.mpi_looks_left = 0;
        Some(found)
    }

    fn close_pipe(&mut self, number: usize, stream: Stream) {
        let child = &mut self.children[number];
        child.close(stream, &self.epoll);
        self.report_drained(number);
    }

    fn report_drained(&mut self, number: usize) {
        let child = &mut self.children[number];
        if child.exit.is_some() && child.pipes_are_closed() && !child.drained && child.copy.is_none() {
            child.drained = true;
            child.drain_deadline = None;
            let replica = child.replica;
            self.send(&FromDaemon::Drained(replica));
        }
    }

    fn child_died(&mut self, number: usize) -> Result<()> {
        // The agent's last messages come first: a process may abort the job and exit at once.
        while self.children[number].agent_has_input() {
            self.agent_ready(number, EpollFlags::EPOLLIN);
        }
        let child = &mut self.children[number];
        let Some(mut exit) = child.reap()? else { return Ok(()) };
        let replica = child.replica;
        self.handle_flippers(replica);
        let child = &mut self.children[number];
        let counts = child.kills.as_deref().filter(|_| exit.is_killed());
        if counts.is_some_and(|path| self.kills.explain(path, Instant::now())) {
            exit = Exit::OutOfMemory;
            child.exit = Some(exit);
        }
        debug!(target: "redrtd", replica = %child.replica, ?exit, "a process has ended");
        let _ = self.epoll.delete(child.pidfd.as_fd());
        let replica = child.replica;
        if child.copy.is_some() {
            child.pipes = [None, None];
            child.input = None;
            self.drop_agent(number);
            self.helper_ready(number);
            self.copy_failed(number, NoImage::CopyEnded(exit));
            return Ok(());
        }
        child.drain_deadline = Some(Instant::now() + DRAIN_GRACE);
        if child.input.take().is_some() {
            self.input.remove_reader(number);
        }
        self.drop_agent(number);
        let found_at_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
        self.send(&FromDaemon::Exited { replica, exit, found_at_ns });
        self.feed_input();
        self.report_drained(number);
        Ok(())
    }

    /// Closes pipes of dead processes after the grace period: descendants may hold them open without end.
    fn close_overdue_pipes(&mut self) {
        let now = Instant::now();
        for number in 0..self.children.len() {
            let child = &self.children[number];
            let flowing = self.held || child.held || self.post.backlog_bytes() > BACKLOG_BYTES_MAX;
            if child.drain_deadline.is_none_or(|deadline| deadline > now) {
                continue;
            }
            if flowing {
                self.children[number].drain_deadline = Some(now + DRAIN_GRACE);
                continue;
            }
            for stream in [Stream::Output, Stream::Error] {
                while let child::Read::Bytes(bytes) = self.children[number].read(stream) {
                    self.pass_on(number, stream, bytes);
                }
                self.close_pipe(number, stream);
            }
        }
    }

    fn feed_input(&mut self) {
        let taken = self.input.feed(&mut self.children, &self.epoll);
        if taken > 0 {
            self.send(&FromDaemon::InputTaken { byte_count: taken });
        }
    }

    /// Watches output pipes only while their bytes can be sent.
    fn update_interests(&mut self) {
        let held = self.held || self.post.backlog_bytes() > BACKLOG_BYTES_MAX;
        for (number, child) in self.children.iter_mut().enumerate() {
            // A copy's output waits until the copy has its place.
            child.watch_pipes(number, !(held || child.held || child.copy.is_some()), &self.epoll);
            child.watch_agent(number, &self.epoll);
        }
    }
}
