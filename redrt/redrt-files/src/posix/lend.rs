//! Open files that replicas of a rank share: the leader sends its descriptors to its siblings on the same host.
//!
//! ```text
//!   leader    opens, or locks ── descriptor, token ──▶ socket of each sibling on this host
//!                │                                         │
//!                └── decision: its outcome and token ───▶  └──▶ kept under the token until the program closes the file
//! ```
//! A sibling that becomes the leader then has the same open file, even if it may not open the file by its name, such as
//! a file that was made read-only. And the kernel keeps the locks of an open file as long as it has a descriptor: after
//! a leader's death there is no moment in which another rank could take them.
//!
//! A descriptor arrives before the decision that names it, by a datagram to a socket on the same host. A sibling on
//! another host has no socket of that name here, and gets nothing. Names are derived from the secret of the job's
//! links, like those by which processes wake each other (`redrt_engine::doorbell`). But names of existing sockets are
//! not secret, so a descriptor is claimed by a token that cannot be guessed.
//!
//! A copy of the process has none of these descriptors. The leader sends it all of them when it joins.

use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, UnixAddr, recvmsg, sendmsg};
use redrt_process::lock;
use redrt_runtime::job;
use redrt_runtime::undo;
use redrt_transport::descriptors;
use redrt_types::{Incarnation, ProcessIndex};
use std::collections::BTreeMap;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Mutex;

/// Name of a descriptor among siblings.
pub type Token = [u8; TOKEN_BYTES];

/// Length of a token in bytes.
pub const TOKEN_BYTES: usize = 16;

/// Lowest numbers of the library's descriptors; the second if the limit is lower. They are above the program's, which
/// gets the same numbers in all replicas.
const NUMBERS: [RawFd; 2] = [2048, 256];
/// Maximum number of descriptors in one datagram; the kernel takes 253.
const BATCH_COUNT: usize = 128;
/// Maximum number of descriptors that have come and were not claimed yet: their calls are still to come, or never will.
/// Beyond it the oldest is closed.
const UNCLAIMED_MAX: usize = 256;

/// A descriptor of the library in one life of the process. In a copy its number is of another file.
#[derive(Debug)]
pub struct Loan {
    fd: OwnedFd,
    epoch: u32,
}

impl Loan {
    /// Duplicates a descriptor of an open file; `None` if no number is left.
    pub fn of(fd: RawFd) -> Option<Self> {
        // SAFETY: - touches no memory: F_DUPFD_CLOEXEC takes a number.
        let made = NUMBERS.map(|least| move || unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, least) });
        let made = made.into_iter().map(|make| make()).find(|made| *made >= 0)?;
        descriptors::record(made);
        // SAFETY: - open, and owned by this value alone: fcntl has just made it.
        Some(Self { fd: unsafe { OwnedFd::from_raw_fd(made) }, epoch: descriptors::epoch() })
    }

    /// Number of the descriptor; `None` in a later life of the process.
    pub fn fd(&self) -> Option<RawFd> {
        (self.epoch == descriptors::epoch()).then(|| self.fd.as_raw_fd())
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        descriptors::forget(self.fd.as_raw_fd());
    }
}

/// A process in one of its lives.
type Life = (ProcessIndex, Incarnation);

/// Descriptors that this process keeps, its own and those from siblings.
#[derive(Default)]
struct Store {
    /// Socket to which siblings send; `None` if it could not be made.
    socket: Option<Loan>,
    kept: BTreeMap<Token, Loan>,
    /// Descriptors that have come and were not claimed yet, the oldest first.
    unclaimed: Vec<(Token, Loan)>,
    /// Number of tokens that this process has made.
    count: u64,
    /// Siblings in the last view.
    siblings: Vec<Life>,
}

process_local! {
    static STORE: Mutex<Option<Store>> = const { Mutex::new(None) };
}

/// Locks the store. No image is taken meanwhile: in a copy the store would stay locked.
fn with_store<T>(act: impl FnOnce(&mut Store) -> T) -> T {
    let _passage = undo::inside();
    act(lock(&STORE).get_or_insert_default())
}

/// Derives a value for one life of a process that only processes of the job can compute; `None` outside of a job.
fn derived(life: Life, what: &str) -> Option<[u8; TOKEN_BYTES]> {
    let key = job()?.welcome.link_secret.derive(&format!("redrt {what} of {} incarnation {}", life.0.0, life.1.0));
    key.key()[..TOKEN_BYTES].try_into().ok()
}

