//! Runs the injection campaign and writes its table: `scripts/injection-campaign.sh`.

use clap::Parser;
use redrt_tests::Program;
use redrt_tests::injection::{Campaign, FlipSite, calm, calm_text, put_between_marks};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Injects faults in all places where a bit can flip, and prints the fate of each.
#[derive(Parser)]
struct InjectionArguments {
    /// Number of faults.
    #[arg(long, default_value_t = 1200)]
    faults: usize,

    /// Programs; all if not given.
    #[arg(long, value_delimiter = ',', value_parser = program)]
    programs: Vec<Program>,

    /// Degrees of replication.
    #[arg(long, value_delimiter = ',', default_value = "2,3", value_parser = clap::value_parser!(u16).range(2..=8))]
    degrees: Vec<u16>,

    /// At r = 2 keep copies that judge (redrun --arbitrate).
    #[arg(long)]
    arbitrate: bool,

    /// Places of the flips; everywhere if not given.
    #[arg(long, value_delimiter = ',')]
    places: Vec<FlipSite>,

    /// Messages to compare without faults in each of four ways; 0 for none.
    #[arg(long, default_value_t = 0)]
    calm: u64,

    /// Seed of everything random.
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Jobs at once.
    #[arg(long, default_value_t = 2)]
    parallel: usize,

    /// Time after which a job counts as hung.
    #[arg(long, default_value_t = 60.0, value_name = "SECONDS")]
    limit: f64,

    /// Append a line of JSON for each fault to FILE; faults that have a line there are not injected again, so that an
    /// interrupted campaign goes on.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Write table and figures between the marks of FILE.
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
}

fn program(name: &str) -> Result<Program, String> {
    let names = || Program::ALL.map(|program| program.name).join(", ");
    Program::named(name).ok_or_else(|| format!("there are {}", names()))
}

fn main() -> ExitCode {
    let arguments = InjectionArguments::parse();
    let limit = Duration::from_secs_f64(arguments.limit);
    let given = arguments.places;
    let campaign = Campaign {
        programs: if arguments.programs.is_empty() { Program::ALL.to_vec() } else { arguments.programs },
        degrees: arguments.degrees,
        arbitrates: arguments.arbitrate,
        places: if given.is_empty() { FlipSite::ALL.to_vec() } else { given },
        fault_count: arguments.faults,
        seed: arguments.seed,
        parallel: arguments.parallel,
        limit,
        records: arguments.json.clone(),
    };
    let begin = Instant::now();
    let findings = campaign.run(&|done, count| {
        eprint!("\r{done} of {count} ");
        let _ = std::io::stderr().flush();
    });
    eprintln!();
    let calm = match arguments.calm {
        0 => Vec::new(),
        messages => calm::measure(messages, arguments.json.as_deref(), limit, &|calm| {
            eprintln!("without faults, {}: {} messages, {} reports", calm.name, calm.messages, calm.reports);
        }),
    };
    let mut text = findings.table();
    if !calm.is_empty() {
        text = format!("{text}\n{}\n", calm_text(&calm));
    }
    text = format!("{text}\nSeed {}.\n", arguments.seed);
    println!("{text}");
    print!("{}", findings.failures_text());
    println!("{:.0} s", begin.elapsed().as_secs_f64());
    if let Some(path) = &arguments.markdown
        && let Err(error) = put_between_marks(path, "injection campaign", &text)
    {
        eprintln!("redrt-injection: {error}");
        return ExitCode::FAILURE;
    }
    let is_right = findings.records.iter().all(|record| record.failure().is_none());
    if is_right && calm.iter().all(|one| one.reports == 0) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
