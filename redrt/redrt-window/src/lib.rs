//! Windows (MPI-5.0 chapter 12): one-sided communication, by requests that the target serves or by shared memory.
//!
//! ```text
//!   origin                                         target
//!     │ MPI_Put ──── Request::Put ────────────────▶ server ──▶ memory
//!     │ MPI_Get ──── Request::Get ────────────────▶ server ──▶ memory
//!     │ ◄─────────── the bytes ─────────────────────┘
//!     │ MPI_Win_flush ── Request::Flush ──────────▶ server
//!     │ ◄─────────── what went wrong, if anything ──┘ all before it is done
//! ```
//! Each window has contexts of its own: for requests, answers, large data and posts. The server (`server.rs`) is a task
//! that any thread making progress advances, as for nonblocking collectives. It takes requests with a receive from any
//! source, one after the other. In a replicated world the leader of the target's sphere decides the order of such
//! receives. So all replicas serve requests in one order, and their answers are the same; no other mechanism is needed.
//!
//! The trap: a replica may lag behind its siblings; a copy always does at first. Its program may still be about to
//! write to memory that its siblings have exposed already. So for each request the leader also decides the number of
//! calls of the program after which it is served.
//!
//! Locks are in the order of requests too: while an origin waits for its lock, its later requests wait. So neither
//! locking nor operations need an answer before the epoch ends.
//!
//! While its program computes, a target serves no requests. Only in a world that is not replicated a thread makes
//! progress meanwhile (`redrt_runtime::progress`).
//!
//! Where there are no replicas and all members share a host's memory, there are no requests and no server: see
//! `direct`. The memory of such a window is kept for the next one (`kept`).
//!
//! Where processes are saved or replicated, their daemon gives them the memory that ranks share (`pages`).

#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

#[macro_use]
extern crate redrt_process;

mod access;
mod apply;
pub mod create;
mod direct;
mod epoch;
mod kept;
mod locks;
mod mapping;
mod memory;
mod order;
mod origin;
pub mod pages;
mod server;
mod synchronize;

use direct::Direct;
use epoch::{Epochs, Latest};
use memory::Memory;
use origin::Origin;
use redrt_abi::error::{Error, Result};
use redrt_abi::handle::{HandleTable, WinHandle};
use redrt_abi::{MPI_ERR_WIN, MPI_WIN_FLAVOR_DYNAMIC, MPI_WIN_FLAVOR_SHARED};
use redrt_comm::comm::Comm;
use redrt_comm::objects::attached::Attached;
use redrt_comm::objects::info::Info;
use redrt_process::lock;
use server::Served;
use std::cell::Cell;
use std::ffi::c_int;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

pub use access::There;
pub use apply::Form;
pub use order::Combination;
pub use origin::Effect;

/// A window of this process.
///
/// Locks are taken in the order `issuing`, engine, `origin` or `served`.
pub struct Window {
    handle: OnceLock<WinHandle>,
    /// The members, with contexts that only the window uses.
    pub comm: Arc<Comm>,
    /// `MPI_WIN_FLAVOR_...`.
    pub flavor: c_int,
    /// Values of the predefined attributes.
    pub facts: Facts,
    /// Memory that each member exposes, by rank.
    pub members: Vec<Exposed>,
    /// Error handler and attributes of the window.
    pub attached: Arc<Attached>,
    /// Name that the program has given the window; empty before that.
    pub name: Mutex<String>,
    /// Hints of the program.
    pub info: Mutex<Arc<Info>>,
    /// Present if members reach each other's memory without requests. All operations are direct then, and the window
    /// has no server.
    direct: Option<Arc<Direct>>,
    /// The target reached last. Used in direct windows only.
    latest: Latest,
    origin: Mutex<Origin>,
    served: Mutex<Served>,
    /// Keeps the messages of one call together. In an epoch that locks all targets, it also keeps the first operation
    /// on a target together with the request for its lock.
    issuing: Mutex<()>,
    /// Number of the thread that made the window. The number of the thread's calls measures the program's progress.
    thread: u64,
    _memory: Memory,
    _helped: Option<redrt_runtime::progress::Helped>,
}

/// Values to which the predefined attributes of a window point (MPI-5.0 §12.2.6).
pub struct Facts {
    /// `MPI_WIN_BASE`.
    pub base: usize,
    /// `MPI_WIN_SIZE`.
    pub size: isize,
    /// `MPI_WIN_DISP_UNIT`.
    pub unit: c_int,
    /// `MPI_WIN_CREATE_FLAVOR`.
    pub flavor: c_int,
    /// `MPI_WIN_MODEL`.
    pub model: c_int,
}

/// Memory that a member exposes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exposed {
    /// Size of the memory in bytes.
    pub size: u64,
    /// Bytes of one unit of displacement.
    pub unit: u64,
    /// Address of the memory in this process, in windows whose memory all members map; `None` in others.
    pub start: Option<usize>,
}

/// Purposes of a window's contexts.
#[derive(Clone, Copy)]
enum Purpose {
    Requests,
    Answers,
    Data,
    Posts,
    /// The stream of decisions on the numbers of calls after which requests are served; it has no messages.
    Steps,
}

process_local! {
    static WINDOWS: HandleTable<Window> = HandleTable::new();
}

/// A window in use by a call. A lookup takes longer than a short operation, so each thread keeps the window that it
/// used last.
pub struct Used {
    window: ManuallyDrop<Arc<Window>>,
    removed: u64,
}

/// The window that a thread keeps, with the number of freed windows at its lookup. If the number has grown since, it
/// may be one of the freed windows.
type LatestWindow = Option<(Arc<Window>, u64)>;

