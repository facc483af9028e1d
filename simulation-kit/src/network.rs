//! Links that keep the order of their packets, without time: the scheduler chooses the link that delivers next.
//! A message that takes a time, and may overtake others, is an event of an [`Agenda`](crate::schedule::Agenda).

use crate::Random;
use std::collections::{BTreeMap, VecDeque};

/// Links, each with the packets under way on it. A key names both ends, or the end that differs.
#[derive(Clone, Debug)]
pub struct Links<K, P>(BTreeMap<K, VecDeque<P>>);

impl<K, P> Default for Links<K, P> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord + Copy, P> Links<K, P> {
    /// Sends a packet.
    pub fn send(&mut self, link: K, packet: P) {
        self.0.entry(link).or_default().push_back(packet);
    }

    /// The links that can deliver a packet.
    pub fn ready(&self) -> impl Iterator<Item = K> {
        self.0.iter().filter(|(_, packets)| !packets.is_empty()).map(|(link, _)| *link)
    }

    /// Takes the next packet of a link.
    pub fn deliver(&mut self, link: K) -> Option<P> {
        self.0.get_mut(&link)?.pop_front()
    }

    /// Loses what was sent last on some links, as much as chance says: their sender has died.
    pub fn cut(&mut self, random: &mut Random, is_cut: impl Fn(K) -> bool) {
        for (_, packets) in self.0.iter_mut().filter(|(link, _)| is_cut(**link)) {
            packets.truncate(random.below(packets.len() + 1));
        }
    }

    /// Keeps the packets that meet a condition.
    pub fn retain(&mut self, mut is_kept: impl FnMut(K, &P) -> bool) {
        self.0.iter_mut().for_each(|(link, packets)| packets.retain(|packet| is_kept(*link, packet)));
    }

    /// All packets of a link, in order.
    pub fn under_way(&self, link: K) -> impl Iterator<Item = &P> {
        self.0.get(&link).into_iter().flatten()
    }

    /// Loses links with all that is on them: an end is taken by another process.
    pub fn forget(&mut self, is_forgotten: impl Fn(K) -> bool) {
        self.0.retain(|link, _| !is_forgotten(*link));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two() -> Links<(u8, u8), u32> {
        let mut links = Links::default();
        (0..10).for_each(|packet| links.send((packet as u8 % 2, 7), packet));
        links
    }

    #[test]
    fn a_link_keeps_its_order() {
        let mut links = two();
        assert!(links.ready().eq([(0, 7), (1, 7)]));
        assert_eq!([(); 3].map(|()| links.deliver((1, 7))), [Some(1), Some(3), Some(5)]);
        assert!(links.under_way((1, 7)).eq(&[7, 9]));
        assert_eq!(links.deliver((3, 3)), None);
    }

    #[test]
    fn a_cut_loses_the_end_of_a_link_and_no_other() {
        let lost = (0..100).map(|seed| {
            let mut links = two();
            links.cut(&mut Random::new(seed), |(from, _)| from == 0);
            assert_eq!(links.under_way((1, 7)).count(), 5);
            let left: Vec<_> = links.under_way((0, 7)).copied().collect();
            assert!([0, 2, 4, 6, 8].starts_with(&left));
            left.len()
        });
        assert_eq!(lost.collect::<std::collections::BTreeSet<_>>().len(), 6);
    }

    #[test]
    fn packets_that_are_not_kept_are_lost() {
        let mut links = two();
        links.retain(|link, packet| link.0 == 1 || *packet > 4);
        assert!(links.under_way((0, 7)).eq(&[6, 8]) && links.under_way((1, 7)).count() == 5);
        links.forget(|link| link.0 == 1);
        assert!(links.ready().eq([(0, 7)]));
    }
}
