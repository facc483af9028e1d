//! Moments as text: UTC in the form of RFC 3339, to the microsecond.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A moment in the format of records.
#[must_use]
pub fn timestamp(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, seconds) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:06}Z", since.subsec_micros())
}

/// Parses such a text as the time since 1970. `None` if it has another form.
#[must_use]
pub fn parse(text: &str) -> Option<Duration> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let numbers =
        |text: &str, between: char| text.split(between).map(|part| part.parse().ok()).collect::<Option<Vec<u64>>>();
    let (seconds, micros) = time.split_once('.')?;
    let micros = micros.parse().ok().filter(|_| micros.len() == 6)?;
    let ([year, month, day], [hour, minute, second]) =
        (numbers(date, '-')?[..].try_into().ok()?, numbers(seconds, ':')?[..].try_into().ok()?);
    let is_moment = (1970..10_000).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    if !is_moment || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let seconds = days_since_1970(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second;
    Some(Duration::from_secs(seconds) + Duration::from_micros(micros))
}

/// Year, month and day of a day number since 1970-01-01, by counting 400-year eras from a March.
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

/// The inverse of [`civil`].
fn days_since_1970(year: u64, month: u64, day: u64) -> u64 {
    let year = year - u64::from(month <= 2);
    let (era, year_of_era) = (year / 400, year % 400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_of_known_moments() {
        let known = [
            (0, 0, "1970-01-01T00:00:00.000000Z"),
            (951_782_400, 7, "2000-02-29T00:00:00.000007Z"),
            (1_709_251_199, 0, "2024-02-29T23:59:59.000000Z"),
            (4_102_444_800, 0, "2100-01-01T00:00:00.000000Z"),
        ];
        for (seconds, micros, text) in known {
            let since = Duration::from_secs(seconds) + Duration::from_micros(micros);
            assert_eq!(timestamp(UNIX_EPOCH + since), text);
            assert_eq!(parse(text), Some(since));
        }
        for days in (0..80_000).step_by(17) {
            let since = Duration::from_secs(days * 86_400 + 1);
            assert_eq!(parse(&timestamp(UNIX_EPOCH + since)), Some(since));
        }
    }

    #[test]
    fn what_is_no_moment_is_refused() {
        let wrong = [
            "",
            "2024",
            "2024-01-01",
            "2024-01-01T00:00:00Z",
            "2024-13-01T00:00:00.000000Z",
            "x-01-01T00:00:00.000000Z",
            "1969-01-01T00:00:00.000000Z",
            "2024-01-01T24:00:00.000000Z",
            "2024-01-01T00:00:00.00000Z",
        ];
        for text in wrong {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
