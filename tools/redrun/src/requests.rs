//! Requests of users for a running job, by `redctl`.

use super::joining::SpareError;
use super::run::Run;
use control_network::hub::LinkId;
use job_coordinator::{Asker, Input};
use redrt_wire::tree::Question;
use replication_manager::ChangeRequest;
use std::collections::BTreeMap;

/// Connections that the coordinator will answer.
#[derive(Default)]
pub(super) struct Askers {
    links: BTreeMap<Asker, LinkId>,
    /// Number of the next.
    pub count: u64,
}

/// Reason to refuse a request before the coordinator gets it.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refused {
    #[error("this job has no host {0}: redctl status shows them, redctl spare add {0} adds it")]
    NoHost(String),
    #[error("ranks {first}-{last}: the job has ranks 0 to {highest}")]
    NoSuchRanks { first: u32, last: u32, highest: u32 },
    #[error(transparent)]
    Spare(SpareError),
}

impl Askers {
    /// The input for the coordinator by which a question is answered later.
    pub fn input(&mut self, run: &Run<'_>, link: LinkId, question: Question) -> Result<Input, Refused> {
        let known = |name: &str| run.find_host(name).ok_or_else(|| Refused::NoHost(name.to_owned()));
        let request = match question {
            Question::Kill(replica) => return Ok(Input::Kill { asker: self.add(link), replica }),
            Question::Checkpoint { stop } => return Ok(Input::Checkpoint { asker: self.add(link), ends: stop }),
            Question::Migrate { replica, to } => {
                ChangeRequest::Migrate { replica, to: to.as_deref().map(known).transpose()? }
            }
            Question::Drain(host) => ChangeRequest::Drain { host: known(&host)? },
            Question::Degree { degree, ranks } => {
                let ranks = run.ranks(&ranks).map_err(|(first, last)| {
                    let highest = run.job.world.rank_count() - 1;
                    Refused::NoSuchRanks { first, last, highest }
                })?;
                ChangeRequest::Degree { degree, ranks }
            }
            Question::Status | Question::Stop | Question::AddSpare { .. } => unreachable!("it is answered at once"),
        };
        Ok(Input::ChangeRequest { asker: self.add(link), request })
    }

    /// Registers a connection that the coordinator will answer.
    fn add(&mut self, link: LinkId) -> Asker {
        let asker = Asker(self.count);
        self.count += 1;
        self.links.insert(asker, link);
        asker
    }

    /// The connection that waits for this answer, which is given now.
    pub fn remove(&mut self, asker: Asker) -> Option<LinkId> {
        self.links.remove(&asker)
    }
}
