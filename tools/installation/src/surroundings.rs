//! Environment that daemons give to a rank, and its removal for a `redrun` that a rank has started: that job is another
//! one, and the preloaded library's answers for a rank would mislead it.

use crate::{FACADES, LOADER};
use redrt_wire::checkpoint::CHILDREN_VARIABLE;
use redrt_wire::control::{CLONER_FD_VARIABLE, CONTROL_FD_VARIABLE};
use redrt_wire::daemon::Abi;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::Path;

/// Library that answers before `MPI_Init`, and for calls outside MPI.
pub const PRELOAD: &str = "libredrt_preload.so";

/// Variables that identify a rank.
const OF_RANK: [&str; 17] = [
    CONTROL_FD_VARIABLE,
    CLONER_FD_VARIABLE,
    CHILDREN_VARIABLE,
    "REDRT_RANK",
    "REDRT_SIZE",
    "REDRT_SEED",
    "REDRT_START_NS",
    "REDRT_START_MONOTONIC_NS",
    "REDRT_HOST",
    "PMI_RANK",
    "PMI_SIZE",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "MPI_LOCALRANKID",
    "MPI_LOCALNRANKS",
];

/// True if the variable identifies a rank.
#[must_use]
pub fn is_of_rank(name: &OsStr) -> bool {
    OF_RANK.iter().any(|other| name == *other)
}

/// True if daemons make ranks load this library.
fn is_of_daemon(library: &Path) -> bool {
    let Some(name) = library.file_name() else { return false };
    let is_facade = || {
        let facades = [Abi::Mpich, Abi::OpenMpi].into_iter().flat_map(|abi| [abi.library(), abi.fortran_library()]);
        library.parent().and_then(Path::file_name) == Some(OsStr::new(FACADES))
            && facades.flatten().any(|facade| name == facade)
    };
    name == PRELOAD || name == LOADER || is_facade()
}

/// Environment without the changes for a rank. `has_facades`: true for a directory with an installation's façades.
fn without_rank(
    environment: impl Iterator<Item = (OsString, OsString)>,
    has_facades: impl Fn(&Path) -> bool,
) -> BTreeMap<OsString, OsString> {
    let mut left: BTreeMap<_, _> = environment.filter(|(name, _)| !is_of_rank(name)).collect();
    let mut filter = |name: &str, goes: &dyn Fn(&Path) -> bool| {
        let Some(list) = left.remove(OsStr::new(name)) else { return };
        let parts = list.as_bytes().split(|byte| *byte == b':');
        let stay: Vec<_> = parts.filter(|part| !goes(Path::new(OsStr::from_bytes(part)))).collect();
        if !stay.is_empty() {
            left.insert(name.into(), OsString::from_vec(stay.join(&b':')));
        }
    };
    filter("LD_PRELOAD", &is_of_daemon);
    filter("LD_LIBRARY_PATH", &has_facades);
    left
}

/// If a rank has started this program, runs it again without the rank's environment. Otherwise returns.
///
/// # Errors
/// When the program cannot be run again.
pub fn leave() -> io::Result<()> {
    if std::env::var_os(CONTROL_FD_VARIABLE).is_none() {
        return Ok(());
    }
    let mut command = crate::command("redrun")?;
    command.args(std::env::args_os().skip(1));
    command.env_clear().envs(without_rank(std::env::vars_os(), |directory| directory.join(LOADER).exists()));
    Err(command.exec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_leaves_no_trace_in_the_environment_of_its_redrun() {
        let left = |variables: &[(&str, &str)]| {
            let environment = variables.iter().map(|(name, value)| ((*name).into(), (*value).into()));
            let left = without_rank(environment, |directory| directory == Path::new("/p/lib/redrt"));
            let shown = left.iter().map(|(name, value)| format!("{}={}", name.display(), value.display()));
            shown.collect::<Vec<_>>().join(" ")
        };
        let of_rank: Vec<_> = OF_RANK.iter().map(|name| (*name, "1")).collect();
        assert_eq!(left(&of_rank), "");
        assert_eq!(
            left(&[("HOME", "/h"), ("REDRT_LOG", "info"), ("PMI_RANKS", "1")]),
            "HOME=/h PMI_RANKS=1 REDRT_LOG=info"
        );
        let preload = "/p/lib/libredrt_preload.so:/p/lib/redrt/libmpi.so.12:/p/lib/redrt/libredrt_loader.so";
        let paths = "/p/lib:/p/lib/redrt:/h/lib";
        assert_eq!(left(&[("LD_PRELOAD", preload), ("LD_LIBRARY_PATH", paths)]), "LD_LIBRARY_PATH=/p/lib:/h/lib");
        // The user's own libraries, and foreign ones with the same names.
        let own = "libasan.so:/opt/mpich/lib/libmpi.so.12";
        assert_eq!(left(&[("LD_PRELOAD", &format!("{preload}:{own}"))]), format!("LD_PRELOAD={own}"));
    }
}
