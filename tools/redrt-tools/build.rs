//! Debuggers find these names in the table of dynamic symbols of `redrun`, which stripping keeps.

fn main() {
    for name in [
        "proctable",
        "proctable_size",
        "debug_state",
        "being_debugged",
        "debug_abort_string",
        "i_am_starter",
        "Breakpoint",
    ] {
        println!("cargo:rustc-link-arg-bin=redrt=-Wl,--export-dynamic-symbol=MPIR_{name}");
    }
    println!("cargo:rerun-if-changed=build.rs");
}
