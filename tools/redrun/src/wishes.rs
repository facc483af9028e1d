//! Wishes of users for a running job, by `redctl`.

use super::joining::SpareError;
use super::run::Run;
use control_network::hub::LinkId;
use coordinator::Wish;
use job_root::{Asker, Input};
use redrt_wire::tree::Question;
use std::collections::BTreeMap;

/// Connections that the root will answer.
#[derive(Default)]
pub(super) struct Askers {
    links: BTreeMap<Asker, LinkId>,
    /// Number of the next.
    pub count: u64,
}

/// Reason to refuse a wish before the root gets it.
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
    /// The input for the root by which a question is answered later.
    pub fn input(&mut self, run: &Run<'_>, link: LinkId, question: Question) -> Result<Input, Refused> {
        let known = |name: &str| run.find_host(name).ok_or_else(|| Refused::NoHost(name.to_owned()));
        let wish = match question {
            Question::Kill(replica) => return Ok(Input::Kill { asker: self.add(link), replica }),
            Question::Checkpoint { stop } => return Ok(Input::Line { asker: self.add(link), ends: stop }),
            Question::Migrate { replica, to } => Wish::Migrate { replica, to: to.as_deref().map(known).transpose()? },
            Question::Drain(host) => Wish::Drain { host: known(&host)? },
            Question::Degree { degree, ranks } => {
                let ranks = run.ranks(&ranks).map_err(|(first, last)| {
                    let highest = run.job.world.rank_count() - 1;
                    Refused::NoSuchRanks { first, last, highest }
                })?;
                Wish::Degree { degree, ranks }
            }
            Question::Status | Question::Stop | Question::AddSpare { .. } => unreachable!("it is answered at once"),
        };
        Ok(Input::Wish { asker: self.add(link), wish })
    }

    /// Registers a connection that the root will answer.
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
