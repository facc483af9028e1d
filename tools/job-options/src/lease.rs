//! The time that a job's processes wait for its coordinator to come back, and the length of the coordinator's journal.

use super::arguments::JobArguments;
use super::times;
use command_line::{UsageError, quantity};
use coordinator_journal::file::{JOURNAL_BYTES_MAX, JOURNAL_BYTES_MIN, JOURNAL_BYTES_USUAL};
use std::time::Duration;

/// Default of `--coordinator-lease`.
pub const LEASE_USUAL: Duration = Duration::from_secs(600);

/// The lease, which is zero if processes end with the coordinator.
///
/// # Errors
/// When a time was given, and this job's coordinator cannot come back.
pub(super) fn coordinator_lease(arguments: &JobArguments) -> Result<Duration, UsageError> {
    let wanted = match arguments.coordinator_lease.as_deref() {
        None => None,
        Some("0") => return Ok(Duration::ZERO),
        Some(text) => Some(times::time("--coordinator-lease", text)?),
    };
    match (arguments.detachable || arguments.detach, wanted) {
        (true, wanted) => Ok(wanted.unwrap_or(LEASE_USUAL)),
        (false, None) => Ok(Duration::ZERO),
        (false, Some(_)) => Err(no_such_coordinator("--coordinator-lease")),
    }
}

/// Number of hosts that hold the coordinator's records.
///
/// # Errors
/// When the number is not 1, 3 or 5, or the job's processes do not outlive its coordinator.
pub(super) fn coordinators(
    arguments: &JobArguments,
    coordinator_lease: Duration,
    host_count: usize,
) -> Result<u8, UsageError> {
    let refused = |why: &str| Err(UsageError(format!("--coordinators {}: {why}", arguments.coordinators.unwrap_or(1))));
    let outlives_terminal = arguments.detachable || arguments.detach;
    match arguments.coordinators {
        None if outlives_terminal && !coordinator_lease.is_zero() && host_count >= 3 => Ok(3),
        None | Some(1) => Ok(1),
        Some(3 | 5) if !outlives_terminal => {
            refused("only the coordinator of a job with --detachable or --detach can be on another host")
        }
        Some(3 | 5) if coordinator_lease.is_zero() => {
            refused("processes that end with their coordinator (--coordinator-lease 0) need one")
        }
        Some(count @ (3 | 5)) => Ok(count),
        Some(_) => refused("1, 3 or 5, please"),
    }
}

/// Length of the journal in bytes, above which it is replaced by a snapshot.
///
/// # Errors
/// When the length is not valid, or this job's coordinator cannot come back.
pub(super) fn coordinator_journal_bytes(arguments: &JobArguments) -> Result<u64, UsageError> {
    let Some(text) = arguments.coordinator_journal.as_deref() else { return Ok(JOURNAL_BYTES_USUAL) };
    if !arguments.detachable && !arguments.detach {
        return Err(no_such_coordinator("--coordinator-journal"));
    }
    let bytes = quantity::bytes(text).map_err(|error| UsageError(format!("--coordinator-journal: {error}")))? as u64;
    if bytes < JOURNAL_BYTES_MIN {
        return Err(UsageError(format!(
            "--coordinator-journal {text}: say {} KiB or more, since a record may be as long",
            JOURNAL_BYTES_MIN >> 10
        )));
    }
    if bytes > JOURNAL_BYTES_MAX {
        return Err(UsageError(format!("--coordinator-journal: at most {} MiB are kept", JOURNAL_BYTES_MAX >> 20)));
    }
    Ok(bytes)
}

fn no_such_coordinator(option: &str) -> UsageError {
    UsageError(format!("{option}: only the coordinator of a job with --detachable or --detach comes back"))
}
