//! The daemons of the job, as `redrun` sees them: started, attached, spoken to, watched, given up.
//!
//! Enters: messages for them, time. Leaves: [`News`]. How messages survive a change of way is said in
//! `redrt_wire::tree`, who is taken for dead in [`host_watch`].

mod comeback;
mod grow;
mod launch;
mod watching;

use anyhow::{Result, anyhow};
pub use comeback::{HostBefore, Known};
use control_network::door::Refusal;
use control_network::hub::{Event, Hub, LinkId};
use control_network::launcher::{self, Starting};
use control_network::session::Session;
use host_watch::shape;
use host_watch::{Arbiter, Death, Observer, Refusals, Who};
use job_root::Misplaced;
use placement::plan::HostPlan;
use redrt_wire::daemon::{FromDaemon, Roots, Sign, ToDaemon};
use redrt_wire::frame::FrameError;
use redrt_wire::secret::Secret;
use redrt_wire::tree::{Attach, Down, Question, Term, Up};
use root_records::ledger::{Launchers, Ledger};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// How long a host gets to refuse a connection to a daemon that has ended.
const REFUSAL_TIME_MAX: Duration = Duration::from_secs(2);
/// How long daemons get to leave by themselves.
const LEAVE_TIME_MAX: Duration = Duration::from_secs(3);

/// What has happened.
#[derive(Debug)]
pub enum News {
    /// Every host of the job is there.
    Complete,
    /// A daemon said something.
    Message(u32, FromDaemon),
    /// A host is not part of the job any more.
    Dead {
        /// The host.
        host: u32,
        /// Why.
        why: HostLoss,
    },
    /// A connection of a host broke, and it came back by another way.
    Reattached(u32),
    /// One who was taken for dead came back and was told to leave.
    Fenced(u32),
    /// A stranger was refused.
    Refused(Refusal),
    /// A host that was added to the running job is there.
    Joined(u32),
    /// It could not be had.
    NotJoined {
        /// The host.
        host: u32,
        /// Why, in words.
        why: String,
    },
    /// This program did not run for so long, and hosts may have given it up.
    StoodStill(Duration),
    /// `redctl` asks.
    Asked(LinkId, Question),
    /// Another root has taken this one's place, which is to end without a word.
    Replaced(Term),
    /// A host that the job was to be started on is not to be had.
    NotStarted {
        /// The host.
        host: u32,
        /// Why, with its name.
        why: anyhow::Error,
    },
    /// The job cannot be started.
    Failed(anyhow::Error),
}

/// Why a host is not part of the job any more.
#[derive(Debug, thiserror::Error)]
pub enum HostLoss {
    /// Those who watch it say so.
    #[error("{0}")]
    Dead(Death),
    /// Its daemon is not what it should be.
    #[error("its daemon sent what cannot be read: {0}")]
    Unreadable(FrameError),
    /// It speaks of what it cannot know.
    #[error(transparent)]
    Misplaced(Misplaced),
    /// Others hear both of them.
    #[error("it and {by} do not hear each other")]
    Unheard {
        /// The name of the other.
        by: String,
    },
    /// This program did not run, and what was noticed after that may follow from it.
    #[error("redrun stood still for {:.1} s, so that the daemons gave it up ({noticed})", stood.as_secs_f64())]
    StoodStill {
        /// For how long.
        stood: Duration,
        /// What was noticed.
        noticed: Box<HostLoss>,
    },
}

impl HostLoss {
    /// For how long the host was not heard before it was given up.
    pub fn silence(&self, tick: Duration) -> Duration {
        match self {
            Self::Dead(death) => tick * death.ticks(),
            Self::StoodStill { noticed, .. } => noticed.silence(tick),
            Self::Unreadable(_) | Self::Misplaced(_) | Self::Unheard { .. } => Duration::ZERO,
        }
    }
}

/// What is known of one host.
#[derive(Default)]
struct Member {
    attach: Option<Attach>,
    dead: bool,
    /// The connection by which it is attached to the root itself.
    link: Option<LinkId>,
    session: Session,
    refusals: Refusals,
    /// Its daemon is to be called: it looks for a root that is gone, until it has connected to this one itself.
    is_to_be_called: bool,
    /// It knows which hosts hold what is decided here once it has this number of messages.
    roots_known_from: u64,
}

/// A connection to the root.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Role {
    /// Nothing was said yet.
    New,
    /// A daemon.
    Daemon(u32),
    /// A daemon that was told to leave, and may have something to say to that.
    Buried(u32),
    /// `redctl`.
    Control,
}

