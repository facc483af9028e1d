//! The command line: from words to a checked [`Job`], or a message of one line.
//!
//! Spellings are those of both `mpiexec` families where they have one: `-np`, `-wdir` and `-genv` with one dash, `-x`
//! of Open MPI, `-env` of MPICH, and `:` between the programs of an MPMD job.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod arguments;
pub mod checkpoint;
mod choices;
mod degrees;
mod files;
#[cfg(test)]
mod fuzz;
mod hosts;
mod inject;
mod lease;
mod program;
mod protect;
mod site;
mod spawned;
mod times;

pub use arguments::OnOutputError;
pub use arguments::{JobArguments, command};
pub use hosts::parse_host;
pub use inject::{Fault, FaultError};
pub use site::{Defaults, checkpoint_directory};
pub use spawned::{assemble_spawned, options_for_spawned};

use arguments::{LocalArguments, OnSdc, Shape, Stdout};
use audit_log::heads;
use checkpoint::Checkpoint;
use checkpoint_store::{Manifest, StoredCheckpoint};
use command_line::{UsageError, generate_for};
use placement::plan::HostPlan;
use pool_client::access;
use redrt_types::{View, VirtualRank, World};
use redrt_wire::control::{Options, Verification};
use redrt_wire::daemon::Application;
use redrt_wire::dynamic::Origin;
use redrt_wire::secret::Secret;
use replica_output::sphere_stream::Release;
use replication_manager::{LOOK_INTERVAL_USUAL, ProofMode, STALL_LOOKS_MIN};
use std::ffi::OsString;
use std::fs::File;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Lower bound of the interval: shorter ones cost, without a benefit.
const LOOK_INTERVAL_MIN: Duration = Duration::from_millis(100);

/// The job as requested.
#[derive(Debug)]
pub struct Job {
    /// Places of the virtual ranks. In a job whose replicas can be copied each rank has one place more than replicas,
    /// so that one can move.
    pub world: World,
    /// Replicas to start.
    pub view: View,
    /// True if lost replicas are replaced by copies.
    pub is_cloneable: bool,
    /// Schedule and place of checkpoints. `None` if none are taken.
    pub checkpoint: Option<checkpoint::Checkpoint>,
    /// The checkpoint to resume from.
    pub resume: Option<StoredCheckpoint>,
    /// Lock that keeps others from resuming the job while it runs.
    pub lock: Option<File>,
    /// The site's pool of spares, if it is used.
    pub pool: Option<Pool>,
    /// Programs of the job, in the order of the command line.
    pub applications: Vec<Application>,
    /// Index into `applications`, by rank.
    pub application_of_rank: Vec<u32>,
    /// Hosts, launcher and binding.
    pub hosts: HostPlan,
    /// Settings of the processes.
    pub options: Options,
    /// Faults to inject.
    pub faults: Vec<Fault>,
    /// True if a fault that does not happen is an error.
    pub needs_faults: bool,
    /// Time after which the job is ended.
    pub timeout: Option<Duration>,
    /// True if lines of output begin with the rank.
    pub label: bool,
    /// Rule by which outputs of replicas become one.
    pub release: Release,
    /// Directory for the ranks' output, instead of standard output.
    pub output_directory: Option<PathBuf>,
    /// Reaction to output that cannot be written.
    pub on_output_error: OnOutputError,
    /// True if there is neither summary nor status lines.
    pub quiet: bool,
    /// True if choices that were not requested are reported.
    pub verbose: bool,
    /// Path of the audit log.
    pub audit: Option<PathBuf>,
    /// Place for the heads of the audit log.
    pub audit_heads: heads::HeadStore,
    /// Address for Prometheus.
    pub metrics: Option<SocketAddr>,
    /// Directory for the file through which Prometheus finds the job.
    pub metrics_targets: Option<PathBuf>,
    /// Address of the job's page.
    pub web: Option<SocketAddr>,
    /// Command to run for events.
    pub on_event: Option<OsString>,
    /// Path of the profile.
    pub profile: Option<PathBuf>,
    /// Path of the summary as JSON.
    pub json_summary: Option<PathBuf>,
    /// Reaction to a replica that stands still.
    pub on_stall: replication_manager::OnStall,
    /// Time for which a replica may stand still. `None`: derived from its rank's past.
    pub stall_time: Option<Duration>,
    /// True if programs for another MPI may run.
    pub allows_other_mpi: bool,
    /// Interval at which processes are asked whether they wait in MPI; longer in large jobs.
    pub look_interval: Duration,
    /// Number of strikes at which a host is drained.
    pub strikes_max: u32,
    /// Interval of comparing the replicas' memory. `None` for never.
    pub scrub_interval: Option<Duration>,
    /// Interval of renewing the copies that arbitrate between two replicas. `None` without them.
    pub arbitration_interval: Option<Duration>,
    /// Maximum number of clones at a time.
    pub clone_count_max: usize,
    /// Note about ignored settings of another MPI.
    pub ignored: Option<String>,
    /// Condition for waiting for a host instead of going on with fewer.
    pub host_wait: Option<HostWait>,
    /// Automatic choices with their reasons: a line each.
    pub chosen: Vec<String>,
    /// Path of the store that learns the time of this run, if any.
    pub learned_in: Option<PathBuf>,
    /// Relation to the terminal.
    pub terminal: Terminal,
    /// The spawning job, for a spawned one.
    pub origin: Option<Origin>,
}

