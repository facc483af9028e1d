//! A network of observers and an arbiter on one thread, from a seed: hosts die, parts of the network are cut off and come
//! back, daemons and `redrun` do not run for a while. Time is counted in ticks; beats take no time or are lost with a cut; what
//! observers and `redrun` tell each other, and connecting to a new neighbour, takes a while from the seed.
//!
//! What must hold: a dead host is found within the timeout; a daemon that is cut off from the root for so long has left; nobody
//! who was not dead, cut off or stopped is taken for dead.

use super::*;
use redrt_wire::daemon::Sign;
use std::collections::BTreeMap;

/// splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

struct Daemon {
    observer: Observer,
    ring: Vec<u32>,
    alive: bool,
    /// On the root's side of the network.
    reachable: bool,
    stopped_for: u32,
    left: bool,
}

enum Message {
    Observed(Who, u32, Sign),
    Probe(u32, u32),
    /// A daemon learns who is left.
    Watch(u32, Vec<u32>),
}

/// How long things take at most, in ticks.
#[derive(Clone, Copy, Default)]
struct Delays {
    message: u32,
    connecting: u32,
}

/// What the root has sent to daemons that are stopped or cut off waits in their connections.
struct Network {
    random: Random,
    now: u32,
    delays: Delays,
    /// Under way, with the tick at which it arrives.
    under_way: Vec<(u32, Message)>,
    /// Neighbours, the lower first, and since when they are connected.
    connections: BTreeMap<(u32, u32), u32>,
    daemons: Vec<Daemon>,
    root: Observer,
    arbiter: Arbiter,
    dead: Vec<u32>,
    log: Vec<String>,
}

impl Network {
    fn new(seed: u64, count: u32) -> Self {
        Self::with_delays(seed, count, Delays::default())
    }

    fn with_delays(seed: u64, count: u32, delays: Delays) -> Self {
        let ring: Vec<_> = (0..count).collect();
        let daemon = |host: u32| {
            let mut observer = Observer::new(true);
            observer.watch(Arbiter::neighbours(&ring, host).into_iter());
            Daemon { observer, ring: ring.clone(), alive: true, reachable: true, stopped_for: 0, left: false }
        };
        let mut root = Observer::new(false);
        root.watch(ring.iter().copied());
        let daemons = ring.iter().map(|host| daemon(*host)).collect();
        let arbiter = Arbiter::new(ring.clone());
        let (under_way, connections, dead, log) = (Vec::new(), BTreeMap::new(), Vec::new(), Vec::new());
        let random = Random(seed);
        let mut network = Self { random, now: 0, delays, under_way, connections, daemons, root, arbiter, dead, log };
        // Nobody watches before all are connected.
        for host in ring {
            network.connect(host, 0);
        }
        network
    }

    fn runs(&self, host: u32) -> bool {
        let daemon = &self.daemons[host as usize];
        daemon.alive && !daemon.left && daemon.stopped_for == 0
    }

    /// Connects a daemon to its neighbours, which takes some time.
    fn connect(&mut self, host: u32, time_max: u32) {
        for other in Arbiter::neighbours(&self.daemons[host as usize].ring, host) {
            let since = self.now + self.random.below(u64::from(time_max) + 1) as u32;
            self.connections.entry((host.min(other), host.max(other))).or_insert(since);
        }
    }

    fn connected(&self, one: u32, other: u32) -> bool {
        let since = self.connections.get(&(one.min(other), one.max(other)));
        since.is_some_and(|since| *since <= self.now)
            && self.daemons[one as usize].reachable == self.daemons[other as usize].reachable
    }

    fn send(&mut self, message: Message) {
        let due = self.now + self.random.below(u64::from(self.delays.message) + 1) as u32;
        self.under_way.push((due, message));
    }

