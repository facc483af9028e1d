//! `redspared`: a pool of spare hosts that jobs share.

fn main() {
    std::process::exit(redrt_tools::redspared::main(std::env::args_os().collect()));
}
