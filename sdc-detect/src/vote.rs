//! Votes of a sender's replicas on one message → verdict.
//!
//! | payload as it arrived | supplier's claim | the others' claims | verdict |
//! |---|---|---|---|
//! | A | A | all A | unanimous |
//! | B | A | any | transport corrupt: the supplier itself means another payload |
//! | A | A | most A, some B | replica corrupt: the replicas that claim B |
//! | B | B | most A | replica corrupt: the supplier, and the others that do not claim A |
//! | A | A | no majority | undecidable |
//!
//! A majority has more than half of the weight of all votes. Without copies each replica weighs one. Replicas that
//! share an image which nothing has vouched for ([`Kinship`]) weigh one together while they agree: one fault in that
//! image explains all of them. So a copy and its source never outvote a replica that has nothing in common with them,
//! and a named replica is contradicted by more faults than its own.

use redrt_types::{Digest, Kinship, ReplicaIndex, ReplicaSet};

/// One replica's statement of a message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Vote {
    /// The replica of the sending sphere.
    pub replica: ReplicaIndex,
    /// Its digest of the message.
    pub digest: Digest,
    /// The processor that it was sent from; `None` when the vote does not say.
    pub core: Option<u16>,
}

/// The conclusion on one message.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Verdict {
    /// All agree, the payload included.
    Unanimous,
    /// A majority agrees; the others are corrupt. The payload is right exactly if its digest is `agreed`.
    ReplicaCorrupt {
        /// The outvoted replicas, by index.
        culprits: Vec<ReplicaIndex>,
        /// Digest of the majority.
        agreed: Digest,
    },
    /// The payload differs from its supplier's own claim: it must be fetched again.
    TransportCorrupt,
    /// The replicas differ and there is no majority.
    Undecidable,
}

/// Judges the payload that `supplier` sent, whose digest on arrival is `computed`, by the votes that count; the
/// supplier's own is among them.
///
/// # Panics
/// When the supplier has not voted: its claim travels beside the payload.
#[must_use]
pub fn judge(computed: Digest, supplier: ReplicaIndex, votes: &[Vote], kinship: &Kinship) -> Verdict {
    let claim = votes.iter().find(|vote| vote.replica == supplier);
    let claim = claim.unwrap_or_else(|| panic!("supplier {supplier:?} is not among {votes:?}")).digest;
    if computed != claim {
        return Verdict::TransportCorrupt;
    }
    if votes.iter().all(|vote| vote.digest == claim) {
        return Verdict::Unanimous;
    }
    let votes_by_digest: Vec<_> = votes.iter().map(|vote| (vote.replica, vote.digest)).collect();
    match agreed(&votes_by_digest, kinship).copied() {
        Some(agreed) => {
            let mut culprits: Vec<_> =
                votes.iter().filter(|vote| vote.digest != agreed).map(|vote| vote.replica).collect();
            culprits.sort_unstable();
            Verdict::ReplicaCorrupt { culprits, agreed }
        }
        None => Verdict::Undecidable,
    }
}

/// The value that holds more than half of the weight of all votes; `None` when no value does.
#[must_use]
pub fn agreed<'a, T: PartialEq>(votes: &'a [(ReplicaIndex, T)], kinship: &Kinship) -> Option<&'a T> {
    let counting: ReplicaSet = votes.iter().map(|(replica, _)| *replica).collect();
    let mut sides: Vec<(&T, usize)> = Vec::new();
    for (_, says) in votes {
        if !sides.iter().any(|(other, _)| *other == says) {
            let agreeing = votes.iter().filter(|(_, other)| other == says).map(|(replica, _)| *replica).collect();
            sides.push((says, kinship.weight(agreeing, counting)));
        }
    }
    let total: usize = sides.iter().map(|(_, weight)| weight).sum();
    sides.into_iter().find(|(_, weight)| weight * 2 > total).map(|(says, _)| says)
}
