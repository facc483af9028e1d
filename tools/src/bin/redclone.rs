//! `redclone`: copies a living process to another host.

fn main() {
    std::process::exit(redrt_tools::redclone::main(std::env::args_os().collect()));
}
