//! Windows (MPI-5.0 chapter 12): one-sided communication, as requests that the target serves or by shared memory.
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
//! moved on by any thread that makes progress, as nonblocking collectives are. It takes requests with a receive from
//! any source, one after the other. So in a replicated world their order is decided by the leader of the target's
//! sphere, like that of any such receive, all replicas serve them in that order, and answers are the same; there is no
//! other mechanism.
//!
//! A replica may lag behind its siblings; a copy always does at first. What its siblings have exposed it may be about
//! to write to. So the leader also decides, for each request, after how many calls of the program it was served.
//!
//! Locks are in the order of requests too: what an origin asks while it waits for its lock waits behind it, so that
//! neither locking nor operations need an answer before the epoch ends.
//!
//! A target that computes serves nothing, unless the world is not replicated, where a thread helps
//! (`runtime::progress`).
//!
//! Where there are no replicas and all members share a host's memory, nothing is asked and nothing served: see
//! `direct`. The memory of such a window is kept for the next one (`kept`).
//!
//! Memory that ranks share where processes are saved or replicated is given to them by their daemon (`pages`).

mod access;
pub(crate) mod apply;
pub(crate) mod create;
mod direct;
pub(crate) mod epoch;
mod kept;
pub(crate) mod locks;
pub(crate) mod memory;
pub(crate) mod order;
mod origin;
pub(crate) mod pages;
mod server;
mod synchronize;

use crate::abi::{MPI_ERR_WIN, MPI_WIN_FLAVOR_DYNAMIC, MPI_WIN_FLAVOR_SHARED};
use crate::comm::Comm;
use crate::error::{Error, Result};
use crate::handle::{HandleTable, WinHandle};
use crate::objects::attached::Attached;
use crate::objects::info::Info;
use direct::Direct;
use epoch::{Epochs, Latest};
use memory::Memory;
use origin::Origin;
use redrt_process::lock;
use server::Served;
use std::cell::Cell;
use std::ffi::c_int;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

pub use access::There;
pub use origin::Effect;

/// A window, as this process has it.
///
/// Locks are taken in the order `issuing`, engine, `origin` or `served`.
pub struct Window {
    handle: OnceLock<WinHandle>,
    /// The members, with contexts that only the window uses.
    pub comm: Arc<Comm>,
    /// `MPI_WIN_FLAVOR_...`.
    pub flavor: c_int,
    /// What the predefined attributes point to.
    pub facts: Facts,
    /// What each member exposes.
    pub members: Vec<Exposed>,
    /// Error handler and attributes.
    pub attached: Arc<Attached>,
    /// Its name.
    pub name: Mutex<String>,
    /// Its hints.
    pub info: Mutex<Arc<Info>>,
    /// How members reach each other's memory without asking, where they do: then for all operations, and nothing is
    /// served.
    direct: Option<Arc<Direct>>,
    /// Where windows are direct.
    latest: Latest,
    origin: Mutex<Origin>,
    served: Mutex<Served>,
    /// Keeps what one call sends together, and locks of an epoch that has locked all.
    issuing: Mutex<()>,
    /// Number of the thread that made it: how far the program is, is how many calls that has begun.
    thread: u64,
    _memory: Memory,
    _helped: Option<crate::runtime::progress::Helped>,
}

/// What the predefined attributes of a window point to (MPI-5.0 §12.2.6).
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

/// What a member exposes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exposed {
    /// Bytes.
    pub size: u64,
    /// Bytes of one unit of displacement.
    pub unit: u64,
    /// In a shared window: where its memory is in this process.
    pub start: Option<usize>,
}

/// The contexts of a window.
#[derive(Clone, Copy)]
enum Purpose {
    Requests,
    Answers,
    Data,
    Posts,
    /// No messages: the stream of decisions on how far programs have come.
    Steps,
}

process_local! {
    static WINDOWS: HandleTable<Window> = HandleTable::new();
}

/// A window that a call works on. To look it up takes the processor longer than a short operation does, so each thread
/// keeps the one that it has used last.
pub struct Used {
    window: ManuallyDrop<Arc<Window>>,
    removed: u64,
}

/// What a thread keeps, and how many windows had been freed when it was found: if more have been, it may be one of
/// them.
type Kept = Option<(Arc<Window>, u64)>;

process_local! {
    /// How many windows have been freed.
    static REMOVED: AtomicU64 = AtomicU64::new(0);
}

per_thread! {
    static LATEST: Cell<Kept> = Cell::new(None);
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
        // SAFETY: - taken once, and not used afterwards.
        let window = unsafe { ManuallyDrop::take(&mut self.window) };
        if self.removed == REMOVED.load(Ordering::Relaxed) {
            // A thread that ends keeps nothing.
            let _ = LATEST.try_with(|latest| latest.set(Some((window, self.removed))));
        }
    }
}

/// The window with this handle.
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

/// Whether a window's server receives in this context: nobody waits for that.
pub fn serves(context: u64) -> bool {
    WINDOWS.snapshot().iter().any(|(_, window)| window.context(Purpose::Requests) == context)
}

impl Window {
    /// Its handle.
    pub fn handle(&self) -> WinHandle {
        *self.handle.get().expect("a window is registered when it is made")
    }

    fn context(&self, purpose: Purpose) -> u64 {
        self.comm.window_context(purpose as u64)
    }

    /// Rank of this process.
    pub fn rank(&self) -> u32 {
        self.comm.rank
    }

    /// Whether members reach each other's memory with loads and stores.
    pub fn is_shared(&self) -> bool {
        self.flavor == MPI_WIN_FLAVOR_SHARED
    }

    /// Whether the program attaches its memory.
    pub fn is_dynamic(&self) -> bool {
        self.flavor == MPI_WIN_FLAVOR_DYNAMIC
    }

    /// Checks that an operation on `target` is allowed now. A direct one can be done after that: if its lock has not
    /// been asked for yet, it has it now.
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
            // Another thread that comes while this one waits for the lock waits for it, too.
            let _issuing = lock(&self.issuing);
            let needs_lock = lock(&self.origin).needs_lock(target);
            if needs_lock {
                direct.lock(target, false);
            }
        }
        self.latest.note(target, may_flush);
        Ok(())
    }

    /// Where `bytes` bytes are in memory that this process reaches by loads and stores, `offset` bytes behind a
    /// displacement at the target, which may be reached now. `None` where any of that is not so.
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

    /// Runs `act` on the memory of a target that [`Window::near`] has found, while nobody else combines something with
    /// it.
    #[inline(always)]
    pub fn alone<T>(&self, target: u32, act: impl FnOnce() -> T) -> T {
        self.direct.as_ref().expect("memory that is near is that of a window without messages").alone(target, act)
    }

    /// Begins or ends epochs.
    fn change_epochs<T>(&self, change: impl FnOnce(&mut Epochs) -> T) -> T {
        self.latest.forget();
        change(&mut lock(&self.origin).epochs)
    }

    /// Whether the window may be freed now.
    pub fn check_free(&self) -> Result {
        lock(&self.origin).epochs.check_free()
    }

    /// Its name for messages to the user.
    pub fn label(&self) -> String {
        let name = lock(&self.name);
        if name.is_empty() { format!("window {:#x}", self.handle().0) } else { name.clone() }
    }
}
