//! The process acquisition interface by which parallel debuggers (TotalView, DDT, STAT and others) find the processes
//! of a job: "The MPIR Process Acquisition Interface", version 1.0, MPI Forum, 2010.
//!
//! A debugger reads these variables of `redrun` by their names. It has set a breakpoint at [`MPIR_Breakpoint`], and is
//! told there that all processes have been started. Then they are still in `MPI_Init`: none leaves it before `redrun`,
//! which stands still, has told it who the others are.

use super::Shell;
use redrt_types::ReplicaId;
use std::ffi::{CString, c_char, c_int};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

/// A process, as a debugger reads it.
#[repr(C)]
#[derive(Debug)]
pub struct Described {
    host_name: *mut c_char,
    executable_name: *mut c_char,
    pid: c_int,
}

/// `MPIR_DEBUG_SPAWNED`: the table is complete.
const SPAWNED: c_int = 1;
/// `MPIR_DEBUG_ABORTING`: the job ends, and not well.
const ABORTING: c_int = 2;

// SAFETY: nothing else has these names: they are those of the interface. An atomic lies in memory as what it holds
// does.
/// The processes: by rank, and within a rank by replica.
#[allow(non_upper_case_globals)]
#[unsafe(no_mangle)]
pub static MPIR_proctable: AtomicPtr<Described> = AtomicPtr::new(null_mut());
/// How many these are.
#[allow(non_upper_case_globals)]
#[unsafe(no_mangle)]
pub static MPIR_proctable_size: AtomicI32 = AtomicI32::new(0);
/// What has happened when the breakpoint is reached.
#[allow(non_upper_case_globals)]
#[unsafe(no_mangle)]
pub static MPIR_debug_state: AtomicI32 = AtomicI32::new(0);
/// Set by a debugger that has started `redrun`.
#[allow(non_upper_case_globals)]
#[unsafe(no_mangle)]
pub static MPIR_being_debugged: AtomicI32 = AtomicI32::new(0);
/// Why the job ends.
#[allow(non_upper_case_globals)]
#[unsafe(no_mangle)]
pub static MPIR_debug_abort_string: AtomicPtr<c_char> = AtomicPtr::new(null_mut());
/// Its presence says that this process starts others and does not belong to the program.
#[allow(non_upper_case_globals)]
#[unsafe(no_mangle)]
pub static MPIR_i_am_starter: AtomicI32 = AtomicI32::new(0);

/// Where debuggers stop this process.
#[unsafe(no_mangle)]
#[inline(never)]
#[allow(non_snake_case)]
pub extern "C" fn MPIR_Breakpoint() {
    // Else it would have the address of any function that does nothing.
    std::hint::black_box(MPIR_debug_state.load(Ordering::Relaxed));
}

/// A text that a debugger may read for as long as this process is there.
fn kept(text: &str) -> *mut c_char {
    let text: Vec<u8> = text.bytes().filter(|byte| *byte != 0).collect();
    CString::new(text).expect("it has no zero").into_raw()
}

fn stop(state: c_int) {
    MPIR_debug_state.store(state, Ordering::Release);
    MPIR_Breakpoint();
}

impl Shell<'_> {
    /// All processes have been started: debuggers are told, those that come later too.
    pub(super) fn tell_debuggers(&self) {
        let coordinator = self.root.coordinator();
        let described = |replica: ReplicaId| {
            let application = self.job.application_of_rank[replica.rank.0 as usize] as usize;
            let program = self.job.applications[application].program.display().to_string();
            let pid = coordinator.pid(replica)?;
            Some(Described { host_name: kept(&self.host_name(replica)), executable_name: kept(&program), pid })
        };
        let table: Vec<_> = coordinator.world().replicas().filter_map(described).collect();
        MPIR_proctable_size.store(table.len() as c_int, Ordering::Release);
        // It stays.
        MPIR_proctable.store(table.leak().as_mut_ptr(), Ordering::Release);
        stop(SPAWNED);
    }
}

/// The job ends, and not well: a debugger may want to look before its processes are gone.
pub(super) fn tell_of_end(code: i32) {
    if code != 0 && MPIR_being_debugged.load(Ordering::Acquire) != 0 {
        MPIR_debug_abort_string.store(kept(&format!("exit code {code}")), Ordering::Release);
        stop(ABORTING);
    }
}
