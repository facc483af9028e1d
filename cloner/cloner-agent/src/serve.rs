//! Serves the requests of a client on the control socket.

use crate::abi::{Ask, Block, PAUSE, REFUSED_OF_PROCESS, Reply, Request, SLOT_PARKED, TIMER_COUNT_MAX, Timer, VERSION};
use crate::settings::{OF_PROCESS, OOM_SCORE};
use crate::sys::{self, syscall, syscall6};
use crate::{collect, park};
use core::ffi::c_void;
use zerocopy::{FromBytes, IntoBytes};

const PROC: [&[u8]; 3] = [b"/proc/self\0", b"/proc/self/mem\0", b"/proc/self/pagemap\0"];
const DESCRIPTOR_COUNT_MAX: usize = 3;
const KILLED: u64 = 137;

/// Actions of the embedder around a cut. All run on the agent's thread.
#[derive(Clone, Copy)]
pub struct Hooks {
    /// Passed to each hook as its first argument.
    pub context: *mut c_void,
    /// Called before threads are stopped: take your locks. The second argument is one of the `CUT_` constants of
    /// [`crate::abi`]. The third is the client's connection: it becomes readable when the client is gone, and then the
    /// hook must not wait any longer. A result other than 0 refuses the cut with that error number.
    pub before_cut: Option<unsafe extern "C" fn(*mut c_void, u32, i32) -> i32>,
    /// Called when all threads are stopped, before the image is taken.
    pub at_cut: Option<unsafe extern "C" fn(*mut c_void)>,
    /// Called in the source, threads still stopped: release your locks. The argument is 1 if the clone has succeeded so
    /// far.
    pub in_source_after: Option<unsafe extern "C" fn(*mut c_void, i32)>,
    /// Called in the copy, threads still stopped: make your sockets anew, and release your locks.
    pub in_copy_after: Option<unsafe extern "C" fn(*mut c_void)>,
}

impl Hooks {
    /// No hooks: for a program that does not know of the agent.
    #[must_use]
    pub const fn none() -> Self {
        let context = core::ptr::null_mut();
        Self { context, before_cut: None, at_cut: None, in_source_after: None, in_copy_after: None }
    }
}

/// The block that clients read, followed by fields that only the agent uses.
#[repr(C)]
pub struct HookedBlock {
    pub block: Block,
    pub hooks: Hooks,
}

/// Serves clients one after the other, for ever.
pub fn run(block: *mut Block) -> ! {
    // SAFETY: - `block` is never unmapped, and only the agent uses it as a whole.
    //         - other threads access single words of it, by atomics, while they are being parked.
    let block = unsafe { &mut *block };
    loop {
        serve_one(block, false);
    }
}

/// Like [`run`], for a copy: its threads wait until the destination, once it knows that all is well, releases them.
pub fn run_copy(block: *mut Block) -> ! {
    // SAFETY: - each block is the first field of a `HookedBlock`, so both have the same address.
    let hooks = unsafe { (*block.cast::<HookedBlock>()).hooks };
    if let Some(hook) = hooks.in_copy_after {
        // SAFETY: - the embedder supplied `hook` together with `context`, for a call on this thread.
        unsafe { hook(hooks.context) };
    }
    // SAFETY: - `block` is in place in the copy, as in the source.
    //         - threads access single words of it, by atomics.
    while !serve_one(unsafe { &mut *block }, true) {}
    run(block)
}

/// Serves one connection. `waiting` is true for a copy whose threads have not begun; returns true once they have.
fn serve_one(block: &mut Block, waiting: bool) -> bool {
    let flags = libc::SOCK_CLOEXEC as u64;
    // SAFETY: - null pointers are allowed: no address is asked for.
    let connection = unsafe { syscall(libc::SYS_accept4, block.listener as u64, 0, 0, flags) } as i32;
    if connection == -libc::EINTR || connection == -libc::ECONNABORTED {
        return false;
    }
    if connection < 0 {
        // The socket is gone, so no client can come. The thread sleeps for good, because the program does not need it.
        loop {
            // SAFETY: - `pause` takes no arguments, and all signals are blocked.
            unsafe { syscall(libc::SYS_pause, 0, 0, 0, 0) };
        }
    }
    block.connection = connection;
    let mut session = Session { block, connection, parked: false, around: Hooks::none(), waiting, scratch: None };
    while session.step() {}
    session.release(false);
    session.free_scratch();
    let begun = !session.waiting;
    sys::close(connection);
    begun
}

