//! The program `changing`, which changes files in all ways, and the files of an undisturbed run.

use crate::{Ended, Job, Running, compile_case};
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

const STEPS_USUAL: usize = 600;

/// Kind and permissions of a file, and its content.
type About = (u32, Vec<u8>);

/// Files and output of an undisturbed run.
pub struct Undisturbed {
    rank_count: u32,
    steps: usize,
    program: PathBuf,
    lines: Vec<String>,
    files: BTreeMap<PathBuf, About>,
}

fn all_in(directory: &Path) -> BTreeMap<PathBuf, About> {
    let entries = std::fs::read_dir(directory).expect("it is there").flatten();
    let about = |path: PathBuf| {
        let status = std::fs::symlink_metadata(&path).expect("it is there");
        let bytes = if status.is_file() { std::fs::read(&path).expect("it can be read") } else { Vec::new() };
        (path.strip_prefix(directory).expect("it is in it").to_owned(), (status.permissions().mode(), bytes))
    };
    entries.map(|entry| about(entry.path())).collect()
}

fn sorted(out: &str) -> Vec<String> {
    let mut lines: Vec<_> = out.lines().filter(|line| *line != "computing").map(str::to_owned).collect();
    lines.sort_unstable();
    lines
}

impl Undisturbed {
    /// Runs the program with `ranks` ranks.
    #[must_use]
    pub fn new(rank_count: u32) -> Self {
        Self::lasting(rank_count, STEPS_USUAL)
    }

    /// Runs the program for this number of steps.
    #[must_use]
    pub fn lasting(rank_count: u32, steps: usize) -> Self {
        let (program, directory) = (compile_case("changing"), tempfile::tempdir().expect("it can be made"));
        let new = Self { rank_count, steps, program, lines: Vec::new(), files: BTreeMap::new() };
        // Its ranks meet at each step: beside compilers it takes a minute, on a quiet machine two seconds.
        let ended = new.job(directory.path()).limit(Duration::from_secs(300)).run().ended_well();
        Self { lines: sorted(&ended.out), files: all_in(directory.path()), ..new }
    }

    /// A job of the same program in this directory.
    #[must_use]
    pub fn job(&self, directory: &Path) -> Job {
        Job::new(self.rank_count, &self.program).arguments(&[&directory.display().to_string(), &self.steps.to_string()])
    }

    /// Fails unless the job printed the same and left the same files.
    pub fn check(&self, ended: &Ended, directory: &Path, what: &str) {
        assert_eq!(sorted(&ended.out), self.lines, "{what}: {ended}");
        let files = all_in(directory);
        let all = self.files.keys().chain(files.keys());
        let differ: Vec<_> = all.filter(|path| files.get(*path) != self.files.get(*path)).collect();
        assert!(differ.is_empty(), "{what}: {differ:?} are not what they should be: {ended}");
    }
}

/// Waits until a rank of such a job has made `steps` more steps.
pub fn goes_on(job: &Running, directory: &Path, steps: usize) {
    let file = directory.join("appended.1.0");
    let lines = || std::fs::read_to_string(&file).unwrap_or_default().lines().count();
    let before = lines();
    job.wait_until("more steps", |_| lines() > before + steps);
}
