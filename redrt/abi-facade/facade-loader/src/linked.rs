//! A program that a script starts, and that was linked with another MPI's library by path (`RPATH`). The dynamic linker
//! searches that path before the environment's, and has done so before any code of this library runs. So the program is
//! executed once more, in place, with redrt's libraries loaded first, as `redrun` does with programs that it sees.

use crate::own;
use std::ffi::{CStr, CString, OsStr, OsString, c_char, c_int, c_void};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const PRELOAD: &str = "LD_PRELOAD";

// The C library calls it before `main`, with the arguments of `main`.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = begin;

extern "C" fn begin(_count: c_int, words: *const *const c_char, _environment: *const *const c_char) {
    // Started through the dynamic linker's name, a program has no linker of its own: the linker would be executed.
    // SAFETY: - getauxval takes a number.
    if unsafe { libc::getauxval(libc::AT_BASE) } == 0 {
        return;
    }
    let own_libraries = needed();
    if own_libraries.is_empty() {
        return;
    }
    let before = std::env::var_os(PRELOAD).unwrap_or_default();
    let mut listed = before.as_bytes().split(|byte| matches!(byte, b':' | b' '));
    if listed.any(|path| own_libraries.iter().any(|own| path == own.as_bytes())) {
        // The libraries were listed, and the linker did not take them: `redrun` will see the program's mappings.
        return;
    }
    let others = Some(&*before).filter(|before| !before.is_empty());
    let preload: Vec<_> = own_libraries.into_iter().chain(others).collect();
    execute(words, preload.join(OsStr::new(":")));
}

/// redrt's libraries in place of those of other installations that the linker has loaded.
fn needed() -> Vec<&'static OsStr> {
    let mut loaded: Vec<PathBuf> = Vec::new();
    // SAFETY: - `loaded` is the vector that `note` expects.
    unsafe { libc::dl_iterate_phdr(Some(record), (&raw mut loaded).cast()) };
    let replaced = loaded.iter().filter_map(|path| {
        let own = OsStr::from_bytes(own(path.file_name()?)?.to_bytes());
        (place(path) != place(Path::new(own))).then_some(own)
    });
    replaced.collect()
}

/// Identity of a file under any of its names.
fn place(path: &Path) -> Option<(u64, u64)> {
    path.metadata().ok().map(|facts| (facts.dev(), facts.ino()))
}

extern "C" fn record(info: *mut libc::dl_phdr_info, _bytes: usize, loaded: *mut c_void) -> c_int {
    // SAFETY: - the linker passes a description that is valid for this call.
    let name = unsafe { (*info).dlpi_name };
    // SAFETY: - `loaded` is the vector of `needed`.
    let loaded = unsafe { &mut *loaded.cast::<Vec<PathBuf>>() };
    if !name.is_null() {
        // SAFETY: - the linker's description has a valid string.
        loaded.push(PathBuf::from(OsStr::from_bytes(unsafe { CStr::from_ptr(name) }.to_bytes())));
    }
    0
}

/// Executes this program again. It returns only on failure; then the program goes on unchanged.
fn execute(words: *const *const c_char, preload: OsString) {
    let Some(program) = program() else { return };
    let environment = std::env::vars_os().filter(|(name, _)| name != PRELOAD).chain([(PRELOAD.into(), preload)]);
    let line = |(name, value): (OsString, OsString)| CString::new([name.as_bytes(), b"=", value.as_bytes()].concat());
    let Ok(environment) = environment.map(line).collect::<Result<Vec<_>, _>>() else { return };
    let mut pointers: Vec<_> = environment.iter().map(|line| line.as_ptr()).collect();
    pointers.push(std::ptr::null());
    // SAFETY: - `words` is the C library's list of arguments; the other list ends with null too, and both
    //           live until then.
    unsafe { libc::execve(program.as_ptr(), words, pointers.as_ptr()) };
}

/// The file that this process executes, by the name that it was started by, unless that is a script's.
fn program() -> Option<CString> {
    let own = Path::new("/proc/self/exe");
    // SAFETY: - getauxval takes a number.
    let name = unsafe { libc::getauxval(libc::AT_EXECFN) } as *const c_char;
    if !name.is_null() {
        // SAFETY: - the kernel's string, which lives as long as the process.
        let name = unsafe { CStr::from_ptr(name) };
        if place(Path::new(OsStr::from_bytes(name.to_bytes()))) == place(own) {
            return Some(name.to_owned());
        }
    }
    CString::new(own.read_link().ok()?.into_os_string().into_vec()).ok()
}
