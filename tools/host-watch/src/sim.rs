//! Simulation of a network of observers and an arbiter on one thread, from a seed: hosts die, parts of the network are
//! cut off and come back, daemons stand still for a while. Time is counted in ticks. Beats take no time, or are lost in
//! a cut; messages between observers and `redrun`, and new connections to a neighbour or to the coordinator, take a
//! random time. Daemons form a tree, so a silent daemon stops beats and messages of those below, until they have found
//! a connection of their own.
//!
//! Invariants: a dead host is found within the timeout, or within one for each level of the tree that dies with it; a
//! daemon that is cut off from the coordinator for so long has left; no host counts as dead that was not dead, cut off
//! or stopped.

use super::*;
use crate::shape;
use redrt_wire::daemon::Sign;
use simulation_kit::{Named, Nothing, Random, Setup, Simulator, Trace, Violation};
use std::collections::BTreeMap;

/// Attachment of a daemon.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Uplink {
    /// To the daemon above in the tree.
    Tree,
    Coordinator,
    /// A connection to the coordinator is being made; it is ready at this tick.
    Dialling(u32),
}

struct RingDaemon {
    observer: Observer,
    ring: Vec<u32>,
    uplink: Uplink,
    alive: bool,
    /// True on the coordinator's side of the network.
    reachable: bool,
    stopped_for: u32,
    left: bool,
}

#[derive(Clone)]
enum Message {
    /// Observer, observed host, sign.
    Observed(u32, u32, Sign),
    Probe(u32, u32),
    /// A daemon learns the living hosts.
    Watch(u32, Vec<u32>),
}

/// Maximum delays, in ticks.
#[derive(Clone, Copy, Default)]
struct Delays {
    message: u32,
    connecting: u32,
}

/// The network. Messages without a path wait for one.
struct Network {
    random: Random,
    now: u32,
    fan_out: u32,
    delays: Delays,
    /// Messages under way, with their ticks of arrival.
    under_way: Vec<(u32, Message)>,
    /// Pairs of connected neighbours, the lower first, with the tick from which they are connected.
    connections: BTreeMap<(u32, u32), u32>,
    daemons: Vec<RingDaemon>,
    coordinator: Observer,
    arbiter: Arbiter,
    dead: Vec<u32>,
    trace: Trace,
}

impl Network {
    /// All daemons are attached to the coordinator, and connected at once.
    fn flat(seed: u64, trace: Trace) -> Self {
        let count = host_count(seed);
        Self::new(seed, (count, count), Delays::default(), trace)
    }

    /// State just after the daemons were told of each other.
    fn new(seed: u64, (count, fan_out): (u32, u32), delays: Delays, trace: Trace) -> Self {
        let ring: Vec<_> = (0..count).collect();
        let daemon = |_| {
            let (observer, uplink) = (Observer::new(true), Uplink::Tree);
            RingDaemon {
                observer,
                ring: ring.clone(),
                uplink,
                alive: true,
                reachable: true,
                stopped_for: 0,
                left: false,
            }
        };
        let mut arbiter = Arbiter::new(ring.clone());
        for host in 0..count {
            arbiter.attached(host, shape::parent(host, fan_out).map_or(Who::Coordinator, Who::Host));
        }
        let daemons = ring.iter().map(daemon).collect();
        let (under_way, connections, dead) = (Vec::new(), BTreeMap::new(), Vec::new());
        let (random, coordinator) = (Random::new(seed), Observer::new(false));
        let mut network = Self {
            random,
            now: 0,
            fan_out,
            delays,
            under_way,
            connections,
            daemons,
            coordinator,
            arbiter,
            dead,
            trace,
        };
        for host in ring {
            network.rewatch(host);
            network.connect(host);
        }
        network.rewatch_coordinator();
        network
    }

    fn say(&self, what: impl FnOnce() -> String) {
        self.trace.say(|| format!("{:>5}  {}", self.now, what()));
    }

    fn daemon(&mut self, host: u32) -> &mut RingDaemon {
        &mut self.daemons[host as usize]
    }