/// Relation of a job to the terminal that it is started from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Terminal {
    /// The job ends with the terminal.
    Own,
    /// The job outlives the terminal. Its coordinator is to be started.
    Detachable {
        /// True if it leaves the terminal as soon as it runs.
        leaves: bool,
    },
    /// This process is the coordinator of such a job.
    Coordinator {
        /// Number of a job whose coordinator was killed, which this coordinator continues.
        comes_back: Option<u64>,
        /// Descriptor of the connection to the quorum's member that started it, and the term in which that leads.
        quorum: Option<(i32, u64)>,
    },
}

/// Data for the choice between waiting for a host and going on without.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostWait {
    /// Time after which another host is available.
    pub wait: Duration,
    /// Expected duration of the whole job. `None` if unknown: it goes on then.
    pub work: Option<Duration>,
}

/// The site's pool of spares.
#[derive(Clone, Debug)]
pub struct Pool {
    /// Address of the pool.
    pub address: SocketAddr,
    /// Secret of the pool.
    pub secret: Secret,
}

impl Job {
    /// Number of replicas that a rank starts with.
    #[must_use]
    pub fn degree(&self, rank: VirtualRank) -> u16 {
        self.view.degree(rank)
    }

    /// True if any rank starts with several replicas.
    #[must_use]
    pub fn is_replicated(&self) -> bool {
        (0..self.world.rank_count()).any(|rank| self.degree(VirtualRank(rank)) > 1)
    }
}

/// Task of a command line for `redrun`.
#[derive(Debug)]
pub enum Request {
    /// Run a job.
    Run(Box<Job>),
    /// Run a spawned job, whose programs come from the spawning one.
    RunSpawned(Box<JobArguments>),
    /// Be the terminal of a running job.
    Attach {
        /// Beginning of the job's number. `None`: the only job.
        wanted: Option<String>,
        /// True if its coordinator is to be killed and brought back.
        replaces_coordinator: bool,
        /// True for neither summary nor status lines.
        is_quiet: bool,
    },
    /// Print this (help, version, a manual page) and leave.
    Print(Vec<u8>),
}

/// Adds to the command line what files say: programs and options of `-configfile`, and a site's defaults. No other code
/// reads those files.
///
/// # Errors
/// When the file of programs cannot be read, or is wrong.
pub fn expand(arguments: Vec<OsString>, defaults: &Defaults) -> Result<Vec<OsString>, UsageError> {
    let mut segments = arguments::segments(arguments.clone()).into_iter();
    let first = segments.next().unwrap_or_default();
    let name = first.first().cloned().unwrap_or_default();
    // Faults of this part are reported when the whole line is parsed.
    let Ok(arguments::Parsed::Arguments(parsed)) = arguments::parse_first(first) else {
        return Ok(defaults.before(arguments));
    };
    if parsed.coordinator {
        // A coordinator's words are complete already.
        return Ok(arguments);
    }
    let of_file;
    let defaults = match &parsed.local.file {
        None => defaults,
        Some(path) => {
            of_file = defaults.with(path)?;
            &of_file
        }
    };
    let Some(path) = &parsed.configfile else { return Ok(defaults.before(arguments)) };
    if segments.next().is_some() {
        return Err(UsageError("--configfile: the programs are in the file; leave out ':'".into()));
    }
    let of_file = arguments::segments_of_file(path)?;
    if of_file.iter().flatten().any(|word| word.to_string_lossy().trim_start_matches('-') == "configfile") {
        return Err(UsageError(format!("--configfile {}: a file cannot name another", path.display())));
    }
    let words = of_file.join(&OsString::from(":"));
    Ok(defaults.before(std::iter::once(name).chain(words).collect()))
}

