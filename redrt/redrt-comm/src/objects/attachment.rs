//! Buffers that programs attach for buffered mode (MPI-5.0 §3.6).

use redrt_abi::MPI_ERR_BUFFER;
use redrt_abi::error::{Error, Result};
use redrt_engine::Engine;
use redrt_engine::request::RequestId;

/// Address and size that stand for `MPI_BUFFER_AUTOMATIC`: the library finds the space.
fn is_automatic(address: usize) -> bool {
    address == redrt_abi::MPI_BUFFER_AUTOMATIC as usize
}

/// A buffer that the program has attached for buffered sends (MPI-5.0 §3.6).
pub struct Attachment {
    /// Address of the buffer.
    pub address: usize,
    /// Length of the buffer in bytes.
    pub size: i64,
    /// Sends that use the buffer, with the number of bytes of each.
    pub pending: Vec<(RequestId, i64)>,
}

impl Attachment {
    /// Removes sends that are complete. Returns the number of bytes that are still in use.
    fn settle(&mut self, engine: &mut Engine) -> i64 {
        self.pending.retain(|(id, _)| {
            let pending = !engine.requests.is_complete(*id);
            if !pending {
                engine.requests.take(*id);
            }
            pending
        });
        self.pending.iter().map(|(_, bytes)| bytes).sum()
    }

    /// Reserves `bytes` bytes of the buffer. Fails if they are not free.
    pub fn reserve(&mut self, engine: &mut Engine, bytes: i64) -> Result {
        let used = self.settle(engine);
        if !is_automatic(self.address) && used + bytes > self.size {
            let message = format!("{bytes} bytes do not fit the attached buffer of {} with {used} pending", self.size);
            return Err(Error::new(MPI_ERR_BUFFER, message));
        }
        Ok(())
    }
}
