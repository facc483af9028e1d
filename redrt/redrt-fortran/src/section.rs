//! Buffers passed as descriptors: of a whole array, a scalar, or a section with strides.
//!
//! A contiguous buffer is passed on as its address. The treatment of a section with strides depends on the call:
//!
//! | the call | the section |
//! |---|---|
//! | is complete when it returns | is copied, there and back |
//! | completes later, with a message of its own (`MPI_Isend`, `MPI_Put`, ...) | gets a datatype of its own |
//! | completes later as a collective (`MPI_Igather`, `MPI_Allreduce_init`, ...) | is lent with its shape |
//! | completes later otherwise (`MPI_Win_create`, `MPI_Psend_init`, ...) | is refused, with `MPI_ERR_BUFFER` |
//!
//! Because of the last row `MPI_SUBARRAYS_SUPPORTED` is `.FALSE.`.

use crate::standard::{Object, Own};
use fortran_binding::handles::give_error;
use fortran_binding::sentinels::buffer;
use fortran_binding::{Aint, Count};
use std::ffi::{c_char, c_int, c_void};
use std::ptr::with_exposed_provenance_mut;
use std::sync::OnceLock;

unsafe extern "C" {
    fn PMPI_Type_get_extent(datatype: usize, lb: *mut Aint, extent: *mut Aint) -> c_int;
    fn PMPI_Type_contiguous_c(count: Count, old: usize, new: *mut usize) -> c_int;
    fn PMPI_Type_create_hvector_c(count: Count, length: Count, stride: Count, old: usize, new: *mut usize) -> c_int;
    fn PMPI_Type_create_struct_c(
        count: Count,
        lengths: *const Count,
        places: *const Count,
        types: *const usize,
        new: *mut usize,
    ) -> c_int;
    fn PMPI_Type_commit(datatype: *mut usize) -> c_int;
    fn PMPI_Type_free(datatype: *mut usize) -> c_int;
    fn PMPI_Comm_call_errhandler(comm: usize, code: c_int) -> c_int;
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// `MPI_COMM_SELF`, whose error handler is called where the arguments have no communicator.
pub const COMM_SELF: Object = Object(258);
const ERR_BUFFER: c_int = 1;
const BYTE: usize = 583;
const DATATYPE_NULL: usize = 512;

/// `CFI_dim_t` of `ISO_Fortran_binding.h`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Dimension {
    lower_bound: isize,
    extent: isize,
    /// Distance in bytes from one element to the next.
    stride: isize,
}

/// `CFI_cdesc_t` of gfortran and LLVM's flang. The standard fixes its first three members and the last.
#[repr(C)]
#[derive(Debug)]
pub struct Section {
    base: *mut c_void,
    element_length: usize,
    version: c_int,
    rank: i8,
    attribute: i8,
    element_type: i16,
    dimensions: [Dimension; 0],
}

const _: () = assert!(size_of::<Section>() == 24 && size_of::<Dimension>() == 24);

impl Section {
    /// Address of the first element, or a sentinel.
    #[must_use]
    pub fn address(&self) -> *mut c_void {
        self.base
    }

    /// The size of one element; for a string, its length.
    #[must_use]
    pub fn element_length(&self) -> usize {
        self.element_length
    }

    fn dimensions(&self) -> &[Dimension] {
        let rank = usize::try_from(self.rank).unwrap_or(0);
        // SAFETY: - `rank` dimensions follow: the compiler made the descriptor.
        unsafe { std::slice::from_raw_parts(self.dimensions.as_ptr(), rank) }
    }

    /// True when the elements follow one another. That includes an array of unknown size, whose last extent is -1.
    #[must_use]
    pub fn is_contiguous(&self) -> bool {
        let mut expected = self.element_length as isize;
        let dimensions = self.dimensions();
        if dimensions.iter().any(|dimension| dimension.extent == 0) {
            return true;
        }
        dimensions.iter().all(|dimension| {
            let fits = dimension.extent == 1 || dimension.stride == expected;
            expected *= dimension.extent;
            fits
        })
    }

    fn element_count(&self) -> usize {
        self.dimensions().iter().map(|dimension| usize::try_from(dimension.extent).unwrap_or(0)).product()
    }

