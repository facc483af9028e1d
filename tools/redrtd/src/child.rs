//! One process the daemon holds: its pid, its agent's socket, its pipes.

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

/// What a child that is to be a copy will be.
#[derive(Clone, Copy)]
pub struct Copy {
    /// By which clone.
    pub id: CloneId,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// `redrun` knows that there will be no copy.
    pub has_failed: bool,
}

/// What an event on one of a child's descriptors means; part of its epoll token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The pidfd: it died.
    Death,
    /// The agent's socket.
    Agent,
    /// Standard output.
    Output,
    /// Standard error.
    Error,
    /// Standard input can take more.
    Input,
    /// The socket of the helper that is its parent.
    Helper,
    /// The socket of a helper that sends an image; the number is the clone's.
    Sender,
    /// The socket of a helper that saves an image; the number is that of its child.
    Saver,
    /// The socket of a helper that sends or receives files; the number is its own.
    Carrier,
    /// The socket of the helper that gets files from an object store.
    Fetcher,
    /// The socket of a helper that flips a bit; the number is its own.
    Flipper,
}

const KINDS: [Kind; 11] = [
    Kind::Death,
    Kind::Agent,
    Kind::Output,
    Kind::Error,
    Kind::Input,
    Kind::Helper,
    Kind::Sender,
    Kind::Saver,
    Kind::Carrier,
    Kind::Fetcher,
    Kind::Flipper,
];
const KIND_BITS: u32 = 4;

impl Kind {
    /// The epoll token of child `number`'s descriptor of this kind.
    pub fn token(self, number: usize) -> u64 {
        (number as u64) << KIND_BITS | self as u64
    }

    /// The inverse of [`Kind::token`].
    pub fn of_token(token: u64) -> (usize, Self) {
        ((token >> KIND_BITS) as usize, KINDS[(token & ((1 << KIND_BITS) - 1)) as usize])
    }
}

/// What reading a pipe gave.
pub enum Read {
    /// These bytes.
    Bytes(Vec<u8>),
    /// Nothing for now.
    Nothing,
    /// No one can write to it any more.
    End,
}

/// A pipe and whether epoll watches it.
pub struct Pipe {
    fd: OwnedFd,
    watched: bool,
}

impl Pipe {
    /// Takes over the reading end, which was made non-blocking and is going to be watched.
    pub fn new(fd: OwnedFd) -> Self {
        Self { fd, watched: true }
    }
}

/// How often a process that prints and has not called `MPI_Init` is looked at for another MPI: a program that uses one
/// has mapped it before it prints what it has computed.
pub const MPI_LOOKS: u32 = 64;

/// A replica started by this daemon.
pub struct Child {
    /// The replica.
    pub replica: ReplicaId,
    /// The child process, which leads a process group of its own.
    pub pid: Pid,
    /// The replica's process: the child, or below it when that is a helper; absent until it runs.
    pub program: Option<Pid>,
    /// Connection to the helper.
    pub helper: Option<Link<UnixStream>>,
    /// It is to be a copy, and is not in a view yet.
    pub copy: Option<Copy>,
    /// It goes on from its image, with the whole job.
    pub is_restored: bool,
    /// It is the copy of a program that a script had started.
    pub lacks_script: bool,
    /// Bytes that the replica has printed to standard output, its source's before it was copied among them.
    pub printed_bytes: u64,
    /// Faults to be injected into that.
    pub corruptions: Vec<Corruption>,
    /// Those that were, and `redrun` is to be told of.
    pub corrupted: Vec<(ProcessFault, String)>,
    /// Readable when the process has died.
    pub pidfd: OwnedFd,
    /// Connection to the agent inside.
    pub agent: Option<Link<UnixStream>>,
    /// Whether epoll watches the agent's socket for writing.
    pub agent_watched_for_writing: bool,
    /// Whether it said `Hello`.
    pub greeted: bool,
    /// Standard output and standard error, while open.
    pub pipes: [Option<Pipe>; 2],
    /// Standard input of rank 0.
    pub input: Option<OwnedFd>,
    /// How it ended.
    pub exit: Option<Exit>,
    /// When its pipes are closed though someone may still write to them.
    pub drain_deadline: Option<Instant>,
    /// Whether `redrun` was told that nothing more will come.
    pub drained: bool,
    /// Whether `redrun` asked to leave its output in the pipes.
    pub held: bool,
    /// The file that would count it if the kernel killed it for want of memory.
    pub kills: Option<PathBuf>,
    /// How often it is yet to be looked at for another MPI.
    pub mpi_looks_left: u32,
}