fn own_life() -> Option<Life> {
    let welcome = &job()?.welcome;
    Some((welcome.world.process(welcome.me), welcome.incarnation))
}

fn name_of(life: Life) -> Option<Vec<u8>> {
    let name = u128::from_le_bytes(derived(life, "lent descriptors")?);
    Some(format!("redrt-lent-{name:032x}").into_bytes())
}

/// Lets siblings send to this process from now on. Called again in a copy, which has none of its source's descriptors.
/// If this fails, the process gets nothing.
pub fn begin() {
    let Some(name) = own_life().and_then(name_of) else { return };
    // In a copy this closes the files that stand under the numbers of its source's descriptors.
    with_store(|store| *store = Store::bound(&name));
}

/// Sends descriptors with their tokens to a sibling. Returns false if the sibling's queue is full. A sibling that has
/// ended, or is on another host, gets nothing.
fn send(socket: RawFd, to: Life, some: &[(Token, RawFd)]) -> bool {
    name_of(to).is_none_or(|name| send_to(socket, &name, some))
}

fn send_to(socket: RawFd, name: &[u8], some: &[(Token, RawFd)]) -> bool {
    let Ok(address) = UnixAddr::new_abstract(name) else { return true };
    let tokens: Vec<u8> = some.iter().flat_map(|(token, _)| *token).collect();
    let numbers: Vec<RawFd> = some.iter().map(|(_, fd)| *fd).collect();
    let (bytes, rights) = ([IoSlice::new(&tokens)], [ControlMessage::ScmRights(&numbers)]);
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
    loop {
        match sendmsg(socket, &bytes, &rights, flags, Some(&address)) {
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) => return false,
            _ => return true,
        }
    }
}

/// A descriptor that was not lent, with the reason.
pub struct Refusal {
    /// The descriptor, given back.
    pub loan: Loan,
    /// True if a sibling's queue is full now; false if the descriptor cannot be lent at all.
    pub is_full: bool,
}

/// Keeps a descriptor and sends it to all siblings on this host. Called by the leader, with the engine locked, before
/// the decision that names the token.
pub fn lend(loan: Loan) -> Result<Token, Refusal> {
    with_store(|store| {
        store.count += 1;
        let token = own_life().and_then(|life| derived(life, &format!("token {}", store.count)));
        let socket = store.socket.as_ref().and_then(Loan::fd);
        let (Some(token), Some(socket), Some(fd)) = (token, socket, loan.fd()) else {
            return Err(Refusal { loan, is_full: false });
        };
        // After a failure, siblings that have the descriptor get it again in the next attempt, and never claim the
        // first one.
        if !store.siblings.iter().all(|to| send(socket, *to, &[(token, fd)])) {
            return Err(Refusal { loan, is_full: true });
        }
        store.kept.insert(token, loan);
        Ok(token)
    })
}

/// Number of the descriptor with this token, kept or just received; `None` if it has not come.
pub fn find(token: Token) -> Option<RawFd> {
    with_store(|store| store.find(token))
}

/// Closes the descriptor with this token.
pub fn forget(token: Token) {
    with_store(|store| store.kept.remove(&token));
}

/// Closes all kept descriptors.
pub fn end() {
    with_store(|store| store.kept.clear());
}

/// Follows a new view. If this process leads, new siblings get all kept descriptors.
pub fn meet(siblings: Vec<Life>, leads: bool) {
    with_store(|store| {
        let new: Vec<_> = siblings.iter().copied().filter(|life| !store.siblings.contains(life)).collect();
        store.siblings = siblings;
        let kept: Vec<_> = store.kept.iter().filter_map(|(token, loan)| Some((*token, loan.fd()?))).collect();
        if let Some(socket) = store.socket.as_ref().and_then(Loan::fd).filter(|_| leads) {
            // A sibling whose queue is full opens the remaining files by name.
            for life in new {
                let _ = kept.chunks(BATCH_COUNT).all(|some| send(socket, life, some));
            }
        }
    });
}

impl Store {
    /// An empty store, to which siblings send by this name.
    fn bound(name: &[u8]) -> Self {
        let bound = SocketAddr::from_abstract_name(name).and_then(|name| UnixDatagram::bind_addr(&name));
        let socket = bound.ok().and_then(|bound| Loan::of(bound.as_raw_fd()));
        Self { socket, ..Self::default() }
    }

    fn find(&mut self, token: Token) -> Option<RawFd> {
        if !self.kept.contains_key(&token) {
            self.receive();
            let at = self.unclaimed.iter().position(|(other, _)| *other == token)?;
            self.kept.insert(token, self.unclaimed.remove(at).1);
        }
        self.kept.get(&token).and_then(Loan::fd)
    }

