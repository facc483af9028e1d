//! The list of steps that turns the receiver into the copy, made from the current and the final addresses of
//! everything.

use crate::image::state::{
    ADVICE_DONT_DUMP, ADVICE_DONT_FORK, ADVICE_HUGE, ADVICE_LOCKED, ADVICE_MERGEABLE, ADVICE_NO_HUGE,
    ADVICE_WIPE_ON_FORK, Area, ProcessState, SystemArea,
};
use crate::maps::ADDRESSES_END;
use crate::sys::memory::MADV_GUARD_INSTALL;
use crate::sys::restorer::{CODE_BYTES, Expect, Step};

const CLONE_ARGS_BYTES: u64 = 88;
const MM_MAP_WORDS: usize = 13;

/// A piece of the copy's memory, with its final and its current address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryPiece {
    /// Final address; a multiple of the page size.
    pub start: u64,
    /// Length in bytes, whole pages.
    pub len: u64,
    /// Current address; equals `start` if the piece was not staged.
    pub at: u64,
}

/// Input for the list.
pub struct Situation<'a> {
    /// All memory of the copy.
    pub kept: &'a [MemoryPiece],
    /// Areas of the copy, for protection and advice.
    pub areas: &'a [Area],
    /// Areas that the kernel maps in the receiver.
    pub own_system_areas: &'a [SystemArea],
    /// Address and length of the restorer's memory.
    pub restorer: (u64, u64),
    /// Address and length of scratch space for the kernel's areas while they are moved. It follows the restorer's
    /// memory, within the same hole.
    pub scratch: (u64, u64),
    /// Address in the restorer's memory from which on data of system calls is placed.
    pub data: u64,
    /// Descriptor of the program's file, or -1 if it could not be opened.
    pub executable: i32,
    /// Descriptors that the first thread closes after the agent's thread exists.
    pub closed: &'a [i32],
    /// State of the process to be restored.
    pub state: &'a ProcessState,
}

/// Size of the restorer's memory.
#[derive(Clone, Copy, Debug)]
pub struct PlanCapacity {
    /// Upper bound for the number of steps.
    pub step_count: usize,
    /// Bytes of code, steps and data together, in whole pages.
    pub list_bytes: usize,
}

impl PlanCapacity {
    /// Computes the size for these numbers of pieces and areas.
    pub fn new(kept_count: usize, area_count: usize, state: &ProcessState) -> Self {
        let thread_count = state.threads.len();
        let step_count = 3 * kept_count + 12 * area_count + state.guards.len() + thread_count + 64;
        let bytes = CODE_BYTES + size_of::<Step>() * step_count + 8 * (16 * thread_count + 4 * 4096);
        Self { step_count, list_bytes: bytes.next_multiple_of(4096) }
    }

    /// Offset of the data in the restorer's memory.
    pub fn data_offset(self) -> usize {
        CODE_BYTES + size_of::<Step>() * self.step_count
    }
}

/// Makes the list, and the data to be placed at [`Situation::data`].
pub fn make(situation: &Situation<'_>) -> (Vec<Step>, Vec<u64>) {
    let mut steps = Vec::new();
    unmap_all_else(situation, &mut steps);
    move_memory(situation, &mut steps);
    guard(&situation.state.guards, &mut steps);
    protect(situation.areas, &situation.state.guards, &mut steps);
    let mut data = Vec::new();
    let at = |data: &Vec<u64>| situation.data + 8 * data.len() as u64;
    let state = situation.state;

    // The first call sets the program's file, which may be forbidden; then the second does without.
    let files = [situation.executable, -1];
    for executable in &files[usize::from(situation.executable < 0)..] {
        let place = at(&data);
        let bytes = 8 * MM_MAP_WORDS as u64;
        memory_map(state, *executable, place + bytes, &mut data);
        let expect = if *executable < 0 { Expect::Zero } else { Expect::Anything };
        let arguments = [libc::PR_SET_MM as u64, libc::PR_SET_MM_MAP as u64, place, bytes, 0];
        steps.push(Step::call(expect, libc::SYS_prctl, &arguments));
    }
    for thread in &state.threads[1..] {
        let place = at(&data);
        clone_args(thread.tid, thread.fs, thread.clear_tid, true, place, &mut data);
        steps.push(thread_step(place, state.agent.thread_entry, below(thread.frame), thread.slot, state.agent.block));
    }
    let agent = &state.agent;
    let place = at(&data);
    clone_args(agent.tid, agent.fs, 0, !agent.own_files, place, &mut data);
    steps.push(thread_step(place, agent.entry, ((agent.stack - 64) & !15) - 8, agent.block, 0));
    // All threads exist now, and an agent with a descriptor table of its own has copied it. The rest is for the first
    // thread.
    for fd in situation.closed {
        steps.push(Step::call(Expect::Anything, libc::SYS_close, &[*fd as u64]));
    }
    let first = &state.threads[0];
    const ARCH_SET_FS: u64 = 0x1002;
    steps.push(Step::call(Expect::Zero, libc::SYS_arch_prctl, &[ARCH_SET_FS, first.fs]));
    steps.push(Step::call(Expect::NoError, libc::SYS_set_tid_address, &[first.clear_tid]));
    let arguments = [0, 0, agent.thread_entry, below(first.frame), first.slot, agent.block];
    steps.push(Step { expect: Expect::Leave as u64, number: 0, arguments });
    (steps, data)
}

