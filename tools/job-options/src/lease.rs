//! The time that a job's processes wait for its root to come back, and the length of the root's journal.

use super::arguments::Arguments;
use super::times;
use command_line::{UsageError, quantity};
use root_journal::file::{JOURNAL_BYTES_MAX, JOURNAL_BYTES_MIN, JOURNAL_BYTES_USUAL};
use std::time::Duration;

/// Default of `--root-lease`.
pub const LEASE_USUAL: Duration = Duration::from_secs(600);

/// The lease, which is zero if processes end with the root.
///
/// # Errors
/// When a time was given, and this job's root cannot come back.
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

/// Number of hosts that hold the root's records.
///
/// # Errors
/// When the number is not 1, 3 or 5, or the job's processes do not outlive its root.
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

/// Length of the journal in bytes, above which it is replaced by a snapshot.
///
/// # Errors
/// When the length is not valid, or this job's root cannot come back.
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
