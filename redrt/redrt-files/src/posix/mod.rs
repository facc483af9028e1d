//! POSIX files of the program in a replicated world: one replica of a rank writes them, and all replicas get its
//! outcomes.
//!
//! ```text
//!   program ── open, write, rename ──▶ preloaded library ── Call ──▶ answer() ──▶ open.rs, data.rs, names.rs, …
//!                                                                                       │ the operation
//!   leader    observe ──▶ decision ──▶ all hold it ──▶ perform ──▶ decision             ▼
//!   follower              takes it                                 takes it     agree.rs ──▶ decide::{outside, effect}
//! ```
//! The leader does an operation and its outcome is a decision, as with the files of MPI (`crate::file`). A change of
//! the file system is an output, and committed as one: it is made only when all siblings hold every earlier decision.
//! So a leader that dies leaves at most one change that its siblings do not know, and its successor comes to that
//! change next. The successor makes it again, and each change is idempotent. Bytes are written at an agreed position. A
//! name is looked at first, which is agreed, and a replica that finds it changed afterwards knows that its predecessor
//! has changed it.
//!
//! A follower has a stand-in under the same descriptor number: memory that no process reads. When this replica becomes
//! the leader the file replaces it (`table::Description::file`): by a descriptor that the leader sent when it opened
//! the file (`lend`), if both are on one host; else the file is opened by its name. For that, renaming and removing an
//! open file is followed.
//!
//! After `MPI_Finalize` nothing can be agreed on. The replica that led then writes alone, see `finish`.

mod agree;
mod alone;
mod attributes;
mod counted;
mod data;
mod directories;
mod identity;
mod lend;
mod listing;
mod locks;
mod names;
mod open;
mod paths;
mod ranges;
mod reopen;
mod status;
mod table;

use redrt_engine as engine;
use redrt_engine::tasks;
use redrt_runtime::call::{Call, Operation};
use redrt_runtime::decide;
use redrt_runtime::{self as runtime, preload, threads};
use redrt_wire::control::{CLONER_FD_VARIABLE, Files};
use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

/// Before `MPI_Init`, and in jobs that leave files alone.
const ABSENT: u8 = 0;
/// Replicas agree on outcomes.
const AGREED: u8 = 1;
/// After `MPI_Finalize`: this replica writes.
const WRITER: u8 = 2;
/// After `MPI_Finalize`: another replica writes.
const SILENT: u8 = 3;

process_local! {
    static PHASE: AtomicU8 = AtomicU8::new(ABSENT);
}

/// Replicas never agree: calls are only recorded.
const ALONE: u8 = 4;

/// Time for which a process that goes on from a checkpoint waits for its locks, all of which the job had at the
/// checkpoint. If another program has one of them now, the job goes on, and the next call that accesses a file waits.
const LOCKING_TIME_MAX: Duration = Duration::from_secs(10);
const LOCKING_INTERVAL: Duration = Duration::from_millis(1);

/// Handling of a call.
enum Done {
    /// The call was done, with this result.
    Answered(i64),
    /// The C library carries out the call, in each replica.
    Left,
}

/// Handling of a call, or its error number.
type Outcome = Result<Done, c_int>;

/// Begins to agree on the program's files. Called in `MPI_Init`.
pub fn begin() {
    let Some(job) = runtime::job() else { return };
    let welcome = &job.welcome;
    if !preload::is_present() {
        return;
    }
    if welcome.options.files == Files::All || welcome.world.degree(welcome.me.rank) < 2 {
        // Only jobs that can be saved record changes of files.
        if std::env::var_os(CLONER_FD_VARIABLE).is_some() {
            PHASE.store(ALONE, Ordering::Release);
            preload::install_files(Some(answer), true);
        }
        return;
    }
    lend::begin();
    meet();
    table::adopt_open_files();
    PHASE.store(AGREED, Ordering::Release);
    if preload::install_files(Some(answer), false) == Some(false) && welcome.me.index.0 == 0 && welcome.me.rank.0 == 0 {
        redrt_process::say(
            "redrt: this C library's streams (FILE *) are unknown: what is written through them is written by every \
             replica (see docs/files.md)",
        );
    }
}

/// Begins to record changes of files in a child of a process of the job, in the logs that the file at `path` names.
/// Returns true if they are recorded. Called by the preloaded library only, so it needs no name of MPI.
///
/// # Safety
/// `path` is a zero-terminated string.
#[unsafe(export_name = "redrt_record_child")]
unsafe extern "C" fn record_child(path: *const c_char) -> bool {
    // SAFETY: - zero-terminated: the caller's duty above.
    let path = unsafe { CStr::from_ptr(path) };
    let is_recorded = redrt_runtime::undo::children::begin(Path::new(OsStr::from_bytes(path.to_bytes())));
    if is_recorded {
        PHASE.store(ALONE, Ordering::Release);
        preload::install_files(Some(answer), true);
    }
    is_recorded
}

/// Ends the agreement: flushes all streams, and chooses the replica that continues to write. Called in `MPI_Finalize`.
pub fn finish() {
    if PHASE.load(Ordering::Acquire) != AGREED {
        return;
    }
    {
        let _program = threads::call_back();
        // SAFETY: - null is allowed: it means all streams.
        unsafe { libc::fflush(std::ptr::null_mut()) };
    }
    table::remove_kept();
    let me = |engine: &mut engine::Engine| u64::from(engine.me.index.0);
    let writer = decide::value(me);
    let is_writer = u64::from(engine::cell().lock().me.index.0) == writer;
    PHASE.store(if is_writer { WRITER } else { SILENT }, Ordering::Release);
    if !is_writer {
        locks::end();
    }
}

