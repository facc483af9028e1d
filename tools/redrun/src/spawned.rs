//! Spawned jobs, and the job that spawned this one (MPI-5.0 §11.8). Each is a `redrun` of its own, a child of the one
//! whose process asked for it. A socket connects the two, and is the child's standard input.
//!
//! ```text
//!   process ── Spawn ─▶ redrun ── starts, Begin ─▶ redrun ── its job ──▶ comes to the port
//!           ── Met ───▶        ◀─ Error, Name ───
//! ```
//! Until the jobs have met, the end of the new one only means a failed spawn. From then on they end together: a failure
//! of the child ends the parent with its exit code, and at its end the parent signals the child or closes the socket.
//! The uppermost `redrun` keeps port names.

use super::Shell;
use super::standard::Standard;
use anyhow::{Context, Result, bail};
use background_worker::Bell;
use control_network::link::{Link, Received};
use host_processes::open_pidfd;
use job_root::Input;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use redrt_types::{ReplicaId, World};
use redrt_wire::daemon::ToDaemon;
use redrt_wire::dynamic::{
    Answer, Command as SpawnCommand, FromSpawned, NameAnswer, NameRequest, Origin, Request, ToSpawned,
};
use redrt_wire::frame::FrameReader;
use say::Console;
use std::collections::{BTreeMap, HashMap};
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

/// A process, and the number of its request.
type Asker = (ReplicaId, u64);

struct Child {
    process: Process,
    _pidfd: OwnedFd,
    link: Link<UnixStream>,
    asker: Asker,
    has_met: bool,
    /// Error lines before the jobs met.
    words: Vec<String>,
}

/// Origin of a question about a name.
enum Caller {
    Process(Asker),
    Spawned(u64, u64),
}

/// Spawned jobs: see the module.
pub struct Spawned {
    epoll: Epoll,
    children: BTreeMap<u64, Child>,
    count: u64,
    /// Number of threads that relay output of spawned jobs, where this job outlives its terminal.
    relay_count: Arc<AtomicUsize>,
    /// Exit codes of jobs that failed before the message that they had met arrived.
    failed: HashMap<Asker, i32>,
    code: i32,
    /// True once all were asked to end: their exit codes have no effect.
    is_ending: bool,
    names: BTreeMap<String, String>,
    upwards: Option<Upwards>,
    questions: HashMap<u64, Caller>,
    question_count: u64,
}

