//! Descent from a rank: finds out if an ancestor of this process has taken the place in the job that the environment
//! names. Then this process is no rank: a rank has started it, say by `system()` or Python's multiprocessing.
//!
//! A process that has taken its place has redrun's connection, a socket, under the number that the environment names,
//! with the close-on-exec flag. A script that runs before may have the connection open without the flag, and has no
//! place. A daemon has another file under that number.

use std::os::fd::RawFd;
use std::path::Path;

/// Maximum number of ancestors to look at, more than any script needs: reused process ids could make a loop.
const GENERATIONS_MAX: u32 = 256;

/// File of a process under the number of the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Holds {
    /// No file, or none that this process may see.
    Nothing,
    /// A connection with close-on-exec: the process has taken its place.
    Place,
    /// Another file: neither the process nor its ancestors have a place that a process below could inherit.
    Other,
}

/// Returns true if an ancestor of this process has taken the place in the job that the connection `fd` gives.
pub fn is_below_a_rank(fd: RawFd) -> bool {
    descends("self".to_owned(), |process| parent(Path::new("/proc").join(process)), |process| holds(process, fd))
}

fn descends(process: String, parent: impl Fn(&str) -> Option<String>, holds: impl Fn(&str) -> Holds) -> bool {
    let mut above = parent(&process);
    for _ in 0..GENERATIONS_MAX {
        let Some(process) = above else { return false };
        match holds(&process) {
            Holds::Place => return true,
            Holds::Other => return false,
            Holds::Nothing => above = parent(&process),
        }
    }
    false
}

fn parent(directory: impl AsRef<Path>) -> Option<String> {
    parent_in(&std::fs::read_to_string(directory.as_ref().join("stat")).ok()?)
}

/// The parent's id in the text of `/proc/PID/stat`. The name of the program, in parentheses, may have any characters.
fn parent_in(stat: &str) -> Option<String> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1).filter(|parent| *parent != "0").map(str::to_owned)
}

fn holds(process: &str, fd: RawFd) -> Holds {
    let directory = Path::new("/proc").join(process);
    let Ok(target) = std::fs::read_link(directory.join(format!("fd/{fd}"))) else { return Holds::Nothing };
    if !target.as_os_str().as_encoded_bytes().starts_with(b"socket:") {
        return Holds::Other;
    }
    let flags = std::fs::read_to_string(directory.join(format!("fdinfo/{fd}")));
    if flags.is_ok_and(|text| is_closed_on_exec(&text)) { Holds::Place } else { Holds::Nothing }
}

/// Returns true if the text of `/proc/PID/fdinfo/FD` says that the descriptor is closed on exec.
fn is_closed_on_exec(text: &str) -> bool {
    let flags = text.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| i32::from_str_radix(flags.trim(), 8).ok());
    flags.is_some_and(|flags| flags & libc::O_CLOEXEC != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_process_below_one_that_has_its_place_is_no_rank() {
        use Holds::{Nothing, Other, Place};
        // Files of the ancestors, the nearest first.
        let table: [(&[Holds], bool); 6] = [
            (&[Place], true),
            (&[Nothing, Nothing, Place], true),
            (&[], false),
            (&[Nothing, Nothing], false),
            // The daemon of a job that a rank of another job has started.
            (&[Nothing, Other, Nothing, Place], false),
            (&[Other], false),
        ];
        for (above, expected) in table {
            let parent = |process: &str| {
                let next = process.parse().map_or(0, |at: usize| at + 1);
                (next < above.len()).then(|| next.to_string())
            };
            let holds = |process: &str| above[process.parse::<usize>().expect("a number")];
            assert_eq!(descends("self".into(), parent, holds), expected, "{above:?}");
        }
        assert!(!descends("0".into(), |_| Some("0".into()), |_| Nothing), "an end is found in any case");
    }

    #[test]
    fn the_parent_is_found_behind_any_name() {
        assert_eq!(parent_in("7 (a) b) (c) S 4 7 7 0").as_deref(), Some("4"));
        assert_eq!(parent_in("1 (init) S 0 1 1"), None);
        for text in ["", "7", "7 (a", "7 (a) S"] {
            assert_eq!(parent_in(text), None, "{text}");
        }
        assert_eq!(parent("/proc/self").and_then(|text| text.parse().ok()), Some(std::os::unix::process::parent_id()));
    }

    #[test]
    fn a_connection_that_outlives_a_program_is_no_place() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let of = |fd| holds("self", fd);
        assert_eq!(of(ours.as_raw_fd()), Holds::Place);
        // SAFETY: - touches no memory: F_SETFD takes a number. The descriptor is this test's own.
        unsafe { libc::fcntl(ours.as_raw_fd(), libc::F_SETFD, 0) };
        assert_eq!(of(ours.as_raw_fd()), Holds::Nothing);
        let file = tempfile::tempfile().unwrap();
        assert_eq!(of(file.as_raw_fd()), Holds::Other);
        assert_eq!(of(1 << 20), Holds::Nothing);
    }
}
