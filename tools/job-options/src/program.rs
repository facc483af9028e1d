//! The program of a command line: its path, environment and directory.

use super::arguments::{AbiChoice, JobArguments, LocalArguments};
use checkpoint_files::remote::CREDENTIALS;
use clap::ValueEnum;
use command_line::UsageError;
use installation::foreign::{BuiltFor, examine};
use installation::{LIBRARY, find_facade, find_library};
use redrt_wire::daemon::{Abi, Application};
use redrt_wire::dynamic::INITIAL_ERRHANDLER_VARIABLE;
use redrt_wire::foreign::Foreign;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Checks and completes the program of one segment.
pub fn application(
    arguments: &JobArguments,
    local: &LocalArguments,
    hides_credentials: bool,
) -> Result<Application, UsageError> {
    let Some(name) = local.program.first() else {
        return Err(UsageError("no program was given; try redrun --help".into()));
    };
    let directory = directory(local.directory.as_deref().or(arguments.local.directory.as_deref()))?;
    let environment = environment(arguments, local, hides_credentials)?;
    check_architecture(local.arch.as_deref())?;
    let places = [local.path.as_ref(), environment.get(OsStr::new("PATH"))];
    let program = find(name, &directory, &places)?;
    let environment: Vec<_> = environment.into_iter().collect();
    let abi = abi(arguments, &program, &environment)?;
    Ok(Application { program, arguments: local.program.clone(), environment, directory, abi })
}

/// Prefixes of arguments that name a descriptor of this process, such as a shell makes of `<(command)`.
const DESCRIPTORS: [&[u8]; 2] = [b"/dev/fd/", b"/proc/self/fd/"];

/// Refuses arguments that name descriptors which the shell has opened. Processes that are replicated or may be copied
/// do not have them: of a pipe each would get a part, and a file would have one position for all.
pub fn check_arguments(application: &Application) -> Result<(), UsageError> {
    let named = application.arguments.iter().find_map(|argument| Some((argument, descriptor_in(argument)?)));
    let Some((argument, descriptor)) = named else { return Ok(()) };
    Err(UsageError(format!(
        "argument {}: descriptor {descriptor} is open in redrun alone, as '<(command)' makes it; processes that are \
         replicated, or saved, do not share it. Write what it has to a file first, and name that",
        argument.display()
    )))
}

/// The open descriptor beyond the standard ones that an argument names. `None` if there is none.
fn descriptor_in(argument: &OsStr) -> Option<u32> {
    let bytes = argument.as_bytes();
    let behind = |at: usize| DESCRIPTORS.iter().find_map(|name| bytes[at..].strip_prefix(*name));
    let number = |rest: &[u8]| {
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).copied().collect();
        String::from_utf8(digits).ok()?.parse::<u32>().ok()
    };
    let is_open = |number: &u32| Path::new("/proc/self/fd").join(number.to_string()).symlink_metadata().is_ok();
    (0..bytes.len()).filter_map(behind).filter_map(number).filter(|number| *number > 2).find(is_open)
}

/// Refuses a processor other than this host's: all hosts of a job have the same.
fn check_architecture(wanted: Option<&str>) -> Result<(), UsageError> {
    let own = std::env::consts::ARCH;
    let is_own = |wanted: &str| wanted.replace('-', "_").eq_ignore_ascii_case(own) || wanted == "amd64";
    match wanted.filter(|wanted| !is_own(wanted)) {
        None => Ok(()),
        Some(other) => Err(UsageError(format!("--arch {other}: this redrt is for {own}, on all hosts"))),
    }
}

/// The ABI that a program needs. An ABI that redrt lacks is refused.
fn abi(arguments: &JobArguments, program: &Path, environment: &[(OsString, OsString)]) -> Result<Abi, UsageError> {
    if arguments.allow_other_mpi {
        return Ok(Abi::Standard);
    }
    let refused = |foreign: Foreign| {
        UsageError(format!(
            "{} {foreign}, and not for redrt: each of its processes would run alone, and nothing would be compared. Build it \
             with redrt's mpicc, or for the standard ABI of MPI-5.0 (libmpi_abi.so.1); --allow-other-mpi runs it all the same",
            program.display()
        ))
    };
    let built_for = examine(program, environment);
    let abi = match arguments.abi {
        AbiChoice::Mpich => Ok(Abi::Mpich),
        AbiChoice::Openmpi => Ok(Abi::OpenMpi),
        AbiChoice::Standard => match built_for {
            BuiltFor::Nothing => Ok(Abi::Standard),
            BuiltFor::Served { foreign, .. } | BuiltFor::Foreign(foreign) => Err(refused(foreign)),
        },
        AbiChoice::Auto => match built_for {
            BuiltFor::Nothing => Ok(Abi::Any),
            BuiltFor::Served { abi, .. } => Ok(abi),
            BuiltFor::Foreign(foreign) => Err(refused(foreign)),
        },
    }?;
    match missing_library(abi) {
        Some(name) => {
            let program = program.display();
            Err(UsageError(format!("redrt's {name}, which {program} needs, is not there; install redrt again")))
        }
        None => Ok(abi),
    }
}

