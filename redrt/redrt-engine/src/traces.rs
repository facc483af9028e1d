//! Positions in the program of sends and of questions for outcomes.
//!
//! With `redrun --check-determinism` a ring of the latest stacks is kept. `redrun` asks for them when a message or a
//! path differs between replicas. Otherwise only a call under way has a stack.
//!
//! So are the stacks of the steps that threads make in their order (`thread-order`): of two replicas in which a thread
//! sent different things, they show the last lock that it took alike.

use libc::{c_int, c_void};
use quiesce::DecisionKey;
use redrt_process::process_local;
use redrt_wire::trace::{Frame, LockEvent, Sending, Trace};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// Number of innermost frames kept, the library's own included.
const FRAMES_MAX: usize = 40;
/// Number of messages remembered, of outcomes, and of steps of threads.
const TRACES_MAX: usize = 8192;
/// Length of a thread's name in the kernel, its end included.
const NAME_BYTES: usize = 16;

process_local! {
    /// True where stacks are recorded.
    static IS_RECORDING: AtomicBool = AtomicBool::new(false);
    /// The latest steps of all threads. Nothing else is locked while this is.
    static LOCK_EVENTS: Mutex<LockEvents> = const { Mutex::new(LockEvents { next: 0, latest: VecDeque::new() }) };
}

/// The addresses of a stack, innermost first.
#[derive(Clone, Copy)]
struct Stack {
    time_ns: u64,
    thread: u64,
    name: [u8; NAME_BYTES],
    /// Number of lock events before this, of all threads.
    events_before: u64,
    count: usize,
    addresses: [usize; FRAMES_MAX],
}

// Part of the Itanium C++ ABI: exception handling, level I. The unwinder of this library provides it.
unsafe extern "C" {
    fn _Unwind_Backtrace(each: extern "C" fn(*mut c_void, *mut c_void) -> c_int, argument: *mut c_void) -> c_int;
    fn _Unwind_GetIP(frame: *mut c_void) -> usize;
    fn _Unwind_FindEnclosingFunction(address: *mut c_void) -> *mut c_void;
}

/// `_URC_NO_REASON`, to go on with the caller. Below it: `_URC_NORMAL_STOP`.
const GO_ON: c_int = 0;
const STOP: c_int = 4;

/// Calls `each` with the address of each frame of the calling thread's stack, innermost first, while it returns `true`.
/// The trap: backtrace(3) loads a library at its first call. In one replica only, that would move its later memory away
/// from that of its siblings.
#[inline(always)]
pub fn walk_stack<F: FnMut(usize) -> bool>(mut each: F) {
    extern "C" fn visit<F: FnMut(usize) -> bool>(frame: *mut c_void, each: *mut c_void) -> c_int {
        // SAFETY: - the closure that walk_stack passes on, which nobody else refers to meanwhile.
        let each = unsafe { &mut *each.cast::<F>() };
        // SAFETY: - the frame is that of this call.
        if each(unsafe { _Unwind_GetIP(frame) }) { GO_ON } else { STOP }
    }
    // SAFETY: - visit::<F> is for this argument, which outlives the call.
    let _ = unsafe { _Unwind_Backtrace(visit::<F>, (&raw mut each).cast()) };
}

/// Returns true if an address on the stack is in a function of a file, and not in code generated at run time.
pub fn is_in_function(address: usize) -> bool {
    let address = std::ptr::without_provenance_mut(address.saturating_sub(1));
    // SAFETY: - the address is looked up, and not dereferenced.
    !unsafe { _Unwind_FindEnclosingFunction(address) }.is_null()
}

impl Stack {
    const NONE: Self =
        Self { time_ns: 0, thread: 0, name: [0; NAME_BYTES], events_before: 0, count: 0, addresses: [0; FRAMES_MAX] };

    /// Records the stack of this thread, which has this number.
    fn record_here(&mut self, thread: u64) {
        self.thread = thread;
        // SAFETY: - the kernel writes a name of at most NAME_BYTES bytes, its end included.
        let _ = unsafe { libc::prctl(libc::PR_GET_NAME, self.name.as_mut_ptr()) };
        self.events_before = lock_events().next;
        let time = SystemTime::now().duration_since(UNIX_EPOCH);
        self.time_ns = time.map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        self.count = 0;
        walk_stack(|address| {
            let Some(place) = self.addresses.get_mut(self.count) else { return false };
            *place = address;
            self.count += 1;
            true
        });
    }

    /// The stack with files and offsets. `maps` is the text of `/proc/self/maps`.
    fn located(&self, maps: &str) -> Trace {
        let name = self.name.split(|byte| *byte == 0).next().unwrap_or_default();
        Trace {
            time_ns: self.time_ns,
            frames: self.frames(maps),
            thread: self.thread,
            thread_name: String::from_utf8_lossy(name).into_owned(),
            lock_events: lock_events().before(self, maps),
        }
    }

