//! Orders to the store of checkpoints, and which of them are unanswered.
//!
//! Each order has a number of its own, and its answer has the same. The trap: a store that was slow answers an order of
//! an attempt that was given up meanwhile, while another attempt waits for an answer of the same kind. The number tells
//! them apart, also in a coordinator that came back: it repeats its orders under their numbers.
//!
//! A repeated order is harmless: a checkpoint that is kept is not kept again, and a place that exists is made anew.

use super::contents::Contents;
use crate::mutation::{self, Mutation};
use checkpoint_store::{Manifest, StoredCheckpoint};
use redrt_wire::checkpoint::Generation;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Number of an order to the store, over all lives of the job.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct OrderNumber(pub u64);

/// An order to the store, which carries out one after another.
#[derive(Clone, Debug)]
pub struct StoreOrder {
    /// The number that the answer repeats.
    pub number: OrderNumber,
    /// The work that is ordered.
    pub work: StoreWork,
}

/// Work of the store.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum StoreWork {
    /// Make a place for the images of a checkpoint. Answered by [`StoreAnswer::Opened`].
    Open {
        /// Number of the checkpoint.
        generation: Generation,
        /// The checkpoint on which this one may be built: the newest. None if it must have all memory.
        basis: Option<Generation>,
    },
    /// Keep a checkpoint all of whose files are on disk. Answered by [`StoreAnswer::Kept`].
    Commit(Box<Contents>),
    /// Publish the manifest of a checkpoint, all of whose files are in the archive. Answered by
    /// [`StoreAnswer::Archived`].
    Archive(Box<Manifest>),
    /// Replace the manifest of a checkpoint that is proven by this one. Answered by [`StoreAnswer::Proven`].
    Prove(Box<Manifest>),
    /// Remove what is left of a checkpoint that was given up. Answered by [`StoreAnswer::Dropped`].
    Drop(Generation),
    /// Look for the newest usable checkpoint before this one, which cannot be loaded. Answered by
    /// [`StoreAnswer::Found`].
    FindOlder(Generation),
}

impl StoreWork {
    /// Number of the checkpoint.
    #[must_use]
    pub fn generation(&self) -> Generation {
        match self {
            Self::Open { generation, .. } | Self::Drop(generation) | Self::FindOlder(generation) => *generation,
            Self::Commit(contents) => contents.cut.taken.generation,
            Self::Archive(manifest) | Self::Prove(manifest) => manifest.generation,
        }
    }
}

/// The answer to an order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum StoreAnswer {
    /// There is a place for the images.
    Opened(Box<Opened>),
    /// The checkpoint is kept.
    Kept(Box<StoredCheckpoint>),
    /// The archive has the checkpoint, which is loaded from there like this.
    Archived(Box<StoredCheckpoint>),
    /// The checkpoint is recorded as proven.
    Proven,
    /// The order to open, to commit, to archive or to record a proof failed, for this reason.
    Failed(String),
    /// All earlier orders for the checkpoint are done. With it if it had been kept before.
    Dropped(Option<Box<StoredCheckpoint>>),
    /// The checkpoint that was looked for.
    Found {
        /// None if there is none.
        kept: Option<Box<StoredCheckpoint>>,
        /// The reasons why newer ones are not usable.
        passed_over: Vec<String>,
    },
}

impl StoreAnswer {
    fn fits(&self, work: &StoreWork) -> bool {
        match work {
            StoreWork::Open { .. } => matches!(self, Self::Opened(_) | Self::Failed(_)),
            StoreWork::Commit(_) => matches!(self, Self::Kept(_) | Self::Failed(_)),
            StoreWork::Archive(_) => matches!(self, Self::Archived(_) | Self::Failed(_)),
            StoreWork::Prove(_) => matches!(self, Self::Proven | Self::Failed(_)),
            StoreWork::Drop(_) => matches!(self, Self::Dropped(_)),
            StoreWork::FindOlder(_) => matches!(self, Self::Found { .. }),
        }
    }
}

