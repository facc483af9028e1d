//! Processes in namespaces of their own, so that a copy can have the same process and thread ids as its source.
//!
//! ```text
//!  redclone ── first process of the namespace ── the program, or the receiver that becomes the copy
//!   waits          reaps, and ends with it           its id is the same on every host
//! ```
//! An unprivileged user gets them through a user namespace. The price: `/proc` is mounted anew, and the program cannot
//! see other processes.

use crate::control::{self, Control};
use crate::destination;
use crate::error::told_of;
use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};
use std::fs;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

const SETUP_FAILED: i32 = 73;

/// Result of [`Running::wait`] for a process that SIGKILL has ended.
const KILLED_CODE: i32 = 128 + Signal::SIGKILL as i32;

/// Resources of the new process, passed to the closure of [`start`].
pub struct Inside {
    /// The agent's listening socket.
    pub listener: OwnedFd,
    /// Pipe to the parent. It carries one line if nothing can run, and is closed once the program runs.
    pub complaints: OwnedFd,
    /// True if this process has privileges only through its user namespace.
    pub drop_capabilities: bool,
}

impl Inside {
    /// Reports that the program runs, for one that goes on in this very process. Returns the agent's listening socket.
    #[must_use]
    pub fn started(self) -> OwnedFd {
        drop(self.complaints);
        destination::complain_no_more();
        self.listener
    }
}

/// The new process was killed before it ran, by SIGKILL from a user or for want of memory. Its program or image is not
/// at fault, so another attempt may succeed.
#[derive(thiserror::Error, Debug)]
#[error("the new process was killed before it ran")]
pub struct KilledBefore;

/// A process that was started in namespaces of its own. Dropping it removes its socket's file, not the process.
pub struct Running {
    /// Its id in this process's PID namespace.
    pub pid: u32,
    first: Pid,
    socket: PathBuf,
}

/// Starts a process in new namespaces, with id `pid` there or the next free one.
///
/// `inside` is called in the new process and does not return on success; the error it returns is reported to the
/// caller. The calling process must have one thread only. `inside` is dropped here and in the first process, so that
/// only the new process keeps its descriptors open.
pub fn start(pid: Option<u32>, inside: impl FnOnce(Inside) -> io::Error) -> io::Result<Running> {
    let socket = fresh_path()?;
    let drop_capabilities = enter()?;
    let (told, complaints) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
    // SAFETY: - this process has one thread, as this function's contract demands, so the child may run any code.
    match unsafe { fork() }? {
        ForkResult::Child => {
            drop(told);
            let what = match first_process(pid, &socket, complaints, drop_capabilities, inside) {
                Ok(never) => match never {},
                Err(what) => what,
            };
            destination::fail(&told_of(&what))
        }
        ForkResult::Parent { child } => {
            drop((complaints, inside));
            let running = Running { pid: 0, first: child, socket };
            running.published(told)
        }
    }
}

/// First byte on the pipe, before any complaint: the socket is bound, and the new process waits for a connection.
const BOUND: u8 = b'+';

enum Never {}

/// Keeps later mounts out of the parent's mount namespace.
fn keep_mounts_private() -> io::Result<()> {
    let private =
        |path: &str| mount(None::<&str>, path, None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>);
    // In a chroot, `/` is usually not a mount point. The new `proc` covers whatever is mounted at `/proc`.
    let outcome = match private("/") {
        Err(nix::Error::EINVAL) => private("/proc"),
        outcome => outcome,
    };
    outcome.map_err(|error| match error {
        nix::Error::EINVAL => io::Error::other("neither / nor /proc is a mount point here: mount proc in the chroot"),
        error => error.into(),
    })
}

fn first_process(
    pid: Option<u32>,
    socket: &Path,
    complaints: OwnedFd,
    drop_capabilities: bool,
    inside: impl FnOnce(Inside) -> io::Error,
) -> io::Result<Never> {
    destination::complain_to(&complaints);
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
    keep_mounts_private()?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("proc"), "/proc", Some("proc"), flags, None::<&str>)
        .map_err(|error| io::Error::other(format!("cannot mount /proc: {error}; does a container forbid it?")))?;
    let child = fork_as(pid)?;
    if child == 0 {
        // The process itself binds its socket, because a client learns its id from the socket. It waits until the
        // client has connected: the program might end at once.
        let listener = bind(socket)?;
        nix::unistd::write(&complaints, &[BOUND])?;
        drop(listener.accept()?);
        Err(inside(Inside { listener: listener.into(), complaints, drop_capabilities }))
    } else {
        drop(complaints);
        reap_until(Pid::from_raw(child))
    }
}

