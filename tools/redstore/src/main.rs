//! `redstore`: moves files to an object store and back, for `redrun`, `redrtd` and `redctl`, which thus do without the
//! libraries for it. [`redrt_wire::object`] has its input and output.
//!
//! One thread works, since the program's processes want the other cores; threads of their own wait for disks. Nothing
//! lasts for ever: a request without an answer is repeated, and a store where nothing moves for `$REDRT_STORE_PATIENCE`
//! seconds counts as silent.
#![forbid(unsafe_code)]

mod access;
mod failure;
mod transfer;

use access::Store;
use clap::{Parser, Subcommand};
use failure::Failure;
use redrt_wire::object::{Ending, ObjectEntry};
use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::time::Duration;

const PATIENCE_VARIABLE: &str = "REDRT_STORE_PATIENCE";
const PATIENCE_USUAL: Duration = Duration::from_secs(300);

/// Moves files to an object store and back
#[derive(Parser)]
#[command(version)]
struct StoreArguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Put files: a line of JSON with "key" and "path" for each on standard input
    Put {
        /// Where: s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX or file:///DIRECTORY
        url: String,
    },
    /// Get files: a line of JSON with "key", "path" and perhaps "facts" for each
    Get {
        /// From where
        url: String,
    },
    /// List objects with their lengths
    List {
        /// Below which URL
        url: String,
    },
    /// Delete objects: a line with the name of each
    Delete {
        /// Where
        url: String,
    },
    /// Make empty objects that are not there: a line with the name of each
    Create {
        /// Where
        url: String,
    },
}

fn main() -> ExitCode {
    let arguments = match StoreArguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(error.exit_code() as u8);
        }
    };
    // Once the program that started this one is gone, nobody needs the result.
    let _ = nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL);
    match run(&arguments.command) {
        Ok(()) => ExitCode::from(Ending::Done as u8),
        Err(failure) => {
            let line = failure.to_string().replace(char::is_control, " ");
            let _ = writeln!(std::io::stderr(), "redstore: {line}");
            ExitCode::from(failure.ending as u8)
        }
    }
}

fn run(command: &Command) -> Result<(), Failure> {
    let patience = std::env::var(PATIENCE_VARIABLE).ok().and_then(|text| text.parse().ok());
    let patience = patience.map_or(PATIENCE_USUAL, Duration::from_secs);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(8).build();
    let runtime = runtime.map_err(|error| Failure::here(format!("Failed to begin: {error}")))?;
    let outcome = runtime.block_on(async {
        match command {
            Command::Put { url } => {
                let entries = entries()?;
                let store = Store::open(url, patience, true)?;
                store.watched(transfer::put(&store, &entries)).await
            }
            Command::Get { url } => {
                let entries = entries()?;
                let store = Store::open(url, patience, false)?;
                store.watched(transfer::get(&store, &entries)).await
            }
            Command::List { url } => {
                let store = Store::open(url, patience, false)?;
                store.watched(transfer::list(&store)).await
            }
            Command::Delete { url } => {
                let keys: Vec<_> = lines()?;
                let store = Store::open(url, patience, false)?;
                store.watched(transfer::delete(&store, &keys)).await
            }
            Command::Create { url } => {
                let keys: Vec<_> = lines()?;
                let store = Store::open(url, patience, true)?;
                store.watched(transfer::create(&store, &keys)).await
            }
        }
    });
    // A thread that waits for a hung disk is left behind.
    runtime.shutdown_background();
    outcome
}

fn lines() -> Result<Vec<String>, Failure> {
    let lines = std::io::stdin().lock().lines().collect::<Result<Vec<_>, _>>();
    lines.map_err(|error| Failure::usage(format!("standard input cannot be read: {error}")))
}

fn entries() -> Result<Vec<ObjectEntry>, Failure> {
    let parse = |line: &String| {
        serde_json::from_str(line).map_err(|error| Failure::usage(format!("a line of standard input: {error}")))
    };
    lines()?.iter().map(parse).collect()
}
