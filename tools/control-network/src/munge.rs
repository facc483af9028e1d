//! MUNGE, where a site has it: text sealed by one user on one host is opened by a process on another host with the same
//! key. The opener learns which user has sealed it.
//!
//! MUNGE's commands are run instead of linking its library, which only sites that use it have.

use anyhow::{Context, Result, ensure};
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// Prefix of sealed text.
pub const SEALED: &str = "MUNGE:";
/// Upper bound for sealed text: a job's secret takes about 250 bytes.
pub const SEALED_BYTES_MAX: usize = 4096;
/// Time for MUNGE's daemon to answer, which it does within milliseconds, or not at all.
const TIME_MAX: Duration = Duration::from_secs(5);

/// The two commands.
#[derive(Clone, Debug)]
pub struct Munge {
    seal: String,
    open: String,
}

impl Default for Munge {
    fn default() -> Self {
        Self::with("munge", "unmunge")
    }
}

/// Opened text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Opened {
    /// Number of the user who has sealed it.
    pub uid: u32,
    /// The text.
    pub text: String,
}

impl Munge {
    /// Uses other commands with the same options.
    #[must_use]
    pub fn with(seal: &str, open: &str) -> Self {
        Self { seal: seal.into(), open: open.into() }
    }

    /// Seals a text. With `only_for`, only that user can open it.
    ///
    /// # Errors
    /// When MUNGE is missing, or its daemon does not answer.
    pub fn seal(&self, text: &str, only_for: Option<u32>) -> Result<String> {
        let restriction = only_for.map(|uid| format!("--restrict-uid={uid}"));
        let sealed = pass_through(&self.seal, restriction.as_slice(), text)?;
        ensure!(sealed.starts_with(SEALED), "{} printed something else", self.seal);
        Ok(sealed)
    }

    /// Opens a text. Each text opens once on a host, within five minutes.
    ///
    /// # Errors
    /// When the text was sealed with another key, is too old, was opened before, is for another user, or MUNGE does not
    /// answer.
    pub fn open(&self, sealed: &str) -> Result<Opened> {
        ensure!(sealed.starts_with(SEALED) && sealed.len() <= SEALED_BYTES_MAX, "this was not sealed by MUNGE");
        let printed = pass_through(&self.open, &["--numeric".into(), "--keys=UID".into()], sealed)?;
        let opened = printed.split_once("\n\n").and_then(|(head, text)| {
            let uid = head.strip_prefix("UID:")?.trim().parse().ok()?;
            Some(Opened { uid, text: text.to_owned() })
        });
        opened.with_context(|| format!("{} printed something else", self.open))
    }
}

/// Output of a program for this input. A program that takes too long is ended.
fn pass_through(program: &str, arguments: &[String], text: &str) -> Result<String> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().with_context(|| format!("Failed to run {program}"))?;
    let mut input = child.stdin.take().context("it has no standard input")?;
    let mut output = child.stdout.take().context("it has no standard output")?;
    // The text fits the pipe. A failed program shows by its status.
    let _ = input.write_all(text.as_bytes());
    drop(input);
    let (sender, printed) = mpsc::channel();
    std::thread::Builder::new().name("munge".into()).spawn(move || {
        let mut bytes = Vec::new();
        let _ = sender.send(output.read_to_end(&mut bytes).map(|_| bytes));
    })?;
    let printed = printed.recv_timeout(TIME_MAX);
    if printed.is_err() {
        let _ = child.kill();
    }
    let status = child.wait()?;
    let printed = printed.with_context(|| format!("{program} has not answered in {} s", TIME_MAX.as_secs()))??;
    ensure!(status.success(), "{program} failed ({status})");
    Ok(String::from_utf8(printed)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_passes_through_a_program_or_it_fails() {
        assert_eq!(pass_through("cat", &[], "text").unwrap(), "text");
        assert!(pass_through("false", &[], "text").is_err());
        assert!(pass_through("/no/such/program", &[], "text").is_err());
    }

    #[test]
    fn a_program_that_does_not_answer_is_ended() {
        let why = pass_through("sleep", &["1000".into()], "text").unwrap_err().to_string();
        assert!(why.contains("has not answered"), "{why}");
    }

    #[test]
    fn what_munge_does_not_print_is_refused() {
        for program in ["cat", "true", "false", "/no/such/program"] {
            let munge = Munge::with(program, program);
            assert!(munge.seal("text", None).is_err());
            assert!(munge.open("MUNGE:text:").is_err());
        }
        assert!(Munge::default().open("text").is_err());
        assert!(Munge::default().open(&format!("{SEALED}{}", "a".repeat(SEALED_BYTES_MAX))).is_err());
    }
}
