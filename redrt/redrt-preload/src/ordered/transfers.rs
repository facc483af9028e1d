//! Reads and writes of descriptors by which threads reach each other.

use super::Caller;
use super::descriptors::{DescriptorKind, LOOK_NS, await_events, kind, never_waits};
use super::exchange::{Exchange, Outcome, WOULD_BLOCK, current, returned};
use crate::lock_events::Found;
use crate::real;
use libc::{c_int, c_long, c_void, iovec, msghdr, sockaddr, socklen_t};

/// Maximum number of pieces that one call moves. Calls on streams may move less than they are asked for.
const PIECES_MAX: usize = 64;
/// Number of bytes that a pipe takes without waiting once it is ready: a page.
const PIPE_BYTES: usize = 4096;

const AGAIN: Outcome = -(libc::EAGAIN as Outcome);

/// The way a call moves bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From the descriptor into memory.
    Reads,
    /// From memory to the descriptor.
    Writes,
}

impl Way {
    fn events(self) -> i16 {
        match self {
            Self::Reads => libc::POLLIN,
            Self::Writes => libc::POLLOUT,
        }
    }
}

/// Memory of a call, in pieces.
#[derive(Clone, Copy)]
pub struct Pieces {
    /// The first of `count` pieces.
    pub first: *const iovec,
    /// Number of pieces.
    pub count: usize,
}

impl Pieces {
    /// The pieces from byte `begin` on, as far as they fit, but at most `bytes_max` bytes. Returns their number, too.
    fn part(self, begin: usize, bytes_max: usize) -> ([iovec; PIECES_MAX], usize) {
        let mut part = [iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; PIECES_MAX];
        let (mut skipped, mut left, mut used) = (begin, bytes_max, 0);
        for index in 0..self.count {
            // SAFETY: - the caller of the interposed function has promised `count` elements.
            let piece = unsafe { *self.first.add(index) };
            let skip = skipped.min(piece.iov_len);
            skipped -= skip;
            let length = (piece.iov_len - skip).min(left);
            if length > 0 && used < PIECES_MAX {
                part[used] = iovec { iov_base: piece.iov_base.wrapping_byte_add(skip), iov_len: length };
                (used, left) = (used + 1, left - length);
            }
        }
        (part, used)
    }

    fn bytes(self) -> usize {
        // SAFETY: - as above.
        (0..self.count).map(|index| unsafe { (*self.first.add(index)).iov_len }).sum()
    }
}

/// One call, without order.
#[derive(Clone, Copy)]
struct Transfer {
    fd: c_int,
    kind: DescriptorKind,
    way: Way,
    pieces: Pieces,
    /// Flags of calls on sockets.
    flags: c_int,
}

impl Transfer {
    /// Moves bytes from `begin` on, at most `bytes_max`. A socket does not wait; others must be ready, or never wait.
    fn attempt(&self, begin: usize, bytes_max: usize) -> Outcome {
        let (mut part, count) = self.pieces.part(begin, bytes_max);
        if self.kind == DescriptorKind::Socket {
            // SAFETY: - a header of zeros is one without an address and control data.
            let mut header: msghdr = unsafe { std::mem::zeroed() };
            (header.msg_iov, header.msg_iovlen) = (part.as_mut_ptr(), count as _);
            let number = if self.way == Way::Reads { libc::SYS_recvmsg } else { libc::SYS_sendmsg };
            let flags = self.flags | libc::MSG_DONTWAIT;
            // SAFETY: - the header and its pieces live until the call returns; the pieces are the caller's memory.
            return unsafe {
                real::system_call(number, [self.fd.into(), &raw mut header as c_long, flags.into(), 0, 0, 0])
            };
        }
        let number = if self.way == Way::Reads { libc::SYS_readv } else { libc::SYS_writev };
        // SAFETY: - the pieces live until the call returns, and are the caller's memory.
        unsafe { real::system_call(number, [self.fd.into(), part.as_ptr() as c_long, count as c_long, 0, 0, 0]) }
    }

    /// Maximum number of bytes of one attempt. `waits`: the call may wait.
    fn chunk(&self, waits: bool) -> usize {
        // A pipe that has room for a page may not have room for more.
        if waits && self.kind == DescriptorKind::Pipe && self.way == Way::Writes { PIPE_BYTES } else { usize::MAX }
    }

    /// Attempts the call from `begin` on. `waits`: the call may wait.
    fn attempt_or_wait(&self, begin: usize, waits: bool) -> Option<Outcome> {
        let is_ready = || await_events(self.fd, self.way.events(), 0) > 0;
        if waits && self.kind != DescriptorKind::Socket && !is_ready() {
            return WOULD_BLOCK;
        }
        Some(self.attempt(begin, self.chunk(waits))).filter(|outcome| !waits || *outcome != AGAIN)
    }

    /// Waits for the descriptor. Returns an outcome if a signal came.
    fn wait(&self) -> Option<Outcome> {
        Some(await_events(self.fd, self.way.events(), (LOOK_NS / 1_000_000) as c_int)).filter(|outcome| *outcome < 0)
    }

