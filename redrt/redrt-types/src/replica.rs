//! Identities: virtual ranks, replicas, incarnations, and the world that lists them.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The rank that the application sees in `MPI_COMM_WORLD`, 0..n.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct VirtualRank(pub u32);

impl fmt::Display for VirtualRank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A process's place in its sphere, 0..r. All replicas of one index form a plane.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct ReplicaIndex(pub u16);

/// Counts the lives of one replica: a clone that takes the place of a dead replica has the next one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct Incarnation(pub u32);

/// One place in the job, written `V.I`: replica I of virtual rank V.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct ReplicaId {
    /// The virtual rank.
    pub rank: VirtualRank,
    /// The index within the sphere.
    pub index: ReplicaIndex,
}

impl ReplicaId {
    /// Replica `index` of virtual rank `rank`.
    #[must_use]
    pub fn new(rank: u32, index: u16) -> Self {
        Self { rank: VirtualRank(rank), index: ReplicaIndex(index) }
    }
}

impl fmt::Display for ReplicaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.rank.0, self.index.0)
    }
}

/// Error for a text that is not of the form `V.I`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParseReplicaError(String);

impl fmt::Display for ParseReplicaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}' is not a replica: expected RANK.INDEX, for example 3.1", self.0)
    }
}

impl std::error::Error for ParseReplicaError {}

impl FromStr for ReplicaId {
    type Err = ParseReplicaError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let (rank, index) = text.split_once('.')?;
            Some(Self::new(rank.parse().ok()?, index.parse().ok()?))
        };
        parse().ok_or_else(|| ParseReplicaError(text.to_owned()))
    }
}

/// Dense number of a process in the job: replicas ordered by virtual rank, then index. Also its slot in the host's
/// shared memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct ProcessIndex(pub u32);

/// Shape of the job at launch: the degree of each virtual rank. Encoded as the list of degrees.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "Vec<u16>", into = "Vec<u16>")]
pub struct World {
    degrees: Vec<u16>,
    offsets: Vec<u32>,
    /// By dense number: each frame received needs a look-up.
    replicas: Vec<ReplicaId>,
}

/// Error for degrees that no world has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WorldError;

impl fmt::Display for WorldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a world has one rank or more, each of 1 to {} replicas", World::DEGREE_MAX)
    }
}

impl std::error::Error for WorldError {}

impl TryFrom<Vec<u16>> for World {
    type Error = WorldError;

    fn try_from(degrees: Vec<u16>) -> Result<Self, WorldError> {
        let are_sound = !degrees.is_empty()
            && degrees.len() <= Self::RANK_COUNT_MAX as usize
            && degrees.iter().all(|degree| (1..=Self::DEGREE_MAX).contains(degree));
        if are_sound { Ok(Self::new(degrees)) } else { Err(WorldError) }
    }
}

impl From<World> for Vec<u16> {
    fn from(world: World) -> Self {
        world.degrees
    }
}

impl World {
    /// Bound on a degree: sets of replicas have 64 bits.
    pub const DEGREE_MAX: u16 = 64;
    /// Bound on the ranks of a job.
    pub const RANK_COUNT_MAX: u32 = 1 << 20;

    /// A world with one virtual rank per element, each element its degree (1 or more).
    ///
    /// # Panics
    /// When `degrees` is empty or holds a 0: the launcher has checked both.
    #[must_use]
    pub fn new(degrees: Vec<u16>) -> Self {
        assert!(
            !degrees.is_empty() && degrees.iter().all(|degree| *degree > 0),
            "degrees must be positive: {degrees:?}"
        );
        let mut offsets = Vec::with_capacity(degrees.len() + 1);
        let mut total = 0;
        for degree in &degrees {
            offsets.push(total);
            total += u32::from(*degree);
        }
        offsets.push(total);
        let sphere = |(rank, degree): (usize, &u16)| (0..*degree).map(move |index| ReplicaId::new(rank as u32, index));
        let replicas = degrees.iter().enumerate().flat_map(sphere).collect();
        Self { degrees, offsets, replicas }
    }