/// A stack pointer below the signal frame, aligned as at the entry of a function.
fn below(frame: u64) -> u64 {
    ((frame - 8 - 256) & !15) - 8
}

fn unmap_all_else(situation: &Situation<'_>, steps: &mut Vec<Step>) {
    let mut kept: Vec<(u64, u64)> = situation.kept.iter().map(|kept| (kept.at, kept.at + kept.len)).collect();
    kept.push((situation.restorer.0, situation.restorer.0 + situation.restorer.1));
    kept.extend(situation.own_system_areas.iter().map(|area| (area.start, area.end)));
    kept.sort_unstable();
    let mut from = 0;
    for (start, end) in kept.into_iter().chain([(ADDRESSES_END, ADDRESSES_END)]) {
        if start > from {
            steps.push(Step::call(Expect::Zero, libc::SYS_munmap, &[from, start - from]));
        }
        from = from.max(end);
    }
}

fn move_memory(situation: &Situation<'_>, steps: &mut Vec<Step>) {
    let flags = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as u64;
    let mut moved = |from: u64, len: u64, to: u64| {
        steps.push(Step::call(Expect::Fifth, libc::SYS_mremap, &[from, len, len, flags, to]));
    };
    // The kernel's areas may lie where memory of the copy belongs, so they are moved out of the way first.
    let mut on_the_way = Vec::new();
    let mut scratch = situation.scratch.0;
    for own in situation.own_system_areas {
        let Some(wanted) = situation.state.system_areas.iter().find(|area| area.name == own.name) else { continue };
        if wanted.start != own.start {
            let len = own.end - own.start;
            moved(own.start, len, scratch);
            on_the_way.push((scratch, len, wanted.start));
            scratch += len;
        }
    }
    assert!(scratch <= situation.scratch.0 + situation.scratch.1, "room for all that the kernel maps");
    for kept in situation.kept.iter().filter(|kept| kept.at != kept.start) {
        moved(kept.at, kept.len, kept.start);
    }
    for (from, len, to) in on_the_way {
        moved(from, len, to);
    }
}

/// Makes guard pages. Must come before memory is locked: the kernel refuses them in locked memory.
fn guard(guards: &[(u64, u64)], steps: &mut Vec<Step>) {
    for (start, end) in guards {
        let arguments = [*start, end - start, MADV_GUARD_INSTALL as u64];
        steps.push(Step::call(Expect::Zero, libc::SYS_madvise, &arguments));
    }
}

fn protect(areas: &[Area], guards: &[(u64, u64)], steps: &mut Vec<Step>) {
    const ADVICES: [(u8, i32); 6] = [
        (ADVICE_HUGE, libc::MADV_HUGEPAGE),
        (ADVICE_NO_HUGE, libc::MADV_NOHUGEPAGE),
        (ADVICE_DONT_FORK, libc::MADV_DONTFORK),
        (ADVICE_DONT_DUMP, libc::MADV_DONTDUMP),
        (ADVICE_WIPE_ON_FORK, libc::MADV_WIPEONFORK),
        (ADVICE_MERGEABLE, libc::MADV_MERGEABLE),
    ];
    let writable = (libc::PROT_READ | libc::PROT_WRITE) as u8;
    for area in areas {
        let len = area.end - area.start;
        // All memory was mapped readable and writable to receive it.
        if area.protection != writable {
            steps.push(Step::call(Expect::Zero, libc::SYS_mprotect, &[area.start, len, u64::from(area.protection)]));
        }
        for (flag, advice) in ADVICES {
            if area.advice & flag != 0 {
                // A kernel built without support for some advice refuses it; the program behaves the same.
                steps.push(Step::call(Expect::Anything, libc::SYS_madvise, &[area.start, len, advice as u64]));
            }
        }
        if area.advice & ADVICE_LOCKED != 0 {
            // Locking an area with guard pages locks all others, and still returns an error.
            let has_guards = guards.iter().any(|(start, end)| *start < area.end && area.start < *end);
            let expect = if has_guards { Expect::Anything } else { Expect::Zero };
            steps.push(Step::call(expect, libc::SYS_mlock, &[area.start, len]));
        }
    }
}

