//! Synchronisation of the fast paths: barriers whose cost is only on the side that waits anyway, a lock that one thread
//! takes without a barrier, locks that processes share, rings of records, boards of posts, and the question if a
//! consumer will see a record just published.
//!
//! A full barrier on a path that every message takes costs more than all the rest of it: the processor stops until its
//! earlier writes are visible, and these go to lines that the consumer has just had. The events that need barriers are
//! rare (a process falls asleep, the agent wants the engine), so the rare side makes one for both (`membarrier(2)`).
//!
//! All modules are tested by loom, with ordinary barriers in place of the kernel's: `scripts/loom.sh`.

pub mod biased;
pub mod board;
pub mod fence;
mod primitive;
pub mod ring;
pub mod seen;
pub mod tickets;