/// See the module.
pub struct Fleet {
    plan: HostPlan,
    outlives_terminal: bool,
    hub: Hub,
    ledger: Ledger,
    term: Term,
    members: Vec<Member>,
    roles: HashMap<LinkId, Role>,
    starting: Vec<Starting>,
    /// Those of a root that was killed, for which host or for all.
    launchers: Launchers,
    complete: bool,
    /// As daemons were told: several hosts hold what is decided here, or are about to.
    has_several_roots: bool,
    /// Hosts that were added, and until when they may take.
    joining: BTreeMap<u32, Instant>,
    launched_at: Instant,
    progress_at: Instant,
    observer: Observer,
    arbiter: Arbiter,
    next_tick: Option<Instant>,
    round: u64,
    /// When this program was last seen to have stood still, and for how long.
    stood_still: Option<(Instant, Duration)>,
    news: VecDeque<News>,
}

impl Fleet {
    /// Starts the daemons of all hosts. They do not have the terminal of a job that outlives it, and may know from the
    /// beginning that several hosts hold what is decided here.
    pub fn start(
        plan: HostPlan,
        secret: Secret,
        outlives_terminal: bool,
        ledger: Ledger,
        has_several_roots: bool,
    ) -> Result<Self> {
        let mut fleet = Self::new(plan, secret, outlives_terminal, ledger)?;
        fleet.has_several_roots = has_several_roots;
        fleet.launch()?;
        Ok(fleet)
    }

    fn new(plan: HostPlan, secret: Secret, outlives_terminal: bool, ledger: Ledger) -> Result<Self> {
        let hub = Hub::new((plan.root_address, 0).into(), secret)?;
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
            has_several_roots: false,
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

    /// Readable when [`Fleet::work`] has something to do.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.hub.fd()
    }

    /// The job's secret.
    pub fn secret(&self) -> &Secret {
        self.hub.secret()
    }

    /// Where `redrun` listens.
    pub fn address(&self) -> SocketAddr {
        self.hub.address()
    }

    /// The hosts of the job.
    pub fn plan(&self) -> &HostPlan {
        &self.plan
    }

    /// A host's name for the user.
    pub fn name(&self, host: u32) -> &str {
        let attached = self.members[host as usize].attach.as_ref().map(|attach| attach.name.as_str());
        match &self.plan.hosts[host as usize].name {
            Some(name) => &name.name,
            None => attached.unwrap_or("this host"),
        }
    }

    /// The name of the host that this runs on, which need not be one of the job.
    pub fn own_name(&self) -> String {
        let planned = self.plan.hosts.iter().find(|host| host.local).and_then(|host| host.name.as_ref());
        let called =
            || nix::unistd::gethostname().map_or_else(|_| "localhost".into(), |name| name.to_string_lossy().into());
        planned.map_or_else(called, |name| name.name.clone())
    }

    /// A host's address, once it is there.
    pub fn host_address(&self, host: u32) -> Option<std::net::IpAddr> {
        Some(self.members.get(host as usize)?.attach.as_ref()?.listen.ip())
    }

    /// Whether a host is not part of the job any more.
    pub fn is_dead(&self, host: u32) -> bool {
        self.members[host as usize].dead
    }

    /// CPUs of a host; 0 when it has not attached.
    pub fn cpu_count(&self, host: u32) -> u32 {
        self.members[host as usize].attach.as_ref().map_or(0, |attach| attach.cpu_count)
    }

    /// When [`Fleet::work`] is to be called though nothing has happened.
    pub fn next_deadline(&self) -> Option<Instant> {
        // Somebody must notice that a launcher has failed.
        let soon = (!self.complete || !self.joining.is_empty()).then(|| Instant::now() + Duration::from_millis(50));
        [soon, self.next_tick].into_iter().flatten().min()
    }

    /// Sends to every daemon what the root has not made.
    pub fn send_all(&mut self, message: &ToDaemon) {
        let body = encode(message);
        self.ledger.order(None, &body);
        self.give(None, body.into());
    }

    /// Tells daemons which hosts hold what is decided here.
    pub fn tell_roots(&mut self, roots: Roots) {
        self.has_several_roots = roots != Roots::One;
        self.send_all(&ToDaemon::Roots(roots));
        self.members.iter_mut().for_each(|member| member.roots_known_from = member.session.sent());
    }

    /// Whether daemons know of several, or that there are to be.
    pub fn has_several_roots(&self) -> bool {
        self.has_several_roots
    }