/// Gives the copy its OOM score. Until now it was the first choice of the OOM killer, since it can be made again but
/// its source cannot. Errors with a negative error number if the score is refused.
fn settle_oom_score(block: &mut Block) -> Result<(), i64> {
    let wanted = block.settings[OOM_SCORE];
    // A score that the program has not changed came from its environment, so the destination's takes its place.
    if wanted == block.oom_score_at_start {
        block.oom_score_at_start = block.oom_score_there;
        OF_PROCESS[OOM_SCORE].set(block.oom_score_there);
        return Ok(());
    }
    match OF_PROCESS[OOM_SCORE].set(wanted) {
        0.. => Ok(()),
        error => Err(error),
    }
}

/// One connection. Parked threads go on when it ends, for whatever reason.
struct Session<'a> {
    block: &'a mut Block,
    connection: i32,
    parked: bool,
    /// Hooks that were called when threads were parked; none for a pause.
    around: Hooks,
    /// True for a copy whose threads have not begun.
    waiting: bool,
    /// Result of the last request about resident pages, with its length. It is mapped outside of the image, which must
    /// not change during a cut.
    scratch: Option<(*mut u8, u64)>,
}

impl Session<'_> {
    fn hooks(&mut self) -> Hooks {
        // SAFETY: - each block is the first field of a `HookedBlock`, so both have the same address.
        unsafe { (*core::ptr::from_mut(self.block).cast::<HookedBlock>()).hooks }
    }

    /// Serves one request. Returns false if the client is gone, or sends nonsense.
    fn step(&mut self) -> bool {
        let mut bytes = [0_u8; size_of::<Request>()];
        let mut filled = 0;
        while filled < bytes.len() {
            let count = sys::read(self.connection, &mut bytes[filled..]);
            if count <= 0 {
                return false;
            }
            filled += count as usize;
        }
        let Ok(request) = Request::read_from_bytes(&bytes) else { return false };
        let Some(ask) = Ask::from_number(request.ask) else { return false };
        self.free_scratch();
        let mut reply = Reply { version: VERSION, ..Reply::default() };
        let mut descriptors = [-1; DESCRIPTOR_COUNT_MAX];
        self.answer(ask, &request, &mut reply, &mut descriptors);
        let count = descriptors.iter().take_while(|fd| **fd >= 0).count();
        answer(self.connection, &reply, &descriptors[..count])
    }

    fn free_scratch(&mut self) {
        if let Some((address, len)) = self.scratch.take() {
            sys::unmap_guarded(address, len as usize);
        }
    }

    fn answer(&mut self, ask: Ask, request: &Request, reply: &mut Reply, descriptors: &mut [i32; 3]) {
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        match ask {
            Ask::Hello => {
                const ARCH_GET_XCOMP_PERM: u64 = 0x1022;
                reply.a = core::ptr::from_ref(self.block) as u64;
                // SAFETY: - the call writes at most one word, to `reply.b`; a kernel that lacks the request writes
                //           nothing.
                unsafe { syscall(libc::SYS_arch_prctl, ARCH_GET_XCOMP_PERM, (&raw mut reply.b) as u64, 0, 0) };
                for (path, fd) in PROC.iter().zip(descriptors.iter_mut()) {
                    *fd = sys::openat(libc::AT_FDCWD, path, flags);
                    reply.status = reply.status.min(*fd).min(0);
                }
            }
            Ask::Userfaultfd => (reply.status, descriptors[0]) = userfaultfd(request.a),
            Ask::ClearRefs => {
                descriptors[0] =
                    sys::openat(libc::AT_FDCWD, b"/proc/self/clear_refs\0", libc::O_WRONLY | libc::O_CLOEXEC);
                reply.status = descriptors[0].min(0);
            }
            Ask::Descriptor => {
                descriptors[0] = self.duplicate(request.arg);
                reply.status = descriptors[0].min(0);
            }
            // A length of 0 only frees the last result.
            Ask::Resident if request.b == 0 => {}
            Ask::Resident => match sys::map_guarded(request.b.div_ceil(4096).next_multiple_of(4096) as usize) {
                Some(scratch) => {
                    self.scratch = Some((scratch, request.b.div_ceil(4096).next_multiple_of(4096)));
                    reply.a = scratch as u64;
                    reply.status = collect::resident(request.a, request.b, reply.a) as i32;
                }
                None => reply.status = -libc::ENOMEM,
            },
            Ask::Reset => self.block.timer_count = 0,
            Ask::Timer => reply.status = self.record_timer(request),
            Ask::Park => self.park(request.arg, reply),
            Ask::Collect if self.parked => collect::process(self.block),
            Ask::Collect => reply.status = -libc::EINVAL,
            Ask::Release if self.waiting && self.block.refused_setting != 0 => {
                reply.status = -(self.block.refused_errno as i32);
                reply.a = u64::from(self.block.refused_setting);
            }
            Ask::Release if self.waiting => match settle_oom_score(self.block) {
                Ok(()) => {
                    park::let_go(self.block);
                    self.waiting = false;
                }
                Err(error) => {
                    reply.status = error as i32;
                    reply.a = u64::from(REFUSED_OF_PROCESS + OOM_SCORE as u32);
                }
            },
            Ask::Release => self.release(request.arg == 1),
            Ask::Exit => {
                // SAFETY: - `kill` touches no memory. The program has moved, and its threads are parked.
                unsafe { syscall(libc::SYS_kill, u64::from(self.block.pid), libc::SIGKILL as u64, 0, 0) };
                // SAFETY: - `exit_group` does not return. It ends a first process of a namespace, which signals from
                //           within cannot.
                unsafe { syscall(libc::SYS_exit_group, KILLED, 0, 0, 0) };
            }
        }
    }

    fn record_timer(&mut self, request: &Request) -> i32 {
        let count = self.block.timer_count as usize;
        if count == TIMER_COUNT_MAX {
            return -libc::ENOSPC;
        }
        match Timer::read_from_bytes(request.extra.as_bytes()) {
            Ok(timer) => {
                self.block.timers[count] = timer;
                self.block.timer_count += 1;
                0
            }
            Err(_) => -libc::EINVAL,
        }
    }

    /// Duplicates a descriptor of the program, which the agent may not have in its own table.
    fn duplicate(&self, fd: u32) -> i32 {
        let pid = u64::from(self.block.pid);
        // SAFETY: - `pidfd_open` takes numbers and touches no memory.
        let process = unsafe { syscall(libc::SYS_pidfd_open, pid, 0, 0, 0) };
        if process < 0 {
            return process as i32;
        }
        // SAFETY: - `pidfd_getfd` takes numbers and touches no memory.
        let copy = unsafe { syscall(libc::SYS_pidfd_getfd, process as u64, u64::from(fd), 0, 0) };
        sys::close(process as i32);
        copy as i32
    }

    fn park(&mut self, purpose: u32, reply: &mut Reply) {
        if self.parked || self.waiting {
            reply.status = -libc::EALREADY;
            return;
        }
        let hooks = if purpose == PAUSE { Hooks::none() } else { self.hooks() };
        self.around = hooks;
        if let Some(hook) = hooks.before_cut {
            // SAFETY: - the embedder supplied `hook` together with `context`, for a call on this thread.
            let refused = unsafe { hook(hooks.context, purpose, self.connection) };
            if refused != 0 {
                reply.status = -refused.abs();
                return;
            }
        }
        // Ids are read again: in a copy of a copy this may be another process than the one that set them.
        self.block.pid = sys::getpid();
        self.block.agent_tid = sys::gettid();
        if let Err(unparked) = park::park(self.block) {
            reply.status = -unparked.errno.abs();
            reply.tid = unparked.tid;
            if let Some(hook) = hooks.in_source_after {
                // SAFETY: - the embedder supplied `hook` together with `context`, for a call on this thread.
                unsafe { hook(hooks.context, 0) };
            }
            return;
        }
        self.parked = true;
        collect::process(self.block);
        if let Some(hook) = hooks.at_cut {
            // SAFETY: - the embedder supplied `hook` together with `context`, for a call on this thread.
            unsafe { hook(hooks.context) };
        }
        reply.a = collect::slots(self.block).iter().filter(|slot| slot.state == SLOT_PARKED).count() as u64;
    }

    fn release(&mut self, well: bool) {
        if !self.parked {
            return;
        }
        let hooks = self.around;
        if let Some(hook) = hooks.in_source_after {
            // SAFETY: - the embedder supplied `hook` together with `context`, for a call on this thread.
            unsafe { hook(hooks.context, i32::from(well)) };
        }
        park::release(self.block);
        self.parked = false;
    }
}

