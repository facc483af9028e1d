//! The other end of the agent's socket: how one that clones asks for what only the process itself can do.

use crate::error::{During, Error, Operation, Phase, ProcessEnded, has_ended};
use crate::refusal::{NoAgent, Refusal};
use bstr::BString;
use cloner_agent::abi::{Ask, Block, MAGIC, Reply, Request, Slot, Timer, VERSION};
use nix::errno::Errno;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use std::fs::{self, File};
use std::io::{self, IoSliceMut, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use zerocopy::{FromBytes, IntoBytes};

/// The agent answers at once, except to `park`, which may take as long as its own limit, and the embedder's hooks.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// Environment variable that names the directory of control sockets.
pub const DIRECTORY_VARIABLE: &str = "REDCLONE_DIR";
/// The longest path that the directory of control sockets can have: 107 bytes are the most that a socket's address
/// takes, and the longest of the sockets' names is `new-XXXXXX.sock`.
pub const DIRECTORY_BYTES_MAX: usize = 107 - "/new-XXXXXX.sock".len();

/// The directory of this user's control sockets: `$REDCLONE_DIR`, or one in `/tmp` that nobody else may enter.
pub fn directory() -> io::Result<PathBuf> {
    let path = match std::env::var_os(DIRECTORY_VARIABLE) {
        Some(path) => PathBuf::from(path),
        None => PathBuf::from(format!("/tmp/redclone-{}", nix::unistd::geteuid())),
    };
    match fs::DirBuilder::new().mode(0o700).create(&path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let facts = fs::symlink_metadata(&path)?;
    if !facts.is_dir() || facts.uid() != nix::unistd::geteuid().as_raw() || facts.mode() & 0o077 != 0 {
        let text = format!("{} must be a directory that only you can use", path.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    Ok(path)
}

/// Where the agent of process `pid` listens.
pub fn socket_path(pid: u32) -> io::Result<PathBuf> {
    Ok(directory()?.join(format!("{pid}.sock")))
}

/// The process id, as seen from here, of the one that listens at `path`.
pub fn listener_pid(path: &Path) -> io::Result<u32> {
    let stream = UnixStream::connect(path)?;
    let peer = nix::sys::socket::getsockopt(&stream, nix::sys::socket::sockopt::PeerCredentials)?;
    u32::try_from(peer.pid()).map_err(io::Error::other)
}

/// The agent of a process.
pub struct Control {
    stream: UnixStream,
    /// `/proc/PID` of the process.
    pub proc: OwnedFd,
    /// Its memory.
    pub memory: File,
    /// Its page map.
    pub pagemap: File,
    block: u64,
    /// Extended processor state (AMX) that the process may use.
    pub extended_state: u64,
}

impl Control {
    /// Connects to the agent of process `pid`.
    pub fn connect(pid: u32) -> Result<Self, Error> {
        let phase = Phase::Prepare;
        let path = socket_path(pid).during(phase, Operation::FindAgents)?;
        Self::connect_at(&path, pid)
    }

    fn connect_at(path: &Path, pid: u32) -> Result<Self, Error> {
        let phase = Phase::Prepare;
        let reach = || {
            UnixStream::connect(path).map_err(|error| {
                let why = match error.kind() {
                    _ if process_has_ended(&format!("/proc/{pid}")) => NoAgent::NoProcess,
                    io::ErrorKind::ConnectionRefused => NoAgent::Closed,
                    _ => NoAgent::NeverStarted,
                };
                Error::refused(phase, Refusal::NoAgent { pid, why })
            })
        };
        // An agent that finds its socket closed cannot accept the first that connects, and no other can.
        Self::from_stream(reach()?).map_err(|error| reach().err().unwrap_or(error))
    }

    /// Greets the agent at the other end of `stream`.
    pub fn from_stream(stream: UnixStream) -> Result<Self, Error> {
        let phase = Phase::Prepare;
        stream.set_read_timeout(Some(ANSWER_LIMIT)).during(phase, Operation::AskAgent)?;
        let (reply, fds) = exchange(&stream, Ask::Hello, Request::default()).during(phase, Operation::AskAgent)?;
        if reply.version != VERSION {
            return Err(Error::refused(phase, Refusal::AgentVersion { theirs: reply.version, own: VERSION }));
        }
        let [proc, memory, pagemap]: [OwnedFd; 3] = fds.try_into().map_err(|_| {
            // /proc/self shows nothing of a process whose first thread has gone.
            Error::refused(phase, Refusal::AgentBlind)
        })?;
        Ok(Self {
            stream,
            proc,
            memory: memory.into(),
            pagemap: pagemap.into(),
            block: reply.a,
            extended_state: reply.b,
        })
    }

    fn ask(&self, ask: Ask, request: Request) -> io::Result<(Reply, Vec<OwnedFd>)> {
        let (reply, fds) = exchange(&self.stream, ask, request)?;
        if reply.status < 0 {
            return Err(io::Error::from_raw_os_error(-reply.status));
        }
        Ok((reply, fds))
    }

    fn ask_for_descriptor(&self, ask: Ask, request: Request) -> io::Result<OwnedFd> {
        let (_, fds) = self.ask(ask, request)?;
        fds.into_iter().next().ok_or_else(|| io::Error::other("the agent sent no descriptor"))
    }

    /// A userfaultfd of the process.
    pub fn userfaultfd(&self, features: u64) -> io::Result<OwnedFd> {
        self.ask_for_descriptor(Ask::Userfaultfd, Request { a: features, ..Request::default() })
    }

    /// `/proc/PID/clear_refs`, for writing.
    pub fn clear_refs(&self) -> io::Result<File> {
        Ok(self.ask_for_descriptor(Ask::ClearRefs, Request::default())?.into())
    }

    /// A duplicate of a descriptor of the process.
    pub fn descriptor(&self, fd: i32) -> io::Result<OwnedFd> {
        self.ask_for_descriptor(Ask::Descriptor, Request { arg: fd as u32, ..Request::default() })
    }

    /// For each page of a range, whether it is in memory.
    pub fn resident(&self, start: u64, len: u64) -> io::Result<Vec<bool>> {
        let (reply, _) = self.ask(Ask::Resident, Request { a: start, b: len, ..Request::default() })?;
        let mut bytes = vec![0; len.div_ceil(4096) as usize];
        self.memory.read_exact_at(&mut bytes, reply.a)?;
        Ok(bytes.into_iter().map(|byte| byte & 1 != 0).collect())
    }

    /// Frees the memory in which the agent has answered [`Control::resident`].
    pub fn forget_resident(&self) -> io::Result<()> {
        self.ask(Ask::Resident, Request::default()).map(drop)
    }

    /// Forgets what an earlier attempt noted.
    pub fn reset(&self) -> io::Result<()> {
        self.ask(Ask::Reset, Request::default()).map(drop)
    }

    /// Notes a POSIX timer that is to be carried.
    pub fn note_timer(&self, timer: &Timer) -> io::Result<()> {
        let mut extra = [0_u64; 8];
        extra.as_mut_bytes().copy_from_slice(timer.as_bytes());
        self.ask(Ask::Timer, Request { extra, ..Request::default() }).map(drop)
    }

    /// Has the agent note what is left of the timers that it was told of, and all else that it notes of a stopped
    /// process.
    pub fn collect(&self) -> io::Result<()> {
        self.ask(Ask::Collect, Request::default()).map(drop)
    }

    /// Stops all threads, for one of the purposes in [`cloner_agent::abi`]. When this control goes away, they go on.
    pub fn park(&self, purpose: u32) -> Result<Parked<'_>, Error> {
        let request = Request { arg: purpose, ..Request::default() };
        let (reply, _) = exchange(&self.stream, Ask::Park, request).during(Phase::Cut, Operation::AskAgent)?;
        if reply.status < 0 {
            let cause = io::Error::from_raw_os_error(-reply.status);
            let operation = match reply.tid {
                0 => Operation::Stop,
                tid => Operation::StopThread(tid),
            };
            return Err(Error::System { phase: Phase::Cut, operation, cause });
        }
        Ok(Parked { control: self, released: false })
    }

    /// Lets the threads of a copy begin. An error when it could not be given all that its source has.
    pub fn begin(&self) -> io::Result<()> {
        let reply = match exchange(&self.stream, Ask::Release, Request { arg: 1, ..Request::default() }) {
            // It may come to its end before the agent can answer.
            Err(error) if has_ended(&error) => return Ok(()),
            reply => reply?.0,
        };
        if reply.status < 0 {
            let what = cloner_agent::abi::name_of_refused(reply.a as u32);
            return Err(io::Error::other(Ungranted { what, error: Errno::from_raw(-reply.status) }));
        }
        Ok(())
    }

    /// The agent's block, as it is now.
    pub fn block(&self) -> io::Result<(u64, Box<Block>)> {
        let mut bytes = vec![0; size_of::<Block>()];
        self.memory.read_exact_at(&mut bytes, self.block)?;
        let block =
            Block::read_from_bytes(&bytes).map_err(|_| io::Error::other("the agent's block has another size"))?;
        if block.magic != MAGIC || block.version != VERSION {
            return Err(io::Error::other("the agent's block is not where it says"));
        }
        Ok((self.block, Box::new(block)))
    }

    /// The slots in use, with their addresses.
    pub fn slots(&self, block: &Block) -> io::Result<Vec<(u64, Slot)>> {
        let mut bytes = vec![0; size_of::<Slot>() * block.slot_count.min(block.slot_capacity) as usize];
        self.memory.read_exact_at(&mut bytes, block.slots)?;
        bytes
            .chunks_exact(size_of::<Slot>())
            .enumerate()
            .map(|(index, chunk)| {
                let slot = Slot::read_from_bytes(chunk).map_err(|_| io::Error::other("a slot has another size"))?;
                Ok((block.slots + (index * size_of::<Slot>()) as u64, slot))
            })
            .collect()
    }

    /// Reads a text file of `/proc/PID`. The name of a program or thread in it may end in the midst of a letter, and is
    /// not what the file is read for.
    pub fn proc_text(&self, name: &str) -> io::Result<String> {
        Ok(String::from_utf8_lossy(&self.proc_bytes(name)?).into_owned())
    }

    /// Reads a file of `/proc/PID`.
    pub fn proc_bytes(&self, name: &str) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.proc_file(name)?.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Opens a file of `/proc/PID`.
    pub fn proc_file(&self, name: &str) -> io::Result<File> {
        let flags = nix::fcntl::OFlag::O_RDONLY | nix::fcntl::OFlag::O_CLOEXEC;
        Ok(nix::fcntl::openat(&self.proc, name, flags, nix::sys::stat::Mode::empty())?.into())
    }

    /// Names in a directory of `/proc/PID` that are numbers, in order.
    pub fn proc_numbers(&self, name: &str) -> io::Result<Vec<i32>> {
        let path = format!("/proc/self/fd/{}/{name}", self.proc.as_raw_fd());
        let mut numbers = Vec::new();
        for entry in fs::read_dir(path)? {
            numbers.extend(entry?.file_name().to_str().and_then(|name| name.parse::<i32>().ok()));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Whether the process has ended, or is about to: none of its threads does anything any more.
    #[must_use]
    pub fn process_has_ended(&self) -> bool {
        process_has_ended(&format!("/proc/self/fd/{}", self.proc.as_raw_fd()))
    }

    /// Where a link of `/proc/PID` points.
    pub fn proc_link(&self, name: &str) -> io::Result<BString> {
        Ok(nix::fcntl::readlinkat(&self.proc, name)?.into_encoded_bytes().into())
    }
}

/// The process while its threads are stopped. Dropping it lets them go on.
pub struct Parked<'a> {
    control: &'a Control,
    released: bool,
}

impl Parked<'_> {
    /// Lets the threads go on, after a clone that went well so far.
    pub fn release(mut self) -> io::Result<()> {
        self.released = true;
        self.control.ask(Ask::Release, Request { arg: 1, ..Request::default() }).map(drop)
    }

    /// Ends the process, which has moved.
    pub fn end(mut self) {
        self.released = true;
        // There is no answer from a process that has ended.
        let _ = self.control.ask(Ask::Exit, Request::default());
    }
}

impl Drop for Parked<'_> {
    fn drop(&mut self) {
        if !self.released {
            // If the agent does not hear this, it sees the end of the connection, with the same effect.
            let _ = self.control.ask(Ask::Release, Request::default());
        }
    }
}

/// The host does not let the copy have something that its source has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the copy cannot have its source's {what} here: {error}")]
pub struct Ungranted {
    /// What it is.
    pub what: &'static str,
    /// What the system said.
    pub error: Errno,
}

/// The process that was asked has not answered in time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "process {pid} has not answered within {} s; if it is stopped (T in ps), let it go on with kill -CONT {pid}",
    limit.as_secs()
)]
pub struct Silent {
    /// Its id, as seen from here.
    pub pid: i32,
    /// How long it was waited for.
    pub limit: Duration,
}

