//! Simulated jobs of the real library.

use crate::Arguments;
use anyhow::Result;
use clap::ValueEnum;
use library_sim::{Kind, Mutation, Options};
use std::process::ExitCode;

/// What a simulated program does.
#[derive(Clone, Copy, ValueEnum)]
pub enum Program {
    Messages,
    Wildcards,
    Polls,
    Updates,
    Collectives,
    Nonblocking,
    Communicators,
    Windows,
    Saving,
    Files,
    Mixed,
}

impl From<Program> for Kind {
    fn from(program: Program) -> Self {
        match program {
            Program::Messages => Self::Messages,
            Program::Wildcards => Self::Wildcards,
            Program::Polls => Self::Polls,
            Program::Updates => Self::Updates,
            Program::Collectives => Self::Collectives,
            Program::Nonblocking => Self::Nonblocking,
            Program::Communicators => Self::Communicators,
            Program::Windows => Self::Windows,
            Program::Saving => Self::Saving,
            Program::Files => Self::Files,
            Program::Mixed => Self::Mixed,
        }
    }
}

/// The name of no planted bug.
#[derive(Debug, thiserror::Error)]
#[error("one of {0}")]
pub struct NoMutation(String);

/// The planted bug of this name.
pub fn mutation(name: &str) -> Result<Mutation, NoMutation> {
    let named = |mutation: &Mutation| format!("{mutation:?}") == name;
    Mutation::ALL.into_iter().find(named).ok_or_else(|| {
        let names: Vec<_> = Mutation::ALL.iter().map(|mutation| format!("{mutation:?}")).collect();
        NoMutation(names.join(", "))
    })
}

/// Runs the seeds, and prints a summary line for each.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let options = Options {
        rank_count: arguments.rank_count,
        degree: arguments.degree,
        kind: arguments.program.map(Kind::from),
        trace: arguments.trace.then_some(|line| drop(say::line(line))),
        leaves: arguments.faults.is_some(),
        mutation: arguments.plant,
        ..Options::default()
    };
    for seed in arguments.seed..arguments.seed + arguments.count {
        match library_sim::run(seed, &options) {
            Ok(summary) => say::line(format_args!("seed {seed}: right; {summary}"))?,
            Err(failure) => {
                say::error(format_args!("seed {seed}: wrong {failure}"));
                return Ok(ExitCode::FAILURE);
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
