//! Where in the program each message was sent, for `redrun --check-determinism`: a ring of the latest stacks, which
//! `redrun` asks for when a message differs between replicas.

use libc::c_int;
use redrt_wire::trace::{Frame, Sending, Trace};
use std::collections::VecDeque;
use std::time::{SystemTime, UNIX_EPOCH};

/// Innermost frames that are kept, the library's own among them.
const FRAMES_MAX: usize = 40;
/// Number of messages that are remembered.
const TRACES_MAX: usize = 8192;

struct Noted {
    sending: Sending,
    time_ns: u64,
    count: usize,
    addresses: [usize; FRAMES_MAX],
}

/// See the module.
pub struct Traces(VecDeque<Noted>);

/// The stack of this thread.
fn walk(addresses: &mut [usize; FRAMES_MAX]) -> usize {
    // SAFETY: - addresses is valid for writes of as many pointers as it is said to have.
    let count = unsafe { libc::backtrace(addresses.as_mut_ptr().cast(), FRAMES_MAX as c_int) };
    usize::try_from(count).unwrap_or(0)
}

impl Traces {
    /// None yet. Walks a stack once: the first time, what walks it is loaded, which must not happen in the middle of
    /// something.
    pub fn begin() -> Self {
        walk(&mut [0; FRAMES_MAX]);
        Self(VecDeque::with_capacity(TRACES_MAX))
    }

    /// A message is being sent by this thread.
    pub fn note(&mut self, sending: Sending) {
        let mut noted = match self.0.len() {
            TRACES_MAX => self.0.pop_front().expect("it is full"),
            _ => Noted { sending, time_ns: 0, count: 0, addresses: [0; FRAMES_MAX] },
        };
        noted.sending = sending;
        let time = SystemTime::now().duration_since(UNIX_EPOCH);
        noted.time_ns = time.map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        noted.count = walk(&mut noted.addresses);
        self.0.push_back(noted);
    }

    /// Where this message was sent, if that is still known. `maps` is the text of `/proc/self/maps`.
    pub fn find(&self, sending: &Sending, maps: &str) -> Option<Trace> {
        let noted = self.0.iter().rfind(|noted| noted.sending == *sending)?;
        let frames = noted.addresses[..noted.count].iter().map(|address| place(*address as u64, maps)).collect();
        Some(Trace { time_ns: noted.time_ns, frames })
    }
}

/// Where the calling thread is. Not where nothing was walked yet ([`Traces::begin`]): what walks a stack would be
/// loaded in this replica only, and its memory would lie elsewhere than its siblings' from then on.
pub fn here(_: &Traces) -> Vec<Frame> {
    let mut addresses = [0; FRAMES_MAX];
    let count = walk(&mut addresses);
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    addresses[..count].iter().map(|address| place(*address as u64, &maps)).collect()
}

/// The file that an address is in, and the offset there.
fn place(address: u64, maps: &str) -> Frame {
    let find = |line: &str| {
        // 7f0000000000-7f0000001000 r-xp 00002000 08:01 1234    /path of the file
        let mut words = line.split_ascii_whitespace();
        let (from, to) = words.next()?.split_once('-')?;
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        let from = number(from)?;
        if !(from..number(to)?).contains(&address) {
            return None;
        }
        let offset = number(words.nth(1)?)?;
        let file = line.find('/').map(|at| line[at..].to_owned())?;
        Some(Frame { file, offset: address - from + offset })
    };
    maps.lines().find_map(find).unwrap_or(Frame { file: String::new(), offset: address })
}

#[cfg(test)]
mod tests {
    use super::*;
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
    }

    #[test]
    fn the_latest_messages_are_remembered_with_their_stacks() {
        let mut traces = Traces::begin();
        for number in 0..=TRACES_MAX as u64 {
            traces.note(sending(number));
        }
        let maps = std::fs::read_to_string("/proc/self/maps").expect("/proc is mounted");
        assert_eq!(traces.find(&sending(0), &maps), None);
        let trace = traces.find(&sending(1), &maps).expect("it is among the latest");
        assert!(trace.time_ns > 0 && trace.frames.len() > 2);
        let own = std::env::current_exe().expect("this program is a file").display().to_string();
        assert!(trace.frames.iter().any(|frame| frame.file == own), "{trace:?}");
    }
}
