//! Decision at the coordinator which hosts are dead, from the observers' reports.
//!
//! One observer alone is not believed: its own connection may be the broken one. The other observers of the host are
//! asked, and a second report of silence confirms it. An observer that is cut off cannot be heard here, which is just
//! what the rule needs: a daemon that cannot reach its other neighbour either is the one that is cut off. Without other
//! observers, or if they stay silent, one report is enough after a while.

use super::{SUSPECT_TICKS, TICKS};
use redrt_wire::daemon::Sign;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// An observer: a host's daemon, or the coordinator itself.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Who {
    /// The coordinator: `redrun`.
    Coordinator,
    /// The daemon of this host.
    Host(u32),
}

/// Request of the arbiter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Ask an observer about a host.
    Probe(Who, u32),
    /// The host is dead.
    Dead {
        /// Number of the host.
        host: u32,
        /// Evidence of its death.
        why: Death,
    },
}

/// Evidence that a host is dead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Death {
    /// The host's kernel refuses connections to the daemon.
    DaemonEnded,
    /// The host's observers do not hear it.
    Silent {
        /// True if `redrun` is one of them.
        to_coordinator: bool,
        /// Number of other hosts among them.
        host_count: usize,
        /// Length of the silence in ticks.
        ticks: u32,
    },
}

impl Death {
    fn silence(doubt: &Doubt) -> Self {
        let to_coordinator = doubt.silent_to.contains(&Who::Coordinator);
        let host_count = doubt.silent_to.len() - usize::from(to_coordinator);
        Self::Silent { to_coordinator, host_count, ticks: SUSPECT_TICKS + doubt.ticks }
    }

    /// Length of the silence before the decision, in ticks.
    #[must_use]
    pub fn ticks(self) -> u32 {
        match self {
            Self::DaemonEnded => 0,
            Self::Silent { ticks, .. } => ticks,
        }
    }
}

impl fmt::Display for Death {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Silent { to_coordinator, host_count, .. } = self else { return f.write_str("its daemon has ended") };
        let coordinator = to_coordinator.then(|| "redrun".to_owned());
        let hosts = match host_count {
            0 => None,
            1 => Some("another host".to_owned()),
            count => Some(format!("{count} other hosts")),
        };
        let both: Vec<_> = coordinator.into_iter().chain(hosts).collect();
        write!(f, "it does not answer {}", both.join(" nor "))
    }
}

/// State of a doubted host.
#[derive(Clone, Default, Debug)]
struct Doubt {
    silent_to: BTreeSet<Who>,
    heard_by: BTreeSet<Who>,
    /// Ticks since the doubt began, or since the first report of silence.
    ticks: u32,
}

impl Doubt {
    fn retain(&mut self, keep: impl Fn(&Who) -> bool) {
        self.silent_to.retain(&keep);
        self.heard_by.retain(keep);
    }
}

/// Decision about hosts: see the module.
#[derive(Clone, Debug)]
pub struct Arbiter {
    /// Living hosts, in the order of the ring.
    ring: Vec<u32>,
    /// Hosts whose daemons are attached to another host's daemon, with that host.
    attached_to: BTreeMap<u32, u32>,
    doubts: BTreeMap<u32, Doubt>,
}

impl Arbiter {
    /// Begins with these living hosts.
    #[must_use]
    pub fn new(ring: Vec<u32>) -> Self {
        Self { ring, attached_to: BTreeMap::new(), doubts: BTreeMap::new() }
    }

    /// Removes a host that was given up for another reason.
    pub fn remove(&mut self, host: u32) {
        self.ring.retain(|other| *other != host);
        self.attached_to.remove(&host);
        self.doubts.remove(&host);
        // The host's reports about others do not count any more either.
        self.doubts.values_mut().for_each(|doubt| doubt.retain(|who| *who != Who::Host(host)));
    }

    /// Adds a host.
    pub fn add(&mut self, host: u32) {
        self.ring.push(host);
    }

    /// Living hosts, in the order of the ring.
    #[must_use]
    pub fn ring(&self) -> &[u32] {
        &self.ring
    }

    /// Neighbours of a host in a ring.
    #[must_use]
    pub fn neighbours(ring: &[u32], host: u32) -> Vec<u32> {
        let Some(at) = ring.iter().position(|other| *other == host) else { return Vec::new() };
        let count = ring.len();
        let mut found = vec![ring[(at + count - 1) % count], ring[(at + 1) % count]];
        found.dedup();
        found.retain(|other| *other != host);
        found
    }

    /// The observer that a host's daemon is attached to. There is always one: a daemon that has lost its connection
    /// attaches to the coordinator.
    #[must_use]
    pub fn above(&self, host: u32) -> Who {
        let above = self.attached_to.get(&host).filter(|above| self.ring.contains(above));
        above.map_or(Who::Coordinator, |above| Who::Host(*above))
    }

