//! Arguments of a C call, wrapped so that the implementation needs no unsafe code of its own.
//!
//! The exports wrap every pointer on the way in. By the contract of the C call it is null or valid as MPI requires, and
//! code that wraps a pointer elsewhere has the same duty. Each wrapper also converts into the bare pointer, for
//! implementations that keep it.

use super::{MPI_ERR_ARG, MPI_ERR_VALUE_TOO_LARGE};
use crate::error::{Error, Result};
use std::ffi::{CStr, c_char, c_int, c_void};

/// The address of a function of the program, or one of the ABI's small constants in its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub struct Callback(pub usize);

impl Callback {
    /// The null pointer, in place of a function.
    pub const NULL: Self = Self(0);

    /// The function itself.
    ///
    /// # Safety
    /// `F` is the type of a C function pointer, and the program passed a function of that type.
    #[must_use]
    pub unsafe fn function<F: Copy>(self) -> F {
        const { assert!(size_of::<F>() == size_of::<usize>()) };
        // SAFETY: - same size: asserted above.
        //         - a function of type F: the caller's duty above.
        unsafe { std::mem::transmute_copy(&self.0) }
    }
}

/// A pointer that the library reads: one element, an array, or a C string.
#[derive(Clone, Copy, Debug)]
pub struct Input<T>(*const T);

impl<T> Input<T> {
    /// Wraps a pointer of the C call.
    #[must_use]
    pub fn new(pointer: *const T) -> Self {
        Self(pointer)
    }

    /// Returns true for a null pointer, which is also the value of `MPI_STATUS_IGNORE` and its siblings.
    #[must_use]
    pub fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// The pointer, which may be null.
    #[must_use]
    pub fn as_ptr(&self) -> *const T {
        self.0
    }
}

impl Input<c_int> {
    /// An array of ints that is a `T` in memory, such as a Fortran status.
    #[must_use]
    pub fn cast<T>(self) -> Input<T> {
        const { assert!(align_of::<T>() == align_of::<c_int>()) };
        Input(self.0.cast())
    }
}

impl Output<c_int> {
    /// An array of ints that is a `T` in memory, such as a Fortran status.
    #[must_use]
    pub fn cast<T>(self) -> Output<T> {
        const { assert!(align_of::<T>() == align_of::<c_int>()) };
        Output(self.0.cast())
    }
}

impl<T: Copy> Input<T> {
    /// The element.
    ///
    /// # Errors
    /// `MPI_ERR_ARG` when the pointer is null.
    pub fn get(&self) -> Result<T> {
        if self.0.is_null() {
            return Err(null_pointer());
        }
        // SAFETY: - not null: checked; valid for reads: the contract of the C call.
        Ok(unsafe { *self.0 })
    }

    /// The first `length` elements.
    ///
    /// # Errors
    /// `MPI_ERR_ARG` when the pointer is null and `length` is not 0, or `length` is negative.
    pub fn slice(&self, length: impl TryInto<usize>) -> Result<&[T]> {
        let length = length.try_into().map_err(|_| Error::new(MPI_ERR_ARG, "negative array length"))?;
        if length == 0 {
            return Ok(&[]);
        }
        if self.0.is_null() {
            return Err(null_pointer());
        }
        // SAFETY: - not null: checked; valid for `length` elements during the call: the contract of the C call.
        Ok(unsafe { std::slice::from_raw_parts(self.0, length) })
    }
}

impl Input<c_char> {
    /// The C string as UTF-8, which all names and keys have to be; other bytes are replaced.
    ///
    /// # Errors
    /// `MPI_ERR_ARG` when the pointer is null.
    pub fn text(&self) -> Result<String> {
        if self.0.is_null() {
            return Err(null_pointer());
        }
        // SAFETY: - not null: checked; ends with a NUL: the contract of the C call.
        let text = unsafe { CStr::from_ptr(self.0) };
        Ok(text.to_string_lossy().into_owned())
    }
}

impl<T> From<Input<T>> for *const T {
    fn from(input: Input<T>) -> Self {
        input.0
    }
}

/// A pointer that the library writes: one element, an array, or a string buffer.
#[derive(Clone, Copy, Debug)]
pub struct Output<T>(*mut T);

impl<T> Output<T> {
    /// Wraps a pointer of the C call.
    #[must_use]
    pub fn new(pointer: *mut T) -> Self {
        Self(pointer)
    }

