//! The report: Markdown for people, JSON with every run.

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

/// The line of the page from which on it is not written here.
pub const KEPT_FROM: &str = "<!-- measured by other commands -->";

/// What the page has, above everything that was measured.
const SUMMARY: &str = "\
In short:

- Tables beside Open MPI and MPICH: messages and collectives, whole programs, starting, memory.
- Then what only redrt has: the cost of replicas, of comparing, of copies and checkpoints, and what grows with what.
- Figures are of one machine, and of the hour in which they were taken; libraries ran in turn, and medians are shown.
- The last column of a comparison is redrt's time over that of the best peer: less than 1 is faster.
- Where cores are shared, means are shown and the scheduler decides most of them; compare rows, not tables.
";

/// All that was measured.
pub struct Report {
    machine: Machine,
    effort: Effort,
    libraries: Vec<String>,
    absent: Vec<String>,
    /// Libraries beside each other.
    pub pairs: Vec<ComparisonTable>,
    /// Whole programs, starting, memory: beside peers.
    pub beside: Vec<Beside>,
    /// The cost of replicas.
    pub degree: Vec<Cost>,
    /// The cost of the hash protocol.
    pub protocol: Option<Protocol>,
    /// What grows.
    pub growth: Vec<Beside>,
}

impl Report {
    /// A report with no figures yet.
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
            beside: Vec::new(),
            degree: Vec::new(),
            protocol: None,
            growth: Vec::new(),
        }
    }

    /// The report for people.
    pub fn markdown(&self) -> String {
        let mut text = String::new();
        self.write(&mut text).expect("writing to a string succeeds");
        text
    }

    fn write(&self, text: &mut String) -> std::fmt::Result {
        writeln!(text, "# Benchmarks\n\n{SUMMARY}")?;
        writeln!(text, "Written by this command, up to what other commands have measured; do not edit:\n")?;
        writeln!(text, "    cargo run --release -p redrt-benches -- --markdown docs/benchmarks.md\n")?;
        if self.effort.quick {
            writeln!(text, "**Made with `--quick`: this shows that the benchmarks run, not how fast anything is.**\n")?;
        }
        self.write_machine(text)?;
        for table in &self.pairs {
            write_table(text, table)?;
        }
        self.beside.iter().for_each(|table| text.push_str(&table.markdown()));
        if !self.degree.is_empty() {
            write_costs(text, &self.degree)?;
            write_costs_of_three(text, &self.degree)?;
        }
        self.protocol.iter().for_each(|protocol| text.push_str(&protocol.markdown()));
        if !self.growth.is_empty() {
            writeln!(text, "## What grows\n\n![Charts of the tables below]({})\n", growth::PICTURE)?;
        }
        self.growth.iter().for_each(|table| text.push_str(&table.markdown()));
        Ok(())
    }

    fn write_machine(&self, text: &mut String) -> std::fmt::Result {
        let Machine { processor, core_count, memory_gib, kernel, system, compilers, commit, date, .. } = &self.machine;
        writeln!(text, "| | |\n|---|---|")?;
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
             not disturb; where ranks share cores, the mean of the run counts.\n",
            self.effort.runs
        )
    }

    /// Every figure of every run.
    pub fn json(&self) -> Value {
        let machine = &self.machine;
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
            "beside": self.beside.iter().map(Beside::json).collect::<Vec<_>>(),
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
