//! Where the process stands between `MPI_Init` and `MPI_Finalize`.

use std::sync::atomic::{AtomicU8, Ordering};

const BEFORE: u8 = 0;
const ACTIVE: u8 = 1;
const FINALIZED: u8 = 2;

process_local! {
    static PHASE: AtomicU8 = AtomicU8::new(BEFORE);
}

/// Whether any MPI function may be called.
#[must_use]
#[inline]
pub fn is_active() -> bool {
    PHASE.load(Ordering::Acquire) == ACTIVE
}

/// Whether MPI has been finalized.
#[must_use]
pub fn is_finalized() -> bool {
    PHASE.load(Ordering::Acquire) == FINALIZED
}

/// The engine is up: `MPI_Init`, or the first `MPI_Session_init`.
pub fn set_active() {
    PHASE.store(ACTIVE, Ordering::Release);
}

/// The engine is down.
pub fn set_finalized() {
    PHASE.store(FINALIZED, Ordering::Release);
}
