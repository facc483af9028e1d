//! What the fast paths wait for each other with: barriers that only the side pays for that waits anyway, a lock that
//! one thread takes without a barrier, locks that processes share, rings of records, boards of what members post, and
//! the question whether a consumer will see what was just published.
//!
//! A full barrier on a path that every message takes costs more than all the rest of it: the processor stops until its
//! earlier writes are visible, and these are of lines that the consumer has just had. What needs barriers is rare (a
//! process falls asleep, the agent wants the engine), so the rare side makes one for both (`membarrier(2)`).
//!
//! All of it is tested by loom, with ordinary barriers in place of those of the kernel: `scripts/loom.sh`.

pub mod biased;
pub mod board;
pub mod fence;
mod primitive;
pub mod ring;
pub mod seen;
pub mod tickets;
