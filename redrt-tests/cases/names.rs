//! Names of files that are no text: any bytes without zeros, as Linux allows.

use crate::checkpoints::{LIMIT, checkpoint, is_back, store};
use redrt_tests::{Job, compile};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A copy of a program in a directory whose name is no text, removed when the returned directory is dropped.
fn named(program: &Path, name: &[u8]) -> (tempfile::TempDir, std::path::PathBuf) {
    let directory = store();
    let inner = directory.path().join(OsStr::from_bytes(name));
    std::fs::create_dir(&inner).expect("it is new");
    let path = inner.join(OsStr::from_bytes(b"str\xf6mung"));
    std::fs::copy(program, &path).expect("there is room");
    (directory, path)
}

fn option(name: &str, path: &Path) -> [OsString; 2] {
    [name.into(), path.into()]
}

/// The names of the working directory, the program and each file of an option are no text.
#[test]
fn a_job_runs_goes_back_and_is_resumed_where_no_name_is_text() {
    for degree in [1, 2] {
        let (directory, program) = named(&compile("until"), b"d\xfcr");
        let inner = program.parent().expect("it is in one");
        let (stop, files) = (inner.join(OsStr::from_bytes(b"st\xf6p")), inner.join(OsStr::from_bytes(b"lines\xff")));
        let job = Job::new(3, &program).degree(degree).limit(LIMIT).directory(inner);
        let job = job.options(&["--checkpoint", "asked"]);
        let options = [
            option("--checkpoint-dir", &files),
            option("--output-dir", &inner.join(OsStr::from_bytes(b"out\xff"))),
            option("--profile", &inner.join(OsStr::from_bytes(b"profile\xff"))),
        ];
        let job = job.words(options.into_iter().flatten());
        let job = job.argument(stop.as_os_str()).environment("UNTIL_MIB", "1").start();
        let computes = || {
            let path = inner.join(OsStr::from_bytes(b"out\xff")).join("rank.1.out");
            std::fs::read_to_string(path).is_ok_and(|text| text.contains("computing"))
        };
        job.wait_until("computing", |_| computes());
        checkpoint(&job);
        (0..degree).for_each(|index| job.kill_replica(&format!("1.{index}")));
        is_back(&job, 1, usize::from(degree) * 3);
        job.redctl(&["checkpoint", "--stop"]).unwrap_or_else(|why| panic!("{why}: {}", job.errors()));
        let _ = job.wait().ended_with(75);
        std::fs::write(&stop, "").expect("the directory is there");
        let _ = Job::resume(&files).limit(LIMIT).run().ended_well();
        drop(directory);
    }
}
