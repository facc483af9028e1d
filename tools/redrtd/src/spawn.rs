//! Starting one replica: descriptors, environment, limits.
//!
//! Replicas of a rank must not be able to tell each other apart, so all that is inherited is the same for each: the
//! environment and arguments byte by byte, and the numbers of the inherited descriptors. Who a process is it
//! learns over its control socket.

use super::child::{Child, MPI_LOOKS, Pipe};
use super::copying::{HELPER_FLAG, Task};
use super::descriptors::{CLONER_FD, CONTROL_FD, HELPER_FD, SHARED_MEMORY_FD, WINDOWS_FD};
use super::gpus::Gpus;
use super::sockets::Sockets;
use anyhow::{Context, Result};
use cloner::shared::SharedMemory;
use control_network::link::Link;
use file_undo::SharedLog;
use host_processes::{open_pidfd, sweep};
use installation::surroundings::{PRELOAD, is_of_rank};
use installation::{FACADES, LIBRARY, LOADER, find_facade, find_library};
use line_files::undo;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::personality::{self, Persona};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{Pid, pipe2};
use placement::places::{self, Place, places_of};
use placement::topology::{Topology, list};
use redrt_types::{ProcessIndex, ReplicaId, VirtualRank};
use redrt_wire::control::{CLONER_FD_VARIABLE, CONTROL_FD_VARIABLE, Transport, shared_memory_bytes, window_region};
use redrt_wire::daemon::{Abi, Application, BindTo, Binding, Launch};
use redrt_wire::line::{CHILDREN_VARIABLE, told_to_children};
use redrt_wire::secret::Secret;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Descriptors a child costs the daemon: pidfd, two sockets, two pipes, and one of input; with some in passing.
const FDS_PER_CHILD: u64 = 6;

/// What is done once on a host before its processes are started.
pub struct Prepared {
    /// What the user should be told.
    pub notes: Vec<String>,
    shared_memory: Option<OwnedFd>,
    windows: Option<OwnedFd>,
    /// Keeps the numbers above, and those of helpers, from being used for anything else.
    _reserved: Vec<File>,
    /// Where the agents of processes that can be cloned have their sockets.
    sockets: Option<Sockets>,
    /// What the user's shell has left open to redrun is not for the processes: replicas would take turns in it, and a
    /// copy could not carry it.
    closes_others: bool,
    open_files: (u64, u64),
    library_directory: Option<PathBuf>,
    preload: Option<PathBuf>,
    /// The key of the line that processes go on from.
    line_key: Option<Secret>,
    /// Processors that this host's processes may use.
    places: BTreeMap<ReplicaId, Place>,
    gpus: Gpus,
    /// The log of changed files that hosts share, if this one sees it.
    shared_log: Option<PathBuf>,
    /// Who is started on this host, in order.
    own: Vec<ReplicaId>,
}