    /// Moves just as many bytes as the leader did, from `begin` on. Fails with an outcome of its own if that is not
    /// possible, as the replicas have parted.
    fn repeat(&self, begin: usize, outcome: Outcome) -> Result<Outcome, Outcome> {
        let wanted = usize::try_from(outcome).unwrap_or(0);
        let mut moved = 0;
        // A write to nobody sends a signal here too.
        if outcome == -(libc::EPIPE as Outcome) {
            self.attempt(begin, 1);
        }
        while moved < wanted {
            let is_ready = self.kind == DescriptorKind::Socket || await_events(self.fd, self.way.events(), 0) > 0;
            match if is_ready { self.attempt(begin + moved, wanted - moved) } else { AGAIN } {
                AGAIN if self.way == Way::Writes && self.grow() => {}
                AGAIN => _ = await_events(self.fd, self.way.events(), -1),
                now if now > 0 => moved += now as usize,
                now if now == -(libc::EINTR as Outcome) => {}
                // The end, or an error, where the leader moved bytes.
                now => return Err(if moved > 0 { moved as Outcome } else { now }),
            }
        }
        Ok(outcome)
    }

    /// Gives the descriptor twice its room. Returns false if it cannot have more.
    ///
    /// The trap: how much a pipe takes depends on how the bytes in it were written, and a follower writes only what its
    /// leader could. In a copy they lie in another way again.
    fn grow(&self) -> bool {
        if self.kind == DescriptorKind::Pipe {
            let control = |command: c_int, argument: c_long| {
                // SAFETY: - both commands take and return numbers.
                unsafe { real::system_call(libc::SYS_fcntl, [self.fd.into(), command.into(), argument, 0, 0, 0]) }
            };
            let room = control(libc::F_GETPIPE_SZ, 0);
            return room > 0 && control(libc::F_SETPIPE_SZ, 2 * room) > room;
        }
        let before = self.send_room();
        // The kernel doubles what it is told.
        let (room, length) = (before, size_of::<c_int>() as c_long);
        let level =
            [self.fd.into(), libc::SOL_SOCKET.into(), libc::SO_SNDBUF.into(), &raw const room as c_long, length, 0];
        // SAFETY: - the number lives until the call returns.
        unsafe { real::system_call(libc::SYS_setsockopt, level) };
        self.send_room() > before
    }

    /// Room of a socket's end for bytes that the other end has not received, as the kernel counts it; 0 for others.
    fn send_room(&self) -> c_int {
        let (mut room, mut length): (c_int, socklen_t) = (0, size_of::<c_int>() as socklen_t);
        let level = [
            self.fd.into(),
            libc::SOL_SOCKET.into(),
            libc::SO_SNDBUF.into(),
            &raw mut room as c_long,
            &raw mut length as c_long,
            0,
        ];
        // SAFETY: - both numbers live until the call returns.
        unsafe { real::system_call(libc::SYS_getsockopt, level) };
        room
    }

    /// Makes the call in its turn, from `begin` on.
    fn exchange(&self, caller: Caller, begin: usize, waits: bool) -> Outcome {
        let exchange = Exchange {
            is_timed: false,
            attempt: |_: &mut Found| self.attempt_or_wait(begin, waits),
            wait: || self.wait(),
            repeat: |outcome, _: &Found| self.repeat(begin, outcome),
        };
        exchange.perform(caller)
    }

    /// Makes the call: a write that waits goes on until it is done.
    fn perform(&self, caller: Caller) -> Outcome {
        let waits = !never_waits(self.fd) && self.flags & libc::MSG_DONTWAIT == 0;
        if self.way == Way::Reads || !waits {
            return self.exchange(caller, 0, waits);
        }
        let (all, mut done) = (self.pieces.bytes(), 0);
        loop {
            match self.exchange(caller, done, true) {
                outcome if outcome < 0 => return if done > 0 { done as Outcome } else { outcome },
                outcome => done += outcome as usize,
            }
            if done >= all {
                return done as Outcome;
            }
        }
    }
}

/// Makes a read or write at the position in its turn; `None` if the call is not ordered.
#[inline]
pub fn transfer(fd: c_int, way: Way, pieces: Pieces) -> Option<i64> {
    let kind = kind(fd)?;
    let caller = current().filter(|_| pieces.count > 0 && pieces.bytes() > 0)?;
    let transfer = Transfer { fd, kind, way, pieces, flags: 0 };
    Some(returned(transfer.perform(caller)))
}

/// Flags with which calls on sockets are ordered.
const FLAGS: c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | libc::MSG_CMSG_CLOEXEC;

/// Makes a call on a socket in its turn; `None` if it is not ordered.
fn on_socket(fd: c_int, way: Way, pieces: Pieces, flags: c_int) -> Option<isize> {
    let kind = kind(fd).filter(|kind| *kind == DescriptorKind::Socket && flags & !FLAGS == 0)?;
    let caller = current()?;
    let transfer = Transfer { fd, kind, way, pieces, flags };
    Some(returned(transfer.perform(caller)) as isize)
}

