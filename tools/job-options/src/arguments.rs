//! The options for `clap`, and the pass before it that handles `mpiexec`'s words with one dash.

use super::choices::{BindToChoice, LauncherChoice, LevelChoice, LevelParser, MapByArgument, MapByParser};
use super::files;
use audit_log::heads;
use clap::parser::ValueSource;
use clap::{ArgAction, Args, CommandFactory, FromArgMatches, Parser, ValueEnum};
use command_line::{Generate, UsageError, one_line};
use placement::plan::HostPlan;
use redrt_types::World;
use redrt_wire::control;
use std::ffi::{OsStr, OsString};
use std::io::IsTerminal;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Run an MPI program with every rank replicated.
///
/// Starts N virtual ranks of PROGRAM, each as R identical processes (replicas). Messages are compared between replicas,
/// so that silent data corruption is detected (R = 2) or outvoted (R = 3). When a replica dies the others carry on; the
/// program notices nothing. With -r 1, the default, this is an ordinary mpiexec.
#[derive(Parser, Clone, Debug)]
#[command(
    name = "redrun",
    version,
    override_usage = "redrun [-r R] [-n N] [OPTIONS] PROGRAM [ARGS]... [: [-n N] PROGRAM [ARGS]...]...",
    after_help = EXAMPLES,
    max_term_width = 100,
    args_override_self = true
)]
pub struct JobArguments {
    /// Options of the first program.
    #[command(flatten)]
    pub local: LocalArguments,

    /// Replicas of each rank: 1, 2, 3, …; 1.5 gives the first half of the ranks 2 and the others 1
    #[arg(short = 'r', long = "degree", value_name = "R", help_heading = "Replication")]
    pub degree: Option<String>,

    /// Degrees by rank, overriding -r: 0-3:3,4-7:1
    #[arg(long, value_name = "RANKS:R,…", help_heading = "Replication")]
    pub replicate: Option<String>,

    /// How messages reach the replicas: the payload once and digests, or the payload from every replica
    #[arg(long, value_enum, default_value_t, value_name = "WHICH", help_heading = "Replication")]
    pub protocol: Protocol,

    /// Complete a receive when its comparison is in, or at once with the verdict to follow
    #[arg(long, value_enum, default_value_t, value_name = "WHEN", help_heading = "Replication")]
    pub verify: Verify,

    /// Have each replica read for itself what its leader has read from a file, where the file has not changed, and
    /// compare
    #[arg(long, help_heading = "Replication")]
    pub verify_reads: bool,

    /// Compare the memory of each copy with its source's, by a digest, before it joins; the source is stopped for
    /// longer
    #[arg(long, help_heading = "Replication")]
    pub verify_clones: bool,

    /// Agree on all outcomes that depend on timing, or only on those that decide what is received
    #[arg(long, value_enum, default_value_t, value_name = "WHAT", help_heading = "Replication")]
    pub determinism: Determinism,

    /// Have the program's files written by one replica of each rank, which hands over when it dies: with three or more
    /// when most ask for the same (once), or at once (leader). Or by all, as if each were alone
    #[arg(long, value_enum, default_value_t, value_name = "WHO", help_heading = "Replication")]
    pub files: Files,

    /// Have threads take the program's locks, and that of Python's interpreter, in the same order in all replicas, or
    /// as they come: then only what is sent has to be the same
    #[arg(long, value_enum, default_value_t, value_name = "HOW", help_heading = "Replication")]
    pub threads: Threads,

    /// When a replica is found to be wrong: only report it; deliver what the majority sent; end the replica too and let
    /// a copy of a sound one take its place (--spares); or that, and when nobody knows which one is wrong (-r 2) end
    /// the job, or have it go back to its newest checkpoint that is proven (return)
    #[arg(long = "on-sdc", value_enum, default_value_t, value_name = "WHAT", help_heading = "Replication")]
    pub on_sdc: OnSdc,

    /// When a replica stands still while its siblings wait for it, because it is stopped or computes for ever: end it
    /// if two siblings are ahead; end it if one is (-r 2); or only tell
    #[arg(long = "on-stall", value_enum, default_value_t, value_name = "WHAT", help_heading = "Replication")]
    pub on_stall: OnStall,

    /// How often processes are asked whether they wait in MPI, 0.1 or more. That finds deadlocks, replicas that stand
    /// still, and slow hosts, which takes 120 looks. Less often in jobs of more than 2000 processes
    #[arg(long = "look-interval", value_name = "SECONDS", help_heading = "Replication")]
    pub look_interval: Option<String>,

    /// How long a replica may stand still, 2.5 times --look-interval or more [default: 4 times as long as replicas of
    /// its rank have stood at one MPI call, and 30 at least]
    #[arg(long = "stall-timeout", value_name = "SECONDS", help_heading = "Replication")]
    pub stall_timeout: Option<String>,

    /// Compare the memory of replicas at this interval, at a collective, to find what is corrupt before it reaches a
    /// message. 60 costs little. Programs with threads of their own are left alone
    #[arg(long, value_name = "SECONDS", help_heading = "Replication")]
    pub scrub: Option<String>,

