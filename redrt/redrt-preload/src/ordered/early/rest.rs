//! Rest: no early thread goes on by itself.
//!
//! A thread that was woken and has not run yet looks like one that waits, from within the process. The kernel knows
//! better: a thread that it calls asleep was not woken. If all threads are asleep in calls that only others end, or
//! stand still, at one moment, then none of them goes on by itself.
//!
//! The trap: threads are looked at one after the other, and one that was asleep may have been woken by one that is
//! looked at later. So they are looked at twice. A thread that is asleep both times, and has not gone to sleep in
//! between, was asleep all the time.

use super::limits::{await_change, changes};
use super::slots::{ACTS, BLOCKS, LOOKS, SLEEPS, STANDS, Slot, UNDERWAY, WAITING, alive, made};
use crate::{interpreter, real};
use libc::c_long;
use std::io::Write;
use std::sync::atomic::Ordering;

/// Capacity for a thread's status in `/proc`, in bytes: some lines list processors.
const STATUS_BYTES: usize = 8192;

/// Number of times that a thread has gone to sleep, if it is asleep now. A thread without a status counts as asleep.
fn asleep(thread_id: i32) -> Option<u64> {
    let mut path = [0; 48];
    // The rest stays zero.
    write!(&mut path[..47], "/proc/self/task/{thread_id}/status").ok()?;
    let mut status = [0; STATUS_BYTES];
    let Some(status) = read(&path, &mut status) else { return Some(0) };
    let line = |name: &[u8]| {
        let begin = status.windows(name.len()).position(|window| window == name)? + name.len();
        Some(&status[begin..])
    };
    if line(b"\nState:\t").and_then(|state| state.first()) != Some(&b'S') {
        return None;
    }
    let digits = line(b"\nvoluntary_ctxt_switches:\t").into_iter().flatten().take_while(|byte| byte.is_ascii_digit());
    Some(digits.fold(0, |number, digit| number * 10 + u64::from(digit - b'0')))
}

/// Reads a file, whose path ends with a zero byte, by system calls that are not interposed.
fn read<'a>(path: &[u8], bytes: &'a mut [u8]) -> Option<&'a [u8]> {
    let flags = c_long::from(libc::O_RDONLY | libc::O_CLOEXEC);
    let open = [libc::AT_FDCWD.into(), path.as_ptr() as c_long, flags, 0, 0, 0];
    // SAFETY: - the path ends with a zero byte, and lives until the call returns.
    let fd = unsafe { real::system_call(libc::SYS_openat, open) };
    if fd < 0 {
        return None;
    }
    let arguments = [fd, bytes.as_mut_ptr() as c_long, bytes.len() as c_long, 0, 0, 0];
    // SAFETY: - the bytes are valid for writing that many, and live until the call returns.
    let count = unsafe { real::system_call(libc::SYS_read, arguments) };
    // SAFETY: - the descriptor was opened above.
    unsafe { real::system_call(libc::SYS_close, [fd, 0, 0, 0, 0, 0]) };
    bytes.get(..usize::try_from(count).ok()?)
}

/// An early thread on its way to its limit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    /// It goes on only if others do.
    Rests,
    /// It waits for something outside the process, or for a time.
    Waits,
    /// It may compute without an end.
    Computes,
    /// It will come to its next operation.
    Comes,
}

/// With the word and the number of sleeps of a thread that rests.
fn way_of(slot: &Slot) -> (Way, [u64; 2]) {
    let word = slot.word.load(Ordering::SeqCst);
    let is_there = made(word) >= slot.limit.load(Ordering::SeqCst);
    if slot.is_interpreted.load(Ordering::Relaxed) {
        return (way_of_interpreted(slot, word, is_there), [0; 2]);
    }
    if word & (STANDS | SLEEPS) != 0 {
        return (if is_there { Way::Rests } else { Way::Comes }, [word, 0]);
    }
    let thread_id = slot.thread_id.load(Ordering::Acquire);
    if thread_id == 0 {
        return (Way::Comes, [0; 2]);
    }
    let way = match asleep(thread_id) {
        Some(sleeps) if is_there || word & (WAITING | BLOCKS) != 0 => return (Way::Rests, [word, sleeps]),
        Some(_) => Way::Waits,
        None if word & BLOCKS != 0 || is_there && word & UNDERWAY == 0 => Way::Computes,
        None => Way::Comes,
    };
    (way, [0; 2])
}

/// A thread of an interpreter counts its segments where they end, and may compute for long within one.
fn way_of_interpreted(slot: &Slot, word: u64, is_there: bool) -> Way {
    if word & WAITING != 0 {
        // An event of the interpreter may have woken it.
        let has_looked = slot.looked.load(Ordering::SeqCst) == interpreter::event_count();
        return if word & LOOKS == 0 || has_looked { Way::Rests } else { Way::Waits };
    }
    match is_there {
        true => Way::Rests,
        false if word & ACTS != 0 => Way::Comes,
        false => Way::Waits,
    }
}

/// Scans all threads but the one of this number. `again`: each was seen at rest before.
fn scan(me: u64, again: bool) -> Way {
    let mut latest = Way::Rests;
    for slot in alive().filter(|slot| slot.counts_beside(me)) {
        let (way, seen) = way_of(slot);
        if way == Way::Comes {
            return way;
        }
        latest = latest.max(way);
        for (known, new) in slot.seen.iter().zip(seen) {
            if known.swap(new, Ordering::Relaxed) != new && again {
                return Way::Comes;
            }
        }
    }
    latest
}

/// Longest time between two looks.
pub const TICK_NS: i64 = 1_000_000;
/// Longest time for which `MPI_Init` waits for early threads: in all, while they wait for something else, and while
/// they compute without an operation, in processor time.
const WAIT_NS_MAX: i64 = 10_000 * TICK_NS;
const STILL_NS_MAX: i64 = 1_000 * TICK_NS;
const COMPUTED_NS_MAX: i64 = 200 * TICK_NS;

/// Waits until no early thread but the one of this number goes on by itself. Gives up when none comes to an operation
/// any more: they depend on each other in another way here than in other replicas, or compute for long.
///
/// The process may be stopped meanwhile, and its threads with it: a longer time between two looks counts as a tick.
pub fn await_rest(me: u64) {
    let (mut waited_ns, mut still_ns, mut computed_ns) = (0, 0, 0);
    let computed = || real::clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID) - real::clock_ns(libc::CLOCK_THREAD_CPUTIME_ID);
    while waited_ns < WAIT_NS_MAX && still_ns < STILL_NS_MAX && computed_ns < COMPUTED_NS_MAX {
        let (begin_ns, begin_computed_ns) = (real::clock_ns(libc::CLOCK_MONOTONIC), computed());
        let seen = changes();
        let way = match scan(me, false) {
            Way::Rests => scan(me, true),
            other => other,
        };
        if way == Way::Rests {
            return;
        }
        let has_changed = await_change(seen);
        let passed_ns = (real::clock_ns(libc::CLOCK_MONOTONIC) - begin_ns).min(TICK_NS);
        waited_ns += passed_ns;
        match way {
            _ if has_changed => (still_ns, computed_ns) = (0, 0),
            Way::Computes => computed_ns += computed() - begin_computed_ns,
            Way::Waits => still_ns += passed_ns,
            Way::Comes | Way::Rests => (still_ns, computed_ns) = (0, 0),
        }
    }
}
