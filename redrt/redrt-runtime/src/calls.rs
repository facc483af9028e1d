//! Time that the program spends in MPI, by kind of call, for `redrun --profile`. Nothing here runs without it.
//!
//! A call by a callback counts as part of the call that runs the callback. `MPI_Finalize`, in which the counts are
//! sent, is not counted itself.

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
    /// Begin of the call that this thread is in; `None` outside of calls.
    static BEGAN_NS: Cell<Option<u64>> = Cell::new(None);
}

/// Begins a call of the calling thread. Returns true if the call counts, and [`end`] has to be called for it. A call
/// within a call does not count.
pub(super) fn begin() -> bool {
    if BEGAN_NS.get().is_some() {
        return false;
    }
    BEGAN_NS.set(Some(monotonic_ns()));
    true
}

/// Ends the call that this thread has begun, and adds it to the totals.
pub(super) fn end(kind: CallKind) {
    let Some(began_ns) = BEGAN_NS.take() else { return };
    let total = &TOTALS[kind as usize];
    total.count.fetch_add(1, Ordering::Relaxed);
    total.time_ns.fetch_add(monotonic_ns().saturating_sub(began_ns), Ordering::Relaxed);
}

/// Totals of the calls that have ended, by kind.
pub fn times() -> [CallTime; CallKind::COUNT] {
    let time = |total: &Total| CallTime {
        count: total.count.load(Ordering::Relaxed),
        time_ns: total.time_ns.load(Ordering::Relaxed),
    };
    TOTALS.each_ref().map(time)
}