    /// An output that is not wanted.
    #[must_use]
    pub fn null() -> Self {
        Self(std::ptr::null_mut())
    }

    /// Wraps an untyped address argument of the C call, at which the standard requires a `T`.
    #[must_use]
    pub fn from_address(address: *mut c_void) -> Self {
        Self(address.cast())
    }

    /// Returns true if the value is not wanted; also for `MPI_STATUS_IGNORE` and its siblings.
    #[must_use]
    pub fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// The pointer, which may be null.
    #[must_use]
    pub fn as_ptr(&self) -> *mut T {
        self.0
    }
}

impl<T: Copy> Output<T> {
    /// Writes the element.
    ///
    /// # Errors
    /// `MPI_ERR_ARG` when the pointer is null.
    pub fn set(&self, value: T) -> Result<()> {
        self.set_at(0, value)
    }

    /// Writes the element, unless the pointer is null, as it may be for statuses.
    pub fn set_if_wanted(&self, value: T) {
        if !self.0.is_null() {
            // SAFETY: - not null: checked; valid for one write: the contract of the C call.
            unsafe { self.0.write(value) };
        }
    }

    /// Writes element `index` of the array.
    ///
    /// # Errors
    /// `MPI_ERR_ARG` when the pointer is null.
    pub fn set_at(&self, index: usize, value: T) -> Result<()> {
        if self.0.is_null() {
            return Err(null_pointer());
        }
        // SAFETY: - not null: checked; the array has element `index`: the contract of the C call.
        unsafe { self.0.add(index).write(value) };
        Ok(())
    }

    /// Reads the element, for in-out arguments.
    ///
    /// # Errors
    /// `MPI_ERR_ARG` when the pointer is null.
    pub fn get(&self) -> Result<T> {
        Input(self.0.cast_const()).get()
    }

    /// The first `length` elements of an in-out array.
    ///
    /// # Errors
    /// `MPI_ERR_ARG` when the pointer is null and `length` is not 0, or `length` is negative.
    pub fn slice(&self, length: impl TryInto<usize>) -> Result<&[T]> {
        let length = length.try_into().map_err(|_| Error::new(MPI_ERR_ARG, "negative array length"))?;
        if length == 0 {
            return Ok(&[]);
        }
        if self.0.is_null() {
            return Err(null_pointer());
        }
        // SAFETY: - not null: checked; valid for `length` elements during the call: the contract of the C call.
        Ok(unsafe { std::slice::from_raw_parts(self.0, length) })
    }
}

impl Output<c_char> {
    /// Writes a C string into a buffer of `capacity` bytes, cut short if need be. Returns the length written, without
    /// the NUL.
    ///
    /// # Errors
    /// `MPI_ERR_ARG` when the pointer is null.
    pub fn set_text(&self, text: &str, capacity: usize) -> Result<usize> {
        if self.0.is_null() {
            return Err(null_pointer());
        }
        let mut length = text.len().min(capacity.saturating_sub(1));
        while !text.is_char_boundary(length) {
            length -= 1;
        }
        if capacity > 0 {
            // SAFETY: - not null: checked; valid for `capacity` bytes, which are more than `length`: the contract of
            //           the C call.
            //         - no overlap: the text is memory of the library.
            unsafe { std::ptr::copy_nonoverlapping(text.as_ptr().cast(), self.0, length) };
            self.set_at(length, 0)?;
        }
        Ok(length)
    }
}

impl<T> From<Output<T>> for *mut T {
    fn from(output: Output<T>) -> Self {
        output.0
    }
}

/// An array of counts or displacements, of C `int`s or of 64-bit integers.
#[derive(Clone, Copy, Debug)]
pub struct Counts {
    pointer: *const c_void,
    wide: bool,
}

/// Addresses are as wide as large counts.
impl From<Input<isize>> for Counts {
    fn from(array: Input<isize>) -> Self {
        const { assert!(size_of::<isize>() == size_of::<i64>()) };
        Self::wide(array.as_ptr().cast())
    }
}

impl Counts {
    /// Wraps an array of C `int`s.
    #[must_use]
    pub fn narrow(pointer: *const c_int) -> Self {
        Self { pointer: pointer.cast(), wide: false }
    }