/// Parses a command line that [`expand`] has returned. `arguments` begin with the program's name.
///
/// # Errors
/// When it cannot be carried out.
pub fn parse(arguments: Vec<OsString>) -> Result<Request, UsageError> {
    let mut segments = arguments::segments(arguments);
    let mut parsed = match arguments::parse_first(segments.remove(0))? {
        arguments::Parsed::Arguments(parsed) => *parsed,
        arguments::Parsed::Text(text) => return Ok(Request::Print(text)),
    };
    if let Some(what) = parsed.generate {
        return Ok(Request::Print(generate_for(command(), "redrun", what)));
    }
    if parsed.spawned {
        return Ok(Request::RunSpawned(Box::new(parsed)));
    }
    if parsed.attach {
        let wanted = parsed.local.program.first().map(|job| job.to_string_lossy().into_owned());
        return match segments.is_empty() {
            true => {
                Ok(Request::Attach { wanted, replaces_coordinator: parsed.replace_coordinator, is_quiet: parsed.quiet })
            }
            false => Err(UsageError("--attach: the job has its programs already; leave out ':'".into())),
        };
    }
    let mut locals = vec![parsed.local.clone()];
    for segment in segments {
        locals.push(arguments::parse_later(segment)?);
    }
    let job = match &parsed.resume {
        Some(text) if locals.len() == 1 => checkpoint::resumed(&parsed, text),
        Some(_) => Err(UsageError("--resume: the job goes on with its own programs; leave out ':'".into())),
        None => protect::choose(&mut parsed, &locals).and_then(|chosen| {
            let job = assemble(&parsed, &locals)?;
            Ok(chosen.into_job(job))
        }),
    };
    job.map(|job| Request::Run(Box::new(job)))
}

/// Creates a directory named with a trailing slash, which gets files of this job and of others.
fn make_directory(option: &str, path: Option<&Path>) -> Result<(), UsageError> {
    let Some(path) = path.filter(|path| path.as_os_str().as_bytes().ends_with(b"/")) else { return Ok(()) };
    std::fs::create_dir_all(path).map_err(|error| UsageError(format!("{option} {}: {error}", path.display())))
}

fn assemble(arguments: &JobArguments, locals: &[LocalArguments]) -> Result<Job, UsageError> {
    assemble_with(arguments, locals, None)
}

