//! What users want of a running job, by `redctl`.

use super::Shell;
use super::spares::SpareError;
use control_network::hub::LinkId;
use coordinator::{Input, NoLines, Wish, WishError};
use nix::sys::signal::Signal;
use redrt_types::{ReplicaId, VirtualRank};
use redrt_wire::daemon::ToDaemon;
use redrt_wire::tree::Question;
use serde_json::json;

/// Why a wish is refused.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("there is no live replica {0}")]
    NotLive(ReplicaId),
    #[error("this job has no host {0}: redctl status shows them, redctl spare add {0} adds it")]
    NoHost(String),
    #[error("ranks {first}-{last}: the job has ranks 0 to {highest}")]
    NoSuchRanks { first: u32, last: u32, highest: u32 },
    #[error(transparent)]
    Wish(#[from] WishError),
    #[error(transparent)]
    Line(#[from] NoLines),
    #[error(transparent)]
    Spare(#[from] SpareError),
}

impl Shell<'_> {
    /// What `redctl` is answered: the status, or what is wrong with its wish; nothing if it was done. None when the
    /// answer comes later.
    pub(super) fn answer(&mut self, link: LinkId, question: Question) -> Option<String> {
        let outcome: Result<(), Refused> = match question {
            Question::Status => return Some(self.status().to_string()),
            Question::Kill(replica) => self.kill(replica),
            Question::Stop => {
                self.handle(Input::Interrupted(Signal::SIGINT as i32));
                Ok(())
            }
            Question::Checkpoint { stop } => {
                let now = self.now();
                match self.coordinator.want_line(now, stop) {
                    Ok(()) => {
                        self.line_waiters.push(link);
                        self.carry_out();
                        return None;
                    }
                    Err(error) => Err(error.into()),
                }
            }
            Question::Migrate { replica, to } => self.migrate(replica, to.as_deref()),
            Question::Drain(host) => self.drain(&host),
            Question::Degree { degree, ranks } => self.change_degree(degree, &ranks),
            Question::AddSpare { host, place_count } => match self.add_spare(link, &host, place_count) {
                Ok(true) => Ok(()),
                Ok(false) => return None,
                Err(error) => Err(error.into()),
            },
        };
        Some(outcome.err().map_or_else(String::new, |error| error.to_string()))
    }

    fn kill(&mut self, replica: ReplicaId) -> Result<(), Refused> {
        if !self.coordinator.view().is_live(replica) {
            return Err(Refused::NotLive(replica));
        }
        self.record("killed-by-user", &json!({ "replica": replica.to_string() }));
        if let Some(host) = self.host(replica) {
            self.fleet.send(host, &ToDaemon::Kill(replica));
        }
        Ok(())
    }

    fn known_host(&self, name: &str) -> Result<u32, Refused> {
        self.find_host(name).ok_or_else(|| Refused::NoHost(name.to_owned()))
    }

    /// The number of a host, by the name it has in the job, or `localhost`.
    pub(super) fn find_host(&self, name: &str) -> Option<u32> {
        let is_here = |host: &u32| self.fleet.plan().hosts[*host as usize].local && !self.fleet.is_dead(*host);
        let here = || (0..self.fleet.plan().hosts.len() as u32).find(is_here);
        self.fleet.find(name).or_else(|| (name == "localhost").then(here).flatten())
    }

    fn wish(&mut self, wish: Wish, room: Option<u32>) -> Result<(), Refused> {
        let now = self.now();
        let outcome = self.coordinator.wish(now, wish, room);
        self.carry_out();
        self.hear_of_places();
        Ok(outcome?)
    }

    fn migrate(&mut self, replica: ReplicaId, to: Option<&str>) -> Result<(), Refused> {
        let host = to.map(|name| self.known_host(name)).transpose()?;
        let room = match host {
            Some(host) => Some(self.spares.room_on(self.fleet.name(host))),
            None => self.spares.room(None),
        };
        self.wish(Wish::Migrate { replica, to: host }, room)
    }

    fn drain(&mut self, name: &str) -> Result<(), Refused> {
        let host = self.known_host(name)?;
        let room = self.spares.room(Some(self.fleet.name(host)));
        self.wish(Wish::Drain { host }, room)
    }

    /// A job that was resumed with more replicas than were saved runs.
    pub(super) fn grow(&mut self) {
        let Some(degree) = self.grows_to.take() else { return };
        if let Err(error) = self.change_degree(degree, &[]) {
            self.console.warning(&format!("-r {degree}: {error}; the job goes on with the replicas that were saved"));
        }
    }

    fn change_degree(&mut self, degree: u16, ranges: &[(u32, u32)]) -> Result<(), Refused> {
        let rank_count = self.job.world.rank_count();
        if let Some((first, last)) = ranges.iter().find(|(first, last)| first > last || *last >= rank_count) {
            return Err(Refused::NoSuchRanks { first: *first, last: *last, highest: rank_count - 1 });
        }
        let named = |rank: &u32| ranges.is_empty() || ranges.iter().any(|(first, last)| (first..=last).contains(&rank));
        let ranks = (0..rank_count).filter(named).map(VirtualRank).collect();
        let room = self.spares.room(None);
        self.wish(Wish::Degree { degree, ranks }, room)
    }
}