    /// Wraps an array of 64-bit integers.
    #[must_use]
    pub fn wide(pointer: *const i64) -> Self {
        Self { pointer: pointer.cast(), wide: true }
    }

    /// Returns true if there is no array: the argument is not significant at this rank.
    #[must_use]
    pub fn is_null(&self) -> bool {
        self.pointer.is_null()
    }

    /// Element `index`; 0 when there is no array.
    #[must_use]
    pub fn get(&self, index: usize) -> i64 {
        if self.pointer.is_null() {
            return 0;
        }
        if self.wide {
            // SAFETY: - not null: checked; has element `index`: the contract of the C call.
            unsafe { *self.pointer.cast::<i64>().add(index) }
        } else {
            // SAFETY: - not null: checked; has element `index`: the contract of the C call.
            i64::from(unsafe { *self.pointer.cast::<c_int>().add(index) })
        }
    }

    /// The first `length` elements.
    ///
    /// # Errors
    /// `MPI_ERR_ARG` when the pointer is null and `length` is not 0, or `length` is negative.
    pub fn to_vec(&self, length: impl TryInto<usize>) -> Result<Vec<i64>> {
        let length = length.try_into().map_err(|_| Error::new(MPI_ERR_ARG, "negative array length"))?;
        if self.pointer.is_null() && length > 0 {
            return Err(null_pointer());
        }
        Ok((0..length).map(|index| self.get(index)).collect())
    }
}

/// Destination of a count: a C `int`, a 64-bit integer, or an array of them.
#[derive(Clone, Copy, Debug)]
pub struct CountOut {
    pointer: *mut c_void,
    wide: bool,
}

impl CountOut {
    /// Wraps the address of a C `int`, or of an array of them.
    #[must_use]
    pub fn narrow(pointer: *mut c_int) -> Self {
        Self { pointer: pointer.cast(), wide: false }
    }

    /// Wraps the address of a 64-bit integer, or of an array of them.
    #[must_use]
    pub fn wide(pointer: *mut i64) -> Self {
        Self { pointer: pointer.cast(), wide: true }
    }

    /// No destination: the function does not have this argument.
    #[must_use]
    pub fn null() -> Self {
        Self { pointer: std::ptr::null_mut(), wide: true }
    }

    /// Returns true if there is no destination.
    #[must_use]
    pub fn is_null(&self) -> bool {
        self.pointer.is_null()
    }

    /// Returns true if it holds 64 bits.
    #[must_use]
    pub fn is_wide(&self) -> bool {
        self.wide
    }

    /// Writes the count.
    ///
    /// # Errors
    /// `MPI_ERR_ARG` when the pointer is null; `MPI_ERR_VALUE_TOO_LARGE` when an `int` cannot hold it.
    pub fn set(&self, value: i64) -> Result<()> {
        if self.pointer.is_null() {
            return Err(null_pointer());
        }
        if self.wide {
            // SAFETY: - not null: checked; valid for one write: the contract of the C call.
            unsafe { self.pointer.cast::<i64>().write(value) };
            return Ok(());
        }
        let Ok(value) = c_int::try_from(value) else {
            return Err(Error::new(MPI_ERR_VALUE_TOO_LARGE, format!("{value} does not fit an int")));
        };
        // SAFETY: - not null: checked; valid for one write: the contract of the C call.
        unsafe { self.pointer.cast::<c_int>().write(value) };
        Ok(())
    }

    /// Writes the count, or `MPI_UNDEFINED` when an `int` cannot hold it, as the queries of chapter 5 require.
    ///
    /// # Errors
    /// `MPI_ERR_ARG` when the pointer is null.
    pub fn set_or_undefined(&self, value: i64) -> Result<()> {
        if self.wide || c_int::try_from(value).is_ok() {
            self.set(value)
        } else {
            self.set(i64::from(super::MPI_UNDEFINED))
        }
    }

    /// Reads the count, for in-out arguments.
    ///
    /// # Errors
    /// `MPI_ERR_ARG` when the pointer is null.
    pub fn get(&self) -> Result<i64> {
        if self.pointer.is_null() {
            return Err(null_pointer());
        }
        Ok(Counts { pointer: self.pointer, wide: self.wide }.get(0))
    }
}

fn null_pointer() -> Error {
    Error::new(MPI_ERR_ARG, "a pointer argument is null")
}
