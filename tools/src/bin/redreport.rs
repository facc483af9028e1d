//! `redreport`: what the audit logs of jobs say.

use std::process::ExitCode;

fn main() -> ExitCode {
    redrt_tools::redreport::main(std::env::args_os().collect())
}
