//! The connection to this host's daemon.

use redrt_wire::control::{FromAgent, ToAgent};
use redrt_wire::frame::{self, FrameReader};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Mutex;

/// Both directions of the control connection. Any thread may send; one receives.
pub struct Control {
    writer: Mutex<UnixStream>,
    reader: Mutex<(UnixStream, FrameReader)>,
}

impl Control {
    /// Takes over a connected stream.
    pub fn new(stream: UnixStream) -> io::Result<Self> {
        let reader = stream.try_clone()?;
        Ok(Self { writer: Mutex::new(stream), reader: Mutex::new((reader, FrameReader::default())) })
    }

    /// Sends one message.
    pub fn send(&self, message: &FromAgent) -> io::Result<()> {
        self.writer.lock().expect("no thread panics while it sends").write_all(&frame::encode(message))
    }

    /// Waits for the next message. An end of the stream is an error: the daemon is gone.
    pub fn receive(&self) -> io::Result<ToAgent> {
        let mut reader = self.reader.lock().expect("no thread panics while it receives");
        let (stream, frames) = &mut *reader;
        loop {
            if let Some(message) = frames.next().map_err(io::Error::other)? {
                return Ok(message);
            }
            let mut bytes = [0; 4096];
            let count = stream.read(&mut bytes)?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            frames.push(&bytes[..count]);
        }
    }
}
