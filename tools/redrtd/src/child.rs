//! A process of the daemon: its pid, its agent's socket, its pipes.

use control_network::link::Link;
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use redrt_types::{Incarnation, ReplicaId};
use redrt_wire::clone::CloneId;
use redrt_wire::control::ToAgent;
use redrt_wire::daemon::Stream;
use redrt_wire::exit::Exit;
use redrt_wire::fault::ProcessFault;
use replica_output::corruption::Corruption;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Instant;

const READ_BYTES: usize = 64 << 10;

/// A copy that a child is to become.
#[derive(Clone, Copy)]
pub struct Copy {
    /// The clone that makes it.
    pub id: CloneId,
    pub incarnation: Incarnation,
    /// True once `redrun` knows that the clone has failed.
    pub has_failed: bool,
}

/// Meaning of an event on a child's descriptor; part of the epoll token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChildEvent {
    /// The pidfd: the process died.
    Death,
    Agent,
    Output,
    Error,
    /// Standard input can take more.
    Input,
    /// The socket of the helper that is its parent.
    Helper,
    /// Socket of a helper that sends an image; the number is the clone's.
    Sender,
    /// Socket of a helper that saves an image; the number is its child's.
    Saver,
    /// Socket of a helper that sends or receives files; the number is its own.
    Carrier,
    /// Socket of the helper that fetches files from an object store.
    Fetcher,
    /// Socket of a helper that flips a bit; the number is its own.
    Flipper,
}

const KINDS: [ChildEvent; 11] = [
    ChildEvent::Death,
    ChildEvent::Agent,
    ChildEvent::Output,
    ChildEvent::Error,
    ChildEvent::Input,
    ChildEvent::Helper,
    ChildEvent::Sender,
    ChildEvent::Saver,
    ChildEvent::Carrier,
    ChildEvent::Fetcher,
    ChildEvent::Flipper,
];
const KIND_BITS: u32 = 4;

impl ChildEvent {
    /// Epoll token for child `number`'s descriptor of this kind.
    pub fn token(self, number: usize) -> u64 {
        (number as u64) << KIND_BITS | self as u64
    }

    /// The inverse of [`ChildEvent::token`].
    pub fn of_token(token: u64) -> (usize, Self) {
        ((token >> KIND_BITS) as usize, KINDS[(token & ((1 << KIND_BITS) - 1)) as usize])
    }
}

/// Result of reading a pipe.
pub enum Read {
    Bytes(Vec<u8>),
    /// The pipe is empty for now.
    Nothing,
    /// The pipe has no writer any more.
    End,
}

/// A pipe; `watched` while it is registered with epoll.
pub struct Pipe {
    fd: OwnedFd,
    watched: bool,
}

impl Pipe {
    /// Takes over the reading end, which must be non-blocking and registered with epoll.
    pub fn new(fd: OwnedFd) -> Self {
        Self { fd, watched: true }
    }
}

/// Number of times that a printing process which has not called `MPI_Init` is checked for another MPI. A program that
/// uses one has mapped it before it prints results.
pub const MPI_LOOKS: u32 = 64;

/// A replica started by this daemon.
pub struct Child {
    pub replica: ReplicaId,
    /// The child process, which leads its own process group.
    pub pid: Pid,
    /// The replica's process: the child itself, or one below it if the child is a helper. `None` until it runs.
    pub program: Option<Pid>,
    pub helper: Option<Link<UnixStream>>,
    /// The copy that it is to become. `None` once the copy is in a view.
    pub copy: Option<Copy>,
    /// True if it continues from an image, along with the whole job.
    pub is_restored: bool,
    /// True for the copy of a program below a script: the script itself is not copied.
    pub lacks_script: bool,
    /// Bytes printed to standard output, including those of the source before the copy.
    pub printed_bytes: u64,
    /// Faults to inject into the output.
    pub corruptions: Vec<Corruption>,
    /// Injected faults that `redrun` has not been sent yet.
    pub corrupted: Vec<(ProcessFault, String)>,
    pub pidfd: OwnedFd,
    pub agent: Option<Link<UnixStream>>,
    /// True while epoll watches the agent's socket for writing.
    pub agent_watched_for_writing: bool,
    /// True once the agent has sent `Hello`.
    pub greeted: bool,
    /// Standard output and standard error, while they are open.
    pub pipes: [Option<Pipe>; 2],
    /// Standard input of rank 0.
    pub input: Option<OwnedFd>,
    pub exit: Option<Exit>,
    /// Time at which the pipes are closed even if they have writers.
    pub drain_deadline: Option<Instant>,
    /// True once `redrun` was told that no more output comes.
    pub drained: bool,
    /// True while `redrun` wants its output left in the pipes.
    pub held: bool,
    /// File that counts kills for want of memory.
    pub kills: Option<PathBuf>,
    /// Remaining checks for another MPI.
    pub mpi_looks_left: u32,
}

