//! This daemon's place in the tree: its uplink to the coordinator, the daemons below, its neighbours in the ring.
//!
//! Messages for `redrun` and time enter; messages from it, or the end, leave. Frames for other hosts are passed on.
//! `redrt_wire::tree` describes broken connections, [`host_watch`] the watching of hosts.

use anyhow::{Context, Result};
use control_network::door;
use control_network::follower::{Follower, Request};
use control_network::hub::{Event, Hub, LinkId};
use control_network::launcher::{self, DaemonArguments, Starting};
use host_watch::shape;
use host_watch::{Arbiter, Duty, Observer, Refusals, TICKS};
use redrt_wire::daemon::{Coordinators, FromDaemon, Growth, Sign, ToDaemon, Watch};
use redrt_wire::frame::{decode_body, encode_body};
use redrt_wire::secret::Secret;
use redrt_wire::tree::{Attach, Down, Term, Up};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tracing::debug;

/// Time to connect to the parent at the start.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(7);
/// Time to connect to the coordinator or a neighbour later.
const DIAL_TIME_MAX: Duration = Duration::from_secs(2);
/// Maximum wait for another coordinator while it is uncertain whether other hosts can have one.
const DOUBT_TIME_MAX: Duration = Duration::from_secs(20);
/// Time for the daemons below to leave.
const CHILDREN_TIME_MAX: Duration = Duration::from_secs(1);
/// Bit of a dial's purpose: the coordinator, beside its term. Without it the purpose has a host's number.
const COORDINATOR: u64 = 1 << 63;
/// Bit of a dial's purpose: only to see whether a child has ended.
const REFUSAL: u64 = 1 << 32;

/// Work for the daemon.
#[derive(Debug)]
pub enum Errand {
    Message(ToDaemon),
    /// The coordinator is in another process now, and listens elsewhere.
    CoordinatorMoved,
    /// No coordinator has come back within the lease: the job is over.
    LeaseOver(String),
    /// The job is over for this host. `None` for a regular end, else the reason.
    Leave(Option<String>),
}

/// The other end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Role {
    New,
    Uplink,
    Child(u32),
    /// The next or previous daemon of the ring.
    Neighbour(u32),
}

/// Place in the tree: see the module.
pub struct Post {
    place: DaemonArguments,
    hub: Hub,
    name: String,
    roles: BTreeMap<LinkId, Role>,
    uplink: Option<LinkId>,
    follower: Follower,
    coordinators: Coordinators,
    /// True once processes are launched: they may go on without a coordinator.
    is_launched: bool,
    /// True while the coordinator is gone, and is expected to call when it is back.
    awaits_call: bool,
    /// Time since which no coordinator was heard, if it is gone or may be lost with its host.
    without_coordinator_since: Option<Instant>,
    looking_for_coordinator: bool,
    looking_for_neighbour: Option<u32>,
    /// Addresses of the daemons below.
    listen: BTreeMap<u32, SocketAddr>,
    refusals: BTreeMap<u32, Refusals>,
    coordinator_refusals: Refusals,
    starting: Vec<Starting>,
    watch: Option<Watch>,
    observer: Observer,
    next_tick: Option<Instant>,
    errands: VecDeque<Errand>,
}

impl Post {
    pub fn take(place: DaemonArguments, name: String, secret: &Secret) -> Result<Self> {
        let what = if place.parent == place.coordinator { "redrun" } else { "the daemon above" };
        let opened = door::dial(place.parent, secret, CONNECT_TIME_MAX)
            .with_context(|| format!("Failed to connect to {what} at {}", place.parent))?;
        let own = match &place.interface {
            Some(interface) => host_addresses::address(interface)?,
            None => opened.stream.local_addr()?.ip(),
        };
        let mut hub = Hub::new((own, 0).into(), secret.clone())?;
        let uplink = hub.adopt(opened)?;
        let mut post = Self {
            hub,
            name,
            roles: BTreeMap::from([(uplink, Role::Uplink)]),
            uplink: Some(uplink),
            follower: Follower::default(),
            coordinators: if place.has_several_coordinators { Coordinators::Several } else { Coordinators::One },
            is_launched: false,
            awaits_call: false,
            without_coordinator_since: None,
            looking_for_coordinator: false,
            looking_for_neighbour: None,
            listen: BTreeMap::new(),
            refusals: BTreeMap::new(),
            coordinator_refusals: Refusals::default(),
            starting: Vec::new(),
            watch: None,
            observer: Observer::new(true),
            next_tick: None,
            errands: VecDeque::new(),
            place,
        };
        post.attach();
        Ok(post)
    }

