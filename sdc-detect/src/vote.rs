//! What the replicas of a sender say of one message → verdict.
//!
//! | payload as it arrived | supplier's claim | the others' claims | verdict |
//! |---|---|---|---|
//! | A | A | all A | unanimous |
//! | B | A | any | transport corrupt: the supplier itself means another payload |
//! | A | A | most A, some B | replica corrupt: those who say B |
//! | B | B | most A | replica corrupt: the supplier, and others who do not say A |
//! | A | A | no majority | undecidable |
//!
//! A majority is more than half of the votes that count. An *echo* does not: it is the vote of an arbiter, a copy that joined because the
//! others differ, that says what the replica says of which it is a copy. What was wrong in that one when it was copied is wrong in both,
//! so counted twice it could outvote the right side. An arbiter that contradicts its own original counts: then two that have nothing in
//! common since before the copies agree, or all is open.

use crate::tally::ReplicaSet;
use redrt_types::{Digest, ReplicaIndex};

/// What one replica says a message is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Vote {
    /// The replica of the sending sphere.
    pub replica: ReplicaIndex,
    /// Its digest of the message.
    pub digest: Digest,
    /// The processor that it was sent from, where the vote tells.
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
        /// What the majority says.
        agreed: Digest,
    },
    /// The payload is not what its supplier says it sent: it must be fetched again.
    TransportCorrupt,
    /// The replicas differ and there is no majority.
    Undecidable,
}

/// Judges the payload that `supplier` sent, whose digest on arrival is `computed`, by the votes that count; the
/// supplier's own is among them. `echoes` makes no majority.
///
/// # Panics
/// When the supplier has not voted: its claim travels beside the payload.
#[must_use]
pub fn judge(computed: Digest, supplier: ReplicaIndex, votes: &[Vote], echoes: ReplicaSet) -> Verdict {
    let claim = votes.iter().find(|vote| vote.replica == supplier);
    let claim = claim.unwrap_or_else(|| panic!("supplier {supplier:?} is not among {votes:?}")).digest;
    if computed != claim {
        return Verdict::TransportCorrupt;
    }
    if votes.iter().all(|vote| vote.digest == claim) {
        return Verdict::Unanimous;
    }
    let heard = || votes.iter().filter(|vote| !echoes.contains(vote.replica));
    let count = |digest| heard().filter(|vote| vote.digest == digest).count();
    match heard().find(|vote| count(vote.digest) * 2 > heard().count()) {
        Some(&Vote { digest: agreed, .. }) => {
            let mut culprits: Vec<_> =
                votes.iter().filter(|vote| vote.digest != agreed).map(|vote| vote.replica).collect();
            culprits.sort_unstable();
            Verdict::ReplicaCorrupt { culprits, agreed }
        }
        None => Verdict::Undecidable,
    }
}
