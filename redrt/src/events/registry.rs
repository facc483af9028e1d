//! Who wants to know of events, and telling them.

use super::{Event, Kind};
use crate::abi::{
    Callback, MPI_T_CB_REQUIRE_ASYNC_SIGNAL_SAFE, MPI_T_CB_REQUIRE_MPI_RESTRICTED, MPI_T_CB_REQUIRE_NONE,
    MPI_T_CB_REQUIRE_THREAD_SAFE, ToolHandle,
};
use crate::callbacks;
use crate::handle::HandleTable;
use crate::runtime::threads;
use redrt_process::lock;
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// From the least that a callback must be able to bear to the most.
const SAFETIES: [c_int; 4] = [
    MPI_T_CB_REQUIRE_NONE,
    MPI_T_CB_REQUIRE_MPI_RESTRICTED,
    MPI_T_CB_REQUIRE_THREAD_SAFE,
    MPI_T_CB_REQUIRE_ASYNC_SIGNAL_SAFE,
];

/// Whether it is one of the levels of safety.
pub fn is_safety(level: c_int) -> bool {
    SAFETIES.contains(&level)
}

/// The only source of events.
pub const SOURCE: c_int = 0;

/// A function of the program, and what it wants to be given.
#[derive(Clone, Copy, Debug)]
pub struct Handler {
    function: Callback,
    user_data: usize,
}

/// Somebody wants to know of events of a kind.
pub struct Registration {
    /// Of which kind.
    pub kind: Kind,
    /// By level of safety: the order of these is that of what they bear.
    callbacks: Mutex<BTreeMap<c_int, Handler>>,
    dropped: Mutex<Option<Callback>>,
}

process_local! {
    static REGISTRATIONS: HandleTable<Registration> = HandleTable::new();
    /// How many there are of each kind.
    static COUNTS: [AtomicU32; Kind::ALL.len()] = [const { AtomicU32::new(0) }; Kind::ALL.len()];
    /// Events in the callbacks that are told of them.
    static INSTANCES: HandleTable<Event> = HandleTable::new();
    /// Registrations that are gone, whose owners want to be told when nothing of them runs any more.
    static FREED: Mutex<Vec<(ToolHandle, Handler)>> = Mutex::new(Vec::new());
}

/// Whether anybody wants to know of events of a kind.
pub fn is_wanted(kind: Kind) -> bool {
    COUNTS[kind as usize].load(Ordering::Relaxed) > 0
}

/// The registration of this handle.
pub fn registration(handle: ToolHandle) -> Option<Arc<Registration>> {
    REGISTRATIONS.get(handle.0)
}

impl Registration {
    /// Registers, without a callback yet.
    pub fn add(kind: Kind) -> ToolHandle {
        let registration = Self { kind, callbacks: Mutex::default(), dropped: Mutex::default() };
        let handle = ToolHandle(REGISTRATIONS.insert(Arc::new(registration)));
        COUNTS[kind as usize].fetch_add(1, Ordering::Relaxed);
        threads::deliver_events(super::deliver);
        handle
    }

    /// Ends it; `function` is called when no callback of it runs any more.
    pub fn free(handle: ToolHandle, function: Callback, user_data: usize) {
        if let Some(gone) = REGISTRATIONS.remove(handle.0) {
            COUNTS[gone.kind as usize].fetch_sub(1, Ordering::Relaxed);
        }
        if function != Callback::NULL {
            lock(&FREED).push((handle, Handler { function, user_data }));
        }
    }

    /// Sets the callback for contexts of this level of safety, or takes it away.
    pub fn set_callback(&self, safety: c_int, function: Callback, user_data: usize) {
        let mut callbacks = lock(&self.callbacks);
        if function == Callback::NULL {
            callbacks.remove(&safety);
        } else {
            callbacks.insert(safety, Handler { function, user_data });
        }
    }

    /// Whether there is a callback for this level of safety.
    pub fn has_callback(&self, safety: c_int) -> bool {
        lock(&self.callbacks).contains_key(&safety)
    }

    /// Sets what is called when events were dropped.
    pub fn set_dropped(&self, function: Callback) {
        *lock(&self.dropped) = Some(function).filter(|function| *function != Callback::NULL);
    }

    /// The callback that must bear least: nothing more is needed where events are delivered.
    fn callback(&self) -> Option<Handler> {
        lock(&self.callbacks).values().next().copied()
    }
}

/// The event that a callback is told of.
pub fn instance(handle: ToolHandle) -> Option<Arc<Event>> {
    INSTANCES.get(handle.0)
}

/// Tells the program what has happened. No lock of the library may be held.
pub fn deliver() {
    process_local! {
        static IS_DELIVERING: AtomicBool = AtomicBool::new(false);
    }
    // One thread at a time: events come in their order. What is raised meanwhile waits for the next call.
    if IS_DELIVERING.swap(true, Ordering::Acquire) {
        return;
    }
    let (events, dropped) = super::take();
    threads::aside(|| {
        for event in events {
            tell(Arc::new(event));
        }
        for (kind, count) in Kind::ALL.into_iter().zip(dropped).filter(|(_, count)| *count > 0) {
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

fn of_kind(kind: Kind) -> impl Iterator<Item = (ToolHandle, Arc<Registration>)> {
    let all = REGISTRATIONS.snapshot().into_iter();
    all.filter(move |(_, registration)| registration.kind == kind).map(|(handle, it)| (ToolHandle(handle), it))
}

fn tell(event: Arc<Event>) {
    let instance = ToolHandle(INSTANCES.insert(Arc::clone(&event)));
    for (handle, registration) in of_kind(event.kind) {
        // Unless a callback has freed it.
        if let Some(handler) = registration.callback().filter(|_| REGISTRATIONS.get(handle.0).is_some()) {
            callbacks::call_event(handler.function, instance, handle, MPI_T_CB_REQUIRE_NONE, handler.user_data);
        }
    }
    INSTANCES.remove(instance.0);
}