    /// Where a rank has two replicas, keep a copy of either on another host, made anew at this interval [default: 600],
    /// and when the two differ ask these which one is wrong. It takes the memory of four replicas and keeps the
    /// messages of that time
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true, default_missing_value = "600", help_heading = "Replication")]
    pub arbitrate: Option<String>,

    /// Number of replicas found to be wrong after which a host gets nothing more, and its replicas move away
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..), help_heading = "Replication")]
    pub strikes: u32,

    /// Choose degree, spares and checkpoints by what was learned of the program and of the hosts (redplan advise). What
    /// is given besides counts more. The time of the run is learned at its end
    #[arg(long, value_enum, value_name = "HOW", help_heading = "Replication", conflicts_with_all = ["replicate", "check_determinism", "resume"])]
    pub protect: Option<Protect>,

    /// Replace lost replicas by copies of living ones: keep N hosts free for them, or N places where there is one host
    /// only. With 0, replicas can be copied once redctl spare add has made a place
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=1 << 16), help_heading = "Replication")]
    pub spares: Option<u32>,

    /// Take spare hosts from the pool that listens there (redspared), too
    #[arg(long, value_name = "HOST[:PORT]", help_heading = "Replication")]
    pub pool: Option<String>,

    /// The file with the pool's secret [default: as redctl pool finds it]
    #[arg(long = "pool-secret", value_name = "FILE", requires = "pool", help_heading = "Replication")]
    pub pool_secret: Option<PathBuf>,

    /// Save the whole job at this interval (90s, 10min, 2h), at one that suits its cost and --mtbf (auto), or when
    /// redctl checkpoint asks (asked). When a rank has lost its last replica the job goes back to that point by itself
    #[arg(long, value_name = "WHEN", help_heading = "Checkpoints")]
    pub checkpoint: Option<String>,

    /// Take the first checkpoint not before this time of the job: what was done until then is sooner done again. With
    /// auto it is where the expected time is least, by what was learned of the program (redplan learn)
    #[arg(long = "first-checkpoint", value_name = "TIME", help_heading = "Checkpoints")]
    pub first_checkpoint: Option<String>,

    /// Where a host is lost and no spare is left, another can be had after this time by resuming the job, as from a
    /// queue. The job then ends with exit code 75 if that is sooner than going on with the hosts that are left, by what
    /// was learned of the program
    #[arg(long = "host-wait", value_name = "TIME", help_heading = "Checkpoints")]
    pub host_wait: Option<String>,

    /// Where checkpoints are kept: a directory, or an object store, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX,
    /// az://CONTAINER/PREFIX or file:///DIRECTORY, which implies the level object [default: $REDRT_CHECKPOINT_DIR, or
    /// redrt-checkpoints; in memory /dev/shm/redrt-checkpoints-UID]
    #[arg(long = "checkpoint-dir", value_name = "DIR|URL", help_heading = "Checkpoints")]
    pub checkpoint_directory: Option<PathBuf>,

    /// The directory on each host's own disk where checkpoints of the level object are written first, and got back to
    /// [default: redrt-checkpoints-UID in $TMPDIR, or in /var/tmp]
    #[arg(long = "checkpoint-scratch", value_name = "DIR", help_heading = "Checkpoints")]
    pub checkpoint_scratch: Option<PathBuf>,

    /// How far away: on each host's own disk (local), which does not survive the loss of a host; and on that of another
    /// host, in another rack where there is one (partner); or in the memory of both, and on no disk (memory); or in
    /// pieces on K+M hosts, any M of which may be lost together (erasure:K+M); or in a directory that all hosts see
    /// (shared); or in an object store (object) [default: object where --checkpoint-dir is a URL, else shared, or that
    /// of the job that is resumed]
    #[arg(long = "checkpoint-level", value_name = "LEVEL", value_parser = LevelParser, help_heading = "Checkpoints")]
    pub checkpoint_level: Option<LevelChoice>,

    /// Copy one to another place at this interval, while the program runs: to a directory that all hosts share, or to
    /// the URL of an object store. For levels at which hosts keep checkpoints. A job whose hosts have lost theirs goes
    /// back to the newest copy
    #[arg(long = "checkpoint-archive", value_name = "TIME,DIR|URL", help_heading = "Checkpoints")]
    pub checkpoint_archive: Option<OsString>,

    /// Have siblings of the processes that were saved vouch for the memory in each, at the next collectives: where that
    /// takes 64 MiB of a process at most, 15 ms; always; or never. --on-sdc return goes back to one that is proven
    #[arg(long = "checkpoint-proof", value_name = "WHEN", value_enum, default_value_t, help_heading = "Checkpoints")]
    pub checkpoint_proof: CheckpointProof,

    /// How they are compressed
    #[arg(long, value_name = "HOW", value_enum, default_value_t, help_heading = "Checkpoints")]
    pub checkpoint_compression: CompressionChoice,

    /// How many may be built on each other at most, each with what has changed since the one before. With 1 each has
    /// all memory
    #[arg(long = "checkpoint-chain", value_name = "N", help_heading = "Checkpoints")]
    pub checkpoint_chain: Option<u32>,

    /// Encrypt them with the key in this file: 64 hexadecimal digits, which not everybody may read
    #[arg(long = "checkpoint-encrypt", value_name = "FILE", help_heading = "Checkpoints")]
    pub checkpoint_key: Option<PathBuf>,

    /// Mean time between failures of the job with one replica of each rank, for --checkpoint auto, --first-checkpoint
    /// auto and --protect auto [default: for the latter two that of the job's hosts, if it was learned; else 6h]
    #[arg(long, value_name = "TIME", help_heading = "Checkpoints")]
    pub mtbf: Option<String>,

    /// Go on from the newest checkpoint of a job, named by its directory, its URL or its number, in place of a program.
    /// Hosts may be others
    #[arg(long, value_name = "DIR|URL|JOB", help_heading = "Checkpoints")]
    pub resume: Option<PathBuf>,

    /// The MPI that the program was built for, where redrun cannot see it: scripts and interpreters get what they load
    #[arg(long, value_name = "ABI", value_enum, default_value_t = AbiChoice::Auto, help_heading = "Replication")]
    pub abi: AbiChoice,

    /// Run a program that is built for another MPI: each process is a job of its own, and nothing is compared
    #[arg(long = "allow-other-mpi", help_heading = "Replication")]
    pub allow_other_mpi: bool,

    /// Maximum number of replicas that redctl degree may give a rank [default: as many as it starts with, or one more
    /// as long as none is moved]
    #[arg(long = "max-degree", value_name = "R", value_parser = clap::value_parser!(u16).range(1..=63), help_heading = "Replication")]
    pub max_degree: Option<u16>,

    /// Replicas that are copied at once
    #[arg(long = "max-clones", value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1024), help_heading = "Replication")]
    pub max_clones: u32,

    /// How processes exchange messages
    #[arg(long, value_enum, default_value_t, value_name = "WHICH", help_heading = "Job")]
    pub transport: Transport,

    /// Hosts to run on, with slots: h1:4,h2:4. Without this and --hostfile, those of the batch system's allocation, or
    /// this
    #[arg(short = 'H', long = "hosts", visible_alias = "host", value_name = "HOST[:SLOTS],…", help_heading = "Hosts")]
    pub hosts: Option<String>,

    /// File of hosts, a line each: HOST, HOST:4, HOST slots=4, USER@HOST, HOST spare; # begins a comment
    #[arg(short = 'f', long = "hostfile", visible_alias = "machinefile", value_name = "FILE", help_heading = "Hosts")]
    pub hostfile: Option<PathBuf>,

    /// Processes for each host
    #[arg(short = 'N', long = "ppn", visible_alias = "npernode", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1 << 20), help_heading = "Hosts")]
    pub per_host: Option<u32>,

    /// Fill host after host (slot), or go round the hosts (node); or fill host after host and go round the sockets of
    /// each (socket), or the nodes of its memory (numa), with --bind-to
    #[arg(long = "map-by", value_parser = MapByParser, default_value = "slot", value_name = "WHAT", help_heading = "Hosts")]
    pub map_by: MapByArgument,

    /// File of places of processes, a line each: rank N=HOST slot=CORES, rank N.I=HOST for replica I; a host is a name
    /// or +nN, cores are 0, 1-3, or of a socket 0:1, 0:0-2,1:0, 1:*. The others go where there is room, apart from
    /// their siblings. Without other hosts, the job has those of the file
    #[arg(long, visible_alias = "rf", value_name = "FILE", help_heading = "Hosts")]
    pub rankfile: Option<PathBuf>,

    /// Which processors of its host a process may use: an equal share of the cores if there are enough for all (share),
    /// all (none), as many cores as OMP_NUM_THREADS says (core), those of a socket, or those of a node of the memory
    #[arg(long = "bind-to", value_enum, default_value_t, value_name = "WHAT", help_heading = "Hosts")]
    pub bind_to: BindToChoice,

    /// Print which processors each process may use
    #[arg(long = "report-bindings", help_heading = "Hosts")]
    pub report_bindings: bool,

    /// Give each process GPUs of its own (CUDA_VISIBLE_DEVICES and the like); replicas of a rank have different ones
    #[arg(long = "gpus-per-process", value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024), help_heading = "Hosts")]
    pub gpus_per_process: Option<u16>,

    /// File of racks, a line each: RACK HOST HOST…; replicas of a rank go to different ones
    #[arg(long, value_name = "FILE", help_heading = "Hosts")]
    pub topology: Option<PathBuf>,

    /// Print which replica runs on which host
    #[arg(long = "report-placement", help_heading = "Hosts")]
    pub report_placement: bool,

    /// How daemons are started on other hosts [default: slurm in its allocation, else ssh]
    #[arg(long, value_enum, value_name = "WHICH", help_heading = "Hosts")]
    pub launcher: Option<LauncherChoice>,

    /// Command to use in place of ssh, or srun, with options if need be
    #[arg(long = "launcher-exec", value_name = "COMMAND", help_heading = "Hosts")]
    pub launcher_exec: Option<OsString>,

    /// Interface, address or network (10.1.0.0/16) to use on every host
    #[arg(long, value_name = "NAME", help_heading = "Hosts")]
    pub interface: Option<String>,

    /// Encrypt all connections between processes, and between daemons
    #[arg(long, help_heading = "Hosts")]
    pub secure: bool,

    /// Daemons that connect to one of them, and to redrun [default: 32]
    #[arg(long = "fan-out", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096), help_heading = "Hosts")]
    pub fan_out: Option<u32>,

    /// Time within which the death of a host is found [default: 1]
    #[arg(long = "detect-timeout", value_name = "SECONDS", help_heading = "Hosts")]
    pub detect_timeout: Option<String>,

    /// End the job after this many seconds, with exit code 124
    #[arg(long, value_name = "SECONDS", help_heading = "Job")]
    pub timeout: Option<String>,

    /// Let the job go on when its terminal is gone: closed, killed, its connection lost. redrun --attach shows what it
    /// has printed meanwhile and goes on from there
    #[arg(long, help_heading = "Job")]
    pub detachable: bool,

    /// The same, and return as soon as the job runs
    #[arg(long, help_heading = "Job")]
    pub detach: bool,

    /// How long the processes of a detachable job go on when its coordinator was killed, and wait for redrun --attach
    /// to bring it back; 0 ends them with it [default: 10min]
    #[arg(long = "coordinator-lease", alias = "root-lease", value_name = "TIME", help_heading = "Job")]
    pub coordinator_lease: Option<String>,

    /// How long the journal may become from which the coordinator of a detachable job comes back, before a snapshot
    /// takes its place: 4096, 32MiB [default: 32MiB]
    #[arg(long = "coordinator-journal", alias = "root-journal", value_name = "SIZE", help_heading = "Job")]
    pub coordinator_journal: Option<String>,

    /// Hosts that hold what the coordinator of a detachable job decides: 1, 3 or 5. With more than one, another host
    /// has the coordinator when its host is lost [default: 3 if the job has as many hosts, else 1]
    #[arg(long, alias = "roots", value_name = "N", help_heading = "Job")]
    pub coordinators: Option<u8>,

    /// Be the terminal of a job that was started with --detachable or --detach: redrun --attach JOB, where JOB is its
    /// identity or the beginning of it, and may be left out if there is one. Ends with the job's exit code
    #[arg(long, help_heading = "Job")]
    pub attach: bool,

    /// With --attach: the coordinator of the job hangs, or is stopped. End it, and bring it back
    #[arg(long = "replace-coordinator", alias = "replace-root", requires = "attach", help_heading = "Job")]
    pub replace_coordinator: bool,

    /// Seed of digests and of random numbers that replicas must agree on [default: random]
    #[arg(long, value_name = "N", help_heading = "Job")]
    pub seed: Option<u64>,

    /// Show what most replicas of a rank have printed, compared byte by byte; or what its leader prints, at once and
    /// not compared
    #[arg(long, value_enum, default_value_t, value_name = "HOW", help_heading = "Output")]
    pub stdout: Stdout,

    /// Begin each line of output with its rank
    #[arg(short = 'l', long = "label", help_heading = "Output")]
    pub label: bool,

    /// Write what each rank prints to DIR/rank.V.out, and errors to DIR/rank.V.err, at R > 1 DIR/rank.V.I.err
    #[arg(long = "output-dir", value_name = "DIR", help_heading = "Output")]
    pub output_directory: Option<PathBuf>,

    /// What is done when output cannot be written, as on a full disk: end the job with exit code 74, or hold its
    /// processes and try again until it can be written
    #[arg(long = "on-output-error", value_enum, default_value_t, value_name = "HOW", help_heading = "Output")]
    pub on_output_error: OnOutputError,

    /// No summary at the end, and no moving lines
    #[arg(short = 'q', long = "quiet", help_heading = "Output")]
    pub quiet: bool,

    /// Tell what is set for the processes because of the hosts they are on
    #[arg(short = 'v', long = "verbose", help_heading = "Output")]
    pub verbose: bool,

    /// Append every event to FILE, for redreport; if FILE is a directory or ends in '/', to a file of its own there.
    /// Readable while the job runs
    #[arg(long, value_name = "FILE", env = "REDRT_AUDIT", help_heading = "Output")]
    pub audit: Option<PathBuf>,

    /// Note the heads of the audit log in FILE too, with those of other jobs, or in the system's log (syslog), or
    /// nowhere (none): what a log that was cut or emptied cannot match (redreport verify) [default:
    /// ~/.local/state/redrt/audit-heads]
    #[arg(long = "audit-heads", value_name = "FILE", env = "REDRT_AUDIT_HEADS", help_heading = "Output")]
    pub audit_heads: Option<heads::HeadStore>,

    /// Tell Prometheus how the job is, at http://ADDRESS/metrics: HOST:PORT, or PORT for this host alone; port 0 takes
    /// one that is free
    #[arg(long, value_name = "ADDRESS", help_heading = "Output")]
    pub metrics: Option<String>,

    /// With --metrics: write a file into DIR by which Prometheus finds them (file_sd_configs), for as long as the job
    /// runs
    #[arg(long = "metrics-targets", value_name = "DIR", requires = "metrics", help_heading = "Output")]
    pub metrics_targets: Option<PathBuf>,

    /// Show how the job is to browsers: HOST:PORT, or PORT for this host alone; port 0 takes one that is free. The
    /// address is printed, with a token without which nothing is told
    #[arg(long, value_name = "ADDRESS", help_heading = "Output")]
    pub web: Option<String>,

    /// Run CMD, by the shell, when a replica, host or job is lost, replaced, found corrupt, or ends: $REDRT_EVENT,
    /// $REDRT_JOB and $REDRT_MESSAGE say what, and a line of JSON on its standard input
    #[arg(long = "on-event", value_name = "CMD", help_heading = "Output")]
    pub on_event: Option<OsString>,

    /// Write a profile of the run to FILE as JSON, for redplan: time in MPI by kind of call, bytes by pair of ranks,
    /// memory, copies; if FILE is a directory or ends in '/', to a file of its own there
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub profile: Option<PathBuf>,

    /// Write the summary to FILE as JSON
    #[arg(long = "json-summary", value_name = "FILE", help_heading = "Output")]
    pub json_summary: Option<PathBuf>,

    /// Inject faults: kill:V.I@#K, kill:V.I@file#K, kill:V.I@SECONDSs, flip:V.I@#K, wire:V.I@#K, heap:V.I@#K,
    /// thread:V.I@#K, recv:V.I@#K, log:V.I@#K, decision:V.I@#K, read:V.I@#K, path:V.I@#K, clone:V.I@#K, stdout:V.I@#K,
    /// reset:V.I-W.J@#K, sick:HOST:N, random:mtbf=SECONDSs,seed=S,count=C. V.I is replica I of rank V, #K its K-th
    /// send, file#K the moment after its K-th change of a file. A bit flips in the payload before it is sent (flip), on
    /// its way (wire), in the heap or static data (heap), in the registers or on the stack of the thread that sends,
    /// some thousand instructions later at most (thread), in the K-th message it has received (recv), in what is kept
    /// to be sent again (log), or in the K-th line it prints (stdout); a sick host flips one in one of N messages. From
    /// the K-th MPI call on, one outcome is falsified for the program: a test, a probe, a clock, what is read of a file
    /// (path). May be repeated, or several separated by commas
    #[arg(long, value_name = "FAULT", help_heading = "Testing")]
    pub inject: Vec<String>,

    /// A fault of --inject that does not happen is an error: exit code 1 if the job went well. Without this it is told
    #[arg(long = "inject-required", requires = "inject", help_heading = "Testing")]
    pub inject_required: bool,

    /// Run every rank twice and tell where the program is not deterministic: what it sends, with the calls that led
    /// there in both replicas and the first element that differs. The exit code is 1 if it is not
    #[arg(long = "check-determinism", conflicts_with_all = ["replicate", "spares", "pool", "arbitrate"], help_heading = "Testing")]
    pub check_determinism: bool,

    /// Compare at each collective what the members of the communicator call: function, root, reduction, counts
    /// and types. A program in which they differ is told who calls what. For debugging: each collective costs a message
    /// more from every member to every other
    #[arg(long = "check-collectives", help_heading = "Testing")]
    pub check_collectives: bool,

    /// Refuse what the MPI standard does not define, also where MPICH and Open MPI both do it: reductions of MPI_CHAR
    #[arg(long, help_heading = "Testing")]
    pub pedantic: bool,

    /// Started by redrun for a process that has called MPI_Comm_spawn: what to run comes by standard input
    #[arg(long, hide = true)]
    pub spawned: bool,

    /// Started by redrun to run a job that can be detached: its terminal comes by standard input
    #[arg(long, hide = true)]
    pub coordinator: bool,

    /// Started by redrun to go on with the job of this number, whose coordinator was killed
    #[arg(long = "come-back", hide = true, value_name = "JOB", requires = "coordinator", value_parser = job_number)]
    pub come_back: Option<u64>,

    /// Started by a member of the quorum of coordinators, which this descriptor leads to
    #[arg(long = "quorum-socket", hide = true, value_name = "FD", requires = "come_back")]
    pub quorum_socket: Option<i32>,

    /// The term in which that member leads
    #[arg(long = "quorum-term", hide = true, value_name = "TERM", requires = "quorum_socket", default_value_t = 0)]
    pub quorum_term: u64,

    /// Accepted and not needed: more processes than CPUs are never refused
    #[arg(long, hide = true)]
    pub oversubscribe: bool,

    /// Accepted and not needed: nobody is refused
    #[arg(long = "allow-run-as-root", hide = true)]
    pub allow_run_as_root: bool,

    /// Accepted and not needed: all variables are passed on
    #[arg(long = "genvall", visible_alias = "envall", hide = true)]
    pub pass_environment: bool,

    /// Take programs and options from FILE, one program a line, in place of the command line (-configfile)
    #[arg(long, value_name = "FILE", help_heading = "Job")]
    pub configfile: Option<PathBuf>,

    /// Print a manual page or shell completions and leave
    #[arg(long, value_enum, value_name = "WHAT", help_heading = "Testing", exclusive = true)]
    pub generate: Option<Generate>,
}