/// Handles a new view. If this process is the leader, new siblings get its open files. If it has just become the
/// leader, it takes the locks of the program.
pub fn meet() {
    let (siblings, leads) = engine::cell().siblings();
    lend::meet(siblings, leads);
    if leads && is_agreed() {
        locks::are_in_place();
    }
}

/// In a copy: begins to receive descriptors. In a process that goes on from a checkpoint as the leader of its rank,
/// waits until it has the locks of the program again, for at most `LOCKING_TIME_MAX`.
pub fn become_copy(leads: bool) {
    if !is_agreed() {
        return;
    }
    lend::begin();
    let begun = Instant::now();
    while leads && !locks::are_in_place() && begun.elapsed() < LOCKING_TIME_MAX {
        std::thread::sleep(LOCKING_INTERVAL);
    }
}

/// Returns true if replicas agree on outcomes now.
fn is_agreed() -> bool {
    PHASE.load(Ordering::Acquire) == AGREED
}

/// Returns true if this replica is the one that writes after `MPI_Finalize`.
fn writes_alone() -> bool {
    PHASE.load(Ordering::Acquire) == WRITER
}

/// Returns true after `MPI_Finalize` in replicas that do not write: they only simulate their changes.
fn is_silent() -> bool {
    PHASE.load(Ordering::Acquire) == SILENT
}

/// Answers a call of the program, for the preloaded library, which has checked that the call is not the library's own.
/// Returns 0 to leave the call to the C library; see `alone` for other values.
unsafe extern "C" fn answer(call: *mut Call) -> c_int {
    // SAFETY: - valid and not shared during the call: the preloaded library passes a local variable.
    let call = unsafe { &mut *call };
    if call.operation == Operation::Returned {
        alone::after(call);
        return 0;
    }
    if PHASE.load(Ordering::Acquire) == ALONE {
        return alone::before(call);
    }
    if threads::is_aside() || PHASE.load(Ordering::Acquire) == ABSENT || (is_agreed() && !redrt_abi::phase::is_active())
    {
        return 0;
    }
    let by_descriptor = call.path.is_null();
    if by_descriptor && !table::may_know(call.fd) && !table::may_know(call.other) {
        return alone::before(call);
    }
    let _inside = threads::enter_quietly();
    threads::make_known();
    agree::begin(call);
    let outcome = if threads::is_in_callback() { tasks::hold(|| carry_out(call)) } else { carry_out(call) };
    match outcome {
        Ok(Done::Left) => return alone::before(call),
        Ok(Done::Answered(result)) => call.result = result,
        Err(error) => (call.result, call.error) = (-1, error),
    }
    1
}

fn carry_out(call: &Call) -> Outcome {
    match call.operation {
        Operation::Open => open::open(call),
        Operation::Close => table::close(call.fd),
        Operation::Duplicate => table::duplicate(call),
        Operation::Read => data::read(call),
        Operation::Write => data::write(call),
        Operation::Seek => data::seek(call),
        Operation::TruncateDescriptor | Operation::Allocate | Operation::Synchronize => data::change(call),
        Operation::Map => data::map(call),
        Operation::DescriptorStatus => status::of_descriptor(call),
        Operation::Status | Operation::ExtendedStatus | Operation::Access | Operation::ReadLink => {
            status::of_path(call)
        }
        Operation::GetFlags => table::flags(call.fd),
        Operation::SetFlags => table::set_flags(call.fd, call.flags),
        Operation::NextEntry => directories::next_entry(call),
        Operation::NextEntries => directories::next_entries(call),
        Operation::Forget => directories::forget(call),
        Operation::Fill | Operation::Returned => Ok(Done::Left),
        Operation::IsKnown => Ok(table::find(call.fd).map_or(Done::Left, |_| Done::Answered(1))),
        Operation::Unlink => names::unlink(call),
        Operation::Rename => names::rename(call),
        Operation::Link => names::link(call),
        Operation::SymbolicLink => names::symbolic_link(call),
        Operation::MakeDirectory => names::make_directory(call),
        Operation::Truncate => names::change(call),
        Operation::ChangeMode | Operation::ChangeOwner | Operation::SetTimes => {
            let changed = if call.path.is_null() { data::change(call) } else { names::change(call) }?;
            let may_be_run = call.operation == Operation::ChangeMode && call.mode & 0o111 != 0;
            if may_be_run && matches!(changed, Done::Answered(_)) {
                table::await_siblings();
            }
            Ok(changed)
        }
        Operation::Lock => locks::control(call),
        Operation::LockWhole => locks::lock_whole(call),
        Operation::GetAttribute | Operation::ListAttributes => attributes::read(call),
        Operation::SetAttribute | Operation::RemoveAttribute => attributes::change(call),
    }
}

/// A path of a call, made absolute. `None` for a path that the kernel has to judge: null, or empty, which stands for
/// the descriptor.
fn path_of(directory: c_int, path: *const c_char) -> Option<PathBuf> {
    if path.is_null() {
        return None;
    }
    // SAFETY: - zero-terminated: not null, and the contract of the program's call.
    paths::absolute(directory, unsafe { CStr::from_ptr(path) })
}
