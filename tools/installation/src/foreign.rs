//! Programs that are built for another MPI. Programs of the MPICH and Open MPI families get a library of redrt with
//! their ABI. With any other MPI each process would be a job of its own under `redrun`, and nothing would be compared:
//! such programs are refused before anything is started.
//!
//! The dynamic linker lists the libraries of a program (`ld.so --list`), without running their code. Libraries that
//! scripts and interpreters will load are unknown. Such a process is examined when it prints and has not called
//! `MPI_Init`: if it uses another MPI it has mapped that by then ([`mapped`]).

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use object::{Architecture, Object, ObjectSection, ObjectSymbol, ReadCache, ReadRef};
use redrt_wire::daemon::Abi;
use redrt_wire::foreign::Foreign;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Time limit for the linker: file servers may be slow, and an unexamined program is started nevertheless.
const TIME_MAX: Duration = Duration::from_secs(5);
/// Longer than any program's list of libraries.
const LIST_BYTES_MAX: usize = 1 << 20;
/// A symbol that only MPI libraries have.
const INIT: &[u8] = b"MPI_Init";

/// The program's machine, if it is another than that of redrt's libraries.
fn other_machine<'a>(file: &object::File<'a, impl ReadRef<'a>>) -> Option<Foreign> {
    let name = match file.architecture() {
        Architecture::X86_64 if cfg!(target_arch = "x86_64") => return None,
        Architecture::Aarch64 if cfg!(target_arch = "aarch64") => return None,
        Architecture::I386 => "32-bit x86".to_owned(),
        Architecture::X86_64_X32 => "x86-64 with 32-bit pointers (x32)".to_owned(),
        other => format!("{other:?}"),
    };
    Some(Foreign::Machine(name))
}

/// MPI family of a library with this file name. `None` if it is no MPI library, or has the standard ABI.
fn family(name: &str) -> Option<&'static str> {
    let (stem, version) = name.split_once(".so").unwrap_or((name, ""));
    let of_open_mpi = ["libmpi_mpifh", "libmpi_usempif08", "libmpi_usempi_ignore_tkr", "libmpi_usempi", "libmpi_cxx"];
    let of_mpich = ["libmpich", "libmpichf90", "libmpifort", "libmpicxx", "libmpichfort", "libmpichcxx"];
    match stem {
        // From MPICH 3.1 on, as agreed between MPICH, Intel MPI, MVAPICH and others.
        "libmpi" if version.starts_with(".12") => Some("MPICH, Intel MPI or MVAPICH"),
        "libmpi" if version.is_empty() => Some("another MPI"),
        "libmpi" => Some("Open MPI"),
        _ if of_open_mpi.contains(&stem) => Some("Open MPI"),
        _ if of_mpich.contains(&stem) => Some("MPICH, Intel MPI or MVAPICH"),
        _ => None,
    }
}

/// The MPI that a program is built for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BuiltFor {
    /// redrt, no MPI at all, or unknown.
    Nothing,
    /// An MPI whose ABI redrt has.
    Served {
        /// The ABI with which redrt serves the program.
        abi: Abi,
        /// The library that the program would load.
        foreign: Foreign,
    },
    /// Another MPI.
    Foreign(Foreign),
}

/// ABI of a library with this name, if redrt has it. Debian names MPICH's `libmpich`. Open MPI's libraries behind its
/// modules stay in use: they only call the one behind `mpif.h`. The same holds for both families' C++ libraries.
fn served(name: &str) -> Option<Abi> {
    match name {
        "libmpi.so.12" | "libmpich.so.12" | "libmpifort.so.12" | "libmpichfort.so.12" | "libmpicxx.so.12"
        | "libmpichcxx.so.12" => Some(Abi::Mpich),
        "libmpi.so.40"
        | "libmpi_mpifh.so.40"
        | "libmpi_usempif08.so.40"
        | "libmpi_usempi_ignore_tkr.so.40"
        | "libmpi_cxx.so.40" => Some(Abi::OpenMpi),
        _ => None,
    }
}

/// Judges the list of libraries that `ld.so --list` prints. One library without a counterpart in redrt is enough to
/// refuse.
fn in_list(list: &str) -> BuiltFor {
    let names = list.lines().filter_map(|line| line.trim().split(' ').next()?.rsplit('/').next());
    let mut found = BuiltFor::Nothing;
    for name in names {
        let Some(family) = family(name) else { continue };
        let foreign = Foreign::Library { family: family.to_owned(), name: name.to_owned() };
        match (served(name), &found) {
            (None, _) => return BuiltFor::Foreign(foreign),
            (Some(abi), BuiltFor::Nothing) => found = BuiltFor::Served { abi, foreign },
            // Libraries of two families in one program: their functions have the same names.
            (Some(abi), BuiltFor::Served { abi: before, .. }) if abi != *before => return BuiltFor::Foreign(foreign),
            _ => {}
        }
    }
    found
}