const EXAMPLES: &str = "\
Environment variables of redrun are passed on to all processes. Each also finds its rank and their number in \
REDRT_RANK and REDRT_SIZE. SIGUSR1, SIGUSR2 and SIGWINCH that redrun gets are passed on to the program, in \
all replicas of a rank at the same MPI call; Ctrl-Z stops the whole job.

Exit code: the lowest rank's that is not 0; 128 + N if it died of signal N; the code of MPI_Abort; 124 after --timeout; \
130 after Ctrl-C; 75 when the job was saved and ended, to be resumed; \
76 when another terminal has attached to the job; 2 for a wrong command line.

Examples:
  redrun -r 2 -n 4 ./heat                  4 ranks, 2 replicas each: 8 processes
  redrun -r 3 -n 4 --audit log.jsonl ./cg  corruption is outvoted, all events are logged
  redrun -r 2 -n 4 --inject kill:1.0@2.5s ./heat
                                           kill a replica of rank 1 after 2.5 s and see the job go on
  redrun -n 8 --checkpoint 10min ./heat    saved every 10 minutes; goes back to that point after a loss
  redrun --resume redrt-checkpoints        go on with a job that ended
  redrun --detach -r 2 -n 4 ./heat         goes on when you log out; redrun --attach shows its output
  redrun -n 1 ./master : -n 8 ./worker     two programs, 9 ranks
  redrun -r 2 -n 8 -hosts h1:4,h2:4,h3:4,h4:4 ./heat
                                           on four hosts, replicas of a rank never on the same one";

