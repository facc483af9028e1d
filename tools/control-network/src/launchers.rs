//! Launchers that a pool's hosts may ask for by name.
//!
//! A launcher is a command that runs with the rights of its users: `redspared`, and each job that leases. So commands
//! come from files on this host that only their owner or coordinator can write. A pool has only names: the right to add
//! a host is not the right to run anything.
//!
//! ```text
//! # NAME   COMMAND, used as ssh is: the host and a line for its shell follow
//! jump     ssh -J gate
//! ```
//! `srun:JOB`, with the number of a Slurm job that holds the hosts, needs no file.

use anyhow::{Context, Result, bail, ensure};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const SITE_FILE: &str = "/etc/redrt/launchers";
const BY_SLURM: &str = "srun:";
const FILE_BYTES_MAX: u64 = 1 << 20;
const NAME_BYTES_MAX: usize = 64;

/// True if this can name a launcher.
#[must_use]
pub fn is_name(text: &str) -> bool {
    let word = text.strip_prefix(BY_SLURM).filter(|job| job.bytes().all(|byte| byte.is_ascii_digit())).unwrap_or(text);
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    !word.is_empty() && text.len() <= NAME_BYTES_MAX && word.bytes().all(is_plain)
}

/// Splits a command at white space.
#[must_use]
pub fn words(command: &OsStr) -> Vec<OsString> {
    let words = command.as_bytes().split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    words.map(|word| OsStr::from_bytes(word).to_owned()).collect()
}

/// The command of a launcher on this host.
///
/// # Errors
/// When no file of this host has the name, or a file that has it could have been written by others.
pub fn command(name: &str) -> Result<Vec<OsString>> {
    ensure!(is_name(name), "{name:?} is no name of a launcher");
    if let Some(job) = name.strip_prefix(BY_SLURM) {
        let own = std::env::current_exe().context("Failed to find where redrt is installed")?;
        let program = own.with_file_name("redrt-srun");
        return Ok(vec![program.into(), job.into()]);
    }
    find(name, &files())
}

/// The user's own file, then the site's.
fn files() -> Vec<PathBuf> {
    let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(".config"));
    let own = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).or(home);
    own.into_iter().map(|own| own.join("redrt/launchers")).chain([SITE_FILE.into()]).collect()
}

fn find(name: &str, files: &[PathBuf]) -> Result<Vec<OsString>> {
    for path in files {
        let shown = path.display();
        let file = match File::open(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            opened => opened.with_context(|| format!("Failed to read {shown}"))?,
        };
        let found = file.metadata().with_context(|| format!("Failed to look at {shown}"))?;
        let is_trusted = [0, nix::unistd::geteuid().as_raw()].contains(&found.uid()) && found.mode() & 0o022 == 0;
        ensure!(is_trusted, "{shown} says what is run here, and others can write it: chown and chmod go-w {shown}");
        let mut text = Vec::new();
        file.take(FILE_BYTES_MAX).read_to_end(&mut text).with_context(|| format!("Failed to read {shown}"))?;
        let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii_start().starts_with(b"#"));
        let mut commands = lines.map(|line| words(OsStr::from_bytes(line)));
        if let Some(words) = commands.find(|words| words.len() > 1 && words[0] == name) {
            return Ok(words[1..].to_vec());
        }
    }
    let looked: Vec<_> = files.iter().map(|path| path.display().to_string()).collect();
    bail!("no launcher {name} is known on this host: it is in none of {}", looked.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{Permissions, set_permissions, write};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_name_is_one_plain_word() {
        for name in ["jump", "srun:12", "a.b-c_d"] {
            assert!(is_name(name), "{name}");
        }
        for text in ["", "srun:", "srun:1;id", "sh -c id", "/bin/sh", "a/../b", "$(id)", "a\n", &"x".repeat(65)] {
            assert!(!is_name(text) && command(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn srun_is_the_one_beside_this_program() {
        let found = command("srun:12").unwrap();
        assert!(Path::new(&found[0]).ends_with("redrt-srun") && found[1] == "12", "{found:?}");
    }

    #[test]
    fn a_launcher_is_read_from_a_file_that_others_cannot_write() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("launchers");
        let files = [directory.path().join("none"), path.clone()];
        write(&path, "# jump sh\nlonely\njump   ssh -J gate\njump never\n").unwrap();
        assert_eq!(find("jump", &files).unwrap(), ["ssh", "-J", "gate"]);
        for name in ["lonely", "other"] {
            let why = find(name, &files).unwrap_err().to_string();
            assert!(why.contains("no launcher") && why.contains("launchers"), "{why}");
        }
        for mode in [0o664, 0o646] {
            set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            assert!(find("jump", &files).unwrap_err().to_string().contains("others can write"), "{mode:o}");
        }
    }
}
