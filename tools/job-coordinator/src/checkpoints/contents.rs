//! Contents of a checkpoint, as far as the coordinator knows them. The store adds parts that are the same in all
//! checkpoints of the job.

use checkpoint_store::{Level, Member};
use redrt_wire::checkpoint::{Generation, image_path, memory_path};
use redrt_wire::object::Stored;
use replication_manager::TakenCheckpoint;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::Path;

/// The state of the job at the cut of a checkpoint, all of whose images are on disk.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cut {
    /// Membership, positions and costs.
    pub taken: TakenCheckpoint,
    /// The process of each rank whose image was written, with its host.
    pub members: Vec<Member>,
    /// Host of each process, by process number. None for free places.
    pub placement: Vec<Option<u32>>,
    /// Bytes of standard input that the images contain.
    pub input_bytes: u64,
}

impl Cut {
    /// Hosts with images.
    pub(super) fn sources(&self) -> BTreeSet<u32> {
        self.members.iter().map(|member| member.host).collect()
    }
}

/// A checkpoint that is to be kept.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Contents {
    /// The state of the job at the cut.
    pub cut: Cut,
    /// Names of the hosts, by number.
    pub hosts: Vec<String>,
    /// Checkpoints that it is built on, newest first.
    pub chain: Vec<Generation>,
    /// Level of its storage.
    pub level: Level,
    /// Host with a copy of each host's part, by number. Empty where hosts have no parts.
    pub copies: Vec<Option<u32>>,
    /// Its files in the object store, but for the manifest.
    pub objects: Vec<Stored>,
    /// Host of each piece of each host's part, by number and index. Empty where hosts have no pieces.
    pub pieces: Vec<Vec<Option<u32>>>,
    /// True if the memory that processes of a host share is a file of its own.
    pub has_host_memory: bool,
    /// Checkpoints that stay for the archive, perhaps this one among them, and as long as they are proven or may be.
    pub pinned: Vec<Generation>,
}

impl Contents {
    pub(super) fn generation(&self) -> Generation {
        self.cut.taken.generation
    }

    /// Names of a host's files.
    pub(super) fn files(&self, host: u32) -> Vec<String> {
        files_of(&self.cut.members, self.has_host_memory, host)
    }
}

/// Names of a host's files of a checkpoint of these processes. `has_memory`: a file with the memory that processes of a
/// host share is among them.
pub(super) fn files_of(members: &[Member], has_memory: bool, host: u32) -> Vec<String> {
    let images = members.iter().filter(|member| member.host == host);
    let images = images.map(|member| image_path(Path::new(""), member.replica.rank));
    let memory = has_memory.then(|| memory_path(Path::new(""), host));
    images.chain(memory).map(|path| path.display().to_string()).collect()
}