/// Options that each program of an MPMD line has for itself.
#[derive(Args, Clone, Debug)]
pub struct LocalArguments {
    /// Number of (virtual) ranks [default: slots or CPUs / R, at least 1]; also -np
    #[arg(short = 'n', long = "np", value_name = "N", help_heading = "Job")]
    pub rank_count: Option<String>,

    /// Working directory of the processes
    #[arg(long = "wdir", visible_alias = "wd", value_name = "DIR", help_heading = "Job")]
    pub directory: Option<PathBuf>,

    /// Look for the program in these directories, separated by colons, before those of PATH (-path)
    #[arg(long, value_name = "DIRS", help_heading = "Job")]
    pub path: Option<OsString>,

    /// Numbers of ranks that are allowed, of which the greatest is taken that -n allows: a list of numbers and ranges,
    /// FIRST:LAST or FIRST:LAST:STEP (-soft)
    #[arg(long, value_name = "NUMBERS", help_heading = "Job")]
    pub soft: Option<String>,

    /// The processor that the program is built for; an error if it is not that of this installation (-arch)
    #[arg(long, value_name = "NAME", help_heading = "Job")]
    pub arch: Option<String>,

    /// The error handler that communicators begin with, where the program has set none (-initial-errhandler)
    #[arg(long = "initial-errhandler", value_enum, value_name = "NAME", help_heading = "Job")]
    pub initial_errhandler: Option<InitialErrhandler>,

