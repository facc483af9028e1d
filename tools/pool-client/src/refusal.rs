//! Reasons why a pool refuses.

use serde::{Deserialize, Serialize};
use spare_pool::JobId;

/// The reason, as words that follow the refused request. The first variant must stay first and unchanged: the other end
/// may be of another version.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// The two ends are of different versions.
    #[error("it is of version {pool}, you are of version {asker}")]
    Version {
        /// Version of the pool.
        pool: String,
        /// Version of the asking end.
        asker: String,
    },
    /// The first message was not `Hello`.
    #[error("its first message was not Hello")]
    NoHello,
    /// `Hello` or a question came on a connection that has a job.
    #[error("this connection is a job's already")]
    HasJob,
    /// `Hello` was repeated while its proof was being checked.
    #[error("it has said whose job it is, and is not known yet")]
    ProofPending,
    /// The proof is not valid.
    #[error("MUNGE does not say whose job it is: {0}")]
    Unproven(String),
    /// Another user's job has this number.
    #[error("job {0} is another user's")]
    OtherUser(JobId),
    /// The requests are for another job, or too many.
    #[error("its requests make no sense")]
    Requests,
    /// The key is not the administrator's.
    #[error(
        "this key may lease and look; the pool is changed with the administrator's (--pool-secret FILE.admin, beside \
         the pool's state)"
    )]
    NotAdministrator,
    /// The pool has no host of this name.
    #[error("host {0} is not in the pool")]
    NoHost(String),
    /// A host cannot be added.
    #[error(transparent)]
    Unsound(#[from] Unsound),
    /// A host cannot be removed: a job leases it.
    #[error("host {host} is leased to job {job}: drain it first, or use --force")]
    Leased {
        /// Name of the host.
        host: String,
        /// The job with the lease.
        job: JobId,
    },
}

/// Reason why a host cannot be in a pool.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
pub enum Unsound {
    /// The host's name is not valid: it becomes a word of a command.
    #[error("'{0}' is not a host")]
    Name(String),
    /// The name of its launcher is not valid.
    #[error("{0:?} is no name of a launcher")]
    Launcher(String),
    /// The host has no places.
    #[error("host {0} has no places")]
    NoPlaces(String),
}
