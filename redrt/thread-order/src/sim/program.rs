//! Programs of simulated processes: free of races, with results that depend on the order of locks.

/// A thread's next act. Numbers are those of locks, condition variables, and instructions of its program.
#[derive(Clone, Copy)]
pub enum Instruction {
    Lock(usize),
    /// Sets `got` if it has the lock.
    TryLock(usize),
    /// Takes the lock as one of several readers.
    Read(usize),
    Unlock(usize),
    /// Sets `got` if it was woken before its time was over.
    Wait {
        condition: usize,
        lock: usize,
        is_timed: bool,
    },
    Signal(usize),
    Broadcast(usize),
    /// Waits until all threads have come. Sets `got` if it came last.
    Barrier,
    /// Computes with what its locks protect.
    Do(fn(&mut Memory, &mut Registers)),
    JumpIf(fn(&Memory, &Registers) -> bool, usize),
    Jump(usize),
    /// Makes its value visible.
    Output,
    /// The same by a channel that all threads use: the message's number on the channel is visible too.
    Send,
    /// Writes to a pipe with room for three items. Sets `got` if there was room.
    Write,
    /// Reads all that the pipe has, at most two items, and waits for a time if it has none: `number` says how many.
    Drain,
    /// `MPI_Init`, in thread 0: threads are ordered from here on.
    Init,
    End,
}

pub const VARIABLES: usize = 4;
pub type Memory = [u64; VARIABLES];

/// Memory of a thread's own.
#[derive(Clone, Debug, Default)]
pub struct Registers {
    pub me: u64,
    pub got: bool,
    pub number: u64,
    pub value: u64,
}

/// A program: its number of threads, and the instructions of each.
pub type Program = (usize, fn(usize) -> &'static [Instruction]);

use Instruction::*;

fn mix(value: u64, with: u64) -> u64 {
    (value ^ with).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23)
}

/// Takes the next piece, works, and adds up in the order of arrival.
const WORKER: &[Instruction] = &[
    Lock(0),
    Do(|memory, own| {
        own.number = memory[0];
        memory[0] += 1;
    }),
    Unlock(0),
    JumpIf(|_, own| own.number >= 24, 10),
    Do(|_, own| own.value = mix(own.value, own.number)),
    Lock(1),
    Do(|memory, own| memory[1] = mix(memory[1], own.value ^ own.me)),
    Unlock(1),
    Output,
    Jump(0),
    End,
];

/// Waits for an item in a buffer of two places, or gives up and counts that.
const CONSUMER: &[Instruction] = &[
    Lock(0),
    JumpIf(|memory, _| memory[0] > 0, 7),
    JumpIf(|memory, _| memory[2] == 12, 13),
    Wait { condition: 0, lock: 0, is_timed: true },
    JumpIf(|_, own| own.got, 1),
    Do(|_, own| own.value = mix(own.value, 99)),
    Jump(1),
    Do(|memory, own| {
        memory[0] -= 1;
        memory[1] = mix(memory[1], own.me);
        own.value = mix(own.value, memory[1]);
    }),
    Signal(1),
    Unlock(0),
    Output,
    Jump(0),
    End,
    Unlock(0),
    Output,
    End,
];

const PRODUCER: &[Instruction] = &[
    Lock(0),
    JumpIf(|memory, _| memory[0] < 2, 4),
    Wait { condition: 1, lock: 0, is_timed: false },
    Jump(1),
    Do(|memory, own| {
        memory[0] += 1;
        memory[2] += 1;
        own.number += 1;
    }),
    Broadcast(0),
    Unlock(0),
    JumpIf(|_, own| own.number < 6, 0),
    End,
];

/// Counts the times that it found the lock busy.
const ATTEMPT: &[Instruction] = &[
    TryLock(0),
    JumpIf(|_, own| own.got, 4),
    Do(|_, own| own.value += 1),
    Jump(0),
    Do(|memory, own| {
        memory[0] = mix(memory[0], own.me + own.value);
        own.number += 1;
    }),
    Unlock(0),
    Output,
    JumpIf(|_, own| own.number < 8, 0),
    End,
];

const READER: &[Instruction] = &[
    Read(0),
    Do(|memory, own| own.value = mix(own.value, memory[0])),
    Unlock(0),
    Do(|_, own| own.number += 1),
    Output,
    JumpIf(|_, own| own.number < 8, 0),
    End,
];

const WRITER: &[Instruction] = &[
    Lock(0),
    Do(|memory, own| {
        memory[0] = mix(memory[0], own.me);
        own.number += 1;
    }),
    Unlock(0),
    JumpIf(|_, own| own.number < 8, 0),
    End,
];