/// A job of these programs, or one that continues from a checkpoint with these replicas.
fn assemble_with(
    arguments: &JobArguments,
    locals: &[LocalArguments],
    line: Option<(&Manifest, View)>,
) -> Result<Job, UsageError> {
    let rankfile = hosts::rankfile(arguments)?;
    let mut hosts = hosts::plan(arguments, rankfile.as_ref())?;
    let spare_count = arguments.spares.unwrap_or(0);
    if arguments.come_back.is_none() {
        hosts.keep_free(spare_count).map_err(|error| UsageError(error.to_string()))?;
    }
    if hosts.hosts.len() > 1 && arguments.transport == arguments::Transport::Shm {
        return Err(UsageError("--transport shm reaches one host only, and several are named".into()));
    }
    let (world, mut application_of_rank) = match &line {
        Some((manifest, view)) => (World::new(view.degrees()), manifest.application_of_rank.clone()),
        None => {
            let shape = Shape::of(arguments, locals, &hosts)?;
            let degree = degree(arguments)?;
            let world = degrees::world(shape.rank_count, degree, arguments.replicate.as_deref())?;
            (world, shape.application_of_rank)
        }
    };
    let pool = pool(arguments)?;
    let arbitration_interval = arbitration_interval(arguments, &world)?;
    let arbitrates = arbitration_interval.is_some();
    let is_cloneable = arguments.spares.is_some() || hosts.has_spares() || pool.is_some() || arbitrates;
    hosts.coordinator_lease = lease::coordinator_lease(arguments)?;
    hosts.coordinators = lease::coordinators(arguments, hosts.coordinator_lease, hosts.hosts.len())?;
    hosts.coordinator_journal_bytes = lease::coordinator_journal_bytes(arguments)?;
    let checkpoint = checkpoint::checkpoint(arguments)?;
    let is_stored = checkpoint.as_ref().is_some_and(|checkpoint| checkpoint.access.is_some());
    if let Some(checkpoint) = &checkpoint {
        checkpoint::check_level(checkpoint.level, &checkpoint.directory, &hosts)?;
    }
    let launched = world;
    if let Some(rankfile) = rankfile {
        hosts.ranks = rankfile.places(&hosts, &launched)?;
    }
    let world = places(&launched, is_cloneable, arguments.max_degree, arbitrates)?;
    let mut applications: Vec<_> = locals
        .iter()
        .enumerate()
        .map(|(number, local)| {
            let place = if number > 0 { format!("program {}, after ':': ", number + 1) } else { String::new() };
            program::application(arguments, local, is_stored)
                .map_err(|UsageError(why)| UsageError(format!("{place}{why}")))
        })
        .collect::<Result<_, _>>()?;
    let seed = match arguments.seed {
        Some(seed) => seed,
        None => random_seed()?,
    };
    let faults = inject::parse_all(&arguments.inject, &launched, seed)?;
    make_directory("--audit", arguments.audit.as_deref())?;
    make_directory("--profile", arguments.profile.as_deref())?;
    let is_new = arguments.come_back.is_none();
    if is_new && (world.is_replicated() || is_cloneable || checkpoint.is_some()) {
        applications.iter().try_for_each(program::check_arguments)?;
    }
    if is_new {
        // Tests a name like that of the job's own file in the directory.
        let own = |path: &PathBuf| match path.is_dir() {
            true => path.join(format!("redrt-{}", std::process::id())),
            false => path.clone(),
        };
        let profile = arguments.profile.as_ref().map(own);
        profile.map(|path| files::check_writable("--profile", &path)).transpose()?;
        arguments.output_directory.as_deref().map(|path| files::check_directory("--output-dir", path)).transpose()?;
        arguments.json_summary.as_deref().map(|path| files::check_writable("--json-summary", path)).transpose()?;
    }
    if arguments.on_event.as_ref().is_some_and(|command| command.as_bytes().trim_ascii().is_empty()) {
        return Err(UsageError("--on-event: the command is empty".into()));
    }
    if let Some(path) = arguments.audit.as_ref().filter(|path| is_new && !path.is_dir()) {
        files::make_log("--audit", path)?;
    }
    let timeout = arguments.timeout.as_deref().map(inject::parse_seconds).transpose();
    let timeout = timeout.map_err(|error| UsageError(format!("--timeout: {error}")))?;
    let stall_time = arguments.stall_timeout.as_deref().map(inject::parse_seconds).transpose();
    let stall_time = stall_time.map_err(|error| UsageError(format!("--stall-timeout: {error}")))?;
    let look_interval = arguments.look_interval.as_deref().map(inject::parse_seconds).transpose();
    let look_interval = look_interval.map_err(|error| UsageError(format!("--look-interval: {error}")))?;
    let look_interval = look_interval.unwrap_or(LOOK_INTERVAL_USUAL);
    if look_interval < LOOK_INTERVAL_MIN {
        return Err(UsageError("--look-interval: say 0.1 seconds or more".into()));
    }
    let stall_time_min = look_interval.mul_f64(STALL_LOOKS_MIN);
    if stall_time.is_some_and(|time| time < stall_time_min) {
        let (asked, needed) = (look_interval.as_secs_f64(), stall_time_min.as_secs_f64());
        let why = format!("--stall-timeout: processes are asked every {asked} seconds, so say {needed} or more");
        return Err(UsageError(why));
    }
    let scrub_interval = arguments.scrub.as_deref().map(inject::parse_seconds).transpose();
    let scrub_interval = scrub_interval.map_err(|error| UsageError(format!("--scrub: {error}")))?;
    if scrub_interval.is_some_and(|interval| interval.is_zero()) {
        return Err(UsageError("--scrub: 0 seconds is no interval".into()));
    }
    let mut view = View::with_degrees(&world, &Vec::from(launched));
    let mut world = world;
    let proofs = checkpoint.as_ref().map_or(ProofMode::Off, |checkpoint| checkpoint.proofs);
    if proofs == ProofMode::Always && !world.is_replicated() {
        return Err(UsageError("--checkpoint-proof always: at r = 1 nobody can vouch for a checkpoint".into()));
    }
    if arguments.on_sdc == OnSdc::Return && checkpoint.is_none() {
        return Err(UsageError("--on-sdc return: the job goes back to a checkpoint; say --checkpoint too".into()));
    }
    let are_proven = proofs != ProofMode::Off && world.is_replicated();
    let mut options = Options {
        protocol: arguments.protocol.into(),
        verification: arguments.verify.into(),
        transport: arguments.transport.into(),
        determinism: arguments.determinism.into(),
        files: arguments.files.into(),
        threads: arguments.threads.into(),
        on_sdc: arguments.on_sdc.into(),
        seed,
        sums_messages: !faults.is_empty(),
        scrubs: scrub_interval.is_some() || are_proven,
        verifies_reads: arguments.verify_reads,
        verifies_clones: arguments.verify_clones,
        traces: arguments.check_determinism,
        checks_collectives: arguments.check_collectives,
        pedantic: arguments.pedantic,
        profiles: arguments.profile.is_some(),
        is_saved: checkpoint.is_some(),
    };
    if let Some((manifest, of_line)) = line {
        (world, view) = (manifest.world.clone(), of_line);
        applications.clone_from(&manifest.applications);
        application_of_rank.clone_from(&manifest.application_of_rank);
        // The processes have these options in their memory.
        options = manifest.options.clone();
    }
    let proofs = if options.scrubs { proofs } else { ProofMode::Off };
    let checkpoint = checkpoint.map(|checkpoint| Checkpoint { proofs, ..checkpoint });
    Ok(Job {
        options,
        view,
        world,
        is_cloneable,
        checkpoint,
        resume: None,
        lock: None,
        pool,
        hosts,
        applications,
        application_of_rank,
        faults,
        needs_faults: arguments.inject_required,
        timeout,
        label: arguments.label,
        release: match (arguments.stdout, arguments.on_sdc) {
            (Stdout::Leader, _) => Release::Leader,
            (Stdout::Voted, OnSdc::Abort | OnSdc::Return) => Release::VotedOrNothing,
            (Stdout::Voted, _) => Release::Voted,
        },
        output_directory: arguments.output_directory.clone(),
        on_output_error: arguments.on_output_error,
        quiet: arguments.quiet,
        verbose: arguments.verbose,
        audit: arguments.audit.clone(),
        audit_heads: arguments
            .audit_heads
            .clone()
            .or_else(|| heads::default_file().map(heads::HeadStore::File))
            .unwrap_or(heads::HeadStore::Nowhere),
        metrics: listening("--metrics", arguments.metrics.as_deref())?,
        metrics_targets: arguments.metrics_targets.clone(),
        web: listening("--web", arguments.web.as_deref())?,
        on_event: arguments.on_event.clone(),
        profile: arguments.profile.clone(),
        json_summary: arguments.json_summary.clone(),
        on_stall: arguments.on_stall.into(),
        stall_time,
        allows_other_mpi: arguments.allow_other_mpi,
        look_interval,
        strikes_max: arguments.strikes,
        scrub_interval,
        arbitration_interval,
        clone_count_max: arguments.max_clones as usize,
        ignored: ignored(locals),
        host_wait: None,
        chosen: Vec::new(),
        learned_in: None,
        terminal: match arguments {
            JobArguments { coordinator: true, come_back, quorum_socket, quorum_term, .. } => Terminal::Coordinator {
                comes_back: *come_back,
                quorum: quorum_socket.map(|socket| (socket, *quorum_term)),
            },
            JobArguments { detach: false, detachable: false, .. } => Terminal::Own,
            JobArguments { detach, .. } => Terminal::Detachable { leaves: *detach },
        },
        origin: None,
    })
}

