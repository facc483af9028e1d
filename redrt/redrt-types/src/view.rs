//! The numbered membership: the replica incarnations that are live.

use crate::{CutNumber, Incarnation, Kinship, ReplicaId, ReplicaIndex, ReplicaSet, VirtualRank, World};
use serde::{Deserialize, Serialize};

/// Number of a view; each change of membership makes the next one. Only the root makes views.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct ViewNumber(pub u64);

/// One live replica in a view.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Member {
    /// The member's incarnation; frames of another one are refused.
    pub incarnation: Incarnation,
    /// The view in which this incarnation joined. The leader of a sphere is the live replica with the smallest
    /// (joined, index), so that a join never moves it.
    pub joined: ViewNumber,
    /// The sibling that an arbiter, a copy that joined because its siblings differ, is a copy of; `None` for other
    /// members.
    pub origin: Option<Origin>,
}

/// The replica of its rank that an arbiter is a copy of.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Origin {
    /// Place of that replica.
    pub index: ReplicaIndex,
    /// Incarnation of that replica at the cut.
    pub incarnation: Incarnation,
}

/// The membership of the job at one view number: for every place in the world, its live member or `None`.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct View {
    /// The number of this view.
    pub number: ViewNumber,
    spheres: Vec<Vec<Option<Member>>>,
    /// Descent of each rank's replicas, by rank.
    kinship: Vec<Kinship>,
}

/// A copy that takes a place in a view.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Admission {
    /// The place that it takes.
    pub replica: ReplicaId,
    /// Its incarnation there.
    pub incarnation: Incarnation,
    /// The sibling that it is a copy of.
    pub source: ReplicaIndex,
    /// The cut of its image.
    pub cut: CutNumber,
}

impl View {
    /// The first view: every place of the world is live in its incarnation 0.
    #[must_use]
    pub fn initial(world: &World) -> Self {
        let first = Member { incarnation: Incarnation(0), joined: ViewNumber(0), origin: None };
        let spheres: Vec<_> = (0..world.rank_count())
            .map(|rank| vec![Some(first); usize::from(world.degree(VirtualRank(rank)))])
            .collect();
        Self { number: ViewNumber(0), kinship: vec![Kinship::default(); spheres.len()], spheres }
    }

    /// The first view of a world with more places than replicas. The first `degrees` places of each rank are live, in
    /// incarnation 0; the others are free.
    #[must_use]
    pub fn with_degrees(world: &World, degrees: &[u16]) -> Self {
        let mut view = Self::initial(world);
        for (sphere, degree) in view.spheres.iter_mut().zip(degrees) {
            sphere.iter_mut().skip(usize::from(*degree)).for_each(|place| *place = None);
        }
        view
    }

    /// The live member at a place; `None` for a free place.
    #[must_use]
    pub fn member(&self, replica: ReplicaId) -> Option<Member> {
        *self.spheres.get(replica.rank.0 as usize)?.get(usize::from(replica.index.0))?
    }

    /// Returns true if this can be a view of that world: it has no other places.
    #[must_use]
    pub fn fits(&self, world: &World) -> bool {
        let degrees = (0..world.rank_count()).map(|rank| usize::from(world.degree(VirtualRank(rank))));
        self.rank_count() == world.rank_count()
            && self.kinship.len() == self.spheres.len()
            && self.spheres.iter().map(Vec::len).zip(degrees).all(|(has, may)| has <= may)
    }

    /// Returns true if the place has a live member.
    #[must_use]
    pub fn is_live(&self, replica: ReplicaId) -> bool {
        self.member(replica).is_some()
    }

