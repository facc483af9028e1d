//! What lies behind each descriptor of the program, or why it cannot be carried.

use crate::control::Control;
use crate::image::state::{Descriptor, FileLock, LockOwner, Open, Pipe};
use crate::refusal::{OfDescriptor, Refusal};
use nix::errno::Errno;
use serde_bytes::ByteBuf;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// All descriptors, and what belongs to them.
#[derive(Default)]
pub struct Descriptors {
    /// By number.
    pub list: Vec<Descriptor>,
    /// Pipes within the process.
    pub pipes: Vec<Pipe>,
    /// Open memfds: number of the object and a descriptor of it.
    pub objects: BTreeMap<u64, (OwnedFd, String)>,
    /// What cannot be carried.
    pub refusals: Vec<Refusal>,
}

/// Looks at all descriptors. What cannot be carried is refused, or left out with `close_unsupported`. What is in pipes
/// is only read when the process is `stopped`.
pub fn gather(control: &Control, close_unsupported: bool, stopped: bool) -> io::Result<Descriptors> {
    let mut all = Descriptors::default();
    let mut pipe_ends: BTreeMap<u64, (bool, bool)> = BTreeMap::new();
    let mut keys: Vec<(String, i32)> = Vec::new();
    let mut settled = false;
    let (_, block) = control.block()?;
    let is_agents = |fd: i32| block.own_files == 0 && [block.listener, block.connection].contains(&fd);
    let listener = match block.own_files {
        0 => None,
        _ => Some(control.proc_link(&format!("task/{}/fd/{}", block.agent_tid, block.listener))?),
    };
    for fd in control.proc_numbers("fd")?.into_iter().filter(|fd| !block.excludes(*fd) && !is_agents(*fd)) {
        // One that is closed meanwhile is not part of the picture.
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
        let looked = match &listener {
            Some(listener) if link == *listener => Ok(Open::Agent),
            _ => look(control, fd, &link, &info, &mut all.objects),
        };
        match looked {
            Ok(open) => {
                let flags = i32::from_str_radix(field(&info, "flags:").unwrap_or("0"), 8).unwrap_or(0);
                if let Open::Pipe { id, writes } = &open {
                    let ends = pipe_ends.entry(*id).or_default();
                    if *writes { ends.1 = true } else { ends.0 = true }
                }
                let same_as = twin(control, fd, &link, &keys, &open);
                keys.push((link, fd));
                let open = match same_as {
                    Some(first) => {
                        all.list.iter().find(|known| known.fd == first).map_or(open, |known| known.open.clone())
                    }
                    None => open,
                };
                // Those that share an open file show the same.
                let locks = if same_as.is_none() { locks_in(&info) } else { Vec::new() };
                all.list.push(Descriptor { fd, flags, same_as, open, locks });
            }
            // Closed since it was listed, or another one: what is there at the cut counts.
            Err(OfDescriptor::Unread { .. }) if !stopped => {}
            Err(_) if close_unsupported => {}
            Err(what) => all.refusals.push(Refusal::Descriptor { fd, what }),
        }
    }
    pipes(control, &mut all, &pipe_ends, close_unsupported, stopped)?;
    Ok(all)
}

/// Whether a timerfd shows neither time left nor ticks.
fn seems_disarmed(info: &str) -> bool {
    let zero = |name: &str| field(info, name).is_some_and(|text| text.chars().all(|c| !c.is_ascii_digit() || c == '0'));
    zero("ticks:") && zero("it_value:")
}

/// Waits until all timers have fired whose time has come.
///
/// The trap: between the moment at which a timerfd is due and the interrupt that counts its tick, it shows neither time
/// left nor a tick, as if it were disarmed, and the copy would wait for it for ever. Interrupts of a processor come in
/// the order of their times, so on each of them a sleep that begins now ends behind all that is due.
fn settle_timers() -> io::Result<()> {
    use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
    let this_thread = nix::unistd::Pid::from_raw(0);
    let allowed = sched_getaffinity(this_thread)?;
    for processor in 0..CpuSet::count() {
        if allowed.is_set(processor)? {
            let mut one = CpuSet::new();
            one.set(processor)?;
            // One that has just gone offline has handed its timers to another.
            if sched_setaffinity(this_thread, &one).is_ok() {
                std::thread::sleep(std::time::Duration::from_nanos(1));
            }
        }
    }
    Ok(sched_setaffinity(this_thread, &allowed)?)
}

