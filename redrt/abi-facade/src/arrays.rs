//! Arrays of handles and of constants, and strings that come out.

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

    /// Those of the program.
    ///
    /// # Safety
    /// Null, or valid for reads of `count` handles.
    pub unsafe fn new<H: Handle>(pointer: *const H, count: impl TryInto<usize>) -> Self {
        let mut handles = Self::with_count(count.try_into().unwrap_or(0), pointer.is_null());
        for (index, handle) in handles.slice().iter_mut().enumerate() {
            // SAFETY: - within the array: the caller's promise.
            *handle = unsafe { (*pointer.add(index)).core() };
        }
        handles
    }

    /// Room for those that come out.
    pub fn unset<H: Handle>(pointer: *const H, count: impl TryInto<usize>) -> Self {
        Self::with_count(count.try_into().unwrap_or(0), pointer.is_null())
    }

    fn slice(&mut self) -> &mut [usize] {
        if self.count > SHORT { &mut self.long } else { &mut self.short[..self.count] }
    }

    /// The argument for redrt's function; null if the program gave null.
    #[must_use]
    pub fn as_ptr(&self) -> *const usize {
        match self.is_null {
            true => std::ptr::null(),
            false if self.count > SHORT => self.long.as_ptr(),
            false => self.short.as_ptr(),
        }
    }

    /// The argument for redrt's function, which writes there; null if the program gave null.
    pub fn as_mut_ptr(&mut self) -> *mut usize {
        if self.is_null {
            std::ptr::null_mut()
        } else if self.count > SHORT {
            self.long.as_mut_ptr()
        } else {
            self.short.as_mut_ptr()
        }
    }

    /// Hands out those that came out.
    ///
    /// # Safety
    /// The pointer it was made of, valid for writes.
    pub unsafe fn give<H: Handle>(&mut self, pointer: *mut H) {
        for (index, value) in self.slice().iter().enumerate() {
            if *value != UNSET {
                // SAFETY: - within the array: the caller's promise.
                unsafe { *pointer.add(index) = H::of(*value) };
            }
        }
    }
}

/// Constants that go in.
pub struct Integers(Vec<c_int>, bool);

impl Integers {
    /// Each as `translate` has it.
    ///
    /// # Safety
    /// Null, or valid for reads of `count` integers.
    pub unsafe fn new(pointer: *const c_int, count: usize, translate: fn(c_int) -> c_int) -> Self {
        let count = if pointer.is_null() { 0 } else { count };
        // SAFETY: - index is below count: the caller's promise.
        Self((0..count).map(|index| translate(unsafe { *pointer.add(index) })).collect(), pointer.is_null())
    }

    /// The argument for redrt's function; null if the program gave null.
    #[must_use]
    pub fn as_ptr(&self) -> *const c_int {
        if self.1 { std::ptr::null() } else { self.0.as_ptr() }
    }
}

/// Translates constants that came out, where they are.
///
/// # Safety
/// Null, or valid for reads and writes of `count` integers.
pub unsafe fn integers_out(pointer: *mut c_int, count: usize, translate: fn(c_int) -> c_int) {
    for index in 0..if pointer.is_null() { 0 } else { count } {
        // SAFETY: - within the array: the caller's promise.
        unsafe { *pointer.add(index) = translate(*pointer.add(index)) };
    }
}

/// The sum of an array: the length of another one.
///
/// # Safety
/// Null, or valid for reads of `count` integers.
#[must_use]
pub unsafe fn sum(pointer: *const c_int, count: c_int) -> usize {
    let count = if pointer.is_null() { 0 } else { count };
    // SAFETY: - index is below count: the caller's promise.
    (0..count).map(|index| usize::try_from(unsafe { *pointer.add(index as usize) }).unwrap_or(0)).sum()
}

/// The longest string of the standard ABI, `MPI_MAX_LIBRARY_VERSION_STRING`.
const LONGEST: usize = 8192;

/// A string of redrt that may be longer than the program has room for.
pub struct Text {
    bytes: [c_char; LONGEST],
    is_null: bool,
}

impl Text {
    /// Room for any.
    #[must_use]
    pub fn new(pointer: *const c_char) -> Self {
        Self { bytes: [0; LONGEST], is_null: pointer.is_null() }
    }

    /// The argument for redrt's function, which writes there; null if the program gave null.
    pub fn as_mut_ptr(&mut self) -> *mut c_char {
        if self.is_null { std::ptr::null_mut() } else { self.bytes.as_mut_ptr() }
    }

    /// Hands out what fits into `room` bytes with the NUL, and its length.
    ///
    /// # Safety
    /// The pointer it was made of, with that room; the length is null or valid for a write.
    pub unsafe fn give(&self, pointer: *mut c_char, room: usize, length: *mut c_int) {
        let own = self.bytes.iter().take_while(|byte| **byte != 0).count().min(room - 1);
        // SAFETY: - own < room bytes: the caller's promise.
        unsafe { pointer.copy_from_nonoverlapping(self.bytes.as_ptr(), own) };
        // SAFETY: - the last byte of the room at most.
        unsafe { *pointer.add(own) = 0 };
        if !length.is_null() {
            // SAFETY: - the caller's promise.
            unsafe { *length = own as c_int };
        }
    }
}
