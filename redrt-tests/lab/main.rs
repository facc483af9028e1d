//! A lab for trials by hand: brings hosts up, runs a shell on the first, and takes the hosts down when the shell ends.

use clap::Parser;
use redrt_tests::lab::{lab, slurm_lab};
use std::process::ExitCode;

/// Brings up hosts in namespaces of this machine and runs a shell on the first; they go down when the shell ends.
#[derive(Parser)]
struct LabArguments {
    /// Number of hosts.
    #[arg(value_parser = clap::value_parser!(u32).range(1..=200))]
    host_count: u32,

    /// With Slurm.
    #[arg(long)]
    slurm: bool,

    /// Command to run in place of a shell.
    #[arg(last = true)]
    command: Vec<String>,
}

fn main() -> ExitCode {
    let arguments = LabArguments::parse();
    let lab = if arguments.slurm { slurm_lab(arguments.host_count) } else { lab(arguments.host_count) };
    let Some(lab) = lab else { return ExitCode::FAILURE };
    let shell = vec![std::env::var("SHELL").unwrap_or_else(|_| "/bin/sh".into())];
    let words = if arguments.command.is_empty() { shell } else { arguments.command };
    let mut command = lab.on(if arguments.slurm { "ctl" } else { "h1" });
    let status = command.arg(format!("LAB_SSH={}", lab.ssh())).args(words).status();
    match status {
        Ok(status) => ExitCode::from(status.code().unwrap_or(1) as u8),
        Err(error) => {
            eprintln!("redrt-lab: {error}");
            ExitCode::FAILURE
        }
    }
}
