//! Tests of the programs as processes. They share one program, as each would be linked separately.

mod admin;
mod jobs;
mod pool;
mod redplan;
mod redrt;
mod report;

use std::path::{Path, PathBuf};
use std::sync::Once;

/// A program of this build by its name: a link beside the file of all programs, as in an installation.
fn program(name: &str) -> PathBuf {
    static LINKS: Once = Once::new();
    let file = Path::new(env!("CARGO_BIN_EXE_redrt"));
    LINKS.call_once(|| {
        for name in ["redrun", "redrtd", "redctl", "redspared", "redreport", "redplan", "redclone"] {
            let (link, new) =
                (file.with_file_name(name), file.with_file_name(format!(".{name}.{}", std::process::id())));
            std::os::unix::fs::symlink("redrt", &new).expect("a link is made");
            std::fs::rename(&new, &link).expect("it takes its place");
        }
    });
    file.with_file_name(name)
}
