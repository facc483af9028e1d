//! Programs that are built for another MPI. Under `redrun` each of their processes would be a job of its own, and
//! nothing would be compared: they are refused before anything is started.
//!
//! What a program needs, and what its libraries need, the dynamic linker says (`ld.so --list`), which runs none of
//! their code. Scripts and interpreters do not say what they will load. They are looked at when they print something
//! and have not called `MPI_Init`: a process that has begun with another MPI has mapped it by then ([`mapped`]).

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use object::{Object, ObjectSection, ObjectSymbol, ReadCache, ReadRef};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A file server may be slow; a program that cannot be looked at in this time is started all the same.
const TIME_MAX: Duration = Duration::from_secs(5);
/// More than any program's list of libraries.
const LIST_BYTES_MAX: usize = 1 << 20;
/// The symbol that only an MPI has.
const INIT: &[u8] = b"MPI_Init";

/// What another MPI has left in a program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Foreign {
    /// It loads this library.
    Library {
        /// Its file name.
        name: String,
        /// Whose it is.
        family: &'static str,
    },
    /// An MPI is linked into the program itself.
    Static,
}

impl std::fmt::Display for Foreign {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Library { name, family } => write!(f, "is built for {family} ({name})"),
            Self::Static => write!(f, "has an MPI linked into it"),
        }
    }
}

/// The family of MPIs that a library of this file name belongs to; `None` if it is no MPI library, or has the standard
/// ABI.
fn family(name: &str) -> Option<&'static str> {
    let (stem, version) = name.split_once(".so").unwrap_or((name, ""));
    let of_open_mpi = ["libmpi_mpifh", "libmpi_usempif08", "libmpi_usempi_ignore_tkr", "libmpi_usempi", "libmpi_cxx"];
    let of_mpich = ["libmpich", "libmpichf90", "libmpifort", "libmpicxx", "libmpl"];
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

/// The first library of another MPI in what `ld.so --list` prints.
fn in_list(list: &str) -> Option<Foreign> {
    list.lines().find_map(|line| {
        let name = line.trim().split(' ').next()?;
        let name = name.rsplit('/').next()?;
        Some(Foreign::Library { family: family(name)?, name: name.to_owned() })
    })
}

/// Whether a program, in its environment, is for another MPI. `None` also when it cannot be told.
pub fn foreign_mpi(program: &Path, environment: &[(OsString, OsString)]) -> Option<Foreign> {
    // Large programs are not read as a whole.
    let bytes = ReadCache::new(File::open(program).ok()?);
    let file = object::File::parse(&bytes).ok()?;
    let Some(linker) = interpreter(&file) else {
        let is_init = |name: &[u8]| name == INIT;
        return file.symbols().any(|symbol| symbol.name_bytes().is_ok_and(is_init)).then_some(Foreign::Static);
    };
    in_list(&list(&linker, program, environment)?)
}

/// The dynamic linker that a program asks for; none has one that is static, or a shared object.
fn interpreter<'a>(file: &object::File<'a, impl ReadRef<'a>>) -> Option<PathBuf> {
    let path = file.section_by_name(".interp")?.data().ok()?.split(|byte| *byte == 0).next()?;
    Some(PathBuf::from(OsStr::from_bytes(path)))
}

/// What the linker says that the program loads, if it says so in time.
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
    // Either it has said all, or it says nothing in time.
    let _ = child.kill();
    let _ = child.wait();
    Some(String::from_utf8_lossy(&printed).into_owned())
}

/// The library of another MPI that a process, or one below it, has mapped; none where this library is mapped, too.
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
    files().find_map(|name| Some(Foreign::Library { family: family(name)?, name: name.to_owned() }))
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

    #[test]
    fn a_library_that_is_needed_by_another_is_found_and_one_that_is_missing_too() {
        let list =
            "\tlinux-vdso.so.1 (0x1)\n\tlibpetsc.so => /usr/lib/libpetsc.so (0x2)\n\tlibmpi.so.40 => not found\n";
        let found = in_list(list).expect("there is one");
        assert_eq!(found.to_string(), "is built for Open MPI (libmpi.so.40)");
        let by_path = in_list("\t/opt/mpich/lib/libmpi.so.12 (0x1)\n").expect("there is one");
        assert_eq!(by_path.to_string(), "is built for MPICH, Intel MPI or MVAPICH (libmpi.so.12)");
        assert_eq!(
            in_list("\tlibmpi_abi.so.1 => /opt/redrt/lib/libmpi_abi.so.1 (0x1)\n\tlibc.so.6 => /lib/libc.so.6\n"),
            None
        );
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
            assert_eq!(foreign_mpi(Path::new(program), &[]), None, "{program}");
        }
        assert_eq!(foreign_mpi(&std::env::current_exe().unwrap(), &[]), None);
    }
}
