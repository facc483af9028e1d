//! Growth of costs with ranks, waiting messages, communicators and retained messages: `programs/growth.c`.

use crate::Effort;
use crate::beside::{Beside, Goal};
use crate::library::{Library, Transport};
use crate::runner;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// File name of the charts, in the directory of the page.
pub const PICTURE: &str = "growth.svg";

/// With more ranks, a peer takes tens of seconds to start.
const PEER_RANKS_MAX: u32 = 64;
/// From this number of ranks on a peer takes many seconds, and every library runs once.
const ONE_RUN_FROM: u32 = 64;

const RANK_COUNTS: [u32; 6] = [2, 4, 16, 64, 128, 256];
const DEPTHS: [u32; 6] = [1, 10, 100, 1_000, 10_000, 100_000];
/// Messages retained for a late replica. Beyond 32 MiB, some 60,000 messages, the sender would wait for the late
/// replica, which waits for the last message.
const RETAINED_DEPTHS: [u32; 5] = [10, 100, 1_000, 10_000, 50_000];
const COMMUNICATORS: [u32; 5] = [1, 10, 100, 1_000, 10_000];

const MEMORY: &str = "Memory of a process, the mean over all: what the kernel counts, shared pages in equal parts (Pss), when all have waited for \
    each other once, and when each has exchanged a message with every other. Medians of all runs up to 16 ranks, one run beyond. The \
    goal is 8 MiB, and 64 KiB for each connected peer.";
const RANKS: &str = "From the same runs: latency of 8 bytes between ranks 0 and 1 while the others rest outside of MPI, the best slice of each run; and \
    a barrier of all, the mean. Two cores.";
const UNEXPECTED: &str = "Rank 0 has sent rank 1 this number of messages with different tags, which all wait for their receives: latency of 8 bytes \
    past them; then the time of a receive, of the last 200 in reverse order; and what a waiting message of 8 bytes takes at the receiver, where \
    there are many.";
const COMMUNICATING: &str = "This number of copies of `MPI_COMM_WORLD` of 2 ranks: the best of the last ten calls of `MPI_Comm_dup`, latency on the last \
    one, and what each takes in a process.";
const RETAINED: &str = "Two replicas of 2 ranks, strict; of rank 1, one replica receives nothing until its sibling has received this number of messages of 8 \
    bytes, and all are kept for it meanwhile: the time of a send, of the last 1,000; what a message takes in each sender (ordinary pages, first used then, are \
    among it); and latency when it has caught up.";

/// Compiles the program with every library.
pub fn build(root: &Path, work: &Path, libraries: &[Library]) -> Result<Vec<PathBuf>> {
    let source = root.join("redrt-benches/programs/growth.c");
    let programs = libraries.iter().enumerate().map(|(number, library)| {
        let path = work.join(format!("growth-{number}"));
        library.compile(&[&source], &path)?;
        Ok(path)
    });
    programs.collect()
}

/// Memory and other figures by number.
pub struct Growth {
    /// Memory of a process by the number of ranks.
    pub memory: Beside,
    /// Figures by number of ranks, waiting messages, communicators and retained messages.
    pub others: Vec<Beside>,
}

/// Measures all libraries in turn.
pub fn measure(root: &Path, work: &Path, libraries: &[Library], effort: Effort) -> Result<Growth> {
    let bench = Bench { programs: build(root, work, libraries)?, libraries, effort };
    let mut memory = Beside::new("Memory", MEMORY, libraries);
    let mut ranks = Beside::new("Growth with the number of ranks", RANKS, libraries);
    bench.by_ranks(&mut memory, &mut ranks)?;
    let mut others = vec![ranks];
    others.push(bench.by_number(
        Beside::new("Growth with messages that wait", UNEXPECTED, libraries),
        "unexpected",
        &DEPTHS,
    )?);
    let found = Beside::new("Growth with communicators", COMMUNICATING, libraries);
    others.push(bench.by_number(found, "communicators", &COMMUNICATORS)?);
    others.push(bench.by_retained(work)?);
    Ok(Growth { memory, others })
}

struct Bench<'a> {
    programs: Vec<PathBuf>,
    libraries: &'a [Library],
    effort: Effort,
}