    fn hosts(&self) -> std::ops::Range<u32> {
        0..self.daemons.len() as u32
    }

    fn exists(&self, host: u32) -> bool {
        let daemon = &self.daemons[host as usize];
        daemon.alive && !daemon.left
    }

    fn runs(&self, host: u32) -> bool {
        self.exists(host) && self.daemons[host as usize].stopped_for == 0
    }

    /// The daemon above, while this daemon is attached to it.
    fn parent(&self, host: u32) -> Option<u32> {
        let is_below = self.daemons[host as usize].uplink == Uplink::Tree;
        shape::parent(host, self.fan_out).filter(|_| is_below)
    }

    fn see_each_other(&self, one: u32, other: u32) -> bool {
        self.daemons[one as usize].reachable == self.daemons[other as usize].reachable
    }

    /// True if messages between the coordinator and a daemon pass all daemons on the path.
    fn has_way(&self, host: u32) -> bool {
        match self.parent(host) {
            Some(parent) => self.runs(parent) && self.see_each_other(host, parent) && self.has_way(parent),
            None => {
                let daemon = &self.daemons[host as usize];
                daemon.reachable && !matches!(daemon.uplink, Uplink::Dialling(_))
            }
        }
    }

    fn rewatch(&mut self, host: u32) {
        let ring = self.daemons[host as usize].ring.clone();
        // A host without power closes no connection, so only daemons that left are seen.
        let is_below = |other: &u32| self.parent(*other) == Some(host) && !self.daemons[*other as usize].left;
        let below: Vec<_> = ring.iter().copied().filter(is_below).collect();
        self.daemon(host).observer.watch(Arbiter::neighbours(&ring, host), below);
    }

    fn rewatch_coordinator(&mut self) {
        self.coordinator.watch([], self.arbiter.below_coordinator());
    }

    /// Connects a daemon to its neighbours, after a delay.
    fn connect(&mut self, host: u32) {
        for other in Arbiter::neighbours(&self.daemons[host as usize].ring, host) {
            let since = self.now + self.random.below(self.delays.connecting as usize + 1) as u32;
            self.connections.entry((host.min(other), host.max(other))).or_insert(since);
        }
    }

    fn connected(&self, one: u32, other: u32) -> bool {
        let since = self.connections.get(&(one.min(other), one.max(other)));
        since.is_some_and(|since| *since <= self.now) && self.see_each_other(one, other)
    }

    fn send(&mut self, message: Message) {
        let due = self.now + self.random.below(self.delays.message as usize + 1) as u32;
        self.under_way.push((due, message));
    }

    /// One tick: every running daemon beats, due messages arrive; then every observer's tick.
    fn tick(&mut self) {
        self.now += 1;
        for host in self.hosts() {
            let daemon = self.daemon(host);
            daemon.stopped_for = daemon.stopped_for.saturating_sub(1);
        }
        self.hosts().for_each(|host| self.dialled(host));
        let running: Vec<_> = self.hosts().filter(|host| self.runs(*host)).collect();
        running.iter().for_each(|host| self.beat(*host));
        for host in self.hosts() {
            if self.has_way(host) && !self.dead.contains(&host) {
                self.daemon(host).observer.heard_coordinator();
            }
        }
        self.deliver();
        for host in running {
            for duty in self.daemon(host).observer.tick() {
                self.fulfil(Who::Host(host), duty);
            }
        }
        self.coordinator.tick().into_iter().for_each(|duty| self.fulfil(Who::Coordinator, duty));
        self.deliver();
        let reachable: Vec<_> = self.hosts().map(|host| self.has_way(host)).collect();
        let verdicts = self.arbiter.tick(|host| reachable[host as usize]);
        self.carry_out(verdicts);
        self.deliver();
    }

