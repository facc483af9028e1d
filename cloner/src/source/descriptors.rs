//! Descriptors of the program: their content, or the reason why one cannot be carried.

use super::objects;
use crate::control::Control;
use crate::image::state::{Descriptor, Lock, LockKind, Open, Pipe, Socket};
use crate::refusal::{OfDescriptor, Refusal};
use bstr::{BStr, BString, ByteSlice};
use cloner_agent::abi::Standard;
use nix::errno::Errno;
use serde_bytes::ByteBuf;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

mod semaphores;
mod sockets;
mod watches;

/// Bit in the `settime flags` of `fdinfo`: a change of the clock cancels the timer.
const TFD_TIMER_CANCEL_ON_SET: u32 = libc::TFD_TIMER_CANCEL_ON_SET as u32;

/// Link of an eventfd in `/proc/PID/fd`.
const EVENTFD: &str = "anon_inode:[eventfd]";

/// Line of `fdinfo` with 1 for an eventfd that is a semaphore.
const SEMAPHORE: &str = "eventfd-semaphore:";

/// All descriptors of the process, and the pipes and memfds behind them.
#[derive(Default)]
pub struct Descriptors {
    pub list: Vec<Descriptor>,
    /// Pipes with both ends in the process, or with the other end closed.
    pub pipes: Vec<Pipe>,
    /// Ends of pairs of sockets with both ends in the process, or with the other end closed.
    pub sockets: Vec<Socket>,
    /// Open memfds by inode: a descriptor of each, and its name.
    pub objects: objects::Open,
    /// Descriptors that cannot be carried.
    pub refusals: Vec<Refusal>,
}

/// Examines all descriptors. One that cannot be carried is refused, or left out if `close_unsupported`. Contents of
/// pipes and watches of epolls are read only if the process is `stopped`: else they may change.
pub fn gather(control: &Control, close_unsupported: bool, stopped: bool) -> io::Result<Descriptors> {
    let mut all = Descriptors::default();
    let mut pipe_ends: BTreeMap<u64, (bool, bool)> = BTreeMap::new();
    let mut keys: Vec<(BString, i32)> = Vec::new();
    let mut settled = false;
    let (_, block) = control.block()?;
    let is_agents = |fd: i32| block.own_files == 0 && [block.listener, block.connection].contains(&fd);
    let listener = match block.own_files {
        0 => None,
        _ => Some(control.proc_link(&format!("task/{}/fd/{}", block.agent_tid, block.listener))?),
    };
    for fd in control.proc_numbers("fd")?.into_iter().filter(|fd| !block.excludes(*fd) && !is_agents(*fd)) {
        // A descriptor that was closed meanwhile is skipped.
        let (Ok(link), Ok(mut info)) =
            (control.proc_link(&format!("fd/{fd}")), control.proc_text(&format!("fdinfo/{fd}")))
        else {
            continue;
        };
        if stopped && link == "anon_inode:[timerfd]" && seems_disarmed(&info) {
            if !std::mem::replace(&mut settled, true) {
                settle_timers()?;
            }
            info = control.proc_text(&format!("fdinfo/{fd}"))?;
        }
        if stopped && link == "anon_inode:[timerfd]" && stands_still(&info) {
            wind_up(&control.descriptor(fd)?)?;
            info = control.proc_text(&format!("fdinfo/{fd}"))?;
        }
        if stopped && link == EVENTFD && field(&info, SEMAPHORE).is_none() {
            let is_one = semaphores::is_semaphore(&control.descriptor(fd)?, event_count(&info))?;
            info.push_str(&format!("{SEMAPHORE} {}\n", u8::from(is_one)));
        }
        let flags = i32::from_str_radix(field(&info, "flags:").unwrap_or("0"), 8).unwrap_or(0);
        let looked = match (&listener, standard_stream(control, fd, link.as_bstr(), &block.standard)) {
            (Some(listener), _) if link == *listener => Ok(Open::Agent),
            (_, Some(stream)) => Ok(Open::Standard(stream)),
            _ => inspect(control, fd, link.as_bstr(), &info, &mut all.objects),
        };
        match looked.and_then(|open| Ok((open, locks(&info, flags, link.as_bstr())?))) {
            Ok((open, locks)) => {
                if let Open::Pipe { id, writes } = &open {
                    let ends = pipe_ends.entry(*id).or_default();
                    if *writes { ends.1 = true } else { ends.0 = true }
                }
                let same_as = twin(control, fd, link.as_bstr(), &keys, &open);
                keys.push((link, fd));
                let open = match same_as {
                    Some(first) => {
                        all.list.iter().find(|known| known.fd == first).map_or(open, |known| known.open.clone())
                    }
                    None => open,
                };
                all.list.push(Descriptor { fd, flags, same_as, open, locks });
            }
            // The descriptor was closed or replaced since it was listed. The state at the cut counts.
            Err(OfDescriptor::Unread { .. }) if !stopped => {}
            Err(_) if close_unsupported => {}
            Err(what) => all.refusals.push(Refusal::Descriptor { fd, what }),
        }
    }
    pipes(control, &mut all, &pipe_ends, close_unsupported, stopped)?;
    sockets::gather(control, &mut all, close_unsupported, stopped)?;
    if stopped {
        watches::resolve(control, &mut all, close_unsupported)?;
    }
    Ok(all)
}