/// A note about Open MPI's `--mca`. Scripts written for Open MPI use it, most often to choose a network.
fn ignored(locals: &[LocalArguments]) -> Option<String> {
    let names = locals.iter().flat_map(|local| local.mca.chunks(2)).map(|setting| setting[0].to_string_lossy());
    let names: std::collections::BTreeSet<_> = names.collect();
    let names = names.into_iter().collect::<Vec<_>>().join(", ");
    (!names.is_empty()).then(|| {
        format!("--mca: ignored, since these are settings of Open MPI: {names} (networks: --transport, --interface)")
    })
}

/// Value of `-r`; two for a determinism check.
fn degree(arguments: &JobArguments) -> Result<Option<&str>, UsageError> {
    match (arguments.check_determinism, arguments.degree.as_deref()) {
        (false, degree) => Ok(degree),
        (true, None | Some("2")) => Ok(Some("2")),
        (true, Some(degree)) => {
            Err(UsageError(format!("-r {degree}: --check-determinism compares two replicas, so leave it out")))
        }
    }
}

/// Interval of renewing the copies that arbitrate. `None` without them.
fn arbitration_interval(arguments: &JobArguments, launched: &World) -> Result<Option<Duration>, UsageError> {
    let Some(text) = &arguments.arbitrate else { return Ok(None) };
    let wrong = |why: String| UsageError(format!("--arbitrate: {why}"));
    let interval = inject::parse_seconds(text).map_err(|error| wrong(error.to_string()))?;
    if interval.is_zero() {
        return Err(wrong("0 seconds is no interval".into()));
    }
    if !Vec::from(launched.clone()).contains(&2) {
        return Err(wrong(
            "no rank has two replicas: with one there is nothing to judge, with three they do so themselves".into(),
        ));
    }
    if Verification::from(arguments.verify) == Verification::Deferred {
        return Err(wrong(
            "a payload cannot wait for a verdict with --verify deferred, which delivers it before".into(),
        ));
    }
    Ok(Some(interval))
}

