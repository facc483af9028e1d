//! Watches of epolls.
//!
//! The kernel keeps the open file and the descriptor number under which it was added. It watches the file as long as
//! any descriptor has it open, and that descriptor may have another number by now: the original one may be closed or
//! reused. So each watch is matched to a descriptor of the same file by `kcmp`.

use super::{Descriptors, OfDescriptor, Refusal};
use crate::control::Control;
use crate::image::state::{Open, Watch};
use nix::errno::Errno;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// Parses the lines of `fdinfo`: `tfd:        5 events:       19 data:        5  pos:0 ino:45 sdev:9`.
pub fn read(info: &str) -> Vec<Watch> {
    let lines = info.lines().filter(|line| line.starts_with("tfd:")).filter_map(|line| {
        let mut words = line.split_ascii_whitespace().filter(|word| !word.ends_with(':'));
        let number = words.next()?.parse().ok()?;
        let events = u32::from_str_radix(words.next()?, 16).ok()?;
        let data = u64::from_str_radix(words.next()?, 16).ok()?;
        Some(Watch { number, fd: number, events, data })
    });
    lines.collect()
}

/// Finds a descriptor for each watch of a stopped process. A watch without one is refused, or left out if
/// `close_unsupported`.
pub fn resolve(control: &Control, all: &mut Descriptors, close_unsupported: bool) -> io::Result<()> {
    let numbers: Vec<i32> = all.list.iter().map(|descriptor| descriptor.fd).collect();
    let mut duplicates: BTreeMap<i32, OwnedFd> = BTreeMap::new();
    for descriptor in &mut all.list {
        let Open::Epoll { watched } = &mut descriptor.open else { continue };
        let epoll = control.descriptor(descriptor.fd)?;
        let mut counts: BTreeMap<i32, u32> = BTreeMap::new();
        let mut found = Vec::with_capacity(watched.len());
        for watch in watched.iter() {
            // Several files may have been added under one number; their order identifies them.
            let count = counts.entry(watch.number).or_default();
            let place = Place { epoll: &epoll, number: watch.number, order: *count };
            *count += 1;
            let likely = numbers.iter().filter(|fd| **fd == watch.number);
            let holder = likely.chain(numbers.iter().filter(|fd| **fd != watch.number)).copied().find(|fd| {
                let duplicate = match duplicates.entry(*fd) {
                    std::collections::btree_map::Entry::Occupied(known) => known.into_mut(),
                    std::collections::btree_map::Entry::Vacant(place) => match control.descriptor(*fd) {
                        Ok(duplicate) => place.insert(duplicate),
                        Err(_) => return false,
                    },
                };
                place.has(duplicate)
            });
            match holder {
                Some(fd) => found.push(Watch { fd, ..*watch }),
                None if close_unsupported => {}
                None => {
                    let what = OfDescriptor::Watching { number: watch.number };
                    all.refusals.push(Refusal::Descriptor { fd: descriptor.fd, what });
                }
            }
        }
        *watched = found;
    }
    Ok(())
}

/// A watch, as the kernel addresses it: epoll, number, and order among those of the same number.
struct Place<'a> {
    epoll: &'a OwnedFd,
    number: i32,
    order: u32,
}

impl Place<'_> {
    /// Returns true if the watched file is that of `descriptor`. Both are open in this process.
    fn has(&self, descriptor: &OwnedFd) -> bool {
        const KCMP_EPOLL_TFD: i32 = 7;
        let me = std::process::id();
        // Layout of `struct kcmp_epoll_slot`: epoll, number, order.
        let slot = [self.epoll.as_raw_fd() as u32, self.number as u32, self.order];
        let fd = descriptor.as_raw_fd();
        // SAFETY: - `slot` has the three words of a `kcmp_epoll_slot` and outlives the call, which only reads it.
        let compared = unsafe { libc::syscall(libc::SYS_kcmp, me, me, KCMP_EPOLL_TFD, fd, slot.as_ptr()) };
        match compared {
            // Without `kcmp` the original number is trusted.
            -1 if Errno::last() == Errno::ENOSYS => true,
            compared => compared == 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};

    #[test]
    fn watched_descriptors_are_read_from_the_kernels_lines() {
        let info = "pos:\t0\nflags:\t02\ntfd:        5 events:       19 data:                5  pos:0 ino:4b sdev:9\n";
        assert_eq!(read(info), [Watch { number: 5, fd: 5, events: 0x19, data: 5 }]);
    }

    #[test]
    fn a_file_is_found_under_its_former_watch_number() {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).unwrap();
        let (mut reused, _one) = nix::unistd::pipe().unwrap();
        let (second, _two) = nix::unistd::pipe().unwrap();
        let (kept, number) = (reused.try_clone().unwrap(), reused.as_raw_fd());
        epoll.add(&reused, EpollEvent::new(EpollFlags::EPOLLIN, 1)).unwrap();
        // In one step: a number that was free for a moment could get another test's file.
        nix::unistd::dup2(&second, &mut reused).unwrap();
        let epoll = epoll.0;
        let place = Place { epoll: &epoll, number, order: 0 };
        assert!(place.has(&kept) && !place.has(&reused) && !place.has(&second));
    }
}
