//! The report: Markdown for readers, JSON with every run.

use crate::Effort;
use crate::beside::{Beside, figure};
use crate::degree::Cost;
use crate::growth;
use crate::library::{Library, Transport};
use crate::machine::Machine;
use crate::pairs::{Column, ComparisonTable};
use crate::protocol::Protocol;
use crate::runner::{Spent, median};
use serde_json::{Value, json};
use std::fmt::Write;

/// The longest line of prose on a page.
const COLUMNS: usize = 120;

/// A page of tables: the part that `--only` measures, with its conditions.
pub struct Page {
    /// File name of the page.
    pub file: &'static str,
    /// Text of the page.
    pub text: String,
}

/// All measurements.
pub struct Report {
    machine: Machine,
    effort: Effort,
    libraries: Vec<String>,
    absent: Vec<String>,
    /// Latency, bandwidth and collectives, beside peers.
    pub pairs: Vec<ComparisonTable>,
    /// One-sided communication, beside peers.
    pub windows: Vec<Beside>,
    /// Rows of calls and threads, beside peers.
    pub rows: Vec<Beside>,
    /// Whole programs, beside peers.
    pub programs: Vec<Beside>,
    /// Times of jobs that only begin and end, beside peers.
    pub startup: Vec<Beside>,
    /// Memory of processes, beside peers.
    pub memory: Vec<Beside>,
    /// The cost of replicas.
    pub degree: Vec<Cost>,
    /// The cost of the hash protocol.
    pub protocol: Option<Protocol>,
    /// Growth with ranks, messages and communicators.
    pub growth: Vec<Beside>,
}

impl Report {
    /// A report without figures yet.
    pub fn new(machine: Machine, effort: Effort, libraries: &[Library]) -> Self {
        let names = |present| {
            let those = libraries.iter().filter(move |library| library.present == present);
            those.map(|library| library.name.clone()).collect()
        };
        let (libraries, absent) = (names(true), names(false));
        Self {
            machine,
            effort,
            libraries,
            absent,
            pairs: Vec::new(),
            windows: Vec::new(),
            rows: Vec::new(),
            programs: Vec::new(),
            startup: Vec::new(),
            memory: Vec::new(),
            degree: Vec::new(),
            protocol: None,
            growth: Vec::new(),
        }
    }

    /// A page for each measured part.
    pub fn pages(&self) -> Vec<Page> {
        let bodies = [
            ("messages.md", "Messages and collectives", self.pairs.iter().map(table_markdown).collect()),
            ("one-sided.md", "One-sided communication", beside_markdown(&self.windows)),
            ("calls.md", "Rows of calls", beside_markdown(&self.rows)),
            ("programs.md", "Whole programs", beside_markdown(&self.programs)),
            ("starting.md", "Starting and ending", beside_markdown(&self.startup)),
            ("growth.md", "Memory and growth", self.growth_markdown()),
            ("replicas.md", "The cost of replicas", costs_markdown(&self.degree)),
            ("hash-protocol.md", "The hash protocol", self.protocol.iter().map(Protocol::markdown).collect::<String>()),
        ];
        let measured = bodies.into_iter().filter(|(_, _, body)| !body.is_empty());
        measured.map(|(file, title, body)| Page { file, text: self.page(title, &body) }).collect()
    }

    fn page(&self, title: &str, body: &str) -> String {
        let mut text = String::new();
        self.write(&mut text, title, body).expect("writing to a string succeeds");
        wrapped(&text)
    }

    fn write(&self, text: &mut String, title: &str, body: &str) -> std::fmt::Result {
        writeln!(text, "# {title}\n")?;
        writeln!(text, "[Benchmarks](../benchmarks.md) says how to read the tables. This command writes the page:\n")?;
        writeln!(text, "    cargo run --release -p redrt-benches -- --markdown docs/benchmarks\n")?;
        if self.effort.quick {
            writeln!(text, "**Made with `--quick`: this shows that the benchmarks run, not how fast anything is.**\n")?;
        }
        // A part with one table is named by its page.
        let headings = body.lines().filter(|line| line.starts_with("## ")).count();
        let heading = format!("## {title}\n\n");
        text.push_str(if headings == 1 { body.strip_prefix(&heading).unwrap_or(body) } else { body });
        self.write_machine(text)
    }

