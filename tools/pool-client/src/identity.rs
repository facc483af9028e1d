//! Proof of a job's user, at a pool that distinguishes users by MUNGE.
//!
//! The jobs' key opens the pool, and MUNGE proves the user once, at the job's first connection. The pool then issues a
//! [`Pass`] for later connections, because a running job must not wait for MUNGE's daemon. The pool keeps no list of
//! passes: it recognizes its own by their seal.

use redrt_wire::secret::Secret;
use serde::{Deserialize, Serialize};
use spare_pool::JobId;

/// A job's proof of its user.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Proof {
    /// [`words`] of this job, sealed by MUNGE.
    Munge(String),
    /// Pass that the pool has issued.
    Pass(Pass),
}

/// Statement of a job's user, sealed by the pool for this job.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pass {
    user: String,
    seal: [u8; 32],
}

impl std::fmt::Debug for Pass {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pass({}, hidden)", self.user)
    }
}

/// Text that a job seals by MUNGE. It names the job, so that a pool cannot present it to another pool for a job of its
/// own.
#[must_use]
pub fn words(job: JobId) -> String {
    format!("redrt: a place in a pool of spares for job {job}")
}

/// Issuer of passes. Its key is derived from one that only the pool has.
#[derive(Debug)]
pub struct Authority(Secret);

impl Authority {
    /// An issuer whose key is derived from this one.
    #[must_use]
    pub fn new(key: &Secret) -> Self {
        Self(key.derive("redrt passes of a pool's users"))
    }

    /// A pass for a job of this user.
    #[must_use]
    pub fn pass(&self, user: String, job: JobId) -> Pass {
        let seal = *self.seal(&user, job).as_bytes();
        Pass { user, seal }
    }

    /// User of a pass, if its seal is right and it is for this job.
    #[must_use]
    pub fn user(&self, pass: &Pass, job: JobId) -> Option<String> {
        // The comparison of hashes takes constant time.
        (self.seal(&pass.user, job) == pass.seal).then(|| pass.user.clone())
    }

    fn seal(&self, user: &str, job: JobId) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(self.0.key());
        hasher.update(&job.0.to_le_bytes()).update(user.as_bytes());
        hasher.finalize()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_is_good_for_one_job_of_one_user_at_one_pool() {
        let here = Authority::new(&Secret::new([1; 32]));
        let pass = here.pass("adam".into(), JobId(7));
        assert_eq!(here.user(&pass, JobId(7)).as_deref(), Some("adam"));
        assert_eq!(here.user(&pass, JobId(8)), None);
        assert_eq!(here.user(&Pass { user: "eve".into(), ..pass.clone() }, JobId(7)), None);
        assert_eq!(Authority::new(&Secret::new([2; 32])).user(&pass, JobId(7)), None);
        assert!(!format!("{pass:?}").contains(&pass.seal[0].to_string()));
    }
}
