//! Time of a job that only begins and ends.

use crate::Effort;
use crate::beside::{Beside, Goal};
use crate::library::{Library, Transport};
use crate::runner;
use anyhow::{Context, Result};
use std::path::Path;

const TEXT: &str = "A program that calls `MPI_Init`, waits once for all ranks and ends, started by each library's own starter on this \
    one machine; milliseconds of wall time until the starter has ended. Of 64 ranks and more one run each.";

const RANK_COUNTS: [u32; 4] = [2, 16, 64, 256];

/// With more ranks the peers take half a minute for a run.
const MANY_RANKS: u32 = 64;

/// Limit on the time in which 256 ranks begin, wait for all, and end.
const MANY_GOAL_MS: f64 = 5000.0;

/// Measures all libraries in turn.
pub fn measure(root: &Path, work: &Path, libraries: &[Library], effort: Effort) -> Result<Beside> {
    let programs = crate::growth::build(root, work, libraries)?;
    let mut found = Beside::new("Starting and ending", TEXT, libraries);
    for rank_count in RANK_COUNTS {
        if rank_count >= MANY_RANKS && effort.quick {
            continue;
        }
        let is_many = rank_count >= MANY_RANKS;
        let runs = if is_many { 1 } else { effort.runs };
        let goal = if rank_count == 256 { Goal::Value(MANY_GOAL_MS) } else { Goal::Ratio(1.0) };
        for run in 1..=runs {
            for (number, (library, program)) in libraries.iter().zip(&programs).enumerate() {
                eprintln!("redrt-bench: start of {rank_count} ranks, run {run} of {runs}, {}", library.name);
                let command = library.command(rank_count, Transport::SharedMemory, program);
                let mut command = command.context("every library has shared memory")?;
                command.arg("begin");
                let milliseconds = 1e3 * runner::time(vec![command])?.0.wall_seconds;
                found.add(&format!("{rank_count} ranks"), "ms", Some(goal), number, milliseconds);
            }
        }
    }
    Ok(found)
}
