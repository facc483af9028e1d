//! Finds out whose job it is, where users are told apart by MUNGE: on a thread of its own, as MUNGE's daemon may not
//! answer.

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

/// A job that has said whose it is, or need not.
#[derive(Debug)]
pub struct Known {
    /// The connection.
    pub link: LinkId,
    /// The job.
    pub job: JobId,
    /// What it believes to have.
    pub leases: Vec<LeaseId>,
    /// Its user.
    pub user: String,
    /// For its next connections.
    pub pass: Pass,
}

/// What is to be done with a job that presents itself.
#[derive(Debug)]
pub enum Verdict {
    /// It is asked for a proof.
    Prove,
    /// Its proof is looked at; [`Users::found`] tells more.
    Wait,
    /// It is this user's.
    Known(Known),
    /// It gets nothing.
    Refused(Refusal),
}

/// A connection, its job, and the words that MUNGE has sealed.
type Claim = (LinkId, JobId, String);

/// See the module.
pub struct Users {
    authority: Authority,
    munge: Worker<Claim, (LinkId, Result<String>)>,
    bell: Bell,
    /// Jobs whose proofs are looked at: one for each connection.
    proving: BTreeMap<LinkId, (JobId, Vec<LeaseId>)>,
}

impl Users {
    /// Users are who these commands say.
    ///
    /// # Errors
    /// When the system gives no thread or descriptor.
    pub fn by(munge: Munge, authority: Authority) -> Result<Self> {
        let bell = background_worker::bell()?;
        let worker = Worker::start("munge", bell.clone(), 0, move |inbox: &Inbox<Claim, _>| {
            while let Some((link, job, sealed)) = inbox.next() {
                inbox.tell((link, user_of(&munge, job, &sealed)));
            }
        })?;
        Ok(Self { authority, munge: worker, bell, proving: BTreeMap::new() })
    }

    /// Readable when [`Users::found`] has something to tell.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// A job presents itself.
    pub fn judge(&mut self, link: LinkId, job: JobId, leases: Vec<LeaseId>, proof: Option<Proof>) -> Verdict {
        if self.proving.contains_key(&link) {
            return Verdict::Refused(Refusal::ProofPending);
        }
        match proof {
            Some(Proof::Pass(pass)) => match self.authority.user(&pass, job) {
                Some(user) => Verdict::Known(Known { link, job, leases, user, pass }),
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

    /// A connection is gone.
    pub fn forget(&mut self, link: LinkId) {
        self.proving.remove(&link);
    }

    /// What was found since the last call; the connection and a reason for those that get nothing.
    pub fn found(&mut self) -> Vec<Result<Known, (LinkId, Refusal)>> {
        let _ = self.bell.read();
        let mut found = Vec::new();
        while let Some((link, user)) = self.munge.poll_event() {
            let Some((job, leases)) = self.proving.remove(&link) else { continue };
            found.push(match user {
                Ok(user) => {
                    let pass = self.authority.pass(user.clone(), job);
                    Ok(Known { link, job, leases, user, pass })
                }
                Err(error) => Err((link, Refusal::Unproven(format!("{error:#}")))),
            });
        }
        found
    }
}

/// Who has sealed the words of this job: the name, or the number of a user without one.
fn user_of(munge: &Munge, job: JobId, sealed: &str) -> Result<String> {
    let opened = munge.open(sealed).context("its credential cannot be opened")?;
    ensure!(opened.text == identity::words(job), "its credential is for something else");
    let user = User::from_uid(Uid::from_raw(opened.uid)).ok().flatten();
    Ok(user.map_or_else(|| opened.uid.to_string(), |user| user.name))
}
