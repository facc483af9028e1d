//! What one daemon, or `redrun`, hears of the hosts it watches.

use super::{LEASE_TICKS, SUSPECT_TICKS, WAY_TICKS};
use redrt_wire::daemon::Sign;
use std::collections::BTreeMap;

/// What a tick calls for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Duty {
    /// Tell the root this of a host.
    Report(u32, Sign),
    /// Nothing has come from the root for a while: connect to it directly.
    FindWay,
    /// Nothing has come from the root for so long that it must count this host as dead: leave.
    Leave,
}

#[derive(Clone, Copy, Default, Debug)]
struct Peer {
    missed: u32,
    /// It was heard since it is watched.
    known: bool,
    /// The root was told, and nothing was heard since.
    told: bool,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Observer {
    peers: BTreeMap<u32, Peer>,
    /// Ticks since the root was heard; absent at the root itself.
    without_root: Option<u32>,
}

impl Observer {
    /// Watches nobody yet. `has_lease` for daemons, which depend on the root.
    #[must_use]
    pub fn new(has_lease: bool) -> Self {
        Self { peers: BTreeMap::new(), without_root: has_lease.then_some(0) }
    }

    /// From now on watches these hosts; those watched before keep their state.
    pub fn watch(&mut self, hosts: impl Iterator<Item = u32>) {
        let before = std::mem::take(&mut self.peers);
        self.peers = hosts.map(|host| (host, before.get(&host).copied().unwrap_or_default())).collect();
    }

    /// The hosts it watches.
    pub fn watched(&self) -> impl Iterator<Item = u32> + '_ {
        self.peers.keys().copied()
    }

    /// What it knows of a host: nothing of one that it does not watch, or has not watched for long enough.
    #[must_use]
    pub fn sign(&self, host: u32) -> Option<Sign> {
        let peer = self.peers.get(&host)?;
        match peer.missed < SUSPECT_TICKS {
            true => peer.known.then_some(Sign::Alive),
            false => Some(Sign::Silent),
        }
    }

    /// A host was heard. `Some` when the root believes it silent and must be told.
    pub fn heard(&mut self, host: u32) -> Option<Duty> {
        let peer = self.peers.get_mut(&host)?;
        let told = std::mem::replace(peer, Peer { known: true, ..Peer::default() }).told;
        told.then_some(Duty::Report(host, Sign::Alive))
    }

    /// The root was heard.
    pub fn heard_root(&mut self) {
        if let Some(missed) = &mut self.without_root {
            *missed = 0;
        }
    }

    /// A tick of time has passed, or more; everything that had arrived was handed over before.
    pub fn tick(&mut self) -> Vec<Duty> {
        let mut duties = Vec::new();
        for (host, peer) in &mut self.peers {
            peer.missed += 1;
            if peer.missed >= SUSPECT_TICKS && !peer.told {
                peer.told = true;
                duties.push(Duty::Report(*host, Sign::Silent));
            }
        }
        if let Some(missed) = &mut self.without_root {
            *missed += 1;
            if *missed >= LEASE_TICKS {
                duties.push(Duty::Leave);
            } else if *missed >= WAY_TICKS {
                duties.push(Duty::FindWay);
            }
        }
        duties
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks(observer: &mut Observer, count: u32) -> Vec<Duty> {
        (0..count).flat_map(|_| observer.tick()).collect()
    }

    #[test]
    fn silence_is_told_once_and_taken_back() {
        let mut observer = Observer::new(false);
        observer.watch([3, 5].into_iter());
        assert_eq!(observer.sign(3), None);
        assert_eq!(ticks(&mut observer, SUSPECT_TICKS - 1), []);
        assert_eq!(observer.heard(3), None);
        assert_eq!(ticks(&mut observer, 4), [Duty::Report(5, Sign::Silent)]);
        assert_eq!(
            (observer.sign(3), observer.sign(5), observer.sign(9)),
            (Some(Sign::Alive), Some(Sign::Silent), None)
        );
        assert_eq!(observer.heard(5), Some(Duty::Report(5, Sign::Alive)));
        assert_eq!(observer.heard(5), None);
        // A changed ring keeps what is known of those who stay.
        observer.watch([3, 7].into_iter());
        assert_eq!(ticks(&mut observer, SUSPECT_TICKS - 4), [Duty::Report(3, Sign::Silent)]);
    }

    #[test]
    fn without_the_root_a_daemon_looks_for_it_and_then_leaves() {
        let mut observer = Observer::new(true);
        assert_eq!(ticks(&mut observer, WAY_TICKS - 1), []);
        observer.heard_root();
        let duties = ticks(&mut observer, LEASE_TICKS);
        assert_eq!(duties.len() as u32, LEASE_TICKS - WAY_TICKS + 1);
        assert_eq!((duties[0], *duties.last().unwrap()), (Duty::FindWay, Duty::Leave));
    }
}
