//! The process's place in the job: taking it in `MPI_Init`, following changes, leaving in `MPI_Finalize`.

#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

#[macro_use]
extern crate redrt_process;

pub mod agent;
mod cloning;
mod descent;
mod finish;
mod upcalls;

#[cfg(any(test, feature = "simulation"))]
pub use cloning::go_on_simulated;
pub use finish::end;

use quiesce::Replica;
use redrt_engine::contact;
use redrt_engine::injection::Injection;
use redrt_engine::link::{Identity, Links};
use redrt_engine::replication::Replication;
use redrt_engine::sleep::Sleeper;
use redrt_engine::traces::Traces;
use redrt_engine::traffic::Traffic;
use redrt_engine::{self as engine, Engine, Setup};
use redrt_process::clock;
use redrt_runtime::control::Control;
use redrt_runtime::links::{listening, networks};
use redrt_runtime::{self as runtime, Job, faults, is_closed, preload, set_job, threads};
use redrt_sync::fence;
use redrt_transport::shm::Segment;
use redrt_transport::{descriptors, direct};
use redrt_types::{Incarnation, ProcessIndex, ReplicaId, View, ViewNumber, VirtualRank, World};
use redrt_wire::card::{Card, EarlyThread};
use redrt_wire::control::{
    CONTROL_FD_VARIABLE, Determinism, FromAgent, OnSdc, Options, Protocol, Threads, ToAgent, Transport, Verification,
    Welcome, WelcomeError,
};
use redrt_wire::dynamic::Origin;
use redrt_wire::secret::Secret;
use std::collections::BTreeMap;
#[cfg(any(test, feature = "simulation"))]
use std::io;
use std::net::TcpListener;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use tracing::info;

/// Variable that users set if another launcher starts jobs of one rank each on purpose.
const SINGLETON_VARIABLE: &str = "REDRT_SINGLETON";

/// Reason for which a process could not take its place.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The connection with the daemon has failed.
    #[error("the daemon on this host cannot be reached")]
    Control(#[from] std::io::Error),
    /// The daemon sent a message that is not expected during the start.
    #[error("the daemon on this host sent an unexpected message: mixed redrt installations?")]
    Unexpected,
    /// The daemon sent a welcome that contradicts itself.
    #[error("the daemon on this host sent {0}: mixed redrt installations?")]
    Inconsistent(WelcomeError),
    /// The daemon named a process that is not in the job.
    #[error("the daemon on this host sent the card of a process that is not in the job: mixed redrt installations?")]
    Stranger,
    /// The variable that names the control descriptor is damaged.
    #[error("{CONTROL_FD_VARIABLE} is '{0}', which is not redrun's connection: was the environment changed?")]
    Variable(String),
    /// The control descriptor is no longer open.
    #[error(
        "descriptor {0} is closed, which is redrun's connection: the program, or what has started it, has closed \
         descriptors that it did not open; it may do so after MPI_Finalize, or leave those from {0} on"
    )]
    Closed(RawFd),
    /// `srun` or another MPI's launcher started several processes, without a redrun that makes one job of them.
    #[error(
        "{0} started several processes of this program without redrun, and each would be a job of one rank: start it with \
         redrun, in an allocation too (or set {SINGLETON_VARIABLE}=1 if that is what you want)"
    )]
    Launcher(&'static str),
    /// The shared memory of the host cannot be mapped.
    #[error("the shared memory of host {host} cannot be mapped")]
    SharedMemory {
        /// Name of the host.
        host: String,
        /// Error of the system call.
        #[source]
        source: std::io::Error,
    },
}

/// Registers the process for [`fence`]. That costs nothing while the process has one thread.
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = {
    extern "C" fn construct() {
        fence::register();
    }
    construct
};

/// Takes this process's place in the job, and begins the work that the job's options ask for. With `one_thread`, no
/// other thread of the program will call MPI.
pub fn begin(one_thread: bool) -> Result<&'static Job, JoinError> {
    // The set-up gets real clocks and random bytes, and the agent thread inherits that.
    let was_internal = preload::set_internal(true);
    redrt_transport::descriptors::spare_by(preload::spare);
    let joined = join(one_thread);
    preload::set_internal(was_internal);
    let job = joined?;
    settle(job);
    if job.welcome.world.is_replicated() {
        warn_without_preload(job);
    }
    Ok(job)
}

