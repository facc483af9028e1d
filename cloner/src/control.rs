//! Client of the agent's control socket: requests what only a thread of the process itself can do.

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

/// The agent answers at once, except for `park`, which has a limit of its own, and the embedder's hooks.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// Environment variable that names the directory of control sockets.
pub const DIRECTORY_VARIABLE: &str = "REDCLONE_DIR";
/// Bytes of the longest path that the directory of control sockets can have. A socket's address holds 107 bytes, and
/// the longest socket name is `new-XXXXXX.sock`.
pub const DIRECTORY_BYTES_MAX: usize = 107 - "/new-XXXXXX.sock".len();

/// Directory of this user's control sockets: `$REDCLONE_DIR`, or `/tmp/redclone-UID`. Created if it is missing.
///
/// Errors if other users can enter it, or own it.
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

/// Path at which the agent of process `pid` listens.
pub fn socket_path(pid: u32) -> io::Result<PathBuf> {
    Ok(directory()?.join(format!("{pid}.sock")))
}

/// Id, in this process's PID namespace, of the process that listens at `path`.
pub fn listener_pid(path: &Path) -> io::Result<u32> {
    let stream = UnixStream::connect(path)?;
    let peer = nix::sys::socket::getsockopt(&stream, nix::sys::socket::sockopt::PeerCredentials)?;
    u32::try_from(peer.pid()).map_err(io::Error::other)
}