/// Index of the standard stream that `fd` duplicates, whatever its number: the destination gives the copy other files
/// for these. Common devices such as `/dev/null` are excluded, because programs open them by themselves.
fn standard_stream(control: &Control, fd: i32, link: &BStr, standard: &Standard) -> Option<u8> {
    if DEVICES.iter().any(|device| link == *device) {
        return None;
    }
    let path = format!("fd/{fd}");
    let facts = nix::sys::stat::fstatat(&control.proc, path.as_str(), nix::fcntl::AtFlags::empty()).ok()?;
    // The stream of the same number comes first: two streams may be one file, such as a terminal.
    let is_it = |stream: &usize| standard[*stream] == [facts.st_dev, facts.st_ino];
    let own = usize::try_from(fd).ok().filter(|fd| *fd < standard.len() && is_it(fd));
    own.or_else(|| (0..standard.len()).find(is_it)).map(|stream| stream as u8)
}

/// Devices that exist on each host and have no state.
const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/urandom", "/dev/random", "/dev/full"];

/// Parses the locks that `fdinfo` shows: `lock:  1: POSIX  ADVISORY  WRITE 4711 fe:00:1234 0 EOF`.
///
/// Errors for a lease, and for signal-driven I/O. Leases are recognized first, because they send signals, too.
fn locks(info: &str, flags: i32, link: &BStr) -> Result<Vec<Lock>, OfDescriptor> {
    let mut all = Vec::new();
    for line in info.lines().filter_map(|line| line.strip_prefix("lock:")) {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let kind = match words.get(1) {
            Some(&"POSIX") => LockKind::Process,
            Some(&"OFDLCK") => LockKind::OpenFile,
            Some(&"FLOCK") => LockKind::WholeFile,
            _ => return Err(OfDescriptor::Leased(link.to_string())),
        };
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok());
        let start = number(6).unwrap_or(0);
        let len = number(7).map_or(0, |last| last.saturating_sub(start).saturating_add(1));
        all.push(Lock { kind, is_exclusive: words.get(3) == Some(&"WRITE"), start, len });
    }
    if flags & libc::O_ASYNC != 0 {
        return Err(OfDescriptor::Signalling(link.to_string()));
    }
    Ok(all)
}

/// Returns true if a timerfd shows neither remaining time nor ticks.
fn seems_disarmed(info: &str) -> bool {
    let zero = |name: &str| field(info, name).is_some_and(|text| text.chars().all(|c| !c.is_ascii_digit() || c == '0'));
    zero("ticks:") && zero("it_value:")
}

/// Returns true if a periodic timerfd has ticked and was not read since.
fn stands_still(info: &str) -> bool {
    let is_zero =
        |name: &str| field(info, name).is_some_and(|text| text.trim_matches(['(', ')', '0', ',', ' ']).is_empty());
    !is_zero("ticks:") && is_zero("it_value:") && !is_zero("it_interval:")
}

/// Restarts a periodic timerfd that has ticked and was not read since.
///
/// The trap: the kernel rearms it only when it is read. Until then it shows one tick and no remaining time, however
/// long ago that was. Asking for the remaining time rearms it too, with all ticks counted and the phase kept.
fn wind_up(timer: &OwnedFd) -> io::Result<()> {
    // SAFETY: - `itimerspec` consists of integers, for which zeros are valid.
    let mut left: libc::itimerspec = unsafe { std::mem::zeroed() };
    // SAFETY: - `left` is a local of the size that the kernel writes.
    Errno::result(unsafe { libc::timerfd_gettime(timer.as_raw_fd(), &raw mut left) })?;
    Ok(())
}

