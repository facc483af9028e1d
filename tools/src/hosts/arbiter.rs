//! Who of the hosts is dead: the decision at the root, from what the observers say.
//!
//! One observer alone is not believed: its own connection may be what is broken. The others who watch the same host are
//! asked; the second who says that it is silent confirms it. An observer that is cut off itself cannot be heard here, which is
//! what the rule asks for: whoever cannot reach its other neighbour either is the one that is cut off. If nobody else
//! watches the host, or those who do stay silent themselves, one observer is enough after a while.

use super::TICKS;
use redrt_wire::daemon::Sign;
use std::collections::{BTreeMap, BTreeSet};

/// An observer: a host's daemon, or the root itself.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Who {
    /// `redrun`.
    Root,
    /// The daemon of this host.
    Host(u32),
}

/// What the arbiter wants done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Ask an observer about a host.
    Probe(Who, u32),
    /// The host is dead.
    Dead {
        /// Which.
        host: u32,
        /// Why, in words.
        why: String,
    },
}

/// Of one host that is not beyond doubt.
#[derive(Clone, Default, Debug)]
struct Doubt {
    silent_to: BTreeSet<Who>,
    heard_by: BTreeSet<Who>,
    ticks: u32,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Arbiter {
    /// The hosts that are alive, in the order of the ring.
    ring: Vec<u32>,
    doubts: BTreeMap<u32, Doubt>,
}

impl Arbiter {
    /// All these hosts are alive.
    #[must_use]
    pub fn new(ring: Vec<u32>) -> Self {
        Self { ring, doubts: BTreeMap::new() }
    }

    /// A host was given up for another reason.
    pub fn remove(&mut self, host: u32) {
        self.ring.retain(|other| *other != host);
        self.doubts.remove(&host);
    }

    /// The hosts that are alive, in the order of the ring.
    #[must_use]
    pub fn ring(&self) -> &[u32] {
        &self.ring
    }

    /// The neighbours of a host in a ring.
    #[must_use]
    pub fn neighbours(ring: &[u32], host: u32) -> Vec<u32> {
        let Some(at) = ring.iter().position(|other| *other == host) else { return Vec::new() };
        let count = ring.len();
        let mut found = vec![ring[(at + count - 1) % count], ring[(at + 1) % count]];
        found.dedup();
        found.retain(|other| *other != host);
        found
    }

    /// An observer says this of a host. `parent` is who is above that host in the tree, and watches it too.
    pub fn observed(&mut self, by: Who, host: u32, sign: Sign, parent: Who) -> Vec<Verdict> {
        if !self.ring.contains(&host) || matches!(by, Who::Host(by) if !self.ring.contains(&by)) {
            return Vec::new();
        }
        match sign {
            Sign::Gone => return vec![self.bury(host, "its daemon has ended".into())],
            Sign::Alive => {
                let Some(doubt) = self.doubts.get_mut(&host) else { return Vec::new() };
                doubt.silent_to.remove(&by);
                doubt.heard_by.insert(by);
                if doubt.silent_to.is_empty() {
                    self.doubts.remove(&host);
                }
                return Vec::new();
            }
            Sign::Silent => {}
        }
        let mut watching: BTreeSet<_> = Self::neighbours(&self.ring, host).into_iter().map(Who::Host).collect();
        watching.insert(parent);
        let doubt = self.doubts.entry(host).or_default();
        let is_new = doubt.silent_to.insert(by);
        doubt.heard_by.remove(&by);
        watching.retain(|who| !doubt.silent_to.contains(who));
        if doubt.silent_to.len() >= 2 || watching.is_empty() {
            return vec![self.bury(host, "it does not answer".into())];
        }
        if !is_new {
            return Vec::new();
        }
        watching.into_iter().map(|who| Verdict::Probe(who, host)).collect()
    }

    /// A host is heard again by the root, by whatever way.
    pub fn attached(&mut self, host: u32) {
        self.doubts.remove(&host);
    }

