//! Messages of a comparison of replicas' memory at rest.
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

/// Bytes of a page, which has one digest.
pub const PAGE_BYTES: u64 = 4096;

/// A comparison that the replicas of a rank have to make.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Order {
    /// Number of the collective at which to compare, from 1 in the order of the main thread's calls. If something is
    /// under way in the background there, the first later collective at which nothing is.
    pub collective: u64,
    /// Memory from this address on …
    pub from: u64,
    /// Maximum number of its bytes.
    pub bytes_max: u64,
}

/// From `redrun` to all processes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Scrub {
    /// Report your position. Answered by [`Answer::Position`].
    Where {
        /// Number of the round.
        round: u64,
    },
    /// Compare. Answered by each process when it has reached its collective.
    Orders {
        /// Number of the round.
        round: u64,
        /// The order of each rank.
        orders: Vec<Order>,
    },
}

/// Digests of consecutive pages. A page of zeros has the digest 0.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Stretch {
    /// Address of the first page.
    pub start: u64,
    /// Digests, one for each page.
    pub digests: Vec<u64>,
}

impl Stretch {
    /// Addresses of pages with their digests.
    pub fn pages(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        (0u64..).zip(&self.digests).map(|(number, digest)| (self.start.wrapping_add(number * PAGE_BYTES), *digest))
    }
}

/// The answer of a process.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Answer {
    /// Number of collectives that it has begun.
    Position(u64),
    /// The process had begun that collective already.
    Late,
    /// Its memory cannot be compared; with the reason, in words that follow on "it".
    Unfit(String),
    /// The process has reached the collective.
    Pages {
        /// The collective.
        collective: u64,
        /// Digests of the memory compared.
        stretches: Vec<Stretch>,
        /// Address at which the next round has to go on; 0 when this one reached the end.
        next: u64,
    },
}
