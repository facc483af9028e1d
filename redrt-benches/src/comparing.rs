//! Cost of comparing messages, by their length: digests, second payloads and no comparison, strict and deferred.
//!
//! Two ranks with two replicas do twice the work of two ranks without. So the reference is twice the time of an
//! unreplicated job, as if two of them ran one after the other: the rest is the price of the comparison.

use crate::Effort;
use crate::library::Library;
use crate::runner::{self, median};
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// A way to run the program.
struct Way {
    name: &'static str,
    options: &'static [&'static str],
}

/// The first way compares nothing.
const WAYS: [Way; 5] = [
    Way { name: "r = 1", options: &[] },
    Way { name: "digests, strict", options: &["-r", "2", "--verify", "strict"] },
    Way { name: "digests, deferred", options: &["-r", "2", "--verify", "deferred"] },
    Way { name: "all-to-all, strict", options: &["-r", "2", "--protocol", "all-to-all", "--verify", "strict"] },
    Way { name: "all-to-all, deferred", options: &["-r", "2", "--protocol", "all-to-all", "--verify", "deferred"] },
];

/// Microseconds of a message in each run, by length and way.
#[derive(Clone, Debug, Default)]
pub struct Comparing(BTreeMap<u64, [Vec<f64>; WAYS.len()]>);

/// Measures all ways in turn.
pub fn measure(root: &Path, work: &Path, prefix: &Path, effort: Effort) -> Result<Comparing> {
    let program = build(root, work, prefix)?;
    let mut found = Comparing::default();
    for run in 1..=effort.runs {
        for (number, way) in WAYS.iter().enumerate() {
            eprintln!("redrt-bench: {}, run {run} of {}", way.name, effort.runs);
            let times = times(prefix, &program, way.options, effort)?;
            times.into_iter().for_each(|(bytes, time)| found.add(number, bytes, time));
        }
    }
    Ok(found)
}

/// Compiles the program.
pub fn build(root: &Path, work: &Path, prefix: &Path) -> Result<PathBuf> {
    let program = work.join("sizes");
    Library::redrt(prefix).compile(&[&root.join("redrt-benches/programs/sizes.c")], &program)?;
    Ok(program)
}

/// Microseconds of a message in one run, by length.
pub fn times(prefix: &Path, program: &Path, options: &[&str], effort: Effort) -> Result<Vec<(u64, f64)>> {
    let mut command = runner::bounded(prefix.join("bin/redrun"), false);
    command.args(["-q", "-n", "2"]).args(options).arg(program).arg(if effort.quick { "0.02" } else { "0.2" });
    parsed(&runner::output(&mut command)?)
}

fn parsed(text: &str) -> Result<Vec<(u64, f64)>> {
    let line = |line: &str| {
        let (bytes, time) = line.split_once(' ').with_context(|| format!("sizes printed {line:?}"))?;
        Ok((bytes.parse()?, time.parse()?))
    };
    text.lines().map(line).collect()
}

impl Comparing {
    fn add(&mut self, way: usize, bytes: u64, time: f64) {
        self.0.entry(bytes).or_default()[way].push(time);
    }

    /// The table as Markdown.
    pub fn markdown(&self) -> String {
        let mut text = String::from("| bytes | 2 × r = 1, us |");
        WAYS[1..].iter().for_each(|way| write!(text, " {}, us | × |", way.name).expect("a string"));
        writeln!(text, "\n|---:|---:|{}", "---:|---:|".repeat(WAYS.len() - 1)).expect("a string");
        for (bytes, times) in &self.0 {
            let reference = 2.0 * median(&times[0]);
            write!(text, "| {bytes} | {reference:.2} |").expect("a string");
            for times in &times[1..] {
                let time = median(times);
                write!(text, " {time:.2} | {:.2} |", time / reference).expect("a string");
            }
            text.push('\n');
        }
        text
    }

    /// All figures.
    pub fn json(&self) -> Value {
        let row = |(bytes, times): (&u64, &[Vec<f64>; WAYS.len()])| {
            let ways: BTreeMap<_, _> = WAYS.iter().zip(times).map(|(way, times)| (way.name, times)).collect();
            json!({ "bytes": bytes, "us": ways })
        };
        self.0.iter().map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_stand_beside_twice_the_time_of_one_job() {
        let mut found = Comparing::default();
        for way in 0..WAYS.len() {
            let text = if way == 0 { "8 1.0\n64 3.0\n" } else { "8 3.0\n64 6.0\n" };
            parsed(text).unwrap().into_iter().for_each(|(bytes, time)| found.add(way, bytes, time));
        }
        let rows: Vec<_> = found.markdown().lines().skip(2).map(str::to_owned).collect();
        assert_eq!(
            rows,
            [
                "| 8 | 2.00 | 3.00 | 1.50 | 3.00 | 1.50 | 3.00 | 1.50 | 3.00 | 1.50 |",
                "| 64 | 6.00 | 6.00 | 1.00 | 6.00 | 1.00 | 6.00 | 1.00 | 6.00 | 1.00 |"
            ]
        );
        assert!(parsed("nonsense").is_err());
    }
}
