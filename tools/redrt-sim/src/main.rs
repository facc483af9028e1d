//! `redrt-sim`: replays seeds of all simulators, each by its name. `redrt sim …` runs this file.

use anyhow::{Result, anyhow, bail};
use clap::Parser;
use control_network::follower::{simulation::FollowerSimulator, tree::TreeSimulator};
use coordinator_quorum::sim::QuorumSimulator;
use file_undo::simulation::FileUndoSimulator;
use host_watch::sim::HostWatchSimulator;
use library_sim::LibrarySimulator;
use quiesce::sim::ProtocolSimulator;
use redrt_runtime::turns::TurnsSimulator;
use replication_manager::simulation::{CheckpointsSimulator, PaceSimulator, PacesSimulator, ProofsSimulator};
use simulation_kit::replay::{NamedSimulator, Words};
use simulation_kit::{Simulator, Trace};
use std::process::ExitCode;
use thread_order::sim::ThreadOrderSimulator;

/// All simulators.
const ENTRIES: &[NamedSimulator] = &[
    NamedSimulator::of::<ProtocolSimulator>(),
    NamedSimulator::of::<LibrarySimulator>(),
    NamedSimulator::of::<ThreadOrderSimulator>(),
    NamedSimulator::of::<TurnsSimulator>(),
    NamedSimulator::of::<PaceSimulator>(),
    NamedSimulator::of::<PacesSimulator>(),
    NamedSimulator::of::<CheckpointsSimulator>(),
    NamedSimulator::of::<ProofsSimulator>(),
    NamedSimulator::of::<FileUndoSimulator>(),
    NamedSimulator::of::<HostWatchSimulator>(),
    NamedSimulator::of::<FollowerSimulator>(),
    NamedSimulator::of::<TreeSimulator>(),
    NamedSimulator::of::<QuorumSimulator>(),
];

/// Plays a part of redrt with faults, from a seed, and checks that all ends right.
///
/// The same seed and options give the same run. Prints a line for each seed; ends with exit code 1 at the first run
/// that is not right.
#[derive(Parser)]
#[command(name = "redrt-sim", version, max_term_width = 100, after_help = simulators(),
    override_usage = "redrt-sim NAME SEED [OPTIONS]")]
struct SimulatorArguments {
    /// The simulator.
    name: String,

    /// The seed, or the first of several.
    seed: Option<u64>,

    /// How many seeds to run.
    #[arg(long, default_value_t = 1)]
    count: u64,

    /// What goes wrong; chosen by the seed if not given.
    #[arg(long)]
    faults: Option<String>,

    /// Plant a mistake, and count the seeds that show it.
    #[arg(long, value_name = "MISTAKE")]
    plant: Option<String>,

    /// Print every event.
    #[arg(long)]
    trace: bool,

    /// protocol, library: number of virtual ranks; chosen by the seed if not given.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=64))]
    rank_count: Option<u32>,

    /// protocol, library: degree of every rank; chosen by the seed if not given.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=8))]
    degree: Option<u16>,

    /// protocol: how payloads are compared, hash or all-to-all; chosen by the seed if not given.
    #[arg(long)]
    protocol: Option<String>,

    /// protocol: replicas need not make the same calls.
    #[arg(long)]
    uncounted: bool,

    /// library: what the program does that calls it; chosen by the seed if not given.
    #[arg(long)]
    program: Option<String>,

    /// library: no losses and no checkpoints.
    #[arg(long)]
    undisturbed: bool,

    /// The earlier spelling of the simulator "library": a seed alone was one of the protocol.
    #[arg(long, hide = true)]
    library: bool,
}

/// The list of simulators, for help.
fn simulators() -> String {
    let width = ENTRIES.iter().map(|entry| entry.name.len()).max().unwrap_or(0);
    let line = |NamedSimulator { name, about, .. }: &NamedSimulator| format!("  {name:width$}  {about}\n");
    format!("Simulators:\n{}", ENTRIES.iter().map(line).collect::<String>())
}

impl SimulatorArguments {
    /// The simulator and the first seed. A number in place of a name is the earlier spelling.
    fn entry(&self) -> Result<(&'static NamedSimulator, u64)> {
        let (name, seed) = match (self.name.parse(), self.seed) {
            (Ok(seed), None) if self.library => (LibrarySimulator::NAME, seed),
            (Ok(seed), None) => (ProtocolSimulator::NAME, seed),
            (_, Some(seed)) if !self.library => (&*self.name, seed),
            _ => bail!("redrt-sim NAME SEED: {} has no seed", self.name),
        };
        let entry = ENTRIES.iter().find(|entry| entry.name == name);
        Ok((entry.ok_or_else(|| anyhow!("there is no simulator {name}\n{}", simulators()))?, seed))
    }

    fn words(&self) -> Words {
        let options = [
            ("rank-count", self.rank_count.map(|count| count.to_string())),
            ("degree", self.degree.map(|degree| degree.to_string())),
            ("protocol", self.protocol.clone()),
            ("uncounted", self.uncounted.then(String::new)),
            ("program", self.program.clone()),
            ("undisturbed", self.undisturbed.then(String::new)),
        ];
        let shape = options.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        let trace = if self.trace { Trace::To(|line| drop(say::line(line))) } else { Trace::Off };
        Words { faults: self.faults.clone(), mistake: self.plant.clone(), shape, trace }
    }
}

fn main() -> Result<ExitCode> {
    let arguments = SimulatorArguments::parse();
    let (entry, first) = arguments.entry()?;
    let SimulatorArguments { count, trace, .. } = arguments;
    if trace && count > 1 {
        bail!("--trace shows one seed: leave out --count");
    }
    if count == 0 || first.checked_add(count).is_none() {
        bail!("--count {count} from seed {first} is not a range of seeds");
    }
    let (run, command) = entry.prepare(&arguments.words())?;
    let counts = arguments.plant.is_some() && count > 1;
    let mut found = Vec::new();
    for seed in first..first + count {
        match run(seed) {
            Ok(_) if counts => {}
            Ok(summary) => say::line(format_args!("seed {seed}: right; {summary}"))?,
            Err(why) => {
                let replay = if trace { String::new() } else { format!("\nreplay with: {}", command(seed)) };
                if found.is_empty() {
                    say::error(format_args!("seed {seed}: wrong {why}{replay}"));
                }
                found.push(seed);
                if !counts {
                    break;
                }
            }
        }
    }
    if counts {
        say::line(format_args!("found by {} of {count} seeds", found.len()))?;
    }
    Ok(if found.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
