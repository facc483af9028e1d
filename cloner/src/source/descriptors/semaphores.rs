//! Eventfds that count down by one (`EFD_SEMAPHORE`), on kernels before 6.5, whose `fdinfo` does not show the flag.
//!
//! Only a read shows the difference there: it takes one from a semaphore, and all from another eventfd. So the eventfd
//! of the stopped process is read and written back. A program that watches it edge-triggered may see an event more.

use nix::errno::Errno;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// Returns true if `event` is a semaphore. Its count is the same afterwards.
pub fn is_semaphore(event: &OwnedFd, count: u64) -> io::Result<bool> {
    // A count of two is the first of which a semaphore gives less than all.
    let lent = 2_u64.saturating_sub(count);
    add(event, lent)?;
    let taken = take(event)?;
    let is_semaphore = taken == 1;
    if is_semaphore && lent > 0 {
        // One of the two was taken above.
        (1..lent).try_for_each(|_| take(event).map(drop))?;
    } else {
        // Another process that shares it may have taken some meanwhile.
        add(event, taken.saturating_sub(lent))?;
    }
    Ok(is_semaphore)
}

fn add(event: &OwnedFd, number: u64) -> io::Result<()> {
    if number > 0 {
        nix::unistd::write(event.as_fd(), &number.to_ne_bytes())?;
    }
    Ok(())
}

/// Reads the eventfd without waiting: another process may have emptied it meanwhile.
fn take(event: &OwnedFd) -> io::Result<u64> {
    let mut number = [0_u8; 8];
    let piece = libc::iovec { iov_base: number.as_mut_ptr().cast(), iov_len: number.len() };
    // SAFETY: - `piece` describes `number`, a local of the eight bytes that the call writes.
    Errno::result(unsafe { libc::preadv2(event.as_raw_fd(), &raw const piece, 1, -1, libc::RWF_NOWAIT) })?;
    Ok(u64::from_ne_bytes(number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::eventfd::{EfdFlags, EventFd};

    #[test]
    fn semaphores_are_known_and_keep_their_count() {
        for count in [0, 1, 2, 3, 7, 0xffff_ffff] {
            for is_one in [false, true] {
                let flags = if is_one { EfdFlags::EFD_SEMAPHORE } else { EfdFlags::empty() };
                let event: OwnedFd = EventFd::from_flags(flags).unwrap().into();
                add(&event, count).unwrap();
                assert_eq!(is_semaphore(&event, count).unwrap(), is_one, "{count}");
                let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", event.as_raw_fd())).unwrap();
                let left = super::super::field(&info, "eventfd-count:").unwrap();
                assert_eq!(u64::from_str_radix(left, 16).unwrap(), count, "{is_one}");
            }
        }
    }
}
