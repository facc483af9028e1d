//! The command line of `redplan`.

use super::program_options::ProgramOptions;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use command_line::quantity::{bytes, layout, loss, number, seconds, share};
use command_line::{Generate, UsageError};
use learned::store::VARIABLE;
use std::ffi::OsString;
use std::path::PathBuf;

/// Say which protection suits a job, and what it will cost.
///
/// Times have a unit: 90s, 10min, 1.5h, 20d, 5y (of 365.25 days); without one they are seconds. So have sizes: 200MB,
/// 1.5GiB. The models and where they are from: docs/planning.md.
#[derive(Parser, Debug)]
#[command(name = "redplan", version, max_term_width = 100)]
pub(super) struct PlanArguments {
    /// The answer as JSON, in seconds, bytes and shares, with full digits
    #[arg(long, global = true)]
    pub(super) json: bool,

    /// The answer as a picture too
    #[arg(long, global = true, value_name = "FILE")]
    pub(super) svg: Option<PathBuf>,

    /// What was learned [default: redrt/plan.redb in $XDG_DATA_HOME or ~/.local/share]
    #[arg(long, global = true, env = VARIABLE, value_name = "FILE")]
    pub(super) store: Option<PathBuf>,

    #[command(subcommand)]
    pub(super) what: What,
}

#[derive(Subcommand, Debug)]
pub(super) enum What {
    /// Rank configurations for a job, with the command line for each
    Advise(Box<Advise>),
    /// Time of a job that is run in one way, with losses at random or at given times
    Predict(Box<Predict>),
    /// How often to checkpoint, and from when on
    Interval(Interval),
    /// Time of a job at several degrees, with and without cloning, as the number of ranks grows
    Scale(Scale),
    /// Time of a job with checkpoints of which some ranks have two replicas
    Partial(Partial),
    /// How many spare hosts, and the risks while a replica is missing
    Spares(Spares),
    /// After a loss: take a spare, or go on with fewer hosts
    SpareChoice(SpareChoice),
    /// How long it takes until a failure is known
    Detect(Detect),
    /// Keep the times of runs, and the losses of hosts, for advice
    Learn {
        /// Audit logs (redrun --audit), directories of them, or profiles (*.json)
        #[arg(value_name = "FILE", required = true)]
        files: Vec<PathBuf>,
    },
    /// Show what was learned
    Known,
    /// Divide the hosts of a job into clusters and encoding groups
    Cluster(Cluster),
    /// Print a manual page or shell completions
    #[command(hide = true)]
    Generate { what: Generate },
}

/// What the ranking goes by.
#[derive(ValueEnum, Clone, Copy, Debug, Default)]
pub(super) enum By {
    /// Host hours.
    #[default]
    Cost,
    /// Time until it ends.
    Time,
}

#[derive(Args, Debug)]
pub(super) struct Advise {
    #[command(flatten)]
    pub(super) told: ProgramOptions,

    /// Processes for each host
    #[arg(short = 'N', long = "per-host", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) per_host: u32,

    /// Mean time between failures of one host [default: of the losses that were learned]
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub(super) mtbf: Option<f64>,

    /// Hosts there are [default: as many as are wanted]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) hosts: Option<u32>,

    /// Hosts that failed are back after this [default: not while the job runs]
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub(super) repair: Option<f64>,

    /// Leave out checkpoints of the runtime, for a program that it cannot save
    #[arg(long = "no-checkpoints")]
    pub(super) no_checkpoints: bool,

    /// Bytes that a host's own disk writes or reads in a second: rows with checkpoints on the hosts appear
    #[arg(long = "disk-rate", value_name = "SIZE", value_parser = bytes)]
    pub(super) disk_rate: Option<f64>,

    /// Bytes that a host sends, and receives, in a second: for checkpoints on the hosts
    #[arg(long = "network-rate", value_name = "SIZE", value_parser = bytes)]
    pub(super) network_rate: Option<f64>,

    /// Room on a host's own disk for checkpoints [default: as much as is wanted]
    #[arg(long = "host-disk", value_name = "SIZE", value_parser = bytes)]
    pub(super) host_disk: Option<f64>,

    /// Memory of a host [default: as much as is wanted]
    #[arg(long = "host-memory", value_name = "SIZE", value_parser = bytes)]
    pub(super) host_memory: Option<f64>,

    /// Power of a host in watts
    #[arg(long, value_name = "WATTS", value_parser = number)]
    pub(super) watts: Option<f64>,