/// Makes a userfaultfd of this process. Returns status and descriptor.
fn userfaultfd(features: u64) -> (i32, i32) {
    const UFFD_USER_MODE_ONLY: u64 = 1;
    const UFFDIO_API: u64 = 0xc018_aa3f;
    let flags = (libc::O_CLOEXEC | libc::O_NONBLOCK) as u64 | UFFD_USER_MODE_ONLY;
    // SAFETY: - `userfaultfd` takes flags and touches no memory.
    let fd = unsafe { syscall(libc::SYS_userfaultfd, flags, 0, 0, 0) } as i32;
    if fd < 0 {
        return (fd, -1);
    }
    let mut api = [0xaa_u64, features, 0];
    // SAFETY: - `api` has the three words of `struct uffdio_api`, and outlives the call.
    let status = unsafe { syscall(libc::SYS_ioctl, fd as u64, UFFDIO_API, api.as_mut_ptr() as u64, 0) } as i32;
    if status < 0 {
        sys::close(fd);
        return (status, -1);
    }
    (0, fd)
}

/// Sends the reply and up to three descriptors, which are closed here.
///
/// The trap: the agent may share its descriptor table with the program. The client lists the program's descriptors as
/// soon as it has the whole reply, and must not find those that were sent to it. So the rest of the reply leaves after
/// they are closed.
fn answer(connection: i32, reply: &Reply, descriptors: &[i32]) -> bool {
    let (first, rest) = reply.as_bytes().split_at(if descriptors.is_empty() { size_of::<Reply>() } else { 1 });
    let sent = send(connection, first, descriptors);
    for fd in descriptors {
        sys::close(*fd);
    }
    sent && (rest.is_empty() || send(connection, rest, &[]))
}

