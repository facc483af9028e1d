//! What wakes a process that sleeps in poll: a datagram socket with an abstract name, which leaves nothing behind.
//!
//! Everybody on a host may bind an abstract name, so one that could be guessed could be taken before its process is
//! there. Names are made from the secret of the job's links, another for each incarnation of a process, and told to the
//! others in the shared memory.

use redrt_transport::shm::Segment;
use redrt_types::ProcessIndex;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The name of a socket.
pub type WakeName = [u64; 2];

fn wake_address([high, low]: WakeName) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("redrt-{high:016x}{low:016x}"))
}

process_local! {
    /// The socket by which this process is woken, and wakes others.
    static SOCKET: OnceLock<UnixDatagram> = OnceLock::new();
    /// The shared memory of its host, where names are found; null where there is none. Of a copy it is another one.
    static SEGMENT: AtomicPtr<Segment> = AtomicPtr::new(std::ptr::null_mut());
}

/// Wakes a process of this host that waits in poll.
pub fn poke(process: ProcessIndex) {
    // SAFETY: - null, or leaked by `publish`.
    if let Some(segment) = unsafe { SEGMENT.load(Ordering::Acquire).as_ref() } {
        poke_by(segment.wake_name(process).each_ref().map(|half| half.load(Ordering::Relaxed)));
    }
}

/// Wakes the process that has this name.
pub fn poke_by(name: WakeName) {
    if let (Some(socket), Ok(address)) = (SOCKET.get(), wake_address(name)) {
        // A full queue means that a wake-up is already waiting there.
        let _ = socket.send_to_addr(&[1], &address);
    }
}

/// The socket of this name.
pub fn bind(name: WakeName) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::bind_addr(&wake_address(name)?)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// This process is woken by this socket from now on.
pub fn install(bound: UnixDatagram) -> &'static UnixDatagram {
    SOCKET.get_or_init(|| bound)
}

/// Tells the others of this host by which name this process is woken. It is not asleep yet.
pub fn publish(segment: Option<Segment>, me: ProcessIndex, name: WakeName) {
    let segment = segment.map_or(std::ptr::null_mut(), |segment| {
        for (place, half) in segment.wake_name(me).iter().zip(name) {
            place.store(half, Ordering::SeqCst);
        }
        Box::into_raw(Box::new(segment))
    });
    SEGMENT.store(segment, Ordering::Release);
}