    /// The job has to be done after this
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub(super) deadline: Option<f64>,

    /// Probability of missing the deadline that is accepted
    #[arg(long, value_name = "SHARE", value_parser = share, default_value = "0.01")]
    pub(super) risk: f64,

    /// What the ranking goes by
    #[arg(long, value_enum, default_value_t)]
    pub(super) by: By,

    /// Seed of the simulation
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) seed: u64,
}

#[derive(Args, Debug)]
pub(super) struct Predict {
    #[command(flatten)]
    pub(super) told: ProgramOptions,

    /// Processes for each host
    #[arg(short = 'N', long = "per-host", value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) per_host: u32,

    /// Replicas of each rank
    #[arg(short = 'r', long, value_name = "R", value_parser = clap::value_parser!(u32).range(1..=63), default_value_t = 1)]
    pub(super) degree: u32,

    /// Lost replicas are replaced by copies
    #[arg(long)]
    pub(super) spares: bool,

    /// The job is saved at this interval
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub(super) checkpoint: Option<f64>,

    /// Not before this [default: the interval]
    #[arg(long = "first-checkpoint", value_name = "TIME", value_parser = seconds, requires = "checkpoint")]
    pub(super) first_checkpoint: Option<f64>,

    /// Mean time between failures of one host [default: none fails]
    #[arg(long, value_name = "TIME", value_parser = seconds, conflicts_with = "losses")]
    pub(super) mtbf: Option<f64>,

    /// Lose a replica of this rank at this time; may be given several times, or several separated by commas
    #[arg(long = "lose", value_name = "RANK@TIME", value_parser = loss, value_delimiter = ',')]
    pub(super) losses: Vec<(u32, f64)>,

    /// Seed of the simulation
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) seed: u64,
}

#[derive(Args, Debug)]
pub(super) struct Interval {
    /// Mean time between interruptions of the whole job: that of a host divided by their number, at one replica
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub(super) mtti: f64,

    /// Time of one checkpoint, for which the job stands still
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub(super) checkpoint: f64,

    /// From an interruption until work goes on
    #[arg(long, value_name = "TIME", value_parser = seconds, default_value = "0s")]
    pub(super) restart: f64,

    /// Time of the job without checkpoints and interruptions; with it, the first protection point is told
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub(super) work: Option<f64>,

    /// Share of an interval that is lost by a failure
    #[arg(long = "lost-share", value_name = "SHARE", value_parser = share, default_value = "0.5")]
    pub(super) lost_share: f64,
}

#[derive(Args, Debug)]
pub(super) struct Scale {
    /// Time of the job with one replica of each rank, without failures
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub(super) work: f64,

    /// Share of the time that each replica more adds; may be given several times
    #[arg(long, value_name = "SHARE", value_parser = share, required = true)]
    pub(super) beta: Vec<f64>,

    /// Mean time to failure of a host, each of which has one rank
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub(super) mttf: f64,

    /// Time of a clone, for which this model stops the job
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub(super) clone: f64,

    /// Time of a new start
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub(super) relaunch: f64,

    /// The smallest number of ranks
    #[arg(long, value_name = "N", value_parser = number, default_value = "10000")]
    pub(super) from: f64,

    /// The largest number of ranks
    #[arg(long, value_name = "N", value_parser = number, default_value = "2000000")]
    pub(super) to: f64,

    /// Use the formula of reliability as it was published, with its exponent of n·r
    #[arg(long = "as-published")]
    pub(super) as_published: bool,
}

#[derive(Args, Debug)]
pub(super) struct Partial {
    /// Hosts that the job needs with one replica of each rank
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) hosts: u32,

    /// Mean time to failure of a host
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub(super) mttf: f64,

    /// Time of one checkpoint
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub(super) checkpoint: f64,

    /// From an interruption until work goes on
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub(super) restart: f64,

    /// Time of the job, for the picture; may be given several times
    #[arg(long, value_name = "TIME", value_parser = seconds, default_values = ["24h", "168h", "720h"])]
    pub(super) work: Vec<f64>,
}

#[derive(Args, Debug)]
pub(super) struct Spares {
    /// Time of the job with its replicas, without failures
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub(super) time: f64,

