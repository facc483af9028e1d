//! The choice of events to show.

use std::str::FromStr;
use tracing::Level;
use tracing::metadata::LevelFilter;

/// A level for each named part, and one for all others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Filter {
    parts: Vec<(String, LevelFilter)>,
    others: LevelFilter,
}

/// Errors in the variable.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FilterError {
    /// A word that is no level.
    #[error("REDRT_LOG: '{0}' is no level: it is error, warn, info, debug, trace or off")]
    Level(String),
    /// A level for an unknown part.
    #[error("REDRT_LOG: '{0}' names no part: it is engine, runtime, redrun or redrtd")]
    Part(String),
}

/// Targets of events.
const PARTS: [&str; 4] = ["engine", "runtime", "redrun", "redrtd"];

impl Filter {
    /// True when an event of this part and level is shown.
    #[must_use]
    pub fn shows(&self, part: &str, level: Level) -> bool {
        let named = self.parts.iter().find(|(name, _)| name == part);
        // Events of other crates are not for developers of redrt.
        let others = if PARTS.contains(&part) { self.others } else { LevelFilter::OFF };
        named.map_or(others, |(_, filter)| *filter) >= level
    }

    /// The most detailed level of any part.
    #[must_use]
    pub fn most(&self) -> LevelFilter {
        self.parts.iter().map(|(_, filter)| *filter).fold(self.others, Ord::max)
    }
}

impl FromStr for Filter {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Self, FilterError> {
        let mut filter = Self { parts: Vec::new(), others: LevelFilter::OFF };
        let level = |word: &str| match word {
            // `LevelFilter` also takes numbers, and an empty word.
            "error" | "warn" | "info" | "debug" | "trace" | "off" => word.parse().ok(),
            _ => None,
        };
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            let (part, named) = word.split_once('=').map_or((None, word), |(part, named)| (Some(part), named));
            let named = level(named).ok_or_else(|| FilterError::Level(named.to_owned()))?;
            match part {
                None => filter.others = named,
                Some(part) if PARTS.contains(&part) => {
                    filter.parts.retain(|(name, _)| name != part);
                    filter.parts.push((part.to_owned(), named));
                }
                Some(part) => return Err(FilterError::Part(part.to_owned())),
            }
        }
        Ok(filter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A level without a part is for all parts that are not named.
    #[test]
    fn the_last_level_of_a_part_counts() {
        let filter: Filter = "engine=trace, info,engine=debug".parse().unwrap();
        assert!(filter.shows("engine", Level::DEBUG) && !filter.shows("engine", Level::TRACE));
        assert!(filter.shows("redrtd", Level::INFO) && !filter.shows("redrtd", Level::DEBUG));
        assert!(!filter.shows("mio::poll", Level::ERROR));
        assert_eq!(filter.most(), LevelFilter::DEBUG);
        let silent: Filter = "".parse().unwrap();
        assert_eq!(silent.most(), LevelFilter::OFF);
    }

    #[test]
    fn what_is_not_known_is_an_error() {
        assert_eq!("engine=loud".parse::<Filter>(), Err(FilterError::Level("loud".into())));
        assert_eq!("5".parse::<Filter>(), Err(FilterError::Level("5".into())));
        assert_eq!("motor=debug".parse::<Filter>(), Err(FilterError::Part("motor".into())));
        assert_eq!("=debug".parse::<Filter>(), Err(FilterError::Part(String::new())));
    }
}
