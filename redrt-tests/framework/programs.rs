//! The programs of `redrt-tests/programs`, in C and Fortran.

use crate::prefix::{prefix, root, target};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};
use tempfile::TempDir;

/// A program, arguments that make it small, and a number of ranks for tests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Program {
    /// The program's name, that of its source file.
    pub name: &'static str,
    /// Arguments of the program.
    pub arguments: &'static [&'static str],
    /// Number of ranks.
    pub rank_count: u32,
}

impl Program {
    /// All programs.
    pub const ALL: [Self; 30] = [
        Self { name: "heat", arguments: &["32", "40"], rank_count: 4 },
        Self { name: "cg", arguments: &["256", "30"], rank_count: 4 },
        Self { name: "master_worker", arguments: &["40"], rank_count: 4 },
        Self { name: "polling", arguments: &["10"], rank_count: 3 },
        Self { name: "collectives", arguments: &[], rank_count: 3 },
        Self { name: "boards", arguments: &["1"], rank_count: 4 },
        Self { name: "threads", arguments: &["3", "20"], rank_count: 3 },
        Self { name: "ring", arguments: &["1", "3"], rank_count: 3 },
        Self { name: "alltoall", arguments: &["20", "2000"], rank_count: 4 },
        Self { name: "clocks", arguments: &["40"], rank_count: 3 },
        Self { name: "cancel", arguments: &["30"], rank_count: 3 },
        Self { name: "neighbors", arguments: &["3"], rank_count: 3 },
        Self { name: "partitions", arguments: &["6"], rank_count: 3 },
        Self { name: "onesided", arguments: &["2"], rank_count: 3 },
        Self { name: "addresses", arguments: &["40"], rank_count: 3 },
        Self { name: "files", arguments: &["1"], rank_count: 3 },
        Self { name: "datareps", arguments: &["1"], rank_count: 3 },
        Self { name: "places", arguments: &[], rank_count: 3 },
        Self { name: "posix", arguments: &["1"], rank_count: 3 },
        Self { name: "listings", arguments: &["1"], rank_count: 2 },
        Self { name: "wavefront", arguments: &["16", "10"], rank_count: 4 },
        Self { name: "transpose", arguments: &["64", "4"], rank_count: 4 },
        Self { name: "buckets", arguments: &["20000", "4"], rank_count: 3 },
        Self { name: "multigrid", arguments: &["4", "4"], rank_count: 3 },
        Self { name: "fortran_heat", arguments: &["32", "40"], rank_count: 4 },
        Self { name: "fortran_f08", arguments: &["2"], rank_count: 3 },
        Self { name: "fortran_mpi", arguments: &["2"], rank_count: 3 },
        Self { name: "fortran_sections", arguments: &["2"], rank_count: 3 },
        Self { name: "fortran_mpif", arguments: &["2"], rank_count: 3 },
        Self { name: "fortran_modern", arguments: &[], rank_count: 3 },
    ];

    /// Programs with arguments that make them run for seconds, long enough for copies to be made of their processes.
    pub const LONG: [Self; 14] = [
        Self { name: "heat", arguments: &["32", "5000"], rank_count: 4 },
        Self { name: "cg", arguments: &["256", "2000"], rank_count: 4 },
        Self { name: "master_worker", arguments: &["8000"], rank_count: 4 },
        Self { name: "polling", arguments: &["500"], rank_count: 3 },
        Self { name: "threads", arguments: &["3", "1500"], rank_count: 3 },
        Self { name: "alltoall", arguments: &["1500", "2000"], rank_count: 4 },
        Self { name: "ring", arguments: &["1", "150"], rank_count: 3 },
        Self { name: "cancel", arguments: &["300"], rank_count: 3 },
        Self { name: "neighbors", arguments: &["60"], rank_count: 3 },
        Self { name: "onesided", arguments: &["15"], rank_count: 3 },
        Self { name: "files", arguments: &["4"], rank_count: 3 },
        Self { name: "posix", arguments: &["8"], rank_count: 3 },
        Self { name: "hybrid", arguments: &["96", "1500"], rank_count: 3 },
        Self { name: "fortran_heat", arguments: &["32", "5000"], rank_count: 4 },
    ];