process_local! {
    /// Number of windows that have been freed.
    static REMOVED: AtomicU64 = AtomicU64::new(0);
}

per_thread! {
    static LATEST: Cell<LatestWindow> = Cell::new(None);
}

impl std::ops::Deref for Used {
    type Target = Arc<Window>;

    #[inline]
    fn deref(&self) -> &Arc<Window> {
        &self.window
    }
}

impl Drop for Used {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: - not taken before and not used afterwards: this is the drop, and the field is private.
        let window = unsafe { ManuallyDrop::take(&mut self.window) };
        if self.removed == REMOVED.load(Ordering::Relaxed) {
            // Fails in a thread that ends; the window is not kept then.
            let _ = LATEST.try_with(|latest| latest.set(Some((window, self.removed))));
        }
    }
}

/// The window with this handle. Fails with `MPI_ERR_WIN` if none exists.
#[inline]
pub fn resolve(handle: WinHandle) -> Result<Used> {
    let removed = REMOVED.load(Ordering::Relaxed);
    match LATEST.take() {
        Some((window, kept)) if kept == removed && window.handle() == handle => {
            Ok(Used { window: ManuallyDrop::new(window), removed })
        }
        _ => find(handle, removed),
    }
}

#[inline(never)]
fn find(handle: WinHandle, removed: u64) -> Result<Used> {
    let window = WINDOWS.get(handle.0).ok_or_else(|| {
        if handle == WinHandle::NULL {
            Error::new(MPI_ERR_WIN, "the window is MPI_WIN_NULL")
        } else {
            Error::new(MPI_ERR_WIN, format!("{:#x} is not a window, or it has been freed", handle.0))
        }
    })?;
    Ok(Used { window: ManuallyDrop::new(window), removed })
}

/// Returns true if a window's server receives in this context. Calls of the program do not wait for such receives.
pub fn serves(context: u64) -> bool {
    WINDOWS.snapshot().iter().any(|(_, window)| window.context(Purpose::Requests) == context)
}

impl Window {
    /// Handle of the window.
    pub fn handle(&self) -> WinHandle {
        *self.handle.get().expect("a window is registered when it is made")
    }

    fn context(&self, purpose: Purpose) -> u64 {
        self.comm.window_context(purpose as u64)
    }

    /// Rank of this process in the window's group.
    pub fn rank(&self) -> u32 {
        self.comm.rank
    }

    /// Returns true if members reach each other's memory with loads and stores (`MPI_WIN_FLAVOR_SHARED`).
    pub fn is_shared(&self) -> bool {
        self.flavor == MPI_WIN_FLAVOR_SHARED
    }

    /// Returns true if the program attaches the memory (`MPI_WIN_FLAVOR_DYNAMIC`).
    pub fn is_dynamic(&self) -> bool {
        self.flavor == MPI_WIN_FLAVOR_DYNAMIC
    }

    /// Fails unless an operation on `target` is allowed now. In a direct window the operation can follow at once: a
    /// lock that it needs has been taken.
    #[inline]
    pub fn enter(&self, target: u32) -> Result {
        if self.latest.is(target) { Ok(()) } else { self.enter_anew(target) }
    }

    fn enter_anew(&self, target: u32) -> Result {
        let origin = lock(&self.origin);
        origin.epochs.check_access(target)?;
        let Some(direct) = &self.direct else { return Ok(()) };
        let (may_flush, locks_all) = (origin.epochs.check_flush(Some(target)).is_ok(), origin.locks_all());
        drop(origin);
        if locks_all {
            // A second thread that reaches the target waits here until the first has the lock.
            let _issuing = lock(&self.issuing);
            let needs_lock = lock(&self.origin).needs_lock(target);
            if needs_lock {
                direct.lock(target, false);
            }
        }
        self.latest.record(target, may_flush);
        Ok(())
    }

    /// Address of `bytes` bytes of the target's memory, `offset` bytes behind a displacement. `None` if this process
    /// does not reach them by loads and stores, they are not within the window, or the operation is not allowed now.
    #[inline(always)]
    pub fn near(&self, target: u32, displacement: i64, offset: i64, bytes: usize) -> Option<*mut u8> {
        let (direct, exposed) = (self.direct.as_ref()?, self.members.get(target as usize)?);
        let start = direct.part(target).mapped()?;
        self.enter(target).ok()?;
        let first = displacement.checked_mul(exposed.unit as i64)?.checked_add(offset)?;
        let past = first.checked_add(bytes as i64)?;
        let is_within = displacement >= 0 && first >= 0 && past <= exposed.size as i64;
        is_within.then(|| start.wrapping_offset(first as isize))
    }

    /// Runs `act` on memory of a target that [`Window::near`] has found. No other accumulate accesses the memory
    /// meanwhile.
    #[inline(always)]
    pub fn alone<T>(&self, target: u32, act: impl FnOnce() -> T) -> T {
        self.direct.as_ref().expect("memory that is near is that of a window without messages").alone(target, act)
    }

    /// Begins or ends epochs, and forgets the latest target before.
    fn change_epochs<T>(&self, change: impl FnOnce(&mut Epochs) -> T) -> T {
        self.latest.forget();
        change(&mut lock(&self.origin).epochs)
    }

    /// Fails unless the window may be freed now.
    pub fn check_free(&self) -> Result {
        lock(&self.origin).epochs.check_free()
    }

    /// Name of the window for messages to the user.
    pub fn label(&self) -> String {
        let name = lock(&self.name);
        if name.is_empty() { format!("window {:#x}", self.handle().0) } else { name.clone() }
    }
}
