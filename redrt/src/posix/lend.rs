//! Open files that replicas of one rank share: the leader sends its descriptors to its siblings on the same host.
//!
//! ```text
//!   leader    opens, or locks ── descriptor, token ──▶ socket of each sibling on this host
//!                │                                         │
//!                └── decision: what came of it, token ──▶  └──▶ kept under the token until the program closes the file
//! ```
//! A sibling that takes the leader's place has the very open file then, also where it may not open it by its name: a
//! file that was made for reading only, say. And the kernel's locks that belong to an open file stay while one of its
//! descriptors does: there is no moment after a leader's death in which another rank could have them.
//!
//! What is sent is there before the decision that names it: a datagram to a socket on the same host. A sibling on
//! another host has no socket of that name here, and gets nothing. Names come from the secret of the job's links, as
//! those by which processes wake each other (`redrt_engine::doorbell`); but names are no secret once they are there, so
//! what is sent is taken by its token, which nobody can guess.
//!
//! A copy of the process has none of these descriptors. The leader sends it all when it takes its place.

use crate::runtime::job;
use crate::undo;
use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, UnixAddr, recvmsg, sendmsg};
use redrt_process::lock;
use redrt_transport::descriptors;
use redrt_types::{Incarnation, ProcessIndex};
use std::collections::BTreeMap;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Mutex;

/// Names a descriptor among siblings.
pub type Token = [u8; TOKEN_BYTES];

/// How long one is.
pub const TOKEN_BYTES: usize = 16;

/// Numbers in no program's way, so that those that it gets are the same in all replicas; and where fewer are allowed.
const NUMBERS: [RawFd; 2] = [2048, 256];
/// Most descriptors in one datagram; the kernel takes 253.
const BATCH_COUNT: usize = 128;
/// Descriptors that came and were not asked for: their calls are still to come, or never will. Then the oldest goes.
const UNCLAIMED_MAX: usize = 256;

/// A descriptor of the library's, in one life of the process: in a copy its number is another's.
#[derive(Debug)]
pub struct Loan {
    fd: OwnedFd,
    epoch: u32,
}

impl Loan {
    /// A second descriptor of an open file.
    pub fn of(fd: RawFd) -> Option<Self> {
        // SAFETY: - touch no memory.
        let made = NUMBERS.map(|least| move || unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, least) });
        let made = made.into_iter().map(|make| make()).find(|made| *made >= 0)?;
        descriptors::note(made);
        // SAFETY: - just made, and nobody else's.
        Some(Self { fd: unsafe { OwnedFd::from_raw_fd(made) }, epoch: descriptors::epoch() })
    }

    /// Its number, in the life in which it was made.
    pub fn fd(&self) -> Option<RawFd> {
        (self.epoch == descriptors::epoch()).then(|| self.fd.as_raw_fd())
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        descriptors::forget(self.fd.as_raw_fd());
    }
}

/// A process, in one of its lives.
type Life = (ProcessIndex, Incarnation);

/// What this process has, of its own or from siblings.
#[derive(Default)]
struct Store {
    /// Where siblings send to.
    socket: Option<Loan>,
    kept: BTreeMap<Token, Loan>,
    /// What came, the oldest first.
    unclaimed: Vec<(Token, Loan)>,
    /// How many tokens this process has made.
    count: u64,
    /// Who was there in the last view.
    siblings: Vec<Life>,
}

process_local! {
    static STORE: Mutex<Option<Store>> = const { Mutex::new(None) };
}

/// No image is taken meanwhile: in a copy the store would stay locked.
fn with_store<T>(act: impl FnOnce(&mut Store) -> T) -> T {
    let _passage = undo::inside();
    act(lock(&STORE).get_or_insert_default())
}

/// What only processes of the job know, in one life of a process.
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

/// From now on siblings may send to this process. In a copy, again: it has nothing of what its source had. Where that
/// fails it gets nothing.
pub fn begin() {
    let Some(name) = own_life().and_then(name_of) else { return };
    // What keeps the numbers of a copy's source goes.
    with_store(|store| *store = Store::bound(&name));
}

/// Sends descriptors with their tokens to a sibling. `false` when that has no room: it has yet to take others. One that
/// is not on this host, or not there any more, gets nothing.
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

/// Why a descriptor was not lent.
pub struct Refusal {
    /// The descriptor.
    pub loan: Loan,
    /// A sibling has no room for it now.
    pub is_full: bool,
}

/// Keeps a descriptor and sends it to all siblings on this host. Called with the engine in hand, by the leader, before
/// it decides what names the token.
pub fn lend(loan: Loan) -> Result<Token, Refusal> {
    with_store(|store| {
        store.count += 1;
        let token = own_life().and_then(|life| derived(life, &format!("token {}", store.count)));
        let socket = store.socket.as_ref().and_then(Loan::fd);
        let (Some(token), Some(socket), Some(fd)) = (token, socket, loan.fd()) else {
            return Err(Refusal { loan, is_full: false });
        };
        // A sibling that has got it gets it again the next time, and nobody claims what it got first.
        if !store.siblings.iter().all(|to| send(socket, *to, &[(token, fd)])) {
            return Err(Refusal { loan, is_full: true });
        }
        store.kept.insert(token, loan);
        Ok(token)
    })
}

/// A descriptor that is kept, or has come.
pub fn find(token: Token) -> Option<RawFd> {
    with_store(|store| store.find(token))
}

/// It is not needed any more.
pub fn forget(token: Token) {
    with_store(|store| store.kept.remove(&token));
}

/// Keeps nothing any more.
pub fn end() {
    with_store(|store| store.kept.clear());
}

/// These are the siblings now: if this process leads them, those that are new get all that it keeps.
pub fn meet(siblings: Vec<Life>, leads: bool) {
    with_store(|store| {
        let new: Vec<_> = siblings.iter().copied().filter(|life| !store.siblings.contains(life)).collect();
        store.siblings = siblings;
        let kept: Vec<_> = store.kept.iter().filter_map(|(token, loan)| Some((*token, loan.fd()?))).collect();
        if let Some(socket) = store.socket.as_ref().and_then(Loan::fd).filter(|_| leads) {
            // One that has no room opens by name what it does not get.
            for life in new {
                let _ = kept.chunks(BATCH_COUNT).all(|some| send(socket, life, some));
            }
        }
    });
}

impl Store {
    /// An empty one, to which siblings send by this name.
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
                // SAFETY: - the kernel has just made it, for nobody else.
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

    #[test]
    fn a_sibling_has_the_very_open_file_by_its_token_whatever_comes_first() {
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
        // SAFETY: - open as long as the store has it; it is not closed here.
        let mut found = std::mem::ManuallyDrop::new(unsafe { File::from_raw_fd(found) });
        // They share the position.
        files[1].rewind().unwrap();
        let mut text = String::new();
        found.read_to_string(&mut text).unwrap();
        assert_eq!((text.as_str(), files[1].stream_position().unwrap()), ("bytes", 5));
        assert!([1, 3].into_iter().all(|number| sibling.find(token(number)).is_some()));
    }

    #[test]
    fn a_sibling_that_takes_nothing_has_no_room_in_the_end_and_then_has_again() {
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