    /// The live replicas of one virtual rank, by index.
    pub fn live(&self, rank: VirtualRank) -> impl DoubleEndedIterator<Item = ReplicaId> + '_ {
        let members = self.spheres.get(rank.0 as usize).map_or(&[][..], Vec::as_slice);
        let live =
            move |(index, member): (usize, &Option<Member>)| member.map(|_| ReplicaId::new(rank.0, index as u16));
        members.iter().enumerate().filter_map(live)
    }

    /// The leader of a rank: its longest-serving live replica, ties by index. A join never moves it.
    #[must_use]
    pub fn leader(&self, rank: VirtualRank) -> Option<ReplicaId> {
        self.live(rank).min_by_key(|replica| (self.member(*replica).map(|member| member.joined), replica.index))
    }

    /// The live replicas of one virtual rank, as a set.
    #[must_use]
    pub fn live_set(&self, rank: VirtualRank) -> ReplicaSet {
        self.live(rank).map(|replica| replica.index).collect()
    }

    /// The descent of a rank's replicas: those that share a memory image which nothing has vouched for.
    ///
    /// # Panics
    /// When the world has no such rank.
    #[must_use]
    #[inline]
    pub fn kinship(&self, rank: VirtualRank) -> &Kinship {
        &self.kinship[rank.0 as usize]
    }

    /// Number of live replicas of one virtual rank.
    #[must_use]
    pub fn degree(&self, rank: VirtualRank) -> u16 {
        self.live(rank).count() as u16
    }

    /// Numbers of live replicas of all virtual ranks, in order.
    #[must_use]
    pub fn degrees(&self) -> Vec<u16> {
        (0..self.rank_count()).map(|rank| self.degree(VirtualRank(rank))).collect()
    }

    /// Number of virtual ranks.
    #[must_use]
    pub fn rank_count(&self) -> u32 {
        self.spheres.len() as u32
    }

    /// The next view, in which the `lost` replicas are not live.
    #[must_use]
    pub fn without(&self, lost: &[ReplicaId]) -> Self {
        let mut next = self.clone();
        next.number.0 += 1;
        for replica in lost {
            next.spheres[replica.rank.0 as usize][usize::from(replica.index.0)] = None;
        }
        next
    }

    /// The next view, in which a copy is live.
    #[must_use]
    pub fn with(&self, copy: Admission) -> Self {
        let mut next = self.clone();
        next.number.0 += 1;
        next.admit(copy, None);
        next
    }

    /// The next view, with which a job goes on from images, one of each rank: only the loaded replicas are live. Each
    /// is loaded from the image of the sibling that it names. That sibling leads, as it did: only it knows which
    /// effects outside the job it was about to have.
    #[must_use]
    pub fn of_images(&self, loaded: &[Admission]) -> Self {
        let mut next = self.clone();
        next.number.0 += 1;
        next.spheres.iter_mut().for_each(|sphere| sphere.fill(None));
        for copy in loaded {
            if copy.source == copy.replica.index {
                let joined = self.member(copy.replica).map_or(next.number, |member| member.joined);
                next.enter(copy.replica, Member { incarnation: copy.incarnation, joined, origin: None });
            } else {
                next.admit(*copy, None);
            }
        }
        next
    }

    /// The next view, as [`Self::of_images`], with images that replicas of other lineages have vouched for: what was
    /// corrupt in them would have shown. So all replicas count as independent.
    #[must_use]
    pub fn of_proven_images(&self, loaded: &[Admission]) -> Self {
        let mut next = self.of_images(loaded);
        next.kinship.iter_mut().for_each(Kinship::settle);
        next
    }

    /// The latest cut in the view.
    #[must_use]
    pub fn latest_cut(&self) -> CutNumber {
        self.kinship.iter().map(Kinship::latest_cut).max().unwrap_or_default()
    }

    /// The next view, in which each of these copies of live siblings is live as an arbiter.
    ///
    /// # Panics
    /// When one of the siblings is not live.
    #[must_use]
    pub fn with_arbiters(&self, arbiters: &[Admission]) -> Self {
        let mut next = self.clone();
        next.number.0 += 1;
        for copy in arbiters {
            let source = ReplicaId { rank: copy.replica.rank, index: copy.source };
            let life = self.member(source);
            let life = life.unwrap_or_else(|| panic!("{source}, whose copy {} is, is not live", copy.replica));
            next.admit(*copy, Some(Origin { index: copy.source, incarnation: life.incarnation }));
        }
        next
    }

    /// The next view, after a comparison of the memory of a rank's replicas; see [`Kinship::prove`].
    #[must_use]
    pub fn with_proof(&self, rank: VirtualRank, compared: ReplicaSet, suspect: &[ReplicaSet], at: CutNumber) -> Self {
        let mut next = self.clone();
        next.number.0 += 1;
        next.kinship[rank.0 as usize].prove(compared, suspect, at);
        next
    }

    fn admit(&mut self, copy: Admission, origin: Option<Origin>) {
        self.kinship[copy.replica.rank.0 as usize].join(copy.source, copy.replica.index, copy.cut);
        self.enter(copy.replica, Member { incarnation: copy.incarnation, joined: self.number, origin });
    }

    fn enter(&mut self, replica: ReplicaId, member: Member) {
        let sphere = &mut self.spheres[replica.rank.0 as usize];
        let place = usize::from(replica.index.0);
        if sphere.len() <= place {
            sphere.resize(place + 1, None);
        }
        sphere[place] = Some(member);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arbiter_is_known_by_the_life_that_it_is_a_copy_of() {
        let world = World::new(vec![4]);
        let view = View::with_degrees(&world, &[2]).with_arbiters(&[
            Admission {
                replica: ReplicaId::new(0, 2),
                incarnation: Incarnation(1),
                source: ReplicaIndex(0),
                cut: CutNumber(1),
            },
            Admission {
                replica: ReplicaId::new(0, 3),
                incarnation: Incarnation(1),
                source: ReplicaIndex(1),
                cut: CutNumber(2),
            },
        ]);
        let member = view.member(ReplicaId::new(0, 3)).unwrap();
        assert_eq!((view.number, member.joined, view.degree(VirtualRank(0))), (ViewNumber(1), ViewNumber(1), 4));
        assert_eq!(member.origin, Some(Origin { index: ReplicaIndex(1), incarnation: Incarnation(0) }));
        assert_eq!(view.member(ReplicaId::new(0, 1)).unwrap().origin, None);
    }

    #[test]
    fn who_is_loaded_from_one_image_is_kin_and_nobody_else_lives() {
        let world = World::new(vec![3, 2]);
        let loaded = |rank, source, index| Admission {
            replica: ReplicaId::new(rank, index),
            incarnation: Incarnation(4),
            source: ReplicaIndex(source),
            cut: CutNumber(6),
        };
        let view = View::initial(&world).without(&[ReplicaId::new(0, 1)]);
        let next = view.of_images(&[loaded(0, 2, 2), loaded(0, 2, 1), loaded(1, 0, 0)]);
        let live: Vec<_> = (0..2).flat_map(|rank| next.live(VirtualRank(rank)).collect::<Vec<_>>()).collect();
        assert_eq!(live, [ReplicaId::new(0, 1), ReplicaId::new(0, 2), ReplicaId::new(1, 0)]);
        assert_eq!((next.number, next.latest_cut(), view.latest_cut()), (ViewNumber(2), CutNumber(6), CutNumber(0)));
        assert_eq!(next.leader(VirtualRank(0)), Some(ReplicaId::new(0, 2)), "who was saved leads");
        assert!(next.kinship(VirtualRank(0)).is_one_lineage(next.live_set(VirtualRank(0))));
        assert!(next.kinship(VirtualRank(1)).is_trivial());
    }

    #[test]
    fn places_beyond_the_degree_are_free_until_somebody_joins() {
        let world = World::new(vec![3, 2]);
        let view = View::with_degrees(&world, &[2, 1]);
        let live = |view: &View| {
            let ranks = (0..2).map(VirtualRank);
            ranks.flat_map(|rank| view.live(rank).collect::<Vec<_>>()).map(|id| id.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(
            (live(&view), view.number, view.fits(&world)),
            (["0.0", "0.1", "1.0"].map(Into::into).to_vec(), ViewNumber(0), true)
        );
        let copy = Admission {
            replica: ReplicaId::new(1, 1),
            incarnation: Incarnation(1),
            source: ReplicaIndex(0),
            cut: CutNumber(1),
        };
        let next = view.with(copy).without(&[ReplicaId::new(1, 0)]);
        assert_eq!((live(&next), next.degree(VirtualRank(1))), (["0.0", "0.1", "1.1"].map(Into::into).to_vec(), 1));
        assert_eq!(View::with_degrees(&world, &[3, 2]), View::initial(&world));
    }
}
