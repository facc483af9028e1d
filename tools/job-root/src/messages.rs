//! What the root is told, and what it wants done.

use super::printing::ShownTexts;
use coordinator::{NoLines, Recovery, Report, TakenLine, Wish, WishError};
use redrt_types::{ReplicaId, VirtualRank};
use redrt_wire::clone::{Newcomer, Progress};
use redrt_wire::daemon::{FromDaemon, ToDaemon};
use redrt_wire::dynamic::Request;
use redrt_wire::line::{Generation, LineOrder, PartStep};
use replica_output::restored::Restored;
use replica_output::sphere_stream::Release;
use serde::{Deserialize, Serialize};
use spare_pool::{News, Request as SpareRequest, SiteOrder, Spare};

/// What the root is told when it is made.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Settings {
    /// The first life of the job.
    pub life: Life,
    /// How outputs of replicas become one.
    pub release: Release,
    /// What was shown before this root was made, where that is known.
    pub shown: Option<ShownTexts>,
    /// Replicas may find another home.
    pub is_cloneable: bool,
    /// The program is being checked (`--check-determinism`).
    pub checks_determinism: bool,
    /// The job's number.
    pub job: u64,
    /// What the site's pool of spares is asked for; absent where it is not to be.
    pub site: Option<SpareRequest>,
}

/// What can be put on a host besides the processes that are launched there.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Rooms {
    /// Name of the host.
    pub name: String,
    /// Number of copies.
    pub count: u32,
}

/// What a job begins with, at its start or when it goes back to a line.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Life {
    /// What the coordinator is told.
    pub coordinator: coordinator::Settings,
    /// Replicas that go on from images, by rank. They print again what they have printed since.
    pub restored: Vec<(VirtualRank, Vec<Restored>)>,
    /// Bytes of standard input that these images have had.
    pub input_bytes: u64,
}

/// Identifies the connection of `redctl` that an answer goes to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Asker(pub u64);

/// What happens.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Input {
    /// All hosts are there, and processes are being launched.
    Launched {
        /// On these hosts, by process; none for places that are free.
        placement: Vec<Option<u32>>,
        /// Absent where lost replicas are not replaced.
        recovery: Option<Box<Recovery>>,
        /// The places for copies, by host.
        rooms: Vec<Rooms>,
    },
    /// The job begins anew from a line: all its processes are gone.
    WentBack(Box<Life>),
    /// There is a place for the images of a line ([`Output::OpenLine`]).
    LineOpened {
        /// Which line.
        generation: Generation,
        /// What the daemon of each host is told, by host.
        orders: Vec<LineOrder>,
    },
    /// A daemon that is part of the job said something.
    Daemon {
        /// Its host.
        host: u32,
        /// What.
        message: FromDaemon,
    },
    /// A host is not part of the job any more.
    HostLost {
        /// Its number.
        host: u32,
        /// Its name.
        name: String,
        /// How that is known.
        why: String,
    },
    /// Copies may be put on this host from now on. It is also what [`Output::FindHost`] has asked for, if it was this.
    SpareAdded {
        /// Its number.
        host: u32,
        /// Its name.
        name: String,
        /// How many.
        count: u32,
    },
    /// A host that was asked for ([`Output::FindHost`]) is part of the job.
    HostFound {
        /// Its number.
        host: u32,
        /// Its name.
        name: String,
        /// It came for this.
        is_new: bool,
    },
    /// It cannot be.
    HostNotFound {
        /// Its name.
        name: String,
        /// Why, in words.
        why: String,
    },
    /// The site's pool of spares says something.
    Site(News),
    /// Nothing is on this host any more, and nothing can be put there.
    HostDismissed(u32),
    /// A user wants something changed. Answered by [`Output::Answered`].
    Wish {
        /// Who.
        asker: Asker,
        /// What.
        wish: Wish,
    },
    /// A user wants a line now. Answered if there cannot be any; else a report says what has become of it.
    Line {
        /// Who.
        asker: Asker,
        /// The job is to end with it.
        ends: bool,
    },
    /// A user wants a replica ended.
    Kill {
        /// Who.
        asker: Asker,
        /// Which replica.
        replica: ReplicaId,
    },
    /// This was read from standard input.
    StandardInput(#[serde(with = "serde_bytes")] Vec<u8>),
    /// Standard input has ended.
    StandardInputEnd,
    /// Something for the coordinator that no daemon has said.
    Job(coordinator::Input),
    /// Nothing but time has passed.
    Tick,
}