    /// A world of `rank_count` virtual ranks of the same degree.
    #[must_use]
    pub fn uniform(rank_count: u32, degree: u16) -> Self {
        Self::new(vec![degree; rank_count as usize])
    }

    /// Number of virtual ranks.
    #[must_use]
    pub fn rank_count(&self) -> u32 {
        self.degrees.len() as u32
    }

    /// Number of processes over all virtual ranks.
    #[must_use]
    pub fn process_count(&self) -> u32 {
        *self.offsets.last().expect("offsets has rank_count + 1 elements")
    }

    /// Degree of one virtual rank.
    #[must_use]
    #[inline]
    pub fn degree(&self, rank: VirtualRank) -> u16 {
        self.degrees[rank.0 as usize]
    }

    /// The largest degree of any virtual rank: the number of planes.
    #[must_use]
    pub fn max_degree(&self) -> u16 {
        self.degrees.iter().copied().max().expect("a world has at least one rank")
    }

    /// Returns true if any virtual rank has more than one replica.
    #[must_use]
    pub fn is_replicated(&self) -> bool {
        self.max_degree() > 1
    }

    /// Returns true if the replica is in this world.
    #[must_use]
    pub fn contains(&self, replica: ReplicaId) -> bool {
        self.degrees.get(replica.rank.0 as usize).is_some_and(|degree| replica.index.0 < *degree)
    }

    /// Dense number of a replica.
    ///
    /// # Panics
    /// In debug builds, when there is no such replica; otherwise the number is wrong. Check replicas from outside with
    /// [`contains`](Self::contains) first.
    #[must_use]
    #[inline]
    pub fn process(&self, replica: ReplicaId) -> ProcessIndex {
        debug_assert!(self.contains(replica), "{replica} is not in this world");
        ProcessIndex(self.offsets[replica.rank.0 as usize] + u32::from(replica.index.0))
    }

    /// The replica with this dense number, which is less than [`process_count`](Self::process_count).
    #[must_use]
    #[inline]
    pub fn replica(&self, process: ProcessIndex) -> ReplicaId {
        self.replicas[process.0 as usize]
    }

    /// All replicas of one virtual rank, by index.
    pub fn sphere(&self, rank: VirtualRank) -> impl Iterator<Item = ReplicaId> + use<> {
        (0..self.degree(rank)).map(move |index| ReplicaId::new(rank.0, index))
    }

    /// All replicas, by dense number.
    pub fn replicas(&self) -> impl Iterator<Item = ReplicaId> + '_ {
        self.replicas.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dense_numbers_and_replicas_are_inverse() {
        let world = World::new(vec![2, 1, 3]);
        let all: Vec<_> = world.replicas().collect();
        assert_eq!(all.len() as u32, world.process_count());
        for (number, replica) in all.iter().enumerate() {
            assert_eq!(world.process(*replica), ProcessIndex(number as u32));
            assert_eq!(world.replica(ProcessIndex(number as u32)), *replica);
        }
    }

    #[test]
    fn only_sound_degrees_make_a_world() {
        assert_eq!(World::try_from(vec![2, 1]), Ok(World::new(vec![2, 1])));
        for wrong in [vec![], vec![1, 0], vec![65]] {
            assert_eq!(World::try_from(wrong), Err(WorldError));
        }
    }

    #[test]
    fn replica_text_round_trips_and_rejects_rubbish() {
        assert_eq!("3.1".parse(), Ok(ReplicaId::new(3, 1)));
        assert_eq!(ReplicaId::new(3, 1).to_string(), "3.1");
        for bad in ["", "3", "3.", ".1", "3.1.2", "a.b", "-1.0", "3.70000"] {
            assert!(bad.parse::<ReplicaId>().is_err(), "{bad}");
        }
    }
}
