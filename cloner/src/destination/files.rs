//! Makes the copy's descriptors from their description in the image.

use super::memory::Memory;
use super::sockets;
use crate::image::state::{Descriptor, Lock, LockKind, Open, Pipe, Socket, Watch};
use nix::errno::Errno;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

const TFD_IOC_SET_TICKS: libc::c_ulong = 0x4008_5400;
/// Flags that have an effect only while a file is being opened.
const OPENING: i32 = libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC | libc::O_CLOEXEC;
const STATUS: i32 = libc::O_APPEND | libc::O_NONBLOCK | libc::O_DIRECT | libc::O_NOATIME;

/// Descriptors that the destination supplies.
pub struct Present {
    /// Standard input, output and error of the copy.
    pub standard: [OwnedFd; 3],
    /// Further descriptors, under these numbers.
    pub given: Vec<(RawFd, OwnedFd)>,
    /// True if the process replaces the one of the image, which has ended: files that have grown since are truncated.
    pub succeeds: bool,
    /// True if the copy takes the file locks of the image's process.
    pub locks: bool,
    /// Listening socket of the copy's agent.
    pub listener: OwnedFd,
}

/// Makes all descriptors under the numbers that the program knows, and closes all others except `kept`. The `kept` ones
/// are moved out of the way; returns their new numbers. The first of them is the descriptor for complaints.
pub fn restore(
    descriptors: &[Descriptor],
    (pipes, sockets): (&[Pipe], &[Socket]),
    memory: &Memory,
    present: &Present,
    kept: Vec<OwnedFd>,
) -> io::Result<Vec<RawFd>> {
    let numbers = descriptors.iter().map(|descriptor| descriptor.fd).chain(present.given.iter().map(|(fd, _)| *fd));
    let numbers = numbers.chain(watches(descriptors).map(|(_, watch)| watch.number));
    let base = numbers.max().unwrap_or(2).max(2) + 1;
    let mut ends = make_pipes(pipes)?;
    let sockets = sockets::make(sockets)?;
    let mut made: Vec<(i32, OwnedFd)> = Vec::new();
    for descriptor in descriptors {
        let failed = |error: io::Error| {
            io::Error::new(error.kind(), format!("descriptor {}, {}: {error}", descriptor.fd, name(&descriptor.open)))
        };
        let fd = match descriptor.same_as {
            Some(first) => {
                let first = made.iter().find(|(fd, _)| *fd == first);
                let (_, first) = first.ok_or_else(|| failed(io::Error::other("its twin is missing")))?;
                above(first, base)
            }
            None => make(descriptor, memory, present, (&mut ends, &sockets)).and_then(|fd| above(&fd, base)),
        };
        made.push((descriptor.fd, fd.map_err(failed)?));
    }
    for (number, fd) in &present.given {
        if descriptors.iter().any(|descriptor| descriptor.fd == *number) {
            return Err(io::Error::other(format!(
                "descriptor {number} is the program's, and was to be given to the copy"
            )));
        }
        made.push((*number, above(fd, base)?));
    }
    drop((ends, sockets));
    // The memfds are open, so modes and seals can be set: from now on they restrict reopening and writing.
    memory.seal_objects()?;
    let mut open = Vec::with_capacity(made.len() + kept.len());
    for fd in kept {
        open.push(above(&fd, base)?.into_raw_fd());
        // The old number is closed below with all others, or replaced.
        let _ = fd.into_raw_fd();
    }
    let result = open.clone();
    if let Some(complaints) = result.first() {
        super::COMPLAINTS.store(*complaints, std::sync::atomic::Ordering::SeqCst);
    }
    watch_by_old_numbers(descriptors, &made)?;
    let flags = descriptors.iter().map(|descriptor| descriptor.flags & libc::O_CLOEXEC);
    for ((fd, now), flags) in made.into_iter().zip(flags.chain(std::iter::repeat(libc::O_CLOEXEC))) {
        // SAFETY: - `fd` is below `base`, and everything still in use was moved to `base` or above.
        Errno::result(unsafe { libc::dup3(now.as_raw_fd(), fd, flags) })?;
        open.push(fd);
    }
    close_all_but(open)?;
    // Locks come last: closing any descriptor of a file drops the process's locks on it.
    for descriptor in descriptors.iter().filter(|_| present.locks) {
        for lock in &descriptor.locks {
            lock_again(descriptor.fd, lock).map_err(|error| {
                io::Error::new(error.kind(), format!("the lock that it had of {}: {error}", name(&descriptor.open)))
            })?;
        }
    }
    for (epoll, watch) in watches(descriptors).filter(|(_, watch)| watch.fd == watch.number) {
        add(epoll, watch)?;
    }
    Ok(result)
}