/// The value of a line of `fdinfo`.
fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

/// The locks that `fdinfo` shows of a file.
fn locks_in(info: &str) -> Vec<FileLock> {
    // lock:	1: POSIX  ADVISORY  WRITE 4711 08:01:1234 0 EOF
    let lock = |line: &str| {
        let words: Vec<_> = line.strip_prefix("lock:")?.split_ascii_whitespace().collect();
        let [_, kind, _, access, _, _, start, last] = words.as_slice() else { return None };
        let owner = match *kind {
            "POSIX" => LockOwner::Process,
            "OFDLCK" => LockOwner::OpenFile,
            "FLOCK" => LockOwner::Whole,
            _ => return None,
        };
        Some(FileLock { owner, is_exclusive: *access == "WRITE", start: start.parse().ok()?, last: last.parse().ok() })
    };
    info.lines().filter_map(lock).collect()
}

fn look(
    control: &Control,
    fd: i32,
    link: &str,
    info: &str,
    objects: &mut BTreeMap<u64, (OwnedFd, String)>,
) -> Result<Open, OfDescriptor> {
    let position = field(info, "pos:").and_then(|text| text.parse().ok()).unwrap_or(0);
    // The destination gives the copy its standard descriptors.
    if fd <= 2 {
        return Ok(Open::Standard(fd as u8));
    }
    let number = |name: &str, radix| {
        field(info, name).and_then(|text| u64::from_str_radix(text.trim_start_matches("0x"), radix).ok())
    };
    let (kind, inode) =
        link.split_once(":[").map_or((link, 0), |(kind, rest)| (kind, rest.trim_end_matches(']').parse().unwrap_or(0)));
    match kind {
        "pipe" => {
            let access = i32::from_str_radix(field(info, "flags:").unwrap_or("0"), 8).unwrap_or(0) & libc::O_ACCMODE;
            Ok(Open::Pipe { id: inode, writes: access != libc::O_RDONLY })
        }
        _ if link == "anon_inode:[eventfd]" => Ok(Open::Event {
            count: number("eventfd-count:", 16).unwrap_or(0),
            semaphore: number("eventfd-semaphore:", 10).unwrap_or(0) == 1,
        }),
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
            })
        }
        _ if link == "anon_inode:[signalfd]" => Ok(Open::Signals { mask: number("sigmask:", 16).unwrap_or(0) }),
        _ if link == "anon_inode:[eventpoll]" => Ok(Open::Epoll { watched: watched(info) }),
        "socket" => Err(OfDescriptor::Socket(socket_name(control, fd))),
        _ if kind.starts_with("/memfd:") => {
            let object = control.descriptor(fd).map_err(|error| unknown(link, &error))?;
            // Opened anew: seeking for holes must not move the program's own position.
            let path = format!("/proc/self/fd/{}", object.as_raw_fd());
            // A running program may have closed it, and have something else there.
            if nix::fcntl::readlink(path.as_str()).is_ok_and(|own| own != *link) {
                return Err(unknown(link, &Errno::ESTALE.into()));
            }
            let facts = nix::sys::stat::fstat(&object).map_err(|error| unknown(link, &error.into()))?;
            let name = kind.trim_start_matches("/memfd:").trim_end_matches(" (deleted)").to_owned();
            let own = std::fs::File::open(path);
            objects.entry(facts.st_ino).or_insert((own.map_err(|error| unknown(link, &error))?.into(), name));
            Ok(Open::Object { id: facts.st_ino, position })
        }
        _ if kind.starts_with('/') => path(control, fd, link, position),
        _ => Err(OfDescriptor::Other(link.to_owned())),
    }
}

fn unknown(link: &str, error: &io::Error) -> OfDescriptor {
    let error = nix::errno::Errno::from_raw(error.raw_os_error().unwrap_or_default());
    OfDescriptor::Unread { link: link.to_owned(), error }
}

fn watched(info: &str) -> Vec<(i32, u32, u64)> {
    // "tfd:        5 events:       19 data:        5  pos:0 ino:45 sdev:9"
    info.lines()
        .filter(|line| line.starts_with("tfd:"))
        .filter_map(|line| {
            let mut words = line.split_ascii_whitespace().filter(|word| !word.ends_with(':'));
            let fd = words.next()?.parse().ok()?;
            let events = u32::from_str_radix(words.next()?, 16).ok()?;
            Some((fd, events, u64::from_str_radix(words.next()?, 16).ok()?))
        })
        .collect()
}

