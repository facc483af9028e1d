//! Who the processes of other jobs are, and how this process is reached by them.
//!
//! A process is named by its job and its rank there. Here it has a number of its own, behind the ranks of this job, so
//! that communicators and groups may hold both. Another process may number it otherwise: what both must compute alike,
//! contexts and orders, is made from [`Identity`].

use crate::fail;
use crate::runtime::{self, Job};
use redrt_types::{ProcessIndex, VirtualRank};
use redrt_wire::secret::Secret;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock, PoisonError, RwLock, RwLockReadGuard};

use crate::abi::MPI_ERR_OTHER;
use crate::error::Result;

/// More processes of other jobs than any process could know.
const COUNT_MAX: u32 = 1 << 20;

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

#[derive(Default)]
struct Known {
    contacts: Vec<Arc<Contact>>,
    numbers: FxHashMap<Identity, u32>,
}

process_local! {
    static KNOWN: LazyLock<RwLock<Known>> = LazyLock::new(RwLock::default);
}

fn known() -> RwLockReadGuard<'static, Known> {
    KNOWN.read().unwrap_or_else(PoisonError::into_inner)
}

fn job() -> Option<&'static Job> {
    runtime::job().filter(|job| !job.welcome.world.is_replicated())
}

fn own_count() -> u32 {
    runtime::job().map_or(0, |job| job.welcome.world.process_count())
}

/// How many processes of other jobs are known.
pub fn count() -> u32 {
    known().contacts.len() as u32
}

/// Whether it is a process of another job.
pub fn is_foreign(rank: VirtualRank) -> bool {
    runtime::job().is_some_and(|job| !job.welcome.world.is_replicated() && rank.0 >= job.welcome.world.rank_count())
}

/// The process of another job with this number.
pub fn of(process: ProcessIndex) -> Option<Arc<Contact>> {
    known().contacts.get(process.0.checked_sub(own_count())? as usize).cloned()
}

/// Who has this number, the same for all that know it.
pub fn identity(rank: VirtualRank) -> Identity {
    match of(ProcessIndex(rank.0)).filter(|_| is_foreign(rank)) {
        Some(contact) => (contact.job, contact.process.0),
        None => (runtime::job().map_or(0, |job| job.welcome.job), rank.0),
    }
}

/// The number of a process of another job that has said who it is. `None` when there are too many.
pub fn note(job: u64, process: ProcessIndex) -> Option<ProcessIndex> {
    let unknown = Contact { job, tree: job, process, address: None, secret: Secret::new([0; 32]) };
    enter(unknown)
}

fn enter(contact: Contact) -> Option<ProcessIndex> {
    let own_count = own_count();
    let mut known = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
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

/// The numbers of these processes, which are taken in if they were not known; some may be of this job.
///
/// # Errors
/// `MPI_ERR_OTHER` when one cannot be.
pub fn learn(contacts: Vec<Contact>) -> Result<Vec<VirtualRank>> {
    let own = job().map_or(0, |job| job.welcome.job);
    let mut ranks = Vec::with_capacity(contacts.len());
    for contact in contacts {
        if contact.job == own {
            if contact.process.0 >= own_count() {
                fail!(
                    MPI_ERR_OTHER,
                    "the other side speaks of rank {}, which this job does not have",
                    contact.process.0
                );
            }
            ranks.push(VirtualRank(contact.process.0));
            continue;
        }
        match enter(contact) {
            Some(process) => ranks.push(VirtualRank(process.0)),
            None => fail!(MPI_ERR_OTHER, "more than {COUNT_MAX} processes of other jobs"),
        }
    }
    crate::engine::cell().lock().links.meet_known();
    Ok(ranks)
}

/// How others reach this process. It accepts links of other jobs from now on, if it did not.
///
/// # Errors
/// `MPI_ERR_OTHER` when no socket can be had.
pub fn own() -> Result<Contact> {
    let Some(job) = job() else { fail!(MPI_ERR_OTHER, "replicas have no contact") };
    let address = match runtime::listen_for_links() {
        Ok(address) => address,
        Err(error) => fail!(MPI_ERR_OTHER, "links of other jobs cannot be accepted: {error}"),
    };
    Ok(Contact {
        job: job.welcome.job,
        tree: job.welcome.origin.tree,
        process: job.welcome.world.process(job.welcome.me),
        address: Some(address),
        secret: job.welcome.link_secret.clone(),
    })
}
