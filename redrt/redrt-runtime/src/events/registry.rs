//! Registrations for events, and delivery to their callbacks.

use super::{Event, EventKind};
use crate::callbacks;
use crate::threads;
use redrt_abi::handle::HandleTable;
use redrt_abi::{
    Callback, MPI_T_CB_REQUIRE_ASYNC_SIGNAL_SAFE, MPI_T_CB_REQUIRE_MPI_RESTRICTED, MPI_T_CB_REQUIRE_NONE,
    MPI_T_CB_REQUIRE_THREAD_SAFE, ToolHandle,
};
use redrt_process::lock;
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// Levels of safety, from the least restrictive for a callback to the most.
const SAFETIES: [c_int; 4] = [
    MPI_T_CB_REQUIRE_NONE,
    MPI_T_CB_REQUIRE_MPI_RESTRICTED,
    MPI_T_CB_REQUIRE_THREAD_SAFE,
    MPI_T_CB_REQUIRE_ASYNC_SIGNAL_SAFE,
];

/// Returns true if the number is one of the levels of safety.
pub fn is_safety(level: c_int) -> bool {
    SAFETIES.contains(&level)
}

/// The only source of events.
pub const SOURCE: c_int = 0;

/// A function of the program, with its argument.
#[derive(Clone, Copy, Debug)]
pub struct Handler {
    function: Callback,
    user_data: usize,
}

/// A registration for events of a kind.
pub struct Registration {
    /// Kind of the events.
    pub kind: EventKind,
    /// Callbacks by level of safety. The numbers of the levels are in the order of their restrictions.
    callbacks: Mutex<BTreeMap<c_int, Handler>>,
    dropped: Mutex<Option<Callback>>,
}

process_local! {
    static REGISTRATIONS: HandleTable<Registration> = HandleTable::new();
    /// Number of registrations of each kind.
    static COUNTS: [AtomicU32; EventKind::ALL.len()] = [const { AtomicU32::new(0) }; EventKind::ALL.len()];
    /// Events whose callbacks run now.
    static INSTANCES: HandleTable<Event> = HandleTable::new();
    /// Freed registrations, each with the function to call once no callback of it runs.
    static FREED: Mutex<Vec<(ToolHandle, Handler)>> = Mutex::new(Vec::new());
}

/// Returns true if there is a registration for events of this kind.
pub fn is_wanted(kind: EventKind) -> bool {
    COUNTS[kind as usize].load(Ordering::Relaxed) > 0
}

/// The registration with this handle; `None` if none exists.
pub fn registration(handle: ToolHandle) -> Option<Arc<Registration>> {
    REGISTRATIONS.get(handle.0)
}

impl Registration {
    /// Makes a registration without a callback. Returns its handle.
    pub fn add(kind: EventKind) -> ToolHandle {
        let registration = Self { kind, callbacks: Mutex::default(), dropped: Mutex::default() };
        let handle = ToolHandle(REGISTRATIONS.insert(Arc::new(registration)));
        COUNTS[kind as usize].fetch_add(1, Ordering::Relaxed);
        threads::deliver_events(super::deliver);
        handle
    }

    /// Frees a registration. `function` is called once no callback of it runs.
    pub fn free(handle: ToolHandle, function: Callback, user_data: usize) {
        if let Some(gone) = REGISTRATIONS.remove(handle.0) {
            COUNTS[gone.kind as usize].fetch_sub(1, Ordering::Relaxed);
        }
        if function != Callback::NULL {
            lock(&FREED).push((handle, Handler { function, user_data }));
        }
    }

    /// Sets the callback for this level of safety; null removes it.
    pub fn set_callback(&self, safety: c_int, function: Callback, user_data: usize) {
        let mut callbacks = lock(&self.callbacks);
        if function == Callback::NULL {
            callbacks.remove(&safety);
        } else {
            callbacks.insert(safety, Handler { function, user_data });
        }
    }

    /// Returns true if there is a callback for this level of safety.
    pub fn has_callback(&self, safety: c_int) -> bool {
        lock(&self.callbacks).contains_key(&safety)
    }

    /// Sets the function that is called when events were dropped; null removes it.
    pub fn set_dropped(&self, function: Callback) {
        *lock(&self.dropped) = Some(function).filter(|function| *function != Callback::NULL);
    }

    /// The callback for the lowest level of safety, which suffices for delivery.
    fn callback(&self) -> Option<Handler> {
        lock(&self.callbacks).values().next().copied()
    }
}

/// The event with this handle, during the callbacks for it; `None` otherwise.
pub fn instance(handle: ToolHandle) -> Option<Arc<Event>> {
    INSTANCES.get(handle.0)
}

/// Delivers waiting events to the program's callbacks. No lock of the library may be held.
pub fn deliver() {
    process_local! {
        static IS_DELIVERING: AtomicBool = AtomicBool::new(false);
    }
    // One thread at a time, so that events come in order. Events that are raised meanwhile are delivered after the next
    // call.
    if IS_DELIVERING.swap(true, Ordering::Acquire) {
        return;
    }
    let (events, dropped) = super::take();
    threads::aside(|| {
        for event in events {
            notify(Arc::new(event));
        }
        for (kind, count) in EventKind::ALL.into_iter().zip(dropped).filter(|(_, count)| *count > 0) {
            for (handle, registration) in of_kind(kind) {
                let Some(function) = *lock(&registration.dropped) else { continue };
                let user_data = registration.callback().map_or(0, |handler| handler.user_data);
                callbacks::call_dropped(
                    function,
                    count.cast_signed(),
                    handle,
                    SOURCE,
                    MPI_T_CB_REQUIRE_NONE,
                    user_data,
                );
            }
        }
        let freed = std::mem::take(&mut *lock(&FREED));
        for (handle, handler) in freed {
            callbacks::call_freed(handler.function, handle, MPI_T_CB_REQUIRE_NONE, handler.user_data);
        }
    });
    IS_DELIVERING.store(false, Ordering::Release);
}

fn of_kind(kind: EventKind) -> impl Iterator<Item = (ToolHandle, Arc<Registration>)> {
    let all = REGISTRATIONS.snapshot().into_iter();
    all.filter(move |(_, registration)| registration.kind == kind).map(|(handle, it)| (ToolHandle(handle), it))
}

fn notify(event: Arc<Event>) {
    let instance = ToolHandle(INSTANCES.insert(Arc::clone(&event)));
    for (handle, registration) in of_kind(event.kind) {
        // Skipped if a callback has freed the registration.
        if let Some(handler) = registration.callback().filter(|_| REGISTRATIONS.get(handle.0).is_some()) {
            callbacks::call_event(handler.function, instance, handle, MPI_T_CB_REQUIRE_NONE, handler.user_data);
        }
    }
    INSTANCES.remove(instance.0);
}