    fn growth_markdown(&self) -> String {
        let mut text = beside_markdown(&self.memory);
        if !self.growth.is_empty() {
            text.push_str(&format!("## What grows\n\n![Charts of the tables below]({})\n\n", growth::PICTURE));
        }
        text + &beside_markdown(&self.growth)
    }

    fn write_machine(&self, text: &mut String) -> std::fmt::Result {
        let Machine { processor, core_count, memory_gib, kernel, system, compilers, commit, date, .. } = &self.machine;
        writeln!(text, "## Conditions\n\n| | |\n|---|---|")?;
        writeln!(text, "| Machine | {processor}, {core_count} cores, {memory_gib:.0} GiB |")?;
        writeln!(text, "| System | {system}, Linux {kernel} |")?;
        writeln!(text, "| Compilers | {compilers} |")?;
        writeln!(text, "| Libraries | {} |", self.libraries.join(", "))?;
        writeln!(text, "| TCP congestion control | {} |", self.machine.congestion_control)?;
        let load = &self.machine.load_average;
        writeln!(text, "| Load average before | {load} (0 would be a machine of our own) |")?;
        writeln!(text, "| Commit, date | {commit}, {date} |\n")?;
        for absent in &self.absent {
            writeln!(text, "{absent}.\n")?;
        }
        writeln!(
            text,
            "Medians of {} runs, libraries in turn. Each run takes a figure in slices of half a millisecond. Where every \
             rank has a core, the best slice of a run counts, because it is the one that other work on the machine did \
             not disturb; where ranks share cores, the mean of the run counts.",
            self.effort.runs
        )
    }

    /// Every figure of every run.
    pub fn json(&self) -> Value {
        let machine = &self.machine;
        let beside = [&self.windows, &self.rows, &self.programs, &self.startup, &self.memory];
        json!({
            "machine": {
                "processor": machine.processor, "cores": machine.core_count, "memory_gib": machine.memory_gib,
                "kernel": machine.kernel, "system": machine.system, "compilers": machine.compilers,
                "commit": machine.commit, "date": machine.date, "congestion_control": machine.congestion_control,
                "load_average": machine.load_average,
            },
            "libraries": self.libraries,
            "absent": self.absent,
            "quick": self.effort.quick,
            "pairs": self.pairs.iter().map(table_json).collect::<Vec<_>>(),
            "beside": beside.into_iter().flatten().map(Beside::json).collect::<Vec<_>>(),
            "protocol": self.protocol.as_ref().map(Protocol::json),
            "growth": self.growth.iter().map(Beside::json).collect::<Vec<_>>(),
            "degree": self.degree.iter().map(cost_json).collect::<Vec<_>>(),
        })
    }
}

fn title(name: &str) -> &str {
    match name {
        "latency-8B" => "latency, 8 B",
        "latency-1MiB" => "latency, 1 MiB",
        "rate-8B" => "message rate, 8 B",
        "bandwidth-1MiB" => "bandwidth, 1 MiB",
        "bandwidth-4MiB" => "bandwidth, 4 MiB",
        "allreduce-8B" => "allreduce, 8 B",
        "bcast-1MiB" => "broadcast, 1 MiB",
        "allreduce-1MiB" => "allreduce, 1 MiB",
        "alltoall-1MiB" => "alltoall, 1 MiB from each rank",
        other => other,
    }
}