/// Begins the work that the job's options ask for.
fn settle(job: &Job) {
    if job.welcome.world.is_replicated() {
        threads::watch(|stream| engine::cell().lock().agree(|sphere| sphere.end_thread(stream)));
        if job.welcome.options.scrubs {
            redrt_runtime::scrub::begin();
        }
    }
    if job.welcome.options.profiles {
        threads::time_calls();
    }
    faults::arm(&job.welcome.faults, job.welcome.host_number);
}

fn warn_without_preload(job: &Job) {
    let is_first = job.welcome.me == ReplicaId::default();
    if is_first && job.welcome.options.determinism == Determinism::Full && !preload::is_present() {
        redrt_process::say(
            "redrt: libredrt_preload.so is not loaded: clocks and random bytes are not agreed between replicas",
        );
    }
}

/// An error and its causes, in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// Takes this process's place: connects to the daemon, opens the transports, starts the agent thread.
pub fn join(one_thread: bool) -> Result<&'static Job, JoinError> {
    let control = match std::env::var_os(CONTROL_FD_VARIABLE) {
        None => match other_launcher(&|name| std::env::var(name).ok()) {
            Some(launcher) => return Err(JoinError::Launcher(launcher)),
            None => None,
        },
        Some(text) => {
            let text = text.to_string_lossy().into_owned();
            let fd: Option<RawFd> = text.parse().ok();
            match fd.filter(|fd| is_closed(*fd)) {
                Some(fd) if descent::is_below_a_rank(fd) => {
                    say_that_it_is_no_rank();
                    None
                }
                Some(fd) => return Err(JoinError::Closed(fd)),
                None => Some(fd.and_then(adopt).ok_or(JoinError::Variable(text))?),
            }
        }
    };
    let (welcome, cards, control, listener) = match control {
        None => (alone()?, Vec::new(), None, None),
        Some(stream) => {
            let control: &Control = Box::leak(Box::new(Control::new(stream)));
            let (welcome, cards, listener) = meet(control)?;
            (welcome, cards, Some(control), listener)
        }
    };
    let segment = map_segment(&welcome)?;
    let shares_core = shares_core(&welcome);
    let engine = make_engine(&welcome, segment, cards, shares_core);
    fence::register();
    let sleeper = Sleeper::new(&identity(&welcome, segment), shares_core)?;
    engine::install(engine, sleeper, one_thread);
    let job = set_job(Job::new(welcome, control));
    log(job);
    meet_others(job);
    agent::start(job, listener)?;
    cloning::start(job, segment)?;
    Ok(job)
}

/// Begins logging, if the developers' variable asks for it.
fn log(job: &Job) {
    let who = || runtime::job().map_or_else(String::new, |job| job.welcome.me.to_string());
    let sink = redrt_log::Sink { who, now_ns: clock::monotonic_ns, show: |line| redrt_process::say(line) };
    // One process reports it for all, since all have the same variable.
    if let Err(error) = redrt_log::begin(sink)
        && job.welcome.me == ReplicaId::default()
    {
        redrt_process::say(format_args!("redrt: {error}"));
    }
    info!(target: "runtime", incarnation = job.welcome.incarnation.0, host = job.welcome.host, "the place is taken");
}

/// Registers processes of other jobs from now on.
fn meet_others(job: &Job) {
    let world = &job.welcome.world;
    contact::begin(job.welcome.job, (!world.is_replicated()).then(|| world.process_count()));
}

/// Takes the place of a simulated process.
#[cfg(any(test, feature = "simulation"))]
pub fn join_simulated(welcome: Welcome, cards: Vec<Card>, control: Control) -> &'static Job {
    let control: &Control = Box::leak(Box::new(control));
    let engine = make_engine(&welcome, None, cards, false);
    engine::install(engine, Sleeper::simulated(), false);
    let job = set_job(Job::new(welcome, Some(control)));
    meet_others(job);
    settle(job);
    job
}

/// Holds a simulated process for a checkpoint. `None` if it has no place in the job yet.
#[cfg(any(test, feature = "simulation"))]
pub fn hold_simulated() -> Option<engine::cloning::Held<'static>> {
    engine::cell().hold_for_checkpoint()
}