    /// More options are in FILE, in the form of redrt.toml (docs/admin.md); what is said here counts more (-file)
    #[arg(long, value_name = "FILE", help_heading = "Job")]
    pub file: Option<PathBuf>,

    /// Set an environment variable in all processes (Open MPI's spelling)
    #[arg(short = 'x', value_name = "VAR[=VALUE]", help_heading = "Environment")]
    pub export: Vec<OsString>,

    /// Set an environment variable in the processes of this program (MPICH's spelling; -env)
    #[arg(long = "env", num_args = 2, value_names = ["VAR", "VALUE"], action = ArgAction::Append, help_heading = "Environment")]
    pub environment: Vec<OsString>,

    /// Set an environment variable in the processes of all programs (MPICH's spelling; -genv)
    #[arg(long = "genv", num_args = 2, value_names = ["VAR", "VALUE"], action = ArgAction::Append, help_heading = "Environment")]
    pub global_environment: Vec<OsString>,

    /// A setting of Open MPI's, which means nothing here: ignored, and told
    #[arg(long = "mca", visible_alias = "gmca", num_args = 2, value_names = ["NAME", "VALUE"], action = ArgAction::Append, hide = true)]
    pub mca: Vec<OsString>,

    /// The program and its arguments
    #[arg(value_name = "PROGRAM")]
    pub program: Vec<OsString>,
}

