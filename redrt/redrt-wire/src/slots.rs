//! Cores that a rankfile gives to a process: their text, and its meaning.
//!
//! The forms are Open MPI's. Numbers count the existing cores or sockets from 0: `0`, `1-3` and `0,2` are cores of the
//! host, `0:1` is a core of socket 0, `0:0-2,1:0` are cores of two sockets, `1:*` are all of one. Cores after a socket
//! are of that socket, up to the next colon: `0:0,1` has two cores of socket 0.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Bound on a number: higher ones are typing errors.
const NUMBER_MAX: u32 = 1 << 16;

/// A range of adjacent cores.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CoreRange {
    /// Socket that the numbers count in; `None` to count in the host.
    pub socket: Option<u32>,
    /// First and last core; `None` for all.
    pub cores: Option<(u32, u32)>,
}

/// The cores of one process.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Slots(pub Vec<CoreRange>);

/// Fault of a text that names no cores.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SlotsError {
    /// A part that is no number.
    #[error("'{0}' is not a core: expected slot=CORES or slot=SOCKET:CORES, with cores as in 0, 1-3, 0,2 or *")]
    Form(String),
    /// A range that ends before its begin.
    #[error("'{0}': the range is backwards")]
    Backwards(String),
}

impl FromStr for Slots {
    type Err = SlotsError;

    fn from_str(text: &str) -> Result<Self, SlotsError> {
        let number = |digits: &str| {
            let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            digits.parse().ok().filter(|number| is_number && *number <= NUMBER_MAX)
        };
        let number = |digits: &str| number(digits).ok_or_else(|| SlotsError::Form(digits.to_owned()));
        let mut socket = None;
        let mut ranges = Vec::new();
        for item in text.split(',') {
            let cores = match item.split_once(':') {
                None => item,
                Some((of, cores)) => {
                    socket = Some(number(of)?);
                    cores
                }
            };
            let cores = match cores.split_once('-') {
                _ if cores == "*" => None,
                None => Some((number(cores)?, number(cores)?)),
                Some((first, last)) => Some((number(first)?, number(last)?)),
            };
            if cores.is_some_and(|(first, last)| first > last) {
                return Err(SlotsError::Backwards(item.to_owned()));
            }
            ranges.push(CoreRange { socket, cores });
        }
        Ok(Self(ranges))
    }
}

impl fmt::Display for CoreRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(socket) = self.socket {
            write!(f, "{socket}:")?;
        }
        match self.cores {
            None => write!(f, "*"),
            Some((first, last)) if first == last => write!(f, "{first}"),
            Some((first, last)) => write!(f, "{first}-{last}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shown(text: &str) -> String {
        match text.parse::<Slots>() {
            Ok(Slots(ranges)) => ranges.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
            Err(error) => format!("! {error}"),
        }
    }

    #[test]
    fn the_forms_of_open_mpi_are_understood() {
        for (text, is) in [
            ("0", "0"),
            ("1-3", "1-3"),
            ("0,2", "0 2"),
            ("0:1", "0:1"),
            ("0:0-2,1:0", "0:0-2 1:0"),
            ("0:0,1", "0:0 0:1"),
            ("1:*", "1:*"),
            ("*", "*"),
        ] {
            assert_eq!(shown(text), is, "{text}");
        }
    }

    #[test]
    fn what_is_no_core_is_named() {
        for (text, says) in [
            ("", "'' is not a core"),
            ("x", "'x' is not a core"),
            ("0,", "'' is not a core"),
            ("-1", "'' is not a core"),
            ("+1", "'+1' is not a core"),
            ("0:", "'' is not a core"),
            ("p0", "'p0' is not a core"),
            ("0:1:2", "'1:2' is not a core"),
            ("99999999", "'99999999' is not a core"),
            ("3-1", "'3-1': the range is backwards"),
        ] {
            assert!(shown(text).starts_with(&format!("! {says}")), "{text}: {}", shown(text));
        }
    }

    proptest! {
        #[test]
        fn any_text_is_cores_or_an_error(text in "[-0-9:,*x]{0,12}") {
            if let Ok(Slots(ranges)) = text.parse::<Slots>() {
                prop_assert!(ranges.iter().all(|range| range.cores.is_none_or(|(first, last)| first <= last)));
            }
        }
    }
}