/// Waits until all timers that are due have fired.
///
/// The trap: between the moment at which a timerfd is due and the interrupt that counts its tick, it shows neither
/// remaining time nor a tick, as if it were disarmed, and a copy would wait for it for ever. A processor handles timer
/// interrupts in the order of their times, so a sleep that begins now on each processor ends after everything due
/// there.
fn settle_timers() -> io::Result<()> {
    use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
    let this_thread = nix::unistd::Pid::from_raw(0);
    let allowed = sched_getaffinity(this_thread)?;
    for processor in 0..CpuSet::count() {
        if allowed.is_set(processor)? {
            let mut one = CpuSet::new();
            one.set(processor)?;
            // A processor that has just gone offline has handed its timers to another one.
            if sched_setaffinity(this_thread, &one).is_ok() {
                std::thread::sleep(std::time::Duration::from_nanos(1));
            }
        }
    }
    Ok(sched_setaffinity(this_thread, &allowed)?)
}

/// Value of the line of `fdinfo` that begins with `name`.
fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

/// Count of an eventfd.
fn event_count(info: &str) -> u64 {
    field(info, "eventfd-count:").and_then(|text| u64::from_str_radix(text, 16).ok()).unwrap_or(0)
}

fn inspect(
    control: &Control,
    fd: i32,
    link: &BStr,
    info: &str,
    objects: &mut objects::Open,
) -> Result<Open, OfDescriptor> {
    let position = field(info, "pos:").and_then(|text| text.parse().ok()).unwrap_or(0);
    let number = |name: &str, radix| {
        field(info, name).and_then(|text| u64::from_str_radix(text.trim_start_matches("0x"), radix).ok())
    };
    match &**link {
        kind if kind.starts_with(b"pipe:[") => {
            let access = i32::from_str_radix(field(info, "flags:").unwrap_or("0"), 8).unwrap_or(0) & libc::O_ACCMODE;
            let id = kind["pipe:[".len()..].to_str_lossy();
            let id = id.trim_end_matches(']').parse().unwrap_or(0);
            Ok(Open::Pipe { id, writes: access != libc::O_RDONLY })
        }
        _ if link == EVENTFD => {
            Ok(Open::Event { count: event_count(info), semaphore: number(SEMAPHORE, 10).unwrap_or(0) == 1 })
        }
        _ if link == "anon_inode:[timerfd]" => {
            let pair = |name: &str| {
                let text = field(info, name)?.trim_matches(['(', ')']);
                let (seconds, nanoseconds) = text.split_once(", ")?;
                Some((seconds.parse().ok()?, nanoseconds.parse().ok()?))
            };
            Ok(Open::Timer {
                clock: number("clockid:", 10).unwrap_or(0) as i32,
                ticks: number("ticks:", 10).unwrap_or(0),
                value: pair("it_value:").unwrap_or_default(),
                interval: pair("it_interval:").unwrap_or_default(),
                is_cancelled: number("settime flags:", 8).unwrap_or(0) & u64::from(TFD_TIMER_CANCEL_ON_SET) != 0,
            })
        }
        _ if link == "anon_inode:[signalfd]" => Ok(Open::Signals { mask: number("sigmask:", 16).unwrap_or(0) }),
        _ if link == "anon_inode:[eventpoll]" => Ok(Open::Epoll { watched: watches::read(info) }),
        kind if kind.starts_with(b"socket:[") => sockets::inspect(control, fd, kind),
        kind if kind.starts_with(b"/memfd:") => {
            let object = control.descriptor(fd).map_err(|error| unknown(link, &error))?;
            // Reopened for a file position of its own: searching for holes must not move the program's.
            let path = format!("/proc/self/fd/{}", object.as_raw_fd());
            // A running program may have closed the descriptor and reused its number.
            if nix::fcntl::readlink(path.as_str()).is_ok_and(|own| own.as_encoded_bytes() != &**link) {
                return Err(unknown(link, &Errno::ESTALE.into()));
            }
            let facts = nix::sys::stat::fstat(&object).map_err(|error| unknown(link, &error.into()))?;
            let system = nix::sys::statfs::fstatfs(&object).map_err(|error| unknown(link, &error.into()))?;
            if system.filesystem_type() == nix::sys::statfs::HUGETLBFS_MAGIC {
                return Err(OfDescriptor::Other(format!("{link} of huge pages")));
            }
            let name = kind.strip_prefix(b"/memfd:").and_then(|name| name.strip_suffix(b" (deleted)"));
            let name = BString::from(name.unwrap_or_default());
            let own = std::fs::File::open(path);
            objects.entry(facts.st_ino).or_insert((own.map_err(|error| unknown(link, &error))?.into(), name));
            Ok(Open::Object { id: facts.st_ino, position })
        }
        kind if kind.starts_with(b"/") => path(control, fd, link, position),
        _ => Err(OfDescriptor::Other(link.to_string())),
    }
}

