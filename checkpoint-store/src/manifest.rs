//! The manifest of a checkpoint: everything needed to restart its job without the original command line.

use crate::level::Level;
use crate::pieces::Code;
use redrt_types::{Admission, CutNumber, Incarnation, ReplicaId, View, VirtualRank, World};
use redrt_wire::checkpoint::{Generation, Proof, SavedText};
use redrt_wire::clone::Position;
use redrt_wire::control::Options;
use redrt_wire::daemon::Application;
use redrt_wire::object::Stored;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use twox_hash::XxHash3_128;

/// Version of the format. Increased with each change to it.
const VERSION: u32 = 12;

/// The process of a rank whose image is in the checkpoint.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Member {
    /// Replica that was saved.
    pub replica: ReplicaId,
    /// Index of its host in [`Manifest::hosts`].
    pub host: u32,
    /// Bytes printed at the cut, and standard input that it had not read.
    pub position: Position,
    /// State of its standard output at the cut, with text that was still being compared.
    pub output: SavedText,
    /// State of its standard error at the cut, likewise.
    pub error: SavedText,
}

/// Contents of the manifest.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Manifest {
    /// Number of the job.
    pub job: u64,
    /// Number of the checkpoint.
    pub generation: Generation,
    /// Time of the cut, in nanoseconds since 1970.
    pub taken_at_ns: u64,
    /// Time that the job had run until the cut, in nanoseconds.
    pub job_time_ns: u64,
    /// Version of redrt that wrote the checkpoint; only the same version restores it.
    pub program_version: String,
    /// Names of the hosts, by number.
    pub hosts: Vec<String>,
    /// Ranks of the job, and places for replicas of each.
    pub world: World,
    /// View at the cut: the replicas that were live.
    pub view: View,
    /// Desired number of replicas of each rank.
    pub degrees: Vec<u16>,
    /// Least incarnation that is greater than all used so far.
    pub next_life: Incarnation,
    /// Index in `hosts` of each process, by native rank; `None` for a place without a process.
    pub placement: Vec<Option<u32>>,
    /// Saved process of each rank, by rank.
    pub members: Vec<Member>,
    /// The programs, with arguments and environment.
    pub applications: Vec<Application>,
    /// Index in `applications` of each rank's program, by rank.
    pub application_of_rank: Vec<u32>,
    /// Settings that all processes were started with.
    pub options: Options,
    /// Host name that all replicas report to the program, so that they agree.
    pub host_name: String,
    /// Bytes of standard input that `redrun` had read at the cut.
    pub input_bytes: u64,
    /// Name and size in bytes of each file in the directory of the manifest.
    pub files: Vec<(String, u64)>,
    /// Bytes of all images together.
    pub image_bytes: u64,
    /// Checkpoints that this one is built on, newest first. All are needed to restore it.
    pub chain: Vec<Generation>,
    /// Storage level, which determines the hosts that have the images.
    pub level: Level,
    /// True if hosts have undo logs of their own, and changes to shared files are recorded in one more log.
    pub has_shared_log: bool,
    /// Host that has a copy of each host's part, by number, if [`Level::has_copies`].
    pub copies: Vec<Option<u32>>,
    /// Parts that are in the object store besides the manifest, at [`Level::Object`]. Names are below that of the
    /// checkpoint.
    pub objects: Vec<Stored>,
    /// Host of each piece of each host's part, by number and index, at [`Level::Erasure`]; `None` for a piece that was
    /// not kept. Empty for hosts without a part.
    pub pieces: Vec<Vec<Option<u32>>>,
    /// Older checkpoints, or this one, that stay although newer ones are kept: for the archive, or for a return to a
    /// memory that is vouched for.
    pub pinned: Vec<Generation>,
    /// Testimony for the memory in its images. None if nobody vouches for it.
    pub proof: Option<Proof>,
}

/// A part of the checkpoint is only on hosts that are not available.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Homeless {
    /// All copies of the part are.
    #[error("a part of it is on {} alone, which cannot be had", holders.join(" and "))]
    Whole {
        /// Names of all hosts that have the part.
        holders: Vec<String>,
    },
    /// Too many pieces of the part are.
    #[error("{needed} pieces of the part of {owner} are needed, and {left} can be had, without {}", missing.join(", "))]
    InPieces {
        /// Name of the host whose part it is.
        owner: String,
        /// Number of pieces that can be had.
        left: usize,
        /// Number of pieces that are needed.
        needed: u8,
        /// Names of the other hosts.
        missing: Vec<String>,
    },
}