/// Consequence for the shell.
enum News {
    Tell(Asker, Answer),
    Line(String),
    Failed(i32),
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
        Ok(Self {
            epoll,
            children: BTreeMap::new(),
            count: 0,
            relay_count: Arc::default(),
            failed: HashMap::new(),
            code: 0,
            is_ending: false,
            names: BTreeMap::new(),
            upwards,
            questions: HashMap::new(),
            question_count: 0,
        })
    }

    /// Readable when there is work.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }

    /// True if no spawned job is left, and all their output was relayed.
    pub fn is_empty(&self) -> bool {
        self.children.is_empty() && self.relay_count.load(Ordering::Acquire) == 0
    }

    /// Exit code of the first spawned job that failed; 0 if none has.
    pub fn code(&self) -> i32 {
        self.code
    }

    /// Ends all spawned jobs.
    pub fn terminate(&mut self) {
        self.is_ending = true;
        self.signal(Signal::SIGTERM as i32);
    }

    /// Sends a signal to all spawned jobs.
    pub fn signal(&self, signal: i32) {
        for child in self.children.values() {
            // A child that has ended is not reaped yet, so its number cannot be reused.
            let _ = kill(Pid::from_raw(child.process.id() as i32), Signal::try_from(signal).ok());
        }
    }

    fn start(&mut self, asker: Asker, begin: &ToSpawned, plan: &Plan) -> Result<()> {
        let Plan { options, environment, relay } = plan;
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
        if let Some((standard, bell)) = relay {
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
        let id = self.count;
        self.count += 1;
        for fd in [link.fd(), pidfd.as_fd()] {
            self.epoll.add(fd, EpollEvent::new(EpollFlags::EPOLLIN, id))?;
        }
        let (has_met, words) = (false, Vec::new());
        self.children.insert(id, Child { process, _pidfd: pidfd, link, asker, has_met, words });
        Ok(())
    }

    /// Notes that a process has met its spawned job. Returns the exit code if the job has failed since.
    fn met(&mut self, asker: Asker) -> Option<i32> {
        if let Some(child) = self.children.values_mut().find(|child| child.asker == asker) {
            child.has_met = true;
        }
        self.failed.remove(&asker)
    }

    fn work(&mut self) -> Vec<News> {
        let mut events = [EpollEvent::empty(); 16];
        let count = self.epoll.wait(&mut events, EpollTimeout::ZERO).unwrap_or(0);
        let mut news = Vec::new();
        for event in &events[..count] {
            match event.data() {
                UPWARDS => self.hear_from_above(&mut news),
                id => self.hear_from(id, &mut news),
            }
        }
        news
    }

    fn hear_from(&mut self, id: u64, news: &mut Vec<News>) {
        let Some(child) = self.children.get_mut(&id) else { return };
        // Read before the messages: if it had ended by now, no message can follow.
        let exit = child.process.try_wait().ok().flatten();
        let mut said = Vec::new();
        while let Ok(Received::Bytes) = child.link.receive() {}
        while let Ok(Some(message)) = child.link.next_message::<FromSpawned>() {
            said.push(message);
        }
        for message in said {
            match message {
                FromSpawned::Error(line) => {
                    let child = self.children.get_mut(&id).expect("it was there");
                    if self.is_ending {
                        continue;
                    }
                    if child.has_met { news.push(News::Line(line)) } else { child.words.push(line) }
                }
                FromSpawned::Name(number, request) => self.ask_name(Caller::Spawned(id, number), request, news),
            }
        }
        if let Some(status) = exit {
            let child = self.children.remove(&id).expect("it was there");
            let _ = self.epoll.delete(child.link.fd());
            let _ = self.epoll.delete(child._pidfd.as_fd());
            self.ended(child, status.code().unwrap_or(128 + status.signal().unwrap_or(0)), news);
        } else if matches!(self.children[&id].link.backlog_bytes(), 1..) {
            let _ = self.children.get_mut(&id).expect("it was there").link.flush();
        }
    }

    fn ended(&mut self, child: Child, code: i32, news: &mut Vec<News>) {
        if child.has_met {
            if code != 0 {
                self.code = if self.code == 0 { code } else { self.code };
                news.push(News::Failed(code));
            }
            return;
        }
        let why = match child.words.is_empty() {
            true => format!("the program ended with exit code {code} before it had called MPI_Init"),
            false => child.words.join("; "),
        };
        self.failed.extend((code != 0).then_some((child.asker, code)));
        news.push(News::Tell(child.asker, Answer::NotSpawned(why)));
    }

    fn hear_from_above(&mut self, news: &mut Vec<News>) {
        let Some(upwards) = self.upwards.clone() else { return };
        let mut link = lock(&upwards);
        let received = link.receive();
        while let Ok(Some(message)) = link.next_message::<ToSpawned>() {
            if let ToSpawned::Name(number, answer) = message
                && let Some(caller) = self.questions.remove(&number)
            {
                self.answer(caller, answer, news);
            }
        }
        if !matches!(received, Ok(Received::Bytes | Received::Nothing)) {
            let _ = self.epoll.delete(link.fd());
            self.upwards = None;
            news.push(News::Orphaned);
        }
    }

    fn ask_name(&mut self, caller: Caller, request: NameRequest, news: &mut Vec<News>) {
        if let Some(upwards) = &self.upwards {
            let number = self.question_count;
            self.question_count += 1;
            self.questions.insert(number, caller);
            // If the parent is gone, this job ends too.
            let _ = lock(upwards).send(&FromSpawned::Name(number, request));
            return;
        }
        let answer = match request {
            NameRequest::Publish { service, .. } if self.names.contains_key(&service) => NameAnswer::Taken,
            NameRequest::Publish { service, port } => {
                self.names.insert(service, port);
                NameAnswer::Done
            }
            NameRequest::Unpublish { service } => match self.names.remove(&service) {
                Some(_) => NameAnswer::Done,
                None => NameAnswer::Unknown,
            },
            NameRequest::Lookup { service } => {
                self.names.get(&service).cloned().map_or(NameAnswer::Unknown, NameAnswer::Port)
            }
        };
        self.answer(caller, answer, news);
    }

    fn answer(&mut self, caller: Caller, answer: NameAnswer, news: &mut Vec<News>) {
        match caller {
            Caller::Process(asker) => news.push(News::Tell(asker, Answer::Name(answer))),
            Caller::Spawned(id, number) => {
                if let Some(child) = self.children.get_mut(&id) {
                    // A child that has ended needs no answer.
                    let _ = child.link.send(&ToSpawned::Name(number, answer));
                }
            }
        }
    }
}
/// Options and streams of another `redrun`.
struct Plan {
    options: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    /// Relay of its output, with the bell to ring at the end. `None`: it shares this process's streams.
    relay: Option<(Arc<Standard>, Bell)>,
}

