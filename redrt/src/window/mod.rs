//! Windows (MPI-5.0 chapter 12): one-sided communication as requests that the target serves.
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
//! What this does not do: reach memory of other processes behind their backs. A target that computes serves nothing,
//! unless the world is not replicated, where a thread helps (`runtime::progress`).

pub(crate) mod apply;
pub(crate) mod create;
pub(crate) mod epoch;
pub(crate) mod locks;
pub(crate) mod memory;
pub(crate) mod order;
mod origin;
mod server;
mod synchronize;

use crate::abi::{MPI_ERR_WIN, MPI_WIN_FLAVOR_DYNAMIC, MPI_WIN_FLAVOR_SHARED};
use crate::comm::Comm;
use crate::error::{Error, Result};
use crate::handle::{Table, WinHandle};
use crate::objects::attached::Attached;
use crate::objects::info::Info;
use memory::Memory;
use origin::Origin;
use redrt_process::lock;
use server::Served;
use std::ffi::c_int;
use std::sync::{Arc, Mutex, OnceLock};

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
    origin: Mutex<Origin>,
    served: Mutex<Served>,
    /// Keeps what one call sends together.
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
    static WINDOWS: Table<Window> = Table::new();
}

/// The window with this handle.
pub fn resolve(handle: WinHandle) -> Result<Arc<Window>> {
    WINDOWS.get(handle.0).ok_or_else(|| {
        if handle == WinHandle::NULL {
            Error::new(MPI_ERR_WIN, "the window is MPI_WIN_NULL")
        } else {
            Error::new(MPI_ERR_WIN, format!("{:#x} is not a window, or it has been freed", handle.0))
        }
    })
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

    /// Whether an operation on `target` is allowed now.
    pub fn check_access(&self, target: u32) -> Result {
        lock(&self.origin).epochs.check_access(target)
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
