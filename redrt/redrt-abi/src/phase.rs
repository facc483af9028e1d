//! Phase of the process: before, between or after `MPI_Init` and `MPI_Finalize`.

use std::sync::atomic::{AtomicU8, Ordering};

const BEFORE: u8 = 0;
const ACTIVE: u8 = 1;
const FINALIZED: u8 = 2;

process_local! {
    static PHASE: AtomicU8 = AtomicU8::new(BEFORE);
}

/// Returns true if any MPI function may be called.
#[must_use]
#[inline]
pub fn is_active() -> bool {
    PHASE.load(Ordering::Acquire) == ACTIVE
}

/// Returns true if MPI has been finalized.
#[must_use]
pub fn is_finalized() -> bool {
    PHASE.load(Ordering::Acquire) == FINALIZED
}

/// Begins the active phase. Called once the engine works: in `MPI_Init`, or in the first `MPI_Session_init`.
pub fn set_active() {
    PHASE.store(ACTIVE, Ordering::Release);
}

/// Ends the active phase. Called once the engine has ended.
pub fn set_finalized() {
    PHASE.store(FINALIZED, Ordering::Release);
}
