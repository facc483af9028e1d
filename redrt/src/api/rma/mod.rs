//! One-sided communication (MPI-5.0 chapter 12).

mod access;
mod accumulate;
mod create;
mod synchronize;

pub use access::*;
pub use accumulate::*;
pub use create::*;
pub use synchronize::*;

use redrt_abi::error::{Error, Result};
use redrt_abi::{MPI_ERR_ASSERT, MPI_ERR_RANK, MPI_PROC_NULL};
use redrt_window::Window;
use std::ffi::c_int;

/// The target of a call; `None` for `MPI_PROC_NULL`, for which nothing is done (MPI-5.0 §12.3).
fn target_of(window: &Window, rank: c_int) -> Result<Option<u32>> {
    match rank {
        MPI_PROC_NULL => Ok(None),
        rank => member(window, rank).map(Some),
    }
}

fn member(window: &Window, rank: c_int) -> Result<u32> {
    let count = window.members.len();
    match u32::try_from(rank).ok().filter(|rank| (*rank as usize) < count) {
        Some(rank) => Ok(rank),
        None => Err(Error::new(MPI_ERR_RANK, format!("rank {rank} is not in 0..{count} of {}", window.label()))),
    }
}

/// Refuses assertions other than `allowed`.
fn check_assert(assert: c_int, allowed: c_int) -> Result {
    if assert & !allowed != 0 {
        return Err(Error::new(MPI_ERR_ASSERT, format!("{assert:#x} is no set of assertions for this call")));
    }
    Ok(())
}