/// What is to be done.
#[derive(Clone, Debug)]
pub enum Output {
    /// Send this to every daemon.
    Send(ToDaemon),
    /// Send this to the daemon of one host.
    SendTo(u32, ToDaemon),
    /// Do without this host.
    Expel {
        /// The host.
        host: u32,
        /// Why.
        why: Unfit,
    },
    /// Tell this to the site's pool of spares.
    Site(SiteOrder),
    /// A place was granted on a host of this name: make it part of the job. Answered by [`Input::HostFound`] or
    /// [`Input::HostNotFound`].
    FindHost(Spare),
    /// A host that came for a place is not needed any more: its daemon is to leave.
    DismissHost(u32),
    /// A host that was to become free is.
    HostFree(u32),
    /// Show this, which the replicas of a rank have agreed to print.
    Show {
        /// The rank.
        rank: VirtualRank,
        /// What.
        bytes: Vec<u8>,
        /// It is another text than was shown before, from this line on: an unfinished line that was not written is
        /// dropped, one that was ends here.
        is_anew: bool,
    },
    /// Show this, which a process has printed on its standard error.
    ShowError {
        /// Which process.
        replica: ReplicaId,
        /// What.
        bytes: Vec<u8>,
        /// As for [`Output::Show`].
        is_anew: bool,
    },
    /// The standard error of a process has ended.
    ErrorEnded(ReplicaId),
    /// Tell the user and the audit log.
    Report(Report),
    /// A process was started: tell the audit log.
    Started {
        /// The replica.
        replica: ReplicaId,
        /// Its process id.
        pid: i32,
    },
    /// A process may use these processors: tell the user.
    Bound {
        /// The replica.
        replica: ReplicaId,
        /// As the kernel writes them.
        processors: String,
    },
    /// A user has a replica ended: tell the audit log.
    KilledByUser(ReplicaId),
    /// A daemon has something to say to the user.
    Note(String),
    /// Memory of a clone is going over.
    Progress {
        /// What is being made.
        newcomer: Newcomer,
        /// How far it is.
        progress: Progress,
    },
    /// Memory of a process is going into its image.
    Saving {
        /// For which line.
        generation: Generation,
        /// Whose.
        replica: ReplicaId,
        /// How far it is.
        progress: Progress,
    },
    /// The copy of what a host has of a line has come so far.
    Part {
        /// The host that says so.
        host: u32,
        /// Of which line.
        generation: Generation,
        /// Of which host.
        source: u32,
        /// How far.
        step: PartStep,
    },
    /// A process asks something about other jobs.
    Dynamic {
        /// Which process.
        replica: ReplicaId,
        /// Number of its question.
        number: u64,
        /// What.
        request: Request,
    },
    /// Answer who has asked.
    Answered {
        /// Who.
        asker: Asker,
        /// Whether it is done, or begun.
        outcome: Result<(), Refused>,
    },
    /// Make a place in the store for the images of a line. Answered by [`Input::LineOpened`], or by what the store
    /// says.
    OpenLine(Generation),
    /// All images of a line are on the disk: keep it. Answered by what the store says.
    CommitLine(Box<TakenLine>),
    /// Nothing comes of a line: remove what there is of it.
    DropLine(Generation),
    /// All processes are gone: begin again from the newest line. Answered by [`Input::WentBack`], and
    /// [`Input::Launched`].
    GoBack {
        /// How often the job is started from it, with this time; 0 if it cannot be loaded, and an older one is to be
        /// taken.
        count: u32,
    },
    /// The job is over.
    Finish {
        /// The exit code.
        code: i32,
        /// It was ended with a line, and will go on from there.
        will_go_on: bool,
    },
}

/// Why a host whose daemon is there cannot stay in the job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unfit {
    /// Its daemon speaks of what it cannot know.
    Misplaced(Misplaced),
    /// It and this host do not hear each other, though others hear both.
    Unheard {
        /// The other host.
        by: u32,
    },
}

/// What a daemon spoke of that it cannot know.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Misplaced {
    /// The job has no such replica.
    #[error("its daemon speaks of a replica {0}")]
    NoReplica(ReplicaId),
    /// The replica is on another host.
    #[error("its daemon speaks of replica {0}, which is not there")]
    NotItsReplica(ReplicaId),
}

/// Why a user's wish is refused. Nothing has changed then.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    /// There is no such replica, or it is dead.
    #[error("there is no live replica {0}")]
    NotLive(ReplicaId),
    /// Of replicas or hosts.
    #[error(transparent)]
    Wish(WishError),
    /// Of a line.
    #[error(transparent)]
    Line(NoLines),
}
