//! Memory that the members of a window share. When the window is freed it is kept, for the members' next window.
//!
//! Making such memory costs two rounds of messages, a file, and in each process a mapping and its pages. For a small
//! window that is more than the rest of its creation. So the members of a window agree on memory of an earlier window,
//! in the round in which they exchange sizes.
//!
//! ```text
//!   MPI_Win_free ── barrier ── each member clears its own ──▶ kept ── all have the same? ──▶ the next window
//!                                                                 └── no ──▶ dropped
//! ```
//! The trap: no member may reach the next window before all members have cleared the memory of the last one. A member
//! announces kept memory after it has cleared its part, and other members reach the window after that announcement.
//!
//! Little memory is kept: the pages of a large window take longer than the rounds, and the program may need the memory.

use super::memory::Shared;
use redrt_process::lock;
use redrt_types::VirtualRank;
use std::sync::Mutex;

/// Maximum number of memories that are kept: beyond it the oldest is dropped.
const COUNT_MAX: usize = 4;

/// Maximum length of memory that is kept.
const BYTES_MAX: usize = 256 << 10;

process_local! {
    /// Kept memory, the oldest first.
    static KEPT: Mutex<Vec<Shared>> = const { Mutex::new(Vec::new()) };
}

/// Returns true if the memory is short enough to be kept.
pub fn is_worth(memory: &Shared) -> bool {
    memory.length() <= BYTES_MAX
}

/// Takes the memory of the last window of these members; `None` if none fits. With `for_copies` the members must be
/// able to copy from and to each other's memory.
pub fn take(members: &[VirtualRank], for_copies: bool) -> Option<Shared> {
    let mut kept = lock(&KEPT);
    let at = kept.iter().rposition(|one| one.fits(members, for_copies))?;
    Some(kept.remove(at))
}

/// Keeps memory in which this member has cleared its part.
pub fn keep(memory: Shared) {
    let mut kept = lock(&KEPT);
    if kept.len() == COUNT_MAX {
        kept.remove(0);
    }
    kept.push(memory);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::Mapping;

    fn shared(members: &[u32], number: u64, is_for_copies: bool) -> Shared {
        let file = Mapping::create(100).unwrap();
        let members = members.iter().copied().map(VirtualRank).collect();
        Shared::new(Mapping::map(&file, 100).unwrap(), members, number, is_for_copies)
    }

    fn taken(members: &[u32], for_copies: bool) -> Option<u64> {
        let members: Vec<_> = members.iter().copied().map(VirtualRank).collect();
        take(&members, for_copies).map(|memory| memory.number())
    }

    /// The oldest is dropped when there are too many.
    #[test]
    fn the_latest_of_the_same_members_is_taken_once() {
        keep(shared(&[0, 1], 1, false));
        keep(shared(&[0, 1], 2, true));
        keep(shared(&[1, 0], 3, true));
        assert_eq!(taken(&[0, 2], false), None);
        assert_eq!(taken(&[1, 0], true), Some(3));
        assert_eq!([taken(&[0, 1], false), taken(&[0, 1], true), taken(&[0, 1], false)], [Some(2), None, Some(1)]);
        (0..=COUNT_MAX as u64).for_each(|number| keep(shared(&[0], number, false)));
        let left: Vec<_> = std::iter::from_fn(|| taken(&[0], false)).collect();
        assert_eq!(left, [4, 3, 2, 1]);
    }
}