    /// Distances of the elements from the base, first index fastest.
    fn places(&self) -> impl Iterator<Item = isize> {
        let dimensions = self.dimensions();
        (0..self.element_count()).map(move |number| {
            let mut rest = number as isize;
            let mut place = 0;
            for dimension in dimensions {
                place += rest % dimension.extent * dimension.stride;
                rest /= dimension.extent;
            }
            place
        })
    }
}

/// A buffer for a call that is complete when it returns: the section itself, or a contiguous copy of it.
pub struct Copied {
    address: *mut c_void,
    copy: Vec<u8>,
}

impl Copied {
    /// The buffer for the call.
    ///
    /// # Safety
    /// `section` is the descriptor of an argument.
    pub unsafe fn new(section: &Section) -> Self {
        let address = buffer::<Own>(section.base);
        if section.is_contiguous() || address != section.base {
            return Self { address, copy: Vec::new() };
        }
        let length = section.element_length;
        let mut copy = Vec::with_capacity(length * section.element_count());
        for place in section.places() {
            // SAFETY: - `place` is that of an element of the section, by its descriptor.
            let element = unsafe { std::slice::from_raw_parts(section.base.byte_offset(place).cast::<u8>(), length) };
            copy.extend_from_slice(element);
        }
        Self { address: copy.as_mut_ptr().cast(), copy }
    }

    /// Address of the buffer, for C.
    #[must_use]
    pub fn address(&self) -> *mut c_void {
        self.address
    }

    /// Writes the call's result back into the section.
    ///
    /// # Safety
    /// `section` is the descriptor that this was made from.
    pub unsafe fn write_back(&self, section: &Section) {
        if self.copy.is_empty() {
            return;
        }
        for (place, element) in section.places().zip(self.copy.chunks_exact(section.element_length)) {
            // SAFETY: - `place` is that of an element of the section, by its descriptor.
            let target = unsafe { section.base.byte_offset(place) };
            // SAFETY: - target is an element of the section, of this length.
            //         - the copy is memory of its own, so they do not overlap.
            unsafe { std::ptr::copy_nonoverlapping(element.as_ptr(), target.cast(), element.len()) };
        }
    }
}

/// A buffer for a call that completes later: count and datatype that describe its elements in place.
pub struct Typed {
    /// Number of elements.
    pub count: Count,
    /// Type of the elements.
    pub datatype: Object,
    is_own: bool,
}

impl Typed {
    /// `count` elements of `datatype` within the section. `None` if elements of one do not make up those of the other,
    /// or if there are too few.
    ///
    /// # Safety
    /// `section` is the descriptor of an argument.
    pub unsafe fn new(section: &Section, count: Count, datatype: Object) -> Option<Self> {
        if section.is_contiguous() || buffer::<Own>(section.base) != section.base || count <= 0 {
            return Some(Self { count, datatype, is_own: false });
        }
        let (mut lower, mut extent) = (0, 0);
        // SAFETY: - the pointers are to locals.
        let code = unsafe { PMPI_Type_get_extent(datatype.0, &mut lower, &mut extent) };
        let length = section.element_length as Count;
        let extent = extent as Count;
        // A type as large as an element, or a part of one, like MPI_REAL in a COMPLEX.
        if code != 0 || extent <= 0 || lower != 0 || length % extent != 0 || (count * extent) % length != 0 {
            return None;
        }
        let wanted = count * extent / length;
        if wanted > section.element_count() as Count {
            return None;
        }
        let element = contiguous(length / extent, datatype.0)?;
        let own = prefix(section.dimensions(), wanted, element)?;
        let mut own = own.committed();
        Some(Self { count: 1, datatype: Object(std::mem::replace(&mut own.0, 0)), is_own: true })
    }
}

impl Drop for Typed {
    /// Operations under way keep their type.
    fn drop(&mut self) {
        if self.is_own {
            // SAFETY: - the pointer is to a handle that `new` made.
            unsafe { PMPI_Type_free(&mut self.datatype.0) };
        }
    }
}

/// A buffer for a collective that completes later. The MPI library has its shape during the call.
pub struct Lent {
    address: *mut c_void,
    shape: usize,
}

type LendFunction = unsafe extern "C" fn(*mut c_void, usize) -> c_int;

