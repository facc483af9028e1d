//! Where in the program something was asked for or sent.
//!
//! With `redrun --check-determinism` a ring of the latest stacks is kept, which `redrun` asks for when a message or a
//! path differs between replicas. Else only a call that is under way has a stack.

use libc::{c_int, c_void};
use quiesce::DecisionKey;
use redrt_wire::trace::{Frame, Sending, Trace};
use std::collections::VecDeque;
use std::ops::Range;
use std::time::{SystemTime, UNIX_EPOCH};

/// Innermost frames that are kept, the library's own among them.
const FRAMES_MAX: usize = 40;
/// Number of messages that are remembered, and of outcomes.
const TRACES_MAX: usize = 8192;

/// The addresses of a stack, innermost first.
#[derive(Clone, Copy)]
struct Stack {
    time_ns: u64,
    count: usize,
    addresses: [usize; FRAMES_MAX],
}

// Of the Itanium C++ ABI: exception handling, level I. What throws exceptions in this library brings them along.
unsafe extern "C" {
    fn _Unwind_Backtrace(each: extern "C" fn(*mut c_void, *mut c_void) -> c_int, argument: *mut c_void) -> c_int;
    fn _Unwind_GetIP(frame: *mut c_void) -> usize;
    fn _Unwind_FindEnclosingFunction(address: *mut c_void) -> *mut c_void;
}

/// `_URC_NO_REASON`: goes on with the caller; and `_URC_NORMAL_STOP`.
const GO_ON: c_int = 0;
const STOP: c_int = 4;

/// Calls this with the address of each frame of the calling thread's stack, innermost first, while it returns `true`.
/// Not by backtrace(3), which loads a library the first time it is called: in one replica only, whose memory would lie
/// elsewhere than that of its siblings from then on.
#[inline(always)]
pub fn walk_stack<F: FnMut(usize) -> bool>(mut each: F) {
    extern "C" fn look_at<F: FnMut(usize) -> bool>(frame: *mut c_void, each: *mut c_void) -> c_int {
        // SAFETY: - what walk_stack passes on, which nobody else refers to meanwhile.
        let each = unsafe { &mut *each.cast::<F>() };
        // SAFETY: - the frame is that of this call.
        if each(unsafe { _Unwind_GetIP(frame) }) { GO_ON } else { STOP }
    }
    // SAFETY: - the function is for this argument, which lives longer than the call.
    let _ = unsafe { _Unwind_Backtrace(look_at::<F>, (&raw mut each).cast()) };
}

/// Whether an address on the stack is that of a function of a file, and not of code that was generated since.
pub fn is_in_function(address: usize) -> bool {
    let address = std::ptr::without_provenance_mut(address.saturating_sub(1));
    // SAFETY: - looks the address up, and does not follow it.
    !unsafe { _Unwind_FindEnclosingFunction(address) }.is_null()
}

impl Stack {
    const NONE: Self = Self { time_ns: 0, count: 0, addresses: [0; FRAMES_MAX] };

    /// The stack of this thread.
    fn note_here(&mut self) {
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

    /// `maps` is the text of `/proc/self/maps`.
    fn located(&self, maps: &str) -> Trace {
        let frames = self.addresses[..self.count].iter().map(|address| place(*address as u64, maps)).collect();
        Trace { time_ns: self.time_ns, frames }
    }
}

/// The stacks of the latest of these.
struct Ring<K>(VecDeque<(K, Stack)>);

impl<K: PartialEq> Ring<K> {
    fn note(&mut self, key: K) {
        let mut noted = match self.0.len() {
            TRACES_MAX => self.0.pop_front().expect("it is full").1,
            _ => Stack::NONE,
        };
        noted.note_here();
        self.0.push_back((key, noted));
    }

    fn find(&self, key: &K, maps: &str) -> Option<Trace> {
        let (_, noted) = self.0.iter().rfind(|(noted, _)| noted == key)?;
        Some(noted.located(maps))
    }
}

/// See the module.
pub struct Traces {
    messages: Ring<Sending>,
    outcomes: Ring<DecisionKey>,
}

impl Traces {
    /// None yet.
    pub fn begin() -> Self {
        Self { messages: Ring(VecDeque::with_capacity(TRACES_MAX)), outcomes: Ring(VecDeque::new()) }
    }

    /// A message is being sent by this thread.
    pub fn note(&mut self, sending: Sending) {
        self.messages.note(sending);
    }

    /// This thread decides an outcome, or takes one.
    pub fn note_outcome(&mut self, key: DecisionKey) {
        self.outcomes.note(key);
    }

    /// Where this message was sent, if that is still known. `maps` is the text of `/proc/self/maps`.
    pub fn find(&self, sending: &Sending, maps: &str) -> Option<Trace> {
        self.messages.find(sending, maps)
    }

    /// Where this outcome was asked for, if that is still known.
    pub fn find_outcome(&self, key: &DecisionKey, maps: &str) -> Option<Trace> {
        self.outcomes.find(key, maps)
    }
}

/// What finds the files of addresses in this process.
pub fn maps() -> String {
    std::fs::read_to_string("/proc/self/maps").unwrap_or_default()
}

/// Where the calling thread is.
pub fn here(maps: &str) -> Trace {
    let mut stack = Stack::NONE;
    stack.note_here();
    stack.located(maps)
}

/// A file that is mapped: the addresses, where in the file they begin, and its name.
fn mapping(line: &str) -> Option<(Range<u64>, u64, &str)> {
    // 7f0000000000-7f0000001000 r-xp 00002000 08:01 1234    /path of the file
    let mut words = line.split_ascii_whitespace();
    let (from, to) = words.next()?.split_once('-')?;
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    let range = number(from)?..number(to)?;
    let offset = number(words.nth(1)?)?;
    Some((range, offset, line.find('/').map(|at| &line[at..])?))
}

/// The file that an address is in, and the offset there.
fn place(address: u64, maps: &str) -> Frame {
    let found = maps.lines().filter_map(mapping).find(|(range, ..)| range.contains(&address));
    match found {
        Some((range, offset, file)) => Frame { file: file.to_owned(), offset: address - range.start + offset },
        None => Frame { file: String::new(), offset: address },
    }
}

/// The addresses of the file that this address is in.
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
            traces.note(sending(number));
        }
        let maps = maps();
        assert_eq!(traces.find(&sending(0), &maps), None);
        let trace = traces.find(&sending(1), &maps).expect("it is among the latest");
        assert!(trace.time_ns > 0 && trace.frames.len() > 2);
        let own = std::env::current_exe().expect("this program is a file").display().to_string();
        assert!(trace.frames.iter().any(|frame| frame.file == own), "{trace:?}");
    }
    #[test]
    fn outcomes_are_remembered_beside_messages_and_one_that_is_asked_for_now_has_a_stack() {
        let mut traces = Traces::begin();
        let key = |index| DecisionKey { stream: StreamId::Thread(0), index };
        traces.note_outcome(key(3));
        let maps = maps();
        assert_eq!(traces.find_outcome(&key(4), &maps), None);
        assert!(traces.find_outcome(&key(3), &maps).is_some_and(|trace| trace.frames.len() > 2));
        assert!(here(&maps).frames.len() > 2);
    }
}