    /// One tick: everybody who runs beats, what is under way arrives; then everybody's tick.
    fn tick(&mut self) {
        self.now += 1;
        let count = self.daemons.len() as u32;
        for host in 0..count {
            let daemon = &mut self.daemons[host as usize];
            daemon.stopped_for = daemon.stopped_for.saturating_sub(1);
        }
        for host in (0..count).filter(|host| self.runs(*host)).collect::<Vec<_>>() {
            for other in Arbiter::neighbours(&self.daemons[host as usize].ring.clone(), host) {
                let daemon = &self.daemons[other as usize];
                if daemon.alive && !daemon.left && self.connected(host, other) {
                    let duty = self.daemons[other as usize].observer.heard(host);
                    duty.into_iter().for_each(|duty| self.fulfil(Who::Host(other), duty));
                }
            }
            if self.daemons[host as usize].reachable {
                let duty = self.root.heard(host);
                duty.into_iter().for_each(|duty| self.fulfil(Who::Root, duty));
            }
        }
        for host in 0..count {
            if self.daemons[host as usize].reachable && !self.dead.contains(&host) {
                self.daemons[host as usize].observer.heard_root();
            }
        }
        self.deliver();
        for host in (0..count).filter(|host| self.runs(*host)).collect::<Vec<_>>() {
            for duty in self.daemons[host as usize].observer.tick() {
                self.fulfil(Who::Host(host), duty);
            }
        }
        self.root.tick().into_iter().for_each(|duty| self.fulfil(Who::Root, duty));
        self.deliver();
        let reachable: Vec<_> = self.daemons.iter().map(|daemon| daemon.reachable).collect();
        let verdicts = self.arbiter.tick(|host| reachable[host as usize]);
        self.carry_out(verdicts);
        self.deliver();
    }

    fn fulfil(&mut self, by: Who, duty: Duty) {
        match (by, duty) {
            (Who::Host(host), Duty::Leave) => self.daemons[host as usize].left = true,
            (Who::Host(host), _) if !self.daemons[host as usize].reachable => {}
            (Who::Host(_), Duty::Report(other, sign)) => self.send(Message::Observed(by, other, sign)),
            (Who::Root, Duty::Report(other, sign)) => self.observed(Who::Root, other, sign),
            _ => {}
        }
    }

    /// Hands over all that arrives now, and what follows from it at once.
    fn deliver(&mut self) {
        loop {
            let arrives = |message: &(u32, Message)| {
                message.0 <= self.now
                    && match message.1 {
                        Message::Observed(..) => true,
                        // It waits where the daemon is that does not run.
                        Message::Probe(by, _) => self.daemons[by as usize].stopped_for == 0,
                        Message::Watch(host, _) => self.daemons[host as usize].stopped_for == 0,
                    }
            };
            let Some(at) = self.under_way.iter().position(arrives) else { return };
            match self.under_way.remove(at).1 {
                Message::Observed(by, host, sign) => self.observed(by, host, sign),
                Message::Probe(by, host) => {
                    let daemon = &self.daemons[by as usize];
                    if self.runs(by)
                        && daemon.reachable
                        && let Some(sign) = daemon.observer.sign(host)
                    {
                        self.send(Message::Observed(Who::Host(by), host, sign));
                    }
                }
                Message::Watch(host, ring) => {
                    let daemon = &mut self.daemons[host as usize];
                    // A later ring has overtaken this one.
                    if ring.len() < daemon.ring.len() {
                        daemon.observer.watch(Arbiter::neighbours(&ring, host).into_iter());
                        daemon.ring = ring;
                        self.connect(host, self.delays.connecting);
                    }
                }
            }
        }
    }

    fn observed(&mut self, by: Who, host: u32, sign: Sign) {
        let verdicts = self.arbiter.observed(by, host, sign, Who::Root);
        self.carry_out(verdicts);
    }

    fn carry_out(&mut self, verdicts: Vec<Verdict>) {
        for verdict in verdicts {
            self.log.push(format!("{}: {verdict:?}", self.now));
            match verdict {
                Verdict::Probe(Who::Root, host) => {
                    if let Some(sign) = self.root.sign(host) {
                        self.observed(Who::Root, host, sign);
                    }
                }
                Verdict::Probe(Who::Host(by), host) => self.send(Message::Probe(by, host)),
                Verdict::Dead { host, .. } => {
                    self.dead.push(host);
                    let ring = self.arbiter.ring().to_vec();
                    self.root.watch(ring.iter().copied());
                    for number in 0..self.daemons.len() as u32 {
                        if self.daemons[number as usize].reachable {
                            self.send(Message::Watch(number, ring.clone()));
                        }
                    }
                }
            }
        }
    }

