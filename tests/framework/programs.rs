//! The C programs of `tests/programs`.

use crate::prefix::{prefix, root, target};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};
use tempfile::TempDir;

/// A program with arguments that make it small, and the number of ranks it is tested with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Program {
    /// Its name, that of the source file.
    pub name: &'static str,
    /// Arguments.
    pub arguments: &'static [&'static str],
    /// Number of ranks.
    pub rank_count: u32,
}

impl Program {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self { name: "heat", arguments: &["32", "40"], rank_count: 4 },
        Self { name: "cg", arguments: &["256", "30"], rank_count: 4 },
        Self { name: "master_worker", arguments: &["40"], rank_count: 4 },
        Self { name: "polling", arguments: &["10"], rank_count: 3 },
        Self { name: "collectives", arguments: &[], rank_count: 3 },
        Self { name: "threads", arguments: &["3", "20"], rank_count: 3 },
        Self { name: "ring", arguments: &["1", "3"], rank_count: 3 },
        Self { name: "alltoall", arguments: &["20", "2000"], rank_count: 4 },
        Self { name: "clocks", arguments: &["40"], rank_count: 3 },
        Self { name: "cancel", arguments: &["30"], rank_count: 3 },
        Self { name: "neighbors", arguments: &["3"], rank_count: 3 },
    ];

    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|program| program.name == name)
    }
}

/// Compiles a program of `tests/programs`, once.
pub fn compile(name: &str) -> PathBuf {
    compile_file("programs", name)
}

/// Compiles a program that one of `tests/cases` is about, once.
pub fn compile_case(name: &str) -> PathBuf {
    compile_file("cases", name)
}

fn compile_file(folder: &str, name: &str) -> PathBuf {
    static COMPILED: OnceLock<Mutex<HashMap<String, PathBuf>>> = OnceLock::new();
    let mut compiled = COMPILED.get_or_init(Mutex::default).lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some(binary) = compiled.get(name) {
        return binary.clone();
    }
    // Kept there, so that a command that is printed still works after the tests.
    let directory = target().join("test-programs");
    std::fs::create_dir_all(&directory).expect("the target directory can be written");
    let binary = directory.join(name);
    mpicc(&root().join(format!("tests/{folder}/{name}.c")), &binary);
    compiled.insert(name.to_owned(), binary.clone());
    binary
}

/// Compiles a program given as text.
#[must_use]
pub fn compile_source(source: &str) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("the temporary directory can be written");
    let file = directory.path().join("program.c");
    std::fs::write(&file, source).expect("the temporary directory can be written");
    let binary = directory.path().join("program");
    mpicc(&file, &binary);
    (directory, binary)
}

fn mpicc(source: &Path, binary: &Path) {
    let mut compiler = Command::new(prefix().join("bin/mpicc"));
    // Another process may be running the old one: a new file takes its place.
    let new = binary.with_extension(std::process::id().to_string());
    compiler.args(["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"]).arg(&new).arg(source).arg("-lm");
    compiler.arg(format!("-I{}", root().join("tests/programs").display()));
    let output = compiler.output().expect("mpicc can be run");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::rename(&new, binary).expect("the compiled program can be moved");
}