    fn frames(&self, maps: &str) -> Vec<Frame> {
        self.addresses[..self.count].iter().map(|address| place(*address as u64, maps)).collect()
    }
}

/// Ring of the latest steps in the order of threads, each with its number in its thread.
struct LockEvents {
    /// Number of all so far.
    next: u64,
    latest: VecDeque<(u64, Stack)>,
}

fn lock_events() -> MutexGuard<'static, LockEvents> {
    LOCK_EVENTS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LockEvents {
    /// The latest of the stack's thread that came before the stack.
    fn before(&self, stack: &Stack, maps: &str) -> Vec<LockEvent> {
        let is_before =
            |event: &&(u64, Stack)| event.1.thread == stack.thread && event.1.events_before < stack.events_before;
        let latest = self.latest.iter().rev().filter(is_before).take(Trace::LOCK_EVENTS_MAX);
        let mut events: Vec<_> =
            latest.map(|(number, stack)| LockEvent { number: *number, frames: stack.frames(maps) }).collect();
        events.reverse();
        events
    }
}

/// Records that this thread has made a step in the order of threads, its operation of this number.
#[inline]
pub fn record_lock_event(thread: u64, number: u64) {
    if IS_RECORDING.load(Ordering::Relaxed) {
        record_stack_of_lock_event(thread, number);
    }
}

#[cold]
fn record_stack_of_lock_event(thread: u64, number: u64) {
    let mut stack = Stack::NONE;
    stack.record_here(thread);
    let mut events = lock_events();
    stack.events_before = events.next;
    events.next += 1;
    if events.latest.len() == TRACES_MAX {
        events.latest.pop_front();
    }
    events.latest.push_back((number, stack));
}

/// The position of this thread's latest step in the order of threads; `None` if it is not known any more.
pub fn latest_lock_event(thread: u64, maps: &str) -> Option<Trace> {
    let latest = lock_events().latest.iter().rfind(|(_, stack)| stack.thread == thread).map(|(_, stack)| *stack)?;
    // The step itself is among the events.
    Some(Stack { events_before: latest.events_before + 1, ..latest }.located(maps))
}

/// Ring of the latest stacks, by key.
struct Ring<K>(VecDeque<(K, Stack)>);

impl<K: PartialEq> Ring<K> {
    fn record(&mut self, key: K, thread: u64) {
        let mut noted = match self.0.len() {
            TRACES_MAX => self.0.pop_front().expect("it is full").1,
            _ => Stack::NONE,
        };
        noted.record_here(thread);
        self.0.push_back((key, noted));
    }

    fn find(&self, key: &K, maps: &str) -> Option<Trace> {
        let (_, noted) = self.0.iter().rfind(|(noted, _)| noted == key)?;
        Some(noted.located(maps))
    }
}

/// Rings of the latest stacks; see the module.
pub struct Traces {
    messages: Ring<Sending>,
    outcomes: Ring<DecisionKey>,
}

impl Traces {
    /// Starts with empty rings.
    pub fn begin() -> Self {
        IS_RECORDING.store(true, Ordering::Relaxed);
        Self { messages: Ring(VecDeque::with_capacity(TRACES_MAX)), outcomes: Ring(VecDeque::new()) }
    }

    /// Records that this thread, of this number, sends a message.
    pub fn record(&mut self, sending: Sending, thread: u64) {
        self.messages.record(sending, thread);
    }

    /// Records that this thread, of this number, decides an outcome, or takes one.
    pub fn record_outcome(&mut self, key: DecisionKey, thread: u64) {
        self.outcomes.record(key, thread);
    }

    /// The stack of this send, if it is still in the ring. `maps` is the text of `/proc/self/maps`.
    pub fn find(&self, sending: &Sending, maps: &str) -> Option<Trace> {
        self.messages.find(sending, maps)
    }

    /// The stack of this question for an outcome, if it is still in the ring.
    pub fn find_outcome(&self, key: &DecisionKey, maps: &str) -> Option<Trace> {
        self.outcomes.find(key, maps)
    }
}

/// The text of `/proc/self/maps`, which locates addresses of this process in files; empty if it cannot be read.
pub fn maps() -> String {
    std::fs::read_to_string("/proc/self/maps").unwrap_or_default()
}

/// The stack of the calling thread, which has this number.
pub fn here(thread: u64, maps: &str) -> Trace {
    let mut stack = Stack::NONE;
    stack.record_here(thread);
    stack.located(maps)
}

/// Parses a mapping of a file: its addresses, its offset in the file, and the file's name.
fn mapping(line: &str) -> Option<(Range<u64>, u64, &str)> {
    // 7f0000000000-7f0000001000 r-xp 00002000 08:01 1234    /path of the file
    let mut words = line.split_ascii_whitespace();
    let (from, to) = words.next()?.split_once('-')?;
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    let range = number(from)?..number(to)?;
    let offset = number(words.nth(1)?)?;
    Some((range, offset, line.find('/').map(|at| &line[at..])?))
}

