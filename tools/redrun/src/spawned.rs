//! Spawned jobs, and the job that spawned this one (MPI-5.0 §11.8). Each is a `redrun` of its own, a child of the one
//! whose process asked for it. A socket connects the two, and is the child's standard input.
//!
//! ```text
//!   coordinator ── JobOrder ─▶ this module ── starts, Begin, Name ─▶ redrun ── its job ──▶ comes to the port
//!        ◀─ JobNews ──              ◀─ Error, Name, its end ─
//! ```
//! The coordinator decides (`job_coordinator`): the end of a job that has not come means a failed spawn, and from the
//! meeting on both jobs end together. At its end the parent signals the child or closes the socket.

use super::standard::Standard;
use anyhow::{Context, Result, bail};
use background_worker::Bell;
use control_network::link::{Link, Received};
use host_processes::open_pidfd;
use job_coordinator::{JobNews, JobNumber, JobOrder};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use redrt_types::ReplicaId;
use redrt_wire::dynamic::{Command as SpawnCommand, FromSpawned, Origin, ToSpawned};
use redrt_wire::frame::FrameReader;
use say::Console;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child as Process, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// Link to the `redrun` above, shared with its users.
pub type Upwards = Arc<Mutex<Link<UnixStream>>>;

pub fn lock(upwards: &Upwards) -> MutexGuard<'_, Link<UnixStream>> {
    upwards.lock().unwrap_or_else(PoisonError::into_inner)
}

const UPWARDS: u64 = u64::MAX;

struct Child {
    process: Process,
    _pidfd: OwnedFd,
    link: Link<UnixStream>,
}

/// Spawned jobs: see the module.
pub struct Spawned {
    epoll: Epoll,
    children: BTreeMap<JobNumber, Child>,
    /// Number of threads that relay output of spawned jobs, where this job outlives its terminal.
    relay_count: Arc<AtomicUsize>,
    upwards: Option<Upwards>,
}

/// An event for the shell.
pub enum News {
    /// For the coordinator.
    Job(JobNews),
    /// The job above is gone.
    Orphaned,
}

/// Reads a spawned job's commands from standard input. Returns them with the origin and the stream to the `redrun`
/// above.
pub fn begin() -> Result<(Vec<SpawnCommand>, Origin, UnixStream)> {
    let mut stream = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let mut frames = FrameReader::default();
    loop {
        if let Some(message) = frames.next().context("--spawned is for redrun alone")? {
            let ToSpawned::Begin { commands, origin } = message else { bail!("redrun has spawned nothing") };
            stream.set_nonblocking(true)?;
            return Ok((commands, origin, stream));
        }
        let mut bytes = [0; 4096];
        match stream.read(&mut bytes).context("--spawned is for redrun alone")? {
            0 => bail!("--spawned is for redrun alone"),
            count => frames.push(&bytes[..count]),
        }
    }
}

