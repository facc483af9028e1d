//! Helpers of the daemon: parents of cloneable processes, and senders and receivers of images and files.
//!
//! ```text
//!  redrtd ── redrtd --helper (hold)    ── first process of a namespace ── program
//!        ├─ redrtd --helper (receive) ── first process of a namespace ── receiver, which becomes the copy
//!        ├─ redrtd --helper (send)    ═══ memory ═══▶ receiver
//!        ├─ redrtd --helper (save)    ═══ memory ═══▶ file
//!        ├─ redrtd --helper (give)    ═══ files ═══▶ redrtd --helper (keep) of another host
//!        ├─ redrtd --helper (cut)     ═══ pieces ═══▶ redrtd --helper (keep) of several hosts
//!        ├─ redrtd --helper (settle)  removes whole files that there are pieces of
//!        ├─ redrtd --helper (gather)  ◀═══ pieces ═══ redrtd --helper (serve) of several hosts
//!        ├─ redrtd --helper (store)   ── redstore ═══ files ═══▶ object store
//!        ├─ redrtd --helper (flip)    ── ptrace ──▶ a thread of a process of this host
//!        ├─ redrtd --helper (fetch)   ── redstore ◀═══ files ═══ object store
//!        └─ redrtd --helper (load)    ── first process of a namespace ── receiver, which becomes what the file has
//! ```
//! Each helper begins with one thread, because only such processes may enter namespaces and fork. It talks to the
//! daemon over a socket: a [`Task`] comes in, then [`Word`]s; [`Reply`]s go out.

mod flip;
#[cfg(test)]
mod fuzz;
mod hold;
mod load;
mod manifests;
mod objects;
mod part;
mod pieces;
mod receive;
mod save;
mod send;

pub use flip::Victim;

use super::descriptors::HELPER_FD;
use anyhow::{Context, Result, bail};
use checkpoint_files::remote::Access;
use cloner::control::Control;
use cloner::image::digests::Contents;
use cloner::source::{self, Event, Options, Report};
use cloner::{Phase, ProcessEnded};
use control_network::link::{Link, Received};
use nix::sys::signal::{SigSet, Signal};
use redrt_wire::checkpoint::{Building, Compression, Generation, Outlet, Step, UndoPlace, WantedPart};
use redrt_wire::clone::{Cost, Progress};
use redrt_wire::daemon::Application;
use redrt_wire::frame::{FrameReader, encode};
use redrt_wire::no_image::ReportedFailure;
use redrt_wire::object::{ObjectEntry, Stored};
use redrt_wire::secret::Secret;
use serde::{Deserialize, Serialize};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The only argument of a helper.
pub const HELPER_FLAG: &str = "--helper";

/// Interval between progress reports.
const TELL_INTERVAL: Duration = Duration::from_millis(100);
/// Number of connections that carry an image.
const STREAM_COUNT: u16 = 2;

