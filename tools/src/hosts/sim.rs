//! A network of observers and an arbiter on one thread, from a seed: hosts die, parts of the network are cut off and come
//! back, daemons and `redrun` do not run for a while. Time is counted in ticks; a message takes no time, or is lost
//! with a cut.
//!
//! What must hold: a dead host is found within the timeout; a daemon that is cut off from the root for so long has left; nobody
//! who was not dead, cut off or stopped is taken for dead.

use super::*;
use redrt_wire::daemon::Sign;
use std::collections::VecDeque;

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

/// What the root has sent to daemons that are stopped or cut off waits in their connections.
struct Network {
    random: Random,
    daemons: Vec<Daemon>,
    root: Observer,
    arbiter: Arbiter,
    dead: Vec<u32>,
    log: Vec<String>,
}

impl Network {
    fn new(seed: u64, count: u32) -> Self {
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
        Self { random: Random(seed), daemons, root, arbiter, dead: Vec::new(), log: Vec::new() }
    }

    fn runs(&self, host: u32) -> bool {
        let daemon = &self.daemons[host as usize];
        daemon.alive && !daemon.left && daemon.stopped_for == 0
    }

    fn connected(&self, one: u32, other: u32) -> bool {
        self.daemons[one as usize].reachable == self.daemons[other as usize].reachable
    }

    /// One tick: everybody who runs beats; then, with all that has arrived handed over, everybody's tick.
    fn tick(&mut self) {
        let count = self.daemons.len() as u32;
        for host in 0..count {
            let daemon = &mut self.daemons[host as usize];
            daemon.stopped_for = daemon.stopped_for.saturating_sub(1);
        }
        let mut reports = VecDeque::new();
        for host in (0..count).filter(|host| self.runs(*host)).collect::<Vec<_>>() {
            for other in Arbiter::neighbours(&self.daemons[host as usize].ring.clone(), host) {
                let daemon = &self.daemons[other as usize];
                if daemon.alive && !daemon.left && self.connected(host, other) {
                    let duty = self.daemons[other as usize].observer.heard(host);
                    reports.extend(duty.map(|duty| (Who::Host(other), duty)));
                }
            }
            if self.daemons[host as usize].reachable {
                reports.extend(self.root.heard(host).map(|duty| (Who::Root, duty)));
            }
        }
        for host in 0..count {
            if self.daemons[host as usize].reachable && !self.dead.contains(&host) {
                self.daemons[host as usize].observer.heard_root();
            }
        }
        for host in (0..count).filter(|host| self.runs(*host)).collect::<Vec<_>>() {
            for duty in self.daemons[host as usize].observer.tick() {
                if duty == Duty::Leave {
                    self.daemons[host as usize].left = true;
                } else if self.daemons[host as usize].reachable {
                    reports.push_back((Who::Host(host), duty));
                }
            }
        }
        reports.extend(self.root.tick().into_iter().map(|duty| (Who::Root, duty)));
        for (by, duty) in reports {
            if let Duty::Report(host, sign) = duty {
                self.observed(by, host, sign);
            }
        }
        let reachable: Vec<_> = self.daemons.iter().map(|daemon| daemon.reachable).collect();
        let verdicts = self.arbiter.tick(|host| reachable[host as usize]);
        self.carry_out(verdicts);
    }

    fn observed(&mut self, by: Who, host: u32, sign: Sign) {
        let verdicts = self.arbiter.observed(by, host, sign, Who::Root);
        self.carry_out(verdicts);
    }

    fn carry_out(&mut self, verdicts: Vec<Verdict>) {
        for verdict in verdicts {
            self.log.push(format!("{verdict:?}"));
            match verdict {
                Verdict::Probe(Who::Root, host) => {
                    if let Some(sign) = self.root.sign(host) {
                        self.observed(Who::Root, host, sign);
                    }
                }
                Verdict::Probe(Who::Host(by), host) => {
                    let daemon = &self.daemons[by as usize];
                    if self.runs(by)
                        && daemon.reachable
                        && let Some(sign) = daemon.observer.sign(host)
                    {
                        self.observed(Who::Host(by), host, sign);
                    }
                }
                Verdict::Dead { host, .. } => {
                    self.dead.push(host);
                    let ring = self.arbiter.ring().to_vec();
                    self.root.watch(ring.iter().copied());
                    for (number, daemon) in self.daemons.iter_mut().enumerate().filter(|(_, daemon)| daemon.reachable) {
                        daemon.observer.watch(Arbiter::neighbours(&ring, number as u32).into_iter());
                        daemon.ring.clone_from(&ring);
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
