//! Whole programs at r = 1, beside the same programs with each peer.

use crate::Effort;
use crate::beside::{Beside, Goal};
use crate::library::{Library, Transport};
use crate::runner;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// A program and its arguments: for about half a second with two ranks, and for a short run.
pub struct Case {
    /// Path of the source in the tree.
    source: &'static str,
    arguments: &'static [&'static str],
    quick: &'static [&'static str],
}

impl Case {
    /// The program's source.
    pub fn source(&self, root: &Path) -> PathBuf {
        root.join(self.source)
    }

    /// The program's name with its language (`heat.c`).
    pub fn file_name(&self) -> &'static str {
        self.source.rsplit('/').next().unwrap_or(self.source)
    }

    /// The program's name without its language (`heat`).
    pub fn name(&self) -> &'static str {
        self.file_name().split('.').next().unwrap_or(self.source)
    }

    /// Arguments for this effort.
    pub fn arguments(&self, effort: Effort) -> &'static [&'static str] {
        if effort.quick { self.quick } else { self.arguments }
    }
}

/// The cases in C.
pub fn in_c() -> impl Iterator<Item = &'static Case> {
    CASES.iter().filter(|case| case.file_name().ends_with(".c"))
}

const CASES: [Case; 11] = [
    Case { source: "redrt-tests/programs/heat.c", arguments: &["768", "600"], quick: &["128", "100"] },
    Case { source: "redrt-tests/programs/cg.c", arguments: &["500000", "200"], quick: &["10000", "50"] },
    Case { source: "redrt-tests/programs/ring.c", arguments: &["8", "6"], quick: &["1", "2"] },
    Case { source: "redrt-tests/programs/alltoall.c", arguments: &["1000", "10000"], quick: &["100", "2000"] },
    Case { source: "redrt-tests/programs/collectives.c", arguments: &["100000"], quick: &["500"] },
    Case { source: "redrt-tests/programs/wavefront.c", arguments: &["64", "80"], quick: &["16", "10"] },
    Case { source: "redrt-tests/programs/transpose.c", arguments: &["1024", "4"], quick: &["64", "4"] },
    Case { source: "redrt-tests/programs/buckets.c", arguments: &["1000000", "12"], quick: &["20000", "4"] },
    Case { source: "redrt-tests/programs/multigrid.c", arguments: &["7", "4"], quick: &["4", "4"] },
    Case { source: "redrt-tests/programs/fortran_heat.f90", arguments: &["768", "600"], quick: &["128", "100"] },
    Case { source: "redrt-tests/mpi4py/diffusion.py", arguments: &["96", "8000"], quick: &["32", "200"] },
];

const TEXT: &str = "2 ranks on 2 cores over shared memory, r = 1, each program compiled by the library's own compiler; seconds of \
    wall time. \"Inside\" is from the end of `MPI_Init` to the beginning of `MPI_Finalize`, for programs in C; the whole job is with \
    starting and ending. Where a library does not print what redrt does, it has no figure. `fortran_heat.f90` needs a Fortran compiler of the library, which wheels do not \
    bring; `diffusion.py` is NumPy and mpi4py, which `scripts/bench-peers.sh` gets for redrt and the wheels.";

/// A library's command for a program, without the case's arguments.
struct Ready {
    program: PathBuf,
    script: Option<PathBuf>,
}

/// Measures all of them in turn.
pub fn measure(root: &Path, work: &Path, libraries: &[Library], effort: Effort) -> Result<Beside> {
    let mut found = Beside::new("Whole programs", TEXT, libraries);
    for case in &CASES {
        let source = case.source(root);
        let mut ready: Vec<_> =
            libraries.iter().enumerate().map(|(n, one)| prepare(root, work, &source, n, one)).collect::<Result<_>>()?;
        let name = case.file_name();
        let arguments = case.arguments(effort);
        let mut expected: Option<Vec<String>> = None;
        for run in 1..=effort.runs {
            for (number, library) in libraries.iter().enumerate() {
                let Some(Ready { program, script }) = &ready[number] else { continue };
                eprintln!("redrt-bench: {name}, run {run} of {}, {}", effort.runs, library.name);
                let command = library.command(2, Transport::SharedMemory, program);
                let mut command = command.context("every library has shared memory")?;
                // Threads of linear algebra would take cores from the ranks.
                command.args(script).args(arguments).env("OPENBLAS_NUM_THREADS", "1");
                let (spent, printed) = match runner::time(vec![command]) {
                    Ok(ended) => ended,
                    Err(error) if library.is_redrt() => return Err(error),
                    Err(_) => {
                        found.record(format!(
                            "With {} `{name} {}` does not end well",
                            library.name,
                            arguments.join(" ")
                        ));
                        ready[number] = None;
                        continue;
                    }
                };
                let before = expected.get_or_insert_with(|| printed.clone());
                if *before != printed {
                    // The first library is redrt.
                    found.record(format!(
                        "With {} `{name} {}` prints something else",
                        library.name,
                        arguments.join(" ")
                    ));
                    ready[number] = None;
                    continue;
                }
                let label = format!("`{name} {}`", arguments.join(" "));
                if let Some(seconds) = spent.inside_seconds {
                    found.add(&format!("{label}, inside"), "s", Some(Goal::Ratio(1.0)), number, seconds);
                }
                found.add(&format!("{label}, whole job"), "s", Some(Goal::Ratio(1.0)), number, spent.wall_seconds);
            }
        }
    }
    Ok(found)
}

/// `None`: the library cannot run the program here.
fn prepare(root: &Path, work: &Path, source: &Path, number: usize, library: &Library) -> Result<Option<Ready>> {
    let suffix = source.extension().unwrap_or_default();
    if suffix == "py" {
        let ready = |python: &PathBuf| Ready { program: python.clone(), script: Some(source.to_owned()) };
        return Ok(library.python.as_ref().map(ready));
    }
    let stem = source.file_stem().unwrap_or_default().to_string_lossy();
    let program = work.join(format!("{stem}-{number}"));
    let clock = root.join("redrt-benches/programs/inside.c");
    let sources: &[&Path] = if suffix == "c" { &[source, &clock] } else { &[source] };
    let is_compiled = library.compile(sources, &program)?;
    Ok(is_compiled.then_some(Ready { program, script: None }))
}
