//! The command line of `redrun`, which is also called `mpiexec` and `mpirun`.

use super::failover::Past;
use super::run;
use super::spawned::{begin, relay};
use crate::own_network;
use command_line::USAGE_EXIT_CODE;
use coordinator_records::quorum::REPLACED_CODE;
use installation::surroundings;
use job_console::client;
use job_console::consoles::Consoles;
use job_options::{Defaults, Request, Terminal};
use job_status::Status;
use say::{Console, developers};
use std::ffi::OsString;

fn finish(outcome: anyhow::Result<i32>, console: &Console) -> i32 {
    outcome.unwrap_or_else(|error| {
        console.error(&format!("{error:#}"));
        1
    })
}

/// Runs a job as a coordinator that outlives its terminal.
fn run_as_root(
    mut job: job_options::Job,
    comes_back: Option<u64>,
    quorum: Option<(i32, u64)>,
    console: &Console,
) -> anyhow::Result<i32> {
    let consoles = if comes_back.is_some() { Consoles::take_again()? } else { Consoles::take()? };
    let past = match comes_back.map(|job| Past::open(job, quorum)).transpose() {
        Err(error) if quorum.is_none() && client::is_in_use(&error) => return Ok(REPLACED_CODE),
        past => past?,
    };
    past.iter().for_each(|past| past.correct(&mut job));
    run(&job, console, None, Some(consoles), past)
}

/// The host of a job whose coordinator is elsewhere, or the end of one that is over.
fn why_not_here(wanted: Option<&str>) -> Option<String> {
    if let Some((job, host)) = Status::coordinator_of(wanted) {
        return Some(client::coordinator_elsewhere(&job, &host));
    }
    let wanted = wanted?;
    Some(format!("job {wanted} has ended: {}", running_jobs::noted_end(wanted)?))
}

/// Runs a job that was spawned by a process of another job.
fn run_spawned(arguments: &job_options::JobArguments, console: &mut Console) -> anyhow::Result<i32> {
    let (commands, origin, stream) = begin()?;
    let upwards = relay(console, stream);
    let job = job_options::assemble_spawned(arguments, commands, origin)?;
    run(&job, console, Some(upwards), None, None)
}

/// Runs the command line; `words` begin with the program's name. Returns the exit code.
#[must_use]
pub fn main(words: Vec<OsString>) -> i32 {
    let mut console = Console::new("redrun");
    if let Err(error) = surroundings::leave() {
        console.error(&format!("a rank of another job has started this redrun, which cannot begin anew: {error}"));
        return 1;
    }
    // Failure is reported by jobs that need a network.
    let _ = own_network::enter();
    if let Err(error) = developers::begin("redrun") {
        console.error(&error.to_string());
        return USAGE_EXIT_CODE;
    }
    let defaults = Defaults::of_this_user();
    let said = |defaults: &Defaults| job_options::expand(words.clone(), defaults);
    let arguments = defaults.as_ref().map_err(Clone::clone).and_then(said);
    let request = arguments.clone().and_then(job_options::parse);
    match request {
        Ok(Request::Print(text)) => match say::text(&text) {
            Ok(()) => 0,
            Err(_) => 1,
        },
        Ok(Request::Run(job)) => match job.terminal {
            Terminal::Own => finish(run(&job, &console, None, None, None), &console),
            Terminal::Coordinator { comes_back, quorum } => {
                finish(run_as_root(*job, comes_back, quorum, &console), &console)
            }
            Terminal::Detachable { leaves } => {
                // Releases a directory's lock, which the coordinator takes.
                drop(job);
                finish(client::start(&arguments.unwrap_or_default(), leaves, &console), &console)
            }
        },
        Ok(Request::Attach { wanted, replaces_coordinator, is_quiet }) => {
            let attached = client::attach(wanted.as_deref(), replaces_coordinator, is_quiet, &console);
            let attached = attached.map_err(|error| match error.is::<client::NotHere>() {
                true => why_not_here(wanted.as_deref()).map_or(error, anyhow::Error::msg),
                false => error,
            });
            finish(attached, &console)
        }
        Ok(Request::RunSpawned(arguments)) => {
            let outcome = run_spawned(&arguments, &mut console);
            finish(outcome, &console)
        }
        Err(_) if client::has_another_coordinator(&words) => REPLACED_CODE,
        Err(error) => {
            let error = defaults.map_or_else(|error| error, |defaults| defaults.explain(error));
            console.error(&error.to_string());
            USAGE_EXIT_CODE
        }
    }
}