/// Whether all threads of the process with this directory of `/proc` are ending.
///
/// The trap: one that was killed has no memory and no descriptors any more before it is gone from `/proc`, so that it
/// seems to have closed them.
fn process_has_ended(directory: &str) -> bool {
    const EXITING: u32 = 1 << 2;
    let ends = |tid: std::ffi::OsString| {
        let Ok(stat) = fs::read(Path::new(directory).join("task").join(tid).join("stat")) else { return true };
        let stat = String::from_utf8_lossy(&stat);
        // The second field may contain anything, in parentheses; the flags of the thread are the ninth.
        let flags = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(6)?.parse::<u32>().ok());
        flags.is_some_and(|flags| flags & EXITING != 0)
    };
    let Ok(threads) = fs::read_dir(Path::new(directory).join("task")) else { return true };
    threads.flatten().all(|thread| ends(thread.file_name()))
}

/// What an error of the socket to the agent says of the process. A time limit that has passed looks to the system as
/// if there were nothing to read yet.
fn of_process(error: io::Error, stream: &UnixStream) -> io::Error {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, TimedOut, UnexpectedEof, WouldBlock};
    match error.kind() {
        BrokenPipe | ConnectionReset | UnexpectedEof => io::Error::new(BrokenPipe, ProcessEnded),
        WouldBlock | TimedOut => {
            let peer = nix::sys::socket::getsockopt(stream, nix::sys::socket::sockopt::PeerCredentials);
            let limit = stream.read_timeout().ok().flatten().unwrap_or(ANSWER_LIMIT);
            peer.map_or(error, |peer| io::Error::new(TimedOut, Silent { pid: peer.pid(), limit }))
        }
        _ => error,
    }
}

