//! Short puts and gets of memory that only the kernel reaches. They are gathered until the program needs them done
//! (MPI-5.0 §12.5). A system call takes longer than moving some hundred bytes, and moves many blocks as well as one.
//!
//! Gathered operations on a target are done in the order of their calls, and before any other operation on that target.
//! The data of puts are copied, so that they are complete at the origin at once; the data of gets come when they are
//! done.

use super::memory::cannot_be_reached;
use crate::apply::Done;
use redrt_process::lock;
use redrt_transport::direct::{self, Block};
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Maximum length of a gathered operation. Moving more bytes takes at least as long as the system call.
pub const SHORT_BYTES: usize = 2048;

/// Maximum number of gathered blocks for a target. Adjacent ones are one block.
const BLOCKS_MAX: usize = 64;

/// Maximum number of gathered bytes for a target.
const BYTES_MAX: usize = 16 << 10;

/// Gathered operations of this process on one window.
#[derive(Default)]
pub struct Gathered {
    /// True if there may be gathered operations; mostly there are none, so this is checked first.
    waits: AtomicBool,
    batches: Mutex<BTreeMap<u32, Batch>>,
}

/// Gathered operations on one target: puts or gets, never both.
#[derive(Default)]
struct Batch {
    /// Process id of the target.
    pid: i32,
    are_gets: bool,
    /// Bytes of all operations of the batch.
    size: usize,
    /// Blocks in the target's memory.
    far: Vec<Block>,
    /// Blocks of gets in this process.
    near: Vec<Block>,
    /// Copies of the data of puts.
    data: Vec<u8>,
}

/// Adds a block. A block that follows the last one directly is merged with it.
fn add(blocks: &mut Vec<Block>, (address, bytes): Block) {
    match blocks.last_mut() {
        Some(last) if last.0 + last.1 as u64 == address => last.1 += bytes,
        _ => blocks.push((address, bytes)),
    }
}

impl Batch {
    fn has_room(&self, bytes: usize) -> bool {
        self.far.len().max(self.near.len()) < BLOCKS_MAX && self.size + bytes <= BYTES_MAX
    }

    /// Carries out all operations. The batch is empty afterwards, also after an error.
    fn carry_out(&mut self) -> Done {
        if self.size == 0 {
            return Ok(());
        }
        let data = [(self.data.as_ptr() as u64, self.data.len())];
        let moved = if self.are_gets {
            // SAFETY: - near is valid for writes: buffers that the program has lent until its gets are complete.
            unsafe { direct::read_blocks(self.pid, &self.far, &self.near) }
        } else {
            // SAFETY: - data is valid for reads of its length.
            //         - the target has exposed this memory to writes.
            unsafe { direct::write_blocks(self.pid, &self.far, &data) }
        };
        self.size = 0;
        self.far.clear();
        self.near.clear();
        self.data.clear();
        moved.map_err(cannot_be_reached)
    }
}

impl Gathered {
    fn gather(&self, target: u32, pid: i32, far: Block, are_gets: bool, note: impl FnOnce(&mut Batch)) -> Done {
        if far.1 == 0 {
            return Ok(());
        }
        let mut batches = lock(&self.batches);
        let batch = batches.entry(target).or_default();
        let done = if batch.are_gets == are_gets && batch.has_room(far.1) { Ok(()) } else { batch.carry_out() };
        (batch.pid, batch.are_gets) = (pid, are_gets);
        batch.size += far.1;
        add(&mut batch.far, far);
        note(batch);
        self.waits.store(true, Ordering::Relaxed);
        done
    }

    /// Gathers a put of `data` to an address of a target. Fails for operations that were gathered before.
    pub fn put(&self, target: u32, pid: i32, address: u64, data: &[u8]) -> Done {
        self.gather(target, pid, (address, data.len()), false, |batch| batch.data.extend_from_slice(data))
    }

    /// Gathers a get from an address of a target to `into`. Fails for operations that were gathered before.
    ///
    /// # Safety
    /// `into` is valid for writes of `bytes` bytes until [`Gathered::carry_out`] has returned for this target.
    pub unsafe fn get(&self, target: u32, pid: i32, address: u64, into: *mut u8, bytes: usize) -> Done {
        self.gather(target, pid, (address, bytes), true, |batch| add(&mut batch.near, (into as u64, bytes)))
    }

    /// Carries out the operations on a target, or on all for `None`. Fails with the first target whose memory cannot be
    /// reached, and the error class.
    #[inline]
    pub fn carry_out(&self, target: Option<u32>) -> Result<(), (u32, c_int)> {
        if self.waits.load(Ordering::Relaxed) { self.carry_out_now(target) } else { Ok(()) }
    }