    /// Beats to the neighbours, and to the daemon above.
    fn beat(&mut self, host: u32) {
        let mut others = Arbiter::neighbours(&self.daemons[host as usize].ring, host);
        others.retain(|other| self.connected(host, *other));
        match self.parent(host) {
            Some(parent) if self.see_each_other(host, parent) => others.push(parent),
            Some(_) => {}
            None if self.has_way(host) => {
                let duty = self.coordinator.heard(host);
                duty.into_iter().for_each(|duty| self.fulfil(Who::Coordinator, duty));
            }
            None => {}
        }
        for other in others.into_iter().filter(|other| self.exists(*other)).collect::<Vec<_>>() {
            let duty = self.daemon(other).observer.heard(host);
            duty.into_iter().for_each(|duty| self.fulfil(Who::Host(other), duty));
        }
    }

    /// Completes a connection to the coordinator that is due.
    fn dialled(&mut self, host: u32) {
        let Uplink::Dialling(due) = self.daemons[host as usize].uplink else { return };
        if due > self.now || !self.runs(host) || !self.daemons[host as usize].reachable {
            return;
        }
        self.daemon(host).uplink = Uplink::Coordinator;
        if !self.dead.contains(&host) {
            self.arbiter.attached(host, Who::Coordinator);
            self.rewatch_coordinator();
        }
    }

    fn find_way(&mut self, host: u32) {
        let above = match self.daemons[host as usize].uplink {
            Uplink::Dialling(_) => return,
            Uplink::Coordinator => None,
            Uplink::Tree => self.parent(host),
        };
        let due = self.now + 1 + self.random.below(self.delays.message as usize + 1) as u32;
        self.daemon(host).uplink = Uplink::Dialling(due);
        // The daemon above sees the end of the connection.
        if let Some(above) = above.filter(|above| self.exists(*above) && self.see_each_other(host, *above)) {
            self.rewatch(above);
            self.send(Message::Observed(above, host, Sign::Parted));
        }
    }

    fn fulfil(&mut self, by: Who, duty: Duty) {
        self.say(|| format!("{by:?}  {duty:?}"));
        match (by, duty) {
            (Who::Host(host), Duty::Leave) => self.daemon(host).left = true,
            (Who::Host(host), Duty::FindWay) => self.find_way(host),
            (Who::Host(host), Duty::Report(other, sign)) => self.send(Message::Observed(host, other, sign)),
            (Who::Coordinator, Duty::Report(other, sign)) => self.observed(Who::Coordinator, other, sign),
            (Who::Coordinator, _) => {}
        }
    }

    /// Delivers due messages, and the immediate consequences.
    fn deliver(&mut self) {
        loop {
            let arrives = |(due, message): &(u32, Message)| {
                let (Message::Observed(host, ..) | Message::Probe(host, _) | Message::Watch(host, _)) = message;
                *due <= self.now && self.runs(*host) && self.has_way(*host)
            };
            let Some(at) = self.under_way.iter().position(arrives) else { return };
            match self.under_way.remove(at).1 {
                Message::Observed(by, host, sign) => self.observed(Who::Host(by), host, sign),
                Message::Probe(by, host) => {
                    if let Some(sign) = self.daemons[by as usize].observer.sign(host) {
                        self.send(Message::Observed(by, host, sign));
                    }
                }
                Message::Watch(host, ring) => {
                    // A later ring may have overtaken this one.
                    if ring.len() < self.daemons[host as usize].ring.len() {
                        self.daemon(host).ring = ring;
                        self.rewatch(host);
                        self.connect(host);
                    }
                }
            }
        }
    }

    fn observed(&mut self, by: Who, host: u32, sign: Sign) {
        let verdicts = self.arbiter.observed(by, host, sign);
        if sign == Sign::Parted {
            self.rewatch_coordinator();
        }
        self.carry_out(verdicts);
    }

