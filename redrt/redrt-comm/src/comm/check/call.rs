//! A member's description of its call of a collective: facts that must fit the other members', and text for the user.

use redrt_datatype::signature::Signature;
use serde::{Deserialize, Serialize};

/// One collective call, as one member makes it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Call {
    /// Name of the function, with its `MPI_`.
    pub function: String,
    /// Arguments as text for the user.
    pub arguments: String,
    /// Root argument, if the function has one.
    pub root: Option<Root>,
    /// Code of the reduction, where it is significant.
    pub reduction: Option<u32>,
    /// Signature that has to be the same at all members that take part.
    pub alike: Option<Signature>,
    /// Counts of all members, which have to be the same at all members of a group.
    pub shares: Option<Vec<i64>>,
    /// Messages that the member sends to others.
    pub gives: Pieces,
    /// Messages that the member expects from others.
    pub takes: Pieces,
}

/// The `root` argument of a rooted collective.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Root {
    /// A rank, of the own group, or of the remote one in an intercommunicator.
    Rank(u32),
    /// `MPI_ROOT`.
    Here,
    /// `MPI_PROC_NULL`: another member of this group.
    Beside,
}

/// Messages to or from others.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Pieces {
    /// No messages with other members.
    #[default]
    Nothing,
    /// The same for each other member.
    All(Signature),
    /// Ranks and signatures, in order: several of one rank are matched one by one.
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
