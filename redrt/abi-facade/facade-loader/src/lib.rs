//! `libredrt_loader.so`: a program that loads an MPI library while it runs, like Python, gets redrt's.
//!
//! Loaded by `LD_PRELOAD` into programs whose later loads `redrun` cannot see. A library with a name of MPICH's or Open
//! MPI's is opened from this installation instead, also when the program names another directory. Before a library that
//! needs one is opened, redrt's is: the dynamic linker searches for no library that is loaded already, so paths in the
//! needing library (`RPATH`) have no effect.
//!
//! All other calls go to the C library's `dlopen` unchanged, with the caller's return address, from which it finds the
//! caller's `RUNPATH` and `$ORIGIN`.

mod linked;

use object::elf::{DT_NEEDED, DT_SONAME, FileHeader64};
use object::read::elf::{Dyn, FileHeader};
use object::{Endianness, ReadCache};
use std::arch::naked_asm;
use std::ffi::{CStr, CString, OsStr, OsString, c_char, c_int, c_void};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

type Dlopen = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;

/// Names of libraries in programs' calls, and redrt's libraries in their place.
const LIBRARIES: &[(&str, &str)] = &[
    ("libmpi.so.12", "libmpi.so.12"),
    ("libmpich.so.12", "libmpich.so.12"),
    ("libmpifort.so.12", "libmpifort.so.12"),
    ("libmpichfort.so.12", "libmpichfort.so.12"),
    ("libmpi.so.40", "libmpi.so.40"),
    ("libmpi_mpifh.so.40", "libmpi_mpifh.so.40"),
];

/// `dlopen` of the C library.
static REAL: OnceLock<Dlopen> = OnceLock::new();
/// Directory of this library and of redrt's others.
static DIRECTORY: OnceLock<Option<PathBuf>> = OnceLock::new();

/// `dlopen`. It jumps to the C library's as if the caller had called that.
///
/// # Safety
/// Same duties as the C library's `dlopen`.
#[cfg(target_arch = "x86_64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void {
    // At the call the stack is a multiple of 16: one word is the return address, two are pushed, one is room.
    naked_asm!(
        "push rsi",
        "sub rsp, 16",
        "mov rsi, rsp",
        "call {prepare}",
        "mov rdi, [rsp]",
        "add rsp, 16",
        "pop rsi",
        "jmp rax",
        prepare = sym prepare,
    )
}

/// Writes the name of the file to open, and returns the function that opens it.
extern "C" fn prepare(name: *const c_char, to_open: *mut *const c_char) -> Dlopen {
    // SAFETY: - dlsym takes a string; a function of this name has this type.
    let real = *REAL.get_or_init(|| unsafe {
        std::mem::transmute::<*mut c_void, Dlopen>(libc::dlsym(libc::RTLD_NEXT, c"dlopen".as_ptr()))
    });
    let mut chosen = name;
    if !name.is_null() {
        // SAFETY: - the caller of dlopen passes a string.
        let path = Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(name) }.to_bytes()));
        if path.components().count() == 1 {
            // The directory is unknown, and ours comes first.
            let found = own(path.as_os_str()).or_else(|| own(linked_with(path.as_os_str())?.as_os_str()));
            chosen = found.map_or(name, CStr::as_ptr);
        } else if let Some(names) = names(path) {
            if let Some(own) = names.own.as_deref().and_then(own) {
                // The C library keeps a copy of the name; this one is made once for each library.
                chosen = own.as_ptr();
            }
            for own in names.needed.iter().filter_map(|needed| own(needed)) {
                // The library stays open: the library that needs it takes it from memory.
                // SAFETY: - redrt's library may be loaded at any time.
                unsafe { real(own.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) };
            }
        }
    }
    // SAFETY: - `to_open` is a place on the stack of `dlopen`.
    unsafe { *to_open = chosen };
    real
}

/// redrt's library in place of one with this file name, if there is one.
fn own(name: &OsStr) -> Option<&'static CStr> {
    static OWN: OnceLock<Vec<(&'static str, CString)>> = OnceLock::new();
    let own = OWN.get_or_init(|| {
        let Some(directory) = DIRECTORY.get_or_init(directory) else { return Vec::new() };
        let path = |(asked, own): &(&'static str, &str)| {
            let path = directory.join(own);
            let path = path.exists().then(|| CString::new(path.into_os_string().as_bytes()).ok()).flatten()?;
            Some((*asked, path))
        };
        LIBRARIES.iter().filter_map(path).collect()
    });
    own.iter().find(|(asked, _)| name == *asked).map(|(_, path)| &**path)
}

/// Directories that the dynamic linker searches without being told.
const DIRECTORIES: [&str; 7] = [
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
    "/usr/local/lib",
];

/// The own name (`DT_SONAME`) of an MPI library that a program asks for by its link name, as NEURON does: `libmpi.so`,
/// which is the MPI that the system's administrator has chosen.
fn linked_with(name: &OsStr) -> Option<OsString> {
    if !name.as_bytes().starts_with(b"libmpi") || !name.as_bytes().ends_with(b".so") {
        return None;
    }
    let told = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let places = std::env::split_paths(&told).chain(DIRECTORIES.iter().map(PathBuf::from));
    places.map(|place| place.join(name)).find_map(|path| names(&path))?.own
}

/// The directory that this library was loaded from.
fn directory() -> Option<PathBuf> {
    // SAFETY: - all zeros are a value of this type.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: - the first argument is the address of a function of this library, the second a local.
    let found = unsafe { libc::dladdr(directory as *const c_void, &mut info) };
    if found == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: - the linker's description has a valid string.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Some(Path::new(OsStr::from_bytes(name.to_bytes())).parent()?.to_path_buf())
}

/// Names in a library's dynamic section.
struct Names {
    /// The library's own name (`DT_SONAME`).
    own: Option<OsString>,
    /// Names of the libraries that it needs (`DT_NEEDED`).
    needed: Vec<OsString>,
}

/// The names in a library; `None` where no file has this path, or it is no library.
fn names(path: &Path) -> Option<Names> {
    let bytes = ReadCache::new(File::open(path).ok()?);
    let header = FileHeader64::<Endianness>::parse(&bytes).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.sections(endian, &bytes).ok()?;
    let (entries, link) = sections.dynamic(endian, &bytes).ok()??;
    let strings = sections.strings(endian, &bytes, link).ok()?;
    let named = |tag| {
        let entries = entries.iter().filter(move |entry| entry.tag(endian) == tag);
        entries.filter_map(|entry| Some(OsStr::from_bytes(entry.string(endian, strings).ok()?).to_owned()))
    };
    Some(Names { own: named(DT_SONAME).next(), needed: named(DT_NEEDED).collect() })
}
