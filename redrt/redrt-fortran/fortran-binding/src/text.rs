//! Strings: blanks at the end and a length in Fortran, a NUL in C.

use crate::Binding;
use crate::sentinels::are_no_arguments;
use std::ffi::{CString, c_char, c_int};

/// The longest string of any function, `MPI_MAX_LIBRARY_VERSION_STRING`.
const ROOM: usize = 8192;
/// No text starts with this byte, so it shows that a function wrote nothing.
const UNWRITTEN: u8 = 0xff;

/// # Safety
/// There are `length` bytes at `argument`.
unsafe fn bytes<'a>(argument: *const c_char, length: usize) -> &'a [u8] {
    if length == 0 {
        return &[];
    }
    // SAFETY: - `argument` is valid for `length` bytes during the call: the caller's duty.
    unsafe { std::slice::from_raw_parts(argument.cast(), length) }
}

/// The bytes up to a NUL, which programs written with C in mind append.
fn c_string(bytes: &[u8]) -> CString {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    CString::new(&bytes[..end]).expect("it ends before the first NUL")
}

/// An incoming string without the blanks at its end.
///
/// # Safety
/// A character argument with its length.
pub unsafe fn text(argument: *const c_char, length: usize) -> CString {
    // SAFETY: - there are `length` bytes at `argument`: the caller's duty.
    let bytes = unsafe { bytes(argument, length) };
    c_string(bytes.trim_suffix_blanks())
}

/// An incoming string without blanks at both ends.
///
/// # Safety
/// A character argument with its length.
pub unsafe fn trimmed(argument: *const c_char, length: usize) -> CString {
    // SAFETY: - there are `length` bytes at `argument`: the caller's duty.
    let bytes = unsafe { bytes(argument, length) };
    let start = bytes.iter().position(|byte| *byte != b' ').unwrap_or(bytes.len());
    c_string(bytes[start..].trim_suffix_blanks())
}

trait Blanks {
    fn trim_suffix_blanks(&self) -> &Self;
}

impl Blanks for [u8] {
    fn trim_suffix_blanks(&self) -> &Self {
        let end = self.iter().rposition(|byte| *byte != b' ').map_or(0, |last| last + 1);
        &self[..end]
    }
}

/// Room for an outgoing string.
pub struct Text(Vec<u8>);

impl Text {
    /// Room for a string of any function, and for at least `length` bytes if the program passes a length.
    #[must_use]
    pub fn with_room(length: c_int) -> Self {
        let length = usize::try_from(length).unwrap_or(0).saturating_add(1);
        Self(vec![UNWRITTEN; length.max(ROOM)])
    }

    /// The address for the C function's string.
    pub fn as_mut_ptr(&mut self) -> *mut c_char {
        self.0.as_mut_ptr().cast()
    }

    /// Returns the string to the program, cut off or filled up with blanks. If the function wrote none, the argument
    /// stays unchanged.
    ///
    /// # Safety
    /// A character argument with its length.
    pub unsafe fn give(&self, argument: *mut c_char, length: usize) {
        if self.0[0] == UNWRITTEN || length == 0 {
            return;
        }
        let end = self.0.iter().position(|byte| *byte == 0).unwrap_or(self.0.len());
        // SAFETY: - `argument` is valid for `length` bytes: the caller's duty.
        let out = unsafe { std::slice::from_raw_parts_mut(argument.cast::<u8>(), length) };
        let written = end.min(length);
        out[..written].copy_from_slice(&self.0[..written]);
        out[written..].fill(b' ');
    }
}

/// The size for C, which counts the NUL; 0 asks for the length only.
#[must_use]
pub fn with_end(length: c_int) -> c_int {
    if length > 0 { length.saturating_add(1) } else { 0 }
}

/// The length in Fortran, without C's NUL.
#[must_use]
pub fn without_end(size: c_int) -> c_int {
    (size - 1).max(0)
}

/// An array of strings, as `char **`, with a null pointer at its end.
pub struct Words {
    words: Vec<CString>,
    addresses: Vec<*mut c_char>,
}

impl Words {
    fn new(words: Vec<CString>) -> Self {
        let addresses = words.iter().map(|word| word.as_ptr().cast_mut()).chain([std::ptr::null_mut()]).collect();
        Self { words, addresses }
    }

    /// Arguments of a program, up to a blank string; none for `MPI_ARGV_NULL`. "In Fortran, leading and trailing spaces
    /// are always stripped" (MPI-5.0 §11.8.2).
    ///
    /// # Safety
    /// An array of strings of this length.
    pub unsafe fn arguments<B: Binding>(argument: *const c_char, length: usize) -> Self {
        // SAFETY: - an array of strings of this length, one after the other: the caller's duty.
        unsafe { Self::spaced::<B>(argument, length, 1) }
    }

    /// # Safety
    /// An array of strings of this length, every `step`-th of which is one of the list.
    unsafe fn spaced<B: Binding>(argument: *const c_char, length: usize, step: usize) -> Self {
        if are_no_arguments::<B, _>(argument) || length == 0 {
            return Self::new(Vec::new());
        }
        // SAFETY: - the list ends with a blank string, and no string after it is read.
        let nth = |index: usize| unsafe { trimmed(argument.add(index * step * length), length) };
        Self::new((0..).map(nth).take_while(|word| !word.is_empty()).collect())
    }

    /// Names of `count` programs.
    ///
    /// # Safety
    /// An array of `count` strings of this length.
    pub unsafe fn counted(argument: *const c_char, length: usize, count: c_int) -> Self {
        let count = usize::try_from(count).unwrap_or(0);
        // SAFETY: - index is below count, for which there are strings: the caller's duty.
        let nth = |index: usize| unsafe { trimmed(argument.add(index * length), length) };
        Self::new((0..count).map(nth).collect())
    }

    /// The array.
    pub fn as_mut_ptr(&mut self) -> *mut *mut c_char {
        debug_assert_eq!(self.words.len() + 1, self.addresses.len());
        self.addresses.as_mut_ptr()
    }
}

/// Several lists of arguments, as `char ***`: the rows of an array with `count` rows.
pub struct WordLists {
    lists: Vec<Words>,
    addresses: Vec<*mut *mut c_char>,
}

impl WordLists {
    /// One list for each of `count` programs; none for `MPI_ARGVS_NULL`.
    ///
    /// # Safety
    /// An array of strings of this length, with `count` rows, each of which ends with a blank string.
    pub unsafe fn new<B: Binding>(argument: *const c_char, length: usize, count: c_int) -> Self {
        let count = if are_no_arguments::<B, _>(argument) { 0 } else { usize::try_from(count).unwrap_or(0) };
        // SAFETY: - row is below count, and a row's strings are `count` strings apart: the caller's duty.
        let row = |row: usize| unsafe { Words::spaced::<B>(argument.add(row * length), length, count) };
        let mut lists: Vec<_> = (0..count).map(row).collect();
        let addresses = lists.iter_mut().map(Words::as_mut_ptr).collect();
        Self { lists, addresses }
    }

    /// The array; null if none exists.
    pub fn as_mut_ptr(&mut self) -> *mut *mut *mut c_char {
        if self.lists.is_empty() { std::ptr::null_mut() } else { self.addresses.as_mut_ptr() }
    }
}