    /// Hosts that the coordinator observes itself.
    pub fn below_coordinator(&self) -> impl Iterator<Item = u32> + '_ {
        self.ring.iter().copied().filter(|host| self.above(*host) == Who::Coordinator)
    }

    /// Handles an observer's report about a host.
    pub fn observed(&mut self, by: Who, host: u32, sign: Sign) -> Vec<Verdict> {
        if !self.ring.contains(&host) || matches!(by, Who::Host(by) if !self.ring.contains(&by)) {
            return Vec::new();
        }
        if sign == Sign::Parted {
            if self.above(host) == by {
                self.attached_to.remove(&host);
            }
            return Vec::new();
        }
        let mut watching: BTreeSet<_> = Self::neighbours(&self.ring, host).into_iter().map(Who::Host).collect();
        watching.insert(self.above(host));
        if sign == Sign::Gone {
            return vec![self.bury(host, Death::DaemonEnded)];
        }
        // Reports of former or future observers do not count.
        if !watching.contains(&by) {
            return Vec::new();
        }
        if sign == Sign::Alive {
            let Some(doubt) = self.doubts.get_mut(&host) else { return Vec::new() };
            doubt.silent_to.remove(&by);
            doubt.heard_by.insert(by);
            return Vec::new();
        }
        let doubt = self.doubts.entry(host).or_default();
        doubt.retain(|who| watching.contains(who));
        if sign == Sign::Silent {
            if doubt.silent_to.is_empty() {
                doubt.ticks = 0;
            }
            doubt.silent_to.insert(by);
            doubt.heard_by.remove(&by);
            if doubt.silent_to.len() >= 2 || watching.len() == 1 {
                let why = Death::silence(doubt);
                return vec![self.bury(host, why)];
            }
        }
        watching.remove(&by);
        watching.retain(|who| !doubt.silent_to.contains(who));
        watching.into_iter().map(|who| Verdict::Probe(who, host)).collect()
    }

    /// Notes that a host has attached. The coordinator hears of it over any connection.
    pub fn attached(&mut self, host: u32, above: Who) {
        self.doubts.remove(&host);
        match above {
            Who::Coordinator => self.attached_to.remove(&host),
            Who::Host(above) => self.attached_to.insert(host, above),
        };
    }

    /// Advances time by one tick, and decides doubts that have lasted for a whole timeout. `reachable`: true if the
    /// coordinator has a connection to the host.
    pub fn tick(&mut self, reachable: impl Fn(u32) -> bool) -> Vec<Verdict> {
        let mut overdue = Vec::new();
        self.doubts.retain(|host, doubt| {
            doubt.ticks += 1;
            if doubt.silent_to.is_empty() {
                return doubt.ticks < TICKS;
            }
            // If any observer hears the host, only a connection is broken, and the host has time to find another.
            let is_heard = !doubt.heard_by.is_empty();
            let patience = if is_heard { 2 * TICKS } else { TICKS - SUSPECT_TICKS };
            if doubt.ticks >= patience && !(is_heard && reachable(*host)) {
                overdue.push((*host, Death::silence(doubt)));
            }
            true
        });
        overdue.into_iter().map(|(host, why)| self.bury(host, why)).collect()
    }

    fn bury(&mut self, host: u32, why: Death) -> Verdict {
        self.remove(host);
        Verdict::Dead { host, why }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Verdict for a host that `host_count` hosts, and `redrun` or not, have not heard for `ticks`.
    fn silent(host: u32, (to_coordinator, host_count): (bool, usize), ticks: u32) -> Verdict {
        Verdict::Dead { host, why: Death::Silent { to_coordinator, host_count, ticks } }
    }

    #[test]
    fn how_a_death_is_known_is_told_in_words() {
        let told = |to_coordinator, host_count| Death::Silent { to_coordinator, host_count, ticks: 20 }.to_string();
        assert_eq!(told(true, 1), "it does not answer redrun nor another host");
        assert_eq!(told(false, 2), "it does not answer 2 other hosts");
        assert_eq!(Death::DaemonEnded.to_string(), "its daemon has ended");
    }

    #[test]
    fn a_second_observer_confirms() {
        let mut arbiter = Arbiter::new(vec![0, 1, 2, 3]);
        let verdicts = arbiter.observed(Who::Host(0), 1, Sign::Silent);
        assert_eq!(verdicts, [Verdict::Probe(Who::Coordinator, 1), Verdict::Probe(Who::Host(2), 1)]);
        // A repeated report is no second observer; nor is that of a host that does not watch it.
        assert_eq!(arbiter.observed(Who::Host(0), 1, Sign::Silent).len(), 2);
        assert_eq!(arbiter.observed(Who::Host(3), 1, Sign::Silent), []);
        assert_eq!(arbiter.observed(Who::Host(2), 1, Sign::Silent), [silent(1, (false, 2), SUSPECT_TICKS)]);
        assert_eq!(arbiter.ring(), [0, 2, 3]);
        // Reports of the dead do not count.
        assert_eq!(arbiter.observed(Who::Host(1), 0, Sign::Gone), []);
    }

    #[test]
    fn one_observer_with_a_broken_connection_kills_nobody() {
        let mut arbiter = Arbiter::new(vec![0, 1, 2, 3]);
        arbiter.observed(Who::Host(0), 1, Sign::Silent);
        arbiter.observed(Who::Host(2), 1, Sign::Alive);
        for _ in 0..10 * TICKS {
            assert_eq!(arbiter.tick(|_| true), []);
        }
    }

    #[test]
    fn a_host_that_answers_for_its_daemon_is_believed_at_once() {
        let mut arbiter = Arbiter::new(vec![0, 1]);
        assert_eq!(
            arbiter.observed(Who::Coordinator, 1, Sign::Gone),
            [Verdict::Dead { host: 1, why: Death::DaemonEnded }]
        );
    }

    #[test]
    fn a_lone_observer_is_believed_after_a_while() {
        let mut arbiter = Arbiter::new(vec![0, 1]);
        arbiter.observed(Who::Coordinator, 1, Sign::Silent);
        let verdicts: Vec<_> = (0..TICKS).flat_map(|_| arbiter.tick(|_| false)).collect();
        assert_eq!(verdicts, [silent(1, (true, 0), TICKS)]);
        // Decided at once if nobody else watches.
        let mut arbiter = Arbiter::new(vec![0]);
        assert_eq!(arbiter.observed(Who::Coordinator, 0, Sign::Silent), [silent(0, (true, 0), SUSPECT_TICKS)]);
    }

    #[test]
    fn what_the_dead_have_said_does_not_count() {
        let mut arbiter = Arbiter::new(vec![0, 1, 2, 3]);
        arbiter.observed(Who::Host(2), 1, Sign::Silent);
        arbiter.observed(Who::Coordinator, 1, Sign::Alive);
        arbiter.remove(2);
        assert!(
            !arbiter
                .observed(Who::Host(0), 1, Sign::Silent)
                .iter()
                .any(|verdict| matches!(verdict, Verdict::Dead { .. }))
        );
        assert!((0..10 * TICKS).all(|_| arbiter.tick(|_| true).is_empty()));
    }

    #[test]
    fn an_observer_that_was_asked_early_need_not_be_waited_for() {
        let mut arbiter = Arbiter::new(vec![0, 1]);
        assert_eq!(arbiter.observed(Who::Coordinator, 1, Sign::Quiet), [Verdict::Probe(Who::Host(0), 1)]);
        arbiter.observed(Who::Host(0), 1, Sign::Alive);
        assert_eq!((0..9).flat_map(|_| arbiter.tick(|_| true)).collect::<Vec<_>>(), []);
        arbiter.observed(Who::Coordinator, 1, Sign::Silent);
        assert_eq!((0..9 * TICKS).flat_map(|_| arbiter.tick(|_| true)).collect::<Vec<_>>(), []);
    }

    #[test]
    fn a_host_that_only_the_coordinator_cannot_reach_is_given_up() {
        let mut arbiter = Arbiter::new(vec![0, 1, 2]);
        arbiter.observed(Who::Coordinator, 1, Sign::Silent);
        arbiter.observed(Who::Host(0), 1, Sign::Alive);
        let verdicts: Vec<_> = (0..2 * TICKS).flat_map(|_| arbiter.tick(|_| false)).collect();
        assert_eq!(verdicts, [silent(1, (true, 0), SUSPECT_TICKS + 2 * TICKS)]);
    }

    #[test]
    fn somebody_is_above_every_host() {
        let mut arbiter = Arbiter::new(vec![0, 1, 2, 3]);
        for host in 1..4 {
            arbiter.attached(host, Who::Host(host - 1));
        }
        assert_eq!(arbiter.below_coordinator().collect::<Vec<_>>(), [0]);
        // Only the daemon above reports the end of the connection.
        assert_eq!(arbiter.observed(Who::Host(3), 2, Sign::Parted), []);
        assert_eq!(arbiter.above(2), Who::Host(1));
        assert_eq!(arbiter.observed(Who::Host(1), 2, Sign::Parted), []);
        assert_eq!(arbiter.above(2), Who::Coordinator);
        arbiter.remove(0);
        arbiter.attached(3, Who::Coordinator);
        assert_eq!(arbiter.below_coordinator().collect::<Vec<_>>(), [1, 2, 3]);
    }

    #[test]
    fn neighbours_in_rings_of_any_size() {
        assert_eq!(Arbiter::neighbours(&[4, 7, 9], 4), [9, 7]);
        assert_eq!(Arbiter::neighbours(&[4, 7], 7), [4]);
        assert_eq!(Arbiter::neighbours(&[4], 4), [] as [u32; 0]);
    }
}
