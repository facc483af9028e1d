//! Every option with impossible values, and with the least and the greatest possible ones.

use super::arguments::{Parsed, command, parse};
use super::{answer, is_usage};
use clap::Arg;
use std::ffi::OsString;
use std::time::{Duration, Instant};

/// A line that each command accepts.
const COMMANDS: [&str; 8] = [
    "advise --work 1h -n 4 -N 1 --mtbf 100h",
    "predict --work 1h -n 4 --mtbf 100h --checkpoint 10min",
    "interval --mtti 1h --checkpoint 1min --work 10h",
    "scale --work 10h --beta 0.1 --mttf 1y --clone 1min --relaunch 1min",
    "partial --hosts 100 --mttf 1y --checkpoint 1min --restart 1min",
    "spares --time 10h --hosts 100 --mttf 1y --window 1min",
    "spare-choice --work 10h --overhead 0.1 --slowdown 1.3 --interval 1h --restart-remaining 1s --copy 1s --restart-spare 1s",
    "detect --hosts 16",
];
/// Limit for an answer: a user waits for it.
const TIME_MAX: Duration = Duration::from_secs(60);

/// The command line, in which this option gets this value in place of any other.
fn words(line: &str, option: &Arg, value: &str) -> Vec<OsString> {
    let names: Vec<_> =
        [option.get_long().map(|long| format!("--{long}")), option.get_short().map(|s| format!("-{s}"))]
            .into_iter()
            .flatten()
            .collect();
    let mut words: Vec<String> = vec!["redplan".into()];
    let mut given = line.split_whitespace();
    while let Some(word) = given.next() {
        if names.iter().any(|name| name == word) {
            given.next();
        } else {
            words.push(word.into());
        }
    }
    words.push(format!("{}={value}", names[0]));
    words.into_iter().map(OsString::from).collect()
}

/// The error in one line; `None` if there is an answer.
fn wrong(words: Vec<OsString>) -> Option<String> {
    let shown = format!("{words:?}");
    let begun = Instant::now();
    let outcome = match parse(words) {
        Ok(Parsed::Arguments(arguments)) => answer(&arguments).map(|answer| (answer.to_text(), answer.to_json())),
        Ok(Parsed::Text(_)) => panic!("{shown}: help was printed"),
        Err(error) => Err(error.into()),
    };
    assert!(begun.elapsed() < TIME_MAX, "{shown} took {:?}", begun.elapsed());
    let error = match outcome {
        Ok((text, _)) => {
            assert!(!text.contains("NaN") && !text.contains("inf"), "{shown}: {text}");
            return None;
        }
        Err(error) => error,
    };
    assert!(is_usage(&error), "{shown}: {error:#} is not the user's mistake");
    let line = format!("{error:#}");
    assert!(line.lines().count() == 1 && line.len() < 400, "{shown}: {line}");
    Some(line)
}

/// Options of a command whose value is not a name.
fn options(line: &str) -> Vec<Arg> {
    let name = line.split(' ').next().expect("a command");
    let command = command();
    let command = command.find_subcommand(name).expect("it is there");
    let is_asked = |option: &&Arg| {
        let value = option.get_value_names().and_then(|names| names.first()).map(|name| name.as_str());
        option.get_action().takes_values() && !option.is_positional() && !matches!(value, Some("FILE" | "NAME" | "BY"))
    };
    command.get_arguments().filter(is_asked).filter(|option| option.get_id() != "losses").cloned().collect()
}

#[test]
fn values_that_cannot_be_have_one_line_each() {
    for line in COMMANDS {
        let options = options(line);
        assert!(options.len() > 2, "{line}");
        for option in &options {
            for value in ["", "x", "-1", "nan", "inf", "1e999", "1 fortnight", "0x10", "\n"] {
                assert!(wrong(words(line, option, value)).is_some(), "{line} {option}={value:?} was accepted");
            }
        }
    }
}

#[test]
fn extreme_arguments_have_an_answer_or_one_line() {
    for line in COMMANDS {
        for option in &options(line) {
            for value in ["0", "1e-300", "1", "1e300", "4294967295", "18446744073709551615"] {
                wrong(words(line, option, value));
            }
        }
    }
}