/// Lets a simulated process that is held for a checkpoint go on from it, with this incarnation, in a job that has gone
/// back to the checkpoint. Changes of files are recorded at `place` from now on. Fails if the engine cannot be
/// restored.
#[cfg(any(test, feature = "simulation"))]
pub fn restore_simulated(
    mut held: engine::cloning::Held<'static>,
    incarnation: redrt_types::Incarnation,
    place: &redrt_wire::checkpoint::UndoPlace,
) -> io::Result<()> {
    agent::begin_anew();
    redrt_runtime::undo::begin_here(place);
    redrt_dynamic::checkpoint::record_restored();
    let before = redrt_runtime::job().expect("it is in a job");
    let welcome = Welcome { incarnation, ..before.welcome.clone() };
    let (identity, me) = (identity(&welcome, None), welcome.me);
    match held.needs_rest() {
        true => held.become_restored(identity, false)?,
        false => held.become_copy(me, identity, false)?,
    }
    set_job(Job::new(welcome, before.control));
    Ok(())
}

/// Reports that this process was started by a rank and is none, unless [`SINGLETON_VARIABLE`] shows that it is on
/// purpose.
fn say_that_it_is_no_rank() {
    if std::env::var_os(SINGLETON_VARIABLE).is_some() {
        return;
    }
    let rank = std::env::var("REDRT_RANK").map_or_else(|_| "a rank".to_owned(), |rank| format!("rank {rank}"));
    redrt_process::say(format_args!(
        "redrt: {rank} of a job has started this process: it is no rank of that job, but a job of one rank; redrun starts \
         one of several ({SINGLETON_VARIABLE}=1 says that one rank is what you want)"
    ));
}

/// Variables by which launchers pass a process its number and the number of processes, with the launchers' names.
const LAUNCHERS: [(&str, &str, &str); 4] = [
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "Open MPI's mpirun"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "srun"),
    ("PMI_RANK", "PMI_SIZE", "the mpiexec of MPICH or a relative of it"),
    ("PALS_RANKID", "PALS_SIZE", "the mpiexec of PALS"),
];

/// Name of a launcher that has started several processes of this program and cannot make one job of them; `None`
/// without one, or if it is on purpose.
fn other_launcher(variable: &dyn Fn(&str) -> Option<String>) -> Option<&'static str> {
    let has_several = |(rank, count, _): &&(&str, &str, &str)| {
        variable(rank).is_some() && variable(count).and_then(|count| count.parse::<u32>().ok()).is_some_and(|it| it > 1)
    };
    let (.., name) = LAUNCHERS.iter().find(has_several).filter(|_| variable(SINGLETON_VARIABLE).is_none())?;
    Some(name)
}

/// Takes over the descriptor of the control connection. `None` if it is not a connected stream socket of the right
/// family: then it stays unchanged.
fn adopt(fd: RawFd) -> Option<UnixStream> {
    let option = |name| {
        let mut value = 0;
        let mut length = size_of::<libc::c_int>() as libc::socklen_t;
        let place = (&raw mut value).cast();
        // SAFETY: - value is valid for writes of length bytes, and length for reads and writes. A wrong fd is an error.
        let failed = unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, name, place, &raw mut length) } != 0;
        (!failed).then_some(value)
    };
    if option(libc::SO_DOMAIN) != Some(libc::AF_UNIX) || option(libc::SO_TYPE) != Some(libc::SOCK_STREAM) {
        return None;
    }
    close_on_exec(fd).ok()?;
    // SAFETY: - open: fcntl has just changed its flags.
    //         - owned by this value alone: the daemon made it for this library, and no other code here uses it.
    Some(UnixStream::from(unsafe { OwnedFd::from_raw_fd(fd) }))
}