/// Forks. The child has id `pid` if one is given.
fn fork_as(pid: Option<u32>) -> io::Result<i32> {
    let Some(pid) = pid else {
        // SAFETY: - this process has one thread, as the contract of [`start`] demands, so the child may run any code.
        return match unsafe { fork() }? {
            ForkResult::Child => Ok(0),
            ForkResult::Parent { child } => Ok(child.as_raw()),
        };
    };
    let wanted = [pid as i32];
    // Layout of `struct clone_args`, as in `destination::plan`.
    let arguments = [0, 0, 0, 0, libc::SIGCHLD as u64, 0, 0, 0, wanted.as_ptr() as u64, 1, 0];
    // SAFETY: - `arguments` and `wanted` are locals of the sizes that are passed, and outlive the call.
    //         - neither memory nor stack is shared, as with fork, and there is one thread.
    //         - the C library's cached thread id, now stale, is not used.
    let result = unsafe { libc::syscall(libc::SYS_clone3, arguments.as_ptr(), size_of_val(&arguments)) };
    Errno::result(result as i32)
        .map_err(|error| io::Error::other(format!("cannot have process id {pid}: {error} (CAP_CHECKPOINT_RESTORE)")))
}

/// First process of the namespace: reaps orphans, and ends with the exit code of `program`.
fn reap_until(program: Pid) -> ! {
    // An open pipe or socket here would hide its end from peers. Standard descriptors are closed too.
    // SAFETY: - nothing in this process uses a descriptor from here on.
    unsafe { libc::syscall(libc::SYS_close_range, 0, u32::MAX, 0) };
    let mut mask = SigSet::all();
    mask.remove(Signal::SIGKILL);
    let _ = sigprocmask(SigmaskHow::SIG_BLOCK, Some(&mask), None);
    loop {
        let code = match waitpid(None, Some(WaitPidFlag::__WALL)) {
            Ok(WaitStatus::Exited(pid, code)) if pid == program => code,
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == program => 128 + signal as i32,
            Ok(_) | Err(Errno::EINTR) => continue,
            Err(_) => SETUP_FAILED,
        };
        // SAFETY: - `_exit` takes a number and does not return.
        unsafe { libc::_exit(code) }
    }
}

/// Makes new namespaces for the children of this process. Returns true if a user namespace was needed.
fn enter() -> io::Result<bool> {
    let namespaces = CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWNS;
    let (uid, gid) = (nix::unistd::geteuid(), nix::unistd::getegid());
    if uid.is_root() && unshare(namespaces).is_ok() {
        return Ok(false);
    }
    unshare(namespaces | CloneFlags::CLONE_NEWUSER).map_err(|error| {
        io::Error::other(format!(
            "user namespaces are needed to give a copy the same process id, and forbidden here: {error}"
        ))
    })?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
    fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))?;
    Ok(true)
}

/// Binds a socket through a descriptor of its directory: an address holds 107 bytes, and the path may be longer.
fn bind(path: &Path) -> io::Result<UnixListener> {
    let directory = fs::File::open(path.parent().unwrap_or(Path::new("/")))?;
    let short = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&directory));
    UnixListener::bind(Path::new(&short).join(path.file_name().unwrap_or_default()))
}

/// Makes a fresh socket path whose name identifies the standard streams that the new process inherits.
fn fresh_path() -> io::Result<PathBuf> {
    let prefix = cloner_agent::name_for(&cloner_agent::standard());
    let mut name = tempfile::Builder::new();
    let path = name.prefix(&prefix).suffix(".sock").tempfile_in(control::directory()?)?.into_temp_path();
    let name = path.to_path_buf();
    path.close()?;
    Ok(name)
}

impl Running {
    /// Waits until the program runs, and renames its socket to the path that `Control::connect` uses.
    fn published(mut self, told: OwnedFd) -> io::Result<Self> {
        let mut told = fs::File::from(told);
        let mut what = Vec::new();
        told.by_ref().take(1).read_to_end(&mut what)?;
        let is_bound = what.pop_if(|first| *first == BOUND).is_some();
        let pid = is_bound.then(|| self.shorten().and_then(|()| control::listener_pid(&self.socket)));
        if let Some(Err(error)) = pid {
            self.kill();
            return Err(match error.kind() {
                // Only the death of the process closes the socket this early.
                io::ErrorKind::ConnectionRefused => io::Error::other(KilledBefore),
                _ => io::Error::other(format!("cannot connect to the new process: {error}")),
            });
        }
        told.read_to_end(&mut what)?;
        if let Some(told) = destination::complaint(&what) {
            let _ = self.wait();
            return Err(io::Error::other(told));
        }
        match pid {
            Some(Ok(pid)) => self.pid = pid,
            _ => {
                return Err(match self.wait()? {
                    KILLED_CODE => io::Error::other(KilledBefore),
                    code => io::Error::other(format!("the new process has ended before it ran, exit code {code}")),
                });
            }
        }
        let named = control::socket_path(self.pid)?;
        fs::rename(&self.socket, &named)?;
        self.socket = named;
        Ok(self)
    }

