//! `redrt`: all programs of redrt in one file. The name by which it is called selects the program. The names are links
//! to the file; `redrt run …` is `redrun …`.

#![warn(clippy::print_stdout, clippy::print_stderr)]

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use command_line::{Generate, generate_for};
use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;

/// A program's entry: takes the words of the command line, the first of which is a name, and returns the exit code.
type Main = fn(Vec<OsString>) -> i32;

struct Program {
    /// Names of the program, the usual one first.
    names: &'static [&'static str],
    /// The word after `redrt` that selects the program.
    word: &'static str,
    about: &'static str,
    main: Main,
}

const PROGRAMS: [Program; 7] = [
    Program {
        names: &["redrun", "mpiexec", "mpirun"],
        word: "run",
        about: "Run an MPI program with replicated ranks: redrun, mpiexec, mpirun",
        main: redrun::main,
    },
    Program {
        names: &["redctl"],
        word: "ctl",
        about: "Look at a running job and change it: redctl",
        main: redctl::main,
    },
    Program {
        names: &["redspared"],
        word: "spared",
        about: "Keep a pool of spare hosts that jobs share: redspared",
        main: redspared::main,
    },
    Program {
        names: &["redreport"],
        word: "report",
        about: "Show what the audit logs of jobs say: redreport",
        main: redreport::main,
    },
    Program {
        names: &["redplan"],
        word: "plan",
        about: "Plan which protection a job should have, and what it costs: redplan",
        main: redplan::main,
    },
    Program {
        names: &["redclone"],
        word: "clone",
        about: "Copy a living process to another host, or into a file: redclone",
        main: redclone::main,
    },
    Program {
        names: &["redrtd"],
        word: "daemon",
        about: "Hold the processes of a job on one host, as redrun starts it: redrtd",
        main: redrtd::main,
    },
];

/// The word, and the file of its own, of the simulators. They need another build of the library than jobs do.
const SIMULATORS: (&str, &str) = ("sim", "redrt-sim");

/// What `redrt` itself can be asked for. Its subcommands are the programs, whose command lines are their own.
#[derive(Parser)]
#[command(
    name = "redrt",
    version,
    max_term_width = 100,
    about = "All programs of redrt. Each is also installed under a name of its own, which is a link to this one",
    subcommand_required = true,
    arg_required_else_help = true,
    disable_help_subcommand = true
)]
struct ToolsArguments {
    #[command(subcommand)]
    what: Own,
}

#[derive(Subcommand)]
enum Own {
    /// Print the manual page or completions for a shell
    #[command(hide = true)]
    Generate {
        /// What to print
        what: Generate,
    },
}

fn command() -> clap::Command {
    let programs = PROGRAMS.iter().map(|program| clap::Command::new(program.word).about(program.about));
    let simulators = clap::Command::new(SIMULATORS.0).about("Replay a seed of a simulator: redrt-sim");
    ToolsArguments::command().subcommands(programs).subcommand(simulators)
}

fn main() {
    let words: Vec<OsString> = std::env::args_os().collect();
    if let Some((name, main)) = called(words.first()) {
        // The process may have the file's own name: `ps` and `pkill` shall find it by the program's.
        if let Ok(name) = CString::new(name) {
            let _ = nix::sys::prctl::set_name(&name);
        }
        std::process::exit(main(words));
    }
    let code = match words.get(1).and_then(|word| PROGRAMS.iter().find(|program| program.is_meant(word))) {
        // Started anew, so that the program sees the command line that it would have under its own name.
        Some(program) => become_program(program.names[0], &words[2..]),
        None if words.get(1).is_some_and(|word| word == SIMULATORS.0) => simulate(&words[2..]),
        None => own(words),
    };
    std::process::exit(code);
}

impl Program {
    /// True if a word after `redrt` selects this program.
    fn is_meant(&self, word: &OsStr) -> bool {
        word == self.word || self.names.iter().any(|name| word == *name)
    }
}

/// The program's name at the end of a path, and its entry.
fn program_of(called: &OsStr) -> Option<(&'static str, Main)> {
    let called = Path::new(called).file_name()?;
    let mut names = PROGRAMS.iter().flat_map(|program| program.names.iter().map(|name| (*name, program.main)));
    names.find(|(name, _)| called == *name)
}

/// The program of the name by which this process was called. The first word decides, or the executed path if the first
/// word names no program.
fn called(first: Option<&OsString>) -> Option<(&'static str, Main)> {
    first.and_then(|first| program_of(first)).or_else(|| {
        // SAFETY: - a null entry is sorted out before it is read.
        //         - otherwise it points to the path, a terminated string that the kernel keeps as long as the process.
        let path = unsafe {
            let path = libc::getauxval(libc::AT_EXECFN) as *const libc::c_char;
            (!path.is_null()).then(|| std::ffi::CStr::from_ptr(path))
        };
        program_of(OsStr::from_bytes(path?.to_bytes()))
    })
}

/// Runs `redrt` itself, and returns the exit code.
fn own(words: Vec<OsString>) -> i32 {
    let parsed = command().try_get_matches_from(words).and_then(|matches| ToolsArguments::from_arg_matches(&matches));
    match parsed {
        Ok(ToolsArguments { what: Own::Generate { what } }) => {
            i32::from(say::text(&generate_for(command(), "redrt", what)).is_err())
        }
        Err(error) => command_line::show(&error),
    }
}

/// Executes the program in place of this one. Returns only on failure, with the exit code.
fn become_program(name: &str, words: &[OsString]) -> i32 {
    let error = installation::command(name).map(|mut command| command.args(words).exec()).unwrap_or_else(|error| error);
    say::error(format_args!("redrt: cannot run {name}: {error}"));
    1
}

/// Executes the simulators, which are a file beside this one. Returns only on failure, with the exit code.
fn simulate(words: &[OsString]) -> i32 {
    let file = std::env::current_exe().map(|own| own.with_file_name(SIMULATORS.1));
    let error = file.map(|file| std::process::Command::new(file).args(words).exec()).unwrap_or_else(|error| error);
    match error.kind() {
        std::io::ErrorKind::NotFound => {
            say::error(format_args!("redrt: {} is not installed beside redrt", SIMULATORS.1));
        }
        _ => say::error(format_args!("redrt: cannot run {}: {error}", SIMULATORS.1)),
    }
    1
}
