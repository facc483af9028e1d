//! Contacts of processes: this process's own, and the registration of those of other jobs.

use redrt_abi::MPI_ERR_OTHER;
use redrt_abi::error::Result;
use redrt_abi::fail;
use redrt_engine as engine;
use redrt_engine::contact::{self, Contact};
use redrt_runtime::links::listening;
use redrt_runtime::{self as runtime, Job};
use redrt_types::{ProcessIndex, VirtualRank};

fn job() -> Option<&'static Job> {
    runtime::job().filter(|job| !job.welcome.world.is_replicated())
}

/// The rank of a process of this job.
fn own_rank(process: ProcessIndex) -> Option<VirtualRank> {
    let world = &job()?.welcome.world;
    (process.0 < world.process_count()).then(|| world.replica(process).rank)
}

/// Ranks that stand for these processes in communicators. Unknown processes are registered; some may be of this job.
///
/// # Errors
/// `MPI_ERR_OTHER` when a process cannot be registered.
pub fn learn(contacts: Vec<Contact>) -> Result<Vec<VirtualRank>> {
    let own = job().map_or(0, |job| job.welcome.job);
    let mut ranks = Vec::with_capacity(contacts.len());
    for contact in contacts {
        if contact.job == own {
            let Some(rank) = own_rank(contact.process) else {
                fail!(
                    MPI_ERR_OTHER,
                    "the other side speaks of rank {}, which this job does not have",
                    contact.process.0
                );
            };
            ranks.push(rank);
            continue;
        }
        match contact::enter(contact) {
            Some(number) => ranks.push(number.rank()),
            None => fail!(MPI_ERR_OTHER, "more than {} processes of other jobs", contact::COUNT_MAX),
        }
    }
    engine::cell().lock().links.meet_known();
    Ok(ranks)
}

/// Contact by which processes of other jobs reach this process, which accepts their links from now on.
///
/// # Errors
/// `MPI_ERR_OTHER` when no socket can be opened.
pub fn own_contact() -> Result<Contact> {
    let Some(job) = job() else { fail!(MPI_ERR_OTHER, "replicas have no contact") };
    let address = match listening::address() {
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
