//! Why a pool does not do what it was asked for.

use serde::{Deserialize, Serialize};
use spare_pool::JobId;

/// The reason, in words that follow on what was refused. The first variant stays the first one, as it was: the other
/// end may be of another version.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// Both ends must be of one version.
    #[error("it is of version {pool}, you are of version {asker}")]
    Version {
        /// The pool's.
        pool: String,
        /// That of who asks.
        asker: String,
    },
    /// It said something else first.
    #[error("its first message was not Hello")]
    NoHello,
    /// It said Hello, or asked, on a connection that has a job.
    #[error("this connection is a job's already")]
    HasJob,
    /// It said Hello again while its proof was looked at.
    #[error("it has said whose job it is, and is not known yet")]
    ProofPending,
    /// Its proof proves nothing.
    #[error("MUNGE does not say whose job it is: {0}")]
    Unproven(String),
    /// Somebody else's job has this number.
    #[error("job {0} is another user's")]
    OtherUser(JobId),
    /// They are for another job, or too many.
    #[error("its requests make no sense")]
    Requests,
    /// The key is not the administrator's.
    #[error(
        "this key may lease and look; the pool is changed with the administrator's (--pool-secret FILE.admin, beside \
         the pool's state)"
    )]
    NotAdministrator,
    /// A host was named that the pool does not have.
    #[error("host {0} is not in the pool")]
    NoHost(String),
    /// A host was to be added that cannot be one.
    #[error(transparent)]
    Unsound(#[from] Unsound),
    /// A host was to be removed that a job has.
    #[error("host {host} is leased to job {job}: drain it first, or use --force")]
    Leased {
        /// The host.
        host: String,
        /// The job.
        job: JobId,
    },
}

/// Why this cannot be a host of a pool.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
pub enum Unsound {
    /// Its name becomes a word of a command.
    #[error("'{0}' is not a host")]
    Name(String),
    /// So does that of what starts daemons there.
    #[error("{0:?} is no name of a launcher")]
    Launcher(String),
    /// Nothing can be put there.
    #[error("host {0} has no places")]
    NoPlaces(String),
}
