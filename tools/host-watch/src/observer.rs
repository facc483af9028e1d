//! Observations of one daemon, or of `redrun`, about the hosts it watches.

use super::{LEASE_TICKS, QUIET_TICKS, REPEAT_TICKS, SUSPECT_TICKS, WAY_TICKS, WAY_TICKS_MAX};
use redrt_wire::daemon::Sign;
use std::collections::BTreeMap;

/// Consequence of a tick.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Duty {
    /// Report this about a host to the coordinator.
    Report(u32, Sign),
    /// The coordinator was silent for a while: connect to it directly, in place of the present connection.
    FindWay,
    /// The coordinator was silent for so long that it must count this host as dead: leave.
    Leave,
}

#[derive(Clone, Copy, Default, Debug)]
struct Peer {
    missed: u32,
    /// True if the host is attached here.
    is_below: bool,
    /// True once a beat has arrived since the host is watched.
    known: bool,
    /// True if silence was reported, and no beat has arrived since.
    told: bool,
}

impl Peer {
    /// True if this observer's reports count. A daemon that has never heard a new neighbour cannot judge: the fault may
    /// be its own. But every host is attached somewhere, and there it has been heard.
    fn is_known(&self) -> bool {
        self.known || self.is_below
    }

    /// Report for a tick without a beat. Silence is reported repeatedly, since an earlier report may have been dropped
    /// for a reason that is gone.
    fn news(&self) -> Option<Sign> {
        match self.missed {
            QUIET_TICKS => Some(Sign::Quiet),
            SUSPECT_TICKS.. if (self.missed - SUSPECT_TICKS).is_multiple_of(REPEAT_TICKS) => Some(Sign::Silent),
            _ => None,
        }
    }
}

/// Observations: see the module.
#[derive(Clone, Debug)]
pub struct Observer {
    peers: BTreeMap<u32, Peer>,
    /// Ticks since the last beat of the coordinator. `None` at the coordinator itself.
    without_coordinator: Option<u32>,
}

impl Observer {
    /// Watches nobody yet. `has_lease`: true for daemons, which depend on the coordinator.
    #[must_use]
    pub fn new(has_lease: bool) -> Self {
        Self { peers: BTreeMap::new(), without_coordinator: has_lease.then_some(0) }
    }

    /// Watches these neighbours, and the hosts attached here, from now on. Hosts that were watched before keep their
    /// state.
    pub fn watch(&mut self, neighbours: impl IntoIterator<Item = u32>, below: impl IntoIterator<Item = u32>) {
        let before = std::mem::take(&mut self.peers);
        let kept = |host: u32| before.get(&host).copied().unwrap_or_default();
        self.peers = neighbours.into_iter().map(|host| (host, Peer { is_below: false, ..kept(host) })).collect();
        self.peers.extend(below.into_iter().map(|host| (host, Peer { is_below: true, ..kept(host) })));
    }

    /// The present observation of a host. `None` if it is not watched, or not for long enough.
    #[must_use]
    pub fn sign(&self, host: u32) -> Option<Sign> {
        let peer = self.peers.get(&host).filter(|peer| peer.is_known())?;
        match peer.missed < SUSPECT_TICKS {
            true => peer.known.then_some(Sign::Alive),
            false => Some(Sign::Silent),
        }
    }

    /// Notes a beat of a host. `Some` if the coordinator believes it silent and must be informed.
    pub fn heard(&mut self, host: u32) -> Option<Duty> {
        let peer = self.peers.get_mut(&host)?;
        let told = std::mem::replace(peer, Peer { known: true, missed: 0, told: false, ..*peer }).told;
        told.then_some(Duty::Report(host, Sign::Alive))
    }

    /// Notes a beat of the coordinator.
    pub fn heard_coordinator(&mut self) {
        if let Some(missed) = &mut self.without_coordinator {
            *missed = 0;
        }
    }

    /// Advances time by one tick, however late it is. Everything that had arrived must be noted before.
    pub fn tick(&mut self) -> Vec<Duty> {
        let mut duties = Vec::new();
        for (host, peer) in &mut self.peers {
            peer.missed += 1;
            if let Some(sign) = peer.news().filter(|_| peer.is_known()) {
                peer.told |= sign == Sign::Silent;
                duties.push(Duty::Report(*host, sign));
            }
        }
        if let Some(missed) = &mut self.without_coordinator {
            *missed += 1;
            if is_way_due(*missed) {
                duties.push(Duty::FindWay);
            }
            if *missed >= LEASE_TICKS {
                duties.push(Duty::Leave);
            }
        }
        duties
    }
}

