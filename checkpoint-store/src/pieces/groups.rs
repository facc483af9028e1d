//! Encoding groups: which host has which piece of whose part.
//!
//! The first piece of a part stays on its own host, and the others go to other machines, in other racks where there
//! are. If fewer machines are left than a part has pieces, some have several of them; then fewer losses are survived
//! ([`losses_survived`]), and the checkpoint says so.

use super::Code;
use crate::copies::Place;
use std::collections::BTreeMap;

/// Chooses the hosts of the pieces of each source's part, by index.
///
/// A host has as few pieces of a part as possible, then a rack, then of all parts together.
#[must_use]
pub fn spread(sources: &[u32], places: &[Place], code: Code) -> BTreeMap<u32, Vec<u32>> {
    let mut loads: BTreeMap<&str, usize> = BTreeMap::new();
    let mut groups = BTreeMap::new();
    for source in sources {
        let mut group = vec![*source];
        while group.len() < usize::from(code.piece_count()) {
            // Candidates start with the next host, so that neighbours choose different ones.
            let all = (1..=places.len() as u32).map(|step| (*source + step) % places.len() as u32);
            let best = all.filter(|host| places[*host as usize].is_there).min_by_key(|host| {
                let place = &places[*host as usize];
                let of_machine = group.iter().filter(|of| places[**of as usize].machine == place.machine).count();
                let is_of_rack = |of: &&u32| place.rack.is_some() && places[**of as usize].rack == place.rack;
                let of_rack = group.iter().filter(is_of_rack).count();
                (of_machine, of_rack, loads.get(place.machine.as_str()).copied().unwrap_or_default())
            });
            let best = best.unwrap_or(*source);
            *loads.entry(&places[best as usize].machine).or_default() += 1;
            group.push(best);
        }
        groups.insert(*source, group);
    }
    groups
}

/// Number of machines that may be lost together, whichever they are, so that K pieces are left. `holders`: the machine
/// of each piece that is kept. `None` if there are fewer than K pieces now.
#[must_use]
pub fn losses_survived<M: Ord>(holders: impl IntoIterator<Item = M>, code: Code) -> Option<usize> {
    let mut counts: BTreeMap<M, usize> = BTreeMap::new();
    holders.into_iter().for_each(|machine| *counts.entry(machine).or_default() += 1);
    let mut left = counts.values().sum::<usize>().checked_sub(code.data.into())?;
    let mut counts: Vec<_> = counts.into_values().collect();
    counts.sort_unstable_by(|one, other| other.cmp(one));
    let is_survived = |count: &usize| {
        let rest = left.checked_sub(*count);
        left = rest.unwrap_or(left);
        rest.is_some()
    };
    Some(counts.iter().copied().take_while(is_survived).count())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn place(machine: &str, rack: Option<u32>) -> Place {
        Place { machine: machine.into(), rack, is_there: true }
    }

    fn code(text: &str) -> Code {
        Code::parse(text).unwrap()
    }

    #[test]
    fn pieces_of_a_part_are_on_different_machines_and_racks() {
        let places: Vec<_> = ["a", "b", "c", "d"].map(|machine| place(machine, None)).into();
        let groups = spread(&[0, 1, 2, 3], &places, code("2+1"));
        let holders: Vec<_> = groups.values().flatten().copied().collect();
        for host in 0..4 {
            assert_eq!(holders.iter().filter(|holder| **holder == host).count(), 3, "{groups:?}");
            assert_eq!(groups[&host].iter().collect::<BTreeSet<_>>().len(), 3, "{groups:?}");
        }
        let racks: Vec<_> = (0..6).map(|host| place(&host.to_string(), Some(host / 2))).collect();
        let groups = spread(&[0, 1, 2, 3, 4, 5], &racks, code("2+1"));
        for group in groups.values() {
            let racks: BTreeSet<_> = group.iter().map(|host| racks[*host as usize].rack).collect();
            assert_eq!(racks.len(), 3, "{groups:?}");
        }
    }

    #[test]
    fn with_too_few_machines_pieces_share_them_and_less_is_survived() {
        let mut places: Vec<_> = ["a", "b", "c"].map(|machine| place(machine, None)).into();
        places[2].is_there = false;
        assert_eq!(spread(&[0, 1], &places, code("2+1")).into_values().collect::<Vec<_>>(), [[0, 1, 0], [1, 0, 1]]);
        let survived = |holders: &[u32]| losses_survived(holders.iter().copied(), code("2+1"));
        assert_eq!([&[0, 1, 2][..], &[0, 1], &[0, 1, 0], &[2, 2, 2]].map(survived), [1, 0, 0, 0].map(Some));
        assert_eq!(survived(&[1]), None);
        assert_eq!(losses_survived([0, 0, 1, 1, 2, 3], code("2+4")), Some(2));
    }

    proptest! {
        #[test]
        fn any_m_machines_may_be_lost_where_there_are_enough(
            racks in prop::collection::vec(prop::option::of(0..3_u32), 1..12),
            data in 1..5_u8,
            parity in 1..4_u8,
        ) {
            let places: Vec<_> = (0..).zip(&racks).map(|(host, rack): (u32, _)| place(&host.to_string(), *rack)).collect();
            let (code, count) = (Code::new(data, parity).unwrap(), places.len() as u32);
            let sources: Vec<_> = (0..count).collect();
            for (source, group) in spread(&sources, &places, code) {
                prop_assert_eq!((group[0], group.len()), (source, usize::from(code.piece_count())));
                let survived = losses_survived(group.iter().copied(), code);
                if count >= u32::from(code.piece_count()) {
                    prop_assert_eq!(survived, Some(parity.into()));
                } else {
                    prop_assert!(survived < Some(parity.into()) || count == 1, "{:?} of {:?}", survived, group);
                }
            }
        }
    }
}
