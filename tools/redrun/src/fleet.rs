//! The daemons of the job from the side of `redrun`: start, attachment, messages, heartbeats, loss.
//!
//! Messages and time enter; [`News`] leaves. `redrt_wire::tree` describes how messages survive a change of the
//! connection, [`host_watch`] how a dead host is found.

mod failover;
mod grow;
mod launch;
mod watching;

use anyhow::{Result, anyhow};
use control_network::door::Refusal;
use control_network::hub::{Event, Hub, LinkId};
use control_network::launcher::{self, Starting};
use control_network::session::Session;
use coordinator_records::ledger::{Launchers, Ledger};
pub use failover::{HostBefore, JournaledHosts};
use host_watch::shape;
use host_watch::{Arbiter, Death, Observer, Refusals, Who};
use job_coordinator::Misplaced;
use placement::plan::HostPlan;
use redrt_wire::daemon::{Coordinators, FromDaemon, Sign, ToDaemon};
use redrt_wire::frame::FrameError;
use redrt_wire::secret::Secret;
use redrt_wire::tree::{Attach, Down, Question, Term, Up};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Time in which a host must refuse a connection if its daemon has ended.
const REFUSAL_TIME_MAX: Duration = Duration::from_secs(2);
/// Time for daemons to leave by themselves.
const LEAVE_TIME_MAX: Duration = Duration::from_secs(3);

/// An event for the shell.
#[derive(Debug)]
pub enum News {
    /// All hosts of the job have attached.
    Complete,
    /// Message of a host's daemon.
    Message(u32, FromDaemon),
    /// The host was lost, and left the job.
    Dead {
        host: u32,
        why: HostLoss,
    },
    /// A connection broke, and the host came back by another one.
    Reattached(u32),
    /// A host that counted as dead came back, and was told to leave.
    Fenced(u32),
    /// A connection of a stranger was refused.
    Refused(Refusal),
    /// A host that was added to the running job has attached.
    Joined(u32),
    /// Adding a host failed.
    NotJoined {
        host: u32,
        /// The reason, for the user.
        why: String,
    },
    /// This process did not run for so long. Hosts may have given it up meanwhile.
    StoodStill(Duration),
    /// A question of `redctl`.
    Asked(LinkId, Question),
    /// Another coordinator has a higher term. This one must end without a message.
    Replaced(Term),
    /// A host of the job's start cannot be had.
    NotStarted {
        host: u32,
        /// The reason, with the host's name.
        why: anyhow::Error,
    },
    Failed(anyhow::Error),
}

/// The reason why a host left the job.
#[derive(Debug, thiserror::Error)]
pub enum HostLoss {
    /// The observers of the host agreed that it is dead.
    #[error("{0}")]
    Dead(Death),
    /// The host's daemon sent a frame that cannot be decoded.
    #[error("its daemon sent what cannot be read: {0}")]
    Unreadable(FrameError),
    /// The host's daemon reported on a replica that is not on that host.
    #[error(transparent)]
    Misplaced(Misplaced),
    /// The host and another one do not hear each other, and others hear both.
    #[error("it and {by} do not hear each other")]
    Unheard {
        /// Name of the other host.
        by: String,
    },
    /// This process did not run. The loss may be a consequence.
    #[error("redrun stood still for {:.1} s, so that the daemons gave it up ({noticed})", stood.as_secs_f64())]
    StoodStill {
        stood: Duration,
        /// The loss as it was noticed.
        noticed: Box<HostLoss>,
    },
}

impl HostLoss {
    /// Time without a sign of life before the loss.
    pub fn silence(&self, tick: Duration) -> Duration {
        match self {
            Self::Dead(death) => tick * death.ticks(),
            Self::StoodStill { noticed, .. } => noticed.silence(tick),
            Self::Unreadable(_) | Self::Misplaced(_) | Self::Unheard { .. } => Duration::ZERO,
        }
    }
}

/// State of one host.
#[derive(Default)]
struct Member {
    attach: Option<Attach>,
    dead: bool,
    /// Connection to the coordinator, of a host that is attached directly.
    link: Option<LinkId>,
    session: Session,
    refusals: Refusals,
    /// True while its daemon looks for a coordinator that is gone. It is called until it has connected.
    is_to_be_called: bool,
    /// Number of messages after which the host knows which hosts have the coordinator's records.
    coordinators_known_from: u64,
}

