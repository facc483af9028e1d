//! Cost of replicas: one job at r = 2 or 3 against as many jobs at r = 1, started at once and one after the other.
//!
//! All do the same work on the same cores, so the quotient of the wall times is the price of agreement and comparison,
//! and leaves out the second computation. Two jobs at once hinder each other where ranks wait by spinning, as neither
//! job knows of the other; one after the other they cannot. Both are honest references, and they differ.

use crate::Effort;
use crate::library::Library;
use crate::programs;
use crate::runner::{self, Spent};
use anyhow::Result;
use std::path::Path;
use std::process::Command;

/// Times of a program in each way to run it.
#[derive(Clone, Debug)]
pub struct Cost {
    /// Name of the program.
    pub program: String,
    /// Arguments of the program.
    pub arguments: String,
    /// One job at r = 1, alone.
    pub alone: Vec<Spent>,
    /// Two jobs at r = 1 at once.
    pub twice: Vec<Spent>,
    /// One job at r = 2; a receive completes after the comparison.
    pub strict: Vec<Spent>,
    /// One job at r = 2; a receive completes before the comparison.
    pub deferred: Vec<Spent>,
    /// Three jobs at r = 1 at once.
    pub thrice: Vec<Spent>,
    /// One job at r = 3; a receive completes after the comparison.
    pub strict_of_three: Vec<Spent>,
}

/// Measures all programs.
pub fn measure(root: &Path, work: &Path, prefix: &Path, effort: Effort) -> Result<Vec<Cost>> {
    let library = Library::redrt(prefix);
    let mut costs = Vec::new();
    for case in programs::in_c() {
        let (name, arguments) = (case.name(), case.arguments(effort));
        let path = work.join(name);
        library.compile(&[&case.source(root)], &path)?;
        let job = |degree: &[&str]| {
            let mut command: Command = runner::bounded(prefix.join("bin/redrun"), false);
            command.args(["-q", "-n", "2"]).args(degree).arg(&path).args(arguments);
            command
        };
        let (mut alone, mut twice, mut strict, mut deferred) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (mut thrice, mut strict_of_three) = (Vec::new(), Vec::new());
        for run in 1..=effort.runs {
            eprintln!("redrt-bench: {name}, run {run} of {}", effort.runs);
            alone.push(runner::time(vec![job(&[])])?.0);
            let (spent, expected) = runner::time(vec![job(&[]), job(&[])])?;
            twice.push(spent);
            thrice.push(runner::time(vec![job(&[]), job(&[]), job(&[])])?.0);
            let ways =
                [("2", "strict", &mut strict), ("2", "deferred", &mut deferred), ("3", "strict", &mut strict_of_three)];
            for (degree, verify, times) in ways {
                let (spent, printed) = runner::time(vec![job(&["-r", degree, "--verify", verify])])?;
                anyhow::ensure!(printed[0] == expected[0], "{name} prints something else at r = {degree}");
                times.push(spent);
            }
        }
        let (program, arguments) = (name.to_owned(), arguments.join(" "));
        costs.push(Cost { program, arguments, alone, twice, strict, deferred, thrice, strict_of_three });
    }
    Ok(costs)
}
