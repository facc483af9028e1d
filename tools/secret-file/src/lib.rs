//! Secrets in files. A reader of the file knows the secret, so the permissions are checked before the secret is used.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

use anyhow::{Context, Result, ensure};
use redrt_wire::secret::Secret;
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Limit for the size; a longer file holds no secret.
const FILE_BYTES_MAX: u64 = 4096;

/// Reads the secret from a file that only one user or group can read.
pub fn read(path: &Path) -> Result<Secret> {
    let shown = path.display();
    let failed = || format!("Failed to read the secret in {shown}");
    let file = File::open(path).with_context(failed)?;
    // Checked on the opened file: another file may have the name by now.
    let is_kept = is_kept_from_strangers(&file.metadata().with_context(failed)?);
    ensure!(is_kept, "{shown} can be read or written by everybody: chmod o= {shown}");
    let mut text = String::new();
    file.take(FILE_BYTES_MAX).read_to_string(&mut text).with_context(failed)?;
    Secret::from_text(text.trim()).with_context(|| format!("{shown} does not hold 64 hexadecimal digits"))
}

fn is_kept_from_strangers(metadata: &Metadata) -> bool {
    metadata.mode() & 0o007 == 0
}

/// True if only this process's user can read or write the file.
#[must_use]
pub fn is_own(metadata: &Metadata) -> bool {
    metadata.uid() == nix::unistd::geteuid().as_raw() && metadata.mode() & 0o077 == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{Permissions, set_permissions, write};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_secret_that_everybody_can_read_or_change_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        write(&path, format!("{}\n", "5a".repeat(32))).unwrap();
        for (mode, is_taken) in [(0o600, true), (0o640, true), (0o400, true), (0o644, false), (0o602, false)] {
            set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let found = read(&path);
            assert_eq!(found.is_ok(), is_taken, "{mode:o}: {found:?}");
            assert!(found.map_or_else(|why| why.to_string().contains("everybody"), |found| found.key() == &[0x5a; 32]));
            assert_eq!(is_own(&std::fs::metadata(&path).unwrap()), mode & 0o077 == 0);
        }
        set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        write(&path, "rubbish").unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("64 hexadecimal digits"));
        assert!(read(&directory.path().join("none")).is_err());
    }
}
