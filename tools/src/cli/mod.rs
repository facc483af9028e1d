//! The command line: text in, a checked [`Job`] out, or one line that says what is wrong with it.
//!
//! The spellings are those of both `mpiexec` families where they have one: `-np`, `-wdir` and `-genv` with one dash, `-x`
//! of Open MPI, `-env` of MPICH, and `:` between the programs of an MPMD job.

mod arguments;
mod degrees;
#[cfg(test)]
mod fuzz;
mod generate;
mod hosts;
mod inject;
mod program;

pub use arguments::{Arguments, command};
pub use generate::generate;
pub use hosts::parse_host;
pub use inject::{Fault, FaultError};

use crate::plan::HostPlan;
use arguments::{LocalArguments, Shape};
use redrt_types::World;
use redrt_wire::control::Options;
use redrt_wire::daemon::Application;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// A command line that cannot be carried out, in one line. The exit code is 2.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.replace(char::is_control, " "))]
pub struct UsageError(pub String);

/// What the user asked for.
#[derive(Debug)]
pub struct Job {
    /// Degrees of the virtual ranks.
    pub world: World,
    /// The programs.
    pub applications: Vec<Application>,
    /// Which program each rank runs.
    pub application_of_rank: Vec<u32>,
    /// The hosts.
    pub hosts: HostPlan,
    /// Settings of the processes.
    pub options: Options,
    /// Faults to inject.
    pub faults: Vec<Fault>,
    /// When to end the job.
    pub timeout: Option<Duration>,
    /// Whether lines of output begin with the rank.
    pub label: bool,
    /// Where what the ranks print goes, in files.
    pub output_directory: Option<PathBuf>,
    /// Whether the summary is left out.
    pub quiet: bool,
    /// Where the audit log goes.
    pub audit: Option<PathBuf>,
    /// Where the summary goes in JSON.
    pub json_summary: Option<PathBuf>,
    /// As many clones are made at once.
    pub clone_count_max: usize,
}

impl Job {
    /// Whether processes are started so that they can be cloned.
    #[must_use]
    pub fn is_cloneable(&self) -> bool {
        self.world.is_replicated() && self.hosts.has_spares()
    }
}

/// What a command line asks `redrun` to do.
#[derive(Debug)]
pub enum Request {
    /// Run a job.
    Run(Box<Job>),
    /// Print something (help, version, a manual page) and leave.
    Print(Vec<u8>),
}

/// Reads the command line. `arguments` includes the program's own name.
pub fn parse(arguments: Vec<OsString>) -> Result<Request, UsageError> {
    let mut segments = arguments::segments(arguments);
    let first = segments.remove(0);
    let parsed = match arguments::parse_first(first)? {
        arguments::Parsed::Arguments(parsed) => *parsed,
        arguments::Parsed::Text(text) => return Ok(Request::Print(text)),
    };
    if let Some(what) = parsed.generate {
        return Ok(Request::Print(generate(what)));
    }
    let mut locals = vec![parsed.local.clone()];
    for segment in segments {
        locals.push(arguments::parse_later(segment)?);
    }
    assemble(&parsed, &locals).map(|job| Request::Run(Box::new(job)))
}

fn assemble(arguments: &Arguments, locals: &[LocalArguments]) -> Result<Job, UsageError> {
    let mut hosts = hosts::plan(arguments)?;
    let spare_count = arguments.spares.unwrap_or(0);
    hosts.keep_free(spare_count).map_err(UsageError)?;
    if hosts.hosts.len() > 1 && arguments.transport == arguments::Transport::Shm {
        return Err(UsageError("--transport shm reaches one host only, and several are named".into()));
    }
    let shape = Shape::of(arguments, locals, &hosts)?;
    let world = degrees::world(shape.rank_count, arguments.degree.as_deref(), arguments.replicate.as_deref())?;
    if spare_count > 0 && !world.is_replicated() {
        return Err(UsageError("--spares replaces lost replicas, and without -r 2 or more there are none".into()));
    }
    if hosts.has_spares() && hosts.secure {
        let what = "--secure does not go with spares: the memory of a replica would travel to its copy as it is";
        return Err(UsageError(what.into()));
    }
    let applications: Result<Vec<_>, _> = locals.iter().map(|local| program::application(arguments, local)).collect();
    let seed = match arguments.seed {
        Some(seed) => seed,
        None => random_seed()?,
    };
    let faults = inject::parse_all(&arguments.inject, &world, seed)?;
    if let Some(path) = &arguments.audit {
        let opened = std::fs::OpenOptions::new().create(true).append(true).open(path);
        opened.map_err(|error| UsageError(format!("--audit {}: {error}", path.display())))?;
    }
    let timeout = arguments.timeout.as_deref().map(inject::parse_seconds).transpose();
    let timeout = timeout.map_err(|error| UsageError(format!("--timeout: {error}")))?;
    Ok(Job {
        options: Options {
            protocol: arguments.protocol.into(),
            verification: arguments.verify.into(),
            transport: arguments.transport.into(),
            determinism: arguments.determinism.into(),
            on_sdc: arguments.on_sdc.into(),
            seed,
        },
        world,
        hosts,
        applications: applications?,
        application_of_rank: shape.application_of_rank,
        faults,
        timeout,
        label: arguments.label,
        output_directory: arguments.output_directory.clone(),
        quiet: arguments.quiet,
        audit: arguments.audit.clone(),
        json_summary: arguments.json_summary.clone(),
        clone_count_max: arguments.max_clones as usize,
    })
}

fn random_seed() -> Result<u64, UsageError> {
    let secret = redrt_wire::auth::Secret::generate();
    let secret = secret.map_err(|error| UsageError(format!("the system gives no random numbers: {error}")))?;
    Ok(u64::from_le_bytes(secret.key()[..8].try_into().expect("eight of 32 bytes")))
}

#[cfg(test)]
mod tests;