    fn carry_out(&mut self, verdicts: Vec<Verdict>) {
        for verdict in verdicts {
            self.say(|| format!("{verdict:?}"));
            match verdict {
                Verdict::Probe(Who::Coordinator, host) => {
                    if let Some(sign) = self.coordinator.sign(host) {
                        self.observed(Who::Coordinator, host, sign);
                    }
                }
                Verdict::Probe(Who::Host(by), host) => self.send(Message::Probe(by, host)),
                Verdict::Dead { host, .. } => {
                    self.dead.push(host);
                    self.rewatch_coordinator();
                    let ring = self.arbiter.ring().to_vec();
                    for number in self.hosts() {
                        self.send(Message::Watch(number, ring.clone()));
                    }
                }
            }
        }
    }

    fn ticks(&mut self, count: u32) {
        (0..count).for_each(|_| self.tick());
    }
}

/// Number of hosts, and of daemons below each: the seed counts through them.
fn host_count(seed: u64) -> u32 {
    2 + (seed % 9) as u32
}

fn tree(seed: u64) -> (u32, u32) {
    (host_count(seed), 1 + (seed % 4) as u32)
}

simulation_kit::named! {
    /// The harm of a run.
    pub enum Faults {
        /// Hosts die at once, or within a few ticks.
        Deaths,
        /// Some hosts are cut off from the coordinator.
        Split,
        /// Daemons and links stand still for less than the timeout.
        Silences,
        /// Hosts die beside silences, and messages are slow.
        DeathsBesideSilences,
        /// Hosts die before anybody has heard them.
        EarlyDeaths,
    }
}

/// The simulator of observers and the arbiter.
pub enum HostWatchSimulator {}

impl Simulator for HostWatchSimulator {
    const NAME: &'static str = "host-watch";
    const ABOUT: &'static str = "Heartbeats between hosts: deaths, silences and splits, and who is said to be dead";
    type Faults = Faults;
    type Mistake = Nothing;
    type Shape = ();
    type Summary = String;

    fn run(seed: u64, setup: &Setup<Self>) -> Result<String, Violation> {
        let faults = setup.faults.unwrap_or_else(|| Random::stream(seed, "faults").pick(Faults::ALL));
        let (mut network, mut expected) = match faults {
            Faults::Deaths => deaths(seed, setup.trace)?,
            Faults::Split => split(seed, setup.trace)?,
            Faults::Silences => silences(seed, setup.trace),
            Faults::DeathsBesideSilences => deaths_beside_silences(seed, setup.trace),
            Faults::EarlyDeaths => early_deaths(seed, setup.trace),
        };
        expected.sort_unstable();
        expected.dedup();
        network.dead.sort_unstable();
        if network.dead != expected {
            return Err(format!("{faults:?}: {:?} are said to be dead, {expected:?} are", network.dead).into());
        }
        let has_left = network.daemons.iter().any(|daemon| daemon.left);
        if has_left && matches!(faults, Faults::Deaths | Faults::Silences) {
            return Err(format!("{faults:?}: a daemon has left that the coordinator hears").into());
        }
        Ok(format!("{faults:?}, {} hosts, {} dead", network.daemons.len(), expected.len()))
    }
}

/// A run that has ended, and the hosts that must be said to be dead.
type Ended = (Network, Vec<u32>);

fn deaths(seed: u64, trace: Trace) -> Result<Ended, Violation> {
    let mut network = Network::flat(seed, trace);
    let count = network.daemons.len();
    network.ticks(5);
    let mut victims: Vec<_> =
        (0..1 + network.random.below(count)).map(|_| network.random.below(count) as u32).collect();
    victims.sort_unstable();
    victims.dedup();
    for victim in &victims {
        network.die(*victim);
        let pause = network.random.below(3) as u32;
        network.ticks(pause);
    }
    network.ticks(TICKS);
    Ok((network, victims))
}

fn split(seed: u64, trace: Trace) -> Result<Ended, Violation> {
    let mut network = Network::flat(seed, trace);
    let cut: Vec<_> = network.hosts().filter(|_| network.random.chance(50)).collect();
    network.say(|| format!("{cut:?} are cut off"));
    cut.iter().for_each(|host| network.daemon(*host).reachable = false);
    network.ticks(LEASE_TICKS);
    let left: Vec<_> = network.hosts().filter(|host| network.daemons[*host as usize].left).collect();
    if left != cut {
        return Err(format!("{left:?} have left, {cut:?} are cut off").into());
    }
    network.ticks(TICKS - LEASE_TICKS);
    Ok((network, cut))
}