/// A library of another vendor may have the standard ABI without this function.
fn lend_function() -> Option<LendFunction> {
    static FOUND: OnceLock<usize> = OnceLock::new();
    // SAFETY: - RTLD_DEFAULT is a null pointer; the name ends with NUL.
    let find = || unsafe { dlsym(std::ptr::null_mut(), c"redrt_lend_section".as_ptr()) }.expose_provenance();
    let found = *FOUND.get_or_init(find);
    // SAFETY: - the library exports a function of this type under this name.
    (found != 0)
        .then(|| unsafe { std::mem::transmute::<*mut c_void, LendFunction>(with_exposed_provenance_mut(found)) })
}

impl Lent {
    /// The section, lent until this is dropped. `None` if the library does not take it.
    ///
    /// # Safety
    /// `section` is the descriptor of an argument.
    pub unsafe fn new(section: &Section) -> Option<Self> {
        let address = buffer::<Own>(section.base);
        if section.is_contiguous() || address != section.base {
            return Some(Self { address, shape: 0 });
        }
        let lend = lend_function()?;
        let element = contiguous(section.element_length as Count, BYTE)?;
        let shape = prefix(section.dimensions(), section.element_count() as Count, element)?.committed();
        // SAFETY: - `shape` is a committed type; the library takes the address as a number.
        let is_taken = unsafe { lend(address, shape.0) } != 0;
        // The library keeps the type.
        is_taken.then_some(Self { address, shape: shape.0 })
    }

    /// Address of the buffer, for C.
    #[must_use]
    pub fn address(&self) -> *mut c_void {
        self.address
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if self.shape != 0
            && let Some(lend) = lend_function()
        {
            // SAFETY: - with a null type, the call ends the loan that `new` made.
            unsafe { lend(self.address, DATATYPE_NULL) };
        }
    }
}

/// A datatype made on the way to another; 0 once it was passed on.
struct Made(usize);

impl Made {
    fn new(make: impl FnOnce(*mut usize) -> c_int) -> Option<Self> {
        let mut made = 0;
        (make(&mut made) == 0).then_some(Self(made))
    }

    fn committed(mut self) -> Self {
        // SAFETY: - the pointer is to a handle that this value owns.
        unsafe { PMPI_Type_commit(&mut self.0) };
        self
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        if self.0 != 0 {
            // SAFETY: - the pointer is to a handle that this value owns.
            unsafe { PMPI_Type_free(&mut self.0) };
        }
    }
}

fn contiguous(count: Count, old: usize) -> Option<Made> {
    // SAFETY: - the pointer is to a local of Made::new.
    Made::new(|new| unsafe { PMPI_Type_contiguous_c(count, old, new) })
}

fn strided(count: Count, stride: isize, old: usize) -> Option<Made> {
    // SAFETY: - the pointer is to a local of Made::new.
    Made::new(|new| unsafe { PMPI_Type_create_hvector_c(count, 1, stride as Count, old, new) })
}

/// The type of the first `wanted` elements of an array of these dimensions: whole planes of the last dimension, and the
/// remainder of one more.
fn prefix(dimensions: &[Dimension], wanted: Count, element: Made) -> Option<Made> {
    let Some((last, inner)) = dimensions.split_last() else { return Some(element) };
    let plane: Count = inner.iter().map(|dimension| dimension.extent as Count).product();
    let (whole, rest) = (wanted / plane, wanted % plane);
    let again = contiguous(1, element.0)?;
    let full = prefix(inner, plane, element)?;
    let planes = strided(whole, last.stride, full.0)?;
    if rest == 0 {
        return Some(planes);
    }
    let part = prefix(inner, rest, again)?;
    let (lengths, places) = ([1, 1], [0, whole * last.stride as Count]);
    let types = [planes.0, part.0];
    // SAFETY: - each array has two elements; the pointer is to a local of Made::new.
    Made::new(|new| unsafe { PMPI_Type_create_struct_c(2, lengths.as_ptr(), places.as_ptr(), types.as_ptr(), new) })
}

/// Refuses a section with strides that the call cannot use: prints a line, and raises an error like any other.
///
/// # Safety
/// `ierror` is null or valid for one write.
pub unsafe fn refuse(function: &str, argument: &str, comm: Object, ierror: *mut c_int) {
    eprintln!(
        "redrt: {function}: {argument} is a section with strides, and is in use after the call; pass a contiguous array"
    );
    // SAFETY: - the call takes numbers.
    unsafe { PMPI_Comm_call_errhandler(comm.0, ERR_BUFFER) };
    // SAFETY: - `ierror` is null or valid for a write: the caller's duty.
    unsafe { give_error(ierror, ERR_BUFFER) };
}
