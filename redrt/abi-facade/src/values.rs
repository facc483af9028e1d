//! Addresses with a special meaning, and numbers that a program reads behind pointers: of attributes, and in the
//! contents of datatypes.

use crate::Family;
use crate::core::core;
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::{Mutex, PoisonError};

// Constants of the standard ABI.
/// `MPI_INFO_NULL`.
pub const INFO_NULL: usize = 304;
const IN_PLACE: usize = 1;
const BUFFER_AUTOMATIC: usize = 2;
const UNWEIGHTED: usize = 10;
const WEIGHTS_EMPTY: usize = 11;
const COMBINER_SUBARRAY: c_int = 111;
const COMBINER_DARRAY: c_int = 112;
const IO: c_int = 502;
const HOST: c_int = 503;
const LASTUSEDCODE: c_int = 506;
const WIN_CREATE_FLAVOR: c_int = 604;
const WIN_MODEL: c_int = 605;

/// The buffer for redrt's function.
#[inline]
#[must_use]
pub fn buffer_in<F: Family>(buffer: *mut c_void) -> *mut c_void {
    match buffer.addr() {
        address if address == F::IN_PLACE => std::ptr::without_provenance_mut(IN_PLACE),
        address if address == F::BUFFER_AUTOMATIC => std::ptr::without_provenance_mut(BUFFER_AUTOMATIC),
        _ => buffer,
    }
}

/// Translates a returned buffer.
///
/// # Safety
/// `address` is the place of a returned address.
pub unsafe fn buffer_out<F: Family>(address: *mut c_void) {
    let address = address.cast::<*mut c_void>();
    // SAFETY: - `address` is the place of an address: the caller's duty.
    if unsafe { (*address).addr() } == BUFFER_AUTOMATIC {
        // SAFETY: - `address` is the place of an address: the caller's duty.
        unsafe { *address = std::ptr::without_provenance_mut(F::BUFFER_AUTOMATIC) };
    }
}

/// The length of an array beside a buffer; 0 if the buffer is `MPI_IN_PLACE`.
pub fn unless_in_place<F: Family>(buffer: *const c_void, length: impl FnOnce() -> usize) -> usize {
    if buffer.addr() == F::IN_PLACE { 0 } else { length() }
}

/// The weights of a graph for redrt's function.
#[must_use]
pub fn weights_in<F: Family>(weights: *mut c_int) -> *mut c_int {
    match weights.addr() {
        address if address == F::UNWEIGHTED => std::ptr::without_provenance_mut(UNWEIGHTED),
        address if address == F::WEIGHTS_EMPTY => std::ptr::without_provenance_mut(WEIGHTS_EMPTY),
        _ => weights,
    }
}

/// Number of ranks with which a collective of a communicator exchanges; 0 for an invalid communicator.
#[must_use]
pub fn peers(comm: usize) -> usize {
    // SAFETY: - any number may be given.
    unsafe { (core().own.peers)(comm, 0) }
}

/// Number of neighbours from which a neighbourhood collective receives.
#[must_use]
pub fn sources(comm: usize) -> usize {
    // SAFETY: - any number may be given.
    unsafe { (core().own.peers)(comm, 1) }
}

/// Number of neighbours to which it sends.
#[must_use]
pub fn destinations(comm: usize) -> usize {
    // SAFETY: - any number may be given.
    unsafe { (core().own.peers)(comm, 2) }
}

/// Copies a status from one language's form to another's, whose layouts are the same.
///
/// # Safety
/// Both null or valid.
pub unsafe fn copy_status<S: Copy>(from: *const S, to: *mut S) -> c_int {
    if !from.is_null() && !to.is_null() {
        // SAFETY: - both pointers are valid, as they are not null: the caller's duty.
        unsafe { to.copy_from(from, 1) };
    }
    0
}

/// Translates the integers that `MPI_Type_get_contents` returned.
///
/// # Safety
/// `integers` is valid for `count` integers.
pub unsafe fn contents_out<F: Family>(datatype: usize, integers: *mut c_int, count: i64, large: bool) {
    let (mut unused, mut combiner) = ([0_i64; 4], 0);
    let [integer_count, address_count, large_count, datatype_count] = &mut unused;
    // SAFETY: - all pointers are to locals.
    let code = unsafe {
        (core().type_get_envelope_c)(datatype, integer_count, address_count, large_count, datatype_count, &mut combiner)
    };
    let constructor = match combiner {
        COMBINER_SUBARRAY => Constructor::Subarray,
        COMBINER_DARRAY => Constructor::Darray,
        _ => return,
    };
    if code == 0 && !integers.is_null() {
        let count = usize::try_from(count).unwrap_or(0);
        // SAFETY: - `integers` is valid for `count` integers: the caller's duty.
        let integers = unsafe { std::slice::from_raw_parts_mut(integers, count) };
        translate_contents(integers, constructor, large, &F::names());
    }
}