    /// A tick has passed: doubts that nobody could remove for a whole timeout are decided. `reachable` says whether the
    /// root has a way to a host.
    pub fn tick(&mut self, reachable: impl Fn(u32) -> bool) -> Vec<Verdict> {
        let mut overdue = Vec::new();
        for (host, doubt) in &mut self.doubts {
            doubt.ticks += 1;
            // Somebody hears it: then it is only the way to it that is broken, and it has time to find another.
            let patience = if doubt.heard_by.is_empty() { TICKS - super::SUSPECT_TICKS } else { 2 * TICKS };
            if doubt.ticks >= patience && (doubt.heard_by.is_empty() || !reachable(*host)) {
                overdue.push(*host);
            }
        }
        overdue.into_iter().map(|host| self.bury(host, "it does not answer".into())).collect()
    }

    fn bury(&mut self, host: u32, why: String) -> Verdict {
        self.remove(host);
        Verdict::Dead { host, why }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: Who = Who::Root;

    fn dead(host: u32, why: &str) -> Verdict {
        Verdict::Dead { host, why: why.into() }
    }

    #[test]
    fn a_second_observer_confirms() {
        let mut arbiter = Arbiter::new(vec![0, 1, 2, 3]);
        let verdicts = arbiter.observed(Who::Host(0), 1, Sign::Silent, PARENT);
        assert_eq!(verdicts, [Verdict::Probe(Who::Root, 1), Verdict::Probe(Who::Host(2), 1)]);
        // The same again is no second observer.
        assert_eq!(arbiter.observed(Who::Host(0), 1, Sign::Silent, PARENT), []);
        assert_eq!(arbiter.observed(Who::Host(2), 1, Sign::Silent, PARENT), [dead(1, "it does not answer")]);
        assert_eq!(arbiter.ring(), [0, 2, 3]);
        // What the dead say does not count.
        assert_eq!(arbiter.observed(Who::Host(1), 0, Sign::Gone, PARENT), []);
    }

    #[test]
    fn one_observer_with_a_broken_connection_kills_nobody() {
        let mut arbiter = Arbiter::new(vec![0, 1, 2, 3]);
        arbiter.observed(Who::Host(0), 1, Sign::Silent, PARENT);
        arbiter.observed(Who::Host(2), 1, Sign::Alive, PARENT);
        for _ in 0..10 * TICKS {
            assert_eq!(arbiter.tick(|_| true), []);
        }
    }

    #[test]
    fn a_host_that_answers_for_its_daemon_is_believed_at_once() {
        let mut arbiter = Arbiter::new(vec![0, 1]);
        assert_eq!(arbiter.observed(Who::Root, 1, Sign::Gone, PARENT), [dead(1, "its daemon has ended")]);
    }

    #[test]
    fn a_lone_observer_is_believed_after_a_while() {
        let mut arbiter = Arbiter::new(vec![0, 1]);
        arbiter.observed(Who::Root, 1, Sign::Silent, PARENT);
        let verdicts: Vec<_> = (0..TICKS).flat_map(|_| arbiter.tick(|_| false)).collect();
        assert_eq!(verdicts, [dead(1, "it does not answer")]);
        // And at once if nobody else watches.
        let mut arbiter = Arbiter::new(vec![0]);
        assert_eq!(arbiter.observed(Who::Root, 0, Sign::Silent, PARENT), [dead(0, "it does not answer")]);
    }

    #[test]
    fn a_host_that_others_hear_and_the_root_does_not_reach_is_given_up() {
        let mut arbiter = Arbiter::new(vec![0, 1, 2]);
        arbiter.observed(Who::Root, 1, Sign::Silent, PARENT);
        arbiter.observed(Who::Host(0), 1, Sign::Alive, PARENT);
        let verdicts: Vec<_> = (0..2 * TICKS).flat_map(|_| arbiter.tick(|_| false)).collect();
        assert_eq!(verdicts, [dead(1, "it does not answer")]);
    }

    #[test]
    fn neighbours_in_rings_of_any_size() {
        assert_eq!(Arbiter::neighbours(&[4, 7, 9], 4), [9, 7]);
        assert_eq!(Arbiter::neighbours(&[4, 7], 7), [4]);
        assert_eq!(Arbiter::neighbours(&[4], 4), [] as [u32; 0]);
    }
}
