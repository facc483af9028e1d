//! Records → the table of docs/sdc.md.

use super::{Fate, Findings, FlipSite, Record};
use std::fmt::Write;
use std::path::Path;

/// Messages compared in jobs without faults.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Calm {
    /// The way the jobs were run.
    pub name: String,
    /// Messages compared.
    pub messages: u64,
    /// Reports about these messages, all of which are false.
    pub reports: u64,
}

/// A column: its heading and the records that it counts.
type Column = (&'static str, fn(&Record) -> bool);

const COLUMNS: [Column; 11] = [
    ("injected", |one| one.fate != Fate::NotInjected),
    ("reached a message", |one| one.reached),
    ("detected", |one| one.fate == Fate::Detected),
    ("corrected", |one| one.corrected),
    ("healed", |one| one.healed),
    ("ended aloud", |one| one.fate == Fate::Ended),
    ("masked", |one| one.fate == Fate::Masked),
    ("missed", |one| one.fate == Fate::Missed),
    ("false", |one| one.fate == Fate::False),
    ("lost", |one| one.fate == Fate::Lost),
    ("hung", |one| one.fate == Fate::Hung),
];

impl Findings {
    /// The records as a Markdown table.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = String::from("| r | bit flipped in |");
        COLUMNS.iter().for_each(|(heading, _)| write!(text, " {heading} |").expect("a string"));
        write!(text, "\n|---|---|{}\n", "---:|".repeat(COLUMNS.len())).expect("a string");
        let mut degrees: Vec<_> = self.records.iter().map(|record| record.degree).collect();
        degrees.sort_unstable();
        degrees.dedup();
        let mut row = |first: &str, second: &str, is_in: &dyn Fn(&Record) -> bool| {
            let records = || self.records.iter().filter(|record| is_in(record));
            if records().next().is_some() {
                let numbers = COLUMNS.iter().map(|(_, counts)| records().filter(|one| counts(one)).count().to_string());
                let numbers: Vec<_> = numbers.collect();
                writeln!(text, "| {first} | {second} | {} |", numbers.join(" | ")).expect("a string");
            }
        };
        for degree in &degrees {
            for place in FlipSite::ALL {
                row(&degree.to_string(), place.name(), &|one| one.degree == *degree && one.place == place);
            }
        }
        row("", "all", &|_| true);
        text
    }
}

/// Puts `text` between the marks `<!-- NAME -->` and `<!-- end of NAME -->` of a file.
pub fn put_between_marks(path: &Path, name: &str, text: &str) -> Result<(), String> {
    let at = |error: std::io::Error| format!("{}: {error}", path.display());
    let old = std::fs::read_to_string(path).map_err(at)?;
    let (begin, end) = (format!("<!-- {name} -->"), format!("<!-- end of {name} -->"));
    let missing = |mark: &str| format!("{} has no line {mark}", path.display());
    let (head, rest) = old.split_once(&begin).ok_or_else(|| missing(&begin))?;
    let (_, tail) = rest.split_once(&end).ok_or_else(|| missing(&end))?;
    std::fs::write(path, format!("{head}{begin}\n\n{}\n\n{end}{tail}", text.trim())).map_err(at)
}

/// Messages compared without faults, as a sentence.
#[must_use]
pub fn calm_text(calm: &[Calm]) -> String {
    let messages: u64 = calm.iter().map(|one| one.messages).sum();
    let reports: u64 = calm.iter().map(|one| one.reports).sum();
    let ways: Vec<_> = calm.iter().map(|one| format!("{} ({})", one.name, grouped(one.messages))).collect();
    format!(
        "Without faults {} messages were compared, and {reports} false reports made: {}.",
        grouped(messages),
        ways.join(", ")
    )
}

/// A number with commas.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(degree: u16, place: FlipSite, fate: Fate) -> Record {
        let reached = matches!(fate, Fate::Detected | Fate::Missed);
        Record { id: String::new(), place, degree, fate, reached, corrected: false, healed: false }
    }

    #[test]
    fn a_row_for_each_degree_and_place_and_one_for_all() {
        let records = vec![
            record(3, FlipSite::Heap, Fate::Masked),
            record(2, FlipSite::Log, Fate::Detected),
            record(2, FlipSite::Log, Fate::Missed),
            record(2, FlipSite::Log, Fate::NotInjected),
        ];
        let table = Findings { records, failures: Vec::new() }.table();
        let rows: Vec<_> = table.lines().skip(2).collect();
        assert_eq!(
            rows,
            [
                "| 2 | retention log | 2 | 2 | 1 | 0 | 0 | 0 | 0 | 1 | 0 | 0 | 0 |",
                "| 3 | heap and static data | 1 | 0 | 0 | 0 | 0 | 0 | 1 | 0 | 0 | 0 | 0 |",
                "|  | all | 3 | 2 | 1 | 0 | 0 | 0 | 1 | 1 | 0 | 0 | 0 |",
            ]
        );
    }

    #[test]
    fn only_what_is_between_the_marks_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("page.md");
        std::fs::write(&file, "a\n<!-- x -->\nold\n<!-- end of x -->\nb\n").unwrap();
        put_between_marks(&file, "x", "new\n").unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "a\n<!-- x -->\n\nnew\n\n<!-- end of x -->\nb\n");
        let error = put_between_marks(&file, "y", "new").unwrap_err();
        assert!(error.contains("no line <!-- y -->"), "{error}");
    }

    #[test]
    fn thousands_are_set_apart() {
        assert_eq!([0, 999, 1_000, 12_345_678].map(grouped), ["0", "999", "1,000", "12,345,678"]);
    }
}
