//! Names the shared library, and says how it is linked.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // The name that programs built against the MPI standard ABI look for (MPI-5.0 chapter 20).
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libmpi_abi.so.1");
    // Functions with the same body may be made one: each keeps to those of this library, also if its name is
    // interposed.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
    // The heap's memory lies apart from the program's (redrt/src/abi/allocator.rs).
    println!("cargo::rustc-cdylib-link-arg=-Wl,--wrap=mmap");
}
