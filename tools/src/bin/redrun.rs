//! `redrun`, also installed as `mpiexec` and `mpirun`.

use redrt_tools::cli::{self, Request};
use redrt_tools::{developers, redrun};
use say::Console;

const USAGE_EXIT_CODE: i32 = 2;

fn finish(outcome: anyhow::Result<i32>, console: &Console) -> i32 {
    outcome.unwrap_or_else(|error| {
        console.error(&format!("{error:#}"));
        1
    })
}

/// Runs a job that a process of another has spawned.
fn run_spawned(arguments: &cli::Arguments, console: &mut Console) -> anyhow::Result<i32> {
    let (commands, origin, stream) = redrun::begin_spawned()?;
    let upwards = redrun::relay(console, stream);
    let job = cli::assemble_spawned(arguments, commands, origin)?;
    redrun::run(&job, console, Some(upwards))
}

fn main() {
    let arguments: Vec<_> = std::env::args_os().collect();
    let mut console = Console::new("redrun");
    if let Err(error) = developers::begin("redrun") {
        console.error(&error.to_string());
        std::process::exit(USAGE_EXIT_CODE);
    }
    let code = match cli::parse(arguments) {
        Ok(Request::Print(text)) => match say::text(&text) {
            Ok(()) => 0,
            Err(_) => 1,
        },
        Ok(Request::Run(job)) => finish(redrun::run(&job, &console, None), &console),
        Ok(Request::RunSpawned(arguments)) => {
            let outcome = run_spawned(&arguments, &mut console);
            finish(outcome, &console)
        }
        Err(error) => {
            console.error(&error.to_string());
            USAGE_EXIT_CODE
        }
    };
    std::process::exit(code);
}