/// Prose in lines of at most [`COLUMNS`] characters. Tables, pictures and commands stay as they are.
fn wrapped(text: &str) -> String {
    let mut lines = Vec::new();
    for line in text.lines() {
        if line.starts_with(['|', '!', ' ']) {
            lines.push(line.to_owned());
            continue;
        }
        let mut current = String::new();
        for word in line.split(' ') {
            if !current.is_empty() && current.chars().count() + 1 + word.chars().count() > COLUMNS {
                lines.push(std::mem::take(&mut current));
            }
            current.push_str(if current.is_empty() { "" } else { " " });
            current.push_str(word);
        }
        lines.push(current);
    }
    lines.join("\n") + "\n"
}

fn beside_markdown(tables: &[Beside]) -> String {
    tables.iter().map(Beside::markdown).collect()
}

fn table_markdown(table: &ComparisonTable) -> String {
    let mut text = String::new();
    write_table(&mut text, table).expect("writing to a string succeeds");
    text
}

fn costs_markdown(costs: &[Cost]) -> String {
    let mut text = String::new();
    if !costs.is_empty() {
        let written = write_costs(&mut text, costs).and_then(|()| write_costs_of_three(&mut text, costs));
        written.expect("writing to a string succeeds");
    }
    text
}

fn write_table(text: &mut String, table: &ComparisonTable) -> std::fmt::Result {
    let shared = if table.shares_cores { ", sharing cores" } else { "" };
    writeln!(text, "## {} ranks over {}{shared}\n", table.rank_count, table.transport.name())?;
    if table.shares_cores {
        writeln!(
            text,
            "The goal for broadcast, allreduce of 8 B and alltoall is 0.80 of the best peer here, 1.00 elsewhere.\n"
        )?;
    }
    let heads: Vec<_> = table.columns.iter().map(|column| column.library.as_str()).collect();
    writeln!(text, "| | unit | {} | time against the best peer |", heads.join(" | "))?;
    writeln!(text, "|---|---|{}---:|", "---:|".repeat(heads.len()))?;
    let rows = table.columns.first().map_or(0, |column| column.figures.len());
    for row in 0..rows {
        let Column { figures, .. } = &table.columns[0];
        let cell = |column: &Column| {
            column.figures.get(row).map_or_else(|| "-".to_owned(), |found| figure(found.value(table.shares_cores)))
        };
        let cells: Vec<_> = table.columns.iter().map(cell).collect();
        let ratio = table.time_ratio(row).map_or_else(|| "-".to_owned(), figure);
        writeln!(text, "| {} | {} | {} | {ratio} |", title(&figures[row].name), figures[row].unit, cells.join(" | "))?;
    }
    if table.rank_count > 4 {
        writeln!(text, "\nMPICH is left out, as its ranks wait by spinning: milliseconds for each figure.")?;
    }
    if table.transport == Transport::Tcp {
        writeln!(text, "\nMPICH 4 as Debian builds it reaches processes of its own node over shared memory only.")?;
    }
    writeln!(text)
}

fn wall(spent: &[Spent]) -> f64 {
    median(&spent.iter().map(|spent| spent.wall_seconds).collect::<Vec<_>>())
}

fn write_costs(text: &mut String, costs: &[Cost]) -> std::fmt::Result {
    writeln!(text, "## The cost of two replicas\n")?;
    writeln!(
        text,
        "One job of 2 ranks at r = 2 against two jobs of 2 ranks at r = 1: the same work on the same cores, so a quotient \
         of 1 would mean that agreeing and comparing is free. Started at once, two jobs hinder each other where ranks \
         wait by spinning; one after the other they cannot, and have both cores for one rank each. Seconds of wall time, \
         starting and ending included.\n"
    )?;
    writeln!(
        text,
        "| | 2 × r = 1, at once | 2 × r = 1, one after the other | r = 2 strict | r = 2 deferred | strict / at once | \
         strict / one after the other | deferred / at once | deferred / one after the other |"
    )?;
    writeln!(text, "|---|---:|---:|---:|---:|---:|---:|---:|---:|")?;
    for cost in costs {
        let Cost { program, arguments, .. } = cost;
        let (at_once, in_turn) = (wall(&cost.twice), 2.0 * wall(&cost.alone));
        let (strict, deferred) = (wall(&cost.strict), wall(&cost.deferred));
        let times = [at_once, in_turn, strict, deferred];
        let quotients = [strict / at_once, strict / in_turn, deferred / at_once, deferred / in_turn];
        let cells: Vec<_> = times.iter().chain(&quotients).map(|value| format!("{value:.2}")).collect();
        writeln!(text, "| `{program} {arguments}` | {} |", cells.join(" | "))?;
    }
    writeln!(text)
}