fn exchange(stream: &UnixStream, ask: Ask, request: Request) -> io::Result<(Reply, Vec<OwnedFd>)> {
    try_exchange(stream, ask, request).map_err(|error| of_process(error, stream))
}

fn try_exchange(mut stream: &UnixStream, ask: Ask, request: Request) -> io::Result<(Reply, Vec<OwnedFd>)> {
    let request = Request { ask: ask as u32, ..request };
    stream.write_all(request.as_bytes())?;
    let mut bytes = [0_u8; size_of::<Reply>()];
    let mut space = nix::cmsg_space!([i32; 3]);
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let flags = MsgFlags::MSG_CMSG_CLOEXEC | MsgFlags::MSG_WAITALL;
    let message = recvmsg::<()>(stream.as_raw_fd(), &mut parts, Some(&mut space), flags)?;
    let mut fds = Vec::new();
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(received) = control {
            // SAFETY: - the kernel has just made these descriptors for this process, and nobody else has them.
            fds.extend(received.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
        }
    }
    // What brings descriptors comes by itself, whatever was asked for. When all is here the agent has closed them.
    let filled = message.bytes;
    if filled == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    stream.read_exact(&mut bytes[filled..])?;
    let reply = Reply::read_from_bytes(&bytes).map_err(|_| io::Error::other("a reply has another size"))?;
    Ok((reply, fds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_program_that_has_closed_the_agents_socket_is_named_as_such() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("1.sock");
        let said = |pid| Control::connect_at(&path, pid).map(drop).unwrap_err().line();
        assert!(said(std::process::id()).contains("was not started by redclone run"));
        let listener = UnixListener::bind(&path).unwrap();
        // One that connects while the agent sleeps in accept is let in, and cannot be answered.
        let agent = std::thread::spawn(move || {
            let connection = listener.accept().unwrap();
            drop(listener);
            drop(connection);
        });
        assert!(said(std::process::id()).contains(&NoAgent::Closed.to_string()));
        agent.join().unwrap();
        assert!(said(std::process::id()).contains(&NoAgent::Closed.to_string()));
        assert!(said(i32::MAX as u32).contains("there is no such process"));
    }

    #[test]
    fn a_process_has_ended_when_all_of_its_threads_have() {
        assert!(!process_has_ended("/proc/self"));
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let directory = format!("/proc/{}", child.id());
        assert!(!process_has_ended(&directory));
        child.kill().unwrap();
        // It has ended, and nobody has asked how.
        let id = nix::sys::wait::Id::Pid(nix::unistd::Pid::from_raw(child.id() as i32));
        let flags = nix::sys::wait::WaitPidFlag::WEXITED | nix::sys::wait::WaitPidFlag::WNOWAIT;
        nix::sys::wait::waitid(id, flags).unwrap();
        assert!(Path::new(&directory).exists() && process_has_ended(&directory));
        child.wait().unwrap();
        assert!(process_has_ended(&directory));
        let (stream, agent) = UnixStream::pair().unwrap();
        drop(agent);
        assert!(has_ended(&exchange(&stream, Ask::Hello, Request::default()).unwrap_err()));
    }

    #[test]
    fn a_process_that_does_not_answer_is_named_with_the_time_and_what_to_do() {
        let (stream, _agent) = UnixStream::pair().unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        let error = exchange(&stream, Ask::Hello, Request::default()).unwrap_err();
        let pid = std::process::id();
        let limit = stream.read_timeout().unwrap().unwrap();
        let silent = Silent { pid: pid as i32, limit };
        assert_eq!(error.get_ref().and_then(|inner| inner.downcast_ref::<Silent>()), Some(&silent));
        assert!(error.to_string().ends_with(&format!("kill -CONT {pid}")), "{error}");
    }
}