impl Child {
    /// All descriptors to watch.
    pub fn descriptors(&self) -> Vec<(Kind, BorrowedFd<'_>)> {
        let mut all = vec![(Kind::Death, self.pidfd.as_fd())];
        all.extend(self.agent.as_ref().map(|agent| (Kind::Agent, agent.fd())));
        let [output, error] = &self.pipes;
        all.extend(output.as_ref().map(|pipe| (Kind::Output, pipe.fd.as_fd())));
        all.extend(error.as_ref().map(|pipe| (Kind::Error, pipe.fd.as_fd())));
        all.extend(self.input.as_ref().map(|fd| (Kind::Input, fd.as_fd())));
        all.extend(self.helper.as_ref().map(|helper| (Kind::Helper, helper.fd())));
        all
    }

    /// Sends to the agent. A broken connection shows when it is read.
    pub fn tell(&mut self, message: &ToAgent) {
        if let Some(agent) = &mut self.agent {
            let _ = agent.send(message);
        }
    }

    /// Whether the agent's socket has something to read.
    pub fn agent_has_input(&self) -> bool {
        use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
        let Some(agent) = &self.agent else { return false };
        let mut fds = [PollFd::new(agent.fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::ZERO).is_ok_and(|count| count > 0)
    }

    /// Sends a signal to the process alone.
    pub fn signal(&self, signal: i32) {
        if let (None, Ok(signal)) = (self.exit, Signal::try_from(signal)) {
            let _ = kill(self.program.unwrap_or(self.pid), signal);
        }
    }

    /// Sends the user's signal to the program: with what a script has started, unless a helper is among that.
    pub fn deliver(&self, signal: i32) {
        let Ok(signal) = Signal::try_from(signal) else { return };
        match self.program {
            Some(program) if program == self.pid => self.signal_group(signal),
            Some(_) => self.signal(signal as i32),
            None => {}
        }
    }

    /// Sends a signal to the process group.
    pub fn signal_group(&self, signal: Signal) {
        if self.exit.is_none() {
            let _ = killpg(self.pid, signal);
        }
    }

    /// Kills the process and its process group.
    pub fn kill_group(&self) {
        if self.exit.is_none() {
            let _ = killpg(self.pid, Signal::SIGKILL);
            let _ = kill(self.pid, Signal::SIGKILL);
        }
    }

    /// Collects the exit of a process that has died. When it failed, what it left in its process group goes with it.
    pub fn reap(&mut self) -> nix::Result<Option<Exit>> {
        use nix::sys::wait::{Id, waitid};
        let peek = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        let exit = match waitid(Id::Pid(self.pid), peek)? {
            WaitStatus::Exited(_, status) => Exit::Status(status),
            WaitStatus::Signaled(_, signal, _) => Exit::Signal(signal as i32),
            _ => return Ok(None),
        };
        if exit != Exit::Status(0) {
            // Before it is reaped its number cannot belong to another group.
            let _ = killpg(self.pid, Signal::SIGKILL);
        }
        waitpid(self.pid, Some(WaitPidFlag::WNOHANG))?;
        self.exit = Some(exit);
        Ok(Some(exit))
    }

    /// Reads once from a pipe.
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

    /// Closes a pipe.
    pub fn close(&mut self, stream: Stream, epoll: &Epoll) {
        if let Some(pipe) = self.pipes[stream as usize].take()
            && pipe.watched
        {
            let _ = epoll.delete(&pipe.fd);
        }
    }

    /// Whether nothing more can be read from it.
    pub fn pipes_are_closed(&self) -> bool {
        self.pipes.iter().all(Option::is_none)
    }

    /// Watches the pipes or leaves them alone. A pipe cannot stay registered without interest: its hang-up would be
    /// reported again and again.
    pub fn watch_pipes(&mut self, number: usize, watch: bool, epoll: &Epoll) {
        for (pipe, kind) in self.pipes.iter_mut().zip([Kind::Output, Kind::Error]) {
            let Some(pipe) = pipe.as_mut().filter(|pipe| pipe.watched != watch) else { continue };
            let _ = if watch {
                epoll.add(&pipe.fd, EpollEvent::new(EpollFlags::EPOLLIN, kind.token(number)))
            } else {
                epoll.delete(&pipe.fd)
            };
            pipe.watched = watch;
        }
    }

    /// Watches the agent's socket for writing while bytes wait for it.
    pub fn watch_agent(&mut self, number: usize, epoll: &Epoll) {
        let Some(agent) = &self.agent else { return };
        let for_writing = agent.backlog_bytes() > 0;
        if for_writing == self.agent_watched_for_writing {
            return;
        }
        let flags = if for_writing { EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT } else { EpollFlags::EPOLLIN };
        let _ = epoll.modify(agent.fd(), &mut EpollEvent::new(flags, Kind::Agent.token(number)));
        self.agent_watched_for_writing = for_writing;
    }
}
