//! Whose job it is, at a pool that tells users apart by MUNGE.
//!
//! The key of jobs opens the pool, and MUNGE says whose job it is: once, when the job connects first. The pool gives it
//! a [`Pass`] for all later connections, because nobody may wait for MUNGE's daemon while a job runs. The pool keeps no
//! list of passes: it knows one that it has made by its seal.

use redrt_wire::secret::Secret;
use serde::{Deserialize, Serialize};
use spare_pool::JobId;

/// What a job says of its user.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Proof {
    /// [`words`] of this job, sealed by MUNGE.
    Munge(String),
    /// What the pool has given it.
    Pass(Pass),
}

/// Says whose job it is. Sealed by the pool, for one job.
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

/// What a job seals by MUNGE. It names the job, so that a pool cannot show it to another as that of a job of its own.
#[must_use]
pub fn words(job: JobId) -> String {
    format!("redrt: a place in a pool of spares for job {job}")
}

/// Makes passes and knows them again. Its key is made from one that only the pool has.
#[derive(Debug)]
pub struct Authority(Secret);

impl Authority {
    /// Makes passes that are sealed with a key of this one.
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

    /// Whose job this is, if the pass is sound and the job's.
    #[must_use]
    pub fn user(&self, pass: &Pass, job: JobId) -> Option<String> {
        // A comparison of hashes takes the same time wherever they differ.
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
