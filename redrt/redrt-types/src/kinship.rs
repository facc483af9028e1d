//! Replicas of a sphere that descend from one memory image which nothing has vouched for.
//!
//! A copy has its source's memory. A value that was corrupt in the source at the cut is corrupt in both. So the two
//! agree on a wrong value, and counted as two they would outvote a sound sibling. A *image group* is a set of replicas
//! that share such an image. Image groups nest:
//!
//! ```text
//!   1.0        1.2 ──cut 1──▶ 1.1          image groups: {2, 1, 3} by cut 1, {2, 3} by cut 2
//!               └────cut 2──▶ 1.3          a fault of 1.2 before cut 1 is in all three,
//!                                          one between the cuts in 1.2 and 1.3
//! ```
//! One fault explains the same wrong vote of a whole image group, but of no set that splits one. So agreeing votes
//! weigh as many independent faults as it takes to make them all wrong: [`Kinship::weight`]. Without copies each
//! replica weighs one.
//!
//! A comparison of memory dissolves a image group: a value that was corrupt at the cut would have shown. Dead members
//! stay until their place is taken, because a payload that they supplied may still be judged.

use crate::{ReplicaIndex, ReplicaSet};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;

/// Position in the sequence of cuts and memory comparisons of a job, from 1; 0 is before all of them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct CutNumber(pub u64);

/// Replicas that share an image: a source, and its descendants since a cut.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct ImageGroup {
    /// Replicas with the image.
    pub members: ReplicaSet,
    /// The cut at which the image was taken.
    pub cut: CutNumber,
}

/// The image groups of one sphere; see the module.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Kinship {
    /// Larger ones first: a image group comes after those that contain it.
    #[serde(rename = "clades")]
    image_groups: Vec<ImageGroup>,
    /// The last comparison of memory that found the sphere's lineages equal.
    proven: CutNumber,
}

impl Kinship {
    /// The image groups, larger ones first.
    #[must_use]
    pub fn image_groups(&self) -> &[ImageGroup] {
        &self.image_groups
    }

    /// Returns true if there are no image groups: each replica weighs one.
    #[must_use]
    #[inline]
    pub fn is_trivial(&self) -> bool {
        self.image_groups.is_empty()
    }

    /// Number of independent faults that make all of `agreeing` wrong in the same way, among the `counting` replicas.
    /// Each largest image group within the set counts once, and each other replica counts once.
    #[must_use]
    pub fn weight(&self, agreeing: ReplicaSet, counting: ReplicaSet) -> usize {
        let mut left = agreeing.intersection(counting);
        let mut group_count = 0;
        for image_group in &self.image_groups {
            let members = image_group.members.intersection(counting);
            if !members.is_empty() && members.is_subset(left) {
                left = left.without(members);
                group_count += 1;
            }
        }
        group_count + left.len()
    }

    /// Returns true if these are several replicas and one unproven image is in all of them.
    #[must_use]
    pub fn is_one_lineage(&self, replicas: ReplicaSet) -> bool {
        replicas.len() > 1 && self.image_groups.iter().any(|image_group| replicas.is_subset(image_group.members))
    }

    /// Live members of the largest image group that a replica belongs to; 1 when it is in none.
    #[must_use]
    pub fn relatives(&self, replica: ReplicaIndex, live: ReplicaSet) -> usize {
        let its = self.image_groups.iter().filter(|image_group| image_group.members.contains(replica));
        its.map(|image_group| image_group.members.intersection(live).len()).max().unwrap_or(1).max(1)
    }

    /// The latest cut or comparison known here.
    #[must_use]
    pub fn latest_cut(&self) -> CutNumber {
        self.image_groups.iter().map(|image_group| image_group.cut).max().unwrap_or_default().max(self.proven)
    }

    /// Enters `copy` at its place, with the memory that `source` had at `cut`.
    pub fn join(&mut self, source: ReplicaIndex, copy: ReplicaIndex, cut: CutNumber) {
        self.vacate(copy);
        if cut <= self.proven {
            // The source was compared since, and with it all its memory of the cut.
            return self.arrange();
        }
        // Copies of the same source that were cut later are closer to it.
        let mut near = ReplicaSet::only(source);
        for image_group in self.image_groups.iter_mut().filter(|image_group| image_group.members.contains(source)) {
            if image_group.cut <= cut {
                image_group.members.insert(copy);
            } else {
                near = near.union(image_group.members);
            }
        }
        near.insert(copy);
        self.image_groups.push(ImageGroup { members: near, cut });
        self.arrange();
    }

    /// Removes the previous replica of a place from all image groups.
    pub fn vacate(&mut self, place: ReplicaIndex) {
        self.image_groups.iter_mut().for_each(|image_group| image_group.members.remove(place));
        self.arrange();
    }

