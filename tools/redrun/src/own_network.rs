//! A network of its own for a job on a host that has none, as in a new network namespace where even the loopback
//! interface is down: processes of one host reach each other by that.
//!
//! `redrun` enters a namespace in which it is up, and all that it starts is there. Nothing outside changes, and nothing
//! is lost: there was no interface to use.

use nix::errno::Errno;
use nix::net::if_::InterfaceFlags;
use nix::sched::{CloneFlags, unshare};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use nix::unistd::{getgid, getuid};
use std::io;
use std::os::fd::AsRawFd;

/// Gives this process a network if this host has none. Called when it has one thread.
///
/// # Errors
/// When the kernel does not allow it. Then a job says what it lacks, unless it needs no network.
pub fn enter() -> io::Result<()> {
    // First what is so nearly everywhere: a list of all interfaces costs more.
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

/// The same where that takes privileges: in a namespace of users, in which everybody has them, and is who they are.
fn enter_as_user() -> io::Result<()> {
    let (user, group) = (getuid(), getgid());
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET)?;
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    std::fs::write("/proc/self/gid_map", format!("{group} {group} 1"))
}

/// The kernel gives it its addresses then (netdevice(7)).
fn raise_loopback() -> io::Result<()> {
    let socket = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    let mut name = [0; libc::IFNAMSIZ];
    for (to, from) in name.iter_mut().zip(b"lo") {
        *to = *from as libc::c_char;
    }
    let flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    let request = libc::ifreq { ifr_name: name, ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_flags: flags } };
    // SAFETY: - the request is a valid one, which the kernel reads during the call.
    match unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
