//! One-sided communication of each library, measured by `programs/windows.c`.

use crate::Effort;
use crate::beside::{Beside, Goal};
use crate::library::{Library, Transport};
use crate::runner;
use anyhow::{Context, Result, bail};
use std::path::Path;

const TEXT: &str = "2 ranks on 2 cores over shared memory, r = 1; microseconds for one operation, of which each run takes \
    the best slice. `put-8` is a put of 8 bytes and a flush, `put-of-64-8` one of 64 before a flush, \
    `put-of-64-both-ways-8` with the other rank doing the same, `put-created-8` the same as `put-8` on a window over the \
    program's memory (`MPI_Win_create`) in place of one that the library allocates. [Rows that miss their \
    goal](../performance/goals.md) has the causes, and the attempts to remove them.";

/// Measures all of them in turn.
pub fn measure(root: &Path, work: &Path, libraries: &[Library], effort: Effort) -> Result<Beside> {
    let mut found = Beside::new("One-sided communication", TEXT, libraries);
    let source = root.join("redrt-benches/programs/windows.c");
    let mut programs = Vec::new();
    for (number, library) in libraries.iter().enumerate() {
        let path = work.join(format!("windows-{number}"));
        programs.push(library.compile(&[&source], &path)?.then_some(path));
    }
    for run in 1..=effort.runs {
        for (number, library) in libraries.iter().enumerate() {
            let Some(program) = &programs[number] else { continue };
            let Some(mut command) = library.command(2, Transport::SharedMemory, program) else { continue };
            eprintln!("redrt-bench: windows, run {run} of {}, {}", effort.runs, library.name);
            command.arg(if effort.quick { "0.01" } else { "0.1" });
            let name = &library.name;
            let printed = match runner::output(&mut command) {
                Ok(printed) => printed,
                Err(error) if library.is_redrt() => return Err(error),
                Err(_) => {
                    found.record(format!("With {name} run {run} did not end well, and it was not run again"));
                    programs[number] = None;
                    continue;
                }
            };
            for line in printed.lines() {
                let (row, value) = parse(line).with_context(|| format!("{name} printed {line:?}"))?;
                found.add(row, "µs", Some(Goal::Ratio(1.0)), number, value);
            }
        }
    }
    Ok(found)
}

/// A line of the program: name, unit, value.
fn parse(line: &str) -> Result<(&str, f64)> {
    match line.split_whitespace().collect::<Vec<_>>()[..] {
        [name, "us", value] => Ok((name, value.parse()?)),
        _ => bail!("a line has a name, its unit and a value"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_a_name_a_unit_and_a_value() {
        assert_eq!(parse("put-8 us 0.0147").unwrap(), ("put-8", 0.0147));
        assert!(parse("put-8 0.0147").is_err() && parse("put-8 us x").is_err() && parse("put-8 ns 1").is_err());
    }
}
