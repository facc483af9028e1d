//! Directories of windows in the memory that a daemon gives its processes. The region of each process begins with a
//! directory of the windows whose root it is.

use crate::mapping::Mapping;
use redrt_runtime::Job;
use redrt_types::{ReplicaId, VirtualRank};
use redrt_wire::control::{WINDOW_REGION_BYTES, window_region};
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Size of a huge page in bytes: windows begin at multiples of it.
pub const ALIGNMENT: u64 = 2 << 20;

/// Maximum number of windows of a root at a time.
pub const ENTRIES: usize = 4096;
const DIRECTORY_BYTES: usize = ENTRIES * size_of::<WindowEntry>();

/// Entry of a directory: a window and its offset in the region; free if the offset is 0.
#[repr(C)]
struct WindowEntry {
    context: AtomicU64,
    offset: AtomicU64,
}

/// Beginning of the region of the process of `root` on this process's plane; `None` without such a process.
pub fn region(job: &Job, root: VirtualRank) -> Option<u64> {
    let id = ReplicaId { rank: root, ..job.welcome.me };
    job.welcome.world.contains(id).then(|| window_region(job.welcome.world.process(id)))
}

/// Maps the directory of a root's region, and runs `act` on it. Fails if the job has no such memory or region.
fn with_directory<T>(job: &Job, root: VirtualRank, act: impl FnOnce(&[WindowEntry]) -> T) -> io::Result<T> {
    let (Some(fd), Some(region)) = (job.welcome.windows, region(job, root)) else {
        return Err(io::ErrorKind::NotFound.into());
    };
    let mapping = Mapping::of_part(fd, region, DIRECTORY_BYTES, 0)?;
    // SAFETY: - valid and aligned for as many entries: mapped with that many bytes, at a page, until this function
    //           ends.
    //         - any content is valid and may change meanwhile: entries consist of atomics.
    Ok(act(unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(mapping.start()), ENTRIES) }))
}

/// Offset of a window in its root's region; `None` if the root has no such window.
pub fn lookup(job: &Job, root: VirtualRank, context: u64) -> io::Result<Option<u64>> {
    with_directory(job, root, |entries| {
        let entries = entries.iter().map(|entry| {
            let offset = entry.offset.load(Ordering::Acquire);
            (entry.context.load(Ordering::Relaxed), offset)
        });
        let found = entries.filter(|(of, offset)| *of == context && *offset != 0).map(|(_, offset)| offset).next();
        found.filter(|offset| offset.is_multiple_of(ALIGNMENT) && *offset < WINDOW_REGION_BYTES)
    })
}

/// At a root: enters the offset of a window in its directory. An offset of 0 frees the entry.
pub fn record(job: &Job, entry: usize, context: u64, offset: u64) -> io::Result<()> {
    with_directory(job, job.welcome.me.rank, |entries| {
        if let Some(entry) = entries.get(entry) {
            entry.context.store(context, Ordering::Relaxed);
            entry.offset.store(offset, Ordering::Release);
        }
    })
}

/// First aligned place from `from` on with room for `length` bytes before `end`. `taken` are the used ranges, in order.
pub fn free_place(taken: impl Iterator<Item = Range<u64>>, from: u64, end: u64, length: u64) -> Option<u64> {
    let mut place = from;
    for range in taken {
        if range.start.checked_sub(place).is_some_and(|gap| gap >= length) {
            break;
        }
        place = place.max(range.end.next_multiple_of(ALIGNMENT));
    }
    end.checked_sub(place).is_some_and(|gap| gap >= length).then_some(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_gap_that_is_long_enough_is_taken() {
        let place = |taken: &[(u64, u64)], length| {
            let taken = taken.iter().map(|(at, length)| at * ALIGNMENT..at * ALIGNMENT + length);
            free_place(taken, ALIGNMENT, 10 * ALIGNMENT, length).map(|place| place / ALIGNMENT)
        };
        assert_eq!(place(&[], 1), Some(1));
        assert_eq!(place(&[(1, 1)], 4096), Some(2));
        assert_eq!(place(&[(1, 1), (3, ALIGNMENT)], ALIGNMENT), Some(2));
        assert_eq!(place(&[(1, 1), (3, ALIGNMENT + 1)], ALIGNMENT + 1), Some(5));
        assert_eq!(place(&[(2, 1)], ALIGNMENT), Some(1));
        assert_eq!(place(&[(1, 1)], 8 * ALIGNMENT), Some(2));
        assert_eq!(place(&[(1, 1)], 8 * ALIGNMENT + 1), None);
        assert_eq!(place(&[], u64::MAX), None);
    }
}
