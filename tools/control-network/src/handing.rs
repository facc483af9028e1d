//! Hands a daemon the job's secret as a line on its standard input: in plain where the channel is protected (a pipe,
//! ssh), sealed by MUNGE where it is not (srun).

use crate::munge::{Munge, SEALED, SEALED_BYTES_MAX};
use anyhow::{Context, Result};
use redrt_wire::secret::Secret;
use std::ffi::OsStr;
use std::io::{self, BufRead};
use std::path::Path;

/// The line in plain.
#[must_use]
pub fn line(secret: &Secret) -> String {
    format!("{}\n", secret.to_text())
}

/// Variable that permits srun to carry the secret in clear, if set to 1.
const IN_CLEAR_VARIABLE: &str = "REDRT_SRUN_IN_CLEAR";

/// The line for a launcher with this program. It is sealed for srun only, whose channel can be read.
///
/// # Errors
/// When srun needs a sealed line, MUNGE cannot seal it, and the user has not permitted it in clear.
pub fn line_for(program: &OsStr, secret: &Secret) -> Result<String> {
    let is_srun = Path::new(program).file_name().is_some_and(|name| name == "srun" || name == "redrt-srun");
    if is_srun { sealed_line(secret) } else { Ok(line(secret)) }
}

/// The sealed line, which only processes of this user can open, on hosts that share MUNGE's key.
///
/// # Errors
/// As for [`line_for`].
pub fn sealed_line(secret: &Secret) -> Result<String> {
    let is_allowed = std::env::var_os(IN_CLEAR_VARIABLE).is_some_and(|value| value == "1");
    sealed_by(&Munge::default(), secret).or_else(|error| if is_allowed { Ok(line(secret)) } else { Err(error) })
}

fn sealed_by(munge: &Munge, secret: &Secret) -> Result<String> {
    munge.seal(&line(secret), Some(nix::unistd::geteuid().as_raw())).with_context(|| {
        format!(
            "srun would carry the job's secret over the network in clear, and MUNGE cannot seal it. Use --launcher ssh, or \
             set {IN_CLEAR_VARIABLE}=1 where nobody can listen"
        )
    })
}

/// Reads the line, and opens it if it is sealed.
pub fn read_line(input: impl io::Read) -> Result<Secret> {
    let mut line = String::new();
    let mut input = io::BufReader::new(input.take(SEALED_BYTES_MAX as u64));
    input.read_line(&mut line).context("Failed to read the job's secret")?;
    if line.starts_with(SEALED) {
        let opened = Munge::default().open(&line);
        line = opened.context("Failed to open the job's secret, which was sealed by MUNGE")?.text;
    }
    Secret::from_text(line.trim_end()).context("Standard input holds no secret")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_read_and_rubbish_is_refused() {
        for secret in [Secret::new([0x5c; 32]), Secret::new([1; 32]).sealing(true)] {
            assert_eq!(read_line(line(&secret).as_bytes()).unwrap(), secret);
        }
        let long = vec![b'a'; 1 << 20];
        for rubbish in [&b""[..], b"no secret\n", b"MUNGE:rubbish:\n", b"\xff\xff\n", &long] {
            assert!(read_line(rubbish).is_err());
        }
    }

    #[test]
    fn srun_gets_no_secret_that_munge_cannot_seal() {
        let secret = Secret::new([3; 32]);
        let digits = secret.to_text();
        for munge in ["/no/such/munge", "false", "cat"] {
            let why = format!("{:#}", sealed_by(&Munge::with(munge, munge), &secret).unwrap_err());
            assert!(why.contains("--launcher ssh") && !why.contains(&digits), "{why}");
        }
        assert_eq!(line_for(OsStr::new("/usr/bin/ssh"), &secret).unwrap(), line(&secret));
    }
}