/// Task of a helper process.
#[derive(Debug, Serialize, Deserialize)]
pub enum Task {
    /// Start a program that can be cloned, and end as it ends.
    Hold(Application),
    /// Receive an image, become the parent of its copy, and end as it ends.
    Receive {
        /// The sender must prove that it knows this.
        secret: Secret,
        /// Address to listen on.
        address: IpAddr,
    },
    /// Clone a process of this host.
    Send {
        /// Secret that is proved to the receiver.
        secret: Secret,
        pid: i32,
        /// Address on which the receiver listens.
        destination: SocketAddr,
        /// True: the copy's memory is compared with this process's.
        verifies: bool,
        /// A fault to inject: index of the bit.
        flipped_bit: Option<u64>,
    },
    /// Write the image of a process of this host to a file.
    Save {
        pid: i32,
        /// File for the image.
        #[serde(with = "redrt_types::path_bytes")]
        image: PathBuf,
        /// File for the shared memory of this host's processes, if this helper writes it.
        #[serde(with = "redrt_types::path_bytes::option")]
        memory: Option<PathBuf>,
        /// The log of changed files, if this helper handles it.
        undo: Option<UndoTask>,
        /// Checkpoints to keep in this host's own directory, which is created for the image. `None` if the directory is
        /// shared.
        own_beside: Option<Vec<Generation>>,
        /// Full, or built on another image.
        building: Building,
        compression: Compression,
        /// Key that encrypts image and memory.
        key: Option<Secret>,
    },
    /// Send files of a checkpoint to another host.
    Give {
        /// Secret that is proved to the receiver.
        secret: Secret,
        /// Address on which the receiver listens.
        destination: SocketAddr,
        /// Directory of the files.
        #[serde(with = "redrt_types::path_bytes")]
        directory: PathBuf,
        files: Vec<String>,
    },
    /// Receive files of a checkpoint from another host.
    Keep {
        /// The sender must prove that it knows this.
        secret: Secret,
        /// Address to listen on.
        address: IpAddr,
        /// Directory for the files.
        #[serde(with = "redrt_types::path_bytes")]
        directory: PathBuf,
        /// Checkpoints that stay beside it.
        own_beside: Vec<Generation>,
        files: Vec<String>,
    },
    /// Cut a part of a checkpoint into pieces for several hosts.
    Cut {
        /// Secret that is proved to the receivers.
        secret: Secret,
        /// Number of this host.
        host: u32,
        generation: Generation,
        /// Numbers of data and of parity pieces.
        code: (u8, u8),
        /// Directory of the files.
        #[serde(with = "redrt_types::path_bytes")]
        directory: PathBuf,
        files: Vec<String>,
        outlets: Vec<Outlet>,
    },
    /// Keep the manifest of a checkpoint, and remove whole files that are in pieces.
    Settle {
        /// Directory of the job.
        #[serde(with = "redrt_types::path_bytes")]
        job: PathBuf,
        /// Number of this host.
        host: u32,
        /// Checkpoints whose manifests stay.
        beside: Vec<Generation>,
        /// Checkpoints whose whole files go.
        replaced: Vec<Generation>,
        #[serde(with = "serde_bytes")]
        manifest: Vec<u8>,
        /// Key that encrypts the manifest.
        key: Option<Secret>,
    },
    /// Give pieces to other hosts.
    Serve {
        /// Hosts that ask must prove that they know this.
        secret: Secret,
        /// Address to listen on.
        address: IpAddr,
        /// Directory of the job.
        #[serde(with = "redrt_types::path_bytes")]
        job: PathBuf,
    },
    /// Make parts of checkpoints of pieces.
    Gather {
        /// Secret that is proved to hosts that give pieces.
        secret: Secret,
        /// Directory of the job.
        #[serde(with = "redrt_types::path_bytes")]
        job: PathBuf,
        /// Number of this host.
        host: u32,
        /// Hosts that give pieces.
        servers: Vec<(u32, SocketAddr)>,
        wanted: Vec<WantedPart>,
    },
    /// Upload files of a checkpoint to an object store.
    Store {
        /// Access to the store.
        access: Access,
        /// Directory of the files.
        #[serde(with = "redrt_types::path_bytes")]
        directory: PathBuf,
        files: Vec<String>,
        /// Prefix of the keys in the store.
        prefix: String,
    },
    /// Download files from an object store.
    Fetch {
        /// Access to the store.
        access: Access,
        /// Objects, and paths to write them to.
        wanted: Vec<ObjectEntry>,
    },
    /// Flip a bit of the registers or the stack of a thread.
    Flip {
        victim: Victim,
        /// Number from which bit and moment are derived.
        drawn: u64,
    },
    /// Become the parent of the process in an image, and end as it ends.
    Load {
        #[serde(with = "redrt_types::path_bytes")]
        image: PathBuf,
        /// Key of an encrypted image.
        key: Option<Secret>,
        /// True if no other process continues from the image: this one gets its file locks back.
        locks: bool,
    },
}

/// A helper's task with the log of changed files.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct UndoTask {
    /// Place of the log.
    pub place: UndoPlace,
    /// File for the log's length at the cut.
    #[serde(with = "redrt_types::path_bytes")]
    pub cut: PathBuf,
}

/// Later message of the daemon.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Word {
    /// All sources have come as far: copy pages written meanwhile, until few are left again.
    Round,
    /// The process may be stopped.
    Cut,
    /// The process's output was taken; it may go on. For a checkpoint it stays stopped until [`Word::Release`].
    GoOn,
    /// All processes of the checkpoint are copied.
    Release,
}

