//! Cost of comparing standard output: `--stdout=voted` against `leader`, and against the same program without output.
//!
//! All three run in turn, so that disturbances hit all of them. The program does little else than print, so its time is
//! that of the output.

use crate::Effort;
use crate::library::Library;
use crate::runner::{self, Spent, median};
use anyhow::Result;
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::Path;

/// Number of steps, steps between outputs, and lines of each output.
struct Case {
    name: &'static str,
    steps: [&'static str; 3],
    quick: [&'static str; 3],
}

const CASES: [Case; 3] = [
    Case { name: "a line every 100 steps", steps: ["5000", "100", "1"], quick: ["500", "100", "1"] },
    Case { name: "a line every step", steps: ["5000", "1", "1"], quick: ["500", "1", "1"] },
    Case { name: "200,000 lines at once, 5 times", steps: ["5", "1", "200000"], quick: ["2", "1", "200"] },
];

/// Times of one case in each run: without output, with the leader's, with the agreed one.
#[derive(Clone, Debug, Default)]
struct Times {
    name: &'static str,
    nothing: Vec<Spent>,
    leader: Vec<Spent>,
    voted: Vec<Spent>,
}

/// All measurements.
#[derive(Clone, Debug, Default)]
pub struct Output(Vec<Times>);

fn wall(spent: &[Spent]) -> f64 {
    median(&spent.iter().map(|spent| spent.wall_seconds).collect::<Vec<_>>())
}

fn cpu(spent: &[Spent]) -> f64 {
    median(&spent.iter().map(|spent| spent.cpu_seconds).collect::<Vec<_>>())
}

/// Measures all of them in turn.
pub fn measure(root: &Path, work: &Path, prefix: &Path, effort: Effort) -> Result<Output> {
    let library = Library::redrt(prefix);
    let path = work.join("lines");
    library.compile(&[&root.join("redrt-benches/programs/lines.c")], &path)?;
    let job = |how: &str, [steps, every, lines]: [&str; 3]| {
        let mut command = runner::bounded(prefix.join("bin/redrun"), false);
        command.args(["-q", "-n", "2", "-r", "2", "--stdout", how]).arg(&path).args([steps, every, lines]);
        command
    };
    let mut found = Output::default();
    for case in &CASES {
        let [steps, every, lines] = if effort.quick { case.quick } else { case.steps };
        let mut times = Times { name: case.name, ..Times::default() };
        for run in 1..=effort.runs {
            eprintln!("redrt-bench: {}, run {run} of {}", case.name, effort.runs);
            times.nothing.push(runner::time(vec![job("voted", [steps, "0", lines])])?.0);
            let (spent, by_leader) = runner::time(vec![job("leader", [steps, every, lines])])?;
            times.leader.push(spent);
            let (spent, voted) = runner::time(vec![job("voted", [steps, every, lines])])?;
            times.voted.push(spent);
            anyhow::ensure!(by_leader == voted, "what is printed differs in {}", case.name);
        }
        found.0.push(times);
    }
    Ok(found)
}

impl Output {
    /// The table as Markdown.
    pub fn markdown(&self) -> String {
        let mut text = String::from(
            "| | nothing printed, s | leader, s | voted, s | voted / leader | voted / nothing | processor time, voted / leader |\n\
             |---|---:|---:|---:|---:|---:|---:|\n",
        );
        for Times { name, nothing, leader, voted } in &self.0 {
            let (without, by_leader, agreed) = (wall(nothing), wall(leader), wall(voted));
            writeln!(
                text,
                "| {name} | {without:.2} | {by_leader:.2} | {agreed:.2} | {:.2} | {:.2} | {:.2} |",
                agreed / by_leader,
                agreed / without,
                cpu(voted) / cpu(leader)
            )
            .expect("a string");
        }
        text
    }

    /// All figures.
    pub fn json(&self) -> Value {
        let seconds = |spent: &[Spent]| spent.iter().map(|one| [one.wall_seconds, one.cpu_seconds]).collect::<Vec<_>>();
        let row = |times: &Times| {
            json!({
                "case": times.name, "nothing_s": seconds(&times.nothing), "leader_s": seconds(&times.leader),
                "voted_s": seconds(&times.voted),
            })
        };
        self.0.iter().map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotients_are_of_medians() {
        let spent = |seconds: &[f64]| {
            seconds
                .iter()
                .map(|one| Spent { wall_seconds: *one, cpu_seconds: 2.0 * one, inside_seconds: None })
                .collect::<Vec<_>>()
        };
        let times = Times {
            name: "some lines",
            nothing: spent(&[1.0, 9.0, 1.0]),
            leader: spent(&[2.0, 2.0, 7.0]),
            voted: spent(&[3.0, 3.0, 3.0]),
        };
        let text = Output(vec![times]).markdown();
        assert_eq!(text.lines().last(), Some("| some lines | 1.00 | 2.00 | 3.00 | 1.50 | 3.00 | 1.50 |"));
    }
}
