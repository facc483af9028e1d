//! Helpers of the daemon: the parents of processes that can be cloned, and those who send and receive images.
//!
//! ```text
//!  redrtd ── redrtd --helper (hold)    ── first process of a namespace ── program
//!        ├─ redrtd --helper (receive) ── first process of a namespace ── receiver, which becomes the copy
//!        ├─ redrtd --helper (send)    ═══ memory ═══▶ receiver
//!        ├─ redrtd --helper (save)    ═══ memory ═══▶ file
//!        ├─ redrtd --helper (give)    ═══ files ═══▶ redrtd --helper (keep) of another host
//!        ├─ redrtd --helper (store)   ── redstore ═══ files ═══▶ object store
//!        ├─ redrtd --helper (flip)    ── ptrace ──▶ a thread of a process of this host
//!        ├─ redrtd --helper (fetch)   ── redstore ◀═══ files ═══ object store
//!        └─ redrtd --helper (load)    ── first process of a namespace ── receiver, which becomes what the file has
//! ```
//! Each is a program of one thread when it begins, because namespaces are entered, and processes forked, by such only.
//! It talks to the daemon over a socket: a [`Task`] comes in, then [`Word`]s; [`Reply`]s go out.

mod flip;
#[cfg(test)]
mod fuzz;
mod hold;
mod load;
mod objects;
mod part;
mod receive;
mod save;
mod send;

pub use flip::Victim;

use super::descriptors::HELPER_FD;
use anyhow::{Context, Result, bail};
use cloner::control::Control;
use cloner::image::digests::Contents;
use cloner::source::{self, Event, Options, Report};
use cloner::{Phase, ProcessEnded};
use control_network::link::{Link, Received};
use line_files::remote::Access;
use nix::sys::signal::{SigSet, Signal};
use redrt_wire::clone::{Cost, Progress};
use redrt_wire::daemon::Application;
use redrt_wire::frame::{FrameReader, encode};
use redrt_wire::line::{Building, Compression, Generation, Step, UndoPlace};
use redrt_wire::no_image::Told;
use redrt_wire::object::{Entry, Stored};
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

/// Progress is told this often.
const TELL_INTERVAL: Duration = Duration::from_millis(100);
/// Streams that carry an image.
const STREAM_COUNT: u16 = 2;

/// What a helper is to do.
#[derive(Debug, Serialize, Deserialize)]
pub enum Task {
    /// Start a program that can be cloned, and end as it ends.
    Hold(Application),
    /// Receive an image, become the parent of its copy, and end as it ends.
    Receive {
        /// The sender must know it.
        secret: Secret,
        /// The address to listen at.
        address: IpAddr,
    },
    /// Clone a process of this host.
    Send {
        /// To be proved to the receiver.
        secret: Secret,
        /// The process.
        pid: i32,
        /// Where the receiver listens.
        destination: SocketAddr,
        /// The copy's memory is compared with this one's.
        verifies: bool,
        /// A fault to inject.
        flipped_bit: Option<u64>,
    },
    /// Write the image of a process of this host to a file.
    Save {
        /// The process.
        pid: i32,
        /// The file.
        #[serde(with = "redrt_types::path_bytes")]
        image: PathBuf,
        /// Another for the memory that the processes of this host share, if this helper is to write it.
        #[serde(with = "redrt_types::path_bytes::option")]
        memory: Option<PathBuf>,
        /// The log of changed files, and a file for its length, if this helper is to see to it.
        undo: Option<UndoTask>,
        /// The file goes into a place of this host, which is made, and beside it these lines are kept.
        own_beside: Option<Vec<Generation>>,
        /// Whether the image is built on another.
        building: Building,
        /// How the image is compressed.
        compression: Compression,
        /// The key with which both are encrypted.
        key: Option<Secret>,
    },
    /// Send files of a line to another host.
    Give {
        /// To be proved to the receiver.
        secret: Secret,
        /// Where the receiver listens.
        destination: SocketAddr,
        /// Where the files are.
        #[serde(with = "redrt_types::path_bytes")]
        directory: PathBuf,
        /// Their names.
        files: Vec<String>,
    },
    /// Receive them.
    Keep {
        /// The sender must know it.
        secret: Secret,
        /// The address to listen at.
        address: IpAddr,
        /// The place where they go.
        #[serde(with = "redrt_types::path_bytes")]
        directory: PathBuf,
        /// Lines that are kept beside it.
        own_beside: Vec<Generation>,
        /// Their names.
        files: Vec<String>,
    },
    /// Put files of a line into an object store.
    Store {
        /// How that is reached.
        access: Access,
        /// Where the files are.
        #[serde(with = "redrt_types::path_bytes")]
        directory: PathBuf,
        /// Their names.
        files: Vec<String>,
        /// What goes before each name, there.
        prefix: String,
    },
    /// Get files from an object store.
    Fetch {
        /// How that is reached.
        access: Access,
        /// Which, and where they go.
        wanted: Vec<Entry>,
    },
    /// Flip a bit of the registers or the stack of a thread.
    Flip {
        /// The thread.
        victim: Victim,
        /// Which bit, and when.
        drawn: u64,
    },
    /// Become the parent of the process that a file has, and end as it ends.
    Load {
        /// The file.
        #[serde(with = "redrt_types::path_bytes")]
        image: PathBuf,
        /// The key with which it may be encrypted.
        key: Option<Secret>,
        /// No other process goes on from it: the process has its locks of files again.
        locks: bool,
    },
}