    /// Hosts for one replica of each rank
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) hosts: u32,

    /// Replicas of each rank
    #[arg(short = 'r', long, value_name = "R", value_parser = clap::value_parser!(u32).range(1..=63), default_value_t = 2)]
    pub(super) degree: u32,

    /// Mean time to failure of a host
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub(super) mttf: f64,

    /// From a loss until the place is filled
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub(super) window: f64,

    /// Hosts that failed are back after this
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub(super) repair: Option<f64>,
}

#[derive(Args, Debug)]
pub(super) struct SpareChoice {
    /// Time of the job without protection and failures
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub(super) work: f64,

    /// Overhead of protection, as a share of it
    #[arg(long, value_name = "SHARE", value_parser = number)]
    pub(super) overhead: f64,

    /// Time with one host fewer over time with all
    #[arg(long, value_name = "FACTOR", value_parser = number)]
    pub(super) slowdown: f64,

    /// Work between checkpoints
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub(super) interval: f64,

    /// Share of an interval that is lost
    #[arg(long = "lost-share", value_name = "SHARE", value_parser = share, default_value = "0.5")]
    pub(super) lost_share: f64,

    /// Until the remaining hosts go on
    #[arg(long = "restart-remaining", value_name = "TIME", value_parser = seconds)]
    pub(super) restart_remaining: f64,

    /// Until a spare can be had and has the state
    #[arg(long = "copy", value_name = "TIME", value_parser = seconds)]
    pub(super) copy: f64,

    /// Until the spare goes on
    #[arg(long = "restart-spare", value_name = "TIME", value_parser = seconds)]
    pub(super) restart_spare: f64,
}

#[derive(Args, Debug)]
pub(super) struct Detect {
    /// Hosts that are asked one after the other
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) hosts: u32,

    /// From the beginning of one scan to that of the next
    #[arg(long, value_name = "TIME", value_parser = seconds, default_value = "3s")]
    pub(super) period: f64,

    /// Time of one ping
    #[arg(long, value_name = "TIME", value_parser = seconds, default_value = "0.985ms")]
    pub(super) ping: f64,

    /// Until the ping of a dead process ends with an error
    #[arg(long, value_name = "TIME", value_parser = seconds, default_value = "3.6s")]
    pub(super) error: f64,

    /// Work between checkpoints, to tell what is done again
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub(super) interval: Option<f64>,
}

#[derive(Args, Debug)]
pub(super) struct Cluster {
    /// Bytes by pair of ranks: {"ranks": 64, "pairs": [[from, to, bytes], ...]}, or a profile that has traffic
    #[arg(long, value_name = "FILE", required_unless_present = "chain", conflicts_with = "chain")]
    pub(super) matrix: Option<PathBuf>,

    /// In place of a matrix: each rank exchanges the same with both neighbours in a row
    #[arg(long)]
    pub(super) chain: bool,

    /// Hosts and the ranks of each
    #[arg(long, value_name = "HOSTSxRANKS", value_parser = layout)]
    pub(super) hosts: (u32, u32),

    /// File of racks by host number, a line each: RACK HOST HOST…; a host that is not named is its own rack
    #[arg(long, value_name = "FILE")]
    pub(super) racks: Option<PathBuf>,

    /// Take the matrix for one part of a job that is FACTOR times as long, in strips
    #[arg(long, value_name = "FACTOR", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(super) scale: u32,

    /// Hosts of a cluster at the least
    #[arg(long = "min-hosts", value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) hosts_min: u32,

    /// Time to encode a gigabyte, for each member of a group
    #[arg(long, value_name = "TIME", value_parser = seconds, default_value = "6.375s")]
    pub(super) encode: f64,

    /// Show all candidates, not only those that nothing beats
    #[arg(long)]
    pub(super) all: bool,

    /// Write clusters and groups of the chosen one, as JSON
    #[arg(long, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,
}

pub(super) fn command() -> clap::Command {
    PlanArguments::command()
}

/// A command line as it was parsed.
pub(super) enum Parsed {
    Arguments(Box<PlanArguments>),
    /// Help or version, to be printed.
    Text(Vec<u8>),
}

pub(super) fn parse(arguments: Vec<OsString>) -> Result<Parsed, UsageError> {
    let parsed =
        command().try_get_matches_from(arguments).and_then(|matches| PlanArguments::from_arg_matches(&matches));
    match parsed {
        Ok(arguments) => Ok(Parsed::Arguments(Box::new(arguments))),
        Err(error) if !error.use_stderr() => Ok(Parsed::Text(error.render().to_string().into_bytes())),
        Err(error) => Err(command_line::one_line(&error)),
    }
}