/// Translates a predefined attribute, if `flag` says that the key has one.
///
/// # Safety
/// `value` is the place of a returned pointer: to an `int`, if the key is one of those here.
pub unsafe fn attribute_out<F: Family>(keyval: c_int, flag: c_int, value: *mut c_void) {
    let translate = match keyval {
        _ if flag == 0 => return,
        WIN_CREATE_FLAVOR => F::flavor_out,
        WIN_MODEL => F::model_out,
        HOST | IO => F::rank_out,
        LASTUSEDCODE => F::error_out,
        _ => return,
    };
    // SAFETY: - `value` is the place of a pointer to an `int`: the caller's duty.
    let number = unsafe { **value.cast::<*const c_int>() };
    // SAFETY: - `value` is the place of a pointer: the caller's duty.
    unsafe { *value.cast::<*mut c_void>() = kept(translate(number)) };
}

/// Constructors with constants among the integers of `MPI_Type_get_contents` (MPI-5.0 section 5.1.13).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Constructor {
    /// `MPI_Type_create_subarray`.
    Subarray,
    /// `MPI_Type_create_darray`.
    Darray,
}

/// Translations of the constants of a family's constructors.
#[derive(Clone, Copy, Debug)]
pub struct Names {
    /// `MPI_ORDER_C` and `_FORTRAN`.
    pub order: fn(c_int) -> c_int,
    /// `MPI_DISTRIBUTE_NONE` and its like.
    pub distribution: fn(c_int) -> c_int,
    /// `MPI_DISTRIBUTE_DFLT_DARG`.
    pub darg: fn(c_int) -> c_int,
}

/// Translates the integers of a constructor. With `large`, the large-count version, sizes are not among them.
pub fn translate_contents(integers: &mut [c_int], constructor: Constructor, large: bool, names: &Names) {
    let at = |index: usize| integers.get(index).map_or(0, |value| usize::try_from(*value).unwrap_or(0));
    let (order, distributions) = match (constructor, large) {
        (Constructor::Subarray, false) => (3 * at(0) + 1, 0..0),
        (Constructor::Subarray, true) => (1, 0..0),
        (Constructor::Darray, false) => (4 * at(2) + 3, 3 + at(2)..3 + 2 * at(2)),
        (Constructor::Darray, true) => (3 * at(2) + 3, 3..3 + at(2)),
    };
    let count = distributions.len();
    for index in distributions {
        if let Some(value) = integers.get_mut(index) {
            *value = (names.distribution)(*value);
        }
        if let Some(value) = integers.get_mut(index + count) {
            *value = (names.darg)(*value);
        }
    }
    if let Some(value) = integers.get_mut(order) {
        *value = (names.order)(*value);
    }
}

/// The address of a number, for programs that get addresses. The numbers are few, and stay.
pub fn kept(value: c_int) -> *mut c_void {
    static KEPT: Mutex<Option<HashMap<c_int, &'static c_int>>> = Mutex::new(None);
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    let place = kept.get_or_insert_default().entry(value).or_insert_with(|| Box::leak(Box::new(value)));
    std::ptr::from_ref(*place).cast_mut().cast()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: Names = Names { order: |v| v + 1000, distribution: |v| v + 2000, darg: |v| v + 3000 };

    #[test]
    fn constants_of_constructors_are_translated_and_nothing_else() {
        let mut subarray = [2, 5, 6, 3, 4, 1, 1, 12];
        translate_contents(&mut subarray, Constructor::Subarray, false, &NAMES);
        assert_eq!(subarray, [2, 5, 6, 3, 4, 1, 1, 1012]);
        let mut darray = [4, 0, 2, 8, 9, 16, 17, 19, 19, 2, 2, 15];
        translate_contents(&mut darray, Constructor::Darray, false, &NAMES);
        assert_eq!(darray, [4, 0, 2, 8, 9, 2016, 2017, 3019, 3019, 2, 2, 1015]);
        let mut large = [4, 0, 2, 16, 17, 19, 19, 2, 2, 15];
        translate_contents(&mut large, Constructor::Darray, true, &NAMES);
        assert_eq!(large, [4, 0, 2, 2016, 2017, 3019, 3019, 2, 2, 1015]);
    }
}
