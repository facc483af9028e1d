//! Start of a replica: descriptors, environment, limits.
//!
//! Replicas of a rank must not be able to tell each other apart. So each inherits the same arguments, the same
//! environment byte by byte, and the same descriptor numbers. Its identity comes over the control socket.

use super::child::{Child, MPI_LOOKS, Pipe};
use super::copying::{HELPER_FLAG, Task};
use super::descriptors::{CLONER_FD, CONTROL_FD, HELPER_FD, SHARED_MEMORY_FD, WINDOWS_FD};
use super::gpus::Gpus;
use super::sockets::Sockets;
use anyhow::{Context, Result};
use checkpoint_files::undo;
use cloner::shared::SharedMemory;
use control_network::link::Link;
use file_undo::SharedLog;
use host_processes::{open_pidfd, sweep};
use installation::surroundings::{PRELOAD, is_of_rank};
use installation::{FACADES, LIBRARY, LOADER, find_facade, find_library};
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
use redrt_wire::checkpoint::{CHILDREN_VARIABLE, told_to_children};
use redrt_wire::control::{CLONER_FD_VARIABLE, CONTROL_FD_VARIABLE, Transport, shared_memory_bytes, window_region};
use redrt_wire::daemon::{Abi, Application, BindTo, Binding, Launch};
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

/// Descriptors that a child costs the daemon: pidfd, two sockets, two pipes and one of input; with some in passing.
const FDS_PER_CHILD: u64 = 6;

/// Result of the preparation of a host before its processes are started.
pub struct Prepared {
    /// Notes for the user.
    pub notes: Vec<String>,
    shared_memory: Option<OwnedFd>,
    windows: Option<OwnedFd>,
    /// Keeps the inherited numbers, and those of helpers, from any other use.
    _reserved: Vec<File>,
    /// Directory of the agents' sockets of cloneable processes.
    sockets: Option<Sockets>,
    /// True: descriptors that the user's shell left open to `redrun` are closed. Replicas would take turns in them, and
    /// a copy could not carry them.
    closes_others: bool,
    open_files: (u64, u64),
    library_directory: Option<PathBuf>,
    preload: Option<PathBuf>,
    /// Key of the checkpoint that processes continue from.
    checkpoint_key: Option<Secret>,
    places: BTreeMap<ReplicaId, Place>,
    gpus: Gpus,
    /// The log of changed files that hosts share, if this host sees it.
    shared_log: Option<PathBuf>,
    /// Replicas that are started on this host, in order.
    own: Vec<ReplicaId>,
}

/// Prepares this process to be the parent of `launch`'s processes on the host with this number.
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
    // In other jobs processes open each other's memory.
    let has_windows = launch.world.is_replicated() || launch.cloneable;
    let windows = if has_windows { make_window_memory(launch.world.process_count())? } else { None };
    let sealed_key = launch.restore.as_ref().and_then(|restore| restore.sealed_key.as_deref());
    let checkpoint_key = sealed_key.map(|sealed| checkpoint_store::sealed::carried(sealed, job_secret)).transpose();
    let checkpoint_key = checkpoint_key.context("Failed to take the key of the checkpoint")?;
    let memory = launch.restore.as_ref().and_then(|restore| restore.memories.get(host as usize));
    // A host without processes had no shared memory.
    if let (Some(fd), Some(path)) = (&shared_memory, memory.filter(|_| child_count > 0)) {
        let input = checkpoint_store::reader(path, checkpoint_key.as_ref())?;
        SharedMemory::restore(input, fd).with_context(|| format!("Failed to read {}", path.display()))?;
    }
    if let Some(restore) = launch.restore.as_ref().filter(|restore| restore.has_logs_of_hosts)
        && let Some(place) = restore.places.get(host as usize)
        && place.directory.parent().and_then(Path::file_name).is_some_and(|name| *name == *format!("at-{host}"))
    {
        // Records beside a copy of another host's part are that host's: its daemon puts the files back.
        let told = match place.has_sources {
            true => undo::put_back(&place.directory, restore.generation, Some(host))?,
            false => undo::put_back_unsaved(&place.directory, restore.generation)?,
        };
        notes.extend(told.wrong);
    }
    let shared_log = launch.shared_log();
    let shared_log = SharedLog::at(shared_log.clone()).join(host).unwrap_or_default().then_some(shared_log);
    // Without replicas the library serves for changes of files.
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
    notes.extend(gpus.record(child_count));
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
        checkpoint_key,
        shared_log,
        places: places_of(&Topology::of_this_host(), binding_of(launch), &launch.slots, own, thread_count(launch))
            .context("--rankfile")?,
        gpus,
        own: own.to_vec(),
    })
}