/// All watches, each with the number of its epoll.
fn watches(descriptors: &[Descriptor]) -> impl Iterator<Item = (RawFd, &Watch)> {
    descriptors.iter().filter(|descriptor| descriptor.same_as.is_none()).flat_map(|descriptor| {
        let watched = if let Open::Epoll { watched } = &descriptor.open { &watched[..] } else { &[] };
        watched.iter().map(|watch| (descriptor.fd, watch))
    })
}

/// Adds watches whose number was closed since, or belongs to another file now. Must come before the descriptors get
/// their numbers: until then all numbers below `base` are free.
fn watch_by_old_numbers(descriptors: &[Descriptor], made: &[(i32, OwnedFd)]) -> io::Result<()> {
    let now = |fd: i32| {
        let found = made.iter().find(|(number, _)| *number == fd);
        found.map(|(_, now)| now.as_raw_fd()).ok_or_else(|| io::Error::other("what an epoll watches is missing"))
    };
    for (epoll, watch) in watches(descriptors).filter(|(_, watch)| watch.fd != watch.number) {
        // SAFETY: - `watch.number` is below `base`, and everything still in use was moved to `base` or above.
        Errno::result(unsafe { libc::dup3(now(watch.fd)?, watch.number, libc::O_CLOEXEC) })?;
        add(now(epoll)?, watch)?;
    }
    Ok(())
}

fn add(epoll: RawFd, watch: &Watch) -> io::Result<()> {
    let mut event = libc::epoll_event { events: watch.events, u64: watch.data };
    // SAFETY: - `event` is a local that outlives the call, which only reads it.
    Errno::result(unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, watch.number, &raw mut event) })?;
    Ok(())
}

/// A process that is being killed keeps its locks for a moment.
const LOCKING_TIME_MAX: Duration = Duration::from_secs(10);
const LOCKING_INTERVAL: Duration = Duration::from_millis(2);

fn lock_again(fd: RawFd, lock: &Lock) -> io::Result<()> {
    let kind = if lock.is_exclusive { libc::F_WRLCK } else { libc::F_RDLCK };
    let (l_type, l_whence) = (kind as i16, libc::SEEK_SET as i16);
    let (l_start, l_len) = (lock.start.cast_signed(), lock.len.cast_signed());
    let range = libc::flock { l_type, l_whence, l_start, l_len, l_pid: 0 };
    let operation = if lock.is_exclusive { libc::LOCK_EX } else { libc::LOCK_SH };
    let begun = Instant::now();
    loop {
        // SAFETY: - `fcntl` reads `range`, which outlives the call.
        //         - `flock` takes numbers only.
        let locked = Errno::result(unsafe {
            match lock.kind {
                LockKind::Process => libc::fcntl(fd, libc::F_SETLK, &raw const range),
                LockKind::OpenFile => libc::fcntl(fd, libc::F_OFD_SETLK, &raw const range),
                LockKind::WholeFile => libc::flock(fd, operation | libc::LOCK_NB),
            }
        });
        match locked {
            Ok(_) => return Ok(()),
            Err(Errno::EAGAIN | Errno::EACCES) if begun.elapsed() < LOCKING_TIME_MAX => {
                std::thread::sleep(LOCKING_INTERVAL);
            }
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN | Errno::EACCES) => return Err(io::Error::other("another process has one now")),
            Err(error) => return Err(error.into()),
        }
    }
}

fn name(open: &Open) -> String {
    match open {
        Open::Path { path, .. } => path.to_string(),
        other => format!("{other:?}").split([' ', '(']).next().unwrap_or_default().to_lowercase(),
    }
}

fn above(fd: &OwnedFd, base: i32) -> io::Result<OwnedFd> {
    // SAFETY: - `F_DUPFD_CLOEXEC` takes a number and touches no memory of this process.
    let copy = Errno::result(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, base) })?;
    // SAFETY: - the call has just made `copy`, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

fn close_all_but(mut open: Vec<RawFd>) -> io::Result<()> {
    open.sort_unstable();
    let mut from = 0;
    for fd in open.into_iter().map(i64::from).chain([i64::from(u32::MAX) + 1]) {
        if fd > from {
            // SAFETY: - the caller has listed every descriptor that this process still uses.
            Errno::result(unsafe { libc::syscall(libc::SYS_close_range, from, fd - 1, 0) })?;
        }
        from = fd + 1;
    }
    Ok(())
}

type Ends = BTreeMap<(u64, bool), OwnedFd>;

