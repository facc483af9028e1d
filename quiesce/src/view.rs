//! Supplier and service as pure functions of a view, with the same result in every process.

use redrt_types::{ReplicaId, ReplicaIndex, ReplicaSet, VirtualRank, World};

/// The service of a replica of the sender for a replica of the receiver.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub enum Service {
    /// Sends nothing to it.
    None,
    /// Sends a digest of each message.
    Digests,
    /// Sends each message to it.
    Payload,
}

/// The way in which payloads are compared.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub enum Protocol {
    /// One replica of the sender sends the payload, the others a digest.
    Hash,
    /// Every replica of the sender sends the payload.
    AllToAll,
}

/// The replica of `sender` that supplies replica `index` of any receiver. It is the one in the same plane if that is
/// live, else the next live one after it, cyclically. A plane beyond the sender's degree counts as its index modulo
/// that degree. `None` when the sphere is lost.
#[must_use]
pub fn supplier(world: &World, live: ReplicaSet, sender: VirtualRank, index: ReplicaIndex) -> Option<ReplicaIndex> {
    let degree = world.degree(sender);
    (0..degree).map(|offset| ReplicaIndex((index.0 + offset) % degree)).find(|place| live.contains(*place))
}

/// The service of replica `server` for replica `index` of any receiver.
#[must_use]
pub fn service(world: &World, live: ReplicaSet, protocol: Protocol, server: ReplicaId, index: ReplicaIndex) -> Service {
    if !live.contains(server.index) {
        Service::None
    } else if protocol == Protocol::AllToAll || supplier(world, live, server.rank, index) == Some(server.index) {
        Service::Payload
    } else {
        Service::Digests
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redrt_types::{Admission, CutNumber, Incarnation, View};

    fn set(indices: &[u16]) -> ReplicaSet {
        indices.iter().copied().map(ReplicaIndex).collect()
    }

    #[test]
    fn supplier_is_the_same_plane_then_the_next_cyclically() {
        let world = World::new(vec![3, 2]);
        let supplied =
            |live: &[u16], index| supplier(&world, set(live), VirtualRank(0), ReplicaIndex(index)).map(|r| r.0);
        assert_eq!([0, 1, 2].map(|index| supplied(&[0, 1, 2], index)), [Some(0), Some(1), Some(2)]);
        assert_eq!([0, 1, 2].map(|index| supplied(&[0, 2], index)), [Some(0), Some(2), Some(2)]);
        assert_eq!([0, 1, 2].map(|index| supplied(&[0, 1], index)), [Some(0), Some(1), Some(0)]);
        assert_eq!([0, 1, 2].map(|index| supplied(&[], index)), [None; 3]);
        assert_eq!(supplier(&world, set(&[0, 1]), VirtualRank(1), ReplicaIndex(2)), Some(ReplicaIndex(0)));
    }

    #[test]
    fn each_receiver_has_exactly_one_supplier_of_all_live_replicas() {
        let world = World::uniform(1, 4);
        for mask in 1..16_u16 {
            let live: ReplicaSet = (0..4).filter(|bit| mask & (1 << bit) != 0).map(ReplicaIndex).collect();
            for index in (0..4).map(ReplicaIndex) {
                let services: Vec<_> = world
                    .sphere(VirtualRank(0))
                    .map(|server| service(&world, live, Protocol::Hash, server, index))
                    .collect();
                assert_eq!(services.iter().filter(|s| **s == Service::Payload).count(), 1);
                assert_eq!(services.iter().filter(|s| **s != Service::None).count(), live.len());
            }
        }
    }

    #[test]
    fn a_join_never_moves_the_leader() {
        let world = World::uniform(1, 3);
        let rank = VirtualRank(0);
        let first = View::initial(&world);
        assert_eq!(first.leader(rank), Some(ReplicaId::new(0, 0)));
        let lost = first.without(&[ReplicaId::new(0, 0)]);
        assert_eq!(lost.leader(rank), Some(ReplicaId::new(0, 1)));
        let joined = lost.with(Admission {
            replica: ReplicaId::new(0, 0),
            incarnation: Incarnation(1),
            source: ReplicaIndex(1),
            cut: CutNumber(1),
        });
        assert_eq!(joined.leader(rank), Some(ReplicaId::new(0, 1)));
    }
}