fn one(memory: *const c_void, length: usize) -> iovec {
    iovec { iov_base: memory.cast_mut(), iov_len: length }
}

/// Replaces the C library's.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recv(fd: c_int, memory: *mut c_void, length: usize, flags: c_int) -> isize {
    let whole = one(memory, length);
    on_socket(fd, Way::Reads, Pieces { first: &raw const whole, count: 1 }, flags).unwrap_or_else(
        || real::next!(recv(fd => c_int, memory => *mut c_void, length => usize, flags => c_int) -> isize, -1),
    )
}

/// Replaces the C library's.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn send(fd: c_int, memory: *const c_void, length: usize, flags: c_int) -> isize {
    let whole = one(memory, length);
    on_socket(fd, Way::Writes, Pieces { first: &raw const whole, count: 1 }, flags).unwrap_or_else(
        || real::next!(send(fd => c_int, memory => *const c_void, length => usize, flags => c_int) -> isize, -1),
    )
}

/// Replaces the C library's.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recvfrom(
    fd: c_int,
    memory: *mut c_void,
    length: usize,
    flags: c_int,
    address: *mut sockaddr,
    address_length: *mut socklen_t,
) -> isize {
    let whole = one(memory, length);
    if let Some(outcome) = on_socket(fd, Way::Reads, Pieces { first: &raw const whole, count: 1 }, flags) {
        // SAFETY: - null or valid for writing, as the caller has promised. Sockets of a pair have no names.
        if let Some(length) = unsafe { address_length.as_mut() }.filter(|_| outcome >= 0) {
            *length = 0;
        }
        return outcome;
    }
    real::next!(recvfrom(
        fd => c_int, memory => *mut c_void, length => usize, flags => c_int, address => *mut sockaddr,
        address_length => *mut socklen_t
    ) -> isize, -1)
}

/// Replaces the C library's.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendto(
    fd: c_int,
    memory: *const c_void,
    length: usize,
    flags: c_int,
    address: *const sockaddr,
    address_length: socklen_t,
) -> isize {
    let whole = one(memory, length);
    let pieces = Pieces { first: &raw const whole, count: 1 };
    let ordered = if address.is_null() { on_socket(fd, Way::Writes, pieces, flags) } else { None };
    ordered.unwrap_or_else(|| {
        real::next!(sendto(
            fd => c_int, memory => *const c_void, length => usize, flags => c_int, address => *const sockaddr,
            address_length => socklen_t
        ) -> isize, -1)
    })
}

/// The pieces of a message without address and control data; `None` for others, which are not ordered.
///
/// # Safety
/// `message` is null or valid for reading.
unsafe fn plain_pieces(message: *const msghdr) -> Option<Pieces> {
    // SAFETY: - by contract.
    let message = unsafe { message.as_ref() }?;
    let is_plain = message.msg_name.is_null() && message.msg_control.is_null();
    is_plain.then_some(Pieces { first: message.msg_iov, count: message.msg_iovlen })
}

/// Replaces the C library's.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> isize {
    // SAFETY: - the caller has promised a valid message.
    if let Some(pieces) = unsafe { plain_pieces(message) }
        && let Some(outcome) = on_socket(fd, Way::Reads, pieces, flags)
    {
        // SAFETY: - as above.
        unsafe { (*message).msg_flags = 0 };
        return outcome;
    }
    real::next!(recvmsg(fd => c_int, message => *mut msghdr, flags => c_int) -> isize, -1)
}

/// Replaces the C library's.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> isize {
    // SAFETY: - the caller has promised a valid message.
    let pieces = unsafe { plain_pieces(message) };
    pieces
        .and_then(|pieces| on_socket(fd, Way::Writes, pieces, flags))
        .unwrap_or_else(|| real::next!(sendmsg(fd => c_int, message => *const msghdr, flags => c_int) -> isize, -1))
}

/// Makes a call on an event descriptor, as the C library makes it of `read` and `write`.
fn on_event(fd: c_int, way: Way, value: *mut u64) -> Option<c_int> {
    let kind = kind(fd)?;
    let caller = current()?;
    let whole = one(value.cast_const().cast(), size_of::<u64>());
    let transfer = Transfer { fd, kind, way, pieces: Pieces { first: &raw const whole, count: 1 }, flags: 0 };
    Some(if returned(transfer.perform(caller)) == size_of::<u64>() as i64 { 0 } else { -1 })
}

/// Replaces the C library's.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eventfd_read(fd: c_int, value: *mut u64) -> c_int {
    on_event(fd, Way::Reads, value)
        .unwrap_or_else(|| real::next!(eventfd_read(fd => c_int, value => *mut u64) -> c_int, -1))
}

/// Replaces the C library's.
#[unsafe(no_mangle)]
pub extern "C" fn eventfd_write(fd: c_int, mut value: u64) -> c_int {
    on_event(fd, Way::Writes, &raw mut value)
        .unwrap_or_else(|| real::next!(eventfd_write(fd => c_int, value => u64) -> c_int, -1))
}
