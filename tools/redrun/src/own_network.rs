//! A network for a job on a host without one, such as a new network namespace whose loopback interface is down:
//! processes of one host use it.
//!
//! `redrun` enters a namespace of its own with loopback up, and its children inherit it. Nothing outside changes, and
//! nothing is lost: there was no usable interface.

use nix::errno::Errno;
use nix::net::if_::InterfaceFlags;
use nix::sched::{CloneFlags, unshare};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use nix::unistd::{getgid, getuid};
use std::io;
use std::os::fd::AsRawFd;

/// Gives this process a network if the host has none. The process must have one thread.
///
/// # Errors
/// When the kernel does not allow it. A job that needs a network reports the lack then.
pub fn enter() -> io::Result<()> {
    // The usual case first: a list of all interfaces costs more.
    if host_addresses::loopback().is_ok() || is_any_up()? {
        return Ok(());
    }
    match unshare(CloneFlags::CLONE_NEWNET) {
        Err(Errno::EPERM) => enter_as_user()?,
        other => other?,
    }
    raise_loopback()
}

fn is_any_up() -> io::Result<bool> {
    Ok(nix::ifaddrs::getifaddrs()?.any(|interface| interface.flags.contains(InterfaceFlags::IFF_UP)))
}

/// Enters without privileges: a new user namespace grants them, with the same user and group.
fn enter_as_user() -> io::Result<()> {
    let (user, group) = (getuid(), getgid());
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET)?;
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    std::fs::write("/proc/self/gid_map", format!("{group} {group} 1"))
}

/// Sets loopback up; the kernel then assigns its addresses (netdevice(7)).
fn raise_loopback() -> io::Result<()> {
    let socket = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    let mut name = [0; libc::IFNAMSIZ];
    for (to, from) in name.iter_mut().zip(b"lo") {
        *to = *from as libc::c_char;
    }
    let flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    let request = libc::ifreq { ifr_name: name, ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_flags: flags } };
    // SAFETY: - `request` is a valid `ifreq` with a terminated name: `lo` and zeros.
    //         - it outlives the call, during which alone the kernel reads it.
    match unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