/// The library for programs of another MPI that this installation lacks, for example because it was moved without it.
fn missing_library(abi: Abi) -> Option<&'static str> {
    if !matches!(abi, Abi::Mpich | Abi::OpenMpi) {
        return None;
    }
    let is_missing = |name: &&str| find_facade(name).is_none();
    let facade = [abi.library(), abi.fortran_library()].into_iter().flatten().find(is_missing);
    facade.or_else(|| find_library(LIBRARY).is_none().then_some(LIBRARY))
}

/// Path of a process's working directory, valid even if that was removed.
const OWN_DIRECTORY: &str = "/proc/self/cwd";

fn directory(given: Option<&Path>) -> Result<PathBuf, UsageError> {
    let current = match std::env::current_dir() {
        Ok(current) => current,
        // The directory was removed. Daemons of this host have it nevertheless, and so do their programs.
        Err(error) if error.kind() == ErrorKind::NotFound && given.is_none() => return Ok(OWN_DIRECTORY.into()),
        Err(error) => return Err(UsageError(format!("the current directory cannot be used: {error}"))),
    };
    let Some(given) = given else { return Ok(current) };
    let whole = current.join(given);
    // Reading the entry "." needs the right to enter, which the processes will need.
    match whole.join(".").metadata() {
        Ok(metadata) if metadata.is_dir() => Ok(whole),
        Ok(_) => Err(UsageError(format!("-wdir {}: not a directory", given.display()))),
        Err(error) => Err(UsageError(format!("-wdir {}: {error}", given.display()))),
    }
}

/// The program's environment. With `hides_credentials` it lacks the object store's credentials, since images go there,
/// except those that the user has named.
fn environment(
    arguments: &JobArguments,
    local: &LocalArguments,
    hides_credentials: bool,
) -> Result<BTreeMap<OsString, OsString>, UsageError> {
    let is_hidden =
        |name: &OsString| hides_credentials && name.to_str().is_some_and(|name| CREDENTIALS.contains(&name));
    let mut environment: BTreeMap<_, _> = std::env::vars_os().filter(|(name, _)| !is_hidden(name)).collect();
    for pairs in [&arguments.local.global_environment, &local.global_environment, &local.environment] {
        for pair in pairs.chunks_exact(2) {
            check_name(&pair[0])?;
            environment.insert(pair[0].clone(), pair[1].clone());
        }
    }
    if let Some(name) = local.initial_errhandler.or(arguments.local.initial_errhandler) {
        let name = name.to_possible_value().expect("none is skipped").get_name().to_owned();
        environment.insert(INITIAL_ERRHANDLER_VARIABLE.into(), name.into());
    }
    let exports = arguments.local.export.iter().chain(&local.export);
    for export in exports {
        let bytes = export.as_bytes();
        // Without a value it names a variable of this process's environment.
        let (name, value) = match bytes.iter().position(|byte| *byte == b'=') {
            Some(at) => (OsStr::from_bytes(&bytes[..at]), Some(OsStr::from_bytes(&bytes[at + 1..]))),
            None => (export.as_os_str(), None),
        };
        check_name(name)?;
        if let Some(value) = value.map(OsString::from).or_else(|| std::env::var_os(name)) {
            environment.insert(name.into(), value);
        }
    }
    Ok(environment)
}

fn check_name(name: &OsStr) -> Result<(), UsageError> {
    if name.is_empty() || name.as_bytes().contains(&b'=') {
        return Err(UsageError(format!("'{}' is not a name of an environment variable", name.display())));
    }
    Ok(())
}

/// Finds a program as a shell would, in these lists of directories, and in the working directory as `mpiexec` does.
fn find(name: &OsStr, directory: &Path, places: &[Option<&OsString>]) -> Result<PathBuf, UsageError> {
    let name_path = Path::new(name);
    let mut candidates = Vec::new();
    if name.as_bytes().contains(&b'/') {
        candidates.push(directory.join(name_path));
        candidates.extend(std::env::current_dir().map(|current| current.join(name_path)));
    } else {
        let places = places.iter().copied().flatten().flat_map(std::env::split_paths);
        candidates.extend(places.map(|place| directory.join(place).join(name_path)));
        candidates.push(directory.join(name_path));
    }
    let is_file = |path: &&PathBuf| path.is_file();
    let is_executable = |path: &&PathBuf| nix::unistd::access(path.as_path(), nix::unistd::AccessFlags::X_OK).is_ok();
    if let Some(found) = candidates.iter().filter(is_file).find(is_executable) {
        return Ok(found.clone());
    }
    let name = name_path.display();
    if name_path.as_os_str().is_empty() {
        return Err(UsageError("the name of the program is empty".into()));
    }
    if candidates.iter().any(|path| is_file(&path)) {
        return Err(UsageError(format!("{name} is not executable")));
    }
    if candidates.iter().any(|path| path.is_dir()) {
        return Err(UsageError(format!("{name} is a directory, not a program")));
    }
    Err(UsageError(format!("there is no program {name}")))
}