/// Role of the other end of a connection to the coordinator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Role {
    /// No frame has arrived yet.
    New,
    Daemon(u32),
    /// Daemon of a host that was told to leave. Its last message may follow.
    Buried(u32),
    Control,
}

/// All daemons of the job: see the module.
pub struct Fleet {
    plan: HostPlan,
    outlives_terminal: bool,
    hub: Hub,
    ledger: Ledger,
    term: Term,
    members: Vec<Member>,
    roles: HashMap<LinkId, Role>,
    starting: Vec<Starting>,
    /// Launchers that a killed coordinator has started.
    launchers: Launchers,
    complete: bool,
    /// As daemons were informed: several hosts have the coordinator's records, or are about to.
    has_several_coordinators: bool,
    /// Hosts that are being added, with their deadlines.
    joining: BTreeMap<u32, Instant>,
    launched_at: Instant,
    progress_at: Instant,
    observer: Observer,
    arbiter: Arbiter,
    next_tick: Option<Instant>,
    round: u64,
    /// Time at which a standstill of this process was last noticed, and its length.
    stood_still: Option<(Instant, Duration)>,
    news: VecDeque<News>,
}

impl Fleet {
    /// Starts the daemons of all hosts. `outlives_terminal`: daemons do not get the terminal.
    /// `has_several_coordinators`: daemons learn at their start that several hosts have the coordinator's records.
    pub fn start(
        plan: HostPlan,
        secret: Secret,
        outlives_terminal: bool,
        ledger: Ledger,
        has_several_coordinators: bool,
    ) -> Result<Self> {
        let mut fleet = Self::new(plan, secret, outlives_terminal, ledger)?;
        fleet.has_several_coordinators = has_several_coordinators;
        fleet.launch()?;
        Ok(fleet)
    }

    fn new(plan: HostPlan, secret: Secret, outlives_terminal: bool, ledger: Ledger) -> Result<Self> {
        let hub = Hub::new((plan.coordinator_address, 0).into(), secret)?;
        let count = plan.hosts.len() as u32;
        let now = Instant::now();
        Ok(Self {
            hub,
            ledger,
            term: Term::default(),
            members: (0..count).map(|_| Member::default()).collect(),
            roles: HashMap::new(),
            starting: Vec::new(),
            launchers: Vec::new(),
            complete: false,
            has_several_coordinators: false,
            joining: BTreeMap::new(),
            launched_at: now,
            progress_at: now,
            observer: Observer::new(false),
            arbiter: Arbiter::new((0..count).collect()),
            next_tick: None,
            round: 0,
            stood_still: None,
            news: VecDeque::new(),
            plan,
            outlives_terminal,
        })
    }

