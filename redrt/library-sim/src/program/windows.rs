//! One-sided communication.

use super::mpi::{self, WORD, mpi};
use super::{Member, same};
use redrt::exports::*;
use redrt_abi::handle::{GroupHandle, InfoHandle, OpHandle, WinHandle};
use redrt_abi::{MPI_LOCK_EXCLUSIVE, MPI_LOCK_SHARED};
use std::ffi::{c_int, c_void};

/// A window of words.
struct Window {
    handle: WinHandle,
    start: *mut u64,
    length: usize,
}

impl Window {
    fn new(member: &Member, length: usize) -> Self {
        let (mut handle, mut start) = (WinHandle::NULL, std::ptr::null_mut::<u64>());
        let place: *mut c_void = (&raw mut start).cast();
        mpi!(call_win_allocate((8 * length) as isize, 8, InfoHandle::NULL, member.comm, place, &raw mut handle));
        let window = Self { handle, start, length };
        // SAFETY: - valid for `length` words: the window's memory; no other process accesses it before the barrier.
        unsafe { std::ptr::write_bytes(start, 0, length) };
        mpi!(call_barrier(member.comm));
        window
    }

    /// Content of the window. Only while no operation can access it.
    fn words(&self) -> Vec<u64> {
        // SAFETY: - valid for `length` words: the window's memory; between epochs no other process accesses it.
        (0..self.length).map(|at| unsafe { self.start.add(at).read_volatile() }).collect()
    }

    /// Fills a range of words with a number. Only while no operation can access them.
    fn fill(&self, words: std::ops::Range<usize>, number: u64) {
        // SAFETY: - valid: within the window's `length` words; between epochs no other process accesses them.
        words.for_each(|at| unsafe { self.start.add(at).write_volatile(number) });
    }

    fn put(&self, words: &[u64], target: usize, at: usize) {
        let (count, target) = (mpi::count(words), target as c_int);
        mpi!(call_put(mpi::from(words), count, WORD, target, at as isize, count, WORD, self.handle));
    }

    fn get(&self, words: &mut [u64], target: usize, at: usize) {
        let (count, target) = (words.len() as c_int, target as c_int);
        mpi!(call_get(mpi::into(words), count, WORD, target, at as isize, count, WORD, self.handle));
    }

    fn add(&self, words: &[u64], target: usize, at: usize) {
        let (count, target, op) = (mpi::count(words), target as c_int, OpHandle::SUM);
        mpi!(call_accumulate(mpi::from(words), count, WORD, target, at as isize, count, WORD, op, self.handle));
    }
}

/// Epochs of all kinds on one window.
pub fn epochs(member: &mut Member) {
    let block = 1 + member.common.below(40);
    // A block for each origin, one for sums, and a counter.
    let window = Window::new(member, (member.size + 1) * block + 1);
    for _ in 0..1 + member.common.below(4) {
        match member.common.below(5) {
            0 => fenced(member, &window, block),
            1 => counted(member, &window),
            2 => of_groups(member, &window, block),
            3 => guarded(member, &window),
            _ => locked(member, &window, block),
        }
        mpi!(call_barrier(member.comm));
    }
    let mut handle = window.handle;
    mpi!(call_win_free(&raw mut handle));
}

/// Each rank puts to its block in every window, adds to the sums, and reads after the next fence.
fn fenced(member: &mut Member, window: &Window, block: usize) {
    let (rank, size, operation) = (member.rank, member.size, member.common.number());
    mpi!(call_win_fence(0, window.handle));
    let own = Member::words(operation, rank, block);
    let before = window.words();
    // No rank adds before all have read.
    mpi!(call_win_fence(0, window.handle));
    for target in 0..size {
        window.put(&own, target, rank * block);
        window.add(&own, target, size * block);
    }
    mpi!(call_win_fence(0, window.handle));
    let words = window.words();
    for origin in 0..size {
        let expected = Member::words(operation, origin, block);
        same(&words[origin * block..(origin + 1) * block], &expected, "what a rank has put");
    }
    for at in 0..block {
        let added = (0..size).fold(0, |sum: u64, origin| sum.wrapping_add(Member::word(operation, origin, at)));
        assert_eq!(words[size * block + at], before[size * block + at].wrapping_add(added), "a sum");
    }
    let mut read = vec![0; block];
    let target = (rank + 1) % size;
    window.get(&mut read, target, rank * block);
    mpi!(call_win_fence(0, window.handle));
    same(&read, &own, "what was put to the next rank");
}