    /// Programs that cover chapters of the standard and check themselves, with arguments that make them run for about a
    /// second.
    pub const CONFORMANCE: [Self; 16] = [
        // Chapter 3: point-to-point.
        Self { name: "cancel", arguments: &["60"], rank_count: 3 },
        // Chapter 3: wildcards.
        Self { name: "polling", arguments: &["40"], rank_count: 3 },
        // Chapter 4: partitioned.
        Self { name: "partitions", arguments: &["20"], rank_count: 3 },
        // Chapter 5: datatypes.
        Self { name: "addresses", arguments: &["100"], rank_count: 3 },
        // Chapter 6: collectives.
        Self { name: "collectives", arguments: &[], rank_count: 3 },
        Self { name: "boards", arguments: &["1"], rank_count: 4 },
        // Chapter 8: topologies.
        Self { name: "neighbors", arguments: &["5"], rank_count: 3 },
        // Chapter 9: environment.
        Self { name: "clocks", arguments: &["200"], rank_count: 3 },
        // Chapter 11: threads.
        Self { name: "threads", arguments: &["3", "100"], rank_count: 3 },
        // Chapter 12: one-sided.
        Self { name: "onesided", arguments: &["2"], rank_count: 3 },
        // Chapter 14: files.
        Self { name: "files", arguments: &["1"], rank_count: 3 },
        // Chapter 14: representations.
        Self { name: "datareps", arguments: &["3"], rank_count: 3 },
        // Chapter 19: mpi_f08.
        Self { name: "fortran_f08", arguments: &["3"], rank_count: 3 },
        // Chapter 19: mpi.
        Self { name: "fortran_mpi", arguments: &["6"], rank_count: 3 },
        // Chapter 19: mpif.h.
        Self { name: "fortran_mpif", arguments: &["20"], rank_count: 3 },
        // Chapter 19: sections.
        Self { name: "fortran_sections", arguments: &["20"], rank_count: 3 },
    ];

    /// All programs, with `#` before the argument that says how long they run: with this number about a second. In
    /// `DIRECTORY` each run leaves the same files.
    pub const LASTING: [Self; 31] = [
        Self { name: "heat", arguments: &["32", "#3000", "DIRECTORY/picture"], rank_count: 4 },
        Self { name: "cg", arguments: &["256", "#700"], rank_count: 4 },
        Self { name: "master_worker", arguments: &["#30000"], rank_count: 4 },
        Self { name: "polling", arguments: &["#1000"], rank_count: 3 },
        Self { name: "collectives", arguments: &["12000", "#8"], rank_count: 3 },
        Self { name: "boards", arguments: &["#3", "13"], rank_count: 4 },
        Self { name: "threads", arguments: &["3", "#2000"], rank_count: 3 },
        Self { name: "ring", arguments: &["1", "#20"], rank_count: 3 },
        Self { name: "alltoall", arguments: &["#1000", "2000"], rank_count: 4 },
        Self { name: "clocks", arguments: &["#400", "anew"], rank_count: 3 },
        Self { name: "cancel", arguments: &["#5000"], rank_count: 3 },
        Self { name: "neighbors", arguments: &["#20"], rank_count: 3 },
        Self { name: "partitions", arguments: &["#25"], rank_count: 3 },
        Self { name: "onesided", arguments: &["#10"], rank_count: 3 },
        Self { name: "addresses", arguments: &["#1000"], rank_count: 3 },
        Self { name: "files", arguments: &["#2"], rank_count: 3 },
        Self { name: "datareps", arguments: &["#10"], rank_count: 3 },
        Self { name: "places", arguments: &["#20", "DIRECTORY/places"], rank_count: 3 },
        Self { name: "posix", arguments: &["#15", "DIRECTORY"], rank_count: 3 },
        Self { name: "listings", arguments: &["#4", "DIRECTORY"], rank_count: 2 },
        Self { name: "wavefront", arguments: &["16", "#1000"], rank_count: 4 },
        Self { name: "transpose", arguments: &["128", "#100"], rank_count: 4 },
        Self { name: "buckets", arguments: &["20000", "#60"], rank_count: 3 },
        Self { name: "multigrid", arguments: &["4", "#80"], rank_count: 3 },
        Self { name: "hybrid", arguments: &["96", "#500"], rank_count: 3 },
        Self { name: "fortran_heat", arguments: &["32", "#1500"], rank_count: 4 },
        Self { name: "fortran_f08", arguments: &["#8"], rank_count: 3 },
        Self { name: "fortran_mpi", arguments: &["#60"], rank_count: 3 },
        Self { name: "fortran_sections", arguments: &["#1500"], rank_count: 3 },
        Self { name: "fortran_mpif", arguments: &["#1000"], rank_count: 3 },
        Self { name: "fortran_modern", arguments: &["#60"], rank_count: 3 },
    ];

