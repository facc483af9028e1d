//! Beginning and end (MPI-5.0 chapter 11).

pub use super::session::*;

use super::host::InJob;
use redrt_abi::error::{Error, Result};
use redrt_abi::handle::CommHandle;
use redrt_abi::{
    MPI_ERR_OTHER, MPI_THREAD_FUNNELED, MPI_THREAD_MULTIPLE, MPI_THREAD_SERIALIZED, MPI_THREAD_SINGLE, Output,
};
use redrt_comm::comm;
use redrt_comm::comm::check;
use redrt_comm::comm::connection;
use redrt_comm::objects::attached::Attached;
use redrt_comm::objects::errhandler::Errhandler;
use redrt_comm::objects::error_codes::described;
use redrt_comm::objects::host;
use redrt_comm::objects::session;
use redrt_files::posix;
#[cfg(any(test, feature = "simulation"))]
use redrt_runtime::control::Control;
use redrt_runtime::{self as runtime, Job, threads};
#[cfg(any(test, feature = "simulation"))]
use redrt_wire::card::Card;
#[cfg(any(test, feature = "simulation"))]
use redrt_wire::control::Welcome;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::ThreadId;

process_local! {
    static MAIN: OnceLock<ThreadId> = OnceLock::new();
}

const BEFORE: u8 = 0;
const INITIALIZED: u8 = 1;
const FINALIZED: u8 = 2;

process_local! {
    /// State of the world model: before `MPI_Init`, between, or after `MPI_Finalize`. With sessions, the library may
    /// work outside of it.
    static WORLD: AtomicU8 = AtomicU8::new(BEFORE);
}

fn begin(required: c_int) -> Result<c_int> {
    if redrt_abi::phase::is_finalized() || WORLD.load(Ordering::Acquire) != BEFORE {
        return Err(Error::new(MPI_ERR_OTHER, "MPI has been initialized already"));
    }
    let provided = start("MPI_Init", required);
    let _ = MAIN.set(std::thread::current().id());
    WORLD.store(INITIALIZED, Ordering::Release);
    Ok(provided)
}

/// Takes this process's place in the job, unless it has one. Returns the provided thread level.
fn start(function: &str, required: c_int) -> c_int {
    redrt_process::clock::prepare();
    let provided = match required {
        MPI_THREAD_FUNNELED | MPI_THREAD_SERIALIZED | MPI_THREAD_MULTIPLE => required,
        _ => MPI_THREAD_SINGLE,
    };
    threads::provide(provided);
    if !redrt_abi::phase::is_active() {
        if let Err(error) = join() {
            redrt_process::say(format_args!("redrt: {function}: {error}"));
            std::process::exit(1);
        }
        redrt_abi::phase::set_active();
        redrt_runtime::clock::install_hooks();
        posix::begin();
    } else if threads::are_allowed() {
        redrt_engine::cell().share();
    }
    provided
}

/// Reasons for which this process cannot take its place in a job.
#[derive(Debug, thiserror::Error)]
enum InitError {
    #[error("{}", redrt_membership::chain(.0))]
    Join(redrt_membership::JoinError),
    #[error("the job that spawned this one cannot be met: {0}")]
    Parent(String),
}

/// Takes this process's place in the job, makes the predefined objects, and meets the parent job if there is one.
fn join() -> std::result::Result<(), InitError> {
    let job = redrt_membership::begin(!threads::are_allowed()).map_err(InitError::Join)?;
    make_world(job);
    let Some(port) = &job.welcome.origin.parent_port else { return Ok(()) };
    let met = redrt_dynamic::meet_parent(port);
    met.map_err(|error| InitError::Parent(described(&error)))
}

/// Makes the predefined communicators, and installs the facts about this process.
fn make_world(job: &Job) {
    if job.welcome.options.checks_collectives {
        check::begin();
    }
    host::install(Box::new(InJob));
    let attached = || Arc::new(Attached::with_errhandler(Arc::new(Errhandler::initial())));
    comm::install(job.welcome.me.rank, job.welcome.world.rank_count(), attached(), attached());
}