/// The log of changed files, to which a helper sees.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct UndoTask {
    /// Where it is.
    pub place: UndoPlace,
    /// The file for its length.
    #[serde(with = "redrt_types::path_bytes")]
    pub cut: PathBuf,
}

/// What the daemon says later.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Word {
    /// All of a line have come as far: what was written meanwhile is to be copied, until what is left is small again.
    Round,
    /// The process may be stopped.
    Cut,
    /// What it has printed was taken; it may go on. One whose image is saved stays stopped until [`Word::Release`].
    GoOn,
    /// All processes of the line are copied.
    Release,
}

/// What a helper says.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Reply {
    /// The program, or the copy, runs, with this process id here.
    Running {
        /// The id.
        pid: i32,
    },
    /// An image can be sent here.
    Listening(SocketAddr),
    /// Memory is going over.
    Progress(Progress),
    /// What is left is small. Waits for [`Word::Cut`], and one that saves an image for [`Word::Round`] before.
    Ready,
    /// The process is stopped. Waits for [`Word::GoOn`].
    Stopped {
        /// What it has not read of what is in its standard input.
        #[serde(with = "serde_bytes")]
        unread: Vec<u8>,
        /// A script has started it, and is not copied.
        is_below_script: bool,
    },
    /// What is left of the process is copied. Waits for [`Word::Release`].
    Copied,
    /// The copy runs, or the files have gone.
    Sent(Cost),
    /// The image is on the disk.
    Saved(Cost, Vec<Step>),
    /// The files are on the disk; their size in bytes.
    Kept(u64),
    /// How many bytes have gone to the object store, or come from it.
    Moved(u64),
    /// The files are in the object store.
    Stored(Vec<Stored>),
    /// They are here.
    Fetched,
    /// The bit has flipped.
    Flipped {
        /// Which one.
        what: String,
        /// How many instructions the thread had made.
        steps: u64,
        /// Where it was then.
        place: String,
    },
    /// Nothing came of it.
    Failed(Told),
}

/// Takes all that a helper has said, and whether it says nothing more: it has closed its connection, or what it says
/// cannot be read.
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

/// The helper's end of the connection to the daemon.
struct Daemon {
    stream: UnixStream,
    frames: FrameReader,
}

impl Daemon {
    fn say(&mut self, reply: &Reply) -> Result<()> {
        self.stream.write_all(&encode(reply)).context("the daemon is gone")
    }

    fn hear<T: serde::de::DeserializeOwned>(&mut self) -> Result<T> {
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
        let heard: Word = self.hear()?;
        anyhow::ensure!(heard == word, "the daemon says {heard:?} instead of {word:?}");
        Ok(())
    }
}

/// The agent of a process that was there when this helper was started.
fn connect(pid: i32) -> Result<Control> {
    let connected = Control::connect(pid as u32);
    connected.map_err(|error| if error.is_of_end() { ProcessEnded.into() } else { anyhow::Error::new(error) })
}

/// What the daemon is told while the image of a process is made: of rounds of memory, not more often than it is worth,
/// and of the moments at which it is waited for.
fn event_teller(control: &Control) -> impl FnMut(&Event, &mut Daemon) -> Result<()> {
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

/// Ends this process when the daemon could not be told, or did not answer: nobody wants the image any more. The agent
/// sees that this process is gone, and lets the program's threads go on.
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

/// What the daemon is told of an error: all of its causes, and whether one of them is lasting.
fn told(error: &anyhow::Error) -> Told {
    let is_lasting = |cause: &(dyn std::error::Error + 'static)| match cause.downcast_ref::<cloner::Error>() {
        Some(error) => error.is_lasting(),
        None => cause.downcast_ref::<std::io::Error>().is_some_and(|error| cloner::told_of(error).is_lasting),
    };
    Told { sentence: format!("{error:#}"), is_lasting: error.chain().any(is_lasting) }
}

/// Does what the daemon asks for; the exit code of the helper.
pub fn help() -> Result<i32> {
    // The program that a helper holds looks for a parent of this name.
    nix::sys::prctl::set_name(c"redrtd")?;
    // SAFETY: the daemon has put its socket there for this process, which has just begun.
    let fd = unsafe { OwnedFd::from_raw_fd(HELPER_FD) };
    nix::fcntl::fcntl(&fd, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::FD_CLOEXEC))
        .context("a helper is started by redrtd alone")?;
    let mut daemon = Daemon { stream: fd.into(), frames: FrameReader::default() };
    let task = daemon.hear()?;
    if matches!(task, Task::Save { .. } | Task::Keep { .. } | Task::Fetch { .. }) {
        // A limit of file sizes (`ulimit -f`) is an error as others are. Helpers that become programs have it as it
        // was.
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
        Task::Flip { victim, drawn } => flip::flip(victim, drawn, &mut daemon),
        Task::Fetch { access, wanted } => objects::fetch(&access, &wanted, &mut daemon),
        Task::Load { image, key, locks } => {
            load::load(&image, key.as_ref(), locks, &mut daemon).map(|never| match never {})
        }
    };
    match outcome {
        Ok(()) => Ok(0),
        Err(error) => {
            // If it is not heard, the daemon sees that this process ends.
            let _ = daemon.say(&Reply::Failed(told(&error)));
            Ok(1)
        }
    }
}