/// A place for the images of a checkpoint.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Opened {
    /// Directory of the images, where hosts have no directories of their own.
    #[serde(with = "redrt_types::path_bytes")]
    pub directory: PathBuf,
    /// Checkpoints that stay beside it.
    pub beside: Vec<Generation>,
    /// The checkpoint that it may be built on.
    pub basis: Option<Box<Manifest>>,
    /// The key of encrypted images, sealed for daemons.
    #[serde(with = "serde_bytes")]
    pub sealed_key: Option<Vec<u8>>,
    /// Access to the object store, or to the archive, sealed for daemons.
    #[serde(with = "serde_bytes")]
    pub sealed_access: Option<Vec<u8>>,
}

/// The orders without an answer.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Orders {
    count: u64,
    unanswered: BTreeMap<OrderNumber, StoreWork>,
}

impl Orders {
    /// Orders that a coordinator which comes back repeats, since their work ended with the process of the one before.
    /// Of a checkpoint that was given up only the removal: it is answered with what has become of all others.
    pub fn to_repeat(&self) -> impl Iterator<Item = StoreOrder> + '_ {
        let is_dropped = |generation| self.unanswered.values().any(|work| is_drop_of(work, generation));
        let repeated =
            self.unanswered.iter().filter(move |(_, work)| !is_of_attempt(work) || !is_dropped(work.generation()));
        repeated.map(|(number, work)| StoreOrder { number: *number, work: work.clone() })
    }

    /// Adds an order.
    pub fn give(&mut self, work: StoreWork) -> StoreOrder {
        let number = OrderNumber(self.count);
        self.count += 1;
        self.unanswered.insert(number, work.clone());
        StoreOrder { number, work }
    }

    /// Takes out the order that this answers. None if it was answered before, or belongs to an earlier life.
    pub fn answered(&mut self, number: OrderNumber, answer: &StoreAnswer) -> Option<(OrderNumber, StoreWork)> {
        let is_answered = |(_, work): &(&OrderNumber, &StoreWork)| answer.fits(work);
        let newest = || self.unanswered.iter().rev().find(is_answered).map(|(number, _)| *number);
        let number = if mutation::is(Mutation::NumbersIgnored) { newest()? } else { number };
        self.unanswered.get(&number).filter(|work| answer.fits(work))?;
        let work = self.unanswered.remove(&number)?;
        if let StoreWork::Drop(generation) = work {
            self.unanswered.retain(|_, work| !is_of_attempt(work) || work.generation() != generation);
        }
        Some((number, work))
    }

    /// Drops all orders, because a life ends. Numbers go on.
    pub fn begin_life(&mut self) {
        self.unanswered.clear();
    }
}

/// True of an order that the removal of its checkpoint settles.
fn is_of_attempt(work: &StoreWork) -> bool {
    matches!(work, StoreWork::Open { .. } | StoreWork::Commit(_))
}

fn is_drop_of(work: &StoreWork, generation: Generation) -> bool {
    matches!(work, StoreWork::Drop(dropped) if *dropped == generation)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_answered_once_and_a_drop_settles_all_before() {
        let mut orders = Orders::default();
        let open = |generation| StoreWork::Open { generation: Generation(generation), basis: None };
        let first = orders.give(open(1)).number;
        let second = orders.give(StoreWork::Drop(Generation(1))).number;
        let third = orders.give(open(2)).number;
        assert_eq!(orders.to_repeat().map(|order| order.number).collect::<Vec<_>>(), [second, third]);
        let [failed, dropped] = [StoreAnswer::Failed("full".into()), StoreAnswer::Dropped(None)];
        assert!(orders.answered(second, &failed).is_none(), "a removal does not fail");
        assert!(orders.answered(second, &dropped).is_some() && orders.answered(second, &dropped).is_none());
        assert!(orders.answered(first, &failed).is_none(), "it was settled with the removal");
        orders.begin_life();
        assert!(orders.to_repeat().next().is_none() && orders.answered(third, &failed).is_none());
        assert!(orders.give(open(3)).number > third);
    }
}
