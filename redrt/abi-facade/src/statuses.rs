//! Statuses, one or an array.

use crate::Family;
use crate::core::CoreStatus;
use std::ffi::c_int;
use std::marker::PhantomData;

/// Up to this number, statuses or handles are translated without memory of their own.
pub const SHORT: usize = 16;

/// redrt's statuses in place of the program's. Their content before the call counts: most functions leave the error
/// field unchanged (MPI-5.0 section 3.2.5).
pub struct Statuses<F: Family> {
    count: usize,
    short: [CoreStatus; SHORT],
    long: Vec<CoreStatus>,
    family: PhantomData<F>,
}

/// One status.
pub struct OneStatus<F: Family> {
    is_wanted: bool,
    status: CoreStatus,
    family: PhantomData<F>,
}

fn is_wanted<F: Family>(pointer: *const F::Status) -> bool {
    !pointer.is_null() && pointer.addr() != F::STATUS_IGNORE
}

impl<F: Family> Statuses<F> {
    /// One status; none for an ignored one.
    ///
    /// # Safety
    /// `pointer` is the constant for an ignored status, null, or valid for a read.
    #[inline]
    pub unsafe fn one(pointer: *const F::Status) -> OneStatus<F> {
        let is_wanted = is_wanted::<F>(pointer);
        // SAFETY: - `pointer` is valid for a read, as it is not ignored or null: the caller's duty.
        let status = if is_wanted { F::status_in(unsafe { &*pointer }) } else { CoreStatus::default() };
        OneStatus { is_wanted, status, family: PhantomData }
    }

    /// An array of statuses.
    ///
    /// # Safety
    /// `pointer` is the constant for ignored statuses, null, or valid for reads of `count` statuses.
    pub unsafe fn new(pointer: *const F::Status, count: c_int) -> Self {
        let count = if is_wanted::<F>(pointer) { usize::try_from(count).unwrap_or(0) } else { 0 };
        let mut statuses = Self { count, short: [CoreStatus::default(); SHORT], long: Vec::new(), family: PhantomData };
        if count > SHORT {
            statuses.long.resize(count, CoreStatus::default());
        }
        for (index, status) in statuses.slice().iter_mut().enumerate() {
            // SAFETY: - index is below count, for which the pointer is valid: the caller's duty.
            *status = F::status_in(unsafe { &*pointer.add(index) });
        }
        statuses
    }

    fn slice(&mut self) -> &mut [CoreStatus] {
        if self.count > SHORT { &mut self.long } else { &mut self.short[..self.count] }
    }

    /// The argument for redrt's function; null if the program ignores statuses.
    pub fn as_mut_ptr(&mut self) -> *mut CoreStatus {
        if self.count == 0 { std::ptr::null_mut() } else { self.slice().as_mut_ptr() }
    }

    /// Returns the statuses that redrt has written to the program.
    ///
    /// # Safety
    /// `pointer` is the one that these were made from, valid for writes.
    pub unsafe fn give(&mut self, pointer: *mut F::Status) {
        for (index, status) in self.slice().iter().enumerate() {
            // SAFETY: - index is below the number of statuses, for which the pointer is valid: the caller's
            //           duty.
            unsafe { *pointer.add(index) = F::status_out(status) };
        }
    }
}

impl<F: Family> OneStatus<F> {
    /// The argument for redrt's function; null if the program ignores the status.
    #[inline]
    pub fn as_mut_ptr(&mut self) -> *mut CoreStatus {
        if self.is_wanted { &mut self.status } else { std::ptr::null_mut() }
    }

    /// Returns the status that redrt has written to the program.
    ///
    /// # Safety
    /// `pointer` is the one that this was made from, valid for a write.
    #[inline]
    pub unsafe fn give(&self, pointer: *mut F::Status) {
        if self.is_wanted {
            // SAFETY: - `pointer` is valid for a write: the caller's duty.
            unsafe { *pointer = F::status_out(&self.status) };
        }
    }
}
