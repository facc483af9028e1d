//! Who the processes of other jobs are, and how they are reached.
//!
//! A process is named by its job and its rank there. Here it has a number of its own, behind the ranks of this job, so
//! that communicators and groups may hold both. Another process may number it otherwise: what both must compute alike,
//! contexts and orders, is made from [`Identity`].

use redrt_types::{ProcessIndex, VirtualRank};
use redrt_wire::secret::Secret;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, PoisonError, RwLock, RwLockReadGuard};

/// More processes of other jobs than any process could know.
pub const COUNT_MAX: u32 = 1 << 20;

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
    numbers: FxHashMap<Identity, u32>,
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

/// How many processes of other jobs are known.
pub fn count() -> u32 {
    known().contacts.len() as u32
}

/// Whether it is a process of another job.
pub fn is_foreign(rank: VirtualRank) -> bool {
    rank.0 >= known().own_count
}

/// The process of another job with this number.
pub fn of(process: ProcessIndex) -> Option<Arc<Contact>> {
    let known = known();
    known.contacts.get(process.0.checked_sub(known.own_count)? as usize).cloned()
}

/// Who has this number, the same for all that know it.
pub fn identity(rank: VirtualRank) -> Identity {
    match of(ProcessIndex(rank.0)) {
        Some(contact) => (contact.job, contact.process.0),
        None => (known().job, rank.0),
    }
}

/// The number of a process of another job that has said who it is. `None` when there are too many.
pub fn note(job: u64, process: ProcessIndex) -> Option<ProcessIndex> {
    let unknown = Contact { job, tree: job, process, address: None, secret: Secret::new([0; 32]) };
    enter(unknown)
}

/// Its number, by which it is known from now on. `None` when there are too many.
pub fn enter(contact: Contact) -> Option<ProcessIndex> {
    let mut known = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
    let own_count = known.own_count;
    let identity = (contact.job, contact.process.0);
    if let Some(number) = known.numbers.get(&identity).copied() {
        let place = &mut known.contacts[(number - own_count) as usize];
        if contact.address.is_some() {
            *place = Arc::new(contact);
        }
        return Some(ProcessIndex(number));
    }
    let count = known.contacts.len() as u32;
    if count >= COUNT_MAX {
        return None;
    }
    known.contacts.push(Arc::new(contact));
    known.numbers.insert(identity, own_count + count);
    Some(ProcessIndex(own_count + count))
}