fn unknown(link: &BStr, error: &io::Error) -> OfDescriptor {
    let error = nix::errno::Errno::from_raw(error.raw_os_error().unwrap_or_default());
    OfDescriptor::Unread { link: link.to_string(), error }
}

fn path(control: &Control, fd: i32, link: &BStr, position: u64) -> Result<Open, OfDescriptor> {
    let facts = nix::sys::stat::fstatat(&control.proc, format!("fd/{fd}").as_str(), nix::fcntl::AtFlags::empty())
        .map_err(|error| unknown(link, &error.into()))?;
    if link.ends_with(b" (deleted)") {
        return Err(OfDescriptor::Deleted(link.to_string()));
    }
    let kind = facts.st_mode & libc::S_IFMT;
    if [libc::S_IFREG, libc::S_IFDIR].contains(&kind) && !is_found(control, link, &facts) {
        return Err(OfDescriptor::Replaced(link.to_string()));
    }
    let path = link.to_owned();
    match kind {
        libc::S_IFREG => Ok(Open::Path { path, position, len: Some(facts.st_size as u64) }),
        libc::S_IFDIR => Ok(Open::Path { path, position, len: None }),
        libc::S_IFCHR if DEVICES.iter().any(|device| link == *device) => {
            Ok(Open::Path { path, position: 0, len: None })
        }
        libc::S_IFCHR => Err(OfDescriptor::Device(link.to_string())),
        libc::S_IFIFO => Err(OfDescriptor::NamedPipe(link.to_string())),
        _ => Err(OfDescriptor::Other(link.to_string())),
    }
}

/// Returns true if the path still leads to the open file. Attributes are compared because some file systems report
/// another inode at each lookup.
fn is_found(control: &Control, link: &BStr, open: &nix::sys::stat::FileStat) -> bool {
    let path = [&b"root"[..], link].concat();
    let Ok(named) = nix::sys::stat::fstatat(&control.proc, path.as_slice(), nix::fcntl::AtFlags::empty()) else {
        return false;
    };
    let facts = |file: &nix::sys::stat::FileStat| (file.st_mode, file.st_size, file.st_mtime, file.st_mtime_nsec);
    let is_made_up = link.starts_with(b"/proc/") || link.starts_with(b"/sys/");
    named.st_dev == open.st_dev && (named.st_ino == open.st_ino || facts(&named) == facts(open) || is_made_up)
}

fn socket_name(control: &Control, fd: i32) -> String {
    use nix::sys::socket::{AddressFamily, SockaddrLike, SockaddrStorage, getpeername, getsockname};
    let Ok(socket) = control.descriptor(fd) else { return "a socket".into() };
    let local = getsockname::<SockaddrStorage>(socket.as_raw_fd());
    let family = match local.as_ref().ok().and_then(SockaddrLike::family) {
        Some(AddressFamily::Unix) => "a unix socket",
        Some(AddressFamily::Inet | AddressFamily::Inet6) => "a network socket",
        _ => "a socket",
    };
    match (local, getpeername::<SockaddrStorage>(socket.as_raw_fd())) {
        (Ok(local), Ok(peer)) => format!("{family} {local}, connected to {peer}"),
        (Ok(local), Err(_)) => format!("{family} {local}"),
        _ => family.into(),
    }
}

