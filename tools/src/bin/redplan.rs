//! `redplan`: which protection a job should have, and what it will cost.

use std::process::ExitCode;

fn main() -> ExitCode {
    redrt_tools::redplan::main(std::env::args_os().collect())
}