fn path(control: &Control, fd: i32, link: &str, position: u64) -> Result<Open, OfDescriptor> {
    const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/urandom", "/dev/random", "/dev/full"];
    let facts = nix::sys::stat::fstatat(&control.proc, format!("fd/{fd}").as_str(), nix::fcntl::AtFlags::empty())
        .map_err(|error| unknown(link, &error.into()))?;
    if link.ends_with(" (deleted)") {
        return Err(OfDescriptor::Deleted(link.to_owned()));
    }
    match facts.st_mode & libc::S_IFMT {
        libc::S_IFREG => Ok(Open::Path { path: link.to_owned(), position, len: Some(facts.st_size as u64) }),
        libc::S_IFDIR => Ok(Open::Path { path: link.to_owned(), position, len: None }),
        libc::S_IFCHR if DEVICES.contains(&link) => Ok(Open::Path { path: link.to_owned(), position: 0, len: None }),
        libc::S_IFCHR => Err(OfDescriptor::Device(link.to_owned())),
        libc::S_IFIFO => Err(OfDescriptor::NamedPipe(link.to_owned())),
        _ => Err(OfDescriptor::Other(link.to_owned())),
    }
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

/// A lower descriptor that shares its open file with `fd`: they are the same to the kernel.
fn twin(control: &Control, fd: i32, link: &str, known: &[(String, i32)], open: &Open) -> Option<i32> {
    const KCMP_FILE: i32 = 0;
    if matches!(open, Open::Standard(_)) {
        return None;
    }
    let candidates: Vec<i32> = known.iter().filter(|(other, _)| other == link).map(|(_, fd)| *fd).collect();
    let mine = if candidates.is_empty() { return None } else { control.descriptor(fd).ok()? };
    let me = std::process::id();
    candidates.into_iter().find(|candidate| {
        control.descriptor(*candidate).is_ok_and(|other| {
            // SAFETY: - compares two descriptors of this process; touches no memory.
            unsafe { libc::syscall(libc::SYS_kcmp, me, me, KCMP_FILE, mine.as_raw_fd(), other.as_raw_fd()) == 0 }
        })
    })
}

/// Takes note of what is in the pipes; those with one end elsewhere are refused.
fn pipes(
    control: &Control,
    all: &mut Descriptors,
    ends: &BTreeMap<u64, (bool, bool)>,
    close_unsupported: bool,
    stopped: bool,
) -> io::Result<()> {
    // A standard descriptor may be the other end of a pipe, but that one will be replaced.
    for (id, (reads, writes)) in ends {
        let here = |descriptor: &&Descriptor| matches!(descriptor.open, Open::Pipe { id: found, .. } if found == *id);
        let Some(first) = all.list.iter().find(here).map(|descriptor| descriptor.fd) else { continue };
        if !(*reads && *writes) {
            let twins_of_standard = standard_twin(control, *id)?;
            if let Some(standard) = twins_of_standard {
                for descriptor in all.list.iter_mut() {
                    if matches!(descriptor.open, Open::Pipe { id: found, .. } if found == *id) {
                        descriptor.open = Open::Standard(standard);
                    }
                }
                continue;
            }
            let is_alone = match control.descriptor(first).and_then(|end| other_end_is_closed(&end)) {
                // Closed meanwhile.
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
        // What nobody can read is not carried.
        let content = if *reads { content(&end)? } else { Vec::new() };
        all.pipes.push(Pipe { id: *id, capacity: capacity(&end), content: ByteBuf::from(content) });
    }
    Ok(())
}

/// Whether nobody has the other end of a pipe any more.
fn other_end_is_closed(end: &OwnedFd) -> io::Result<bool> {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    let mut polled = [PollFd::new(end.as_fd(), PollFlags::empty())];
    poll(&mut polled, PollTimeout::ZERO)?;
    Ok(polled[0].revents().is_some_and(|events| events.intersects(PollFlags::POLLHUP | PollFlags::POLLERR)))
}

/// What is in the pipe behind a descriptor of a process that is stopped, without taking it out; nothing when it is no
/// pipe.
pub fn unread(control: &Control, fd: i32) -> io::Result<Vec<u8>> {
    let is_pipe = control.proc_link(&format!("fd/{fd}")).is_ok_and(|link| link.starts_with("pipe:"));
    if is_pipe { content(&control.descriptor(fd)?) } else { Ok(Vec::new()) }
}

/// Which standard descriptor is an end of this pipe.
fn standard_twin(control: &Control, id: u64) -> io::Result<Option<u8>> {
    for fd in 0..3_u8 {
        if control.proc_link(&format!("fd/{fd}")).is_ok_and(|link| link == format!("pipe:[{id}]")) {
            return Ok(Some(fd));
        }
    }
    Ok(None)
}

fn capacity(pipe: &OwnedFd) -> u32 {
    // SAFETY: - touches no memory.
    unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_GETPIPE_SZ) }.max(4096) as u32
}

/// What is in a pipe, without taking it out.
fn content(pipe: &OwnedFd) -> io::Result<Vec<u8>> {
    let mut waiting: libc::c_int = 0;
    // SAFETY: - writes one int.
    Errno::result(unsafe { libc::ioctl(pipe.as_raw_fd(), libc::FIONREAD, &raw mut waiting) })?;
    let mut bytes = vec![0; waiting.max(0) as usize];
    if bytes.is_empty() {
        return Ok(bytes);
    }
    let (out, into) = nix::unistd::pipe()?;
    // SAFETY: - touches no memory. The copy must take as many buffers as the pipe has.
    unsafe { libc::fcntl(into.as_raw_fd(), libc::F_SETPIPE_SZ, capacity(pipe)) };
    // SAFETY: - touches no memory.
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
    fn watched_descriptors_are_read_from_the_kernels_lines() {
        let info = "pos:\t0\nflags:\t02\ntfd:        5 events:       19 data:                5  pos:0 ino:4b sdev:9\n";
        assert_eq!(watched(info), [(5, 0x19, 5)]);
        assert_eq!(field(info, "flags:"), Some("02"));
    }

    #[test]
    fn locks_are_read_from_the_kernels_lines() {
        use std::os::unix::fs::FileExt;
        let path = std::env::temp_dir().join(format!("cloner-locks-{}", std::process::id()));
        let mut options = std::fs::OpenOptions::new();
        let open = options.read(true).write(true).create(true).truncate(true);
        let [one, other] = [open.open(&path).unwrap(), open.open(&path).unwrap()];
        std::fs::remove_file(&path).unwrap();
        one.write_all_at(b"bytes", 0).unwrap();
        let set = |file: &std::fs::File, command: i32, kind: i32, start: i64, length: i64| {
            let (l_type, l_whence) = (kind as i16, libc::SEEK_SET as i16);
            let range = libc::flock { l_type, l_whence, l_start: start, l_len: length, l_pid: 0 };
            // SAFETY: - the range outlives the call.
            assert_eq!(unsafe { libc::fcntl(file.as_raw_fd(), command, &raw const range) }, 0);
        };
        set(&one, libc::F_SETLK, libc::F_WRLCK, 3, 4);
        set(&one, libc::F_OFD_SETLK, libc::F_RDLCK, 100, 0);
        // SAFETY: - touches no memory.
        assert_eq!(unsafe { libc::flock(other.as_raw_fd(), libc::LOCK_SH) }, 0);
        let found = |file: &std::fs::File| {
            let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd())).unwrap();
            let mut locks = locks_in(&info);
            locks.sort_by_key(|lock| lock.start);
            locks
        };
        let lock = |owner, is_exclusive, start, last| FileLock { owner, is_exclusive, start, last };
        let expected = [lock(LockOwner::Process, true, 3, Some(6)), lock(LockOwner::OpenFile, false, 100, None)];
        assert_eq!(found(&one), expected);
        assert_eq!(found(&other), [lock(LockOwner::Whole, false, 0, None)]);
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
    fn the_content_of_a_pipe_is_read_and_stays() {
        let (out, into) = nix::unistd::pipe().unwrap();
        nix::unistd::write(&into, b"three words here").unwrap();
        assert_eq!(content(&out).unwrap(), b"three words here");
        assert_eq!(content(&out).unwrap(), b"three words here");
    }
}
