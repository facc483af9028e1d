//! Copies of checkpoint parts on partner hosts: which host keeps which copy, and its progress until the checkpoint
//! counts.
//!
//! ```text
//!  Waiting ──the partner listens──▶ Sending ──received and checked──▶ Kept
//!     │                                │
//!     └─── either end fails or is lost ┴─▶ Failed: the checkpoint has no copy of this part
//! ```
//! There is one attempt for each copy. A checkpoint counts even if some copies failed: it is worth more than an older
//! one as long as no host is lost that has the only copy of a part.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A host that may keep copies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// Name of the machine. Several hosts of a job may be on one.
    pub machine: String,
    /// Rack of the machine, if known.
    pub rack: Option<u32>,
    /// True if the host is alive and reachable.
    pub is_there: bool,
}

/// Chooses a partner for each of `sources`: on another machine, in another rack if possible, and with the fewest copies
/// among those. `None` if no other machine is available.
#[must_use]
pub fn partners(sources: &[u32], places: &[Place]) -> BTreeMap<u32, Option<u32>> {
    let mut copy_counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut partners = BTreeMap::new();
    for source in sources {
        let own = &places[*source as usize];
        // Candidates start with the next host, so that neighbours choose different ones.
        let others = (1..places.len() as u32).map(|step| (*source + step) % places.len() as u32);
        let fitting = others.filter(|other| {
            let other = &places[*other as usize];
            other.is_there && other.machine != own.machine
        });
        let best = fitting.min_by_key(|other| {
            let other = &places[*other as usize];
            let shares_rack = own.rack.is_some() && own.rack == other.rack;
            (shares_rack, copy_counts.get(other.machine.as_str()).copied().unwrap_or_default())
        });
        if let Some(best) = best {
            *copy_counts.entry(&places[best as usize].machine).or_default() += 1;
        }
        partners.insert(*source, best);
    }
    partners
}