/// Binding of the processes. Shares of cores are left out in two cases: processes may move to hosts whose cores are
/// shared otherwise, or the user or the batch system has said how cores are shared.
fn binding_of(launch: &Launch) -> Binding {
    let is_shared_out = || launch.applications.iter().any(|application| shares_cores_out(&application.environment));
    match launch.binding.to {
        BindTo::Share if launch.cloneable || is_shared_out() => Binding { to: BindTo::None, ..launch.binding },
        _ => launch.binding,
    }
}

/// True if variables choose processors for threads, or forbid binding.
fn shares_cores_out(environment: &[(OsString, OsString)]) -> bool {
    environment.iter().any(|(name, value)| match name.to_str() {
        Some("GOMP_CPU_AFFINITY" | "KMP_AFFINITY" | "OMP_PLACES") => !value.is_empty(),
        Some("SLURM_CPU_BIND_TYPE") => value == "none",
        Some("SLURM_OVERCOMMIT") => value == "1",
        _ => false,
    })
}

/// Number of threads of a process.
fn thread_count(launch: &Launch) -> usize {
    launch.applications.iter().filter_map(told_thread_count).max().unwrap_or(1)
}

/// Number of threads that a program is told; of nested levels the outermost.
fn told_thread_count(application: &Application) -> Option<usize> {
    let (_, value) = application.environment.iter().rev().find(|(name, _)| name == "OMP_NUM_THREADS")?;
    value.to_str()?.split(',').next()?.trim().parse().ok()
}

impl Prepared {
    /// The log of changed files that hosts share, if this host sees it.
    pub fn shared_log(&self) -> Option<&Path> {
        self.shared_log.as_deref()
    }

    /// Processors of a process, as a list in the kernel's format.
    pub fn processors(&self, replica: ReplicaId) -> String {
        self.places.get(&replica).map_or_else(String::new, |place| list(&place.processors))
    }