/// A connection to the agent of a process, and the files of `/proc` that the agent handed over.
pub struct Control {
    stream: UnixStream,
    /// `/proc/PID` of the process, as a directory.
    pub proc: OwnedFd,
    /// `/proc/PID/mem`, open for reading.
    pub memory: File,
    /// `/proc/PID/pagemap`, open for reading.
    pub pagemap: File,
    block: u64,
    /// Bits of the extended processor states (AMX) that the process may use.
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
        // An agent whose socket was closed by the program still accepts one connection, without an answer. The next
        // attempt finds the socket closed, which gives the reason.
        Self::from_stream(reach()?).map_err(|error| reach().err().unwrap_or(error))
    }

    /// Greets the agent at the other end of `stream`. Errors if it has another version, or cannot open its own `/proc`.
    pub fn from_stream(stream: UnixStream) -> Result<Self, Error> {
        let phase = Phase::Prepare;
        stream.set_read_timeout(Some(ANSWER_LIMIT)).during(phase, Operation::AskAgent)?;
        let (reply, fds) = exchange(&stream, Ask::Hello, Request::default()).during(phase, Operation::AskAgent)?;
        if reply.version != VERSION {
            return Err(Error::refused(phase, Refusal::AgentVersion { theirs: reply.version, own: VERSION }));
        }
        let [proc, memory, pagemap]: [OwnedFd; 3] = fds.try_into().map_err(|_| {
            // /proc/self shows no memory once the first thread of the process has ended.
            Error::refused(phase, Refusal::AgentBlind)
        })?;
        let memory: File = memory.into();
        // Other kernels, such as 6.1, hand out a file that is empty then.
        if memory.read_exact_at(&mut [0], reply.a).is_err() {
            return Err(Error::refused(phase, Refusal::AgentBlind));
        }
        Ok(Self { stream, proc, memory, pagemap: pagemap.into(), block: reply.a, extended_state: reply.b })
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

    /// Makes a userfaultfd for the memory of the process, with these `UFFD_FEATURE_…` bits.
    pub fn userfaultfd(&self, features: u64) -> io::Result<OwnedFd> {
        self.ask_for_descriptor(Ask::Userfaultfd, Request { a: features, ..Request::default() })
    }

    /// Opens `/proc/PID/clear_refs` for writing.
    pub fn clear_refs(&self) -> io::Result<File> {
        Ok(self.ask_for_descriptor(Ask::ClearRefs, Request::default())?.into())
    }

    /// Duplicates descriptor `fd` of the process.
    pub fn descriptor(&self, fd: i32) -> io::Result<OwnedFd> {
        self.ask_for_descriptor(Ask::Descriptor, Request { arg: fd as u32, ..Request::default() })
    }

    /// Returns for each page of a range whether it is in memory (`mincore`).
    pub fn resident(&self, start: u64, len: u64) -> io::Result<Vec<bool>> {
        let (reply, _) = self.ask(Ask::Resident, Request { a: start, b: len, ..Request::default() })?;
        let mut bytes = vec![0; len.div_ceil(4096) as usize];
        self.memory.read_exact_at(&mut bytes, reply.a)?;
        Ok(bytes.into_iter().map(|byte| byte & 1 != 0).collect())
    }

    /// Frees the buffer in which the agent answered [`Control::resident`].
    pub fn forget_resident(&self) -> io::Result<()> {
        self.ask(Ask::Resident, Request::default()).map(drop)
    }

    /// Clears what an earlier attempt had the agent record.
    pub fn reset(&self) -> io::Result<()> {
        self.ask(Ask::Reset, Request::default()).map(drop)
    }

    /// Announces a POSIX timer that is to be carried. [`Control::collect`] reads its remaining time.
    pub fn record_timer(&self, timer: &Timer) -> io::Result<()> {
        let mut extra = [0_u64; 8];
        extra.as_mut_bytes().copy_from_slice(timer.as_bytes());
        self.ask(Ask::Timer, Request { extra, ..Request::default() }).map(drop)
    }

    /// Has the agent record the remaining time of announced timers and the other state of the stopped process.
    pub fn collect(&self) -> io::Result<()> {
        self.ask(Ask::Collect, Request::default()).map(drop)
    }

    /// Stops all threads, for one of the purposes in [`cloner_agent::abi`]. They go on when the result, or this
    /// connection, is dropped.
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

    /// Lets the threads of a copy begin. Errors with [`Ungranted`] if this host denies something that the source has.
    pub fn begin(&self) -> io::Result<()> {
        let reply = match exchange(&self.stream, Ask::Release, Request { arg: 1, ..Request::default() }) {
            // The copy may have run to its end before the agent could answer.
            Err(error) if has_ended(&error) => return Ok(()),
            reply => reply?.0,
        };
        if reply.status < 0 {
            let what = cloner_agent::abi::name_of_refused(reply.a as u32);
            return Err(io::Error::other(Ungranted { what, error: Errno::from_raw(-reply.status) }));
        }
        Ok(())
    }

    /// Reads the agent's block, and returns it with its address in the process.
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

    /// Reads the slots in use, with their addresses in the process.
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

    /// Reads a text file of `/proc/PID`. Invalid UTF-8 is replaced: names of programs and threads may be cut within a
    /// character, and are not used.
    pub fn proc_text(&self, name: &str) -> io::Result<String> {
        Ok(String::from_utf8_lossy(&self.proc_bytes(name)?).into_owned())
    }

    /// Reads a file of `/proc/PID`.
    pub fn proc_bytes(&self, name: &str) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.proc_file(name)?.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Opens a file of `/proc/PID` for reading.
    pub fn proc_file(&self, name: &str) -> io::Result<File> {
        let flags = nix::fcntl::OFlag::O_RDONLY | nix::fcntl::OFlag::O_CLOEXEC;
        Ok(nix::fcntl::openat(&self.proc, name, flags, nix::sys::stat::Mode::empty())?.into())
    }

    /// Lists the numeric names in a directory of `/proc/PID`, sorted.
    pub fn proc_numbers(&self, name: &str) -> io::Result<Vec<i32>> {
        let path = format!("/proc/self/fd/{}/{name}", self.proc.as_raw_fd());
        let mut numbers = Vec::new();
        for entry in fs::read_dir(path)? {
            numbers.extend(entry?.file_name().to_str().and_then(|name| name.parse::<i32>().ok()));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Returns true if every thread of the process has ended or is exiting.
    #[must_use]
    pub fn process_has_ended(&self) -> bool {
        process_has_ended(&format!("/proc/self/fd/{}", self.proc.as_raw_fd()))
    }

    /// Reads a symbolic link of `/proc/PID`.
    pub fn proc_link(&self, name: &str) -> io::Result<BString> {
        Ok(nix::fcntl::readlinkat(&self.proc, name)?.into_encoded_bytes().into())
    }
}

/// A process whose threads are stopped. They go on when this is dropped, which counts as a failed clone.
pub struct Parked<'a> {
    control: &'a Control,
    released: bool,
}

impl Parked<'_> {
    /// Lets the threads go on, after a clone that has succeeded so far.
    pub fn release(mut self) -> io::Result<()> {
        self.released = true;
        self.control.ask(Ask::Release, Request { arg: 1, ..Request::default() }).map(drop)
    }

    /// Ends the process, because its copy has taken its place.
    pub fn end(mut self) {
        self.released = true;
        // A process that has ended cannot answer.
        let _ = self.control.ask(Ask::Exit, Request::default());
    }
}

