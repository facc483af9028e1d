//! Finds the user of a job by MUNGE. A thread of its own does so, as MUNGE's daemon may not answer.

use anyhow::{Context, Result, ensure};
use background_worker::{Bell, Inbox, Worker};
use control_network::hub::LinkId;
use control_network::munge::Munge;
use nix::unistd::{Uid, User};
use pool_client::identity::{self, Authority, Pass, Proof};
use pool_client::refusal::Refusal;
use spare_pool::{JobId, LeaseId};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};

/// A job whose user is known.
#[derive(Debug)]
pub struct IdentifiedJob {
    pub link: LinkId,
    pub job: JobId,
    /// The leases that the job believes to hold.
    pub leases: Vec<LeaseId>,
    pub user: String,
    /// Proof for the job's next connections.
    pub pass: Pass,
}

/// Decision about a job that introduces itself.
#[derive(Debug)]
pub enum Verdict {
    /// The job must send a proof.
    Prove,
    /// The proof is being checked; [`Users::found`] has the result.
    Wait,
    /// The job's user is known.
    Known(IdentifiedJob),
    /// The job is refused.
    Refused(Refusal),
}

/// A connection, its job, and the credential that MUNGE has sealed.
type Claim = (LinkId, JobId, String);

/// Finds users of jobs; see the module.
pub struct Users {
    authority: Authority,
    munge: Worker<Claim, (LinkId, Result<String>)>,
    bell: Bell,
    /// Jobs whose proof is being checked, at most one for each connection.
    proving: BTreeMap<LinkId, (JobId, Vec<LeaseId>)>,
}

impl Users {
    /// Checks credentials by these commands.
    ///
    /// # Errors
    /// When the system gives no thread or descriptor.
    pub fn by(munge: Munge, authority: Authority) -> Result<Self> {
        let bell = background_worker::bell()?;
        let worker = Worker::start("munge", bell.clone(), 0, move |inbox: &Inbox<Claim, _>| {
            while let Some((link, job, sealed)) = inbox.next() {
                inbox.report((link, user_of(&munge, job, &sealed)));
            }
        })?;
        Ok(Self { authority, munge: worker, bell, proving: BTreeMap::new() })
    }

    /// Readable when [`Users::found`] has results.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Decides about a job that introduces itself.
    pub fn judge(&mut self, link: LinkId, job: JobId, leases: Vec<LeaseId>, proof: Option<Proof>) -> Verdict {
        if self.proving.contains_key(&link) {
            return Verdict::Refused(Refusal::ProofPending);
        }
        match proof {
            Some(Proof::Pass(pass)) => match self.authority.user(&pass, job) {
                Some(user) => Verdict::Known(IdentifiedJob { link, job, leases, user, pass }),
                None => Verdict::Prove,
            },
            Some(Proof::Munge(sealed)) => {
                let byte_count = sealed.len();
                self.proving.insert(link, (job, leases));
                self.munge.give((link, job, sealed), byte_count);
                Verdict::Wait
            }
            None => Verdict::Prove,
        }
    }

    /// Forgets a closed connection.
    pub fn forget(&mut self, link: LinkId) {
        self.proving.remove(&link);
    }

    /// The results since the last call. A refused job comes as its connection and the reason.
    pub fn found(&mut self) -> Vec<Result<IdentifiedJob, (LinkId, Refusal)>> {
        let _ = self.bell.read();
        let mut found = Vec::new();
        while let Some((link, user)) = self.munge.poll_event() {
            let Some((job, leases)) = self.proving.remove(&link) else { continue };
            found.push(match user {
                Ok(user) => {
                    let pass = self.authority.pass(user.clone(), job);
                    Ok(IdentifiedJob { link, job, leases, user, pass })
                }
                Err(error) => Err((link, Refusal::Unproven(format!("{error:#}")))),
            });
        }
        found
    }
}

/// User who has sealed this job's words: the name, or the number of a user without one.
fn user_of(munge: &Munge, job: JobId, sealed: &str) -> Result<String> {
    let opened = munge.open(sealed).context("its credential cannot be opened")?;
    ensure!(opened.text == identity::words(job), "its credential is for something else");
    let user = User::from_uid(Uid::from_raw(opened.uid)).ok().flatten();
    Ok(user.map_or_else(|| opened.uid.to_string(), |user| user.name))
}
