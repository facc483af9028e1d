//! Wishes of users for a running job, by `redctl`.

use super::Shell;
use super::joining::SpareError;
use super::status;
use control_network::hub::LinkId;
use coordinator::Wish;
use job_root::{Asker, Input};
use nix::sys::signal::Signal;
use redrt_types::ReplicaId;
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
enum Refused {
    #[error("this job has no host {0}: redctl status shows them, redctl spare add {0} adds it")]
    NoHost(String),
    #[error("ranks {first}-{last}: the job has ranks 0 to {highest}")]
    NoSuchRanks { first: u32, last: u32, highest: u32 },
    #[error(transparent)]
    Spare(SpareError),
}

impl Shell<'_> {
    /// Answers `redctl` with the status, an error, or an empty text for a wish that is done. `None`: the answer follows
    /// later.
    pub(super) fn answer(&mut self, link: LinkId, question: Question) -> Option<String> {
        let outcome: Result<bool, Refused> = match question {
            Question::Status => {
                return Some(
                    status::status(&self.run, self.reach.seat.as_ref(), &self.council.hosts, &self.teller.clones)
                        .to_string(),
                );
            }
            Question::Kill(replica) => {
                let asker = self.asker(link);
                self.handle(Input::Kill { asker, replica });
                Ok(false)
            }
            Question::Stop => {
                self.handle(Input::Job(coordinator::Input::Interrupted(Signal::SIGINT as i32)));
                Ok(true)
            }
            Question::Checkpoint { stop } => {
                let asker = self.asker(link);
                self.handle(Input::Line { asker, ends: stop });
                Ok(false)
            }
            Question::Migrate { replica, to } => self.migrate(link, replica, to.as_deref()),
            Question::Drain(host) => self.drain(link, &host),
            Question::Degree { degree, ranks } => self.change_degree(link, degree, &ranks),
            Question::AddSpare { host, place_count } => {
                self.add_spare(link, &host, place_count).map_err(Refused::Spare)
            }
        };
        match outcome {
            Ok(true) => Some(String::new()),
            Ok(false) => None,
            Err(error) => Some(error.to_string()),
        }
    }

    /// Registers a connection that the root will answer.
    fn asker(&mut self, link: LinkId) -> Asker {
        let asker = Asker(self.reach.askers.count);
        self.reach.askers.count += 1;
        self.reach.askers.links.insert(asker, link);
        asker
    }

    /// Passes the root's answer on.
    pub(super) fn tell_answer(&mut self, asker: Asker, outcome: Result<(), job_root::Refused>) {
        let Some(link) = self.reach.askers.links.remove(&asker) else { return };
        let answer = match outcome {
            Ok(()) => String::new(),
            Err(job_root::Refused::NotTaken { generation, why }) => {
                let why = job_report::line_failure(&why, &|replica| self.run.host_name(replica));
                format!("checkpoint {generation} was not taken: {why}")
            }
            Err(error) => error.to_string(),
        };
        self.run.fleet.answer(link, answer);
    }

    fn known_host(&self, name: &str) -> Result<u32, Refused> {
        self.run.find_host(name).ok_or_else(|| Refused::NoHost(name.to_owned()))
    }

    fn migrate(&mut self, link: LinkId, replica: ReplicaId, to: Option<&str>) -> Result<bool, Refused> {
        let host = to.map(|name| self.known_host(name)).transpose()?;
        let asker = self.asker(link);
        self.handle(Input::Wish { asker, wish: Wish::Migrate { replica, to: host } });
        Ok(false)
    }

    fn drain(&mut self, link: LinkId, name: &str) -> Result<bool, Refused> {
        let host = self.known_host(name)?;
        let asker = self.asker(link);
        self.handle(Input::Wish { asker, wish: Wish::Drain { host } });
        Ok(false)
    }

    fn change_degree(&mut self, link: LinkId, degree: u16, ranges: &[(u32, u32)]) -> Result<bool, Refused> {
        let ranks = self.run.ranks(ranges).map_err(|(first, last)| {
            let highest = self.run.job.world.rank_count() - 1;
            Refused::NoSuchRanks { first, last, highest }
        })?;
        let asker = self.asker(link);
        self.handle(Input::Wish { asker, wish: Wish::Degree { degree, ranks } });
        Ok(false)
    }
}