    /// Readable when [`Fleet::work`] has work.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.hub.fd()
    }

    pub fn secret(&self) -> &Secret {
        self.hub.secret()
    }

    /// Address on which `redrun` listens.
    pub fn address(&self) -> SocketAddr {
        self.hub.address()
    }

    pub fn plan(&self) -> &HostPlan {
        &self.plan
    }

    /// A host's name for users.
    pub fn name(&self, host: u32) -> &str {
        let attached = self.members[host as usize].attach.as_ref().map(|attach| attach.name.as_str());
        match &self.plan.hosts[host as usize].name {
            Some(name) => &name.name,
            None => attached.unwrap_or("this host"),
        }
    }

    /// Name of the host on which this process runs, which may be none of the job's.
    pub fn own_name(&self) -> String {
        let planned = self.plan.hosts.iter().find(|host| host.local).and_then(|host| host.name.as_ref());
        let called =
            || nix::unistd::gethostname().map_or_else(|_| "localhost".into(), |name| name.to_string_lossy().into());
        planned.map_or_else(called, |name| name.name.clone())
    }

    /// A host's address. `None` until it has attached.
    pub fn host_address(&self, host: u32) -> Option<std::net::IpAddr> {
        Some(self.members.get(host as usize)?.attach.as_ref()?.listen.ip())
    }

    /// True once the host has left the job.
    pub fn is_dead(&self, host: u32) -> bool {
        self.members[host as usize].dead
    }

    /// CPUs of a host; 0 until it has attached.
    pub fn cpu_count(&self, host: u32) -> u32 {
        self.members[host as usize].attach.as_ref().map_or(0, |attach| attach.cpu_count)
    }

    /// Time at which [`Fleet::work`] must be called even without an event.
    pub fn next_deadline(&self) -> Option<Instant> {
        // The failure of a launcher is found by polling.
        let soon = (!self.complete || !self.joining.is_empty()).then(|| Instant::now() + Duration::from_millis(50));
        [soon, self.next_tick].into_iter().flatten().min()
    }

    /// Sends to all daemons a message that does not come from the coordinator. The journal has it.
    pub fn send_all(&mut self, message: &ToDaemon) {
        let body = encode(message);
        self.ledger.order(None, &body);
        self.give(None, body.into());
    }

    /// Informs daemons of the hosts that have the coordinator's records.
    pub fn announce_coordinators(&mut self, coordinators: Coordinators) {
        self.has_several_coordinators = coordinators != Coordinators::One;
        self.send_all(&ToDaemon::Coordinators(coordinators));
        self.members.iter_mut().for_each(|member| member.coordinators_known_from = member.session.sent());
    }

    /// True if daemons know that several hosts have the records, or are about to.
    pub fn has_several_coordinators(&self) -> bool {
        self.has_several_coordinators
    }

    /// True if all attached daemons have acknowledged that. A daemon that attaches later learns it first.
    pub fn all_know_coordinators(&self) -> bool {
        let is_there = |member: &&Member| !member.dead && member.attach.is_some();
        self.members.iter().filter(is_there).all(|member| member.session.first() >= member.coordinators_known_from)
    }

    /// Sends to one daemon a message that does not come from the coordinator. The journal has it.
    pub fn send(&mut self, host: u32, message: &ToDaemon) {
        let body = encode(message);
        self.ledger.order(Some(host), &body);
        self.give(Some(host), body.into());
    }

    /// Sends a message of the coordinator, to one host or to all. The journal has its cause.
    pub fn relay(&mut self, to: Option<u32>, message: &ToDaemon) {
        self.ledger.relayed();
        self.give(to, encode(message).into());
    }

    /// Keeps a message in the streams of its receivers, and sends it.
    fn give(&mut self, to: Option<u32>, body: Rc<[u8]>) {
        let frame = Down::Message { to, body: body.to_vec() };
        match to {
            None => {
                for member in self.members.iter_mut().filter(|member| !member.dead) {
                    member.session.keep(body.clone());
                }
                self.pass(&frame);
            }
            Some(host) if self.members[host as usize].dead => {}
            Some(host) => {
                self.members[host as usize].session.keep(body);
                if let Some(link) = self.way(host) {
                    self.hub.send(link, &frame);
                }
            }
        }
    }

    /// Answers `redctl`, after the journal is flushed.
    pub fn answer(&mut self, link: LinkId, text: String) {
        self.ledger.flush();
        self.hub.send(link, &Down::Answer(text));
    }

    /// The connection that leads to a host: its own, or that of the nearest daemon above.
    fn way(&self, host: u32) -> Option<LinkId> {
        let above = std::iter::successors(Some(host), |host| shape::parent(*host, self.plan.fan_out));
        above.map(|host| &self.members[host as usize]).find_map(|member| member.link)
    }

    /// Sends a frame over all direct connections; the daemons pass it down.
    fn pass(&mut self, frame: &Down) {
        let links: Vec<_> = self.members.iter().filter_map(|member| member.link).collect();
        for link in links {
            self.hub.send(link, frame);
        }
    }

    /// Handles all pending events; never blocks.
    pub fn work(&mut self) -> VecDeque<News> {
        // First: events that a standstill of this process caused must not count against hosts.
        self.notice_standstill();
        for event in self.hub.events() {
            match event {
                Event::Accepted(link, _) => drop(self.roles.insert(link, Role::New)),
                Event::Refused(refusal) => self.news.push_back(News::Refused(refusal)),
                Event::Readable(link) => self.read(link),
                Event::Closed(link) => {
                    self.read(link);
                    self.lose_link(link);
                }
                Event::Dialled { purpose, result } => self.dialled(purpose as u32, result),
            }
        }
        if !self.complete {
            self.check_launch();
        }
        self.check_joining();
        if self.next_tick.is_some_and(|at| at <= Instant::now()) {
            self.tick();
        }
        std::mem::take(&mut self.news)
    }

    fn read(&mut self, link: LinkId) {
        loop {
            match self.hub.next_message::<Up>(link) {
                Ok(Some(frame)) => self.handle(link, frame),
                Ok(None) => return,
                Err(error) => {
                    let message = match self.roles.get(&link) {
                        Some(Role::Daemon(host)) => format!("the daemon on {}: {error:#}", self.name(*host)),
                        _ => format!("a daemon that connects: {error:#}"),
                    };
                    if !self.complete {
                        self.news.push_back(News::Failed(anyhow!(message)));
                    }
                    return self.lose_link(link);
                }
            }
        }
    }

    fn handle(&mut self, link: LinkId, frame: Up) {
        let role = self.roles.get(&link).copied().unwrap_or(Role::New);
        if let Role::Daemon(host) = role
            && let Some(duty) = self.observer.heard(host)
        {
            self.observed_here(duty);
        }
        match (role, frame) {
            // The daemons below a buried one attach by another way.
            (Role::Buried(own), Up::Attach(attach)) if attach.host != own => {}
            (_, Up::Attach(attach)) => self.attach(link, role, *attach),
            (Role::Daemon(_), Up::Message { host, number, body }) => self.message(host, number, &body),
            (Role::Buried(own), Up::Message { host, body, .. }) if host == own => self.last_words(host, &body),
            (Role::Daemon(_), Up::Taken { host, count }) => {
                if let Some(member) = self.members.get_mut(host as usize) {
                    member.session.taken(count);
                }
            }
            (Role::New | Role::Control, Up::Ask(question)) => {
                self.roles.insert(link, Role::Control);
                self.news.push_back(News::Asked(link, question));
            }
            (Role::Daemon(_), Up::Replaced { by }) if by > self.term => self.news.push_back(News::Replaced(by)),
            // Beats were counted above. Other frames do not fit the role: no sound daemon sends them.
            _ => {}
        }
    }

    fn message(&mut self, host: u32, number: u64, body: &[u8]) {
        let Some(member) = self.members.get_mut(host as usize) else { return };
        if member.dead {
            return self.last_words(host, body);
        }
        if number != member.session.received() {
            return;
        }
        let message = redrt_wire::frame::decode_body::<FromDaemon>(body);
        let is_for_coordinator =
            !matches!(message, Ok(FromDaemon::HostFailed { .. } | FromDaemon::Observed { .. }) | Err(_));
        self.ledger.heard(host, body, is_for_coordinator);
        if let Some(count) = member.session.count(body.len()) {
            self.acknowledge(host, count);
        }
        match message {
            Ok(FromDaemon::HostFailed { host, message }) => {
                self.news.push_back(match self.plan.hosts.get(host as usize) {
                    Some(_) => News::NotStarted { host, why: anyhow!("host {}: {message}", self.name(host)) },
                    None => News::Failed(anyhow!("a host that is not of the job: {message}")),
                });
            }
            Ok(FromDaemon::Observed { host: other, sign }) => self.observed(Who::Host(host), other, sign),
            Ok(message) => self.news.push_back(News::Message(host, message)),
            Err(error) => self.bury(host, HostLoss::Unreadable(error)),
        }
    }

    /// Passes on a note of a host that was given up: its own standstill, for example, explains the loss to the user.
    fn last_words(&mut self, host: u32, body: &[u8]) {
        if let Ok(note @ FromDaemon::Note(_)) = redrt_wire::frame::decode_body(body) {
            self.news.push_back(News::Message(host, note));
        }
    }

    fn acknowledge(&mut self, host: u32, count: u64) {
        self.ledger.flush();
        if let Some(link) = self.way(host) {
            self.hub.send(link, &Down::Taken { host, count });
        }
    }

    fn attach(&mut self, link: LinkId, role: Role, mut attach: Attach) {
        let known = self.members.len() as u32;
        if attach.version != env!("CARGO_PKG_VERSION") || attach.host >= known {
            let (version, own) = (&attach.version, env!("CARGO_PKG_VERSION"));
            let why = format!("its redrtd is version {version}, this is {own}");
            if self.joining.remove(&attach.host).is_some() {
                self.members[attach.host as usize].dead = true;
                return self.news.push_back(News::NotJoined { host: attach.host, why });
            }
            return self.news.push_back(News::Failed(anyhow!("host {}: {why}", attach.name)));
        }
        let host = attach.host;
        if attach.term > self.term {
            return self.news.push_back(News::Replaced(attach.term));
        }
        if role == Role::New {
            self.roles.insert(link, Role::Daemon(host));
        }
        let direct = matches!(self.roles.get(&link), Some(Role::Daemon(at)) if *at == host);
        let member = &mut self.members[host as usize];
        if member.dead {
            let reason = "this host was taken for dead and has lost its part in the job".to_owned();
            self.hub.send(link, &Down::Stop { host, reason });
            return self.news.push_back(News::Fenced(host));
        }
        let before = member.attach.as_ref().map(|before| before.attachment);
        if before.is_some_and(|before| before >= attach.attachment) {
            return;
        }
        if let Some(before) = &member.attach {
            attach.name.clone_from(&before.name);
        }
        let attachment = attach.attachment;
        let taken = attach.received;
        if before.is_none() {
            self.ledger.attached(&attach);
        }
        self.ledger.flush();
        member.attach = Some(attach);
        member.is_to_be_called &= !direct;
        let old = std::mem::replace(&mut member.link, direct.then_some(link));
        let received = member.session.received();
        let missing: Vec<_> = member.session.missing(taken).collect();
        let Some(way) = self.way(host) else { return };
        self.hub.send(way, &Down::Attached { host, attachment, term: self.term, received });
        for body in missing {
            self.hub.send(way, &Down::Message { to: Some(host), body: body.to_vec() });
        }
        if let Some(old) = old.filter(|old| *old != way) {
            self.roles.remove(&old);
            self.hub.close(old);
        }
        let above = shape::parent(host, self.plan.fan_out).filter(|_| !direct);
        self.arbiter.attached(host, above.map_or(Who::Coordinator, Who::Host));
        if direct {
            self.observer.heard(host);
        }
        match before {
            None if self.complete => self.joined(host),
            None => self.grown(host),
            Some(_) => {
                self.rewatch();
                self.news.push_back(News::Reattached(host));
            }
        }
    }

    fn lose_link(&mut self, link: LinkId) {
        self.hub.close(link);
        let Some(Role::Daemon(host)) = self.roles.remove(&link) else { return };
        let member = &mut self.members[host as usize];
        if member.link != Some(link) {
            return;
        }
        member.link = None;
        if !member.dead {
            member.refusals.begin();
            self.ask_for_refusal(host);
        }
    }

    /// Dials a host whose connection broke: a refusal shows that its daemon has ended.
    fn ask_for_refusal(&mut self, host: u32) {
        let member = &mut self.members[host as usize];
        let may_ask = member.refusals.may_ask();
        if let Some(attach) = member.attach.as_ref().filter(|_| may_ask) {
            self.hub.dial(host.into(), attach.listen, REFUSAL_TIME_MAX);
        }
    }

    fn dialled(&mut self, host: u32, result: io::Result<LinkId>) {
        match result {
            // The daemon lives, and attaches again by itself.
            Ok(link) => {
                self.members[host as usize].refusals.not_refused();
                self.call(host, link);
                self.hub.close(link);
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                if !self.members[host as usize].refusals.refused() {
                    return self.ask_for_refusal(host);
                }
                self.observed(Who::Coordinator, host, Sign::Gone);
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock) => {
                if self.next_tick.is_none() {
                    self.observed(Who::Coordinator, host, Sign::Gone);
                }
            }
            Err(_) => self.ask_for_refusal(host),
        }
    }

    /// Waits for daemons to leave, then ends their launchers. `keeps_sessions`: as in [`ToDaemon::Shutdown`].
    pub fn end(&mut self, keeps_sessions: bool) {
        // Sent to all: a daemon that holds a lease and has not had the message would wait for another coordinator.
        self.send_all(&ToDaemon::Shutdown { keeps_sessions });
        let members = &self.members;
        let is_dead = |starting: &Starting| starting.host.is_some_and(|host| members[host as usize].dead);
        // The launcher of a dead host may wait without end.
        let (mut dead, mut alive): (Vec<_>, Vec<_>) = self.starting.drain(..).partition(is_dead);
        launcher::end(&mut dead, Duration::ZERO, || {});
        if self.term > Term::default() {
            self.end_launchers(false);
            self.see_daemons_leave();
            self.end_launchers(true);
        }
        let hub = &mut self.hub;
        // The last messages may still be queued.
        launcher::end(&mut alive, LEAVE_TIME_MAX, || drop(hub.events()));
    }
}

fn encode(message: &ToDaemon) -> Vec<u8> {
    redrt_wire::frame::encode_body(message)
}
