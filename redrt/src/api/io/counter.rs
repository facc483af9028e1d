//! The value of a shared file pointer, in a window, so that all members reach it.

use crate::api::rma::{fetch_and_op, win_lock, win_unlock};
use redrt_abi::MPI_LOCK_EXCLUSIVE;
use redrt_abi::error::Result;
use redrt_abi::handle::{DatatypeHandle, OpHandle};
use redrt_comm::comm::Comm;
use redrt_files::file::shared::Counter;
use redrt_window::Window;
use redrt_window::create::{Memories, create, remove};
use std::sync::Arc;

struct InWindow(Arc<Window>);

/// Makes a counter in a window ([`redrt_files::file::shared::MakeCounter`]). Collective over `comm`.
pub fn in_window(comm: &Arc<Comm>) -> Result<Box<dyn Counter>> {
    let bytes = if comm.rank == 0 { size_of::<i64>() as u64 } else { 0 };
    Ok(Box::new(InWindow(create(comm, Memories::Allocate(bytes, 1), None)?)))
}

impl Counter for InWindow {
    fn exchange(&self, value: i64, op: OpHandle) -> Result<i64> {
        let window = self.0.handle();
        let mut former = 0i64;
        win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window)?;
        let (value, result) = ((&raw const value).cast(), (&raw mut former).cast());
        // SAFETY: - two numbers of the named type: local variables, which live until the unlock below completes the
        //           operation.
        let fetched = unsafe { fetch_and_op(value, result, DatatypeHandle::INT64_T, 0, 0, op, window) };
        win_unlock(0, window)?;
        fetched?;
        Ok(former)
    }

    fn close(&self) -> Result {
        self.0.close()?;
        remove(&self.0);
        Ok(())
    }
}