/// True if another connection to the coordinator is due after `missed` ticks of silence. A new connection replaces the
/// one before, whose pending answer is lost. So each gets twice the time of the one before.
fn is_way_due(missed: u32) -> bool {
    missed.checked_sub(WAY_TICKS).is_some_and(|since| {
        let number = since + 1;
        number.is_power_of_two() && number < WAY_TICKS_MAX || number.is_multiple_of(WAY_TICKS_MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks(observer: &mut Observer, count: u32) -> Vec<Duty> {
        (0..count).flat_map(|_| observer.tick()).collect()
    }

    #[test]
    fn silence_is_told_again_and_again_and_taken_back() {
        let mut observer = Observer::new(false);
        observer.watch([], [3, 5]);
        assert_eq!(observer.sign(3), None);
        let quiet = [Duty::Report(3, Sign::Quiet), Duty::Report(5, Sign::Quiet)];
        assert_eq!(ticks(&mut observer, SUSPECT_TICKS - 1), quiet);
        assert_eq!(observer.heard(3), None);
        assert_eq!(ticks(&mut observer, 1), [Duty::Report(5, Sign::Silent)]);
        assert_eq!(ticks(&mut observer, REPEAT_TICKS), [Duty::Report(5, Sign::Silent)]);
        assert_eq!(
            (observer.sign(3), observer.sign(5), observer.sign(9)),
            (Some(Sign::Alive), Some(Sign::Silent), None)
        );
        assert_eq!(observer.heard(5), Some(Duty::Report(5, Sign::Alive)));
        assert_eq!(observer.heard(5), None);
        // A changed ring keeps the state of remaining hosts.
        observer.watch([7], [3]);
        let duties = ticks(&mut observer, SUSPECT_TICKS - 1 - REPEAT_TICKS);
        assert!(duties.contains(&Duty::Report(3, Sign::Silent)), "{duties:?}");
        assert!(!duties.contains(&Duty::Report(7, Sign::Silent)), "{duties:?}");
    }

    /// A neighbour that was never heard is not reported.
    #[test]
    fn only_an_attached_host_is_reported_before_it_was_heard() {
        let mut observer = Observer::new(true);
        observer.watch([3, 5], [5, 7]);
        let duties = ticks(&mut observer, SUSPECT_TICKS);
        let silent = |host| duties.contains(&Duty::Report(host, Sign::Silent));
        assert_eq!([3, 5, 7].map(silent), [false, true, true]);
        assert_eq!([3, 5, 7].map(|host| observer.sign(host)), [None, Some(Sign::Silent), Some(Sign::Silent)]);
        // A host that was heard once stays known, wherever it is attached.
        assert_eq!(observer.heard(5), Some(Duty::Report(5, Sign::Alive)));
        observer.watch([5], []);
        ticks(&mut observer, SUSPECT_TICKS);
        assert_eq!([5, 7].map(|host| observer.sign(host)), [Some(Sign::Silent), None]);
    }

    #[test]
    fn without_the_coordinator_a_daemon_seeks_it_and_then_leaves() {
        let mut observer = Observer::new(true);
        assert_eq!(ticks(&mut observer, WAY_TICKS - 1), []);
        observer.heard_coordinator();
        let duties = ticks(&mut observer, LEASE_TICKS);
        assert_eq!((duties[0], *duties.last().unwrap()), (Duty::FindWay, Duty::Leave));
        assert_eq!(duties.len(), 5, "{duties:?}");
    }

    #[test]
    fn a_coordinator_that_answers_late_is_heard_in_the_end() {
        for late in 0..WAY_TICKS_MAX {
            let mut observer = Observer::new(true);
            let mut asked_at = None;
            let heard_at = (0..8 * WAY_TICKS_MAX).find(|now| {
                let is_answer = asked_at.is_some_and(|asked_at| now - asked_at >= late);
                if observer.tick().contains(&Duty::FindWay) {
                    asked_at = Some(*now);
                }
                is_answer
            });
            assert!(heard_at.is_some_and(|at| at <= 4 * late + WAY_TICKS + 1), "{late} ticks late: {heard_at:?}");
        }
    }
}
