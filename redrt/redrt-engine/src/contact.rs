//! Who the processes of other jobs are, and how they are reached.
//!
//! A process is named by its job and its rank there. Here it has a [`ForeignNumber`], and another process may number it
//! otherwise: what both must compute alike, contexts and orders, is made from [`Identity`].
//!
//! Communicators hold members as `VirtualRank` and links hold peers as `ProcessIndex`, whichever job they are of: those
//! of other jobs are behind the own job's in both. Nothing outside of this module knows that, or makes one out of
//! another.

use redrt_types::{ProcessIndex, VirtualRank};
use redrt_wire::secret::Secret;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, PoisonError, RwLock, RwLockReadGuard};

/// More processes of other jobs than any process could know.
pub const COUNT_MAX: u32 = 1 << 20;

/// A process of another job, as this process knows it. They are numbered from 0, in the order in which they become
/// known.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ForeignNumber(u32);

impl ForeignNumber {
    /// As communicators and groups hold it.
    #[must_use]
    pub fn rank(self) -> VirtualRank {
        VirtualRank(known().own_count + self.0)
    }

    /// As links hold it.
    #[must_use]
    pub fn process(self) -> ProcessIndex {
        ProcessIndex(known().own_count + self.0)
    }

    /// The process of another job that a communicator holds under this rank.
    #[must_use]
    pub fn of_rank(rank: VirtualRank) -> Option<Self> {
        rank.0.checked_sub(known().own_count).map(Self)
    }

    /// The process of another job that links hold under this index.
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

/// A process among all jobs: its job, and its rank there.
pub type Identity = (u64, u32);

/// A process, and how to reach it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Contact {
    /// Identity of its job.
    pub job: u64,
    /// The first job of the tree that spawning made its job a part of. Jobs of one tree end together.
    pub tree: u64,
    /// Its rank in its job, which is not replicated.
    pub process: ProcessIndex,
    /// Where it accepts links; absent while it is known only because it has opened one.
    pub address: Option<SocketAddr>,
    /// The secret of its job's links.
    pub secret: Secret,
}

struct Known {
    /// Identity of the own job.
    job: u64,
    /// How many processes that has: other jobs' are numbered behind them.
    own_count: u32,
    contacts: Vec<Arc<Contact>>,
    numbers: FxHashMap<Identity, ForeignNumber>,
}

process_local! {
    static KNOWN: LazyLock<RwLock<Known>> = LazyLock::new(|| RwLock::new(Known {
        job: 0,
        // Until it is known nobody is foreign, nor in a replicated job.
        own_count: u32::MAX,
        contacts: Vec::new(),
        numbers: FxHashMap::default(),
    }));
    static ARE_MET: AtomicBool = AtomicBool::new(false);
}

fn known() -> RwLockReadGuard<'static, Known> {
    KNOWN.read().unwrap_or_else(PoisonError::into_inner)
}

/// This process belongs to `job`. `process_count` is given if the job is not replicated: then other jobs' processes
/// can be known.
pub fn begin(job: u64, process_count: Option<u32>) {
    let mut known = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
    (known.job, known.own_count) = (job, process_count.unwrap_or(u32::MAX));
}

/// Whether this process may wait for something that nobody in its job does.
pub fn are_met() -> bool {
    ARE_MET.load(Ordering::Relaxed)
}

/// This process has to do with other jobs from now on.
pub fn meet() {
    ARE_MET.store(true, Ordering::Relaxed);
}

/// All processes of other jobs that are known.
pub fn all() -> impl Iterator<Item = ForeignNumber> {
    (0..known().contacts.len() as u32).map(ForeignNumber)
}

/// Whether it is a process of another job.
pub fn is_foreign(rank: VirtualRank) -> bool {
    ForeignNumber::of_rank(rank).is_some()
}

/// How the process is reached.
pub fn of(number: ForeignNumber) -> Option<Arc<Contact>> {
    known().contacts.get(number.0 as usize).cloned()
}

/// Who has this rank in communicators, the same for all that know it.
pub fn identity(rank: VirtualRank) -> Identity {
    match ForeignNumber::of_rank(rank).and_then(of) {
        Some(contact) => (contact.job, contact.process.0),
        None => (known().job, rank.0),
    }
}

/// A process of another job has said who it is. `None` when there are too many.
pub fn note(job: u64, process: ProcessIndex) -> Option<ForeignNumber> {
    let unknown = Contact { job, tree: job, process, address: None, secret: Secret::new([0; 32]) };
    enter(unknown)
}

/// Its number, by which it is known from now on. `None` when there are too many.
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
