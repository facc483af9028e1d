//! What a line is of: enough to start its job again without the command line that began it.

use crate::level::Level;
use redrt_types::{Admission, CutNumber, Incarnation, ReplicaId, View, VirtualRank, World};
use redrt_wire::clone::Position;
use redrt_wire::control::Options;
use redrt_wire::daemon::Application;
use redrt_wire::line::{Generation, SavedText};
use redrt_wire::object::Stored;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use twox_hash::XxHash3_128;

/// Grows with each change of what is written.
const VERSION: u32 = 9;

/// The process of a rank that has its image in a line.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Member {
    /// Who it is.
    pub replica: ReplicaId,
    /// The number of its host, in `hosts`.
    pub host: u32,
    /// Where its standard streams were.
    pub position: Position,
    /// Its standard output.
    pub output: SavedText,
    /// Its standard error.
    pub error: SavedText,
}

/// See the module.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Manifest {
    /// The job.
    pub job: u64,
    /// The line.
    pub generation: Generation,
    /// Nanoseconds since the epoch when it was taken.
    pub taken_at_ns: u64,
    /// Nanoseconds of the job's time until then.
    pub job_time_ns: u64,
    /// The version of redrt that has written it, which must be the one that reads it.
    pub program_version: String,
    /// Names of the hosts, by number.
    pub hosts: Vec<String>,
    /// Shape of the job.
    pub world: World,
    /// Who lived then.
    pub view: View,
    /// How many replicas each rank was to have.
    pub degrees: Vec<u16>,
    /// Greater than the number of any life that a place had had.
    pub next_life: Incarnation,
    /// The numbers of the hosts of all that lived, in `hosts`, in order of process number.
    pub placement: Vec<Option<u32>>,
    /// Of each rank the one that was saved.
    pub members: Vec<Member>,
    /// The programs.
    pub applications: Vec<Application>,
    /// Which program each rank runs.
    pub application_of_rank: Vec<u32>,
    /// Settings of the processes.
    pub options: Options,
    /// The host name that all replicas show their program.
    pub host_name: String,
    /// Bytes of standard input that were read by `redrun` when it was taken.
    pub input_bytes: u64,
    /// Sizes of the files beside this one, by name.
    pub files: Vec<(String, u64)>,
    /// Bytes of all images.
    pub image_bytes: u64,
    /// The lines that it is built on, the newest first: without any of them it cannot be loaded.
    pub chain: Vec<Generation>,
    /// How far away it is kept.
    pub level: Level,
    /// What is changed in files that hosts share is written down in one log, where hosts have logs of their own.
    pub has_shared_log: bool,
    /// Which host has a copy of the part of each host, where [`Level::has_copies`].
    pub copies: Vec<Option<u32>>,
    /// What of it is in the object store besides the manifest, where [`Level::is_fetched`]; by names below that of the
    /// line.
    pub objects: Vec<Stored>,
}

/// A part of a line is on hosts that cannot be had.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a part of it is on {} alone, which cannot be had", holders.join(" and "))]
pub struct Homeless {
    /// All that have it.
    pub holders: Vec<String>,
}

