//! Runs a campaign of faults and prints its table: `scripts/kill-campaign.sh`, `scripts/flip-campaign.sh`,
//! `scripts/reset-campaign.sh`, `scripts/chaos-conformance.sh`.

use clap::{Parser, ValueEnum};
use redrt_tests::Program;
use redrt_tests::campaign::{FaultKind, Plan};
use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Runs the test programs with a fault in every replica in turn, at moments drawn from a seed.
#[derive(Parser)]
struct CampaignArguments {
    /// The faults to inject.
    campaign: Campaign,

    /// Programs; all if not given.
    #[arg(long, value_delimiter = ',', value_parser = program)]
    programs: Vec<Program>,

    /// Degrees of replication; 2 and 3 if not given, 2 for conformance.
    #[arg(long, value_delimiter = ',')]
    degrees: Vec<u16>,

    /// Transports.
    #[arg(long, value_delimiter = ',', default_value = "shm,tcp")]
    transports: Vec<String>,

    /// Jobs for each replica of each program; 20 if not given, 1 for conformance.
    #[arg(long)]
    moments: Option<u32>,

    /// Run only this number of jobs, spread over all.
    #[arg(long)]
    sample: Option<usize>,

    /// Seed of the moments.
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Jobs at once.
    #[arg(long, default_value_t = 2)]
    parallel: usize,

    /// Time after which a job counts as hung.
    #[arg(long, default_value_t = 30.0, value_name = "SECONDS")]
    limit: f64,

    /// Further options of redrun.
    #[arg(last = true)]
    options: Vec<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Campaign {
    /// Kills, three of four at a send and the others at a time.
    Kill,
    /// Flips of a bit, in memory and in flight.
    Flip,
    /// Resets of connections, over TCP.
    Reset,
    /// Kills in the conformance tests, which run longer here; with `-- --spares 1` copies replace lost replicas.
    Conformance,
}

fn program(name: &str) -> Result<Program, String> {
    let names = || Program::ALL.map(|program| program.name).join(", ");
    Program::named(name).ok_or_else(|| format!("there are {}", names()))
}

fn main() -> ExitCode {
    let arguments = CampaignArguments::parse();
    let kinds = match arguments.campaign {
        Campaign::Kill => vec![FaultKind::Kill, FaultKind::Kill, FaultKind::KillAtTime, FaultKind::Kill],
        Campaign::Flip => vec![FaultKind::Flip, FaultKind::Wire],
        Campaign::Reset => vec![FaultKind::Reset],
        Campaign::Conformance => vec![FaultKind::Kill, FaultKind::KillAtTime],
    };
    let is_reset = matches!(arguments.campaign, Campaign::Reset);
    let is_conformance = matches!(arguments.campaign, Campaign::Conformance);
    let all = match is_conformance {
        true => Program::CONFORMANCE.to_vec(),
        false => Program::ALL.to_vec(),
    };
    let is_wanted = |program: &Program| arguments.programs.iter().any(|wanted| wanted.name == program.name);
    let programs = all.into_iter().filter(|program| arguments.programs.is_empty() || is_wanted(program)).collect();
    let degrees = if is_conformance { vec![2] } else { vec![2, 3] };
    let plan = Plan {
        kinds,
        programs,
        degrees: if arguments.degrees.is_empty() { degrees } else { arguments.degrees },
        // Shared memory has no connections to reset.
        transports: if is_reset { vec!["tcp".into()] } else { arguments.transports },
        options: arguments.options,
        moment_count: arguments.moments.unwrap_or(if is_conformance { 1 } else { 20 }),
        seed: arguments.seed,
        sample: arguments.sample,
        parallel: arguments.parallel,
        limit: Duration::from_secs_f64(arguments.limit),
    };
    let begin = Instant::now();
    let findings = plan.run(&|done, count| {
        eprint!("\r{done} of {count} ");
        let _ = std::io::stderr().flush();
    });
    eprintln!();
    println!("{}", findings.table());
    if is_conformance {
        println!("{} of {} lost replicas were replaced by copies", findings.recovered, findings.lost);
    }
    print!("{}", findings.failures_text());
    println!("seed {}, {:.0} s", plan.seed, begin.elapsed().as_secs_f64());
    if findings.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