fn silences(seed: u64, trace: Trace) -> Ended {
    let mut network = Network::new(seed, tree(seed), Delays::default(), trace);
    for _ in 0..40 {
        let host = network.any_host();
        let length = network.random.below(SUSPECT_TICKS as usize - 1) as u32;
        match network.random.below(3) {
            // A daemon, or its whole host, stands still.
            0 => network.stop(host, length),
            // The host's link is cut, and heals.
            1 => {
                network.say(|| format!("{host} is cut off for {length}"));
                network.daemon(host).reachable = false;
                network.ticks(length);
                network.daemon(host).reachable = true;
            }
            _ => {}
        }
        let rest = 1 + network.random.below(5) as u32;
        network.ticks(SUSPECT_TICKS + rest);
    }
    (network, Vec::new())
}

fn deaths_beside_silences(seed: u64, trace: Trace) -> Ended {
    let delays = Delays { message: 1 + (seed % 5) as u32, connecting: 40 };
    let mut network = Network::new(seed, tree(seed), delays, trace);
    let mut victims = Vec::new();
    network.ticks(5);
    for _ in 0..6 {
        for _ in 0..network.random.below(3) {
            let host = network.any_host();
            network.die(host);
            victims.push(host);
            let pause = network.random.below(4) as u32;
            network.ticks(pause);
        }
        let host = network.any_host();
        let length = network.random.below(SUSPECT_TICKS as usize - 1) as u32;
        network.stop(host, length);
        // Two silences without a beat in between would be one.
        let rest = length + 1 + network.random.below(2 * TICKS as usize) as u32;
        network.ticks(rest);
    }
    network.ticks(10 * TICKS);
    (network, victims)
}

fn early_deaths(seed: u64, trace: Trace) -> Ended {
    let delays = Delays { message: (seed % 3) as u32, connecting: 40 };
    let (count, fan_out) = tree(seed);
    let mut network = Network::new(seed, (count, fan_out), delays, trace);
    let victims: Vec<_> = network.hosts().filter(|_| network.random.one_in(4)).collect();
    for victim in &victims {
        // Some had lost their connection to the daemon above, and were connecting to the coordinator.
        if network.random.chance(50) {
            network.find_way(*victim);
        }
        network.die(*victim);
    }
    let levels = std::iter::successors(Some(count - 1), |host| shape::parent(*host, fan_out)).count() as u32;
    network.ticks(levels * (TICKS + 2 * delays.message) + TICKS);
    (network, victims)
}

impl Network {
    fn any_host(&mut self) -> u32 {
        self.random.below(self.daemons.len()) as u32
    }

    fn die(&mut self, host: u32) {
        self.say(|| format!("{host} dies"));
        self.daemon(host).alive = false;
    }

    fn stop(&mut self, host: u32, length: u32) {
        self.say(|| format!("{host} stands still for {length}"));
        self.daemon(host).stopped_for = length;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use simulation_kit::sweep;

    fn right(faults: Faults, count: u64) {
        sweep::right::<HostWatchSimulator>(0..count, &Setup::with(faults));
    }

    #[test]
    fn dead_hosts_are_found_in_time_however_many_die_at_once() {
        right(Faults::Deaths, 300);
    }

    #[test]
    fn the_side_without_the_coordinator_stops_the_other_goes_on() {
        right(Faults::Split, 300);
    }

    #[test]
    fn short_silences_are_no_deaths() {
        right(Faults::Silences, 300);
    }

    #[test]
    fn deaths_beside_silences_and_slow_links_take_no_other_host() {
        right(Faults::DeathsBesideSilences, 2000);
    }

    #[test]
    fn hosts_that_die_before_anybody_has_heard_them_are_found() {
        right(Faults::EarlyDeaths, 2000);
    }
}
