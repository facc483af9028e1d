//! The sending end of a link.

use super::{Connection, DATA_BYTES_MAX, FRAME_BYTES_MAX, Receiver, Wire, disconnect, send_quietly};
use crate::frame::Header;
use crate::network::{Inlet, Outlet, Source};
use redrt_wire::seal::Cipher;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, Mutex};

enum Chunk {
    Copied(Vec<u8>),
    Shared { payload: Arc<dyn Source>, start: usize, end: usize },
}

impl Chunk {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Copied(bytes) => bytes,
            Self::Shared { payload, start, end } => &payload.bytes()[*start..*end],
        }
    }
}

/// The sending end of a link.
pub struct Sender {
    pub(super) wire: Arc<Wire>,
    queue: VecDeque<Chunk>,
    /// Bytes of the queue's front that have gone.
    gone: usize,
    sent_bytes: u64,
    broken: bool,
    /// Connection on which it continues once all bytes have gone.
    next: Option<Arc<Wire>>,
}

impl Sender {
    /// Takes over a link that was opened.
    pub(crate) fn new(stream: Connection, cipher: Option<Cipher>) -> Self {
        let wire = Arc::new(Wire { stream, cipher: cipher.map(Mutex::new) });
        Self { wire, queue: VecDeque::new(), gone: 0, sent_bytes: 0, broken: false, next: None }
    }

    fn move_on(&mut self) {
        if self.queue.is_empty()
            && let Some(next) = self.next.take()
        {
            self.wire = next;
        }
    }

    /// Sends bytes that are encrypted already.
    fn give(&mut self, mut bytes: Vec<u8>) {
        let taken = if self.queue.is_empty() { self.write(&[IoSlice::new(&bytes)]) } else { 0 };
        if taken < bytes.len() && !self.broken {
            bytes.drain(..taken);
            self.queue.push_back(Chunk::Copied(bytes));
        }
    }

    fn write(&mut self, slices: &[IoSlice]) -> usize {
        loop {
            match send_quietly(&self.wire.stream, slices) {
                Ok(count) => return count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return 0,
                Err(_) => {
                    self.broken = true;
                    self.queue.clear();
                    return 0;
                }
            }
        }
    }
}

impl Outlet for Sender {
    fn move_over(&mut self, inlet: &dyn Inlet, last: Header) {
        let Some(receiver) = inlet.as_any().downcast_ref::<Receiver>() else { return };
        self.send(&[&last.to_bytes()]);
        self.next = Some(receiver.wire.clone());
        self.move_on();
    }

    fn is_shared(&self) -> bool {
        Arc::strong_count(&self.wire) > 1
    }

    fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    fn has_arrived(&self) -> bool {
        let mut unacknowledged: libc::c_int = 0;
        // SAFETY: - a socket, of which the kernel writes one number to a place for one.
        let asked = unsafe { libc::ioctl(self.wire.stream.as_raw_fd(), libc::TIOCOUTQ, &raw mut unacknowledged) };
        self.broken || self.queue.is_empty() && asked == 0 && unacknowledged == 0
    }

    fn is_broken(&self) -> bool {
        self.broken
    }

    fn poll_loss(&mut self) -> bool {
        let mut byte = 0_u8;
        // SAFETY: - byte is valid for one byte of writes.
        let count = unsafe {
            libc::recv(self.wire.stream.as_raw_fd(), (&raw mut byte).cast(), 1, libc::MSG_PEEK | libc::MSG_DONTWAIT)
        };
        // Bytes that come back are left for the receiver to come.
        let is_open = count > 0 || count < 0 && io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock;
        self.broken |= !is_open;
        self.broken
    }

    fn unanswered(&self) -> u32 {
        // SAFETY: - all zeros are a tcp_info.
        let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
        let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
        // SAFETY: - info is valid for writes of its length.
        let outcome = unsafe {
            libc::getsockopt(
                self.wire.stream.as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                (&raw mut info).cast(),
                &raw mut length,
            )
        };
        // The kernel does not count probes of a receiver without room.
        if outcome == 0 && info.tcpi_unacked > 0 { u32::from(info.tcpi_retransmits) } else { 0 }
    }

    fn disconnect(&self) {
        disconnect(&self.wire.stream);
    }

    fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }

    fn waits_on(&self) -> Option<RawFd> {
        Some(self.wire.stream.as_raw_fd())
    }

    fn way_back(&self) -> Option<Box<dyn Inlet>> {
        Some(Box::new(Receiver::new(self.wire.clone())))
    }

    fn frame_bytes_max(&self) -> usize {
        FRAME_BYTES_MAX
    }

    fn data_bytes_max(&self) -> usize {
        DATA_BYTES_MAX
    }

    fn send(&mut self, parts: &[&[u8]]) {
        if self.broken {
            return;
        }
        let total: usize = parts.iter().map(|part| part.len()).sum();
        self.sent_bytes += total as u64;
        if self.wire.cipher.is_some() {
            let sealed = self.wire.seal(&[&parts.concat()]).expect("it is encrypted");
            return self.give(sealed);
        }
        let mut taken = 0;
        if self.queue.is_empty() {
            let slices: Vec<IoSlice> = parts.iter().map(|part| IoSlice::new(part)).collect();
            taken = self.write(&slices);
        }
        if taken < total && !self.broken {
            let mut rest = parts.concat();
            rest.drain(..taken);
            self.queue.push_back(Chunk::Copied(rest));
        }
    }

    fn send_shared(&mut self, head: &[u8], payload: &Arc<dyn Source>, start: usize, end: usize) {
        if self.broken {
            return;
        }
        debug_assert!(self.queue.is_empty());
        self.sent_bytes += (head.len() + end - start) as u64;
        if let Some(sealed) = self.wire.seal(&[head, &payload.bytes()[start..end]]) {
            return self.give(sealed);
        }
        let taken = self.write(&[IoSlice::new(head), IoSlice::new(&payload.bytes()[start..end])]);
        if self.broken {
            return;
        }
        if taken < head.len() {
            self.queue.push_back(Chunk::Copied(head[taken..].to_vec()));
        }
        let start = start + taken.saturating_sub(head.len());
        if start < end {
            self.queue.push_back(Chunk::Shared { payload: payload.clone(), start, end });
        }
    }

    fn detach(&mut self, payload: &[u8]) {
        for chunk in &mut self.queue {
            if matches!(chunk, Chunk::Shared { payload: queued, .. } if queued.bytes().as_ptr() == payload.as_ptr()) {
                // `gone` counts the part of the front that has been sent, and stays valid.
                *chunk = Chunk::Copied(chunk.bytes().to_vec());
            }
        }
    }

    fn flush(&mut self) {
        while let Some(chunk) = self.queue.pop_front() {
            let gone = self.gone;
            let length = chunk.bytes().len();
            let taken = self.write(&[IoSlice::new(&chunk.bytes()[gone..])]);
            if self.broken {
                return;
            }
            if gone + taken < length {
                self.gone = gone + taken;
                self.queue.push_front(chunk);
                return;
            }
            self.gone = 0;
        }
        self.move_on();
    }
}
