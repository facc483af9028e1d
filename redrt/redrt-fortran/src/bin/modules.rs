//! `redrt-fortran-modules`: makes the modules `mpi` and `mpi_f08` for a Fortran compiler.
//!
//! Module files belong to one compiler, often to one version of it. So they are made where the compiler is: when redrt
//! is installed, and later by this command for another compiler.

use clap::Parser;
use mpi_table::{Table, render_base_module, render_mpi_f08_module, render_mpi_module, render_mpif_h};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output};

/// Makes the Fortran modules mpi and mpi_f08 for a compiler, where mpifort looks for them.
#[derive(Parser, Debug)]
#[command(name = "redrt-fortran-modules", version)]
struct ModulesArguments {
    /// The Fortran compiler: a command, with arguments if it has any
    #[arg(long, value_name = "FC", env = "REDRT_FC", default_value = "gfortran")]
    compiler: String,
    /// Put the modules into this directory, for mpifort with REDRT_FORTRAN_MODULES=DIR, not into the installation
    #[arg(long, value_name = "DIR", conflicts_with = "sources")]
    output: Option<PathBuf>,
    /// Only write the sources of the modules, and mpif.h, into this directory; needs no compiler
    #[arg(long, value_name = "DIR")]
    sources: Option<PathBuf>,
    /// Print the name of the directory for this compiler's modules, and make nothing
    #[arg(long)]
    print_directory: bool,
}

/// Reasons for which modules are not made.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("cannot tell where it is installed: {0}")]
    Unlocated(io::Error),
    #[error("{} is in no installation; name a directory by --output", .0.display())]
    NotInstalled(PathBuf),
    #[error("the name of the compiler is empty")]
    NoCompiler,
    #[error("cannot run {compiler}: {cause}")]
    Run { compiler: String, cause: io::Error },
    #[error("{compiler} {option} fails")]
    Option { compiler: String, option: &'static str },
    #[error(
        "{compiler} does not compile the modules; it must have TYPE(*), DIMENSION(..) and an INTEGER of 32 bits:\n{said}"
    )]
    Compile { compiler: String, said: String },
    #[error("cannot {doing} {}: {cause}", path.display())]
    File { doing: &'static str, path: PathBuf, cause: io::Error },
}

type Result<T, E = Error> = std::result::Result<T, E>;

/// Names the file and the action in an error.
fn file<T>(done: io::Result<T>, doing: &'static str, path: &Path) -> Result<T> {
    done.map_err(|cause| Error::File { doing, path: path.to_owned(), cause })
}

fn main() -> ExitCode {
    match run(&ModulesArguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("redrt-fortran-modules: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &ModulesArguments) -> Result<()> {
    if let Some(directory) = &arguments.sources {
        return write_sources(directory);
    }
    let name = directory_name(&arguments.compiler)?;
    if arguments.print_directory {
        println!("{name}");
        return Ok(());
    }
    let directory = match &arguments.output {
        Some(directory) => directory.clone(),
        None => installation()?.join("include/redrt-fortran").join(name),
    };
    make(&arguments.compiler, &directory)?;
    println!("the modules mpi and mpi_f08 are in {}", directory.display());
    Ok(())
}

/// PREFIX of PREFIX/bin/redrt-fortran-modules.
fn installation() -> Result<PathBuf> {
    let own = std::env::current_exe().and_then(std::fs::canonicalize).map_err(Error::Unlocated)?;
    let prefix = own.parent().and_then(Path::parent).filter(|prefix| prefix.join("lib").is_dir());
    Ok(prefix.ok_or_else(|| Error::NotInstalled(own.clone()))?.to_owned())
}

/// The compiler, ready to take arguments; it may be a command with arguments of its own.
fn command(compiler: &str) -> Result<Command> {
    let mut words = compiler.split_whitespace();
    let mut command = Command::new(words.next().ok_or(Error::NoCompiler)?);
    command.args(words);
    Ok(command)
}

/// The first line that the compiler prints with this option.
fn asked(compiler: &str, option: &'static str) -> Result<String> {
    let output = output(compiler, command(compiler)?.arg(option))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let first = text.lines().next().map(str::to_owned);
    first.filter(|_| output.status.success()).ok_or_else(|| Error::Option { compiler: compiler.to_owned(), option })
}

fn output(compiler: &str, command: &mut Command) -> Result<Output> {
    command.output().map_err(|cause| Error::Run { compiler: compiler.to_owned(), cause })
}

/// `gfortran-12`: GNU Fortran's modules are the same within a major version. Modules of other compilers are taken to
/// differ with each version.
fn directory_name(compiler: &str) -> Result<String> {
    let version = asked(compiler, "--version")?;
    if version.contains("GNU Fortran") {
        let number = asked(compiler, "-dumpversion")?;
        let major = number.split('.').next().unwrap_or(&number).to_owned();
        return Ok(format!("gfortran-{major}"));
    }
    let plain = |byte: char| if byte.is_ascii_alphanumeric() || byte == '.' { byte } else { '-' };
    Ok(version.chars().map(plain).collect())
}

const MODULES: [&str; 3] = ["redrt_mpi_base.f90", "mpi.f90", "mpi_f08.f90"];

fn write_sources(directory: &Path) -> Result<()> {
    let table = Table::standard();
    let texts = [render_base_module(&table), render_mpi_module(&table), render_mpi_f08_module(&table)];
    let mpif_h = ("mpif.h", render_mpif_h(&table));
    file(std::fs::create_dir_all(directory), "make", directory)?;
    for (name, text) in MODULES.into_iter().zip(texts).chain([mpif_h]) {
        let path = directory.join(name);
        file(std::fs::write(&path, text), "write", &path)?;
    }
    Ok(())
}

/// Compiles the modules in a directory beside their place and moves them there when all are made: no reader sees a
/// part.
fn make(compiler: &str, directory: &Path) -> Result<()> {
    let mut beside = directory.as_os_str().to_owned();
    beside.push(format!(".new-{}", std::process::id()));
    let beside = PathBuf::from(beside);
    write_sources(&beside)?;
    let done = compile(compiler, &beside).and_then(|()| {
        file(std::fs::create_dir_all(directory), "make", directory)?;
        let entries = file(std::fs::read_dir(&beside), "list", &beside)?;
        let paths = entries.flatten().map(|entry| entry.path());
        for path in paths.filter(|path| path.extension().is_some_and(|extension| extension == "mod")) {
            let target = directory.join(path.file_name().expect("an entry has a name"));
            file(std::fs::rename(&path, &target), "write", &target)?;
        }
        Ok(())
    });
    // Only sources remain, and no compiler reads them there.
    let _ = std::fs::remove_dir_all(&beside);
    done
}

fn compile(compiler: &str, directory: &Path) -> Result<()> {
    let mut compiling = command(compiler)?;
    let gnu = asked(compiler, "--version")?.contains("GNU Fortran");
    // The modules hold no code, so there is no object to make. Compilers without such an option make one for nothing.
    compiling.arg(if gnu { "-fsyntax-only" } else { "-c" }).args(MODULES).current_dir(directory);
    let output = output(compiler, &mut compiling)?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<_> = text.lines().take(20).collect();
    Err(Error::Compile { compiler: compiler.to_owned(), said: lines.join("\n") })
}