#[derive(Parser, Debug)]
#[command(name = "redrun", disable_help_flag = true, args_override_self = true)]
struct LaterArguments {
    #[command(flatten)]
    local: LocalArguments,
}

macro_rules! choice {
    ($(#[$meta:meta])* $name:ident => $target:ty { $($variant:ident => $value:ident),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default)]
        #[allow(missing_docs)]
        pub enum $name {
            #[default]
            $($variant),+
        }

        impl From<$name> for $target {
            fn from(choice: $name) -> Self {
                match choice { $($name::$variant => Self::$value),+ }
            }
        }
    };
}

choice!(
    /// `--protocol`.
    Protocol => control::Protocol { Hash => Hash, AllToAll => AllToAll }
);
choice!(
    /// `--verify`.
    Verify => control::Verification { Strict => Strict, Deferred => Deferred }
);
choice!(
    /// `--transport`.
    Transport => control::Transport { Auto => Auto, Shm => Shm, Tcp => Tcp }
);
choice!(
    /// `--determinism`.
    Determinism => control::Determinism { Full => Full, Sends => Sends }
);
choice!(
    /// `--on-stall`.
    OnStall => replication_manager::OnStall { Majority => Majority, Retire => Retire, Wait => Wait }
);
choice!(
    /// `--checkpoint-proof`.
    CheckpointProof => replication_manager::ProofMode { Auto => WhereSmall, Always => Always, Never => Off }
);
choice!(
    /// `--files`.
    Files => control::Files { Once => Once, Leader => Leader, All => All }
);
choice!(
    /// `--threads`.
    Threads => control::Threads { Order => Order, None => None }
);
choice!(
    /// `--on-sdc`.
    OnSdc => control::OnSdc { Heal => Heal, Correct => Correct, Report => Report, Abort => Abort, Return => Return }
);

/// `--stdout`.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Stdout {
    /// What most replicas have printed.
    #[default]
    Voted,
    /// What the leader prints.
    Leader,
}

/// `--on-output-error`.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnOutputError {
    /// End the job.
    #[default]
    Abort,
    /// Hold the processes and try again.
    Wait,
}

/// The command for `clap`, with the long version, for help, manual page and completions.
#[must_use]
pub fn command() -> clap::Command {
    JobArguments::command().long_version(installation::version_text())
}

/// True if the option belongs to each program of a command line, not to the whole job.
pub fn is_of_program(option: &clap::Arg) -> bool {
    LaterArguments::command().get_arguments().any(|own| own.get_id() == option.get_id())
}

/// Cuts the command line at `:`.
pub fn segments(arguments: Vec<OsString>) -> Vec<Vec<OsString>> {
    arguments.split(|argument| argument == ":").map(<[OsString]>::to_vec).collect()
}

/// Segments from a file (`-configfile`): a program with its options in each line. A line that begins with `#` is a
/// comment; a line that ends with a backslash continues in the next (MPI-5.0 §11.5, Form B).
///
/// # Errors
/// When the file cannot be read, or a line has an unterminated quote.
pub fn segments_of_file(path: &Path) -> Result<Vec<Vec<OsString>>, UsageError> {
    let wrong = |why: String| UsageError(format!("--configfile {}: {why}", path.display()));
    let text = files::read_bytes("--configfile", path)?;
    let mut segments = Vec::new();
    let mut begun = Vec::new();
    // After the last line end nothing follows, or an unterminated line.
    let lines = text.strip_suffix(b"\n").unwrap_or(&text).split(|byte| *byte == b'\n');
    for (number, line) in (1..).zip(lines) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if begun.is_empty() && line.trim_ascii_start().starts_with(b"#") {
            continue;
        }
        if let Some(part) = line.strip_suffix(b"\\") {
            begun.extend_from_slice(part);
            continue;
        }
        begun.extend_from_slice(line);
        let whole = std::mem::take(&mut begun);
        let words = shlex::bytes::split(&whole).ok_or_else(|| wrong(format!("line {number}: a quote has no end")))?;
        if !words.is_empty() {
            segments.push(words.into_iter().map(OsString::from_vec).collect());
        }
    }
    match (begun.is_empty(), segments.is_empty()) {
        (false, _) => Err(wrong("the last line goes on, and there is no other".into())),
        (true, true) => Err(wrong("no program is in it".into())),
        (true, false) => Ok(segments),
    }
}

/// Contents of the first segment.
pub enum Parsed {
    /// Options and a program.
    Arguments(Box<JobArguments>),
    /// Help or version, to be printed.
    Text(Vec<u8>),
}