    fn receive(&mut self) {
        let Some(socket) = self.socket.as_ref().and_then(Loan::fd) else { return };
        let mut bytes = [0; TOKEN_BYTES * BATCH_COUNT];
        loop {
            let mut space = nix::cmsg_space!([RawFd; BATCH_COUNT]);
            let mut parts = [IoSliceMut::new(&mut bytes)];
            let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_CMSG_CLOEXEC;
            let (count, numbers) = match recvmsg::<()>(socket, &mut parts, Some(&mut space), flags) {
                Err(Errno::EINTR) => continue,
                Err(_) => return,
                Ok(message) => (message.bytes, numbers_in(message.cmsgs())),
            };
            let tokens = bytes[..count].as_chunks().0;
            for (number, at) in numbers.into_iter().zip(0..) {
                // SAFETY: - open, and owned by this value alone: the kernel has just made it for this message.
                let came = unsafe { OwnedFd::from_raw_fd(number) };
                if let Some((token, loan)) = tokens.get(at).copied().zip(Loan::of(came.as_raw_fd())) {
                    self.unclaimed.push((token, loan));
                }
            }
            let spare = self.unclaimed.len().saturating_sub(UNCLAIMED_MAX);
            drop(self.unclaimed.drain(..spare));
        }
    }
}

fn numbers_in<'a>(messages: nix::Result<impl Iterator<Item = ControlMessageOwned> + 'a>) -> Vec<RawFd> {
    let rights = |message| match message {
        ControlMessageOwned::ScmRights(numbers) => numbers,
        _ => Vec::new(),
    };
    messages.map_or_else(|_| Vec::new(), |messages| messages.flat_map(rights).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::{Read, Seek, Write};

    fn name(of: &str) -> Vec<u8> {
        format!("redrt-test-{}-{of}", std::process::id()).into_bytes()
    }

    fn token(number: u8) -> Token {
        [number; TOKEN_BYTES]
    }

    /// Both orders work: the descriptor first, or the call first.
    #[test]
    fn a_sibling_has_the_very_open_file_by_its_token() {
        let (leader, mut sibling) = (Store::bound(&name("leader")), Store::bound(&name("sibling")));
        let socket = leader.socket.as_ref().and_then(Loan::fd).unwrap();
        let mut files = [1, 2, 3].map(|_| tempfile::tempfile().unwrap());
        files[1].write_all(b"bytes").unwrap();
        let [one, other, last] = files.each_ref().map(File::as_raw_fd);
        assert!(send_to(socket, &name("sibling"), &[(token(1), one)]));
        assert!(send_to(socket, &name("sibling"), &[(token(2), other), (token(3), last)]));
        assert!(send_to(socket, &name("nobody"), &[(token(1), one)]));
        assert_eq!(sibling.find(token(4)), None);
        let found = sibling.find(token(2)).unwrap();
        assert!(found >= NUMBERS[1], "{found} is in the program's way");
        // SAFETY: - stays open: the store has it.
        //         - not owned: ManuallyDrop does not close it.
        let mut found = std::mem::ManuallyDrop::new(unsafe { File::from_raw_fd(found) });
        // They share the position.
        files[1].rewind().unwrap();
        let mut text = String::new();
        found.read_to_string(&mut text).unwrap();
        assert_eq!((text.as_str(), files[1].stream_position().unwrap()), ("bytes", 5));
        assert!([1, 3].into_iter().all(|number| sibling.find(token(number)).is_some()));
    }

    /// The queue has room again once the sibling has taken descriptors.
    #[test]
    fn a_sibling_that_takes_nothing_has_no_room_in_the_end() {
        let (leader, mut sibling) = (Store::bound(&name("sender")), Store::bound(&name("sleeper")));
        let socket = leader.socket.as_ref().and_then(Loan::fd).unwrap();
        let file = tempfile::tempfile().unwrap();
        let give = |number: u8| send_to(socket, &name("sleeper"), &[(token(number), file.as_raw_fd())]);
        let count = (1..=u8::MAX).take_while(|number| give(*number)).count();
        if count == usize::from(u8::MAX) {
            return println!("skipped: the queues of this host have room for {count} datagrams");
        }
        assert!(sibling.find(token(1)).is_some());
        assert!(give(u8::MAX) && sibling.find(token(u8::MAX)).is_some());
    }
}
