//! Messages for developers: see `redrt_log`.

use redrt_log::{FilterError, Sink};
use std::sync::OnceLock;
use std::time::Instant;

static NAME: OnceLock<String> = OnceLock::new();
static BEGIN: OnceLock<Instant> = OnceLock::new();

/// Shows the messages that the environment asks for, under this program's name.
///
/// # Errors
/// When the environment's filter cannot be parsed.
pub fn begin(name: &str) -> Result<(), FilterError> {
    NAME.get_or_init(|| name.to_owned());
    redrt_log::begin(Sink {
        who: || NAME.get().cloned().unwrap_or_default(),
        now_ns: || BEGIN.get_or_init(Instant::now).elapsed().as_nanos() as u64,
        show: |line| crate::error(line),
    })
}
