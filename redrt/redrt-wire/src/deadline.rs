//! A blocking connection with one limit of time for all bytes in both directions together. The trap: a limit for each
//! read, as sockets have it, does not stop a peer that sends a byte now and then.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// A stream that fails with [`io::ErrorKind::TimedOut`] from this moment on.
pub struct Limited<'a> {
    stream: &'a TcpStream,
    until: Instant,
}

impl<'a> Limited<'a> {
    /// Limits later use of this stream. Changes the socket's own limits.
    #[must_use]
    pub fn new(stream: &'a TcpStream, until: Instant) -> Self {
        Self { stream, until }
    }

    fn left(&self) -> io::Result<Duration> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
    }
}

/// Converts the error of a socket's own limit, a read that would block.
fn timed_out(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock { io::ErrorKind::TimedOut.into() } else { error }
}

impl Read for Limited<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.left()?))?;
        self.stream.read(bytes).map_err(timed_out)
    }
}

impl Write for Limited<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.left()?))?;
        self.stream.write(bytes).map_err(timed_out)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn a_byte_now_and_then_does_not_put_off_the_end() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut slow = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) && slow.write_all(&[0]).is_ok() {
                    std::thread::sleep(Duration::from_millis(5));
                }
            });
            let mut limited = Limited::new(&stream, Instant::now() + Duration::from_millis(60));
            let outcome = limited.read_exact(&mut [0; 1 << 20]);
            is_over.store(true, Ordering::Relaxed);
            assert_eq!(outcome.unwrap_err().kind(), io::ErrorKind::TimedOut);
        });
    }
}
