//! What is said when the memory of replicas is compared at rest.
//!
//! ```text
//!   redrun                            each process
//!     Where ───────────────────────────▶
//!       ◀──────────────────── Position    collectives begun so far
//!     Orders: for each rank a collective
//!     that none of its replicas has begun ▶
//!       ◀──────────────────── Scrubbed    at that collective: digests of pages
//! ```

use serde::{Deserialize, Serialize};

/// Bytes of a page: what one digest is of.
pub const PAGE_BYTES: u64 = 4096;

/// What the replicas of a rank are to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Order {
    /// At which collective, counted from 1 in the order of the main thread's calls; at the first from there on at which
    /// nothing is under way in the background.
    pub collective: u64,
    /// Memory from this address on …
    pub from: u64,
    /// Maximum number of its bytes.
    pub bytes_max: u64,
}

/// From `redrun` to all processes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Scrub {
    /// How far are you? Answered by [`Answer::Position`].
    Where {
        /// Number of the round.
        round: u64,
    },
    /// Answered by each process when it has come so far; by rank.
    Orders {
        /// Number of the round.
        round: u64,
        /// What each rank is to do.
        orders: Vec<Order>,
    },
}

/// Digests of the pages of a stretch of memory, one after the other. 0 for a page of zeros.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Stretch {
    /// Address of the first page.
    pub start: u64,
    /// One for each page.
    pub digests: Vec<u64>,
}

impl Stretch {
    /// Pages with their digests.
    pub fn pages(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        (0u64..).zip(&self.digests).map(|(number, digest)| (self.start.wrapping_add(number * PAGE_BYTES), *digest))
    }
}

/// What a process answers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Answer {
    /// Number of collectives that it has begun.
    Position(u64),
    /// It had begun that collective already.
    Late,
    /// Its memory cannot be compared; why, in words that follow on "it".
    Unfit(String),
    /// It has come there.
    Pages {
        /// The collective.
        collective: u64,
        /// What it found.
        stretches: Vec<Stretch>,
        /// Where the next round is to go on; 0 when this one came to the end.
        next: u64,
    },
}
