//! Files that tests write and run.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Writes a file that can be run at once.
///
/// Another process writes it. A descriptor of this process that can write to the file would be inherited by each
/// process that another thread starts at that moment; until that process has executed its program, nobody can run the
/// file ("Text file busy").
///
/// # Panics
/// When the file cannot be written.
pub fn write(path: impl AsRef<Path>, text: &str) {
    let path = path.as_ref();
    let mut install = Command::new("install");
    install.args(["-m", "755", "/dev/stdin"]).arg(path).stdin(Stdio::piped());
    let mut child = install.spawn().expect("coreutils are there");
    child.stdin.take().expect("it is piped").write_all(text.as_bytes()).expect("install reads it");
    let status = child.wait().expect("it is our child");
    assert!(status.success(), "{} cannot be written: {status}", path.display());
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn what_is_written_can_be_run_while_others_start_processes() {
        let directory = std::env::temp_dir().join(format!("script-file-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    assert!(Command::new("true").status().unwrap().success());
                }
            });
            for number in 0..100 {
                let path = directory.join("script");
                write(&path, &format!("#!/bin/sh\nexit {number}\n"));
                assert_eq!(Command::new(&path).status().unwrap().code(), Some(number));
            }
            is_over.store(true, Ordering::Relaxed);
        });
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