/// Reason why bytes are not a valid manifest.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// Not the JSON of a manifest: damaged, or of another origin.
    #[error("it cannot be read: {0}")]
    Unreadable(#[from] serde_json::Error),
    /// The manifest has this version instead of the one that this program writes.
    #[error("it has version {0}, this program {VERSION}")]
    Version(u32),
    /// The digest differs from the content.
    #[error("it is damaged: its digest is that of another")]
    Damaged,
    /// Fields contradict each other.
    #[error("{0}")]
    Inconsistent(&'static str),
}

#[derive(Serialize, Deserialize)]
struct Written {
    version: u32,
    /// xxh3 of `checkpoint` in compact JSON.
    digest: String,
    #[serde(rename = "line")]
    checkpoint: serde_json::Value,
}

fn digest(checkpoint: &serde_json::Value) -> String {
    format!("{:032x}", XxHash3_128::oneshot(checkpoint.to_string().as_bytes()))
}

impl Manifest {
    /// Path of the undo log that hosts share; `None` if none exists.
    #[must_use]
    pub fn shared_log(&self) -> Option<PathBuf> {
        let directory = &self.applications.first()?.directory;
        self.has_shared_log.then(|| redrt_wire::checkpoint::shared_log(directory, self.job))
    }

    /// Encodes the manifest.
    ///
    /// # Errors
    /// If a number has no JSON form, which does not occur in this type.
    pub fn to_bytes(&self) -> Result<Vec<u8>, ManifestError> {
        let checkpoint = serde_json::to_value(self)?;
        Ok(serde_json::to_vec_pretty(&Written { version: VERSION, digest: digest(&checkpoint), checkpoint })?)
    }

    /// Decodes and checks a manifest.
    ///
    /// # Errors
    /// If the bytes are damaged, inconsistent, or of another version.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, ManifestError> {
        let Written { version, digest: said, checkpoint } = serde_json::from_slice(bytes)?;
        if version != VERSION {
            return Err(ManifestError::Version(version));
        }
        if digest(&checkpoint) != said {
            return Err(ManifestError::Damaged);
        }
        let manifest: Self = serde_json::from_value(checkpoint)?;
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
        } else if self.level.code().is_some_and(|code| !self.has_pieces(code)) {
            "its pieces are of another job"
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

    /// True if each part has as many pieces as the code says, on hosts of the job.
    fn has_pieces(&self, code: Code) -> bool {
        let of_host = |host: u32| self.pieces.get(host as usize).map_or(0, Vec::len);
        let is_host = |host: &u32| (*host as usize) < self.hosts.len();
        self.members.iter().all(|member| of_host(member.host) == usize::from(code.piece_count()))
            && self.pieces.iter().flatten().flatten().all(is_host)
    }

    /// Pieces of a host's part that were kept: index, and host.
    pub fn pieces_of(&self, host: u32) -> impl Iterator<Item = (u8, u32)> + '_ {
        let pieces = self.pieces.get(host as usize).into_iter().flatten();
        (0..).zip(pieces).filter_map(|(index, holder)| Some((index, (*holder)?)))
    }

    /// Saved process of a rank.
    ///
    /// # Panics
    /// If there is no such rank.
    #[must_use]
    pub fn image(&self, rank: VirtualRank) -> &Member {
        &self.members[rank.0 as usize]
    }

    /// View with which the job restarts, with `degrees` replicas of each rank. The saved replica gets a place first,
    /// then those that were live. All replicas of a rank start from one image, and count as one lineage unless others
    /// have vouched for it.
    #[must_use]
    pub fn view_of_images(&self, degrees: &[u16]) -> View {
        if !self.world.is_replicated() {
            // Messages have no sequence numbers, so each process keeps the place that it had.
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
        match self.proof {
            Some(Proof::Independent) => self.view.of_proven_images(&loaded),
            Some(Proof::Kin) | None => self.view.of_images(&loaded),
        }
    }

    /// Hosts that have the part of `host`: itself, and the one with its copy.
    pub fn holders(&self, host: u32) -> impl Iterator<Item = u32> + '_ {
        [Some(host), self.copies.get(host as usize).copied().flatten()].into_iter().flatten()
    }

    /// Host that has a copy of the part of each host that had processes.
    #[must_use]
    pub fn copy_hosts(&self) -> BTreeMap<u32, Option<u32>> {
        let copy_host = |host| self.copies.get(host as usize).copied().flatten();
        self.members.iter().map(|member| (member.host, copy_host(member.host))).collect()
    }

    /// Chooses an available host with the part of each host that had processes. `None` where any host will do.
    ///
    /// # Errors
    /// If no available host has one of the parts.
    pub fn homes(&self, is_there: &dyn Fn(&str) -> bool) -> Result<Vec<Option<u32>>, Homeless> {
        let name = |host: u32| self.hosts[host as usize].as_str();
        let home = |host: u32| {
            if !self.level.is_of_hosts() || !self.members.iter().any(|member| member.host == host) {
                return Ok(None);
            }
            if let Some(code) = self.level.code() {
                let (left, missing): (Vec<_>, Vec<_>) =
                    self.pieces_of(host).map(|(_, holder)| name(holder)).partition(|holder| is_there(holder));
                let missing: BTreeSet<_> = missing.into_iter().map(str::to_owned).collect();
                return match left.len() < usize::from(code.data) {
                    false => Ok(None),
                    true => Err(Homeless::InPieces {
                        owner: name(host).to_owned(),
                        left: left.len(),
                        needed: code.data,
                        missing: missing.into_iter().collect(),
                    }),
                };
            }
            if self.level.is_fetched() {
                return Ok(None);
            }
            match self.holders(host).find(|holder| is_there(name(*holder))) {
                Some(holder) => Ok(Some(holder)),
                None => {
                    Err(Homeless::Whole { holders: self.holders(host).map(|holder| name(holder).to_owned()).collect() })
                }
            }
        };
        (0..self.hosts.len() as u32).map(home).collect()
    }
}
