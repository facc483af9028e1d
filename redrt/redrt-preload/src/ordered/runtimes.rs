//! Runtimes whose threads spin for a while before they wait, or that collect garbage: the number of times that they
//! take their own locks depends on time, and the program's results do not depend on that order. Their locks are not
//! ordered.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Beginnings of their file names: OpenMP of LLVM and Intel, OpenBLAS, BLIS, TBB, MKL; and runtimes that collect
/// garbage at moments of their own.
const NAMES: [&[u8]; 13] = [
    b"libomp",
    b"libiomp",
    b"libopenblas",
    b"libscipy_openblas",
    b"libblis",
    b"libtbb",
    b"libmkl",
    b"libgc.",
    b"libguile",
    b"libjvm",
    b"libjulia",
    b"libcoreclr",
    b"libmono",
];

/// Limit on the memory ranges of loaded runtimes: begin and end of each.
const RANGE_COUNT: usize = 16;
static RANGES: [[AtomicUsize; 2]; RANGE_COUNT] = [const { [const { AtomicUsize::new(0) }; 2] }; RANGE_COUNT];
/// Number of loaded objects at the last look.
static LOOKED_AT: AtomicU64 = AtomicU64::new(0);

/// True when the file's name, without its directory, begins with one of these.
pub fn is_one_of(path: *const c_char, names: &[&[u8]]) -> bool {
    if path.is_null() {
        return false;
    }
    // SAFETY: a name that the dynamic linker keeps as long as the object is loaded.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    names.iter().any(|begin| name.starts_with(begin))
}

fn is_named(path: *const c_char) -> bool {
    is_one_of(path, &NAMES)
}

/// True when this code is in one of the runtimes.
pub fn is_one(code: *const c_void) -> bool {
    is_of(code, &NAMES)
}

/// True when this code is in a file whose name begins with one of these.
pub fn is_of(code: *const c_void, names: &[&[u8]]) -> bool {
    // SAFETY: Dl_info is made of pointers, which may be null.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: info is valid for writing.
    unsafe { libc::dladdr(code, &raw mut info) != 0 && is_one_of(info.dli_fname, names) }
}

/// True when this memory is a runtime's own.
#[inline]
pub fn has(memory: *const c_void) -> bool {
    let ranges = RANGES.iter().map(|range| [0, 1].map(|at| range[at].load(Ordering::Relaxed)));
    ranges.take_while(|[_, end]| *end != 0).any(|[begin, end]| (begin..end).contains(&(memory as usize)))
}

/// Scans for runtimes that were loaded since the last scan.
pub fn scan() {
    // The program is the first object.
    let mut is_first = true;
    // SAFETY: the function below has this type, and takes a flag.
    unsafe { libc::dl_iterate_phdr(Some(record), (&raw mut is_first).cast()) };
}

unsafe extern "C" fn record(object: *mut libc::dl_phdr_info, _: usize, is_first: *mut c_void) -> c_int {
    // SAFETY: the dynamic linker passes an object that stays loaded during the call.
    let object = unsafe { &*object };
    // SAFETY: the flag of `scan`, for which this is called.
    let is_first = unsafe { is_first.cast::<bool>().replace(false) };
    if is_first && LOOKED_AT.swap(object.dlpi_adds, Ordering::Relaxed) == object.dlpi_adds {
        return 1;
    }
    if !is_named(object.dlpi_name) {
        return 0;
    }
    for at in 0..object.dlpi_phnum {
        // SAFETY: within the table of the object's segments.
        let segment = unsafe { &*object.dlpi_phdr.add(usize::from(at)) };
        if segment.p_type == libc::PT_LOAD {
            let begin = (object.dlpi_addr + segment.p_vaddr) as usize;
            keep(begin, begin + segment.p_memsz as usize);
        }
    }
    0
}

fn keep(begin: usize, end: usize) {
    for [of, until] in &RANGES {
        match of.compare_exchange(0, begin, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return until.store(end, Ordering::Release),
            Err(known) if known == begin => return,
            Err(_) => {}
        }
    }
}