/// Makes this process fit to be the parent of `launch`'s processes on the host with this number.
pub fn prepare(launch: &Launch, host: u32, own: &[ReplicaId], job_secret: &Secret) -> Result<Prepared> {
    let mut notes = Vec::new();
    let child_count = own.len();
    let open_files = raise_open_files(child_count as u64)?;
    let numbers = [CONTROL_FD, SHARED_MEMORY_FD, HELPER_FD, CLONER_FD, WINDOWS_FD];
    let mut reserved = Vec::with_capacity(numbers.len());
    for number in numbers {
        reserved.push(reserve(number)?);
    }
    let sockets = launch.cloneable.then(Sockets::new).transpose()?;
    sweep::become_subreaper().context("Failed to become the reaper of orphaned processes")?;
    let replicated = launch.world.is_replicated();
    if replicated && fix_layout().is_err() {
        notes.push(
            "address-space randomization cannot be switched off here: replicas' addresses differ, \
             and programs that print, hash or sort by address may diverge"
                .into(),
        );
    }
    let shared_memory = (launch.options.transport != Transport::Tcp)
        .then(|| make_shared_memory(shared_memory_bytes(launch.world.process_count())))
        .transpose()?;
    // Elsewhere processes open each other's memory.
    let has_windows = launch.world.is_replicated() || launch.cloneable;
    let windows = if has_windows { make_window_memory(launch.world.process_count())? } else { None };
    let sealed_key = launch.restore.as_ref().and_then(|restore| restore.sealed_key.as_deref());
    let line_key = sealed_key.map(|sealed| line_store::sealed::carried(sealed, job_secret)).transpose();
    let line_key = line_key.context("Failed to take the key of the checkpoint")?;
    let memory = launch.restore.as_ref().and_then(|restore| restore.memories.get(host as usize));
    // Where no process was, nobody had memory.
    if let (Some(fd), Some(path)) = (&shared_memory, memory.filter(|_| child_count > 0)) {
        let input = line_store::reader(path, line_key.as_ref())?;
        SharedMemory::restore(input, fd).with_context(|| format!("Failed to read {}", path.display()))?;
    }
    if let Some(restore) = launch.restore.as_ref().filter(|restore| restore.has_logs_of_hosts)
        && let Some(place) = restore.places.get(host as usize)
        && place.directory.parent().and_then(Path::file_name).is_some_and(|name| *name == *format!("at-{host}"))
    {
        // What is beside a copy of another host's part is that host's, and put back by its daemon.
        let told = match place.has_sources {
            true => undo::put_back(&place.directory, restore.generation, Some(host))?,
            false => undo::put_back_unsaved(&place.directory, restore.generation)?,
        };
        notes.extend(told.wrong);
    }
    let shared_log = launch.shared_log();
    let shared_log = SharedLog::at(shared_log.clone()).join(host).unwrap_or_default().then_some(shared_log);
    // Where nothing has to be agreed it sees what the program changes in files.
    let preload = if replicated || launch.cloneable { find_library(PRELOAD) } else { None };
    if replicated && preload.is_none() {
        notes.push(
            "libredrt_preload.so was not found: clocks, random numbers and process ids differ between replicas".into(),
        );
    }
    let library_directory = find_library(LIBRARY).and_then(|path| Some(path.parent()?.to_path_buf()));
    for abi in launch.applications.iter().map(|application| application.abi) {
        let is_served = matches!(abi, Abi::Mpich | Abi::OpenMpi);
        for name in [abi.library(), abi.fortran_library()].into_iter().flatten().filter(|_| is_served) {
            find_facade(name).with_context(|| format!("redrt's {name} is not there; install redrt again"))?;
        }
    }
    let gpus = Gpus::of_this_host(launch.binding.gpus_per_process);
    notes.extend(gpus.note(child_count));
    Ok(Prepared {
        notes,
        shared_memory,
        windows,
        _reserved: reserved,
        sockets,
        closes_others: replicated || launch.cloneable,
        open_files,
        library_directory,
        preload,
        line_key,
        shared_log,
        places: places_of(&Topology::of_this_host(), binding_of(launch), &launch.slots, own, thread_count(launch))
            .context("--rankfile")?,
        gpus,
        own: own.to_vec(),
    })
}

/// To what processes are bound. To no share of the cores of their first host where they may come to others, on which
/// cores are shared out otherwise; nor where the user, or the batch system, has said how the cores are shared.
fn binding_of(launch: &Launch) -> Binding {
    let is_shared_out = || launch.applications.iter().any(|application| shares_cores_out(&application.environment));
    match launch.binding.to {
        BindTo::Share if launch.cloneable || is_shared_out() => Binding { to: BindTo::None, ..launch.binding },
        _ => launch.binding,
    }
}

/// Whether variables say which processors threads use, or that processes are not to be bound.
fn shares_cores_out(environment: &[(OsString, OsString)]) -> bool {
    environment.iter().any(|(name, value)| match name.to_str() {
        Some("GOMP_CPU_AFFINITY" | "KMP_AFFINITY" | "OMP_PLACES") => !value.is_empty(),
        Some("SLURM_CPU_BIND_TYPE") => value == "none",
        Some("SLURM_OVERCOMMIT") => value == "1",
        _ => false,
    })
}

/// How many threads processes have.
fn thread_count(launch: &Launch) -> usize {
    launch.applications.iter().filter_map(told_thread_count).max().unwrap_or(1)
}