/// Why bytes are not a manifest.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// It is not what is written by any version, or it is damaged.
    #[error("it cannot be read: {0}")]
    Unreadable(#[from] serde_json::Error),
    /// Another version has written it.
    #[error("it has version {0}, this program {VERSION}")]
    Version(u32),
    /// It is damaged.
    #[error("it is damaged: its digest is that of another")]
    Damaged,
    /// Its parts do not fit each other.
    #[error("{0}")]
    Inconsistent(&'static str),
}

#[derive(Serialize, Deserialize)]
struct Written {
    version: u32,
    /// xxh3 of the line as it is written without spaces.
    digest: String,
    line: serde_json::Value,
}

fn digest(line: &serde_json::Value) -> String {
    format!("{:032x}", XxHash3_128::oneshot(line.to_string().as_bytes()))
}

impl Manifest {
    /// Where the log of changed files is that the hosts share.
    #[must_use]
    pub fn shared_log(&self) -> Option<PathBuf> {
        let directory = &self.applications.first()?.directory;
        self.has_shared_log.then(|| redrt_wire::line::shared_log(directory, self.job))
    }

    /// As it is written.
    ///
    /// # Errors
    /// When a number in it cannot be written. The numbers of this type all can.
    pub fn to_bytes(&self) -> Result<Vec<u8>, ManifestError> {
        let line = serde_json::to_value(self)?;
        Ok(serde_json::to_vec_pretty(&Written { version: VERSION, digest: digest(&line), line })?)
    }

    /// From what was written.
    ///
    /// # Errors
    /// When it is not what was written by this version.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, ManifestError> {
        let Written { version, digest: said, line } = serde_json::from_slice(bytes)?;
        if version != VERSION {
            return Err(ManifestError::Version(version));
        }
        if digest(&line) != said {
            return Err(ManifestError::Damaged);
        }
        let manifest: Self = serde_json::from_value(line)?;
        manifest.check()?;
        Ok(manifest)
    }

    fn check(&self) -> Result<(), ManifestError> {
        let rank_count = self.world.rank_count() as usize;
        let is_host = |host: &u32| (*host as usize) < self.hosts.len();
        let is_member = |member: &Member| self.view.is_live(member.replica);
        let ranks = self.members.iter().filter(|member| is_member(member)).map(|member| member.replica.rank.0);
        let is_fit = |(degree, rank): (&u16, u32)| (1..=self.world.degree(VirtualRank(rank))).contains(degree);
        let goes_back = std::iter::once(&self.generation).chain(&self.chain).is_sorted_by(|newer, older| newer > older);
        let what = if !goes_back {
            "it is built on a newer one"
        } else if !self.view.fits(&self.world) {
            "its view is of another job"
        } else if !ranks.eq(0..self.world.rank_count()) || self.members.len() != rank_count {
            "not one process of every rank is in it"
        } else if self.degrees.len() != rank_count || !self.degrees.iter().zip(0..).all(is_fit) {
            "its degrees are of another job"
        } else if self.placement.len() != self.world.process_count() as usize {
            "not every place is in it"
        } else if self.level.is_of_hosts() && self.copies.len() != self.hosts.len() {
            "its copies are of another job"
        } else if !self.copies.iter().flatten().all(is_host) {
            "a copy is on a host that is not there"
        } else if !self.members.iter().map(|member| &member.host).chain(self.placement.iter().flatten()).all(is_host) {
            "a process is on a host that is not there"
        } else if self.application_of_rank.len() != rank_count {
            "not every rank is in it"
        } else if self.application_of_rank.iter().any(|number| *number as usize >= self.applications.len()) {
            "a rank's program is missing"
        } else {
            return Ok(());
        };
        Err(ManifestError::Inconsistent(what))
    }

    /// The image of a rank.
    ///
    /// # Panics
    /// When there is no such rank.
    #[must_use]
    pub fn image(&self, rank: VirtualRank) -> &Member {
        &self.members[rank.0 as usize]
    }

    /// The view with which the job goes on, with as many replicas of each rank as there are places for: those that were
    /// saved first, then others that lived. All of a rank have one image.
    #[must_use]
    pub fn view_of_images(&self, degrees: &[u16]) -> View {
        if !self.world.is_replicated() {
            // Messages have no numbers: each process is the one that was saved.
            return self.view.clone();
        }
        let cut = CutNumber(self.view.latest_cut().0 + 1);
        let mut loaded = Vec::new();
        for (member, degree) in self.members.iter().zip(degrees) {
            let source = member.replica;
            let mut places: Vec<_> = self.world.sphere(source.rank).collect();
            places.sort_by_key(|place| (*place != source, !self.view.is_live(*place), place.index));
            let admit = |replica| Admission { replica, incarnation: self.next_life, source: source.index, cut };
            loaded.extend(places.into_iter().take(usize::from(*degree)).map(admit));
        }
        self.view.of_images(&loaded)
    }

    /// The hosts that have the part of `host`: itself, and that with the copy.
    pub fn holders(&self, host: u32) -> impl Iterator<Item = u32> + '_ {
        [Some(host), self.copies.get(host as usize).copied().flatten()].into_iter().flatten()
    }

    /// Which host has a copy of the part of each host that had processes.
    #[must_use]
    pub fn keepers(&self) -> BTreeMap<u32, Option<u32>> {
        let keeper = |host| self.copies.get(host as usize).copied().flatten();
        self.members.iter().map(|member| (member.host, keeper(member.host))).collect()
    }

    /// For each host that had processes, one that has its part and can be had; none where any will do.
    ///
    /// # Errors
    /// When there is none for one of them.
    pub fn homes(&self, is_there: &dyn Fn(&str) -> bool) -> Result<Vec<Option<u32>>, Homeless> {
        let name = |host: u32| self.hosts[host as usize].as_str();
        let home = |host: u32| {
            if !self.level.is_of_hosts()
                || self.level.is_fetched()
                || !self.members.iter().any(|member| member.host == host)
            {
                return Ok(None);
            }
            match self.holders(host).find(|holder| is_there(name(*holder))) {
                Some(holder) => Ok(Some(holder)),
                None => Err(Homeless { holders: self.holders(host).map(|holder| name(holder).to_owned()).collect() }),
            }
        };
        (0..self.hosts.len() as u32).map(home).collect()
    }
}