impl Drop for Parked<'_> {
    fn drop(&mut self) {
        if !self.released {
            // If this request does not reach the agent, the closed connection has the same effect.
            let _ = self.control.ask(Ask::Release, Request::default());
        }
    }
}

/// This host denies the copy something that its source has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the copy cannot have its source's {what} here: {error}")]
pub struct Ungranted {
    /// Name of the attribute.
    pub what: &'static str,
    /// Error of the call that failed.
    pub error: Errno,
}

/// The process did not answer in time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "process {pid} has not answered within {} s; if it is stopped (T in ps), let it go on with kill -CONT {pid}",
    limit.as_secs()
)]
pub struct Silent {
    /// Its id in this process's PID namespace.
    pub pid: i32,
    /// Time that was allowed.
    pub limit: Duration,
}

/// Returns true if all threads of the process with this directory in `/proc` are exiting.
///
/// The trap: a killed process loses its memory and descriptors before it leaves `/proc`, so it looks like one that
/// closed its socket.
fn process_has_ended(directory: &str) -> bool {
    const EXITING: u32 = 1 << 2;
    let ends = |tid: std::ffi::OsString| {
        let Ok(stat) = fs::read(Path::new(directory).join("task").join(tid).join("stat")) else { return true };
        let stat = String::from_utf8_lossy(&stat);
        // The second field may contain anything within parentheses. The flags of the thread are the ninth field.
        let flags = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(6)?.parse::<u32>().ok());
        flags.is_some_and(|flags| flags & EXITING != 0)
    };
    let Ok(threads) = fs::read_dir(Path::new(directory).join("task")) else { return true };
    threads.flatten().all(|thread| ends(thread.file_name()))
}

/// Names the state of the process that a socket error implies. An expired socket timeout is reported as `EWOULDBLOCK`.
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
            // SAFETY: - `fd` was just installed by `recvmsg` in this process: it is open, and has no other owner.
            fds.extend(received.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
        }
    }
    // A message with descriptors ends a `recvmsg` early, in spite of MSG_WAITALL; the rest of the reply is read here.
    // An empty one means that the agent has closed the connection.
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
    use nix::sys::socket::{Shutdown, shutdown};
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_program_that_has_closed_the_agents_socket_is_named_as_such() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("1.sock");
        let said = |pid| Control::connect_at(&path, pid).map(drop).unwrap_err().line();
        assert!(said(std::process::id()).contains("was not started by redclone run"));
        let listener = UnixListener::bind(&path).unwrap();
        // A client that connects while the agent sleeps in `accept` is accepted, and cannot be answered.
        let agent = std::thread::spawn(move || {
            let (connection, _) = listener.accept().unwrap();
            // A child that another test is starting may still have both: they end for it, too.
            shutdown(listener.as_raw_fd(), Shutdown::Both).unwrap();
            connection.shutdown(std::net::Shutdown::Both).unwrap();
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
        // A zombie: it has ended and was not reaped.
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
    fn a_silent_process_is_named_with_the_time_and_a_remedy() {
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
