//! How long the program is in MPI, by kind of call, for `redrun --profile`. Nothing here runs without it.
//!
//! A call that a callback of the program makes belongs to the call below which the callback runs. What is under way
//! when the counts are told, `MPI_Finalize` itself, is not in them.

use redrt_process::clock::monotonic_ns;
use redrt_wire::profile::{CallKind, CallTime};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

struct Total {
    count: AtomicU64,
    time_ns: AtomicU64,
}

process_local! {
    static TOTALS: [Total; CallKind::COUNT] =
        [const { Total { count: AtomicU64::new(0), time_ns: AtomicU64::new(0) } }; CallKind::COUNT];
}

per_thread! {
    /// When this thread began the call that it is in.
    static BEGAN_NS: Cell<Option<u64>> = Cell::new(None);
}

/// The calling thread begins a call. Whether it is one that counts, of which [`end`] is to be told.
pub(super) fn begin() -> bool {
    if BEGAN_NS.get().is_some() {
        return false;
    }
    BEGAN_NS.set(Some(monotonic_ns()));
    true
}

/// The call ends that this thread has begun.
pub(super) fn end(kind: CallKind) {
    let Some(began_ns) = BEGAN_NS.take() else { return };
    let total = &TOTALS[kind as usize];
    total.count.fetch_add(1, Ordering::Relaxed);
    total.time_ns.fetch_add(monotonic_ns().saturating_sub(began_ns), Ordering::Relaxed);
}

/// All calls that have ended, by kind.
pub fn times() -> [CallTime; CallKind::COUNT] {
    let time = |total: &Total| CallTime {
        count: total.count.load(Ordering::Relaxed),
        time_ns: total.time_ns.load(Ordering::Relaxed),
    };
    TOTALS.each_ref().map(time)
}
