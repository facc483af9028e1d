//! The tool information interface (MPI-5.0 chapter 15), with no variables, categories, events or sources in it. The
//! functions that need one are generated: they refuse every index, name and handle.
//!
//! Its functions return their error codes and never invoke an error handler (section 15.3).

use crate::abi::*;
use crate::error::{Error, Result};
use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};

/// How many more times the interface was initialized than finalized.
static INITIALIZED_COUNT: AtomicU32 = AtomicU32::new(0);

/// What a function returns that got something that does not exist.
pub(crate) fn refuse(code: c_int) -> c_int {
    check_initialized().err().map_or(code, |error| error.code())
}

fn check_initialized() -> Result {
    if INITIALIZED_COUNT.load(Ordering::Relaxed) == 0 {
        return Err(Error::new(MPI_T_ERR_NOT_INITIALIZED, "MPI_T_init_thread was not called"));
    }
    Ok(())
}

/// `MPI_T_init_thread`.
pub fn t_init_thread(_required: c_int, provided: Output<c_int>) -> Result {
    provided.set(MPI_THREAD_MULTIPLE)?;
    INITIALIZED_COUNT.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// `MPI_T_finalize`.
pub fn t_finalize() -> Result {
    let decrement = |count: u32| count.checked_sub(1);
    let done = INITIALIZED_COUNT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, decrement);
    done.map(drop).map_err(|_| Error::new(MPI_T_ERR_NOT_INITIALIZED, "MPI_T_init_thread was not called"))
}

fn none(count: Output<c_int>) -> Result {
    check_initialized()?;
    count.set(0)
}

/// `MPI_T_cvar_get_num`.
pub fn t_cvar_get_num(num_cvar: Output<c_int>) -> Result {
    none(num_cvar)
}

/// `MPI_T_pvar_get_num`.
pub fn t_pvar_get_num(num_pvar: Output<c_int>) -> Result {
    none(num_pvar)
}

/// `MPI_T_category_get_num`.
pub fn t_category_get_num(num_cat: Output<c_int>) -> Result {
    none(num_cat)
}

/// `MPI_T_event_get_num`.
pub fn t_event_get_num(num_events: Output<c_int>) -> Result {
    none(num_events)
}

/// `MPI_T_source_get_num`.
pub fn t_source_get_num(num_sources: Output<c_int>) -> Result {
    none(num_sources)
}

/// `MPI_T_category_changed`: they never do.
pub fn t_category_changed(update_number: Output<c_int>) -> Result {
    none(update_number)
}

/// The one session there is: without variables it has no state.
const SESSION: ToolHandle = ToolHandle(0x1000);

/// `MPI_T_pvar_session_create`.
pub fn t_pvar_session_create(pe_session: Output<ToolHandle>) -> Result {
    check_initialized()?;
    pe_session.set(SESSION)
}

/// `MPI_T_pvar_session_free`.
pub fn t_pvar_session_free(pe_session: Output<ToolHandle>) -> Result {
    check_initialized()?;
    check_session(pe_session.get()?)?;
    pe_session.set(MPI_T_PVAR_SESSION_NULL)
}

fn check_session(session: ToolHandle) -> Result {
    if session != SESSION {
        return Err(Error::new(MPI_T_ERR_INVALID_SESSION, "not a session"));
    }
    Ok(())
}

/// All variables of a session are none, which can be started and stopped; any one does not exist.
fn all_handles(session: ToolHandle, handle: ToolHandle) -> Result {
    check_initialized()?;
    check_session(session)?;
    if handle != MPI_T_PVAR_ALL_HANDLES {
        return Err(Error::new(MPI_T_ERR_INVALID_HANDLE, "not a performance variable"));
    }
    Ok(())
}

/// `MPI_T_pvar_start`.
pub fn t_pvar_start(pe_session: ToolHandle, handle: ToolHandle) -> Result {
    all_handles(pe_session, handle)
}

/// `MPI_T_pvar_stop`.
pub fn t_pvar_stop(pe_session: ToolHandle, handle: ToolHandle) -> Result {
    all_handles(pe_session, handle)
}

/// `MPI_T_pvar_reset`.
pub fn t_pvar_reset(pe_session: ToolHandle, handle: ToolHandle) -> Result {
    all_handles(pe_session, handle)
}