/// Rounds that begin together; the thread that ends one is counted.
const ROUND: &[Instruction] = &[
    Lock(0),
    Do(|memory, own| {
        memory[0] = mix(memory[0], own.me);
        own.value = mix(own.value, memory[0]);
    }),
    Unlock(0),
    Barrier,
    JumpIf(|_, own| !own.got, 6),
    Do(|_, own| own.value = mix(own.value, 77)),
    Do(|_, own| own.number += 1),
    Output,
    JumpIf(|_, own| own.number < 6, 0),
    End,
];

/// Sends computed values by one channel, without a lock.
const SENDER: &[Instruction] = &[
    Do(|_, own| {
        own.number += 1;
        own.value = mix(own.value, own.me + own.number);
    }),
    Send,
    JumpIf(|_, own| own.number < 8, 0),
    End,
];

/// Writes to a pipe without waiting, and counts the times that it was full.
const FILLER: &[Instruction] = &[
    // It computes, so that the pipe is empty at times.
    Lock(0),
    Do(|memory, own| own.value = mix(own.value, memory[2])),
    Unlock(0),
    Do(|_, own| own.value = mix(own.value, 33)),
    Write,
    JumpIf(|_, own| own.got, 8),
    Do(|_, own| own.value = mix(own.value, 55)),
    Jump(4),
    Do(|memory, own| {
        memory[own.me as usize] += 1;
        own.number += 1;
    }),
    Output,
    JumpIf(|_, own| own.number < 6, 0),
    End,
];

/// Reads from it, waits for a time, and counts the times that it stayed empty.
const DRAINER: &[Instruction] = &[
    Drain,
    Do(|memory, own| {
        own.value = mix(own.value, own.number);
        memory[3] += own.number;
    }),
    Output,
    JumpIf(|memory, _| memory[3] < 12, 0),
    End,
];

/// Takes items, some of them before the order begins. Those add up; later ones depend on the order.
const EARLY_WORKER: &[Instruction] = &[
    Lock(0),
    JumpIf(|memory, _| memory[0] > 0, 5),
    JumpIf(|memory, _| memory[1] == 12, 13),
    Wait { condition: 0, lock: 0, is_timed: false },
    Jump(1),
    Do(|memory, own| {
        memory[0] -= 1;
        own.number = memory[2];
        if memory[2] == 1 {
            memory[3] = mix(memory[3], own.me);
            own.value = mix(own.value, memory[3]);
        }
    }),
    Unlock(0),
    JumpIf(|_, own| own.number == 0, 9),
    Output,
    Lock(0),
    Do(|memory, _| memory[1] += 1),
    Signal(1),
    Jump(1),
    Unlock(0),
    End,
];

/// Gives a pool four items and waits for them, begins, and gives it eight more.
const EARLY_GIVER: &[Instruction] = &[
    Lock(0),
    Do(|memory, _| memory[0] += 4),
    Broadcast(0),
    JumpIf(|memory, _| memory[1] == 4, 6),
    Wait { condition: 1, lock: 0, is_timed: false },
    Jump(3),
    Unlock(0),
    Init,
    Lock(0),
    Do(|memory, own| {
        memory[0] += 2;
        memory[2] = 1;
        own.number += 2;
    }),
    Signal(0),
    Signal(0),
    JumpIf(|memory, own| memory[1] == 4 + own.number, 15),
    Wait { condition: 1, lock: 0, is_timed: false },
    Jump(12),
    Do(|memory, own| own.value = mix(own.value, memory[3])),
    Unlock(0),
    Output,
    JumpIf(|_, own| own.number < 8, 8),
    Broadcast(0),
    End,
];

/// Counts in two variables, without an end that depends on others, and then in the order of arrival.
const EARLY_COUNTER: &[Instruction] = &[
    Lock(0),
    Do(|memory, _| memory[0] += 1),
    Unlock(0),
    Lock(1),
    Do(|memory, own| {
        memory[1] += 1;
        own.number += 1;
    }),
    Unlock(1),
    JumpIf(|_, own| own.number < 12, 0),
    Lock(0),
    JumpIf(|memory, _| memory[2] == 1, 11),
    Wait { condition: 0, lock: 0, is_timed: false },
    Jump(8),
    Do(|memory, own| {
        memory[3] = mix(memory[3], own.me);
        own.value = memory[3];
    }),
    Unlock(0),
    Output,
    End,
];

