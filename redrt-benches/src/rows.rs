//! Collectives in a row, nonblocking and persistent ones, windows of messages and threads of each library, measured by
//! `programs/rows.c`.

use crate::Effort;
use crate::beside::{Beside, Goal};
use crate::library::{Library, Transport};
use crate::runner;
use anyhow::{Context, Result, bail};
use std::path::Path;

/// Conditions of a job, and the text about it.
struct Condition {
    ranks: u32,
    /// Threads of each process that call MPI at once; 0 for a single-threaded job.
    threads: u32,
    title: &'static str,
    text: &'static str,
}

const CONDITIONS: [Condition; 4] = [
    Condition {
        ranks: 2,
        threads: 0,
        title: "Rows of calls, 2 ranks",
        text: "2 ranks on 2 cores over shared memory, r = 1; microseconds for one operation at the rank that takes \
            longest, of which each run takes the best slice; the number is bytes of each piece. The first ones are \
            blocking collectives one after the other, from or to rank 0 where there is a root. `apart-` has a barrier \
            between two of them that is not counted, and is the mean of the ranks. `ibcast` and its like are begun \
            and waited for, `persistent-` ones started and waited for. `overlap-` is the time of one with a \
            computation between that takes as long as the operation by itself, over the time of the computation. \
            `one-way-of-64` are 64 messages on the way in one direction, `both-ways-of-64` in both, \
            `persistent-one-way-of-64` in one direction by persistent requests. \
            [Rows that miss their goal](../performance/goals.md) has the causes, and the attempts to remove them.",
    },
    Condition {
        ranks: 4,
        threads: 0,
        title: "Rows of calls, 4 ranks sharing cores",
        text: "4 ranks on 2 cores, likewise, but means of each run; `apart-` is with the barrier, since the scheduler \
            chooses which of the two calls a rank waits in; `one-way-of-64` is of two pairs at once, each with its 64 \
            messages. MPICH, whose ranks wait by spinning, is left out.",
    },
    Condition {
        ranks: 2,
        threads: 2,
        title: "Two threads of each process",
        text: "2 ranks on 2 cores, `MPI_THREAD_MULTIPLE`: each thread has a ping-pong with the one of the same number \
            of the other process, all at once; microseconds for half a round trip, the mean of each run.",
    },
    Condition { ranks: 2, threads: 4, title: "Four threads of each process", text: "Likewise." },
];

/// Measures all conditions in turn.
pub fn measure(root: &Path, work: &Path, libraries: &[Library], effort: Effort) -> Result<Vec<Beside>> {
    let source = root.join("redrt-benches/programs/rows.c");
    let mut programs = Vec::new();
    for (number, library) in libraries.iter().enumerate() {
        let path = work.join(format!("rows-{number}"));
        programs.push(library.compile(&[&source], &path)?.then_some(path));
    }
    let mut tables = Vec::new();
    for condition in CONDITIONS {
        let mut found = Beside::new(condition.title, condition.text, libraries);
        for run in 1..=effort.runs {
            for (number, library) in libraries.iter().enumerate() {
                let Some(program) = &programs[number] else { continue };
                if library.always_spins() && condition.ranks > 2 {
                    continue;
                }
                let Some(mut command) = library.command(condition.ranks, Transport::SharedMemory, program) else {
                    continue;
                };
                eprintln!("redrt-bench: {}, run {run} of {}, {}", condition.title, effort.runs, library.name);
                command.args([if effort.quick { "0.01" } else { "0.1" }, "", &condition.threads.to_string()]);
                for line in runner::output(&mut command)?.lines() {
                    let name = &library.name;
                    let (row, unit, value) = parse(line).with_context(|| format!("{name} printed {line:?}"))?;
                    found.add(row, unit, Some(goal(unit)), number, value);
                }
            }
        }
        tables.push(found);
    }
    Ok(tables)
}

/// A computation beside an operation may cost a tenth of itself; all other rows may take no longer than the best peer.
fn goal(unit: &str) -> Goal {
    if unit == "×" { Goal::Value(1.1) } else { Goal::Ratio(1.0) }
}

/// A line of the program: name, unit, value.
fn parse(line: &str) -> Result<(&str, &'static str, f64)> {
    match line.split_whitespace().collect::<Vec<_>>()[..] {
        [name, "us", value] => Ok((name, "µs", value.parse()?)),
        [name, "x", value] => Ok((name, "×", value.parse()?)),
        _ => bail!("a line has a name, its unit and a value"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_a_name_a_unit_and_a_value() {
        assert_eq!(parse("ibcast-4 us 0.5").unwrap(), ("ibcast-4", "µs", 0.5));
        assert_eq!(parse("overlap-ibcast-4 x 1.05").unwrap(), ("overlap-ibcast-4", "×", 1.05));
        assert!(parse("ibcast-4 0.5").is_err() && parse("ibcast-4 us x").is_err() && parse("ibcast-4 ns 1").is_err());
    }
}