impl Child {
    /// Descriptors to register with epoll.
    pub fn descriptors(&self) -> Vec<(ChildEvent, BorrowedFd<'_>)> {
        let mut all = vec![(ChildEvent::Death, self.pidfd.as_fd())];
        all.extend(self.agent.as_ref().map(|agent| (ChildEvent::Agent, agent.fd())));
        let [output, error] = &self.pipes;
        all.extend(output.as_ref().map(|pipe| (ChildEvent::Output, pipe.fd.as_fd())));
        all.extend(error.as_ref().map(|pipe| (ChildEvent::Error, pipe.fd.as_fd())));
        all.extend(self.input.as_ref().map(|fd| (ChildEvent::Input, fd.as_fd())));
        all.extend(self.helper.as_ref().map(|helper| (ChildEvent::Helper, helper.fd())));
        all
    }

    /// Sends to the agent. A broken connection shows at the next read.
    pub fn send(&mut self, message: &ToAgent) {
        if let Some(agent) = &mut self.agent {
            let _ = agent.send(message);
        }
    }

    /// True if the agent's socket is readable.
    pub fn agent_has_input(&self) -> bool {
        use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
        let Some(agent) = &self.agent else { return false };
        let mut fds = [PollFd::new(agent.fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::ZERO).is_ok_and(|count| count > 0)
    }

    /// Signals the process alone.
    pub fn signal(&self, signal: i32) {
        if let (None, Ok(signal)) = (self.exit, Signal::try_from(signal)) {
            let _ = kill(self.program.unwrap_or(self.pid), signal);
        }
    }

    /// Delivers a user's signal to the program, including processes that a script has started. With a helper in the
    /// process group only the program gets it.
    pub fn deliver(&self, signal: i32) {
        let Ok(signal) = Signal::try_from(signal) else { return };
        match self.program {
            Some(program) if program == self.pid => self.signal_group(signal),
            Some(_) => self.signal(signal as i32),
            None => {}
        }
    }

    pub fn signal_group(&self, signal: Signal) {
        if self.exit.is_none() {
            let _ = killpg(self.pid, signal);
        }
    }

    pub fn kill_group(&self) {
        if self.exit.is_none() {
            let _ = killpg(self.pid, Signal::SIGKILL);
            let _ = kill(self.pid, Signal::SIGKILL);
        }
    }

    /// Collects the exit of a dead process. After a failure the rest of its process group is killed.
    pub fn reap(&mut self) -> nix::Result<Option<Exit>> {
        use nix::sys::wait::{Id, waitid};
        let peek = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        let exit = match waitid(Id::Pid(self.pid), peek)? {
            WaitStatus::Exited(_, status) => Exit::Status(status),
            WaitStatus::Signaled(_, signal, _) => Exit::Signal(signal as i32),
            _ => return Ok(None),
        };
        if exit != Exit::Status(0) {
            // Before the reaping: until then the number cannot belong to another group.
            let _ = killpg(self.pid, Signal::SIGKILL);
        }
        waitpid(self.pid, Some(WaitPidFlag::WNOHANG))?;
        self.exit = Some(exit);
        Ok(Some(exit))
    }

    pub fn read(&mut self, stream: Stream) -> Read {
        let Some(pipe) = &self.pipes[stream as usize] else { return Read::End };
        let mut buffer = vec![0; READ_BYTES];
        match nix::unistd::read(&pipe.fd, &mut buffer) {
            Ok(0) => Read::End,
            Ok(count) => {
                buffer.truncate(count);
                if stream == Stream::Output {
                    self.printed_bytes += count as u64;
                    for mut corruption in std::mem::take(&mut self.corruptions) {
                        match corruption.pass(&mut buffer) {
                            Some(done) => self.corrupted.push((corruption.asked(), done)),
                            None => self.corruptions.push(corruption),
                        }
                    }
                }
                Read::Bytes(buffer)
            }
            Err(Errno::EAGAIN | Errno::EINTR) => Read::Nothing,
            Err(_) => Read::End,
        }
    }

    pub fn close(&mut self, stream: Stream, epoll: &Epoll) {
        if let Some(pipe) = self.pipes[stream as usize].take()
            && pipe.watched
        {
            let _ = epoll.delete(&pipe.fd);
        }
    }

    /// True if both pipes are closed.
    pub fn pipes_are_closed(&self) -> bool {
        self.pipes.iter().all(Option::is_none)
    }

    /// Registers or unregisters the pipes. A registered pipe without interest would report its hang-up again and again.
    pub fn watch_pipes(&mut self, number: usize, watch: bool, epoll: &Epoll) {
        for (pipe, kind) in self.pipes.iter_mut().zip([ChildEvent::Output, ChildEvent::Error]) {
            let Some(pipe) = pipe.as_mut().filter(|pipe| pipe.watched != watch) else { continue };
            let _ = if watch {
                epoll.add(&pipe.fd, EpollEvent::new(EpollFlags::EPOLLIN, kind.token(number)))
            } else {
                epoll.delete(&pipe.fd)
            };
            pipe.watched = watch;
        }
    }

    /// Adapts epoll: the agent's socket is watched for writing while bytes wait for it.
    pub fn watch_agent(&mut self, number: usize, epoll: &Epoll) {
        let Some(agent) = &self.agent else { return };
        let for_writing = agent.backlog_bytes() > 0;
        if for_writing == self.agent_watched_for_writing {
            return;
        }
        let flags = if for_writing { EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT } else { EpollFlags::EPOLLIN };
        let _ = epoll.modify(agent.fd(), &mut EpollEvent::new(flags, ChildEvent::Agent.token(number)));
        self.agent_watched_for_writing = for_writing;
    }
}