fn memory_map(state: &ProcessState, executable: i32, auxiliary: u64, data: &mut Vec<u64>) {
    // `struct prctl_mm_map`: eleven addresses, the auxiliary vector, its size, and the descriptor of the program's
    // file.
    data.extend(state.places.words);
    data.push(auxiliary);
    let bytes = 8 * state.auxiliary.len() as u64;
    data.push(bytes | u64::from(executable as u32) << 32);
    data.extend(&state.auxiliary);
}

fn clone_args(tid: u32, fs: u64, clear_tid: u64, share_files: bool, place: u64, data: &mut Vec<u64>) {
    let mut flags = libc::CLONE_VM | libc::CLONE_FS | libc::CLONE_SIGHAND | libc::CLONE_THREAD | libc::CLONE_SYSVSEM;
    flags |= libc::CLONE_SETTLS;
    if share_files {
        flags |= libc::CLONE_FILES;
    }
    if clear_tid != 0 {
        flags |= libc::CLONE_CHILD_CLEARTID;
    }
    // `struct clone_args`: flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid,
    // set_tid_size, cgroup. The thread id follows it.
    let tid_place = place + CLONE_ARGS_BYTES;
    data.extend([flags as u64, 0, clear_tid, 0, 0, 0, 0, fs, tid_place, 1, 0, u64::from(tid)]);
}

fn thread_step(place: u64, entry: u64, stack: u64, first: u64, second: u64) -> Step {
    let arguments = [place, CLONE_ARGS_BYTES, entry, stack, first, second];
    Step { expect: Expect::Thread as u64, number: libc::SYS_clone3 as u64, arguments }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unmapped(kept: &[(u64, u64)]) -> Vec<(u64, u64)> {
        let state = crate::image::state::tests::state();
        let kept: Vec<_> =
            kept.iter().map(|(start, len)| MemoryPiece { start: *start, len: *len, at: *start }).collect();
        let situation = Situation {
            kept: &kept,
            areas: &[],
            own_system_areas: &[],
            restorer: (0x10_0000, 0x1000),
            scratch: (0x10_1000, 0x1000),
            data: 0x10_0800,
            executable: -1,
            closed: &[],
            state: &state,
        };
        let mut steps = Vec::new();
        unmap_all_else(&situation, &mut steps);
        steps.iter().map(|step| (step.arguments[0], step.arguments[0] + step.arguments[1])).collect()
    }

    #[test]
    fn everything_else_is_unmapped_and_nothing_that_is_kept() {
        let all = unmapped(&[(0x20_0000, 0x1000), (0x20_1000, 0x1000), (0x1000, 0x2000)]);
        assert_eq!(all, [(0, 0x1000), (0x3000, 0x10_0000), (0x10_1000, 0x20_0000), (0x20_2000, ADDRESSES_END)]);
    }

    #[test]
    fn stacks_are_as_at_the_entry_of_a_function() {
        assert_eq!((below(0x7fff_1238) + 8) % 16, 0);
        assert!(below(0x7fff_1238) < 0x7fff_1238 - 128);
    }

    #[test]
    fn the_list_ends_by_leaving_and_makes_every_other_thread() {
        let state = crate::image::state::tests::state();
        let situation = Situation {
            kept: &[],
            areas: &[],
            own_system_areas: &[],
            restorer: (0x10_0000, 0x1000),
            scratch: (0x10_1000, 0x1000),
            data: 0x10_0800,
            executable: -1,
            closed: &[7],
            state: &state,
        };
        let (steps, data) = make(&situation);
        assert_eq!(steps.last().unwrap().expect, Expect::Leave as u64);
        let threads: Vec<_> = steps.iter().filter(|step| step.expect == Expect::Thread as u64).collect();
        // One thread besides the first, and the agent. The arguments of each are within the data.
        assert_eq!(threads.len(), 2);
        for (step, tid) in threads.iter().zip([12, 99]) {
            let index = ((step.arguments[0] - 0x10_0800) / 8) as usize;
            assert_eq!(data[index + 11], tid);
            assert_eq!(data[index + 8], step.arguments[0] + 88);
        }
    }
}
