//! What a member says of a collective it calls: all that the others must agree with, and what a person reads.

use redrt_datatype::signature::Signature;
use serde::{Deserialize, Serialize};

/// One collective call, as one member makes it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Call {
    /// The function, with its `MPI_`.
    pub function: String,
    /// Its arguments in words.
    pub arguments: String,
    /// The root, if it has one.
    pub root: Option<Root>,
    /// The reduction, where it is significant.
    pub reduction: Option<u32>,
    /// What every member that takes part gives alike.
    pub alike: Option<Signature>,
    /// The counts of all members, which those of one group pass alike.
    pub shares: Option<Vec<i64>>,
    /// What it gives to others.
    pub gives: Pieces,
    /// What it expects of others.
    pub takes: Pieces,
}

/// The root argument.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Root {
    /// This rank, of the own group, or of the other if there are two.
    Rank(u32),
    /// `MPI_ROOT`.
    Here,
    /// `MPI_PROC_NULL`: another member of this group.
    Beside,
}

/// Messages to or from others.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Pieces {
    /// None.
    #[default]
    Nothing,
    /// The same for each of them.
    All(Signature),
    /// For each the rank, in order: several of one rank are matched one by one.
    Each(Vec<(u32, Signature)>),
}

impl Pieces {
    /// The messages of each of `count` others.
    pub fn by_rank(&self, count: usize) -> Vec<Vec<Signature>> {
        match self {
            Self::Nothing => vec![Vec::new(); count],
            Self::All(signature) => vec![vec![*signature]; count],
            Self::Each(list) => {
                let mut pieces = vec![Vec::new(); count];
                for (rank, signature) in list {
                    if let Some(of_rank) = pieces.get_mut(*rank as usize) {
                        of_rank.push(*signature);
                    }
                }
                pieces
            }
        }
    }
}

impl std::fmt::Display for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}({})", self.function, self.arguments)
    }
}
