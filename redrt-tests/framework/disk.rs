//! File systems that fill up or stand still. They need root; without it there is none, with the reason printed.

use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// A file system of its own, mounted until this value is dropped.
#[derive(Debug)]
pub struct Disk {
    place: TempDir,
    is_frozen: bool,
}

fn run(words: &[&str]) -> Result<(), String> {
    let output = Command::new(words[0]).args(&words[1..]).output();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("{words:?}: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(error) => Err(format!("{}: {error}", words[0])),
    }
}

fn or_say<T>(made: Result<T, String>) -> Option<T> {
    made.inspect_err(|reason| eprintln!("skipped: {reason}")).ok()
}

impl Disk {
    /// A file system in memory of this size in bytes; `None`, with the reason printed, where none can be mounted.
    #[must_use]
    pub fn small(byte_count: usize) -> Option<Self> {
        let place = tempfile::tempdir().expect("the temporary directory can be written");
        let (path, size) = (place.path().display().to_string(), format!("size={byte_count},mode=777"));
        let mounted = run(&["mount", "-t", "tmpfs", "-o", &size, "none", &path]);
        or_say(mounted.map(|()| Self { place, is_frozen: false }))
    }

    /// A file system that can be frozen; `None`, with the reason printed, where there are no loop devices.
    #[must_use]
    pub fn freezable() -> Option<Self> {
        let place = tempfile::tempdir().expect("the temporary directory can be written");
        // The image is beside the mount point, not below it.
        let image = place.path().with_extension("image");
        let (path, name) = (place.path().display().to_string(), image.display().to_string());
        let mounted = run(&["truncate", "--size=16M", &name])
            .and_then(|()| run(&["mkfs.ext4", "-q", "-F", &name]))
            .and_then(|()| run(&["mount", "-o", "loop", &name, &path]));
        // The mount keeps the image as long as it needs it.
        let _ = std::fs::remove_file(image);
        or_say(mounted.map(|()| Self { place, is_frozen: false }))
    }

    /// A path on the file system.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// Takes all free room.
    pub fn fill(&self) {
        let filler = std::fs::write(self.path("filler"), vec![0; 64 << 20]);
        assert!(filler.is_err(), "a disk that cannot be filled");
    }

    /// Gives the room back.
    pub fn make_room(&self) {
        std::fs::remove_file(self.path("filler")).expect("it was filled");
    }

    /// Freezes the file system: writers wait from now on.
    pub fn freeze(&mut self) {
        run(&["fsfreeze", "--freeze", &self.shown()]).expect("it can be frozen");
        self.is_frozen = true;
    }

    /// Lets the waiting writers go on.
    pub fn thaw(&mut self) {
        if std::mem::take(&mut self.is_frozen) {
            run(&["fsfreeze", "--unfreeze", &self.shown()]).expect("it was frozen");
        }
    }

    fn shown(&self) -> String {
        Path::new(self.place.path()).display().to_string()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.thaw();
        // Files that are still open there do not prevent it.
        let _ = run(&["umount", "--lazy", &self.shown()]);
    }
}