impl Spawned {
    pub fn new(upwards: Option<Upwards>) -> Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        if let Some(link) = &upwards {
            epoll.add(lock(link).fd(), EpollEvent::new(EpollFlags::EPOLLIN, UPWARDS))?;
        }
        Ok(Self { epoll, children: BTreeMap::new(), relay_count: Arc::default(), upwards })
    }

    /// Readable when there is work.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }

    /// True if no spawned job is left, and all their output was relayed.
    pub fn is_empty(&self) -> bool {
        self.children.is_empty() && self.relay_count.load(Ordering::Acquire) == 0
    }

    /// Carries out an order of the coordinator. Returns why a job could not be started.
    pub fn obey(&mut self, order: JobOrder, plan: impl FnOnce(ReplicaId, String) -> Plan) -> Option<JobNews> {
        match order {
            JobOrder::Start { job, replica, commands, port } => {
                let Plan { origin, options, environment, relay } = plan(replica, port);
                let begin = ToSpawned::Begin { commands, origin };
                let started = self.start(job, &begin, &options, &environment, relay);
                return started.err().map(|error| JobNews::NotStarted { job, why: format!("{error:#}") });
            }
            JobOrder::Answer { job, question, answer } => {
                if let Some(child) = self.children.get_mut(&job) {
                    // A child that has ended needs no answer.
                    let _ = child.link.send(&ToSpawned::Name(question, answer));
                }
            }
            JobOrder::Ask { question, request } => {
                if let Some(upwards) = &self.upwards {
                    // If the parent is gone, this job ends too.
                    let _ = lock(upwards).send(&FromSpawned::Name(question, request));
                }
            }
            JobOrder::Signal(signal) => self.signal(signal),
            JobOrder::Suspend(true) => self.signal(Signal::SIGTSTP as i32),
            JobOrder::Suspend(false) => self.signal(Signal::SIGCONT as i32),
            JobOrder::End => self.signal(Signal::SIGTERM as i32),
        }
        None
    }

    /// Sends a signal to all spawned jobs.
    fn signal(&self, signal: i32) {
        for child in self.children.values() {
            // A child that has ended is not reaped yet, so its number cannot be reused.
            let _ = kill(Pid::from_raw(child.process.id() as i32), Signal::try_from(signal).ok());
        }
    }

    fn start(
        &mut self,
        job: JobNumber,
        begin: &ToSpawned,
        options: &[OsString],
        environment: &[(OsString, OsString)],
        relay: Option<(Arc<Standard>, Bell)>,
    ) -> Result<()> {
        let (ours, theirs) = UnixStream::pair().context("Failed to make a socket")?;
        ours.set_nonblocking(true)?;
        // By name: the file may have been replaced since, and then the daemon beside it fits the new one only.
        let program = std::env::current_exe().context("Failed to find the program redrun")?.with_file_name("redrun");
        let mut command = Command::new(program);
        command.arg("--spawned").args(options).env_clear().stdin(Stdio::from(OwnedFd::from(theirs)));
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        if relay.is_some() {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        let mut process = command.spawn().context("Failed to start another redrun")?;
        if let Some((standard, bell)) = &relay {
            let pipes =
                [(process.stdout.take().map(OwnedFd::from), false), (process.stderr.take().map(OwnedFd::from), true)];
            for (pipe, is_error) in pipes {
                let (standard, bell, count) = (standard.clone(), bell.clone(), self.relay_count.clone());
                let pass = move || {
                    pass_on(pipe.map(File::from), is_error, &standard);
                    count.fetch_sub(1, Ordering::Release);
                    // Fails only if the bell rings already.
                    let _ = bell.write(1);
                };
                self.relay_count.fetch_add(1, Ordering::Relaxed);
                let started = thread::Builder::new().name("redrun-relay".into()).spawn(pass);
                started.inspect_err(|_| {
                    self.relay_count.fetch_sub(1, Ordering::Relaxed);
                })?;
            }
        }
        let pidfd = open_pidfd(Pid::from_raw(process.id() as i32)).context("Failed to watch a process")?;
        let mut link = Link::new(ours, None);
        // The end of the child is seen by its pidfd.
        let _ = link.send(begin);
        for fd in [link.fd(), pidfd.as_fd()] {
            self.epoll.add(fd, EpollEvent::new(EpollFlags::EPOLLIN, job.0))?;
        }
        self.children.insert(job, Child { process, _pidfd: pidfd, link });
        Ok(())
    }

    /// Handles all pending events; never blocks.
    pub fn work(&mut self) -> Vec<News> {
        let mut events = [EpollEvent::empty(); 16];
        let count = self.epoll.wait(&mut events, EpollTimeout::ZERO).unwrap_or(0);
        let mut news = Vec::new();
        for event in &events[..count] {
            match event.data() {
                UPWARDS => self.handle_from_above(&mut news),
                job => self.handle_from(JobNumber(job), &mut news),
            }
        }
        news
    }

    fn handle_from(&mut self, job: JobNumber, news: &mut Vec<News>) {
        let Some(child) = self.children.get_mut(&job) else { return };
        // Read before the messages: if it had ended by now, no message can follow.
        let exit = child.process.try_wait().ok().flatten();
        while let Ok(Received::Bytes) = child.link.receive() {}
        while let Ok(Some(message)) = child.link.next_message::<FromSpawned>() {
            news.push(News::Job(match message {
                FromSpawned::Error(line) => JobNews::Error { job, line },
                FromSpawned::Name(question, request) => JobNews::Name { job, question, request },
            }));
        }
        if let Some(status) = exit {
            let _ = self.epoll.delete(child.link.fd());
            let _ = self.epoll.delete(child._pidfd.as_fd());
            self.children.remove(&job);
            let code = status.code().unwrap_or(128 + status.signal().unwrap_or(0));
            news.push(News::Job(JobNews::Ended { job, code }));
        } else if matches!(child.link.backlog_bytes(), 1..) {
            let _ = child.link.flush();
        }
    }

    fn handle_from_above(&mut self, news: &mut Vec<News>) {
        let Some(upwards) = self.upwards.clone() else { return };
        let mut link = lock(&upwards);
        let received = link.receive();
        while let Ok(Some(message)) = link.next_message::<ToSpawned>() {
            if let ToSpawned::Name(question, answer) = message {
                news.push(News::Job(JobNews::Answered { question, answer }));
            }
        }
        if !matches!(received, Ok(Received::Bytes | Received::Nothing)) {
            let _ = self.epoll.delete(link.fd());
            self.upwards = None;
            news.push(News::Orphaned);
        }
    }
}

/// The start of another `redrun`.
pub struct Plan {
    pub origin: Origin,
    pub options: Vec<OsString>,
    pub environment: Vec<(OsString, OsString)>,
    /// Relay of its output, with the bell to ring at the end. `None`: it shares this process's streams.
    pub relay: Option<(Arc<Standard>, Bell)>,
}

/// Relays the output of another `redrun` until it ends.
fn pass_on(pipe: Option<File>, is_error: bool, standard: &Standard) {
    let mut bytes = vec![0; 64 << 10];
    let mut pipe = pipe;
    while let Some(Ok(count @ 1..)) = pipe.as_mut().map(|pipe| pipe.read(&mut bytes)) {
        standard.relay(is_error, bytes[..count].to_vec());
    }
}

/// Lets a spawned job's console report errors to the `redrun` above.
pub fn relay(console: &mut Console, stream: UnixStream) -> Upwards {
    let upwards: Upwards = Arc::new(Mutex::new(Link::new(stream, None)));
    let above = upwards.clone();
    console.report_above(move |line| lock(&above).send(&FromSpawned::Error(line.to_owned())).is_ok());
    upwards
}