impl Bench<'_> {
    fn command(&self, number: usize, rank_count: u32) -> Result<Command> {
        let command = self.libraries[number].command(rank_count, Transport::SharedMemory, &self.programs[number]);
        command.context("every library has shared memory")
    }

    fn runs(&self) -> u32 {
        self.effort.runs.div_ceil(2)
    }

    /// The numbers of `all` that this effort measures.
    fn steps<'a>(&self, all: &'a [u32]) -> &'a [u32] {
        if self.effort.quick { &all[..3] } else { all }
    }

    fn by_ranks(&self, memory: &mut Beside, ranks: &mut Beside) -> Result<()> {
        for rank_count in self.steps(&RANK_COUNTS).iter().copied() {
            let runs = if rank_count >= ONE_RUN_FROM { 1 } else { self.runs() };
            for run in 1..=runs {
                for (number, library) in self.libraries.iter().enumerate() {
                    if rank_count > PEER_RANKS_MAX && !library.is_redrt() {
                        continue;
                    }
                    eprintln!("redrt-bench: growth, {rank_count} ranks, run {run} of {runs}, {}", library.name);
                    let mut command = self.command(number, rank_count)?;
                    command.args(["ranks", if self.effort.quick { "0.02" } else { "0.2" }]);
                    for (name, value, _) in figures(&runner::output(&mut command)?)? {
                        let mib = Some(Goal::Value(8.0 + f64::from(rank_count - 1) / 16.0));
                        match name.as_str() {
                            "memory-begin" => {
                                memory.add(&format!("{rank_count} ranks, at the begin"), "MiB", None, number, value);
                            }
                            "memory-connected" => {
                                let row = format!("{rank_count} ranks, all connected");
                                memory.add(&row, "MiB", mib, number, value);
                            }
                            _ => ranks.add(&format!("{name}, {rank_count} ranks"), "us", None, number, value),
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Runs one part of `growth.c` with two ranks and each number.
    fn by_number(&self, mut found: Beside, what: &str, numbers: &[u32]) -> Result<Beside> {
        let mut given_up = vec![false; self.libraries.len()];
        for count in self.steps(numbers) {
            for run in 1..=self.runs() {
                for (number, library) in self.libraries.iter().enumerate() {
                    if given_up[number] {
                        continue;
                    }
                    eprintln!("redrt-bench: growth, {count} {what}, run {run} of {}, {}", self.runs(), library.name);
                    let mut command = self.command(number, 2)?;
                    command.args([what, &count.to_string()]);
                    match runner::output(&mut command) {
                        Ok(text) => record(&mut found, number, *count, &text)?,
                        Err(error) if library.is_redrt() => return Err(error),
                        Err(_) => {
                            found.record(format!("With {} {count} {what} do not end well", library.name));
                            given_up[number] = true;
                        }
                    }
                }
            }
        }
        Ok(found)
    }

    fn by_retained(&self, work: &Path) -> Result<Beside> {
        let mut found = Beside::new("Growth with messages that are kept", RETAINED, &self.libraries[..1]);
        let file = work.join("retained");
        let go = work.join("retained.go");
        for depth in self.steps(&RETAINED_DEPTHS) {
            for run in 1..=self.runs() {
                eprintln!("redrt-bench: growth, {depth} messages kept, run {run} of {}", self.runs());
                for old in [&file, &go] {
                    if let Err(error) = fs::remove_file(old)
                        && error.kind() != std::io::ErrorKind::NotFound
                    {
                        return Err(error).with_context(|| format!("Failed to remove {}", old.display()));
                    }
                }
                let mut command = self.libraries[0].replicated(2, 2, &self.programs[0]);
                command.args(["retained", &depth.to_string()]).arg(&file);
                record(&mut found, 0, *depth, &runner::output(&mut command)?)?;
            }
        }
        Ok(found)
    }
}

/// Adds the figures that `growth.c` printed for this number.
fn record(found: &mut Beside, library: usize, count: u32, text: &str) -> Result<()> {
    for (name, value, unit) in figures(text)? {
        let unit = match unit.as_str() {
            "us" => "us",
            "B" => "B",
            other => anyhow::bail!("growth.c does not measure in {other:?}"),
        };
        found.add(&format!("{name}, {count}"), unit, None, library, value);
    }
    Ok(())
}

/// Name, value and unit of each line.
fn figures(text: &str) -> Result<Vec<(String, f64, String)>> {
    let line = |line: &str| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let [name, value, unit] = fields[..] else { anyhow::bail!("growth.c printed {line:?}") };
        Ok((name.to_owned(), value.parse()?, unit.to_owned()))
    };
    text.lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_figures_or_refused() {
        assert_eq!(figures("latency 0.25 us\n").unwrap(), [("latency".to_owned(), 0.25, "us".to_owned())]);
        assert!(figures("latency us").is_err());
        assert!(figures("latency x us").is_err());
    }
}