/// Message of a helper.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Reply {
    /// The program or the copy runs.
    Running {
        /// Process id in the daemon's namespace.
        pid: i32,
    },
    /// The helper listens on this address.
    Listening(SocketAddr),
    Progress(Progress),
    /// Few pages are left. The helper waits for [`Word::Cut`], or for a checkpoint for [`Word::Round`] before.
    Ready,
    /// The process is stopped. The helper waits for [`Word::GoOn`].
    Stopped {
        /// Bytes of its standard input that it has not read.
        #[serde(with = "serde_bytes")]
        unread: Vec<u8>,
        /// True if a script has started it; the script is not copied.
        is_below_script: bool,
    },
    /// The rest of the process is copied. The helper waits for [`Word::Release`].
    Copied,
    /// The copy runs, or the files are sent.
    Sent(Cost),
    /// The image is on disk.
    Saved(Cost, Vec<Step>),
    /// The files are on disk; their size in bytes.
    Kept(u64),
    /// Bytes moved to or from the object store so far.
    Moved(u64),
    /// The files are in the object store.
    Stored(Vec<Stored>),
    /// The files are on this host.
    Fetched,
    /// Something for the user to know, after which the task goes on.
    Warned(String),
    /// The bit has flipped.
    Flipped {
        /// Description of the bit.
        what: String,
        /// Number of instructions executed before.
        steps: u64,
        /// Place of the thread in the code.
        place: String,
    },
    /// The task failed.
    Failed(ReportedFailure),
}

/// Takes all replies of a helper. True if no more follow: it has closed its connection, or its words cannot be read.
pub fn heard(link: &mut Link<UnixStream>) -> (Vec<Reply>, bool) {
    let mut replies = Vec::new();
    loop {
        let received = link.receive();
        loop {
            match link.next_message() {
                Ok(Some(reply)) => replies.push(reply),
                Ok(None) => break,
                Err(_) => return (replies, true),
            }
        }
        match received {
            Ok(Received::Bytes) => {}
            Ok(Received::Nothing) => return (replies, false),
            Ok(Received::End) | Err(_) => return (replies, true),
        }
    }
}

/// The helper's end of its connection to the daemon.
struct HelperConnection {
    stream: UnixStream,
    frames: FrameReader,
}

impl HelperConnection {
    fn say(&mut self, reply: &Reply) -> Result<()> {
        self.stream.write_all(&encode(reply)).context("the daemon is gone")
    }

    fn receive<T: serde::de::DeserializeOwned>(&mut self) -> Result<T> {
        loop {
            if let Some(message) = self.frames.next()? {
                return Ok(message);
            }
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes).context("the daemon is gone")? {
                0 => bail!("the daemon is gone"),
                count => self.frames.push(&bytes[..count]),
            }
        }
    }

    fn wait_for(&mut self, word: Word) -> Result<()> {
        let heard: Word = self.receive()?;
        anyhow::ensure!(heard == word, "the daemon says {heard:?} instead of {word:?}");
        Ok(())
    }
}

/// Connects to the agent of a process that runs already.
fn connect(pid: i32) -> Result<Control> {
    let connected = Control::connect(pid as u32);
    connected.map_err(|error| if error.is_of_end() { ProcessEnded.into() } else { anyhow::Error::new(error) })
}

/// Reports the making of an image to the daemon: progress at intervals, and the moments at which the daemon's word is
/// awaited.
fn event_teller(control: &Control) -> impl FnMut(&Event, &mut HelperConnection) -> Result<()> {
    let mut told = Instant::now();
    move |event, daemon| match event {
        Event::Phase(Phase::Cut) => {
            daemon.say(&Reply::Ready)?;
            daemon.wait_for(Word::Cut)
        }
        Event::Stopped => {
            let unread = source::unread(control).context("Failed to look into standard input")?;
            let is_below_script = source::is_below_script(control).context("Failed to find its parent")?;
            daemon.say(&Reply::Stopped { unread, is_below_script })?;
            daemon.wait_for(Word::GoOn)
        }
        Event::Round { round, done_bytes, total_bytes, elapsed } if told.elapsed() >= TELL_INTERVAL => {
            told = Instant::now();
            let bytes_per_second = (*done_bytes as f64 / elapsed.as_secs_f64().max(1e-9)) as u64;
            let (round, done_bytes, total_bytes) = (*round, *done_bytes, *total_bytes);
            daemon.say(&Reply::Progress(Progress { round, done_bytes, total_bytes, bytes_per_second }))
        }
        _ => Ok(()),
    }
}

/// Ends this process if the daemon cannot be reached: the image is not wanted any more. The source's agent sees the
/// end, and lets the program's threads go on.
fn leave_unless_wanted(heard: Result<()>) {
    if heard.is_err() {
        std::process::exit(1);
    }
}

