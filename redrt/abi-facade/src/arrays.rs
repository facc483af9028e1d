//! Arrays of handles and of constants, and outgoing strings.

use crate::handles::{Handle, UNSET};
use crate::statuses::SHORT;
use std::ffi::{c_char, c_int};

/// redrt's handles in place of an array of the program.
pub struct Handles {
    count: usize,
    is_null: bool,
    short: [usize; SHORT],
    long: Vec<usize>,
}

impl Handles {
    fn with_count(count: usize, is_null: bool) -> Self {
        let count = if is_null { 0 } else { count };
        let long = if count > SHORT { vec![UNSET; count] } else { Vec::new() };
        Self { count, is_null, short: [UNSET; SHORT], long }
    }

    /// redrt's handles for the program's.
    ///
    /// # Safety
    /// Null, or valid for reads of `count` handles.
    pub unsafe fn new<H: Handle>(pointer: *const H, count: impl TryInto<usize>) -> Self {
        let mut handles = Self::with_count(count.try_into().unwrap_or(0), pointer.is_null());
        for (index, handle) in handles.slice().iter_mut().enumerate() {
            // SAFETY: - index is below count, for which the pointer is valid: the caller's duty.
            *handle = unsafe { (*pointer.add(index)).core() };
        }
        handles
    }

    /// Room for outgoing handles.
    pub fn unset<H: Handle>(pointer: *const H, count: impl TryInto<usize>) -> Self {
        Self::with_count(count.try_into().unwrap_or(0), pointer.is_null())
    }

    fn slice(&mut self) -> &mut [usize] {
        if self.count > SHORT { &mut self.long } else { &mut self.short[..self.count] }
    }

    /// The argument for redrt's function; null if the program passed null.
    #[must_use]
    pub fn as_ptr(&self) -> *const usize {
        match self.is_null {
            true => std::ptr::null(),
            false if self.count > SHORT => self.long.as_ptr(),
            false => self.short.as_ptr(),
        }
    }

    /// The argument for redrt's function, which writes there; null if the program passed null.
    pub fn as_mut_ptr(&mut self) -> *mut usize {
        if self.is_null {
            std::ptr::null_mut()
        } else if self.count > SHORT {
            self.long.as_mut_ptr()
        } else {
            self.short.as_mut_ptr()
        }
    }

    /// Returns the handles to the program.
    ///
    /// # Safety
    /// `pointer` is the one that this was made from, valid for writes.
    pub unsafe fn give<H: Handle>(&mut self, pointer: *mut H) {
        for (index, value) in self.slice().iter().enumerate() {
            if *value != UNSET {
                // SAFETY: - index is below the number of handles, for which the pointer is valid: the
                //           caller's duty.
                unsafe { *pointer.add(index) = H::of(*value) };
            }
        }
    }
}

/// Incoming constants.
pub struct Integers(Vec<c_int>, bool);

impl Integers {
    /// The constants, each translated by `translate`.
    ///
    /// # Safety
    /// Null, or valid for reads of `count` integers.
    pub unsafe fn new(pointer: *const c_int, count: usize, translate: fn(c_int) -> c_int) -> Self {
        let count = if pointer.is_null() { 0 } else { count };
        // SAFETY: - index is below count, for which the pointer is valid: the caller's duty.
        Self((0..count).map(|index| translate(unsafe { *pointer.add(index) })).collect(), pointer.is_null())
    }

    /// The argument for redrt's function; null if the program passed null.
    #[must_use]
    pub fn as_ptr(&self) -> *const c_int {
        if self.1 { std::ptr::null() } else { self.0.as_ptr() }
    }
}

/// Translates outgoing constants in place.
///
/// # Safety
/// Null, or valid for reads and writes of `count` integers.
pub unsafe fn integers_out(pointer: *mut c_int, count: usize, translate: fn(c_int) -> c_int) {
    for index in 0..if pointer.is_null() { 0 } else { count } {
        // SAFETY: - index is below count, for which the pointer is valid: the caller's duty.
        unsafe { *pointer.add(index) = translate(*pointer.add(index)) };
    }
}

/// The sum of an array, which is the length of another one.
///
/// # Safety
/// Null, or valid for reads of `count` integers.
#[must_use]
pub unsafe fn sum(pointer: *const c_int, count: c_int) -> usize {
    let count = if pointer.is_null() { 0 } else { count };
    // SAFETY: - index is below count, for which the pointer is valid: the caller's duty.
    (0..count).map(|index| usize::try_from(unsafe { *pointer.add(index as usize) }).unwrap_or(0)).sum()
}

/// The longest string of the standard ABI, `MPI_MAX_LIBRARY_VERSION_STRING`.
const LONGEST: usize = 8192;

/// A string of redrt that may be longer than the program's buffer.
pub struct Text {
    bytes: [c_char; LONGEST],
    is_null: bool,
}

impl Text {
    /// Room for any string of the standard ABI.
    #[must_use]
    pub fn new(pointer: *const c_char) -> Self {
        Self { bytes: [0; LONGEST], is_null: pointer.is_null() }
    }

    /// The argument for redrt's function, which writes there; null if the program passed null.
    pub fn as_mut_ptr(&mut self) -> *mut c_char {
        if self.is_null { std::ptr::null_mut() } else { self.bytes.as_mut_ptr() }
    }

    /// Returns the part that fits into `room` bytes with the NUL, and its length.
    ///
    /// # Safety
    /// `pointer` is the one that this was made from, with that room; the length is null or valid for a write.
    pub unsafe fn give(&self, pointer: *mut c_char, room: usize, length: *mut c_int) {
        let own = self.bytes.iter().take_while(|byte| **byte != 0).count().min(room - 1);
        // SAFETY: - own is below room, for which the pointer is valid: the caller's duty.
        unsafe { pointer.copy_from_nonoverlapping(self.bytes.as_ptr(), own) };
        // SAFETY: - own is at most the last byte of the room.
        unsafe { *pointer.add(own) = 0 };
        if !length.is_null() {
            // SAFETY: - `length` is valid for a write: the caller's duty.
            unsafe { *length = own as c_int };
        }
    }
}