/// What a program is told of threads: of nested ones, those of the outermost level.
fn told_thread_count(application: &Application) -> Option<usize> {
    let (_, value) = application.environment.iter().rev().find(|(name, _)| name == "OMP_NUM_THREADS")?;
    value.to_str()?.split(',').next()?.trim().parse().ok()
}

impl Prepared {
    /// The log of changed files that hosts share, if this one sees it.
    pub fn shared_log(&self) -> Option<&Path> {
        self.shared_log.as_deref()
    }

    /// The processors that a process of this host may use, as the kernel writes them.
    pub fn processors(&self, replica: ReplicaId) -> String {
        self.places.get(&replica).map_or_else(String::new, |place| list(&place.processors))
    }

    /// How many processes of this host, the replica among them, may use processors that it may use.
    pub fn sharers(&self, replica: ReplicaId) -> usize {
        places::sharers(&self.places, replica).unwrap_or(self.own.len())
    }

    /// Starts one replica.
    pub fn spawn(&self, launch: &Launch, replica: ReplicaId, replicated: bool) -> Result<Child> {
        let application = &launch.applications[launch.application_of_rank[replica.rank.0 as usize] as usize];
        let directory = &application.directory;
        anyhow::ensure!(directory.is_dir(), "the working directory {} is not there", directory.display());
        let environment = self.environment(launch, application, replica, replicated);
        let has_input = launch.standard_input && replica.rank == VirtualRank(0);
        let what = || format!("Failed to run {}", application.program.display());
        let place = self.places.get(&replica).filter(|place| place.is_bound);
        if launch.cloneable {
            let environment = environment.into_iter().collect();
            let task = Task::Hold(Application { environment, ..application.clone() });
            return self.start((self.helper()?, place), Some(&task), replica, has_input).with_context(what);
        }
        let mut command = Command::new(&application.program);
        command.arg0(&application.arguments[0]).args(&application.arguments[1..]);
        command.current_dir(directory).env_clear().envs(environment);
        self.start((command, place), None, replica, has_input).with_context(what)
    }

    /// Starts the process that will become the copy of a replica.
    pub fn receive(&self, launch: &Launch, replica: ReplicaId, secret: Secret, address: IpAddr) -> Result<Child> {
        let has_input = launch.standard_input && replica.rank == VirtualRank(0);
        let task = Task::Receive { secret, address };
        // Its threads may run where those of its source may.
        self.start((self.helper()?, None), Some(&task), replica, has_input)
    }

    /// Starts the process that goes on from its image in a file.
    pub fn load(&self, launch: &Launch, replica: ReplicaId, image: PathBuf) -> Result<Child> {
        let has_input = launch.standard_input && replica.rank == VirtualRank(0);
        // Of several the library sees to it that one of them has them.
        let locks = launch.world.degree(replica.rank) < 2;
        let task = Task::Load { image, key: self.line_key.clone(), locks };
        self.start((self.helper()?, None), Some(&task), replica, has_input)
    }

    /// The number by which processes have the memory for windows, if they have it.
    pub fn windows(&self) -> Option<RawFd> {
        self.windows.as_ref().map(|_| WINDOWS_FD)
    }

    /// Starts a helper that sends or saves an image.
    pub fn send(&self, task: &Task) -> Result<(std::process::Child, Link<UnixStream>)> {
        let (ours, theirs) = UnixStream::pair().context("Failed to make a socket")?;
        let mut command = self.helper()?;
        command.stdin(Stdio::null());
        let mut places = vec![(theirs.as_raw_fd(), HELPER_FD)];
        if matches!(task, Task::Save { memory: Some(_), .. }) {
            places.extend(self.shared_memory.iter().map(|fd| (fd.as_raw_fd(), SHARED_MEMORY_FD)));
        }
        inherit(&mut command, places, self.open_files, None, true);
        let child = command.spawn().context("Failed to start a helper")?;
        Ok((child, greet(ours, task)?))
    }