fn cost(report: &Report) -> Cost {
    Cost {
        round_count: report.round_count,
        sent_bytes: report.sent_bytes,
        kept_bytes: report.contents.as_ref().map_or(0, Contents::kept_bytes),
        cut_bytes: report.cut_bytes,
        stopped_ns: report.downtime.as_nanos() as u64,
        total_ns: report.total.as_nanos() as u64,
    }
}

/// An error for the daemon: all causes in one sentence, and whether one of them is lasting.
fn told(error: &anyhow::Error) -> ReportedFailure {
    let is_lasting = |cause: &(dyn std::error::Error + 'static)| match cause.downcast_ref::<cloner::Error>() {
        Some(error) => error.is_lasting(),
        None => cause.downcast_ref::<std::io::Error>().is_some_and(|error| cloner::told_of(error).is_lasting),
    };
    ReportedFailure { sentence: format!("{error:#}"), is_lasting: error.chain().any(is_lasting) }
}

/// Carries out the daemon's task. Returns the helper's exit code.
pub fn help() -> Result<i32> {
    // The held program looks for a parent of this name.
    nix::sys::prctl::set_name(c"redrtd")?;
    // SAFETY: - open, and owned by nobody else: the daemon has put its socket there for this process, which has just
    // begun.
    let fd = unsafe { OwnedFd::from_raw_fd(HELPER_FD) };
    nix::fcntl::fcntl(&fd, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::FD_CLOEXEC))
        .context("a helper is started by redrtd alone")?;
    let mut daemon = HelperConnection { stream: fd.into(), frames: FrameReader::default() };
    let task = daemon.receive()?;
    if matches!(
        task,
        Task::Save { .. }
            | Task::Keep { .. }
            | Task::Fetch { .. }
            | Task::Cut { .. }
            | Task::Settle { .. }
            | Task::Gather { .. }
    ) {
        // A file size limit (`ulimit -f`) must fail writes, not kill the process. Helpers that become programs keep the
        // signal.
        SigSet::from(Signal::SIGXFSZ).thread_block()?;
    }
    let outcome = match task {
        Task::Hold(application) => hold::hold(&application, &mut daemon).map(|never| match never {}),
        Task::Receive { secret, address } => {
            receive::receive(&secret, address, &mut daemon).map(|never| match never {})
        }
        Task::Send { secret, pid, destination, verifies, flipped_bit } => {
            let options = Options { verify_memory: verifies, flipped_bit, ..Options::default() };
            send::send(&secret, pid, destination, &options, &mut daemon)
        }
        Task::Save { pid, image, memory, undo, own_beside, building, compression, key } => {
            let saving = save::Saving { pid, image, memory, undo, own_beside, building, compression, key };
            save::save(&saving, &mut daemon)
        }
        Task::Give { secret, destination, directory, files } => {
            part::give(&secret, destination, &directory, &files, &mut daemon)
        }
        Task::Keep { secret, address, directory, own_beside, files } => {
            part::keep(&secret, address, (&directory, &own_beside), &files, &mut daemon)
        }
        Task::Store { access, directory, files, prefix } => {
            objects::store(&access, &directory, &files, &prefix, &mut daemon)
        }
        Task::Cut { secret, host, generation, code, directory, files, outlets } => {
            let (directory, files, outlets) = (&*directory, &*files, &*outlets);
            let part = pieces::Cut { host, generation, code, directory, files, outlets };
            pieces::cut(&secret, &part, &mut daemon)
        }
        Task::Settle { job, host, beside, replaced, manifest, key } => {
            manifests::settle((&job, host), (&beside, &replaced), &manifest, key.as_ref())
        }
        Task::Serve { secret, address, job } => pieces::serve(&secret, address, &job, &mut daemon),
        Task::Gather { secret, job, host, servers, wanted } => {
            pieces::gather(&secret, (&job, host), &servers, &wanted, &mut daemon)
        }
        Task::Flip { victim, drawn } => flip::flip(victim, drawn, &mut daemon),
        Task::Fetch { access, wanted } => objects::fetch(&access, &wanted, &mut daemon),
        Task::Load { image, key, locks } => {
            load::load(&image, key.as_ref(), locks, &mut daemon).map(|never| match never {})
        }
    };
    match outcome {
        Ok(()) => Ok(0),
        Err(error) => {
            // If sending fails, the daemon sees this process end.
            let _ = daemon.say(&Reply::Failed(told(&error)));
            Ok(1)
        }
    }
}
