//! `redplan`: the protection that suits a job, and its cost. The crate `planner` has the models.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod advise;
mod answer;
mod arguments;
mod cluster;
mod learn;
mod models;
mod picture;
mod predict;
mod program_options;

use answer::Answer;
use anyhow::{Result, bail};
use arguments::{Parsed, PlanArguments, What};
use command_line::{USAGE_EXIT_CODE, UsageError, generate_for};
use learned::Unknown;
use learned::store::{self, Store};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Runs the command line, which includes the program's own name, and returns the exit code.
#[must_use]
pub fn main(arguments: Vec<OsString>) -> i32 {
    match run(arguments) {
        Ok(()) => 0,
        Err(error) => {
            say::error(format_args!("redplan: {error:#}"));
            if is_usage(&error) { USAGE_EXIT_CODE } else { 1 }
        }
    }
}

/// True if a different command line would help.
fn is_usage(error: &anyhow::Error) -> bool {
    error.is::<UsageError>() || error.is::<Unknown>()
}

fn run(arguments: Vec<OsString>) -> Result<()> {
    let arguments = match arguments::parse(arguments)? {
        Parsed::Arguments(arguments) => *arguments,
        Parsed::Text(text) => return Ok(say::text(&text)?),
    };
    if let What::Generate { what } = &arguments.what {
        return Ok(say::text(&generate_for(arguments::command(), "redplan", *what))?);
    }
    let answer = answer(&arguments)?;
    if let Some(path) = &arguments.svg {
        let no_picture = || UsageError("--svg: this command has no picture".into());
        answer.picture.as_ref().ok_or_else(no_picture)?.draw(path)?;
    }
    if arguments.json {
        say::line(serde_json::to_string_pretty(&answer.to_json())?)?;
    } else {
        say::text(answer.to_text().as_bytes())?;
    }
    Ok(())
}

fn answer(arguments: &PlanArguments) -> Result<Answer> {
    let store = arguments.store.as_deref();
    Ok(match &arguments.what {
        What::Generate { .. } => bail!("there is nothing to answer"),
        What::Advise(question) => advise::answer(question, store)?,
        What::Predict(question) => predict::answer(question, store)?,
        What::Learn { files } => learn::learn(&store_path(store)?, files)?,
        What::Known => learn::known(&Store::open(&store_path(store)?)?)?,
        What::Interval(question) => models::interval(question)?,
        What::Scale(question) => models::scale(question)?,
        What::Partial(question) => models::partial(question)?,
        What::Spares(question) => models::spares(question)?,
        What::SpareChoice(question) => models::spare_choice(question)?,
        What::Detect(question) => models::detect(question)?,
        What::Cluster(question) => cluster::answer(question)?,
    })
}

/// Path of the named store, or of the user's.
fn store_path(named: Option<&Path>) -> Result<PathBuf, Unknown> {
    named.map_or_else(store::default_path, |path| Ok(path.to_owned()))
}

#[cfg(test)]
mod tests;
