//! Epochs (MPI-5.0 §12.5).

use super::{check_assert, member};
use redrt_abi::error::{Error, Result};
use redrt_abi::fail;
use redrt_abi::handle::{GroupHandle, WinHandle};
use redrt_abi::{
    MPI_ERR_GROUP, MPI_ERR_LOCKTYPE, MPI_LOCK_EXCLUSIVE, MPI_LOCK_SHARED, MPI_MODE_NOCHECK, MPI_MODE_NOPRECEDE,
    MPI_MODE_NOPUT, MPI_MODE_NOSTORE, MPI_MODE_NOSUCCEED, MPI_PROC_NULL, Output,
};
use redrt_comm::objects::group;
use redrt_window::{self as window, Window};
use std::ffi::c_int;

/// `MPI_Win_fence`.
pub fn win_fence(assert: c_int, win: WinHandle) -> Result {
    let window = window::resolve(win)?;
    check_assert(assert, MPI_MODE_NOSTORE | MPI_MODE_NOPUT | MPI_MODE_NOPRECEDE | MPI_MODE_NOSUCCEED)?;
    window.fence(assert & MPI_MODE_NOSUCCEED == 0)
}

/// The ranks in the window of a group's members.
fn members_of(window: &Window, group: GroupHandle) -> Result<Vec<u32>> {
    let rank_of = |world: u32| match window.comm.members.iter().position(|member| member.0 == world) {
        Some(rank) => Ok(rank as u32),
        None => {
            let message = format!("rank {world} of MPI_COMM_WORLD is in the group but not in {}", window.label());
            Err(Error::new(MPI_ERR_GROUP, message))
        }
    };
    group::resolve(group)?.world_ranks().map(rank_of).collect()
}

/// `MPI_Win_start`.
pub fn win_start(group: GroupHandle, assert: c_int, win: WinHandle) -> Result {
    let window = window::resolve(win)?;
    check_assert(assert, MPI_MODE_NOCHECK)?;
    window.start(members_of(&window, group)?, assert & MPI_MODE_NOCHECK == 0)
}

/// `MPI_Win_complete`.
pub fn win_complete(win: WinHandle) -> Result {
    window::resolve(win)?.complete()
}

/// `MPI_Win_post`.
pub fn win_post(group: GroupHandle, assert: c_int, win: WinHandle) -> Result {
    let window = window::resolve(win)?;
    check_assert(assert, MPI_MODE_NOCHECK | MPI_MODE_NOSTORE | MPI_MODE_NOPUT)?;
    window.post(members_of(&window, group)?, assert & MPI_MODE_NOCHECK == 0)
}

/// `MPI_Win_wait`.
pub fn win_wait(win: WinHandle) -> Result {
    window::resolve(win)?.wait()
}

/// `MPI_Win_test`.
pub fn win_test(win: WinHandle, flag: Output<c_int>) -> Result {
    flag.set(c_int::from(window::resolve(win)?.test()?))
}

/// `MPI_Win_lock`.
pub fn win_lock(lock_type: c_int, rank: c_int, assert: c_int, win: WinHandle) -> Result {
    let window = window::resolve(win)?;
    let exclusive = match lock_type {
        MPI_LOCK_EXCLUSIVE => true,
        MPI_LOCK_SHARED => false,
        other => fail!(MPI_ERR_LOCKTYPE, "{other} is not a type of lock"),
    };
    check_assert(assert, MPI_MODE_NOCHECK)?;
    if rank == MPI_PROC_NULL {
        return Ok(());
    }
    window.lock(member(&window, rank)?, exclusive, assert & MPI_MODE_NOCHECK != 0)
}

/// `MPI_Win_unlock`.
pub fn win_unlock(rank: c_int, win: WinHandle) -> Result {
    let window = window::resolve(win)?;
    if rank == MPI_PROC_NULL {
        return Ok(());
    }
    window.unlock(member(&window, rank)?)
}

/// `MPI_Win_lock_all`.
pub fn win_lock_all(assert: c_int, win: WinHandle) -> Result {
    let window = window::resolve(win)?;
    check_assert(assert, MPI_MODE_NOCHECK)?;
    window.lock_all(assert & MPI_MODE_NOCHECK != 0)
}

/// `MPI_Win_unlock_all`.
pub fn win_unlock_all(win: WinHandle) -> Result {
    window::resolve(win)?.unlock_all()
}

/// `MPI_Win_flush`.
pub fn win_flush(rank: c_int, win: WinHandle) -> Result {
    let window = window::resolve(win)?;
    if rank == MPI_PROC_NULL {
        return Ok(());
    }
    window.flush(Some(member(&window, rank)?))
}

/// `MPI_Win_flush_all`.
pub fn win_flush_all(win: WinHandle) -> Result {
    window::resolve(win)?.flush(None)
}

/// `MPI_Win_flush_local`.
pub fn win_flush_local(rank: c_int, win: WinHandle) -> Result {
    let window = window::resolve(win)?;
    if rank == MPI_PROC_NULL {
        return Ok(());
    }
    window.flush_local(Some(member(&window, rank)?))
}

/// `MPI_Win_flush_local_all`.
pub fn win_flush_local_all(win: WinHandle) -> Result {
    window::resolve(win)?.flush_local(None)
}

/// `MPI_Win_sync`.
pub fn win_sync(win: WinHandle) -> Result {
    window::resolve(win)?.sync()
}
