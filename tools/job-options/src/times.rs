//! Times on the command line of a job.

use command_line::{UsageError, quantity};
use std::time::Duration;

/// Parses a time such as `90s`, `10min`, `1.5h` or `1d`, which must not be 0.
fn parse_time(text: &str) -> Option<Duration> {
    let seconds = quantity::seconds(text).ok()?;
    Duration::try_from_secs_f64(seconds).ok().filter(|time| !time.is_zero())
}

/// Parses a time with its unit. A bare number is refused: people mean minutes by it as often as seconds.
pub(super) fn time(option: &str, text: &str) -> Result<Duration, UsageError> {
    time_or(option, text, "not a time such as 90s, 10min or 2h")
}

/// Like [`time`], with `otherwise` as the message about a word that is no time.
pub(super) fn time_or(option: &str, text: &str, otherwise: &str) -> Result<Duration, UsageError> {
    let wrong = |why: &str| UsageError(format!("{option} {text}: {why}"));
    let time = parse_time(text).ok_or_else(|| wrong(otherwise))?;
    match text.ends_with(|last: char| last.is_ascii_digit() || last == '.') {
        true => Err(wrong(&format!("say the unit, as in {text}s, {text}min or {text}h"))),
        false => Ok(time),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_the_units_that_people_write() {
        let seconds = |text| parse_time(text).map(|time| time.as_secs_f64());
        assert_eq!(["90", "90s", "1.5min", "2 h", "1d"].map(seconds), [90.0, 90.0, 90.0, 7200.0, 86400.0].map(Some));
        assert_eq!(["", "0", "-3s", "10 years", "s", "nan"].map(seconds), [None; 6]);
    }
}
