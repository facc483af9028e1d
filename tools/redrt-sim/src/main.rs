//! `redrt-sim`: runs the simulators of the replication protocol and of the library, to replay a seed that a test found.

mod library;

use anyhow::{Result, bail};
use clap::{Parser, ValueEnum};
use quiesce::Protocol;
use quiesce::sim::{Faults, Options, run};
use std::process::ExitCode;

/// Simulates a job of replicated ranks with faults, from a seed, and checks that it ends right.
///
/// Simulates the replication protocol alone, or with --library all of the library below real MPI calls. The same seed
/// and options give the same run. Prints a summary line for each seed; ends with exit code 1 at the first run that is
/// not right.
#[derive(Parser)]
#[command(name = "redrt-sim", version)]
struct Arguments {
    /// The seed, or the first of several.
    seed: u64,

    /// Simulate the whole library: collectives, windows, decisions and errors on top of the protocol.
    #[arg(long, conflicts_with = "protocol")]
    library: bool,

    /// What the program does that calls the library; chosen by the seed if not given.
    #[arg(long, requires = "library")]
    program: Option<library::Program>,

    /// Plant a bug in every process, to see that it is found.
    #[arg(long, value_name = "BUG", requires = "library", value_parser = library::mutation)]
    plant: Option<library_sim::Mutation>,

    /// How many seeds to run.
    #[arg(long, default_value_t = 1)]
    count: u64,

    /// Number of virtual ranks; chosen by the seed if not given.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=64))]
    rank_count: Option<u32>,

    /// Degree of every rank; chosen by the seed if not given.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=8))]
    degree: Option<u16>,

    /// How payloads are compared; chosen by the seed if not given.
    #[arg(long)]
    protocol: Option<ProtocolArgument>,

    /// What goes wrong; chosen by the seed if not given.
    #[arg(long)]
    faults: Option<FaultsArgument>,

    /// Print every event: its number, the process, what it does.
    #[arg(long)]
    trace: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum ProtocolArgument {
    Hash,
    AllToAll,
}

#[derive(Clone, Copy, ValueEnum)]
enum FaultsArgument {
    None,
    Deaths,
    Resets,
    Wire,
    Memory,
    Log,
    Clones,
    Arbitration,
    PathArbitration,
    Rest,
    Collectors,
    Lines,
    Path,
}

impl Arguments {
    fn options(&self) -> Result<Options> {
        let mut options = Options { rank_count: self.rank_count, degree: self.degree, ..Options::default() };
        options.protocol = self.protocol.map(|protocol| match protocol {
            ProtocolArgument::Hash => Protocol::Hash,
            ProtocolArgument::AllToAll => Protocol::AllToAll,
        });
        options.faults = self.faults.map(|faults| match faults {
            FaultsArgument::None => Faults::None,
            FaultsArgument::Deaths => Faults::Deaths,
            FaultsArgument::Resets => Faults::Resets,
            FaultsArgument::Wire => Faults::Wire,
            FaultsArgument::Memory => Faults::Memory,
            FaultsArgument::Log => Faults::Log,
            FaultsArgument::Clones => Faults::Clones,
            FaultsArgument::Arbitration => Faults::Arbitration,
            FaultsArgument::PathArbitration => Faults::PathArbitration,
            FaultsArgument::Rest => Faults::Rest,
            FaultsArgument::Collectors => Faults::Collectors,
            FaultsArgument::Lines => Faults::Lines,
            FaultsArgument::Path => Faults::Path,
        });
        if self.trace {
            if self.count > 1 {
                bail!("--trace shows one seed: leave out --count");
            }
            options.trace = Some(|line| drop(say::line(line)));
        }
        if self.count == 0 || self.seed.checked_add(self.count).is_none() {
            bail!("--count {} from seed {} is not a range of seeds", self.count, self.seed);
        }
        Ok(options)
    }
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let options = arguments.options()?;
    if arguments.library {
        if arguments.faults.is_some_and(|faults| !matches!(faults, FaultsArgument::Path)) {
            bail!("--faults with --library is path: losses and lines are there without it");
        }
        return library::run(&arguments);
    }
    for seed in arguments.seed..arguments.seed + arguments.count {
        match run(seed, &options) {
            Ok(summary) => say::line(format_args!(
                "seed {seed}: right; faults {:?}, {} events, {} messages, {} decisions, {} deaths, {} resets, {} joins, {} reports",
                summary.faults.unwrap_or(Faults::None),
                summary.steps,
                summary.messages,
                summary.decisions,
                summary.deaths,
                summary.resets,
                summary.joins,
                summary.reports
            ))?,
            Err(failure) => {
                say::error(format_args!("seed {seed}: wrong {failure}"));
                return Ok(ExitCode::FAILURE);
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
