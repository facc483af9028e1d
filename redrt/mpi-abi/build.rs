//! Name and linker options of the shared library.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Programs built against the MPI standard ABI look for this name (MPI-5.0 chapter 20).
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libmpi_abi.so.1");
    // Functions with the same body may be merged. Calls within the library are bound to its own functions, even where
    // another library interposes the name.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
    // The heap's memory lies apart from the program's (redrt/src/allocator.rs).
    println!("cargo::rustc-cdylib-link-arg=-Wl,--wrap=mmap");
}