/// `MPI_Init` of a simulated process.
#[cfg(any(test, feature = "simulation"))]
pub fn init_simulated(welcome: Welcome, cards: Vec<Card>, control: Control) {
    make_world(redrt_membership::join_simulated(welcome, cards, control));
    redrt_abi::phase::set_active();
    let _ = MAIN.set(std::thread::current().id());
    WORLD.store(INITIALIZED, Ordering::Release);
}

/// Ends the parts of the library and leaves the job.
fn end() {
    connection::finalize();
    redrt_runtime::turns::finish();
    redrt_runtime::locks::finish();
    redrt_runtime::clock::counts::finish();
    posix::finish();
    redrt_membership::end();
    redrt_runtime::clock::remove_hooks();
    redrt_abi::phase::set_finalized();
}

/// Begins a session, and the library with it if it does not work yet. Returns the thread level; without a `required`
/// level, the level that was provided before.
pub(super) fn begin_session(required: Option<c_int>) -> Result<c_int> {
    if redrt_abi::phase::is_finalized() {
        return Err(Error::new(MPI_ERR_OTHER, "MPI has been finalized: no session can begin any more"));
    }
    if !redrt_abi::phase::is_active() {
        // At exit: until then, a program that uses only sessions may begin another one after its last.
        // SAFETY: - registers a function that is valid as long as the process: this library is never unloaded.
        unsafe { libc::atexit(end_at_exit) };
    }
    Ok(start("MPI_Session_init", required.unwrap_or_else(threads::provided)))
}

extern "C" fn end_at_exit() {
    if redrt_abi::phase::is_active() && WORLD.load(Ordering::Acquire) == BEFORE && session::count() == 0 {
        end();
    }
}

/// Called at the end of the last session: leaves the job, if `MPI_Finalize` was called already.
pub(super) fn end_sessions() {
    if redrt_abi::phase::is_active() && WORLD.load(Ordering::Acquire) == FINALIZED {
        end();
    }
}

/// `MPI_Init`. The arguments stay unchanged: redrun passes nothing in them.
pub fn init<A, B>(_argc: A, _argv: B) -> Result {
    begin(MPI_THREAD_SINGLE).map(drop)
}

/// `MPI_Init_thread`.
pub fn init_thread<A, B>(_argc: A, _argv: B, required: c_int, provided: Output<c_int>) -> Result {
    let level = begin(required)?;
    provided.set(level)
}

/// `MPI_Initialized`.
pub fn initialized(flag: Output<c_int>) -> Result {
    flag.set(c_int::from(WORLD.load(Ordering::Acquire) != BEFORE))
}

/// `MPI_Finalized`.
pub fn finalized(flag: Output<c_int>) -> Result {
    flag.set(c_int::from(WORLD.load(Ordering::Acquire) == FINALIZED))
}

/// `MPI_Query_thread`.
pub fn query_thread(provided: Output<c_int>) -> Result {
    provided.set(threads::provided())
}

/// `MPI_Is_thread_main`.
pub fn is_thread_main(flag: Output<c_int>) -> Result {
    flag.set(c_int::from(MAIN.get() == Some(&std::thread::current().id())))
}

/// `MPI_Finalize`.
pub fn finalize() -> Result {
    if WORLD.load(Ordering::Acquire) != INITIALIZED {
        return Err(Error::new(MPI_ERR_OTHER, "MPI_Init was not called, or MPI_Finalize was already"));
    }
    let this = comm::resolve(CommHandle::SELF)?;
    // MPI-5.0 §11.2.4: attributes of MPI_COMM_SELF are deleted first, while MPI still works.
    this.attached.attributes.delete_all(CommHandle::SELF.0)?;
    WORLD.store(FINALIZED, Ordering::Release);
    if session::count() == 0 {
        end();
    }
    Ok(())
}

/// `MPI_Abort`. Ends the job, whatever the communicator.
pub fn abort(_comm: CommHandle, errorcode: c_int) -> Result {
    runtime::abort(errorcode, String::new())
}