/// Finds out for which MPI a program is built, in this environment.
pub fn examine(program: &Path, environment: &[(OsString, OsString)]) -> BuiltFor {
    inspect(program, environment).unwrap_or(BuiltFor::Nothing)
}

fn inspect(program: &Path, environment: &[(OsString, OsString)]) -> Option<BuiltFor> {
    // Large programs are not read completely.
    let bytes = ReadCache::new(File::open(program).ok()?);
    let file = object::File::parse(&bytes).ok()?;
    if let Some(other) = other_machine(&file) {
        return Some(BuiltFor::Foreign(other));
    }
    let Some(linker) = interpreter(&file) else {
        let is_init = |name: &[u8]| name == INIT;
        let has_mpi = file.symbols().any(|symbol| symbol.name_bytes().is_ok_and(is_init));
        return has_mpi.then_some(BuiltFor::Foreign(Foreign::Static));
    };
    let found = in_list(&list(&linker, program, environment)?);
    if matches!(found, BuiltFor::Served { .. }) && linker.file_name()?.as_bytes().starts_with(b"ld-musl") {
        return Some(BuiltFor::Foreign(Foreign::Musl));
    }
    // MPICH's procedures for mpi_f08 take buffers as descriptors of the compiler that MPICH was built with.
    let is_f08 = |name: &[u8]| name.ends_with(b"_f08_") || name.ends_with(b"_f08ts_");
    let asks = |symbol: object::Symbol<'_, '_, _>| symbol.is_undefined() && symbol.name_bytes().is_ok_and(is_f08);
    if matches!(found, BuiltFor::Served { abi: Abi::Mpich, .. }) && file.dynamic_symbols().any(asks) {
        return Some(BuiltFor::Foreign(Foreign::Module));
    }
    Some(found)
}

/// Dynamic linker that a program asks for. `None` for static programs and shared objects.
fn interpreter<'a>(file: &object::File<'a, impl ReadRef<'a>>) -> Option<PathBuf> {
    let path = file.section_by_name(".interp")?.data().ok()?.split(|byte| *byte == 0).next()?;
    Some(PathBuf::from(OsStr::from_bytes(path)))
}

/// Libraries that the program loads, by the linker. `None` if that fails or takes too long.
fn list(linker: &Path, program: &Path, environment: &[(OsString, OsString)]) -> Option<String> {
    let deadline = Instant::now() + TIME_MAX;
    let mut command = Command::new(linker);
    command.arg("--list").arg(program).env_clear().envs(environment.iter().map(|(name, value)| (name, value)));
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
    let mut output = child.stdout.take()?;
    let mut printed = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let left = PollTimeout::try_from(deadline.saturating_duration_since(Instant::now())).ok()?;
        match poll(&mut [PollFd::new(output.as_fd(), PollFlags::POLLIN)], left) {
            Ok(1) => {}
            Err(nix::errno::Errno::EINTR) => continue,
            _ => break,
        }
        match output.read(&mut piece) {
            Ok(count) if count > 0 && printed.len() < LIST_BYTES_MAX => printed.extend_from_slice(&piece[..count]),
            _ => break,
        }
    }
    // The list is complete, or the time is over.
    let _ = child.kill();
    let _ = child.wait();
    Some(String::from_utf8_lossy(&printed).into_owned())
}

/// A foreign MPI library that a process or one of its descendants has mapped. `None` if redrt's library is mapped too.
pub fn mapped(process: i32) -> Option<Foreign> {
    let maps = std::fs::read_to_string(format!("/proc/{process}/maps")).unwrap_or_default();
    in_maps(&maps).or_else(|| {
        let children = std::fs::read_to_string(format!("/proc/{process}/task/{process}/children")).ok()?;
        children.split_whitespace().filter_map(|child| child.parse().ok()).find_map(mapped)
    })
}