fn close_on_exec(fd: RawFd) -> std::io::Result<()> {
    // SAFETY: - touches no memory: F_SETFD takes a number. A wrong fd is an error.
    match unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

fn meet(control: &Control) -> Result<(Welcome, Vec<Card>, Option<TcpListener>), JoinError> {
    control.send(&FromAgent::Hello)?;
    let mut welcome = match control.receive()? {
        ToAgent::Welcome(welcome) => *welcome,
        _ => return Err(JoinError::Unexpected),
    };
    welcome.check().map_err(JoinError::Inconsistent)?;
    let needs_tcp = welcome.options.transport != Transport::Shm;
    let listener = if needs_tcp { Some(listening::open(welcome.listen)?) } else { None };
    let has_siblings = welcome.world.degree(welcome.me.rank) > 1;
    let orders_threads = has_siblings && welcome.options.threads == Threads::Order;
    let early_threads = if orders_threads { preload::hold_early_threads() } else { Vec::new() };
    control.send(&FromAgent::Ready(Card { early_threads, ..card(&welcome, listener.as_ref())? }))?;
    loop {
        match control.receive()? {
            ToAgent::Cards(cards) => {
                let count = welcome.world.process_count();
                if cards.iter().any(|card| card.process.0 >= count) {
                    return Err(JoinError::Stranger);
                }
                preload::limit_early_threads(&furthest(&welcome, &cards));
                return Ok((welcome, cards, listener));
            }
            ToAgent::View(view) => {
                welcome.view = view;
                welcome.check().map_err(JoinError::Inconsistent)?;
            }
            _ => return Err(JoinError::Unexpected),
        }
    }
}

/// Early threads of this rank, each as far as it is in the replica where it is furthest.
fn furthest(welcome: &Welcome, cards: &[Card]) -> Vec<EarlyThread> {
    let mut furthest = BTreeMap::new();
    let siblings = cards.iter().filter(|card| welcome.world.replica(card.process).rank == welcome.me.rank);
    for EarlyThread { thread, made } in siblings.flat_map(|card| &card.early_threads) {
        furthest.entry(*thread).and_modify(|most: &mut u64| *most = (*most).max(*made)).or_insert(*made);
    }
    furthest.into_iter().map(|(thread, made)| EarlyThread { thread, made }).collect()
}

/// Welcome of a program that was not started by redrun: a job of one rank.
fn alone() -> std::io::Result<Welcome> {
    let secret = Secret::generate()?;
    // A random number of its own: one derived from the secret would reveal a part of the secret.
    let job = u64::from_le_bytes(Secret::generate()?.key()[..8].try_into().expect("eight of 32 bytes"));
    let world = World::uniform(1, 1);
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").map(|name| name.trim().to_owned());
    let pid = u64::from(std::process::id());
    Ok(Welcome {
        job,
        link_secret: secret,
        me: ReplicaId::default(),
        incarnation: Incarnation(0),
        view: View::initial(&world),
        world,
        options: Options { transport: Transport::Shm, seed: pid, ..Options::default() },
        host: host.unwrap_or_else(|_| "localhost".to_owned()),
        host_number: 0,
        core_sharers: 1,
        shared_memory: None,
        windows: None,
        neighborhood: VirtualRank(0),
        placed: ViewNumber(0),
        listen: ([127, 0, 0, 1], 0).into(),
        faults: Vec::new(),
        application: 0,
        origin: Origin { tree: job, parent_port: None, place_count: 1 },
    })
}

/// Card by which other processes reach this one.
fn card(welcome: &Welcome, listener: Option<&TcpListener>) -> std::io::Result<Card> {
    Ok(Card {
        process: welcome.world.process(welcome.me),
        host_number: welcome.host_number,
        host: welcome.host.clone(),
        pid: std::process::id() as i32,
        endpoints: networks::endpoints(listener.map(TcpListener::local_addr).transpose()?),
        early_threads: Vec::new(),
    })
}

/// Maps the memory that this process shares with others on its host. `None` without such memory, or if only TCP is
/// used.
fn map_segment(welcome: &Welcome) -> Result<Option<Segment>, JoinError> {
    let shared = |source| JoinError::SharedMemory { host: welcome.host.clone(), source };
    if let Some(windows) = welcome.windows {
        close_on_exec(windows).map_err(shared)?;
        descriptors::record(windows);
    }
    match (welcome.options.transport, &welcome.shared_memory) {
        (Transport::Tcp, _) | (_, None) => Ok(None),
        (_, Some(memory)) => {
            // Programs that this process runs are no part of the job.
            close_on_exec(memory.fd).map_err(shared)?;
            Segment::map(memory.fd, memory.slot_count).map(Some).map_err(shared)
        }
    }
}

fn make_engine(welcome: &Welcome, segment: Option<Segment>, cards: Vec<Card>, shares_core: bool) -> Engine {
    direct::permit_readers();
    let mut links = Links::new(identity(welcome, segment), welcome.world.process_count());
    for card in cards {
        links.set_card(card);
    }
    links.set_members(&welcome.world, &welcome.view);
    let replication = welcome.world.is_replicated().then(|| Box::new(replication(welcome)));
    let is_hit = welcome.options.sums_messages || !welcome.faults.is_empty();
    Engine::new(Setup {
        runtime: &upcalls::Process,
        me: welcome.me,
        world: welcome.world.clone(),
        links,
        shares_core,
        replication,
        injection: is_hit.then(|| Box::new(Injection::new(&faults::OfJob))),
        traces: welcome.options.traces.then(Traces::begin),
        traffic: welcome.options.profiles.then(|| Box::new(Traffic::new(welcome.world.rank_count()))),
    })
}

fn identity(welcome: &Welcome, segment: Option<Segment>) -> Identity {
    let me: ProcessIndex = welcome.world.process(welcome.me);
    Identity {
        job: welcome.job,
        me,
        incarnation: welcome.incarnation,
        host_number: welcome.host_number,
        secret: welcome.link_secret.clone(),
        segment,
        networks: networks::all(),
    }
}

/// Returns true if there are more processes than cores on which this process may run.
fn shares_core(welcome: &Welcome) -> bool {
    let cores = std::thread::available_parallelism().map_or(1, |count| count.get() as u32);
    welcome.core_sharers > cores
}

/// The replication protocol that the job's options ask for.
pub(crate) fn replication(welcome: &Welcome) -> Replication {
    let options = &welcome.options;
    let mut replica = Replica::new(quiesce::Config {
        me: welcome.me,
        world: welcome.world.clone(),
        view: welcome.view.clone(),
        protocol: match options.protocol {
            Protocol::Hash => quiesce::Protocol::Hash,
            Protocol::AllToAll => quiesce::Protocol::AllToAll,
        },
        verification: match options.verification {
            Verification::Strict => quiesce::Verification::Strict,
            Verification::Deferred => quiesce::Verification::Deferred,
        },
    });
    match options.on_sdc {
        OnSdc::Report => replica.correct_nothing(),
        // redrun ends the replica that withholds its messages, or the job.
        OnSdc::Heal | OnSdc::Abort | OnSdc::Return => replica.withhold_corrupt(),
        OnSdc::Correct => {}
    }
    let has_siblings = welcome.world.degree(welcome.me.rank) > 1;
    Replication::new(replica, options, has_siblings)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::fd::AsRawFd;

    proptest! {
        /// No value of the variable leads to taking over a descriptor that is not a connection of the right kind.
        #[test]
        fn any_text_is_a_control_descriptor_or_refused(text in "[-+ 0-9a-z]{0,12}") {
            if let Ok(fd) = text.parse::<RawFd>() {
                // Open descriptors of the test process may be sockets of other tests.
                prop_assume!(!(3..1024).contains(&fd));
                prop_assert!(adopt(fd).is_none());
            }
        }
    }

    #[test]
    fn only_a_unix_stream_is_taken_over() {
        let file = tempfile::tempfile().unwrap();
        assert!(adopt(file.as_raw_fd()).is_none());
        let datagram = std::os::unix::net::UnixDatagram::unbound().unwrap();
        assert!(adopt(datagram.as_raw_fd()).is_none());
        let (ours, theirs) = UnixStream::pair().unwrap();
        let taken = adopt(std::os::fd::IntoRawFd::into_raw_fd(ours)).expect("it is one");
        assert_eq!(taken.peer_addr().unwrap().is_unnamed(), theirs.local_addr().unwrap().is_unnamed());
    }

    #[test]
    fn processes_of_another_launcher_are_no_jobs_of_one_rank() {
        let asked = |variables: &[(&str, &str)]| {
            other_launcher(&|name| {
                variables.iter().find(|(other, _)| *other == name).map(|(_, value)| (*value).to_owned())
            })
        };
        let tasks = ("SLURM_STEP_NUM_TASKS", "4");
        let process = ("SLURM_PROCID", "0");
        assert_eq!(asked(&[tasks, process]), Some("srun"));
        for (rank, count, name) in LAUNCHERS {
            assert_eq!(asked(&[(rank, "0"), (count, "2")]), Some(name));
            assert_eq!(asked(&[(rank, "0"), (count, "1")]), None);
            assert_eq!(asked(&[(count, "2")]), None);
        }
        assert_eq!(asked(&[("SLURM_STEP_NUM_TASKS", "1"), process]), None);
        assert_eq!(asked(&[tasks, process, (SINGLETON_VARIABLE, "1")]), None);
        assert_eq!(asked(&[("SLURM_JOB_ID", "1")]), None);
    }
}