    /// This program as a helper.
    fn helper(&self) -> Result<Command> {
        let sockets = self.sockets.as_ref().context("this job was not started so that it can be cloned")?;
        let mut command = installation::command("redrtd").context("Failed to find this program's own file")?;
        command.arg(HELPER_FLAG).env_clear().env(cloner::control::DIRECTORY_VARIABLE, sockets.path());
        Ok(command)
    }

    /// Starts a command, on these processors if it is bound.
    fn start(
        &self,
        (mut command, place): (Command, Option<&Place>),
        task: Option<&Task>,
        replica: ReplicaId,
        has_input: bool,
    ) -> Result<Child> {
        let (agent, control) = UnixStream::pair().context("Failed to make a control socket")?;
        agent.set_nonblocking(true)?;
        let helper = task.map(|_| UnixStream::pair()).transpose().context("Failed to make a socket")?;
        let (output, output_end) = pipe2(OFlag::O_CLOEXEC).context("Failed to make a pipe")?;
        let (error, error_end) = pipe2(OFlag::O_CLOEXEC).context("Failed to make a pipe")?;
        let input = if has_input { Some(pipe2(OFlag::O_CLOEXEC).context("Failed to make a pipe")?) } else { None };
        let (input_end, input) = input.unzip();
        for fd in [Some(&output), Some(&error), input.as_ref()].into_iter().flatten() {
            fcntl(fd, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        }
        command
            .stdin(input_end.map_or_else(Stdio::null, Stdio::from))
            .stdout(Stdio::from(output_end))
            .stderr(Stdio::from(error_end))
            .process_group(0);
        let mut places = vec![(control.as_raw_fd(), CONTROL_FD)];
        places.extend(self.shared_memory.iter().map(|fd| (fd.as_raw_fd(), SHARED_MEMORY_FD)));
        places.extend(self.windows.iter().map(|fd| (fd.as_raw_fd(), WINDOWS_FD)));
        places.extend(helper.iter().map(|(_, theirs)| (theirs.as_raw_fd(), HELPER_FD)));
        let processors = place.map(|place| set_of(&place.processors));
        inherit(&mut command, places, self.open_files, processors, self.closes_others);
        let pid = Pid::from_raw(command.spawn()?.id() as i32);
        let helper = helper.zip(task).map(|((ours, _), task)| greet(ours, task)).transpose()?;
        Ok(Child {
            replica,
            pid,
            program: helper.is_none().then_some(pid),
            helper,
            copy: None,
            is_restored: matches!(task, Some(Task::Load { .. })),
            lacks_script: false,
            printed_bytes: 0,
            corruptions: Vec::new(),
            corrupted: Vec::new(),
            pidfd: open_pidfd(pid).context("Failed to watch a process")?,
            agent: Some(Link::new(agent, None)),
            agent_watched_for_writing: false,
            greeted: false,
            pipes: [Some(Pipe::new(output)), Some(Pipe::new(error))],
            input,
            exit: None,
            drain_deadline: None,
            drained: false,
            held: false,
            kills: None,
            mpi_looks_left: MPI_LOOKS,
        })
    }

    fn environment(
        &self,
        launch: &Launch,
        application: &Application,
        replica: ReplicaId,
        replicated: bool,
    ) -> BTreeMap<OsString, OsString> {
        let mut environment: BTreeMap<_, _> = application.environment.iter().cloned().collect();
        let index = self.own.iter().position(|other| *other == replica).unwrap_or(0);
        environment.extend(self.gpus.variables(index).into_iter().map(|(name, value)| (name.into(), value.into())));
        let mut set = |name: &str, value: String| {
            debug_assert!(is_of_rank(OsStr::new(name)), "{name} would stay in what a rank starts");
            environment.insert(name.into(), value.into())
        };
        let (rank, size) = (replica.rank.0.to_string(), launch.world.rank_count().to_string());
        set(CONTROL_FD_VARIABLE, CONTROL_FD.to_string());
        if launch.cloneable {
            set(CLONER_FD_VARIABLE, CLONER_FD.to_string());
            set(CHILDREN_VARIABLE, told_to_children(launch.job, nix::unistd::geteuid().as_raw()).display().to_string());
        }
        set("REDRT_RANK", rank.clone());
        set("REDRT_SIZE", size.clone());
        // Programs, and what starts them, read those of other launchers.
        let (local_rank, local_size) = launch.local_rank(replica.rank);
        for (rank_variable, size_variable) in
            [("PMI_RANK", "PMI_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")]
        {
            set(rank_variable, rank.clone());
            set(size_variable, size.clone());
        }
        for (rank_variable, size_variable) in
            [("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"), ("MPI_LOCALRANKID", "MPI_LOCALNRANKS")]
        {
            set(rank_variable, local_rank.to_string());
            set(size_variable, local_size.to_string());
        }
        if replicated {
            set("REDRT_SEED", format!("{:016x}", launch.options.seed));
            set("REDRT_START_NS", launch.start_time_ns.to_string());
            set("REDRT_START_MONOTONIC_NS", launch.start_monotonic_ns.to_string());
            set("REDRT_HOST", launch.host_name.clone());
        }
        if let Some(directory) = &self.library_directory {
            let facades = directory.join(FACADES);
            // What a script or an interpreter loads is found by the name of the library, with which it comes.
            if application.abi != Abi::Standard {
                prepend(&mut environment, "LD_LIBRARY_PATH", facades.as_os_str());
            }
            prepend(&mut environment, "LD_LIBRARY_PATH", directory.as_os_str());
            let abi = application.abi;
            let preloads = match abi {
                Abi::Standard => [None, None],
                // What it loads while it runs is redirected.
                Abi::Any => [Some(LOADER), None],
                // A library that is there already is not looked for in the paths that the program was linked with.
                Abi::Mpich | Abi::OpenMpi => [abi.fortran_library(), abi.library()],
            };
            for preload in preloads.into_iter().flatten().filter_map(find_facade) {
                prepend(&mut environment, "LD_PRELOAD", preload.as_os_str());
            }
        }
        if let Some(preload) = &self.preload {
            prepend(&mut environment, "LD_PRELOAD", preload.as_os_str());
        }
        environment
    }
}

/// Starts a helper that needs nothing of the job: before there is one, and where processes cannot be cloned.
pub fn start_helper(task: &Task) -> Result<(std::process::Child, Link<UnixStream>)> {
    let (ours, theirs) = UnixStream::pair().context("Failed to make a socket")?;
    let mut command = installation::command("redrtd").context("Failed to find this program's own file")?;
    command.arg(HELPER_FLAG).env_clear().stdin(Stdio::null());
    inherit(&mut command, vec![(theirs.as_raw_fd(), HELPER_FD)], getrlimit(Resource::RLIMIT_NOFILE)?, None, true);
    let child = command.spawn().context("Failed to start a helper")?;
    Ok((child, greet(ours, task)?))
}

/// What happens in the child between fork and exec: descriptors get the numbers that go with them. With `closes_others`
/// it has no others: not what this process was started with.
fn inherit(
    command: &mut Command,
    places: Vec<(RawFd, RawFd)>,
    (soft, hard): (u64, u64),
    processors: Option<CpuSet>,
    closes_others: bool,
) {
    let parent = std::process::id() as libc::pid_t;
    let set_up = move || {
        // The daemon waits for signals by descriptor and has them blocked, and its parent ignores SIGHUP; its children
        // must not.
        default_signals();
        SigSet::empty().thread_set_mask()?;
        let _ = setrlimit(Resource::RLIMIT_NOFILE, soft, hard);
        if closes_others {
            close_others();
        }
        for (from, to) in &places {
            place(*from, *to)?;
        }
        if let Some(processors) = &processors {
            sched_setaffinity(Pid::from_raw(0), processors)?;
        }
        nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
        // The daemon may have died before the line above.
        if nix::unistd::getppid().as_raw() != parent {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        Ok(())
    };
    // SAFETY: set_up runs in a forked child: it only makes system calls, and neither allocates nor takes locks.
    unsafe { command.pre_exec(set_up) };
}

/// Each signal does what the system does by default: what is ignored stays so beyond `exec`, and replicas on several
/// hosts would differ by what ignores signals there.
fn default_signals() {
    // The kernel's struct sigaction (rt_sigaction(2)): no handler, no flags, an empty mask. Not by the C library, which
    // refuses the two signals that it keeps for itself, and a parent without that library may have ignored these too.
    let (default, mask_bytes) = ([0_u64; 4], 8_usize);
    for number in 1..=64 {
        // Those that cannot be changed are refused.
        // SAFETY: default is valid for reading and as long as the kernel's structure; the old one is not asked for.
        unsafe {
            libc::syscall(libc::SYS_rt_sigaction, number, default.as_ptr(), std::ptr::null_mut::<u64>(), mask_bytes)
        };
    }
}

/// These processors, as the kernel is told of them.
fn set_of(place: &[usize]) -> CpuSet {
    let mut set = CpuSet::new();
    for number in place {
        // The kernel has named it, so there is room for it.
        let _ = set.set(*number);
    }
    set
}

/// Tells a helper its task.
fn greet(stream: UnixStream, task: &Task) -> Result<Link<UnixStream>> {
    stream.set_nonblocking(true)?;
    let mut link = Link::new(stream, None);
    link.send(task).context("Failed to talk to a helper")?;
    Ok(link)
}

/// Puts `value` in front of a colon-separated list.
fn prepend(environment: &mut BTreeMap<OsString, OsString>, name: &str, value: &OsStr) {
    let list = environment.entry(name.into()).or_default();
    let mut longer = value.to_os_string();
    if !list.is_empty() {
        longer.push(":");
        longer.push(&*list);
    }
    *list = longer;
}

/// No descriptor but the standard ones outlives exec, if the kernel can do that (Linux 5.11).
fn close_others() {
    // SAFETY: sets flags of descriptors.
    unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
}

fn place(from: RawFd, to: RawFd) -> io::Result<()> {
    // SAFETY: dup2 takes any numbers; `to` was reserved for this by `reserve`. The copy is not closed on exec.
    let result = unsafe { libc::dup2(from, to) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn reserve(number: RawFd) -> Result<File> {
    let null = File::open("/dev/null")?;
    let flags = FcntlArg::F_DUPFD_CLOEXEC(number);
    let fd = fcntl(&null, flags).context("Failed to reserve a descriptor")?;
    // SAFETY: fcntl has just made this descriptor and nobody else owns it.
    let file = unsafe { File::from_raw_fd(fd) };
    anyhow::ensure!(fd == number, "descriptor {number} is taken");
    Ok(file)
}

/// Raises this process's limit to what its children need; returns theirs, which is the one it was started with.
fn raise_open_files(child_count: u64) -> Result<(u64, u64)> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    let needed = FDS_PER_CHILD * child_count + 256;
    anyhow::ensure!(
        needed <= hard,
        "{child_count} processes need {needed} open files on this host, and its limit (ulimit -Hn) is {hard}"
    );
    if needed > soft {
        setrlimit(Resource::RLIMIT_NOFILE, needed, hard)?;
    }
    Ok((soft, hard))
}

/// Switches address-space randomization off, for this process's children.
fn fix_layout() -> nix::Result<()> {
    let persona = personality::get()?;
    personality::set(persona | Persona::ADDR_NO_RANDOMIZE)?;
    Ok(())
}

/// A region for each process: much longer than any memory, of holes. None where files may not be as long.
fn make_window_memory(process_count: u32) -> Result<Option<OwnedFd>> {
    let bytes = window_region(ProcessIndex(process_count));
    let (soft, hard) = getrlimit(Resource::RLIMIT_FSIZE)?;
    if bytes > hard {
        return Ok(None);
    }
    setrlimit(Resource::RLIMIT_FSIZE, hard, hard)?;
    let made = make_shared_memory(bytes);
    setrlimit(Resource::RLIMIT_FSIZE, soft, hard)?;
    made.map(Some)
}

fn make_shared_memory(bytes: u64) -> Result<OwnedFd> {
    let fd = memfd_create("redrt", MFdFlags::MFD_CLOEXEC).context("Failed to make shared memory")?;
    nix::unistd::ftruncate(&fd, bytes as i64)
        .with_context(|| format!("Failed to size shared memory to {bytes} bytes"))?;
    Ok(fd)
}