fn in_maps(maps: &str) -> Option<Foreign> {
    let files = || maps.lines().filter_map(|line| line.split_once(" /")?.1.rsplit('/').next());
    if files().any(|name| name.starts_with("libmpi_abi.so")) {
        return None;
    }
    files().find_map(|name| Some(Foreign::Library { family: family(name)?.to_owned(), name: name.to_owned() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_of_other_mpis_are_known_by_their_names() {
        for (name, found) in [
            ("libmpi.so.12", Some("MPICH, Intel MPI or MVAPICH")),
            ("libmpi.so.40", Some("Open MPI")),
            ("libmpi.so.20", Some("Open MPI")),
            ("libmpi_mpifh.so.40", Some("Open MPI")),
            ("libmpifort.so.12", Some("MPICH, Intel MPI or MVAPICH")),
            ("libmpich.so.12", Some("MPICH, Intel MPI or MVAPICH")),
            ("libmpi_abi.so.1", None),
            ("libmpi_stubs.so.1", None),
            ("libmpir.so.1", None),
            ("libc.so.6", None),
        ] {
            assert_eq!(family(name), found, "{name}");
        }
    }

    /// The judgement of a list of libraries.
    fn said(list: &str) -> (Option<Abi>, String) {
        match in_list(list) {
            BuiltFor::Nothing => (None, String::new()),
            BuiltFor::Served { abi, foreign } => (Some(abi), foreign.to_string()),
            BuiltFor::Foreign(foreign) => (None, foreign.to_string()),
        }
    }

    #[test]
    fn indirectly_needed_and_missing_libraries_are_found() {
        let petsc = "\tlinux-vdso.so.1 (0x1)\n\tlibpetsc.so => /usr/lib/libpetsc.so (0x2)\n";
        let missing = format!("{petsc}\tlibmpi.so.40 => not found\n");
        assert_eq!(said(&missing), (Some(Abi::OpenMpi), "is built for Open MPI (libmpi.so.40)".into()));
        let by_path = said("\t/opt/mpich/lib/libmpi.so.12 (0x1)\n");
        assert_eq!(by_path, (Some(Abi::Mpich), "is built for MPICH, Intel MPI or MVAPICH (libmpi.so.12)".into()));
        let own = "\tlibmpi_abi.so.1 => /opt/redrt/lib/libmpi_abi.so.1 (0x1)\n\tlibc.so.6 => /lib/libc.so.6\n";
        assert_eq!(said(own), (None, String::new()));
    }

    #[test]
    fn a_foreign_library_is_found_behind_one_of_redrts() {
        let (cxx, old) = ("\tlibmpi.so.40 (0x1)\n\tlibmpi_cxx.so.1 (0x2)\n", "\tlibmpi.so.20 (0x1)\n");
        assert_eq!(said(cxx), (None, "is built for Open MPI (libmpi_cxx.so.1)".into()));
        assert_eq!(said("\tlibmpi_cxx.so.40 (0x1)\n").0, Some(Abi::OpenMpi));
        assert_eq!(said("\tlibmpichcxx.so.12 (0x1)\n").0, Some(Abi::Mpich));
        let fortran = "\tlibmpi_usempif08.so.40 (0x1)\n\tlibmpi_mpifh.so.40 (0x2)\n\tlibmpi.so.40 (0x3)\n";
        assert_eq!(said(fortran).0, Some(Abi::OpenMpi));
        assert_eq!(said(old), (None, "is built for Open MPI (libmpi.so.20)".into()));
        // Two families in one program.
        assert_eq!(said("\tlibmpi.so.40 (0x1)\n\tlibmpi.so.12 (0x2)\n").0, None);
        // Debian's name, and the library that it loads in turn.
        assert_eq!(said("\tlibmpich.so.12 (0x1)\n\tlibmpi.so.12 (0x2)\n").0, Some(Abi::Mpich));
    }

    #[test]
    fn what_a_process_has_mapped_is_told_unless_it_has_ours() {
        let line = |path: &str| format!("7f00-7f01 r-xp 00000000 08:01 42                         {path}\n");
        let (libc, other) = (line("/usr/lib/libc.so.6"), line("/usr/lib/openmpi/libmpi.so.40.30.4"));
        let found = in_maps(&(libc.clone() + &other)).expect("there is one");
        assert_eq!(found.to_string(), "is built for Open MPI (libmpi.so.40.30.4)");
        assert_eq!(in_maps(&(other + &line("/opt/redrt/lib/libmpi_abi.so.1"))), None);
        assert_eq!(in_maps(&libc), None);
        assert_eq!(mapped(std::process::id() as i32), None);
        assert_eq!(mapped(i32::MAX), None);
    }

    #[test]
    fn programs_without_an_mpi_and_files_that_are_none_are_no_ones() {
        for program in ["/bin/sh", "/bin/true", "/etc/passwd", "/no/such/file", "/"] {
            assert_eq!(examine(Path::new(program), &[]), BuiltFor::Nothing, "{program}");
        }
        assert_eq!(examine(&std::env::current_exe().unwrap(), &[]), BuiltFor::Nothing);
    }
}
