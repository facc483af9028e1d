//! Transports of frames between processes: shared memory inside a host, a network between hosts.
//!
//! Both ends of a link are nonblocking. A sender offers a frame and learns at once if it went; other frames wait in the
//! engine's backlog. A receiver gets one frame at a time, whose body stays in place until consumed. A process opens the
//! connection that it sends on when it first sends. Where both of two have opened one, the engine moves them to one
//! connection for both directions.

pub mod board;
pub mod copying;
pub mod descriptors;
pub mod direct;
pub mod frame;
#[cfg(test)]
mod fuzz;
pub mod memory;
pub mod network;
pub mod rendezvous_buffer;
pub mod shm;
pub mod tcp;

pub use rendezvous_buffer::{RendezvousBufferId, RendezvousBuffers};

/// The body of a received frame, in the transport's own memory.
#[derive(Clone, Copy)]
pub struct Body {
    start: *const u8,
    length: usize,
}

impl Body {
    /// Makes a body of `length` bytes at `start`.
    ///
    /// # Safety
    /// The bytes must stay readable and unchanged until the frame is consumed, and the Body must not be used after
    /// that.
    #[inline]
    pub unsafe fn new(start: *const u8, length: usize) -> Self {
        Self { start, length }
    }

    /// The bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: - the maker promised that the bytes are readable and unchanged while the Body is used.
        unsafe { std::slice::from_raw_parts(self.start, self.length) }
    }

    /// The body after its first `count` bytes; empty when there are fewer.
    #[must_use]
    #[inline]
    pub fn skip(&self, count: usize) -> Self {
        let count = count.min(self.length);
        // SAFETY: - count is within the body.
        Self { start: unsafe { self.start.add(count) }, length: self.length - count }
    }
}
