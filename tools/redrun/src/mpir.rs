//! The process acquisition interface by which parallel debuggers (TotalView, DDT, STAT and others) find the processes
//! of a job: "The MPIR Process Acquisition Interface", version 1.0, MPI Forum, 2010.
//!
//! A debugger reads these variables of `redrun` by name. It sets a breakpoint at [`MPIR_Breakpoint`], which is reached
//! once all processes are started. These are still in `MPI_Init` then: they cannot leave it before `redrun`, which
//! stands still at the breakpoint, has sent the addresses of the others.

use super::run::Run;
use redrt_types::ReplicaId;
use std::ffi::{CString, c_char, c_int};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

/// A process, in the debugger's layout.
#[repr(C)]
#[derive(Debug)]
pub struct Described {
    host_name: *mut c_char,
    executable_name: *mut c_char,
    pid: c_int,
}

/// `MPIR_DEBUG_SPAWNED`: the table is complete.
const SPAWNED: c_int = 1;
/// `MPIR_DEBUG_ABORTING`: the job ends with a failure.
const ABORTING: c_int = 2;

// SAFETY: - no other symbol has these names: the interface reserves them.
//         - the layout is as the debugger expects: an atomic is laid out like its value.
/// The process table, ordered by rank and replica.
#[allow(non_upper_case_globals)]
#[unsafe(no_mangle)]
pub static MPIR_proctable: AtomicPtr<Described> = AtomicPtr::new(null_mut());
/// Number of entries in the table.
#[allow(non_upper_case_globals)]
#[unsafe(no_mangle)]
pub static MPIR_proctable_size: AtomicI32 = AtomicI32::new(0);
/// State at the breakpoint: [`SPAWNED`] or [`ABORTING`].
#[allow(non_upper_case_globals)]
#[unsafe(no_mangle)]
pub static MPIR_debug_state: AtomicI32 = AtomicI32::new(0);
/// Set by a debugger that has started `redrun`.
#[allow(non_upper_case_globals)]
#[unsafe(no_mangle)]
pub static MPIR_being_debugged: AtomicI32 = AtomicI32::new(0);
/// Reason why the job ends.
#[allow(non_upper_case_globals)]
#[unsafe(no_mangle)]
pub static MPIR_debug_abort_string: AtomicPtr<c_char> = AtomicPtr::new(null_mut());
/// Its presence marks this process as a starter that is not part of the program.
#[allow(non_upper_case_globals)]
#[unsafe(no_mangle)]
pub static MPIR_i_am_starter: AtomicI32 = AtomicI32::new(0);

/// Function at which debuggers set their breakpoint.
#[unsafe(no_mangle)]
#[inline(never)]
#[allow(non_snake_case)]
pub extern "C" fn MPIR_Breakpoint() {
    // Keeps the function distinct: identical empty functions could be merged.
    std::hint::black_box(MPIR_debug_state.load(Ordering::Relaxed));
}

/// Leaks a copy of the text: a debugger may read it at any time.
fn kept(text: &str) -> *mut c_char {
    let text: Vec<u8> = text.bytes().filter(|byte| *byte != 0).collect();
    CString::new(text).expect("it has no zero").into_raw()
}

fn stop(state: c_int) {
    MPIR_debug_state.store(state, Ordering::Release);
    MPIR_Breakpoint();
}

/// Fills the table once all processes are started, also for debuggers that attach later.
pub(super) fn notify_debuggers(run: &Run<'_>) {
    let manager = run.coordinator.manager();
    let described = |replica: ReplicaId| {
        let application = run.job.application_of_rank[replica.rank.0 as usize] as usize;
        let program = run.job.applications[application].program.display().to_string();
        let pid = manager.members().pid(replica)?;
        Some(Described { host_name: kept(&run.host_name(replica)), executable_name: kept(&program), pid })
    };
    let table: Vec<_> = manager.world().replicas().filter_map(described).collect();
    MPIR_proctable_size.store(table.len() as c_int, Ordering::Release);
    // Leaked: a debugger may read it at any time.
    MPIR_proctable.store(table.leak().as_mut_ptr(), Ordering::Release);
    stop(SPAWNED);
}

/// Stops for a debugger before the processes of a failing job are gone.
pub(super) fn notify_of_end(code: i32) {
    if code != 0 && MPIR_being_debugged.load(Ordering::Acquire) != 0 {
        MPIR_debug_abort_string.store(kept(&format!("exit code {code}")), Ordering::Release);
        stop(ABORTING);
    }
}