/// Relays the output of another `redrun` until it ends.
fn pass_on(pipe: Option<File>, is_error: bool, standard: &Standard) {
    let mut bytes = vec![0; 64 << 10];
    let mut pipe = pipe;
    while let Some(Ok(count @ 1..)) = pipe.as_mut().map(|pipe| pipe.read(&mut bytes)) {
        standard.relay(is_error, bytes[..count].to_vec());
    }
}

impl Shell<'_> {
    /// Serves a process's request that concerns other jobs.
    pub(super) fn serve_dynamic(&mut self, asker: Asker, request: Request) {
        let mut news = Vec::new();
        match request {
            Request::Spawn { commands, port } => {
                if let Err(error) = self.spawn(asker, commands, port) {
                    news.push(News::Tell(asker, Answer::NotSpawned(format!("{error:#}"))));
                }
            }
            // The root has handled it.
            Request::Checkpoint => {}
            Request::Met => news.extend(self.spawned.met(asker).map(News::Failed)),
            Request::Name(request) => self.spawned.ask_name(Caller::Process(asker), request, &mut news),
        }
        self.heed_spawned(news);
    }

    fn spawn(&mut self, asker: Asker, commands: Vec<SpawnCommand>, port: String) -> Result<()> {
        let counts = || commands.iter().map(|command| u64::from(command.rank_count));
        if commands.is_empty()
            || counts().any(|count| count == 0)
            || counts().sum::<u64>() > World::RANK_COUNT_MAX.into()
        {
            bail!("between 1 and {} processes can be started", World::RANK_COUNT_MAX);
        }
        let application = self.job.application_of_rank[asker.0.rank.0 as usize];
        let environment = self.job.applications[application as usize].environment.clone();
        let origin = Origin { tree: self.origin().tree, parent_port: Some(port), place_count: 0 };
        let relay = self.seat.is_some().then(|| (self.outputs.standard(), self.bell.clone()));
        let plan = Plan { options: job_options::options_for_spawned(self.job), environment, relay };
        self.spawned.start(asker, &ToSpawned::Begin { commands, origin }, &plan)
    }

    /// This job's origin, for its processes.
    pub(super) fn origin(&self) -> Origin {
        let plan = self.fleet.plan();
        let places = |host: &u32| plan.hosts[*host as usize].slot_count.unwrap_or(self.fleet.cpu_count(*host));
        let place_count = (0..plan.hosts.len() as u32).filter(|host| !plan.hosts[*host as usize].spare);
        let place_count = place_count.map(|host| places(&host)).fold(0, u32::saturating_add);
        match &self.job.origin {
            Some(origin) => Origin { place_count, ..origin.clone() },
            None => Origin { tree: self.job_number, parent_port: None, place_count },
        }
    }

    pub(super) fn work_on_spawned(&mut self) {
        let news = self.spawned.work();
        self.heed_spawned(news);
    }

    fn heed_spawned(&mut self, news: Vec<News>) {
        for one in news {
            match one {
                News::Tell((replica, number), answer) => {
                    if let Some(host) = self.root.host(replica) {
                        self.fleet.send(host, &ToDaemon::Dynamic(replica, number, answer));
                    }
                }
                News::Line(line) => self.console.error(&line),
                News::Failed(code) => self.handle(Input::Job(coordinator::Input::SpawnedFailed { code })),
                News::Orphaned => self.interrupt(Signal::SIGTERM as i32),
            }
        }
    }
}

/// Lets a spawned job's console report errors to the `redrun` above.
pub fn relay(console: &mut Console, stream: UnixStream) -> Upwards {
    let upwards: Upwards = Arc::new(Mutex::new(Link::new(stream, None)));
    let above = upwards.clone();
    console.tell_above(move |line| lock(&above).send(&FromSpawned::Error(line.to_owned())).is_ok());
    upwards
}
