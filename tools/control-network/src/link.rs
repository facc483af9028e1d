//! A connection for control frames that never blocks: bytes wait here until the other end takes them.

use anyhow::Context;
use redrt_wire::frame::{FrameReader, encode};
use redrt_wire::seal::Cipher;
use serde::{Serialize, de::DeserializeOwned};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};

const READ_BYTES: usize = 64 << 10;

/// A non-blocking stream of frames. After an error or [`Received::End`] it is of no more use.
#[derive(Debug)]
pub struct Link<S> {
    stream: S,
    cipher: Option<Cipher>,
    reader: FrameReader,
    outgoing: Vec<u8>,
    sent_bytes: usize,
}

/// Result of [`Link::receive`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Received {
    /// Bytes have arrived, which may complete frames.
    Bytes,
    /// No bytes have arrived.
    Nothing,
    /// The other end has closed the connection.
    End,
}

impl<S: Read + Write + AsFd> Link<S> {
    /// Takes over a non-blocking stream. With a cipher, frames are encrypted.
    pub fn new(stream: S, cipher: Option<Cipher>) -> Self {
        Self { stream, cipher, reader: FrameReader::default(), outgoing: Vec::new(), sent_bytes: 0 }
    }

    /// Descriptor to wait on.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// Bytes queued and not yet taken by the connection.
    #[must_use]
    pub fn backlog_bytes(&self) -> usize {
        self.outgoing.len() - self.sent_bytes
    }

    /// Queues a message, and sends as much as the connection takes.
    pub fn send<T: Serialize>(&mut self, message: &T) -> io::Result<()> {
        match &mut self.cipher {
            Some(cipher) => cipher.seal(&encode(message), &mut self.outgoing),
            None => self.outgoing.extend_from_slice(&encode(message)),
        }
        self.flush()
    }

    /// Sends queued bytes as far as the connection takes them.
    pub fn flush(&mut self) -> io::Result<()> {
        while self.sent_bytes < self.outgoing.len() {
            match self.stream.write(&self.outgoing[self.sent_bytes..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => self.sent_bytes += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        if self.sent_bytes == self.outgoing.len() {
            self.outgoing.clear();
            self.sent_bytes = 0;
        } else if self.sent_bytes > self.outgoing.len() / 2 {
            // Only now: at most as many bytes are moved as were sent, however long the queue is.
            self.outgoing.drain(..self.sent_bytes);
            self.sent_bytes = 0;
        }
        Ok(())
    }

    /// Reads once from the connection.
    pub fn receive(&mut self) -> io::Result<Received> {
        let mut buffer = [0; READ_BYTES];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return Ok(Received::End),
                Ok(count) => {
                    match &mut self.cipher {
                        Some(cipher) => {
                            let mut plain = Vec::new();
                            cipher.open(&buffer[..count], &mut plain)?;
                            self.reader.push(&plain);
                        }
                        None => self.reader.push(&buffer[..count]),
                    }
                    return Ok(Received::Bytes);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Received::Nothing),
                Err(error) => return Err(error),
            }
        }
    }

    /// The next complete message among the bytes received.
    pub fn next_message<T: DeserializeOwned>(&mut self) -> anyhow::Result<Option<T>> {
        self.reader.next().context("Failed to read a control message")
    }
}