fn write_costs_of_three(text: &mut String, costs: &[Cost]) -> std::fmt::Result {
    writeln!(text, "## The cost of three replicas\n")?;
    writeln!(
        text,
        "Likewise: one job at r = 3, strict, against three jobs at r = 1, in the same runs as above. The goal for both, strict against as many jobs at \
         once: at most 1.05 as the median over programs, 1.15 as the worst.\n"
    )?;
    writeln!(
        text,
        "| | 3 × r = 1, at once | 3 × r = 1, one after the other | r = 3 strict | strict / at once | strict / one after the other |"
    )?;
    writeln!(text, "|---|---:|---:|---:|---:|---:|")?;
    let (mut of_two, mut of_three) = (Vec::new(), Vec::new());
    for cost in costs {
        let (at_once, in_turn, strict) = (wall(&cost.thrice), 3.0 * wall(&cost.alone), wall(&cost.strict_of_three));
        let cells = [at_once, in_turn, strict, strict / at_once, strict / in_turn].map(|value| format!("{value:.2}"));
        writeln!(text, "| `{} {}` | {} |", cost.program, cost.arguments, cells.join(" | "))?;
        of_two.push(wall(&cost.strict) / wall(&cost.twice));
        of_three.push(strict / at_once);
    }
    let worst = |quotients: &[f64]| quotients.iter().copied().fold(f64::NAN, f64::max);
    writeln!(
        text,
        "\nStrict against as many jobs at once, median and worst: r = 2 {:.2} and {:.2}, r = 3 {:.2} and {:.2}.\n",
        median(&of_two),
        worst(&of_two),
        median(&of_three),
        worst(&of_three)
    )
}

fn table_json(table: &ComparisonTable) -> Value {
    let column = |column: &Column| {
        let figures = column.figures.iter().map(
            |figure| json!({"name": figure.name, "unit": figure.unit, "means": figure.means, "bests": figure.bests}),
        );
        json!({"library": column.library, "figures": figures.collect::<Vec<_>>()})
    };
    json!({
        "ranks": table.rank_count,
        "transport": table.transport.name(),
        "shares_cores": table.shares_cores,
        "columns": table.columns.iter().map(column).collect::<Vec<_>>(),
    })
}

fn cost_json(cost: &Cost) -> Value {
    let times = |spent: &[Spent]| {
        let one = |spent: &Spent| json!({"wall_seconds": spent.wall_seconds, "cpu_seconds": spent.cpu_seconds});
        spent.iter().map(one).collect::<Vec<_>>()
    };
    json!({
        "program": cost.program,
        "arguments": cost.arguments,
        "alone": times(&cost.alone),
        "twice": times(&cost.twice),
        "strict": times(&cost.strict),
        "deferred": times(&cost.deferred),
        "thrice": times(&cost.thrice),
        "strict_of_three": times(&cost.strict_of_three),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_is_wrapped_and_tables_are_not() {
        let (prose, row) = ("word ".repeat(60), format!("| {} |", "cell ".repeat(60)));
        let text = wrapped(&format!("# Title\n\n{}\n\n{row}\n", prose.trim_end()));
        let lines: Vec<_> = text.lines().collect();
        assert!(lines.contains(&&*row) && lines.iter().filter(|line| line.len() > COLUMNS).count() == 1, "{text}");
        assert_eq!(text.split_whitespace().filter(|word| *word == "word").count(), 60);
    }
}
