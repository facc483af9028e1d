//! The kernel's code in programs (vdso) reads clocks without the C library. Some programs look it up by hand, in the
//! auxiliary vector on the stack after the environment: by `getauxval(AT_SYSINFO_EHDR)`, or by a walk over the vector
//! itself. Its entry is removed, and such programs ask the C library instead, as on a kernel without a vdso.
//!
//! The C library has read the entry before the first constructor runs. Readers of `/proc/self/auxv`, `/proc/self/maps`
//! or the dynamic linker's list of objects still find the vdso.

use libc::{c_char, c_ulong};

/// The entry that names the vdso.
const AT_SYSINFO_EHDR: c_ulong = 33;
/// An entry that readers skip.
const AT_IGNORE: c_ulong = 1;
const AT_NULL: c_ulong = 0;

/// Removes the vdso from the auxiliary vector.
///
/// # Safety
/// `environment` is the one that the kernel has put on the stack, and no other thread uses the vector at this moment.
pub unsafe fn hide(environment: *const *const c_char) {
    let mut end = environment;
    // SAFETY: the environment ends with a null, and the vector begins behind it.
    let mut entry = unsafe {
        while !(*end).is_null() {
            end = end.add(1);
        }
        end.add(1).cast::<[c_ulong; 2]>().cast_mut()
    };
    // SAFETY: the vector is a list of pairs, which ends with AT_NULL; the stack can be written.
    unsafe {
        while (*entry)[0] != AT_NULL {
            if (*entry)[0] == AT_SYSINFO_EHDR {
                (*entry)[0] = AT_IGNORE;
            }
            entry = entry.add(1);
        }
    }
}