    #[inline(never)]
    fn carry_out_now(&self, target: Option<u32>) -> Result<(), (u32, c_int)> {
        let mut batches = lock(&self.batches);
        let mut outcome = Ok(());
        for (rank, batch) in batches.iter_mut().filter(|(rank, _)| target.is_none_or(|target| target == **rank)) {
            let done = batch.carry_out().map_err(|class| (*rank, class));
            outcome = outcome.and(done);
        }
        self.waits.store(batches.values().any(|batch| batch.size > 0), Ordering::Relaxed);
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// One call of a program.
    #[derive(Clone, Debug)]
    enum Step {
        Put(u32, usize, Vec<u8>),
        Get(u32, usize, usize),
        Finish(Option<u32>),
    }

    const BYTES: usize = 4096;
    const TARGETS: u32 = 2;

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let at = |bytes: usize| 0..BYTES - bytes;
        let put = (0..TARGETS, prop::collection::vec(any::<u8>(), 0..300)).prop_flat_map(move |(target, data)| {
            at(data.len()).prop_map(move |place| Step::Put(target, place, data.clone()))
        });
        let get = (0..TARGETS, 0..300usize)
            .prop_flat_map(move |(target, bytes)| at(bytes).prop_map(move |place| Step::Get(target, place, bytes)));
        let steps = prop_oneof![8 => put, 4 => get, 1 => prop::option::of(0..TARGETS).prop_map(Step::Finish)];
        prop::collection::vec(steps, 0..200)
    }

    proptest! {
        /// The targets are this process. Memory is as if all operations were done at once, and each get reads the bytes
        /// at the time of its call. No operation stays gathered for longer than it may.
        #[test]
        fn what_waits_is_done_in_order(steps in steps()) {
            let pid = std::process::id() as i32;
            let gathered = Gathered::default();
            let mut memory = vec![vec![0u8; BYTES]; TARGETS as usize];
            let mut model = memory.clone();
            let mut asked: Vec<(u32, Vec<u8>, Box<[u8]>)> = Vec::new();
            let addresses: Vec<u64> = memory.iter_mut().map(|part| part.as_mut_ptr() as u64).collect();
            for step in steps.into_iter().chain([Step::Finish(None)]) {
                match step {
                    Step::Put(target, place, data) => {
                        model[target as usize][place..][..data.len()].copy_from_slice(&data);
                        gathered.put(target, pid, addresses[target as usize] + place as u64, &data).unwrap();
                    }
                    Step::Get(target, place, bytes) => {
                        let expected = model[target as usize][place..][..bytes].to_vec();
                        let mut into = vec![0u8; bytes].into_boxed_slice();
                        let (start, address) = (into.as_mut_ptr(), addresses[target as usize] + place as u64);
                        // SAFETY: - valid for writes until it is done: `asked` keeps the buffer.
                        unsafe { gathered.get(target, pid, address, start, bytes).unwrap() };
                        asked.push((target, expected, into));
                    }
                    Step::Finish(which) => {
                        gathered.carry_out(which).unwrap();
                        let is_done = |target: u32| which.is_none_or(|which| which == target);
                        for (target, part) in model.iter().enumerate().filter(|(target, _)| is_done(*target as u32)) {
                            let mut there = vec![0u8; BYTES];
                            let spans = [(there.as_mut_ptr() as u64, BYTES)];
                            // SAFETY: - spans is valid for writes: the buffer has as many bytes.
                            unsafe { direct::read_blocks(pid, &[(addresses[target], BYTES)], &spans).unwrap() };
                            prop_assert!(there == *part);
                        }
                        for (_, expected, into) in asked.iter().filter(|(target, ..)| is_done(*target)) {
                            prop_assert!(std::hint::black_box(into)[..] == expected[..]);
                        }
                        asked.retain(|(target, ..)| !is_done(*target));
                    }
                }
            }
            prop_assert!(asked.is_empty() && !gathered.waits.load(Ordering::Relaxed));
            prop_assert!(lock(&gathered.batches).values().all(|batch| batch.far.is_empty() && batch.near.is_empty()));
        }
    }

    #[test]
    fn operations_of_no_bytes_leave_nothing() {
        let gathered = Gathered::default();
        for address in (0..1000).map(|number| 8 * number) {
            gathered.put(0, std::process::id() as i32, address, &[]).unwrap();
        }
        assert!(lock(&gathered.batches).values().all(|batch| batch.far.is_empty()));
    }

    #[test]
    fn memory_that_is_not_there_is_told_once_and_by_its_target() {
        let pid = std::process::id() as i32;
        let gathered = Gathered::default();
        let mut word = 0u64;
        gathered.put(3, pid, 8, &[1; 4]).unwrap();
        gathered.put(5, pid, &raw mut word as u64, &7u64.to_ne_bytes()).unwrap();
        assert_eq!(gathered.carry_out(None).unwrap_err().0, 3);
        // SAFETY: - valid for reads: a local variable. Volatile, since the kernel has written it.
        assert_eq!(unsafe { (&raw const word).read_volatile() }, 7);
        gathered.carry_out(None).unwrap();
    }
}
