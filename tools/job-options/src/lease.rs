//! How long the processes of a job wait for its root to come back, and from how much it does.

use super::arguments::Arguments;
use super::times;
use command_line::{UsageError, quantity};
use root_journal::file::{JOURNAL_BYTES_MAX, JOURNAL_BYTES_MIN, JOURNAL_BYTES_USUAL};
use std::time::Duration;

/// Where nothing else is said.
pub const LEASE_USUAL: Duration = Duration::from_secs(600);

/// The time, which is zero where they end with it.
///
/// # Errors
/// When a time was asked for, and this root could not come back.
pub(super) fn root_lease(arguments: &Arguments) -> Result<Duration, UsageError> {
    let wanted = match arguments.root_lease.as_deref() {
        None => None,
        Some("0") => return Ok(Duration::ZERO),
        Some(text) => Some(times::time("--root-lease", text)?),
    };
    match (arguments.detachable || arguments.detach, wanted) {
        (true, wanted) => Ok(wanted.unwrap_or(LEASE_USUAL)),
        (false, None) => Ok(Duration::ZERO),
        (false, Some(_)) => Err(no_such_root("--root-lease")),
    }
}

/// How many hosts hold what the root decides.
///
/// # Errors
/// When the number is not 1, 3 or 5, or the processes of the job do not outlive their root.
pub(super) fn roots(arguments: &Arguments, root_lease: Duration) -> Result<u8, UsageError> {
    let refused = |why: &str| Err(UsageError(format!("--roots {}: {why}", arguments.roots.unwrap_or(1))));
    match arguments.roots {
        None | Some(1) => Ok(1),
        Some(3 | 5) if !arguments.detachable && !arguments.detach => {
            refused("only the root of a job with --detachable or --detach can be on another host")
        }
        Some(3 | 5) if root_lease.is_zero() => refused("processes that end with their root (--root-lease 0) need one"),
        Some(count @ (3 | 5)) => Ok(count),
        Some(_) => refused("1, 3 or 5, please"),
    }
}

/// The length of a journal, in bytes, from which on it is shortened.
///
/// # Errors
/// When it is no such length, or this root could not come back.
pub(super) fn root_journal_bytes(arguments: &Arguments) -> Result<u64, UsageError> {
    let Some(text) = arguments.root_journal.as_deref() else { return Ok(JOURNAL_BYTES_USUAL) };
    if !arguments.detachable && !arguments.detach {
        return Err(no_such_root("--root-journal"));
    }
    let bytes = quantity::bytes(text).map_err(|error| UsageError(format!("--root-journal: {error}")))? as u64;
    if bytes < JOURNAL_BYTES_MIN {
        return Err(UsageError(format!(
            "--root-journal {text}: say {} KiB or more, since a record may be as long",
            JOURNAL_BYTES_MIN >> 10
        )));
    }
    if bytes > JOURNAL_BYTES_MAX {
        return Err(UsageError(format!("--root-journal: at most {} MiB are kept", JOURNAL_BYTES_MAX >> 20)));
    }
    Ok(bytes)
}

fn no_such_root(option: &str) -> UsageError {
    UsageError(format!("{option}: only the root of a job with --detachable or --detach comes back"))
}