    fn ticks(&mut self, count: u32) {
        (0..count).for_each(|_| self.tick());
    }
}

#[test]
fn dead_hosts_are_found_in_time_however_many_die_at_once() {
    for seed in 0..300 {
        let mut network = Network::new(seed, 2 + (seed % 9) as u32);
        let count = network.daemons.len() as u64;
        network.ticks(5);
        let mut victims: Vec<u32> =
            (0..1 + network.random.below(count)).map(|_| network.random.below(count) as u32).collect();
        victims.sort_unstable();
        victims.dedup();
        for victim in &victims {
            network.daemons[*victim as usize].alive = false;
            let pause = network.random.below(3) as u32;
            network.ticks(pause);
        }
        network.ticks(TICKS);
        network.dead.sort_unstable();
        assert_eq!(network.dead, victims, "seed {seed}: {:?}", network.log);
        assert!(network.daemons.iter().all(|daemon| !daemon.left), "seed {seed}");
    }
}

#[test]
fn the_side_without_the_root_stops_itself_and_the_other_goes_on() {
    for seed in 0..300 {
        let mut network = Network::new(seed, 2 + (seed % 9) as u32);
        let count = network.daemons.len() as u64;
        let cut: Vec<u32> = (0..count as u32).filter(|_| network.random.below(2) == 0).collect();
        cut.iter().for_each(|host| network.daemons[*host as usize].reachable = false);
        network.ticks(LEASE_TICKS);
        let left: Vec<u32> = (0..count as u32).filter(|host| network.daemons[*host as usize].left).collect();
        assert_eq!(left, cut, "seed {seed}");
        network.ticks(TICKS - LEASE_TICKS);
        network.dead.sort_unstable();
        assert_eq!(network.dead, cut, "seed {seed}: {:?}", network.log);
    }
}

#[test]
fn short_silences_are_no_deaths() {
    for seed in 0..300 {
        let mut network = Network::new(seed, 2 + (seed % 9) as u32);
        let count = network.daemons.len() as u64;
        for _ in 0..40 {
            let host = network.random.below(count) as usize;
            let length = network.random.below(u64::from(SUSPECT_TICKS) - 1) as u32;
            match network.random.below(3) {
                // A daemon, or the whole host, does not run.
                0 => network.daemons[host].stopped_for = length,
                // Its link is cut, and heals.
                1 => {
                    network.daemons[host].reachable = false;
                    network.ticks(length);
                    network.daemons[host].reachable = true;
                }
                _ => {}
            }
            let rest = 1 + network.random.below(5) as u32;
            network.ticks(SUSPECT_TICKS + rest);
        }
        assert!(network.dead.is_empty(), "seed {seed}: {:?}", network.log);
        assert!(network.daemons.iter().all(|daemon| !daemon.left), "seed {seed}");
    }
}

#[test]
fn deaths_beside_short_silences_and_slow_connections_take_nobody_with_them() {
    for seed in 0..2000 {
        let delays = Delays { message: 1 + (seed % 5) as u32, connecting: 40 };
        let mut network = Network::with_delays(seed, 2 + (seed % 9) as u32, delays);
        let count = network.daemons.len() as u64;
        let mut victims = Vec::new();
        network.ticks(5);
        for _ in 0..6 {
            for _ in 0..network.random.below(3) {
                let host = network.random.below(count) as u32;
                network.daemons[host as usize].alive = false;
                victims.push(host);
                let pause = network.random.below(4) as u32;
                network.ticks(pause);
            }
            let host = network.random.below(count) as usize;
            let length = network.random.below(u64::from(SUSPECT_TICKS) - 1) as u32;
            network.daemons[host].stopped_for = length;
            // Two silences of the same host with no beat between them are one.
            let rest = length + 1 + network.random.below(u64::from(2 * TICKS)) as u32;
            network.ticks(rest);
        }
        network.ticks(3 * TICKS);
        victims.sort_unstable();
        victims.dedup();
        network.dead.sort_unstable();
        assert_eq!(network.dead, victims, "seed {seed}: {:#?}", network.log);
    }
}
