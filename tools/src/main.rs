//! `redrt`: all programs of redrt in one file, which answers to the name it is called by. The names are links to it;
//! `redrt run …` is `redrun …`.

#![warn(clippy::print_stdout, clippy::print_stderr)]

use clap::{CommandFactory, Parser, Subcommand};
use redrt_tools::cli::{self, Generate, generate_for};
use redrt_tools::{daemon, installation, redclone, redctl, redplan, redreport, redrun, redspared};
use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;

/// Gets the words of the command line, the first of which is a name; returns the exit code.
type Main = fn(Vec<OsString>) -> i32;

/// What it is called, the word behind `redrt` that means the same, and what it does then.
const PROGRAMS: [(&str, &str, Main); 9] = [
    ("redrun", "run", redrun::main),
    ("mpiexec", "run", redrun::main),
    ("mpirun", "run", redrun::main),
    ("redctl", "ctl", redctl::main),
    ("redspared", "spared", redspared::main),
    ("redreport", "report", redreport::main),
    ("redplan", "plan", redplan::main),
    ("redclone", "clone", redclone::main),
    ("redrtd", "daemon", daemon::main),
];

/// All programs of redrt. Each is also installed under a name of its own, which is a link to this one.
#[derive(Parser)]
#[command(name = "redrt", version, max_term_width = 100, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

/// Words that follow are those of the program.
#[derive(Subcommand)]
#[command(disable_help_subcommand = true)]
enum What {
    /// Run an MPI program with replicated ranks: redrun, mpiexec, mpirun
    Run,
    /// Look at a running job and change it: redctl
    Ctl,
    /// Keep a pool of spare hosts that jobs share: redspared
    Spared,
    /// Show what the audit logs of jobs say: redreport
    Report,
    /// Plan which protection a job should have, and what it costs: redplan
    Plan,
    /// Copy a living process to another host, or into a file: redclone
    Clone,
    /// Hold the processes of a job on one host, as redrun starts it: redrtd
    Daemon,
    /// Print the manual page or completions for a shell
    #[command(hide = true)]
    Generate {
        /// What to print
        what: Generate,
    },
}

fn main() {
    let words: Vec<OsString> = std::env::args_os().collect();
    if let Some((name, _, main)) = called() {
        // What started it may have used the file's own name: ps and pkill shall find it by that of the program.
        if let Ok(name) = CString::new(*name) {
            let _ = nix::sys::prctl::set_name(&name);
        }
        std::process::exit(main(words));
    }
    let is_meant = |(name, short, _): &&Program| words.get(1).is_some_and(|word| word == *short || word == *name);
    let code = match PROGRAMS.iter().find(is_meant) {
        // So all of it sees the command line that it would have under its name.
        Some((name, ..)) => become_program(name, &words[2..]),
        None => match cli::parse_from::<Arguments>(words) {
            Ok(Arguments { what: What::Generate { what } }) => {
                i32::from(say::text(&generate_for(Arguments::command(), "redrt", what)).is_err())
            }
            Ok(_) => unreachable!("each of these words is a program's"),
            Err(code) => code,
        },
    };
    std::process::exit(code);
}

type Program = (&'static str, &'static str, Main);

/// The program of this name, in whatever directory.
fn program_of(called: &OsStr) -> Option<&'static Program> {
    let name = Path::new(called).file_name()?;
    PROGRAMS.iter().find(|(program, ..)| name == *program)
}

/// The program of the name by which this was called, as its first word says or, where that says something else, the
/// path that was executed.
fn called() -> Option<&'static Program> {
    let by_word = std::env::args_os().next().and_then(|word| program_of(&word));
    by_word.or_else(|| {
        // SAFETY: - the entry is a pointer to the path, which the kernel has put there for as long as the process
        // lives,
        //   or null.
        let path = unsafe {
            let path = libc::getauxval(libc::AT_EXECFN) as *const libc::c_char;
            (!path.is_null()).then(|| std::ffi::CStr::from_ptr(path))
        };
        program_of(OsStr::from_bytes(path?.to_bytes()))
    })
}

/// Returns only when it fails, with the exit code.
fn become_program(name: &str, words: &[OsString]) -> i32 {
    let error = installation::command(name).map(|mut command| command.args(words).exec()).unwrap_or_else(|error| error);
    say::error(format_args!("redrt: cannot run {name}: {error}"));
    1
}
