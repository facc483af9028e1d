//! How long the processes of a job wait for its root to come back.

use super::arguments::Arguments;
use super::{UsageError, checkpoint};
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
        Some(text) => Some(checkpoint::time("--root-lease", text)?),
    };
    match (arguments.detachable || arguments.detach, wanted) {
        (true, wanted) => Ok(wanted.unwrap_or(LEASE_USUAL)),
        (false, None) => Ok(Duration::ZERO),
        (false, Some(_)) => {
            let why = "only the root of a job with --detachable or --detach comes back";
            Err(UsageError(format!("--root-lease: {why}")))
        }
    }
}