    /// Number of this host's processes, the replica included, that share its processors.
    pub fn sharers(&self, replica: ReplicaId) -> usize {
        places::sharers(&self.places, replica).unwrap_or(self.own.len())
    }

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
        // Not bound: its threads may run where those of the source may.
        self.start((self.helper()?, None), Some(&task), replica, has_input)
    }

    /// Starts the process that continues from an image in a file.
    pub fn load(&self, launch: &Launch, replica: ReplicaId, image: PathBuf) -> Result<Child> {
        let has_input = launch.standard_input && replica.rank == VirtualRank(0);
        // With several replicas the library gives the locks to one of them.
        let locks = launch.world.degree(replica.rank) < 2;
        let task = Task::Load { image, key: self.checkpoint_key.clone(), locks };
        self.start((self.helper()?, None), Some(&task), replica, has_input)
    }

    /// Descriptor number of the memory for windows in processes. `None` where they make it themselves.
    pub fn windows(&self) -> Option<RawFd> {
        self.windows.as_ref().map(|_| WINDOWS_FD)
    }

    /// Starts a helper of the job.
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

    /// Starts a command, bound to `place` if that is given.
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
        // Programs and their start scripts read variables of other launchers.
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
            // Libraries that scripts and interpreters load are found by name, through the façade's directory.
            if application.abi != Abi::Standard {
                prepend(&mut environment, "LD_LIBRARY_PATH", facades.as_os_str());
            }
            prepend(&mut environment, "LD_LIBRARY_PATH", directory.as_os_str());
            let abi = application.abi;
            let preloads = match abi {
                Abi::Standard => [None, None],
                // The loader redirects libraries that are loaded at run time.
                Abi::Any => [Some(LOADER), None],
                // A preloaded library takes precedence over the paths that the program was linked with.
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

/// Starts a helper that needs nothing of the job: before a launch, or where processes cannot be cloned.
pub fn start_helper(task: &Task) -> Result<(std::process::Child, Link<UnixStream>)> {
    let (ours, theirs) = UnixStream::pair().context("Failed to make a socket")?;
    let mut command = installation::command("redrtd").context("Failed to find this program's own file")?;
    command.arg(HELPER_FLAG).env_clear().stdin(Stdio::null());
    inherit(&mut command, vec![(theirs.as_raw_fd(), HELPER_FD)], getrlimit(Resource::RLIMIT_NOFILE)?, None, true);
    let child = command.spawn().context("Failed to start a helper")?;
    Ok((child, greet(ours, task)?))
}

/// Prepares a child between fork and exec: descriptors get their numbers. With `closes_others` it keeps no other
/// descriptors of this process.
fn inherit(
    command: &mut Command,
    places: Vec<(RawFd, RawFd)>,
    (soft, hard): (u64, u64),
    processors: Option<CpuSet>,
    closes_others: bool,
) {
    let parent = std::process::id() as libc::pid_t;
    let set_up = move || {
        // The daemon blocks signals, to read them from a descriptor, and its parent ignores SIGHUP; children must have
        // the defaults.
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
    // SAFETY: - `set_up` runs in a forked child: it makes only system calls, and neither allocates nor takes locks.
    unsafe { command.pre_exec(set_up) };
}

/// Gives every signal its default action. Ignored signals stay ignored beyond `exec`, and replicas on several hosts
/// would differ by the signals ignored there.
fn default_signals() {
    // The kernel's struct sigaction (rt_sigaction(2)): no handler, no flags, an empty mask. The C library refuses the
    // two signals that it keeps for itself, and a parent without that library may have ignored these too.
    let (default, mask_bytes) = ([0_u64; 4], 8_usize);
    for number in 1..=64 {
        // The kernel refuses signals that cannot be changed.
        // SAFETY: - `default` is readable, and as long as the kernel's structure.
        //         - the pointer for the old action is null, so nothing is written.
        unsafe {
            libc::syscall(libc::SYS_rt_sigaction, number, default.as_ptr(), std::ptr::null_mut::<u64>(), mask_bytes)
        };
    }
}

/// Processors as a set for the kernel.
fn set_of(place: &[usize]) -> CpuSet {
    let mut set = CpuSet::new();
    for number in place {
        // The kernel has named the processor, so the set has room for it.
        let _ = set.set(*number);
    }
    set
}

/// Sends a helper its task.
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

/// Sets close-on-exec on all but the standard descriptors, if the kernel can (Linux 5.11).
fn close_others() {
    // SAFETY: - sets flags only: all descriptors stay valid until exec.
    unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
}

fn place(from: RawFd, to: RawFd) -> io::Result<()> {
    // SAFETY: - no descriptor is lost: `to` was reserved for this by `reserve`.
    //         - the copy lacks close-on-exec, as it must outlive exec.
    let result = unsafe { libc::dup2(from, to) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn reserve(number: RawFd) -> Result<File> {
    let null = File::open("/dev/null")?;
    let flags = FcntlArg::F_DUPFD_CLOEXEC(number);
    let fd = fcntl(&null, flags).context("Failed to reserve a descriptor")?;
    // SAFETY: - `fcntl` has just made this descriptor, and nothing else owns it.
    let file = unsafe { File::from_raw_fd(fd) };
    anyhow::ensure!(fd == number, "descriptor {number} is taken");
    Ok(file)
}

/// Raises this process's limit of open files to the need of its children. Returns the original limit, which they get.
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

/// Switches off address-space randomization for this process's children.
fn fix_layout() -> nix::Result<()> {
    let persona = personality::get()?;
    personality::set(persona | Persona::ADDR_NO_RANDOMIZE)?;
    Ok(())
}

/// Memory for windows: a sparse region for each process, much longer than any memory. `None` if a file may not be that
/// long.
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