    pub fn host(&self) -> u32 {
        self.place.host.expect("the number was found out before the daemon took its post")
    }

    pub fn secret(&self) -> &Secret {
        self.hub.secret()
    }

    /// Address on which the coordinator listens.
    pub fn coordinator(&self) -> SocketAddr {
        self.place.coordinator
    }

    /// This host's address for other hosts.
    pub fn address(&self) -> IpAddr {
        self.hub.address().ip()
    }

    /// Readable when [`Post::work`] has work.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.hub.fd()
    }

    /// Time at which [`Post::work`] must be called even without an event.
    pub fn next_deadline(&self) -> Option<Instant> {
        let soon =
            (!self.starting.is_empty() && self.watch.is_none()).then(|| Instant::now() + Duration::from_millis(50));
        [soon, self.next_tick, self.lease_end()].into_iter().flatten().min()
    }

    /// Time at which the processes are ended unless a coordinator comes back.
    fn lease_end(&self) -> Option<Instant> {
        self.without_coordinator_since.map(|since| since + self.lease())
    }

    /// Time for which processes go on without a coordinator.
    fn lease(&self) -> Duration {
        match self.coordinators {
            Coordinators::Becoming if !self.awaits_call => self.place.coordinator_lease.min(DOUBT_TIME_MAX),
            _ => self.place.coordinator_lease,
        }
    }

    /// Bytes on their way to the coordinator.
    pub fn backlog_bytes(&self) -> usize {
        let waiting = self.uplink.map_or(0, |uplink| self.hub.backlog_bytes(uplink));
        waiting.max(self.follower.log_bytes())
    }

    /// Sends to `redrun`, or keeps the message until there is a way.
    pub fn send(&mut self, message: &FromDaemon) {
        let body: Rc<[u8]> = encode_body(message).into();
        let (number, is_sent) = self.follower.say(body.clone());
        if is_sent {
            self.up(&Up::Message { host: self.host(), number, body: body.to_vec() });
        }
    }

    fn up(&mut self, frame: &Up) {
        if let Some(uplink) = self.uplink {
            self.hub.send(uplink, frame);
        }
    }

    fn attach(&mut self) {
        let Request { attachment, term, received } = self.follower.request();
        let attach = Attach {
            host: self.host(),
            attachment,
            term,
            received,
            version: env!("CARGO_PKG_VERSION").into(),
            name: self.name.clone(),
            cpu_count: std::thread::available_parallelism().map_or(1, |count| count.get() as u32),
            listen: self.hub.address(),
        };
        self.up(&Up::Attach(Box::new(attach)));
    }

    /// Handles all pending events; never blocks.
    pub fn work(&mut self) -> VecDeque<Errand> {
        for event in self.hub.events() {
            match event {
                Event::Accepted(link, _) => drop(self.roles.insert(link, Role::New)),
                Event::Refused(refusal) => self.send(&FromDaemon::Note(format!("{} {refusal}", self.name))),
                Event::Readable(link) => self.read(link),
                Event::Closed(link) => {
                    self.read(link);
                    self.lose_link(link);
                }
                Event::Dialled { purpose, result } => self.dialled(purpose, result),
            }
        }
        if self.watch.is_none() {
            self.check_children();
        }
        if self.next_tick.is_some_and(|at| at <= Instant::now()) {
            self.tick();
        }
        if self.lease_end().is_some_and(|at| at <= Instant::now()) {
            let lease = self.lease().as_secs_f64();
            let reason = match self.awaits_call {
                true => format!("the coordinator of the job was killed, and none has come back within {lease} s"),
                false => format!("the coordinator of the job was not heard, and none has come back within {lease} s"),
            };
            self.errands.push_back(Errand::LeaseOver(reason));
        }
        std::mem::take(&mut self.errands)
    }

    fn read(&mut self, link: LinkId) {
        loop {
            let role = self.roles.get(&link).copied();
            let read = match role {
                None => return,
                Some(Role::Uplink) => {
                    self.hub.next_message(link).map(|frame| frame.map(|frame| self.handle_above(frame)))
                }
                Some(role) => {
                    self.hub.next_message(link).map(|frame| frame.map(|frame| self.handle_other(link, role, frame)))
                }
            };
            match read {
                Ok(Some(())) => {}
                Ok(None) => return,
                Err(_) => return self.lose_link(link),
            }
        }
    }

    fn handle_above(&mut self, frame: Down) {
        self.observer.heard_coordinator();
        let own = self.host();
        match frame {
            Down::Message { to, body } => {
                if to != Some(own) {
                    self.pass(to, &Down::Message { to, body: body.clone() });
                }
                if to.is_none_or(|to| to == own) && self.follower.is_heard() {
                    self.message(&body);
                }
            }
            Down::Attached { host, attachment, term, received } if host == own => {
                if let Some(missing) = self.follower.attached(attachment, term, received) {
                    self.without_coordinator_since = None;
                    for (number, body) in missing {
                        self.up(&Up::Message { host: own, number, body: body.to_vec() });
                    }
                }
            }
            Down::Taken { host, count } if host == own => self.follower.taken(count),
            Down::Stop { host, reason } if host == own => self.errands.push_back(Errand::Leave(Some(reason))),
            Down::Resync => {
                self.follower.asks_again();
                self.attach();
                self.pass(None, &Down::Resync);
            }
            Down::Beat { .. } => {
                // A beat shows that the coordinator was there all the time.
                self.without_coordinator_since.take_if(|_| !self.awaits_call);
                self.pass(None, &frame);
            }
            Down::Attached { host, .. } | Down::Taken { host, .. } | Down::Stop { host, .. } => {
                self.pass(Some(host), &frame);
            }
            Down::Answer(_) => {}
        }
    }

    fn message(&mut self, body: &[u8]) {
        if let Some(count) = self.follower.count(body.len()) {
            let host = self.host();
            self.up(&Up::Taken { host, count });
        }
        match decode_body::<ToDaemon>(body) {
            Ok(message @ ToDaemon::Launch(_)) => {
                self.is_launched = true;
                self.errands.push_back(Errand::Message(message));
            }
            Ok(ToDaemon::Grow(growth)) => self.grow(&growth),
            Ok(ToDaemon::Watch(watch)) => self.watch(watch),
            Ok(ToDaemon::Coordinators(coordinators)) => {
                self.coordinators = coordinators;
                // The coordinator waits for all acknowledgements of this.
                self.acknowledge();
            }
            Ok(ToDaemon::Probe { host }) => {
                if let Some(sign) = self.observer.sign(host) {
                    self.send(&FromDaemon::Observed { host, sign });
                }
            }
            Ok(message) => self.errands.push_back(Errand::Message(message)),
            Err(error) => {
                self.errands.push_back(Errand::Leave(Some(format!("redrun sent what cannot be read: {error}"))))
            }
        }
    }

    /// Acknowledges messages of the coordinator.
    fn acknowledge(&mut self) {
        if let Some(count) = self.follower.untold() {
            let host = self.host();
            self.up(&Up::Taken { host, count });
        }
    }

    /// Passes a frame down to a host, or to all.
    fn pass(&mut self, to: Option<u32>, frame: &Down) {
        let children = self.roles.iter().filter_map(|(link, role)| match role {
            Role::Child(child) => Some((*link, *child)),
            _ => None,
        });
        let fan_out = self.place.fan_out;
        let below = children.filter(|(_, child)| to.is_none_or(|to| shape::is_below(to, *child, fan_out)));
        let links: Vec<_> = below.map(|(link, _)| link).collect();
        for link in links {
            self.hub.send(link, frame);
        }
    }

    fn handle_other(&mut self, link: LinkId, role: Role, frame: Up) {
        if let Role::Child(host) | Role::Neighbour(host) = role
            && let Some(duty) = self.observer.heard(host)
        {
            self.fulfil(duty);
        }
        match (role, frame) {
            (Role::New, Up::Neighbour { host }) => drop(self.roles.insert(link, Role::Neighbour(host))),
            (Role::New | Role::Child(_), Up::Attach(attach)) => {
                if role == Role::New {
                    self.listen.insert(attach.host, attach.listen);
                    self.roles.insert(link, Role::Child(attach.host));
                    self.rewatch();
                }
                self.up(&Up::Attach(attach));
            }
            (Role::Child(_), frame @ (Up::Message { .. } | Up::Taken { .. })) => self.up(&frame),
            (Role::New, Up::Ask(_)) => {
                self.roles.remove(&link);
                let coordinator = self.place.coordinator;
                self.hub.send(link, &Down::Answer(format!("redirect {coordinator}")));
                self.hub.close(link);
            }
            (Role::New, Up::Call { term, address }) => {
                self.roles.remove(&link);
                self.hub.close(link);
                self.called(term, address);
            }
            // Beats were counted above. Other frames do not fit the role: no sound daemon sends them.
            _ => {}
        }
    }

    /// Follows a coordinator that has called from a new address.
    fn called(&mut self, term: Term, address: SocketAddr) {
        if !self.follower.called(term) {
            return;
        }
        self.place.coordinator = address;
        self.errands.push_back(Errand::CoordinatorMoved);
        if let Some(old) = self.uplink.take() {
            // Tells an old coordinator that still lives; a daemon above ignores it.
            self.hub.send(old, &Up::Replaced { by: term });
            self.roles.remove(&old);
            self.hub.close(old);
        }
        (self.awaits_call, self.looking_for_coordinator) = (false, false);
        self.coordinator_refusals.begin();
        self.find_coordinator();
    }

    fn lose_link(&mut self, link: LinkId) {
        self.hub.close(link);
        match self.roles.remove(&link) {
            Some(Role::Uplink) => {
                self.uplink = None;
                self.follower.way_lost();
                self.coordinator_refusals.begin();
                self.find_coordinator();
            }
            Some(Role::Child(host)) => {
                self.rewatch();
                self.send(&FromDaemon::Observed { host, sign: Sign::Parted });
                self.refusals.entry(host).or_default().begin();
                self.ask_for_refusal(host);
            }
            Some(Role::Neighbour(host)) => self.dial_neighbour(host),
            Some(Role::New) | None => {}
        }
    }

    /// Connects to the coordinator directly, unless the coordinator is gone and is expected to call.
    fn find_coordinator(&mut self) {
        if self.awaits_call || self.looking_for_coordinator {
            return;
        }
        if !self.coordinator_refusals.may_ask() {
            return self.lose_coordinator();
        }
        self.looking_for_coordinator = true;
        self.hub.dial(COORDINATOR | self.follower.term().0, self.place.coordinator, DIAL_TIME_MAX);
    }

    /// Handles the loss of the coordinator: without a lease the daemon leaves.
    fn lose_coordinator(&mut self) {
        if !self.has_lease() {
            return self.errands.push_back(Errand::Leave(None));
        }
        debug!(target: "redrtd", "the coordinator is gone: processes go on until it comes back");
        self.awaits_call = true;
        self.without_coordinator_since.get_or_insert_with(Instant::now);
    }

    /// True if processes may go on without a coordinator.
    fn has_lease(&self) -> bool {
        self.is_launched && !self.place.coordinator_lease.is_zero()
    }

    /// True if silence of the coordinator is no reason to leave.
    fn outlives_silence(&self) -> bool {
        self.without_coordinator_since.is_some() || self.has_lease() && self.coordinators != Coordinators::One
    }

    fn begin_search(&mut self) {
        self.coordinator_refusals.begin();
        self.find_coordinator();
    }

    /// Dials a daemon below whose connection broke: a refusal shows that it has ended.
    fn ask_for_refusal(&mut self, host: u32) {
        if self.refusals.entry(host).or_default().may_ask()
            && let Some(address) = self.listen.get(&host)
        {
            self.hub.dial(REFUSAL | u64::from(host), *address, DIAL_TIME_MAX);
        }
    }

    fn dialled(&mut self, purpose: u64, result: io::Result<LinkId>) {
        if purpose & COORDINATOR != 0 {
            // A coordinator with a higher term may have called meanwhile from another address.
            return match (purpose == COORDINATOR | self.follower.term().0, result) {
                (true, result) => self.dialled_coordinator(result),
                (false, Ok(link)) => self.hub.close(link),
                (false, Err(_)) => {}
            };
        }
        let host = purpose as u32;
        if purpose & REFUSAL == 0 {
            self.looking_for_neighbour.take_if(|looked_for| *looked_for == host);
        }
        let refused = matches!(&result, Err(error) if error.kind() == io::ErrorKind::ConnectionRefused);
        if refused {
            if !self.refusals.entry(host).or_default().refused() {
                return if purpose & REFUSAL != 0 { self.ask_for_refusal(host) } else { self.dial_neighbour(host) };
            }
            return self.send(&FromDaemon::Observed { host, sign: Sign::Gone });
        }
        self.refusals.entry(host).or_default().not_refused();
        match result {
            // The daemon lives, and attaches to the coordinator by itself.
            Ok(link) if purpose & REFUSAL != 0 => self.hub.close(link),
            // The ring has changed meanwhile.
            Ok(link) if self.next_neighbour() != Some(host) => self.hub.close(link),
            Ok(link) => {
                self.roles.insert(link, Role::Neighbour(host));
                let own = self.host();
                self.hub.send(link, &Up::Neighbour { host: own });
                self.hub.send(link, &Up::Beat);
            }
            Err(error) if purpose & REFUSAL != 0 && !is_timeout(&error) => self.ask_for_refusal(host),
            // The next tick tries again.
            Err(_) => {}
        }
    }

    fn dialled_coordinator(&mut self, result: io::Result<LinkId>) {
        self.looking_for_coordinator = false;
        match result {
            Ok(link) => {
                self.coordinator_refusals.not_refused();
                if let Some(old) = self.uplink.replace(link) {
                    self.roles.remove(&old);
                    self.hub.close(old);
                }
                self.roles.insert(link, Role::Uplink);
                self.follower.asks_again();
                self.attach();
                self.pass(None, &Down::Resync);
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused && self.is_tried_again() => {
                match self.coordinator_refusals.refused() {
                    true => self.lose_coordinator(),
                    false => self.find_coordinator(),
                }
            }
            Err(_) if self.watch.is_none() && self.has_lease() => self.find_coordinator(),
            Err(_) if self.watch.is_none() => self.errands.push_back(Errand::Leave(None)),
            // Dialling is repeated while the coordinator is silent, until the lease ends.
            Err(_) => {}
        }
    }

    /// True if one refusal does not prove that the coordinator is gone.
    fn is_tried_again(&self) -> bool {
        self.watch.is_some() || self.has_lease()
    }

    fn grow(&mut self, growth: &Growth) {
        let remote = &growth.remote;
        for (host, name) in &growth.hosts {
            let place = DaemonArguments {
                host: Some(*host),
                parent: self.hub.address(),
                coordinator: remote.coordinator,
                fan_out: self.place.fan_out,
                interface: remote.interface.clone(),
                coordinator_lease: Duration::from_millis(remote.coordinator_lease_ms),
                has_several_coordinators: remote.has_several_coordinators,
            };
            match launcher::remote(remote, name, &place, self.hub.secret()) {
                Ok(starting) => self.starting.push(starting),
                Err(error) => self.send(&FromDaemon::HostFailed { host: *host, message: format!("{error:#}") }),
            }
        }
    }

    fn check_children(&mut self) {
        let has_attached = |host: Option<u32>| host.is_some_and(|host| self.listen.contains_key(&host));
        let mut failed = Vec::new();
        self.starting.retain_mut(|starting| {
            let ended = if has_attached(starting.host) { None } else { starting.ended() };
            let (Some(message), Some(host)) = (ended, starting.host) else { return true };
            failed.push((host, message));
            false
        });
        for (host, message) in failed {
            self.send(&FromDaemon::HostFailed { host, message });
        }
    }

    fn watch(&mut self, watch: Watch) {
        let interval = Duration::from_millis(watch.timeout_ms.into()) / TICKS;
        let next = Instant::now() + interval;
        // Keeps an earlier tick: in a ring that changes often, a postponed beat would never be sent.
        self.next_tick = (!interval.is_zero()).then(|| self.next_tick.map_or(next, |before| before.min(next)));
        self.watch = Some(watch);
        self.rewatch();
        if let Some(host) = self.next_neighbour() {
            self.dial_neighbour(host);
        }
    }

    fn ring(&self) -> Vec<u32> {
        self.watch.iter().flat_map(|watch| watch.ring.iter().map(|(host, _)| *host)).collect()
    }

    /// The neighbour that this daemon dials: the next one. In a ring of two, where both have the same neighbour, the
    /// lower dials.
    fn next_neighbour(&self) -> Option<u32> {
        let ring = self.ring();
        let at = ring.iter().position(|host| *host == self.host())?;
        let next = ring[(at + 1) % ring.len()];
        (next != self.host() && (ring.len() > 2 || self.host() < next)).then_some(next)
    }

    fn dial_neighbour(&mut self, host: u32) {
        let is_connected = self.roles.values().any(|role| *role == Role::Neighbour(host));
        if is_connected || self.looking_for_neighbour == Some(host) || self.next_neighbour() != Some(host) {
            return;
        }
        let address = self.watch.iter().flat_map(|watch| &watch.ring).find(|(other, _)| *other == host);
        if let Some((_, address)) = address {
            // An earlier dial may be under way, to a former neighbour that does not answer for long.
            self.looking_for_neighbour = Some(host);
            self.hub.dial(host.into(), *address, DIAL_TIME_MAX);
        }
    }

    fn rewatch(&mut self) {
        if self.watch.is_none() {
            return;
        }
        let ring = self.ring();
        let children = self.roles.values().filter_map(|role| match role {
            Role::Child(host) if ring.contains(host) => Some(*host),
            _ => None,
        });
        self.observer.watch(Arbiter::neighbours(&ring, self.host()), children);
    }

    fn tick(&mut self) {
        let Some(watch) = &self.watch else { return };
        let timeout = Duration::from_millis(watch.timeout_ms.into());
        // `redrun` reads the note even after it has given this host up: then it is the explanation.
        if let Some(late) = self.next_tick.map(|at| at.elapsed()).filter(|late| *late > timeout / 2) {
            let late = late.as_secs_f64();
            let note = format!("the daemon on {} stood still for {late:.2} s", self.name);
            self.send(&FromDaemon::Note(note));
        }
        // Counts from now, however late it is: time in which this process did not run is no silence of others.
        self.next_tick = Some(Instant::now() + timeout / TICKS);
        let others = self.roles.iter().filter(|(_, role)| matches!(role, Role::Uplink | Role::Neighbour(_)));
        let others: Vec<_> = others.map(|(link, _)| *link).collect();
        for link in others {
            self.hub.send(link, &Up::Beat);
        }
        self.acknowledge();
        for duty in self.observer.tick() {
            self.fulfil(duty);
        }
        if let Some(host) = self.next_neighbour() {
            self.dial_neighbour(host);
        }
    }

    fn fulfil(&mut self, duty: Duty) {
        match duty {
            Duty::Report(host, sign) => self.send(&FromDaemon::Observed { host, sign }),
            Duty::FindWay => self.begin_search(),
            // Either the host of the coordinator is lost, and the next coordinator calls, or a way to it is found
            // again.
            Duty::Leave if self.outlives_silence() => {
                self.without_coordinator_since.get_or_insert_with(Instant::now);
            }
            Duty::Leave => {
                let reason = "cut off from redrun: this side of the network stops".to_owned();
                self.errands.push_back(Errand::Leave(Some(reason)));
            }
        }
    }

    /// Waits for the daemons below to leave: they have had the order by now.
    pub fn end(&mut self) {
        let hub = &mut self.hub;
        launcher::end(&mut self.starting, CHILDREN_TIME_MAX, || drop(hub.events()));
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock)
}
