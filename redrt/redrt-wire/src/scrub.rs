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
    /// Second digests of pages with words that the C library draws anew in each process, by number in the stretch:
    /// without these words.
    pub plain: Vec<(u64, u64)>,
}

/// A page with its digests.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Page {
    /// Address of its first byte.
    pub address: u64,
    /// Digest of all bytes.
    pub digest: u64,
    /// Digest without words that differ in each process. The same as `digest` if it has none.
    pub plain: u64,
}

impl Stretch {
    /// The pages, by address.
    pub fn pages(&self) -> impl Iterator<Item = Page> + '_ {
        let mut plain = self.plain.iter().peekable();
        (0u64..).zip(&self.digests).map(move |(number, digest)| {
            // Numbers are in order, unless the process is corrupt.
            let second = plain.next_if(|(page, _)| *page <= number).map(|(_, second)| *second);
            let address = self.start.wrapping_add(number.wrapping_mul(PAGE_BYTES));
            Page { address, digest: *digest, plain: second.unwrap_or(*digest) }
        })
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
