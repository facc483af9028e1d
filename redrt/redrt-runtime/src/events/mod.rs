//! Events of this process and its job, for tools (MPI-5.0 §15.3.8): recorded when they happen, delivered to callbacks
//! later.
//!
//! ```text
//!   engine, its lock held ── raise ──▶ waiting ── deliver ──▶ callbacks of the registrations
//!                                      (bounded)   at the end of an MPI call, no lock held
//! ```
//! Without registrations no event is recorded. A thread of the program calls callbacks as its MPI call ends, so they
//! may call any function: `MPI_T_CB_REQUIRE_NONE`. Events and the moments of their delivery differ between the replicas
//! of a rank. So callbacks are on the side (`threads::aside`): they get real clocks, and their files are each replica's
//! own.

mod registry;

pub use registry::{Registration, SOURCE, deliver, instance, is_safety, registration};

use redrt_process::clock::monotonic_ns;
use redrt_process::lock;
use redrt_types::{ReplicaId, View, World};
use redrt_wire::event::{Finding, Mismatch};
use std::collections::VecDeque;
use std::sync::Mutex;

/// Maximum number of events that wait for delivery. Later ones are counted and dropped.
const WAITING_MAX: usize = 256;

/// Size of an event's element in bytes: all are signed 64-bit numbers, one after the other.
pub const ELEMENT_BYTES: usize = size_of::<i64>();

/// A type of events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum EventKind {
    /// A replica is gone.
    ReplicaLost,
    /// A copy, or another newcomer, takes part.
    ReplicaJoined,
    /// Replicas of a sender were found to differ.
    MismatchFound,
    /// The replicas of this rank took different paths.
    PathsParted,
    /// A connection was restored.
    LinkRestored,
}

impl EventKind {
    /// All kinds, by their indices.
    pub const ALL: [Self; 5] =
        [Self::ReplicaLost, Self::ReplicaJoined, Self::MismatchFound, Self::PathsParted, Self::LinkRestored];
}

/// An event that has happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// Type of the event.
    pub kind: EventKind,
    /// Time of the event, by this host's monotonic clock, in nanoseconds.
    pub at_ns: u64,
    /// Elements of the event.
    pub elements: Vec<i64>,
}

#[derive(Default)]
struct Waiting {
    events: VecDeque<Event>,
    /// Number of events of each kind that were dropped.
    dropped: [u64; EventKind::ALL.len()],
}

process_local! {
    static WAITING: Mutex<Option<Waiting>> = Mutex::new(None);
}

impl Waiting {
    fn push(&mut self, event: Event) {
        if self.events.len() < WAITING_MAX {
            self.events.push_back(event);
        } else {
            self.dropped[event.kind as usize] += 1;
        }
    }
}

/// Records an event, if there is a registration for its kind.
fn raise(kind: EventKind, elements: Vec<i64>) {
    if registry::is_wanted(kind) {
        lock(&WAITING).get_or_insert_default().push(Event { kind, at_ns: monotonic_ns(), elements });
    }
}

/// Takes the waiting events, and the numbers of dropped ones by kind.
fn take() -> (VecDeque<Event>, [u64; EventKind::ALL.len()]) {
    let waiting = lock(&WAITING).take().unwrap_or_default();
    (waiting.events, waiting.dropped)
}

fn of_replica(replica: ReplicaId) -> [i64; 2] {
    [replica.rank.0.into(), replica.index.0.into()]
}

/// Records the replicas that a new view has lost and gained.
pub fn view_changed(world: &World, before: &View, after: &View) {
    for replica in world.replicas() {
        let (old, new) = (before.member(replica), after.member(replica));
        let elements = || [&of_replica(replica)[..], &[after.number.0.cast_signed()]].concat();
        if old.is_some() && old != new {
            raise(EventKind::ReplicaLost, elements());
        }
        if new.is_some() && old != new {
            raise(EventKind::ReplicaJoined, elements());
        }
    }
}

/// Records a comparison that was not unanimous.
pub fn mismatch_found(mismatch: &Mismatch) {
    let finding = match mismatch.finding {
        Finding::ReplicaCorrupt => 0,
        Finding::TransportCorrupt => 1,
        Finding::Undecidable => 2,
    };
    let culprit = mismatch.culprit.map_or(-1, |culprit| culprit.index.0.into());
    let elements = [
        mismatch.sender.0.into(),
        culprit,
        finding,
        mismatch.tag.into(),
        mismatch.sequence.0.cast_signed(),
        mismatch.length_bytes.cast_signed(),
    ];
    raise(EventKind::MismatchFound, elements.to_vec());
}

/// Records that this replica's path differs from its siblings'.
pub fn paths_parted(own: ReplicaId) {
    raise(EventKind::PathsParted, of_replica(own).to_vec());
}

/// Records that a connection with this peer was restored.
pub fn link_restored(peer: ReplicaId) {
    raise(EventKind::LinkRestored, of_replica(peer).to_vec());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_finds_no_room_is_counted() {
        let mut waiting = Waiting::default();
        for at_ns in 0..WAITING_MAX as u64 + 3 {
            waiting.push(Event { kind: EventKind::PathsParted, at_ns, elements: vec![1, 0] });
        }
        waiting.push(Event { kind: EventKind::ReplicaLost, at_ns: 0, elements: vec![] });
        assert_eq!((waiting.events.len(), waiting.dropped), (WAITING_MAX, [1, 0, 0, 3, 0]));
        assert!(EventKind::ALL.iter().enumerate().all(|(index, kind)| *kind as usize == index));
    }
}