/// Finds a lower descriptor that shares its open file description with `fd`.
fn twin(control: &Control, fd: i32, link: &BStr, known: &[(BString, i32)], open: &Open) -> Option<i32> {
    const KCMP_FILE: i32 = 0;
    if matches!(open, Open::Standard(_)) {
        return None;
    }
    let candidates: Vec<i32> = known.iter().filter(|(other, _)| other == link).map(|(_, fd)| *fd).collect();
    let mine = if candidates.is_empty() { return None } else { control.descriptor(fd).ok()? };
    let me = std::process::id();
    candidates.into_iter().find(|candidate| {
        control.descriptor(*candidate).is_ok_and(|other| {
            // SAFETY: - `kcmp` compares two descriptors of this process by number, and touches no memory.
            unsafe { libc::syscall(libc::SYS_kcmp, me, me, KCMP_FILE, mine.as_raw_fd(), other.as_raw_fd()) == 0 }
        })
    })
}

/// Records the content of pipes. A pipe with an end in another process is refused, or left out.
fn pipes(
    control: &Control,
    all: &mut Descriptors,
    ends: &BTreeMap<u64, (bool, bool)>,
    close_unsupported: bool,
    stopped: bool,
) -> io::Result<()> {
    for (id, (reads, writes)) in ends {
        let here = |descriptor: &&Descriptor| matches!(descriptor.open, Open::Pipe { id: found, .. } if found == *id);
        let Some(first) = all.list.iter().find(here).map(|descriptor| descriptor.fd) else { continue };
        if !(*reads && *writes) {
            let is_alone = match control.descriptor(first).and_then(|end| other_end_is_closed(&end)) {
                // The pipe was closed meanwhile.
                Err(_) if !stopped => true,
                is_alone => is_alone?,
            };
            if !is_alone {
                if !close_unsupported {
                    let what = OfDescriptor::Pipe { id: *id };
                    all.refusals.push(Refusal::Descriptor { fd: first, what });
                }
                all.list.retain(|descriptor| !matches!(descriptor.open, Open::Pipe { id: found, .. } if found == *id));
                continue;
            }
        }
        if !stopped {
            continue;
        }
        let reader =
            all.list.iter().find(|known| matches!(known.open, Open::Pipe { id: found, writes: false } if found == *id));
        let end = control.descriptor(reader.map_or(first, |reader| reader.fd))?;
        // Content without a reader is not carried.
        let content = if *reads { content(&end)? } else { Vec::new() };
        all.pipes.push(Pipe { id: *id, capacity: capacity(&end), content: ByteBuf::from(content) });
    }
    Ok(())
}

/// Returns true if no process has the other end of a pipe open.
fn other_end_is_closed(end: &OwnedFd) -> io::Result<bool> {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    let mut polled = [PollFd::new(end.as_fd(), PollFlags::empty())];
    poll(&mut polled, PollTimeout::ZERO)?;
    Ok(polled[0].revents().is_some_and(|events| events.intersects(PollFlags::POLLHUP | PollFlags::POLLERR)))
}

/// Peeks at the bytes that a stopped process has not read from its standard input. Empty if that is no pipe, or closed.
pub fn unread(control: &Control) -> io::Result<Vec<u8>> {
    let (_, block) = control.block()?;
    for fd in control.proc_numbers("fd")? {
        let Ok(link) = control.proc_link(&format!("fd/{fd}")) else { continue };
        if link.starts_with(b"pipe:[") && standard_stream(control, fd, link.as_bstr(), &block.standard) == Some(0) {
            return content(&control.descriptor(fd)?);
        }
    }
    Ok(Vec::new())
}

fn capacity(pipe: &OwnedFd) -> u32 {
    // SAFETY: - `F_GETPIPE_SZ` takes no pointer and touches no memory of this process.
    unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_GETPIPE_SZ) }.max(4096) as u32
}

