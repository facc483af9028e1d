//! The socket at which this process accepts links.

use super::networks;
use crate::job;
use redrt_transport::descriptors;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, PoisonError};

process_local! {
    /// The listening socket; -1 for none.
    static LISTENER: AtomicI32 = AtomicI32::new(-1);
    /// Address at which links are accepted; `None` before.
    static LISTENS_AT: Mutex<Option<SocketAddr>> = Mutex::new(None);
}

/// Opens a listening socket for links; it does not block.
pub fn open(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// In a copy: opens a socket under its source's descriptor number. `None` if the source had none.
pub fn open_again(address: SocketAddr) -> io::Result<Option<TcpListener>> {
    let fd = LISTENER.load(Ordering::Relaxed);
    if fd < 0 {
        return Ok(None);
    }
    let listener = open(address)?;
    descriptors::replace(fd, &listener)?;
    Ok(Some(listener))
}

/// Accepts links at this socket from now on. Fails if its thread cannot be started.
pub fn serve(listener: TcpListener) -> io::Result<()> {
    serve_at(&mut LISTENS_AT.lock().unwrap_or_else(PoisonError::into_inner), listener).map(drop)
}

fn serve_at(place: &mut Option<SocketAddr>, listener: TcpListener) -> io::Result<SocketAddr> {
    // A copy has to replace this descriptor.
    descriptors::record(listener.as_raw_fd());
    LISTENER.store(listener.as_raw_fd(), Ordering::Relaxed);
    let address = listener.local_addr()?;
    super::start(networks::tcp().serve()?, listener)?;
    *place = Some(address);
    Ok(address)
}

/// Address at which this process accepts links. A process that needs none in its own job begins to accept at the first
/// question. The thread that this starts moves the program's memory, which does not matter without replicas.
pub fn address() -> io::Result<SocketAddr> {
    let mut place = LISTENS_AT.lock().unwrap_or_else(PoisonError::into_inner);
    match (*place, job()) {
        (Some(address), _) => Ok(address),
        (None, Some(job)) => serve_at(&mut place, open(job.welcome.listen)?),
        (None, None) => Err(io::ErrorKind::NotConnected.into()),
    }
}