/// Sends bytes and up to three descriptors in one message.
fn send(connection: i32, bytes: &[u8], descriptors: &[i32]) -> bool {
    #[repr(C, align(8))]
    struct Control {
        len: u64,
        level: i32,
        kind: i32,
        fds: [i32; 4],
    }
    let mut control = Control { len: 0, level: libc::SOL_SOCKET, kind: libc::SCM_RIGHTS, fds: [0; 4] };
    control.len = 16 + 4 * descriptors.len() as u64;
    control.fds[..descriptors.len()].copy_from_slice(descriptors);
    let part = [bytes.as_ptr() as u64, bytes.len() as u64];
    // `struct msghdr`: name, its length, parts, their number, control, its length, flags.
    let mut message = [0_u64; 7];
    message[2] = part.as_ptr() as u64;
    message[3] = 1;
    if !descriptors.is_empty() {
        message[4] = (&raw const control) as u64;
        message[5] = control.len.next_multiple_of(8);
    }
    let flags = libc::MSG_NOSIGNAL as u64;
    // SAFETY: - `message`, `part`, `bytes` and `control` outlive the call, and have the lengths that they state.
    let sent = unsafe { syscall6(libc::SYS_sendmsg, connection as u64, message.as_ptr() as u64, flags, 0, 0, 0) };
    sent == bytes.len() as i64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn when_a_reply_is_there_its_descriptors_are_closed_here() {
        // Numbers that no other test of this process uses.
        const NUMBER_MIN: i32 = 900;
        for _ in 0..1000 {
            let (agents, mut asks) = UnixStream::pair().unwrap();
            let copies = [0; 2].map(|_| {
                // SAFETY: - `F_DUPFD_CLOEXEC` takes a number and touches no memory.
                unsafe { libc::fcntl(agents.as_raw_fd(), libc::F_DUPFD_CLOEXEC, NUMBER_MIN) }
            });
            assert!(copies.iter().all(|fd| *fd >= NUMBER_MIN));
            let answering = std::thread::spawn(move || answer(agents.as_raw_fd(), &Reply::default(), &copies));
            let mut reply = [0; size_of::<Reply>()];
            // The kernel drops the descriptors that came with the first byte.
            asks.read_exact(&mut reply).unwrap();
            for fd in copies {
                // SAFETY: - `F_GETFD` takes no argument and touches no memory.
                assert_eq!(unsafe { libc::fcntl(fd, libc::F_GETFD) }, -1);
            }
            assert!(answering.join().unwrap());
        }
    }
}