/// Duplicates the content of a pipe without consuming it.
fn content(pipe: &OwnedFd) -> io::Result<Vec<u8>> {
    let mut waiting: libc::c_int = 0;
    // SAFETY: - `waiting` is a local `c_int`, which is what FIONREAD writes.
    Errno::result(unsafe { libc::ioctl(pipe.as_raw_fd(), libc::FIONREAD, &raw mut waiting) })?;
    let mut bytes = vec![0; waiting.max(0) as usize];
    if bytes.is_empty() {
        return Ok(bytes);
    }
    let (out, into) = nix::unistd::pipe()?;
    // SAFETY: - `F_SETPIPE_SZ` takes a number and touches no memory of this process.
    // The second pipe needs as many buffers as the first, or `tee` would stop early.
    unsafe { libc::fcntl(into.as_raw_fd(), libc::F_SETPIPE_SZ, capacity(pipe)) };
    // SAFETY: - `tee` moves data between pipes in the kernel, and touches no memory of this process.
    let count =
        Errno::result(unsafe { libc::tee(pipe.as_raw_fd(), into.as_raw_fd(), bytes.len(), libc::SPLICE_F_NONBLOCK) })?;
    if count as usize != bytes.len() {
        return Err(io::Error::other("the content of a pipe could not be read"));
    }
    drop(into);
    io::Read::read_exact(&mut std::fs::File::from(out), &mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_of_a_pipe_whose_other_end_is_closed_is_known() {
        for writes in [false, true] {
            let (reader, writer) = nix::unistd::pipe().unwrap();
            let (kept, other) = if writes { (writer, reader) } else { (reader, writer) };
            let same = other.try_clone().unwrap();
            drop(other);
            assert!(!other_end_is_closed(&kept).unwrap());
            drop(same);
            assert!(other_end_is_closed(&kept).unwrap());
        }
    }

    #[test]
    fn locks_are_read_from_the_kernels_lines() {
        let info = "flags:\t0100002\nlock:\t1: POSIX  ADVISORY  WRITE 7 00:1c:5 10 19\n\
                    lock:\t2: FLOCK  ADVISORY  READ 7 00:1c:5 0 EOF\nlock:\t3: OFDLCK ADVISORY  READ -1 00:1c:5 4 EOF\n";
        let lock = |kind, is_exclusive, start, len| Lock { kind, is_exclusive, start, len };
        let expected = [
            lock(LockKind::Process, true, 10, 10),
            lock(LockKind::WholeFile, false, 0, 0),
            lock(LockKind::OpenFile, false, 4, 0),
        ];
        assert_eq!(locks(info, 0, "/f".into()).unwrap(), expected);
        let lease = "lock:\t1: LEASE  ACTIVE    READ 7 00:1c:5 0 EOF\n";
        assert_eq!(locks(lease, libc::O_ASYNC, "/f".into()), Err(OfDescriptor::Leased("/f".into())));
    }

    #[test]
    fn a_timer_that_is_due_has_ticked_once_timers_have_settled() {
        use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
        assert!(seems_disarmed("clockid: 1\nticks: 0\nit_value: (0, 0)\nit_interval: (0, 0)\n"));
        assert!(!seems_disarmed("clockid: 1\nticks: 1\nit_value: (0, 0)\n"));
        assert!(!seems_disarmed("clockid: 1\nticks: 0\nit_value: (0, 20)\n"));
        for round in 0..300 {
            let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_NONBLOCK).unwrap();
            let soon = std::time::Duration::from_nanos(1 + round * 100);
            timer.set(Expiration::OneShot(soon.into()), TimerSetTimeFlags::empty()).unwrap();
            let begin = std::time::Instant::now();
            while begin.elapsed() < soon {}
            settle_timers().unwrap();
            let fd = std::os::fd::AsFd::as_fd(&timer).as_raw_fd();
            let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).unwrap();
            assert_eq!(field(&info, "ticks:"), Some("1"), "round {round}: {info}");
        }
    }

    #[test]
    fn a_timer_with_unread_ticks_is_restored_with_all_of_them() {
        use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::empty()).unwrap();
        let (first, each) = (std::time::Duration::from_nanos(1), std::time::Duration::from_secs(3600));
        let setting = Expiration::IntervalDelayed(first.into(), each.into());
        timer.set(setting, TimerSetTimeFlags::empty()).unwrap();
        settle_timers().unwrap();
        let fd = std::os::fd::AsFd::as_fd(&timer);
        let info = || std::fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd())).unwrap();
        assert!(stands_still(&info()), "{}", info());
        wind_up(&fd.try_clone_to_owned().unwrap()).unwrap();
        assert!(!stands_still(&info()) && field(&info(), "ticks:") == Some("1"), "{}", info());
        assert!(field(&info(), "it_value:").unwrap().starts_with("(3599, "), "{}", info());
    }

    #[test]
    fn the_content_of_a_pipe_is_read_and_stays() {
        let (out, into) = nix::unistd::pipe().unwrap();
        nix::unistd::write(&into, b"three words here").unwrap();
        assert_eq!(content(&out).unwrap(), b"three words here");
        assert_eq!(content(&out).unwrap(), b"three words here");
    }
}