/// Begins while others count, and looks at how far they are.
const EARLY_WATCHER: &[Instruction] = &[
    Init,
    Lock(0),
    Do(|memory, own| own.value = memory[0]),
    Unlock(0),
    Output,
    Lock(1),
    Do(|memory, own| own.value = memory[1]),
    Unlock(1),
    Output,
    Lock(0),
    Do(|memory, _| memory[2] = 1),
    Broadcast(0),
    Unlock(0),
    End,
];

/// Meets the others at a barrier before it waits, and then takes its turn.
const EARLY_CROWD: &[Instruction] = &[
    Barrier,
    Lock(0),
    JumpIf(|memory, _| memory[2] == 1, 5),
    Wait { condition: 0, lock: 0, is_timed: false },
    Jump(2),
    Do(|memory, own| {
        memory[3] = mix(memory[3], own.me);
        own.value = memory[3];
    }),
    Unlock(0),
    Output,
    End,
];

/// Meets the others, begins, and lets them go on.
const EARLY_CALLER: &[Instruction] =
    &[Barrier, Init, Lock(0), Do(|memory, _| memory[2] = 1), Broadcast(0), Unlock(0), End];

/// Gives items one by one, and says so without the lock.
const EARLY_TALKER: &[Instruction] = &[
    Lock(0),
    Do(|memory, own| {
        memory[0] += 1;
        own.number += 1;
    }),
    Unlock(0),
    Signal(0),
    JumpIf(|_, own| own.number < 6, 0),
    End,
];

/// Takes them. The order decides how many of them come once another thread has looked.
const EARLY_LISTENER: &[Instruction] = &[
    Lock(0),
    JumpIf(|memory, _| memory[0] > 0, 5),
    JumpIf(|memory, _| memory[1] == 6, 7),
    Wait { condition: 0, lock: 0, is_timed: false },
    Jump(1),
    Do(|memory, own| {
        memory[0] -= 1;
        memory[1] += 1;
        if memory[2] == 1 {
            own.value = mix(own.value, memory[1]);
        }
    }),
    Jump(1),
    Unlock(0),
    Output,
    End,
];

/// Begins, and looks at how many there are.
const EARLY_LOOKER: &[Instruction] = &[
    Init,
    Lock(0),
    Do(|memory, own| {
        own.value = memory[1];
        memory[2] = 1;
    }),
    Unlock(0),
    Output,
    End,
];

/// Adds up with a lock within another one, and then in the order of arrival.
const EARLY_NESTED: &[Instruction] = &[
    Lock(0),
    Lock(1),
    Do(|memory, own| {
        memory[0] += own.me;
        own.number += 1;
    }),
    Unlock(1),
    Unlock(0),
    JumpIf(|_, own| own.number < 4, 0),
    Lock(1),
    JumpIf(|memory, _| memory[2] == 1, 10),
    Wait { condition: 0, lock: 1, is_timed: false },
    Jump(7),
    Do(|memory, own| {
        memory[3] = mix(memory[3], own.me);
        own.value = memory[3];
    }),
    Unlock(1),
    Output,
    End,
];

/// Begins, and lets others go on.
const EARLY_OPENER: &[Instruction] = &[Init, Lock(1), Do(|memory, _| memory[2] = 1), Broadcast(0), Unlock(1), End];

/// Programs with threads that are older than the order.
pub const EARLY_PROGRAMS: [Program; 5] = [
    (4, |thread| if thread == 0 { EARLY_GIVER } else { EARLY_WORKER }),
    (3, |thread| if thread == 0 { EARLY_WATCHER } else { EARLY_COUNTER }),
    (4, |thread| if thread == 0 { EARLY_CALLER } else { EARLY_CROWD }),
    (3, |thread| [EARLY_LOOKER, EARLY_TALKER, EARLY_LISTENER][thread]),
    (4, |thread| if thread == 0 { EARLY_OPENER } else { EARLY_NESTED }),
];

/// Takes a lock as often as it reads in memory that no lock protects.
const RACER: &[Instruction] = &[
    Lock(0),
    Do(|memory, own| {
        own.number += 1;
        memory[1] = mix(memory[1], own.me);
    }),
    Unlock(0),
    Output,
    JumpIf(|memory, own| own.number < 3 + (own.me % 2) * memory[VARIABLES - 1], 0),
    End,
];

/// Threads of each replica go by another path.
pub const RACING_PROGRAM: Program = (4, |_| RACER);

pub const PROGRAMS: [Program; 7] = [
    (3, |_| WORKER),
    (4, |thread| if thread < 2 { CONSUMER } else { PRODUCER }),
    (3, |_| ATTEMPT),
    (4, |thread| if thread < 2 { READER } else { WRITER }),
    (3, |_| ROUND),
    (3, |_| SENDER),
    (3, |thread| if thread < 2 { FILLER } else { DRAINER }),
];
