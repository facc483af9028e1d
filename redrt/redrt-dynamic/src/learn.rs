//! Contacts of processes: entry of those of other jobs, and this process's own.

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

/// The rank that a process of this job plays.
fn own_rank(process: ProcessIndex) -> Option<VirtualRank> {
    let world = &job()?.welcome.world;
    (process.0 < world.process_count()).then(|| world.replica(process).rank)
}

/// Ranks by which communicators hold these processes. Unknown ones are entered; some may be of this job.
///
/// # Errors
/// `MPI_ERR_OTHER` when one cannot be entered.
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

/// Contact by which processes of other jobs reach this one. It accepts their links from now on.
///
/// # Errors
/// `MPI_ERR_OTHER` when no socket can be had.
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
