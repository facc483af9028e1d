//! Buffers that come as descriptors: of a whole array, a scalar, or a section with strides.
//!
//! What is contiguous goes on as its address. A section with strides is treated by what the call does with it:
//!
//! | the call | the section |
//! |---|---|
//! | is over when it returns | is copied, there and back |
//! | goes on, with a message of its own (`MPI_Isend`, `MPI_Irecv`, `MPI_Put`, ...) | gets a datatype of its own |
//! | goes on as a collective (`MPI_Igather`, `MPI_Allreduce_init`, ...) | is lent to the library with its shape |
//! | goes on otherwise (`MPI_Win_create`, `MPI_Psend_init`, ...) | is refused, with `MPI_ERR_BUFFER` |
//!
//! The last is why `MPI_SUBARRAYS_SUPPORTED` is `.FALSE.`.

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

/// `MPI_COMM_SELF`, whose error handler is asked where no communicator is among the arguments.
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
    /// Bytes from one element to the next.
    stride: isize,
}

/// `CFI_cdesc_t`, as gfortran and LLVM's flang have it. The standard fixes its first three members and the last.
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
    /// Where it begins, or what stands for a buffer.
    #[must_use]
    pub fn address(&self) -> *mut c_void {
        self.base
    }

    /// The size of one element, which for a string is its length.
    #[must_use]
    pub fn element_length(&self) -> usize {
        self.element_length
    }

    fn dimensions(&self) -> &[Dimension] {
        let rank = usize::try_from(self.rank).unwrap_or(0);
        // SAFETY: - as many follow as the rank says: the compiler made the descriptor.
        unsafe { std::slice::from_raw_parts(self.dimensions.as_ptr(), rank) }
    }

    /// Whether its elements follow one another. An array of unknown size, whose last extent is -1, is.
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

    /// Where the elements are, first index fastest, as distances from the base.
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

/// A buffer for a call that is over when it returns: itself, or a contiguous copy of it.
pub struct Copied {
    address: *mut c_void,
    copy: Vec<u8>,
}

impl Copied {
    /// The buffer as it goes in.
    ///
    /// # Safety
    /// The descriptor of an argument.
    pub unsafe fn new(section: &Section) -> Self {
        let address = buffer::<Own>(section.base);
        if section.is_contiguous() || address != section.base {
            return Self { address, copy: Vec::new() };
        }
        let length = section.element_length;
        let mut copy = Vec::with_capacity(length * section.element_count());
        for place in section.places() {
            // SAFETY: - an element of the section, as its descriptor has it.
            let element = unsafe { std::slice::from_raw_parts(section.base.byte_offset(place).cast::<u8>(), length) };
            copy.extend_from_slice(element);
        }
        Self { address: copy.as_mut_ptr().cast(), copy }
    }

    /// What C gets.
    #[must_use]
    pub fn address(&self) -> *mut c_void {
        self.address
    }

    /// Writes back what the call has written.
    ///
    /// # Safety
    /// The descriptor that it was made of.
    pub unsafe fn write_back(&self, section: &Section) {
        if self.copy.is_empty() {
            return;
        }
        for (place, element) in section.places().zip(self.copy.chunks_exact(section.element_length)) {
            // SAFETY: - an element of the section, as its descriptor has it.
            let target = unsafe { section.base.byte_offset(place) };
            // SAFETY: - target is an element of the section, of this length.
            //         - the copy is memory of its own, so they do not overlap.
            unsafe { std::ptr::copy_nonoverlapping(element.as_ptr(), target.cast(), element.len()) };
        }
    }
}

/// A buffer for a call that goes on: count and datatype that find its elements where they are.
pub struct Typed {
    /// How many.
    pub count: Count,
    /// Of what.
    pub datatype: Object,
    is_own: bool,
}

impl Typed {
    /// `count` elements of `datatype` within the section. None if the elements of the one do not make up those of the
    /// other, or there are too few.
    ///
    /// # Safety
    /// The descriptor of an argument.
    pub unsafe fn new(section: &Section, count: Count, datatype: Object) -> Option<Self> {
        if section.is_contiguous() || buffer::<Own>(section.base) != section.base || count <= 0 {
            return Some(Self { count, datatype, is_own: false });
        }
        let (mut lower, mut extent) = (0, 0);
        // SAFETY: - the pointers are to locals.
        let code = unsafe { PMPI_Type_get_extent(datatype.0, &mut lower, &mut extent) };
        let length = section.element_length as Count;
        let extent = extent as Count;
        // A type as large as an element, or a part of one, as MPI_REAL of a COMPLEX.
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
    /// An operation under way keeps its type.
    fn drop(&mut self) {
        if self.is_own {
            // SAFETY: - the pointer is to a handle that `new` made.
            unsafe { PMPI_Type_free(&mut self.datatype.0) };
        }
    }
}

/// A buffer for a collective that goes on. The MPI library is told of its shape for the time of the call.
pub struct Lent {
    address: *mut c_void,
    shape: usize,
}

type LendFunction = unsafe extern "C" fn(*mut c_void, usize) -> c_int;

/// A library of another vendor has the standard ABI and not this.
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
    /// The section, lent until this is dropped. None if the library does not take it.
    ///
    /// # Safety
    /// The descriptor of an argument.
    pub unsafe fn new(section: &Section) -> Option<Self> {
        let address = buffer::<Own>(section.base);
        if section.is_contiguous() || address != section.base {
            return Some(Self { address, shape: 0 });
        }
        let lend = lend_function()?;
        let element = contiguous(section.element_length as Count, BYTE)?;
        let shape = prefix(section.dimensions(), section.element_count() as Count, element)?.committed();
        // SAFETY: - a committed type; the address is a number to it.
        let is_taken = unsafe { lend(address, shape.0) } != 0;
        // The library keeps the type.
        is_taken.then_some(Self { address, shape: shape.0 })
    }

    /// What C gets.
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
            // SAFETY: - no type: takes back what `new` has lent.
            unsafe { lend(self.address, DATATYPE_NULL) };
        }
    }
}

/// A datatype on the way to another; 0 once it was handed on.
struct Made(usize);

impl Made {
    fn new(make: impl FnOnce(*mut usize) -> c_int) -> Option<Self> {
        let mut made = 0;
        (make(&mut made) == 0).then_some(Self(made))
    }

    fn committed(mut self) -> Self {
        // SAFETY: - the pointer is to a handle of ours.
        unsafe { PMPI_Type_commit(&mut self.0) };
        self
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        if self.0 != 0 {
            // SAFETY: - the pointer is to a handle of ours.
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

/// The type of the first `wanted` elements of an array of these dimensions: whole planes of the last dimension, and
/// what remains of one more.
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
    // SAFETY: - arrays of two; the pointer is to a local of Made::new.
    Made::new(|new| unsafe { PMPI_Type_create_struct_c(2, lengths.as_ptr(), places.as_ptr(), types.as_ptr(), new) })
}

/// A section with strides where the call cannot do with one: said aloud, and an error as any other.
///
/// # Safety
/// `ierror` is null or valid for one write.
pub unsafe fn refuse(function: &str, argument: &str, comm: Object, ierror: *mut c_int) {
    eprintln!(
        "redrt: {function}: {argument} is a section with strides, and is in use after the call; pass a contiguous array"
    );
    // SAFETY: - it takes numbers.
    unsafe { PMPI_Comm_call_errhandler(comm.0, ERR_BUFFER) };
    // SAFETY: - the caller's promise.
    unsafe { give_error(ierror, ERR_BUFFER) };
}
