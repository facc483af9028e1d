//! Payloads: the bytes of outgoing messages, and the destinations of received ones.

use redrt_transport::copying;
use redrt_transport::memory::Scratch;
use redrt_transport::network::Source;
use std::sync::Arc;

/// Longest payload that is copied to the retention log, so that its send completes at once.
pub const EAGER_BYTES_MAX: usize = redrt_transport::shm::FRAME_BYTES_MAX - 64;

/// Returns true if a payload of this length in bytes goes with its offer, where ranks are replicated.
#[inline]
pub(super) fn is_short(length: usize, synchronous: bool) -> bool {
    length <= EAGER_BYTES_MAX && !synchronous
}

/// The bytes of one outgoing message.
pub enum Payload {
    /// A copy of the engine's own.
    Owned(Box<[u8]>),
    /// A copy in reusable staging memory.
    Packed(Box<Scratch>),
    /// Any other kind, needed in several places.
    Shared(Arc<Payload>),
    /// The application's buffer, which MPI forbids it to change before the request completes.
    User {
        /// Address of the first byte.
        start: *const u8,
        /// Length in bytes.
        length: usize,
    },
}

// SAFETY: - the pointer is to memory that the application has lent until the request completes, and is only read.
unsafe impl Send for Payload {}
// SAFETY: - through a shared reference the memory is only read, and the application may not write to what it has lent.
unsafe impl Sync for Payload {}

impl Payload {
    /// The application's buffer, lent.
    ///
    /// # Safety
    /// `length` bytes at `start` must stay readable and unchanged as long as the payload exists.
    pub unsafe fn user(start: *const u8, length: usize) -> Self {
        Self::User { start, length }
    }

    /// The same bytes in memory that the application does not own.
    #[must_use]
    pub fn into_owned(self) -> Self {
        match self {
            Self::User { length: 0, .. } => Self::Owned(Box::default()),
            // SAFETY: - `user` was promised that the bytes stay readable and unchanged.
            Self::User { start, length } => Self::Owned(unsafe { std::slice::from_raw_parts(start, length) }.into()),
            own => own,
        }
    }

    /// The same payload for another holder. Becomes shared only on the first call: most payloads have one holder.
    pub fn share(&mut self) -> Arc<Self> {
        if let Self::Shared(shared) = self {
            return shared.clone();
        }
        let shared = Arc::new(std::mem::replace(self, Self::Owned(Box::default())));
        *self = Self::Shared(shared.clone());
        shared
    }

    /// Returns true if the bytes are in the application's buffer.
    pub fn is_lent(&self) -> bool {
        match self {
            Self::User { .. } => true,
            Self::Owned(_) | Self::Packed(_) => false,
            Self::Shared(shared) => shared.is_lent(),
        }
    }

    /// Number of bytes.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        match self {
            Self::Owned(bytes) => bytes.len(),
            Self::Packed(scratch) => scratch.bytes().len(),
            Self::Shared(shared) => shared.len(),
            Self::User { length, .. } => *length,
        }
    }

    /// The bytes of a shared payload. Never inlined: else the code inlined below would take the address of a payload. A
    /// payload whose address is not taken can be in registers. In memory it is written in small parts and read in large
    /// ones, which makes the processor wait for all its earlier writes.
    #[inline(never)]
    fn shared_bytes(&self) -> &[u8] {
        self.bytes()
    }

    /// Address of the bytes.
    pub fn address(&self) -> u64 {
        self.bytes().as_ptr() as u64
    }
}

impl Source for Payload {
    #[inline(always)]
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Owned(bytes) => bytes,
            Self::Packed(scratch) => scratch.bytes(),
            Self::Shared(shared) => shared.shared_bytes(),
            Self::User { length: 0, .. } => &[],
            // SAFETY: - `user` was promised that the bytes stay readable and unchanged.
            Self::User { start, length } => unsafe { std::slice::from_raw_parts(*start, *length) },
        }
    }
}

