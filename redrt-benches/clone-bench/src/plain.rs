//! A plain stream: memory into sockets, sockets into fresh memory, with large calls and no other work.

use anyhow::{Context, ensure};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

/// Touches memory and frees it, once with huge pages and once without. The host of a virtual machine takes back memory
/// that was not used lately; so neither side of a comparison pays for getting it again.
pub fn touch(bytes: u64) -> anyhow::Result<()> {
    for advice in [libc::MADV_HUGEPAGE, libc::MADV_NOHUGEPAGE] {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: - without MAP_FIXED, a new mapping replaces no other.
        let place = unsafe { libc::mmap(std::ptr::null_mut(), bytes as usize, protection, flags, -1, 0) };
        ensure!(place != libc::MAP_FAILED, "no memory to touch: {}", std::io::Error::last_os_error());
        // SAFETY: - the mapping was just made, and nothing refers to it.
        unsafe {
            libc::madvise(place, bytes as usize, advice);
            libc::madvise(place, bytes as usize, libc::MADV_POPULATE_WRITE);
            libc::munmap(place, bytes as usize);
        }
    }
    Ok(())
}

const CALL_BYTES: usize = 1 << 20;

/// Sends `bytes` over `count` connections, and returns the time until all have arrived.
pub fn stream(bytes: u64, count: usize) -> anyhow::Result<Duration> {
    let share = bytes as usize / count;
    // The receiver's memory is untouched, like that of a clone; the sender's is touched.
    let from = vec![1_u8; CALL_BYTES * 64];
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let begin = Instant::now();
    thread::scope(|scope| {
        let mut all = Vec::new();
        for _ in 0..count {
            let from = &from;
            all.push(scope.spawn(move || -> anyhow::Result<()> {
                let mut out = TcpStream::connect(address)?;
                // As in redclone. Where CUBIC is missing, the system's default is used.
                let _ = socket2::SockRef::from(&out).set_tcp_congestion(b"cubic");
                for at in (0..share).step_by(CALL_BYTES) {
                    let at = at % from.len();
                    out.write_all(&from[at..at + CALL_BYTES])?;
                }
                Ok(())
            }));
            let (mut stream, _) = listener.accept()?;
            all.push(scope.spawn(move || -> anyhow::Result<()> {
                let mut place = vec![0_u8; share];
                for part in place.chunks_mut(CALL_BYTES) {
                    stream.read_exact(part)?;
                }
                Ok(())
            }));
        }
        for one in all {
            one.join().ok().context("a thread of the plain stream panicked")??;
        }
        Ok(begin.elapsed())
    })
}