    /// True when the program may run with `--verify deferred`. Windows and files need verdicts before the program goes
    /// on.
    #[must_use]
    pub fn can_be_deferred(&self) -> bool {
        !["onesided", "files", "datareps", "places", "fortran_f08", "fortran_mpi"].contains(&self.name)
    }

    /// The program of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().chain(Self::LONG).find(|program| program.name == name)
    }
}

/// Compiles a program of `redrt-tests/programs`, once in a process.
pub fn compile(name: &str) -> PathBuf {
    compile_file("programs", name)
}

/// Compiles a program of `redrt-tests/cases`, once in a process.
pub fn compile_case(name: &str) -> PathBuf {
    compile_file("cases", name)
}

fn compile_file(folder: &str, name: &str) -> PathBuf {
    static COMPILED: OnceLock<Mutex<HashMap<String, PathBuf>>> = OnceLock::new();
    let mut compiled = COMPILED.get_or_init(Mutex::default).lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some(binary) = compiled.get(name) {
        return binary.clone();
    }
    // Binaries stay after the tests, so that a printed command still works.
    let directory = target().join("test-programs");
    std::fs::create_dir_all(&directory).expect("the target directory can be written");
    let binary = directory.join(name);
    build(&source(folder, name), &binary);
    compiled.insert(name.to_owned(), binary.clone());
    binary
}

/// The source of a program, in any of the languages.
fn source(folder: &str, name: &str) -> PathBuf {
    let file = |extension: &&str| root().join(format!("redrt-tests/{folder}/{name}.{extension}"));
    let found = ["c", "f90", "f"].iter().map(file).find(|file| file.exists());
    found.unwrap_or_else(|| panic!("redrt-tests/{folder} has no program {name}"))
}

/// Compiles a program given as text.
#[must_use]
pub fn compile_source(source: &str) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("the temporary directory can be written");
    let file = directory.path().join("program.c");
    std::fs::write(&file, source).expect("the temporary directory can be written");
    let binary = directory.path().join("program");
    build(&file, &binary);
    (directory, binary)
}

fn build(source: &Path, binary: &Path) {
    let is_c = source.extension().is_some_and(|extension| extension == "c");
    let mut compiler = Command::new(prefix().join("bin").join(if is_c { "mpicc" } else { "mpifort" }));
    // Another process may run the old binary: a new file takes its place.
    let new = binary.with_extension(std::process::id().to_string());
    compiler.args(["-O1", "-g", "-o"]).arg(&new).arg(source).arg("-lm");
    if is_c {
        compiler.args(["-Wall", "-Wextra", "-Werror", "-pthread"]);
    } else if source.extension().is_some_and(|extension| extension == "f90") {
        compiler.args(["-std=f2018", "-Wall", "-Wno-unused-dummy-argument", "-Wno-integer-division", "-Werror", "-J"]);
        compiler.arg(binary.parent().expect("a file is in a directory"));
    }
    if std::fs::read_to_string(source).is_ok_and(|text| text.contains("#pragma omp")) {
        compiler.arg("-fopenmp");
    }
    compiler.arg(format!("-I{}", root().join("redrt-tests/programs").display()));
    let output = compiler.output().expect("the compiler can be run");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::rename(&new, binary).expect("the compiled program can be moved");
}
