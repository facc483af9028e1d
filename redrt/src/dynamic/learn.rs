//! Taking in processes of other jobs, and saying how this one is reached by them.

use crate::abi::MPI_ERR_OTHER;
use crate::error::Result;
use crate::fail;
use crate::links::listening;
use crate::runtime::{self, Job};
use redrt_engine as engine;
use redrt_engine::contact::{self, Contact};
use redrt_types::VirtualRank;

fn job() -> Option<&'static Job> {
    runtime::job().filter(|job| !job.welcome.world.is_replicated())
}

fn own_count() -> u32 {
    runtime::job().map_or(0, |job| job.welcome.world.process_count())
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
        match contact::enter(contact) {
            Some(process) => ranks.push(VirtualRank(process.0)),
            None => fail!(MPI_ERR_OTHER, "more than {} processes of other jobs", contact::COUNT_MAX),
        }
    }
    engine::cell().lock().links.meet_known();
    Ok(ranks)
}

/// How others reach this process. It accepts links of other jobs from now on, if it did not.
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