/// Adapts partners to a checkpoint that is built on another: a copy is only usable on the host that has a copy of the
/// older one. `None` if that host is gone.
pub fn stay_with(partners: &mut BTreeMap<u32, Option<u32>>, copy_hosts: &BTreeMap<u32, Option<u32>>, places: &[Place]) {
    for (source, partner) in partners {
        if let Some(copy_host) = copy_hosts.get(source) {
            *partner =
                copy_host.filter(|copy_host| places.get(*copy_host as usize).is_some_and(|place| place.is_there));
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
enum Stage {
    Waiting,
    Sending,
    Kept,
}

/// State of all copies of one checkpoint.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Copies {
    /// Partner and stage, by source.
    under_way: BTreeMap<u32, (u32, Stage)>,
}

/// A part that has no copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Uncopied {
    /// Host that has the part.
    pub source: u32,
    /// Host that was to keep the copy.
    pub partner: u32,
}

impl Copies {
    /// All copies start in the waiting stage. Sources without a partner have none.
    #[must_use]
    pub fn new(partners: &BTreeMap<u32, Option<u32>>) -> Self {
        let pairs = partners.iter().filter_map(|(source, partner)| Some((*source, ((*partner)?, Stage::Waiting))));
        Self { under_way: pairs.collect() }
    }

    /// Sources that have a partner, each with it.
    pub fn pairs(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.under_way.iter().map(|(source, (partner, _))| (*source, *partner))
    }

    /// Records that the partner of a source listens. Returns true if the source must be told to send.
    pub fn listens(&mut self, source: u32, partner: u32) -> bool {
        match self.under_way.get_mut(&source) {
            Some((of_source, stage @ Stage::Waiting)) if *of_source == partner => {
                *stage = Stage::Sending;
                true
            }
            _ => false,
        }
    }

    /// Records that the partner has received and checked everything.
    pub fn kept(&mut self, source: u32, partner: u32) {
        if let Some((of_source, stage @ Stage::Sending)) = self.under_way.get_mut(&source)
            && *of_source == partner
        {
            *stage = Stage::Kept;
        }
    }

    /// Records that `teller`, one of the two hosts, gave the copy up. Returns the part if that is new; `None` if the
    /// copy is complete, unknown or given up already.
    pub fn failed(&mut self, source: u32, teller: u32) -> Option<Uncopied> {
        let (partner, stage) = *self.under_way.get(&source)?;
        if stage == Stage::Kept || (teller != source && teller != partner) {
            return None;
        }
        self.under_way.remove(&source);
        Some(Uncopied { source, partner })
    }

    /// Records that a host is lost with all that it has kept. Returns the parts that have no copy now. A lost source
    /// that was copied completely is not among them.
    pub fn host_lost(&mut self, host: u32) -> Vec<Uncopied> {
        let is_void =
            |source: u32, (partner, stage): (u32, Stage)| partner == host || (source == host && stage != Stage::Kept);
        let void = self.under_way.iter().filter(|(source, copy)| is_void(**source, **copy));
        let void: Vec<_> = void.map(|(source, (partner, _))| Uncopied { source: *source, partner: *partner }).collect();
        self.under_way.retain(|source, _| !void.iter().any(|uncopied| uncopied.source == *source));
        void
    }

    /// Returns true if no copy is in progress.
    #[must_use]
    pub fn are_done(&self) -> bool {
        self.under_way.values().all(|(_, stage)| *stage == Stage::Kept)
    }

    /// Partner that keeps a complete copy of each host's part, for host numbers below `host_count`.
    #[must_use]
    pub fn copy_hosts(&self, host_count: u32) -> Vec<Option<u32>> {
        let copy_host = |host| self.under_way.get(&host).filter(|(_, stage)| *stage == Stage::Kept);
        (0..host_count).map(|host| copy_host(host).map(|(partner, _)| *partner)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn place(machine: &str, rack: Option<u32>) -> Place {
        Place { machine: machine.into(), rack, is_there: true }
    }

    fn chosen(sources: &[u32], places: &[Place]) -> Vec<Option<u32>> {
        partners(sources, places).into_values().collect()
    }

    #[test]
    fn partners_are_on_other_machines_and_racks_if_there_are_any() {
        let plain = ["a", "b", "c"].map(|machine| place(machine, None));
        assert_eq!(chosen(&[0, 1, 2], &plain), [1, 2, 0].map(Some));
        let racks = [place("a", Some(0)), place("b", Some(0)), place("c", Some(1)), place("d", Some(1))];
        assert_eq!(chosen(&[0, 1, 2, 3], &racks), [2, 3, 0, 1].map(Some));
        let one_rack = ["a", "b"].map(|machine| place(machine, Some(0)));
        assert_eq!(chosen(&[0, 1], &one_rack), [1, 0].map(Some));
        // After a loss, processes of the lost host run on the same machine as others.
        let shared = [place("a", None), place("a", None), place("b", None)];
        assert_eq!(chosen(&[0, 1, 2], &shared), [2, 2, 0].map(Some));
        let mut lost = plain.clone();
        (lost[1].is_there, lost[2].is_there) = (false, false);
        assert_eq!(chosen(&[0], &lost), [None]);
        lost[2].is_there = true;
        assert_eq!(chosen(&[0, 2], &lost), [2, 0].map(Some));
    }

    #[test]
    fn a_chained_checkpoint_has_its_copy_with_that_of_its_base() {
        let places: Vec<_> = ["a", "b", "c"].map(|machine| place(machine, None)).into();
        let copy_hosts = BTreeMap::from([(0, Some(2)), (1, None)]);
        let chosen = |places: &[Place]| {
            let mut chosen = partners(&[0, 1, 2], places);
            stay_with(&mut chosen, &copy_hosts, places);
            chosen.into_values().collect::<Vec<_>>()
        };
        // A source without a copy of its older part stores all pages in its new one.
        assert_eq!(chosen(&places), [Some(2), None, Some(0)]);
        let mut lost = places;
        lost[2].is_there = false;
        assert_eq!(chosen(&lost)[..2], [None, None]);
    }

    fn copies() -> Copies {
        Copies::new(&BTreeMap::from([(0, Some(1)), (1, Some(2)), (2, None)]))
    }

    #[test]
    fn a_copy_counts_when_its_partner_has_it() {
        let mut copies = copies();
        assert!(!copies.listens(0, 2) && copies.listens(0, 1) && !copies.listens(0, 1));
        copies.kept(1, 2);
        copies.kept(0, 1);
        assert!(!copies.are_done() && copies.listens(1, 2));
        copies.kept(1, 2);
        assert!(copies.are_done());
        assert_eq!(copies.copy_hosts(3), [Some(1), Some(2), None]);
        // Later reports about a complete copy change nothing.
        assert_eq!(copies.failed(0, 0), None);
    }

    /// The loss of the copy's own host voids it too.
    #[test]
    fn only_unkept_copies_are_voided_by_the_loss_of_their_source() {
        let mut lost = copies();
        assert_eq!(lost.host_lost(1).len(), 2);
        assert!(lost.are_done() && lost.copy_hosts(3) == [None; 3]);
        let mut kept = copies();
        kept.listens(0, 1);
        kept.kept(0, 1);
        assert_eq!(kept.host_lost(0), []);
        assert_eq!(kept.failed(1, 0), None);
        assert_eq!(kept.failed(1, 2), Some(Uncopied { source: 1, partner: 2 }));
        assert_eq!(kept.failed(1, 1), None);
        assert!(kept.are_done() && kept.copy_hosts(3) == [Some(1), None, None]);
    }

    proptest! {
        /// In any order of losses and failures.
        #[test]
        fn a_kept_copy_is_never_on_the_machine_of_its_source(
            machines in prop::collection::vec(0..4_u8, 1..8),
            steps in prop::collection::vec((0..4_u8, 0..8_u32, 0..8_u32), 0..60),
        ) {
            let places: Vec<_> = machines.iter().map(|machine| place(&machine.to_string(), None)).collect();
            let count = places.len() as u32;
            let sources: Vec<_> = (0..count).collect();
            let mut copies = Copies::new(&partners(&sources, &places));
            let mut lost = Vec::new();
            for (step, one, other) in steps {
                match step {
                    0 => drop(copies.listens(one, other)),
                    1 => copies.kept(one, other),
                    2 => drop(copies.failed(one, other)),
                    _ => {
                        copies.host_lost(one);
                        lost.push(one);
                    }
                }
                for (source, copy_host) in copies.copy_hosts(count).into_iter().enumerate() {
                    let Some(copy_host) = copy_host else { continue };
                    prop_assert!(machines[source] != machines[copy_host as usize] && !lost.contains(&copy_host));
                }
            }
        }
    }
}
