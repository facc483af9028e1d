//! The tool information interface (MPI-5.0 chapter 15): control and performance variables of real things. There are no
//! categories, enumerations, events and sources; the functions that need one are generated, and refuse every index, name and
//! handle.
//!
//! Its functions return their error codes and never invoke an error handler (section 15.3).

mod control;
mod performance;

pub use control::*;
pub use performance::*;

use crate::abi::*;
use crate::error::{Error, Result};
use std::ffi::{c_char, c_int, c_void};
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

/// Where a string of a query goes, and how much room there is (§15.3.3): cut short to it, and told how much is needed.
fn put_text(text: &str, place: Output<c_char>, length: Output<c_int>) -> Result {
    if length.is_null() {
        return Ok(());
    }
    let room = usize::try_from(length.get()?).unwrap_or(0);
    if room > 0 && !place.is_null() {
        place.set_text(text, room)?;
    }
    length.set(text.len() as c_int + 1)
}

/// Writes what a query's caller wants to know; any of its pointers may be null (§15.3.3).
fn tell<T: Copy>(place: Output<T>, value: T) {
    place.set_if_wanted(value);
}

/// The entry of a list that an index of the program names.
fn entry<T>(list: &'static [T], index: c_int) -> Result<&'static T> {
    check_initialized()?;
    let found = usize::try_from(index).ok().and_then(|index| list.get(index));
    found.ok_or_else(|| Error::new(MPI_T_ERR_INVALID_INDEX, "there is no variable with this index"))
}

/// The address of a value in the program's buffer.
fn value_at(buffer: *mut c_void) -> Output<u64> {
    Output::from_address(buffer)
}
