//! `redrun`, also installed as `mpiexec` and `mpirun`.

use redrt_tools::cli::{self, Request};
use redrt_tools::redrun::{self, Console};
use redrt_tools::say;

const USAGE_EXIT_CODE: i32 = 2;

fn main() {
    let arguments: Vec<_> = std::env::args_os().collect();
    let console = Console::new("redrun");
    let code = match cli::parse(arguments) {
        Ok(Request::Print(text)) => match say::text(&text) {
            Ok(()) => 0,
            Err(_) => 1,
        },
        Ok(Request::Run(job)) => match redrun::run(&job, &console) {
            Ok(code) => code,
            Err(error) => {
                console.error(&format!("{error:#}"));
                1
            }
        },
        Err(error) => {
            console.error(&error.to_string());
            USAGE_EXIT_CODE
        }
    };
    std::process::exit(code);
}