    /// Whether all daemons that are there know that. One that has not come yet learns it before anything else.
    pub fn all_know_roots(&self) -> bool {
        let is_there = |member: &&Member| !member.dead && member.attach.is_some();
        self.members.iter().filter(is_there).all(|member| member.session.first() >= member.roots_known_from)
    }

    /// Sends to the daemon of one host what the root has not made.
    pub fn send(&mut self, host: u32, message: &ToDaemon) {
        let body = encode(message);
        self.ledger.order(Some(host), &body);
        self.give(Some(host), body.into());
    }

    /// Sends what the root has made, to one host or to all.
    pub fn relay(&mut self, to: Option<u32>, message: &ToDaemon) {
        self.ledger.relayed();
        self.give(to, encode(message).into());
    }

    /// A message takes its place in the streams of its receivers, and leaves.
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

    /// Answers `redctl`.
    pub fn answer(&mut self, link: LinkId, text: String) {
        self.ledger.flush();
        self.hub.send(link, &Down::Answer(text));
    }

    /// The connection that leads to a host.
    fn way(&self, host: u32) -> Option<LinkId> {
        let above = std::iter::successors(Some(host), |host| shape::parent(*host, self.plan.fan_out));
        above.map(|host| &self.members[host as usize]).find_map(|member| member.link)
    }

    /// To all, by the connections of those that are attached here.
    fn pass(&mut self, frame: &Down) {
        let links: Vec<_> = self.members.iter().filter_map(|member| member.link).collect();
        for link in links {
            self.hub.send(link, frame);
        }
    }

    /// Does what there is to do; never blocks.
    pub fn work(&mut self) -> VecDeque<News> {
        // Before anybody is blamed for what follows from it.
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
                Ok(Some(frame)) => self.hear(link, frame),
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

    fn hear(&mut self, link: LinkId, frame: Up) {
        let role = self.roles.get(&link).copied().unwrap_or(Role::New);
        if let Role::Daemon(host) = role
            && let Some(duty) = self.observer.heard(host)
        {
            self.observed_here(duty);
        }
        match (role, frame) {
            // Who is below it finds another way.
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
            // A beat was taken note of above. What makes no sense comes from nobody we know.
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
        let is_for_root = !matches!(message, Ok(FromDaemon::HostFailed { .. } | FromDaemon::Observed { .. }) | Err(_));
        self.ledger.heard(host, body, is_for_root);
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

    /// A host that was given up says something. That it stood still, say, which the user should know.
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
        self.arbiter.attached(host, above.map_or(Who::Root, Who::Host));
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

    /// A connection broke: if the daemon has ended, its host refuses a new one.
    fn ask_for_refusal(&mut self, host: u32) {
        let member = &mut self.members[host as usize];
        let may_ask = member.refusals.may_ask();
        if let Some(attach) = member.attach.as_ref().filter(|_| may_ask) {
            self.hub.dial(host.into(), attach.listen, REFUSAL_TIME_MAX);
        }
    }

    fn dialled(&mut self, host: u32, result: io::Result<LinkId>) {
        match result {
            // It is there, and will come back by itself.
            Ok(link) => {
                self.members[host as usize].refusals.not_refused();
                self.call(host, link);
                self.hub.close(link);
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                if !self.members[host as usize].refusals.refused() {
                    return self.ask_for_refusal(host);
                }
                self.observed(Who::Root, host, Sign::Gone);
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock) => {
                if self.next_tick.is_none() {
                    self.observed(Who::Root, host, Sign::Gone);
                }
            }
            Err(_) => self.ask_for_refusal(host),
        }
    }

    /// Waits for the daemons to leave, and helps them. `keeps_sessions`: as in [`ToDaemon::Shutdown`].
    pub fn end(&mut self, keeps_sessions: bool) {
        // Those that have been told already are leaving. Others may have a lease, and would wait for another root.
        self.send_all(&ToDaemon::Shutdown { keeps_sessions });
        let members = &self.members;
        let is_dead = |starting: &Starting| starting.host.is_some_and(|host| members[host as usize].dead);
        // The launcher of a dead host may wait for it for ever.
        let (mut dead, mut alive): (Vec<_>, Vec<_>) = self.starting.drain(..).partition(is_dead);
        launcher::end(&mut dead, Duration::ZERO, || {});
        if self.term > Term::default() {
            self.end_launchers(false);
            self.see_daemons_leave();
            self.end_launchers(true);
        }
        let hub = &mut self.hub;
        // What they were told last may not have gone yet.
        launcher::end(&mut alive, LEAVE_TIME_MAX, || drop(hub.events()));
    }
}

fn encode(message: &ToDaemon) -> Vec<u8> {
    redrt_wire::frame::encode_body(message)
}
