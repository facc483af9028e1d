//! Times and sizes: a number with a unit, on command lines and in answers.

use std::fmt;

/// Kind of an option's value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wanted {
    /// See [`seconds`].
    Time,
    /// See [`bytes`].
    Size,
    /// See [`layout`].
    Layout,
    /// See [`loss`].
    Loss,
    /// See [`share`].
    Share,
    /// See [`number`].
    Number,
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Time => f.write_str("a time like 90s, 10min, 1.5h, 20d or 5y"),
            Self::Size => f.write_str("a size like 4096, 200MB or 1.5GiB"),
            Self::Layout => write!(f, "HOSTSxRANKS, like 64x16, with {RANK_COUNT_MAX} ranks at most"),
            Self::Loss => f.write_str("RANK@TIME, like 1@2.5s"),
            Self::Share => f.write_str("a share from 0 to 1"),
            Self::Number => f.write_str("a number of at least 0"),
        }
    }
}

/// A word that does not have the wanted form.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{text:?} is not {wanted}")]
pub struct NotAQuantity {
    /// The word as the user gave it.
    pub text: String,
    /// The wanted kind of value.
    pub wanted: Wanted,
}

fn or_not<T>(found: Option<T>, text: &str, wanted: Wanted) -> Result<T, NotAQuantity> {
    found.ok_or_else(|| NotAQuantity { text: text.to_owned(), wanted })
}

/// Parses a time such as `90`, `1.5h` or `5y`, in seconds. A year has 365.25 days.
///
/// # Errors
/// When the text has another form; the message shows the accepted ones.
pub fn seconds(text: &str) -> Result<f64, NotAQuantity> {
    const UNITS: [(&str, f64); 7] =
        [("ms", 1e-3), ("min", 60.0), ("s", 1.0), ("m", 60.0), ("h", 3600.0), ("d", 86_400.0), ("y", 31_557_600.0)];
    or_not(quantity(text, &UNITS), text, Wanted::Time)
}

/// Seconds in the unit in which people would state them.
#[must_use]
pub fn seconds_text(value: f64) -> String {
    match value {
        infinite if !infinite.is_finite() => "never".into(),
        small if small < 1.0 => format!("{:.1} ms", small * 1e3),
        short if short < 600.0 => format!("{short:.2} s"),
        middle if middle < 7200.0 => format!("{:.2} min", middle / 60.0),
        long if long < 1000.0 * 3600.0 => format!("{:.2} h", long / 3600.0),
        years => format!("{:.2} y", years / 31_557_600.0),
    }
}

/// Parses a size such as `4096`, `2GB` or `1.5GiB`, in bytes.
///
/// # Errors
/// When the text has another form; the message shows the accepted ones.
pub fn bytes(text: &str) -> Result<f64, NotAQuantity> {
    const UNITS: [(&str, f64); 8] = [
        ("KiB", 1024.0),
        ("MiB", 1_048_576.0),
        ("GiB", 1_073_741_824.0),
        ("TiB", 1_099_511_627_776.0),
        ("kB", 1e3),
        ("MB", 1e6),
        ("GB", 1e9),
        ("TB", 1e12),
    ];
    or_not(quantity(text, &UNITS), text, Wanted::Size)
}

/// A finite number that is not negative, times the factor of its unit.
fn quantity(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let with_unit = |(unit, factor): &(&str, f64)| text.strip_suffix(unit).map(|number| (number, *factor));
    let (number, factor) = units.iter().find_map(with_unit).unwrap_or((text, 1.0));
    let value = number.trim().parse::<f64>().ok()? * factor;
    (value.is_finite() && value >= 0.0).then_some(value)
}

/// Maximum number of ranks for which clusters are found in acceptable time and memory.
const RANK_COUNT_MAX: u32 = 1 << 17;

/// Parses a layout such as `64x16`: hosts, and processes on each.
///
/// # Errors
/// When the text has another form; the message shows the accepted ones.
pub fn layout(text: &str) -> Result<(u32, u32), NotAQuantity> {
    let parsed = text.split_once('x').and_then(|(hosts, each)| Some((hosts.parse().ok()?, each.parse().ok()?)));
    let fits = |(hosts, each): &(u32, u32)| {
        *hosts > 0 && *each > 0 && hosts.checked_mul(*each).is_some_and(|ranks| ranks <= RANK_COUNT_MAX)
    };
    or_not(parsed.filter(fits), text, Wanted::Layout)
}

/// Parses a loss such as `1@2.5s`: a rank, and the time in seconds at which it loses a replica.
///
/// # Errors
/// When the text has another form; the message shows the accepted ones.
pub fn loss(text: &str) -> Result<(u32, f64), NotAQuantity> {
    let parsed = text.split_once('@').and_then(|(rank, at)| Some((rank.parse().ok()?, seconds(at).ok()?)));
    or_not(parsed, text, Wanted::Loss)
}

/// Parses a share from 0 to 1.
///
/// # Errors
/// When the text has another form; the message shows the accepted ones.
pub fn share(text: &str) -> Result<f64, NotAQuantity> {
    let value = text.parse::<f64>().ok().filter(|value| (0.0..=1.0).contains(value));
    or_not(value, text, Wanted::Share)
}

/// Parses a number of at least 0.
///
/// # Errors
/// When the text has another form; the message shows the accepted ones.
pub fn number(text: &str) -> Result<f64, NotAQuantity> {
    or_not(quantity(text, &[]), text, Wanted::Number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes_have_units() {
        assert_eq!(seconds("90"), Ok(90.0));
        assert_eq!(seconds("250ms"), Ok(0.25));
        assert_eq!(seconds("1.5h"), Ok(5400.0));
        assert_eq!(seconds("10min"), seconds("10m"));
        assert_eq!(seconds("50y"), Ok(50.0 * 8766.0 * 3600.0));
        assert_eq!(bytes("1.5GiB"), Ok(1_610_612_736.0));
        assert_eq!(bytes("2GB"), Ok(2e9));
        assert_eq!(layout("64x16"), Ok((64, 16)));
        assert_eq!(loss("3@1.5min"), Ok((3, 90.0)));
    }

    #[test]
    fn what_is_no_quantity_is_refused() {
        for text in ["", "h", "-1s", "nan", "inf", "1e999", "3 weeks", "1,5h"] {
            assert!(seconds(text).unwrap_err().to_string().contains("is not a time"), "{text}");
        }
        assert!(bytes("1XB").is_err());
        for text in ["3", "@1s", "-1@1s", "1@x", "1@-1s"] {
            assert!(loss(text).unwrap_err().to_string().contains("is not RANK@TIME"), "{text}");
        }
        for text in ["64", "0x16", "64x0", "x", "65536x65536", "-1x2"] {
            assert!(layout(text).is_err(), "{text}");
        }
        assert!(share("1.1").is_err() && share("NaN").is_err() && number("-1").is_err());
    }
}
