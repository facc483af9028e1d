//! The tool information interface (MPI-5.0 chapter 15): control variables, performance variables, events, and their
//! categories. Their lists do not change while a process runs.
//!
//! The functions return error codes and never invoke an error handler (section 15.3).

mod category;
mod control;
mod enumeration;
mod event;
mod performance;

pub use category::*;
pub use control::*;
pub use enumeration::*;
pub use event::*;
pub use performance::*;

use redrt_abi::error::{Error, Result};
use redrt_abi::*;
use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicU32, Ordering};

process_local! {
    /// Number of initializations of the interface that were not finalized.
    static INITIALIZED_COUNT: AtomicU32 = AtomicU32::new(0);
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

/// Returns a string of a query, cut to the room that `length` gives, and sets `length` to the room needed (§15.3.3).
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

/// Sets an output of a query, unless its pointer is null (§15.3.3).
fn set<T: Copy>(place: Output<T>, value: T) {
    place.set_if_wanted(value);
}

/// The entry of a list at an index that the program passed.
fn entry<T>(list: &'static [T], index: c_int) -> Result<&'static T> {
    check_initialized()?;
    let found = usize::try_from(index).ok().and_then(|index| list.get(index));
    found.ok_or_else(|| Error::new(MPI_T_ERR_INVALID_INDEX, "there is nothing with this index"))
}

/// Sets the index of the entry with this name.
fn index_of(names: impl Iterator<Item = &'static str>, name: Input<c_char>, index: Output<c_int>) -> Result {
    check_initialized()?;
    let name = name.text()?;
    match { names }.position(|known| known == name) {
        Some(place) => index.set(place as c_int),
        None => Err(Error::new(MPI_T_ERR_INVALID_NAME, format!("nothing here is called '{name}'"))),
    }
}

/// The program's buffer, as the place of one value.
fn value_at<T>(buffer: *mut c_void) -> Output<T> {
    Output::from_address(buffer)
}