/// Spreads a packed payload over a non-contiguous buffer, and collects it again.
pub trait Scatter: Send + Sync {
    /// Writes `packed`, the bytes of the packed form from `position` on, to the buffer at `to`. More may follow them.
    ///
    /// # Safety
    /// `to` must be valid for writes wherever the type map reaches.
    unsafe fn scatter(&self, to: *mut u8, position: u64, packed: &[u8]);

    /// Returns the first `length` bytes of the packed form of the buffer at `from`.
    ///
    /// # Safety
    /// `from` must be valid for reads wherever the type map reaches.
    unsafe fn gather(&self, from: *const u8, length: usize) -> Vec<u8>;
}

/// Destination of a received payload.
pub struct Target {
    /// Address of the application's buffer.
    pub start: *mut u8,
    /// Bound on the packed bytes it takes.
    pub capacity: u64,
    /// Layout of the buffer; `None` when it is contiguous.
    pub scatter: Option<Box<dyn Scatter>>,
}

// SAFETY: - the pointer is to memory that the application has lent until the request completes; the holder of the
//           engine's lock writes to it.
unsafe impl Send for Target {}

impl Target {
    /// A destination without room.
    pub fn nowhere() -> Self {
        Self { start: std::ptr::NonNull::dangling().as_ptr(), capacity: 0, scatter: None }
    }

    /// Writes as much of the front of `packed` as fits, and returns the number of bytes written.
    ///
    /// # Safety
    /// The application's buffer must be valid for writes wherever its datatype reaches.
    pub unsafe fn place(&self, packed: &[u8]) -> u64 {
        // SAFETY: - the buffer is valid: the caller's duty.
        unsafe { self.place_at(0, packed) }
    }

    /// Writes bytes of the packed form from `position` on, as [`Target::place`] does.
    ///
    /// # Safety
    /// As for [`Target::place`].
    pub unsafe fn place_at(&self, position: u64, packed: &[u8]) -> u64 {
        let length = (packed.len() as u64).min(self.capacity.saturating_sub(position)) as usize;
        match &self.scatter {
            // SAFETY: - length bytes from position on fit the buffer by its capacity.
            //         - packed is our own memory, or a transport's, or the buffer of a self-send, which may be the same
            //           memory only if the application broke the rule that a receive buffer is not accessed: use the
            //           overlapping copy.
            None => unsafe { copying::copy(packed.as_ptr(), self.start.wrapping_add(position as usize), length) },
            // SAFETY: - the buffer is valid: the caller's duty.
            Some(scatter) => unsafe { scatter.scatter(self.start, position, &packed[..length]) },
        }
        length as u64
    }

    /// Flips a bit among the first `length` packed bytes in the buffer, for an injected fault.
    ///
    /// # Safety
    /// The application's buffer must be valid for reads and writes wherever its datatype reaches, and at least `length`
    /// bytes long.
    pub unsafe fn flip(&self, bit: u64, length: usize) {
        let (byte, mask) = ((bit / 8) as usize, 1 << (bit % 8));
        match &self.scatter {
            // SAFETY: - the buffer is valid, the caller's duty; the byte is one of its first `length`.
            None => unsafe { *self.start.add(byte) ^= mask },
            Some(scatter) => {
                // SAFETY: - the buffer is valid: the caller's duty.
                let mut packed = unsafe { scatter.gather(self.start, length) };
                packed[byte] ^= mask;
                // SAFETY: - the buffer is valid, the caller's duty, and unchanged since its bytes were gathered.
                unsafe { scatter.scatter(self.start, 0, &packed) };
            }
        }
    }

    /// The buffer itself, if a payload of `length` bytes can be written straight to it.
    pub fn contiguous(&self, length: u64) -> Option<*mut u8> {
        (self.scatter.is_none() && length <= self.capacity).then_some(self.start)
    }
}