/// Parses the first segment, which begins with the name of this program.
pub fn parse_first(segment: Vec<OsString>) -> Result<Parsed, UsageError> {
    let command = command();
    let matches = match command.clone().try_get_matches_from(with_two_dashes(segment, &command)?) {
        Ok(matches) => matches,
        Err(error) if !error.use_stderr() => {
            let text = error.render();
            let coloured = std::io::stdout().is_terminal();
            let text = if coloured { text.ansi().to_string() } else { text.to_string() };
            return Ok(Parsed::Text(text.into_bytes()));
        }
        Err(error) => return Err(one_line(&error)),
    };
    let arguments = JobArguments::from_arg_matches(&matches).map_err(|error| one_line(&error))?;
    check_alone(&arguments, &matches)?;
    Ok(Parsed::Arguments(Box::new(arguments)))
}

/// Parses the number of a job: 16 hexadecimal digits.
fn job_number(text: &str) -> Result<u64, std::num::ParseIntError> {
    u64::from_str_radix(text, 16)
}

/// Refuses other options beside `--attach` and `-configfile`: a running job has its options, and the file has all
/// others.
fn check_alone(arguments: &JobArguments, matches: &clap::ArgMatches) -> Result<(), UsageError> {
    let (own, why) = match (arguments.attach, &arguments.configfile) {
        (true, _) => ("attach", "the job runs already"),
        (false, Some(_)) => ("configfile", "options and programs are in the file"),
        (false, None) => return Ok(()),
    };
    let is_said = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
    // Options that a console decides for itself.
    let of_console = if arguments.attach { "quiet" } else { own };
    let is_other = |option: &&clap::Arg| {
        ![own, of_console, "program", "coordinator", "come_back", "replace_coordinator"]
            .contains(&option.get_id().as_str())
    };
    let command = command();
    let other = command.get_arguments().filter(is_other).find(|option| is_said(option.get_id().as_str()));
    if let Some(name) = other.and_then(|option| option.get_long()) {
        return Err(UsageError(format!("--{own}: {why}; leave out --{name}")));
    }
    let allowed_count = usize::from(arguments.attach);
    match arguments.local.program.get(allowed_count) {
        None => Ok(()),
        Some(word) => Err(UsageError(format!("--{own}: {why}; leave out '{}'", word.display()))),
    }
}

/// Parses a segment after a `:`.
pub fn parse_later(segment: Vec<OsString>) -> Result<LocalArguments, UsageError> {
    let mut named = vec![OsString::from("redrun")];
    named.extend(segment);
    let named = with_two_dashes(named, &LaterArguments::command());
    let parsed = named.and_then(|named| LaterArguments::try_parse_from(named).map_err(|error| one_line(&error)));
    let whole_job = |local: LocalArguments| match local.file {
        Some(_) => Err(UsageError("-file is for the whole job: say it before the first program".into())),
        None => Ok(local),
    };
    let local = parsed.and_then(|parsed| whole_job(parsed.local));
    local.map_err(|UsageError(line)| UsageError(format!("after ':': {line}")))
}

/// Rewrites words such as `-np 4` to `--np 4`, up to the program's name. Options of one letter stay. A `--` is put
/// before the program, so that its arguments are not taken for options. A negative number after an option with a value
/// is that value.
///
/// # Errors
/// For a word with one dash that is no option: `clap` would split it into letters, and read `-rmk` as `-r mk`.
pub fn with_two_dashes(arguments: Vec<OsString>, command: &clap::Command) -> Result<Vec<OsString>, UsageError> {
    let mut rewritten = Vec::with_capacity(arguments.len());
    let mut arguments = arguments.into_iter();
    rewritten.extend(arguments.next());
    while let Some(argument) = arguments.next() {
        let text = argument.to_string_lossy().into_owned();
        if !text.starts_with('-') || text == "-" || text == "--" {
            if text != "--" {
                rewritten.push("--".into());
            }
            rewritten.push(argument);
            break;
        }
        let (name, has_value) = match text.trim_start_matches('-').split_once('=') {
            Some((name, _)) => (name.to_owned(), true),
            None => (text.trim_start_matches('-').to_owned(), false),
        };
        let option = find_option(command, &name);
        if !text.starts_with("--") && option.is_none() && name.len() > 1 {
            check_letters(command, &name)?;
        }
        let is_long_with_one_dash = !text.starts_with("--") && name.len() > 1 && option.is_some();
        rewritten.push(if is_long_with_one_dash { prefixed(OsStr::new("-"), &argument) } else { argument });
        let value_count = match option {
            Some(option) if !has_value => value_count(option),
            _ => 0,
        };
        let is_negative = |value: &OsString| {
            value.to_str().and_then(|value| value.strip_prefix('-')).is_some_and(|rest| rest.starts_with(is_digit))
        };
        match (value_count, arguments.as_slice().first().filter(|value| is_negative(value))) {
            (1, Some(_)) => {
                let option = rewritten.pop().expect("it was just pushed");
                let (mut whole, value) = (option, arguments.next().expect("it is there"));
                whole.push("=");
                whole.push(value);
                rewritten.push(whole);
            }
            _ => rewritten.extend(arguments.by_ref().take(value_count)),
        }
    }
    rewritten.extend(arguments);
    Ok(rewritten)
}

fn is_digit(c: char) -> bool {
    c.is_ascii_digit()
}

/// Checks that a word with one dash consists of option letters: any number without a value, then perhaps one whose
/// value is a number (`-lqn4`). `name`: the word without its dash.
fn check_letters(command: &clap::Command, name: &str) -> Result<(), UsageError> {
    let wrong = |advice: String| Err(UsageError(format!("there is no option '-{name}'{advice}")));
    let mut rest = name.chars();
    while let Some(letter) = rest.next() {
        let Some(option) = find_option(command, &letter.to_string()) else { return wrong(String::new()) };
        if value_count(option) > 0 {
            let value = rest.as_str();
            let is_value = value.is_empty() || value.starts_with(|c| is_digit(c) || "=-".contains(c));
            let advice = || format!("; -{letter} takes a value: -{letter} {value}");
            return if is_value { Ok(()) } else { wrong(advice()) };
        }
    }
    Ok(())
}