    /// Renames the socket to a short name, by which clients can connect. The agent reads the long name from the
    /// socket's address, which does not change.
    fn shorten(&mut self) -> io::Result<()> {
        let name = self.socket.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let short = self.socket.with_file_name(format!("new-{}", name.rsplit('-').next().unwrap_or_default()));
        fs::rename(&self.socket, &short)?;
        self.socket = short;
        Ok(())
    }

    /// Lets the threads of a copy begin, once its agent reports that all exist. A copy that has ended meanwhile is no
    /// error here: [`Running::wait`] returns how it ended.
    pub fn begin(&self) -> io::Result<()> {
        let stream = match UnixStream::connect(&self.socket) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return Ok(()),
            stream => stream?,
        };
        match Control::from_stream(stream) {
            Ok(control) => control.begin(),
            Err(error) if error.is_of_end() => Ok(()),
            Err(error) => Err(io::Error::other(error.told())),
        }
    }

    /// Waits for its end. Returns the exit code, or 128 plus the number of the signal that ended it.
    pub fn wait(self) -> io::Result<i32> {
        loop {
            match waitpid(self.first, None) {
                Ok(WaitStatus::Exited(_, code)) => return Ok(code),
                Ok(WaitStatus::Signaled(_, signal, _)) => return Ok(128 + signal as i32),
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Kills it, and everything in its namespace.
    pub fn kill(&self) {
        // It may have ended by itself.
        let _ = nix::sys::signal::kill(self.first, Signal::SIGKILL);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.socket);
    }
}

/// Reason why `program` could not be cloned once it runs, as far as its file shows. `None` if there is no reason.
///
/// Errors if the file cannot be read.
pub fn check_program(program: &Path) -> io::Result<Option<String>> {
    check_program_at_depth(program, 0)
}

fn check_program_at_depth(program: &Path, depth: u32) -> io::Result<Option<String>> {
    use std::os::unix::fs::PermissionsExt;
    const X86_64: u16 = 62;
    const INTERPRETER: u32 = 3;
    let mut file = fs::File::open(program)?;
    let name = program.display();
    if file.metadata()?.permissions().mode() & 0o6000 != 0 {
        return Ok(Some(format!("{name} is setuid or setgid")));
    }
    let mut head = [0; 4096];
    let count = read_up_to(&mut file, &mut head)?;
    let head = &head[..count];
    if let [b'#', b'!', line @ ..] = head {
        let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let words = String::from_utf8_lossy(line);
        let Some(interpreter) = words.split_ascii_whitespace().next() else { return Ok(None) };
        return if depth < 4 { check_program_at_depth(Path::new(interpreter), depth + 1) } else { Ok(None) };
    }
    let word = |at: usize| head.get(at..at + 2).map_or(0, |bytes| u16::from_le_bytes([bytes[0], bytes[1]]));
    if !head.starts_with(b"\x7fELF\x02\x01") || word(18) != X86_64 {
        return Ok(Some(format!("{name} is not a program for x86-64 Linux")));
    }
    let headers = u64::from_le_bytes(head[32..40].try_into().expect("eight bytes")) as usize;
    let (size, number) = (usize::from(word(54)), usize::from(word(56)));
    let dynamic = (0..number).any(|index| {
        let at = headers + index * size;
        head.get(at..at + 4).is_some_and(|kind| u32::from_le_bytes(kind.try_into().expect("four bytes")) == INTERPRETER)
    });
    Ok((!dynamic).then(|| format!("{name} is statically linked: nothing can be loaded into it")))
}

fn read_up_to(file: &mut fs::File, place: &mut [u8]) -> io::Result<usize> {
    let mut count = 0;
    while count < place.len() {
        match file.read(&mut place[count..])? {
            0 => break,
            more => count += more,
        }
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn a_processs_streams_are_known_for_any_length_of_socket_path() {
        let directory = tempfile::tempdir().unwrap();
        let deep = directory.path().join("d".repeat(200));
        fs::create_dir(&deep).unwrap();
        let streams = [[1, 2], [u64::MAX, 4], [5, 6]];
        let listener = bind(&deep.join(format!("{}abcdef.sock", cloner_agent::name_for(&streams)))).unwrap();
        assert_eq!(cloner_agent::standard_of(listener.as_raw_fd()), streams);
    }
}
