//! Identities and addresses of processes of other jobs.
//!
//! A process is named by its job and its rank there. Here it has a [`ForeignNumber`], and another process may number it
//! differently. So values that both must compute alike, contexts and orders, are made from [`Identity`].
//!
//! Communicators hold members as `VirtualRank` and links hold peers as `ProcessIndex`, whichever job they are of: in
//! both, processes of other jobs come after those of the own job. Only this module knows that, and converts one into
//! the other.

use redrt_types::{ProcessIndex, ReplicaId, ReplicaIndex, VirtualRank, World};
use redrt_wire::secret::Secret;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, PoisonError, RwLock, RwLockReadGuard};

/// Bound on the number of known processes of other jobs.
pub const COUNT_MAX: u32 = 1 << 20;

/// A process of another job, as this process knows it. Numbered from 0, in the order in which they become known.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ForeignNumber(u32);

impl ForeignNumber {
    /// The rank by which communicators and groups hold it.
    #[must_use]
    pub fn rank(self) -> VirtualRank {
        VirtualRank(known().own_count + self.0)
    }

    /// The index by which links hold it.
    #[must_use]
    pub fn process(self) -> ProcessIndex {
        ProcessIndex(known().own_count + self.0)
    }

    /// The process of another job that a communicator holds under this rank; `None` for a rank of the own job.
    #[must_use]
    pub fn of_rank(rank: VirtualRank) -> Option<Self> {
        rank.0.checked_sub(known().own_count).map(Self)
    }

    /// The process of another job that links hold under this index; `None` for a process of the own job.
    #[must_use]
    pub fn of_process(process: ProcessIndex) -> Option<Self> {
        process.0.checked_sub(known().own_count).map(Self)
    }
}

/// The process that plays a rank in a job without replicas, where each rank is one process.
#[inline]
pub(crate) fn sole_process(rank: VirtualRank) -> ProcessIndex {
    ProcessIndex(rank.0)
}

/// The rank that a process plays in a job without replicas.
#[inline]
pub(crate) fn sole_rank(process: ProcessIndex) -> VirtualRank {
    VirtualRank(process.0)
}

/// The process of replica 0 of `rank`; at r = 1 the rank's only process, which may be of another job.
pub fn process_of(world: &World, rank: VirtualRank) -> ProcessIndex {
    if world.is_replicated() { world.process(ReplicaId { rank, index: ReplicaIndex(0) }) } else { sole_process(rank) }
}

/// The rank that a process plays, in the form of communicators.
pub(crate) fn rank_of(world: &World, is_replicated: bool, process: ProcessIndex) -> VirtualRank {
    if is_replicated { world.replica(process).rank } else { sole_rank(process) }
}

/// A process among all jobs: its job, and its rank there.
pub type Identity = (u64, u32);

/// Identity and address of a process.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Contact {
    /// Identity of its job.
    pub job: u64,
    /// The first job of the tree that spawning made this job a part of. Jobs of one tree end together.
    pub tree: u64,
    /// Its rank in its job, which is not replicated.
    pub process: ProcessIndex,
    /// Address where it accepts links; `None` while it is known only by a link that it opened.
    pub address: Option<SocketAddr>,
    /// Secret of its job's links.
    pub secret: Secret,
}

struct ContactTable {
    /// Identity of the own job.
    job: u64,
    /// Number of processes of the own job; other jobs' are numbered after them.
    own_count: u32,
    contacts: Vec<Arc<Contact>>,
    numbers: FxHashMap<Identity, ForeignNumber>,
}

process_local! {
    static KNOWN: LazyLock<RwLock<ContactTable>> = LazyLock::new(|| RwLock::new(ContactTable {
        job: 0,
        // Nobody counts as foreign until the number is known; in a replicated job, never.
        own_count: u32::MAX,
        contacts: Vec::new(),
        numbers: FxHashMap::default(),
    }));
    static ARE_MET: AtomicBool = AtomicBool::new(false);
}

fn known() -> RwLockReadGuard<'static, ContactTable> {
    KNOWN.read().unwrap_or_else(PoisonError::into_inner)
}

/// Sets the own job. `process_count` is given if the job is not replicated: only then can processes of other jobs be
/// known.
pub fn begin(job: u64, process_count: Option<u32>) {
    let mut known = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
    (known.job, known.own_count) = (job, process_count.unwrap_or(u32::MAX));
}

/// Returns true if this process may wait for something that nobody in its own job does.
pub fn are_met() -> bool {
    ARE_MET.load(Ordering::Relaxed)
}

/// Marks this process as connected to other jobs, for good.
pub fn meet() {
    ARE_MET.store(true, Ordering::Relaxed);
}

/// All known processes of other jobs.
pub fn all() -> impl Iterator<Item = ForeignNumber> {
    (0..known().contacts.len() as u32).map(ForeignNumber)
}

/// Returns true if the rank is of another job.
pub fn is_foreign(rank: VirtualRank) -> bool {
    ForeignNumber::of_rank(rank).is_some()
}

/// Identity and address of a process; `None` for an unknown number.
pub fn of(number: ForeignNumber) -> Option<Arc<Contact>> {
    known().contacts.get(number.0 as usize).cloned()
}

/// The process behind a rank of a communicator, in a form that is the same in all processes.
pub fn identity(rank: VirtualRank) -> Identity {
    match ForeignNumber::of_rank(rank).and_then(of) {
        Some(contact) => (contact.job, contact.process.0),
        None => (known().job, rank.0),
    }
}

/// Takes in the identity of a process of another job that opened a link. `None` when too many are known.
pub fn record(job: u64, process: ProcessIndex) -> Option<ForeignNumber> {
    let unknown = Contact { job, tree: job, process, address: None, secret: Secret::new([0; 32]) };
    enter(unknown)
}

/// Enters a process, or its new address. Returns its number, which it keeps; `None` when too many are known.
pub fn enter(contact: Contact) -> Option<ForeignNumber> {
    let mut known = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
    let identity = (contact.job, contact.process.0);
    if let Some(number) = known.numbers.get(&identity).copied() {
        let place = &mut known.contacts[number.0 as usize];
        if contact.address.is_some() {
            *place = Arc::new(contact);
        }
        return Some(number);
    }
    let number = ForeignNumber(known.contacts.len() as u32);
    if number.0 >= COUNT_MAX {
        return None;
    }
    known.contacts.push(Arc::new(contact));
    known.numbers.insert(identity, number);
    Some(number)
}