pub fn find_option<'a>(command: &'a clap::Command, name: &str) -> Option<&'a clap::Arg> {
    command.get_arguments().find(|option| {
        let is_alias = option.get_all_aliases().is_some_and(|aliases| aliases.contains(&name));
        let is_short = option.get_short().is_some_and(|short| name.chars().eq([short]));
        option.get_long() == Some(name) || is_alias || is_short
    })
}

pub fn value_count(option: &clap::Arg) -> usize {
    match option.get_action() {
        ArgAction::Set | ArgAction::Append => option.get_num_args().map_or(1, |range| range.min_values()),
        _ => 0,
    }
}

fn prefixed(prefix: &OsStr, rest: &OsStr) -> OsString {
    let mut whole = prefix.to_os_string();
    whole.push(rest);
    whole
}

/// Number of ranks, and the program of each.
pub struct Shape {
    pub rank_count: u32,
    pub application_of_rank: Vec<u32>,
}

impl Shape {
    pub fn of(arguments: &JobArguments, locals: &[LocalArguments], hosts: &HostPlan) -> Result<Self, UsageError> {
        let mut application_of_rank = Vec::new();
        for (number, local) in locals.iter().enumerate() {
            let most = match &local.rank_count {
                Some(text) => parse_rank_count(text)?,
                None if locals.len() > 1 => 1,
                None => default_rank_count(arguments.degree.as_deref(), hosts),
            };
            let count = local.soft.as_deref().map_or(Ok(most), |text| soft_rank_count(text, most))?;
            application_of_rank.extend(std::iter::repeat_n(number as u32, count as usize));
        }
        let rank_count = application_of_rank.len();
        if rank_count > World::RANK_COUNT_MAX as usize {
            return Err(UsageError(format!("{rank_count} ranks in all: more than {}", World::RANK_COUNT_MAX)));
        }
        Ok(Self { rank_count: rank_count as u32, application_of_rank })
    }
}

fn parse_rank_count(text: &str) -> Result<u32, UsageError> {
    match text.parse() {
        Ok(0) => Err(UsageError("-n 0: a job needs at least one rank".into())),
        Ok(count) if count <= World::RANK_COUNT_MAX => Ok(count),
        _ => Err(UsageError(format!("-n {text}: not a number of ranks (1 to {})", World::RANK_COUNT_MAX))),
    }
}

/// The greatest number in `text` that does not exceed `most` (MPI-5.0 §11.5, `-soft`).
fn soft_rank_count(text: &str, most: u32) -> Result<u32, UsageError> {
    let wrong = |why: &str| UsageError(format!("--soft {text}: {why}"));
    let numbers = |item: &str| item.split(':').map(str::parse::<u32>).collect::<Result<Vec<_>, _>>();
    let mut best = None;
    for item in text.split(',') {
        let numbers = numbers(item).map_err(|_| wrong("expected numbers of ranks and ranges, as in 1,4:16:4"))?;
        let (first, last, step) = match numbers[..] {
            [one] => (one, one, 1),
            [first, last] => (first, last, 1),
            [first, last, step] if step > 0 => (first, last, step),
            _ => return Err(wrong("a range is FIRST:LAST or FIRST:LAST:STEP")),
        };
        let last = last.min(most);
        if first <= last {
            best = best.max(Some(first + (last - first) / step * step));
        }
    }
    best.filter(|best| *best > 0).ok_or_else(|| wrong(&format!("none of these is at least 1 and at most {most}")))
}

fn default_rank_count(degree: Option<&str>, hosts: &HostPlan) -> u32 {
    if let Some(rank_count) = hosts.rank_count {
        return rank_count;
    }
    let used = hosts.hosts.iter().filter(|host| !host.spare);
    // The number of slots, if all are known; otherwise this host's CPUs, as if there were no others.
    let slot_count = used.map(|host| hosts.per_host.or(host.slot_count)).sum::<Option<u32>>();
    let cpu_count = || std::thread::available_parallelism().map_or(1, |count| count.get() as u32);
    let cpu_count = slot_count.unwrap_or_else(cpu_count);
    let degree: f64 = degree.and_then(|degree| degree.parse().ok()).filter(|degree| *degree >= 1.0).unwrap_or(1.0);
    ((f64::from(cpu_count) / degree) as u32).max(1)
}

/// `--initial-errhandler` (MPI-5.0 section 11.5).
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum InitialErrhandler {
    /// The job ends.
    #[value(name = "mpi_errors_are_fatal")]
    AreFatal,
    /// The processes of the communicator end.
    #[value(name = "mpi_errors_abort")]
    Abort,
    /// The function returns an error code.
    #[value(name = "mpi_errors_return")]
    Return,
}

/// `--protect`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Protect {
    /// By what is known.
    Auto,
}

/// `--checkpoint-compression`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub enum CompressionChoice {
    /// Not at all: for disks that are fast.
    #[default]
    None,
    /// LZ4: for shared and slow disks.
    Lz4,
    /// Zstandard: smaller, and slower.
    Zstd,
}

/// `--abi`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum AbiChoice {
    /// What the program says that it needs.
    Auto,
    /// The standard ABI of MPI-5.0: programs for other MPIs are refused.
    Standard,
    /// MPICH, Intel MPI, MVAPICH, Cray MPI: libmpi.so.12
    Mpich,
    /// Open MPI 4 and 5: libmpi.so.40
    Openmpi,
}