    /// Enters a comparison of the memory of `compared`, at a point of the program after `at`. The memory split along
    /// the lines of the image groups in `suspect` only. A image group stays if it is suspect, if all or none of the
    /// compared replicas are in it, or if its cut is later.
    pub fn prove(&mut self, compared: ReplicaSet, suspect: &[ReplicaSet], at: CutNumber) {
        let is_open = |image_group: &ImageGroup| {
            let inside = image_group.members.intersection(compared);
            let outside = compared.without(image_group.members);
            inside.is_empty() || outside.is_empty() || image_group.cut > at || suspect.contains(&inside)
        };
        self.image_groups.retain(is_open);
        if suspect.is_empty() {
            self.proven = self.proven.max(at);
        }
    }

    /// Dissolves all image groups: others have vouched for the images.
    pub(crate) fn settle(&mut self) {
        self.proven = self.latest_cut();
        self.image_groups.clear();
    }

    /// Restores the order, larger image groups first, and drops image groups without relatives.
    fn arrange(&mut self) {
        self.image_groups.retain(|image_group| image_group.members.len() > 1);
        // Of two image groups with the same members the later one is their latest common image.
        self.image_groups.sort_by_key(|image_group| {
            (Reverse(image_group.members.len()), image_group.members, Reverse(image_group.cut))
        });
        self.image_groups.dedup_by_key(|image_group| image_group.members);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(indices: &[u16]) -> ReplicaSet {
        indices.iter().copied().map(ReplicaIndex).collect()
    }

    fn copied(copies: &[(u16, u16)]) -> Kinship {
        let mut kinship = Kinship::default();
        for (number, (source, copy)) in (1..).zip(copies) {
            kinship.join(ReplicaIndex(*source), ReplicaIndex(*copy), CutNumber(number));
        }
        kinship
    }

    fn image_groups(kinship: &Kinship) -> Vec<Vec<u16>> {
        kinship
            .image_groups()
            .iter()
            .map(|image_group| image_group.members.iter().map(|index| index.0).collect())
            .collect()
    }

    #[test]
    fn without_copies_each_replica_weighs_one() {
        assert_eq!(Kinship::default().weight(set(&[0, 2]), set(&[0, 1, 2])), 2);
        assert_eq!(Kinship::default().weight(set(&[0, 2]), set(&[0, 1])), 1);
    }

    /// One of them and a replica of another lineage count two.
    #[test]
    fn a_copy_and_its_source_count_once_when_they_agree() {
        let kinship = copied(&[(2, 1)]);
        let all = set(&[0, 1, 2]);
        assert_eq!([set(&[1, 2]), set(&[0]), set(&[0, 1]), all].map(|votes| kinship.weight(votes, all)), [1, 1, 2, 2]);
    }

    /// 2 is copied to 1 and later to 3: a fault of 2 between the cuts is in 2 and 3.
    #[test]
    fn image_groups_nest_in_the_order_of_the_cuts() {
        let kinship = copied(&[(2, 1), (2, 3)]);
        assert_eq!(image_groups(&kinship), [vec![1, 2, 3], vec![2, 3]]);
        let all = set(&[1, 2, 3]);
        assert_eq!([set(&[1, 3]), set(&[2, 3]), set(&[1])].map(|votes| kinship.weight(votes, all)), [2, 1, 1]);
        assert!(kinship.is_one_lineage(all) && !kinship.is_one_lineage(set(&[0, 1, 2])));
    }

    /// A copy that stood ready is older than a copy made since, though it joins later.
    #[test]
    fn a_copy_that_was_cut_earlier_is_farther_from_its_source() {
        let mut kinship = Kinship::default();
        let [source, older, newer] = [0, 2, 1].map(ReplicaIndex);
        kinship.join(source, newer, CutNumber(2));
        kinship.join(source, older, CutNumber(1));
        assert_eq!(image_groups(&kinship), [vec![0, 1, 2], vec![0, 1]]);
    }

    #[test]
    fn who_has_died_is_kin_until_the_place_is_taken() {
        let mut kinship = copied(&[(2, 1)]);
        assert_eq!(image_groups(&kinship), [[1, 2]]);
        kinship.join(ReplicaIndex(0), ReplicaIndex(2), CutNumber(2));
        assert_eq!(image_groups(&kinship), [[0, 2]]);
    }

    #[test]
    fn comparisons_with_outsiders_alone_dissolve_an_image_group() {
        let mut kinship = copied(&[(2, 1)]);
        kinship.prove(set(&[1, 2]), &[], CutNumber(2));
        assert_eq!(image_groups(&kinship), [[1, 2]]);
        kinship.prove(set(&[0, 1, 2]), &[set(&[1, 2])], CutNumber(2));
        assert_eq!(image_groups(&kinship), [[1, 2]], "pages differ along its lines");
        kinship.prove(set(&[0, 2]), &[], CutNumber(0));
        assert_eq!(image_groups(&kinship), [[1, 2]], "it was cut after that");
        kinship.prove(set(&[0, 2]), &[], CutNumber(2));
        assert!(kinship.is_trivial());
        kinship.join(ReplicaIndex(2), ReplicaIndex(1), CutNumber(2));
        assert!(kinship.is_trivial(), "it was cut before the comparison");
    }
}