/// The file and offset of an address.
fn place(address: u64, maps: &str) -> Frame {
    let found = maps.lines().filter_map(mapping).find(|(range, ..)| range.contains(&address));
    match found {
        Some((range, offset, file)) => Frame { file: file.to_owned(), offset: address - range.start + offset },
        None => Frame { file: String::new(), offset: address },
    }
}

/// The address range of the file that contains this address.
pub fn file_around(address: u64, maps: &str) -> Option<Range<u64>> {
    let all = || maps.lines().filter_map(mapping);
    let (.., own) = all().find(|(range, ..)| range.contains(&address))?;
    let parts = all().filter(|(.., file)| *file == own).map(|(range, ..)| range);
    parts.reduce(|all, part| all.start.min(part.start)..all.end.max(part.end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use quiesce::StreamId;
    use redrt_types::{ContextId, SeqNum, VirtualRank};

    fn sending(number: u64) -> Sending {
        Sending { to: VirtualRank(1), context: ContextId(2), sequence: SeqNum(number) }
    }

    #[test]
    fn an_address_is_found_in_its_file() {
        let maps = "00400000-00401000 r--p 00000000 08:01 7    /bin/a b\n00401000-00402000 r-xp 00001000 08:01 7    /bin/a b\n\
                    7ffe0000-7fff0000 rw-p 00000000 00:00 0    [stack]\n";
        assert_eq!(place(0x40_1010, maps), Frame { file: "/bin/a b".into(), offset: 0x1010 });
        assert_eq!(place(0x7ffe_0001, maps), Frame { file: String::new(), offset: 0x7ffe_0001 });
        assert_eq!(place(1, "rubbish\n-\n"), Frame { file: String::new(), offset: 1 });
        assert_eq!(file_around(0x40_1010, maps), Some(0x40_0000..0x40_2000));
        assert_eq!(file_around(0x7ffe_0001, maps), None);
        assert_eq!(file_around(1, "rubbish\n-\n"), None);
    }

    #[test]
    fn code_of_a_file_is_told_apart_from_what_is_none() {
        let mut first = None;
        walk_stack(|address| *first.get_or_insert(address) == 0);
        assert!(first.is_some_and(is_in_function));
        let heap = Box::new(0_u64);
        assert!(!is_in_function(&raw const *heap as usize));
    }

    #[test]
    fn the_latest_messages_are_remembered_with_their_stacks() {
        let mut traces = Traces::begin();
        for number in 0..=TRACES_MAX as u64 {
            traces.record(sending(number), 0);
        }
        let maps = maps();
        assert_eq!(traces.find(&sending(0), &maps), None);
        let trace = traces.find(&sending(1), &maps).expect("it is among the latest");
        assert!(trace.time_ns > 0 && trace.frames.len() > 2);
        let own = std::env::current_exe().expect("this program is a file").display().to_string();
        assert!(trace.frames.iter().any(|frame| frame.file == own), "{trace:?}");
    }

    /// A send is found with the steps that its thread made before it, and with no later ones.
    #[test]
    fn a_threads_steps_are_remembered_up_to_a_send() {
        let mut traces = Traces::begin();
        // Other tests of this process record steps of no thread of these numbers.
        for (thread, number) in [(71, 1), (72, 4), (71, 3)] {
            record_lock_event(thread, number);
        }
        traces.record(sending(1), 71);
        record_lock_event(71, 9);
        let maps = maps();
        let trace = traces.find(&sending(1), &maps).expect("it is among the latest");
        let numbers = |trace: &Trace| trace.lock_events.iter().map(|event| event.number).collect::<Vec<_>>();
        assert_eq!((trace.thread, numbers(&trace)), (71, vec![1, 3]));
        assert!(trace.lock_events.iter().all(|event| event.frames.len() > 2) && !trace.thread_name.is_empty());
        let latest = latest_lock_event(71, &maps).expect("it has made steps");
        assert_eq!((latest.thread, numbers(&latest)), (71, vec![1, 3, 9]));
        assert_eq!(latest_lock_event(73, &maps), None);
    }

    /// An outcome that is being asked for has a stack.
    #[test]
    fn outcomes_are_remembered_beside_messages() {
        let mut traces = Traces::begin();
        let key = |index| DecisionKey { stream: StreamId::Thread(0), index };
        traces.record_outcome(key(3), 0);
        let maps = maps();
        assert_eq!(traces.find_outcome(&key(4), &maps), None);
        assert!(traces.find_outcome(&key(3), &maps).is_some_and(|trace| trace.frames.len() > 2));
        assert!(here(0, &maps).frames.len() > 2);
    }
}
