//! Wakes a process that sleeps in poll: a datagram socket with an abstract name, which leaves no file behind.
//!
//! Anybody on a host may bind an abstract name, so a name that could be guessed could be taken before its process is
//! there. Names are derived from the secret of the job's links, a new one for each incarnation of a process, and
//! published in the shared memory.

use redrt_transport::shm::Segment;
use redrt_types::ProcessIndex;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Name of a wake-up socket.
pub type WakeName = [u64; 2];

fn wake_address([high, low]: WakeName) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("redrt-{high:016x}{low:016x}"))
}

process_local! {
    /// Socket by which this process is woken, and wakes others.
    static SOCKET: OnceLock<UnixDatagram> = OnceLock::new();
    /// Shared memory of the host, which has the names; null where none exists. In a copy it is that of its own host.
    static SEGMENT: AtomicPtr<Segment> = AtomicPtr::new(std::ptr::null_mut());
}

/// Wakes a process of this host that sleeps in poll.
pub fn poke(process: ProcessIndex) {
    // SAFETY: - null, or leaked by `publish`, so valid for ever.
    if let Some(segment) = unsafe { SEGMENT.load(Ordering::Acquire).as_ref() } {
        poke_by(segment.wake_name(process).each_ref().map(|half| half.load(Ordering::Relaxed)));
    }
}

/// Wakes the process with this name, if there is one.
pub fn poke_by(name: WakeName) {
    if let (Some(socket), Ok(address)) = (SOCKET.get(), wake_address(name)) {
        // A full queue means that a wake-up is already waiting there.
        let _ = socket.send_to_addr(&[1], &address);
    }
}

/// Binds a non-blocking socket of this name.
///
/// # Errors
/// When the name is taken, or no socket can be made.
pub fn bind(name: WakeName) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::bind_addr(&wake_address(name)?)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Makes this the socket that wakes this process. The first one stays.
pub fn install(bound: UnixDatagram) -> &'static UnixDatagram {
    SOCKET.get_or_init(|| bound)
}

/// Publishes the name by which this process is woken to the others of this host. The process is not asleep yet.
pub fn publish(segment: Option<Segment>, me: ProcessIndex, name: WakeName) {
    let segment = segment.map_or(std::ptr::null_mut(), |segment| {
        for (place, half) in segment.wake_name(me).iter().zip(name) {
            place.store(half, Ordering::SeqCst);
        }
        Box::into_raw(Box::new(segment))
    });
    SEGMENT.store(segment, Ordering::Release);
}