/// Ranks draw numbers from one counter: each number is drawn once.
fn counted(member: &mut Member, window: &Window) {
    let (size, root, each) = (member.size, member.common.below(member.size), 1 + member.common.below(4));
    let at = (window.length - 1) as isize;
    let (one, mut drawn) = (1_u64, vec![0_u64; each]);
    mpi!(call_win_lock_all(0, window.handle));
    for place in &mut drawn {
        mpi!(call_fetch_and_op(
            (&raw const one).cast(),
            std::ptr::from_mut(place).cast(),
            WORD,
            root as c_int,
            at,
            OpHandle::SUM,
            window.handle
        ));
        mpi!(call_win_flush(root as c_int, window.handle));
    }
    mpi!(call_win_unlock_all(window.handle));
    member.output.extend(&drawn);
    let mut all = vec![0; each * size];
    let (out, into, count) = (mpi::from(&drawn), mpi::into(&mut all), each as c_int);
    mpi!(call_allgather(out, count, WORD, into, count, WORD, member.comm));
    all.sort_unstable();
    assert!(all.windows(2).all(|pair| pair[0] + 1 == pair[1]), "numbers drawn from a counter: {all:?}");
}

/// Each rank puts to its right neighbour, which has posted its window to it.
fn of_groups(member: &mut Member, window: &Window, block: usize) {
    let (rank, size, operation) = (member.rank, member.size, member.common.number());
    let (right, left) = ((rank + 1) % size, (rank + size - 1) % size);
    let [mut to, mut from] = [right, left].map(|other| group_of(member, other));
    // Before the post, only its owner accesses the window.
    window.fill(left * block..(left + 1) * block, operation);
    mpi!(call_win_post(from, 0, window.handle));
    mpi!(call_win_start(to, 0, window.handle));
    let own = Member::words(operation, rank, block);
    window.put(&own, right, rank * block);
    mpi!(call_win_complete(window.handle));
    mpi!(call_win_wait(window.handle));
    let words = window.words();
    same(
        &words[left * block..(left + 1) * block],
        &Member::words(operation, left, block),
        "what the left rank has put",
    );
    mpi!(call_group_free(&raw mut to));
    mpi!(call_group_free(&raw mut from));
}

/// Each rank increments a count under an exclusive lock.
fn guarded(member: &mut Member, window: &Window) {
    let (size, target, at) = (member.size, member.common.below(member.size), window.length - 1);
    let read = |count: &mut [u64]| {
        window.get(count, target, at);
        mpi!(call_win_flush(target as c_int, window.handle));
    };
    let lock = || mpi!(call_win_lock(MPI_LOCK_EXCLUSIVE, target as c_int, 0, window.handle));
    let unlock = || mpi!(call_win_unlock(target as c_int, window.handle));
    let [mut before, mut count, mut after] = [[0]; 3];
    lock();
    read(&mut before);
    unlock();
    mpi!(call_barrier(member.comm));
    lock();
    read(&mut count);
    window.put(&[count[0] + 1], target, at);
    unlock();
    member.output.push(count[0]);
    mpi!(call_barrier(member.comm));
    lock();
    read(&mut after);
    unlock();
    assert_eq!(after[0], before[0] + size as u64, "a count that all have raised under a lock");
}

fn group_of(member: &Member, other: usize) -> GroupHandle {
    let (mut all, mut one, number) = (GroupHandle::NULL, GroupHandle::NULL, other as c_int);
    mpi!(call_comm_group(member.comm, &raw mut all));
    mpi!(call_group_incl(all, 1, &raw const number, &raw mut one));
    mpi!(call_group_free(&raw mut all));
    one
}

/// One rank writes a block under an exclusive lock, others read it under a shared one: the old or the new block, never
/// a mixture.
fn locked(member: &mut Member, window: &Window, block: usize) {
    let (rank, size, operation) = (member.rank, member.size, member.common.number());
    let (target, writer) = (member.common.below(size), member.common.below(size));
    let new = Member::words(operation, writer, block);
    let place = writer * block;
    let mut before = vec![0; block];
    mpi!(call_win_lock(MPI_LOCK_SHARED, target as c_int, 0, window.handle));
    window.get(&mut before, target, place);
    mpi!(call_win_unlock(target as c_int, window.handle));
    mpi!(call_barrier(member.comm));
    if rank == writer {
        mpi!(call_win_lock(MPI_LOCK_EXCLUSIVE, target as c_int, 0, window.handle));
        window.put(&new, target, place);
        mpi!(call_win_unlock(target as c_int, window.handle));
    } else {
        let mut read = vec![0; block];
        mpi!(call_win_lock(MPI_LOCK_SHARED, target as c_int, 0, window.handle));
        window.get(&mut read, target, place);
        mpi!(call_win_unlock(target as c_int, window.handle));
        assert!(read == before || read == new, "half of what rank {writer} writes");
        member.output.push(u64::from(read == new));
    }
}