fn make_pipes(pipes: &[Pipe]) -> io::Result<Ends> {
    let mut ends = Ends::new();
    for pipe in pipes {
        let (reads, writes) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC | nix::fcntl::OFlag::O_NONBLOCK)?;
        // An unprivileged user may get a smaller pipe than asked for. It suffices if the content fits.
        // SAFETY: - `F_SETPIPE_SZ` takes a number and touches no memory of this process.
        unsafe { libc::fcntl(writes.as_raw_fd(), libc::F_SETPIPE_SZ, pipe.capacity) };
        if nix::unistd::write(&writes, &pipe.content).map_or(0, |count| count) != pipe.content.len() {
            return Err(io::Error::other("a pipe does not take what is in it"));
        }
        ends.insert((pipe.id, false), reads);
        ends.insert((pipe.id, true), writes);
    }
    Ok(ends)
}

/// The time of `clock` at which `left` will have passed.
fn later(clock: i32, left: &libc::timespec) -> io::Result<libc::timespec> {
    let now = nix::time::clock_gettime(nix::time::ClockId::from_raw(clock))?;
    let nanoseconds = now.tv_nsec().saturating_add(left.tv_nsec);
    Ok(libc::timespec {
        tv_sec: now.tv_sec().saturating_add(left.tv_sec).saturating_add(nanoseconds / 1_000_000_000),
        tv_nsec: nanoseconds % 1_000_000_000,
    })
}

