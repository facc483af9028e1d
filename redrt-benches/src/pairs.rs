//! Latency, bandwidth and collectives of each library, measured by `programs/pairs.c`.

use crate::Effort;
use crate::library::{Library, Transport};
use crate::runner;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// A library and the program compiled with it.
pub struct Program {
    /// The library.
    pub library: Library,
    /// The program.
    pub path: PathBuf,
}

/// One column's figures over all runs.
#[derive(Clone, Debug)]
pub struct Column {
    /// Name of the library.
    pub library: String,
    /// True for redrt.
    pub is_redrt: bool,
    /// Figure names with their unit and one value for each run.
    pub figures: Vec<Figure>,
}

/// One figure of one library over all runs.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Name of the figure in `pairs.c`.
    pub name: String,
    /// Unit of the figure.
    pub unit: String,
    /// Mean over each run.
    pub means: Vec<f64>,
    /// Best slice of each run.
    pub bests: Vec<f64>,
}

/// One table: all libraries in the same conditions.
#[derive(Clone, Debug)]
pub struct ComparisonTable {
    /// Number of ranks.
    pub rank_count: u32,
    /// Transport between the ranks.
    pub transport: Transport,
    /// True with more ranks than cores: a slice that happened to be undisturbed then means nothing.
    pub shares_cores: bool,
    /// One column for each library.
    pub columns: Vec<Column>,
}

impl Figure {
    /// The figure that the report shows.
    pub fn value(&self, shares_cores: bool) -> f64 {
        runner::median(if shares_cores { &self.means } else { &self.bests })
    }

    /// True when more is better.
    pub fn is_rate(&self) -> bool {
        self.unit.ends_with("/s")
    }
}

impl ComparisonTable {
    /// Time of redrt over that of the best peer for figure `row`: 1.0 is equal, below it redrt is faster.
    pub fn time_ratio(&self, row: usize) -> Option<f64> {
        let value = |column: &Column| Some(column.figures.get(row)?.value(self.shares_cores));
        let ours = self.columns.iter().find(|column| column.is_redrt)?;
        let rate = ours.figures.get(row)?.is_rate();
        let peers = self.columns.iter().filter(|column| !column.is_redrt).filter_map(value);
        let best = if rate { peers.max_by(f64::total_cmp) } else { peers.min_by(f64::total_cmp) }?;
        Some(if rate { best / value(ours)? } else { value(ours)? / best })
    }
}

/// Compiles the program with every library.
pub fn build(root: &Path, work: &Path, libraries: &[Library]) -> Result<Vec<Program>> {
    let source = root.join("redrt-benches/programs/pairs.c");
    let programs = libraries.iter().enumerate().map(|(number, library)| {
        let path = work.join(format!("pairs-{number}"));
        library.compile(&[&source], &path)?;
        Ok(Program { library: library.clone(), path })
    });
    programs.collect()
}

/// Runs the program in all conditions.
pub fn measure(programs: &[Program], effort: Effort) -> Result<Vec<ComparisonTable>> {
    let core_count = std::thread::available_parallelism().map_or(1, usize::from);
    let on_one_host = |rank_count| (rank_count, Transport::SharedMemory);
    let conditions = [on_one_host(2), on_one_host(4), on_one_host(8), (2, Transport::Tcp)];
    let mut tables = Vec::new();
    for (rank_count, transport) in conditions {
        let shares_cores = rank_count as usize > core_count;
        let mut table = ComparisonTable { rank_count, transport, shares_cores, columns: Vec::new() };
        for run in 1..=effort.runs {
            for program in programs {
                if program.library.always_spins() && rank_count as usize > 2 * core_count {
                    continue;
                }
                run_once(&mut table, program, run, effort)?;
            }
        }
        tables.push(table);
    }
    Ok(tables)
}

fn run_once(table: &mut ComparisonTable, program: &Program, run: u32, effort: Effort) -> Result<()> {
    let Some(mut command) = program.library.command(table.rank_count, table.transport, &program.path) else {
        return Ok(());
    };
    eprintln!(
        "redrt-bench: {} ranks over {}, run {run} of {}, {}",
        table.rank_count,
        table.transport.name(),
        effort.runs,
        program.library.name
    );
    command.arg(if effort.quick { "0.02" } else { "0.1" });
    let text = runner::output(&mut command)?;
    let name = &program.library.name;
    if !table.columns.iter().any(|column| column.library == *name) {
        let is_redrt = program.library.is_redrt();
        table.columns.push(Column { library: name.clone(), is_redrt, figures: Vec::new() });
    }
    let column = table.columns.iter_mut().find(|column| column.library == *name).expect("it was just added");
    for line in text.lines() {
        add(column, line).with_context(|| format!("{name} printed {line:?}"))?;
    }
    Ok(())
}

/// Adds one line of the program: name, mean, best, unit.
fn add(column: &mut Column, line: &str) -> Result<()> {
    let fields: Vec<_> = line.split_whitespace().collect();
    let [name, mean, best, unit] = fields[..] else { anyhow::bail!("a line has four fields") };
    let at = match column.figures.iter().position(|figure| figure.name == name) {
        Some(at) => at,
        None => {
            let (name, unit) = (name.to_owned(), unit.to_owned());
            column.figures.push(Figure { name, unit, means: Vec::new(), bests: Vec::new() });
            column.figures.len() - 1
        }
    };
    column.figures[at].means.push(mean.parse()?);
    column.figures[at].bests.push(best.parse()?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(library: &str, is_redrt: bool, lines: &[&str]) -> Column {
        let mut column = Column { library: library.into(), is_redrt, figures: Vec::new() };
        for line in lines {
            add(&mut column, line).unwrap();
        }
        column
    }

    #[test]
    fn ratios_are_of_times_whatever_the_unit() {
        let columns = vec![
            column("redrt", true, &["latency 9 2 us", "rate 9 5 M/s"]),
            column("a", false, &["latency 9 1 us", "rate 9 10 M/s"]),
            column("b", false, &["latency 9 4 us", "rate 9 1 M/s"]),
        ];
        let table = ComparisonTable { rank_count: 2, transport: Transport::Tcp, shares_cores: false, columns };
        assert_eq!(table.time_ratio(0), Some(2.0));
        assert_eq!(table.time_ratio(1), Some(2.0));
        assert_eq!(table.time_ratio(2), None);
    }

    #[test]
    fn a_line_that_is_no_figure_is_refused() {
        let mut column = column("redrt", true, &[]);
        assert!(add(&mut column, "latency 1 us").is_err());
        assert!(add(&mut column, "latency x 1 us").is_err());
    }
}
