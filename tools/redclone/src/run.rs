//! `run` and `load`: a process in the foreground, started from a program or from an image.

use super::arguments::{Load, Run};
use anyhow::{Context, bail};
use cloner::destination::{Receiver, receive, standard};
use cloner::image::frame::FrameContent;
use cloner::image::state::Prologue;
use cloner::image::stream::FrameReader;
use cloner::launch::{self, Inside, Running};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use say::Console;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufReader};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicI32, Ordering};

/// Exit codes as shells use them.
const NOT_FOUND: i32 = 127;
const NOT_RUNNABLE: i32 = 126;
/// A number that programs hardly ever reach.
const AGENT_FD: i32 = 1000;

static PROGRAM: AtomicI32 = AtomicI32::new(0);

/// Runs `redclone run` and returns the exit code.
pub fn run(options: &Run, console: &Console) -> anyhow::Result<i32> {
    let Some(program) = find(&options.program[0]) else {
        console.error(&format!("{}: not found", options.program[0].display()));
        return Ok(NOT_FOUND);
    };
    let refusal = launch::check_program(&program).with_context(|| format!("cannot read {}", program.display()))?;
    if let Some(reason) = refusal {
        console.error(&format!("refused: {reason}"));
        return Ok(NOT_RUNNABLE);
    }
    let library = library()?;
    let mut command = Command::new(&program);
    command.arg0(&options.program[0]).args(&options.program[1..]);
    let mut preload = library.into_os_string();
    if let Some(before) = std::env::var_os("LD_PRELOAD").filter(|before| !before.is_empty()) {
        command.env("REDCLONE_PRELOAD_BEFORE", &before);
        preload.push(":");
        preload.push(before);
    }
    command.env("LD_PRELOAD", preload);
    let running = launch::start(None, |inside: Inside| match hand_over(&inside.listener) {
        Ok(number) => {
            let error = command.env("REDCLONE_AGENT", format!("{number}:{}", std::process::id())).exec();
            io::Error::new(error.kind(), format!("cannot run {}: {error}", program.display()))
        }
        Err(error) => error,
    })?;
    foreground(running, options.pid_file.as_deref(), options.quiet, console)
}

/// Moves the agent's socket to a number that survives exec.
fn hand_over(listener: &OwnedFd) -> io::Result<i32> {
    use nix::fcntl::{FcntlArg, fcntl};
    let (soft, _) = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE)?;
    let wanted = AGENT_FD.min(i32::try_from(soft).unwrap_or(i32::MAX) - 1);
    Ok(fcntl(listener.as_fd(), FcntlArg::F_DUPFD(wanted))?)
}

/// Path of `libredclone.so`: by `$REDCLONE_LIBRARY`, beside the program, or in `../lib`.
fn library() -> anyhow::Result<PathBuf> {
    const NAME: &str = "libredclone.so";
    if let Some(path) = std::env::var_os("REDCLONE_LIBRARY") {
        return Ok(path.into());
    }
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let directory = program.parent().unwrap_or(Path::new("/"));
    let places = [directory.join("../lib").join(NAME), directory.join(NAME)];
    match places.iter().find_map(|place| place.canonicalize().ok()) {
        Some(path) => Ok(path),
        None => bail!("{NAME} is not in {}; install redrt, or set REDCLONE_LIBRARY", places[0].display()),
    }
}

/// Finds a program as a shell does.
fn find(name: &OsString) -> Option<PathBuf> {
    let path = Path::new(name);
    if path.components().count() > 1 {
        return path.is_file().then(|| path.to_owned());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(|file| file.is_file())
}

/// Runs `redclone load` and returns the exit code.
pub fn load(options: &Load, console: &Console) -> anyhow::Result<i32> {
    let name = options.file.display();
    let file = File::open(&options.file).with_context(|| format!("cannot open {name}"))?;
    let mut reader = FrameReader::new(BufReader::new(&file));
    let read = reader.expect(FrameContent::Prologue).and_then(|header| reader.record::<Prologue>(&header));
    let prologue = read.with_context(|| format!("{name} is not an image"))?;
    drop(reader);
    let mut from_begin = file.try_clone()?;
    io::Seek::rewind(&mut from_begin)?;
    drop(file);
    let running = launch::start(Some(prologue.pid), |inside: Inside| {
        let standard = match standard() {
            Ok(standard) => standard,
            Err(error) => return error,
        };
        receive(Receiver {
            below: Vec::new(),
            inputs: vec![Box::new(BufReader::with_capacity(1 << 16, from_begin))],
            answers: None,
            complaints: inside.complaints,
            listener: inside.listener,
            standard,
            given: Vec::new(),
            succeeds: false,
            locks: false,
            drop_capabilities: inside.drop_capabilities,
        })
    })
    .with_context(|| format!("restore: {name} does not become a process"))?;
    running.begin().with_context(|| format!("restore: the copy in {name} does not run"))?;
    foreground(running, options.pid_file.as_deref(), options.quiet, console)
}

extern "C" fn forward(signal: libc::c_int) {
    let pid = PROGRAM.load(Ordering::SeqCst);
    if pid > 0 {
        // SAFETY: - kill is async-signal-safe, and takes numbers.
        unsafe { libc::kill(pid, signal) };
    }
}

/// Prints the process id, passes signals on, and ends as the program does.
fn foreground(running: Running, pid_file: Option<&Path>, quiet: bool, console: &Console) -> anyhow::Result<i32> {
    PROGRAM.store(running.pid as i32, Ordering::SeqCst);
    // The terminal sends these signals to the program too.
    for signal in [Signal::SIGINT, Signal::SIGQUIT] {
        // SAFETY: - SIG_IGN installs no handler.
        unsafe { sigaction(signal, &SigAction::new(SigHandler::SigIgn, SaFlags::empty(), SigSet::empty())) }?;
    }
    for signal in [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGUSR1, Signal::SIGUSR2] {
        let action = SigAction::new(SigHandler::Handler(forward), SaFlags::SA_RESTART, SigSet::empty());
        // SAFETY: - the handler makes only an async-signal-safe system call, and reads an atomic.
        unsafe { sigaction(signal, &action) }?;
    }
    if let Some(path) = pid_file {
        // A reader must never see half a number.
        let new = path.with_extension("new");
        std::fs::write(&new, format!("{}\n", running.pid))
            .and_then(|()| std::fs::rename(&new, path))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    if !quiet {
        console.plain(&format!("process {}", running.pid));
    }
    let _ = io::stdout().as_raw_fd();
    Ok(running.wait()?)
}