fn make(
    descriptor: &Descriptor,
    memory: &Memory,
    present: &Present,
    (ends, sockets): (&mut Ends, &sockets::Ends),
) -> io::Result<OwnedFd> {
    let Present { standard, succeeds, listener, .. } = present;
    // SAFETY: - `fd` is the result of a system call that has just made it, so nothing else owns it; errors are negative
    //           and do not get here.
    let own = |fd: i32| Errno::result(fd).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }).map_err(io::Error::from);
    let fd = match &descriptor.open {
        Open::Standard(number) => return standard[usize::from(*number)].try_clone(),
        Open::Agent => return listener.try_clone(),
        Open::Path { path, position, len } => {
            let path = CString::new(path.as_slice())?;
            // SAFETY: - `path` is a `CString`, which ends with NUL and outlives the call.
            let fd = own(unsafe {
                libc::open(path.as_ptr(), descriptor.flags & !OPENING | libc::O_CLOEXEC | libc::O_NOCTTY)
            })?;
            if *position != 0 && descriptor.flags & libc::O_PATH == 0 {
                // SAFETY: - `lseek` takes numbers only and touches no memory of this process.
                Errno::result(unsafe { libc::lseek(fd.as_raw_fd(), *position as i64, libc::SEEK_SET) })?;
            }
            let is_written = descriptor.flags & libc::O_ACCMODE != libc::O_RDONLY;
            if let Some(len) = len.filter(|_| *succeeds && is_written) {
                let file = std::fs::File::from(fd);
                // The process writes again whatever it had written past this length.
                if file.metadata()?.len() > len {
                    file.set_len(len)?;
                }
                return Ok(file.into());
            }
            return Ok(fd);
        }
        Open::Pipe { id, writes } => match ends.get(&(*id, *writes)) {
            // Opened anew, so that ends of a pipe have open file descriptions of their own, as in the source.
            Some(end) => {
                let path = CString::new(format!("/proc/self/fd/{}", end.as_raw_fd()))?;
                let access = if *writes { libc::O_WRONLY } else { libc::O_RDONLY };
                // SAFETY: - `path` is a `CString`, which ends with NUL and outlives the call.
                own(unsafe { libc::open(path.as_ptr(), access | libc::O_CLOEXEC | libc::O_NONBLOCK) })?
            }
            None => return Err(io::Error::other("its pipe is missing")),
        },
        Open::Socket { id } => match sockets.get(id) {
            // The open file description itself: sockets cannot be opened by a path.
            Some(end) => end.try_clone()?,
            None => return Err(io::Error::other("its pair is missing")),
        },
        Open::Event { count, semaphore } => {
            let flags = if *semaphore { libc::EFD_SEMAPHORE } else { 0 };
            // SAFETY: - `eventfd` takes numbers only and touches no memory of this process.
            let fd = own(unsafe { libc::eventfd(0, flags | libc::EFD_CLOEXEC) })?;
            if *count != 0 {
                nix::unistd::write(&fd, &count.to_ne_bytes())?;
            }
            fd
        }
        Open::Timer { clock, ticks, value, interval, is_cancelled } => {
            // SAFETY: - `timerfd_create` takes numbers only and touches no memory of this process.
            let fd = own(unsafe { libc::timerfd_create(*clock, libc::TFD_CLOEXEC) })?;
            let mut spec = libc::itimerspec {
                it_value: libc::timespec { tv_sec: value.0, tv_nsec: value.1 },
                it_interval: libc::timespec { tv_sec: interval.0, tv_nsec: interval.1 },
            };
            // A timer with a very short period had expired again whenever it was read; its next tick is due at once.
            let is_due = *value == (0, 0) && *interval != (0, 0) && *ticks != 0;
            spec.it_value.tv_nsec += i64::from(is_due);
            let mut flags = 0;
            if *is_cancelled && *value != (0, 0) {
                // Only an absolute time can be cancelled by a change of the clock.
                spec.it_value = later(*clock, &spec.it_value)?;
                flags = libc::TFD_TIMER_ABSTIME | libc::TFD_TIMER_CANCEL_ON_SET;
            }
            // SAFETY: - `spec` is a local that outlives the call, and a null pointer is allowed for the old value.
            let set = unsafe { libc::timerfd_settime(fd.as_raw_fd(), flags, &raw const spec, std::ptr::null_mut()) };
            Errno::result(set)?;
            if is_due {
                use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
                poll(&mut [PollFd::new(std::os::fd::AsFd::as_fd(&fd), PollFlags::POLLIN)], PollTimeout::NONE)?;
            }
            if *ticks != 0 {
                // SAFETY: - `ticks` is a reference to the eight bytes that the call reads.
                Errno::result(unsafe { libc::ioctl(fd.as_raw_fd(), TFD_IOC_SET_TICKS, std::ptr::from_ref(ticks)) })?;
            }
            fd
        }
        Open::Signals { mask } => {
            // SAFETY: - `mask` is a reference to the eight bytes that the call reads.
            let fd = unsafe { libc::syscall(libc::SYS_signalfd4, -1, std::ptr::from_ref(mask), 8, libc::SFD_CLOEXEC) };
            own(fd as i32)?
        }
        Open::Epoll { .. } => {
            // SAFETY: - `epoll_create1` takes a flag and touches no memory of this process.
            own(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?
        }
        Open::Object { id, position } => {
            let fd = memory.object(*id).ok_or_else(|| io::Error::other("its memory is missing"))?;
            let path = CString::new(format!("/proc/self/fd/{}", fd.as_raw_fd()))?;
            // SAFETY: - `path` is a `CString`, which ends with NUL and outlives the call.
            let fd = own(unsafe { libc::open(path.as_ptr(), descriptor.flags & libc::O_ACCMODE | libc::O_CLOEXEC) })?;
            // SAFETY: - `lseek` takes numbers only and touches no memory of this process.
            Errno::result(unsafe { libc::lseek(fd.as_raw_fd(), *position as i64, libc::SEEK_SET) })?;
            fd
        }
    };
    // SAFETY: - `F_SETFL` takes a number and touches no memory of this process.
    Errno::result(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, descriptor.flags & STATUS) })?;
    Ok(fd)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{File, OpenOptions};

    #[test]
    fn locks_of_an_image_are_had_again() {
        let path = std::env::temp_dir().join(format!("cloner-locked-{}", std::process::id()));
        let mut options = OpenOptions::new();
        let open = options.read(true).write(true).create(true).truncate(true);
        let [file, other] = [open.open(&path).unwrap(), open.open(&path).unwrap()];
        std::fs::remove_file(&path).unwrap();
        let is_free = |file: &File, start: i64, length: i64| {
            let (l_type, l_whence) = (libc::F_WRLCK as i16, libc::SEEK_SET as i16);
            let mut range = libc::flock { l_type, l_whence, l_start: start, l_len: length, l_pid: 0 };
            // SAFETY: - `range` is a local that outlives the call and that it may write.
            assert_eq!(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut range) }, 0);
            i32::from(range.l_type) == libc::F_UNLCK
        };
        let lock = |kind, start, len| Lock { kind, is_exclusive: true, start, len };
        let locks =
            vec![lock(LockKind::Process, 3, 4), lock(LockKind::OpenFile, 100, 0), lock(LockKind::WholeFile, 0, 0)];
        let open = Open::Path { path: path.display().to_string().into(), position: 0, len: None };
        let descriptor = Descriptor { fd: file.as_raw_fd(), flags: libc::O_RDWR, same_as: None, open, locks };
        descriptor.locks.iter().for_each(|lock| lock_again(descriptor.fd, lock).unwrap());
        assert_eq!(
            [(0, 3), (3, 4), (7, 93), (1000, 1)].map(|(start, length)| is_free(&other, start, length)),
            [true, false, true, false]
        );
        // The process's lock is the only one whose owner is not an open file.
        assert!(!is_free(&file, 3, 4) && is_free(&file, 100, 0));
        // SAFETY: - `flock` takes numbers only and touches no memory of this process.
        assert_eq!(unsafe { libc::flock(other.as_raw_fd(), libc::LOCK_SH | libc::LOCK_NB) }, -1);
    }
}