/// Places of every rank: one more than its highest number of replicas, so that one can move, and places for arbiters.
fn places(
    launched: &World,
    is_cloneable: bool,
    max_degree: Option<u16>,
    arbitrates: bool,
) -> Result<World, UsageError> {
    if !is_cloneable {
        return match max_degree {
            None => Ok(launched.clone()),
            Some(_) => Err(UsageError("--max-degree is for jobs whose replicas can be copied: --spares".into())),
        };
    }
    let judging = |degree: u16| if arbitrates && degree == 2 { 2 } else { 0 };
    let most = |degree: u16| (degree.max(max_degree.unwrap_or(degree)) + 1 + judging(degree)).min(World::DEGREE_MAX);
    Ok(World::new(Vec::from(launched.clone()).into_iter().map(most).collect()))
}

fn pool(arguments: &JobArguments) -> Result<Option<Pool>, UsageError> {
    let Some(text) = &arguments.pool else { return Ok(None) };
    let wrong = |error: anyhow::Error| UsageError(format!("--pool {text}: {error:#}"));
    let address = access::resolve(text).map_err(wrong)?;
    let secret = access::secret(arguments.pool_secret.as_deref()).map_err(wrong)?;
    Ok(Some(Pool { address, secret }))
}

/// Parses the address of an option that listens.
fn listening(option: &str, text: Option<&str>) -> Result<Option<SocketAddr>, UsageError> {
    let wrong = |text: &str, why: http_pages::AddressError| UsageError(format!("{option} {text}: {why}"));
    text.map(|text| http_pages::address(text).map_err(|why| wrong(text, why))).transpose()
}

fn random_seed() -> Result<u64, UsageError> {
    let secret = redrt_wire::secret::Secret::generate();
    let secret = secret.map_err(|error| UsageError(format!("the system gives no random numbers: {error}")))?;
    Ok(u64::from_le_bytes(secret.key()[..8].try_into().expect("eight of 32 bytes")))
}

#[cfg(test)]
mod tests;
